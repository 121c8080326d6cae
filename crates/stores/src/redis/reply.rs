//! What Redis answers in RESP2 (redis.io, "Redis serialization protocol specification"): bytes in,
//! values out, as far as they have come.
//!
//! Lists are taken in element by element, so that a long answer in many pieces is read once.

use std::fmt;

use crate::channel::Progress;
use crate::error::Kind;
use crate::limits::VALUE_BYTES_MAX;
use crate::line::{self, LineFault};

/// The longest line: a status, an error, a number or a length.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Lists within lists.
const DEPTH_MAX: usize = 16;
/// Memory of the answers to what was sent together: bytes of their strings, and [`ITEM_BYTES`] for
/// every element.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What an element counts beside its bytes.
const ITEM_BYTES: usize = size_of::<RedisReply>();
/// Elements room is made for before they have come.
const ROOM_MAX: usize = 64;

/// One whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// The null string or the null list.
    Nil,
    /// A number.
    Int(i64),
    /// A string of any bytes.
    Bytes(Vec<u8>),
    /// A word such as `OK` or `QUEUED`.
    Status(Vec<u8>),
    /// What the server refused, in its words, within a list or a pipeline.
    Error(String),
    /// Answers in order.
    Array(Vec<RedisReply>),
}

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisFault {
    /// Nothing of RESP2.
    Unknown,
    /// A line above 8 KiB.
    LongLine,
    /// A string above [`VALUE_BYTES_MAX`]; how long it was said to be.
    LongValue(usize),
    /// More than 16 MiB in all.
    LongAnswer,
    /// Lists more than 16 deep.
    Deep,
    /// More than was asked for.
    Unasked,
}

impl From<LineFault> for RedisFault {
    fn from(fault: LineFault) -> Self {
        match fault {
            LineFault::Long => Self::LongLine,
            LineFault::Bare => Self::Unknown,
        }
    }
}

impl RedisFault {
    /// The kind of error it makes.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::LongValue(_) | Self::LongAnswer => Kind::TooLarge,
            _ => Kind::Protocol,
        }
    }
}

impl fmt::Display for RedisFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                formatter.write_str("the answer is none of Redis': what listens there?")
            }
            Self::LongLine => write!(
                formatter,
                "the answer has a line above {LINE_BYTES_MAX} bytes"
            ),
            Self::LongValue(bytes) => {
                write!(
                    formatter,
                    "a value has {bytes} bytes, above {VALUE_BYTES_MAX}"
                )
            }
            Self::LongAnswer => {
                write!(
                    formatter,
                    "the answers take more than {ANSWER_BYTES_MAX} bytes of memory"
                )
            }
            Self::Deep => write!(formatter, "the answer has lists more than {DEPTH_MAX} deep"),
            Self::Unasked => formatter.write_str("the server said more than it was asked"),
        }
    }
}

/// Takes in the answers to what was sent together, one after another.
#[derive(Debug, Default)]
pub struct RedisDecoder {
    /// Lists begun, the outermost first.
    open: Vec<List>,
    /// What the answers weigh so far.
    weight: usize,
}

#[derive(Debug)]
struct List {
    items: Vec<RedisReply>,
    missing: usize,
}

/// An element that begins the bytes shown.
enum Element {
    Whole(RedisReply, usize),
    List(usize, usize),
    Partial(usize),
}

