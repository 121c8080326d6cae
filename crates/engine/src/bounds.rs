//! How much and how long: caps and timeouts of the process, in whose place a site or a rule may
//! have its own.
//!
//! The innermost level that has a number counts, be it larger or smaller than those above. Most
//! sites have none, which costs one look. Where one has, both halves of the exchange are told when
//! the site is found, and anew whenever the rules are chosen; handlers ask for what concerns them.

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::pace::{Pace, Terms, is_last};
use crate::exchange::route::Route;
use crate::generation::Process;
use crate::stage::{Chosen, Routed};

/// Tells both halves what the site says. Of the body as much may come as the rule takes that takes
/// most: which one it is, is not known yet.
pub(crate) fn begin(routed: Routed<'_>, exchange: &mut Exchange) {
    if routed.site.bounds.is_some() {
        let body_bytes = body_bytes_most(routed, &exchange.route);
        tell(routed, exchange, body_bytes);
    }
}

/// Refuses a body that is announced as too long for every rule, before anybody is shown its head.
///
/// # Errors
/// 413.
pub(crate) fn check_announced_length(routed: Routed<'_>, exchange: &Exchange) -> Result<()> {
    refuse_beyond(body_bytes_most(routed, &exchange.route), exchange)
}

/// The rules are chosen: tells both halves what they say, and refuses a body that is known to be
/// too long for them. One that was taken before, for other rules, is such a one, too.
///
/// # Errors
/// 413.
pub(crate) fn settle(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let of_files = exchange.route.htaccess.as_ref();
    let of_files = of_files.and_then(|files| files.decision.settings.body_bytes_max());
    if chosen.site.bounds.is_none() && of_files.is_none() {
        return Ok(());
    }
    let own_bytes = body_bytes(*chosen, &exchange.route);
    let body_bytes = of_files.map_or(own_bytes, |most| most.min(own_bytes));
    tell(*chosen, exchange, body_bytes);
    refuse_beyond(body_bytes, exchange)
}

/// Longest silence of whoever is asked for the reply.
pub(crate) fn upstream_read_ms(routed: Routed<'_>, route: &Route) -> u64 {
    let own_ms = routed.own_number(route, |it| it.timeouts.upstream_read_ms);
    own_ms.unwrap_or(process(routed).timeouts.upstream_read_ms)
}

/// Largest head of a reply.
pub(crate) fn upstream_head_bytes(routed: Routed<'_>, route: &Route) -> usize {
    let own_bytes = routed.own_number(route, |it| it.caps.upstream_head_bytes);
    // Its key bounds it, so nothing is cut off.
    let own_bytes = own_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    own_bytes.unwrap_or(process(routed).caps.upstream_head_bytes)
}

fn process(routed: Routed<'_>) -> &Process {
    &routed.serving.generation.process
}

/// Largest body, by the rules that have matched so far.
fn body_bytes(routed: Routed<'_>, route: &Route) -> u64 {
    let own_bytes = routed.own_number(route, |it| it.caps.body_bytes);
    own_bytes.unwrap_or(process(routed).caps.body_bytes)
}

/// Largest body that any rule takes.
fn body_bytes_most(routed: Routed<'_>, route: &Route) -> u64 {
    let of_rules = routed.site.bounds.map_or(0, |it| it.rules_body_bytes);
    body_bytes(routed, route).max(of_rules)
}

fn tell(routed: Routed<'_>, exchange: &mut Exchange, body_bytes: u64) {
    let (process, route) = (process(routed), &exchange.route);
    let write_ms = routed.own_number(route, |it| it.timeouts.write_ms);
    let idle_ms = routed.own_number(route, |it| it.timeouts.idle_ms);
    let requests_max = routed.own_number(route, |it| it.caps.requests_per_connection);
    let requests_max = requests_max.unwrap_or(process.caps.requests_per_connection);
    exchange.reply.set_terms(Terms {
        pace: Pace {
            silence_ms: write_ms.unwrap_or(process.timeouts.write_ms),
            rate_min: process.caps.write_rate_min,
        },
        is_last: is_last(exchange.request.number, requests_max),
        idle_ms: idle_ms.unwrap_or(process.timeouts.idle_ms),
    });
    exchange.body.set_body_bytes(body_bytes);
}

/// Refuses a body that is known to be longer. What was read and has gone somewhere is no body any more.
fn refuse_beyond(cap_bytes: u64, exchange: &Exchange) -> Result<()> {
    let length = match &exchange.spooled {
        Some(spooled) => Some(spooled.len()),
        None if exchange.body.is_ended() => None,
        None => exchange.body.length(),
    };
    match length {
        Some(length) if length > cap_bytes => {
            let detail = format!(
                "{length} bytes, and {cap_bytes} may come here (caps.body_bytes, LimitRequestBody)"
            );
            Err(Error::new(Kind::Refused(413), "body_too_long", detail))
        }
        _ => Ok(()),
    }
}
