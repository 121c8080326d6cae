//! `concurrent = "auto"`: a limit that finds its own number.
//!
//! The one idea: a change of the limit is an experiment, and stands only if the replies a second
//! answer as they should. A raise that brings less than 1 % per added slot is undone (so Protego,
//! NSDI 2023, guards its own). Times only say which experiment to make: where the median is well
//! above what it is without load, and a raise has brought nothing, the limit is cut by their ratio
//! (the gradient of Netflix's Gradient2). Where the cut costs replies in proportion, the back end
//! is merely further away than it was: the cut is undone, and the new time is the one without load.
//!
//! It never lowers the limit to measure the time without load. Where nobody knows that time,
//! because there never was little load, a raise that brings nothing is now and then followed by a
//! cut, which is undone as soon as it costs replies. Where the limit is not felt nothing changes:
//! few requests are no sign of anything. Not here: who keeps the limit.

mod window;

use std::time::Duration;

use window::{Seen, Window};

use crate::Time;

/// Where a limit begins that knows nothing, if the bounds allow.
const START: u32 = 20;
/// A window has this length and this many samples,
const WINDOW: Duration = Duration::from_millis(200);
const WINDOW_SAMPLES: u32 = 50;
/// or this length and this many, where little happens.
const LONG_WINDOW: Duration = Duration::from_secs(5);
const LONG_WINDOW_SAMPLES: u32 = 10;
/// Windows until an experiment is decided, whatever the doubt.
const WINDOWS_MAX: u32 = 4;
/// What earlier windows count beside the newest, while nothing is tried.
const KEEP: f64 = 0.75;
/// The limit is felt if it is at this share of the samples.
const FELT: f64 = 0.05;
/// Times up to this many times those without load are no sign of overload.
const TOLERANCE: f64 = 1.5;
/// A raise must bring this share of what there is per added slot,
const GAIN_PER_SLOT: f64 = 0.01;
/// but no more than this part of the slots' own share: 1 % of each is much where there are 500.
const GAIN_PART: f64 = 0.2;
/// After a raise that brought nothing the next waits this long, twice as long each time.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// A cut takes this or more.
const CUT: f64 = 0.8;
/// After a cut that cost replies the next waits this long, twice as long each time.
const CUT_PAUSE: Duration = Duration::from_secs(8);
const CUT_PAUSE_MAX: Duration = Duration::from_secs(64);
/// Share of the limit a raise may add.
const STRIDE_PART: u32 = 4;
/// How much the time without load may rise a minute without an experiment.
const RISE_A_MINUTE: f64 = 0.01;

/// How an admitted request ended, as far as a limit that adapts cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered; its time says something about the back end.
    Fine,
    /// The back end failed it.
    Failed,
    /// Says nothing: a tunnel, a long poll, a client that left, an answer of our own.
    Ignored,
}

/// The number of an adaptive limit, and what it was found by.
#[derive(Debug, Clone)]
pub struct Adaptive {
    floor: u32,
    ceiling: u32,
    limit: u32,
    window: Window,
    doing: Doing,
    /// What the windows at this limit showed.
    seen: Option<Seen>,
    unloaded: Unloaded,
    /// The median of late, smoothed, so that chance does not make the one without load too small.
    recent_ns: Option<f64>,
    /// When `unloaded` was last looked at.
    looked: Time,
    stride: u32,
    pause: Duration,
    raise_from: Time,
    cut_from: Time,
    cut_pause: Duration,
}

/// The median time without load.
#[derive(Debug, Clone, Copy)]
enum Unloaded {
    Unknown,
    /// Concluded from an experiment under load.
    Inferred(f64),
    /// Seen while there was little load.
    Observed(f64),
}

