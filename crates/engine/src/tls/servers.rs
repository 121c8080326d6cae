//! On what terms TLS is spoken to the servers of upstreams: who vouches for them, and the name they must have.
//!
//! The idea: terms are an upstream's, and all workers share them; sessions to be resumed are a server's, on one worker,
//! as its connections are. So nothing that began on other terms, or as another's, is ever gone on with.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::model::{Model, ServerAddress, UpstreamTls};
use ipc::certificates::Source;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, Tls12Resumption};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

use super::keeper::{ASIDE, Keeper, KeeperKey};
use super::policy::HTTP11;
use super::session::{Session, SessionFailure};
use super::table::{CertificateTable, Certificates};
use crate::error::{Error, Kind, Result};
use crate::worker::shared::Shared;

/// Names whose sessions are kept with a server: it has one. Of each, rustls keeps eight tickets.
const NAMES_MAX: usize = 1;

/// An upstream's terms.
#[derive(Debug)]
pub(crate) struct ServerTerms {
    /// What they were made of.
    of: Arc<UpstreamTls>,
    config: ClientConfig,
}

/// The terms of a generation's upstreams, by their index; `None` is plain.
pub(crate) type AllServerTerms = Vec<Option<Arc<ServerTerms>>>;

/// TLS to one server, as one worker speaks it.
pub(crate) struct ServerTls {
    /// Held to take a copy of the pointer, or to begin anew.
    current: Mutex<Current>,
    name: ServerName<'static>,
    identity: Option<Arc<Identity>>,
}

/// A configuration with its sessions, all of them begun by who we are now.
struct Current {
    /// The certificate that is shown.
    leaf: Option<CertificateDer<'static>>,
    config: Arc<ClientConfig>,
    /// How often it was another one.
    who: u64,
    /// The set of certificates that it was last looked up in.
    set: u64,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTls({:?})", self.name)
    }
}

/// Makes the terms of a model's upstreams. What stays as it was `before` is kept.
///
/// # Errors
/// A file of authorities that has none, or a name that nobody can have.
pub(crate) fn compile(
    model: &Model,
    before: &[Option<Arc<ServerTerms>>],
) -> Result<AllServerTerms> {
    let mut made: Vec<Arc<ServerTerms>> = before.iter().flatten().cloned().collect();
    let mut verifiers = Verifiers::default();
    let upstreams = model.upstreams.iter();
    let terms = upstreams.map(|upstream| {
        let Some(tls) = &upstream.tls else {
            return Ok(None);
        };
        for server in &upstream.servers {
            name_of(tls, &server.address).ok_or_else(|| {
                let (name, address) = (&upstream.name, &server.address);
                let detail =
                    format!("upstream `{name}`: no certificate can have the name of {address}");
                Error::new(Kind::Internal, "tls_name", detail)
            })?;
        }
        if let Some(same) = made.iter().find(|it| *it.of == **tls) {
            return Ok(Some(Arc::clone(same)));
        }
        let terms = Arc::new(ServerTerms::new(tls, &mut verifiers)?);
        made.push(Arc::clone(&terms));
        Ok(Some(terms))
    });
    terms.collect()
}

/// The name a server must have: the one of the configuration, or that of its address.
fn name_of(tls: &UpstreamTls, address: &ServerAddress) -> Option<ServerName<'static>> {
    let name = match (&tls.name, address) {
        (Some(name), _) => name.trim_start_matches('[').trim_end_matches(']'),
        (None, ServerAddress::Name { host, .. }) => host.trim_end_matches('.'),
        (None, ServerAddress::Tcp(address)) => {
            return Some(ServerName::from(address.ip().to_canonical()));
        }
        (None, ServerAddress::Unix(_)) => return None,
    };
    ServerName::try_from(name.to_owned()).ok()
}

/// What a client offers that believes whom this verifier does.
fn offered(
    verifier: Arc<dyn ServerCertVerifier>,
    provider: Arc<CryptoProvider>,
) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]);
    let builder =
        builder.map_err(|error| Error::new(Kind::Internal, "tls_policy", error.to_string()))?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP11.to_vec()];
    Ok(config)
}

