//! Certificates, the keeper of their keys and the process that orders them, as status and metrics tell them.
//!
//! The idea: counts, and the first hundred that end: of ten thousand names nobody wants a sample each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use control::{AcmeProcess, Certificates, Keeper, OnDemand, Status};
use ipc::acme::OrderedCertificate;
use ipc::certificates::Source;
use ipc::server::ProcessLife;

use crate::tls::demands::Demands;
use crate::tls::table::CertificateTable;
use crate::worker::Shared;

/// Certificates that status and metrics name: those that end first.
const NAMED_MAX: usize = 100;
const DAY_S: i64 = 86_400;
/// Within how many days certificates that end are counted.
const WITHIN_DAYS: [(&str, i64); 5] = [("0", 0), ("1", 1), ("7", 7), ("14", 14), ("30", 30)];

/// Seconds since 1970.
pub(super) fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// Counts all of them; `None` before a listener spoke TLS.
pub(super) fn collect(shared: &Shared) -> Option<Certificates> {
    if !shared.handshakes.is_started() {
        return None;
    }
    let table = shared.certificates.table();
    let look = |orders: &_| summary(&table, orders, now_s());
    Some(Certificates {
        on_demand: on_demand(&shared.demands),
        ..shared.orders.look(look)
    })
}

fn on_demand(demands: &Demands) -> Option<OnDemand> {
    let counts = &demands.counts;
    let asked = counts.asked.load(Relaxed);
    (asked > 0).then(|| OnDemand {
        asked,
        accepted: counts.accepted.load(Relaxed),
        obtained: counts.obtained.load(Relaxed),
        waiting: demands.waiting() as u64,
    })
}

fn summary(
    table: &CertificateTable,
    orders: &BTreeMap<String, OrderedCertificate>,
    now_s: i64,
) -> Certificates {
    let set = table.set();
    let mut served: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut ends = Vec::with_capacity(set.certificates.len());
    for certificate in &set.certificates {
        *served.entry(word(&certificate.source)).or_default() += 1;
        ends.push((certificate.not_after_s, &certificate.names));
    }
    ends.sort_unstable_by_key(|(end_s, _)| *end_s);
    let within = WITHIN_DAYS.into_iter().map(|(word, days)| {
        let until_s = now_s.saturating_add(days * DAY_S);
        (
            word,
            ends.partition_point(|(end_s, _)| *end_s < until_s) as u64,
        )
    });
    let kept = set.certificates.iter().filter(|it| it.problem.is_some());
    let (mut issued, mut tries, mut failing, mut awaited) = (0, 0, 0, 0);
    for order in orders.values() {
        tries += u64::from(order.state.tries);
        issued += u64::from(order.state.issued);
        failing += u64::from(is_failing(order));
        let source = Source::Acme(order.path.clone());
        awaited += u64::from(table.of_source(&source).is_none());
    }
    let first = ends.iter().take(NAMED_MAX);
    Certificates {
        served: served.into_iter().collect(),
        broken: (kept.count() + set.broken.len()) as u64,
        ending_within_days: within.collect(),
        first_to_end: first
            .map(|(end_s, names)| (names.first().cloned().unwrap_or_default(), *end_s))
            .collect(),
        orders: tries,
        issued,
        failing,
        awaited,
        on_demand: None,
    }
}

/// Whether its last order failed.
pub(super) fn is_failing(order: &OrderedCertificate) -> bool {
    !order.state.error.is_empty()
}

/// The keeper; `None` where there never was one.
pub(super) fn keeper(shared: &Shared) -> Option<Keeper> {
    let [life, _] = shared.orders.processes();
    (life != ProcessLife::default()).then(|| Keeper {
        pid: pid(life),
        restarts: life.restarts,
        signatures: shared.keeper.signatures(),
        refused: shared.keeper.refused().collect(),
    })
}

/// The process that asks authorities; `None` where there never was one.
pub(super) fn acme(shared: &Shared) -> Option<AcmeProcess> {
    let [_, life] = shared.orders.processes();
    (life != ProcessLife::default()).then(|| AcmeProcess {
        pid: pid(life),
        restarts: life.restarts,
    })
}

