//! Slow clients beside quick ones: 500 connections of each kind slowhttptest knows must not be felt
//! by a client that behaves.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::peer::find_program;
use testkit::{Gateway, Outcome, RawClient, ScriptedUpstream};

const CONFIG: &str = r#"
workers = 2
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
level = "error"
[upstreams.app]
servers = ["{upstream}"]
[[sites]]
hosts = ["*"]
root = "{dir}/files"
[[sites.rules]]
match = { path = "/app" }
handler = { proxy = "app" }
"#;

/// Mode, its arguments, and what it asks for.
const ATTACKS: [(&str, &[&str], &str); 4] = [
    ("headers", &["-H", "-i", "1", "-t", "GET"], "/app"),
    ("bodies", &["-B", "-i", "1", "-s", "8192"], "/app"),
    ("ranges", &["-R", "-a", "5", "-b", "3000"], "/page.html"),
    (
        "readers",
        &[
            "-X", "-w", "512", "-y", "1024", "-z", "32", "-n", "1", "-k", "3",
        ],
        "/large.bin",
    ),
];

const CONNECTIONS: &str = "500";
const WATCHED: Duration = Duration::from_secs(4);
/// A p99 below this is fine whatever the quiet one was: a loaded test machine is no instrument.
const UNNOTICED: Duration = Duration::from_millis(25);

/// Kills what it watches over.
struct Attack(Child);

impl Attack {
    fn start(program: &std::path::Path, arguments: &[&str], url: &str) -> Self {
        let child = Command::new(program)
            .args([
                "-c",
                CONNECTIONS,
                "-r",
                "400",
                "-l",
                "60",
                "-p",
                "5",
                "-v",
                "0",
                "-u",
                url,
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("start slowhttptest"))
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks on fresh and kept connections in turn for as long as it may; the 99th percentile of waits.
fn p99(address: SocketAddr, span: Duration) -> Duration {
    let begin = Instant::now();
    let mut kept = RawClient::connect(address);
    let mut waits = Vec::new();
    while begin.elapsed() < span {
        for fresh in [true, false] {
            let asked = Instant::now();
            let path = if waits.len() % 4 < 2 {
                "/app"
            } else {
                "/page.html"
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: quick.test\r\n\r\n");
            let outcome = match fresh {
                true => RawClient::connect(address).ask(request.as_bytes()),
                false => kept.ask(request.as_bytes()),
            };
            match outcome {
                Outcome::Reply(reply) => assert_eq!(reply.status, 200, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
            waits.push(asked.elapsed());
            if waits.len() % 900 == 0 {
                kept = RawClient::connect(address);
            }
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    waits.sort();
    waits[waits.len() * 99 / 100]
}

#[test]
fn slow_clients_are_not_felt_by_others() {
    let Some(program) = find_program("slowhttptest") else {
        return;
    };
    let upstream = ScriptedUpstream::fixed("app");
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address());
    builder
        .directory()
        .write("files/page.html", "<p>quick</p>\n".repeat(300));
    builder
        .directory()
        .write("files/large.bin", vec![7; 4 << 20]);
    let gateway = builder.start();
    let quiet = p99(gateway.address(), Duration::from_secs(3));
    for (name, arguments, path) in ATTACKS {
        let attack = Attack::start(
            &program,
            arguments,
            &format!("http://{}{path}", gateway.address()),
        );
        // The connections come at 400 a second; what counts is when they are there.
        std::thread::sleep(Duration::from_millis(1_500));
        let felt = p99(gateway.address(), WATCHED);
        drop(attack);
        eprintln!("{name}: p99 {felt:?}, quiet {quiet:?}");
        assert!(
            felt <= UNNOTICED.max(quiet * 2),
            "{name}: p99 {felt:?}, quiet {quiet:?}"
        );
    }
}
