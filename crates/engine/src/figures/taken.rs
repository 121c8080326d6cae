//! What tenants had taken at a moment, and what they took between two such looks.
//!
//! The idea: all that is counted adds up, but who counts comes and goes: a site, a tenant of rows with a plan,
//! a group. So each is compared with itself, and then added up by whose it is; one that is gone with what
//! it had counted at last, and a group that was made anew from nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use control::TenantNow;
use os::cgroup::Usage;

use crate::directory::tenants::{RowCounts, RowTenant};
use crate::generation::Generation;
use crate::stats::SiteStats;

/// Groups that are read for one look, and that are looked for, beside those of tenants that an alert is about: of written
/// tenants, and of those of rows.
const GROUPS_MAX: usize = 4_096;
const LOOKED_FOR_MAX: usize = 16_384;
/// Two looks are at least so far apart.
const APART_MIN_S: f64 = 0.001;

/// What all tenants had taken at a moment.
#[derive(Debug)]
pub(super) struct TenantLook {
    pub(super) at: Instant,
    /// What was asked, by where it is counted.
    asked: HashMap<usize, AskedCount>,
    /// What was used, by the group it was used in.
    used: HashMap<Box<str>, GroupUse>,
    pub(super) groups_left_out: usize,
}

/// What was asked of a tenant.
#[derive(Debug)]
struct AskedCount {
    tenant: Arc<str>,
    /// Kept, so that nobody else counts there as long as this is known.
    counter: AskedCounter,
    counts: AskedCounts,
}

/// Where it is counted what is asked of a tenant: on a site, and of rows for all with one plan.
#[derive(Debug)]
enum AskedCounter {
    Site(Arc<SiteStats>),
    Rows(Arc<RowCounts>),
}

#[derive(Debug, Clone, Copy, Default)]
struct AskedCounts {
    requests: u64,
    refused: u64,
    waiting: u64,
    handshakes: u64,
}

/// What a tenant has used in a group; nothing where there was no such group.
#[derive(Debug)]
struct GroupUse {
    tenant: Arc<str>,
    usage: Option<Usage>,
}

/// How many groups were found, and looked for.
#[derive(Debug, Default)]
struct GroupRoom {
    found: usize,
    looked_for: usize,
}

/// What a tenant has taken, and took since another look.
#[derive(Debug, Default)]
struct Taken {
    asked: AskedCounts,
    asked_more: AskedCounts,
    used: Usage,
    used_more: Usage,
}

impl TenantLook {
    /// Looks at tenants of which there is something to tell.
    pub(super) fn take(
        generation: &Generation,
        of_rows: &[Arc<RowTenant>],
        at: Instant,
    ) -> TenantLook {
        let mut look = TenantLook {
            at,
            asked: HashMap::new(),
            used: HashMap::new(),
            groups_left_out: 0,
        };
        // What is asked of the site of all rows counts for their tenants.
        let written = generation.sites.iter().filter(|site| site.rows.is_none());
        let written = written.filter(|site| site.stats.of_workers().next().is_some());
        for site in written {
            let counter = AskedCounter::Site(Arc::clone(&site.stats));
            look.add_asked(&site.tenant_name, counter);
        }
        for tenant in of_rows {
            look.add_asked(&tenant.name, AskedCounter::Rows(Arc::clone(&tenant.counts)));
        }
        // What is used in a group counts in those it is in.
        let groups = generation.groups().filter(|(path, _)| path.len() == 1);
        let mut room = GroupRoom::default();
        for (path, owner) in groups {
            let tenant = Arc::from(&*owner.tenant);
            look.add_used(generation, &mut room, (&path[..], tenant));
        }
        if !generation.row_programs.is_empty() {
            let mut room = GroupRoom::default();
            for tenant in of_rows {
                let group = (&tenant.group[..], Arc::clone(&tenant.name));
                look.add_used(generation, &mut room, group);
            }
        }
        look
    }

    fn add_asked(&mut self, tenant: &Arc<str>, counter: AskedCounter) {
        let asked = AskedCount {
            tenant: Arc::clone(tenant),
            counts: counter.counts(),
            counter,
        };
        self.asked.insert(asked.counter.place(), asked);
    }

