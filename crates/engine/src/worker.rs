//! One thread's share of the server: its runtime, listeners, pools and clocks.
//!
//! A worker never waits for another. What workers share is the immutable generation and the
//! [`Board`] on which each shows how busy it is.

mod peers;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use config::model::{self, ListenAddress};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::access_log::{self, AccessLog};
use crate::admission::Checks;
use crate::board::Board;
use crate::buffer::BufferPool;
use crate::clock::Clock;
use crate::deadline::Deadlines;
use crate::error::{Error, Kind, Result};
use crate::exchange::{RequestId, Spares};
use crate::generation::Generation;
use crate::helper::Helpers;
use crate::listener::{Arrival, Clients, Listener};
use crate::maps::Inbox;
use crate::permits::{self, Limiter};
use crate::programs::Programs;
use crate::refused::RefusedClients;
use crate::resolve::{Files, Mounts};
use crate::scripts::Scripts;
use crate::sensors::Sensors;
use crate::shares::{Owner, Shares};
use crate::shedding::AllRemembered;
use crate::site::Site;
use crate::spool::{Spool, SpoolCaps};
use crate::stats::{ProcessStats, WorkerStats};
use crate::stderr_log::{Complaints, StderrShares};
use crate::upstream::{AllSlots, Dynamic, Pool};

pub use peers::Peers;

/// Commands waiting at one worker's door.
const COMMANDS_MAX: usize = 4_096;

/// What one thread serves with.
#[derive(Debug)]
pub struct Worker {
    /// Its number, from 0.
    pub index: usize,
    /// Its deadlines.
    pub deadlines: Rc<Deadlines>,
    /// Its wall clock.
    pub clock: Rc<Clock>,
    /// Its threads for what may wait.
    pub helpers: Helpers,
    /// What it remembers of the file systems roots lie on.
    pub mounts: Mounts,
    /// Its buffers.
    pub buffers: BufferPool,
    /// Memory its exchanges leave to each other.
    pub spares: Spares,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
    /// What all workers show each other.
    pub board: Arc<Board>,
    /// The other workers' doors.
    pub peers: Peers,
    /// Connections by client.
    pub clients: Arc<Clients>,
    /// Its side of the access log.
    pub access_log: AccessLog,
    /// The programs of its exchanges.
    pub programs: Programs,
    /// What it knows of passwords.
    pub auth_checks: Checks,
    /// What it shares with the others.
    pub shared: Shared,
    /// The VMs open here, each until its `worker_exit` has run.
    pub(crate) opened: RefCell<Vec<Rc<Scripts>>>,
    /// `log` phases that wait.
    pub(crate) scripts_logging: Cell<usize>,
    /// The scripts of the generation that comes next, by its number.
    prepared: RefCell<Option<(u64, Rc<Scripts>)>>,
    /// Its scratch for the keys of limits.
    pub(crate) wants: RefCell<permits::Scratch>,
    /// The queues of map programs it hosts.
    hosted: RefCell<Vec<Arc<Inbox>>>,
    serving: RefCell<Rc<Serving>>,
    next_id: Cell<u64>,
    next_draw: Cell<u64>,
    connections: Cell<u64>,
    draining: Cell<bool>,
    /// Busy halves of its connections.
    pub(crate) busy: Cell<usize>,
}

/// What all workers of a server share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// How busy each is.
    pub board: Arc<Board>,
    /// Their doors.
    pub peers: Peers,
    /// Connections by client.
    pub clients: Arc<Clients>,
    /// The counters of each.
    pub stats: Arc<[Arc<WorkerStats>]>,
    /// Access records on their way out.
    pub access_log: Arc<access_log::Queue>,
    /// Programs that run.
    pub programs_running: Arc<AtomicUsize>,
    /// What bodies set aside take on disk, and whose they are.
    pub spool_disk: Arc<Shares>,
    /// Who waits for the processes of FastCGI servers.
    pub slots: Arc<AllSlots>,
    /// Who holds permits of limits, and who was refused.
    pub limits: Arc<Limiter>,
    /// Who is refused, by a limit or because there is too much to do.
    pub refused: Arc<RefusedClients>,
    /// Who was shed lately.
    pub shed: Arc<AllRemembered>,
    /// What programs have complained of lately.
    pub complaints: Arc<Complaints>,
    /// What scripts of all workers share.
    pub scripts: Arc<script::Shared>,
    /// What the machine and the gateway are in.
    pub sensors: Arc<Sensors>,
    /// Counters of the process.
    pub process: Arc<ProcessStats>,
    /// The generation new exchanges begin with. Held to copy or replace it.
    pub generation: Arc<Mutex<Option<Arc<Generation>>>>,
}

