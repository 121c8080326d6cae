//! Certificates of names that are shown by records: what the program is asked for, and that each
//! record is taken away again, whoever ends in between.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use testkit::gateway::Gateway;
use testkit::pebble::Accounts;
use testkit::processes::await_ended;
use testkit::wait::eventually;

use super::town::{PATIENCE, Town, names_in};

const CONFIG: &str = r#"
challenges = [{challenges}]
dns = { program = ["{place}/dns.sh", "zone"], {user}timeout = "{timeout}" }
[[sites]]
hosts = ["example.jp", "*.example.jp", "www.example.jp"]
rules = [{ handler = { respond = { body = "the site" } } }]
tls = { acme = "test" }
"#;

/// Notes what it was asked for and by whom, does it, and then what the test wants besides.
const PROGRAM: &str = r#"#!/bin/sh
echo "$(id -un) $* $(env | grep -cv '^PWD=\|^SHLVL=\|^_=')" >> {place}/log/calls
if [ $2 = present ]; then path=set-txt; else path=clear-txt; fi
. {place}/log/first
curl -sSf -o {place}/log/answer -d "{\"host\": \"$3\", \"value\": \"$4\"}" http://127.0.0.1:{names}/$path
"#;

/// A town with a program that makes records.
struct Zone {
    town: Town,
    timeout: &'static str,
    challenges: &'static str,
}

impl Zone {
    /// `first` is what the program does before it makes a record, in the words of a shell.
    fn new(first: &str) -> Option<Zone> {
        let town = Town::new(Accounts::Free, &[], CONFIG)?;
        let place = &town.place;
        let path = place.path().display().to_string();
        let program = PROGRAM.replace("{place}", &path);
        let program = program.replace("{names}", &town.pebble.names_port().to_string());
        place.write_program("dns.sh", program);
        let first = place.write("log/first", first);
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(first.parent().unwrap(), everybody).unwrap();
        Some(Zone {
            town,
            timeout: "1m",
            challenges: "\"dns-01\"",
        })
    }

    fn start(&self) -> Gateway {
        let is_root = rustix::process::geteuid().is_root();
        self.town
            .reached()
            .with("challenges", self.challenges)
            .with("timeout", self.timeout)
            .with("user", if is_root { "user = \"daemon\", " } else { "" })
            .start()
    }

    fn then(&self, first: &str) {
        self.town.place.write("log/first", first);
    }

    /// What the program was asked for.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.town.place.path().join("log/calls"));
        let calls = calls.unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// Records that the store says may be there.
    fn kept(&self) -> usize {
        self.town.files("challenges").len()
    }

    fn until_called(&self, what: &str) {
        let called = || {
            self.calls()
                .iter()
                .any(|it| it.contains(what))
                .then_some(())
        };
        eventually(PATIENCE, what, called);
    }

    fn until_certified(&self) -> PathBuf {
        self.town.until_there("certificates/example.jp.pem")
    }

    /// Whatever was put there was taken away after it, and the store knows of nothing more.
    fn until_tidy(&self) {
        eventually(PATIENCE, "every record is taken away", || {
            (self.kept() == 0).then_some(())
        });
        let calls = self.calls();
        let ends = |call: &str| call.split(' ').skip(4).take(1).collect::<String>();
        for (at, call) in calls.iter().enumerate() {
            let later = calls.get(at + 1..).unwrap();
            let cleaned = |it: &String| it.contains(" cleanup ") && ends(it) == ends(call);
            assert!(
                !call.contains(" present ") || later.iter().any(cleaned),
                "{calls:#?}"
            );
        }
    }
}

