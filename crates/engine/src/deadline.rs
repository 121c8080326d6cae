//! Coarse deadlines: every wait of a worker has a number on it, and setting one costs no system call.
//!
//! A worker keeps one table of slots and walks it every [`TICK_MS`]. Setting, clearing and polling
//! a slot touch only memory, so each read and write can afford its own deadline. The price is
//! precision: a deadline fires up to one tick late, never early. Exact timing is not its business.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use slab::Slab;

/// How often a worker looks at its deadlines, in milliseconds.
pub(crate) const TICK_MS: u64 = 50;

/// How long after a drain began a fresh connection may still send its first request.
pub(crate) const FRESH_MS: u64 = 500;

const NEVER: u64 = u64::MAX;

/// The deadlines of one worker.
#[derive(Debug)]
pub struct Deadlines {
    slots: RefCell<Slab<Slot>>,
    now_ms: Cell<u64>,
    started: Instant,
}

#[derive(Debug)]
struct Slot {
    at_ms: u64,
    waker: Option<Waker>,
    awaited: Awaited,
}

/// What is waited for: decides what a drain makes of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// What is under way. A drain changes nothing.
    Progress,
    /// The first request of a fresh connection, which may be on its way: a drain leaves it
    /// [`FRESH_MS`].
    FirstRequest,
    /// A further request of a kept connection: a drain ends the wait at once.
    NextRequest,
    /// A further stream of a connection of HTTP/2, or the end of those under way: a drain has the connection woken, which
    /// can say that it ends.
    NextStream,
}

/// One slot of the table; given back on drop.
#[derive(Debug)]
pub struct Deadline {
    table: Rc<Deadlines>,
    key: usize,
}

impl Deadlines {
    /// Makes an empty table whose clock starts now.
    #[cfg(test)]
    pub fn new() -> Rc<Self> {
        Self::since(Instant::now())
    }

    /// Makes an empty table whose clock started then.
    pub fn since(started: Instant) -> Rc<Self> {
        let table = Self {
            slots: RefCell::new(Slab::new()),
            now_ms: Cell::new(0),
            started,
        };
        table.tick();
        Rc::new(table)
    }

    /// Takes a slot.
    pub fn register(self: &Rc<Self>) -> Deadline {
        let key = self.slots.borrow_mut().insert(Slot {
            at_ms: NEVER,
            waker: None,
            awaited: Awaited::Progress,
        });
        Deadline {
            table: Rc::clone(self),
            key,
        }
    }

    /// Milliseconds since the server started, as of the last tick.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// Moves the clock on and wakes whoever is due. Called once a tick.
    pub fn tick(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(NEVER - 1);
        self.now_ms.set(now_ms);
        self.wake(|slot| slot.at_ms <= now_ms);
    }

    /// Shortens the waits for requests: a drain closes connections that have nothing under way.
    /// Called again and again while it lasts; a wait shortened once is not made longer.
    pub fn drain(&self) {
        let fresh_until_ms = self.now_ms().saturating_add(FRESH_MS);
        self.wake(|slot| match slot.awaited {
            Awaited::Progress | Awaited::NextStream => false,
            Awaited::FirstRequest => {
                slot.at_ms = slot.at_ms.min(fresh_until_ms);
                false
            }
            Awaited::NextRequest => {
                slot.at_ms = 0;
                true
            }
        });
    }

    /// Wakes whoever waits for streams: they look whether they are to end.
    pub fn wake_streams(&self) {
        self.wake(|slot| slot.awaited == Awaited::NextStream);
    }

    fn wake(&self, mut due: impl FnMut(&mut Slot) -> bool) {
        for (_, slot) in self.slots.borrow_mut().iter_mut() {
            if due(slot)
                && let Some(waker) = slot.waker.take()
            {
                waker.wake();
            }
        }
    }
}

impl Deadline {
    /// As [`Deadlines::now_ms`].
    pub fn now_ms(&self) -> u64 {
        self.table.now_ms()
    }

    /// Sets the deadline `after_ms` from now, replacing an earlier one.
    pub fn set(&self, after_ms: u64) {
        self.set_for(Awaited::Progress, after_ms);
    }

    /// Sets it and says what is waited for until it is set anew or cleared.
    pub fn set_for(&self, awaited: Awaited, after_ms: u64) {
        // The clock may be a tick old; a deadline never fires early.
        let at_ms = self
            .table
            .now_ms()
            .saturating_add(after_ms)
            .saturating_add(TICK_MS);
        self.with(|slot| (slot.at_ms, slot.awaited) = (at_ms, awaited));
    }

    /// Sets the deadline unless one is set already: a wait that goes on keeps its first limit.
    /// Says whether the wait began with this.
    pub fn set_if_clear(&self, after_ms: u64) -> bool {
        let begins = self.with(|slot| slot.at_ms == NEVER);
        if begins {
            self.set(after_ms);
        }
        begins
    }

    /// Takes the deadline off.
    pub fn clear(&self) {
        self.with(|slot| (slot.at_ms, slot.awaited) = (NEVER, Awaited::Progress));
    }

    /// Takes the deadline off and forgets who waited for it.
    pub fn rest(&self) {
        self.with(|slot| {
            (slot.at_ms, slot.awaited) = (NEVER, Awaited::Progress);
            slot.waker = None;
        });
    }

    /// Ready once the deadline has passed; otherwise wakes the task when it does.
    pub fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        let now_ms = self.table.now_ms();
        self.with(|slot| {
            if slot.at_ms <= now_ms {
                return Poll::Ready(());
            }
            match &mut slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                other => *other = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Slot) -> T) -> T {
        let mut slots = self.table.slots.borrow_mut();
        let slot = slots
            .get_mut(self.key)
            .expect("a deadline holds its slot until it is dropped");
        f(slot)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.table.slots.borrow_mut().try_remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_deadline_fires_after_its_time_and_not_before() {
        let table = Deadlines::new();
        let deadline = table.register();
        let mut cx = Context::from_waker(Waker::noop());
        deadline.set(100);
        assert!(deadline.poll_expired(&mut cx).is_pending());
        table.now_ms.set(100);
        assert!(deadline.poll_expired(&mut cx).is_pending());
        table.now_ms.set(100 + TICK_MS);
        assert!(deadline.poll_expired(&mut cx).is_ready());
        deadline.clear();
        assert!(deadline.poll_expired(&mut cx).is_pending());
    }

    #[test]
    fn a_drain_ends_waits_for_requests_and_leaves_a_fresh_connection_a_moment() {
        let table = Deadlines::new();
        let mut cx = Context::from_waker(Waker::noop());
        let wait = |awaited| {
            let deadline = table.register();
            deadline.set_for(awaited, 60_000);
            deadline
        };
        let (busy, fresh) = (wait(Awaited::Progress), wait(Awaited::FirstRequest));
        let kept = wait(Awaited::NextRequest);
        for now_ms in [0, FRESH_MS / 2, FRESH_MS - 1] {
            table.now_ms.set(now_ms);
            table.drain();
            assert!(kept.poll_expired(&mut cx).is_ready());
            assert!(fresh.poll_expired(&mut cx).is_pending(), "{now_ms}");
        }
        table.now_ms.set(FRESH_MS);
        assert!(fresh.poll_expired(&mut cx).is_ready());
        assert!(busy.poll_expired(&mut cx).is_pending());
    }

    #[test]
    fn a_dropped_deadline_leaves_no_slot() {
        let table = Deadlines::new();
        drop(table.register());
        assert_eq!(table.slots.borrow().len(), 0);
    }
}
