//! Pools: masters of php-fpm and applications that stay between requests.
//!
//! The idea: what is to be done a state machine says (`machine`, with `turns` for who is next); here
//! it is done. Sockets come from the supervisor and are handed to one run after the other; one
//! that nobody accepts from is watched, so that a connection that came while its pool ended starts
//! it again. Masters outlive this process: the next spawner goes on with them. Users and files are
//! looked for like those of programs, by `lookups`.

mod adopt;
mod birth;
mod caches;
mod costs;
mod facts;
mod fpm;
mod machine;
mod mail;
mod pool;
mod probe;
mod questions;
mod rows;
mod run;
mod sockets;
mod tenants;
mod turns;
mod watch;
mod way;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{Hash as _, Hasher as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use config::model::is_row_pool_id;
use config::reason;
use ipc::manifest::FromSpawner;
use ipc::order::{Failure, Report};
use ipc::pools::{PoolManifest, PoolProcess, PoolProgramManifest};
use os::cgroup::{Controller, Controllers, Version};
use os::spawn::{End, Filter};

use self::caches::Caches;
use self::machine::{Ask, Deed, Machine, Word};
use self::pool::Terms;
use self::rows::RowPools;
use self::run::{Running, Who};
use self::sockets::{Sleepers, Socket};
use self::tenants::Unended;
use self::words::Ration;
use crate::manifests::Known;
use crate::{Refusal, Source, Spawner};

pub(super) use self::birth::{FoundRun, WantedRun, find as find_run};

/// In the place of a worker: orders to look for what a run needs.
pub(super) const POOLS: u64 = u64::MAX;
/// When what was killed has not ended, somebody is told.
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// Orders that may wait for this spawner to be in charge.
const EARLY_MAX: usize = 4_096;

/// The pools that are in this spawner's charge.
#[derive(Debug, Default)]
pub(super) struct Pools {
    machine: Machine,
    is_in_charge: bool,
    /// Masters of a spawner before, until there is a manifest.
    inherited: Vec<PoolProcess>,
    /// Masters that are in another's charge; `None`: they never were in this spawner's.
    given: Option<BTreeSet<u32>>,
    /// Orders for pools as the latest manifest says, until they are in its charge.
    early: Vec<(Ask, String)>,
    /// The latest manifest that names each pool, and its index there.
    named: BTreeMap<String, (Rc<Known>, usize)>,
    /// Of them, those of rows.
    of_rows: RowPools,
    /// The number of the latest manifest.
    generation: u64,
    /// The shortest time that one of them is kept without work.
    idle_min: Option<Duration>,
    sockets: BTreeMap<String, Socket>,
    sleepers: Sleepers,
    /// Sockets there have been: the next one's number.
    sockets_seen: u64,
    runs: BTreeMap<u64, Running>,
    /// When the machine has something to do.
    until: Option<Instant>,
    looked: Option<Instant>,
    programs_looked: Option<Instant>,
    /// What they read.
    null: Option<File>,
    caches: Caches,
    /// Those whose counts the server has not been told.
    untold: BTreeSet<String>,
    filter: Option<Filter>,
    unended: Unended,
    /// Of starts and ends, for the error log.
    notes: Ration,
}

/// Processes of a run.
fn instances(pool: &PoolManifest) -> usize {
    match pool.program {
        PoolProgramManifest::Php { .. } => 1,
        PoolProgramManifest::App { instances, .. } => {
            usize::try_from(instances).unwrap_or(1).max(1)
        }
    }
}

/// What a pool is told by a manifest, in a number: what runs is replaced where it is another.
fn settings(known: &Known, at: usize) -> u64 {
    let manifest = &known.manifest;
    let named = known.pool(at);
    let group = named.as_ref().and_then(|pool| pool.group);
    let pool = named.map(|pool| PoolManifest {
        group: None,
        weight: 1,
        idle_ms: None,
        name: String::new(),
        ..pool
    });
    let has_walls = pool.as_ref().is_some_and(|pool| pool.walls.is_some());
    let sees = has_walls.then_some(&known.sees);
    let group = group.and_then(|at| known.groups.get(usize::try_from(at).ok()?));
    let group = group.map(|group| (&group.path, joined(known, &group.path)));
    let mut hasher = std::hash::DefaultHasher::new();
    (pool, group, sees, &manifest.mail).hash(&mut hasher);
    hasher.finish()
}

/// The controllers in whose hierarchies of version 1 stands what is born in a group now: those of its
/// limits and of those above. What runs is never moved, so a limit of another kind binds the next run.
fn joined(known: &Known, path: &[String]) -> Controllers {
    let layout = &known.manifest.layout;
    let above = known.groups.iter();
    let above = above.filter(|group| path.starts_with(&group.path));
    let needs = above.fold(Controllers::NONE, |all, group| {
        all.union(group.limits.needs())
    });
    let is_apart = |controller: &Controller| {
        let hierarchy = layout.of(*controller);
        hierarchy.is_some_and(|it| it.version == Version::V1)
    };
    needs.iter().filter(is_apart).collect()
}

impl Pools {
    /// What is waited for.
    pub(super) fn sources(&self) -> impl Iterator<Item = (Source, BorrowedFd<'_>)> {
        let now = Instant::now();
        let is_looked = self.is_in_charge && self.sleepers.is_looked;
        let asleep = self.sockets.iter().filter(move |(id, _)| {
            is_looked && self.named.contains_key(*id) && self.machine.is_asleep(id, now)
        });
        let asleep = asleep.map(|(_, it)| (Source::Asleep(it.number), it.listener.as_fd()));
        let runs = self.runs.iter();
        let words = runs.filter(move |(_, it)| it.words.rest(now).is_none());
        let words = words.filter_map(|(run, it)| Some((Source::Words(*run), it.words.fd()?)));
        let masters = self.runs.iter().flat_map(|(run, it)| {
            let masters = it.masters.iter();
            masters.flat_map(move |master| {
                let verdict = master.verdict.as_ref().map(AsFd::as_fd);
                let fds = verdict.into_iter().chain(master.end());
                fds.map(move |fd| (Source::Run(*run), fd))
            })
        });
        asleep.chain(words).chain(masters)
    }

