//! What files do to the head of a reply: its fields, how long it is fresh, what it is.

use htaccess::{ReplyTables, edit_reply};
use wire::{FieldId, Fields};

use super::applied::{Applied, failure};
use super::looks;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::media_types;
use crate::resolve::resolved::Found;
use crate::site::Site;
use crate::stage::{Arrived, Routed};

/// Edits a head as the files have said that hold for the request.
///
/// # Errors
/// When an edit goes wrong, or the machine is in trouble.
pub(crate) async fn edit(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<()> {
    let Some(mut applied) = exchange.route.htaccess.take() else {
        return Ok(());
    };
    if ["cgi", "fastcgi"].contains(&exchange.record.handler) && !applied.is_own_error {
        applied.decision.variables.note_told();
    }
    describe(arrived, exchange, &applied);
    let edited = match arrived.routed(&exchange.route) {
        Some(routed) if applied.decision.settings.edits_replies() => {
            // As `RequestHeader` has left them.
            let fields = exchange.request.head.fields.iter();
            let fields: Vec<_> = fields.map(|field| (field.name, field.value)).collect();
            let hosts = [&*applied.facts.host, &*applied.facts.site];
            let told = applied.facts.told(&fields, &hosts);
            let tables = tables(exchange, applied.is_own_error);
            let progress = edit_reply(&applied.decision, &told, tables);
            let edited = looks::finish(routed, exchange, progress).await;
            edited.map(|edited| edited.map(Some))
        }
        _ => Ok(Ok(None)),
    };
    let edited = edited.map(|it| it.map_err(|stop| failure(&stop, None)));
    let decision = &applied.decision;
    if let Ok(Ok(Some(tables))) = &edited {
        exchange.outgoing.fields = good(tables.always.iter().chain(&tables.fields));
    }
    let fields = &mut exchange.outgoing.fields;
    for name in decision
        .vary
        .iter()
        .filter(|name| wire::field_value_ok(name))
    {
        fields.push_known(FieldId::Vary, name);
    }
    for cookie in decision
        .cookies
        .iter()
        .filter(|it| wire::field_value_ok(it))
    {
        fields.push(b"Set-Cookie", cookie);
    }
    let is_own_error = applied.is_own_error;
    exchange.route.htaccess = Some(applied);
    match edited? {
        // A page of an error goes without what cannot be done to it.
        Err(error) if !is_own_error => Err(error),
        _ => Ok(()),
    }
}

/// Edits the fields of a request as files have said, once nobody decides by them any more.
///
/// # Errors
/// When an edit goes wrong, or the machine is in trouble.
pub(crate) async fn edit_request(routed: Routed<'_>, exchange: &mut Exchange) -> Result<()> {
    let edits = |applied: &Applied| applied.decision.settings.edits_requests();
    let applied = exchange.route.htaccess.take_if(|applied| edits(applied));
    let Some(applied) = applied else {
        return Ok(());
    };
    let owned = exchange.request.head.fields.iter();
    let owned = owned.map(|field| (field.name.to_vec(), field.value.to_vec()));
    let owned = owned.collect();
    let (fields, hosts) = (
        applied.facts.pairs(),
        [&*applied.facts.host, &*applied.facts.site],
    );
    let told = applied.facts.told(&fields, &hosts);
    let progress = htaccess::edit_request(&applied.decision, &told, owned);
    let edited = looks::finish(routed, exchange, progress).await;
    exchange.route.htaccess = Some(applied);
    let edited = edited?.map_err(|stop| failure(&stop, None))?;
    exchange.request.head.fields = good(&edited);
    Ok(())
}

/// The fields whose values may stand in a message.
fn good<'f>(pairs: impl IntoIterator<Item = &'f (Vec<u8>, Vec<u8>)>) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in pairs {
        if wire::field_value_ok(value) {
            fields.push(name, value);
        }
    }
    fields
}

