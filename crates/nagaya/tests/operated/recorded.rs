//! The recorder as a process: what it counts beside the access log, what it may do, and that nothing of what
//! befalls it or its files is felt by who asks for pages.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use recorder::{FigureStore, ListOf, PartsWanted};
use rustix::process::{Pid, Signal, kill_process};
use testkit::client::{Body, RawClient, reply};
use testkit::{Gateway, eventually, processes};

use super::upgrade::{Installed, upgraded};

pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// Pages that are asked for, and the most asked for of them, whose counts are compared.
const PAGES: usize = 6_000;
const TOP: usize = 1_000;
/// Requests that are sent before their replies are read.
const AT_ONCE: usize = 100;
/// Requests between two looks of the recorder: fewer than half of what one worker's ring has room for, as a look that
/// is over may have begun before the last of them.
const ROUND: usize = 4_000;

pub(super) const CONFIG: &str = r#"
workers = 2
trusted_proxies = ["127.0.0.1"]
[log]
access = "{dir}/access.log"
format = "json"
[recorder]
directory = "{dir}/figures"
[[sites]]
hosts = ["a.example"]
  [[sites.rules]]
  match = { path = "/missing/*" }
  handler = { respond = { status = 404, body = "none" } }
  [[sites.rules]]
  handler = { respond = { status = 200, body = "0123456789" } }
[[sites]]
hosts = ["silent.example"]
record = false
rules = [{ handler = { respond = { body = "x" } } }]
[[sites]]
hosts = ["m.example"]
record = false
rules = [{ handler = { metrics = "prometheus" } }]
"#;

pub(super) fn builder() -> testkit::gateway::Builder {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
}

pub(super) fn figures(gateway: &Gateway) -> PathBuf {
    gateway.directory().path().join("figures")
}

/// Sends requests one connection after the other, several at once; every one is answered.
pub(super) fn ask_many(gateway: &Gateway, host: &str, numbers: std::ops::Range<usize>) {
    let numbers: Vec<_> = numbers.collect();
    for chunk in numbers.chunks(AT_ONCE) {
        let mut client = RawClient::connect(gateway.address()).with_deadline(PATIENCE);
        let request = |number: &usize| {
            let path = match number % 10 {
                0 => format!("/missing/{}", number % 7),
                // Of more names than a day keeps, some come more often.
                _ => format!("/page/{}?secret={number}", number % (1 + number % PAGES)),
            };
            format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 203.0.113.{}\r\n\
                 User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\r\n",
                number % 200
            )
        };
        let requests: String = chunk.iter().map(request).collect();
        client.send(requests.as_bytes());
        for _ in chunk {
            let status = reply(client.read_reply(Body::Framed)).status;
            assert!(status == 200 || status == 404, "{status}");
        }
    }
}

pub(super) fn metric(gateway: &Gateway, series: &str) -> f64 {
    // Before there ever was a recorder, it has no figures.
    known_metric(gateway, series).unwrap_or(0.0)
}

