//! Limits of memory that cannot be had yet.
//!
//! The idea: version 1 refuses a limit below what is in use and cannot be taken back. That limit
//! waits, alone: the one from before holds meanwhile, and it is tried again when it may be had.

use std::io;

use super::controllers::Controller;
use super::limits::Limits;
use super::tree::{Group, Tree};
use super::{Error, interface};

/// What stands in version 1 for as much memory as there is, or more.
const UNBOUNDED_BYTES: u64 = 1 << 60;

/// A limit of memory that waits, since more is in use; the one from before holds meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLimit {
    /// The group.
    pub path: Vec<String>,
    /// What it is to be.
    pub wanted_bytes: u64,
    /// What it is; `None`: there is none.
    pub kept_bytes: Option<u64>,
}

impl Tree {
    /// Limits of memory that wait.
    pub fn held(&self) -> impl Iterator<Item = &HeldLimit> {
        self.held.values()
    }

    /// Leaves those that wait to whoever has the groups next.
    pub fn forget_held(&mut self) {
        self.held.clear();
    }

    /// Tries again those that may be had by now.
    pub fn try_held(&mut self) {
        let (nodes, named) = (&self.nodes, &self.named);
        self.held
            .retain(|path, _| nodes.contains_key(path) || named.has(path));
        for (path, held) in self.held.clone() {
            let written = self.nodes.get(&path).and_then(|node| node.written.as_ref());
            // Nothing is known to be written where the last try broke off.
            let limits = written.or_else(|| self.named.get(&path)).cloned();
            let may_be_had = self
                .used_bytes(&path)
                .is_some_and(|used| used <= held.wanted_bytes);
            let Some(limits) = limits.filter(|_| may_be_had) else {
                continue;
            };
            let limits = Limits {
                memory_bytes: Some(held.wanted_bytes),
                ..limits
            };
            let group = Group { path, limits };
            if self.write_or_hold(&group).is_err() {
                self.held.insert(group.path, held);
            }
        }
    }

    /// As [`Tree::write`]; a limit of memory that the kernel refuses as more is in use waits.
    pub(super) fn write_or_hold(&mut self, group: &Group) -> Result<(), Error> {
        self.held.remove(&group.path);
        let node = self.nodes.get(&group.path);
        let before = node.and_then(|node| node.written.clone());
        let kept_bytes = match &before {
            Some(before) => before.memory_bytes,
            None => self.memory_limit(&group.path),
        };
        let Err(refused) = self.write(group) else {
            return Ok(());
        };
        let wanted_bytes = group.limits.memory_bytes;
        let is_held = refused.error.kind() == io::ErrorKind::ResourceBusy;
        let Some(wanted_bytes) = wanted_bytes.filter(|_| is_held && wanted_bytes != kept_bytes)
        else {
            return Err(refused);
        };
        if let Some(node) = self.nodes.get_mut(&group.path) {
            // Of memory, swap among it, anything may have been written.
            node.written = before.map(|before| Limits {
                memory_bytes: Some(wanted_bytes),
                ..before
            });
        }
        let mut kept = group.clone();
        kept.limits.memory_bytes = kept_bytes;
        self.write(&kept)?;
        let held = HeldLimit {
            path: kept.path,
            wanted_bytes,
            kept_bytes,
        };
        self.held.insert(group.path.clone(), held);
        Ok(())
    }

    /// What a group in version 1 may have of memory, as the kernel says.
    fn memory_limit(&self, path: &[String]) -> Option<u64> {
        let group = self.layout.of(Controller::Memory)?.group(path);
        let bytes = interface::number(&group.join("memory.limit_in_bytes"))?;
        (bytes < UNBOUNDED_BYTES).then_some(bytes)
    }

    /// What a group in version 1 has of memory beside pages of files, which the kernel takes back.
    fn used_bytes(&self, path: &[String]) -> Option<u64> {
        let group = self.layout.of(Controller::Memory)?.group(path);
        let used = interface::number(&group.join("memory.usage_in_bytes"))?;
        let text = interface::read(&group.join("memory.stat")).ok()?;
        let pages = ["total_inactive_file", "total_active_file"];
        let pages = pages.iter().filter_map(|key| interface::value(&text, key));
        Some(pages.fold(used, u64::saturating_sub))
    }
}
