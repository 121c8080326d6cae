//! The threads that make the costly steps of handshakes: key exchange and signature.
//!
//! No worker makes one. A step waits in one queue for all workers, which is fair to clients over all names, then to
//! tenants ([`limits::handshake`]), and is made by one of a few threads that give way to whoever serves requests. What
//! it took is measured by the thread's own clock and charged to its client and tenant, here and nowhere else: no
//! sensor of shedding and no tenant's share of requests sees it. Its result goes back to the task that waits for it;
//! where that is gone, the step leaves the queue unmade. While there is no keeper only short steps get their turn.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use limits::Time;
use limits::handshake::{Newcomer, Queue, Refused, StepId, StepKind};
use os::cpu::CpuLaps;
use tokio::sync::oneshot;

use crate::deadline::Deadline;
use crate::error::{Error, Kind, Result};
use crate::tls::keeper::{KEEPER_LOST, Keeper};

/// Steps that wait at once. Each holds what is known of its connection, some 30 KiB.
const STEPS_MAX: usize = 1_024;
/// How far the threads stand back behind the workers: by this, they get a third of what a worker gets where both want
/// the same processor.
const NICE: i32 = 5;
/// How long a step may wait, whatever its deadline: by then nobody waits for it any more.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Who wants a step made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who {
    /// The client.
    pub(crate) client: IpAddr,
    /// The tenant whose name it said, as a number that stays with it.
    pub(crate) tenant: u64,
    /// That tenant's weight.
    pub(crate) weight: u32,
    /// What the step seems to be.
    pub(crate) kind: StepKind,
}

/// A step that was made.
#[derive(Debug)]
pub(crate) struct Made<T> {
    /// What came of it.
    pub(crate) value: T,
    /// What it turned out to be.
    pub(crate) was: StepKind,
    /// Processor time that others spent on it, as the keeper does.
    pub(crate) elsewhere_ns: u64,
}

/// What came of a step, and what it took.
#[derive(Debug)]
pub(crate) struct Stepped<T> {
    /// What came of it.
    pub(crate) value: T,
    /// Processor time, in microseconds.
    pub(crate) cpu_us: u64,
}

/// The queue and its threads. They end with this.
#[derive(Debug)]
pub(crate) struct Handshakes {
    pool: Arc<Pool>,
    threads: usize,
    /// How many of them were started. Held while they are.
    started: Mutex<usize>,
}

/// What handshakes have come to.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Steps made, short ones and full ones.
    pub(crate) made: [AtomicU64; 2],
    /// Processor time they took, in microseconds.
    pub(crate) cpu_us: AtomicU64,
}

/// A step that waits: called once, it is made or refused, and says what it was and what it took.
type Waiting = Box<dyn FnOnce(Fate<'_>) -> (StepKind, u64) + Send>;

/// What becomes of a step.
enum Fate<'a> {
    /// It is made on the thread of this number, of whose time it takes a lap.
    Made(usize, &'a mut CpuLaps),
    Refused(Refused),
}

struct Pool {
    begun: Instant,
    keeper: Arc<Keeper>,
    /// Held for the length of one operation of the queue.
    waiting: Mutex<WaitingAll>,
    wake: Condvar,
    is_over: AtomicBool,
    /// By number; 0 before a thread has begun.
    thread_ids: Box<[AtomicU32]>,
    totals: Totals,
}

struct WaitingAll {
    queue: Queue,
    steps: HashMap<StepId, Waiting>,
    /// Threads that have nothing to do.
    idle: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Pool");
        shown.field("totals", &self.totals).finish_non_exhaustive()
    }
}

impl Handshakes {
    /// Makes the queue of a server with so many threads for handshakes; they are yet to be started.
    pub(crate) fn new(threads: usize, begun: Instant, keeper: Arc<Keeper>) -> Self {
        let waiting = WaitingAll {
            queue: Queue::new(STEPS_MAX, RandomState::new().hash_one(begun)),
            steps: HashMap::new(),
            idle: 0,
        };
        Self {
            pool: Arc::new(Pool {
                begun,
                keeper,
                waiting: Mutex::new(waiting),
                wake: Condvar::new(),
                is_over: AtomicBool::new(false),
                thread_ids: (0..threads).map(|_| AtomicU32::new(0)).collect(),
                totals: Totals::default(),
            }),
            threads,
            started: Mutex::new(0),
        }
    }

    /// Starts the threads that are not yet.
    ///
    /// # Errors
    /// When one cannot be had; those that were had go on.
    pub(crate) fn start(&self) -> Result<()> {
        self.start_by(std::thread::Builder::spawn)
    }

