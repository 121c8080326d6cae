//! One process of a map's program: started, talked to, and started again when it ends.
//!
//! The idea: one task of the hosting worker does the reading and writing for all workers. It
//! waits for nothing but these pipes and a clock, so neither a program that hangs nor one that
//! floods holds up anybody: those who wait are told, and the program is ended with its group.
//! When the worker ends, so does the task, and whoever waits still is told likewise.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep, timeout};

use super::answers::Answer;
use super::back_off::{BackOff, Told};
use super::mailbox::{Mailbox, MailboxState, Whom};
use super::program::Program;
use super::protocol::{Flood, Lines};
use super::stderr::Stderr;
use crate::buffer::ReadBuffer;
use crate::pipe::{PipeReader, PipeWriter, Pipes};
use crate::programs;
use crate::programs::ProgramOutcome;
use crate::worker::Worker;
use ipc::order::{End as Ended, RunMap};

/// How long a program may take to end once its input is closed, or it was killed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often it is looked who has waited too long, at least and at most; in between an eighth of
/// the time a question may take.
const TICK_MIN: Duration = Duration::from_millis(1);
const TICK_MAX: Duration = Duration::from_millis(250);
/// Reads of its standard error in one turn.
const STDERR_READS_MAX: usize = 4;

/// Why a process is talked to no more.
#[derive(Debug)]
enum ProcessEnd {
    /// The map has gone.
    Retired,
    /// It closed its output: it has ended, or will.
    Closed,
    /// It answered nobody for as long as a question may take.
    Silent,
    /// It said more than it may.
    Flood(Flood),
    /// It was not started.
    Unstarted,
}

/// Hosts a process until its map has gone.
pub(super) fn host(worker: &Rc<Worker>, program: Arc<Program>, mailbox: Arc<Mailbox>) {
    worker.host_mailbox(&mailbox);
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(live(worker, Hosted { program, mailbox }));
}

/// A process's place, taken. Dropped, nobody may ask there any more.
struct Hosted {
    program: Arc<Program>,
    mailbox: Arc<Mailbox>,
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.program.fail(self.mailbox.enter(MailboxState::Ended));
    }
}

async fn live(worker: Rc<Worker>, hosted: Hosted) {
    let Hosted { program, mailbox } = &hosted;
    let mut back_off = BackOff::default();
    let mut told = Told::default();
    loop {
        mailbox.enter(MailboxState::Open);
        let started = Instant::now();
        let (end, words, mut unanswered) = run(&worker, program, mailbox).await;
        if matches!(end, ProcessEnd::Retired) {
            tracing::info!(
                map = &*program.name,
                "a map program has ended: its map has gone"
            );
            return;
        }
        let rest = back_off.rest(started.elapsed(), worker.draw());
        // What came since it ended the next one is asked, if that comes at once.
        if !rest.is_zero() {
            unanswered += fail(program, mailbox.enter(MailboxState::Resting));
        }
        program.stats.restarts.fetch_add(1, Relaxed);
        if let Some(alike) = told.count(&words, Instant::now()) {
            tell_end(program, &end, &words, (unanswered, alike), rest);
        }
        if !rest_of(mailbox, rest).await {
            return;
        }
    }
}

/// Tells of an end, and of how many before it nothing was said.
fn tell_end(
    program: &Program,
    end: &ProcessEnd,
    words: &str,
    (unanswered, alike): (usize, u64),
    rest: Duration,
) {
    let (map, rest_ms) = (&*program.name, rest.as_millis());
    let alike = (alike > 0).then_some(alike);
    if matches!(end, ProcessEnd::Unstarted) {
        let again = match rest_ms {
            0 => "tried again at once".to_owned(),
            rest_ms => format!("tried again in {rest_ms} ms"),
        };
        tracing::error!(
            map,
            unanswered,
            alike,
            "a map program cannot be started; {again}: {words}"
        );
    } else {
        tracing::error!(
            map,
            unanswered,
            rest_ms,
            alike,
            "a map program is started again: {words}"
        );
    }
}

/// Rests; `false` where the map has gone meanwhile.
async fn rest_of(mailbox: &Mailbox, rest: Duration) -> bool {
    let until = Instant::now() + rest;
    while Instant::now() < until {
        if mailbox.ends().is_some() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        sleep(left.min(TICK_MAX)).await;
    }
    true
}

