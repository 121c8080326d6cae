//! The life of one HTTP/2 connection (RFC 9113): one task that reads frames and answers all its streams.
//!
//! The one idea: the walls are where they were. A stream is an exchange like any other, with the same limits, queues and
//! records; the connection belongs to its client and has one turn among the others, however many streams it has. Frames
//! are the crate `h2`'s; what it shows nothing of is looked at below it ([`frames`]). A stream counts until its work has
//! ended, whatever becomes of it in between. Pushed replies, priorities and trailers are left out.

mod frames;
mod io;
#[cfg(test)]
mod property;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use config::model::sensor::{Gauge, Sensor};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::Request;
use wire::{HeadCaps, PseudoFields, Refusal};

use self::frames::{Fault, PREFACE};
use self::io::{FrameIo, H2Io};
use super::connection::{Connection, head_caps};
use crate::deadline::{Awaited, Deadline};
use crate::exchange::h2::{H2Body, H2Reply, H2Shared, SEND_BYTES_MAX};
use crate::exchange::pace::Pace;
use crate::exchange::{Body, Exchange};
use crate::http2_stats::Http2Stats;
use crate::io::Io;
use crate::pipeline;
use crate::shedding::Shedding;
use crate::stats::WorkerStats;
use crate::worker::Worker;

/// Streams a client may have open at once.
const STREAMS_MAX: usize = 100;
/// Those of them that are answered at once while a rule sheds.
const SHEDDING_STREAMS_MAX: usize = 32;
/// What a stream may send ahead of whoever reads it.
const STREAM_WINDOW: u32 = 64 * 1024;
/// What all streams of a connection may: bodies that wait in a queue take nothing of those that are being read.
const CONNECTION_WINDOW: u32 = STREAMS_MAX as u32 * STREAM_WINDOW;
/// What HTTP/2 counts for a field beside name and value (RFC 9113, 6.5.2).
const FIELD_BYTES: usize = 32;
/// How long an idle connection is kept while memory is short, where nothing else is said, in milliseconds.
const SHORT_IDLE_MS: u64 = 30_000;
/// How long a client may take to hear that a connection ends.
const GOING_MS: u64 = 2_000;
/// How long streams wait until one of them is answered, however many are: none waits for ever for others that last.
const PLACE_MS: u64 = 1_000;
/// A wait that only a drain ends.
const FOR_EVER_MS: u64 = u64::MAX / 4;

type H2 = h2::server::Connection<H2Io, Bytes>;
/// A stream being answered.
type Answering = Pin<Box<dyn Future<Output = ()>>>;
/// A request that has come.
type Arrived = (Request<RecvStream>, SendResponse<Bytes>);

/// How far a connection is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The client was told that no more streams are taken.
    Going,
    /// It is broken off, or has broken.
    Broken,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// A stream: there is none.
    Idle,
    /// Its streams.
    Streams,
    /// Places for streams that nobody answers yet.
    Places,
}

/// Whether a client begins with HTTP/2; looks at what it sends without taking it.
pub(super) async fn is_preface(io: &Io, deadline: &Deadline, patience_ms: u64) -> bool {
    let mut room = [0; PREFACE.len()];
    let mut seen = 0;
    deadline.set_for(Awaited::FirstRequest, patience_ms);
    let is_preface = poll_fn(|cx| {
        loop {
            let Poll::Ready(peeked) = io.poll_peek(cx, &mut room, seen) else {
                return deadline.poll_expired(cx).map(|()| false);
            };
            let count = peeked.unwrap_or(0);
            let is_like = room.get(..count) == PREFACE.get(..count);
            if !is_like || count <= seen || count == PREFACE.len() {
                return Poll::Ready(is_like && count == PREFACE.len());
            }
            seen = count;
        }
    });
    let is_preface = is_preface.await;
    deadline.clear();
    is_preface
}

/// Serves a connection until it closes.
pub(super) async fn live(connection: Connection, deadline: Deadline) {
    let worker = Rc::clone(&connection.worker);
    let shared = Rc::new(H2Shared::default());
    let Some((mut h2, io)) = begin(&connection, &shared, &deadline).await else {
        return connection.io.farewell(&deadline).await;
    };
    let counted = OneMore::new(&worker, |it| &it.connections);
    let mut life = Life {
        head_deadline: worker.deadlines.register(),
        connection,
        io,
        deadline,
        waiting: VecDeque::new(),
        streams: FuturesUnordered::new(),
        shared,
        going_until_ms: 0,
        stage: Stage::Open,
        waits: None,
        begun: 0,
        text: Vec::new(),
    };
    poll_fn(|cx| life.poll(cx, &mut h2)).await;
    // Whoever still answers a stream hears of it, and ends in his own time.
    drop(h2);
    life.waiting.clear();
    while life.streams.next().await.is_some() {}
    drop(counted);
    // What is unread would destroy our last word.
    life.connection.io.farewell(&life.deadline).await;
}

