//! HTTP/2 (RFC 9113) by hand: frames as they are written, and what has come back so far.
//!
//! The idea is that of [`RawClient`](crate::RawClient): nothing is added, repaired or retried, so that a client can be as wrong
//! as a test wants it. Fields go as literals without Huffman coding; of replies' fields the status alone is read. An
//! ordinary client is in [`client`].

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub mod client;

pub use client::{AskedStream, Came, H2Client};
pub use http::request::Builder;
pub use http::{HeaderMap, Request};

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames.
pub mod kind {
    #![allow(missing_docs, reason = "RFC 9113, 6")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flag of DATA and HEADERS: nothing follows on the stream.
pub const END_STREAM: u8 = 1;
/// Flag of SETTINGS and PING: an answer.
pub const ACK: u8 = 1;
/// Flag of HEADERS and CONTINUATION: the block of fields ends.
pub const END_HEADERS: u8 = 4;

/// The code that says that too much was asked for.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// How long a wait lasts.
const PATIENCE: Duration = Duration::from_secs(25);

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 for the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// What has come on a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawStream {
    /// Statuses of its heads, interim ones first; 0 for trailers.
    pub heads: Vec<u16>,
    /// Its data.
    pub body: Vec<u8>,
    /// Whether the server has said its end.
    pub is_ended: bool,
    /// The code it was reset with.
    pub reset: Option<u32>,
}

impl RawStream {
    /// The status of its last head.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.heads.last().copied().unwrap_or(0)
    }

    /// Whether nothing more comes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_ended || self.reset.is_some()
    }
}

/// A connection of which every byte is the test's.
#[derive(Debug)]
pub struct RawH2<S> {
    io: S,
    pending: Vec<u8>,
    /// By number.
    pub streams: BTreeMap<u32, RawStream>,
    /// Last stream and code of each GOAWAY.
    pub goaways: Vec<(u32, u32)>,
    /// What the server asks to have sent back.
    pub pings: Vec<Vec<u8>>,
    /// Answers to pings.
    pub pongs: usize,
    /// What the server has set.
    pub settings: Vec<(u16, u32)>,
    /// Whether the server has closed or reset the connection.
    pub is_over: bool,
}

impl RawH2<TcpStream> {
    /// Connects without TLS, and begins with these settings.
    ///
    /// # Panics
    /// When the connection is refused.
    #[must_use]
    pub fn connect(to: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let io = TcpStream::connect(to).expect("a connection");
        io.set_nodelay(true).expect("an option");
        io.set_read_timeout(Some(PATIENCE)).expect("an option");
        io.set_write_timeout(Some(PATIENCE)).expect("an option");
        Self::begin(io, settings)
    }
}

impl<S: Read + Write> RawH2<S> {
    /// Sends the preface and these settings, and that the server's table of fields is to be empty.
    pub fn begin(io: S, settings: &[(u16, u32)]) -> Self {
        let mut client = Self {
            io,
            pending: Vec::new(),
            streams: BTreeMap::new(),
            goaways: Vec::new(),
            pings: Vec::new(),
            pongs: 0,
            settings: Vec::new(),
            is_over: false,
        };
        let settings = [&[(1, 0)], settings].concat();
        let pair =
            |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let payload: Vec<u8> = settings.iter().flat_map(pair).collect();
        client.send_bytes(&[PREFACE, &frame(kind::SETTINGS, 0, 0, &payload)].concat());
        client
    }

    /// Sends bytes; whether they were taken, which the next read tells as well.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        let sent = self.io.write_all(bytes);
        sent.and_then(|()| self.io.flush()).is_ok()
    }

    /// Sends a frame.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.send_bytes(&frame(kind, flags, stream, payload));
    }

    /// Sends the head of a request.
    pub fn ask(&mut self, stream: u32, fields: &[(&str, &str)], is_whole: bool) {
        let flags = END_HEADERS | if is_whole { END_STREAM } else { 0 };
        self.send(kind::HEADERS, flags, stream, &literals(fields));
    }

    /// Asks for a page.
    pub fn get(&mut self, stream: u32, host: &str, path: &str) {
        self.ask(stream, &get(host, path), true);
    }

    /// Lets the server send so much more.
    pub fn open_window(&mut self, stream: u32, bytes: u32) {
        self.send(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: u32) {
        self.send(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    }

    /// The next frame; none behind the last.
    ///
    /// # Panics
    /// When nothing comes in time.
    pub fn read(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = take(&mut self.pending) {
                self.note(&frame);
                return Some(frame);
            }
            let mut block = [0; 16 * 1024];
            match self.io.read(&mut block) {
                Ok(0) => break,
                Ok(count) => self.pending.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("nothing more came; so far {:?}", self.streams)
                }
                Err(_) => break,
            }
        }
        self.is_over = true;
        None
    }

    /// Reads until something is so.
    ///
    /// # Panics
    /// When the connection ends before, or nothing comes in time.
    #[track_caller]
    pub fn read_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            let has_come = self.read().is_some();
            assert!(
                has_come,
                "the connection ended before {what}: {:?} {:?}",
                self.streams, self.goaways
            );
        }
    }

    /// Reads until a stream is over; what came on it.
    #[track_caller]
    pub fn reply(&mut self, stream: u32) -> RawStream {
        let is_over = |it: &Self| it.streams.get(&stream).is_some_and(RawStream::is_over);
        self.read_until(&format!("the end of stream {stream}"), is_over);
        self.streams.remove(&stream).unwrap_or_default()
    }

    /// Reads until the connection ends; the code of the last GOAWAY.
    pub fn read_to_end(&mut self) -> Option<u32> {
        while self.read().is_some() {}
        self.goaways.last().map(|(_, code)| *code)
    }

    fn note(&mut self, frame: &Frame) {
        let number = |at: usize| {
            frame.payload.get(at..at + 4).map_or(0, |it| {
                u32::from_be_bytes(it.try_into().expect("four bytes"))
            })
        };
        match frame.kind {
            kind::GOAWAY => self.goaways.push((number(0), number(4))),
            kind::PING if frame.flags & ACK != 0 => self.pongs += 1,
            kind::PING => self.pings.push(frame.payload.clone()),
            kind::SETTINGS => self
                .settings
                .extend(frame.payload.chunks_exact(6).map(|it| {
                    let id = u16::from_be_bytes([it[0], it[1]]);
                    (id, u32::from_be_bytes([it[2], it[3], it[4], it[5]]))
                })),
            kind::HEADERS | kind::DATA | kind::RST_STREAM => {
                let stream = self.streams.entry(frame.stream).or_default();
                match frame.kind {
                    kind::HEADERS => stream.heads.push(status_of(&frame.payload)),
                    kind::DATA => stream.body.extend_from_slice(&frame.payload),
                    _ => stream.reset = Some(number(0)),
                }
                stream.is_ended |= frame.kind != kind::RST_STREAM && frame.flags & END_STREAM != 0;
            }
            _ => {}
        }
    }
}

