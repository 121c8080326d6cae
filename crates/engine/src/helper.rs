//! The helper pool: threads for what may wait for a disk, and a bound on who waits for them.
//!
//! A worker never does such work itself. Each kind of work has a lane of its own, with its own
//! threads and its own number of those who may wait: a file system that hangs, or somebody who
//! asks for figures without end, leaves the others theirs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::{Error, Kind, Result};

/// Threads at work at once for local disks.
const LOCAL_MAX: usize = 8;
/// Threads at work at once for file systems that may hang.
const REMOTE_MAX: usize = 8;
/// Of those, at work at once for one root: its mount may hang, and the others have theirs.
const ROOT_MAX: usize = 2;
/// Threads at work at once on compression; who finds them busy goes without.
const COMPRESS_MAX: usize = 2;
/// Threads at work at once on figures.
const FIGURES_MAX: usize = 1;
/// Threads at work at once on look-ups of names, which may hang for as long as a name server.
const NAMES_MAX: usize = 4;
/// Threads at work at once on bodies set aside.
const SPOOL_MAX: usize = 4;
/// Threads at work at once on handshakes with back ends.
const HANDSHAKES_MAX: usize = 2;
/// Passwords compared at once, for each worker; they may all be one worker's.
pub(crate) const PASSWORDS_MAX: usize = 2;
/// Threads of one worker's lanes.
const LANES_MAX: usize =
    LOCAL_MAX + REMOTE_MAX + COMPRESS_MAX + FIGURES_MAX + NAMES_MAX + SPOOL_MAX + HANDSHAKES_MAX;
/// Exchanges of one worker in a lane for files or names, those at work included.
const WAITING_MAX: usize = 1_024;
/// Exchanges that wait for one root of a file system that may hang, those at work included.
const ROOT_WAITING_MAX: usize = 256;
/// Exchanges of one worker that want figures: few ask, and each gets the same.
const FIGURES_WAITING_MAX: usize = 16;

/// Longest wait for a result, from the asking on. What a thread is stuck in goes on without it.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Which threads a piece of work may occupy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A disk of this machine.
    Local,
    /// A file system that another machine or process answers for, or one not known yet.
    Remote,
    /// The processor, for as long as it takes to collect the figures of every site.
    Figures,
    /// The servers that know addresses.
    Names,
    /// The disk bodies are set aside on.
    Spool,
    /// The processor, for a step of a handshake with a back end.
    Handshakes,
}

/// One worker's way to its helper threads.
#[derive(Debug, Clone)]
pub struct Helpers {
    lanes: Arc<Lanes>,
    /// What one root may take of the places for file systems that may hang.
    own: Option<Places>,
    wait_max: Duration,
}

#[derive(Debug)]
struct Lanes {
    local: Places,
    remote: Places,
    figures: Places,
    names: Places,
    spool: Places,
    handshakes: Places,
    compress: Arc<Semaphore>,
}

/// The places of a lane: threads, and exchanges that wait for them.
#[derive(Debug, Clone)]
struct Places {
    threads: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
}

impl Places {
    fn new(threads: usize, waiting_max: usize) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            waiting: Arc::default(),
            waiting_max,
        }
    }

    /// Waits for a thread.
    async fn thread(&self) -> Result<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.threads).acquire_owned().await;
        permit.map_err(|_| broken())
    }
}

/// Threads of one of so many workers: enough for all that may be at work at once, so that nobody
/// waits for another's.
pub(crate) fn threads_max(workers: usize) -> usize {
    LANES_MAX + PASSWORDS_MAX * workers
}

impl Default for Helpers {
    fn default() -> Self {
        let lanes = Lanes {
            local: Places::new(LOCAL_MAX, WAITING_MAX),
            remote: Places::new(REMOTE_MAX, WAITING_MAX),
            figures: Places::new(FIGURES_MAX, FIGURES_WAITING_MAX),
            names: Places::new(NAMES_MAX, WAITING_MAX),
            spool: Places::new(SPOOL_MAX, WAITING_MAX),
            handshakes: Places::new(HANDSHAKES_MAX, WAITING_MAX),
            compress: Arc::new(Semaphore::new(COMPRESS_MAX)),
        };
        Self {
            lanes: Arc::new(lanes),
            own: None,
            wait_max: WAIT_MAX,
        }
    }
}

