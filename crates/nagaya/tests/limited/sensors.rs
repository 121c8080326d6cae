//! Sensors of a running gateway, and of a machine without one.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use testkit::temp::TempDir;
use testkit::{Gateway, PATIENCE, ScriptedUpstream, Step, eventually};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");

const CONFIG: &str = r#"
workers = 1
[control]
socket = "{dir}/control"
[scripts]
cpu = "1s"
[upstreams.app]
servers = ["{upstream}"]
[[sites]]
hosts = ["a.test"]
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
  [[sites.rules]]
  match = { path = "/spin" }
  handler = { script = { code = "n = Time.now.to_f + 0.8; while Time.now.to_f < n; end; Nginx.rputs 'spun'" } }
  [[sites.rules]]
  match = { path = "/sensor" }
  handler = { script = { code = "Nginx.rputs Nagaya.sensor('in_flight').inspect" } }
  [[sites.rules]]
  limits = [{ concurrent = 1, queue = 5, wait = "60s" }]
  handler = { proxy = "app" }
"#;

fn start() -> (Gateway, ScriptedUpstream, Arc<std::sync::Barrier>) {
    let (upstream, turn) = ScriptedUpstream::held(vec![Step::reply(200, "at last")]);
    let gateway = Gateway::with_config(NAGAYA, CONFIG)
        .with("upstream", upstream.address())
        .start();
    (gateway, upstream, turn)
}

fn nagaya(words: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(NAGAYA);
    command.args(words).current_dir(directory).output().unwrap()
}

fn told(gateway: &Gateway, words: &[&str]) -> String {
    let socket = gateway.directory().path().join("control");
    let words = [words, &["--socket", socket.to_str().unwrap()]].concat();
    let output = nagaya(&words, gateway.directory().path());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a sensor says in the JSON of `nagaya sensors`; `None` for `null`.
fn value(json: &str, sensor: &str) -> Option<f64> {
    let (_, rest) = json.split_once(&format!("\"{sensor}\":{{\"value\":"))?;
    rest.split_once(',')?.0.parse().ok()
}

fn now(gateway: &Gateway, sensor: &str) -> Option<f64> {
    value(&told(gateway, &["sensors", "--json"]), sensor)
}

/// Waits until a sensor says something of the kind.
fn comes(gateway: &Gateway, sensor: &str, holds: impl Fn(f64) -> bool) {
    eventually(PATIENCE, sensor, || {
        now(gateway, sensor).is_some_and(&holds).then_some(())
    });
}

fn ask(gateway: &Gateway, path: &str) -> String {
    gateway.get("a.test", path).text()
}

#[test]
fn the_gateways_sensors_are_told_everywhere() {
    let (gateway, _upstream, _turn) = start();
    comes(&gateway, "in_flight", |requests| requests == 0.0);
    // The first sample may come before the worker's first tick.
    comes(&gateway, "loop_lag", |_| true);
    let table = told(&gateway, &["sensors"]);
    for part in ["sensor  ", "load1  ", "queue_age  ", "\ndescriptors: "] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|width| width <= 120), "{table}");
    // As few as are open need no more.
    assert!(!table.contains("LimitNOFILE="), "{table}");
    assert!(told(&gateway, &["sensors", "--json"]).contains("LimitNOFILE="));
    let status = told(&gateway, &["status", "--json"]);
    assert!(status.contains("\"sensors\":{\"load1\":"), "{status}");
    let (_, lags) = status.split_once("\"loop_lag_s\":[").unwrap();
    assert!(
        lags.starts_with(|first: char| first.is_ascii_digit()),
        "{status}"
    );
    let metrics = ask(&gateway, "/metrics");
    for part in [
        "nagaya_sensor{sensor=\"in_flight\"} ",
        "nagaya_sensor{sensor=\"descriptors\"} 0",
        "nagaya_loop_lag_seconds{worker=\"0\"} ",
    ] {
        assert!(metrics.contains(part), "{part} is not in\n{metrics}");
    }
    let said = ask(&gateway, "/sensor");
    assert!(said.parse::<f64>().is_ok(), "{said}");
}

