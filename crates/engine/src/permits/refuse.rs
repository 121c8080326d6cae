//! Turning a request away: the error, and what is remembered of it.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use limits::{Refusal, Why};

use super::refusals::Remembered;
use super::wants;
use crate::address;
use crate::error::{Error, Kind};
use crate::exchange::Exchange;
use crate::stage::{Chosen, Routed};

/// What a client is told to wait, at least and at most.
const RETRY_S_MIN: u64 = 1;
const RETRY_S_MAX: u64 = 60;
/// The same where a rate knows the moment: nobody needs to ask 60 times in vain.
const RETRY_RATE_S_MAX: u64 = 3_600;
/// The status where the limit is not known any more.
const STATUS: u16 = 503;

/// Makes an error of a refusal, and remembers it.
pub(super) fn refuse(chosen: Chosen<'_>, exchange: &mut Exchange, refusal: Box<Refusal>) -> Error {
    let worker = chosen.worker;
    let limit = wants::limit(chosen, &exchange.route, refusal.limit);
    let status = limit.map_or(STATUS, |limit| limit.status);
    let page = limit.and_then(|limit| limit.page.clone());
    let record = &mut exchange.record;
    record.limit = Some(Arc::clone(&refusal.identity));
    record.limit_page = page;
    record.limit_key.push_str(&refusal.key);
    record.waited_us.get_or_insert(0);
    if let Some(class) = &record.class {
        class.stats.note_refusal();
    }
    let kind = Kind::OverLimit {
        status,
        retry_after_s: retry_after_s(refusal.why, refusal.retry_after, worker.draw()),
    };
    let reason = refusal.why.word();
    let remembered = remembered(*chosen, exchange, refusal, 0);
    worker.shared.limits.refusals.add(remembered, &[]);
    Error::new(kind, reason, String::new())
}

/// Remembers what limits in shadow would have refused; the request goes on. It is told under the
/// first of them, the most specific; the log counts all.
pub(super) fn pass_in_shadow(chosen: Chosen<'_>, exchange: &mut Exchange, shadows: Vec<Refusal>) {
    let mut shadows = shadows.into_iter();
    let Some(first) = shadows.next().map(Box::new) else {
        return;
    };
    let shadow = exchange.record.shadow(first.why.word());
    shadow.limit.get_or_insert_with(|| first.clone());
    let remembered = remembered(*chosen, exchange, first, shadows.len());
    let others = shadows.as_slice();
    chosen.worker.shared.limits.refusals.add(remembered, others);
}

fn remembered(
    routed: Routed<'_>,
    exchange: &Exchange,
    refusal: Box<Refusal>,
    others: usize,
) -> Remembered {
    let worker = routed.worker;
    let network = address::network(exchange.request.client);
    let flow = (refusal.limit, &refusal.key, network);
    let flow = worker.shared.limits.refusals.hasher.hash_one(flow);
    Remembered {
        id: exchange.request.id,
        at: worker.clock.unix_at(exchange.request.received),
        site: Arc::clone(&routed.site.name),
        class: exchange
            .record
            .class
            .as_ref()
            .map(|class| Arc::clone(&class.name)),
        refusal,
        others,
        flow,
    }
}

/// Whole seconds, spread over half as much again: who was sent away together shall not come back
/// together.
pub(crate) fn retry_after_s(why: Why, predicted: Duration, random: u64) -> u16 {
    let most_s = match why {
        Why::Rate => RETRY_RATE_S_MAX,
        _ => RETRY_S_MAX,
    };
    let predicted_ms = u64::try_from(predicted.as_millis()).unwrap_or(u64::MAX);
    let predicted_ms = predicted_ms.clamp(1, most_s * 1_000);
    let spread_ms = predicted_ms * (random % 1_024) / 2_048;
    let seconds = (predicted_ms + spread_ms).div_ceil(1_000);
    u16::try_from(seconds.clamp(RETRY_S_MIN, most_s)).unwrap_or(u16::MAX)
}
