//! When a directory is looked at, what of it is kept, and when that no longer holds.

use std::fs;
use std::path::{Path, PathBuf};

use crate::htaccess::walk::Walk;
use crate::htaccess::walk::tests::{found, root, walk};

use super::*;

/// Later than any change of a file.
const LATER_NS: u128 = u128::MAX;

/// What changes below a root, and how.
type DirectoryChange = (&'static str, fn(&Path));

/// A worker's proofs, and the root that they are about.
struct ProofBench {
    proofs: Proofs,
    open: Files,
    path: PathBuf,
    root: Arc<Root>,
    walk: Walk,
}

impl ProofBench {
    fn new(test: &str, handles: usize) -> Self {
        let files = [(".htaccess", "Options -Indexes\n"), ("a/b/x", "")];
        let (path, root) = root(test, &files);
        Self {
            proofs: Proofs::default(),
            open: Files::new(0, handles),
            walk: walk(&path, &["All"], Vec::new()),
            path,
            root: Arc::new(root),
        }
    }

    fn look(&self, directory: &str, now_ms: u64, looked_ns: u128) -> Option<LookedWay> {
        let (root, place) = (Arc::clone(&self.root), (0, directory.as_bytes()));
        let now = (now_ms, looked_ns);
        let look = || self.proofs.look(Arc::clone(&root), place, &self.open, now);
        look().or_else(look)
    }

    fn keep(&self, looked: LookedWay, directory: &str) -> Arc<KnownChain> {
        let known = found(&self.walk, &self.root, directory);
        let place = (0, directory.as_bytes());
        self.proofs.keep(looked, place, &known);
        known
    }

    fn known(&self, directory: &str, looked_ns: u128) -> Option<Arc<KnownChain>> {
        let place = (0, directory.as_bytes());
        self.proofs.known(&self.root, place, looked_ns)
    }

    /// Handles that are left.
    fn left(&self) -> usize {
        let shares = std::iter::from_fn(|| self.open.handles(1));
        shares.collect::<Vec<_>>().len()
    }
}

impl Drop for ProofBench {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.path));
    }
}

fn changed_ns(path: &Path) -> u128 {
    use std::os::unix::fs::MetadataExt;
    let facts = fs::metadata(path).expect("it is there");
    let changed_ns = facts.ctime() * 1_000_000_000 + facts.ctime_nsec();
    changed_ns.try_into().expect("after 1970")
}

#[test]
fn a_directory_is_known_until_something_changes_that_it_depends_on() {
    let changes: [DirectoryChange; 4] = [
        ("a file comes", |at| {
            fs::write(at.join("a/.htaccess"), "").expect("a file")
        }),
        ("it is written", |at| {
            fs::write(at.join(".htaccess"), "Options +Indexes\n").expect("a file")
        }),
        ("it goes", |at| {
            fs::remove_file(at.join(".htaccess")).expect("it is there")
        }),
        ("a directory goes", |at| {
            fs::rename(at.join("a"), at.join("c")).expect("it is there")
        }),
    ];
    for (number, (what, change)) in changes.into_iter().enumerate() {
        let bench = ProofBench::new(&format!("proofs-change-{number}"), 100);
        assert!(bench.known("a/b/", LATER_NS).is_none());
        let looked = bench.look("a/b/", 0, LATER_NS).expect("asked twice");
        let walked = bench.keep(looked, "a/b/");
        let known = bench.known("a/b/", LATER_NS).expect("nothing has changed");
        assert!(Arc::ptr_eq(&walked, &known));
        change(&bench.path);
        assert!(bench.known("a/b/", LATER_NS).is_none(), "{what}");
    }
}

