//! Ways around a limit that lead nowhere: other spellings, other connections, tries after a
//! failure, reloads, and keys without end.

use crate::fixtures::limited::{Gate, ask, await_counts, count, get, held, replies};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, RawClient, Reply, ScriptedUpstream, eventually, free_port};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[log]
level = "info"
[caps]
limit_keys = 8
[upstreams.app]
servers = [{servers}]
fails = 1000
[tenants.one]
{tenant}
[[sites]]
hosts = ["a.test", "www.a.test"]
tenant = "one"
rules = [{ {rule} handler = { proxy = "app" } }]
[[sites]]
hosts = ["b.test"]
tenant = "one"
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["other.test"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

fn gateway(servers: &str, tenant: &str, rule: &str) -> Gateway {
    let limits = |entry: &str, end: &str| match entry {
        "" => String::new(),
        entry => format!("limits = [{entry}]{end}"),
    };
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("servers", servers)
        .with("tenant", limits(tenant, ""))
        .with("rule", limits(rule, ","))
        .start()
}

fn quoted(upstream: &ScriptedUpstream) -> String {
    format!("\"{}\"", upstream.address())
}

/// Sends a request on a connection of its own and leaves it there.
fn send(gateway: &Gateway, request: &[u8]) -> RawClient {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(request);
    client
}

fn answer(gateway: &Gateway, request: &[u8]) -> Reply {
    let mut client = send(gateway, request);
    reply(client.read_reply(Body::Framed))
}

fn body(reply: &Reply) -> String {
    reply.text()
}

/// The number behind a name in what `limits list json` says of the one limit there is.
fn figure(gateway: &Gateway, name: &str) -> u64 {
    let list = ask(gateway, "limits list json");
    let found = list.split_once(&format!("\"{name}\":"));
    let (_, rest) = found.unwrap_or_else(|| panic!("no {name} in {list}"));
    let digits = rest.split(|character: char| !character.is_ascii_digit());
    digits.into_iter().next().unwrap().parse().unwrap()
}

#[test]
fn another_spelling_of_host_or_path_meets_the_same_limit() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limit = r#"{ key = ["site", "path"], concurrent = 1 }"#;
    let gateway = gateway(&quoted(&upstream), "", limit);
    let first = send(&gateway, &get("a.test", "/page"));
    await_counts(&gateway, 1, 0);
    let port = gateway.address().port();
    for (host, target) in [
        ("A.Test", "/page"),
        ("a.test.", "/page"),
        ("www.a.test", "/page"),
        (&*format!("a.test:{port}"), "/page"),
        ("a.test", "//page"),
        ("a.test", "/./page"),
        ("a.test", "/x/../page"),
        ("a.test", "/p%61ge"),
        ("a.test", "/page?n=1"),
        ("a.test", "http://A.test/page"),
    ] {
        let refused = answer(&gateway, &get(host, target));
        assert_eq!(refused.status, 503, "{host} {target}: {refused:?}");
        assert!(body(&refused).contains("limit_full"), "{host} {target}");
    }
    let elsewhere = send(&gateway, &get("a.test", "/other"));
    await_counts(&gateway, 2, 0);
    gate.open();
    assert_eq!(count(&replies(vec![first, elsewhere]), 200), 2);
    await_counts(&gateway, 0, 0);
}

#[test]
fn a_client_that_claims_another_address_stays_itself() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limit = r#"{ key = "client", concurrent = 1 }"#;
    let gateway = gateway(&quoted(&upstream), "", limit);
    let first = send(&gateway, &get("a.test", "/"));
    await_counts(&gateway, 1, 0);
    for claim in [
        "X-Forwarded-For: 192.0.2.9",
        "Forwarded: for=192.0.2.9",
        "X-Real-IP: 192.0.2.9",
        "Client-IP: 192.0.2.9",
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{claim}\r\n\r\n");
        assert_eq!(answer(&gateway, request.as_bytes()).status, 429, "{claim}");
    }
    gate.open();
    assert_eq!(count(&replies(vec![first]), 200), 1);
}

