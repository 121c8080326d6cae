//! What those get that are shed: a redirect, a page, or the whale. Made with little work, for there
//! is too much of it already: no script sees it.

use std::sync::Arc;
use std::time::Duration;

use limits::Why;
use wire::{FieldId, field_value_ok};

use super::note::Note;
use super::remembered::{self, Remembered};
use super::rule::{Answer, Rule};
use super::tenants::Tenant;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::request::RequestId;
use crate::permits::refuse::retry_after_s;
use crate::stage::{Arrived, Routed};
use crate::{error_reply, reply_head};

/// Our page: a whale that has come up for air. Its drawing lies in it. The request's id comes
/// behind it.
const WHALE: &[u8] = include_bytes!("whale.html");
/// Room for that and the id.
const WHALE_BYTES: usize = WHALE.len() + 128;
/// What the client is told of why, as of a limit.
const REASON: &str = "shed";
/// When to try again, before that is spread: no sooner than a rule can be calm.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Makes an error of it, and remembers it.
pub(super) fn refuse(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    rule: &Rule,
    (tenant, share): (&Tenant, u16),
) -> Error {
    // What the request brings into the target may be what no field can hold.
    let location = rule.location(&exchange.request);
    let location = location.filter(|target| field_value_ok(target));
    let status = if location.is_some() { 302 } else { 503 };
    let worker = routed.worker;
    let remembered = remember(routed, exchange, rule, (tenant, share));
    worker.shared.shed.add(worker.index, remembered);
    exchange.record.shed = Some(Box::new(Note {
        rule: Arc::clone(&rule.standing),
        location,
        page: match &rule.answer {
            Answer::Page(page) => Some(Arc::clone(page)),
            Answer::Whale | Answer::Redirect(_) => None,
        },
        retry_after_s: retry_after_s(Why::Full, RETRY_AFTER, worker.draw()),
    }));
    exchange.disarm_filters();
    Error::new(Kind::Shed(status), REASON, String::new())
}

/// Remembers what a rule in shadow would have shed; the request goes on.
pub(super) fn pass_in_shadow(
    routed: Routed<'_>,
    exchange: &mut Exchange,
    rule: &Rule,
    (tenant, share): (&Tenant, u16),
) {
    let worker = routed.worker;
    let remembered = remember(routed, exchange, rule, (tenant, share));
    worker.shared.shadow_shed.add(worker.index, remembered);
    exchange.record.shadow(REASON).shed = Some(Arc::clone(&rule.standing));
}

fn remember(
    routed: Routed<'_>,
    exchange: &Exchange,
    rule: &Rule,
    (tenant, tenant_share): (&Tenant, u16),
) -> Remembered {
    let standing = &rule.standing;
    Remembered {
        id: exchange.request.id,
        at: routed.worker.clock.unix_at(exchange.request.received),
        site: Arc::clone(&routed.site.name),
        path: remembered::beginning(exchange.request.head.path()),
        tenant: Arc::clone(&tenant.load.name),
        rule: Arc::clone(standing),
        state: standing.state(),
        value: standing.value(),
        share: standing.share(),
        tenant_share,
    }
}

/// Answers an exchange that was shed.
///
/// # Errors
/// Its client has gone.
pub(crate) async fn answer(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    status: u16,
) -> Result<()> {
    exchange.outgoing.status = status;
    let fields = &mut exchange.outgoing.fields;
    fields.push(b"Cache-Control", b"no-store");
    let Some(note) = exchange.record.shed.as_deref() else {
        return reply_head::answer(arrived, exchange, b"").await;
    };
    if let Some(location) = &note.location {
        fields.push(b"Location", location);
        return reply_head::answer(arrived, exchange, b"").await;
    }
    let mut digits = itoa::Buffer::new();
    let seconds = digits.format(note.retry_after_s).as_bytes();
    fields.push_known(FieldId::RetryAfter, seconds);
    let (page, site) = (note.page.clone(), arrived.site(&exchange.route));
    let of_site = || site.and_then(|site| site.error_pages.get(&status));
    if let Some(page) = page.as_deref().or_else(of_site) {
        fields.push(b"Content-Type", page.content_type.as_bytes());
        return reply_head::answer(arrived, exchange, &page.body).await;
    }
    let accept = exchange.request.head.fields.get(FieldId::Accept);
    if wire::accept::prefers_json(accept) {
        return error_reply::page_for(arrived, exchange, status, Some(REASON)).await;
    }
    let fields = &mut exchange.outgoing.fields;
    fields.push(b"Content-Type", b"text/html; charset=utf-8");
    let page = whale(exchange.request.id);
    reply_head::answer(arrived, exchange, &page).await
}

/// No id holds a byte that would need escaping.
fn whale(id: RequestId) -> Vec<u8> {
    let mut page = Vec::with_capacity(WHALE_BYTES);
    for part in [WHALE, b"<small>", id.as_bytes(), b"</small>\n"] {
        page.extend_from_slice(part);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_as_large_as_is_told_and_has_room_for_any_id() {
        let page = whale(RequestId::from_number(7));
        // The guide says 1.8 kB.
        assert!((1_750..1_850).contains(&page.len()), "{}", page.len());
        let longest = RequestId::from_field(&[b'a'; 64]).expect("an id");
        assert!(whale(longest).len() <= WHALE_BYTES);
    }
}
