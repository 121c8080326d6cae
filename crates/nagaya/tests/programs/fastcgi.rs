//! FastCGI against a scripted responder: what it is asked, and what becomes of what it says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::fastcgi::{end, kind, printed, record, record_of};
use testkit::gateway::Builder;
use testkit::{FastCgiResponder, Gateway, Outcome, RawClient, Reply, Step, eventually};

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
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

const PATIENCE: Duration = Duration::from_secs(20);
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

#[test]
fn a_request_arrives_as_variables_and_a_body() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let request = "POST /x.php/a%20b/../c?q=%41 HTTP/1.1\r\nHost: APP.test:80\r\nProxy: http://evil\r\n\
                   X-Own: 1\r\nX_Own: 2\r\nX-Forwarded-For: 1.2.3.4\r\nContent-Type: a/b\r\n\
                   Content-Length: 3\r\nConnection: close\r\n\r\nabc";
    assert_page(gateway.ask(request.as_bytes()));
    let call = responder.next_call();
    assert!(call.keep && call.stdin == b"abc");
    let root = gateway
        .directory()
        .path()
        .join("site")
        .display()
        .to_string();
    for (name, value) in [
        ("SCRIPT_FILENAME", Some(format!("{root}/x.php"))),
        ("DOCUMENT_ROOT", Some(root.clone())),
        ("PATH_TRANSLATED", Some(format!("{root}/c"))),
        ("SCRIPT_NAME", Some("/x.php".into())),
        ("PATH_INFO", Some("/c".into())),
        ("REQUEST_URI", Some("/x.php/c?q=%41".into())),
        ("QUERY_STRING", Some("q=%41".into())),
        ("REQUEST_METHOD", Some("POST".into())),
        ("CONTENT_TYPE", Some("a/b".into())),
        ("CONTENT_LENGTH", Some("3".into())),
        ("SERVER_NAME", Some("app.test".into())),
        ("SERVER_ADDR", Some("127.0.0.1".into())),
        ("SERVER_PORT", Some(gateway.address().port().to_string())),
        ("SERVER_PROTOCOL", Some("HTTP/1.1".into())),
        ("REMOTE_ADDR", Some("127.0.0.1".into())),
        ("REDIRECT_STATUS", Some("200".into())),
        ("HTTP_X_OWN", Some("1".into())),
        ("HTTP_PROXY", None),
        ("HTTP_X_FORWARDED_FOR", None),
        ("HTTP_CONNECTION", None),
        ("HTTP_CONTENT_LENGTH", None),
        ("HTTPS", None),
    ] {
        assert_eq!(call.param(name), value.as_deref(), "{name}");
    }
    let host = call.param("HTTP_HOST").unwrap_or_default();
    assert!(host.starts_with("app.test"), "{host}");
}

#[test]
fn variables_can_be_set_and_left_out_and_the_root_be_another() {
    let responder = says(printed(PAGE));
    let keys = r#"root = "/srv/php", params = { set = { PHP_VALUE = "a=1\nb=2", SERVER_NAME = "$method" }, remove = ["SERVER_SOFTWARE"] }"#;
    let gateway = builder(&responder, keys).start();
    assert_page(gateway.ask(&get("/x.php/info")));
    let call = responder.next_call();
    for (name, value) in [
        ("SCRIPT_FILENAME", Some("/srv/php/x.php")),
        ("DOCUMENT_ROOT", Some("/srv/php")),
        ("PATH_TRANSLATED", Some("/srv/php/info")),
        ("PHP_VALUE", Some("a=1\nb=2")),
        ("SERVER_NAME", Some("GET")),
        ("SERVER_SOFTWARE", None),
    ] {
        assert_eq!(call.param(name), value, "{name}");
    }
}

