//! Fair sharing at one level: whose turn it is among flows of different weight and cost.
//!
//! Deficit round robin (Shreedhar and Varghese 1995) with rounds as small as they can be: instead of visiting
//! flows in turn and letting each save up a quantum, the flow that has paid least for its weight comes next,
//! and the round follows what that one has paid (start-time fair queueing, Goyal, Vin and Cheng 1996). A flow's
//! deficit is `(round - paid) * weight`. So the bound between two backlogged flows is that of deficit round
//! robin without its two quanta, no visit is in vain however deep the debts are, and a heavy weight does not
//! get its thousand services in one go. Finding the flow and putting it back costs O(log flows).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::time::Time;

use super::pace::Average;

/// A debt beyond what was charged in advance is at most so many quanta.
const DEBT_QUANTA_MAX: u64 = 10;
/// A refund leaves at most so many quanta of credit.
const CREDIT_QUANTA_MAX: u64 = 2;
/// Time without waiters leaves at most so many quanta of credit: a light flow's burst of so many goes before
/// those who always wait. Between flows that always wait it plays no part.
const REST_QUANTA_MAX: u64 = 16;
/// Each time its waiters are gone and others come, a flow loses this part of its credit: of flows that are alike none
/// stays before the others because it was lucky once.
const CREDIT_FADES: u64 = 8;
/// Debts halve in this time, so that nobody is punished for yesterday.
const HALVING: Duration = Duration::from_secs(30);
/// The least a service costs: what measures as nothing must not be free.
const LEAST_COST_NS: u64 = 1_000;
/// Where the round begins: high enough that a credit fits below it.
const FIRST_ROUND_NS: u64 = 1 << 60;

/// What a flow has paid, and what its services cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    /// What it was charged so far, by weight; comparable with the round.
    paid_ns: u64,
    /// When its debt was last faded.
    faded: Time,
    /// Whose turn it is among those who paid alike.
    turn: u64,
    weight: u32,
    waiting: u32,
    /// When its last waiter left.
    pub(super) idle_since: Time,
    pub(super) cost: Average,
}

impl Account {
    pub(super) fn new(now: Time, weight: u32) -> Self {
        Self {
            paid_ns: 0,
            faded: now,
            turn: 0,
            weight: weight.max(1),
            waiting: 0,
            idle_since: now,
            cost: Average::default(),
        }
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Where it stands among the flows of its ring.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.paid_ns, self.turn)
    }

    /// How long its queue is for its weight, were there so many more in it.
    pub(super) fn length(&self, more: u32) -> u64 {
        (u64::from(self.waiting.saturating_add(more)) << 20) / u64::from(self.weight)
    }

    /// Brings its debt down to what is left of it by now. Who has waiters pays by waiting: were that
    /// forgiven too, whoever owes more would in the long run get more than its share.
    fn fade(&mut self, now: Time, round_ns: u64) {
        let halving_ns = HALVING.as_nanos() as u64;
        let elapsed_ns = now.since_ns(self.faded);
        self.faded = self.faded.max(now);
        let debt_ns = self.paid_ns.saturating_sub(round_ns);
        if debt_ns == 0 || self.waiting > 0 {
            return;
        }
        let halved_ns = debt_ns >> (elapsed_ns / halving_ns).min(63);
        let part = u128::from(halved_ns / 2) * u128::from(elapsed_ns % halving_ns)
            / u128::from(halving_ns);
        self.paid_ns = round_ns + halved_ns - part as u64;
    }
}

/// Which of those who paid alike goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Oldest,
    Newest,
}

/// How a flow is met that was not known before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Newcomers {
    /// As one that has rested: there are only so many, as of tenants.
    Rested,
    /// Without credit: anybody can come as somebody new, as clients can.
    Strangers,
    /// Without credit, and a rest earns none either: who comes back begins right before the round, or at its debt. That
    /// others get turns beside newcomers without end is the caller's business.
    Unrested,
}

/// The flows of one level that have waiters, in the order they will be served.
#[derive(Debug)]
pub(super) struct Ring {
    newcomers: Newcomers,
    round_ns: u64,
    turn: u64,
    /// By what they paid, then by turn.
    order: BTreeSet<(u64, u64, u64)>,
    /// By length for their weight.
    lengths: BTreeSet<(u64, u64)>,
    weights: u64,
    /// How many have not paid beyond the round: they all go before a newcomer.
    due: u64,
}

