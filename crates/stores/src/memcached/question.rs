//! What is asked of memcached, and which answers fit.
//!
//! Answers come in the order of the questions and don't say whose they are. So one that does not fit
//! its question means that nothing behind it can be trusted.

use super::reply::{self, Fault, Reply};
use crate::channel::Progress;

/// A command as far as its answer is concerned.
pub(super) struct Question {
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
pub(super) enum Standing {
    /// The next answer is the next question's.
    Sure,
    /// The server may have taken the body of the command for commands.
    Doubtful,
}

impl Question {
    /// Reads the answer from the beginning of what has arrived.
    pub(super) fn hear(&self, bytes: &[u8]) -> Result<Progress<Reply>, Fault> {
        let progress = reply::parse(bytes, &self.key)?;
        match &progress {
            Progress::Done(reply, _) if !self.verb.takes(reply) => Err(Fault::Unfit(reply.name())),
            _ => Ok(progress),
        }
    }

    /// What an answer says about those behind it.
    pub(super) fn standing(&self, reply: &Reply) -> Standing {
        match reply {
            // Whatever came with the command was read over, says the protocol.
            Reply::Refused(words) if words.starts_with("SERVER_ERROR") => Standing::Sure,
            Reply::Refused(_) if self.verb == Verb::Store => Standing::Doubtful,
            _ => Standing::Sure,
        }
    }
}

impl Verb {
    fn takes(self, reply: &Reply) -> bool {
        match reply {
            Reply::Refused(_) => true,
            Reply::Value(_) | Reply::End => self == Self::Get,
            Reply::Stored | Reply::NotStored => self == Self::Store,
            Reply::Deleted => self == Self::Delete,
            Reply::NotFound => matches!(self, Self::Delete | Self::Count),
            Reply::Ok => self == Self::Flush,
            Reply::Number(_) => self == Self::Count,
        }
    }
}
