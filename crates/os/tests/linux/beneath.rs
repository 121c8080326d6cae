//! Opening beneath a directory: every policy against every kind of thing that can stand there.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use os::file::{self, FileKind, Symlinks, Wait};
use testkit::TempDir;

/// Tries of an open that may not wait, while renames on the machine send it away.
const RENAMES_IN_THE_WAY_MAX: usize = 10_000;
const POLICIES: [Symlinks; 3] = [Symlinks::Deny, Symlinks::Owner, Symlinks::Allow];

/// A directory of its own; `inside` is what opens stay beneath.
struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        let root = TempDir::new();
        fs::create_dir_all(root.path().join("inside/sub/deep")).unwrap();
        root.write("secret", "secret");
        root.write("inside/file", "legal");
        root.write("inside/sub/file", "legal");
        Tree(root)
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.0.path().join("inside").join(path)
    }

    fn link(&self, text: &str, path: &str) {
        symlink(text, self.inside(path)).unwrap();
    }

    fn dir(&self) -> OwnedFd {
        file::open_directory(&self.0.path().join("inside")).unwrap()
    }

    fn open(&self, path: &str, policy: Symlinks) -> io::Result<OwnedFd> {
        file::open_beneath(self.dir().as_fd(), path.as_bytes(), policy, Wait::Allowed)
    }
}

fn content(fd: &OwnedFd) -> Vec<u8> {
    file::read_whole(fd.as_fd(), 100).unwrap()
}

/// What an open came to, in a word.
fn outcome(result: io::Result<OwnedFd>) -> String {
    match result {
        Ok(fd) if file::facts(fd.as_fd()).unwrap().kind == FileKind::Directory => {
            "directory".into()
        }
        Ok(fd) => String::from_utf8(content(&fd)).unwrap(),
        Err(error) => match error.raw_os_error() {
            Some(libc::ELOOP) => "ELOOP".into(),
            Some(libc::EXDEV) => "EXDEV".into(),
            Some(libc::ENOENT) => "ENOENT".into(),
            Some(libc::ENOTDIR) => "ENOTDIR".into(),
            Some(libc::ENAMETOOLONG) => "ENAMETOOLONG".into(),
            _ => error.to_string(),
        },
    }
}

/// Absolute links that end inside and outside, and others that meet them.
fn link_absolutely(tree: &Tree) {
    tree.link("/etc/hostname", "absolute_out");
    tree.link("/etc/no/such/thing", "nothing_out");
    let to = |path: &str| tree.inside(path).to_str().unwrap().to_owned();
    tree.link(&to("sub"), "absolute_dir");
    tree.link(&to("missing"), "absolute_missing");
    tree.link(&to("../secret"), "absolute_up_and_out");
    tree.link(&to("sub/around"), "absolute_to_relative");
    tree.link("../absolute_dir/around", "sub/relative_to_absolute");
    tree.link(&to(""), "self");
    symlink(to("sub"), tree.0.path().join("elsewhere")).unwrap();
    tree.link("../elsewhere/file", "out_over_another_link");
    tree.link(&to("absolute_loop"), "absolute_loop");
}

