//! The last ten seconds of every gauge, and what they come to.
//!
//! The idea: what is read is kept as it was read, with its time; a value is worked out of two
//! readings or more. So a sample that comes late, because the machine is busy, falsifies nothing;
//! and a total that is not read at each sample grows from reading to reading, not from sample to
//! sample.

use std::collections::VecDeque;

use config::model::sensor::{Gauge, Unit};

use super::gauges::{GAUGES, Numbers, Snapshot};

/// Over how long a value is taken where it needs two readings.
const SHORT_US: u64 = 1_000_000;
/// Over how long a mean is.
const LONG_US: u64 = 10_000_000;
/// By how much less than that two readings may be apart: half a sample.
const SLACK_US: u64 = 50_000;
/// A total that was read longer ago than this says nothing of now: it is read once a second.
const STALE_US: u64 = 1_200_000;
/// Readings kept; more come only from somebody who samples too often.
const ROWS_MAX: usize = 128;

/// How a gauge's value comes from what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GaugeKind {
    /// It is what was read last.
    Level,
    /// It is the highest of the last second.
    Peak,
    /// What is read only grows; the value is by how much in a second. NaN in a sample: it was not
    /// read then.
    Total,
}

/// What was read lately.
#[derive(Debug, Default)]
pub(super) struct History {
    rows: VecDeque<Row>,
}

#[derive(Debug)]
struct Row {
    at_us: u64,
    read: Numbers,
    lags_s: Vec<f64>,
}

impl History {
    /// Notes what was read at a moment, later than the one before, and how late each worker was;
    /// tells what every gauge says now, and on average over ten seconds.
    pub(super) fn note(&mut self, at_us: u64, read: Numbers, lags_s: Vec<f64>) -> Snapshot {
        let workers = lags_s.len();
        self.rows.push_back(Row {
            at_us,
            read,
            lags_s,
        });
        // One that is older stays: it is where the ten seconds begin.
        let is_older = |row: Option<&Row>| row.is_some_and(|row| row.at_us + LONG_US <= at_us);
        while is_older(self.rows.get(1)) || self.rows.len() > ROWS_MAX {
            self.rows.pop_front();
        }
        let values = |of: &dyn Fn(Gauge) -> f64| {
            let mut values = [f64::NAN; GAUGES];
            for (value, gauge) in values.iter_mut().zip(Gauge::ALL) {
                *value = of(gauge);
            }
            values
        };
        let lag_of = |worker: usize| {
            let lag_s = |row: &Row| row.lags_s.get(worker).copied();
            self.peak(|row| lag_s(row).unwrap_or(f64::NAN))
        };
        Snapshot {
            now: values(&|gauge| self.now(gauge)),
            mean: values(&|gauge| self.mean(gauge)),
            lags_s: (0..workers).map(lag_of).collect(),
        }
    }

    fn now(&self, gauge: Gauge) -> f64 {
        let last = self.rows.back().map_or(f64::NAN, |row| number(row, gauge));
        match kind(gauge) {
            GaugeKind::Level => last,
            GaugeKind::Peak => self.peak(|row| number(row, gauge)),
            GaugeKind::Total => bounded(gauge, self.growth(gauge, SHORT_US)),
        }
    }

    /// The highest of the last second.
    fn peak(&self, of: impl Fn(&Row) -> f64) -> f64 {
        // `max` passes over NaN.
        self.since(SHORT_US)
            .fold(f64::NAN, |peak, row| peak.max(of(row)))
    }

    fn mean(&self, gauge: Gauge) -> f64 {
        if kind(gauge) == GaugeKind::Total {
            return bounded(gauge, self.growth(gauge, LONG_US));
        }
        let numbers = self.since(LONG_US).map(|row| number(row, gauge));
        let (sum, count) = numbers
            .filter(|number| number.is_finite())
            .fold((0.0, 0.0), |(sum, count), number| {
                (sum + number, count + 1.0)
            });
        // NaN where there is none.
        sum / count
    }

