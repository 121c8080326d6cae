//! What tenants take just now, for `nagaya top`.
//!
//! The idea: all that is counted adds up, so what is taken in a second is the difference of two
//! looks. Whoever asks is told what has changed since a look that is about a second old, and the
//! thread that answers keeps the last two; who asks first is told levels alone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use control::TenantNow;
use os::cgroup::Usage;

use super::table::{bytes, count, grid, percent};
use crate::directory::tenants::RowTenant;
use crate::generation::Generation;
use crate::stats::SiteStats;
use crate::worker::Shared;

/// How far apart two looks are that are compared, at least and at most.
const APART_MIN: Duration = Duration::from_millis(900);
const APART_MAX: Duration = Duration::from_secs(10);
/// Tenants that are shown unless it is said how many, and at most.
const ROWS: usize = 20;
const ROWS_MAX: usize = 1_000;
/// Groups whose files are read for one answer.
const GROUPS_MAX: usize = 4_096;

/// The last looks, the older one first.
#[derive(Debug, Default)]
pub(crate) struct Looks(VecDeque<Look>);

/// What all tenants had taken at a moment.
#[derive(Debug)]
struct Look {
    at: Instant,
    tenants: BTreeMap<Arc<str>, Totals>,
    groups_left_out: usize,
}

/// What a tenant had taken.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    usage: Usage,
    requests: u64,
    refused: u64,
    waiting: u64,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
struct TopQuestion {
    by: By,
    rows: usize,
    is_json: bool,
}

/// Who comes first.
#[derive(Debug, Clone, Copy)]
enum By {
    Cpu,
    Memory,
    Io,
    Waiting,
    Refused,
}

impl TopQuestion {
    fn read(words: &str) -> Result<Self, String> {
        let mut asked = Self {
            by: By::Cpu,
            rows: ROWS,
            is_json: false,
        };
        for word in words.split_ascii_whitespace() {
            match (word, word.parse()) {
                ("cpu", _) => asked.by = By::Cpu,
                ("memory", _) => asked.by = By::Memory,
                ("io", _) => asked.by = By::Io,
                ("waiting", _) => asked.by = By::Waiting,
                ("refused", _) => asked.by = By::Refused,
                ("json", _) => asked.is_json = true,
                (_, Ok(rows)) => asked.rows = rows,
                _ => return Err(format!("error: `{word}` means nothing after `top`\n")),
            }
        }
        asked.rows = asked.rows.clamp(1, ROWS_MAX);
        Ok(asked)
    }
}

impl Looks {
    /// Answers `top [N] [BY] [json]`.
    pub(crate) fn answer(&mut self, shared: &Shared, words: &str) -> String {
        let asked = match TopQuestion::read(words) {
            Ok(asked) => asked,
            Err(why) => return why,
        };
        let Some(generation) = shared.generation() else {
            return "error: nothing is served yet\n".to_owned();
        };
        let (mut tenants, left_out) = self.look(shared, &generation);
        tenants.sort_by(|one, other| asked.by.order(one, other));
        let more = tenants.len().saturating_sub(asked.rows);
        tenants.truncate(asked.rows);
        match asked.is_json {
            true => control::json(&tenants),
            false => table(&tenants, more, left_out),
        }
    }

    /// The so many tenants that take most of processors, or answer most requests.
    pub(crate) fn busiest(&mut self, shared: &Shared, most: usize) -> Vec<TenantNow> {
        let generation = shared.generation();
        let mut tenants = generation.map_or_else(Vec::new, |it| self.look(shared, &it).0);
        tenants.sort_by(|one, other| By::Cpu.order(one, other));
        tenants.truncate(most);
        tenants
    }

    /// What each tenant takes now, and how many groups were not read.
    fn look(&mut self, shared: &Shared, generation: &Generation) -> (Vec<TenantNow>, usize) {
        let look = Look::take(generation, &shared.rows.tenants.all(), Instant::now());
        let left_out = look.groups_left_out;
        (self.compare(look), left_out)
    }

