//! What is told of limits end to end: shadows in the log, the records and `nagaya why`, and a log
//! that made-up keys cannot flood.

use crate::fixtures::limited;
use std::time::Instant;

use crate::fixtures::limited::{Gate, ask, await_counts, count, held, replies, send};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, ScriptedUpstream, eventually};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[log]
access = "{dir}/access.log"
format = "json"
level = "warn"
[caps] # each record is looked at
refusals_per_client = 0
[[sites]]
hosts = ["app.test"]
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
  [[sites.rules]]
  handler = { proxy = "http://{upstream}" }
  limits = [{limits}]
"#;

fn gateway(upstream: &ScriptedUpstream, limits: &str) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .with("limits", limits)
        .start()
}

#[test]
fn what_a_limit_in_shadow_would_have_refused_is_found_like_a_refusal() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limit = r#"{ key = "path", concurrent = 1, mode = "shadow" }"#;
    let gateway = gateway(&upstream, limit);
    let mut clients = vec![send(&gateway, "/page")];
    await_counts(&gateway, 1, 0);
    clients.push(send(&gateway, "/page"));
    await_counts(&gateway, 2, 0);
    gate.open();
    let replies = replies(clients);
    assert_eq!(count(&replies, 200), 2, "{replies:?}");
    gateway.wait_for_message("/page concurrent 1/1 queue 0/0: 1 would be refused (shadow)");
    let id = replies[1].head.field("X-Request-Id").unwrap();
    assert!(gateway.stderr().contains(&format!("request_id={id}")));
    let why = gateway.told(&["why", id]);
    for part in [
        "passed: would have been refused",
        "limit_full",
        "concurrent >= 2",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let log = gateway.directory().path().join("access.log");
    let record = eventually(PATIENCE, "the record", || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let found = log.lines().find(|line| line.contains(id));
        found.map(str::to_owned)
    });
    for part in [
        r#""status":200"#,
        r#""reason":null"#,
        r#""limit":null"#,
        r#""shadow_reason":"limit_full""#,
        r#"/path","shadow_key":"/page""#,
    ] {
        assert!(record.contains(part), "{part}: {record}");
    }
    let metrics = reply(gateway.ask(&limited::get("app.test", "/metrics")));
    let metrics = metrics.text();
    for (name, value) in [
        ("shadow_refused_total", 1),
        ("admitted_total", 2),
        ("concurrent", 1),
        ("in_flight_most", 0),
        ("shadow", 1),
    ] {
        let sample =
            format!("nagaya_limit_{name}{{limit=\"rule app.test/rule 2/path\"}} {value}\n");
        assert!(metrics.contains(&sample), "{sample}: {metrics}");
    }
    assert!(
        !metrics.contains("nagaya_limit_refused_total{"),
        "{metrics}"
    );
}

/// Requests that are refused, each with a key of its own.
const REFUSED: usize = 200;

#[test]
fn made_up_keys_get_one_line_a_second_and_cannot_write_another() {
    let upstream = ScriptedUpstream::fixed("served");
    let limit = r#"{ key = "header:x-key", rate = "1/d" }"#;
    let gateway = gateway(&upstream, limit);
    let started = Instant::now();
    let mut client = gateway.client().with_deadline(PATIENCE);
    for number in 0..REFUSED {
        let key = format!("{number} concurrent 0/9: 9 \"refused\" \u{202e}\\n");
        let request = format!("GET / HTTP/1.1\r\nHost: app.test\r\nX-Key: {key}\r\n\r\n");
        for expected in [200, 429] {
            client.send(request.as_bytes());
            let reply = reply(client.read_reply(Body::Framed));
            assert_eq!(reply.status, expected, "{reply:?}");
        }
    }
    let total = format!("\"limit_rate\":{REFUSED}");
    assert!(ask(&gateway, "limits list json").contains(&total));
    let told = |line: &&str| line.contains("limit header:x-key");
    let counted = |line: &str| -> usize {
        let (_, rest) = line.rsplit_once("burst 1: ").unwrap();
        let numbers = rest.split(|character: char| !character.is_ascii_digit());
        let numbers = numbers.filter_map(|word| word.parse::<usize>().ok());
        numbers.take(2).sum()
    };
    let stderr = eventually(PATIENCE, "all refusals in the log", || {
        let stderr = gateway.stderr();
        let all: usize = stderr.lines().filter(told).map(counted).sum();
        (all == REFUSED).then_some(stderr)
    });
    let lines: Vec<&str> = stderr.lines().filter(told).collect();
    // One for each second, the one under way and the one after the last.
    let most = usize::try_from(started.elapsed().as_secs()).unwrap() + 2;
    assert!(lines.len() <= most, "{lines:#?}");
    for line in lines {
        assert!(!line.contains('\u{202e}'), "{line}");
        assert!(line.contains("header:x-key=\""), "{line}");
    }
}
