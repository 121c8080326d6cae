//! Who gets in, seen from outside: address lists, passwords, and what a refusal tells.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::{Gateway, Reply, eventually, quick_once};

const CONFIG: &str = r#"
workers = 1
trusted_proxies = ["127.0.0.1"]
[log]
access = "-"
[caps]
auth_waiting = 4
[[sites]]
hosts = ["*"]
  [[sites.rules]]
  match = { path = "/inside*" }
  allow = ["10.0.0.0/8"]
  env = { ZONE = "inside" }
  [[sites.rules]]
  match = { path = "/inside/not-you" }
  deny = ["10.0.0.9"]
  env = { ZONE = "inner" }
  [[sites.rules]]
  match = { path = "/staff" }
  auth = { realm = "Staff", file = "{dir}/htpasswd" }
  handler = { respond = { status = 200, body = "staff" } }
  [[sites.rules]]
  handler = { respond = { status = 200, body = "in" } }
"#;

fn ask(gateway: &Gateway, path: &str, fields: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    reply(gateway.ask(request.as_bytes()))
}

fn start(htpasswd: &str) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    builder.directory().write("htpasswd", htpasswd);
    builder.start()
}

/// `u:secret` by bcrypt at the lowest cost.
const CHEAP: &str = "u:$2y$04$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka\n";
const U_SECRET: &str = "Authorization: Basic dTpzZWNyZXQ=\r\n";
const U_WRONG: &str = "Authorization: Basic dTp3cm9uZw==\r\n";

#[test]
fn the_client_a_trusted_proxy_names_is_the_one_that_counts() {
    let gateway = start(CHEAP);
    for (path, from, status) in [
        ("/", "192.0.2.1", 200),
        ("/inside", "192.0.2.1", 403),
        ("/inside", "10.0.0.9", 200),
        ("/inside/not-you", "10.0.0.9", 403),
        ("/inside/not-you", "10.0.0.8", 200),
        // What the client itself claims is hearsay.
        ("/inside", "10.0.0.9, 192.0.2.1", 403),
    ] {
        let fields = format!("X-Forwarded-For: {from}\r\n");
        assert_eq!(ask(&gateway, path, &fields).status, status, "{path} {from}");
    }
}

/// The status for a client that the trusted proxy names.
fn status_of(gateway: &Gateway, client: &str) -> u16 {
    let field = format!("X-Forwarded-For: {client}\r\n");
    ask(gateway, "/listed", &field).status
}

/// The configuration with a rule that has a file of clients.
fn with_file() -> String {
    let staff = "  [[sites.rules]]\n  match = { path = \"/staff\" }\n";
    let listed = "  [[sites.rules]]\n  match = { path = \"/listed\" }\n  \
                  deny = [\"10.0.0.66\", { file = \"{dir}/denied\" }]\n";
    CONFIG.replace(staff, &format!("{listed}{staff}"))
}

#[test]
fn who_starts_without_a_file_of_denied_clients_lets_nobody_in_there_until_it_is_found() {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &with_file());
    builder.directory().write("htpasswd", CHEAP);
    let gateway = builder.start();
    gateway.wait_for_message("nobody is let in where it counts");
    assert_eq!(status_of(&gateway, "10.0.2.9"), 503);
    assert_eq!(status_of(&gateway, "10.0.0.66"), 403);
    assert_eq!(ask(&gateway, "/other", "").status, 200);
    gateway.directory().write("denied", "10.0.2.0/24\n");
    eventually(Duration::from_secs(60), "the file in force", || {
        (status_of(&gateway, "10.0.1.9") == 200).then_some(())
    });
    assert_eq!(status_of(&gateway, "10.0.2.9"), 403);
}

