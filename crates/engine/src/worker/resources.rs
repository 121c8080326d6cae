//! What a worker serves with whatever comes: clocks, buffers, helper threads, counters.
//!
//! Whoever connects, reads or waits is given these and no more of the worker.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use config::model::Timeouts;

use crate::buffer::BufferPool;
use crate::clock::Clock;
use crate::compression::encoder::Places;
use crate::deadline::Deadlines;
use crate::helper::Helpers;
use crate::resolve::file_systems::FileSystems;
use crate::stats::WorkerStats;

/// Clocks, buffers, threads and counters of one worker.
#[derive(Debug)]
pub struct Resources {
    /// The worker's number, from 0.
    pub index: usize,
    /// How many workers the server has.
    pub workers: usize,
    /// Its deadlines.
    pub deadlines: Rc<Deadlines>,
    /// Its wall clock.
    pub clock: Rc<Clock>,
    /// Its threads for what may wait.
    pub helpers: Helpers,
    /// The places for what compresses replies on their way.
    pub(crate) encoders: Places,
    /// What it remembers of the file systems roots lie on.
    pub file_systems: FileSystems,
    /// Its buffers.
    pub buffers: BufferPool,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
    /// How long connecting to a server may take, in milliseconds; of the generation in force.
    pub connect_ms: Cell<u64>,
    /// How long a name's addresses are used, in milliseconds; of the generation in force.
    pub resolve_ms: Cell<u64>,
}

impl Resources {
    pub(super) fn new(
        index: usize,
        stats: &[Arc<WorkerStats>],
        deadlines: Rc<Deadlines>,
        timeouts: &Timeouts,
    ) -> Self {
        let resources = Self {
            index,
            workers: stats.len(),
            deadlines,
            clock: Rc::new(Clock::new()),
            helpers: Helpers::default(),
            encoders: Places::default(),
            file_systems: FileSystems::default(),
            buffers: BufferPool::default(),
            stats: stats.get(index).map(Arc::clone).unwrap_or_default(),
            connect_ms: Cell::new(0),
            resolve_ms: Cell::new(0),
        };
        resources.serve(timeouts);
        resources
    }

    /// Takes over the timeouts of the generation in force.
    pub(super) fn serve(&self, timeouts: &Timeouts) {
        self.connect_ms.set(timeouts.upstream_connect_ms);
        self.resolve_ms.set(timeouts.resolve_ms);
    }
}