    /// The processes that are to live on.
    pub(super) fn pids(&self) -> BTreeSet<u32> {
        let own = self.runs.values().flat_map(Running::pids);
        own.chain(self.given.iter().flatten().copied()).collect()
    }

    /// Has all be told again: somebody listens who has not heard of them.
    pub(super) fn tell_again(&mut self) {
        let machine = &self.machine;
        let ids = self
            .named
            .keys()
            .filter(|id| machine.figures(id).starts > 0);
        self.untold.extend(ids.cloned());
    }

    /// Kills all of them: none lives on.
    pub(super) fn kill_all(&mut self) {
        for run in self.runs.values_mut() {
            // Who is left is looked for until the end.
            let _ = run.kill();
        }
    }

    /// Those of a spawner before that this one has not looked at yet.
    pub(super) fn inherited(&self) -> Vec<u32> {
        self.inherited.iter().map(|master| master.pid).collect()
    }

    fn pool(&self, id: &str) -> Option<PoolManifest> {
        let (known, at) = self.named.get(id)?;
        known.pool(*at)
    }

    /// Pools of which the latest run, which serves or comes, has been told something else.
    fn changed(&self) -> Vec<String> {
        let mut changed = BTreeSet::new();
        for (run, running) in &self.runs {
            let id = running.pool().map_or("", |pool| pool.id.as_str());
            let is_meant = self.machine.is_coming(*run) || self.machine.run(id) == Some(*run);
            let Some((known, at)) = self.named.get(id).filter(|_| is_meant) else {
                continue;
            };
            match running.settings == settings(known, *at) {
                true => changed.remove(id),
                false => changed.insert(id.to_owned()),
            };
        }
        changed.into_iter().collect()
    }

    fn terms(&self, id: &str) -> Terms {
        let Some((known, at)) = self.named.get(id) else {
            return Terms::unknown();
        };
        known.pool(*at).map_or_else(Terms::unknown, |pool| Terms {
            is_named: known.manifest.generation == self.generation,
            ..Terms::of(&pool)
        })
    }

    /// Some worker has a request for a pool under way, or has had one since this was said last.
    pub(super) fn is_used(&mut self, id: &str) {
        if let Some(run) = self.machine.run(id) {
            self.machine.works(run, Instant::now());
        }
    }

