//! What is asked of memcached, and which answers fit.
//!
//! Answers come in the order of the questions and don't say whose they are. So one that does not fit
//! its question means that nothing behind it can be trusted.

use super::reply::{self, MemcachedFault, MemcachedReply};
use crate::channel::Progress;

/// A command as far as its answer is concerned.
pub(super) struct MemcachedQuestion {
    pub(super) verb: Verb,
    /// What it is called in messages.
    pub(super) what: &'static str,
    /// The key a value must come under; empty where none comes.
    pub(super) key: Vec<u8>,
}

/// Commands by the answers that fit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Store,
    Count,
    Delete,
    Flush,
}

/// How sure the connection is after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// The next answer is the next question's.
    Sure,
    /// The server may have taken the body of the command for commands.
    Doubtful,
}

impl MemcachedQuestion {
    /// Reads the answer from the beginning of what has arrived.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<Progress<MemcachedReply>, MemcachedFault> {
        let progress = reply::parse(bytes, &self.key)?;
        match &progress {
            Progress::Done(reply, _) if !self.verb.accepts(reply) => {
                Err(MemcachedFault::Unfit(reply.name()))
            }
            _ => Ok(progress),
        }
    }

    /// What an answer says about those behind it.
    pub(super) fn certainty(&self, reply: &MemcachedReply) -> Certainty {
        match reply {
            // Whatever came with the command was read over, says the protocol.
            MemcachedReply::Refused(words) if words.starts_with("SERVER_ERROR") => Certainty::Sure,
            MemcachedReply::Refused(_) if self.verb == Verb::Store => Certainty::Doubtful,
            _ => Certainty::Sure,
        }
    }
}

impl Verb {
    fn accepts(self, reply: &MemcachedReply) -> bool {
        match reply {
            MemcachedReply::Refused(_) => true,
            MemcachedReply::Value(_) | MemcachedReply::End => self == Self::Get,
            MemcachedReply::Stored | MemcachedReply::NotStored => self == Self::Store,
            MemcachedReply::Deleted => self == Self::Delete,
            MemcachedReply::NotFound => matches!(self, Self::Delete | Self::Count),
            MemcachedReply::Ok => self == Self::Flush,
            MemcachedReply::Number(_) => self == Self::Count,
        }
    }
}
