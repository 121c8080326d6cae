//! A rate as a machine shares it: what it draws of the store, and what may begin here.
//!
//! The idea: of a quick rate a machine draws ahead what began here in a moment, of a slow one only what somebody waits for, so that a burst
//! is one burst, wherever its client goes. What is drawn is used within a moment, or lost: so the store alone says how much
//! begins in any stretch of time. While the store is away each machine counts by itself, by its part of the rate.
//!
//! [`RateStock`] stands at the gate, where requests look; [`RateLease`] is what asks. Left out: who waits, and how.

use std::time::Duration;

use super::bucket::{WINDOW_US, window_us};
use super::{Contact, FleetKey, OnLoss, RateClaim, RateGrant};
use crate::Time;
use crate::definition::RateDefinition;
use crate::rate::Rate;

/// How long what was drawn may be used.
const LIFE: Duration = Duration::from_millis(100);
/// How soon a key is claimed again of which there was too little.
const REFUSED: Duration = Duration::from_millis(25);
/// How soon one of which somebody waits for what was not answered.
const UNANSWERED: Duration = Duration::from_millis(100);
/// What the rate has to bring in a window to be drawn ahead.
const AHEAD_MIN: u32 = 4;
/// A burst is no less than what the rate brings in that time, where it is drawn ahead: else it would be lost between two draws.
const BURST_MIN_US: u64 = 35_000;
/// From how long an interval on it is a whole number of microseconds, so that a burst comes out even.
const WHOLE_NS: u64 = 100_000;
/// The longest that a bucket may take to be full: as the store reckons with it, a hundred days and some.
const FULL_US_MAX: u64 = 9_000_000_000_000;
/// Demand is told over no more: of what is slower machines have no parts, and whoever asks first has it.
const WINDOW_US_MAX: u64 = 1_000_000;
/// How long a key is kept of which nobody wants anything.
const IDLE: Duration = Duration::from_secs(1);

/// A rate as the store counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateTerms {
    interval_ns: u64,
    full_us: u64,
    /// The most that is drawn ahead; 0: nothing is.
    ahead: u32,
}

/// Who decides about a gate of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RateBy {
    /// Nobody yet.
    #[default]
    Nobody,
    /// The store.
    Store,
    /// The machine, by the rate divided by so many.
    Share(u16),
    /// Nobody is let in.
    Closed,
}

/// What may begin at a gate.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateStock {
    pub(crate) by: RateBy,
    /// What has begun by the machine's part that the store was not told of.
    own: u32,
    /// What was drawn since `turned`, and before.
    fresh: u32,
    old: u32,
    turned: Time,
    /// Until when the store has no more.
    spent_until: Time,
    /// What has begun that was not drawn yet, in shadow.
    pub(crate) debt: u32,
}

/// What a gate says to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// One may begin.
    Ready,
    /// There is no more for so long.
    Spent(Duration),
    /// The store is to be asked.
    Unknown,
}

/// What goes on at a gate of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateUse {
    /// Requests that came so far.
    pub arrived: u64,
    /// Requests that wait for an answer of the store.
    pub waiting: u32,
    /// When the bucket is full, as far as it is known here.
    pub full_at: Time,
}

/// A machine's side of one key of a rate.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateLease {
    /// When it was claimed, while that is not answered, how much was, and how much had begun without the store.
    asked: Option<Time>,
    wanted: u32,
    told: u32,
    claimed: Time,
    /// When somebody came last.
    seen: Time,
    /// Requests that had come when the window began, when that was, and how many came in those before.
    arrived: u64,
    since: Time,
    before: u32,
    earlier: u32,
    came: u32,
}

impl RateTerms {
    /// Of a rate with a burst.
    #[must_use]
    pub fn of(rate: &RateDefinition) -> Self {
        let exact_ns = Rate::new(rate.count, rate.per, rate.burst).interval_ns();
        let interval_ns = match exact_ns {
            ..WHOLE_NS => exact_ns,
            _ => exact_ns.div_ceil(1_000) * 1_000,
        };
        let in_us = |us: u64| u32::try_from(us * 1_000 / interval_ns).unwrap_or(u32::MAX);
        let window = in_us(WINDOW_US);
        let ahead = if window < AHEAD_MIN { 0 } else { window };
        let least = if ahead > 0 { in_us(BURST_MIN_US) } else { 1 };
        let burst = u64::from(rate.burst.max(least));
        let full_us = interval_ns.saturating_mul(burst).div_ceil(1_000);
        Self {
            interval_ns,
            full_us: full_us.min(FULL_US_MAX),
            ahead,
        }
    }

    /// How long it takes for a burst.
    pub(crate) fn full(&self) -> Duration {
        Duration::from_micros(self.full_us)
    }

