//! The package's filter for fail2ban, on what the gateway itself logs, in every format.

use std::process::Command;
use std::time::Duration;

use testkit::client::reply;
use testkit::{Gateway, TempDir, eventually};

use crate::readme::{read, root};

const CONFIG: &str = r#"
workers = 1
trusted_proxies = ["127.0.0.1"]
[log]
access = "{dir}/access.log"
format = "{format}"
reason = {reason}
[[sites]]
hosts = ["a.test"]
  [[sites.rules]]
  match = { path = "/staff*" }
  auth = { file = "{dir}/htpasswd", group_file = "{dir}/groups", require = ["staff"] }
  handler = { respond = { status = 200, body = "staff" } }
  [[sites.rules]]
  handler = { respond = { status = 401, body = "not ours" } }
"#;

/// Fields with a user and a password, in the order of their names.
const NOBODY_WRONG: &str = "Authorization: Basic bm9ib2R5Ondyb25n\r\n";
const U_SECRET: &str = "Authorization: Basic dTpzZWNyZXQ=\r\n";
const U_WRONG: &str = "Authorization: Basic dTp3cm9uZw==\r\n";
const V_SECRET: &str = "Authorization: Basic djpzZWNyZXQ=\r\n";
/// Its user is `10.9.9.9 - u [] "GET / HTTP/1.1" 401 1 "-" "-"`.
const HOSTILE: &str =
    "Authorization: Basic MTAuOS45LjkgLSB1IFtdICJHRVQgLyBIVFRQLzEuMSIgNDAxIDEgIi0iICItIjp4\r\n";

/// Who was asked for what, and whether a password was guessed at.
fn requests() -> Vec<(&'static str, String, bool)> {
    let get = |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{fields}");
    let staff = |fields: &str| get("/staff", fields);
    let agent = "User-Agent: x\" \"auth_wrong\"\r\n";
    let referer = "Referer: \",\"client\":\"10.9.9.9\",\"reason\":\"auth_wrong\"\r\n";
    vec![
        ("10.0.0.1", staff(U_WRONG), true),
        ("2001:db8::1", staff(NOBODY_WRONG), true),
        ("10.0.0.2", staff(""), false),
        ("10.0.0.3", staff(U_SECRET), false),
        ("10.0.0.4", staff(V_SECRET), false),
        ("10.0.0.5", get("/other", agent), false),
        ("10.0.0.6", staff(HOSTILE), true),
        (
            "10.0.0.7",
            staff(&format!("{U_WRONG}{agent}{referer}")),
            true,
        ),
        ("10.0.0.8", get("/other?client=10.9.9.9", referer), false),
    ]
}

/// The clients that the filter finds in a log of this format, in order.
fn found(format: &str, reason: bool) -> Option<Vec<String>> {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("format", format)
        .with("reason", reason);
    let sha = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    let directory = builder.directory();
    directory.write("htpasswd", format!("u:{sha}\nv:{sha}\n"));
    directory.write("groups", "staff: u\n");
    let gateway = builder.start();
    let requests = requests();
    for (client, request, _) in &requests {
        let request = format!("{request}X-Forwarded-For: {client}\r\n\r\n");
        let status = reply(gateway.ask(request.as_bytes())).status;
        assert_eq!(
            status,
            if *client == "10.0.0.3" { 200 } else { 401 },
            "{client}"
        );
    }
    let log = gateway.directory().path().join("access.log");
    eventually(Duration::from_secs(60), "the records", || {
        let lines = std::fs::read_to_string(&log).ok()?.lines().count();
        (lines >= requests.len()).then_some(())
    });
    let output = Command::new("fail2ban-regex")
        .args(["--out", "ip"])
        .arg(&log)
        .arg(root().join("packaging/fail2ban/filter.conf"))
        .output();
    let Ok(output) = output else {
        testkit::lacks_program("fail2ban-regex");
        return None;
    };
    let told = String::from_utf8(output.stdout).unwrap();
    Some(told.lines().map(str::to_owned).collect())
}

#[test]
fn the_filter_finds_wrong_passwords_in_every_format_and_nobody_elses_address() {
    let guessed = requests().into_iter().filter(|(_, _, guessed)| *guessed);
    let guessed: Vec<_> = guessed.map(|(client, _, _)| client).collect();
    for (format, reason) in [
        ("combined", true),
        ("vhost_combined", true),
        ("json", false),
        ("ltsv", false),
    ] {
        let Some(found) = found(format, reason) else {
            return;
        };
        assert_eq!(found, guessed, "{format}");
    }
}

#[test]
fn the_action_keeps_a_file_that_begins_empty() {
    let action = read(&root().join("packaging/fail2ban/action.conf"));
    let directory = TempDir::new();
    let file = directory.write("denied", "192.0.2.1\n");
    let run = |name: &str, ip: &str| {
        let mut lines = action.lines();
        let command = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        let command = command
            .unwrap()
            .replace("<file>", &file.display().to_string());
        let status = Command::new("sh")
            .args(["-c", &command.replace("<ip>", ip)])
            .status();
        assert!(status.unwrap().success(), "{command}");
        std::fs::read_to_string(&file).unwrap()
    };
    assert_eq!(run("actionstart", ""), "");
    assert_eq!(run("actionban", "192.0.2.7"), "192.0.2.7\n");
    assert_eq!(run("actionban", "2001:db8::7"), "192.0.2.7\n2001:db8::7\n");
    assert_eq!(run("actionunban", "192.0.2.7"), "2001:db8::7\n");
    assert_eq!(run("actionflush", ""), "");
}

#[test]
fn without_a_reason_any_refused_user_counts() {
    let Some(found) = found("combined", false) else {
        return;
    };
    let clients = [
        "10.0.0.1",
        "2001:db8::1",
        "10.0.0.4",
        "10.0.0.6",
        "10.0.0.7",
    ];
    assert_eq!(found, clients);
}
