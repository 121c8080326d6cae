//! The run over time: tenths of a second drawn together until they fit, as a line of blocks.

use load::client::Interval;

/// With fewer tenths there is no course to show.
const TENTHS_MIN: usize = 5;
/// From least to most.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Some tenths of a second together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TimelineStep {
    /// Seconds since recording began, at its end.
    pub(crate) end_s: f64,
    /// Whole replies a second.
    pub(crate) per_second: f64,
    /// Failures a second.
    pub(crate) failed_per_second: f64,
    /// Median response time, weighed by replies.
    pub(crate) p50_us: f64,
    /// Worst of the tenths' 99th of a hundred.
    pub(crate) p99_us: f64,
    /// Longest.
    pub(crate) max_us: f64,
}

/// The course in at most so many steps. The last tenth is left out: it is hardly ever a whole one.
pub(crate) fn steps(timeline: &[Interval], most: usize) -> Vec<TimelineStep> {
    let whole = timeline
        .get(..timeline.len().saturating_sub(1))
        .unwrap_or(&[]);
    if whole.len() < TENTHS_MIN {
        return Vec::new();
    }
    let each = whole.len().div_ceil(most.max(1));
    whole
        .chunks(each)
        .enumerate()
        .map(|(place, tenths)| step(tenths, (place * each + tenths.len()) as f64 / 10.0))
        .collect()
}

fn step(tenths: &[Interval], end_s: f64) -> TimelineStep {
    let seconds = tenths.len() as f64 / 10.0;
    let completed: u64 = tenths.iter().map(|tenth| tenth.completed).sum();
    let failed: u64 = tenths.iter().map(|tenth| tenth.failed).sum();
    let weighed: f64 = tenths
        .iter()
        .map(|tenth| tenth.p50_us as f64 * tenth.completed as f64)
        .sum();
    let worst = |of: fn(&Interval) -> u64| tenths.iter().map(of).max().unwrap_or(0) as f64;
    TimelineStep {
        end_s,
        per_second: completed as f64 / seconds,
        failed_per_second: failed as f64 / seconds,
        p50_us: weighed / completed.max(1) as f64,
        p99_us: worst(|tenth| tenth.p99_us),
        max_us: worst(|tenth| tenth.max_us),
    }
}

/// A line of blocks, from nothing to the greatest value.
pub(crate) fn blocks(values: impl Iterator<Item = f64> + Clone) -> String {
    let most = values.clone().fold(0.0, f64::max);
    values
        .map(|value| {
            let height = if most > 0.0 { value / most * 8.0 } else { 0.0 };
            let place = (height.ceil() as usize).clamp(1, BLOCKS.len()) - 1;
            BLOCKS.get(place).copied().unwrap_or(' ')
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenth(completed: u64, us: u64) -> Interval {
        Interval {
            completed,
            failed: 1,
            p50_us: us,
            p99_us: us * 2,
            max_us: us * 3,
            ..Interval::default()
        }
    }

    #[test]
    fn tenths_are_drawn_together_until_they_fit() {
        let timeline: Vec<Interval> = (0..121).map(|at| tenth(10, 100 + at)).collect();
        let steps = steps(&timeline, 60);
        assert_eq!(steps.len(), 60);
        assert_eq!(steps[0].per_second, 100.0);
        assert_eq!(steps[0].failed_per_second, 10.0);
        assert_eq!(steps[0].p50_us, 100.5);
        assert_eq!(steps[0].p99_us, 202.0);
        assert_eq!(steps[59].end_s, 12.0);
        assert_eq!(steps[59].max_us, 3.0 * 219.0);
    }

    #[test]
    fn a_run_of_moments_has_no_course() {
        assert!(steps(&[], 60).is_empty());
        assert!(steps(&[tenth(1, 1); 5], 60).is_empty());
        assert_eq!(steps(&[tenth(1, 1); 6], 60).len(), 5);
    }

    #[test]
    fn blocks_rise_from_nothing_to_the_greatest() {
        assert_eq!(blocks([0.0, 1.0, 4.0, 8.0].into_iter()), "▁▁▄█");
        assert_eq!(blocks([0.0, 0.0].into_iter()), "▁▁");
        assert_eq!(blocks([0.0; 0].into_iter()), "");
    }
}