#[test]
fn what_had_changed_a_moment_before_it_was_looked_at_is_not_known() {
    let bench = ProofBench::new("proofs-young", 100);
    let young_ns = changed_ns(&bench.path) + 1_000_000;
    // However long the walk takes after it.
    let looked = bench.look("a/b/", 0, young_ns).expect("asked twice");
    let _walked = bench.keep(looked, "a/b/");
    assert!(bench.known("a/b/", LATER_NS).is_none());
    let looked = bench.look("a/b/", 100, LATER_NS).expect("asked twice");
    let _walked = bench.keep(looked, "a/b/");
    assert!(bench.known("a/b/", LATER_NS).is_some());
    // A file that was looked at before may be another directory's.
    assert!(bench.known("a/b/", young_ns).is_none());
}

#[test]
fn only_who_asks_again_looks_and_nobody_beside_him() {
    let bench = ProofBench::new("proofs-turns", 100);
    let look = |now_ms| {
        let (root, place) = (Arc::clone(&bench.root), (0, &b"a/b/"[..]));
        let now = (now_ms, LATER_NS);
        bench.proofs.look(root, place, &bench.open, now)
    };
    assert!(look(0).is_none());
    assert!(look(WALKED_MS + 1).is_none(), "that is long ago");
    assert!(look(WALKED_MS + 2).is_some());
    assert!(look(WALKED_MS + 2).is_none(), "another one looks");
    assert!(look(2 * WALKED_MS + 2).is_some());
    let deep = "d/".repeat(PARTS_MAX + 1);
    assert!(bench.look(&deep, 0, LATER_NS).is_none());
    assert!(bench.look("none/", 0, LATER_NS).is_none());
    let known = bench.proofs.0.borrow();
    let failed = known.get(&0).and_then(|it| it.get(&b"none/"[..]));
    assert_eq!(failed.map(|kept| kept.after_ms), Some(WALKED_MS));
    drop(known);
    bench.proofs.sweep(2 * WALKED_MS + IDLE_MS + 1);
    let known = bench.proofs.0.borrow();
    assert_eq!(known.values().map(HashMap::len).sum::<usize>(), 1);
}

#[test]
fn descriptors_count_from_the_first_look_and_none_are_opened_beyond() {
    let bench = ProofBench::new("proofs-budget", PARTS_MAX + 1);
    let looked = bench.look("a/b/", 0, LATER_NS).expect("there is room");
    assert_eq!(bench.left(), 1);
    assert!(bench.look("a/", 0, LATER_NS).is_none());
    let _walked = bench.keep(looked, "a/b/");
    // Three directories and a file.
    assert_eq!(bench.left(), PARTS_MAX + 1 - 4);
}

#[test]
fn what_the_cache_gives_up_is_given_up_here() {
    let mut bench = ProofBench::new("proofs-pinned", 100);
    let looked = bench.look("a/b/", 0, LATER_NS).expect("asked twice");
    let walked = bench.keep(looked, "a/b/");
    assert!(bench.known("a/b/", LATER_NS).is_some());
    bench.walk.programs = Arc::default();
    drop(walked);
    assert!(bench.known("a/b/", LATER_NS).is_none());
}

#[test]
fn a_crowd_of_directories_drives_out_one_that_is_known_at_most() {
    let bench = ProofBench::new("proofs-crowd", 1_000);
    fs::remove_file(bench.path.join(".htaccess")).expect("it is there");
    let names: Vec<_> = (0..DIRECTORIES_MAX).map(|it| format!("n{it}/")).collect();
    for name in &names {
        fs::create_dir(bench.path.join(name)).expect("a directory");
    }
    for name in &names {
        let looked = bench.look(name, 0, LATER_NS).expect("asked twice");
        bench.keep(looked, name);
    }
    for number in 0..1_000 {
        let name = format!("c{number}/");
        let (root, place) = (Arc::clone(&bench.root), (0, name.as_bytes()));
        let looked = bench.proofs.look(root, place, &bench.open, (1, LATER_NS));
        assert!(looked.is_none());
    }
    let known = names.iter();
    let known = known.filter(|name| bench.known(name, LATER_NS).is_some());
    assert_eq!(known.count(), DIRECTORIES_MAX - 1);
}