/// Starts a process and talks to it until its end; why that was, in words, and how many questions
/// it has left without an answer.
async fn run(
    worker: &Rc<Worker>,
    program: &Arc<Program>,
    mailbox: &Mailbox,
) -> (ProcessEnd, String, usize) {
    let (pipes, ends) = match Pipes::open() {
        Ok(opened) => opened,
        Err(error) => {
            let why = format!("open its pipes: {}", config::reason(&error));
            return (ProcessEnd::Unstarted, why, 0);
        }
    };
    let Some((generation, map)) = place(worker, program) else {
        return (ProcessEnd::Retired, String::new(), 0);
    };
    let [stdin, stdout, stderr] = ends;
    let order = |id| RunMap {
        id,
        generation,
        map,
        stdin,
        stdout,
        stderr,
    };
    // There may be no spawner for a while.
    let ordering = worker.programs.run_map(order);
    let process = match attended(program, mailbox, ordering).await {
        Ok(process) => process,
        Err(error) => return (ProcessEnd::Unstarted, error.detail.clone(), 0),
    };
    program.running.fetch_add(1, Relaxed);
    let mut talk = Talk::new(worker, program, mailbox, pipes);
    let end = poll_fn(|cx| talk.poll(cx)).await;
    let unanswered = match end {
        ProcessEnd::Retired => mailbox.enter(MailboxState::Ended),
        _ => mailbox.fail(),
    };
    let unanswered = fail(program, unanswered);
    let finishing = finish(&end, &mut talk, &process);
    let outcome = attended(program, mailbox, finishing).await;
    program.running.fetch_sub(1, Relaxed);
    let words = in_words(&end, outcome.as_ref(), talk.last_words());
    let end = match outcome {
        Some(ProgramOutcome::Failed(..)) if !matches!(end, ProcessEnd::Retired) => {
            ProcessEnd::Unstarted
        }
        _ => end,
    };
    (end, words, unanswered)
}

/// Tells them that there is no answer; how many questions that were.
fn fail(program: &Program, failed: Vec<Whom>) -> usize {
    let count = failed.len();
    program.fail(failed);
    count
}

/// The generation this worker serves, and the map's index in it; `None` where it has gone.
fn place(worker: &Worker, program: &Arc<Program>) -> Option<(u64, u32)> {
    let serving = worker.serving();
    let maps = &serving.generation.maps;
    let at = maps.iter().position(|map| map.is_of(program))?;
    Some((serving.generation.number, u32::try_from(at).ok()?))
}

/// Waits for something while nobody talks to the program: those who wait for an answer are told in
/// time that there is none.
async fn attended<T>(program: &Program, mailbox: &Mailbox, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(tick(program)) => {
                let (late, _) = mailbox.expire(program.timeout(), Instant::now());
                program.fail(late);
            }
        }
    }
}

fn tick(program: &Program) -> Duration {
    (program.timeout() / 8).clamp(TICK_MIN, TICK_MAX)
}

/// Ends a process and hears how it ended. One whose map has gone may end by itself.
async fn finish(
    end: &ProcessEnd,
    talk: &mut Talk<'_>,
    process: &programs::Program,
) -> Option<ProgramOutcome> {
    talk.stdin = None;
    let outcome = || poll_fn(|cx| process.poll_outcome(cx));
    if matches!(end, ProcessEnd::Retired | ProcessEnd::Closed)
        && let Ok(outcome) = timeout(LAST_WORDS, outcome()).await
    {
        talk.hear_last_words().await;
        return Some(outcome);
    }
    process.kill();
    let outcome = timeout(LAST_WORDS, outcome()).await.ok();
    talk.hear_last_words().await;
    outcome
}

/// How a process ended, for the log.
fn in_words(end: &ProcessEnd, outcome: Option<&ProgramOutcome>, last: &str) -> String {
    let outcome = match outcome {
        Some(ProgramOutcome::Failed(_, detail)) => return detail.clone(),
        Some(ProgramOutcome::Lost) => "the spawner has gone and took it along".to_owned(),
        Some(ProgramOutcome::Ended(ended)) => match ended.end {
            Ended::Exit(status) => format!("it ended with status {status}"),
            Ended::Signal(signal) => format!("it was ended by signal {signal}"),
        },
        None => "it was killed and does not end".to_owned(),
    };
    let why = match end {
        ProcessEnd::Retired | ProcessEnd::Unstarted => String::new(),
        ProcessEnd::Closed => outcome,
        ProcessEnd::Silent => {
            "it answered nothing for as long as a question may take (timeout)".into()
        }
        ProcessEnd::Flood(flood) => flood.describe().to_owned(),
    };
    match last {
        "" => why,
        last => format!("{why}; its last words: {last}"),
    }
}

/// The conversation with one process.
struct Talk<'a> {
    program: &'a Program,
    mailbox: &'a Mailbox,
    /// `None` once it is to hear no more.
    stdin: Option<PipeWriter>,
    stdout: PipeReader,
    /// `None` once it is closed.
    stderr: Option<PipeReader>,
    buffer: ReadBuffer,
    lines: Lines,
    said: Stderr,
    /// Lines that are being written, and how much of them is.
    writing: Vec<u8>,
    written: usize,
    /// When it is looked who has waited too long.
    tick: Pin<Box<Sleep>>,
    is_ticking: bool,
    /// Room for what one read brings.
    answers: Vec<Answer>,
    told: Vec<(Whom, Answer)>,
}