impl RedisDecoder {
    /// Takes in what it can of the bytes that came after those it used before.
    ///
    /// # Errors
    /// A [`RedisFault`], after which nothing more of the connection can be understood.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Progress<RedisReply>, RedisFault> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let reply = match element(rest)? {
                Element::Partial(awaited) => return Ok(Progress::More { used, awaited }),
                Element::List(length, taken) => {
                    used += taken;
                    self.weigh(0)?;
                    match self.begin(length)? {
                        None => continue,
                        Some(empty) => empty,
                    }
                }
                Element::Whole(reply, taken) => {
                    used += taken;
                    self.weigh(taken)?;
                    reply
                }
            };
            if let Some(whole) = self.add(reply) {
                return Ok(Progress::Done(whole, used));
            }
        }
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), RedisFault> {
        self.weight = self.weight.saturating_add(bytes).saturating_add(ITEM_BYTES);
        match self.weight > ANSWER_BYTES_MAX {
            true => Err(RedisFault::LongAnswer),
            false => Ok(()),
        }
    }

    /// Begins a list; gives back an empty one, which is whole.
    fn begin(&mut self, length: usize) -> Result<Option<RedisReply>, RedisFault> {
        if length == 0 {
            return Ok(Some(RedisReply::Array(Vec::new())));
        }
        if length > ANSWER_BYTES_MAX / ITEM_BYTES {
            return Err(RedisFault::LongAnswer);
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(RedisFault::Deep);
        }
        self.open.push(List {
            items: Vec::with_capacity(length.min(ROOM_MAX)),
            missing: length,
        });
        Ok(None)
    }

    /// Puts an element where it belongs; gives back the answer that is whole with it.
    fn add(&mut self, reply: RedisReply) -> Option<RedisReply> {
        let mut reply = reply;
        while let Some(list) = self.open.last_mut() {
            list.items.push(reply);
            list.missing -= 1;
            if list.missing > 0 {
                return None;
            }
            reply = RedisReply::Array(self.open.pop()?.items);
        }
        Some(reply)
    }
}

fn element(bytes: &[u8]) -> Result<Element, RedisFault> {
    let Some((line, used)) = line::first(bytes, LINE_BYTES_MAX)? else {
        return Ok(Element::Partial(1));
    };
    let (sign, rest) = line.split_first().ok_or(RedisFault::Unknown)?;
    let whole = |reply| Ok(Element::Whole(reply, used));
    match sign {
        b'+' => whole(RedisReply::Status(rest.to_vec())),
        b'-' => whole(RedisReply::Error(printable(rest))),
        b':' => whole(RedisReply::Int(number(rest)?)),
        b'$' => match number(rest)? {
            -1 => whole(RedisReply::Nil),
            length => string(bytes, used, length),
        },
        b'*' => match number(rest)? {
            -1 => whole(RedisReply::Nil),
            length => {
                let length = usize::try_from(length).map_err(|_| RedisFault::Unknown)?;
                Ok(Element::List(length, used))
            }
        },
        _ => Err(RedisFault::Unknown),
    }
}

fn string(bytes: &[u8], used: usize, length: i64) -> Result<Element, RedisFault> {
    let length = usize::try_from(length).map_err(|_| RedisFault::Unknown)?;
    if length > VALUE_BYTES_MAX {
        return Err(RedisFault::LongValue(length));
    }
    let block = bytes.get(used..).unwrap_or_default();
    let whole = length + 2;
    let tail = block
        .get(length..block.len().min(whole))
        .unwrap_or_default();
    if !b"\r\n".starts_with(tail) {
        return Err(RedisFault::Unknown);
    }
    match block.get(..length) {
        Some(value) if tail.len() == 2 => Ok(Element::Whole(
            RedisReply::Bytes(value.to_vec()),
            used + whole,
        )),
        _ => Ok(Element::Partial(whole - block.len())),
    }
}

fn number(digits: &[u8]) -> Result<i64, RedisFault> {
    let text = std::str::from_utf8(digits).map_err(|_| RedisFault::Unknown)?;
    text.parse().map_err(|_| RedisFault::Unknown)
}

