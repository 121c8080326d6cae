//! Loads over TLS, against a server that this test is itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{constant, load};
use load::client::{
    Address, Endpoint, Live, Outcome, Plan, ReplyTo, Request, Reuse, Tls, TlsResume, TlsVersion,
    run,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nServer: test\r\nContent-Length: 100000\r\n\r\n";
const BODY_BYTES: usize = 100_000;

fn key_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/keys/p-256.pem")
}

/// A server that answers every request, and leaves with the process.
fn serve() -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(key_file()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key_file()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key fits the certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let config = config.clone();
            std::thread::spawn(move || answer(client, config));
        }
    });
    address
}

fn answer(client: TcpStream, config: Arc<ServerConfig>) {
    let session = ServerConnection::new(config).expect("a session");
    let mut stream = StreamOwned::new(session, client);
    let mut request = [0; 1024];
    let reply = [REPLY, &vec![b'x'; BODY_BYTES]].concat();
    while matches!(stream.read(&mut request), Ok(1..)) {
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

fn plan(tls: Tls) -> Plan {
    let mut plan = Plan::new(vec![Request {
        endpoint: Endpoint {
            address: Address::Tcp(serve()),
            tls: Some(tls),
        },
        bytes: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        numbered: None,
        body_bytes: 0,
        weight: 1,
        reply: ReplyTo::Other,
        patience: None,
        label: "page".to_owned(),
    }]);
    plan.connections = 3;
    plan.end.requests = Some(20);
    plan.end.after = Some(Duration::from_secs(60));
    plan
}

fn check(plan: &Plan) -> Outcome {
    let outcome = load(plan);
    let failures = &outcome.first_failures;
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (20, 0),
        "{failures:?}"
    );
    assert_eq!(outcome.body_bytes, 20 * BODY_BYTES as u64);
    let received = 20 * (REPLY.len() + BODY_BYTES) as u64;
    assert_eq!(outcome.received_bytes, received);
    outcome
}

#[test]
fn a_load_over_tls_says_what_was_agreed_on() {
    for (version, name, suite, group) in [
        (
            TlsVersion::V12,
            "TLSv1.2",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "X25519 253 bits",
        ),
        (
            TlsVersion::V13,
            "TLSv1.3",
            "TLS_AES_128_GCM_SHA256",
            "X25519MLKEM768",
        ),
    ] {
        let mut tls = Tls::to("localhost");
        tls.versions = vec![version];
        tls.suites = vec![suite.to_owned()];
        let outcome = check(&plan(tls));
        assert_eq!(outcome.on_kept_connections, 17);
        let first = outcome.first.expect("replies came");
        assert_eq!((first.status, first.server.as_str()), (200, "test"));
        let facts = first.tls.expect("TLS was spoken");
        assert_eq!(
            (facts.version.as_str(), facts.suite.as_str()),
            (name, suite)
        );
        assert_eq!((facts.server_key_bits, facts.cipher_bits), (256, 128));
        assert_eq!(facts.temporary_key.as_deref(), Some(group));
    }
}

#[test]
fn connections_in_tls_are_closed_or_kept_as_asked() {
    let mut closing = plan(Tls::to("localhost"));
    closing.reuse = Reuse::Close;
    let outcome = check(&closing);
    assert_eq!(outcome.on_kept_connections, 0);
    assert_eq!(outcome.times.connect.count(), 20);
    assert!(outcome.times.connect.min_us > 0);
    let mut open = plan(Tls::to("127.0.0.1"));
    open.pace = constant(500.0);
    // Tickets that come on idle connections are no reason to drop them.
    assert!(check(&open).on_kept_connections >= 15);
}

#[test]
fn handshakes_are_full_or_take_up_a_session_as_asked() {
    for version in [TlsVersion::V12, TlsVersion::V13] {
        for (resume, full) in [(TlsResume::Never, 20), (TlsResume::Always, 3)] {
            let mut tls = Tls::to("localhost");
            tls.versions = vec![version];
            tls.resume = resume;
            let mut closing = plan(tls);
            closing.reuse = Reuse::Close;
            let made = check(&closing).handshakes;
            assert_eq!(made.full + made.resumed, 20, "{version:?} {resume:?}");
            // One of the first three may have ended before the others began.
            assert!((1..=full).contains(&made.full), "{version:?} {made:?}");
            assert_eq!(made.resumed > 0, resume == TlsResume::Always);
        }
    }
    assert_eq!(check(&plan(Tls::to("localhost"))).handshakes.full, 3);
}

#[test]
fn a_clients_certificate_and_unknown_suites_are_read_beforehand() {
    let mut tls = Tls::to("localhost");
    tls.identity = Some(key_file());
    check(&plan(tls.clone()));
    let refused = |tls: Tls, part: &str| {
        let error = run(&plan(tls), &Live::new()).expect_err("it cannot be run");
        assert!(error.to_string().contains(part), "{error}");
    };
    tls.identity = Some("/nowhere.pem".into());
    refused(tls.clone(), "read /nowhere.pem: no such file");
    tls.identity = None;
    tls.suites = vec!["ROT13".to_owned()];
    refused(
        tls,
        "`ROT13` is not known; there are TLS_AES_256_GCM_SHA384",
    );
}