impl Shared {
    /// Makes what so many workers share, and the receiving end of each one's door.
    pub fn new(workers: usize) -> (Self, Vec<mpsc::Receiver<Command>>) {
        let (doors, receivers) = (0..workers)
            .map(|_| mpsc::channel(COMMANDS_MAX))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let process = Arc::<ProcessStats>::default();
        let sensors = Arc::new(Sensors::new(workers));
        let board = Arc::new(Board::new(workers));
        let shared = Self {
            limits: Arc::new(Limiter::new(workers, process.started)),
            board: Arc::clone(&board),
            peers: Peers::new(doors, board),
            clients: Clients::new(),
            stats: (0..workers).map(|_| Arc::default()).collect(),
            access_log: Arc::default(),
            programs_running: Arc::default(),
            spool_disk: Arc::default(),
            slots: Arc::default(),
            complaints: Arc::default(),
            scripts: sensors.for_scripts(),
            sensors,
            refused: Arc::default(),
            shed: Arc::new(AllRemembered::new(workers)),
            process,
            generation: Arc::default(),
        };
        (shared, receivers)
    }

    /// The generation new exchanges begin with.
    pub fn generation(&self) -> Option<Arc<Generation>> {
        let generation = self.generation.lock();
        generation.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that another generation serves now.
    pub fn set_generation(&self, generation: &Arc<Generation>) {
        let mut current = self
            .generation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(generation));
        self.process.generation.store(generation.number, Relaxed);
    }
}

/// What a worker can be told.
#[derive(Debug)]
pub enum Command {
    /// Serve a connection another worker accepted.
    Connection(Arrival),
    /// Open what the scripts of a generation need, and say how that went.
    Prepare(Box<Prepare>),
    /// The generation of this number will not come.
    Discard(u64),
    /// Serve this generation from now on, accepting from these sockets besides those it has.
    Swap(Box<Swap>),
    /// Have programs run by the spawner at the other end from now on.
    Programs(OwnedFd),
    /// Close idle connections to this server: somebody waits for one of its processes.
    Release(Arc<str>),
    /// Finish what is under way, then end.
    Drain,
    /// Do nothing else for `busy` out of every `busy` and `rest`: a stand-in for work that holds
    /// a worker up.
    #[cfg(test)]
    Spin {
        /// At a stretch.
        busy: Duration,
        /// Between.
        rest: Duration,
    },
}

/// A generation that is to come into force.
#[derive(Debug)]
pub struct Prepare {
    /// The generation.
    pub generation: Arc<Generation>,
    /// Where the worker says how that went.
    pub done: std::sync::mpsc::Sender<Result<()>>,
}

/// A listener a worker is to accept from; by its socket, whether its runtime watches it.
#[derive(Debug)]
pub struct Opened<S> {
    /// Its address as configured.
    pub address: ListenAddress,
    /// What its connections are to know of it.
    pub listener: Arc<Listener>,
    /// Its socket.
    pub socket: S,
}

/// A change of generation for one worker.
#[derive(Debug)]
pub struct Swap {
    /// The generation.
    pub generation: Arc<Generation>,
    /// New listeners.
    pub added: Vec<Opened<AsyncFd<OwnedFd>>>,
    /// Every address that is to be listened on; others are given up.
    pub kept: Arc<[ListenAddress]>,
    /// When the workers were told.
    pub told: Instant,
    /// Where the worker says its number when it has done it.
    pub done: std::sync::mpsc::Sender<usize>,
}

impl Swap {
    /// How long a worker may take to swap before the log says that it is late. In the end its
    /// turn ends or the warden ends the server; both leave one generation in force.
    pub const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5_000 });
}

/// A generation as one worker serves it.
#[derive(Debug)]
pub struct Serving {
    /// The generation all workers share.
    pub generation: Arc<Generation>,
    /// Its upstreams' pools on this worker.
    pub pools: Vec<Rc<Pool>>,
    /// The pools of upstreams that scripts have named.
    pub dynamic: Dynamic,
    /// Those with servers whose processes may be waited for, by such a server's address.
    slotted: HashMap<Arc<str>, Vec<Rc<Pool>>>,
    /// Its scripts on this worker; `None` is none.
    pub(crate) scripts: Option<Rc<Scripts>>,
    /// What this worker keeps of the sites' files.
    pub files: Files,
    /// What the sites' programs have complained of lately.
    pub stderr: StderrShares,
}