    /// What each tenant takes, and has taken since a look before this one.
    fn compare(&mut self, look: Look) -> Vec<TenantNow> {
        let age = |before: &Look| look.at.saturating_duration_since(before.at);
        self.0.retain(|before| age(before) <= APART_MAX);
        let looks = self.0.iter().rev();
        let before = { looks }.find(|before| age(before) >= APART_MIN);
        let since = before.map(|before| (before, age(before).as_secs_f64()));
        let tenants = look.tenants.iter().map(|(name, now)| {
            let since = since.map(|(before, seconds)| {
                let before = before.tenants.get(name).copied();
                (before.unwrap_or_default(), seconds)
            });
            now.since(name, since)
        });
        let tenants = tenants.collect();
        if self.0.back().is_none_or(|last| age(last) >= APART_MIN) {
            self.0.push_back(look);
        }
        while self.0.len() > 2 {
            self.0.pop_front();
        }
        tenants
    }
}

impl Look {
    /// Looks at tenants of which there is something to tell.
    fn take(generation: &Generation, of_rows: &[Arc<RowTenant>], at: Instant) -> Self {
        let mut look = Self {
            at,
            tenants: BTreeMap::new(),
            groups_left_out: 0,
        };
        // What is asked of the site of all rows counts for their tenants.
        let written = generation.sites.iter().filter(|site| site.rows.is_none());
        for site in written {
            if site.stats.of_workers().next().is_some() {
                look.of(&site.tenant_name).add_site(&site.stats);
            }
        }
        // What is used in a group counts in those it is in.
        let groups = generation.groups().filter(|(path, _)| path.len() == 1);
        for (at, (path, owner)) in groups.enumerate() {
            let is_watched = || generation.watched_tenants.contains(&*owner.tenant);
            if at >= GROUPS_MAX && !is_watched() {
                look.groups_left_out += 1;
            } else if let Some(usage) = Usage::of(&generation.layout, &path) {
                look.of(&Arc::from(&*owner.tenant)).add(&usage);
            }
        }
        look.add_rows(generation, of_rows);
        look
    }

    /// Looks at tenants of rows.
    fn add_rows(&mut self, generation: &Generation, tenants: &[Arc<RowTenant>]) {
        let has_groups = !generation.row_programs.is_empty();
        for (at, tenant) in tenants.iter().enumerate() {
            let totals = self.of(&tenant.name);
            totals.requests += tenant.requests.load(Relaxed);
            totals.refused += tenant.refused.load(Relaxed);
            totals.waiting += tenant.waiting.load(Relaxed);
            match at < GROUPS_MAX {
                true if has_groups => {
                    let usage = Usage::of(&generation.layout, &tenant.group);
                    usage.iter().for_each(|usage| totals.add(usage));
                }
                true => {}
                false => self.groups_left_out += usize::from(has_groups),
            }
        }
    }

    fn of(&mut self, tenant: &Arc<str>) -> &mut Totals {
        self.tenants.entry(Arc::clone(tenant)).or_default()
    }
}

impl Totals {
    fn add_site(&mut self, stats: &SiteStats) {
        for replies in stats.of_workers() {
            let classes = replies.by_class.iter().map(|count| count.load(Relaxed));
            self.requests += classes.sum::<u64>();
            self.refused += replies.refused.load(Relaxed);
            self.waiting += replies.waiting.load(Relaxed);
        }
    }

