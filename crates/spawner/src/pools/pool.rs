//! What the machine knows of one pool.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ipc::pools::{PoolManifest, PoolProgramManifest, PoolState};

use super::machine::Ask;

/// The first rest after a start that failed; each one after it is twice as long.
pub(super) const REST: Duration = Duration::from_secs(1);
/// The longest.
const REST_MAX: Duration = Duration::from_secs(60);
/// How long processes that were told to end may still accept a connection.
pub(super) const ACCEPTS_MAX: Duration = Duration::from_secs(1);
/// How long a master of php-fpm may take until it is ready.
const PHP_START_MAX: Duration = Duration::from_secs(30);
/// What a master of php-fpm has beyond a request's time to end.
const PHP_STOP_REST: Duration = Duration::from_secs(5);
/// How late workers may say that a pool is in use.
const TOLD_LATE: Duration = Duration::from_millis(1_500);
/// How long a pool without work is kept that the latest manifest does not name.
pub(super) const UNNAMED: Duration = Duration::from_secs(5);
/// Starts remembered of each pool.
const TIMES_MAX: usize = 64;

/// On what terms a pool runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) tenant: String,
    pub(super) weight: u32,
    /// Whether the latest manifest names it.
    pub(super) is_named: bool,
    /// How long it is kept without work; `None` for ever, and it starts by itself.
    pub(super) idle: Option<Duration>,
    /// How long it may take until it is ready.
    pub(super) start_max: Duration,
    /// How long it may take to end.
    pub(super) stop_max: Duration,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) terms: Terms,
    pub(super) serving: Option<Run>,
    pub(super) coming: Option<Coming>,
    pub(super) leaving: Vec<Leaving>,
    /// Since when it waits for its turn.
    pub(super) waiting: Option<Instant>,
    pub(super) asks: Vec<Ask>,
    /// Orders of those who wait until all that accepts was told what the latest manifest says.
    pub(super) joining: Vec<Ask>,
    /// Why another run is to take over from the one that serves; `None`: none is.
    pub(super) stale: Option<&'static str>,
    pub(super) rests: Option<Instant>,
    /// Starts that failed in a row.
    pub(super) failures: u32,
    /// Runs that ended soon in a row.
    pub(super) crashes: u32,
    pub(super) worked: Instant,
    pub(super) figures: Figures,
}

/// What is told of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) starts: u64,
    /// How long these took, all together.
    pub(super) started_us: u64,
    pub(super) starts_failed: u64,
    pub(super) mails: u64,
    pub(super) mails_unsent: u64,
    pub(super) times: VecDeque<Duration>,
    pub(super) cost_us: Option<u64>,
    pub(super) failure: String,
}

/// A run that serves.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) since: Instant,
}

#[derive(Debug)]
pub(super) struct Coming {
    pub(super) number: u64,
    pub(super) since: Instant,
    /// What its tenant was charged beforehand.
    pub(super) charged_us: u64,
    /// Why it was started.
    pub(super) why: &'static str,
}

#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) number: u64,
    /// When it was told to end, or killed.
    pub(super) since: Instant,
    /// When it is killed; `None` once it was.
    pub(super) until: Option<Instant>,
    /// Why it ends; `None` where that has been told.
    pub(super) why: Option<&'static str>,
}

impl Terms {
    /// Those of a pool that the latest manifest names.
    pub(super) fn of(pool: &PoolManifest) -> Terms {
        let (start_max, stop_max) = match &pool.program {
            PoolProgramManifest::Php { time_ms, .. } => {
                let stop_max = Duration::from_millis(*time_ms) + PHP_STOP_REST;
                (PHP_START_MAX, stop_max)
            }
            PoolProgramManifest::App {
                start_ms, stop_ms, ..
            } => (
                Duration::from_millis(*start_ms),
                Duration::from_millis(*stop_ms),
            ),
        };
        Terms {
            tenant: pool.tenant.clone(),
            weight: pool.weight,
            is_named: true,
            idle: pool.idle_ms.map(|ms| Duration::from_millis(ms) + TOLD_LATE),
            start_max,
            stop_max,
        }
    }

    /// Those of one that nobody knows any more.
    pub(super) fn unknown() -> Terms {
        Terms {
            tenant: String::new(),
            weight: 1,
            is_named: false,
            idle: Some(Duration::ZERO),
            start_max: PHP_START_MAX,
            stop_max: PHP_START_MAX,
        }
    }
}

impl Pool {
    pub(super) fn new(terms: Terms, now: Instant) -> Pool {
        Pool {
            terms,
            serving: None,
            coming: None,
            leaving: Vec::new(),
            waiting: None,
            asks: Vec::new(),
            joining: Vec::new(),
            stale: None,
            rests: None,
            failures: 0,
            crashes: 0,
            worked: now,
            figures: Figures::default(),
        }
    }

