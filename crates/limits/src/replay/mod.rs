//! What if: an access log run through the same ledger, with a virtual clock.
//!
//! [`run`] lets logged requests arrive at one limit and tells what would have come of it,
//! [`thresholds`] finds the smallest number that would have refused nobody. The code that decides is
//! the gateway's own. Left out: reading logs, and sorting them by arrival.

mod report;
mod tally;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::{
    Admission, Ask, Concurrent, Definition, Keyed, Ledger, LimitId, Outcome, Permit, RateCheck,
    Refusal, TenantDefinition, TenantId, Ticket, Time, Used, Want, Why,
};

pub use report::{KeyReport, Report};
pub use tally::{KEYS_MAX, OTHER};

use tally::Tally;

/// How often the ledger is told the time while something runs or waits.
const TICK_NS: u64 = 100_000_000;
/// Requests under way at once at most; with more, those that would end first end early.
const RUNNING_MAX: usize = 1 << 20;
/// A log that says a request took longer than this is not believed.
const HELD_MAX: Duration = Duration::from_secs(86_400);

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// When it came.
    pub arrived: Time,
    /// How long it would hold a permit: without waits for one.
    pub held: Duration,
    /// Whose it is: an index into the tenants given. One too high counts as the last.
    pub tenant: usize,
    /// Who sent it.
    pub client: IpAddr,
    /// Its key at the limit; of no matter at a fixed one.
    pub key: Box<[u8]>,
}

/// What came of one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// Which arrival, counted from 0.
    pub number: u64,
    /// When it came.
    pub arrived: Time,
    /// What the limit said in the end.
    pub decision: Decision,
}

/// What a limit says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It went on, after this wait.
    Admitted(Duration),
    /// It was refused.
    Refused(Why),
}

/// Lets requests arrive at a limit, in the order of their arrival, and tells what came of them.
///
/// `each` is called with every decision when it falls.
pub fn run(
    limit: &Definition,
    tenants: &[TenantDefinition],
    arrivals: impl Iterator<Item = Arrival>,
    mut each: impl FnMut(&Decided),
) -> Report {
    let mut replay: Option<Replay> = None;
    for arrival in arrivals {
        let replay = replay.get_or_insert_with(|| Replay::new(limit, tenants, arrival.arrived));
        let held = arrival.held.min(HELD_MAX);
        replay.arrive(Arrival { held, ..arrival });
        replay.decided.drain(..).for_each(|decided| each(&decided));
    }
    let Some(mut replay) = replay else {
        return Report::default();
    };
    while !replay.waiting.is_empty() {
        replay.advance(replay.now + HELD_MAX);
    }
    replay.decided.drain(..).for_each(|decided| each(&decided));
    replay.tally.report()
}

/// The smallest numbers for a limit's `concurrent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// With which nobody would have waited: what the busiest key had under way at once.
    pub without_waits: u32,
    /// With which nobody would have been refused, with the limit's queue and wait; none if keys
    /// had to be counted together and no number of them is enough.
    pub without_refusals: Option<u32>,
}

/// Finds the smallest numbers with which nobody would have waited, or been refused.
///
/// `arrivals` is asked for the same arrivals again and again, at most 34 times. A rate is left out.
pub fn thresholds<I: Iterator<Item = Arrival>>(
    limit: &Definition,
    tenants: &[TenantDefinition],
    mut arrivals: impl FnMut() -> I,
) -> Thresholds {
    let mut with = |permits: u32| {
        let concurrent = Some(Concurrent::Fixed(permits));
        let limit = Definition {
            concurrent,
            rate: None,
            ..limit.clone()
        };
        run(&limit, tenants, arrivals(), |_| {})
    };
    let without_waits = with(u32::MAX).wanted_max().max(1);
    let (mut low, mut high) = (0, without_waits);
    if with(high).total.refused_total() > 0 {
        return Thresholds {
            without_waits,
            without_refusals: None,
        };
    }
    // `high` refuses nobody; what is not above `low` refuses somebody.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if with(middle).total.refused_total() > 0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Thresholds {
        without_waits,
        without_refusals: Some(high),
    }
}

struct Replay {
    ledger: Ledger,
    limit: LimitId,
    keyed: Keyed,
    tenants: Vec<TenantId>,
    now: Time,
    ticked: Time,
    number: u64,
    running: BinaryHeap<Reverse<Running>>,
    waiting: HashMap<u64, Waiting>,
    deadlines: BinaryHeap<Reverse<(Time, u64)>>,
    woken: Arc<Mutex<Vec<u64>>>,
    decided: Vec<Decided>,
    tally: Tally,
}

/// A request that holds a permit.
struct Running {
    ends: Time,
    number: u64,
    key: usize,
    held: Duration,
    permit: Permit,
}

/// A request that waits for one.
struct Waiting {
    ticket: Ticket,
    waker: Waker,
    arrived: Time,
    key: usize,
    held: Duration,
}

/// Writes down who was called.
struct Bell {
    number: u64,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.number);
    }
}