    /// Adds what a group has used.
    fn add(&mut self, usage: &Usage) {
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        };
        let sum = &mut self.usage;
        add(&mut sum.cpu_us, usage.cpu_us);
        add(&mut sum.periods, usage.periods);
        add(&mut sum.throttled_periods, usage.throttled_periods);
        add(&mut sum.memory_bytes, usage.memory_bytes);
        add(&mut sum.io_bytes, usage.io_bytes);
    }

    /// As it is told, with what has changed since it was so, so many seconds ago.
    fn since(&self, tenant: &str, before: Option<(Totals, f64)>) -> TenantNow {
        let per_s = |of: fn(&Totals) -> Option<u64>| {
            let (before, seconds) = before.as_ref()?;
            let more = of(self)?.saturating_sub(of(before).unwrap_or(0));
            Some(more as f64 / seconds)
        };
        let throttled = per_s(|it| it.usage.throttled_periods);
        let periods = per_s(|it| it.usage.periods).filter(|periods| *periods > 0.0);
        TenantNow {
            tenant: tenant.to_owned(),
            cpu_cores: per_s(|it| it.usage.cpu_us).map(|us| us / 1e6),
            throttled_share: throttled.zip(periods).map(|(ran_out, all)| ran_out / all),
            memory_bytes: self.usage.memory_bytes,
            io_bytes_per_s: per_s(|it| it.usage.io_bytes),
            requests_per_s: per_s(|it| Some(it.requests)),
            waiting: self.waiting,
            refused_per_s: per_s(|it| Some(it.refused)),
        }
    }
}

impl By {
    /// Who has most comes first, and of those who have the same who waits most.
    fn order(self, one: &TenantNow, other: &TenantNow) -> Ordering {
        let key = |it: &TenantNow| match self {
            Self::Cpu => it.cpu_cores.unwrap_or(-1.0),
            Self::Memory => it.memory_bytes.map_or(-1.0, |bytes| bytes as f64),
            Self::Io => it.io_bytes_per_s.unwrap_or(-1.0),
            Self::Waiting => it.waiting as f64,
            Self::Refused => it.refused_per_s.unwrap_or(-1.0),
        };
        let requests = |it: &TenantNow| it.requests_per_s.unwrap_or(-1.0);
        let most = key(other).total_cmp(&key(one));
        most.then_with(|| other.waiting.cmp(&one.waiting))
            .then_with(|| requests(other).total_cmp(&requests(one)))
            .then_with(|| one.tenant.cmp(&other.tenant))
    }
}

