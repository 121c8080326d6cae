//! What a request asks of the ledger: the limits it meets, and its key at each.
//!
//! Most specific first: the limits of the rules that matched, the last one's before the others',
//! then those of the site, the tenant, the upstream and the process; on each level those whose key
//! is found in the request before those with one key. Nothing is allocated here once a worker's
//! scratch has its size.
//!
//! Keys are made so that a client gains nothing by how it asks: the file is the resolved one, the
//! path the canonical one, the client the one trusted proxies name (an IPv6 one by its /64), of
//! several fields or cookies of a name the first counts, and who sends none counts as those who
//! send an empty one: nobody escapes a limit by leaving something out.

use std::net::{IpAddr, Ipv6Addr};

use config::model::Handler;
use limits::{Ask, Class, LimitId, WANTS_MAX, Want};
use wire::FieldId;

use super::compiled::Limits;
use super::hours::Hours;
use super::level::Level;
use super::limit::{Key, Limit, Part};
use super::prepared;
use super::scratch::{Found, Scratch};
use crate::address;
use crate::conditions::{Conditions, cookies};
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::exchange::route::Route;
use crate::maps::answers::Answers;
use crate::resolve::resolved::Resolved;
use crate::stage::{self, Chosen};
use crate::template::Captured;

/// Limits that most requests have no more of.
const FEW: usize = 4;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Whether the request comes too fast.
    Rates,
    /// The same of limits that count by the upstream, once a script has named it.
    RatesOfUpstream,
    /// Whether there are too many at once.
    Permits,
    /// The same of passwords being compared.
    Password,
}

/// What a limit may look at.
pub(super) struct Facts<'a> {
    pub(super) request: &'a Request,
    pub(super) file: Option<&'a Resolved>,
    pub(super) unix_s: u64,
    chosen: Chosen<'a>,
    limits: &'a Limits,
    route: &'a Route,
}

/// Puts the question of a phase; `None` where no limit has anything to say.
pub(super) fn ask<T>(
    chosen: Chosen<'_>,
    exchange: &Exchange,
    phase: Phase,
    put: impl FnOnce(&Ask<'_>) -> T,
) -> Option<T> {
    let (site, limits) = (chosen.site, &chosen.serving.generation.limits);
    let defined = limits.defined()?;
    let ask = Ask {
        worker: chosen.worker.index,
        tenant: match site.row.as_ref().and_then(|row| row.lease.as_ref()) {
            None => *defined.tenants.get(site.tenant as usize)?,
            Some(lease) => lease.tenant(),
        },
        class: exchange
            .record
            .class
            .as_ref()
            .map_or(Class::NONE, |it| it.class),
        client: exchange.request.client,
        wants: &[],
    };
    match prepared::wants(chosen, &exchange.route, defined, phase) {
        Some([]) => None,
        Some(wants) => Some(put(&Ask { wants, ..ask })),
        None => ask_for_its_own(chosen, exchange, phase, &ask, put),
    }
}

/// Asks what only this request asks. Apart, as most are asked what others were.
#[inline(never)]
fn ask_for_its_own<T>(
    chosen: Chosen<'_>,
    exchange: &Exchange,
    phase: Phase,
    ask: &Ask<'_>,
    put: impl FnOnce(&Ask<'_>) -> T,
) -> Option<T> {
    let facts = Facts::of(chosen, exchange);
    let mut scratch = chosen.worker.wants.borrow_mut();
    scratch.fill(&facts, &facts.limits.defined()?.limits, phase);
    let Scratch { found, keys } = &*scratch;
    let first = found.first()?.want(keys);
    // Hardly any meets more than a few, and those need not have room for all others prepared.
    let (mut few, mut many);
    let wants: &mut [Want<'_>] = match found.len() {
        ..=FEW => {
            few = [first; FEW];
            &mut few
        }
        _ => {
            many = [first; WANTS_MAX];
            &mut many
        }
    };
    for (want, found) in wants.iter_mut().zip(found) {
        *want = found.want(keys);
    }
    let wants = wants.get(..found.len()).unwrap_or_default();
    Some(put(&Ask { wants, ..*ask }))
}

/// The limit of this id, among those the request meets.
pub(super) fn limit<'a>(chosen: Chosen<'a>, route: &Route, id: LimitId) -> Option<&'a Limit> {
    let limits = &chosen.serving.generation.limits;
    let own = levels(chosen, route).chain(&*limits.passwords);
    own.into_iter()
        .find(|limit| limits.id(limit.index()) == Some(id))
}

