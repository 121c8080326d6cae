//! One thread's share of the server: its runtime, listeners, pools and clocks.
//!
//! A worker never waits for another. What workers share is the immutable generation and the
//! [`LoadTable`] on which each shows how busy it is.

pub(crate) mod commands;
mod peers;
pub(crate) mod resources;
pub(crate) mod serving;
pub(crate) mod shared;

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::access_log::page::AccessLog;
use crate::admission::checks::Checks;
use crate::deadline::Deadlines;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::request::RequestId;
use crate::exchange::spare::Spares;
use crate::generation::Generation;
use crate::listener::clients::Clients;
use crate::load_table::LoadTable;
use crate::maps::mailbox::Mailbox;
use crate::permits::scratch::Scratch;
use crate::programs::link::Programs;
use crate::recording::ring::Recording;
use crate::scripts::vms::Vms;
use crate::shares::Owner;
use crate::site_log::{self, Audience};
use crate::spool::{Spool, SpoolCaps};

pub(crate) use commands::Command;
pub(crate) use peers::Peers;
pub(crate) use resources::Resources;
pub(crate) use serving::Serving;
pub(crate) use shared::Shared;

/// The pipeline as scripts come back to it with a request of their own. It is made known to the
/// worker, so that what runs scripts need not know the pipeline.
pub(crate) type ServeInside =
    for<'a> fn(&'a Rc<Worker>, &'a Rc<Serving>, &'a mut Exchange) -> Answered<'a>;

/// A request being answered. Done when its reply was taken, or with why it was not.
pub(crate) type Answered<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// What one thread serves with.
#[derive(Debug)]
pub struct Worker {
    /// What it serves with; they are the worker's own by name, too.
    pub resources: Resources,
    /// Memory its exchanges leave to each other.
    pub spares: Spares,
    /// The same for exchanges of HTTP/2, whose halves are others.
    pub h2_spares: Spares,
    /// How a request that a script makes is answered, inside of another.
    pub(crate) serve_inside: ServeInside,
    /// What all workers show each other.
    pub loads: Arc<LoadTable>,
    /// The other workers' command queues.
    pub peers: Peers,
    /// Connections by client.
    pub clients: Arc<Clients>,
    /// Its side of the access log.
    pub access_log: AccessLog,
    /// Its side of what is recorded.
    pub(crate) recording: Recording,
    /// The programs of its exchanges.
    pub programs: Programs,
    /// What it knows of passwords.
    pub auth_checks: Checks,
    /// What it shares with the others.
    pub shared: Shared,
    /// The VMs open here, those of a generation until their `worker_exit` has run.
    pub(crate) opened: RefCell<Vec<Rc<Vms>>>,
    /// `log` phases that wait.
    pub(crate) scripts_logging: Cell<usize>,
    /// The scripts of the generation that comes next, by its number.
    prepared: RefCell<Option<(u64, Rc<Vms>)>>,
    /// Its scratch for the keys of limits.
    pub(crate) wants: RefCell<Scratch>,
    /// The queues of map programs it hosts.
    hosted: RefCell<Vec<Arc<Mailbox>>>,
    serving: RefCell<Rc<Serving>>,
    next_id: Cell<u64>,
    next_draw: Cell<u64>,
    connections: Cell<u64>,
    draining: Cell<bool>,
    /// Busy halves of its connections.
    pub(crate) busy: Cell<usize>,
}

impl Deref for Worker {
    type Target = Resources;

    fn deref(&self) -> &Resources {
        &self.resources
    }
}

