//! How directories stand, and what rows of them were looked for.

use control::{Directory, SlowQuestion};

use crate::worker::Shared;

/// All directories, in the order of the configuration, with what their process has said last.
pub(crate) fn collect(shared: &Shared) -> Vec<Directory> {
    let told = shared.rows.directories.told();
    let seconds = |ms: u64| ms as f64 / 1e3;
    let looks = shared.rows.directories.looks().into_iter();
    let figures = looks.map(|it| {
        let state = told.iter().find(|(name, _)| *name == it.name);
        let state = state.map(|(_, state)| state.clone()).unwrap_or_default();
        let (error, error_ms) = state.error;
        let was_asked = state.is_up || state.answered_ms.is_some() || !error.is_empty();
        let slowest = state.slowest.into_iter();
        Directory {
            directory: it.name,
            linked: it.is_linked,
            hosts: it.hosts,
            bytes: it.bytes,
            waiting: it.waiting,
            fresh: it.counters.fresh,
            old: it.counters.old,
            waited: it.counters.waited,
            asked: it.counters.asked,
            rows: it.counters.rows,
            missing: it.counters.missing,
            wrong: it.counters.wrong,
            down: it.counters.down,
            gave_up: it.counters.gave_up,
            busy: it.counters.busy,
            answers: was_asked.then_some(state.is_up),
            answered_s: state.answered_ms.map(seconds),
            error_s: (!error.is_empty()).then(|| seconds(error_ms)),
            error: Some(error).filter(|error| !error.is_empty()),
            snapshot_rows: state.rows,
            slowest: slowest
                .map(|(host, us)| SlowQuestion { host, us })
                .collect(),
        }
    });
    figures.collect()
}
