//! What operators ask of the machines of a fleet, and whether this one is drained.
//!
//! The idea: an operator waits on a thread of the control socket, no worker does; the fleet's thread takes the question to the
//! store. There is one at a time, and a later one waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipc::fleet::{DrainOrder, FleetSaid, MACHINES_MAX, MachineReport, OrderOutcome};
use tokio::sync::Notify;

/// How long an answer may take: less than who asks waits.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often a machine tells of itself.
pub(crate) const REPORT_PAUSE: Duration = Duration::from_secs(3);
/// Limits that a machine tells of.
pub(crate) const LEASES_MAX: usize = 32;

/// Where the machines are asked for, and what workers are told of this one.
#[derive(Debug, Default)]
pub(crate) struct FleetInquiry {
    /// The order that this machine obeys: twice the milliseconds when it was given, and one more where it is to be drained; 0: none.
    /// The later of two is the greater.
    order: AtomicU64,
    is_evicting: AtomicBool,
    slowest_us: AtomicU64,
    /// Why the store has not answered last. Held for a copy.
    why: Mutex<String>,
    listing: Mutex<Listing>,
    listed: Condvar,
    /// Somebody asks.
    pub(super) asked: Notify,
}

#[derive(Debug, Default)]
struct Listing {
    /// The number of the question.
    id: u64,
    /// Whether somebody waits for its answer.
    is_open: bool,
    /// What comes before it, until it is taken to the store.
    question: Option<Option<DrainOrder>>,
    machines: Vec<MachineReport>,
    answer: Option<Result<OrderOutcome, String>>,
}

impl FleetInquiry {
    /// Whether an operator wants this machine to have no further requests.
    pub(crate) fn is_drained(&self) -> bool {
        self.obeyed() % 2 == 1
    }

    pub(super) fn obeyed(&self) -> u64 {
        self.order.load(Relaxed)
    }

    /// Whether the store evicts keys when it is full.
    pub(crate) fn is_evicting(&self) -> bool {
        self.is_evicting.load(Relaxed)
    }

    /// Notes whether the store evicts keys, and says so when that begins.
    pub(super) fn set_evicting(&self, is_evicting: bool) {
        if !self.is_evicting.swap(is_evicting, Relaxed) && is_evicting {
            tracing::warn!(
                "the fleet's store evicts keys when it is full, and what is leased with them: set `maxmemory-policy noeviction` there"
            );
        }
    }

    /// The longest that the store took to answer in the last minutes; `None`: it did not.
    pub(crate) fn slowest(&self) -> Option<Duration> {
        let us = self.slowest_us.load(Relaxed);
        (us > 0).then(|| Duration::from_micros(us))
    }

