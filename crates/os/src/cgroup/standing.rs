//! Where any process stands, and what its group's CPU time came to: for those who only look.
//!
//! The idea: a group that is read needs no permission to be changed and may be anybody's, so this
//! asks less than [`Host`](super::Host) does. A group that this process is not shown is none.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::controllers::Controller;
use super::host::is_root;
use super::interface::{self, number, read, value};
use super::kill::groups;
use super::layout::Version;
use super::mounts::{self, Mount, memberships};

/// The hierarchies that are mounted.
#[derive(Debug, Clone, Default)]
pub struct Mounts(Vec<Mount>);

/// A group in the hierarchy of some controller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// The hierarchy's version.
    pub version: Version,
    /// Where the hierarchy is mounted: no group is looked at above it.
    pub top: PathBuf,
    /// The group.
    pub directory: PathBuf,
}

/// CPU time of a group and those below it, and what its quota did, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuFigures {
    /// CPU time, of ended processes too.
    pub used: Option<Duration>,
    /// Periods of its quota.
    pub periods: u64,
    /// Of these, such in which the quota ran out.
    pub throttled_periods: u64,
    /// Time its processes stood still for that, each core's added up.
    pub throttled: Duration,
}

impl Mounts {
    /// Reads what is mounted.
    ///
    /// # Errors
    /// When `/proc` is not to be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::of(&read(Path::new("/proc/self/mountinfo"))?))
    }

    /// What the text of `/proc/self/mountinfo` tells.
    pub fn of(mountinfo: &str) -> Self {
        Self(mounts::mounts(mountinfo))
    }

    /// Where a process stands, from the text of its `/proc/PID/cgroup`, in the hierarchy that has
    /// this controller.
    pub fn standing(&self, cgroup: &str, controller: Controller) -> Option<Standing> {
        let memberships = memberships(cgroup);
        let in_v1 = memberships.iter().find(|group| group.is_of(controller));
        let found = in_v1.and_then(|group| {
            let mut mounts = self.0.iter().filter(|mount| mount.has(controller));
            mounts.find_map(|mount| standing(mount, &group.path))
        });
        found.or_else(|| {
            let group = memberships.iter().find(|group| group.is_v2())?;
            let mut mounts = self.0.iter().filter(|mount| mount.version == Version::V2);
            mounts.find_map(|mount| standing(mount, &group.path))
        })
    }
}

fn standing(mount: &Mount, group: &str) -> Option<Standing> {
    Some(Standing {
        version: mount.version,
        top: mount.point.clone(),
        directory: mount.directory(group)?,
    })
}

impl Standing {
    /// Whether it is the root of the hierarchy itself, which every process is in or below.
    pub fn is_root(&self) -> bool {
        match self.version {
            Version::V1 => self.directory.join("release_agent").exists(),
            Version::V2 => is_root(&self.directory),
        }
    }

    /// The group this one is in, as far as it is shown.
    fn above(&self) -> Option<Standing> {
        let directory = self.directory.parent()?;
        (self.directory != self.top).then(|| Standing {
            directory: directory.to_owned(),
            ..self.clone()
        })
    }

    /// The nearest group that limits this one's CPU time, itself or one above.
    pub fn with_quota(&self) -> Option<Standing> {
        let mut at = Some(self.clone());
        while let Some(group) = at {
            if group.has_quota() {
                return Some(group);
            }
            at = group.above();
        }
        None
    }

    fn has_quota(&self) -> bool {
        match self.version {
            Version::V1 => {
                number(&self.directory.join("cpu.cfs_quota_us")).is_some_and(|quota| quota > 0)
            }
            Version::V2 => {
                let text = read(&self.directory.join("cpu.max")).unwrap_or_default();
                let quota = text.split_ascii_whitespace().next();
                quota.is_some_and(|quota| quota.parse::<u64>().is_ok())
            }
        }
    }

    /// Reads its figures; what is not there is nothing.
    pub fn cpu_figures(&self) -> CpuFigures {
        let text = read(&self.directory.join("cpu.stat")).unwrap_or_default();
        let periods = value(&text, "nr_periods").unwrap_or(0);
        let throttled_periods = value(&text, "nr_throttled").unwrap_or(0);
        let (used, throttled) = match self.version {
            Version::V1 => (
                number(&self.directory.join("cpuacct.usage")).map(Duration::from_nanos),
                value(&text, "throttled_time").map(Duration::from_nanos),
            ),
            Version::V2 => (
                value(&text, "usage_usec").map(Duration::from_micros),
                value(&text, "throttled_usec").map(Duration::from_micros),
            ),
        };
        CpuFigures {
            used,
            periods,
            throttled_periods,
            throttled: throttled.unwrap_or_default(),
        }
    }

