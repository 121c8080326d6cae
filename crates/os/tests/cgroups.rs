//! Control groups of this machine, as far as it lets us: what a test cannot do here it says.
//!
//! Programs are shells that are born in a group by its open `cgroup.procs` files, which works in
//! both versions. Several test processes share the machine: each has places of its own.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use os::cgroup::{
    Base, Controller, Controllers, CpuLimit, Group, HeldLimit, Host, IoLimit, Layout, Leaf, Limits,
    NumberList, Sight, Tree, Usage,
};
use testkit::PATIENCE;

/// In version 2 a gateway steps into a group of its own, and this process is one for all tests.
static TURN: Mutex<()> = Mutex::new(());

/// This machine's groups, with one tree of our own.
struct Groups {
    // In the order in which they go.
    tree: Tree,
    base: Base,
    _turn: MutexGuard<'static, ()>,
}

impl Groups {
    /// Takes places for these controllers, or says why the test cannot run.
    fn with(controllers: &[Controller]) -> Option<Groups> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let host = Host::look().expect("/proc is to be read");
        for controller in controllers {
            if let Err(lack) = host.place(*controller) {
                let name = controller.name();
                testkit::lacks("a controller", format!("{name}: {}", lack.reason()));
                return None;
            }
        }
        let (mut base, problems) = Base::start(host);
        for problem in problems {
            eprintln!("at the start: {problem}");
        }
        base.claim(controllers.iter().copied().collect())
            .expect("what the host says can be had is had");
        Some(Groups {
            tree: Tree::default(),
            base,
            _turn: turn,
        })
    }

    fn layout(&mut self) -> Layout {
        let claimed = self.base.claim(Controllers::NONE);
        claimed.expect("nothing is wanted").clone()
    }

    fn apply(&mut self, groups: &[Group]) {
        let layout = self.layout();
        if let Err(problems) = self.tree.apply(&layout, groups.into()) {
            panic!("{problems:?}");
        }
    }

    fn run(&mut self, groups: &[Group], path: &[String], script: &str) -> Child {
        start(self.tree.leaf(groups, path).expect("a leaf"), script)
    }

    fn usage(&mut self, path: &[String]) -> Usage {
        Usage::of(&self.layout(), path).expect("a group")
    }

    /// The text of a file of a group, wherever its controller is.
    fn file(&mut self, controller: Controller, path: &[String], v1: &str, v2: &str) -> String {
        let layout = self.layout();
        let hierarchy = layout.of(controller).expect("it was claimed");
        let name = match hierarchy.version {
            os::cgroup::Version::V1 => v1,
            os::cgroup::Version::V2 => v2,
        };
        let file = hierarchy.group(path).join(name);
        std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
            .trim()
            .to_owned()
    }
}

/// Starts a shell that waits until it is in its group.
fn start(leaf: &Leaf, script: &str) -> Child {
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    let pid = child.id().to_string();
    for procs in leaf.procs() {
        rustix::io::write(procs, pid.as_bytes()).expect("a process moves");
    }
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"go\n").expect("the shell reads");
    child
}

fn named(path: &[&str], limits: Limits) -> Group {
    Group {
        path: path.iter().map(|&name| name.to_owned()).collect(),
        limits,
    }
}

fn cpu(millicores: u32) -> Limits {
    Limits {
        cpu: Some(CpuLimit {
            millicores,
            burst_us: 0,
        }),
        ..Limits::default()
    }
}

