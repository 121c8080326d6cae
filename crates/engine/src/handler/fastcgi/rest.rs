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
    /// What the server is asked at its end, so that it forgets what only this request was to know.
    pub(super) forgetting: Option<Vec<u8>>,
}

impl Rest {
    /// Whether the server is asked something at its end.
    pub(in super::super) fn is_to_forget(&self) -> bool {
        self.forgetting.is_some()
    }

    /// Throws away what the link has read; says whether the reply's end was among it. What is asked
    /// then waits in the link, and its reply is another to be thrown away.
    ///
    /// # Errors
    /// What came are not the records of a reply.
    pub(in super::super) fn discard(&mut self, link: &mut Link) -> Result<bool> {
        loop {
            self.incoming.advance(&mut link.buffer, &mut self.stderr)?;
            let count = self.incoming.data(&link.buffer).len();
            if count == 0 && self.incoming.end().is_none() {
                return Ok(false);
            }
            if count == 0 {
                let Some(question) = self.forgetting.take() else {
                    return Ok(true);
                };
                link.out.bytes().extend(question);
                self.incoming = Incoming::default();
            }
            self.incoming.consume(count, &mut link.buffer);
        }
    }
}
