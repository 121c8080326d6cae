//! Limits of control groups with a quota of processors: how many requests their programs serve at once.
//!
//! The idea: each tenant and each site whose `cgroup` has `cpu` has a limit that lets everybody in. While
//! the kernel keeps the group from processors, the thread that reads the sensors gives it fewer permits
//! ([`limits::Throttle`]), so that requests wait here, in turns, and not in processes that stand still.
//! Who has programs in no group, and groups without a quota, have no such limit.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use limits::{Ledger, LimitId, Throttle, ThrottleLook, Time};
use os::cgroup::{Controller, Layout, Usage};

use super::caps::THROTTLED_MAX;
use super::compiled::{Limits, QuotaGroup};

/// How often groups are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Groups whose files are read at one look.
const GROUPS_MAX: usize = 1_000;

/// How groups stand, over generations.
#[derive(Debug, Default)]
pub(super) struct Throttles(Mutex<Standings>);

#[derive(Debug, Default)]
struct Standings {
    looked: Option<Instant>,
    /// By what their limits are called.
    by_limit: HashMap<String, Standing>,
}

#[derive(Debug)]
struct Standing {
    millicores: u32,
    throttle: Throttle,
    seen: Option<Figures>,
    /// Whether there was anything to look for.
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
        let is_soon = |looked| now.saturating_duration_since(looked) < LOOK;
        if limits.throttled.is_empty() || standings.looked.is_some_and(is_soon) {
            return;
        }
        standings.looked = Some(now);
        standings.keep(limits);
        let mut read = 0;
        for (group, id, name) in groups(limits) {
            let standing = standings.of(group, name);
            let is_read = standing.is_busy && read < GROUPS_MAX;
            read += usize::from(is_read);
            let figures = is_read.then(|| Figures::read(layout, group, now)).flatten();
            let since = match figures {
                Some(figures) => standing.since(figures),
                // There is no such group now: nothing keeps anybody.
                None => is_read.then_some((0.0, 0.0)),
            };
            let before = standing.throttle.cap();
            ledger.steer(time, id, |in_flight, waiting| {
                standing.decide(since, in_flight, waiting)
            });
            tell(name, before, standing.throttle.cap());
        }
    }

    /// Lets everybody in: nobody looks any more.
    pub(super) fn let_go(&self, ledger: &Ledger, time: Time, limits: &Limits) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Standings::default();
        for (_, id, _) in groups(limits) {
            ledger.steer(time, id, |_, _| THROTTLED_MAX);
        }
    }
}

/// The groups, and what their limits are called by the ledger and by people.
fn groups(limits: &Limits) -> impl Iterator<Item = (&QuotaGroup, LimitId, &str)> {
    limits.throttled.iter().filter_map(|group| {
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
            let known: HashSet<&str> = groups(limits).map(|(_, _, name)| name).collect();
            self.by_limit.retain(|name, _| known.contains(&**name));
        }
    }

    fn of(&mut self, group: &QuotaGroup, name: &str) -> &mut Standing {
        let new = || Standing {
            millicores: group.millicores,
            throttle: Throttle::new(group.millicores.div_ceil(1_000)),
            seen: None,
            is_busy: false,
        };
        let standing = self.by_limit.entry(name.to_owned()).or_insert_with(new);
        if standing.millicores != group.millicores {
            *standing = new();
        }
        standing
    }
}

impl Standing {
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
    fn decide(&mut self, since: Option<(f64, f64)>, in_flight: u32, waiting: u32) -> u32 {
        if let Some((used, kept_from)) = since {
            self.throttle.look(&ThrottleLook {
                used,
                kept_from,
                in_flight,
                waiting,
            });
        }
        let cap = self.throttle.cap();
        self.is_busy = in_flight > 0 || waiting > 0 || cap.is_some();
        if !self.is_busy {
            self.seen = None;
        }
        cap.map_or(THROTTLED_MAX, |cap| cap.min(THROTTLED_MAX))
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
