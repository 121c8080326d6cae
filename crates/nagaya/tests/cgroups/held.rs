//! A limit of memory that a group cannot have at once: it waits, and nothing else does.

use std::fs;
use std::process::Command;

use os::cgroup::{Controller, Host, Version};
use testkit::{Gateway, eventually};

use crate::{PATIENCE, WEIGHTS, Wanted, begin, builder, config_with, has, place, status};

const PROGRAM: &str = "#!/bin/sh\nx=0123456789abcdef\n\
                       for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do x=$x$x; done\n\
                       printf 'Content-Type: text/plain\\n\\n'\nsleep 600\n";
pub(super) const RULE: &str = "tenant-shared/site-app.test/rule-app.test-1";

/// What the rule's group has of memory, in MiB, and of processes.
fn limits(gateway: &Gateway) -> (u64, String) {
    let read = |controller, file: &str| {
        let path = place(controller, gateway).join(RULE).join(file);
        fs::read_to_string(path).unwrap().trim().to_owned()
    };
    let bytes = read(Controller::Memory, "memory.limit_in_bytes");
    let pids = read(Controller::Pids, "pids.max");
    (bytes.parse::<u64>().unwrap() >> 20, pids)
}

/// What a command says of the gateway's configuration, and whether it ended well.
fn run(gateway: &Gateway, command: &str) -> (bool, String) {
    let config = gateway.directory().path().join("nagaya.toml");
    let mut nagaya = Command::new(env!("CARGO_BIN_EXE_nagaya"));
    let output = nagaya.arg(command).arg("-c").arg(config).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_limit_below_the_memory_in_use_waits_and_nobodys_reload_fails_for_it() {
    if !has(&[Controller::Memory, Controller::Pids]) {
        return;
    }
    let host = Host::look().unwrap();
    if host.place(Controller::Memory).unwrap().version == Version::V2 {
        return testkit::lacks("a controller", "version 2 takes any limit, and kills");
    }
    let wanted = Wanted {
        one: "memory = \"256MiB\", pids = 40",
        ..WEIGHTS
    };
    let builder = builder(&wanted);
    let directory = builder.directory();
    directory.write_program("site/one/full.cgi", PROGRAM);
    let mut gateway = builder.start();
    let mut full = begin(&gateway, "/one/full.cgi");
    full.read_exactly(12);
    assert_eq!(limits(&gateway), (256, "40".to_owned()));
    gateway.reload(&config_with("memory = \"4MiB\", pids = 30"));
    gateway.wait_for_message("generation 2 serves");
    assert_eq!(limits(&gateway), (256, "30".to_owned()));
    let held = format!(
        "group {RULE}: its limit of memory stays 256MiB until less than the 4MiB of the configuration are in use"
    );
    gateway.wait_for_message(&held);
    eventually(PATIENCE, "status tells of it", || {
        status(&gateway).contains(&held).then_some(())
    });
    let (_, told) = run(&gateway, "doctor");
    assert!(told.contains(&held), "{told}");
    let (is_taken, told) = run(&gateway, "reload");
    assert!(
        is_taken && told.contains(&format!("warning: {held}")),
        "{told}"
    );
    // The next program says so, too, which another of its processes was told.
    for command in ["upgrade", "reload"] {
        let (is_taken, told) = run(&gateway, command);
        assert!(
            is_taken && told.contains(&format!("warning: {held}")),
            "{command}: {told}"
        );
    }
    drop(full);
    eventually(PATIENCE, "the limit is had", || {
        (limits(&gateway).0 == 4).then_some(())
    });
    gateway.wait_for_message("its limit of memory waits no more");
    eventually(PATIENCE, "and status says nothing else", || {
        (!status(&gateway).contains("stays 256MiB")).then_some(())
    });
    assert!(gateway.stop().success());
}
