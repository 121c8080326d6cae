//! How a request was rewritten, for `nagaya why`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::exchange::request::RequestId;

/// Steps of a request that are told.
const STEPS_MAX: usize = 16;
/// Bytes of a path or target that are.
const SHOWN_BYTES_MAX: usize = 256;

/// An entry that has put something else in the place of what was asked for.
#[derive(Debug, Clone)]
struct RewriteStep {
    /// The rule it is of, or the site.
    whose: Box<str>,
    from: Box<[u8]>,
    to: Box<[u8]>,
}

/// The steps of a request, the first ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    steps: Vec<RewriteStep>,
    /// How many there were besides.
    more: usize,
}

impl Steps {
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn note(&mut self, whose: &str, from: &[u8], to: &[u8]) {
        if self.steps.len() == STEPS_MAX {
            self.more += 1;
            return;
        }
        let shown = |text: &[u8]| text.iter().take(SHOWN_BYTES_MAX).copied().collect();
        self.steps.push(RewriteStep {
            whose: whose.into(),
            from: shown(from),
            to: shown(to),
        });
    }
}

/// A request that was rewritten.
#[derive(Debug, Clone)]
pub(crate) struct RewrittenRequest {
    pub(crate) id: RequestId,
    /// When it came, since 1970.
    pub(crate) at: Duration,
    pub(crate) site: Arc<str>,
    pub(crate) steps: Steps,
    /// Why it failed; empty if it did not.
    pub(crate) reason: &'static str,
}

/// What `nagaya why` says of it; `moment` is when that was.
pub(crate) fn told(rewritten: &RewrittenRequest, moment: &str) -> String {
    let mut out = String::new();
    // Writing to memory does not fail.
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<11} {text}");
    };
    line("request", &rewritten.id.to_string());
    line("at", moment);
    line("site", &rewritten.site);
    for step in &rewritten.steps.steps {
        let (from, to) = (step.from.escape_ascii(), step.to.escape_ascii());
        line("rewritten", &format!("{from} to {to}, by {}", step.whose));
    }
    if rewritten.steps.more > 0 {
        line("and then", &format!("{} times more", rewritten.steps.more));
    }
    if !rewritten.reason.is_empty() {
        line("reason", rewritten.reason);
    }
    out
}
