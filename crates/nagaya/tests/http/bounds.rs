//! Caps and timeouts of a site and of a rule, in place of those of the process: the innermost counts.

use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::{Gateway, Outcome, RawClient, Reply, ScriptedUpstream, Seen, Step, eventually};

const CONFIG: &str = r#"
workers = 1
timeouts = { {timeouts} }
caps = { {caps} }
[log]
access = "{dir}/access.log"
format = "json"
level = "warn"
[upstreams.app]
servers = ["{upstream}"]
fails = 1000
[[sites]]
hosts = ["plain.test"]
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["own.test"]
{site}
  [[sites.rules]]
  match = { path = "/rule*" }
  {rule}
  [[sites.rules]]
  match = { path = "/rule/inner*" }
  {inner}
  [[sites.rules]]
  match = { path = "/other" }
  caps = { upstream_head_bytes = "33KiB" }
  timeouts = { upstream_read = "61s", write = "61s" }
  handler = { proxy = "app" }
  [[sites.rules]]
  match = { path = "/taken*" }
  handler = { proxy = { upstream = "app", buffer_request = true } }
  [[sites.rules]]
  handler = { proxy = "app" }
"#;

const PATIENCE: Duration = Duration::from_secs(25);
/// More than the kernel holds for a client that reads nothing.
const LARGE_BYTES: usize = 8 << 20;

/// What a test puts into the configuration, by placeholder; nothing where it says nothing.
fn gateway(upstream: &ScriptedUpstream, said: &[(&str, &str)]) -> Gateway {
    let mut builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address());
    for name in ["timeouts", "caps", "site", "rule", "inner"] {
        let text = said.iter().find(|(placeholder, _)| *placeholder == name);
        let default = match name {
            // A rule that does nothing is refused.
            "rule" | "inner" => "env = { NOTHING = \"\" }",
            _ => "",
        };
        builder = builder.with(name, text.map_or(default, |(_, text)| text));
    }
    builder.start()
}

fn path(seen: &Seen) -> &str {
    let target = seen.head.line.split(' ').nth(1).unwrap_or_default();
    target.split('?').next().unwrap_or_default()
}

fn get(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

fn reads_and_answers() -> ScriptedUpstream {
    ScriptedUpstream::fixed("taken")
}

/// How a body comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
}

/// Sends a body of so many bytes; asks before, where `expects` is said.
fn post(
    client: &mut RawClient,
    (host, path): (&str, &str),
    framing: Framing,
    bytes: usize,
    expects: bool,
) -> Reply {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n");
    let body = "x".repeat(bytes);
    let body = match framing {
        Framing::Length => {
            head += &format!("Content-Length: {bytes}\r\n");
            body
        }
        Framing::Chunks => {
            head += "Transfer-Encoding: chunked\r\n";
            // Of several: what adds up counts.
            let chunks = body.as_bytes().chunks(7).map(|chunk| {
                let text = String::from_utf8_lossy(chunk);
                format!("{:x}\r\n{text}\r\n", chunk.len())
            });
            chunks.collect::<String>() + "0\r\n\r\n"
        }
    };
    match expects {
        false => client.send(format!("{head}\r\n{body}").as_bytes()),
        true => {
            client.send(format!("{head}Expect: 100-continue\r\n\r\n").as_bytes());
            client.await_bytes(b"\r\n\r\n");
            client.send(body.as_bytes());
        }
    }
    reply(client.read_reply(Body::Framed))
}

/// What has come for this path; one that was cut short before may still come in.
fn seen_at(upstream: &ScriptedUpstream, asked: &str) -> Vec<Seen> {
    let seen = upstream.take_seen().into_iter();
    seen.filter(|seen| path(seen) == asked).collect()
}

/// Checks that exactly so many bytes are admitted there, however they come.
fn check_body_cap(gateway: &Gateway, upstream: &ScriptedUpstream, place: (&str, &str), cap: usize) {
    for framing in [Framing::Length, Framing::Chunks] {
        for expects in [false, true] {
            let case = format!("{place:?}, {cap}, {framing:?}, {expects}");
            let whole = post(&mut gateway.client(), place, framing, cap, expects);
            assert_eq!(whole.status, 200, "{case}");
            assert_eq!(whole.interim.len(), usize::from(expects), "{case}");
            let seen = seen_at(upstream, place.1).into_iter();
            let lengths: Vec<_> = seen
                .filter(|seen| seen.complete)
                .map(|seen| seen.body.len())
                .collect();
            assert_eq!(lengths, [cap], "{case}");
            let refused = post(&mut gateway.client(), place, framing, cap + 1, expects);
            assert_eq!(refused.status, 413, "{case}");
            // Of an announced length nobody hears; of others, what came before it was too much.
            if framing == Framing::Length {
                assert!(refused.interim.is_empty(), "{case}");
                assert_eq!(seen_at(upstream, place.1), [], "{case}");
            }
        }
    }
}