    /// Reads a group's files, where there is room or somebody watches whose it is. One that is not there takes none.
    fn add_used(
        &mut self,
        generation: &Generation,
        room: &mut GroupRoom,
        (path, tenant): (&[String], Arc<str>),
    ) {
        let has_room = room.found < GROUPS_MAX && room.looked_for < LOOKED_FOR_MAX;
        if !has_room && !generation.watched_tenants.contains(&*tenant) {
            self.groups_left_out += 1;
            return;
        }
        let usage = Usage::of(&generation.layout, path);
        room.looked_for += 1;
        room.found += usize::from(usage.is_some());
        let group = path.concat().into();
        self.used.insert(group, GroupUse { tenant, usage });
    }

    /// What each tenant has taken, and took in a second since a look before this one.
    pub(super) fn since(&self, before: Option<&TenantLook>) -> Vec<TenantNow> {
        let mut tenants = BTreeMap::<&str, Taken>::new();
        for (place, asked) in &self.asked {
            let known = before.and_then(|it| it.asked.get(place));
            let known = known.map(|it| it.counts).unwrap_or_default();
            let of = tenants.entry(&asked.tenant).or_default();
            of.asked.add(asked.counts);
            of.asked_more.add(asked.counts.beyond(known));
        }
        let gone = before.into_iter().flat_map(|it| &it.asked);
        for (_, asked) in gone.filter(|(place, _)| !self.asked.contains_key(place)) {
            let more = asked.counter.counts().beyond(asked.counts);
            if more.requests > 0 {
                let of = tenants.entry(&asked.tenant).or_default();
                of.asked_more.add(more);
            }
        }
        for (group, now) in &self.used {
            let Some(usage) = &now.usage else {
                continue;
            };
            let known = before.and_then(|it| it.used.get(group));
            let none = Usage::default();
            let known = match known {
                Some(known) => known.usage.as_ref().unwrap_or(&none),
                // Since when it was used nobody knows.
                None => usage,
            };
            let of = tenants.entry(&now.tenant).or_default();
            of.used = combined(&of.used, usage, sum);
            of.used_more = combined(&of.used_more, &combined(usage, known, beyond), sum);
        }
        let passed_s = before.map(|it| self.seconds_since(it));
        let told = tenants.iter().map(|(tenant, it)| it.told(tenant, passed_s));
        told.collect()
    }

    /// How long it is since another.
    pub(super) fn seconds_since(&self, before: &TenantLook) -> f64 {
        let passed = self.at.saturating_duration_since(before.at);
        passed.as_secs_f64().max(APART_MIN_S)
    }
}

impl AskedCounter {
    /// Where it lies in memory: nothing else does as long as it is kept.
    fn place(&self) -> usize {
        match self {
            Self::Site(stats) => Arc::as_ptr(stats).addr(),
            Self::Rows(counts) => Arc::as_ptr(counts).addr(),
        }
    }

    fn counts(&self) -> AskedCounts {
        let mut counts = AskedCounts::default();
        match self {
            Self::Site(stats) => {
                for replies in stats.of_workers() {
                    let classes = replies.by_class.iter().map(|count| count.load(Relaxed));
                    counts.requests += classes.sum::<u64>();
                    counts.refused += replies.refused.load(Relaxed);
                    counts.waiting += replies.waiting.load(Relaxed);
                    counts.handshakes += replies.handshakes.load(Relaxed);
                }
            }
            Self::Rows(of) => {
                counts.requests = of.requests.load(Relaxed);
                counts.refused = of.refused.load(Relaxed);
                counts.waiting = of.waiting.load(Relaxed);
                counts.handshakes = of.handshakes.load(Relaxed);
            }
        }
        counts
    }
}

impl AskedCounts {
    fn add(&mut self, other: AskedCounts) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.waiting += other.waiting;
        self.handshakes += other.handshakes;
    }

    /// What came beyond an earlier count; how many wait is of now alone.
    fn beyond(self, before: AskedCounts) -> AskedCounts {
        AskedCounts {
            requests: self.requests.saturating_sub(before.requests),
            refused: self.refused.saturating_sub(before.refused),
            waiting: 0,
            handshakes: self.handshakes.saturating_sub(before.handshakes),
        }
    }
}

