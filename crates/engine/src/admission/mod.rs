//! Who may come in: `allow`, `deny` and Basic authentication.
//!
//! The lists of every level count: a client denied anywhere stays out, and where somebody is let
//! in by name, whoever is not named stays out. Of several `auth` the innermost asks. Passwords
//! are compared on the helper threads, a few at a time, and a good answer holds for a minute.

mod apr1;
mod credentials;
mod password;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use config::model::Auth;
use tokio::sync::Semaphore;
use wire::FieldId;

use crate::error::{Error, Kind, Result};
use crate::exchange::{Exchange, Outgoing, Request, Route};
use crate::helper::PASSWORDS_MAX;
use crate::worker::Worker;

use credentials::Credentials;

/// How long a good answer holds.
const REMEMBERED_MS: u64 = 60_000;
/// Good answers a worker remembers.
const REMEMBERED_MAX: usize = 4_096;

/// Lets the client pass or refuses it, by its address.
///
/// # Errors
/// 403 for a client kept out.
pub fn check_client(exchange: &Exchange) -> Result<()> {
    admit(&exchange.route, exchange.request.client)
}

/// Lets the request pass or refuses it, by its credentials.
///
/// # Errors
/// 401 for wrong ones, 503 when too many are being compared.
pub async fn check_credentials(worker: &Rc<Worker>, exchange: &mut Exchange) -> Result<()> {
    let Exchange {
        request,
        route,
        outgoing,
        record,
        ..
    } = exchange;
    let Some(auth) = route
        .settings()
        .filter_map(|level| level.auth.as_ref())
        .last()
    else {
        return Ok(());
    };
    let Some(credentials) = Credentials::of(request) else {
        return Err(ask(auth, outgoing, "auth_missing"));
    };
    record.user.push_str(&credentials.user);
    match authenticate(worker, auth, credentials).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(ask(auth, outgoing, "auth_wrong")),
        Err(error) => Err(error),
    }
}

fn admit(route: &Route, client: IpAddr) -> Result<()> {
    for level in route.settings() {
        if level.deny.iter().any(|net| net.contains(&client)) {
            return Err(Error::refused(403, "client_denied"));
        }
        if !level.allow.is_empty() && !level.allow.iter().any(|net| net.contains(&client)) {
            return Err(Error::refused(403, "client_not_allowed"));
        }
    }
    Ok(())
}

/// The refusal that asks for credentials (RFC 7617).
fn ask(auth: &Auth, outgoing: &mut Outgoing, reason: &'static str) -> Error {
    // Configuration lets no quote or backslash into a realm.
    let value = format!("Basic realm=\"{}\", charset=\"UTF-8\"", auth.realm);
    outgoing.fields.push(b"WWW-Authenticate", value.as_bytes());
    Error::refused(401, reason)
}

async fn authenticate(worker: &Worker, auth: &Auth, credentials: Credentials) -> Result<bool> {
    let checks = &worker.auth_checks;
    let key = checks.key(auth, &credentials);
    if checks.remembers(key, worker.deadlines.now_ms()) {
        return Ok(true);
    }
    let waiting_max = worker.serving().generation.process.caps.auth_waiting;
    let seat = Seat::take(&checks.waiting, waiting_max)?;
    // The semaphore is never closed.
    let turn = Arc::clone(&checks.turns).acquire_owned().await.ok();
    let (users, pick) = (
        Arc::clone(&auth.users),
        checks.keys[0].hash_one(&credentials.user),
    );
    let compared = tokio::task::spawn_blocking(move || {
        // Both go with the work: it goes on when the client doesn't wait for it.
        let _held = (seat, turn);
        password::is_right(&users, &credentials.user, &credentials.password, pick)
    });
    let right = compared
        .await
        .map_err(|error| Error::new(Kind::Internal, "auth_helper", error.to_string()))?;
    if right {
        checks.remember(key, worker.deadlines.now_ms());
    }
    Ok(right)
}

/// What a worker knows of passwords.
#[derive(Debug)]
pub struct Checks {
    /// When good answers end. Keys are hashes under keys of this process: no password is kept.
    good: RefCell<HashMap<[u64; 2], u64>>,
    keys: [RandomState; 2],
    turns: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Checks {
    /// Begins without knowledge; `waiting` counts the checks of all workers.
    pub fn new(waiting: Arc<AtomicUsize>) -> Self {
        Self {
            good: RefCell::default(),
            keys: [RandomState::new(), RandomState::new()],
            turns: Arc::new(Semaphore::new(PASSWORDS_MAX)),
            waiting,
        }
    }

    /// A changed password changes the key: a good answer never outlives it.
    fn key(&self, auth: &Auth, credentials: &Credentials) -> [u64; 2] {
        let stored = auth.users.get(&credentials.user);
        let text = (&auth.file, stored, &credentials.user, &credentials.password);
        [self.keys[0].hash_one(text), self.keys[1].hash_one(text)]
    }

    fn remembers(&self, key: [u64; 2], now_ms: u64) -> bool {
        self.good
            .borrow()
            .get(&key)
            .is_some_and(|until_ms| now_ms < *until_ms)
    }

    fn remember(&self, key: [u64; 2], now_ms: u64) {
        let mut good = self.good.borrow_mut();
        if good.len() >= REMEMBERED_MAX {
            good.retain(|_, until_ms| now_ms < *until_ms);
        }
        if good.len() >= REMEMBERED_MAX {
            good.clear();
        }
        good.insert(key, now_ms + REMEMBERED_MS);
    }
}

/// One check among those that wait; given back on drop.
#[derive(Debug)]
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(waiting: &Arc<AtomicUsize>, waiting_max: usize) -> Result<Self> {
        let seat = Self(Arc::clone(waiting));
        if waiting.fetch_add(1, Relaxed) >= waiting_max {
            return Err(Error::new(Kind::Full, "auth_waiting", String::new()));
        }
        Ok(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Credentials {
    fn of(request: &Request) -> Option<Self> {
        let mut fields = request.head.fields.get_all(FieldId::Authorization);
        match (fields.next(), fields.next()) {
            (Some(only), None) => Self::read(only),
            _ => None,
        }
    }
}
