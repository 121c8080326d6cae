//! `import verify`: the gateway beside the nginx it is to replace, and what differs between them.

use std::process::Command;

use testkit::peer::Peer;
use testkit::wait::free_port;
use testkit::{Gateway, TempDir};

use crate::fixtures::tls;

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
  # a.conf:5: location = /old
  # a.conf:5: return 301 http://www.example.jp/new
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
        "nagaya.toml:20), handler respond\n  such as http://www.example.jp/pages/7\n  body:\n    old  <p>page",
        "\n1 × www.example.jp, rule 2 (",
        "  made of a.conf:5: location = /old\n  made of a.conf:5: return 301 http",
        "    old  http://www.example.jp/new\n    new  http://www.example.jp/elsewhere\n",
        "  status:\n    old  403\n    new  200\n",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
    let (code, said) = verify(&["--json", "--allow", "logout"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("\"different\": 5"), "{said}");
}

/// Runs `import verify` on a log of `combined` lines.
fn verify(old: &str, new: &str, log: &str, more: &[&str]) -> (Option<i32>, String) {
    let directory = TempDir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
    command.args(["import", "verify", "--rate", "1000", "--log"]);
    command.arg(directory.write("access.log", log));
    command.args(["--old", old, "--new", new]).args(more);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.stderr, b"", "{said}");
    (output.status.code(), said)
}

/// Both sides of a move that has TLS: two hosts with a certificate each, of which the new one has lost
/// the second's.
#[test]
fn hosts_are_asked_for_over_tls_and_a_certificate_that_is_lost_is_told() {
    let directory = TempDir::new();
    for host in ["a", "b"] {
        let file = directory.path().join(format!("{host}.pem"));
        tls::certificate(&file, &[&format!("{host}.example")]);
    }
    let at = directory.path().display().to_string();
    let server = |host: &str| {
        format!(
            "server {{ listen 127.0.0.1:{{port}} ssl; server_name {host}.example; default_type text/html;\n\
             ssl_certificate {at}/{host}.pem; ssl_certificate_key {at}/{host}.pem;\n\
             location / {{ return 200 \"of {host}\"; }} }}\n"
        )
    };
    let Some(old) = Peer::nginx(&(server("a") + &server("b"))) else {
        return;
    };
    let site = |host: &str| {
        format!(
            "[[sites]]\nhosts = [\"{host}.example\"]\ntls = {{ redirect = true }}\n\
             rules = [{{ handler = {{ respond = {{ content_type = \"text/html\", body = \"of {host}\" }} }} }}]\n"
        )
    };
    let new = format!(
        "[[listen]]\naddress = \"127.0.0.1:{{port}}\"\n\
         [[listen]]\naddress = \"127.0.0.1:{{tls}}\"\ntls = true\n\
         [tls]\ncertificates = [\"{at}/a.pem\"]\n{}{}",
        site("a"),
        site("b").replace("tls = { redirect = true }\n", "")
    );
    let port = free_port();
    let _new = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &new)
        .with("tls", port)
        .start();
    let Some(other) = Peer::nginx(&server("a")) else {
        return;
    };
    let ask = |new: u16, host: &str| {
        let [old, new] = [old.address().port(), new].map(|it| format!("https://127.0.0.1:{it}"));
        verify(&old, &new, &log(&["/", "/x"]), &["--host", host])
    };
    let (code, said) = ask(port, "a.example");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 answered alike, 0 differ"), "{said}");
    let shows_another = "certificate:\n    old  is for this host\n    new  is for another host\n";
    for (new, expected) in [
        (port, "new  received fatal alert: UnrecognisedName"),
        (port, "such as https://b.example/"),
        (other.address().port(), shows_another),
    ] {
        let (code, said) = ask(new, "b.example");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
}

