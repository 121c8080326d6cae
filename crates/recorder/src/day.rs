//! What is kept of one site and day: figures by minute and hour, top lists, visitors, trails.
//!
//! The idea: what was folded in the last seconds and what lies on disk are of one type, and days grow
//! by taking up such pieces. Sums are exact; a list has a bound, and what is beyond it is a sum, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::durations::Durations;
use crate::piece::StoredPiece;

/// Names of a list that a day keeps; the rest are one sum.
pub const NAMES_MAX: usize = 2_000;
/// While the day lasts there may be twice as many: one that comes late may come most in the end.
pub(crate) const NAMES_TODAY_MAX: usize = 2 * NAMES_MAX;
/// Names of a list that are held while pieces or days are added up.
pub(crate) const HELD_MAX: usize = 20_000;
/// Bytes of a name; what is longer is cut.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Visitors whose trails a day keeps, those seen last.
pub(crate) const TRAILS_MAX: usize = 200;
/// Pages of a trail.
const STEPS_MAX: usize = 50;
pub(crate) const MINUTES_OF_DAY: u16 = 1_440;

/// Sums of a minute, an hour or a day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests, of people and bots.
    pub requests: u64,
    /// Of these, those of bots.
    pub bots: u64,
    /// Pages that people saw.
    pub views: u64,
    /// Visits that began.
    pub visits: u64,
    /// Visits of one page: one more when a visit begins, one less with its second page.
    pub bounces: i64,
    /// Seconds between the pages of visits.
    pub visit_s: u64,
    /// Bytes of bodies sent.
    pub bytes: u64,
    /// Requests by the first digit of their status, 1 to 5.
    pub statuses: [u64; 5],
    /// Microseconds spent waiting for limits and other things before the handler.
    pub queue_us: u64,
    /// Microseconds spent by back ends.
    pub upstream_us: u64,
    /// Handshakes of TLS that had this as their first request.
    pub handshakes: u64,
    /// Durations of requests, where they are known.
    pub durations: Durations,
}

/// How many numbers figures are, beside their durations.
pub(crate) const FIGURES: usize = 15;

impl Figures {
    /// As numbers, small where they can be: each request has a status.
    pub(crate) fn numbers(&self) -> [u64; FIGURES] {
        let [one, two, three, four, five] = self.statuses;
        let answered = self.statuses.iter().copied();
        [
            answered.fold(self.requests, u64::wrapping_sub),
            self.bots,
            self.views,
            self.visits,
            // Of visits, so that it is seldom below zero.
            self.visits.wrapping_sub(self.bounces.cast_unsigned()),
            self.visit_s,
            self.bytes,
            one,
            two,
            three,
            four,
            five,
            self.queue_us,
            self.upstream_us,
            self.handshakes,
        ]
    }

    /// What was told by these numbers.
    pub(crate) fn of_numbers(numbers: [u64; FIGURES], durations: Durations) -> Figures {
        let [
            rest,
            bots,
            views,
            visits,
            longer,
            visit_s,
            bytes,
            statuses @ ..,
            queue_us,
            upstream_us,
            handshakes,
        ] = numbers;
        let statuses: [u64; 5] = statuses;
        Figures {
            requests: statuses.into_iter().fold(rest, u64::wrapping_add),
            bots,
            views,
            visits,
            bounces: visits.wrapping_sub(longer).cast_signed(),
            visit_s,
            bytes,
            statuses,
            queue_us,
            upstream_us,
            handshakes,
            durations,
        }
    }