    /// How long it takes until a machine's part of a bucket is full of which nothing is known: a part may let one begin.
    pub(crate) fn unknown(&self, by: RateBy) -> Duration {
        let machines = match by {
            RateBy::Share(machines) => u64::from(machines),
            RateBy::Nobody | RateBy::Store | RateBy::Closed => 1,
        };
        let one_us = self.interval_ns.saturating_mul(machines) / 1_000;
        Duration::from_micros(self.full_us.max(one_us).min(super::bucket::UNKNOWN_US))
    }
}

impl RateStock {
    /// Nothing, and nobody decides.
    pub(crate) const NONE: Self = Self {
        by: RateBy::Nobody,
        own: 0,
        fresh: 0,
        old: 0,
        turned: Time::ZERO,
        spent_until: Time::ZERO,
        debt: 0,
    };

    /// What a gate says to somebody who comes when so many wait.
    pub(crate) fn offer(&self, now: Time, before: u32) -> Offer {
        let stock = self.usable(now).saturating_sub(self.debt);
        match self.by {
            RateBy::Store if stock > before => Offer::Ready,
            RateBy::Store if now < self.spent_until => Offer::Spent(self.spent(now)),
            _ => Offer::Unknown,
        }
    }

    /// Lets one begin.
    pub(crate) fn take(&mut self, now: Time) {
        self.turn(now);
        match self.old.checked_sub(1) {
            Some(old) => self.old = old,
            None => self.fresh = self.fresh.saturating_sub(1),
        }
    }

    /// Notes one that begins by the machine's part.
    pub(crate) fn note_own(&mut self) {
        if matches!(self.by, RateBy::Share(_)) {
            self.own = self.own.saturating_add(1);
        }
    }

    /// How long there is no more.
    pub(crate) fn spent(&self, now: Time) -> Duration {
        self.spent_until - now
    }

    /// What may still be used.
    #[must_use]
    pub fn usable(&self, now: Time) -> u32 {
        let age = now - self.turned;
        match () {
            () if age >= LIFE => 0,
            () if age >= LIFE / 2 => self.fresh,
            () => self.fresh.saturating_add(self.old),
        }
    }

    /// Has somebody else decide from now on; tells whether that is the machine itself.
    pub(crate) fn set_by(&mut self, by: RateBy) -> bool {
        let is_new = self.by != by;
        self.by = by;
        let is_share = matches!(by, RateBy::Share(_));
        if is_share {
            (self.fresh, self.old) = (0, 0);
        }
        is_new && is_share
    }

    /// Keeps what a store said within what a rate may be: it may have been raised since, and stores may lie.
    pub(crate) fn bound(&mut self, now: Time, terms: &RateTerms) {
        let interval = Duration::from_nanos(terms.interval_ns).max(REFUSED);
        self.spent_until = self.spent_until.min(now + interval);
    }

    /// Has nothing of the store any more.
    pub(crate) fn unlist(&mut self) {
        *self = Self {
            own: self.own,
            ..Self::NONE
        };
    }

    fn turn(&mut self, now: Time) {
        let age = now - self.turned;
        if age >= LIFE / 2 {
            self.old = if age >= LIFE { 0 } else { self.fresh };
            (self.fresh, self.turned) = (0, now);
        }
    }

    fn add(&mut self, now: Time, count: u32) {
        self.turn(now);
        let paid = self.debt.min(count);
        self.debt -= paid;
        self.fresh = self.fresh.saturating_add(count - paid);
    }
}

impl RateLease {
    /// Who decides about a gate as the store is, and since when the store does not.
    #[must_use]
    pub fn by(now: Time, contact: &Contact, on_loss: OnLoss) -> (RateBy, Time) {
        let Some(since) = contact.alone_since(now) else {
            return (RateBy::Store, Time::ZERO);
        };
        let machines = u16::try_from(contact.sharing()).unwrap_or(u16::MAX);
        let by = match on_loss {
            OnLoss::Open => RateBy::Share(1),
            OnLoss::Share if machines > 0 => RateBy::Share(machines),
            OnLoss::Share | OnLoss::Closed => RateBy::Closed,
        };
        (by, since)
    }

    /// What is to be claimed now, if anything.
    pub fn claim(
        &mut self,
        now: Time,
        contact: &Contact,
        (key, terms): (FleetKey, RateTerms),
        stock: &RateStock,
        in_use: RateUse,
    ) -> Option<RateClaim> {
        let demand = self.note(now, &terms, in_use.arrived);
        if contact.is_away(now) || self.asked.is_some() {
            return None;
        }
        let have = stock.usable(now);
        let need = in_use.waiting.saturating_add(stock.debt);
        let ahead = demand.min(terms.ahead);
        let want = need.saturating_add(ahead).saturating_sub(have);
        let since = now - self.claimed;
        let is_low = have < ahead - ahead / 4 && since >= REFUSED;
        let is_due = match contact.has_failed() {
            true => since >= UNANSWERED && now - self.seen < IDLE,
            false => (need > have || is_low) && now >= stock.spent_until,
        };
        if !is_due {
            return None;
        }
        (self.asked, self.claimed, self.wanted) = (Some(now), now, want);
        self.told = stock.own;
        let own_ns = u64::from(stock.own).saturating_mul(terms.interval_ns);
        // No more than what is still to be seen of it.
        let spent = Duration::from_nanos(own_ns).min(in_use.full_at - now);
        Some(RateClaim {
            key,
            interval_ns: terms.interval_ns,
            full_us: terms.full_us,
            want,
            demand: match window_us(terms.interval_ns) {
                ..=WINDOW_US_MAX => self.usual(),
                _ => 0,
            },
            spent_us: u64::try_from(spent.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX),
        })
    }

