//! Limits: how many requests go on at once, and how fast they come.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::condition::Condition;
use super::file::ErrorPage;
use super::mode::Mode;

/// Limits that one request can meet over all its levels, at most. A site that could exceed it is
/// refused when the configuration is loaded.
pub const LIMITS_PER_REQUEST_MAX: usize = 16;

/// An entry of `limits`, as the configuration has it. At least one of `concurrent` and `rate` is
/// set.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// Unique in its level, and what its state is kept by: the operator's word, or made of the key.
    pub name: String,
    /// What it counts by: every combination of values has a count of its own. At least one.
    pub key: Vec<LimitKey>,
    /// What it counts. Default requests.
    pub on: LimitOn,
    /// Requests, or handshakes, under way at once.
    pub concurrent: Option<Concurrent>,
    /// Requests that may wait. Default 0; only beside `concurrent`.
    pub queue: u32,
    /// How long one waits in all. Default 2 s.
    pub wait_ms: u64,
    /// From which wait on one is late; 0, the default: nobody is. Only beside `queue`.
    pub late_ms: u64,
    /// Requests that may begin in a time.
    pub rate: Option<Rate>,
    /// When it holds; `None`: always.
    pub when: Option<When>,
    /// Conditions, all of which must hold for the limit to count a request.
    pub conditions: Vec<Condition>,
    /// Whether it refuses. Default enforce.
    pub mode: Mode,
    /// Whether a tunnel keeps its permits. Default yes.
    pub tunnels: bool,
    /// Permits that are tenants' before all others', each tenant once: no more than there are.
    /// Only of one of the process or an upstream that has one key and a fixed number of permits.
    pub reserves: Vec<Reserve>,
    /// What holds while the store is away, where several machines share it; `None`: this machine counts by itself. Only of
    /// one of requests with a fixed number of permits, without a rate.
    pub fleet: Option<OnLoss>,
    /// Status of a refusal, 400 to 599. Default 503; 429 where the key tells clients apart.
    pub status: u16,
    /// Body of a refusal; `None`: the site's page for the status, or ours.
    pub page: Option<Arc<ErrorPage>>,
    /// What the overrides file says instead.
    pub kept: Option<Box<Kept>>,
}

/// Permits of a limit that are a tenant's before all others': lent while it does not want them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserve {
    /// Whose.
    pub tenant: String,
    /// How many.
    pub permits: u32,
}

/// Who counts by a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// Each machine for itself.
    Machine,
    /// All of them together.
    Fleet,
}

/// What holds of a limit that machines share while their store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// A machine goes on with what it held, no more than the limit divided by the machines.
    Share,
    /// Each machine counts up to the limit.
    Open,
    /// Nobody is let in.
    Closed,
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOn {
    /// Requests.
    Request,
    /// TLS handshakes: only of the process, a tenant or a site, by these, clients and constants,
    /// without a queue and conditions.
    Handshake,
}

/// A change of a limit that an operator has kept: an entry of the overrides file. Everything it
/// does not name is as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The limit's identity.
    pub identity: String,
    /// The overrides file.
    pub file: Arc<str>,
    /// Line of the entry, from 1.
    pub line: usize,
    /// Requests under way at once.
    pub concurrent: Option<Concurrent>,
    /// Requests that may wait.
    pub queue: u32,
    /// How long one waits in all.
    pub wait_ms: u64,
    /// From which wait on one is late; 0: nobody is.
    pub late_ms: u64,
    /// Requests that may begin in a time.
    pub rate: Option<Rate>,
    /// Whether it refuses.
    pub mode: Mode,
}

impl Limit {
    /// The limit as it holds: with what an operator has kept.
    #[must_use]
    pub fn in_force(&self) -> Limit {
        let mut limit = self.clone();
        if let Some(kept) = limit.kept.take() {
            limit.concurrent = kept.concurrent;
            limit.queue = kept.queue;
            limit.wait_ms = kept.wait_ms;
            limit.late_ms = kept.late_ms;
            limit.rate = kept.rate;
            limit.mode = kept.mode;
        }
        limit
    }
}