impl Serving {
    /// Takes over from `before` the pools of upstreams in which nothing has changed that matters to
    /// a pool.
    fn new(
        generation: Arc<Generation>,
        before: Option<&Serving>,
        scripts: Option<Rc<Scripts>>,
        stats: &WorkerStats,
        shared: &Shared,
    ) -> Rc<Self> {
        let known = before.map_or(&[][..], |serving| &serving.pools).iter();
        let known: HashMap<&str, &Rc<Pool>> = known.map(|pool| (pool.name(), pool)).collect();
        let pool = |config: &Arc<model::Upstream>| match known.get(config.name.as_str()) {
            Some(pool) if pool.suits(config) => Rc::clone(pool),
            _ => Rc::new(Pool::new(
                config,
                stats,
                &shared.slots,
                &shared.sensors.agents,
            )),
        };
        let pools: Vec<_> = generation.upstreams.iter().map(pool).collect();
        let mut slotted: HashMap<Arc<str>, Vec<Rc<Pool>>> = HashMap::new();
        for pool in &pools {
            for server in pool
                .servers()
                .iter()
                .filter(|server| server.slots.is_some())
            {
                let sharing = slotted.entry(Arc::clone(&server.label)).or_default();
                sharing.push(Rc::clone(pool));
            }
        }
        Rc::new(Self {
            pools,
            dynamic: Dynamic::default(),
            slotted,
            scripts,
            files: Files::new(
                generation.process.caps.file_cache_bytes,
                generation.room.handles,
            ),
            stderr: StderrShares::new(&shared.complaints),
            generation,
        })
    }

    /// Gives up what the next generation has not taken over.
    fn retire(&self, next: &Serving) {
        self.dynamic.retire();
        let kept: HashSet<_> = next.pools.iter().map(Rc::as_ptr).collect();
        for pool in &self.pools {
            if !kept.contains(&Rc::as_ptr(pool)) {
                pool.retire();
            }
        }
    }

    /// A site by its index.
    pub fn site(&self, index: u32) -> Option<&Site> {
        self.generation.sites.get(usize::try_from(index).ok()?)
    }
}

impl Worker {
    /// Makes a worker that serves `generation`. Request ids count on from `seed`.
    pub fn new(index: usize, generation: Arc<Generation>, shared: Shared, seed: u64) -> Self {
        Self {
            index,
            deadlines: Deadlines::since(shared.process.started),
            clock: Rc::new(Clock::new()),
            helpers: Helpers::default(),
            mounts: Mounts::default(),
            buffers: BufferPool::default(),
            spares: Spares::default(),
            stats: Arc::clone(&shared.stats[index]),
            board: Arc::clone(&shared.board),
            peers: shared.peers.clone(),
            clients: Arc::clone(&shared.clients),
            serving: RefCell::new(Serving::new(
                generation,
                None,
                None,
                &shared.stats[index],
                &shared,
            )),
            access_log: AccessLog::new(Arc::clone(&shared.access_log)),
            programs: Programs::new(Arc::clone(&shared.programs_running)),
            auth_checks: Checks::default(),
            opened: RefCell::default(),
            scripts_logging: Cell::new(0),
            prepared: RefCell::default(),
            wants: RefCell::default(),
            hosted: RefCell::default(),
            next_id: Cell::new(seed),
            next_draw: Cell::new(!seed),
            connections: Cell::new(0),
            draining: Cell::new(false),
            busy: Cell::new(0),
            shared,
        }
    }

    /// How many workers the server has.
    pub fn workers(&self) -> usize {
        self.shared.stats.len()
    }

    /// What new exchanges begin with.
    pub fn serving(&self) -> Rc<Serving> {
        Rc::clone(&self.serving.borrow())
    }

    /// Opens what the scripts of a generation need before it can be served.
    ///
    /// # Errors
    /// One of its scripts is no Ruby, or failed.
    pub(crate) async fn prepare(self: &Rc<Self>, generation: &Generation) -> Result<()> {
        let opened = Scripts::open(self, generation).await;
        let opened = opened
            .map_err(|failure| Error::new(Kind::Internal, failure.reason(), failure.to_string()))?;
        let Some(scripts) = opened else {
            return Ok(());
        };
        let end = Rc::clone(&scripts).end(Rc::clone(self));
        tokio::task::spawn_local(end);
        let prepared = Some((generation.number, scripts));
        if let Some((_, before)) = self.prepared.replace(prepared) {
            before.release();
        }
        Ok(())
    }

    /// Gives up what was prepared for a generation that will not come.
    pub(crate) fn discard(&self, number: u64) {
        if let Some(scripts) = self.take_prepared(number) {
            scripts.release();
        }
    }

    fn take_prepared(&self, number: u64) -> Option<Rc<Scripts>> {
        let prepared = self.prepared.borrow_mut().take_if(|it| it.0 == number);
        prepared.map(|(_, scripts)| scripts)
    }

