//! What the workers know of pools: which run, which are awaited, and which cannot be had just now.
//!
//! The idea: what one worker hears all of them know, and to find that a pool runs costs one look.
//! One that ran when its spawner was lost is asked on, as its socket is the supervisor's and its
//! processes live; the next spawner is asked whether they do, and nobody waits for that answer.
//! Who waits for one that does not run is in `handler/warm/`. A site that joins a pool which runs may
//! have files that its processes do not see: to such a [`Newcomer`] it is cold until others, which
//! do, have taken over.

mod all;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use config::model::{Model, Pool, PoolProgram};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use ipc::order::Failure;
use ipc::rows::RowOrder;

pub(crate) use self::all::AllPools;

/// How often the spawner hears that a pool is in use, at least and at most; otherwise so many times
/// in the time that it is kept without work.
const TOLD_MS_MIN: u64 = 250;
const TOLD_MS_MAX: u64 = 60_000;
const TOLD_TIMES: u64 = 4;
/// Of a page's time a connection may be idle before it for one part of so many.
const IDLE_PARTS: u64 = 20;
/// How long a failure is told at least to those who ask: all who waited hear of it.
const FAILED_MS_MIN: u64 = 200;

/// A pool of processes, as the workers know it. One that stays stays with the next generation.
#[derive(Debug)]
pub struct ProgramPool {
    /// Names it, as `config::model::Pool::id`.
    pub id: Box<str>,
    /// In messages.
    pub name: Box<str>,
    /// Whose it is.
    pub tenant: Box<str>,
    /// Where its php-fpm listens; `None`: it is an application.
    pub php_socket: Option<Box<Path>>,
    /// What is counted of it.
    pub stats: PoolStats,
    /// Whether it is known to run.
    is_warm: AtomicBool,
    known: Mutex<Known>,
    changed: Notify,
    /// How often it has ended, and been handed over to other processes, and when that was last.
    ends: AtomicU64,
    hand_overs: AtomicU64,
    handed_over: Mutex<Option<Instant>>,
    waiting: AtomicUsize,
    /// Requests for it that are under way.
    under_way: AtomicUsize,
    /// Whether there has been one since the spawner was told that it is in use.
    was_used: AtomicBool,
    /// When that was, and how often it is to be, in milliseconds.
    told_ms: AtomicU64,
    tell_every_ms: AtomicU64,
    /// How long a page of its php-fpm may take, in milliseconds; 0 where nothing ends one.
    page_ms: AtomicU64,
    /// How many pages it runs at once; 0 where nobody knows.
    pages_max: AtomicU32,
    /// The row whose it is; `None`: the configuration has it.
    pub(super) row: Option<Box<RowOrder>>,
    /// The path of a row's group, within that of its tenant.
    pub(crate) group: Option<Box<[String; 2]>>,
}

/// What a pool has of its settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolTimes {
    tell_every_ms: u64,
    page_ms: u64,
    pages_max: u32,
}

/// Why requests are refused for want of a pool.
pub(crate) const REFUSALS: [&str; 5] = [
    "pool_starting",
    "pool_failed",
    "pools_full",
    "unknown_rule",
    "tenant_suspended",
];

/// What is counted of a pool, by all workers.
#[derive(Debug, Default)]
pub struct PoolStats {
    /// Starts that were waited for and came to something.
    pub started: AtomicU64,
    /// Starts that came to nothing.
    pub failed: AtomicU64,
    /// Requests that waited until it ran.
    pub waited: AtomicU64,
    /// How long, all together, in microseconds.
    pub waited_us: AtomicU64,
    /// Requests refused for want of it, as [`REFUSALS`].
    pub refused: [AtomicU64; REFUSALS.len()],
    /// What the spawner has counted, as `ipc::order::PoolCounts`.
    pub masters: AtomicU64,
    pub masters_us: AtomicU64,
    pub mails: AtomicU64,
    pub mails_unsent: AtomicU64,
}

/// How a pool is, as far as anybody here knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Known {
    /// It does not run, or nobody has asked.
    #[default]
    Cold,
    /// It waits for its turn to start, or starts.
    Starting {
        /// When it will run, as was predicted.
        ready_at: Instant,
    },
    /// It runs.
    Warm,
    /// It ran when its spawner was lost.
    Unsure,
    /// It could not be started.
    Failed {
        /// When it may be asked for again.
        until: Instant,
        /// The reason as clients and records have it.
        reason: &'static str,
        /// Why.
        why: Arc<str>,
    },
}

