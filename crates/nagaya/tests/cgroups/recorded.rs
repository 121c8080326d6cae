//! The recorder in a group of its own: beside the gateway, with a bound, and spared when a lost spawner's
//! groups go. And what it is told of programs that hit the bounds of theirs.

use std::fs;
use std::path::PathBuf;

use ipc::console::IncidentKind;
use os::cgroup::Controller;
use recorder::FigureStore;
use rustix::process::{Pid, Signal, kill_process};
use testkit::gateway::Builder;
use testkit::{Gateway, eventually, processes};

use crate::pools::{POOL, builder as pool_builder};
use crate::{BINARY, CONFIG, PATIENCE, WEIGHTS, get, has, membership};

/// What has it recorded, before another section.
const RECORDED: &str = "[recorder]\ndirectory = \"{dir}/figures\"\nnice = 12\n[control]";

fn builder(one: &str) -> Builder {
    let text = CONFIG.replace("[control]", RECORDED);
    let builder = Gateway::with_config(BINARY, &text)
        .with("required", "true")
        .with("tenant", WEIGHTS.tenant)
        .with("site", WEIGHTS.site)
        .with("one", one)
        .with("two", WEIGHTS.two);
    let script = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n";
    let greedy = "x=0123456789abcdef\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 \
                  21 22 23; do x=$x$x; done\n";
    for (name, script) in [
        ("where", script.to_owned()),
        ("greedy", format!("#!/bin/sh\n{greedy}exit 0\n")),
    ] {
        let file = format!("site/one/{name}.cgi");
        builder.directory().write_program(&file, script);
    }
    builder
}

/// Waits until it is told of programs that hit a bound: whose, and why.
fn incident(gateway: &Gateway) -> (String, String) {
    let figures = gateway.directory().path().join("figures");
    let incident = eventually(PATIENCE, "an incident", || {
        let store = FigureStore::open_existing(&figures).ok()?;
        let kept = store.incidents(0, i64::MAX, 100).ok()?;
        let mut kept = kept.into_iter().map(|it| it.incident);
        kept.find(|it| it.kind == IncidentKind::Program)
    });
    (incident.what, incident.why)
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
    let mut gateway = builder(WEIGHTS.one).start();
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
    // Until the supervisor has seen its end, status names the one that was.
    let its_group = eventually(PATIENCE, "another recorder", || {
        let (next, its_group) = recorder(&gateway);
        (next != pid).then_some(its_group)
    });
    assert_eq!(its_group, group);
    assert!(gateway.stop().success());
    assert!(!group.exists(), "{} is left", group.display());
}

#[test]
fn a_program_killed_in_its_group_is_an_incident_of_its_site() {
    if !has(&[Controller::Memory]) {
        return;
    }
    let gateway = builder("memory = \"32MiB\"").start();
    recorder(&gateway);
    // Those it is told of come after it began to look.
    let incident = std::thread::scope(|scope| {
        let told = scope.spawn(|| incident(&gateway));
        while !told.is_finished() {
            assert_eq!(get(&gateway, "app.test", "/one/greedy.cgi").status, 503);
        }
        told.join().unwrap()
    });
    let why = "memory_limit: /one/greedy.cgi".to_owned();
    assert_eq!(incident, ("site app.test".to_owned(), why));
}

#[test]
fn a_pools_process_killed_in_its_tenants_group_is_an_incident_of_the_pool() {
    if !has(&[Controller::Memory, Controller::Pids]) {
        return;
    }
    let config = POOL.replace("[control]", RECORDED);
    let greedy = "<?php ini_set('memory_limit', -1); echo strlen(str_repeat('x', 1 << 30));";
    let Some(builder) = pool_builder(&config, &[("greedy", greedy)]) else {
        return;
    };
    let gateway = builder.start();
    recorder(&gateway);
    let (what, why) = std::thread::scope(|scope| {
        let told = scope.spawn(|| incident(&gateway));
        while !told.is_finished() {
            let status = get(&gateway, "app.test", "/greedy.php").status;
            assert!([502, 503].contains(&status), "{status}");
        }
        told.join().unwrap()
    });
    let pool = what.strip_prefix("tenant shared/pool ");
    let pool = pool.unwrap_or_else(|| panic!("{what}"));
    assert_eq!(why, format!("memory_limit: pool {pool}"));
}
