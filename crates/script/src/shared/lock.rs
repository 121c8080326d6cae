//! `Mutex`: a lock that is waited for without a thread waiting.
//!
//! Who finds it taken queues, with a waker: the one who leaves wakes the first of the queue, on
//! whatever worker it is. In between anybody may take the free lock, since handing it over to a task
//! that has yet to be scheduled would let everybody queue (a lock convoy: M. Blasgen and others, *The
//! Convoy Phenomenon*, 1979); but after [`PASSED_MAX`] such passings the first is handed it.
//!
//! What a request has of a lock is its stake, known by a ticket. A stake that is dropped leaves the
//! lock, held or queued for, so that a request that ends in whatever way holds nobody up. A lock that
//! was broken is another's, and its former holder's leaving changes nothing.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use super::enter;

/// How often others may take a lock before the first of its queue.
const PASSED_MAX: u32 = 16;

/// Global locks in use at once.
const NAMES_MAX: usize = 4_096;

static TICKETS: AtomicU64 = AtomicU64::new(1);

/// Global locks by name.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Held for a look-up, when a script makes a `Mutex` object.
    names: Mutex<HashMap<Vec<u8>, Weak<Lock>>>,
}

impl Locks {
    /// The lock of this name; `None` when there are too many.
    pub(crate) fn named(&self, name: &[u8]) -> Option<Arc<Lock>> {
        let mut names = enter(&self.names);
        if let Some(known) = names.get(name).and_then(Weak::upgrade) {
            return Some(known);
        }
        if names.len() >= NAMES_MAX {
            names.retain(|_, lock| lock.strong_count() > 0);
        }
        if names.len() >= NAMES_MAX {
            return None;
        }
        let fresh = Arc::new(Lock::default());
        names.insert(name.to_vec(), Arc::downgrade(&fresh));
        Some(fresh)
    }
}

/// A lock.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    /// Held for a few assignments; no waker is called and nothing dropped meanwhile.
    state: Mutex<LockState>,
}

#[derive(Debug, Default)]
struct LockState {
    holder: Option<Holder>,
    queue: VecDeque<Waiter>,
    /// Who held it when it was broken, and has not left yet.
    broken: Vec<Holder>,
}

/// Somebody's entry in the book.
#[derive(Debug, Clone, Copy)]
struct Holder {
    /// Of the stake.
    ticket: u64,
    /// Of the request.
    serial: u64,
    /// Where the request holds its stake.
    held: u64,
}

#[derive(Debug)]
struct Waiter {
    entry: Holder,
    /// How many took the lock while this one was first.
    passed: u32,
    waker: Option<Waker>,
}

/// What trying to enter came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The lock is taken.
    Now,
    /// Somebody else has it.
    Busy,
    /// The request has it already.
    Again,
}

/// What a request has of a lock, or may get of it; dropped, it has nothing.
#[derive(Debug)]
pub(crate) struct Stake {
    lock: Arc<Lock>,
    ticket: u64,
}

impl Lock {
    /// A stake that nothing is had by yet.
    pub(crate) fn stake(self: &Arc<Self>) -> Stake {
        Stake {
            lock: Arc::clone(self),
            ticket: TICKETS.fetch_add(1, Relaxed),
        }
    }

    /// Takes the lock for a stake if it is free. `serial` is the request's, which holds the stake
    /// under the number `held`.
    pub(crate) fn try_enter(&self, ticket: u64, serial: u64, held: u64) -> Entered {
        let mut state = enter(&self.state);
        match &state.holder {
            Some(holder) if holder.serial == serial => return Entered::Again,
            Some(_) => return Entered::Busy,
            None => {}
        }
        if let Some(first) = state.queue.front_mut() {
            first.passed += 1;
        }
        state.holder = Some(Holder {
            ticket,
            serial,
            held,
        });
        Entered::Now
    }

    /// Queues for the lock; the stake has it when the turn has come.
    pub(crate) fn queue(self: &Arc<Self>, ticket: u64, serial: u64, held: u64) -> Turn {
        let waiter = Waiter {
            entry: Holder {
                ticket,
                serial,
                held,
            },
            passed: 0,
            waker: None,
        };
        enter(&self.state).queue.push_back(waiter);
        Turn {
            lock: Arc::clone(self),
            ticket,
            ended: false,
        }
    }

    /// Where the request holds its stake in this lock: as its holder, or as the one it was taken
    /// from.
    pub(crate) fn held_by(&self, serial: u64) -> Option<u64> {
        let state = enter(&self.state);
        let mut entries = state.holder.iter().chain(&state.broken);
        entries
            .find(|entry| entry.serial == serial)
            .map(|entry| entry.held)
    }

    /// Gives a waiter its turn, whoever has the lock now. `false` when nobody had it.
    fn break_in(&self, ticket: u64) -> bool {
        let mut state = enter(&self.state);
        let Some(place) = state.place(ticket) else {
            return false;
        };
        let Some(waiter) = state.queue.remove(place) else {
            return false;
        };
        let before = state.holder.replace(waiter.entry);
        state.broken.extend(before);
        before.is_some()
    }

    /// Ends whatever a stake has.
    fn leave(&self, ticket: u64) {
        let mut state = enter(&self.state);
        let woken = match state.holder {
            Some(holder) if holder.ticket == ticket => state.pass_on(),
            _ => state.forget(ticket),
        };
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Whether a waiter's turn has come.
    fn poll(&self, ticket: u64, waker: &Waker) -> Poll<()> {
        let mut state = enter(&self.state);
        if state.holder.is_some_and(|holder| holder.ticket == ticket) {
            return Poll::Ready(());
        }
        let Some(place) = state.place(ticket) else {
            // It was handed the lock, and lost it to one who broke it since.
            return Poll::Ready(());
        };
        if place == 0 && state.holder.is_none() {
            state.holder = state.queue.pop_front().map(|waiter| waiter.entry);
            return Poll::Ready(());
        }
        if let Some(waiter) = state.queue.get_mut(place) {
            match &mut waiter.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        Poll::Pending
    }
}

impl LockState {
    fn place(&self, ticket: u64) -> Option<usize> {
        self.queue
            .iter()
            .position(|waiter| waiter.entry.ticket == ticket)
    }

    /// Frees the lock, or hands it over; whom to wake.
    fn pass_on(&mut self) -> Option<Waker> {
        self.holder = None;
        let first = self.queue.front_mut()?;
        if first.passed < PASSED_MAX {
            return first.waker.take();
        }
        let first = self.queue.pop_front()?;
        self.holder = Some(first.entry);
        first.waker
    }

    /// Forgets one who does not hold the lock; whom to wake in its place.
    fn forget(&mut self, ticket: u64) -> Option<Waker> {
        self.broken.retain(|entry| entry.ticket != ticket);
        let place = self.place(ticket)?;
        self.queue.remove(place);
        match (place, &self.holder) {
            (0, None) => self.queue.front_mut()?.waker.take(),
            _ => None,
        }
    }
}

impl Stake {
    /// Its number.
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        self.lock.leave(self.ticket);
    }
}

/// A wait for a lock. Dropped before its end, it leaves the queue.
#[derive(Debug)]
pub(crate) struct Turn {
    lock: Arc<Lock>,
    ticket: u64,
    ended: bool,
}

impl Turn {
    /// Ends the wait by taking the lock from whoever has it; `false` when nobody had.
    pub(crate) fn break_in(mut self) -> bool {
        self.ended = true;
        self.lock.break_in(self.ticket)
    }
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.lock.poll(self.ticket, context.waker());
        self.ended = polled.is_ready();
        polled
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            self.lock.leave(self.ticket);
        }
    }
}