fn known_metric(gateway: &Gateway, series: &str) -> Option<f64> {
    let asked = gateway.ask(b"GET / HTTP/1.1\r\nHost: m.example\r\n\r\n");
    let text = reply(asked).text();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("nagaya_{series} ")))?;
    Some(line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

/// Waits until the recorder has looked into the rings, later than now.
pub(super) fn await_look(gateway: &Gateway) {
    let since = Instant::now();
    eventually(PATIENCE, "a look into the rings", || {
        // Read before it is asked: the machine may stand still between the answer and the comparison.
        let waited_s = since.elapsed().as_secs_f64();
        let lag_s = known_metric(gateway, "recorder_lag_seconds")?;
        (lag_s < waited_s).then_some(())
    });
}

/// Requests of which the recorder was told.
pub(super) fn told(gateway: &Gateway) -> f64 {
    metric(gateway, "recorder_told_total")
}

pub(super) fn dropped(gateway: &Gateway) -> f64 {
    let reasons = ["no_reader", "full"].iter();
    let series = reasons.map(|reason| format!("recorder_dropped_total{{reason=\"{reason}\"}}"));
    series.map(|series| metric(gateway, &series)).sum()
}

/// Waits until every request but the one that looks has ended: a reply is read before its request counts.
pub(super) fn await_quiet(gateway: &Gateway) {
    eventually(PATIENCE, "nothing under way", || {
        let text = reply(gateway.ask(b"GET / HTTP/1.1\r\nHost: m.example\r\n\r\n")).text();
        let under_way = text
            .lines()
            .filter(|line| line.starts_with("nagaya_exchanges_in_flight"));
        let under_way = under_way.map(|line| line.rsplit_once(' ').unwrap().1);
        let under_way: f64 = under_way.map(|value| value.parse::<f64>().unwrap()).sum();
        (under_way <= 1.0).then_some(())
    });
}

/// Waits until requests are told: the recorder has begun to read.
pub(super) fn await_reading(gateway: &Gateway) {
    eventually(PATIENCE, "a recorder that reads", || {
        let before = told(gateway);
        // Each worker has a ring: connections come to either.
        (0..8).for_each(|_| ask_many(gateway, "a.example", 1..2));
        (told(gateway) >= before + 8.0).then_some(())
    });
}

/// Sums of all days of a site: requests, bytes, and by status.
pub(super) fn recorded(directory: &Path, site: &str) -> (u64, u64, BTreeMap<String, i64>) {
    let mut sums = (0, 0, BTreeMap::new());
    let Ok(store) = FigureStore::open_existing(directory) else {
        return sums;
    };
    let wanted = PartsWanted::list(ListOf::Statuses);
    let lists = store.each_day(site, (0, i32::MAX), wanted, |_, day| {
        sums.0 += day.total.requests;
        sums.1 += day.total.bytes;
    });
    for (name, tally) in lists.unwrap()[ListOf::Statuses as usize].ranked() {
        sums.2.insert(name.to_owned(), tally.count);
    }
    sums
}

/// The same, of the access log.
pub(super) fn logged(gateway: &Gateway) -> (u64, u64, BTreeMap<String, i64>) {
    let mut sums = (0, 0, BTreeMap::new());
    each_logged(gateway, |record| {
        sums.0 += 1;
        sums.1 += record["bytes"].as_u64().unwrap();
        *sums.2.entry(record["status"].to_string()).or_default() += 1;
    });
    sums
}

/// Tells of each request of the site in the access log.
fn each_logged(gateway: &Gateway, mut tell: impl FnMut(&serde_json::Value)) {
    let log = fs::File::open(gateway.directory().path().join("access.log")).unwrap();
    for line in BufReader::new(log).lines() {
        let record: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if record["site"] == "a.example" {
            tell(&record);
        }
    }
}

/// The pages that were asked for most with the times that was, as the log has them, and the number of all.
fn top_logged(gateway: &Gateway) -> (BTreeMap<String, i64>, i64) {
    let mut counts = BTreeMap::<String, i64>::new();
    each_logged(gateway, |record| {
        let target = record["target"].as_str().unwrap();
        let path = target.split('?').next().unwrap();
        if path.starts_with("/page/") {
            *counts.entry(path.to_owned()).or_default() += 1;
        }
    });
    let all = counts.values().sum();
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.truncate(TOP);
    (counts.into_iter().collect(), all)
}

pub(super) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Everything below a directory, as bytes.
fn bytes_below(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(bytes_below(&path)),
            false => all.extend(fs::read(path).unwrap_or_default()),
        }
    }
    all
}

/// Sends so many requests from 8 connections at a time, and no more than the rings have room for.
fn ask_in_rounds(gateway: &Gateway, requests: usize) {
    for first in (0..requests).step_by(ROUND) {
        let round = ROUND.min(requests - first);
        std::thread::scope(|scope| {
            for part in 0..8 {
                let numbers = first + part * round / 8..first + (part + 1) * round / 8;
                scope.spawn(move || ask_many(gateway, "a.example", numbers));
            }
        });
        await_look(gateway);
    }
}

/// The pages a day's list names, with the times they were seen, and the times of all.
fn pages_recorded(directory: &Path) -> (BTreeMap<String, i64>, i64) {
    let store = FigureStore::open_existing(directory).unwrap();
    let wanted = PartsWanted::list(ListOf::Pages);
    let lists = store.each_day("a.example", (0, i32::MAX), wanted, |_, _| {});
    let pages = &lists.unwrap()[ListOf::Pages as usize];
    let ranked = pages.ranked().into_iter();
    let named = ranked.map(|(name, it)| (name.to_owned(), it.count));
    (named.collect(), pages.total())
}

