//! A reply's body that is compressed on its way: what the handler writes goes through an encoder
//! before it is framed.
//!
//! The encoder keeps back what it may. Where the source falls silent, what there is comes out: at
//! once the first time, since a page's beginning is what a browser waits for, and from then on
//! [`FLUSH_MS`] and a tick later, for each time costs bytes and work. How much is compressed before
//! others get their turn is the runtime's budget for a task, of which each piece takes its part.

use std::task::{Context, Poll, ready};

use tokio::task::coop;

use crate::compression::encoder::{Encoder, Place, Step};
use crate::deadline::Deadline;
use crate::error::{Error, Kind, Result};

/// Most bytes that are taken at once.
const PIECE_BYTES: usize = 4 * 1024;
/// What a piece takes of the runtime's 128 for each turn of a task: a turn compresses 64 KiB, which
/// takes less than a millisecond.
const PIECE_COST: usize = 8;
/// How long the source must be silent for what was taken to be flushed, but for the first time.
const FLUSH_MS: u64 = 20;

/// An encoder at work on a reply.
#[derive(Debug)]
pub(crate) struct Encoding {
    encoder: Encoder,
    /// What has come out of it and is not framed yet.
    made: Vec<u8>,
    /// Whether it was given bytes that may not have come out.
    is_behind: bool,
    has_flushed: bool,
    silence: Deadline,
    #[allow(dead_code, reason = "held for its drop")]
    place: Place,
}

impl Encoding {
    /// Puts an encoder to work.
    pub(crate) fn new(encoder: Encoder, place: Place, silence: Deadline) -> Self {
        Self {
            encoder,
            made: Vec::new(),
            is_behind: false,
            has_flushed: false,
            silence,
            place,
        }
    }

    /// What has come out.
    pub(super) fn made(&mut self) -> &mut Vec<u8> {
        &mut self.made
    }

    /// Takes some of `data`; says how much. Pending once enough was done for this turn.
    pub(super) fn poll_take(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        for _ in 0..PIECE_COST {
            ready!(coop::poll_proceed(cx)).made_progress();
        }
        let piece = data.get(..PIECE_BYTES).unwrap_or(data);
        self.take(piece)?;
        Poll::Ready(Ok(piece.len()))
    }

    /// Takes all of `data`, which is short.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<()> {
        self.is_behind |= !data.is_empty();
        self.step(data, Step::More)
    }

    /// Has everything come out, where the source has been silent for long enough.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // Whoever has used up its turn is not silent.
        if !self.is_behind || !coop::has_budget_remaining() {
            return Poll::Ready(Ok(()));
        }
        if self.has_flushed {
            self.silence.set_if_clear(FLUSH_MS);
            ready!(self.silence.poll_expired(cx));
            self.silence.clear();
        }
        (self.is_behind, self.has_flushed) = (false, true);
        Poll::Ready(self.step(b"", Step::Flush))
    }

    /// Ends the body.
    pub(super) fn end(&mut self) -> Result<()> {
        self.step(b"", Step::End)
    }

    fn step(&mut self, data: &[u8], step: Step) -> Result<()> {
        let taken = self.encoder.take(data, step, &mut self.made);
        taken.map_err(|error| Error::io(Kind::Internal, "compress", &error))
    }
}
