//! Visits that are under way: who looked at which page last, and when.
//!
//! The idea: a visit ends with half an hour of silence. What is counted of it is counted at once, with
//! each page, so that nothing is lost with a visit that nobody ends; this only knows what went before.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::input::hash;
use crate::names::ByHash;

/// Microseconds of silence that end a visit.
const SILENCE_US: u64 = 30 * 60 * 1_000_000;
/// Microseconds of the log between two looks for visits that ended.
const SWEEP_US: u64 = 60 * 1_000_000;
/// A line so much older than the latest begins an older log.
const OLDER_LOG_US: u64 = 24 * 3_600 * 1_000_000;
/// Visits under way that are kept; beyond, those silent longest are taken for ended.
const OPEN_MAX: usize = 400_000;

/// A site and a visitor of it.
pub(crate) type VisitorOf = (u64, u64);

/// A page, and a hash that stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) hash: u64,
    pub(crate) text: Rc<str>,
}

#[derive(Debug, Clone)]
struct Visit {
    last_us: i64,
    /// Day of the last page.
    day: i32,
    page: Page,
    is_first_page: bool,
    /// When the last of those pages was seen that came late, from another log.
    late_us: i64,
}

/// A visit under way, as it is kept from one run to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenVisit {
    /// Whose site.
    pub site: Box<str>,
    /// Who.
    pub visitor: u64,
    /// When the last page was seen, microseconds after 1970.
    pub last_us: i64,
    /// The day of that.
    pub day: i32,
    /// The page.
    pub page: Box<str>,
    /// Whether it was the visit's first.
    pub is_first_page: bool,
}

/// What a view is to a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Viewed {
    /// It begins one.
    First,
    /// It goes on with one.
    Further(Before),
    /// It goes on with one that was over when the one under way began.
    Late,
}

/// What went before a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) page: Page,
    pub(crate) day: i32,
    pub(crate) was_first_page: bool,
    pub(crate) since_s: u64,
}

/// All visits under way.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    open: ByHash<VisitorOf, Visit>,
    /// The latest time that was seen: lines come late, and one log after the other.
    latest_us: i64,
    swept_us: i64,
}

impl Visits {
    /// Takes note of a page that somebody sees. Where the clock went back by less than a visit's
    /// silence, the visit goes on and no time has passed; by more, the view is of a visit before, and the
    /// one under way stays as it is.
    pub(crate) fn view(&mut self, of: VisitorOf, at_us: i64, day: i32, page: &Page) -> Viewed {
        self.sweep(at_us);
        let visit = Visit {
            last_us: at_us,
            day,
            page: page.clone(),
            is_first_page: true,
            late_us: i64::MIN,
        };
        let Some(known) = self.open.get_mut(&of) else {
            self.open.insert(of, visit);
            return Viewed::First;
        };
        if known.last_us.abs_diff(at_us) > SILENCE_US {
            if at_us > known.last_us {
                *known = visit;
                return Viewed::First;
            }
            let before_us = std::mem::replace(&mut known.late_us, at_us);
            return match before_us.abs_diff(at_us) > SILENCE_US {
                true => Viewed::First,
                false => Viewed::Late,
            };
        }
        let latest_us = known.last_us.max(at_us);
        let before = std::mem::replace(known, visit);
        (known.last_us, known.late_us) = (latest_us, before.late_us);
        known.is_first_page = false;
        Viewed::Further(Before {
            page: before.page,
            day: before.day,
            was_first_page: before.is_first_page,
            since_s: latest_us.abs_diff(before.last_us) / 1_000_000,
        })
    }

    /// What is under way was seen so much earlier, by the clock of now.
    pub(crate) fn clock_went_back(&mut self, by_us: i64) {
        for visit in self.open.values_mut() {
            visit.last_us = visit.last_us.saturating_sub(by_us);
        }
        self.latest_us = self.latest_us.saturating_sub(by_us);
        self.swept_us = self.latest_us;
    }

    /// Forgets visits that have ended, now and then, and the oldest where there are too many. A late
    /// line ends nobody's: what counts is the latest time that was seen.
    fn sweep(&mut self, at_us: i64) {
        if at_us.saturating_add_unsigned(OLDER_LOG_US) < self.latest_us {
            (self.latest_us, self.swept_us) = (at_us, at_us);
        }
        self.latest_us = self.latest_us.max(at_us);
        if self.swept_us.abs_diff(self.latest_us) > SWEEP_US {
            self.swept_us = self.latest_us;
            self.keep_within(SILENCE_US);
        }
        let mut silence_us = SILENCE_US;
        while self.open.len() >= OPEN_MAX {
            silence_us /= 2;
            match silence_us {
                0 => self.open.clear(),
                _ => self.keep_within(silence_us),
            }
        }
    }

    fn keep_within(&mut self, silence_us: u64) {
        let oldest_us = self.latest_us.saturating_sub_unsigned(silence_us);
        self.open.retain(|_, visit| visit.last_us >= oldest_us);
    }

