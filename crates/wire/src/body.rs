//! Body decoder: framing away, content out, for both directions.
//!
//! It never copies: content is handed out as slices of the input. Chunked framing is read byte by
//! byte by a machine as strict as the one for heads, and pays for itself: framing that outgrows
//! what it frames is refused. Trailers are checked and dropped, for no field may arrive after the
//! decisions that depend on it.

use crate::{
    caps::BodyCaps, framing::Framing, octets::is_value_byte, refusal::Refusal, reply::ReplyFraming,
    scan::Lines,
};

/// End of a chunk's data.
pub const CHUNK_END: &[u8] = b"\r\n";
/// The chunk that ends a body, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Framing bytes granted to every body.
const OVERHEAD_BYTES_FREE: u64 = 64 * 1024;
/// Framing bytes granted for each byte of content. A one-byte chunk takes five.
const OVERHEAD_RATIO_MAX: u64 = 4;
/// Digits of a chunk size.
const SIZE_DIGITS_MAX: u8 = 16;

/// Writes what stands before a chunk of `len` bytes; `len` is not zero, for that would end the body.
pub fn encode_chunk_head(len: usize, out: &mut Vec<u8>) {
    debug_assert!(len > 0, "an empty chunk would end the body");
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let value = (len >> (digit * 4)) & 15;
        out.push(b"0123456789abcdef".get(value).copied().unwrap_or(b'0'));
    }
    out.extend_from_slice(b"\r\n");
}

/// One step of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Bytes of the input that are dealt with, framing included.
    pub consumed: usize,
    /// Content among them, perhaps none.
    pub data: &'a [u8],
    /// Whether the body has ended.
    pub done: bool,
}

/// Decodes one body, piece by piece.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: BodyState,
    caps: BodyCaps,
    /// 400 for a client's body, 502 for an upstream's.
    status: u16,
    data_bytes: u64,
    overhead_bytes: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// Content that ends after so many bytes.
    Length(u64),
    /// Content that ends with the connection.
    UntilClose,
    /// In a chunk's size, with its value and digits so far.
    Size(u64, u8),
    /// In the extensions of a chunk of this size; whether any byte of one was seen.
    Extension(u64, bool),
    /// After the CR of the line of a chunk of this size.
    SizeEnd(u64),
    /// In a chunk's data, with what is left of it.
    Data(u64),
    /// After a chunk's data, and after the CR there.
    DataEnd,
    DataEndLf,
    /// In the trailers, down to the blank line.
    Trailers(Lines),
    Done,
    /// Where the body goes on from here is not known.
    Refused(Refusal),
}

impl BodyDecoder {
    /// A decoder for a request's body.
    pub fn new(framing: Framing, caps: &BodyCaps) -> BodyDecoder {
        let state = match framing {
            Framing::None | Framing::Length(0) => BodyState::Done,
            Framing::Length(bytes) => BodyState::Length(bytes),
            Framing::Chunked => BodyState::Size(0, 0),
        };
        BodyDecoder::start(state, 400, caps)
    }

    /// A decoder for a reply's body.
    pub fn for_reply(framing: ReplyFraming, caps: &BodyCaps) -> BodyDecoder {
        let state = match framing {
            ReplyFraming::None | ReplyFraming::Length(0) => BodyState::Done,
            ReplyFraming::Length(bytes) => BodyState::Length(bytes),
            ReplyFraming::Chunked => BodyState::Size(0, 0),
            ReplyFraming::UntilClose => BodyState::UntilClose,
        };
        BodyDecoder::start(state, 502, caps)
    }

    fn start(state: BodyState, status: u16, caps: &BodyCaps) -> BodyDecoder {
        BodyDecoder {
            state,
            caps: *caps,
            status,
            data_bytes: 0,
            overhead_bytes: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
        }
    }

    /// Sets another cap for the whole content; what was handed out already counts.
    pub fn set_body_bytes(&mut self, body_bytes: u64) {
        self.caps.body_bytes = body_bytes;
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        self.state == BodyState::Done
    }

