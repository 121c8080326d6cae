//! Requests that were shed lately, or would have been, for `nagaya why`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use config::model::Mode;
use config::model::sensor::Worse;
use limits::shed::State;

use super::standing::Standing;
use super::tenants::WHOLE;
use crate::exchange::request::RequestId;

/// How many a worker remembers.
const REMEMBERED_MAX: usize = 2_048;
/// Bytes of a path that are remembered.
const PATH_BYTES_MAX: usize = 128;

/// Those that were shed lately, or would have been, by worker.
#[derive(Debug)]
pub struct AllRemembered {
    /// Each held by its worker for one request, or to look for one.
    by_worker: Box<[Mutex<VecDeque<Remembered>>]>,
}

/// A request that was shed.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// The request.
    pub id: RequestId,
    /// When, since 1970.
    pub at: Duration,
    /// The site it was for.
    pub site: Arc<str>,
    /// The path it asked for, or how that begins: [`PATH_BYTES_MAX`].
    pub path: Box<[u8]>,
    /// Whose site that is.
    pub tenant: Arc<str>,
    /// By which rule.
    pub rule: Arc<Standing>,
    /// In which state.
    pub state: State,
    /// The sensor's value then.
    pub value: Option<f64>,
    /// The share of all requests that was admitted then.
    pub share: f64,
    /// That of the tenant's.
    pub tenant_share: u16,
}

impl AllRemembered {
    /// Remembers nothing yet, for so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            by_worker: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// Remembers one. While somebody looks for one, none is remembered: no worker waits for that.
    pub(super) fn add(&self, worker: usize, remembered: Remembered) {
        let ring = self.by_worker.get(worker);
        if let Some(Ok(mut ring)) = ring.map(Mutex::try_lock) {
            if ring.len() == REMEMBERED_MAX {
                ring.pop_front();
            }
            ring.push_back(remembered);
        }
    }

    /// What is remembered of this request.
    pub fn find(&self, id: &[u8]) -> Option<Remembered> {
        self.by_worker.iter().find_map(|ring| {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.iter().rev().find(|it| it.id.as_bytes() == id).cloned()
        })
    }
}

/// As much of a path as is remembered.
pub(super) fn beginning(path: &[u8]) -> Box<[u8]> {
    path.get(..PATH_BYTES_MAX).unwrap_or(path).into()
}

/// What `nagaya why` says of it; `moment` is when that was.
pub(crate) fn told(remembered: &Remembered, moment: &str) -> String {
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let of_tenant = f64::from(remembered.tenant_share) / f64::from(WHOLE);
    let mut out = String::new();
    let passed = match remembered.rule.mode {
        Mode::Enforce => None,
        Mode::Shadow => Some("passed: would have been shed, but the rule is in shadow"),
    };
    let outcome = passed.map(|passed| ("outcome", passed.to_owned()));
    let found = [
        ("request", remembered.id.to_string()),
        ("at", moment.to_owned()),
        ("site", remembered.site.to_string()),
        ("path", path(&remembered.path)),
        ("tenant", remembered.tenant.to_string()),
        ("shed by", remembered.rule.name.to_string()),
        ("state", remembered.state.word().to_owned()),
        ("sensor", sensed(remembered)),
        (
            "admitted",
            format!("{} of all requests", percent(remembered.share)),
        ),
        ("", format!("{} of this tenant's", percent(of_tenant))),
    ];
    for (name, text) in found.into_iter().chain(outcome) {
        // Writing to memory does not fail.
        let _ = writeln!(out, "{name:<11} {text}");
    }
    out
}

/// Nothing a client sends can look like a line of its own.
fn path(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let rest = if path.len() < PATH_BYTES_MAX {
        ""
    } else {
        "…"
    };
    format!("{}{rest}", text.escape_debug())
}

/// `in_flight was 20; too much is above 20, still easing: leaves at 12`
fn sensed(remembered: &Remembered) -> String {
    let rule = &remembered.rule;
    let (sensor, unit) = (&rule.sensor, rule.sensor.unit());
    let value = remembered.value.map(|value| unit.show(value));
    let value = value.unwrap_or_else(|| "without a value".to_owned());
    let is_too_much = |value| match sensor.worse() {
        Worse::Above => value > rule.enter,
        Worse::Below => value < rule.enter,
    };
    let eases = match (remembered.state, remembered.value) {
        // What is shed though there is not too much would read as a mistake.
        (_, Some(value)) if is_too_much(value) => String::new(),
        (State::Green, _) => ", and more is let in again step by step".to_owned(),
        _ => format!(", still easing: leaves at {}", unit.show(rule.leave)),
    };
    let beyond = sensor.beyond(rule.enter);
    format!("{sensor} was {value}; too much is {beyond}{eases}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_looks_like_a_line_of_its_own_and_none_is_kept_whole_that_is_long() {
        assert_eq!(path(b"/a\nshed by x\xff"), "/a\\nshed by x\u{fffd}");
        let long = beginning(&[b'a'; 4_096]);
        assert_eq!(long.len(), PATH_BYTES_MAX);
        assert!(path(&long).ends_with("aa…"));
        assert_eq!(path(&beginning("/鯨".as_bytes())), "/鯨");
    }
}
