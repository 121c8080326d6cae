//! The server process: its workers, and what the supervisor tells it.
//!
//! The main thread only reads the link to the supervisor. A new configuration is parsed and
//! compiled here, off the workers. Whatever can fail comes before the first worker is told; from
//! then on the new generation is the one in force, here and in the supervisor, and a worker that
//! is late finds it in its queue. A warden thread watches over workers that are held up.

mod certificates;
mod descriptors;
mod directories;
mod ending;
mod receiver;
mod rings;

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::model::{ListenAddress, Model};
use tokio::sync::mpsc::Receiver;

use crate::access_log::queue::Order;
use crate::agents::asking::Asking;
use crate::control::Control;
use crate::directory::link::DirectoryLink;
use crate::error::{Error, Kind, Result};
use crate::generation::Generation;
use crate::linked_thread::LinkedThread;
use crate::permits::elsewhere::Elsewhere;
use crate::sensors::sampling::Sampling;
use crate::thread::{self, Added, Runtimes, not_accepting};
use crate::warden::{self, Watched};
use crate::worker::commands::{Command, Prepare, Swap};
use crate::worker::shared::Shared;
use crate::{access_log, maps};
use descriptors::room;
use ipc::server::{
    Configure, LinkSender, ListenerSocket, SOURCES_BYTES_MAX, ToServer, ToSupervisor, Unheld,
};
use receiver::LinkReceiver;

/// What is said of a worker that has not opened its VM in time.
const SCRIPTS_LATE: &str = "a worker has not opened its scripts in their time: it is held up, or init or worker_init waits for what does not come";
/// Why a generation does not come into force when the server is told to end meanwhile.
const ENDING: &str = "ending";
/// What is said of descriptors that cannot be taken, and what to do.
const NO_ROOM: &str = "the server may open no more descriptors; raise the limit (LimitNOFILE, ulimit -Hn) or lower caps.connections";
/// How long the workers of a server that starts may take to accept: the supervisor waits no longer.
const START_MAX: Duration = Duration::from_secs(10);
/// How often an ending server looks whether its threads have ended, and one that waits for scripts whether it is to end.
const END_LOOK: Duration = Duration::from_millis(10);

/// Serves until drained or until the supervisor has gone.
///
/// # Errors
/// When the first generation can't be served, or the link breaks.
pub fn serve(link: OwnedFd, first: Configure) -> Result<()> {
    let generation = first.generation;
    let sender = LinkSender::new(&link).map_err(unheard)?;
    let mut receiver = LinkReceiver::new(link);
    let mut server = match ServerThreads::start(first, &sender, &mut receiver) {
        Ok(server) => server,
        // It did not come to serving, and has nothing to finish.
        Err(error) if error.reason == ENDING => {
            return sender.send(&ToSupervisor::Drained).map_err(unheard);
        }
        Err(error) => {
            let refused = refused(generation, &error);
            sender.send(&refused).map_err(unheard)?;
            return Err(error);
        }
    };
    let ready = ToSupervisor::Ready { generation };
    sender.send(&ready).map_err(unheard)?;
    loop {
        let message = match receiver.receive() {
            Ok(Ok(message)) => message,
            Ok(Err(unheld)) => {
                server.go_on_without(unheld, &sender)?;
                continue;
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                server.drain(&mut receiver);
                return Ok(());
            }
            Err(error) => return Err(internal("link", &error)),
        };
        match message {
            ToServer::Configure(configure) => {
                let generation = configure.generation;
                let answer = match server.configure(configure, &mut receiver) {
                    Ok(()) => ToSupervisor::Ready { generation },
                    // That word comes next.
                    Err(error) if error.reason == ENDING => continue,
                    Err(error) => refused(generation, &error),
                };
                sender.send(&answer).map_err(unheard)?;
            }
            ToServer::Reopen { logs } => server.order(Order::Reopen(logs)),
            ToServer::Programs { links } => server.use_programs(links),
            ToServer::Tally(tally) => server.shared.process.show(tally),
            ToServer::LogFile { path, result } => server.order(Order::Opened { path, result }),
            ToServer::Challenges { number, challenges } => {
                certificates::show(&server.shared, number, challenges);
            }
            ToServer::CertificateNews(news) => server.shared.orders.take(news),
            ToServer::NotObtained(told) => certificates::not_obtained(&server.shared, &told),
            ToServer::Certificate(answer) => server.shared.certifier.hear(answer),
            ToServer::Pools { number, answer } => server.shared.pool_inquiries.hear(number, answer),
            ToServer::Recorder(news) => rings::take(&mut server, news),
            ToServer::Directory(news) => directories::take(&mut server, news),
            ToServer::Certificates { set } => certificates::changed(&server.shared, &set),
            ToServer::Keeper { links, set } => certificates::next(&server.shared, links, &set),
            ToServer::Drain => {
                server.drain(&mut receiver);
                return sender.send(&ToSupervisor::Drained).map_err(unheard);
            }
            ToServer::HeldElsewhere { by, held } => server.hear_held(by, held),
            ToServer::Retire => {
                server.retire(&mut receiver, &sender);
                return sender.send(&ToSupervisor::Drained).map_err(unheard);
            }
        }
    }
}

