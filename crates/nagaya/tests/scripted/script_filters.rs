//! Scripts that see replies before the client does: heads and bodies, of every handler.

use testkit::client::reply;
use testkit::fastcgi::{FastCgiResponder, printed};
use testkit::gateway::Builder;
use testkit::{Gateway, PATIENCE, Reply, ScriptedUpstream, Step, eventually};

use crate::fixtures::coded;

const CONFIG: &str = r#"
workers = 1
[scripts]
cpu = "1s"
body_filter_bytes = "64KiB"
header_filter = { code = "Nginx::Request.new.headers_out['X-Order'] = 'process'" }
[upstreams.app]
servers = ["{app}"]
[[sites]]
hosts = ["app.test"]
root = "{dir}/www"
scripts = { rewrite = { code = """
request = Nginx::Request.new
request.method = 'HEAD' if request.uri == '/app/head'
""" }, header_filter = { code = """
request = Nginx::Request.new
request.headers_out['X-Order'] = request.headers_out['X-Order'] + ' site'
request.headers_out.delete 'X-Secret'
raise 'no head' if request.uri.include?('/raise-head')
Nginx.return 203 if request.uri.include?('/status')
""" }, body_filter = { code = """
filter = Nginx::Filter.new
raise 'no body' if Nginx::Request.new.uri.include?('/raise-body')
filter.body = filter.body.gsub('secret', '******') unless Nginx::Request.new.uri.include?('/same')
""" } }
  [[sites.rules]]
  match = { path = "/app/*" }
  handler = { proxy = "app" }
  [[sites.rules]]
  match = { path = "/respond*" }
  handler = { respond = { body = "a secret reply" } }
  [[sites.rules]]
  match = { path = "/redirect" }
  handler = { redirect = "http://a.test/" }
  [[sites.rules]]
  match = { path = "/script" }
  handler = { script = { code = "Nginx.rputs 'a secret script'" } }
  [[sites.rules]]
  match = { path = "/program/*" }
  handler = { fastcgi = "{program}" }
"#;

/// A gateway before an upstream, and where a program listens.
fn builder_with(upstream: &ScriptedUpstream, program: impl ToString) -> Builder {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("app", upstream.address())
        .with("program", program);
    let directory = builder.directory();
    std::fs::create_dir(directory.path().join("www")).expect("a fresh directory");
    std::fs::create_dir(directory.path().join("www/program")).expect("a fresh directory");
    directory.write("www/program/page.html", "");
    directory.write("www/page.html", "a secret page");
    directory.write("www/same.html", "a secret page");
    directory.write("www/long.html", "a secret ".repeat(1_000));
    directory.write("www/large.html", "a secret ".repeat(100_000));
    builder
}

fn builder(upstream: &ScriptedUpstream) -> Builder {
    builder_with(upstream, "127.0.0.1:1")
}

/// An upstream that says what the path asks for.
fn upstream() -> ScriptedUpstream {
    ScriptedUpstream::start(|seen| {
        let chunked = "HTTP/1.1 200 OK\r\nX-Secret: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let path = seen.head.line.split(' ').nth(1).unwrap_or_default();
        match path {
            "/app/chunked" => vec![Step::Send(
                format!("{chunked}8\r\na secret\r\n6\r\n reply\r\n0\r\n\r\n").into(),
            )],
            "/app/endless" => {
                let chunk = format!("2000\r\n{}\r\n", "secret 8".repeat(1_024));
                vec![Step::Send(
                    format!("{chunked}{}0\r\n\r\n", chunk.repeat(20)).into(),
                )]
            }
            "/app/tagged" => vec![Step::Send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\nETag: \"a\"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nAccept-Ranges: bytes\r\nX-Secret: 1\r\n\r\na secret reply".to_vec(),
            )],
            "/app/coded" => vec![Step::Send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nContent-Encoding: br\r\n\r\nsecret".to_vec(),
            )],
            "/app/long" => {
                let body = "a secret ".repeat(1_000);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"a\"\r\nContent-Length: 9000\r\n\r\n";
                vec![Step::Send((head.to_owned() + &body).into())]
            }
            "/app/cut" => vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na secret".to_vec()),
                Step::Close,
            ],
            "/app/part" => vec![Step::Send(
                b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-5/9\r\nContent-Length: 6\r\n\r\nsecret".to_vec(),
            )],
            "/app/none/status" => vec![Step::Send(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())],
            "/app/head" => vec![Step::Send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n".to_vec(),
            )],
            _ => vec![Step::reply(200, "a secret reply")],
        }
    })
}

