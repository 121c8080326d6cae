//! What is still to come of a reply whose client has gone: its end is looked for, what the program
//! complains of is logged, and nothing else kept.

use super::incoming::Incoming;
use crate::error::Result;
use crate::handler::program::stderr::StderrLog;
use crate::upstream::link::Link;

/// What is still to come of a reply.
pub(in super::super) struct Rest {
    pub(super) incoming: Incoming,
    pub(super) stderr: StderrLog,
}

impl Rest {
    /// Throws away what the link has read; says whether the reply's end was among it.
    ///
    /// # Errors
    /// What came are not the records of a reply.
    pub(in super::super) fn discard(&mut self, link: &mut Link) -> Result<bool> {
        loop {
            self.incoming.advance(&mut link.buffer, &mut self.stderr)?;
            let count = self.incoming.data(&link.buffer).len();
            if count == 0 {
                return Ok(self.incoming.end().is_some());
            }
            self.incoming.consume(count, &mut link.buffer);
        }
    }
}
