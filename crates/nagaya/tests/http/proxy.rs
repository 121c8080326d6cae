//! Forwarding: which server gets a request, what is tried again, what each side sees of the other.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::gateway::Builder;
use testkit::{Gateway, Peer, ScriptedUpstream, Seen, Step, eventually, free_port, quick_once};

const CONFIG: &str = r#"
workers = 1
[log]
level = "warn"
{more}
[upstreams.app]
{upstream}
[[sites]]
hosts = ["app.test"]
rules = [{ handler = { proxy = {handler} } }]
"#;

/// Less than the gateway gives a client that takes nothing.
const PATIENCE: Duration = Duration::from_secs(25);

/// A gateway with these keys of the upstream, this handler and these other tables.
fn gateway(upstream: &str, handler: &str, more: &str) -> Builder {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("more", more)
        .with("upstream", upstream)
        .with("handler", handler)
}

/// A gateway before these servers, with these other keys of the upstream.
fn before(servers: &[SocketAddr], keys: &str) -> Gateway {
    let list: Vec<_> = servers
        .iter()
        .map(|server| format!("{:?}", server.to_string()))
        .collect();
    let upstream = format!("servers = [{}]\n{keys}", list.join(", "));
    gateway(&upstream, "\"app\"", "").start()
}

fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n").into_bytes()
}

fn post(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nhi").into_bytes()
}

/// Asks so often, on one connection; gives the bodies.
fn bodies(gateway: &Gateway, count: usize) -> Vec<String> {
    let mut client = gateway.client();
    let mut ask = |_| {
        let reply = reply(client.ask(&get("/", "")));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.text()
    };
    (0..count).map(&mut ask).collect()
}

fn count(bodies: &[String], body: &str) -> usize {
    bodies.iter().filter(|other| *other == body).count()
}

fn raw(bytes: &str) -> Step {
    Step::Send(bytes.as_bytes().to_vec())
}

/// An address nobody listens on.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

