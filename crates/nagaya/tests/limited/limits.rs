//! Limits end to end: who passes, who waits, who is refused, and that nothing is left behind.

use crate::fixtures::php;

use crate::fixtures::limited::{Gate, ask, await_counts, count, held, replies, send};
use crate::fixtures::php::{Wish, get};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, RawClient, ScriptedUpstream, Step, eventually};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[log]
access = "{dir}/access.log"
format = "json"
level = "warn"
[upstreams.app]
servers = ["{upstream}"]
fails = 1000
[[sites]]
hosts = ["app.test"]
  [[sites.rules]]
  handler = { proxy = { {proxy} } }
  limits = [{limits}]
"#;

fn gateway(upstream: &ScriptedUpstream, proxy: &str, limits: &str) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("proxy", format!("upstream = \"app\" {proxy}"))
        .with("upstream", upstream.address())
        .with("limits", limits)
        .start()
}

#[test]
fn of_ten_at_once_two_pass_and_eight_are_refused() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(&upstream, "", r#"{ key = "file", concurrent = 2 }"#);
    let mut clients = vec![send(&gateway, "/page"), send(&gateway, "/page")];
    await_counts(&gateway, 2, 0);
    let refused = replies((0..8).map(|_| send(&gateway, "/page")).collect());
    assert_eq!(count(&refused, 503), 8, "{refused:?}");
    let first = &refused[0];
    let seconds: u32 = first.head.field("Retry-After").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert!(String::from_utf8_lossy(&first.body).contains("limit_full"));
    gate.open();
    assert_eq!(count(&replies(std::mem::take(&mut clients)), 200), 2);
    await_counts(&gateway, 0, 0);
    gateway.wait_for_message("/page concurrent 2/2 queue 0/0: ");
    let id = first.head.field("X-Request-Id").unwrap();
    let why = ask(&gateway, &format!("why {id}"));
    assert!(why.contains("limit_full") && why.contains("/page"), "{why}");
}

#[test]
fn all_that_may_wait_are_served_in_their_order() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limits = r#"{ concurrent = 1, queue = 9, wait = "600s" }"#;
    let gateway = gateway(&upstream, "", limits);
    let mut clients = Vec::new();
    for nth in 0..10 {
        clients.push(send(&gateway, &format!("/{nth}")));
        await_counts(&gateway, 1, nth);
    }
    gate.open();
    let replies = replies(clients);
    assert_eq!(count(&replies, 200), 10, "{replies:?}");
    let seen = upstream.take_seen().into_iter();
    let seen: Vec<String> = seen.map(|seen| seen.head.line).collect();
    let expected = (0..10).map(|nth| format!("GET /{nth} HTTP/1.1"));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    await_counts(&gateway, 0, 0);
}

#[test]
fn clients_that_leave_hold_nothing_but_what_the_back_end_works_at() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limits = r#"{ concurrent = 2, queue = 8, wait = "600s" }"#;
    let gateway = gateway(&upstream, "", limits);
    let clients: Vec<RawClient> = (0..10).map(|_| send(&gateway, "/")).collect();
    await_counts(&gateway, 2, 8);
    drop(clients);
    await_counts(&gateway, 2, 0);
    gate.open();
    await_counts(&gateway, 0, 0);
    assert_eq!(count(&replies(vec![send(&gateway, "/")]), 200), 1);
    await_counts(&gateway, 0, 0);
}

#[test]
fn a_slow_client_holds_no_permit_once_the_back_end_has_finished() {
    let large = vec![b'x'; 8 << 20];
    let upstream = ScriptedUpstream::start(move |_| vec![Step::reply(200, &large)]);
    let limits = r#"{ concurrent = 1 }"#;
    for keys in ["", r#", buffer_reply = "16MiB""#] {
        let gateway = gateway(&upstream, keys, limits);
        let mut slow = RawClient::connect_narrow(gateway.address()).with_deadline(PATIENCE);
        slow.send(&get("/slow"));
        assert!(slow.read_exactly(1_000).starts_with(b"HTTP/1.1 200 "));
        await_counts(&gateway, 0, 0);
        assert_eq!(count(&replies(vec![send(&gateway, "/")]), 200), 1);
        // It has not been cut for that.
        let rest = (8 << 20) - 1_000;
        assert_eq!(slow.read_exactly(rest).len(), rest, "{keys}");
    }
}

#[test]
fn a_slow_client_keeps_its_permit_where_replies_are_not_taken_off_the_back_end() {
    let large = vec![b'x'; 8 << 20];
    let upstream = ScriptedUpstream::start(move |_| vec![Step::reply(200, &large)]);
    let limits = r#"{ concurrent = 1 }"#;
    let gateway = gateway(&upstream, ", buffer_reply = false", limits);
    let mut slow = RawClient::connect_narrow(gateway.address()).with_deadline(PATIENCE);
    slow.send(&get("/slow"));
    assert!(slow.read_exactly(1_000).starts_with(b"HTTP/1.1 200 "));
    assert_eq!(count(&replies(vec![send(&gateway, "/")]), 503), 1);
    await_counts(&gateway, 1, 0);
    let rest = (8 << 20) - 1_000;
    assert_eq!(slow.read_exactly(rest).len(), rest);
    await_counts(&gateway, 0, 0);
}

