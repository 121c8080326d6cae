//! Shares: whoever takes all he can get of what everybody needs (places for programs, room for
//! bodies, turns of passwords) leaves the others some.

use crate::fixtures::programs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::fixtures::programs::{await_quiet, note, set_mode, tell};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, RawClient, ScriptedUpstream, Step, eventually};

const CONFIG: &str = r#"
workers = 1
trusted_proxies = ["127.0.0.1"]
caps = { {caps} }
[log]
level = "warn"
[[sites]]
hosts = ["one.test"]
root = "{dir}/www"
limits = [{ concurrent = 100 }]
  [[sites.rules]]
  match = { path = "/sent" }
  scripts = { access = { code = "Nginx.redirect '/wait.cgi?a'" } }
  handler = { respond = { body = "not sent" } }
  [[sites.rules]]
  match = { file = "*.cgi" }
  handler = { cgi = true }
[[sites]]
hosts = ["two.test"]
root = "{dir}/www"
rules = [{ match = { file = "*.cgi" }, handler = { cgi = true } }]
[[sites]]
hosts = ["three.test"]
root = "{dir}/www"
rules = [{ match = { file = "*.cgi" }, handler = { cgi = true } }]
"#;

/// Answers at once.
const QUICK: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: x\\n\\nquick'\n";
/// Takes note, and answers when told to.
const WAIT: &str = "#!/bin/sh\necho $$ >{notes}/$QUERY_STRING\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf 'Content-Type: x\\n\\ndone'\n";

fn gateway(caps: &str) -> Gateway {
    let builder = programs::builder_of(CONFIG, "", "", caps);
    for (name, text) in [("quick.cgi", QUICK), ("wait.cgi", WAIT)] {
        programs::program(builder.directory().path(), name, text);
    }
    builder.start()
}

/// Sends a request to a host, on behalf of a client; `fields` ends the head.
fn begin(gateway: &Gateway, (line, host): (&str, &str), client: &str, fields: &str) -> RawClient {
    let mut connection = gateway.client().with_deadline(PATIENCE);
    let head =
        format!("{line} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {client}\r\n{fields}\r\n");
    connection.send(head.as_bytes());
    connection
}

fn status(connection: &mut RawClient) -> u16 {
    reply(connection.read_reply(Body::Framed)).status
}

/// What comes of a request for the quick program.
fn quick(gateway: &Gateway, host: &str, client: &str) -> u16 {
    status(&mut begin(gateway, ("GET /quick.cgi", host), client, ""))
}

#[test]
fn slow_uploads_hold_no_place_of_anybodys_program() {
    let gateway = gateway("programs = 4");
    let slow = |_| {
        let line = ("POST /quick.cgi", "one.test");
        let mut client = begin(&gateway, line, "192.0.2.1", "Content-Length: 10\r\n");
        client.send(b"slow ");
        client
    };
    let mut uploads: Vec<_> = (0..12).map(slow).collect();
    for client in ["192.0.2.1", "198.51.100.1"] {
        for host in ["one.test", "two.test"] {
            assert_eq!(quick(&gateway, host, client), 200, "{host} {client}");
        }
    }
    for upload in &mut uploads {
        upload.send(b"body.");
        assert_eq!(status(upload), 200);
    }
}

#[test]
fn where_bodies_are_not_taken_first_a_program_runs_while_its_body_comes() {
    let config = CONFIG.replace("cgi = true", "cgi = { buffer_request = false }");
    let builder = programs::builder_of(&config, "", "", "");
    let echo = "#!/bin/sh\nread line\necho $line >{notes}/heard\nprintf 'Content-Type: x\\n\\n'\nexec cat\n";
    programs::program(builder.directory().path(), "echo.cgi", echo);
    let gateway = builder.start();
    let line = ("POST /echo.cgi", "one.test");
    let fields = "Content-Length: 10\r\nExpect: 100-continue\r\n";
    let mut client = begin(&gateway, line, "192.0.2.1", fields);
    client.await_bytes(b"100 Continue\r\n\r\n");
    client.send(b"first\n");
    assert_eq!(note(&gateway, "heard"), "first");
    client.send(b"rest");
    let reply = reply(client.read_reply(Body::Framed));
    assert_eq!((reply.status, reply.body), (200, b"rest".to_vec()));
}

