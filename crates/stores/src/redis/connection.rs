//! One connection to Redis, which knows what it has promised: to watch keys, to queue commands.

use super::reply::{RedisDecoder, RedisFault, RedisReply};
use crate::attempt::Attempt;
use crate::channel::{Broken, Channel, Decode, Progress};
use crate::error::Error;
use crate::socket::Socket;

/// A connection that is logged in.
pub(crate) struct RedisConnection {
    channel: Channel<Replies>,
    watches: bool,
    queues: bool,
    changed: bool,
}

/// For whom a connection is between two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
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

impl RedisConnection {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            channel: Channel::new(socket),
            watches: false,
            queues: false,
            changed: false,
        }
    }

    pub(super) fn is_quiet(&mut self) -> bool {
        self.channel.is_quiet()
    }

    /// Whether it belongs to one request for now.
    pub(super) fn is_promised(&self) -> bool {
        self.watches || self.queues
    }

    pub(super) fn state(&self) -> ConnectionState {
        match (self.is_promised(), self.changed) {
            (true, _) => ConnectionState::Promised,
            (false, true) => ConnectionState::Changed,
            (false, false) => ConnectionState::Clean,
        }
    }

    /// Sends commands and reads an answer for each.
    pub(super) async fn ask(
        &mut self,
        attempt: &Attempt<'_>,
        what: &str,
        bytes: Vec<u8>,
        effects: &[Effect],
    ) -> Result<Vec<RedisReply>, Error> {
        self.channel.put(bytes);
        self.channel.expect(Replies::to(effects.len()));
        let (_, replies) = self.channel.ask().await.map_err(|broken| match broken {
            Broken::Lost(error) => attempt.lost(what, &error),
            Broken::Fault(fault) => faulty(attempt, what, fault),
        })?;
        for (effect, reply) in effects.iter().zip(&replies) {
            self.note(*effect, reply);
        }
        match self.channel.has_unasked() {
            true => Err(faulty(attempt, what, RedisFault::Unasked)),
            false => Ok(replies),
        }
    }

    fn note(&mut self, effect: Effect, reply: &RedisReply) {
        let refused = matches!(reply, RedisReply::Error(_));
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

fn faulty(attempt: &Attempt<'_>, what: &str, fault: RedisFault) -> Error {
    attempt.failed(fault.kind(), what, &fault.to_string())
}

/// The answers to what was sent together.
struct Replies {
    decoder: RedisDecoder,
    count: usize,
    replies: Vec<RedisReply>,
}

impl Replies {
    fn to(commands: usize) -> Self {
        Self {
            decoder: RedisDecoder::default(),
            count: commands,
            replies: Vec::with_capacity(commands),
        }
    }
}

impl Decode for Replies {
    type Reply = Vec<RedisReply>;
    type Fault = RedisFault;
    const READ_BYTES: usize = 1;

    fn decode(&mut self, bytes: &[u8]) -> Result<Progress<Vec<RedisReply>>, RedisFault> {
        let mut all = 0;
        while self.replies.len() < self.count {
            match self.decoder.decode(bytes.get(all..).unwrap_or_default())? {
                Progress::Done(reply, used) => {
                    all += used;
                    self.replies.push(reply);
                }
                Progress::More { used, awaited } => {
                    let used = all + used;
                    return Ok(Progress::More { used, awaited });
                }
            }
        }
        Ok(Progress::Done(std::mem::take(&mut self.replies), all))
    }
}
