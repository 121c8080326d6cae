//! Where a handler reads a request's body from: the client as it sends it, or what was taken of it
//! beforehand ([`crate::intake`]).

use std::task::{Context, Poll};

use crate::error::Result;
use crate::exchange::body::Body;
use crate::spool::Spool;

/// Where a body comes from: the client, as it arrives, or where it was set aside beforehand.
#[derive(Debug)]
pub(super) struct Source {
    spooled: Option<Spool>,
}

impl Source {
    /// Of a body that may have been taken beforehand.
    pub(super) fn new(spooled: Option<Spool>) -> Self {
        Self { spooled }
    }

    /// Gives the body back, where it was taken beforehand. Useful while nothing of it was used.
    pub(super) fn into_spooled(self) -> Option<Spool> {
        self.spooled
    }

    /// Whether every byte was read and consumed.
    pub(super) fn is_read(&self, body: &Body) -> bool {
        match &self.spooled {
            Some(spool) => spool.is_empty(),
            None => body.is_ended(),
        }
    }

    /// Bytes read and not yet consumed.
    pub(super) fn data<'a>(&'a self, body: &'a Body) -> &'a [u8] {
        match &self.spooled {
            Some(spool) => spool.data(),
            None => body.data(),
        }
    }

    /// Ready when there are bytes, or the body has ended.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, body: &mut Body) -> Poll<Result<()>> {
        match &mut self.spooled {
            Some(spool) => spool.poll_fill(cx),
            None => body.poll_fill(cx),
        }
    }

    /// Forgets the first `count` bytes of [`Self::data`].
    pub(super) fn consume(&mut self, count: usize, body: &mut Body) {
        match &mut self.spooled {
            Some(spool) => spool.consume(count),
            None => body.consume(count),
        }
    }
}
