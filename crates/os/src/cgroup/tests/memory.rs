//! Memory of groups below one that has a limit of it.

use super::*;

#[test]
fn in_version_2_each_group_below_a_limit_of_memory_counts_its_own() {
    let machine = Machine::new();
    let files = [
        ("cgroup.subtree_control", ""),
        ("cgroup.procs", ""),
        ("memory.max", ""),
    ];
    let base = machine.group("base", &files);
    for path in [
        "tenant",
        "tenant/pool",
        "tenant/pool/a",
        "other",
        "other/pool",
    ] {
        machine.group(&format!("base/{path}"), &files);
        machine.group(&format!("base/{path}/run"), &files);
    }
    let layout = layout(Version::V2, &base, &[Controller::Memory]);
    let limits = Limits {
        memory_bytes: Some(1 << 30),
        ..Limits::default()
    };
    let groups = [
        group(&["tenant"], limits),
        group(&["tenant", "pool"], Limits::default()),
        group(&["other"], Limits::default()),
        group(&["other", "pool"], Limits::default()),
    ];
    let mut tree = Tree::default();
    tree.apply(&layout, groups.as_slice().into()).unwrap();
    let handed = |path: &str| {
        let file = base.join(path).join("cgroup.subtree_control");
        fs::read_to_string(file).unwrap()
    };
    assert_eq!(
        (handed(""), handed("tenant")),
        ("+memory".into(), "+memory".into())
    );
    assert_eq!(
        (handed("tenant/pool"), handed("other")),
        (String::new(), String::new())
    );
    let run = group(&["tenant", "pool", "a"], Limits::default());
    tree.leaf_within(&groups[..2], &run).unwrap();
    assert_eq!(handed("tenant/pool"), "+memory");
}
