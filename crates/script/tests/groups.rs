//! Groups that scripts define and attach to.

use crate::bed::{code, failure, interpreter, on_a_worker, run, value};
use os::cgroup::{Controller, CpuLimit, Hierarchy, Layout, Limits, Version};
use script::{Datum, Phase, Trial};

/// As it was published for mod_mruby.
const ATTACH: &str = r#"
r = Apache::Request.new

if r.filename == "/srv/www/while.cgi"
  c = Cgroup::CPU.new("apache/mod_mruby_group")
  c.cfs_quota_us = 10000
  if c.exist?
    c.modify
  else
    c.create
  end
  c.attach
end
"#;

const DETACH: &str = r#"
r = Apache::Request.new

if r.filename == "/srv/www/while.cgi"
  c = Cgroup::CPU.new("apache/mod_mruby_group")
  if c.exist?
    c.delete
  end
end
"#;

const TOLD: &str = "Cgroup::CPU.new('apache/mod_mruby_group').cfs_quota_us";

#[test]
fn a_published_script_says_where_its_program_is_born() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut request = Trial::get("/while.cgi");
        run(&interpreter, ATTACH, &mut request)
            .await
            .expect("it runs");
        let wish = request.scope.cgroup.take().expect("it is attached");
        let tenth = CpuLimit {
            millicores: 100,
            burst_us: 0,
        };
        assert_eq!(wish.name, "apache/mod_mruby_group");
        assert_eq!(
            wish.limits,
            Limits {
                cpu: Some(tenth),
                ..Limits::default()
            }
        );
        run(&interpreter, DETACH, &mut request)
            .await
            .expect("it runs");
        let told = run(&interpreter, TOLD, &mut request)
            .await
            .expect("it runs");
        assert_eq!(told.value, Datum::Nil);
        let mut other = Trial::get("/index.html");
        run(&interpreter, ATTACH, &mut other)
            .await
            .expect("it runs");
        assert_eq!(other.scope.cgroup, None);
    });
}

#[test]
fn what_one_request_deletes_is_there_for_another_until_it_ends() {
    on_a_worker(async {
        let interpreter = interpreter();
        let (mut one, mut other) = (Trial::get("/while.cgi"), Trial::get("/while.cgi"));
        run(&interpreter, ATTACH, &mut one).await.expect("it runs");
        run(&interpreter, ATTACH, &mut other)
            .await
            .expect("it runs");
        run(&interpreter, DETACH, &mut one).await.expect("it runs");
        let exists = "Cgroup::CPU.new('apache/mod_mruby_group').exist?";
        let told = |ran: script::Ran| ran.value;
        let found = run(&interpreter, exists, &mut one).await.map(told);
        assert_eq!(found.expect("it runs"), Datum::Bool(false));
        let found = run(&interpreter, exists, &mut other).await.map(told);
        assert_eq!(found.expect("it runs"), Datum::Bool(true));
        let found = run(&interpreter, TOLD, &mut other).await.map(told);
        assert_eq!(found.expect("it runs"), Datum::Int(10_000));
        drop(other);
        let found = run(&interpreter, TOLD, &mut one).await.map(told);
        assert_eq!(found.expect("it runs"), Datum::Nil);
    });
}

#[test]
fn limits_are_read_as_they_were_set() {
    for (script, expected) in [
        (
            "c = Cgroup::CPU.new('a'); c.shares = 512; c.shares",
            Datum::Int(512),
        ),
        (
            "c = Cgroup::CPU.new('a'); c.cfs_quota_us = -1; c.cfs_quota_us",
            Datum::Nil,
        ),
        ("Cgroup::CPU.new('a').cfs_period_us", Datum::Nil),
        ("Cgroup::CPU.new('a').exist?", Datum::Bool(false)),
        (
            "c = Cgroup::PIDS.new('a'); c.max = 9; Cgroup::PIDS.new('a').max",
            Datum::Int(9),
        ),
        (
            "c = Cgroup::PIDS.new('a'); c.max = 'max'; c.max",
            Datum::Nil,
        ),
        (
            "Cgroup::MEMORY.new('a').limit_in_bytes = 1048576",
            Datum::Int(1_048_576),
        ),
        (
            "c = Cgroup::BLKIO.new('a'); c.throttle_read_bps_device = '8:0 4096'; c.throttle_read_bps_device",
            Datum::from("8:0 4096"),
        ),
        (
            "c = Cgroup::CPUSET.new('a'); c.cpus = '0-1'; c.mems = '0'; c.cpus = ''; [c.cpus, c.mems].inspect",
            Datum::from("[nil, \"0\"]"),
        ),
        (
            "c = Cgroup::CPUSET.new('a'); c.cpus = '0,2-3'; c.mems = nil; c.cpus",
            Datum::from("0,2-3"),
        ),
        ("Cgroup::CPU.new('a/b').group_name", Datum::from("a/b")),
        (
            "c = Cgroup::CPU.new('a'); c.create; c.delete; c.exist?",
            Datum::Bool(false),
        ),
    ] {
        assert_eq!(value(script), expected, "{script}");
    }
}