#[test]
fn one_connection_serves_many_clients() {
    let upstream = ScriptedUpstream::fixed("a");
    let gateway = before(&[upstream.address()], "");
    for _ in 0..30 {
        assert_eq!(reply(gateway.ask(&get("/", ""))).status, 200);
        assert_eq!(reply(gateway.ask(&post("/"))).status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_server_that_says_close_is_connected_to_each_time() {
    let close = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nc";
    let upstream = ScriptedUpstream::start(move |_| vec![Step::ReadBody, raw(close), Step::Close]);
    let gateway = before(&[upstream.address()], "");
    let mut client = gateway.client();
    for turn in 1..=10 {
        let reply = reply(client.ask(&get("/", "")));
        // How the upstream's connection ends is none of the client's business.
        assert_eq!(reply.head.field("connection"), None);
        assert_eq!(upstream.connections(), turn);
    }
}

#[test]
fn servers_take_turns_by_weight() {
    let (a, b) = (ScriptedUpstream::fixed("a"), ScriptedUpstream::fixed("b"));
    let upstream = format!(
        "servers = [{{ address = \"{}\", weight = 3 }}, \"{}\"]",
        a.address(),
        b.address()
    );
    let gateway = gateway(&upstream, "\"app\"", "").start();
    let bodies = bodies(&gateway, 40);
    assert_eq!((count(&bodies, "a"), count(&bodies, "b")), (30, 10));
    // Interleaved: no four in a row go to one server.
    assert!(bodies.windows(4).all(|four| count(four, "b") == 1));
}

#[test]
fn a_busy_server_is_spared() {
    let slow = ScriptedUpstream::start(|seen| match seen.head.line.contains("/slow") {
        true => vec![Step::Idle(Duration::from_secs(120))],
        false => vec![Step::ReadBody, Step::reply(200, "a")],
    });
    let quick = ScriptedUpstream::fixed("b");
    let servers = [slow.address(), quick.address()];
    let gateway = before(&servers, "balance = \"least_requests\"");
    // The first server is asked first; the two requests it never answers keep it busy.
    let mut waiting = [gateway.client(), gateway.client()];
    for client in &mut waiting {
        client.send(&get("/slow", ""));
        let _ = eventually(PATIENCE, "the request at either server", || {
            slow.take_seen().pop().or(quick.take_seen().pop())
        });
    }
    assert_eq!(count(&bodies(&gateway, 20), "b"), 20);
}

#[test]
fn a_dead_server_costs_no_request_and_serves_again_when_it_is_back() {
    let (dead, alive) = (nowhere(), ScriptedUpstream::fixed("alive"));
    let gateway = before(
        &[dead, alive.address()],
        "fails = 2\nback_off = \"200ms\"\nback_off_max = \"400ms\"",
    );
    assert_eq!(count(&bodies(&gateway, 50), "alive"), 50);
    gateway.wait_for_message("rests");
    let back = ScriptedUpstream::start_at(dead, |_| vec![Step::ReadBody, Step::reply(200, "back")]);
    eventually(PATIENCE, "the server to be asked again", || {
        (count(&bodies(&gateway, 2), "back") > 0).then_some(())
    });
    let shares = bodies(&gateway, 20);
    assert_eq!((count(&shares, "back"), count(&shares, "alive")), (10, 10));
    drop(back);
}

#[test]
fn a_request_with_a_body_goes_on_to_a_server_that_can_be_reached() {
    let alive = ScriptedUpstream::fixed("alive");
    // Both dead servers fail at the connect: nothing was sent, so nothing can happen twice.
    let servers = [nowhere(), nowhere(), alive.address()];
    let gateway = before(&servers, "tries = 3\nfails = 1000");
    for _ in 0..10 {
        assert_eq!(reply(gateway.ask(&post("/"))).body, b"alive");
    }
    let gateway = before(&servers, "tries = 2\nfails = 1000");
    let statuses: Vec<_> = (0..12)
        .map(|_| reply(gateway.ask(&post("/"))).status)
        .collect();
    assert!(
        statuses.contains(&502),
        "two tries can't reach the third: {statuses:?}"
    );
}

/// Answers a connection's first request and closes at its second, which it has read.
fn closes_at_the_second(seen: &Seen) -> Vec<Step> {
    match seen.nth {
        0 => vec![Step::ReadBody, Step::reply(200, "first")],
        _ => vec![Step::ReadBody, Step::Close],
    }
}

#[test]
fn only_what_is_safe_is_sent_twice() {
    for (request, again) in [
        (get("/x", ""), true),
        (b"HEAD /x HTTP/1.1\r\nHost: app.test\r\n\r\n".to_vec(), true),
        (
            b"DELETE /x HTTP/1.1\r\nHost: app.test\r\n\r\n".to_vec(),
            true,
        ),
        (post("/x"), false),
        (
            b"POST /x HTTP/1.1\r\nHost: app.test\r\n\r\n".to_vec(),
            false,
        ),
        (
            b"PATCH /x HTTP/1.1\r\nHost: app.test\r\n\r\n".to_vec(),
            false,
        ),
        (
            b"PUT /x HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nhi".to_vec(),
            false,
        ),
    ] {
        let shown = String::from_utf8_lossy(&request).into_owned();
        let upstream = ScriptedUpstream::start(closes_at_the_second);
        let gateway = before(&[upstream.address()], "fails = 1000");
        assert_eq!(reply(gateway.ask(&get("/", ""))).status, 200);
        let _ = upstream.take_seen();
        let mut client = gateway.client();
        client.send(&request);
        let framed = match shown.starts_with("HEAD") {
            true => Body::Never,
            false => Body::Framed,
        };
        let status = reply(client.read_reply(framed)).status;
        let places: Vec<_> = upstream
            .take_seen()
            .iter()
            .map(|seen| (seen.connection, seen.nth))
            .collect();
        match again {
            true => assert_eq!(
                (status, &places[..]),
                (200, &[(0, 1), (1, 0)][..]),
                "{shown}"
            ),
            false => assert_eq!((status, &places[..]), (502, &[(0, 1)][..]), "{shown}"),
        }
    }
}

#[test]
fn a_request_that_a_server_was_at_is_not_sent_twice() {
    let upstream = ScriptedUpstream::start(|seen| match seen.nth {
        0 => closes_at_the_second(seen),
        _ => vec![Step::Idle(Duration::from_millis(1_200)), Step::Close],
    });
    let gateway = before(&[upstream.address()], "fails = 1000");
    assert_eq!(reply(gateway.ask(&get("/", ""))).status, 200);
    let _ = upstream.take_seen();
    assert_eq!(reply(gateway.ask(&get("/", ""))).status, 502);
    assert_eq!(upstream.take_seen().len(), 1);
}

#[test]
fn a_fresh_connection_that_closes_is_no_reason_to_ask_again() {
    let upstream = ScriptedUpstream::start(|_| vec![Step::ReadBody, Step::Close]);
    let gateway = before(&[upstream.address()], "fails = 1000");
    assert_eq!(reply(gateway.ask(&get("/", ""))).status, 502);
    assert_eq!(upstream.take_seen().len(), 1);
}

#[test]
fn a_name_is_looked_up() {
    let upstream = ScriptedUpstream::fixed("named");
    let servers = format!("servers = [\"localhost:{}\"]", upstream.address().port());
    let resolve = "[timeouts]\nresolve = \"1s\"";
    let gateway = gateway(&servers, "\"app\"", resolve).start();
    assert_eq!(count(&bodies(&gateway, 3), "named"), 3);
    // What was looked up is older than a second then, and is looked up again.
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(count(&bodies(&gateway, 3), "named"), 3);
}

#[test]
fn a_name_nobody_knows_is_502() {
    let gateway = gateway(
        "servers = [\"no-such-host.invalid:80\"]",
        "\"app\"",
        "[timeouts]\nresolve = \"1s\"",
    );
    let gateway = gateway.start();
    assert_eq!(reply(gateway.ask(&get("/", ""))).status, 502);
    gateway.wait_for_message("upstream_name");
}

#[test]
fn a_unix_socket_is_a_server_too() {
    let nginx = "server { listen 127.0.0.1:{port}; listen unix:{dir}/app.sock;\n\
                 location / { return 200 \"$http_host $connection_requests\"; } }";
    let Some(nginx) = Peer::nginx(nginx) else {
        return;
    };
    let socket = nginx.directory().join("app.sock");
    let servers = format!("servers = [\"unix:{}\"]", socket.display());
    let builder = gateway(&servers, "\"app\"", "");
    let gateway = builder.start();
    // nginx counts the requests of a connection: it is one and the same.
    let expected: Vec<_> = (1..=5).map(|turn| format!("app.test {turn}")).collect();
    assert_eq!(bodies(&gateway, 5), expected);
}

#[test]
fn a_connect_that_hangs_is_504_in_time() {
    // A listener that accepts nobody and whose queue is full leaves further connects unanswered.
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    rustix::net::bind(&listener, &any).expect("bind");
    rustix::net::listen(&listener, 0).expect("listen");
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().expect("bound");
    let full = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let _queue: Vec<_> = std::iter::from_fn(full).take(8).collect();
    let more = "[timeouts]\nupstream_connect = \"300ms\"";
    let servers = format!("servers = [\"{address}\"]\nfails = 1000");
    let gateway = gateway(&servers, "\"app\"", more).start();
    quick_once(Duration::from_secs(3), "504", || {
        let start = Instant::now();
        assert_eq!(reply(gateway.ask(&get("/", ""))).status, 504);
        start.elapsed()
    });
    gateway.wait_for_message("upstream_connect_timeout");
}

#[test]
fn a_reply_that_stops_is_cut_after_the_read_timeout() {
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadBody,
            raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            Step::Idle(Duration::from_secs(120)),
        ]
    });
    let servers = format!("servers = [\"{}\"]", upstream.address());
    // For the first half, too.
    let more = "[timeouts]\nupstream_read = \"5s\"";
    let gateway = gateway(&servers, "\"app\"", more).start();
    let cut = reply(gateway.ask(&get("/", "")));
    assert_eq!((cut.complete, &cut.body[..]), (false, &b"half"[..]));
    gateway.wait_for_message("upstream_silent");
}