#[test]
fn an_internal_rewrite_leaves_request_uri_as_the_client_sent_it() {
    let ways = "encoded_slash = \"keep\"\ntry = [\"$path\", \"$path/\", \"/index.php\"]\n\
                scripts = { rewrite = { code = \"r = Nginx::Request.new; r.uri = '/x.php/new' + r.uri if r.uri.start_with? '/old'; r.args = 'n=1' if r.uri.end_with? 'query'\" }, \
                access = { code = \"r = Nginx::Request.new; Nginx.redirect '/x.php/inside?i=1' if r.uri == '/outside'\" } }\n  [[sites.rules]]";
    let config = CONFIG.replacen("  [[sites.rules]]", ways, 1);
    let responder = says(printed(PAGE));
    let gateway = builder_of(&config, &responder, "", 8).start();
    for (asked, uri, script, info, query) in [
        (
            "/old/%20a?q",
            "/old/%20a?q",
            "/x.php",
            Some("/new/old/ a"),
            "q",
        ),
        (
            "/old/a%2Fb",
            "/old/a%2Fb",
            "/x.php",
            Some("/new/old/a%2Fb"),
            "",
        ),
        (
            "/old/query?q=2",
            "/old/query?q=2",
            "/x.php",
            Some("/new/old/query"),
            "n=1",
        ),
        (
            "/outside?o=1",
            "/outside?o=1",
            "/x.php",
            Some("/inside"),
            "i=1",
        ),
        ("/a-post/?p=1", "/a-post/?p=1", "/index.php", None, "p=1"),
        ("/x.php/b", "/x.php/b", "/x.php", Some("/b"), ""),
    ] {
        assert_page(gateway.ask(&get(asked)));
        let call = responder.next_call();
        for (name, value) in [
            ("REQUEST_URI", Some(uri)),
            ("SCRIPT_NAME", Some(script)),
            ("PATH_INFO", info),
            ("QUERY_STRING", Some(query)),
        ] {
            assert_eq!(call.param(name), value, "{asked}: {name}");
        }
    }
}

/// `u:secret` by bcrypt at the lowest cost.
const PASSWORDS: &str = "u:$2y$04$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka\n";

#[test]
fn a_name_we_checked_is_told_and_its_password_is_not() {
    let responder = says(printed(PAGE));
    let auth = r#"auth = { realm = "Staff", file = "{dir}/htpasswd" }"#;
    let config = CONFIG.replace("  [[sites.rules]]", &format!("{auth}\n  [[sites.rules]]"));
    let builder = builder_of(&config, &responder, "", 8);
    builder.directory().write("htpasswd", PASSWORDS);
    let gateway = builder.start();
    assert_eq!(reply(gateway.ask(&get("/x.php"))).status, 401);
    let known =
        "GET /x.php HTTP/1.1\r\nHost: app.test\r\nAuthorization: Basic dTpzZWNyZXQ=\r\n\r\n";
    assert_page(gateway.ask(known.as_bytes()));
    let call = responder.next_call();
    assert_eq!(
        (call.param("REMOTE_USER"), call.param("AUTH_TYPE")),
        (Some("u"), Some("Basic"))
    );
    assert_eq!(call.param("HTTP_AUTHORIZATION"), None);
}

#[test]
fn a_trusted_proxy_says_who_the_client_is_and_how_it_speaks() {
    let responder = says(printed(PAGE));
    let config = format!("trusted_proxies = [\"127.0.0.1\"]\n{CONFIG}");
    let gateway = builder_of(&config, &responder, "", 8).start();
    let request = "GET /x.php HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\r\n";
    assert_page(gateway.ask(request.as_bytes()));
    let call = responder.next_call();
    for (name, value) in [
        ("REMOTE_ADDR", Some("192.0.2.7")),
        ("REMOTE_PORT", None),
        ("HTTPS", Some("on")),
        ("REQUEST_SCHEME", Some("https")),
        ("HTTP_X_FORWARDED_FOR", Some("192.0.2.7")),
    ] {
        assert_eq!(call.param(name), value, "{name}");
    }
}

