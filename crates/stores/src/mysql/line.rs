//! Serves statements over one connection in rounds: sent together, answered in order.
//!
//! An answer that does not come for a while makes the line a stuck one: what was sent behind it is
//! asked again elsewhere, once, and the answers to that are skipped when they come. When a connection
//! is lost, the statement that was to be answered next is told so, and those behind it are asked
//! again, once. All of them only read.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::desk::{Asked, Busy, Desk, Job, Phase, Serving};
use super::fault::Fault;
use super::habit::Text;
use super::reply::{self, Reply, Standing};
use crate::error::{Error, Kind};

/// Rounds after which a line makes way for those in line for a place.
const ROUNDS_MAX: usize = 16;

/// Serves the desk until nobody waits.
pub(super) async fn serve(serving: Serving) {
    let (desk, mut jobs) = (&serving.desk, Vec::new());
    while let Some(mut place) = desk.place().await {
        serving.goes_on(Phase::Talking);
        match rounds(&serving, place.connection(), &mut jobs).await {
            Ok(Next::Nobody) => return place.keep(),
            // Those in line for a place come first.
            Ok(Next::Others) => place.keep(),
            Err(Over) => {
                drop(place);
                return serving.goes_on(Phase::Lost);
            }
        }
        serving.goes_on(Phase::Coming);
    }
}

/// Who is next.
enum Next {
    /// Nobody waits.
    Nobody,
    /// Who would otherwise come by no connection.
    Others,
}

async fn rounds(
    serving: &Serving,
    connection: &mut Connection,
    jobs: &mut Vec<Job>,
) -> Result<Next, Over> {
    let desk = &serving.desk;
    for number in 0_usize.. {
        desk.take(jobs, Instant::now());
        if jobs.is_empty() {
            break;
        }
        if number >= ROUNDS_MAX && desk.access().server.is_full() {
            desk.take_back(std::mem::take(jobs));
            return Ok(Next::Others);
        }
        if let [job] = jobs.as_slice()
            && desk.together(&job.text) == 1
        {
            // Whoever else waits need not wait for it.
            serving.goes_on(Phase::Alone);
            desk.nudge();
        }
        let mut round = Round {
            serving,
            busy: desk.begin(),
            connection: &mut *connection,
            sent: VecDeque::with_capacity(jobs.len()),
            since: Instant::now(),
            began: Instant::now(),
            size: 0,
            waits: Vec::new(),
        };
        round.run(jobs).await?;
        let since = round.since;
        desk.note_alive(since);
        serving.goes_on(Phase::Talking);
    }
    Ok(Next::Nobody)
}

/// A statement that was sent.
struct Sent {
    deadline: Instant,
    /// `None` when it is asked elsewhere by now.
    job: Option<Job>,
}

/// Why a connection is used no more.
enum Ended {
    Fault(Fault),
    /// No answer in all the time there was.
    Overdue,
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Ended {
    fn error(&self, desk: &Desk) -> Error {
        let attempt = desk.access().attempt();
        match self {
            Self::Fault(fault) => fault.of_statement(&attempt, "execute"),
            Self::Overdue => attempt.unanswered("execute"),
        }
    }
}

/// The connection is used no more, and everybody has been told.
struct Over;

/// Statements under way together.
struct Round<'a> {
    serving: &'a Serving,
    busy: Busy<'a>,
    connection: &'a mut Connection,
    sent: VecDeque<Sent>,
    /// When it was written, or the last answer came.
    since: Instant,
    /// When it was written.
    began: Instant,
    /// How many statements were sent.
    size: usize,
    /// How long was waited for each, at most.
    waits: Vec<(Rc<Text>, Duration)>,
}

