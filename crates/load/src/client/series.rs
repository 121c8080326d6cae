//! Series of times, and adding outcomes up.

use hdrhistogram::Histogram;

use super::outcome::{ByRequest, Errors, Interval, Outcome, Series, Times};
use super::plan::TIMELINE_MAX;

/// Longest time told apart: an hour.
pub(crate) const TIME_MAX_US: u64 = 3_600_000_000;
/// Busier than this, the generator may be what limited the rate.
pub const BUSY_MAX: f64 = 0.90;
/// Later than this of its own doing, the generator's latencies are doubtful.
pub const GENERATOR_LATE_MAX_US: u64 = 1_000;

impl Default for Series {
    fn default() -> Self {
        Series::with_digits(3)
    }
}

impl Series {
    /// An empty series that tells apart this many significant digits.
    pub(crate) fn with_digits(digits: u8) -> Series {
        Series {
            histogram: Histogram::new_with_bounds(1, TIME_MAX_US, digits)
                .expect("these bounds are what the histogram is for"),
            sum_us: 0,
            squares_us: 0,
            min_us: 0,
            max_us: 0,
        }
    }

    /// Takes one time into account.
    pub fn record(&mut self, us: u64) {
        self.record_n(us, 1);
    }

    /// Takes so many equal times into account.
    pub fn record_n(&mut self, us: u64, count: u64) {
        if count == 0 {
            return;
        }
        let us = us.min(TIME_MAX_US);
        self.min_us = match self.histogram.is_empty() {
            true => us,
            false => self.min_us.min(us),
        };
        self.max_us = self.max_us.max(us);
        self.sum_us += u128::from(us) * u128::from(count);
        self.squares_us += u128::from(us * us) * u128::from(count);
        self.histogram.saturating_record_n(us, count);
    }

    /// Empties it and keeps its memory.
    pub(crate) fn reset(&mut self) {
        self.histogram.reset();
        self.sum_us = 0;
        self.squares_us = 0;
        self.min_us = 0;
        self.max_us = 0;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time that a share `q` (0 to 1) of the series did not exceed, within a thousandth; 0
    /// for an empty one.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> u64 {
        self.histogram
            .value_at_quantile(q.clamp(0.0, 1.0))
            .min(self.max_us)
    }

    /// The exact mean; 0 for an empty series.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_us as f64 / count as f64,
        }
    }

    /// The exact deviation of a sample (over n - 1); 0 for fewer than two.
    #[must_use]
    pub fn deviation_us(&self) -> f64 {
        let count = self.count() as f64;
        if count < 2.0 {
            return 0.0;
        }
        // n times the sum of squares less the square of the sum is exact in integers.
        let n = u128::from(self.count());
        let scaled = match n
            .checked_mul(self.squares_us)
            .zip(self.sum_us.checked_mul(self.sum_us))
        {
            Some((squares, square)) => squares.saturating_sub(square) as f64,
            None => count * self.squares_us as f64 - (self.sum_us as f64).powi(2),
        };
        (scaled.max(0.0) / count / (count - 1.0)).sqrt()
    }

    /// Adds another series to this one.
    pub fn merge(&mut self, other: &Series) {
        if other.histogram.is_empty() {
            return;
        }
        self.min_us = match self.histogram.is_empty() {
            true => other.min_us,
            false => self.min_us.min(other.min_us),
        };
        self.max_us = self.max_us.max(other.max_us);
        self.sum_us += other.sum_us;
        self.squares_us += other.squares_us;
        self.histogram
            .add(&other.histogram)
            .expect("all series have the same bounds");
    }
}

impl Times {
    fn merge(&mut self, other: &Times) {
        self.connect.merge(&other.connect);
        self.waiting.merge(&other.waiting);
        self.processing.merge(&other.processing);
        self.service.merge(&other.service);
        self.response.merge(&other.response);
        self.admitted.merge(&other.admitted);
        self.refused.merge(&other.refused);
    }
}

impl Errors {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// Each with its name, in the order of an exchange.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("connect", self.connect),
            ("tls", self.tls),
            ("write", self.write),
            ("reset", self.reset),
            ("closed", self.closed),
            ("timeout", self.timeout),
            ("framing", self.framing),
        ]
    }

    fn merge(&mut self, other: &Errors) {
        self.connect += other.connect;
        self.tls += other.tls;
        self.reset += other.reset;
        self.closed += other.closed;
        self.timeout += other.timeout;
        self.framing += other.framing;
        self.write += other.write;
    }
}

