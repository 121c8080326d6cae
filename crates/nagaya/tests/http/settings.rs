//! What sites and rules say in one word, seen from outside.

use testkit::client::reply;
use testkit::{Gateway, Reply, ScriptedUpstream, Step};

const BEGIN: &str = r#"
workers = 1
"#;

fn start(text: &str) -> Gateway {
    start_with("", text)
}

/// With `keys` of the top level before.
fn start_with(keys: &str, text: &str) -> Gateway {
    let text = format!("{keys}{BEGIN}{text}");
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &text);
    for (name, content) in [("a.css", "css"), ("b.png", "png"), ("c.html", "html")] {
        builder.directory().write(&format!("www/{name}"), content);
    }
    builder.start()
}

#[test]
fn denied_to_all_is_denied_to_whoever_an_inner_rule_allows() {
    let gateway = start(
        r#"
        [[sites]]
        hosts = ["*"]
        root = "{dir}/www"
          [[sites.rules]]
          match = { path = ["*.png", "/closed/*"] }
          deny = "all"
          [[sites.rules]]
          match = { path = "/closed/open" }
          allow = "all"
          [[sites.rules]]
          match = { path = "/a.css" }
          allow = "all"
        "#,
    );
    for (path, status) in [
        ("/b.png", 403),
        ("/closed/open", 403),
        ("/a.css", 200),
        ("/c.html", 200),
    ] {
        assert_eq!(gateway.get("a", path).status, status, "{path}");
    }
}

#[test]
fn one_rule_matches_any_of_several_paths_or_files() {
    let gateway = start(
        r#"
        [[sites]]
        hosts = ["*"]
        root = "{dir}/www"
          [[sites.rules]]
          match = { path = ["/health", "/up/*", "*.txt"], method = ["GET", "HEAD"] }
          handler = { respond = { status = 200, body = "path" } }
          [[sites.rules]]
          match = { file = ["*.css", "b.png"] }
          handler = { respond = { status = 200, body = "file" } }
          [[sites.rules]]
          match = { not = { path = ["/c*", "/d*"] } }
          handler = { respond = { status = 200, body = "neither" } }
          [[sites.rules]]
          handler = { respond = { status = 200, body = "rest" } }
        "#,
    );
    for (path, expected) in [
        ("/health", "path"),
        ("/healthy", "neither"),
        ("/up/1", "path"),
        ("/robots.txt", "path"),
        ("/a.css", "file"),
        ("/b.png", "file"),
        ("/c.html", "rest"),
        ("/dx", "rest"),
        ("/missing.css", "neither"),
    ] {
        let body = gateway.get("a", path).body;
        assert_eq!(String::from_utf8_lossy(&body), expected, "{path}");
    }
}

