//! The thread a worker runs on: its runtime, its ticks, and the commands it gets.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::model::ListenAddress;
use tokio::runtime;
use tokio::sync::mpsc::Receiver;
use tokio::task::LocalSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::deadline::TICK_MS;
use crate::error::{Error, Kind, Result};
use crate::generation::Generation;
use crate::listener::{self, Listener};
use crate::worker::{Command, Shared, Swap, Worker};

/// Threads of one worker for what may block: cold files, name look-ups, password hashes.
const HELPERS_MAX: usize = 20;
/// How often pools are looked through for connections nobody will use again.
const SWEEP: Duration = Duration::from_secs(1);
/// How often a draining worker looks whether it is done.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Runs a worker until it was drained.
///
/// # Errors
/// When the runtime can't be made.
pub fn run(
    index: usize,
    generation: Arc<Generation>,
    shared: Shared,
    seed: u64,
    commands: Receiver<Command>,
) -> Result<()> {
    let (begin, end) = (Arc::clone(&shared.board), Arc::clone(&shared.board));
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(HELPERS_MAX)
        .thread_name(format!("helper-{index}"))
        .on_thread_unpark(move || begin.turn_begins(index))
        .on_thread_park(move || end.turn_ends(index))
        .build()
        .map_err(|error| Error::new(Kind::Internal, "runtime", error.to_string()))?;
    let worker = Rc::new(Worker::new(index, generation, shared, seed));
    LocalSet::new().block_on(&runtime, live(worker, commands));
    // Helpers may be stuck in a slow read; nobody waits for them.
    runtime.shutdown_background();
    Ok(())
}

async fn live(worker: Rc<Worker>, mut commands: Receiver<Command>) {
    let doors = Doors::default();
    let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut sweeps = tokio::time::interval(SWEEP);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => worker.tick(),
            _ = sweeps.tick() => worker.sweep(),
            command = commands.recv() => match command {
                Some(Command::Connection(arrival)) => listener::start(&worker, None, arrival),
                Some(Command::Swap(swap)) => doors.swap(&worker, *swap),
                Some(Command::Drain) | None => break,
                #[cfg(test)]
                Some(Command::Spin { busy, rest }) => drop(tokio::task::spawn_local(spin(busy, rest))),
            },
        }
    }
    doors.close_all();
    // Nobody hands connections over from here on, but some may wait at the door.
    commands.close();
    while let Ok(command) = commands.try_recv() {
        if let Command::Connection(arrival) = command {
            listener::start(&worker, None, arrival);
        }
    }
    drain(&worker).await;
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
    worker.drain();
    let drain_ms = worker.serving().generation.process.timeouts.drain_ms;
    let until = Instant::now() + Duration::from_millis(drain_ms);
    while worker.board.connections(worker.index) > 0 && Instant::now() < until {
        tokio::time::sleep(DRAIN_LOOK).await;
        worker.tick();
        worker.deadlines.expire_idle();
    }
}

/// The listeners of a worker by address.
#[derive(Default)]
struct Doors {
    open: RefCell<HashMap<ListenAddress, Rc<Listener>>>,
}

impl Doors {
    fn swap(&self, worker: &Rc<Worker>, swap: Swap) {
        worker.swap(swap.generation);
        let mut open = self.open.borrow_mut();
        open.retain(|address, listener| {
            let stays = swap.kept.contains(address);
            if !stays {
                listener.remove();
            }
            stays
        });
        for (address, socket) in swap.added {
            let listener = Rc::new(Listener::default());
            open.insert(address.clone(), Rc::clone(&listener));
            let worker = Rc::clone(worker);
            tokio::task::spawn_local(async move {
                if let Err(error) = listener.run(worker, socket).await {
                    tracing::error!(?address, %error, "listener failed");
                }
            });
        }
        // The sender learns by its hang-up that the swap is done.
        drop(swap.done);
    }

    fn close_all(&self) {
        for listener in self.open.borrow().values() {
            listener.remove();
        }
    }
}
