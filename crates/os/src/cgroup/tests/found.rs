//! Groups that another tree has left, or had its hands in.

use super::*;

#[test]
fn groups_that_another_tree_left_have_what_the_list_says_however_many_there_are() {
    let machine = Machine::new();
    let base = machine.group("base", &[("cgroup.subtree_control", "pids")]);
    for number in (0..256).chain([299]) {
        for path in [format!("base/g{number}"), format!("base/g{number}/run")] {
            machine.group(&path, &[("cgroup.procs", ""), ("pids.max", "")]);
        }
    }
    let groups = |pids| {
        let limits = Limits {
            pids: Some(pids),
            ..Limits::default()
        };
        let group = |number| group(&[&format!("g{number}")], limits.clone());
        (0..300).map(group).collect::<Vec<_>>()
    };
    let layout = layout(Version::V2, &base, &[Controller::Pids]);
    let mut tree = Tree::default();
    for pids in [33, 44] {
        tree.apply(&layout, groups(pids).as_slice().into()).unwrap();
        for number in [255, 299] {
            let file = base.join(format!("g{number}/pids.max"));
            assert_eq!(fs::read_to_string(file).unwrap(), pids.to_string());
        }
    }
    assert!(!base.join("g298").exists(), "nobody has wanted it");
}

#[test]
fn what_somebody_else_has_limited_and_the_list_does_not_is_limited_no_more() {
    let machine = Machine::new();
    let files = [
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", ""),
        ("cpu.max", "1 9"),
        ("cpu.weight", "9"),
        ("memory.max", "9"),
        ("io.max", "8:0 rbps=1\n"),
    ];
    let base = machine.group("base", &files);
    machine.group("base/a", &files);
    machine.group("base/a/run", &files);
    let controllers = [Controller::Cpu, Controller::Memory, Controller::Io];
    let layout = layout(Version::V2, &base, &controllers);
    let limits = Limits {
        cpu_weight: Some(50),
        ..Limits::default()
    };
    let groups = [group(&["a"], limits)];
    let mut tree = Tree::default();
    tree.apply(&layout, groups.as_slice().into()).unwrap();
    let read = |file: &str| fs::read_to_string(base.join("a").join(file)).unwrap();
    assert_eq!(read("cpu.max"), "max 100000");
    assert_eq!(
        (read("cpu.weight"), read("memory.max")),
        ("50".to_owned(), "max".to_owned())
    );
    assert_eq!(read("io.max"), "8:0 rbps=max wbps=max riops=max wiops=max");
    // Another tree in the same place, while this one is there.
    machine.group("base/a", &[("cpu.max", "1 9")]);
    tree.apply(&layout, groups.as_slice().into()).unwrap();
    assert_eq!(read("cpu.max"), "1 9", "it is taken for written");
    tree.forget_written();
    tree.apply(&layout, groups.as_slice().into()).unwrap();
    assert_eq!(read("cpu.max"), "max 100000");
}

#[test]
fn a_limit_that_waits_is_tried_again_also_when_a_try_broke_off() {
    let machine = Machine::new();
    let files = [
        ("cgroup.procs", ""),
        ("memory.limit_in_bytes", ""),
        ("memory.usage_in_bytes", "100\n"),
        ("memory.stat", "total_active_file 1\n"),
    ];
    let base = machine.group("base", &files[..1]);
    machine.group("base/a", &files);
    machine.group("base/a/run", &files);
    let layout = layout(Version::V1, &base, &[Controller::Memory]);
    let limits = Limits {
        memory_bytes: Some(4_096),
        ..Limits::default()
    };
    let mut tree = Tree::default();
    tree.apply(&layout, [group(&["a"], limits)].into()).unwrap();
    machine.group("base/a", &[("memory.limit_in_bytes", "")]);
    let path = vec!["a".to_owned()];
    let held = HeldLimit {
        path: path.clone(),
        wanted_bytes: 4_096,
        kept_bytes: None,
    };
    tree.held.insert(path.clone(), held);
    tree.nodes.get_mut(&path).unwrap().written = None;
    tree.try_held();
    let limit = fs::read_to_string(base.join("a/memory.limit_in_bytes")).unwrap();
    assert_eq!((limit.as_str(), tree.held().count()), ("4096", 0));
}
