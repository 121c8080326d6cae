//! The pulse of a load: tenths of a second, all threads together.
//!
//! Each thread hands in what it counted when a tenth is over; whoever is last closes the tenth.
//! From closed tenths come the timeline, the p99 of the last second for whoever watches, and the
//! decision that the warm-up is over. The lock is held for some microseconds, ten times a second
//! by each thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::live::Live;
use super::outcome::{Interval, Series};
use super::plan::{TIMELINE_MAX, WarmUp};

/// Nanoseconds of a tenth.
pub(crate) const TENTH_NS: u64 = 100_000_000;
/// Tenths that must agree before a load is steady.
const AGREEING: usize = 5;
/// How far apart the rates of agreeing tenths may be, as a share of their mean.
const SPREAD: f64 = 0.10;
/// Tenths kept open for threads that are behind.
const OPEN_MAX: usize = 64;

/// What one thread counted in one tenth.
#[derive(Debug)]
pub(crate) struct Beat {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) good: u64,
    /// Two digits are enough here.
    pub(crate) response: Series,
}

impl Default for Beat {
    fn default() -> Self {
        Beat {
            completed: 0,
            failed: 0,
            good: 0,
            response: Series::with_digits(2),
        }
    }
}

impl Beat {
    pub(crate) fn reset(&mut self) {
        self.completed = 0;
        self.failed = 0;
        self.good = 0;
        self.response.reset();
    }

    fn add(&mut self, other: &Beat) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.good += other.good;
        self.response.merge(&other.response);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// Where the first whole tenth begins: recording begins where one does.
    offset_ns: u64,
    /// When recording begins; `u64::MAX` while that is not known.
    recording_at: AtomicU64,
    state: Mutex<PulseState>,
}

#[derive(Debug)]
struct PulseState {
    /// The tenth each thread is in; `u64::MAX` once it has left.
    reached: Vec<u64>,
    /// The tenth at the front of `open`.
    first_open: u64,
    open: VecDeque<Beat>,
    spare: Vec<Beat>,
    /// The last second, for `Live`.
    recent: VecDeque<Beat>,
    recording_from: Option<u64>,
    waiting: Option<Waiting>,
    steady: Option<bool>,
    timeline: Vec<Interval>,
}

/// For the load to be steady.
#[derive(Debug)]
struct Waiting {
    /// Not before this tenth: the rate grows until then.
    least: u64,
    most: u64,
    rates: VecDeque<u64>,
}

impl Pulse {
    pub(crate) fn new(threads: usize, warm_up: WarmUp, ramp: Duration) -> Pulse {
        let tenth_of = |time: Duration| nanoseconds(time).div_ceil(TENTH_NS);
        let (recording_at, waiting) = match warm_up {
            WarmUp::None => (0, None),
            WarmUp::For(time) => (nanoseconds(time), None),
            WarmUp::UntilSteady(most) => {
                let least = tenth_of(ramp);
                let most = tenth_of(most).max(least + 1);
                let rates = VecDeque::with_capacity(AGREEING);
                (u64::MAX, Some(Waiting { least, most, rates }))
            }
        };
        let offset_ns = match waiting {
            None => recording_at % TENTH_NS,
            Some(_) => 0,
        };
        let mut pulse = Pulse {
            offset_ns,
            recording_at: AtomicU64::new(recording_at),
            state: Mutex::new(PulseState {
                reached: vec![0; threads],
                first_open: 0,
                open: VecDeque::new(),
                spare: Vec::new(),
                recent: VecDeque::new(),
                recording_from: None,
                steady: waiting.as_ref().map(|_| false),
                waiting,
                timeline: Vec::new(),
            }),
        };
        if recording_at != u64::MAX {
            let from = pulse.tenth(recording_at);
            let state = pulse
                .state
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            state.recording_from = Some(from);
        }
        pulse
    }

    /// The tenth an instant lies in; the first may be shorter than the others.
    pub(crate) fn tenth(&self, at_ns: u64) -> u64 {
        (at_ns + self.lead_ns()) / TENTH_NS
    }

    /// When a tenth begins.
    pub(crate) fn start_ns(&self, tenth: u64) -> u64 {
        tenth
            .saturating_mul(TENTH_NS)
            .saturating_sub(self.lead_ns())
    }

    fn lead_ns(&self) -> u64 {
        (TENTH_NS - self.offset_ns) % TENTH_NS
    }

    /// When recording begins; `u64::MAX` while that is not known.
    pub(crate) fn recording_at(&self) -> u64 {
        self.recording_at.load(Ordering::Relaxed)
    }