#[test]
fn each_policy_does_to_each_path_what_it_says() {
    let tree = Tree::new();
    tree.link("file", "to_file");
    tree.link("to_file", "to_link");
    tree.link("sub", "to_dir");
    tree.link("../sub/./file", "sub/around");
    tree.link("../../secret", "sub/out");
    tree.link("../secret", "out");
    tree.link("../inside/file", "out_and_in");
    tree.link(tree.inside("file").to_str().unwrap(), "absolute");
    link_absolutely(&tree);
    tree.link("nowhere", "dangling");
    tree.link("loop_b", "loop_a");
    tree.link("loop_a", "loop_b");
    tree.link("file/", "file_as_dir");
    #[rustfmt::skip]
    let table = [
        // path               deny          owner         allow
        ("file",             ["legal",     "legal",      "legal"]),
        ("sub/file",         ["legal",     "legal",      "legal"]),
        ("sub//./file",      ["legal",     "legal",      "legal"]),
        ("sub/../file",      ["legal",     "legal",      "legal"]),
        ("",                 ["directory", "directory",  "directory"]),
        ("sub/",             ["directory", "directory",  "directory"]),
        ("missing",          ["ENOENT",    "ENOENT",     "ENOENT"]),
        ("file/below",       ["ENOTDIR",   "ENOTDIR",    "ENOTDIR"]),
        ("../secret",        ["EXDEV",     "EXDEV",      "EXDEV"]),
        ("/etc/passwd",      ["EXDEV",     "EXDEV",      "EXDEV"]),
        ("to_file",          ["ELOOP",     "legal",      "legal"]),
        ("to_link",          ["ELOOP",     "legal",      "legal"]),
        ("to_dir",           ["ELOOP",     "directory",  "directory"]),
        ("to_dir/file",      ["ELOOP",     "legal",      "legal"]),
        ("to_dir/../file",   ["ELOOP",     "legal",      "legal"]),
        ("sub/around",       ["ELOOP",     "legal",      "legal"]),
        ("to_dir/around",    ["ELOOP",     "legal",      "legal"]),
        ("sub/out",          ["ELOOP",     "EXDEV",      "EXDEV"]),
        ("out",              ["ELOOP",     "EXDEV",      "EXDEV"]),
        ("out_and_in",       ["ELOOP",     "legal",      "legal"]),
        ("out_over_another_link", ["ELOOP", "legal",     "legal"]),
        ("absolute",         ["ELOOP",     "legal",      "legal"]),
        ("absolute/",        ["ELOOP",     "ENOTDIR",    "ENOTDIR"]),
        ("absolute_dir/file", ["ELOOP",    "legal",      "legal"]),
        ("absolute_dir/../absolute_dir/../file", ["ELOOP", "legal", "legal"]),
        ("absolute_dir/../../secret", ["ELOOP", "EXDEV", "EXDEV"]),
        ("absolute_missing", ["ELOOP",     "ENOENT",     "ENOENT"]),
        ("absolute_to_relative", ["ELOOP", "legal",      "legal"]),
        ("sub/relative_to_absolute", ["ELOOP", "legal",  "legal"]),
        ("self/self/sub/file", ["ELOOP",   "legal",      "legal"]),
        ("self",             ["ELOOP",     "directory",  "directory"]),
        ("absolute_loop",    ["ELOOP",     "ELOOP",      "ELOOP"]),
        ("absolute_out",     ["ELOOP",     "EXDEV",      "EXDEV"]),
        ("absolute_up_and_out", ["ELOOP",  "EXDEV",      "EXDEV"]),
        ("nothing_out",      ["ELOOP",     "EXDEV",      "EXDEV"]),
        ("dangling",         ["ELOOP",     "ENOENT",     "ENOENT"]),
        ("loop_a",           ["ELOOP",     "ELOOP",      "ELOOP"]),
        ("file_as_dir",      ["ELOOP",     "ENOTDIR",    "ENOTDIR"]),
        ("to_file/",         ["ELOOP",     "ENOTDIR",    "ENOTDIR"]),
    ];
    for (path, wanted) in table {
        for (policy, wanted) in POLICIES.into_iter().zip(wanted) {
            assert_eq!(
                outcome(tree.open(path, policy)),
                wanted,
                "{path:?} with {policy:?}"
            );
        }
    }
}

#[test]
fn a_path_with_a_nul_is_refused() {
    let tree = Tree::new();
    for policy in POLICIES {
        let error = tree.open("file\0.txt", policy).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{policy:?}");
    }
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let tree = Tree::new();
    tree.link("file", "link0");
    for number in 1..=40 {
        tree.link(&format!("link{}", number - 1), &format!("link{number}"));
    }
    tree.link("file", "absolute0");
    for number in 1..=40 {
        let to = tree.inside(&format!("absolute{}", number - 1));
        tree.link(to.to_str().unwrap(), &format!("absolute{number}"));
    }
    for policy in [Symlinks::Owner, Symlinks::Allow] {
        for name in ["link", "absolute"] {
            let open = |number| outcome(tree.open(&format!("{name}{number}"), policy));
            assert_eq!(open(39), "legal", "{name} {policy:?}");
            assert_eq!(open(40), "ELOOP", "{name} {policy:?}");
        }
    }
}