impl Worker {
    /// Makes a worker that serves `generation`. Request ids count on from `seed`.
    pub fn new(
        index: usize,
        generation: Arc<Generation>,
        shared: Shared,
        seed: u64,
        serve_inside: ServeInside,
    ) -> Self {
        let deadlines = Deadlines::since(shared.process.started);
        let timeouts = &generation.process.timeouts;
        let resources = Resources::new(index, &shared.stats, deadlines, timeouts);
        Self {
            serving: RefCell::new(Serving::new(
                generation,
                None,
                None,
                &resources.stats,
                &shared,
            )),
            resources,
            spares: Spares::default(),
            h2_spares: Spares::default(),
            serve_inside,
            loads: Arc::clone(&shared.loads),
            peers: shared.peers.clone(),
            clients: Arc::clone(&shared.clients),
            access_log: AccessLog::new(Arc::clone(&shared.access_log)),
            recording: Recording::default(),
            programs: Programs::new(
                Arc::clone(&shared.programs_running),
                Arc::clone(&shared.program_pools),
            ),
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

    /// What new exchanges begin with.
    pub fn serving(&self) -> Rc<Serving> {
        Rc::clone(&self.serving.borrow())
    }

    /// Opens what the scripts of a generation need before it can be served.
    ///
    /// # Errors
    /// One of its scripts is no Ruby, or failed.
    pub(crate) async fn prepare(self: &Rc<Self>, generation: &Arc<Generation>) -> Result<()> {
        let opened = Vms::open(self, &self.shared.scripts, generation).await;
        let opened = opened
            .map_err(|failure| Error::new(Kind::Internal, failure.reason(), failure.to_string()))?;
        let Some(scripts) = opened else {
            return Ok(());
        };
        self.opened.borrow_mut().push(Rc::clone(&scripts));
        let (worker, ending) = (Rc::clone(self), Rc::clone(&scripts));
        tokio::task::spawn_local(async move {
            ending.end().await;
            let mut opened = worker.opened.borrow_mut();
            opened.retain(|open| !Rc::ptr_eq(open, &ending));
        });
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

    fn take_prepared(&self, number: u64) -> Option<Rc<Vms>> {
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
        self.resources.serve(&swapped.generation.process.timeouts);
        *self.serving.borrow_mut() = swapped;
    }

    /// A fresh request id.
    pub fn next_request_id(&self) -> RequestId {
        let number = self.next_id.get();
        self.next_id.set(number.wrapping_add(1));
        let id = os::random::spread(number);
        self.loads.note_request(self.index, id);
        RequestId::from_number(id)
    }

    /// The number of a connection, from 1: of those that leave this worker's remainder, no other
    /// worker gives any.
    pub fn next_connection(&self) -> u64 {
        let before = self.connections.get();
        self.connections.set(before.wrapping_add(1));
        let workers = self.workers as u64;
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
    pub(crate) fn host_mailbox(&self, mailbox: &Arc<Mailbox>) {
        let mut hosted = self.hosted.borrow_mut();
        hosted.retain(|mailbox| !mailbox.has_ended());
        hosted.push(Arc::clone(mailbox));
    }

    /// Whether requests, of any worker, wait for a map's program that it hosts.
    pub(crate) fn is_asked(&self) -> bool {
        let hosted = self.hosted.borrow();
        hosted.iter().any(|mailbox| mailbox.waiting() > 0)
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

    /// Whether connections end that wait for a request. Who was told that his connection is kept may
    /// have sent one, and another server can be connected to by the next.
    pub fn ends_idle(&self) -> bool {
        self.is_draining() && !self.shared.process.spares_idle.load(Relaxed)
    }

    /// Ends connections that wait for a request, where these are not spared, and lets the others end
    /// with their reply.
    pub fn drain(&self) {
        self.draining.set(true);
        self.deadlines.wake_streams();
        self.end_idle();
    }

    /// Whether settings of pages would be left behind in processes that another server takes over.
    pub(crate) fn leaves_settings(&self) -> bool {
        self.shared.process.spares_idle.load(Relaxed) && self.stats.stragglers.is_forgetting()
    }

    pub(crate) fn end_idle(&self) {
        if !self.shared.process.spares_idle.load(Relaxed) {
            self.deadlines.drain();
        }
    }

    /// Moves the clocks on, so late after that was due.
    pub fn tick_late(&self, late: Duration) {
        self.loads.note_lag(self.index, late);
        self.tick();
    }

    /// Moves the clocks on.
    pub fn tick(&self) {
        self.deadlines.tick();
        self.clock.tick();
        self.access_log.tick();
        self.recording.tick(&self.stats.recording);
        let now = Instant::now();
        self.shared.limits.tick(now, |site, say| {
            self.tell(site, Audience::Everybody, say);
        });
        self.shared.tried.say(now);
        self.serving.borrow().files.sweep(self.deadlines.now_ms());
        self.serving.borrow().proofs.sweep(self.deadlines.now_ms());
        self.loads.beat(self.index);
    }

    /// Says something of a site by the generation in force.
    fn tell(&self, site: Option<&str>, audience: Audience, say: &dyn Fn()) {
        let serving = self.serving();
        let logs = &serving.generation.logs;
        site_log::tell(logs, &self.access_log, site, audience, say);
    }

    fn show_scripts(&self) {
        let (opened, stats) = (self.opened.borrow(), &self.stats.scripts);
        let shown = [
            &stats.vms,
            &stats.own_vms,
            &stats.memory_bytes,
            &stats.parked,
        ];
        let mut sums = [0; 4];
        for vms in &*opened {
            let figures = sums.iter_mut().zip(vms.figures());
            figures.for_each(|(sum, figure)| *sum += figure);
        }
        for (shown, sum) in shown.into_iter().zip(sums) {
            shown.store(sum, Relaxed);
        }
    }

    /// Closes idle connections to a server whose processes are waited for: this worker's, and through
    /// their queues the others'. Who is about to keep a connection looks whether anybody waits after
    /// having put it away, so none is missed.
    pub fn release_everywhere(&self, server: &Arc<str>) {
        self.release(server);
        for other in (0..self.workers).filter(|other| *other != self.index) {
            // A full queue means a worker that is busy with more than this; its sweep looks too.
            self.peers
                .try_tell(other, Command::Release(Arc::clone(server)));
        }
    }

    /// Closes idle connections to a server whose processes are wanted.
    pub fn release(&self, server: &str) {
        self.serving().release(server);
    }

    /// Says that nothing more is asked of the scripts; when their `worker_exit` has run,
    /// [`Worker::opened`] is empty.
    pub(crate) fn end_scripts(&self) {
        for scripts in &*self.opened.borrow() {
            scripts.release();
        }
    }

    /// Closes upstream connections nobody will use again, shows what scripts take and programs go on
    /// to complain of, and tells which pools are in use.
    pub fn sweep(&self) {
        let complaints = &self.shared.complaints;
        complaints.tell_repeated(Instant::now(), |site, say| {
            self.tell(Some(site), Audience::Tenant, say);
        });
        self.show_scripts();
        self.programs.tell_use(self.deadlines.now_ms());
        let serving = self.serving();
        let idle_ms = serving.generation.process.timeouts.upstream_idle_ms;
        for pool in serving.pools() {
            pool.sweep(self.deadlines.now_ms(), idle_ms);
        }
        serving.dynamic.sweep(self.deadlines.now_ms(), idle_ms);
    }
}
