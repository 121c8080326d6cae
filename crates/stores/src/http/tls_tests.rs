//! The client over TLS, against a server that this test is itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::limits::Limits;
use crate::peer::{Peer, Step};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Signed by the authority for `localhost` and 127.0.0.1.
const SERVER: &str = "localhost.pem";
const AUTHORITY: &str = "authority.pem";

fn key(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/keys")
        .join(name)
}

fn stores(authorities: PathBuf) -> Rc<Stores> {
    let limits = Limits {
        connect_timeout: Duration::from_secs(60),
        command_timeout: Duration::from_secs(60),
        ..Limits::default()
    };
    Stores::with_authorities(limits, authorities)
}

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(key(SERVER)).expect("a certificate");
    let private = PrivateKeyDer::from_pem_file(key(SERVER)).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private)
        .expect("the key fits the certificate");
    TlsAcceptor::from(Arc::new(config))
}

/// A server that answers everything, and how many connections it has accepted.
async fn serve(host: &str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((host, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let acceptor = acceptor();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(answer(acceptor.clone(), stream));
        }
    });
    (address, accepted)
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut heard = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut heard).await {
        if heard.ends_with(b"\r\n\r\n") {
            heard.clear();
            if stream.write_all(OK).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    }
}

fn get(host: &str, address: SocketAddr) -> Request {
    Request {
        method: "GET".to_owned(),
        url: format!("https://{host}:{}/", address.port()),
        ..Request::default()
    }
}

#[tokio::test]
async fn a_server_the_authorities_vouch_for_is_asked_over_one_connection() {
    let (address, accepted) = serve("127.0.0.1").await;
    let stores = stores(key(AUTHORITY));
    for _ in 0..3 {
        let response = stores
            .http(get("127.0.0.1", address))
            .await
            .expect("a reply");
        assert_eq!(
            (response.status, response.body.as_slice()),
            (200, &b"ok"[..])
        );
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
    let by_name = stores.http(get("localhost", address)).await;
    assert_eq!(by_name.expect("a reply").body, b"ok");
}

#[tokio::test]
async fn a_server_nobody_vouches_for_is_refused() {
    let (address, _) = serve("127.0.0.1").await;
    let (other, _) = serve("127.0.0.2").await;
    let cases = [
        (stores(key(SERVER)), "127.0.0.1", address, "UnknownIssuer"),
        (
            stores(key(AUTHORITY)),
            "127.0.0.2",
            other,
            "not valid for name",
        ),
        (
            stores(key("none.pem")),
            "127.0.0.1",
            address,
            "install ca-certificates",
        ),
    ];
    for (stores, host, address, words) in cases {
        let error = stores.http(get(host, address)).await.expect_err("no trust");
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        let begin = format!("connect to HTTPS server {address}: ");
        assert!(error.to_string().starts_with(&begin), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_an_error_of_connecting() {
    let peer = Peer::start(vec![vec![Step::Send(OK)]]).await;
    let asked = stores(key(AUTHORITY)).http(get("127.0.0.1", peer.address()));
    let error = asked.await.expect_err("no TLS");
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    assert!(error.to_string().contains(": TLS: "), "{error}");
}
