//! How many requests of a group are under way at once while the kernel keeps it from processors.
//!
//! The idea: a group that uses its whole quota and is kept from processors gains nothing by more at
//! once, they only share the same time; so it gets fewer by a part, until less at once would leave some
//! of the quota unused. Where some is left and others wait, it gets more, if that brings what it should.
//! So it finds the fewest that serve as much. Once nobody has waited for long it gets as many as it
//! likes. Where nobody was let in for a while although some wait, those under way are stuck, as pages
//! without end are: they count for nothing, so that others pass them. Not here: who reads the kernel's
//! figures, and who waits.

/// A group that was kept from more processors than this, on average, is throttled.
const MUCH: f64 = 0.2;
/// This share of its quota, or more, is all of it.
const FULL: f64 = 0.95;
/// Looks whose mean says whether there may be fewer, and whether there should be more.
const LOOKS: u32 = 3;
const LOOKS_BEFORE_MORE: u32 = 5;
/// Looks for which it is remembered that fewer were too few, and that more brought nothing.
const REMEMBERED: u32 = 150;
const REST: u32 = 50;
/// Looks at which nobody waited, after which there is no bound any more.
const FREE: u32 = 50;
/// Looks in a row at which somebody waited and nobody was let in, after which those under way are
/// stuck; looks for which that holds; and those after which as many are found to be stuck still.
const STUCK: u32 = 25;
const STUCK_HOLDS: u32 = 50;
const STUCK_AGAIN: u32 = 3;
/// What more at once must bring of what it would if each brought as much as those before.
const GAIN_PART: f64 = 0.2;
/// A part that is taken away, and one that is added, of how many there are.
const CUT_PART: u32 = 5;
const RISE_PART: u32 = 4;

/// A group with a quota.
#[derive(Debug, Clone)]
pub struct Throttle {
    floor: u32,
    cap: Option<u32>,
    looks: u32,
    /// Looks since the bound has changed, and the sums of what they showed.
    seen: LookSums,
    /// What it was before it was raised, and which share of the quota was used then.
    raised: Option<(u32, f64)>,
    /// Fewer were too few, until that look.
    least: (u32, u32),
    /// It is not raised before that look.
    rests_until: u32,
    /// Looks in a row at which nobody waited.
    free: u32,
    /// Looks in a row at which somebody waited and nobody was let in.
    still: u32,
    /// Requests that are stuck, until that look, and how many there were when last looked for.
    stuck: (u32, u32),
    known_stuck: u32,
}

/// What one look shows, of the time since the last.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThrottleLook {
    /// The share of its quota that the group has used.
    pub used: f64,
    /// From how many processors it was kept: 0.5 is from one of them for half of the time.
    pub kept_from: f64,
    /// Requests under way now.
    pub in_flight: u32,
    /// Requests that wait now.
    pub waiting: u32,
    /// Requests let in since the last look.
    pub let_in: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct LookSums {
    looks: u32,
    used: f64,
    kept_from: f64,
}

impl Throttle {
    /// Begins without a bound; `floor`, at least 1, is how many are let in at any time.
    #[must_use]
    pub fn new(floor: u32) -> Self {
        Self {
            floor: floor.max(1),
            cap: None,
            looks: 0,
            seen: LookSums::default(),
            raised: None,
            least: (0, 0),
            rests_until: 0,
            free: 0,
            still: 0,
            stuck: (0, 0),
            known_stuck: 0,
        }
    }

    /// How many may be under way at once, those that are stuck among them; none: as many as there are.
    #[must_use]
    pub fn cap(&self) -> Option<u32> {
        self.cap.map(|cap| cap.saturating_add(self.stuck.0))
    }

    /// Takes a look, five times a second.
    pub fn look(&mut self, look: &ThrottleLook) {
        self.looks = self.looks.saturating_add(1);
        self.seen.looks += 1;
        self.seen.used += look.used;
        self.seen.kept_from += look.kept_from;
        let is_calm = look.waiting == 0 && look.kept_from <= MUCH;
        self.free = if is_calm { self.free + 1 } else { 0 };
        self.find_stuck(look);
        let looks = self.seen.looks;
        if self.free >= FREE {
            *self = Self::new(self.floor);
        } else if looks >= LOOKS && (self.raised.is_none() || looks >= LOOKS_BEFORE_MORE) {
            self.decide(look);
        }
    }

    fn find_stuck(&mut self, look: &ThrottleLook) {
        let is_still = look.waiting > 0 && look.let_in == 0;
        self.still = if is_still { self.still + 1 } else { 0 };
        let (stuck, until) = self.stuck;
        let known = match self.looks < until.saturating_add(STUCK) {
            true => self.known_stuck,
            false => 0,
        };
        let found = if self.still >= STUCK {
            Some(look.in_flight)
        } else {
            (known > 0 && self.still >= STUCK_AGAIN).then(|| known.min(look.in_flight))
        };
        if let Some(found) = found {
            self.known_stuck = found;
            self.stuck = (found, self.looks.saturating_add(STUCK_HOLDS));
        } else if self.looks >= until {
            self.stuck.0 = 0;
        } else {
            self.stuck.0 = stuck.min(look.in_flight);
        }
    }

    fn decide(&mut self, look: &ThrottleLook) {
        let looks = f64::from(self.seen.looks);
        let used = self.seen.used / looks;
        let now = self.cap.unwrap_or(look.in_flight);
        if let Some((before, used_before)) = self.raised.take() {
            let part = f64::from(now - before) / f64::from(before);
            if used < FULL && used < used_before * (1.0 + GAIN_PART * part) {
                self.rests_until = self.looks + REST;
                return self.set(before);
            }
        }
        if self.seen.kept_from / looks > MUCH && used >= FULL {
            let (least, until) = self.least;
            let least = if self.looks < until { least } else { 0 };
            let fewer = now - now.div_ceil(CUT_PART);
            let fewer = fewer.max(least).max(self.floor);
            self.set(self.cap.map_or(fewer, |cap| fewer.min(cap)));
        } else if self.seen.looks >= LOOKS_BEFORE_MORE {
            let may_rise = look.waiting > 0 && used < FULL && self.looks >= self.rests_until;
            match self.cap.filter(|_| may_rise) {
                Some(cap) => {
                    let more = cap.saturating_add((cap / RISE_PART).max(1));
                    self.raised = Some((cap, used));
                    self.least = (more, self.looks + REMEMBERED);
                    self.set(more);
                }
                None => self.seen = LookSums::default(),
            }
        }
    }

    fn set(&mut self, cap: u32) {
        self.cap = Some(cap);
        self.seen = LookSums::default();
    }
}

#[cfg(test)]
mod tests;