fn pid(life: ProcessLife) -> Option<u32> {
    Some(life.pid).filter(|pid| *pid > 0)
}

/// Where it comes from, in a word.
pub(super) fn word(source: &Source) -> &'static str {
    match source {
        Source::File(_) => "file",
        Source::Upstream(_) => "upstream",
        Source::Acme(_) => "acme",
        Source::Local(_) => "local",
    }
}

/// A line for each thing of certificates there is, under its name.
pub(super) fn lines(figures: &Status) -> impl Iterator<Item = (&'static str, String)> {
    let certificates = figures.certificates.as_ref().map(line);
    let keeper = figures.keeper.as_ref().map(keeper_line);
    let acme = figures.acme.as_ref().map(acme_line);
    let lines = [
        ("certificates", certificates),
        ("keeper", keeper),
        ("acme", acme),
    ];
    let there = lines.into_iter();
    there.filter_map(|(name, text)| Some((name, text?)))
}

/// Puts certificates into a line.
fn line(of: &Certificates) -> String {
    let served: u64 = of.served.iter().map(|(_, count)| count).sum();
    let mut text = served.to_string();
    let soon = of.ending_within_days.get("14").copied().unwrap_or(0);
    let over = of.ending_within_days.get("0").copied().unwrap_or(0);
    let demanded = of.on_demand.clone().unwrap_or_default();
    for (number, what) in [
        (over, "expired"),
        (soon.saturating_sub(over), "end within 14 days"),
        (of.broken, "broken"),
        (of.failing, "failing orders"),
        (of.awaited, "still to come"),
        (demanded.obtained, "on demand"),
        (demanded.waiting, "handshakes waiting for one"),
    ] {
        if number > 0 {
            let _ = write!(text, " · {number} {what}");
        }
    }
    text
}

/// Puts the keeper into a line.
fn keeper_line(of: &Keeper) -> String {
    let refused: u64 = of.refused.iter().map(|(_, count)| count).sum();
    let process = process(of.pid, of.restarts);
    let signatures = of.signatures;
    format!("{process} · {signatures} signatures · {refused} refused")
}

/// Puts the acme process into a line.
fn acme_line(of: &AcmeProcess) -> String {
    process(of.pid, of.restarts)
}

/// Puts a process into words.
pub(super) fn process(pid: Option<u32>, restarts: u64) -> String {
    let again = match restarts {
        0 => String::new(),
        times => format!(" · started again {times} times"),
    };
    match pid {
        Some(pid) => format!("pid {pid}{again}"),
        None => format!("is being started again{again}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::certs::tests::{NOW_S, certificate, shared, town};

    #[test]
    fn what_is_counted_is_bounded_whatever_the_number_of_names() {
        let many = (0..250_i64).map(|index| {
            let name = format!("w{index}.example");
            certificate(Source::File(format!("/{name}.pem")), &[&name], index - 5)
        });
        let shared = shared(many.collect());
        let of = summary(&shared.certificates.table(), &shared.orders.all(), NOW_S);
        assert_eq!(of.first_to_end.len(), NAMED_MAX);
        assert_eq!(
            of.first_to_end.first(),
            Some(&("w0.example".into(), NOW_S - 5 * DAY_S))
        );
        let within: Vec<_> = of
            .ending_within_days
            .iter()
            .map(|(_, count)| *count)
            .collect();
        assert_eq!(within, [5, 6, 12, 19, 35]);
        assert_eq!(of.broken, 1);
    }

    #[test]
    fn orders_are_counted_and_what_has_gone_is_forgotten_with_a_new_table() {
        let shared = town();
        let of = summary(&shared.certificates.table(), &shared.orders.all(), NOW_S);
        assert_eq!((of.orders, of.issued, of.failing, of.awaited), (6, 2, 1, 1));
        assert_eq!(shared.certificates.counts().len(), 1);
        shared.certificates.replace(CertificateTable::default());
        assert!(shared.certificates.counts().is_empty());
    }
}
