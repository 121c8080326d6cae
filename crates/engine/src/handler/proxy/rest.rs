//! What is still to come of a reply whose client has gone: its end is looked for, and nothing kept.

use wire::Method;

use super::download::Incoming;
use super::heading::{Found, Heading};
use crate::error::Result;
use crate::upstream::link::Link;

/// What is still to come of a reply.
pub(in super::super) struct Rest {
    pub(super) method: Method,
    /// Where the reply's head has not come yet.
    pub(super) heading: Option<Heading>,
    pub(super) incoming: Incoming,
}

impl Rest {
    /// Throws away what the link has read; says whether the reply's end was among it.
    ///
    /// # Errors
    /// What came is no reply.
    pub(in super::super) fn discard(&mut self, link: &mut Link) -> Result<bool> {
        if let Some(heading) = &mut self.heading {
            loop {
                match heading.parse(link, self.method)? {
                    Found::Nothing => return Ok(false),
                    Found::Hints => {}
                    Found::Final => break,
                }
            }
            self.incoming.begin(link.reply.framing);
            self.heading = None;
        }
        self.incoming.discard(&mut link.buffer)
    }
}
