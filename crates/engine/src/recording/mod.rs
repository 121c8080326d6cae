//! What the recorder is told of a request, where its access record is written.
//!
//! The idea: here is the last place that sees an address, a cookie or a query. What goes on is a salted
//! hash, texts that many requests share and are told once, and the values of a few named keys. It takes no
//! system call, no lock and, but for such values, no memory; where there is no room it is counted.
//! Not here: what a page, a visit or a bot is (`recorder`).

pub(crate) mod console;
pub(crate) mod guests;
mod incidents;
pub(crate) mod kills;
mod places;
pub(crate) mod ring;
pub(crate) mod teller;

use std::time::Duration;

use config::model::{Handler, Recorder};
use ipc::query::Query;
use ipc::ring::{RingRecord, RingWriter, TextOf, UNKNOWN_US};
use wire::FieldId;

use crate::exchange::{Exchange, Request};
use crate::refused::SAMPLE;
use crate::site::{Rule, Site};
use crate::stage::Arrived;
use crate::stats::bump;

/// Tells the recorder of an exchange that has ended, and how long it took.
pub(crate) fn record(arrived: Arrived<'_>, exchange: &Exchange, total_us: u64) {
    let Some(rules) = &arrived.serving.generation.process.recorder else {
        return;
    };
    let site = arrived.site(&exchange.route);
    let Some(site) = site.filter(|site| site.is_recorded) else {
        return;
    };
    let stats = &arrived.worker.stats.recording;
    let rule = rule(arrived, exchange);
    // Who looks at figures makes none.
    let is_look = rule.is_some_and(|it| matches!(it.handler, Some(Handler::Console(_))));
    if is_look || is_excluded(rules, &exchange.request) {
        return bump(&stats.excluded, 1);
    }
    arrived.worker.recording.tell(stats, |ring, record| {
        asked(rules, site, &exchange.request, ring, record);
        if let Some(file) = &arrived.serving.generation.process.countries {
            let client = exchange.request.client;
            record.country = arrived.worker.recording.country(file, client);
        }
        let received = arrived.worker.clock.unix_at(exchange.request.received);
        record.at_us = micros(received).cast_signed();
        answered(rule, exchange, ring, record);
        record.total_us = bounded(total_us);
    });
}

/// The rule that answered, or kept the client out.
fn rule<'a>(arrived: Arrived<'a>, exchange: &Exchange) -> Option<&'a Rule> {
    let route = &exchange.route;
    let routed = arrived.routed(route)?;
    match route.refused_by {
        Some(_) => routed.refusing(route),
        None => routed.answering(route),
    }
}

/// Whether nothing of a request is to be recorded.
pub(crate) fn is_excluded(rules: &Recorder, request: &Request) -> bool {
    let fields = &request.head.fields;
    let says = |name: &[u8]| fields.get_named(name) == Some(b"1");
    (!rules.exclude.is_empty() && rules.exclude.iter().any(|it| it.contains(&request.client)))
        || (rules.do_not_track && (says(b"dnt") || says(b"sec-gpc")))
        || (rules.exclude_cookie.as_ref()).is_some_and(|name| has_cookie(request, name.as_bytes()))
}

fn has_cookie(request: &Request, name: &[u8]) -> bool {
    let lines = request.head.fields.get_all(FieldId::Cookie);
    let mut cookies = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    cookies.any(|it| {
        let cookie = it.trim_ascii();
        let end = cookie.iter().position(|byte| *byte == b'=');
        cookie.get(..end.unwrap_or(cookie.len())) == Some(name)
    })
}

/// What was asked, and by whom.
fn asked(
    rules: &Recorder,
    site: &Site,
    request: &Request,
    ring: &mut RingWriter,
    record: &mut RingRecord,
) {
    let (head, fields) = (&request.head, &request.head.fields);
    let field = |id| fields.get(id).unwrap_or_default();
    let (path, query) = apart(head.target());
    let (referrer, _) = apart(field(FieldId::Referer));
    record.site = ring.text(TextOf::Site, site.name.as_bytes());
    record.path = ring.text(TextOf::Path, path);
    record.referrer = ring.text(TextOf::Referrer, referrer);
    record.agent = ring.text(TextOf::Agent, field(FieldId::UserAgent));
    record.is_look = head.sent_method() == b"GET" && !is_beforehand(request);
    record.is_after_handshake = request.own_handshake_us().is_some();
    record.visitor = ring.visitor(record.site, request.client, record.agent);
    if let Some(target) = query.and_then(|_| str::from_utf8(head.target()).ok()) {
        let query = Query::of(target);
        record.campaign = ring.text(TextOf::Name, query.campaign().as_bytes());
        let search = query.search(&rules.searches);
        record.search = ring.text(TextOf::Name, search.as_bytes());
    }
}

/// A target or URL without its query, and the query.
pub(crate) fn apart(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = text.iter().position(|byte| matches!(byte, b'?' | b'#'));
    match end.and_then(|end| text.split_at_checked(end)) {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    }
}

/// Whether a browser fetches it before anybody wants to see it.
fn is_beforehand(request: &Request) -> bool {
    let fields = &request.head.fields;
    // Both are names without a number: most programs send no such field at all.
    fields.contains(FieldId::Other)
        && [&b"sec-purpose"[..], b"purpose"].into_iter().any(|name| {
            let said = fields.get_named(name).unwrap_or_default();
            said.starts_with(b"prefetch") || said.starts_with(b"prerender")
        })
}

/// What became of it.
fn answered(
    rule: Option<&Rule>,
    exchange: &Exchange,
    ring: &mut RingWriter,
    record: &mut RingRecord,
) {
    let known = &exchange.record;
    let upstream = known.upstream.as_deref();
    record.rule = ring.text(TextOf::Name, rule.map_or(b"", |rule| rule.name.as_bytes()));
    record.upstream = ring.text(TextOf::Name, upstream.unwrap_or_default().as_bytes());
    record.reason = ring.text(TextOf::Name, known.reason.as_bytes());
    record.status = exchange.status();
    record.bytes_out = exchange.reply.body_bytes();
    record.bytes_in = exchange.body.bytes_read();
    let received = exchange.request.received;
    record.queue_us = match known.handler_started {
        // It waited for nothing.
        Some(begun) if begun == received => 0,
        Some(begun) => bounded(micros(begun.duration_since(received))),
        None => UNKNOWN_US,
    };
    record.upstream_us = upstream.map_or(UNKNOWN_US, |_| bounded(known.upstream_us));
    record.program_us = known.program.map_or(UNKNOWN_US, |it| bounded(it.cpu_us));
    record.stands_for = if known.is_sampled { SAMPLE as u16 } else { 1 };
}

/// Whole microseconds, without the 128 bits that `as_micros` counts with.
fn micros(duration: Duration) -> u64 {
    let of_seconds = duration.as_secs().saturating_mul(1_000_000);
    of_seconds.saturating_add(duration.subsec_micros().into())
}

/// As a record has it, in which the largest number says that it is not known.
fn bounded(us: u64) -> u32 {
    u32::try_from(us).map_or(UNKNOWN_US - 1, |us| us.min(UNKNOWN_US - 1))
}

#[cfg(test)]
mod tests;
