//! Request head: bytes in, a request nobody can read in two ways out.
//!
//! [`RequestHead::parse`] decides everything that needs no site: syntax, framing, target form,
//! host. [`RequestHead::canonicalize`] is the second step, once the host has named the site whose
//! path rules apply. All buffers are reused: one value serves a connection for its life.

use std::mem::MaybeUninit;

use httparse::Status;

use crate::{
    authority::Authority,
    caps::{FIELDS_MAX, HeadCaps},
    connection,
    field_id::FieldId,
    fields::Fields,
    framing::{self, Framing, Version},
    head,
    method::Method,
    octets::is_plain_name,
    refusal::Refusal,
    rewrite::Rewritten,
    scan::{StartLine, first_fault},
    target::{CanonicalPath, PathRules, Target},
};

/// A request's head. Everything in it is meaningful only after [`RequestHead::parse`] said it is complete.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// The method, if it is a known one.
    pub method: Method,
    /// The version the client speaks.
    pub version: Version,
    /// How the body is framed.
    pub framing: Framing,
    /// Whether the client means to send another request.
    pub keep_alive: bool,
    /// Whether the client waits for 100 (Continue) before it sends its body.
    pub expect_continue: bool,
    /// The fields as they came.
    pub fields: Fields,
    /// How long it is, its last empty line counted.
    pub bytes: usize,
    /// Method and target, as sent.
    line: Vec<u8>,
    method_bytes: usize,
    target: Target,
    authority: Authority,
    path: CanonicalPath,
    face: Face,
    odd_names: bool,
    upgrade: Vec<u8>,
    pub(crate) rewritten: Rewritten,
}

/// What becomes of field names outside `[A-Za-z0-9-]`, which CGI would fold into others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OddNames {
    /// The field is removed.
    #[default]
    Drop,
    /// The request is refused with 400.
    Refuse,
    /// The field stays.
    Keep,
}

/// Where the canonical path is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Face {
    /// Not made yet.
    #[default]
    Unknown,
    /// The target's own bytes.
    Plain,
    /// In the buffers of [`CanonicalPath`].
    Built,
}

impl RequestHead {
    /// Reads a head from the start of `input`.
    ///
    /// `Ok(Some(n))`: complete, and `n` bytes long. `Ok(None)`: more bytes are needed.
    /// `Err`: answer, close, and parse nothing more; this holds for any longer input too.
    pub fn parse(&mut self, input: &[u8], caps: &HeadCaps) -> Result<Option<usize>, Refusal> {
        self.clear();
        let window = head::window(input, caps);
        let skipped = if window.starts_with(b"\r\n") { 2 } else { 0 };
        let lines = window.get(skipped..).unwrap_or_default();
        let complete = self.split(lines, caps);
        match complete {
            Some(bytes) => {
                self.bytes = skipped + bytes;
                self.judge().map(|()| Some(self.bytes))
            }
            None => first_fault(input, StartLine::Request, caps).map_or(Ok(None), Err),
        }
    }

    /// The method: as sent, or as rewritten.
    pub fn method_bytes(&self) -> &[u8] {
        match &*self.rewritten.method {
            b"" => self.sent_method(),
            rewritten => rewritten,
        }
    }

    /// The method as sent, for logs.
    pub fn sent_method(&self) -> &[u8] {
        self.line.get(..self.method_bytes).unwrap_or_default()
    }

    /// The target as sent, for logs.
    pub fn target(&self) -> &[u8] {
        self.line.get(self.method_bytes..).unwrap_or_default()
    }

    /// The canonical host: lower case, no port, no trailing dot. Empty for HTTP/1.0 without `Host`.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// The canonical `host[:port]` to forward.
    pub fn authority(&self) -> &[u8] {
        self.authority.as_str().as_bytes()
    }

    /// Makes the canonical path under a site's rules. May be called again under others.
    pub fn canonicalize(&mut self, how: PathRules) -> Result<(), Refusal> {
        self.face = Face::Unknown;
        if self.target.plain || self.target.asterisk {
            self.face = Face::Plain;
            return Ok(());
        }
        let RequestHead {
            line,
            method_bytes,
            target,
            path,
            ..
        } = self;
        let raw = line
            .get(*method_bytes..)
            .and_then(|raw| raw.get(target.path.clone()));
        path.build(raw.unwrap_or_default(), how)?;
        self.face = Face::Built;
        Ok(())
    }

    /// The canonical path, decoded: for matching and files. Empty before [`RequestHead::canonicalize`]; `*` for `OPTIONS *`.
    pub fn path(&self) -> &[u8] {
        self.face(&self.path.decoded)
    }

    /// The canonical path, escaped: for upstreams.
    pub fn path_wire(&self) -> &[u8] {
        self.face(&self.path.wire)
    }

    /// The canonical path of what the client asked for, escaped, whatever was put in its place.
    pub fn sent_path_wire(&self) -> &[u8] {
        match &*self.rewritten.sent_path {
            b"" => self.path_wire(),
            sent => sent,
        }
    }

    /// The query as sent, without its `?`.
    pub fn sent_query(&self) -> Option<&[u8]> {
        self.target().get(self.target.query.clone()?)
    }

    /// The query as sent or as rewritten, without its `?`.
    pub fn query(&self) -> Option<&[u8]> {
        match &self.rewritten.query {
            None => self.sent_query(),
            Some(rewritten) => rewritten.as_deref(),
        }
    }

    /// Whether the request is about the whole server: `OPTIONS *`.
    pub fn is_asterisk(&self) -> bool {
        self.target.asterisk
    }

