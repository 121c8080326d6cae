//! The rules of a generation that shed, made of its model.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU64};

use config::model::{Model, ShedScope};
use ipc::groups::Owner;
use limits::shed::Claim;

use super::rule::Rule;
use super::tenants::Tenants;
use crate::error::Result;

/// The rules of a generation that shed, and whom.
#[derive(Debug)]
pub(crate) struct Shedding {
    pub(super) rules: Box<[Rule]>,
    pub(super) tenants: Tenants,
    /// A bit for each rule that is not green, or not yet lets everybody in again.
    pub(super) active: AtomicU16,
    /// A bit for each rule in shadow.
    pub(super) shadows: u16,
    /// Whether a rule asks who is above its share.
    pub(super) measures: bool,
    /// When tenants were measured last. Written by the thread that steps.
    pub(super) measured_ms: AtomicU64,
    /// What they asked for then. Held by that thread for a step.
    pub(super) claims: Mutex<Vec<Claim>>,
}

impl Shedding {
    /// Whether a rule sheds now, be it but a part.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Relaxed) & !self.shadows != 0
    }

    /// Compiles the rules of a model; `None` where it has none. A rule that was there `before` and
    /// looks at the same goes on where it was; so does what is known of tenants.
    ///
    /// # Errors
    /// When a pattern's compiled form is too large.
    pub(crate) fn compile(
        model: &Model,
        groups: &[(Vec<String>, Owner)],
        before: Option<&Self>,
    ) -> Result<Option<Self>> {
        if model.shed.is_empty() {
            return Ok(None);
        }
        let known = before.map_or(&[][..], |before| &before.rules);
        let rules = model.shed.iter().map(|rule| Rule::compile(rule, known));
        let rules = rules.collect::<Result<Box<[Rule]>>>()?;
        let tenants = Tenants::compile(model, groups, before.map(|before| &before.tenants));
        let is_by_share = |rule: &Rule| rule.scope == ShedScope::OverShare;
        let measures = rules.iter().any(is_by_share);
        let claims = match measures {
            true => tenants.claims(),
            false => Vec::new(),
        };
        // A rule that stays sheds as it did, and not only from the next step on.
        let by_share = rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| is_by_share(rule));
        for (index, rule) in by_share {
            tenants.divide(index, rule.standing.share(), &claims);
        }
        Ok(Some(Self {
            active: AtomicU16::new(active(&rules)),
            shadows: bits(&rules, Rule::is_in_shadow),
            tenants,
            measures,
            measured_ms: AtomicU64::new(0),
            claims: Mutex::new(claims),
            rules,
        }))
    }
}

/// The bits of the rules that have something to say.
pub(super) fn active(rules: &[Rule]) -> u16 {
    bits(rules, |rule| !rule.standing.admits_all())
}

/// The bits of the rules that are so.
fn bits(rules: &[Rule], is_so: impl Fn(&Rule) -> bool) -> u16 {
    let rules = rules.iter().enumerate();
    rules.fold(0, |sum, (index, rule)| {
        sum | u16::from(is_so(rule)) << index
    })
}
