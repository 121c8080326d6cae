//! Pools of rows: made when they are first wanted, and dropped when they were not for a while.
//!
//! The idea: a worker tells columns; the manifest makes a pool of them ([`ipc::rows`]), and from there on it is one
//! as others, named by a manifest that has it alone. The supervisor makes its place first: who asks waits for that.
//! Who may be its user is judged where users are looked up, as everything a worker says is.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use config::model::is_row_pool_id;
use ipc::manifest::FromSpawner;
use ipc::order::Failure;
use ipc::pools::PoolManifest;
use ipc::rows::RowOrder;
use os::cgroup::Controller;

use super::machine::{Ask, Word};
use super::{EARLY_MAX, Pools, settings};
use crate::manifests::Known;
use crate::{Refusal, Spawner};

/// Pools of rows that are known at once, and those of one tenant where half of all are.
const ROWS_MAX: usize = 10_000;
const OF_TENANT_MAX: usize = 500;
/// Those that are told of where somebody asks for all.
const TOLD_MAX: usize = 2_000;
/// Places that the supervisor is asked for at once.
const PLACES_AT_ONCE: usize = 32;
/// How long one is known in which nothing runs.
const KEPT: Duration = Duration::from_secs(10);
/// How often is looked for those.
const LOOK: Duration = Duration::from_secs(5);
/// When one may be asked for again that has no place.
const RETRY: Duration = Duration::from_secs(1);
/// What a group has where nothing is said.
const CPU_WEIGHT_USUAL: u32 = 100;

/// The pools of rows.
#[derive(Debug, Default)]
pub(super) struct RowPools {
    /// When each was wanted last, and whose it is.
    wanted: BTreeMap<String, (Instant, String)>,
    /// Who waits for a place, by pool.
    placing: BTreeMap<String, Vec<Ask>>,
    /// Pools for which the supervisor is still to be asked, and how many it was asked for and has not answered.
    to_place: VecDeque<String>,
    asked_places: usize,
    looked: Option<Instant>,
}

impl Pools {
    /// Whether there are any.
    pub(super) fn has_rows(&self) -> bool {
        !self.of_rows.wanted.is_empty() || self.sockets.keys().any(|id| is_row_pool_id(id))
    }

    /// Those that are known, as many as are told.
    pub(super) fn of_rows(&self) -> impl Iterator<Item = PoolManifest> {
        let ids = self.of_rows.wanted.keys().take(TOLD_MAX);
        ids.filter_map(|id| self.pool(id))
    }

    /// What names the pools of rows.
    pub(super) fn named_by_rows(&self) -> BTreeMap<String, (Rc<Known>, usize)> {
        let ids = self.of_rows.wanted.keys();
        let named = ids.filter_map(|id| Some((id.clone(), self.named.get(id)?.clone())));
        named.collect()
    }
}

impl RowPools {
    /// Whether there is room for another pool of a tenant: whoever has many leaves others theirs.
    fn check_room(&self, tenant: &str) -> Result<(), Refusal> {
        let own = || self.wanted.values().filter(|(_, of)| of == tenant).count();
        let what = match self.wanted.len() {
            ROWS_MAX.. => format!("{ROWS_MAX} pools of rows are known already"),
            all if all >= ROWS_MAX / 2 && own() >= OF_TENANT_MAX => {
                format!("{all} pools of rows are known, {OF_TENANT_MAX} of them tenant {tenant}'s")
            }
            _ => return Ok(()),
        };
        Err(Refusal::new(Failure::PoolsFull, what))
    }
}

impl Spawner {
    /// A worker wants the pool of a row.
    pub(crate) fn warm_row(&mut self, ask: Ask, row: &RowOrder) {
        match self.name_row(row) {
            Ok(id) => self.warm_named(ask, &id),
            Err(refusal) => self.refuse_row(ask, refusal),
        }
    }

    /// Makes a pool of a row, and names it; its id.
    fn name_row(&mut self, row: &RowOrder) -> Result<String, Refusal> {
        let failed = |what: String| Refusal::new(Failure::PoolFailed, what);
        let [(known, rows), (latest, of_latest)] = self.manifests.rows(row)?;
        let meant = rows.pool(row).map_err(failed)?;
        latest.check_tenant(&meant.0.tenant)?;
        // Whoever asks by an older manifest has the same pool as the latest has it, if that has it at all.
        let stamped = of_latest.pool(row).ok();
        let stamped = stamped.filter(|(pool, _)| pool.id == meant.0.id);
        let known = stamped.as_ref().map_or(known, |_| latest);
        let (mut pool, mut groups) = stamped.unwrap_or(meant);
        of_latest.bind(row, &mut groups);
        pool.users = Some(of_latest.users.clone());
        let layout = &known.manifest.layout;
        match (groups.last_mut(), layout.of(Controller::Cpu)) {
            (Some(own), Some(_)) => {
                own.limits.cpu_weight = Some(CPU_WEIGHT_USUAL);
                pool.group = u32::try_from(groups.len() - 1).ok();
            }
            // Without it a group stands where its limits want one.
            _ => {
                pool.group = groups
                    .first()
                    .filter(|it| it.limits != Default::default())
                    .map(|_| 1)
            }
        }
        let id = pool.id.clone();
        let named = known.with_pool(&pool, groups);
        let named = named.map_err(|error| failed(config::reason(&error)))?;
        self.groups.renew(&named.groups)?;
        let now = Instant::now();
        let of_rows = &mut self.pools.of_rows;
        if !of_rows.wanted.contains_key(&id) {
            of_rows.check_room(&pool.tenant)?;
        }
        of_rows.wanted.insert(id.clone(), (now, pool.tenant));
        self.pools.named.insert(id.clone(), (Rc::new(named), 0));
        self.renew_row(&id, now);
        Ok(id)
    }

