//! Groups that scripts name: below their rule's, with less than it has.

use std::fs;

use os::cgroup::{Controller, Host, Version};
use testkit::{Gateway, eventually};

use crate::{CONFIG, PATIENCE, WEIGHTS, begin, body, get, has, place, status};

#[test]
fn a_script_names_a_group_below_its_rules_and_gives_it_less() {
    if !has(&[Controller::Cpu]) {
        return;
    }
    let attach = r#"
c = Cgroup::CPU.new("apache/mod_mruby_group")
c.cfs_quota_us = 10000
c.exist? ? c.modify : c.create
c.attach
used = Cgroup::CPUACCT.new(c.group_name).usage
Nginx::Headers_out.new["X-Used"] = used.inspect + ' ' + c.stat.inspect
"#;
    let limits = "cgroup = { cpu = \"50%\" }\n  scripts = { access = \"{dir}/attach.rb\" }";
    let config = CONFIG.replacen("cgroup = { {one} }", limits, 1);
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("required", "true")
        .with("tenant", WEIGHTS.tenant)
        .with("site", WEIGHTS.site)
        .with("two", WEIGHTS.two);
    builder.directory().write("attach.rb", attach);
    let program = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\ncat /proc/self/cgroup\n";
    for directory in ["one", "two"] {
        let file = format!("site/{directory}/where.cgi");
        builder.directory().write_program(&file, program);
    }
    let spin = "#!/bin/sh\nwhile :; do :; done\n";
    builder.directory().write_program("site/one/spin.cgi", spin);
    let gateway = builder.start();
    let told = get(&gateway, "app.test", "/one/where.cgi");
    assert_eq!(told.head.field("x-used"), Some("nil nil"));
    let told = body(&told);
    let wished = "rule-app.test-1/script-apache%2fmod_mruby_group/run";
    assert!(told.contains(wished), "{told}");
    let spinning = begin(&gateway, "/one/spin.cgi");
    let series = r#"nagaya_group_throttled_periods_total{tenant="shared",site="app.test",rule="rule 1",script="apache/mod_mruby_group"} "#;
    eventually(PATIENCE, "the group is seen to wait", || {
        let metrics = body(&get(&gateway, "app.test", "/metrics"));
        let line = metrics.lines().find_map(|line| line.strip_prefix(series));
        line.is_some_and(|count| count != "0").then_some(())
    });
    let told = get(&gateway, "app.test", "/one/where.cgi");
    let used = told.head.field("x-used").expect("the script sets it");
    let (used_ns, stat) = used.split_once(' ').expect("two figures");
    assert!(
        used_ns.parse().is_ok_and(|ns: u64| ns >= 1_000_000),
        "{used}"
    );
    assert!(stat.contains("nr_throttled"), "{used}");
    let shown = "apache/mod_mruby_group of rule 1 of site app.test";
    let status = status(&gateway);
    assert!(status.contains(shown), "{status}");
    drop(spinning);
    let told = body(&get(&gateway, "app.test", "/two/where.cgi"));
    assert!(!told.contains("script-"), "{told}");
    let groups = place(Controller::Cpu, &gateway).join("tenant-shared/site-app.test");
    let group = groups.join("rule-app.test-1/script-apache%2fmod_mruby_group");
    let quota = match Host::look()
        .unwrap()
        .place(Controller::Cpu)
        .unwrap()
        .version
    {
        Version::V2 => "cpu.max",
        Version::V1 => "cpu.cfs_quota_us",
    };
    let quota = fs::read_to_string(group.join(quota)).unwrap();
    assert!(quota.starts_with("10000"), "{quota}");
    let gone = || (!group.exists()).then_some(());
    eventually(PATIENCE, "the group goes when nothing wants it", gone);
}

#[test]
fn a_script_says_on_which_cpus_its_program_runs() {
    if !has(&[Controller::Cpuset]) {
        return;
    }
    let attach = r#"
cpus = Nginx::Request.new.var.arg_cpus
unless cpus.nil?
  c = Cgroup::CPUSET.new("pinned")
  c.cpus = cpus
  c.attach
end
"#;
    let limits = "cgroup = { pids = 60 }\n  scripts = { access = \"{dir}/attach.rb\" }";
    let config = CONFIG.replacen("cgroup = { {one} }", limits, 1);
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("required", "true")
        .with("tenant", "pids = 80")
        .with("site", "pids = 70")
        .with("two", "pids = 60");
    builder.directory().write("attach.rb", attach);
    let program = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n\
                   grep Cpus_allowed_list /proc/self/status\n";
    builder
        .directory()
        .write_program("site/one/cpus.cgi", program);
    let gateway = builder.start();
    let allowed = |query: &str| {
        let reply = get(&gateway, "app.test", &format!("/one/cpus.cgi{query}"));
        let text = body(&reply);
        let list = text.strip_prefix("Cpus_allowed_list:").map(str::trim);
        list.map(str::to_owned).ok_or((reply.status, text))
    };
    let all = allowed("").expect("a program without a group of its own runs");
    let ends: Vec<&str> = all.split([',', '-']).collect();
    for cpus in [ends[0], ends[ends.len() - 1], ends[0], &all] {
        let found = allowed(&format!("?cpus={cpus}"));
        assert_eq!(found.as_deref(), Ok(cpus), "{}", gateway.stderr());
    }
    // One that no machine of tests has: rather none than a program that runs anywhere.
    let (status, _) = allowed("?cpus=8191").expect_err("it is refused");
    assert_eq!(status, 500);
    gateway.wait_for_message("group_failed");
    assert_eq!(allowed("?cpus="), Ok(all.clone()));
    assert_eq!(allowed(""), Ok(all));
}