impl Outcome {
    /// Exchanges that failed: without a whole reply, or with one that was judged a failure.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.total() + self.judged_failed
    }

    /// Whole replies per second of recording.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        let seconds = self.recorded.as_secs_f64();
        if seconds > 0.0 {
            self.completed as f64 / seconds
        } else {
            0.0
        }
    }

    /// Whether the generator rather than the server may have set these figures: a thread was busy
    /// for more than nine tenths of the time, or the open loop was late of its own doing.
    #[must_use]
    pub fn is_generator_bound(&self) -> bool {
        self.generator_busy > BUSY_MAX || self.schedule.generator_p99_us > GENERATOR_LATE_MAX_US
    }

    /// Adds the outcome of another slice of the same plan: counts and times add up, timelines
    /// follow one another, the first reply is the first one's.
    pub fn merge(&mut self, other: &Outcome) {
        self.started = self.started.min(other.started);
        self.recorded += other.recorded;
        self.warm_up.time += other.warm_up.time;
        self.warm_up.completed += other.warm_up.completed;
        self.warm_up.steady = match (self.warm_up.steady, other.warm_up.steady) {
            (Some(a), Some(b)) => Some(a && b),
            (a, b) => a.or(b),
        };
        self.completed += other.completed;
        self.good += other.good;
        self.judged_failed += other.judged_failed;
        self.on_kept_connections += other.on_kept_connections;
        self.kept += other.kept;
        self.handshakes.add(other.handshakes);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.errors.merge(&other.errors);
        self.received_bytes += other.received_bytes;
        self.body_bytes += other.body_bytes;
        self.sent_bytes += other.sent_bytes;
        self.times.merge(&other.times);
        merge_requests(&mut self.by_request, &other.by_request);
        extend_timeline(&mut self.timeline, &other.timeline);
        self.schedule.due += other.schedule.due;
        self.schedule.late += other.schedule.late;
        self.schedule.late_by_generator += other.schedule.late_by_generator;
        self.schedule.unsent += other.schedule.unsent;
        // The worst slice's: quantiles can't be averaged.
        let worst = &mut self.schedule.generator_p99_us;
        *worst = (*worst).max(other.schedule.generator_p99_us);
        self.generator_cpu += other.generator_cpu;
        self.generator_busy = self.generator_busy.max(other.generator_busy);
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
        for failure in &other.first_failures {
            if !self.first_failures.iter().any(|f| f.class == failure.class) {
                self.first_failures.push(failure.clone());
            }
        }
        self.cut += other.cut;
        self.each.extend_from_slice(&other.each);
        self.interrupted |= other.interrupted;
    }
}

fn merge_requests(ours: &mut Vec<ByRequest>, theirs: &[ByRequest]) {
    for (index, request) in theirs.iter().enumerate() {
        match ours.get_mut(index) {
            Some(our) => {
                our.completed += request.completed;
                our.failed += request.failed;
                our.lost += request.lost;
                our.good += request.good;
                our.response.merge(&request.response);
                our.admitted.merge(&request.admitted);
            }
            None => ours.push(request.clone()),
        }
    }
}

fn extend_timeline(ours: &mut Vec<Interval>, theirs: &[Interval]) {
    let room = TIMELINE_MAX.saturating_sub(ours.len());
    ours.extend(theirs.iter().take(room).copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_exact_moments_and_extremes() {
        let mut series = Series::default();
        assert_eq!((series.count(), series.quantile_us(0.5)), (0, 0));
        assert_eq!((series.mean_us(), series.deviation_us()), (0.0, 0.0));
        for us in [2, 4, 4, 4, 5, 5, 7, 9] {
            series.record(us);
        }
        assert_eq!(series.mean_us(), 5.0);
        assert!((series.deviation_us() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((series.min_us, series.max_us), (2, 9));
        assert_eq!((series.quantile_us(0.5), series.quantile_us(1.0)), (4, 9));
    }

    #[test]
    fn merged_series_are_as_one() {
        let (mut whole, mut left, mut right) =
            (Series::default(), Series::default(), Series::default());
        for us in 0..10_000 {
            whole.record(us * us);
            if us % 3 == 0 { &mut left } else { &mut right }.record(us * us);
        }
        left.merge(&Series::default());
        left.merge(&right);
        for q in [0.0, 0.1, 0.5, 0.99, 1.0] {
            assert_eq!(left.quantile_us(q), whole.quantile_us(q));
        }
        assert_eq!(left.sum_us, whole.sum_us);
        assert_eq!(left.deviation_us(), whole.deviation_us());
        assert_eq!((left.min_us, left.max_us), (whole.min_us, whole.max_us));
    }

    #[test]
    fn a_time_beyond_the_scale_counts_as_an_hour() {
        let mut series = Series::default();
        series.record(u64::MAX);
        assert_eq!(series.quantile_us(0.5), TIME_MAX_US);
    }
}