impl Replay {
    fn new(limit: &Definition, tenants: &[TenantDefinition], now: Time) -> Self {
        let ledger = Ledger::new(1, [1, 2, 3, 4]);
        let nobody = [TenantDefinition {
            name: String::new(),
            weight: 1,
            keys_max: KEYS_MAX as u32,
        }];
        let tenants = if tenants.is_empty() { &nobody } else { tenants };
        let defined = ledger.define(now, std::slice::from_ref(limit), tenants);
        Self {
            ledger,
            limit: defined.limits[0],
            keyed: limit.keyed,
            tenants: defined.tenants,
            now,
            ticked: Time(now.0 / TICK_NS * TICK_NS),
            number: 0,
            running: BinaryHeap::new(),
            waiting: HashMap::new(),
            deadlines: BinaryHeap::new(),
            woken: Arc::default(),
            decided: Vec::new(),
            tally: Tally::new(limit.keyed),
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        self.advance(arrival.arrived);
        let number = self.number;
        self.number += 1;
        let key = self.tally.arrive(&arrival);
        let last = self.tenants.len() - 1;
        let want = Want {
            limit: self.limit,
            key: (self.keyed == Keyed::Dynamic).then_some(&*arrival.key),
        };
        let wants = [want];
        let ask = Ask::of(
            0,
            self.tenants[arrival.tenant.min(last)],
            arrival.client,
            &wants,
        );
        let arrived = arrival.arrived;
        if let RateCheck::Refused(refusal) = self.ledger.check_rates(self.now, &ask) {
            return self.refused(number, arrived, key, &refusal);
        }
        match self.ledger.admit(self.now, &ask) {
            Admission::Admitted(permit) => self.start(number, arrived, key, arrival.held, permit),
            Admission::Refused(refusal) => self.refused(number, arrived, key, &refusal),
            Admission::Waiting(ticket) => {
                let waker = Waker::from(Arc::new(Bell {
                    number,
                    woken: self.woken.clone(),
                }));
                self.deadlines.push(Reverse((ticket.deadline(), number)));
                let held = arrival.held;
                self.waiting.insert(
                    number,
                    Waiting {
                        ticket,
                        waker,
                        arrived,
                        key,
                        held,
                    },
                );
                self.poll(number);
            }
        }
        self.answer_woken();
    }

    /// Lets time pass, with everything that happens until then, ends before arrivals.
    fn advance(&mut self, until: Time) {
        loop {
            let end = self.running.peek().map(|Reverse(running)| running.ends);
            let deadline = self
                .deadlines
                .peek()
                .map(|Reverse((deadline, _))| *deadline);
            let busy = end.is_some() || !self.waiting.is_empty();
            let tick = self
                .ticked
                .0
                .checked_add(TICK_NS)
                .filter(|_| busy)
                .map(Time);
            let Some(next) = [end, deadline, tick]
                .into_iter()
                .flatten()
                .min()
                .filter(|next| *next <= until)
            else {
                break;
            };
            self.now = self.now.max(next);
            if end == Some(next) {
                self.end_first();
            } else if deadline == Some(next) {
                let due = self.deadlines.pop();
                due.into_iter()
                    .for_each(|Reverse((_, number))| self.poll(number));
            } else {
                self.ledger.tick(next);
                self.ticked = next;
            }
            self.answer_woken();
        }
        self.catch_up(until);
    }

    /// While nothing ran and nothing waited no tick was missed but the last.
    fn catch_up(&mut self, until: Time) {
        self.now = self.now.max(until);
        let last = Time(until.0 / TICK_NS * TICK_NS);
        if last > self.ticked {
            self.ledger.tick(last);
            self.ticked = last;
        }
    }

    fn start(&mut self, number: u64, arrived: Time, key: usize, held: Duration, permit: Permit) {
        let waited = self.now - arrived;
        self.tally.admitted(key, waited);
        self.decided.push(Decided {
            number,
            arrived,
            decision: Decision::Admitted(waited),
        });
        let ends = self.now + held;
        self.running.push(Reverse(Running {
            ends,
            number,
            key,
            held,
            permit,
        }));
        if self.running.len() > RUNNING_MAX {
            self.end_first();
        }
    }

    fn end_first(&mut self) {
        let Some(Reverse(running)) = self.running.pop() else {
            return;
        };
        self.tally.ended(running.key);
        let held_ns = u64::try_from(running.held.as_nanos()).unwrap_or(u64::MAX);
        running
            .permit
            .end(self.now, Used::Measured(held_ns), Outcome::Fine);
    }

    fn refused(&mut self, number: u64, arrived: Time, key: usize, refusal: &Refusal) {
        self.tally.refused(key, refusal.why);
        self.decided.push(Decided {
            number,
            arrived,
            decision: Decision::Refused(refusal.why),
        });
    }

    /// Asks for those whose turn may have come, and for those whom that calls in turn.
    fn answer_woken(&mut self) {
        loop {
            let woken =
                std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
            if woken.is_empty() {
                return;
            }
            woken.into_iter().for_each(|number| self.poll(number));
        }
    }

    fn poll(&mut self, number: u64) {
        let Some(waiting) = self.waiting.get_mut(&number) else {
            return;
        };
        let Waiting {
            ticket,
            waker,
            arrived,
            key,
            held,
        } = waiting;
        let answer = ticket.poll_wait(self.now, &mut Context::from_waker(waker));
        let (arrived, key, held) = (*arrived, *key, *held);
        match answer {
            Poll::Pending => return,
            Poll::Ready(Ok(permit)) => self.start(number, arrived, key, held, permit),
            Poll::Ready(Err(refusal)) => self.refused(number, arrived, key, &refusal),
        }
        self.waiting.remove(&number);
    }
}

impl Running {
    fn rank(&self) -> (Time, u64) {
        (self.ends, self.number)
    }
}

impl PartialEq for Running {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Running {}

impl PartialOrd for Running {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Running {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

#[cfg(test)]
mod tests;