impl Round<'_> {
    async fn run(&mut self, jobs: &mut Vec<Job>) -> Result<(), Over> {
        self.connection.begin_round();
        self.prepare(jobs).await?;
        for job in jobs.drain(..) {
            self.put(job);
        }
        self.size = self.sent.len();
        if let Err(ended) = self.write().await {
            return Err(self.end(&ended));
        }
        let mut standing = None;
        while !self.sent.is_empty() {
            let (reply, heard) = self.hear().await.map_err(|ended| self.end(&ended))?;
            self.answer(reply).map_err(|ended| self.end(&ended))?;
            standing = heard.or(standing);
        }
        self.judge().await;
        let ended = self.connection.end_round(standing);
        match (ended, standing) {
            // Nobody began a transaction; whoever says so is not to be used.
            (Err(_), _) | (Ok(()), Some(Standing::InTransaction)) => {
                self.serving.desk.forget();
                Err(Over)
            }
            (Ok(()), _) => Ok(()),
        }
    }

    /// Has prepared what is not yet, each in a round trip of its own: that happens once.
    async fn prepare(&mut self, jobs: &mut Vec<Job>) -> Result<(), Over> {
        let mut place = 0;
        while let Some(job) = jobs.get(place) {
            if self.connection.has_prepared(&job.text.sql) {
                place += 1;
                continue;
            }
            let preparing = self.connection.prepare(&job.text.sql);
            let prepared = match timeout_at(job.deadline, preparing).await {
                Ok(Ok(())) => {
                    place += 1;
                    continue;
                }
                Ok(Err(fault)) => Ended::Fault(fault),
                Err(_) => Ended::Overdue,
            };
            let job = jobs.remove(place);
            job.answer(Err(prepared.error(&self.serving.desk)));
            if !matches!(&prepared, Ended::Fault(fault) if fault.leaves_connection()) {
                self.serving.desk.take_back(std::mem::take(jobs));
                return Err(self.end(&prepared));
            }
        }
        Ok(())
    }

    fn put(&mut self, job: Job) {
        match self.connection.push(&job.text.sql, &job.binds) {
            Ok(()) => self.sent.push_back(Sent {
                deadline: job.deadline,
                job: Some(job),
            }),
            Err(fault) => {
                let error = Ended::Fault(fault).error(&self.serving.desk);
                job.answer(Err(error));
            }
        }
    }

    async fn write(&mut self) -> Result<(), Ended> {
        let Some(deadline) = self.sent.front().map(|sent| sent.deadline) else {
            return Ok(());
        };
        match timeout_at(deadline, self.connection.channel().send()).await {
            Ok(sent) => sent.map_err(Fault::Lost)?,
            Err(_) => return Err(Ended::Overdue),
        }
        (self.began, self.since) = (Instant::now(), Instant::now());
        Ok(())
    }

    /// The answer to the oldest statement, and what it says of transactions.
    async fn hear(&mut self) -> Result<(Reply, Option<Standing>), Ended> {
        let mut waited = false;
        loop {
            let answered = self.connection.channel().next();
            if let Some((decoder, reply)) = answered.map_err(Fault::Reply)? {
                if waited {
                    self.note();
                }
                return Ok((reply, decoder.standing()));
            }
            self.read().await?;
            waited = true;
        }
    }

    async fn read(&mut self) -> Result<(), Ended> {
        let Some(deadline) = self.sent.front().map(|sent| sent.deadline) else {
            return Ok(());
        };
        let patience = self.since + self.serving.desk.patience();
        if patience < deadline {
            match timeout_at(patience, self.connection.channel().read()).await {
                Ok(read) => return Ok(read.map_err(Fault::Lost)?),
                Err(_) => self.hand_over(),
            }
        }
        match timeout_at(deadline, self.connection.channel().read()).await {
            Ok(read) => Ok(read.map_err(Fault::Lost)?),
            Err(_) => Err(Ended::Overdue),
        }
    }

    /// Lets those behind the oldest be asked elsewhere.
    fn hand_over(&mut self) {
        let mut sent = self.sent.iter_mut();
        if let Some(job) = sent.next().and_then(|sent| sent.job.as_ref()) {
            job.text.note_silence();
        }
        let jobs = sent.filter_map(|sent| {
            let job = sent.job.take_if(|job| job.asked == Asked::Never)?;
            Some(again(job))
        });
        self.serving.desk.take_back(jobs.collect());
        self.serving.goes_on(Phase::Stuck);
        self.serving.desk.nudge();
    }

    /// Notes how long the oldest took; one that came together with another tells nothing.
    fn note(&mut self) {
        let now = Instant::now();
        let time = now.duration_since(self.since);
        self.since = now;
        let Some(job) = self.sent.front().and_then(|sent| sent.job.as_ref()) else {
            return;
        };
        let mut waits = self.waits.iter_mut();
        match waits.find(|(text, _)| Rc::ptr_eq(text, &job.text)) {
            Some((_, longest)) => *longest = time.max(*longest),
            None => self.waits.push((Rc::clone(&job.text), time)),
        }
    }

    /// Judges those that were waited for, each once.
    async fn judge(&mut self) {
        let round = self.since.duration_since(self.began);
        for (text, time) in self.waits.drain(..) {
            let took = self.busy.took(time, round, self.size);
            self.serving.desk.judge(&text, took).await;
        }
    }

    fn answer(&mut self, reply: Reply) -> Result<(), Ended> {
        let fault = match reply {
            Reply::Done(answer, columns) => {
                let job = self.sent.pop_front().and_then(|sent| sent.job);
                if let Some(job) = job {
                    self.connection.learn(&job.text.sql, columns);
                    job.answer(Ok(answer));
                }
                return Ok(());
            }
            Reply::Refused(refusal) => Fault::Refused(refusal),
            Reply::Prepared(_) => Fault::Reply(reply::Fault::Unknown),
        };
        if !fault.leaves_connection() {
            return Err(fault.into());
        }
        if let Some(job) = self.sent.pop_front().and_then(|sent| sent.job) {
            job.answer(Err(Ended::Fault(fault).error(&self.serving.desk)));
        }
        Ok(())
    }

    /// Tells the oldest why it has no answer, and lets those behind it be asked again.
    fn end(&mut self, ended: &Ended) -> Over {
        let desk = &self.serving.desk;
        let error = ended.error(desk);
        if matches!(error.kind(), Kind::Lost | Kind::Protocol) {
            desk.forget();
        }
        if let (Ended::Overdue, 2..) = (ended, self.size) {
            desk.go_alone(Instant::now());
        }
        let mut jobs = self.sent.drain(..).filter_map(|sent| sent.job);
        if let Some(oldest) = jobs.next() {
            oldest.answer(Err(error));
        }
        let (once, twice): (Vec<_>, Vec<_>) = jobs.partition(|job| job.asked == Asked::Never);
        desk.take_back(once.into_iter().map(again).collect());
        for job in twice {
            let why = "the connection was lost for the second time";
            let error = desk.access().attempt().failed(Kind::Lost, "execute", why);
            job.answer(Err(error));
        }
        Over
    }
}

fn again(job: Job) -> Job {
    Job {
        asked: Asked::Once,
        ..job
    }
}

#[cfg(test)]
mod tests;
