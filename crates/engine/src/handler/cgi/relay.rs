//! The exchange between a client and its program: body in, reply out, errors to the log, all at once.
//!
//! Two clocks run: how long the program says nothing though it is its turn, and how long it runs
//! in all. When its output has ended it has a moment to end itself; what is left of the reply then
//! goes to the client without it.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use config::model::Cgi;

use super::input::{Awaited, Input};
use super::verdict;
use crate::bounds;
use crate::buffer::ReadBuffer;
use crate::deadline::Deadline;
use crate::error::{Error, Kind, Result};
use crate::exchange::{Exchange, ProgramUse};
use crate::handler::program::reply::{LocalLocation, ProgramReply};
use crate::handler::program::stderr::StderrLog;
use crate::handler::straggler;
use crate::permits;
use crate::pipe::{PipeReader, Pipes};
use crate::programs::ProgramOutcome;
use crate::programs::link::{Program, lost};
use crate::spool::Spool;
use crate::stage::Routed;
use crate::stats::{Killed, bump};
use ipc::order::{End, Ended};

/// How long a program whose output has ended may live on, and how long output may go on after
/// the program has ended.
const GRACE_MS: u64 = 2_000;
/// How long the end of a killed program is waited for: its figures are wanted, no more.
const LAST_REPORT_MS: u64 = 1_000;
/// Reads of a program's standard error before others have their turn.
const ERROR_READS_MAX: usize = 4;

/// One program and its client.
pub(super) struct Relay<'a> {
    routed: Routed<'a>,
    program: Program,
    /// Whether the client is asked for its body once the program runs.
    is_start_awaited: bool,
    input: Input,
    output: PipeReader,
    buffer: ReadBuffer,
    errors: Errors,
    reply: ProgramReply,
    /// The longest it may run.
    total: Deadline,
    timeout_ms: u64,
    /// The longest it may be silent.
    silence: Deadline,
    silence_ms: u64,
    grace: Deadline,
}

/// A program's standard error.
struct Errors {
    pipe: Option<PipeReader>,
    buffer: ReadBuffer,
    log: StderrLog,
}

/// How far the program's output was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// To its end.
    Ended,
    /// To the end of the reply's head.
    Head,
    /// As far as there is any.
    Silent,
    /// As far as the client and what may be set aside take it.
    Held,
}

impl<'a> Relay<'a> {
    /// Gets ready; the program has been ordered.
    pub(super) fn new(
        routed: Routed<'a>,
        cgi: &Cgi,
        exchange: &Exchange,
        program: Program,
        pipes: Pipes,
        spooled: Option<Spool>,
    ) -> Self {
        let worker = routed.worker;
        let deadline = || worker.deadlines.register();
        let total = deadline();
        total.set(cgi.timeout_ms);
        Self {
            routed,
            program,
            is_start_awaited: is_start_awaited(exchange, spooled.as_ref()),
            input: Input::new(pipes.stdin, spooled),
            output: pipes.stdout,
            buffer: ReadBuffer::new(&worker.buffers),
            errors: Errors {
                pipe: Some(pipes.stderr),
                buffer: ReadBuffer::new(&worker.buffers),
                log: StderrLog::new(routed, exchange),
            },
            reply: ProgramReply::new(
                routed,
                exchange,
                cgi.buffer_reply_bytes,
                LocalLocation::Inside,
            ),
            total,
            timeout_ms: cgi.timeout_ms,
            silence: deadline(),
            silence_ms: bounds::upstream_read_ms(routed, &exchange.route),
            grace: deadline(),
        }
    }

    /// Relays until the client has its reply and nothing of the program is left. Says where the
    /// reply is to come from instead, if the program did; then the permits stay.
    pub(super) async fn run(mut self, exchange: &mut Exchange) -> Result<Option<Vec<u8>>> {
        let answered = self.answer(exchange).await;
        let outcome = self.last_report().await;
        self.note(exchange, outcome.as_ref(), &answered);
        let ended = match &answered {
            Ok(()) => permits::outcome_of_reply(&exchange.outgoing),
            Err(error) => permits::outcome_of(error),
        };
        let routed = self.routed;
        // What the client has still to take holds nothing of the program: its pipes close here.
        let (program, mut reply) = self.into_rest();
        match outcome {
            Some(_) => {
                drop(program);
                if answered.is_err() || reply.location().is_none() {
                    permits::end(routed.worker, exchange, ended);
                }
            }
            None => straggler::follow_program(routed, exchange, program),
        }
        answered?;
        poll_fn(|cx| reply.poll_rest(cx, &mut exchange.reply)).await?;
        Ok(reply.location().map(<[u8]>::to_vec))
    }

    /// Gives up everything but these.
    fn into_rest(self) -> (Program, ProgramReply) {
        (self.program, self.reply)
    }