    /// Which pool a run is of.
    fn id_of(&self, run: u64) -> String {
        let pool = self.runs.get(&run).and_then(Running::pool);
        pool.map_or_else(String::new, |pool| pool.id.clone())
    }

    /// As messages call it.
    fn name_of(&self, id: &str) -> String {
        self.pool(id)
            .map_or_else(|| id.to_owned(), |pool| pool.name)
    }
}

impl Spawner {
    /// Takes in what the manifest just taken says of pools.
    pub(super) fn name_pools(&mut self) {
        let now = Instant::now();
        let kept: Vec<_> = self.manifests.kept().to_vec();
        let Some(latest) = kept.last() else { return };
        let mut named = BTreeMap::new();
        for known in &kept {
            for (at, pool) in known.pools().enumerate() {
                named.insert(pool.id, (Rc::clone(known), at));
            }
        }
        named.extend(self.pools.named_by_rows());
        let idle_ms = named
            .values()
            .filter_map(|(known, at)| known.pool(*at)?.idle_ms);
        self.pools.idle_min = idle_ms.min().map(Duration::from_millis);
        self.pools.generation = latest.manifest.generation;
        self.pools.named = named;
        let busy: BTreeSet<String> = self
            .pools
            .runs
            .keys()
            .map(|run| self.pools.id_of(*run))
            .collect();
        let named = &self.pools.named;
        self.pools
            .sockets
            .retain(|id, _| named.contains_key(id) || busy.contains(id) || is_row_pool_id(id));
        let pools = latest.pools().map(|pool| {
            let terms = Terms::of(&pool);
            (pool.id, terms)
        });
        let places = latest.manifest.starting_max;
        self.adopt();
        // What was adopted of theirs ends.
        self.suspend(self.pools.machine.suspended().clone());
        if self.pools.is_in_charge {
            self.pools.machine.name(pools, places, now);
            for id in self.pools.changed() {
                self.pools
                    .machine
                    .restart(&id, "its settings have changed", now);
            }
        }
        self.mind_pools();
    }

    /// A worker wants a pool, perhaps only as the latest manifest says.
    pub(super) fn warm(&mut self, ask: Ask, id: &str, is_latest: bool) {
        if !self.pools.named.contains_key(id) {
            let word = Word::Not {
                failure: Failure::UnknownRule,
                detail: format!("no manifest names pool {id}"),
                retry: Duration::ZERO,
            };
            return self.answer(ask, word);
        }
        if !self.pools.is_in_charge {
            let early = &mut self.pools.early;
            let waits = is_latest && self.pools.given.is_none() && early.len() < EARLY_MAX;
            return match waits {
                true => early.push((ask, id.to_owned())),
                false => self.answer(ask, Word::Warm),
            };
        }
        let now = Instant::now();
        self.listen_for(id, now);
        let terms = self.pools.terms(id);
        let ask = (Some(ask), is_latest);
        self.pools.machine.want(id, &terms, ask, now);
        self.mind_pools();
    }

    fn ready(&mut self, run: u64, now: Instant) {
        let Some(running) = self.pools.runs.get_mut(&run) else {
            return;
        };
        running.probe = None;
        if self.pools.machine.is_coming(run) {
            let (cost_us, id) = (running.cost_us(), self.pools.id_of(run));
            self.pools.machine.ready(run, cost_us, now);
            self.pools.untold.insert(id.clone());
            self.pools.caches.note_start(id, now);
            self.mind_pools();
        }
    }

    /// A master of a run is known to run or not, or has ended.
    pub(super) fn on_run(&mut self, run: u64) {
        let now = Instant::now();
        let Some(running) = self.pools.runs.get_mut(&run) else {
            return;
        };
        let name = running.pool().map(|pool| pool.name.clone());
        let name = name.unwrap_or_default();
        let mut why = None;
        for master in &mut running.masters {
            match master.verdict.as_ref().and_then(os::spawn::Verdict::ask) {
                None => {}
                Some(Ok(())) => master.verdict = None,
                Some(Err(failed)) => {
                    master.verdict = None;
                    why = Some(crate::programs::refusal(&failed, &name).detail);
                }
            }
            if matches!(&master.process, Who::Adopted(process) if process.has_ended()) {
                master.process = Who::Gone;
                why = why.or_else(|| Some("it ended".to_owned()));
            }
        }
        if let Some(why) = why {
            self.died(run, &why, now);
        }
    }

