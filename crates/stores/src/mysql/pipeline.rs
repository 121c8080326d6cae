//! Statements that may go over one connection behind others, and the runners that take them.
//!
//! Most of what a small statement costs is the system's: one write, one read and one wake-up for
//! each. So plain `SELECT`s that were answered before, are not slow (see [`super::statements`]) and
//! leave nothing behind (see [`super::side_effects`]) are not sent at once, but gathered here for the rest of the
//! worker's turn: a runner takes of what has come by then as many as may go together, sends them in one
//! piece and reads the answers together ([`super::batch`]).
//! There is a runner for every so many that wait, and another one as soon as one has not answered for a
//! while or serves one that goes alone, so that whoever meets a slow statement waits no longer than
//! that.
//!
//! A runner is a task that holds a place at the server while it has something to do, and no longer.
//!
//! What it brings is the row "statements that share connections" of the experiment `connection-reuse`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Cell as Value, weight};
use super::batch;
use super::connection::MysqlConnection;
use super::connector::{Connector, MysqlLease, TRUSTED_IDLE};
use super::statements::{SLOW, Statement, Statements, TOGETHER_MAX};

use crate::error::Error;
use crate::table::Entry;

/// Statements that wait for a runner; beyond it each takes a connection of its own.
const WAITING_MAX: usize = 4_096;
/// Bytes of the values of one of them.
const VALUES_BYTES_MAX: usize = 16 * 1024;
/// For so long nothing shares a connection after an answer behind another one never came: there may
/// be something on the way that takes one statement at a time.
const ALONE: Duration = Duration::from_secs(60);
/// Logins known at once; beyond it, those nobody uses go.
const PIPELINES_MAX: usize = 1_024;

/// Whether a statement was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Never,
    /// Its connection was lost, or it lay behind a slow one.
    Once,
}

/// A statement with whoever waits for its answer.
pub(super) struct Query {
    pub(super) statement: Rc<Statement>,
    pub(super) binds: Vec<Value>,
    pub(super) deadline: Instant,
    pub(super) tried: Tried,
    pub(super) asker: oneshot::Sender<Result<Answer, Error>>,
}

impl Query {
    /// Tells whoever asked, who may have gone.
    pub(super) fn answer(self, answer: Result<Answer, Error>) {
        let _ = self.asker.send(answer);
    }
}