#[test]
fn a_file_of_denied_clients_counts_without_a_reload() {
    let config = with_file();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config);
    let directory = builder.directory();
    directory.write("htpasswd", CHEAP);
    directory.write(
        "denied",
        "# by hand\n10.0.1.0/24\n2001:db8::9 # one\nnobody\n",
    );
    let mut gateway = builder.start();
    let told = |gateway: &Gateway, client: &str, status: u16| {
        eventually(Duration::from_secs(60), "the file in force", || {
            (status_of(gateway, client) == status).then_some(())
        });
    };
    gateway.wait_for_message("lines of a file of denied clients are left out");
    for (client, status) in [
        ("10.0.0.66", 403),
        ("10.0.1.9", 403),
        ("2001:db8::9", 403),
        ("10.0.2.9", 200),
    ] {
        assert_eq!(status_of(&gateway, client), status, "{client}");
    }
    gateway.directory().write("denied", "10.0.2.0/24\n");
    told(&gateway, "10.0.2.9", 403);
    assert_eq!(status_of(&gateway, "10.0.1.9"), 200);
    // What is wrong, or gone, changes nothing, even where the configuration is read anew meanwhile.
    gateway.directory().write("denied", "10.0.3.0/24\n10.0.4\n");
    gateway.wait_for_message("a file of denied clients is wrong");
    gateway.reload(&config);
    gateway.wait_for_message("generation 2 serves 1 site");
    assert_eq!(status_of(&gateway, "10.0.2.9"), 403);
    assert_eq!(status_of(&gateway, "10.0.3.9"), 200);
    std::fs::remove_file(gateway.directory().path().join("denied")).unwrap();
    gateway.wait_for_message("a file of denied clients cannot be read again");
    gateway.reload(&config);
    gateway.wait_for_message("generation 3 serves 1 site");
    assert_eq!(status_of(&gateway, "10.0.2.9"), 403);
    gateway.directory().write("denied", "");
    told(&gateway, "10.0.2.9", 200);
}

#[test]
fn a_password_opens_the_door() {
    let gateway = start(CHEAP);
    let asked = ask(&gateway, "/staff", "");
    assert_eq!(asked.status, 401);
    let head = String::from_utf8(asked.head.bytes.clone()).unwrap();
    assert!(
        head.contains("WWW-Authenticate: Basic realm=\"Staff\""),
        "{head}"
    );
    assert_eq!(ask(&gateway, "/staff", U_WRONG).status, 401);
    assert_eq!(ask(&gateway, "/staff", U_SECRET).body, b"staff");
    let seen = || gateway.stdout().contains("127.0.0.1 - u [");
    eventually(Duration::from_secs(60), "the user in the log", || {
        seen().then_some(())
    });
}

#[test]
fn every_kind_that_tools_write_is_understood() {
    let htpasswd = ["-nbs", "-nbm", "-nbB"].map(|kind| ("htpasswd", [kind, "u", "secret"], ""));
    let openssl = ["-5", "-6"].map(|kind| ("openssl", ["passwd", kind, "secret"], "u:"));
    for (program, arguments, before) in htpasswd.into_iter().chain(openssl) {
        let Ok(output) = Command::new(program).args(arguments).output() else {
            testkit::lacks_program(program);
            return;
        };
        let written = String::from_utf8(output.stdout).unwrap();
        let gateway = start(&format!("{before}{written}"));
        let kind = format!("{program} {arguments:?}");
        assert_eq!(ask(&gateway, "/staff", U_SECRET).status, 200, "{kind}");
        assert_eq!(ask(&gateway, "/staff", U_WRONG).status, 401, "{kind}");
    }
}

#[test]
fn passwords_being_compared_hold_up_nobody_else() {
    // Cost 12: a quarter of a second or so on each of the two helpers that compare.
    let gateway = start("u:$2y$12$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka\n");
    let limit = Duration::from_secs(1);
    quick_once(limit, "twenty others", || {
        let mut waiting: Vec<_> = (0..12).map(|_| gateway.client()).collect();
        let started = Instant::now();
        for client in &mut waiting {
            client.send(format!("GET /staff HTTP/1.1\r\nHost: a\r\n{U_WRONG}\r\n").as_bytes());
        }
        for _ in 0..20 {
            assert_eq!(ask(&gateway, "/", "").status, 200);
        }
        let took = started.elapsed();
        let replies = waiting
            .iter_mut()
            .map(|client| reply(client.read_reply(Body::Framed)));
        let statuses: Vec<u16> = replies.map(|reply| reply.status).collect();
        let told_to_wait = statuses.iter().filter(|status| **status == 503).count();
        assert!(told_to_wait <= 12 - 4, "{statuses:?}");
        // In a round that was held up there may have been room for all, one after the other.
        assert!(told_to_wait > 0 || took >= limit, "{statuses:?}");
        let known = |status: &u16| [401, 503].contains(status);
        assert!(statuses.iter().all(known), "{statuses:?}");
        took
    });
}