    /// As [`Self::start`], with threads made by `spawn`.
    fn start_by<T>(
        &self,
        spawn: impl Fn(std::thread::Builder, Box<dyn FnOnce() + Send>) -> io::Result<T>,
    ) -> Result<()> {
        let started = self.started.lock();
        let mut started = started.unwrap_or_else(PoisonError::into_inner);
        for number in *started..self.threads {
            let pool = Arc::clone(&self.pool);
            let thread = std::thread::Builder::new().name(format!("handshake-{number}"));
            spawn(thread, Box::new(move || pool.run(number)))
                .map_err(|error| Error::io(Kind::Internal, "handshake_threads", &error))?;
            *started += 1;
        }
        Ok(())
    }

    /// Has the keeper asked over these links from now on; the first are the threads'.
    pub(crate) fn use_links(&self, links: Vec<OwnedFd>) {
        self.pool.keeper.replace(links);
        // With the lock in between nobody looks before and waits after.
        drop(self.pool.lock());
        self.pool.wake.notify_all();
    }

    /// What handshakes have come to.
    pub(crate) fn totals(&self) -> &Totals {
        &self.pool.totals
    }

    /// Whether the threads were started.
    pub(crate) fn is_started(&self) -> bool {
        let started = self.started.lock();
        *started.unwrap_or_else(PoisonError::into_inner) > 0
    }

    /// The threads that run, as the system numbers them.
    pub(crate) fn thread_ids(&self) -> impl Iterator<Item = u32> {
        let ids = self.pool.thread_ids.iter().map(|id| id.load(Relaxed));
        ids.filter(|id| *id != 0)
    }

    /// Steps that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.pool.lock().queue.len()
    }

    /// Has a step made on a handshake thread, whose number it is told, and waits for it until the deadline. Dropped
    /// before its turn, it is not made.
    ///
    /// # Errors
    /// It had to give way to others or its deadline passed, for the reasons of [`Refused`]; or it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        who: Who,
        deadline: &Deadline,
        step: impl FnOnce(usize) -> Made<T> + Send + 'static,
    ) -> Result<Stepped<T>> {
        let (hand_over, mut result) = oneshot::channel();
        let waiting = Box::new(move |fate: Fate<'_>| match fate {
            Fate::Made(thread, laps) => {
                let made = step(thread);
                let cpu_ns = laps.lap_ns().saturating_add(made.elsewhere_ns);
                let stepped = Stepped {
                    value: made.value,
                    cpu_us: cpu_ns / 1_000,
                };
                // Whoever waited may have gone.
                let _ = hand_over.send(Ok(stepped));
                (made.was, cpu_ns)
            }
            Fate::Refused(why) => {
                let _ = hand_over.send(Err(why));
                (StepKind::Short, 0)
            }
        });
        let _place = self.pool.enqueue(who, waiting).map_err(refused)?;
        poll_fn(|cx| {
            if let Poll::Ready(result) = pin!(&mut result).poll(cx) {
                return Poll::Ready(match result {
                    Ok(result) => result.map_err(|why| match why {
                        Refused::Late => self.pool.late(),
                        why => refused(why),
                    }),
                    Err(_) => Err(Error::new(Kind::Internal, "handshake", "a step broke off")),
                });
            }
            let expired = deadline.poll_expired(cx);
            expired.map(|()| Err(self.pool.late()))
        })
        .await
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.pool.is_over.store(true, Relaxed);
        // With the lock in between nobody looks before and waits after.
        drop(self.pool.lock());
        self.pool.wake.notify_all();
    }
}

fn refused(why: Refused) -> Error {
    Error::new(Kind::Full, why.reason(), String::new())
}

/// A step's place in the queue, given up when dropped.
struct WaitingStep<'a> {
    pool: &'a Pool,
    id: StepId,
}