/// What runners are doing, by their number.
#[derive(Default)]
struct Runners {
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
pub(crate) struct Pipeline {
    connector: Connector,
    statements: RefCell<Statements>,
    waiting: RefCell<VecDeque<Query>>,
    runners: Runners,
    tasks: RefCell<Vec<AbortHandle>>,
    /// When the server was last heard.
    heard: Cell<Option<Instant>>,
    patience: Cell<Duration>,
    /// Until when each statement has a connection to itself.
    alone_until: Cell<Option<Instant>>,
}

impl Pipeline {
    pub(super) fn new(connector: Connector) -> Self {
        Self {
            connector,
            statements: RefCell::default(),
            waiting: RefCell::default(),
            runners: Runners::default(),
            tasks: RefCell::default(),
            heard: Cell::new(None),
            patience: Cell::new(SLOW),
            alone_until: Cell::new(None),
        }
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Whether an answer came a moment ago, so that nobody need ask for a sign of life.
    pub(super) fn is_alive(&self) -> bool {
        self.heard
            .get()
            .is_some_and(|at| at.elapsed() < TRUSTED_IDLE)
    }

    /// Notes that the server has answered.
    pub(super) fn mark_alive(&self, now: Instant) {
        self.heard.set(Some(now));
    }

    /// Closes what is idle: the server has gone, or may have.
    pub(super) fn forget(&self) {
        self.heard.set(None);
        self.connector.forget();
    }

    /// Takes in a statement if it is one of those that may go behind others; gives its values back
    /// if not.
    pub(super) fn submit(
        self: &Rc<Self>,
        sql: &[u8],
        binds: Vec<Value>,
    ) -> Result<oneshot::Receiver<Result<Answer, Error>>, Vec<Value>> {
        let statement = self.statements.borrow().known(sql).cloned();
        let Some(statement) = statement.filter(|statement| self.together(statement) > 1) else {
            return Err(binds);
        };
        let bytes: usize = binds.iter().map(weight).sum();
        if bytes > VALUES_BYTES_MAX || self.waiting.borrow().len() >= WAITING_MAX {
            return Err(binds);
        }
        let (asker, answer) = oneshot::channel();
        self.waiting.borrow_mut().push_back(Query {
            statement,
            binds,
            deadline: Instant::now() + self.connector.limits.command_timeout,
            tried: Tried::Never,
            asker,
        });
        self.start_runner();
        Ok(answer)
    }

    /// Has each statement go alone for a while.
    pub(super) fn go_alone(&self, now: Instant) {
        self.alone_until.set(Some(now + ALONE));
    }

    /// How many may go together with a statement, itself among them.
    pub(super) fn together(&self, statement: &Statement) -> usize {
        let now = Instant::now();
        match self.alone_until.get().is_some_and(|until| now < until) {
            true => 1,
            false => statement.together(now),
        }
    }

    /// Sees to it that there are runners enough for those who wait.
    pub(super) fn start_runner(self: &Rc<Self>) {
        let all = self.runners.all.get();
        let able = all.saturating_sub(self.runners.alone.get() + self.runners.stuck.get());
        let wanted = {
            let waiting = self.waiting.borrow();
            let next = waiting
                .front()
                .map_or(1, |query| self.together(&query.statement));
            waiting.len() > able * next
        };
        if !wanted || all >= self.connector.limits.connections_max.max(1) {
            return;
        }
        let runner = Runner::begin(self);
        let task = spawn_local(batch::serve(runner)).abort_handle();
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// Statements for a batch, as many as each of them may go with. Those nobody waits for any more
    /// are left out, and those out of time are told.
    pub(super) fn next_batch(&self, queries: &mut Vec<Query>, now: Instant) {
        let mut together = TOGETHER_MAX;
        while queries.len() < together {
            let next = self.waiting.borrow_mut().pop_front();
            match next {
                None => return,
                Some(query) if query.asker.is_closed() => (),
                Some(query) if query.deadline <= now => {
                    let error = self.connector.attempt().unplaced();
                    query.answer(Err(error));
                }
                Some(query) => {
                    together = together.min(self.together(&query.statement));
                    if queries.len() >= together {
                        return self.waiting.borrow_mut().push_front(query);
                    }
                    queries.push(query);
                }
            }
        }
    }

    /// Takes back statements that were not answered, to be taken before others.
    pub(super) fn requeue(&self, queries: Vec<Query>) {
        let mut waiting = self.waiting.borrow_mut();
        for query in queries.into_iter().rev() {
            waiting.push_front(query);
        }
    }

    /// A place with a connection in whose session nobody left anything, while somebody waits for it.
    pub(super) async fn lease(&self) -> Option<MysqlLease> {
        let attempt = self.connector.attempt();
        let mut leasing = pin!(self.connector.lease(&attempt, MysqlConnection::is_clean));
        loop {
            let deadline = self.waiting.borrow().front().map(|query| query.deadline)?;
            match timeout_at(deadline, &mut leasing).await {
                Ok(Ok(lease)) => return Some(lease),
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
        if self.runners.talking.get() + self.runners.alone.get() == 0 {
            self.forget();
            let queries = std::mem::take(&mut *self.waiting.borrow_mut());
            queries
                .into_iter()
                .for_each(|query| query.answer(Err(error.clone())));
        }
    }

    fn expire(&self, error: &Error) {
        let now = Instant::now();
        let mut waiting = self.waiting.borrow_mut();
        let late = waiting
            .iter()
            .take_while(|query| query.deadline <= now)
            .count();
        let late: Vec<_> = waiting.drain(..late).collect();
        drop(waiting);
        late.into_iter()
            .for_each(|query| query.answer(Err(error.clone())));
    }

    /// Notes how long a statement took that may leave nothing in its session.
    pub(super) fn record(&self, sql: &[u8], time: Duration) {
        self.statements.borrow_mut().record(sql, time);
    }

    /// After how long without an answer those behind it are asked elsewhere.
    pub(super) fn patience(&self) -> Duration {
        self.patience.get()
    }

    #[cfg(test)]
    pub(super) fn be_patient(&self, patience: Duration) {
        self.patience.set(patience);
    }

    /// Lets a statement go behind others.
    #[cfg(test)]
    pub(super) fn share(&self, sql: &[u8]) -> Rc<Statement> {
        let mut statements = self.statements.borrow_mut();
        statements.record(sql, Duration::ZERO);
        Rc::clone(statements.known(sql).expect("short enough"))
    }
}

/// What a runner is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunnerState {
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

/// A runner's part in its pipeline's count; taken back when the runner ends.
pub(super) struct Runner {
    pub(super) pipeline: Rc<Pipeline>,
    state: Cell<RunnerState>,
}

impl Runner {
    fn begin(pipeline: &Rc<Pipeline>) -> Self {
        let runners = &pipeline.runners;
        runners.all.set(runners.all.get() + 1);
        Self {
            pipeline: Rc::clone(pipeline),
            state: Cell::new(RunnerState::Coming),
        }
    }

    /// Notes what the runner does from here on.
    pub(super) fn goes_on(&self, state: RunnerState) {
        let before = self.state.replace(state);
        let count = |state: RunnerState| match state {
            RunnerState::Talking => Some(&self.pipeline.runners.talking),
            RunnerState::Alone => Some(&self.pipeline.runners.alone),
            RunnerState::Stuck => Some(&self.pipeline.runners.stuck),
            RunnerState::Coming | RunnerState::Lost => None,
        };
        if let Some(count) = count(before) {
            count.set(count.get().saturating_sub(1));
        }
        if let Some(count) = count(state) {
            count.set(count.get() + 1);
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let state = self.state.get();
        self.goes_on(RunnerState::Lost);
        let all = &self.pipeline.runners.all;
        all.set(all.get().saturating_sub(1));
        // One that came by no connection has told those who wait.
        if state == RunnerState::Lost {
            self.pipeline.start_runner();
        }
    }
}

impl Entry for Pipeline {
    const MAX: usize = PIPELINES_MAX;

    fn is_used(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }

    fn is_open(&self) -> bool {
        self.connector.server.is_open()
    }

    /// Idle connections are the server's.
    fn sweep(&self, _: Duration) {}

    fn close(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        tasks.iter().for_each(AbortHandle::abort);
    }
}
