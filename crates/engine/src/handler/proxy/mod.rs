//! Forwarding: connect, send the request, pass the reply on.
//!
//! The request that goes upstream is written anew from the parsed one ([`head`]); its body is
//! sent (`upload`) while the reply is awaited and passed on ([`relay`]), both at once, so that
//! an upstream may answer early. A request is tried again only where that is safe: nothing of it
//! reached a server, or it is idempotent, without a body, and a reused connection had closed.
//! Where the rule says so, the request's body was taken before ([`crate::intake`]) and the reply is
//! taken off the server's hands ([`download`]).

mod download;
mod early_hints;
mod head;
mod heading;
mod mapping;
mod redirects;
mod relay;
pub(super) mod rest;
mod tunnel;

use std::rc::Rc;
use std::time::Instant;

use config::model::Proxy;
use wire::{FieldId, Fields, strip_hop_by_hop};

use super::straggler::{self, Abandoned};
use super::warm::{self, Entered};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::permits;
use crate::spool::Spool;
use crate::stage::Chosen;
use crate::upstream::link::Link;
use crate::upstream::server::InFlight;
use crate::upstream::{Destination, Fresh, Pool, Reached, Tried};
use relay::{Attempt, Head};
use tunnel::Over;

/// Times a request may come through this gateway before it counts as going in circles.
const HOPS_MAX: usize = 8;
/// How this gateway signs in `Via` (RFC 9110 §7.6.3).
const HOP: &[u8] = b"1.1 nagaya";

/// What every attempt at a request needs to know.
struct Forward<'a> {
    chosen: Chosen<'a>,
    proxy: &'a Proxy,
    /// When the upstream's time began to count.
    started: Instant,
    /// Length of the body, where it was taken beforehand.
    spooled_bytes: Option<u64>,
    /// The protocols the client would switch to, if tunnels are let through.
    upgrade: Option<Vec<u8>>,
    /// What is asked for in the place of the client's path, and its query where that has one.
    target: Option<Vec<u8>>,
}

/// An attempt that failed.
struct FailedAttempt {
    error: Error,
    retry: Retry,
}

/// What may be done about a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// Nothing.
    No,
    /// The same server again, on a connection of its own: the reused one had closed.
    Reconnect,
    /// The same, if the processes behind it had ended.
    IfEnded,
}

/// Forwards the request and its reply.
pub(super) async fn forward(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    proxy: &Proxy,
) -> Result<()> {
    let pool = pool(chosen, exchange)?;
    check(exchange)?;
    let target = mapping::target(chosen, exchange, proxy)?;
    let entered = warm::enter(chosen, exchange, proxy.pool).await?;
    let upgrade = exchange
        .request
        .head
        .upgrade()
        .filter(|_| proxy.tunnels)
        .map(<[u8]>::to_vec);
    strip_hop_by_hop(&mut exchange.request.head.fields);
    let spooled = exchange.spooled.take();
    let forward = Forward {
        chosen,
        proxy,
        started: Instant::now(),
        spooled_bytes: spooled.as_ref().map(Spool::len),
        upgrade,
        target,
    };
    let outcome = forward.attempts(exchange, &pool, spooled, entered).await;
    if outcome.is_err() {
        exchange.record.note_upstream_time(forward.started);
    }
    outcome
}

/// Where the request goes: to what a script has named, or to the upstream of the configuration.
fn pool(chosen: Chosen<'_>, exchange: &Exchange) -> Result<Rc<Pool>> {
    if let Some(Destination::Dynamic(pool)) = &exchange.route.upstream {
        return Ok(Rc::clone(pool));
    }
    match chosen.upstream_index(&exchange.route) {
        Some(index) => chosen
            .pool(index)
            .cloned()
            .ok_or_else(|| Error::new(Kind::Internal, "upstream_index", String::new())),
        None => Err(Error::new(
            Kind::Full,
            "no_upstream",
            "no script has named one",
        )),
    }
}

/// A request that has come through here too often is going in circles.
pub(super) fn check(exchange: &Exchange) -> Result<()> {
    match hops(&exchange.request.head.fields) {
        0..HOPS_MAX => Ok(()),
        _ => Err(Error::refused(508, "forwarding_loop")),
    }
}

/// How often a request has come through this gateway, as far as its fields tell.
fn hops(fields: &Fields) -> usize {
    fields
        .get_all(FieldId::Via)
        .flat_map(|line| line.split(|byte| *byte == b','))
        .filter(|hop| hop.trim_ascii() == HOP)
        .count()
}

impl FailedAttempt {
    /// A failure that trying again would not mend.
    fn last(error: Error) -> Self {
        Self {
            error,
            retry: Retry::No,
        }
    }
}