/// What a client of HTTP/1.1 offers that takes anybody for the server, who must have the key of the
/// certificate he shows.
///
/// # Errors
/// When the cryptography at hand has no version of TLS.
pub fn credulous_client() -> Result<ClientConfig> {
    let provider = Arc::new(default_provider());
    offered(Arc::new(AnyServer(Arc::clone(&provider))), provider)
}

impl ServerTerms {
    fn new(tls: &Arc<UpstreamTls>, verifiers: &mut Verifiers) -> Result<Self> {
        let provider = Arc::new(default_provider());
        let config = match tls.verify {
            true => offered(verifiers.of(tls, &provider)?, provider)?,
            false => credulous_client()?,
        };
        Ok(Self {
            of: Arc::clone(tls),
            config,
        })
    }

    /// TLS to the server of this address; `None` where it has no name.
    pub(crate) fn with(&self, address: &ServerAddress, shared: &Shared) -> Option<ServerTls> {
        let mut config = self.config.clone();
        let identity = self.of.certificate.as_ref().map(|files| {
            Arc::new(Identity {
                source: Source::Upstream(files.certificate.display().to_string()),
                certificates: Arc::clone(&shared.certificates),
                keeper: Arc::clone(&shared.keeper),
            })
        });
        if let Some(identity) = &identity {
            config.client_auth_cert_resolver = Arc::clone(identity) as _;
        }
        config.resumption = no_sessions();
        Some(ServerTls {
            current: Mutex::new(Current {
                leaf: None,
                config: Arc::new(config),
                who: 0,
                set: 0,
            }),
            name: name_of(&self.of, address)?,
            identity,
        })
    }
}

/// Where sessions are kept that are to come.
fn no_sessions() -> Resumption {
    let sessions = Resumption::in_memory_sessions(NAMES_MAX);
    sessions.tls12_resumption(Tls12Resumption::SessionIdOrTickets)
}

impl ServerTls {
    /// Begins a session; what it begins with is put behind `out`.
    ///
    /// # Errors
    /// What rustls has against it.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) -> std::result::Result<Session, SessionFailure> {
        Session::client(self.config(), self.name.clone(), out)
    }

    /// With whoever we are now: a server goes on with a session as with him who began it.
    fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.current().config)
    }

    /// Who we are to the server now: another number where another certificate is shown.
    pub(crate) fn who(&self) -> u64 {
        self.current().who
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        let current = self.current.lock();
        let mut current = current.unwrap_or_else(PoisonError::into_inner);
        let Some(identity) = &self.identity else {
            return current;
        };
        let table = identity.certificates.table();
        let set = table.set().number;
        if std::mem::replace(&mut current.set, set) == set {
            return current;
        }
        let leaf = identity.leaf(&table);
        if current.leaf != leaf {
            let mut config = ClientConfig::clone(&current.config);
            config.resumption = no_sessions();
            current.config = Arc::new(config);
            current.leaf = leaf;
            current.who += 1;
        }
        current
    }
}

/// What servers are shown that ask who we are: the certificate that is in force when they ask.
#[derive(Debug)]
struct Identity {
    source: Source,
    certificates: Arc<Certificates>,
    keeper: Arc<Keeper>,
}