#[test]
fn many_requests_are_counted_as_the_access_log_has_them() {
    let requests = std::env::var("NAGAYA_RECORDED").ok();
    let requests: usize = requests.map_or(100_000, |it| it.parse().unwrap());
    let mut gateway = builder().start();
    await_look(&gateway);
    ask_in_rounds(&gateway, requests);
    ask_many(&gateway, "silent.example", 0..100);
    await_quiet(&gateway);
    let (dropped, told) = (dropped(&gateway), told(&gateway));
    let directory = figures(&gateway);
    assert!(gateway.stop().success());
    let expected = logged(&gateway);
    assert_eq!((expected.0, dropped), (requests as u64, 0.0));
    assert_eq!(told, requests as f64);
    assert_eq!(recorded(&directory, "a.example"), expected);
    let ((top, views), (kept, total)) = (top_logged(&gateway), pages_recorded(&directory));
    assert_eq!(total, views);
    for (page, count) in &top {
        assert_eq!(kept.get(page), Some(count), "{page}");
    }
    println!("{requests} requests as logged, top {} exact", top.len());
    assert_eq!(recorded(&directory, "silent.example").0, 0);
    assert_nobody_is_named(&directory);
}

/// What identifies somebody is in no file, and nobody else may read what is.
fn assert_nobody_is_named(directory: &Path) {
    let bytes = bytes_below(directory);
    for secret in ["203.0.113", "127.0.0.1", "secret=", "silent.example"] {
        let is_there = bytes
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!is_there, "{secret} is in a file");
    }
    let octets = [203_u8, 0, 113, 7];
    assert!(
        !bytes.windows(4).any(|part| part == octets),
        "an address as it is"
    );
}

#[test]
fn the_site_of_all_other_hosts_is_recorded_as_a_star() {
    const STAR: &str =
        "[[sites]]\nhosts = [\"*\"]\nrules = [{ handler = { respond = { body = \"0\" } } }]\n";
    let config = format!("{CONFIG}{STAR}");
    let mut gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config).start();
    await_reading(&gateway);
    ask_many(&gateway, "other.example", 0..500);
    let (directory, dropped) = (figures(&gateway), dropped(&gateway));
    assert!(gateway.stop().success());
    // Who waits for the gateway asks by its address.
    let found = recorded(&directory, "*").0 as f64;
    assert!(found + dropped >= 500.0, "{found}, {dropped} dropped");
}

#[test]
fn the_recorder_may_do_little_and_is_another_user() {
    let gateway = builder().start();
    await_reading(&gateway);
    let (recorder, server) = (gateway.child_called("recorder"), gateway.server_pid());
    let status = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |pid: u32, name: &str| {
        let status = status(pid);
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    for set in ["CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(line(recorder, set), "0000000000000000", "{set}");
    }
    assert_eq!(line(recorder, "Seccomp"), "2", "a filter holds");
    let nice = fs::read_to_string(format!("/proc/{recorder}/stat")).unwrap();
    let fields = nice.rsplit_once(')').unwrap().1.split_whitespace();
    assert_eq!(fields.clone().nth(16), Some("10"), "{nice}");
    if testkit::lacks_root("becoming others") {
        return;
    }
    assert_eq!(line(recorder, "CapBnd"), "0000000000000000");
    assert_eq!(line(recorder, "NoNewPrivs"), "1");
    assert_ne!(line(recorder, "Uid"), line(server, "Uid"));
    assert!(!line(recorder, "Uid").starts_with("0\t"));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(figures(&gateway)).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn visits_are_counted_by_country_where_a_file_tells_it() {
    let with = "[recorder]\ncountries = \"{dir}/countries.mmdb\"";
    let config = CONFIG.replace("[recorder]", with);
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config);
    let file = builder.directory().path().join("countries.mmdb");
    let network = ([203, 0, 113, 0], 24, "JP");
    fs::write(&file, testkit::countries::country_file(&[network])).unwrap();
    let mut gateway = builder.start();
    await_reading(&gateway);
    ask_many(&gateway, "a.example", 0..200);
    let directory = figures(&gateway);
    assert!(gateway.stop().success());
    let store = FigureStore::open_existing(&directory).unwrap();
    let wanted = PartsWanted::list(ListOf::Countries);
    let lists = store.each_day("a.example", (0, i32::MAX), wanted, |_, _| {});
    let lists = lists.unwrap();
    let countries = lists[ListOf::Countries as usize].ranked();
    let names: Vec<_> = countries.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["JP"]);
}

#[test]
fn killed_under_load_it_comes_back_and_nobody_waits() {
    let mut gateway = builder().start();
    await_reading(&gateway);
    let first = gateway.child_called("recorder");
    std::thread::scope(|scope| {
        let load = scope.spawn(|| ask_many(&gateway, "a.example", 0..20_000));
        while !load.is_finished() {
            let pid = gateway.child_called("recorder");
            signal(pid, Signal::KILL);
            processes::await_ended(pid);
        }
    });
    assert_ne!(gateway.child_called("recorder"), first);
    await_reading(&gateway);
    ask_many(&gateway, "a.example", 0..1_000);
    await_quiet(&gateway);
    let (told, dropped) = (told(&gateway), dropped(&gateway));
    let directory = figures(&gateway);
    assert!(metric(&gateway, "recorder_restarts_total") >= 1.0);
    assert!(gateway.stop().success());
    assert_eq!(told + dropped, logged(&gateway).0 as f64);
    let found = recorded(&directory, "a.example").0;
    assert!(found >= 1_000 && found as f64 <= told, "{found} of {told}");
}