/// The head of an upload that a client can go on with for as long as it likes.
const UPLOAD: &[u8] = b"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1000000\r\n\r\n";

#[test]
fn a_reply_that_stops_is_cut_though_its_client_sends_on() {
    let upstream = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadSome(1),
            raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            Step::ReadBody,
        ]
    });
    let servers = format!("servers = [\"{}\"]", upstream.address());
    let more = "[timeouts]\nupstream_read = \"300ms\"";
    let gateway = gateway(&servers, "\"app\"", more).start();
    let mut client = gateway.client();
    client.send(UPLOAD);
    eventually(PATIENCE, "the silent reply to be cut", || {
        client.send(b"x");
        gateway.stderr().contains("upstream_silent").then_some(())
    });
}

#[test]
fn an_upload_that_drips_is_ended_however_quickly_it_began() {
    let upstream = ScriptedUpstream::start(|_| vec![Step::ReadBody]);
    let servers = format!("servers = [\"{}\"]", upstream.address());
    let more = "[timeouts]\nbody = \"300ms\"\n[caps]\nbody_rate_min = \"10KiB\"";
    let gateway = gateway(&servers, "\"app\"", more).start();
    let mut client = gateway.client();
    client.send(UPLOAD);
    client.send(&[b'x'; 500_000]);
    eventually(PATIENCE, "the server to be reached", || {
        (upstream.connections() == 1).then_some(())
    });
    eventually(PATIENCE, "the upload to end", || {
        client.send(b"x");
        (upstream.open_connections() == 0).then_some(())
    });
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 408);
}

