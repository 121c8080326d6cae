//! What each tenant of a row got, and how fairly it was shared out.
//!
//! The idea: fair is not equal. Who asks for little and gets all of it was treated as well as who
//! asks for much and gets its share, so each tenant's goodput is taken over what a max-min fair
//! server would have given it of the same total.

use std::collections::BTreeMap;

use super::model::Ask;
use load::client::{Outcome, Series};
use load::stats;

/// One tenant, all its requests together; rates are per second.
#[derive(Debug, Default)]
struct Got {
    good: f64,
    refused: f64,
    /// Sent and answered in some way, or lost.
    asked: f64,
    /// What it would have taken: what it asked for, without end in a closed loop.
    demand: f64,
    /// Its share relative to others'.
    share: f64,
    admitted: Series,
}

/// `goodput.NAME`, `refused.NAME` and `p99_us.NAME`, the same of all but the one that asked for
/// most (`others_refused`, `others_p99_us`), and Jain's index. `loads` are asks with what became
/// of them.
pub(crate) fn figures(loads: &[(&[Ask], &Outcome)]) -> BTreeMap<String, f64> {
    let got = by_tenant(loads);
    let mut found = BTreeMap::new();
    for (tenant, got) in &got {
        found.insert(format!("goodput.{tenant}"), got.good);
        found.insert(format!("refused.{tenant}"), got.refused);
        if got.admitted.count() > 0 {
            let p99_us = got.admitted.quantile_us(0.99) as f64;
            found.insert(format!("p99_us.{tenant}"), p99_us);
        }
    }
    if got.len() > 1 {
        let all: Vec<&Got> = got.values().collect();
        found.extend(fairness(&all).map(|index| ("jain".to_owned(), index)));
        found.extend(others(&all));
    }
    found
}

fn by_tenant<'a>(loads: &[(&'a [Ask], &Outcome)]) -> BTreeMap<&'a str, Got> {
    let mut got: BTreeMap<&str, Got> = BTreeMap::new();
    for (asks, outcome) in loads {
        let seconds = outcome.recorded.as_secs_f64().max(1e-9);
        let is_open = outcome.schedule.due > 0;
        for (ask, by) in asks.iter().zip(&outcome.by_request) {
            let Some(tenant) = &ask.tenant else {
                continue;
            };
            let entry = got.entry(tenant).or_default();
            let asked = (by.completed + by.lost) as f64 / seconds;
            entry.good += by.good as f64 / seconds;
            entry.refused += by.failed.saturating_sub(by.lost) as f64 / seconds;
            entry.asked += asked;
            entry.demand += if is_open { asked } else { f64::INFINITY };
            entry.share = f64::from(ask.share);
            entry.admitted.merge(&by.admitted);
        }
    }
    got
}

/// Jain's index of goodput over the max-min fair share of it.
fn fairness(all: &[&Got]) -> Option<f64> {
    let total = all.iter().map(|got| got.good).sum();
    let wanted: Vec<(f64, f64)> = all.iter().map(|got| (got.demand, got.share)).collect();
    let fair = stats::max_min(total, &wanted);
    let shares = all.iter().zip(fair).filter(|(_, fair)| *fair > 0.0);
    let shares: Vec<f64> = shares.map(|(got, fair)| got.good / fair).collect();
    stats::jain(&shares)
}

/// Everybody but the one that asked for most: those who should not notice it.
fn others(all: &[&Got]) -> Vec<(String, f64)> {
    let most = |index: &usize| all.get(*index).map_or(0.0, |got| got.asked);
    let heaviest = (0..all.len()).max_by(|a, b| most(a).total_cmp(&most(b)));
    let mut refused = 0.0;
    let mut admitted = Series::default();
    for (index, got) in all.iter().enumerate() {
        if Some(index) != heaviest {
            refused += got.refused;
            admitted.merge(&got.admitted);
        }
    }
    let mut found = vec![("others_refused".to_owned(), refused)];
    if admitted.count() > 0 {
        let p99_us = admitted.quantile_us(0.99) as f64;
        found.push(("others_p99_us".to_owned(), p99_us));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use load::client::{ByRequest, Schedule};

    fn ask(tenant: &str, share: u32) -> Ask {
        Ask {
            tenant: Some(tenant.to_owned()),
            share,
            ..Ask::default()
        }
    }

    /// One second of an open loop: how many were good and how many refused, and how long the good
    /// ones took.
    fn outcome(counts: &[(u64, u64, u64)]) -> Outcome {
        let by = |(good, refused, took_us): &(u64, u64, u64)| {
            let mut admitted = Series::default();
            admitted.record_n(*took_us, *good);
            ByRequest {
                label: String::new(),
                completed: good + refused,
                failed: *refused,
                lost: 0,
                good: *good,
                response: admitted.clone(),
                admitted,
            }
        };
        let schedule = Schedule {
            due: 1,
            ..Schedule::default()
        };
        Outcome {
            recorded: Duration::from_secs(1),
            by_request: counts.iter().map(by).collect(),
            schedule,
            ..Outcome::default()
        }
    }

    #[test]
    fn a_server_that_gives_the_modest_all_they_want_is_fair() {
        let asks = [ask("big", 1), ask("one", 1), ask("two", 1)];
        let fair = outcome(&[(340, 460, 90_000), (30, 0, 50_000), (30, 0, 60_000)]);
        let seen = figures(&[(&asks, &fair)]);
        assert!((seen["jain"] - 1.0).abs() < 1e-9, "{seen:?}");
        assert_eq!((seen["others_refused"], seen["refused.big"]), (0.0, 460.0));
        assert!((seen["others_p99_us"] / 60_000.0 - 1.0).abs() < 0.01);
        assert!((seen["p99_us.big"] / 90_000.0 - 1.0).abs() < 0.01);
        let unfair = outcome(&[(390, 410, 1), (5, 25, 1), (5, 25, 1)]);
        let seen = figures(&[(&asks, &unfair)]);
        assert!(seen["jain"] < 0.7 && seen["others_refused"] == 50.0);
    }

    #[test]
    fn shares_weigh_where_everybody_wants_more() {
        let asks = [ask("one", 1), ask("two", 2), ask("four", 4)];
        let by_weight = outcome(&[(100, 900, 1), (200, 800, 1), (400, 600, 1)]);
        assert!((figures(&[(&asks, &by_weight)])["jain"] - 1.0).abs() < 1e-9);
        let even = outcome(&[(233, 900, 1), (233, 800, 1), (233, 600, 1)]);
        assert!(figures(&[(&asks, &even)])["jain"] < 0.8);
    }

    #[test]
    fn a_closed_loop_wants_without_end() {
        let asks = [ask("one", 1), ask("two", 1)];
        let mut closed = outcome(&[(100, 0, 1), (300, 0, 1)]);
        closed.schedule.due = 0;
        let seen = figures(&[(&asks, &closed)]);
        assert!((seen["jain"] - 0.8).abs() < 1e-9, "{seen:?}");
    }

    #[test]
    fn one_tenant_is_compared_with_nobody() {
        let asks = [ask("one", 1)];
        let seen = figures(&[(&asks, &outcome(&[(5, 0, 1)]))]);
        assert_eq!((seen["goodput.one"], seen.get("jain")), (5.0, None));
    }
}
