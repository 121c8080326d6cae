//! How busy each worker is, for all to see: connections, the turn it is in, its last heartbeat.
//!
//! A worker's loop is either parked (waiting for events) or in a turn. The load table notes when a
//! turn began, so that others can tell a worker that is held up from one that is idle. Long turns
//! are summed up and forgotten by halves. A worker that was held up more than another lately, or
//! has clearly more connections than its share, is not given new ones.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use crate::deadline::TICK_MS;

/// A turn longer than this holds up new connections.
pub(crate) const TURN_LONG_US: u64 = 5_000;
/// Long turns of late, in total, that make a worker hand its new connections over. One alone may
/// be the machine's doing.
const HELD_UP_US: u64 = 40_000;
/// In this time half of what held a worker up is forgotten.
const HALF_LIFE_US: u64 = 250_000;
/// Connections above the mean that are no imbalance yet.
const SLACK: usize = 4;

/// The load table.
#[derive(Debug)]
pub struct LoadTable {
    started: Instant,
    workers: Vec<WorkerLoad>,
}

/// One worker's load; a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerLoad {
    connections: AtomicUsize,
    /// When the present turn began; 0 while parked.
    turn_us: AtomicU64,
    /// The long turns of late, as they stood at `held_up_at_us`.
    held_up_us: AtomicU64,
    held_up_at_us: AtomicU64,
    beat_us: AtomicU64,
    /// How late its ticks came since somebody looked, at worst.
    lag_us: AtomicU64,
    request: AtomicU64,
}

