//! The fold beside a model that counts everything naively, and what it does at its edges.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::day::{DayFigures, Figures, NAMES_MAX, PartsWanted};

const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";
const DAY_US: i64 = DAY_S * 1_000_000;

fn fold() -> Fold {
    let mut fold = Fold::new(TimeZone::UTC, Vec::new());
    fold.tell_site(1, "a.example");
    fold.tell_site(2, "b.example");
    fold.tell(100, TextOf::Agent, CHROME);
    fold.tell(101, TextOf::Agent, "Googlebot/2.1");
    fold.tell(200, TextOf::Referrer, "https://www.google.com/search?q=x");
    fold.tell(201, TextOf::Referrer, "https://a.example/other?secret");
    fold
}

fn request(at_us: i64) -> RingRecord {
    RingRecord {
        at_us,
        site: 1,
        path: 10,
        agent: 100,
        visitor: 7,
        bytes_out: 1_000,
        total_us: UNKNOWN_US,
        queue_us: UNKNOWN_US,
        upstream_us: UNKNOWN_US,
        program_us: UNKNOWN_US,
        stands_for: 1,
        status: 200,
        is_look: true,
        ..RingRecord::default()
    }
}

/// All days of a site as they would be read from disk.
fn days(fold: &Fold, site: &str) -> BTreeMap<i32, DayFigures> {
    let mut days: BTreeMap<i32, DayFigures> = BTreeMap::new();
    for (_, day, piece) in fold.pieces().filter(|(name, _, _)| *name == site) {
        days.entry(day)
            .or_default()
            .absorb(piece.stored(), PartsWanted::ALL);
    }
    days
}

fn counts(day: &DayFigures, of: ListOf) -> Vec<(String, i64)> {
    let ranked = day.list(of).ranked().into_iter();
    ranked
        .map(|(name, tally)| (name.to_owned(), tally.count))
        .collect()
}

#[test]
fn a_visit_is_counted_with_its_pages() {
    let mut fold = fold();
    for (hash, path) in [(10, "/"), (11, "/b"), (12, "/c.png")] {
        fold.tell(hash, TextOf::Path, path);
    }
    let minute = 60_000_000;
    for (at, path, referrer) in [
        (0, 10, 200),
        (1, 12, 201),
        (2, 11, 201),
        (3, 11, 0),
        (4, 10, 0),
    ] {
        fold.take(&RingRecord {
            path,
            referrer,
            country: *b"JP",
            ..request(at * minute)
        });
    }
    let days = days(&fold, "a.example");
    let day = &days[&0];
    let total = &day.total;
    assert_eq!((total.requests, total.views, total.visits), (5, 4, 1));
    assert_eq!((total.bounces, total.visit_s), (0, 240));
    assert_eq!(day.visitor_count(), 1);
    let one = |name: &str| vec![(name.to_owned(), 1)];
    assert_eq!(counts(day, ListOf::Entries), one("/"));
    assert_eq!(counts(day, ListOf::Exits), one("/"));
    assert_eq!(counts(day, ListOf::Files), one("/c.png"));
    assert_eq!(counts(day, ListOf::Referrers), one("Google"));
    assert_eq!(
        counts(day, ListOf::ReferringPages),
        one("google.com/search")
    );
    assert_eq!(counts(day, ListOf::Browsers), one("Chrome 120"));
    assert_eq!(counts(day, ListOf::Countries), one("JP"));
    let pairs = counts(day, ListOf::NextPages);
    assert_eq!(pairs, [("/ → /b".to_owned(), 1), ("/b → /".to_owned(), 1)]);
    let trail: Vec<_> = day.trails[&7].iter().map(|step| &*step.page).collect();
    assert_eq!(trail, ["/", "/b", "/b", "/"]);
}

#[test]
fn a_visit_over_midnight_is_one_and_ends_on_the_day_it_ended() {
    let mut fold = fold();
    fold.tell(10, TextOf::Path, "/");
    fold.tell(11, TextOf::Path, "/b");
    fold.take(&request(DAY_US - 1));
    fold.take(&RingRecord {
        path: 11,
        ..request(DAY_US + 1)
    });
    let days = days(&fold, "a.example");
    assert_eq!((days[&0].total.visits, days[&1].total.visits), (1, 0));
    assert!(counts(&days[&0], ListOf::Exits).is_empty());
    assert_eq!(counts(&days[&1], ListOf::Exits), [("/b".to_owned(), 1)]);
    assert_eq!((days[&0].visitor_count(), days[&1].visitor_count()), (1, 1));
}

#[test]
fn bots_are_a_class_of_their_own_and_visit_nothing() {
    let mut fold = fold();
    fold.tell(10, TextOf::Path, "/");
    fold.take(&RingRecord {
        agent: 101,
        ..request(0)
    });
    fold.take(&RingRecord {
        agent: 0,
        ..request(0)
    });
    let days = days(&fold, "a.example");
    let total = &days[&0].total;
    assert_eq!((total.requests, total.bots, total.views), (2, 2, 0));
    assert_eq!(total.visits, 0);
    let bots = counts(&days[&0], ListOf::Bots);
    assert_eq!(
        bots,
        [("Googlebot".to_owned(), 1), ("no name".to_owned(), 1)]
    );
}

