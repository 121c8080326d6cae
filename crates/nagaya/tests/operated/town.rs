//! An authority, and a place that outlives the gateways it certifies: for tests of orders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::TempDir;
use testkit::gateway::{Builder, Gateway};
use testkit::pebble::{Accounts, Pebble};
use testkit::wait::eventually;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");
/// How long an authority that refuses nine of ten nonces may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What all configurations begin with, up to an account.
const HEAD: &str = r#"
workers = 1
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{http}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[acme.test]
directory = "{directory}"
ca = "{ca}"
store = "{place}/store"
"#;

pub(crate) struct Town {
    pub(crate) pebble: Pebble,
    pub(crate) place: TempDir,
    pub(crate) config: String,
}

impl Town {
    /// `rest` is what the configuration says of the account, and after it.
    pub(crate) fn new(accounts: Accounts, settings: &[(&str, &str)], rest: &str) -> Option<Town> {
        Some(Town {
            pebble: Pebble::start(accounts, settings)?,
            place: TempDir::new(),
            config: format!("{HEAD}{rest}"),
        })
    }

    pub(crate) fn gateway(
        &self,
        program: impl AsRef<Path>,
        config: &str,
        (http, tls): (u16, u16),
    ) -> Builder {
        Gateway::with_config(program, config)
            .with("http", http)
            .with("tls", tls)
            .with("directory", self.pebble.url())
            .with("ca", self.pebble.authorities().display())
            .with("id", self.pebble.binding().0)
            .with("place", self.place.path().display())
    }

    /// The ports that the authority asks.
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.pebble.http_port(), self.pebble.tls_port())
    }

    /// The gateway that the authority reaches.
    pub(crate) fn reached(&self) -> Builder {
        self.gateway(BINARY, &self.config, self.ports())
    }

    /// A file of the account's store.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.path().join("store/test").join(name)
    }

    /// What lies in a part of the store.
    pub(crate) fn files(&self, part: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.file(part)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn until_there(&self, name: &str) -> PathBuf {
        let file = self.file(name);
        eventually(PATIENCE, name, || file.exists().then(|| file.clone()))
    }
}

/// What openssl says of a file.
pub(crate) fn openssl(arguments: &[&str], file: &Path) -> String {
    let output = Command::new("openssl").args(arguments).arg(file).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names that the chain in a file is for.
pub(crate) fn names_in(file: &Path) -> String {
    openssl(&["x509", "-noout", "-ext", "subjectAltName", "-in"], file)
}
