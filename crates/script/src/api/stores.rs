//! What the chapters of stores have in common: the worker's clients, and whose request it is.
//!
//! The clients are made when a script first wants one. Their idle connections are closed by a task
//! that ends with the interpreter.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mruby::Answer;
use tokio::task::AbortHandle;

use super::holding;
use crate::settings::Budgets;
use crate::state::NativeCall;
use crate::store::{Error, Limits, Session, Stores, VALUE_BYTES_MAX};
use crate::wait::Woken;

/// How long a connection may lie idle.
const IDLE: Duration = Duration::from_secs(60);

/// How often idle connections are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// One warning per server in this time.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Servers of which it is known when they were warned of.
const WARNED_MAX: usize = 256;

/// The clients of one interpreter.
pub(crate) struct Connected {
    stores: Rc<Stores>,
    /// Requests at whose end something is to be closed.
    sessions: Rc<RefCell<BTreeSet<u64>>>,
    warned: RefCell<HashMap<String, Instant>>,
    sweeping: AbortHandle,
}

impl Connected {
    fn new(budgets: &Budgets) -> Self {
        let stores = Stores::new(Limits {
            connect_timeout: budgets.connect_timeout,
            command_timeout: budgets.store_timeout,
            connections_max: budgets.store_connections,
            idle_timeout: IDLE,
        });
        let swept = Rc::downgrade(&stores);
        let sweeping = tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                match swept.upgrade() {
                    Some(stores) => stores.sweep(),
                    None => return,
                }
            }
        });
        Self {
            stores,
            sessions: Rc::default(),
            warned: RefCell::default(),
            sweeping: sweeping.abort_handle(),
        }
    }

    /// Logs what went wrong with a server, unless it was logged a moment ago.
    pub(super) fn warn(&self, server: &str, error: &Error) {
        let mut warned = self.warned.borrow_mut();
        let now = Instant::now();
        if warned
            .get(server)
            .is_some_and(|last| now.duration_since(*last) < WARN_EVERY)
        {
            return;
        }
        if warned.len() >= WARNED_MAX {
            warned.clear();
        }
        warned.insert(server.to_owned(), now);
        tracing::warn!(%error, "a script goes on without its store");
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.sweeping.abort();
    }
}

/// The worker's clients.
pub(super) fn connected(call: &mut NativeCall<'_>) -> Rc<Connected> {
    let state = &mut *call.host;
    let budgets = &state.settings.budgets;
    let connected = state
        .connected
        .get_or_insert_with(|| Rc::new(Connected::new(budgets)));
    Rc::clone(connected)
}

/// Where clients are made.
pub(super) fn stores(call: &mut NativeCall<'_>) -> Rc<Stores> {
    Rc::clone(&connected(call).stores)
}

/// Closes with its request what that has left open in stores.
struct End {
    stores: Rc<Stores>,
    sessions: Rc<RefCell<BTreeSet<u64>>>,
    serial: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        self.sessions.borrow_mut().remove(&self.serial);
        self.stores.end(Session(self.serial));
    }
}

/// The request as stores know it; what it leaves open ends with it.
pub(super) fn session(call: &mut NativeCall<'_>) -> Result<Session, Answer> {
    let connected = connected(call);
    let scope = holding(call);
    let serial = scope.serial();
    if connected.sessions.borrow_mut().insert(serial) {
        let end = End {
            stores: Rc::clone(&connected.stores),
            sessions: Rc::clone(&connected.sessions),
            serial,
        };
        if scope.hold(Box::new(end)).is_none() {
            return Err(Answer::runtime_error("this request holds too much already"));
        }
    }
    Ok(Session(serial))
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
