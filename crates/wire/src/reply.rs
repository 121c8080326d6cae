//! Reply head: what an upstream said, held to the same rules as a client.
//!
//! An upstream that frames its reply in doubt is refused with 502 rather than understood. Whether
//! there is a body depends on the request too, so its method is asked for.

use std::mem::MaybeUninit;

use httparse::Status;

use crate::{
    caps::{FIELDS_MAX, HeadCaps},
    connection,
    field_id::FieldId,
    fields::Fields,
    framing::{self, Framing, Version},
    head,
    method::Method,
    refusal::Refusal,
    scan::{StartLine, first_fault},
};

/// The longest reply there can be, whatever its server says: what counts it further on, in clients
/// and file systems, has a sign.
pub const REPLY_BYTES_MAX: u64 = u64::MAX >> 1;

/// How a reply's body is framed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplyFraming {
    /// There is none: 1xx, 204, 304, or an answer to HEAD.
    #[default]
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// It ends with the connection.
    UntilClose,
}

/// A reply's head. Everything in it is meaningful only after [`ReplyHead::parse`] said it is complete.
#[derive(Debug, Clone, Default)]
pub struct ReplyHead {
    /// 100 to 599.
    pub status: u16,
    /// The version the upstream speaks.
    pub version: Version,
    /// How the body is framed.
    pub framing: ReplyFraming,
    /// Whether the connection can carry another exchange once the body is read.
    pub keep_alive: bool,
    /// The fields as they came.
    pub fields: Fields,
    reason: Vec<u8>,
    upgrade: Vec<u8>,
}

impl ReplyHead {
    /// Reads the head of a reply to `request` from the start of `input`; see [`crate::RequestHead::parse`].
    /// Every refusal is a 502.
    pub fn parse(
        &mut self,
        input: &[u8],
        request: Method,
        caps: &HeadCaps,
    ) -> Result<Option<usize>, Refusal> {
        self.status = 0;
        self.framing = ReplyFraming::default();
        self.keep_alive = false;
        self.fields.clear();
        self.reason.clear();
        self.upgrade.clear();
        match self.split(head::window(input, caps), caps) {
            Some(bytes) => self.judge(request).map(|()| Some(bytes)),
            None => first_fault(input, StartLine::Status, caps).map_or(Ok(None), Err),
        }
        .map_err(Refusal::by_upstream)
    }

    /// The reason phrase; often empty.
    pub fn reason(&self) -> &[u8] {
        &self.reason
    }

    /// The protocol switched to, in lower case, if this is a 101 that names it.
    pub fn upgrade(&self) -> Option<&[u8]> {
        (!self.upgrade.is_empty()).then_some(&self.upgrade)
    }

    fn split(&mut self, window: &[u8], caps: &HeadCaps) -> Option<usize> {
        let mut slots = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let slots = slots.get_mut(..caps.fields.min(FIELDS_MAX))?;
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let Ok(Status::Complete(bytes)) =
            config.parse_response_with_uninit_headers(&mut parsed, window, slots)
        else {
            return None;
        };
        let lines = window.get(..bytes)?;
        self.status = parsed.code.filter(|status| (100..600).contains(status))?;
        self.version = if parsed.version? == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        let line_bytes = lines.iter().position(|&byte| byte == b'\r')?;
        self.reason
            .extend_from_slice(lines.get(STATUS_BYTES + 1..line_bytes).unwrap_or_default());
        // Leading empty lines, which the parser skips, push the version from its place.
        let strict =
            lines.starts_with(b"HTTP/1.") && head::load(&mut self.fields, lines, parsed.headers);
        strict.then_some(bytes)
    }

    fn judge(&mut self, request: Method) -> Result<(), Refusal> {
        let declared = framing::declared(&self.fields, self.version)?;
        if matches!(declared, Framing::Length(length) if length > REPLY_BYTES_MAX) {
            return Err(Refusal::bad("bad_cl"));
        }
        let never = matches!(self.status, 100..200 | 204 | 304);
        self.framing = match declared {
            _ if never || request == Method::Head => ReplyFraming::None,
            Framing::Length(bytes) => ReplyFraming::Length(bytes),
            Framing::Chunked => ReplyFraming::Chunked,
            Framing::None => ReplyFraming::UntilClose,
        };
        // A body announced where none can be may follow all the same: nothing after it can be trusted.
        let stray = matches!(self.status, 100..200 | 204)
            && !matches!(declared, Framing::None | Framing::Length(0));
        let persistent = connection::keeps_alive(&self.fields, self.version)?;
        self.keep_alive = persistent && !stray && self.framing != ReplyFraming::UntilClose;
        if self.status == 101 && self.fields.contains(FieldId::Upgrade) {
            connection::upgrade(&self.fields, &mut self.upgrade);
        }
        Ok(())
    }
}

/// `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;
