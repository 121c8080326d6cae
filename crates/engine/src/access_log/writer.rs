//! The writer: one thread that moves batches from the queue to descriptors.

use std::io;
use std::time::{Duration, Instant};

use super::files::Files;
use super::queue::{Order, Queue, Work};

/// How often the writer looks after logs it is waiting for.
const LOOK: Duration = Duration::from_millis(500);
/// How long it waits for them when there is nothing else to do any more.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(1);

/// Writes until the queue is closed and empty and every log that was asked for has come.
/// `ask` asks the supervisor to open a log.
pub(crate) fn run(queue: &Queue, ask: impl FnMut(&str) -> io::Result<()>) {
    let mut files = Files::new(ask);
    let mut end = None;
    loop {
        match queue.next(LOOK) {
            Work::Order(Order::Use { logs, files_max }) => files.use_logs(logs, files_max),
            Work::Order(Order::Reopen(logs)) => files.reopen(logs),
            Work::Order(Order::Opened { path, result }) => {
                queue.count_dropped(files.opened(path, result));
            }
            Work::Batch(batch) => {
                for (target, text) in batch.runs() {
                    queue.count_dropped(files.write(target, text));
                }
                queue.give_back(batch);
            }
            Work::Nothing => {}
            Work::End => {
                let end = *end.get_or_insert_with(|| Instant::now() + LAST_ANSWER_MAX);
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() || !files.is_waiting() {
                    return queue.count_dropped(files.give_up_all());
                }
                queue.wait_for_order(left);
            }
        }
        queue.count_dropped(files.give_up(Instant::now()));
    }
}
