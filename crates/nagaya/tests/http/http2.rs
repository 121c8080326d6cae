//! HTTP/2 as clients and the servers behind see it: what is the same as in HTTP/1.1, and what is not.
//!
//! Connections and limits are in `http2_streams.rs`, hostile clients in `http2_cves.rs`.

use std::process::Command;
use testkit::http2::{END_STREAM, H2Client, RawH2, Request, get, kind};
use testkit::{Gateway, ScriptedUpstream, Step, free_port};

use crate::fixtures::tls::{self, TlsClient};
use crate::tls::{FINE, gateway as tls_gateway, gateway_with as tls_gateway_with};

pub(crate) const CONFIG: &str = r#"
workers = {workers}
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
protocols = ["http/1.1", "h2c"]
{listen}
[log]
access = "{dir}/access.log"
format = "json"
[timeouts]
{timeouts}
[caps]
{caps}
[upstreams.app]
servers = ["{upstream}"]
fails = 1000
[[sites]]
hosts = ["app.test"]
root = "{dir}/www"
  [[sites.rules]]
  match = { path = "/r" }
  handler = { respond = { body = "thirteen byte" } }
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
  [[sites.rules]]
  match = { path = "/app/*" }
  handler = { proxy = { upstream = "app" {proxy} } }
  limits = [{limits}]
"#;

const BIG_BYTES: usize = 3_000_000;

fn big() -> Vec<u8> {
    (0..BIG_BYTES).map(|at| (at % 251) as u8).collect()
}

/// A gateway with the placeholders of [`CONFIG`] filled in, those named here with these.
pub(crate) fn gateway(upstream: &ScriptedUpstream, changes: &[(&str, &str)]) -> Gateway {
    let mut builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address());
    for name in ["listen", "timeouts", "caps", "proxy", "limits"] {
        let change = changes.iter().find(|(changed, _)| *changed == name);
        builder = builder.with(name, change.map_or("", |(_, value)| value));
    }
    let workers = changes.iter().find(|(changed, _)| *changed == "workers");
    builder = builder.with("workers", workers.map_or("2", |(_, value)| value));
    let directory = builder.directory();
    directory.write("www/big.bin", big());
    directory.write("www/small.txt", "small\n");
    builder.start()
}

/// A gateway nobody asks for more than its own replies.
pub(crate) fn alone(changes: &[(&str, &str)]) -> (Gateway, ScriptedUpstream) {
    let upstream = ScriptedUpstream::fixed("fixed");
    (gateway(&upstream, changes), upstream)
}

pub(crate) fn url(path: &str) -> String {
    format!("http://app.test{path}")
}

fn post(path: &str, fields: &[(&str, &str)], body: &[u8]) -> Request<Vec<u8>> {
    let mut request = Request::post(url(path));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(body.to_vec()).expect("a request")
}

pub(crate) fn raw(gateway: &Gateway) -> RawH2<std::net::TcpStream> {
    RawH2::connect(gateway.address(), &[])
}

/// Whether another client is served just now.
pub(crate) fn is_well(gateway: &Gateway) {
    let reply = H2Client::connect(gateway.address()).get(&url("/r")).reply();
    assert_eq!((reply.status, &*reply.text()), (200, "thirteen byte"));
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sk", "--max-time", "25", "-w", " %{http_version}"])
        .args(arguments)
        .output()
        .expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn http_2_is_agreed_on_in_the_handshake_or_known_before_and_never_upgraded_to() {
    let sites = format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}");
    let (_tls, to) = tls_gateway("true", &sites);
    let resolve = format!("a.example:{}:127.0.0.1", to.port());
    let sealed = format!("https://a.example:{}/", to.port());
    assert_eq!(curl(&["--resolve", &resolve, &sealed]), "fine 2");
    let old = ["--http1.1", "--resolve", &resolve, &sealed];
    assert_eq!(curl(&old), "fine 1.1");
    // Who offers nothing speaks HTTP/1.1.
    let client = TlsClient::connect(&tls::credulous(), [127, 0, 0, 1], to, "a.example");
    let reply = client.expect("a handshake").get("/");
    assert_eq!(reply.expect("a reply"), (200, b"fine".to_vec()));

    let (plain, _upstream) = alone(&[]);
    let page = format!("http://{}/r", plain.address());
    let host = ["-H", "Host: app.test", &page];
    let known = [&["--http2-prior-knowledge"][..], &host].concat();
    assert_eq!(curl(&known), "thirteen byte 2");
    let upgrading = [&["--http2"][..], &host].concat();
    assert_eq!(curl(&upgrading), "thirteen byte 1.1");
    assert_eq!(curl(&host), "thirteen byte 1.1");
}

