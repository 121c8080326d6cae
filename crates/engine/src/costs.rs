//! What a run of a file takes of processors, as CGI programs and pools of PHP tell it.
//!
//! The idea: of each file a mean over its last runs, which is known once there were enough of them and
//! changes only when it has moved by a fifth: so nothing that depends on it goes to and fro. A tenant
//! has room for so many files; what finds none costs nothing.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Files of one tenant that are known.
const FILES_MAX: usize = 1_000;
/// Bytes of a name that are looked at, which is what php-fpm tells.
const NAME_BYTES_MAX: usize = 255;
/// Runs after which a mean is known.
const RUNS_MIN: u64 = 20;
/// Runs that the mean looks back on, as if all of them counted the same.
const RUNS_KEPT: u64 = 100;
/// Share of what is known by which the mean must have moved.
const MOVED: f64 = 0.2;
/// How long a file is remembered that does not run, where a tenant has no room for others.
const KEPT: Duration = Duration::from_secs(3_600);
/// How often those are looked for.
const SWEEP: Duration = Duration::from_secs(60);
/// What stands for the middle of a key that is shown to people.
const CUT: char = '…';

/// The costs of files, for all workers.
#[derive(Debug, Default)]
pub(crate) struct Costs(RwLock<KnownFiles>);

#[derive(Debug, Default)]
struct KnownFiles {
    files: HashMap<Box<[u8]>, Cost>,
    /// How many files each tenant has.
    owned: HashMap<Box<str>, usize>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Cost {
    tenant: Box<str>,
    runs: u64,
    mean_us: f64,
    /// What is known of it.
    known_us: Option<f64>,
    seen: Instant,
}

impl Costs {
    /// Runs of a tenant's file have taken so much, all together.
    pub(crate) fn note(&self, tenant: &str, file: &[u8], (runs, cpu_us): (u32, u64), now: Instant) {
        let file = cut(file);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(cost) = known.files.get_mut(file) {
            cost.add(runs, cpu_us, now);
        } else if known.make_room(tenant, now) {
            let mut cost = Cost {
                tenant: tenant.into(),
                runs: 0,
                mean_us: 0.0,
                known_us: None,
                seen: now,
            };
            cost.add(runs, cpu_us, now);
            known.files.insert(file.into(), cost);
        }
    }

    /// What a run of a file takes, in microseconds, where that is known.
    pub(crate) fn of(&self, file: &[u8]) -> Option<f64> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.files.get(cut(file))?.known_us
    }

    /// The same of a file whose name was made short for people.
    pub(crate) fn of_shown(&self, name: &str) -> Option<Duration> {
        let cost_us = match name.split_once(CUT) {
            None => self.of(name.as_bytes()),
            Some((beginning, end)) => {
                let (beginning, end) = (beginning.as_bytes(), end.as_bytes());
                let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
                let files = known.files.iter();
                let is_it = |file: &[u8]| {
                    file.starts_with(beginning)
                        && file.ends_with(end)
                        && file.len() >= beginning.len() + end.len()
                };
                let mut found = files.filter(|(file, _)| is_it(file));
                let first = found.next();
                // Of two nobody knows which is meant.
                first.filter(|_| found.next().is_none())?.1.known_us
            }
        };
        Some(Duration::from_micros(cost_us? as u64))
    }
}

impl KnownFiles {
    /// Counts one file more of a tenant's, if there is room.
    fn make_room(&mut self, tenant: &str, now: Instant) -> bool {
        let count = self.owned.get(tenant).copied().unwrap_or(0);
        if count < FILES_MAX {
            self.owned.insert(tenant.into(), count + 1);
            return true;
        }
        let is_soon = |swept: Instant| now.saturating_duration_since(swept) < SWEEP;
        if !self.swept.is_some_and(is_soon) {
            self.swept = Some(now);
            self.files
                .retain(|_, cost| now.saturating_duration_since(cost.seen) < KEPT);
            self.owned.clear();
            for cost in self.files.values() {
                *self.owned.entry(cost.tenant.clone()).or_default() += 1;
            }
            let count = self.owned.entry(tenant.into()).or_default();
            let has_room = *count < FILES_MAX;
            *count += usize::from(has_room);
            return has_room;
        }
        false
    }
}

