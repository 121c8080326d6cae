//! What is known of `.htaccess` files: parsed once for all sites that have the same bytes, and
//! merged once for each directory until a file of it or above it changes.
//!
//! Files are looked at for every request, so nothing here says that one is absent, and a file that
//! was changed shortly before it was read is read again: the clock of file systems is coarse.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use htaccess::{Chain, ChainLevel, Overrides, Program, Stop};
use os::file::FileFacts;

/// A file that was changed this shortly before it was read may change again and look the same.
const SETTLED_NS: u64 = 20_000_000;
/// The same where times have no parts of a second.
const SETTLED_COARSE_NS: u64 = 2_100_000_000;
/// A second.
const SECOND_NS: u64 = 1_000_000_000;

/// What is known of files, for all workers.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By the hash of the file's bytes; each with what it was read under.
    programs: Mutex<HashMap<[u8; 32], ReadUnder>>,
    /// By the directory's full name.
    chains: Mutex<HashMap<Box<[u8]>, Arc<KnownChain>>>,
}

/// What the same bytes say, by what they were read under.
type ReadUnder = Vec<(Overrides, Arc<Program>)>;

/// The files that hold for a directory, merged.
#[derive(Debug)]
pub(crate) struct KnownChain {
    /// The merged programs.
    pub(crate) chain: Chain,
    overrides: Overrides,
    /// How much of the directory's name is the root.
    root_bytes: usize,
    stamps: Vec<Stamp>,
    is_settled: bool,
}

/// By what a change of a file is seen; the level is that of its directory below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// How many directories lie between the root and the file's.
    pub(crate) level: usize,
    /// What is known of the file.
    pub(crate) facts: FileFacts,
}

impl Stamp {
    /// Whether a later change of the file will show, if it was read now.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.is_settled_at(now.map_or(0, |now| now.as_nanos()))
    }

    fn is_settled_at(&self, now_ns: u128) -> bool {
        let changed_ns = self.facts.changed_ns;
        let margin_ns = match changed_ns % SECOND_NS {
            0 => SETTLED_COARSE_NS,
            _ => SETTLED_NS,
        };
        u128::from(changed_ns.saturating_add(margin_ns)) < now_ns
    }
}

impl Programs {
    /// The merged files of a directory, if they are still what they were.
    pub(crate) fn chain(
        &self,
        (directory, root_bytes): (&[u8], usize),
        stamps: &[Stamp],
        overrides: &Overrides,
    ) -> Option<Arc<KnownChain>> {
        let chains = held(&self.chains);
        let known = chains.get(directory)?;
        let is_same = known.is_settled
            && known.root_bytes == root_bytes
            && known.stamps == stamps
            && known.overrides == *overrides;
        is_same.then(|| Arc::clone(known))
    }

    /// Merges files that were read, and keeps them if a change will show.
    ///
    /// # Errors
    /// Too many of them.
    pub(crate) fn keep_chain(
        &self,
        (directory, root_bytes): (&[u8], usize),
        (stamps, is_settled): (Vec<Stamp>, bool),
        levels: Vec<ChainLevel>,
        (overrides, most): (&Overrides, usize),
    ) -> Result<Arc<KnownChain>, Stop> {
        // Where there are no files nothing is gained by it.
        let is_kept = is_settled && !levels.is_empty();
        let known = Arc::new(KnownChain {
            chain: Chain::new(levels)?,
            overrides: overrides.clone(),
            root_bytes,
            stamps,
            is_settled,
        });
        if is_kept {
            let mut chains = held(&self.chains);
            make_room(&mut chains, most);
            chains.insert(directory.into(), Arc::clone(&known));
        }
        Ok(known)
    }

    /// The program of a file, and whether it was not known before.
    pub(crate) fn program(
        &self,
        bytes: &[u8],
        overrides: &Overrides,
        most: usize,
    ) -> (Arc<Program>, bool) {
        let hash = digest(&SHA256, bytes);
        let hash: [u8; 32] = hash.as_ref().try_into().unwrap_or_default();
        let find = |programs: &HashMap<_, ReadUnder>| {
            let mut found = programs.get(&hash)?.iter();
            let found = found.find(|(read_under, _)| read_under == overrides);
            found.map(|(_, program)| Arc::clone(program))
        };
        if let Some(program) = find(&held(&self.programs)) {
            return (program, false);
        }
        // Compiled without the lock: others need not wait for it.
        let program = Arc::new(htaccess::compile(bytes, overrides));
        let mut programs = held(&self.programs);
        make_room(&mut programs, most);
        let known = programs.entry(hash).or_default();
        known.push((overrides.clone(), Arc::clone(&program)));
        (program, true)
    }
}

