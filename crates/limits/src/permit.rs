//! The right to go on, at all gates of a request at once, given back on every way out.

use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::adaptive::Outcome;
use crate::ask::LimitId;
use crate::ledger::{Charged, End, Handle, Holds, Reserved, Wait};
use crate::refusal::Refusal;

/// The right of one request to go on. Dropped, it is given back.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit {
    handle: Arc<Handle>,
    since: Time,
    holds: Holds,
    /// Whether it was not given back yet.
    is_held: bool,
    /// Only of one that was waited for, that a limit in shadow would not have given, or of a tenant that
    /// has a reserve.
    /// An `Arc`, though nobody shares it: with its end apart, those that have none have less to do.
    aside: Option<Arc<Aside>>,
}

/// What few permits have.
#[derive(Debug, Default)]
struct Aside {
    charged: Option<Charged>,
    waited: Duration,
    shadows: Vec<Refusal>,
    reserved: Reserved,
}

/// What a request took of what it was admitted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Used {
    /// Nanoseconds of the handler, or of CPU where a program's group tells them.
    Measured(u64),
    /// It never ran: nothing is charged.
    Nothing,
}

impl Permit {
    #[inline]
    pub(crate) fn new(handle: Arc<Handle>, holds: Holds, since: Time) -> Self {
        Self {
            handle,
            since,
            holds,
            is_held: true,
            aside: None,
        }
    }

    pub(crate) fn after_a_wait(handle: Arc<Handle>, holds: Holds, since: Time, wait: Wait) -> Self {
        let mut permit = Self::new(handle, holds, since);
        permit.aside = Some(Arc::new(Aside {
            charged: Some(wait.charged),
            waited: wait.waited,
            shadows: wait.shadows,
            reserved: wait.reserved,
        }));
        permit
    }

    /// Keeps what limits in shadow would have refused.
    pub(crate) fn keep_shadows(&mut self, shadows: Vec<Refusal>) {
        if let Some(aside) = Arc::get_mut(self.aside.get_or_insert_default()) {
            aside.shadows = shadows;
        }
    }

    /// Keeps what is counted at reserves.
    pub(crate) fn keep_reserved(&mut self, reserved: Reserved) {
        if let Some(aside) = Arc::get_mut(self.aside.get_or_insert_default()) {
            aside.reserved = reserved;
        }
    }

    /// Takes what limits in shadow would have said: none, mostly, and then in the order of the
    /// request's limits.
    #[must_use]
    #[inline]
    pub fn take_shadows(&mut self) -> Vec<Refusal> {
        let aside = self.aside.as_mut().and_then(Arc::get_mut);
        aside.map_or_else(Vec::new, |aside| std::mem::take(&mut aside.shadows))
    }

    /// Gives the permit back, and says what was done with it.
    #[inline]
    pub fn end(mut self, now: Time, used: Used, outcome: Outcome) {
        self.end_in_place(now, used, outcome);
    }

    /// As [`end`](Self::end), where it lies: what is left holds nothing and may be dropped later.
    #[inline]
    pub fn end_in_place(&mut self, now: Time, used: Used, outcome: Outcome) {
        let (now, used) = (Some(now), Some(used));
        self.give_back(&End { now, used, outcome });
    }

    /// Gives back the permits of these limits, and keeps those of all others. What the wait was
    /// charged is settled with the one that was waited for.
    pub fn end_of(&mut self, now: Time, used: Used, limits: &[LimitId]) {
        let all = std::mem::take(&mut self.holds);
        let mut given = Holds::with_capacity(all.len());
        for hold in all.iter() {
            let is_meant = limits.iter().any(|limit| limit.index == hold.limit);
            let list = if is_meant {
                &mut given
            } else {
                &mut self.holds
            };
            list.push(*hold);
        }
        if given.len() > 0 {
            let end = End {
                now: Some(now),
                used: Some(used),
                outcome: Outcome::Ignored,
            };
            let aside = self.aside.as_mut().and_then(Arc::get_mut);
            let charged = aside.and_then(|aside| {
                let is_given_limit = |limit| given.iter().any(|hold| hold.limit == limit);
                aside.reserved.release(is_given_limit);
                let is_given = |it: &mut Charged| given.iter().any(|hold| hold.place() == it.place);
                aside.charged.take_if(is_given)
            });
            self.handle
                .give_back(&given, self.since, charged.as_ref(), &end);
        }
    }

    /// The numbers of the limits that it is of.
    pub fn limits(&self) -> impl Iterator<Item = u32> {
        self.holds.iter().map(|hold| hold.limit)
    }

    /// Whether the permits of all limits were given back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.holds.len() == 0
    }

    /// Tells since when it is held.
    #[must_use]
    pub fn since(&self) -> Time {
        self.since
    }

    /// Tells how long the request waited for it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.aside
            .as_ref()
            .map_or(Duration::ZERO, |aside| aside.waited)
    }

    #[inline]
    fn give_back(&mut self, end: &End) {
        if !std::mem::replace(&mut self.is_held, false) {
            return;
        }
        // First, so that who is next is told by what is held then.
        if let Some(aside) = self.aside.as_mut().and_then(Arc::get_mut) {
            aside.reserved.release(|_| true);
        }
        let charged = self.aside.as_ref().and_then(|it| it.charged.as_ref());
        if self.holds.len() == 0 && charged.is_none() {
            return;
        }
        self.handle.give_back(&self.holds, self.since, charged, end);
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        let outcome = Outcome::Ignored;
        self.give_back(&End {
            now: None,
            used: None,
            outcome,
        });
    }
}