impl Identity {
    fn leaf(&self, table: &CertificateTable) -> Option<CertificateDer<'static>> {
        let certificate = table.of_source(&self.source)?;
        table.chain(certificate).into_iter().next()
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let table = self.certificates.table();
        let certificate = table.of_source(&self.source)?;
        let (key, kind) = (certificate.key, certificate.kind);
        let key = KeeperKey::new(Arc::clone(&self.keeper), key, kind);
        key.step_on(ASIDE);
        let chain = table.chain(certificate);
        Some(Arc::new(CertifiedKey::new(chain, Arc::new(key))))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// What verifies certificates by the same authorities is made once.
#[derive(Default)]
struct Verifiers(Vec<(Arc<[u8]>, Arc<Vouched>)>);

impl Verifiers {
    fn of(&mut self, tls: &UpstreamTls, provider: &Arc<CryptoProvider>) -> Result<Arc<Vouched>> {
        let mut known = self.0.iter();
        if let Some((_, known)) = known.find(|(of, _)| Arc::ptr_eq(of, &tls.authorities)) {
            return Ok(Arc::clone(known));
        }
        let wrong = |why: String| {
            let file = tls.file.as_deref().map(|file| file.display().to_string());
            let file = file.unwrap_or_else(|| "of this machine".to_owned());
            Error::new(Kind::Internal, "upstream_ca", format!("ca `{file}`: {why}"))
        };
        let (mut roots, mut own) = (RootCertStore::empty(), Vec::new());
        for certificate in CertificateDer::pem_slice_iter(&tls.authorities) {
            let added = certificate.map_err(|error| error.to_string());
            let added = added.and_then(|it| {
                own.extend(tls.file.is_some().then(|| it.clone()));
                roots.add(it).map_err(|error| error.to_string())
            });
            match added {
                // Of a machine's hundred, one may be of a kind that is not known here.
                Err(error) if tls.file.is_some() => return Err(wrong(error)),
                Err(_) | Ok(()) => {}
            }
        }
        if roots.is_empty() {
            return Err(wrong("it holds no certificate in PEM".to_owned()));
        }
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let by_authority = builder.build().map_err(|error| wrong(error.to_string()))?;
        let verifier = Arc::new(Vouched { by_authority, own });
        self.0
            .push((Arc::clone(&tls.authorities), Arc::clone(&verifier)));
        Ok(verifier)
    }
}

/// Takes for the server whoever authorities vouch for, or one of the certificates in their file itself.
#[derive(Debug)]
struct Vouched {
    by_authority: Arc<WebPkiServerVerifier>,
    /// What the file of authorities holds, where one is named.
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Vouched {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let by_authority = &self.by_authority;
        let verified = by_authority.verify_server_cert(certificate, chain, name, ocsp, now);
        match verified {
            // Found after its time was looked at. As `openssl req -x509` makes them.
            Err(error) if is_authority(&error) && self.own.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let by_authority = &self.by_authority;
        by_authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let by_authority = &self.by_authority;
        by_authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Whether all that is wrong with a server's certificate is that it is an authority's.
fn is_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) = error else {
        return false;
    };
    matches!(why.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Takes anybody for the server, who must have the key of the certificate he shows.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORITY: &[u8] = b"not a certificate";

    fn terms(tls: &str) -> Result<AllServerTerms> {
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:1'\n\
             [upstreams.app]\nservers = ['a.test:1', '127.0.0.1:1', '[::ffff:192.0.2.1]:1']\ntls = {tls}\n\
             [[sites]]\nhosts = ['a']\nrules = [{{ handler = {{ proxy = 'app' }} }}]\n"
        );
        let sources = config::Sources::from_text("/etc/nagaya.toml", &text);
        let sources = sources.with_file("/etc/ca.pem", AUTHORITY);
        compile(&config::load(&sources).expect("valid"), &[])
    }

    #[test]
    fn a_server_is_asked_for_by_its_host_or_by_what_the_upstream_says() {
        for (tls, expected) in [
            ("{ verify = false }", ["a.test", "127.0.0.1", "192.0.2.1"]),
            ("{ verify = false, name = 'B.test' }", ["b.test"; 3]),
            (
                "{ verify = false, name = '[2001:db8::1]' }",
                ["2001:db8::1"; 3],
            ),
        ] {
            let terms = terms(tls).expect("terms");
            let terms = terms[0].as_ref().expect("terms");
            let servers = [
                ServerAddress::Name {
                    host: "a.test.".to_owned(),
                    port: 1,
                },
                ServerAddress::Tcp(([127, 0, 0, 1], 1).into()),
                ServerAddress::Tcp("[::ffff:192.0.2.1]:1".parse().expect("an address")),
            ];
            let names = servers.map(|it| {
                name_of(&terms.of, &it)
                    .expect("a name")
                    .to_str()
                    .into_owned()
            });
            assert_eq!(names, expected, "{tls}");
        }
    }

    #[test]
    fn a_file_without_an_authority_refuses_the_generation_and_nobody_is_let_in_by_it() {
        let refused = terms("{ ca = 'ca.pem' }").expect_err("no certificate");
        assert_eq!(refused.reason, "upstream_ca");
        assert_eq!(
            refused.detail,
            "ca `/etc/ca.pem`: it holds no certificate in PEM"
        );
    }
}
