//! An exchange from its head to its record, whatever happens on the way.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::{answer, begin};
use crate::directory::told::RefusedOfRow;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::programs::recent::Unserved;
use crate::refused::SAMPLE;
use crate::rewrite::told::RewrittenRequest;
use crate::stage::Arrived;
use crate::stats::bump;
use crate::worker::Worker;
use crate::{access_log, error_reply, permits, recording, scripts, suspension};

/// The reason on record of an exchange that never came to its end: the server is ending.
const CUT_OFF: &str = "cut_off";
/// How reasons begin that say something of a row itself.
const OF_ROWS: &str = "directory_";

/// An exchange from its head to its record. However it ends, dropping this writes the record.
pub(super) struct Underway<'a> {
    arrived: Arrived<'a>,
    exchange: &'a mut Exchange,
    /// Whether it has a head that scripts can look at.
    is_request: bool,
    /// Whether its record is written.
    is_recorded: bool,
}

impl<'a> Underway<'a> {
    pub(super) fn begin(arrived: Arrived<'a>, exchange: &'a mut Exchange) -> Self {
        begin(arrived, exchange);
        bump(&arrived.worker.stats.begun, 1);
        exchange.record.reason = CUT_OFF;
        Self {
            arrived,
            exchange,
            is_request: true,
            is_recorded: false,
        }
    }

    /// Takes an exchange that lies inside of another and leaves no record.
    pub(super) fn inside(arrived: Arrived<'a>, exchange: &'a mut Exchange) -> Self {
        Self {
            arrived,
            exchange,
            is_request: false,
            is_recorded: true,
        }
    }

    /// Answers the request, to the reply's last byte.
    pub(super) async fn serve(&mut self) -> Result<()> {
        // Pinned where it is made: moved, it would be copied whole, with the room of every handler.
        let outcome = caught(
            self.arrived.worker,
            pin!(answer(self.arrived, self.exchange)),
        )
        .await;
        self.give_back(&outcome);
        self.finish(outcome).await
    }

    /// Gives back the permits of a handler that has not done so itself, its source having ended.
    fn give_back(&mut self, outcome: &Result<()>) {
        let outcome = match outcome {
            // What we answered ourselves says nothing about a back end.
            Ok(()) => limits::Outcome::Ignored,
            Err(error) => permits::outcome_of(error),
        };
        permits::end(self.arrived.worker, self.exchange, outcome);
    }

    /// An end for the reply, or an answer for an error; done when the kernel has its last byte.
    async fn finish(&mut self, outcome: Result<()>) -> Result<()> {
        let outcome = match outcome {
            Ok(()) => scripts::filter_body(self.arrived, self.exchange).await,
            Err(error) => {
                // What was kept back of another reply is forgotten.
                self.exchange.reply.take_collected();
                Err(error)
            }
        };
        let reason = match outcome {
            Ok(()) => self.exchange.said(),
            Err(error) => {
                self.answer(&error).await;
                error.reason
            }
        };
        self.exchange.reply.finish();
        let sent = poll_fn(|cx| self.exchange.reply.poll_flush(cx)).await;
        self.exchange.record.reason = match &sent {
            Err(error) if reason.is_empty() => error.reason,
            _ => reason,
        };
        sent
    }

    /// Answers an error; scripts may see that answer, too.
    async fn answer(&mut self, error: &Error) {
        // What a script asks for inside is no doing of the client's.
        if self.is_request {
            let is_sent_away = matches!(error.kind, Kind::OverLimit { .. } | Kind::Shed(_));
            if is_sent_away {
                note_refused(self.arrived, self.exchange);
            }
            let is_refused =
                is_sent_away || matches!(error.kind, Kind::NotWarm { .. } | Kind::Full);
            let replies = self.arrived.replies(&self.exchange.route);
            if let Some(replies) = replies.filter(|_| is_refused) {
                bump(&replies.refused, 1);
            }
            let tenant = self.arrived.row_tenant(&self.exchange.route);
            if let Some(tenant) = tenant.filter(|_| is_refused) {
                tenant.counts.refused.fetch_add(1, Relaxed);
            }
        }
        if self.is_request && error.reason == suspension::REASON {
            note_suspended(self.arrived, self.exchange, error);
        }
        if self.is_request {
            note_of_row(self.arrived, self.exchange, error);
        }
        error_reply::answer(self.arrived, self.exchange, error).await;
        if let Err(error) = scripts::filter_body(self.arrived, self.exchange).await {
            error_reply::answer(self.arrived, self.exchange, &error).await;
        }
    }