#[test]
fn a_limit_is_changed_while_it_is_full_and_whoever_waits_goes_on() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limits = r#"{ name = "pages", concurrent = 1, queue = 8, wait = "600s" }"#;
    let gateway = gateway(&upstream, "", limits);
    let clients: Vec<RawClient> = (0..4).map(|_| send(&gateway, "/")).collect();
    await_counts(&gateway, 1, 3);
    let list = ask(&gateway, "limits list");
    let identity = list.lines().find(|line| line.contains("pages")).unwrap();
    let identity = identity.split("  ").next().unwrap().to_owned();
    let answer = gateway.told(&["limits", "set", &identity, "concurrent=3", "queue=9"]);
    assert!(answer.contains("concurrent 3, queue 9"), "{answer}");
    await_counts(&gateway, 3, 1);
    gate.open();
    assert_eq!(count(&replies(clients), 200), 4);
    await_counts(&gateway, 0, 0);
}

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

#[test]
fn a_tunnel_keeps_its_permit_unless_the_limit_says_otherwise() {
    for (limits, in_flight) in [
        (r#"{ concurrent = 2 }"#, 1),
        (r#"{ concurrent = 2, tunnels = false }"#, 0),
    ] {
        let upstream = ScriptedUpstream::start(|_| vec![Step::Send(SWITCHED.to_vec()), Step::Echo]);
        let gateway = gateway(&upstream, ", tunnels = true", limits);
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(UPGRADE);
        assert_eq!(reply(client.read_reply(Body::Never)).status, 101);
        client.send(b"hello");
        assert_eq!(client.read_exactly(5), b"hello");
        await_counts(&gateway, in_flight, 0);
        drop(client);
        await_counts(&gateway, 0, 0);
    }
}

/// Pages that take their time, and one whose process is killed at once.
const PAGES: [(&str, &str); 2] = [
    (
        "sleep.php",
        "<?php while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(10000); } echo 'loaded';",
    ),
    ("die.php", "<?php posix_kill(getmypid(), 9); sleep(60);"),
];

#[test]
fn php_pages_are_limited_by_file_and_a_killed_process_holds_nothing() {
    let rules = r#"
  [[sites.rules]]
  limits = [{ key = "file", concurrent = 2 }]
"#;
    let wish = Wish {
        processes: 4,
        workers: 2,
        rules,
        files: &PAGES,
        ..Wish::default()
    };
    let Some(bed) = php::bed(&wish) else { return };
    let waiting = vec![
        send(&bed.gateway, "/sleep.php"),
        send(&bed.gateway, "/sleep.php/x"),
    ];
    await_counts(&bed.gateway, 2, 0);
    assert_eq!(bed.get("/sleep.php").status, 503);
    for _ in 0..4 {
        assert_eq!(bed.get("/die.php").status, 502);
    }
    bed.site.write("go", "");
    assert_eq!(count(&replies(waiting), 200), 2);
    await_counts(&bed.gateway, 0, 0);
}

#[test]
fn after_an_upgrade_permits_of_the_server_before_are_out_until_they_come_back() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(
        &upstream,
        "",
        "{ concurrent = 2 }, { key = \"client\", concurrent = 9 }",
    );
    let first: Vec<_> = (0..2).map(|_| send(&gateway, "/held")).collect();
    eventually(PATIENCE, "both to be under way", || {
        (ask(&gateway, "limits list json")
            .matches("\"in_flight\":2,")
            .count()
            == 2)
            .then_some(())
    });
    let before = gateway.server_pid();
    gateway.signal(rustix::process::Signal::USR2);
    eventually(PATIENCE, "another server to know of them", || {
        let is_another = !ask(&gateway, "upgrade").starts_with("0 ");
        let held = ask(&gateway, "limits list json")
            .matches("\"in_flight\":2,")
            .count();
        (is_another && held == 2).then_some(())
    });
    assert!(testkit::processes::children(gateway.pid()).contains(&before));
    let refused = replies(vec![send(&gateway, "/more")]);
    assert_eq!(count(&refused, 503), 1, "{refused:?}");
    gate.open();
    assert_eq!(count(&replies(first), 200), 2);
    eventually(PATIENCE, "their permits to be back", || {
        let answered = replies(vec![send(&gateway, "/again")]);
        (count(&answered, 200) == 1).then_some(())
    });
    testkit::processes::await_ended(before.to_string());
    eventually(PATIENCE, "none to be out", || {
        (ask(&gateway, "limits list json")
            .matches("\"in_flight\":0,")
            .count()
            == 2)
            .then_some(())
    });
}
