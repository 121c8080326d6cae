//! Where each host's records go, worked out when a generation is made.

use std::collections::HashMap;
use std::sync::Arc;

use config::model::{HostPattern, LogTarget, Site};

use config::log_paths;

/// A place in [`Targets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetIndex(u32);

/// Every target of a generation, templates filled in.
#[derive(Debug, Default)]
pub struct Targets {
    list: Vec<Arc<LogTarget>>,
    without_site: Option<TargetIndex>,
}

/// Gathers [`Targets`].
#[derive(Debug)]
pub(crate) struct TargetsBuilder {
    targets: Targets,
    known: HashMap<Arc<LogTarget>, TargetIndex>,
}

impl Targets {
    /// The target at a place.
    pub fn get(&self, index: TargetIndex) -> Option<&Arc<LogTarget>> {
        self.list.get(usize::try_from(index.0).ok()?)
    }

    /// Where records of exchanges without a site go.
    pub fn without_site(&self) -> Option<TargetIndex> {
        self.without_site
    }
}

impl TargetsBuilder {
    /// Begins with the target of exchanges that come to no site.
    pub(crate) fn new(process: &LogTarget) -> Self {
        let mut builder = Self {
            targets: Targets::default(),
            known: HashMap::new(),
        };
        builder.targets.without_site = builder.place(match process {
            LogTarget::File(template) => LogTarget::File(log_paths::fill_without_site(template)),
            target => target.clone(),
        });
        builder
    }

    /// Where records of exchanges go that come to `site` by `host`; `None` is nowhere.
    pub(crate) fn add(&mut self, site: &Site, host: &HostPattern) -> Option<TargetIndex> {
        self.place(match &site.log {
            LogTarget::File(template) => LogTarget::File(log_paths::fill(template, site, host)),
            target => target.clone(),
        })
    }

    /// Ends the gathering.
    pub(crate) fn finish(self) -> Targets {
        self.targets
    }

    fn place(&mut self, target: LogTarget) -> Option<TargetIndex> {
        if target == LogTarget::Off {
            return None;
        }
        if let Some(index) = self.known.get(&target) {
            return Some(*index);
        }
        let index = TargetIndex(u32::try_from(self.targets.list.len()).ok()?);
        let target = Arc::new(target);
        self.targets.list.push(Arc::clone(&target));
        self.known.insert(target, index);
        Some(index)
    }
}
