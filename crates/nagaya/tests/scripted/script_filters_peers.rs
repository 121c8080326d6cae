//! Filters over what real programs answer: php-fpm, nginx behind the gateway, CGI.

use crate::fixtures::programs::{program, set_mode};
use testkit::client::{Body, reply};
use testkit::php::Listen;
use testkit::{Gateway, PATIENCE, Peer, PhpFpm, Reply};

/// Fields of the reply are made of what the back end sent, so that a test sees both.
const CONFIG: &str = r#"
workers = 1
[scripts]
cpu = "1s"
body_filter_bytes = "64KiB"
[[sites]]
hosts = ["app.test"]
root = "{dir}/www"
scripts = { header_filter = { code = """
request = Nginx::Request.new
known = Nginx::Var.new
request.headers_out['X-Seen'] = [known.status, known.upstream_http_x_secret].join(' ')
request.headers_out.delete 'X-Secret'
Nginx.return 200 if request.uri.include?('bodiless')
""" }, body_filter = { code = """
filter = Nginx::Filter.new
filter.body = filter.body.gsub('secret', '******') + '!'
""" } }
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = "{php}" }
  [[sites.rules]]
  match = { path = "/nginx/*" }
  handler = { proxy = "http://{nginx}" }
  [[sites.rules]]
  match = { file = "*.cgi" }
  handler = { cgi = true }
"#;

/// A gateway before these, if they are there.
fn gateway(php: &str, nginx: &str, files: &[(&str, &str)]) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("php", php)
        .with("nginx", nginx);
    let directory = builder.directory().path().to_owned();
    std::fs::create_dir(directory.join("www")).expect("a fresh directory");
    // Programs and the server may run as other users.
    set_mode(&directory.join("www"), 0o755);
    for (name, text) in files {
        program(&directory, name, text);
    }
    builder.start()
}

fn ask(gateway: &Gateway, path: &str, fields: &str) -> Reply {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n").as_bytes());
    reply(client.read_reply(Body::Framed))
}

#[track_caller]
fn check(gateway: &Gateway, path: &str, status: u16, seen: &str, body: &str) {
    // As browsers ask: whoever answers must not compress what scripts are to see.
    let reply = ask(gateway, path, "Accept-Encoding: gzip\r\n");
    let said = String::from_utf8_lossy(&reply.body);
    assert_eq!(reply.status, status, "{path}: {said}\n{}", gateway.stderr());
    assert_eq!(said, body, "{path}");
    assert_eq!(reply.head.field("X-Seen"), Some(seen), "{path}: {reply:?}");
    assert_eq!(reply.head.field("X-Secret"), None, "{path}");
    let length = reply.body.len().to_string();
    assert_eq!(reply.head.field("Content-Length"), Some(&*length), "{path}");
    assert!(reply.complete, "{path}");
}

/// More than scripts are given.
const LARGE: usize = 100_000;

#[test]
fn pages_of_php_are_filtered() {
    let Some(php) = PhpFpm::start(Listen::Unix, 2, "") else {
        return;
    };
    let page = "<?php header('X-Secret: of php'); ini_set('zlib.output_compression', '1');";
    let large = format!("<?php header('X-Secret: of php'); echo str_repeat('secret', {LARGE});");
    let gateway = gateway(
        php.address(),
        "127.0.0.1:1",
        &[
            ("page.php", &format!("{page} echo 'a secret page';")),
            (
                "flushed.php",
                &format!("{page} echo 'a sec'; flush(); echo 'ret page';"),
            ),
            (
                "absent.php",
                "<?php http_response_code(404); echo 'no secret page';",
            ),
            ("bodiless.php", "<?php http_response_code(204);"),
            ("large.php", &large),
        ],
    );
    check(&gateway, "/page.php", 200, "200 of php", "a ****** page!");
    check(
        &gateway,
        "/flushed.php",
        200,
        "200 of php",
        "a ****** page!",
    );
    check(&gateway, "/absent.php", 404, "404", "no ****** page!");
    check(&gateway, "/bodiless.php", 200, "204", "!");
    let large = ask(&gateway, "/large.php", "");
    assert_eq!(large.body, "secret".repeat(LARGE).as_bytes(), "it passes");
    assert_eq!(large.head.field("X-Seen"), Some("200 of php"));
    gateway.wait_for_message("passes unfiltered");
}

const NGINX: &str = r#"
gzip on;
gzip_min_length 1;
gzip_types text/plain;
server {
  listen 127.0.0.1:{port};
  root {dir};
  default_type text/plain;
  add_header X-Secret "of nginx" always;
  location = /nginx/page { return 200 "a secret page"; }
  location = /nginx/bodiless { return 204; }
}
"#;

#[test]
fn replies_of_nginx_are_filtered() {
    let Some(nginx) = Peer::nginx(NGINX) else {
        return;
    };
    let files = nginx.directory().join("nginx");
    std::fs::create_dir(&files).expect("a fresh directory");
    std::fs::write(files.join("file.txt"), "a secret file").expect("a file");
    std::fs::write(files.join("large.txt"), "secret".repeat(LARGE)).expect("a file");
    let gateway = gateway("127.0.0.1:1", &nginx.address().to_string(), &[]);
    check(
        &gateway,
        "/nginx/page",
        200,
        "200 of nginx",
        "a ****** page!",
    );
    check(
        &gateway,
        "/nginx/file.txt",
        200,
        "200 of nginx",
        "a ****** file!",
    );
    check(&gateway, "/nginx/bodiless", 200, "204 of nginx", "!");
    let tag = ask(&gateway, "/nginx/file.txt", "").head;
    let tag = tag.field("ETag").unwrap_or_default().to_owned();
    assert!(tag.starts_with("W/"), "the bytes are others: {tag}");
    let known = ask(
        &gateway,
        "/nginx/file.txt",
        &format!("If-None-Match: {tag}\r\n"),
    );
    assert_eq!(known.status, 304, "{known:?}");
    let part = ask(&gateway, "/nginx/file.txt", "Range: bytes=2-7\r\n");
    assert_eq!((part.status, &*part.body), (200, &b"a ****** file!"[..]));
    let large = ask(&gateway, "/nginx/large.txt", "");
    assert_eq!(large.body, "secret".repeat(LARGE).as_bytes(), "it passes");
}

#[test]
fn what_programs_print_is_filtered() {
    let print = |head: &str, body: &str| format!("#!/bin/sh\nprintf '{head}\\n'\n{body}\n");
    let head = "Content-Type: text/plain\\nX-Secret: of a program\\n";
    let gateway = gateway(
        "127.0.0.1:1",
        "127.0.0.1:1",
        &[
            ("page.cgi", &print(head, "printf 'a secret page'")),
            (
                "slow.cgi",
                &print(head, "printf 'a sec'; sleep 0.1; printf 'ret page'"),
            ),
            (
                "status.cgi",
                &print(&format!("Status: 418\\n{head}"), "printf secret"),
            ),
            ("bodiless.cgi", &print(&format!("Status: 204\\n{head}"), "")),
            ("large.cgi", &print(head, "head -c 600000 /dev/zero")),
        ],
    );
    let seen = |status: u16| format!("{status} of a program");
    check(&gateway, "/page.cgi", 200, &seen(200), "a ****** page!");
    check(&gateway, "/slow.cgi", 200, &seen(200), "a ****** page!");
    check(&gateway, "/status.cgi", 418, &seen(418), "******!");
    check(&gateway, "/bodiless.cgi", 200, &seen(204), "!");
    let large = ask(&gateway, "/large.cgi", "");
    assert_eq!(large.body.len(), 600_000, "it passes");
}
