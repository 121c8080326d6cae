//! How a rule stands: what the thread that steps it leaves for everybody to read.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use config::model::sensor::{Sensor, Unit, Worse};
use config::model::{self, Mode, ShedScope};
use limits::shed::{Course, Scope, State, Thresholds};

/// The states by their numbers.
const STATES: [State; 3] = [State::Green, State::Yellow, State::Red];

/// How a rule stands. As long as it looks at the same it outlives its generation.
#[derive(Debug)]
pub struct Standing {
    /// The rule's name.
    pub name: Arc<str>,
    /// What it looks at.
    pub sensor: Sensor,
    /// Beyond it there is too much to do.
    pub enter: f64,
    /// Back at it there is not any more.
    pub leave: f64,
    /// Whether it has its way.
    pub mode: Mode,
    dwell_ms: u64,
    scope: ShedScope,
    started: Instant,
    /// Held by the thread that steps.
    course: Mutex<Course>,
    state: AtomicU8,
    /// Bits of a number, as the next.
    share: AtomicU64,
    /// Not a number where there is none.
    value: AtomicU64,
    /// Milliseconds after [`Self::started`].
    changed_ms: AtomicU64,
    shed: AtomicU64,
}

impl Standing {
    pub(super) fn new(rule: &model::Shed) -> Self {
        let (enter, leave) = (rule.enter, rule.leave);
        let full = (rule.sensor.unit() == Unit::Share).then_some(1.0);
        let thresholds = match rule.sensor.worse() {
            Worse::Above => Thresholds::rising(enter, leave, full),
            Worse::Below => Thresholds::falling(enter, leave),
        };
        let scope = match rule.scope {
            ShedScope::OverShare => Scope::OverShare,
            ShedScope::All => Scope::All,
        };
        let course = Course::new(thresholds, scope, Duration::from_millis(rule.dwell_ms));
        Self {
            name: Arc::from(&*rule.name),
            sensor: rule.sensor.clone(),
            enter,
            leave,
            mode: rule.mode,
            dwell_ms: rule.dwell_ms,
            scope: rule.scope,
            started: Instant::now(),
            course: Mutex::new(course),
            state: AtomicU8::new(State::Green as u8),
            share: AtomicU64::new(1.0_f64.to_bits()),
            value: AtomicU64::new(f64::NAN.to_bits()),
            changed_ms: AtomicU64::new(0),
            shed: AtomicU64::new(0),
        }
    }

    /// Whether it is the rule's: it has its name and looks at the same. What a rule comes to in
    /// shadow, where nothing eases by it, is not gone on with in force.
    pub(super) fn is_of(&self, rule: &model::Shed) -> bool {
        let same_name = *self.name == *rule.name && self.sensor == rule.sensor;
        let same_values = self.enter == rule.enter && self.leave == rule.leave;
        let same_kind = self.scope == rule.scope && self.mode == rule.mode;
        same_name && same_values && same_kind && self.dwell_ms == rule.dwell_ms
    }

    pub(super) fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows how it stands after a step.
    pub(super) fn show(&self, course: &Course, value: Option<f64>) {
        let before = self.state.swap(course.state() as u8, Relaxed);
        if before != course.state() as u8 {
            self.changed_ms.store(self.now_ms(), Relaxed);
        }
        self.share.store(course.share().to_bits(), Relaxed);
        let value = value.unwrap_or(f64::NAN);
        self.value.store(value.to_bits(), Relaxed);
    }

    /// Stands as at the beginning: nobody steps it any more.
    pub(super) fn let_go(&self) {
        let mut course = self.course();
        course.reset();
        self.show(&course, None);
    }

    /// The state it is in.
    pub fn state(&self) -> State {
        let number = usize::from(self.state.load(Relaxed));
        STATES.get(number).copied().unwrap_or(State::Green)
    }

    /// The share of all requests that is admitted.
    pub fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Relaxed))
    }

    /// The sensor's last value.
    pub fn value(&self) -> Option<f64> {
        let value = f64::from_bits(self.value.load(Relaxed));
        (!value.is_nan()).then_some(value)
    }

    /// How long it has been in its state.
    pub fn since(&self) -> Duration {
        let since_ms = self.now_ms().saturating_sub(self.changed_ms.load(Relaxed));
        Duration::from_millis(since_ms)
    }

    /// Requests it has shed; in shadow, those it would have.
    pub fn shed(&self) -> u64 {
        self.shed.load(Relaxed)
    }

    pub(super) fn count_shed(&self) {
        self.shed.fetch_add(1, Relaxed);
    }

    pub(super) fn admits_all(&self) -> bool {
        self.state() == State::Green && self.share() >= 1.0
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