#[test]
fn a_body_that_streams_and_breaks_off_takes_the_connection_with_it() {
    let responder = says(printed(PAGE));
    let gateway = builder(&responder, "buffer_request = false").start();
    let mut client = gateway.client();
    let request = post("abcdef");
    client.send(&request[..request.len() - 3]);
    // Half a body is enough for a connection, and never for an answer.
    eventually(PATIENCE, "a connection", || {
        (responder.open_connections() == 1).then_some(())
    });
    drop(client);
    eventually(PATIENCE, "the connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
    assert_eq!(responder.take_calls(), []);
    assert_page(gateway.ask(&post("whole")));
}

#[test]
fn a_body_of_any_length_comes_in_records_that_can_hold_it() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    for length in [1, 65_534, 65_535, 65_536, 131_070, 131_071, 300_000] {
        let body: String = ('a'..='z').cycle().take(length).collect();
        client.send(&post(&body));
        assert_page(client.read_reply(Body::Framed));
        let call = responder.next_call();
        assert!(call.stdin == body.as_bytes(), "{length}");
        assert_eq!(
            call.param("CONTENT_LENGTH"),
            Some(length.to_string().as_str())
        );
        let stdin = call.records.iter().filter(|(kind, _)| *kind == kind::STDIN);
        let lengths: Vec<usize> = stdin.map(|(_, length)| *length).collect();
        let (last, pieces) = lengths.split_last().unwrap();
        assert!(*last == 0 && pieces.iter().all(|piece| (1..=65_535).contains(piece)));
    }
}

#[test]
fn a_body_in_chunks_has_a_length_by_the_time_it_arrives() {
    for keys in ["", "buffer_request = false"] {
        let responder = says(printed(PAGE));
        let gateway = builder(&responder, keys).start();
        let request = "POST /x.php HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_page(gateway.ask(request.as_bytes()));
        let call = responder.next_call();
        assert_eq!(
            (call.param("CONTENT_LENGTH"), &call.stdin[..]),
            (Some("5"), &b"abcde"[..])
        );
        assert_eq!(call.param("HTTP_TRANSFER_ENCODING"), None);
    }
}

#[test]
fn the_responder_hears_of_a_request_when_its_body_is_here() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let mut slow = gateway.client();
    let request = post("abcdef");
    let (now, later) = request.split_at(request.len() - 3);
    slow.send(now);
    // The other request overtakes the slow one, so the gateway has had its chance.
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.take_calls().len(), 1);
    slow.send(later);
    assert_page(slow.read_reply(Body::Framed));
    assert_eq!(responder.next_call().stdin, b"abcdef");
}

#[test]
fn a_body_too_large_never_reaches_the_responder() {
    let responder = says(printed(PAGE));
    let config = CONFIG.replace("[caps]", "[caps]\nbody_bytes = \"1KiB\"");
    for keys in ["", "buffer_request = false"] {
        let gateway = builder_of(&config, &responder, keys, 8).start();
        let long = "x".repeat(2_000);
        let head = "POST /x.php HTTP/1.1\r\nHost: app.test\r\n";
        for request in [
            format!("{head}Content-Length: 2000\r\n\r\n{long}"),
            format!("{head}Expect: 100-continue\r\nContent-Length: 2000\r\n\r\n"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n7d0\r\n{long}\r\n0\r\n\r\n"),
        ] {
            let refused = reply(gateway.ask(request.as_bytes()));
            assert_eq!((refused.status, refused.interim.len()), (413, 0));
        }
        assert_page(gateway.ask(&post("short")));
        assert_eq!(responder.next_call().stdin, b"short", "{keys}");
    }
}

#[test]
fn a_client_that_expects_100_gets_it() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    client.send(b"POST /x.php HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    client.send(b"abc");
    assert_page(client.read_reply(Body::Framed));
    assert_eq!(responder.next_call().stdin, b"abc");
}

#[test]
fn what_is_no_file_never_reaches_the_responder() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    gateway.directory().write("site/x.php.bak", "secret");
    gateway.directory().write("site/.hidden.php", "secret");
    gateway.directory().write("site/y.jpg", "image");
    for path in [
        "/none.php",
        "/none.php/x",
        "/x.php.bak",
        "/.hidden.php",
        "/y.jpg/x.php",
        "/X.PHP",
        "/x.php%00.jpg",
    ] {
        let status = reply(gateway.ask(&get(path))).status;
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
    assert_eq!(reply(gateway.ask(&get("/x.php/"))).status, 200);
    let call = responder.next_call();
    assert_eq!(call.param("PATH_INFO"), Some("/"));
    assert_eq!(responder.take_calls(), []);
}

#[test]
fn more_variables_than_fit_are_431() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let long = format!(
        "GET /x.php HTTP/1.1\r\nHost: app.test\r\nX-Long: {}\r\n\r\n",
        "x".repeat(9_000)
    );
    assert_eq!(reply(gateway.ask(long.as_bytes())).status, 431);
    assert_eq!(responder.connections(), 0);
}