#[test]
fn a_body_may_be_as_long_as_the_innermost_level_says() {
    let upstream = reads_and_answers();
    let gateway = gateway(
        &upstream,
        &[
            ("caps", "body_bytes = 100"),
            ("site", "caps = { body_bytes = 200 }"),
            ("rule", "caps = { body_bytes = 20 }"),
            ("inner", "caps = { body_bytes = 1000 }"),
        ],
    );
    for (place, cap) in [
        (("plain.test", "/"), 100),
        (("own.test", "/own"), 200),
        // It says other numbers, and nothing of this one.
        (("own.test", "/other"), 200),
        (("own.test", "/taken"), 200),
        (("own.test", "/rule"), 20),
        // The last rule that says it.
        (("own.test", "/rule/inner"), 1000),
    ] {
        check_body_cap(&gateway, &upstream, place, cap);
    }
}

#[test]
fn a_connection_goes_on_with_the_caps_of_its_next_request() {
    let upstream = reads_and_answers();
    let gateway = gateway(
        &upstream,
        &[
            ("site", "caps = { body_bytes = 10 }"),
            ("rule", "caps = { body_bytes = 1000 }"),
        ],
    );
    for (last, bytes) in [("/", 11), ("/rule", 1001)] {
        let mut client = gateway.client();
        for (place, bytes) in [
            (("own.test", "/rule"), 1000),
            (("own.test", "/"), 10),
            (("plain.test", "/"), 2000),
            (("own.test", "/"), 10),
            (("own.test", "/rule"), 1000),
        ] {
            let reply = post(&mut client, place, Framing::Chunks, bytes, false);
            assert_eq!(reply.status, 200, "{place:?} {bytes}");
        }
        let refused = post(
            &mut client,
            ("own.test", last),
            Framing::Chunks,
            bytes,
            false,
        );
        assert_eq!(refused.status, 413, "{last} {bytes}");
    }
}

#[test]
fn what_no_rule_admits_is_refused_before_scripts_and_the_rest_before_its_body_is_read() {
    let site = r#"
caps = { body_bytes = 10 }
scripts = { rewrite = { code = "Nginx::Request.new.headers_out['X-Rewrite'] = 'seen'" }, access = { code = """
r = Nginx::Request.new
r.headers_out['X-Access'] = 'seen'
Nginx.redirect '/plain' if r.uri == '/rule/sends'
if r.uri == '/rule/reads'
  r.body
  Nginx.redirect '/plain'
end
Nginx.redirect '/rule/again' if r.uri == '/sends-to-more'
""" } }"#;
    let upstream = reads_and_answers();
    let gateway = gateway(
        &upstream,
        &[("site", site), ("rule", "caps = { body_bytes = 1000 }")],
    );
    for (path, bytes, status, rewrite, access) in [
        ("/plain", 10, 200, true, true),
        ("/plain", 11, 413, true, false),
        ("/plain", 1000, 413, true, false),
        ("/plain", 1001, 413, false, false),
        ("/rule", 1000, 200, true, true),
        ("/rule", 1001, 413, false, false),
        // Sent elsewhere inside, it is the rules there that count, for what was read already, too.
        ("/rule/sends", 10, 200, true, true),
        ("/rule/sends", 11, 413, true, true),
        ("/rule/reads", 10, 200, true, true),
        ("/rule/reads", 11, 413, true, true),
        ("/sends-to-more", 10, 200, true, true),
    ] {
        for framing in [Framing::Length, Framing::Chunks] {
            let case = format!("{path} {bytes} {framing:?}");
            let reply = post(
                &mut gateway.client(),
                ("own.test", path),
                framing,
                bytes,
                false,
            );
            assert_eq!(reply.status, status, "{case}");
            // What comes in chunks is known to be too long when it has come.
            if framing == Framing::Length {
                let seen = ["x-rewrite", "x-access"].map(|name| reply.head.field(name).is_some());
                assert_eq!(seen, [rewrite, access], "{case}");
            }
        }
    }
}