    /// Has what is known of a pool be as it is named now.
    fn renew_row(&mut self, id: &str, now: Instant) {
        let terms = self.pools.terms(id);
        self.pools.machine.renew(id, &terms);
        let running = self.pools.machine.run(id);
        let running = running.and_then(|run| self.pools.runs.get(&run));
        let (Some(running), Some((known, at))) = (running, self.pools.named.get(id)) else {
            return;
        };
        if running.settings != settings(known, *at) {
            let why = "its settings have changed";
            self.pools.machine.restart(id, why, now);
        }
    }

    /// Warms a pool that is named, once it has a place.
    fn warm_named(&mut self, ask: Ask, id: &str) {
        if !self.pools.is_in_charge || self.pools.sockets.contains_key(id) {
            return self.warm(ask, id, false);
        }
        let waiting: usize = self.pools.of_rows.placing.values().map(Vec::len).sum();
        if waiting >= EARLY_MAX {
            let what = format!("{EARLY_MAX} orders wait for places already");
            return self.refuse_row(ask, Refusal::new(Failure::PoolsFull, what));
        }
        let placing = self.pools.of_rows.placing.entry(id.to_owned()).or_default();
        placing.push(ask);
        if placing.len() > 1 {
            return;
        }
        self.pools.of_rows.to_place.push_back(id.to_owned());
        self.ask_for_places();
    }

    /// Asks the supervisor for places, a few at a time: neither end's queue ever fills, so that neither waits for
    /// the other.
    fn ask_for_places(&mut self) {
        while self.pools.of_rows.asked_places < PLACES_AT_ONCE {
            let Some(id) = self.pools.of_rows.to_place.pop_front() else {
                return;
            };
            let pool = self.pools.pool(&id);
            let user = pool.and_then(|pool| pool.user).unwrap_or_default();
            self.pools.of_rows.asked_places += 1;
            self.tell_supervisor(&FromSpawner::Place { id, user });
        }
    }

    /// Who waits for a place that is answered for.
    fn placed(&mut self, id: &str) -> Vec<Ask> {
        let Some(asks) = self.pools.of_rows.placing.remove(id) else {
            return Vec::new();
        };
        let asked = &mut self.pools.of_rows.asked_places;
        *asked = asked.saturating_sub(1);
        asks
    }

    /// A pool has a socket.
    pub(super) fn has_place(&mut self, id: &str) {
        for ask in self.placed(id) {
            self.warm(ask, id, false);
        }
        self.ask_for_places();
    }

    /// A pool can have none.
    pub(crate) fn has_no_place(&mut self, id: &str, why: &str) {
        for ask in self.placed(id) {
            self.refuse_row(ask, Refusal::new(Failure::PoolFailed, why.to_owned()));
        }
        if !self.pools.sockets.contains_key(id) {
            self.forget_row(id);
        }
        self.ask_for_places();
    }

    fn forget_row(&mut self, id: &str) {
        self.pools.of_rows.wanted.remove(id);
        self.pools.named.remove(id);
        self.pools.machine.forget_pool(id);
    }

    fn refuse_row(&mut self, ask: Ask, refusal: Refusal) {
        let word = Word::Not {
            failure: refusal.failure,
            detail: refusal.detail,
            retry: RETRY,
        };
        self.answer(ask, word);
    }

    /// Forgets pools of rows that nobody has wanted for a while and in which nothing runs.
    pub(super) fn leave_rows(&mut self, now: Instant) {
        let of_rows = &mut self.pools.of_rows;
        let is_recent = |it: Instant, time| now.saturating_duration_since(it) < time;
        if of_rows.looked.is_some_and(|it| is_recent(it, LOOK)) {
            return;
        }
        of_rows.looked = Some(now);
        if of_rows.placing.is_empty() {
            // What another supervisor was asked is answered by nobody.
            of_rows.asked_places = 0;
        }
        let machine = &self.pools.machine;
        for (id, (since, _)) in &mut of_rows.wanted {
            // One that has failed stays known until it has rested, so that it rests longer the next time.
            if machine.rest(id, now).is_some() {
                *since = now;
            }
        }
        let wanted = of_rows.wanted.iter();
        let left = wanted.filter(|(id, (since, _))| {
            let waits = of_rows.placing.contains_key(*id);
            !waits && !is_recent(*since, KEPT) && machine.is_still(id)
        });
        // Those that a spawner before has left, and nobody has asked for.
        let strays = self.pools.sockets.keys();
        let strays = strays.filter(|id| is_row_pool_id(id) && !of_rows.wanted.contains_key(*id));
        let strays = strays.filter(|id| machine.is_still(id));
        let left = left.map(|(id, _)| id).chain(strays);
        let left: Vec<String> = left.cloned().collect();
        for id in left {
            self.forget_row(&id);
            self.pools.sockets.remove(&id);
            self.tell_supervisor(&FromSpawner::Leave { id });
        }
    }
}