    /// Deals with field names that CGI would fold together. Costs nothing when there is none.
    pub fn odd_field_names(&mut self, how: OddNames) -> Result<(), Refusal> {
        match how {
            _ if !self.odd_names => Ok(()),
            OddNames::Keep => Ok(()),
            OddNames::Refuse => Err(Refusal::bad("odd_field_name")),
            OddNames::Drop => {
                self.fields
                    .retain(|field| field.id != FieldId::Other || is_plain_name(field.name));
                self.odd_names = false;
                Ok(())
            }
        }
    }

    /// The protocols asked for, in lower case, if this request may become a tunnel:
    /// HTTP/1.1, no body, `Connection: upgrade`, and not to h2c.
    pub fn upgrade(&self) -> Option<&[u8]> {
        (!self.upgrade.is_empty()).then_some(&self.upgrade)
    }

    /// Forgets one request before the next; a refused one must not borrow its host or method.
    fn clear(&mut self) {
        self.method = Method::default();
        self.version = Version::default();
        self.framing = Framing::default();
        self.keep_alive = false;
        self.expect_continue = false;
        self.authority.retire();
        self.fields.clear();
        self.bytes = 0;
        self.line.clear();
        self.method_bytes = 0;
        self.target = Target::default();
        self.face = Face::Unknown;
        self.odd_names = false;
        self.upgrade.clear();
        self.rewritten.clear();
    }

    /// Puts another path in the place of the one that was asked for.
    pub(crate) fn replace_path(&mut self, raw: &[u8], how: PathRules) -> Result<(), Refusal> {
        let mut path = CanonicalPath::default();
        path.build(raw, how)?;
        if self.rewritten.sent_path.is_empty() {
            self.rewritten.sent_path = self.path_wire().to_vec();
        }
        self.path = path;
        self.face = Face::Built;
        self.target.asterisk = false;
        Ok(())
    }

    fn face<'a>(&'a self, built: &'a [u8]) -> &'a [u8] {
        match self.face {
            Face::Unknown => b"",
            Face::Plain if self.target.asterisk => b"*",
            Face::Plain => self
                .target()
                .get(self.target.path.clone())
                .unwrap_or_default(),
            Face::Built => built,
        }
    }

    /// The fast path: the length of a complete head without fault, which is copied on the way.
    fn split(&mut self, lines: &[u8], caps: &HeadCaps) -> Option<usize> {
        let mut slots = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let slots = slots.get_mut(..caps.fields.min(FIELDS_MAX))?;
        let mut parsed = httparse::Request::new(&mut []);
        let Ok(Status::Complete(bytes)) = parsed.parse_with_uninit_headers(lines, slots) else {
            return None;
        };
        let (method, target) = (parsed.method?.as_bytes(), parsed.path?.as_bytes());
        // An empty line that was skipped would be a second one.
        let first = head::offset(lines, method) == 0;
        let fits = target.len() <= caps.target_bytes && target.is_ascii();
        let strict = head::load(&mut self.fields, lines.get(..bytes)?, parsed.headers);
        if !(first && fits && strict) {
            return None;
        }
        self.version = if parsed.version? == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        self.method = Method::from_bytes(method);
        self.method_bytes = method.len();
        self.line.extend_from_slice(method);
        self.line.extend_from_slice(target);
        Some(bytes)
    }

    /// The rules that need the whole head.
    fn judge(&mut self) -> Result<(), Refusal> {
        if matches!(self.method, Method::Connect | Method::Trace) {
            return Err(Refusal::new(405, "method_refused"));
        }
        self.framing = framing::declared(&self.fields, self.version)?;
        self.target = Target::split(self.target(), self.method)?;
        self.judge_host()?;
        self.expect_continue = self.judge_expect()?;
        self.odd_names = self.fields.unknown_names().any(|name| !is_plain_name(name));
        self.keep_alive = connection::keeps_alive(&self.fields, self.version)?;
        if self.version == Version::Http11 && self.framing == Framing::None {
            connection::upgrade(&self.fields, &mut self.upgrade);
        }
        Ok(())
    }

    /// Exactly one `Host`, valid even where an absolute target overrules it.
    fn judge_host(&mut self) -> Result<(), Refusal> {
        let mut hosts = self.fields.get_all(FieldId::Host);
        match (hosts.next(), hosts.next()) {
            (Some(host), None) => self.authority.parse(host)?,
            (None, _) if self.version == Version::Http10 => {}
            (None, _) => return Err(Refusal::bad("no_host")),
            (Some(_), Some(_)) => return Err(Refusal::bad("repeated_host")),
        }
        let target = self.line.get(self.method_bytes..).unwrap_or_default();
        match self.target.authority.clone() {
            Some(range) => self.authority.parse(target.get(range).unwrap_or_default()),
            None => Ok(()),
        }
    }

    /// Whether the client waits for a 100; any other expectation is refused.
    fn judge_expect(&self) -> Result<bool, Refusal> {
        if self.version == Version::Http10 || !self.fields.contains(FieldId::Expect) {
            return Ok(false);
        }
        let mut expectations = self.fields.get_all(FieldId::Expect);
        match (expectations.next(), expectations.next()) {
            (Some(one), None) if one.eq_ignore_ascii_case(b"100-continue") => {
                Ok(!matches!(self.framing, Framing::None | Framing::Length(0)))
            }
            _ => Err(Refusal::new(417, "unknown_expectation")),
        }
    }
}
