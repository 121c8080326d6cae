//! Limits that `caps` put up: places for programs, and turns of passwords to be compared.
//!
//! They are limits like those an operator writes, at the same gates, with the same queues and the
//! same words for a refusal; only nobody has written them. Who is next is said by what tenants, and
//! inside them networks, have used so far. Programs may run for long, so turns alone would not do:
//! part of the places is left to others by whoever takes as many as he can. And groups with a quota of
//! processors have a limit that follows their throttling ([`super::throttled`]).

use std::collections::BTreeSet;

use config::model::{
    Cgroup, Concurrent, Handler, Limit, LimitKey, LimitOn, Mode, Model, Rule, Settings,
};

use crate::helper::PASSWORDS_MAX;

/// How long a request waits for a place for its program.
const PROGRAM_WAIT_MS: u64 = 5_000;
/// How long a password waits to be compared.
const PASSWORD_WAIT_MS: u64 = 10_000;

/// Requests at once of programs in a group that is not throttled: there is no bound, and none that
/// is configured is as high.
pub(super) const UNBOUNDED: u32 = u32::MAX;
/// Requests that may wait while it is, and how long, where nobody says otherwise.
const THROTTLED_QUEUE: u32 = 200;
const THROTTLED_WAIT_MS: u64 = 30_000;

/// Whether a rule starts programs.
pub(super) fn runs_programs(model: &Model) -> bool {
    let starts = |rule: &Rule| matches!(rule.handler, Some(Handler::Cgi(_)));
    model.sites.iter().any(|site| site.rules.iter().any(starts))
}

/// Whether anything asks for a password.
pub(super) fn asks_passwords(model: &Model) -> bool {
    let asks = |settings: &Settings| settings.auth.is_some();
    let mut sites = model.sites.iter();
    sites.any(|site| asks(&site.settings) || site.rules.iter().any(|rule| asks(&rule.settings)))
}

/// The places for programs: all of them, a tenant's, those of a network inside a tenant, and those
/// of a network wherever it asks: tenants of one client's must not add up.
pub(super) fn programs(model: &Model) -> Vec<Limit> {
    let all = u32::try_from(model.caps.programs).unwrap_or(u32::MAX);
    let tenants: BTreeSet<&str> = model.sites.iter().map(|site| &*site.tenant).collect();
    let for_tenant = match tenants.len() {
        ..=1 => all,
        _ => all - all / 8,
    };
    let for_network = for_tenant - for_tenant / 4;
    let for_client = match all - for_tenant {
        0 => all,
        _ => all - all / 4,
    };
    let limit = |name, key: &[LimitKey], concurrent| Limit {
        queue: all,
        wait_ms: PROGRAM_WAIT_MS,
        ..limit(name, key, concurrent)
    };
    let by_network = &[LimitKey::Tenant, LimitKey::Network][..];
    let divided = [
        limit("caps.programs-network", by_network, for_network),
        limit("caps.programs-tenant", &[LimitKey::Tenant], for_tenant),
        limit("caps.programs-client", &[LimitKey::Network], for_client),
    ];
    let mut limits = vec![limit("caps.programs", &[LimitKey::Process], all)];
    // Few places are not divided.
    let is_less = |it: &Limit| it.concurrent != Some(Concurrent::Fixed(all));
    limits.extend(divided.into_iter().filter(is_less));
    limits
}

/// The turns of passwords.
pub(super) fn passwords(model: &Model) -> Vec<Limit> {
    let turns = u32::try_from(PASSWORDS_MAX * model.workers).unwrap_or(u32::MAX);
    vec![Limit {
        queue: u32::try_from(model.caps.auth_waiting).unwrap_or(u32::MAX),
        wait_ms: PASSWORD_WAIT_MS,
        ..limit("caps.auth_waiting", &[LimitKey::Process], turns)
    }]
}

/// The limit of a level whose group has a quota of processors: one waits there as at the level's own
/// limit of all its requests.
pub(super) fn throttled(level: &[Limit], key: LimitKey) -> Limit {
    let is_own = |it: &&Limit| it.key == [key.clone()] && it.queue > 0 && it.conditions.is_empty();
    let own = level.iter().find(is_own).map(Limit::in_force);
    Limit {
        queue: own.as_ref().map_or(THROTTLED_QUEUE, |it| it.queue),
        wait_ms: own.as_ref().map_or(THROTTLED_WAIT_MS, |it| it.wait_ms),
        late_ms: own.as_ref().map_or(0, |it| it.late_ms),
        // Who speaks with a program for long does not keep others from theirs.
        tunnels: false,
        ..limit("cgroup.cpu", &[key], UNBOUNDED)
    }
}

/// Whether anybody's group has a quota of processors.
pub(super) fn has_quotas(model: &Model) -> bool {
    let tenants = model.tenants.iter().map(|it| &it.cgroup);
    let mut all = tenants.chain(model.sites.iter().map(|it| &it.cgroup));
    all.any(|cgroup| quota(cgroup).is_some())
}

/// The quota of a level's group, in thousandths of a core.
pub(super) fn quota(cgroup: &Option<Box<Cgroup>>) -> Option<u32> {
    cgroup.as_ref()?.cpu_millicores
}

fn limit(name: &str, key: &[LimitKey], concurrent: u32) -> Limit {
    Limit {
        name: name.to_owned(),
        key: key.to_vec(),
        on: LimitOn::Request,
        concurrent: Some(Concurrent::Fixed(concurrent)),
        queue: 0,
        wait_ms: 0,
        late_ms: 0,
        rate: None,
        when: None,
        conditions: Vec::new(),
        mode: Mode::Enforce,
        tunnels: true,
        reserves: Vec::new(),
        fleet: None,
        status: 503,
        page: None,
        kept: None,
    }
}
