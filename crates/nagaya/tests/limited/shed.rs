//! Shedding end to end: a sensor that the test drives (requests in flight), and who is sent away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use crate::fixtures::limited::{Gate, ask, held, send};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, RawClient, ScriptedUpstream, eventually};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[log]
access = "{dir}/access.log"
format = "json"
level = "warn"
[upstreams.app]
servers = ["{upstream}"]
fails = 1000
[[shed]]
name = "crowd"
sensor = "in_flight"
enter = 3.5
leave = 1.5
scope = "all"
degrade = ["optional_scripts"]
{respond}
[[sites]]
hosts = ["app.test"]
scripts = { access = { code = "Nginx::Request.new.headers_out['X-Extra'] = 'here'", optional = true } }
  [[sites.rules]]
  match = { path = "/health" }
  handler = { respond = { body = "well" } }
  [[sites.rules]]
  handler = { proxy = "app" }
[[sites]]
hosts = ["sorry.test"]
  [[sites.rules]]
  handler = { respond = { body = "sorry" } }
"#;

fn gateway(upstream: &ScriptedUpstream, respond: &str) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .with("respond", respond)
        .start()
}

/// Has four requests wait at the back end, and waits until that is too much.
fn crowd(gateway: &Gateway) -> Vec<RawClient> {
    let clients = (0..4).map(|_| send(gateway, "/held")).collect();
    // The status may show it a moment before it is in force.
    gateway.wait_for_message("shedding goes from green to red: in_flight is ");
    clients
}

fn await_state(gateway: &Gateway, state: &str) {
    let wanted = format!("\"state\":\"{state}\"");
    eventually(PATIENCE, "the state of the rule", || {
        ask(gateway, "status json").contains(&wanted).then_some(())
    });
}

/// The changes of state that the error log tells of.
fn changes(gateway: &Gateway) -> usize {
    gateway.stderr().matches("shedding goes from ").count()
}

#[test]
fn while_there_is_too_much_to_do_requests_are_sent_elsewhere() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let target = "respond = { redirect = \"http://sorry.test/sorry.html\" }";
    let gateway = gateway(&upstream, target);
    assert!(
        gateway
            .get("app.test", "/health")
            .head
            .field("X-Extra")
            .is_some()
    );
    let clients = crowd(&gateway);
    let sent_away = gateway.get("app.test", "/");
    assert_eq!(sent_away.status, 302, "{sent_away:?}");
    assert_eq!(
        sent_away.head.field("Location"),
        Some("http://sorry.test/sorry.html")
    );
    assert_eq!(gateway.get("sorry.test", "/sorry.html").body, b"sorry");
    assert_eq!(gateway.get("sorry.test", "/other.html").status, 302);
    let health = gateway.get("app.test", "/health");
    assert_eq!((health.status, health.head.field("X-Extra")), (200, None));
    let id = sent_away.head.field("X-Request-Id").unwrap();
    let why = ask(&gateway, &format!("why {id}"));
    assert!(
        why.contains("shed by     crowd") && why.contains("in_flight"),
        "{why}"
    );
    assert!(
        why.contains("site        app.test\npath        /\n"),
        "{why}"
    );
    gate.open();
    for mut client in clients {
        assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    }
    gateway.wait_for_message("shedding goes from red to green: in_flight is ");
    assert_eq!(gateway.get("app.test", "/").status, 200);
    assert_eq!(changes(&gateway), 2, "{}", gateway.stderr());
}

#[test]
fn those_sent_away_see_the_whale_on_a_connection_that_stays() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(&upstream, "");
    let clients = crowd(&gateway);
    let mut client = gateway.client().with_deadline(PATIENCE);
    let mut sized = None;
    for method in ["GET", "HEAD", "POST"] {
        let body = if method == "POST" {
            "Content-Length: 4\r\n\r\nbody"
        } else {
            "\r\n"
        };
        client.send(format!("{method} / HTTP/1.1\r\nHost: app.test\r\n{body}").as_bytes());
        let of_head = if method == "HEAD" {
            Body::Never
        } else {
            Body::Framed
        };
        let reply = reply(client.read_reply(of_head));
        assert_eq!(reply.status, 503, "{method} {reply:?}");
        let seconds: u32 = reply.head.field("Retry-After").unwrap().parse().unwrap();
        assert!((10..=15).contains(&seconds));
        let body = String::from_utf8_lossy(&reply.body);
        assert_eq!(body.contains("<svg "), method != "HEAD", "{method}");
        let id = reply.head.field("X-Request-Id").unwrap();
        assert_eq!(body.contains(id), method != "HEAD", "{method} {body}");
        let bytes: usize = reply.head.field("Content-Length").unwrap().parse().unwrap();
        assert_eq!(*sized.get_or_insert(bytes), bytes, "{method}");
    }
    gate.open();
    drop(clients);
}