impl Drop for WaitingStep<'_> {
    fn drop(&mut self) {
        let mut waiting = self.pool.lock();
        waiting.queue.remove(self.id);
        let step = waiting.steps.remove(&self.id);
        // What it holds is given back without the lock.
        drop(waiting);
        drop(step);
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, WaitingAll> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a step is late.
    fn late(&self) -> Error {
        match self.keeper.is_lost() {
            true => Error::new(Kind::Full, KEEPER_LOST, String::new()),
            false => refused(Refused::Late),
        }
    }

    fn now(&self) -> Time {
        let since = self.begun.elapsed().as_nanos();
        Time(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn enqueue(&self, who: Who, step: Waiting) -> std::result::Result<WaitingStep<'_>, Refused> {
        let now = self.now();
        let newcomer = Newcomer {
            client: who.client,
            tenant: who.tenant,
            weight: who.weight,
            kind: who.kind,
            until: now + WAIT_MAX,
        };
        let mut waiting = self.lock();
        let (id, pushed_out) = waiting.queue.push(now, &newcomer)?;
        waiting.steps.insert(id, step);
        let pushed_out = pushed_out.and_then(|id| waiting.steps.remove(&id));
        let is_awaited = waiting.idle > 0;
        drop(waiting);
        // To wake nobody costs a call of the kernel, too.
        if is_awaited {
            self.wake.notify_one();
        }
        if let Some(step) = pushed_out {
            step(Fate::Refused(Refused::OverShare));
        }
        Ok(WaitingStep { pool: self, id })
    }

    /// Makes steps until the queue ends.
    fn run(&self, thread: usize) {
        if let Err(error) = os::process::give_way(NICE) {
            let error = config::reason(&error);
            tracing::warn!(thread, error, "handshakes cannot give way to requests");
        }
        if let Some(id) = self.thread_ids.get(thread) {
            id.store(os::process::thread_id(), Relaxed);
        }
        let mut laps = CpuLaps::begin();
        let mut waiting = self.lock();
        while !self.is_over.load(Relaxed) {
            let now = self.now();
            if let Some(late) = waiting.queue.expired(now) {
                let step = waiting.steps.remove(&late);
                drop(waiting);
                if let Some(step) = step {
                    step(Fate::Refused(Refused::Late));
                }
                // The next step's client does not pay for it.
                laps.lap_ns();
                waiting = self.lock();
                continue;
            }
            let turn = match self.keeper.is_lost() {
                true => waiting.queue.next_short(now),
                false => waiting.queue.next(now),
            };
            let Some(turn) = turn else {
                waiting.idle += 1;
                let waited = self.wake.wait(waiting);
                waiting = waited.unwrap_or_else(PoisonError::into_inner);
                waiting.idle -= 1;
                continue;
            };
            let step = waiting.steps.remove(&turn.id);
            drop(waiting);
            let (was, cpu_ns) = step.map_or((StepKind::Short, 0), |step| {
                self.make(step, thread, &mut laps)
            });
            waiting = self.lock();
            let now = self.now();
            waiting.queue.settle(now, &turn, was, cpu_ns);
        }
    }

    /// Makes a step. It takes a lap: what the thread has done since the one before.
    fn make(&self, step: Waiting, thread: usize, laps: &mut CpuLaps) -> (StepKind, u64) {
        // A step that panics is its connection's end, and nobody else's.
        let made = catch_unwind(AssertUnwindSafe(|| step(Fate::Made(thread, laps))));
        let (was, cpu_ns) = made.unwrap_or_else(|_| (StepKind::Full, laps.lap_ns()));
        self.totals.made[was as usize].fetch_add(1, Relaxed);
        self.totals.cpu_us.fetch_add(cpu_ns / 1_000, Relaxed);
        (was, cpu_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::deadline::Deadlines;
    use crate::fixture::block_on;

    /// Threads with a keeper that is never asked.
    fn handshakes(threads: usize) -> Handshakes {
        let keeper = Arc::<Keeper>::default();
        let handshakes = Handshakes::new(threads, Instant::now(), keeper);
        let (link, _) = os::fdpass::packet_pair().expect("a link");
        handshakes.use_links(vec![link]);
        handshakes.start().expect("threads");
        handshakes
    }

    fn who(client: u8) -> Who {
        Who {
            client: [192, 0, 2, client].into(),
            tenant: 1,
            weight: 1,
            kind: StepKind::Full,
        }
    }

    fn made<T>(value: T) -> Made<T> {
        Made {
            value,
            was: StepKind::Full,
            elsewhere_ns: 0,
        }
    }

    #[test]
    fn a_thread_that_cannot_be_had_is_made_up_for_and_no_other_again() {
        let handshakes = Handshakes::new(3, Instant::now(), Arc::default());
        let spawned = std::cell::RefCell::new(Vec::new());
        let start = |have: usize| {
            handshakes.start_by(|thread, _| {
                let number = spawned.borrow().len();
                spawned.borrow_mut().push(thread);
                match number < have {
                    true => Ok(()),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                }
            })
        };
        assert!(start(0).is_err() && !handshakes.is_started());
        spawned.borrow_mut().clear();
        assert!(start(2).is_err() && handshakes.is_started());
        spawned.borrow_mut().clear();
        assert!(start(9).is_ok());
        assert_eq!(spawned.borrow().len(), 1, "only the one that was missing");
        assert!(start(9).is_ok());
        assert_eq!(spawned.borrow().len(), 1);
    }

    #[test]
    fn a_step_is_made_by_a_thread_that_gives_way_and_what_it_took_is_told() {
        let handshakes = handshakes(1);
        block_on(async {
            let deadline = Deadlines::new().register();
            let spin = |thread| {
                let until = os::cpu::thread_cpu_ns() + 3_000_000;
                while os::cpu::thread_cpu_ns() < until {
                    std::hint::spin_loop();
                }
                let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
                let fields = stat.rsplit(')').next().unwrap_or_default();
                let nice = fields.split_whitespace().nth(16).map(str::to_owned);
                let elsewhere_ns = 2_000_000;
                Made {
                    elsewhere_ns,
                    ..made((thread, nice))
                }
            };
            let stepped = handshakes.run(who(1), &deadline, spin).await;
            let stepped = stepped.expect("a result");
            assert_eq!(stepped.value, (0, Some("5".to_owned())));
            assert!(stepped.cpu_us >= 5_000, "{}", stepped.cpu_us);
        });
        // The thread counts a step when its result has been handed over.
        testkit::eventually(Duration::from_secs(20), "the step is counted", || {
            (handshakes.totals().made[1].load(Relaxed) == 1).then_some(())
        });
    }

    #[test]
    fn a_step_that_panics_is_its_own_end_and_nobody_elses() {
        let handshakes = handshakes(1);
        block_on(async {
            let deadline = Deadlines::new().register();
            let broken = handshakes.run(who(1), &deadline, |_| -> Made<()> {
                panic!("a step of a test")
            });
            assert_eq!(broken.await.expect_err("no result").reason, "handshake");
            let next = handshakes.run(who(2), &deadline, |_| made(7)).await;
            assert_eq!(next.expect("a result").value, 7);
        });
    }

    #[test]
    fn without_a_keeper_resumptions_go_on_and_the_rest_waits_for_the_next() {
        let handshakes = handshakes(1);
        handshakes.use_links(Vec::new());
        block_on(async {
            let deadlines = Deadlines::new();
            let (deadline, other) = (deadlines.register(), deadlines.register());
            let mut full = Box::pin(handshakes.run(who(1), &deadline, |_| made(1)));
            poll_fn(|cx| {
                assert!(full.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            let resumed = Who {
                kind: StepKind::Short,
                ..who(2)
            };
            let resumed = handshakes.run(resumed, &other, |_| made(2)).await;
            assert_eq!(resumed.expect("a result").value, 2);
            assert_eq!(handshakes.waiting(), 1);
            let (link, _) = os::fdpass::packet_pair().expect("a link");
            handshakes.use_links(vec![link]);
            assert_eq!(full.await.expect("a result").value, 1);
        });
    }

    /// Runs something while the only thread is at work.
    fn while_busy<T>(handshakes: &Handshakes, meanwhile: impl AsyncFnOnce() -> T) -> T {
        let (go_on, held) = mpsc::channel::<()>();
        block_on(async {
            let deadlines = Deadlines::new();
            let deadline = deadlines.register();
            let busy = handshakes.run(who(9), &deadline, move |_| {
                let _ = held.recv();
                made(())
            });
            let other = async {
                while handshakes.waiting() > 0 {
                    tokio::task::yield_now().await;
                }
                let other = meanwhile().await;
                drop(go_on);
                other
            };
            let (busy, other) = tokio::join!(busy, other);
            busy.expect("its result");
            other
        })
    }

    #[test]
    fn who_has_gone_before_his_turn_is_not_served() {
        let handshakes = handshakes(1);
        while_busy(&handshakes, async || {
            let deadline = Deadlines::new().register();
            let mut gone = Box::pin(handshakes.run(who(1), &deadline, |_| -> Made<()> {
                unreachable!("nobody waits for it")
            }));
            poll_fn(|cx| {
                assert!(gone.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert_eq!(handshakes.waiting(), 1);
            drop(gone);
            assert_eq!(handshakes.waiting(), 0);
        });
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let handshakes = handshakes(1);
        while_busy(&handshakes, async || {
            let deadlines = Deadlines::new();
            let deadline = deadlines.register();
            deadline.set(1);
            let late = handshakes.run(who(1), &deadline, |_| made(()));
            let tick = async {
                loop {
                    deadlines.tick();
                    tokio::task::yield_now().await;
                }
            };
            let late = tokio::select! {
                late = late => late,
                () = tick => unreachable!("it ticks on"),
            };
            assert_eq!(late.expect_err("no turn").reason, "handshake_late");
        });
    }

    #[test]
    fn a_client_has_only_so_many_waiting() {
        let handshakes = handshakes(1);
        while_busy(&handshakes, async || {
            let deadline = Deadlines::new().register();
            let mut waiting = Vec::new();
            for _ in 0..STEPS_MAX / 8 {
                let mut step = Box::pin(handshakes.run(who(1), &deadline, |_| made(())));
                poll_fn(|cx| {
                    assert!(step.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                waiting.push(step);
            }
            let over = handshakes.run(who(1), &deadline, |_| made(())).await;
            let over = over.expect_err("too many");
            assert_eq!(over.reason, "handshake_over_share");
            drop(waiting);
        });
    }
}