#[test]
fn days_are_those_of_the_zone() {
    let zone = TimeZone::get("Asia/Tokyo").expect("it is built in");
    let mut fold = Fold::new(zone, Vec::new());
    fold.tell_site(1, "a.example");
    fold.take(&request(15 * 3_600_000_000));
    let days = days(&fold, "a.example");
    assert_eq!(days.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(days[&1].minutes.keys().collect::<Vec<_>>(), [&0]);
}

#[test]
fn of_a_page_seen_on_both_sides_of_midnight_the_exit_moves_along() {
    let mut fold = fold();
    fold.tell(10, TextOf::Path, "/");
    fold.tell(11, TextOf::Path, "/b");
    for (at_us, path) in [(-1, 10), (1, 10), (2, 11)] {
        fold.take(&RingRecord {
            path,
            ..request(DAY_US + at_us)
        });
    }
    let days = days(&fold, "a.example");
    assert!(counts(&days[&0], ListOf::Exits).is_empty());
    assert_eq!(counts(&days[&1], ListOf::Exits), [("/b".to_owned(), 1)]);
    assert_eq!(counts(&days[&1], ListOf::NextPages).len(), 1);
}

#[test]
fn sites_beyond_the_cap_are_counted_as_not_recorded() {
    let mut fold = Fold::new(TimeZone::UTC, Vec::new());
    for number in 0..=SITES_MAX as u64 {
        fold.tell_site(number, &format!("s{number}.example"));
        fold.take(&RingRecord {
            site: number,
            ..request(0)
        });
    }
    assert_eq!(fold.pieces().count(), SITES_MAX);
    assert_eq!(fold.not_recorded(), 1);
}

#[test]
fn any_record_is_taken() {
    let mut fold = fold();
    for at_us in [i64::MIN, -1, 0, i64::MAX] {
        for status in [0, 99, 304, 404, 599, u16::MAX] {
            fold.take(&RingRecord {
                bytes_out: u64::MAX,
                total_us: u32::MAX - 1,
                stands_for: u16::MAX,
                visitor: u64::MAX,
                status,
                ..request(at_us)
            });
        }
    }
    assert!(fold.pieces().count() > 0);
}

/// A request of the model.
#[derive(Debug, Clone)]
struct MadeRequest {
    second: i64,
    site: u64,
    path: u64,
    visitor: u64,
    status: u16,
    us: u32,
    is_after_handshake: bool,
}

fn made() -> impl Strategy<Value = MadeRequest> {
    let status = prop_oneof![Just(200_u16), Just(304), Just(404), Just(500), Just(301)];
    let parts = (
        0..4_000_i64,
        1..=2_u64,
        0..30_u64,
        0..6_u64,
        status,
        (1..5_000_u32, any::<bool>()),
    );
    parts.prop_map(|(second, site, path, visitor, status, rest)| MadeRequest {
        second,
        site,
        path,
        visitor,
        status,
        us: rest.0,
        is_after_handshake: rest.1,
    })
}

proptest! {
    #[test]
    fn what_is_folded_is_what_a_naive_count_says(
        mut requests in proptest::collection::vec(made(), 1..300),
        piece in 1..100_usize,
    ) {
        requests.sort_by_key(|request| request.second);
        let start = DAY_S - 2_000;
        let mut fold = fold();
        for path in 0..30_u64 {
            fold.tell(1_000 + path, TextOf::Path, &format!("/{path}"));
        }
        let mut read: BTreeMap<(u64, i32), DayFigures> = BTreeMap::new();
        for (number, it) in requests.iter().enumerate() {
            fold.take(&RingRecord {
                site: it.site,
                path: 1_000 + it.path,
                visitor: it.visitor,
                status: it.status,
                total_us: it.us,
                is_after_handshake: it.is_after_handshake,
                ..request((start + it.second) * 1_000_000)
            });
            if number % piece == 0 || number + 1 == requests.len() {
                for (site, day, piece) in fold.pieces() {
                    let site = if site == "a.example" { 1 } else { 2 };
                    read.entry((site, day)).or_default().absorb(piece.stored(), PartsWanted::ALL);
                }
                fold.written();
            }
        }
        for (site, day) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
            let of = |it: &&MadeRequest| {
                it.site == site && (start + it.second).div_euclid(DAY_S) == i64::from(day)
            };
            let asked: Vec<&MadeRequest> = requests.iter().filter(of).collect();
            let Some(figures) = read.get(&(site, day)) else {
                prop_assert!(asked.is_empty());
                continue;
            };
            let views: Vec<&&MadeRequest> = asked.iter().filter(|it| matches!(it.status, 200 | 304)).collect();
            prop_assert_eq!(figures.total.requests, asked.len() as u64);
            prop_assert_eq!(figures.total.bytes, 1_000 * asked.len() as u64);
            prop_assert_eq!(figures.total.views, views.len() as u64);
            let handshakes = asked.iter().filter(|it| it.is_after_handshake).count();
            prop_assert_eq!(figures.total.handshakes, handshakes as u64);
            prop_assert_eq!(figures.total.durations.count(), asked.len() as u64);
            let visitors: BTreeSet<u64> = views.iter().map(|it| it.visitor).collect();
            prop_assert_eq!(&figures.visitors, &visitors);
            let mut pages: BTreeMap<String, i64> = BTreeMap::new();
            for view in &views {
                *pages.entry(format!("/{}", view.path)).or_default() += 1;
            }
            let told: BTreeMap<String, i64> = counts(figures, ListOf::Pages).into_iter().collect();
            prop_assert_eq!(told, pages);
        }
        // Visits, over both days: a visitor's views with less than half an hour between them.
        for site in [1, 2] {
            let mut last: BTreeMap<u64, (i64, u64)> = BTreeMap::new();
            let (mut visits, mut bounces, mut seconds) = (0_u64, 0_i64, 0_i64);
            let views = requests.iter().filter(|it| it.site == site && matches!(it.status, 200 | 304));
            for view in views {
                match last.get_mut(&view.visitor) {
                    Some((before, pages)) if view.second - *before <= 1_800 => {
                        seconds += view.second - *before;
                        bounces -= i64::from(*pages == 1);
                        (*before, *pages) = (view.second, *pages + 1);
                    }
                    _ => {
                        last.insert(view.visitor, (view.second, 1));
                        visits += 1;
                        bounces += 1;
                    }
                }
            }
            let mut total = Figures::default();
            let of_site = read.iter().filter(|((it, _), _)| *it == site);
            of_site.for_each(|(_, day)| total.merge(&day.total));
            prop_assert_eq!(total.visits, visits);
            prop_assert_eq!(total.bounces, bounces);
            prop_assert_eq!(total.visit_s, seconds as u64);
        }
    }
}

