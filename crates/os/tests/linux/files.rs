//! Facts, reads, lists and files without names.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};

use os::file::{self, FileKind};
use testkit::TempDir;

#[test]
fn facts_are_those_of_the_open_file() {
    let dir = TempDir::new();
    let path = dir.write("file", "12345");
    let file = fs::File::open(&path).unwrap();
    let known = std::os::unix::fs::MetadataExt::mtime(&file.metadata().unwrap());
    let facts = file::facts(file.as_fd()).unwrap();
    assert_eq!((facts.kind, facts.size), (FileKind::Regular, 5));
    assert_eq!(facts.modified_s as i64, known);
    assert!(facts.modified_ns < 1_000_000_000);
}

#[test]
fn a_listing_has_every_name_once_and_stops_at_its_cap() {
    let dir = TempDir::new();
    for number in 0..300 {
        dir.write(&format!("file{number}"), "");
    }
    fs::create_dir(dir.path().join("sub")).unwrap();
    let held = fs::File::open(dir.path()).unwrap();
    let mut names: Vec<_> = file::list(held.as_fd(), 1_000).unwrap();
    assert_eq!(file::list(held.as_fd(), 10).unwrap().len(), 10);
    assert_eq!(names.len(), 301);
    names.sort_by(|one, other| one.name.cmp(&other.name));
    names.dedup();
    assert_eq!(names.len(), 301);
    assert_eq!(
        names
            .iter()
            .filter(|entry| entry.kind == FileKind::Directory)
            .count(),
        1
    );
}

#[test]
fn a_memory_file_cannot_be_changed() {
    let fd = file::memfd("sources", b"content").unwrap();
    assert_eq!(file::read_whole(fd.as_fd(), 7).unwrap(), b"content");
    assert_eq!(
        file::read_whole(fd.as_fd(), 6).unwrap_err().kind(),
        ErrorKind::FileTooLarge
    );
    let mut file = fs::File::from(fd);
    assert_eq!(
        file.write(b"x").unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    assert!(file.set_len(0).is_err());
}

#[test]
fn a_temporary_file_has_no_name() {
    let dir = TempDir::new();
    let mut file = fs::File::from(file::temporary(dir.path()).unwrap());
    file.write_all(b"spooled").unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(file::read_whole(file.as_fd(), 100).unwrap(), b"spooled");
}

fn megabyte() -> (TempDir, OwnedFd) {
    let dir = TempDir::new();
    let path = dir.write("file", vec![7; 1 << 20]);
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    (dir, file.into())
}

#[test]
fn pages_just_written_are_in_memory() {
    let (_dir, file) = megabyte();
    assert!(file::pages_cached(file.as_fd(), 0, 1 << 20).unwrap());
    assert!(file::pages_cached(file.as_fd(), 4_095, 2).unwrap());
    assert!(file::pages_cached(file.as_fd(), 0, 0).unwrap());
    let mut buffer = [0; 100];
    assert_eq!(
        file::read_at_nowait(file.as_fd(), &mut buffer, (1 << 20) - 10).unwrap(),
        10
    );
}

#[test]
fn pages_thrown_out_are_not_in_memory() {
    let (_dir, file) = megabyte();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let cached = file::pages_cached(file.as_fd(), 0, 1 << 20).unwrap();
    let kept_in_memory = rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994;
    assert_eq!(
        cached, kept_in_memory,
        "only tmpfs has nowhere else to keep them"
    );
}
