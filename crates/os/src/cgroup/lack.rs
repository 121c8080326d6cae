//! What stands between this process and a controller, and what would take it away.
//!
//! The idea: each obstacle is a fact found once, in [`super::Host`]; here it becomes words and
//! the command that somebody with the right to can type.

use std::path::{Path, PathBuf};

use super::controllers::Controller;

/// Why a controller cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// The kernel was built without it.
    NotInKernel,
    /// The kernel was started with it switched off.
    SwitchedOff,
    /// No hierarchy with it is mounted.
    NotMounted,
    /// The hierarchy is mounted, but not the part with this process's group.
    OutsideMount {
        /// The group's path.
        group: String,
        /// Where the other part is mounted.
        mount: PathBuf,
    },
    /// The group's directory is not there, or is no group.
    NoGroup {
        /// Where it should be.
        group: PathBuf,
    },
    /// The hierarchy is mounted read-only.
    ReadOnly {
        /// This process's group.
        group: PathBuf,
    },
    /// The machine has it, but this process's group was not given it.
    NotDelegated {
        /// This process's group.
        group: PathBuf,
    },
    /// This process may not change its group.
    NotWritable {
        /// What it may not write.
        path: PathBuf,
    },
    /// Other processes stand in this process's group: it cannot have groups below it.
    Shared {
        /// This process's group.
        group: PathBuf,
        /// How many.
        others: usize,
    },
    /// This process's group is one for threads, where few controllers work.
    Threaded {
        /// This process's group.
        group: PathBuf,
    },
}

impl Lack {
    /// What is in the way, in words.
    pub fn reason(&self) -> String {
        match self {
            Lack::NotInKernel => "the kernel was built without it".into(),
            Lack::SwitchedOff => "it is switched off on the kernel's command line".into(),
            Lack::NotMounted => "it is mounted nowhere".into(),
            Lack::OutsideMount { group, mount } => {
                let mount = mount.display();
                format!("the group {group} of this process is not in what is mounted at {mount}")
            }
            Lack::NoGroup { group } => format!("{} is no group", group.display()),
            Lack::ReadOnly { group } => format!("{} is mounted read-only", group.display()),
            Lack::NotDelegated { group } => {
                format!("the group {} was not given it", group.display())
            }
            Lack::NotWritable { path } => format!("{} is not writable", path.display()),
            Lack::Shared { group, others } => {
                let (group, s) = (group.display(), if *others == 1 { "" } else { "es" });
                format!("{others} other process{s} in the group {group}")
            }
            Lack::Threaded { group } => format!("the group {} is threaded", group.display()),
        }
    }

    /// The command that would grant it.
    pub fn remedy(&self, controller: Controller) -> String {
        let (v1, v2) = (controller.v1_name(), controller.name());
        match self {
            Lack::NotInKernel => format!("run a kernel with the {v1} controller"),
            Lack::SwitchedOff => format!(
                "boot with cgroup_enable={v1} (and without cgroup_disable={v1}) on the kernel's command line"
            ),
            Lack::NotMounted => format!(
                "mkdir -p /sys/fs/cgroup/{v1} && mount -t cgroup -o {v1} cgroup /sys/fs/cgroup/{v1}"
            ),
            Lack::OutsideMount { .. } | Lack::NoGroup { .. } => {
                "start the container with its own cgroup namespace (docker run --cgroupns=private)"
                    .into()
            }
            Lack::ReadOnly { group } => {
                format!("mount -o remount,rw {}", mount_of(group).display())
            }
            Lack::NotDelegated { group }
            | Lack::Threaded { group }
            | Lack::Shared { group, .. } => delegation(group, v2),
            Lack::NotWritable { path } => {
                let group = match path.file_name().and_then(|name| name.to_str()) {
                    Some(name) if name.starts_with("cgroup.") => path.parent().unwrap_or(path),
                    _ => path,
                };
                if is_unified(group) {
                    delegation(group, v2)
                } else {
                    own_group_v1(group)
                }
            }
        }
    }

    /// Whether it says something of where this process happens to be, and nothing of the machine.
    pub fn is_of_this_place(&self) -> bool {
        matches!(
            self,
            Lack::Shared { .. } | Lack::NotDelegated { .. } | Lack::Threaded { .. }
        )
    }
}

/// A group of its own, with every controller, as systemd gives one.
fn delegation(group: &Path, controller: &str) -> String {
    let names = group.iter().rev().filter_map(|name| name.to_str());
    let mut services = names.filter(|name| name.ends_with(".service"));
    match services.next() {
        Some(service) if !service.starts_with("user@") => {
            format!("systemctl edit {service}: [Service] Delegate=cpu cpuset memory io pids")
        }
        _ if Path::new("/run/systemd/system").exists() => {
            let user = if crate::process::is_root() {
                ""
            } else {
                "--user "
            };
            format!("systemd-run {user}--scope -p Delegate=yes nagaya serve -c FILE")
        }
        _ => {
            let (group, user) = (group.display(), crate::process::user_id());
            format!(
                "as root: mkdir {group}/nagaya && echo +{controller} > {group}/cgroup.subtree_control && \
                 chown -R {user} {group}/nagaya, and start nagaya in it: echo $$ > {group}/nagaya/cgroup.procs"
            )
        }
    }
}

fn own_group_v1(group: &Path) -> String {
    let (group, user) = (group.display(), crate::process::user_id());
    format!(
        "as root: mkdir {group}/of-{user} && chown -R {user} {group}/of-{user}, and start nagaya in it: \
         echo $$ > {group}/of-{user}/cgroup.procs"
    )
}

fn is_unified(group: &Path) -> bool {
    group.join("cgroup.controllers").exists()
}

/// The directory above which there are no groups.
fn mount_of(group: &Path) -> &Path {
    let groups = group.ancestors();
    let mut groups = groups.take_while(|path| path.join("cgroup.procs").exists());
    groups.by_ref().last().unwrap_or(group)
}