    /// Adds another period's.
    pub fn merge(&mut self, other: &Figures) {
        let sums = [
            (&mut self.requests, other.requests),
            (&mut self.bots, other.bots),
            (&mut self.views, other.views),
            (&mut self.visits, other.visits),
            (&mut self.visit_s, other.visit_s),
            (&mut self.bytes, other.bytes),
            (&mut self.queue_us, other.queue_us),
            (&mut self.upstream_us, other.upstream_us),
            (&mut self.handshakes, other.handshakes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in self.statuses.iter_mut().zip(other.statuses) {
            *sum = sum.saturating_add(more);
        }
        self.bounces = self.bounces.saturating_add(other.bounces);
        self.durations.merge(&other.durations);
    }
}

/// What a list lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListOf {
    /// Pages, by views.
    Pages,
    /// Whatever else was had, by requests.
    Files,
    /// Paths answered 404.
    Missing,
    /// Paths answered 500 and above.
    Errors,
    /// Pages visits began with.
    Entries,
    /// Pages visits ended with.
    Exits,
    /// A page and the next one.
    NextPages,
    /// Where visits came from, in groups.
    Referrers,
    /// Pages elsewhere that visits came from.
    ReferringPages,
    /// Campaigns visits came by.
    Campaigns,
    /// What people searched the site for.
    Searches,
    /// Browsers, by visits.
    Browsers,
    /// Operating systems, by visits.
    Systems,
    /// Kinds of devices, by visits.
    Devices,
    /// Countries, by visits.
    Countries,
    /// Bots, by requests.
    Bots,
    /// Statuses, by requests.
    Statuses,
    /// Rules that answered, or refused, by requests.
    Rules,
    /// Upstreams that were asked, by requests and the time they took.
    BackEnds,
    /// Why requests were refused, or failed.
    Reasons,
    /// Rules whose programs ran, by runs and the processor time these took.
    Programs,
}

impl ListOf {
    /// All, as they lie in a day.
    pub const ALL: [ListOf; 21] = [
        ListOf::Pages,
        ListOf::Files,
        ListOf::Missing,
        ListOf::Errors,
        ListOf::Entries,
        ListOf::Exits,
        ListOf::NextPages,
        ListOf::Referrers,
        ListOf::ReferringPages,
        ListOf::Campaigns,
        ListOf::Searches,
        ListOf::Browsers,
        ListOf::Systems,
        ListOf::Devices,
        ListOf::Countries,
        ListOf::Bots,
        ListOf::Statuses,
        ListOf::Rules,
        ListOf::BackEnds,
        ListOf::Reasons,
        ListOf::Programs,
    ];
}

/// What is to be read of days: a bit for each part that is not always wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartsWanted(u64);

impl PartsWanted {
    /// Totals alone.
    pub const TOTALS: PartsWanted = PartsWanted(0);
    /// Figures by hour.
    pub const HOURS: PartsWanted = PartsWanted(1);
    /// Figures by minute.
    pub const MINUTES: PartsWanted = PartsWanted(1 << 1);
    /// Who came.
    pub const VISITORS: PartsWanted = PartsWanted(1 << 2);
    /// What visitors saw.
    pub const TRAILS: PartsWanted = PartsWanted(1 << 3);
    /// Everything.
    pub const ALL: PartsWanted = PartsWanted(u64::MAX);
    const LISTS_AT: u8 = 8;

    /// A list.
    pub const fn list(of: ListOf) -> PartsWanted {
        PartsWanted(1 << (of as u8 + PartsWanted::LISTS_AT))
    }

    /// These and others.
    #[must_use]
    pub const fn and(self, others: PartsWanted) -> PartsWanted {
        PartsWanted(self.0 | others.0)
    }

    /// Whether all of these are wanted.
    pub(crate) const fn has(self, these: PartsWanted) -> bool {
        self.0 & these.0 == these.0
    }

    /// Whether the list at this place is wanted.
    pub(crate) fn has_list(self, place: u8) -> bool {
        self.0
            .checked_shr(u32::from(place) + u32::from(PartsWanted::LISTS_AT))
            .is_some_and(|it| it & 1 == 1)
    }
}

/// How often a name came, and what came with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// How often. Below zero only in a piece of a day: a visit left the page it had ended with.
    pub count: i64,
    /// Bytes sent.
    pub bytes: u64,
    /// Microseconds, of those whose duration is known.
    pub us: u64,
    /// How many these are.
    pub timed: u64,
}

impl Tally {
    /// So many times, and nothing else.
    pub fn times(count: i64) -> Tally {
        Tally {
            count,
            ..Tally::default()
        }
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.us = self.us.saturating_add(other.us);
        self.timed = self.timed.saturating_add(other.timed);
    }
}

/// Names with their tallies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopList {
    names: HashMap<Box<str>, Tally>,
    /// Of the names that are not kept.
    other: Tally,
}

