//! The configured changes to fields: remove, set, add; process, site, rules, in that order. Then what
//! is to be there by default, the innermost level's first.

use config::model::{FieldEdits, Template};
use wire::{Fields, field_value_ok};

use crate::exchange::Exchange;
use crate::expiry;
use crate::stage::{Arrived, Chosen};
use crate::template::{Values, expand};

/// Changes the request's fields before a handler sees them.
pub(crate) fn edit_request(chosen: Chosen<'_>, exchange: &mut Exchange) {
    let process = &chosen.serving.generation.process.request_headers;
    if process.is_empty() && !chosen.site.edits_requests {
        return;
    }
    let Exchange { request, route, .. } = exchange;
    let mut fields = std::mem::take(&mut request.head.fields);
    let of_process = Values {
        request,
        answers: &route.answers,
        captured: None,
    };
    let levels = chosen.layers(route).map(|layer| {
        let captured = layer.captured;
        let values = Values {
            captured,
            ..of_process
        };
        (&layer.settings.request_headers, values)
    });
    edit((process, of_process), levels, &mut fields, route.was_edited);
    request.head.fields = fields;
    route.was_edited = true;
}

/// Changes the reply's fields just before its head is sent.
pub(crate) fn edit_reply(arrived: Arrived<'_>, exchange: &mut Exchange) {
    let site = arrived.site(&exchange.route);
    let edits = site.is_some_and(|site| site.edits_replies);
    if site.is_some_and(|site| site.says_expiry) {
        expiry::tell(arrived, exchange);
    }
    let process = &arrived.serving.generation.process.reply_headers;
    if process.is_empty() && !edits {
        return;
    }
    let Exchange {
        request,
        route,
        outgoing,
        ..
    } = exchange;
    let of_process = Values {
        request,
        answers: &route.answers,
        captured: None,
    };
    let levels = arrived.layers(route).map(|layer| {
        let captured = layer.captured;
        let values = Values {
            captured,
            ..of_process
        };
        (&layer.settings.reply_headers, values)
    });
    edit((process, of_process), levels, &mut outgoing.fields, false);
}

/// `again`: a field that has the value already was added before.
fn edit<'a>(
    process: (&'a FieldEdits, Values<'a>),
    levels: impl DoubleEndedIterator<Item = (&'a FieldEdits, Values<'a>)> + Clone,
    fields: &mut Fields,
    again: bool,
) {
    let levels = std::iter::once(process).chain(levels);
    let mut has_defaults = false;
    levels.clone().for_each(|(edits, values)| {
        replace(edits, values, fields);
        add(edits, values, fields, again);
        has_defaults |= !edits.default.is_empty();
    });
    if has_defaults {
        levels.rev().for_each(|(edits, values)| {
            for (name, template) in &edits.default {
                if fields.get_named(name.as_bytes()).is_none() {
                    with_value(template, values, |value| {
                        fields.push(name.as_bytes(), value)
                    });
                }
            }
        });
    }
}

fn replace(edits: &FieldEdits, values: Values<'_>, fields: &mut Fields) {
    for name in &edits.remove {
        fields.remove_named(name.as_bytes());
    }
    for (name, template) in &edits.set {
        with_value(template, values, |value| fields.set(name.as_bytes(), value));
    }
}

/// `again`: a field that has the value already was added before.
fn add(edits: &FieldEdits, values: Values<'_>, fields: &mut Fields, again: bool) {
    for (name, template) in &edits.add {
        with_value(template, values, |value| {
            let name = name.as_bytes();
            if !again || fields.all_named(name).all(|other| other != value) {
                fields.push(name, value);
            }
        });
    }
}

/// A variable may bring bytes no field may hold; such a value is left out.
fn with_value(template: &Template, values: Values<'_>, f: impl FnOnce(&[u8])) {
    let mut value = Vec::new();
    expand(template, values, &mut value);
    if field_value_ok(&value) {
        f(&value);
    }
}