impl Cost {
    fn add(&mut self, runs: u32, cpu_us: u64, now: Instant) {
        let runs = u64::from(runs.max(1));
        let each_us = cpu_us as f64 / runs as f64;
        let all = self.runs.min(RUNS_KEPT) + runs;
        self.mean_us += (each_us - self.mean_us) * runs as f64 / all as f64;
        self.runs = self.runs.saturating_add(runs);
        self.seen = now;
        let has_moved = |known_us: f64| (self.mean_us - known_us).abs() > MOVED * known_us;
        if self.runs >= RUNS_MIN && self.known_us.is_none_or(has_moved) {
            self.known_us = Some(self.mean_us);
        }
    }
}

fn cut(name: &[u8]) -> &[u8] {
    name.get(..NAME_BYTES_MAX).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(costs: &Costs, file: &str) -> Option<f64> {
        costs.of(file.as_bytes()).map(|us| us / 1_000.0)
    }

    #[test]
    fn a_cost_is_known_after_so_many_runs_and_moves_by_a_fifth() {
        let (costs, now) = (Costs::default(), Instant::now());
        let note = |runs, each_ms: u64| {
            let cpu_us = u64::from(runs) * each_ms * 1_000;
            costs.note("a", b"/srv/a.php", (runs, cpu_us), now);
            ms(&costs, "/srv/a.php")
        };
        assert_eq!(note(19, 50), None);
        assert_eq!(note(1, 50), Some(50.0));
        // The mean is 55, then 57.5.
        assert_eq!(note(20, 60), Some(50.0));
        assert_eq!(note(40, 60), Some(50.0));
        let moved = note(400, 80).expect("known");
        assert!((70.0..80.0).contains(&moved), "{moved}");
        let back = (0..50).map(|_| note(1, 74)).collect::<Vec<_>>();
        assert!(back.iter().all(|known| *known == Some(moved)), "{back:?}");
        assert_eq!(ms(&costs, "/srv/b.php"), None);
    }

    #[test]
    fn a_cost_near_a_bound_does_not_go_to_and_fro() {
        let (costs, now) = (Costs::default(), Instant::now());
        let (mut changes, mut before) = (0, None);
        for run in 0..10_000_u64 {
            // Runs of 40 or 60 ms, in the ticks of 10 that php-fpm measures by.
            let each_us = if run % 7 < 4 { 60_000 } else { 40_000 };
            costs.note("a", b"/a", (1, each_us), now);
            let is_above = costs.of(b"/a").map(|us| us > 50_000.0);
            changes += usize::from(is_above != before);
            before = is_above;
        }
        assert_eq!(changes, 1, "it becomes known");
    }

    #[test]
    fn a_tenants_files_take_no_room_of_others_and_make_room_in_an_hour() {
        let (costs, now) = (Costs::default(), Instant::now());
        let note = |tenant: &str, file: &str, now| {
            costs.note(tenant, file.as_bytes(), (20, 20_000), now);
            ms(&costs, file).is_some()
        };
        let known = (0..3_000).filter(|number| note("a", &format!("/a/{number}"), now));
        assert_eq!(known.count(), FILES_MAX);
        assert!(note("b", "/b/1", now));
        let soon = now + Duration::from_secs(120);
        assert!(!note("a", "/a/new", soon) && note("a", "/a/1", soon));
        assert!(note("a", "/a/new", soon + KEPT));
        assert_eq!(ms(&costs, "/a/2"), None);
        let all = costs.0.read().unwrap().owned.values().sum::<usize>();
        assert_eq!(all, costs.0.read().unwrap().files.len());
    }

    #[test]
    fn a_name_that_was_cut_is_found_where_one_file_has_it() {
        let (costs, now) = (Costs::default(), Instant::now());
        for file in ["/srv/a/deep/x.php", "/srv/a/deep/y.php", "/srv/b/x.php"] {
            costs.note("a", file.as_bytes(), (20, 40_000), now);
        }
        let found = |name| costs.of_shown(name).map(|cost| cost.as_millis());
        assert_eq!(found("/srv/b/x.php"), Some(2));
        assert_eq!(found("/srv/a…y.php"), Some(2));
        assert_eq!(found("/srv/…x.php"), None, "two have it");
        assert_eq!(found("/srv/b/x.php…x.php"), None);
        let long = format!("/srv/{}", "x".repeat(400));
        costs.note("a", long.as_bytes(), (20, 40_000), now);
        assert_eq!(costs.of(cut(long.as_bytes())), Some(2_000.0));
    }
}
