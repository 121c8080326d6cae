//! When a resource is full, and how sure that is.
//!
//! The idea: a machine is sized for its busy hour. The busy hour of each day makes a line (the median
//! of all slopes between two days, after Theil and Sen, which a single odd day does not bend), its
//! interval says how far it can be believed, and the day the line meets what is full is told only
//! from two weeks of days on.

/// Days from which on something is foretold.
pub const DAYS_MIN: usize = 14;
/// Days that are looked at: what was before says little of what comes.
pub const DAYS_MAX: usize = 90;
/// Days ahead beyond which nobody knows.
pub const AHEAD_MAX: i32 = 365;
/// Standard deviations of an interval of 95 %.
const SURE: f64 = 1.96;

/// How much of something was used in the busy hour of a day after 1970.
pub type BusyHour = (i32, f64);

/// A line through busy hours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// How much more each day.
    pub per_day: f64,
    /// The interval of 95 % around that.
    pub between: (f64, f64),
    /// What the line says of the last day.
    pub level: f64,
    /// That day.
    pub day: i32,
    /// Days it is made of.
    pub days: usize,
}

/// When something is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullOn {
    /// There are too few days to say.
    TooFewDays(usize),
    /// It is.
    Now,
    /// Not within a year, by all the interval allows.
    NotForAYear,
    /// On this day, between the two; none where the interval has no end within a year.
    Day {
        /// By the line itself.
        likely: Option<i32>,
        /// At the earliest.
        earliest: i32,
        /// At the latest.
        latest: Option<i32>,
    },
}

/// The line through busy hours, of the last [`DAYS_MAX`] days; none of fewer than [`DAYS_MIN`].
pub fn trend(busy_hours: &[BusyHour]) -> Option<Trend> {
    let first = busy_hours.len().saturating_sub(DAYS_MAX);
    let hours = busy_hours.get(first..).unwrap_or_default();
    let (days, last) = (hours.len(), hours.last()?);
    if days < DAYS_MIN {
        return None;
    }
    let later = |at: usize| hours.get(at + 1..).unwrap_or_default();
    let pairs = hours.iter().enumerate();
    let pairs = pairs.flat_map(|(at, one)| later(at).iter().map(move |other| (one, other)));
    let slopes = pairs.filter_map(|((day, value), (later_day, later_value))| {
        let apart = later_day.checked_sub(*day).filter(|apart| *apart > 0)?;
        Some((later_value - value) / f64::from(apart))
    });
    let slopes = sorted(slopes);
    let per_day = quantile(&slopes, 0.5)?;
    let (level_at, day) = (
        |(day, value): &BusyHour| value - per_day * f64::from(*day),
        last.0,
    );
    let base = quantile(&sorted(hours.iter().map(level_at)), 0.5)?;
    // Kendall's variance says which slopes from the middle out belong to the interval (Sen 1968).
    let n = days as f64;
    let spread = SURE * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt() / slopes.len() as f64 / 2.0;
    let low = quantile(&slopes, 0.5 - spread)?;
    let high = quantile(&slopes, 0.5 + spread)?;
    Some(Trend {
        per_day,
        between: (low, high),
        level: base + per_day * f64::from(day),
        day,
        days,
    })
}

