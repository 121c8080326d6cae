//! One record per exchange, written off the workers; one for many only where a client is refused
//! all the time ([`crate::refused`]).
//!
//! The idea: a worker puts a record into words in memory of its own and hands whole batches to
//! one writer thread, through a queue that never makes it wait. What finds the queue full, the
//! disk full or the reader stuck is dropped, counted and said; requests go on. That every
//! exchange gets its record is `pipeline`'s promise; what a record says is in [`mod@format`].

mod batch;
mod escape;
mod files;
mod format;
mod queue;
mod targets;
#[cfg(test)]
mod tests;
mod times;
mod writer;

pub use queue::{Order, Queue};
pub use targets::{TargetIndex, Targets, TargetsBuilder};
pub use writer::run;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use batch::Batch;
use format::Facts;
use times::Times;

use crate::exchange::Exchange;
use crate::refused::SAMPLE;
use crate::stage::Arrived;

/// A batch this long is handed over at once, not with the next tick.
const BATCH_BYTES: usize = 64 * 1024;

/// One worker's side of the access log.
#[derive(Debug)]
pub struct AccessLog {
    /// Taken for the length of one record.
    page: RefCell<Page>,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Page {
    batch: Batch,
    times: Times,
    /// Values of variables pass through here.
    scratch: Vec<u8>,
}

impl AccessLog {
    /// Makes a worker's side of `queue`.
    pub fn new(queue: Arc<Queue>) -> Self {
        Self {
            page: RefCell::default(),
            queue,
        }
    }

    /// Hands over what has gathered and says what was lost. Called once a tick.
    pub fn tick(&self) {
        let page = &mut *self.page.borrow_mut();
        if !page.batch.is_empty() {
            page.batch = self.queue.hand(std::mem::take(&mut page.batch));
        }
        self.queue.say_losses();
    }

    fn add(&self, arrived: Arrived<'_>, exchange: &Exchange, ended: Instant) {
        let (worker, generation) = (arrived.worker, &arrived.serving.generation);
        let Some(index) = exchange.route.log else {
            return;
        };
        let Some(target) = generation.logs.get(index) else {
            return;
        };
        let Page {
            batch,
            times,
            scratch,
        } = &mut *self.page.borrow_mut();
        let received = worker.clock.unix_at(exchange.request.received);
        times.read(received.as_secs());
        let facts = Facts {
            arrived,
            exchange,
            times,
            micros: received.subsec_micros(),
            ended,
        };
        let line = batch.line_for(target);
        format::write(generation.process.log.format, &facts, scratch, line);
        batch.end_line();
        if batch.len() >= BATCH_BYTES {
            *batch = self.queue.hand(std::mem::take(batch));
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.page.get_mut().batch);
        if !batch.is_empty() {
            self.queue.hand(batch);
        }
    }
}

/// Writes the record of an exchange that ended at this moment, or one for many where its client
/// is refused all the time.
pub fn record(arrived: Arrived<'_>, exchange: &Exchange, ended: Instant) {
    let worker = arrived.worker;
    if exchange.record.is_sampled && !worker.draw().is_multiple_of(SAMPLE) {
        return;
    }
    worker.access_log.add(arrived, exchange, ended);
}

/// Every record that waits for the writer, for tests without one.
#[cfg(test)]
pub(crate) fn waiting(queue: &Queue) -> String {
    let mut text = String::new();
    while let queue::Work::Batch(batch) = queue.next(std::time::Duration::ZERO) {
        for (_, run) in batch.runs() {
            text.push_str(std::str::from_utf8(run).expect("records are ASCII or UTF-8"));
        }
    }
    text
}