    /// Whether a child that has ended was of a pool.
    pub(super) fn on_pool_end(&mut self, pid: u32) -> bool {
        let now = Instant::now();
        let mut runs = self.pools.runs.iter_mut();
        let found = runs.find_map(|(run, running)| {
            let program = running.program().to_owned();
            let mut masters = running.masters.iter_mut();
            let is_it = |master: &&mut run::MainProcess| {
                master.pid == pid && matches!(master.process, Who::Own(_))
            };
            Some((*run, program, masters.find(is_it)?))
        });
        let Some((run, program, master)) = found else {
            return false;
        };
        let verdict = master.verdict.take().and_then(|verdict| verdict.ask());
        let Who::Own(process) = std::mem::replace(&mut master.process, Who::Gone) else {
            return false;
        };
        let ended = match process.reap() {
            Ok(ended) => match ended.end {
                End::Exit(status) => format!("{program} exited with status {status}"),
                End::Signal(signal) => format!("{program} was ended by signal {signal}"),
            },
            Err(error) => format!("it cannot be waited for: {}", reason(&error)),
        };
        self.hear_out(run);
        let why = match verdict {
            Some(Err(failed)) => {
                let name = self.pools.name_of(&self.pools.id_of(run));
                crate::programs::refusal(&failed, &name).detail
            }
            _ => ended,
        };
        self.died(run, &why, now);
        true
    }

    /// A run has ended, or one of its processes.
    fn died(&mut self, run: u64, why: &str, now: Instant) {
        let hit = self.limit_of(run);
        let running = self.pools.runs.get(&run);
        let last = running.map(|it| it.words.last()).unwrap_or_default();
        let mut why = why.to_owned();
        if let Some(hit) = hit {
            why = format!("{why}, out of what {hit} grants");
        }
        if !last.is_empty() {
            why = format!("{why}; it said last: {last}");
        }
        self.pools.machine.died(run, &why, now);
        self.mind_pools();
    }

    /// The limit of its groups that a run ran into.
    fn limit_of(&mut self, run: u64) -> Option<String> {
        use ipc::order::LimitHit::{Memory, Pids};
        let group = self.pools.runs.get(&run)?.group.as_ref()?;
        let hit = self.groups.hit(group.watch.as_ref()?)?;
        match hit {
            Memory { group, bytes } => Some(format!("group {group} ({bytes} bytes of memory)")),
            Pids { group, pids } => Some(format!("group {group} ({pids} processes)")),
            _ => None,
        }
    }

    /// Forgets what a worker has asked for.
    pub(super) fn forget_asks(&mut self, worker: u64) {
        self.pools.machine.forget(|ask| ask.0 == worker);
        self.pools.early.retain(|(ask, _)| ask.0 != worker);
    }

    /// Does what the machine says, and what time brings.
    pub(super) fn mind_pools(&mut self) {
        let now = Instant::now();
        if self.pools.is_in_charge {
            self.look_at_pools(now);
            self.leave_rows(now);
            self.pools.until = self.pools.machine.tick(now);
        }
        loop {
            let deeds = self.pools.machine.deeds();
            if deeds.is_empty() {
                return;
            }
            for deed in deeds {
                self.obey(deed, now);
            }
            self.pools.until = match self.pools.is_in_charge {
                true => self.pools.machine.tick(now),
                false => None,
            };
        }
    }

    fn obey(&mut self, deed: Deed, now: Instant) {
        match deed {
            Deed::Start { pool, run } => self.begin_run(&pool, run, now),
            Deed::Quit { run } => {
                if let Some(running) = self.pools.runs.get(&run) {
                    running.quit();
                }
            }
            Deed::Kill { run } => self.kill_run(run, now),
            Deed::Say { ask, word } => self.answer(ask, word),
            Deed::Cold { pool } => self.tell_workers(&Report::Cold { pool }),
            Deed::HandedOver { pool } => self.tell_workers(&Report::HandedOver { pool }),
            Deed::Log { pool, text } => {
                let name = self.pools.name_of(&pool);
                tracing::warn!(pool = name, "{text}");
            }
            Deed::Note {
                pool,
                what,
                why,
                took,
            } => self.note(&pool, (what, why), took, now),
        }
    }

