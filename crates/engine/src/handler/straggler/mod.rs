//! Stragglers: servers and programs at work for a request that nobody waits for any more.
//!
//! A client that leaves ends its exchange at once, but hardly ever the work it began. A permit that
//! came back then would admit the next request beside the old one, and whoever the limit protects
//! would do more at once than it says. So the permits stay with the work: the connection is closed
//! in our direction, which is all a server sees of a client that goes (and one that looks, such as
//! nginx or Go, stops at once); then what it still says is thrown away until it ends, and only then
//! are the permits given back.
//!
//! There is an end to that. A server that says nothing has `timeouts.upstream_read`, and at most
//! [`SILENCE_MS_MAX`]; one that speaks has [`LAST_WORDS_MS`] and [`SAID_BYTES_MAX`] to come to its
//! end. Then the connection is closed for good: a server that writes to it is told by the kernel,
//! and that is how a PHP page learns that its client has gone. FastCGI has a record that asks for an
//! end; it is not sent, because php-fpm reads nothing while a page runs, and what lies unread when
//! it closes would destroy its last words. An exchange that holds no permit never comes here: its
//! connection is closed at once.
//!
//! A process of php-fpm that was told settings of one page alone is to forget them at its end
//! (`fastcgi/settings.rs`): nothing of its connection is closed before, all that it says is read, and it
//! is followed without permits as well, for [`SILENCE_MS_MAX`] whatever others have; where there are too
//! many, its exchange waits for that once the client has its reply. Its pool ends pages that never do (`pool = { time }`).
//!
//! Each is a task of its worker and ends with it. A drain waits for those alone that are to forget
//! something, where another server takes over their pools.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fastcgi::rest::Rest as RecordsRest;
use super::proxy::rest::Rest as HttpRest;
use crate::bounds;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::permits::held::Held;
use crate::permits::limiter::Limiter;
use crate::programs::link::Program;
use crate::shedding::tenants::Stay;
use crate::stage::Routed;
use crate::stats::{StragglerEnd, WorkerStats, bump};
use crate::upstream::link::Link;
use crate::upstream::server::InFlight;
use crate::worker::Worker;

/// How many a worker follows. Of one more the connection is closed and the permit given back.
const STRAGGLERS_MAX: u64 = if cfg!(test) { 2 } else { 1_024 };
/// How long one that says nothing is followed, however long it might be silent otherwise.
const SILENCE_MS_MAX: u64 = 10 * 60 * 1_000;
/// How long a server that speaks to nobody may take to come to its end, from its first byte on.
const LAST_WORDS_MS: u64 = if cfg!(test) { 100 } else { 2_000 };
/// How much it may say meanwhile.
const SAID_BYTES_MAX: usize = 256 * 1024;

/// A connection whose server may be at work, and what is still to come of its reply.
pub(super) struct Abandoned {
    pub(super) link: Box<Link>,
    /// The server has it in flight for as long.
    pub(super) in_flight: InFlight,
    pub(super) rest: Rest,
}

/// What is still to come of a reply.
pub(super) enum Rest {
    /// A reply in HTTP/1.1.
    Http(Box<HttpRest>),
    /// Records of FastCGI.
    Records(Box<RecordsRest>),
    /// Bytes of a tunnel, until the server closes it.
    Bytes,
}

/// A server at work for nobody.
struct Straggler {
    abandoned: Abandoned,
    /// Whether it is asked to forget something at its end: until then it is waited for.
    is_to_forget: bool,
    said_bytes: usize,
    patience: Deadline,
}

/// What a straggler holds, given back when this is dropped at the latest.
struct Holding {
    held: Option<Held>,
    /// What the work counts for its tenant goes on as long.
    #[allow(dead_code, reason = "held for its drop")]
    stay: Option<Stay>,
    limiter: Arc<Limiter>,
    counted: Counted,
}

/// Counts a straggler until dropped.
struct Counted {
    stats: Arc<WorkerStats>,
    is_to_forget: bool,
}

/// Follows a server to its end if the exchange holds permits, which stay held meanwhile. Closes
/// the connection where it holds none.
pub(super) fn follow_server(routed: Routed<'_>, exchange: &mut Exchange, abandoned: Abandoned) {
    if exchange.held.is_some() && has_room(routed.worker) {
        let patience = patience(routed, exchange, false);
        let holding = Holding::new(routed.worker, false).taking(exchange);
        tokio::task::spawn_local(follow(Straggler::new(abandoned, patience), holding));
    }
}

/// Has a server forget what it was to know for one request, as its [`Abandoned::rest`] says, before
/// anybody else gets its process. It is at work for its exchange no longer where the reply has ended,
/// whatever it does meanwhile.
pub(super) fn forget(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    abandoned: Abandoned,
    has_ended: bool,
) {
    let patience = patience(routed, exchange, true);
    let straggler = Straggler::new(abandoned, patience);
    let is_crowded = !has_room(routed.worker);
    let mut holding = Holding::new(routed.worker, true);
    if !has_ended {
        holding = holding.taking(exchange);
    }
    let following = follow(straggler, holding);
    if is_crowded {
        let behind = exchange.behind.get_or_insert_default();
        behind.spawn_local(following);
    } else {
        tokio::task::spawn_local(following);
    }
}

