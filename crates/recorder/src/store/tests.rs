//! The database at its edges: full, broken, read by another, old.

use ipc::limit_figures::LimitCount;
use testkit::TempDir;

use super::*;
use crate::day::{ListOf, NAMES_MAX, PartsWanted, Tally};
use crate::history::{Sample, Sums};

fn open(directory: &TempDir) -> FigureStore {
    let (store, aside) = FigureStore::open(directory.path(), 7).expect("it opens");
    assert_eq!(aside, None);
    store
}

fn piece(requests: u64, names: usize) -> Piece {
    let mut piece = Piece::default();
    piece.minute(5).requests = requests;
    piece.step(requests, 300, &"/".into());
    for number in 0..names {
        let name = || format!("/page/{number}/{}", "x".repeat(100)).into();
        piece.add(ListOf::Pages, number as u64, &Tally::times(1), name);
    }
    piece
}

fn mark(before: u64, position: u64) -> SourceMark {
    SourceMark {
        source: u64::MAX,
        alike: 0,
        before: (before > 0).then_some((before, 9)),
        position,
        tail: 9,
    }
}

fn requests(store: &FigureStore, site: &str) -> u64 {
    let mut sum = 0;
    let told = store.each_day(site, (i32::MIN, i32::MAX), PartsWanted::ALL, |_, day| {
        sum += day.total.requests
    });
    told.expect("it is read");
    sum
}

#[test]
fn what_was_written_is_read_whether_or_not_it_was_taken_up() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    for number in 0..300 {
        let piece = piece(number, 3);
        let pieces = [("a.example", 10, &piece)].into_iter();
        store.write(pieces, None, 10).expect("written");
    }
    let all: u64 = (0..300).sum();
    assert_eq!(requests(&store, "a.example"), all);
    let day_over = store.write(std::iter::empty(), None, 11);
    day_over.expect("written");
    let left: i64 = store
        .connection
        .query_row("SELECT count(*) FROM pieces", [], |row| row.get(0))
        .expect("it is read");
    assert_eq!(left, 0);
    assert_eq!(requests(&store, "a.example"), all);
    drop(store);
    let store = open(&directory);
    let mut told = Vec::new();
    let read = store.each_day("a.example", (0, 20), PartsWanted::ALL, |day, figures| {
        told.push((day, std::mem::take(figures)));
    });
    read.expect("it is read");
    let (day, figures) = &told[0];
    assert_eq!((told.len(), *day), (1, 10));
    assert_eq!(figures.visitor_count(), 300);
    assert_eq!(figures.list(ListOf::Pages).total(), 900);
    assert_eq!(requests(&store, "b.example"), 0);
}

#[test]
fn a_name_that_comes_late_is_counted_from_its_first_time_though_there_are_more_than_stay() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    let write = |store: &mut FigureStore, names: std::ops::Range<u64>, times| {
        let mut piece = Piece::default();
        piece.minute(5).requests = 1;
        for number in names {
            let name = || format!("/{number}").into();
            piece.add(ListOf::Pages, number, &Tally::times(times), name);
        }
        let pieces = [("a.example", 10, &piece)].into_iter();
        store.write(pieces, None, 10).expect("written");
    };
    write(&mut store, 0..2_999, 2);
    write(&mut store, 2_999..3_000, 1);
    for _ in 2..PIECES_MAX {
        write(&mut store, 0..1, 1);
    }
    write(&mut store, 2_999..3_000, 9);
    let mut all = 2 * 2_999 + 10;
    all += i64::try_from(PIECES_MAX).expect("small") - 2;
    for (today, names) in [(10, 3_000), (11, NAMES_MAX)] {
        store
            .write(std::iter::empty(), None, today)
            .expect("written");
        let wanted = PartsWanted::list(ListOf::Pages);
        let lists = store.each_day("a.example", (0, 20), wanted, |_, _| {});
        let pages = &lists.expect("it is read")[ListOf::Pages as usize];
        assert_eq!(pages.tally("/2999").count, 10);
        assert_eq!((pages.ranked().len(), pages.total()), (names, all));
    }
}

