//! The console: what the recorder draws, passed on under terms of our own.
//!
//! The idea: whose figures somebody sees is settled here, by the rule and by who comes, never by the
//! address. The recorder is the less trusted of the two: of its answer a known status, a known media type
//! and a few fields go on, and what a page may do in a browser is said by us.
//!
//! Not here: pages (`recorder`), and how it is asked (`recording`).

mod events;
mod session;

use std::borrow::Cow;

use config::model::Console;
use ipc::console::{ConsoleAnswer, ConsoleQuestion, ConsoleScope, SCRIPT_HASH, TenantSites};
use wire::{FieldId, Method, field_value_ok};

use crate::directory::eyes;
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::stage::{Arrived, Chosen, Routed};
use crate::{permits, reply_head};
use session::{Guest, GuestEntry};

/// The path below the console where pages are told what changes.
const EVENTS: &str = "events";
/// Bytes of what a client says of its languages that are passed on.
const LANGUAGE_BYTES_MAX: usize = 256;
/// Statuses that an answer may have.
const STATUSES: [u16; 5] = [200, 400, 404, 500, 503];
/// What an answer may be.
const MEDIA_TYPES: [&str; 5] = [
    "text/html; charset=utf-8",
    "text/plain; charset=utf-8",
    "text/csv; charset=utf-8",
    "application/json",
    EVENT_STREAM,
];
const EVENT_STREAM: &str = "text/event-stream";

/// Answers with a page of the console.
///
/// # Errors
/// 403 for who may not come in, 405 for what is none to look at something, 503 where the recorder is not
/// heard, 502 where what it says is no page.
pub(super) async fn answer(
    chosen: Chosen<'_>,
    exchange: &mut Exchange,
    console: &Console,
) -> Result<()> {
    let head = &exchange.request.head;
    if !matches!(head.method, Method::Get | Method::Head) {
        let fields = &mut exchange.outgoing.fields;
        fields.push_known(FieldId::Allow, b"GET, HEAD");
        return Err(Error::refused(405, "method_not_allowed"));
    }
    let Some(path) = head.path().strip_prefix(console.base.as_bytes()) else {
        return lead_home(chosen, exchange, console).await;
    };
    let path = String::from_utf8_lossy(path).into_owned();
    let guest = match session::entry(chosen, exchange, console)? {
        GuestEntry::Open => None,
        GuestEntry::Guest(guest) => Some(guest),
        GuestEntry::Begun(guest) => return session::begin(chosen, exchange, console, &guest).await,
    };
    let question = question(chosen, exchange, console, (path, guest.as_ref()))?;
    if question.path == EVENTS {
        let viewed = (console, guest.as_ref());
        return Box::pin(events::stream(chosen, exchange, viewed, question)).await;
    }
    let answer = ask(**chosen, question).await?;
    let body = pass_on(exchange, answer)?;
    let size = BodySize::Length(body.len() as u64);
    reply_head::send(**chosen, exchange, size).await?;
    permits::end(chosen.worker, exchange, limits::Outcome::Ignored);
    exchange.reply.write(body.as_bytes()).await
}

/// Sends who asks for the console without the slash at its end to its first page.
async fn lead_home(chosen: Chosen<'_>, exchange: &mut Exchange, console: &Console) -> Result<()> {
    let path = exchange.request.head.path();
    if [path, b"/"].concat() != console.base.as_bytes() {
        return Err(Error::refused(404, "console_elsewhere"));
    }
    exchange.outgoing.status = 301;
    let fields = &mut exchange.outgoing.fields;
    fields.push_known(FieldId::Location, console.base.as_bytes());
    reply_head::answer(**chosen, exchange, b"").await
}

