//! Shedding: requests are sent away while there is too much to do.
//!
//! A request comes here when its site and path are known and nothing was done for it. While all
//! rules are green that is one look at a number all workers share. What is decided there was made
//! up ten times a second by the thread that reads the sensors ([`stepping`]): whether a rule is
//! active, and with which share of its requests each tenant is let in. A request only looks.
//!
//! Of several rules the strictest decides alone: were each to take its part of what the others
//! leave, next to nothing would be left. A rule in shadow is judged by itself, before them, and
//! changes nothing of what they see: a request that it would shed counts as one that came.
//!
//! Never shed: a request that a script makes inside of another, one for `metrics`, and health checks
//! ([`Rule::is_health_check`](crate::site::Rule)). One for a place that a rule sends others to is
//! never sent to another: two rules would send it round for ever. The control socket is not served
//! by workers and never sheds.

pub(crate) mod compiled;
pub(crate) mod note;
pub(crate) mod remembered;
pub(crate) mod reply;
pub(crate) mod rows;
mod rule;
pub(crate) mod standing;
mod stepping;
mod target;
pub(crate) mod tenants;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

use crate::error::Result;
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::maps;
use crate::maps::answers::Answers;
use crate::rewrite::compiled::may_rewrite;
use crate::site::Site;
use crate::stage::Routed;
pub(crate) use compiled::Shedding;
pub(crate) use remembered::told;
use rule::Rule;
pub(crate) use stepping::{let_go, step};
pub use target::unescaped;
pub(crate) use tenants::Stay;
use tenants::{Counters, Tenant, WHOLE};

impl Shedding {
    fn pass(&self, routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
        let active = self.active.load(Relaxed);
        if active == 0 && !self.measures {
            return Ok(());
        }
        let worker = routed.worker;
        let tenant = self.tenants.of_site(routed.site_index);
        let counters = tenant.and_then(|it| it.load.counters(worker.index, worker.workers));
        let (Some(tenant), Some(counters)) = (tenant, counters) else {
            return Ok(());
        };
        if active & self.shadows != 0 {
            self.tell(active & self.shadows, (tenant, counters), routed, exchange);
        }
        let active = active & !self.shadows;
        if active != 0
            && let Some((rule, share)) = self.judge(active, (tenant, counters), routed, exchange)
        {
            counters.count_shed();
            rule.standing.count_shed();
            return Err(reply::refuse(routed, exchange, rule, (tenant, share)));
        }
        if self.measures {
            if let Some(cpu_us) = exchange.request.own_handshake_us() {
                counters.charge_handshake(cpu_us);
            }
            exchange.stay = Some(Stay::begin(counters, exchange.request.received));
        }
        Ok(())
    }

    /// The rule that sheds the request, if any, and the share its tenant is let in with. Notes what
    /// the request is to do without.
    fn judge(
        &self,
        active: u16,
        (tenant, counters): (&Tenant, &Counters),
        routed: Routed<'_>,
        exchange: &mut Exchange,
    ) -> Option<(&Rule, u16)> {
        let mut strictest: Option<(usize, &Rule, u16)> = None;
        for (index, rule) in self.of(active) {
            if !is_meant(rule, routed, exchange) {
                continue;
            }
            exchange.route.skips_optional |= rule.skips_optional();
            let share = tenant.share(index, rule);
            let least = strictest.map_or(WHOLE, |(_, _, share)| share);
            if share < least && !self.is_there_already(rule, &exchange.request) {
                strictest = Some((index, rule, share));
            }
        }
        let (index, rule, share) = strictest?;
        let is_let_in = counters.lets_in(index, share);
        let is_shed = !is_let_in && !is_for_health(routed.site, &exchange.request);
        is_shed.then_some((rule, share))
    }

    /// Counts and tells what rules in shadow would do with the request, each judged by itself. It
    /// is told under the strictest of those that would shed it.
    #[cold]
    fn tell(
        &self,
        active: u16,
        (tenant, counters): (&Tenant, &Counters),
        routed: Routed<'_>,
        exchange: &mut Exchange,
    ) {
        let mut strictest: Option<(&Rule, u16)> = None;
        for (index, rule) in self.of(active) {
            let share = tenant.share(index, rule);
            let is_let_in = share == WHOLE
                || !is_meant(rule, routed, exchange)
                || self.is_there_already(rule, &exchange.request)
                || counters.lets_in(index, share)
                || is_for_health(routed.site, &exchange.request);
            if is_let_in {
                continue;
            }
            rule.standing.count_shed();
            if strictest.is_none_or(|(_, least)| share < least) {
                strictest = Some((rule, share));
            }
        }
        if let Some((rule, share)) = strictest {
            counters.count_shadow_shed();
            reply::pass_in_shadow(routed, exchange, rule, (tenant, share));
        }
    }

    /// The rules of these bits, by their numbers.
    fn of(&self, bits: u16) -> impl Iterator<Item = (usize, &Rule)> {
        let rules = self.rules.iter().enumerate();
        rules.filter(move |(index, _)| bits & (1 << index) != 0)
    }

    /// Whether the rule would send the request elsewhere though it asks for a place where requests
    /// are sent: by this rule or by another in force, which would send it back.
    fn is_there_already(&self, rule: &Rule, request: &Request) -> bool {
        let is_in_force = |any: &Rule| !any.is_in_shadow() || std::ptr::eq(any, rule);
        let mut others = self.rules.iter().filter(|any| is_in_force(any));
        rule.redirects() && others.any(|any| any.leads_to(request))
    }
}

/// Whether all that the rule asks of a request holds.
fn is_meant(rule: &Rule, routed: Routed<'_>, exchange: &mut Exchange) -> bool {
    let Exchange { request, route, .. } = exchange;
    let maps = &routed.serving.generation.maps;
    maps::hold_at_once(&rule.conditions, request, &mut route.answers, maps)
}

/// Lets a request pass, or not. One that passes stays from now on, where a rule asks who is above
/// its share.
///
/// # Errors
/// It is shed.
pub(crate) fn pass(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    match &routed.serving.generation.shedding {
        Some(shedding) if !exchange.is_inside() => shedding.pass(routed, exchange),
        _ => Ok(()),
    }
}

/// Whether the rule that would answer is there for whoever watches over this machine, and the path
/// is not rewritten before. What of a rule depends on files or maps is taken not to hold, since no
/// file was looked for; but one that may rewrite the path is taken to.
fn is_for_health(site: &Site, request: &Request) -> bool {
    let path = request.head.path();
    let tree = site.tree_of(path);
    let of_tree = tree.map_or(&[][..], |tree| &*tree.rewrites);
    let may_be_another = may_rewrite(&site.rewrites, path) || may_rewrite(of_tree, path);
    // What `.htaccess` files would do is known only once they are read.
    if may_be_another || site.htaccess.is_some() {
        return false;
    }
    for rule in site.rules.iter() {
        let holds = || rule.conditions.judge(request, None, &Answers::NONE);
        if may_rewrite(&rule.rewrites, path) && (rule.needs_file || holds() != Some(false)) {
            return false;
        }
        if rule.handler.is_some() && !rule.needs_file && holds() == Some(true) {
            return rule.is_health_check;
        }
    }
    false
}