#[test]
fn a_day_that_is_over_keeps_as_many_names_however_its_last_write_was() {
    for (pieces, is_settled) in [PIECES_MAX, PIECES_MAX + 1, PIECES_MAX + 2]
        .into_iter()
        .flat_map(|pieces| [(pieces, false), (pieces, true)])
    {
        let directory = TempDir::new();
        let mut store = open(&directory);
        let large = piece(1, NAMES_MAX + 500);
        for number in 0..pieces {
            let small = piece(1, 1);
            let piece = if number == 0 { &large } else { &small };
            let pieces = [("a.example", 10, piece)].into_iter();
            store.write(pieces, None, 10).expect("written");
        }
        let names = |store: &FigureStore| {
            let wanted = PartsWanted::list(ListOf::Pages);
            let lists = store.each_day("a.example", (0, 20), wanted, |_, _| {});
            let lists = lists.expect("it is read");
            lists[ListOf::Pages as usize].ranked().len()
        };
        if is_settled {
            store.settle(10).expect("written");
            assert_eq!(names(&store), NAMES_MAX + 500, "the day goes on");
            store.settle(11).expect("written");
        } else {
            // Another recorder takes over.
            drop(store);
            store = open(&directory);
            let over = store.write(std::iter::empty(), None, 11);
            over.expect("written");
        }
        assert_eq!(names(&store), NAMES_MAX, "{pieces} {is_settled}");
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_written_and_takes_the_rest_later() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    let mut chance = 1_u64;
    let mut next = || {
        let mut piece = piece(1, 5);
        for _ in 0..10_000 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            piece.step(chance >> 16, 300, &"/".into());
        }
        piece
    };
    let mut written = 0;
    let full = store.connection.pragma_update(None, "max_page_count", 100);
    full.expect("it is set");
    let error = loop {
        assert!(written < 1_000, "there is no end of room");
        let (mark, piece) = (mark(written, written + 1), next());
        let pieces = [("a.example", 10, &piece)].into_iter();
        match store.write(pieces, Some(&mark), 10) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full() && !error.is_broken(), "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    assert!(written > 0);
    assert_eq!(requests(&store, "a.example"), written);
    let position = store.source(u64::MAX).expect("it is read");
    assert_eq!(position, [(written, 9)]);
    let room = store
        .connection
        .pragma_update(None, "max_page_count", 100_000);
    room.expect("it is set");
    let (mark, piece) = (mark(written, written + 1), next());
    let pieces = [("a.example", 10, &piece)].into_iter();
    store.write(pieces, Some(&mark), 10).expect("there is room");
    assert_eq!(requests(&store, "a.example"), written + 1);
}

#[test]
fn a_broken_database_is_set_aside_and_a_new_one_begun() {
    let directory = TempDir::new();
    let path = directory.path().join(FILE);
    drop(open(&directory));
    fs::write(
        &path,
        "this is no database, and longer than the head of one".repeat(100),
    )
    .expect("written");
    let (store, aside) = FigureStore::open(directory.path(), 77).expect("it opens");
    let aside = aside.expect("it was set aside");
    assert!(
        aside.ends_with("figures.db.broken-77") && aside.exists(),
        "{aside:?}"
    );
    assert_eq!(store.sites().expect("it is read"), Vec::<String>::new());
}

#[test]
fn one_that_turns_out_broken_while_open_is_set_aside_with_its_settings_kept() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    store.set_setting("zone", "Asia/Tokyo").expect("written");
    let one = piece(1, 1);
    store
        .write([("a.example", 10, &one)].into_iter(), None, 10)
        .expect("written");
    let broken = "UPDATE pieces SET content = x'ffffff'";
    store.connection.execute(broken, []).expect("it is broken");
    let error = store.settle(i32::MAX).expect_err("it is broken");
    assert!(error.is_broken(), "{error}");
    let aside = store.set_aside(5).expect("it is set aside");
    assert!(aside.exists());
    store
        .write([("a.example", 10, &one)].into_iter(), None, 10)
        .expect("written");
    assert_eq!(requests(&store, "a.example"), 1);
    drop(store);
    let mut store = open(&directory);
    assert_eq!(requests(&store, "a.example"), 1);
    let zone = store.setting("zone").expect("it is read");
    assert_eq!(zone.as_deref(), Some("Asia/Tokyo"));
}