impl TopList {
    /// Adds to a name.
    pub fn add(&mut self, name: &str, tally: &Tally) {
        match self.names.get_mut(name) {
            Some(known) => known.merge(tally),
            None => {
                self.names.insert(name.into(), *tally);
            }
        }
    }

    /// Adds what came under names that are not kept.
    pub(crate) fn add_other(&mut self, tally: &Tally) {
        self.other.merge(tally);
    }

    /// Keeps the names that came most; the rest are summed up.
    pub fn trim(&mut self, names_max: usize) {
        let other = &mut self.other;
        self.names.retain(|_, tally| {
            let stays = tally.count > 0;
            if !stays {
                other.merge(tally);
            }
            stays
        });
        if self.names.len() <= names_max {
            return;
        }
        let mut names: Vec<_> = self.names.drain().collect();
        names.sort_unstable_by(|(a, one), (b, two)| two.count.cmp(&one.count).then(a.cmp(b)));
        for (_, tally) in names.drain(names_max..) {
            self.other.merge(&tally);
        }
        self.names = names.into_iter().collect();
    }

    /// The names, those that came most first.
    pub fn ranked(&self) -> Vec<(&str, Tally)> {
        let names = self.names.iter().filter(|(_, tally)| tally.count > 0);
        let mut names: Vec<_> = names.map(|(name, tally)| (&**name, *tally)).collect();
        names.sort_unstable_by(|(a, one), (b, two)| two.count.cmp(&one.count).then(a.cmp(b)));
        names
    }

    /// The names, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &Tally)> {
        self.names.iter().map(|(name, tally)| (&**name, tally))
    }

    /// How often a name came, and what came with it.
    pub(crate) fn tally(&self, name: &str) -> Tally {
        self.names.get(name).copied().unwrap_or_default()
    }

    /// What came under names that are not kept.
    pub fn other(&self) -> Tally {
        self.other
    }

    /// How often anything came.
    pub fn total(&self) -> i64 {
        let counts = self.names.values().map(|tally| tally.count);
        counts.fold(self.other.count, i64::saturating_add)
    }

    /// Whether nothing ever came.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.other == Tally::default()
    }
}

/// All lists, in the order of [`ListOf::ALL`].
pub type Lists = [TopList; ListOf::ALL.len()];

/// A page of a trail.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrailStep {
    /// Second of the day.
    pub second: u32,
    /// The page.
    pub page: Box<str>,
}

/// One site's day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DayFigures {
    /// The whole day.
    pub total: Figures,
    /// By hour.
    pub hours: BTreeMap<u8, Figures>,
    /// By minute of the day; those with requests alone.
    pub minutes: BTreeMap<u16, Figures>,
    /// What was asked for, and by whom.
    pub lists: Lists,
    /// Who came, as 48 bits of a salted hash.
    pub visitors: BTreeSet<u64>,
    /// How many came, where they themselves are no longer kept.
    pub visitors_forgotten: u64,
    /// Pages that visitors saw, by visitor.
    pub trails: BTreeMap<u64, Vec<TrailStep>>,
}

impl DayFigures {
    /// A list.
    pub fn list(&self, of: ListOf) -> &TopList {
        // The array has as many places as there are kinds.
        &self.lists[of as usize]
    }

    /// How many visitors came.
    pub fn visitor_count(&self) -> u64 {
        self.visitors_forgotten.max(self.visitors.len() as u64)
    }

    /// Takes up a piece of the same day; of its lists those that are wanted.
    pub fn absorb(&mut self, piece: StoredPiece<'_>, wanted: PartsWanted) {
        for (minute, figures) in piece.minutes {
            let minute = minute.min(MINUTES_OF_DAY - 1);
            self.total.merge(&figures);
            let hour = u8::try_from(minute / 60).unwrap_or(u8::MAX);
            self.hours.entry(hour).or_default().merge(&figures);
            self.minutes.entry(minute).or_default().merge(&figures);
        }
        for (of, name, tally) in piece.names {
            let list = self.lists.get_mut(usize::from(of));
            if let (true, Some(list)) = (wanted.has_list(of), list) {
                list.add(name, &tally);
            }
        }
        self.bound();
        self.visitors.extend(piece.visitors);
        if !wanted.has(PartsWanted::TRAILS) {
            return;
        }
        for (visitor, second, page) in piece.steps {
            let steps = self.trails.entry(visitor).or_default();
            let page = page.into();
            steps.push(TrailStep { second, page });
        }
        for steps in self.trails.values_mut() {
            // Of one second they are in the order they came in.
            steps.sort_by_key(|step| step.second);
            steps.truncate(STEPS_MAX);
        }
        self.trim_trails();
    }

