//! What ApacheBench does not say and its reader should know; it stands after the report.

use std::fmt::Write as _;

use super::flags::Flags;
use super::report::Told;
use load::client::{Exchange, Outcome};

/// The lines, with an empty one before them; nothing where there is nothing to say.
pub(crate) fn text(told: Told<'_>, outcome: &Outcome) -> String {
    let lines = [
        refused(outcome),
        length(told),
        broken(outcome),
        bottleneck(told, outcome),
    ];
    let lines: Vec<_> = lines.into_iter().flatten().collect();
    match lines.as_slice() {
        [] => String::new(),
        lines => format!("\n{}\n", lines.join("\n")),
    }
}

/// That all replies were refusals, which are often faster than what was asked for.
fn refused(outcome: &Outcome) -> Option<String> {
    let good = outcome.statuses.range(200..400).next();
    let first = outcome.first.as_ref().filter(|_| good.is_none())?;
    Some(format!(
        "Note: not one good reply, the first was status {}: is the URL right?\n      \
         These are the figures of refusals.",
        first.status
    ))
}

/// Why "Length" is no failure where a page is made anew each time.
fn length(told: Told<'_>) -> Option<String> {
    let count = told.figures.failed.length;
    (count > 0).then(|| {
        format!(
            "Note: the {count} failed by Length were whole replies, only not of {} as the first one \
             was.\n      On a page that is made anew each time that is no failure: try -l.",
            told.length()
        )
    })
}

/// What the failures were.
fn broken(outcome: &Outcome) -> Option<String> {
    let first = outcome.first_failures.first()?;
    (outcome.errors.total() > 0).then(|| {
        let counts = outcome.errors.named();
        let counts = counts.iter().filter(|(_, count)| *count > 0);
        let counts: Vec<_> = counts
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        format!(
            "Note: requests without a whole reply: {}. The first: {}",
            counts.join(", "),
            first.text
        )
    })
}

/// Whether the figures are ours instead of the server's.
fn bottleneck(told: Told<'_>, outcome: &Outcome) -> Option<String> {
    outcome.is_generator_bound().then(|| {
        format!(
            "Note: this program was the bottleneck (its busiest thread had {:.0} % of a core to do): \
             the server\n      may be faster than this. More threads help where cores are free: -W {}.",
            outcome.generator_busy * 100.0,
            told.flags.threads * 2
        )
    })
}

/// What `-v` tells of each reply; ours come all together, when the load is over.
pub(crate) fn statuses(flags: &Flags, each: &[Exchange]) -> String {
    let mut out = String::new();
    for Exchange { status, .. } in each.iter().filter(|_| flags.verbosity >= 2) {
        // Writing to memory does not fail.
        let _ = match status {
            200..300 if flags.verbosity >= 3 => writeln!(out, "LOG: Response code = {status}"),
            200..300 => Ok(()),
            _ => writeln!(out, "WARNING: Response code not 2xx ({status})"),
        };
    }
    out
}