#[test]
fn a_log_that_another_has_read_on_is_not_counted_again() {
    let directory = TempDir::new();
    let (mut one, mut other) = (open(&directory), open(&directory));
    let piece = piece(5, 1);
    let pieces = || [("a.example", 10, &piece)].into_iter();
    one.write(pieces(), Some(&mark(0, 10)), 10)
        .expect("written");
    let error = other.write(pieces(), Some(&mark(0, 8)), 10);
    let error = error.expect_err("it was read on").to_string();
    assert!(error.contains("another process"), "{error}");
    other
        .write(pieces(), Some(&mark(10, 12)), 10)
        .expect("written");
    assert_eq!(requests(&one, "a.example"), 10);
}

#[test]
fn what_is_old_is_thinned_out_and_totals_stay() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    let one = piece(5, 1);
    store
        .write([("a.example", 100, &one)].into_iter(), None, 100)
        .expect("written");
    store.settle(i32::MAX).expect("written");
    for (later, minutes, visitors, hours) in [
        (0, 1, 1, 1),
        (MINUTES_DAYS + 1, 0, 1, 1),
        (VISITORS_DAYS + 1, 0, 0, 1),
        (HOURS_DAYS + 1, 0, 0, 0),
    ] {
        let none = std::iter::empty();
        store.write(none, None, 100 + later).expect("written");
        let told = store.each_day("a.example", (100, 100), PartsWanted::ALL, |_, day| {
            let left = (day.minutes.len(), day.visitors.len(), day.hours.len());
            assert_eq!(left, (minutes, visitors, hours), "{later} days later");
            assert_eq!((day.total.requests, day.visitor_count()), (5, 1));
            assert_eq!(day.list(ListOf::Pages).total(), 1);
        });
        told.expect("it is read");
    }
}

#[test]
fn of_a_site_that_is_forgotten_no_byte_is_left() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    let one = piece(5, 3);
    for site in ["gone.example", "stays.example"] {
        store
            .write([(site, 100, &one)].into_iter(), None, 100)
            .expect("written");
    }
    store.settle(i32::MAX).expect("written");
    let sample = |name: &str| Sample {
        name: name.into(),
        at_s: 100 * 86_400,
        sums: Sums::of(1.0),
    };
    let key = |limit, key| LimitCount::Key(key).name(limit);
    let waited = |limit| LimitCount::Waited.name(limit);
    let gone = [
        "site.gone.example.throttled".to_owned(),
        key("site directory:d/path", "gone.example /a"),
        key("site directory:d/path", "gone.exam…/z"),
        waited("site gone.example/path"),
        waited("rule gone.example/a/path"),
    ];
    let mut stays = [
        "site.example.throttled".to_owned(),
        "site.stays.example.throttled".to_owned(),
        key("site directory:d/path", "stays.example /gone"),
        key("site directory:d/path", "stays.exa…/z"),
        key("tenant a/path", "gone"),
        waited("site directory:d/path"),
        waited("site stays.example/path"),
    ];
    stays.sort();
    let samples: Vec<_> = gone.iter().chain(&stays).map(|it| sample(it)).collect();
    store.write_samples(&samples).expect("written");
    assert!(store.forget("gone.example").expect("it is deleted"));
    assert_eq!(store.series(|_| true, 99).expect("it is read"), stays);
    assert!(!store.forget("gone.example").expect("it is not there"));
    assert_eq!(store.sites().expect("it is read"), ["stays.example"]);
    drop(store);
    for entry in fs::read_dir(directory.path())
        .expect("a directory")
        .flatten()
    {
        let bytes = fs::read(entry.path()).expect("it is read");
        let found = bytes.windows(12).any(|part| part == b"gone.example");
        assert!(!found, "{:?}", entry.path());
    }
}

