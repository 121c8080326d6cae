//! Statements that may go over one connection behind others, and the lines that take them.
//!
//! Most of what a small statement costs is the system's: one write, one read and one wake-up for
//! each. So plain `SELECT`s that are quick as a rule (see [`super::habit`] and [`super::trace`]) are
//! not sent at once, but gathered here for the rest of the worker's turn: a line takes of what has
//! come by then as many as may go together, sends them in one piece and reads the answers together.
//! There is a line for every so many that wait, and another one as soon as one has not answered for a
//! while or serves one that goes alone, so that whoever meets a slow statement waits no longer than
//! that.
//!
//! A line is a task that holds a place at the server while it has something to do, and no longer.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_local, yield_now};
use tokio::time::{Instant, timeout_at};

use super::access::{Access, Login, Place, TRUSTED_IDLE};
use super::answer::{Answer, Cell as Value, weight};
use super::connection::Connection;
use super::habit::{SLOW, Speed, TOGETHER_MAX, Text, Texts, Took};
use super::line;

use crate::error::Error;

/// Statements that wait for a line; beyond it each takes a connection of its own.
const WAITING_MAX: usize = 4_096;
/// Bytes of the values of one of them.
const VALUES_BYTES_MAX: usize = 16 * 1024;
/// For so long nothing shares a connection after an answer behind another one never came: there may
/// be something on the way that takes one statement at a time.
const ALONE: Duration = Duration::from_secs(60);
/// How long it is taken for known how long a turn of the worker is.
const TURN_KNOWN: Duration = Duration::from_millis(50);
/// Turns of the worker between an answer and who waits for it.
const TURNS_LATE: u32 = 3;
/// Logins known at once; beyond it, those nobody uses go.
const DESKS_MAX: usize = 1_024;

/// Whether a statement was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Never,
    /// Its connection was lost, or it lay behind a slow one.
    Once,
}

/// A statement with whoever waits for its answer.
pub(super) struct Job {
    pub(super) text: Rc<Text>,
    pub(super) binds: Vec<Value>,
    pub(super) deadline: Instant,
    pub(super) asked: Asked,
    pub(super) asker: oneshot::Sender<Result<Answer, Error>>,
}

impl Job {
    /// Tells whoever asked, who may have gone.
    pub(super) fn answer(self, answer: Result<Answer, Error>) {
        let _ = self.asker.send(answer);
    }
}

/// What lines are doing, by their number.
#[derive(Default)]
struct Lines {
    /// All of them.
    all: Cell<usize>,
    /// Those that have a connection and whose answers come.
    talking: Cell<usize>,
    /// Those that serve a statement that goes alone.
    alone: Cell<usize>,
    /// Those whose answers do not come.
    stuck: Cell<usize>,
}

/// One login at one server, as a worker's scripts use it.
pub(crate) struct Desk {
    access: Access,
    texts: RefCell<Texts>,
    waiting: RefCell<VecDeque<Job>>,
    lines: Lines,
    tasks: RefCell<Vec<AbortHandle>>,
    /// When the server was last heard.
    heard: Cell<Option<Instant>>,
    /// How long a turn of the worker took, and when that was.
    turn: Cell<Option<(Instant, Duration)>>,
    patience: Cell<Duration>,
    /// Connections on which answers are awaited.
    busy: Cell<usize>,
    /// Until when each statement has a connection to itself.
    alone_until: Cell<Option<Instant>>,
}

