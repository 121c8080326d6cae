//! Exchanges that take more than one message: pipelines, expectations, early replies, tunnels,
//! timeouts, connections that end under a request.

use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::{Gateway, Outcome, RawClient, ScriptedUpstream, Seen, Step, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
level = "error"
[timeouts]
header = "{header}"
idle = "{idle}"
body = "{body}"
upstream_read = "{upstream_read}"
[caps]
requests_per_connection = {requests}
[upstreams.app]
servers = ["{upstream}"]
fails = 1000
[[sites]]
hosts = ["app.test"]
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["plain.test"]
rules = [{ handler = { respond = { status = 200, body = "plain" } } }]
"#;

/// What a test changes of the configuration, by placeholder.
const DEFAULTS: [(&str, &str); 5] = [
    ("header", "60s"),
    ("idle", "60s"),
    ("body", "60s"),
    ("upstream_read", "60s"),
    ("requests", "1000"),
];

fn gateway(upstream: &ScriptedUpstream, changes: &[(&str, &str)]) -> Gateway {
    let mut builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address());
    for (name, default) in DEFAULTS {
        let change = changes.iter().find(|(changed, _)| *changed == name);
        builder = builder.with(name, change.map_or(default, |(_, value)| value));
    }
    builder.start()
}

fn target(seen: &Seen) -> &str {
    seen.head.line.split(' ').nth(1).unwrap_or_default()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n\r\n").into_bytes()
}

/// Answers with the target; `/slow…` takes its time.
fn tell_target(seen: &Seen) -> Vec<Step> {
    let pause = match target(seen).starts_with("/slow") {
        true => Step::Idle(Duration::from_millis(50)),
        false => Step::ReadBody,
    };
    vec![Step::ReadBody, pause, Step::reply(200, target(seen))]
}

#[test]
fn pipelined_replies_come_in_order() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    let path = |at: usize| {
        format!(
            "/{}{at}",
            if usize::is_multiple_of(at, 5) {
                "slow"
            } else {
                "quick"
            }
        )
    };
    let all: Vec<u8> = (0..40).flat_map(|at| get(&path(at))).collect();
    client.send(&all);
    for at in 0..40 {
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!(String::from_utf8_lossy(&answer.body), path(at));
    }
}

#[test]
fn a_connection_ends_after_its_share_of_requests_and_says_so() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[("requests", "3")]);
    let mut client = gateway.client();
    for _ in 0..2 {
        let answer = reply(client.ask(&get("/")));
        assert_ne!(answer.head.field("connection"), Some("close"));
    }
    let last = reply(client.ask(&get("/")));
    assert_eq!(last.head.field("connection"), Some("close"));
    assert_eq!(client.read_reply(Body::Framed), Outcome::Eof);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[("idle", "300ms")]);
    let mut client = gateway.client();
    assert_eq!(reply(client.ask(&get("/"))).status, 200);
    // The client waits less long than any other limit lasts.
    assert_eq!(client.read_reply(Body::Framed), Outcome::Eof);
}

#[test]
fn a_head_that_never_ends_is_timed_out_from_its_first_byte() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[("header", "500ms")]);
    let mut client = gateway.client().with_deadline(Duration::from_millis(50));
    let start = Instant::now();
    client.send(b"GET / HTTP/1.1\r\n");
    // Each new byte is fresh, the deadline is not.
    let ended = eventually(Duration::from_secs(60), "an end", || {
        client.send(b"X");
        let outcome = client.read_reply(Body::Framed);
        (!matches!(outcome, Outcome::TimedOut(_))).then_some(outcome)
    });
    assert!(
        start.elapsed() < Duration::from_secs(9),
        "{:?}",
        start.elapsed()
    );
    match ended {
        Outcome::Reply(reply) => assert_eq!(reply.status, 408),
        Outcome::Eof | Outcome::Reset => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_body_that_stops_is_timed_out() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[("body", "300ms")]);
    let mut client = gateway.client();
    client.send(b"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\nabc");
    match client.read_reply(Body::Framed) {
        Outcome::Reply(reply) => assert_eq!(reply.status, 408),
        Outcome::Eof | Outcome::Reset => {}
        other => panic!("{other:?}"),
    }
    assert!(upstream.take_seen().iter().all(|seen| !seen.complete));
}

