//! What `status` answers: everything the server counts, all workers together.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{AcmeProcess, Certificates, Fleet, Handshakes, Keeper, Limit, Named, Recorder};

/// Everything, at one moment (or nearly so: the workers go on counting).
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The gateway's version.
    pub version: Cow<'static, str>,
    /// The process that takes signals: the supervisor's.
    pub pid: u32,
    /// Number of the generation that serves.
    pub generation: u64,
    /// Since the server started.
    pub uptime_s: u64,
    /// Generations taken over after the first.
    pub reloads: u64,
    /// Reloads that changed nothing.
    pub reloads_refused: u64,
    /// The last reload, where it was one of those: the files are not what is in force.
    pub reload_refused: Option<RefusedReload>,
    /// Servers started again after an unwanted end.
    pub restarts: u64,
    /// Files of the configuration that are set aside.
    pub config_files_set_aside: u64,
    /// The first of them.
    pub set_aside: Vec<SetAside>,
    /// Limits of control groups that are not in force yet, each in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Access records lost.
    pub access_records_lost: u64,
    /// Lines of the error log lost.
    pub error_lines_lost: u64,
    /// Sites the generation has, busy or not.
    pub sites_configured: usize,
    /// How long exchanges took.
    pub time: Time,
    /// What each worker did.
    pub workers: Vec<Worker>,
    /// What became of programs.
    pub programs: Programs,
    /// Bytes of what is kept of `.htaccess` files; none where no site has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub htaccess_cached_bytes: Option<usize>,
    /// What became of work for clients that have gone.
    pub stragglers: Stragglers,
    /// What became of scripts.
    pub scripts: Scripts,
    /// Scripts in shadow, in the order of the configuration.
    pub scripts_in_shadow: Vec<ScriptInShadow>,
    /// Tenants that operators have suspended.
    #[serde(skip_serializing_if = "Suspended::is_nothing")]
    pub suspended: Suspended,
    /// Exchanges that came to no site.
    pub without_site: Replies,
    /// Sites that had exchanges, in the order of the configuration.
    pub sites: Vec<Site>,
    /// Servers of upstreams, by the names of both.
    pub upstreams: Vec<Upstream>,
    /// What rows were looked for, by directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<Directory>,
    /// What maps were asked, in the order of the configuration.
    pub maps: Vec<Map>,
    /// Pools that somebody has asked for, in the order of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Classes of tenants' requests of which some waited or were refused, in the order of the
    /// configuration, so many at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<RequestClass>,
    /// Limits that requests have met, in the order of the configuration.
    pub limits: Vec<Limit>,
    /// What each sensor says; `null` for one that this machine does not have.
    pub sensors: Named<Option<f64>>,
    /// How late each worker is, in seconds.
    pub loop_lag_s: Vec<Option<f64>>,
    /// Rules that shed.
    pub shedding: Vec<ShedRule>,
    /// Whom they shed, those with most first.
    pub shed_by_tenant: Vec<ShedTenant>,
    /// What TLS handshakes came to; none before a listener spoke TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Certificates in short; none before a listener spoke TLS, as the two below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// The keeper of private keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Keeper>,
    /// The process that asks authorities for certificates, where there is one to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeProcess>,
    /// The recorder, where there is one to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<Recorder>,
    /// The store that machines share, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Fleet>,
    /// What programs used, by group, in the order of the configuration, each after those it is in
    /// and in whose figures it is contained.
    pub groups: Vec<Group>,
    /// Groups beyond those, at least.
    pub groups_left_out: usize,
}

/// A reload that changed nothing.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedReload {
    /// When it began, as RFC 3339 writes it.
    pub at: String,
    /// `wrong` for a configuration that is wrong, `failed` where something else was in the way.
    pub outcome: Cow<'static, str>,
    /// What is wrong, or the first thing that is, and where.
    pub problem: String,
}

/// A file of the configuration that is set aside: broken, while everything else is in force.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct SetAside {
    /// Its name.
    pub file: String,
    /// Since when.
    pub since: String,
    /// What is in force in its place.
    pub verdict: String,
    /// What is wrong with it, or the first thing that is.
    pub problem: String,
}

/// How long exchanges took.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Time {
    /// Upper bounds of the buckets, but for the last, in microseconds.
    pub bounds_us: Vec<u64>,
    /// Whole exchanges.
    pub total: Times,
    /// The upstreams' part.
    pub upstream: Times,
}

/// Durations in buckets.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// By bucket, not added up.
    pub counts: Vec<u64>,
    /// All together, in microseconds.
    pub sum_us: u64,
}

impl Times {
    /// How many durations they are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// What a worker did.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Connections open.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed because of a cap.
    pub refused: u64,
    /// Connections given to another worker.
    pub handed_over: u64,
    /// Those of HTTP/2 among the open ones.
    pub http2_connections: u64,
    /// Their streams that are answered now.
    pub http2_streams: u64,
    /// Connections of HTTP/2 that were broken off for what they did below their requests.
    pub http2_broken_off: u64,
    /// Exchanges under way.
    pub in_flight: u64,
    /// Exchanges that ended.
    pub ended: u64,
    /// Handlers that panicked.
    pub panics: u64,
}