#[test]
fn an_upgrade_loses_nothing_untold_and_leaves_one_recorder() {
    let installed = Installed::new();
    let config = format!("{CONFIG}[control]\nsocket = \"{{dir}}/control\"\n");
    let mut gateway = Gateway::with_config(installed.path(), &config).start();
    await_reading(&gateway);
    let earlier = [gateway.server_pid(), gateway.child_called("recorder")];
    let dropped_before = dropped(&gateway);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let request = b"GET /page HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(reply(gateway.ask(request)).status, 200);
                asked += 1;
            }
            asked
        });
        upgraded(&gateway);
        earlier.into_iter().for_each(processes::await_ended);
        await_reading(&gateway);
        is_over.store(true, Ordering::Relaxed);
        assert!(load.join().unwrap() > 0, "the load was no load");
    });
    await_quiet(&gateway);
    let recorder = gateway.child_called("recorder");
    assert!(!earlier.contains(&recorder) && !earlier.contains(&gateway.server_pid()));
    eventually(PATIENCE, "server, spawner and recorder alone", || {
        (gateway.children().len() == 3).then_some(())
    });
    let dropped = dropped_before + dropped(&gateway);
    let directory = figures(&gateway);
    assert!(gateway.stop().success());
    let (found, expected) = (recorded(&directory, "a.example").0, logged(&gateway).0);
    assert_eq!(found as f64 + dropped, expected as f64, "{dropped} dropped");
}

#[test]
fn a_flood_that_finds_no_room_costs_figures_and_no_request() {
    let mut gateway = builder().start();
    await_reading(&gateway);
    let recorder = gateway.child_called("recorder");
    processes::hold_still(recorder);
    ask_many(&gateway, "a.example", 0..20_000);
    let lost = metric(&gateway, "recorder_dropped_total{reason=\"full\"}");
    assert!(lost > 1_000.0, "{lost}");
    signal(recorder, Signal::CONT);
    // The first may be one that was held still at its end, and has found nothing.
    (0..2).for_each(|_| await_look(&gateway));
    let before = told(&gateway);
    ask_many(&gateway, "a.example", 0..2_000);
    await_quiet(&gateway);
    let told = told(&gateway);
    assert_eq!(told, before + 2_000.0, "all is as it was before");
    assert_eq!(
        metric(&gateway, "recorder_dropped_total{reason=\"full\"}"),
        lost
    );
    let directory = figures(&gateway);
    assert!(gateway.stop().success());
    assert_eq!(
        recorded(&directory, "a.example").0 as f64,
        told,
        "the rest is kept"
    );
}

#[test]
fn rubbish_in_the_place_of_the_database_is_set_aside_with_a_line() {
    let gateway = builder().start();
    await_reading(&gateway);
    let directory = figures(&gateway);
    signal(gateway.child_called("recorder"), Signal::KILL);
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("salt") {
            fs::write(path, [0x5a; 8_192]).unwrap();
        }
    }
    gateway.wait_for_message("set aside");
    await_reading(&gateway);
    eventually(PATIENCE, "new figures", || {
        (recorded(&directory, "a.example").0 > 0).then_some(())
    });
}

#[test]
fn a_disk_without_room_is_said_and_figures_are_written_once_there_is_some() {
    if testkit::lacks_root("mounting a file system") {
        return;
    }
    let builder = builder();
    let directory = builder.directory().path().join("figures");
    fs::create_dir(&directory).unwrap();
    // Room for nothing at first, and then for all that is written however often: it goes twice to the
    // disk, to the log of changes and from there to its place.
    let small = Mounted::tmpfs(&directory, "size=8m,mode=777");
    fs::write(directory.join("ballast"), vec![0; (8 << 20) - (56 << 10)]).unwrap();
    let mut gateway = builder.start();
    gateway.wait_for_message("figures wait");
    ask_many(&gateway, "a.example", 0..500);
    fs::remove_file(directory.join("ballast")).unwrap();
    await_reading(&gateway);
    eventually(PATIENCE, "figures", || {
        (recorded(&directory, "a.example").0 > 0).then_some(())
    });
    assert!(gateway.stop().success());
    drop(small);
}

/// A file system that is taken away again.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &str) -> Mounted {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status();
        assert!(mounted.unwrap().success());
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}
