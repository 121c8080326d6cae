//! What the chapters of stores have in common: the worker's clients, and whose request it is.

use std::rc::Rc;

use mruby::Answer;

use super::native::holding;
use crate::clients::Clients;
use crate::state::NativeCall;
use crate::wait::Woken;
use stores::{Error, Session, Stores, VALUE_BYTES_MAX};

/// The worker's clients.
pub(super) fn clients(call: &mut NativeCall<'_>) -> Rc<Clients> {
    let state = &*call.host;
    state.together.clients(&state.settings.budgets)
}

/// Where clients are made.
pub(super) fn stores(call: &mut NativeCall<'_>) -> Rc<Stores> {
    Rc::clone(clients(call).stores())
}

/// The request as stores know it; what it leaves open ends with it.
pub(super) fn session(call: &mut NativeCall<'_>) -> Result<Session, Answer> {
    let clients = clients(call);
    let session = clients.session(holding(call));
    session.ok_or_else(|| Answer::runtime_error("this request holds too much already"))
}

/// Looks whether what was given is short enough to be sent, before a copy is made of it.
pub(super) fn fits(call: &NativeCall<'_>, what: &str) -> Result<(), Answer> {
    match call.given_bytes() > VALUE_BYTES_MAX {
        true => Err(Answer::argument_error(format!(
            "{what} has at most {VALUE_BYTES_MAX} bytes"
        ))),
        false => Ok(()),
    }
}

/// The exception of an error in a call that waited.
pub(super) fn raised(class: &'static str, error: &Error) -> Woken {
    Woken::Raise(class, error.to_string())
}