    /// Takes bytes from the start of `input` up to the end of its first run of content, and the framing after it.
    ///
    /// A refusal is final: all further input is refused likewise. Content before a fault is handed
    /// out first; the next call refuses.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, Refusal> {
        let decoded = self.decode_run(input);
        if let Err(refusal) = decoded {
            self.state = BodyState::Refused(refusal);
        }
        decoded
    }

    fn decode_run<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, Refusal> {
        let mut consumed = 0;
        let mut data: &'a [u8] = &[];
        while let Some(rest @ [byte, ..]) = input.get(consumed..) {
            if self.state == BodyState::Done {
                break;
            }
            if let Some(left) = self.content_left() {
                if !data.is_empty() {
                    break;
                }
                data = self.take(rest, left)?;
                consumed += data.len();
                continue;
            }
            match self.step(*byte) {
                Ok(()) => consumed += 1,
                Err(_) if !data.is_empty() => break,
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(Decoded {
            consumed,
            data,
            done: self.is_done(),
        })
    }

    /// The input has ended: fine when the body is done, or lasts until then.
    pub fn eof(&mut self) -> Result<(), Refusal> {
        match self.state {
            BodyState::Done => Ok(()),
            BodyState::UntilClose => {
                self.state = BodyState::Done;
                Ok(())
            }
            _ => Err(self.refuse("body_cut_short")),
        }
    }

    /// How much content may follow right here, if that is what follows.
    fn content_left(&self) -> Option<u64> {
        match self.state {
            BodyState::Length(left) | BodyState::Data(left) => Some(left),
            BodyState::UntilClose => Some(u64::MAX),
            _ => None,
        }
    }

    /// Takes content, of which there may be more bytes than `left`.
    fn take<'a>(&mut self, rest: &'a [u8], left: u64) -> Result<&'a [u8], Refusal> {
        let data = match usize::try_from(left) {
            Ok(left) => rest.get(..left).unwrap_or(rest),
            Err(_) => rest,
        };
        let bytes = data.len() as u64;
        self.grant(if self.state == BodyState::UntilClose {
            bytes
        } else {
            left
        })?;
        self.data_bytes += bytes;
        self.state = match self.state {
            BodyState::Length(left) if left == bytes => BodyState::Done,
            BodyState::Length(left) => BodyState::Length(left - bytes),
            BodyState::Data(left) if left == bytes => BodyState::DataEnd,
            BodyState::Data(left) => BodyState::Data(left - bytes),
            other => other,
        };
        Ok(data)
    }

    /// Refuses content beyond the cap as soon as it is announced.
    fn grant(&self, bytes: u64) -> Result<(), Refusal> {
        match self.data_bytes.checked_add(bytes) {
            Some(total) if total <= self.caps.body_bytes => Ok(()),
            _ => Err(Refusal::new(
                if self.status == 400 { 413 } else { 502 },
                "body_too_long",
            )),
        }
    }

    /// Takes one byte of framing.
    fn step(&mut self, byte: u8) -> Result<(), Refusal> {
        let next = match (self.state, byte) {
            (
                BodyState::Size(size, digits @ 0..SIZE_DIGITS_MAX),
                b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F',
            ) => BodyState::Size(size << 4 | u64::from(digit_value(byte)), digits + 1),
            (BodyState::Size(size, 1..), b'\r') => BodyState::SizeEnd(size),
            (BodyState::Size(size, 1..), b';') => BodyState::Extension(size, false),
            (BodyState::Size(..), _) => return Err(self.refuse("bad_chunk_size")),
            (BodyState::Extension(size, true), b'\r') => BodyState::SizeEnd(size),
            (BodyState::Extension(size, _), byte) => self.extension(size, byte)?,
            (BodyState::SizeEnd(0), b'\n') => BodyState::Trailers(Lines::LineStart),
            (BodyState::SizeEnd(size), b'\n') => {
                self.grant(size)?;
                BodyState::Data(size)
            }
            (BodyState::DataEnd, b'\r') => BodyState::DataEndLf,
            (BodyState::DataEndLf, b'\n') => BodyState::Size(0, 0),
            (BodyState::Trailers(lines), byte) => self.trailer(lines, byte)?,
            (BodyState::Refused(refusal), _) => return Err(refusal),
            (BodyState::SizeEnd(_) | BodyState::DataEnd | BodyState::DataEndLf, _) => {
                return Err(self.refuse("bad_chunk_end"));
            }
            (content, _) => content,
        };
        self.overhead_bytes += 1;
        if self.overhead_bytes
            > OVERHEAD_BYTES_FREE.saturating_add(self.data_bytes.saturating_mul(OVERHEAD_RATIO_MAX))
        {
            return Err(self.refuse("chunk_overhead"));
        }
        self.state = next;
        Ok(())
    }

    fn extension(&mut self, size: u64, byte: u8) -> Result<BodyState, Refusal> {
        if byte == b'\t' || !is_value_byte(byte) {
            return Err(self.refuse("bad_chunk_extension"));
        }
        self.extension_bytes += 1;
        if self.extension_bytes > self.caps.chunk_extension_bytes {
            return Err(self.refuse("chunk_extension_too_long"));
        }
        Ok(BodyState::Extension(size, true))
    }

    fn trailer(&mut self, lines: Lines, byte: u8) -> Result<BodyState, Refusal> {
        let next = lines
            .step(byte)
            .map_err(|refusal| self.refuse(refusal.reason))?;
        self.trailer_bytes += 1;
        // The blank line is no trailer.
        if self.trailer_bytes > self.caps.trailer_bytes.saturating_add(2) {
            return Err(self.refuse("trailers_too_long"));
        }
        Ok(if next == Lines::End {
            BodyState::Done
        } else {
            BodyState::Trailers(next)
        })
    }

    fn refuse(&self, reason: &'static str) -> Refusal {
        Refusal::new(self.status, reason)
    }
}

/// Value of a byte known to be a hexadecimal digit.
fn digit_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
