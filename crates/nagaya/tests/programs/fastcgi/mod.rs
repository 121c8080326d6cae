//! FastCGI against a scripted responder: what it is asked, and what becomes of what it says.

mod connections;
mod replies;
mod requests;

use std::time::{Duration, Instant};

use testkit::client::reply;
use testkit::fastcgi::{kind, record};
use testkit::gateway::Builder;
use testkit::{FastCgiResponder, Gateway, Outcome, PATIENCE, Step, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
level = "warn"
[timeouts]
upstream_read = "{silence}"
[caps]
env_bytes = "8KiB"
[upstreams.app]
protocol = "fastcgi"
servers = ["{upstream}"]
keepalive = {keepalive}
fails = 1000
[[sites]]
hosts = ["app.test"]
root = "{dir}/site"
index = ["index.php"]
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = { address = "app", {keys} } }
"#;

/// For megabytes through a narrow window, on a busy machine.
const LONG: Duration = Duration::from_secs(120);

const PAGE: &[u8] = b"Content-Type: text/plain\r\n\r\nhello";

fn builder(responder: &FastCgiResponder, keys: &str) -> Builder {
    builder_of(CONFIG, responder, keys, 8)
}

fn builder_of(config: &str, responder: &FastCgiResponder, keys: &str, keepalive: usize) -> Builder {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config)
        .with("upstream", responder.address())
        .with("keys", keys)
        .with("silence", "30s")
        .with("keepalive", keepalive);
    builder.directory().write("site/x.php", "not shown");
    builder.directory().write("site/index.php", "not shown");
    builder
}

fn gateway(responder: &FastCgiResponder) -> Gateway {
    builder(responder, "").start()
}

/// A responder that answers every request with these bytes.
fn says(bytes: impl Into<Vec<u8>>) -> FastCgiResponder {
    let bytes = bytes.into();
    FastCgiResponder::start(move |_| vec![Step::Send(bytes.clone())])
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n\r\n").into_bytes()
}

fn post(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST /x.php HTTP/1.1\r\nHost: app.test\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn stdout(text: &[u8]) -> Vec<u8> {
    record(kind::STDOUT, text, 0)
}

fn assert_page(outcome: Outcome) {
    let answer = reply(outcome);
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (200, &b"hello"[..])
    );
    assert!(answer.complete);
}

/// How long a kept connection is idle before it counts as one that its server keeps too.
const SETTLED: Duration = Duration::from_secs(1);

fn let_settle() {
    let begun = Instant::now();
    eventually(PATIENCE, "a while to pass", || {
        (begun.elapsed() > SETTLED + Duration::from_millis(200)).then_some(())
    });
}
