//! The disk behind a path.
//!
//! The idea: the kernel throttles whole disks and volumes, never partitions. What is named may be
//! a device or anything that lies on one; sysfs tells which disk that is.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;

use rustix::fs::{FileType, major, minor, stat};

/// A block device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    /// Its kind.
    pub major: u32,
    /// Which of its kind.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The whole disk that `path` is or lies on.
///
/// # Errors
/// When nothing is there, or what is there lies on no block device (a network or memory file
/// system, and btrfs, which hides its own).
pub fn device_of(path: &Path) -> io::Result<Device> {
    let stat = stat(path)?;
    let number = if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
        stat.st_rdev
    } else {
        stat.st_dev
    };
    whole_disk(Path::new("/sys/dev/block"), major(number), minor(number))
}

/// The disk a partition belongs to: in sysfs a partition's directory lies in its disk's.
fn whole_disk(devices: &Path, major: u32, minor: u32) -> io::Result<Device> {
    let link = devices.join(format!("{major}:{minor}"));
    let directory = link.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("it lies on no block device"),
        _ => error,
    })?;
    if !directory.join("partition").exists() {
        return Ok(Device { major, minor });
    }
    let disk = directory.parent().unwrap_or(&directory).join("dev");
    parse(&std::fs::read_to_string(disk)?)
        .ok_or_else(|| io::Error::other("the kernel does not say which disk it is on"))
}

fn parse(text: &str) -> Option<Device> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_partition_is_its_disk_and_a_disk_itself() {
        let root = std::env::temp_dir().join(format!("nagaya-disks-{}", std::process::id()));
        let disk = root.join("devices/vda");
        std::fs::create_dir_all(disk.join("vda1")).unwrap();
        std::fs::create_dir_all(root.join("block")).unwrap();
        std::fs::write(disk.join("dev"), "254:0\n").unwrap();
        std::fs::write(disk.join("vda1/dev"), "254:1\n").unwrap();
        std::fs::write(disk.join("vda1/partition"), "1\n").unwrap();
        symlink(&disk, root.join("block/254:0")).unwrap();
        symlink(disk.join("vda1"), root.join("block/254:1")).unwrap();
        for minor in [0, 1] {
            let found = whole_disk(&root.join("block"), 254, minor).unwrap();
            assert_eq!(found.to_string(), "254:0");
        }
        let error = whole_disk(&root.join("block"), 0, 31).unwrap_err();
        assert_eq!(error.to_string(), "it lies on no block device");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_lies_in_proc_lies_on_no_disk() {
        assert!(device_of(Path::new("/proc/self")).is_err());
        assert!(device_of(Path::new("/nowhere")).is_err());
    }
}
