//! Who may come in: `allow`, `deny` and Basic authentication.
//!
//! The lists of every level count: a client denied anywhere stays out, and where somebody is let
//! in by name, whoever is not named stays out. Of several `auth` the innermost asks. Passwords
//! are compared on the helper threads, a few at a time and in fair turns ([`permits`]): who guesses
//! pays for what that takes, and waits behind those who don't. A good answer holds for a minute.

mod apr1;
pub(crate) mod checks;
mod credentials;
pub(crate) mod denied;
mod password;
#[cfg(test)]
mod tests;

use std::hash::BuildHasher;
use std::ptr;
use std::sync::Arc;

use config::model::{Auth, Settings};
use ipnet::IpNet;
use wire::FieldId;

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::exchange::route::{Refusing, Route};
use crate::permits;
use crate::stage::Chosen;

pub(crate) use credentials::Credentials;

/// Lets the client pass or refuses it, by its address.
///
/// # Errors
/// 403 for a client kept out, 503 while nobody can say who is.
pub(crate) fn check_client(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let client = exchange.request.client;
    let refused = chosen.settings(&exchange.route).find_map(|level| {
        let is_named = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&client));
        let files = level.deny_files.iter();
        let mut files = files.filter_map(|at| chosen.serving.generation.denied.get(*at));
        let denied = match is_named(&level.deny) {
            true => Some((403, "client_denied")),
            false => files.find_map(|file| file.denies(client)),
        };
        let keeps_out = !level.allow.is_empty() && !is_named(&level.allow);
        let refused = denied.or(keeps_out.then_some((403, "client_not_allowed")));
        refused.map(|refused| (level, refused))
    });
    match refused {
        None => Ok(()),
        Some((level, refused)) => Err(refuse(chosen, exchange, level, refused)),
    }
}

/// The refusal by these settings, which are the site's or a rule's that matched: says whose.
#[cold]
fn refuse(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    level: &Settings,
    (status, reason): (u16, &'static str),
) -> Error {
    let is_here = |index: &usize| {
        let rule = chosen.site.rules.get(*index);
        let settings = rule.and_then(|rule| rule.settings.as_deref());
        settings.is_some_and(|settings| ptr::eq(settings, level))
    };
    let mut matched = exchange.route.matched().iter().copied();
    let rule = matched.find(is_here).map(Refusing::Rule);
    let refusing = rule.unwrap_or(Refusing::Site);
    exchange.route.refused_by = Some(refusing);
    let detail = match refusing {
        Refusing::Rule(_) => "",
        Refusing::Site => "by the site itself, not a rule",
    };
    Error::new(Kind::Refused(status), reason, detail)
}

/// Lets the request pass or refuses it, by its credentials.
///
/// # Errors
/// 401 for wrong ones and for who is in no group that is let in, 503 when too many are being compared.
pub(crate) async fn check_credentials(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    if !exchange.route.asked_by().is_empty() {
        // Boxed: few rules rewrite, and the others need not have room for it.
        return Box::pin(check_each(chosen, exchange)).await;
    }
    match asking(chosen, &exchange.route) {
        Some(asking) => check_asking(chosen, exchange, asking).await,
        None => Ok(()),
    }
}

/// The same where rules have rewritten the path: who kept one of its paths is asked, each once.
async fn check_each(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let site = chosen.site;
    let asked_by = exchange.route.asked_by().iter();
    let asking = asked_by.filter_map(|by| {
        let settings = match by {
            Refusing::Site => site.settings.as_deref(),
            Refusing::Rule(index) => site.rules.get(*index)?.settings.as_deref(),
        }?;
        Some((settings, settings.auth.as_ref()?))
    });
    let mut asking: Vec<_> = asking.collect();
    asking.dedup_by(|one, other| ptr::eq(one.1, other.1));
    for asking in asking {
        check_asking(chosen, exchange, asking).await?;
    }
    Ok(())
}

async fn check_asking(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    (level, auth): (&Settings, &Auth),
) -> Result<()> {
    let Some(credentials) = Credentials::of(&exchange.request) else {
        ask(auth, exchange);
        return Err(refuse(chosen, exchange, level, (401, "auth_missing")));
    };
    // Sent elsewhere inside, it may ask again.
    exchange.record.user.clone_from(&credentials.user);
    // Boxed: few sites ask for credentials, and the others need not have room for it, nor move it.
    let is_right = Box::pin(authenticate(chosen, exchange, auth, credentials)).await?;
    let user = &exchange.record.user;
    let groups = auth.groups.as_ref();
    let reason = match is_right {
        true if groups.is_none_or(|it| it.members.contains(user)) => return Ok(()),
        true => "auth_not_in_group",
        false => "auth_wrong",
    };
    ask(auth, exchange);
    Err(refuse(chosen, exchange, level, (401, reason)))
}

/// Who asks for credentials.
fn asking<'a>(chosen: Chosen<'a>, route: &Route) -> Option<(&'a Settings, &'a Auth)> {
    let levels = chosen.settings(route).rev();
    levels
        .filter_map(|level| Some((level, level.auth.as_ref()?)))
        .next()
}

/// Has the refusal ask for credentials (RFC 7617).
fn ask(auth: &Auth, exchange: &mut Exchange) {
    // Configuration lets no quote or backslash into a realm.
    let value = format!("Basic realm=\"{}\", charset=\"UTF-8\"", auth.realm);
    let fields = &mut exchange.outgoing.fields;
    fields.push(b"WWW-Authenticate", value.as_bytes());
}

/// Whether the credentials are right.
///
/// A good answer is looked up by user and password together, so what is known of a user tells
/// somebody who guesses at his password nothing, neither by the answer nor by the time it takes.
///
/// # Errors
/// 503 when too many are being compared.
pub(crate) async fn authenticate(
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
    /// What a request brings; none where it brings several.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let mut fields = request.head.fields.get_all(FieldId::Authorization);
        match (fields.next(), fields.next()) {
            (Some(only), None) => Self::read(only),
            _ => None,
        }
    }
}
