//! What is known of the files that hold for a directory, as long as nothing that it depends on has
//! changed: one look at each directory on the way and at each file, by a descriptor kept open.
//!
//! A directory whose times are what they were has the same names in it, so that each of them leads
//! where it did, and a file that was not there is not; a file whose times are what they were has the
//! same bytes, but for what a program stores into one that it has mapped: the system changes its times
//! at the first store into a page alone. Times tell it if they were old enough when they were looked
//! at, before the walk ([`is_settled_at`]). What they do not tell, another file system over a directory,
//! shows with the next root, which is opened once a second. Kept is this for directories alone whose
//! files are sent again and again; all others are walked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use os::file::{self, FileFacts, Wait};

use super::cache::{KnownChain, is_settled_at};
use super::walk::NAME;
use crate::resolve::file::Share;
use crate::resolve::files::Files;
use crate::resolve::search::Root;

/// Directories of one worker that are kept.
const DIRECTORIES_MAX: usize = 32;
/// Directories on the way to one, and files in them.
const PARTS_MAX: usize = 12;
/// How long a directory is walked before it is looked at again; who asks for its files twice within
/// it asks again and again.
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
    /// None where there is none yet, or it could not be had lately.
    proof: Option<DirectoryProof>,
    /// When it was walked last.
    walked_ms: u64,
    /// When it may be looked at again.
    after_ms: u64,
}

#[derive(Debug)]
struct DirectoryProof {
    root: Arc<Root>,
    parts: Vec<WayPart>,
    /// What was given up elsewhere is given up here.
    known: Weak<KnownChain>,
    /// Where nothing is said, nobody else has it.
    _empty: Option<Arc<KnownChain>>,
    _share: Share,
}

/// A directory or a file, and what it was like.
type WayPart = (OwnedFd, FileFacts);

/// The directories on the way to one, before its files are walked.
#[derive(Debug)]
pub(crate) struct LookedWay {
    root: Arc<Root>,
    parts: Vec<WayPart>,
    /// A little before the first look.
    looked_ns: u128,
    share: Share,
}

impl Proofs {
    /// Forgets what nobody has asked for in a while.
    pub(crate) fn sweep(&self, now_ms: u64) {
        self.0.borrow_mut().retain(|_, kept| {
            kept.retain(|_, kept| now_ms < kept.after_ms + IDLE_MS);
            !kept.is_empty()
        });
    }

    /// The files that hold for a directory, where nothing has changed since a file in it was looked at.
    pub(crate) fn known(
        &self,
        root: &Arc<Root>,
        (tree, directory): (u32, &[u8]),
        looked_ns: u128,
    ) -> Option<Arc<KnownChain>> {
        let kept = self.0.borrow();
        let proof = kept.get(&tree)?.get(directory)?.proof.as_ref()?;
        let is_fine = |part: &WayPart| is_settled_at(&part.1, looked_ns) && is_unchanged(part);
        let is_same = Arc::ptr_eq(&proof.root, root) && proof.parts.iter().all(is_fine);
        proof.known.upgrade().filter(|_| is_same)
    }

    /// Looks at the directories on the way to one that is asked for again and again. One request at a
    /// time does.
    pub(crate) fn look(
        &self,
        root: Arc<Root>,
        (tree, directory): (u32, &[u8]),
        open: &Files,
        (now_ms, looked_ns): (u64, u128),
    ) -> Option<LookedWay> {
        if !self.is_due((tree, directory), now_ms) {
            return None;
        }
        let share = open.handles(PARTS_MAX)?;
        let parts = root.way(directory, PARTS_MAX, Wait::Never).ok()?;
        Some(LookedWay {
            root,
            parts,
            looked_ns,
            share,
        })
    }

    /// Notes that a directory is walked; says whether it is to be looked at before.
    fn is_due(&self, (tree, directory): (u32, &[u8]), now_ms: u64) -> bool {
        let mut trees = self.0.borrow_mut();
        if let Some(kept) = trees.get_mut(&tree).and_then(|it| it.get_mut(directory)) {
            let is_due = now_ms >= kept.after_ms && now_ms <= kept.walked_ms + WALKED_MS;
            kept.walked_ms = now_ms;
            if is_due {
                kept.proof = None;
                kept.after_ms = now_ms + WALKED_MS;
            }
            return is_due;
        }
        if trees.values().map(HashMap::len).sum::<usize>() >= DIRECTORIES_MAX {
            forget_oldest(&mut trees);
        }
        let kept = KeptProof {
            proof: None,
            walked_ms: now_ms,
            after_ms: now_ms,
        };
        let directories = trees.entry(tree).or_default();
        directories.insert(directory.into(), kept);
        false
    }

    /// Keeps what a walk has found of a directory, if nothing has changed since it was looked at and a
    /// change will show.
    pub(crate) fn keep(
        &self,
        looked: LookedWay,
        (tree, directory): (u32, &[u8]),
        known: &Arc<KnownChain>,
    ) {
        let proof = proof(looked, directory, known).ok().flatten();
        let mut trees = self.0.borrow_mut();
        if let Some(kept) = trees.get_mut(&tree).and_then(|it| it.get_mut(directory)) {
            kept.proof = proof;
        }
    }
}

/// Makes room for one more: what is not proven goes first.
fn forget_oldest(trees: &mut HashMap<u32, TreeProofs>) {
    let all = trees.iter().flat_map(|(tree, directories)| {
        let directories = directories.iter();
        directories.map(|(directory, kept)| (kept.proof.is_some(), kept.after_ms, *tree, directory))
    });
    let Some((.., tree, directory)) = all.min() else {
        return;
    };
    let directory = directory.clone();
    if let Some(directories) = trees.get_mut(&tree) {
        directories.remove(&directory);
    }
}

fn is_unchanged((descriptor, facts): &WayPart) -> bool {
    file::facts(descriptor.as_fd()).is_ok_and(|now| now == *facts)
}

/// What is kept, if all is as it was; nothing where that could not be told later.
fn proof(
    looked: LookedWay,
    directory: &[u8],
    known: &Arc<KnownChain>,
) -> io::Result<Option<DirectoryProof>> {
    let LookedWay {
        root,
        mut parts,
        looked_ns,
        share,
    } = looked;
    let mut stamps = known.stamps().iter().peekable();
    for (level, end) in ends(directory).enumerate() {
        let above = directory.get(..end).unwrap_or_default();
        let name = [above, NAME].concat();
        match stamps.next_if(|stamp| stamp.level == level) {
            Some(_) if parts.len() == PARTS_MAX => return Ok(None),
            Some(stamp) => parts.push((root.find_plain(&name, Wait::Never)?, stamp.facts)),
            // What it leads to may come to be there.
            None if root.is_link(&name, Wait::Never)? => return Ok(None),
            None => {}
        }
    }
    let is_fine = |part: &WayPart| is_settled_at(&part.1, looked_ns) && is_unchanged(part);
    let is_proven = stamps.next().is_none() && parts.iter().all(is_fine);
    Ok(is_proven.then(|| DirectoryProof {
        root,
        _share: share.shrunk_to(parts.len()),
        parts,
        known: Arc::downgrade(known),
        _empty: known.chain.levels().is_empty().then(|| Arc::clone(known)),
    }))
}

/// Where the names of directories on the way end, that of the root first.
fn ends(directory: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = directory.iter().enumerate();
    let slashes = slashes.filter(|(_, byte)| **byte == b'/');
    std::iter::once(0).chain(slashes.map(|(at, _)| at + 1))
}

#[cfg(test)]
mod tests;
