//! When there is no report: what ApacheBench gives up on, and its exit statuses.
//!
//! It ends at the first refused or reset connection unless `-r` is given, and after ten that did
//! not come about for another reason; its status is then the number of the system's error.

use super::flags::Flags;
use super::refusal::{Refusal, refuse_plainly};
use load::client::{Broken, Failure, Outcome};

/// ApacheBench's library's "time-out", 70007, as a shell sees it.
const TIMED_OUT: u8 = 119;

/// Connections that may fail.
const FAILURES_MAX: u64 = 10;

/// ECONNREFUSED.
const REFUSED: i32 = 111;

/// Whether going on is of no use.
pub(crate) fn is_near(flags: &Flags, broken: Broken) -> bool {
    !flags.goes_on && (broken.reset > 0 || broken.unconnected > FAILURES_MAX)
}

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
    let [connect, reset, tls] = ["connect", "reset", "tls"].map(|class| first(outcome, class));
    if let Some(failure) = connect
        .filter(|failure| failure.errno == Some(REFUSED))
        .or(reset)
    {
        return ended_by(outcome, failure, "; -r goes on in spite of it");
    }
    let aborted = errors.connect + errors.tls > FAILURES_MAX;
    match connect
        .or(tls)
        .filter(|_| aborted || outcome.completed == 0)
    {
        Some(failure) if aborted => ended_by(outcome, failure, "\nTest aborted after 10 failures"),
        Some(failure) => ended_by(outcome, failure, ""),
        None => Ok(()),
    }
}

fn first<'a>(outcome: &'a Outcome, class: &str) -> Option<&'a Failure> {
    let counts = outcome.errors.named();
    let happened = counts
        .iter()
        .any(|(name, count)| *name == class && *count > 0);
    let mut failures = outcome.first_failures.iter();
    failures.find(|failure| happened && failure.class == class)
}

fn ended_by(outcome: &Outcome, failure: &Failure, remedy: &str) -> Result<(), Refusal> {
    // Numbers of the system's errors are small.
    let status = failure.errno.and_then(|number| u8::try_from(number).ok());
    let words = failure.text.replace("(os error ", "(");
    ended(outcome, status.unwrap_or(1), &format!("{words}{remedy}"))
}

fn ended(outcome: &Outcome, status: u8, words: &str) -> Result<(), Refusal> {
    if outcome.completed > 0 {
        super::run::print(&format!(
            "Total of {} requests completed\n",
            outcome.completed
        ));
    }
    refuse_plainly(status, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::client::Errors;

    fn outcome(completed: u64, errors: Errors, class: &'static str, errno: i32) -> Outcome {
        Outcome {
            completed,
            errors,
            first_failures: vec![Failure {
                class,
                errno: Some(errno),
                text: format!("do it: no (os error {errno})"),
            }],
            ..Outcome::default()
        }
    }

    #[test]
    fn what_ends_a_run_has_the_systems_number() {
        let flags = Flags::default();
        let check = |completed, errors, class, errno, expected: Option<u8>| {
            let outcome = outcome(completed, errors, class, errno);
            let found = check(&flags, &outcome, false)
                .err()
                .map(|refusal| refusal.status);
            assert_eq!(found, expected, "{class} {errno} after {completed}");
        };
        let connect = |connect| Errors {
            connect,
            ..Errors::default()
        };
        let reset = Errors {
            reset: 1,
            ..Errors::default()
        };
        let closed = Errors {
            closed: 9,
            ..Errors::default()
        };
        let timeout = Errors {
            timeout: 1,
            ..Errors::default()
        };
        let tls = Errors {
            tls: 1,
            ..Errors::default()
        };
        check(0, connect(1), "connect", 111, Some(111));
        check(50, connect(1), "connect", 111, Some(111));
        check(0, connect(1), "connect", 101, Some(101));
        check(50, connect(10), "connect", 99, None);
        check(50, connect(11), "connect", 99, Some(99));
        check(50, reset, "reset", 104, Some(104));
        check(50, closed, "closed", 104, None);
        check(50, timeout, "timeout", 110, None);
        check(0, timeout, "timeout", 110, Some(119));
        check(0, tls, "tls", 1000, Some(1));
        check(50, tls, "tls", 1000, None);
        // A connection that failed and was tried again with success is no failure.
        check(50, Errors::default(), "connect", 111, None);
    }

    #[test]
    fn a_run_that_goes_on_ends_only_when_nothing_comes() {
        let flags = Flags {
            goes_on: true,
            ..Flags::default()
        };
        let reset = outcome(
            5,
            Errors {
                reset: 1,
                ..Errors::default()
            },
            "reset",
            104,
        );
        assert!(check(&flags, &reset, false).is_ok());
        assert_eq!(
            check(&flags, &reset, true)
                .err()
                .map(|refusal| refusal.status),
            Some(119)
        );
        assert!(!is_near(
            &flags,
            Broken {
                all: 99,
                reset: 99,
                unconnected: 99
            }
        ));
        let flags = Flags::default();
        assert!(is_near(
            &flags,
            Broken {
                all: 1,
                reset: 1,
                unconnected: 0
            }
        ));
        assert!(!is_near(
            &flags,
            Broken {
                all: 10,
                reset: 0,
                unconnected: 10
            }
        ));
    }
}