#[test]
fn a_reply_that_makes_no_sense_is_502() {
    for garbage in [
        "\0\u{1}\u{2}garbage\r\n\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "220 mail.example.jp ESMTP\r\n",
        "HTTP/1.1 200 OK\r\nBroken",
        "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "",
    ] {
        let upstream =
            ScriptedUpstream::start(move |_| vec![Step::ReadBody, raw(garbage), Step::Close]);
        let gateway = before(&[upstream.address()], "fails = 1000");
        assert_eq!(reply(gateway.ask(&get("/", ""))).status, 502, "{garbage:?}");
    }
}

#[test]
fn a_reply_cut_short_is_cut_for_every_client() {
    let upstream = ScriptedUpstream::start(|seen| {
        let framing = match seen.head.line.contains("/chunked") {
            true => "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            false => "Content-Length: 10\r\n\r\nhello",
        };
        let reply = format!("HTTP/1.1 200 OK\r\n{framing}");
        vec![Step::ReadBody, raw(&reply), Step::Close]
    });
    let gateway = before(&[upstream.address()], "fails = 1000");
    for path in ["/chunked", "/length"] {
        for version in ["1.1", "1.0"] {
            let request = format!("GET {path} HTTP/{version}\r\nHost: app.test\r\n\r\n");
            let cut = reply(gateway.ask(request.as_bytes()));
            assert!(!cut.complete, "{path} for HTTP/{version}: {cut:?}");
        }
    }
}

#[test]
fn an_old_client_gets_chunks_as_a_plain_body() {
    let upstream = ScriptedUpstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n";
        let body = "3\r\nabc\r\n3;x=y\r\ndef\r\n0\r\nX: dropped\r\n\r\n";
        vec![Step::ReadBody, raw(&format!("{head}{body}"))]
    });
    let gateway = before(&[upstream.address()], "");
    let old = reply(gateway.ask(b"GET / HTTP/1.0\r\nHost: app.test\r\n\r\n"));
    assert_eq!((old.complete, &old.body[..]), (true, &b"abcdef"[..]));
    assert_eq!(old.head.count("transfer-encoding"), 0);
    let new = reply(gateway.ask(&get("/", "")));
    assert_eq!((new.complete, &new.body[..]), (true, &b"abcdef"[..]));
    assert_eq!(new.head.field("transfer-encoding"), Some("chunked"));
}