#[test]
fn who_waits_ages_the_queue_and_who_is_served_is_in_flight() {
    let (gateway, _upstream, turn) = start();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(&gateway, "/"));
        comes(&gateway, "in_flight", |requests| requests >= 1.0);
        let second = scope.spawn(|| ask(&gateway, "/"));
        comes(&gateway, "queue_age", |age_s| age_s > 0.2);
        comes(&gateway, "in_flight", |requests| requests >= 2.0);
        // Each comes, and is let go.
        for _ in 0..4 {
            turn.wait();
        }
        for asked in [first, second] {
            assert_eq!(asked.join().unwrap(), "at last");
        }
    });
    comes(&gateway, "queue_age", |age_s| age_s == 0.0);
}

#[test]
fn a_worker_that_is_held_up_is_late() {
    let (gateway, _upstream, _turn) = start();
    comes(&gateway, "loop_lag", |_| true);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // What is late is told for a second: on a slow machine nobody may ask in the first.
        scope.spawn(|| {
            while !end.load(Relaxed) {
                assert_eq!(ask(&gateway, "/spin"), "spun");
            }
        });
        comes(&gateway, "loop_lag", |lag_s| lag_s > 0.4);
        end.store(true, Relaxed);
    });
    comes(&gateway, "loop_lag", |lag_s| lag_s < 0.4);
}

#[test]
fn without_a_gateway_the_machine_is_read() {
    let directory = TempDir::new();
    let output = nagaya(&["sensors", "--json"], directory.path());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("neither nagaya.toml nor /etc/nagaya/nagaya.toml is there"),
        "{said}"
    );
    let json = String::from_utf8(output.stdout).unwrap();
    assert_eq!(value(&json, "in_flight"), None, "{json}");
    let has_load = Path::new("/proc/loadavg").exists();
    assert_eq!(value(&json, "load1").is_some(), has_load, "{json}");
    let socket = directory.path().join("nobody");
    let named = nagaya(
        &["sensors", "--socket", socket.to_str().unwrap()],
        directory.path(),
    );
    assert_eq!(named.status.code(), Some(1), "{named:?}");
}

/// Connections of this network that found a queue full so far; `None` where that is not counted.
fn overflows() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/net/netstat").ok()?;
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut pairs = names.split(' ').zip(numbers.split(' '));
    pairs
        .find(|(name, _)| *name == "ListenOverflows")?
        .1
        .parse()
        .ok()
}

#[test]
fn a_full_listen_queue_is_seen() {
    let (gateway, _upstream, _turn) = start();
    let Some(before) = overflows() else {
        return testkit::lacks("a kernel's feature", "it does not count ListenOverflows");
    };
    // Nobody accepts: beyond its queue of 128 connections are dropped.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut kept = Vec::new();
    let overflow = || {
        for _ in 0..200 {
            kept.extend(TcpStream::connect_timeout(
                &address,
                Duration::from_millis(2),
            ));
        }
        kept.truncate(400);
        overflows() > Some(before)
    };
    if !within_tries(overflow) {
        return testkit::lacks("a kernel's feature", "it lets the queue grow");
    }
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // It goes on as long as it takes: the sensor says how many a second.
        scope.spawn(|| {
            while !end.load(Relaxed) {
                drop(TcpStream::connect_timeout(
                    &address,
                    Duration::from_millis(5),
                ));
            }
        });
        comes(&gateway, "listen_overflows", |a_second| a_second > 0.0);
        end.store(true, Relaxed);
    });
}

fn within_tries(mut holds: impl FnMut() -> bool) -> bool {
    (0..5).any(|_| holds())
}

#[test]
fn a_busy_processor_is_pressure() {
    if !Path::new("/proc/pressure/cpu").exists() {
        return testkit::lacks("a kernel's feature", "no pressure stall information");
    }
    let (gateway, _upstream, _turn) = start();
    let hogs = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..hogs {
            scope.spawn(|| {
                while !end.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        comes(&gateway, "cpu_pressure", |share| {
            share > 0.3 && share <= 1.0
        });
        end.store(true, Relaxed);
    });
}
