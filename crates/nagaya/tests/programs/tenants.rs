//! Tenants that an operator suspends, or all that runs of whom he kills: pools and CGI programs.

use std::os::unix::fs::PermissionsExt;

use testkit::client::{Body, reply};
use testkit::eventually;
use testkit::processes::children;
use testkit::{PATIENCE, RawClient};

use crate::fixtures::limited;
use crate::fixtures::pools::{Bed, CONFIG, WHO, Wish, bed, kill, request, runs, who};

/// A site of the first one's tenant that runs CGI programs.
const CGI: &str = r#"
[[sites]]
hosts = ["cgi.test"]
tenant = "app.test"
root = "{site}/cgi"
{user0}
rules = [{ match = { file = "*.cgi" }, handler = { cgi = true } }]
"#;

/// Says nothing until it is killed.
const ENDLESS: &str = "#!/bin/sh\nexec sleep 600\n";

/// A page that leaves a program of its own behind, in a session of its own.
const LEAVES: &str = "<?php echo trim(shell_exec('setsid sleep 600 >/dev/null 2>&1 & echo $!'));";

fn made() -> Option<Bed> {
    let files = [
        ("app/index.php", WHO),
        ("app/leaves.php", LEAVES),
        (
            "app/slow.php",
            "<?php touch(__DIR__ . '/begun'); sleep(2); echo 'slept';",
        ),
        ("other/index.php", WHO),
        ("cgi/endless.cgi", ENDLESS),
    ];
    let bed = bed(&Wish {
        files: &files,
        sites: CGI,
        ..Wish::default()
    })?;
    for (path, mode) in [("cgi", 0o755), ("cgi/endless.cgi", 0o755)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(bed.site.path().join(path), mode).unwrap();
    }
    Some(bed)
}

#[track_caller]
fn tenant(bed: &Bed, order: &str) -> String {
    bed.gateway.told(&["tenant", order, "app.test"])
}

/// Begins a request for the endless program; who that is. It is the only one that sleeps.
fn endless(bed: &Bed) -> (RawClient, u32) {
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(&request("cgi.test", "/endless.cgi"));
    let spawner = bed.gateway.spawner_pid();
    let pid = eventually(PATIENCE, "the program", || {
        let mut programs = children(spawner).into_iter();
        programs.find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"sleep\0")
        })
    });
    (client, pid)
}

fn await_end(pid: u32) {
    eventually(PATIENCE, &format!("the end of {pid}"), || {
        (!runs(pid)).then_some(())
    });
}

fn state(bed: &Bed, pool: &str) -> String {
    let pools = limited::ask(&bed.gateway, "pools json");
    let (_, rest) = pools.split_once(&format!("\"tenant\":\"{pool}\"")).unwrap();
    let (_, rest) = rest.split_once("\"state\":\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// The master of the other tenant's pool.
fn whose(bed: &Bed) -> u32 {
    who(&bed.get_of("other.test", "/index.php").text()).master
}

#[test]
fn of_a_suspended_tenant_nothing_runs_over_reloads_and_a_lost_spawner() {
    let Some(mut bed) = made() else { return };
    let before = bed.who();
    let (mut client, program) = endless(&bed);
    let mut under_way = bed.gateway.client().with_deadline(PATIENCE);
    under_way.send(&request("app.test", "/slow.php"));
    eventually(PATIENCE, "the page to run", || {
        let begun = bed.site.path().join("app/begun");
        begun.exists().then_some(())
    });
    let other = whose(&bed);
    let said = tenant(&bed, "suspend");
    assert!(said.ends_with("; 1 pool and 1 program end\n"), "{said}");
    await_end(program);
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 503);
    await_end(before.master);
    // What had begun was finished.
    let ended = reply(under_way.read_reply(Body::Framed));
    assert_eq!((ended.status, ended.text().as_str()), (200, "slept"));
    for path in ["/", "/index.php"] {
        assert_eq!(bed.get(path).status, 503);
    }
    assert_eq!(bed.get_of("cgi.test", "/endless.cgi").status, 503);
    assert_eq!(state(&bed, "app.test"), "suspended");
    bed.gateway.reload(CONFIG);
    bed.gateway.wait_for_message("ready: generation 2 ");
    kill(bed.gateway.spawner_pid());
    eventually(PATIENCE, "the next spawner", || {
        let started = bed.gateway.stderr().matches("spawner started").count();
        (started == 2).then_some(())
    });
    assert_eq!(bed.get("/").status, 503);
    assert_eq!(state(&bed, "app.test"), "suspended");
    assert_eq!(
        whose(&bed),
        other,
        "another tenant's pool was there all the time"
    );
    assert_eq!(tenant(&bed, "resume"), "app.test is resumed\n");
    assert_ne!(bed.who().master, before.master);
}

#[test]
fn all_that_runs_of_a_tenant_is_killed_and_the_next_request_starts_it_again() {
    let Some(bed) = made() else { return };
    let before = bed.who();
    let (mut client, program) = endless(&bed);
    let left: u32 = bed.get("/leaves.php").text().parse().unwrap();
    // What leaves its session is known by the pool's group, where there is one.
    let groups = std::fs::read_to_string(format!("/proc/{left}/cgroup")).unwrap();
    let is_grouped = groups.contains("/pool-");
    bed.get_of("other.test", "/index.php");
    let others = |bed: &Bed| {
        let mut masters = bed.masters();
        masters.retain(|pid| *pid != before.master);
        masters
    };
    let other = others(&bed);
    let said = tenant(&bed, "kill");
    assert!(said.ends_with("; 1 pool and 1 program end\n"), "{said}");
    for pid in [before.master, before.child, program] {
        await_end(pid);
    }
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 502);
    assert_eq!(others(&bed), other);
    match is_grouped {
        true => await_end(left),
        false => kill(left),
    }
    assert_ne!(bed.who().master, before.master);
}