    async fn answer(&mut self, exchange: &mut Exchange) -> Result<()> {
        if self.is_start_awaited {
            poll_fn(|cx| self.poll_started(cx)).await?;
            exchange.invite_body().await?;
        }
        poll_fn(|cx| self.poll(cx, exchange)).await?;
        if self.reply.has_unsent_head() {
            self.reply.send_head(*self.routed, exchange).await?;
            poll_fn(|cx| self.poll(cx, exchange)).await?;
        }
        let flaw = self.reply.end().err();
        let outcome = poll_fn(|cx| self.poll_ending(cx, exchange)).await?;
        match (flaw, outcome) {
            (Some(flaw), Some(outcome)) => Err(verdict::failure(&outcome, flaw)),
            (Some(flaw), None) => Err(flaw),
            // How long it would be was not said, and the program did not end by itself.
            (None, Some(outcome)) if !self.reply.is_whole() && verdict::is_violent(&outcome) => {
                Err(verdict::failure(&outcome, cut()))
            }
            (None, _) => Ok(()),
        }
    }

    fn poll_started(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.program.poll_started(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => self.poll_silence(cx),
        }
    }

    /// Moves everything on as far as it goes; ready when the program's output has ended, or the
    /// reply's head is there.
    fn poll(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Poll<Result<()>> {
        let moved = self.input.poll(cx, &mut exchange.body)?;
        if moved.any {
            self.silence.clear();
        }
        self.errors.poll(cx);
        match self.pass(cx, exchange)? {
            Output::Ended | Output::Head => return Poll::Ready(Ok(())),
            Output::Silent => {
                if self.poll_silent(cx, moved.awaited)?.is_ready() {
                    return Poll::Ready(Ok(()));
                }
                // Who leaves with the whole reply has given up nothing.
                let is_client_needed = self.input.is_over() && !self.reply.is_whole();
                if is_client_needed && exchange.poll_client_gone(cx).is_ready() {
                    let gone = Error::new(Kind::ClientGone, "client_gone", String::new());
                    return Poll::Ready(Err(gone));
                }
            }
            Output::Held => {}
        }
        ready!(self.total.poll_expired(cx));
        let detail = format!(
            "the program may run for {} (timeout)",
            config::duration(self.timeout_ms)
        );
        Poll::Ready(Err(Error::new(Kind::Limited, "time_limit", detail)))
    }

    /// Passes the program's output on as far as it goes.
    fn pass(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Result<Output> {
        loop {
            let data = self.buffer.data();
            let has_data = !data.is_empty();
            if has_data || self.reply.has_head() {
                match self.reply.poll_take(cx, self.routed, exchange, data) {
                    Poll::Ready(taken) => self.buffer.consume(taken?),
                    Poll::Pending if has_data => return Ok(Output::Held),
                    Poll::Pending => {}
                }
                if self.reply.has_unsent_head() {
                    return Ok(Output::Head);
                }
                if has_data {
                    continue;
                }
            }
            match self.output.poll_fill(cx, &mut self.buffer) {
                Poll::Ready(Ok(0)) => return Ok(Output::Ended),
                Poll::Ready(Ok(_)) => self.silence.clear(),
                Poll::Ready(Err(error)) => {
                    return Err(Error::io(Kind::Internal, "program_read", &error));
                }
                Poll::Pending => {
                    // What there is goes to the client while the program takes its time.
                    if self.reply.has_head()
                        && let Poll::Ready(flushed) = exchange.reply.poll_flush(cx)
                    {
                        flushed?;
                    }
                    return Ok(Output::Silent);
                }
            }
        }
    }

    /// The program says nothing just now; ready when it will not say anything any more.
    fn poll_silent(&mut self, cx: &mut Context<'_>, awaited: Awaited) -> Poll<Result<()>> {
        match self.program.poll_outcome(cx) {
            // Somebody it has left behind may hold its output open.
            Poll::Ready(ProgramOutcome::Ended(_)) => {
                self.grace.set_if_clear(GRACE_MS);
                self.grace.poll_expired(cx).map(Ok)
            }
            Poll::Ready(ProgramOutcome::Failed(..) | ProgramOutcome::Lost) => Poll::Ready(Ok(())),
            Poll::Pending if awaited == Awaited::Program => self.poll_silence(cx),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ready with an error once the program has moved nothing for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.silence.set_if_clear(self.silence_ms);
        ready!(self.silence.poll_expired(cx));
        let detail = format!(
            "the program said nothing for {} (timeouts.upstream_read)",
            config::duration(self.silence_ms)
        );
        Poll::Ready(Err(Error::new(
            Kind::UpstreamSlow,
            "upstream_silent",
            detail,
        )))
    }

    /// The output has ended: ready with what became of the program, or `None` where it lives on
    /// for too long. The client gets on meanwhile.
    fn poll_ending(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
    ) -> Poll<Result<Option<ProgramOutcome>>> {
        self.errors.poll(cx);
        if let Poll::Ready(sent) = self.poll_client(cx, exchange) {
            sent?;
        }
        if let Poll::Ready(outcome) = self.program.poll_outcome(cx) {
            return Poll::Ready(Ok(Some(outcome)));
        }
        self.grace.set_if_clear(GRACE_MS);
        self.grace.poll_expired(cx).map(|()| Ok(None))
    }

    /// Sends the client what it has not taken, and the end where nothing can change it.
    fn poll_client(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Poll<Result<()>> {
        if !self.reply.has_head() || self.reply.location().is_some() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.reply.poll_rest(cx, &mut exchange.reply))?;
        if self.reply.is_whole() {
            exchange.reply.finish();
        }
        exchange.reply.poll_flush(cx)
    }

    /// What became of the program, which is killed where it still runs; waited for shortly.
    async fn last_report(&mut self) -> Option<ProgramOutcome> {
        self.program.kill();
        self.grace.set(LAST_REPORT_MS);
        let outcome = poll_fn(|cx| match self.program.poll_outcome(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => self.grace.poll_expired(cx).map(|()| None),
        });
        let outcome = outcome.await;
        // What it said last may not have been read yet.
        poll_fn(|cx| {
            self.errors.poll(cx);
            Poll::Ready(())
        })
        .await;
        outcome
    }

    /// Writes down whose program ran into the bounds of its group.
    fn note_bounds(&self, exchange: &Exchange, killed: Killed) {
        if matches!(killed, Killed::Memory | Killed::Pids) {
            let file = exchange
                .route
                .file
                .as_ref()
                .map_or(&b""[..], |it| it.path());
            let (worker, site) = (&self.routed.worker, &self.routed.site);
            let whose = (&*site.name, &*site.tenant_name);
            worker.shared.hit_programs.note(whose, killed, file);
        }
    }

    /// Writes down what the program took and how it ended.
    fn note(
        &self,
        exchange: &mut Exchange,
        outcome: Option<&ProgramOutcome>,
        answered: &Result<()>,
    ) {
        let stats = &self.routed.worker.stats.programs;
        match outcome {
            Some(ProgramOutcome::Failed(..)) => bump(&stats.failed, 1),
            _ => bump(&stats.started, 1),
        }
        if let Some(killed) = killed(outcome, answered) {
            bump(stats.killed(killed), 1);
            self.note_bounds(exchange, killed);
        }
        let Some(ProgramOutcome::Ended(ended)) = outcome else {
            return;
        };
        if let Some(file) = &exchange.route.file {
            let (routed, ran) = (&self.routed, (1, ended.cpu_us));
            let costs = &routed.serving.generation.costs;
            costs.note(&routed.site.tenant_name, file.name(), ran, Instant::now());
        }
        // Another may have run before it and sent the request here.
        let before = exchange.record.program.unwrap_or_default();
        exchange.record.program = Some(ProgramUse {
            cpu_us: before.cpu_us.saturating_add(ended.cpu_us),
            peak_bytes: before.peak_bytes.max(ended.peak_rss_bytes),
        });
        if answered.is_err() {
            return;
        }
        let (id, site) = (exchange.request.id, &*self.routed.site.name);
        if let Some(limit) = &ended.limit {
            let limit = verdict::limited(limit);
            tracing::warn!(request_id = %id, site, reason = limit.reason, detail = limit.detail, "a program ran into a limit after its reply");
        } else if let End::Exit(status @ 1..) = ended.end {
            tracing::warn!(request_id = %id, site, status, "a program failed after its reply");
        }
    }
}

impl Errors {
    /// Logs what the program says.
    fn poll(&mut self, cx: &mut Context<'_>) {
        for _ in 0..ERROR_READS_MAX {
            let Some(pipe) = &self.pipe else {
                return;
            };
            match pipe.poll_fill(cx, &mut self.buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(1..)) => {
                    self.log.push(self.buffer.data());
                    self.buffer.consume(self.buffer.data().len());
                }
                Poll::Ready(_) => self.pipe = None,
            }
        }
        cx.waker().wake_by_ref();
    }
}

/// Why a program was killed; `None` where it was not.
fn killed(outcome: Option<&ProgramOutcome>, answered: &Result<()>) -> Option<Killed> {
    let reason = match (outcome, answered) {
        (Some(ProgramOutcome::Lost), _) => lost().reason,
        (
            Some(ProgramOutcome::Ended(Ended {
                limit: Some(limit), ..
            })),
            _,
        ) => verdict::limited(limit).reason,
        (_, Err(error)) if matches!(error.kind, Kind::ClientGone | Kind::ClientSlow) => "client",
        (_, Err(error)) => error.reason,
        (_, Ok(())) => return None,
    };
    Killed::ALL
        .into_iter()
        .find(|killed| killed.word() == reason)
}

/// Whether the client is asked for its body once the program runs. What was taken beforehand was
/// asked for then.
pub(super) fn is_start_awaited(exchange: &Exchange, spooled: Option<&Spool>) -> bool {
    exchange.request.head.expect_continue && spooled.is_none()
}

/// A reply that ends where it should not.
fn cut() -> Error {
    let detail = "the program had not ended its reply";
    Error::new(Kind::UpstreamBroken, "program_cut", detail)
}
