//! One key as a machine holds it: what it claims, and how many permits it may give out.
//!
//! The idea: what is claimed follows what is in flight and waits, with a fourth more while there is enough for everybody, and
//! with what was in flight during the last second; where machines compete, exactly what is needed. From the moment a claim is
//! made the machine holds itself to what it has promised in it, until it has the answer.

use std::cmp::Ordering;
use std::time::Duration;

use super::{Claim, Contact, FleetKey, Grant};
use crate::Time;

/// How soon a key is claimed again for which somebody waits.
const WAITED_FOR: Duration = Duration::from_millis(25);
/// How soon one of which more would be held than is.
const WANTING: Duration = Duration::from_millis(50);
/// How often where machines compete and each has its part.
const CONTENDED: Duration = Duration::from_millis(250);
/// How long it is taken for contended after it was last.
const CALM: Duration = Duration::from_millis(500);
/// How long one waits for what other machines were called for, before it is taken for in use there.
const COMING: Duration = Duration::from_millis(250);
/// How long the store is taken to have no more after it had less than was needed.
const SHORT: Duration = Duration::from_millis(100);
/// How often permits are given back, and half of the time for which use is remembered.
const GIVE_BACK: Duration = Duration::from_millis(500);

/// What a limit does while nothing is to be had of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// A machine goes on with what it held, no more than limit ÷ machines; when all leases are over, with that.
    Share,
    /// Each machine counts for itself, up to the whole limit.
    Open,
    /// None is given out.
    Closed,
}

/// What goes on at a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InUse {
    /// Permits in flight.
    pub in_flight: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Tenants among them.
    pub tenants: u32,
}

/// A machine's side of one key.
#[derive(Debug, Clone, Copy, Default)]
pub struct PermitLease {
    /// Permits it may hold until then; afterwards what it held last.
    held: u32,
    until: Time,
    /// When it was claimed, while that is not answered.
    asked: Option<Time>,
    /// When it was claimed last.
    claimed: Time,
    /// Whether it is to be claimed whatever is wanted.
    is_called: bool,
    /// When that was claimed which was granted last.
    granted: Time,
    /// What the store was told last that is wanted.
    told: u32,
    /// The machine's part where machines compete, and until when they are taken to.
    part: u32,
    contended_until: Time,
    /// Whether the store counts more than that for it.
    owes: bool,
    /// Since when there is less than is needed.
    lacks_since: Option<Time>,
    /// Until when the store is taken to have no more.
    short_until: Time,
    peak: Peak,
}

/// The most that was needed lately.
#[derive(Debug, Clone, Copy, Default)]
struct Peak {
    now: u32,
    before: u32,
    since: Time,
}

impl PermitLease {
    /// How many permits may be in flight here, and until when that is true without another look.
    #[must_use]
    pub fn budget(&self, now: Time, contact: &Contact, limit: u32, on_loss: OnLoss) -> (u32, Time) {
        if now < self.until {
            return (self.held.min(limit), self.until);
        }
        let always = Time(u64::MAX);
        if !self.is_lost(now, contact) {
            return (0, always);
        }
        let share = contact.share(limit);
        let budget = match on_loss {
            OnLoss::Closed => 0,
            OnLoss::Open => limit,
            OnLoss::Share if contact.is_long_lost(now) => share,
            OnLoss::Share => self.held.min(share),
        };
        (budget, always)
    }

    /// Whether it goes by what is to be done on loss: it is over, and the store is away, or did not answer when it was
    /// asked last: of a key that was granted earlier than others that is known the earlier.
    #[must_use]
    pub fn is_lost(&self, now: Time, contact: &Contact) -> bool {
        now >= self.until && (contact.is_away(now) || contact.has_failed())
    }

    /// What is to be claimed now, if anything.
    pub fn claim(
        &mut self,
        now: Time,
        contact: &Contact,
        (key, limit, on_loss): (FleetKey, u32, OnLoss),
        use_now: InUse,
    ) -> Option<Claim> {
        let need = use_now.in_flight.saturating_add(use_now.waiting).min(limit);
        self.peak.note(now, need);
        if on_loss == OnLoss::Share && now >= self.until && contact.is_long_lost(now) {
            // What is given out from here on is what was held last when the store is back.
            self.held = contact.share(limit);
        }
        if contact.is_lost(now) || self.asked.is_some() {
            return None;
        }
        let want = self.want(now, need, limit);
        if !self.is_due(now, contact, want, use_now) {
            return None;
        }
        let used = use_now.in_flight;
        let (budget, _) = self.budget(now, contact, limit, on_loss);
        let most = match (contact.is_quiet(now), on_loss) {
            (true, OnLoss::Open) if now >= self.until => 0,
            (true, _) => budget,
            (false, _) if self.is_contended(now) => budget.min(want.min(self.part)),
            (false, _) => budget.min(want),
        };
        let keep = used.max(most);
        // Until there is an answer; a lease that is over stays over.
        self.held = self.held.min(keep);
        (self.asked, self.claimed, self.told) = (Some(now), now, want);
        self.is_called = false;
        let weight = use_now.tenants.max(1);
        Some(Claim {
            key,
            limit,
            used,
            keep,
            need: need.min(want),
            want,
            weight,
        })
    }

