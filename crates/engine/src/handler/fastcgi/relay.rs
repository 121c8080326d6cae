//! One attempt at one server: the body going out, the reply coming back, both at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fastcgi::record::{End, ProtocolStatus};
use tokio::time::{Sleep, sleep};

use super::super::program::{LocalLocation, ProgramReply};
use super::super::upload::{Coding, Upload};
use super::Ask;
use super::incoming::Incoming;
use super::rest::Rest;
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::handler::program::stderr::StderrLog;
use crate::spool::Spool;
use crate::upstream::CLOSING;
use crate::upstream::link::Link;
use crate::upstream::server::InFlight;
use crate::upstream::slots::{PATIENCE, Slots, Waiting};
use crate::worker::Worker;

/// One attempt.
pub(super) struct Relay {
    upload: Upload,
    incoming: Incoming,
    reply: ProgramReply,
    stderr: StderrLog,
    queue: Queue,
    read_ms: u64,
    has_body: bool,
    has_heard: bool,
    /// Output has come.
    has_output: bool,
    /// What the program said is at fault, not its server.
    is_programs_fault: bool,
    /// Not one byte of the request could be sent.
    is_unsent: bool,
}

/// A fresh connection's place before the server's processes.
#[derive(Debug, Default)]
struct Queue {
    slots: Option<Arc<Slots>>,
    patience: Option<Pin<Box<Sleep>>>,
    waiting: Option<Waiting>,
}

/// An attempt that failed.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub(super) enum Failure {
    /// For good.
    Last(Error),
    /// For good, and it speaks against the server.
    Servers(Error),
    /// It may be tried on a connection of its own, with this body: the reused one had closed.
    Again(Error, Option<Spool>),
    /// A connection closed: it may be tried, with this body, if its pool's processes had ended.
    /// It was with them for so long.
    Closed(Error, Option<Spool>, Duration),
}

impl Failure {
    /// Why.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Last(error) | Self::Servers(error) => error,
            Self::Again(error, _) | Self::Closed(error, ..) => error,
        }
    }
}

impl Relay {
    /// Gets ready; the request's head waits in the link already.
    pub(super) fn new(
        ask: &Ask<'_>,
        exchange: &Exchange,
        spooled: Option<Spool>,
        slots: Option<Arc<Slots>>,
    ) -> Self {
        let timeouts = &ask.chosen.serving.generation.process.timeouts;
        Self {
            has_body: spooled.is_some() || !exchange.body.is_ended(),
            upload: Upload::new(Coding::Records, spooled, timeouts.upstream_write_ms),
            incoming: Incoming::default(),
            reply: ProgramReply::new(
                *ask.chosen,
                exchange,
                ask.fastcgi.buffer_reply_bytes,
                LocalLocation::ToClient,
            ),
            stderr: StderrLog::new(*ask.chosen, exchange),
            queue: Queue {
                slots,
                ..Queue::default()
            },
            read_ms: bounds::upstream_read_ms(*ask.chosen, &exchange.route),
            has_heard: false,
            has_output: false,
            is_programs_fault: false,
            is_unsent: false,
        }
    }

    /// Sends the request and passes the reply on, until the server has said its last.
    pub(super) async fn run(
        &mut self,
        ask: &Ask<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
        in_flight: &InFlight,
    ) -> Result<()> {
        loop {
            self.pass_on(ask, exchange, link, in_flight).await?;
            match self.reply.has_unsent_head() {
                true => self.reply.send_head(**ask.chosen, exchange).await?,
                false => return Ok(()),
            }
        }
    }

    /// Until the server has said its last, or all of the reply's head.
    async fn pass_on(
        &mut self,
        ask: &Ask<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
        in_flight: &InFlight,
    ) -> Result<()> {
        poll_fn(|cx| {
            let passed = self.poll_pass(cx, ask, exchange, link, in_flight);
            // Who leaves with the whole reply has given up nothing.
            if passed.is_pending()
                && self.upload.is_over()
                && !self.reply.is_whole()
                && exchange.poll_client_gone(cx).is_ready()
            {
                let error = Error::new(Kind::ClientGone, "client_gone", String::new());
                return Poll::Ready(Err(error));
            }
            passed
        })
        .await
    }

