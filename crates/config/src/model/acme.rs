//! `[acme.NAME]`: accounts with authorities, and the certificates that sites want of them.

use std::path::PathBuf;

use super::Model;
use super::host::HostPattern;

/// Names in one certificate.
const NAMES_MAX: usize = 100;

/// `[acme.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acme {
    /// Its name.
    pub name: String,
    /// The URL of the authority's directory.
    pub directory: String,
    /// Where the authority may write to: URLs.
    pub contact: Vec<String>,
    /// The customer's account that it is bound to.
    pub binding: Option<AcmeBinding>,
    /// Accounts that have their turn when this one fails; indices into [`Model::acme`].
    pub fallback: Vec<usize>,
    /// How names are shown to be ours, the preferred way first; never empty.
    pub challenges: Vec<AcmeChallenge>,
    /// Which of the authority's profiles is ordered; `None`: its default.
    pub profile: Option<String>,
    /// PEM file of the authorities that the directory's own certificate may come from; `None`: the
    /// machine's.
    pub authorities: Option<PathBuf>,
    /// The directory of its account, keys and certificates: below the one that is configured.
    pub store: PathBuf,
    /// For how long another machine must have been silent before this one writes there. Default
    /// 30 s.
    pub lease_ms: u64,
}

/// A way of showing an authority that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// A reply over plain HTTP (RFC 8555, 8.3).
    Http01,
    /// A certificate in a handshake (RFC 8737).
    TlsAlpn01,
}

/// External account binding (RFC 8555, 7.3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeBinding {
    /// The key's identifier.
    pub id: String,
    /// File with the key in base64url.
    pub key: PathBuf,
}

/// A certificate that a site wants of an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeCertificate {
    /// What it is called, in the store and by operators: its first name, with `_` for `*`.
    pub name: String,
    /// Whose account orders it; index into [`Model::acme`].
    pub account: usize,
    /// What it is to be good for, at most 100 names.
    pub names: Vec<String>,
    /// Index into [`Model::sites`].
    pub site: usize,
}

impl AcmeCertificate {
    /// Where it lies: a chain and its key in one file.
    #[must_use]
    pub fn file(&self, model: &Model) -> PathBuf {
        let store = model.acme.get(self.account).map(|acme| &*acme.store);
        let store = store.unwrap_or(std::path::Path::new(""));
        store
            .join("certificates")
            .join(format!("{}.pem", self.name))
    }
}

impl Model {
    /// The certificates that sites want of authorities, in the order of the sites. Names that no
    /// challenge can validate are left out.
    pub fn acme_certificates(&self) -> impl Iterator<Item = AcmeCertificate> {
        let wanting = self.sites.iter().enumerate();
        let wanting = wanting.filter_map(|(index, site)| Some((index, site, site.tls.acme?)));
        wanting.flat_map(|(index, site, account)| {
            let exact = site.hosts.iter().filter_map(|host| match host {
                HostPattern::Exact(name) => Some(name.clone()),
                HostPattern::Below(_) | HostPattern::Any => None,
            });
            let names: Vec<String> = exact.collect();
            let certificate = |names: &[String]| AcmeCertificate {
                name: names
                    .first()
                    .map_or_else(String::new, |name| name.replace('*', "_")),
                account,
                names: names.to_vec(),
                site: index,
            };
            names.chunks(NAMES_MAX).map(certificate).collect::<Vec<_>>()
        })
    }
}
