//! What a site asks of TLS, request by request: the terms it speaks on, and that it be spoken.

use fastcgi::environment::Scheme;
use wire::FieldId;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::reply_head;
use crate::stage::{Arrived, Routed};

/// Where proofs that a host is ours are asked for (RFC 8555, 8.3): without TLS.
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";
/// The field by which browsers are told to come with TLS alone (RFC 6797).
const STRICT_TRANSPORT: &[u8] = b"Strict-Transport-Security";

/// Refuses a request for a site of other terms than those its connection came under: another
/// connection is to be made.
///
/// # Errors
/// 421 (RFC 9110, 15.5.20).
pub(crate) fn check_policy(routed: Routed<'_>, exchange: &Exchange) -> Result<()> {
    let Some(facts) = &exchange.request.tls else {
        return Ok(());
    };
    let policies = &routed.serving.generation.policies;
    let policy = policies.of(exchange.route.site_index);
    match policy.is_some_and(|policy| policy.id == facts.policy) {
        true => Ok(()),
        false => Err(Error::refused(421, "other_tls_terms")),
    }
}

/// Sends a request that came without TLS to the same address with it, where the site wants that;
/// whether it did.
///
/// # Errors
/// As of any answer.
pub(crate) async fn redirect(routed: Routed<'_>, exchange: &mut Exchange) -> Result<bool> {
    let request = &exchange.request;
    if !routed.site.tls.redirect
        || request.scheme() == Scheme::Https
        || request.head.path().starts_with(CHALLENGES)
    {
        return Ok(false);
    }
    let head = &request.head;
    let mut target = [b"https://", head.host().as_bytes(), head.path_wire()].concat();
    if let Some(query) = head.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    exchange.outgoing.status = 308;
    exchange
        .outgoing
        .fields
        .push_known(FieldId::Location, &target);
    // Boxed: few sites ask for it, and others need not have room for it.
    Box::pin(reply_head::answer(*routed, exchange, b"")).await?;
    Ok(true)
}

/// Tells the browser to come with TLS alone, where the site says so and who answers does not.
pub(crate) fn say_strict_transport(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let routed = arrived.routed(&exchange.route);
    let said = routed.and_then(|routed| routed.site.tls.hsts_s);
    let fields = &mut exchange.outgoing.fields;
    if let Some(seconds) = said
        && fields.get_named(STRICT_TRANSPORT).is_none()
    {
        let value = format!("max-age={seconds}");
        fields.push(STRICT_TRANSPORT, value.as_bytes());
    }
}
