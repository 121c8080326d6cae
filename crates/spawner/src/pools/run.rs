//! A run: the processes of a pool that were started together.
//!
//! The idea: a master of php-fpm is one process, an application may be several; either is ready,
//! works and ends as one. Some were started by a spawner before this one, and are reaped by
//! somebody else; they are known by their descriptors alone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ipc::pools::{Identity, PoolManifest, PoolProcess, PoolProgramManifest};
use os::signal::Signal;
use os::spawn::{Adopted, Process, Verdict};
use os::tree::{self, Tree};

use super::facts;
use super::probe::Probe;
use super::way::Way;
use super::words::Words;
use crate::groups::Watch;
use crate::manifests::Known;

/// Of a thousand, so many of processor time are no work.
const IDLE_PER_MILLE: u64 = 10;

/// What runs, or is to.
#[derive(Debug)]
pub(super) struct Running {
    /// What it is started by.
    pub(super) known: Rc<Known>,
    /// The pool, where that names it.
    pub(super) pool: Option<Box<PoolManifest>>,
    pub(super) masters: Vec<MainProcess>,
    pub(super) words: Words,
    /// Its own group, below the pool's.
    pub(super) group: Option<RunGroup>,
    /// Its directories, one in each hierarchy.
    pub(super) directories: Vec<PathBuf>,
    pub(super) probe: Option<Probe>,
    /// How it gives way to others, while it does.
    pub(super) way: Option<Way>,
    /// What it was told, in a number.
    pub(super) settings: u64,
    /// Which file its program was, of php-fpm.
    pub(super) identity: Option<Identity>,
    /// When it was killed.
    pub(super) killed: Option<Instant>,
    /// Whether somebody was told that it cannot be killed.
    pub(super) is_told: bool,
    /// What it had taken when it was last looked at.
    seen: Option<(Instant, u64)>,
}

#[derive(Debug)]
pub(super) struct RunGroup {
    pub(super) path: Vec<String>,
    /// One of a few names, which no other run of the pool has.
    pub(super) name: &'static str,
    pub(super) watch: Option<Watch>,
}

#[derive(Debug)]
pub(super) struct MainProcess {
    pub(super) pid: u32,
    pub(super) process: Who,
    /// Whether it runs; `None` once that was told.
    pub(super) verdict: Option<Verdict>,
}

#[derive(Debug)]
pub(super) enum Who {
    /// Our child.
    Own(Process),
    /// Somebody else's.
    Adopted(Adopted),
    /// It has ended.
    Gone,
}

impl Running {
    pub(super) fn new(known: Rc<Known>, index: usize, now: Instant) -> Running {
        Running {
            masters: Vec::new(),
            words: Words::new(None, now),
            group: None,
            directories: Vec::new(),
            probe: None,
            way: None,
            settings: super::settings(&known, index),
            pool: known.pool(index).map(Box::new),
            identity: None,
            killed: None,
            is_told: false,
            seen: None,
            known,
        }
    }