fn printable(line: &[u8]) -> String {
    let shown = line.iter().map(|byte| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Result<Progress<RedisReply>, RedisFault> {
        RedisDecoder::default().decode(bytes)
    }

    /// Shows the bytes one more at a time, as a socket's buffer would hold them.
    fn in_pieces(bytes: &[u8]) -> Option<RedisReply> {
        let (mut decoder, mut begin) = (RedisDecoder::default(), 0);
        for end in 1..=bytes.len() {
            match decoder.decode(&bytes[begin..end]).expect("no fault") {
                Progress::More { used, awaited } => {
                    assert!(awaited > 0 && awaited <= bytes.len() - end);
                    begin += used;
                }
                Progress::Done(reply, used) => {
                    assert_eq!((begin + used, end), (bytes.len(), bytes.len()));
                    return Some(reply);
                }
            }
        }
        None
    }

    #[test]
    fn answers_are_read_whole_and_in_pieces() {
        let bytes = |text: &str| RedisReply::Bytes(text.into());
        let nested = RedisReply::Array(vec![
            RedisReply::Array(vec![
                bytes("a"),
                RedisReply::Nil,
                RedisReply::Array(Vec::new()),
            ]),
            RedisReply::Error("ERR no".to_owned()),
            RedisReply::Int(-7),
        ]);
        let cases: [(&[u8], RedisReply); 8] = [
            (b"+OK\r\n", RedisReply::Status(b"OK".to_vec())),
            (b":-9223372036854775808\r\n", RedisReply::Int(i64::MIN)),
            (b"$-1\r\n", RedisReply::Nil),
            (b"*-1\r\n", RedisReply::Nil),
            (b"$0\r\n\r\n", bytes("")),
            (b"$4\r\na\r\nb\r\n", bytes("a\r\nb")),
            (b"*0\r\n", RedisReply::Array(Vec::new())),
            (
                b"*3\r\n*3\r\n$1\r\na\r\n$-1\r\n*0\r\n-ERR no\r\n:-7\r\n",
                nested,
            ),
        ];
        for (text, reply) in cases {
            assert_eq!(whole(text), Ok(Progress::Done(reply.clone(), text.len())));
            assert_eq!(in_pieces(text), Some(reply), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn one_answer_is_taken_at_a_time() {
        let mut decoder = RedisDecoder::default();
        let bytes = b":1\r\n:2\r\n";
        assert_eq!(
            decoder.decode(bytes),
            Ok(Progress::Done(RedisReply::Int(1), 4))
        );
        assert_eq!(
            decoder.decode(&bytes[4..]),
            Ok(Progress::Done(RedisReply::Int(2), 4))
        );
    }

    #[test]
    fn answers_to_what_was_sent_together_have_one_bound() {
        let mut decoder = RedisDecoder::default();
        let value = vec![b'v'; VALUE_BYTES_MAX];
        let answer = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        assert!(matches!(decoder.decode(&answer), Ok(Progress::Done(..))));
        assert_eq!(decoder.decode(&answer), Err(RedisFault::LongAnswer));
    }

    #[test]
    fn what_is_no_answer_is_a_fault() {
        let deep = b"*1\r\n".repeat(DEPTH_MAX + 1);
        let many = [b"*500000\r\n".as_slice(), &b":1\r\n".repeat(500_000)].concat();
        let cases: [(&[u8], RedisFault); 12] = [
            (b"HTTP/1.1 400\r\n", RedisFault::Unknown),
            (b"\r\n", RedisFault::Unknown),
            (b"+OK\n", RedisFault::Unknown),
            (b":one\r\n", RedisFault::Unknown),
            (b"$-2\r\n", RedisFault::Unknown),
            (b"*-2\r\n", RedisFault::Unknown),
            (b"$1\r\nab\r\n", RedisFault::Unknown),
            (b"$10485761\r\n", RedisFault::LongValue(10_485_761)),
            (b"*9223372036854775807\r\n", RedisFault::LongAnswer),
            (&deep, RedisFault::Deep),
            (&many, RedisFault::LongAnswer),
            (&[b'+'; LINE_BYTES_MAX], RedisFault::LongLine),
        ];
        for (bytes, fault) in cases {
            let shown = bytes.get(..20).unwrap_or(bytes).escape_ascii();
            assert_eq!(whole(bytes), Err(fault), "{shown}");
        }
    }
}