/// Forgets half of what is known where there is no more room. What is in use lives on.
fn make_room<K: std::hash::Hash + Eq, V>(known: &mut HashMap<K, V>, most: usize) {
    if known.len() >= most {
        let mut keeps = false;
        known.retain(|_, _| {
            keeps = !keeps;
            keeps
        });
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use htaccess::overrides::Unknown;
    use os::file::FileKind;

    use super::*;

    fn stamp(changed_ns: u64) -> Stamp {
        let facts = FileFacts {
            kind: FileKind::Regular,
            size: 1,
            modified_s: 1,
            modified_ns: 1,
            changed_ns,
            device: 1,
            inode: 1,
            uid: 0,
            gid: 0,
            mode: 0o644,
        };
        Stamp { level: 0, facts }
    }

    /// A directory whose file closes it.
    fn closed(programs: &Programs) -> Vec<ChainLevel> {
        let all = Overrides::all();
        let (program, _) = programs.program(b"Require all denied\n", &all, 10);
        let directory = Arc::from(&b"/srv/a/"[..]);
        vec![ChainLevel { directory, program }]
    }

    #[test]
    fn the_same_bytes_are_understood_once_for_all_that_allow_the_same() {
        let (programs, all) = (Programs::default(), Overrides::all());
        let (one, is_new) = programs.program(b"Require all denied\n", &all, 10);
        let (again, is_new_again) = programs.program(b"Require all denied\n", &all, 10);
        assert!(is_new && !is_new_again && Arc::ptr_eq(&one, &again));
        let less = Overrides::new(["FileInfo"], Unknown::Log).expect("a class");
        let (other, is_new) = programs.program(b"Require all denied\n", &less, 10);
        assert!(is_new && !Arc::ptr_eq(&one, &other));
        assert!(other.problems.iter().any(|problem| problem.refuses));
    }

    #[test]
    fn what_is_kept_has_a_number_and_what_is_in_use_lives_on() {
        let (programs, all) = (Programs::default(), Overrides::all());
        let (used, _) = programs.program(b"Require all denied\n", &all, 10);
        for number in 0..100 {
            programs.program(format!("# {number}\n").as_bytes(), &all, 10);
            let directory = format!("/srv/{number}/");
            let at = (directory.as_bytes(), 5);
            let levels = closed(&programs);
            let kept = programs.keep_chain(at, (Vec::new(), true), levels, (&all, 10));
            kept.expect("few levels");
        }
        assert!(held(&programs.programs).len() <= 10 && held(&programs.chains).len() <= 10);
        assert!(used.problems.is_empty());
    }

    #[test]
    fn a_file_that_was_changed_a_moment_before_it_was_read_is_read_again() {
        let now_ns = 1_000 * SECOND_NS + 5;
        for (age_ns, is_settled) in [
            (0, false),
            (SETTLED_NS - 1, false),
            (SETTLED_NS + 1, true),
            // Where times have no parts of a second.
            (5, false),
            (2 * SECOND_NS + 5, false),
            (3 * SECOND_NS + 5, true),
        ] {
            let stamp = stamp(now_ns - age_ns);
            assert_eq!(stamp.is_settled_at(now_ns.into()), is_settled, "{age_ns}");
        }
        assert!(
            !stamp(now_ns + SECOND_NS).is_settled_at(now_ns.into()),
            "tomorrow"
        );
        let (programs, all) = (Programs::default(), Overrides::all());
        let at = (&b"/srv/a/"[..], 5);
        for is_settled in [false, true] {
            let (stamps, levels) = (vec![stamp(1)], closed(&programs));
            let kept = programs.keep_chain(at, (stamps, is_settled), levels, (&all, 10));
            kept.expect("few levels");
            let known = programs.chain(at, &[stamp(1)], &all);
            assert_eq!(known.is_some(), is_settled);
        }
        for (at, stamps) in [
            (at, vec![stamp(2)]),
            (at, Vec::new()),
            // Below another root.
            ((at.0, 1), vec![stamp(1)]),
        ] {
            assert!(programs.chain(at, &stamps, &all).is_none());
        }
    }
}
