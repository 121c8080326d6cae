//! Maps that texts ask: targets of redirects, fields, bodies, variables.
//!
//! The idea: a text is put together at once, wherever that may be. So what those of a request
//! ask is asked before its handler runs, and stands in its answers. Here is which texts ask.

use config::model::{FieldEdits, Model, Settings, Template};

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
                let handler = rule.handler.iter().flat_map(config::model::Handler::texts);
                of_settings(&rule.settings).chain(handler).any(asks)
            }))
}

fn asks(template: &Template) -> bool {
    template.lookups().next().is_some()
}

/// The texts of changes to fields.
pub(super) fn of_edits(edits: &FieldEdits) -> impl Iterator<Item = &Template> {
    let edits = edits.set.iter().chain(&edits.add).chain(&edits.default);
    edits.map(|(_, template)| template)
}

/// The texts of a level.
pub(crate) fn of_settings(settings: &Settings) -> impl Iterator<Item = &Template> {
    let fields = [&settings.request_headers, &settings.reply_headers];
    let env = settings.env.iter();
    let env = env.filter_map(|variable| variable.value.as_ref());
    fields.into_iter().flat_map(of_edits).chain(env)
}
