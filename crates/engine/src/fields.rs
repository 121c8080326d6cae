//! The configured changes to fields: remove, set, add; process, site, rules, in that order. Then what
//! is to be there by default, the innermost level's first.

use config::model::{FieldEdits, Template};
use wire::{Fields, field_value_ok};

use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::expiry;
use crate::maps::answers::Answers;
use crate::stage::{Arrived, Chosen};
use crate::template::expand;

/// Changes the request's fields before a handler sees them.
pub(crate) fn edit_request(chosen: Chosen<'_>, exchange: &mut Exchange) {
    let process = &chosen.serving.generation.process.request_headers;
    if process.is_empty() && !chosen.site.edits_requests {
        return;
    }
    let Exchange { request, route, .. } = exchange;
    let mut fields = std::mem::take(&mut request.head.fields);
    let levels = chosen.settings(route);
    let levels = levels.map(|settings| &settings.request_headers);
    let known = (&*request, &route.answers);
    edit(process, levels, known, &mut fields, route.was_edited);
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
    let levels = arrived.settings(route);
    let levels = levels.map(|settings| &settings.reply_headers);
    let known = (&*request, &route.answers);
    edit(process, levels, known, &mut outgoing.fields, false);
}

/// `again`: a field that has the value already was added before.
fn edit<'a>(
    process: &'a FieldEdits,
    levels: impl DoubleEndedIterator<Item = &'a FieldEdits> + Clone,
    known: (&Request, &Answers),
    fields: &mut Fields,
    again: bool,
) {
    let levels = std::iter::once(process).chain(levels);
    let mut has_defaults = false;
    levels.clone().for_each(|edits| {
        replace(edits, known, fields);
        add(edits, known, fields, again);
        has_defaults |= !edits.default.is_empty();
    });
    if has_defaults {
        let defaults = levels.rev().flat_map(|edits| &edits.default);
        defaults.for_each(|(name, template)| {
            if fields.get_named(name.as_bytes()).is_none() {
                with_value(template, known, |value| fields.push(name.as_bytes(), value));
            }
        });
    }
}

fn replace(edits: &FieldEdits, known: (&Request, &Answers), fields: &mut Fields) {
    for name in &edits.remove {
        fields.remove_named(name.as_bytes());
    }
    for (name, template) in &edits.set {
        with_value(template, known, |value| fields.set(name.as_bytes(), value));
    }
}

/// `again`: a field that has the value already was added before.
fn add(edits: &FieldEdits, known: (&Request, &Answers), fields: &mut Fields, again: bool) {
    for (name, template) in &edits.add {
        with_value(template, known, |value| {
            let name = name.as_bytes();
            if !again || fields.all_named(name).all(|other| other != value) {
                fields.push(name, value);
            }
        });
    }
}

/// A variable may bring bytes no field may hold; such a value is left out.
fn with_value(
    template: &Template,
    (request, answers): (&Request, &Answers),
    f: impl FnOnce(&[u8]),
) {
    let mut value = Vec::new();
    expand(template, request, answers, &mut value);
    if field_value_ok(&value) {
        f(&value);
    }
}
