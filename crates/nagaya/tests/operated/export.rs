//! Certificates and keys as files for other daemons, and what is run when they have changed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testkit::TempDir;
use testkit::gateway::Gateway;
use testkit::pebble::{Accounts, Pebble};
use testkit::wait::{eventually, free_port};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");
const PATIENCE: Duration = Duration::from_secs(120);

const CONFIG: &str = r#"
workers = 1
control = { socket = "{place}/nagaya.sock" }
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
export = { directory = "{place}/export", owner = "{owner}", mode = "0640", run = ["{place}/run.sh", "it"] }
[[sites]]
hosts = ["mail.example.jp"]
rules = [{ handler = { respond = { body = "the site" } } }]
tls = { acme = "test" }
"#;

/// Notes who it is, and what it may read.
const PROGRAM: &str = r#"#!/bin/sh
echo "$(id -u) $* $(grep -h -c BEGIN {place}/export/mail.example.jp/*.pem | tr '\n' ' ')" >> {place}/log/runs
"#;

struct Host {
    pebble: Pebble,
    place: TempDir,
    /// The number and the name of whom the files belong to.
    owner: (u32, String),
}

impl Host {
    fn new() -> Option<Host> {
        let pebble = Pebble::start(Accounts::Free, &[])?;
        let place = TempDir::new();
        let path = place.path().display().to_string();
        place.write_program("run.sh", PROGRAM.replace("{place}", &path));
        fs::create_dir(place.path().join("log")).unwrap();
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(place.path().join("log"), everybody).unwrap();
        let own = rustix::process::geteuid();
        let name = match own.is_root() {
            true => "daemon".to_owned(),
            false => String::from_utf8(id(&["-un"])).unwrap().trim().to_owned(),
        };
        let number = String::from_utf8(id(&["-u", &name])).unwrap();
        let owner = (number.trim().parse().unwrap(), name);
        Some(Host {
            pebble,
            place,
            owner,
        })
    }

    fn start(&self) -> Gateway {
        Gateway::with_config(BINARY, CONFIG)
            .with("http", self.pebble.http_port())
            .with("tls", free_port())
            .with("directory", self.pebble.url())
            .with("ca", self.pebble.authorities().display())
            .with("place", self.place.path().display())
            .with("owner", &self.owner.1)
            .start()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join("export/mail.example.jp").join(name)
    }

    fn runs(&self) -> Vec<String> {
        let runs = fs::read_to_string(self.place.path().join("log/runs"));
        runs.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn until_run(&self, times: usize) {
        let mark = self.place.path().join("export/.test.changed");
        eventually(PATIENCE, "it is run", || {
            (self.runs().len() == times && !mark.exists()).then_some(())
        });
    }
}

fn id(arguments: &[&str]) -> Vec<u8> {
    Command::new("id").args(arguments).output().unwrap().stdout
}

#[test]
fn files_for_others_follow_each_renewal_and_what_was_left_out_is_made_up_for() {
    let Some(host) = Host::new() else {
        return;
    };
    let mut gateway = host.start();
    host.until_run(1);
    // Of a chain of two certificates, with the key where it is to be.
    let (owner, _) = host.owner;
    assert_eq!(host.runs(), [format!("{owner} it 3 2 1 ")]);
    for name in ["combined.pem", "fullchain.pem", "privkey.pem"] {
        let facts = fs::metadata(host.file(name)).unwrap();
        assert_eq!(
            (facts.uid(), facts.mode() & 0o777),
            (owner, 0o640),
            "{name}"
        );
    }
    let both = fs::read_to_string(host.file("combined.pem")).unwrap();
    assert!(both.starts_with("-----BEGIN PRIVATE KEY"));
    let config = gateway.directory().path().join("nagaya.toml");
    let renewed = Command::new(BINARY)
        .args(["certs", "renew", "mail.example.jp", "-c"])
        .arg(config)
        .output()
        .unwrap();
    assert!(renewed.status.success(), "{renewed:?}");
    host.until_run(2);
    assert_ne!(fs::read_to_string(host.file("combined.pem")).unwrap(), both);
    gateway.stop();
    // A daemon's file is lost while nobody looks.
    fs::remove_file(host.file("privkey.pem")).unwrap();
    let mut gateway = host.start();
    host.until_run(3);
    assert!(host.file("privkey.pem").exists());
    gateway.stop();
    // Somebody died after the files were written.
    host.place.write("export/.test.changed", "");
    let mut gateway = host.start();
    host.until_run(4);
    gateway.stop();
    // And with nothing to be done nothing is.
    let gateway = host.start();
    gateway.wait_for_message("acme process started");
    assert!(!gateway.stderr().contains("written into"));
    assert_eq!(host.runs().len(), 4);
}
