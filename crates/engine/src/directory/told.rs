//! Requests for hosts of rows that were refused lately, for `nagaya why`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::exchange::request::RequestId;

/// A request that was refused, and what its row said.
#[derive(Debug, Clone)]
pub(crate) struct RefusedOfRow {
    pub(crate) id: RequestId,
    pub(crate) at: Duration,
    pub(crate) host: Box<str>,
    pub(crate) directory: Box<str>,
    /// How old the row was; `None` where there was none that could be used.
    pub(crate) age: Option<Duration>,
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) plan: Option<Box<str>>,
    pub(crate) reason: &'static str,
    pub(crate) detail: Box<str>,
}

/// What `nagaya why` says of it; `moment` is when that was.
pub(crate) fn told(refused: &RefusedOfRow, moment: &str) -> String {
    let mut out = String::new();
    let age = match refused.age {
        Some(age) => format!("{} ms old", age.as_millis()),
        None => "none that could be used".to_owned(),
    };
    let tenant = refused.tenant.as_deref();
    let plan = tenant.map(|_| refused.plan.as_deref().unwrap_or("none"));
    let detail = Some(&*refused.detail).filter(|detail| !detail.is_empty());
    for (name, text) in [
        ("request", Some(&*refused.id.to_string())),
        ("at", Some(moment)),
        ("host", Some(&*refused.host)),
        ("directory", Some(&*refused.directory)),
        ("row", Some(&*age)),
        ("tenant", tenant),
        ("plan", plan),
        ("reason", Some(refused.reason)),
        ("found", detail),
    ] {
        if let Some(text) = text {
            // Writing to memory does not fail; what others say stays in its line.
            let _ = writeln!(out, "{name:<11} {}", text.escape_debug());
        }
    }
    out
}