#[test]
fn a_back_end_may_be_silent_for_as_long_as_the_innermost_level_says() {
    let upstream = ScriptedUpstream::start(|seen| {
        let silence = match path(seen).ends_with("/slow") {
            true => Duration::from_secs(60),
            false => Duration::from_millis(1_500),
        };
        vec![
            Step::ReadBody,
            Step::Idle(silence),
            Step::reply(200, "late"),
        ]
    });
    let gateway = gateway(
        &upstream,
        &[
            ("timeouts", "upstream_read = \"300ms\""),
            ("site", "timeouts = { upstream_read = \"20s\" }"),
            ("rule", "timeouts = { upstream_read = \"400ms\" }"),
            ("inner", "timeouts = { upstream_read = \"24s\" }"),
        ],
    );
    for (host, path, status) in [
        ("plain.test", "/", 504),
        ("own.test", "/", 200),
        ("own.test", "/other", 200),
        ("own.test", "/rule", 504),
        ("own.test", "/rule/inner", 200),
    ] {
        let outcome = gateway.client().ask(&get(host, path));
        assert_eq!(reply(outcome).status, status, "{host}{path}");
    }
    gateway.wait_for_message("said nothing for 300ms (timeouts.upstream_read)");
    gateway.wait_for_message("said nothing for 400ms (timeouts.upstream_read)");
}

#[test]
fn a_silence_within_a_body_ends_after_the_same_time() {
    let upstream = ScriptedUpstream::start(|_| {
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf".to_vec();
        let rest = Step::Send(b"rest".to_vec());
        vec![
            Step::Send(half),
            Step::Idle(Duration::from_millis(1_500)),
            rest,
        ]
    });
    let gateway = gateway(
        &upstream,
        &[("rule", "timeouts = { upstream_read = \"300ms\" }")],
    );
    for (path, complete) in [("/", true), ("/rule", false)] {
        let reply = reply(gateway.client().ask(&get("own.test", path)));
        assert_eq!((reply.status, reply.complete), (200, complete), "{path}");
    }
}

#[test]
fn the_head_of_a_reply_may_be_as_long_as_the_innermost_level_says() {
    let upstream = ScriptedUpstream::start(|seen| {
        let kib = seen.head.field("x-kib").and_then(|text| text.parse().ok());
        let value = "x".repeat(1024 * kib.unwrap_or(0));
        let head = format!("HTTP/1.1 200 OK\r\nX-Long: {value}\r\nContent-Length: 0\r\n\r\n");
        vec![Step::ReadBody, Step::Send(head.into_bytes())]
    });
    let gateway = gateway(
        &upstream,
        &[
            ("caps", "upstream_head_bytes = \"8KiB\""),
            ("site", "caps = { upstream_head_bytes = \"16KiB\" }"),
            ("rule", "caps = { upstream_head_bytes = \"4KiB\" }"),
            ("inner", "caps = { upstream_head_bytes = \"64KiB\" }"),
        ],
    );
    for (host, path, kib) in [
        ("plain.test", "/", 8),
        ("own.test", "/", 16),
        ("own.test", "/other", 33),
        ("own.test", "/rule", 4),
        ("own.test", "/rule/inner", 64),
    ] {
        for (sent, status) in [(kib - 1, 200), (kib, 502)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nX-KiB: {sent}\r\n\r\n");
            let outcome = gateway.client().ask(request.as_bytes());
            assert_eq!(reply(outcome).status, status, "{host}{path} {sent} KiB");
        }
    }
}

/// A client that has asked for a large reply and reads nothing.
fn stalled(gateway: &Gateway, host: &str, path: &str) -> RawClient {
    let mut client = RawClient::connect_narrow(gateway.address()).with_deadline(PATIENCE);
    client.send(&get(host, path));
    client
}

/// Checks that of clients that read nothing those of the first places are cut, and those of the
/// others get all of their reply all the same.
fn check_cut(gateway: &Gateway, cut: &[(&str, &str)], whole: &[(&str, &str)]) {
    let mut patient: Vec<_> = whole
        .iter()
        .map(|(host, path)| stalled(gateway, host, path))
        .collect();
    let stalled: Vec<_> = cut
        .iter()
        .map(|(host, path)| stalled(gateway, host, path))
        .collect();
    let file = gateway.directory().path().join("access.log");
    eventually(PATIENCE, "the records of clients that were cut", || {
        let records = std::fs::read_to_string(&file).unwrap_or_default();
        let slow = records.matches("\"reason\":\"client_stalled\"").count();
        assert!(slow <= cut.len(), "{records}");
        (slow == cut.len()).then_some(())
    });
    drop(stalled);
    for (client, place) in patient.iter_mut().zip(whole) {
        let reply = reply(client.read_reply(Body::Framed));
        assert_eq!(
            (reply.complete, reply.body.len()),
            (true, LARGE_BYTES),
            "{place:?}"
        );
    }
}

