//! The clients of stores that the scripts of a worker share, in whichever of its VMs they run.
//!
//! They are made when a script first wants one. Their idle connections are closed by a task that ends
//! with the last VM, and what a request has left open is closed with the request.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::scope::Scope;
use crate::settings::Budgets;
use stores::{Error, Limits, Session, Stores};

/// How long a connection may lie idle.
const IDLE: Duration = Duration::from_secs(60);

/// How often idle connections are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// One warning per server in this time.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Servers of which it is known when they were warned of.
const WARNED_MAX: usize = 256;

/// The clients of one worker and generation.
pub(crate) struct Clients {
    stores: Rc<Stores>,
    /// Requests at whose end something is to be closed.
    sessions: Rc<RefCell<BTreeSet<u64>>>,
    warned: RefCell<HashMap<String, Instant>>,
    sweeping: AbortHandle,
}

impl Clients {
    pub(crate) fn new(budgets: &Budgets) -> Self {
        let stores = Stores::new(Limits {
            connect_timeout: budgets.connect_timeout,
            command_timeout: budgets.store_timeout,
            connections_max: budgets.store_connections,
            idle_timeout: IDLE,
            ..Limits::default()
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

    /// Where clients are made.
    pub(crate) fn stores(&self) -> &Rc<Stores> {
        &self.stores
    }

    /// The request of a scope as stores know it; what it leaves open ends with it. `None` when the
    /// request holds too much already.
    pub(crate) fn session(&self, scope: &mut Scope) -> Option<Session> {
        let serial = scope.serial();
        if self.sessions.borrow_mut().insert(serial) {
            scope.hold(Box::new(End {
                stores: Rc::clone(&self.stores),
                sessions: Rc::clone(&self.sessions),
                serial,
            }))?;
        }
        Some(Session(serial))
    }

    /// Logs what went wrong with a server, unless it was logged a moment ago.
    pub(crate) fn warn(&self, server: &str, error: &Error) {
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

impl Drop for Clients {
    fn drop(&mut self) {
        self.sweeping.abort();
    }
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