#[test]
fn prefixes_are_cut_and_put() {
    for (handler, asked, forwarded) in [
        ("strip_prefix = \"/api\"", "/api/users?q=1", "/users?q=1"),
        ("strip_prefix = \"/api\"", "/api", "/"),
        ("strip_prefix = \"/api\"", "/apiary", "/apiary"),
        ("strip_prefix = \"/api/\"", "/api/users", "/users"),
        ("add_prefix = \"/v2\"", "/users?q", "/v2/users?q"),
        (
            "strip_prefix = \"/api\", add_prefix = \"/v2/\"",
            "/api/a%20b",
            "/v2/a%20b",
        ),
        ("strip_prefix = \"/api\"", "/x/../api/y", "/y"),
    ] {
        let upstream = ScriptedUpstream::fixed("x");
        let servers = format!("servers = [\"{}\"]", upstream.address());
        let handler = format!("{{ upstream = \"app\", {handler} }}");
        let gateway = gateway(&servers, &handler, "").start();
        assert_eq!(reply(gateway.ask(&get(asked, ""))).status, 200);
        let line = upstream.next_seen().head.line;
        assert_eq!(
            line,
            format!("GET {forwarded} HTTP/1.1"),
            "{handler} {asked}"
        );
    }
}

#[test]
fn a_kept_encoded_slash_goes_on_as_one_through_scripts_and_redirects() {
    let site = "hosts = [\"app.test\"]\nencoded_slash = \"keep\"\n\
                scripts = { rewrite = { code = \"r = Nginx::Request.new; r.uri = '/new' + r.uri if r.uri.start_with? '/old'\" } }";
    let config = CONFIG
        .replace("hosts = [\"app.test\"]", site)
        .replace("rules = [", "rules = [{ match = { path = \"/new/old/moved/*\" }, handler = { redirect = \"https://b.test$uri\" } }, ");
    let upstream = ScriptedUpstream::fixed("x");
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("more", "")
        .with(
            "upstream",
            format!("servers = [\"{}\"]", upstream.address()),
        )
        .with("handler", "{ upstream = \"app\", add_prefix = \"/v2\" }")
        .start();
    for (asked, forwarded) in [
        ("/a%2Fb", "/v2/a%2Fb"),
        ("/old/a%2Fb?q=%2F", "/v2/new/old/a%2Fb?q=%2F"),
        ("/old/100%25/a%2Fb", "/v2/new/old/100%25/a%2Fb"),
    ] {
        assert_eq!(reply(gateway.ask(&get(asked, ""))).status, 200);
        let line = upstream.next_seen().head.line;
        assert_eq!(line, format!("GET {forwarded} HTTP/1.1"), "{asked}");
    }
    let moved = reply(gateway.ask(&get("/old/moved/a%2Fb", "")));
    let location = moved.head.field("Location");
    assert_eq!(location, Some("https://b.test/new/old/moved/a%2Fb"));
}

#[test]
fn the_host_sent_is_the_one_chosen() {
    let upstream = ScriptedUpstream::fixed("x");
    let own = upstream.address().to_string();
    for (host, expected) in [
        ("client", "app.test"),
        ("upstream", own.as_str()),
        ("inner.example:81", "inner.example:81"),
    ] {
        let servers = format!("servers = [\"{own}\"]");
        let handler = format!("{{ upstream = \"app\", host = \"{host}\" }}");
        let gateway = gateway(&servers, &handler, "").start();
        assert_eq!(reply(gateway.ask(&get("/", ""))).status, 200);
        let head = upstream.next_seen().head;
        assert_eq!(head.field("host"), Some(expected));
        assert_eq!(head.count("host"), 1);
        assert_eq!(head.field("x-forwarded-host"), Some("app.test"));
    }
}

const CLAIMS: &str = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
    X-Forwarded-Host: shop.example\r\nForwarded: for=192.0.2.7\r\nX-Real-IP: 192.0.2.9\r\n\
    X-Request-Id: from-outside\r\nVia: 1.1 elsewhere, 1.1 nagaya\r\n";

