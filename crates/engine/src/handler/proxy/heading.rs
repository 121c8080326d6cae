//! The head of an upstream's reply, found behind interim ones.

use wire::{HeadCaps, Method};

use super::{Forward, cut};
use crate::bounds;
use crate::error::Result;
use crate::exchange::route::Route;
use crate::upstream::link::Link;

/// Interim replies (1xx) an upstream may send before its real one.
const INTERIMS_MAX: usize = 16;

/// What the next head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is not all there.
    Nothing,
    /// Early hints; others are to come.
    Hints,
    /// The final one.
    Final,
}

/// How far the search for the head has come.
#[derive(Debug)]
pub(super) struct Heading {
    caps: HeadCaps,
    interims: usize,
    /// An interim reply announced a body, which may follow it or not.
    pub(super) distrusted: bool,
    is_upgrade: bool,
}

impl Heading {
    /// Begins before the first one.
    pub(super) fn new(forward: &Forward<'_>, route: &Route) -> Self {
        let caps = &forward.chosen.serving.generation.process.caps;
        Self {
            caps: HeadCaps {
                head_bytes: bounds::upstream_head_bytes(*forward.chosen, route),
                target_bytes: 0,
                fields: caps.fields,
            },
            interims: 0,
            distrusted: false,
            is_upgrade: forward.upgrade.is_some(),
        }
    }

    /// Whether none came yet, not even an interim one.
    pub(super) fn is_before_first(&self) -> bool {
        self.interims == 0
    }

    /// Reads a head from the buffer, past those that mean nothing to a client.
    ///
    /// # Errors
    /// What came is no head, or one too many.
    pub(super) fn parse(&mut self, link: &mut Link, method: Method) -> Result<Found> {
        loop {
            let parsed = link.reply.parse(link.buffer.data(), method, &self.caps);
            let Some(used) = parsed.map_err(|refusal| cut(refusal.reason))? else {
                return Ok(Found::Nothing);
            };
            link.buffer.consume(used);
            let status = link.reply.status;
            if !(100..200).contains(&status) || (status == 101 && self.is_upgrade) {
                return Ok(Found::Final);
            }
            self.interims += 1;
            self.distrusted |= !link.reply.keep_alive;
            if status == 101 || self.interims > INTERIMS_MAX {
                return Err(cut("upstream_interim"));
            }
            if status == 103 {
                return Ok(Found::Hints);
            }
        }
    }
}
