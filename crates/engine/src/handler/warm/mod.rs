//! Before a pool is asked: it runs, or its start is waited for.
//!
//! Who comes to a pool that does not run has it started, holding its permits, and waits for as long
//! as its limits let it wait for a place, or an upstream may be silent where it meets no queue.
//! Where it is told that this will take longer, it is refused at once. Then it connects: to a socket that
//! is never closed, so that nothing is lost if the pool ends in between. That makes it safe to ask
//! again, once, where a pool ended before it can have begun ([`Entered::again`]). A process that ends
//! with a request has ended it for good, and why is told ([`explain`]). To a site
//! that came to a pool by a reload, one whose processes may not see its files does not run.

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::permits;
use crate::programs::pools::{InUse, Known, Newcomer, ProgramPool, REFUSALS};
use crate::programs::recent::Unserved;
use crate::stage::Chosen;
use crate::upstream::{CLOSING, Pool, UNREACHABLE};

/// Requests that may wait for one pool: no more than connections its socket holds until they are
/// accepted.
const WAITING_MAX: usize = 500;
/// How long after its connection has closed a pool may be heard to have ended, and after its socket
/// has refused one: who listens there has ended, or will soon.
const END_LOOK: Duration = Duration::from_millis(200);
const REFUSED_LOOK: Duration = Duration::from_secs(2);
/// How long after a pool was handed over connections may close for that: who closes them may wait for a
/// processor.
const HANDING_OVER: Duration = Duration::from_secs(10);
/// The longest that a client is told to wait.
const RETRY_S_MAX: u64 = 3_600;

/// A pool that ran when a request came to it.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    chosen: Chosen<'a>,
    pool: &'a Arc<ProgramPool>,
    /// Its site, where that is one to the pool.
    newcomer: Option<&'a Arc<Newcomer>>,
    /// How often it had ended, and been handed over to other processes.
    ends: u64,
    hand_overs: u64,
    /// It was waited for anew.
    is_again: bool,
    /// It is not to be ended meanwhile.
    _in_use: InUse<'a>,
}

/// Waits until the pool runs that the handler's requests go to, where they go to one.
///
/// # Errors
/// It does not run in time, or cannot be started; nobody is there to start it; the client left.
pub(super) async fn enter<'a>(
    chosen: Chosen<'a>,
    exchange: &mut Exchange,
    index: Option<usize>,
) -> Result<Option<Entered<'a>>> {
    let Some(index) = index else {
        return Ok(None);
    };
    let pool = chosen.serving.generation.program_pools.get(index);
    let Some(pool) = pool else {
        return Err(Error::new(Kind::Internal, "pool_index", String::new()));
    };
    let newcomers = &chosen.serving.generation.newcomers;
    let tree = exchange.route.tree;
    let newcomer = tree.and_then(|tree| newcomers.get(&(index, tree)));
    let entered = enter_pool(chosen, exchange, (pool, newcomer)).await?;
    Ok(Some(entered))
}

/// As [`enter`], of a pool.
///
/// # Errors
/// As there.
pub(super) async fn enter_pool<'a>(
    chosen: Chosen<'a>,
    exchange: &mut Exchange,
    (pool, newcomer): (&'a Arc<ProgramPool>, Option<&'a Arc<Newcomer>>),
) -> Result<Entered<'a>> {
    let mut entered = Entered {
        chosen,
        pool,
        newcomer,
        ends: pool.ends(),
        hand_overs: pool.hand_overs(),
        is_again: false,
        _in_use: pool.begin(),
    };
    entered.wait(exchange).await?;
    Ok(entered)
}

/// Waits until the pool runs again that a request failed at after it was there for so long, if the pool
/// had ended.
///
/// # Errors
/// `error`, [explained](explain), where it had not, or where there is no pool; otherwise as [`enter`].
pub(super) async fn again(
    entered: &mut Option<Entered<'_>>,
    exchange: &mut Exchange,
    error: Error,
    ran: Duration,
) -> Result<()> {
    if let Some(entered) = entered
        && entered.again(exchange, &error, ran).await?
    {
        return Ok(());
    }
    Err(explain(entered.as_ref(), exchange, error, ran))
}

/// Why a request failed that was with its pool for so long: where the process ended with it, that is
/// remembered for whoever asks.
pub(super) fn explain(
    entered: Option<&Entered<'_>>,
    exchange: &Exchange,
    error: Error,
    ran: Duration,
) -> Error {
    match (entered, error.reason) {
        (Some(entered), "upstream_closed" | "upstream_read") => {
            let error = entered.ended(error, ran);
            entered.note(exchange, &error, Duration::ZERO, Some(ran));
            error
        }
        _ => error,
    }
}

