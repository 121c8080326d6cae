//! TLS for scripts: the machine's own authorities decide which server is who it says.
//!
//! Their certificates are read once in a worker, by a helper thread, when the first script asks for
//! `https`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where distributions keep the certificates of authorities in one file.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// The largest such file.
const BUNDLE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Begins TLS on connections, once the authorities are known.
pub(crate) struct Tls {
    bundles: Vec<PathBuf>,
    connector: OnceCell<TlsConnector>,
}

impl Default for Tls {
    fn default() -> Self {
        Self::with_bundles(BUNDLES.map(PathBuf::from).to_vec())
    }
}

impl Tls {
    /// Reads the first of these files that is there.
    pub(crate) fn with_bundles(bundles: Vec<PathBuf>) -> Self {
        Self {
            bundles,
            connector: OnceCell::new(),
        }
    }

    /// Agrees on keys with a server and checks that it is the host it should be.
    pub(super) async fn begin(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<Box<TlsStream<TcpStream>>, String> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| format!("`{host}` is no name a certificate can have"))?;
        let connector = self.connector.get_or_try_init(|| self.prepare()).await?;
        let begun = connector.connect(name, stream).await;
        begun.map(Box::new).map_err(|error| format!("TLS: {error}"))
    }

    async fn prepare(&self) -> Result<TlsConnector, String> {
        let bundles = self.bundles.clone();
        let prepared = tokio::task::spawn_blocking(move || configure(&bundles));
        let config = prepared.await.map_err(|error| error.to_string())??;
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn configure(bundles: &[PathBuf]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let pem = read(bundles)?;
    // Some machines have certificates among them that rustls does not take; the others count.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
    if roots.is_empty() {
        return Err("no authority's certificate was found: install ca-certificates".to_owned());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("TLS: {error}"))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn read(bundles: &[PathBuf]) -> Result<Vec<u8>, String> {
    for bundle in bundles {
        match read_one(bundle) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(format!("read {}: {error}", bundle.display())),
            Ok(pem) => return Ok(pem),
        }
    }
    let named: Vec<_> = bundles
        .iter()
        .map(|bundle| bundle.display().to_string())
        .collect();
    let named = named.join(", ");
    Err(format!(
        "no certificates of authorities in {named}: install ca-certificates"
    ))
}

fn read_one(bundle: &Path) -> io::Result<Vec<u8>> {
    let mut pem = Vec::new();
    File::open(bundle)?
        .take(BUNDLE_BYTES_MAX)
        .read_to_end(&mut pem)?;
    Ok(pem)
}