/// Asks for each figure of a group.
const FIGURES: &str = "
a, c = Cgroup::CPUACCT.new('a'), Cgroup::CPU.new('a')
m, p = Cgroup::MEMORY.new('a'), Cgroup::PIDS.new('a')
[a.usage, a.stat, c.stat, m.usage_in_bytes, m.max_usage_in_bytes, p.current].inspect";

/// What a script is told of the group `a` in a made-up hierarchy.
async fn figures(version: Version, controllers: &[Controller], files: &[(&str, &str)]) -> String {
    let directory = testkit::TempDir::new();
    for (file, text) in files {
        directory.write(&format!("a/{file}"), text);
    }
    let mut request = Trial::get("/while.cgi");
    request.layout = Layout {
        hierarchies: vec![Hierarchy {
            version,
            controllers: controllers.iter().copied().collect(),
            directory: directory.path().to_owned(),
        }],
    };
    let ran = run(&interpreter(), FIGURES, &mut request).await;
    match ran.expect("it runs").value {
        Datum::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn figures_of_a_group_are_told_alike_in_both_versions_and_nil_where_there_are_none() {
    let none = "[nil, nil, nil, nil, nil, nil]";
    let all = "[70000000, \"user 5\\nsystem 2\", \
               \"nr_periods 9\\nnr_throttled 4\\nthrottled_time 30000\", 11, 12, 2]";
    let v1 = [
        ("cpuacct.usage", "70000000\n"),
        ("cpuacct.stat", "user 5\nsystem 2\n"),
        (
            "cpu.stat",
            "nr_periods 9\nnr_throttled 4\nthrottled_time 30000\n",
        ),
        ("memory.usage_in_bytes", "11\n"),
        ("memory.max_usage_in_bytes", "12\n"),
        ("pids.current", "2\n"),
    ];
    let v2 = [
        (
            "cpu.stat",
            "usage_usec 70000\nuser_usec 50000\nsystem_usec 20000\nnr_periods 9\nnr_throttled 4\n\
             throttled_usec 30\n",
        ),
        ("memory.current", "11\n"),
        ("memory.peak", "12\n"),
        ("pids.current", "2\n"),
    ];
    let odd = [
        ("cpu.stat", "\0nr_periods -1\n"),
        ("memory.current", "max\n"),
    ];
    let memory = "[nil, nil, nil, 11, 12, nil]";
    on_a_worker(async {
        for (version, controllers, files, expected) in [
            (Version::V1, &Controller::ALL[..], &v1[..], all),
            (Version::V2, &Controller::ALL, &v2, all),
            (Version::V1, &[Controller::Memory], &v1, memory),
            (Version::V2, &[Controller::Memory], &v2, memory),
            (Version::V2, &Controller::ALL, &odd, none),
            (Version::V2, &Controller::ALL, &[], none),
            (Version::V1, &[], &v1, none),
        ] {
            let found = figures(version, controllers, files).await;
            assert_eq!(found, expected, "{version:?} {controllers:?} {files:?}");
        }
        let early = interpreter()
            .run(Phase::WorkerInit, &code(FIGURES), None)
            .await;
        let said = early.expect_err("it fails").to_string();
        assert!(said.contains("there is no request"), "{said}");
    });
}

#[test]
fn what_groups_cannot_do_is_told() {
    for (script, said) in [
        ("Cgroup::CPU.new('a').cfs_quota_us = 5", "from 1000 to"),
        ("Cgroup::CPU.new('a').attach(1)", "moves nothing that runs"),
        (
            "Cgroup::CPUSET.new('a').cpus = '0;1'",
            "cpus are numbers as",
        ),
        ("Cgroup::CPUSET.new('a').mems = 0", "mems are numbers as"),
        (
            "Cgroup::CPUSET.new('a').cpus = '0,' * 200 + '0'",
            "cpus are numbers as",
        ),
        ("Cgroup::CPU.new('a').rt_runtime_us = 1", "real-time"),
        ("Cgroup::CPUACCT.new('a').usage_percpu", "over all cores"),
        ("Cgroup::MEMORY.new('').usage_in_bytes", "a group's name"),
        ("Cgroup::CPU.new('').create", "a group's name"),
        (
            "Cgroup::BLKIO.new('a').throttle_read_bps_device = '8:0'",
            "MAJOR:MINOR",
        ),
        (
            "Cgroup::CPU.new('a').attach; Cgroup::PIDS.new('b').attach",
            "attached to a already",
        ),
        ("1025.times { |n| Cgroup::CPU.new(n.to_s).create }", ""),
    ] {
        let found = failure(script);
        assert!(found.contains(said), "{script}: {found}");
    }
}
