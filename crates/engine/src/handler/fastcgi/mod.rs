//! FastCGI: a request becomes records for a server such as php-fpm, its records the reply.
//!
//! Each process of such a server takes one connection at a time, so what a slow client would make
//! of that is kept away from it: the request's body is taken before a connection is
//! ([`crate::intake`]), and the reply is taken off its hands as fast as it comes (`delivery`).
//! Connections are kept, but not while anybody waits for a process ([`crate::upstream::slots::Slots`]).
//! A request is tried again only where nothing of it reached the server, or where it is
//! idempotent, without a body, and a reused connection was about to be closed ([`crate::upstream::CLOSING`]): a
//! process that ends later may end of this very request. Whoever leaves has the
//! connection closed: that is how a program learns of it. Where permits are held for the program,
//! they are until it has ended ([`super::straggler`]). Settings of PHP that files give a page are
//! told its process with the request, which is to forget them before another comes (`settings`).

mod incoming;
mod relay;
pub(super) mod rest;
mod settings;

use std::rc::Rc;
use std::time::Instant;

use config::model::FastCgi;
use fastcgi::environment::Environment;
use fastcgi::record::{self, Connection};

use super::program;
use super::straggler::{self, Abandoned};
use super::warm::{self, Entered};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::permits;
use crate::spool::Spool;
use crate::stage::Chosen;
use crate::upstream::link::Link;
use crate::upstream::server::InFlight;
use crate::upstream::{Fresh, Pool, Reached, Tried};
use relay::{Failure, Relay};
use rest::Rest;

/// What every attempt at a request needs to know.
struct Ask<'a> {
    chosen: Chosen<'a>,
    pool: &'a Pool,
    fastcgi: &'a FastCgi,
    variables: Environment,
    /// What its process is asked afterwards, where it was told settings of this page alone.
    forgetting: Option<Vec<u8>>,
    /// When the server's time began to count.
    started: Instant,
}

/// Has a FastCGI server answer.
pub(super) async fn serve(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    fastcgi: &FastCgi,
) -> Result<()> {
    let pool = match fastcgi.of_row {
        true => of_row(chosen)?,
        false => chosen
            .pool(fastcgi.upstream)
            .cloned()
            .ok_or_else(|| Error::new(Kind::Internal, "upstream_index", String::new()))?,
    };
    let script = program::script(*chosen, exchange).await?;
    let entered = match chosen.site.row.as_ref().and_then(|row| row.pool.as_ref()) {
        Some(pool) if fastcgi.of_row => {
            Some(warm::enter_pool(chosen, exchange, (pool, None)).await?)
        }
        _ => warm::enter(chosen, exchange, fastcgi.pool).await?,
    };
    let spooled = exchange.spooled.take();
    let root = fastcgi.root.as_deref();
    let spooled_bytes = spooled.as_ref().map(Spool::len);
    let params = &fastcgi.params;
    let mut variables = program::environment(
        *chosen,
        exchange,
        &script,
        root,
        params,
        spooled_bytes,
        false,
    )?;
    // A body that is passed on as it comes may stop: nothing more could be asked then.
    let is_whole = spooled.is_some() || exchange.body.is_ended();
    let generation = &chosen.serving.generation;
    let fixed = match fastcgi.of_row {
        true => generation
            .row_programs
            .get(&chosen.site_index)
            .map(|it| &it.fixed),
        false => fastcgi
            .pool
            .and_then(|at| generation.fixed_settings.get(at)),
    };
    let forgetting = match fixed.filter(|_| is_whole) {
        Some(fixed) => settings::tell(exchange, fixed, &mut variables)?,
        None => None,
    };
    let ask = Ask {
        variables,
        forgetting,
        chosen,
        pool: &pool,
        fastcgi,
        started: Instant::now(),
    };
    let outcome = ask.attempts(exchange, spooled, entered).await;
    if outcome.is_err() {
        exchange.record.note_upstream_time(ask.started);
    }
    outcome
}

/// The connections to the pool of the row that makes the site.
fn of_row(chosen: Chosen<'_>) -> Result<Rc<Pool>> {
    let pool = chosen.site.row.as_ref().and_then(|row| row.pool.as_ref());
    let socket = pool.and_then(|pool| Some((pool, pool.php_socket.as_deref()?)));
    let Some((pool, socket)) = socket else {
        let why = "its row says no PHP, and a page wants one";
        return Err(Error::new(Kind::Full, "directory_wrong", why));
    };
    let dynamic = &chosen.serving.dynamic;
    let connections = dynamic.at_socket(chosen.worker, &pool.id, socket);
    connections.ok_or_else(|| {
        let why = "too many pools of rows are in use on this worker";
        Error::new(Kind::Full, "pools_full", why)
    })
}

