//! What the supervisor tells of certificates that are ordered, kept for who asks; and the way back, for who wants one
//! ordered now.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ipc::acme::OrderedCertificate;
use ipc::server::{CertificateNews, LinkSender, ProcessLife, ToSupervisor};

use super::teller::Teller;

/// Certificates that are ordered of authorities, by the paths of their chains.
#[derive(Debug, Default)]
pub(crate) struct OrderBook {
    supervisor: OnceLock<LinkSender>,
    /// What is said when the supervisor listens.
    pub(crate) teller: Arc<Teller>,
    /// Held to copy it, or to take what has changed.
    known: Mutex<BTreeMap<String, OrderedCertificate>>,
    /// Held to copy or replace it.
    processes: Mutex<[ProcessLife; 2]>,
}

impl OrderBook {
    /// Passes on what is wanted over this link.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(crate) fn ask_over(&self, supervisor: &LinkSender) -> io::Result<()> {
        // There is one link in a server's life.
        let _ = self.supervisor.set(supervisor.clone());
        self.teller.tell_over(supervisor.clone())
    }

    /// Takes what is told now.
    pub(crate) fn take(&self, news: CertificateNews) {
        *self.lives() = [news.keeper, news.acme];
        let mut known = self.lock();
        if news.anew {
            known.clear();
        }
        for certificate in news.certificates {
            known.insert(certificate.path.clone(), certificate);
        }
    }

    /// The keeper, and the process that asks authorities.
    pub(crate) fn processes(&self) -> [ProcessLife; 2] {
        *self.lives()
    }

    fn lives(&self) -> MutexGuard<'_, [ProcessLife; 2]> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at all of them, by the paths of their chains, without a copy.
    pub(crate) fn look<T>(
        &self,
        look: impl FnOnce(&BTreeMap<String, OrderedCertificate>) -> T,
    ) -> T {
        look(&self.lock())
    }

    /// A copy of all of them.
    pub(crate) fn all(&self) -> BTreeMap<String, OrderedCertificate> {
        self.lock().clone()
    }

    /// Has the certificate for this name ordered now; what it is called.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(crate) fn renew(&self, name: &str) -> Result<String, String> {
        self.ask(name, |path| ToSupervisor::Renew { path })
    }

    /// Has an authority look whether the names of the certificate for this one would validate; what it is called.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(crate) fn rehearse(&self, name: &str) -> Result<String, String> {
        self.ask(name, |path| ToSupervisor::Rehearse { path })
    }

    fn ask(&self, name: &str, what: fn(String) -> ToSupervisor) -> Result<String, String> {
        let known = self.lock();
        let found = known.values().find(|it| is_meant(it, name));
        let found = found.ok_or_else(|| {
            format!("no certificate for {name} is ordered of an authority: nagaya certs shows where each comes from")
        })?;
        if !found.is_ordered_here {
            return Err(format!(
                "another machine orders the certificate for {name}: ask there"
            ));
        }
        let path = found.path.clone();
        let called = found.names.first().cloned().unwrap_or_default();
        drop(known);
        self.say(&what(path)).map(|()| called)
    }

    fn say(&self, what: &ToSupervisor) -> Result<(), String> {
        let supervisor = self.supervisor.get().ok_or("there is no supervisor")?;
        let said = supervisor.send(what);
        said.map_err(|error| format!("the supervisor does not hear: {}", config::reason(&error)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OrderedCertificate>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_meant(certificate: &OrderedCertificate, name: &str) -> bool {
    certificate
        .names
        .iter()
        .any(|it| it.eq_ignore_ascii_case(name))
}
