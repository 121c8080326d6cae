//! Forwarding: connect, send the request, pass the reply on.
//!
//! The request that goes upstream is written anew from the parsed one ([`head`]); its body is
//! sent ([`upload`]) while the reply is awaited and passed on ([`relay`]), both at once, so that
//! an upstream may answer early. A request is tried again only where that is safe: nothing of it
//! reached a server, or it is idempotent, without a body, and a reused connection had closed.

mod head;
mod relay;
mod tunnel;
mod upload;

use std::rc::Rc;
use std::time::Instant;

use config::model::Proxy;
use wire::{FieldId, strip_hop_by_hop};

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::upstream::{Chosen, Fresh, Pool, Tried};
use crate::worker::Worker;
use relay::Attempt;

/// Times a request may come through this gateway before it counts as going in circles.
const HOPS_MAX: usize = 8;
/// How this gateway signs in `Via` (RFC 9110 §7.6.3).
const PSEUDONYM: &[u8] = b"nagaya";

/// What every attempt at a request needs to know.
struct Forward<'a> {
    worker: &'a Worker,
    proxy: &'a Proxy,
    /// The protocols the client would switch to, if tunnels are let through.
    upgrade: Option<Vec<u8>>,
}

/// An attempt that failed.
struct Failure {
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
}

/// Forwards the request and its reply.
pub(super) async fn forward(
    worker: &Rc<Worker>,
    exchange: &mut Exchange,
    proxy: &Proxy,
) -> Result<()> {
    let Some(pool) = exchange
        .route
        .serving
        .as_ref()
        .and_then(|serving| serving.pools.get(proxy.upstream).cloned())
    else {
        return Err(Error::new(Kind::Internal, "upstream_index", String::new()));
    };
    refuse_circles(exchange)?;
    let upgrade = exchange
        .request
        .head
        .upgrade()
        .filter(|_| proxy.tunnels)
        .map(<[u8]>::to_vec);
    strip_hop_by_hop(&mut exchange.request.head.fields);
    let forward = Forward {
        worker,
        proxy,
        upgrade,
    };
    let started = Instant::now();
    let outcome = forward.attempts(exchange, &pool).await;
    exchange.record.upstream_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    outcome
}

/// A request that has come through here too often is going in circles.
fn refuse_circles(exchange: &Exchange) -> Result<()> {
    let fields = &exchange.request.head.fields;
    let hops = fields
        .get_all(FieldId::Via)
        .flat_map(|line| line.split(|byte| *byte == b','))
        .filter(|hop| hop.trim_ascii().ends_with(PSEUDONYM));
    match hops.count() {
        0..HOPS_MAX => Ok(()),
        _ => Err(Error::refused(508, "forwarding_loop")),
    }
}

impl Failure {
    /// A failure that trying again would not mend.
    fn last(error: Error) -> Self {
        Self {
            error,
            retry: Retry::No,
        }
    }
}

impl Forward<'_> {
    async fn attempts(&self, exchange: &mut Exchange, pool: &Pool) -> Result<()> {
        let mut tried = Tried::default();
        let mut fresh = Fresh::No;
        loop {
            let chosen = self.connect(pool, &mut tried, fresh).await?;
            exchange.record.upstream = Some(chosen.in_flight.server().label.clone());
            exchange.invite_body().await?;
            match self.attempt(exchange, pool, chosen).await {
                Ok(()) => return Ok(()),
                Err(failure) if failure.retry == Retry::Reconnect && fresh == Fresh::No => {
                    tried.forgive_last();
                    fresh = Fresh::Yes;
                }
                Err(failure) => return Err(failure.error),
            }
        }
    }

    /// Connects to one server after another; nothing has been sent, so each may be tried.
    async fn connect(&self, pool: &Pool, tried: &mut Tried, fresh: Fresh) -> Result<Chosen> {
        let mut failure = None;
        for _ in 0..pool.tries_max().max(1) {
            match pool.connect(self.worker, tried, fresh).await {
                Ok(chosen) => return Ok(chosen),
                Err(error) if error.reason == "upstream_none_left" => {
                    return Err(failure.unwrap_or(error));
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or(Error::new(
            Kind::UpstreamDown,
            "upstream_none_left",
            String::new(),
        )))
    }

    async fn attempt(
        &self,
        exchange: &mut Exchange,
        pool: &Pool,
        chosen: Chosen,
    ) -> std::result::Result<(), Failure> {
        let Chosen {
            mut link,
            in_flight,
        } = chosen;
        let server = in_flight.server();
        link.out.clear();
        head::write(link.out.bytes(), exchange, self, &server.label);
        let mut attempt = Attempt::new(self, exchange, &mut link);
        if let Err(failure) = attempt.read_head(exchange, &mut link).await {
            if matches!(
                failure.error.kind,
                Kind::UpstreamBroken | Kind::UpstreamSlow
            ) && failure.retry == Retry::No
            {
                pool.note_failure(server, self.worker);
            }
            return Err(failure);
        }
        server.note_success();
        exchange.record.upstream_status = link.reply.status;
        if link.reply.status == 101 {
            return self.switch(exchange, link).await;
        }
        let finished = attempt.pass_on(exchange, &mut link).await;
        finished.map_err(Failure::last)?;
        if attempt.leaves_reusable(&link) {
            pool.keep(self.worker, link, &in_flight);
        }
        Ok(())
    }

    async fn switch(
        &self,
        exchange: &mut Exchange,
        link: crate::upstream::Link,
    ) -> std::result::Result<(), Failure> {
        let tunnel_ms = self.worker.serving().generation.process.timeouts.tunnel_ms;
        tunnel::open(exchange, link, self.upgrade.as_deref(), tunnel_ms)
            .await
            .map_err(Failure::last)
    }
}
