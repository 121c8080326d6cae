//! `[acme.NAME]`: accounts with authorities, and the certificates that sites want of them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::host::HostPattern;
use super::{Model, Site};

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
    /// What puts records into the domain name system; there is one where `challenges` has
    /// [`AcmeChallenge::Dns01`], and only there.
    pub dns: Option<AcmeDns>,
    /// Where its certificates and keys are written for other daemons.
    pub export: Option<AcmeExport>,
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
    /// Certificates for names that are known once somebody asks for them; `None`: none.
    pub on_demand: Option<OnDemand>,
}

/// `on_demand` of `[acme.NAME]`: whose names are ordered that no site has among its hosts, but covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDemand {
    /// Who accepts a name.
    pub by: Acceptor,
    /// New names of a tenant's sites within three hours. Default 30.
    pub per_tenant: usize,
    /// New names below a domain that somebody has registered within seven days. Default 25.
    pub per_domain: usize,
    /// New names within three hours. Default 100.
    pub in_all: usize,
    /// Names that there are certificates for at once. Default 10,000.
    pub names: usize,
    /// For how long a name need not be asked for and is renewed all the same. Default 30 days.
    pub unused_ms: u64,
}

/// Who says whether a name may have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptor {
    /// A map; index into [`Model::maps`].
    Map(usize),
    /// A directory: names that have a row there; index into [`Model::directories`].
    Directory(usize),
}

impl Acceptor {
    /// The map.
    #[must_use]
    pub fn map(self) -> Option<usize> {
        match self {
            Acceptor::Map(map) => Some(map),
            Acceptor::Directory(_) => None,
        }
    }
}

/// A way of showing an authority that a name is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// A reply over plain HTTP (RFC 8555, 8.3).
    Http01,
    /// A certificate in a handshake (RFC 8737).
    TlsAlpn01,
    /// A record in the domain name system (RFC 8555, 8.4).
    Dns01,
}

/// `dns` of `[acme.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeDns {
    /// What is run to put a record there and to take it away.
    pub program: Chore,
    /// How long it may take. Default 2 min.
    pub timeout_ms: u64,
}

/// `export` of `[acme.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeExport {
    /// Where each certificate has a directory.
    pub directory: PathBuf,
    /// Whose the files are; `None`: whoever starts the gateway.
    pub owner: Option<String>,
    /// Who may do what with them. Default 0600.
    pub mode: u32,
    /// What is run as their owner when some have changed.
    pub run: Option<Chore>,
}

/// A program that is run now and then, on the gateway's own behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chore {
    /// The program and its arguments; at least the first. One without a slash is looked for in the
    /// usual directories.
    pub command: Vec<String>,
    /// Where it starts: the directory of the configuration file that names it.
    pub directory: PathBuf,
    /// Who it runs as.
    pub user: String,
    /// Whether the configuration names that user itself.
    pub has_own_user: bool,
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

impl Acme {
    /// Whether it can order a certificate for all names below one.
    #[must_use]
    pub fn orders_wildcards(&self) -> bool {
        self.challenges.contains(&AcmeChallenge::Dns01)
    }
}

impl AcmeCertificate {
    /// Where it lies: a chain and its key in one file.
    #[must_use]
    pub fn file(&self, model: &Model) -> PathBuf {
        let store = model.acme.get(self.account).map(|acme| &*acme.store);
        self.file_in(store.unwrap_or(Path::new("")))
    }

    /// Where it lies in its account's store.
    #[must_use]
    pub fn file_in(&self, store: &Path) -> PathBuf {
        store
            .join("certificates")
            .join(format!("{}.pem", self.name))
    }
}

/// Whose certificates are ordered on demand, by host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DemandedHosts {
    /// Hosts that sites have among theirs.
    exact: HashSet<String>,
    below: HashMap<String, Option<Covering>>,
    /// Of these, those that a wildcard is ordered for.
    wildcards: HashSet<String>,
    any: Option<Covering>,
}

/// A site that covers a host by a pattern and has its certificates ordered on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Covering {
    /// Whose account orders; index into [`Model::acme`].
    pub account: usize,
    /// Index into [`Model::sites`].
    pub site: usize,
}

