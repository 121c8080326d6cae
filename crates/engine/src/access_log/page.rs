//! One worker's side of the access log: the lines that gather until a batch of them is handed over.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use config::model::LogTarget;

use super::batch::Batch;
use super::queue::Queue;
use super::times::Times;

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

    /// Adds a line for `target` to what has gathered, of a request received at this time since 1970.
    /// `put` writes it; it is given the time in words, and scratch.
    pub(super) fn add(
        &self,
        target: &Arc<LogTarget>,
        received: Duration,
        put: impl FnOnce(&Times, &mut Vec<u8>, &mut Vec<u8>),
    ) {
        let Page {
            batch,
            times,
            scratch,
        } = &mut *self.page.borrow_mut();
        times.read(received.as_secs());
        put(times, scratch, batch.line_for(target));
        batch.end_line();
        if batch.len() >= BATCH_BYTES {
            *batch = self.queue.hand(std::mem::take(batch));
        }
    }

    /// Adds lines for `target` that end in line feeds.
    pub(crate) fn add_lines(&self, target: &Arc<LogTarget>, lines: &str) {
        let batch = &mut self.page.borrow_mut().batch;
        for line in lines.lines() {
            batch.line_for(target).extend_from_slice(line.as_bytes());
            batch.end_line();
        }
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