#[test]
fn continue_is_said_once_and_the_body_goes_through() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    client.send(
        b"POST /e HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(client.read_exactly(interim.len()), interim);
    client.send(b"abc");
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!((answer.status, answer.interim), (200, vec![]));
    assert_eq!(upstream.next_seen().body, b"abc");
    assert_eq!(reply(client.ask(&get("/next"))).body, b"/next");
}

#[test]
fn a_refused_expectation_is_not_continued() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[]);
    for (head, status) in [
        (
            "Host: nobody.test\r\nExpect: 100-continue\r\nContent-Length: 3",
            421,
        ),
        ("Host: app.test\r\nExpect: 200-ok\r\nContent-Length: 3", 417),
        (
            "Host: app.test\r\nExpect: 100-continue\r\nContent-Length: 99999999999",
            413,
        ),
    ] {
        let mut client = gateway.client();
        client.send(format!("POST / HTTP/1.1\r\n{head}\r\n\r\n").as_bytes());
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!((answer.status, answer.interim), (status, vec![]), "{head}");
        // The body may still come or not: nobody can tell, so nothing may follow.
        assert_eq!(client.read_reply(Body::Framed), Outcome::Eof, "{head}");
    }
    assert!(upstream.received().is_empty());
}

#[test]
fn an_invited_body_is_no_request_even_after_a_final_answer() {
    let upstream = ScriptedUpstream::start(|seen| match target(seen) {
        "/early" => vec![Step::reply(401, "no"), Step::Close],
        _ => tell_target(seen),
    });
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    let body = get("/smuggled");
    let head = format!(
        "POST /early HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes());
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 401);
    client.send(&[body, get("/next")].concat());
    match client.read_reply(Body::Framed) {
        Outcome::Reply(reply) => assert_eq!(reply.body, b"/next"),
        Outcome::Eof | Outcome::Reset => {}
        other => panic!("{other:?}"),
    }
    let seen = upstream.take_seen();
    assert!(
        seen.iter().all(|seen| target(seen) != "/smuggled"),
        "{seen:?}"
    );
}

#[test]
fn an_answer_before_the_body_is_read_reaches_the_client() {
    let upstream = ScriptedUpstream::start(|_| {
        vec![Step::ReadSome(10), Step::reply(413, "enough"), Step::Close]
    });
    let gateway = gateway(&upstream, &[]);
    for chunked in [false, true] {
        let mut client = gateway.client();
        let framing = match chunked {
            true => "Transfer-Encoding: chunked",
            false => "Content-Length: 4194304",
        };
        client.send(format!("POST / HTTP/1.1\r\nHost: app.test\r\n{framing}\r\n\r\n").as_bytes());
        let piece = vec![b'x'; 65536];
        for _ in 0..64 {
            if chunked {
                client.send(b"10000\r\n");
            }
            client.send(&piece);
            if chunked {
                client.send(b"\r\n");
            }
        }
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!(
            (answer.status, &answer.body[..]),
            (413, &b"enough"[..]),
            "{framing}"
        );
    }
}

