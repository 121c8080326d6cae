//! A body being decoded where it lies: the buffer is not copied, only looked at.
//!
//! `wire` says which bytes of the buffer are data and which are framing; here is remembered how
//! far that went, so that data may be used piece by piece.

use std::ops::Range;

use wire::{BodyDecoder, Refusal};

use crate::buffer::ReadBuffer;

/// A decoder and its place in a buffer.
#[derive(Debug)]
pub(crate) struct Decoding {
    decoder: BodyDecoder,
    /// Decoded bytes not yet used.
    data: Range<usize>,
    /// Bytes of the buffer the last step took, `data` included; they go when `data` is used.
    taken: usize,
}

impl Decoding {
    /// Begins at the buffer's next byte.
    pub(crate) fn new(decoder: BodyDecoder) -> Self {
        Self {
            decoder,
            data: 0..0,
            taken: 0,
        }
    }

    /// Decodes until there is data, the body has ended, or the buffer has no more to give.
    ///
    /// # Errors
    /// When the framing is wrong.
    pub(crate) fn advance(&mut self, buffer: &mut ReadBuffer) -> Result<(), Refusal> {
        while self.data.is_empty() && !self.decoder.is_done() && !buffer.is_empty() {
            let input = buffer.data();
            let decoded = self.decoder.decode(input)?;
            if !decoded.data.is_empty() {
                let at = decoded
                    .data
                    .as_ptr()
                    .addr()
                    .saturating_sub(input.as_ptr().addr());
                self.data = at..at + decoded.data.len();
            }
            self.taken = decoded.consumed;
            if self.data.is_empty() {
                let taken = std::mem::take(&mut self.taken);
                buffer.consume(taken);
                if taken == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sets another cap for the whole body.
    pub(crate) fn set_body_bytes(&mut self, body_bytes: u64) {
        self.decoder.set_body_bytes(body_bytes);
    }

    /// The data found.
    pub(crate) fn data<'a>(&self, buffer: &'a ReadBuffer) -> &'a [u8] {
        buffer.data().get(self.data.clone()).unwrap_or_default()
    }

    /// Forgets the first `count` bytes of the data.
    pub(crate) fn consume(&mut self, count: usize, buffer: &mut ReadBuffer) {
        debug_assert!(count <= self.data.len());
        self.data.start = (self.data.start + count).min(self.data.end);
        if self.data.is_empty() {
            self.data = 0..0;
            buffer.consume(std::mem::take(&mut self.taken));
        }
    }

    /// Whether every byte was decoded and used.
    pub(crate) fn is_ended(&self) -> bool {
        self.data.is_empty() && self.decoder.is_done()
    }

    /// Whether what is there now is the last of it.
    pub(crate) fn is_last(&self) -> bool {
        self.decoder.is_done()
    }

    /// The stream ended: is the body complete?
    ///
    /// # Errors
    /// When it was cut short.
    pub(crate) fn eof(&mut self) -> Result<(), Refusal> {
        self.decoder.eof()
    }
}
