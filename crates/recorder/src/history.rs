//! What figures were that are not counts of requests: the machine's sensors, and what tenants, sites
//! and upstreams take.
//!
//! The idea: a figure has one name everywhere (`load1`, `tenant.example.cpu`), and its values become
//! sums of a minute, which merge into hours and days as requests do, and part of a minute into the
//! rest; the last hour is held by the second for those that somebody looks at. No clock is read: a
//! value carries its time.

use std::collections::{HashMap, VecDeque};

use crate::store::Tier;

/// Figures that are followed; values of others are left out.
pub const SERIES_MAX: usize = 8_192;
/// Those of them whose seconds are held: all of the machine, and some of the 64 busiest sites.
const WITH_SECONDS_MAX: usize = 320;
/// Seconds that are held.
pub const SECONDS_KEPT: i64 = 3_600;
/// A clock that goes back by more than this goes on from there.
const BACK_MAX_S: i64 = 120;
/// Longest name of a figure.
const NAME_BYTES_MAX: usize = 400;

/// How figures begin that are sums of what all tenants take.
pub(crate) const ALL_TENANTS: &str = "tenants.";

/// Values of some time, added up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sums {
    /// How many there were; one that stands for so much longer counts for so many.
    pub count: f64,
    /// All together.
    pub sum: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Sums {
    /// Of one value.
    pub fn of(value: f64) -> Sums {
        Sums::over(value, 1.0)
    }

    /// Of one that stands for so many.
    pub fn over(value: f64, count: f64) -> Sums {
        Sums {
            count,
            sum: value * count,
            low: value,
            high: value,
        }
    }

    /// Adds those of another time.
    pub fn merge(&mut self, other: &Sums) {
        self.count += other.count;
        self.sum += other.sum;
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
    }

    /// What it was on average.
    pub fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// Whether these are numbers of which something can be said.
    pub(crate) fn are_sound(&self) -> bool {
        let is_counted = self.count.is_finite() && self.count > 0.0;
        is_counted && self.sum.is_finite() && self.high.is_finite()
    }
}

impl From<f64> for Sums {
    fn from(value: f64) -> Sums {
        Sums::of(value)
    }
}

/// A figure over some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// What is measured.
    pub name: Box<str>,
    /// When that time begins, seconds after 1970.
    pub at_s: i64,
    /// What there was.
    pub sums: Sums,
}

/// Figures of now.
#[derive(Debug, Default)]
pub struct History {
    series: HashMap<Box<str>, Series>,
    with_seconds: usize,
}

#[derive(Debug)]
struct Series {
    /// When its minute began, and what there was since.
    minute: Option<(i64, Sums)>,
    /// As much of it as is not on disk.
    fresh: Option<(i64, Sums)>,
    seconds: Option<VecDeque<(i64, f32)>>,
    /// Whether each second has all there is to say of it: one that is [held](History::hold) does not.
    is_by_second: bool,
    last_s: i64,
}

/// Whether a figure's seconds are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// For an hour, where there is room.
    Seconds,
    /// Its minutes do.
    Minutes,
}

impl History {
    /// Takes a value, if it is a number and there is room. Gives what there was in a minute that is over by it,
    /// for the disk.
    pub fn take(
        &mut self,
        at_s: i64,
        name: &str,
        value: impl Into<Sums>,
        detail: Detail,
    ) -> Option<Sample> {
        let sums = value.into();
        let has_room = self.series.len() < SERIES_MAX || self.series.contains_key(name);
        if !sums.are_sound() || !has_room || name.len() > NAME_BYTES_MAX {
            return None;
        }
        if !self.series.contains_key(name) {
            self.series.insert(name.into(), Series::new(at_s));
        }
        let series = self.series.get_mut(name)?;
        let at_s = series.time(at_s);
        if detail == Detail::Seconds {
            series.is_by_second = true;
            series.hold(at_s, sums.mean(), &mut self.with_seconds);
        }
        series.add(at_s, &sums).map(|(at_s, sums)| Sample {
            name: name.into(),
            at_s,
            sums,
        })
    }

    /// Holds what a figure that is told by the minute was in a second, where there is room: for who looks at
    /// the last hour.
    pub fn hold(&mut self, at_s: i64, name: &str, value: f64) {
        if let Some(series) = self.series.get_mut(name) {
            series.hold(at_s, value, &mut self.with_seconds);
        }
    }

