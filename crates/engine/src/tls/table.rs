//! Which certificate a name is answered with: by a site's own files, or by the names certificates are good for.
//!
//! A table is made of one set and never changes; a set that comes later makes another. Chains are not copied before a
//! handshake needs one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::model;
use ipc::certificates::{Certificate, CertificateSet, KeyKind, Source, called};
use rustls::pki_types::CertificateDer;

/// Whether a name of a certificate is, or covers, a name that was asked for.
pub(crate) fn covers(known: &str, name: &str) -> bool {
    let below = known.strip_prefix("*.");
    let is_below = |domain: &str| {
        name.split_once('.')
            .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain))
    };
    known.eq_ignore_ascii_case(name) || below.is_some_and(is_below)
}

/// The certificates of a server by source and name.
#[derive(Debug, Default)]
pub(crate) struct CertificateTable {
    set: CertificateSet,
    /// By name, wildcards with their `*.`; the best first.
    by_name: HashMap<Box<str>, Box<[u32]>>,
    by_source: HashMap<Source, u32>,
}

/// The table in force.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    /// Held to copy or replace it.
    table: Mutex<Arc<CertificateTable>>,
    /// By source, once there was something to count. Held for one count, or to copy all.
    counts: Mutex<HashMap<Source, Counts>>,
}

/// What handshakes with a certificate came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// They were completed.
    pub(crate) completed: u64,
    /// The client ended them by an alert when it had seen the certificate.
    pub(crate) alerts: u64,
}

impl Certificates {
    /// The table in force.
    pub(crate) fn table(&self) -> Arc<CertificateTable> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a handshake that was completed with a certificate of this source, or that the client ended.
    pub(crate) fn count(&self, source: &Source, is_completed: bool) {
        let mut counts = self.lock_counts();
        let counts = match counts.get_mut(source) {
            Some(counts) => counts,
            None => counts.entry(source.clone()).or_default(),
        };
        match is_completed {
            true => counts.completed += 1,
            false => counts.alerts += 1,
        }
    }