fn ask(gateway: &Gateway, method: &str, path: &str, fields: &str) -> Reply {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n");
    reply(gateway.ask(request.as_bytes()))
}

fn get(gateway: &Gateway, path: &str) -> Reply {
    ask(gateway, "GET", path, "")
}

#[test]
fn every_handlers_reply_is_seen_by_the_filters_of_all_levels() {
    let upstream = upstream();
    let program = FastCgiResponder::start(|call| {
        assert_eq!(call.param("HTTP_ACCEPT_ENCODING"), None);
        let page = "Content-Type: text/plain\r\nX-Secret: 1\r\n\r\na secret program";
        vec![Step::Send(printed(page))]
    });
    let gateway = builder_with(&upstream, program.address()).start();
    for (path, status, body) in [
        ("/page.html", 200, "a ****** page"),
        ("/app/plain", 200, "a ****** reply"),
        ("/app/chunked", 200, "a ****** reply"),
        ("/respond", 200, "a ****** reply"),
        ("/program/page.html", 200, "a ****** program"),
        ("/script", 200, "a ****** script"),
        ("/redirect", 302, ""),
        ("/respond/status", 203, "a ****** reply"),
        ("/absent", 404, ""),
        // The status says that there is a body, and there is none.
        ("/app/none/status", 203, ""),
        ("/app/head", 200, ""),
    ] {
        let reply = get(&gateway, path);
        let said = reply.text();
        assert_eq!(reply.status, status, "{path}: {said}\n{}", gateway.stderr());
        assert!(body.is_empty() || said == body, "{path}: {said}");
        let order = reply.head.field("X-Order");
        assert_eq!(order, Some("process site"), "{path}: {reply:?}");
        assert_eq!(reply.head.field("X-Secret"), None, "{path}");
        let length = reply.body.len().to_string();
        assert_eq!(reply.head.field("Content-Length"), Some(&*length), "{path}");
        assert!(reply.complete, "{path}");
    }
}

#[test]
fn a_client_that_asks_for_parts_gets_the_whole_as_filtered() {
    let upstream = upstream();
    let gateway = builder(&upstream).start();
    for fields in [
        "Range: bytes=0-\r\n",
        "Range: bytes=2-7\r\n",
        "Range: bytes=0-3,5-6\r\nIf-Range: Wed, 21 Oct 2099 07:28:00 GMT\r\n",
    ] {
        let reply = ask(&gateway, "GET", "/page.html", fields);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, "a ****** page")
        );
        assert_eq!(reply.head.field("Accept-Ranges"), None, "{fields}");
    }
}

#[test]
fn what_speaks_of_other_bytes_is_forgotten_and_what_is_the_same_stays() {
    let upstream = upstream();
    let gateway = builder(&upstream).start();
    let tagged = get(&gateway, "/app/tagged");
    assert_eq!(tagged.text(), "a ****** reply");
    assert_eq!(tagged.head.field("ETag"), Some("W/\"a\""));
    assert_eq!(tagged.head.field("Last-Modified"), None);
    assert_eq!(tagged.head.field("Accept-Ranges"), None);
    let same = get(&gateway, "/same.html");
    assert_eq!(same.text(), "a secret page");
    let tag = same.head.field("ETag").unwrap_or_default();
    assert!(tag.starts_with('"'), "{same:?}");
    assert!(same.head.field("Last-Modified").is_some(), "{same:?}");
}

