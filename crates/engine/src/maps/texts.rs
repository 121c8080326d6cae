//! Maps that texts ask: targets of redirects, fields, bodies, variables.
//!
//! The idea: a text is put together at once, wherever that may be. So what those of a request
//! ask is asked before its handler runs, and stands in its answers.

use config::model::{FieldEdits, Handler, MapLookup, Model, Settings, Template};

use super::{Question, ask};
use crate::exchange::Exchange;
use crate::fields;
use crate::stage::Chosen;

/// Asks whatever texts of the request's process, site, rules and handler ask.
pub(crate) async fn ask_for_texts(chosen: Chosen<'_>, exchange: &mut Exchange) {
    if chosen.serving.generation.texts_ask_maps {
        // Boxed: few ask, and the others need not have room for it.
        Box::pin(ask_for_all(chosen, exchange)).await;
    }
}

async fn ask_for_all(chosen: Chosen<'_>, exchange: &mut Exchange) {
    for question in questions(chosen, exchange) {
        ask(**chosen, exchange, question).await;
    }
}

fn questions(chosen: Chosen<'_>, exchange: &Exchange) -> Vec<Question> {
    let (request, route) = (&exchange.request, &exchange.route);
    let process = &chosen.serving.generation.process;
    let of_process = [&process.request_headers, &process.reply_headers];
    let of_process = of_process.into_iter().flat_map(of_edits);
    let of_levels = chosen.settings(route).flat_map(of_settings);
    let of_handler = of_handler(chosen.handler);
    let templates = of_process.chain(of_levels).chain(of_handler);
    let lookups = templates.flat_map(Template::lookups);
    let question = |lookup: &MapLookup| {
        let mut key = Vec::new();
        fields::expand(&lookup.key, request, &route.answers, &mut key);
        let map = lookup.map;
        Question { map, key }
    };
    lookups.map(question).collect()
}

/// Whether any text of a configuration asks a map.
pub(crate) fn texts_ask(model: &Model) -> bool {
    let of_process = [&model.request_headers, &model.reply_headers];
    let mut of_process = of_process.into_iter().flat_map(of_edits);
    let mut rules = model.sites.iter().flat_map(|site| &site.rules);
    let mut sites = model.sites.iter().map(|site| &site.settings);
    !model.maps.is_empty()
        && (of_process.any(asks)
            || sites.any(|settings| of_settings(settings).any(asks))
            || rules.any(|rule| {
                let handler = rule.handler.iter().flat_map(of_handler);
                of_settings(&rule.settings).chain(handler).any(asks)
            }))
}

fn asks(template: &Template) -> bool {
    template.lookups().next().is_some()
}

/// The texts of changes to fields.
fn of_edits(edits: &FieldEdits) -> impl Iterator<Item = &Template> {
    let edits = edits.set.iter().chain(&edits.add);
    edits.map(|(_, template)| template)
}

/// The texts of a level.
fn of_settings(settings: &Settings) -> impl Iterator<Item = &Template> {
    let fields = [&settings.request_headers, &settings.reply_headers];
    let env = settings.env.iter().map(|(_, template)| template);
    fields.into_iter().flat_map(of_edits).chain(env)
}

/// The texts of a handler.
fn of_handler(handler: &Handler) -> impl Iterator<Item = &Template> {
    let (one, params) = match handler {
        Handler::Redirect(redirect) => (Some(&redirect.target), &[][..]),
        Handler::Respond(respond) => (Some(&respond.body), &[][..]),
        Handler::Cgi(cgi) => (None, &*cgi.params),
        Handler::FastCgi(fastcgi) => (None, &*fastcgi.params),
        _ => (None, &[][..]),
    };
    let params = params.iter().filter_map(|(_, template)| template.as_ref());
    one.into_iter().chain(params)
}
