//! Our place in each hierarchy: a directory below this process's own group, ours while it lives.
//!
//! The idea: the directory is made, locked (`flock`) and looked at again; whoever comes later
//! takes one whose lock is free for what a crash left, kills what is in it and removes it. In
//! version 2 a group either has processes or gives controllers to groups below it. So the
//! gateway's first act there is to step, alone and before it has children, into a group of its own
//! below its place.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, mkdir, open, stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::controllers::{Controller, Controllers};
use super::host::{Host, Sight, is_root, lists};
use super::kill::{destroy, groups, remove};
use super::layout::{Hierarchy, Layout, Version};
use super::{Error, interface};

/// What the directories begin with; a process id follows.
const PREFIX: &str = "nagaya-";
/// Where the gateway itself stands, below its place in version 2.
const GATEWAY: &str = "gateway";
/// Where the recorder stands, beside the gateway.
const RECORDER: &str = "recorder";
/// Names tried for one directory.
const NAMES_MAX: u32 = 8;
/// Tries for each name.
const TRIES_MAX: u32 = 32;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);
/// Leftovers removed in one go.
const LEFTOVERS_MAX: usize = 256;
/// How long what a crash left may take to die, and our own programs at the end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Others may go through to what they know, not list it and not open it: an open directory could
/// be locked.
const MODE: u32 = 0o711;

/// Our places; removed, with all that runs in them, when dropped.
#[derive(Debug)]
pub struct Base {
    host: Host,
    layout: Layout,
    locks: Vec<OwnedFd>,
    /// The group in version 2 that this process stepped out of.
    stepped_out_of: Option<PathBuf>,
    /// What was given to groups below, to be taken back.
    enabled: Vec<(PathBuf, Controller)>,
}

/// Our places as another program may take them over, beside the locks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// `/proc/self/cgroup` as it was at the start.
    own: String,
    layout: Layout,
    stepped_out_of: Option<PathBuf>,
    enabled: Vec<(PathBuf, Controllers)>,
}

impl Base {
    /// Our places, and copies of their locks, for the program that is to have them.
    pub fn to_hand_over(&self) -> io::Result<(Placed, Vec<OwnedFd>)> {
        let enabled = self.enabled.iter();
        let enabled = enabled
            .map(|(group, controller)| (group.clone(), Controllers::from_iter([*controller])));
        let placed = Placed {
            own: self.host.own.clone(),
            layout: self.layout.clone(),
            stepped_out_of: self.stepped_out_of.clone(),
            enabled: enabled.collect(),
        };
        let locks = self.locks.iter().map(OwnedFd::try_clone);
        Ok((placed, locks.collect::<io::Result<_>>()?))
    }

    /// Goes on with the places another program had.
    pub fn take_over(placed: Placed, locks: Vec<OwnedFd>) -> io::Result<Base> {
        let sight = Sight {
            cgroup: placed.own,
            ..Sight::read()?
        };
        let enabled = placed.enabled.into_iter();
        let enabled = enabled.flat_map(|(group, controllers)| {
            let each = controllers.iter().collect::<Vec<_>>();
            each.into_iter().map(move |it| (group.clone(), it))
        });
        Ok(Base {
            host: Host::of(&sight),
            layout: placed.layout,
            locks,
            stepped_out_of: placed.stepped_out_of,
            enabled: enabled.collect(),
        })
    }

    /// Removes what crashes left behind and, where that will be needed, steps into a group of its
    /// own. To be called before there are children. Tells what went wrong; nothing of it is fatal.
    pub fn start(host: Host) -> (Base, Vec<Error>) {
        let mut problems = Vec::new();
        for directory in own_groups(&host) {
            problems.extend(remove_leftovers(&directory));
        }
        let mut base = Base {
            host,
            layout: Layout::default(),
            locks: Vec::new(),
            stepped_out_of: None,
            enabled: Vec::new(),
        };
        if let Some(group) = base.group_to_leave() {
            problems.extend(base.step_out_of(&group).err());
        }
        (base, problems)
    }

    /// What the machine lets us have.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Makes every one of these controllers available below our places, and tells where those are.
    /// Asked again for more, it adds to what there is.
    ///
    /// # Errors
    /// The first thing that cannot be done; what was done before stays.
    pub fn claim(&mut self, needs: Controllers) -> Result<&Layout, Error> {
        for controller in needs.iter() {
            self.claim_one(controller)?;
        }
        let cpu = self.host.place(Controller::Cpu).map(|place| place.version);
        let time = self
            .host
            .place(Controller::CpuTime)
            .map(|place| place.version);
        if needs.contains(Controller::Cpu) && cpu == time {
            self.claim_one(Controller::CpuTime)?;
        }
        Ok(&self.layout)
    }

