//! Requests that were shed lately, for `nagaya why`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use config::model::sensor::Worse;
use limits::shed::State;

use super::WHOLE;
use super::standing::Standing;
use crate::exchange::RequestId;

/// How many a worker remembers.
const REMEMBERED_MAX: usize = 2_048;

/// Those that were shed lately, by worker.
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
    /// Whose site it was for.
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

/// What `nagaya why` says of it; `moment` is when that was.
pub fn told(remembered: &Remembered, moment: &str) -> String {
    let rule = &remembered.rule;
    let (sensor, unit) = (&rule.sensor, rule.sensor.unit());
    let side = match sensor.worse() {
        Worse::Above => "above",
        Worse::Below => "below",
    };
    let value = remembered.value.map(|value| unit.show(value));
    let value = value.unwrap_or_else(|| "without a value".to_owned());
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let mut out = String::new();
    for (name, text) in [
        ("request", remembered.id.to_string()),
        ("at", moment.to_owned()),
        ("tenant", remembered.tenant.to_string()),
        ("shed by", rule.name.to_string()),
        ("state", remembered.state.word().to_owned()),
        (
            "sensor",
            format!(
                "{sensor} was {value}; too much is {side} {}",
                unit.show(rule.enter)
            ),
        ),
        (
            "admitted",
            format!("{} of all requests", percent(remembered.share)),
        ),
        (
            "",
            format!(
                "{} of this tenant's",
                percent(f64::from(remembered.tenant_share) / f64::from(WHOLE))
            ),
        ),
    ] {
        // Writing to memory does not fail.
        let _ = writeln!(out, "{name:<11} {text}");
    }
    out
}
