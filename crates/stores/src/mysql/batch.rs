//! Serves statements over one connection in batches: sent together, answered in order.
//!
//! An answer that does not come for a while makes the runner a stuck one: what was sent behind it is
//! asked again elsewhere, once, and the answers to that are skipped when they come. When a connection
//! is lost, the statement that was to be answered next is told so, and those behind it are asked
//! again, once. All of them only read.

use std::collections::VecDeque;

use tokio::time::{Instant, timeout_at};

use super::connection::MysqlConnection;
use super::fault::StatementFault;
use super::pipeline::{Pipeline, Query, Runner, RunnerState, Tried};
use super::reply::{MysqlFault, MysqlReply, TransactionState};
use crate::error::{Error, Kind};

/// Batches after which a runner makes way for those in line for a place.
const BATCHES_MAX: usize = 16;

/// Serves the pipeline until nobody waits.
pub(super) async fn serve(runner: Runner) {
    let (pipeline, mut queries) = (&runner.pipeline, Vec::new());
    while let Some(mut lease) = pipeline.lease().await {
        runner.goes_on(RunnerState::Talking);
        match batches(&runner, lease.connection(), &mut queries).await {
            Ok(Next::Nobody) => return lease.keep(),
            // Those in line for a place come first.
            Ok(Next::Others) => lease.keep(),
            Err(Over) => {
                drop(lease);
                return runner.goes_on(RunnerState::Lost);
            }
        }
        runner.goes_on(RunnerState::Coming);
    }
}

/// Who is next.
enum Next {
    /// Nobody waits.
    Nobody,
    /// Who would otherwise come by no connection.
    Others,
}

async fn batches(
    runner: &Runner,
    connection: &mut MysqlConnection,
    queries: &mut Vec<Query>,
) -> Result<Next, Over> {
    let pipeline = &runner.pipeline;
    for number in 0_usize.. {
        pipeline.next_batch(queries, Instant::now());
        if queries.is_empty() {
            break;
        }
        if number >= BATCHES_MAX && pipeline.connector().server.is_full() {
            pipeline.requeue(std::mem::take(queries));
            return Ok(Next::Others);
        }
        if let [query] = queries.as_slice()
            && pipeline.together(&query.statement) == 1
        {
            // Whoever else waits need not wait for it.
            runner.goes_on(RunnerState::Alone);
            pipeline.start_runner();
        }
        let mut batch = Batch {
            runner,
            connection: &mut *connection,
            sent: VecDeque::with_capacity(queries.len()),
            since: Instant::now(),
            size: 0,
        };
        batch.run(queries).await?;
        let since = batch.since;
        pipeline.mark_alive(since);
        runner.goes_on(RunnerState::Talking);
    }
    Ok(Next::Nobody)
}

/// A statement that was sent.
struct Sent {
    deadline: Instant,
    /// `None` when it is asked elsewhere by now.
    query: Option<Query>,
}

/// Why a connection is used no more.
enum BatchEnd {
    Fault(StatementFault),
    /// No answer in all the time there was.
    Overdue,
}

impl From<StatementFault> for BatchEnd {
    fn from(fault: StatementFault) -> Self {
        Self::Fault(fault)
    }
}

impl BatchEnd {
    fn error(&self, pipeline: &Pipeline) -> Error {
        let attempt = pipeline.connector().attempt();
        match self {
            Self::Fault(fault) => fault.of_statement(&attempt, "execute"),
            Self::Overdue => attempt.unanswered("execute"),
        }
    }
}

/// The connection is used no more, and everybody has been told.
struct Over;

/// Statements under way together.
struct Batch<'a> {
    runner: &'a Runner,
    connection: &'a mut MysqlConnection,
    sent: VecDeque<Sent>,
    /// When it was written, or the last answer came.
    since: Instant,
    /// How many statements were sent.
    size: usize,
}

