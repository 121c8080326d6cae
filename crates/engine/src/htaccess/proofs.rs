//! What is known of the files that hold for a directory, as long as nothing that it depends on has
//! changed: one look at each directory on the way and at each file, by a descriptor kept open.
//!
//! A directory whose times are what they were has the same names in it, so that each of them leads
//! where it did, and a file that was not there is not; a file whose times are what they were has the
//! same bytes. Times tell it once they are old enough ([`is_settled`]). What they do not tell,
//! another file system over a directory, shows with the next root, which is opened once a second.
//! Kept is this for directories alone whose files are sent again and again; all others are walked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use os::file::{self, FileFacts, Wait};

use super::cache::{KnownChain, is_settled};
use super::walk::NAME;
use crate::resolve::file::Share;
use crate::resolve::files::Files;
use crate::resolve::search::Root;

/// Directories of one worker that are kept.
const DIRECTORIES_MAX: usize = 32;
/// Directories on the way to one, and files in them.
const PARTS_MAX: usize = 12;
/// How long a directory is walked that could not be kept.
const WALKED_MS: u64 = 100;
/// How long one is kept whose files nobody asks for.
const IDLE_MS: u64 = 10_000;

/// What one worker keeps, by tree and directory.
#[derive(Debug, Default)]
pub(crate) struct Proofs(RefCell<HashMap<u32, TreeProofs>>);

/// What is kept of a tree, by directory.
type TreeProofs = HashMap<Box<[u8]>, KeptProof>;

/// What is kept of a directory.
#[derive(Debug)]
struct KeptProof {
    /// None where it could not be had lately.
    proof: Option<DirectoryProof>,
    /// When it may be looked for again.
    after_ms: u64,
}

#[derive(Debug)]
struct DirectoryProof {
    root: Arc<Root>,
    parts: Vec<WayPart>,
    known: Arc<KnownChain>,
    _share: Share,
}

/// A directory or a file, and what it was like.
type WayPart = (OwnedFd, FileFacts);

/// The directories on the way to one, before its files are walked.
#[derive(Debug)]
pub(crate) struct LookedWay {
    root: Arc<Root>,
    parts: Vec<WayPart>,
}

impl Proofs {
    /// Forgets what nobody has asked for in a while.
    pub(crate) fn sweep(&self, now_ms: u64) {
        self.0.borrow_mut().retain(|_, kept| {
            kept.retain(|_, kept| now_ms < kept.after_ms + IDLE_MS);
            !kept.is_empty()
        });
    }

    /// The files that hold for a directory, where nothing has changed.
    pub(crate) fn known(
        &self,
        root: &Arc<Root>,
        (tree, directory): (u32, &[u8]),
    ) -> Option<Arc<KnownChain>> {
        let kept = self.0.borrow();
        let proof = kept.get(&tree)?.get(directory)?.proof.as_ref()?;
        let is_same = Arc::ptr_eq(&proof.root, root) && proof.parts.iter().all(is_unchanged);
        is_same.then(|| Arc::clone(&proof.known))
    }

    /// Looks at the directories on the way to one, if it is not one that could not be kept lately.
    pub(crate) fn look(
        &self,
        root: Arc<Root>,
        (tree, directory): (u32, &[u8]),
        now_ms: u64,
    ) -> Option<LookedWay> {
        let kept = self.0.borrow();
        let kept = kept.get(&tree).and_then(|tree| tree.get(directory));
        if kept.is_some_and(|kept| now_ms < kept.after_ms) {
            return None;
        }
        let parts = root.way(directory, PARTS_MAX, Wait::Never).ok()?;
        Some(LookedWay { root, parts })
    }

    /// Keeps what a walk has found of a directory, if nothing has changed since it was looked at and a
    /// change will show.
    pub(crate) fn keep(
        &self,
        looked: LookedWay,
        (tree, directory): (u32, &[u8]),
        (known, open): (&Arc<KnownChain>, &Files),
        now_ms: u64,
    ) {
        let proof = proof(looked, directory, (known, open)).ok().flatten();
        let mut kept = self.0.borrow_mut();
        if kept.values().map(HashMap::len).sum::<usize>() >= DIRECTORIES_MAX {
            kept.clear();
        }
        let after_ms = now_ms + WALKED_MS;
        let kept = kept.entry(tree).or_default();
        kept.insert(directory.into(), KeptProof { proof, after_ms });
    }
}

fn is_unchanged((descriptor, facts): &WayPart) -> bool {
    file::facts(descriptor.as_fd()).is_ok_and(|now| now == *facts)
}

/// What is kept, if all is as it was; nothing where that could not be told later.
fn proof(
    looked: LookedWay,
    directory: &[u8],
    (known, open): (&Arc<KnownChain>, &Files),
) -> io::Result<Option<DirectoryProof>> {
    let LookedWay { root, mut parts } = looked;
    let mut stamps = known.stamps().iter().peekable();
    for (level, end) in ends(directory).enumerate() {
        let above = directory.get(..end).unwrap_or_default();
        let name = [above, NAME].concat();
        match stamps.next_if(|stamp| stamp.level == level) {
            Some(stamp) => parts.push((root.find_plain(&name, Wait::Never)?, stamp.facts)),
            // What it leads to may come to be there.
            None if root.is_link(&name, Wait::Never)? => return Ok(None),
            None => {}
        }
    }
    let is_fine = |part: &WayPart| is_settled(&part.1) && is_unchanged(part);
    let is_whole = stamps.next().is_none() && parts.len() <= PARTS_MAX;
    let share = open.handles(parts.len());
    let share = share.filter(|_| is_whole && parts.iter().all(is_fine));
    Ok(share.map(|share| DirectoryProof {
        root,
        parts,
        known: Arc::clone(known),
        _share: share,
    }))
}

/// Where the names of directories on the way end, that of the root first.
fn ends(directory: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = directory.iter().enumerate();
    let slashes = slashes.filter(|(_, byte)| **byte == b'/');
    std::iter::once(0).chain(slashes.map(|(at, _)| at + 1))
}
