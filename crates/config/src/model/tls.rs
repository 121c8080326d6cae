//! TLS: which listeners speak it, where certificates are, and what a site asks of its clients.

use std::path::PathBuf;
use std::sync::Arc;

/// `tls` of `[[listen]]`: its clients begin with a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenTls {
    /// Whose certificate is shown to a client that names no host, or one nobody has.
    pub default: Option<String>,
}

/// `[tls]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Globs of PEM files that hold a chain and its key, and of directories as certbot makes them;
    /// absolute.
    pub certificates: Vec<String>,
    /// What is spoken, oldest first; never empty.
    pub versions: Vec<TlsVersion>,
    /// How long tickets are sealed with one key, in milliseconds.
    pub tickets_ms: u64,
    /// What their keys are derived from, where machines share it.
    pub ticket_secret: Option<PathBuf>,
    /// Directories below which scripts may name certificates and keys; absolute.
    pub script_files: Vec<PathBuf>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the protocol's own")]
pub enum TlsVersion {
    V12,
    V13,
}

/// `tls` of `[[sites]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteTls {
    /// The files of its certificate; `None` where it is found by name among those of `[tls]`.
    pub files: Option<CertificateFiles>,
    /// Whether it is made here, by an authority for development, where there are no files.
    pub local: bool,
    /// Whose account its certificate is ordered with; index into [`super::Model::acme`].
    pub acme: Option<usize>,
    /// Whether scripts may choose what is shown.
    pub script: bool,
    /// What it asks of clients; `None` for nothing.
    pub client: Option<Arc<ClientCertificates>>,
    /// Whether what comes without TLS is sent to the same address with it.
    pub redirect: bool,
    /// How long browsers are told to come with TLS alone (RFC 6797), in seconds.
    pub hsts_s: Option<u64>,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, the site's own certificate first.
    pub certificate: PathBuf,
    /// The private key; the same file where it holds both.
    pub key: PathBuf,
    /// Whether the file of the configuration that names them may be set aside: what is wrong with
    /// them is then its site's loss alone.
    pub is_loose: bool,
}

/// What a site asks of its clients' certificates.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Certificates of the authorities that are believed, in PEM, read when the configuration was
    /// loaded.
    pub authorities: Arc<[u8]>,
    /// Their file, for messages.
    pub file: PathBuf,
    /// What becomes of a client that shows none.
    pub mode: ClientAuth,
}

/// What becomes of a client that shows no certificate. One that shows a wrong one is always refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// It is refused in the handshake.
    Require,
    /// It is let in, without one.
    Ask,
}
