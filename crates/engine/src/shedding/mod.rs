//! Shedding: the door at which requests are sent away while there is too much to do.
//!
//! A request comes to it when its site and path are known and nothing was done for it. While all
//! rules are green that is one look at a number all workers share. What is decided there was made
//! up ten times a second by the thread that reads the sensors ([`stepping`]): whether a rule is
//! active, and with which share of its requests each tenant is let in. A request only looks.
//!
//! Never shed: a request that a script makes inside of another, one for `metrics`, health checks
//! ([`Rule::is_health_check`](crate::site::Rule)) and one for the very place a rule sends others to. The control socket is
//! not served by workers and has no door.

mod remembered;
mod reply;
pub mod rows;
mod rule;
mod standing;
mod stepping;
mod target;
mod tenants;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use config::model::{Model, ShedScope};
use limits::shed;

use crate::error::Result;
use crate::exchange::{Exchange, Request};
use crate::programs::groups::Owner;
use crate::site::Site;
use crate::worker::Worker;
pub use remembered::{AllRemembered, Remembered, told};
pub(crate) use reply::{Note, answer};
use rule::Rule;
pub use stepping::step;
pub(crate) use tenants::Stay;
use tenants::{Sheet, Tenant, Tenants};

/// The rules of a generation that shed, and whom.
#[derive(Debug)]
pub struct Shedding {
    rules: Box<[Rule]>,
    tenants: Tenants,
    /// A bit for each rule that is not green, or not yet lets everybody in again.
    active: AtomicU16,
    /// Whether a rule asks who is above its share.
    measures: bool,
    /// When tenants were measured last. Written by the thread that steps.
    measured_ms: AtomicU64,
}

impl Shedding {
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
        let shedding = Self {
            active: AtomicU16::new(active(&rules)),
            tenants: Tenants::compile(model, groups, before.map(|before| &before.tenants)),
            measures: model
                .shed
                .iter()
                .any(|rule| rule.scope == ShedScope::OverShare),
            measured_ms: AtomicU64::new(0),
            rules,
        };
        Ok(Some(shedding))
    }

    fn pass(&self, worker: &Worker, exchange: &mut Exchange) -> Result<()> {
        let active = self.active.load(Relaxed);
        if active == 0 && !self.measures {
            return Ok(());
        }
        let tenant = self.tenants.of_site(exchange.route.site_index);
        let sheet = tenant.and_then(|it| it.load.sheet(worker.index, worker.workers()));
        let (Some(tenant), Some(sheet)) = (tenant, sheet) else {
            return Ok(());
        };
        if active != 0
            && let Some((rule, share)) = self.judge(active, tenant, sheet, exchange)
        {
            sheet.count_shed();
            rule.standing.count_shed();
            return Err(reply::refuse(worker, exchange, rule, (tenant, share)));
        }
        if self.measures {
            exchange.stay = Some(Stay::begin(sheet, exchange.request.received));
        }
        Ok(())
    }

    /// The rule that sheds the request, if any, and the share its tenant is let in with. Notes what
    /// the request is to do without.
    fn judge(
        &self,
        active: u16,
        tenant: &Tenant,
        sheet: &Sheet,
        exchange: &mut Exchange,
    ) -> Option<(&Rule, u16)> {
        let mut found = None;
        for (index, rule) in self.rules.iter().enumerate() {
            let Exchange { request, route, .. } = &mut *exchange;
            if active & (1 << index) == 0 || !rule.conditions.hold(request, None) {
                continue;
            }
            route.skips_optional |= rule.skips_optional();
            let share = tenant.share(index, rule);
            let is_shed = found.is_none()
                && !sheet.lets_in(index, share)
                && !rule.leads_to(request)
                && !route
                    .site()
                    .is_some_and(|site| is_for_health(site, request));
            if is_shed {
                found = Some((rule, share));
            }
        }
        found
    }
}

/// Lets a request pass, or not. One that passes stays from now on, where a rule asks who is above
/// its share.
///
/// # Errors
/// It is shed.
pub fn pass(worker: &Worker, exchange: &mut Exchange) -> Result<()> {
    let serving = match &exchange.route.serving {
        Some(serving) if serving.generation.shedding.is_some() => Rc::clone(serving),
        _ => return Ok(()),
    };
    match &serving.generation.shedding {
        Some(shedding) if !exchange.is_inside() => shedding.pass(worker, exchange),
        _ => Ok(()),
    }
}

/// Whether the rule that would answer is there for whoever watches over this machine. What of it
/// depends on files or maps is taken not to hold.
fn is_for_health(site: &Site, request: &Request) -> bool {
    let mut deciding = site.rules.iter().filter(|rule| rule.handler.is_some());
    let deciding = deciding.find(|rule| rule.conditions.hold(request, None));
    deciding.is_some_and(|rule| rule.is_health_check)
}

/// The bits of the rules that have something to say.
fn active(rules: &[Rule]) -> u16 {
    let bits = rules.iter().enumerate().map(|(index, rule)| {
        let is_active = !rule.standing.admits_all();
        u16::from(is_active) << index
    });
    bits.fold(0, |sum, bit| sum | bit)
}

/// The share of nobody.
const NOBODY: u16 = 0;
/// The share of somebody who is let in whole.
const WHOLE: u16 = shed::WHOLE;