    /// Its processes, as the supervisor hears of them; `words` is what they say, to be read.
    pub(super) fn told<'a>(
        &'a self,
        words: &'a impl AsFd,
    ) -> impl Iterator<Item = PoolProcess> + 'a {
        let id = self.pool().map(|pool| &pool.id);
        self.masters.iter().filter_map(move |master| {
            Some(PoolProcess {
                id: id?.clone(),
                pid: master.pid,
                settings: self.settings,
                identity: self.identity,
                process: master.try_clone_fd()?,
                words: words.as_fd().try_clone_to_owned().ok()?,
            })
        })
    }

    /// What the pool is.
    pub(super) fn pool(&self) -> Option<&PoolManifest> {
        self.pool.as_deref()
    }

    pub(super) fn is_php(&self) -> bool {
        let program = self.pool().map(|pool| &pool.program);
        matches!(program, Some(PoolProgramManifest::Php { .. }))
    }

    /// Which program it is.
    pub(super) fn program(&self) -> &str {
        match self.pool().map(|pool| &pool.program) {
            Some(PoolProgramManifest::Php { program, .. }) => program.to_str(),
            Some(PoolProgramManifest::App { command, .. }) => command.first().map(String::as_str),
            None => None,
        }
        .unwrap_or("it")
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.masters.iter().map(|master| master.pid)
    }

    /// Has it finish what it has begun.
    pub(super) fn quit(&self) {
        // php-fpm ends at once when it is asked to terminate; applications do not all know the other.
        let program = self.pool().map(|pool| &pool.program);
        let signal = match program {
            Some(PoolProgramManifest::App { .. }) => Signal::Terminate,
            Some(PoolProgramManifest::Php { .. }) | None => Signal::Quit,
        };
        for master in &self.masters {
            let _ = match &master.process {
                Who::Own(process) => process.signal(signal),
                Who::Adopted(process) => process.signal(signal),
                Who::Gone => Ok(()),
            };
        }
    }

    /// Kills all of it, as far as it is known; tells whether nothing is left.
    pub(super) fn kill(&mut self) -> bool {
        let has_group = !self.directories.is_empty();
        for master in &mut self.masters {
            if !has_group && !matches!(master.process, Who::Gone) {
                tree::kill_below(master.pid);
            }
            match &master.process {
                Who::Own(process) => process.kill(),
                Who::Adopted(process) => {
                    process.kill();
                    if process.has_ended() {
                        master.process = Who::Gone;
                    }
                }
                Who::Gone => {}
            }
        }
        let is_empty = |directory: &PathBuf| {
            !directory.is_dir() || os::cgroup::kill_all(directory, Duration::ZERO)
        };
        let are_empty = self.directories.iter().filter(|it| !is_empty(it)).count() == 0;
        are_empty
            && self
                .masters
                .iter()
                .all(|it| matches!(it.process, Who::Gone))
    }

    /// Whether it has worked since it was last looked at.
    pub(super) fn has_worked(&mut self, now: Instant) -> bool {
        let is_php = self.is_php();
        let trees: Vec<Tree> = self.pids().filter_map(tree::look).collect();
        if is_php && trees.iter().any(|tree| tree.pids.len() > 1) {
            return true;
        }
        let by_process = || trees.iter().map(|tree| tree.cpu).sum::<Duration>();
        let by_process = || u64::try_from(by_process().as_micros()).unwrap_or(u64::MAX);
        let taken = self.cpu_of_group_us().unwrap_or_else(by_process);
        let before = self.seen.replace((now, taken));
        let Some((then, before)) = before else {
            return true;
        };
        let passed = now.saturating_duration_since(then).as_micros();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        taken.saturating_sub(before).saturating_mul(1_000) > passed.saturating_mul(IDLE_PER_MILLE)
    }

    /// What its group has used of processors.
    pub(super) fn cpu_of_group_us(&self) -> Option<u64> {
        let group = self.group.as_ref()?;
        os::cgroup::Usage::cpu_us(&self.known.manifest.layout, &group.path)
    }

    /// What its start has taken.
    pub(super) fn cost_us(&self) -> u64 {
        let trees = self.pids().filter_map(tree::look);
        let each = trees.flat_map(|tree| tree.pids);
        each.filter_map(facts::own_cpu_us).sum()
    }

    /// Its processes, of php-fpm those that run pages.
    pub(super) fn workers(&self) -> usize {
        match self.is_php() {
            true => self.pids().map(|pid| tree::children(pid).len()).sum(),
            false => self.count(),
        }
    }

    /// Everybody in it.
    pub(super) fn count(&self) -> usize {
        let trees = self.pids().filter_map(tree::look);
        trees.map(|tree| tree.pids.len()).sum()
    }
}

impl MainProcess {
    /// Readable when it has ended, where nobody else tells.
    pub(super) fn end(&self) -> Option<BorrowedFd<'_>> {
        match &self.process {
            Who::Adopted(process) => Some(process.as_fd()),
            _ => None,
        }
    }

    /// Its descriptor, for the supervisor.
    pub(super) fn try_clone_fd(&self) -> Option<OwnedFd> {
        match &self.process {
            Who::Own(process) => process.try_clone_fd().ok(),
            Who::Adopted(process) => process.try_clone_fd().ok(),
            Who::Gone => None,
        }
    }
}
