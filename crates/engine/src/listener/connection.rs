//! The life of one connection that speaks HTTP/1.1: idle, busy, idle again, closed. One that begins with HTTP/2 goes to `h2`.
//!
//! An idle connection is a small task that holds no buffer. When bytes arrive it grows a busy half,
//! which takes an exchange, serves what is there, and gives the exchange back: the next connection
//! finds it in the processor's cache. After [`LINGER_MS`] without a request the busy half goes; a
//! worker that holds many lets it go at once. Here, and only here, is decided whether a connection
//! may be kept.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use config::model::{Caps, ListenTls, Timeouts};
use wire::{BodyCaps, HeadCaps, Version};

use super::arrival::{Arrival, Listener};
use super::clients::ClientSlot;
use super::{h2, proxy_protocol};
use crate::deadline::{Awaited, Deadline};
use crate::error::{Error, Kind};
use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::h1::body::{H1Body, HeadRead};
use crate::exchange::h1::reply::H1Reply;
use crate::exchange::pace::{Pace, Terms, is_last};
use crate::exchange::request::{Announced, Peer};
use crate::io::Io;
use crate::pipeline;
use crate::tls::accept::accept;
use crate::tls::facts::TlsFacts;
use crate::worker::Worker;

/// How long a connection keeps its busy half after a reply, in milliseconds.
const LINGER_MS: u64 = 1_000;
/// Busy halves a worker may hold and still let connections linger with theirs.
const LINGERING_MAX: usize = 256;

/// What keeps a connection counted: on the load table and in its client's slots.
struct Counted {
    worker: Rc<Worker>,
    slot: Option<ClientSlot>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.worker.loads.disconnected(self.worker.index);
    }
}

/// Counts a connection's busy half until dropped.
struct Lingering<'a> {
    worker: &'a Worker,
}

impl<'a> Lingering<'a> {
    fn new(worker: &'a Worker) -> Self {
        worker.busy.set(worker.busy.get() + 1);
        Self { worker }
    }

    fn is_allowed(&self) -> bool {
        self.worker.busy.get() <= LINGERING_MAX
    }
}

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        self.worker.busy.set(self.worker.busy.get() - 1);
    }
}

/// Starts a connection on this worker, unless its client has too many.
pub(crate) fn start(worker: &Rc<Worker>, arrival: Arrival) {
    let (serving, address) = (worker.serving(), arrival.peer.address.ip());
    let speaks_for_others = serving
        .generation
        .listened
        .is_sender(&arrival.listener.address, address);
    let slot = match speaks_for_others {
        true => Ok(None),
        false => slot(worker, address),
    };
    let Ok(slot) = slot else {
        return crate::stats::bump(&worker.stats.refused, 1);
    };
    worker.loads.connected(worker.index);
    crate::stats::bump(&worker.stats.accepted, 1);
    let counted = Counted {
        worker: Rc::clone(worker),
        slot,
    };
    let io = match Io::new(arrival.stream) {
        Ok(io) => io,
        Err(error) => {
            let error = config::reason(&error);
            return tracing::warn!(error, "connection not registered");
        }
    };
    let tls = serving
        .generation
        .listened
        .tls_at(&arrival.listener.address);
    let (listener, origin) = (arrival.listener, Origin::of(arrival.peer));
    match (speaks_for_others, tls) {
        (false, None) => drop(tokio::task::spawn_local(live(
            counted,
            listener,
            Rc::new(io),
            origin,
        ))),
        (_, tls) => {
            let first = First {
                speaks_for_others,
                tls: tls.cloned(),
            };
            drop(tokio::task::spawn_local(begin(
                counted, listener, io, origin, first,
            )));
        }
    }
}

/// Where a connection comes from, as far as is known.
struct Origin {
    peer: Peer,
    /// What its sender said of it.
    announced: Option<Rc<Announced>>,
    /// What its handshake came to; `None` without TLS.
    tls: Option<Rc<TlsFacts>>,
}

impl Origin {
    fn of(peer: Peer) -> Self {
        Self {
            peer,
            announced: None,
            tls: None,
        }
    }
}