/// What became of programs.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Programs {
    /// Programs that run.
    pub running: usize,
    /// Programs that ran.
    pub started: u64,
    /// Programs that could not be started.
    pub failed: u64,
    /// Programs killed, by reason.
    pub killed: Named<u64>,
}

/// Tenants that operators have suspended.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Suspended {
    /// How many there are.
    pub count: usize,
    /// The first of them, by name.
    pub tenants: Vec<String>,
    /// Their requests that were refused.
    pub refused: u64,
}

impl Suspended {
    /// Whether nobody is or was.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.count == 0 && self.refused == 0
    }
}

/// What became of servers and programs at work for clients that have gone.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Stragglers {
    /// Those there are.
    pub now: u64,
    /// Those there were, by their end.
    #[serde(flatten)]
    pub ended: Named<u64>,
}

/// What became of scripts.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Scripts {
    /// VMs open.
    pub vms: u64,
    /// Those of tenants among them.
    pub tenant_vms: u64,
    /// VMs of tenants that were opened.
    pub tenant_vms_opened: u64,
    /// Those that closed to make room for others.
    pub tenant_vms_closed: u64,
    /// Those that did not open.
    pub tenant_vms_failed: u64,
    /// Bytes they hold.
    pub memory_bytes: u64,
    /// Scripts that wait.
    pub parked: u64,
    /// What became of them by phase.
    pub phases: Named<Phase>,
}

/// What became of the scripts of a phase.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// Scripts that came to their end.
    pub ended: u64,
    /// Scripts that failed.
    pub failed: u64,
}

/// A site, and what its exchanges came to.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// Its name.
    pub site: String,
    /// What they came to.
    #[serde(flatten)]
    pub replies: Replies,
}

/// What exchanges came to.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
pub struct Replies {
    /// By hundreds of the status, from `1xx`.
    #[serde(flatten, serialize_with = "by_class", deserialize_with = "of_classes")]
    pub by_class: [u64; 5],
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of reply bodies.
    pub bytes_out: u64,
    /// TLS handshakes after which a request came.
    #[serde(skip_serializing_if = "is_none")]
    pub handshakes: u64,
    /// What these took of processors.
    #[serde(skip_serializing_if = "is_none")]
    pub handshake_us: u64,
}

/// Whether a count is of nothing.
fn is_none(count: &u64) -> bool {
    *count == 0
}

fn by_class<S: Serializer>(counts: &[u64; 5], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(CLASSES.into_iter().zip(counts))
}

fn of_classes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u64; 5], D::Error> {
    let counts = Named::<serde_json::Value>::deserialize(deserializer)?;
    let count = |class| counts.get(class).and_then(serde_json::Value::as_u64);
    Ok(CLASSES.map(|class| count(class).unwrap_or(0)))
}

/// Hundreds of a status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Replies {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.by_class.iter_mut().zip(other.by_class) {
            *sum += count;
        }
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.handshakes += other.handshakes;
        self.handshake_us += other.handshake_us;
    }

    /// How many exchanges they are.
    pub fn count(&self) -> u64 {
        self.by_class.iter().sum()
    }
}

/// A server of an upstream.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Upstream {
    /// The upstream's name.
    pub upstream: String,
    /// The server's address.
    pub server: String,
    /// Requests it was chosen for.
    pub requests: u64,
    /// Failures.
    pub failures: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// How long the oldest of them is under way.
    pub oldest_s: Option<f64>,
    /// Requests it let wait for too long.
    pub timeouts: u64,
    /// Failures in a row, of the worker that saw most.
    pub fails_in_row: u64,
    /// Workers that have asked it.
    pub workers: usize,
    /// Workers for which it is out.
    pub workers_out: usize,
    /// Workers that ask it on though it fails: there is no other.
    pub workers_failing: usize,
    /// How much of its weight counts, as its agent says.
    pub agent_weight: Option<f64>,
    /// Whether its agent wants it left alone.
    pub drain: bool,
}

impl Upstream {
    /// Whether a worker that has asked it does not find it failing; one never asked is up.
    pub fn is_up(&self) -> bool {
        let down = self.workers_out + self.workers_failing;
        down == 0 || down < self.workers
    }
}

