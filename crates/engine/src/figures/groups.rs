//! What the groups of programs have used, by tenant, site, rule and the names scripts gave.
//!
//! The idea: the kernel counts; this reads the files when somebody asks, of so many groups and no
//! more, and says how many it left out. What a machine does not count is not shown.

use os::cgroup::{Layout, Usage};

use crate::generation::Generation;
use ipc::groups::{OF_SCRIPTS, Owner};

/// Groups whose files are read for one answer.
const GROUPS_MAX: usize = 1_000;

/// What groups have used.
#[derive(Debug, Default)]
pub(crate) struct GroupFigures {
    /// In the order of the configuration, each after those it is in, and in whose figures it is
    /// contained.
    pub groups: Vec<(Owner, Usage)>,
    /// Groups that are there and were not read: at least so many, for where there is no room nobody
    /// looks for groups that scripts named.
    pub left_out: usize,
}

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
        name: "cpu",
        unit: Unit::Time,
        help: "Processor time used by programs of the group.",
        of: |usage| usage.cpu_us,
    },
    GroupFigure {
        name: "throttled",
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

/// Reads the groups of a generation that there are.
pub(super) fn collect(generation: &Generation) -> GroupFigures {
    let mut figures = GroupFigures::default();
    let layout = &generation.layout;
    for (path, owner) in &generation.groups {
        figures.add(layout, path, owner.clone());
        if figures.groups.len() == GROUPS_MAX {
            continue;
        }
        for (directory, name) in layout.below(path, OF_SCRIPTS) {
            let path = [path.as_slice(), &[directory]].concat();
            let script = Some(name);
            let owner = Owner {
                script,
                ..owner.clone()
            };
            figures.add(layout, &path, owner);
        }
    }
    figures
}

impl GroupFigures {
    fn add(&mut self, layout: &Layout, path: &[String], owner: Owner) {
        if self.groups.len() == GROUPS_MAX {
            self.left_out += usize::from(layout.has(path));
        } else if let Some(usage) = Usage::of(layout, path) {
            self.groups.push((owner, usage));
        }
    }
}