impl Ring {
    pub(super) fn new(newcomers: Newcomers) -> Self {
        Self {
            newcomers,
            round_ns: FIRST_ROUND_NS,
            turn: 0,
            order: BTreeSet::new(),
            lengths: BTreeSet::new(),
            weights: 0,
            due: 0,
        }
    }

    /// How many flows have waiters.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The flow to be served next.
    pub(super) fn first(&self, turn: Turn) -> Option<u64> {
        let &(paid_ns, _, first) = self.order.first()?;
        match turn {
            Turn::Oldest => Some(first),
            Turn::Newest => Some(
                self.order
                    .range(..=(paid_ns, u64::MAX, u64::MAX))
                    .next_back()?
                    .2,
            ),
        }
    }

    /// The flow to be served next, if it has paid less than the round.
    pub(super) fn first_before(&self) -> Option<u64> {
        let &(paid_ns, _, first) = self.order.first()?;
        (paid_ns < self.round_ns).then_some(first)
    }

    /// Has a flow without waiters come back as one that has just paid so much.
    pub(super) fn defer(&self, account: &mut Account, cost_ns: u64) {
        account.paid_ns = account.paid_ns.max(self.round_ns.saturating_add(cost_ns));
    }

    /// The flow with most waiters for its weight, and how long its queue is for it.
    pub(super) fn longest(&self) -> Option<(u64, u64)> {
        self.lengths.last().copied()
    }

    /// One more waits in this flow. If it is the first, its debt and its credit have faded, and the latter is bounded.
    pub(super) fn push(
        &mut self,
        now: Time,
        id: u64,
        account: &mut Account,
        weight: u32,
        unit_ns: u64,
        late_ns: Option<u64>,
    ) {
        let round_ns = self.round_ns;
        let least_ns = self.start(account, unit_ns);
        self.turn += 1;
        let turn = self.turn;
        self.change(id, account, |account| {
            account.weight = weight.max(1);
            if account.waiting == 0 {
                account.fade(now, round_ns);
                // Where somebody may be late, flows of like credit are told apart by who is newest.
                if late_ns.is_none() {
                    account.paid_ns += round_ns.saturating_sub(account.paid_ns) / CREDIT_FADES;
                }
                account.paid_ns = account.paid_ns.max(least_ns);
                account.turn = turn;
            }
            account.waiting += 1;
        });
    }

    /// One less waits in this flow.
    pub(super) fn pop(&mut self, id: u64, account: &mut Account) {
        self.change(id, account, |account| {
            account.waiting = account.waiting.saturating_sub(1)
        });
    }

    /// Charges a flow for a service that begins.
    pub(super) fn charge(&mut self, now: Time, id: u64, account: &mut Account, cost_ns: u64) {
        self.advance(account.paid_ns);
        if self.newcomers != Newcomers::Unrested {
            self.drift(cost_ns / (self.weights + u64::from(account.weight)));
        }
        self.charge_aside(now, id, account, cost_ns);
    }

    /// As [`Self::charge`], for a service out of turn: the round does not follow it.
    pub(super) fn charge_aside(&mut self, now: Time, id: u64, account: &mut Account, cost_ns: u64) {
        let round_ns = self.round_ns;
        self.turn += 1;
        let turn = self.turn;
        self.change(id, account, |account| {
            account.fade(now, round_ns);
            account.paid_ns = account
                .paid_ns
                .saturating_add(by_weight(cost_ns, account.weight));
            account.turn = turn;
        });
    }

    /// Replaces a charge by what it should have been; `unit_ns` is the quantum of weight 1.
    pub(super) fn correct(
        &mut self,
        now: Time,
        id: u64,
        account: &mut Account,
        charged_ns: u64,
        cost_ns: u64,
        unit_ns: u64,
    ) {
        let least_ns = self.least(unit_ns, CREDIT_QUANTA_MAX);
        let round_ns = self.round_ns;
        self.change(id, account, |account| {
            account.fade(now, round_ns);
            let charged = by_weight(charged_ns, account.weight);
            let most = round_ns
                .saturating_add(unit_ns.saturating_mul(DEBT_QUANTA_MAX))
                .saturating_add(charged)
                .max(account.paid_ns);
            let least = least_ns.min(account.paid_ns);
            let paid_ns = account
                .paid_ns
                .saturating_add(by_weight(cost_ns, account.weight))
                .saturating_sub(charged);
            account.paid_ns = paid_ns.clamp(least, most);
        });
    }

