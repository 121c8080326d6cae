//! One request and its reply, whatever protocol carries them.
//!
//! The seam of the engine: above it nobody sees framing fields, `Connection`, chunks or sockets.
//! An exchange has a [`Request`], a [`Body`] to read, a [`Reply`] to write and a [`Route`] that
//! says what the configuration makes of it. HTTP/1.1 is one way to carry it, a stream of HTTP/2
//! another, memory the third (the pipeline's tests); a new protocol adds a variant to `Body` and `Reply`, nothing above.

pub(crate) mod body;
pub(crate) mod collecting;
pub(crate) mod encoding;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod memory;
pub(crate) mod outgoing;
pub(crate) mod pace;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod route;
pub(crate) mod shadow;
pub(crate) mod spare;
pub(crate) mod stream;

pub(crate) use body::Body;
pub(crate) use reply::{BodySize, Outgoing, Reply};
pub(crate) use request::{Peer, Request};
pub(crate) use route::Route;
pub(crate) use spare::Spares;
pub(crate) use stream::Stream;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use config::model::ErrorPage;
use ipc::console::RequestState;
use tokio::task::JoinSet;
use wire::Fields;

use self::h2::H2Tunnel;
use self::memory::{MemoryBody, MemoryReply};
use self::shadow::Shadow;
use crate::error::Result;
use crate::io::HangUp;
use crate::permits::classes::TenantClass;
use crate::permits::held::Held;
use crate::rewrite::told::Steps;
use crate::scripts::scripted::Scripted;
use crate::shedding::note::Note;
use crate::shedding::tenants::Stay;
use crate::spool::Spool;

/// Stands in records for the status nobody was left to see.
const CLIENT_LEFT: u16 = 499;

/// A request being answered.
#[derive(Debug)]
pub struct Exchange {
    /// What was asked, by whom.
    pub request: Request,
    /// What the configuration makes of it.
    pub route: Route,
    /// The request's body.
    pub body: Body,
    /// The same, where it was taken before the handler began.
    pub spooled: Option<Spool>,
    /// What it holds of the limits it met, until the source of its reply has ended.
    pub held: Option<Held>,
    /// Its stay, which counts as use of its tenant, as long; `None` where nobody counts.
    pub(crate) stay: Option<Stay>,
    /// Status and fields of the reply, filled by a handler before the head is sent ([`crate::reply_head`]).
    pub outgoing: Outgoing,
    /// The way back to the client.
    pub reply: Reply,
    /// Whether a client that sends no more has left, by its handler's wish.
    pub aborts_on_close: bool,
    /// What the access record will say.
    pub record: Record,
    /// What its scripts left behind; `None` until the first one.
    pub scripted: Option<Box<Scripted>>,
    /// What it waits for when the client has its reply; ends with it.
    pub(crate) behind: Option<JoinSet<()>>,
}

/// Facts gathered on the way, for the access record and the metrics.
#[derive(Debug, Default)]
pub struct Record {
    /// When the handler began.
    pub handler_started: Option<Instant>,
    /// Whether it stands for others, of which no record is written.
    pub is_sampled: bool,
    /// Time spent on the upstream: connect to last byte, in microseconds.
    pub upstream_us: u64,
    /// Address of the upstream's server that was tried last.
    pub upstream: Option<Arc<str>>,
    /// Status the upstream gave; 0 if none.
    pub upstream_status: u16,
    /// What the program took that was run for it.
    pub program: Option<ProgramUse>,
    /// Word of the handler that ran; empty if none did.
    pub handler: &'static str,
    /// Why the exchange failed or was refused; empty if it was not.
    pub reason: &'static str,
    /// Which of its tenant's classes it is of, where that has some.
    pub(crate) class: Option<Arc<TenantClass>>,
    /// How long it waited for permits, in microseconds; `None` where no limit asked for any.
    pub waited_us: Option<u64>,
    /// How long it waited for its pool to start, in microseconds; `None` where it ran.
    pub pool_wait_us: Option<u64>,
    /// The limit that refused it, as its state is kept by.
    pub limit: Option<Arc<str>>,
    /// Its key there.
    pub limit_key: String,
    /// Its page for those it refuses, where it has one of its own.
    pub limit_page: Option<Arc<ErrorPage>>,
    /// What is known of its being shed.
    pub(crate) shed: Option<Box<Note>>,
    /// What would have become of it, were nothing in shadow; `None` where that is the same.
    pub shadow: Option<Box<Shadow>>,
    /// What was asked for in the place of what the client did, by the last rewrite; empty if none was.
    pub rewritten: Vec<u8>,
    /// How it came to that.
    pub(crate) steps: Steps,
    /// User name of Basic auth; empty if none.
    pub user: String,
    /// Stands for the status of a reply that was never meant to be sent; 0 otherwise.
    pub unsent_status: u16,
}