    /// Goes on with a visit of an earlier run.
    pub(crate) fn resume(&mut self, site: u64, open: &OpenVisit) {
        if self.open.len() >= OPEN_MAX {
            return;
        }
        let visit = Visit {
            last_us: open.last_us,
            day: open.day,
            page: Page {
                hash: hash(open.page.as_bytes()),
                text: (*open.page).into(),
            },
            is_first_page: open.is_first_page,
            late_us: i64::MIN,
        };
        self.open.insert((site, open.visitor), visit);
    }

    /// What is under way, for the next run.
    pub(crate) fn under_way<'a>(
        &'a self,
        site: impl Fn(u64) -> Option<Rc<str>> + 'a,
    ) -> impl Iterator<Item = OpenVisit> + 'a {
        self.open.iter().filter_map(move |((of, visitor), visit)| {
            Some(OpenVisit {
                site: (*site(*of)?).into(),
                visitor: *visitor,
                last_us: visit.last_us,
                day: visit.day,
                page: (*visit.page.text).into(),
                is_first_page: visit.is_first_page,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: i64 = 60_000_000;

    fn page(text: &str) -> Page {
        Page {
            hash: hash(text.as_bytes()),
            text: text.into(),
        }
    }

    fn further(viewed: Viewed) -> Before {
        match viewed {
            Viewed::Further(before) => before,
            Viewed::First | Viewed::Late => panic!("it goes on"),
        }
    }

    #[test]
    fn a_visit_goes_on_until_half_an_hour_of_silence() {
        let mut visits = Visits::default();
        let [first, second] = ["/", "/b"].map(page);
        assert_eq!(visits.view((1, 1), 0, 0, &first), Viewed::First);
        let before = further(visits.view((1, 1), 29 * MINUTE_US, 0, &second));
        assert_eq!((&*before.page.text, before.since_s), ("/", 29 * 60));
        assert!(before.was_first_page);
        let before = further(visits.view((1, 1), 58 * MINUTE_US, 0, &first));
        assert!(!before.was_first_page);
        assert_eq!(
            visits.view((1, 1), 89 * MINUTE_US, 0, &first),
            Viewed::First
        );
        assert_eq!(
            visits.view((2, 1), 89 * MINUTE_US, 0, &first),
            Viewed::First
        );
    }

    #[test]
    fn a_clock_that_goes_back_a_little_ends_no_visit_and_takes_no_time() {
        let mut visits = Visits::default();
        let page = page("/");
        visits.view((1, 1), 10 * MINUTE_US, 0, &page);
        let before = further(visits.view((1, 1), 9 * MINUTE_US, 0, &page));
        assert_eq!(before.since_s, 0);
        let before = further(visits.view((1, 1), 11 * MINUTE_US, 0, &page));
        assert_eq!(before.since_s, 60);
        assert_eq!(
            visits.view((1, 1), -90 * MINUTE_US, 0, &page),
            Viewed::First
        );
    }

    #[test]
    fn a_visit_goes_on_though_the_clock_is_put_back_by_hours() {
        let mut visits = Visits::default();
        let page = page("/");
        visits.view((1, 1), 100 * MINUTE_US, 0, &page);
        visits.clock_went_back(60 * MINUTE_US);
        let before = further(visits.view((1, 1), 41 * MINUTE_US, 0, &page));
        assert_eq!(before.since_s, 60);
        // That it is silent then ends it as ever.
        let later = visits.view((1, 1), 72 * MINUTE_US, 0, &page);
        assert_eq!(later, Viewed::First);
    }

    #[test]
    fn a_late_line_ends_no_visit() {
        let mut visits = Visits::default();
        let page = page("/");
        let now_us = 1_000 * MINUTE_US;
        for visitor in 0..3 {
            visits.view((visitor, visitor), now_us, 0, &page);
        }
        // A page that took an hour, and another log that begins two hours earlier.
        for late in [60, 120] {
            let at_us = now_us - late * MINUTE_US;
            assert_eq!(visits.view((9, 9), at_us, 0, &page), Viewed::First);
            assert_eq!(visits.view((0, 0), at_us, 0, &page), Viewed::First);
            // Of that visit, too, further pages are its own.
            let at_us = at_us + MINUTE_US;
            assert_eq!(visits.view((0, 0), at_us, 0, &page), Viewed::Late);
        }
        for visitor in 0..3 {
            further(visits.view((visitor, visitor), now_us + MINUTE_US, 0, &page));
        }
        // A log of days before has visits of its own, which end as all do.
        let before_us = now_us - 5_000 * MINUTE_US;
        visits.view((1, 7), before_us, 0, &page);
        visits.view((1, 8), before_us + 40 * MINUTE_US, 0, &page);
        assert!(!visits.open.contains_key(&(1, 7)));
    }

    #[test]
    fn visits_under_way_are_bounded() {
        let mut visits = Visits::default();
        let page = page("/");
        for visitor in 0..2 * OPEN_MAX as u64 {
            let at_us = i64::try_from(visitor).unwrap_or(0) * 3_000;
            visits.view((1, visitor), at_us, 0, &page);
        }
        assert!(visits.open.len() <= OPEN_MAX);
        let newest = 2 * OPEN_MAX as u64 - 1;
        assert!(visits.open.contains_key(&(1, newest)));
    }
}