#[test]
fn large_bodies_pass_both_ways_unchanged() {
    let upstream = ScriptedUpstream::start(|seen| {
        let mut body = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for at in 0..128u32 {
            body.extend(format!("{:x}\r\n", 65536).as_bytes());
            body.extend((0..65536u32).map(|byte| (byte.wrapping_mul(at) >> 3) as u8));
            body.extend(b"\r\n");
        }
        body.extend(b"0\r\n\r\n");
        match target(seen) {
            "/down" => vec![Step::ReadBody, Step::Send(body)],
            _ => tell_target(seen),
        }
    });
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    let down = reply(client.ask(&get("/down")));
    let expected: Vec<u8> = (0..128u32)
        .flat_map(|at| (0..65536u32).map(move |byte| (byte.wrapping_mul(at) >> 3) as u8))
        .collect();
    assert!(
        down.complete && down.body == expected,
        "{} bytes",
        down.body.len()
    );
    let _ = upstream.take_seen();
    let length = expected.len();
    client.send(
        format!("PUT /up HTTP/1.1\r\nHost: app.test\r\nContent-Length: {length}\r\n\r\n")
            .as_bytes(),
    );
    client.send(&expected);
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    let seen = upstream.next_seen();
    assert!(
        seen.complete && seen.body == expected,
        "{} bytes",
        seen.body.len()
    );
}

#[test]
fn an_upstream_that_closed_its_idle_connection_costs_no_request() {
    let upstream = ScriptedUpstream::start(|seen| {
        vec![Step::ReadBody, Step::reply(200, target(seen)), Step::Close]
    });
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    for at in 0..50 {
        let path = format!("/{at}");
        assert_eq!(reply(client.ask(&get(&path))).body, path.as_bytes());
    }
}

#[test]
fn a_silent_upstream_is_504_and_an_absent_one_502() {
    let upstream =
        ScriptedUpstream::start(|_| vec![Step::ReadBody, Step::Idle(Duration::from_secs(60))]);
    let gateway = gateway(&upstream, &[("upstream_read", "300ms")]);
    assert_eq!(reply(gateway.ask(&get("/"))).status, 504);
    drop(upstream);
    eventually(
        Duration::from_secs(60),
        "502 for a dead upstream",
        || match gateway.ask(&get("/")) {
            Outcome::Reply(reply) => (reply.status == 502).then_some(()),
            other => panic!("{other:?}"),
        },
    );
}

const WEBSOCKET: &[u8] = b"GET /ws HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn switching(protocol: &str) -> Step {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    );
    Step::Send(head.into_bytes())
}

fn tunnel() -> ScriptedUpstream {
    ScriptedUpstream::start(|_| vec![switching("websocket"), Step::Echo])
}

fn open_tunnel(client: &mut RawClient) {
    client.send(WEBSOCKET);
    let answer = reply(client.read_reply(Body::Never));
    assert_eq!(answer.status, 101);
    assert_eq!(answer.head.field("upgrade"), Some("websocket"));
    let connection = answer.head.field("connection").unwrap_or_default();
    assert!(connection.eq_ignore_ascii_case("upgrade"), "{connection}");
    assert_eq!(
        answer.head.count("content-length") + answer.head.count("transfer-encoding"),
        0
    );
}

#[test]
fn a_tunnel_passes_every_byte_both_ways() {
    let upstream = tunnel();
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    open_tunnel(&mut client);
    let all: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    for piece in all.chunks(50_000) {
        client.send(piece);
        assert!(client.read_exactly(piece.len()) == piece);
    }
    // HTTP inside a tunnel is bytes.
    client.send(&get("/inside"));
    assert_eq!(client.read_exactly(get("/inside").len()), get("/inside"));
    assert_eq!(upstream.take_seen().len(), 1);
}

#[test]
fn a_tunnel_ends_when_either_side_does() {
    let upstream = tunnel();
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    open_tunnel(&mut client);
    client.send(b"last");
    client.finish_sending();
    let (bytes, end) = client.read_to_end();
    assert_eq!((&bytes[..], end), (&b"last"[..], Outcome::Eof));

    let closing = ScriptedUpstream::start(|_| {
        vec![
            switching("websocket"),
            Step::Send(b"bye".to_vec()),
            Step::Close,
        ]
    });
    let gateway = self::gateway(&closing, &[]);
    let mut client = gateway.client();
    open_tunnel(&mut client);
    let (bytes, end) = client.read_to_end();
    assert_eq!((&bytes[..], end), (&b"bye"[..], Outcome::Eof));
}