fn tables(exchange: &Exchange, is_own_error: bool) -> ReplyTables {
    let fields = exchange.outgoing.fields.iter();
    let fields = fields.map(|field| (field.name.to_vec(), field.value.to_vec()));
    let file = exchange.route.file.as_deref();
    let changed_s = file.and_then(|resolved| match resolved.found() {
        Found::File(file) => i64::try_from(file.facts.modified_s).ok(),
        _ => None,
    });
    ReplyTables {
        status: exchange.outgoing.status,
        is_own_error,
        is_error_page: exchange.route.failed_status >= 400,
        fields: fields.collect(),
        always: Vec::new(),
        changed_s,
    }
}

/// Says what a file is, as the files say by its name; of what a program answers, the charset of texts
/// that have none, and the language.
fn describe(arrived: Arrived<'_>, exchange: &mut Exchange, applied: &Applied) {
    let is_file = match exchange.record.handler {
        "static" => true,
        "cgi" | "fastcgi" => false,
        _ => return,
    };
    if applied.is_own_error {
        return;
    }
    let described = &applied.described;
    let default = applied.decision.settings.default_charset();
    let fields = &mut exchange.outgoing.fields;
    let language = described.language.as_ref();
    if let Some(language) = language.filter(|it| wire::field_value_ok(it))
        && (is_file || fields.get_named(b"Content-Language").is_none())
    {
        fields.set(b"Content-Language", language);
    }
    let Some(have) = fields.get_named(b"Content-Type").map(<[u8]>::to_vec) else {
        return;
    };
    let mut parts = have.splitn(2, |byte| *byte == b';');
    let (essence, said) = (parts.next().unwrap_or(&have), parts.next());
    let is_text = |essence: &[u8]| matches!(essence, b"text/html" | b"text/plain");
    if !is_file {
        if let Some(Some(default)) = default.filter(|_| said.is_none() && is_text(essence)) {
            set_type(fields, essence, Some(default));
        }
        return;
    }
    let by_others = by_other_endings(arrived.site(&exchange.route), applied);
    let have = by_others.clone().unwrap_or_else(|| have.clone());
    let essence = match (&described.media_type, &by_others) {
        (Some(Some(said)), _) => said,
        (_, Some(said)) => said.split(|byte| *byte == b';').next().unwrap_or(said),
        _ => essence,
    };
    let charset = match (&described.charset, default) {
        (Some(charset), _) => Some(charset.as_slice()),
        (None, Some(default)) if is_text(essence) => default,
        (None, _) => have
            .strip_prefix(essence)
            .and_then(|rest| rest.strip_prefix(b"; charset=")),
    };
    match described.media_type {
        Some(None) if by_others.is_none() => fields.remove_named(b"Content-Type"),
        _ => set_type(fields, essence, charset),
    }
    let mut encodings = described.encodings.iter();
    if fields.get_named(b"Content-Encoding").is_none()
        && let Some(encoding) = encodings.next().filter(|it| wire::field_value_ok(it))
    {
        fields.push(b"Content-Encoding", encoding);
    }
}

/// The type by the endings before the last ones, where these say something else.
fn by_other_endings(site: Option<&Site>, applied: &Applied) -> Option<Vec<u8>> {
    if let Some(Some(_)) = applied.described.media_type {
        return None;
    }
    let (files, name) = (&site?.files, &*applied.facts.filename);
    let known = |name: &[u8]| media_types::known(files, name).is_some();
    let typed = applied.decision.settings.typed_name(name, known);
    let is_other = typed.len() < name.len() && known(typed);
    is_other.then(|| media_types::of(files, typed).as_bytes().to_vec())
}

fn set_type(fields: &mut Fields, essence: &[u8], charset: Option<&[u8]>) {
    let mut value = essence.to_vec();
    if let Some(charset) = charset {
        value.extend_from_slice(b"; charset=");
        value.extend_from_slice(charset);
    }
    if wire::field_value_ok(&value) {
        fields.set(b"Content-Type", &value);
    }
}