/// The value of a field of the reply, joined where there are several.
fn field(reply: &Reply, name: &str) -> String {
    let head = String::from_utf8(reply.head.bytes.clone()).unwrap();
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let values = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    values
        .map(|(_, value)| value)
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn a_default_is_set_unless_the_reply_has_that_field() {
    let upstream = ScriptedUpstream::start(|_| {
        let reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Kind: program\r\n\r\n";
        vec![Step::ReadBody, Step::Send(reply.into())]
    });
    let keys = r#"reply_headers = { default = { X-Kind = "process", X-Level = "process" } }"#;
    let text = r#"
        [[sites]]
        hosts = ["*"]
        root = "{dir}/www"
        reply_headers = { default = { X-Kind = "site", X-Level = "site", X-Host = "$host" } }
          [[sites.rules]]
          match = { path = "/bare" }
          reply_headers = { remove = ["X-Kind"] }
          [[sites.rules]]
          match = { path = "/inner" }
          reply_headers = { default = { X-Level = "rule" }, set = { X-Host = "set" } }
          [[sites.rules]]
          match = { path = ["/bare", "/inner", "/program"] }
          request_headers = { default = { X-Asked = "default" } }
          handler = { proxy = "http://{upstream}" }
    "#;
    let gateway = start_with(
        keys,
        &text.replace("{upstream}", &upstream.address().to_string()),
    );
    for (path, kind, level, host) in [
        ("/a.css", "site", "site", "a"),
        ("/program", "program", "site", "a"),
        ("/bare", "site", "site", "a"),
        ("/inner", "program", "rule", "set"),
    ] {
        let reply = gateway.get("a", path);
        assert_eq!(reply.status, 200, "{path}");
        let found = ["X-Kind", "X-Level", "X-Host"].map(|name| field(&reply, name));
        assert_eq!(found, [kind, level, host], "{path}");
    }
    let asked = "GET /program HTTP/1.1\r\nHost: a\r\nX-Asked: client\r\n\r\n";
    assert_eq!(reply(gateway.ask(asked.as_bytes())).status, 200);
    let seen = upstream.take_seen();
    let told: Vec<_> = seen
        .iter()
        .filter_map(|seen| seen.head.field("x-asked"))
        .collect();
    assert_eq!(told, ["default", "default", "default", "client"]);
}

const DATE: &str = "Thu, 01 Jan 1970 00:00:01 GMT";

#[test]
fn replies_say_how_long_they_may_be_kept() {
    let upstream = ScriptedUpstream::start(|seen| {
        let fields = match seen.head.line.split(' ').nth(1) {
            Some("/own") => "Content-Type: text/html\r\nCache-Control: private\r\n",
            Some("/dated") => "Content-Type: text/html\r\nExpires: 0\r\n",
            _ => "Content-Type: Text/HTML; charset=utf-8\r\n",
        };
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
        vec![Step::ReadBody, Step::Send(reply.into())]
    });
    let gateway = start(
        &r#"
        [[sites]]
        hosts = ["*"]
        root = "{dir}/www"
        expires = { "text/css" = "2h", "image/*" = "max", "text/html" = "epoch" }
          [[sites.rules]]
          match = { path = "*/c.html" }
          expires = "90s"
          reply_headers = { add = { Cache-Control = "public" } }
          [[sites.rules]]
          match = { path = "/off" }
          expires = "off"
          handler = { proxy = "http://{upstream}" }
          [[sites.rules]]
          match = { path = ["/own", "/dated", "/program"] }
          handler = { proxy = "http://{upstream}" }
          [[sites.rules]]
          match = { path = "/moved" }
          expires = "1m"
          handler = { redirect = "/a.css", status = 302 }
          [[sites.rules]]
          match = { path = "/text" }
          handler = { respond = { status = 200, body = "x" } }
        "#
        .replace("{upstream}", &upstream.address().to_string()),
    );
    for (path, status, control, expires) in [
        ("/a.css", 200, "max-age=7200", Some("GMT")),
        ("/b.png", 200, "max-age=315360000", Some("GMT")),
        ("/c.html", 200, "max-age=90, public", Some("GMT")),
        ("/none/c.html", 404, "public", None),
        ("/program", 200, "no-cache", Some(DATE)),
        ("/own", 200, "private", None),
        ("/dated", 200, "", Some("0")),
        ("/off", 200, "", None),
        ("/moved", 302, "max-age=60", Some("GMT")),
        ("/text", 200, "", None),
    ] {
        let reply = gateway.get("a", path);
        assert_eq!(
            (reply.status, field(&reply, "Cache-Control").as_str()),
            (status, control),
            "{path}"
        );
        let dated = field(&reply, "Expires");
        match expires {
            Some(end) => assert!(dated.ends_with(end), "{path}: {dated}"),
            None => assert_eq!(dated, "", "{path}"),
        }
    }
    check_files_kept_in_part(&gateway);
}

/// What is not modified, and parts, may be kept as long, by the type their file has.
fn check_files_kept_in_part(gateway: &Gateway) {
    let etag = field(&gateway.get("a", "/a.css"), "ETag");
    for (asked, status) in [
        (format!("If-None-Match: {etag}"), 304),
        ("Range: bytes=0-0".to_owned(), 206),
        ("Range: bytes=0-0,-1".to_owned(), 206),
    ] {
        let again = format!("GET /a.css HTTP/1.1\r\nHost: a\r\n{asked}\r\n\r\n");
        let again = reply(gateway.ask(again.as_bytes()));
        let control = field(&again, "Cache-Control");
        assert_eq!(
            (again.status, &*control),
            (status, "max-age=7200"),
            "{asked}"
        );
    }
}