/// A site that has come to a pool with a reload or an upgrade.
#[derive(Debug, Default)]
pub struct Newcomer {
    /// Whether all of the pool that accepts a connection was started for this site, too.
    is_in: AtomicBool,
    /// How that is, until it is in: never warm.
    known: Mutex<Known>,
}

/// Counts as waiting until dropped.
#[derive(Debug)]
pub struct Awaiting<'a>(&'a AtomicUsize);

/// Has a request under way until dropped.
#[derive(Debug)]
pub struct InUse<'a>(&'a ProgramPool);

/// Makes the pools of a generation; those there were `before` are the same ones.
pub(crate) fn compile(model: &Model, before: &[Arc<ProgramPool>]) -> Arc<[Arc<ProgramPool>]> {
    let before: HashMap<&str, _> = before.iter().map(|it| (&*it.id, it)).collect();
    let pools = model.pools.iter().map(|own| {
        let same = before.get(own.id.as_str()).copied();
        let php = match &own.program {
            PoolProgram::Php(php) => Some(php),
            PoolProgram::App(_) => None,
        };
        let php_socket = php.map(|_| &*own.socket);
        let same = same.filter(|it| {
            let is_named_so = *it.name == *own.name && *it.tenant == *own.tenant;
            is_named_so && it.php_socket.as_deref() == php_socket
        });
        let new = || {
            Arc::new(ProgramPool {
                php_socket: php_socket.map(Box::from),
                ..ProgramPool::new(&own.id, &own.name, &own.tenant)
            })
        };
        let pool = same.cloned().unwrap_or_else(new);
        let idle_ms = model.pool_terms.idle_ms;
        let times = php.map(|php| PoolTimes::new(idle_ms, php.time_ms, php.processes));
        pool.set(times.unwrap_or_else(|| PoolTimes::of_app(idle_ms)));
        pool
    });
    pools.collect()
}

/// Settings of PHP that no file of a tenant changes, of each pool: those of its operator, and where
/// these keep it to some directories, what php-fpm would write elsewhere.
pub(crate) fn fixed_settings(model: &Model) -> Box<[BTreeSet<Box<str>>]> {
    let of_pool = |pool: &Pool| {
        let PoolProgram::Php(own) = &pool.program else {
            return BTreeSet::new();
        };
        let ini = model.php.get(own.php).map_or(&[][..], |php| &php.ini);
        fixed_by(&own.admin, own.admin.iter().chain(ini))
    };
    model.pools.iter().map(of_pool).collect()
}

/// The same of one pool, by its operator's settings and by all that hold for it.
pub(crate) fn fixed_by<'a>(
    admin: &'a [(String, String)],
    mut all: impl Iterator<Item = &'a (String, String)>,
) -> BTreeSet<Box<str>> {
    let has_wall = all.any(|(name, _)| name == "open_basedir");
    let names = admin.iter().map(|(name, _)| name.as_str());
    let names = names.chain(has_wall.then_some("error_log"));
    names.map(Box::from).collect()
}

impl PoolTimes {
    /// Those of a php-fpm that is kept so long without work, and whose pages may take so long.
    pub(crate) fn new(idle_ms: u64, time_ms: u64, processes: u32) -> Self {
        Self {
            // As php-fpm is told: in whole seconds.
            page_ms: time_ms.div_ceil(1_000).max(1) * 1_000,
            pages_max: processes,
            ..Self::of_app(idle_ms)
        }
    }

    fn of_app(idle_ms: u64) -> Self {
        Self {
            tell_every_ms: (idle_ms / TOLD_TIMES).clamp(TOLD_MS_MIN, TOLD_MS_MAX),
            page_ms: 0,
            pages_max: 0,
        }
    }
}

