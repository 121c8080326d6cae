//! A program as its worker waits for it: what is known of it, and its place among those that may run.
//!
//! The idea: the link to the spawner notes what it hears in the program's [`Slot`] and wakes who waits;
//! the [`Permit`] is given back with the slot. Not here: orders and reports, which are the link's.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};

use crate::error::{Error, Kind, Result};
use ipc::order::{Ended, Failure};

/// What became of a program that was to run.
#[derive(Debug, Clone)]
pub enum ProgramOutcome {
    /// It never ran.
    Failed(Failure, String),
    /// It has ended.
    Ended(Ended),
    /// Nobody knows: the spawner is gone, and has taken it along.
    Lost,
}

/// What is known of one program.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) started: Cell<bool>,
    pub(super) outcome: RefCell<Option<ProgramOutcome>>,
    pub(super) waker: RefCell<Option<Waker>>,
    /// Given back when the program has ended, not when its exchange has.
    pub(super) permit: Permit,
}

/// A place among the programs that may run at once.
#[derive(Debug)]
pub(super) struct Permit(Arc<AtomicUsize>);

impl Permit {
    pub(super) fn acquire(running: &Arc<AtomicUsize>, programs_max: usize) -> Result<Self> {
        let more = |count: usize| (count < programs_max).then_some(count + 1);
        match running.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Ok(Self(Arc::clone(running))),
            Err(count) => {
                let detail = format!("{count} programs run, as many as caps.programs allows");
                Err(Error::new(Kind::Full, "programs_full", detail))
            }
        }
    }

    /// Another one for the same program; for a moment it counts twice.
    pub(super) fn again(&self) -> Self {
        self.0.fetch_add(1, Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Slot {
    pub(super) fn listen(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
    }

    pub(super) fn end(&self, outcome: ProgramOutcome) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.wake();
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