fn question(
    chosen: Chosen<'_>,
    exchange: &Exchange,
    console: &Console,
    (path, guest): (String, Option<&Guest>),
) -> Result<ConsoleQuestion> {
    let head = &exchange.request.head;
    let text = |bytes: Option<&[u8]>| {
        let bytes = bytes.unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let languages = head.fields.get_named(b"accept-language");
    let languages = languages.filter(|it| it.len() <= LANGUAGE_BYTES_MAX);
    let question = ConsoleQuestion {
        id: 0,
        scope: scope(*chosen, console, guest)?,
        base: console.base.clone(),
        path,
        query: text(head.query()),
        accept_language: text(languages),
    };
    Ok(question)
}

/// Whose figures are seen: those of the rule's tenants, and of these that of the guest. Whose site it is, and who comes for
/// themselves, need a plan that lets them.
fn scope(routed: Routed<'_>, console: &Console, guest: Option<&Guest>) -> Result<ConsoleScope> {
    let named = |name: &str| match name {
        Console::OWN_TENANT => routed.site.tenant_name.to_string(),
        name => name.to_owned(),
    };
    let of_rule = console.tenants.as_ref();
    let of_rule = of_rule.map(|names| names.iter().map(|name| named(name)).collect::<Vec<_>>());
    let of_guest = guest.and_then(|guest| guest.tenant.clone());
    let is_guests = of_guest.is_some();
    let tenants = match (of_rule, of_guest) {
        (None, None) => return Ok(ConsoleScope::All),
        (Some(all), None) => all,
        (None, Some(one)) => vec![one],
        (Some(all), Some(one)) if all.contains(&one) => vec![one],
        (Some(_), Some(_)) => return Err(Error::refused(403, "console_other_tenant")),
    };
    let of_itself = |name: &String| is_guests || **name == *routed.site.tenant_name;
    let mut own = tenants.iter().filter(|name| of_itself(name));
    if !own.all(|tenant| eyes::may_look(routed, tenant)) {
        return Err(Error::refused(403, "console_not_in_plan"));
    }
    let generation = &routed.serving.generation;
    let sites = |tenant: &str| {
        let sites = generation.sites.iter();
        let sites = sites.filter(|site| *site.tenant_name == *tenant);
        let sites = sites.map(|site| site.name.to_string());
        let of_rows = eyes::hosts_of(&routed.worker.shared, generation, tenant);
        sites.chain(of_rows.seen.iter().cloned()).collect()
    };
    let with_sites = |tenant: String| TenantSites {
        sites: sites(&tenant),
        tenant,
    };
    let tenants = tenants.into_iter().map(with_sites).collect();
    Ok(ConsoleScope::Tenants(tenants))
}

/// Asks the recorder.
async fn ask(arrived: Arrived<'_>, question: ConsoleQuestion) -> Result<ConsoleAnswer> {
    arrived.worker.shared.console.ask(question).await
}

/// Takes over what of an answer may go on; its body.
fn pass_on(exchange: &mut Exchange, answer: ConsoleAnswer) -> Result<String> {
    let media_type = MEDIA_TYPES
        .into_iter()
        .find(|it| *it == answer.content_type)
        .filter(|_| STATUSES.contains(&answer.status));
    let Some(media_type) = media_type else {
        let detail = format!(
            "status {}, `{}`",
            answer.status,
            answer.content_type.escape_debug()
        );
        return Err(Error::new(Kind::UpstreamBroken, "console_answer", detail));
    };
    exchange.outgoing.status = answer.status;
    say_terms(exchange, media_type);
    for (name, value) in &answer.fields {
        let passes = match name.to_ascii_lowercase().as_str() {
            // Beside ours: a browser obeys both.
            "content-security-policy" => true,
            "content-disposition" => value.starts_with("attachment; filename="),
            _ => false,
        };
        if passes && field_value_ok(value.as_bytes()) {
            let fields = &mut exchange.outgoing.fields;
            fields.push(name.as_bytes(), value.as_bytes());
        }
    }
    Ok(answer.body)
}

/// Says what a page may do: nothing but show itself, ask here for more, and run the one script that is
/// known.
fn say_terms(exchange: &mut Exchange, media_type: &str) {
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_HASH}'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let terms: [(&[u8], Cow<'_, [u8]>); 6] = [
        (b"Content-Type", media_type.as_bytes().into()),
        (b"Content-Security-Policy", policy.into_bytes().into()),
        (b"X-Content-Type-Options", b"nosniff".into()),
        (b"Referrer-Policy", b"no-referrer".into()),
        (b"Cross-Origin-Resource-Policy", b"same-origin".into()),
        (b"Cache-Control", b"no-store".into()),
    ];
    let fields = &mut exchange.outgoing.fields;
    for (name, value) in &terms {
        fields.push(name, value);
    }
}

#[cfg(test)]
mod tests;
