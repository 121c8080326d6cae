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
pub(crate) mod page;
pub(crate) mod queue;
pub(crate) mod targets;
#[cfg(test)]
mod tests;
mod times;
mod writer;

pub(crate) use writer::run;

use std::time::Instant;

use format::Facts;
use targets::TargetIndex;

use crate::exchange::Exchange;
use crate::stage::Arrived;

/// Writes the record of an exchange that ended at this moment.
pub(crate) fn record(arrived: Arrived<'_>, exchange: &Exchange, ended: Instant) {
    let worker = arrived.worker;
    let generation = &arrived.serving.generation;
    let of_rule = generation
        .logs
        .rules_say
        .then(|| of_rule(arrived, exchange));
    let target = of_rule.flatten().or(exchange.route.log);
    let Some(target) = target.and_then(|at| generation.logs.get(at)) else {
        return;
    };
    let received = worker.clock.unix_at(exchange.request.received);
    worker
        .access_log
        .add(target, received, |times, scratch, line| {
            let facts = Facts {
                arrived,
                exchange,
                times,
                micros: received.subsec_micros(),
                ended,
            };
            format::write(generation.process.log.format, &facts, scratch, line);
        });
}

/// Where the last of the rules that matched wants the record.
fn of_rule(arrived: Arrived<'_>, exchange: &Exchange) -> Option<TargetIndex> {
    let routed = arrived.routed(&exchange.route)?;
    let rules = routed.rules(&exchange.route).rev();
    rules.into_iter().find_map(|rule| rule.log)
}

/// Every record that waits for the writer, for tests without one.
#[cfg(test)]
pub(crate) fn waiting(queue: &queue::Queue) -> String {
    let mut text = String::new();
    while let queue::Work::Batch(batch) = queue.next(std::time::Duration::ZERO) {
        for (_, run) in batch.runs() {
            text.push_str(std::str::from_utf8(run).expect("records are ASCII or UTF-8"));
        }
    }
    text
}
