//! Which certificate a host of a directory is shown: the one that its row names, where that is good for it.

use std::fs;
use std::net::SocketAddr;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use testkit::wait::free_port;
use testkit::{Gateway, PATIENCE, eventually};

use crate::fixtures::tls::{TlsClient, certificate, credulous};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[tls]
certificates = ["{dir}/certs/*.pem", "{dir}/live/*"]
[directories.customers]
source = "file:{dir}/rows.csv"
keep = "1s"
missing = "1s"
[[sites]]
hosts = { directory = "customers" }
tenant = "$row.tenant"
tls = { certificate = "$row.cert" }
rules = [{ handler = { respond = { body = "$row.tenant" } } }]
[[sites]]
hosts = ["own.example"]
tenant = "own"
tls = { certificate = "{dir}/certs/theirs.pem" }
rules = [{ handler = { respond = { body = "own" } } }]
"#;

/// What is shown to a client that asks for a host, and answered over it.
fn shown(to: SocketAddr, host: &str) -> Option<(Vec<u8>, u16)> {
    let client = TlsClient::connect(&credulous(), [127, 0, 0, 1], to, host);
    let mut client = client.ok()?;
    Some((client.shown(), client.get("/").unwrap().0))
}

#[test]
fn a_row_names_its_certificate_which_is_shown_where_it_is_good_for_the_host_and_is_nobodys() {
    let port = free_port();
    let prepared = Gateway::with_config(BINARY, CONFIG).with("tls", port);
    let at = prepared.directory().path().to_owned();
    fs::create_dir_all(at.join("certs")).unwrap();
    fs::create_dir_all(at.join("live/bots")).unwrap();
    let files = [
        ("wide", "certs/wide.pem", "*.rows.example"),
        ("first", "certs/first.pem", "a.rows.example"),
        ("second", "certs/second.pem", "a.rows.example"),
        ("theirs", "certs/theirs.pem", "a.rows.example"),
        ("bots", "live/bots/fullchain.pem", "b.rows.example"),
    ];
    let ders = files.map(|(name, file, host)| {
        certificate(&at.join(file), &[host]);
        let der = CertificateDer::from_pem_file(at.join(file)).unwrap();
        (name, der.to_vec())
    });
    let bots = at.join("live/bots/fullchain.pem");
    fs::copy(&bots, bots.with_file_name("privkey.pem")).unwrap();
    let rows = |first: &str| {
        format!(
            "host,tenant,cert\na.rows.example,a,{first}\nb.rows.example,b,bots\n\
             c.rows.example,c,second\nd.rows.example,d,\n"
        )
    };
    prepared.directory().write("rows.csv", rows("second"));
    let gateway = prepared.start();
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let called = |host: &str| {
        let (shown, status) = shown(to, host)?;
        assert_eq!(status, 200, "{host}: {}", gateway.stderr());
        let found = ders.iter().find(|(_, der)| *der == shown);
        Some(found.map_or("another", |(name, _)| name))
    };
    for (host, expected) in [
        ("a.rows.example", "second"),
        ("b.rows.example", "bots"),
        // What it names is another host's.
        ("c.rows.example", "wide"),
        ("d.rows.example", "wide"),
    ] {
        assert_eq!(called(host), Some(expected), "{host}: {}", gateway.stderr());
    }
    let said = gateway.stderr();
    assert!(
        said.contains("the row names certificate \"second\""),
        "{said}"
    );
    // A written site's is nobody's else, whatever it is good for, and a path is no name.
    for named in ["theirs", "../certs/first", "no"] {
        gateway.directory().write("rows.csv", rows(named));
        eventually(PATIENCE, "a complaint", || {
            let called = called("a.rows.example").unwrap();
            assert!(["first", "second"].contains(&called), "{called}");
            let complaint = format!("the row names certificate {named:?}");
            gateway.stderr().contains(&complaint).then_some(())
        });
    }
    gateway.directory().write("rows.csv", rows("first"));
    eventually(PATIENCE, "the changed row", || {
        (called("a.rows.example") == Some("first")).then_some(())
    });
}
