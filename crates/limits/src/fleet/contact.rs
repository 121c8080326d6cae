//! What a machine knows of the store: whether it answers, whether it is quiet, how many machines there are.

use std::time::Duration;

use super::StoreReply;
use crate::Time;

/// How long a question may take before what cannot wait is decided without an answer.
const SLOW: Duration = Duration::from_millis(500);

/// How machines share limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetRules {
    /// How long the store lets a machine hold what it was given. The same on all machines.
    pub lease: Duration,
    /// Machines there are at least, for shares while the store is away.
    pub machines_min: u32,
}

impl FleetRules {
    /// How long a machine itself goes on giving out permits after it has asked: a fifth less.
    #[must_use]
    pub fn usable(&self) -> Duration {
        self.lease - self.lease / 5
    }
}

/// How the store is for this machine.
#[derive(Debug, Clone, Copy)]
pub struct Contact {
    rules: FleetRules,
    machines: u32,
    /// When that was asked which was answered last.
    answered: Option<Time>,
    /// Until when it gives out nothing new.
    quiet_until: Time,
    /// When it was asked last, and whether that is not answered yet.
    asked: Option<Time>,
    /// How long what was asked for then may be used.
    asked_usable: Duration,
    /// Since when it is answered without having been away for so long that other machines may count without it.
    known_since: Time,
    is_asking: bool,
    /// Whether what was asked last was not answered.
    has_failed: bool,
    /// Since when machines count without it, while they do or since they last did.
    away_since: Time,
}

/// How a store is for a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetState {
    /// It answers, and gives out permits.
    Answers,
    /// It answers, and gives out nothing new for now.
    Quiet,
    /// It does not answer.
    Lost,
}

impl Contact {
    /// With a store that has not been heard of yet.
    #[must_use]
    pub fn new(rules: FleetRules) -> Self {
        Self {
            rules,
            machines: 0,
            answered: None,
            quiet_until: Time::ZERO,
            asked: None,
            asked_usable: Duration::ZERO,
            known_since: Time::ZERO,
            is_asking: false,
            has_failed: false,
            away_since: Time::ZERO,
        }
    }

    /// Asks it something, one question at a time.
    pub fn ask(&mut self, now: Time) {
        (self.asked, self.is_asking) = (Some(now), true);
        self.asked_usable = self.rules.usable();
    }

    /// Whether a question waits for its answer; one that has waited for a fifth of a lease is given up.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// When that was asked which has waited for too long.
    #[must_use]
    pub fn unanswered(&self, now: Time) -> Option<Time> {
        let asked = self.asked.filter(|_| self.is_asking)?;
        (now - asked >= self.rules.lease / 5).then_some(asked)
    }

    /// When it was asked last.
    #[must_use]
    pub fn asked_at(&self) -> Option<Time> {
        self.asked
    }

    /// How long what was asked for last may be used: by the rules of then, as the store had them.
    #[must_use]
    pub fn asked_usable(&self) -> Duration {
        self.asked_usable
    }

    /// Waits no longer for an answer.
    pub fn give_up(&mut self) {
        if let Some(asked) = self.asked.filter(|asked| self.alone(*asked).is_none()) {
            self.away_since = asked;
        }
        (self.is_asking, self.has_failed) = (false, true);
    }

    /// Since when machines are to count without it what has to be known at once, if they are.
    #[must_use]
    pub fn alone_since(&self, now: Time) -> Option<Time> {
        let slow = self
            .asked
            .filter(|asked| self.is_asking && now - *asked >= SLOW);
        self.alone(now).or(slow)
    }

    /// Only a store that is known to be away: whoever has just begun, or stood still for so long that he knows nothing any more, asks
    /// first.
    fn alone(&self, now: Time) -> Option<Time> {
        (self.has_failed || self.is_quiet(now)).then_some(self.away_since)
    }

    /// Whether it is to be asked, be it for nothing: so that the machine is known to be there, and the store's clock is seen
    /// to go on.
    #[must_use]
    pub fn is_word_due(&self, now: Time) -> bool {
        let lease = self.rules.lease;
        let rest = match self.is_lost(now) || self.has_failed {
            true => lease / 10,
            false => lease / 5,
        };
        self.asked.is_none_or(|asked| now - asked >= rest)
    }

    /// By which it goes.
    #[must_use]
    pub fn rules(&self) -> FleetRules {
        self.rules
    }

    /// Goes by other rules.
    pub fn set_rules(&mut self, rules: FleetRules) {
        self.rules = rules;
    }

    /// Hears what was answered to what was asked at `sent`.
    pub fn hear(&mut self, sent: Time, reply: &StoreReply) {
        let is_known = self
            .answered
            .is_some_and(|answered| sent - answered < self.rules.lease);
        if !is_known {
            self.known_since = sent;
        }
        if reply.quiet_ms > 0 && self.alone(sent).is_none() {
            self.away_since = sent;
        }
        self.answered = self.answered.max(Some(sent));
        (self.is_asking, self.has_failed) = (false, false);
        // Of a store that is quiet not all may have been heard yet.
        self.machines = match (reply.quiet_ms, self.machines) {
            (0, _) => reply.machines,
            (_, 0) => 0,
            (_, known) => known.max(reply.machines),
        };
        // From when it was asked on: the store's own time is over no earlier.
        self.quiet_until = sent + Duration::from_millis(reply.quiet_ms);
    }

    /// How the store is.
    #[must_use]
    pub fn state(&self, now: Time) -> FleetState {
        match (self.is_lost(now), self.is_quiet(now)) {
            (true, _) => FleetState::Lost,
            (false, true) => FleetState::Quiet,
            (false, false) => FleetState::Answers,
        }
    }

    /// Whether nothing is to be had of the store: it has not answered in time, or is quiet.
    #[must_use]
    pub fn is_away(&self, now: Time) -> bool {
        self.is_lost(now) || self.is_quiet(now)
    }

    /// Whether it has not answered in time.
    #[must_use]
    pub fn is_lost(&self, now: Time) -> bool {
        let usable = self.rules.usable();
        self.answered
            .is_none_or(|answered| now >= answered + usable)
    }

    /// Whether what was asked last was not answered.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether it gives out nothing new.
    #[must_use]
    pub fn is_quiet(&self, now: Time) -> bool {
        now < self.quiet_until
    }

    /// Whether every lease of any machine is over, if the store is away for all of them.
    #[must_use]
    pub fn is_long_lost(&self, now: Time) -> bool {
        let passed = self.rules.lease + self.rules.lease / 2;
        self.answered
            .is_some_and(|answered| now >= answered + passed)
    }

    /// When that was asked which was answered last; never.
    #[must_use]
    pub fn answered(&self) -> Option<Time> {
        self.answered
    }

    /// Machines that the store has told of.
    #[must_use]
    pub fn machines(&self) -> u32 {
        self.machines
    }

    /// A machine's share of so many permits: none where nobody knows among how many they are shared.
    #[must_use]
    pub fn share(&self, limit: u32) -> u32 {
        limit.checked_div(self.sharing()).unwrap_or(0)
    }

    /// How many machines share what there is: 0 where it is not known how many there are, or they may not know of this one
    /// yet: each is told in a fifth of a lease.
    #[must_use]
    pub fn sharing(&self) -> u32 {
        let is_known = self
            .answered
            .is_some_and(|answered| answered - self.known_since >= self.rules.lease / 2);
        match is_known {
            true => self.machines.max(self.rules.machines_min),
            false => self.rules.machines_min,
        }
    }
}
