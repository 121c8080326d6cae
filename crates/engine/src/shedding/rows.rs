//! What rules that shed have come to: for status and metrics.

use std::cmp::Reverse;

use config::model::Mode;
use control::{ShedRule, ShedTenant};

use crate::worker::Shared;

/// Collects the rules, in their order, and the tenants of which requests were shed, those with
/// most first.
pub(crate) fn collect(shared: &Shared) -> (Vec<ShedRule>, Vec<ShedTenant>) {
    let generation = shared.generation();
    let Some(shedding) = generation.as_ref().and_then(|it| it.shedding.as_ref()) else {
        return Default::default();
    };
    let rules = shedding.rules.iter().map(|rule| {
        let standing = &rule.standing;
        let (enforced, shadow_shed) = match standing.mode {
            Mode::Enforce => (standing.shed(), 0),
            Mode::Shadow => (0, standing.shed()),
        };
        ShedRule {
            rule: standing.name.to_string(),
            sensor: standing.sensor.name(),
            enter: standing.enter,
            leave: standing.leave,
            state: standing.state().word().into(),
            since_ms: standing.since().as_millis(),
            admitted_share: standing.share(),
            mode: match standing.mode {
                Mode::Enforce => "enforce".into(),
                Mode::Shadow => "shadow".into(),
            },
            shed: enforced,
            shadow_shed,
            value: standing.value(),
        }
    });
    let tenants = shedding.tenants.iter().map(|tenant| ShedTenant {
        tenant: tenant.load.name.to_string(),
        shed: tenant.load.shed(),
        shadow_shed: tenant.load.shadow_shed(),
    });
    let mut tenants: Vec<_> = tenants.filter(|it| it.shed + it.shadow_shed > 0).collect();
    let most = |it: &ShedTenant| Reverse((it.shed, it.shadow_shed));
    tenants.sort_by(|left, right| (most(left), &left.tenant).cmp(&(most(right), &right.tenant)));
    (rules.collect(), tenants)
}
