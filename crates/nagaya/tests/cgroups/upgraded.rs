//! Limits of groups over an upgrade, and over one that is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use os::cgroup::Controller;
use rustix::process::Signal;
use testkit::Gateway;
use testkit::temp::TempDir;

use crate::held::RULE;
use crate::{BINARY, WEIGHTS, Wanted, builder_of, config_with, has, place};

/// How many processes the rule's programs may be.
fn pids(gateway: &Gateway) -> String {
    let group = place(Controller::Pids, gateway).join(RULE);
    let text = fs::read_to_string(group.join("pids.max")).unwrap();
    text.trim().to_owned()
}

#[test]
fn an_upgrade_that_is_refused_changes_no_limit_and_one_that_is_taken_lifts_what_is_gone() {
    if !has(&[Controller::Cpu, Controller::Pids]) {
        return;
    }
    let installed = TempDir::new();
    let program = installed.path().join("nagaya");
    symlink(BINARY, &program).unwrap();
    let wanted = Wanted {
        one: "pids = 40",
        ..WEIGHTS
    };
    let mut gateway = builder_of(&program, &wanted).start();
    assert_eq!(pids(&gateway), "40");
    // Its spawner starts, and its server does not.
    let text = format!("#!/bin/sh\n[ \"$1\" != server ] || exit 1\nexec {BINARY} \"$@\"\n");
    let broken = installed.write("broken", text);
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(broken, &program).unwrap();
    gateway.place(&config_with("pids = 30"));
    gateway.signal(Signal::USR2);
    gateway.wait_for_message("the new server was lost before it was ready");
    gateway.wait_for_message("the old program serves on");
    assert_eq!(pids(&gateway), "40");
    fs::remove_file(&program).unwrap();
    symlink(BINARY, &program).unwrap();
    gateway.place(&config_with("cpu_weight = 70"));
    gateway.signal(Signal::USR2);
    gateway.wait_for_message("the program is a new one");
    assert_eq!(pids(&gateway), "max");
    assert!(gateway.stop().success());
}