#[test]
fn a_listener_speaks_what_it_says_and_nothing_else() {
    let sites = format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}");
    let (_gateway, to) = tls_gateway("true\nprotocols = \"http/1.1\"", &sites);
    let resolve = format!("a.example:{}:127.0.0.1", to.port());
    let sealed = format!("https://a.example:{}/", to.port());
    assert_eq!(curl(&["--resolve", &resolve, &sealed]), "fine 1.1");
    let port = free_port();
    let more = format!("[[listen]]\naddress = \"127.0.0.1:{port}\"");
    let (gateway, _upstream) = alone(&[("listen", &more)]);
    let mut client = RawH2::connect(([127, 0, 0, 1], port).into(), &[]);
    // It takes the preface for what it is in HTTP/1.1.
    assert_eq!(client.read_to_end(), None);
    is_well(&gateway);
}

#[test]
fn nghttp_fetches_many_streams_of_one_connection() {
    if Command::new("h2load").arg("--version").output().is_err() {
        testkit::lacks_program("h2load");
        return;
    }
    let (gateway, _upstream) = alone(&[]);
    let page = format!("http://{}", gateway.address());
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.expect("the program runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (small, big) = (format!("{page}/small.txt"), format!("{page}/big.bin"));
    let told = run(
        "nghttp",
        &[
            "-ns",
            "-H",
            "host: app.test",
            "-H",
            ":authority: app.test",
            &small,
            &big,
        ],
    );
    assert_eq!(told.matches(" 200 ").count(), 2, "{told}");
    let told = run(
        "h2load",
        &[
            "-n2000",
            "-c4",
            "-m50",
            "-H",
            ":authority: app.test",
            &small,
        ],
    );
    assert!(told.contains("2000 succeeded, 0 failed"), "{told}");
}

#[test]
fn large_bodies_pass_whole_both_ways_on_many_streams_at_once() {
    let (gateway, upstream) = alone(&[]);
    let client = H2Client::connect(gateway.address());
    let down: Vec<_> = (0..8).map(|_| client.get(&url("/big.bin"))).collect();
    let length = BIG_BYTES.to_string();
    let known = client.ask(post("/app/known", &[("content-length", &length)], &big()));
    let unknown = client.ask(post("/app/unknown", &[], &big()));
    for asked in down {
        let reply = asked.reply();
        assert_eq!(reply.field("content-length"), length);
        assert!(reply.body == big());
    }
    assert_eq!(known.reply().text(), "fixed");
    assert_eq!(unknown.reply().text(), "fixed");
    let mut seen = upstream.take_seen();
    seen.sort_by(|one, other| one.head.line.cmp(&other.head.line));
    let [known, unknown] = &seen[..] else {
        panic!("{} requests", seen.len());
    };
    assert_eq!(known.head.line, "POST /app/known HTTP/1.1");
    assert_eq!(known.head.field("content-length"), Some(&*length));
    assert_eq!(known.head.count("transfer-encoding"), 0);
    assert_eq!(unknown.head.count("content-length"), 0);
    assert_eq!(unknown.head.field("transfer-encoding"), Some("chunked"));
    assert!(known.body == big() && unknown.body == big());
}

#[test]
fn replies_without_a_body_and_parts_of_files_are_what_they_are_in_http_1() {
    let upstream = ScriptedUpstream::start(|_| {
        let empty = b"HTTP/1.1 204 No Content\r\nX-Own: 1\r\n\r\n";
        vec![Step::ReadBody, Step::Send(empty.to_vec())]
    });
    let gateway = gateway(&upstream, &[]);
    let client = H2Client::connect(gateway.address());
    let ask = |request: testkit::http2::Builder| {
        client
            .ask(request.body(Vec::new()).expect("a request"))
            .reply()
    };
    let head = ask(Request::head(url("/big.bin")));
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.field("content-length"), BIG_BYTES.to_string());
    let none = ask(Request::get(url("/app/")));
    assert_eq!((none.status, none.field("x-own")), (204, "1"));
    assert_eq!(none.field("content-length"), "");
    let since = head.field("last-modified").to_owned();
    let same = ask(Request::get(url("/big.bin")).header("if-modified-since", since));
    assert_eq!((same.status, same.body.len()), (304, 0));
    let part = ask(Request::get(url("/big.bin")).header("range", "bytes=1000000-1000009"));
    assert_eq!(
        (part.status, &part.body[..]),
        (206, &big()[1_000_000..1_000_010])
    );
    let beyond = ask(Request::get(url("/big.bin")).header("range", "bytes=9000000-"));
    assert_eq!(beyond.status, 416);
}

