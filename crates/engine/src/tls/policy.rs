//! On what terms a site speaks TLS: versions, and whose client certificates it believes.
//!
//! The idea: sites that say the same share one policy, and a policy is known by a hash of what it says. Tickets are
//! sealed by keys of the policy, so that nobody is resumed under other terms than those he came under: who lost his
//! authority has to show a certificate again (CVE-2025-23419).

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use config::model::{ClientAuth, ClientCertificates, Model, Protocols, TlsVersion};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::tickets::Tickets;
use crate::error::{Error, Kind, Result};

/// What HTTP/1.1 is called in a handshake (RFC 7301).
pub(super) const HTTP11: &[u8] = b"http/1.1";
/// HTTP/2, likewise.
pub(super) const H2: &[u8] = b"h2";

/// What authorities look at challenges with (RFC 8737).
const ACME: &[u8] = b"acme-tls/1";

/// Terms of TLS.
#[derive(Debug)]
pub(crate) struct Policy {
    /// What it says, in short: what says the same is the same.
    pub(crate) id: [u8; 32],
    /// Whether clients are asked for a certificate.
    pub(crate) asks_clients: bool,
    speaks_13: bool,
    /// The keys of its tickets.
    pub(crate) tickets: Arc<Tickets>,
    config: ServerConfig,
}

/// The policies of a generation.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    /// That of a host without a site comes first.
    all: Vec<Arc<Policy>>,
    /// By site.
    of_sites: Vec<u32>,
    /// That of authorities which look at a challenge.
    of_authorities: Option<Arc<Policy>>,
}

impl Policies {
    /// Those of a model: none where no listener speaks TLS. What stays as it was `before` is kept.
    ///
    /// # Errors
    /// A file of authorities that has none.
    pub(crate) fn compile(model: &Model, before: Option<&Self>) -> Result<Self> {
        if model
            .listeners
            .iter()
            .all(|listener| listener.tls.is_none())
        {
            return Ok(Self::default());
        }
        let versions = &model.tls.versions;
        let known = before.map_or(&[][..], |before| &before.all);
        let mut policies = Self::default();
        let mut places = HashMap::new();
        let mut place = |client: Option<&ClientCertificates>| -> Result<u32> {
            let id = identity(versions, client);
            if let Some(place) = places.get(&id) {
                return Ok(*place);
            }
            let kept = known.iter().find(|policy| policy.id == id).cloned();
            let policy = match kept {
                Some(policy) => policy,
                None => Arc::new(Policy::new(id, versions, client)?),
            };
            let place = u32::try_from(policies.all.len()).unwrap_or(u32::MAX);
            policies.all.push(policy);
            places.insert(id, place);
            Ok(place)
        };
        place(None)?;
        let sites = model.sites.iter();
        let of_sites = sites.map(|site| place(site.tls.client.as_deref()));
        let of_sites = of_sites.collect::<Result<_>>()?;
        policies.of_sites = of_sites;
        policies.of_authorities = Some(Arc::new(Policy::for_authorities()?));
        Ok(policies)
    }

    /// The policy of authorities which look at a challenge; none where nobody speaks TLS.
    pub(crate) fn of_authorities(&self) -> Option<&Arc<Policy>> {
        self.of_authorities.as_ref()
    }

    /// The policy of a site, or of a host that has none.
    pub(crate) fn of(&self, site: Option<u32>) -> Option<&Arc<Policy>> {
        let place = site.and_then(|site| self.of_sites.get(site as usize));
        self.all.get(place.copied().unwrap_or(0) as usize)
    }
}

impl Policy {
    fn new(
        id: [u8; 32],
        versions: &[TlsVersion],
        client: Option<&ClientCertificates>,
    ) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::new(Kind::Internal, "tls_policy", error.to_string())
        };
        let provider = Arc::new(provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&spoken(versions));
        let builder = builder.map_err(|error| wrong(&error))?;
        let builder = match client {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let roots = Arc::new(authorities(client)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match client.mode {
                    ClientAuth::Require => verifier,
                    ClientAuth::Ask => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&error))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Chosen(None)));
        let tickets = Tickets::new(id);
        config.ticketer = Arc::clone(&tickets) as _;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ignore_client_order = true;
        Ok(Self {
            id,
            asks_clients: client.is_some(),
            speaks_13: versions.contains(&TlsVersion::V13),
            tickets,
            config,
        })
    }

    /// That of a handshake that only shows a certificate: with the one protocol that this is done by
    /// (RFC 8737), and nothing to be resumed.
    fn for_authorities() -> Result<Self> {
        let both = [TlsVersion::V12, TlsVersion::V13];
        let mut policy = Self::new(identity(&[], None), &both, None)?;
        policy.config.alpn_protocols = vec![ACME.to_vec()];
        // Without a key, as nobody asks for one.
        policy.config.ticketer = Tickets::new(policy.id);
        policy.config.send_tls13_tickets = 0;
        Ok(policy)
    }

    /// What the version is called that is spoken with a client who offers these.
    pub(crate) fn version_with(&self, offered: &[u16]) -> &'static str {
        let is_13 = self.speaks_13 && offered.contains(&0x0304);
        if is_13 { "TLSv1.3" } else { "TLSv1.2" }
    }

    /// What rustls is to go by in one handshake that is answered with this certificate, where these protocols are spoken.
    pub(crate) fn config(&self, certificate: CertifiedKey, spoken: Protocols) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        if config.alpn_protocols.is_empty() {
            let known = [(spoken.http2, H2), (spoken.http11, HTTP11)];
            let names = known.iter().filter(|(is_spoken, _)| *is_spoken);
            config.alpn_protocols = names.map(|(_, name)| name.to_vec()).collect();
        }
        config.cert_resolver = Arc::new(Chosen(Some(Arc::new(certificate))));
        Arc::new(config)
    }
}

/// The certificate that was chosen before.
#[derive(Debug)]
struct Chosen(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for Chosen {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

/// What is computed with: of the ciphers, all of which are strong, the one that costs both ends least comes first.
fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        let name = suite.suite().as_str().unwrap_or_default();
        !name.contains("AES_128_GCM")
    });
    provider
}

fn spoken(versions: &[TlsVersion]) -> Vec<&'static SupportedProtocolVersion> {
    let version = |version: &TlsVersion| match version {
        TlsVersion::V12 => &TLS12,
        TlsVersion::V13 => &TLS13,
    };
    versions.iter().map(version).collect()
}

/// What a policy says, in 32 bytes.
fn identity(versions: &[TlsVersion], client: Option<&ClientCertificates>) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    for version in [TlsVersion::V12, TlsVersion::V13] {
        hash.update(&[u8::from(versions.contains(&version))]);
    }
    if let Some(client) = client {
        hash.update(&[match client.mode {
            ClientAuth::Require => 1,
            ClientAuth::Ask => 2,
        }]);
        hash.update(&client.authorities);
    }
    let mut id = [0; 32];
    for (to, from) in id.iter_mut().zip(hash.finish().as_ref()) {
        *to = *from;
    }
    id
}

/// The authorities in a file.
///
/// # Errors
/// It has none, or something in it is none: nobody is let in by what cannot be read.
fn authorities(client: &ClientCertificates) -> Result<RootCertStore> {
    let file = client.file.display();
    let wrong = |why: String| {
        let detail = format!("client_ca `{file}`: {why}");
        Error::new(Kind::Internal, "client_ca", detail)
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&client.authorities) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it holds no certificate in PEM".to_owned()));
    }
    Ok(roots)
}
