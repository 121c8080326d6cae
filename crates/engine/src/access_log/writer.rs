//! The writer: one thread that moves batches from the queue to descriptors.

use std::io;
use std::time::{Duration, Instant};

use super::files::Files;
use super::queue::{Order, Queue, Work};

/// How often the writer looks after logs it is waiting for.
const LOOK: Duration = Duration::from_millis(500);

/// Writes until the queue is closed and empty. `ask` asks the supervisor to open a log.
pub fn run(queue: &Queue, ask: impl FnMut(&str) -> io::Result<()>) {
    let mut files = Files::new(ask);
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
            Work::End => return,
        }
        queue.count_dropped(files.give_up(Instant::now()));
    }
}