/// What a program prints, and the status, some fields and the body that come of it.
type Printed = (
    &'static str,
    u16,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const PRINTED: &[Printed] = &[
    (
        "Content-Type: a/b\n\nx",
        200,
        &[("Content-Type", "a/b")],
        "x",
    ),
    (
        "Status: 404 Nothing\r\nX-A: 1\r\n\r\nno",
        404,
        &[("X-A", "1")],
        "no",
    ),
    (
        "Location: /there\r\n\r\n",
        302,
        &[("Location", "/there")],
        "",
    ),
    (
        "Status: 301\r\nLocation: http://a/\r\n\r\n",
        301,
        &[("Location", "http://a/")],
        "",
    ),
    (
        "Content-Length: 3\r\n\r\nabc",
        200,
        &[("Content-Length", "3")],
        "abc",
    ),
    (
        "X-Accel-Redirect: /s\r\nX-Sendfile: /s\r\nX-B: 2\r\n\r\n",
        200,
        &[("X-B", "2")],
        "",
    ),
    (
        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        200,
        &[],
        "abc",
    ),
    ("\r\n", 200, &[], ""),
];

#[test]
fn a_reply_is_its_status_its_fields_and_its_body() {
    for (output, status, fields, body) in PRINTED {
        for cut in [1, 7, output.len()] {
            let records: Vec<u8> = output.as_bytes().chunks(cut).flat_map(stdout).collect();
            let responder = says([records, end(0)].concat());
            let gateway = gateway(&responder);
            let mut client = gateway.client();
            for _ in 0..2 {
                client.send(&get("/x.php"));
                let answer = reply(client.read_reply(Body::Framed));
                assert_eq!(
                    (answer.status, answer.body.as_slice()),
                    (*status, body.as_bytes())
                );
                for (name, value) in *fields {
                    assert_eq!(answer.head.field(name), Some(*value), "{output:?}");
                }
                for name in ["X-Accel-Redirect", "X-Sendfile", "Connection", "Status"] {
                    assert_eq!(answer.head.field(name), None, "{output:?}");
                }
                assert!(answer.complete);
            }
            assert_eq!(
                responder.connections(),
                1,
                "{output:?} leaves the connection usable"
            );
        }
    }
}

#[test]
fn a_short_page_is_sent_with_its_length() {
    let responder = says(printed(PAGE));
    let answer = reply(gateway(&responder).ask(&get("/x.php")));
    assert_eq!(answer.head.field("Content-Length"), Some("5"));
}

#[test]
fn to_head_and_http_1_0_no_more_is_said_than_they_understand() {
    let responder = says(printed(b"Content-Length: 5\r\n\r\n"));
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    client.send(b"HEAD /x.php HTTP/1.1\r\nHost: app.test\r\n\r\n");
    let answer = reply(client.read_reply(Body::Never));
    assert_eq!(
        (answer.status, answer.head.field("Content-Length")),
        (200, Some("5"))
    );
    client.send(b"HEAD /x.php HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(reply(client.read_reply(Body::Never)).status, 200);
    let streamed = FastCgiResponder::start(|_| {
        let late = Duration::from_millis(1);
        vec![Step::Drip(printed(PAGE), 30, late)]
    });
    let gateway = self::gateway(&streamed);
    let answer = reply(gateway.ask(b"GET /x.php HTTP/1.0\r\nHost: app.test\r\n\r\n"));
    assert_eq!(answer.body, b"hello");
    assert_eq!(answer.head.field("Transfer-Encoding"), None);
}

#[test]
fn what_a_script_has_made_head_of_comes_without_a_body() {
    let asks = "  scripts = { access = { code = \"Nginx::Request.new.method = 'HEAD'\" } }";
    let config = CONFIG.replacen(
        "  [[sites.rules]]",
        &format!("{asks}\n  [[sites.rules]]"),
        1,
    );
    let config = format!("{config}\n[scripts]\ncpu = \"1s\"\n");
    for said in [
        "Content-Length: 5\r\n\r\n",
        "Content-Length: 5\r\n\r\nhello",
    ] {
        let responder = says(printed(said.as_bytes()));
        let gateway = builder_of(&config, &responder, "", 8).start();
        let answer = reply(gateway.ask(&get("/x.php")));
        assert!(answer.complete && answer.body.is_empty(), "{said}");
        assert_eq!(
            (answer.status, answer.head.field("Content-Length")),
            (200, Some("0"))
        );
    }
}

/// What comes of a reply that is not as it should be: the client's view, and that the connection
/// is not used again.
fn check_hostile(name: &str, said: &[u8], closes: bool, expected: impl Fn(&Outcome) -> bool) {
    let (said, page) = (said.to_vec(), printed(PAGE));
    let responder = FastCgiResponder::start(move |call| match (call.connection, closes) {
        (0, true) => vec![Step::Send(said.clone()), Step::Close],
        (0, false) => vec![Step::Send(said.clone()), Step::Idle(PATIENCE)],
        _ => vec![Step::Send(page.clone())],
    });
    let gateway = gateway(&responder);
    let outcome = gateway.ask(&post("a body, so that it is not tried again"));
    assert!(expected(&outcome), "{name}: {outcome:?}");
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(
        responder.connections(),
        2,
        "{name}: the connection was used again"
    );
    assert_eq!(responder.take_calls().len(), 2, "{name}");
}

fn is_502(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reply(answer) if answer.status == 502 && answer.complete)
}

/// A reply that began and did not end, as the client must be able to see.
fn is_cut(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Reply(Reply {
            status, complete, ..
        }) => *status == 200 && !complete,
        Outcome::Eof | Outcome::Reset => true,
        _ => false,
    }
}

