//! The course of one rule: green, yellow, red, and the share that is admitted meanwhile.
//!
//! Two readings decide: the sensor's value now, and its mean of the last seconds. What gets worse
//! is believed at once, but for a moment's peak; what gets better must last. On the way up and down
//! yellow is never skipped, so an edge of the load changes the state twice at most.
//!
//! The share falls by factors and rises by steps (Chiu and Jain 1989: the way that settles). It
//! goes on being small in green until it has risen to the whole. It rises in yellow, too, the slower
//! the nearer the value is to too much: what stays somewhat high keeps nobody out for ever.

use std::time::Duration;

use super::thresholds::Thresholds;
use crate::time::Time;

/// The least that is admitted where all pay.
const SHARE_MIN: f64 = 0.05;
/// The least that is admitted at all: a flood is many times what a machine can do.
const FLOOD_SHARE_MIN: f64 = 0.005;

/// How long too much must last to be believed: three samples at ten a second.
const BELIEVED_AFTER: Duration = Duration::from_millis(200);
/// How long yellow lasts before it can become red.
const RED_AFTER: Duration = Duration::from_secs(2);
/// How long it must have eased for red to become yellow.
const EASED_AFTER: Duration = Duration::from_secs(3);
/// How long it must have been calm for yellow to become green.
const CALM_AFTER: Duration = Duration::from_secs(10);
/// Those who are within their share are spared for so long in red, while others are above theirs.
const SPARED_FOR: Duration = Duration::from_secs(30);
/// So near to what is within the shares there is nothing left to take from those above.
const NEAR: f64 = 0.1;
/// A sensor that says nothing for longer stands for one that says that all is well.
const SILENT_FOR: Duration = Duration::from_secs(3);
/// How fast the mean forgets.
const MEAN_S: f64 = 5.0;
/// How often the share is changed.
const CHANGED_EVERY: Duration = Duration::from_millis(500);
/// How often it is cut in red.
const CUT_EVERY: Duration = Duration::from_secs(1);
/// What is left of the share after a cut in red.
const CUT: f64 = 0.7;
/// What a change in yellow takes away at most.
const TRIM: f64 = 0.1;
/// What a change gives back.
const STEP: f64 = 0.02;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is not too much to do.
    Green,
    /// There is too much.
    Yellow,
    /// There is far too much.
    Red,
}

/// Whom a rule sheds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those above their share first, as many as it takes.
    OverShare,
    /// Everybody, as long as the sensor is above its threshold.
    All,
}

/// A change of state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// What it was.
    pub from: State,
    /// What it is.
    pub to: State,
    /// The sensor's value, unless it has had none for long.
    pub value: Option<f64>,
    /// The threshold that was crossed.
    pub threshold: f64,
}

/// One rule's course.
#[derive(Debug, Clone)]
pub struct Course {
    thresholds: Thresholds,
    scope: Scope,
    dwell: Duration,
    state: State,
    since: Time,
    mean: Option<f64>,
    /// The last value, and when that was. Values here are turned so that more is worse.
    last: Option<(f64, Time)>,
    worse_since: Option<Time>,
    better_since: Option<Time>,
    share: f64,
    changed: Time,
    cut: Time,
    /// Since when there was nothing left to take from those above their share.
    exhausted_since: Option<Time>,
    spares_nobody: bool,
}

impl State {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Red => "red",
        }
    }
}

impl Course {
    /// Begins in green. A state once entered lasts for `dwell` at least before it is left for a
    /// better one.
    #[must_use]
    pub fn new(thresholds: Thresholds, scope: Scope, dwell: Duration) -> Self {
        Self {
            thresholds,
            scope,
            dwell,
            state: State::Green,
            since: Time::ZERO,
            mean: None,
            last: None,
            worse_since: None,
            better_since: None,
            share: 1.0,
            changed: Time::ZERO,
            cut: Time::ZERO,
            exhausted_since: None,
            spares_nobody: false,
        }
    }

    /// Begins anew in green.
    pub fn reset(&mut self) {
        *self = Self::new(self.thresholds, self.scope, self.dwell);
    }

    /// The state it is in.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The share of all that is asked for that is admitted.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Whether every request is admitted.
    #[must_use]
    pub fn admits_all(&self) -> bool {
        self.state == State::Green && self.share >= 1.0
    }

    /// Takes the sensor's value of this moment, ten times a second or so; what is no number is none.
    /// `excess` is the share of what is asked for that exceeds the shares of those who ask
    /// ([`super::excess`]).
    pub fn step(&mut self, now: Time, value: Option<f64>, excess: f64) -> Option<Change> {
        let value = value.filter(|value| value.is_finite());
        let shown = value.or_else(|| self.last_value(now));
        let current = shown.map_or(self.thresholds.calm(), |value| {
            self.thresholds.turned(value)
        });
        self.note(now, current, value.is_some());
        let crossed = match self.scope {
            Scope::All => self.step_all(now, current),
            Scope::OverShare => self.step_shares(now, current),
        };
        let change = crossed.map(|(to, threshold)| {
            let from = std::mem::replace(&mut self.state, to);
            self.since = now;
            self.worse_since = None;
            self.better_since = None;
            Change {
                from,
                to,
                value: shown,
                threshold: self.thresholds.turned(threshold),
            }
        });
        match self.scope {
            Scope::OverShare => self.change_share(now, current, excess),
            Scope::All => self.share = if self.state == State::Green { 1.0 } else { 0.0 },
        }
        change
    }

