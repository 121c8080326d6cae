//! What the groups of programs have used, by tenant, site, rule and the names scripts gave.
//!
//! The idea: the kernel counts; this reads the files when somebody asks, of so many groups and no
//! more, and says how many it left out. What a machine does not count is not shown.

use control::Group;
use os::cgroup::Usage;

use crate::generation::Generation;
use ipc::groups::{OF_SCRIPTS, Owner};

/// Groups whose files are read for one answer.
const GROUPS_MAX: usize = 1_000;

/// A figure of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupFigure {
    /// Its name, with its unit last.
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) of: fn(&Usage) -> Option<u64>,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Microseconds that add up.
    Time,
    /// Events that add up.
    Events,
    /// Something there is now, or was at most.
    Level,
}

/// Every figure of a group.
pub(super) const FIGURES: [GroupFigure; 8] = [
    GroupFigure {
        name: "cpu_us",
        unit: Unit::Time,
        help: "Processor time used by programs of the group.",
        of: |usage| usage.cpu_us,
    },
    GroupFigure {
        name: "throttled_us",
        unit: Unit::Time,
        help: "Time programs waited because the group's processor time was used up.",
        of: |usage| usage.throttled_us,
    },
    GroupFigure {
        name: "throttled_periods",
        unit: Unit::Events,
        help: "Periods in which the group's processor time was used up.",
        of: |usage| usage.throttled_periods,
    },
    GroupFigure {
        name: "memory_bytes",
        unit: Unit::Level,
        help: "Memory of the group.",
        of: |usage| usage.memory_bytes,
    },
    GroupFigure {
        name: "memory_peak_bytes",
        unit: Unit::Level,
        help: "Most memory the group has had.",
        of: |usage| usage.memory_peak_bytes,
    },
    GroupFigure {
        name: "oom_kills",
        unit: Unit::Events,
        help: "Processes killed because the group was out of memory.",
        of: |usage| usage.oom_kills,
    },
    GroupFigure {
        name: "pids",
        unit: Unit::Level,
        help: "Processes and threads in the group.",
        of: |usage| usage.pids,
    },
    GroupFigure {
        name: "pids_refused",
        unit: Unit::Events,
        help: "Processes and threads refused because the group had as many as it may.",
        of: |usage| usage.pids_hits,
    },
];

/// Reads the groups of a generation that there are, those of some tenants first, and tells how many more it did not read: at
/// least so many, for where there is no room nobody looks for groups that scripts named.
pub(super) fn collect(generation: &Generation, first: &[String]) -> (Vec<Group>, usize) {
    let (mut groups, mut left_out) = (Vec::new(), 0);
    let layout = &generation.layout;
    let mut add = |path: &[String], owner: &Owner, script: Option<String>| {
        if groups.len() == GROUPS_MAX {
            left_out += usize::from(layout.has(path));
        } else if let Some(usage) = Usage::of(layout, path) {
            groups.push(group(owner, script, &usage));
        }
        groups.len() == GROUPS_MAX
    };
    let is_first = |owner: &Owner| first.contains(&owner.tenant);
    let firsts = generation.groups().filter(|(_, owner)| is_first(owner));
    let others = generation.groups().filter(|(_, owner)| !is_first(owner));
    for (path, owner) in firsts.chain(others) {
        if add(&path, &owner, None) {
            continue;
        }
        for (directory, name) in layout.below(&path, OF_SCRIPTS) {
            add(
                &[path.as_slice(), &[directory]].concat(),
                &owner,
                Some(name),
            );
        }
    }
    (groups, left_out)
}

/// A figure that the machine does not have is left out.
pub(super) fn group(owner: &Owner, script: Option<String>, usage: &Usage) -> Group {
    let used = FIGURES.iter();
    let used = used.filter_map(|figure| Some((figure.name, (figure.of)(usage)?)));
    Group {
        tenant: owner.tenant.clone(),
        site: owner.site.clone(),
        rule: owner.rule.clone(),
        script,
        pool: owner.pool.clone(),
        used: used.collect(),
    }
}