    /// Answers what never became a request: no script hears of it.
    pub(super) async fn refuse(mut self, error: Error) -> Result<()> {
        self.is_request = false;
        self.finish(Err(error)).await
    }

    /// Runs the `log` scripts and writes the record. What waits goes on without the connection.
    pub(super) fn log(mut self) {
        let ended = Instant::now();
        // Whatever happens in them, they run once.
        self.is_request = false;
        let rest = scripts::log(self.arrived, self.exchange, ended);
        self.record(ended);
        if let Some(rest) = rest {
            rest.depart(self.arrived, self.exchange);
        }
        if let Some(scripted) = &mut self.exchange.scripted {
            scripted.end();
        }
    }

    fn record(&mut self, ended: Instant) {
        self.is_recorded = true;
        let total_us = count(self.arrived, self.exchange, ended);
        note_rewritten(self.arrived, self.exchange);
        // One for many where its client is refused all the time.
        let is_sampled = self.exchange.record.is_sampled;
        if is_sampled && !self.arrived.worker.draw().is_multiple_of(SAMPLE) {
            return;
        }
        access_log::record(self.arrived, self.exchange, ended);
        recording::record(self.arrived, self.exchange, total_us);
    }
}

impl Drop for Underway<'_> {
    /// Cut off before its end: what of the `log` scripts does not wait runs all the same.
    fn drop(&mut self) {
        self.exchange.held = None;
        self.exchange.stay = None;
        if self.is_recorded {
            return;
        }
        let ended = Instant::now();
        let (arrived, exchange) = (self.arrived, &mut *self.exchange);
        // The runtime may be ending: a script that needs it fails.
        if self.is_request {
            let rest = catch_unwind(AssertUnwindSafe(|| scripts::log(arrived, exchange, ended)));
            drop(rest);
        }
        self.record(ended);
        if let Some(scripted) = &mut self.exchange.scripted {
            scripted.end();
        }
    }
}

/// Notes that the request is refused: beyond `caps.refusals_per_client` a second its connection
/// ends, and its record is one of those of which one in [`SAMPLE`] is written. What a trusted
/// proxy's connection carries may be of others, too: it goes on.
fn note_refused(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let worker = arrived.worker;
    let most = arrived.serving.generation.process.caps.refusals_per_client;
    let client = exchange.request.client;
    if most == 0 || client.is_unspecified() {
        return;
    }
    let second = worker.clock.unix_at(exchange.request.received).as_secs();
    if worker.shared.refused.count(client, second) > most {
        exchange.record.is_sampled = true;
        if !exchange.request.peer_trusted {
            exchange.reply.close_after();
        }
    }
}

/// Remembers a request that is refused as its tenant is suspended.
fn note_suspended(arrived: Arrived<'_>, exchange: &Exchange, error: &Error) {
    let Some(site) = arrived.site(&exchange.route) else {
        return;
    };
    let (worker, received) = (arrived.worker, exchange.request.received);
    worker.shared.suspension.note(Unserved {
        id: exchange.request.id,
        at: worker.clock.unix_at(received),
        site: Arc::clone(&site.name),
        tenant: Arc::clone(&site.tenant_name),
        pool: None,
        reason: error.reason,
        detail: error.detail.clone(),
        waited: received.elapsed(),
        ran: None,
        retry_after_s: None,
    });
}

