//! What operators ask of pools, and have done.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use config::reason;
use ipc::manifest::FromSpawner;
use ipc::message::Message;
use ipc::pools::{PoolAnswer, PoolManifest, PoolQuestion, PoolStanding};
use os::cgroup::{Controller, Layout, Usage, pressure};

use crate::Spawner;

/// Bytes of why a pool failed that are told.
const FAILURE_BYTES_MAX: usize = 500;

impl Spawner {
    /// Tells the supervisor something that it has not asked for.
    pub(crate) fn tell_supervisor(&mut self, word: &FromSpawner) {
        if let Err(error) = word.send(self.supervisor.as_fd()) {
            // Its end is noticed where it is listened to.
            tracing::warn!(error = reason(&error), "the supervisor does not hear");
        }
    }

    /// Does what an operator asks, and answers.
    pub(crate) fn on_question(&mut self, number: u64, question: PoolQuestion) {
        let now = Instant::now();
        let count = |done: usize| PoolAnswer::Begun(u32::try_from(done).unwrap_or(u32::MAX));
        let answer = match question {
            PoolQuestion::List => PoolAnswer::Pools(self.standings(now)),
            // Whoever is in charge, this one starts nothing of such a tenant.
            PoolQuestion::Suspend(tenant) => self.suspend_one(tenant, true),
            PoolQuestion::Resume(tenant) => self.suspend_one(tenant, false),
            _ if !self.pools.is_in_charge => {
                PoolAnswer::Refused("pools are being handed over".into())
            }
            PoolQuestion::Restart(ids) => {
                let why = "an operator restarted it";
                let machine = &mut self.pools.machine;
                let begun = |id: &&String| machine.forgive(id, now) | machine.restart(id, why, now);
                count(ids.iter().filter(begun).count())
            }
            PoolQuestion::Stop(ids) => {
                let why = "an operator stopped it";
                let machine = &mut self.pools.machine;
                let begun = |id: &&String| machine.forgive(id, now) | machine.stop(id, why, now);
                count(ids.iter().filter(begun).count())
            }
            PoolQuestion::Clear(ids) => count(self.clear(&ids, now)),
            PoolQuestion::Kill(tenant) => self.kill_tenant(&tenant),
        };
        self.tell_supervisor(&FromSpawner::Pools { number, answer });
        self.mind_pools();
    }

    /// How each pool of the latest manifest stands, and after them those of rows.
    fn standings(&self, now: Instant) -> Vec<PoolStanding> {
        let Some(latest) = self.manifests.kept().last() else {
            return Vec::new();
        };
        let pools = latest.pools().chain(self.pools.of_rows());
        pools.map(|pool| self.standing(&pool, now)).collect()
    }

    fn standing(&self, pool: &PoolManifest, now: Instant) -> PoolStanding {
        let machine = &self.pools.machine;
        let figures = machine.figures(&pool.id);
        let run = machine.run(&pool.id);
        let run = run.and_then(|run| self.pools.runs.get(&run));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let usage = self.usage_of(pool);
        let mut failure = figures.failure.clone();
        ipc::codec::cut(&mut failure, FAILURE_BYTES_MAX);
        PoolStanding {
            id: pool.id.clone(),
            name: pool.name.clone(),
            tenant: pool.tenant.clone(),
            state: machine.state(&pool.id, now),
            pid: run.and_then(|run| run.pids().next()),
            starts: figures.starts,
            starts_failed: figures.starts_failed,
            start_p50_ms: figures.percentile(50).map(ms),
            start_p99_ms: figures.percentile(99).map(ms),
            processes: run.map_or(0, |run| u32::try_from(run.workers()).unwrap_or(u32::MAX)),
            memory_bytes: usage.memory_bytes,
            cpu_us: usage.cpu_us,
            periods: self.periods_of(pool),
            pressure: self.group_of(pool, pressure).unwrap_or_default(),
            mails: figures.mails,
            mails_unsent: figures.mails_unsent,
            failure,
            retry_ms: machine.rest(&pool.id, now).map(ms),
        }
    }

    fn usage_of(&self, pool: &PoolManifest) -> Usage {
        let usage = self.group_of(pool, Usage::of);
        usage.flatten().unwrap_or_default()
    }

    /// The periods of the innermost group with a quota that the pool is in, and those in which it
    /// ran out.
    fn periods_of(&self, pool: &PoolManifest) -> Option<(u64, u64)> {
        let of_group = |layout: &Layout, path: &[String]| {
            let usage = Usage::by(Controller::Cpu, layout, path);
            let periods = usage.periods.filter(|periods| *periods > 0)?;
            Some((periods, usage.throttled_periods.unwrap_or(0)))
        };
        self.group_of(pool, |layout, path| {
            let around = (1..=path.len()).rev().filter_map(|depth| path.get(..depth));
            { around }.find_map(|path| of_group(layout, path))
        })?
    }

    /// What is told of the pool's own group, where it has one.
    fn group_of<T>(
        &self,
        pool: &PoolManifest,
        tell: impl Fn(&Layout, &[String]) -> T,
    ) -> Option<T> {
        let known = match self.pools.named.get(&pool.id) {
            Some((known, _)) => known,
            None => self.manifests.kept().last()?,
        };
        let at = usize::try_from(pool.group?).ok()?;
        let group = known.groups.get(at)?;
        Some(tell(&known.manifest.layout, &group.path))
    }
}