    /// What was counted, by source.
    pub(crate) fn counts(&self) -> HashMap<Source, Counts> {
        self.lock_counts().clone()
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<Source, Counts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another one in force.
    pub(crate) fn replace(&self, table: CertificateTable) {
        self.lock_counts()
            .retain(|source, _| table.of_source(source).is_some());
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
}

impl CertificateTable {
    /// Makes a set ready to be looked up in.
    pub(crate) fn new(set: CertificateSet) -> Self {
        let mut by_name: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut by_source = HashMap::with_capacity(set.certificates.len());
        for (certificate, index) in set.certificates.iter().zip(0_u32..) {
            by_source.insert(certificate.source.clone(), index);
            if matches!(certificate.source, Source::Upstream(_)) {
                // No client is shown it, whatever it is good for.
                continue;
            }
            for name in &certificate.names {
                by_name.entry(name.as_str().into()).or_default().push(index);
            }
        }
        let by_name = by_name.into_iter().map(|(name, mut found)| {
            found.sort_by_key(|index| set.certificates.get(*index as usize).map(rank));
            (name, found.into_boxed_slice())
        });
        Self {
            by_name: by_name.collect(),
            by_source,
            set,
        }
    }

    /// The certificate that comes from `source`.
    pub(crate) fn of_source(&self, source: &Source) -> Option<&Certificate> {
        self.at(*self.by_source.get(source)?)
    }

    /// All of it.
    pub(crate) fn set(&self) -> &CertificateSet {
        &self.set
    }

    /// The best certificate for a host of this tenant's with a key that a client of these signature schemes can check;
    /// exact names before wildcards, of which one stands for one label (RFC 6125, 6.4.3). What another tenant's site
    /// names is none, whatever names it is good for.
    pub(crate) fn of_name(
        &self,
        name: &str,
        tenant: Option<&str>,
        schemes: &[u16],
    ) -> Option<&Certificate> {
        let is_for = |it: &&Certificate| it.tenant.is_none() || it.tenant.as_deref() == tenant;
        let fits = |name: &str| {
            let found = self.by_name.get(name)?;
            let found = found.iter().filter_map(|index| self.at(*index));
            let mut found = found.filter(is_for);
            let first = found.clone().next();
            found.find(|it| is_understood(it.kind, schemes)).or(first)
        };
        let wildcard = || fits(&format!("*.{}", name.split_once('.')?.1));
        fits(name).or_else(wildcard)
    }

    /// The certificate of `[tls]` whose file is called so, good for a host: of several the best, as by name.
    pub(crate) fn called(&self, name: &str, host: &str, schemes: &[u16]) -> Option<&Certificate> {
        let is_meant = |it: &&Certificate| match &it.source {
            // A tenant's is named by its site alone.
            Source::File(file) if it.tenant.is_none() => called(Path::new(file)) == Some(name),
            _ => false,
        };
        let wildcard = host.split_once('.').map(|(_, above)| format!("*.{above}"));
        let names = std::iter::once(host).chain(wildcard.as_deref());
        let found = names.filter_map(|name| self.by_name.get(name)).flatten();
        let found = found.filter_map(|index| self.at(*index));
        let mut found = found.filter(is_meant);
        let first = found.clone().next();
        found.find(|it| is_understood(it.kind, schemes)).or(first)
    }

    /// The certificate for an address.
    pub(crate) fn of_address(
        &self,
        address: IpAddr,
        tenant: Option<&str>,
        schemes: &[u16],
    ) -> Option<&Certificate> {
        if address.is_unspecified() {
            return None;
        }
        self.of_name(&address.to_canonical().to_string(), tenant, schemes)
    }

    /// A certificate's chain, to be shown.
    pub(crate) fn chain(&self, certificate: &Certificate) -> Vec<CertificateDer<'static>> {
        let chain = self.set.chain(certificate);
        chain
            .map(|der| CertificateDer::from(der.to_vec()))
            .collect()
    }

    fn at(&self, index: u32) -> Option<&Certificate> {
        self.set.certificates.get(index as usize)
    }
}

/// What is better comes first: cheap keys, then those that last.
fn rank(certificate: &Certificate) -> (u8, std::cmp::Reverse<i64>) {
    let cost = match certificate.kind {
        KeyKind::P256 => 0,
        KeyKind::P384 => 1,
        KeyKind::Rsa { .. } => 2,
        // Browsers do not know it.
        KeyKind::P521 | KeyKind::Ed25519 => 3,
    };
    (cost, std::cmp::Reverse(certificate.not_after_s))
}

/// Whether one of the schemes is made with such a key (RFC 8446, 4.2.3).
fn is_understood(kind: KeyKind, schemes: &[u16]) -> bool {
    let any = |known: &[u16]| schemes.iter().any(|scheme| known.contains(scheme));
    match kind {
        KeyKind::Rsa { .. } => any(&[0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601]),
        KeyKind::P256 => any(&[0x0403]),
        KeyKind::P384 => any(&[0x0503]),
        KeyKind::P521 => any(&[0x0603]),
        KeyKind::Ed25519 => any(&[0x0807]),
    }
}

/// Where a site's own certificate may come from, the first that is there. One that has its certificate ordered is
/// answered for by name: its file counts until the authority's is better.
pub(crate) fn sources(site: &model::Site) -> Box<[Source]> {
    if site.tls.acme.is_some() {
        return Box::default();
    }
    let files = site.tls.files.iter();
    let files = files.filter_map(|files| files.certificate.to_str());
    files.map(|path| Source::File(path.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use ipc::certificates::{Blob, KeyId};

    use super::*;

    fn certificate(file: &str, names: &[&str], kind: KeyKind, not_after_s: i64) -> Certificate {
        Certificate {
            source: Source::File(file.into()),
            tenant: None,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_before_s: 0,
            not_after_s,
            kind,
            key: KeyId(1),
            chain: vec![0],
            problem: None,
        }
    }

    fn table() -> CertificateTable {
        let rsa = KeyKind::Rsa { bits: 2_048 };
        let certificates = vec![
            certificate("rsa", &["a.example", "192.0.2.1"], rsa, 9),
            certificate("ec", &["a.example"], KeyKind::P256, 5),
            certificate("longer", &["a.example", "*.a.example"], KeyKind::P256, 7),
        ];
        CertificateTable::new(CertificateSet {
            number: 1,
            blobs: vec![Blob::from(*b"leaf")],
            certificates,
            broken: Vec::new(),
        })
    }

    #[test]
    fn a_name_leads_to_the_best_certificate_that_the_client_can_check() {
        let table = table();
        let found = |name: &str, schemes: &[u16]| {
            let found = table.of_name(name, None, schemes)?;
            match &found.source {
                Source::File(file) => Some(file.clone()),
                _ => None,
            }
        };
        for (name, schemes, expected) in [
            ("a.example", &[0x0804, 0x0403][..], Some("longer")),
            ("a.example", &[0x0804], Some("rsa")),
            ("a.example", &[0x0807], Some("longer")),
            ("www.a.example", &[0x0403], Some("longer")),
            ("x.www.a.example", &[0x0403], None),
            ("b.example", &[0x0403], None),
            ("example", &[0x0403], None),
        ] {
            assert_eq!(found(name, schemes).as_deref(), expected, "{name}");
        }
        let address = table.of_address([192, 0, 2, 1].into(), None, &[0x0403]);
        assert_eq!(address.map(|it| it.not_after_s), Some(9));
        let mapped = "::ffff:192.0.2.1".parse().expect("an address");
        assert!(table.of_address(mapped, None, &[]).is_some());
        let source = Source::File("ec".into());
        assert_eq!(table.of_source(&source).map(|it| it.not_after_s), Some(5));
        assert_eq!(
            table.chain(table.of_source(&source).expect("there")).len(),
            1
        );
    }

    #[test]
    fn a_certificate_is_called_as_its_file_and_shown_for_what_it_is_good_for() {
        let theirs = Certificate {
            tenant: Some("one".into()),
            ..certificate("/c/theirs.pem", &["a.example"], KeyKind::P256, 9)
        };
        let certificates = vec![
            certificate("/c/a.pem", &["a.example"], KeyKind::P256, 5),
            certificate("/c/wide.crt", &["*.example"], KeyKind::P256, 6),
            certificate("/live/bot/fullchain.pem", &["a.example"], KeyKind::P256, 7),
            theirs,
        ];
        let table = CertificateTable::new(CertificateSet {
            number: 1,
            blobs: vec![Blob::from(*b"leaf")],
            certificates,
            broken: Vec::new(),
        });
        for (called, host, expected) in [
            ("a", "a.example", Some(5)),
            ("wide", "a.example", Some(6)),
            ("bot", "a.example", Some(7)),
            ("a", "b.example", None),
            ("wide", "b.example", Some(6)),
            ("theirs", "a.example", None),
            ("/c/a.pem", "a.example", None),
            ("a.pem", "a.example", None),
            ("fullchain", "a.example", None),
            ("", "a.example", None),
        ] {
            let found = table.called(called, host, &[0x0403]);
            assert_eq!(found.map(|it| it.not_after_s), expected, "{called} {host}");
        }
    }

    #[test]
    fn what_a_tenants_site_names_answers_for_no_other_tenant() {
        let theirs = Certificate {
            tenant: Some("one".into()),
            ..certificate(
                "theirs",
                &["a.example", "*.example"],
                KeyKind::P256,
                i64::MAX,
            )
        };
        let ours = certificate("ours", &["a.example"], KeyKind::P256, 5);
        let table = CertificateTable::new(CertificateSet {
            number: 1,
            blobs: vec![Blob::from(*b"leaf")],
            certificates: vec![theirs, ours],
            broken: Vec::new(),
        });
        for (name, tenant, expected) in [
            ("a.example", Some("one"), Some(i64::MAX)),
            ("a.example", Some("two"), Some(5)),
            ("a.example", None, Some(5)),
            ("b.example", Some("one"), Some(i64::MAX)),
            ("b.example", Some("two"), None),
            ("b.example", None, None),
        ] {
            let found = table.of_name(name, tenant, &[0x0403]);
            assert_eq!(
                found.map(|it| it.not_after_s),
                expected,
                "{name} {tenant:?}"
            );
        }
    }
}