impl Unloaded {
    fn ns(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Inferred(unloaded_ns) | Self::Observed(unloaded_ns) => Some(unloaded_ns),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Doing {
    /// Nothing is being tried. Goes to either of the others.
    Holding,
    /// A higher limit is tried. Goes on to a higher one, back to holding, or to a cut.
    Raising(Trial),
    /// A lower limit is tried. Goes on to a lower one, or back to holding.
    Cutting(Trial),
}

/// An experiment: what was before, and what it showed so far.
#[derive(Debug, Clone, Copy)]
struct Trial {
    from: u32,
    before: Seen,
    windows: u32,
    seen: Option<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stands,
    Fails,
    Open,
}

impl Adaptive {
    /// Begins between `floor` (number of cores) and `ceiling`.
    #[must_use]
    pub fn new(floor: u32, ceiling: u32, now: Time) -> Self {
        let floor = floor.max(1);
        let ceiling = ceiling.max(floor);
        Self {
            floor,
            ceiling,
            limit: START.clamp(floor, ceiling),
            window: Window::new(now),
            doing: Doing::Holding,
            seen: None,
            unloaded: Unloaded::Unknown,
            recent_ns: None,
            looked: now,
            stride: 1,
            pause: PAUSE,
            raise_from: now,
            cut_from: now,
            cut_pause: CUT_PAUSE,
        }
    }

    /// The limit now: how many requests may be in flight.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the bounds; the limit is brought between them at once.
    pub(crate) fn set_bounds(&mut self, floor: u32, ceiling: u32) {
        self.floor = floor.max(1);
        self.ceiling = ceiling.max(self.floor);
        let limit = self.limit.clamp(self.floor, self.ceiling);
        if limit != self.limit {
            self.limit = limit;
            self.doing = Doing::Holding;
            self.seen = None;
        }
    }

    /// Takes note of a request that ended: how long it held its permit, and how many (it included)
    /// were in flight and how many waited just before its end.
    pub fn sample(
        &mut self,
        now: Time,
        held_ns: u64,
        in_flight: u32,
        queued: u32,
        outcome: Outcome,
    ) {
        if now < self.window.from || outcome == Outcome::Ignored {
            return;
        }
        match outcome {
            Outcome::Fine => self.window.fine(held_ns),
            Outcome::Failed | Outcome::Ignored => self.window.failed(),
        }
        self.window.stood(in_flight, queued, self.limit);
        let length = now - self.window.from;
        let samples = self.window.samples();
        if (length >= WINDOW && samples >= WINDOW_SAMPLES)
            || (length >= LONG_WINDOW && samples >= LONG_WINDOW_SAMPLES)
        {
            self.close_window(now);
        }
    }

    /// To be called some times a second, so that a raise after which the back end answers (almost)
    /// nothing is undone too.
    pub fn tick(&mut self, now: Time, in_flight: u32, queued: u32) {
        let Doing::Raising(trial) = self.doing else {
            return;
        };
        let due_s = 3.0 * f64::from(WINDOW_SAMPLES) / trial.before.rate().max(1.0);
        let overdue = (now - self.window.from).as_secs_f64() > due_s.max(1.0);
        if overdue && (in_flight >= self.limit || queued > 0) {
            self.raise_failed(now, trial);
        }
    }

    fn close_window(&mut self, now: Time) {
        let Some(seen) = self.window.seen(now, self.limit) else {
            return;
        };
        self.window = Window::new(now);
        if seen.fine < f64::from(LONG_WINDOW_SAMPLES) {
            return;
        }
        self.learn_unloaded(now, &seen);
        match self.doing {
            Doing::Holding => self.hold(now, seen),
            Doing::Raising(trial) => self.raising(now, trial.with(seen)),
            Doing::Cutting(trial) => self.cutting(now, trial.with(seen)),
        }
    }

    /// The time without load falls with what is seen, and rises hardly: what made it rise might be
    /// the load.
    fn learn_unloaded(&mut self, now: Time, seen: &Seen) {
        let recent = self.recent_ns.map_or(seen.median_ns, |recent| {
            recent + 0.1 * (seen.median_ns - recent)
        });
        self.recent_ns = Some(recent);
        let minutes = (now - self.looked).as_secs_f64() / 60.0;
        self.looked = now;
        self.unloaded = match self.unloaded {
            Unloaded::Unknown | Unloaded::Inferred(_) if seen.quiet => {
                Unloaded::Observed(seen.median_ns)
            }
            Unloaded::Unknown => Unloaded::Unknown,
            Unloaded::Inferred(known) => Unloaded::Inferred(known.min(recent)),
            Unloaded::Observed(known) if seen.quiet => {
                Unloaded::Observed(recent.min(known * (1.0 + RISE_A_MINUTE * minutes)))
            }
            Unloaded::Observed(known) => Unloaded::Observed(known.min(recent)),
        };
    }

    fn is_late(&self, seen: &Seen) -> bool {
        self.unloaded
            .ns()
            .is_some_and(|unloaded| seen.median_ns > TOLERANCE * unloaded)
    }

    fn hold(&mut self, now: Time, window: Seen) {
        let Some(seen) = self.seen else {
            self.seen = Some(window);
            return self.raise_if_felt(now, window);
        };
        if window.differs(&seen) {
            // Something else has changed, amid this window: what was tried says nothing any more.
            (self.raise_from, self.cut_from) = (now, now);
            (self.pause, self.cut_pause) = (PAUSE, CUT_PAUSE);
            self.seen = None;
            return;
        }
        let seen = seen.then(window, KEEP);
        self.seen = Some(seen);
        self.raise_if_felt(now, seen);
    }

    fn raise_if_felt(&mut self, now: Time, before: Seen) {
        if before.full < FELT || now < self.raise_from {
            return;
        }
        if self.limit >= self.ceiling {
            // There is nothing to try but what follows a raise that failed.
            self.raise_from = now + self.pause;
            return self.cut_if_due(now, before, Verdict::Open);
        }
        let most = (self.limit / STRIDE_PART).max(1);
        let least = match before.waits {
            _ if self.is_late(&before) => most,
            true => 1,
            // Nobody may wait, so the limit is felt by refusals: small steps would show nothing.
            false => (self.limit / (2 * STRIDE_PART)).max(1),
        };
        let stride = self.stride.clamp(least, most);
        self.doing = Doing::Raising(Trial::new(self.limit, before));
        self.set(now, self.limit.saturating_add(stride), &before);
    }

    fn raising(&mut self, now: Time, trial: Trial) {
        let Some(seen) = trial.seen else { return };
        let late = self.is_late(&seen);
        if !late && seen.full < FELT.max(trial.before.full / 2.0) {
            (self.seen, self.doing) = (Some(seen), Doing::Holding);
            return;
        }
        let part = f64::from(self.limit - trial.from) / f64::from(trial.from);
        let needed = (GAIN_PER_SLOT * part * f64::from(trial.from)).min(GAIN_PART * part);
        // Lateness speaks against the raise, so doubt does too.
        let verdict = trial.verdict(needed, if late { Verdict::Fails } else { Verdict::Open });
        match verdict {
            Verdict::Open => self.doing = Doing::Raising(trial),
            Verdict::Fails => self.raise_failed(now, trial),
            Verdict::Stands => {
                if late && trial.gain() >= 0.5 * part + trial.doubt() {
                    // More in flight, more done: it is not the load that makes it late.
                    self.infer(
                        (self.unloaded.ns().unwrap_or(seen.median_ns) * seen.median_ns).sqrt(),
                    );
                }
                self.stride = (self.limit - trial.from).saturating_mul(2);
                self.pause = PAUSE;
                (self.seen, self.doing) = (Some(seen), Doing::Holding);
                self.raise_from = now;
                self.raise_if_felt(now, seen);
            }
        }
    }

    fn infer(&mut self, unloaded_ns: f64) {
        self.unloaded = Unloaded::Inferred(unloaded_ns);
        self.recent_ns = Some(unloaded_ns);
    }

    fn raise_failed(&mut self, now: Time, trial: Trial) {
        let part = f64::from(self.limit - trial.from) / f64::from(trial.from);
        let worse = trial.gain() < -GAIN_PART * part - trial.doubt();
        self.raise_from = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.stride = 1;
        (self.seen, self.doing) = (Some(trial.before), Doing::Holding);
        self.set(now, trial.from, &trial.seen.unwrap_or(trial.before));
        self.cut_if_due(
            now,
            trial.before,
            if worse {
                Verdict::Stands
            } else {
                Verdict::Open
            },
        );
    }

    /// Cuts the limit where a raise has brought nothing and something speaks for it: lateness; or,
    /// where nobody knows the time without load, that the raise made it worse or the pause is over.
    fn cut_if_due(&mut self, now: Time, before: Seen, worse: Verdict) {
        let blind = !matches!(self.unloaded, Unloaded::Observed(_));
        let due = now >= self.cut_from && (blind || worse == Verdict::Stands);
        if self.is_late(&before) || due {
            self.cut(now, before);
        }
    }

    fn cut(&mut self, now: Time, before: Seen) {
        let ratio = match self.unloaded.ns() {
            Some(unloaded) if self.is_late(&before) => TOLERANCE * unloaded / before.median_ns,
            _ => CUT,
        };
        let from = self.limit;
        let to = ((f64::from(from) * ratio.clamp(0.5, CUT)) as u32).max(self.floor);
        if to < from {
            self.doing = Doing::Cutting(Trial::new(from, before));
            self.set(now, to, &before);
        }
    }

    fn cutting(&mut self, now: Time, trial: Trial) {
        let Some(seen) = trial.seen else { return };
        let taken = f64::from(trial.from - self.limit) / f64::from(trial.from);
        let late = self.is_late(&trial.before);
        // Lateness speaks for the cut, so doubt does too.
        let verdict = trial.verdict(
            -0.5 * taken,
            if late { Verdict::Stands } else { Verdict::Open },
        );
        match verdict {
            _ if seen.full < FELT => (self.seen, self.doing) = (Some(seen), Doing::Holding),
            Verdict::Open => self.doing = Doing::Cutting(trial),
            Verdict::Fails => self.cut_failed(now, trial, seen),
            Verdict::Stands => {
                self.pause = PAUSE;
                self.raise_from = now + PAUSE;
                (self.seen, self.doing) = (Some(seen), Doing::Holding);
                if self.is_late(&seen) || !late {
                    self.cut(now, seen);
                }
            }
        }
    }

    fn cut_failed(&mut self, now: Time, trial: Trial, seen: Seen) {
        let change = seen.median_ns / trial.before.median_ns;
        if (0.8..1.25).contains(&change) && seen.full > 0.5 {
            // Fewer in flight and as late as before: it is not the load that makes it late.
            self.infer(seen.median_ns);
        }
        self.cut_from = now + self.cut_pause;
        self.cut_pause = (self.cut_pause * 2).min(CUT_PAUSE_MAX);
        (self.seen, self.doing) = (None, Doing::Holding);
        self.set(now, trial.from, &seen);
    }

    /// Sets the limit, and leaves out what ends before requests let in under it do.
    fn set(&mut self, now: Time, limit: u32, seen: &Seen) {
        self.limit = limit.clamp(self.floor, self.ceiling);
        let settle = Duration::from_nanos(seen.median_ns as u64).min(Duration::from_secs(2));
        self.window = Window::new(now + settle);
    }
}

impl Trial {
    fn new(from: u32, before: Seen) -> Self {
        Self {
            from,
            before,
            windows: 0,
            seen: None,
        }
    }

    fn with(self, window: Seen) -> Self {
        let seen = self.seen.map_or(window, |seen| seen.then(window, 1.0));
        Self {
            seen: Some(seen),
            windows: self.windows + 1,
            ..self
        }
    }

    /// By what share of what was before the rate has grown.
    fn gain(&self) -> f64 {
        self.seen
            .map_or(0.0, |seen| seen.rate() / self.before.rate() - 1.0)
    }

    /// How far the gain may be off (one standard deviation).
    fn doubt(&self) -> f64 {
        self.seen
            .map_or(1.0, |seen| seen.doubt().hypot(self.before.doubt()))
    }

    /// Whether the rate has grown by this share, as soon as that is clear enough; for what is
    /// presumed, nothing need be clear.
    fn verdict(&self, needed: f64, presumed: Verdict) -> Verdict {
        let beyond = self.gain() - needed;
        let clear = beyond.abs() >= self.doubt();
        match if beyond >= 0.0 {
            Verdict::Stands
        } else {
            Verdict::Fails
        } {
            likely if clear || likely == presumed => likely,
            _ if self.windows < WINDOWS_MAX => Verdict::Open,
            likely if presumed == Verdict::Open => likely,
            _ => presumed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// Many samples, one a millisecond, all alike.
    fn feed(
        adaptive: &mut Adaptive,
        from: Time,
        count: u64,
        sample: (u64, u32, u32, Outcome),
    ) -> Time {
        let (held_ms, in_flight, queued, outcome) = sample;
        for number in 0..count {
            let now = Time(from.0 + number * MILLISECOND);
            adaptive.sample(now, held_ms * MILLISECOND, in_flight, queued, outcome);
            adaptive.tick(now, in_flight, queued);
        }
        Time(from.0 + count * MILLISECOND)
    }

    #[test]
    fn it_begins_and_stays_between_its_bounds() {
        for (floor, ceiling, begins) in [
            (2, 1_000, 20),
            (2, 8, 8),
            (64, 1_000, 64),
            (0, 0, 1),
            (8, 2, 8),
        ] {
            let mut adaptive = Adaptive::new(floor, ceiling, Time::ZERO);
            assert_eq!(adaptive.limit(), begins, "{floor} to {ceiling}");
            adaptive.set_bounds(30, 40);
            assert!((30..=40).contains(&adaptive.limit()));
            adaptive.set_bounds(1, 5);
            assert_eq!(adaptive.limit(), 5);
        }
    }

    #[test]
    fn where_the_limit_is_not_felt_nothing_changes() {
        let mut adaptive = Adaptive::new(2, 1_000, Time::ZERO);
        let mut now = Time::ZERO;
        for held_ms in [10, 100, 1_000, 10, 5_000, 10] {
            now = feed(&mut adaptive, now, 5_000, (held_ms, 3, 0, Outcome::Fine));
            assert_eq!(adaptive.limit(), START, "{held_ms} ms");
        }
    }

    #[test]
    fn what_is_ignored_changes_nothing() {
        let mut adaptive = Adaptive::new(2, 1_000, Time::ZERO);
        feed(
            &mut adaptive,
            Time::ZERO,
            10_000,
            (60_000, 20, 40, Outcome::Ignored),
        );
        assert_eq!(adaptive.limit(), START);
    }

    #[test]
    fn a_back_end_that_fails_everything_gets_no_more_and_no_less() {
        let mut adaptive = Adaptive::new(2, 1_000, Time::ZERO);
        feed(
            &mut adaptive,
            Time::ZERO,
            10_000,
            (1, 20, 40, Outcome::Failed),
        );
        assert_eq!(adaptive.limit(), START);
    }

    #[test]
    fn a_raise_after_which_nothing_is_answered_is_undone() {
        let mut adaptive = Adaptive::new(2, 1_000, Time::ZERO);
        let now = feed(&mut adaptive, Time::ZERO, 205, (50, 20, 40, Outcome::Fine));
        assert!(adaptive.limit() > START, "it tries a raise");
        adaptive.tick(Time(now.0 + 60_000 * MILLISECOND), adaptive.limit(), 40);
        assert!(adaptive.limit() <= START);
    }

    proptest! {
        #[test]
        fn no_samples_bring_it_out_of_its_bounds(
            floor in 0_u32..100,
            ceiling in 0_u32..1_000,
            bounds in (0_u32..100, 0_u32..1_000),
            samples in proptest::collection::vec(
                (any::<u32>(), any::<u64>(), 0_u32..2_000, 0_u32..3, 0_u8..8), 1..2_000),
        ) {
            let mut adaptive = Adaptive::new(floor, ceiling, Time::ZERO);
            let mut now = Time::ZERO;
            let (mut floor, mut ceiling) = (floor, ceiling);
            for (gap_ns, held_ns, in_flight, queued, what) in samples {
                now = Time(now.0 + u64::from(gap_ns >> 7));
                match what {
                    0 => adaptive.tick(now, in_flight, queued),
                    1 if queued == 0 => {
                        (floor, ceiling) = bounds;
                        adaptive.set_bounds(floor, ceiling);
                    }
                    1 => adaptive.sample(now, held_ns, in_flight, queued, Outcome::Failed),
                    _ => adaptive.sample(now, held_ns, in_flight, queued, Outcome::Fine),
                }
                let least = floor.max(1);
                prop_assert!((least..=ceiling.max(least)).contains(&adaptive.limit()));
            }
        }
    }
}
