//! Limits of control groups with a quota of processors: how many requests their programs serve at once.
//!
//! The idea: each tenant and each site whose `cgroup` has `cpu` has a limit that lets everybody in. While
//! the kernel keeps the group from processors, the thread that reads the sensors gives it fewer permits
//! ([`limits::Throttle`]), so that requests wait here, in turns, and not in processes that stand still.
//! Who has programs in no group, and groups without a quota, have no such limit. A group whose programs
//! nobody asks for is not looked at.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use limits::{Ledger, LimitId, Steered, Throttle, ThrottleLook, Time};
use os::cgroup::{Controller, Layout, Usage};

use super::caps::UNBOUNDED;
use super::compiled::{Limits, QuotaGroup};

/// How often groups are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Groups that one look is at; the next begins with those after them.
const GROUPS_MAX: usize = 1_000;

/// How groups stand, over generations.
#[derive(Debug, Default)]
pub(super) struct Throttles(Mutex<Standings>);

#[derive(Debug, Default)]
struct Standings {
    looked: Option<Instant>,
    /// The index of the first limit that the next look is at.
    next: u32,
    /// By what their limits are called.
    by_limit: HashMap<String, Standing>,
}

#[derive(Debug)]
struct Standing {
    millicores: u32,
    throttle: Throttle,
    seen: Option<Figures>,
    /// Requests that its limit had let in.
    admitted: u64,
    /// Whether there is anything to look for.
    is_busy: bool,
}

/// What the kernel had counted.
#[derive(Debug, Clone, Copy)]
struct Figures {
    at: Instant,
    cpu_us: u64,
    throttled_us: u64,
}

impl Throttles {
    /// Looks at the groups of the limits in force, if it is time.
    pub(super) fn step(
        &self,
        ledger: &Ledger,
        (time, now): (Time, Instant),
        limits: &Limits,
        layout: &Layout,
    ) {
        let mut standings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let standings = &mut *standings;
        let is_soon = |looked| now.saturating_duration_since(looked) < LOOK;
        if limits.throttled.is_empty() || standings.looked.is_some_and(is_soon) {
            return;
        }
        standings.looked = Some(now);
        standings.keep(limits);
        standings.look(limits, GROUPS_MAX, |group, id, name, standing| {
            let since = match Figures::read(layout, group, now) {
                Some(figures) => standing.since(figures),
                // There is no such group now: nothing keeps anybody.
                None => Some((0.0, 0.0)),
            };
            let before = standing.throttle.cap();
            ledger.steer(time, id, |steered| standing.decide(since, steered));
            tell(name, before, standing.throttle.cap());
        });
    }

    /// Lets everybody in: nobody looks any more.
    pub(super) fn let_go(&self, ledger: &Ledger, time: Time, limits: &Limits) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Standings::default();
        for (_, id, _) in groups(limits, 0) {
            ledger.steer(time, id, |_| UNBOUNDED);
        }
    }
}

/// The groups, that of this limit first, and what their limits are called by the ledger and by people.
fn groups(limits: &Limits, first: u32) -> impl Iterator<Item = (&QuotaGroup, LimitId, &str)> {
    let all = &limits.throttled;
    let (before, from) = all.split_at(all.partition_point(|group| group.index < first));
    from.iter().chain(before).filter_map(|group| {
        let index = group.index as usize;
        let definition = limits.definitions().get(index)?;
        Some((group, limits.id(index)?, definition.identity.as_str()))
    })
}

/// One line when a group begins to be throttled, and one when it no longer is.
fn tell(limit: &str, before: Option<u32>, now: Option<u32>) {
    match (before, now) {
        (None, Some(concurrent)) => tracing::info!(
            limit,
            concurrent,
            "a group is kept from processors by its quota: fewer requests are let in at once"
        ),
        (Some(_), None) => tracing::info!(limit, "a group is no longer kept from processors"),
        _ => {}
    }
}

impl Standings {
    /// Forgets groups that there are no more.
    fn keep(&mut self, limits: &Limits) {
        if self.by_limit.len() > limits.throttled.len() {
            let known: HashSet<&str> = groups(limits, 0).map(|(_, _, name)| name).collect();
            self.by_limit.retain(|name, _| known.contains(&**name));
        }
    }

    /// Looks at groups in which something is or was under way, in turns where they are many.
    fn look<'a>(
        &mut self,
        limits: &'a Limits,
        groups_max: usize,
        mut look: impl FnMut(&'a QuotaGroup, LimitId, &'a str, &mut Standing),
    ) {
        let mut looked = 0;
        for (group, id, name) in groups(limits, self.next) {
            if looked == groups_max {
                self.next = group.index;
                return;
            }
            let standing = match self.by_limit.get_mut(name) {
                Some(standing) => standing,
                None => self
                    .by_limit
                    .entry(name.to_owned())
                    .or_insert(Standing::new(group)),
            };
            if standing.millicores != group.millicores {
                *standing = Standing::new(group);
            }
            let was_used = group.was_used.load(Relaxed) && group.was_used.swap(false, Relaxed);
            if was_used || standing.is_busy {
                looked += 1;
                look(group, id, name, standing);
                // Who came just now may not be among those under way yet.
                standing.is_busy |= was_used;
            }
        }
    }
}