fn certs(zone: &Zone, gateway: &Gateway, name: &str) -> String {
    let (status, out, err) = gateway.command(&["certs", name]);
    assert_eq!(status, Some(0), "{err} {}", zone.kept());
    out
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn a_wildcard_is_ordered_by_records_that_a_program_makes_and_takes_away() {
    let Some(zone) = Zone::new("") else {
        return;
    };
    let gateway = zone.start();
    let names = names_in(&zone.until_certified());
    assert!(names.contains("DNS:*.example.jp"), "{names}");
    assert!(names.contains("DNS:example.jp"), "{names}");
    assert!(!names.contains("www"), "a wildcard is good for it: {names}");
    gateway.wait_for_message("issued");
    zone.until_tidy();
    let user = rustix::process::geteuid().is_root().then_some("daemon");
    let calls = zone.calls();
    for call in &calls {
        let words: Vec<_> = call.split(' ').collect();
        let [who, zone, action, name, value, variables] = words[..] else {
            panic!("{call}");
        };
        assert!(user.is_none_or(|user| who == user), "{call}");
        assert!(["present", "cleanup"].contains(&action), "{call}");
        assert_eq!((zone, name), ("zone", "_acme-challenge.example.jp."));
        // A digest in base64url; of variables there is PATH.
        assert_eq!((value.len(), variables), (43, "1"), "{call}");
    }
    assert_eq!(calls.len(), 4, "{calls:#?}");
    let told = certs(&zone, &gateway, "*.example.jp");
    assert!(told.contains("acme test"), "{told}");
    assert_eq!(certs(&zone, &gateway, "a.example.jp"), told);
}

#[test]
fn names_that_can_be_shown_otherwise_are_where_that_is_preferred() {
    let Some(zone) = Zone::new("") else {
        return;
    };
    let challenges = "\"http-01\", \"dns-01\"";
    let zone = Zone { challenges, ..zone };
    let _gateway = zone.start();
    let names = names_in(&zone.until_certified());
    assert!(names.contains("DNS:example.jp"), "{names}");
    zone.until_tidy();
    assert_eq!(zone.calls().len(), 2, "{:#?}", zone.calls());
}

#[test]
fn a_program_that_fails_is_told_with_what_it_wrote() {
    let Some(zone) = Zone::new("echo no such zone >&2; echo ask hosting; exit 3") else {
        return;
    };
    let mut gateway = zone.start();
    gateway.wait_for_message("it ended with status 3: no such zone; ask hosting");
    eventually(PATIENCE, "an operator is told", || {
        let told = certs(&zone, &gateway, "*.example.jp");
        told.contains("no such zone").then_some(())
    });
    // What could not be taken away either is known to be left.
    assert!(zone.kept() > 0);
    zone.then("");
    gateway.stop();
    let _gateway = zone.start();
    zone.until_certified();
    zone.until_tidy();
}

#[test]
fn a_program_that_hangs_is_killed_with_all_that_it_has_started() {
    let Some(zone) = Zone::new("") else {
        return;
    };
    let started = zone.town.place.path().join("log/started");
    let hang = format!("sleep 1000 & echo $! > {}; wait", started.display());
    zone.then(&hang);
    let zone = Zone {
        timeout: "1s",
        ..zone
    };
    let gateway = zone.start();
    gateway.wait_for_message("it was killed after 1 s");
    let pid: u32 = eventually(PATIENCE, "what it has started", || {
        let text = fs::read_to_string(&started).ok()?;
        text.trim().parse().ok()
    });
    zone.then("");
    await_ended(pid);
    zone.until_tidy();
}

#[test]
fn whoever_dies_between_two_steps_no_record_stays() {
    for (who, step) in [
        ("acme", " present "),
        ("acme", " cleanup "),
        ("gateway", " present "),
        ("gateway", " cleanup "),
        ("spawner", " present "),
        ("spawner", " cleanup "),
    ] {
        // At the first of these steps the program waits to be killed, or for the other's death.
        let Some(zone) = Zone::new("") else {
            return;
        };
        let gate = zone.town.place.path().join("log/gate");
        let action = step.trim();
        let gate = gate.display();
        zone.then(&format!(
            "if [ $2 = {action} ]; then while [ ! -e {gate} ]; do sleep 0.05; done; fi"
        ));
        let gateway = zone.start();
        zone.until_called(step);
        let victim = match who {
            "gateway" => gateway.pid(),
            name => gateway.child_called(name),
        };
        let children = gateway.children();
        kill(victim);
        let gateway = match who {
            "gateway" => {
                drop(gateway);
                children.into_iter().for_each(await_ended);
                zone.then("");
                zone.start()
            }
            _ => {
                await_ended(victim);
                gateway
            }
        };
        zone.town.place.write("log/gate", "");
        if who != "spawner" {
            zone.until_certified();
        }
        zone.until_tidy();
        drop(gateway);
        println!("{who} at {action}");
    }
}
