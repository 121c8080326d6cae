//! Running the scripts of a phase: level by level, outer first, until one answers.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use script::{Begun, Datum, Failure, Phase, Run, Step, Wait};

use super::lifecycle::Scripts;
use super::next::Next;
use super::outcome;
use super::plan::{Level, Use, VmIndex};
use super::scripted::Scripted;
use super::shadow;
use super::vms::Pinned;
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
    match has(*routed, Phase::Rewrite) {
        false => Ok(Next::On),
        true => all(*routed, exchange, Phase::Rewrite).await,
    }
}

/// Runs the `access` scripts: after permits, before the handler.
///
/// # Errors
/// As [`rewrite`].
pub(crate) async fn access(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<Next> {
    match has(**chosen, Phase::Access) {
        false => Ok(Next::On),
        true => all(**chosen, exchange, Phase::Access).await,
    }
}

/// Lets the tenant's VM go before a handler that is no script, as [`let_go`].
pub(crate) fn leave_vm(chosen: Chosen<'_>, exchange: &mut Exchange) {
    if chosen.rule.is_none_or(|rule| rule.script.is_none()) {
        let_go(chosen, exchange);
    }
}

/// Lets the tenant's VM go once a reply is about to be made, where nothing more of the request runs
/// in it: the reply may take as long as its client wants.
pub(super) fn let_go(chosen: Chosen<'_>, exchange: &mut Exchange) {
    let scripted = exchange.scripted.as_ref();
    if !scripted.is_some_and(|scripted| scripted.keeps_vm()) {
        return;
    }
    let route = &exchange.route;
    let is_next =
        |phase| has(**chosen, phase) && Cursor::default().next(**chosen, route, phase).is_some();
    let mut later = [Phase::HeaderFilter, Phase::BodyFilter, Phase::Log].into_iter();
    if !later.any(is_next) {
        exchange.scripted().keep_vm(None);
    }
}

/// Whether the generation runs scripts of this phase at all.
pub(super) fn has(arrived: Arrived<'_>, phase: Phase) -> bool {
    let plan = arrived.serving.generation.scripts.as_ref();
    plan.is_some_and(|plan| plan.has(phase)) && arrived.serving.scripts.is_some()
}

async fn all(arrived: Arrived<'_>, exchange: &mut Exchange, phase: Phase) -> Result<Next> {
    let mut place = Cursor::default();
    while let Some(used) = place.next(arrived, &exchange.route, phase) {
        if used.is_in_shadow {
            // Boxed: few scripts are.
            Box::pin(shadow::run(arrived, exchange, phase, used)).await?;
            continue;
        }
        if let Err(failure) = run(arrived, exchange, phase, used).await? {
            outcome::failed(arrived, exchange, phase, used.on_error, &failure)?;
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
        stage::Level::Groups(_) | stage::Level::Upstream(_) | stage::Level::Programs => None,
    })
}

/// What a script came to.
pub(super) type Ended = std::result::Result<Datum, Failure>;

/// Runs one script for a request.
///
/// # Errors
/// The client has gone: nobody is there to go on for. How the script failed is inside.
pub(super) async fn run(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    used: Use,
) -> Result<Ended> {
    let scripted = exchange.scripted.get_or_insert_default();
    scripted.enter(arrived.worker, arrived.serving, phase);
    let now = arrived.worker.clock.moment();
    let ended = match run_at_once(arrived, exchange, (phase, used), now) {
        Some(Ok(Begun::Done(ran))) => Ok(ran.value),
        // Boxed, as the next: few scripts wait, and requests need not have room for it.
        Some(Ok(Begun::Waits(waiting))) => Box::pin(go_on(waiting, exchange)).await?,
        Some(Err(failure)) => Err(failure),
        None => Box::pin(run_late(arrived, exchange, phase, used)).await?,
    };
    arrived.worker.stats.scripts.count(phase, &ended);
    Ok(ended)
}

/// The tenant's VM that a request runs its scripts in; `None` where that is the shared one.
pub(super) fn own_vm(arrived: Arrived<'_>, route: &Route) -> Option<VmIndex> {
    let vms = arrived.serving.scripts.as_ref();
    vms.filter(|vms| vms.has_own())?;
    let vm = arrived.site(route)?.vm;
    (vm != VmIndex::SHARED).then_some(vm)
}

/// What log lines call a script of a request.
pub(super) fn name_of(arrived: Arrived<'_>, exchange: &Exchange, used: Use) -> Arc<str> {
    let plan = arrived.serving.generation.scripts.as_ref();
    let vm = own_vm(arrived, &exchange.route).unwrap_or(VmIndex::SHARED);
    plan.map_or_else(Arc::default, |plan| plan.name_of(vm, used))
}

/// Begins a script and lets it go on where nothing has to be opened or waited for first; `None`
/// otherwise. The time is about `now`.
pub(super) fn run_at_once(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    (phase, used): (Phase, Use),
    now: Instant,
) -> Option<std::result::Result<Begun, Failure>> {
    let scripts = scripts_of(arrived, exchange)?;
    let (interpreter, script) = (
        Rc::clone(scripts.interpreter()),
        scripts.script(used)?.clone(),
    );
    interpreter.run_at_once(phase, &script, now, Some(exchange))
}

/// As [`run`], for a script that has to be waited for before it begins.
async fn run_late(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    used: Use,
) -> Result<Ended> {
    let mut run = match begin(arrived, exchange, phase, used).await? {
        Ok(run) => run,
        Err(failure) => return Ok(Err(failure)),
    };
    match run.step(Some(exchange)) {
        Ok(Step::Done(ran)) => Ok(Ok(ran.value)),
        Ok(Step::Waits(wait)) => go_on(Box::new((run, wait)), exchange).await,
        Err(failure) => Ok(Err(failure)),
    }
}

/// What runs the scripts of a request, if it is open.
fn scripts_of<'a>(arrived: Arrived<'a>, exchange: &'a mut Exchange) -> Option<&'a Scripts> {
    let vms = arrived.serving.scripts.as_ref()?;
    match own_vm(arrived, &exchange.route) {
        None => Some(vms.shared()),
        Some(vm) => exchange.scripted().vm(vms, vm).map(|kept| &**kept),
    }
}

/// Begins a script when its VM is open and it is compiled.
///
/// # Errors
/// The client has gone. Why it cannot begin is inside.
pub(super) async fn begin(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    used: Use,
) -> Result<std::result::Result<Run, Failure>> {
    if scripts_of(arrived, exchange).is_none() {
        let opened = open_vm(arrived, exchange, phase, used).await?;
        match opened {
            Ok(vm) => exchange.scripted().keep_vm(Some(vm)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    let scripts = scripts_of(arrived, exchange);
    let script = scripts.and_then(|scripts| Some((scripts.interpreter(), scripts.script(used)?)));
    let (interpreter, script) = script.ok_or_else(no_scripts)?;
    Ok(interpreter.begin(phase, script).await)
}

/// Opens the VM of the request's tenant, as long as the client stays.
async fn open_vm(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    phase: Phase,
    used: Use,
) -> Result<std::result::Result<Pinned, Failure>> {
    let plan = arrived.serving.generation.scripts.as_ref();
    let vms = arrived.serving.scripts.as_ref();
    let (plan, vms) = plan.zip(vms).ok_or_else(no_scripts)?;
    let vm = own_vm(arrived, &exchange.route).unwrap_or(VmIndex::SHARED);
    let wall = match phase {
        Phase::Log => plan.budgets.log_wall,
        _ => plan.budgets.wall,
    };
    let opened = Rc::clone(vms).pin_opened(vm, plan.name_of(vm, used), wall);
    let opened = exchange.while_client_stays(opened).await;
    opened.ok_or_else(client_gone)
}

fn no_scripts() -> Error {
    Error::new(Kind::Internal, "no_scripts", String::new())
}

/// Goes on with a script that waits, to its end or until the client has gone.
async fn go_on(waiting: Box<(Run, Wait)>, exchange: &mut Exchange) -> Result<Ended> {
    let (mut run, mut wait) = *waiting;
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
                let waited = exchange.while_client_stays(run.wait(wait, None)).await;
                waited.ok_or_else(client_gone)?
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
    pub(crate) fn wished_group(&self) -> Option<Box<os::cgroup::Group>> {
        let wish = self.scripted.as_ref()?.scope.cgroup.as_ref()?;
        Some(Box::new(wished(&wish.name, wish.limits.clone())))
    }
}