#[test]
fn requests_behind_each_other_on_one_connection_count_as_those_of_many() {
    let upstream = ScriptedUpstream::fixed("served");
    let limit = r#"{ rate = "1/d", burst = 3 }"#;
    let gateway = gateway(&quoted(&upstream), "", limit);
    let mut client = send(&gateway, &get("a.test", "/").repeat(5));
    let statuses: Vec<u16> = (0..5)
        .map(|_| reply(client.read_reply(Body::Framed)).status)
        .collect();
    assert_eq!(statuses, [200, 200, 200, 503, 503]);
    // Who is refused may stay.
    client.send(&get("other.test", "/"));
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    assert_eq!(figure(&gateway, "admitted"), 3);
    assert_eq!(figure(&gateway, "limit_rate"), 2);
}

#[test]
fn a_request_that_is_tried_again_elsewhere_has_one_permit() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let servers = format!("\"127.0.0.1:{}\", {}", free_port(), quoted(&upstream));
    let gateway = gateway(&servers, "", r#"{ concurrent = 4 }"#);
    // Turns come one after the other, so half of these begin where nobody is.
    let clients: Vec<_> = (0..4)
        .map(|_| send(&gateway, &get("a.test", "/")))
        .collect();
    await_counts(&gateway, 4, 0);
    assert_eq!(answer(&gateway, &get("a.test", "/")).status, 503);
    gate.open();
    assert_eq!(count(&replies(clients), 200), 4);
    await_counts(&gateway, 0, 0);
    assert_eq!(figure(&gateway, "admitted"), 4);
}

#[test]
fn sites_of_a_tenant_share_its_limit_and_others_do_not() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(&quoted(&upstream), r#"{ concurrent = 1 }"#, "");
    let first = send(&gateway, &get("a.test", "/"));
    await_counts(&gateway, 1, 0);
    assert_eq!(answer(&gateway, &get("www.a.test", "/")).status, 503);
    assert_eq!(answer(&gateway, &get("b.test", "/")).status, 503);
    assert_eq!(answer(&gateway, &get("other.test", "/")).status, 200);
    gate.open();
    assert_eq!(count(&replies(vec![first]), 200), 1);
}

#[test]
fn a_reload_forgets_nobody_who_is_under_way() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limit = r#"{ name = "pages", key = "path", concurrent = 2 }"#;
    let mut gateway = gateway(&quoted(&upstream), "", limit);
    let clients = vec![
        send(&gateway, &get("a.test", "/")),
        send(&gateway, &get("a.test", "/")),
    ];
    await_counts(&gateway, 2, 0);
    for (generation, added) in (2..).zip(["c.test", "d.test", "e.test"]) {
        let config = CONFIG.replace("\"other.test\"", &format!("\"other.test\", \"{added}\""));
        gateway.reload(&config);
        eventually(PATIENCE, "the new generation", || {
            (answer(&gateway, &get(added, "/")).status == 200).then_some(())
        });
        let refused = answer(&gateway, &get("a.test", "/"));
        assert_eq!(refused.status, 503, "generation {generation}");
        assert_eq!(figure(&gateway, "in_flight"), 2);
        assert_eq!(figure(&gateway, "limit_full"), generation - 1);
    }
    gate.open();
    assert_eq!(count(&replies(clients), 200), 2);
    await_counts(&gateway, 0, 0);
    assert_eq!(figure(&gateway, "admitted"), 2);
}

#[test]
fn who_makes_up_keys_without_end_shares_what_is_left_and_is_counted() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limit = r#"{ key = "header:x-key", concurrent = 1 }"#;
    let gateway = gateway(&quoted(&upstream), "", limit);
    let keyed = |key: usize| format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Key: {key}\r\n\r\n");
    let mut clients = Vec::new();
    for key in 0..9 {
        clients.push(send(&gateway, keyed(key).as_bytes()));
        await_counts(&gateway, key + 1, 0);
    }
    for key in 9..20 {
        assert_eq!(answer(&gateway, keyed(key).as_bytes()).status, 429, "{key}");
    }
    assert!(ask(&gateway, "limits top").contains("(other)"));
    assert_eq!(figure(&gateway, "keys"), 9);
    gate.open();
    assert_eq!(count(&replies(clients), 200), 9);
    await_counts(&gateway, 0, 0);
    // Of keys that nobody uses one makes room; no count is lost with it.
    let mut admitted = 9;
    for key in 100..200 {
        await_counts(&gateway, 0, 0);
        assert_eq!(answer(&gateway, keyed(key).as_bytes()).status, 200, "{key}");
        admitted += 1;
        assert_eq!(figure(&gateway, "admitted"), admitted);
    }
    assert!(figure(&gateway, "keys") <= 9);
    assert_eq!(figure(&gateway, "limit_full"), 11);
}
