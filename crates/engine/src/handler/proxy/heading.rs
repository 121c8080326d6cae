//! The head of an upstream's reply, found behind interim ones.

use wire::{HeadCaps, Method};

use super::{Forward, cut};
use crate::error::Result;
use crate::upstream::link::Link;

/// Interim replies (1xx) an upstream may send before its real one.
const INTERIMS_MAX: usize = 16;

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
    pub(super) fn new(forward: &Forward<'_>) -> Self {
        let caps = &forward.chosen.serving.generation.process.caps;
        Self {
            caps: HeadCaps {
                head_bytes: caps.upstream_head_bytes,
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

    /// Reads a head from the buffer; `true` when it is the final one.
    ///
    /// # Errors
    /// What came is no head, or one too many.
    pub(super) fn parse(&mut self, link: &mut Link, method: Method) -> Result<bool> {
        loop {
            let parsed = link.reply.parse(link.buffer.data(), method, &self.caps);
            let Some(used) = parsed.map_err(|refusal| cut(refusal.reason))? else {
                return Ok(false);
            };
            link.buffer.consume(used);
            let status = link.reply.status;
            if !(100..200).contains(&status) || (status == 101 && self.is_upgrade) {
                return Ok(true);
            }
            self.interims += 1;
            self.distrusted |= !link.reply.keep_alive;
            if status == 101 || self.interims > INTERIMS_MAX {
                return Err(cut("upstream_interim"));
            }
        }
    }
}