#[test]
fn a_reload_keeps_shedding() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let mut gateway = gateway(&upstream, "");
    let clients = crowd(&gateway);
    gateway.wait_for_message("shedding goes from green to red: in_flight is ");
    assert_eq!(changes(&gateway), 1, "{}", gateway.stderr());
    gateway.reload(&CONFIG.replace("{respond}", "respond = { redirect = \"/sorry\" }"));
    eventually(PATIENCE, "the new generation", || {
        let status = gateway.get("app.test", "/").status;
        assert!([302, 503].contains(&status), "{status}");
        (status == 302).then_some(())
    });
    assert_eq!(changes(&gateway), 1, "{}", gateway.stderr());
    gate.open();
    drop(clients);
    await_state(&gateway, "green");
}

#[test]
fn a_rule_in_shadow_is_told_of_and_nobody_is_sent_away() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let mut gateway = gateway(&upstream, "mode = \"shadow\"");
    let clients: Vec<RawClient> = (0..4).map(|_| send(&gateway, "/held")).collect();
    gateway.wait_for_message("shedding (shadow) goes from green to red: in_flight is ");
    let health = gateway.get("app.test", "/health");
    assert_eq!(
        (health.status, health.head.field("X-Extra")),
        (200, Some("here"))
    );
    let passed = gateway.get("sorry.test", "/");
    assert_eq!((passed.status, &*passed.body), (200, &b"sorry"[..]));
    let id = passed.head.field("X-Request-Id").unwrap();
    let why = ask(&gateway, &format!("why {id}"));
    assert!(
        why.contains("outcome     passed: would have been shed"),
        "{why}"
    );
    assert!(why.contains("shed by     crowd\n"), "{why}");
    let log = gateway.directory().path().join("access.log");
    let record = eventually(PATIENCE, "the record", || {
        let records = std::fs::read_to_string(&log).unwrap_or_default();
        let record = records.lines().find(|line| line.contains(id));
        record.map(str::to_owned)
    });
    assert!(
        record.contains(r#""shadow_reason":"shed","shadow_shed":"crowd""#),
        "{record}"
    );
    let status = ask(&gateway, "status json");
    assert!(status.contains(r#""shed":0,"shadow_shed":1"#), "{status}");
    assert_eq!(changes(&gateway), 0, "{}", gateway.stderr());
    gateway.reload(&CONFIG.replace("{respond}", ""));
    gateway.wait_for_message("shedding goes from green to red: in_flight is ");
    assert_eq!(gateway.get("sorry.test", "/").status, 503);
    gate.open();
    for mut client in clients {
        assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    }
}

/// Threads that want all processors and more, until dropped.
struct Hog {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hog {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let count = 4 * std::thread::available_parallelism().map_or(2, usize::from);
        let spin = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..count).map(spin).collect();
        Self { stop, threads }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_real_hog_is_noticed_and_what_is_let_in_falls() {
    if std::fs::read_to_string("/proc/pressure/cpu").is_err() {
        return testkit::lacks("a kernel's feature", "no pressure stall information");
    }
    let of_crowd = "sensor = \"in_flight\"\nenter = 3.5\nleave = 1.5\nscope = \"all\"\n";
    let config = CONFIG.replace(of_crowd, "sensor = \"cpu_pressure\"\n");
    assert!(config.contains("cpu_pressure"));
    let upstream = held(&Gate::default());
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("upstream", upstream.address())
        .with("respond", "")
        .start();
    let hog = Hog::start();
    gateway.wait_for_message("shedding goes from green to yellow: cpu_pressure is ");
    eventually(PATIENCE, "a smaller share", || {
        let status = ask(&gateway, "status json");
        status.contains("\"admitted_share\":0.").then_some(())
    });
    drop(hog);
}
