//! `nagaya bench URL --…` end to end: what it counts is what the server saw.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Gateway, Peer, ScriptedUpstream, Step, TempDir, eventually, free_port};

const GATEWAY: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = "{dir}/access.log"
[[sites]]
hosts = ["*"]
  [[sites.rules]]
  match = { path = "/no" }
  handler = { respond = { status = 503, body = "no" } }
  [[sites.rules]]
  handler = { respond = { status = 200, body = "hello, world\n" } }
"#;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
    command.arg("bench").args(arguments);
    command
}

fn bench(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// The report of a run that is expected to go well.
fn report(arguments: &[&str]) -> Value {
    let output = bench(&[arguments, &["--quiet", "--json", "-"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A number somewhere in a report; its keys with dots between.
fn number(report: &Value, path: &str) -> u64 {
    let at = format!("/{}", path.replace('.', "/"));
    let found = report.pointer(&at).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {path} in {report:#}"))
}

/// Exchanges without a whole reply.
fn errors(report: &Value) -> u64 {
    let errors = report["errors"].as_object().unwrap();
    errors.values().filter_map(Value::as_u64).sum()
}

fn url(upstream: &ScriptedUpstream, path: &str) -> String {
    format!("http://{}{path}", upstream.address())
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_was_counted_is_what_the_server_saw() {
    let mut gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), GATEWAY).start();
    let (fine, refused) = (
        format!("http://{}/", gateway.address()),
        format!("http://{}/no", gateway.address()),
    );
    let pid = gateway.pid().to_string();
    let report = report(&[
        &fine,
        &refused,
        "--requests",
        "2000",
        "--connections",
        "8",
        "--pid",
        &pid,
    ]);
    assert_eq!(number(&report, "completed") + errors(&report), 2000);
    assert_eq!(errors(&report), 0, "{report:#}");
    assert_eq!(report["failed"], report["failed_by_status"]);
    let of_status = |status: &str| number(&report, &format!("statuses.{status}"));
    assert_eq!(of_status("200") + of_status("503"), 2000);
    assert_eq!(report["statuses"]["503"], report["failed"]);
    let of_urls: u64 = [0, 1]
        .map(|place| number(&report, &format!("by_url.{place}.completed")))
        .iter()
        .sum();
    assert_eq!(of_urls, 2000);
    assert_eq!(report["times"]["response"]["count"], 2000);
    assert_eq!(report["server"]["replies"], 2000);
    assert!(report["server"]["cpu_us_per_reply"].as_f64().unwrap() > 0.0);
    assert!(number(&report, "server.spent.tree.processes") >= 2);
    gateway.stop();
    let log = std::fs::read_to_string(gateway.directory().path().join("access.log")).unwrap();
    let of_bench = log.lines().filter(|line| line.contains("GET")).count();
    assert_eq!(of_bench, 2000, "records of the gateway");
}

#[test]
fn handshakes_are_counted_full_or_resumed_as_asked() {
    let config = r#"
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[[sites]]
hosts = ["localhost"]
tls = { local = true }
rules = [{ handler = { respond = { body = "fine" } } }]
"#;
    let port = free_port();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config).with("tls", port);
    let _gateway = builder.start();
    let target = format!("https://localhost:{port}/");
    let base = [&target, "--requests", "40", "--connections", "2"];
    let closing = ["--no-keep-alive", "--tls-groups", "X25519"];
    for (more, full, resumed) in [
        (&[][..], 2..=2, 0..=0),
        (&closing, 40..=40, 0..=0),
        (
            &["--no-keep-alive", "--tls-resume", "always"],
            1..=2,
            38..=39,
        ),
    ] {
        let report = report(&[&base, more].concat());
        assert_eq!(number(&report, "completed"), 40, "{report:#}");
        let made = |kind: &str| number(&report, &format!("handshakes.{kind}"));
        assert!(full.contains(&made("full")), "{report:#}");
        assert!(resumed.contains(&made("resumed")), "{report:#}");
        let agreed = report["first"]["tls"].as_str().unwrap_or_default();
        assert!(agreed.starts_with("TLSv1.3, TLS_AES_"), "{agreed}");
    }
    let output = bench(&[&base[..], &closing].concat());
    let told = stdout(&output);
    assert!(told.contains("(40, 0 % of them resumed)"), "{told}");
}

/// A certificate and its key.
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../load/tests/keys/p-256.pem");

/// nginx with an access log in this directory; connections take 300 requests each.
fn nginx(listen: &str, log: &TempDir) -> Option<Peer> {
    let log = log.path().display();
    Peer::nginx(&format!(
        "keepalive_requests 300;\n\
         ssl_certificate {KEY};\nssl_certificate_key {KEY};\n\
         server {{\nlisten 127.0.0.1:{{port}} {listen};\naccess_log {log}/access.log;\n\
         location / {{ return 200 \"hello, world\"; }}\n}}\n"
    ))
}

#[test]
fn by_http2_what_was_counted_is_what_nginx_saw() {
    for (scheme, listen, handshakes) in [("http", "http2", 0), ("https", "http2 ssl", 7)] {
        let log = TempDir::new();
        let Some(nginx) = nginx(listen, &log) else {
            return;
        };
        let target = format!("{scheme}://{}/", nginx.address());
        let options = ["--http", "2", "--connections", "3", "--streams", "16"];
        let report = report(&[&[&target, "--requests", "2000"], &options[..]].concat());
        assert_eq!(number(&report, "completed"), 2000, "{report:#}");
        assert_eq!(errors(&report), 0, "{report:#}");
        assert_eq!(number(&report, "body_bytes"), 2000 * 12);
        assert_eq!(number(&report, "asked.streams"), 16);
        assert_eq!(number(&report, "first.streams_max"), 128);
        let full = report.pointer("/handshakes/full").and_then(Value::as_u64);
        assert!(full.unwrap_or(0) >= handshakes, "{report:#}");
        let records = || {
            let log = std::fs::read_to_string(log.path().join("access.log")).unwrap();
            log.lines().filter(|line| line.contains("HTTP/2.0")).count()
        };
        eventually(Duration::from_secs(10), "nginx has recorded all", || {
            (records() >= 2000).then_some(())
        });
        assert_eq!(records(), 2000, "records of nginx");
    }
}

#[test]
fn who_does_not_speak_http2_is_told_of_with_what_to_do() {
    let log = TempDir::new();
    let Some(nginx) = nginx("ssl", &log) else {
        return;
    };
    let upstream = ScriptedUpstream::fixed("hello");
    for target in [format!("https://{}/", nginx.address()), url(&upstream, "/")] {
        let output = bench(&[
            &target,
            "--http",
            "2",
            "--requests",
            "4",
            "--connections",
            "1",
        ]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = stdout(&output);
        assert!(told.contains("--http 1.1 it may answer"), "{told}");
    }
}

#[test]
fn urls_are_asked_for_by_weight() {
    let upstream = ScriptedUpstream::fixed("hello");
    let (often, seldom) = (format!("3@{}", url(&upstream, "/a")), url(&upstream, "/b"));
    let report = report(&[&often, &seldom, "--requests", "1600", "--connections", "4"]);
    let [a, b] = [0, 1].map(|place| number(&report, &format!("by_url.{place}.completed")));
    assert_eq!(a + b, 1600);
    // Three quarters, five deviations to either side.
    assert!((1113..=1287).contains(&a), "{a} of 1600");
    let seen = upstream.take_seen();
    let of_a = seen
        .iter()
        .filter(|seen| seen.head.line.contains(" /a "))
        .count();
    assert_eq!(of_a as u64, a);
}

#[test]
fn an_open_loop_keeps_to_its_schedule() {
    let upstream = ScriptedUpstream::fixed("hello");
    let report = report(&[
        &url(&upstream, "/"),
        "--rate",
        "200",
        "--arrivals",
        "constant",
        "--duration",
        "2s",
        "--warm-up",
        "none",
    ]);
    assert_eq!(report["asked"]["pace"], "open");
    let of_schedule = |name: &str| number(&report, &format!("schedule.{name}"));
    let due = of_schedule("due");
    assert!((398..=402).contains(&due), "{due}");
    assert_eq!(
        number(&report, "completed") + errors(&report) + of_schedule("unsent"),
        due
    );
    assert!(of_schedule("late_by_generator") <= of_schedule("late"));
    assert_eq!(
        upstream.take_seen().len() as u64,
        number(&report, "completed")
    );
    let of = |times: &str| {
        report["times"][times]["quantiles_us"]
            .as_object()
            .unwrap()
            .clone()
    };
    for (name, us) in of("service") {
        assert!(us.as_u64() <= of("response")[&name].as_u64(), "{name}");
    }
}

#[test]
fn connections_are_closed_when_they_are_asked_to_be() {
    let upstream = ScriptedUpstream::fixed("hello");
    let target = url(&upstream, "/");
    let alone = report(&[
        &target,
        "--requests",
        "30",
        "--connections",
        "3",
        "--no-keep-alive",
    ]);
    for (path, count) in [
        ("completed", 30),
        ("on_kept_connections", 0),
        ("times.connect.count", 30),
    ] {
        assert_eq!(number(&alone, path), count, "{path}");
    }
    assert_eq!(upstream.connections(), 30);
    let some = [
        "--requests",
        "30",
        "--connections",
        "3",
        "--requests-per-connection",
        "5",
    ];
    let fives = report(&[&[target.as_str()], some.as_slice()].concat());
    // Whoever of the three is quicker takes more of the thirty.
    assert_eq!(fives["completed"], 30);
    let opened = number(&fives, "times.connect.count");
    assert!((6..=8).contains(&opened), "{opened}");
}

#[test]
fn a_status_is_a_failure_unless_any_is_accepted() {
    let upstream = ScriptedUpstream::start(|_| vec![Step::reply(404, "")]);
    let target = url(&upstream, "/");
    let judged = report(&[&target, "--requests", "20", "--connections", "2"]);
    assert_eq!(
        (number(&judged, "completed"), number(&judged, "failed")),
        (20, 20)
    );
    let accepted = report(&[&target, "--requests", "20", "--accept-any-status"]);
    assert_eq!(
        (number(&accepted, "completed"), number(&accepted, "failed")),
        (20, 0)
    );
    let hint = "Not one good reply, the first was status 404";
    let read = bench(&[&target, "--requests", "20"]);
    assert!(read.status.success() && stdout(&read).contains(hint));
    let piped = bench(&[&target, "--requests", "20", "--json", "-"]);
    assert!(piped.status.success() && stderr(&piped).contains(hint));
}

#[test]
fn a_body_and_its_fields_are_sent() {
    let upstream = ScriptedUpstream::fixed("hello");
    let directory = TempDir::new();
    let body = directory.path().join("body");
    std::fs::write(&body, "a=1&b=2").unwrap();
    report(&[
        &url(&upstream, "/form"),
        "--requests",
        "1",
        "--connections",
        "1",
        "--body-file",
        body.to_str().unwrap(),
        "--header",
        "X-Tried: yes",
        "--method",
        "PUT",
    ]);
    let seen = upstream.take_seen();
    assert_eq!(seen.len(), 1);
    assert!(
        seen[0].head.line.starts_with("PUT /form HTTP/1.1"),
        "{seen:?}"
    );
    assert_eq!(seen[0].body, b"a=1&b=2");
    let sent = String::from_utf8(upstream.received().concat()).unwrap();
    assert!(sent.contains("\r\nX-Tried: yes\r\n"), "{sent}");
}

#[test]
fn text_json_and_page_say_the_same() {
    let upstream = ScriptedUpstream::fixed("hello");
    let directory = TempDir::new();
    let [json, html] = ["report.json", "report.html"].map(|name| directory.path().join(name));
    let output = bench(&[
        &url(&upstream, "/"),
        "--requests",
        "200",
        "--connections",
        "2",
        "--json",
        json.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("200 whole replies"), "{text}");
    assert!(text.contains("Closed loop:"), "{text}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["completed"], 200);
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(
        page.contains("<svg") && page.contains("Latency by percentile"),
        "{page}"
    );
}

/// Ends the process whatever becomes of the test.
struct Running(Option<Child>);

impl Running {
    fn interrupt(&self) {
        let id = self.0.as_ref().unwrap().id();
        kill_process(Pid::from_raw(id.try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    }

    fn end(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn an_interrupted_load_still_reports_what_was_measured() {
    let upstream = ScriptedUpstream::fixed("hello");
    let mut command = command(&[
        &url(&upstream, "/"),
        "--duration",
        "1h",
        "--warm-up",
        "none",
    ]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running(Some(command.spawn().unwrap()));
    eventually(Duration::from_secs(30), "some requests", || {
        (upstream.take_seen().len() > 1).then_some(())
    });
    running.interrupt();
    let output = running.end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stdout(&output);
    assert!(
        text.contains("Cut short") && text.contains("Rate "),
        "{text}"
    );
}

#[test]
fn a_load_without_a_server_says_why_and_fails() {
    let target = format!("http://127.0.0.1:{}/", free_port());
    let output = bench(&[&target, "--requests", "5", "--connections", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("not one whole reply"), "{text}");
    assert!(text.contains(": connection refused"), "{text}");
    assert!(text.contains("Does the server run"), "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_load() {
    let directory = TempDir::new();
    let page = directory.path().join("page.html");
    let page = page.to_str().unwrap();
    for flags in [
        &["--json", "/nowhere/out.json", "--html", page][..],
        &["-n", "1", "--html", page, "--json", "/nowhere/out.json"],
    ] {
        let output = bench(&[flags, &["http://127.0.0.1:9/"]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = stderr(&output);
        assert!(
            said.contains("write /nowhere/out.json: no such file or directory"),
            "{said}"
        );
        assert!(!stdout(&output).contains("not one"), "{output:?}");
        assert!(!std::path::Path::new(page).exists(), "{page} was left");
    }
}

#[test]
fn wrong_use_is_told_apart_from_failure() {
    let here = "http://127.0.0.1:9/";
    for (arguments, status, said) in [
        (&["--requests", "5"][..], 2, "no URL"),
        (&[here, "--ramp", "2s"], 2, "belongs to --rate"),
        (&[here, "--duration", "30"], 2, "write 30s"),
        (&[here, "--conections", "3"], 2, "--connections"),
        (
            &["ftp://a/", "--requests", "5"],
            2,
            "neither http nor https",
        ),
        (&["--urls", "/nowhere/urls"], 1, "/nowhere/urls"),
        (&[here, "--pid", "4194304"], 1, "4194304"),
        (
            &[here, "--requests", "1", "--html", "/nowhere/page.html"],
            1,
            "/nowhere/page.html",
        ),
    ] {
        let output = bench(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {output:?}"
        );
        assert!(stderr(&output).contains(said), "{arguments:?}: {output:?}");
    }
}