    /// Whether the reply's head is on its way to the client.
    pub(super) fn has_head(&self) -> bool {
        self.reply.has_head()
    }

    /// What may be done about an error. A reused connection that closed before a byte of its reply,
    /// and soon, may just have been too old.
    pub(super) fn failed(
        self,
        error: Error,
        exchange: &Exchange,
        link: &Link,
        ran: Duration,
    ) -> Failure {
        let method = exchange.request.head.method;
        let may_repeat = self.is_unsent || (method.is_idempotent() && !self.has_body);
        let is_closed = !self.has_heard && error.kind == Kind::UpstreamBroken;
        let is_servers = matches!(error.kind, Kind::UpstreamBroken | Kind::UpstreamSlow)
            && !self.is_programs_fault
            && !self.has_head();
        let ran = if self.is_unsent { Duration::ZERO } else { ran };
        if is_closed && may_repeat && link.reused && ran < CLOSING {
            Failure::Again(error, self.upload.into_spooled())
        } else if is_closed && may_repeat {
            Failure::Closed(error, self.upload.into_spooled(), ran)
        } else if is_servers {
            Failure::Servers(error)
        } else {
            Failure::Last(error)
        }
    }

    /// What is still to come, if the server may be at work on it in spite of this error, with
    /// permits that wait for it, or is to forget something.
    pub(super) fn take_rest(
        &mut self,
        ask: &Ask<'_>,
        error: &Error,
        exchange: &Exchange,
        link: &Link,
    ) -> Option<Rest> {
        let is_sound = error.leaves_upstream_at_work() || self.is_programs_fault;
        let is_at_work = !self.has_ended() && self.upload.has_sent(link);
        let holds_permits = exchange.held.is_some() && is_sound && is_at_work;
        let is_asked = self.upload.is_done() && error.kind != Kind::UpstreamBroken;
        let is_followed = holds_permits || (is_asked && ask.forgetting.is_some());
        is_followed.then(|| self.rest(ask, exchange))
    }

    /// What is still to come.
    pub(super) fn rest(&mut self, ask: &Ask<'_>, exchange: &Exchange) -> Rest {
        let stderr = StderrLog::new(*ask.chosen, exchange);
        Rest {
            incoming: std::mem::take(&mut self.incoming),
            stderr: std::mem::replace(&mut self.stderr, stderr),
            forgetting: ask.forgetting.clone(),
        }
    }

    /// Sends the client what of the reply it has not taken yet.
    pub(super) async fn send_rest(&mut self, exchange: &mut Exchange) -> Result<()> {
        poll_fn(|cx| self.reply.poll_rest(cx, &mut exchange.reply)).await
    }

    /// Whether the server has said its last.
    pub(super) fn has_ended(&self) -> bool {
        self.incoming.end().is_some()
    }

    /// Whether the connection can carry another request.
    pub(super) fn leaves_reusable(&self, link: &Link) -> bool {
        self.has_ended() && self.upload.is_done() && link.buffer.is_empty()
    }