    /// A thread has gone from one tenth to a later one.
    pub(crate) fn beat(&self, thread: usize, tenth: u64, beat: &Beat, reached: u64, live: &Live) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.take(tenth, beat);
        if let Some(place) = state.reached.get_mut(thread) {
            *place = reached;
        }
        let newest = state.newest();
        while let Some(rate) = state.close(live) {
            if state.is_steady(rate) {
                let from = newest + 1;
                state.recording_from = Some(from);
                state.waiting = None;
                self.recording_at
                    .store(self.start_ns(from), Ordering::Relaxed);
            }
        }
    }

    /// A thread has come to its end, in this tenth.
    pub(crate) fn leave(&self, thread: usize, tenth: u64, beat: &Beat, live: &Live) {
        self.beat(thread, tenth, beat, u64::MAX, live);
    }

    /// The timeline, and whether the warm-up ended because the load was steady.
    pub(crate) fn finish(self) -> (Vec<Interval>, Option<bool>) {
        let state = self.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        (state.timeline, state.steady)
    }
}

impl PulseState {
    fn take(&mut self, tenth: u64, beat: &Beat) {
        // A tenth that was closed without this thread counts in the oldest that is open.
        let at = tenth.saturating_sub(self.first_open) as usize;
        while self.open.len() <= at.min(OPEN_MAX - 1) {
            self.open.push_back(self.spare.pop().unwrap_or_default());
        }
        if let Some(open) = self.open.get_mut(at.min(OPEN_MAX - 1)) {
            open.add(beat);
        }
    }

    fn newest(&self) -> u64 {
        let still = self.reached.iter().filter(|tenth| **tenth != u64::MAX);
        still.max().copied().unwrap_or_default()
    }

    /// Closes the oldest tenth if all threads have passed it; gives how many replies it had.
    fn close(&mut self, live: &Live) -> Option<u64> {
        let passed = self.reached.iter().min().copied().unwrap_or(u64::MAX);
        let behind = self.open.len() >= OPEN_MAX;
        if self.first_open >= passed && !behind || (passed == u64::MAX && self.open.is_empty()) {
            return None;
        }
        let beat = self.open.pop_front();
        let beat = beat.unwrap_or_else(|| self.spare.pop().unwrap_or_default());
        if let Some(from) = self.recording_from.filter(|from| *from <= self.first_open) {
            self.chart(self.first_open - from, &beat);
        }
        self.first_open += 1;
        let completed = beat.completed;
        self.recent.push_back(beat);
        if self.recent.len() > 10
            && let Some(mut old) = self.recent.pop_front()
        {
            old.reset();
            self.spare.push(old);
        }
        self.show(live);
        Some(completed)
    }

    fn show(&mut self, live: &Live) {
        let mut sum = self.spare.pop().unwrap_or_default();
        for beat in &self.recent {
            sum.response.merge(&beat.response);
        }
        live.set_p99_us(sum.response.quantile_us(0.99));
        sum.reset();
        self.spare.push(sum);
    }