/// The ids of limits the request meets whose permits a tunnel gives back.
pub(super) fn not_for_tunnels<'a>(
    chosen: Chosen<'a>,
    route: &Route,
) -> impl Iterator<Item = LimitId> {
    let limits = &chosen.serving.generation.limits;
    levels(chosen, route)
        .filter(|limit| !limit.keeps_tunnels)
        .filter_map(|limit| limits.id(limit.index()))
}

/// The limits a request may meet, innermost first.
pub(super) fn levels<'a>(chosen: Chosen<'a>, route: &Route) -> impl Iterator<Item = &'a Limit> {
    let limits = &chosen.serving.generation.limits;
    all_levels(chosen, route).flat_map(|level| limits.of_level(level))
}

/// The levels whose limits a request may meet, innermost first.
fn all_levels<'a>(chosen: Chosen<'a>, route: &Route) -> impl Iterator<Item = stage::Level<'a>> {
    let led_to = chosen.counting(route).map(stage::Level::Rule);
    led_to.chain(chosen.levels(route))
}

impl Limits {
    /// The limits of a level; of the upstreams, where any has some.
    pub(super) fn of_level<'a>(&'a self, level: stage::Level<'a>) -> &'a [Limit] {
        let one_of = |levels: &'a [Level], index: usize| levels.get(index).map(|level| &**level);
        let limits = match level {
            stage::Level::Rule(rule) => Some(&*rule.limits),
            stage::Level::Site(site) => Some(&*site.limits),
            stage::Level::Tenant(site) => match &site.row {
                None => one_of(&self.tenants, site.tenant as usize),
                Some(row) => row.plan.and_then(|plan| one_of(&self.plans, plan as usize)),
            },
            stage::Level::Upstream(index) => one_of(&self.upstreams, index),
            stage::Level::Groups(site) => Some(&*site.throttled),
            stage::Level::Programs => Some(&*self.programs),
            stage::Level::Process => Some(&*self.process),
        };
        limits.unwrap_or_default()
    }
}

impl<'a> Facts<'a> {
    fn of(chosen: Chosen<'a>, exchange: &'a Exchange) -> Self {
        Self {
            request: &exchange.request,
            file: exchange.route.file.as_deref(),
            unix_s: chosen.worker.clock.unix_s(),
            limits: &chosen.serving.generation.limits,
            route: &exchange.route,
            chosen,
        }
    }

    /// What maps have answered.
    pub(super) fn answers(&self) -> &Answers {
        &self.route.answers
    }

    /// Whether a script is still to name the upstream.
    fn awaits_upstream(&self) -> bool {
        let is_named = self.route.upstream.is_some();
        match self.chosen.handler {
            Handler::Proxy(proxy) => {
                !is_named && (proxy.script().is_some() || proxy.row().is_some())
            }
            _ => false,
        }
    }

    /// Appends the value of a part of a key of a limit, whose rule has found this in the path.
    fn push(&self, part: &Part, captured: Option<&Captured>, out: &mut Vec<u8>) {
        let head = &self.request.head;
        match part {
            Part::Tenant => {
                out.extend_from_slice(self.chosen.site.tenant_name.as_bytes());
            }
            Part::Site => out.extend_from_slice(self.chosen.site.name.as_bytes()),
            Part::Rule => {
                let rule = self.chosen.rules(self.route).next_back();
                out.extend_from_slice(rule.map_or(&b""[..], |rule| rule.name.as_bytes()));
            }
            Part::Upstream => {
                let name = self.chosen.upstream_name(self.route).unwrap_or_default();
                out.extend_from_slice(name.as_bytes());
            }
            Part::File => {
                out.extend_from_slice(self.file.map_or(head.path(), Resolved::name));
            }
            Part::Path => out.extend_from_slice(head.path()),
            Part::Client => push_client(self.request.client, out),
            Part::Network => push_network(self.request.client, out),
            Part::Header(name) => {
                out.extend_from_slice(head.fields.get_named(name).unwrap_or_default());
            }
            Part::Cookie(name) => {
                let lines = head.fields.get_all(FieldId::Cookie);
                out.extend_from_slice(cookies(lines, name).next().unwrap_or_default());
            }
            Part::Capture(group) => {
                out.extend_from_slice(captured.map_or(&b""[..], |it| it.get(*group)));
            }
        }
    }
}

