//! What maps were asked.

use std::sync::atomic::Ordering::Relaxed;

use control::Map;

use crate::generation::Generation;

/// Collects those of a generation.
pub(super) fn collect(generation: &Generation) -> Vec<Map> {
    let maps = generation.maps.iter().map(|map| {
        let stats = map.stats();
        let (running, processes) = map.processes().unzip();
        Map {
            map: map.name().to_owned(),
            questions: stats.questions.load(Relaxed),
            cached: stats.cached.load(Relaxed),
            errors: stats.errors.load(Relaxed),
            restarts: stats.restarts.load(Relaxed),
            running,
            processes,
        }
    });
    maps.collect()
}
