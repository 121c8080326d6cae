//! A program that answers: what is kept of its answers, and which of its processes is asked.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use config::model::{self, MapProgram};
use tokio::sync::oneshot;

use super::answers::Answer;
use super::cache::{Cache, Look};
use super::mailbox::{Bounds, Mailbox, MailboxState, Whom};
use super::map::MapStats;
use super::protocol::can_be_asked;
use crate::worker::resources::Resources;

/// What a map says to a question.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The answer.
    Known(Answer),
    /// It comes within the time a question may take, or its sender goes: there is none.
    Later(oneshot::Receiver<Answer>),
    /// The same, but nobody attends to it yet.
    Unattended(oneshot::Receiver<Answer>),
    /// There is none.
    Failed,
}

/// How much longer the queue of a process may be than another's and still be chosen, because
/// this worker hosts it: to wake another one costs more than a few questions.
const OWN_AHEAD: usize = 8;

/// A program that answers.
#[derive(Debug)]
pub(super) struct Program {
    /// The map's name.
    pub(super) name: Box<str>,
    pub(super) config: MapProgram,
    pub(super) answer_bytes: usize,
    key_bytes: usize,
    on_error: Answer,
    cache: Option<Mutex<Cache>>,
    processes: Box<[Process]>,
    pub(super) stats: Arc<MapStats>,
    /// Processes that run.
    pub(super) running: AtomicUsize,
}

/// One process's place.
#[derive(Debug)]
struct Process {
    /// Its worker, were there any number of them.
    number: usize,
    mailbox: Arc<Mailbox>,
    is_started: AtomicBool,
}

impl Program {
    /// Makes it; its first process sits at the worker of number `first`, the others at the next.
    pub(super) fn new(
        map: &model::Map,
        config: &MapProgram,
        first: usize,
        stats: &Arc<MapStats>,
    ) -> Self {
        let processes = (first..first + config.processes).map(|number| Process {
            number,
            mailbox: Arc::default(),
            is_started: AtomicBool::new(false),
        });
        Self {
            name: map.name.as_str().into(),
            config: config.clone(),
            answer_bytes: map.answer_bytes,
            key_bytes: map.key_bytes,
            on_error: config.on_error.as_ref().map(|text| text.as_bytes().into()),
            cache: config.cache.map(|limits| Mutex::new(Cache::new(limits))),
            processes: processes.collect(),
            stats: Arc::clone(stats),
            running: AtomicUsize::new(0),
        }
    }

    /// How long a question may take.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeout_ms)
    }

    /// Processes that run, and those there are to be.
    pub(super) fn processes(&self) -> (usize, usize) {
        (self.running.load(Relaxed), self.processes.len())
    }

    /// The queues of those processes that this worker is to host and that nobody does yet.
    pub(super) fn to_be_hosted(
        &self,
        resources: &Resources,
    ) -> impl Iterator<Item = &Arc<Mailbox>> {
        let (workers, index) = (resources.workers, resources.index);
        let ours = self.processes.iter().filter(move |process| {
            process.number % workers == index && !process.is_started.swap(true, Relaxed)
        });
        ours.map(|process| &process.mailbox)
    }

    /// What a queue may hold.
    fn bounds(&self) -> Bounds {
        Bounds {
            waiting_max: self.config.waiting,
            patience: self.timeout(),
        }
    }

    /// Has all its processes end for good soon.
    pub(super) fn retire(&self, now: Instant) {
        for process in &self.processes {
            process.mailbox.retire(now);
        }
    }

    /// What stands for an answer that the program does not give; it is counted.
    pub(super) fn on_error(&self) -> Answer {
        self.stats.errors.fetch_add(1, Relaxed);
        self.on_error.clone()
    }

    /// Asks on behalf of a request of this worker.
    pub(super) fn ask(&self, resources: &Resources, key: &[u8]) -> Asked {
        self.stats.questions.fetch_add(1, Relaxed);
        if !can_be_asked(key, self.key_bytes) {
            return Asked::Failed;
        }
        let now = Instant::now();
        let Some(cache) = &self.cache else {
            let (hear, heard) = oneshot::channel();
            return match self.put(resources, key, Whom::One(hear), now) {
                Ok(state) => later(state, heard),
                Err(_) => Asked::Failed,
            };
        };
        let look = lock(cache).look(key, now);
        match look {
            Look::Fresh(answer) => {
                self.stats.cached.fetch_add(1, Relaxed);
                Asked::Known(answer)
            }
            Look::Waits(heard) => {
                self.stats.cached.fetch_add(1, Relaxed);
                Asked::Unattended(heard)
            }
            Look::Asks(heard) => match self.put(resources, key, Whom::All(key.into()), now) {
                Ok(state) => later(state, heard),
                Err(whom) => {
                    self.fail([whom]);
                    Asked::Failed
                }
            },
        }
    }

    /// Puts a question into the queue of a process; `whom` comes back where none takes it.
    fn put(
        &self,
        resources: &Resources,
        key: &[u8],
        mut whom: Whom,
        now: Instant,
    ) -> Result<MailboxState, Whom> {
        let bounds = self.bounds();
        let first = self.choose(resources);
        let (before, from) = self.processes.split_at(first);
        for process in from.iter().chain(before) {
            match process.mailbox.ask(key, whom, bounds, now) {
                Ok(state) => return Ok(state),
                Err(back) => whom = back,
            }
        }
        Err(whom)
    }

    /// The process with the shortest queue; one of this worker's own where it is not much longer.
    fn choose(&self, resources: &Resources) -> usize {
        if self.processes.len() <= 1 {
            return 0;
        }
        let cost = |(_, process): &(usize, &Process)| {
            let is_own = process.number % resources.workers == resources.index;
            process.mailbox.waiting() + if is_own { 0 } else { OWN_AHEAD }
        };
        let chosen = self.processes.iter().enumerate().min_by_key(cost);
        chosen.map_or(0, |(at, _)| at)
    }

    /// Tells answers to who asked for them, and keeps what is to be kept.
    pub(super) fn tell(&self, told: &mut Vec<(Whom, Answer)>, now: Instant) {
        for (whom, answer) in told.drain(..) {
            match (whom, &self.cache) {
                (Whom::One(hear), _) => tell_all([hear], &answer),
                (Whom::All(key), Some(cache)) => {
                    let waiting = lock(cache).answer(key, answer.clone(), now);
                    tell_all(waiting, &answer);
                }
                (Whom::All(_), None) => {}
            }
        }
    }

    /// There is no answer: whoever waits for one is told by its sender's end. That is not kept: the
    /// next one may be.
    pub(super) fn fail(&self, failed: impl IntoIterator<Item = Whom>) {
        for whom in failed {
            if let (Whom::All(key), Some(cache)) = (whom, &self.cache) {
                drop(lock(cache).fail(&key));
            }
        }
    }
}

fn tell_all(waiting: impl IntoIterator<Item = oneshot::Sender<Answer>>, answer: &Answer) {
    for hear in waiting {
        // Whoever has gone hears nothing.
        let _ = hear.send(answer.clone());
    }
}

fn later(state: MailboxState, heard: oneshot::Receiver<Answer>) -> Asked {
    match state {
        MailboxState::Open => Asked::Later(heard),
        MailboxState::Unattended | MailboxState::Resting | MailboxState::Ended => {
            Asked::Unattended(heard)
        }
    }
}

/// Held for as long as one key is looked up, by who asks and by the host.
fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}