/// As [`again`], where no connection could be made, so that nothing was asked; other reasons than
/// that nobody listens are no reason to wait.
///
/// # Errors
/// As [`again`].
pub(super) async fn reach_again(
    entered: &mut Option<Entered<'_>>,
    exchange: &mut Exchange,
    error: Error,
) -> Result<()> {
    match error.reason == UNREACHABLE {
        true => again(entered, exchange, error, Duration::ZERO).await,
        false => Err(error),
    }
}

impl Entered<'_> {
    /// Has connections closed that are not to be used: to processes that have handed the pool over,
    /// and such as would take from the next page's time.
    pub(super) fn renew(&mut self, connections: &Pool) {
        let (pool, now_ms) = (self.pool, self.chosen.worker.deadlines.now_ms());
        self.hand_overs = pool.hand_overs();
        connections.renew(self.hand_overs, pool.idle_ms(), now_ms);
    }

    /// Waits until it runs again for a request that was there for so long, where its processes have
    /// ended since and cannot have begun with it; says whether that is so. Once a request.
    ///
    /// What was there for long may have begun, unless its processes have handed the pool over meanwhile
    /// and run on: those finish what they have begun, as long as it has time.
    ///
    /// # Errors
    /// As [`enter`].
    pub(super) async fn again(
        &mut self,
        exchange: &mut Exchange,
        error: &Error,
        ran: Duration,
    ) -> Result<bool> {
        let look = match error.reason {
            UNREACHABLE => REFUSED_LOOK,
            _ => END_LOOK,
        };
        let pool = self.pool;
        let of_page = pool.page_time().unwrap_or_default();
        if self.is_again || ran >= CLOSING.max(of_page.saturating_sub(CLOSING)) {
            return Ok(false);
        }
        let is_soon = ran < CLOSING;
        let are_replaced = (is_soon && pool.was_handed_over(HANDING_OVER + ran))
            || timeout(look, pool.replaced(self.ends, self.hand_overs))
                .await
                .is_ok();
        let is_unbegun = are_replaced && (is_soon || self.runs_on().await);
        if is_unbegun {
            self.is_again = true;
            self.wait(exchange).await?;
        }
        Ok(is_unbegun)
    }

    /// Whether its processes have handed it over since it was asked, and not ended.
    async fn runs_on(&self) -> bool {
        let (pool, hand_overs) = (self.pool, self.pool.hand_overs());
        let is_handed_over = hand_overs != self.hand_overs && pool.was_handed_over(HANDING_OVER);
        let ended = pool.replaced(self.ends, hand_overs);
        is_handed_over && timeout(END_LOOK, ended).await.is_err()
    }

    /// Waits until it runs, as far as is known: what had ended with it is opened anew.
    ///
    /// # Errors
    /// As [`enter`].
    pub(super) async fn wait(&mut self, exchange: &mut Exchange) -> Result<()> {
        self.ends = self.pool.ends();
        if self.pool.is_warm() && self.newcomer.is_none_or(|it| it.is_in()) {
            return Ok(());
        }
        // Boxed: few wait, and the others need not have room for it.
        Box::pin(self.wait_long(exchange)).await
    }

    async fn wait_long(&mut self, exchange: &mut Exchange) -> Result<()> {
        let (chosen, pool, begun) = (self.chosen, self.pool, Instant::now());
        let patience = permits::patience(chosen, &exchange.route).unwrap_or_else(|| {
            Duration::from_millis(bounds::upstream_read_ms(*chosen, &exchange.route))
        });
        let waits = chosen.waits(&exchange.route);
        let started = self.start(begun + patience);
        let outcome = exchange.while_client_stays(started).await;
        drop(waits);
        let waited = begun.elapsed();
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        *exchange.record.pool_wait_us.get_or_insert(0) += waited_us;
        match outcome {
            None => Err(Error::new(Kind::ClientGone, "client_gone", String::new())),
            Some(Ok(())) => {
                pool.stats.waited.fetch_add(1, Relaxed);
                pool.stats.waited_us.fetch_add(waited_us, Relaxed);
                Ok(())
            }
            Some(Err(error)) => {
                self.remember(exchange, &error, waited);
                Err(error)
            }
        }
    }

    /// Has it started, and waits for it until then.
    async fn start(&mut self, until: Instant) -> Result<()> {
        let Some(_waiting) = self.pool.wait(WAITING_MAX) else {
            let detail = format!("{WAITING_MAX} requests wait for it already");
            return Err(self.starting(&detail));
        };
        loop {
            let mut changed = pin!(self.pool.changed());
            changed.as_mut().enable();
            let chosen = self.chosen;
            let suspension = &chosen.worker.shared.suspension;
            suspension.check(&chosen.site.tenant_name)?;
            self.ends = self.pool.ends();
            let programs = &self.chosen.worker.programs;
            match self.known() {
                Known::Warm => return Ok(()),
                Known::Unsure => {
                    programs.warm_now(self.pool);
                    return Ok(());
                }
                Known::Failed { until, reason, why } => {
                    let left = until.saturating_duration_since(Instant::now());
                    return Err(Error::new(not_warm(left), reason, &*why));
                }
                Known::Starting { ready_at } if ready_at > until => {
                    return Err(
                        self.starting("its start will take longer than the request may wait")
                    );
                }
                Known::Starting { .. } | Known::Cold => {
                    programs.warm(self.pool, self.newcomer).await?;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if timeout(left, changed).await.is_err() {
                return Err(self.starting("its start takes longer than the request may wait"));
            }
        }
    }

    /// How the pool is for this request.
    fn known(&self) -> Known {
        let newcomer = self.newcomer.map(|newcomer| &**newcomer);
        self.pool.known_by(newcomer, Instant::now())
    }

    /// The pool does not run in time.
    fn starting(&self, detail: &str) -> Error {
        let left = match self.known() {
            Known::Starting { ready_at } => ready_at.saturating_duration_since(Instant::now()),
            _ => Duration::ZERO,
        };
        let detail = match left.as_millis() {
            0 => detail.to_owned(),
            ms => format!("{detail}: {ms} ms, as is predicted"),
        };
        Error::new(not_warm(left), "pool_starting", detail)
    }

    /// What became of a request whose connection was closed after so long. php-fpm does that where a
    /// process ends; an application may have other reasons.
    fn ended(&self, error: Error, ran: Duration) -> Error {
        let (pool, ms) = (self.pool, ran.as_millis());
        let idle = Duration::from_millis(pool.idle_ms());
        let time = pool.page_time();
        let has_ended = pool.ends() != self.ends;
        if let Some(time) = time.filter(|time| !has_ended && ran + idle >= *time) {
            let time = config::duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            let detail = format!(
                "its process was ended when the pool had had it for {ms} ms: a page has {time} (pool.time)"
            );
            return Error::new(Kind::UpstreamSlow, "pool_time", detail);
        }
        if time.is_none() && !has_ended {
            return error;
        }
        let why = match &*error.detail {
            "" => "the connection was closed",
            why => why,
        };
        let detail = format!("its process ended after {ms} ms, before the reply did: {why}");
        Error::new(error.kind, "pool_process_ended", detail)
    }

    /// Counts a refusal, and remembers it for whoever asks why.
    fn remember(&self, exchange: &Exchange, error: &Error, waited: Duration) {
        if !matches!(error.kind, Kind::NotWarm { .. }) {
            return;
        }
        let counted = REFUSALS.iter().zip(&self.pool.stats.refused);
        for (_, counter) in counted.filter(|(reason, _)| **reason == error.reason) {
            counter.fetch_add(1, Relaxed);
        }
        self.note(exchange, error, waited, None);
    }

    fn note(&self, exchange: &Exchange, error: &Error, waited: Duration, ran: Option<Duration>) {
        let worker = self.chosen.worker;
        let retry_after_s = match error.kind {
            Kind::NotWarm { retry_after_s } => Some(retry_after_s),
            _ => None,
        };
        worker.shared.program_pools.recent.remember(
            exchange.request.id,
            Unserved {
                id: exchange.request.id,
                at: worker.clock.unix_at(exchange.request.received),
                site: Arc::clone(&self.chosen.site.name),
                tenant: Arc::clone(&self.chosen.site.tenant_name),
                pool: Some(Arc::clone(self.pool)),
                reason: error.reason,
                detail: error.detail.clone(),
                waited,
                ran,
                retry_after_s,
            },
        );
    }
}

/// Whole seconds, never too few.
fn not_warm(left: Duration) -> Kind {
    let seconds = left.as_millis().div_ceil(1_000);
    let seconds = u64::try_from(seconds).unwrap_or(RETRY_S_MAX);
    let seconds = seconds.clamp(1, RETRY_S_MAX);
    Kind::NotWarm {
        retry_after_s: u16::try_from(seconds).unwrap_or(u16::MAX),
    }
}
