//! A request for a file whose directory may be known: what it needs to look there, and to keep what a
//! walk finds.

use std::rc::Rc;
use std::sync::Arc;

use super::cache::KnownChain;
use super::proofs::{LookedWay, Proofs};
use super::walk::{Landing, LandingKind};
use crate::resolve;
use crate::resolve::file::now_ns;
use crate::resolve::files::Files;
use crate::resolve::resolved::{Resolved, relative_of};
use crate::resolve::search::Root;
use crate::stage::Routed;
use crate::tree::Tree;

/// A request for a file, whose directory may be known.
pub(crate) struct Proving<'a> {
    proofs: &'a Proofs,
    open: &'a Files,
    root: Arc<Root>,
    place: (u32, &'a [u8]),
    /// What would be sent of it may be as old.
    file: Rc<Resolved>,
    now_ms: u64,
}

impl<'a> Proving<'a> {
    /// Begins, where the file at the path itself was looked at lately, no link led there, and nobody
    /// has to wait for its root.
    pub(crate) fn new(routed: Routed<'a>, tree: &Tree, path: &'a [u8]) -> Option<Self> {
        let file = resolve::known(routed, tree, path)?;
        let below = tree.below(path)?;
        file.plain_file(below)?;
        let relative = relative_of(below);
        let slash = relative.iter().rposition(|byte| *byte == b'/');
        let directory = relative.get(..slash.map_or(0, |at| at + 1))?;
        Some(Self {
            proofs: &routed.serving.proofs,
            open: &routed.serving.files,
            root: resolve::local_root(routed, tree)?,
            place: (tree.number, directory),
            file,
            now_ms: routed.worker.deadlines.now_ms(),
        })
    }

    /// The file, what it is like, and the files that hold for it, where nothing has changed.
    pub(crate) fn known(&self) -> Option<(Rc<Resolved>, Landing, Arc<KnownChain>)> {
        let (file, looked_ns) = (&self.file, self.file.looked_ns);
        let known = self.proofs.known(&self.root, self.place, looked_ns)?;
        let relative = file.relative();
        let landing = Landing::of_file(relative, &file.plain_file(relative)?.facts);
        Some((Rc::clone(file), landing, known))
    }

    /// Looks at the directories on the way, before their files are walked.
    pub(crate) fn look(&self) -> Option<LookedWay> {
        let (root, now) = (Arc::clone(&self.root), (self.now_ms, now_ns()));
        self.proofs.look(root, self.place, self.open, now)
    }

    /// Keeps what the walk has found, if the file was still there.
    pub(crate) fn keep(self, looked: LookedWay, (landing, known): (&Landing, &Arc<KnownChain>)) {
        if landing.kind == LandingKind::File && landing.path_info.is_empty() {
            self.proofs.keep(looked, self.place, known);
        }
    }
}