    /// Moves everything on as far as it goes; ready when the reply has ended, or its head is there.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        ask: &Ask<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
        in_flight: &InFlight,
    ) -> Poll<Result<()>> {
        loop {
            self.poll_upload(cx, exchange, link)?;
            self.incoming.advance(&mut link.buffer, &mut self.stderr)?;
            if let Some(end) = self.incoming.end() {
                return Poll::Ready(self.ended(end));
            }
            let data = self.incoming.data(&link.buffer);
            let has_data = !data.is_empty();
            if has_data && !self.has_head() {
                self.look_ahead(link);
            }
            if has_data && self.reply.is_whole() {
                // The client has what was promised; the connection goes, and the rest with it.
                return Poll::Ready(Ok(()));
            }
            let taken = self.reply.poll_take(cx, *ask.chosen, exchange, data);
            self.is_programs_fault |= matches!(taken, Poll::Ready(Err(_)));
            if has_data {
                let count = ready!(taken)?;
                self.incoming.consume(count, &mut link.buffer);
                if self.reply.has_unsent_head() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            if let Poll::Ready(Err(error)) = taken {
                return Poll::Ready(Err(error));
            }
            match link.poll_read(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(closed())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(_)) => {
                    self.has_heard = true;
                    self.queue = Queue::default();
                    in_flight.note_heard(ask.chosen.worker.deadlines.now_ms());
                }
                Poll::Pending => return self.poll_silence(cx, ask, exchange, link),
            }
        }
    }

    /// Moves the upload on. A broken upload stops; a server that refused it may have said why.
    fn poll_upload(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
    ) -> Result<()> {
        if self.upload.is_over() {
            return Ok(());
        }
        match self.upload.poll(cx, &mut exchange.body, link) {
            Poll::Ready(Err(error)) if error.kind == Kind::UpstreamBroken => {
                self.is_unsent = !self.upload.has_sent(link);
                self.upload.stop();
                Ok(())
            }
            Poll::Ready(other) => other,
            Poll::Pending => Ok(()),
        }
    }

    /// Nothing came: what there is goes to the client, and the server's time counts.
    fn poll_silence(
        &mut self,
        cx: &mut Context<'_>,
        ask: &Ask<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
    ) -> Poll<Result<()>> {
        if !link.reused && !self.has_heard {
            self.queue.poll(cx, ask.chosen.worker);
        }
        if self.reply.has_head() {
            ready!(exchange.reply.poll_flush(cx))?;
        } else if !self.upload.is_over() {
            return Poll::Pending;
        }
        let has_heard = self.has_heard;
        link.poll_silence(cx, self.read_ms).map(|mut error| {
            if !has_heard {
                let is_ours = ask.fastcgi.pool.is_some() || ask.fastcgi.of_row;
                let key = match is_ours {
                    true => "`processes` of the site's pool",
                    false => "pm.max_children of php-fpm",
                };
                let hint = format!(": it is slow, or all its processes are busy ({key})");
                error.detail.push_str(&hint);
            }
            Err(error)
        })
    }

    /// Sees whether all of a short reply is there, once: more often would cost a responder of many
    /// small records too little and us too much.
    fn look_ahead(&mut self, link: &Link) {
        let remaining = match self.has_output {
            true => None,
            false => self.incoming.remaining(&link.buffer),
        };
        self.has_output = true;
        self.reply.expect(remaining);
    }

    fn ended(&mut self, end: End) -> Result<()> {
        match end.protocol {
            ProtocolStatus::Complete => {
                self.is_programs_fault = true;
                self.reply.end()
            }
            ProtocolStatus::Overloaded => {
                let reason = "upstream_overloaded";
                Err(Error::new(Kind::Full, reason, String::new()))
            }
            ProtocolStatus::CannotMultiplex | ProtocolStatus::UnknownRole => {
                let detail = format!("the server refused the request: {:?}", end.protocol);
                Err(Error::new(Kind::UpstreamBroken, "upstream_refused", detail))
            }
        }
    }
}

impl Queue {
    /// Counts as waiting once patience has run out.
    fn poll(&mut self, cx: &mut Context<'_>, worker: &Worker) {
        let Some(slots) = &self.slots else {
            return;
        };
        if self.waiting.is_some() {
            return;
        }
        let patience = self
            .patience
            .get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        if patience.as_mut().poll(cx).is_ready() {
            self.patience = None;
            self.waiting = Some(slots.wait());
            worker.release_everywhere(slots.server());
        }
    }
}

fn closed() -> Error {
    Error::new(Kind::UpstreamBroken, "upstream_closed", String::new())
}