/// The answer to a generation that cannot be.
fn refused(generation: u64, error: &Error) -> ToSupervisor {
    ToSupervisor::Refused {
        generation,
        message: error.to_string(),
    }
}

/// Listeners by address and worker that are being accepted from.
type Open = HashSet<(ListenAddress, usize)>;

struct ServerThreads {
    shared: Shared,
    threads: Vec<JoinHandle<()>>,
    /// That of each worker.
    runtimes: Runtimes,
    log_writer: JoinHandle<()>,
    open: Open,
    watched: Arc<Watched>,
    control: Control,
    drain_max: Duration,
    /// What requests of earlier servers hold of limits.
    elsewhere: Elsewhere,
    /// Where what is held here is told, once another server has taken over.
    reports: Option<LinkSender>,
    /// Ends with the server.
    _sampling: Sampling,
    /// There once an upstream had agents; ends with the server.
    asking: Option<Asking>,
    /// There once a recorder was; ends with the server.
    teller: Option<LinkedThread<OwnedFd>>,
    /// There once a directory process was; ends with the server.
    asker: Option<LinkedThread<DirectoryLink>>,
    /// There once machines shared limits.
    fleet: Option<LinkedThread<OwnedFd>>,
}

impl ServerThreads {
    fn start(first: Configure, sender: &LinkSender, receiver: &mut LinkReceiver) -> Result<Self> {
        let (workers, generation) = compile(&first, None)?;
        let (shared, receivers) = Shared::new(workers);
        shared.challenges.replace(first.challenges.clone());
        shared.orders.ask_over(sender).map_err(unheard)?;
        shared.certifier.ask_over(sender);
        shared.pool_inquiries.ask_over(sender);
        let watched = Arc::new(Watched::new(shared.clone()));
        let (threads, runtimes) = start_workers(&generation, &shared, receivers, sender)?;
        let (warden, report) = (Arc::clone(&watched), sender.clone());
        spawn("warden", move || warden::run(&warden, &report))?;
        let (records, ask) = (Arc::clone(&shared.access_log), sender.clone());
        let log_writer = spawn("access-log", move || {
            access_log::run(&records, |path| {
                let path = path.to_owned();
                ask.send(&ToSupervisor::OpenLog { path })
            });
        })?;
        let sampling = Sampling::start(shared.clone());
        let sampling = sampling.map_err(|error| internal("thread", &error))?;
        let mut server = Self {
            shared,
            threads,
            runtimes,
            log_writer,
            open: Open::new(),
            watched,
            control: Control::default(),
            drain_max: Duration::ZERO,
            elsewhere: Elsewhere::default(),
            reports: None,
            _sampling: sampling,
            asking: None,
            teller: None,
            asker: None,
            fleet: None,
        };
        match server.install(first, &generation, receiver) {
            Ok(()) => Ok(server),
            Err(error) => {
                if error.reason == ENDING {
                    server.drain(receiver);
                }
                Err(error)
            }
        }
    }

    fn configure(&mut self, configure: Configure, receiver: &mut LinkReceiver) -> Result<()> {
        let before = self.shared.generation();
        let (workers, generation) = compile(&configure, before.as_deref())?;
        drop(before);
        if workers != self.threads.len() {
            let detail = format!(
                "workers is {} and can only change with a restart",
                self.threads.len()
            );
            return Err(Error::new(Kind::Internal, "workers_changed", detail));
        }
        self.install(configure, &generation, receiver)
    }