/// What a program took.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ProgramUse {
    /// Processor time of it and the children it waited for, in microseconds.
    pub cpu_us: u64,
    /// The most memory one of them had resident.
    pub peak_bytes: u64,
}

impl Record {
    /// Notes how long the upstream has taken, from `started` until now.
    pub fn note_upstream_time(&mut self, started: Instant) {
        let elapsed_us = started.elapsed().as_micros();
        self.upstream_us = u64::try_from(elapsed_us).unwrap_or(u64::MAX);
    }

    /// What is told of what is in shadow, which begins with this word where there was nothing yet.
    pub(crate) fn shadow(&mut self, reason: &'static str) -> &mut Shadow {
        let shadow = self.shadow.get_or_insert_default();
        if shadow.reason.is_empty() {
            shadow.reason = reason;
        }
        shadow
    }

    fn clear(&mut self) {
        let mut user = std::mem::take(&mut self.user);
        let mut limit_key = std::mem::take(&mut self.limit_key);
        user.clear();
        limit_key.clear();
        *self = Self {
            user,
            limit_key,
            ..Self::default()
        };
    }
}

impl Exchange {
    /// Puts an exchange together; `head` and the rest are filled for each request.
    pub fn new(peer: Peer, body: Body, reply: Reply) -> Self {
        Self {
            request: Request::new(peer),
            route: Route::default(),
            body,
            spooled: None,
            held: None,
            stay: None,
            outgoing: Outgoing::default(),
            reply,
            aborts_on_close: false,
            record: Record::default(),
            scripted: None,
            behind: None,
        }
    }

    /// Makes it ready for the next request on the same connection.
    pub fn reset(&mut self) {
        self.route.clear();
        self.spooled = None;
        self.outgoing.clear();
        self.aborts_on_close = false;
        self.record.clear();
        if let Some(scripted) = &mut self.scripted {
            scripted.end();
        }
    }

    /// Waits for what is left to be done, the client having its reply.
    pub(crate) async fn end_behind(&mut self) {
        if let Some(mut behind) = self.behind.take() {
            while behind.join_next().await.is_some() {}
        }
    }

    /// Moves what is known of the exchange into one of its own, for what goes on when this one
    /// begins with its next request.
    pub(crate) fn depart(&mut self, spares: &Spares) -> Box<Self> {
        let mut departed = spares.acquire();
        let (body_bytes, sent_bytes) = (self.reply.body_bytes(), self.reply.sent_bytes());
        departed.body = Body::Memory(MemoryBody::taken(self.body.bytes_read()));
        departed.reply = MemoryReply::sent(self.status(), body_bytes, sent_bytes).into();
        std::mem::swap(&mut self.request, &mut departed.request);
        std::mem::swap(&mut self.route, &mut departed.route);
        std::mem::swap(&mut self.outgoing, &mut departed.outgoing);
        std::mem::swap(&mut self.record, &mut departed.record);
        std::mem::swap(&mut self.scripted, &mut departed.scripted);
        // What the connection still asks.
        self.request.peer = departed.request.peer;
        self.request
            .announced
            .clone_from(&departed.request.announced);
        self.request.head.expect_continue = departed.request.head.expect_continue;
        departed
    }

