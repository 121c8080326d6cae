//! What maps were asked.

use std::sync::atomic::Ordering::Relaxed;

use crate::generation::Generation;
use crate::maps::Map;

/// What one map was asked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct MapFigures {
    /// Its name.
    pub name: String,
    /// Questions.
    pub questions: u64,
    /// Of these, those that were answered from memory.
    pub cached: u64,
    /// Questions that got what `on_error` says.
    pub errors: u64,
    /// Times that a process had to be started again.
    pub restarts: u64,
    /// Processes that run, and those there are to be; `None` for a file.
    pub processes: Option<(usize, usize)>,
}

/// Collects those of a generation.
pub(super) fn collect(generation: &Generation) -> Vec<MapFigures> {
    let figures = |map: &std::sync::Arc<Map>| {
        let stats = map.stats();
        MapFigures {
            name: map.name().to_owned(),
            questions: stats.questions.load(Relaxed),
            cached: stats.cached.load(Relaxed),
            errors: stats.errors.load(Relaxed),
            restarts: stats.restarts.load(Relaxed),
            processes: map.processes(),
        }
    };
    generation.maps.iter().map(figures).collect()
}