#[test]
fn a_client_that_expects_100_hears_it_before_it_sends() {
    let (gateway, upstream) = alone(&[]);
    let mut client = raw(&gateway);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "app.test"),
        (":path", "/app/"),
        ("content-length", "5"),
        ("expect", "100-continue"),
    ];
    client.ask(1, &fields, false);
    client.read_until("a 100", |it| {
        it.streams.get(&1).is_some_and(|it| it.heads == [100])
    });
    client.send(kind::DATA, END_STREAM, 1, b"hello");
    let reply = client.reply(1);
    assert_eq!(
        (&reply.heads[..], &reply.body[..]),
        (&[100, 200][..], &b"fixed"[..])
    );
    assert_eq!(upstream.next_seen().body, b"hello");
}

#[test]
fn early_hints_pass() {
    let upstream = ScriptedUpstream::start(|_| {
        let hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
        vec![Step::Send(hint.to_vec()), Step::reply(200, "ok")]
    });
    let gateway = gateway(&upstream, &[("proxy", ", early_hints = \"all\"")]);
    let mut client = raw(&gateway);
    client.get(1, "app.test", "/app/");
    let reply = client.reply(1);
    assert_eq!(
        (&reply.heads[..], &reply.body[..]),
        (&[103, 200][..], &b"ok"[..])
    );
}

#[test]
fn trailers_of_either_side_are_dropped() {
    let upstream = ScriptedUpstream::start(|_| {
        let reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Theirs: 1\r\n\r\n";
        vec![Step::ReadBody, Step::Send(reply.to_vec())]
    });
    let gateway = gateway(&upstream, &[]);
    let reply = H2Client::connect(gateway.address())
        .get(&url("/app/"))
        .reply();
    assert_eq!((&*reply.text(), reply.has_trailers), ("ok", false));
    let _ = upstream.next_seen();
    let mut client = raw(&gateway);
    let mut fields = get("app.test", "/app/");
    fields[0].1 = "POST";
    client.ask(1, &fields, false);
    client.send(kind::DATA, 0, 1, b"hello");
    client.ask(1, &[("x-ours", "1")], true);
    let reply = client.reply(1);
    assert_eq!(
        (&reply.heads[..], &reply.body[..]),
        (&[200][..], &b"ok"[..])
    );
    let seen = upstream.next_seen();
    assert_eq!((&seen.body[..], seen.complete), (&b"hello"[..], true));
    let all = upstream.received().concat();
    assert!(!String::from_utf8_lossy(&all).contains("x-ours"));
}

