//! What all workers share of limits: the ledger, its clock, what was refused lately, and what was
//! changed while running.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use limits::{Change, Definition, Ledger, Time};

use super::compiled::Limits;
use super::refusals::Refusals;

/// How often the ledger does what time asks for.
const TICK_MS: u64 = 200;
/// Changes made while running that are remembered; a further one works, but not over a reload.
const CHANGED_MAX: usize = 1_024;

/// The limits' part of what workers share.
#[derive(Debug)]
pub struct Limiter {
    /// Who holds what.
    pub ledger: Ledger,
    /// What was refused lately.
    pub refusals: Refusals,
    /// The beginning of the ledger's time.
    started: Instant,
    ticked_ms: AtomicU64,
    /// Held while a generation comes into force or an operator asks for a change.
    changed: Mutex<Vec<Changed>>,
}

/// A limit that was changed while running.
#[derive(Debug, Clone)]
struct Changed {
    /// As the configuration has it.
    configured: Definition,
    changes: Vec<Change>,
}

impl Limiter {
    /// Makes one without limits, for so many workers; the ledger's time begins at `started`.
    pub fn new(workers: usize, started: Instant) -> Self {
        // Keys of clients are hashed: nobody may know how.
        let random = RandomState::new();
        let seed = std::array::from_fn(|at| random.hash_one(at));
        Self {
            ledger: Ledger::new(workers, seed),
            refusals: Refusals::default(),
            started,
            ticked_ms: AtomicU64::new(0),
            changed: Mutex::default(),
        }
    }

    /// The ledger's time at a moment.
    pub fn time(&self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.started);
        Time(since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos()))
    }

    /// Puts the limits of a generation in force. What was changed while running stays changed
    /// where the configuration says of it what it said before.
    pub fn put_in_force(&self, limits: &Limits) {
        let now = self.time(Instant::now());
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let defined = self
            .ledger
            .define(now, limits.definitions(), limits.tenant_definitions());
        limits.name(defined);
        // As the ledger does.
        changed.retain(|it| {
            let at = limits.position(&it.configured.identity);
            at.and_then(|at| limits.definitions().get(at)) == Some(&it.configured)
        });
    }

    /// Changes a limit of the generation in force at once; `false` where there is no such limit.
    pub fn change(&self, limits: &Limits, identity: &str, changes: &[Change]) -> bool {
        let Some(at) = limits.position(identity) else {
            return false;
        };
        let (Some(id), Some(configured)) = (limits.id(at), limits.definitions().get(at)) else {
            return false;
        };
        let now = self.time(Instant::now());
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            self.ledger.change(now, id, change);
        }
        let known = changed
            .iter_mut()
            .find(|it| it.configured.identity == identity);
        if let Some(known) = known {
            changes.iter().for_each(|change| known.note(change));
        } else if changed.len() < CHANGED_MAX {
            changed.push(Changed {
                configured: configured.clone(),
                changes: changes.to_vec(),
            });
        }
        true
    }

    /// A limit as it is now; `None` where it is as configured.
    pub fn changed(&self, configured: &Definition) -> Option<Definition> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = changed.iter().find(|it| it.configured == *configured)?;
        let mut now = configured.clone();
        for change in &found.changes {
            match *change {
                Change::Concurrent(concurrent) => now.concurrent = concurrent,
                Change::Queue(queue) => now.queue = queue,
                Change::Wait(wait) => now.wait = wait,
                Change::Rate(rate) => now.rate = rate,
                Change::Mode(mode) => now.mode = mode,
            }
        }
        Some(now)
    }

    /// Does what time asks for, if it is time; any worker may call it, as often as it likes.
    pub fn tick(&self, now: Instant) {
        let time = self.time(now);
        let now_ms = time.0 / 1_000_000;
        let last_ms = self.ticked_ms.load(Relaxed);
        let is_due = now_ms.saturating_sub(last_ms) >= TICK_MS;
        let mine = is_due
            && self
                .ticked_ms
                .compare_exchange(last_ms, now_ms, Relaxed, Relaxed)
                .is_ok();
        if mine {
            self.ledger.tick(time);
            self.refusals.say(now_ms);
        }
    }
}

impl Changed {
    /// A change takes the place of an earlier one of its kind.
    fn note(&mut self, change: &Change) {
        let kind = std::mem::discriminant(change);
        self.changes
            .retain(|known| std::mem::discriminant(known) != kind);
        self.changes.push(*change);
    }
}
