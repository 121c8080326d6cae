//! When there is no report: what ApacheBench gives up on, and its exit statuses.
//!
//! It ends at the first reset or refused connection unless `-r` is given, and its status is then
//! the number of the system's error.

use super::flags::Flags;
use super::refusal::{Refusal, refuse_plainly};
use crate::client::{Failure, Outcome};

/// ApacheBench's library's "time-out", 70007, as a shell sees it.
const TIMED_OUT: u8 = 119;

/// What is said of a reset whose number nobody kept: ECONNRESET.
const RESET: i32 = 104;

/// Refused without an attempt where nothing is kept of why: ECONNREFUSED.
const REFUSED: i32 = 111;

/// Says why there is no report, if so.
pub(crate) fn check(flags: &Flags, outcome: &Outcome, stalled: bool) -> Result<(), Refusal> {
    let errors = &outcome.errors;
    if stalled || (errors.timeout > 0 && outcome.completed == 0) {
        let words = format!(
            "nothing came for {} seconds: is the server stuck? -s waits longer",
            flags.timeout.as_secs()
        );
        return ended(outcome, TIMED_OUT, &words);
    }
    if flags.goes_on {
        return Ok(());
    }
    if errors.connect > 0 {
        return ended_by(outcome, "connect", REFUSED);
    }
    if errors.reset > 0 {
        return ended_by(outcome, "reset", RESET);
    }
    if errors.tls > 0 && outcome.completed == 0 {
        return ended_by(outcome, "tls", 1);
    }
    Ok(())
}

fn ended_by(outcome: &Outcome, class: &str, usual: i32) -> Result<(), Refusal> {
    let failure = outcome
        .first_failures
        .iter()
        .find(|failure| failure.class == class);
    let (number, words) = match failure {
        Some(Failure { errno, text, .. }) => (errno.unwrap_or(usual), text.as_str()),
        None => (usual, class),
    };
    // Numbers of errors are small.
    let status = u8::try_from(number).unwrap_or(1);
    ended(
        outcome,
        status,
        &format!("{words} ({number}); -r goes on in spite of it"),
    )
}

fn ended(outcome: &Outcome, status: u8, words: &str) -> Result<(), Refusal> {
    let total = match outcome.completed {
        0 => String::new(),
        done => format!("Total of {done} requests completed\n"),
    };
    super::run::print(&total);
    refuse_plainly(status, words)
}