fn table(tenants: &[TenantNow], more: usize, groups_left_out: usize) -> String {
    if tenants.is_empty() {
        return "no tenant has had a request yet\n".to_owned();
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let per_s = |number: f64| format!("{number:.1}/s");
    let rows = tenants.iter().map(|it| {
        vec![
            it.tenant.clone(),
            or_dash(it.cpu_cores.map(percent)),
            or_dash(it.throttled_share.map(percent)),
            or_dash(it.memory_bytes.map(bytes)),
            or_dash(
                it.io_bytes_per_s
                    .map(|rate| format!("{}/s", bytes(rate as u64))),
            ),
            or_dash(it.requests_per_s.map(per_s)),
            count(it.waiting),
            or_dash(it.refused_per_s.map(per_s)),
        ]
    });
    let heads = [
        "tenant",
        "cpu",
        "throttled",
        "memory",
        "i/o",
        "requests",
        "waiting",
        "refused",
    ];
    let mut out = String::new();
    grid(&heads, rows.collect(), &mut out);
    // Writing to memory does not fail.
    if more > 0 {
        let all = (tenants.len() + more).min(ROWS_MAX);
        let _ = writeln!(out, "and {more} more: nagaya top -n {all}");
    }
    if groups_left_out > 0 {
        let _ = writeln!(out, "{groups_left_out} further groups were not read");
    }
    out.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, reply};

    fn look(at: Instant, tenants: &[(&str, Totals)]) -> Look {
        let tenants = tenants
            .iter()
            .map(|(name, totals)| (Arc::from(*name), *totals));
        Look {
            at,
            tenants: tenants.collect(),
            groups_left_out: 0,
        }
    }

    fn totals(cpu_us: u64, requests: u64, waiting: u64) -> Totals {
        let usage = Usage {
            cpu_us: Some(cpu_us),
            periods: Some(cpu_us / 100_000),
            throttled_periods: Some(cpu_us / 200_000),
            io_bytes: Some(cpu_us / 2),
            memory_bytes: Some(1 << 20),
            ..Usage::default()
        };
        Totals {
            usage,
            requests,
            refused: requests / 10,
            waiting,
        }
    }

    #[test]
    fn what_is_taken_in_a_second_is_the_difference_to_a_look_that_is_old_enough() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut looks = Looks::default();
        let first = looks.compare(look(at(0), &[("a", totals(9_000_000, 50, 3))]));
        assert_eq!((first[0].cpu_cores, first[0].refused_per_s), (None, None));
        assert_eq!(
            (first[0].memory_bytes, first[0].waiting),
            (Some(1 << 20), 3)
        );
        let soon = looks.compare(look(at(100), &[("a", totals(9_100_000, 60, 3))]));
        assert_eq!(soon[0].cpu_cores, None, "both are of the same moment");
        let now = looks.compare(look(at(2_000), &[("a", totals(12_000_000, 250, 0))]));
        assert_eq!(
            now,
            [TenantNow {
                tenant: "a".to_owned(),
                cpu_cores: Some(1.5),
                throttled_share: Some(0.5),
                memory_bytes: Some(1 << 20),
                io_bytes_per_s: Some(750_000.0),
                requests_per_s: Some(100.0),
                waiting: 0,
                refused_per_s: Some(10.0),
            }]
        );
        // Another who asks meanwhile is told of the same second, and one that is new from its beginning.
        let tenants = [
            ("a", totals(12_500_000, 300, 0)),
            ("b", totals(250_000, 1, 0)),
        ];
        let soon = looks.compare(look(at(2_500), &tenants));
        let cores: Vec<_> = soon.iter().map(|it| it.cpu_cores).collect();
        assert_eq!(cores, [Some(1.4), Some(0.1)]);
        let late = looks.compare(look(at(60_000), &[("a", totals(13_000_000, 300, 0))]));
        assert_eq!(late[0].cpu_cores, None, "a minute is no moment");
        assert_eq!(looks.0.len(), 1);
    }

    #[test]
    fn who_takes_most_comes_first_and_no_more_rows_than_asked_for() {
        let now = |tenant: &str, cpu_cores, waiting| TenantNow {
            tenant: tenant.to_owned(),
            cpu_cores,
            waiting,
            ..TenantNow::default()
        };
        let mut tenants = vec![
            now("idle", Some(0.0), 0),
            now("no-group", None, 7),
            now("waits", Some(0.0), 2),
            now("busy", Some(0.4), 1),
        ];
        let names = |tenants: &[TenantNow]| {
            let names = tenants.iter().map(|it| it.tenant.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        tenants.sort_by(|one, other| By::Cpu.order(one, other));
        assert_eq!(names(&tenants), "busy waits idle no-group");
        tenants.sort_by(|one, other| By::Waiting.order(one, other));
        assert_eq!(names(&tenants), "no-group waits busy idle");
        let page = table(&tenants[..2], 2, 0);
        assert!(page.ends_with("and 2 more: nagaya top -n 4\n"), "{page}");
        assert!(page.starts_with("tenant  "), "{page}");
    }

    #[test]
    fn tenants_are_told_with_what_their_sites_were_asked() {
        let fixture = Fixture::new(
            r#"
limits = [{ key = "path", rate = "1/d", burst = 1 }]
[[listen]]
address = "127.0.0.1:8080"
[[sites]]
hosts = ["a"]
tenant = "t"
rules = [{ handler = { respond = { body = "fine" } } }]
[[sites]]
hosts = ["b"]
rules = [{ handler = { respond = { body = "fine" } } }]
"#,
        );
        let serving = fixture.worker.serving();
        fixture.shared.set_generation(&serving.generation);
        let ask = |words: &str| Looks::default().answer(&fixture.shared, words);
        assert_eq!(ask(""), "no tenant has had a request yet\n");
        assert!(ask("cpus").starts_with("error: `cpus` means nothing"));
        for status in [200, 503] {
            let request = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
            assert_eq!(reply(&fixture.ask(request)).0, status);
        }
        assert_eq!(ask("json"), "[{\"tenant\":\"t\",\"waiting\":0}]\n");
        let look = Look::take(&serving.generation, &[], Instant::now());
        let of = look.tenants.values().next().expect("the tenant");
        assert_eq!((of.requests, of.refused, of.waiting), (2, 1, 0));
        assert_eq!(ask("5 refused").lines().count(), 2);
    }
}