#[test]
fn a_format_of_another_version_is_refused_with_words() {
    for (format, told) in [(FORMAT + 1, "newer version"), (FORMAT - 1, "older version")] {
        let directory = TempDir::new();
        let store = open(&directory);
        let other = store.connection.pragma_update(None, "user_version", format);
        other.expect("it is set");
        drop(store);
        let error = FigureStore::open(directory.path(), 7).expect_err("it is another");
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[test]
fn lists_of_days_add_up_and_those_not_wanted_are_not_read() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    for day in [10, 11] {
        let one = piece(5, 3);
        store
            .write([("a.example", day, &one)].into_iter(), None, day)
            .expect("written");
    }
    store.settle(i32::MAX).expect("written");
    let read = |wanted: PartsWanted| {
        let mut left = (0, 0, 0);
        let told = store.each_day("a.example", (0, 20), wanted, |_, day| {
            let pages = day.list(ListOf::Pages).total();
            left = (day.total.requests, pages, day.visitors.len());
        });
        told.expect("it is read");
        left
    };
    let pages = PartsWanted::list(ListOf::Pages);
    assert_eq!(read(PartsWanted::TOTALS), (5, 0, 0));
    assert_eq!(read(PartsWanted::list(ListOf::Files)), (5, 0, 0));
    assert_eq!(read(pages), (5, 6, 0));
    assert_eq!(read(pages.and(PartsWanted::VISITORS)), (5, 6, 1));
}

#[test]
fn totals_of_all_sites_are_those_of_their_days() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    for (site, day, is_settled) in [
        ("a.example", 10, true),
        ("b.example", 10, true),
        ("a.example", 11, false),
        ("a.example", 10, false),
    ] {
        let one = piece(5, 1);
        let pieces = [(site, day, &one)].into_iter();
        store.write(pieces, None, 11).expect("written");
        if is_settled {
            store.settle(i32::MAX).expect("written");
        }
    }
    // As few as are asked for one by one, and more.
    for others in [0, 300] {
        let others = (0..others).map(|number| format!("{number}.example"));
        let sites = others.chain(["a.example".into()]).collect();
        let mut told = Vec::new();
        let read = store.each_total((0, 20), &sites, |site, day, total, visitors| {
            told.push((site.to_owned(), day, total.requests, visitors));
        });
        read.expect("it is read");
        told.sort();
        let expected = [("a.example", 10, 10, 1), ("a.example", 11, 5, 1)];
        assert_eq!(
            told,
            expected.map(|(site, day, requests, visitors)| (
                site.to_owned(),
                day,
                requests,
                visitors
            ))
        );
    }
}

#[test]
fn reading_that_takes_too_long_is_given_up_and_nothing_is_broken() {
    let directory = TempDir::new();
    let mut store = open(&directory);
    let piece = piece(3, 3);
    let pieces = [("a.example", 10, &piece)].into_iter();
    store.write(pieces, None, 10).expect("written");
    store.give_up_at(Instant::now() + Duration::from_secs(600));
    assert_eq!(requests(&store, "a.example"), 3);
    store.give_up_at(Instant::now());
    let (days, sites) = ((0, 20), ["a.example".to_owned()].into());
    let read = store.each_day("a.example", days, PartsWanted::ALL, |_, _| {});
    let total = store.each_total(days, &sites, |_, _, _, _| {});
    for late in [read.map(drop), total] {
        let late = late.expect_err("it is late");
        assert!(late.is_late() && !late.is_broken() && !late.is_full());
    }
}
