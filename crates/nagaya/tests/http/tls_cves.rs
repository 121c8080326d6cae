//! What has gone wrong in other servers' TLS, a test named after each: none of it goes wrong here.
//!
//! CVE-2025-23419 (a session of a site without client certificates opens one that wants them) is in `tls.rs`.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use testkit::{Gateway, eventually};

use crate::fixtures::tls::{self, PATIENCE, TlsClient, connect_from};
use crate::tls::{FINE, gateway_with, python};

const CLIENT: [u8; 4] = [127, 5, 0, 1];

/// A gateway with a site that anybody is let into, and one for the staff: by their certificates.
fn staff_and_others() -> (Gateway, SocketAddr) {
    let sites = format!(
        "[[sites]]\nhosts = [\"open.example\"]\n{FINE}\
         [[sites]]\nhosts = [\"staff.example\", \"*.staff.example\"]\n{FINE}\
         tls = {{ client_ca = \"{{dir}}/staff.pem\" }}\n"
    );
    gateway_with("{ default = \"open.example\" }", &sites, |directory| {
        tls::certificate(&directory.join("staff.pem"), &["staff"]);
        tls::certificate(&directory.join("live/wild.pem"), &["*.staff.example"]);
    })
}

fn record(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
    [&[22, 3, 1][..], &length, payload].concat()
}

/// Sends these bytes, and tells what comes until the connection ends.
fn answered(to: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = connect_from(CLIENT, to).expect("a connection");
    stream.write_all(sent).expect("taken");
    let mut received = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut received);
    received
}

fn is_well(to: SocketAddr, gateway: &Gateway) {
    let client = TlsClient::connect(&tls::credulous(), CLIENT, to, "open.example");
    let reply = client.expect("a handshake").get("/");
    assert_eq!(reply.expect("a reply").0, 200);
    let log = gateway.stderr();
    assert!(!log.contains("panic"), "{log}");
}

/// Traefik took the default's terms where a hello came in several records, and so without a name that it saw.
#[test]
fn cve_2026_32305_a_hello_in_pieces_comes_under_the_terms_of_its_name() {
    let (gateway, to) = staff_and_others();
    let config = tls::credulous();
    for pieces in [2, 7, 60] {
        let name = ServerName::try_from("staff.example").expect("a name");
        let mut session = ClientConnection::new(config.clone(), name).expect("a client");
        let mut hello = Vec::new();
        session.write_tls(&mut hello).expect("bytes");
        let mut stream = connect_from(CLIENT, to).expect("a connection");
        for part in hello[5..].chunks(hello.len().div_ceil(pieces)) {
            stream.write_all(&record(part)).expect("taken");
        }
        let mut stream = rustls::Stream::new(&mut session, &mut stream);
        let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: staff.example\r\n\r\n");
        let reply = asked.and_then(|()| stream.read(&mut [0; 100]));
        let refused = reply.expect_err("it wants a certificate").to_string();
        assert!(
            refused.contains("CertificateRequired"),
            "{pieces}: {refused}"
        );
    }
    is_well(to, &gateway);
}

/// Traefik looked for a name's terms by other rules than for its site: upper case, a dot at the end, wildcards.
#[test]
fn cve_2022_23632_a_name_has_its_terms_however_it_is_spelt() {
    let (_gateway, to) = staff_and_others();
    let script = r#"
def status(name, host):
    try: return ask(connect(context(), name), host)[0]
    except (ssl.SSLError, ConnectionError, EOFError): return "refused"
for name in ("staff.example", "STAFF.example", "staff.example.", "a.staff.example", "A.Staff.Example."):
    print(status(name, name), status("open.example", name))
"#;
    assert_eq!(python(to, script, &[]), "refused 421\n".repeat(5));
}

