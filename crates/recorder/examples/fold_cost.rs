//! What a request costs the recorder: processor time of folding records and of writing them, for
//! 1,000 busy sites at 20,000 requests a second; what memory that takes, and what of the disk.
//!
//! `cargo run --release -p recorder --example fold_cost -- [SITES] [MINUTES] [PER_SECOND] [PATHS] [IDLE]`.
//! The clock is made up; a site's share falls with its rank, as do those of its 500 pages; a visitor
//! looks at four pages. Of `IDLE` further sites the name alone is told.
#![allow(clippy::unwrap_used, reason = "no part of the product")]

use ipc::ring::{RingRecord, TextOf};
use jiff::tz::TimeZone;
use os::cpu::process_cpu_ns;
use recorder::{FigureStore, Fold};
use testkit::TempDir;

const AGENTS: u64 = 200;
/// 2026-11-22T00:00:00Z
const BEGIN_US: i64 = 1_795_305_600_000_000;

struct Load {
    sites: u64,
    per_second: u64,
    paths: u64,
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 >> 33
    }

    /// A number below `end`; small ones come more often.
    fn rank(&mut self, end: u64) -> u64 {
        let share = (self.next() % 1_000_000) as f64 / 1e6;
        ((end as f64).powf(share) as u64).min(end) - 1
    }
}

fn main() {
    let mut words = std::env::args()
        .skip(1)
        .map(|word| word.parse::<u64>().unwrap());
    let sites = words.next().unwrap_or(1_000);
    let minutes = words.next().unwrap_or(10);
    let load = Load {
        sites,
        per_second: words.next().unwrap_or(20_000),
        paths: words.next().unwrap_or(500),
    };
    let idle = words.next().unwrap_or(0);
    let directory = TempDir::new();
    let (mut store, _) = FigureStore::open(directory.path(), 0).unwrap();
    let mut fold = Fold::new(TimeZone::UTC, Vec::new());
    let mut chance = Chance(7);
    for site in 0..sites + idle {
        fold.tell_site(spread(1, site), &format!("site{site}.example"));
    }
    let (mut fold_ns, mut write_ns, mut requests) = (0, 0, 0_u64);
    for round in 0..minutes * 6 {
        let records: Vec<_> = (0..load.per_second * 10)
            .map(|at| record(&mut chance, &load, round, at))
            .collect();
        let begun = process_cpu_ns();
        for (record, texts) in &records {
            fold.make_room();
            for (hash, of, text) in texts {
                if *hash != 0 && !fold.knows(*hash) {
                    fold.tell(*hash, *of, &text());
                }
            }
            fold.take(record);
        }
        let folded = process_cpu_ns();
        let today = fold.day_of(BEGIN_US + i64::try_from(round * 10_000_000).unwrap());
        store.write(fold.pieces(), None, today).unwrap();
        fold.written();
        fold_ns += folded - begun;
        write_ns += process_cpu_ns() - folded;
        requests += records.len() as u64;
        let minute = (round + 1) / 6;
        let is_told = minute <= 10 || minute.is_multiple_of(60);
        if (round + 1).is_multiple_of(6) && is_told {
            let us = |ns: u64| ns as f64 / 1e3 / requests as f64;
            println!(
                "{} min: {:.2} us a request, folding {:.2}, writing {:.2}",
                minute,
                us(fold_ns + write_ns),
                us(fold_ns),
                us(write_ns)
            );
        }
    }
    let begun = process_cpu_ns();
    store.settle(i32::MAX).unwrap();
    println!(
        "settled in {:.2} s",
        (process_cpu_ns() - begun) as f64 / 1e9
    );
    let files = std::fs::read_dir(directory.path()).unwrap();
    let bytes: u64 = files.map(|it| it.unwrap().metadata().unwrap().len()).sum();
    println!(
        "{} MB of memory at most, {:.1} MB of the disk, {:.1} KB a site",
        testkit::processes::memory_kib(std::process::id(), "VmHWM") / 1_000,
        bytes as f64 / 1e6,
        bytes as f64 / 1e3 / sites as f64
    );
}

type Told = (u64, TextOf, Box<dyn Fn() -> String>);

fn record(chance: &mut Chance, load: &Load, round: u64, at: u64) -> (RingRecord, [Told; 2]) {
    let Load {
        sites,
        per_second,
        paths,
    } = *load;
    let site = chance.rank(sites);
    let page = chance.rank(paths);
    let is_view = chance.next().is_multiple_of(5);
    let visitor = (round * per_second * 10 + at) / 20 + chance.next() % 4_000;
    let agent = spread(3, visitor % AGENTS);
    let path = spread(2, (site * paths + page) * 2 + u64::from(is_view));
    let ending = if is_view { "" } else { ".png" };
    let record = RingRecord {
        at_us: BEGIN_US
            + i64::try_from((round * 10_000_000) + at * 1_000_000 / per_second).unwrap(),
        site: spread(1, site),
        path,
        agent,
        visitor: spread(4, visitor),
        bytes_out: 5_000 + chance.next() % 9_000,
        total_us: 100 + u32::try_from(chance.rank(50_000)).unwrap(),
        queue_us: 10,
        upstream_us: 90,
        program_us: u32::MAX,
        stands_for: 1,
        status: if chance.next().is_multiple_of(50) {
            404
        } else {
            200
        },
        country: *b"JP",
        is_look: true,
        ..RingRecord::default()
    };
    let texts: [Told; 2] = [
        (
            path,
            TextOf::Path,
            Box::new(move || format!("/articles/of-the-year/{page}{ending}")),
        ),
        (
            agent,
            TextOf::Agent,
            Box::new(move || {
                format!(
                    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.0.0 Safari/537.36",
                    visitor % AGENTS
                )
            }),
        ),
    ];
    (record, texts)
}

/// A number as evenly spread as a keyed hash.
fn spread(of: u64, number: u64) -> u64 {
    let mut it = number
        .wrapping_add(of << 56)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (it ^ (it >> 31)).max(1)
}
