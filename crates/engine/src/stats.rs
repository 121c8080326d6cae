//! What is counted, by whom, and where it is kept.
//!
//! The idea: a counter is written by one thread and read by any, so counting costs no locked
//! instruction and no cache line travels; what is under way at an upstream server is a list behind
//! a lock that others take only when somebody wants to know. Each worker has its own counters, of
//! its exchanges, of each site it has served and of each upstream server it has asked;
//! [`crate::figures`] adds them up when somebody wants to know.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use script::Phase;
use slab::Slab;

use ipc::server::Tally;

use crate::http2_stats::Http2Stats;
use crate::permits::listed::ListedRequests;

/// The counters of one worker, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerStats {
    /// Requests that hold places of limits, or wait for them.
    pub(crate) listed: Arc<ListedRequests>,
    /// Exchanges begun.
    pub begun: AtomicU64,
    /// Exchanges that ended, whatever their site.
    pub ended: AtomicU64,
    /// Handlers that panicked.
    pub panics: AtomicU64,
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections closed at once because of a cap, or for want of a header of the PROXY protocol.
    pub refused: AtomicU64,
    /// Fresh connections given to another worker.
    pub handed_over: AtomicU64,
    /// Of its connections of HTTP/2.
    pub http2: Http2Stats,
    /// Exchanges that came to no site.
    pub without_site: Replies,
    /// From the head's last byte to the end of the exchange.
    pub total_time: Histogram,
    /// The upstream's part of it, where there was one.
    pub upstream_time: Histogram,
    /// Programs of its exchanges.
    pub programs: ProgramStats,
    /// Servers and programs at work for clients that have gone.
    pub stragglers: StragglerStats,
    /// Its scripts.
    pub scripts: ScriptStats,
    /// What it has told the recorder.
    pub recording: RecordingStats,
    /// Taken when pools are made and when figures are collected, for the length of a list.
    upstreams: Mutex<Vec<Arc<UpstreamStats>>>,
}

/// What one worker has told the recorder, and how that is as far as this says.
#[derive(Debug, Default)]
pub struct RecordingStats {
    /// Requests of which it was told.
    pub told: AtomicU64,
    /// Requests of the operator's own, or of who asks not to be tracked.
    pub excluded: AtomicU64,
    /// Requests of which it was not told, as nobody has begun to read.
    pub unread: AtomicU64,
    /// Requests of which it was not told, as it is behind.
    pub full: AtomicU64,
    /// Texts for which there was no room.
    pub untold: AtomicU64,
    /// When it looked last, in microseconds by `CLOCK_MONOTONIC`; 0: never.
    pub seen_us: AtomicU64,
    /// When it has last written figures, likewise.
    pub written_us: AtomicU64,
    /// What it has taken of processors, in microseconds.
    pub cpu_us: AtomicU64,
    /// How sending stands, as `ipc::archive::SentState` has it.
    pub sent: [AtomicU64; 4],
}

/// What became of one worker's programs.
#[derive(Debug, Default)]
pub struct ProgramStats {
    /// Programs that ran.
    pub started: AtomicU64,
    /// Programs that could not be started.
    pub failed: AtomicU64,
    /// Programs killed, by [`Killed`].
    pub killed: [AtomicU64; Killed::ALL.len()],
}

/// What became of one worker's scripts.
#[derive(Debug, Default)]
pub struct ScriptStats {
    /// VMs open now, those of former generations counted.
    pub vms: AtomicU64,
    /// Those of tenants among them.
    pub own_vms: AtomicU64,
    /// VMs of tenants that were opened.
    pub own_opened: AtomicU64,
    /// Those that closed for others.
    pub own_closed: AtomicU64,
    /// Those that did not open.
    pub own_failed: AtomicU64,
    /// Bytes they hold.
    pub memory_bytes: AtomicU64,
    /// Scripts that wait now.
    pub parked: AtomicU64,
    runs: [AtomicU64; Phase::ALL.len()],
    failures: [AtomicU64; Phase::ALL.len()],
}

