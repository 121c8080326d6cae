//! `.htaccess` files: what they keep closed, where they lead, and that they hold at once.

mod access;
mod changes;
mod order;
mod paths;
mod replies;
mod sections;
mod told;

use testkit::client::reply;
use testkit::{Gateway, Reply};

const CONFIG: &str = r#"
workers = 1
[[sites]]
hosts = ["a.test"]
root = "{dir}/site"
within = "{dir}"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { path = "/health" }
  handler = { respond = { body = "fine" } }
[[sites]]
hosts = ["tried.test"]
root = "{dir}/site"
try = ["$path", "$path.html", "$path/", "/front.txt"]
htaccess = { override = ["All"] }
[[sites]]
hosts = ["strict.test"]
root = "{dir}/site"
htaccess = { override = ["FileInfo"], unknown = "error" }
[[sites]]
hosts = ["memory.test"]
root = "{memory}"
htaccess = { override = ["All"] }
[[sites]]
hosts = ["kept.test"]
root = "{dir}/site"
slashes = "keep"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { path = "/closed/*" }
  deny = ["127.0.0.0/8"]
  [[sites.rules]]
  match = { path = "/empty/*" }
  handler = { respond = { body = "a rule" } }
[[sites]]
hosts = ["off.test"]
root = "{dir}/site"
"#;

/// A file system in memory, which everybody may write to.
const MEMORY: &str = "/dev/shm";

/// The site's files; each test writes its `.htaccess` files.
const FILES: [(&str, &str); 12] = [
    ("site/index.html", "start"),
    ("site/front.txt", "front"),
    ("site/plain.txt", "plain"),
    ("site/secret.html", "secret"),
    ("site/sub/page.txt", "page"),
    ("site/sub/first.txt", "first"),
    ("site/sub/deep/page.txt", "deep page"),
    ("site/closed/x.txt", "closed"),
    ("site/closed/open/x.txt", "open"),
    ("site/errors/404.html", "nothing here"),
    ("site/empty/deep/x.txt", "x"),
    ("users", "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
];

fn gateway(files: &[(&str, &str)]) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let builder = builder.with("memory", MEMORY);
    let directory = builder.directory().path().display().to_string();
    for (name, content) in FILES {
        builder.directory().write(name, content);
    }
    for (name, content) in files {
        let content = content.replace("{dir}", &directory);
        builder.directory().write(name, &content);
    }
    builder.start()
}

/// Asks for a path of a host, with further fields, each with its line's end.
pub(crate) fn ask(gateway: &Gateway, host: &str, path: &str, fields: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    reply(gateway.ask(request.as_bytes()))
}

/// Checks the status and, of a good one, the text.
pub(crate) fn check(gateway: &Gateway, host: &str, expected: &[(&str, u16, &str)]) {
    for (path, status, text) in expected {
        let answer = ask(gateway, host, path, "");
        let said = (answer.status, answer.text());
        assert_eq!(said.0, *status, "{host}{path}: {}", said.1);
        let is_said = text.is_empty() || said.1 == *text;
        assert!(is_said, "{host}{path}: {}", said.1);
    }
}
