//! What the gateway's processes may do: of them the spawner alone what takes `CAP_SYS_ADMIN`, by
//! which walls are built; all of them no more than the packaged service grants, or nothing at all.

use testkit::{Gateway, PATIENCE, eventually, free_port, lacks_root};

use crate::fixtures::pools::{Bed, Starter, Wish, bed, bed_of, kill, runs, service_capabilities};
use crate::fixtures::programs::is_root;

/// The number of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Says what its process may do, and ever could.
const STATUS: &str = "<?php echo file_get_contents('/proc/self/status');";

/// Where each of the service's has its bit.
const NUMBERS: [(&str, u32); 10] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_FOWNER", 3),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
    ("CAP_SETPCAP", 8),
    ("CAP_NET_BIND_SERVICE", 10),
    ("CAP_SYS_ADMIN", SYS_ADMIN),
    ("CAP_SYS_RESOURCE", 24),
];

/// A set that `/proc/PID/status` tells.
fn bits(status: &str, set: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(set));
    let bits = line.unwrap().trim_start_matches(':').trim();
    u64::from_str_radix(bits, 16).unwrap()
}

/// Whether it is in such a set.
fn is_in(status: &str, set: &str) -> bool {
    bits(status, set) & (1 << SYS_ADMIN) != 0
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
    let Some(bed) = bed_of(&[("app/status.php", STATUS)]) else {
        return;
    };
    let page = bed.get("/status.php").text();
    let gateway = &bed.gateway;
    let spawner = status(gateway.spawner_pid());
    assert!(is_in(&spawner, "CapEff") && is_in(&spawner, "CapBnd"));
    let supervisor = status(gateway.pid());
    for set in ["CapEff", "CapInh", "CapAmb"] {
        assert!(!is_in(&supervisor, set), "it is laid aside for a spawner");
    }
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

/// Says whom it runs as, whether it is shut in, and what it may do.
const SHUT_IN: &str =
    "<?php preg_match('/^CapEff:\\s+(\\w+)/m', file_get_contents('/proc/self/status'), $it);
echo posix_geteuid(), ' ', file_exists('/root') ? 'open' : 'shut', ' ', $it[1];";

/// Pools start, are found by both sites' pages, are started anew when they are killed, survive an
/// upgrade and leave nothing behind.
fn pools_live(mut bed: Bed, pages: [&str; 2]) {
    let ask = |bed: &Bed| {
        let hosts = ["app.test", "other.test"];
        hosts.map(|host| bed.get_of(host, "/shut.php").text())
    };
    assert_eq!(ask(&bed), pages, "{}", bed.gateway.stderr());
    let first = bed.who();
    kill(first.master);
    eventually(PATIENCE, "another master", || {
        (bed.who().master != first.master && !runs(first.child)).then_some(())
    });
    let second = bed.who();
    bed.gateway.signal(rustix::process::Signal::USR2);
    bed.gateway.wait_for_message("the program is a new one");
    assert_eq!(bed.who().master, second.master);
    kill(second.master);
    eventually(PATIENCE, "one of the new program's", || {
        (bed.who().master != second.master).then_some(())
    });
    assert_eq!(ask(&bed), pages, "{}", bed.gateway.stderr());
    let masters = bed.masters();
    assert!(bed.gateway.stop().success());
    assert!(!masters.into_iter().any(runs));
}

const FILES: [(&str, &str); 3] = [
    ("app/index.php", crate::fixtures::pools::WHO),
    ("app/shut.php", SHUT_IN),
    ("other/shut.php", SHUT_IN),
];

#[test]
fn pools_live_on_what_the_packaged_service_may() {
    let own = status(std::process::id());
    if lacks_root("the service's capabilities") || !is_in(&own, "CapEff") {
        return;
    }
    let wish = Wish {
        starter: Starter::Service,
        files: &FILES,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let granted = service_capabilities().into_iter().map(|name| {
        let known = NUMBERS.iter().find(|(it, _)| *it == name);
        1_u64 << known.unwrap_or_else(|| panic!("{name} has no number")).1
    });
    let granted: u64 = granted.sum();
    for pid in [bed.gateway.pid(), bed.gateway.spawner_pid()] {
        assert_eq!(bits(&status(pid), "CapBnd"), granted & bits(&own, "CapBnd"));
    }
    pools_live(
        bed,
        ["33 shut 0000000000000000", "34 shut 0000000000000000"],
    );
}

#[test]
fn without_root_pools_are_their_gateways_users_and_it_says_so() {
    let wish = Wish {
        starter: Starter::Nobody,
        files: &FILES,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let user = match is_root() {
        true => 65_534,
        false => rustix::process::geteuid().as_raw(),
    };
    bed.gateway.wait_for_message(&format!(
        "only root can build walls, and this is user {user}"
    ));
    let page = format!("{user} open 0000000000000000");
    pools_live(bed, [&page, &page]);
}
