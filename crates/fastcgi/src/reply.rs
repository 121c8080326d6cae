//! The head a program answers with (RFC 3875 §6), read as it comes in.
//!
//! Every line is a field; `Status`, `Location` and `Content-Length` are for us, fields about a
//! connection end here, the rest goes to the client. A head that is not exactly that is refused
//! with 502, so nothing a program prints can become a second reply. `Location` goes to the client
//! with 302 unless the program says otherwise; one that is a path and all that is said may be served
//! inside instead (§6.2.2, [`ReplyHead::local_location`]). A program that writes the status line
//! itself (NPH) is refused.

use wire::{
    FieldId, Fields, REPLY_BYTES_MAX, Refusal, field_name_ok, field_value_ok, strip_hop_by_hop,
};

/// Caps on a head.
#[derive(Debug, Clone, Copy)]
pub struct HeadCaps {
    /// Bytes of all its lines.
    pub head_bytes: usize,
    /// Lines.
    pub fields: usize,
}

/// Room for most lines from the start.
const LINE_USUAL_BYTES: usize = 256;
/// Fields that would tell a gateway what to do; none of them is for the client.
const FOR_GATEWAYS: [&[u8]; 3] = [b"X-Sendfile", b"X-Sendfile2", b"X-LIGHTTPD-send-file"];
/// What the names of nginx's begin with.
const ACCEL: &[u8] = b"X-Accel-";
/// What a line of a head that is not CGI begins with.
const STATUS_LINE: &[u8] = b"HTTP/";

/// A program's head, being read.
#[derive(Debug, Clone)]
pub struct ReplyHead {
    /// The status to answer with: 200 to 599.
    pub status: u16,
    /// The fields for the client.
    pub fields: Fields,
    /// How long the program says the body is.
    pub length: Option<u64>,
    caps: HeadCaps,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    bytes: usize,
    lines: usize,
    /// The program has said which status.
    has_status: bool,
    is_complete: bool,
}

impl ReplyHead {
    /// Gets ready for a head.
    pub fn new(caps: HeadCaps) -> Self {
        Self {
            status: 0,
            fields: Fields::default(),
            length: None,
            caps,
            line: Vec::with_capacity(LINE_USUAL_BYTES),
            bytes: 0,
            lines: 0,
            has_status: false,
            is_complete: false,
        }
    }

    /// Whether the blank line has come. What follows it is the body.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The path, and query, whose reply the program would have given instead of its own: a
    /// `Location` without status, host and fragment, and nothing beside it but a type.
    pub fn local_location(&self) -> Option<&[u8]> {
        let is_alone = self
            .fields
            .iter()
            .all(|field| matches!(field.id, FieldId::Location | FieldId::ContentType));
        let location = self.fields.get(FieldId::Location)?;
        let is_path = location.starts_with(b"/") && !location.contains(&b'#');
        (self.is_complete && !self.has_status && is_alone && is_path).then_some(location)
    }

    /// Whether not one byte has come.
    pub fn is_untouched(&self) -> bool {
        self.bytes == 0
    }

    /// After a refusal, the line that was refused; of a line that has not ended, its beginning.
    pub fn refused_line(&self) -> &[u8] {
        &self.line
    }

    /// Reads on; says how many bytes of `input` belong to the head: all of them, until it is complete.
    ///
    /// # Errors
    /// 502 for a head that is none. Read nothing more of it then.
    pub fn read(&mut self, input: &[u8]) -> Result<usize, Refusal> {
        let mut used = 0;
        while !self.is_complete {
            let rest = input.get(used..).unwrap_or_default();
            let end = rest.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(rest.len(), |end| end + 1);
            self.bytes = self.bytes.saturating_add(taken);
            if self.bytes > self.caps.head_bytes {
                return Err(refused("head_too_long"));
            }
            used += taken;
            let Some(end) = end else {
                self.line.extend_from_slice(rest);
                break;
            };
            let end_of_line = rest.get(..end).unwrap_or_default();
            let taken = if self.line.is_empty() {
                self.take_line(end_of_line)
            } else {
                let begun = std::mem::take(&mut self.line);
                let line = [begun.as_slice(), end_of_line].concat();
                self.take_line(&line).inspect_err(|_| self.line = begun)
            };
            if let Err(refusal) = taken {
                self.line.extend_from_slice(end_of_line);
                return Err(refusal);
            }
        }
        Ok(used)
    }

    /// The program will say no more.
    ///
    /// # Errors
    /// 502 where the head has no end.
    pub fn eof(&self) -> Result<(), Refusal> {
        match self.is_complete {
            true => Ok(()),
            false if self.is_untouched() => Err(refused("no_reply")),
            false => Err(refused("head_unfinished")),
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return self.end();
        }
        if line.starts_with(STATUS_LINE) {
            return Err(refused("nph"));
        }
        self.lines += 1;
        if self.lines > self.caps.fields {
            return Err(refused("too_many_fields"));
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = colon
            .and_then(|colon| line.split_at_checked(colon))
            .ok_or(refused("no_colon"))?;
        let value = trim(value.get(1..).unwrap_or_default());
        if !field_name_ok(name) {
            return Err(refused("bad_field_name"));
        }
        if !field_value_ok(value) {
            return Err(refused("bad_field_value"));
        }
        self.take_field(name, value)
    }

    fn take_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if name.eq_ignore_ascii_case(b"Status") {
            if self.status != 0 {
                return Err(refused("second_status"));
            }
            self.status = status(value)?;
            self.has_status = true;
            return Ok(());
        }
        match FieldId::of(name) {
            FieldId::ContentLength => {
                let length = number(value).filter(|length| *length <= REPLY_BYTES_MAX);
                let length = length.ok_or(refused("bad_content_length"))?;
                if self.length.replace(length).is_some() {
                    return Err(refused("second_content_length"));
                }
            }
            FieldId::Location if self.fields.contains(FieldId::Location) => {
                return Err(refused("second_location"));
            }
            FieldId::ContentType if self.fields.contains(FieldId::ContentType) => {
                return Err(refused("second_content_type"));
            }
            // Ours: it names the request in the log.
            FieldId::XRequestId => {}
            FieldId::Other if is_for_gateways(name) => {}
            _ => self.fields.push(name, value),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refusal> {
        self.is_complete = true;
        self.line = Vec::new();
        strip_hop_by_hop(&mut self.fields);
        if self.status == 0 {
            let redirects = self.fields.contains(FieldId::Location);
            self.status = if redirects { 302 } else { 200 };
        }
        Ok(())
    }
}

/// `404 Not Found`: three digits, and whatever follows a blank.
fn status(value: &[u8]) -> Result<u16, Refusal> {
    let digits = value.get(..3).unwrap_or_default();
    let well_formed = matches!(value.get(3), None | Some(b' '));
    let status = number(digits).filter(|_| digits.len() == 3 && well_formed);
    status
        .and_then(|status| u16::try_from(status).ok())
        .filter(|status| (200..600).contains(status))
        .ok_or(refused("bad_status"))
}

/// Digits and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

fn is_for_gateways(name: &[u8]) -> bool {
    let start = name.get(..ACCEL.len()).unwrap_or_default();
    start.eq_ignore_ascii_case(ACCEL)
        || FOR_GATEWAYS
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
}

/// Without blanks around it.
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

const fn refused(reason: &'static str) -> Refusal {
    Refusal::new(502, reason)
}
