//! Who may come in: `allow`, `deny` and Basic authentication.
//!
//! The lists of every level count: a client denied anywhere stays out, and where somebody is let
//! in by name, whoever is not named stays out. Of several `auth` the innermost asks. Passwords
//! are compared on the helper threads, a few at a time and in fair turns ([`permits`]): who guesses
//! pays for what that takes, and waits behind those who don't. A good answer holds for a minute.

mod apr1;
pub(crate) mod checks;
mod credentials;
mod password;
#[cfg(test)]
mod tests;

use std::hash::BuildHasher;
use std::sync::Arc;

use config::model::Auth;
use wire::FieldId;

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::exchange::route::Route;
use crate::permits;
use crate::stage::Chosen;

use credentials::Credentials;

/// Lets the client pass or refuses it, by its address.
///
/// # Errors
/// 403 for a client kept out.
pub(crate) fn check_client(chosen: Chosen<'_>, exchange: &Exchange) -> Result<()> {
    let client = exchange.request.client;
    chosen.settings(&exchange.route).try_for_each(|level| {
        if level.deny.iter().any(|net| net.contains(&client)) {
            return Err(Error::refused(403, "client_denied"));
        }
        if !level.allow.is_empty() && !level.allow.iter().any(|net| net.contains(&client)) {
            return Err(Error::refused(403, "client_not_allowed"));
        }
        Ok(())
    })
}

/// Lets the request pass or refuses it, by its credentials.
///
/// # Errors
/// 401 for wrong ones, 503 when too many are being compared.
pub(crate) async fn check_credentials(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let Some(auth) = asking(chosen, &exchange.route) else {
        return Ok(());
    };
    let Some(credentials) = Credentials::of(&exchange.request) else {
        return Err(ask(auth, exchange, "auth_missing"));
    };
    // Sent elsewhere inside, it may ask again.
    exchange.record.user.clone_from(&credentials.user);
    // Boxed: few sites ask for credentials, and the others need not have room for it, nor move it.
    match Box::pin(authenticate(chosen, exchange, auth, credentials)).await? {
        true => Ok(()),
        false => Err(ask(auth, exchange, "auth_wrong")),
    }
}

/// Who asks for credentials.
fn asking<'a>(chosen: Chosen<'a>, route: &Route) -> Option<&'a Auth> {
    let levels = chosen.settings(route);
    levels.filter_map(|level| level.auth.as_ref()).next_back()
}

/// The refusal that asks for credentials (RFC 7617).
fn ask(auth: &Auth, exchange: &mut Exchange, reason: &'static str) -> Error {
    // Configuration lets no quote or backslash into a realm.
    let value = format!("Basic realm=\"{}\", charset=\"UTF-8\"", auth.realm);
    let fields = &mut exchange.outgoing.fields;
    fields.push(b"WWW-Authenticate", value.as_bytes());
    Error::refused(401, reason)
}

/// Whether the credentials are right.
///
/// A good answer is looked up by user and password together, so what is known of a user tells
/// somebody who guesses at his password nothing, neither by the answer nor by the time it takes.
async fn authenticate(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    auth: &Auth,
    credentials: Credentials,
) -> Result<bool> {
    let worker = chosen.worker;
    let (checks, users) = (&worker.auth_checks, Arc::clone(&auth.users));
    let key = checks.key(auth, &credentials);
    let is_known = || checks.remembers(key, worker.deadlines.now_ms());
    if is_known() {
        return Ok(true);
    }
    let turn = permits::password_turn(chosen, exchange).await?;
    // A page's pictures ask beside it, and one answer is enough.
    if is_known() {
        return Ok(true);
    }
    let pick = checks.keys[0].hash_one(&credentials.user);
    let compared = tokio::task::spawn_blocking(move || {
        let is_right = password::is_right(&users, &credentials.user, &credentials.password, pick);
        // It has gone with the work, which goes on when the client doesn't wait for it.
        if let Some(turn) = turn {
            turn.end();
        }
        is_right
    });
    let right = compared
        .await
        .map_err(|error| Error::new(Kind::Internal, "auth_helper", error.to_string()))?;
    if right {
        checks.remember(key, worker.deadlines.now_ms());
    }
    Ok(right)
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