impl Standing {
    /// One that is looked at once in any case: its limit may stand elsewhere.
    fn new(group: &QuotaGroup) -> Self {
        Self {
            millicores: group.millicores,
            throttle: Throttle::new(group.millicores.div_ceil(1_000)),
            seen: None,
            admitted: 0,
            is_busy: true,
        }
    }

    /// What a look shows, where there was one before: which share of the quota was used, and from how
    /// many processors the group was kept.
    fn since(&mut self, figures: Figures) -> Option<(f64, f64)> {
        let before = self.seen.replace(figures)?;
        let passed = figures.at.saturating_duration_since(before.at);
        let passed_us = passed.as_micros().max(1) as f64;
        let used_us = figures.cpu_us.saturating_sub(before.cpu_us) as f64;
        let kept_us = figures.throttled_us.saturating_sub(before.throttled_us) as f64;
        let quota = f64::from(self.millicores.max(1)) / 1_000.0;
        Some((used_us / passed_us / quota, kept_us / passed_us))
    }

    /// How many permits there are from now on.
    fn decide(&mut self, since: Option<(f64, f64)>, steered: Steered) -> u32 {
        let Steered {
            in_flight,
            waiting,
            admitted,
        } = steered;
        let before = std::mem::replace(&mut self.admitted, admitted);
        if let Some((used, kept_from)) = since {
            self.throttle.look(&ThrottleLook {
                used,
                kept_from,
                in_flight,
                waiting,
                let_in: admitted.saturating_sub(before),
            });
        }
        let cap = self.throttle.cap();
        self.is_busy = in_flight > 0 || waiting > 0 || cap.is_some();
        if !self.is_busy {
            self.seen = None;
        }
        cap.unwrap_or(UNBOUNDED)
    }
}

impl Figures {
    /// What the kernel has counted, where it does.
    fn read(layout: &Layout, group: &QuotaGroup, at: Instant) -> Option<Self> {
        let usage = Usage::by(Controller::Cpu, layout, &group.path);
        Some(Self {
            at,
            cpu_us: usage
                .cpu_us
                .or_else(|| Usage::cpu_us(layout, &group.path))?,
            throttled_us: usage.throttled_us?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{questions, rows};
    use super::*;
    use crate::fixture::Fixture;

    const TENANTS: &str = r#"
[tenants.a]
cgroup = { cpu = "10%" }
[tenants.b]
cgroup = { cpu = "10%" }
[tenants.c]
cgroup = { cpu = "10%" }
[[sites]]
hosts = ["a"]
tenant = "a"
root = "/srv/a"
rules = [{ handler = { cgi = true } }]
[[sites]]
hosts = ["b"]
tenant = "b"
root = "/srv/b"
rules = [{ handler = { cgi = true } }]
[[sites]]
hosts = ["c"]
tenant = "c"
root = "/srv/c"
rules = [{ handler = { cgi = true } }]
"#;

    #[test]
    fn groups_are_looked_at_in_turns_and_only_while_somebody_comes() {
        let fixture = Fixture::new(TENANTS);
        let serving = fixture.worker.serving();
        let limits = &serving.generation.limits;
        let mut standings = Standings::default();
        let mut look = || {
            let mut count = 0;
            standings.look(limits, 2, |_, _, _, standing| {
                standing.is_busy = false;
                count += 1;
            });
            count
        };
        // Each is looked at once before it is known to be idle.
        assert_eq!([look(), look(), look()], [2, 1, 0]);
        let [_, b, _] = &serving.generation.sites[..] else {
            panic!("three sites");
        };
        limits.note_use(&b.throttled);
        // And once more, as who comes may not be under way yet.
        assert_eq!([look(), look(), look()], [1, 1, 0]);
        for site in &serving.generation.sites {
            limits.note_use(&site.throttled);
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            standings.look(limits, 2, |group, _, _, standing| {
                standing.is_busy = true;
                seen.push(group.index);
            });
        }
        let [a, b, c] = [0, 1, 2].map(|at| limits.throttled[at].index);
        assert_eq!(seen, [c, a, b, c, a, b]);
    }

    #[test]
    fn there_is_no_bound_while_nothing_keeps_a_group_from_processors() {
        let fixture = Fixture::new(TENANTS);
        let rows = rows::collect(&fixture.shared);
        let row = rows
            .iter()
            .find(|it| it.limit.identity == "tenant b/cgroup.cpu");
        let row = row.expect("a limit of the group");
        let told = questions::describe(&row.limit, row.look.cap);
        assert_eq!(told, "concurrent -, queue 200, wait 30s");
        assert_eq!(questions::listed(row).permits, None);
        let told = questions::describe(&row.limit, Some(3));
        assert!(told.starts_with("concurrent - (now 3),"), "{told}");
    }
}