    /// Obeys what an operator orders here, where the store does not say when.
    pub(crate) fn order(&self, is_drained: bool) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(0));
        self.change(|before| {
            let at_ms = now_ms.max(before / 2 + 1);
            at_ms.saturating_mul(2).saturating_add(is_drained.into())
        });
    }

    /// Obeys an order, unless it obeys a later one that this is not instead of; whether this machine is drained, or serves, by that alone.
    pub(super) fn obey(&self, order: u64, instead_of: u64) -> bool {
        self.change(|before| match before == instead_of {
            true => order,
            false => order.max(before),
        })
    }

    /// Obeys what follows from the order that it obeys; whether this machine is drained, or serves, by that alone.
    fn change(&self, next: impl Fn(u64) -> u64) -> bool {
        let changed = (self.order).fetch_update(Relaxed, Relaxed, |it| Some(next(it)));
        let before = changed.unwrap_or_else(|it| it);
        let is_drained = next(before) % 2 == 1;
        let is_new = is_drained != (before % 2 == 1);
        match is_drained {
            _ if !is_new => {}
            true => tracing::warn!(
                "this machine is drained (nagaya fleet drain): agents say so, connections end with their reply, and what comes is served"
            ),
            false => tracing::info!("this machine is drained no more"),
        }
        is_new
    }

    /// Obeys nothing any more.
    pub(super) fn forget(&self) {
        self.order.store(0, Relaxed);
    }

    pub(super) fn set_slowest(&self, slowest: Duration) {
        let us = u64::try_from(slowest.as_micros()).unwrap_or(u64::MAX);
        self.slowest_us.store(us, Relaxed);
    }

    /// Why the store has not answered last, a clause.
    pub(crate) fn why(&self) -> String {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.clone()
    }

    pub(super) fn set_why(&self, why: &str) {
        let mut known = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != why {
            why.clone_into(&mut known);
        }
    }

    /// Has the store list machines, after an order, and tells what became of that; the error says why it does not.
    pub(crate) fn list(
        &self,
        order: Option<DrainOrder>,
    ) -> Result<(OrderOutcome, Vec<MachineReport>), String> {
        let until = Instant::now() + PATIENCE;
        let is_open = |it: &mut Listing| it.is_open;
        let waited = (self.listed).wait_timeout_while(self.lock(), PATIENCE, is_open);
        let mut listing = waited.unwrap_or_else(PoisonError::into_inner).0;
        if listing.is_open {
            return Err(self.why());
        }
        *listing = Listing {
            id: listing.id + 1,
            is_open: true,
            question: Some(order),
            ..Listing::default()
        };
        self.asked.notify_one();
        let rest = until.saturating_duration_since(Instant::now());
        let is_unanswered = |it: &mut Listing| it.answer.is_none();
        let waited = (self.listed).wait_timeout_while(listing, rest, is_unanswered);
        let mut listing = waited.unwrap_or_else(PoisonError::into_inner).0;
        (listing.is_open, listing.question) = (false, None);
        self.listed.notify_all();
        let answer = listing.answer.take();
        let outcome = answer.unwrap_or_else(|| Err(self.why()))?;
        Ok((outcome, std::mem::take(&mut listing.machines)))
    }

    /// What is asked, with its number, if nobody has taken it yet.
    pub(super) fn take(&self) -> Option<(u64, Option<DrainOrder>)> {
        let mut listing = self.lock();
        let order = listing.question.take()?;
        Some((listing.id, order))
    }

    /// Takes in what was answered to the question of this number.
    pub(super) fn hear(&self, id: u64, said: FleetSaid) {
        let mut listing = self.lock();
        if listing.id != id {
            return;
        }
        match said {
            FleetSaid::Machine(machine) if listing.machines.len() < MACHINES_MAX => {
                listing.machines.push(machine);
            }
            FleetSaid::Listed(answer) => {
                listing.answer = Some(answer);
                self.listed.notify_all();
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn machine(name: String) -> FleetSaid {
        FleetSaid::Machine(MachineReport {
            machine: name,
            is_here: false,
            heard_ms: None,
            is_drained: false,
            has_namesake: false,
            report: String::new(),
        })
    }

    #[test]
    fn the_later_of_two_orders_holds_wherever_it_is_heard() {
        let inquiry = FleetInquiry::default();
        assert!(!inquiry.obey(0, 0) && !inquiry.is_drained());
        assert!(inquiry.obey(1_001, 0) && inquiry.is_drained());
        for (order, is_new, is_drained) in [
            (1_000, false, true),
            (1_101, false, true),
            (1_102, true, false),
            (1_101, false, false),
        ] {
            assert_eq!(inquiry.obey(order, 0), is_new);
            assert_eq!(inquiry.is_drained(), is_drained);
        }
        // One that is given here is later than any that is known, whatever this clock says.
        let ahead = 1 << 60;
        for order in [0, ahead] {
            inquiry.obey(order, 0);
            for is_drained in [true, false] {
                let before = inquiry.obeyed();
                inquiry.order(is_drained);
                assert!(inquiry.obeyed() > before && inquiry.is_drained() == is_drained);
            }
        }
        // The store may take it back, but not one that was given meanwhile.
        let (before, later) = (inquiry.obeyed(), inquiry.obeyed() + 1);
        assert!(inquiry.obey(later, before) && inquiry.is_drained());
        assert!(!inquiry.obey(2_000, before) && inquiry.obeyed() == later);
        assert!(inquiry.obey(2_000, later) && inquiry.obeyed() == 2_000);
        assert!(inquiry.obey(u64::MAX, 0) && inquiry.is_drained());
        inquiry.order(true);
        assert!(inquiry.is_drained());
    }

    #[test]
    fn of_orders_that_are_given_at_once_none_is_lost() {
        let inquiry = FleetInquiry::default();
        inquiry.order(false);
        let first = inquiry.obeyed() / 2;
        std::thread::scope(|scope| {
            for is_drained in [true, false] {
                let inquiry = &inquiry;
                scope.spawn(move || (0..1_000).for_each(|_| inquiry.order(is_drained)));
            }
        });
        assert!(inquiry.obeyed() / 2 >= first + 2_000);
    }

    #[test]
    fn an_operator_hears_what_was_answered_to_the_question_and_nothing_else() {
        let inquiry = Arc::<FleetInquiry>::default();
        let asking = Arc::clone(&inquiry);
        let order = DrainOrder {
            machine: "web2".to_owned(),
            is_drained: true,
        };
        let wanted = order.clone();
        let asking = std::thread::spawn(move || asking.list(Some(wanted)));
        let (id, taken) = loop {
            match inquiry.take() {
                Some(taken) => break taken,
                // Its patience is over where this machine stood still.
                None if asking.is_finished() => return,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(taken, Some(order));
        inquiry.hear(id + 1, FleetSaid::Listed(Err("another's".to_owned())));
        for number in 0..MACHINES_MAX + 5 {
            inquiry.hear(id, machine(format!("web{number}")));
        }
        inquiry.hear(id, FleetSaid::Listed(Ok(OrderOutcome::Kept)));
        let listed = asking.join().unwrap();
        // Where this thread stood still for all of its patience, it was not heard.
        assert!(listed.is_err() || listed.is_ok_and(|it| it.1.len() == MACHINES_MAX));
        assert!(inquiry.take().is_none());
    }

    #[test]
    fn operators_who_ask_at_the_same_time_are_all_answered() {
        let inquiry = Arc::<FleetInquiry>::default();
        let begun = Instant::now();
        let asking = [0; 3].map(|_| {
            let inquiry = Arc::clone(&inquiry);
            std::thread::spawn(move || inquiry.list(None))
        });
        while !asking.iter().all(|it| it.is_finished()) {
            match inquiry.take() {
                Some((id, _)) => inquiry.hear(id, FleetSaid::Listed(Ok(OrderOutcome::Kept))),
                None => std::thread::yield_now(),
            }
        }
        let answered = asking.map(|it| it.join().unwrap().is_ok());
        // Unless this machine stood still for all of their patience.
        assert!(
            answered == [true; 3] || begun.elapsed() >= PATIENCE,
            "{answered:?}"
        );
    }
}
