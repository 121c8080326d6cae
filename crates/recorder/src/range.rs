//! The figures of a site from one day to another.
//!
//! The idea: sums, histograms and lists of days add up. Visitors do only within one salt: of several
//! it is the sum of what each knows, and that is said.

use std::collections::{BTreeMap, BTreeSet};

use crate::day::{DayFigures, Figures, ListOf, Lists, PartsWanted, TopList, TrailStep};
use crate::salts::{SaltPeriod, civil};
use crate::store::{FigureStore, StoreError};

/// Trails of a range.
const TRAILS_MAX: usize = 100;
/// Days whose hours a range's are compared with.
pub const COMPARED_DAYS: i32 = 28;

/// What a range comes to.
#[derive(Debug, Default)]
pub struct RangeFigures {
    /// Its first day.
    pub from: i32,
    /// Its last.
    pub to: i32,
    /// Everything.
    pub total: Figures,
    /// Days that have figures, with their visitors.
    pub days: Vec<(i32, Figures, u64)>,
    /// Sums by hour of the day, and of how many days these are.
    pub hours: BTreeMap<u8, Figures>,
    /// By minute, where the range is one day that still has minutes.
    pub minutes: BTreeMap<u16, Figures>,
    /// Of the 28 days before the range.
    pub hours_before: BTreeMap<u8, Figures>,
    /// Days with hours in the range, and before it.
    pub days_with_hours: [u32; 2],
    /// What was asked for, and by whom.
    pub lists: Lists,
    /// How many visitors came, by salts: exact where it was one.
    pub visitors: u64,
    /// In how many salts' times the range has visitors.
    pub salts: u32,
    /// Visitors who had not come before within their salt, and those who had, where a salt holds longer
    /// than a day and they are still known.
    pub new_and_returning: Option<(u64, u64)>,
    /// Trails, those that ended last first: day, visitor, pages.
    pub trails: Vec<(i32, u64, Vec<TrailStep>)>,
}

/// Visitors of one salt's time.
#[derive(Debug, Default)]
struct OneSalt {
    known: BTreeSet<u64>,
    /// Known before the range.
    before: BTreeSet<u64>,
    /// Days of which only the number is left.
    forgotten: u64,
    is_in_range: bool,
}