/// Where a limit stands, as its identity says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitPlace<'a> {
    /// The top level.
    Process,
    /// The upstream of this name.
    Upstream(&'a str),
    /// The tenant of this name.
    Tenant(&'a str),
    /// The plan of this name: of each tenant that has it.
    Plan(&'a str),
    /// The site whose first host this is.
    Site(&'a str),
    /// A rule: its site's first host, and its name.
    Rule(&'a str, &'a str),
    /// A rule without a name of its own: what it is called tells its place, and moves to another
    /// rule when that changes.
    UnnamedRule(&'a str, &'a str),
}

impl fmt::Display for LimitPlace<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitPlace::Process => out.write_str("process"),
            LimitPlace::Upstream(name) => write!(out, "upstream {name}"),
            LimitPlace::Tenant(name) => write!(out, "tenant {name}"),
            LimitPlace::Plan(name) => write!(out, "plan {name}"),
            LimitPlace::Site(host) => write!(out, "site {host}"),
            LimitPlace::Rule(host, rule) | LimitPlace::UnnamedRule(host, rule) => {
                write!(out, "rule {host}/{rule}")
            }
        }
    }
}

/// Gives every limit of a configuration its identity: what its state is kept by and what operators
/// call it, `site example.jp/file`.
#[derive(Debug, Default)]
pub struct LimitIdentities {
    taken: HashSet<String>,
}

impl LimitIdentities {
    /// The identity of the next limit that is called `name` at `place`. Two rules of a site may
    /// have one name: then the second is told from the first.
    pub fn next(&mut self, place: LimitPlace<'_>, name: &str) -> String {
        let plain = format!("{place}/{name}");
        let mut identity = plain.clone();
        let mut number = 2;
        while !self.taken.insert(identity.clone()) {
            identity = format!("{plain}#{number}");
            number += 1;
        }
        identity
    }
}

/// What a limit counts by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LimitKey {
    /// Everything together.
    Process,
    /// The tenant of the site.
    Tenant,
    /// The site.
    Site,
    /// The rule the limit stands on.
    Rule,
    /// The upstream that is forwarded to.
    Upstream,
    /// The resolved file; without one the canonical path.
    File,
    /// The canonical path.
    Path,
    /// The client's address, /64 for IPv6.
    Client,
    /// The client's network, /24 or /56: of limits that the gateway puts up by itself.
    Network,
    /// The value of the field of this name, in lower case.
    Header(String),
    /// The value of the cookie of this name.
    Cookie(String),
    /// What this group of the rule's `path_regex` holds. Only on a rule that has one.
    Capture(usize),
    /// This text, whatever the request.
    Const(String),
}

impl LimitKey {
    /// Whether its value differs by who asks, so that a refusal is the client's matter (429).
    pub fn tells_clients_apart(&self) -> bool {
        matches!(
            self,
            LimitKey::Client | LimitKey::Header(_) | LimitKey::Cookie(_)
        )
    }
}

/// How many requests at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrent {
    /// As many as this, at least 1.
    Fixed(u32),
    /// As many as measurement shows to be good. Only on the process or an upstream, whose own key
    /// is the limit's only one then, and never beside a rate.
    Auto,
}

/// Requests that may begin in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many, at least 1,
    pub count: u32,
    /// in each of these: a second, a minute, an hour or a day.
    pub per_ms: u64,
    /// So many at once, the first one included; at least 1. Default `count`.
    pub burst: u32,
}

/// When a limit holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    /// It holds in any of these, at least one.
    pub windows: Vec<Window>,
    /// The time zone, as the tz database spells it; `None`: [`super::Model::time_zone`].
    pub zone: Option<String>,
}

/// A span of time on some days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Days it begins on: bit 0 is Monday, bit 6 Sunday. At least one.
    pub days: u8,
    /// First minute of the day, 0 to 1,439.
    pub from_minute: u16,
    /// First minute after it, 1 to 1,440. Not after `from_minute`: it lies on the next day.
    pub until_minute: u16,
}