    /// Hears what the store said to what was claimed at `sent`; of anything else it was told before.
    pub fn hear(
        &mut self,
        sent: Time,
        now: Time,
        contact: &Contact,
        grant: &Grant,
        use_now: InUse,
    ) {
        if self.asked != Some(sent) {
            return;
        }
        self.asked = None;
        // What is beyond its part goes back as soon as it is not in flight.
        self.held = match grant.is_contended {
            true => grant.held.min(grant.part),
            false => grant.held,
        };
        (self.part, self.granted) = (grant.part, sent);
        self.owes = grant.is_contended && grant.held > grant.part;
        self.until = sent + contact.asked_usable();
        if grant.is_contended {
            self.contended_until = now + CALM;
        }
        let need = use_now.in_flight.saturating_add(use_now.waiting);
        let is_lacking = grant.held < need || grant.is_contended && need > 0 && need >= grant.part;
        if !is_lacking {
            self.lacks_since = None;
            if need > 0 {
                self.short_until = now;
            }
            return;
        }
        let since = *self.lacks_since.get_or_insert(sent);
        if !grant.is_coming || now - since >= COMING {
            self.short_until = now + SHORT;
        }
    }

    /// Hears that what was claimed at `sent` is not answered.
    pub fn fail(&mut self, sent: Time) {
        if self.asked == Some(sent) {
            // What was given back is told again, as long as it counts against others.
            (self.asked, self.told) = (None, u32::MAX);
        }
    }

    /// Has it claimed as soon as may be: another machine waits, or has given something back.
    pub fn call(&mut self, now: Time, use_now: InUse) {
        let need = use_now.in_flight.saturating_add(use_now.waiting);
        let held = self.held(now);
        if held >= need {
            self.contended_until = now + CALM;
        }
        if held != need || now - self.claimed >= WAITED_FOR {
            self.is_called = true;
        }
    }

    /// Whether the store had less than was needed, so that nobody waits for more to come at once.
    #[must_use]
    pub fn is_short(&self, now: Time) -> bool {
        now < self.short_until
    }

    /// Whether forgetting it loses nothing.
    #[must_use]
    pub fn is_over(&self, now: Time, use_now: InUse) -> bool {
        use_now == InUse::default()
            && self.asked.is_none()
            && (self.held == 0 && self.told == 0 || now >= self.until)
            && self.peak.most() == 0
    }

    /// Permits held of the store.
    #[must_use]
    pub fn held(&self, now: Time) -> u32 {
        match now < self.until {
            true => self.held,
            false => 0,
        }
    }

    fn is_contended(&self, now: Time) -> bool {
        now < self.contended_until
    }

    fn want(&self, now: Time, need: u32, limit: u32) -> u32 {
        let want = match self.is_contended(now) {
            true => need,
            false => {
                let most = need.max(self.peak.most());
                most + most / 4
            }
        };
        want.min(limit)
    }

    fn is_due(&self, now: Time, contact: &Contact, want: u32, use_now: InUse) -> bool {
        let since = now - self.claimed;
        let held = self.held(now);
        // What is wanted no more counts against others until they are told.
        let has_nothing = held == 0 && (self.told == 0 || now >= self.until);
        if has_nothing && want == 0 && use_now.in_flight == 0 {
            return false;
        }
        let need = use_now.in_flight.saturating_add(use_now.waiting);
        let is_late = now - self.granted >= contact.rules().lease / 3;
        let is_waited_for = use_now.waiting > 0 && use_now.in_flight >= held;
        let is_contended = self.is_contended(now);
        let rest = match want.cmp(&held.max(self.told)) {
            _ if self.is_called => return true,
            _ if is_late || is_contended && (self.owes || held > need) => WAITED_FOR,
            // It is called when there is more.
            _ if is_waited_for && is_contended && held >= self.part => CONTENDED,
            _ if is_waited_for => WAITED_FOR,
            _ if want > held => WANTING,
            Ordering::Less if is_contended => WANTING,
            Ordering::Less => GIVE_BACK,
            Ordering::Equal | Ordering::Greater => return false,
        };
        since >= rest
    }
}

impl Peak {
    fn note(&mut self, now: Time, need: u32) {
        let age = now - self.since;
        if age >= GIVE_BACK {
            self.before = if age >= GIVE_BACK * 2 { 0 } else { self.now };
            (self.now, self.since) = (0, now);
        }
        self.now = self.now.max(need);
    }

    fn most(&self) -> u32 {
        self.now.max(self.before)
    }
}