impl ScriptStats {
    /// Counts a script that has run.
    pub fn count<T, E>(&self, phase: Phase, ended: &Result<T, E>) {
        let counters = match ended {
            Ok(_) => &self.runs,
            Err(_) => &self.failures,
        };
        bump(&counters[phase as usize], 1);
    }

    /// Scripts of a phase that came to their end, and those that failed.
    pub fn of(&self, phase: Phase) -> (u64, u64) {
        let index = phase as usize;
        (
            self.runs[index].load(Relaxed),
            self.failures[index].load(Relaxed),
        )
    }
}

/// Why a program was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    /// Its group was out of memory.
    Memory,
    /// Its group had as many processes as it may.
    Pids,
    /// It had used its processor time.
    CpuTime,
    /// It wrote too large a file.
    FileSize,
    /// It ran for too long.
    Time,
    /// It said nothing for too long.
    Silence,
    /// Its client had gone.
    Client,
    /// Its spawner had gone.
    Spawner,
}

/// What became of one worker's stragglers.
#[derive(Debug, Default)]
pub struct StragglerStats {
    now: AtomicU64,
    /// Those among them that are to forget something.
    forgetting: AtomicU64,
    ended: [AtomicU64; StragglerEnd::ALL.len()],
}

/// How a straggler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StragglerEnd {
    /// It came to its end, or its connection did.
    Finished,
    /// It had its time; the connection was closed.
    Cut,
    /// There were too many: the connection was closed at once.
    Crowded,
}

/// What a site's exchanges came to on one worker.
#[derive(Debug, Default)]
pub struct Replies {
    /// By hundreds of their status, from 1xx.
    pub by_class: [AtomicU64; 5],
    /// Bytes of request bodies that were read.
    pub bytes_in: AtomicU64,
    /// Bytes of reply bodies.
    pub bytes_out: AtomicU64,
    /// TLS handshakes after which a request came, and what these took of processors, in microseconds.
    pub handshakes: AtomicU64,
    pub handshake_us: AtomicU64,
    /// Requests that wait now, for their turn or a pool.
    pub waiting: AtomicU64,
    /// Requests refused by a limit, a cap or for want of a pool, and those shed.
    pub refused: AtomicU64,
}

/// Counts as waiting until dropped, by the worker that counts.
#[derive(Debug)]
pub(crate) struct Waits<'a>(&'a AtomicU64);

/// A site's counters: none until its first exchange, then one counters a worker.
#[derive(Debug, Default)]
pub struct SiteStats {
    by_worker: OnceLock<Box<[OnceLock<Box<Replies>>]>>,
}

/// A request under way at an upstream server.
#[derive(Debug)]
struct Flight {
    /// When it began.
    since_ms: u64,
    /// Whether the server has said a byte.
    is_heard: bool,
}

/// Bytes of a program's name that are kept: as many as 256 letters may have.
const SCRIPT_BYTES_MAX: usize = 1_024;

/// Requests under way.
#[derive(Debug, Default)]
struct Flights {
    each: Slab<Flight>,
    /// By their number the program that is to answer, where somebody asks for that; its room is used again.
    scripts: Vec<Vec<u8>>,
}

/// The requests under way at an upstream server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// How many there are.
    pub count: u64,
    /// Since when the oldest is, in milliseconds after the server's start.
    pub oldest_ms: Option<u64>,
    /// What that one's program is; empty where nobody knows.
    pub script: String,
}

/// One worker's counters of one upstream server.
#[derive(Debug)]
pub struct UpstreamStats {
    /// Name of the upstream.
    pub upstream: String,
    /// Address of the server, as configured.
    pub server: Arc<str>,
    /// Requests it was chosen for.
    pub requests: AtomicU64,
    /// Failures to connect or to answer.
    pub failures: AtomicU64,
    /// Requests it let wait for too long.
    pub timeouts: AtomicU64,
    /// When each request began that is under way, in milliseconds after the server's start, of
    /// pools that are given up too.
    in_flight: Mutex<Flights>,
    /// Failures since it last answered.
    pub fails_in_row: AtomicU64,
    /// How it is, as [`Health`].
    pub health: AtomicU8,
}

