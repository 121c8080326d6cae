//! The authority for development: a key in a file beside the configuration, and the certificate
//! that a person has his browser trust.
//!
//! The idea: it is made once, where a site first says `local`, so that it is trusted once, and once
//! more when it has ended. The key
//! is its owner's to read alone; what is there and others may read is not used. Where nothing can
//! be written each keeper makes one of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use config::reason;
use ipc::keeper::{Judged, KEY_FILE_BYTES_MAX};
use os::file::{FileKind, Wait};

use crate::keeper::Keys;

/// The file of its certificate, beside the one that has the key as well.
const CERTIFICATE: &str = "crt";

/// Has a certificate of these names made by the authority at `path`.
///
/// # Errors
/// When the keeper is lost; within, why it cannot be made.
pub(crate) fn certify(
    path: &Path,
    names: Vec<String>,
    keys: &mut Keys,
) -> Result<Result<Judged, String>, String> {
    let known = match read(path) {
        Ok(known) => known,
        Err(error) => {
            let (path, reason) = (path.display(), reason(&error));
            return Ok(Err(format!(
                "the authority for development, {path}: {reason}: remove it to have another made"
            )));
        }
    };
    let certificate = path.with_extension(CERTIFICATE);
    if !known.is_empty() && !certificate.exists() {
        // Whoever is to trust it looks for this file; without it all else goes on.
        let _ = write(&certificate, public(&known), 0o644);
    }
    let made = match keys.local(known, names)? {
        Ok(made) => made,
        Err(problem) => {
            let path = path.display();
            return Ok(Err(format!(
                "the authority for development, {path}: {problem}"
            )));
        }
    };
    if let Some(pem) = made.authority {
        keep(path, &pem.0);
    }
    Ok(Ok(made.certificate))
}

/// What is kept of it; empty where nothing is.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = match os::file::open(path, Wait::Allowed) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let facts = os::file::facts(file.as_fd())?;
    if facts.kind != FileKind::Regular {
        return Err(io::Error::other("not a regular file"));
    }
    let own = [0, os::process::user_id()];
    if !own.contains(&facts.uid) || facts.mode & 0o077 != 0 {
        return Err(io::Error::other("others may read it or write it"));
    }
    os::file::read_whole(file.as_fd(), KEY_FILE_BYTES_MAX)
}

/// Keeps one that was made, and says how it is trusted.
fn keep(path: &Path, pem: &[u8]) {
    let certificate = path.with_extension(CERTIFICATE);
    // What was there has ended, or has lost its key.
    for before in [path, &certificate] {
        let _ = std::fs::remove_file(before);
    }
    let written = write(path, pem, 0o600).and_then(|()| write(&certificate, public(pem), 0o644));
    match written {
        Ok(()) => tracing::info!(
            file = certificate.display().to_string(),
            "an authority for development was made: have your browser trust this file (curl --cacert), and nobody else's"
        ),
        Err(error) => tracing::warn!(
            file = path.display().to_string(),
            error = reason(&error),
            "the authority for development cannot be kept: there is another after each start"
        ),
    }
}

/// The certificate alone, of a file that has the key below it.
fn public(pem: &[u8]) -> &[u8] {
    let end = pem.windows(16).position(|part| part == b"-----BEGIN PRIVA");
    pem.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)
}
