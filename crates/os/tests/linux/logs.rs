//! Logs opened by a privileged process in other people's directories.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use os::file::facts;
use os::log::{is_in_others_hands, open_log, open_log_for};
use testkit::TempDir;

/// A tenant.
const OTHER: u32 = 65_534;

/// A directory of this process's own, which goes away.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A directory of the tenant's.
    fn of_other(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.at(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        path
    }
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    File::from(open_log(path)?).write_all(text.as_bytes())
}

fn refusal(path: &Path) -> String {
    let error = open_log(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn a_log_is_made_for_its_owner_and_appended_to() {
    let home = Home::new();
    for line in ["one\n", "two\n"] {
        append(&home.at("log"), line).unwrap();
    }
    assert_eq!(fs::read_to_string(home.at("log")).unwrap(), "one\ntwo\n");
    let mode = fs::metadata(home.at("log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}

#[test]
fn a_log_for_somebody_is_theirs_where_it_is_made_and_stays_whose_it_is_where_it_was() {
    if testkit::lacks_root("to give files away") {
        return;
    }
    let home = Home::new();
    let owner = |name: &str| fs::metadata(home.at(name)).unwrap().uid();
    fs::write(home.at("old"), "").unwrap();
    symlink("behind", home.at("link")).unwrap();
    home.of_other("tenant", 0o755);
    for (name, made, expected) in [
        ("new", "new", OTHER),
        ("old", "old", 0),
        ("link", "behind", OTHER),
        ("tenant/new", "tenant/new", OTHER),
    ] {
        let mut log = File::from(open_log_for(&home.at(name), OTHER).unwrap());
        log.write_all(b"one\n").unwrap();
        assert_eq!(owner(made), expected, "{name}");
    }
    // Somebody else's file in a tenant's directory is not opened, let alone given away.
    fs::hard_link(home.at("old"), home.at("tenant/precious")).unwrap();
    let error = open_log_for(&home.at("tenant/precious"), OTHER).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(owner("old"), 0);
}

#[test]
fn a_log_that_cannot_be_given_away_leaves_no_file_behind() {
    if testkit::lacks_root("to have something to give away") {
        return;
    }
    let home = Home::new();
    home.of_other("tenant", 0o755);
    let paths = [home.at("new"), home.at("tenant/new")];
    let opened = || paths.each_ref().map(|path| open_log_for(path, OTHER));
    // Of this thread alone.
    let errors = std::thread::scope(|scope| {
        let powerless = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::CHOWN);
            set_capabilities(None, sets).unwrap();
            opened().map(Result::unwrap_err)
        });
        powerless.join().unwrap()
    });
    for (path, error) in paths.iter().zip(errors) {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("given to user 65534"), "{error}");
        assert!(!path.exists(), "{}", path.display());
    }
    for (path, log) in paths.iter().zip(opened()) {
        log.unwrap();
        assert_eq!(fs::metadata(path).unwrap().uid(), OTHER);
    }
}

#[test]
fn links_of_those_who_are_trusted_are_followed() {
    let home = Home::new();
    fs::create_dir_all(home.at("real/sub")).unwrap();
    symlink("real", home.at("relative")).unwrap();
    symlink(home.at("real"), home.at("absolute")).unwrap();
    symlink("../real/./sub/../log", home.at("real/last")).unwrap();
    for path in [
        "relative/log",
        "absolute/log",
        "real/last",
        "real/sub/../log",
    ] {
        append(&home.at(path), "x").unwrap();
    }
    assert_eq!(fs::read_to_string(home.at("real/log")).unwrap(), "xxxx");
    symlink("loop", home.at("loop")).unwrap();
    let looped = open_log(&home.at("loop")).unwrap_err();
    assert_eq!(looped.raw_os_error(), Some(libc::ELOOP));
}

#[test]
fn a_tenants_link_leads_nowhere() {
    if testkit::lacks_root("to make files of another user") {
        return;
    }
    let home = Home::new();
    let tenant = home.of_other("tenant", 0o755);
    fs::create_dir(home.at("theirs")).unwrap();
    fs::write(home.at("theirs/log"), "").unwrap();
    let links = [
        ("last", home.at("theirs/log"), "last"),
        ("way", home.at("theirs"), "way/log"),
        ("dangling", home.at("theirs/new"), "dangling"),
        ("stream", PathBuf::from("/proc/self/fd/1"), "stream"),
    ];
    for (name, target, path) in links {
        symlink(&target, tenant.join(name)).unwrap();
        lchown(tenant.join(name), Some(OTHER), Some(OTHER)).unwrap();
        let said = refusal(&tenant.join(path));
        assert!(
            said.contains(&format!(
                "the link {name} on the way belongs to user {OTHER}"
            )),
            "{said}"
        );
    }
    // Neither is one that a trusted link leads to.
    symlink(tenant.join("last"), home.at("trusted")).unwrap();
    refusal(&home.at("trusted"));
    assert!(!home.at("theirs/new").exists());
    append(&tenant.join("own"), "x").unwrap();
    append(&tenant.join("own"), "x").unwrap();
}

#[test]
fn a_second_name_counts_where_others_write() {
    if testkit::lacks_root("to make files of another user") {
        return;
    }
    let home = Home::new();
    fs::write(home.at("precious"), "").unwrap();
    for (name, mode, group) in [
        ("tenant", 0o755, 0),
        ("sticky", 0o1777, 0),
        ("group", 0o775, OTHER),
    ] {
        let directory = home.of_other(name, mode);
        if name != "tenant" {
            chown(&directory, Some(0), Some(group)).unwrap();
        }
        let log = directory.join("log");
        fs::hard_link(home.at("precious"), &log).unwrap();
        assert!(refusal(&log).contains("more than one name"), "{name}");
        fs::remove_file(&log).unwrap();
        append(&log, "x").unwrap();
    }
    fs::hard_link(home.at("precious"), home.at("second")).unwrap();
    append(&home.at("second"), "x").unwrap();
}

#[test]
fn a_directory_its_own_group_may_write_to_is_shared() {
    let home = Home::new();
    let shared = home.at("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o775)).unwrap();
    fs::write(home.at("precious"), "").unwrap();
    fs::hard_link(home.at("precious"), shared.join("log")).unwrap();
    assert!(refusal(&shared.join("log")).contains("more than one name"));
    fifo(&shared.join("fifo"));
    let mut options = File::options();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let _reads = options.open(shared.join("fifo")).unwrap();
    assert!(refusal(&shared.join("fifo")).contains("no regular file"));
    append(&shared.join("own"), "x").unwrap();
}

#[test]
fn whose_hands_a_way_is_in_is_seen_from_its_directories() {
    if testkit::lacks_root("to make files of another user") {
        return;
    }
    let home = Home::new();
    let tenant = home.of_other("tenant", 0o755);
    fs::create_dir(tenant.join("roots")).unwrap();
    let group = home.of_other("group", 0o775);
    chown(&group, Some(0), Some(0)).unwrap();
    let sticky = home.of_other("sticky", 0o1777);
    chown(&sticky, Some(0), Some(0)).unwrap();
    fs::create_dir(sticky.join("ours")).unwrap();
    fs::create_dir(sticky.join("theirs")).unwrap();
    chown(sticky.join("theirs"), Some(OTHER), None).unwrap();
    fs::write(sticky.join("file"), "").unwrap();
    symlink(&tenant, home.at("trusted")).unwrap();
    symlink("loop", home.at("loop")).unwrap();
    for (path, is_others) in [
        ("log", false),
        ("no/log", false),
        ("loop", false),
        ("tenant", false),
        ("tenant/log", true),
        ("tenant/no/log", true),
        ("tenant/roots/log", true),
        ("trusted/log", true),
        ("group/log", true),
        ("group/no/log", true),
        ("sticky/log", true),
        ("sticky/file", true),
        ("sticky/ours/no/log", false),
        ("sticky/theirs/log", true),
    ] {
        assert_eq!(is_in_others_hands(&home.at(path)), is_others, "{path}");
    }
}

#[test]
fn a_file_somebody_left_where_anybody_writes_is_not_taken() {
    if testkit::lacks_root("to make files of another user") {
        return;
    }
    let home = Home::new();
    let shared = home.of_other("shared", 0o1777);
    chown(&shared, Some(0), Some(0)).unwrap();
    fs::write(shared.join("theirs"), "").unwrap();
    chown(shared.join("theirs"), Some(OTHER), None).unwrap();
    refusal(&shared.join("theirs"));
    append(&shared.join("ours"), "x").unwrap();
    // Log rotation gives files to others in a directory of root's.
    fs::write(home.at("rotated"), "").unwrap();
    chown(home.at("rotated"), Some(OTHER), None).unwrap();
    append(&home.at("rotated"), "x").unwrap();
}

#[test]
fn a_fifo_is_never_waited_for_and_never_anothers() {
    let home = Home::new();
    fifo(&home.at("own"));
    let nobody_reads = open_log(&home.at("own")).unwrap_err();
    assert_eq!(nobody_reads.raw_os_error(), Some(libc::ENXIO));
    let reader = || {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        options
    };
    let mut reads = reader().open(home.at("own")).unwrap();
    append(&home.at("own"), "x").unwrap();
    let mut text = [0; 2];
    assert_eq!(reads.read(&mut text).unwrap(), 1);
    if testkit::lacks_root("to make files of another user") {
        return;
    }
    let tenant = home.of_other("tenant", 0o755);
    fifo(&tenant.join("fifo"));
    let _reads = reader().open(tenant.join("fifo")).unwrap();
    assert!(refusal(&tenant.join("fifo")).contains("no regular file"));
}

#[test]
fn devices_and_standard_streams_can_be_logs() {
    append(Path::new("/dev/null"), "x").unwrap();
    let home = Home::new();
    symlink("/dev/stderr", home.at("log")).unwrap();
    let streams: [(&Path, _); 3] = [
        (
            Path::new("/dev/stdout"),
            io::stdout().as_fd().try_clone_to_owned(),
        ),
        (
            Path::new("/dev/stderr"),
            io::stderr().as_fd().try_clone_to_owned(),
        ),
        (&home.at("log"), io::stderr().as_fd().try_clone_to_owned()),
    ];
    for (path, stream) in streams {
        let (log, stream) = (open_log(path).unwrap(), stream.unwrap());
        assert_eq!(facts(log.as_fd()).unwrap(), facts(stream.as_fd()).unwrap());
    }
}

#[test]
fn a_directory_is_no_log() {
    let home = Home::new();
    for path in [home.0.path(), Path::new("/"), &home.at("..")] {
        let error = open_log(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory, "{}", path.display());
    }
    let missing = open_log(&home.at("no/log")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    fs::write(home.at("file"), "").unwrap();
    let through = open_log(&home.at("file/log")).unwrap_err();
    assert_eq!(through.kind(), ErrorKind::NotADirectory);
}
