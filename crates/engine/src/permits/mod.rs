//! Limits on the way of a request: two phases that ask the ledger, and what a request holds of it.
//!
//! [`rates`] asks whether the request comes too fast, [`admit`] whether too many are under way, and
//! waits where a queue lets it. What it was admitted to lies in the exchange ([`Held`]) until the
//! source of its reply has said its last ([`end`]), or on every other way out until it is dropped.
//! Who may go on is decided in the crate `limits`; here is which limits a request meets
//! ([`wants`]), what is told of a refusal ([`refusals`]) and what an operator may ask
//! ([`questions`]).

mod caps;
pub(crate) mod classes;
pub(crate) mod compiled;
mod definitions;
pub(crate) mod elsewhere;
pub(crate) mod gates;
pub(crate) mod handshake;
pub(crate) mod held;
pub(crate) mod holders;
mod hours;
pub(crate) mod level;
mod limit;
pub(crate) mod limiter;
mod lines;
pub(crate) mod listed;
mod prepared;
pub mod questions;
pub mod refusals;
pub(crate) mod refuse;
pub mod rows;
pub(crate) mod scratch;
mod set;
#[cfg(test)]
mod tests;
mod throttled;
mod wants;

pub use compiled::{Kept, Limits};
pub use definitions::changed;
pub use gates::{Asked, Gates};
pub use held::Held;
pub use level::Level;
pub use limit::Place;
pub use limiter::Limiter;
pub use scratch::Scratch;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ipc::console::RequestState;
use limits::{Admission, Ask, Ledger, Outcome, Permit, RateCheck, RateTicket, Time, Used};
use wire::FieldId;

use crate::deadline::TICK_MS;
use crate::error::{Error, Kind, Result};
use crate::exchange::reply::Outgoing;
use crate::exchange::route::Route;
use crate::exchange::{Exchange, ProgramUse};
use crate::recording;
use crate::stage::Chosen;
use crate::worker::Worker;
use held::nanos;
use listed::{ListedPlace, ListedRequest, PATH_BYTES_MAX};
use wants::Phase;

/// Checks and charges the rates of every limit the request meets, and waits where a store has to be asked for that.
///
/// # Errors
/// One is exceeded; then none is charged. Or the client left.
pub async fn rates(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let received = exchange.request.received;
    charge(chosen, exchange, Phase::Rates, received).await
}

/// As [`rates`], of the limits that count by the upstream, once a script has named it.
///
/// # Errors
/// As [`rates`].
pub async fn rates_of_upstream(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    charge(chosen, exchange, Phase::RatesOfUpstream, Instant::now()).await
}

async fn charge(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    now: Instant,
) -> Result<()> {
    // Sent elsewhere by a script, it is the same request.
    if exchange.was_sent_elsewhere() {
        return Ok(());
    }
    if !chosen.serving.generation.limits.has_rates {
        return Ok(());
    }
    let limiter = &chosen.worker.shared.limits;
    let now = limiter.time_to_ask(now);
    let mut checked = check(chosen, exchange, phase, |ledger, ask| {
        ledger.check_rates(now, ask)
    });
    // Each turn waits for an answer of the store, and the last is refused without.
    while let Some(RateCheck::Waiting(ticket)) = checked {
        // Boxed: few wait, and the others need not have room for it.
        checked = Box::pin(check_later(chosen, exchange, phase, ticket)).await?;
    }
    match checked {
        None | Some(RateCheck::Waiting(_)) => {}
        Some(RateCheck::Passed(shadows)) if shadows.is_empty() => {}
        Some(RateCheck::Passed(shadows)) => refuse::pass_in_shadow(chosen, exchange, shadows),
        Some(RateCheck::Refused(refusal)) => {
            return Err(refuse::refuse(chosen, exchange, refusal));
        }
    }
    Ok(())
}

/// Checks rates again when the store has been heard.
async fn check_later(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    mut ticket: RateTicket,
) -> Result<Option<RateCheck>> {
    let limiter = &chosen.worker.shared.limits;
    let begun = Instant::now();
    limiter.draw();
    let deadline = ticket.deadline();
    let answered = wait(chosen, exchange, deadline, |now, cx| {
        ticket.poll_answer(now, cx.waker())
    });
    answered.await?;
    note_wait(exchange, begun);
    let now = limiter.time(Instant::now());
    Ok(check(chosen, exchange, phase, |ledger, ask| {
        ledger.check_rates_again(now, ask, ticket)
    }))
}

