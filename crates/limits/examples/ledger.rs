//! What the ledger costs: nanoseconds for admitting and ending a request, bytes for a key.
//!
//! Times are of the threads' CPU, so that others on the machine disturb less. With two threads on
//! two cores that is what a request costs while both are at the same key all the time.
//!
//! `cargo run --release -p limits --example ledger -- [LOOPS [scale|one|small|three|refusal|reload]]`
//!
//! Instructions: `valgrind --tool=callgrind --toggle-collect='*cost*pass*' … 10000 one`, whose sum is
//! for all rounds, of one thread and of two.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use limits::{
    Admission, Ask, Change, Concurrent, Definition, Keyed, Ledger, LimitId, Outcome,
    TenantDefinition, TenantId, Time, Used, Want,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const KEYS: usize = 100_000;
const LIMITS: usize = 10_000;
const ROUNDS: usize = 9;

/// What is measured, by name.
type Case = (&'static str, fn(usize));

fn main() {
    let mut arguments = std::env::args().skip(1);
    let loops = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(500_000);
    let only = arguments.next();
    let cases: [Case; 6] = [
        ("scale", scale),
        ("one", one_fixed),
        ("small", small_fixed),
        ("three", three),
        ("refusal", refusal),
        ("reload", reload),
    ];
    for (name, case) in cases {
        if only.as_deref().is_none_or(|only| only == name) {
            case(loops);
        }
    }
}

fn one_fixed(loops: usize) {
    let (ledger, limits, tenant) = ledger(&[fixed("site", 1000)]);
    for threads in [1, 2] {
        let cost = per_request(threads, loops, |worker, _| {
            let wants = [want(limits[0], None)];
            pass(&ledger, worker, tenant, &wants);
        });
        println!("one fixed limit, {threads} threads on one key: {cost:.1} ns a request");
    }
}

fn small_fixed(loops: usize) {
    let (ledger, limits, tenant) = ledger(&[fixed("site", 4)]);
    for threads in [1, 2] {
        let cost = per_request(threads, loops, |worker, _| {
            let wants = [want(limits[0], None)];
            pass(&ledger, worker, tenant, &wants);
        });
        println!("one small fixed limit (counted centrally), {threads} threads: {cost:.1} ns");
    }
}

fn three(loops: usize) {
    let limits = [
        dynamic("file", 1000),
        fixed("site", 1000),
        fixed("tenant", 1000),
    ];
    let (ledger, limits, tenant) = ledger(&limits);
    let before = resident_bytes();
    for at in 0..KEYS {
        let key = key(at);
        let wants = [want(limits[0], Some(&key))];
        pass(&ledger, 0, tenant, &wants);
    }
    let bytes = resident_bytes().saturating_sub(before);
    println!("{:.1} bytes a live key", bytes as f64 / KEYS as f64);
    for threads in [1, 2] {
        let cost = per_request(threads, loops, |worker, at| {
            // A step that is prime to the number of keys visits them all, in no order a cache likes.
            let key = key((at * 48_271 + worker * 31) % KEYS);
            let wants = [
                want(limits[0], Some(&key)),
                want(limits[1], None),
                want(limits[2], None),
            ];
            pass(&ledger, worker, tenant, &wants);
        });
        println!("three limits, {KEYS} live keys, {threads} threads: {cost:.1} ns a request");
    }
}

/// A path as sites have them, without a look into memory.
fn key(mut at: usize) -> [u8; 34] {
    let mut key = *b"/var/www/html/site000000/index.php";
    for digit in key[18..24].iter_mut().rev() {
        *digit = b'0' + (at % 10) as u8;
        at /= 10;
    }
    key
}

/// What the machine takes for the least a ledger could do: one lock to begin, one to end.
fn scale(loops: usize) {
    let lock = Mutex::new(0_u64);
    let cost = per_request(1, loops, |_, _| {
        for _ in 0..2 {
            *black_box(&lock).lock().expect("nobody panics") += 1;
        }
    });
    println!("for scale, a lock taken twice: {cost:.1} ns");
}

fn refusal(loops: usize) {
    for (what, definition) in [("fixed", fixed("site", 2)), ("dynamic", dynamic("file", 2))] {
        let key = (what == "dynamic").then_some(&b"/var/www/html/sleep.php"[..]);
        let (ledger, limits, tenant) = ledger(&[definition]);
        let wants = [want(limits[0], key)];
        let held = [(); 2].map(|()| ledger.admit(Time(1), &ask(0, tenant, &wants)));
        let cost = per_request(1, loops, |worker, _| {
            let answer = ledger.admit(Time(2), &ask(worker, tenant, &wants));
            assert!(matches!(black_box(answer), Admission::Refused(_)));
        });
        println!("a refusal at a full {what} gate without a queue: {cost:.1} ns");
        drop(held);
    }
}

/// How long a reload takes, and a change of one limit; most of it while requests go on.
fn reload(_: usize) {
    let limits = |concurrent| -> Vec<Definition> {
        let sites = (0..LIMITS).map(|at| fixed(&format!("site {at}.example/site"), concurrent));
        sites.collect()
    };
    let tenants: Vec<_> = (0..LIMITS)
        .map(|at| TenantDefinition {
            name: format!("tenant {at}"),
            weight: 1,
            keys_max: u32::MAX,
        })
        .collect();
    let ledger = Ledger::new(2, [1, 2, 3, 4]);
    let define = |what: &str, concurrent| {
        let limits = limits(concurrent);
        let begun = Instant::now();
        let defined = ledger.define(Time(1), &limits, &tenants);
        println!("{LIMITS} limits, {what}: {:.1?}", begun.elapsed());
        defined
    };
    define("all new", 1000);
    define("none new", 1000);
    define("all changed", 900);
    let limit = define("all changed again", 1000).limits[LIMITS / 2];
    for queue in 1..4 {
        let begun = Instant::now();
        ledger.change(Time(2), limit, &Change::Queue(queue));
        println!("one of {LIMITS} limits changed: {:.1?}", begun.elapsed());
    }
    let begun = Instant::now();
    ledger.tick(Time(3));
    println!("a tick with {LIMITS} limits: {:.1?}", begun.elapsed());
}

fn pass(ledger: &Ledger, worker: usize, tenant: TenantId, wants: &[Want<'_>]) {
    match ledger.admit(Time(1), &ask(worker, tenant, wants)) {
        Admission::Admitted(permit) => {
            black_box(permit).end(Time(2), Used::Measured(1), Outcome::Fine);
        }
        other => panic!("not admitted: {other:?}"),
    }
}

/// The median of some rounds, of the CPU time a request takes.
fn per_request(threads: usize, loops: usize, request: impl Fn(usize, usize) + Sync) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let barrier = Barrier::new(threads);
            let spent: Duration = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..threads)
                    .map(|worker| {
                        let (barrier, request) = (&barrier, &request);
                        scope.spawn(move || {
                            barrier.wait();
                            let begun = cpu_time();
                            (0..loops).for_each(|at| request(worker, at));
                            cpu_time().saturating_sub(begun)
                        })
                    })
                    .collect();
                let spent = workers.into_iter().map(|worker| worker.join());
                spent.map(|spent| spent.expect("no thread panics")).sum()
            });
            spent.as_secs_f64() * 1e9 / (loops * threads) as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn ledger(definitions: &[Definition]) -> (Ledger, Vec<LimitId>, TenantId) {
    let ledger = Ledger::new(2, [1, 2, 3, 4]);
    let tenant = TenantDefinition {
        name: "example".to_owned(),
        weight: 1,
        keys_max: u32::MAX,
    };
    let defined = ledger.define(Time::ZERO, definitions, &[tenant]);
    (ledger, defined.limits, defined.tenants[0])
}

fn ask<'a>(worker: usize, tenant: TenantId, wants: &'a [Want<'a>]) -> Ask<'a> {
    Ask::of(worker, tenant, CLIENT, wants)
}

fn want(limit: LimitId, key: Option<&[u8]>) -> Want<'_> {
    Want { limit, key }
}

fn fixed(name: &str, concurrent: u32) -> Definition {
    Definition {
        concurrent: Some(Concurrent::Fixed(concurrent)),
        wait: Duration::from_secs(2),
        ..Definition::of(name)
    }
}

fn dynamic(name: &str, concurrent: u32) -> Definition {
    Definition {
        keyed: Keyed::Dynamic,
        ..fixed(name, concurrent)
    }
}

/// What the calling thread has had of a CPU so far.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text
        .split_whitespace()
        .next()
        .and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * 4096
}