impl ProgramPool {
    /// One of which nothing is known.
    pub(crate) fn new(id: &str, name: &str, tenant: &str) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            tenant: tenant.into(),
            php_socket: None,
            stats: PoolStats::default(),
            is_warm: AtomicBool::new(false),
            known: Mutex::new(Known::Cold),
            changed: Notify::new(),
            ends: AtomicU64::new(0),
            hand_overs: AtomicU64::new(0),
            handed_over: Mutex::default(),
            waiting: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            was_used: AtomicBool::new(false),
            told_ms: AtomicU64::new(0),
            tell_every_ms: AtomicU64::new(TOLD_MS_MAX),
            page_ms: AtomicU64::new(0),
            pages_max: AtomicU32::new(0),
            row: None,
            group: None,
        }
    }

    fn set(&self, times: PoolTimes) {
        self.tell_every_ms.store(times.tell_every_ms, Relaxed);
        self.page_ms.store(times.page_ms, Relaxed);
        self.pages_max.store(times.pages_max, Relaxed);
    }

    /// Whether it is known to run.
    pub fn is_warm(&self) -> bool {
        self.is_warm.load(Acquire)
    }

    /// How it is.
    pub fn known(&self, now: Instant) -> Known {
        self.known_by(None, now)
    }

    /// How it is for a newcomer, or everybody else.
    pub fn known_by(&self, newcomer: Option<&Newcomer>, now: Instant) -> Known {
        let newcomer = newcomer.filter(|newcomer| !newcomer.is_in());
        match &*lock(newcomer.map_or(&self.known, |newcomer| &newcomer.known)) {
            Known::Failed { until, .. } if *until <= now => Known::Cold,
            known => known.clone(),
        }
    }

    /// How often it has ended.
    pub fn ends(&self) -> u64 {
        self.ends.load(Acquire)
    }

    /// How often other processes have taken it over.
    pub fn hand_overs(&self) -> u64 {
        self.hand_overs.load(Acquire)
    }

    /// Whether others have taken it over at most so long ago.
    pub fn was_handed_over(&self, within: Duration) -> bool {
        let handed_over = *lock(&self.handed_over);
        handed_over.is_some_and(|at| at.elapsed() < within)
    }

    /// Ready with the next change, once it was polled or enabled.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Ready once it has ended, or been handed over, more often than so.
    pub async fn replaced(&self, ends: u64, hand_overs: u64) {
        loop {
            let mut changed = pin!(self.changed());
            changed.as_mut().enable();
            if (self.ends(), self.hand_overs()) != (ends, hand_overs) {
                return;
            }
            changed.await;
        }
    }

    /// How long a page of it may take, where its php-fpm ends one.
    pub fn page_time(&self) -> Option<Duration> {
        let page_ms = self.page_ms.load(Relaxed);
        (page_ms > 0).then(|| Duration::from_millis(page_ms))
    }

    /// How many pages it runs at once, where somebody has said so.
    pub fn pages_max(&self) -> Option<u32> {
        Some(self.pages_max.load(Relaxed)).filter(|pages| *pages > 0)
    }

    /// How long a connection to it may have been idle at most, in milliseconds. php-fpm takes that for
    /// a part of the next page's time.
    pub fn idle_ms(&self) -> u64 {
        match self.page_ms.load(Relaxed) {
            0 => u64::MAX,
            page_ms => page_ms / IDLE_PARTS,
        }
    }

    /// Requests that wait for it.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Waits from now on; `None` where so many do already.
    pub fn wait(&self, waiting_max: usize) -> Option<Awaiting<'_>> {
        let more = |count: usize| (count < waiting_max).then_some(count + 1);
        let waiting = &self.waiting;
        let counted = waiting.fetch_update(Relaxed, Relaxed, more);
        counted.is_ok().then(|| Awaiting(waiting))
    }

    /// Has a request under way from now on.
    pub fn begin(&self) -> InUse<'_> {
        self.under_way.fetch_add(1, Relaxed);
        InUse(self)
    }

    /// Whether the spawner is to hear that it is in use; of all workers one is to tell it.
    pub(super) fn is_use_to_tell(&self, now_ms: u64) -> bool {
        let is_used = self.under_way.load(Relaxed) > 0 || self.was_used.load(Relaxed);
        let told_ms = self.told_ms.load(Relaxed);
        if !is_used || now_ms < told_ms + self.tell_every_ms.load(Relaxed) {
            return false;
        }
        let told = &self.told_ms;
        let is_ours = told.compare_exchange(told_ms, now_ms, Relaxed, Relaxed);
        if is_ours.is_ok() {
            self.was_used.store(false, Relaxed);
        }
        is_ours.is_ok()
    }

    /// It will run in so long, as is predicted. What another worker has heard since counts more.
    pub(super) fn note_starting(&self, newcomer: Option<&Newcomer>, wait_ms: u64) {
        let ready_at = Instant::now() + Duration::from_millis(wait_ms);
        self.turn(newcomer, |known| {
            (*known != Known::Warm).then_some(Known::Starting { ready_at })
        });
    }

    /// It runs, and serves this newcomer, too.
    pub(super) fn note_warm(&self, newcomer: Option<&Newcomer>) {
        let for_newcomer = newcomer.map(|newcomer| {
            newcomer.is_in.store(true, Release);
            self.turn(Some(newcomer), |_| Some(Known::Cold))
        });
        let before = self.turn(None, |_| Some(Known::Warm));
        let mut each = for_newcomer.iter().chain([&before]);
        if each.any(|before| matches!(before, Known::Starting { .. })) {
            self.stats.started.fetch_add(1, Relaxed);
        }
    }

    /// It could not be started, or not for a newcomer.
    pub(super) fn note_failed(
        &self,
        newcomer: Option<&Newcomer>,
        (failure, detail): (Failure, &str),
        retry_ms: u64,
    ) {
        let rest_ms = match failure {
            // It is the operator who says until when.
            Failure::TenantSuspended => FAILED_MS_MIN,
            _ => retry_ms.max(FAILED_MS_MIN),
        };
        let until = Instant::now() + Duration::from_millis(rest_ms);
        let why = match detail {
            "" => failure.word().into(),
            detail => format!("{}: {detail}", failure.word()).into(),
        };
        let reason = match failure {
            Failure::UnknownRule | Failure::PoolsFull | Failure::TenantSuspended => failure.word(),
            _ => Failure::PoolFailed.word(),
        };
        let failed = Known::Failed { until, reason, why };
        let before = self.turn(newcomer, |_| Some(failed));
        // Every worker that has asked is told of the same one.
        if !matches!(before, Known::Failed { .. }) {
            self.stats.failed.fetch_add(1, Relaxed);
        }
    }

    /// The spawner that was asked is gone.
    pub(super) fn note_lost(&self, newcomer: Option<&Newcomer>) {
        let is_starting = |known: &Known| matches!(known, Known::Starting { .. });
        self.turn(newcomer, |known| is_starting(known).then_some(Known::Cold));
    }

    /// An operator has ended its rest.
    pub(crate) fn note_rested(&self, newcomer: Option<&Newcomer>) {
        let rests = |known: &Known| matches!(known, Known::Failed { .. });
        self.turn(newcomer, |known| rests(known).then_some(Known::Cold));
    }

    /// There is another spawner, which has not been asked.
    fn note_spawner(&self) {
        self.turn(None, |known| match known {
            Known::Warm => Some(Known::Unsure),
            Known::Starting { .. } => Some(Known::Cold),
            _ => None,
        });
    }

    /// It has ended.
    fn note_cold(&self) {
        self.ends.fetch_add(1, Release);
        self.turn(None, |known| match known {
            // Its next start may be under way, or have failed.
            Known::Warm | Known::Unsure => Some(Known::Cold),
            _ => None,
        });
    }

    /// Has those who wait look again.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Notes how it is now and wakes those who wait, be there news or not; says how it was.
    fn turn(
        &self,
        newcomer: Option<&Newcomer>,
        next: impl FnOnce(&Known) -> Option<Known>,
    ) -> Known {
        let mut known = lock(newcomer.map_or(&self.known, |newcomer| &newcomer.known));
        let before = known.clone();
        if let Some(next) = next(&before) {
            if newcomer.is_none() {
                self.is_warm.store(next == Known::Warm, Release);
            }
            *known = next;
        }
        drop(known);
        self.changed.notify_waiters();
        before
    }
}

