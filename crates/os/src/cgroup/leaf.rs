//! Where programs are born, and what they ran into there.
//!
//! The idea: everything a birth needs is open beforehand: on version 2 the group's directory, for
//! `clone3`; elsewhere the `cgroup.procs` of each hierarchy, into which the child writes itself.
//! The files that count kills and refusals stay open, too: reading one is a single call.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::Error;
use super::controllers::{Controller, Controllers};
use super::interface::{keyed, open_for_writing, value};
use super::layout::{Layout, Version};
use super::usage::{REFUSED_FORKS, oom_kills_v1, refused_forks, sum_below};

/// The directory below a group that holds its processes: those of a group that has groups below
/// it must stand in one of their own.
pub(super) const RUN: &str = "run";
/// Bytes read of a file of counters.
const COUNTERS_BYTES_MAX: usize = 4_096;

/// A group that programs are born in.
#[derive(Debug)]
pub struct Leaf {
    into: Option<OwnedFd>,
    procs: Vec<OwnedFd>,
    oom: Option<File>,
    pids: Vec<File>,
}

/// How often processes of a group ran into its limits, or those above it. Figures are for
/// comparison with those of another moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// Processes killed for want of memory.
    pub oom_kills: u64,
    /// Times that no further process or thread was to be had.
    pub pids: u64,
}

impl Leaf {
    /// Opens the leaf of the group at `path` in the hierarchies of these controllers.
    pub(super) fn open(
        layout: &Layout,
        path: &[String],
        controllers: Controllers,
    ) -> Result<Self, Error> {
        let mut leaf = Self {
            into: None,
            procs: Vec::new(),
            oom: counters(layout, path, Controller::Memory, controllers).pop(),
            pids: counters(layout, path, Controller::Pids, controllers),
        };
        let mut only_v2 = None;
        for hierarchy in &layout.hierarchies {
            if !hierarchy.is_for(controllers) {
                continue;
            }
            let group = hierarchy.group(path).join(RUN);
            let procs = group.join("cgroup.procs");
            let procs = open_for_writing(&procs)
                .map_err(|error| Error::new(format!("open {}", procs.display()), error))?;
            leaf.procs.push(procs);
            only_v2 = (hierarchy.version == Version::V2).then_some(group);
        }
        if let (Some(group), [_]) = (only_v2, leaf.procs.as_slice()) {
            leaf.into = Some(directory(&group)?);
        }
        Ok(leaf)
    }

    /// The directory to be cloned into, where that is all it takes.
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.into.as_ref().map(AsFd::as_fd)
    }

    /// The open `cgroup.procs` files that the child writes `0` to, otherwise.
    pub fn procs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.procs.iter().map(AsFd::as_fd)
    }

    /// The counters as they are now.
    pub fn hits(&self) -> Hits {
        let read = |file: &File, key| {
            let mut text = [0; COUNTERS_BYTES_MAX];
            let length = file.read_at(&mut text, 0).ok()?;
            value(&String::from_utf8_lossy(text.get(..length)?), key)
        };
        Hits {
            oom_kills: self
                .oom
                .as_ref()
                .and_then(|f| read(f, "oom_kill"))
                .unwrap_or(0),
            pids: self.pids.iter().filter_map(|f| read(f, "max")).sum(),
        }
    }
}

impl Hits {
    /// What the group at `path` refused by itself.
    #[must_use]
    pub fn of_limit(layout: &Layout, path: &[String]) -> Hits {
        let pids = layout.of(Controller::Pids);
        let pids = pids.and_then(|hierarchy| refused_forks(&hierarchy.group(path)));
        Hits {
            oom_kills: 0,
            pids: pids.unwrap_or(0),
        }
    }

    /// What is counted in the group at `path` and those below it, of which none has a limit.
    #[must_use]
    pub fn of_programs(layout: &Layout, path: &[String]) -> Hits {
        let memory = layout.of(Controller::Memory).and_then(|hierarchy| {
            let group = hierarchy.group(path);
            match hierarchy.version {
                Version::V1 => sum_below(&group, oom_kills_v1),
                // It counts those below.
                Version::V2 => keyed(&group.join("memory.events"), "oom_kill"),
            }
        });
        let pids = layout.of(Controller::Pids);
        let pids = pids.and_then(|hierarchy| sum_below(&hierarchy.group(path), refused_forks));
        Hits {
            oom_kills: memory.unwrap_or(0),
            pids: pids.unwrap_or(0),
        }
    }

    /// What was hit since `before`.
    #[must_use]
    pub fn since(self, before: Hits) -> Hits {
        Hits {
            oom_kills: self.oom_kills.saturating_sub(before.oom_kills),
            pids: self.pids.saturating_sub(before.pids),
        }
    }
}

/// The files that count for a leaf, outermost first. A kill is counted in the group of the process
/// (in version 2 in those above as well), which is the innermost that has the file. A refused fork
/// is counted there or where the limit is, by version and kernel: all of them are read.
fn counters(
    layout: &Layout,
    path: &[String],
    controller: Controller,
    controllers: Controllers,
) -> Vec<File> {
    let Some(hierarchy) = layout
        .of(controller)
        .filter(|_| controllers.contains(controller))
    else {
        return Vec::new();
    };
    let files: &[&str] = match (controller, hierarchy.version) {
        (Controller::Memory, Version::V1) => &["memory.oom_control"],
        (Controller::Memory, Version::V2) => &["memory.events"],
        _ => &REFUSED_FORKS,
    };
    let groups = (1..=path.len()).filter_map(|depth| path.get(..depth));
    let groups = groups.map(|path| hierarchy.group(path));
    let run: PathBuf = hierarchy.group(path).join(RUN);
    groups
        .chain([run])
        .filter_map(|group| {
            let mut files = files.iter();
            files.find_map(|file| File::open(group.join(file)).ok())
        })
        .collect()
}

fn directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
        .map_err(|error| Error::new(format!("open {}", path.display()), error))
}
