//! Where each host's records go, worked out when a generation is made.

use std::collections::HashMap;
use std::sync::Arc;

use config::model::{self, HostPattern, LogTarget, Site};

use config::log_paths;

/// A place in [`Targets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetIndex(u32);

impl TargetIndex {
    /// The place of no target: what goes there is not written.
    const NOWHERE: Self = Self(u32::MAX);
}

/// Every target of a generation, templates filled in.
#[derive(Debug, Default)]
pub struct Targets {
    list: Vec<Arc<LogTarget>>,
    without_site: Option<TargetIndex>,
    /// The sites' own error logs, by their names.
    errors: HashMap<Box<str>, Arc<LogTarget>>,
    /// Whether a rule says where records go: else nobody need ask the rules.
    pub(super) rules_say: bool,
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

    /// The error log of a site that has one of its own.
    pub(crate) fn error_log_of(&self, site: &str) -> Option<&Arc<LogTarget>> {
        self.errors.get(site)
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

    /// Where records of exchanges go that a rule of `site` matches; `None` is as the site says.
    pub(crate) fn add_rule(&mut self, site: &Site, rule: &model::Rule) -> Option<TargetIndex> {
        let target = match rule.log.as_ref()? {
            LogTarget::File(template) => LogTarget::File(log_paths::fill_for_site(template, site)),
            target => target.clone(),
        };
        self.targets.rules_say = true;
        Some(self.place(target).unwrap_or(TargetIndex::NOWHERE))
    }

    /// Notes a site's own error log.
    pub(crate) fn add_error_log(&mut self, site: &Site) {
        if let Some(template) = &site.error_log {
            let target = LogTarget::File(log_paths::fill_for_site(template, site));
            let errors = &mut self.targets.errors;
            errors.insert(site.name().into(), Arc::new(target));
        }
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