impl Newcomer {
    /// Whether it has nothing to wait for beyond what everybody has.
    pub fn is_in(&self) -> bool {
        self.is_in.load(Acquire)
    }
}

fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// The word for it in figures.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Starting { .. } => "starting",
            Self::Warm | Self::Unsure => "warm",
            Self::Failed { .. } => "failed",
        }
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let pool = self.0;
        // Written once by many: workers do not contend for it.
        if !pool.was_used.load(Relaxed) {
            pool.was_used.store(true, Relaxed);
        }
        pool.under_way.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> ProgramPool {
        ProgramPool::new("a", "php 8.2 of a.test", "a.test")
    }

    fn known(pool: &ProgramPool) -> &'static str {
        let known = pool.known(Instant::now());
        assert_eq!(pool.is_warm(), known == Known::Warm);
        known.word()
    }

    #[test]
    fn a_pool_is_what_was_last_heard_of_it() {
        let pool = pool();
        assert_eq!(known(&pool), "cold");
        pool.note_starting(None, 60_000);
        assert_eq!(known(&pool), "starting");
        pool.note_warm(None);
        assert_eq!(known(&pool), "warm");
        // Another worker's link is slower.
        pool.note_starting(None, 60_000);
        assert_eq!(known(&pool), "warm");
        pool.note_warm(None);
        assert_eq!(pool.stats.started.load(Relaxed), 1);
        pool.note_cold();
        assert_eq!((known(&pool), pool.ends()), ("cold", 1));
    }

    #[test]
    fn a_failure_is_over_in_its_time() {
        let pool = pool();
        pool.note_starting(None, 0);
        pool.note_failed(None, (Failure::NotFound, "no such file"), 5_000);
        pool.note_failed(None, (Failure::NotFound, "no such file"), 5_000);
        assert_eq!(pool.stats.failed.load(Relaxed), 1);
        let Known::Failed { why, until, .. } = pool.known(Instant::now()) else {
            panic!("it failed");
        };
        assert_eq!(&*why, "program_not_found: no such file");
        assert_eq!(pool.known(until), Known::Cold);
    }

    #[test]
    fn what_is_not_the_pools_fault_has_a_reason_of_its_own() {
        let pool = pool();
        for (failure, expected) in [
            (Failure::NotFound, "pool_failed"),
            (Failure::PoolFailed, "pool_failed"),
            (Failure::PoolsFull, "pools_full"),
            (Failure::UnknownRule, "unknown_rule"),
            (Failure::TenantSuspended, "tenant_suspended"),
        ] {
            pool.note_failed(None, (failure, ""), 5_000);
            let Known::Failed { reason, .. } = pool.known(Instant::now()) else {
                panic!("it failed");
            };
            assert_eq!(reason, expected);
        }
    }

    #[test]
    fn a_newcomer_waits_for_itself_and_harms_nobody() {
        let (pool, newcomer) = (pool(), Newcomer::default());
        let by_newcomer = || pool.known_by(Some(&newcomer), Instant::now()).word();
        pool.note_warm(None);
        assert_eq!((known(&pool), by_newcomer()), ("warm", "cold"));
        pool.note_starting(Some(&newcomer), 60_000);
        assert_eq!((known(&pool), by_newcomer()), ("warm", "starting"));
        pool.note_failed(Some(&newcomer), (Failure::PoolFailed, ""), 5_000);
        assert_eq!((known(&pool), by_newcomer()), ("warm", "failed"));
        pool.note_rested(Some(&newcomer));
        assert_eq!(by_newcomer(), "cold");
        pool.note_starting(Some(&newcomer), 60_000);
        pool.note_lost(Some(&newcomer));
        assert_eq!(by_newcomer(), "cold");
        pool.note_starting(Some(&newcomer), 60_000);
        pool.note_warm(Some(&newcomer));
        assert!(newcomer.is_in());
        assert_eq!((known(&pool), by_newcomer()), ("warm", "warm"));
        let counted = [&pool.stats.started, &pool.stats.failed].map(|it| it.load(Relaxed));
        assert_eq!(counted, [1, 1]);
        pool.note_cold();
        assert_eq!(by_newcomer(), "cold", "as for everybody");
    }

    #[test]
    fn a_rest_that_an_operator_ends_is_over() {
        let pool = pool();
        pool.note_failed(None, (Failure::PoolFailed, ""), 60_000);
        assert_eq!(known(&pool), "failed");
        pool.note_rested(None);
        assert_eq!(known(&pool), "cold");
        pool.note_warm(None);
        pool.note_rested(None);
        assert_eq!(known(&pool), "warm");
    }

    #[test]
    fn a_suspension_is_told_to_those_who_wait_and_not_remembered() {
        let pool = pool();
        pool.note_failed(None, (Failure::TenantSuspended, ""), 5_000);
        let soon = Instant::now() + Duration::from_millis(FAILED_MS_MIN);
        assert_eq!(pool.known(soon), Known::Cold);
    }

    #[test]
    fn one_that_is_in_use_is_told_of_now_and_then_and_one_that_is_not_never() {
        let pool = pool();
        let told = |times: std::ops::Range<u64>| {
            let told = times.filter(|second| pool.is_use_to_tell(second * 1_000));
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(0..500), [0; 0]);
        let request = pool.begin();
        assert_eq!(told(500..700), [500, 560, 620, 680]);
        drop(request);
        // It was in use since the last time.
        assert_eq!(told(700..1_000), [740]);
        drop(pool.begin());
        assert_eq!(told(1_000..2_000), [1_000]);
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let pool = pool();
        let first = pool.wait(2).expect("a place");
        let second = pool.wait(2).expect("a place");
        assert!(pool.wait(2).is_none());
        drop(first);
        assert!(pool.wait(2).is_some());
        drop(second);
        assert_eq!(pool.waiting(), 0);
    }
}