/// Asks the ledger about rates, and notes what has been counted where that may be asked again.
fn check(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    put: impl FnOnce(&Ledger, &Ask<'_>) -> RateCheck,
) -> Option<RateCheck> {
    let ledger = &chosen.worker.shared.limits.ledger;
    let may_come_again = chosen.site.htaccess.is_some();
    let mut counted = Vec::new();
    let checked = wants::ask(chosen, exchange, phase, |ask| {
        let checked = put(ledger, ask);
        if may_come_again && matches!(checked, RateCheck::Passed(_)) {
            counted.extend(ask.wants.iter().map(|want| want.limit));
        }
        checked
    });
    exchange.route.counted.append(&mut counted);
    checked
}

/// Takes a permit at every limit the request meets, at once, and waits for it where that is
/// allowed.
///
/// # Errors
/// The request may not go on, or its client left while it waited.
pub async fn admit(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    if !chosen.serving.generation.limits.has_permits {
        return Ok(());
    }
    let now = chosen.worker.clock.moment();
    // As above: what it was admitted to, it keeps, and waits for nothing more; but where it comes to
    // a program only now it asks for everything anew, as who waits holds nothing.
    if let Some(held) = &exchange.held {
        if held.has_place || !takes_place(chosen) {
            return Ok(());
        }
        end_permits(chosen.worker, exchange, Outcome::Ignored);
    }
    if !chosen.site.classes.is_empty() {
        let (classes, route) = (&chosen.site.classes, &exchange.route);
        let (request, file) = (&exchange.request, route.file.as_deref());
        exchange.record.class = classes::of(classes, request, file, &route.answers);
    }
    if chosen.is_throttled() {
        let limits = &chosen.serving.generation.limits;
        limits.note_use(&chosen.site.throttled);
    }
    if let Some((permit, since)) = acquire(chosen, exchange, Phase::Permits, now).await? {
        hold(chosen, exchange, permit, since);
    }
    Ok(())
}

/// The longest that a limit lets the request wait for its turn; `None` where none has a queue.
pub fn patience(chosen: Chosen<'_>, route: &Route) -> Option<Duration> {
    let limits = &chosen.serving.generation.limits;
    let met = wants::levels(chosen, route).map(limit::Limit::index);
    // That of a group says how long one waits for processors, not for a start.
    let met = met.filter(|at| !limits.is_throttled(*at));
    let met = met.filter_map(|at| limits.definitions().get(at));
    let queues = met.filter(|it| it.concurrent.is_some() && it.queue > 0);
    queues.map(|it| it.wait).max()
}

/// Gives back the place of a program that has ended, where what answers now is none: nothing that
/// the request waits for next needs it.
pub fn leave_program(chosen: Chosen<'_>, exchange: &mut Exchange) {
    if takes_place(chosen) || !exchange.held.as_ref().is_some_and(|held| held.has_place) {
        return;
    }
    let limits = &chosen.serving.generation.limits;
    let places: Vec<_> = limits.of_programs(&chosen.site.throttled).collect();
    let program = exchange.record.program;
    if let Some(mut held) = exchange.held.take() {
        held.has_place = false;
        let now = chosen.worker.clock.moment();
        let used = program.map_or(Used::Nothing, |it| Used::Measured(charged_ns(&held, it)));
        exchange.held = held.without(chosen.worker.shared.limits.time(now), used, &places);
    }
}

/// A turn to have a password compared; given back when dropped at the latest.
#[derive(Debug)]
pub(crate) struct PasswordTurn {
    permit: Permit,
    since: Instant,
    limiter: Arc<Limiter>,
}

impl PasswordTurn {
    /// Gives it back; what the comparison took is charged to whoever wanted it.
    pub(crate) fn end(self) {
        let now = Instant::now();
        let used = Used::Measured(nanos(self.since, now));
        self.permit
            .end(self.limiter.time(now), used, Outcome::Ignored);
    }
}

/// Waits for a turn to have a password compared; `None` where nobody has to.
///
/// # Errors
/// As [`admit`].
pub(crate) async fn password_turn(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
) -> Result<Option<PasswordTurn>> {
    let taken = acquire(chosen, exchange, Phase::Password, Instant::now()).await?;
    Ok(taken.map(|(permit, since)| PasswordTurn {
        permit,
        since,
        limiter: Arc::clone(&chosen.worker.shared.limits),
    }))
}

/// Takes a permit at every limit of a phase, and says since when it is held; `None` where no limit
/// has anything to say.
async fn acquire(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    now: Instant,
) -> Result<Option<(Permit, Instant)>> {
    let limiter = &chosen.worker.shared.limits;
    let time = limiter.time_to_ask(now);
    let mut waits_for = Vec::new();
    let admission = wants::ask(chosen, exchange, phase, |ask| {
        let admission = limiter.ledger.admit(time, ask);
        if matches!(admission, Admission::Waiting(_)) {
            waits_for.extend(ask.wants.iter().map(|want| want.limit.number()));
        }
        admission
    });
    match admission {
        None => Ok(None),
        Some(Admission::Admitted(permit)) => Ok(Some((permit, now))),
        Some(Admission::Waiting(ticket)) => {
            if chosen.serving.generation.limits.fleet.is_some() {
                limiter.draw();
            }
            let waits = chosen.waits(&exchange.route);
            let limits = waits_for.into_iter();
            let listed = list(chosen, exchange, limits, RequestState::Waiting);
            // Boxed: few wait, and the others need not have room for it.
            let deadline = ticket.deadline();
            let mut ticket = ticket;
            let turn = wait(chosen, exchange, deadline, |now, cx| {
                ticket.poll_wait(now, cx)
            });
            let waited = Box::pin(turn).await;
            drop((waits, listed));
            let waited_us = note_wait(exchange, now);
            if let Some(class) = &exchange.record.class {
                class.stats.note_wait(waited_us);
            }
            match waited? {
                Ok(permit) => Ok(Some((permit, chosen.worker.clock.moment()))),
                Err(refusal) => Err(refuse::refuse(chosen, exchange, refusal)),
            }
        }
        Some(Admission::Refused(refusal)) => Err(refuse::refuse(chosen, exchange, refusal)),
    }
}

/// Gives back what the exchange holds, and its stay: the source of its reply has said its last.
pub fn end(worker: &Worker, exchange: &mut Exchange, outcome: Outcome) {
    exchange.stay = None;
    end_permits(worker, exchange, outcome);
}

fn end_permits(worker: &Worker, exchange: &mut Exchange, outcome: Outcome) {
    // Ended where it lies: every exchange that met a limit comes through here.
    let Some(held) = &mut exchange.held else {
        return;
    };
    let now = worker.clock.moment();
    let (now, used_ns) = if now == held.since {
        // No clock was read meanwhile: it took no time to speak of.
        (held.permit.since(), 0)
    } else {
        // A program's processor time says more about what it cost than how long it took; but where
        // a program has sent the request elsewhere, its place was held for that.
        let programs = exchange.record.program.filter(|_| held.has_place);
        let used_ns = programs.map_or_else(|| held.used_ns(now), |it| charged_ns(held, it));
        (worker.shared.limits.time(now), used_ns)
    };
    held.permit
        .end_in_place(now, Used::Measured(used_ns), outcome);
    exchange.held = None;
}

/// Gives back what a tunnel does not keep: the exchange becomes one now.
pub fn begin_tunnel(chosen: Chosen<'_>, exchange: &mut Exchange) {
    // A tunnel that nothing passes through uses nothing.
    exchange.stay = None;
    let Some(mut held) = exchange.held.take() else {
        return;
    };
    let now = Instant::now();
    let used_ns = nanos(held.since, now);
    held.before_tunnel_ns = Some(used_ns);
    let given_back: Vec<_> = wants::not_for_tunnels(chosen, &exchange.route).collect();
    let now = chosen.worker.shared.limits.time(now);
    exchange.held = held.without(now, Used::Measured(used_ns), &given_back);
}

/// What an error says about whoever should have answered.
pub fn outcome_of(error: &Error) -> Outcome {
    match error.kind {
        Kind::UpstreamDown | Kind::UpstreamBroken | Kind::UpstreamSlow => Outcome::Failed,
        Kind::Full | Kind::Limited => Outcome::Failed,
        Kind::Refused(_)
        | Kind::OverLimit { .. }
        | Kind::NotWarm { .. }
        | Kind::Shed(_)
        | Kind::ClientGone
        | Kind::ClientSlow
        | Kind::Internal => Outcome::Ignored,
    }
}

/// What a reply says about whoever gave it: a back end that is too busy says so; one that has a
/// mistake in it, or keeps telling news, says nothing about how busy it is.
pub fn outcome_of_reply(reply: &Outgoing) -> Outcome {
    let content_type = reply.fields.get(FieldId::ContentType).unwrap_or_default();
    match reply.status {
        502..=504 => Outcome::Failed,
        500.. => Outcome::Ignored,
        _ if content_type.starts_with(b"text/event-stream") => Outcome::Ignored,
        _ => Outcome::Fine,
    }
}

#[inline]
fn hold(chosen: Chosen<'_>, exchange: &mut Exchange, mut permit: Permit, since: Instant) {
    let shadows = permit.take_shadows();
    if !shadows.is_empty() {
        refuse::pass_in_shadow(chosen, exchange, shadows);
    }
    exchange.record.waited_us.get_or_insert(0);
    let listed = match chosen.serving.generation.process.recorder {
        Some(_) => list(chosen, exchange, permit.limits(), RequestState::Answering),
        None => None,
    };
    exchange.held = Some(Held {
        permit,
        since,
        before_tunnel_ns: None,
        has_place: takes_place(chosen),
        cpu_before_ns: exchange.record.program.map_or(0, cpu_ns),
        listed,
    });
}

/// Lists a request for who is told of incidents, where a recorder may know of it and there is room.
fn list(
    chosen: Chosen<'_>,
    exchange: &Exchange,
    limits: impl Iterator<Item = u32>,
    state: RequestState,
) -> Option<ListedPlace> {
    let rules = chosen.serving.generation.process.recorder.as_ref()?;
    if !chosen.site.is_recorded || recording::is_excluded(rules, &exchange.request) {
        return None;
    }
    let (path, _) = recording::apart(exchange.request.head.target());
    chosen.worker.stats.listed.add(ListedRequest {
        since: exchange.request.received,
        site: Arc::clone(&chosen.site.name),
        path: path.get(..PATH_BYTES_MAX).unwrap_or(path).into(),
        limits: limits.collect(),
        state,
    })
}

/// Whether it takes a place that is given back when no program answers any more.
fn takes_place(chosen: Chosen<'_>) -> bool {
    chosen.runs_program() || chosen.is_throttled()
}

/// Waits for a turn, at most as long as the limit allows, the client stays and the tenant is not
/// suspended. Whoever is dropped here leaves the queue with the ticket.
async fn wait<T>(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    until: Time,
    mut poll_turn: impl FnMut(Time, &mut Context<'_>) -> Poll<T>,
) -> Result<T> {
    let worker = chosen.worker;
    let (limiter, suspension) = (&worker.shared.limits, &worker.shared.suspension);
    let mut changed = pin!(suspension.changed());
    suspension.check(&chosen.site.tenant_name)?;
    let deadline = worker.deadlines.register();
    let patience = until - limiter.time(Instant::now());
    deadline.set(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
    poll_fn(|cx| {
        let now: Time = limiter.time(Instant::now());
        if let Poll::Ready(turn) = poll_turn(now, cx) {
            return Poll::Ready(Ok(turn));
        }
        if exchange.poll_client_gone(cx).is_ready() {
            let gone = Error::new(Kind::ClientGone, "client_gone", String::new());
            return Poll::Ready(Err(gone));
        }
        while changed.as_mut().poll(cx).is_ready() {
            changed.set(suspension.changed());
            suspension.check(&chosen.site.tenant_name)?;
        }
        // The ledger ends a wait that is over; asked a little early it is asked again.
        if deadline.poll_expired(cx).is_ready() {
            deadline.set(TICK_MS);
            let _ = deadline.poll_expired(cx);
        }
        Poll::Pending
    })
    .await
}

/// Notes that a request has waited since then.
fn note_wait(exchange: &mut Exchange, since: Instant) -> u64 {
    let (before_us, waited_us) = (exchange.record.waited_us.unwrap_or(0), micros(since));
    exchange.record.waited_us = Some(before_us.saturating_add(waited_us));
    waited_us
}

/// What the programs took for which these permits were held.
fn charged_ns(held: &Held, program: ProgramUse) -> u64 {
    cpu_ns(program).saturating_sub(held.cpu_before_ns)
}

fn cpu_ns(program: ProgramUse) -> u64 {
    program.cpu_us.saturating_mul(1_000)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