/// The field by which a back end shows that it has read a key (RFC 6455, 4.2.2).
fn accept(key: &str) -> String {
    let script =
        "printf %s258EAFA5-E914-47DA-95CA-C5AB0DC85B11 $0 | openssl dgst -sha1 -binary | base64";
    let output = Command::new("sh").args(["-c", script, key]).output();
    let output = output.expect("a shell");
    let value = String::from_utf8_lossy(&output.stdout).into_owned();
    format!("Sec-WebSocket-Accept: {}\r\n", value.trim_end())
}

fn switching(fields: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{fields}\r\n"
    )
}

/// Asks for a tunnel to a back end.
fn connect_websocket(client: &mut RawH2<std::net::TcpStream>, stream: u32) {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "app.test"),
        (":path", "/app/ws"),
        ("sec-websocket-version", "13"),
    ];
    client.ask(stream, &fields, false);
}

#[test]
fn a_websocket_is_a_stream_to_the_client_and_an_upgrade_to_the_back_end() {
    let upstream = ScriptedUpstream::start(|seen| {
        let key = seen.head.field("sec-websocket-key").unwrap_or_default();
        vec![Step::Send(switching(&accept(key)).into()), Step::Echo]
    });
    let gateway = gateway(&upstream, &[]);
    let mut client = raw(&gateway);
    client.read_until("settings", |it| it.settings.contains(&(8, 1)));
    connect_websocket(&mut client, 1);
    client.get(3, "app.test", "/r");
    client.read_until("the tunnel", |it| {
        it.streams.get(&1).is_some_and(|it| it.heads == [200])
    });
    for part in ["hello", ", ", "world"] {
        client.send(kind::DATA, 0, 1, part.as_bytes());
    }
    client.read_until("the echo", |it| it.streams[&1].body == b"hello, world");
    assert_eq!(client.reply(3).status(), 200);
    client.send(kind::DATA, END_STREAM, 1, b"!");
    let tunnel = client.reply(1);
    assert!(
        tunnel.is_ended && tunnel.body == b"hello, world!",
        "{tunnel:?}"
    );
    let seen = upstream.next_seen();
    assert_eq!(seen.head.line, "GET /app/ws HTTP/1.1");
    assert_eq!(seen.head.field("upgrade"), Some("websocket"));
    assert_eq!(seen.head.field("sec-websocket-key").map(str::len), Some(24));
    assert_eq!(seen.head.count("transfer-encoding"), 0);
}

#[test]
fn a_back_end_that_has_not_read_the_key_makes_no_tunnel() {
    let of_another_key = accept("dGhlIHNhbXBsZSBub25jZQ==");
    for (reply, status) in [
        (switching(""), 502),
        (switching(&of_another_key), 502),
        (
            "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
            403,
        ),
    ] {
        let upstream = ScriptedUpstream::start(move |_| vec![Step::Send(reply.clone().into())]);
        let gateway = gateway(&upstream, &[]);
        let mut client = raw(&gateway);
        connect_websocket(&mut client, 1);
        assert_eq!(client.reply(1).status(), status);
        is_well(&gateway);
    }
}

/// The head that goes to the back end has no body: what a client sends ahead of a tunnel, or in the place of one, would
/// be the next request there.
#[test]
fn what_comes_ahead_of_a_tunnel_that_is_not_granted_is_nobodys_request() {
    let fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for tunnels in ["", ", tunnels = false"] {
        let upstream = ScriptedUpstream::start(move |_| vec![Step::Send(fine.into())]);
        let gateway = gateway(&upstream, &[("proxy", tunnels), ("workers", "1")]);
        let mut client = raw(&gateway);
        for (stream, flags) in [(1, 0), (3, END_STREAM)] {
            connect_websocket(&mut client, stream);
            let ahead = b"GET /app/smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n";
            client.send(kind::DATA, flags, stream, ahead);
            // A page would be taken for a tunnel (RFC 8441, 5).
            assert_eq!(client.reply(stream).status(), 501);
            assert_eq!(upstream.next_seen().head.line, "GET /app/ws HTTP/1.1");
        }
        client.get(5, "app.test", "/app/next");
        assert_eq!(client.reply(5).body, b"ok");
        assert_eq!(upstream.next_seen().head.line, "GET /app/next HTTP/1.1");
        is_well(&gateway);
    }
}

