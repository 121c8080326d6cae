//! One connection to Redis, which knows what it has promised: to watch keys, to queue commands.

use super::reply::{Decoder, Fault, Progress, Reply};
use crate::attempt::Attempt;
use crate::error::Error;
use crate::socket::Socket;

/// A connection that is logged in.
pub(crate) struct Link {
    socket: Socket,
    watches: bool,
    queues: bool,
    changed: bool,
}

/// For whom a connection is between two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// For anybody who logs in alike.
    Clean,
    /// For one request, which watches keys or queues commands.
    Promised,
    /// For nobody: a command has changed something about it.
    Changed,
}

/// What a command does to the connection it goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Plain,
    Watch,
    Unwatch,
    Multi,
    Exec,
    Discard,
    /// It changes what the next command finds, and no other request may find that.
    Change,
    /// It would make the connection useless for the next command.
    Refused,
}

impl Effect {
    /// What the first words of a command mean.
    pub(super) fn of(command: &[Vec<u8>]) -> Self {
        let word = |place: usize| command.get(place).map(Vec::as_slice).unwrap_or_default();
        match word(0).to_ascii_uppercase().as_slice() {
            b"WATCH" => Self::Watch,
            b"UNWATCH" => Self::Unwatch,
            b"MULTI" => Self::Multi,
            b"EXEC" => Self::Exec,
            b"DISCARD" => Self::Discard,
            b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"MONITOR" | b"SYNC" | b"PSYNC"
            | b"HELLO" | b"QUIT" | b"RESET" | b"AUTH" | b"SELECT" => Self::Refused,
            b"CLIENT" => match word(1).to_ascii_uppercase().as_slice() {
                b"REPLY" | b"TRACKING" => Self::Refused,
                _ => Self::Change,
            },
            b"ASKING" | b"READONLY" | b"READWRITE" | b"SCRIPT" | b"DEBUG" => Self::Change,
            _ => Self::Plain,
        }
    }
}

impl Link {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            watches: false,
            queues: false,
            changed: false,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.socket.is_quiet()
    }

    /// Whether it belongs to one request for now.
    pub(super) fn is_promised(&self) -> bool {
        self.watches || self.queues
    }

    pub(super) fn standing(&self) -> Standing {
        match (self.is_promised(), self.changed) {
            (true, _) => Standing::Promised,
            (false, true) => Standing::Changed,
            (false, false) => Standing::Clean,
        }
    }

    /// Sends commands and reads an answer for each.
    pub(super) async fn ask(
        &mut self,
        attempt: &Attempt<'_>,
        what: &str,
        bytes: &[u8],
        effects: &[Effect],
    ) -> Result<Vec<Reply>, Error> {
        let sent = self.socket.write(bytes).await;
        sent.map_err(|error| attempt.lost(what, &error))?;
        let mut replies = Vec::with_capacity(effects.len());
        let mut decoder = Decoder::default();
        for effect in effects {
            let reply = self.hear(attempt, what, &mut decoder).await?;
            self.note(*effect, &reply);
            replies.push(reply);
        }
        if !self.socket.unread().is_empty() {
            return Err(faulty(attempt, what, Fault::Unasked));
        }
        self.socket.shrink();
        Ok(replies)
    }

    async fn hear(
        &mut self,
        attempt: &Attempt<'_>,
        what: &str,
        decoder: &mut Decoder,
    ) -> Result<Reply, Error> {
        loop {
            let progress = decoder.take(self.socket.unread());
            match progress.map_err(|fault| faulty(attempt, what, fault))? {
                Progress::Done(reply, used) => {
                    self.socket.consume(used);
                    return Ok(reply);
                }
                Progress::More { used, awaited } => {
                    self.socket.consume(used);
                    let read = self.socket.read_more(awaited).await;
                    read.map_err(|error| attempt.lost(what, &error))?;
                }
            }
        }
    }

    fn note(&mut self, effect: Effect, reply: &Reply) {
        let refused = matches!(reply, Reply::Error(_));
        match effect {
            Effect::Watch if !refused => self.watches = true,
            Effect::Change => self.changed = true,
            Effect::Multi if !refused => self.queues = true,
            Effect::Unwatch if !self.queues => self.watches = false,
            Effect::Exec | Effect::Discard => (self.watches, self.queues) = (false, false),
            _ => (),
        }
    }
}

fn faulty(attempt: &Attempt<'_>, what: &str, fault: Fault) -> Error {
    attempt.failed(fault.kind(), what, &fault.to_string())
}