    /// Keeps lists within [`HELD_MAX`].
    pub(crate) fn bound(&mut self) {
        let large = self.lists.iter_mut();
        let large = large.filter(|list| list.names.len() > HELD_MAX);
        large.for_each(|list| list.trim(HELD_MAX / 2));
    }

    /// Brings lists down to so many names, once all pieces are taken up.
    pub fn trim(&mut self, names_max: usize) {
        self.lists.iter_mut().for_each(|list| list.trim(names_max));
    }

    /// Keeps the trails of those who were seen last.
    fn trim_trails(&mut self) {
        if self.trails.len() <= TRAILS_MAX {
            return;
        }
        let last = |(visitor, steps): (&u64, &Vec<TrailStep>)| {
            (steps.last().map_or(0, |step| step.second), *visitor)
        };
        let mut order: Vec<_> = self.trails.iter().map(last).collect();
        order.sort_unstable();
        let surplus = order.len() - TRAILS_MAX;
        for (_, visitor) in order.into_iter().take(surplus) {
            self.trails.remove(&visitor);
        }
    }
}

/// A name, cut to [`NAME_BYTES_MAX`].
pub(crate) fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::piece::Piece;

    #[test]
    fn a_list_keeps_the_names_that_came_most_and_the_sum_of_all() {
        let mut list = TopList::default();
        for number in 0..10_i64 {
            list.add(&format!("/{number}"), &Tally::times(number + 1));
        }
        let total = list.total();
        list.trim(3);
        let names: Vec<_> = list.ranked().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["/9", "/8", "/7"]);
        assert_eq!(list.total(), total);
        assert_eq!(list.other().count, (1..=7).sum::<i64>());
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        let long = "日".repeat(200);
        assert_eq!(cut(&long).len(), 255);
        assert_eq!(cut("/a"), "/a");
    }

    #[test]
    fn pieces_of_a_day_make_its_hours_and_its_total() {
        let mut day = DayFigures::default();
        for (minute, requests) in [(59, 2), (60, 3), (1_439, 5)] {
            let mut piece = Piece::default();
            piece.minute(minute).requests = requests;
            day.absorb(piece.stored(), PartsWanted::ALL);
        }
        assert_eq!(day.total.requests, 10);
        let hours = day.hours.iter().map(|(hour, it)| (*hour, it.requests));
        assert_eq!(hours.collect::<Vec<_>>(), [(0, 2), (1, 3), (23, 5)]);
    }

    #[test]
    fn of_trails_those_seen_last_are_kept() {
        let mut day = DayFigures::default();
        for visitor in 0..=TRAILS_MAX as u64 {
            let mut piece = Piece::default();
            piece.step(visitor, 100 + visitor as u32, &"/".into());
            day.absorb(piece.stored(), PartsWanted::ALL);
        }
        assert_eq!(day.trails.len(), TRAILS_MAX);
        assert!(!day.trails.contains_key(&0));
        // Within one piece, too, it is those who came last.
        let mut piece = Piece::default();
        for second in 1_000..1_100 {
            piece.step(5, second, &"/again".into());
        }
        for visitor in 0..TRAILS_MAX as u64 {
            piece.step(1_000 + visitor, 5_000, &"/".into());
        }
        piece.step(7, 6_000, &"/".into());
        day.absorb(piece.stored(), PartsWanted::ALL);
        assert_eq!(day.trails.len(), TRAILS_MAX);
        assert!(!day.trails.contains_key(&5) && day.trails.contains_key(&7));
        let mut piece = Piece::default();
        for second in 7_000..7_100 {
            piece.step(7, second, &"/again".into());
        }
        day.absorb(piece.stored(), PartsWanted::ALL);
        assert_eq!(day.trails[&7].len(), STEPS_MAX);
    }
}
