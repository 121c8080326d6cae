//! An outcome in ApacheBench's terms: what it counts as what, and its quantiles.
//!
//! Its median and percentiles are elements of the sorted times, without interpolation, at indices
//! of its own choosing; they are kept, for the tables would differ otherwise.

use load::client::{Outcome, Series};

/// Percentages of the table.
pub(crate) const PERCENTAGES: [u64; 9] = [50, 66, 75, 80, 90, 95, 98, 99, 100];

/// Counts and times.
#[derive(Debug, Clone)]
pub(crate) struct Figures<'a> {
    pub(crate) seconds: f64,
    /// Whole replies.
    pub(crate) done: u64,
    pub(crate) failed: Failed,
    pub(crate) write_errors: u64,
    pub(crate) outside_2xx: u64,
    /// Replies that let their connection be kept.
    pub(crate) kept: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) connect: Row,
    pub(crate) processing: Row,
    pub(crate) waiting: Row,
    pub(crate) total: Row,
    times: &'a Series,
}

/// Failed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// No connection, or no TLS.
    pub(crate) connect: u64,
    /// Reset, or ended before the reply was whole.
    pub(crate) receive: u64,
    /// Bodies of another length than the first.
    pub(crate) length: u64,
    /// No HTTP, or nothing for too long.
    pub(crate) exceptions: u64,
}

impl Failed {
    pub(crate) fn total(self) -> u64 {
        self.connect + self.receive + self.length + self.exceptions
    }
}

/// A row of the table of times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) min_us: u64,
    pub(crate) mean_us: u64,
    pub(crate) deviation_us: f64,
    pub(crate) median_us: u64,
    pub(crate) max_us: u64,
}

impl<'a> Figures<'a> {
    /// Counts.
    pub(crate) fn of(outcome: &'a Outcome) -> Figures<'a> {
        let errors = &outcome.errors;
        let outside = |(status, _): &(&u16, &u64)| !(200..300).contains(*status);
        Figures {
            seconds: outcome.recorded.as_secs_f64(),
            done: outcome.completed,
            failed: Failed {
                connect: errors.connect + errors.tls,
                receive: errors.reset + errors.closed,
                length: outcome.judged_failed,
                exceptions: errors.timeout + errors.framing,
            },
            write_errors: errors.write,
            outside_2xx: outcome
                .statuses
                .iter()
                .filter(outside)
                .map(|(_, n)| n)
                .sum(),
            kept: outcome.kept,
            received_bytes: outcome.received_bytes,
            sent_bytes: outcome.sent_bytes,
            body_bytes: outcome.body_bytes,
            connect: Row::of(&outcome.times.connect),
            processing: Row::of(&outcome.times.processing),
            waiting: Row::of(&outcome.times.waiting),
            total: Row::of(&outcome.times.service),
            times: &outcome.times.service,
        }
    }

    /// The time of a row of the table of percentages.
    pub(crate) fn percentage_us(&self, percentage: u64) -> u64 {
        match percentage {
            100.. => self.times.max_us,
            _ => at_index(self.times, self.times.count() * percentage / 100),
        }
    }

    /// The time of a line of the CSV file, which rounds its indices.
    pub(crate) fn csv_us(&self, percentage: u64) -> u64 {
        match percentage {
            0 => self.times.min_us,
            100.. => self.times.max_us,
            _ => at_index(self.times, (self.times.count() * percentage + 50) / 100),
        }
    }
}

impl Row {
    fn of(series: &Series) -> Row {
        let count = series.count();
        let Some(mean_us) = series.sum_us.checked_div(u128::from(count)) else {
            return Row::default();
        };
        let middle = at_index(series, count / 2);
        Row {
            min_us: series.min_us,
            // A mean of times below an hour is one.
            mean_us: u64::try_from(mean_us).unwrap_or(u64::MAX),
            deviation_us: series.deviation_us(),
            median_us: match count > 1 && count % 2 == 1 {
                true => (middle + at_index(series, count / 2 + 1)) / 2,
                false => middle,
            },
            max_us: series.max_us,
        }
    }
}

/// The time at an index of the sorted times, the last where it lies beyond.
fn at_index(series: &Series, index: u64) -> u64 {
    let count = series.count().max(1);
    // Half an element more, so that rounding cannot lead to a neighbour.
    series.quantile_us((index.min(count - 1) as f64 + 0.5) / count as f64)
}

/// Whole milliseconds, as all of ApacheBench's tables have them.
pub(crate) fn ms(us: u64) -> u64 {
    us.saturating_add(500) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(times: &[u64]) -> Series {
        let mut series = Series::default();
        times.iter().for_each(|us| series.record(*us));
        series
    }

    #[test]
    fn rows_are_what_apache_bench_makes_of_the_times() {
        let check = |times: &[u64], min_us, mean_us, median_us, max_us| {
            let row = Row::of(&series(times));
            let found = (row.min_us, row.mean_us, row.median_us, row.max_us);
            assert_eq!(found, (min_us, mean_us, median_us, max_us), "{times:?}");
        };
        check(&[], 0, 0, 0, 0);
        check(&[7], 7, 7, 7, 7);
        check(&[1, 2], 1, 1, 2, 2);
        // Of an odd number it takes the middle and the next.
        check(&[10, 20, 40], 10, 23, 30, 40);
        check(&[40, 10, 20, 30], 10, 25, 30, 40);
        assert_eq!(Row::of(&series(&[7])).deviation_us, 0.0);
        assert!((Row::of(&series(&[2, 4])).deviation_us - 2.0_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn indices_are_apache_benchs() {
        let times: Vec<u64> = (0..200).map(|n| n * 10).collect();
        let outcome = Outcome::default();
        let times = series(&times);
        let figures = Figures {
            times: &times,
            ..Figures::of(&outcome)
        };
        for (percentage, table, csv) in [(50, 1000, 1000), (66, 1320, 1320), (99, 1980, 1980)] {
            assert_eq!(figures.percentage_us(percentage), table);
            assert_eq!(figures.csv_us(percentage), csv);
        }
        assert_eq!((figures.csv_us(0), figures.csv_us(100)), (0, 1990));
        assert_eq!(figures.percentage_us(100), 1990);
        let three = series(&[10, 20, 30]);
        let figures = Figures {
            times: &three,
            ..figures
        };
        assert_eq!((figures.percentage_us(66), figures.csv_us(66)), (20, 30));
        assert_eq!(figures.csv_us(99), 30);
    }

    #[test]
    fn milliseconds_are_rounded_half_up() {
        for (us, expected) in [
            (0, 0),
            (499, 0),
            (500, 1),
            (1499, 1),
            (1500, 2),
            (u64::MAX, u64::MAX / 1000),
        ] {
            assert_eq!(ms(us), expected, "{us}");
        }
    }
}
