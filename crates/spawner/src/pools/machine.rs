//! What becomes of pools: when one starts, is handed over, and ends.
//!
//! The idea: a state machine that has neither process nor clock. It is told what happened and what
//! time it is, and says what is to be done ([`Deed`]). What runs for a pool is a *run*: a master
//! of php-fpm, or the processes of an application, numbered here. A pool has at most one that
//! serves and one that comes; those that leave finish what they have begun, and are killed when
//! that takes too long. A run that was killed has to be gone with all it left behind before
//! another begins: nobody of a former run is to take a connection from the socket.

mod rows;
mod seen;
mod tenants;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ipc::order::Failure;

use super::pool::{Coming, Leaving, Pool, REST, Run, Terms, rest_after, until};
use super::turns::Turns;

/// A run that ended within so long of being ready is a crash.
const CRASH: Duration = Duration::from_secs(10);
/// Crashes in a row that are started again without a rest.
const CRASHES_FREE: u32 = 8;
/// Orders that may wait for one pool: workers ask once each.
const ASKS_MAX: usize = 4_096;
/// What a start is taken to last, and to cost, while none has been seen.
const GUESS: Duration = Duration::from_millis(200);
const GUESS_US: u64 = 50_000;

/// Who asks: the spawner's number for a worker, and the worker's for its order.
pub(super) type Ask = (u64, u64);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    /// Begin a run.
    Start { pool: String, run: u64 },
    /// Have it finish what it has begun, and end.
    Quit { run: u64 },
    /// Kill it and everything it has started.
    Kill { run: u64 },
    /// Answer an order.
    Say { ask: Ask, word: Word },
    /// Tell everybody that a pool has ended which ran.
    Cold { pool: String },
    /// Tell everybody that another run serves than did.
    HandedOver { pool: String },
    /// Tell the error log of trouble.
    Log { pool: String, text: String },
    /// Tell it that a run has begun to serve, or has ended: why, and how long that took.
    Note {
        pool: String,
        what: &'static str,
        why: &'static str,
        took: Duration,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Warming(Duration),
    Warm,
    Not {
        failure: Failure,
        detail: String,
        retry: Duration,
    },
}

/// All pools.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pools: BTreeMap<String, Pool>,
    /// Which pool's each run is.
    runs: BTreeMap<u64, String>,
    turns: Turns,
    /// The number of the latest run.
    run: u64,
    /// How long starts last, the latest ones most of all.
    start_mean: Option<Duration>,
    /// Pools whose sockets are to be bound anew before they can start.
    deaf: BTreeSet<String>,
    /// Tenants of which nothing may run.
    suspended: BTreeSet<String>,
    deeds: Vec<Deed>,
}