#[test]
fn who_runs_programs_without_end_leaves_others_places() {
    // Seven of eight for a tenant, and six of those for a network.
    let gateway = gateway("programs = 8");
    let endless = |client: &str, at: usize| {
        let line = format!("GET /wait.cgi?{client}-{at}");
        begin(&gateway, (&line, "one.test"), client, "")
    };
    let mut greedy: Vec<_> = (0..6).map(|at| endless("192.0.2.1", at)).collect();
    for at in 0..6 {
        note(&gateway, &format!("192.0.2.1-{at}"));
    }
    // Of the same network as many wait as there are places; the others are told to come again.
    let more: Vec<_> = (6..20).map(|at| endless("192.0.2.9", at)).collect();
    gateway.wait_for_message("limit_queue_full");
    for (host, client) in [("one.test", "198.51.100.1"), ("two.test", "203.0.113.1")] {
        for _ in 0..5 {
            assert_eq!(quick(&gateway, host, client), 200, "{host} {client}");
        }
    }
    // With another network's, the tenant has all it may have; others have one still.
    greedy.push(endless("198.51.100.1", 6));
    note(&gateway, "198.51.100.1-6");
    for _ in 0..5 {
        assert_eq!(quick(&gateway, "two.test", "203.0.113.1"), 200);
    }
    let why = gateway.stderr();
    assert!(
        why.contains("caps.programs-network=\"one.test 192.0.2.0/24\""),
        "{why}"
    );
    tell(&gateway, "go");
    for client in &mut greedy {
        assert_eq!(status(client), 200);
    }
    let mut statuses: Vec<_> = more.into_iter().map(|mut it| status(&mut it)).collect();
    statuses.retain(|status| *status == 503);
    assert!(statuses.len() >= 14 - 8, "{statuses:?}");
    await_quiet(&gateway);
}

#[test]
fn who_runs_programs_at_two_tenants_leaves_a_third_places() {
    // Eleven of sixteen at one tenant, and twelve at all of them.
    let gateway = gateway("programs = 16");
    let endless = |host: &str, at: usize| {
        let line = format!("GET /wait.cgi?{host}-{at}");
        begin(&gateway, (&line, host), "192.0.2.1", "")
    };
    let mut greedy: Vec<_> = (0..11).map(|at| endless("one.test", at)).collect();
    for at in 0..11 {
        note(&gateway, &format!("one.test-{at}"));
    }
    greedy.push(endless("two.test", 0));
    note(&gateway, "two.test-0");
    let more: Vec<_> = (1..22).map(|at| endless("two.test", at)).collect();
    gateway.wait_for_message("limit_queue_full");
    for _ in 0..5 {
        assert_eq!(quick(&gateway, "three.test", "198.51.100.1"), 200);
    }
    let why = gateway.stderr();
    assert!(why.contains("caps.programs-client=192.0.2.0/24"), "{why}");
    tell(&gateway, "go");
    for client in &mut greedy {
        assert_eq!(status(client), 200);
    }
    drop(more);
    await_quiet(&gateway);
}

#[test]
fn where_all_places_are_taken_a_place_is_waited_for() {
    let gateway = gateway("programs = 1");
    let answered = |line: &str| {
        let mut first = begin(&gateway, (line, "one.test"), "192.0.2.1", "");
        note(&gateway, "a");
        let mut second = begin(&gateway, ("GET /quick.cgi", "two.test"), "192.0.2.1", "");
        // One more may not wait.
        let refused = quick(&gateway, "two.test", "192.0.2.1");
        tell(&gateway, "go");
        assert_eq!(status(&mut first), 200);
        let answered = (status(&mut second), refused);
        for name in ["go", "a"] {
            let note = gateway.directory().path().join("notes").join(name);
            std::fs::remove_file(note).expect("a note");
        }
        (answered == (200, 503)).then_some(())
    };
    // One may be sent there by a script, when it holds permits already.
    for line in ["GET /wait.cgi?a", "GET /sent"] {
        // On a machine that stands still the second has waited for too long.
        eventually(PATIENCE, "a wait that is worth it", || answered(line));
    }
}

const SPOOL: &str = r#"
workers = 1
trusted_proxies = ["127.0.0.1"]
caps = { spool_disk_bytes = "32MiB" }
[log]
level = "warn"
[upstreams.app]
servers = ["{upstream}"]
[[sites]]
hosts = ["one.test"]
rules = [{ handler = { proxy = { upstream = "app", buffer_request = true } } }]
[[sites]]
hosts = ["two.test"]
rules = [{ handler = { proxy = { upstream = "app", buffer_request = true } } }]
"#;

/// Bytes of all temporary files the server holds.
fn spooled_bytes(gateway: &Gateway) -> u64 {
    let list = std::fs::read_dir(format!("/proc/{}/fd", gateway.server_pid()));
    list.expect("the server's descriptors")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let is_deleted = |target: &Path| target.to_string_lossy().ends_with("(deleted)");
            std::fs::read_link(&path).ok().filter(|it| is_deleted(it))?;
            Some(std::fs::metadata(&path).ok()?.len())
        })
        .sum()
}

/// Begins an upload of so many bytes and one more.
fn unfinished(gateway: &Gateway, host: &str, client: &str, bytes: usize) -> RawClient {
    let fields = format!("Content-Length: {}\r\n", bytes + 1);
    let mut upload = begin(gateway, ("PUT /", host), client, &fields);
    upload.send(&vec![b'x'; bytes]);
    upload
}

