//! Replies of back ends and our own, compressed on their way, and what is told of them.

use std::time::Duration;

use crate::fixtures::coded::{page, read_until, text};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, Reply, ScriptedUpstream, Step, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
access = "{dir}/access.log"
format = "json"
[[sites]]
hosts = ["app.test"]
compress = { level = 1 }
  [[sites.rules]]
  match = { path = "/secret/*" }
  compress = { programs = false }
  [[sites.rules]]
  match = { path = "/named/*" }
  compress = { types = ["image/png"], min_bytes = 10 }
  [[sites.rules]]
  match = { path = "/fixed" }
  reply_headers = { set = { ETag = '"fixed"' } }
  handler = { respond = { body = "{fixed}" } }
  [[sites.rules]]
  handler = { proxy = "http://{app}" }
"#;

const GZIP: &str = "Accept-Encoding: gzip\r\n";

/// A reply with a body and its length.
fn sized(status: &str, fields: &str, body: &str) -> Step {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n");
    Step::Send((head + body).into())
}

fn html(fields: &str, body: &str) -> Step {
    let fields = format!("Content-Type: text/html; charset=utf-8\r\n{fields}");
    sized("200 OK", &fields, body)
}

/// A page in chunks, each of some bytes.
fn chunked(body: &str) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for chunk in body.as_bytes().chunks(3_000) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A back end that answers as the path's last part says.
fn upstream() -> ScriptedUpstream {
    ScriptedUpstream::start(|seen| {
        let path = seen.head.line.split(' ').nth(1).unwrap_or_default();
        let is_head = seen.head.line.starts_with("HEAD ");
        let last = path.rsplit('/').next().unwrap_or_default();
        let steps = match last {
            "chunked" => Step::Send([chunked(&page()), b"0\r\n\r\n".to_vec()].concat()),
            "cut" => return vec![Step::Send(chunked(&page())), Step::Close],
            "begun" => {
                let begun = chunked(&format!("{}first", page()));
                let more = chunked("second");
                let at = more.windows(4).position(|it| it == b"\r\n\r\n");
                let more = more[at.expect("a head") + 4..].to_vec();
                return vec![
                    Step::Send(begun),
                    Step::Idle(Duration::from_millis(300)),
                    Step::Send(more),
                    Step::Idle(PATIENCE * 4),
                ];
            }
            "dripped" => {
                let whole = [chunked(&page()), b"0\r\n\r\n".to_vec()].concat();
                return vec![Step::Drip(whole, 20_000, Duration::from_millis(20))];
            }
            "large" => html("", &page().repeat(200)),
            "short" => html("", "short"),
            "tagged" => html(
                "ETag: \"a\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\nContent-MD5: x\r\n",
                &page(),
            ),
            "coded" => html("Content-Encoding: br\r\n", &page()),
            "kept" => html("Cache-Control: public, no-transform\r\n", &page()),
            "events" => sized("200 OK", "Content-Type: text/event-stream\r\n", &page()),
            "picture" => sized("200 OK", "Content-Type: image/png\r\n", &page()),
            "missing" => sized("404 Not Found", "Content-Type: text/html\r\n", &page()),
            "part" => sized(
                "206 Partial Content",
                "Content-Type: text/html\r\nContent-Range: bytes 0-5/9\r\nAccept-Ranges: bytes\r\n",
                &page(),
            ),
            _ => html("", &page()),
        };
        match (is_head, steps) {
            (true, Step::Send(bytes)) => {
                let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
                vec![Step::Send(bytes[..end.expect("a head") + 4].to_vec())]
            }
            (_, steps) => vec![steps],
        }
    })
}

fn gateway(upstream: &ScriptedUpstream) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("app", upstream.address())
        .with("fixed", "fixed text ".repeat(1_000))
        .start()
}

fn request(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n").into_bytes()
}

#[track_caller]
fn get(gateway: &Gateway, path: &str, fields: &str) -> Reply {
    let mut client = gateway.client().with_deadline(PATIENCE);
    reply(client.ask(&request(&format!("GET {path}"), fields)))
}

