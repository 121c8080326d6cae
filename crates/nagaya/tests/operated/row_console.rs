//! The console on sites of rows: each shows its row's tenant, by what the row says now, and nothing of another.

use std::time::Duration;

use testkit::client::{RawClient, Reply, reply};
use testkit::{Gateway, eventually};

use super::console::link;
use super::directories::operate;

const PATIENCE: Duration = Duration::from_secs(90);

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control.sock"
[recorder]
directory = "{dir}/figures"
[directories.customers]
source = "file:{dir}/rows.csv"
keep = "1s"
wait = "60s"
[plans.small]
console = true
[plans.blind]
console = false
[[sites]]
hosts = { directory = "customers" }
tenant = "$row.tenant"
plan = "$row.plan"
  [[sites.rules]]
  match = { path = "/stats/*" }
  allow = ["127.0.0.1"]
  handler = { console = "$tenant" }
  [[sites.rules]]
  handler = { respond = { body = "fine" } }
[tenants.own]
plan = "blind"
[[sites]]
hosts = ["own.example"]
tenant = "own"
rules = [{ allow = ["127.0.0.1"], handler = { console = "$tenant" } }]
[[sites]]
hosts = ["console.example"]
tenant = "operator"
record = false
rules = [{ allow = ["127.0.0.1"], handler = { console = true } }]
[[sites]]
hosts = ["panel.example"]
tenant = "operator"
record = false
  [[sites.rules]]
  match = { path = "/console/*" }
  handler = { console = { link_secret = "{dir}/console.key" } }
[tenants.operator]
"#;

const ROWS: &str = "host,tenant,plan\nann-1.example,ann,\nann-2.example,ann,small\nbob.example,bob,small\neve.example,eve,blind\n";

fn gateway(rows: &str) -> Gateway {
    let prepared = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    prepared.directory().write("rows.csv", rows);
    prepared.directory().write("console.key", "k".repeat(32));
    prepared.start()
}

fn request(host: &str, target: &str, lines: &str) -> String {
    // Who says nothing of itself is taken for a bot, and has no pages.
    let agent = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/145.0";
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{agent}\r\n{lines}\r\n")
}

fn ask(gateway: &Gateway, host: &str, target: &str) -> Reply {
    let mut client = gateway.client().with_deadline(PATIENCE);
    reply(client.ask(request(host, target, "").as_bytes()))
}

/// What a host is answered once it is answered so.
fn await_status(gateway: &Gateway, host: &str, target: &str, status: u16) -> Reply {
    eventually(PATIENCE, &format!("{status} of {host}{target}"), || {
        let reply = ask(gateway, host, target);
        (reply.status == status).then_some(reply)
    })
}

/// Waits until the console of a host lists these sites.
fn await_listed(gateway: &Gateway, host: &str, expected: &[&str]) {
    let mut names = Vec::new();
    let listed = || {
        let reply = ask(gateway, host, "/stats/?format=json&rows=all");
        let told: serde_json::Value = serde_json::from_str(&reply.text()).unwrap_or_default();
        let rows = told["rows"].as_array().cloned().unwrap_or_default();
        names = rows
            .iter()
            .filter_map(|row| row[0].as_str().map(str::to_owned))
            .collect();
        names.sort();
        (names == expected).then_some(())
    };
    eventually(PATIENCE, &format!("{expected:?} at {host}"), listed);
}

/// Asks for hosts until an operator sees what for.
fn await_figures(gateway: &Gateway, hosts: &[&str]) {
    for host in hosts {
        let path = format!("/of-{host}");
        let page = format!("/site/{host}/pages");
        eventually(PATIENCE, &format!("figures of {host}"), || {
            // What comes before the recorder reads is not recorded.
            ask(gateway, host, &path);
            let shown = ask(gateway, "console.example", &page).text();
            shown.contains(&path).then_some(())
        });
    }
}

/// Begins to watch a page of a console, and has its first event.
fn watch(gateway: &Gateway, host: &str, target: &str, lines: &str) -> RawClient {
    eventually(PATIENCE, "a first event", || {
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(request(host, target, lines).as_bytes());
        let begin = client.read_exactly("HTTP/1.1 200".len());
        (begin == b"HTTP/1.1 200").then_some(client)
    })
}

/// Reads what is left of a stream, which is to end as a whole one.
fn assert_ends(mut client: RawClient) {
    // It lasts ten minutes by itself: long before that nobody waits here any more.
    client.await_bytes(b"\r\n0\r\n\r\n");
}

