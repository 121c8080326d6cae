//! One connection: where it stands, and the exchange it carries.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::epoll;

use super::io::Io;
use super::pulse::nanoseconds;
use super::reply::Scanner;

/// First rest after a failure, doubled with each further one.
const REST_NS: u64 = 1_000_000;
/// Longest rest: 64 times the first.
const DOUBLINGS_MAX: u32 = 6;
/// An exchange may take this many of the plan's timeouts, if bytes keep coming.
const EXCHANGE_TIMEOUTS: u64 = 10;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No socket, and nothing asked of it.
    Closed,
    /// Waits before it is used again: see `Generator::rests`.
    Resting,
    /// The connection is coming about, its TLS included.
    Connecting,
    /// There, with nothing to do.
    Idle,
    /// A part of the request is sent.
    Sending,
    /// The request is sent.
    Receiving,
    /// Has done what the load asked of it.
    Done,
}

/// What a connection is busy with; instants in nanoseconds since the load began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Carried {
    pub(crate) request: u32,
    /// What the request's number is, where it has one.
    pub(crate) number: u64,
    pub(crate) due_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) connected_ns: u64,
    pub(crate) sent_ns: u64,
    /// 0 until something has come.
    pub(crate) first_ns: u64,
    /// Bytes of the request that were sent.
    pub(crate) written: usize,
    /// Over a connection that had served another.
    pub(crate) kept: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    /// Told apart from sockets this place had before.
    pub(crate) generation: u32,
    pub(crate) endpoint: usize,
    pub(crate) io: Option<Io>,
    pub(crate) scanner: Scanner,
    /// What is being carried; `None` between exchanges.
    pub(crate) carried: Option<Carried>,
    /// Whole replies on this socket.
    pub(crate) served: u32,
    /// Failures since the last whole reply.
    pub(crate) failures: u32,
    /// When something last happened.
    pub(crate) active_ns: u64,
    /// When the socket was made.
    pub(crate) begun_ns: u64,
    /// Whether epoll tells when the socket takes bytes.
    pub(crate) wants_write: bool,
}

impl Connection {
    pub(crate) fn new(endpoint: usize) -> Connection {
        Connection {
            state: State::Closed,
            generation: 0,
            endpoint,
            io: None,
            scanner: Scanner::new(),
            carried: None,
            served: 0,
            failures: 0,
            active_ns: 0,
            begun_ns: 0,
            wants_write: false,
        }
    }

    /// Closes the socket; epoll forgets it by itself.
    pub(crate) fn close(&mut self) {
        self.io = None;
        self.state = State::Closed;
        self.served = 0;
        self.wants_write = false;
        self.generation = self.generation.wrapping_add(1);
    }

    /// How long to leave it alone after a failure. One broken exchange is no reason to wait, a
    /// second one in a row or a refused connection is: the load must not become a busy loop.
    pub(crate) fn rest_ns(&self, refused: bool) -> u64 {
        let failures = self.failures - u32::from(!refused && self.failures > 0);
        match failures.checked_sub(1) {
            None => 0,
            Some(doublings) => REST_NS << doublings.min(DOUBLINGS_MAX),
        }
    }

    /// Whether what it waits for has taken too long. It may come about before it has anything to
    /// carry, and a server that drips must not hold it for ever then either.
    pub(crate) fn is_overdue(&self, now_ns: u64, timeout_ns: u64) -> bool {
        let since_ns = match self.carried {
            Some(carried) => carried.start_ns,
            None if self.state == State::Connecting => self.begun_ns,
            None => return false,
        };
        now_ns.saturating_sub(self.active_ns) > timeout_ns
            || now_ns.saturating_sub(since_ns) > timeout_ns.saturating_mul(EXCHANGE_TIMEOUTS)
    }

    /// Whether its client has lost patience, counted from when the request was due.
    pub(crate) fn is_given_up(
        &self,
        now_ns: u64,
        patience: impl Fn(u32) -> Option<Duration>,
    ) -> bool {
        self.carried.is_some_and(|carried| {
            let waited_ns = now_ns.saturating_sub(carried.due_ns);
            patience(carried.request).is_some_and(|most| waited_ns > nanoseconds(most))
        })
    }

    /// The name epoll gives back for this connection.
    pub(crate) fn token(&self, index: usize) -> epoll::EventData {
        epoll::EventData::new_u64(index as u64 | (u64::from(self.generation) << 32))
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.io.as_ref().map(std::os::fd::AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_with_failures_in_a_row() {
        let mut connection = Connection::new(0);
        let mut rests = |refused| {
            let rest = |failures| {
                connection.failures = failures;
                connection.rest_ns(refused) / REST_NS
            };
            [1, 2, 3, 7, 8, 1000].map(rest)
        };
        assert_eq!(rests(true), [1, 2, 4, 64, 64, 64]);
        assert_eq!(rests(false), [0, 1, 2, 32, 64, 64]);
    }

    #[test]
    fn a_client_without_patience_stays_until_the_timeout() {
        let mut connection = Connection::new(0);
        let patience = |request| (request == 1).then_some(Duration::from_nanos(10));
        let mut given_up = |request, due_ns, now_ns| {
            connection.carried = Some(Carried {
                request,
                due_ns,
                ..Carried::default()
            });
            connection.is_given_up(now_ns, patience)
        };
        assert!(!given_up(0, 100, 999));
        assert!(!given_up(1, 100, 110));
        assert!(given_up(1, 100, 111));
        connection.carried = None;
        assert!(!connection.is_given_up(999, patience));
    }

    #[test]
    fn nothing_that_drips_holds_a_place_for_ever() {
        let mut connection = Connection::new(0);
        connection.begun_ns = 100;
        let mut overdue = |state, carried: Option<u64>, active_ns, now_ns| {
            connection.state = state;
            connection.active_ns = active_ns;
            connection.carried = carried.map(|start_ns| Carried {
                start_ns,
                ..Carried::default()
            });
            connection.is_overdue(now_ns, 10)
        };
        assert!(!overdue(State::Receiving, Some(150), 240, 250));
        assert!(overdue(State::Receiving, Some(150), 239, 250));
        assert!(overdue(State::Receiving, Some(149), 250, 250));
        assert!(!overdue(State::Connecting, None, 200, 200));
        assert!(overdue(State::Connecting, None, 201, 201));
        assert!(!overdue(State::Idle, None, 0, 999));
        assert!(!overdue(State::Resting, None, 0, 999));
    }
}