/// What rows of a directory were looked for, beyond what workers know by themselves.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Directory {
    /// Its name.
    pub directory: String,
    /// Whether its process is there to be asked.
    pub linked: bool,
    /// Names that something is known of, or that are asked for.
    pub hosts: usize,
    /// Bytes of these, about.
    pub bytes: usize,
    /// Names that wait to be asked for.
    pub waiting: usize,
    /// Looks that found what is fresh.
    pub fresh: u64,
    /// Looks that found a row that is old, and served on.
    pub old: u64,
    /// Looks that found nothing, and waited for an answer.
    pub waited: u64,
    /// Questions to the process.
    pub asked: u64,
    /// Answers that were rows.
    pub rows: u64,
    /// Answers that there is none.
    pub missing: u64,
    /// Answers that were rows of no use.
    pub wrong: u64,
    /// Answers that nobody knows.
    pub down: u64,
    /// Requests that were refused as there was no answer in time.
    pub gave_up: u64,
    /// Requests that were refused as their name was not asked for in time.
    pub busy: u64,
    /// Whether the source has answered the last question; `null` where nothing was asked of it.
    pub answers: Option<bool>,
    /// How long ago it has answered last.
    pub answered_s: Option<f64>,
    /// What went wrong last, and how long ago.
    pub error: Option<String>,
    /// See above.
    pub error_s: Option<f64>,
    /// Rows in the snapshot.
    pub snapshot_rows: u64,
    /// The questions to the source that took longest in the last minutes.
    pub slowest: Vec<SlowQuestion>,
}

/// A question that a directory's source took long to answer.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowQuestion {
    /// The host that was asked for.
    pub host: String,
    /// How long that took.
    pub us: u64,
}

impl Directory {
    /// Of looks the share that found something to serve at once.
    #[must_use]
    pub fn hit_share(&self) -> Option<f64> {
        let found = self.fresh + self.old;
        let all = found + self.waited + self.busy;
        (all > 0).then(|| found as f64 / all as f64)
    }
}

/// What a map was asked.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Map {
    /// Its name.
    pub map: String,
    /// Questions.
    pub questions: u64,
    /// Of these, those that were answered from memory.
    pub cached: u64,
    /// Questions that got what `on_error` says.
    pub errors: u64,
    /// Times that a process had to be started again.
    pub restarts: u64,
    /// Processes that run; none for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<usize>,
    /// Processes there are to be; none for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
}

/// A pool of processes.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// Its id.
    pub pool: String,
    /// What messages call it.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// `cold`, `starting`, `warm` or `failed`, as far as is known.
    pub state: Cow<'static, str>,
    /// Requests that wait until it runs.
    pub waiting: u64,
    /// Starts that were waited for and came to something.
    pub starts: u64,
    /// Starts that came to nothing.
    pub failures: u64,
    /// Requests that waited until it ran.
    pub waited: u64,
    /// How long, all together.
    pub waited_us: u64,
    /// Masters that have been ready, whoever waited, since the spawner started, as the next three.
    pub masters: u64,
    /// How long they took, all together.
    pub masters_us: u64,
    /// Messages that `nagaya sendmail` has handed over in it.
    pub mails: u64,
    /// Those that it could not, or not to everybody.
    pub mails_unsent: u64,
    /// Requests refused for want of it, by reason.
    pub refused: Named<u64>,
}

/// A class of a tenant's requests.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestClass {
    /// Whose it is.
    pub tenant: String,
    /// Its name.
    pub class: String,
    /// Requests of it that waited for a limit.
    pub waited: u64,
    /// How long, all together.
    pub waited_us: u64,
    /// Requests of it that limits refused.
    pub refused: u64,
}

/// A script in shadow, in one phase.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct ScriptInShadow {
    /// What logs call it.
    pub script: String,
    /// The phase.
    pub phase: Cow<'static, str>,
    /// Requests for which it ran.
    pub runs: u64,
    /// Of these, those it would have answered.
    pub answered: u64,
    /// Of these, those it would have changed and let go on.
    pub changed: u64,
}

/// A rule that sheds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct ShedRule {
    /// Its name.
    pub rule: String,
    /// What it looks at.
    pub sensor: String,
    /// Beyond it there is too much to do.
    pub enter: f64,
    /// Back at it there is not any more.
    pub leave: f64,
    /// `green`, `yellow` or `red`.
    pub state: Cow<'static, str>,
    /// For how long.
    pub since_ms: u128,
    /// The share of requests that is admitted.
    pub admitted_share: f64,
    /// `enforce` or `shadow`.
    pub mode: Cow<'static, str>,
    /// Requests it has shed.
    pub shed: u64,
    /// Requests it would have shed, were it not in shadow.
    pub shadow_shed: u64,
    /// The sensor's last value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// A tenant of which requests were shed.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct ShedTenant {
    /// Its name.
    pub tenant: String,
    /// How many.
    pub shed: u64,
    /// Requests that a rule in shadow would have shed.
    pub shadow_shed: u64,
}

/// What the programs of a group used.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// The tenant.
    pub tenant: String,
    /// The site, unless it is the tenant's group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The rule, unless it is the site's or the tenant's group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the script that made it calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The pool, in a group that is a pool's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What was counted, by the figure's name; what the machine does not count is left out.
    #[serde(flatten)]
    pub used: Named<u64>,
}