#[test]
fn unfinished_uploads_leave_others_room_for_theirs() {
    const MIB: usize = 1 << 20;
    let upstream = ScriptedUpstream::start(|_| vec![Step::ReadBody, Step::reply(200, "kept")]);
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), SPOOL)
        .with("upstream", upstream.address())
        .start();
    let mut large = unfinished(&gateway, "one.test", "192.0.2.1", 20 * MIB);
    eventually(PATIENCE, "twenty megabytes set aside", || {
        (spooled_bytes(&gateway) >= (20 * MIB - (128 << 10)) as u64).then_some(())
    });
    // What is left is not for one who wants all of it.
    let mut second = begin(
        &gateway,
        ("PUT /", "one.test"),
        "198.51.100.1",
        "Content-Length: 11534336\r\n",
    );
    second.send(&vec![b'x'; 8 * MIB]);
    assert_eq!(status(&mut second), 503);
    gateway.wait_for_message("spool_full");
    // Nor can one be alone with all there is.
    let all = "Content-Length: 31457280\r\n";
    let mut third = begin(&gateway, ("PUT /", "two.test"), "192.0.2.1", all);
    assert_eq!(status(&mut third), 413);
    for (host, client) in [("one.test", "203.0.113.1"), ("two.test", "203.0.114.1")] {
        let small = |_| unfinished(&gateway, host, client, 200 << 10);
        let mut uploads: Vec<_> = (0..5).map(small).collect();
        for upload in &mut uploads {
            upload.send(b"x");
            assert_eq!(status(upload), 200, "{host} {client}");
        }
    }
    large.send(b"x");
    assert_eq!(status(&mut large), 200);
}

const PASSWORDS: &str = r#"
workers = 1
trusted_proxies = ["127.0.0.1"]
caps = { auth_waiting = 4 }
[log]
level = "warn"
[[sites]]
hosts = ["one.test"]
auth = { realm = "One", file = "{dir}/htpasswd" }
rules = [{ handler = { respond = { status = 200, body = "in" } } }]
[[sites]]
hosts = ["two.test"]
auth = { realm = "Two", file = "{dir}/htpasswd" }
rules = [{ handler = { respond = { status = 200, body = "in" } } }]
"#;

/// `secret`, cheap to compare, and something that is not.
const CHEAP: &str = "$2y$04$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka";
const DEAR: &str = "$2y$08$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka";
/// `guessed:wrong`.
const GUESS: &str = "Authorization: Basic Z3Vlc3NlZDp3cm9uZw==\r\n";
/// `0:secret` to `9:secret`.
const RIGHT: [&str; 10] = [
    "MDpzZWNyZXQ=",
    "MTpzZWNyZXQ=",
    "MjpzZWNyZXQ=",
    "MzpzZWNyZXQ=",
    "NDpzZWNyZXQ=",
    "NTpzZWNyZXQ=",
    "NjpzZWNyZXQ=",
    "NzpzZWNyZXQ=",
    "ODpzZWNyZXQ=",
    "OTpzZWNyZXQ=",
];

#[test]
fn guessers_keep_nobody_elsewhere_from_logging_in() {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), PASSWORDS);
    let users: String = (0..10).map(|user| format!("{user}:{CHEAP}\n")).collect();
    let file = format!("guessed:{DEAR}\n{users}");
    builder.directory().write("htpasswd", &file);
    set_mode(&builder.directory().path().join("htpasswd"), 0o644);
    let gateway = builder.start();
    let is_over = AtomicBool::new(false);
    let log_in = |host: &str, client: &str, fields: &str| {
        status(&mut begin(&gateway, ("GET /", host), client, fields))
    };
    let (gateway_said, guessed) = thread::scope(|scope| {
        let guess = || {
            let mut refused = 0;
            while !is_over.load(Relaxed) {
                refused += u32::from(log_in("one.test", "192.0.2.1", GUESS) == 503);
            }
            refused
        };
        let guessers: Vec<_> = (0..12).map(|_| scope.spawn(guess)).collect();
        gateway.wait_for_message("limit_queue_full");
        // Elsewhere, and from other networks at the very same door.
        let mut statuses = Vec::new();
        for (host, client) in [("two.test", "192.0.2.1"), ("one.test", "198.51.100.1")] {
            let fields = RIGHT.map(|pair| format!("Authorization: Basic {pair}\r\n"));
            statuses.extend(fields.map(|fields| log_in(host, client, &fields)));
        }
        is_over.store(true, Relaxed);
        let refused: u32 = guessers.into_iter().filter_map(|it| it.join().ok()).sum();
        (statuses, refused)
    });
    assert_eq!(gateway_said, [200; 20]);
    assert!(guessed > 0, "the guessers were never too many");
}