impl Forward<'_> {
    async fn attempts(
        &self,
        exchange: &mut Exchange,
        pool: &Pool,
        mut spooled: Option<Spool>,
        mut entered: Option<Entered<'_>>,
    ) -> Result<()> {
        let mut tried = Tried::default();
        let mut fresh = Fresh::No;
        loop {
            if let Some(entered) = &mut entered {
                entered.renew(pool);
            }
            let opening = pool.opening(&exchange.request);
            let reached = pool.reach(self.chosen.worker, &mut tried, fresh, &opening);
            let reached = reached.await;
            exchange.record.upstream = pool.last_tried(&tried).map(|last| last.label.clone());
            let reached = match reached {
                Ok(reached) => reached,
                Err(error) => {
                    warm::reach_again(&mut entered, exchange, error).await?;
                    tried.forgive_last();
                    continue;
                }
            };
            exchange.invite_body().await?;
            let asked = Instant::now();
            let Err(failure) = self.attempt(exchange, pool, reached, spooled.take()).await else {
                return Ok(());
            };
            let is_tried_again = match (failure.retry, &mut entered) {
                (Retry::Reconnect, None) => fresh == Fresh::No,
                // What was kept may have ended with its pool.
                (Retry::Reconnect, Some(entered)) => {
                    entered.wait(exchange).await?;
                    fresh == Fresh::No
                }
                (Retry::IfEnded, Some(entered)) => {
                    let ran = asked.elapsed();
                    entered.again(exchange, &failure.error, ran).await?
                }
                (Retry::IfEnded, None) | (Retry::No, _) => false,
            };
            if !is_tried_again {
                let (error, ran) = (failure.error, asked.elapsed());
                return Err(warm::explain(entered.as_ref(), exchange, error, ran));
            }
            tried.forgive_last();
            fresh = Fresh::Yes;
        }
    }

    async fn attempt(
        &self,
        exchange: &mut Exchange,
        pool: &Pool,
        reached: Reached,
        spooled: Option<Spool>,
    ) -> std::result::Result<(), FailedAttempt> {
        let Reached {
            mut link,
            in_flight,
        } = reached;
        let server = in_flight.server();
        head::write(link.out.bytes(), exchange, self, pool.host_of(server));
        let mut attempt = Attempt::new(self, exchange, spooled);
        if let Err(failure) = attempt.read_head(self, exchange, &mut link).await {
            let upstreams_fault = matches!(
                failure.error.kind,
                Kind::UpstreamBroken | Kind::UpstreamSlow
            );
            if upstreams_fault && failure.retry != Retry::Reconnect {
                pool.note_failure(server, self.chosen.worker);
            }
            in_flight.note_end(self.chosen.worker, &failure.error);
            self.abandon(
                exchange,
                attempt,
                Head::Awaited,
                (link, in_flight),
                &failure.error,
            );
            return Err(failure);
        }
        server.note_success();
        exchange.record.upstream_status = link.reply.status;
        if link.reply.status == 101 {
            return self.switch(exchange, link, in_flight).await;
        }
        if let Err(error) = {
            let server = pool.host_of(server);
            attempt.pass_on(self, exchange, &mut link, server).await
        } {
            in_flight.note_end(self.chosen.worker, &error);
            self.abandon(exchange, attempt, Head::Read, (link, in_flight), &error);
            return Err(FailedAttempt::last(error));
        }
        exchange.record.note_upstream_time(self.started);
        let outcome = permits::outcome_of_reply(&exchange.outgoing);
        if attempt.leaves_reusable(&link) {
            pool.keep(self.chosen.worker, link, &in_flight);
        } else {
            drop(link);
        }
        // What the client has still to take is no business of the server's.
        drop(in_flight);
        permits::end(self.chosen.worker, exchange, outcome);
        attempt
            .send_rest(exchange)
            .await
            .map_err(FailedAttempt::last)
    }

    /// Leaves an attempt that failed: a server that may be at work keeps the permits.
    fn abandon(
        &self,
        exchange: &mut Exchange,
        attempt: Attempt,
        head: Head,
        (link, in_flight): (Box<Link>, InFlight),
        error: &Error,
    ) {
        let method = exchange.request.head.method;
        if exchange.held.is_some()
            && error.leaves_upstream_at_work()
            && let Some(rest) = attempt.into_rest(method, head, &link)
        {
            let abandoned = Abandoned {
                link,
                in_flight,
                rest: straggler::Rest::Http(Box::new(rest)),
            };
            straggler::follow_server(*self.chosen, exchange, abandoned);
        }
    }

    async fn switch(
        &self,
        exchange: &mut Exchange,
        mut link: Box<Link>,
        in_flight: InFlight,
    ) -> std::result::Result<(), FailedAttempt> {
        permits::begin_tunnel(self.chosen, exchange);
        let tunnel_ms = self.chosen.serving.generation.process.timeouts.tunnel_ms;
        let upgrade = self.upgrade.as_deref();
        let over = tunnel::open(**self.chosen, exchange, &mut link, upgrade, tunnel_ms).await;
        let is_left = match &over {
            Ok(over) => *over == Over::Broken,
            Err(error) => error.leaves_upstream_at_work(),
        };
        if is_left {
            let abandoned = Abandoned {
                link,
                in_flight,
                rest: straggler::Rest::Bytes,
            };
            straggler::follow_server(*self.chosen, exchange, abandoned);
        }
        over.map(drop).map_err(FailedAttempt::last)
    }
}

fn cut(reason: &'static str) -> Error {
    Error::new(Kind::UpstreamBroken, reason, String::new())
}