/// The fields of a request for a page.
#[must_use]
pub fn get<'a>(host: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", host),
        (":path", path),
    ]
}

/// A frame's bytes.
///
/// # Panics
/// When it is longer than a frame can be.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a length")
        .to_be_bytes();
    assert_eq!(length[0], 0, "longer than a frame can be");
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// Fields as literals that no table remembers (RFC 7541, 6.2.2).
#[must_use]
pub fn literals<T: AsRef<[u8]>>(fields: &[(T, T)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        push_text(name.as_ref(), &mut block);
        push_text(value.as_ref(), &mut block);
    }
    block
}

/// A string without Huffman coding (RFC 7541, 5.2).
pub fn push_text(text: &[u8], block: &mut Vec<u8>) {
    let mut rest = text.len();
    if rest < 127 {
        block.push(u8::try_from(rest).unwrap_or(0));
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).unwrap_or(0) | 128);
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap_or(0));
    }
    block.extend_from_slice(text);
}

/// Takes the first frame, once it is there.
fn take(pending: &mut Vec<u8>) -> Option<Frame> {
    let (head, rest) = pending.split_at_checked(9)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let frame = Frame {
        kind: head[3],
        flags: head[4],
        stream: u32::from_be_bytes([head[5] & 127, head[6], head[7], head[8]]),
        payload: rest.get(..length)?.to_vec(),
    };
    pending.drain(..9 + length);
    Some(frame)
}

/// The status that a block of fields begins with; 0 where it begins with something else.
fn status_of(block: &[u8]) -> u16 {
    const KNOWN: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    // A new size of the table stands before the first field.
    let resizes = block.iter().take_while(|byte| **byte >> 5 == 1).count();
    match &block[resizes..] {
        [indexed @ 0x88..=0x8e, ..] => KNOWN[usize::from(indexed - 0x88)],
        [0x48 | 0x08 | 0x18, length, text @ ..] => {
            let text = &text[..usize::from(length & 127).min(text.len())];
            match length & 128 {
                0 => std::str::from_utf8(text).map_or(0, |text| text.parse().unwrap_or(0)),
                _ => digits_of(text),
            }
        }
        _ => 0,
    }
}

/// Three digits in Huffman coding (RFC 7541, B).
fn digits_of(text: &[u8]) -> u16 {
    let mut bits = text
        .iter()
        .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
    let mut left = text.len() * 8;
    bits <<= 32 - left.min(32);
    let mut number = 0;
    for _ in 0..3 {
        // Three digits have five bits, the others six.
        let (digit, length) = match bits >> 27 {
            short @ 0..=2 => (short, 5),
            _ => ((bits >> 26) - 0b01_1001 + 3, 6),
        };
        number = number * 10 + u16::try_from(digit).unwrap_or(0);
        bits <<= length;
        left = left.saturating_sub(length);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_in_each_way_they_are_written() {
        assert_eq!(status_of(&[0x88]), 200);
        assert_eq!(status_of(&[0x20, 0x8d]), 404);
        assert_eq!(status_of(b"\x48\x03421"), 421);
        // 302 and 103 in Huffman coding.
        assert_eq!(status_of(&[0x48, 0x82, 0x64, 0x02]), 302);
        assert_eq!(status_of(&[0x08, 0x82, 0x08, 0x19]), 103);
        assert_eq!(status_of(b"\x40\x01x\x01y"), 0);
    }

    #[test]
    fn long_strings_have_long_lengths() {
        for length in [0, 126, 127, 128, 254, 255, 1_000, 20_000] {
            let mut block = Vec::new();
            push_text(&vec![b'x'; length], &mut block);
            let (mut read, mut at) = (usize::from(block[0]), 1);
            if read == 127 {
                for shift in (0..).step_by(7) {
                    let byte = usize::from(block[at]);
                    at += 1;
                    read += (byte & 127) << shift;
                    if byte < 128 {
                        break;
                    }
                }
            }
            assert_eq!((read, block.len() - at), (length, length));
        }
    }
}