    /// By how much it grew in a second, from the last time it was read back over `span_us` or as
    /// long as there is; a total that fell began anew, and says nothing.
    fn growth(&self, gauge: Gauge, span_us: u64) -> f64 {
        let now_us = self.rows.back().map_or(0, |row| row.at_us);
        let readings = self.rows.iter().rev();
        let mut readings = readings
            .map(|row| (row.at_us, number(row, gauge)))
            .filter(|(_, number)| number.is_finite());
        let last = readings.next();
        let Some(last) = last.filter(|(at_us, _)| now_us - at_us <= STALE_US) else {
            return f64::NAN;
        };
        let begin_us = last.0.saturating_sub(span_us - SLACK_US);
        let mut first = last;
        for earlier in readings {
            first = earlier;
            if earlier.0 <= begin_us {
                break;
            }
        }
        let grown = last.1 - first.1;
        let seconds = last.0.saturating_sub(first.0) as f64 / 1e6;
        match grown {
            grown if grown >= 0.0 && seconds > 0.0 => grown / seconds,
            _ => f64::NAN,
        }
    }

    /// The readings of a span up to now, with the last one before it.
    fn since(&self, span_us: u64) -> impl Iterator<Item = &Row> {
        let now_us = self.rows.back().map_or(0, |row| row.at_us);
        let begin_us = now_us.saturating_sub(span_us);
        let after = self.rows.partition_point(|row| row.at_us <= begin_us);
        self.rows.range(after.saturating_sub(1)..)
    }
}

fn number(row: &Row, gauge: Gauge) -> f64 {
    row.read.get(gauge.index()).copied().unwrap_or(f64::NAN)
}

/// Two clocks are read, the kernel's and ours: a share may come out a little above 1.
fn bounded(gauge: Gauge, value: f64) -> f64 {
    match gauge.unit() {
        Unit::Share if value > 1.0 => 1.0,
        _ => value,
    }
}

