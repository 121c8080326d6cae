//! Figures of tenants of rows: operators see them as those of written ones, and each tenant its own.

use std::time::Duration;

use serde_json::Value;
use testkit::wait::free_port;
use testkit::{Gateway, eventually};

use crate::fixtures::tls::certificate;

const PATIENCE: Duration = Duration::from_secs(90);

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[tls]
certificates = ["{dir}/certs/*.pem"]
[recorder]
directory = "{dir}/figures"
[directories.customers]
source = "file:{dir}/rows.csv"
wait = "60s"
[plans.small]
limits = [{ name = "few", key = "tenant", rate = "1/h", burst = 1, match = { path = "/few" } }]
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
[[sites]]
hosts = ["console.example"]
tenant = "operator"
record = false
rules = [{ allow = ["127.0.0.1"], handler = { console = true } }]
[tenants.operator]
"#;

const ROWS: &str = "host,tenant,plan\nann.example,ann,small\nbob.example,bob,small\n";

/// The rows of a list; none where there is no answer.
fn rows(gateway: &Gateway, host: &str, target: &str) -> Vec<Vec<Value>> {
    let told: Value = serde_json::from_str(&gateway.get(host, target).text()).unwrap_or_default();
    serde_json::from_value(told["rows"].clone()).unwrap_or_default()
}

/// Asks again until a list has a row that begins so; all of its rows.
fn await_row(gateway: &Gateway, (host, target): (&str, &str), begin: &[&str]) -> Vec<Vec<Value>> {
    let mut seen = Vec::new();
    let found = || {
        // What comes before the recorder reads is not recorded.
        for host in ["ann.example", "bob.example"] {
            gateway.get(host, "/few");
        }
        seen = rows(gateway, host, target);
        let is_it = |row: &&Vec<Value>| row.iter().zip(begin).all(|(cell, it)| cell == it);
        seen.iter().any(|row| is_it(&row)).then(|| seen.clone())
    };
    eventually(PATIENCE, &format!("{begin:?} at {host}{target}"), found)
}

#[test]
fn tenants_of_rows_have_their_figures_with_operators_and_see_their_own() {
    let prepared = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let prepared = prepared.with("tls", free_port());
    prepared.directory().write("rows.csv", ROWS);
    let certificates = prepared.directory().path().join("certs");
    std::fs::create_dir_all(&certificates).unwrap();
    for (file, names) in [
        ("ann.pem", &["ann.example"][..]),
        ("bob.pem", &["bob.example"]),
        ("both.pem", &["ann.example", "bob.example"]),
    ] {
        certificate(&certificates.join(file), names);
    }
    let gateway = prepared.start();
    let load = ("console.example", "/load?format=json&list=tenants");
    eventually(PATIENCE, "requests of both tenants", || {
        let seen = await_row(&gateway, load, &["ann"]);
        let named = |name: &str| seen.iter().find(|row| row[0] == name);
        assert!(named("directory:customers").is_none(), "{seen:?}");
        let has_requests = |name: &str| named(name)?[1].as_f64().filter(|count| *count > 0.0);
        has_requests("ann").and(has_requests("bob"))
    });
    for (own, other) in [("ann", "bob"), ("bob", "ann")] {
        let host = format!("{own}.example");
        for (list, begin) in [
            ("/stats/now?format=json&list=tenants", [own].as_slice()),
            (
                "/stats/certificates?format=json&list=certificates",
                &[&host],
            ),
            (
                "/stats/limits?format=json&list=keys",
                &["plan small/few", own],
            ),
            (
                "/stats/limits?format=json&list=refused-keys",
                &["plan small/few", own],
            ),
            (
                "/stats/limits?format=json&list=causes",
                &[&format!("refused by plan small/few {own}")],
            ),
        ] {
            let seen = await_row(&gateway, (&host, list), begin);
            let told = serde_json::to_string(&seen).unwrap();
            let other_host = format!("{other}.example");
            assert!(!told.contains(&other_host), "{list} of {own}: {told}");
            let is_there =
                told.contains(&format!("\"{other}\"")) || told.contains(&format!(" {other}\""));
            assert!(!is_there, "{list} of {own}: {told}");
        }
        let now = gateway.get(&host, "/stats/now").text();
        assert!(!now.contains("directory:"), "{now}");
    }
}