impl RangeFigures {
    /// Adds up days from `from` to `to`: what is wanted of them.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn read(
        store: &FigureStore,
        site: &str,
        (from, to): (i32, i32),
        salt: SaltPeriod,
        wanted: PartsWanted,
    ) -> Result<RangeFigures, StoreError> {
        let mut range = RangeFigures {
            from,
            to,
            ..RangeFigures::default()
        };
        let mut salts: BTreeMap<i64, OneSalt> = BTreeMap::new();
        let first_salt = salt.number(from);
        let before = (
            from.saturating_sub(COMPARED_DAYS + 3),
            from.saturating_sub(1),
        );
        let knows_visitors = wanted.has(PartsWanted::VISITORS);
        let mut compared = PartsWanted::TOTALS;
        if wanted.has(PartsWanted::HOURS) {
            compared = compared.and(PartsWanted::HOURS);
        }
        if knows_visitors && salt != SaltPeriod::Day {
            compared = compared.and(PartsWanted::VISITORS);
        }
        if compared != PartsWanted::TOTALS {
            store.each_day(site, before, compared, |day, figures| {
                if day >= from.saturating_sub(COMPARED_DAYS) {
                    range.add_before(figures);
                }
                if salt.number(day) == first_salt {
                    let known = salts.entry(first_salt).or_default();
                    known.before.append(&mut figures.visitors);
                }
            })?;
        }
        range.lists = store.each_day(site, (from, to), wanted, |day, figures| {
            salts.entry(salt.number(day)).or_default().add(figures);
            range.add(day, figures);
        })?;
        if knows_visitors {
            range.count_visitors(&salts, salt);
        }
        range.trails.reverse();
        range.trails.truncate(TRAILS_MAX);
        Ok(range)
    }

    fn add_before(&mut self, figures: &DayFigures) {
        let [_, days] = &mut self.days_with_hours;
        *days += u32::from(!figures.hours.is_empty());
        for (hour, more) in &figures.hours {
            self.hours_before.entry(*hour).or_default().merge(more);
        }
    }

    /// Adds a day, but for its lists.
    fn add(&mut self, day: i32, figures: &mut DayFigures) {
        let visitors = figures.visitor_count();
        let [days, _] = &mut self.days_with_hours;
        *days += u32::from(!figures.hours.is_empty());
        for (hour, more) in &figures.hours {
            self.hours.entry(*hour).or_default().merge(more);
        }
        if self.from == self.to {
            self.minutes = std::mem::take(&mut figures.minutes);
        }
        self.total.merge(&figures.total);
        let trails = std::mem::take(&mut figures.trails);
        let mut trails: Vec<_> = trails.into_iter().collect();
        trails.sort_by_key(|(_, steps)| steps.last().map_or(0, |step| step.second));
        let trails = trails.into_iter();
        self.trails
            .extend(trails.map(|(visitor, steps)| (day, visitor, steps)));
        let surplus = self.trails.len().saturating_sub(2 * TRAILS_MAX);
        self.trails.drain(..surplus);
        self.days
            .push((day, std::mem::take(&mut figures.total), visitors));
    }

    fn count_visitors(&mut self, salts: &BTreeMap<i64, OneSalt>, salt: SaltPeriod) {
        let in_range = || salts.values().filter(|one| one.is_in_range);
        self.visitors = in_range().map(OneSalt::count).sum();
        self.salts = in_range().count().try_into().unwrap_or(u32::MAX);
        let all_known = in_range().all(|one| one.forgotten == 0);
        if salt != SaltPeriod::Day && all_known {
            let returning = in_range().map(|one| one.known.intersection(&one.before).count());
            let returning = returning.sum::<usize>() as u64;
            self.new_and_returning = Some((self.visitors.saturating_sub(returning), returning));
        }
    }

    /// A list.
    pub fn list(&self, of: ListOf) -> &TopList {
        &self.lists[of as usize]
    }

    /// Sums by weekday, from Monday on, with how many such days there were.
    pub fn weekdays(&self) -> [(Figures, u32); 7] {
        let mut weekdays: [(Figures, u32); 7] = Default::default();
        for (day, figures, _) in &self.days {
            let weekday = civil(*day).weekday().to_monday_zero_offset();
            let place = usize::try_from(weekday).unwrap_or(0);
            if let Some((sum, days)) = weekdays.get_mut(place) {
                sum.merge(figures);
                *days += 1;
            }
        }
        weekdays
    }

    /// Sums by month, as `2026-11`, with visitors where one salt held for the month.
    pub fn months(&self) -> BTreeMap<String, Figures> {
        let mut months: BTreeMap<String, Figures> = BTreeMap::new();
        for (day, figures, _) in &self.days {
            let month = civil(*day).strftime("%Y-%m").to_string();
            months.entry(month).or_default().merge(figures);
        }
        months
    }
}

impl OneSalt {
    fn add(&mut self, figures: &DayFigures) {
        self.is_in_range = true;
        match figures.visitors.is_empty() {
            true => self.forgotten += figures.visitor_count(),
            false => self.known.extend(&figures.visitors),
        }
    }

    fn count(&self) -> u64 {
        self.known.len() as u64 + self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;
    use crate::piece::Piece;

    #[test]
    fn visitors_are_exact_within_a_salt_and_of_several_a_sum() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        // Days of January 1970, so of one month.
        for (day, visitors) in [(10, [1, 2]), (11, [2, 3])] {
            let mut piece = Piece::default();
            piece.minute(0).views = 2;
            for visitor in visitors {
                piece.step(visitor, 0, &"/".into());
            }
            let pieces = [("a.example", day, &piece)].into_iter();
            store.write(pieces, None, 11).expect("written");
        }
        let read = |from, salt| {
            let range = RangeFigures::read(&store, "a.example", (from, 11), salt, PartsWanted::ALL);
            let range = range.expect("it is read");
            (range.visitors, range.salts, range.new_and_returning)
        };
        assert_eq!(read(10, SaltPeriod::Day), (4, 2, None));
        assert_eq!(read(10, SaltPeriod::Month), (3, 1, Some((3, 0))));
        assert_eq!(read(11, SaltPeriod::Month), (2, 1, Some((1, 1))));
    }
}
