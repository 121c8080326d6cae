//! TLS over a non-blocking socket. Nothing about certificates is checked: a load goes to one's own servers.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, NamedGroup,
    ProtocolVersion, SignatureScheme, SupportedCipherSuite,
};

use super::io::{receive, send};
use super::key_bits::key_bits;
use super::outcome::TlsFacts;
use super::plan::{Protocol, Tls, TlsResume, TlsVersion};

/// Reads of the socket for one of its data.
const FILLS_MAX: usize = 16;
/// Servers whose sessions are kept; each gives its newest tickets, which serve once.
const SESSIONS_MAX: usize = 64;
/// What HTTP/2 is called in ALPN.
const HTTP2: &[u8] = b"h2";
/// A prime, so that steps of it come to every name.
const NAMES_STEP: usize = 7_919;

/// What every connection to an endpoint begins with.
#[derive(Debug, Clone)]
pub(crate) struct TlsTarget {
    config: Arc<ClientConfig>,
    names: Arc<[ServerName<'static>]>,
    /// Connections so far.
    begun: Arc<AtomicUsize>,
}

impl TlsTarget {
    pub(crate) fn new(tls: &Tls, protocol: Protocol) -> Result<TlsTarget, String> {
        let mut provider = aws_lc_rs::default_provider();
        keep_suites(&mut provider, &tls.suites)?;
        keep_groups(&mut provider, &tls.groups)?;
        let provider = Arc::new(provider);
        let versions = match tls.versions.as_slice() {
            [] => vec![&TLS13, &TLS12],
            some => some
                .iter()
                .map(|version| match version {
                    TlsVersion::V12 => &TLS12,
                    TlsVersion::V13 => &TLS13,
                })
                .collect(),
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|e| format!("TLS with these versions and cipher suites: {e}"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unchecked(provider)));
        let mut config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let shown = file.display();
                let pem = std::fs::read(file).map_err(|e| format!("read {shown}: {e}"))?;
                let certificates: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(&pem).collect();
                let certificates =
                    certificates.map_err(|e| format!("read the certificate in {shown}: {e}"))?;
                let key = PrivateKeyDer::from_pem_slice(&pem)
                    .map_err(|e| format!("read the private key in {shown}: {e}"))?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|e| format!("use the certificate in {shown}: {e}"))?
            }
        };
        config.enable_sni = tls.sni;
        if let Protocol::Http2 { .. } = protocol {
            config.alpn_protocols = vec![HTTP2.to_vec()];
        }
        config.resumption = match tls.resume {
            TlsResume::Never => Resumption::disabled(),
            TlsResume::Always => Resumption::in_memory_sessions(SESSIONS_MAX),
        };
        let name = |name: &String| {
            ServerName::try_from(name.clone())
                .map_err(|_| format!("`{name}` is no name TLS can ask for"))
        };
        let names = std::iter::once(&tls.name).chain(&tls.more_names).map(name);
        Ok(TlsTarget {
            config: Arc::new(config),
            names: names.collect::<Result<_, _>>()?,
            begun: Arc::default(),
        })
    }

    /// The name of the next connection: far from the one before, and each as often as the others.
    fn next_name(&self) -> Option<ServerName<'static>> {
        let nth = match self.names.len() {
            1 => 0,
            _ => self.begun.fetch_add(1, Ordering::Relaxed),
        };
        let at = nth.wrapping_mul(NAMES_STEP) % self.names.len().max(1);
        self.names.get(at).cloned()
    }
}

fn keep_suites(provider: &mut CryptoProvider, names: &[String]) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    let known: Vec<String> = provider.cipher_suites.iter().map(suite_name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        return Err(format!(
            "the cipher suite `{unknown}` is not known; there are {known}"
        ));
    }
    let kept = |suite: &SupportedCipherSuite| names.contains(&suite_name(suite));
    provider.cipher_suites.retain(kept);
    Ok(())
}

fn keep_groups(provider: &mut CryptoProvider, names: &[String]) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    let name = |group: NamedGroup| format!("{group:?}");
    let known: Vec<String> = provider
        .kx_groups
        .iter()
        .map(|group| name(group.name()))
        .collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        return Err(format!(
            "the group `{unknown}` is not known; there are {known}"
        ));
    }
    let kept = |group: &&dyn SupportedKxGroup| names.contains(&name(group.name()));
    provider.kx_groups.retain(kept);
    Ok(())
}