impl Taken {
    /// As it is told, where so many seconds have passed since the other look.
    fn told(&self, tenant: &str, passed_s: Option<f64>) -> TenantNow {
        let per_s = |more: u64| passed_s.map(|seconds| more as f64 / seconds);
        let used_per_s = |of: fn(&Usage) -> Option<u64>| per_s(of(&self.used_more)?);
        let throttled = used_per_s(|it| it.throttled_periods);
        let periods = used_per_s(|it| it.periods).filter(|periods| *periods > 0.0);
        let (asked, more) = (&self.asked, &self.asked_more);
        let was_killed = self.used.oom_kills.is_some_and(|count| count > 0);
        let has_shaken = asked.handshakes + more.handshakes > 0;
        TenantNow {
            tenant: tenant.to_owned(),
            cpu_cores: used_per_s(|it| it.cpu_us).map(|us| us / 1e6),
            throttled_share: throttled.zip(periods).map(|(ran_out, all)| ran_out / all),
            memory_bytes: self.used.memory_bytes,
            io_bytes_per_s: used_per_s(|it| it.io_bytes),
            requests_per_s: per_s(more.requests),
            waiting: asked.waiting,
            refused_per_s: per_s(more.refused),
            handshakes_per_s: per_s(more.handshakes).filter(|_| has_shaken),
            killed_per_s: used_per_s(|it| it.oom_kills).filter(|_| was_killed),
        }
    }
}