/// Starts with this `client_ca`; whether it was refused, and what was said.
fn refused(authority: Option<&[u8]>) -> String {
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:{{port}}\"\ntls = true\n\
         [tls]\ncertificates = [\"{{dir}}/all.pem\"]\n\
         [[sites]]\nhosts = [\"staff.example\"]\n{FINE}tls = {{ client_ca = \"{{dir}}/staff.pem\" }}\n"
    );
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config);
    let directory = builder.directory().path().to_owned();
    tls::certificate(&directory.join("all.pem"), &["*.example"]);
    if let Some(bytes) = authority {
        std::fs::write(directory.join("staff.pem"), bytes).expect("a file");
    }
    let mut gateway = builder.launch();
    assert!(!gateway.wait().success());
    gateway.stderr()
}

/// Caddy and Traefik let everybody in where the file of authorities could not be read.
#[test]
fn cve_2026_27586_and_cve_2022_46153_an_authority_that_cannot_be_read_lets_nobody_in() {
    let broken = b"-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n";
    for (what, bytes) in [
        ("absent", None),
        ("empty", Some(&b""[..])),
        ("no PEM", Some(b"staff")),
        ("no certificate", Some(broken)),
    ] {
        let said = refused(bytes);
        assert!(said.contains("staff.pem"), "{what}: {said}");
    }
}

/// rustls could be made to panic by a hello that its acceptor took in parts.
#[test]
fn rustsec_2024_0399_no_hello_however_crafted_ends_a_worker() {
    let (gateway, to) = staff_and_others();
    let hello = tls::hello(&tls::credulous(), "open.example");
    let alert = [21, 3, 1, 0, 2, 1, 0];
    for end in (1..hello.len()).step_by(hello.len() / 40) {
        let (begin, rest) = hello[5..].split_at(end.min(hello.len() - 6));
        let _ = answered(to, &[&record(begin)[..], &alert].concat());
        let _ = answered(
            to,
            &[record(begin), vec![22, 3, 1, 0, 0], record(rest)].concat(),
        );
        let _ = answered(to, &[record(begin), record(&[0]), record(rest)].concat());
        let mut changed = hello.clone();
        changed[4 + end] ^= 0xff;
        changed.extend([20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 1, 0]);
        let _ = answered(to, &changed);
    }
    is_well(to, &gateway);
}

/// rustls took messages of a handshake that stood on both sides of a change of keys.
#[test]
fn rustsec_2026_0285_nothing_stands_behind_a_hello_before_the_keys_change() {
    let (gateway, to) = staff_and_others();
    let hello = tls::hello(&tls::credulous(), "open.example");
    let finished = [&[20, 0, 0, 32][..], &[7; 32]].concat();
    for (what, behind) in [
        ("a message", &finished[..]),
        ("a part of one", &finished[..9]),
        ("a byte", &[20]),
    ] {
        let received = answered(to, &record(&[&hello[5..], behind].concat()));
        let (last, alert) = (received.len().saturating_sub(7), [21, 3, 3, 0, 2, 2, 10]);
        assert_eq!(received[last..], alert, "{what}: unexpected_message");
    }
    is_well(to, &gateway);
}

/// rustls went round without end where a client said good-bye amid a handshake.
#[test]
fn cve_2024_32650_a_good_bye_amid_a_handshake_is_its_end() {
    let (gateway, to) = staff_and_others();
    let hello = tls::hello(&tls::credulous(), "open.example");
    let _ = answered(to, &[&hello[..], &[21, 3, 3, 0, 2, 1, 0]].concat());
    let busy_us = || {
        let path = format!("/proc/{}/stat", gateway.server_pid());
        let stat = std::fs::read_to_string(Path::new(&path)).expect("its state");
        let fields: Vec<_> = stat.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        (ticks(13) + ticks(14)) * 10_000
    };
    eventually(PATIENCE, "the server rests", || {
        let begun = busy_us();
        std::thread::sleep(std::time::Duration::from_millis(300));
        (busy_us() - begun < 100_000).then_some(())
    });
    is_well(to, &gateway);
}
