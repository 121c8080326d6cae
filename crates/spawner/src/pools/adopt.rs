//! Pools that change hands: from a spawner before, and to the next one.
//!
//! The idea: masters outlive who started them. Whoever is in charge of pools knows each by a
//! descriptor that the supervisor keeps, too; the last of a pool serve, those before them leave.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use ipc::manifest::FromSpawner;
use ipc::message::Message;
use ipc::pools::PoolProcess;
use os::spawn::Adopted;

use super::run::{self, Running, Who};
use super::{instances, words};
use crate::Spawner;

impl Spawner {
    /// Pools are in this spawner's charge from now on; these run.
    pub(crate) fn take_charge(&mut self, masters: Vec<PoolProcess>) {
        self.pools.is_in_charge = true;
        if let Some(latest) = self.manifests.kept().last()
            && let Err(problem) = self.groups.write_again(latest)
        {
            tracing::error!("not all groups are as they are to be: {problem}");
        }
        self.pools.inherited.extend(masters);
        self.name_pools();
        for (ask, id) in std::mem::take(&mut self.pools.early) {
            self.warm(ask, &id, true);
        }
    }

    /// Pools are in another's charge.
    pub(crate) fn let_go(&mut self) -> io::Result<()> {
        self.pools.is_in_charge = false;
        self.pools.given = Some(self.pools.pids());
        self.groups.leave_held();
        let runs: Vec<u64> = self.pools.runs.keys().copied().collect();
        for run in runs {
            self.have_turn(run, "it changes hands");
        }
        for run in std::mem::take(&mut self.pools.runs).into_values() {
            let Some(words) = run.words.fd() else {
                continue;
            };
            for master in run.told(&words) {
                FromSpawner::PoolProcess(master).send(self.supervisor.as_fd())?;
            }
        }
        self.pools.machine.let_go();
        self.mind_pools();
        FromSpawner::LetGo.send(self.supervisor.as_fd())
    }

    /// Goes on with masters of a spawner before.
    pub(super) fn adopt(&mut self) {
        let now = Instant::now();
        let Some(latest) = self.manifests.kept().last().cloned() else {
            return;
        };
        let inherited = std::mem::take(&mut self.pools.inherited);
        let pids = inherited.iter().map(|master| master.pid).collect();
        let mut places = latest.manifest.layout.birthplaces(&pids);
        let mut by_pool: BTreeMap<String, Vec<PoolProcess>> = BTreeMap::new();
        for master in inherited {
            by_pool.entry(master.id.clone()).or_default().push(master);
        }
        for (id, mut masters) in by_pool {
            let named = self.pools.named.get(&id).cloned();
            let terms = self.pools.terms(&id);
            let count = self.pools.pool(&id).map_or(0, |pool| instances(&pool));
            let serving = masters.split_off(masters.len().saturating_sub(count));
            let runs = masters.into_iter().map(|master| (vec![master], false));
            for (masters, serves) in runs.chain([(serving, true)]) {
                if masters.is_empty() {
                    continue;
                }
                let machine = &mut self.pools.machine;
                let run = match serves && count > 0 {
                    true => machine.adopt(&id, &terms, now),
                    false => machine.adopt_leaving(&id, &terms, now),
                };
                let (known, index) = named.clone().unwrap_or((Rc::clone(&latest), usize::MAX));
                let mut running = Running::new(known, index, now);
                for master in masters {
                    let directories = places.remove(&master.pid).unwrap_or_default();
                    running.inherit(master, directories, now);
                }
                let ended = running
                    .masters
                    .iter()
                    .any(|it| matches!(it.process, Who::Gone));
                self.pools.runs.insert(run, running);
                if ended {
                    let why = "it ended while nobody looked";
                    self.pools.machine.died(run, why, now);
                }
            }
        }
    }
}

impl Running {
    /// Goes on with a master of a spawner before.
    fn inherit(&mut self, master: PoolProcess, directories: Vec<PathBuf>, now: Instant) {
        let PoolProcess {
            id: _,
            pid,
            settings,
            identity,
            process,
            words,
        } = master;
        (self.settings, self.identity) = (settings, identity);
        let process = match Adopted::of(pid, process) {
            Ok(adopted) if adopted.has_ended() => Who::Gone,
            Ok(adopted) => Who::Adopted(adopted),
            Err(_) => Who::Gone,
        };
        self.words = words::Words::new(Some(words), now);
        self.directories.extend(directories);
        self.masters.push(run::MainProcess {
            pid,
            process,
            verdict: None,
        });
    }
}
