//! A pool in its tenant's group: born there, bound by it, and ended with all that it left.

use std::fs;

use os::cgroup::Controller;
use testkit::gateway::Builder;
use testkit::{Gateway, eventually};

use crate::{PATIENCE, body, get, has, membership, place};

/// A site whose PHP is a pool of its tenant's.
pub(super) const POOL: &str = r#"
workers = 1
cgroup_required = true
[[listen]]
address = "127.0.0.1:{port}"
[timeouts]
upstream_read = "10m"
[control]
socket = "{dir}/control"
[pools]
directory = "{dir}/pools"
[php."test"]
program = "{php}"
[tenants.shared]
cgroup = { memory = "256MiB", pids = 50 }
[[sites]]
hosts = ["app.test"]
tenant = "shared"
{user}
root = "{dir}/site"
pool = { php = "test" }
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { php = true }
"#;

/// A gateway with this configuration and these pages; `None` without php-fpm, which is said.
pub(super) fn builder(config: &str, pages: &[(&str, &str)]) -> Option<Builder> {
    let php = testkit::php::find_php_fpm()?;
    let user = match os::process::is_root() {
        true => "user = \"www-data\"",
        false => "",
    };
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config)
        .with("php", php.display())
        .with("user", user);
    for (name, page) in pages {
        let file = format!("site/{name}.php");
        builder.directory().write(&file, page);
    }
    Some(builder)
}

#[test]
fn a_pool_gives_way_until_its_first_page_is_answered_and_then_has_its_tenants_weight() {
    if !has(&[Controller::Cpu]) {
        return;
    }
    let config = POOL
        .replace("memory = \"256MiB\", pids = 50", "cpu_weight = 70")
        .replace("[control]", "[log]\nlevel = \"debug\"\n[control]");
    let Some(builder) = builder(&config, &[("page", "<?php echo 'here';")]) else {
        return;
    };
    let mut gateway = builder.start();
    let group = place(Controller::Cpu, &gateway).join("tenant-shared");
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    if read("cpu.idle").is_none() {
        return testkit::lacks("a kernel's feature", "groups give way since Linux 5.15");
    }
    let weight = || read("cpu.weight").or_else(|| read("cpu.shares"));
    let own = weight();
    assert!(own.is_some());
    let page = get(&gateway, "app.test", "/page.php");
    assert_eq!(body(&page), "here");
    gateway.wait_for_message("it gives way to others while it starts");
    gateway.wait_for_message("it gives way to others no more: it");
    assert_eq!(read("cpu.idle").as_deref(), Some("0\n"));
    assert_eq!(weight(), own);
    assert!(gateway.stop().success());
}

#[test]
fn a_pool_is_born_in_its_tenants_group_bound_by_it_and_killed_with_all_it_left() {
    if !has(&[Controller::Pids, Controller::Memory]) {
        return;
    }
    let pages = [
        (
            "where",
            "<?php echo file_get_contents('/proc/self/cgroup');",
        ),
        (
            "leave",
            "<?php echo shell_exec('sleep 600 >/dev/null 2>&1 & echo $!');",
        ),
        (
            "greedy",
            "<?php ini_set('memory_limit', -1); echo strlen(str_repeat('x', 1 << 30));",
        ),
    ];
    let Some(builder) = builder(POOL, &pages) else {
        return;
    };
    let mut gateway = builder.start();
    let ask = |page: &str| get(&gateway, "app.test", page);
    let line = membership(&body(&ask("/where.php")), Controller::Pids);
    assert!(line.contains("/tenant-shared/"), "{line}");
    let command = |words: &[&str]| gateway.command(words).1;
    let told = command(&["pools", "--json"]);
    for field in ["\"cpu_us\":", "\"memory_bytes\":", "\"state\":\"warm\""] {
        assert!(told.contains(field), "{field}: {told}");
    }
    // Whoever takes more memory than the tenant has is killed, and the next page is answered.
    let greedy = ask("/greedy.php");
    assert!([502, 503].contains(&greedy.status), "{}", greedy.status);
    eventually(PATIENCE, "another page", || {
        (ask("/where.php").status == 200).then_some(())
    });
    // It holds the connection of the page that left it, so that page's process is not to be killed.
    let left = body(&ask("/leave.php"));
    let left = format!("/proc/{}", left.trim());
    assert!(std::path::Path::new(&left).exists(), "{left}");
    let group = place(Controller::Pids, &gateway).join("tenant-shared");
    command(&["pools", "stop", "app.test"]);
    eventually(PATIENCE, "the end of all of it", || {
        (!std::path::Path::new(&left).exists()).then_some(())
    });
    assert!(group.exists());
    assert_eq!(ask("/where.php").status, 200);
    assert!(gateway.stop().success());
    assert!(!group.exists(), "{} is left", group.display());
}