#[test]
fn a_connection_serves_what_its_certificate_covers_and_sends_others_away() {
    let sites = format!(
        "[tenants.one]\n[tenants.two]\n\
         [[sites]]\nhosts = [\"a.example\", \"b.example\"]\n{FINE}\
         [[sites]]\nhosts = [\"c.other\"]\n{FINE}\
         [[sites]]\nhosts = [\"d.other\"]\ntenant = \"one\"\n{FINE}\
         tls = {{ certificate = \"{{dir}}/one.pem\" }}\n\
         [[sites]]\nhosts = [\"e.other\"]\ntenant = \"two\"\n{FINE}\
         tls = {{ certificate = \"{{dir}}/two.pem\" }}\n\
         [[sites]]\nhosts = [\"staff.example\"]\n{FINE}\
         tls = {{ client_ca = \"{{dir}}/staff.pem\" }}\n"
    );
    let (_gateway, to) = tls_gateway_with("true", &sites, |directory| {
        tls::certificate(&directory.join("live/c.pem"), &["c.other"]);
        tls::certificate(&directory.join("one.pem"), &["d.other", "e.other"]);
        tls::certificate(&directory.join("two.pem"), &["e.other"]);
        tls::certificate(&directory.join("staff.pem"), &["staff"]);
    });
    for (name, host, status) in [
        ("a.example", "a.example", 200),
        ("a.example", "b.example", 200),
        ("a.example", "c.other", 421),
        ("a.example", "staff.example", 421),
        ("c.other", "c.other", 200),
        ("c.other", "a.example", 421),
        ("d.other", "d.other", 200),
        ("d.other", "e.other", 421),
        ("e.other", "d.other", 421),
    ] {
        let client = H2Client::connect_tls(to, &tls::credulous(), name);
        let reply = client.get(&format!("https://{host}/")).reply();
        assert_eq!(reply.status, status, "{host} on a connection of {name}");
    }
}

#[test]
#[ignore = "needs h2spec, which Debian does not have: make soak"]
fn h2spec_is_answered_without_exception() {
    let program = std::env::var_os("NAGAYA_H2SPEC").expect("scripts/h2spec.sh prints its path");
    // What comes in two pieces is judged as a whole: an answer to the first would be right, too.
    let upstream = ScriptedUpstream::start(|_| {
        let answered_after = Step::Idle(std::time::Duration::from_millis(200));
        vec![answered_after, Step::reply(200, "long enough to be cut up")]
    });
    let rest = "[[sites]]\nhosts = [\"*\"]\nrules = [{ handler = { proxy = \"app\" } }]\n";
    let sites = format!(
        "[upstreams.app]\nservers = [\"{}\"]\nfails = 1000\n[[sites]]\nhosts = [\"a.example\"]\n{FINE}\n{rest}",
        upstream.address()
    );
    let (_gateway, sealed) = tls_gateway("{ default = \"a.example\" }", &sites);
    let port = free_port();
    let more = format!("[[listen]]\naddress = \"127.0.0.1:{port}\"\nprotocols = [\"h2c\"]\n{rest}");
    let _plain = gateway(&upstream, &[("listen", &more)]);
    for (port, how) in [(sealed.port(), &["-t", "-k"][..]), (port, &[])] {
        let output = Command::new(&program)
            .args([
                "--strict",
                "-h",
                "127.0.0.1",
                "-o",
                "5",
                "-p",
                &port.to_string(),
            ])
            .args(how)
            .output()
            .expect("h2spec runs");
        let told = String::from_utf8_lossy(&output.stdout);
        let last = told.lines().last().unwrap_or_default();
        assert_eq!(last, "146 tests, 146 passed, 0 skipped, 0 failed", "{told}");
        println!("{how:?}: {last}");
    }
}