/// What is told of two groups, or of two looks at one.
fn combined(one: &Usage, other: &Usage, of: fn(Option<u64>, Option<u64>) -> Option<u64>) -> Usage {
    Usage {
        cpu_us: of(one.cpu_us, other.cpu_us),
        periods: of(one.periods, other.periods),
        throttled_periods: of(one.throttled_periods, other.throttled_periods),
        memory_bytes: of(one.memory_bytes, other.memory_bytes),
        io_bytes: of(one.io_bytes, other.io_bytes),
        oom_kills: of(one.oom_kills, other.oom_kills),
        ..Usage::default()
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    let both = one.zip(other).map(|(one, other)| one.saturating_add(other));
    both.or(one).or(other)
}

/// What came since then. A count that has gone back is of a group that was made anew.
fn beyond(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    let now = now?;
    Some(now.checked_sub(before.unwrap_or(0)).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::directory::tenants::RowTenants;

    impl TenantLook {
        fn empty(at: Instant) -> TenantLook {
            TenantLook {
                at,
                asked: HashMap::new(),
                used: HashMap::new(),
                groups_left_out: 0,
            }
        }

        /// Of tenants that have used so many microseconds of processors, in a group of their name each.
        pub(in crate::figures) fn of_groups(at: Instant, tenants: &[(&str, u64)]) -> TenantLook {
            let mut look = TenantLook::empty(at);
            for (tenant, cpu_us) in tenants {
                look.put(tenant, tenant, Some(*cpu_us));
            }
            look
        }

        fn put(&mut self, tenant: &str, group: &str, cpu_us: Option<u64>) {
            let usage = cpu_us.map(|cpu_us| Usage {
                cpu_us: Some(cpu_us),
                periods: Some(cpu_us / 100_000),
                throttled_periods: Some(cpu_us / 200_000),
                io_bytes: Some(cpu_us / 2),
                memory_bytes: Some(4_096),
                oom_kills: Some(cpu_us / 1_000_000),
                ..Usage::default()
            });
            let tenant = tenant.into();
            self.used.insert(group.into(), GroupUse { tenant, usage });
        }

        /// After so many seconds.
        fn next(&self, passed_s: u64, groups: &[(&str, &str, Option<u64>)]) -> TenantLook {
            let mut look = TenantLook::empty(self.at + Duration::from_secs(passed_s));
            for (tenant, group, cpu_us) in groups {
                look.put(tenant, group, *cpu_us);
            }
            look
        }
    }

    fn cores(of: &[TenantNow]) -> Vec<(&str, f64)> {
        let told = of.iter();
        let told = told.filter_map(|it| Some((&*it.tenant, it.cpu_cores?)));
        told.collect()
    }

    #[test]
    fn all_that_is_used_is_told_a_second_and_levels_as_they_are() {
        let first = TenantLook::of_groups(Instant::now(), &[("a", 9_000_000)]);
        let told = first.next(2, &[("a", "a", Some(12_000_000))]);
        let told = told.since(Some(&first));
        let expected = TenantNow {
            tenant: "a".to_owned(),
            cpu_cores: Some(1.5),
            throttled_share: Some(0.5),
            memory_bytes: Some(4_096),
            io_bytes_per_s: Some(750_000.0),
            requests_per_s: Some(0.0),
            waiting: 0,
            refused_per_s: Some(0.0),
            handshakes_per_s: None,
            killed_per_s: Some(1.5),
        };
        assert_eq!(told, [expected]);
        assert_eq!(cores(&first.since(None)), []);
    }

    #[test]
    fn what_a_group_used_before_it_was_looked_for_is_no_rate() {
        let none = TenantLook::empty(Instant::now());
        let new = none.next(1, &[("anna", "small", Some(400_000_000))]);
        assert_eq!(cores(&new.since(Some(&none))), [("anna", 0.0)]);
        let groups = [
            ("anna", "small", Some(400_500_000)),
            ("anna", "large", Some(900_000_000)),
        ];
        let more = new.next(1, &groups);
        assert_eq!(cores(&more.since(Some(&new))), [("anna", 0.5)]);
        // One that was looked for in vain began after that.
        let absent = none.next(1, &[("anna", "small", None)]);
        assert_eq!(cores(&absent.since(Some(&none))), []);
        let made = absent.next(1, &[("anna", "small", Some(2_000_000))]);
        assert_eq!(cores(&made.since(Some(&absent))), [("anna", 2.0)]);
    }

    #[test]
    fn a_group_that_goes_or_is_made_anew_takes_nothing_from_the_others_of_its_tenant() {
        let first = TenantLook::empty(Instant::now()).next(
            0,
            &[
                ("anna", "small", Some(900_000_000)),
                ("anna", "large", Some(10_000_000)),
            ],
        );
        let gone = first.next(1, &[("anna", "large", Some(13_000_000))]);
        assert_eq!(cores(&gone.since(Some(&first))), [("anna", 3.0)]);
        let anew = [
            ("anna", "small", Some(1_000_000)),
            ("anna", "large", Some(12_000_000)),
        ];
        let anew = first.next(1, &anew);
        assert_eq!(cores(&anew.since(Some(&first))), [("anna", 3.0)]);
    }

    #[test]
    fn what_is_asked_adds_up_whoever_counts_it_comes_and_goes() {
        let tenants = RowTenants::default();
        let begun = Instant::now();
        let look = |passed_s: u64| {
            let mut look = TenantLook::empty(begun + Duration::from_secs(passed_s));
            for tenant in tenants.all() {
                look.add_asked(&tenant.name, AskedCounter::Rows(Arc::clone(&tenant.counts)));
            }
            look
        };
        let requests = |look: &TenantLook, before: &TenantLook| {
            let told = look.since(Some(before)).into_iter();
            let told = told.map(|it| it.requests_per_s.expect("a rate"));
            (told.sum::<f64>() * look.seconds_since(before)).round()
        };
        let ask = |tenant: &RowTenant, times| {
            tenant.counts.requests.fetch_add(times, Relaxed);
        };
        let (small, large) = (tenants.of("anna", Some("small")), tenants.of("anna", None));
        ask(&small, 1_000);
        let first = look(0);
        ask(&small, 10);
        ask(&large, 5);
        // Another begins from nothing, as after a reload.
        drop(small);
        let small = tenants.of("anna", Some("small"));
        ask(&small, 3);
        let second = look(20);
        assert_eq!(requests(&second, &first), 18.0);
        ask(&small, 2);
        drop(large);
        let third = look(50);
        assert_eq!(requests(&third, &second), 2.0);
        drop(small);
        assert_eq!(tenants.all().len(), 0, "no look keeps them");
    }
}