#[test]
fn bytes_sent_before_the_101_wait_for_it() {
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::Idle(Duration::from_millis(100)),
            switching("websocket"),
            Step::Echo,
        ]
    });
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    client.send(&[WEBSOCKET, b"early"].concat());
    assert_eq!(reply(client.read_reply(Body::Never)).status, 101);
    assert_eq!(client.read_exactly(5), b"early");
}

#[test]
fn without_a_101_early_bytes_are_the_next_request() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    client.send(&[WEBSOCKET, &get("/next")].concat());
    assert_eq!(reply(client.read_reply(Body::Framed)).body, b"/ws");
    match client.read_reply(Body::Framed) {
        Outcome::Reply(reply) => assert_eq!(reply.body, b"/next"),
        Outcome::Eof => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_101_to_something_else_is_no_tunnel() {
    let upstream = ScriptedUpstream::start(|_| vec![switching("other"), Step::Echo]);
    let gateway = gateway(&upstream, &[]);
    let answer = reply(gateway.ask(WEBSOCKET));
    assert_eq!(answer.status, 502);
}

#[test]
fn a_client_that_leaves_ends_the_upstream_request() {
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadBody,
            Step::Idle(Duration::from_secs(90)),
            Step::Close,
        ]
    });
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    client.send(&get("/"));
    let _ = upstream.next_seen();
    drop(client);
    // The idle step ends as soon as the peer is gone, and long before the gateway gives it up.
    eventually(
        Duration::from_secs(25),
        "the upstream connection to end",
        || (upstream.open_connections() == 0).then_some(()),
    );
}

#[test]
fn requests_beside_a_dying_one_are_not_touched() {
    let upstream = ScriptedUpstream::start(|seen| match target(seen) {
        "/dies" => vec![
            Step::ReadBody,
            Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()),
            Step::Close,
        ],
        _ => tell_target(seen),
    });
    let gateway = gateway(&upstream, &[]);
    for at in 0..20 {
        let mut dying = gateway.client();
        let mut living = gateway.client();
        dying.send(&get("/dies"));
        living.send(&get(&format!("/slow{at}")));
        let cut = reply(dying.read_reply(Body::Framed));
        assert!(!cut.complete);
        let whole = reply(living.read_reply(Body::Framed));
        assert_eq!(whole.body, format!("/slow{at}").as_bytes());
    }
}

#[test]
fn a_1_0_client_gets_no_chunks_and_no_interim_reply() {
    let upstream = ScriptedUpstream::start(|_| {
        let reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        vec![Step::ReadBody, Step::Send(reply.to_vec())]
    });
    let gateway = gateway(&upstream, &[]);
    for fields in ["", "Connection: keep-alive\r\n"] {
        let mut client = gateway.client();
        let head = "POST / HTTP/1.0\r\nHost: app.test\r\nExpect: 100-continue\r\n";
        client.send(format!("{head}{fields}Content-Length: 3\r\n\r\nabc").as_bytes());
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!((answer.status, answer.interim), (200, vec![]), "{fields}");
        assert_eq!(answer.head.field("transfer-encoding"), None, "{fields}");
        assert_eq!(
            (&answer.body[..], answer.complete),
            (&b"abc"[..], true),
            "{fields}"
        );
        assert_eq!(client.read_reply(Body::Framed), Outcome::Eof, "{fields}");
    }
}

#[test]
fn a_client_that_only_stops_sending_gets_what_the_gateway_itself_answers() {
    let upstream = ScriptedUpstream::start(tell_target);
    let gateway = gateway(&upstream, &[]);
    let mut client = gateway.client();
    client.send(b"GET / HTTP/1.1\r\nHost: plain.test\r\n\r\n");
    client.finish_sending();
    assert_eq!(reply(client.read_reply(Body::Framed)).body, b"plain");
}
