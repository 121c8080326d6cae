//! What a page of the console takes: processor time for each page of a site with 2,000 names in every
//! list, over 28 days, and for the list of 2,000 sites.
//!
//! `cargo run --release -p recorder --example console_cost`.
#![allow(clippy::unwrap_used, reason = "no part of the product")]

use ipc::console::{ConsoleQuestion, ConsoleScope};
use jiff::civil::date;
use jiff::tz::TimeZone;
use os::cpu::process_cpu_ns;
use recorder::{ConsoleMoment, FigureStore, ListOf, NAMES_MAX, Piece, SaltPeriod, Tally, answer};
use testkit::TempDir;

/// 2026-11-27.
const TODAY: i32 = 20_784;
const DAYS: i32 = 56;
const SITES: u64 = 2_000;
const RUNS: u64 = 20;

fn main() {
    let directory = TempDir::new();
    let (mut store, _) = FigureStore::open(directory.path(), 0).unwrap();
    for day in TODAY - DAYS..=TODAY {
        let large = piece(NAMES_MAX as u64);
        store
            .write([("large.example", day, &large)].into_iter(), None, day)
            .unwrap();
        let small = piece(20);
        let names: Vec<String> = (0..SITES).map(|site| format!("s{site}.example")).collect();
        let pieces = names.iter().map(|name| (name.as_str(), day, &small));
        store.write(pieces, None, day).unwrap();
        store.settle(i32::MAX).unwrap();
    }
    let parts = [
        "visits",
        "pages",
        "sources",
        "visitors",
        "devices",
        "bots",
        "errors",
        "speed",
        "pages?page=/page/7",
    ];
    let pages = parts.map(|part| format!("site/large.example/{part}"));
    for address in [String::new()].into_iter().chain(pages) {
        let (path, query) = address.split_once('?').unwrap_or((&address, ""));
        let question = ConsoleQuestion {
            scope: ConsoleScope::All,
            base: "/".into(),
            path: path.into(),
            query: query.into(),
            ..ConsoleQuestion::default()
        };
        let moment = ConsoleMoment {
            now: date(2026, 11, 27)
                .at(12, 0, 0, 0)
                .to_zoned(TimeZone::UTC)
                .unwrap(),
            salt: SaltPeriod::Day,
            live: None,
            heard: None,
            outlook: None,
            archive: None,
        };
        let begun = process_cpu_ns();
        let mut bytes = 0;
        for _ in 0..RUNS {
            let answer = answer(&store, &question, &moment);
            assert_eq!(answer.status, 200);
            bytes = answer.body.len();
        }
        let ms = (process_cpu_ns() - begun) as f64 / 1e6 / RUNS as f64;
        println!("{ms:7.1} ms {bytes:8} bytes  /{address}");
    }
}

/// A day with so many names in each list, and a quarter as many visitors.
fn piece(names: u64) -> Piece {
    let mut piece = Piece::default();
    for minute in (0..1_440).step_by(2) {
        let figures = piece.minute(minute);
        figures.requests = names / 10;
        figures.views = names / 50;
        for us in [800, 2_100, 5_300, 40_000] {
            figures.durations.add(us + u64::from(minute), 5);
        }
    }
    for of in ListOf::ALL {
        for number in 0..names {
            let tally = Tally {
                count: i64::try_from(names / (number + 1) + 1).unwrap(),
                bytes: 20_000,
                us: 9_000 + number,
                timed: 1,
            };
            let name = match of {
                ListOf::NextPages => format!("/page/{number} → /page/{}", number / 2),
                _ => format!("/page/{number}"),
            };
            piece.add(of, number, &tally, || name.into());
        }
    }
    for visitor in 0..names / 4 {
        let page = format!("/page/{visitor}");
        piece.step(visitor << 20, (visitor * 40 % 86_400) as u32, &page.into());
    }
    piece
}