#[track_caller]
fn check_coded(reply: &Reply, coding: &str) {
    let head = &reply.head;
    assert_eq!(head.field("Content-Encoding"), Some(coding), "{head:?}");
    assert_eq!(head.field("Vary"), Some("Accept-Encoding"), "{head:?}");
    assert_eq!(head.field("Content-Length"), None, "{head:?}");
}

#[test]
fn a_page_arrives_whole_in_the_coding_its_client_wants_most() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let mut client = gateway.client().with_deadline(PATIENCE);
    for path in ["/page", "/chunked", "/missing", "/dripped"] {
        for (accept, coding) in [
            ("gzip, deflate", "gzip"),
            ("gzip, deflate, br, zstd", "zstd"),
        ] {
            let fields = format!("Accept-Encoding: {accept}\r\n");
            // All over one connection: the end of each is seen.
            client.send(&request(&format!("GET {path}"), &fields));
            let answer = reply(client.read_reply(Body::Framed));
            assert_eq!(answer.status, if path == "/missing" { 404 } else { 200 });
            check_coded(&answer, coding);
            assert!(text(&answer) == page(), "{path} {coding}");
            assert!(answer.body.len() < page().len() / 2, "{path} {coding}");
        }
    }
    let large = get(&gateway, "/large", "Accept-Encoding: zstd\r\n");
    assert!(text(&large) == page().repeat(200));
}

#[test]
fn who_takes_no_coding_is_told_that_there_is_one() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    for fields in [
        "",
        "Accept-Encoding: identity\r\n",
        "Accept-Encoding: br\r\n",
    ] {
        let answer = get(&gateway, "/tagged", fields);
        let head = &answer.head;
        assert_eq!(head.field("Vary"), Some("Cookie, Accept-Encoding"));
        assert_eq!(head.field("Content-Encoding"), None);
        assert_eq!(head.field("ETag"), Some("\"a\""));
        assert_eq!(head.field("Accept-Ranges"), Some("bytes"));
        assert_eq!(
            head.field("Content-Length"),
            Some(&*page().len().to_string())
        );
        assert!(answer.text() == page());
    }
}

#[test]
fn what_may_not_be_compressed_is_passed_on_as_it_came() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    for path in [
        "/short",
        "/coded",
        "/kept",
        "/events",
        "/picture",
        "/part",
        "/secret/page",
        "/named/page",
    ] {
        let answer = get(&gateway, path, GZIP);
        let coding = (path == "/coded").then_some("br");
        assert_eq!(answer.head.field("Content-Encoding"), coding, "{path}");
        assert_eq!(answer.head.field("Vary"), None, "{path}");
        assert_eq!(answer.head.count("Content-Length"), 1, "{path}");
        let ranges = (path == "/part").then_some("bytes");
        assert_eq!(answer.head.field("Accept-Ranges"), ranges, "{path}");
        let expected = if path == "/short" { "short" } else { &page() };
        assert!(answer.text() == *expected, "{path}");
    }
    check_coded(&get(&gateway, "/named/picture", GZIP), "gzip");
}

#[test]
fn a_tag_made_weak_here_is_known_when_it_comes_back() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let first = get(&gateway, "/tagged", GZIP);
    assert_eq!(first.head.field("ETag"), Some("W/\"a\""));
    assert_eq!(first.head.field("Accept-Ranges"), None);
    assert_eq!(first.head.field("Content-MD5"), None);
    assert_eq!(first.head.field("Vary"), Some("Cookie, Accept-Encoding"));
    let mut client = gateway.client().with_deadline(PATIENCE);
    for method in ["GET", "HEAD"] {
        let asked = format!("{GZIP}If-None-Match: W/\"a\"\r\n");
        client.send(&request(&format!("{method} /tagged"), &asked));
        let known = reply(client.read_reply(Body::Framed));
        assert_eq!((known.status, known.body.len()), (304, 0), "{method}");
        assert_eq!(known.head.field("ETag"), Some("W/\"a\""));
        assert_eq!(known.head.field("Vary"), Some("Cookie, Accept-Encoding"));
        for name in [
            "Content-Type",
            "Content-Length",
            "Content-Encoding",
            "Transfer-Encoding",
        ] {
            assert_eq!(known.head.field(name), None, "{name}");
        }
    }
    // The connections to client and back end go on, and other tags are others.
    client.send(&request(
        "GET /tagged",
        &format!("{GZIP}If-None-Match: \"b\"\r\n"),
    ));
    let other = reply(client.read_reply(Body::Framed));
    assert!(other.status == 200 && text(&other) == page());
    assert_eq!(upstream.connections(), 1);
    let post = "Content-Length: 0\r\nIf-None-Match: \"a\"\r\n";
    let posted = reply(gateway.ask(&request("POST /tagged", post)));
    assert_eq!(posted.status, 200, "a change is no question");
}