impl LoadTable {
    /// Makes a load table for so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            started: Instant::now(),
            workers: (0..workers).map(|_| WorkerLoad::default()).collect(),
        }
    }

    /// Microseconds since the load table was made; never 0.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX - 1) + 1
    }

    /// The worker's loop begins a turn.
    pub fn turn_begins(&self, worker: usize) {
        if let Some(load) = self.workers.get(worker) {
            load.turn_us.store(self.now_us(), Relaxed);
        }
    }

    /// The worker's loop goes to sleep.
    pub fn turn_ends(&self, worker: usize) {
        let Some(load) = self.workers.get(worker) else {
            return;
        };
        let began_us = load.turn_us.swap(0, Relaxed);
        let now_us = self.now_us();
        let turn_us = now_us.saturating_sub(began_us);
        if began_us != 0 && turn_us > TURN_LONG_US {
            let held_up_us = load.past_us(now_us).saturating_add(turn_us);
            load.held_up_us.store(held_up_us, Relaxed);
            load.held_up_at_us.store(now_us, Relaxed);
        }
    }

    /// The worker is alive.
    pub fn beat(&self, worker: usize) {
        if let Some(load) = self.workers.get(worker) {
            load.beat_us.store(self.now_us(), Relaxed);
        }
    }

    /// A tick of the worker's came so late: that long nothing that was ready was looked at.
    pub fn note_lag(&self, worker: usize, late: Duration) {
        let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        if let Some(load) = self.workers.get(worker) {
            load.lag_us.fetch_max(late_us, Relaxed);
        }
    }

    /// How late the worker came to its ticks since this was last asked, at worst, and to the one
    /// that is due now; `None` before its first heartbeat and after its end. Asked by one alone.
    pub fn take_lag_us(&self, worker: usize) -> Option<u64> {
        let overdue_us = self.silence_us(worker)?.saturating_sub(TICK_MS * 1_000);
        let load = self.workers.get(worker)?;
        Some(load.lag_us.swap(0, Relaxed).max(overdue_us))
    }

    /// The worker has ended: nobody waits for its next heartbeat, or for the end of its turn.
    pub fn leave(&self, worker: usize) {
        if let Some(load) = self.workers.get(worker) {
            load.beat_us.store(0, Relaxed);
            load.turn_us.store(0, Relaxed);
        }
    }

    /// How long ago the worker last showed life; `None` before its first heartbeat and after
    /// its end.
    pub fn silence_us(&self, worker: usize) -> Option<u64> {
        let beat_us = self.workers.get(worker)?.beat_us.load(Relaxed);
        (beat_us != 0).then(|| self.now_us().saturating_sub(beat_us))
    }

    /// Notes the id of the request a worker has begun, for the report on one that stands still.
    pub fn note_request(&self, worker: usize, number: u64) {
        if let Some(load) = self.workers.get(worker) {
            load.request.store(number, Relaxed);
        }
    }

    /// The id of the request a worker began last.
    pub fn last_request(&self, worker: usize) -> u64 {
        self.workers
            .get(worker)
            .map_or(0, |load| load.request.load(Relaxed))
    }

    /// A worker has one connection more.
    pub fn connected(&self, worker: usize) {
        if let Some(load) = self.workers.get(worker) {
            load.connections.fetch_add(1, Relaxed);
        }
    }

    /// A worker has one connection less.
    pub fn disconnected(&self, worker: usize) {
        if let Some(load) = self.workers.get(worker) {
            load.connections.fetch_sub(1, Relaxed);
        }
    }

    /// Connections of one worker.
    pub fn connections(&self, worker: usize) -> usize {
        self.workers
            .get(worker)
            .map_or(0, |load| load.connections.load(Relaxed))
    }

    /// Connections of all workers.
    pub fn connections_total(&self) -> usize {
        self.workers
            .iter()
            .map(|load| load.connections.load(Relaxed))
            .sum()
    }

    /// Whether every worker is parked.
    pub fn is_idle(&self) -> bool {
        let parked = |load: &WorkerLoad| load.turn_us.load(Relaxed) == 0;
        self.workers.iter().all(parked)
    }

    /// Whether the worker's present turn is long, so that it can't accept just now.
    pub fn is_stuck(&self, worker: usize) -> bool {
        self.turn_us(worker) > TURN_LONG_US
    }

    /// Who should take a connection that arrived at `worker`: itself, unless it has clearly more
    /// than its share, or is held up at least twice as much as another that has not.
    pub fn place(&self, worker: usize) -> usize {
        if self.workers.len() < 2 {
            return worker;
        }
        let share_max = self.share_max();
        if self.connections(worker) > share_max {
            return (0..self.workers.len())
                .min_by_key(|other| self.connections(*other))
                .unwrap_or(worker);
        }
        let held_up_us = self.held_up_us(worker);
        if held_up_us < HELD_UP_US {
            return worker;
        }
        let fit = |other: &usize| {
            self.held_up_us(*other) < held_up_us / 2 && self.connections(*other) <= share_max
        };
        self.freest((0..self.workers.len()).filter(fit))
            .unwrap_or(worker)
    }

    /// A worker that can take a connection `stuck` can't accept; `None` when all are busy or full.
    pub fn rescuer(&self, stuck: usize) -> Option<usize> {
        let share_max = self.share_max();
        let fit = |other: &usize| {
            *other != stuck && !self.is_stuck(*other) && self.connections(*other) <= share_max
        };
        self.freest((0..self.workers.len()).filter(fit))
    }

    /// Connections that are no more than a worker's share, give or take.
    fn share_max(&self) -> usize {
        let mean = self.connections_total() / self.workers.len().max(1);
        mean + mean / 8 + SLACK
    }

    /// The one held up least, in steps of [`TURN_LONG_US`]; of those the one with the fewest
    /// connections.
    fn freest(&self, workers: impl Iterator<Item = usize>) -> Option<usize> {
        workers.min_by_key(|worker| {
            (
                self.held_up_us(*worker) / TURN_LONG_US,
                self.connections(*worker),
            )
        })
    }

    /// How long the worker was held up lately, its present turn included.
    fn held_up_us(&self, worker: usize) -> u64 {
        let load = self.workers.get(worker);
        let past_us = load.map_or(0, |load| load.past_us(self.now_us()));
        match self.turn_us(worker) {
            long @ TURN_LONG_US.. => past_us.saturating_add(long),
            _ => past_us,
        }
    }

    /// Length of the present turn; 0 while parked.
    fn turn_us(&self, worker: usize) -> u64 {
        match self
            .workers
            .get(worker)
            .map(|load| load.turn_us.load(Relaxed))
        {
            None | Some(0) => 0,
            Some(began_us) => self.now_us().saturating_sub(began_us),
        }
    }
}

