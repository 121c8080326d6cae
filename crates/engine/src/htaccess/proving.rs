//! A request for a file whose directory may be known: what it needs to look there, and to keep what a
//! walk finds.

use std::sync::Arc;

use os::file::FileFacts;

use super::cache::KnownChain;
use super::proofs::{LookedWay, Proofs};
use super::walk::Landing;
use crate::resolve;
use crate::resolve::files::Files;
use crate::resolve::search::Root;
use crate::stage::Routed;
use crate::tree::Tree;

/// A request for a file, whose directory may be known.
pub(crate) struct Proving<'a> {
    proofs: &'a Proofs,
    open: &'a Files,
    root: Arc<Root>,
    place: (u32, &'a [u8]),
    relative: &'a [u8],
    facts: FileFacts,
    now_ms: u64,
}

impl<'a> Proving<'a> {
    /// Begins, where the root of the file's tree was opened lately and nobody has to wait for it.
    pub(crate) fn new(
        routed: Routed<'a>,
        tree: &Tree,
        relative: &'a [u8],
        facts: FileFacts,
    ) -> Option<Self> {
        let slash = relative.iter().rposition(|byte| *byte == b'/');
        let directory = relative.get(..slash.map_or(0, |at| at + 1))?;
        Some(Self {
            proofs: &routed.serving.proofs,
            open: &routed.serving.files,
            root: resolve::local_root(routed, tree)?,
            place: (tree.number, directory),
            relative,
            facts,
            now_ms: routed.worker.deadlines.now_ms(),
        })
    }

    /// The file, and the files that hold for it, where nothing has changed.
    pub(crate) fn known(&self) -> Option<(Landing, Arc<KnownChain>)> {
        let known = self.proofs.known(&self.root, self.place)?;
        Some((Landing::of_file(self.relative, &self.facts), known))
    }

    /// Looks at the directories on the way, before their files are walked.
    pub(crate) fn look(&self) -> Option<LookedWay> {
        let root = Arc::clone(&self.root);
        self.proofs.look(root, self.place, self.now_ms)
    }

    /// Keeps what the walk has found.
    pub(crate) fn keep(self, looked: LookedWay, known: &Arc<KnownChain>) {
        let known = (known, self.open);
        self.proofs.keep(looked, self.place, known, self.now_ms);
    }
}
