//! An entry of `limits`, every default written out.

use super::conditions::conditions;
use super::write::{braces, list, quote, quote_path};
use crate::lower::limits::{key, when};
use crate::lower::names::Named;
use crate::model::{Concurrent, Limit, LimitOn, Rate, RequestClass, When};
use crate::units;

/// A limit as an inline table, with what was kept of changes. What says nothing without `concurrent` or `rate` is left out
/// where that is not set.
pub(super) fn limit(limit: &Limit) -> String {
    let limit = &limit.in_force();
    let key = match limit.key.as_slice() {
        [only] => quote(key::spell(only)),
        several => list(several, |key| quote(key::spell(key))),
    };
    let mut entries = vec![
        format!("name = {}", quote(&limit.name)),
        format!("key = {key}"),
    ];
    if limit.on == LimitOn::Handshake {
        entries.push(format!("on = {}", quote(limit.on.name())));
        entries.extend(
            limit
                .concurrent
                .map(|most| format!("concurrent = {}", count(most))),
        );
        entries.extend(limit.rate.into_iter().flat_map(rate));
        entries.extend(limit.when.iter().map(of_when));
        entries.push(format!("mode = {}", quote(limit.mode.name())));
        return braces(entries);
    }
    if let Some(most) = limit.concurrent {
        entries.extend(concurrent(limit, most));
        if !limit.reserves.is_empty() {
            let reserves = limit.reserves.iter();
            let reserves = reserves.map(|it| format!("{} = {}", quote(&it.tenant), it.permits));
            entries.push(format!("reserve = {}", braces(reserves)));
        }
    }
    if let Some(given) = limit.rate {
        entries.extend(rate(given));
    }
    if let Some(on_loss) = limit.fleet {
        entries.push("scope = \"fleet\"".to_owned());
        entries.push(format!("on_loss = {}", quote(on_loss.name())));
    }
    if !limit.conditions.is_empty() {
        entries.push(format!("match = {}", conditions(&limit.conditions)));
    }
    entries.extend(limit.when.iter().map(of_when));
    entries.push(format!("mode = {}", quote(limit.mode.name())));
    entries.push(format!("status = {}", limit.status));
    if let Some(page) = &limit.page {
        entries.push(format!("page = {}", quote_path(&page.file)));
    }
    braces(entries)
}

fn of_when(when: &When) -> String {
    format!("when = {}", list(&when::spell(when), quote))
}

fn count(most: Concurrent) -> String {
    match most {
        Concurrent::Fixed(count) => count.to_string(),
        Concurrent::Auto => quote("auto"),
    }
}

fn concurrent(limit: &Limit, most: Concurrent) -> [String; 5] {
    [
        format!("concurrent = {}", count(most)),
        format!("queue = {}", limit.queue),
        format!("wait = {}", quote(units::duration(limit.wait_ms))),
        format!("late = {}", quote(units::duration(limit.late_ms))),
        format!("tunnels = {}", limit.tunnels),
    ]
}

/// An entry of a tenant's `class`.
pub(super) fn class(class: &RequestClass) -> String {
    braces([
        format!("name = {}", quote(&class.name)),
        format!("match = {}", conditions(&class.conditions)),
        format!("weight = {}", class.weight),
    ])
}

fn rate(rate: Rate) -> [String; 2] {
    [
        format!("rate = {}", quote(units::rate(rate.count, rate.per_ms))),
        format!("burst = {}", rate.burst),
    ]
}
