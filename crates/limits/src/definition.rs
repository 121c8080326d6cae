//! What is configured: limits, tenants, and changes while running.

use std::fmt;
use std::time::Duration;

use crate::ask::{LimitId, TenantId};
use crate::fleet::OnLoss;

/// A configured limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// What its state is kept by over a reload, such as `site example.jp/file`. Unique.
    pub identity: String,
    /// What it is called in messages: `file`, or the operator's own name.
    pub name: String,
    /// Who competes in its queue.
    pub shared: Shared,
    /// Where its keys come from.
    pub keyed: Keyed,
    /// How many requests may be under way at once for a key; none: any number.
    pub concurrent: Option<Concurrent>,
    /// Requests that may wait for a key.
    pub queue: u32,
    /// How long each may wait.
    pub wait: Duration,
    /// From which wait on somebody is late: then the newest is served first, and who is late is refused. None: each
    /// flow is served in order, and nobody is refused who may still wait.
    pub late: Option<Duration>,
    /// How many requests may begin in a time, for a key; none: any number.
    pub rate: Option<RateDefinition>,
    /// Whether it refuses, or only counts what it would have refused.
    pub mode: Mode,
    /// Whether its permits are leased from a store that several machines ask, and what holds while that is away; none: they
    /// are this machine's.
    pub fleet: Option<OnLoss>,
}

impl Definition {
    /// Of one tenant's clients, with one state, and nothing that it refuses; its name is its identity, too.
    #[must_use]
    pub fn of(name: &str) -> Definition {
        Definition {
            identity: name.to_owned(),
            name: name.to_owned(),
            shared: Shared::OneTenant,
            keyed: Keyed::Fixed,
            concurrent: None,
            queue: 0,
            wait: Duration::ZERO,
            late: None,
            rate: None,
            mode: Mode::Enforce,
            fleet: None,
        }
    }
}

/// Who competes in a limit's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// Clients of one tenant.
    OneTenant,
    /// Several tenants, and inside each its clients.
    Tenants,
}

/// Where a limit's keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyed {
    /// One key, known when configured: process, tenant, site, rule, upstream, a constant.
    Fixed,
    /// A key a request: file, path, client, a field, a cookie, lists.
    Dynamic,
}

/// How many requests may be under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrent {
    /// This many.
    Fixed(u32),
    /// As many as the measured times allow, between two bounds. For fixed keys; a dynamic limit
    /// stands at its ceiling.
    Auto {
        /// Never fewer.
        floor: u32,
        /// Never more.
        ceiling: u32,
    },
}

/// How many requests may begin in a time: `count` in `per`, `burst` of them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDefinition {
    /// Requests in `per`, at least 1.
    pub count: u32,
    /// The time they are counted over.
    pub per: Duration,
    /// How many may come at once, at least 1.
    pub burst: u32,
}

impl fmt::Display for RateDefinition {
    /// As the configuration spells it: `10/s`, `100/m`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, per, .. } = self;
        match per.as_millis() {
            1_000 => write!(formatter, "{count}/s"),
            60_000 => write!(formatter, "{count}/m"),
            3_600_000 => write!(formatter, "{count}/h"),
            86_400_000 => write!(formatter, "{count}/d"),
            per_ms => write!(formatter, "{count} in {per_ms}ms"),
        }
    }
}

/// Whether a limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It refuses and queues.
    Enforce,
    /// It counts what it would have refused, and lets everybody pass.
    Shadow,
}

/// A tenant, as the ledger needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDefinition {
    /// Its name. Unique.
    pub name: String,
    /// Its share of what several tenants compete for, relative to others', from 1.
    pub weight: u32,
    /// Distinct dynamic keys it may have at once; further ones count together.
    pub keys_max: u32,
}

/// What [`Ledger::define`](crate::Ledger::define) answers: names in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defined {
    /// One for each definition.
    pub limits: Vec<LimitId>,
    /// One for each tenant.
    pub tenants: Vec<TenantId>,
}

/// A change while running, until the next [`Ledger::define`](crate::Ledger::define).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// How many at once.
    Concurrent(Option<Concurrent>),
    /// How many may wait.
    Queue(u32),
    /// How long each may wait. Who waits already keeps its deadline.
    Wait(Duration),
    /// From which wait on somebody is late.
    Late(Option<Duration>),
    /// How many may begin in a time.
    Rate(Option<RateDefinition>),
    /// Whether it refuses.
    Mode(Mode),
}
