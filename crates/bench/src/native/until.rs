//! `--until`: the search on a thread of its own, its progress and report here.

use std::sync::atomic::AtomicBool;

use crate::search::{self, ProbeResult, Search, Tried};
use load::Error;
use load::client::Live;
use report::{terminal_width, units};

use super::order::Order;
use super::progress::Progress;
use super::run::{publish, stop_if};
use super::versus::{told_meanwhile, without_charts};

/// Columns of the report where there is no terminal.
const WIDTH: usize = 110;
/// Probes that are usual, in thousandths each.
const PROBE_PERMILLE: u64 = 50;

/// Searches, reports, and says the exit status: 0 a rate was found, 1 none holds, 3 unknown.
pub(super) fn run(
    order: &Order,
    options: &search::Options,
    interrupted: &AtomicBool,
) -> Result<u8, Error> {
    let search = searched(order, options, interrupted)?;
    publish(
        order,
        &|paint| {
            without_charts(search.document()).to_text(terminal_width().unwrap_or(WIDTH), paint)
        },
        &search.to_json(),
        &|| search.document(),
    )?;
    Ok(search.exit_status())
}

fn searched(
    order: &Order,
    options: &search::Options,
    interrupted: &AtomicBool,
) -> Result<Search, Error> {
    let live = Live::new();
    let mut progress = Progress::new(order);
    progress.milestone(0, "a closed loop, to find a rate to begin with".to_owned());
    let run = |tell: &mut dyn FnMut(String)| {
        search::run(&order.plan, options, &live, &mut |tried| tell(line(tried)))
    };
    let mut done = 0;
    told_meanwhile(run, |line| match line {
        Some(line) => {
            done = (done + PROBE_PERMILLE).min(1000 - PROBE_PERMILLE);
            progress.milestone(done, line);
        }
        None => stop_if(interrupted, &live),
    })
}

/// `5,390/s holds: p99 1.09 ms`, `5,390/s misses: p99 61.2 ms`
fn line(tried: &Tried) -> String {
    let probe = &tried.probe;
    let rate = units::per_second(probe.offered);
    match probe.result {
        ProbeResult::Holds => format!("{rate} holds: p99 {}", units::micros(probe.p99_us)),
        ProbeResult::Fails => format!("{rate} misses: {}", probe.missed.join(", ")),
        ProbeResult::GeneratorBound => {
            format!(
                "{rate}: {}, the generator was late",
                probe.missed.join(", ")
            )
        }
    }
}
