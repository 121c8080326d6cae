//! Between the workers and the writer: batches that may be dropped, orders that may not.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::batch::Batch;
use ipc::server::Log;

/// Batches that wait for the writer: 16 MiB when workers are busy.
const BATCHES_MAX: usize = 256;
/// Emptied batches kept for the workers.
const SPARE_MAX: usize = 16;
/// Losses are said no more often than this.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// The way from the workers and the server's main thread to the writer.
#[derive(Debug)]
pub struct Queue {
    /// Held to move a batch or an order in or out, never while anything is written.
    state: Mutex<QueueState>,
    filled: Condvar,
    /// Records lost since the start.
    dropped: AtomicU64,
    /// As many of them have been said, and when last: in milliseconds after `started`.
    said: AtomicU64,
    said_at_ms: AtomicU64,
    started: Instant,
}

#[derive(Debug, Default)]
struct QueueState {
    batches: VecDeque<Batch>,
    orders: VecDeque<Order>,
    spare: Vec<Batch>,
    closed: bool,
}

/// What the writer can be told.
#[derive(Debug)]
pub enum Order {
    /// A new generation: its logs with a fixed path, and how many others may be open.
    Use {
        /// Open already.
        logs: Vec<Log>,
        /// Cap on descriptors from templates.
        files_max: usize,
    },
    /// Files were moved away: here are fresh ones.
    Reopen(Vec<Log>),
    /// The supervisor's answer.
    Opened {
        /// The path asked for.
        path: String,
        /// The log, or why there is none.
        result: Result<OwnedFd, String>,
    },
}

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Work {
    Order(Order),
    Batch(Batch),
    /// Nothing came for a while.
    Nothing,
    /// Nothing will come any more.
    End,
}

impl Queue {
    /// Makes an empty queue.
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            dropped: AtomicU64::new(0),
            said: AtomicU64::new(0),
            said_at_ms: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// Takes a batch and gives an empty one. With no room the batch is dropped and counted.
    pub(super) fn hand(&self, mut batch: Batch) -> Batch {
        let mut state = self.lock();
        if state.batches.len() >= BATCHES_MAX || state.closed {
            drop(state);
            self.count_dropped(batch.records());
            batch.clear();
            return batch;
        }
        state.batches.push_back(batch);
        let spare = state.spare.pop().unwrap_or_default();
        drop(state);
        self.filled.notify_one();
        spare
    }

    /// Tells the writer something.
    pub fn order(&self, order: Order) {
        self.lock().orders.push_back(order);
        self.filled.notify_one();
    }

    /// Lets the writer end when it has written what is here.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Waits for something to do, but no longer than `patience`.
    pub(super) fn next(&self, patience: Duration) -> Work {
        let idle = |state: &mut QueueState| {
            state.orders.is_empty() && state.batches.is_empty() && !state.closed
        };
        let (mut state, _) = self
            .filled
            .wait_timeout_while(self.lock(), patience, idle)
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = state.orders.pop_front() {
            return Work::Order(order);
        }
        match state.batches.pop_front() {
            Some(batch) => Work::Batch(batch),
            None if state.closed => Work::End,
            None => Work::Nothing,
        }
    }

    /// Waits for an order, but no longer than `patience`: what a closed queue may still get.
    pub(super) fn wait_for_order(&self, patience: Duration) {
        let idle = |state: &mut QueueState| state.orders.is_empty();
        let waited = self.filled.wait_timeout_while(self.lock(), patience, idle);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes back a batch that has been written.
    pub(super) fn give_back(&self, mut batch: Batch) {
        batch.clear();
        let mut state = self.lock();
        if state.spare.len() < SPARE_MAX {
            state.spare.push(batch);
        }
    }

    pub(super) fn count_dropped(&self, records: u64) {
        self.dropped.fetch_add(records, Relaxed);
    }

    /// Records lost since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Says how many records were lost since it was last said, at most once a second.
    ///
    /// The workers call it: the writer may be the one that is stuck.
    pub fn say_losses(&self) {
        let (dropped, said) = (self.dropped(), self.said.load(Relaxed));
        if dropped == said {
            return;
        }
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last_ms = self.said_at_ms.load(Relaxed);
        let is_due =
            last_ms == 0 || u128::from(now_ms - last_ms.min(now_ms)) >= SAY_EVERY.as_millis();
        let claim = || self.said.compare_exchange(said, dropped, Relaxed, Relaxed);
        if is_due && claim().is_ok() {
            self.said_at_ms.store(now_ms.max(1), Relaxed);
            tracing::error!(
                records = dropped - said,
                total = dropped,
                "access records were lost: their log cannot be opened, or not written fast enough"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::model::LogTarget;

    use super::*;

    fn batch(records: usize) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..records {
            batch.line_for(&Arc::new(LogTarget::Stdout)).push(b'x');
            batch.end_line();
        }
        batch
    }

    #[test]
    fn with_no_room_batches_are_dropped_and_counted() {
        let queue = Queue::new();
        for _ in 0..BATCHES_MAX + 3 {
            assert!(queue.hand(batch(2)).is_empty());
        }
        assert_eq!(queue.dropped(), 6);
        queue.say_losses();
        assert_eq!(queue.said.load(Relaxed), 6);
        queue.hand(batch(1));
        // Within the same second nothing more is said.
        queue.say_losses();
        assert_eq!(queue.said.load(Relaxed), 6);
    }

    #[test]
    fn orders_find_room_in_a_full_queue_and_come_first() {
        let queue = Queue::new();
        for _ in 0..=BATCHES_MAX {
            queue.hand(batch(1));
        }
        queue.order(Order::Reopen(Vec::new()));
        assert!(matches!(
            queue.next(Duration::ZERO),
            Work::Order(Order::Reopen(_))
        ));
        queue.close();
        for _ in 0..BATCHES_MAX {
            assert!(matches!(queue.next(Duration::ZERO), Work::Batch(_)));
        }
        assert!(matches!(queue.next(Duration::ZERO), Work::End));
    }

    #[test]
    fn neighbours_with_one_target_are_one_write() {
        let (a, b) = (LogTarget::Stdout, LogTarget::File("/b".into()));
        let mut batch = Batch::default();
        for target in [&a, &a, &b, &a] {
            batch.line_for(&Arc::new(target.clone())).push(b'x');
            batch.end_line();
        }
        let runs: Vec<_> = batch.runs().collect();
        assert_eq!(runs, [(&a, &b"x\nx\n"[..]), (&b, b"x\n"), (&a, b"x\n")]);
        assert_eq!(batch.records(), 4);
    }
}
