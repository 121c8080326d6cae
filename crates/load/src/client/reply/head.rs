//! The head of a reply: the few lines a load must understand, the others only checked.

use super::{Fault, Notes};
use crate::client::request::is_token;

/// Longest `Server` field kept.
const SERVER_BYTES_MAX: usize = 256;

/// What a head says.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) keep: bool,
    pub(super) body: Body,
    pub(super) server: Option<String>,
}

/// How the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked,
    UntilEnd,
}

/// The position after the empty line that ends a head, in bytes that do not begin with one.
pub(super) fn end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += line_end(bytes.get(at..)?)?;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

/// The position after the next line feed.
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b == b'\n').map(|at| at + 1)
}

impl Head {
    /// Reads the head at the beginning of `bytes`, and how long it is; `None` where it goes on.
    /// Faults count only once the head is there, so that they are the same however it came.
    pub(super) fn read(bytes: &[u8], notes: Notes) -> Option<(usize, Result<Head, Fault>)> {
        let mut at = line_end(bytes)?;
        let mut reader = Reader::begin(line(bytes.get(..at)?), notes);
        loop {
            let rest = bytes.get(at..)?;
            let end = line_end(rest)?;
            at += end;
            match line(rest.get(..end)?) {
                [] => return Some((at, reader.finish())),
                field => reader.field(field),
            }
        }
    }
}

/// A line without its end.
fn line(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

struct Reader {
    notes: Notes,
    fault: Option<Fault>,
    version_minor: u8,
    status: u16,
    length: Option<u64>,
    coding: Option<Coding>,
    close: bool,
    keep_alive: bool,
    /// Whether the last line was a field that frames: such a one may not go on in the next line.
    foldable: bool,
    server: Option<String>,
}

/// What `Transfer-Encoding` came to so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

impl Reader {
    fn begin(line: &[u8], notes: Notes) -> Reader {
        let mut reader = Reader {
            notes,
            fault: None,
            version_minor: 0,
            status: 0,
            length: None,
            coding: None,
            close: false,
            keep_alive: false,
            foldable: false,
            server: None,
        };
        match status_line(line) {
            Some((version_minor, status)) => {
                reader.version_minor = version_minor;
                reader.status = status;
            }
            None => reader.fault = Some("its first line is no status line"),
        }
        reader
    }

    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    fn field(&mut self, line: &[u8]) {
        if has_bad_byte(line) {
            return self.fail("a carriage return or NUL within a line of the head");
        }
        if matches!(line.first(), Some(b' ' | b'\t')) {
            if !self.foldable {
                self.fail("a folded line where none may be");
            }
            return;
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            return self.fail("a line of the head without a colon");
        };
        let (name, value) = line.split_at(colon);
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return self.fail("a field with an impossible name");
        }
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        self.foldable = true;
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            6 if self.notes == Notes::Keep && name.eq_ignore_ascii_case(b"server") => {
                let value = value.get(..SERVER_BYTES_MAX).unwrap_or(value);
                self.server = Some(String::from_utf8_lossy(value).into_owned());
            }
            _ => {}
        }
    }

    fn content_length(&mut self, value: &[u8]) {
        self.foldable = false;
        let digits = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
        if !digits {
            return self.fail("a Content-Length that is no number");
        }
        let length = value
            .iter()
            .fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        if self.length.is_some_and(|before| before != length) {
            self.fail("two Content-Lengths that differ");
        }
        self.length = Some(length);
    }

    fn transfer_encoding(&mut self, value: &[u8]) {
        self.foldable = false;
        for coding in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            if coding.is_empty() {
                continue;
            }
            if self.coding == Some(Coding::Chunked) {
                self.fail("a Transfer-Encoding after chunked");
            }
            self.coding = Some(match coding.eq_ignore_ascii_case(b"chunked") {
                true => Coding::Chunked,
                false => Coding::Other,
            });
        }
        if self.coding.is_none() {
            self.fail("an empty Transfer-Encoding");
        }
    }

    fn connection(&mut self, value: &[u8]) {
        self.foldable = false;
        for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn finish(mut self) -> Result<Head, Fault> {
        if self.coding.is_some() && self.length.is_some() {
            self.fail("both Content-Length and Transfer-Encoding");
        }
        if self.coding.is_some() && self.version_minor == 0 {
            self.fail("a Transfer-Encoding in HTTP/1.0");
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let body = match (self.coding, self.length) {
            (Some(Coding::Chunked), _) => Body::Chunked,
            (Some(Coding::Other), _) | (None, None) => Body::UntilEnd,
            (None, Some(length)) => Body::Length(length),
        };
        Ok(Head {
            status: self.status,
            keep: !self.close && (self.version_minor > 0 || self.keep_alive),
            body,
            server: self.server,
        })
    }
}

/// Minor version and status of `HTTP/1.1 200 OK`; the phrase may be missing.
fn status_line(line: &[u8]) -> Option<(u8, u16)> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let (minor, rest) = rest.split_first()?;
    let ([b' ', digits @ ..], true) = (rest, minor.is_ascii_digit()) else {
        return None;
    };
    let (digits, phrase) = digits.split_at_checked(3)?;
    let fine = digits.iter().all(u8::is_ascii_digit)
        && matches!(phrase.first(), None | Some(b' '))
        && !has_bad_byte(phrase);
    let status = digits.iter().fold(0_u16, |sum, digit| {
        sum * 10 + u16::from(digit.wrapping_sub(b'0')) % 10
    });
    (fine && status >= 100).then_some((minor - b'0', status))
}

/// Written without an early end, so that the compiler looks at many bytes at a time.
fn has_bad_byte(line: &[u8]) -> bool {
    line.iter()
        .fold(false, |bad, byte| bad | (*byte == b'\r') | (*byte == 0))
}