/// Says our settings and hears the client's; `None` where nothing comes of it.
async fn begin(
    connection: &Connection,
    shared: &Rc<H2Shared>,
    deadline: &Deadline,
) -> Option<(H2, Rc<RefCell<FrameIo>>)> {
    let worker = &connection.worker;
    let serving = worker.serving();
    let (caps, timeouts) = (
        &serving.generation.process.caps,
        &serving.generation.process.timeouts,
    );
    shared.pace.set(Pace {
        silence_ms: timeouts.write_ms,
        rate_min: caps.write_rate_min,
    });
    let io = FrameIo::new(Rc::clone(&connection.io), shared, &worker.deadlines);
    let io = Rc::new(RefCell::new(io));
    let header_list_bytes = caps.head_bytes + caps.fields * FIELD_BYTES;
    let streams = streams_max(worker);
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(u32::try_from(streams).unwrap_or(u32::MAX))
        .max_header_list_size(u32::try_from(header_list_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(STREAMS_MAX)
        .enable_connect_protocol()
        .handshake(H2Io(Rc::clone(&io)));
    deadline.set_for(Awaited::FirstRequest, timeouts.header_ms);
    drop(serving);
    let mut handshake = pin!(handshake);
    let begun = poll_fn(|cx| {
        let begun = handshake.as_mut().poll(cx);
        let sent = io.borrow_mut().poll_send(cx);
        match (begun, sent) {
            (_, Poll::Ready(Err(_))) => Poll::Ready(None),
            (Poll::Ready(begun), _) => Poll::Ready(begun.ok()),
            (Poll::Pending, _) => deadline.poll_expired(cx).map(|()| None),
        }
    });
    let begun = begun.await;
    deadline.clear();
    Some((begun?, io))
}

/// How many streams of a connection are answered at once.
fn streams_max(worker: &Worker) -> usize {
    let serving = worker.serving();
    let shedding = serving.generation.shedding.as_ref();
    match shedding.is_some_and(Shedding::is_active) {
        true => SHEDDING_STREAMS_MAX,
        false => STREAMS_MAX,
    }
}

/// How long a connection without streams is kept.
fn idle_ms(worker: &Worker) -> u64 {
    let serving = worker.serving();
    let timeouts = &serving.generation.process.timeouts;
    let available = Gauge::MemoryAvailable;
    let is_short = || {
        let available_now = worker.shared.sensors.value(&Sensor::Here(available));
        available_now < available.too_much() && available_now.is_some()
    };
    match timeouts.idle_h2_ms {
        Some(idle_ms) => idle_ms,
        None if is_short() => SHORT_IDLE_MS.min(timeouts.idle_ms),
        None => timeouts.idle_ms,
    }
}

/// A connection, its streams and its waits.
struct Life {
    connection: Connection,
    io: Rc<RefCell<FrameIo>>,
    /// Of what the connection waits for.
    deadline: Deadline,
    /// Of a head that has begun.
    head_deadline: Deadline,
    /// Streams that nobody answers yet.
    waiting: VecDeque<Arrived>,
    streams: FuturesUnordered<Answering>,
    shared: Rc<H2Shared>,
    stage: Stage,
    /// Until when streams are taken by a connection that is going.
    going_until_ms: u64,
    /// What the deadline is for; `None` where it was not set yet.
    waits: Option<Waits>,
    /// Streams begun in this turn.
    begun: usize,
    /// Scratch for heads.
    text: Vec<u8>,
}

impl Life {
    /// One turn: reads frames, answers streams, and sends what came of it. Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>, h2: &mut H2) -> Poll<()> {
        self.begun = 0;
        loop {
            while let Poll::Ready(arrived) = h2.poll_accept(cx) {
                match arrived {
                    Some(Ok(arrived)) => self.arrive(arrived),
                    Some(Err(error)) => {
                        self.note_broken(&error);
                        return Poll::Ready(());
                    }
                    None => return Poll::Ready(()),
                }
            }
            let mut has_moved = self.begin_waiting();
            while let Poll::Ready(Some(())) = self.streams.poll_next_unpin(cx) {
                has_moved = true;
            }
            has_moved |= self.judge(h2);
            if !has_moved {
                break;
            }
            if self.begun >= STREAMS_MAX {
                // Others have their turn first.
                cx.waker().wake_by_ref();
                break;
            }
        }
        if let Poll::Ready(Err(_)) = self.io.borrow_mut().poll_send(cx) {
            self.stage = Stage::Broken;
            return Poll::Ready(());
        }
        self.poll_deadlines(cx, h2)
    }

    /// Takes a stream in; it waits until there is a place for it.
    fn arrive(&mut self, arrived: Arrived) {
        let stream = arrived.1.stream_id().as_u32();
        self.io.borrow_mut().frames.note_accepted(stream);
        let now_ms = self.connection.worker.deadlines.now_ms();
        if self.stage != Stage::Open && now_ms > self.going_until_ms {
            // It has had time to hear of that: another connection is to be made.
            let (_, mut respond) = arrived;
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        if self.waiting.len() >= STREAMS_MAX {
            // The client has reset as many as wait: they are gone to the crate, and not to us.
            self.waiting.retain_mut(|(_, respond)| !is_reset(respond));
        }
        match self.waiting.len() < STREAMS_MAX {
            true => self.waiting.push_back(arrived),
            false => self.io.borrow_mut().frames.note_flood(),
        }
    }

    /// Has streams answered that have waited; says whether there were any.
    fn begin_waiting(&mut self) -> bool {
        let mut has_begun = false;
        while !self.waiting.is_empty() && self.streams.len() < streams_max(&self.connection.worker)
        {
            has_begun |= self.begin_next();
        }
        has_begun
    }

    /// Has the stream answered that has waited longest; says whether there was one.
    fn begin_next(&mut self) -> bool {
        while let Some(mut arrived) = self.waiting.pop_front() {
            if !is_reset(&mut arrived.1) {
                self.begin(arrived);
                return true;
            }
        }
        false
    }

    /// Makes an exchange of a stream.
    fn begin(&mut self, (request, respond): Arrived) {
        let connection = &mut self.connection;
        connection.served += 1;
        self.begun += 1;
        if self.stage == Stage::Open {
            // It was not idle, even where it is again by the end of this turn.
            self.waits = None;
        }
        let worker = Rc::clone(&connection.worker);
        let serving = worker.serving();
        let process = &serving.generation.process;
        let mut exchange = worker.h2_spares.acquire();
        connection.introduce(&mut exchange);
        exchange.request.number = connection.served;
        let caps = head_caps(&process.caps);
        let read = read_head(&mut exchange, &request, &worker, &caps, &mut self.text);
        let head = &exchange.request.head;
        let is_connect = request.extensions().get::<Protocol>().is_some();
        let pace = Pace {
            silence_ms: process.timeouts.body_ms,
            rate_min: process.caps.body_rate_min,
        };
        if !matches!(exchange.body, Body::H2(_)) {
            exchange.body = Body::H2(H2Body::new(&worker.deadlines));
            exchange.reply = H2Reply::new(&worker.deadlines, &worker.clock).into();
        }
        if let (Body::H2(body), Some(reply)) = (&mut exchange.body, exchange.reply.h2()) {
            let (body_bytes, drain_bytes) = (process.caps.body_bytes, process.caps.drain_bytes);
            body.begin(
                request.into_body(),
                head.framing,
                pace,
                body_bytes,
                drain_bytes,
                &self.shared,
            );
            let terms = connection.terms(&process.caps, &process.timeouts);
            reply.begin(respond, head.method, is_connect, terms, &self.shared);
        }
        self.streams.push(Box::pin(answer(worker, exchange, read)));
    }

    /// Lets the connection end where it has to; says whether the client is to be told.
    fn judge(&mut self, h2: &mut H2) -> bool {
        let fault = self.io.borrow().frames.fault();
        if let (Some(fault), true) = (fault, self.stage != Stage::Broken) {
            (self.stage, self.waits) = (Stage::Broken, None);
            let (code, reason) = match fault {
                Fault::Flood => (Reason::ENHANCE_YOUR_CALM, "h2_flood"),
                Fault::Disagreement => (Reason::INTERNAL_ERROR, "h2_disagreement"),
            };
            self.connection.note_fault(reason);
            h2.abrupt_shutdown(code);
            return true;
        }
        match self.stage {
            Stage::Open if self.shared.is_last.get() || self.connection.is_leaving() => {
                self.go(h2);
                true
            }
            _ => false,
        }
    }

    /// Tells the client that no more streams are taken, in two steps (RFC 9113, 6.8).
    fn go(&mut self, h2: &mut H2) {
        (self.stage, self.waits) = (Stage::Going, None);
        self.going_until_ms = self.connection.worker.deadlines.now_ms() + GOING_MS;
        h2.graceful_shutdown();
    }

    fn poll_deadlines(&mut self, cx: &mut Context<'_>, h2: &mut H2) -> Poll<()> {
        match self.io.borrow().frames.is_within_head() {
            true => drop(self.head_deadline.set_if_clear(self.connection.header_ms())),
            false => self.head_deadline.clear(),
        }
        if self.head_deadline.poll_expired(cx).is_ready() {
            self.stage = Stage::Broken;
            return Poll::Ready(());
        }
        self.set_deadline();
        ready!(self.deadline.poll_expired(cx));
        match self.stage {
            Stage::Open | Stage::Going if self.waits == Some(Waits::Places) => {
                self.waits = None;
                self.begin_next();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Stage::Open => {
                // What is sent for it, and what the client says to it, comes with the next turn.
                self.go(h2);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Stage::Going | Stage::Broken => Poll::Ready(()),
        }
    }

    /// Waits as long as may be waited in the state that the connection is in; nothing a client does without opening a
    /// stream makes that longer.
    fn set_deadline(&mut self) {
        let waits = match (self.waiting.is_empty(), self.streams.is_empty()) {
            (false, _) => Waits::Places,
            (true, false) => Waits::Streams,
            (true, true) => Waits::Idle,
        };
        if self.waits == Some(waits) {
            return;
        }
        self.waits = Some(waits);
        if waits == Waits::Idle {
            (self.waiting, self.text) = (VecDeque::new(), Vec::new());
            self.io.borrow_mut().rest();
        }
        let awaited = match self.connection.served {
            0 => Awaited::FirstRequest,
            _ => Awaited::NextStream,
        };
        match (self.stage, waits) {
            (Stage::Open, Waits::Idle) => {
                let wait_ms = match awaited {
                    Awaited::FirstRequest => self.connection.header_ms(),
                    _ => idle_ms(&self.connection.worker),
                };
                self.deadline.set_for(awaited, wait_ms);
            }
            // A drain is to be heard of.
            (Stage::Open, Waits::Streams) => {
                self.deadline.set_for(Awaited::NextStream, FOR_EVER_MS);
            }
            (Stage::Open, Waits::Places) => self.deadline.set_for(Awaited::NextStream, PLACE_MS),
            (Stage::Going, Waits::Places) => self.deadline.set(PLACE_MS),
            (_, Waits::Idle) => self.deadline.set(GOING_MS),
            (_, _) => self.deadline.clear(),
        }
    }

    fn note_broken(&mut self, error: &h2::Error) {
        self.stage = Stage::Broken;
        let is_ours = error.is_go_away() && error.is_library();
        if is_ours && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
            self.connection.note_fault("h2_flood");
        }
    }
}

/// Whether a stream that waits was reset.
fn is_reset(respond: &mut SendResponse<Bytes>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    respond.poll_reset(&mut cx).is_ready()
}

/// Reads a request's head.
fn read_head(
    exchange: &mut Exchange,
    request: &Request<RecvStream>,
    worker: &Worker,
    caps: &HeadCaps,
    text: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let uri = request.uri();
    let protocol = request.extensions().get::<Protocol>();
    let key = protocol.map(|_| {
        let bytes = [worker.draw().to_ne_bytes(), worker.draw().to_ne_bytes()];
        STANDARD.encode(bytes.concat())
    });
    let pseudo = PseudoFields {
        method: request.method().as_str().as_bytes(),
        scheme: uri.scheme_str().unwrap_or_default().as_bytes(),
        authority: uri.authority().map_or("", |it| it.as_str()).as_bytes(),
        path: uri.path_and_query().map_or("", |it| it.as_str()).as_bytes(),
        protocol: protocol.map(|it| it.as_str().as_bytes()),
        is_whole: request.body().is_end_stream(),
    };
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let key = key.unwrap_or_default();
    let head = &mut exchange.request.head;
    head.read_http2(&pseudo, fields, key.as_bytes(), caps, text)
}

/// Answers a stream, to its reply's last byte.
async fn answer(worker: Rc<Worker>, mut exchange: Box<Exchange>, read: Result<(), Refusal>) {
    let counted = OneMore::new(&worker, |it| &it.streams);
    let answered = match read {
        Ok(()) => pipeline::serve(&worker, &mut exchange).await,
        Err(refusal) => pipeline::refuse(&worker, &mut exchange, refusal.into()).await,
    };
    drop(counted);
    // Whoever did not take it all has reset the stream, or is reset with it; what ended so is nothing to build on.
    if answered.is_ok() && exchange.record.reason != "panic" {
        worker.h2_spares.give(exchange);
    }
}

/// Counts as one more until dropped.
struct OneMore {
    stats: Arc<WorkerStats>,
    of: fn(&Http2Stats) -> &AtomicU64,
}

impl OneMore {
    fn new(worker: &Worker, of: fn(&Http2Stats) -> &AtomicU64) -> Self {
        let stats = Arc::clone(&worker.stats);
        of(&stats.http2).fetch_add(1, Relaxed);
        Self { stats, of }
    }
}

impl Drop for OneMore {
    fn drop(&mut self) {
        (self.of)(&self.stats.http2).fetch_sub(1, Relaxed);
    }
}
