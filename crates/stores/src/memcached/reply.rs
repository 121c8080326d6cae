//! What memcached answers (doc/protocol.txt): bytes in, values out.

use std::fmt;

use crate::channel::Progress;
use crate::error::Kind;
use crate::limits::VALUE_BYTES_MAX;
use crate::line::{self, LineFault};

/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 2_048;
/// What is shown of a server's own words.
const WORDS_MAX: usize = 200;

/// One whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemcachedReply {
    /// `VALUE …`, its bytes, and `END`.
    Value(Vec<u8>),
    /// `END`: nothing was found.
    End,
    /// `STORED`.
    Stored,
    /// `NOT_STORED`.
    NotStored,
    /// `DELETED`.
    Deleted,
    /// `NOT_FOUND`.
    NotFound,
    /// `OK`.
    Ok,
    /// What `incr` and `decr` answer.
    Number(u64),
    /// `ERROR`, `CLIENT_ERROR …` or `SERVER_ERROR …`, as one printable line.
    Refused(String),
}

impl MemcachedReply {
    /// The answer as the protocol names it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Value(_) => "VALUE",
            Self::End => "END",
            Self::Stored => "STORED",
            Self::NotStored => "NOT_STORED",
            Self::Deleted => "DELETED",
            Self::NotFound => "NOT_FOUND",
            Self::Ok => "OK",
            Self::Number(_) => "a number",
            Self::Refused(_) => "ERROR",
        }
    }
}

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemcachedFault {
    /// No line of the protocol.
    Unknown,
    /// A line longer than any of the protocol's.
    LongLine,
    /// A value longer than [`VALUE_BYTES_MAX`]; how long it was said to be.
    LongValue(usize),
    /// A value under a key nobody asked for.
    OtherKey,
    /// More than was asked for.
    Unasked,
    /// An answer, as the protocol names it, that fits another question.
    Unfit(&'static str),
}

impl From<LineFault> for MemcachedFault {
    fn from(fault: LineFault) -> Self {
        match fault {
            LineFault::Long => Self::LongLine,
            LineFault::Bare => Self::Unknown,
        }
    }
}

impl MemcachedFault {
    /// The kind of error it makes.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::LongValue(_) => Kind::TooLarge,
            _ => Kind::Protocol,
        }
    }
}

impl fmt::Display for MemcachedFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                formatter.write_str("the answer is none of memcached's: what listens there?")
            }
            Self::LongLine => write!(
                formatter,
                "the answer has a line above {LINE_BYTES_MAX} bytes"
            ),
            Self::LongValue(bytes) => {
                write!(
                    formatter,
                    "the value has {bytes} bytes, above {VALUE_BYTES_MAX}"
                )
            }
            Self::OtherKey => formatter.write_str("the answer is for another key"),
            Self::Unasked => formatter.write_str("the server said more than it was asked"),
            Self::Unfit(name) => write!(formatter, "{name} is no answer to it"),
        }
    }
}

/// Reads one answer from the beginning of what has arrived; `key` is what was asked for.
///
/// # Errors
/// A [`MemcachedFault`], after which nothing more of the connection can be understood.
pub fn parse(bytes: &[u8], key: &[u8]) -> Result<Progress<MemcachedReply>, MemcachedFault> {
    let Some((line, used)) = line::first(bytes, LINE_BYTES_MAX)? else {
        return Ok(more(1));
    };
    if let Some(head) = line.strip_prefix(b"VALUE ") {
        return value(head, bytes, used, key);
    }
    let reply = match line {
        b"END" => MemcachedReply::End,
        b"STORED" => MemcachedReply::Stored,
        b"NOT_STORED" => MemcachedReply::NotStored,
        b"DELETED" => MemcachedReply::Deleted,
        b"NOT_FOUND" => MemcachedReply::NotFound,
        b"OK" => MemcachedReply::Ok,
        b"ERROR" => MemcachedReply::Refused("ERROR".to_owned()),
        line if line.starts_with(b"CLIENT_ERROR") || line.starts_with(b"SERVER_ERROR") => {
            MemcachedReply::Refused(printable(line))
        }
        // Some versions fill up a number that became shorter with blanks.
        line => {
            MemcachedReply::Number(number(line.trim_ascii_end()).ok_or(MemcachedFault::Unknown)?)
        }
    };
    Ok(Progress::Done(reply, used))
}

