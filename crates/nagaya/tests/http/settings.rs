//! What sites and rules say in one word, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use testkit::client::reply;
use testkit::{Gateway, Reply};

const BEGIN: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
"#;

fn start(text: &str) -> Gateway {
    let text = format!("{BEGIN}{text}");
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &text);
    for (name, content) in [("a.css", "css"), ("b.png", "png"), ("c.html", "html")] {
        builder.directory().write(&format!("www/{name}"), content);
    }
    builder.start()
}

fn get(gateway: &Gateway, path: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    reply(gateway.ask(request.as_bytes()))
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
        let body = get(&gateway, path).body;
        assert_eq!(String::from_utf8_lossy(&body), expected, "{path}");
    }
}