#[test]
fn a_console_on_a_site_of_rows_shows_its_rows_tenant_and_no_other() {
    let gateway = gateway(ROWS);
    await_figures(&gateway, &["ann-1.example", "ann-2.example", "bob.example"]);
    for host in ["ann-1.example", "ANN-2.example."] {
        await_listed(&gateway, host, &["ann-1.example", "ann-2.example"]);
    }
    await_listed(&gateway, "bob.example", &["bob.example"]);
    for (host, other) in [("ann-1.example", "bob"), ("bob.example", "ann")] {
        let of_other = match other {
            "bob" => "bob.example",
            _ => "ann-1.example",
        };
        for page in ["pages", "visits?format=csv"] {
            let target = format!("/stats/site/{of_other}/{page}");
            await_status(&gateway, host, &target, 404);
        }
        for page in ["", "load", "now", "limits", "programs", "history"] {
            let shown = await_status(&gateway, host, &format!("/stats/{page}"), 200).text();
            for word in [of_other, &format!("tenant.{other}"), &format!(">{other}<")] {
                assert!(!shown.contains(word), "{host} {page}: {word} in {shown}");
            }
            let named = format!("/stats/{page}?tenant={other}&site={of_other}");
            let shown = await_status(&gateway, host, &named, 200).text();
            assert!(!shown.contains(&format!("of-{of_other}")), "{named}");
        }
        await_status(&gateway, host, "/stats/directories", 404);
    }
    for (host, target) in [("eve.example", "/stats/"), ("own.example", "/")] {
        await_status(&gateway, host, target, 403);
    }
    // It goes over to another tenant, with its figures.
    let moved = ROWS.replace("ann-2.example,ann", "ann-2.example,bob");
    gateway.directory().write("rows.csv", moved);
    let of_bob = ["ann-2.example", "bob.example"];
    eventually(PATIENCE, "a host at its new tenant's", || {
        let shown = ask(&gateway, "ann-2.example", "/stats/?format=csv").text();
        shown.contains("bob.example").then_some(())
    });
    await_listed(&gateway, "bob.example", &of_bob);
    await_listed(&gateway, "ann-1.example", &["ann-1.example"]);
    await_status(
        &gateway,
        "ann-1.example",
        "/stats/site/ann-2.example/pages",
        404,
    );
}

#[test]
fn hosts_of_a_tenant_stay_on_its_console_over_a_reload_until_they_are_forgotten() {
    let mut gateway = gateway(ROWS);
    let hosts = ["ann-1.example", "ann-2.example"];
    await_figures(&gateway, &hosts);
    await_listed(&gateway, "ann-1.example", &hosts);
    let config = CONFIG.replace("body = \"fine\"", "body = \"anew\"");
    gateway.reload(&config);
    eventually(PATIENCE, "the next configuration", || {
        let said = ask(&gateway, "ann-1.example", "/").text();
        said.contains("anew").then_some(())
    });
    // The other is not asked for.
    await_listed(&gateway, "ann-1.example", &hosts);
    operate(&gateway, &["forget", "ann-2.example"]);
    await_listed(&gateway, "ann-1.example", &["ann-1.example"]);
}

#[test]
fn an_open_page_ends_where_its_row_is_anothers_or_its_plan_gives_no_eyes() {
    let gateway = gateway(ROWS);
    let page = "/stats/events?page=now";
    await_figures(&gateway, &["ann-1.example", "bob.example"]);
    let ann = watch(&gateway, "ann-1.example", page, "");
    let bob = watch(&gateway, "bob.example", page, "");
    let by_link = watch_by_link(&gateway, "bob");
    let moved = ROWS.replace("ann-1.example,ann,", "ann-1.example,bob,");
    gateway.directory().write("rows.csv", &moved);
    assert_ends(ann);
    let blind = moved.replace("bob,small", "bob,blind");
    let blind = blind.replace("example,bob,\n", "example,bob,blind\n");
    gateway.directory().write("rows.csv", blind);
    assert_ends(bob);
    for host in ["bob.example", "ann-1.example"] {
        await_status(&gateway, host, "/stats/now", 403);
    }
    assert_ends(by_link);
}

/// Watches the figures of a tenant at the console of a panel.
fn watch_by_link(gateway: &Gateway, tenant: &str) -> RawClient {
    let cookie = eventually(PATIENCE, "a link lets in", || {
        let target = format!("/console/{}", link(gateway, "panel.example", tenant));
        let come = ask(gateway, "panel.example", &target);
        let cookie = come.head.field("set-cookie")?;
        Some(cookie.split(';').next()?.to_owned())
    });
    let lines = format!("Cookie: {cookie}\r\n");
    watch(gateway, "panel.example", "/console/events?page=now", &lines)
}
