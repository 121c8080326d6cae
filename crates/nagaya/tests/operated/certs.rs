//! `nagaya certs`: what an operator sees of certificates, and one that is ordered when he says so.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::gateway::Gateway;
use testkit::{PATIENCE, eventually, free_port};

use super::acme::{town, until_certified};
use crate::fixtures::tls::{self, TlsClient, credulous};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");

const CONFIG: &str = r#"
workers = 1
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[tls]
certificates = ["{dir}/*.pem"]
[[sites]]
hosts = ["a.example"]
rules = [{ handler = { respond = { body = "a" } } }]
[[sites]]
hosts = ["figures.example"]
rules = [{ handler = { metrics = "prometheus" } }]
"#;

/// The rows of `certs --json`.
pub(super) fn rows(gateway: &Gateway, name: &str) -> Vec<Value> {
    let (status, out, err) = gateway.command(&["certs", name, "--json"]);
    assert_eq!(status, Some(0), "{err}");
    serde_json::from_str(&out).unwrap()
}

fn metrics(gateway: &Gateway) -> String {
    let request = b"GET / HTTP/1.1\r\nHost: figures.example\r\nConnection: close\r\n\r\n";
    match gateway.ask(request) {
        testkit::client::Outcome::Reply(reply) => String::from_utf8(reply.body).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_misspelt_directory_refuses_a_reload_and_one_that_goes_takes_no_certificate_along() {
    let port = free_port();
    let config = CONFIG.replace("{dir}/*.pem", "{dir}/live/*.pem");
    let builder = Gateway::with_config(BINARY, &config).with("tls", port);
    let directory = builder.directory().path().to_owned();
    let (live, file) = (directory.join("live"), directory.join("nagaya.toml"));
    fs::create_dir(&live).unwrap();
    tls::certificate(&live.join("a.pem"), &["a.example"]);
    fs::set_permissions(live.join("a.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let gateway = builder.start();
    gateway.wait_for_message("anybody on this machine may read the private key");
    let right = fs::read_to_string(&file).unwrap();
    let refused = |name: &str| {
        let (status, _, told) = gateway.command(&["reload"]);
        assert_ne!(status, Some(0), "{told}");
        let why = format!("{name}`: there is no such directory, and certificates would be lost");
        assert!(told.contains(&why), "{told}");
    };
    fs::write(&file, right.replace("/live/", "/lvie/")).unwrap();
    refused("/lvie");
    fs::write(&file, right).unwrap();
    fs::remove_dir_all(&live).unwrap();
    gateway.wait_for_message("those known stay: ");
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let client = TlsClient::connect(&credulous(), [127, 0, 0, 1], to, "a.example");
    assert_eq!(client.unwrap().get("/").unwrap().0, 200);
    refused("/live");
}

#[test]
fn each_certificate_is_told_with_what_was_done_with_it_and_what_is_wrong() {
    let port = free_port();
    let builder = Gateway::with_config(BINARY, CONFIG).with("tls", port);
    let directory = builder.directory().path().to_owned();
    tls::certificate(&directory.join("a.pem"), &["a.example", "www.a.example"]);
    let gateway = builder.start();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut client =
        TlsClient::connect(&credulous(), [127, 0, 0, 1], address, "a.example").unwrap();
    assert_eq!(client.get("/").unwrap().0, 200);

    let row = rows(&gateway, "a.example").remove(0);
    assert_eq!(
        (&row["source"], &row["handshakes"]),
        (&"file".into(), &1.into())
    );
    assert_eq!(
        (&row["client_alerts"], &row["key"]),
        (&0.into(), &"P-256".into())
    );
    let days = row["valid_s"].as_i64().unwrap() / 86_400;
    assert!((29..=30).contains(&days), "{row}");
    let (_, table, _) = gateway.command(&["certs"]);
    let shown = format!("{}/a.pem", directory.display());
    assert!(
        table.contains("a.example +1") && table.contains(&shown),
        "{table}"
    );

    // A client that does not believe it says so, and that is counted.
    let believes_nobody = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let refused = TlsClient::connect(
        &believes_nobody.into(),
        [127, 0, 0, 1],
        address,
        "a.example",
    );
    assert!(refused.is_err());
    eventually(PATIENCE, "an alert", || {
        (rows(&gateway, "www.a.example")[0]["client_alerts"] == 1).then_some(())
    });

    // A broken file keeps the certificate, and says so.
    fs::write(directory.join("a.pem"), "nothing").unwrap();
    let problem = eventually(PATIENCE, "a problem", || {
        rows(&gateway, "a.example")[0]["problem"]
            .as_str()
            .map(str::to_owned)
    });
    assert!(problem.contains("a.pem"), "{problem}");
    let (_, status, _) = gateway.command(&["status"]);
    assert!(status.contains("certificates 1 · 1 broken"), "{status}");
    let text = metrics(&gateway);
    for sample in [
        "nagaya_certificates{source=\"file\"} 1",
        "nagaya_certificates_broken 1",
        "nagaya_certificates_ending{days=\"30\"} 1",
        "nagaya_certificate_expiry_seconds{name=\"a.example\"} ",
        "nagaya_keeper_signatures_total 2",
        "nagaya_keeper_up 1",
        "nagaya_tenant_handshakes_total{tenant=\"a.example\"} 1\n",
        "nagaya_tenant_handshake_cpu_seconds_total{tenant=\"a.example\"} 0.",
        "nagaya_keeper_refused_total{reason=\"key_cap\"} 0",
    ] {
        assert!(text.contains(sample), "{sample} is missing in:\n{text}");
    }
    let (code, _, err) = gateway.command(&["certs", "no.example"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no certificate is for no.example"), "{err}");
    let (code, _, err) = gateway.command(&["certs", "renew", "a.example"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("is ordered of an authority"), "{err}");
}

#[test]
fn a_keeper_that_died_is_told_and_counted() {
    let builder = Gateway::with_config(BINARY, CONFIG).with("tls", free_port());
    tls::certificate(&builder.directory().path().join("a.pem"), &["a.example"]);
    let gateway = builder.start();
    let pid = gateway.keeper_pid();
    let (_, status, _) = gateway.command(&["status"]);
    assert!(
        status.contains(&format!("keeper       pid {pid} · 0 signatures")),
        "{status}"
    );
    let raw = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(raw, Signal::KILL).unwrap();
    eventually(PATIENCE, "another keeper", || {
        let text = metrics(&gateway);
        let is_back = text.contains("nagaya_keeper_restarts_total 1");
        (is_back && text.contains("nagaya_keeper_up 1")).then_some(())
    });
}

#[test]
fn a_certificate_is_ordered_when_an_operator_says_so_and_he_is_told_what_came_of_it() {
    let Some(town) = town("http-01", &[]) else {
        return;
    };
    let gateway = town.reached().start();
    let file = until_certified(&town);
    let order = eventually(PATIENCE, "the first order", || {
        let order = rows(&gateway, "example.jp").remove(0)["order"].clone();
        (order["issued"] == 1).then_some(order)
    });
    assert_eq!(
        (&order["here"], &order["failures"]),
        (&true.into(), &0.into())
    );
    assert!(
        order["next_try"].as_str() > order["last_try"].as_str(),
        "{order}"
    );
    let before = fs::read(&file).unwrap();
    let (code, out, err) = gateway.command(&["certs", "renew", "example.jp"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.contains("the certificate for example.jp was issued"),
        "{out}"
    );
    assert_ne!(fs::read(&file).unwrap(), before);
    let (_, status, _) = gateway.command(&["status"]);
    assert!(status.contains("acme         pid "), "{status}");

    // Another server is told what the one before knew.
    let server = Pid::from_raw(i32::try_from(gateway.server_pid()).unwrap()).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    eventually(PATIENCE, "another server that knows", || {
        let (code, out, _) = gateway.command(&["certs", "example.jp", "--json"]);
        let rows: Vec<Value> = serde_json::from_str(&out).ok()?;
        let tries = rows.first()?["order"]["tries"].as_u64()?;
        (code == Some(0) && tries == 2).then_some(())
    });

    // Names are looked at, and nothing is ordered.
    let issued = fs::read(&file).unwrap();
    let (code, out, err) = gateway.command(&["certs", "rehearse", "example.jp"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("with all 2 names"), "{out}");
    let (code, out, err) = gateway.command(&["certs", "rehearse"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(
        out,
        "1/1 www.example.jp: the authority takes all 2 names for yours\nall 1 certificates would be issued\n"
    );
    assert_eq!(fs::read(&file).unwrap(), issued);

    // Without its authority an order fails, and the certificate that is there serves on.
    drop(town.pebble);
    let (code, _, err) = gateway.command(&["certs", "renew", "www.example.jp"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("no certificate for www.example.jp:"), "{err}");
    let row = rows(&gateway, "www.example.jp").remove(0);
    assert!(
        row["problem"].is_string() && row["valid_s"].as_i64() > Some(0),
        "{row}"
    );
    assert_eq!(row["order"]["failures"], 1);
    let (code, _, err) = gateway.command(&["certs", "rehearse", "www.example.jp"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("would not be issued"), "{err}");
    let (code, out, err) = gateway.command(&["certs", "rehearse"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.starts_with("1/1 www.example.jp: would not be issued: "),
        "{out}"
    );
    assert!(
        err.contains("0 would be issued, 1 would not: www.example.jp\n"),
        "{err}"
    );
}