    /// Puts a generation in force. What can fail comes first and changes nothing; afterwards
    /// there is no way back, because workers serve it already.
    fn install(
        &mut self,
        configure: Configure,
        generation: &Arc<Generation>,
        receiver: &mut LinkReceiver,
    ) -> Result<()> {
        let (open, added) = self.adopt(&configure.listeners)?;
        let certificates = certificates::read(configure.certificates.as_ref())?;
        if generation.listened.has_tls() {
            self.shared.handshakes.start()?;
        }
        self.ask_agents(generation)?;
        self.ask_fleet(generation)?;
        self.prepare(generation, receiver)?;
        if let Err(error) = self.control.replace(configure.control, &self.shared) {
            self.discard(generation.number);
            return Err(error);
        }
        self.drain_max = Duration::from_millis(generation.process.timeouts.drain_ms);
        self.order(Order::Use {
            logs: configure.logs,
            files_max: generation.process.log.files_max,
        });
        let kept = configure.listeners.into_iter().map(|it| it.address);
        let kept: Arc<[ListenAddress]> = kept.collect();
        if let Err(error) = os::process::reserve_descriptors(generation.room.reserve) {
            let error = config::reason(&error);
            tracing::warn!(error, "no descriptors set aside for logs and reloads");
        }
        self.open = open;
        self.watched.retain(&kept);
        self.use_programs(configure.programs);
        certificates::take(&self.shared, configure.keeper, certificates);
        self.shared.limits.put_in_force(&generation.limits);
        if generation.limits.fleet.is_none() {
            // Its thread ends with it.
            self.fleet = None;
        }
        let pools = &self.shared.program_pools;
        pools.put_in_force(&generation.program_pools);
        pools.tell_costs(&generation.costs);
        self.shared.suspension.put_in_force(&generation.suspended);
        let directories = &self.shared.rows.directories;
        directories.put_in_force(&generation.directories);
        let before = self.shared.generation();
        self.swap(generation, added, &kept)?;
        if let Some(before) = before {
            maps::retire(&before.maps, &generation.maps);
        }
        self.shared.set_generation(generation);
        // Who sees the reload sees its generation.
        self.shared.process.show(configure.tally);
        error_log::set_level(generation.process.log.level);
        // What the configuration took while it was read would stay with the process for good.
        os::process::release_memory();
        Ok(())
    }

    /// Has agents asked, where there are any.
    fn ask_agents(&mut self, generation: &Generation) -> Result<()> {
        let mut upstreams = generation.upstreams.iter();
        if self.asking.is_none() && upstreams.any(|upstream| upstream.agent_port.is_some()) {
            let asking = Asking::start(self.shared.clone());
            self.asking = Some(asking.map_err(|error| internal("thread", &error))?);
        }
        Ok(())
    }

    /// Has permits leased, where machines share limits.
    fn ask_fleet(&mut self, generation: &Generation) -> Result<()> {
        if generation.limits.fleet.is_some() && self.fleet.is_none() {
            let fleet = crate::fleet::start(self.shared.clone());
            self.fleet = Some(fleet.map_err(|error| internal("thread", &error))?);
        }
        Ok(())
    }

    /// Has every worker open what the generation's scripts need. One that cannot refuses the
    /// generation, and so does one that does not answer, or the end of the server.
    fn prepare(&self, generation: &Arc<Generation>, receiver: &mut LinkReceiver) -> Result<()> {
        let Some(plan) = &generation.scripts else {
            return Ok(());
        };
        let (done, waiting) = mpsc::channel();
        for worker in 0..self.threads.len() {
            let prepare = Prepare {
                generation: Arc::clone(generation),
                done: done.clone(),
            };
            let prepare = Command::Prepare(Box::new(prepare));
            self.shared.peers.tell(worker, prepare);
        }
        drop(done);
        let until = Instant::now() + plan.opening_max + Swap::PATIENCE;
        let mut workers = 0..self.threads.len();
        let prepared = workers.try_for_each(|_| answer(&waiting, until, receiver));
        if prepared.is_err() {
            // Whoever answers from now on gives up what it has opened by itself.
            drop(waiting);
            self.discard(generation.number);
        }
        prepared
    }

    fn discard(&self, number: u64) {
        for worker in 0..self.threads.len() {
            self.shared.peers.tell(worker, Command::Discard(number));
        }
    }