/// What comes before the first request.
struct First {
    /// The peer has to say for whom it speaks.
    speaks_for_others: bool,
    /// There is a handshake.
    tls: Option<ListenTls>,
}

/// A client has as many connections as it may.
struct Full;

/// Takes a client's slot; one without an address needs none.
fn slot(worker: &Worker, address: IpAddr) -> Result<Option<ClientSlot>, Full> {
    if address.is_unspecified() {
        return Ok(None);
    }
    let caps = &worker.serving().generation.process.caps;
    let slot = worker.clients.slot(address, caps.connections_per_client);
    slot.map(Some).ok_or(Full)
}

/// As [`start`], for one that another thread accepted and counted as this worker's.
pub(crate) fn start_handed(worker: &Rc<Worker>, arrival: Arrival) {
    start(worker, arrival);
    worker.loads.disconnected(worker.index);
}

/// How a busy spell ended.
enum Ended {
    /// Nothing to do; wait for more.
    Idle,
    /// The connection is over.
    Close,
    /// Over, but the client may still be sending: let it read the last reply.
    Farewell,
}

/// Hears what comes before the first request, then serves a connection.
async fn begin(
    mut counted: Counted,
    listener: Arc<Listener>,
    mut io: Io,
    mut origin: Origin,
    first: First,
) {
    let worker = Rc::clone(&counted.worker);
    let sender = origin.peer;
    // Boxed, as what follows, so that the task stays small behind it.
    if first.speaks_for_others {
        let header = Box::pin(proxy_protocol::read(&worker, &io, sender)).await;
        (origin.peer, origin.announced) = match header {
            Ok(said) => said,
            Err(reason) => return proxy_protocol::tell(&worker, &listener, sender, reason),
        };
        match slot(&worker, origin.peer.address.ip()) {
            Ok(slot) => counted.slot = slot,
            Err(Full) => return crate::stats::bump(&worker.stats.refused, 1),
        }
    }
    if let Some(tls) = &first.tls {
        let Io::Socket(socket) = io else {
            return;
        };
        let spoken = worker
            .serving()
            .generation
            .listened
            .protocols_at(&listener.address);
        match Box::pin(accept(&worker, tls, socket, origin.peer, spoken)).await {
            Some((sealed, facts)) => (io, origin.tls) = (sealed, Some(facts)),
            None => return,
        }
    }
    drop(first);
    live(counted, listener, Rc::new(io), origin).await;
}

/// Serves a connection until it closes.
async fn live(counted: Counted, listener: Arc<Listener>, io: Rc<Io>, origin: Origin) {
    let worker = Rc::clone(&counted.worker);
    let deadline = worker.deadlines.register();
    let number = worker.next_connection();
    let serving = worker.serving();
    let patience_ms = serving.generation.process.timeouts.header_ms;
    let spoken = serving.generation.listened.protocols_at(&listener.address);
    // With TLS it was agreed on: a client that has not asked for HTTP/2 speaks HTTP/1.1, where that is spoken.
    let is_agreed = origin.tls.as_ref().map(|tls| tls.agreed.is_h2);
    drop(serving);
    let mut connection = Connection {
        worker,
        listener,
        io,
        origin,
        number,
        served: 0,
        patience_ms,
    };
    let is_h2 = match is_agreed {
        _ if !spoken.http11 => true,
        Some(is_h2) => is_h2,
        None if !spoken.http2 => false,
        None => Box::pin(h2::is_preface(&connection.io, &deadline, patience_ms)).await,
    };
    if is_h2 {
        // Boxed, so that the task of any other connection stays small.
        return Box::pin(h2::live(connection, deadline)).await;
    }
    loop {
        let awaited = match connection.served {
            0 => Awaited::FirstRequest,
            _ => Awaited::NextRequest,
        };
        deadline.set_for(awaited, connection.patience_ms);
        let readable = connection.io.readable(&deadline).await;
        deadline.clear();
        if readable.is_err() {
            return;
        }
        // Boxed, so that an idle connection's task stays small.
        match Box::pin(connection.busy(&deadline)).await {
            Ended::Idle if !connection.worker.ends_idle() => {}
            Ended::Idle | Ended::Close => return,
            Ended::Farewell => return Box::pin(connection.io.farewell(&deadline)).await,
        }
    }
}

