//! Programs in their groups, end to end: where they are born, what they may use, what a client
//! sees when that is not enough, and what becomes of the groups.
//!
//! Each test uses the controllers that this machine lets it have, in whichever version, and says
//! what it could not run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod held;
mod pools;
mod recorded;
mod scripts;
mod upgraded;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use os::cgroup::{Controller, Host, Version};
use testkit::client::reply;
use testkit::gateway::Builder;
use testkit::{Gateway, PATIENCE, RawClient, Reply, eventually};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");

const CONFIG: &str = r#"
workers = 1
cgroup_required = {required}
[timeouts] # an emulated machine takes its time to fill a group's memory
upstream_read = "10m"
[control]
socket = "{dir}/control"
[scripts] # and for scripts, too
cpu = "1s"
[tenants.shared]
cgroup = { {tenant} }
[[sites]]
hosts = ["app.test"]
tenant = "shared"
root = "{dir}/site"
cgroup = { {site} }
  [[sites.rules]]
  match = { path = "/one/*" }
  handler = { cgi = true }
  cgroup = { {one} }
  [[sites.rules]]
  match = { path = "/two/*" }
  handler = { cgi = true }
  cgroup = { {two} }
  [[sites.rules]]
  match = { path = "/three/*" }
  handler = { cgi = true }
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
[[sites]]
hosts = ["free.test"]
root = "{dir}/site"
  [[sites.rules]]
  match = { path = "/one/*" }
  handler = { cgi = true }
"#;

/// The limits a test wants, by level.
struct Wanted {
    tenant: &'static str,
    site: &'static str,
    one: &'static str,
    two: &'static str,
}

const WEIGHTS: Wanted = Wanted {
    tenant: "cpu_weight = 90",
    site: "cpu_weight = 80",
    one: "cpu_weight = 70",
    two: "cpu_weight = 60",
};

fn builder(wanted: &Wanted) -> Builder {
    builder_of(Path::new(BINARY), wanted)
}

/// With the program that is installed there.
fn builder_of(program: &Path, wanted: &Wanted) -> Builder {
    let builder = Gateway::with_config(program, CONFIG)
        .with("required", "true")
        .with("tenant", wanted.tenant)
        .with("site", wanted.site)
        .with("one", wanted.one)
        .with("two", wanted.two);
    let head = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n";
    let late = "printf 'Content-Type: text/plain\\n\\ndone'\n";
    for directory in ["one", "two", "three"] {
        for (name, script) in [
            ("where", format!("{head}cat /proc/self/cgroup\n")),
            ("spin", "#!/bin/sh\nwhile :; do :; done\n".to_owned()),
            ("wait", format!("{head}exec sleep 600\n")),
            (
                // Doubling is quick on an emulated machine too, where reading 100 MB is not.
                "greedy",
                format!(
                    "#!/bin/sh\nx=0123456789abcdef\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 \
                     16 17 18 19 20 21 22 23; do x=$x$x; done\n{late}"
                ),
            ),
            (
                "forks",
                format!("#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done\n{late}"),
            ),
        ] {
            let file = format!("site/{directory}/{name}.cgi");
            builder.directory().write_program(&file, script);
        }
    }
    builder
}

/// The configuration of [`WEIGHTS`] with other limits of the first rule, for a reload.
fn config_with(one: &str) -> String {
    let text = CONFIG.replace("{required}", "true").replace("{one}", one);
    let text = text.replace("{tenant}", WEIGHTS.tenant);
    text.replace("{site}", WEIGHTS.site)
        .replace("{two}", WEIGHTS.two)
}

/// Whether the test can run here; says why not.
fn has(controllers: &[Controller]) -> bool {
    let host = Host::look().unwrap();
    controllers.iter().all(|controller| {
        let place = host.place(*controller);
        if let Err(lack) = &place {
            let (name, why) = (controller.name(), lack.reason());
            testkit::lacks("a controller", format!("{name}: {why}"));
        }
        place.is_ok()
    })
}