/// How an upstream's server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It is asked.
    Up,
    /// It failed too often and has not answered since, but is asked on: there is no other.
    Failing,
    /// It failed too often and has not answered since.
    Out,
}

/// What concerns the process as a whole.
#[derive(Debug)]
pub struct ProcessStats {
    /// When the server started.
    pub started: Instant,
    /// The generation that serves.
    pub generation: AtomicU64,
    /// What the supervisor has counted. Held to copy or replace it.
    pub tally: Mutex<Tally>,
    /// How the recorder is, and programs of alerts. Held to copy or replace it.
    recorder: Mutex<ipc::recorder::ShownRecorder>,
    /// Whether an ending server leaves connections open that wait for their next request.
    pub spares_idle: AtomicBool,
}

/// Durations in buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    /// By bucket; the last one has no bound.
    pub counts: [AtomicU64; BOUNDS_US.len() + 1],
    /// All durations together, in microseconds.
    pub sum_us: AtomicU64,
}

/// Upper bounds of the buckets, in microseconds.
pub(crate) const BOUNDS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Adds to a counter that only this thread writes: no locked instruction is needed.
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkerStats {
    /// The counters of an upstream's server: those it had under a former generation, if any.
    pub fn upstream(&self, upstream: &str, server: &Arc<str>) -> Arc<UpstreamStats> {
        let mut known = lock(&self.upstreams);
        // What no pool holds any more is gone from the configuration.
        known.retain(|stats| Arc::strong_count(stats) > 1);
        let same =
            |stats: &&Arc<UpstreamStats>| stats.upstream == upstream && stats.server == *server;
        if let Some(stats) = known.iter().find(same) {
            return Arc::clone(stats);
        }
        let stats = Arc::new(UpstreamStats::new(upstream, server));
        known.push(Arc::clone(&stats));
        stats
    }

    /// The counters of every upstream server in use.
    pub fn upstreams(&self) -> Vec<Arc<UpstreamStats>> {
        let known = lock(&self.upstreams);
        let in_use = known.iter().filter(|stats| Arc::strong_count(stats) > 1);
        in_use.cloned().collect()
    }
}

impl Killed {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 8] = [
        Self::Memory,
        Self::Pids,
        Self::CpuTime,
        Self::FileSize,
        Self::Time,
        Self::Silence,
        Self::Client,
        Self::Spawner,
    ];

    /// The word for it in logs and figures: the reason of the exchange it ends, where it has one.
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory_limit",
            Self::Pids => "pids_limit",
            Self::CpuTime => "cpu_time_limit",
            Self::FileSize => "file_size_limit",
            Self::Time => "time_limit",
            Self::Silence => "upstream_silent",
            Self::Client => "client",
            Self::Spawner => "spawner_lost",
        }
    }
}

impl ProgramStats {
    /// The counter of programs killed for this.
    pub fn killed(&self, killed: Killed) -> &AtomicU64 {
        &self.killed[killed as usize]
    }
}

impl StragglerEnd {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 3] = [Self::Finished, Self::Cut, Self::Crowded];

    /// The word for it in figures.
    pub fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Cut => "cut",
            Self::Crowded => "crowded",
        }
    }
}

impl StragglerStats {
    /// How many there are.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// The counter of those that ended like this.
    pub fn ended(&self, end: StragglerEnd) -> &AtomicU64 {
        &self.ended[end as usize]
    }

    /// Whether any is to forget something that its process was told for one request.
    pub(crate) fn is_forgetting(&self) -> bool {
        self.forgetting.load(Relaxed) > 0
    }

    /// There is one more.
    pub(crate) fn begin(&self, is_to_forget: bool) {
        bump(&self.now, 1);
        bump(&self.forgetting, u64::from(is_to_forget));
    }

    /// There is one less.
    pub(crate) fn leave(&self, is_to_forget: bool) {
        let less = |count: &AtomicU64, by| count.store(count.load(Relaxed) - by, Relaxed);
        less(&self.now, 1);
        less(&self.forgetting, u64::from(is_to_forget));
    }
}

