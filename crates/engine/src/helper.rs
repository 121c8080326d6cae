//! The helper pool: threads for what may wait for a disk, and a bound on who waits for them.
//!
//! A worker never does such work itself. File systems that depend on another machine or process
//! have a lane of their own, so that one that hangs leaves threads to everybody else.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::error::{Error, Kind, Result};

/// Threads at work at once for local disks.
const LOCAL_MAX: usize = 8;
/// Threads at work at once for file systems that may hang.
const REMOTE_MAX: usize = 4;
/// Threads at work at once on compression; who finds them busy goes without.
const COMPRESS_MAX: usize = 2;
/// Exchanges of one worker that wait for a helper.
const WAITING_MAX: usize = 1_024;

/// Which threads a piece of work may occupy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A disk of this machine.
    Local,
    /// A file system that another machine or process answers for, or one not known yet.
    Remote,
}

/// One worker's way to its helper threads.
#[derive(Debug, Clone)]
pub struct Helpers {
    local: Arc<Semaphore>,
    remote: Arc<Semaphore>,
    compress: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Default for Helpers {
    fn default() -> Self {
        Self {
            local: Arc::new(Semaphore::new(LOCAL_MAX)),
            remote: Arc::new(Semaphore::new(REMOTE_MAX)),
            compress: Arc::new(Semaphore::new(COMPRESS_MAX)),
            waiting: Arc::default(),
        }
    }
}

impl Helpers {
    /// Runs `work` on a helper thread and waits for its result.
    ///
    /// # Errors
    /// When too many wait already.
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let _seat = Seat::take(&self.waiting)?;
        let permit = Arc::clone(self.lane(lane)).acquire_owned().await;
        run(permit.map_err(|_| broken())?, work).await
    }

    /// Runs `work` on a helper thread; `None` when all threads for compression are busy.
    ///
    /// # Errors
    /// When the work panicked.
    pub async fn run_if_free<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>> {
        match Arc::clone(&self.compress).try_acquire_owned() {
            Ok(permit) => run(permit, work).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Closes a descriptor: some file systems wait for an answer then, too.
    pub fn close(&self, descriptor: OwnedFd) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let lane = Arc::clone(&self.remote);
        runtime.spawn(async move {
            let permit = lane.acquire_owned().await;
            spawn_blocking(move || drop((descriptor, permit)));
        });
    }

    fn lane(&self, lane: Lane) -> &Arc<Semaphore> {
        match lane {
            Lane::Local => &self.local,
            Lane::Remote => &self.remote,
        }
    }
}

/// The permit goes with the work: a client that leaves does not free a thread that is still busy.
async fn run<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let work = move || {
        let _permit = permit;
        work()
    };
    spawn_blocking(work).await.map_err(|_| broken())
}

fn broken() -> Error {
    Error::new(Kind::Internal, "helper", "a helper thread broke off")
}

/// A place among those who wait.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(waiting: &Arc<AtomicUsize>) -> Result<Self> {
        if waiting.load(Relaxed) >= WAITING_MAX {
            return Err(Error::new(Kind::Full, "helpers_busy", String::new()));
        }
        waiting.fetch_add(1, Relaxed);
        Ok(Self(Arc::clone(waiting)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
