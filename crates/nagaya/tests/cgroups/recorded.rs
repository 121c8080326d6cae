//! The recorder in a group of its own: beside the gateway, with a bound, and spared when a lost spawner's
//! groups go.

use std::fs;
use std::path::PathBuf;

use os::cgroup::Controller;
use rustix::process::{Pid, Signal, kill_process};
use testkit::gateway::Builder;
use testkit::{Gateway, eventually, processes};

use crate::{BINARY, CONFIG, PATIENCE, WEIGHTS, get, has, membership};

fn builder() -> Builder {
    let recorded = "[recorder]\ndirectory = \"{dir}/figures\"\nnice = 12\n[control]";
    let text = CONFIG.replace("[control]", recorded);
    let builder = Gateway::with_config(BINARY, &text)
        .with("required", "true")
        .with("tenant", WEIGHTS.tenant)
        .with("site", WEIGHTS.site)
        .with("one", WEIGHTS.one)
        .with("two", WEIGHTS.two);
    let script = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n";
    builder
        .directory()
        .write_program("site/one/where.cgi", script);
    builder
}

/// Waits for a recorder that stands in its group.
fn recorder(gateway: &Gateway) -> (u32, PathBuf) {
    eventually(PATIENCE, "a recorder in its group", || {
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut children = processes::children(gateway.pid()).into_iter();
        let pid = children.find(|pid| name(*pid).trim() == "nagaya-recorder")?;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let group = membership(&groups, Controller::Memory);
        let group = group.rsplit_once(':')?.1.strip_suffix("/recorder")?;
        let name = group.rsplit_once('/')?.1;
        let host = os::cgroup::Host::look().unwrap();
        let own = &host.place(Controller::Memory).unwrap().directory;
        Some((pid, own.join(name).join("recorder")))
    })
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn the_recorder_stands_in_a_group_of_its_own_and_outlives_a_spawner() {
    if !has(&[Controller::Memory, Controller::Cpu]) {
        return;
    }
    let mut gateway = builder().start();
    let (pid, group) = recorder(&gateway);
    let bound = |name: &str| fs::read_to_string(group.join(name)).ok();
    let memory = bound("memory.max").or_else(|| bound("memory.limit_in_bytes"));
    assert_eq!(memory.unwrap().trim(), (1_u64 << 30).to_string());
    // Where groups share processors, `nice` alone would be of no use.
    if let Some(nice) = bound("cpu.weight.nice") {
        assert_eq!(nice.trim(), "12");
    }
    let spawner = gateway.spawner_pid();
    kill(spawner);
    eventually(PATIENCE, "another spawner", || {
        let answer = get(&gateway, "app.test", "/one/where.cgi");
        (answer.status == 200).then_some(())
    });
    assert_ne!(gateway.spawner_pid(), spawner);
    assert_eq!(recorder(&gateway).0, pid, "its clearing is nothing to it");
    kill(pid);
    processes::await_ended(pid);
    let (next, its_group) = recorder(&gateway);
    assert_ne!(next, pid);
    assert_eq!(its_group, group);
    assert!(gateway.stop().success());
    assert!(!group.exists(), "{} is left", group.display());
}