impl Machine {
    /// What is to be done, once.
    pub(super) fn deeds(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds)
    }

    /// These are the pools of the latest manifest. Those that are not kept are known here once
    /// somebody has wanted them.
    pub(super) fn name(
        &mut self,
        pools: impl IntoIterator<Item = (String, Terms)>,
        starting_max: u32,
        now: Instant,
    ) {
        self.turns.set_places(starting_max);
        for pool in self.pools.values_mut() {
            pool.terms.is_named = false;
        }
        for (id, terms) in pools {
            let pool = match self.pools.entry(id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(_) if terms.idle.is_some() => continue,
                Entry::Vacant(new) => new.insert(Pool::new(terms.clone(), now)),
            };
            // Its place in the queue is its tenant's.
            if pool.waiting.is_none() && pool.coming.is_none() {
                pool.terms = terms;
            } else {
                let tenant = pool.terms.tenant.clone();
                pool.terms = Terms { tenant, ..terms };
            }
        }
        self.pools.retain(|_, pool| !pool.is_forgettable());
        self.tick(now);
    }

    /// Goes on with a run that somebody else has started, which serves; one that served before
    /// it leaves.
    pub(super) fn adopt(&mut self, id: &str, terms: &Terms, now: Instant) -> u64 {
        self.run += 1;
        let number = self.run;
        self.runs.insert(number, id.to_owned());
        let pool = self.pools.entry(id.to_owned());
        let pool = pool.or_insert_with(|| Pool::new(terms.clone(), now));
        pool.worked = now;
        let before = pool.serving.replace(Run { number, since: now });
        if let Some(before) = before {
            self.leave(id, before.number, "another one serves", now);
        }
        number
    }

    /// A run that somebody else has started and that is to end.
    pub(super) fn adopt_leaving(&mut self, id: &str, terms: &Terms, now: Instant) -> u64 {
        let serving = self.pools.get_mut(id).and_then(|pool| pool.serving.take());
        let number = self.adopt(id, terms, now);
        if let Some(pool) = self.pools.get_mut(id) {
            pool.serving = serving;
        }
        self.leave(id, number, "another one serves, or no site wants it", now);
        number
    }

    /// Forgets every run: they are somebody else's from now on, and who waits is told to ask there.
    pub(super) fn let_go(&mut self) {
        for pool in self.pools.values_mut() {
            for ask in pool.take_asks() {
                let word = Word::Warm;
                self.deeds.push(Deed::Say { ask, word });
            }
        }
        self.pools.clear();
        self.runs.clear();
        self.turns = Turns::default();
        self.deaf.clear();
    }

    /// Somebody wants a pool: an order, or a connection that waits. Where it is to run as the latest
    /// manifest says, one that runs otherwise is waited for until another has taken over.
    pub(super) fn want(
        &mut self,
        id: &str,
        terms: &Terms,
        (ask, is_latest): (Option<Ask>, bool),
        now: Instant,
    ) {
        let pool = self.pools.entry(id.to_owned());
        let pool = pool.or_insert_with(|| Pool::new(terms.clone(), now));
        let serves = pool.serving.is_some();
        let word = match pool.rest(now) {
            _ if self.suspended.contains(&pool.terms.tenant) => {
                tenants::not_for(&pool.terms.tenant)
            }
            _ if serves && !(is_latest && pool.is_behind(now)) => {
                pool.worked = now;
                Word::Warm
            }
            Some(retry) => Word::Not {
                failure: Failure::PoolFailed,
                detail: pool.figures.failure.clone(),
                retry,
            },
            None if pool.asks.len() + pool.joining.len() >= ASKS_MAX => Word::Not {
                failure: Failure::PoolsFull,
                detail: format!("{ASKS_MAX} orders wait for it already"),
                retry: REST,
            },
            None => {
                match is_latest {
                    true => pool.joining.extend(ask),
                    false => pool.asks.extend(ask),
                }
                if !serves {
                    self.queue(id, now);
                    self.deal(now);
                }
                let Some(wait) = self.predict(id, now) else {
                    return;
                };
                Word::Warming(wait)
            }
        };
        self.deeds.extend(ask.map(|ask| Deed::Say { ask, word }));
    }

    /// Forgets orders of those who have gone.
    pub(super) fn forget(&mut self, is_meant: impl Fn(Ask) -> bool) {
        for pool in self.pools.values_mut() {
            pool.asks.retain(|ask| !is_meant(*ask));
            pool.joining.retain(|ask| !is_meant(*ask));
        }
    }

    /// A run is ready, and its start has cost so much.
    pub(super) fn ready(&mut self, run: u64, cost_us: u64, now: Instant) {
        let Some((id, pool)) = self.pool_of(run) else {
            return;
        };
        let Some(coming) = pool.coming.take_if(|coming| coming.number == run) else {
            return;
        };
        let time = now.saturating_duration_since(coming.since);
        pool.figures.add(time, cost_us);
        (pool.failures, pool.rests, pool.worked) = (0, None, now);
        pool.figures.failure.clear();
        let before = pool.serving.replace(Run {
            number: run,
            since: now,
        });
        let tenant = pool.terms.tenant.clone();
        let asks = std::mem::take(&mut pool.asks);
        if before.is_some() {
            // Heard before what it lets through: no connection of the run before is taken then.
            self.deeds.push(Deed::HandedOver { pool: id.clone() });
        }
        for ask in asks {
            let word = Word::Warm;
            self.deeds.push(Deed::Say { ask, word });
        }
        self.deeds.push(Deed::Note {
            pool: id.clone(),
            what: "started",
            why: coming.why,
            took: time,
        });
        self.turns.end(&tenant, (coming.charged_us, cost_us));
        self.start_mean = Some(match self.start_mean {
            Some(mean) => (mean * 7 + time) / 8,
            None => time,
        });
        if let Some(before) = before {
            self.leave(&id, before.number, "another one has taken over", now);
        }
        self.tick(now);
    }

    /// A run has ended, at least its first process, or could not be begun; what is left of it is to
    /// be killed.
    pub(super) fn died(&mut self, run: u64, why: &str, now: Instant) {
        let Some((id, pool)) = self.pool_of(run) else {
            return;
        };
        if let Some(coming) = pool.coming.take_if(|coming| coming.number == run) {
            self.fail(&id, &coming, why, now);
        } else if let Some(serving) = pool.serving.take_if(|serving| serving.number == run) {
            let is_crash = now.saturating_duration_since(serving.since) < CRASH;
            pool.crashes = if is_crash { pool.crashes + 1 } else { 0 };
            let crashes = pool.crashes;
            if let Some(over) = crashes.checked_sub(CRASHES_FREE + 1) {
                pool.rests = Some(now + rest_after(over + 1));
                pool.figures.failure =
                    format!("it has ended {crashes} times soon after its start: {why}");
            }
            let text = format!("ended: {why}");
            self.deeds.push(Deed::Log {
                pool: id.clone(),
                text,
            });
            self.deeds.push(Deed::Cold { pool: id.clone() });
        }
        self.kill(&id, run, None, now);
        self.tick(now);
    }

    /// Nothing of a run is left.
    pub(super) fn gone(&mut self, run: u64, now: Instant) {
        let Some(id) = self.runs.remove(&run) else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&id) {
            let at = pool.leaving.iter().position(|it| it.number == run);
            let left = at.map(|at| pool.leaving.swap_remove(at));
            if let Some((why, since)) = left.and_then(|left| Some((left.why?, left.since))) {
                self.deeds.push(Deed::Note {
                    pool: id.clone(),
                    what: "ended",
                    why,
                    took: now.saturating_duration_since(since),
                });
            }
            if pool.is_forgettable() {
                self.pools.remove(&id);
            }
        }
        self.tick(now);
    }

    /// A run has work.
    pub(super) fn works(&mut self, run: u64, now: Instant) {
        if let Some((_, pool)) = self.pool_of(run) {
            pool.worked = now;
        }
    }

    /// Ends the rest of a pool that failed, as what was wrong may be repaired; whether it rested.
    pub(super) fn forgive(&mut self, id: &str, now: Instant) -> bool {
        let Some(pool) = self.pools.get_mut(id) else {
            return false;
        };
        let rested = pool.rest(now).is_some();
        (pool.rests, pool.failures, pool.crashes) = (None, 0, 0);
        rested
    }

    /// Another run is to take over from the one that serves, or comes; whether there is one.
    pub(super) fn restart(&mut self, id: &str, why: &'static str, now: Instant) -> bool {
        self.forgive(id, now);
        let Some(pool) = self.pools.get_mut(id) else {
            return false;
        };
        let is_there = pool.serving.is_some() || pool.coming.is_some();
        pool.stale = is_there.then_some(why);
        self.tick(now);
        is_there
    }

    /// What runs is to end; whether there was something.
    pub(super) fn stop(&mut self, id: &str, why: &'static str, now: Instant) -> bool {
        self.forgive(id, now);
        let Some(pool) = self.pools.get_mut(id) else {
            return false;
        };
        pool.stale = None;
        let (serving, coming) = (pool.serving.take(), pool.coming.take());
        let tenant = pool.terms.tenant.clone();
        if let Some(serving) = &serving {
            self.deeds.push(Deed::Cold { pool: id.into() });
            self.leave(id, serving.number, why, now);
        }
        if let Some(coming) = &coming {
            // Who waits for it has it started anew.
            let charged_us = coming.charged_us;
            self.turns.end(&tenant, (charged_us, charged_us));
            self.kill(id, coming.number, None, now);
        }
        self.leave_turn(id);
        self.tick(now);
        serving.is_some() || coming.is_some()
    }

    /// The socket of a pool refuses connections: what runs there is of no use, and nothing starts
    /// until there is another.
    pub(super) fn is_deaf(&mut self, id: &str, now: Instant) {
        self.deaf.insert(id.to_owned());
        self.stop(id, "its socket refused connections", now);
    }

    /// There is another.
    pub(super) fn hears_again(&mut self, id: &str, now: Instant) {
        if self.deaf.remove(id) {
            self.tick(now);
        }
    }

    /// A message has been handed over, or could not be.
    pub(super) fn note_mail(&mut self, id: &str, is_sent: bool) {
        if let Some(pool) = self.pools.get_mut(id) {
            let figures = &mut pool.figures;
            match is_sent {
                true => figures.mails += 1,
                false => figures.mails_unsent += 1,
            }
        }
    }

    /// Does what time brings; tells when there is more to do.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Instant> {
        let active = self.pools.iter().filter(|(_, pool)| !pool.is_still());
        let ids: Vec<String> = active.map(|(id, _)| id.clone()).collect();
        for id in &ids {
            self.end_what_is_late(id, now);
            self.let_in(id, now);
            let pool = self.pools.get(id);
            let wants = pool.is_some_and(|pool| pool.wants_by_itself() && pool.rest(now).is_none());
            if wants && !self.is_kept_still(id) {
                self.queue(id, now);
            }
        }
        self.deal(now);
        self.pools
            .values()
            .filter_map(|pool| until(pool, now))
            .min()
    }

    fn pool_of(&mut self, run: u64) -> Option<(String, &mut Pool)> {
        let id = self.runs.get(&run)?.clone();
        let pool = self.pools.get_mut(&id)?;
        Some((id, pool))
    }

    /// Tells those who joined a pool once nobody accepts that was told something else.
    fn let_in(&mut self, id: &str, now: Instant) {
        let pool = self.pools.get_mut(id);
        let ready = pool.filter(|pool| pool.serving.is_some() && !pool.is_behind(now));
        let joined = ready.map(|pool| std::mem::take(&mut pool.joining));
        for ask in joined.into_iter().flatten() {
            let word = Word::Warm;
            self.deeds.push(Deed::Say { ask, word });
        }
    }

    /// Ends what takes too long or has nothing to do.
    fn end_what_is_late(&mut self, id: &str, now: Instant) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        let mut late = Vec::new();
        for leaving in &mut pool.leaving {
            late.extend(
                leaving
                    .until
                    .take_if(|until| *until <= now)
                    .map(|_| leaving.number),
            );
        }
        let idle = pool.idle();
        let has_worked = now.saturating_duration_since(pool.worked);
        let is_idle = |_: &mut Run| idle.is_some_and(|idle| has_worked >= idle);
        let idle = match pool.coming {
            None => pool.serving.take_if(is_idle),
            Some(_) => None,
        };
        let start_max = pool.terms.start_max;
        let is_late = |coming: &&Coming| now.saturating_duration_since(coming.since) >= start_max;
        let coming = pool.coming.as_ref().filter(is_late).map(|it| it.number);
        for run in late {
            self.deeds.push(Deed::Log {
                pool: id.into(),
                text: "killed: it did not end in time".into(),
            });
            self.deeds.push(Deed::Kill { run });
        }
        if let Some(idle) = idle {
            pool.stale = None;
            let why = match pool.terms.is_named {
                true => "it had nothing to do",
                false => "no site wants it any more",
            };
            self.deeds.push(Deed::Cold { pool: id.into() });
            self.leave(id, idle.number, why, now);
            self.leave_turn(id);
        }
        if let Some(run) = coming {
            let why = format!("it was not ready within {} ms", start_max.as_millis());
            self.died(run, &why, now);
        }
    }

    /// Has a pool wait for its turn, unless it does or has had it.
    fn queue(&mut self, id: &str, now: Instant) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        if pool.waiting.is_none() && pool.coming.is_none() {
            pool.waiting = Some(now);
            let terms = &pool.terms;
            self.turns.wait(&terms.tenant, terms.weight, id);
        }
    }

    /// Begins as many starts as may be.
    fn deal(&mut self, now: Instant) {
        loop {
            let (pools, deaf) = (&self.pools, &self.deaf);
            let is_killed = |leaving: &Leaving| leaving.until.is_none();
            let can_start = |id: &str| {
                let pool = pools.get(id);
                let is_clear = pool.is_none_or(|pool| !pool.leaving.iter().any(is_killed));
                is_clear && !deaf.contains(id)
            };
            let cost_us = |id: &str| {
                let pool = pools.get(id);
                pool.and_then(|pool| pool.figures.cost_us)
                    .unwrap_or(GUESS_US)
            };
            let Some(id) = self.turns.next(can_start, cost_us) else {
                return;
            };
            let charged_us = cost_us(&id);
            let Some(pool) = self.pools.get_mut(&id) else {
                continue;
            };
            self.run += 1;
            let run = self.run;
            let why = pool.why_now();
            (pool.waiting, pool.stale) = (None, None);
            pool.coming = Some(Coming {
                number: run,
                since: now,
                charged_us,
                why,
            });
            self.runs.insert(run, id.clone());
            self.deeds.push(Deed::Start { pool: id, run });
        }
    }

    /// A start has failed: who waits is told, and the pool rests.
    fn fail(&mut self, id: &str, coming: &Coming, why: &str, now: Instant) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        pool.failures = pool.failures.saturating_add(1);
        let retry = rest_after(pool.failures);
        pool.rests = Some(now + retry);
        pool.figures.starts_failed += 1;
        pool.figures.failure = why.to_owned();
        // A hand-over that failed is tried again after the rest.
        pool.stale = pool.serving.as_ref().map(|_| coming.why);
        let asks = pool.take_asks();
        let tenant = pool.terms.tenant.clone();
        self.turns
            .end(&tenant, (coming.charged_us, coming.charged_us));
        let text = format!("did not start, and rests {} s: {why}", retry.as_secs());
        self.deeds.push(Deed::Log {
            pool: id.to_owned(),
            text,
        });
        for ask in asks {
            let word = Word::Not {
                failure: Failure::PoolFailed,
                detail: why.to_owned(),
                retry,
            };
            self.deeds.push(Deed::Say { ask, word });
        }
    }

    /// Has a run that serves no more finish.
    fn leave(&mut self, id: &str, run: u64, why: &'static str, now: Instant) {
        if let Some(pool) = self.pools.get_mut(id) {
            pool.leaving.push(Leaving {
                number: run,
                since: now,
                until: Some(now + pool.terms.stop_max),
                why: Some(why),
            });
            self.deeds.push(Deed::Quit { run });
        }
    }

    fn kill(&mut self, id: &str, run: u64, why: Option<&'static str>, now: Instant) {
        let Some(pool) = self.pools.get_mut(id) else {
            return;
        };
        match pool.leaving.iter_mut().find(|known| known.number == run) {
            Some(leaving) => leaving.until = None,
            None => pool.leaving.push(Leaving {
                number: run,
                since: now,
                until: None,
                why,
            }),
        }
        self.deeds.push(Deed::Kill { run });
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