/// The rest of `VALUE <key> <flags> <bytes> [<unique>]`, the block and the `END` behind it.
fn value(
    head: &[u8],
    bytes: &[u8],
    used: usize,
    key: &[u8],
) -> Result<Progress<MemcachedReply>, MemcachedFault> {
    let mut parts = head.split(|byte| *byte == b' ');
    let (named, flags, length) = (parts.next(), parts.next(), parts.next());
    if named != Some(key) {
        return Err(MemcachedFault::OtherKey);
    }
    flags.and_then(number).ok_or(MemcachedFault::Unknown)?;
    let length = length.and_then(number).ok_or(MemcachedFault::Unknown)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > VALUE_BYTES_MAX {
        return Err(MemcachedFault::LongValue(length));
    }
    const TAIL: &[u8] = b"\r\nEND\r\n";
    let block = bytes.get(used..).unwrap_or_default();
    let whole = length + TAIL.len();
    let tail = block
        .get(length..block.len().min(whole))
        .unwrap_or_default();
    if !TAIL.starts_with(tail) {
        return Err(MemcachedFault::Unknown);
    }
    match block.get(..length) {
        Some(value) if tail.len() == TAIL.len() => Ok(Progress::Done(
            MemcachedReply::Value(value.to_vec()),
            used + whole,
        )),
        _ => Ok(more(whole - block.len())),
    }
}

/// An answer that is not whole is looked at from its beginning again.
fn more(awaited: usize) -> Progress<MemcachedReply> {
    Progress::More { used: 0, awaited }
}

fn number(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok()?;
    plain.then(|| text.parse().ok())?
}

fn printable(line: &[u8]) -> String {
    let shown = line.iter().take(WORDS_MAX).map(|byte| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Result<Progress<MemcachedReply>, MemcachedFault>) {
        assert_eq!(parse(bytes, b"k"), expected, "{}", bytes.escape_ascii());
    }

    #[test]
    fn answers_are_read_whole() {
        let cases: [(&[u8], MemcachedReply); 9] = [
            (b"END\r\n", MemcachedReply::End),
            (b"STORED\r\n", MemcachedReply::Stored),
            (b"NOT_STORED\r\n", MemcachedReply::NotStored),
            (b"DELETED\r\n", MemcachedReply::Deleted),
            (b"NOT_FOUND\r\n", MemcachedReply::NotFound),
            (b"OK\r\n", MemcachedReply::Ok),
            (
                b"18446744073709551615\r\n",
                MemcachedReply::Number(u64::MAX),
            ),
            (
                b"VALUE k 0 2\r\n\r\n\r\nEND\r\n",
                MemcachedReply::Value(b"\r\n".to_vec()),
            ),
            (
                b"VALUE k 9 0 77\r\n\r\nEND\r\n",
                MemcachedReply::Value(Vec::new()),
            ),
        ];
        for (bytes, reply) in cases {
            check(bytes, Ok(Progress::Done(reply, bytes.len())));
            for cut in 0..bytes.len() {
                let begun = parse(&bytes[..cut], b"k");
                assert!(
                    matches!(
                        begun,
                        Ok(Progress::More {
                            used: 0,
                            awaited: 1..
                        })
                    ),
                    "{cut} of {bytes:?}"
                );
            }
        }
    }

    #[test]
    fn the_bytes_still_to_come_are_known_once_the_length_is() {
        check(b"VALUE k 0 100\r\nabc", Ok(more(100 + 7 - 3)));
        check(b"VALUE k 0 1\r\na\r\nEN", Ok(more(3)));
    }

    #[test]
    fn a_refusal_is_one_printable_line() {
        let bytes = b"SERVER_ERROR out of \x1b[1mmemory\r\n";
        let reply = MemcachedReply::Refused("SERVER_ERROR out of ?[1mmemory".to_owned());
        check(bytes, Ok(Progress::Done(reply, bytes.len())));
    }

    #[test]
    fn what_is_no_answer_is_a_fault() {
        check(
            b"HTTP/1.1 400 Bad Request\r\n",
            Err(MemcachedFault::Unknown),
        );
        check(b"STORED\n", Err(MemcachedFault::Unknown));
        check(b"\r\n", Err(MemcachedFault::Unknown));
        check(b"-1\r\n", Err(MemcachedFault::Unknown));
        check(
            b"VALUE other 0 1\r\na\r\nEND\r\n",
            Err(MemcachedFault::OtherKey),
        );
        check(b"VALUE k 0 -1\r\n", Err(MemcachedFault::Unknown));
        check(b"VALUE k 0\r\n", Err(MemcachedFault::Unknown));
        check(b"VALUE k 0 1\r\nabEND\r\n", Err(MemcachedFault::Unknown));
        check(
            b"VALUE k 0 10485761\r\n",
            Err(MemcachedFault::LongValue(10_485_761)),
        );
        check(&[b'a'; LINE_BYTES_MAX], Err(MemcachedFault::LongLine));
    }
}