impl UpstreamStats {
    /// Counters at zero.
    pub fn new(upstream: &str, server: &Arc<str>) -> Self {
        Self {
            upstream: upstream.to_owned(),
            server: Arc::clone(server),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            in_flight: Mutex::default(),
            fails_in_row: AtomicU64::new(0),
            health: AtomicU8::new(Health::Up as u8),
        }
    }

    /// A request begins; its number until [`Self::end`].
    pub fn begin(&self, now_ms: u64) -> usize {
        bump(&self.requests, 1);
        let mut flights = self.flights();
        let flight = flights.each.insert(Flight {
            since_ms: now_ms,
            is_heard: false,
        });
        let script = flights.scripts.get_mut(flight);
        script.into_iter().for_each(Vec::clear);
        flight
    }

    /// A request has heard the first byte of its reply.
    pub fn note_heard(&self, flight: usize) {
        if let Some(flight) = self.flights().each.get_mut(flight) {
            flight.is_heard = true;
        }
    }

    /// A request is for this program.
    pub fn note_script(&self, flight: usize, script: &[u8]) {
        let mut flights = self.flights();
        let room = flights.scripts.len().max(flight + 1);
        flights.scripts.resize_with(room, Vec::new);
        if let Some(known) = flights.scripts.get_mut(flight) {
            known.clear();
            known.extend_from_slice(script.get(..SCRIPT_BYTES_MAX).unwrap_or(script));
        }
    }

    /// A request has ended.
    pub fn end(&self, flight: usize) {
        self.flights().each.try_remove(flight);
    }

    /// The requests that are under way.
    pub fn under_way(&self) -> UnderWay {
        let flights = self.flights();
        let each = flights.each.iter();
        let oldest = each.min_by_key(|(_, flight)| flight.since_ms);
        let script = oldest.and_then(|(number, _)| flights.scripts.get(number));
        let script = script.map(|it| String::from_utf8_lossy(it).into_owned());
        UnderWay {
            count: flights.each.len() as u64,
            oldest_ms: oldest.map(|(_, flight)| flight.since_ms),
            script: script.unwrap_or_default(),
        }
    }

    /// How many requests that began after a moment have heard nothing, and since when the oldest
    /// of them waits.
    pub fn unheard(&self, after_ms: u64) -> (u64, Option<u64>) {
        let flights = self.flights();
        let began_ms = flights
            .each
            .iter()
            .filter(|(_, flight)| !flight.is_heard && flight.since_ms > after_ms)
            .map(|(_, flight)| flight.since_ms);
        began_ms.fold((0, None), |(count, oldest_ms), since_ms| {
            (count + 1, oldest_ms.min(Some(since_ms)).or(Some(since_ms)))
        })
    }

    fn flights(&self) -> MutexGuard<'_, Flights> {
        lock(&self.in_flight)
    }

    /// Notes how the server is, after so many failures in a row.
    pub fn note_health(&self, fails: u32, health: Health) {
        self.fails_in_row.store(fails.into(), Relaxed);
        self.health.store(health as u8, Relaxed);
    }

    /// Whether this is how the server is.
    pub fn is(&self, health: Health) -> bool {
        self.health.load(Relaxed) == health as u8
    }
}

impl Replies {
    /// Counts a reply by its status, and the bytes of both bodies.
    pub(crate) fn count(&self, status: u16, bytes_in: u64, bytes_out: u64) {
        let class = usize::from(status / 100).wrapping_sub(1);
        if let Some(counter) = self.by_class.get(class) {
            bump(counter, 1);
        }
        bump(&self.bytes_in, bytes_in);
        bump(&self.bytes_out, bytes_out);
    }

    /// Counts the handshake of a connection whose first request this is.
    pub(crate) fn count_handshake(&self, cpu_us: u64) {
        bump(&self.handshakes, 1);
        bump(&self.handshake_us, cpu_us);
    }

    /// Counts a request that waits from now on.
    pub(crate) fn wait(&self) -> Waits<'_> {
        bump(&self.waiting, 1);
        Waits(&self.waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        bump(self.0, 1_u64.wrapping_neg());
    }
}

