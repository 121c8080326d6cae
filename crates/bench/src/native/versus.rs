//! `--vs`: the comparison on a thread of its own, its progress and report here.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use crate::compare::{self, Comparison};
use load::Error;
use load::client::Live;
use report::{Block, Document, terminal_width, units};

use super::order::{Order, Versus};
use super::progress::Progress;
use super::run::{LOOK_EVERY, joined, publish, stop_if};

/// Columns of the report where there is no terminal.
const WIDTH: usize = 96;

/// Compares, reports, and says the exit status: 0 B is the same or faster, 1 slower, 3 unknown.
pub(super) fn run(order: &Order, versus: &Versus, interrupted: &AtomicBool) -> Result<u8, Error> {
    let comparison = compared(order, versus, interrupted)?;
    publish(
        order,
        &|paint| {
            without_charts(comparison.document()).to_text(terminal_width().unwrap_or(WIDTH), paint)
        },
        &comparison.to_json(),
        &|| comparison.document(),
    )?;
    Ok(comparison.exit_status())
}

fn compared(order: &Order, versus: &Versus, interrupted: &AtomicBool) -> Result<Comparison, Error> {
    let live = Live::new();
    let mut progress = Progress::new(order);
    progress.step(0, "the first block".to_owned());
    let run = |tell: &mut dyn FnMut(compare::Progress)| {
        let (plan, options) = (&versus.plan, &versus.options);
        compare::run(&order.plan, plan, options, &live, &mut |step| tell(*step))
    };
    told_meanwhile(run, |step| match step {
        Some(step) => progress.step(permille(&step), line(&step)),
        None => stop_if(interrupted, &live),
    })
}

/// Runs something on a thread of its own; hears here what it tells, and `None` again and again.
pub(super) fn told_meanwhile<S: Send, T: Send>(
    run: impl FnOnce(&mut dyn FnMut(S)) -> T + Send,
    mut hear: impl FnMut(Option<S>),
) -> T {
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let tell = tell;
            // Nobody listens any more when this thread's owner has panicked.
            run(&mut |said| drop(tell.send(said)))
        });
        loop {
            hear(None);
            match told.recv_timeout(LOOK_EVERY) {
                Ok(said) => hear(Some(said)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        joined(running.join())
    })
}

fn permille(step: &compare::Progress) -> u64 {
    (step.blocks * 1000 / step.blocks_max.max(1)) as u64
}

/// `block 12 of 80  B to A 1.02 × (0.99 × – 1.05 ×)  2 run again`
fn line(step: &compare::Progress) -> String {
    let mut line = format!("block {} of {}", step.blocks, step.blocks_max);
    if let Some(ratio) = &step.ratio {
        let ratio = units::with_interval(units::Unit::Ratio, ratio.estimate, ratio.low, ratio.high);
        line.push_str(&format!("  B to A {ratio}"));
    }
    if step.voided > 0 {
        line.push_str(&format!("  {} run again for noise", step.voided));
    }
    line
}

/// What a terminal shows: the tables say what must be known, charts would be columns of numbers.
pub(super) fn without_charts(mut document: Document) -> Document {
    for section in &mut document.sections {
        section
            .blocks
            .retain(|block| !matches!(block, Block::Chart(_)));
    }
    document
        .sections
        .retain(|section| !section.blocks.is_empty());
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::stats::Interval;
    use report::{Lines, Paint, Tone};

    #[test]
    fn progress_says_how_far_and_what_is_known() {
        let mut step = compare::Progress {
            blocks: 12,
            blocks_max: 80,
            voided: 2,
            ratio: None,
        };
        assert_eq!(
            (line(&step).as_str(), permille(&step)),
            ("block 12 of 80  2 run again for noise", 150)
        );
        step.voided = 0;
        step.ratio = Some(Interval {
            low: 0.99,
            estimate: 1.02,
            high: 1.05,
        });
        assert_eq!(
            line(&step),
            "block 12 of 80  B to A 1.02 × (0.99 × – 1.05 ×)"
        );
    }

    #[test]
    fn a_terminal_gets_tables_and_notes_without_charts() {
        let mut document = Document::new("t", "s");
        document.section("charts").chart(Lines::default());
        document.section("notes").note(Tone::Warn, "careful");
        let text = without_charts(document).to_text(WIDTH, Paint::Never);
        assert!(
            text.contains("careful") && !text.contains("charts"),
            "{text}"
        );
    }
}