    /// The last value, if that is not long ago.
    fn last_value(&self, now: Time) -> Option<f64> {
        let (value, at) = self.last?;
        (now - at <= SILENT_FOR).then(|| self.thresholds.turned(value))
    }

    fn note(&mut self, now: Time, current: f64, is_measured: bool) {
        let before = self.last.map_or(now, |(_, at)| at);
        let weight = 1.0 - (-(now - before).as_secs_f64() / MEAN_S).exp();
        let mean = self.mean.unwrap_or(current);
        if is_measured || self.last_value(now).is_none() {
            self.mean = Some(mean + (current - mean) * weight);
        }
        if is_measured {
            self.last = Some((current, now));
        }
    }

    /// The rule people know, with `dwell` where it is asked for.
    fn step_all(&self, now: Time, current: f64) -> Option<(State, f64)> {
        let Thresholds { enter, leave, .. } = self.thresholds;
        match self.state {
            State::Green if current > enter => Some((State::Red, enter)),
            State::Yellow | State::Red if current <= leave && self.has_dwelt(now) => {
                Some((State::Green, leave))
            }
            _ => None,
        }
    }

    fn step_shares(&mut self, now: Time, current: f64) -> Option<(State, f64)> {
        let Thresholds {
            enter,
            leave,
            severe,
            ease,
            ..
        } = self.thresholds;
        let mean = self.mean.unwrap_or(current);
        let worst = current.max(mean);
        match self.state {
            State::Green => {
                let is_believed =
                    lasts(&mut self.worse_since, now, current > enter, BELIEVED_AFTER);
                is_believed.then_some((State::Yellow, enter))
            }
            State::Yellow => {
                let is_calm = lasts(&mut self.better_since, now, worst <= leave, CALM_AFTER);
                let may_redden = now - self.since >= RED_AFTER;
                if may_redden && current > severe && mean > enter {
                    Some((State::Red, severe))
                } else {
                    (is_calm && self.has_dwelt(now)).then_some((State::Green, leave))
                }
            }
            State::Red => {
                let has_eased = lasts(&mut self.better_since, now, worst <= ease, EASED_AFTER);
                (has_eased && self.has_dwelt(now)).then_some((State::Yellow, ease))
            }
        }
    }

    fn has_dwelt(&self, now: Time) -> bool {
        now - self.since >= self.dwell
    }

    fn change_share(&mut self, now: Time, current: f64, excess: f64) {
        self.spare(now, excess);
        let is_fresh = self.since == now && self.state == State::Yellow;
        if now - self.changed < CHANGED_EVERY && !is_fresh {
            return;
        }
        self.changed = now;
        let Thresholds { enter, leave, .. } = self.thresholds;
        let share = match self.state {
            State::Red if current > enter && now - self.cut >= CUT_EVERY => {
                self.cut = now;
                self.share * CUT
            }
            State::Red => self.share,
            _ if current > enter && self.state == State::Yellow => {
                self.share * (1.0 - TRIM * self.thresholds.severity(current))
            }
            State::Yellow if current > leave => {
                self.share + STEP * (enter - current) / (enter - leave)
            }
            State::Green if current <= leave => self.share + 2.0 * STEP,
            State::Yellow | State::Green => self.share + STEP,
        };
        self.share = share.clamp(self.share_min(excess), 1.0);
    }

    /// What is admitted at least: all but what can be taken from those above their shares, and where
    /// nobody is spared a little of everything, which after a flood may be more.
    fn share_min(&self, excess: f64) -> f64 {
        let spared = (1.0 - excess).clamp(FLOOD_SHARE_MIN, 1.0);
        match excess > 0.0 && !self.spares_nobody {
            true => spared,
            false => SHARE_MIN.min(spared),
        }
    }

    /// Spares those within their share until it has been red for long with nothing left to take
    /// from the others; and again once there is.
    fn spare(&mut self, now: Time, excess: f64) {
        let is_spent = self.share <= 1.0 - excess + NEAR;
        let is_exhausted = self.state == State::Red && is_spent;
        self.spares_nobody |= lasts(&mut self.exhausted_since, now, is_exhausted, SPARED_FOR);
        if self.state == State::Green || !is_spent {
            self.spares_nobody = false;
        }
    }
}

/// Whether something has been so for so long; `since` remembers.
fn lasts(since: &mut Option<Time>, now: Time, is_so: bool, long: Duration) -> bool {
    match is_so {
        true => now - *since.get_or_insert(now) >= long,
        false => {
            *since = None;
            false
        }
    }
}