impl SiteStats {
    /// The counters of a worker that serves the site; `None` for a number that no worker has.
    pub(crate) fn of_worker(&self, worker: usize, workers: usize) -> Option<&Replies> {
        let by_worker = self
            .by_worker
            .get_or_init(|| (0..workers).map(|_| OnceLock::new()).collect());
        Some(by_worker.get(worker)?.get_or_init(Box::default))
    }

    /// The by_worker of the workers that have served the site.
    pub fn of_workers(&self) -> impl Iterator<Item = &Replies> {
        let by_worker = self.by_worker.get().into_iter().flatten();
        by_worker.filter_map(|counters| counters.get().map(|replies| &**replies))
    }
}

impl ProcessStats {
    /// Counters at zero, for a server that starts now.
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            generation: AtomicU64::new(0),
            tally: Mutex::default(),
            recorder: Mutex::default(),
            spares_idle: AtomicBool::default(),
        }
    }

    /// Takes over what the supervisor has counted.
    pub fn show(&self, tally: Tally) {
        *lock(&self.tally) = tally;
    }

    /// Takes over how the recorder is, and what became of programs of alerts.
    pub fn show_recorder(&self, told: ipc::recorder::ShownRecorder) {
        *lock(&self.recorder) = told;
    }

    /// How the recorder is, and what became of programs of alerts.
    pub fn recorder(&self) -> MutexGuard<'_, ipc::recorder::ShownRecorder> {
        lock(&self.recorder)
    }

    /// What the supervisor has counted.
    pub fn tally(&self) -> Tally {
        lock(&self.tally).clone()
    }
}

impl Default for ProcessStats {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn count(&self, duration_us: u64) {
        let bucket = BOUNDS_US.partition_point(|bound| *bound < duration_us);
        if let Some(counter) = self.counts.get(bucket) {
            bump(counter, 1);
        }
        bump(&self.sum_us, duration_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_programs_name_is_used_again_and_its_name_is_not() {
        let stats = UpstreamStats::new("pool", &Arc::from("a"));
        let first = stats.begin(1);
        stats.note_script(first, b"/srv/long/first.php");
        assert_eq!(stats.under_way().script, "/srv/long/first.php");
        stats.end(first);
        let second = stats.begin(2);
        assert_eq!((second, stats.under_way().script.as_str()), (first, ""));
        stats.note_script(second, &[b'a'; 2 * SCRIPT_BYTES_MAX]);
        assert_eq!(stats.under_way().script.len(), SCRIPT_BYTES_MAX);
    }

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass() {
        let histogram = Histogram::default();
        for duration_us in [0, 100, 101, 60_000_000, 60_000_001, u64::MAX / 2] {
            histogram.count(duration_us);
        }
        let counts: Vec<_> = histogram
            .counts
            .iter()
            .map(|count| count.load(Relaxed))
            .collect();
        assert_eq!((counts[0], counts[1], counts[17], counts[18]), (2, 1, 1, 2));
    }

    #[test]
    fn a_site_without_exchanges_costs_next_to_nothing() {
        assert!(size_of::<SiteStats>() + size_of::<Arc<SiteStats>>() <= 64);
        let site = SiteStats::default();
        assert_eq!(site.of_workers().count(), 0);
        let replies = site.of_worker(1, 2).unwrap();
        bump(&replies.bytes_out, 5);
        let waits = [replies.wait(), replies.wait()];
        assert_eq!(replies.waiting.load(Relaxed), 2);
        drop(waits);
        assert_eq!(replies.waiting.load(Relaxed), 0);
        assert_eq!(
            (site.of_workers().count(), site.of_worker(2, 2).is_none()),
            (1, true)
        );
    }

    #[test]
    fn an_upstreams_counters_outlive_a_reload_but_not_the_upstream() {
        let stats = WorkerStats::default();
        let address = |text: &str| Arc::<str>::from(text);
        let old = stats.upstream("app", &address("a:1"));
        bump(&old.requests, 3);
        let new = stats.upstream("app", &address("a:1"));
        drop(old);
        assert_eq!(new.requests.load(Relaxed), 3);
        drop(new);
        assert!(stats.upstreams().is_empty());
        assert_eq!(
            stats
                .upstream("app", &address("a:1"))
                .requests
                .load(Relaxed),
            0
        );
    }
}