#[test]
fn what_cannot_be_filtered_passes_as_it_came() {
    let upstream = upstream();
    let gateway = builder(&upstream).start();
    for (path, fields, status, body) in [
        ("/app/coded", "", 200, "secret"),
        ("/app/part", "Range: bytes=0-5\r\n", 206, "secret"),
    ] {
        let reply = ask(&gateway, "GET", path, fields);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (status, body),
            "{path}"
        );
        assert_eq!(reply.head.field("X-Order"), Some("process site"));
    }
    for _ in 0..2 {
        let endless = get(&gateway, "/app/endless");
        assert_eq!(endless.body, "secret 8".repeat(20 * 1_024).as_bytes());
        let large = get(&gateway, "/large.html");
        assert_eq!(large.body.len(), 900_000);
        assert!(
            large.body.starts_with(b"a secret a secret"),
            "{:?}",
            large.head
        );
    }
    // What a process says later is written later.
    assert_eq!(get(&gateway, "/respond/raise-head").status, 500);
    gateway.wait_for_message("no head (RuntimeError)");
    let said = gateway.stderr();
    assert_eq!(said.matches("passes unfiltered").count(), 1, "{said}");
    let head = ask(&gateway, "HEAD", "/page.html", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.head.field("Content-Length"), None, "{head:?}");
    assert_eq!(head.head.field("X-Order"), Some("process site"));
}

#[test]
fn whoever_answers_is_asked_for_the_body_as_it_is_and_files_are_compressed_afterwards() {
    let upstream = upstream();
    let gateway = builder(&upstream).start();
    let accept = "Accept-Encoding: gzip\r\n";
    ask(&gateway, "GET", "/app/plain", accept);
    assert_eq!(upstream.next_seen().head.field("Accept-Encoding"), None);
    let long = ask(&gateway, "GET", "/long.html", accept);
    assert_eq!(
        long.head.field("Content-Encoding"),
        Some("gzip"),
        "{:?}",
        long.head
    );
    assert!(
        long.body.starts_with(b"\x1f\x8b") && long.body.len() < 1_000,
        "{}",
        long.body.len()
    );
    let without = get(&gateway, "/long.html");
    assert_eq!(without.text(), "a ****** ".repeat(1_000));
    // A back end's page goes the same way, and is known by the tag that it has left with.
    for coding in ["gzip", "zstd"] {
        let accept = format!("Accept-Encoding: {coding}\r\n");
        let long = ask(&gateway, "GET", "/app/long", &accept);
        assert_eq!(long.head.field("Content-Encoding"), Some(coding));
        assert_eq!(long.head.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(long.head.field("ETag"), Some("W/\"a\""));
        assert_eq!(coded::text(&long), "a ****** ".repeat(1_000));
    }
    let known = ask(&gateway, "GET", "/app/long", "If-None-Match: W/\"a\"\r\n");
    assert_eq!((known.status, known.body.len()), (304, 0));
}

#[test]
fn a_filter_that_fails_denies_the_reply() {
    let upstream = upstream();
    let gateway = builder(&upstream).start();
    for path in [
        "/respond/raise-head",
        "/app/raise-head",
        "/respond/raise-body",
        "/app/raise-body",
    ] {
        let reply = get(&gateway, path);
        assert_eq!(reply.status, 500, "{path}");
        assert!(!reply.text().contains("secret"), "{path}");
    }
    let cut = get(&gateway, "/app/cut");
    assert_eq!(cut.status, 502, "nothing of it was sent yet: {cut:?}");
    eventually(PATIENCE, "both reasons", || {
        let said = gateway.stderr();
        (said.contains("no head (RuntimeError)") && said.contains("no body (RuntimeError)"))
            .then_some(())
    });
    assert_eq!(get(&gateway, "/respond").text(), "a ****** reply");
}