/// What the upstream sees of [`CLAIMS`], by name.
fn forwarded(more: &str) -> Vec<Option<String>> {
    let upstream = ScriptedUpstream::fixed("x");
    let servers = format!("servers = [\"{}\"]", upstream.address());
    let more = format!("trusted_proxies = [{more}]");
    let config = CONFIG.replace("workers = 1", &format!("workers = 1\n{more}"));
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("more", "")
        .with("upstream", servers)
        .with("handler", "\"app\"")
        .start();
    let answer = reply(gateway.ask(&get("/", CLAIMS)));
    let head = upstream.next_seen().head;
    assert_eq!(
        answer.head.field("x-request-id"),
        head.field("x-request-id")
    );
    let names = [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "forwarded",
        "x-real-ip",
        "x-request-id",
    ];
    let mut seen: Vec<_> = names
        .iter()
        .map(|name| head.field(name).map(str::to_owned))
        .collect();
    let via = head
        .fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("via"));
    seen.push(Some(
        via.map(|(_, value)| value.as_str())
            .collect::<Vec<_>>()
            .join("; "),
    ));
    seen
}

#[test]
fn a_strangers_claims_are_not_passed_on() {
    let seen = forwarded("");
    let ours = ["127.0.0.1", "http", "app.test"].map(|text| Some(text.to_owned()));
    assert_eq!(seen[..3], ours);
    assert_eq!(seen[3], None);
    assert_eq!(seen[4].as_deref(), Some("127.0.0.1"));
    assert_ne!(seen[5].as_deref(), Some("from-outside"));
    // That it has come through here is no claim of its own: circles are found by it.
    assert_eq!(seen[6].as_deref(), Some("1.1 nagaya, 1.1 nagaya"));
}

#[test]
fn a_trusted_proxys_claims_are() {
    let seen = forwarded("\"127.0.0.0/8\"");
    let theirs = [
        "192.0.2.7, 127.0.0.1",
        "https",
        "shop.example",
        "for=192.0.2.7",
        "192.0.2.7",
        "from-outside",
        "1.1 elsewhere, 1.1 nagaya; 1.1 nagaya",
    ];
    assert_eq!(seen, theirs.map(|text| Some(text.to_owned())));
}

#[test]
fn a_request_that_goes_in_circles_is_508() {
    let handler = "\"http://127.0.0.1:{port}\"";
    let unused = "servers = [\"127.0.0.1:1\"]";
    let gateway = gateway(unused, handler, "").start();
    assert_eq!(reply(gateway.ask(&get("/", ""))).status, 508);
}

#[test]
fn a_client_that_leaves_a_silent_stream_ends_it() {
    let upstream = ScriptedUpstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
        vec![
            Step::ReadBody,
            raw(head),
            Step::Idle(Duration::from_secs(120)),
        ]
    });
    let gateway = before(&[upstream.address()], "");
    let mut client = gateway.client();
    client.send(&get("/", ""));
    assert_eq!(reply(client.read_reply(Body::Never)).status, 200);
    assert_eq!(upstream.open_connections(), 1);
    drop(client);
    eventually(PATIENCE, "the upstream connection to end", || {
        (upstream.open_connections() == 0).then_some(())
    });
}

#[test]
fn a_tunnel_to_a_client_that_vanished_ends() {
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n";
    let upstream = ScriptedUpstream::start(move |_| {
        // The far end never listens for the end; it only goes on talking.
        vec![
            raw(head),
            Step::Drip(vec![b'.'; 10_000], 1, Duration::from_millis(20)),
        ]
    });
    let gateway = before(&[upstream.address()], "");
    let mut client = gateway.client();
    client.send(&get("/", "Connection: upgrade\r\nUpgrade: chat\r\n"));
    assert_eq!(reply(client.read_reply(Body::Never)).status, 101);
    assert_eq!(client.read_exactly(3), b"...");
    drop(client);
    eventually(PATIENCE, "the tunnel to end", || {
        (upstream.open_connections() == 0).then_some(())
    });
}