    /// Has the recorder stand in a group beside the gateway, with a bound of its own. Where processors
    /// are shared out by group here, which `nice` does not reach across, it gets the share that this
    /// would have given it. It may be there already.
    ///
    /// # Errors
    /// The first thing that cannot be done.
    pub fn set_recorder_apart(
        &mut self,
        pid: u32,
        memory_bytes: u64,
        nice: i32,
    ) -> Result<(), Error> {
        let at = self.make_available(Controller::Memory)?;
        let hierarchy = &self.layout.hierarchies[at];
        let group = hierarchy.directory.join(RECORDER);
        make_group(&group)?;
        let memory = match hierarchy.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        let mut writes = vec![(memory, memory_bytes.to_string())];
        if lists(&group, "cgroup.controllers", Controller::Cpu) {
            writes.push(("cpu.weight.nice", nice.to_string()));
        }
        writes.push(("cgroup.procs", pid.to_string()));
        writes.into_iter().try_for_each(|(file, value)| {
            let file = group.join(file);
            interface::write(&file, &value)
                .map_err(|error| Error::new(format!("write {}", file.display()), error))
        })
    }

    fn claim_one(&mut self, controller: Controller) -> Result<(), Error> {
        let at = self.make_available(controller)?;
        self.layout.hierarchies[at].controllers.insert(controller);
        Ok(())
    }

    /// Makes a controller available below our place: which of the hierarchies it is had from.
    fn make_available(&mut self, controller: Controller) -> Result<usize, Error> {
        let place = self.host.place(controller).map_err(|lack| {
            let what = format!("the controller {}", controller.name());
            Error::new(what, io::Error::other(lack.reason()))
        })?;
        let (version, group) = (place.version, place.directory.clone());
        let at = self.place_in(version, &group)?;
        if version == Version::V2 && controller != Controller::CpuTime {
            self.enable(&group, controller)?;
            let directory = self.layout.hierarchies[at].directory.clone();
            self.enable(&directory, controller)?;
        }
        Ok(at)
    }

    /// Our place below a group: which of the hierarchies it is.
    fn place_in(&mut self, version: Version, group: &Path) -> Result<usize, Error> {
        let known = self.layout.hierarchies.iter();
        let mut known = known.map(|hierarchy| hierarchy.directory.parent());
        if let Some(at) = known.position(|parent| parent == Some(group)) {
            return Ok(at);
        }
        let (directory, lock) = make(group)
            .map_err(|error| Error::new(format!("make a group in {}", group.display()), error))?;
        // Kernels before 5.11 had groups that did not count those below them.
        let _ = interface::write(&directory.join("memory.use_hierarchy"), "1");
        if version == Version::V1 {
            fill(&directory, group);
        }
        self.locks.push(lock);
        self.layout.hierarchies.push(Hierarchy {
            version,
            controllers: Controllers::NONE,
            directory,
        });
        Ok(self.layout.hierarchies.len() - 1)
    }

    fn enable(&mut self, group: &Path, controller: Controller) -> Result<(), Error> {
        if enable(group, controller)? {
            self.enabled.push((group.to_owned(), controller));
        }
        Ok(())
    }

    /// The group in version 2 that this process must leave before it can give controllers on.
    fn group_to_leave(&self) -> Option<PathBuf> {
        let group = self.host.unified.as_ref()?;
        let is_used = |controller: &Controller| {
            *controller != Controller::CpuTime
                && self
                    .host
                    .place(*controller)
                    .is_ok_and(|place| place.version == Version::V2)
        };
        let is_used = Controller::ALL.iter().any(is_used);
        let own = i32::try_from(std::process::id()).ok()?;
        let is_alone = interface::processes(group).is_ok_and(|members| members == [own]);
        (is_used && !is_root(group) && is_alone).then(|| group.clone())
    }

    fn step_out_of(&mut self, group: &Path) -> Result<(), Error> {
        let at = self.place_in(Version::V2, group)?;
        let gateway = self.layout.hierarchies[at].directory.join(GATEWAY);
        make_group(&gateway)?;
        let procs = gateway.join("cgroup.procs");
        interface::write(&procs, "0").map_err(|error| {
            Error::new(format!("step into the group {}", gateway.display()), error)
        })?;
        self.stepped_out_of = Some(group.to_owned());
        Ok(())
    }