fn pids(pids: u32) -> Limits {
    Limits {
        pids: Some(pids),
        ..Limits::default()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

const SPIN: &str = "while :; do :; done";

#[test]
fn this_machine_is_looked_at_without_changing_it() {
    let host = Host::of(&Sight::read().unwrap());
    for controller in Controller::ALL {
        match host.place(controller) {
            Ok(place) => assert!(place.directory.is_dir()),
            Err(lack) => {
                let (reason, remedy) = (lack.reason(), lack.remedy(controller));
                eprintln!("{}: {reason}; {remedy}", controller.name());
                assert!(!reason.is_empty() && !remedy.is_empty());
            }
        }
    }
}

#[test]
fn two_rules_share_what_their_site_may_use() {
    let Some(mut here) = Groups::with(&[Controller::Cpu]) else {
        return;
    };
    let groups = [
        named(&["site"], cpu(100)),
        named(&["site", "one"], cpu(80)),
        named(&["site", "two"], cpu(80)),
    ];
    here.apply(&groups);
    let site = groups[0].path.clone();
    if here.usage(&site).cpu_us.is_none() {
        return testkit::lacks("a controller", "processor time is not counted");
    }
    let mut one = here.run(&groups, &groups[1].path, SPIN);
    let mut two = here.run(&groups, &groups[2].path, SPIN);
    // From a moment when both run: a group begins with a full quota.
    until("the quota is used up", || {
        here.usage(&site).throttled_periods.unwrap_or(0) > 2
    });
    let before = here.usage(&site).cpu_us.unwrap();
    let began = Instant::now();
    // Others want the machine, too, and one that stood still for a moment took too much in it: the
    // kernel has both made up for in time.
    until("the programs get their share and no more", || {
        std::thread::sleep(Duration::from_secs(3));
        let used = here.usage(&site).cpu_us.unwrap() - before;
        let share = used as f64 / began.elapsed().as_micros() as f64;
        eprintln!(
            "two programs used {:.1} % of a core under 10 %",
            share * 100.0
        );
        (0.05..0.15).contains(&share)
    });
    for child in [&mut one, &mut two] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_process_that_takes_more_memory_than_its_group_has_is_killed_and_no_other_group_is_harmed() {
    let Some(mut here) = Groups::with(&[Controller::Memory]) else {
        return;
    };
    let limits = Limits {
        memory_bytes: Some(32 << 20),
        ..Limits::default()
    };
    let groups = [
        named(&["small"], limits.clone()),
        named(&["beside"], limits),
    ];
    here.apply(&groups);
    let path = groups[0].path.clone();
    // Within a group the kernel may kill more than one.
    let mut innocent = here.run(&groups, &groups[1].path, "exec sleep 600");
    let before = here.tree.leaf(&groups, &path).unwrap().hits();
    let mut greedy = here.run(
        &groups,
        &path,
        // Doubling is quick on an emulated machine too, where reading 100 MB is not.
        "x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; \
         do x=$x$x; done",
    );
    let ended = greedy.wait().unwrap();
    let hits = here.tree.leaf(&groups, &path).unwrap().hits().since(before);
    assert!(!ended.success());
    assert!(hits.oom_kills >= 1, "{ended} {hits:?}");
    assert!(here.usage(&path).oom_kills.unwrap_or(0) >= 1);
    assert!(innocent.try_wait().unwrap().is_none(), "the other lives");
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

/// Whoever finds groups says the same of a limit that waits, however many are before it in the list.
fn check_found(layout: &Layout, groups: &[Group], expected: &HeldLimit) {
    for fillers in [0, 256] {
        let fillers = (0..fillers).map(|number| named(&[&format!("filler{number}")], pids(9)));
        let list: Vec<Group> = fillers.chain(groups.iter().cloned()).collect();
        let mut next = Tree::default();
        next.apply(layout, list.as_slice().into())
            .expect("what is found is left");
        assert_eq!(next.held().collect::<Vec<_>>(), [expected]);
        let leaf = next.leaf(&list, &expected.path);
        leaf.expect("programs run meanwhile");
    }
}

#[test]
fn a_limit_below_the_memory_in_use_waits_and_every_other_limit_is_had() {
    let Some(mut here) = Groups::with(&[Controller::Memory, Controller::Pids]) else {
        return;
    };
    let limits = |memory_bytes, pids| Limits {
        memory_bytes,
        pids: Some(pids),
        ..Limits::default()
    };
    let path = vec!["full".to_owned()];
    let groups = |memory_bytes, pids| {
        let beside = limits(Some(32 << 20), pids);
        [
            named(&["full"], limits(memory_bytes, pids)),
            named(&["beside"], beside),
        ]
    };
    let before = groups(Some(256 << 20), 40);
    here.apply(&before);
    let layout = here.layout();
    let hierarchy = layout.of(Controller::Memory).expect("it was claimed");
    if hierarchy.version == os::cgroup::Version::V2 {
        return testkit::lacks("a controller", "version 2 takes any limit, and kills");
    }
    let script = "x=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; \
                  do x=$x$x; done; while :; do sleep 600; done";
    let mut child = here.run(&before, &path, script);
    until("it has much", || {
        here.usage(&path).memory_bytes.unwrap_or(0) > 24 << 20
    });
    let said = |here: &mut Groups| {
        let file = "memory.limit_in_bytes";
        let bytes: u64 = here
            .file(Controller::Memory, &path, file, file)
            .parse()
            .unwrap();
        (
            bytes >> 20,
            here.file(Controller::Pids, &path, "pids.max", "pids.max"),
        )
    };
    let after = groups(Some(4 << 20), 30);
    here.apply(&after);
    assert_eq!(said(&mut here), (256, "30".to_owned()));
    let held: Vec<_> = here.tree.held().cloned().collect();
    let expected = HeldLimit {
        path: path.clone(),
        wanted_bytes: 4 << 20,
        kept_bytes: Some(256 << 20),
    };
    assert_eq!(held, std::slice::from_ref(&expected));
    check_found(&layout, &after, &expected);
    // A list that cannot be had forgets nothing.
    let mut wrong = after.to_vec();
    wrong.push(named(&["nobody/made"], limits(None, 9)));
    assert!(here.tree.apply(&layout, wrong.as_slice().into()).is_err());
    here.tree.try_held();
    assert_eq!(here.tree.held().count(), 1, "as much is in use");
    for hierarchy in &layout.hierarchies {
        os::cgroup::kill_all(&hierarchy.group(&path), PATIENCE);
    }
    child.wait().unwrap();
    until("the limit is had", || {
        here.tree.try_held();
        here.tree.held().count() == 0
    });
    assert_eq!(said(&mut here), (4, "30".to_owned()));
    // A limit that fits again ends the wait as well.
    here.apply(&before);
    assert_eq!((here.tree.held().count(), said(&mut here).0), (0, 256));
}

#[test]
fn more_processes_than_the_group_may_have_are_refused_and_counted() {
    let Some(mut here) = Groups::with(&[Controller::Pids]) else {
        return;
    };
    let limits = Limits {
        pids: Some(4),
        ..Limits::default()
    };
    let groups = [named(&["few"], limits)];
    here.apply(&groups);
    let path = groups[0].path.clone();
    let before = here.tree.leaf(&groups, &path).unwrap().hits();
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait";
    let mut child = here.run(&groups, &path, script);
    until("a fork is refused", || {
        here.tree
            .leaf(&groups, &path)
            .unwrap()
            .hits()
            .since(before)
            .pids
            > 0
    });
    let usage = here.usage(&path);
    assert!(usage.pids_hits.unwrap_or(0) > 0, "{usage:?}");
    let places: Vec<_> = here.layout().hierarchies;
    for place in &places {
        assert!(os::cgroup::kill_all(&place.group(&path), PATIENCE));
    }
    assert!(!child.wait().unwrap().success());
}

#[test]
fn limits_change_in_place_and_groups_go_when_nothing_runs_in_them() {
    let Some(mut here) = Groups::with(&[Controller::Cpu, Controller::Pids]) else {
        return;
    };
    let wide = Limits {
        pids: Some(50),
        cpu_weight: Some(50),
        ..cpu(200)
    };
    let first = [
        named(&["site"], wide.clone()),
        named(&["site", "rule"], wide),
    ];
    here.apply(&first);
    let rule = first[1].path.clone();
    let weight = here.file(Controller::Cpu, &rule, "cpu.shares", "cpu.weight");
    assert!(["512", "50"].contains(&weight.as_str()), "{weight}");
    let mut child = here.run(&first, &rule, "read forever; sleep 60");
    // Less for both, more for both, and one up while the other goes down.
    for (site, inner) in [(100, 50), (400, 300), (350, 320), (80, 900)] {
        let limits = |millicores| Limits {
            pids: Some(millicores),
            ..cpu(millicores)
        };
        here.apply(&[
            named(&["site"], limits(site)),
            named(&["site", "rule"], limits(inner)),
        ]);
        let pids = here.file(Controller::Pids, &rule, "pids.max", "pids.max");
        assert_eq!(pids, inner.to_string());
        let quota = here.file(Controller::Cpu, &rule, "cpu.cfs_quota_us", "cpu.max");
        let (wanted, bounded) = (inner * 100, inner.min(site) * 100);
        assert!(
            quota == format!("{wanted} 100000") || quota == bounded.to_string(),
            "{quota}"
        );
    }
    here.apply(&[named(&["other"], cpu(100))]);
    assert_eq!(here.tree.sweep(), 2, "the rule's program lives");
    // A request of the list before still finds its group.
    here.tree.leaf(&first, &rule).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let places = here.layout().hierarchies;
    for place in &places {
        os::cgroup::kill_all(&place.group(&rule), PATIENCE);
    }
    until("the groups are removed", || here.tree.sweep() == 0);
    for place in &places {
        assert!(!place.group(&first[0].path).exists());
    }
    // And one that comes later gets it back, limits and all.
    here.tree.leaf(&first, &rule).unwrap();
    let pids = here.file(Controller::Pids, &rule, "pids.max", "pids.max");
    assert_eq!(pids, "50");
    assert_eq!(here.tree.sweep(), 0);
}

#[test]
fn quotas_of_groups_that_are_found_change_with_those_above() {
    let Some(mut here) = Groups::with(&[Controller::Cpu]) else {
        return;
    };
    let path = ["site".to_owned(), "rule".to_owned()];
    let quota = |here: &mut Groups, path: &[String]| {
        here.file(Controller::Cpu, path, "cpu.cfs_quota_us", "cpu.max")
    };
    // Each list is another process's, which knows nothing of those before.
    for (site, rule) in [(100, 50), (400, 300), (350, 320), (80, 70), (900, 700)] {
        here.tree = Tree::default();
        here.apply(&[
            named(&["site"], cpu(site)),
            named(&["site", "rule"], cpu(rule)),
        ]);
        let found = quota(&mut here, &path);
        assert_eq!(found.split(' ').next(), Some(&*(rule * 100).to_string()));
    }
    here.tree = Tree::default();
    here.apply(&[
        named(&["site"], Limits::default()),
        named(&["site", "rule"], cpu(60)),
    ]);
    let found = quota(&mut here, &path[..1]);
    assert!(["-1", "max 100000"].contains(&found.as_str()), "{found}");
}

#[test]
fn the_limits_of_memory_and_disks_are_what_the_kernel_says_they_are() {
    let Some(mut here) = Groups::with(&[Controller::Memory]) else {
        return;
    };
    let limits = Limits {
        memory_bytes: Some(64 << 20),
        memory_high_bytes: Some(48 << 20),
        ..Limits::default()
    };
    let groups = [named(&["memory"], limits)];
    here.apply(&groups);
    let path = &groups[0].path;
    for (v1, v2, bytes) in [
        ("memory.limit_in_bytes", "memory.max", 64 << 20),
        ("memory.soft_limit_in_bytes", "memory.high", 48 << 20),
    ] {
        let said = here.file(Controller::Memory, path, v1, v2);
        assert_eq!(said, (bytes as u64).to_string(), "{v1} {v2}");
    }
    drop(here);
    let Some(mut here) = Groups::with(&[Controller::Io]) else {
        return;
    };
    let device = match os::cgroup::device_of(Path::new("/")) {
        Ok(device) => device,
        Err(error) => {
            return testkit::lacks("a kernel's feature", format!("the disk of /: {error}"));
        }
    };
    let limits = Limits {
        io: vec![IoLimit {
            device,
            read_bytes: Some(1 << 20),
            write_bytes: None,
            read_ops: None,
            write_ops: Some(500),
        }],
        ..Limits::default()
    };
    let groups = [named(&["disk"], limits)];
    let layout = here.layout();
    if let Err(problems) = here.tree.apply(&layout, groups.as_slice().into()) {
        // Kernels can be built without throttling.
        return testkit::lacks("a kernel's feature", &problems[0]);
    }
    let (v1, path) = ("blkio.throttle.read_bps_device", &groups[0].path);
    let said = here.file(Controller::Io, path, v1, "io.max");
    let v1 = format!("{device} 1048576");
    let v2 = format!("{device} rbps=1048576 wbps=max riops=max wiops=500");
    assert!(said == v1 || said == v2, "{said}");
    here.apply(&[named(&["disk"], cpu(100))]);
    let said = here.file(
        Controller::Io,
        path,
        "blkio.throttle.read_bps_device",
        "io.max",
    );
    assert_eq!(said, "");
}

/// CPUs that a program may run on, as the kernel lists them.
fn allowed_cpus(pid: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("Linux tells it").trim().to_owned()
}

#[test]
fn a_program_runs_on_the_cpus_of_its_group_and_on_others_when_they_change() {
    let Some(mut here) = Groups::with(&[Controller::Cpuset, Controller::Pids]) else {
        return;
    };
    let all = allowed_cpus("self");
    let ends: Vec<&str> = all.split([',', '-']).collect();
    let (first, last) = (ends[0], ends[ends.len() - 1]);
    let pids = Limits {
        pids: Some(50),
        ..Limits::default()
    };
    let outer = [named(&["site"], pids.clone())];
    here.apply(&outer);
    let lists = |cpus: &str| {
        let limits = Limits {
            cpus: NumberList::parse(cpus),
            ..pids.clone()
        };
        named(&["site", "script"], limits)
    };
    // A group that is there without lists gets some as well as a fresh one.
    let mut child = start(
        here.tree.leaf_within(&outer, &lists("")).unwrap(),
        "sleep 600",
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child = start(
        here.tree.leaf_within(&outer, &lists(first)).unwrap(),
        "exec sleep 600",
    );
    let pid = child.id().to_string();
    assert_eq!(allowed_cpus(&pid), first);
    for cpus in [last, first, &all, last, "", first] {
        here.tree.leaf_within(&outer, &lists(cpus)).unwrap();
        let expected = if cpus.is_empty() { &all } else { cpus };
        assert_eq!(&allowed_cpus(&pid), expected, "{cpus:?}");
    }
    // No machine of tests has this one.
    let refused = here.tree.leaf_within(&outer, &lists("8191")).unwrap_err();
    assert!(refused.to_string().contains("8191"), "{refused}");
    here.tree.leaf_within(&outer, &lists("")).unwrap();
    assert_eq!(
        allowed_cpus(&pid),
        all,
        "nothing is left of what was refused"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_burst_is_granted_up_to_the_quota() {
    let Some(mut here) = Groups::with(&[Controller::Cpu]) else {
        return;
    };
    let limits = Limits {
        cpu: Some(CpuLimit {
            millicores: 100,
            burst_us: 20_000,
        }),
        ..Limits::default()
    };
    let groups = [named(&["bursty"], limits)];
    let layout = here.layout();
    if let Err(problems) = here.tree.apply(&layout, groups.as_slice().into()) {
        // Kernels before 5.14.
        assert!(problems[0].to_string().contains("burst"), "{problems:?}");
        return testkit::lacks("a kernel's feature", &problems[0]);
    }
    let path = &groups[0].path;
    let burst = here.file(Controller::Cpu, path, "cpu.cfs_burst_us", "cpu.max.burst");
    assert_eq!(burst, "20000");
    here.apply(&[named(&["bursty"], cpu(50))]);
    let burst = here.file(Controller::Cpu, path, "cpu.cfs_burst_us", "cpu.max.burst");
    assert_eq!(burst, "0");
}

#[test]
fn what_a_crash_left_is_removed_and_a_living_gateways_is_not() {
    let Some(mut living) = Groups::with(&[Controller::Pids]) else {
        return;
    };
    let layout = living.layout();
    let place = &layout.of(Controller::Pids).unwrap().directory;
    let Some(own) = place.parent() else {
        panic!("{} is below a group", place.display());
    };
    // As a gateway leaves it: a place whose lock nobody holds, with a program in it.
    let left = own.join(format!("nagaya-{}-900", std::process::id()));
    for path in ["", "site", "site/run"] {
        std::fs::create_dir(left.join(path)).unwrap();
    }
    let mut orphan = Command::new("sleep").arg("600").spawn().unwrap();
    std::fs::write(left.join("site/run/cgroup.procs"), orphan.id().to_string()).unwrap();
    // Nobody's: the name is not of ours.
    let foreign = own.join(format!("nagaya-tools-{}", std::process::id()));
    std::fs::create_dir(&foreign).unwrap();
    // As the next one finds it.
    let host = living.base.host().clone();
    drop(Base::start(host.clone()));
    assert!(!orphan.wait().unwrap().success());
    until("the leftover is gone", || {
        drop(Base::start(host.clone()));
        !left.exists()
    });
    assert!(
        Path::new(place).exists(),
        "the living gateway's place stays"
    );
    assert!(foreign.exists());
    std::fs::remove_dir(&foreign).unwrap();
}

#[test]
fn a_gateway_that_ends_leaves_nothing_behind() {
    let Some(mut here) = Groups::with(&[Controller::Pids]) else {
        return;
    };
    let limits = Limits {
        pids: Some(9),
        ..Limits::default()
    };
    let groups = [named(&["ending"], limits)];
    here.apply(&groups);
    let path = groups[0].path.clone();
    let mut child = here.run(&groups, &path, "sleep 600");
    let places = here.layout().hierarchies;
    drop(here);
    assert!(!child.wait().unwrap().success());
    for place in places {
        // The next test has the same name for its place: its process is this one.
        assert!(
            !place.group(&path).exists(),
            "{}",
            place.directory.display()
        );
    }
}