impl Batch<'_> {
    async fn run(&mut self, queries: &mut Vec<Query>) -> Result<(), Over> {
        self.connection.begin_batch();
        self.prepare(queries).await?;
        for query in queries.drain(..) {
            self.put(query);
        }
        self.size = self.sent.len();
        if let Err(ended) = self.write().await {
            return Err(self.end(&ended));
        }
        let mut transaction = None;
        while !self.sent.is_empty() {
            let (reply, heard) = self.next_reply().await.map_err(|ended| self.end(&ended))?;
            self.answer(reply).map_err(|ended| self.end(&ended))?;
            transaction = heard.or(transaction);
        }
        let ended = self.connection.end_batch(transaction);
        match (ended, transaction) {
            // Nobody began a transaction; whoever says so is not to be used.
            (Err(_), _) | (Ok(()), Some(TransactionState::InTransaction)) => {
                self.runner.pipeline.forget();
                Err(Over)
            }
            (Ok(()), _) => Ok(()),
        }
    }

    /// Has prepared what is not yet, each in a round trip of its own: that happens once.
    async fn prepare(&mut self, queries: &mut Vec<Query>) -> Result<(), Over> {
        let mut place = 0;
        while let Some(query) = queries.get(place) {
            if self.connection.has_prepared(&query.statement.sql) {
                place += 1;
                continue;
            }
            let preparing = self.connection.prepare(&query.statement.sql);
            let prepared = match timeout_at(query.deadline, preparing).await {
                Ok(Ok(())) => {
                    place += 1;
                    continue;
                }
                Ok(Err(fault)) => BatchEnd::Fault(fault),
                Err(_) => BatchEnd::Overdue,
            };
            let query = queries.remove(place);
            query.answer(Err(prepared.error(&self.runner.pipeline)));
            if !matches!(&prepared, BatchEnd::Fault(fault) if fault.leaves_connection()) {
                self.runner.pipeline.requeue(std::mem::take(queries));
                return Err(self.end(&prepared));
            }
        }
        Ok(())
    }

    fn put(&mut self, query: Query) {
        match self.connection.push(&query.statement.sql, &query.binds) {
            Ok(()) => self.sent.push_back(Sent {
                deadline: query.deadline,
                query: Some(query),
            }),
            Err(fault) => {
                let error = BatchEnd::Fault(fault).error(&self.runner.pipeline);
                query.answer(Err(error));
            }
        }
    }

    async fn write(&mut self) -> Result<(), BatchEnd> {
        let Some(deadline) = self.sent.front().map(|sent| sent.deadline) else {
            return Ok(());
        };
        match timeout_at(deadline, self.connection.channel().send()).await {
            Ok(sent) => sent.map_err(StatementFault::Lost)?,
            Err(_) => return Err(BatchEnd::Overdue),
        }
        self.since = Instant::now();
        Ok(())
    }

    /// The answer to the oldest statement, and what it says of transactions.
    async fn next_reply(&mut self) -> Result<(MysqlReply, Option<TransactionState>), BatchEnd> {
        let mut waited = false;
        loop {
            let answered = self.connection.channel().next();
            if let Some((decoder, reply)) = answered.map_err(StatementFault::Reply)? {
                if waited {
                    self.since = Instant::now();
                }
                return Ok((reply, decoder.transaction()));
            }
            self.read().await?;
            waited = true;
        }
    }

    async fn read(&mut self) -> Result<(), BatchEnd> {
        let Some(deadline) = self.sent.front().map(|sent| sent.deadline) else {
            return Ok(());
        };
        let patience = self.since + self.runner.pipeline.patience();
        if patience < deadline {
            match timeout_at(patience, self.connection.channel().read()).await {
                Ok(read) => return Ok(read.map_err(StatementFault::Lost)?),
                Err(_) => self.reassign(),
            }
        }
        match timeout_at(deadline, self.connection.channel().read()).await {
            Ok(read) => Ok(read.map_err(StatementFault::Lost)?),
            Err(_) => Err(BatchEnd::Overdue),
        }
    }

    /// Lets those behind the oldest be asked elsewhere.
    fn reassign(&mut self) {
        let mut sent = self.sent.iter_mut();
        if let Some(query) = sent.next().and_then(|sent| sent.query.as_ref()) {
            query.statement.record_slow(Instant::now());
        }
        let queries = sent.filter_map(|sent| {
            let query = sent.query.take_if(|query| query.tried == Tried::Never)?;
            Some(again(query))
        });
        self.runner.pipeline.requeue(queries.collect());
        self.runner.goes_on(RunnerState::Stuck);
        self.runner.pipeline.start_runner();
    }

    fn answer(&mut self, reply: MysqlReply) -> Result<(), BatchEnd> {
        let fault = match reply {
            MysqlReply::Done(answer, columns) => {
                let query = self.sent.pop_front().and_then(|sent| sent.query);
                if let Some(query) = query {
                    self.connection.learn(&query.statement.sql, columns);
                    query.answer(Ok(answer));
                }
                return Ok(());
            }
            MysqlReply::Refused(refusal) => StatementFault::Refused(refusal),
            MysqlReply::Prepared(_) => StatementFault::Reply(MysqlFault::Unknown),
        };
        if !fault.leaves_connection() {
            return Err(fault.into());
        }
        if let Some(query) = self.sent.pop_front().and_then(|sent| sent.query) {
            query.answer(Err(BatchEnd::Fault(fault).error(&self.runner.pipeline)));
        }
        Ok(())
    }

    /// Tells the oldest why it has no answer, and lets those behind it be asked again.
    fn end(&mut self, ended: &BatchEnd) -> Over {
        let pipeline = &self.runner.pipeline;
        let error = ended.error(pipeline);
        if matches!(error.kind(), Kind::Lost | Kind::Protocol) {
            pipeline.forget();
        }
        if let (BatchEnd::Overdue, 2..) = (ended, self.size) {
            pipeline.go_alone(Instant::now());
        }
        let mut queries = self.sent.drain(..).filter_map(|sent| sent.query);
        if let Some(oldest) = queries.next() {
            oldest.answer(Err(error));
        }
        let (once, twice): (Vec<_>, Vec<_>) =
            queries.partition(|query| query.tried == Tried::Never);
        pipeline.requeue(once.into_iter().map(again).collect());
        for query in twice {
            let why = "the connection was lost for the second time";
            let error = pipeline
                .connector()
                .attempt()
                .failed(Kind::Lost, "execute", why);
            query.answer(Err(error));
        }
        Over
    }
}

fn again(query: Query) -> Query {
    Query {
        tried: Tried::Once,
        ..query
    }
}

#[cfg(test)]
mod tests;
