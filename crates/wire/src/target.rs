//! Request target: its form, and the one canonical path everybody uses.
//!
//! A path is decoded once, here, into two faces that are built side by side. The *decoded* face is
//! for matching and files. The *wire* face is for upstreams: dot segments gone, slashes merged,
//! unreserved octets decoded, every other escape as it was sent, and the few raw octets a URI may
//! not carry escaped. What could mean one thing to a matcher and another to a file system or an
//! upstream is refused: NUL and control octets, backslashes, broken or overlong UTF-8, broken
//! escapes, segments that climb above the root or hide the dots that would. The query is nobody's business and stays as sent.
//! Most paths are plain: both faces are then the target itself, and nothing is copied.

use std::ops::Range;

use crate::{method::Method, refusal::Refusal};

/// How a site wants its paths read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathRules {
    /// Repeated slashes.
    pub slashes: Slashes,
    /// `%2F`.
    pub encoded_slash: EncodedSlash,
}

/// What becomes of repeated slashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Slashes {
    /// Several are one.
    #[default]
    Merge,
    /// Each counts.
    Keep,
}

/// What becomes of `%2F`, a slash that is no separator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EncodedSlash {
    /// 400.
    #[default]
    Refuse,
    /// It stays escaped in both faces, as `%2F` in the decoded one.
    Keep,
}

/// Where the pieces of a target lie in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// Present in absolute-form.
    pub(crate) authority: Option<Range<usize>>,
    /// As sent; empty means `/`.
    pub(crate) path: Range<usize>,
    /// Without its `?`.
    pub(crate) query: Option<Range<usize>>,
    /// `*`, about the whole server.
    pub(crate) asterisk: bool,
    /// The path is canonical as it is, under all rules.
    pub(crate) plain: bool,
}

impl Target {
    /// Splits a target of printable ASCII by its form (RFC 9112 §3.2). CONNECT never gets here.
    pub(crate) fn split(raw: &[u8], method: Method) -> Result<Target, Refusal> {
        match raw {
            [b'/', ..] => Target::from_path(raw, 0, None),
            b"*" if method == Method::Options => Ok(Target {
                asterisk: true,
                ..Target::default()
            }),
            _ => Target::absolute(raw, method),
        }
    }

    fn absolute(raw: &[u8], method: Method) -> Result<Target, Refusal> {
        let scheme = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| starts_with_folded(raw, scheme));
        let start = scheme.ok_or(Refusal::bad("bad_target"))?.len();
        let rest = raw.get(start..).unwrap_or_default();
        let authority_bytes = rest
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
            .unwrap_or(rest.len());
        let end = start + authority_bytes;
        let target = Target::from_path(raw, end, Some(start..end))?;
        let asterisk = method == Method::Options && end == raw.len();
        Ok(Target { asterisk, ..target })
    }

    /// Takes path and query from `start` on, and looks whether the path is plain.
    fn from_path(
        raw: &[u8],
        start: usize,
        authority: Option<Range<usize>>,
    ) -> Result<Target, Refusal> {
        let mut end = raw.len();
        let mut plain = start < end;
        let mut before = 0;
        for (index, &byte) in raw.iter().enumerate().skip(start) {
            if byte == b'?' {
                end = index;
                plain &= index > start;
                break;
            }
            let class = CLASS[byte as usize];
            // A slash or a dot after a slash begins a segment that may have to go.
            plain &= class == Class::Plain && !(before == b'/' && matches!(byte, b'/' | b'.'));
            before = byte;
        }
        let query = (end < raw.len()).then(|| end + 1..raw.len());
        let unseen = if plain { end } else { start };
        if raw.get(unseen..).is_some_and(|tail| tail.contains(&b'#')) {
            return Err(Refusal::bad("fragment"));
        }
        Ok(Target {
            authority,
            path: start..end,
            query,
            asterisk: false,
            plain,
        })
    }
}

fn starts_with_folded(raw: &[u8], scheme: &[u8]) -> bool {
    raw.get(..scheme.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(scheme))
}

/// Both faces of a path that is not plain. Their memory is reused.
#[derive(Debug, Clone, Default)]
pub(crate) struct CanonicalPath {
    pub(crate) decoded: Vec<u8>,
    pub(crate) wire: Vec<u8>,
}

