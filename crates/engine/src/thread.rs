//! The thread a worker runs on: its runtime, its ticks, and the commands it gets.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::model::ListenAddress;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{self, Handle};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::admission::denied;
use crate::deadline::TICK_MS;
use crate::error::{Error, Kind, Result};
use crate::generation::Generation;
use crate::listener::arrival::Listener;
use crate::worker::Worker;
use crate::worker::commands::{Command, Opened, Prepare, Swap};
use crate::worker::shared::Shared;
use crate::{helper, listener, maps, pipeline};
use ipc::server::ListenerSocket;

/// How often pools are looked through for connections nobody will use again.
const SWEEP: Duration = Duration::from_secs(1);
/// How long `worker_exit` may take when a drain has used up its time.
const EXIT_MIN: Duration = Duration::from_secs(1);
/// How often is looked whether it has run.
const END_LOOK: Duration = Duration::from_millis(5);
/// How often a draining worker looks whether it is done.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// The runtime of each worker.
pub(crate) type Runtimes = BTreeMap<usize, Handle>;

/// Runs a worker until it was drained; `started` hears whether it can be run, and why not.
pub(crate) fn run(
    index: usize,
    generation: Arc<Generation>,
    shared: Shared,
    seed: u64,
    commands: Receiver<Command>,
    started: &std::sync::mpsc::Sender<Result<(usize, Handle)>>,
) {
    let loads = Arc::clone(&shared.loads);
    let (begin, end) = (Arc::clone(&loads), Arc::clone(&loads));
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(helper::threads_max(shared.stats.len()))
        .thread_name(format!("helper-{index}"))
        .on_thread_unpark(move || begin.turn_begins(index))
        .on_thread_park(move || end.turn_ends(index))
        .build_local(runtime::LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let detail = format!("worker {index} cannot start: {}", config::reason(&error));
            // The server has stopped waiting where another could not start.
            let _ = started.send(Err(Error::new(Kind::Internal, "runtime", detail)));
            return;
        }
    };
    let _ = started.send(Ok((index, runtime.handle().clone())));
    let worker = Rc::new(Worker::new(
        index,
        generation,
        shared,
        seed,
        pipeline::serve_inside,
    ));
    runtime.block_on(live(worker, commands));
    // Helpers may be stuck in a slow read; nobody waits for them.
    runtime.shutdown_background();
    loads.leave(index);
}

/// A listener a worker is about to accept from.
pub(crate) struct Added {
    /// Who is to.
    pub worker: usize,
    /// Its copy, registered with its runtime.
    pub opened: Opened<AsyncFd<OwnedFd>>,
    /// The warden's copy.
    pub watched: Opened<OwnedFd>,
}

impl Added {
    /// Makes the copies, of those that are set aside if need be. What the kernel denies is denied
    /// before anything of a generation is in force.
    ///
    /// # Errors
    /// When there is no descriptor for it, or the kernel does not watch it.
    pub(crate) fn copy(from: &ListenerSocket, worker: usize, runtime: &Handle) -> Result<Self> {
        let listener = Arc::new(Listener::new(from.address.clone()));
        let copy = || -> std::io::Result<_> {
            Ok(Opened {
                address: from.address.clone(),
                listener: Arc::clone(&listener),
                socket: os::process::with_reserve(|| from.socket.try_clone())?,
            })
        };
        let copy = || copy().map_err(|error| Error::io(Kind::Internal, "listener", &error));
        Ok(Self {
            worker,
            opened: register(runtime, copy()?).map_err(|error| {
                let (at, error) = (&from.address, config::reason(&error));
                not_accepting(format!("worker {worker} cannot accept at {at:?}: {error}"))
            })?,
            watched: copy()?,
        })
    }
}

/// Why a server does not start, or refuses a generation: the sockets of a worker that cannot
/// accept would be accepted from by nobody.
pub(crate) fn not_accepting(detail: String) -> Error {
    Error::new(Kind::Internal, "not_accepting", detail)
}

/// Registers a listener's socket with the runtime of its worker, who accepts from it once its
/// generation is in force; dropped before, it is as if it had never been.
///
/// # Errors
/// When the kernel denies it.
#[allow(
    deprecated,
    reason = "unsound only for types whose descriptor may change; an OwnedFd's can't"
)]
fn register(runtime: &Handle, opened: Opened<OwnedFd>) -> io::Result<Opened<AsyncFd<OwnedFd>>> {
    let _entered = runtime.enter();
    let Opened {
        address,
        listener,
        socket,
    } = opened;
    let socket = AsyncFd::try_with_interest(socket, Interest::READABLE)?;
    Ok(Opened {
        address,
        listener,
        socket,
    })
}

/// Accepts at a listener until it is removed.
async fn accept(
    worker: Rc<Worker>,
    address: ListenAddress,
    listener: Arc<Listener>,
    socket: AsyncFd<OwnedFd>,
) {
    if let Err(error) = listener::run(listener, worker, socket).await {
        let error = config::reason(&error);
        tracing::error!(?address, error, "listener failed");
    }
}