    /// Copies the sockets that are not accepted from yet, and registers them; what will be open,
    /// and what is new.
    fn adopt(&self, listeners: &[ListenerSocket]) -> Result<(Open, Vec<Added>)> {
        let (mut open, mut added) = (Open::new(), Vec::new());
        for listener in listeners {
            let targets = listener
                .worker
                .map_or(0..self.threads.len(), |worker| worker..worker + 1);
            for worker in targets {
                let place = (listener.address.clone(), worker);
                let is_new = !self.open.contains(&place);
                if let Some(runtime) = self.runtimes.get(&worker)
                    && open.insert(place)
                    && is_new
                {
                    added.push(Added::copy(listener, worker, runtime)?);
                }
            }
        }
        Ok((open, added))
    }

    /// Tells every worker, and waits a while for those that are busy. One that has shown no life
    /// for so long is not waited for: the warden could end the server before the supervisor knows
    /// which generation is in force.
    ///
    /// # Errors
    /// When one cannot accept and the server starts: it is not ready before all do.
    fn swap(
        &self,
        generation: &Arc<Generation>,
        added: Vec<Added>,
        kept: &Arc<[ListenAddress]>,
    ) -> Result<()> {
        let starts = self.shared.generation().is_none();
        if starts {
            self.shared.set_generation(generation);
        }
        let mut opened: Vec<Vec<_>> = self.threads.iter().map(|_| Vec::new()).collect();
        for listener in added {
            self.watched.add(listener.worker, listener.watched);
            if let Some(opened) = opened.get_mut(listener.worker) {
                opened.push(listener.opened);
            }
        }
        let (done, waiting) = mpsc::channel();
        let told = Instant::now();
        for (worker, added) in opened.into_iter().enumerate() {
            let swap = Swap {
                generation: Arc::clone(generation),
                added,
                kept: Arc::clone(kept),
                told,
                done: done.clone(),
            };
            self.shared
                .peers
                .tell(worker, Command::Swap(Box::new(swap)));
        }
        drop(done);
        let mut late: BTreeSet<usize> = (0..self.threads.len()).collect();
        let left = |late: &BTreeSet<usize>| {
            if starts {
                return START_MAX.saturating_sub(told.elapsed());
            }
            let silence_us = |worker: &usize| self.shared.loads.silence_us(*worker).unwrap_or(0);
            let least_us = late.iter().map(silence_us).min().unwrap_or(u64::MAX);
            let waited = told.elapsed().max(Duration::from_micros(least_us));
            Swap::PATIENCE.saturating_sub(waited)
        };
        while let Ok(worker) = waiting.recv_timeout(left(&late)) {
            late.remove(&worker);
        }
        if let Some(worker) = late.first().filter(|_| starts) {
            let detail = format!("worker {worker} does not accept: it is held up");
            return Err(not_accepting(detail));
        }
        for worker in late {
            tracing::warn!(
                worker,
                generation = generation.number,
                "a worker is held up: the new generation is in force, but this worker serves the one before until it is free"
            );
        }
        Ok(())
    }

    /// Goes on as before where descriptors that came found no room, and says so.
    fn go_on_without(&self, unheld: Unheld, sender: &LinkSender) -> Result<()> {
        match unheld {
            Unheld::Configure { generation } => {
                let message = format!("its listeners and logs find no room: {NO_ROOM}");
                let refused = ToSupervisor::Refused {
                    generation,
                    message,
                };
                return sender.send(&refused).map_err(unheard);
            }
            Unheld::Reopen => tracing::error!(
                "the logs that were opened again find no room, those open until now are written on: {NO_ROOM}; then send USR1 again"
            ),
            Unheld::LogFile { path } => {
                let result = Err(NO_ROOM.to_owned());
                self.order(Order::Opened { path, result });
            }
            Unheld::Programs => tracing::error!(
                "the links to the spawner find no room, so no program can be run until the gateway is started again: {NO_ROOM}"
            ),
            Unheld::Certificates => tracing::error!(
                "the certificates that changed find no room, those from before are answered with: {NO_ROOM}; then reload"
            ),
            Unheld::Recorder => tracing::error!(
                "the recorder's memory finds no room, so nothing is recorded until the gateway is started again: {NO_ROOM}"
            ),
            Unheld::Directory => tracing::error!("no link to the directories: {NO_ROOM}"),
            Unheld::Keeper => tracing::error!(
                "the links to the keeper find no room, so no key signs until the gateway is started again: {NO_ROOM}"
            ),
        }
        Ok(())
    }

    /// Hands each worker its link to the spawner; without links they keep those they have.
    fn use_programs(&self, links: Vec<OwnedFd>) {
        for (worker, link) in links.into_iter().enumerate() {
            self.shared.peers.tell(worker, Command::Programs(link));
        }
    }

