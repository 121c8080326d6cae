//! What is seen of processes and programs from outside.

use std::path::Path;

use ipc::pools::Identity;

/// Processor time of the first thread of a process, as exactly as the kernel knows it.
pub(super) fn own_cpu_us(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let ns: u64 = stat.split(' ').next()?.parse().ok()?;
    Some(ns / 1_000)
}

/// Which file a path leads to: something else for another file or content.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.dev(), facts.ino(), facts.mtime(), facts.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_has_taken_is_seen() {
        assert!(own_cpu_us(std::process::id()).is_none_or(|us| us > 0));
        assert_eq!(own_cpu_us(u32::MAX), None);
    }

    #[test]
    fn a_file_that_takes_anothers_place_is_another() {
        let exe = std::env::current_exe().unwrap();
        assert_eq!(identity(&exe), identity(&exe));
        assert_ne!(identity(&exe), identity(Path::new("/")));
        assert_eq!(identity(Path::new("/nonexistent")), None);
    }
}