#[test]
fn our_own_text_goes_by_the_same_rules() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let answer = get(&gateway, "/fixed", GZIP);
    check_coded(&answer, "gzip");
    assert_eq!(text(&answer), "fixed text ".repeat(1_000));
    assert_eq!(answer.head.field("ETag"), Some("W/\"fixed\""));
    let known = get(&gateway, "/fixed", "If-None-Match: W/\"fixed\"\r\n");
    assert_eq!(known.status, 304);
}

#[test]
fn head_is_told_what_get_would_be() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let mut client = gateway.client().with_deadline(PATIENCE);
    for (path, fields) in [
        ("/page", GZIP),
        ("/chunked", GZIP),
        ("/tagged", GZIP),
        ("/tagged", ""),
        ("/short", GZIP),
        ("/fixed", GZIP),
    ] {
        client.send(&request(&format!("GET {path}"), fields));
        let got = reply(client.read_reply(Body::Framed));
        client.send(&request(&format!("HEAD {path}"), fields));
        let head = reply(client.read_reply(Body::Never));
        for name in [
            "Content-Encoding",
            "Vary",
            "ETag",
            "Content-Type",
            "Content-Length",
            "Accept-Ranges",
        ] {
            assert_eq!(head.head.field(name), got.head.field(name), "{path} {name}");
        }
    }
}

#[test]
fn a_client_of_http_1_0_gets_it_as_it_is() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let mut client = gateway.client().with_deadline(PATIENCE);
    let asked =
        format!("GET /page HTTP/1.0\r\nHost: app.test\r\nConnection: keep-alive\r\n{GZIP}\r\n");
    for _ in 0..2 {
        let answer = reply(client.ask(asked.as_bytes()));
        assert_eq!(answer.head.field("Content-Encoding"), None);
        assert_eq!(answer.head.field("Vary"), Some("Accept-Encoding"));
        assert!(answer.text() == page());
    }
}

#[test]
fn what_a_back_end_has_said_is_seen_while_it_thinks() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request("GET /begun", GZIP));
    read_until(&mut client, "first");
    let mut other = gateway.client().with_deadline(PATIENCE);
    other.send(&request("GET /begun", GZIP));
    read_until(&mut other, "firstsecond");
    // Both leave in the middle; the next one is served, and each has its record.
    drop((client, other));
    check_coded(&get(&gateway, "/page", GZIP), "gzip");
    let records = records(&gateway, 3);
    let left = records.matches("\"reason\":\"client_gone\"").count();
    assert_eq!(left, 2, "{records}");
}

/// The records of the site, once there are so many.
fn records(gateway: &Gateway, count: usize) -> String {
    let log = gateway.directory().path().join("access.log");
    eventually(PATIENCE, "records", || {
        let records = std::fs::read_to_string(&log).ok()?;
        let records = records.lines();
        let ours: Vec<_> = records.filter(|it| it.contains("app.test")).collect();
        (ours.len() == count).then(|| ours.join("\n"))
    })
}

#[test]
fn a_page_that_breaks_off_is_seen_to() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let answer = get(&gateway, "/cut", GZIP);
    assert!(answer.status == 200 && !answer.complete);
}

#[test]
fn the_record_counts_the_bytes_that_were_sent() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let sent = get(&gateway, "/chunked", GZIP).body.len();
    let record = records(&gateway, 1);
    assert!(
        record.contains(&format!("\"bytes\":{sent},")),
        "{sent}: {record}"
    );
}