    /// What there was since this was last asked, for the disk, and room for others: what has said nothing
    /// for an hour is forgotten.
    pub fn fresh(&mut self, now_s: i64) -> Vec<Sample> {
        let mut fresh = Vec::new();
        for (name, series) in &mut self.series {
            if let Some((at_s, sums)) = series.fresh.take() {
                let name = name.clone();
                fresh.push(Sample { name, at_s, sums });
            }
        }
        let oldest_s = now_s.saturating_sub(SECONDS_KEPT);
        self.series.retain(|_, series| series.last_s >= oldest_s);
        for series in self.series.values_mut() {
            let is_over =
                |it: &mut VecDeque<(i64, f32)>| it.back().is_none_or(|it| it.0 < oldest_s);
            series.seconds.take_if(is_over);
        }
        let with_seconds = self.series.values().filter(|it| it.seconds.is_some());
        self.with_seconds = with_seconds.count();
        fresh
    }

    /// What a figure was on average in the last so many seconds; none where it said nothing.
    pub fn mean(&self, name: &str, now_s: i64, last_s: i64) -> Option<f64> {
        let series = self.series.get(name)?;
        let since = now_s.saturating_sub(last_s);
        if let Some(seconds) = series.seconds.as_ref().filter(|_| series.is_by_second) {
            let values = seconds.iter().rev().take_while(|(at_s, _)| *at_s > since);
            let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), (_, value)| {
                (count + 1, sum + f64::from(*value))
            });
            return (count > 0).then(|| sum / f64::from(count));
        }
        let is_recent = series.last_s > since;
        let (_, sums) = series.minute.as_ref().filter(|_| is_recent)?;
        Some(sums.mean())
    }

    /// What those whose seconds are held were since then, by name.
    pub fn sums_since(&self, from_s: i64) -> Vec<(String, Sums)> {
        let series = self.series.iter().filter_map(|(name, series)| {
            let seconds = series.seconds.as_ref()?.iter().rev();
            let recent = seconds.take_while(|(at_s, _)| *at_s >= from_s);
            let sums = recent.map(|(_, value)| Sums::of(f64::from(*value)));
            let sums = sums.reduce(|mut one, other| {
                one.merge(&other);
                one
            });
            Some((name.to_string(), sums?))
        });
        let mut all: Vec<_> = series.collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// A figure's seconds, in order.
    pub fn seconds(&self, name: &str) -> impl Iterator<Item = (i64, f64)> {
        let seconds = self.series.get(name).and_then(|it| it.seconds.as_ref());
        let seconds = seconds.into_iter().flatten();
        seconds.map(|(at_s, value)| (*at_s, f64::from(*value)))
    }
}

impl Series {
    fn new(at_s: i64) -> Series {
        Series {
            minute: None,
            fresh: None,
            seconds: None,
            is_by_second: false,
            last_s: at_s,
        }
    }

    /// The time of a value. A clock that goes back a little adds to what is under way.
    fn time(&mut self, at_s: i64) -> i64 {
        if self.last_s.saturating_sub(at_s) > BACK_MAX_S {
            self.seconds.iter_mut().for_each(VecDeque::clear);
            self.last_s = at_s;
        }
        self.last_s = self.last_s.max(at_s);
        self.last_s
    }

    fn hold(&mut self, at_s: i64, value: f64, with_seconds: &mut usize) {
        if self.seconds.is_none() && *with_seconds < WITH_SECONDS_MAX {
            self.seconds = Some(VecDeque::new());
            *with_seconds += 1;
        }
        let Some(seconds) = &mut self.seconds else {
            return;
        };
        match seconds.back() {
            // The clock went back.
            Some((last_s, _)) if *last_s > at_s => return,
            // The second of now is the last value it has.
            Some((last_s, _)) if *last_s == at_s => drop(seconds.pop_back()),
            _ => {}
        }
        seconds.push_back((at_s, value as f32));
        let oldest = at_s.saturating_sub(SECONDS_KEPT);
        while seconds
            .front()
            .is_some_and(|(first_s, _)| *first_s <= oldest)
        {
            seconds.pop_front();
        }
    }