#[test]
fn a_reply_that_is_none_is_502_and_its_connection_is_not_used_again() {
    let table: &[(&str, Vec<u8>)] = &[
        ("another version", record_of(2, kind::STDOUT, 1, PAGE, 0)),
        ("another request's", record_of(1, kind::STDOUT, 2, PAGE, 0)),
        ("nobody's", record_of(1, kind::STDOUT, 0, PAGE, 0)),
        ("an unknown type", record(11, &[0; 8], 0)),
        ("a request's record", record(kind::PARAMS, b"", 0)),
        (
            "HTTP",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        ("an end that is none", record(kind::END, &[0; 7], 0)),
        ("an unknown status", end(9)),
        ("no head", printed(b"")),
        ("no blank line", printed(b"Content-Type: a/b\r\n")),
        (
            "no blank line, no end of line",
            printed(b"Content-Type: a/b"),
        ),
        ("a status line", printed(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n")),
        ("a bad status", printed(b"Status: twohundred\r\n\r\n")),
        (
            "an interim status",
            printed(b"Status: 100 Continue\r\n\r\n"),
        ),
        ("a split name", printed(b"A b: c\r\n\r\n")),
        ("a folded line", printed(b"A: b\r\n c\r\n\r\n")),
        ("a carriage return", printed(b"A: b\rSet-Cookie: x\r\n\r\n")),
        ("a NUL", printed(b"A: b\0\r\n\r\n")),
        (
            "two lengths",
            printed(b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na"),
        ),
        (
            "a length that is none",
            printed(b"Content-Length: x\r\n\r\na"),
        ),
        ("an endless head", printed(vec![b'a'; 200_000])),
        ("a refusal to multiplex", end(1)),
        ("a refusal of the role", end(3)),
    ];
    for (name, said) in table {
        check_hostile(name, said, false, is_502);
    }
}

#[test]
fn a_reply_that_breaks_off_is_502_or_cut() {
    let head = stdout(b"Content-Type: a/b\r\n\r\n");
    check_hostile("nothing", b"", true, is_502);
    check_hostile("half a header", &head[..5], true, is_502);
    check_hostile("half a head", &stdout(b"Content-Type: a"), true, is_502);
    check_hostile("a head, no end", &head, true, is_cut);
    check_hostile("half a record", &stdout(PAGE)[..24], true, is_502);
    let body = [&head[..], &stdout(b"some"), &stdout(&[b'x'; 100])[..50]].concat();
    check_hostile("half a body", &body, true, is_cut);
    let short = [stdout(b"Content-Length: 9\r\n\r\nshort"), end(0)].concat();
    check_hostile("a body shorter than said", &short, false, is_cut);
    let late = [&head[..], &end(2)].concat();
    check_hostile("a refusal after the head", &late, false, is_cut);
    let wrong = [
        &head[..],
        &stdout(b"some"),
        &record_of(1, kind::STDOUT, 3, b"x", 0),
    ]
    .concat();
    check_hostile("another's record after the head", &wrong, false, is_cut);
}

#[test]
fn what_follows_the_end_is_nobodys_and_ends_the_connection() {
    let whole = |outcome: &Outcome| matches!(outcome, Outcome::Reply(answer) if answer.body == b"hello" && answer.complete);
    let forged = printed(b"Content-Type: text/plain\r\n\r\nforged");
    check_hostile("late data", &[printed(PAGE), forged].concat(), false, whole);
    check_hostile(
        "a late byte",
        &[printed(PAGE), vec![0]].concat(),
        false,
        whole,
    );
    let long = printed(b"Content-Length: 5\r\n\r\nhello, and more than was said");
    check_hostile("more than was said", &long, false, whole);
}

#[test]
fn what_comes_while_nothing_was_asked_answers_nobody() {
    let responder = FastCgiResponder::start(|call| {
        let forged = printed(b"Content-Type: text/plain\r\n\r\nforged");
        let length = forged.len();
        match call.connection {
            0 => vec![
                Step::Send(printed(PAGE)),
                Step::Drip(forged, length, Duration::from_millis(1)),
            ],
            _ => vec![Step::Send(printed(PAGE))],
        }
    });
    let gateway = gateway(&responder);
    assert_page(gateway.ask(&get("/x.php")));
    let_settle();
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.connections(), 2);
}

#[test]
fn an_overloaded_responder_is_503() {
    let responder = says(end(2));
    let answer = reply(gateway(&responder).ask(&get("/x.php")));
    assert_eq!(
        (answer.status, answer.head.field("Retry-After")),
        (503, Some("1"))
    );
}

#[test]
fn a_silent_responder_is_504() {
    let responder = FastCgiResponder::start(|_| vec![Step::Idle(Duration::from_secs(60))]);
    let config = CONFIG.replace("{silence}", "2s");
    let gateway = builder_of(&config, &responder, "", 8).start();
    assert_eq!(reply(gateway.ask(&get("/x.php"))).status, 504);
    eventually(PATIENCE, "the connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
}

#[test]
fn padding_of_any_length_is_no_content() {
    let padded = [
        record(kind::STDOUT, b"Content-Type: a/b\r\n", 255),
        record(kind::STDERR, b"", 255),
        record(kind::STDOUT, b"\r\nhel", 1),
        record(kind::STDOUT, b"lo", 7),
        record(kind::STDOUT, b"", 255),
        record(kind::END, &[0; 8], 255),
    ]
    .concat();
    let responder = says(padded);
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    for _ in 0..3 {
        client.send(&get("/x.php"));
        assert_page(client.read_reply(Body::Framed));
    }
    assert_eq!(responder.connections(), 1);
}

#[test]
fn errors_go_to_the_log_escaped_and_capped_and_not_to_the_client() {
    let flood: Vec<u8> = (0..500)
        .flat_map(|line| record(kind::STDERR, format!("flood {line}\n").as_bytes(), 0))
        .collect();
    let said = [
        record(kind::STDERR, b"PHP Warning: \x1b[31mred\nsecond ", 3),
        stdout(PAGE),
        record(kind::STDERR, b"line\n", 0),
        flood,
        end(0),
    ]
    .concat();
    let responder = says(said);
    let gateway = gateway(&responder);
    assert_page(gateway.ask(&get("/x.php")));
    gateway.wait_for_message("second line");
    gateway.wait_for_message("flood 0");
    gateway.wait_for_message("was cut");
    let log = gateway.stderr();
    assert!(!log.contains('\x1b'), "{log}");
    assert!(!log.contains("flood 499"));
}

#[test]
fn who_leaves_with_the_whole_reply_has_given_up_nothing() {
    let responder = FastCgiResponder::start(|call| match call.nth {
        0 => vec![
            Step::Send(stdout(b"Content-Length: 5\r\n\r\nhello")),
            Step::Drip(end(0), 16, Duration::from_millis(500)),
        ],
        _ => vec![Step::Send(printed(PAGE))],
    });
    let logged = "access = \"{dir}/access.log\"\nformat = \"json\"";
    let config = CONFIG.replace("access = \"\"", logged);
    let gateway = builder_of(&config, &responder, "", 8).start();
    assert_page(gateway.ask(&get("/x.php")));
    let log = gateway.directory().path().join("access.log");
    let record = eventually(PATIENCE, "the access record", || {
        let text = std::fs::read_to_string(&log).ok()?;
        let mut ended = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        ended
            .find(|line| line.contains("app.test"))
            .map(str::to_owned)
    });
    assert!(record.contains("\"reason\":null"), "{record}");
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.connections(), 1);
}

/// How long a kept connection is idle before it counts as one that its server keeps too.
const SETTLED: Duration = Duration::from_secs(1);

/// How long a connection is kept that nothing is asked on. Where a machine stood still for as long,
/// another may have taken its place.
const KEPT: Duration = Duration::from_secs(5);

fn let_settle() {
    let begun = Instant::now();
    eventually(PATIENCE, "a while to pass", || {
        (begun.elapsed() > SETTLED + Duration::from_millis(200)).then_some(())
    });
}

#[test]
fn a_kept_connection_that_has_closed_is_replaced_where_that_is_safe() {
    // Answers once a connection and then hangs up without a word.
    let responder = FastCgiResponder::start(|call| match call.nth {
        0 => vec![Step::Send(printed(PAGE))],
        _ => vec![Step::Close],
    });
    let gateway = gateway(&responder);
    for _ in 0..3 {
        assert_page(gateway.ask(&get("/x.php")));
    }
    let begun = Instant::now();
    let_settle();
    let answer = reply(gateway.ask(&post("must not happen twice")));
    assert!(answer.status == 502 || begun.elapsed() >= KEPT);
    let calls = responder.take_calls();
    let posts = calls.iter().filter(|call| !call.stdin.is_empty());
    assert_eq!(posts.count(), 1);
}

#[test]
fn what_must_not_happen_twice_is_not_sent_where_the_server_might_be_closing() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let begun = Instant::now();
    assert_page(gateway.ask(&get("/x.php")));
    assert_page(gateway.ask(&post("once")));
    let nth = responder.take_calls().last().map(|call| call.nth);
    // On a machine that stood still meanwhile, the connection has been idle for long enough.
    assert!(nth == Some(0) || begun.elapsed() >= SETTLED / 2);
}

#[test]
fn a_connection_that_is_kept_by_both_carries_everything() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let begun = Instant::now();
    assert_page(gateway.ask(&get("/x.php")));
    assert_page(gateway.ask(&get("/x.php")));
    let_settle();
    assert_page(gateway.ask(&post("a body")));
    assert!(responder.connections() == 1 || begun.elapsed() >= KEPT);
}

#[test]
fn without_keepalive_the_responder_is_asked_to_close() {
    let responder = FastCgiResponder::start(|_| vec![Step::Send(printed(PAGE)), Step::Close]);
    let gateway = builder_of(CONFIG, &responder, "", 0).start();
    for _ in 0..3 {
        assert_page(gateway.ask(&get("/x.php")));
        assert!(!responder.next_call().keep);
    }
    assert_eq!(responder.connections(), 3);
}

#[test]
fn who_leaves_has_the_connection_closed() {
    let responder = FastCgiResponder::start(|_| vec![Step::Idle(Duration::from_secs(60))]);
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    client.send(&get("/x.php"));
    drop(responder.next_call());
    assert_eq!(responder.open_connections(), 1);
    drop(client);
    eventually(PATIENCE, "the connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
}

#[test]
fn who_only_stops_sending_is_answered_unless_that_is_leaving() {
    for (keys, is_answered) in [("", true), ("abort_on_close = true", false)] {
        let responder = FastCgiResponder::start(|_| {
            vec![
                Step::Idle(Duration::from_secs(2)),
                Step::Send(printed(PAGE)),
            ]
        });
        let gateway = builder(&responder, keys).start();
        let mut client = gateway.client();
        client.send(&get("/x.php"));
        client.finish_sending();
        match is_answered {
            true => assert_page(client.read_reply(Body::Framed)),
            false => assert_eq!(client.read_reply(Body::Framed), Outcome::Eof),
        }
    }
}

#[test]
fn a_slow_reader_does_not_hold_the_responder() {
    /// More than sockets hold.
    const BYTES: usize = 24 << 20;
    let large = printed([PAGE, &vec![b'x'; BYTES]].concat());
    let responder = FastCgiResponder::start(move |_| vec![Step::Send(large.clone()), Step::Close]);
    let gateway = builder_of(CONFIG, &responder, "", 0).start();
    let mut slow = RawClient::connect_narrow(gateway.address()).with_deadline(LONG);
    slow.send(&get("/x.php"));
    drop(responder.next_call());
    // The responder gets rid of its reply although nobody has read it.
    eventually(LONG, "the responder to be free", || {
        (responder.open_connections() == 0).then_some(())
    });
    let answer = reply(slow.read_reply(Body::Framed));
    assert!(answer.complete && answer.body.len() == BYTES + 5);
}

#[test]
fn a_queue_that_is_full_is_503() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let directory = testkit::TempDir::new();
    let path = directory.path().join("full.sock");
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&path, mode).unwrap();
    // One may wait where none should.
    let waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", format!("unix:{}", path.display()))
        .with("keys", "")
        .with("silence", "30s")
        .with("keepalive", 8);
    builder.directory().write("site/x.php", "");
    let gateway = builder.start();
    let answer = reply(gateway.ask(&get("/x.php")));
    assert_eq!(
        (answer.status, answer.head.field("Retry-After")),
        (503, Some("1"))
    );
    gateway.wait_for_message("upstream_queue_full");
    drop(waiting);
}

#[test]
fn a_reload_without_a_server_gives_its_connections_up() {
    let responder = says(printed(PAGE));
    let mut gateway = gateway(&responder);
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.open_connections(), 1);
    // An exchange of the first generation goes on.
    let mut slow = gateway.client();
    let request = post("abc");
    slow.send(&request[..request.len() - 1]);
    gateway.reload(&CONFIG.replace("fails = 1000", "fails = 999"));
    eventually(PATIENCE, "the idle connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
    slow.send(b"c");
    assert_page(slow.read_reply(Body::Framed));
    assert_page(gateway.ask(&get("/x.php")));
}

#[test]
fn a_long_reply_streams_behind_the_cap() {
    const BYTES: usize = 8 << 20;
    let large = printed([PAGE, &vec![b'x'; BYTES]].concat());
    let responder = says(large);
    let gateway = builder(&responder, r#"buffer_reply = "64KiB""#).start();
    let mut slow = RawClient::connect_narrow(gateway.address()).with_deadline(LONG);
    slow.send(&get("/x.php"));
    let answer = reply(slow.read_reply(Body::Framed));
    assert!(answer.complete && answer.body.len() == BYTES + 5);
}