    fn order(&self, order: Order) {
        self.shared.access_log.order(order);
    }
}

/// Starts the workers, all of them or none: the sockets of one that is missing would be accepted
/// from by nobody.
fn start_workers(
    generation: &Arc<Generation>,
    shared: &Shared,
    receivers: Vec<Receiver<Command>>,
    sender: &LinkSender,
) -> Result<(Vec<JoinHandle<()>>, Runtimes)> {
    let (started, waiting) = mpsc::channel();
    let mut threads = Vec::with_capacity(receivers.len());
    for (index, commands) in receivers.into_iter().enumerate() {
        let (generation, its_shared) = (Arc::clone(generation), shared.clone());
        let (sender, started) = (sender.clone(), started.clone());
        let seed = RandomState::new().hash_one(index);
        let body = move || {
            let run = || thread::run(index, generation, its_shared, seed, commands, &started);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                let report = format!("worker {index} has panicked outside of any request");
                // The supervisor may be gone as well; this process ends either way.
                let _ = sender.send(&ToSupervisor::Stuck { report });
                std::process::abort();
            }
        };
        threads.push(spawn(&format!("worker-{index}"), body)?);
    }
    let late = |_| Err(Error::new(Kind::Internal, "worker", "a worker has ended"));
    let start = || waiting.recv().unwrap_or_else(late);
    let runtimes = threads.iter().map(|_| start()).collect();
    if let Err(error) = runtimes {
        for worker in 0..threads.len() {
            shared.peers.tell(worker, Command::Drain);
        }
        return Err(error);
    }
    runtimes.map(|runtimes| (threads, runtimes))
}

/// What the next worker says of opening its VM.
///
/// # Errors
/// As it says, when its time is up, or when the server is to end meanwhile.
fn answer(
    waiting: &mpsc::Receiver<Result<()>>,
    until: Instant,
    receiver: &mut LinkReceiver,
) -> Result<()> {
    loop {
        match waiting.recv_timeout(END_LOOK) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Timeout) if receiver.is_told_to_end() => {
                let detail = "the server is to end while init and worker_init run";
                return Err(Error::new(Kind::Internal, ENDING, detail));
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            Err(_) => return Err(Error::new(Kind::Internal, "scripts_late", SCRIPTS_LATE)),
        }
    }
}

/// Parses and compiles what the supervisor sent.
///
/// The allocator gives each thread memory of its own. Compiled by another thread, what stays does
/// not lie among what was needed to read the configuration, and all of that goes back.
fn compile(configure: &Configure, before: Option<&Generation>) -> Result<(usize, Arc<Generation>)> {
    let model = read(&configure.sources)?;
    // Of one that cannot be understood any more nobody is taken to have come since.
    let earlier = configure.earlier.as_ref();
    let earlier = earlier.and_then(|sources| read(sources).ok());
    let compiled = std::thread::scope(|scope| {
        let body = || -> Result<Generation> {
            let mut generation = Generation::compile(configure.generation, &model, before)?;
            generation.layout = configure.layout.clone();
            generation.room = room(configure, &model, before)?;
            if let Some(earlier) = &earlier {
                generation.follow(&model, earlier);
            }
            Ok(generation)
        };
        let builder = std::thread::Builder::new().name("compile".to_owned());
        let thread = builder.spawn_scoped(scope, body);
        let thread = thread.map_err(|error| internal("thread", &error))?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    Ok((model.workers, Arc::new(compiled?)))
}

/// The model that sources of the supervisor's hold.
fn read(sources: &OwnedFd) -> Result<Model> {
    let bytes = os::file::read_whole(sources.as_fd(), SOURCES_BYTES_MAX)
        .map_err(|error| internal("sources", &error))?;
    let wrong = |error: &dyn std::fmt::Display| {
        Error::new(Kind::Internal, "configuration", error.to_string())
    };
    let sources = config::Sources::from_bytes(&bytes).map_err(|error| wrong(&error))?;
    drop(bytes);
    config::load(&sources).map_err(|error| wrong(&error))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| internal("thread", &error))
}

fn unheard(error: std::io::Error) -> Error {
    internal("link", &error)
}

fn internal(reason: &'static str, error: &std::io::Error) -> Error {
    Error::io(Kind::Internal, reason, error)
}

#[cfg(test)]
mod tests;