/// How its value comes from what is read.
pub(super) fn kind(gauge: Gauge) -> GaugeKind {
    match gauge {
        Gauge::CpuPressure
        | Gauge::MemoryPressure
        | Gauge::MemoryPressureFull
        | Gauge::IoPressure
        | Gauge::IoPressureFull
        | Gauge::SwapIn
        | Gauge::ConntrackDrops
        | Gauge::ListenOverflows => GaugeKind::Total,
        Gauge::LoopLag => GaugeKind::Peak,
        Gauge::Load1
        | Gauge::Load5
        | Gauge::Load15
        | Gauge::MemoryAvailable
        | Gauge::Conntrack
        | Gauge::Descriptors
        | Gauge::Ports
        | Gauge::InFlight
        | Gauge::QueueAge => GaugeKind::Level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    fn reading(numbers: &[(Gauge, f64)]) -> Numbers {
        let mut read = [f64::NAN; GAUGES];
        for (gauge, number) in numbers {
            read[gauge.index()] = *number;
        }
        read
    }

    fn check(found: f64, expected: f64) {
        let is_same = (found - expected).abs() < 1e-6 || found.is_nan() && expected.is_nan();
        assert!(is_same, "{found} is not {expected}");
    }

    /// Notes a gauge's numbers, one each 100 ms; what it says at the end, and on average.
    fn after(gauge: Gauge, numbers: impl IntoIterator<Item = f64>) -> (f64, f64) {
        let mut history = History::default();
        let mut said = (f64::NAN, f64::NAN);
        for (at, number) in (50..).zip(numbers) {
            said = noted(&mut history, at * 100, gauge, number);
        }
        said
    }

    /// Notes a number; what the gauge says then, and on average.
    fn noted(history: &mut History, at_ms: u64, gauge: Gauge, number: f64) -> (f64, f64) {
        let snapshot = history.note(at_ms * MS, reading(&[(gauge, number)]), Vec::new());
        (snapshot.now[gauge.index()], snapshot.mean[gauge.index()])
    }

    #[test]
    fn a_level_is_what_was_read_last() {
        for (numbers, now, mean) in [
            (vec![], f64::NAN, f64::NAN),
            (vec![4.0], 4.0, 4.0),
            (vec![4.0, 2.0], 2.0, 3.0),
            (vec![4.0, f64::NAN, 2.0], 2.0, 3.0),
            (vec![4.0, 2.0, f64::NAN], f64::NAN, 3.0),
        ] {
            let said = after(Gauge::InFlight, numbers);
            check(said.0, now);
            check(said.1, mean);
        }
    }

    #[test]
    fn a_peak_stays_for_a_second() {
        let lags = |quiet: usize| [vec![0.5], vec![0.001; quiet]].concat();
        check(after(Gauge::LoopLag, lags(9)).0, 0.5);
        check(after(Gauge::LoopLag, lags(12)).0, 0.001);
        check(after(Gauge::LoopLag, [f64::NAN]).0, f64::NAN);
    }

    #[test]
    fn a_total_says_how_much_it_grows_in_a_second() {
        let gauge = Gauge::CpuPressure;
        check(after(gauge, [7.0]).0, f64::NAN);
        check(after(gauge, [7.0, 7.05]).0, 0.5);
        // Half of each second for ten seconds, then nothing for one.
        let busy = (0..=100).map(|at| f64::from(at) * 0.05);
        check(after(gauge, busy.clone()).1, 0.5);
        let rest = std::iter::repeat_n(5.0, 10);
        let said = after(gauge, busy.chain(rest));
        check(said.0, 0.0);
        check(said.1, 0.45);
        // Never more than all of the time, and nothing from a total that began anew.
        check(after(gauge, [0.0, 0.2]).0, 1.0);
        check(after(gauge, [9.0, 0.2]).0, f64::NAN);
        check(after(gauge, [f64::NAN, 0.2]).0, f64::NAN);
        check(after(Gauge::SwapIn, [0.0, 20.0]).0, 200.0);
    }

    #[test]
    fn a_late_sample_falsifies_nothing() {
        let gauge = Gauge::CpuPressure;
        let mut history = History::default();
        noted(&mut history, 0, gauge, 0.0);
        let (now, mean) = noted(&mut history, 4_000, gauge, 1.0);
        check(now, 0.25);
        check(mean, 0.25);
    }

    #[test]
    fn what_is_read_once_a_second_grows_from_reading_to_reading() {
        let (gauge, mut history) = (Gauge::ListenOverflows, History::default());
        // Ten a second throughout, and samples that come late, at no beat.
        let gaps_ms = [100_u64, 130, 370, 250, 100, 610, 240];
        let (mut at_ms, mut due_ms, mut readings) = (0, 0, 0);
        for gap_ms in gaps_ms.into_iter().cycle().take(200) {
            at_ms += gap_ms;
            let mut read = f64::NAN;
            if at_ms >= due_ms {
                (read, due_ms) = (at_ms as f64 / 100.0, at_ms + 1_000);
                readings += 1;
            }
            let (now, mean) = noted(&mut history, at_ms, gauge, read);
            if readings > 1 {
                check(now, 10.0);
                check(mean, 10.0);
            }
        }
        // One that is not read any more says nothing soon.
        let (now, mean) = noted(&mut history, at_ms + 3_000, gauge, f64::NAN);
        check(now, f64::NAN);
        check(mean, f64::NAN);
    }

    #[test]
    fn how_late_each_worker_was_stays_for_a_second() {
        let mut history = History::default();
        let mut lags = |at_ms: u64, lags_s: [f64; 2]| {
            let snapshot = history.note(at_ms * MS, reading(&[]), lags_s.to_vec());
            snapshot.lags_s
        };
        lags(0, [f64::NAN, 0.5]);
        let said = lags(900, [0.001, 0.001]);
        check(said[0], 0.001);
        check(said[1], 0.5);
        lags(2_000, [0.001, 0.001]);
        check(lags(3_000, [f64::NAN, 0.001])[1], 0.001);
    }

    #[test]
    fn what_is_older_than_ten_seconds_is_forgotten() {
        let mut history = History::default();
        for at in 0..10_000 {
            history.note(at * 100 * MS, reading(&[]), Vec::new());
        }
        assert_eq!(history.rows.len(), 101);
        for at in 0..10_000 {
            history.note(1_000_000 * MS + at, reading(&[]), Vec::new());
        }
        assert_eq!(history.rows.len(), ROWS_MAX);
    }
}
