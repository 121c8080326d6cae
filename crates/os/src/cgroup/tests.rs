//! Made-up machines: hierarchies as plain directories, so that every kind of host can be looked at
//! and written to wherever the tests run.

mod found;
mod memory;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory that stands for a machine's hierarchies.
struct Machine {
    root: PathBuf,
}

impl Machine {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir();
        let root = root.join(format!("nagaya-groups-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self { root }
    }

    /// Makes a group with these files and tells its directory.
    fn group(&self, path: &str, files: &[(&str, &str)]) -> PathBuf {
        let directory = self.root.join(path);
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        directory
    }

    /// The line of a mounted hierarchy.
    fn mount(&self, path: &str, root: &str, kind: &str, options: &str) -> String {
        let point = self.root.join(path);
        format!(
            "31 23 0:28 {root} {} rw - {kind} none rw,{options}\n",
            point.display()
        )
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

const KNOWN: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\ncpuacct\t1\t1\t1\n\
                     memory\t0\t1\t0\npids\t0\t1\t1\nblkio\t0\t1\t1\n\
                     cpuset\t0\t1\t1\n";

/// The files of a group in version 2 that was given these controllers.
fn v2_files<'a>(controllers: &'a str, procs: &'a str) -> [(&'a str, &'a str); 5] {
    [
        ("cgroup.type", "domain\n"),
        ("cgroup.events", "populated 1\n"),
        ("cgroup.controllers", controllers),
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", procs),
    ]
}

/// What each controller is had from, or why not, in one line.
fn outcome(host: &Host, root: &Path) -> String {
    let each = Controller::ALL.map(|controller| match host.place(controller) {
        Ok(place) => {
            let directory = place.directory.strip_prefix(root).unwrap().display();
            format!("{}={:?}:{directory}", controller.name(), place.version)
        }
        Err(lack) => {
            let lack = format!("{lack:?}");
            let name = lack.split([' ', '{']).next().unwrap();
            format!("{}=-{name}", controller.name())
        }
    });
    each.join(" ")
}

/// A machine with something of everything.
fn full_machine() -> Machine {
    let own = std::process::id().to_string();
    let machine = Machine::new();
    let procs = [("cgroup.procs", own.as_str())];
    for path in ["v1/cpu/a", "v1/mem", "v1/pids/app"] {
        machine.group(path, &procs);
    }
    machine.group(
        "uni",
        &[("cgroup.controllers", "cpu cpuset io memory pids")],
    );
    machine.group("uni/own", &v2_files("cpu cpuset io memory pids", &own));
    machine.group("uni/poor", &v2_files("pids", &own));
    machine.group(
        "uni/busy",
        &v2_files("cpu cpuset memory pids io", &format!("{own}\n1\n2\n")),
    );
    let mut threads = v2_files("pids", &own);
    threads[0].1 = "threaded\n";
    machine.group("uni/threads", &threads);
    machine.group(
        "top",
        &[
            ("cgroup.controllers", "cpu cpuset io memory pids"),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", "1\n2\n"),
        ],
    );
    machine
}

/// Looks at the machine through these mounts and memberships.
fn check_places(machine: &Machine, mountinfo: &str, cgroup: &str, expected: &str) {
    let sight = Sight {
        mountinfo: mountinfo.to_owned(),
        cgroup: cgroup.to_owned(),
        known: KNOWN.to_owned(),
    };
    let found = outcome(&Host::of(&sight), &machine.root);
    assert_eq!(found, expected, "{sight:?}");
}

#[test]
fn in_version_2_a_group_must_have_been_given_controllers_and_be_ours_alone() {
    let machine = full_machine();
    let [unified, top] = ["uni", "top"].map(|path| machine.mount(path, "/", "cgroup2", "rw"));
    for (mountinfo, cgroup, expected) in [
        (
            String::new(),
            "0::/own",
            "cpu=-NotMounted cpuacct=-NotMounted memory=-SwitchedOff pids=-NotMounted io=-NotMounted cpuset=-NotMounted",
        ),
        (
            unified.clone(),
            "0::/own",
            "cpu=V2:uni/own cpuacct=V2:uni/own memory=V2:uni/own pids=V2:uni/own io=V2:uni/own cpuset=V2:uni/own",
        ),
        // What runs before a service of systemd's, asked for the service.
        (
            unified.clone(),
            "0::/own/.control",
            "cpu=V2:uni/own cpuacct=V2:uni/own memory=V2:uni/own pids=V2:uni/own io=V2:uni/own cpuset=V2:uni/own",
        ),
        (
            unified.clone(),
            "0::/poor",
            "cpu=-NotDelegated cpuacct=V2:uni/poor memory=-NotDelegated pids=V2:uni/poor io=-NotDelegated cpuset=-NotDelegated",
        ),
        (
            unified.clone(),
            "0::/busy",
            "cpu=-Shared cpuacct=V2:uni/busy memory=-Shared pids=-Shared io=-Shared cpuset=-Shared",
        ),
        (
            unified.clone(),
            "0::/threads",
            "cpu=-NotDelegated cpuacct=-Threaded memory=-NotDelegated pids=-Threaded io=-NotDelegated cpuset=-NotDelegated",
        ),
        (
            unified.clone(),
            "0::/../elsewhere",
            "cpu=-OutsideMount cpuacct=-OutsideMount memory=-OutsideMount pids=-OutsideMount io=-OutsideMount cpuset=-OutsideMount",
        ),
        // The root of the hierarchy may have processes beside groups.
        (
            top.clone(),
            "0::/",
            "cpu=V2:top cpuacct=V2:top memory=V2:top pids=V2:top io=V2:top cpuset=V2:top",
        ),
    ] {
        check_places(&machine, &mountinfo, cgroup, expected);
    }
}

#[test]
fn controllers_are_found_one_by_one_in_either_version() {
    let machine = full_machine();
    let v1 = |path, root, names| machine.mount(path, root, "cgroup", names);
    let cpu = v1("v1/cpu", "/", "cpu,cpuacct");
    let memory = v1("v1/mem", "/docker/1", "memory");
    let pids = v1("v1/pids", "/", "pids");
    let unified = machine.mount("uni", "/", "cgroup2", "rw");
    for (mountinfo, cgroup, expected) in [
        (
            format!("{cpu}{memory}"),
            "2:cpu,cpuacct:/a\n3:memory:/docker/1\n0::/",
            "cpu=V1:v1/cpu/a cpuacct=V1:v1/cpu/a memory=V1:v1/mem pids=-NotMounted io=-NotMounted cpuset=-NotMounted",
        ),
        (
            format!("{cpu}{memory}"),
            "2:cpu,cpuacct:/gone\n3:memory:/docker/2",
            "cpu=-NoGroup cpuacct=-NoGroup memory=-OutsideMount pids=-NotMounted io=-NotMounted cpuset=-NotMounted",
        ),
        // Some controllers in version 1, the rest in version 2.
        (
            format!("{cpu}{pids}{unified}"),
            "2:cpu,cpuacct:/a\n4:pids:/app\n0::/own",
            "cpu=V1:v1/cpu/a cpuacct=V1:v1/cpu/a memory=V2:uni/own pids=V1:v1/pids/app io=V2:uni/own cpuset=V2:uni/own",
        ),
    ] {
        check_places(&machine, &mountinfo, cgroup, expected);
    }
}

#[test]
fn every_obstacle_has_a_reason_and_a_remedy() {
    let group = || PathBuf::from("/sys/fs/cgroup/system.slice/nagaya.service");
    for (lack, reason, remedy) in [
        (Lack::NotInKernel, "built without", "run a kernel"),
        (Lack::SwitchedOff, "switched off", "cgroup_enable=memory"),
        (
            Lack::NotMounted,
            "mounted nowhere",
            "mount -t cgroup -o memory",
        ),
        (
            Lack::OutsideMount {
                group: "/a".into(),
                mount: "/cg".into(),
            },
            "/a",
            "--cgroupns",
        ),
        (Lack::ReadOnly { group: group() }, "read-only", "remount,rw"),
        (
            Lack::NotDelegated { group: group() },
            "not given",
            "systemctl edit nagaya.service",
        ),
        (
            Lack::Shared {
                group: group(),
                others: 1,
            },
            "1 other process in",
            "Delegate=",
        ),
        (
            Lack::NotWritable { path: group() },
            "not writable",
            "chown -R",
        ),
    ] {
        let (said, advised) = (lack.reason(), lack.remedy(Controller::Memory));
        assert!(said.contains(reason), "{said}");
        assert!(advised.contains(remedy), "{advised}");
    }
}

fn layout(version: Version, directory: &Path, controllers: &[Controller]) -> Layout {
    Layout {
        hierarchies: vec![Hierarchy {
            version,
            controllers: controllers.iter().copied().collect(),
            directory: directory.to_owned(),
        }],
    }
}

fn group(path: &[&str], limits: Limits) -> Group {
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

#[test]
fn in_version_2_controllers_are_handed_down_and_limits_written() {
    let machine = Machine::new();
    let files = [
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", ""),
        ("cpu.max", ""),
        ("pids.max", ""),
        ("pids.events", "max 0\n"),
    ];
    let base = machine.group("base", &files);
    for path in [
        "base/site",
        "base/site/rule",
        "base/site/rule/run",
        "base/site/run",
    ] {
        machine.group(path, &files);
    }
    let layout = layout(Version::V2, &base, &[Controller::Cpu, Controller::Pids]);
    let groups = [
        group(&["site"], cpu(500)),
        group(
            &["site", "rule"],
            Limits {
                pids: Some(9),
                ..cpu(900)
            },
        ),
    ];
    let mut tree = Tree::default();
    tree.apply(&layout, groups.as_slice().into()).unwrap();
    let read = |path: &str| fs::read_to_string(base.join(path)).unwrap();
    assert_eq!(read("cgroup.subtree_control"), "+pids");
    assert_eq!(read("site/cgroup.subtree_control"), "+pids");
    assert_eq!(read("site/rule/cgroup.subtree_control"), "");
    assert_eq!(read("site/cpu.max"), "50000 100000");
    // Version 2 takes more than the group above has, and the least of them holds.
    assert_eq!(read("site/rule/cpu.max"), "90000 100000");
    assert_eq!(read("site/rule/pids.max"), "9");
    let leaf = tree.leaf(&groups, &groups[1].path).unwrap();
    assert!(leaf.directory().is_some());
    assert_eq!(leaf.hits(), Hits::default());
    fs::write(base.join("site/rule/run/pids.events"), "max 3\n").unwrap();
    assert_eq!(
        leaf.hits().since(Hits::default()),
        Hits {
            oom_kills: 0,
            pids: 3
        }
    );
    // Since Linux 6.11 the other counts what groups below refuse, too.
    fs::write(base.join("site/pids.events"), "max 2\n").unwrap();
    fs::write(base.join("site/pids.events.local"), "max 0\n").unwrap();
    fs::write(base.join("site/rule/pids.events.local"), "max 2\n").unwrap();
    let refused = [1, 2].map(|depth| Hits::of_limit(&layout, &groups[1].path[..depth]).pids);
    assert_eq!(refused, [0, 2]);
}

#[test]
fn a_change_that_fails_is_taken_back_and_named() {
    let machine = Machine::new();
    let files = [
        ("cgroup.procs", ""),
        ("cpu.max", ""),
        ("cgroup.subtree_control", "cpu"),
    ];
    let base = machine.group("base", &files);
    for path in ["base/a", "base/a/run", "base/b", "base/b/run"] {
        machine.group(path, &files);
    }
    let layout = layout(Version::V2, &base, &[Controller::Cpu]);
    let mut tree = Tree::default();
    let before = [group(&["a"], cpu(100)), group(&["b"], cpu(100))];
    tree.apply(&layout, before.as_slice().into()).unwrap();
    fs::remove_file(base.join("b/cpu.max")).unwrap();
    let after = [group(&["a"], cpu(200)), group(&["b"], cpu(200))];
    let problems = tree.apply(&layout, after.as_slice().into()).unwrap_err();
    let first = problems[0].to_string();
    assert!(first.contains("write 20000 100000 to"), "{first}");
    assert!(first.contains("b/cpu.max"), "{first}");
    let read = fs::read_to_string(base.join("a/cpu.max")).unwrap();
    assert_eq!(read, "10000 100000");
}

#[test]
fn of_many_groups_the_first_are_made_at_once_and_the_others_when_wanted() {
    let machine = Machine::new();
    let base = machine.group("base", &[("cgroup.subtree_control", "pids")]);
    let groups = |pids| {
        let limits = Limits {
            pids: Some(pids),
            ..Limits::default()
        };
        let group = |number| group(&[&format!("g{number}")], limits.clone());
        (0..300).map(group).collect::<Vec<_>>()
    };
    // A directory with its files, as the kernel makes it.
    let make = |number: u32| {
        for path in [format!("base/g{number}"), format!("base/g{number}/run")] {
            machine.group(&path, &[("cgroup.procs", ""), ("pids.max", "")]);
        }
    };
    (0..256).for_each(make);
    let layout = layout(Version::V2, &base, &[Controller::Pids]);
    let limit = |number: u32| {
        let file = base.join(format!("g{number}/pids.max"));
        fs::read_to_string(file).unwrap()
    };
    let (old, new) = (groups(11), groups(22));
    let mut tree = Tree::default();
    tree.apply(&layout, old.as_slice().into()).unwrap();
    assert_eq!(limit(255), "11");
    assert!(!base.join("g256").exists());
    make(256);
    tree.leaf(&old, &old[256].path).unwrap();
    tree.apply(&layout, new.as_slice().into()).unwrap();
    assert_eq!((limit(255), limit(256)), ("22".to_owned(), "22".to_owned()));
    // A late request of the list before does not bring its limits back.
    make(257);
    tree.leaf(&old, &old[257].path).unwrap();
    assert_eq!(limit(257), "22");
    assert_eq!(tree.sweep(), 0);
    // A group whose limits cannot be written bears nobody, however often that is tried.
    for _ in 0..2 {
        let error = tree.leaf(&new, &new[258].path).unwrap_err();
        assert!(error.to_string().contains("g258/pids.max"), "{error}");
    }
}

#[test]
fn in_version_1_no_group_gets_more_than_those_above() {
    let machine = Machine::new();
    let outer = [
        ("cgroup.procs", ""),
        ("cpu.cfs_quota_us", "40000\n"),
        ("cpu.cfs_period_us", "100000\n"),
        ("cpu.cfs_burst_us", "0"),
    ];
    machine.group("own", &outer);
    let base = machine.group("own/base", &outer[..1]);
    for path in [
        "own/base/site",
        "own/base/site/run",
        "own/base/site/rule",
        "own/base/site/rule/run",
    ] {
        machine.group(path, &outer);
    }
    let layout = layout(Version::V1, &base, &[Controller::Cpu]);
    let groups = [
        group(&["site"], cpu(900)),
        group(&["site", "rule"], cpu(800)),
    ];
    let mut tree = Tree::default();
    tree.apply(&layout, groups.as_slice().into()).unwrap();
    for path in ["site", "site/rule"] {
        let file = base.join(path).join("cpu.cfs_quota_us");
        assert_eq!(fs::read_to_string(file).unwrap().trim(), "40000", "{path}");
    }
    let leaf = tree.leaf(&groups, &groups[1].path).unwrap();
    assert!(leaf.directory().is_none());
    assert_eq!(leaf.procs().count(), 1);
}

/// A script's list in a tree of version 2, where the kernel says that the group has these.
fn lists_in_version_2(effective: &str) -> (Result<(), String>, String) {
    let machine = Machine::new();
    let base = machine.group("base", &[("cgroup.subtree_control", "cpuset pids")]);
    let files = [
        ("cgroup.procs", ""),
        ("cgroup.subtree_control", "cpuset"),
        ("cpuset.cpus", ""),
        ("cpuset.cpus.effective", effective),
        ("pids.max", ""),
    ];
    for path in ["site", "site/run", "site/script", "site/script/run"] {
        machine.group(&format!("base/{path}"), &files);
    }
    let layout = layout(Version::V2, &base, &[Controller::Cpuset, Controller::Pids]);
    let mut tree = Tree::default();
    let pids = Limits {
        pids: Some(9),
        ..Limits::default()
    };
    let groups = [group(&["site"], pids)];
    tree.apply(&layout, groups.as_slice().into()).unwrap();
    let lists = Limits {
        cpus: NumberList::parse("1,2"),
        ..Limits::default()
    };
    let wish = group(&["site", "script"], lists);
    let leaf = tree.leaf_within(&groups, &wish).map(|_| ());
    let wrote = fs::read_to_string(base.join("site/script/cpuset.cpus")).unwrap();
    (leaf.map_err(|error| error.to_string()), wrote)
}

#[test]
fn a_program_is_refused_a_group_without_any_of_the_cpus_it_was_to_have() {
    for effective in ["1-2\n", "2\n"] {
        assert_eq!(lists_in_version_2(effective), (Ok(()), "1,2".to_owned()));
    }
    let (leaf, _) = lists_in_version_2("0\n");
    let said = leaf.unwrap_err();
    assert!(said.contains("have 1,2 alone in"), "{said}");
}

#[test]
fn usage_is_read_from_what_there_is() {
    let machine = Machine::new();
    let base = machine.group("v2", &[]);
    machine.group(
        "v2/site",
        &[
            (
                "cpu.stat",
                "usage_usec 70\nnr_periods 9\nnr_throttled 4\nthrottled_usec 30\n",
            ),
            ("memory.current", "11\n"),
            ("memory.events", "low 0\noom 2\noom_kill 1\n"),
            ("pids.current", "2\n"),
            ("pids.events", "max 5\n"),
        ],
    );
    let path = ["site".to_owned()];
    let layout2 = layout(Version::V2, &base, &Controller::ALL);
    assert_eq!(
        Usage::of(&layout2, &path),
        Some(Usage {
            cpu_us: Some(70),
            periods: Some(9),
            throttled_periods: Some(4),
            throttled_us: Some(30),
            memory_bytes: Some(11),
            memory_peak_bytes: None,
            oom_kills: Some(1),
            io_bytes: None,
            pids: Some(2),
            pids_hits: Some(5),
            io_ops: None,
        })
    );
    let base = machine.group("v1", &[]);
    machine.group(
        "v1/site",
        &[
            (
                "cpu.stat",
                "nr_periods 9\nnr_throttled 4\nthrottled_time 30000\n",
            ),
            ("cpuacct.usage", "70000\n"),
            ("memory.max_usage_in_bytes", "12\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
            ),
        ],
    );
    machine.group("v1/site/run", &[("memory.oom_control", "oom_kill 2\n")]);
    let layout1 = layout(Version::V1, &base, &Controller::ALL);
    let usage = Usage::of(&layout1, &path).unwrap();
    assert_eq!(
        usage,
        Usage {
            cpu_us: Some(70),
            periods: Some(9),
            throttled_periods: Some(4),
            throttled_us: Some(30),
            memory_peak_bytes: Some(12),
            oom_kills: Some(2),
            ..Usage::default()
        }
    );
    assert_eq!(Usage::of(&layout1, &["gone".to_owned()]), None);
    let only = Usage::by(Controller::Memory, &layout1, &path);
    let expected = (None, Some(12));
    assert_eq!((only.cpu_us, only.memory_peak_bytes), expected);
}

#[test]
fn reads_and_writes_of_all_disks_are_added_up() {
    let machine = Machine::new();
    let path = ["site".to_owned()];
    let base = ["v1", "v2"].map(|name| machine.group(name, &[]));
    let bytes = "8:0 Read 3\n8:0 Write 4\n8:0 Discard 90\n8:0 Total 97\n8:16 Read 1\nTotal 98\n";
    let file = "blkio.throttle.io_service_bytes_recursive";
    machine.group("v1/site", &[(file, bytes)]);
    let stat = "8:0 rbytes=7 wbytes=8 rios=1 wios=2 dbytes=9 dios=9\n8:16 rbytes=1 wbytes=0 rios=1 wios=0\n";
    machine.group("v2/site", &[("io.stat", stat)]);
    let of = |version, base| {
        let layout = layout(version, base, &[Controller::Io]);
        let usage = Usage::of(&layout, &path).unwrap();
        (usage.io_bytes, usage.io_ops)
    };
    assert_eq!(of(Version::V1, &base[0]), (Some(8), None));
    assert_eq!(of(Version::V2, &base[1]), (Some(16), Some(4)));
}

#[test]
fn processor_time_is_told_by_who_spent_it() {
    let machine = Machine::new();
    let path = ["site".to_owned()];
    let base = ["v1", "v2"].map(|name| machine.group(name, &[]));
    machine.group("v1/site", &[("cpuacct.stat", "user 5\nsystem 2\n")]);
    let stat = "usage_usec 70000\nuser_usec 50000\nsystem_usec 20000\n";
    machine.group("v2/site", &[("cpu.stat", stat)]);
    let layout1 = layout(Version::V1, &base[0], &Controller::ALL);
    let layout2 = layout(Version::V2, &base[1], &[Controller::Cpu]);
    for layout in [&layout1, &layout2] {
        let times = CpuTimes {
            user_us: 50_000,
            system_us: 20_000,
        };
        assert_eq!(CpuTimes::of(layout, &path), Some(times), "{layout:?}");
        assert_eq!(CpuTimes::of(layout, &["gone".to_owned()]), None);
    }
    machine.group("v1/site", &[("cpuacct.stat", "user x\nsystem 2\n")]);
    assert_eq!(CpuTimes::of(&layout1, &path), None);
}