    /// Swaps the generation; exchanges under way keep theirs.
    pub fn swap(&self, generation: Arc<Generation>) {
        let before = self.serving.borrow();
        let scripts = self.take_prepared(generation.number);
        let swapped = Serving::new(
            generation,
            Some(&before),
            scripts,
            &self.stats,
            &self.shared,
        );
        before.retire(&swapped);
        drop(before);
        *self.serving.borrow_mut() = swapped;
    }

    /// A fresh request id.
    pub fn next_request_id(&self) -> RequestId {
        let number = self.next_id.get();
        self.next_id.set(number.wrapping_add(1));
        let id = os::random::spread(number);
        self.board.note_request(self.index, id);
        RequestId::from_number(id)
    }

    /// The number of a connection, from 1: of those that leave this worker's remainder, no other
    /// worker gives any.
    pub fn next_connection(&self) -> u64 {
        let before = self.connections.get();
        self.connections.set(before.wrapping_add(1));
        let workers = self.workers() as u64;
        before
            .wrapping_mul(workers)
            .wrapping_add(self.index as u64 + 1)
    }

    /// A number as good as random, for what is to be spread.
    pub fn draw(&self) -> u64 {
        let number = self.next_draw.get();
        self.next_draw.set(number.wrapping_add(1));
        os::random::spread(number)
    }

    /// Notes that it hosts a map's program.
    pub(crate) fn host_inbox(&self, inbox: &Arc<Inbox>) {
        let mut hosted = self.hosted.borrow_mut();
        hosted.retain(|inbox| !inbox.has_ended());
        hosted.push(Arc::clone(inbox));
    }

    /// Whether requests, of any worker, wait for a map's program that it hosts.
    pub(crate) fn is_asked(&self) -> bool {
        let hosted = self.hosted.borrow();
        hosted.iter().any(|inbox| inbox.waiting() > 0)
    }

    /// An empty spool for a body of its owner's.
    pub fn spool(&self, serving: &Serving, owner: Owner) -> Spool {
        let caps = &serving.generation.process.caps;
        let spool_caps = SpoolCaps {
            memory_bytes: caps.spool_memory_bytes,
            disk_bytes: caps.spool_disk_bytes,
        };
        Spool::new(spool_caps, &self.shared.spool_disk, owner, &self.helpers)
    }

    /// Whether connections are to end with the reply under way.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Ends connections that wait for a request and lets the others end with their reply.
    pub fn drain(&self) {
        self.draining.set(true);
        self.deadlines.drain();
    }

    /// Moves the clocks on, so late after that was due.
    pub fn tick_late(&self, late: Duration) {
        self.board.note_lag(self.index, late);
        self.tick();
    }

    /// Moves the clocks on.
    pub fn tick(&self) {
        self.deadlines.tick();
        self.clock.tick();
        self.access_log.tick();
        self.shared.limits.tick(Instant::now());
        self.serving.borrow().files.sweep(self.deadlines.now_ms());
        self.board.beat(self.index);
    }

    fn show_scripts(&self) {
        let (opened, stats) = (self.opened.borrow(), &self.stats.scripts);
        let sum = |of: fn(&Scripts) -> usize| opened.iter().map(|it| of(it) as u64).sum();
        stats.vms.store(opened.len() as u64, Relaxed);
        let memory_bytes = sum(|scripts| scripts.interpreter().memory_bytes());
        stats.memory_bytes.store(memory_bytes, Relaxed);
        let parked = sum(|scripts| scripts.interpreter().parked());
        stats.parked.store(parked, Relaxed);
    }

    /// Closes idle connections to a server whose processes are wanted.
    pub fn release(&self, server: &str) {
        for pool in self.serving().slotted.get(server).into_iter().flatten() {
            pool.release(server);
        }
    }

    /// Says that nothing more is asked of the scripts; when their `worker_exit` has run,
    /// [`Worker::opened`] is empty.
    pub(crate) fn end_scripts(&self) {
        for scripts in &*self.opened.borrow() {
            scripts.release();
        }
    }

    /// Closes upstream connections nobody will use again, and shows what scripts take and programs
    /// go on to complain of.
    pub fn sweep(&self) {
        self.shared.complaints.tell_repeated(Instant::now());
        self.show_scripts();
        let serving = self.serving();
        let idle_ms = serving.generation.process.timeouts.upstream_idle_ms;
        for pool in &serving.pools {
            pool.sweep(self.deadlines.now_ms(), idle_ms);
        }
        serving.dynamic.sweep(self.deadlines.now_ms(), idle_ms);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(scripts) = &self.scripts {
            scripts.release();
        }
    }
}
