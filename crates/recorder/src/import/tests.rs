//! Imports that are ended in the middle, repeated, and fed by logs that rotate.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::tz::TimeZone;
use testkit::TempDir;

use super::*;
use crate::{PartsWanted, RangeFigures, ReadingOptions, SaltPeriod, Salts};

/// 2026-11-22T00:00:00Z
const NOW_US: i64 = 1_795_305_600_000_000;
const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";

/// A clock by which a write is due with each look.
fn clock() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(NOW_US);
    NEXT.fetch_add(11_000_000, Ordering::Relaxed)
}

fn importer(directory: &TempDir) -> Importer {
    let fold = Fold::new(TimeZone::UTC, Vec::new());
    let (store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
    let salts = Salts::open(directory.path(), SaltPeriod::Day, 0, || Ok([7; 16]));
    let options = ReadingOptions {
        site: Some("a.example".into()),
        own: vec!["198.51.100.0/24".parse().expect("a network")],
        ..ReadingOptions::default()
    };
    let reader = LogReader::new(options, salts.expect("it opens"), [1; 16]);
    Importer::new(fold, store, reader, "a.example", clock, || false).expect("it begins")
}

fn line(number: usize) -> String {
    let (minute, second) = (number / 60 % 60, number % 60);
    format!(
        "192.0.2.{} - - [21/Nov/2026:10:{minute:02}:{second:02} +0000] \"GET /{} HTTP/1.1\" 200 10 \"-\" \"{CHROME}\"\n",
        number % 200,
        number % 7,
    )
}

fn text(lines: std::ops::Range<usize>) -> String {
    lines.map(line).collect()
}

fn read(importer: &mut Importer, log: &Path) {
    let input = LogInput::open(log).expect("it opens");
    let read = importer.read(input, Reading::Once, &mut |_| {});
    read.expect("it is read");
}

fn range(directory: &TempDir) -> RangeFigures {
    let store = FigureStore::open_existing(directory.path()).expect("it opens");
    let all = RangeFigures::read(
        &store,
        "a.example",
        (0, 40_000),
        SaltPeriod::Day,
        PartsWanted::ALL,
    );
    all.expect("it is read")
}

#[test]
fn a_log_that_is_read_twice_or_grew_or_was_rotated_counts_each_line_once() {
    let directory = TempDir::new();
    let [log, rotated] = ["access.log", "access.log.1"].map(|name| directory.path().join(name));
    let run = |logs: &[&Path]| {
        let mut importer = importer(&directory);
        logs.iter().for_each(|log| read(&mut importer, log));
        importer.end().expect("it ends").0
    };
    fs::write(&log, text(0..1_000)).expect("written");
    assert_eq!(run(&[&log]).taken, 1_000);
    let again = run(&[&log, &log]);
    assert_eq!(again.taken, 0);
    assert!(again.known_bytes > 0);
    fs::write(&log, text(0..1_500) + "192.0.2.7 - - [21/Nov").expect("written");
    let grown = run(&[&log]);
    assert_eq!((grown.taken, grown.begun_bytes), (500, 21));
    fs::rename(&log, &rotated).expect("renamed");
    fs::write(&rotated, text(0..1_600)).expect("written");
    fs::write(&log, text(1_600..1_700)).expect("written");
    assert_eq!(run(&[&rotated, &log]).taken, 200);
    let range = range(&directory);
    assert_eq!((range.total.requests, range.total.views), (1_700, 1_700));
    assert_eq!(range.visitors, 200);
    // A visitor comes again every 200 seconds: of each there is one visit, over all runs.
    assert_eq!(range.total.visits, 200);
}

#[test]
fn an_import_that_is_killed_anywhere_goes_on_where_it_last_wrote() {
    for lines in [1, 300, 512, 1_024, 5_000] {
        let directory = TempDir::new();
        let log = directory.path().join("access.log");
        fs::write(&log, text(0..lines)).expect("written");
        // What is forgotten is not dropped in order, as by a kill.
        let mut killed = importer(&directory);
        let mut input = LogInput::open(&log).expect("it opens");
        let mut mark = None;
        let mut bytes = Vec::new();
        while input.next_line(&mut bytes).expect("read") == NextLine::Line {
            if mark.is_none() {
                killed.begin(&mut input, &bytes, &mut mark).expect("begun");
            }
            killed.line(&bytes).expect("taken");
            if killed.counts.lines.is_multiple_of(700) {
                killed
                    .look(&input, &mut mark, &mut |_| {})
                    .expect("written");
            }
        }
        let seen = killed.counts.taken;
        drop(killed);
        assert_eq!(seen, lines as u64);
        let mut next = importer(&directory);
        read(&mut next, &log);
        let (counts, _) = next.end().expect("it ends");
        assert_eq!(counts.taken, lines as u64 % 700, "{lines}");
        assert_eq!(range(&directory).total.requests, lines as u64);
    }
}

#[test]
fn lines_that_say_nothing_are_told_by_number_and_reason() {
    let directory = TempDir::new();
    let log = directory.path().join("access.log");
    let long = "x".repeat(70_000);
    let future = line(1).replace("2026", "2066");
    let own = line(1).replace("192.0.2.1 ", "198.51.100.9 ");
    let content = format!("{}\n{long}\n{future}{own}\n{}", line(0).trim_end(), line(2));
    fs::write(&log, content).expect("written");
    let mut importer = importer(&directory);
    read(&mut importer, &log);
    let (counts, _) = importer.end().expect("it ends");
    assert_eq!((counts.taken, counts.own, counts.unread), (2, 1, 2));
    let told = (2, "it is longer than 64 KiB");
    assert_eq!(counts.first_unread, Some(told));
}

#[test]
fn a_packed_log_that_is_cut_off_counts_as_far_as_it_goes_and_on_when_it_is_whole() {
    let directory = TempDir::new();
    let log = directory.path().join("access.log.gz");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder
        .write_all(text(0..1_000).as_bytes())
        .expect("memory");
    let packed = encoder.finish().expect("memory");
    fs::write(&log, packed.get(..packed.len() / 2).expect("half")).expect("written");
    let mut first = importer(&directory);
    let input = LogInput::open(&log).expect("it opens");
    let cut = first.read(input, Reading::Once, &mut |_| {});
    assert!(matches!(cut, Err(ImportError::Log(..))), "{cut:?}");
    let (before, _) = first.end().expect("it ends");
    assert!(before.taken > 0 && before.taken < 1_000, "{before:?}");
    fs::write(&log, packed).expect("written");
    let mut second = importer(&directory);
    read(&mut second, &log);
    second.end().expect("it ends");
    assert_eq!(range(&directory).total.requests, 1_000);
}

#[test]
fn two_logs_that_begin_alike_are_each_counted_once_however_often_they_are_read() {
    let directory = TempDir::new();
    let [one, other] = ["web1.log", "web2.log"].map(|name| directory.path().join(name));
    let begin = line(0);
    let mut ends = [String::new(), String::new()];
    for round in 1..4 {
        for (number, log) in [&one, &other].into_iter().enumerate() {
            let begun = 1_000 * round + 500 * number;
            ends[number] += &text(begun..begun + 10 * (number + 1));
            fs::write(log, format!("{begin}{}", ends[number])).expect("written");
        }
        for log in [&one, &other, &one] {
            let mut importer = importer(&directory);
            read(&mut importer, log);
            importer.end().expect("it ends");
        }
        assert_eq!(range(&directory).total.requests, 2 + 30 * round as u64);
    }
}

#[test]
fn an_import_that_is_told_to_end_keeps_the_visits_under_way() {
    let directory = TempDir::new();
    let log = directory.path().join("access.log");
    fs::write(&log, text(0..2_000)).expect("written");
    let mut told = importer(&directory);
    told.is_to_end = || true;
    read(&mut told, &log);
    assert!(told.has_to_end());
    let (counts, _) = told.end().expect("it ends");
    assert!(counts.taken < 2_000, "{counts:?}");
    let mut next = importer(&directory);
    read(&mut next, &log);
    next.end().expect("it ends");
    let total = range(&directory).total;
    // Each of 200 visitors comes every 200 seconds.
    assert_eq!((total.requests, total.visits), (2_000, 200));
}

#[test]
fn more_logs_that_begin_alike_than_are_told_apart_are_read_all_the_same() {
    let directory = TempDir::new();
    let log = directory.path().join("access.log");
    for number in 1..=70 {
        let last = line(number).replace("Safari/537.36", &format!("Safari/{number:03}"));
        fs::write(&log, format!("{}{last}", line(0))).expect("written");
        for _ in 0..2 {
            let mut importer = importer(&directory);
            read(&mut importer, &log);
            importer.end().expect("it ends");
        }
        assert_eq!(range(&directory).total.requests, 2 * number as u64);
    }
}

#[test]
fn what_is_still_written_to_a_log_that_was_renamed_is_read_before_the_new_one() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let directory = TempDir::new();
    let [log, old] = ["access.log", "access.log.1"].map(|name| directory.path().join(name));
    fs::write(&log, text(0..100)).expect("written");
    let mut importer = importer(&directory);
    importer.is_to_end = || IS_OVER.load(Ordering::Relaxed);
    let input = LogInput::open(&log).expect("it opens");
    let mut looks = 0;
    let followed = importer.read(input, Reading::Following, &mut |event| {
        let ImportEvent::Progress(counts) = event else {
            return;
        };
        looks += 1;
        match looks {
            2 => {
                fs::rename(&log, &old).expect("renamed");
                fs::write(&log, text(200..300)).expect("written");
            }
            5 => {
                let mut file = fs::OpenOptions::new().append(true).open(&old);
                let file = file.as_mut().expect("opened");
                file.write_all(text(100..150).as_bytes()).expect("written");
            }
            _ if counts.taken == 250 || looks == 100 => IS_OVER.store(true, Ordering::Relaxed),
            _ => {}
        }
    });
    followed.expect("it is read");
    let (counts, _) = importer.end().expect("it ends");
    assert_eq!(counts.taken, 250);
}
