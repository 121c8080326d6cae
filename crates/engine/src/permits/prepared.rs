//! What is asked for most requests, made once instead of for each.
//!
//! Where every limit a request meets has one key and is met whatever the request looks like, the
//! question is the same for all requests that match the same site and the same rule with limits.

use limits::{Defined, WANTS_MAX, Want};

use super::level::{Level, Prepared};
use super::limit::Limit;
use super::wants::Phase;
use crate::exchange::route::Route;
use crate::site::Site;
use crate::stage::{self, Chosen};

/// What a request asks, where that was known before it came: it may be nothing.
pub(super) fn wants<'a>(
    chosen: Chosen<'a>,
    route: &Route,
    defined: &Defined,
    phase: Phase,
) -> Option<&'a [Want<'static>]> {
    let (site, limits) = (chosen.site, &chosen.serving.generation.limits);
    let is_own = match phase {
        Phase::Rates | Phase::RatesOfUpstream => !route.counted.is_empty(),
        Phase::Permits => {
            (!limits.programs.is_empty() && chosen.runs_program()) || chosen.is_throttled()
        }
        Phase::Password => true,
    };
    let has_plan = site.row.is_some() && limits.any_of_plans();
    if is_own || has_plan || !route.counting().is_empty() {
        return None;
    }
    let innermost = innermost(site, route)?;
    if !limits.upstreams.is_empty()
        && let Some(upstream) = chosen.upstream_index(route)
        && limits
            .upstreams
            .get(upstream)
            .is_some_and(|it| !it.is_empty())
    {
        return None;
    }
    let prepared = innermost.prepared.get_or_init(|| {
        // The upstream has no limits, and of the rules only the innermost has any. Places of
        // programs, which have no rates, are for those who ask for them by themselves.
        let levels = chosen.levels(route);
        let levels =
            levels.filter(|it| !matches!(it, stage::Level::Groups(_) | stage::Level::Programs));
        let levels = levels.map(|level| limits.of_level(level));
        Prepared::of(levels.collect::<Vec<_>>().as_slice(), defined)
    });
    prepared.as_deref().map(|prepared| match phase {
        Phase::Rates => &*prepared.rates,
        // One by the upstream is not the same for all requests.
        Phase::RatesOfUpstream | Phase::Password => &[],
        Phase::Permits => &*prepared.permits,
    })
}

/// The limits of the only rule that has any of those that matched, or the site's; `None` where
/// several rules have some.
fn innermost<'a>(site: &'a Site, route: &Route) -> Option<&'a Level> {
    let mut innermost = None;
    for rule in route.matched() {
        if let Some(rule) = site.rules.get(*rule)
            && !rule.limits.is_empty()
            && innermost.replace(&rule.limits).is_some()
        {
            return None;
        }
    }
    Some(innermost.unwrap_or(&site.limits))
}

impl Prepared {
    /// `None` where a limit depends on the request, or on the time.
    fn of(levels: &[&[Limit]], defined: &Defined) -> Option<Box<Self>> {
        let all = || levels.iter().copied().flatten();
        if !all().all(Limit::is_plain) {
            return None;
        }
        let wants = |is_asked: fn(&Limit) -> bool| {
            let asked = all().filter(|limit| is_asked(limit));
            let ids = asked.filter_map(|limit| defined.limits.get(limit.index()));
            let wants = ids.map(|id| Want {
                limit: *id,
                key: None,
            });
            wants.take(WANTS_MAX).collect()
        };
        Some(Box::new(Self {
            rates: wants(|limit| limit.has_rate),
            permits: wants(|limit| limit.has_permits),
        }))
    }
}
