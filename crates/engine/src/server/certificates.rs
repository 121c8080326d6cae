//! Certificates and links to the keeper, as the supervisor hands them over.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ipc::certificates::CertificateSet;
use ipc::server::{Challenge, NotObtained};

use super::internal;
use crate::error::Result;
use crate::tls::table::CertificateTable;
use crate::worker::shared::Shared;

/// The certificates of a generation, ready to be looked up; `None` where it brings none.
///
/// # Errors
/// When the memory file holds none.
pub(super) fn read(set: Option<&OwnedFd>) -> Result<Option<CertificateTable>> {
    set.map(table).transpose()
}

fn table(set: &OwnedFd) -> Result<CertificateTable> {
    let set = CertificateSet::of_memory(set.as_fd());
    set.map(CertificateTable::new)
        .map_err(|error| internal("certificates", &error))
}

/// Asks over these links and answers with these certificates from now on, as far as there are any.
pub(super) fn take(shared: &Shared, links: Vec<OwnedFd>, certificates: Option<CertificateTable>) {
    if !links.is_empty() {
        shared.handshakes.use_links(links);
        shared.certifier.forget();
    }
    if let Some(certificates) = certificates {
        replace(shared, certificates);
    }
}

/// Answers with these, and lets those go on who have waited for one of them.
fn replace(shared: &Shared, table: CertificateTable) {
    shared.certificates.replace(table);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let table = shared.certificates.table();
    shared.demands.look_at(&table, now_s);
}

/// Answers authorities with these from now on, and says so.
pub(super) fn show(shared: &Shared, number: u32, challenges: Vec<Challenge>) {
    shared.challenges.replace(challenges);
    shared.orders.teller.challenged(number);
}

/// Tells those who wait for a name that no certificate comes of it.
pub(super) fn not_obtained(shared: &Shared, told: &NotObtained) {
    let NotObtained {
        name,
        why,
        is_passing,
    } = told;
    match is_passing {
        true => shared.demands.put_off(name, why),
        false => shared.demands.refuse(name, why, Instant::now()),
    }
}

/// Another keeper has come, with links of its own, and numbers of its own for keys.
pub(super) fn next(shared: &Shared, links: Vec<OwnedFd>, set: &OwnedFd) {
    shared.handshakes.use_links(links);
    shared.certifier.forget();
    changed(shared, set);
}

/// Answers with certificates that have changed; those from before stay where they cannot be read.
pub(super) fn changed(shared: &Shared, set: &OwnedFd) {
    match table(set) {
        Ok(table) => {
            replace(shared, table);
            // Both sets were there for a moment.
            os::process::release_memory();
        }
        Err(error) => tracing::error!(
            error = error.to_string(),
            "the certificates that changed cannot be read, those from before are answered with"
        ),
    }
}