#[test]
fn a_client_may_take_nothing_for_as_long_as_the_innermost_level_says() {
    let upstream = ScriptedUpstream::start(|_| {
        vec![Step::ReadBody, Step::reply(200, vec![b'x'; LARGE_BYTES])]
    });
    let shorter = gateway(
        &upstream,
        &[
            ("timeouts", "write = \"60s\""),
            ("site", "timeouts = { write = \"300ms\" }"),
            ("rule", "timeouts = { write = \"60s\" }"),
            ("inner", "timeouts = { write = \"400ms\" }"),
        ],
    );
    check_cut(
        &shorter,
        &[("own.test", "/"), ("own.test", "/rule/inner")],
        &[
            ("plain.test", "/"),
            ("own.test", "/rule"),
            ("own.test", "/other"),
        ],
    );
    let longer = gateway(
        &upstream,
        &[
            ("timeouts", "write = \"300ms\""),
            ("site", "timeouts = { write = \"60s\" }"),
        ],
    );
    check_cut(&longer, &[("plain.test", "/")], &[("own.test", "/")]);
}

/// Asks these hosts one after the other on one connection.
fn ask_all(gateway: &Gateway, hosts: &[&str]) -> RawClient {
    let mut client = gateway.client();
    for host in hosts {
        assert_eq!(
            reply(client.ask(&get(host, "/rule"))).status,
            200,
            "{hosts:?}"
        );
    }
    client
}

#[test]
fn an_idle_connection_is_kept_for_as_long_as_the_site_of_its_last_request_says() {
    let upstream = reads_and_answers();
    for (process, own, brief, kept) in [
        ("60s", "300ms", "own.test", "plain.test"),
        ("300ms", "60s", "plain.test", "own.test"),
    ] {
        let timeouts = format!("idle = \"{process}\"");
        let site = format!("timeouts = {{ idle = \"{own}\" }}");
        let gateway = gateway(&upstream, &[("timeouts", &timeouts), ("site", &site)]);
        // A machine that was elsewhere is late, but not always.
        let lasted = (0..5).map(|_| {
            let mut client = ask_all(&gateway, &[brief]);
            let begun = Instant::now();
            assert_eq!(client.read_reply(Body::Framed), Outcome::Eof);
            begun.elapsed()
        });
        let least = lasted.min().unwrap_or_default();
        assert!(
            (300..900).contains(&least.as_millis()),
            "{brief}: {least:?}"
        );
        // Idle for longer than the others.
        let mut patient = ask_all(&gateway, &[brief, kept]);
        for hosts in [&[brief][..], &[kept, brief]] {
            let mut client = ask_all(&gateway, hosts);
            assert_eq!(client.read_reply(Body::Framed), Outcome::Eof, "{hosts:?}");
        }
        assert_eq!(reply(patient.ask(&get(kept, "/"))).status, 200, "{kept}");
    }
}

/// How many requests a connection carries that asks for these one after the other.
fn carried(gateway: &Gateway, places: &[(&str, &str)]) -> usize {
    let mut client = gateway.client();
    for ((host, path), count) in places.iter().zip(1..) {
        let reply = reply(client.ask(&get(host, path)));
        assert_eq!(reply.status, 200, "{places:?}");
        if reply.head.field("connection") == Some("close") {
            assert_eq!(client.read_reply(Body::Framed), Outcome::Eof, "{places:?}");
            return count;
        }
    }
    places.len()
}

#[test]
fn a_connection_carries_as_many_requests_as_its_last_one_says() {
    let upstream = reads_and_answers();
    let gateway = gateway(
        &upstream,
        &[
            ("caps", "requests_per_connection = 4"),
            ("site", "caps = { requests_per_connection = 2 }"),
            ("rule", "caps = { requests_per_connection = 0 }"),
            ("inner", "caps = { requests_per_connection = 6 }"),
        ],
    );
    let (plain, own) = (("plain.test", "/"), ("own.test", "/"));
    let (endless, inner) = (("own.test", "/rule"), ("own.test", "/rule/inner"));
    for (places, expected) in [
        (vec![plain; 9], 4),
        (vec![own; 9], 2),
        (vec![endless; 9], 9),
        (vec![inner; 9], 6),
        (vec![plain, plain, plain, own, plain], 4),
        (vec![plain, own, plain, plain], 2),
        ([vec![endless; 8], vec![plain, plain]].concat(), 9),
        ([vec![endless; 4], vec![inner; 4]].concat(), 6),
    ] {
        assert_eq!(carried(&gateway, &places), expected, "{places:?}");
    }
}