#[test]
fn a_link_that_grows_as_it_is_followed_ends() {
    let tree = Tree::new();
    // Each link doubles the work: 2^20 steps if nothing counted them.
    tree.link("sub/..", "x0");
    for number in 1..20 {
        let before = number - 1;
        tree.link(&format!("x{before}/x{before}"), &format!("x{number}"));
    }
    assert_eq!(outcome(tree.open("x19/file", Symlinks::Owner)), "ELOOP");
    let whole = tree.inside("x19/file");
    tree.link(whole.to_str().unwrap(), "absolute");
    assert_eq!(outcome(tree.open("absolute", Symlinks::Allow)), "ELOOP");
}

#[test]
fn the_owner_policy_compares_a_link_with_what_it_leads_to() {
    if testkit::lacks_root("to change owners") {
        return;
    }
    let tree = Tree::new();
    tree.link("file", "own_root");
    tree.link("file", "tenant_to_root");
    tree.link("tenant_file", "tenant_to_tenant");
    tree.link("tenant_file", "root_to_tenant");
    tree.link("tenant_to_root", "root_over_tenant");
    tree.link("sub", "tenant_to_root_dir");
    fs::write(tree.inside("tenant_file"), "tenant's").unwrap();
    chown(tree.inside("tenant_file"), Some(1000), None).unwrap();
    let to = |path: &str| tree.inside(path).to_str().unwrap().to_owned();
    tree.link(&to("file"), "absolute_own");
    tree.link(&to("file"), "absolute_tenant_to_root");
    tree.link(&to("tenant_file"), "absolute_tenant_to_tenant");
    tree.link(&to("absolute_tenant_to_root"), "absolute_over_tenant");
    for link in [
        "tenant_to_root",
        "tenant_to_tenant",
        "tenant_to_root_dir",
        "absolute_tenant_to_root",
        "absolute_tenant_to_tenant",
    ] {
        lchown(tree.inside(link), Some(1000), None).unwrap();
    }
    for (path, wanted) in [
        ("own_root", "legal"),
        ("tenant_to_root", "ELOOP"),
        ("tenant_to_tenant", "tenant's"),
        ("root_to_tenant", "ELOOP"),
        ("root_over_tenant", "ELOOP"),
        ("tenant_to_root_dir/file", "ELOOP"),
        ("tenant_to_root_dir", "ELOOP"),
        ("absolute_own", "legal"),
        ("absolute_tenant_to_root", "ELOOP"),
        ("absolute_tenant_to_tenant", "tenant's"),
        ("absolute_over_tenant", "ELOOP"),
    ] {
        assert_eq!(outcome(tree.open(path, Symlinks::Owner)), wanted, "{path}");
    }
    assert_eq!(
        outcome(tree.open("tenant_to_root", Symlinks::Allow)),
        "legal"
    );
}