impl Desk {
    fn new(access: Access) -> Self {
        Self {
            access,
            texts: RefCell::default(),
            waiting: RefCell::default(),
            lines: Lines::default(),
            tasks: RefCell::default(),
            heard: Cell::new(None),
            turn: Cell::new(None),
            patience: Cell::new(SLOW),
            busy: Cell::new(0),
            alone_until: Cell::new(None),
        }
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// Whether an answer came a moment ago, so that nobody need ask for a sign of life.
    pub(super) fn is_alive(&self) -> bool {
        self.heard
            .get()
            .is_some_and(|at| at.elapsed() < TRUSTED_IDLE)
    }

    /// Notes that the server has answered.
    pub(super) fn note_alive(&self, now: Instant) {
        self.heard.set(Some(now));
    }

    /// Closes what is idle: the server has gone, or may have.
    pub(super) fn forget(&self) {
        self.heard.set(None);
        self.access.forget();
    }

    /// Takes in a statement if it is one of those that may go behind others; gives its values back
    /// if not.
    pub(super) fn ask(
        self: &Rc<Self>,
        sql: &[u8],
        binds: Vec<Value>,
    ) -> Result<oneshot::Receiver<Result<Answer, Error>>, Vec<Value>> {
        let text = self.texts.borrow().known(sql).cloned();
        let Some(text) = text.filter(|text| self.together(text) > 1) else {
            return Err(binds);
        };
        let bytes: usize = binds.iter().map(weight).sum();
        if bytes > VALUES_BYTES_MAX || self.waiting.borrow().len() >= WAITING_MAX {
            return Err(binds);
        }
        let (asker, answer) = oneshot::channel();
        self.waiting.borrow_mut().push_back(Job {
            text,
            binds,
            deadline: Instant::now() + self.access.limits.command_timeout,
            asked: Asked::Never,
            asker,
        });
        self.nudge();
        Ok(answer)
    }

    /// Has each statement go alone for a while.
    pub(super) fn go_alone(&self, now: Instant) {
        self.alone_until.set(Some(now + ALONE));
    }

    /// How many may go together with a statement, itself among them.
    pub(super) fn together(&self, text: &Text) -> usize {
        let until = self.alone_until.get();
        match until.is_some_and(|until| Instant::now() < until) {
            true => 1,
            false => text.together(),
        }
    }

    /// Sees to it that there are lines enough for those who wait.
    pub(super) fn nudge(self: &Rc<Self>) {
        let all = self.lines.all.get();
        let able = all.saturating_sub(self.lines.alone.get() + self.lines.stuck.get());
        let wanted = {
            let waiting = self.waiting.borrow();
            let next = waiting.front().map_or(1, |job| self.together(&job.text));
            waiting.len() > able * next
        };
        if !wanted || all >= self.access.limits.connections_max.max(1) {
            return;
        }
        let serving = Serving::begin(self);
        let task = spawn_local(line::serve(serving)).abort_handle();
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// Statements for a round, as many as each of them may go with. Those nobody waits for any more
    /// are left out, and those out of time are told.
    pub(super) fn take(&self, jobs: &mut Vec<Job>, now: Instant) {
        let mut together = TOGETHER_MAX;
        while jobs.len() < together {
            let next = self.waiting.borrow_mut().pop_front();
            match next {
                None => return,
                Some(job) if job.asker.is_closed() => (),
                Some(job) if job.deadline <= now => {
                    let error = self.access.attempt().unplaced();
                    job.answer(Err(error));
                }
                Some(job) => {
                    together = together.min(self.together(&job.text));
                    if jobs.len() >= together {
                        return self.waiting.borrow_mut().push_front(job);
                    }
                    jobs.push(job);
                }
            }
        }
    }

    /// Takes back statements that were not answered, to be taken before others.
    pub(super) fn take_back(&self, jobs: Vec<Job>) {
        let mut waiting = self.waiting.borrow_mut();
        for job in jobs.into_iter().rev() {
            waiting.push_front(job);
        }
    }

    /// A place with a connection in whose session nobody left anything, while somebody waits for it.
    pub(super) async fn place(&self) -> Option<Place> {
        let attempt = self.access.attempt();
        let mut leasing = pin!(self.access.lease(&attempt, Connection::is_clean));
        loop {
            let deadline = self.waiting.borrow().front().map(|job| job.deadline)?;
            match timeout_at(deadline, &mut leasing).await {
                Ok(Ok(place)) => return Some(place),
                Ok(Err(error)) => {
                    self.give_up(&error);
                    return None;
                }
                Err(_) => self.expire(&attempt.late("execute")),
            }
        }
    }

    /// Tells all who wait that there is no connection, unless there is another one that works.
    fn give_up(&self, error: &Error) {
        if self.lines.talking.get() + self.lines.alone.get() == 0 {
            self.forget();
            let jobs = std::mem::take(&mut *self.waiting.borrow_mut());
            jobs.into_iter()
                .for_each(|job| job.answer(Err(error.clone())));
        }
    }

    fn expire(&self, error: &Error) {
        let now = Instant::now();
        let mut waiting = self.waiting.borrow_mut();
        let late = waiting.iter().take_while(|job| job.deadline <= now).count();
        let late: Vec<_> = waiting.drain(..late).collect();
        drop(waiting);
        late.into_iter()
            .for_each(|job| job.answer(Err(error.clone())));
    }

    /// Notes that answers are awaited on a connection.
    pub(super) fn begin(&self) -> Busy<'_> {
        self.busy.set(self.busy.get() + 1);
        Busy {
            all: &self.busy,
            among: self.busy.get(),
            began: Instant::now(),
        }
    }

    /// Notes how long a statement took that may leave nothing in its session.
    pub(super) async fn note(&self, sql: &[u8], took: Took) {
        let text = self.texts.borrow_mut().text(sql);
        if let Some(text) = text {
            self.judge(&text, took).await;
        }
    }

    /// Notes how long a statement took; what took longer than it should is compared with how long
    /// the worker's turns are.
    pub(super) async fn judge(&self, text: &Text, mut took: Took) {
        if took.speed() != Speed::Quick {
            took.late = self.turn().await * TURNS_LATE;
        }
        text.note(took);
    }

    async fn turn(&self) -> Duration {
        let began = Instant::now();
        if let Some((at, turn)) = self.turn.get()
            && began.duration_since(at) < TURN_KNOWN
        {
            return turn;
        }
        yield_now().await;
        let turn = began.elapsed();
        self.turn.set(Some((began, turn)));
        turn
    }

    /// After how long without an answer those behind it are asked elsewhere.
    pub(super) fn patience(&self) -> Duration {
        self.patience.get()
    }

    /// Whether nothing but the table of desks knows it.
    fn is_unused(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
    }

    fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        tasks.iter().for_each(AbortHandle::abort);
    }

