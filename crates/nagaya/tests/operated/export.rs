//! Certificates and keys as files for other daemons, and what is run when they have changed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use testkit::gateway::Gateway;
use testkit::pebble::Accounts;
use testkit::wait::eventually;

use super::town::{PATIENCE, Town};

const CONFIG: &str = r#"
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
    town: Town,
    /// The number and the name of whom the files belong to.
    owner: (u32, String),
}

impl Host {
    fn new() -> Option<Host> {
        let town = Town::new(Accounts::Free, &[], CONFIG)?;
        let place = &town.place;
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
        Some(Host { town, owner })
    }

    fn start(&self) -> Gateway {
        self.town.reached().with("owner", &self.owner.1).start()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.in_place("export/mail.example.jp").join(name)
    }

    fn in_place(&self, name: &str) -> PathBuf {
        self.town.place.path().join(name)
    }

    fn runs(&self) -> Vec<String> {
        let runs = fs::read_to_string(self.in_place("log/runs"));
        runs.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn until_run(&self, times: usize) {
        let mark = self.in_place("export/.test.changed");
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
    let renewed = gateway.command(&["certs", "renew", "mail.example.jp"]);
    assert_eq!(renewed.0, Some(0), "{renewed:?}");
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
    host.town.place.write("export/.test.changed", "");
    let mut gateway = host.start();
    host.until_run(4);
    gateway.stop();
    // And with nothing to be done nothing is.
    let gateway = host.start();
    gateway.wait_for_message("acme process started");
    assert!(!gateway.stderr().contains("written into"));
    assert_eq!(host.runs().len(), 4);
}