    fn tell_workers(&mut self, report: &Report) {
        let workers = self.workers.iter().filter(|(_, worker)| !worker.has_chores);
        let workers: Vec<u64> = workers.map(|(number, _)| *number).collect();
        workers.into_iter().for_each(|it| self.say(it, report));
    }

    fn answer(&mut self, (worker, id): Ask, word: Word) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let report = match word {
            Word::Warming(wait) => Report::Warming {
                id,
                wait_ms: ms(wait),
            },
            Word::Warm => Report::Warm { id },
            Word::Not {
                failure,
                detail,
                retry,
            } => Report::NotWarm {
                id,
                failure,
                detail,
                retry_ms: ms(retry),
            },
        };
        self.say(worker, &report);
    }

    /// Kills a run, or looks again whether it is gone.
    fn kill_run(&mut self, run: u64, now: Instant) {
        // To end takes a processor, too.
        self.have_turn(run, "it ends");
        let Some(running) = self.pools.runs.get_mut(&run) else {
            return self.pools.machine.gone(run, now);
        };
        let killed = *running.killed.get_or_insert(now);
        running.probe = None;
        if running.kill() {
            self.forget_run(run, now);
        } else if now.saturating_duration_since(killed) > STUCK_AFTER && !running.is_told {
            running.is_told = true;
            let (name, left) = (running.pool().map(|it| it.name.clone()), running.count());
            let name = name.unwrap_or_default();
            tracing::error!(
                pool = name,
                left,
                "processes that were killed have not ended"
            );
        }
    }

    /// Nothing of a run is left.
    fn forget_run(&mut self, run: u64, now: Instant) {
        let Some(running) = self.pools.runs.remove(&run) else {
            return;
        };
        if let Some(group) = &running.group {
            self.groups.let_go(&group.path);
        }
        for pid in running.pids() {
            self.tell_supervisor(&FromSpawner::PoolProcessEnded { pid });
        }
        self.pools.machine.gone(run, now);
    }

    /// A run cannot begin.
    pub(super) fn fail_run(&mut self, run: u64, refusal: &Refusal) {
        self.pools
            .machine
            .died(run, &refusal.detail, Instant::now());
        self.mind_pools();
    }
}

#[cfg(test)]
mod tests {
    use ipc::codec::Packed;
    use ipc::manifest::Manifest;
    use os::cgroup::{Group, Hierarchy, Layout, Limits};

    use super::*;
    use crate::manifests::Manifests;
    use crate::manifests::tests::pool_named;

    /// The settings of a pool whose tenant has these limits.
    fn settings_with(version: Version, memory_bytes: Option<u64>, pids: Option<u32>) -> u64 {
        let pool = PoolManifest {
            group: Some(1),
            ..pool_named("tenant")
        };
        let limits = Limits {
            memory_bytes,
            pids,
            ..Limits::default()
        };
        let weight = Limits {
            cpu_weight: Some(100),
            ..Limits::default()
        };
        let group = |path: &[&str], limits| Group {
            path: path.iter().map(|&name| name.to_owned()).collect(),
            limits,
        };
        let hierarchy = Hierarchy {
            version,
            controllers: Controller::ALL.into_iter().collect(),
            directory: "/groups".into(),
        };
        let manifest = Manifest {
            layout: Layout {
                hierarchies: vec![hierarchy],
            },
            pools: vec![Packed::of(&pool).unwrap()],
            ..Manifest::default()
        };
        let groups = [
            group(&["tenant"], limits),
            group(&["tenant", "pool"], weight),
        ];
        let mut manifests = Manifests::default();
        manifests.take(manifest, groups.into());
        settings(&manifests.kept()[0], 0)
    }

    #[test]
    fn a_limit_of_a_kind_that_there_was_none_of_has_a_pool_handed_over_in_version_1() {
        let told = |memory_bytes, pids| settings_with(Version::V1, memory_bytes, pids);
        let before = told(None, None);
        assert_ne!(told(Some(1), None), before);
        assert_ne!(told(Some(1), Some(1)), told(Some(1), None));
        assert_eq!(told(Some(1), None), told(Some(2), None), "it is in place");
        let told = |memory_bytes, pids| settings_with(Version::V2, memory_bytes, pids);
        assert_eq!(told(None, None), told(Some(1), Some(1)), "it holds at once");
    }
}
