//! `import verify`: the gateway beside the nginx it is to replace, and what differs between them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use testkit::peer::Peer;
use testkit::{Gateway, TempDir};

const OLD: &str = r#"
server {
    listen 127.0.0.1:{port};
    default_type text/html;
    location = / { return 200 "<form><input value='$request_id'></form>"; }
    location = /old { return 301 http://www.example.jp/new; }
    location = /secret { return 403 "no"; }
    location = /logout { return 200 "out"; }
    location /pages/ { return 200 "<p>page $uri</p>"; }
}
"#;

const NEW: &str = r#"
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = "{dir}/access.json"
format = "json"
[[sites]]
hosts = ["www.example.jp"]
  [[sites.rules]]
  match = { path = "/" }
  handler = { respond = { content_type = "text/html", body = "<form><input value='$request_id'></form>" } }
  [[sites.rules]]
  match = { path = "/old" }
  handler = { redirect = "http://www.example.jp/elsewhere", status = 301 }
  [[sites.rules]]
  match = { path = "/secret" }
  handler = { respond = { content_type = "text/html", body = "no" } }
  [[sites.rules]]
  name = "one page"
  match = { path = ["/pages/7", "/pages/8"] }
  handler = { respond = { content_type = "text/html", body = "<p>Page $path</p>" } }
  [[sites.rules]]
  match = { path = "/pages/*" }
  handler = { respond = { content_type = "text/html", body = "<p>page $path</p>" } }
"#;

fn log(targets: &[&str]) -> String {
    let line = |target: &&str| {
        format!("203.0.113.7 - - [21/Nov/2026:22:18:19 +0000] \"GET {target} HTTP/1.1\" 200 5\n")
    };
    targets.iter().map(line).collect()
}

#[test]
fn each_difference_is_told_with_the_line_behind_it_and_noise_is_not() {
    let Some(old) = Peer::nginx(OLD) else {
        return;
    };
    let new = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), NEW).start();
    let directory = TempDir::new();
    let pages: Vec<String> = (1..=20).map(|page| format!("/pages/{page}")).collect();
    let mut targets = vec!["/", "/old", "/secret", "/logout", "/", "/pages/7"];
    targets.extend(pages.iter().map(String::as_str));
    let asked = directory.write("access.log", log(&targets) + "nothing\n");
    let verify = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
        command.args(["import", "verify", "--rate", "1000/s"]);
        command
            .args(["--host", "www.example.jp", "--log"])
            .arg(&asked);
        command.args(["--old", &old.address().to_string()]);
        command.args(["--new", &new.address().to_string()]);
        command
            .arg("--record")
            .arg(new.directory().path().join("access.json"));
        command
            .arg("-c")
            .arg(new.directory().path().join("nagaya.toml"));
        let output = command.args(more).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.stderr, b"", "{said}");
        (output.status.code(), said)
    };
    let (code, said) = verify(&[]);
    assert_eq!(code, Some(1), "{said}");
    for expected in [
        "27 lines of the log: 23 different questions\n",
        "  2 left out: asked already\n",
        "  1 left out: logout: ends somebody's session (--allow logout)\n",
        "23 asked: 19 answered alike, 4 differ, 0 without a whole reply of the old server\n",
        "\n2 × www.example.jp, one page (",
        "nagaya.toml:18), handler respond\n  such as http://www.example.jp/pages/7\n  body:\n    old  <p>page",
        "\n1 × www.example.jp, rule 2 (",
        "    old  http://www.example.jp/new\n    new  http://www.example.jp/elsewhere\n",
        "  status:\n    old  403\n    new  200\n",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
    let (code, said) = verify(&["--json", "--allow", "logout"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("\"different\": 5"), "{said}");
}

#[test]
fn a_server_is_like_itself_and_one_that_is_not_there_is_said_to_be() {
    let Some(old) = Peer::nginx(OLD) else {
        return;
    };
    let directory = TempDir::new();
    let asked = directory.write("access.log", log(&["/", "/old", "/pages/1", "/secret"]));
    let verify = |new: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
        command
            .args(["import", "verify", "--host", "www.example.jp", "--log"])
            .arg(&asked);
        command.args(["--old", &old.address().to_string(), "--new", new]);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, said) = verify(&old.address().to_string());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("4 answered alike, 0 differ"), "{said}");
    let nowhere = testkit::free_port();
    let (code, said) = verify(&format!("127.0.0.1:{nowhere}"));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("no reply:\n    old  200\n    new  connection refused"),
        "{said}"
    );
}
