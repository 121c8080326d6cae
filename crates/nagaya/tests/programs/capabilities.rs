//! Who of the gateway's processes may do what takes `CAP_SYS_ADMIN`: the spawner alone, which builds
//! walls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use testkit::{Gateway, eventually, free_port, lacks_root};

use crate::fixtures::pools::{Wish, bed};

const PATIENCE: Duration = Duration::from_secs(20);
/// The number of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Says what its process may do, and ever could.
const STATUS: &str = "<?php echo file_get_contents('/proc/self/status');";

/// Whether it is in a set that `/proc/PID/status` tells.
fn is_in(status: &str, set: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix(set));
    let bits = line.unwrap().trim_start_matches(':').trim();
    u64::from_str_radix(bits, 16).unwrap() & (1 << SYS_ADMIN) != 0
}

fn status(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap()
}

#[test]
fn the_spawner_alone_builds_walls_and_who_never_does_is_barred_for_good() {
    if lacks_root("what processes are barred from") || !is_in(&status(std::process::id()), "CapEff")
    {
        return;
    }
    let wish = Wish {
        files: &[("app/status.php", STATUS)],
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let page = bed.get("/status.php").text();
    let gateway = &bed.gateway;
    let spawner = status(gateway.spawner_pid());
    assert!(is_in(&spawner, "CapEff") && is_in(&spawner, "CapBnd"));
    let supervisor = status(gateway.pid());
    assert!(!is_in(&supervisor, "CapEff"), "it is laid aside");
    for (whose, status) in [("server", status(gateway.server_pid())), ("program", page)] {
        for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            assert!(!is_in(&status, set), "{whose}: {set}: {status}");
        }
    }
}

#[test]
fn who_has_to_do_with_certificates_is_barred_as_well() {
    const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[acme.nowhere]
directory = "https://127.0.0.1:{tls}/directory"
store = "{dir}/store"
[[sites]]
hosts = ["a.example"]
tls = { acme = "nowhere" }
rules = [{ handler = { respond = { body = "a" } } }]
"#;
    if lacks_root("what processes are barred from") {
        return;
    }
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let gateway = builder.with("tls", free_port()).start();
    for whose in ["keeper", "acme", "server"] {
        // It is told of before it has come so far.
        eventually(PATIENCE, whose, || {
            let status = status(gateway.child_called(whose));
            let bound = status.lines().find_map(|it| it.strip_prefix("CapBnd:"))?;
            (bound.trim() == "0000000000000000").then_some(())
        });
    }
}