/// When the line meets `full`; what is beyond it is worse above, or below where `full` is the least
/// there has to be.
pub fn full_on(trend: Option<&Trend>, days: usize, full: f64, is_least: bool) -> FullOn {
    let Some(trend) = trend else {
        return FullOn::TooFewDays(days);
    };
    let sign = if is_least { -1.0 } else { 1.0 };
    let room = (full - trend.level) * sign;
    if room <= 0.0 {
        return FullOn::Now;
    }
    let (low, high) = trend.between;
    let (slow, fast) = if is_least { (-high, -low) } else { (low, high) };
    let after = |per_day: f64| {
        // A day that is met but for what rounding adds is met.
        let days = (room / per_day - 1e-6).ceil();
        let is_near = per_day > 0.0 && days <= f64::from(AHEAD_MAX);
        // Between 1 and a year.
        is_near.then(|| trend.day.saturating_add(days as i32))
    };
    match after(fast) {
        None => FullOn::NotForAYear,
        Some(earliest) => FullOn::Day {
            likely: after(trend.per_day * sign),
            earliest,
            latest: after(slow),
        },
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value at a share of all, which are sorted; beyond the ends the ends.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = (share.clamp(0.0, 1.0) * last as f64).round();
    sorted.get(at as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days whose busy hours grow by `per_day`, with the same noise each time.
    fn days(count: i32, first: f64, per_day: f64, noise: f64) -> Vec<BusyHour> {
        let noise_of = |day: i32| noise * (f64::from(day * 37 % 11) - 5.0) / 5.0;
        let value = |day: i32| first + per_day * f64::from(day) + noise_of(day);
        (0..count).map(|day| (day, value(day))).collect()
    }

    #[test]
    fn a_line_is_found_and_when_it_is_full() {
        let hours = days(30, 0.2, 0.01, 0.0);
        let trend = trend(&hours).expect("a line");
        assert!((trend.per_day - 0.01).abs() < 1e-9);
        assert!((trend.level - 0.49).abs() < 1e-9);
        let full = full_on(Some(&trend), 30, 0.8, false);
        let FullOn::Day { likely, .. } = full else {
            panic!("{full:?}");
        };
        assert_eq!(likely, Some(29 + 31));
    }

    #[test]
    fn noise_widens_the_interval_and_an_odd_day_does_not_bend_the_line() {
        let mut hours = days(60, 0.2, 0.005, 0.05);
        let before = trend(&hours).expect("a line");
        let (low, high) = before.between;
        assert!(low < 0.005 && 0.005 < high, "{before:?}");
        assert!(high - low > 0.0005, "{before:?}");
        hours[40].1 = 50.0;
        let after = trend(&hours).expect("a line");
        assert!((after.per_day - before.per_day).abs() < 0.001, "{after:?}");
    }

    #[test]
    fn nothing_is_foretold_of_less_than_two_weeks() {
        let hours = days(13, 0.2, 0.1, 0.0);
        assert_eq!(trend(&hours), None);
        let told = full_on(trend(&hours).as_ref(), hours.len(), 0.8, false);
        assert_eq!(told, FullOn::TooFewDays(13));
    }

    #[test]
    fn what_does_not_grow_is_not_full_within_a_year() {
        for per_day in [0.0, -0.01, 0.0001] {
            let line = trend(&days(30, 0.4, per_day, 0.0));
            let told = full_on(line.as_ref(), 30, 0.8, false);
            assert_eq!(told, FullOn::NotForAYear, "{per_day}");
        }
        let line = trend(&days(30, 0.9, 0.0, 0.0));
        assert_eq!(full_on(line.as_ref(), 30, 0.8, false), FullOn::Now);
    }

    #[test]
    fn what_has_to_be_left_is_full_when_it_falls() {
        let line = trend(&days(20, 0.9, -0.02, 0.0));
        let told = full_on(line.as_ref(), 20, 0.1, true);
        let FullOn::Day { likely, .. } = told else {
            panic!("{told:?}");
        };
        // 0.9 - 0.02 × 19 = 0.52 on the last day: 21 days more.
        assert_eq!(likely, Some(19 + 21));
    }

    #[test]
    fn an_interval_without_growth_at_its_lower_end_has_no_latest_day() {
        let line = trend(&days(40, 0.3, 0.002, 0.2)).expect("a line");
        assert!(line.between.0 <= 0.0, "{line:?}");
        let told = full_on(Some(&line), 40, 0.6, false);
        assert!(matches!(told, FullOn::Day { latest: None, .. }), "{told:?}");
    }
}
