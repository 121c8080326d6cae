//! How long clients and caches may keep a reply, as `expires` says.
//!
//! Of the levels that say it the innermost counts. Whoever answered knows better: where a reply has a
//! word about it already, none is added.

use config::model::Lifetime;
use wire::{FieldId, date};

use crate::exchange::Exchange;
use crate::media_types;
use crate::resolve::resolved::Resolved;
use crate::stage::Arrived;

/// Statuses of replies that may be kept for a while, as other servers have it.
const STATUSES: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];
/// The second after 1970 that means long ago.
const PAST_S: u64 = 1;
/// The media type of a reply that has several parts of a file.
const OF_PARTS: &[u8] = b"multipart/byteranges";

/// Tells in the reply's fields how long it may be kept, where a level says so.
pub(crate) fn tell(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let outgoing = &exchange.outgoing;
    if !STATUSES.contains(&outgoing.status)
        || outgoing.fields.contains(FieldId::CacheControl)
        || outgoing.fields.get_named(b"Expires").is_some()
    {
        return;
    }
    let now_s = arrived.worker.clock.unix_s();
    let expires_s = match lifetime(arrived, exchange) {
        Lifetime::Unsaid => return,
        Lifetime::Past => PAST_S,
        Lifetime::Seconds(seconds) => now_s.saturating_add(seconds),
    };
    let fields = &mut exchange.outgoing.fields;
    fields.push(b"Expires", &date::format(expires_s));
    if expires_s == PAST_S {
        return fields.push_known(FieldId::CacheControl, b"no-cache");
    }
    let mut digits = itoa::Buffer::new();
    let age = [b"max-age=", digits.format(expires_s - now_s).as_bytes()].concat();
    fields.push_known(FieldId::CacheControl, &age);
}

/// What the innermost level that says anything says of this reply.
fn lifetime(arrived: Arrived<'_>, exchange: &Exchange) -> Lifetime {
    let levels = arrived.settings(&exchange.route).rev();
    let Some(expires) = levels.filter_map(|level| level.expires.as_ref()).next() else {
        return Lifetime::Unsaid;
    };
    let content_type = exchange.outgoing.fields.get(FieldId::ContentType);
    let content_type = content_type.map(essence);
    if let Some(content_type) = content_type.filter(|it| !it.eq_ignore_ascii_case(OF_PARTS)) {
        return expires.of(content_type);
    }
    // A reply that says "not modified" has no type, and one of several parts has another; the name
    // of its file tells it.
    let file = exchange.route.file.as_deref();
    let site = arrived.site(&exchange.route);
    match (
        exchange.outgoing.status,
        file.filter(|file| file.exists()),
        site,
    ) {
        (206 | 304, Some(file), Some(site)) => {
            let name = Resolved::name(file);
            expires.of(essence(media_types::of(&site.files, name).as_bytes()))
        }
        (304, _, _) if !expires.types.is_empty() => Lifetime::Unsaid,
        _ => expires.default,
    }
}

/// A media type without its parameters.
fn essence(content_type: &[u8]) -> &[u8] {
    let end = content_type.iter().position(|byte| *byte == b';');
    let essence = content_type.get(..end.unwrap_or(content_type.len()));
    essence.unwrap_or_default().trim_ascii()
}
