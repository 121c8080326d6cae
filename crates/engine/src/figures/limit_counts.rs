//! Who waited at limits and was refused since the last look, by reason and by key, for who follows that.
//!
//! The idea: what is told is a count, and nothing where there was none, so that sums over any time are
//! exact. Keys are those of refusals that are remembered, and of limits whose keys say of no client
//! who it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ipc::limit_figures::LimitCount;
use limits::{Totals, Why};

use crate::permits::rows;
use crate::worker::Shared;

/// Figures that one look tells: those that count most.
const TOLD_MAX: usize = 500;
/// Keys that are counted between two looks; what others come to is not told.
const KEYS_MAX: usize = 1_000;

/// What was counted before.
#[derive(Debug, Default)]
pub(super) struct LimitCounts {
    totals: Option<HashMap<String, Totals>>,
    /// When the last refusal was that has been seen, since 1970.
    refused: Option<Duration>,
    /// By limit and key, since the last look.
    keys: BTreeMap<(Arc<str>, String), u64>,
}

impl LimitCounts {
    /// Notes the keys of those refused since this was last done, as far as they are remembered.
    pub(super) fn note_keys(&mut self, shared: &Shared) {
        let refusals = &shared.limits.refusals;
        // Nobody is told of what was before.
        let Some(since) = self.refused else {
            self.refused = Some(refusals.last().unwrap_or_default());
            return;
        };
        if refusals.last().is_none_or(|last| last <= since) {
            return;
        }
        let Some(generation) = shared.generation() else {
            return;
        };
        let keys = &mut self.keys;
        let last = refusals.since(since, |it| {
            let refusal = &it.refusal;
            let is_told =
                !refusal.key.is_empty() && generation.limits.has_public_keys(refusal.limit);
            let of = (Arc::clone(&refusal.identity), refusal.key.clone());
            if is_told && (keys.len() < KEYS_MAX || keys.contains_key(&of)) {
                *keys.entry(of).or_default() += 1;
            }
        });
        self.refused = Some(last);
    }

    /// What came since the last look, by name, those that count most.
    pub(super) fn next(&mut self, shared: &Shared) -> Vec<(String, f64)> {
        let keys = std::mem::take(&mut self.keys).into_iter();
        let mut counts: Vec<(String, u64)> = keys
            .map(|((limit, key), count)| (LimitCount::Key(&key).name(&limit), count))
            .collect();
        let rows = rows::collect(shared).into_iter();
        let totals: HashMap<_, _> = rows
            .map(|row| (row.limit.identity, row.look.totals))
            .collect();
        if let Some(before) = &self.totals {
            for (limit, totals) in &totals {
                let before = before.get(limit).copied().unwrap_or_default();
                counts.extend(more(limit, totals, &before));
            }
        }
        self.totals = Some(totals);
        counts.sort_unstable_by(|(one, its), (other, others)| {
            Reverse(its)
                .cmp(&Reverse(others))
                .then_with(|| one.cmp(other))
        });
        counts.truncate(TOLD_MAX);
        let counts = counts.into_iter();
        counts.map(|(name, count)| (name, count as f64)).collect()
    }
}

/// What a limit came to beyond what it had.
fn more(limit: &str, now: &Totals, before: &Totals) -> impl Iterator<Item = (String, u64)> {
    let reasons = Why::ALL.into_iter().zip(now.refused).zip(before.refused);
    let refused =
        reasons.map(|((why, now), before)| (LimitCount::Refused(why.word()), now, before));
    let waited = (LimitCount::Waited, now.waited, before.waited);
    let all = refused.chain([waited]);
    all.filter_map(move |(count, now, before)| {
        // One that is defined anew begins at zero.
        let more = now.checked_sub(before).unwrap_or(now);
        (more > 0).then(|| (count.name(limit), more))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const SITES: &str = r#"
[[limits]]
name = "clients"
key = "client"
rate = "1/d"
burst = 4
[[sites]]
hosts = ["a"]
limits = [{ name = "paths", key = "path", rate = "1/d", burst = 2 }]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

    #[test]
    fn what_is_refused_is_counted_by_reason_and_by_keys_that_are_no_clients() {
        let fixture = Fixture::new(SITES);
        let mut counts = LimitCounts::default();
        let look = |counts: &mut LimitCounts| {
            counts.note_keys(&fixture.shared);
            counts.next(&fixture.shared)
        };
        assert_eq!(look(&mut counts), [], "what was before is not told");
        let ask = |times: usize, path: &str| {
            for _ in 0..times {
                fixture.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            }
        };
        ask(5, "/one");
        ask(3, "/two");
        let told = look(&mut counts);
        let value = |limit: &str, count: LimitCount<'_>| {
            let name = count.name(limit);
            told.iter().find(|(it, _)| *it == name).map(|(_, it)| *it)
        };
        let (paths, clients) = ("site a/paths", "process/clients");
        let by_reason: f64 = [paths, clients]
            .into_iter()
            .filter_map(|limit| value(limit, LimitCount::Refused("limit_rate")))
            .sum();
        assert_eq!(by_reason, 4.0, "{told:?}");
        assert_eq!(value(paths, LimitCount::Key("/one")), Some(3.0), "{told:?}");
        let keys = told
            .iter()
            .filter(|(name, _)| name.contains("process/clients\tkey"));
        assert_eq!(keys.count(), 0, "{told:?}");
        assert_eq!(look(&mut counts), [], "it is told once");
    }
}
