//! Bodies in chunks: sizes read, data counted, extensions and trailers skipped within bounds.

use super::Fault;

/// Longest extension of a chunk.
const EXTENSION_BYTES_MAX: u32 = 4 * 1024;
/// Longest section of trailers.
const TRAILER_BYTES_MAX: u32 = 64 * 1024;
/// Most digits of a size, leading zeros included: below 2^60.
const DIGITS_MAX: u32 = 15;

/// Where in a chunked body the bytes have led.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    place: ChunkState,
    /// Of the chunk's data, or its size while that is read.
    left: u64,
    /// Digits of the size, then bytes of the extension or of the trailers.
    count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    TrailerBegin,
    Trailer,
    TrailerEnd,
    LastEnd,
}

impl Default for Chunks {
    fn default() -> Self {
        Chunks {
            place: ChunkState::Size,
            left: 0,
            count: 0,
        }
    }
}

impl Chunks {
    /// How many bytes were the body's, where it ends in them. Data is added to `body_bytes`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        body_bytes: &mut u64,
    ) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if self.place == ChunkState::Data {
                let taken = self.left.min((bytes.len() - at) as u64);
                *body_bytes = body_bytes.saturating_add(taken);
                self.left -= taken;
                at += taken as usize;
                if self.left == 0 {
                    self.place = ChunkState::DataReturn;
                }
                continue;
            }
            at += 1;
            if self.place == ChunkState::LastEnd && *byte == b'\n' {
                return Ok(Some(at));
            }
            self.place = self.step(*byte)?;
        }
        Ok(None)
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, Fault> {
        use ChunkState::{
            Data, DataEnd, DataReturn, Extension, LastEnd, Size, SizeEnd, Trailer, TrailerBegin,
            TrailerEnd,
        };
        let next = match (self.place, byte) {
            (Size, b'\r') if self.count > 0 => SizeEnd,
            (Size, b';' | b' ' | b'\t') if self.count > 0 => {
                self.count = 0;
                Extension
            }
            (Size, _) => self.digit(byte)?,
            (Extension | Trailer, b'\n') => return Err("a chunk's line without a carriage return"),
            (Extension, b'\r') => SizeEnd,
            (Extension, _) => self.within(EXTENSION_BYTES_MAX, Extension)?,
            (SizeEnd, b'\n') => {
                self.count = 0;
                if self.left == 0 { TrailerBegin } else { Data }
            }
            (DataReturn, b'\r') => DataEnd,
            (DataEnd, b'\n') => {
                self.count = 0;
                Size
            }
            (TrailerBegin, b'\r') => LastEnd,
            (TrailerBegin, b'\n') => return Err("a chunk's line without a carriage return"),
            (Trailer, b'\r') => TrailerEnd,
            (TrailerBegin | Trailer, _) => self.within(TRAILER_BYTES_MAX, Trailer)?,
            (TrailerEnd, b'\n') => TrailerBegin,
            (SizeEnd | TrailerEnd | LastEnd, _) => {
                return Err("a chunk's line with a carriage return inside");
            }
            (DataReturn | DataEnd, _) => return Err("a chunk longer than its size"),
            (Data, _) => Data,
        };
        Ok(next)
    }

    fn digit(&mut self, byte: u8) -> Result<ChunkState, Fault> {
        let digit = (byte as char)
            .to_digit(16)
            .ok_or("a chunk's size that is no number")?;
        if self.count == DIGITS_MAX {
            return Err("a chunk's size with too many digits");
        }
        if self.count == 0 {
            self.left = 0;
        }
        self.left = self.left * 16 + u64::from(digit);
        self.count += 1;
        Ok(ChunkState::Size)
    }

    fn within(&mut self, most: u32, place: ChunkState) -> Result<ChunkState, Fault> {
        self.count += 1;
        if self.count > most {
            return Err("a chunk's extension or trailers without end");
        }
        Ok(place)
    }
}
