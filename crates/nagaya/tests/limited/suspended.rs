//! Tenants that an operator suspends: who is refused, how that is told, and how long it lasts.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use testkit::client::{Body, reply};
use testkit::{Gateway, PATIENCE, Reply, ScriptedUpstream, eventually};

use crate::fixtures::limited::{Gate, ask, await_counts, get, held, send};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[log]
access = "{dir}/access.log"
format = "json"
[upstreams.app]
servers = ["{upstream}"]
[tenants.shop]
[tenants.zoo]
[[sites]]
hosts = ["app.test"]
tenant = "shop"
limits = [{ concurrent = 1, queue = 9, wait = "600s" }]
rules = [{ handler = { proxy = { upstream = "app" } } }]
[[sites]]
hosts = ["other.test"]
tenant = "zoo"
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

fn gateway(upstream: &ScriptedUpstream, overrides: &str) -> Gateway {
    let builder = Gateway::with_config(NAGAYA, CONFIG).with("upstream", upstream.address());
    if !overrides.is_empty() {
        builder
            .directory()
            .write("nagaya.toml.overrides", overrides);
    }
    let gateway = builder.start();
    gateway.wait_for_message("ready: generation 1 ");
    gateway
}

#[track_caller]
fn tenant(gateway: &Gateway, order: &str, name: &str) -> String {
    gateway.told(&["tenant", order, name])
}

fn answer(gateway: &Gateway, host: &str) -> Reply {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&get(host, "/"));
    reply(client.read_reply(Body::Framed))
}

fn overrides(gateway: &Gateway) -> PathBuf {
    gateway.directory().path().join("nagaya.toml.overrides")
}

#[test]
fn a_suspended_tenants_requests_are_refused_those_that_wait_too_and_others_are_answered() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(&upstream, "");
    let mut first = send(&gateway, "/");
    await_counts(&gateway, 1, 0);
    let mut waiting = send(&gateway, "/");
    await_counts(&gateway, 1, 1);
    let said = tenant(&gateway, "suspend", "shop");
    assert!(
        said.starts_with("shop is suspended: its requests are refused"),
        "{said}"
    );
    let refused = reply(waiting.read_reply(Body::Framed));
    assert_eq!(refused.status, 503, "{refused:?}");
    let again = answer(&gateway, "app.test");
    assert_eq!(again.status, 503);
    assert_eq!(answer(&gateway, "other.test").text(), "fine");
    for refused in [&refused, &again] {
        let id = refused.head.field("X-Request-Id").unwrap();
        let why = ask(&gateway, &format!("why {id}"));
        assert!(
            why.contains("reason      tenant_suspended\n") && why.contains("tenant      shop\n"),
            "{why}"
        );
    }
    let status = ask(&gateway, "status json");
    let told = "\"suspended\":{\"count\":1,\"tenants\":[\"shop\"],\"refused\":2}";
    assert!(status.contains(told), "{status}");
    assert!(ask(&gateway, "status").contains("suspended    shop · 2 requests refused\n"));
    // What was under way has its answer.
    gate.open();
    assert_eq!(reply(first.read_reply(Body::Framed)).status, 200);
    eventually(PATIENCE, "the record", || {
        let path = gateway.directory().path().join("access.log");
        let log = std::fs::read_to_string(path).unwrap();
        (log.matches("\"reason\":\"tenant_suspended\"").count() == 2).then_some(())
    });
    assert_eq!(tenant(&gateway, "resume", "shop"), "shop is resumed\n");
    assert_eq!(answer(&gateway, "app.test").status, 200);
}

#[test]
fn it_lasts_over_reloads_a_lost_server_an_upgrade_and_a_restart_until_it_is_resumed() {
    let gate = Gate::default();
    gate.open();
    let upstream = held(&gate);
    let mut gateway = gateway(&upstream, "");
    tenant(&gateway, "suspend", "shop");
    tenant(&gateway, "suspend", "shop");
    let text = std::fs::read_to_string(overrides(&gateway)).unwrap();
    assert_eq!(text.matches("\n\"shop\" = 2").count(), 1, "{text}");
    gateway.reload(CONFIG);
    gateway.wait_for_message("ready: generation 2 ");
    gateway.wait_for_message("; 1 tenant is suspended");
    assert_eq!(answer(&gateway, "app.test").status, 503);
    let server = gateway.server_pid();
    kill_process(
        Pid::from_raw(i32::try_from(server).unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    eventually(PATIENCE, "another server", || {
        let log = gateway.stderr();
        (log.matches("ready: generation 2 ").count() == 2).then_some(())
    });
    assert_eq!(answer(&gateway, "app.test").status, 503);
    gateway.signal(Signal::USR2);
    gateway.wait_for_message("the program is a new one");
    assert_eq!(answer(&gateway, "app.test").status, 503);
    let (_, dump, _) = gateway.command(&["check", "--dump"]);
    assert!(dump.contains("# tenant shop is suspended\n"), "{dump}");
    assert_eq!(tenant(&gateway, "resume", "shop"), "shop is resumed\n");
    assert_eq!(answer(&gateway, "app.test").status, 200);
    let text = std::fs::read_to_string(overrides(&gateway)).unwrap();
    assert!(!text.contains("\"shop\""), "{text}");
}

#[test]
fn a_start_reads_who_is_suspended_and_who_is_no_tenant_any_more_is_a_warning() {
    let gate = Gate::default();
    gate.open();
    let upstream = held(&gate);
    let said = "[suspended]\n\"zoo\" = 2026-11-22T02:40:00Z\n\"gone\" = 2026-11-22T02:40:00Z\n";
    let gateway = gateway(&upstream, said);
    assert_eq!(answer(&gateway, "other.test").status, 503);
    assert_eq!(answer(&gateway, "app.test").status, 200);
    let (_, _, warned) = gateway.command(&["check"]);
    assert!(
        warned.contains("no site has the tenant `gone`")
            && warned.contains("nagaya tenant resume gone"),
        "{warned}"
    );
}

#[test]
fn an_unknown_tenant_is_an_error_that_says_who_may_be_meant_and_changes_nothing() {
    let gate = Gate::default();
    gate.open();
    let upstream = held(&gate);
    let gateway = gateway(&upstream, "");
    for order in ["suspend", "resume", "kill"] {
        for (name, told) in [
            ("shpo", "there is no tenant `shpo`; is `shop` meant?"),
            ("app.test", "the tenant of site app.test is `shop`"),
            ("nobody-known", "there are shop, zoo"),
            ("a b", "is no name of a tenant"),
        ] {
            let (status, _, said) = gateway.command(&["tenant", order, name]);
            assert_eq!(status, Some(2), "{said}");
            assert!(said.contains(told), "{order}: {said}");
        }
    }
    assert!(!overrides(&gateway).exists());
    assert_eq!(answer(&gateway, "app.test").status, 200);
}
