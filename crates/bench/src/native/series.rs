//! A series of times as a report keeps it: a few moments and the histogram's filled buckets.

use std::collections::BTreeMap;

use serde::Serialize;

use load::client::Series;

/// Samples that must lie beyond a quantile before it is told.
const BEYOND_MIN: f64 = 10.0;

/// Quantiles that reports tell where there are samples enough, and their names.
pub(crate) const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.50),
    ("p75", 0.75),
    ("p90", 0.90),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// A series of times.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct SeriesRecord {
    pub(crate) count: u64,
    pub(crate) mean_us: f64,
    pub(crate) deviation_us: f64,
    pub(crate) min_us: u64,
    pub(crate) max_us: u64,
    /// Quantiles for which there are samples enough, by name.
    pub(crate) quantiles_us: BTreeMap<String, u64>,
    /// Filled buckets in ascending order: `[highest value in microseconds, count]`.
    pub(crate) histogram: Vec<(u64, u64)>,
}

impl SeriesRecord {
    /// Keeps what a report tells of a series.
    pub(crate) fn of(series: &Series) -> SeriesRecord {
        let histogram: Vec<(u64, u64)> = series
            .histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        SeriesRecord {
            count: series.count(),
            mean_us: series.mean_us(),
            deviation_us: series.deviation_us(),
            min_us: series.min_us,
            max_us: series.max_us,
            quantiles_us: BTreeMap::new(),
            histogram,
        }
        .with_quantiles()
    }

    /// The same of connecting, which took no time where a connection was kept: those are left out.
    pub(crate) fn of_connects(series: &Series) -> SeriesRecord {
        let mut record = SeriesRecord::of(series);
        let sum_us = record.mean_us * record.count as f64;
        let squares = record.deviation_us.powi(2) * record.count.saturating_sub(1) as f64
            + sum_us * record.mean_us;
        record.histogram.retain(|(us, _)| *us > 0);
        record.count = record.histogram.iter().map(|(_, count)| count).sum();
        record.min_us = record.histogram.first().map_or(0, |(us, _)| *us);
        let number = record.count.max(1) as f64;
        record.mean_us = sum_us / number;
        let apart = (squares - sum_us * record.mean_us).max(0.0);
        record.deviation_us = (apart / (number - 1.0).max(1.0)).sqrt();
        record.with_quantiles()
    }

    fn with_quantiles(mut self) -> SeriesRecord {
        self.quantiles_us = QUANTILES
            .into_iter()
            .filter(|(_, quantile)| self.is_enough_for(*quantile))
            .map(|(name, quantile)| (name.to_owned(), self.quantile_us(quantile)))
            .collect();
        self
    }

    /// The time that this share of the samples did not exceed; 0 without samples.
    pub(crate) fn quantile_us(&self, quantile: f64) -> u64 {
        let rank = (quantile.clamp(0.0, 1.0) * self.count as f64)
            .ceil()
            .max(1.0) as u64;
        let mut seen = 0u64;
        for (us, count) in &self.histogram {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                return (*us).min(self.max_us);
            }
        }
        self.max_us
    }

    /// Whether ten samples lie beyond the quantile, so that it means something.
    pub(crate) fn is_enough_for(&self, quantile: f64) -> bool {
        self.count >= needed_for(quantile)
    }
}

/// Samples that a quantile takes.
pub(crate) fn needed_for(quantile: f64) -> u64 {
    (BEYOND_MIN / (1.0 - quantile)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(times: impl IntoIterator<Item = u64>) -> Series {
        let mut series = Series::default();
        times.into_iter().for_each(|us| series.record(us));
        series
    }

    #[test]
    fn quantiles_are_those_of_the_histogram() {
        let series = series((0..20_000).map(|n| n * n % 70_001));
        let record = SeriesRecord::of(&series);
        for (_, quantile) in QUANTILES {
            assert_eq!(record.quantile_us(quantile), series.quantile_us(quantile));
        }
        assert_eq!(record.count, 20_000);
        assert_eq!(record.mean_us, series.mean_us());
    }

    #[test]
    fn no_quantile_is_told_without_ten_samples_beyond_it() {
        for (count, told) in [
            (19, 0),
            (20, 1),
            (40, 2),
            (100, 3),
            (999, 3),
            (1000, 4),
            (10_000, 5),
        ] {
            let record = SeriesRecord::of(&series(0..count));
            assert_eq!(record.quantiles_us.len(), told, "{count}");
        }
        assert_eq!(needed_for(0.9999), 100_000);
    }

    #[test]
    fn kept_connections_are_no_connects() {
        let opened = series([40, 60, 80]);
        let mixed = series([0, 0, 40, 60, 0, 80]);
        let (opened, mixed) = (SeriesRecord::of(&opened), SeriesRecord::of_connects(&mixed));
        assert_eq!((mixed.count, mixed.min_us, mixed.max_us), (3, 40, 80));
        assert!((mixed.mean_us - opened.mean_us).abs() < 1e-9);
        assert!((mixed.deviation_us - opened.deviation_us).abs() < 1e-6);
        assert_eq!(mixed.histogram, opened.histogram);
        assert_eq!(SeriesRecord::of_connects(&series([0, 0])).count, 0);
    }

    #[test]
    fn an_empty_series_is_nothing() {
        let record = SeriesRecord::of(&Series::default());
        assert_eq!(record, SeriesRecord::default());
        assert_eq!(record.quantile_us(0.5), 0);
    }
}
