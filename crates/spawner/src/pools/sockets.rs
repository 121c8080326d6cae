//! The sockets of pools: who comes to one that sleeps, and which of them refuse.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use config::reason;
use ipc::manifest::FromSpawner;
use ipc::pools::PoolSocket;

use super::Pools;
use crate::Spawner;

/// How often is looked who comes to pools that sleep, while there is other work: each look asks the
/// kernel of all their sockets, and who wants a pool seldom comes that way.
const SLEEPERS_LOOK: Duration = Duration::from_millis(50);

/// When is looked who comes to pools that sleep.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// Whether the wait that begins looks, or the last one has.
    pub(super) is_looked: bool,
    looked: Option<Instant>,
}

impl Sleepers {
    fn begin_wait(&mut self, now: Instant) {
        if self.is_looked {
            self.looked = Some(now);
        }
        let is_due = |looked| now.saturating_duration_since(looked) >= SLEEPERS_LOOK;
        self.is_looked = self.looked.is_none_or(is_due);
    }

    /// How long others may be waited for at most.
    pub(super) fn patience(&self) -> Option<Duration> {
        (!self.is_looked).then_some(SLEEPERS_LOOK)
    }
}

impl Pools {
    /// A wait begins.
    pub(crate) fn begin_wait(&mut self, now: Instant) {
        self.sleepers.begin_wait(now);
        // Nobody sleeps.
        self.sleepers.is_looked |= self.sockets.is_empty();
    }
}

/// A socket of a pool.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) number: u64,
    pub(super) listener: OwnedFd,
}

impl Spawner {
    /// Takes sockets; one that is another than before is where its pool listens from now on.
    pub(crate) fn take_sockets(&mut self, sockets: Vec<PoolSocket>) {
        let now = Instant::now();
        for PoolSocket { id, socket } in sockets {
            // As programs expect it that are given one.
            if let Err(error) = os::net::set_waiting(socket.as_fd()) {
                tracing::warn!(pool = id, error = reason(&error), "its socket may not wait");
            }
            let inode = |fd: BorrowedFd<'_>| os::file::facts(fd).map(|it| it.inode).ok();
            let before = self.pools.sockets.get(&id);
            let is_other =
                before.is_some_and(|it| inode(it.listener.as_fd()) != inode(socket.as_fd()));
            self.pools.sockets_seen += 1;
            let number = self.pools.sockets_seen;
            let listener = socket;
            self.pools
                .sockets
                .insert(id.clone(), Socket { number, listener });
            if is_other {
                // What serves there is asked by nobody any more.
                self.pools.machine.is_deaf(&id, now);
            }
            self.pools.machine.hears_again(&id, now);
            self.has_place(&id);
        }
        self.mind_pools();
    }

    /// Looks whether the socket of a pool still can be connected to.
    pub(super) fn listen_for(&mut self, id: &str, now: Instant) {
        let socket = self.pools.sockets.get(id);
        if socket.is_some_and(|it| os::net::is_shut(it.listener.as_fd())) {
            self.pools.machine.is_deaf(id, now);
            self.tell_deaf(id);
        }
    }

    pub(super) fn tell_deaf(&mut self, id: &str) {
        let deaf = FromSpawner::Deaf { id: id.to_owned() };
        self.tell_supervisor(&deaf);
    }

    /// Somebody connects to a pool that does not run.
    pub(crate) fn on_asleep(&mut self, number: u64) {
        let now = Instant::now();
        let sockets = self.pools.sockets.iter();
        let mut sockets = sockets.filter(|(_, socket)| socket.number == number);
        let Some(id) = sockets.next().map(|(id, _)| id.clone()) else {
            return;
        };
        self.listen_for(&id, now);
        if self.pools.machine.is_asleep(&id, now) {
            let terms = self.pools.terms(&id);
            let nobody = (None, false);
            self.pools.machine.want(&id, &terms, nobody, now);
        }
        self.mind_pools();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_are_looked_at_now_and_then_however_much_there_is_to_do() {
        let begun = Instant::now();
        let mut sleepers = Sleepers::default();
        let mut looks = Vec::new();
        // Something happens every millisecond.
        for ms in 0..=200 {
            sleepers.begin_wait(begun + Duration::from_millis(ms));
            // A wait that does not look ends in time for one that does.
            let patience = (!sleepers.is_looked).then_some(SLEEPERS_LOOK);
            assert_eq!(sleepers.patience(), patience);
            looks.extend(sleepers.is_looked.then_some(ms));
        }
        assert_eq!(looks, [0, 51, 102, 153]);
    }
}
