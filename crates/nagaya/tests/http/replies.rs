//! Every reply vector: what an upstream may send, and what the client then sees.
//!
//! Each row has the upstream's connection to itself, so that the next request shows whether that
//! connection was used again.

use std::path::Path;
use std::sync::Arc;

use testkit::client::Body;
use testkit::vectors::{ReplyRow, replies};
use testkit::{Gateway, Outcome, RawClient, Reply, ScriptedUpstream, Seen, Step};

const CONFIG: &str = r#"
workers = 1
[log]
level = "error"
[timeouts]
upstream_read = "20s"
[upstreams.app]
servers = ["{upstream}"]
fails = 1000
[[sites]]
hosts = ["app.test"]
rules = [{ handler = { proxy = "app" } }]
"#;

/// Later requests a reused connection may take to turn up: it goes back to the pool after the
/// client has its reply.
const LATER_REQUESTS: usize = 20;

fn rows() -> Vec<ReplyRow> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    replies(&root, &["reply"])
}

/// Answers `/INDEX` with that row's bytes and anything else plainly.
fn answer(rows: &[ReplyRow], seen: &Seen) -> Vec<Step> {
    let target = seen.head.line.split(' ').nth(1).unwrap_or_default();
    let row = target.trim_start_matches('/').parse().ok();
    let Some(row) = row.and_then(|index: usize| rows.get(index)) else {
        return vec![Step::ReadBody, Step::reply(200, "after")];
    };
    let mut steps = vec![Step::ReadBody, Step::Send(row.reply.clone())];
    if row.closes {
        steps.push(Step::Close);
    }
    steps
}

fn fault(
    gateway: &Gateway,
    upstream: &ScriptedUpstream,
    index: usize,
    row: &ReplyRow,
) -> Option<String> {
    let mut client = gateway.client();
    let method = &row.method;
    client.send(format!("{method} /{index} HTTP/1.1\r\nHost: app.test\r\n\r\n").as_bytes());
    let body = match method.as_str() {
        "HEAD" => Body::Never,
        _ => Body::Framed,
    };
    match client.read_reply(body) {
        Outcome::Reply(reply) if row.statuses.contains(&reply.status) => {
            if let Some(what) = reply_fault(row, &reply) {
                return Some(format!("{what}: {}", show(&reply)));
            }
        }
        Outcome::Eof | Outcome::Reset if row.statuses.contains(&0) => {}
        Outcome::Reply(reply) => {
            return Some(format!("{:?} expected, got {}", row.statuses, show(&reply)));
        }
        other => return Some(format!("{:?} expected, got {other:?}", row.statuses)),
    }
    let used: Vec<_> = upstream
        .take_seen()
        .iter()
        .map(|seen| seen.connection)
        .collect();
    reuse_fault(gateway, upstream, row, &used)
}

fn reply_fault(row: &ReplyRow, reply: &Reply) -> Option<String> {
    // A status chosen by the gateway comes with a body of its own.
    let passed_on = reply.status != 502;
    if reply.complete != (row.complete || !passed_on) {
        return Some(format!("complete = {}", reply.complete));
    }
    if passed_on && row.body.as_ref().is_some_and(|body| *body != reply.body) {
        return Some("wrong body".to_owned());
    }
    for (name, value) in &row.has {
        if reply.head.count(name) != 1 || reply.head.field(name) != Some(value) {
            return Some(format!("no single {name}: {value}"));
        }
    }
    if let Some(name) = row.lacks.iter().find(|name| reply.head.count(name) > 0) {
        return Some(format!("has {name}"));
    }
    let text = String::from_utf8_lossy(&reply.head.bytes).into_owned();
    let text = row.never.iter().find(|never| text.contains(never.as_str()));
    text.map(|text| format!("has {text:?}"))
}

/// Whether the next requests used the connection again, against what the row says.
fn reuse_fault(
    gateway: &Gateway,
    upstream: &ScriptedUpstream,
    row: &ReplyRow,
    used: &[usize],
) -> Option<String> {
    let expected = row.reused?;
    let later = if expected { LATER_REQUESTS } else { 2 };
    for _ in 0..later {
        let outcome = gateway.ask(b"GET /after HTTP/1.1\r\nHost: app.test\r\n\r\n");
        match outcome {
            Outcome::Reply(reply) if reply.body == b"after" => {}
            other => return Some(format!("the next request got {other:?}")),
        }
        let reused = upstream
            .take_seen()
            .iter()
            .any(|seen| used.contains(&seen.connection));
        if reused {
            return (!expected).then(|| "the upstream connection was used again".to_owned());
        }
    }
    expected.then(|| "the upstream connection was not used again".to_owned())
}

fn show(reply: &Reply) -> String {
    let body = reply.text();
    let head = String::from_utf8_lossy(&reply.head.bytes).into_owned();
    format!("{head:?} {body:.100?} complete = {}", reply.complete)
}

#[test]
fn upstream_replies() {
    let rows = Arc::new(rows());
    assert!(rows.len() >= 100, "only {} rows", rows.len());
    let known = Arc::clone(&rows);
    let upstream = ScriptedUpstream::start(move |seen| answer(&known, seen));
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .start();
    let faults: Vec<_> = rows
        .iter()
        .enumerate()
        .filter_map(|(index, row)| {
            let what = fault(&gateway, &upstream, index, row);
            // A row that failed leaves no trace for the next.
            drop(upstream.take_seen());
            what.map(|what| format!("{} [{}]: {what:.700}", row.id, row.rule))
        })
        .collect();
    assert!(
        faults.is_empty(),
        "{} of {} rows fail:\n{}",
        faults.len(),
        rows.len(),
        faults.join("\n")
    );
}

#[test]
fn a_byte_at_a_time_is_the_same_reply() {
    let reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n3\r\nabc\r\n2;e\r\nde\r\n0\r\nT: u\r\n\r\n";
    let pause = std::time::Duration::from_micros(300);
    let upstream = ScriptedUpstream::start(move |_| {
        vec![Step::ReadBody, Step::Drip(reply.to_vec(), 1, pause)]
    });
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .start();
    let mut client = RawClient::connect(gateway.address());
    for _ in 0..3 {
        match client.ask(b"GET / HTTP/1.1\r\nHost: app.test\r\n\r\n") {
            Outcome::Reply(reply) => {
                assert!(reply.complete);
                assert_eq!(reply.body, b"abcde");
                assert_eq!(reply.head.field("x"), Some("y"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(upstream.connections(), 1);
}