impl<'a> Talk<'a> {
    fn new(worker: &Worker, program: &'a Program, mailbox: &'a Mailbox, pipes: Pipes) -> Self {
        Self {
            program,
            mailbox,
            stdin: Some(pipes.stdin),
            stdout: pipes.stdout,
            stderr: Some(pipes.stderr),
            buffer: ReadBuffer::new(&worker.buffers),
            lines: Lines::new(program.answer_bytes),
            said: Stderr::new(&worker.shared.complaints, Instant::now()),
            writing: Vec::new(),
            written: 0,
            tick: Box::pin(sleep(Duration::ZERO)),
            is_ticking: false,
            answers: Vec::new(),
            told: Vec::new(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ProcessEnd> {
        if let Poll::Ready(end) = self.poll_write(cx) {
            return Poll::Ready(end);
        }
        if let Poll::Ready(end) = self.poll_read(cx) {
            return Poll::Ready(end);
        }
        self.poll_stderr(cx);
        self.poll_clock(cx)
    }

    /// Writes what was asked; ready where the map has gone. A program that reads no more may still
    /// answer what it has read.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<ProcessEnd> {
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
            }
            let look = self.mailbox.attend(cx, &mut self.writing);
            if look.ends.is_some() && self.is_over() {
                return Poll::Ready(ProcessEnd::Retired);
            }
            let is_due = look.is_busy || look.ends.is_some();
            if is_due && !self.is_ticking {
                let next = tokio::time::Instant::now() + tick(self.program);
                self.tick.as_mut().reset(next);
                self.is_ticking = true;
            }
            let rest = self.writing.get(self.written..).unwrap_or_default();
            let Some(stdin) = self.stdin.as_ref().filter(|_| !rest.is_empty()) else {
                return Poll::Pending;
            };
            match ready!(stdin.poll_write(cx, rest)) {
                Ok(count) => self.written += count,
                Err(_) => self.stdin = None,
            }
        }
    }

    fn is_over(&self) -> bool {
        self.mailbox.is_over(self.program.timeout(), Instant::now())
    }

    /// Reads answers and tells them; ready at their end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<ProcessEnd> {
        loop {
            match ready!(self.stdout.poll_fill(cx, &mut self.buffer)) {
                Ok(0) | Err(_) => return Poll::Ready(ProcessEnd::Closed),
                Ok(_) => {}
            }
            let now = Instant::now();
            let read = self.lines.push(self.buffer.data(), &mut self.answers);
            self.buffer.consume(self.buffer.data().len());
            let given = self.mailbox.deliver(&mut self.answers, &mut self.told, now);
            self.program.tell(&mut self.told, now);
            if let Err(flood) = read.and(given) {
                return Poll::Ready(ProcessEnd::Flood(flood));
            }
        }
    }

    fn poll_stderr(&mut self, cx: &mut Context<'_>) {
        for _ in 0..STDERR_READS_MAX {
            let Some(stderr) = &self.stderr else {
                return;
            };
            match stderr.poll_fill(cx, &mut self.buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(0) | Err(_)) => self.stderr = None,
                Poll::Ready(Ok(_)) => {
                    let (map, bytes) = (&self.program.name, self.buffer.data());
                    self.said.push(map, bytes, Instant::now());
                    self.buffer.consume(self.buffer.data().len());
                }
            }
        }
        // There may be more.
        cx.waker().wake_by_ref();
    }

    /// Tells those who have waited too long; ready where the process answers nobody.
    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Poll<ProcessEnd> {
        while self.is_ticking {
            ready!(self.tick.as_mut().poll(cx));
            let now = Instant::now();
            let (late, is_silent) = self.mailbox.expire(self.program.timeout(), now);
            self.program.fail(late);
            if is_silent {
                return Poll::Ready(ProcessEnd::Silent);
            }
            if self.is_over() {
                return Poll::Ready(ProcessEnd::Retired);
            }
            self.is_ticking = self.mailbox.waiting() > 0 || self.mailbox.ends().is_some();
            let next = tokio::time::Instant::now() + tick(self.program);
            self.tick.as_mut().reset(next);
        }
        Poll::Pending
    }

    /// Hears what lies in its standard error still.
    async fn hear_last_words(&mut self) {
        poll_fn(|cx| {
            self.poll_stderr(cx);
            Poll::Ready(())
        })
        .await;
    }

    fn last_words(&mut self) -> &str {
        self.said.last_words(&self.program.name)
    }
}
