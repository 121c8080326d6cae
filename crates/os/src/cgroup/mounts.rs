//! Where hierarchies are mounted and where in them this process is, from the two texts of `/proc`.
//!
//! The idea: a group's directory is the mount point and what is left of the group's path once the
//! mount's own root is taken off. A container may be shown only a part of a hierarchy, or one
//! where its own group cannot be reached at all. Pure functions on texts.

use std::path::{Path, PathBuf};

use super::controllers::Controller;
use super::layout::Version;

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) version: Version,
    /// The directory of the hierarchy that is at the mount point.
    root: String,
    pub(super) point: PathBuf,
    /// Names among which are the controllers of a version 1 hierarchy.
    options: Vec<String>,
}

/// A group of this process: the controllers of its hierarchy, and its path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Membership {
    /// Empty for version 2.
    pub(super) controllers: Vec<String>,
    pub(super) path: String,
}

impl Mount {
    /// Whether it is the version 1 hierarchy of a controller.
    pub(super) fn has(&self, controller: Controller) -> bool {
        self.version == Version::V1 && self.options.iter().any(|name| name == controller.v1_name())
    }

    /// The directory of a group, if it lies in what is mounted here.
    pub(super) fn directory(&self, group: &str) -> Option<PathBuf> {
        let within = if self.root == "/" {
            group.strip_prefix('/')?
        } else {
            let rest = group.strip_prefix(&self.root)?;
            if rest.is_empty() {
                rest
            } else {
                rest.strip_prefix('/')?
            }
        };
        // A group outside this process's namespace is shown by its way out.
        let leads_out = Path::new(within)
            .components()
            .any(|part| part.as_os_str() == "..");
        (!leads_out).then(|| {
            if within.is_empty() {
                self.point.clone()
            } else {
                self.point.join(within)
            }
        })
    }
}

impl Membership {
    pub(super) fn is_of(&self, controller: Controller) -> bool {
        self.controllers
            .iter()
            .any(|name| name == controller.v1_name())
    }

    pub(super) fn is_v2(&self) -> bool {
        self.controllers.is_empty()
    }
}

/// The hierarchies in the text of `/proc/self/mountinfo`, those mounted last first: they hide the
/// others.
pub(super) fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().rev().filter_map(mount).collect()
}

/// `36 35 98:0 /root /point rw,opts shared:1 - type source super,options`
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let version = match right.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options = right.nth(1).unwrap_or_default().split(',');
    Some(Mount {
        version,
        root: unescaped(root)?,
        point: unescaped(point)?.into(),
        options: options.map(str::to_owned).collect(),
    })
}

/// The groups in the text of `/proc/self/cgroup`.
pub(super) fn memberships(cgroup: &str) -> Vec<Membership> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let controllers = controllers.split(',').filter(|name| !name.is_empty());
        Some(Membership {
            controllers: controllers.map(str::to_owned).collect(),
            path: path.to_owned(),
        })
    };
    cgroup.lines().filter_map(line).collect()
}

/// Undoes the kernel's `\040`. Names with control characters are not for our messages and lists.
fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(3)?;
        let digits = std::str::from_utf8(digits).ok()?;
        out.push(u8::from_str_radix(digits, 8).ok()?);
        rest = after;
    }
    let text = String::from_utf8(out).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_below_its_mount() {
        // Root and point of the mount, path of the group, expected directory.
        for (root, point, group, expected) in [
            ("/", "/sys/fs/cgroup", "/", Some("/sys/fs/cgroup")),
            (
                "/",
                "/cg",
                "/a.slice/b.service",
                Some("/cg/a.slice/b.service"),
            ),
            ("/docker/1", "/cg", "/docker/1", Some("/cg")),
            ("/docker/1", "/cg", "/docker/1/x", Some("/cg/x")),
            ("/docker/1", "/cg", "/docker/12", None),
            ("/docker/1", "/cg", "/other", None),
            ("/", "/cg", "/../../other", None),
            ("/", "/with\\040space", "/a", Some("/with space/a")),
            ("/", "/with\\012line", "/a", None),
            ("/", "/cut\\04", "/a", None),
        ] {
            let line = format!("31 23 0:28 {root} {point} rw - cgroup2 cgroup2 rw");
            let found = mount(&line).and_then(|mount| mount.directory(group));
            assert_eq!(found, expected.map(PathBuf::from), "{line} {group}");
        }
    }

    #[test]
    fn hierarchies_are_told_from_other_mounts() {
        let text = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
broken
1 2 3 - cgroup";
        let found = mounts(text);
        let points: Vec<_> = found.iter().map(|m| m.point.to_str().unwrap()).collect();
        assert_eq!(
            points,
            [
                "/sys/fs/cgroup/unified",
                "/sys/fs/cgroup/systemd",
                "/sys/fs/cgroup/cpu,cpuacct"
            ]
        );
        assert!(found[2].has(Controller::Cpu) && found[2].has(Controller::CpuTime));
        assert!(!found[2].has(Controller::Memory) && !found[0].has(Controller::Cpu));
    }

    #[test]
    fn memberships_are_read_whatever_is_in_a_path() {
        let found = memberships("4:memory:/a:b\n1:cpu,cpuacct:/\n9:name=systemd:/\n0::/x\nbroken");
        assert_eq!(found.len(), 4);
        assert_eq!(found[0].path, "/a:b");
        assert!(found[1].is_of(Controller::CpuTime) && !found[2].is_v2());
        assert!(found[3].is_v2() && found[3].path == "/x");
    }
}
