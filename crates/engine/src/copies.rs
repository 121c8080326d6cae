//! Copies of the parts of a model that its sites share.
//!
//! The idea: a generation keeps nothing of the model it is made of, for what it kept would hold
//! on to the memory around it; what sites had in common they have in common again. Sites of one
//! kind follow each other, so the last copy is nearly always the one that is asked for.

use std::sync::Arc;

use config::model::{Compress, Files, SiteHtaccess, TryEntry};
use pattern::Expressions;

use crate::costs::Costs;
use crate::guarded::Guarded;
use crate::permits::classes::TenantClasses;
use crate::scripts::plan::{Builder as ScriptsBuilder, Level as ScriptsLevel};

/// The last copies made.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) index: Last<Vec<String>>,
    pub(crate) resolve: Last<Vec<TryEntry>>,
    pub(crate) files: Last<Files>,
    pub(crate) htaccess: Last<SiteHtaccess>,
    pub(crate) compress: Last<Compress>,
    pub(crate) guarded: Guarded,
    /// The regular expressions compiled so far.
    pub(crate) expressions: Expressions,
    /// What files cost, which is copied nowhere: there is one for all generations.
    pub(crate) costs: Arc<Costs>,
    pub(crate) scripts: ScriptsBuilder,
    /// Of the tenants, by their index.
    pub(crate) of_tenants: Vec<Option<Arc<ScriptsLevel>>>,
    /// The weights of the tenants, likewise.
    pub(crate) weights: Vec<u32>,
    /// Their classes of requests, likewise.
    pub(crate) classes: Vec<TenantClasses>,
    /// Whether there are scripts that every request meets.
    pub(crate) has_process_scripts: bool,
    /// The numbers that the next site and the next mount have (`tree`).
    pub(crate) sites: u32,
    pub(crate) mounts: u32,
}

impl Copies {
    /// What conditions are compiled with.
    pub(crate) fn of_conditions(&self) -> (&Arc<Costs>, &Expressions) {
        (&self.costs, &self.expressions)
    }

    /// The weight of a tenant.
    pub(crate) fn weight(&self, index: Option<usize>) -> u32 {
        let weight = index.and_then(|index| self.weights.get(index));
        weight.copied().unwrap_or(1)
    }

    /// The classes of a tenant's requests.
    pub(crate) fn classes(&self, index: Option<usize>) -> TenantClasses {
        let classes = index.and_then(|index| self.classes.get(index));
        classes.cloned().unwrap_or_default()
    }

    /// The scripts of a tenant.
    pub(crate) fn tenant_scripts(&self, index: Option<usize>) -> Option<Arc<ScriptsLevel>> {
        self.of_tenants.get(index?)?.clone()
    }
}

/// A shared value and its copy.
#[derive(Debug)]
pub(crate) struct Last<T>(Option<(Arc<T>, Arc<T>)>);

impl<T: Clone> Last<T> {
    /// The copy of `original`.
    pub(crate) fn of(&mut self, original: &Arc<T>) -> Arc<T> {
        match &self.0 {
            Some((last, copy)) if Arc::ptr_eq(last, original) => Arc::clone(copy),
            _ => {
                let copy = Arc::new(T::clone(original));
                self.0 = Some((Arc::clone(original), Arc::clone(&copy)));
                copy
            }
        }
    }
}

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self(None)
    }
}