#[test]
fn odd_files_are_opened_without_waiting_and_told_apart() {
    let tree = Tree::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.inside("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    std::os::unix::net::UnixListener::bind(tree.inside("socket")).unwrap();
    tree.link("fifo", "to_fifo");
    let kind = |path: &str, policy| {
        tree.open(path, policy)
            .map(|fd| file::facts(fd.as_fd()).unwrap().kind)
            .ok()
    };
    for policy in POLICIES {
        assert_eq!(kind("fifo", policy), Some(FileKind::Other), "{policy:?}");
        assert_eq!(kind("sub", policy), Some(FileKind::Directory), "{policy:?}");
        assert_eq!(kind("socket", policy), None, "{policy:?}");
    }
    assert_eq!(kind("to_fifo", Symlinks::Owner), Some(FileKind::Other));
    let dev = file::open_directory(Path::new("/dev")).unwrap();
    let null = file::open_beneath(dev.as_fd(), b"null", Symlinks::Owner, Wait::Allowed).unwrap();
    assert_eq!(file::facts(null.as_fd()).unwrap().kind, FileKind::Other);
}

#[test]
fn magic_links_of_proc_lead_nowhere() {
    let tree = Tree::new();
    let held = fs::File::open(tree.0.path().join("secret")).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&held);
    let proc = file::open_directory(Path::new("/proc/self")).unwrap();
    for path in [
        format!("fd/{number}"),
        "root/etc/passwd".into(),
        "exe".into(),
        "cwd".into(),
    ] {
        for policy in POLICIES {
            let opened = file::open_beneath(proc.as_fd(), path.as_bytes(), policy, Wait::Allowed);
            assert!(opened.is_err(), "{path} with {policy:?}");
        }
    }
    // Not even back inside.
    let inside = tree.inside("file");
    let held = fs::File::open(&inside).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&held);
    tree.link(&format!("/proc/self/root{}", inside.display()), "by_root");
    tree.link(&format!("/proc/self/fd/{number}"), "by_descriptor");
    for path in ["by_root", "by_descriptor"] {
        for policy in [Symlinks::Owner, Symlinks::Allow] {
            assert_eq!(
                outcome(tree.open(path, policy)),
                "EXDEV",
                "{path} {policy:?}"
            );
        }
    }
    assert_eq!(outcome(tree.open("by_root", Symlinks::Deny)), "ELOOP");
}

fn is_on_the_roots_device(tree: &Tree) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    tree.0
        .path()
        .ancestors()
        .all(|above| device(above) == device(Path::new("/")))
}

#[test]
fn what_is_in_memory_is_opened_without_waiting() {
    let tree = Tree::new();
    tree.link("../file", "sub/up");
    tree.link(tree.inside("sub/up").to_str().unwrap(), "absolute");
    let dir = tree.dir();
    let open =
        |path: &str, policy, wait| file::open_beneath(dir.as_fd(), path.as_bytes(), policy, wait);
    for (path, policy) in [
        ("sub/file", Symlinks::Deny),
        ("sub/up", Symlinks::Owner),
        ("sub/up", Symlinks::Allow),
        ("absolute", Symlinks::Owner),
        ("absolute", Symlinks::Allow),
    ] {
        if path == "absolute" && !is_on_the_roots_device(&tree) {
            // The way from the real root enters another mount.
            let error = open(path, policy, Wait::Never).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CrossesDevices, "{policy:?}");
            continue;
        }
        assert_eq!(outcome(open(path, policy, Wait::Allowed)), "legal");
        // A rename anywhere on the machine while `..` is walked sends a walk that may not wait
        // away (openat2(2), EAGAIN), and the tests beside this one rename all the time.
        let opened = (0..RENAMES_IN_THE_WAY_MAX)
            .map(|_| open(path, policy, Wait::Never))
            .find(|opened| !matches!(opened, Err(error) if error.kind() == ErrorKind::WouldBlock));
        let opened = opened.unwrap_or_else(|| panic!("{path} with {policy:?}: never in memory"));
        assert_eq!(outcome(opened), "legal", "{path} with {policy:?}");
    }
    // No name of its kind was ever looked up: only a thread that may wait can tell.
    let error = open("sub/never_seen", Symlinks::Deny, Wait::Never).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotFound),
        "{error}"
    );
}

/// Swaps `name` between the legal file and `other` while opening it, and counts what was opened.
fn swap_race(tree: &Tree, name: &str, other: &str, policy: Symlinks) -> u64 {
    const FLIPS: u32 = 100_000;
    let (one, two) = (tree.inside(name), tree.inside(other));
    let done = AtomicBool::new(false);
    let dir = tree.dir();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            for _ in 0..FLIPS {
                rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, flags)
                    .unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut opened = 0;
        while !done.load(Ordering::Acquire) {
            if let Ok(fd) = file::open_beneath(dir.as_fd(), name.as_bytes(), policy, Wait::Allowed)
            {
                assert_eq!(content(&fd), b"legal", "{policy:?}");
                opened += 1;
            }
        }
        opened
    })
}

#[test]
fn a_file_swapped_for_a_link_to_outside_never_leads_outside() {
    for policy in POLICIES {
        let tree = Tree::new();
        tree.link("../secret", "outside");
        assert!(
            swap_race(&tree, "file", "outside", policy) > 0,
            "{policy:?} opened nothing"
        );
    }
}

