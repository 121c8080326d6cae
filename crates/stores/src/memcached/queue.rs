//! Commands to one server that no connection has taken yet.
//!
//! Long ones stand apart: while one is sent nothing else can go over its connection, so it takes one
//! where nothing is under way, and short ones need not wait behind it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::question::MemcachedQuestion;
use super::reply::MemcachedReply;
use crate::error::Error;

/// From so many bytes on, a command or an answer has a connection to itself.
pub(super) const LONG_BYTES: usize = 64 * 1024;
/// Commands that wait.
const COMMANDS_MAX: usize = 8_192;
/// Their bytes.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// After so long a wait of a long command, a busy connection takes no more short ones, and is free
/// for it soon.
const PATIENCE: Duration = Duration::from_millis(50);

/// A command with whoever waits for its answer.
pub(super) struct MemcachedCommand {
    pub(super) question: MemcachedQuestion,
    pub(super) bytes: Vec<u8>,
    pub(super) deadline: Instant,
    pub(super) asker: oneshot::Sender<Result<MemcachedReply, Error>>,
}

impl MemcachedCommand {
    fn is_long(&self) -> bool {
        self.bytes.len() >= LONG_BYTES
    }
}

/// What a connection has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    No,
    Yes,
}

/// The commands that wait, the oldest in front.
#[derive(Default)]
pub(super) struct Queue {
    short: VecDeque<MemcachedCommand>,
    long: VecDeque<MemcachedCommand>,
    bytes: usize,
}

impl Queue {
    /// Takes a command in; gives it back when there are too many.
    pub(super) fn push(&mut self, command: MemcachedCommand) -> Result<(), MemcachedCommand> {
        let bytes = self.bytes.saturating_add(command.bytes.len());
        if self.short.len() + self.long.len() >= COMMANDS_MAX || bytes > BYTES_MAX {
            return Err(command);
        }
        self.bytes = bytes;
        match command.is_long() {
            true => self.long.push_back(command),
            false => self.short.push_back(command),
        }
        Ok(())
    }

    /// The next command for a connection. Those nobody waits for any more are left out.
    pub(super) fn next(&mut self, busy: Busy) -> Option<MemcachedCommand> {
        loop {
            let command = match self.next_is_long(busy)? {
                true => self.long.pop_front()?,
                false => self.short.pop_front()?,
            };
            self.bytes = self.bytes.saturating_sub(command.bytes.len());
            if !command.asker.is_closed() {
                return Some(command);
            }
        }
    }

    /// Which of the two the connection takes from; `None` when there is nothing for it.
    fn next_is_long(&self, busy: Busy) -> Option<bool> {
        match (self.short.front(), self.long.front(), busy) {
            (None, None, _) | (None, Some(_), Busy::Yes) => None,
            (Some(_), None, _) => Some(false),
            (None, Some(_), Busy::No) => Some(true),
            (Some(short), Some(long), Busy::No) => Some(long.deadline <= short.deadline),
            (Some(short), Some(long), Busy::Yes) => {
                (short.deadline < long.deadline + PATIENCE).then_some(false)
            }
        }
    }

    /// Commands of no great length.
    pub(super) fn short(&self) -> usize {
        self.short.len()
    }

    /// Long commands.
    pub(super) fn long(&self) -> usize {
        self.long.len()
    }

    /// When the first of them is out of time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let fronts = [self.short.front(), self.long.front()];
        fronts
            .into_iter()
            .flatten()
            .map(|command| command.deadline)
            .min()
    }

    /// Takes out the commands that are out of time.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<MemcachedCommand> {
        let mut overdue = Vec::new();
        for commands in [&mut self.short, &mut self.long] {
            let late = commands
                .iter()
                .take_while(|command| command.deadline <= now);
            let late = late.count();
            overdue.extend(commands.drain(..late));
        }
        let bytes: usize = overdue.iter().map(|command| command.bytes.len()).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        overdue
    }

    /// Takes out all of them.
    pub(super) fn drain(&mut self) -> Vec<MemcachedCommand> {
        self.bytes = 0;
        self.short.drain(..).chain(self.long.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::Verb;
    use super::*;

    fn command(
        bytes: usize,
        deadline: Instant,
    ) -> (
        MemcachedCommand,
        oneshot::Receiver<Result<MemcachedReply, Error>>,
    ) {
        let (asker, answer) = oneshot::channel();
        let question = MemcachedQuestion {
            verb: Verb::Store,
            what: "set",
            key: Vec::new(),
        };
        let bytes = vec![0; bytes];
        let command = MemcachedCommand {
            question,
            bytes,
            deadline,
            asker,
        };
        (command, answer)
    }

    fn taken(queue: &mut Queue, busy: Busy) -> Option<usize> {
        queue.next(busy).map(|command| command.bytes.len())
    }

    #[test]
    fn a_long_command_waits_for_an_idle_connection_and_lets_short_ones_pass_for_a_while() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut answers = Vec::new();
        for (bytes, later) in [(LONG_BYTES, 0), (1, 1), (2, 51)] {
            let (command, answer) = command(bytes, now + Duration::from_millis(later));
            assert!(queue.push(command).is_ok());
            answers.push(answer);
        }
        assert_eq!(taken(&mut queue, Busy::Yes), Some(1));
        assert_eq!(taken(&mut queue, Busy::Yes), None, "it waited long enough");
        assert_eq!(taken(&mut queue, Busy::No), Some(LONG_BYTES));
        assert_eq!(taken(&mut queue, Busy::Yes), Some(2));
        assert_eq!(taken(&mut queue, Busy::No), None);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn what_nobody_waits_for_is_not_sent() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (gone, _) = command(1, now);
        let (asked, _answer) = command(2, now);
        assert!(queue.push(gone).is_ok() && queue.push(asked).is_ok());
        assert_eq!(taken(&mut queue, Busy::No), Some(2));
    }

    #[test]
    fn commands_that_wait_have_a_bound_in_number_and_in_bytes() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for _ in 0..COMMANDS_MAX {
            assert!(queue.push(command(0, now).0).is_ok());
        }
        assert!(queue.push(command(0, now).0).is_err());
        let mut queue = Queue::default();
        assert!(queue.push(command(BYTES_MAX, now).0).is_ok());
        assert!(queue.push(command(1, now).0).is_err());
        queue.drain();
        assert!(queue.push(command(1, now).0).is_ok());
    }

    #[test]
    fn only_those_out_of_time_are_taken_out() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for (bytes, deadline) in [(1, now), (LONG_BYTES, now), (2, later)] {
            assert!(queue.push(command(bytes, deadline).0).is_ok());
        }
        assert_eq!(queue.deadline(), Some(now));
        assert_eq!(queue.overdue(now).len(), 2);
        assert_eq!((queue.deadline(), queue.bytes), (Some(later), 2));
    }
}
