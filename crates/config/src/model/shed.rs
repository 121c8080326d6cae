//! `[[shed]]`: when requests are sent away, whose, and with what answer.

use std::sync::Arc;

use super::condition::Condition;
use super::file::ErrorPage;
use super::mode::Mode;
use super::sensor::Sensor;
use super::template::Template;

/// Rules that shed, at most: a request looks at each that is active.
pub const SHED_RULES_MAX: usize = 16;

/// `[[shed]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Shed {
    /// Unique among these rules: the operator's word, or made of the sensor.
    pub name: String,
    /// What it looks at.
    pub sensor: Sensor,
    /// Beyond it there is too much to do; above 0, and where the sensor is a share below 1.
    pub enter: f64,
    /// Back at it there is not any more; above 0, and never worse than `enter`.
    pub leave: f64,
    /// How long a state lasts at least before it is left for a better one.
    pub dwell_ms: u64,
    /// Whom it sheds. Default those above their share.
    pub scope: ShedScope,
    /// Whether it has its way.
    pub mode: Mode,
    /// What those are told that it sheds.
    pub respond: ShedReply,
    /// Conditions, all of which must hold for a request to be shed. None looks at the resolved
    /// file: at that time there is none. None asks a program: that would wait.
    pub conditions: Vec<Condition>,
    /// What requests do without while it is active.
    pub degrade: Vec<Degrade>,
}

/// Whom a rule sheds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShedScope {
    /// Requests of tenants above their share first, as many as it takes.
    OverShare,
    /// Every request.
    All,
}

/// What somebody is told who was shed.
#[derive(Debug, Clone, PartialEq)]
pub enum ShedReply {
    /// Our page.
    Whale,
    /// This page, with 503.
    Page(Arc<ErrorPage>),
    /// To ask elsewhere, with 302.
    Redirect(Template),
}

/// What requests can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degrade {
    /// Scripts that say they are optional.
    OptionalScripts,
}