    /// Hears what the store said to what was claimed at `sent`, and tells when the bucket is full, of what was counted until `full_at`.
    pub fn hear(
        &mut self,
        sent: Time,
        now: Time,
        grant: &RateGrant,
        stock: &mut RateStock,
        full_at: Time,
    ) -> Time {
        if self.asked != Some(sent) {
            return full_at;
        }
        self.asked = None;
        stock.own = stock.own.saturating_sub(self.told);
        stock.add(now, grant.count);
        if grant.count < self.wanted {
            let next = Duration::from_micros(grant.next_us);
            stock.spent_until = now + next.max(REFUSED);
            // What began in shadow beyond that would not have begun.
            stock.debt = 0;
        }
        let known = sent + Duration::from_micros(grant.full_us);
        // What has begun since it was asked the store does not know.
        match stock.own {
            0 => known,
            _ => known.max(full_at),
        }
    }

    /// Hears that what was claimed at `sent` is not answered.
    pub fn fail(&mut self, sent: Time) {
        if self.asked == Some(sent) {
            self.asked = None;
        }
    }

    /// Whether forgetting it loses nothing.
    #[must_use]
    pub fn is_over(&self, now: Time, stock: &RateStock, in_use: RateUse) -> bool {
        let is_idle = in_use.waiting == 0 && self.asked.is_none() && stock.usable(now) == 0;
        is_idle && stock.debt == 0 && now - self.seen >= IDLE
    }

    /// Counts who has come, and tells how many come in a window.
    pub(crate) fn note(&mut self, now: Time, terms: &RateTerms, arrived: u64) -> u32 {
        if self.since == Time::ZERO {
            (self.since, self.arrived, self.seen) = (now, arrived, now);
        }
        let came = u32::try_from(arrived.saturating_sub(self.arrived)).unwrap_or(u32::MAX);
        if came > self.came {
            self.seen = now;
        }
        self.came = came;
        let age = now - self.since;
        let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        let window_us = window_us(terms.interval_ns);
        if age_us >= window_us {
            let in_window = u64::from(came).saturating_mul(window_us) / age_us;
            let before = u32::try_from(in_window).unwrap_or(u32::MAX);
            (self.before, self.earlier) = (before, self.before);
            (self.since, self.arrived, self.came) = (now, arrived, 0);
        }
        self.before.max(self.came)
    }

    /// How many come in a window, neither more nor less than lately.
    fn usual(&self) -> u32 {
        self.before.saturating_add(self.earlier).div_ceil(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{FleetRules, StoreReply};

    #[test]
    fn what_a_store_does_not_have_is_no_debt_and_no_answer_shuts_a_key_for_long() {
        let rate = RateDefinition {
            count: 10,
            per: Duration::from_secs(1),
            burst: 10,
        };
        let terms = RateTerms::of(&rate);
        let mut contact = Contact::new(FleetRules {
            lease: Duration::from_millis(5_000),
            machines_min: 0,
        });
        let now = Time::ZERO + Duration::from_secs(60);
        contact.ask(now);
        let reply = StoreReply {
            machines: 1,
            ..StoreReply::default()
        };
        contact.hear(now, &reply);
        let (mut lease, mut stock) = (RateLease::default(), RateStock::NONE);
        stock.set_by(RateBy::Store);
        stock.debt = 50;
        let claim = lease.claim(
            now,
            &contact,
            (FleetKey([7, 9]), terms),
            &stock,
            RateUse::default(),
        );
        assert_eq!(claim.map(|it| it.want), Some(50));
        let grant = RateGrant {
            count: 1,
            next_us: u64::MAX,
            full_us: u64::MAX,
        };
        lease.hear(now, now, &grant, &mut stock, now);
        assert_eq!(stock.debt, 0);
        stock.bound(now, &terms);
        assert!(stock.spent(now) <= Duration::from_millis(100));
    }

    #[test]
    fn however_many_come_in_however_long_a_window_are_counted() {
        let rate = RateDefinition {
            count: 1,
            per: Duration::from_secs(86_400),
            burst: 1,
        };
        let (terms, mut lease) = (RateTerms::of(&rate), RateLease::default());
        let begun = Time::ZERO + Duration::from_secs(60);
        assert_eq!(lease.note(begun, &terms, 0), 0);
        let window = Duration::from_micros(window_us(terms.interval_ns));
        assert!(lease.note(begun + window, &terms, u64::MAX) > 1);
    }
}
