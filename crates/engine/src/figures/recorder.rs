//! The recorder: what it was told and what was dropped, by the workers' counters, and how it is.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use control::{Recorder, RecorderSends, UntoldAlert};
use ipc::server::ProcessLife;

use super::certificates;
use super::printable::printable;
use crate::stats::RecordingStats;
use crate::worker::Shared;

/// It; `None` where there never was one.
pub(super) fn collect(shared: &Shared) -> Option<Recorder> {
    let (life, alerts) = shared.process.recorder().clone();
    if life == ProcessLife::default() {
        return None;
    }
    let workers = || shared.stats.iter().map(|worker| &worker.recording);
    let sum = |of: fn(&RecordingStats) -> &AtomicU64| -> u64 {
        workers().map(|worker| of(worker).load(Relaxed)).sum()
    };
    // It looks at all of them in one turn.
    let last = |of: fn(&RecordingStats) -> &AtomicU64| {
        let last = workers().map(|worker| of(worker).load(Relaxed)).max();
        last.unwrap_or(0)
    };
    let now_us = os::cpu::monotonic_us();
    let ago = |at_us: u64| (at_us > 0).then(|| seconds(now_us.saturating_sub(at_us)));
    let dropped = [
        ("no_reader", sum(|it| &it.unread)),
        ("full", sum(|it| &it.full)),
        ("name", sum(|it| &it.untold)),
    ];
    Some(Recorder {
        pid: Some(life.pid).filter(|pid| *pid > 0),
        restarts: life.restarts,
        told: sum(|it| &it.told),
        excluded: sum(|it| &it.excluded),
        dropped: dropped.into_iter().collect(),
        seen_ago_s: ago(last(|it| &it.seen_us)),
        written_ago_s: ago(last(|it| &it.written_us)),
        cpu_s: seconds(last(|it| &it.cpu_us)),
        alerts_failed: alerts.count,
        untold_alerts: alerts.untold.into_iter().map(untold).collect(),
        sends: sends(
            [0, 1, 2, 3].map(|at| {
                let last =
                    workers().map(|worker| worker.sent.get(at).map_or(0, |it| it.load(Relaxed)));
                last.max().unwrap_or(0)
            }),
            &shared.console.unsent(),
        ),
    })
}

fn sends([standing, lag_s, waiting, lost]: [u64; 4], why: &str) -> Option<RecorderSends> {
    (standing > 0).then_some(RecorderSends {
        up: standing == 1,
        tried: standing != 3,
        why: why.to_owned(),
        lag_s,
        waiting,
        lost,
    })
}

fn untold(it: ipc::recorder::UntoldAlert) -> UntoldAlert {
    let at = jiff::Timestamp::from_second(it.at_s).unwrap_or_default();
    UntoldAlert {
        alert: it.alert,
        at: at.to_string(),
        why: it.why,
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Puts it into a line.
pub(super) fn line(of: &Recorder) -> String {
    let process = certificates::process(of.pid, of.restarts);
    let dropped: u64 = of.dropped.iter().map(|(_, count)| count).sum();
    let mut line = format!("{process} · {} requests told · {dropped} dropped", of.told);
    if of.excluded > 0 {
        line.push_str(&format!(" · {} excluded", of.excluded));
    }
    // What it says of itself may be anything.
    if let Some(ago) = of.seen_ago_s.filter(|ago| *ago >= 1.0) {
        line.push_str(&format!(" · stands still for {ago:.0} s"));
    }
    if let Some(ago) = of.written_ago_s.filter(|ago| *ago >= 30.0) {
        line.push_str(&format!(" · has written nothing for {ago:.0} s"));
    }
    if let Some(sends) = &of.sends {
        let lag_minutes = sends.lag_s / 60;
        let standing = match (sends.up, sends.tried) {
            (true, _) => "sends".to_owned(),
            (false, true) if sends.why.is_empty() => "cannot send".to_owned(),
            (false, true) => format!("cannot send ({})", printable(&sends.why, usize::MAX)),
            (false, false) => "has sent nothing yet".to_owned(),
        };
        line.push_str(&format!(
            " · {standing}, {lag_minutes} min behind, {} waiting",
            sends.waiting
        ));
        if sends.lost > 0 {
            line.push_str(&format!(", {} lost", sends.lost));
        }
    }
    for it in &of.untold_alerts {
        line.push_str(&format!(
            " · its program has not told {}: {}",
            it.alert, it.why
        ));
    }
    line
}