#[test]
fn what_a_stranger_was_refused_is_not_asked_by_who_may_be_let_in() {
    let Some(server) = Peer::nginx(OLD) else {
        return;
    };
    let address = server.address().to_string();
    let refused = log(&["/secret"]).replace("\" 200 ", "\" 403 ");
    let log = log(&["/", "/pages/1"]) + &refused;
    let (code, said) = verify(&address, &address, &log, &["--host", "www.example.jp"]);
    assert_eq!(code, Some(0), "{said}");
    for expected in [
        "  1 left out: refused: was refused to a stranger, and may be let in from here (--allow refused)\n",
        "2 asked: 2 answered alike",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
    let more = ["--host", "www.example.jp", "--allow", "refused"];
    let (_, said) = verify(&address, &address, &log, &more);
    assert!(said.contains("3 asked: 3 answered alike"), "{said}");
}

#[test]
fn what_is_of_two_classes_is_asked_when_both_are_allowed() {
    let Some(server) = Peer::nginx(OLD) else {
        return;
    };
    let address = server.address().to_string();
    let log = log(&["/", "/logout?token=7"]);
    for (allowed, asked) in [("logout", 1), ("token", 1), ("logout,token", 2)] {
        let more = ["--host", "www.example.jp", "--allow", allowed];
        let (_, said) = verify(&address, &address, &log, &more);
        assert!(
            said.contains(&format!("\n{asked} asked: ")),
            "{allowed}: {said}"
        );
    }
}

#[test]
fn a_field_of_any_name_is_compared_unless_it_is_to_be_ignored() {
    let server = |line: &str| {
        let servers = format!("server {{ listen 127.0.0.1:{{port}}; {line} return 204; }}");
        Peer::nginx(&servers)
    };
    let (Some(old), Some(new)) = (server("add_header X-Walls thick;"), server("")) else {
        return;
    };
    let [old, new] = [&old, &new].map(|it| it.address().to_string());
    let (code, said) = verify(&old, &new, &log(&["/"]), &["--host", "a.jp"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("  x-walls:\n    old  thick\n"), "{said}");
    let more = ["--host", "a.jp", "--ignore", "X-Walls"];
    let (code, said) = verify(&old, &new, &log(&["/"]), &more);
    assert_eq!(code, Some(0), "{said}");
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
        let both = [&*output.stdout, &*output.stderr].concat();
        (output.status.code(), String::from_utf8(both).unwrap())
    };
    let (code, said) = verify(&old.address().to_string());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("4 answered alike, 0 differ"), "{said}");
    let nowhere = testkit::free_port();
    for (new, told) in [
        (
            format!("127.0.0.1:{nowhere}"),
            "the new server cannot be asked: connection refused",
        ),
        (
            format!("https://{}", old.address()),
            "the new server cannot be asked: it does not speak TLS there",
        ),
    ] {
        let (code, said) = verify(&new);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains(told) && !said.contains("answered alike"),
            "{said}"
        );
    }
}

#[test]
fn a_new_server_that_gives_no_reply_is_asked_no_more_and_a_record_of_others_is_told() {
    let Some(old) = Peer::nginx(OLD) else {
        return;
    };
    let silent = Peer::nginx("server { listen 127.0.0.1:{port}; return 444; }").unwrap();
    let directory = TempDir::new();
    let other = directory.write("other.json", "");
    let pages: Vec<String> = (1..=60).map(|page| format!("/pages/{page}")).collect();
    let log = log(&pages.iter().map(String::as_str).collect::<Vec<_>>());
    let more = [
        "--host",
        "www.example.jp",
        "--record",
        other.to_str().unwrap(),
    ];
    let [old, new] = [&old, &silent].map(|it| it.address().to_string());
    let (code, said) = verify(&old, &new, &log, &more);
    assert_eq!(code, Some(1), "{said}");
    for told in [
        "20 asked: 0 answered alike, 20 differ",
        "Stopped: the new server gives no whole reply",
        "--record: that file has no record of these questions",
    ] {
        assert!(said.contains(told), "{told}\n---\n{said}");
    }
}