    /// The processes in it and in the groups below it; 0 stands for one that is not shown here.
    /// `None` where there is no such group, or more than `groups_max` below it.
    pub fn processes(&self, groups_max: usize) -> Option<Vec<u32>> {
        let groups = groups(&self.directory);
        if groups.len() > groups_max {
            return None;
        }
        let mut found = Vec::new();
        for group in groups {
            let processes = interface::processes(&group).ok()?;
            found.extend(processes.iter().filter_map(|pid| u32::try_from(*pid).ok()));
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of made-up groups, removed at the end.
    struct Made(PathBuf);

    impl Made {
        fn new(name: &str, files: &[(&str, &str)]) -> Made {
            let directory = format!("nagaya-standing-{name}-{}", std::process::id());
            let made = Made(std::env::temp_dir().join(directory));
            for (file, text) in files {
                let path = made.0.join(file);
                std::fs::create_dir_all(path.parent().expect("it is in a directory"))
                    .expect("a directory is made");
                std::fs::write(path, text).expect("a file is written");
            }
            made
        }

        fn group(&self, version: Version, path: &str) -> Standing {
            Standing {
                version,
                top: self.0.clone(),
                directory: self.0.join(path),
            }
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_process_stands_where_its_controller_is() {
        let mounts = Mounts::of(
            "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n\
             33 31 0:30 /docker/1 /cg/acct rw - cgroup cgroup rw,cpuacct\n\
             41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw",
        );
        let hybrid = "3:cpuacct:/docker/1/x\n2:cpu:/a\n1:name=systemd:/s\n0::/u";
        // Text, controller, expected directory.
        for (cgroup, controller, expected) in [
            (hybrid, Controller::Cpu, Some("/cg/cpu/a")),
            (hybrid, Controller::CpuTime, Some("/cg/acct/x")),
            (hybrid, Controller::Memory, Some("/cg/unified/u")),
            (
                "3:cpuacct:/other\n0::/u",
                Controller::CpuTime,
                Some("/cg/unified/u"),
            ),
            ("0::/../out", Controller::CpuTime, None),
            ("garbage", Controller::Cpu, None),
            ("", Controller::Cpu, None),
        ] {
            let found = mounts.standing(cgroup, controller);
            let found = found.map(|found| found.directory);
            assert_eq!(
                found,
                expected.map(PathBuf::from),
                "{cgroup} {controller:?}"
            );
        }
    }

    #[test]
    fn the_nearest_quota_above_is_found_and_read_in_both_versions() {
        let v1 = [
            ("cpu.cfs_quota_us", "200000"),
            ("a/cpu.cfs_quota_us", "50000"),
            (
                "a/cpu.stat",
                "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000\n",
            ),
            ("a/cpuacct.usage", "123456789\n"),
            ("a/b/cpu.cfs_quota_us", "-1"),
        ];
        let v2 = [
            ("a/cpu.max", "50000 100000\n"),
            (
                "a/cpu.stat",
                "usage_usec 123456\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500\n",
            ),
            ("a/b/cpu.max", "max 100000\n"),
        ];
        for (version, name, files) in [(Version::V1, "v1", &v1[..]), (Version::V2, "v2", &v2[..])] {
            let made = Made::new(name, files);
            let quota = made
                .group(version, "a/b")
                .with_quota()
                .expect("there is one");
            assert_eq!(quota, made.group(version, "a"));
            let figures = quota.cpu_figures();
            assert_eq!(
                figures.throttled,
                Duration::from_micros(1_500),
                "{version:?}"
            );
            assert_eq!((figures.periods, figures.throttled_periods), (10, 4));
            assert_eq!(figures.used.map(|used| used.as_micros()), Some(123_456));
        }
    }

    #[test]
    fn files_that_say_nothing_are_no_quota() {
        let made = Made::new(
            "odd",
            &[("a/cpu.max", ""), ("a/cpu.stat", "nr_periods x\n\0\n")],
        );
        for group in ["a", "a/missing"] {
            let group = made.group(Version::V2, group);
            assert_eq!(group.with_quota(), None);
            assert_eq!(group.cpu_figures(), CpuFigures::default());
            assert_eq!(group.processes(8), None);
        }
    }
}