impl WorkerLoad {
    /// What is left of the long turns of the past.
    fn past_us(&self, now_us: u64) -> u64 {
        let held_up_us = self.held_up_us.load(Relaxed);
        let since_us = now_us.saturating_sub(self.held_up_at_us.load(Relaxed));
        let halvings = u32::try_from(since_us / HALF_LIFE_US).unwrap_or(u32::MAX);
        held_up_us.checked_shr(halvings).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets time pass, as the load table sees it.
    fn pass(loads: &mut LoadTable, ms: u64) {
        loads.started -= Duration::from_millis(ms);
    }

    #[test]
    fn a_connection_stays_where_it_arrived_while_loads_are_even() {
        let loads = LoadTable::new(2);
        for _ in 0..50 {
            loads.connected(0);
            loads.connected(1);
        }
        assert_eq!((loads.place(0), loads.place(1)), (0, 1));
    }

    #[test]
    fn a_worker_with_more_than_its_share_hands_over() {
        let loads = LoadTable::new(2);
        for _ in 0..50 {
            loads.connected(0);
        }
        assert_eq!((loads.place(0), loads.place(1)), (1, 1));
    }

    #[test]
    fn a_worker_that_was_held_up_hands_over() {
        let mut loads = LoadTable::new(2);
        loads.turn_begins(0);
        pass(&mut loads, 7);
        assert!(loads.is_stuck(0));
        assert_eq!(loads.rescuer(0), Some(1));
        assert_eq!(loads.place(0), 0, "one long turn is soon over");
        pass(&mut loads, 40);
        loads.turn_ends(0);
        assert_eq!(loads.place(0), 1);
    }

    #[test]
    fn of_two_that_were_held_up_the_less_is_chosen() {
        let loads = LoadTable::new(2);
        let hold_up = |worker: usize, long_us| {
            loads.workers[worker].held_up_us.store(long_us, Relaxed);
            loads.workers[worker]
                .held_up_at_us
                .store(loads.now_us(), Relaxed);
        };
        hold_up(0, 100_000);
        hold_up(1, 10_000);
        assert_eq!((loads.place(0), loads.place(1)), (1, 1));
        hold_up(1, 90_000);
        assert_eq!((loads.place(0), loads.place(1)), (0, 1));
    }

    #[test]
    fn what_held_a_worker_up_is_forgotten() {
        let load = WorkerLoad::default();
        load.held_up_us.store(50_000, Relaxed);
        load.held_up_at_us.store(1, Relaxed);
        assert_eq!(load.past_us(1), 50_000);
        assert_eq!(load.past_us(1 + 2 * HALF_LIFE_US), 12_500);
        assert_eq!(load.past_us(1 + 100 * HALF_LIFE_US), 0);
    }

    #[test]
    fn a_worker_is_as_late_as_its_worst_tick_and_the_one_that_is_due() {
        let mut loads = LoadTable::new(2);
        assert_eq!((loads.take_lag_us(0), loads.take_lag_us(7)), (None, None));
        loads.beat(0);
        for late_ms in [3, 2_000_000, 1] {
            loads.note_lag(0, Duration::from_millis(late_ms));
        }
        assert_eq!(loads.take_lag_us(0), Some(2_000_000_000));
        assert!(
            loads
                .take_lag_us(0)
                .is_some_and(|lag_us| lag_us < 1_000_000_000)
        );
        pass(&mut loads, TICK_MS + 20);
        assert!(loads.take_lag_us(0).is_some_and(|lag_us| lag_us >= 20_000));
        loads.leave(0);
        assert_eq!(loads.take_lag_us(0), None);
    }
}