    fn chart(&mut self, at: u64, beat: &Beat) {
        let interval = Interval {
            completed: beat.completed,
            failed: beat.failed,
            good: beat.good,
            p50_us: beat.response.quantile_us(0.5),
            p99_us: beat.response.quantile_us(0.99),
            max_us: beat.response.max_us,
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if at < TIMELINE_MAX {
            self.timeline.resize(at, Interval::default());
            self.timeline.push(interval);
        } else if let Some(last) = self.timeline.last_mut() {
            last.completed += interval.completed;
            last.failed += interval.failed;
            last.good += interval.good;
            last.p50_us = last.p50_us.max(interval.p50_us);
            last.p99_us = last.p99_us.max(interval.p99_us);
            last.max_us = last.max_us.max(interval.max_us);
        }
    }

    /// Whether recording may begin, after a tenth with this many replies.
    ///
    /// The last five tenths must lie within a tenth of their mean of each other; where they are
    /// small numbers, within what chance does to such numbers.
    fn is_steady(&mut self, completed: u64) -> bool {
        let closed = self.first_open;
        let Some(waiting) = &mut self.waiting else {
            return false;
        };
        if closed <= waiting.least {
            return false;
        }
        if waiting.rates.len() == AGREEING {
            waiting.rates.pop_front();
        }
        waiting.rates.push_back(completed);
        let agree = waiting.rates.len() == AGREEING && agree(&waiting.rates);
        self.steady = Some(agree);
        agree || closed >= waiting.most
    }
}

fn agree(rates: &VecDeque<u64>) -> bool {
    let least = rates.iter().min().copied().unwrap_or_default() as f64;
    let most = rates.iter().max().copied().unwrap_or_default() as f64;
    let mean = rates.iter().sum::<u64>() as f64 / rates.len() as f64;
    mean > 0.0 && most - least <= SPREAD * mean + 3.0 * mean.sqrt()
}

/// Nanoseconds of a time, at most 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(completed: u64) -> Beat {
        let mut beat = Beat {
            completed,
            ..Beat::default()
        };
        beat.response.record_n(100 * completed, completed);
        beat
    }

    #[test]
    fn a_tenth_is_closed_when_all_threads_have_passed_it() {
        let pulse = Pulse::new(2, WarmUp::None, Duration::ZERO);
        let live = Live::new();
        pulse.beat(0, 0, &beat(3), 1, &live);
        pulse.beat(0, 1, &beat(4), 4, &live);
        assert_eq!(live.look().p99_us, 0);
        pulse.beat(1, 0, &beat(5), 2, &live);
        assert!(live.look().p99_us >= 400);
        pulse.leave(1, 2, &beat(0), &live);
        pulse.leave(0, 4, &beat(1), &live);
        let (timeline, steady) = pulse.finish();
        let completed: Vec<u64> = timeline.iter().map(|i| i.completed).collect();
        assert_eq!(completed, [8, 4, 0, 0, 1]);
        assert_eq!(timeline[0].max_us, 500);
        assert_eq!(steady, None);
    }

    #[test]
    fn recording_begins_where_a_tenth_does() {
        let pulse = Pulse::new(1, WarmUp::For(Duration::from_millis(250)), Duration::ZERO);
        let ms = |ms: u64| ms * 1_000_000;
        assert_eq!(pulse.recording_at(), ms(250));
        let tenths = [0, 49, 50, 149, 150, 249, 250].map(|at| pulse.tenth(ms(at)));
        assert_eq!(tenths, [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(
            [0, 1, 3].map(|tenth| pulse.start_ns(tenth)),
            [0, ms(50), ms(250)]
        );
        let live = Live::new();
        for tenth in 0..5 {
            pulse.beat(0, tenth, &beat(tenth + 1), tenth + 1, &live);
        }
        pulse.leave(0, 5, &beat(6), &live);
        let (timeline, _) = pulse.finish();
        let completed: Vec<u64> = timeline.iter().map(|i| i.completed).collect();
        assert_eq!(completed, [4, 5, 6]);
    }

    #[test]
    fn a_load_is_steady_when_its_rate_stands_still() {
        let most = Duration::from_secs(10);
        let steady_after = |rates: &[u64], ramp: Duration, most: Duration| {
            let pulse = Pulse::new(1, WarmUp::UntilSteady(most), ramp);
            let live = Live::new();
            for (tenth, rate) in (0..).zip(rates) {
                pulse.beat(0, tenth, &beat(*rate), tenth + 1, &live);
            }
            (pulse.recording_at() / TENTH_NS, pulse.finish().1)
        };
        let rates = [0, 400, 800, 1000, 1010, 990, 1000, 1005, 1000, 1000];
        let none = Duration::ZERO;
        assert_eq!(steady_after(&rates, none, most), (9, Some(true)));
        let ramp = Duration::from_millis(500);
        assert_eq!(steady_after(&rates, ramp, most), (11, Some(true)));
        let soon = Duration::from_millis(600);
        assert_eq!(steady_after(&rates, none, soon), (7, Some(false)));
        let never = steady_after(&[0; 50], none, most);
        assert_eq!(never, (u64::MAX / TENTH_NS, Some(false)));
    }

    #[test]
    fn a_thread_that_is_far_behind_does_not_hold_memory() {
        let pulse = Pulse::new(2, WarmUp::None, Duration::ZERO);
        let live = Live::new();
        for tenth in 0..500 {
            pulse.beat(0, tenth, &beat(1), tenth + 1, &live);
        }
        pulse.leave(1, 5, &beat(1), &live);
        pulse.leave(0, 500, &beat(1), &live);
        let state = pulse.state.lock().expect("nobody panicked");
        assert!(state.spare.len() + state.open.len() + state.recent.len() < 2 * OPEN_MAX);
        let sum: u64 = state.timeline.iter().map(|i| i.completed).sum();
        assert_eq!(sum, 502);
    }
}
