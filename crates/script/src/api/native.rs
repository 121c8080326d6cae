//! What natives have in common: whose request it is, and how they wait.
//!
//! One wait, from the line of a script that asks MySQL to the one after it, is four files:
//!
//! 1. `api/mysql.rs`, `start`: the native begins the statement and gives its future to [`wait_for`].
//! 2. Here: [`wait_for`] leaves the future in the VM's state and answers [`Answer::Wait`]. The crate
//!    `mruby` yields from the script's fiber then, once no frame of Rust is left on its stack, and
//!    `Vm::resume` comes back with `Halt::Parked`.
//! 3. `interpreter/run.rs`: `Run::step` takes the future out of the state and hands it to its caller as
//!    `Step::Waits`; `Run::wait` awaits it, within the script's time, and keeps what it came to for the
//!    next step, which goes on with the fiber.
//! 4. `scripts/phases.rs` of the engine, `go_on`: awaits `Run::wait` and watches the client meanwhile,
//!    with the exchange in nobody's hands; when the client goes, the run is dropped, and with it the
//!    future and the fiber.

use std::rc::Rc;

use mruby::{Answer, Datum};

use crate::phase::Phase;
use crate::request::Request;
use crate::scope::Scope;
use crate::state::NativeCall;
use crate::wait::{Ask, Pending, Woken};

/// Parks the fiber until `future` has ended.
pub(crate) fn wait(
    call: &mut NativeCall<'_>,
    future: impl Future<Output = Woken> + 'static,
) -> Answer {
    if let Some(refused) = refused(call) {
        return refused;
    }
    call.host.pending = Some(Pending::Future(Box::pin(future), None));
    Answer::Wait
}

/// As [`wait`], where a message about a wait that took too long is to name whom it was for.
pub(crate) fn wait_for(
    call: &mut NativeCall<'_>,
    whom: Rc<str>,
    future: impl Future<Output = Woken> + 'static,
) -> Answer {
    if let Some(refused) = refused(call) {
        return refused;
    }
    call.host.pending = Some(Pending::Future(Box::pin(future), Some(whom)));
    Answer::Wait
}

/// Parks the fiber until the engine has done what is asked.
pub(crate) fn ask(call: &mut NativeCall<'_>, ask: Ask) -> Answer {
    if let Some(refused) = refused(call) {
        return refused;
    }
    call.host.pending = Some(Pending::Ask(ask));
    Answer::Wait
}

/// Why nothing may be waited for now: others would find the file that is being required half done.
fn refused(call: &NativeCall<'_>) -> Option<Answer> {
    let is_refused = call.host.features.is_loading() && !call.host.phase.is_of_vm();
    is_refused.then(|| {
        Answer::Raise(
            "FiberError",
            "a file that is required in the middle of a request cannot wait: require it in scripts.init"
                .to_owned(),
        )
    })
}

/// The request the script runs for, or the exception that says there is none.
pub(crate) fn request<'a>(
    call: &'a mut NativeCall<'_>,
) -> Result<&'a mut (dyn Request + 'static), Answer> {
    let phase = call.host.phase;
    call.lent().ok_or_else(|| no_request(phase))
}

/// The exception that says there is no request.
pub(super) fn no_request(phase: Phase) -> Answer {
    Answer::runtime_error(format!("there is no request in the phase {phase}"))
}

/// What the request's scripts have left behind, or the exception that says there is none.
pub(crate) fn scope<'a>(call: &'a mut NativeCall<'_>) -> Result<&'a mut Scope, Answer> {
    request(call).map(Request::scope)
}

/// Where the run under way holds things: its request's scope, or its own where there is none.
pub(crate) fn holding<'a>(call: &'a mut NativeCall<'_>) -> &'a mut Scope {
    match call.parts() {
        (_, _, Some(request)) => request.scope(),
        (state, _, None) => state.own.get_or_insert_default(),
    }
}

/// What a Hash of options says of `wanted`, be it named by a Symbol or by a String.
pub(crate) fn option<'a>(options: &'a Datum, wanted: &str) -> Option<&'a Datum> {
    let Datum::Hash(pairs) = options else {
        return None;
    };
    let named = pairs.iter().rfind(|(name, _)| match name {
        Datum::Symbol(name) | Datum::Bytes(name) => name == wanted.as_bytes(),
        _ => false,
    });
    named.map(|(_, value)| value)
}

/// One answer for a native that fails with `?`.
pub(crate) fn answered(result: Result<Answer, Answer>) -> Answer {
    result.unwrap_or_else(|raise| raise)
}