/// Whether there is room for one more.
fn has_room(worker: &Worker) -> bool {
    let stragglers = &worker.stats.stragglers;
    let has_room = stragglers.now() < STRAGGLERS_MAX;
    if !has_room {
        bump(stragglers.ended(StragglerEnd::Crowded), 1);
    }
    has_room
}

async fn follow(mut straggler: Straggler, holding: Holding) {
    let end = poll_fn(|cx| straggler.poll(cx)).await;
    // In this order: whoever is admitted next finds the connection closed.
    drop(straggler);
    holding.end(end);
}

/// Waits for the end of a program that was killed, if the exchange holds permits.
pub(super) fn follow_program(routed: Routed<'_>, exchange: &mut Exchange, program: Program) {
    if exchange.held.is_none() || !has_room(routed.worker) {
        return;
    }
    let holding = Holding::new(routed.worker, false).taking(exchange);
    let patience = patience(routed, exchange, false);
    tokio::task::spawn_local(async move {
        let end = poll_fn(|cx| match program.poll_outcome(cx) {
            Poll::Ready(_) => Poll::Ready(StragglerEnd::Finished),
            Poll::Pending => patience.poll_expired(cx).map(|()| StragglerEnd::Cut),
        });
        holding.end(end.await);
    });
}

/// Runs while a straggler says nothing; of one that is to forget something, until it has.
fn patience(routed: Routed<'_>, exchange: &Exchange, forgets: bool) -> Deadline {
    let silence_ms = match forgets {
        true => SILENCE_MS_MAX,
        false => bounds::upstream_read_ms(routed, &exchange.route),
    };
    let deadline = routed.worker.deadlines.register();
    deadline.set(silence_ms.min(SILENCE_MS_MAX));
    deadline
}

impl Rest {
    /// Whether it is asked to forget something at its end.
    fn is_to_forget(&self) -> bool {
        matches!(self, Self::Records(rest) if rest.is_to_forget())
    }

    /// Throws away what the link has read; says whether the reply's end was among it.
    fn discard(&mut self, link: &mut Link) -> Result<bool> {
        match self {
            Self::Http(rest) => rest.discard(link),
            Self::Records(rest) => rest.discard(link),
            Self::Bytes => {
                link.buffer.consume(link.buffer.data().len());
                Ok(false)
            }
        }
    }
}

impl Straggler {
    fn new(abandoned: Abandoned, patience: Deadline) -> Self {
        let is_to_forget = abandoned.rest.is_to_forget();
        if !is_to_forget {
            abandoned.link.io.shutdown_write();
        }
        Self {
            abandoned,
            is_to_forget,
            said_bytes: 0,
            patience,
        }
    }

    /// Throws away what comes; ready when the server has ended or has had its time.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<StragglerEnd> {
        let Abandoned {
            link,
            rest,
            in_flight,
        } = &mut self.abandoned;
        loop {
            match rest.discard(link) {
                Ok(true) => return Poll::Ready(StragglerEnd::Finished),
                Ok(false) => {}
                Err(_) => return Poll::Ready(StragglerEnd::Cut),
            }
            if self.is_to_forget {
                if let Poll::Ready(Err(_)) = link.poll_send(cx, &[], SILENCE_MS_MAX) {
                    return Poll::Ready(StragglerEnd::Finished);
                }
                if self.patience.poll_expired(cx).is_ready() {
                    return Poll::Ready(StragglerEnd::Cut);
                }
            }
            match link.poll_read(cx) {
                // Closed, or killed: either way nobody works there any more.
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(StragglerEnd::Finished),
                Poll::Ready(Ok(count)) => {
                    if self.said_bytes == 0 {
                        in_flight.note_heard(self.patience.now_ms());
                        if !self.is_to_forget {
                            self.patience.set(LAST_WORDS_MS);
                        }
                    }
                    self.said_bytes += count;
                    if self.said_bytes > SAID_BYTES_MAX && !self.is_to_forget {
                        return Poll::Ready(StragglerEnd::Cut);
                    }
                }
                Poll::Pending => {
                    let over = self.patience.poll_expired(cx);
                    return over.map(|()| StragglerEnd::Cut);
                }
            }
        }
    }
}

impl Holding {
    fn new(worker: &Worker, forgets: bool) -> Self {
        Self {
            held: None,
            stay: None,
            limiter: Arc::clone(&worker.shared.limits),
            counted: Counted::new(&worker.stats, forgets),
        }
    }

    /// Takes the permits over, which would go with the exchange otherwise.
    fn taking(self, exchange: &mut Exchange) -> Self {
        if let Some(held) = &exchange.held {
            held.note(ipc::console::RequestState::Abandoned);
        }
        Self {
            held: exchange.held.take(),
            stay: exchange.stay.take(),
            ..self
        }
    }

    fn end(self, end: StragglerEnd) {
        // Of whoever forgets for nobody who has left none is told.
        if self.held.is_some() || end != StragglerEnd::Finished {
            bump(self.counted.stats.stragglers.ended(end), 1);
        }
        if let Some(held) = self.held {
            held.end_abandoned(&self.limiter);
        }
    }
}

impl Counted {
    fn new(stats: &Arc<WorkerStats>, is_to_forget: bool) -> Self {
        stats.stragglers.begin(is_to_forget);
        Self {
            stats: Arc::clone(stats),
            is_to_forget,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stats.stragglers.leave(self.is_to_forget);
    }
}
