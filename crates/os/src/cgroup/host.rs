//! What this machine lets this process have of control groups.
//!
//! The idea: for each controller one answer, a [`OwnGroup`] or what is in the way. Looking changes
//! nothing. Where the texts of `/proc` come from is the caller's choice, so that a made-up tree
//! can be looked at as well.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::controllers::{Controller, Controllers};
use super::interface;
use super::lack::Lack;
use super::layout::Version;
use super::mounts::{Membership, Mount, memberships, mounts};

/// The texts that tell where groups are.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    /// `/proc/self/mountinfo`.
    pub mountinfo: String,
    /// `/proc/self/cgroup`.
    pub cgroup: String,
    /// `/proc/cgroups`.
    pub known: String,
}

/// Where this process's own group is, in the hierarchy a controller is had from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnGroup {
    /// The hierarchy's version.
    pub version: Version,
    /// The directory of this process's own group.
    pub directory: PathBuf,
}

/// Every controller, and what stands in the way of those that cannot be had.
#[derive(Debug, Clone)]
pub struct Host {
    places: [Result<OwnGroup, Lack>; Controller::ALL.len()],
    /// This process's group in version 2, whatever controllers are there.
    pub(super) unified: Option<PathBuf>,
    /// What told of this process's groups.
    pub(super) own: String,
}

impl Sight {
    /// Reads them.
    ///
    /// # Errors
    /// When `/proc` is not to be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self {
            mountinfo: interface::read(Path::new("/proc/self/mountinfo"))?,
            cgroup: interface::read(Path::new("/proc/self/cgroup"))?,
            known: interface::read(Path::new("/proc/cgroups")).unwrap_or_default(),
        })
    }
}

impl Host {
    /// Looks at this machine.
    ///
    /// # Errors
    /// When `/proc` is not to be read.
    pub fn look() -> io::Result<Self> {
        Ok(Self::of(&Sight::read()?))
    }

    /// Looks at what these texts tell of.
    pub fn of(sight: &Sight) -> Self {
        let mounts = mounts(&sight.mountinfo);
        let memberships = memberships(&sight.cgroup);
        let unified = unified(&mounts, &memberships);
        Self {
            places: Controller::ALL
                .map(|controller| place(controller, sight, &mounts, &memberships)),
            unified,
            own: sight.cgroup.clone(),
        }
    }

    /// Where a controller is had from.
    ///
    /// # Errors
    /// What is in the way.
    pub fn place(&self, controller: Controller) -> Result<&OwnGroup, &Lack> {
        self.places[controller as usize].as_ref()
    }

    /// Those that can be had.
    pub fn controllers(&self) -> Controllers {
        let had = |controller: &Controller| self.place(*controller).is_ok();
        Controller::ALL.into_iter().filter(had).collect()
    }
}

fn place(
    controller: Controller,
    sight: &Sight,
    mounts: &[Mount],
    memberships: &[Membership],
) -> Result<OwnGroup, Lack> {
    let own = memberships.iter().find(|own| own.is_of(controller));
    let candidates = mounts.iter().filter(|mount| mount.has(controller));
    match (own, candidates.collect::<Vec<_>>().as_slice()) {
        (Some(own), candidates @ [first, ..]) => {
            let directory = candidates
                .iter()
                .find_map(|mount| mount.directory(&own.path));
            let Some(directory) = directory else {
                return Err(Lack::OutsideMount {
                    group: own.path.clone(),
                    mount: first.point.clone(),
                });
            };
            usable(&directory, &["cgroup.procs"])?;
            Ok(OwnGroup {
                version: Version::V1,
                directory,
            })
        }
        _ => place_v2(controller, sight, mounts, memberships),
    }
}

fn place_v2(
    controller: Controller,
    sight: &Sight,
    mounts: &[Mount],
    memberships: &[Membership],
) -> Result<OwnGroup, Lack> {
    let Some(mount) = mounts.iter().find(|mount| mount.version == Version::V2) else {
        return Err(not_mounted(controller, sight));
    };
    let Some(directory) = unified(mounts, memberships) else {
        let own = memberships.iter().find(|own| own.is_v2());
        return Err(Lack::OutsideMount {
            group: own.map(|own| own.path.clone()).unwrap_or_default(),
            mount: mount.point.clone(),
        });
    };
    // Counted everywhere, offered nowhere.
    if controller != Controller::CpuTime && !lists(&directory, "cgroup.controllers", controller) {
        return Err(if lists(&mount.point, "cgroup.controllers", controller) {
            Lack::NotDelegated { group: directory }
        } else {
            not_mounted(controller, sight)
        });
    }
    let kind = interface::read(&directory.join("cgroup.type")).unwrap_or_default();
    if !["", "domain"].contains(&kind.trim()) {
        return Err(Lack::Threaded { group: directory });
    }
    usable(&directory, &["cgroup.procs", "cgroup.subtree_control"])?;
    let is_enabled = lists(&directory, "cgroup.subtree_control", controller);
    if !is_root(&directory) && !is_enabled && controller != Controller::CpuTime {
        let others = others_in(&directory);
        if others > 0 {
            return Err(Lack::Shared {
                group: directory,
                others,
            });
        }
    }
    Ok(OwnGroup {
        version: Version::V2,
        directory,
    })
}

fn unified(mounts: &[Mount], memberships: &[Membership]) -> Option<PathBuf> {
    let own = memberships.iter().find(|own| own.is_v2())?;
    // Where systemd puts `ExecStartPre=` and the like, beside the processes of the service proper.
    let path = own.path.strip_suffix("/.control").unwrap_or(&own.path);
    let mut mounts = mounts.iter().filter(|mount| mount.version == Version::V2);
    mounts.find_map(|mount| mount.directory(path))
}

/// Whether this is the root of the hierarchy itself, where processes may stand beside groups.
pub(super) fn is_root(directory: &Path) -> bool {
    !directory.join("cgroup.type").exists() && !directory.join("cgroup.events").exists()
}

/// Processes beside this one in a group.
pub(super) fn others_in(directory: &Path) -> usize {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let processes = interface::processes(directory).unwrap_or_default();
    // Zero stands for one that this process's namespace does not show.
    processes.iter().filter(|process| **process != own).count()
}

/// Whether a list of controllers has this one.
pub(super) fn lists(directory: &Path, file: &str, controller: Controller) -> bool {
    let text = interface::read(&directory.join(file)).unwrap_or_default();
    text.split_ascii_whitespace()
        .any(|name| name == controller.name())
}

/// Whether groups can be made here, and processes put into them.
fn usable(directory: &Path, files: &[&str]) -> Result<(), Lack> {
    let group = || directory.to_owned();
    let ways = files.iter().map(|file| directory.join(file));
    for path in std::iter::once(directory.to_owned()).chain(ways) {
        match accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS) {
            Ok(()) => {}
            Err(Errno::ROFS) => return Err(Lack::ReadOnly { group: group() }),
            Err(Errno::NOENT) => return Err(Lack::NoGroup { group: group() }),
            Err(_) => return Err(Lack::NotWritable { path }),
        }
    }
    Ok(())
}

/// `/proc/cgroups` tells a controller that nobody mounted from one that the kernel lacks.
fn not_mounted(controller: Controller, sight: &Sight) -> Lack {
    let line = sight.known.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == controller.v1_name()).then(|| words.nth(2) == Some("1"))
    });
    match line {
        Some(true) => Lack::NotMounted,
        Some(false) => Lack::SwitchedOff,
        None => Lack::NotInKernel,
    }
}
