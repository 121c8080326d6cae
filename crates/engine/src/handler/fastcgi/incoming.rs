//! Records being read where they lie: output is handed on piece by piece, errors go to the log.

use std::ops::Range;

use fastcgi::record::{Decoder, End, Event};

use crate::buffer::ReadBuffer;
use crate::error::{Error, Kind, Result};
use crate::handler::program::stderr::StderrLog;

/// A decoder and its place in a buffer.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    decoder: Decoder,
    /// Output not yet used.
    data: Range<usize>,
    /// Bytes of the buffer the last step took, `data` included; they go when `data` is used.
    taken: usize,
    end: Option<End>,
}

impl Incoming {
    /// Reads until there is output, the reply has ended, or the buffer has no more to give.
    ///
    /// # Errors
    /// When these are not the records of a reply.
    pub(super) fn advance(
        &mut self,
        buffer: &mut ReadBuffer,
        stderr: &mut StderrLog,
    ) -> Result<()> {
        while self.data.is_empty() && !self.decoder.is_over() && !buffer.is_empty() {
            let decoded = self.decoder.decode(buffer.data()).map_err(|refusal| {
                let detail = "what the server says are not the records of a reply";
                Error::new(Kind::UpstreamBroken, refusal.reason, detail)
            })?;
            self.taken = decoded.consumed;
            match decoded.event {
                Event::More => {}
                Event::Stdout(data) => {
                    // An event is the last that was taken.
                    self.data = decoded.consumed - data.len()..decoded.consumed;
                    return Ok(());
                }
                Event::Stderr(data) => stderr.push(data),
                Event::End(end) => self.end = Some(end),
            }
            buffer.consume(std::mem::take(&mut self.taken));
        }
        Ok(())
    }

    /// The output found.
    pub(super) fn data<'a>(&self, buffer: &'a ReadBuffer) -> &'a [u8] {
        buffer.data().get(self.data.clone()).unwrap_or_default()
    }

    /// Forgets the first `count` bytes of the output.
    pub(super) fn consume(&mut self, count: usize, buffer: &mut ReadBuffer) {
        debug_assert!(count <= self.data.len());
        self.data.start = (self.data.start + count).min(self.data.end);
        if self.data.is_empty() {
            self.data = 0..0;
            buffer.consume(std::mem::take(&mut self.taken));
        }
    }

    /// How the reply ended, once it has and all its output was used.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// How much output is still to come, this included, where the buffer holds all of it.
    pub(super) fn remaining(&self, buffer: &ReadBuffer) -> Option<u64> {
        let behind = buffer.data().get(self.taken..).unwrap_or_default();
        let rest = self.decoder.rest_of(behind).ok().flatten()?;
        u64::try_from(self.data.len() + rest).ok()
    }
}
