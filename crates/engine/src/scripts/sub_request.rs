//! A request that a script makes to its own site, inside: no client, no connection, no record.
//!
//! It goes the way of every request, from the path on: rules, limits, scripts, handler. It takes
//! permits of its own beside those its script's request holds, so that one which needs the same
//! permit waits as any other request would. Its reply is kept in memory, up to a cap.

use std::time::Instant;

use script::{Datum, Woken};
use wire::{FieldId, HeadCaps, Method};

use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::memory::{MemoryBody, MemoryReply};
use crate::stage::Arrived;

/// How deep requests may lie inside each other.
const DEPTH_MAX: u32 = 10;

/// Fields that speak of the outer request's own body, conditions and connection.
const NOT_COPIED: [FieldId; 18] = [
    FieldId::AcceptEncoding,
    FieldId::Connection,
    FieldId::ContentLength,
    FieldId::ContentType,
    FieldId::Expect,
    FieldId::Host,
    FieldId::IfMatch,
    FieldId::IfModifiedSince,
    FieldId::IfNoneMatch,
    FieldId::IfRange,
    FieldId::IfUnmodifiedSince,
    FieldId::KeepAlive,
    FieldId::ProxyConnection,
    FieldId::Range,
    FieldId::Te,
    FieldId::Trailer,
    FieldId::TransferEncoding,
    FieldId::Upgrade,
];

/// Asks for `target` and gives the reply to the script.
pub(super) async fn perform(arrived: Arrived<'_>, outer: &mut Exchange, target: &[u8]) -> Woken {
    let depth = outer.scripted().depth + 1;
    if depth > DEPTH_MAX {
        return Woken::error(format!(
            "requests lie {DEPTH_MAX} deep inside each other already"
        ));
    }
    let shown = target.escape_ascii().to_string();
    let Some(mut inner) = inner(arrived, outer, target) else {
        return Woken::error(format!(
            "{shown} is no path and query that can be asked for"
        ));
    };
    inner.scripted().depth = depth;
    let Arrived {
        worker, serving, ..
    } = arrived;
    let served = (worker.serve_inside)(worker, serving, &mut inner);
    match outer.while_client_stays(served).await {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            let reason = error.reason;
            return Woken::error(format!("the request inside for {shown} failed: {reason}"));
        }
        // Nobody is left to go on for; what waits for this script knows it, too.
        None => return Woken::error("the client has gone"),
    }
    answer(&inner).unwrap_or_else(|| {
        Woken::error(format!(
            "the reply to {shown} broke off or is longer than scripts.output allows"
        ))
    })
}

/// An exchange in memory that asks for `target` as the outer request's client; `None` when that
/// cannot be asked for.
fn inner(arrived: Arrived<'_>, outer: &Exchange, target: &[u8]) -> Option<Box<Exchange>> {
    let is_target = target.starts_with(b"/") && target.iter().all(|byte| byte.is_ascii_graphic());
    let generation = &arrived.serving.generation;
    let caps = &generation.process.caps;
    let scripts = generation.scripts.as_ref().filter(|_| is_target);
    let room = scripts?.output_bytes();
    let mut head = Vec::new();
    for part in [b"GET ", target, b" HTTP/1.1\r\nHost: "] {
        head.extend_from_slice(part);
    }
    head.extend_from_slice(outer.request.head.authority());
    head.extend_from_slice(b"\r\n");
    let fields = &outer.request.head.fields;
    fields.encode(&mut head, |id| !NOT_COPIED.contains(&id));
    head.extend_from_slice(b"\r\n");
    // The fields were judged when they came, or when a script set them.
    let head_caps = HeadCaps {
        head_bytes: head.len(),
        target_bytes: caps.target_bytes,
        fields: fields.len() + 1,
    };
    let reply = MemoryReply::with_room(room);
    let body = Body::Memory(MemoryBody::default());
    let mut exchange = Box::new(Exchange::new(outer.request.peer, body, reply.into()));
    let parsed = exchange.request.head.parse(&head, &head_caps);
    let is_whole = matches!(parsed, Ok(Some(_)));
    owe(&mut exchange, outer);
    (is_whole && exchange.request.head.method == Method::Get).then_some(exchange)
}

/// Client, id and place are those of the outer request.
fn owe(inner: &mut Exchange, outer: &Exchange) {
    let (request, of) = (&mut inner.request, &outer.request);
    request.received = Instant::now();
    (request.id, request.client, request.peer_trusted) = (of.id, of.client, of.peer_trusted);
    (request.connection, request.number) = (of.connection, of.number);
    inner.route.skips_optional = outer.route.skips_optional;
}

/// `[status, { name => value or values }, body]`; `None` for a reply that is not whole.
fn answer(inner: &Exchange) -> Option<Woken> {
    let reply = inner.reply.memory().filter(|reply| reply.is_finished())?;
    let mut fields: Vec<(Datum, Datum)> = Vec::new();
    for field in inner.outgoing.fields.iter() {
        let (name, value) = (Datum::from(field.name), Datum::from(field.value));
        let same = |(known, _): &&mut (Datum, Datum)| match known {
            Datum::Bytes(known) => known.eq_ignore_ascii_case(field.name),
            _ => false,
        };
        match fields.iter_mut().find(same) {
            Some((_, Datum::Array(values))) => values.push(value),
            Some((_, known)) => {
                let first = std::mem::replace(known, Datum::Nil);
                *known = Datum::Array(vec![first, value]);
            }
            None => fields.push((name, value)),
        }
    }
    Some(Woken::Value(Datum::Array(vec![
        Datum::Int(inner.status().into()),
        Datum::Hash(fields),
        Datum::from(reply.body()),
    ])))
}
