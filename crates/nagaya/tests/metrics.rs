//! The gateway's own figures, as a scraper and a person see them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::time::Duration;

use testkit::{Gateway, Outcome, ScriptedUpstream, eventually};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = "{dir}/access.log"
[upstreams.app]
servers = ["{upstream}"]
[[sites]]
hosts = ["a"]
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
  [[sites.rules]]
  match = { path = "/app" }
  handler = { proxy = "app" }
  [[sites.rules]]
  handler = { respond = { status = 200, body = "0123456789" } }
"#;

fn ask(gateway: &Gateway, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    match gateway.ask(request.as_bytes()) {
        Outcome::Reply(reply) => (reply.status, String::from_utf8(reply.body).unwrap()),
        other => panic!("no reply: {other:?}"),
    }
}

fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn status(gateway: &Gateway, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nagaya"))
        .arg("status")
        .arg("--socket")
        .arg(gateway.directory().path().join("control"))
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn start() -> (Gateway, ScriptedUpstream) {
    let upstream = ScriptedUpstream::fixed("ok");
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .start();
    (gateway, upstream)
}

#[test]
fn workers_are_added_up_and_a_reload_forgets_nothing() {
    let (mut gateway, _upstream) = start();
    for _ in 0..40 {
        assert_eq!(ask(&gateway, "/").0, 200);
    }
    let requests = r#"nagaya_requests_total{site="a",status="2xx"}"#;
    let (_, text) = ask(&gateway, "/metrics");
    assert_eq!(value(&text, requests), Some(40.0));
    assert_eq!(
        value(&text, r#"nagaya_reply_body_bytes_total{site="a"}"#),
        Some(400.0)
    );
    gateway.reload(CONFIG);
    let reloaded = || {
        let (_, text) = ask(&gateway, "/metrics");
        (value(&text, "nagaya_reloads_total") == Some(1.0)).then_some(text)
    };
    let text = eventually(Duration::from_secs(10), "a reload", reloaded);
    assert!(value(&text, requests).unwrap() >= 41.0);
    assert_eq!(value(&text, "nagaya_generation"), Some(2.0));
}

#[test]
fn an_upstreams_health_is_seen() {
    let (gateway, upstream) = start();
    assert_eq!(ask(&gateway, "/app").0, 200);
    let server = format!(r#"{{upstream="app",server="{}"}}"#, upstream.address());
    let (_, text) = ask(&gateway, "/metrics");
    for (name, expected) in [
        ("upstream_requests_total", 1.0),
        ("upstream_failures_total", 0.0),
        ("upstream_in_flight", 0.0),
        ("upstream_up", 1.0),
    ] {
        let found = value(&text, &format!("nagaya_{name}{server}"));
        assert_eq!(found, Some(expected), "{name} in {text}");
    }
    assert_eq!(value(&text, "nagaya_upstream_seconds_count"), Some(1.0));
}

#[test]
fn status_tells_a_person_and_a_program() {
    let (gateway, _upstream) = start();
    for path in ["/", "/", "/app"] {
        ask(&gateway, path);
    }
    let page = status(&gateway, &[]);
    assert!(
        page.starts_with("nagaya ") && page.contains("generation 1 · up "),
        "{page}"
    );
    let site = page.lines().find(|line| line.starts_with("a ")).unwrap();
    assert_eq!(
        site.split_whitespace().take(3).collect::<Vec<_>>(),
        ["a", "3", "3"]
    );
    assert!(
        page.lines()
            .any(|line| line.starts_with("app ") && line.contains(" up ")),
        "{page}"
    );
    let json = status(&gateway, &["--json"]);
    assert!(
        json.contains(r#""sites":[{"site":"a","1xx":0,"2xx":3"#),
        "{json}"
    );
}

#[test]
fn a_restart_is_counted() {
    let (gateway, _upstream) = start();
    let before = gateway.server_pid();
    assert!(
        Command::new("kill")
            .args(["-9", &before.to_string()])
            .status()
            .unwrap()
            .success()
    );
    eventually(Duration::from_secs(10), "a restart to be counted", || {
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        let Outcome::Reply(reply) = gateway.ask(request) else {
            return None;
        };
        let text = String::from_utf8(reply.body).unwrap();
        (value(&text, "nagaya_restarts_total") == Some(1.0)).then_some(())
    });
}