    /// Adds to its minute; gives what is not on disk of the one before, where that is over.
    fn add(&mut self, at_s: i64, more: &Sums) -> Option<(i64, Sums)> {
        let minute = Tier::Minute.begin(at_s);
        let mut over = None;
        for (is_fresh, of) in [(false, &mut self.minute), (true, &mut self.fresh)] {
            let before = of.take_if(|(at_s, _)| *at_s != minute);
            if is_fresh {
                over = before;
            }
            match of {
                Some((_, sums)) => sums.merge(more),
                None => *of = Some((minute, *more)),
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_told_when_the_next_begins_and_what_there_is_when_it_is_asked_for() {
        let mut history = History::default();
        for (at_s, value) in [(60, 1.0), (61, 3.0), (119, 2.0)] {
            assert_eq!(history.take(at_s, "load1", value, Detail::Seconds), None);
        }
        let minute = Sample {
            name: "load1".into(),
            at_s: 60,
            sums: Sums {
                count: 3.0,
                sum: 6.0,
                low: 1.0,
                high: 3.0,
            },
        };
        let over = history.take(120, "load1", 9.0, Detail::Seconds);
        assert_eq!(over, Some(minute));
        let fresh = history.fresh(121);
        assert_eq!((fresh.len(), fresh[0].at_s), (1, 120));
        assert_eq!(fresh[0].sums.sum, 9.0);
        assert_eq!(history.fresh(122), [], "it is told once");
        history.take(150, "load1", 5.0, Detail::Seconds);
        let fresh = history.fresh(151);
        assert_eq!((fresh[0].at_s, fresh[0].sums.sum), (120, 5.0), "the rest");
    }

    #[test]
    fn what_stands_for_longer_counts_for_more() {
        let mut history = History::default();
        history.take(60, "tenant.a.cpu", 1.0, Detail::Minutes);
        history.take(90, "tenant.a.cpu", Sums::over(4.0, 2.0), Detail::Minutes);
        for looks in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e308] {
            history.take(91, "tenant.a.cpu", Sums::over(1e9, looks), Detail::Minutes);
        }
        assert_eq!(history.mean("tenant.a.cpu", 91, 60), Some(3.0));
        let [fresh] = &history.fresh(91)[..] else {
            panic!("there is one");
        };
        let Sums {
            count, sum, high, ..
        } = fresh.sums;
        assert_eq!((count, sum, high), (3.0, 9.0, 4.0));
    }

    #[test]
    fn seconds_are_held_for_an_hour_and_for_so_many_figures() {
        let mut history = History::default();
        for at_s in 1..=SECONDS_KEPT + 10 {
            history.take(at_s, "load1", at_s as f64, Detail::Seconds);
        }
        let held: Vec<_> = history.seconds("load1").collect();
        assert_eq!((held[0].0, held.len()), (11, 3_600));
        assert_eq!(history.mean("load1", 3_610, 2), Some(3_609.5));
        let [(name, sums)] = &history.sums_since(3_608)[..] else {
            panic!("there is one figure");
        };
        assert_eq!(
            (name.as_str(), sums.count, sums.low),
            ("load1", 3.0, 3_608.0)
        );
        for number in 0..WITH_SECONDS_MAX {
            history.take(3_610, &format!("site.{number}"), 1.0, Detail::Seconds);
        }
        let last = format!("site.{}", WITH_SECONDS_MAX - 1);
        assert_eq!(history.seconds(&last).count(), 0);
        assert_eq!(history.mean(&last, 3_611, 60), Some(1.0), "by its minute");
        assert_eq!(history.mean(&last, 9_000, 60), None, "it is of long ago");
    }

    #[test]
    fn seconds_of_a_figure_that_is_told_by_the_minute_are_held_beside_it() {
        let mut history = History::default();
        history.hold(59, "site.a.requests", 9.0);
        history.take(59, "site.a.requests", 2.0, Detail::Minutes);
        for at_s in 60..70 {
            history.hold(at_s, "site.a.requests", 1.0);
        }
        let held: Vec<_> = history.seconds("site.a.requests").collect();
        assert_eq!((held.len(), held[0]), (10, (60, 1.0)));
        assert_eq!(history.mean("site.a.requests", 69, 60), Some(2.0));
        let told = history.fresh(70);
        assert_eq!((told.len(), told[0].sums.sum), (1, 2.0));
        history.take(4_000, "site.a.requests", 2.0, Detail::Minutes);
        history.fresh(4_000);
        assert_eq!(history.seconds("site.a.requests").count(), 0, "it is over");
    }

    #[test]
    fn what_is_no_number_or_finds_no_room_is_left_out() {
        let mut history = History::default();
        history.take(0, "load1", f64::NAN, Detail::Minutes);
        for number in 0..=SERIES_MAX {
            history.take(0, &number.to_string(), 1.0, Detail::Minutes);
        }
        assert_eq!(history.fresh(1).len(), SERIES_MAX);
        history.fresh(SECONDS_KEPT + 1);
        history.take(SECONDS_KEPT + 1, "new", 1.0, Detail::Minutes);
        assert_eq!(
            history.fresh(SECONDS_KEPT + 2).len(),
            1,
            "others have made room"
        );
    }

    #[test]
    fn a_clock_that_goes_back_loses_nothing_and_goes_on() {
        let mut history = History::default();
        history.take(600, "load1", 1.0, Detail::Seconds);
        history.take(590, "load1", 3.0, Detail::Seconds);
        let fresh = history.fresh(600);
        assert_eq!((fresh[0].at_s, fresh[0].sums.count), (600, 2.0), "a little");
        history.take(601, "load1", 1.0, Detail::Seconds);
        let over = history.take(60, "load1", 3.0, Detail::Seconds);
        assert_eq!(over.map(|it| it.at_s), Some(600), "a lot");
        assert_eq!(history.fresh(61)[0].at_s, 60);
        assert_eq!(history.seconds("load1").collect::<Vec<_>>(), [(60, 3.0)]);
    }
}
