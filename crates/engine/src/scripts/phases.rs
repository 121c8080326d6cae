//! Running the scripts of a phase: level by level, outer first, until one answers.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use script::{Datum, Failure, Phase, Run, Step, Wait};

use super::lifecycle::Scripts;
use super::next::Next;
use super::outcome;
use super::plan::{Level, Use};
use super::scripted::Scripted;
use super::shadow;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::route::Route;
use crate::stage::{self, Arrived, Chosen, Routed};
use ipc::order::wish as wished;

/// Runs the `rewrite` scripts: before the request is resolved.
///
/// # Errors
/// One failed, and that denies the request.
pub(crate) async fn rewrite(routed: Routed<'_>, exchange: &mut Exchange) -> Result<Next> {
    match scripts_of(*routed, Phase::Rewrite) {
        None => Ok(Next::On),
        Some(scripts) => all(*routed, scripts, exchange, Phase::Rewrite).await,
    }
}

/// Runs the `access` scripts: after permits, before the handler.
///
/// # Errors
/// As [`rewrite`].
pub(crate) async fn access(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<Next> {
    match scripts_of(**chosen, Phase::Access) {
        None => Ok(Next::On),
        Some(scripts) => all(**chosen, scripts, exchange, Phase::Access).await,
    }
}

/// What runs scripts of this phase, if the generation has any.
pub(super) fn scripts_of<'a>(arrived: Arrived<'a>, phase: Phase) -> Option<&'a Rc<Scripts>> {
    let plan = arrived.serving.generation.scripts.as_ref()?;
    arrived.serving.scripts.as_ref().filter(|_| plan.has(phase))
}

async fn all(
    arrived: Arrived<'_>,
    scripts: &Scripts,
    exchange: &mut Exchange,
    phase: Phase,
) -> Result<Next> {
    let mut place = Cursor::default();
    while let Some(used) = place.next(arrived, &exchange.route, phase) {
        if used.is_in_shadow {
            // Boxed: few scripts are.
            Box::pin(shadow::run(arrived, scripts, exchange, phase, used)).await?;
            continue;
        }
        if let Err(failure) = run(arrived, scripts, exchange, phase, used).await? {
            outcome::failed(exchange, phase, used.on_error, &failure)?;
            continue;
        }
        match outcome::settle(arrived, exchange).await? {
            Next::On => {}
            over => return Ok(over),
        }
    }
    Ok(Next::On)
}

/// Where a phase has got to among a request's levels.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    level: usize,
    script: usize,
}

impl Cursor {
    /// The script that comes next.
    pub(super) fn next(
        &mut self,
        arrived: Arrived<'_>,
        route: &Route,
        phase: Phase,
    ) -> Option<Use> {
        loop {
            let scripts = level(arrived, route, self.level)?;
            if let Some(used) = scripts.and_then(|level| level.of(phase).get(self.script)) {
                self.script += 1;
                if used.is_optional && route.skips_optional {
                    continue;
                }
                return Some(*used);
            }
            self.level += 1;
            self.script = 0;
        }
    }
}

/// The scripts of a level by its number, outermost first; `None` beyond the last.
fn level<'a>(arrived: Arrived<'a>, route: &Route, number: usize) -> Option<Option<&'a Level>> {
    Some(match arrived.level(route, number)? {
        stage::Level::Process => {
            let plan = arrived.serving.generation.scripts.as_ref();
            plan.and_then(|plan| plan.process.as_deref())
        }
        stage::Level::Tenant(site) => site.tenant_scripts.as_deref(),
        stage::Level::Site(site) => site.scripts.as_deref(),
        stage::Level::Rule(rule) => rule.scripts.as_deref(),
        stage::Level::Upstream(_) | stage::Level::Programs => None,
    })
}

/// Runs one script for a request.
///
/// # Errors
/// The client has gone: nobody is there to go on for. How the script failed is inside.
pub(super) async fn run(
    arrived: Arrived<'_>,
    scripts: &Scripts,
    exchange: &mut Exchange,
    phase: Phase,
    used: Use,
) -> Result<std::result::Result<Datum, Failure>> {
    let scripted = exchange.scripted.get_or_insert_default();
    scripted.enter(arrived.worker, arrived.serving, phase);
    let Some(script) = scripts.script(used) else {
        return Ok(Ok(Datum::Nil));
    };
    let interpreter = scripts.interpreter();
    let begun = match interpreter.begin_at_once(phase, script, arrived.worker.clock.moment()) {
        Some(begun) => begun,
        // Boxed, as the next: few scripts wait, and requests need not have room for it.
        None => Box::pin(interpreter.begin(phase, script)).await,
    };
    let ended = match begun {
        Ok(mut run) => match run.step(Some(exchange)) {
            Ok(Step::Done(ran)) => Ok(ran.value),
            Ok(Step::Waits(wait)) => Box::pin(go_on(run, wait, exchange)).await?,
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    arrived.worker.stats.scripts.count(phase, &ended);
    Ok(ended)
}

/// Goes on with a script that waits, to its end or until the client has gone.
async fn go_on(
    mut run: Run,
    mut wait: Wait,
    exchange: &mut Exchange,
) -> Result<std::result::Result<Datum, Failure>> {
    loop {
        let waited = match wait.needs_request() {
            true => {
                let waited = run.wait(wait, Some(exchange)).await;
                if poll_fn(|cx| Poll::Ready(exchange.poll_client_gone(cx).is_ready())).await {
                    return Err(client_gone());
                }
                waited
            }
            false => {
                let mut waiting = pin!(run.wait(wait, None));
                poll_fn(|cx| match waiting.as_mut().poll(cx) {
                    Poll::Ready(waited) => Poll::Ready(Ok(waited)),
                    Poll::Pending => {
                        let gone = exchange.poll_client_gone(cx);
                        gone.map(|()| Err(client_gone()))
                    }
                })
                .await?
            }
        };
        if let Err(failure) = waited {
            return Ok(Err(failure));
        }
        wait = match run.step(Some(exchange)) {
            Ok(Step::Done(ran)) => return Ok(Ok(ran.value)),
            Ok(Step::Waits(wait)) => wait,
            Err(failure) => return Ok(Err(failure)),
        };
    }
}

fn client_gone() -> Error {
    Error::new(Kind::ClientGone, "client_gone", String::new())
}

impl Exchange {
    /// What its scripts left behind; made here if there were none yet.
    pub(crate) fn scripted(&mut self) -> &mut Scripted {
        self.scripted.get_or_insert_default()
    }

    /// The group that a script wants this request's program to be born in.
    pub(crate) fn wished_group(&self) -> Option<os::cgroup::Group> {
        let wish = self.scripted.as_ref()?.scope.cgroup.as_ref()?;
        Some(wished(&wish.name, wish.limits.clone()))
    }
}