/// Refuses what is no program, whatever it would be told.
pub(super) async fn check(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    program::script(*chosen, exchange).await.map(drop)
}

impl Ask<'_> {
    async fn attempts(
        &self,
        exchange: &mut Exchange,
        mut spooled: Option<Spool>,
        mut entered: Option<Entered<'_>>,
    ) -> Result<()> {
        let mut tried = Tried::default();
        let has_body = spooled.is_some() || !exchange.body.is_ended();
        let mut fresh = match exchange.request.head.method.is_idempotent() && !has_body {
            true => Fresh::No,
            false => Fresh::OrSettled,
        };
        loop {
            if let Some(entered) = &mut entered {
                entered.renew(self.pool);
            }
            let reached = self.pool.reach(self.chosen.worker, &mut tried, fresh, &[]);
            let reached = reached.await;
            let last = self.pool.last_tried(&tried);
            exchange.record.upstream = last.map(|last| last.label.clone());
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
            match self.attempt(exchange, reached, spooled, asked).await {
                Ok(()) => return Ok(()),
                Err(Failure::Again(_, body)) if fresh != Fresh::Yes => {
                    if let Some(entered) = &mut entered {
                        entered.wait(exchange).await?;
                    }
                    spooled = body;
                }
                Err(Failure::Closed(error, body, ran)) => {
                    warm::again(&mut entered, exchange, error, ran).await?;
                    spooled = body;
                }
                Err(failure) => {
                    let (error, ran) = (failure.into_error(), asked.elapsed());
                    return Err(warm::explain(entered.as_ref(), exchange, error, ran));
                }
            }
            tried.forgive_last();
            fresh = Fresh::Yes;
        }
    }

    async fn attempt(
        &self,
        exchange: &mut Exchange,
        reached: Reached,
        spooled: Option<Spool>,
        asked: Instant,
    ) -> std::result::Result<(), Failure> {
        let Reached {
            mut link,
            in_flight,
        } = reached;
        if self.fastcgi.pool.is_some() {
            let script = self.variables.get(b"SCRIPT_FILENAME");
            in_flight.note_script(script.unwrap_or_default());
        }
        let server = in_flight.server();
        let connection = match self.pool.keeps() || self.forgetting.is_some() {
            true => Connection::Keep,
            false => Connection::Close,
        };
        record::begin(connection, link.out.bytes());
        let written = record::params(self.variables.iter(), link.out.bytes());
        written.map_err(|refusal| Failure::Last(refusal.into()))?;
        let mut relay = Relay::new(self, exchange, spooled, server.slots.clone());
        let outcome = relay.run(self, exchange, &mut link, &in_flight).await;
        if relay.has_head() {
            server.note_success();
        }
        if let Err(error) = outcome {
            in_flight.note_end(self.chosen.worker, &error);
            let rest = relay.take_rest(self, &error, exchange, &link);
            let failure = relay.failed(error, exchange, &link, asked.elapsed());
            if matches!(failure, Failure::Servers(_) | Failure::Closed(..)) {
                self.pool.note_failure(server, self.chosen.worker);
            }
            if let Some(rest) = rest {
                let abandoned = abandoned((link, in_flight), rest);
                match self.forgetting.is_some() {
                    true => straggler::forget(*self.chosen, exchange, abandoned, false),
                    false => straggler::follow_server(*self.chosen, exchange, abandoned),
                }
            }
            return Err(failure);
        }
        exchange.record.note_upstream_time(self.started);
        if self.forgetting.is_some() {
            let has_ended = relay.has_ended();
            let rest = relay.rest(self, exchange);
            let abandoned = abandoned((link, in_flight), rest);
            straggler::forget(*self.chosen, exchange, abandoned, has_ended);
        } else if self.pool.keeps() && relay.leaves_reusable(&link) {
            self.pool.keep(self.chosen.worker, link, &in_flight);
            // What the client has still to take is no business of the server's.
            drop(in_flight);
        } else if relay.has_ended() || exchange.held.is_none() {
            drop((link, in_flight));
        } else {
            // The client has what was promised, and the program goes on, with permits.
            let rest = relay.rest(self, exchange);
            let abandoned = abandoned((link, in_flight), rest);
            straggler::follow_server(*self.chosen, exchange, abandoned);
        }
        let outcome = permits::outcome_of_reply(&exchange.outgoing);
        permits::end(self.chosen.worker, exchange, outcome);
        relay.send_rest(exchange).await.map_err(Failure::Last)
    }
}

/// A server that may be at work.
fn abandoned((link, in_flight): (Box<Link>, InFlight), rest: Rest) -> Abandoned {
    Abandoned {
        link,
        in_flight,
        rest: straggler::Rest::Records(Box::new(rest)),
    }
}