/// A connection, whatever it carries.
pub(super) struct Connection {
    pub(super) worker: Rc<Worker>,
    listener: Arc<Listener>,
    pub(super) io: Rc<Io>,
    origin: Origin,
    /// No other connection of the server has it.
    number: u64,
    pub(super) served: u64,
    /// How long the next request may be awaited.
    patience_ms: u64,
}

impl Connection {
    /// Serves requests while they come.
    async fn busy(&mut self, deadline: &Deadline) -> Ended {
        let worker = Rc::clone(&self.worker);
        let lingering = Lingering::new(&worker);
        loop {
            let mut exchange = self.exchange();
            match self.serve_all(&mut exchange).await {
                Ended::Idle => worker.spares.give(exchange),
                // What ended otherwise, by a panic perhaps, is nothing to build on.
                over => return over,
            }
            if worker.ends_idle() || !lingering.is_allowed() {
                return Ended::Idle;
            }
            let linger_ms = LINGER_MS.min(self.patience_ms);
            deadline.set_for(Awaited::NextRequest, linger_ms);
            let readable = self.io.readable(deadline).await;
            deadline.clear();
            if readable.is_err() {
                self.patience_ms -= linger_ms;
                return Ended::Idle;
            }
        }
    }

    async fn serve_all(&mut self, exchange: &mut Exchange) -> Ended {
        loop {
            let serving = self.worker.serving();
            let process = &serving.generation.process;
            match self
                .read_head(exchange, &process.caps, &process.timeouts)
                .await
            {
                Ok(HeadRead::Head) => {}
                Ok(HeadRead::Idle) => return Ended::Idle,
                Ok(HeadRead::Closed) => return Ended::Close,
                Err(error) if error.kind == Kind::ClientGone => return Ended::Close,
                Err(error) => return self.refuse(exchange, &process.timeouts, error).await,
            }
            self.served += 1;
            self.begin(exchange, &process.caps, &process.timeouts);
            drop(serving);
            if pipeline::serve(&self.worker, exchange).await.is_err() {
                return Ended::Close;
            }
            match self.end(exchange).await {
                Ended::Idle if has_more(exchange) => {
                    exchange.reset();
                    // Whoever sends many requests at once lets the others have their turn.
                    tokio::task::consume_budget().await;
                }
                over => return over,
            }
        }
    }

    fn exchange(&self) -> Box<Exchange> {
        let worker = &self.worker;
        let mut exchange = worker.spares.acquire();
        self.introduce(&mut exchange);
        match &mut exchange.body {
            Body::H1(body) => body.attach(&self.io),
            Body::H2(_) | Body::Memory(_) => {
                let io = Rc::clone(&self.io);
                exchange.body = Body::H1(H1Body::new(io, &worker.deadlines, &worker.buffers));
            }
        }
        match exchange.reply.h1() {
            Some(reply) => reply.attach(&self.io),
            None => {
                let io = Rc::clone(&self.io);
                exchange.reply = H1Reply::new(io, &worker.deadlines, &worker.clock).into();
            }
        }
        exchange
    }

    /// Says whose the next request is.
    pub(super) fn introduce(&self, exchange: &mut Exchange) {
        let request = &mut exchange.request;
        request.peer = self.origin.peer;
        request.announced.clone_from(&self.origin.announced);
        request.tls.clone_from(&self.origin.tls);
        request.connection = self.number;
    }

    async fn read_head(
        &self,
        exchange: &mut Exchange,
        caps: &Caps,
        timeouts: &Timeouts,
    ) -> Result<HeadRead, Error> {
        let Body::H1(body) = &mut exchange.body else {
            return Ok(HeadRead::Closed);
        };
        let head_caps = head_caps(caps);
        body.read_head(&mut exchange.request.head, &head_caps, timeouts.header_ms)
            .await
    }

