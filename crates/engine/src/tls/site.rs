//! What a site asks of TLS, request by request: the terms it speaks on, and that it be spoken.

use fastcgi::environment::Scheme;
use wire::{FieldId, Version};

use crate::challenges;
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::reply_head;
use crate::stage::{Arrived, Routed};
use crate::tls::facts::TlsFacts;
use crate::tls::table::covers;

/// The field by which browsers are told to come with TLS alone (RFC 6797).
const STRICT_TRANSPORT: &[u8] = b"Strict-Transport-Security";

/// Refuses a request for a site of other terms than those its connection came under: another
/// connection is to be made.
///
/// # Errors
/// 421 (RFC 9110, 15.5.20; RFC 9113, 9.1.2).
pub(crate) fn check_policy(routed: Routed<'_>, exchange: &Exchange) -> Result<()> {
    let Some(facts) = &exchange.request.tls else {
        return Ok(());
    };
    let policies = &routed.serving.generation.policies;
    let policy = policies.of(Some(routed.site_index));
    if policy.is_none_or(|policy| policy.id != facts.policy) {
        return Err(Error::refused(421, "other_tls_terms"));
    }
    let head = &exchange.request.head;
    let is_other = facts
        .name
        .as_deref()
        .is_some_and(|name| name != head.host());
    // Browsers send to one connection what its certificate covers, as far as they can tell.
    match head.version == Version::Http2 && is_other && !is_covered(routed, facts, head.host()) {
        true => Err(Error::refused(421, "other_certificate")),
        false => Ok(()),
    }
}

/// Whether the certificate that a connection was shown is good for a host, and for the tenant who has it.
fn is_covered(routed: Routed<'_>, facts: &TlsFacts, host: &str) -> bool {
    let table = routed.worker.shared.certificates.table();
    let source = facts.source.as_ref();
    let Some(certificate) = source.and_then(|source| table.of_source(source)) else {
        return false;
    };
    let is_theirs = |tenant: &String| **tenant == *routed.site.tenant_name;
    let mut names = certificate.names.iter();
    certificate.tenant.as_ref().is_none_or(is_theirs) && names.any(|name| covers(name, host))
}

/// Whether a request came without TLS to a site that wants it; challenges may.
pub(crate) fn lacks_tls(routed: Routed<'_>, exchange: &Exchange) -> bool {
    let request = &exchange.request;
    routed.site.redirects_to_tls
        && request.scheme() == Scheme::Http
        && !request.head.path().starts_with(challenges::PATH)
}

/// Sends the client to the same address with TLS.
///
/// # Errors
/// As of any answer.
pub(crate) async fn redirect(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    let head = &exchange.request.head;
    let mut target = [b"https://", head.host().as_bytes(), head.path_wire()].concat();
    if let Some(query) = head.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    exchange.outgoing.status = 308;
    let fields = &mut exchange.outgoing.fields;
    fields.push_known(FieldId::Location, &target);
    reply_head::answer(*routed, exchange, b"").await
}

/// Tells the browser to come with TLS alone, where the site says so and who answers does not.
pub(crate) fn say_strict_transport(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let routed = arrived.routed(&exchange.route);
    let said = routed.and_then(|routed| routed.site.strict_transport_s);
    let fields = &mut exchange.outgoing.fields;
    if let Some(seconds) = said
        && fields.get_named(STRICT_TRANSPORT).is_none()
    {
        let value = format!("max-age={seconds}");
        fields.push(STRICT_TRANSPORT, value.as_bytes());
    }
}