    /// Starts the reply as it is.
    pub(crate) fn start_reply(&mut self, size: BodySize) {
        let close = self.closes_after();
        if let Some(held) = &self.held {
            held.note(RequestState::Sending);
        }
        self.reply.start(&self.outgoing, size, close);
    }

    /// Starts the reply when all of its body is there, or more than `bytes_max` of it.
    pub(crate) fn collect_reply(&mut self, size: BodySize, bytes_max: usize) {
        let close = self.closes_after();
        let head = self.outgoing.clone();
        self.reply.collect(head, size, close, bytes_max);
    }

    /// Starts a reply that was kept back; its body is still to be written.
    pub(crate) fn start_collected(&mut self, size: BodySize, close: bool) {
        self.reply.start(&self.outgoing, size, close);
    }

    /// Whether nothing may follow on the connection. Whoever still waits for a 100 may send the
    /// body or not: what follows can't be told apart.
    fn closes_after(&self) -> bool {
        let unread = !self.body.is_ended();
        let doubtful = self.request.head.expect_continue || self.body.is_too_long_to_drain();
        unread && doubtful
    }

    /// Ready when the client has gone for good. One that only sends no more is still answered, unless
    /// its handler ends with that; over TCP the two are told apart by a byte sent ahead.
    pub fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.reply.poll_reset(cx).is_ready() {
            return Poll::Ready(());
        }
        match ready!(self.body.poll_hang_up(cx)) {
            HangUp::Sending if !self.aborts_on_close => self.reply.poll_probe(cx),
            HangUp::Sending | HangUp::Both => Poll::Ready(()),
        }
    }

    /// What `work` comes to; `None` once the client has gone for good.
    pub(crate) async fn while_client_stays<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let ended = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => self.poll_client_gone(cx).map(|()| None),
        });
        ended.await
    }

    /// Tells a client that waits for `100 Continue` to send its body.
    ///
    /// # Errors
    /// When the client has gone.
    pub async fn invite_body(&mut self) -> Result<()> {
        if std::mem::take(&mut self.request.head.expect_continue) && !self.body.has_begun() {
            self.reply.push_interim(100, &Fields::default());
            poll_fn(|cx| self.reply.poll_flush(cx)).await?;
        }
        Ok(())
    }

    /// What carries it, for a tunnel; `None` where there is nothing to be had.
    pub(crate) fn take_stream(&mut self) -> Option<Stream> {
        match &mut self.body {
            Body::H1(body) => body.take_stream(),
            Body::H2(body) => {
                let (receiver, data, shared) = body.take()?;
                let sender = self.reply.h2()?.take()?;
                let tunnel = H2Tunnel::new(receiver, data, sender, shared);
                Some(Stream::H2(Box::new(tunnel)))
            }
            Body::Memory(_) => None,
        }
    }

    /// Whether it lies inside of another, one of whose scripts has made it.
    pub(crate) fn is_inside(&self) -> bool {
        let scripted = self.scripted.as_ref();
        scripted.is_some_and(|scripted| scripted.is_inside())
    }

    /// Whether a script has sent it elsewhere, inside.
    pub(crate) fn was_sent_elsewhere(&self) -> bool {
        let scripted = self.scripted.as_ref();
        scripted.is_some_and(|scripted| scripted.was_sent_elsewhere())
    }

    /// The status the exchange ended with: what was sent, or 499 where the client left before.
    pub fn status(&self) -> u16 {
        match self.reply.status() {
            0 if self.record.unsent_status != 0 => self.record.unsent_status,
            0 => CLIENT_LEFT,
            status => status,
        }
    }
}