#[test]
fn of_a_million_requests_every_total_is_equal_and_lists_are_exact_to_the_cap() {
    let mut fold = fold();
    let mut day = DayFigures::default();
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    let mut exact: BTreeMap<u64, i64> = BTreeMap::new();
    let paths = NAMES_MAX as u64;
    for path in 0..paths {
        fold.tell(10_000 + path, TextOf::Path, &format!("/page/{path}"));
    }
    for number in 0..1_000_000_i64 {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        // Half of all go to few pages.
        let path = match chance % 2 {
            0 => chance / 2 % 10,
            _ => chance / 2 % paths,
        };
        *exact.entry(path).or_default() += 1;
        fold.take(&RingRecord {
            path: 10_000 + path,
            visitor: chance % 50_000,
            ..request(number * 80_000)
        });
        if number % 20_000 == 0 {
            fold.pieces()
                .for_each(|(_, _, piece)| day.absorb(piece.stored(), PartsWanted::ALL));
            fold.written();
        }
    }
    fold.pieces()
        .for_each(|(_, _, piece)| day.absorb(piece.stored(), PartsWanted::ALL));
    assert_eq!(day.total.requests, 1_000_000);
    assert_eq!(day.total.views, 1_000_000);
    assert_eq!(day.visitor_count(), 50_000);
    let pages = day.list(ListOf::Pages);
    assert_eq!(pages.total(), 1_000_000);
    for (name, tally) in pages.ranked() {
        let path: u64 = name.trim_start_matches("/page/").parse().expect("a number");
        assert_eq!(tally.count, exact[&path], "{name}");
    }
    assert_eq!(pages.ranked().len(), exact.len());
    assert_eq!(pages.other().count, 0);
}

#[test]
fn what_answered_and_why_not_is_counted_by_name() {
    let mut fold = fold();
    for (hash, text) in [(50, "shop"), (51, "app"), (52, "limit_rate")] {
        fold.tell(hash, TextOf::Name, text);
    }
    for (upstream, reason, upstream_us) in [(51, 0, 4_000), (51, 0, 6_000), (0, 52, UNKNOWN_US)] {
        fold.take(&RingRecord {
            rule: 50,
            upstream,
            reason,
            upstream_us,
            program_us: if upstream == 0 { 700 } else { UNKNOWN_US },
            ..request(0)
        });
    }
    let days = days(&fold, "a.example");
    let day = days.values().next().expect("there is one");
    let one = |name: &str, count| vec![(name.to_owned(), count)];
    assert_eq!(counts(day, ListOf::Rules), one("shop", 3));
    assert_eq!(counts(day, ListOf::BackEnds), one("app", 2));
    assert_eq!(counts(day, ListOf::Reasons), one("limit_rate", 1));
    assert_eq!(counts(day, ListOf::Programs), one("shop", 1));
    let times = [ListOf::BackEnds, ListOf::Programs].map(|of| {
        let (_, tally) = day.list(of).ranked()[0];
        (tally.us, tally.timed)
    });
    assert_eq!(times, [(10_000, 2), (700, 1)]);
}