    /// Tells both halves about the request just read.
    fn begin(&self, exchange: &mut Exchange, caps: &Caps, timeouts: &Timeouts) {
        exchange.request.number = self.served;
        let head = &exchange.request.head;
        let keep = head.keep_alive && !self.is_leaving();
        if let (Body::H1(body), Some(reply)) = (&mut exchange.body, exchange.reply.h1()) {
            let body_caps = BodyCaps {
                body_bytes: caps.body_bytes,
                chunk_extension_bytes: caps.chunk_extension_bytes,
                trailer_bytes: caps.trailer_bytes,
            };
            let body_pace = Pace {
                silence_ms: timeouts.body_ms,
                rate_min: caps.body_rate_min,
            };
            body.begin(head.framing, &body_caps, body_pace, caps.drain_bytes);
            reply.begin(head.method, head.version, keep, self.terms(caps, timeouts));
        }
    }

    /// The address at its other end.
    pub(super) fn client(&self) -> IpAddr {
        self.origin.peer.address.ip()
    }

    /// Counts its end by us, for what it does below its requests.
    pub(super) fn note_fault(&self, reason: &'static str) {
        let (worker, client) = (&self.worker, self.client());
        crate::stats::bump(&worker.stats.http2.broken_off, 1);
        // One line a second of a client, and none of one that is refused otherwise.
        if worker.shared.refused.count(client, worker.clock.unix_s()) == 1 {
            tracing::info!(%client, reason, "a connection of HTTP/2 was broken off");
        }
    }

    /// How long a head may take.
    pub(super) fn header_ms(&self) -> u64 {
        self.worker.serving().generation.process.timeouts.header_ms
    }

    /// Whether it is to end with what is under way.
    pub(super) fn is_leaving(&self) -> bool {
        // Who comes to a machine that is drained is served, once.
        let is_drained = self.served > 0 && self.worker.shared.fleet.is_drained();
        is_drained || self.worker.is_draining() || self.listener.is_removed()
    }

    /// The terms on which the process replies; whoever answers may have others.
    pub(super) fn terms(&self, caps: &Caps, timeouts: &Timeouts) -> Terms {
        Terms {
            pace: Pace {
                silence_ms: timeouts.write_ms,
                rate_min: caps.write_rate_min,
            },
            is_last: is_last(self.served, caps.requests_per_connection),
            idle_ms: timeouts.idle_ms,
        }
    }

    /// Answers what could not be read as a request, and ends the connection.
    async fn refuse(&self, exchange: &mut Exchange, timeouts: &Timeouts, error: Error) -> Ended {
        let serving = self.worker.serving();
        let head = &exchange.request.head;
        let method = head.method;
        let terms = self.terms(&serving.generation.process.caps, timeouts);
        if let Some(reply) = exchange.reply.h1() {
            reply.begin(method, Version::Http11, false, terms);
        }
        match pipeline::refuse(&self.worker, exchange, error).await {
            Ok(()) => Ended::Farewell,
            Err(_) => Ended::Close,
        }
    }

    /// Decides what becomes of the connection once a reply was sent.
    async fn end(&mut self, exchange: &mut Exchange) -> Ended {
        let waits_for_continue = exchange.request.head.expect_continue;
        let (Body::H1(body), Some(reply)) = (&mut exchange.body, exchange.reply.h1()) else {
            return Ended::Close;
        };
        if !reply.keeps_connection() || waits_for_continue {
            let sends_more = !body.is_ended() || body.has_buffered();
            return if sends_more {
                Ended::Farewell
            } else {
                Ended::Close
            };
        }
        self.patience_ms = reply.idle_ms();
        match body.drain().await {
            Ok(()) => Ended::Idle,
            Err(_) => Ended::Farewell,
        }
    }
}

/// What holds for heads.
pub(super) fn head_caps(caps: &Caps) -> HeadCaps {
    HeadCaps {
        head_bytes: caps.head_bytes,
        target_bytes: caps.target_bytes,
        fields: caps.fields,
    }
}

/// Whether bytes of a further request are here already.
fn has_more(exchange: &Exchange) -> bool {
    matches!(&exchange.body, Body::H1(body) if body.has_buffered())
}