#[test]
fn a_directory_swapped_for_a_link_to_outside_never_leads_outside() {
    for policy in POLICIES {
        let tree = Tree::new();
        fs::create_dir(tree.0.path().join("elsewhere")).unwrap();
        fs::write(tree.0.path().join("elsewhere/file"), "secret").unwrap();
        tree.link("../elsewhere", "outside");
        let dir = tree.dir();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let (one, two) = (tree.inside("sub"), tree.inside("outside"));
                for _ in 0..100_000 {
                    rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, flags)
                        .unwrap();
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                if let Ok(fd) = file::open_beneath(dir.as_fd(), b"sub/file", policy, Wait::Allowed)
                {
                    assert_eq!(content(&fd), b"legal", "{policy:?}");
                }
            }
        });
    }
}

/// Swaps two names until `done`, each time giving others their turn.
fn swap(one: &Path, two: &Path, done: &AtomicBool) {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    while !done.load(Ordering::Acquire) {
        rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, two, flags).unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn whatever_is_swapped_on_the_way_of_an_absolute_link_it_never_leads_outside() {
    for policy in [Symlinks::Owner, Symlinks::Allow] {
        let tree = Tree::new();
        let outside = |path: &str| tree.0.path().join(path);
        fs::create_dir(outside("elsewhere")).unwrap();
        fs::write(outside("elsewhere/file"), "secret").unwrap();
        // On the way to the boundary: a link back inside, and a directory that holds the secret.
        symlink(tree.inside("sub"), outside("pivot")).unwrap();
        tree.link(outside("pivot/file").to_str().unwrap(), "by_pivot");
        // Behind the boundary: a directory, and an absolute link that leads outside.
        tree.link(outside("elsewhere").to_str().unwrap(), "out");
        tree.link(tree.inside("sub/file").to_str().unwrap(), "by_name");
        // The link itself: one that ends inside and one that ends outside.
        tree.link(outside("secret").to_str().unwrap(), "by_name_out");
        let dir = tree.dir();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| swap(&outside("pivot"), &outside("elsewhere"), &done));
            scope.spawn(|| swap(&tree.inside("sub"), &tree.inside("out"), &done));
            scope.spawn(|| swap(&tree.inside("by_name"), &tree.inside("by_name_out"), &done));
            let open = |path: &str| {
                file::open_beneath(dir.as_fd(), path.as_bytes(), policy, Wait::Allowed)
            };
            let (mut asked, mut opened) = (0, [0_u32; 2]);
            while asked < 5_000 || (opened.contains(&0) && asked < 1_000_000) {
                asked += 1;
                for (path, opened) in ["by_pivot", "by_name"].into_iter().zip(&mut opened) {
                    if let Ok(fd) = open(path) {
                        if content(&fd) != b"legal" {
                            done.store(true, Ordering::Release);
                            panic!("{path} with {policy:?} led outside");
                        }
                        *opened += 1;
                    }
                }
            }
            done.store(true, Ordering::Release);
            assert!(!opened.contains(&0), "{policy:?} opened {opened:?}");
        });
    }
}

#[test]
fn a_file_swapped_for_another_owners_link_is_never_read_through_it() {
    if testkit::lacks_root("to change owners") {
        return;
    }
    let tree = Tree::new();
    fs::write(tree.inside("others"), "secret").unwrap();
    tree.link("others", "bait");
    lchown(tree.inside("bait"), Some(1000), None).unwrap();
    // A second way to the same file, so that the walk is taken and not the fast path.
    tree.link("sub", "way");
    tree.link("../others", "sub/bait");
    lchown(tree.inside("sub/bait"), Some(1000), None).unwrap();
    assert!(swap_race(&tree, "file", "bait", Symlinks::Owner) > 0);
    let dir = tree.dir();
    let opened = file::open_beneath(dir.as_fd(), b"way/bait", Symlinks::Owner, Wait::Allowed);
    assert_eq!(outcome(opened), "ELOOP");
}
