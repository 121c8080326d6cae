//! What this supervisor holds, written down for the program that takes its place, and read there.
//!
//! The idea: what crosses is what the machine has given (sockets, logs, places, processes) and what
//! nobody could tell any more (numbers, counts). The rest follows from the configuration.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use config::{LastGood, Sources};
use ipc::handover::{ChildProcess, Handover, LAST_GOOD_BYTES_MAX, RetiringProcesses};
use ipc::pools::PoolProcess;
use ipc::server::{SOURCES_BYTES_MAX, Tally};
use os::cgroup::Base;
use os::exec::Handed;

use crate::directory::{row_key, take_row_key};
use crate::keeper::Keys;
use crate::listeners::{Control, Listeners};
use crate::load::apart;
use crate::logs::Logs;
use crate::loose::LooseFiles;
use crate::pools::places::Places;
use crate::reload::{Before, Generation, Refused};

/// Processes of one kind or the other, at most: what is read is bounded before it is believed.
const PROCESSES_MAX: usize = 16;

/// What a supervisor writes down.
pub(super) struct Leaving<'a> {
    pub(super) config: &'a Path,
    pub(super) generation: &'a Generation,
    pub(super) base: &'a Base,
    /// What was handed over before, to be closed where this generation has it no longer.
    pub(super) before: Option<&'a Arriving>,
    pub(super) tally: Tally,
    pub(super) children: Vec<ChildProcess>,
    pub(super) retiring: Vec<RetiringProcesses>,
    pub(super) strangers: &'a [u32],
    pub(super) masters: &'a [PoolProcess],
}

impl Leaving<'_> {
    /// Writes it down.
    pub(super) fn write(self) -> io::Result<Handed> {
        let generation = self.generation;
        let (places, locks) = self.base.to_hand_over()?;
        let last_good = generation.loose.last_good.to_text();
        let mut listeners = generation.listeners.for_server()?;
        let mut control: Vec<_> = generation.control.iter().collect();
        if let Some(before) = self.before {
            listeners.extend(before.listeners.without(&generation.listeners)?);
            let is_left = |it: &&Rc<Control>| control.iter().all(|own| !Rc::ptr_eq(own, it));
            control.extend(before.control.iter().filter(is_left).collect::<Vec<_>>());
        }
        let control = control.into_iter().map(|it| it.to_hand_over());
        let before = self.before.map(|before| &before.places);
        let masters = self.masters.iter().map(PoolProcess::try_clone);
        let handover = Handover {
            config: self.config.to_owned(),
            generation: generation.number,
            sources: generation.sources.try_clone()?,
            last_good: os::file::memfd("nagaya last good", last_good.as_bytes())?,
            listeners,
            logs: generation.logs.for_server()?,
            control: control.collect::<io::Result<_>>()?,
            workers: generation.workers,
            user: generation.user.clone(),
            tally: self.tally,
            places,
            locks,
            drain_ms: u64::try_from(generation.drain.as_millis()).unwrap_or(u64::MAX),
            children: self.children,
            retiring: self.retiring,
            strangers: self.strangers.to_vec(),
            pools: generation.places.to_hand_over(before)?,
            masters: masters.collect::<io::Result<_>>()?,
            row_key: row_key().map_err(io::Error::other)?,
        };
        handover.write()
    }
}

/// What another supervisor has written down, as this one may have it.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) config: PathBuf,
    pub(super) generation: u64,
    pub(super) tally: Tally,
    pub(super) base: Base,
    pub(super) drain: Duration,
    pub(super) children: Vec<ChildProcess>,
    pub(super) retiring: Vec<RetiringProcesses>,
    pub(super) strangers: Vec<u32>,
    pub(super) masters: Vec<PoolProcess>,
    sources: OwnedFd,
    last_good: LastGood,
    pub(super) listeners: Listeners,
    pub(super) places: Places,
    logs: Logs,
    control: Vec<Rc<Control>>,
    workers: usize,
    user: String,
}

impl Arriving {
    /// Reads it. Whoever has it owns the files of sockets, and the places among control groups:
    /// a successor is to forget it.
    pub(super) fn read(handed: Handed) -> Result<ManuallyDrop<Arriving>, Refused> {
        let said = |error: io::Error| Refused::by_system("read the hand-over", &error);
        let it = Handover::read(handed).map_err(said)?;
        take_row_key(it.row_key);
        if it.children.len() + it.retiring.len() > PROCESSES_MAX {
            return Err(said(io::ErrorKind::InvalidData.into()));
        }
        let text = os::file::read_whole(it.last_good.as_fd(), LAST_GOOD_BYTES_MAX);
        let text = String::from_utf8(text.map_err(said)?);
        let last_good = text.ok().and_then(|text| LastGood::parse(&text).ok());
        Ok(ManuallyDrop::new(Arriving {
            config: it.config,
            generation: it.generation,
            tally: it.tally,
            base: Base::take_over(it.places, it.locks).map_err(said)?,
            drain: Duration::from_millis(it.drain_ms),
            children: it.children,
            retiring: it.retiring,
            strangers: it.strangers,
            masters: it.masters,
            sources: it.sources,
            // Versions that this program cannot read are none.
            last_good: last_good.unwrap_or_default(),
            listeners: Listeners::of(it.listeners),
            places: Places::of(it.pools),
            logs: Logs::of(it.logs),
            control: it.control.into_iter().map(Control::of).collect(),
            workers: it.workers,
            user: it.user,
        }))
    }

    /// Prepares the generation that comes after the one in force.
    pub(super) fn prepare_next(&mut self, keys: &mut Keys) -> Result<Generation, Refused> {
        let (config, number) = (&self.config.clone(), self.generation + 1);
        let (before, base) = self.as_before();
        let mut next = Generation::prepare(config, number, Some(&before), (base, keys))?;
        let earlier = self.sources.try_clone();
        let said = |error: io::Error| Refused::by_system("keep the configuration in force", &error);
        next.earlier = Some((earlier.map_err(said)?, Instant::now()));
        Ok(next)
    }

    /// The generation in force, which this same program has prepared.
    pub(super) fn restore(&mut self, keys: &mut Keys) -> Result<Generation, Refused> {
        let said = |error: io::Error| Refused::by_system("read the configuration in force", &error);
        let bytes = os::file::read_whole(self.sources.as_fd(), SOURCES_BYTES_MAX).map_err(said)?;
        let sources = Sources::from_bytes(&bytes);
        let sources = sources.map_err(|error| Refused::System(vec![error.to_string()]))?;
        let model = apart(|| config::load(&sources)).map_err(said)?;
        let model = model.map_err(Refused::Config)?;
        let loose = LooseFiles::taken_over(&sources, self.last_good.clone(), &self.tally);
        let (config, number) = (self.config.clone(), self.generation);
        let (before, base) = self.as_before();
        let configuration = (&*config, sources, model, loose);
        Generation::take(configuration, number, Some(&before), (base, keys))
    }

    fn as_before(&mut self) -> (Before<'_>, &mut Base) {
        let before = Before {
            listeners: &self.listeners,
            logs: &self.logs,
            places: &self.places,
            control: &self.control,
            certificates: None,
            last_good: &self.last_good,
            workers: self.workers,
            user: &self.user,
        };
        (before, &mut self.base)
    }
}
