//! The gateway's own figures, as a scraper and a person see them.

use std::process::Command;

use testkit::{Gateway, Outcome, PATIENCE, ScriptedUpstream, eventually, free_port};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
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
    let reply = gateway.get("a", path);
    (reply.status, reply.text())
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

/// Waits until so many replies are counted: that is done when one has been sent, and its client may
/// be quicker. Asking this way counts nothing.
fn settle(gateway: &Gateway, replies: u32) {
    let counted = format!(r#""sites":[{{"site":"a","1xx":0,"2xx":{replies},"#);
    eventually(PATIENCE, &counted, || {
        status(gateway, &["--json"])
            .contains(&counted)
            .then_some(())
    });
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
    settle(&gateway, 40);
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
    let text = eventually(PATIENCE, "a reload", reloaded);
    assert!(value(&text, requests).unwrap() >= 41.0);
    assert_eq!(value(&text, "nagaya_generation"), Some(2.0));
}

#[test]
fn an_upstreams_health_is_seen() {
    let (gateway, upstream) = start();
    assert_eq!(ask(&gateway, "/app").0, 200);
    settle(&gateway, 1);
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
    settle(&gateway, 3);
    let page = status(&gateway, &[]);
    let pid = gateway.pid();
    let first = format!("pid {pid} · generation 1 · up ");
    assert!(
        page.starts_with("nagaya ") && page.contains(&first),
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
    assert!(json.contains(&format!(r#""pid":{pid},"#)), "{json}");
    assert!(
        json.contains(r#""sites":[{"site":"a","1xx":0,"2xx":3"#),
        "{json}"
    );
}

#[test]
fn a_dead_only_server_is_named_everywhere() {
    let config = CONFIG
        .replace("workers = 2", "workers = 1")
        .replace("access.log\"", "access.log\"\nformat = \"json\"");
    let server = format!("127.0.0.1:{}", free_port());
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("upstream", &server)
        .start();
    for _ in 0..3 {
        assert_eq!(ask(&gateway, "/app").0, 502);
    }
    let page = status(&gateway, &[]);
    assert!(page.contains("  failing, 3 in a row  "), "{page}");
    let (_, text) = ask(&gateway, "/metrics");
    assert_eq!(value(&text, "nagaya_upstream_up{"), Some(0.0), "{text}");
    gateway.wait_for_message(&format!(
        "reason=upstream_unreachable name=app server={server}"
    ));
    gateway.wait_for_message(&format!(
        "asked on: there is no other name=app server={server}"
    ));
    let log = gateway.directory().path().join("access.log");
    eventually(PATIENCE, "records with the server", || {
        let records = std::fs::read_to_string(&log).ok()?;
        let named = format!(r#""upstream":"{server}","upstream_status":null"#);
        (records.matches(&named).count() == 3).then_some(())
    });
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
    eventually(PATIENCE, "a restart to be counted", || {
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
        let Outcome::Reply(reply) = gateway.ask(request) else {
            return None;
        };
        let text = String::from_utf8(reply.body).unwrap();
        (value(&text, "nagaya_restarts_total") == Some(1.0)).then_some(())
    });
}

#[test]
fn reloads_are_counted_by_what_became_of_them_across_servers() {
    let (mut gateway, _upstream) = start();
    let await_counts = |gateway: &Gateway, accepted: f64, refused: f64| {
        let what = format!("{accepted} reloads and {refused} refused");
        eventually(PATIENCE, &what, || {
            let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
            let Outcome::Reply(reply) = gateway.ask(request) else {
                return None;
            };
            let text = String::from_utf8(reply.body).unwrap();
            let counts = ["reloads_total", "reloads_refused_total"]
                .map(|name| value(&text, &format!("nagaya_{name} ")).unwrap());
            (counts == [accepted, refused]).then_some(())
        });
    };
    await_counts(&gateway, 0.0, 0.0);
    gateway.reload(&CONFIG.replace("workers = 2", "wrokers = 2"));
    await_counts(&gateway, 0.0, 1.0);
    let page = status(&gateway, &[]);
    let told = ": unknown key `wrokers` in the top level\n  what was in force before serves on: nagaya check\n";
    assert!(
        page.contains("\nthe reload at 20") && page.contains(told),
        "{page}"
    );
    gateway.reload(CONFIG);
    await_counts(&gateway, 1.0, 1.0);
    let page = status(&gateway, &[]);
    assert!(!page.contains("was refused"), "{page}");
    assert!(status(&gateway, &["--json"]).contains("\"reload_refused\":null,"));
    gateway.reload(&CONFIG.replace("workers = 2", "workers = 3"));
    await_counts(&gateway, 1.0, 2.0);
    let page = status(&gateway, &[]);
    assert!(
        page.contains("1 reload · 0 restarts · 2 reloads refused"),
        "{page}"
    );
    let json = status(&gateway, &["--json"]);
    assert!(json.contains("\"reloads\":1,\"reloads_refused\":2,\"reload_refused\":{\"at\":\"20"));
    assert!(
        json.contains("Z\",\"outcome\":\"failed\",\"problem\":\""),
        "{json}"
    );
    let server = rustix::process::Pid::from_raw(gateway.server_pid().try_into().unwrap());
    rustix::process::kill_process(server.unwrap(), rustix::process::Signal::KILL).unwrap();
    await_counts(&gateway, 1.0, 2.0);
}