impl CanonicalPath {
    /// Builds both faces of a path that begins with `/` or is empty.
    pub(crate) fn build(&mut self, raw: &[u8], rules: PathRules) -> Result<(), Refusal> {
        self.decoded.clear();
        self.wire.clear();
        self.push(b'/');
        let segments = raw.strip_prefix(b"/").unwrap_or(raw);
        let mut open = false;
        for segment in segments.split(|&byte| byte == b'/') {
            // The slash between the segment before and this one; merged when that one is gone.
            if open {
                self.push(b'/');
            }
            open = self.push_segment(segment, rules)?;
        }
        match str::from_utf8(&self.decoded) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::bad("path_not_utf8")),
        }
    }

    fn push(&mut self, byte: u8) {
        self.decoded.push(byte);
        self.wire.push(byte);
    }

    /// Decodes one segment; whether a slash must follow before the next one.
    fn push_segment(&mut self, segment: &[u8], rules: PathRules) -> Result<bool, Refusal> {
        let start = (self.decoded.len(), self.wire.len());
        let mut rest = segment;
        while let [byte, tail @ ..] = rest {
            rest = tail;
            match (CLASS[*byte as usize], tail) {
                (Class::Plain, _) => self.push(*byte),
                (Class::Escape, [high, low, after @ ..]) => {
                    self.push_escape(*high, *low, rules)?;
                    rest = after;
                }
                (Class::Raw, _) => {
                    self.decoded.push(*byte);
                    self.wire.extend_from_slice(&[
                        b'%',
                        hex_digit(byte >> 4),
                        hex_digit(byte & 15),
                    ]);
                }
                (Class::Escape, _) => return Err(Refusal::bad("bad_escape")),
                (Class::Backslash, _) => return Err(Refusal::bad("backslash_in_path")),
                (Class::Never, _) => return Err(Refusal::bad("bad_target")),
            }
        }
        match self.decoded.get(start.0..).unwrap_or_default() {
            b"." => self.cut(start),
            b".." => {
                self.cut(start);
                self.leave_segment()?;
            }
            b"" => return Ok(rules.slashes == Slashes::Keep),
            decoded if hides_dots(decoded, rules) => {
                return Err(Refusal::bad("hidden_dot_segment"));
            }
            _ => return Ok(true),
        }
        Ok(false)
    }

    fn push_escape(&mut self, high: u8, low: u8, rules: PathRules) -> Result<(), Refusal> {
        let (Some(high_value), Some(low_value)) = (hex_value(high), hex_value(low)) else {
            return Err(Refusal::bad("bad_escape"));
        };
        let sent = [b'%', high, low];
        match high_value << 4 | low_value {
            0 => return Err(Refusal::bad("nul_in_path")),
            0x01..=0x1f | 0x7f => return Err(Refusal::bad("control_in_path")),
            b'\\' => return Err(Refusal::bad("backslash_in_path")),
            b'/' if rules.encoded_slash == EncodedSlash::Refuse => {
                return Err(Refusal::bad("encoded_slash"));
            }
            b'/' => {
                self.decoded.extend_from_slice(b"%2F");
                self.wire.extend_from_slice(&sent);
            }
            byte @ (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~') => {
                self.push(byte)
            }
            byte => {
                self.decoded.push(byte);
                self.wire.extend_from_slice(&sent);
            }
        }
        Ok(())
    }

    fn cut(&mut self, (decoded, wire): (usize, usize)) {
        self.decoded.truncate(decoded);
        self.wire.truncate(wire);
    }

    /// Goes back over `segment/` to the slash before it; the root has none.
    fn leave_segment(&mut self) -> Result<(), Refusal> {
        match (parent(&self.decoded), parent(&self.wire)) {
            (Some(decoded), Some(wire)) => {
                self.cut((decoded, wire));
                Ok(())
            }
            _ => Err(Refusal::bad("path_above_root")),
        }
    }
}

/// Length of the directory that `face`, which ends in a slash, lies in.
fn parent(face: &[u8]) -> Option<usize> {
    let without_slash = face.split_last()?.1;
    Some(without_slash.iter().rposition(|&byte| byte == b'/')? + 1)
}

/// Whether others may find a dot segment in this segment: servers that cut off parameters before
/// they look for one, and upstreams that take a kept `%2F` for a separator.
fn hides_dots(segment: &[u8], rules: PathRules) -> bool {
    let mut rest = Some(segment);
    while let Some(pieces) = rest {
        let slash = match rules.encoded_slash {
            EncodedSlash::Refuse => None,
            EncodedSlash::Keep => pieces.windows(3).position(|three| three == b"%2F"),
        };
        let piece = pieces
            .get(..slash.unwrap_or(pieces.len()))
            .unwrap_or_default();
        let name = piece.split(|&byte| byte == b';').next();
        if matches!(name, Some(b"." | b"..")) {
            return true;
        }
        rest = slash.and_then(|slash| pieces.get(slash + 3..));
    }
    false
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

fn hex_digit(value: u8) -> u8 {
    if value < 10 {
        b'0' + value
    } else {
        b'A' + value - 10
    }
}

/// What a byte of a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Stays as it is in both faces: unreserved, sub-delimiters, `:`, `@` and the slash.
    Plain,
    /// `%`.
    Escape,
    /// No URI may carry it raw, yet clients send it: escaped on the wire.
    Raw,
    /// Some take it for a slash.
    Backslash,
    /// Cannot be in a path.
    Never,
}

static CLASS: [Class; 256] = class_table();

const fn class_table() -> [Class; 256] {
    let mut table = [Class::Never; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte] = match byte as u8 {
            b'%' => Class::Escape,
            b'\\' => Class::Backslash,
            b'"' | b'<' | b'>' | b'[' | b']' | b'^' | b'`' | b'{' | b'|' | b'}' => Class::Raw,
            b'?' | b'#' => Class::Never,
            _ => Class::Plain,
        };
        byte += 1;
    }
    table
}