    /// How many services come before that of a newcomer to this flow, of which `own` are of the flow itself.
    pub(super) fn ahead(&self, account: &Account, own: u64, unit_ns: u64) -> u64 {
        if self.order.len() == usize::from(account.waiting > 0) {
            // Nobody else waits, so what it owes makes nobody wait either.
            return own;
        }
        let start_ns = match account.waiting {
            0 => account.paid_ns.max(self.start(account, unit_ns)),
            _ => account.paid_ns,
        };
        let own_ns = by_weight(
            account
                .cost
                .value_ns()
                .unwrap_or(unit_ns)
                .saturating_mul(own),
            account.weight,
        );
        let lead_ns = start_ns
            .saturating_add(own_ns)
            .saturating_sub(self.round_ns);
        let (weights, due) = match account.waiting {
            0 => (self.weights + u64::from(account.weight), self.due),
            _ => (
                self.weights,
                self.due - u64::from(account.paid_ns <= self.round_ns),
            ),
        };
        let rounds = u128::from(lead_ns) * u128::from(weights) / u128::from(unit_ns.max(1));
        u64::try_from(rounds)
            .unwrap_or(u64::MAX)
            .saturating_add(due)
    }

    /// Whether others are to blame if this flow's waiters are late: it has used less than its share by more than
    /// a service, or somebody's queue is more than twice as long for its weight.
    pub(super) fn is_light(&self, account: &Account, unit_ns: u64) -> bool {
        let longest = self.longest().map_or(0, |(length, _)| length);
        self.order.len() > 1
            && (account.paid_ns < self.least(unit_ns, 1) || longest > 2 * account.length(0))
    }

    /// The least a flow without waiters begins with: strangers have earned no credit.
    fn start(&self, account: &Account, unit_ns: u64) -> u64 {
        match (self.newcomers, account.turn) {
            (Newcomers::Strangers, 0) => self.round_ns,
            (Newcomers::Unrested, _) => self.round_ns - 1,
            _ => self.least(unit_ns, REST_QUANTA_MAX),
        }
    }

    /// What a flow has paid that has so many quanta of credit.
    fn least(&self, unit_ns: u64, quanta: u64) -> u64 {
        self.round_ns.saturating_sub(unit_ns.saturating_mul(quanta))
    }

    /// Moves the round on by a service's worth, but not past who comes next.
    ///
    /// Or newcomers without end would hold it still, and whoever was served once would wait for all of them.
    fn drift(&mut self, by_ns: u64) {
        let next = self
            .order
            .range((self.round_ns.saturating_add(1), 0, 0)..)
            .next();
        if let Some(&(paid_ns, _, _)) = next {
            self.advance(paid_ns.min(self.round_ns.saturating_add(by_ns)));
        }
    }

    /// Moves the round on to what the flow served now has paid.
    fn advance(&mut self, paid_ns: u64) {
        if paid_ns <= self.round_ns {
            return;
        }
        let (from, to) = ((self.round_ns + 1, 0, 0), (paid_ns, u64::MAX, u64::MAX));
        self.due += self.order.range(from..=to).count() as u64;
        self.round_ns = paid_ns;
    }

    /// Changes an account and keeps what is ordered by it.
    fn change(&mut self, id: u64, account: &mut Account, change: impl FnOnce(&mut Account)) {
        let before = *account;
        change(account);
        let same_place = before.paid_ns == account.paid_ns && before.turn == account.turn;
        if !(same_place && (before.waiting > 0) == (account.waiting > 0))
            || before.weight != account.weight
        {
            self.leave(id, &before);
            self.enter(id, account);
        }
        if before.length(0) != account.length(0) || before.waiting != account.waiting {
            self.lengths.remove(&(before.length(0), id));
            if account.waiting > 0 {
                self.lengths.insert((account.length(0), id));
            }
        }
    }

    fn leave(&mut self, id: u64, account: &Account) {
        if self.order.remove(&(account.paid_ns, account.turn, id)) {
            self.weights -= u64::from(account.weight);
            self.due -= u64::from(account.paid_ns <= self.round_ns);
        }
    }

    fn enter(&mut self, id: u64, account: &Account) {
        if account.waiting > 0 && self.order.insert((account.paid_ns, account.turn, id)) {
            self.weights += u64::from(account.weight);
            self.due += u64::from(account.paid_ns <= self.round_ns);
        }
    }
}

fn by_weight(cost_ns: u64, weight: u32) -> u64 {
    match cost_ns {
        0 => 0,
        _ => cost_ns.max(LEAST_COST_NS) / u64::from(weight.max(1)),
    }
}