/// Remembers a request for the host of a row that is refused; not that there is no such file, which is asked for all day and would
/// push out what was refused.
fn note_of_row(arrived: Arrived<'_>, exchange: &Exchange, error: &Error) {
    let request = &exchange.request;
    let is_found = error.kind != Kind::Refused(404);
    let is_of_row = request.row.is_some() && is_found || error.reason.starts_with(OF_ROWS);
    if !is_of_row || exchange.record.is_sampled || error.kind == Kind::ClientGone {
        return;
    }
    let Some(site) = arrived.site(&exchange.route) else {
        return;
    };
    let directory = site.rows.as_ref().map_or("", |rows| &rows.name);
    let (worker, row) = (arrived.worker, request.row.as_ref());
    let rows = &worker.shared.rows;
    let age_ms = row.map(|row| row.age_ms(rows.now_ms(Instant::now())));
    let tenant = row.map(|row| &row.tenant);
    let refused = RefusedOfRow {
        id: request.id,
        at: worker.clock.unix_at(request.received),
        host: request.head.host().into(),
        directory: directory.into(),
        age: age_ms.map(Duration::from_millis),
        tenant: tenant.map(|tenant| Arc::clone(&tenant.name)),
        plan: tenant.and_then(|tenant| tenant.plan.clone()),
        reason: error.reason,
        detail: error.detail.as_str().into(),
    };
    rows.recent.remember(request.id, refused);
}

/// Remembers how a request was rewritten.
fn note_rewritten(arrived: Arrived<'_>, exchange: &mut Exchange) {
    if exchange.record.steps.is_empty() {
        return;
    }
    let (worker, request) = (arrived.worker, &exchange.request);
    if let Some(site) = arrived.site(&exchange.route) {
        let rewritten = RewrittenRequest {
            id: request.id,
            at: worker.clock.unix_at(request.received),
            site: Arc::clone(&site.name),
            steps: std::mem::take(&mut exchange.record.steps),
            reason: exchange.record.reason,
        };
        worker.shared.rewritten.remember(request.id, rewritten);
    }
}

/// Counts an exchange that ended at this moment: how long it took, in microseconds.
fn count(arrived: Arrived<'_>, exchange: &Exchange, ended: Instant) -> u64 {
    let worker = arrived.worker;
    let stats = &worker.stats;
    bump(&stats.ended, 1);
    if let Some(replies) = arrived.replies(&exchange.route) {
        let (bytes_in, bytes_out) = (exchange.body.bytes_read(), exchange.reply.body_bytes());
        replies.count(exchange.status(), bytes_in, bytes_out);
        if let Some(cpu_us) = exchange.request.own_handshake_us() {
            replies.count_handshake(cpu_us);
        }
    }
    if let Some(tenant) = arrived.row_tenant(&exchange.route) {
        tenant.counts.requests.fetch_add(1, Relaxed);
        let handshakes = u64::from(exchange.request.own_handshake_us().is_some());
        tenant.counts.handshakes.fetch_add(handshakes, Relaxed);
    }
    let total = ended.saturating_duration_since(exchange.request.received);
    let total_us = u64::try_from(total.as_micros()).unwrap_or(u64::MAX);
    stats.total_time.count(total_us);
    if exchange.record.upstream.is_some() {
        stats.upstream_time.count(exchange.record.upstream_us);
    }
    total_us
}

/// Runs `work`; a panic in it is this exchange's failure and nobody else's.
async fn caught(
    worker: &Worker,
    mut work: Pin<&mut impl Future<Output = Result<()>>>,
) -> Result<()> {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            worker.clock.end_turn();
        }
        // What the panic left behind is either dropped with `work` or given up with the connection.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => {
                waited = poll.is_pending();
                poll
            }
            Err(payload) => {
                bump(&worker.stats.panics, 1);
                Poll::Ready(Err(Error::new(Kind::Internal, "panic", words(&*payload))))
            }
        }
    })
    .await
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
