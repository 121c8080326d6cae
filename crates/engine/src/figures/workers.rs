//! What the workers have counted, all of them together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use control::{Programs, Replies, Scripts, Status, Stragglers, Time, Times, Upstream, Worker};
use script::Phase;

use crate::stats::{self, BOUNDS_US, Health, Histogram, Killed, StragglerEnd, WorkerStats};

/// Counters of each worker.
type Stats = [Arc<WorkerStats>];

/// Adds up what is counted; where nobody counts, all of it is 0.
pub(super) fn counted(stats: &Stats, uptime: Duration) -> Status {
    Status {
        version: env!("CARGO_PKG_VERSION").into(),
        workers: stats.iter().map(|stats| worker(stats)).collect(),
        programs: programs(stats),
        stragglers: stragglers(stats),
        scripts: scripts(stats),
        without_site: replies(stats.iter().map(|stats| &stats.without_site)),
        time: Time {
            bounds_us: BOUNDS_US.to_vec(),
            total: times(stats.iter().map(|stats| &stats.total_time)),
            upstream: times(stats.iter().map(|stats| &stats.upstream_time)),
        },
        upstreams: upstreams(stats, uptime),
        ..Status::default()
    }
}

/// Adds up one counter.
fn sum<'a>(stats: &'a Stats, of: impl Fn(&'a WorkerStats) -> &'a AtomicU64) -> u64 {
    stats.iter().map(|stats| of(stats).load(Relaxed)).sum()
}

fn worker(stats: &WorkerStats) -> Worker {
    // In this order: an exchange that ends in between is not under way.
    let (ended, begun) = (stats.ended.load(Relaxed), stats.begun.load(Relaxed));
    Worker {
        connections: 0,
        accepted: stats.accepted.load(Relaxed),
        refused: stats.refused.load(Relaxed),
        handed_over: stats.handed_over.load(Relaxed),
        http2_connections: stats.http2.connections.load(Relaxed),
        http2_streams: stats.http2.streams.load(Relaxed),
        http2_broken_off: stats.http2.broken_off.load(Relaxed),
        in_flight: begun.saturating_sub(ended),
        ended,
        panics: stats.panics.load(Relaxed),
    }
}

fn programs(stats: &Stats) -> Programs {
    let killed = |why: Killed| (why.word(), sum(stats, |it| it.programs.killed(why)));
    Programs {
        running: 0,
        started: sum(stats, |it| &it.programs.started),
        failed: sum(stats, |it| &it.programs.failed),
        killed: Killed::ALL.into_iter().map(killed).collect(),
    }
}

fn stragglers(stats: &Stats) -> Stragglers {
    let ended = |end: StragglerEnd| (end.word(), sum(stats, |it| it.stragglers.ended(end)));
    Stragglers {
        now: stats.iter().map(|it| it.stragglers.now()).sum(),
        ended: StragglerEnd::ALL.into_iter().map(ended).collect(),
    }
}

/// The phases are those of requests.
fn scripts(stats: &Stats) -> Scripts {
    let phase = |phase: Phase| {
        let mut sum = control::Phase::default();
        for (ended, failed) in stats.iter().map(|it| it.scripts.of(phase)) {
            sum.ended += ended;
            sum.failed += failed;
        }
        (phase.name(), sum)
    };
    let phases = Phase::ALL.into_iter();
    Scripts {
        vms: sum(stats, |it| &it.scripts.vms),
        tenant_vms: sum(stats, |it| &it.scripts.own_vms),
        tenant_vms_opened: sum(stats, |it| &it.scripts.own_opened),
        tenant_vms_closed: sum(stats, |it| &it.scripts.own_closed),
        tenant_vms_failed: sum(stats, |it| &it.scripts.own_failed),
        memory_bytes: sum(stats, |it| &it.scripts.memory_bytes),
        parked: sum(stats, |it| &it.scripts.parked),
        phases: phases
            .skip_while(|it| *it != Phase::Rewrite)
            .map(phase)
            .collect(),
    }
}

/// Adds up what exchanges came to.
pub(super) fn replies<'a>(counters: impl Iterator<Item = &'a stats::Replies>) -> Replies {
    let mut sum = Replies::default();
    for counters in counters {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        sum.add(&Replies {
            by_class: counters.by_class.each_ref().map(read),
            bytes_in: read(&counters.bytes_in),
            bytes_out: read(&counters.bytes_out),
            handshakes: read(&counters.handshakes),
            handshake_us: read(&counters.handshake_us),
        });
    }
    sum
}

fn times<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Times {
    let mut sum = Times {
        counts: vec![0; BOUNDS_US.len() + 1],
        sum_us: 0,
    };
    for histogram in histograms {
        for (sum, count) in sum.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.load(Relaxed);
        }
        sum.sum_us = sum.sum_us.wrapping_add(histogram.sum_us.load(Relaxed));
    }
    sum
}

/// Servers of upstreams, by the names of both.
pub(crate) fn upstreams(stats: &Stats, uptime: Duration) -> Vec<Upstream> {
    let mut sums = BTreeMap::<_, Upstream>::new();
    for stats in stats.iter().flat_map(|stats| stats.upstreams()) {
        let key = (stats.upstream.clone(), stats.server.to_string());
        let sum = sums.entry(key).or_default();
        sum.requests += stats.requests.load(Relaxed);
        sum.failures += stats.failures.load(Relaxed);
        sum.timeouts += stats.timeouts.load(Relaxed);
        let under_way = stats.under_way();
        sum.in_flight += under_way.count;
        let oldest = under_way.oldest_ms.map(Duration::from_millis);
        let oldest_s = oldest.map(|since| uptime.saturating_sub(since).as_secs_f64());
        let both = [sum.oldest_s, oldest_s].into_iter().flatten();
        sum.oldest_s = both.reduce(f64::max);
        let fails_in_row = stats.fails_in_row.load(Relaxed);
        sum.fails_in_row = sum.fails_in_row.max(fails_in_row);
        sum.workers += usize::from(stats.requests.load(Relaxed) > 0);
        sum.workers_out += usize::from(stats.is(Health::Out));
        sum.workers_failing += usize::from(stats.is(Health::Failing));
    }
    let named = |((upstream, server), sum)| Upstream {
        upstream,
        server,
        ..sum
    };
    sums.into_iter().map(named).collect()
}