async fn live(worker: Rc<Worker>, mut commands: Receiver<Command>) {
    let open_listeners = OpenListeners::default();
    let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut sweeps = tokio::time::interval(SWEEP);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            due = ticks.tick() => worker.tick_late(due.elapsed()),
            _ = sweeps.tick() => worker.sweep(),
            server = worker.programs.left() => worker.release(&server),
            command = commands.recv() => match command {
                Some(Command::Connection(arrival)) => listener::start_handed(&worker, arrival),
                Some(Command::Prepare(prepare)) => {
                    drop(tokio::task::spawn_local(self::prepare(Rc::clone(&worker), *prepare)));
                }
                Some(Command::Discard(number)) => worker.discard(number),
                Some(Command::Swap(swap)) => open_listeners.swap(&worker, *swap),
                Some(Command::Programs(link)) => use_programs(&worker, link),
                Some(Command::Record(ring)) => worker.recording.use_ring(*ring),
                Some(Command::Release(server)) => worker.release(&server),
                Some(Command::Drain) | None => break,
                #[cfg(test)]
                Some(Command::Spin { busy, rest }) => drop(tokio::task::spawn_local(spin(busy, rest))),
            },
        }
    }
    worker.drain();
    open_listeners.close_all().await;
    // Nobody hands connections over from here on, but some may wait in the queue.
    commands.close();
    while let Ok(command) = commands.try_recv() {
        if let Command::Connection(arrival) = command {
            listener::start_handed(&worker, arrival);
        }
    }
    drain(&worker).await;
}

/// Scripts that wait hold up nobody else.
async fn prepare(worker: Rc<Worker>, prepare: Prepare) {
    let number = prepare.generation.number;
    let prepared = worker.prepare(&prepare.generation).await;
    if prepare.done.send(prepared).is_err() {
        // Nobody waited so long.
        worker.discard(number);
    }
}

fn use_programs(worker: &Worker, link: OwnedFd) {
    if let Err(error) = worker.programs.use_link(link) {
        let (worker, error) = (worker.index, config::reason(&error));
        tracing::error!(worker, error, "a worker cannot have programs run");
    }
}

#[cfg(test)]
async fn spin(busy: Duration, rest: Duration) {
    loop {
        let until = std::time::Instant::now() + busy;
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        tokio::time::sleep(rest).await;
    }
}

/// Waits for the connections to end, at most as long as the drain may take.
async fn drain(worker: &Rc<Worker>) {
    let drain_ms = worker.serving().generation.process.timeouts.drain_ms;
    let until = Instant::now() + Duration::from_millis(drain_ms);
    let is_busy = || {
        worker.loads.connections(worker.index) > 0
            || worker.scripts_logging.get() > 0
            || worker.is_asked()
            || worker.leaves_settings()
    };
    while is_busy() && Instant::now() < until {
        tokio::time::sleep(DRAIN_LOOK).await;
        worker.tick();
        worker.end_idle();
    }
    end_scripts(worker, until).await;
}

/// Lets `worker_exit` run, within what is left of the drain's time but for a second at least.
async fn end_scripts(worker: &Worker, until: Instant) {
    let until = until.max(Instant::now() + EXIT_MIN);
    worker.end_scripts();
    while !worker.opened.borrow().is_empty() && Instant::now() < until {
        tokio::time::sleep(END_LOOK).await;
    }
}

/// A listener, and the task that accepts from it until its socket is closed.
struct OpenListener {
    listener: Arc<Listener>,
    accepting: JoinHandle<()>,
}

/// The listeners of a worker by address.
#[derive(Default)]
struct OpenListeners {
    open: RefCell<HashMap<ListenAddress, OpenListener>>,
}

impl OpenListeners {
    fn swap(&self, worker: &Rc<Worker>, swap: Swap) {
        let generation = Arc::clone(&swap.generation);
        worker.swap(swap.generation);
        maps::start(worker, &generation);
        denied::start(&generation.denied, worker);
        let mut open = self.open.borrow_mut();
        open.retain(|address, listener| {
            let stays = swap.kept.contains(address);
            if !stays {
                listener.listener.remove();
            }
            stays
        });
        for Opened {
            address,
            listener,
            socket,
        } in swap.added
        {
            let (at, its) = (address.clone(), Arc::clone(&listener));
            let accepts = accept(Rc::clone(worker), at, its, socket);
            let accepting = tokio::task::spawn_local(accepts);
            let listener = OpenListener {
                listener,
                accepting,
            };
            open.insert(address, listener);
        }
        let took = swap.told.elapsed();
        if took > Swap::PATIENCE {
            let (worker, number) = (worker.index, worker.serving().generation.number);
            let late_ms = took.as_millis();
            tracing::info!(
                worker,
                generation = number,
                late_ms,
                "a worker has swapped late"
            );
        }
        // Whoever waited may have stopped waiting.
        let _ = swap.done.send(worker.index);
    }

    /// Takes every listener out and waits until each was accepted empty and closed.
    async fn close_all(self) {
        let open_listeners = self.open.into_inner();
        for listener in open_listeners.values() {
            listener.listener.remove();
        }
        for listener in open_listeners.into_values() {
            // A task that panicked holds its socket no longer.
            let _ = listener.accepting.await;
        }
    }
}
