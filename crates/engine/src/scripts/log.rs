//! The `log` phase: after the reply, once for every request that got a head.
//!
//! The scripts run when the kernel has the reply's last byte and the permits are given back. One
//! that does not wait is done before the connection reads on. One that waits goes on in a task of
//! its own, with what is known of the exchange moved there: the connection is free for its next
//! request, and the access record is written already.

use std::rc::Rc;
use std::time::Instant;

use script::{Begun, Failure, Phase, Run, Step, Wait};

use super::phases::{self, Cursor, has, run_at_once};
use super::plan::Use;
use super::scripted::Scripted;
use crate::exchange::Exchange;
use crate::stage::Arrived;
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// `log` phases of a worker that wait at once; what is beyond is given up, and said.
const WAITING_MAX: usize = 4_096;

/// What is left of a `log` phase that has to wait.
pub(crate) struct Rest {
    place: Cursor,
    next: Next,
}

/// How it goes on.
enum Next {
    /// With the script that comes next.
    Script,
    /// With this one, whose VM must be opened or which must be compiled first.
    Begin(Use),
    /// With this one, which waits.
    Wait(Box<(Run, Wait)>),
}

/// Runs the `log` scripts of an exchange that ended at this moment, as far as they don't wait.
pub(crate) fn log(arrived: Arrived<'_>, exchange: &mut Exchange, ended: Instant) -> Option<Rest> {
    if !has(arrived, Phase::Log) {
        return None;
    }
    let scripted = exchange.scripted();
    scripted.enter(arrived.worker, arrived.serving, Phase::Log);
    scripted.scope.show_shadow_notes();
    scripted.ended = Some(ended);
    let mut rest = Rest {
        place: Cursor::default(),
        next: Next::Script,
    };
    rest.run(arrived, exchange, ended);
    match rest.next {
        Next::Script => None,
        Next::Begin(_) | Next::Wait(_) => Some(rest),
    }
}

impl Rest {
    /// Runs what is left until it is over or waits.
    fn run(&mut self, arrived: Arrived<'_>, exchange: &mut Exchange, now: Instant) {
        while let Some(used) = self.place.next(arrived, &exchange.route, Phase::Log) {
            let ended = match run_at_once(arrived, exchange, (Phase::Log, used), now) {
                None => return self.next = Next::Begin(used),
                Some(Ok(Begun::Done(_))) => Ok(()),
                Some(Ok(Begun::Waits(waiting))) => return self.next = Next::Wait(waiting),
                Some(Err(failure)) => Err(failure),
            };
            told(arrived, exchange, ended);
        }
    }

    /// Goes on in a task of the worker with what is known of the exchange.
    pub(crate) fn depart(self, arrived: Arrived<'_>, exchange: &mut Exchange) {
        let worker = arrived.worker;
        let waiting = &worker.scripts_logging;
        if waiting.get() >= WAITING_MAX {
            arrived
                .worker
                .stats
                .scripts
                .count(Phase::Log, &Err::<(), ()>(()));
            let id = exchange.request.id;
            tracing::warn!(request_id = %id, "log scripts given up: {WAITING_MAX} of this worker wait already");
            return;
        }
        let departed = exchange.depart(&worker.spares);
        let waiting = Waiting::begin(worker);
        let serving = Rc::clone(arrived.serving);
        tokio::task::spawn_local(self.finish(waiting, serving, departed));
    }

    async fn finish(mut self, waiting: Waiting, serving: Rc<Serving>, mut exchange: Box<Exchange>) {
        let row = exchange.route.row.clone();
        let arrived = Arrived {
            worker: &waiting.worker,
            serving: &serving,
            row: Some(&row),
        };
        loop {
            let ended = match std::mem::replace(&mut self.next, Next::Script) {
                Next::Script => break,
                Next::Begin(used) => begin(arrived, used, &mut exchange).await,
                Next::Wait(waiting) => go_on(*waiting, &mut exchange).await,
            };
            told(arrived, &exchange, ended);
            self.run(arrived, &mut exchange, Instant::now());
        }
        if let Some(scripted) = &mut exchange.scripted {
            Scripted::end(scripted);
        }
        arrived.worker.spares.give(exchange);
    }
}

async fn begin(arrived: Arrived<'_>, used: Use, exchange: &mut Exchange) -> Result<(), Failure> {
    let Ok(begun) = phases::begin(arrived, exchange, Phase::Log, used).await else {
        // Its client may have gone; there is none to go on for.
        return Ok(());
    };
    let mut run = begun?;
    match run.step(Some(exchange))? {
        Step::Done(_) => Ok(()),
        Step::Waits(wait) => go_on((run, wait), exchange).await,
    }
}

async fn go_on((mut run, mut wait): (Run, Wait), exchange: &mut Exchange) -> Result<(), Failure> {
    loop {
        run.wait(wait, Some(exchange)).await?;
        wait = match run.step(Some(exchange))? {
            Step::Done(_) => return Ok(()),
            Step::Waits(wait) => wait,
        };
    }
}

/// Counts a script that has run, and says what it failed of.
fn told(arrived: Arrived<'_>, exchange: &Exchange, ended: Result<(), Failure>) {
    arrived.worker.stats.scripts.count(Phase::Log, &ended);
    if let Err(failure) = ended {
        let (client, id) = (exchange.request.client, exchange.request.id);
        let (site, reason) = (arrived.site_name(&exchange.route), failure.reason());
        tracing::error!(%client, request_id = %id, site, reason, phase = "log", detail = %failure, "script failed");
    }
}

/// Counts a `log` phase that waits, until dropped.
struct Waiting {
    worker: Rc<Worker>,
}

impl Waiting {
    fn begin(worker: &Rc<Worker>) -> Self {
        let waiting = &worker.scripts_logging;
        waiting.set(waiting.get() + 1);
        Self {
            worker: Rc::clone(worker),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let waiting = &self.worker.scripts_logging;
        waiting.set(waiting.get() - 1);
    }
}