impl DemandedHosts {
    /// The site that a canonical host is sent to, where it is covered by a pattern alone and a certificate may be
    /// ordered for it: exact hosts before the longest pattern before the default site, as requests are.
    #[must_use]
    pub fn covering(&self, host: &str) -> Option<Covering> {
        let has_wildcard = |(_, above): (&str, &str)| self.wildcards.contains(above);
        if self.exact.contains(host)
            || !is_orderable(host)
            || host.split_once('.').is_some_and(has_wildcard)
        {
            return None;
        }
        let below = host.match_indices('.');
        let mut below = below.filter_map(|(at, _)| self.below.get(host.get(at + 1..)?));
        below.next().copied().unwrap_or(self.any)
    }
}

/// Whether an authority may be asked for a host: a name of several labels of letters, digits and hyphens within (RFC
/// 1123, 2.1), the last one no number.
#[must_use]
pub fn is_orderable(host: &str) -> bool {
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && bytes.all(is_plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit_once('.').map(|(_, last)| last);
    let is_number = |last: &str| last.bytes().all(|byte| byte.is_ascii_digit());
    host.len() <= 253 && host.split('.').all(is_label) && last.is_some_and(|last| !is_number(last))
}

impl Model {
    /// Which hosts certificates are ordered for on demand; `None` where no account does.
    #[must_use]
    pub fn demanded_hosts(&self) -> Option<DemandedHosts> {
        if self.acme.iter().all(|it| it.on_demand.is_none()) {
            return None;
        }
        let mut demanded = DemandedHosts::default();
        for (index, site) in self.sites.iter().enumerate() {
            let account = site.tls.acme;
            let account = account.filter(|_| self.acceptor_of(site).is_some());
            let covering = account.map(|account| Covering {
                account,
                site: index,
            });
            if site.rows.is_some() && covering.is_some() {
                demanded.any = covering;
            }
            for host in &site.hosts {
                match host {
                    HostPattern::Exact(name) => drop(demanded.exact.insert(name.clone())),
                    HostPattern::Below(name) => {
                        let account = site.tls.acme.and_then(|it| self.acme.get(it));
                        if account.is_some_and(Acme::orders_wildcards) {
                            demanded.wildcards.insert(name.clone());
                        }
                        demanded.below.insert(name.clone(), covering);
                    }
                    HostPattern::Any => demanded.any = covering,
                }
            }
        }
        Some(demanded)
    }

    /// Who is asked before names that a site covers are ordered; `None`: none of them are. A directory is asked for
    /// its own hosts alone.
    #[must_use]
    pub fn acceptor_of(&self, site: &Site) -> Option<Acceptor> {
        let by = self.acme.get(site.tls.acme?)?.on_demand.as_ref()?.by;
        let rows = site.rows.as_ref().map(|rows| rows.directory);
        let is_asked = match by {
            Acceptor::Map(_) => rows.is_none(),
            Acceptor::Directory(directory) => rows == Some(directory),
        };
        is_asked.then_some(by)
    }

    /// The certificates that sites want of authorities, in the order of the sites. Names that no
    /// challenge can validate are left out, and those that a wildcard of the site is good for:
    /// authorities refuse both in one order.
    pub fn acme_certificates(&self) -> impl Iterator<Item = AcmeCertificate> {
        let wanting = self.sites.iter().enumerate();
        let wanting = wanting.filter_map(|(index, site)| Some((index, site, site.tls.acme?)));
        wanting.flat_map(|(index, site, account)| {
            let has_wildcards = self.acme.get(account).is_some_and(Acme::orders_wildcards);
            let is_covered = |name: &str| {
                let above = name.split_once('.').map(|(_, above)| above);
                let mut hosts = site.hosts.iter();
                has_wildcards
                    && hosts
                        .any(|host| matches!(host, HostPattern::Below(it) if Some(&**it) == above))
            };
            let names = site.hosts.iter().filter_map(|host| match host {
                HostPattern::Exact(name) if is_covered(name) => None,
                HostPattern::Exact(name) => Some(name.clone()),
                HostPattern::Below(_) => has_wildcards.then(|| host.to_string()),
                HostPattern::Any => None,
            });
            let names: Vec<String> = names.collect();
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