impl Helpers {
    /// Runs `work` on a helper thread and waits for its result.
    ///
    /// # Errors
    /// When too many wait already, or the result lets itself be waited for too long.
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let places = self.places(lane);
        let own = self.own.as_ref().filter(|_| lane == Lane::Remote);
        let _slots = (own.map(Slot::acquire).transpose()?, Slot::acquire(places)?);
        let result = async {
            let own = match own {
                Some(own) => Some(own.thread().await?),
                None => None,
            };
            run((own, places.thread().await?), work).await
        };
        self.in_time(result).await
    }

    /// Waits for what helpers do, together, no longer than for one.
    ///
    /// # Errors
    /// When it takes longer, besides its own.
    pub async fn in_time<T>(&self, result: impl Future<Output = Result<T>>) -> Result<T> {
        let late = |_| Err(Error::new(Kind::Full, "helpers_late", String::new()));
        timeout(self.wait_max, result).await.unwrap_or_else(late)
    }

    fn places(&self, lane: Lane) -> &Places {
        match lane {
            Lane::Local => &self.lanes.local,
            Lane::Remote => &self.lanes.remote,
            Lane::Figures => &self.lanes.figures,
            Lane::Names => &self.lanes.names,
            Lane::Spool => &self.lanes.spool,
            Lane::Handshakes => &self.lanes.handshakes,
        }
    }

    /// Runs `work` on a helper thread; `None` when all threads for compression are busy.
    ///
    /// # Errors
    /// When the work panicked, or lets itself be waited for too long.
    pub async fn run_if_free<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>> {
        match Arc::clone(&self.lanes.compress).try_acquire_owned() {
            Ok(permit) => self.in_time(run(permit, work)).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Closes a descriptor: some file systems wait for an answer then, too.
    pub fn close(&self, descriptor: OwnedFd) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (own, remote) = (self.own.clone(), self.lanes.remote.clone());
        runtime.spawn(async move {
            let own = match own {
                Some(own) => own.thread().await.ok(),
                None => None,
            };
            let permit = remote.thread().await;
            spawn_blocking(move || drop((descriptor, permit, own)));
        });
    }

    /// The way for one root, whose mount must not take every thread if it hangs.
    pub fn of_one_root(&self) -> Self {
        Self {
            own: Some(Places::new(ROOT_MAX, ROOT_WAITING_MAX)),
            ..self.clone()
        }
    }

    /// Whether somebody waits for the root, or a thread is at work on it.
    pub fn is_root_busy(&self) -> bool {
        self.own.as_ref().is_some_and(|own| {
            own.waiting.load(Relaxed) > 0 || own.threads.available_permits() < ROOT_MAX
        })
    }
}

/// The permit goes with the work: a client that leaves does not free a thread that is still busy.
async fn run<T: Send + 'static>(
    permit: impl Send + 'static,
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
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn acquire(places: &Places) -> Result<Self> {
        if places.waiting.load(Relaxed) >= places.waiting_max {
            return Err(Error::new(Kind::Full, "helpers_busy", String::new()));
        }
        places.waiting.fetch_add(1, Relaxed);
        Ok(Self(Arc::clone(&places.waiting)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, block_on, reply};

    const SITES: &str = r#"
[[sites]]
hosts = ["a"]
rules = [{ handler = { metrics = "json" } }]
"#;

    impl Helpers {
        pub(crate) fn patient_for(wait_max: Duration) -> Self {
            Self {
                wait_max,
                ..Self::default()
            }
        }

        /// Work that hangs on every thread of a lane until what it returns is dropped.
        pub(crate) fn hang(&self, lane: Lane) -> Vec<std::sync::mpsc::Sender<()>> {
            let places = self.places(lane);
            let mut disks = Vec::new();
            while let Ok(permit) = Arc::clone(&places.threads).try_acquire_owned() {
                let (answer, disk) = std::sync::mpsc::channel();
                spawn_blocking(move || drop((disk.recv(), permit)));
                disks.push(answer);
            }
            disks
        }
    }

    #[test]
    fn nobody_waits_for_a_disk_that_does_not_answer() {
        let helpers = Helpers::patient_for(Duration::from_millis(20));
        block_on(async {
            let (answer, disk) = std::sync::mpsc::channel();
            let stuck = move || disk.recv();
            let late = helpers.run(Lane::Remote, stuck).await;
            assert_eq!(late.expect_err("no answer yet").reason, "helpers_late");
            assert_eq!(
                helpers.lanes.remote.waiting.load(Relaxed),
                0,
                "the slot is free"
            );
            assert_eq!(
                helpers.lanes.remote.threads.available_permits(),
                REMOTE_MAX - 1
            );
            answer.send(()).expect("somebody still listens");
        });
    }

    #[test]
    fn too_many_who_ask_for_figures_are_told_to_come_again() {
        let fixture = Fixture::new(SITES);
        let helpers = &fixture.worker.helpers;
        let ask = || reply(&fixture.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let seats: Vec<_> = (0..FIGURES_WAITING_MAX)
            .map(|_| Slot::acquire(&helpers.lanes.figures).expect("a slot"))
            .collect();
        let (status, fields, _) = ask();
        assert_eq!(status, 503);
        assert!(fields.contains(&"Retry-After: 1".to_owned()));
        block_on(helpers.run(Lane::Local, || ())).expect("another lane");
        drop(seats);
        assert_eq!(ask().0, 200);
    }
}