/// A gateway's directory in a controller's hierarchy.
fn place(controller: Controller, gateway: &Gateway) -> PathBuf {
    let host = Host::look().unwrap();
    let own = host.place(controller).unwrap().directory.clone();
    let name = format!("nagaya-{}", gateway.pid());
    // The name gets a number where somebody else had it for a moment.
    let numbered = (1..8).map(|number| format!("{name}-{number}"));
    let mut places = numbered.map(|name| own.join(name));
    let found = places.find(|place| place.join("tenant-shared").exists());
    found.unwrap_or_else(|| own.join(name))
}

fn request(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

fn get(gateway: &Gateway, host: &str, path: &str) -> Reply {
    let mut client = RawClient::connect(gateway.address()).with_deadline(PATIENCE);
    reply(client.ask(&request(host, path)))
}

fn body(reply: &Reply) -> String {
    reply.text()
}

/// What the command says of the gateway.
fn status(gateway: &Gateway) -> String {
    gateway.command(&["status"]).1
}

/// Sends a request whose answer is not waited for; the program ends with the client.
fn begin(gateway: &Gateway, path: &str) -> RawClient {
    let mut client = RawClient::connect(gateway.address()).with_deadline(PATIENCE);
    client.send(&request("app.test", path));
    client
}

/// The line of `/proc/PID/cgroup` for a controller.
fn membership(text: &str, controller: Controller) -> String {
    let host = Host::look().unwrap();
    let is_it = |line: &&str| match host.place(controller).unwrap().version {
        Version::V1 => line
            .split(':')
            .nth(1)
            .is_some_and(|names| names.split(',').any(|name| name == controller.v1_name())),
        Version::V2 => line.starts_with("0::"),
    };
    let line = text.lines().find(is_it);
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn a_program_is_born_in_the_deepest_group_and_the_gateway_in_none_of_them() {
    if !has(&[Controller::Cpu]) {
        return;
    }
    let mut gateway = builder(&WEIGHTS).start();
    for (path, expected) in [
        (
            "/one/where.cgi",
            "/tenant-shared/site-app.test/rule-app.test-1/run",
        ),
        (
            "/two/where.cgi",
            "/tenant-shared/site-app.test/rule-app.test-2/run",
        ),
        ("/three/where.cgi", "/tenant-shared/site-app.test/run"),
    ] {
        let line = membership(&body(&get(&gateway, "app.test", path)), Controller::Cpu);
        assert!(line.ends_with(expected), "{path}: {line}");
    }
    let free = membership(
        &body(&get(&gateway, "free.test", "/one/where.cgi")),
        Controller::Cpu,
    );
    assert!(!free.contains("tenant-"), "{free}");
    for pid in [gateway.pid(), gateway.server_pid(), gateway.spawner_pid()] {
        let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let own = membership(&own, Controller::Cpu);
        assert!(!own.contains("tenant-"), "{own}");
    }
    let place = place(Controller::Cpu, &gateway);
    assert!(place.join("tenant-shared").exists());
    assert!(gateway.stop().success());
    assert!(!place.exists(), "{} is left", place.display());
}

#[test]
fn programs_of_two_rules_share_the_quota_of_their_site() {
    if !has(&[Controller::Cpu, Controller::CpuTime]) {
        return;
    }
    let wanted = Wanted {
        site: "cpu = \"10%\"",
        one: "cpu = \"8%\"",
        two: "cpu = \"8%\"",
        ..WEIGHTS
    };
    let gateway = builder(&wanted).start();
    let programs = [
        begin(&gateway, "/one/spin.cgi"),
        begin(&gateway, "/two/spin.cgi"),
    ];
    let group = "tenant-shared/site-app.test";
    let time = place(Controller::CpuTime, &gateway).join(group);
    let used_us = || {
        let file = |name: &str| fs::read_to_string(time.join(name)).ok();
        let v1 = file("cpuacct.usage").and_then(|text| text.trim().parse::<u64>().ok());
        let v2 = || {
            let text = file("cpu.stat")?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("usage_usec "))?;
            line.parse().ok()
        };
        v1.map(|ns| ns / 1_000).or_else(v2).unwrap()
    };
    eventually(PATIENCE, "both programs run", || {
        (used_us() > 30_000).then_some(())
    });
    let (before, began) = (used_us(), Instant::now());
    // Others want the machine, too, and one that stood still for a moment took too much in it: the
    // kernel has both made up for in time.
    eventually(PATIENCE, "they get their share and no more", || {
        std::thread::sleep(Duration::from_secs(3));
        let used = used_us() - before;
        let share = used as f64 / began.elapsed().as_micros() as f64;
        eprintln!(
            "two programs used {:.1} % of a core under 10 %",
            share * 100.0
        );
        (0.05..0.15).contains(&share).then_some(())
    });
    drop(programs);
}

#[test]
fn who_takes_most_of_the_machine_is_told() {
    if !has(&[Controller::Cpu]) {
        return;
    }
    let gateway = builder(&WEIGHTS).start();
    let _spins = begin(&gateway, "/one/spin.cgi");
    let top = |words: &[&str]| gateway.command(&[&["top"], words].concat()).1;
    let cores = eventually(PATIENCE, "the tenant's processor time", || {
        let answer = top(&["--json", "-n", "1"]);
        let rest = answer.strip_prefix(r#"[{"tenant":"shared","cpu_cores":"#)?;
        let cores: f64 = rest.split(',').next()?.parse().unwrap();
        (cores > 0.1).then_some(cores)
    });
    assert!(cores < 1.2, "one program without threads: {cores}");
    let table = top(&["--by", "waiting"]);
    assert!(
        table.contains("shared  ") && table.contains(" %"),
        "{table}"
    );
}

#[test]
fn a_program_that_takes_more_memory_than_its_group_has_is_killed_and_no_other_group_is_harmed() {
    if !has(&[Controller::Memory]) {
        return;
    }
    let wanted = Wanted {
        site: "memory = \"1GiB\"",
        one: "memory = \"32MiB\"",
        two: "memory = \"512MiB\"",
        tenant: "memory = \"2GiB\"",
    };
    let gateway = builder(&wanted).start();
    let mut bystander = begin(&gateway, "/two/wait.cgi");
    assert!(bystander.read_exactly(12).starts_with(b"HTTP/1.1 200"));
    let refused = get(&gateway, "app.test", "/one/greedy.cgi");
    assert_eq!(refused.status, 503);
    assert!(body(&refused).contains("memory_limit"));
    assert!(
        !body(&refused).contains("33554432"),
        "the limit is not the client's business"
    );
    gateway.wait_for_message("memory_limit");
    let detail = "group tenant-shared/site-app.test/rule-app.test-1 may have 32MiB of memory";
    gateway.wait_for_message(detail);
    let metrics = body(&get(&gateway, "app.test", "/metrics"));
    let killed = |labels: &str| {
        let series = format!("nagaya_group_oom_kills_total{labels} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
        line.map(|value| value.parse::<u64>().unwrap())
    };
    let tenant = r#"{tenant="shared",site="",rule=""}"#;
    let rule = r#"{tenant="shared",site="app.test",rule="rule 1"}"#;
    assert!(killed(tenant) >= Some(1), "{metrics}");
    assert!(killed(rule) >= Some(1), "{metrics}");
    // The server reads them as another user than the one that made them.
    let status = status(&gateway);
    assert!(status.contains("rule 1 of site app.test"), "{status}");
    // Nobody beside the group is harmed. Within it the kernel may kill more than one.
    let place = place(Controller::Memory, &gateway);
    let run = place.join("tenant-shared/site-app.test/rule-app.test-2/run/cgroup.procs");
    assert_ne!(fs::read_to_string(run).unwrap(), "");
    assert_eq!(get(&gateway, "app.test", "/one/where.cgi").status, 200);
}

#[test]
fn a_program_that_wants_more_processes_than_its_group_may_have_fails_with_a_reason() {
    if !has(&[Controller::Pids]) {
        return;
    }
    let wanted = Wanted {
        one: "pids = 4",
        ..WEIGHTS
    };
    let gateway = builder(&wanted).start();
    let refused = get(&gateway, "app.test", "/one/forks.cgi");
    assert_eq!(refused.status, 503, "{}", gateway.stderr());
    gateway.wait_for_message("pids_limit");
    gateway.wait_for_message("rule-app.test-1 may have 4 processes");
    eventually(PATIENCE, "what it started has ended", || {
        let again = get(&gateway, "app.test", "/one/where.cgi");
        (again.status == 200).then_some(())
    });
}

#[test]
fn a_reload_changes_limits_in_place_and_removes_groups_nothing_runs_in() {
    if !has(&[Controller::Pids, Controller::Cpu]) {
        return;
    }
    let wanted = Wanted {
        one: "pids = 40",
        ..WEIGHTS
    };
    let mut gateway = builder(&wanted).start();
    let group =
        place(Controller::Pids, &gateway).join("tenant-shared/site-app.test/rule-app.test-1");
    let pids = || fs::read_to_string(group.join("pids.max")).unwrap();
    assert_eq!(pids().trim(), "40");
    let mut program = begin(&gateway, "/one/wait.cgi");
    program.read_exactly(12);
    gateway.reload(&config_with("pids = 30"));
    eventually(PATIENCE, "the limit is changed", || {
        (pids().trim() == "30").then_some(())
    });
    gateway.wait_for_message("generation 2 serves");
    gateway.reload(&config_with("cpu_weight = 5").replace("app.test\"", "new.test\""));
    gateway.wait_for_message("generation 3 serves");
    assert!(group.join("run").exists(), "its program runs");
    drop(program);
    eventually(PATIENCE, "the group is removed", || {
        (!group.exists()).then_some(())
    });
    let cpu = place(Controller::Cpu, &gateway);
    eventually(PATIENCE, "so are those above it", || {
        (!cpu.join("tenant-shared/site-app.test").exists()).then_some(())
    });
    assert!(cpu.join("tenant-shared/site-new.test").exists());
    let answer = get(&gateway, "new.test", "/one/where.cgi");
    assert!(
        body(&answer).contains("rule-new.test-1/run"),
        "{}",
        body(&answer)
    );
    assert!(gateway.stop().success());
}

#[test]
fn what_a_crash_leaves_is_removed_at_the_next_start_and_a_living_gateways_groups_are_not() {
    if !has(&[Controller::Cpu]) {
        return;
    }
    let living = builder(&WEIGHTS).start();
    let crashed = builder(&WEIGHTS).start();
    let (kept, left) = (
        place(Controller::Cpu, &living),
        place(Controller::Cpu, &crashed),
    );
    assert!(kept.exists() && left.exists());
    // A test's end is a crash: the supervisor gets KILL.
    drop(crashed);
    eventually(PATIENCE, "another start removes what it left", || {
        drop(builder(&WEIGHTS).start());
        (!left.exists()).then_some(())
    });
    assert!(kept.exists());
    let answer = get(&living, "app.test", "/one/where.cgi");
    assert_eq!(answer.status, 200);
}

#[test]
fn a_limit_that_cannot_be_had_refuses_the_start_unless_it_is_let_go() {
    if !has(&[Controller::Cpu, Controller::Io]) {
        return;
    }
    let wanted = Wanted {
        one: "io = { device = \"/proc\", read = \"1MiB\" }",
        ..WEIGHTS
    };
    let strict = builder(&wanted);
    for command in ["check", "serve", "doctor"] {
        let (status, stdout, stderr) = strict.run(&[command]);
        assert!(!status.success(), "{command}");
        for part in [
            "rule 1 of site app.test",
            "io finds no disk for /proc",
            "cgroup_required = false",
        ] {
            assert!(
                stdout.contains(part) || stderr.contains(part),
                "{command}: {stdout}{stderr}"
            );
        }
    }
    let text = CONFIG.replace("{required}", "false");
    let mut lax = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &text);
    for (name, value) in [
        ("tenant", wanted.tenant),
        ("site", wanted.site),
        ("one", wanted.one),
        ("two", wanted.two),
    ] {
        lax = lax.with(name, value);
    }
    lax.directory().write("site/x", "x");
    let gateway = lax.start();
    gateway.wait_for_message("programs run without it");
    assert_eq!(get(&gateway, "app.test", "/x").status, 200);
}

/// Groups lent to a gateway, as an administrator or systemd does it; removed when dropped.
struct Lent {
    groups: Vec<PathBuf>,
}

impl Lent {
    /// One in each hierarchy of these controllers, given to `user`.
    fn to(user: u32, controllers: &[Controller]) -> Lent {
        let host = Host::look().unwrap();
        let mut groups = Vec::new();
        for controller in controllers {
            let place = host.place(*controller).unwrap();
            let group = place
                .directory
                .join(format!("lent-{user}-{}", std::process::id()));
            if place.version == Version::V2 && *controller != Controller::CpuTime {
                let enable = format!("+{}", controller.name());
                fs::write(place.directory.join("cgroup.subtree_control"), enable).unwrap();
            }
            if !groups.contains(&group) {
                fs::create_dir(&group).unwrap();
                std::os::unix::fs::chown(&group, Some(user), None).unwrap();
                for name in [
                    "cgroup.procs",
                    "cgroup.threads",
                    "cgroup.subtree_control",
                    "tasks",
                ] {
                    let file = group.join(name);
                    if file.exists() {
                        std::os::unix::fs::chown(file, Some(user), None).unwrap();
                    }
                }
                groups.push(group);
            }
        }
        Lent { groups }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for group in &self.groups {
            os::cgroup::kill_all(group, PATIENCE);
            let _ = fs::remove_dir(group);
        }
    }
}

/// A gateway started in lent groups by `user`, out of a directory of its own.
fn start_in(lent: &Lent, user: u32) -> Gateway {
    let builder = builder(&WEIGHTS);
    let directory = builder.directory().path().to_owned();
    // Where it was built others may not be let in.
    let binary = directory.join("nagaya");
    fs::copy(env!("CARGO_BIN_EXE_nagaya"), &binary).unwrap();
    let mut script = "#!/bin/sh\n".to_owned();
    for group in &lent.groups {
        let procs = group.join("cgroup.procs");
        script.push_str(&format!("echo $$ >{} || exit 1\n", procs.display()));
    }
    let (binary, become_user) = (
        binary.display(),
        match user {
            0 => String::new(),
            user => format!("setpriv --reuid={user} --regid={user} --clear-groups "),
        },
    );
    script.push_str(&format!("exec {become_user}{binary} \"$@\"\n"));
    let wrapper = builder.directory().write_program("wrapper", script);
    std::os::unix::fs::chown(&directory, Some(user), None).unwrap();
    builder.through(wrapper).start()
}

#[test]
fn lent_groups_are_enough_for_root_and_for_anybody() {
    if !has(&[Controller::Cpu]) || testkit::lacks_root("to lend groups") {
        return;
    }
    for user in [0, 65_534] {
        if user != 0
            && !std::process::Command::new("setpriv")
                .arg("--version")
                .output()
                .is_ok_and(|output| output.status.success())
        {
            testkit::lacks_program("setpriv");
            continue;
        }
        let lent = Lent::to(user, &[Controller::Cpu, Controller::CpuTime]);
        let mut gateway = start_in(&lent, user);
        let name = format!(
            "/lent-{user}-{}/nagaya-{}",
            std::process::id(),
            gateway.pid()
        );
        let line = membership(
            &body(&get(&gateway, "app.test", "/one/where.cgi")),
            Controller::Cpu,
        );
        let group = format!("{name}/tenant-shared/site-app.test/rule-app.test-1/run");
        assert!(line.ends_with(&group), "{user}: {line}");
        let own = fs::read_to_string(format!("/proc/{}/cgroup", gateway.server_pid())).unwrap();
        let own = membership(&own, Controller::Cpu);
        // In version 2 a group that has groups below it has no processes.
        let stands_in = if own.starts_with("0::") {
            format!("{name}/gateway")
        } else {
            format!("/lent-{user}-{}", std::process::id())
        };
        assert!(own.ends_with(&stands_in), "{user}: {own}");
        let place = lent.groups[0].join(format!("nagaya-{}", gateway.pid()));
        assert!(place.exists());
        assert!(gateway.stop().success());
        assert!(!place.exists(), "{user}: {} is left", place.display());
    }
}
