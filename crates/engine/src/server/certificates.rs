//! Certificates and links to the keeper, as the supervisor hands them over.

use std::os::fd::{AsFd, OwnedFd};

use ipc::certificates::CertificateSet;

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
    }
    if let Some(certificates) = certificates {
        shared.certificates.replace(certificates);
    }
}

/// Another keeper has come, with links of its own, and numbers of its own for keys.
pub(super) fn next(shared: &Shared, links: Vec<OwnedFd>, set: &OwnedFd) {
    shared.handshakes.use_links(links);
    changed(shared, set);
}

/// Answers with certificates that have changed; those from before stay where they cannot be read.
pub(super) fn changed(shared: &Shared, set: &OwnedFd) {
    match table(set) {
        Ok(table) => shared.certificates.replace(table),
        Err(error) => tracing::error!(
            error = error.to_string(),
            "the certificates that changed cannot be read, those from before are answered with"
        ),
    }
}