    #[cfg(test)]
    pub(super) fn be_patient(&self, patience: Duration) {
        self.patience.set(patience);
    }

    /// Lets so many of a statement go together.
    #[cfg(test)]
    pub(super) fn share(&self, sql: &[u8], together: usize) -> Rc<Text> {
        let text = self.texts.borrow_mut().text(sql).expect("short enough");
        while text.together() < together {
            text.note(self.begin().took(Duration::ZERO, Duration::ZERO, 1));
        }
        text
    }
}

/// A connection on which answers are awaited.
pub(super) struct Busy<'a> {
    all: &'a Cell<usize>,
    among: usize,
    began: Instant,
}

impl Busy<'_> {
    /// How long a statement took by now that was asked alone.
    pub(super) fn took_alone(&self, now: Instant) -> Took {
        let time = now.duration_since(self.began);
        self.took(time, time, 1)
    }

    /// How long one took among so many that were asked together.
    pub(super) fn took(&self, time: Duration, round: Duration, size: usize) -> Took {
        Took {
            time,
            round,
            size,
            among: self.among.max(self.all.get()),
            late: Duration::ZERO,
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.all.set(self.all.get().saturating_sub(1));
    }
}

/// What a line is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has no connection yet.
    Coming,
    /// Its answers come.
    Talking,
    /// It serves a statement that goes alone: nobody else is to wait for it.
    Alone,
    /// Its answers do not come.
    Stuck,
    /// Its connection was lost.
    Lost,
}

/// A line's part in its desk's count; taken back when the line ends.
pub(super) struct Serving {
    pub(super) desk: Rc<Desk>,
    phase: Cell<Phase>,
}

impl Serving {
    fn begin(desk: &Rc<Desk>) -> Self {
        let lines = &desk.lines;
        lines.all.set(lines.all.get() + 1);
        Self {
            desk: Rc::clone(desk),
            phase: Cell::new(Phase::Coming),
        }
    }

    /// Notes what the line does from here on.
    pub(super) fn goes_on(&self, phase: Phase) {
        let before = self.phase.replace(phase);
        let count = |phase: Phase| match phase {
            Phase::Talking => Some(&self.desk.lines.talking),
            Phase::Alone => Some(&self.desk.lines.alone),
            Phase::Stuck => Some(&self.desk.lines.stuck),
            Phase::Coming | Phase::Lost => None,
        };
        if let Some(count) = count(before) {
            count.set(count.get().saturating_sub(1));
        }
        if let Some(count) = count(phase) {
            count.set(count.get() + 1);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let phase = self.phase.get();
        self.goes_on(Phase::Lost);
        let all = &self.desk.lines.all;
        all.set(all.get().saturating_sub(1));
        // One that came by no connection has told those who wait.
        if phase == Phase::Lost {
            self.desk.nudge();
        }
    }
}

/// The desks of a worker's scripts, by server and login.
#[derive(Default)]
pub(crate) struct Desks {
    desks: RefCell<HashMap<Login, Rc<Desk>>>,
}

impl Desks {
    /// The desk of a login, the same one for all objects.
    pub(super) fn desk(&self, login: &Login, access: impl FnOnce() -> Access) -> Rc<Desk> {
        let mut desks = self.desks.borrow_mut();
        if let Some(desk) = desks.get(login) {
            return Rc::clone(desk);
        }
        if desks.len() >= DESKS_MAX {
            desks.retain(|_, desk| !desk.is_unused());
        }
        let desk = Rc::new(Desk::new(access()));
        desks.insert(login.clone(), Rc::clone(&desk));
        desk
    }

    /// Forgets the logins nobody uses at servers to which no connection is left.
    pub(crate) fn sweep(&self) {
        let mut desks = self.desks.borrow_mut();
        desks.retain(|_, desk| !desk.is_unused() || desk.access.server.open() > 0);
    }
}

impl Drop for Desks {
    fn drop(&mut self) {
        self.desks.borrow().values().for_each(|desk| desk.stop());
    }
}