    pub(super) fn rest(&self, now: Instant) -> Option<Duration> {
        let left = self.rests?.checked_duration_since(now)?;
        (!left.is_zero()).then_some(left)
    }

    /// Whether it is to be started without being asked for.
    pub(super) fn wants_by_itself(&self) -> bool {
        let is_kept = self.terms.is_named && self.terms.idle.is_none();
        match self.serving {
            Some(_) => self.stale.is_some(),
            None => is_kept || self.is_asked_for(),
        }
    }

    /// Whether somebody waits for it.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.asks.is_empty() || !self.joining.is_empty()
    }

    /// Why it is started now.
    pub(super) fn why_now(&self) -> &'static str {
        match (&self.serving, self.stale) {
            (Some(_), Some(why)) => why,
            _ if self.is_asked_for() => "a request came",
            _ if self.wants_by_itself() => "it is kept",
            _ => "somebody connected",
        }
    }

    /// The orders that wait, which do so no longer.
    pub(super) fn take_asks(&mut self) -> impl Iterator<Item = Ask> + use<> {
        let (asks, joining) = (
            std::mem::take(&mut self.asks),
            std::mem::take(&mut self.joining),
        );
        asks.into_iter().chain(joining)
    }

    /// Whether who connects may come to processes that were told something else than the latest
    /// manifest says: to be replaced, or told to end so lately that they may still accept.
    pub(super) fn is_behind(&self, now: Instant) -> bool {
        let accepts = |leaving: &Leaving| now < leaving.since + ACCEPTS_MAX;
        let is_replaced = self.stale.is_some() || self.coming.is_some();
        is_replaced || self.leaving.iter().any(accepts)
    }

    pub(super) fn idle(&self) -> Option<Duration> {
        match self.terms.is_named {
            true => self.terms.idle,
            false => Some(self.terms.idle.map_or(UNNAMED, |idle| idle.min(UNNAMED))),
        }
    }

    pub(super) fn state(&self, now: Instant) -> PoolState {
        match (&self.serving, &self.coming) {
            (Some(_), Some(_)) => PoolState::HandingOver,
            (Some(_), None) => PoolState::Warm,
            (None, Some(_)) => PoolState::Starting,
            (None, None) if self.waiting.is_some() => PoolState::Waiting,
            (None, None) if !self.leaving.is_empty() => PoolState::Draining,
            (None, None) if self.rest(now).is_some() => PoolState::Failed,
            (None, None) => PoolState::Cold,
        }
    }

    /// Whether nothing runs or is to run.
    pub(super) fn is_still(&self) -> bool {
        let has_run = self.serving.is_some() || self.coming.is_some() || !self.leaving.is_empty();
        !has_run && self.waiting.is_none() && !self.wants_by_itself()
    }

    /// Whether nobody would miss it.
    pub(super) fn is_forgettable(&self) -> bool {
        !self.terms.is_named && self.is_still()
    }
}

impl Figures {
    /// The start that took longer than so many of a hundred.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut times: Vec<_> = self.times.iter().copied().collect();
        times.sort_unstable();
        let at = (times.len() * percent).div_ceil(100).max(1);
        times.get(at - 1).copied()
    }

    pub(super) fn add(&mut self, time: Duration, cost_us: u64) {
        self.starts += 1;
        self.started_us += u64::try_from(time.as_micros()).unwrap_or(0);
        if self.times.len() >= TIMES_MAX {
            self.times.pop_front();
        }
        self.times.push_back(time);
        self.cost_us = Some(cost_us);
    }
}

/// The rest after so many failures in a row.
pub(super) fn rest_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    REST.saturating_mul(1 << doublings).min(REST_MAX)
}

/// When time brings something for a pool.
pub(super) fn until(pool: &Pool, now: Instant) -> Option<Instant> {
    let leaving = pool.leaving.iter().filter_map(|leaving| leaving.until);
    let coming = pool.coming.as_ref();
    let coming = coming.map(|coming| coming.since + pool.terms.start_max);
    let idle = pool.serving.as_ref().and_then(|_| pool.idle());
    let idle = idle.map(|idle| pool.worked + idle);
    // A handover under way is not ended for want of work; it is looked at again soon.
    let idle = idle.filter(|_| coming.is_none());
    let rests = pool
        .rests
        .filter(|rests| *rests > now && pool.wants_by_itself());
    let each = pool.leaving.iter().filter(|_| !pool.joining.is_empty());
    let accepts = each.map(|leaving| leaving.since + ACCEPTS_MAX);
    let accepts = accepts.filter(|until| *until > now);
    let leaving = leaving.chain(accepts);
    leaving.chain(coming).chain(idle).chain(rests).min()
}
