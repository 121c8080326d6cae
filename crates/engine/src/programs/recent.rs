//! Requests that were not answered lately since nothing was to run for them, or what ran has ended,
//! for `nagaya why`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::pools::ProgramPool;
use crate::exchange::request::RequestId;

/// A request that was refused for want of a pool, or as its tenant is suspended, or whose process
/// ended before it had answered.
#[derive(Debug, Clone)]
pub(crate) struct Unserved {
    /// The request.
    pub id: RequestId,
    /// When, since 1970.
    pub at: Duration,
    /// The site it was for.
    pub site: Arc<str>,
    /// Whose that is.
    pub tenant: Arc<str>,
    /// The pool that was to answer it.
    pub pool: Option<Arc<ProgramPool>>,
    /// The reason as records have it.
    pub reason: &'static str,
    /// What exactly.
    pub detail: String,
    /// How long it had waited for its pool.
    pub waited: Duration,
    /// How long it had been with it.
    pub ran: Option<Duration>,
    /// When it was told to come back.
    pub retry_after_s: Option<u16>,
}

/// What `nagaya why` says of it; `moment` is when that was.
pub(crate) fn told(unserved: &Unserved, moment: &str) -> String {
    let mut out = String::new();
    let pool = unserved.pool.as_ref();
    let (ran, retry) = (unserved.ran, unserved.retry_after_s);
    for (name, text) in [
        ("request", Some(unserved.id.to_string())),
        ("at", Some(moment.to_owned())),
        ("site", Some(unserved.site.to_string())),
        (
            "pool",
            pool.map(|pool| format!("{} ({})", pool.name, pool.id)),
        ),
        ("tenant", Some(unserved.tenant.to_string())),
        ("reason", Some(unserved.reason.to_owned())),
        // Words of a tenant's program are among it: none of them looks like a line of its own.
        ("found", Some(unserved.detail.escape_debug().to_string())),
        (
            "had waited",
            Some(format!("{} ms", unserved.waited.as_millis())),
        ),
        ("had run", ran.map(|ran| format!("{} ms", ran.as_millis()))),
        ("may retry", retry.map(|seconds| format!("in {seconds} s"))),
    ] {
        if let Some(text) = text {
            // Writing to memory does not fail.
            let _ = writeln!(out, "{name:<11} {text}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::{REMEMBERED_MAX, Recent};

    #[test]
    fn the_last_refusals_are_remembered_and_a_programs_words_stay_in_their_line() {
        let recent = Recent::default();
        let pool = Arc::new(ProgramPool::new("a", "php 8.2 of a.test", "a.test"));
        let refused = |number| Unserved {
            id: RequestId::from_number(number),
            at: Duration::ZERO,
            site: "a.test".into(),
            tenant: "a".into(),
            pool: Some(Arc::clone(&pool)),
            reason: "pool_failed",
            detail: "spawn_failed: no\nreason x".to_owned(),
            waited: Duration::from_millis(7),
            ran: None,
            retry_after_s: Some(3),
        };
        for number in 0..=REMEMBERED_MAX as u64 {
            recent.remember(RequestId::from_number(number), refused(number));
        }
        let find = |number| recent.find(RequestId::from_number(number).as_bytes());
        assert!(find(0).is_none());
        let text = told(&find(1).expect("remembered"), "then");
        assert!(
            text.contains("pool        php 8.2 of a.test (a)\n"),
            "{text}"
        );
        assert!(text.contains("no\\nreason x\n"), "{text}");
        assert!(text.contains("may retry   in 3 s\n"), "{text}");
        let suspended = Unserved {
            pool: None,
            retry_after_s: None,
            ..refused(1)
        };
        let text = told(&suspended, "then");
        assert!(
            !text.contains("pool  ") && !text.contains("may retry"),
            "{text}"
        );
    }
}