/// The standard's name: rustls marks the suites of TLS 1.3 in its own way.
fn suite_name(suite: &SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or("unknown");
    name.replace("TLS13_", "TLS_")
}

/// A connection in TLS.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: OwnedFd,
    session: ClientConnection,
}

impl TlsStream {
    pub(crate) fn new(socket: OwnedFd, target: &TlsTarget) -> Result<TlsStream, rustls::Error> {
        let name = target
            .next_name()
            .ok_or(rustls::Error::HandshakeNotComplete)?;
        let session = ClientConnection::new(target.config.clone(), name)?;
        Ok(TlsStream { socket, session })
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether something waits to be written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Goes on agreeing on keys; true once that is done.
    pub(crate) fn agree(&mut self) -> io::Result<bool> {
        loop {
            if !self.flush()? {
                return Ok(false);
            }
            if !self.session.is_handshaking() {
                return Ok(true);
            }
            match self.fill() {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what there is; 0 is the end. Records without data are no reason to stay for ever:
    /// what is left in the socket makes it ready again.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..FILLS_MAX {
            match self.take(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            self.fill()?;
            if self.session.wants_write() {
                self.flush()?;
            }
        }
        self.take(buffer)
    }

    /// Takes what was read and made plain.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.session.reader().read(buffer) {
            // An end without a farewell is an end: whether it cuts a reply, HTTP tells.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            result => result,
        }
    }

    /// Takes what fits; see [`TlsStream::has_unsent`] for whether all of it is on its way.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = self.session.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    /// Writes what waits; false where the socket takes no more of it just now.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads records; 0 is the end.
    fn fill(&mut self) -> io::Result<usize> {
        let count = self.session.read_tls(&mut Socket(&self.socket))?;
        if let Err(error) = self.session.process_new_packets() {
            // The other side is told why, if it still listens.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(count)
    }

    /// Whether it has taken up the session of another.
    pub(crate) fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether the server has chosen HTTP/2.
    pub(crate) fn chose_http2(&self) -> bool {
        self.session.alpn_protocol() == Some(HTTP2)
    }

    /// What was agreed on.
    pub(crate) fn facts(&self) -> TlsFacts {
        let suite = self.session.negotiated_cipher_suite();
        let suite = suite.as_ref().map(suite_name).unwrap_or_default();
        let certificate = self.session.peer_certificates().and_then(<[_]>::first);
        let group = self.session.negotiated_key_exchange_group();
        TlsFacts {
            version: match self.session.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
                _ => "unknown".to_owned(),
            },
            server_key_bits: certificate.map_or(0, |c| key_bits(c).unwrap_or_default()),
            cipher_bits: match suite.contains("AES_128") {
                true => 128,
                false => 256,
            },
            suite,
            temporary_key: group.map(|group| match group.name() {
                NamedGroup::X25519 => "X25519 253 bits".to_owned(),
                NamedGroup::secp256r1 => "ECDH prime256v1 256 bits".to_owned(),
                NamedGroup::secp384r1 => "ECDH secp384r1 384 bits".to_owned(),
                other => format!("{other:?}"),
            }),
        }
    }
}

/// TLS over a socket that blocks, for whoever makes a connection of his own.
#[derive(Debug)]
pub struct Secured(TlsStream);

impl Secured {
    /// Agrees on keys, which takes as long as the socket's timeouts let it.
    ///
    /// # Errors
    /// What cannot be spoken as asked for, and failures of the socket.
    pub fn over(socket: OwnedFd, tls: &Tls) -> io::Result<Secured> {
        let target = TlsTarget::new(tls, Protocol::Http1).map_err(io::Error::other)?;
        let mut stream = TlsStream::new(socket, &target).map_err(io::Error::other)?;
        match stream.agree()? {
            true => Ok(Secured(stream)),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }

    /// The socket, still open; the session is forgotten.
    #[must_use]
    pub fn into_socket(self) -> OwnedFd {
        self.0.socket
    }
}

impl Read for Secured {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Secured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map(drop)
    }
}

struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(self.0, buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Believes every certificate.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