    /// Leaves as little behind as can be: a later start removes the rest.
    fn leave(&mut self) {
        for hierarchy in &self.layout.hierarchies {
            clear(&hierarchy.directory, &BTreeSet::new());
            let recorder = hierarchy.directory.join(RECORDER);
            if recorder.is_dir() {
                let _ = destroy(&recorder, Instant::now() + PATIENCE);
            }
        }
        while let Some((group, controller)) = self.enabled.pop() {
            let file = group.join("cgroup.subtree_control");
            let _ = interface::write(&file, &format!("-{}", controller.name()));
        }
        if let Some(group) = self.stepped_out_of.take() {
            let _ = interface::write(&group.join("cgroup.procs"), "0");
        }
        for hierarchy in &self.layout.hierarchies {
            let _ = remove(&hierarchy.directory);
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Kills and removes every group in one of our places but the gateway's own, the recorder's, and those that
/// have one of these processes and what is in the same group.
pub(super) fn clear(directory: &Path, spared: &BTreeSet<i32>) {
    clear_below(directory, spared, Instant::now() + PATIENCE);
}

fn clear_below(directory: &Path, spared: &BTreeSet<i32>, until: Instant) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_group = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name();
        if !is_group || name == GATEWAY || name == RECORDER {
            continue;
        }
        let path = entry.path();
        let has_spared = |group: &PathBuf| {
            let processes = interface::processes(group).unwrap_or_default();
            processes.iter().any(|process| spared.contains(process))
        };
        if has_spared(&path) {
            // It is somebody's own.
        } else if !spared.is_empty() && groups(&path).iter().any(has_spared) {
            // Who had it give way is no more.
            interface::give_way(&path, false);
            clear_below(&path, spared, until);
        } else {
            let _ = destroy(&path, until);
        }
    }
}

/// Gives a controller to the groups below this one; tells whether that was new.
pub(super) fn enable(group: &Path, controller: Controller) -> Result<bool, Error> {
    const FILE: &str = "cgroup.subtree_control";
    if lists(group, FILE, controller) {
        return Ok(false);
    }
    let name = controller.name();
    match interface::write(&group.join(FILE), &format!("+{name}")) {
        Ok(()) => Ok(true),
        Err(error) => {
            let what = format!("give {name} to the groups below {}", group.display());
            Err(Error::new(what, error))
        }
    }
}

/// Makes a group, if it is not there; tells whether it is new.
pub(super) fn make_group(directory: &Path) -> Result<bool, Error> {
    match mkdir(directory, Mode::from_raw_mode(0o755)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(Error::new(
            format!("make the group {}", directory.display()),
            error,
        )),
    }
}

/// Makes a directory below `group` and locks it.
fn make(group: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    let pid = std::process::id();
    for number in 0..NAMES_MAX {
        let directory = match number {
            0 => group.join(format!("{PREFIX}{pid}")),
            again => group.join(format!("{PREFIX}{pid}-{again}")),
        };
        for _ in 0..TRIES_MAX {
            match mkdir(&directory, Mode::from_raw_mode(MODE)) {
                Ok(()) => {
                    if let Some(lock) = lock(&directory) {
                        fchmod(&lock, Mode::from_raw_mode(MODE))?;
                        return Ok((directory, lock));
                    }
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            // Somebody who cleans up has it, and removes it.
            std::thread::sleep(BETWEEN_TRIES);
        }
    }
    Err(io::Error::other("every name is taken"))
}

/// Version 1 makes groups without a CPU and without memory, which no process may enter: ours gets
/// what the group above it has, and groups below it are made with that. Elsewhere than in the
/// hierarchy of cpuset these files are not there.
fn fill(directory: &Path, above: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(list) = interface::read(&above.join(file)) {
            let _ = interface::write(&directory.join(file), list.trim());
        }
    }
    let _ = interface::write(&directory.join("cgroup.clone_children"), "1");
}

/// Locks a directory, if nobody has and it is still there.
fn lock(directory: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let held = open(directory, flags, Mode::empty()).ok()?;
    flock(&held, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (held_is, there_is) = (fstat(&held).ok()?, stat(directory).ok()?);
    (held_is.st_ino == there_is.st_ino && held_is.st_dev == there_is.st_dev).then_some(held)
}

/// Kills and removes what gateways that are no more left below a group.
fn remove_leftovers(group: &Path) -> Vec<Error> {
    let Ok(entries) = std::fs::read_dir(group) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let names = names.filter(|name| name.to_str().is_some_and(is_ours));
    let mut problems = Vec::new();
    let until = Instant::now() + PATIENCE;
    for name in names.take(LEFTOVERS_MAX) {
        let directory = group.join(name);
        let Some(_lock) = lock(&directory) else {
            continue;
        };
        if let Err(error) = destroy(&directory, until) {
            let what = format!("remove the group {} that a crash left", directory.display());
            problems.push(Error::new(what, error));
        }
    }
    problems
}

/// `nagaya-`, a process id, perhaps another number; nobody else's directory is touched.
fn is_ours(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return false;
    };
    let mut numbers = rest.split('-');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    numbers.by_ref().take(2).all(is_number) && numbers.next().is_none()
}

/// This process's own group in each hierarchy that can be had.
fn own_groups(host: &Host) -> Vec<PathBuf> {
    let mut groups: Vec<PathBuf> = Controller::ALL
        .iter()
        .filter_map(|controller| Some(host.place(*controller).ok()?.directory.clone()))
        .collect();
    groups.sort();
    groups.dedup();
    groups
}
