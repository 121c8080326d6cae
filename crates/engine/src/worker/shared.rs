//! What all workers of a server share: counters, limits, queues, and the generation in force.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use super::commands::Command;
use super::peers::Peers;
use crate::access_log::queue::Queue;
use crate::challenges::Challenges;
use crate::directory::rows::Rows;
use crate::fleet::inquiry::FleetInquiry;
use crate::generation::Generation;
use crate::htaccess::cache::Programs;
use crate::listener::clients::Clients;
use crate::load_table::LoadTable;
use crate::permits::limiter::Limiter;
use crate::programs::inquiries::Inquiries;
use crate::programs::pools::AllPools;
use crate::recent::Recent;
use crate::recording::console::ConsoleLink;
use crate::recording::guests::Guests;
use crate::recording::kills::HitPrograms;
use crate::refused::RefusedClients;
use crate::rewrite::told::RewrittenRequest;
use crate::scripts::tried::Tried;
use crate::sensors::gauges::Sensors;
use crate::shares::Shares;
use crate::shedding::remembered::AllRemembered;
use crate::stats::{ProcessStats, WorkerStats};
use crate::stderr_log::Complaints;
use crate::suspension::Suspension;
use crate::tls::certifier::Certifier;
use crate::tls::demands::Demands;
use crate::tls::failures::Failures;
use crate::tls::handshake::Handshakes;
use crate::tls::keeper::Keeper;
use crate::tls::order_book::OrderBook;
use crate::tls::table::Certificates;
use crate::upstream::slots::AllSlots;

/// Commands waiting in one worker's queue.
const COMMANDS_MAX: usize = 4_096;

/// What all workers of a server share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// How busy each is.
    pub loads: Arc<LoadTable>,
    /// Their command queues.
    pub peers: Peers,
    /// Connections by client.
    pub clients: Arc<Clients>,
    /// The counters of each.
    pub stats: Arc<[Arc<WorkerStats>]>,
    /// Access records on their way out.
    pub access_log: Arc<Queue>,
    /// Programs that run.
    pub programs_running: Arc<AtomicUsize>,
    /// What is known of `.htaccess` files.
    pub(crate) htaccess: Arc<Programs>,
    /// The pools of processes, and who was refused for want of one.
    pub(crate) program_pools: Arc<AllPools>,
    /// Tenants for whom nothing is done.
    pub(crate) suspension: Arc<Suspension>,
    /// Where operators' questions about them go.
    pub(crate) pool_inquiries: Arc<Inquiries>,
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
    /// Who would have been, by rules in shadow: apart, so that these make nobody forget the others.
    pub shadow_shed: Arc<AllRemembered>,
    /// What programs have complained of lately.
    pub complaints: Arc<Complaints>,
    /// Programs that ran into bounds of their groups lately.
    pub(crate) hit_programs: Arc<HitPrograms>,
    /// What scripts in shadow would have done.
    pub(crate) tried: Arc<Tried>,
    /// Requests that were rewritten lately.
    pub(crate) rewritten: Arc<Recent<RewrittenRequest>>,
    /// What scripts of all workers share.
    pub scripts: Arc<script::Shared>,
    /// What the machine and the gateway are in.
    pub sensors: Arc<Sensors>,
    /// The costly steps of handshakes, and who waits for them.
    pub(crate) handshakes: Arc<Handshakes>,
    /// The certificates that clients are shown.
    pub(crate) certificates: Arc<Certificates>,
    /// Who signs with their keys.
    pub(crate) keeper: Arc<Keeper>,
    /// Handshakes that came to nothing lately.
    pub(crate) failures: Arc<Failures>,
    /// Certificates that scripts choose.
    pub(crate) certifier: Arc<Certifier>,
    /// Certificates that are ordered of authorities.
    pub(crate) orders: Arc<OrderBook>,
    /// Names that clients ask for and nobody has a certificate for.
    pub(crate) demands: Arc<Demands>,
    /// Who is at the console.
    pub(crate) guests: Arc<Guests>,
    /// What authorities are answered with.
    pub(crate) challenges: Arc<Challenges>,
    /// Where the console's pages are asked for.
    pub(crate) console: Arc<ConsoleLink>,
    /// The machines that share limits, and whether this one is drained.
    pub(crate) fleet: Arc<FleetInquiry>,
    /// What is known of rows.
    pub(crate) rows: Arc<Rows>,
    /// Counters of the process.
    pub process: Arc<ProcessStats>,
    /// The generation new exchanges begin with. Held to copy or replace it.
    pub generation: Arc<Mutex<Option<Arc<Generation>>>>,
}

impl Shared {
    /// Makes what so many workers share, and the receiving end of each one's queue.
    pub fn new(workers: usize) -> (Self, Vec<mpsc::Receiver<Command>>) {
        let (queues, receivers) = (0..workers)
            .map(|_| mpsc::channel(COMMANDS_MAX))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let process = Arc::<ProcessStats>::default();
        let sensors = Arc::new(Sensors::new(workers));
        let keeper = Arc::<Keeper>::default();
        let loads = Arc::new(LoadTable::new(workers));
        let shared = Self {
            rows: Arc::new(Rows::new(process.started)),
            limits: Arc::new(Limiter::new(workers, process.started)),
            loads: Arc::clone(&loads),
            peers: Peers::new(queues, loads),
            clients: Clients::new(),
            stats: (0..workers).map(|_| Arc::default()).collect(),
            access_log: Arc::default(),
            programs_running: Arc::default(),
            htaccess: Arc::default(),
            program_pools: Arc::default(),
            pool_inquiries: Arc::default(),
            suspension: Arc::default(),
            spool_disk: Arc::default(),
            slots: Arc::default(),
            complaints: Arc::default(),
            hit_programs: Arc::default(),
            tried: Arc::default(),
            rewritten: Arc::default(),
            scripts: sensors.for_scripts(),
            sensors,
            refused: Arc::default(),
            guests: Arc::default(),
            shed: Arc::new(AllRemembered::new(workers)),
            shadow_shed: Arc::new(AllRemembered::new(workers)),
            handshakes: Arc::new(Handshakes::new(
                workers,
                process.started,
                Arc::clone(&keeper),
            )),
            keeper,
            certificates: Arc::default(),
            failures: Arc::default(),
            certifier: Arc::default(),
            orders: Arc::default(),
            demands: Arc::default(),
            challenges: Arc::default(),
            console: Arc::default(),
            fleet: Arc::default(),
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
        self.guests.serves_since.get_or_init(Instant::now);
        self.process.generation.store(generation.number, Relaxed);
    }
}