impl Scratch {
    /// Finds the limits that are asked in this phase, level by level.
    fn fill(&mut self, facts: &Facts<'_>, ids: &[LimitId], phase: Phase) {
        self.found.clear();
        self.keys.clear();
        let has_counted = |limit: &Limit| {
            let id = ids.get(limit.index());
            id.is_some_and(|id| facts.route.counted.contains(id))
        };
        let asks = |limit: &Limit| match phase {
            Phase::Rates if has_counted(limit) => false,
            Phase::Rates => limit.has_rate && !(limit.needs_upstream && facts.awaits_upstream()),
            Phase::RatesOfUpstream => limit.has_rate && limit.needs_upstream,
            Phase::Permits | Phase::Password => limit.has_permits,
        };
        if phase == Phase::Password {
            return self.add((&facts.limits.passwords, None), facts, ids, asks);
        }
        all_levels(facts.chosen, facts.route).for_each(|level| {
            let limits = facts.limits.of_level(level);
            if !limits.is_empty() {
                let captured = match level {
                    stage::Level::Rule(rule) => facts.route.captured(rule.index),
                    _ => None,
                };
                self.add((limits, captured), facts, ids, asks);
            }
        });
    }

    fn add(
        &mut self,
        (level, captured): (&[Limit], Option<&Captured>),
        facts: &Facts<'_>,
        ids: &[LimitId],
        asks: impl Fn(&Limit) -> bool,
    ) {
        for limit in level {
            if !asks(limit) || !counts(limit, facts) || self.found.len() == WANTS_MAX {
                continue;
            }
            let Some(id) = ids.get(limit.index()) else {
                continue;
            };
            let (from, until) = match &limit.key {
                Key::Fixed => Found::NO_KEY,
                Key::Parts(parts) => self.push_key(parts, captured, facts),
            };
            self.found.push(Found {
                id: *id,
                from,
                until,
            });
        }
    }

    /// Several parts are joined by a space, which none of them can hold then.
    fn push_key(
        &mut self,
        parts: &[Part],
        captured: Option<&Captured>,
        facts: &Facts<'_>,
    ) -> (u32, u32) {
        let end = |keys: &Vec<u8>| u32::try_from(keys.len()).unwrap_or(u32::MAX);
        let from = end(&self.keys);
        match parts {
            [only] => facts.push(only, captured, &mut self.keys),
            several => {
                let mut value = Vec::new();
                for (at, part) in several.iter().enumerate() {
                    if at > 0 {
                        self.keys.push(b' ');
                    }
                    value.clear();
                    facts.push(part, captured, &mut value);
                    push_escaped(&value, &mut self.keys);
                }
            }
        }
        (from, end(&self.keys))
    }
}

/// Whether it counts this request, at this second since 1970.
fn counts(limit: &Limit, facts: &Facts<'_>) -> bool {
    let now = |hours: &Hours| hours.hold(facts.unix_s);
    // What maps must know for it was asked before.
    let holds = |conditions: &Conditions| {
        let judged = conditions.judge(facts.request, facts.file, facts.answers());
        // Of whom it cannot be told is counted.
        judged == Some(true) || facts.request.gave_up.borrow().is_some()
    };
    limit.hours.as_deref().is_none_or(now) && limit.conditions.as_deref().is_none_or(holds)
}

/// Whoever has an IPv6 address has all of its /64.
pub(super) fn push_client(client: IpAddr, out: &mut Vec<u8>) {
    match client.to_canonical() {
        IpAddr::V4(_) => address::push(client, out),
        IpAddr::V6(v6) => {
            let network = Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64);
            address::push(network.into(), out);
            out.extend_from_slice(b"/64");
        }
    }
}

fn push_network(client: IpAddr, out: &mut Vec<u8>) {
    let network = address::network(client);
    address::push(network, out);
    out.extend_from_slice(match network {
        IpAddr::V4(_) => b"/24",
        IpAddr::V6(_) => b"/56",
    });
}

pub(super) fn push_escaped(value: &[u8], out: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b' ' => out.extend_from_slice(b"%20"),
            b'%' => out.extend_from_slice(b"%25"),
            plain => out.push(*plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_its_address_or_its_network() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ] {
            let mut out = Vec::new();
            push_client(address.parse().expect(address), &mut out);
            assert_eq!(out, expected.as_bytes());
        }
    }

    #[test]
    fn no_part_of_a_joined_key_can_look_like_two() {
        let joined = |parts: [&[u8]; 2]| {
            let mut out = Vec::new();
            push_escaped(parts[0], &mut out);
            out.push(b' ');
            push_escaped(parts[1], &mut out);
            out
        };
        assert_ne!(joined([b"a b", b"c"]), joined([b"a", b"b c"]));
        assert_ne!(joined([b"a%20b", b"c"]), joined([b"a b", b"c"]));
    }
}
