//! A tenant's classes of requests: which a request is of, and what became of those that had to wait.
//!
//! The idea: the ledger shares a tenant's turns among numbers with weights; which number a request has
//! is found here, once, where its tenant has classes. What is counted outlives the generation, as
//! long as tenant and class are called the same.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use config::model;
use limits::Class;

use crate::conditions::Conditions;
use crate::costs::Costs;
use crate::error::{Error, Kind, Result};
use crate::exchange::request::Request;
use crate::maps::answers::Answers;
use crate::resolve::resolved::Resolved;

/// A class, ready to match.
#[derive(Debug)]
pub(crate) struct TenantClass {
    /// Its name in records and figures.
    pub(crate) name: Arc<str>,
    /// As the ledger knows it.
    pub(super) class: Class,
    pub(super) conditions: Conditions,
    /// What is counted of it.
    pub(crate) stats: Arc<ClassStats>,
}

/// What became of a class's requests that could not go on at once.
#[derive(Debug, Default)]
pub(crate) struct ClassStats {
    /// Those that waited.
    pub(crate) waited: AtomicU64,
    /// How long, all together, in microseconds.
    pub(crate) waited_us: AtomicU64,
    /// Those that limits refused, after a wait or at once.
    pub(crate) refused: AtomicU64,
}

/// The classes of a tenant; most have none.
pub(crate) type TenantClasses = Arc<[Arc<TenantClass>]>;

/// Compiles a tenant's classes; those there were `before` go on counting.
///
/// # Errors
/// When a pattern's compiled form is too large.
pub(crate) fn compile(
    tenant: &model::Tenant,
    before: Option<&TenantClasses>,
    costs: &Arc<Costs>,
) -> Result<TenantClasses> {
    let classes = (1..).zip(&*tenant.classes);
    let classes = classes.map(|(number, class)| {
        let whose = format!("{} of tenant {}", class.name, tenant.name);
        let known = (costs, &Default::default());
        let conditions = Conditions::compile(&class.conditions, &whose, known);
        let conditions = conditions.map_err(|error| {
            let detail = format!("{whose}: {error}");
            Error::new(Kind::Internal, "pattern_too_large", detail)
        })?;
        let known = before.into_iter().flat_map(|before| before.iter());
        let known = known.into_iter().find(|known| *known.name == *class.name);
        Ok(Arc::new(TenantClass {
            name: class.name.as_str().into(),
            class: Class {
                number,
                weight: class.weight,
            },
            conditions,
            stats: known.map_or_else(Arc::default, |known| Arc::clone(&known.stats)),
        }))
    });
    classes.collect()
}

/// The class of a request: the first that it matches, once maps were asked. One whose map is not
/// asked, as who asks cannot wait, is not its.
pub(super) fn of(
    classes: &TenantClasses,
    request: &Request,
    file: Option<&Resolved>,
    answers: &Answers,
) -> Option<Arc<TenantClass>> {
    let mut classes = classes.iter();
    let is_its =
        |class: &&Arc<TenantClass>| class.conditions.judge(request, file, answers) == Some(true);
    classes.find(is_its).cloned()
}

impl ClassStats {
    pub(super) fn note_wait(&self, waited_us: u64) {
        self.waited.fetch_add(1, Relaxed);
        self.waited_us.fetch_add(waited_us, Relaxed);
    }

    pub(super) fn note_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Waits, their sum in microseconds, and refusals.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.waited, &self.waited_us, &self.refused].map(|counter| counter.load(Relaxed))
    }
}
