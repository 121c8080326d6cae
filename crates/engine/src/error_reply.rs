//! Errors become answers: the one place where failures turn into status codes.
//!
//! A client learns the status, a short text and the request id; the reason and the detail go to
//! the log. Pages may be replaced per site and status, and per limit.

use std::time::Instant;

use wire::{FieldId, Method, Version};

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::request::RequestId;
use crate::shedding::reply;
use crate::site_log::{self, Audience};
use crate::stage::Arrived;
use crate::{causes, reply_head, status};

/// Fields that explain an error and go out with its page.
const KEPT: [FieldId; 4] = [
    FieldId::Allow,
    FieldId::ContentRange,
    FieldId::RetryAfter,
    FieldId::WwwAuthenticate,
];

/// What somebody reads who waits for a pool.
const WAITING: &str = "it is being started, and this page loads again by itself";

/// How the built-in pages begin.
const HTML_START: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
    <meta name=\"viewport\" content=\"width=device-width\"><title>";

/// The end of their heads: how they look.
const HTML_MIDDLE: &str = "</title>\n<style>\
    html{color-scheme:light dark;font:1.1rem/1.5 system-ui,sans-serif}\
    body{margin:18vh auto;max-width:32rem;padding:0 1.5rem}\
    h1{font-size:4rem;line-height:1;margin:0;font-weight:300}p{margin:.5rem 0 2rem}\
    small{opacity:.5;font-family:ui-monospace,monospace}\
    </style>\n<h1>";

/// The status a client sees for an error; `None` when nobody is left to see one.
pub(crate) fn status_of(kind: Kind) -> Option<u16> {
    match kind {
        Kind::Refused(status) | Kind::OverLimit { status, .. } | Kind::Shed(status) => Some(status),
        Kind::ClientGone => None,
        Kind::ClientSlow => Some(408),
        Kind::UpstreamDown | Kind::UpstreamBroken => Some(502),
        Kind::UpstreamSlow => Some(504),
        Kind::Full | Kind::Limited | Kind::NotWarm { .. } => Some(503),
        Kind::Internal => Some(500),
    }
}

/// Answers an error, or cuts the reply short when one has begun.
pub(crate) async fn answer(arrived: Arrived<'_>, exchange: &mut Exchange, error: &Error) {
    log(arrived, exchange, error);
    let answered = match status_of(error.kind) {
        Some(status) if !exchange.reply.has_started() => {
            answer_with(arrived, exchange, error, status).await
        }
        _ => return exchange.reply.abort(),
    };
    // A script has refused the page. What answers that is seen by none.
    if let Err(error) = answered {
        log(arrived, exchange, &error);
        let again = match status_of(error.kind) {
            Some(status) => answer_with(arrived, exchange, &error, status).await,
            None => Err(error),
        };
        if again.is_err() {
            exchange.reply.abort();
        }
    }
}

async fn answer_with(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    error: &Error,
    status: u16,
) -> Result<()> {
    if closes(exchange, error) {
        exchange.reply.close_after();
    }
    keep_fields(exchange);
    if let Some(applied) = &mut exchange.route.htaccess {
        applied.is_own_error = true;
    }
    if let Kind::Shed(status) = error.kind {
        reply::answer(arrived, exchange, status).await?;
        exchange.reply.finish();
        return Ok(());
    }
    let waits = error.reason == "pool_starting" && has_waiting_page(arrived, exchange);
    let fields = &mut exchange.outgoing.fields;
    if let Some(seconds) = retry_after_s(error.kind) {
        let mut digits = itoa::Buffer::new();
        let seconds = digits.format(seconds).as_bytes();
        fields.push_known(FieldId::RetryAfter, seconds);
        if waits {
            fields.push_known(FieldId::Refresh, seconds);
        }
    }
    // Who runs into a limit may know which kind it was; how large it is, is the operator's.
    let is_told = matches!(
        error.kind,
        Kind::Limited | Kind::OverLimit { .. } | Kind::NotWarm { .. }
    );
    let reason = if waits { WAITING } else { error.reason };
    page_for(arrived, exchange, status, is_told.then_some(reason)).await?;
    exchange.reply.finish();
    Ok(())
}

/// Drops what a handler had prepared for another reply: it must not adorn this one.
pub(crate) fn keep_fields(exchange: &mut Exchange) {
    let fields = &mut exchange.outgoing.fields;
    fields.retain(|field| KEPT.contains(&field.id));
}

/// Whether the site has whoever asks wait: a browser that opens a page, where it says what it does.
fn has_waiting_page(arrived: Arrived<'_>, exchange: &Exchange) -> bool {
    let site = arrived.site(&exchange.route);
    let head = &exchange.request.head;
    let accept = head.fields.get(FieldId::Accept);
    let mode = head.fields.get_named(b"Sec-Fetch-Mode");
    site.is_some_and(|site| site.has_waiting_page)
        && matches!(head.method, Method::Get | Method::Head)
        && wire::accept::names_html(accept)
        && !wire::accept::prefers_json(accept)
        && mode.is_none_or(|mode| mode == b"navigate")
}

/// When a client may try again, in seconds; `None` where nobody can say.
fn retry_after_s(kind: Kind) -> Option<u16> {
    match kind {
        Kind::Full => Some(1),
        Kind::OverLimit { retry_after_s, .. } | Kind::NotWarm { retry_after_s } => {
            Some(retry_after_s)
        }
        _ => None,
    }
}

/// Answers with a status and its page: the limit's or the site's own, or a short text.
///
/// # Errors
/// A script refused it.
pub(crate) async fn page(arrived: Arrived<'_>, exchange: &mut Exchange, status: u16) -> Result<()> {
    page_for(arrived, exchange, status, None).await
}

/// As [`page`]; ours says a reason, where there is one to be told.
///
/// # Errors
/// A script refused it.
pub(crate) async fn page_for(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    status: u16,
    reason: Option<&str>,
) -> Result<()> {
    exchange.outgoing.status = status;
    if let Some(scripted) = &mut exchange.scripted {
        scripted.forget_content_type();
    }
    let site = arrived.site(&exchange.route);
    let of_limit = exchange.record.limit_page.take();
    let of_site = || site.and_then(|site| site.error_pages.get(&status));
    if let Some(page) = of_limit.as_deref().or_else(of_site) {
        exchange
            .outgoing
            .fields
            .push(b"Content-Type", page.content_type.as_bytes());
        return reply_head::answer(arrived, exchange, &page.body).await;
    }
    let accept = exchange.request.head.fields.get(FieldId::Accept);
    let (content_type, body) = match wire::accept::prefers_json(accept) {
        true => (
            "application/json",
            json(status, reason, exchange.request.id),
        ),
        false => (
            "text/html; charset=utf-8",
            html(status, reason, exchange.request.id),
        ),
    };
    exchange
        .outgoing
        .fields
        .push(b"Content-Type", content_type.as_bytes());
    reply_head::answer(arrived, exchange, &body).await
}

/// Room for any of our pages.
const PAGE_BYTES: usize = 1_024;

/// Neither phrases, reasons nor ids hold a byte that would need escaping, here and below. Put
/// together by hand: when there is too much of everything, many of these are made.
fn json(status: u16, reason: Option<&str>, id: RequestId) -> Vec<u8> {
    let mut digits = itoa::Buffer::new();
    let mut out = Vec::with_capacity(PAGE_BYTES);
    let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
    put("{\"status\":");
    put(digits.format(status));
    put(",\"error\":\"");
    put(status::phrase(status));
    if let Some(reason) = reason {
        put("\",\"reason\":\"");
        put(reason);
    }
    put("\",\"request_id\":\"");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\"}\n");
    out
}

fn html(status: u16, reason: Option<&str>, id: RequestId) -> Vec<u8> {
    let mut digits = itoa::Buffer::new();
    let (number, phrase) = (digits.format(status), status::phrase(status));
    let mut out = Vec::with_capacity(PAGE_BYTES);
    let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
    put(HTML_START);
    put(number);
    put(" ");
    put(phrase);
    put(HTML_MIDDLE);
    put(number);
    put("</h1>\n<p>");
    put(phrase);
    if let Some(reason) = reason {
        put(": ");
        put(reason);
    }
    put("</p>\n<small>");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"</small>\n");
    out
}

/// A head or body that was not understood leaves the connection in an unknown state.
pub(crate) fn closes(exchange: &Exchange, error: &Error) -> bool {
    let unparsed = exchange.route.site_index.is_none() && error.reason != "unknown_host";
    // Where frames say what is whose, a stream's fault is its own.
    if exchange.request.head.version == Version::Http2 {
        return false;
    }
    unparsed
        || error.reason == "panic"
        || matches!(error.kind, Kind::ClientSlow | Kind::Refused(400 | 413))
}

/// Tells the log of a failure.
pub(crate) fn log(arrived: Arrived<'_>, exchange: &Exchange, error: &Error) {
    let (client, id) = (exchange.request.client, exchange.request.id);
    let site = arrived.site_name(&exchange.route);
    match error.kind {
        // The operator's to mend, and nothing of it shows at the client's end.
        Kind::Refused(_)
            if matches!(error.reason, "root_denied" | "root_missing")
                && may_complain(arrived, exchange) =>
        {
            tell(arrived, exchange, Audience::Everybody, &|| {
                let routed = arrived.routed(&exchange.route);
                let tree = routed.and_then(|routed| routed.tree(&exchange.route));
                let root = tree.map(|tree| tracing::field::display(tree.root.path.display()));
                tracing::warn!(%client, request_id = %id, site, reason = error.reason, root, detail = %error.detail, "the site's root cannot be opened");
            });
        }
        // At other levels the log hears of them by the second, with a count.
        Kind::OverLimit { .. } => {
            let (limit, key) = (exchange.record.limit.as_deref(), &exchange.record.limit_key);
            tracing::debug!(%client, request_id = %id, site, reason = error.reason, limit, key, "request refused");
        }
        // Why a pool does not start its spawner says, once a start.
        Kind::Refused(_)
        | Kind::Shed(_)
        | Kind::ClientGone
        | Kind::ClientSlow
        | Kind::NotWarm { .. } => {
            if let Kind::Refused(status) = error.kind {
                causes::tell(arrived, exchange, error, status);
            }
            // Where no site was found, the host that was asked for says why.
            let host = exchange.request.head.host();
            tracing::debug!(%client, request_id = %id, site, host, reason = error.reason, detail = %error.detail, "request refused");
        }
        _ => tell(
            arrived,
            exchange,
            audience(arrived, exchange, error),
            &|| {
                log_failure(arrived, exchange, error);
            },
        ),
    }
}

/// Says that a request failed, for whatever it needed.
fn log_failure(arrived: Arrived<'_>, exchange: &Exchange, error: &Error) {
    let (client, id) = (exchange.request.client, exchange.request.id);
    let site = arrived.site_name(&exchange.route);
    if error.kind == Kind::Internal || error.reason.starts_with("script_") {
        tracing::error!(%client, request_id = %id, site, reason = error.reason, detail = %error.detail, "request failed");
        return;
    }
    let route = &exchange.route;
    let chosen = arrived.routed(route).map(|routed| routed.chosen(route));
    let name = chosen.and_then(|chosen| chosen.upstream_name(route));
    let server = exchange.record.upstream.as_deref();
    tracing::warn!(%client, request_id = %id, site, reason = error.reason, name, server, detail = %error.detail, "request failed");
}

/// Who is to hear of a failure: what a site's own program did is its tenant's business.
fn audience(arrived: Arrived<'_>, exchange: &Exchange, error: &Error) -> Audience {
    let route = &exchange.route;
    let routed = arrived.routed(route);
    let runs_program = routed.is_some_and(|routed| routed.chosen(route).handler.starts_programs());
    let is_its_doing = matches!(
        error.kind,
        Kind::UpstreamBroken | Kind::UpstreamSlow | Kind::Limited
    );
    match runs_program && is_its_doing {
        true => Audience::Tenant,
        false => Audience::Everybody,
    }
}

/// Says something of the exchange's site. Its own log hears only so much of it in a second.
fn tell(arrived: Arrived<'_>, exchange: &Exchange, audience: Audience, say: &dyn Fn()) {
    let logs = &arrived.serving.generation.logs;
    let site = arrived.site_name(&exchange.route);
    let own = site.filter(|site| logs.error_log_of(site).is_some());
    let index = exchange.route.site_index.filter(|_| own.is_some());
    let is_due = index.is_none_or(|index| arrived.serving.stderr.is_due(index, Instant::now()));
    match (is_due, audience) {
        (true, _) => site_log::tell(logs, &arrived.worker.access_log, own, audience, say),
        (false, Audience::Everybody) => say(),
        (false, Audience::Tenant) => {}
    }
}

fn may_complain(arrived: Arrived<'_>, exchange: &Exchange) -> bool {
    let files = &arrived.serving.files;
    let index = exchange.route.site_index;
    index.is_some_and(|index| files.may_complain(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, generation_with_files, reply};

    const SITES: &str = r#"
[[sites]]
hosts = ["a"]
error_pages = { 403 = "{dir}/403.html" }
reply_headers = { set = { X-Site = "a" } }
  [[sites.rules]]
  match = { path = "/denied" }
  deny = ["0.0.0.0/0"]
  handler = { respond = { status = 200, body = "" } }
"#;

    fn fixture() -> Fixture {
        Fixture::of(generation_with_files(SITES, &[("403.html", "<p>ours")]))
    }

    #[test]
    fn every_kind_of_failure_has_its_status() {
        let over_limit = Kind::OverLimit {
            status: 429,
            retry_after_s: 1,
        };
        for (kind, status) in [
            (Kind::Refused(418), Some(418)),
            (Kind::ClientGone, None),
            (Kind::ClientSlow, Some(408)),
            (Kind::UpstreamDown, Some(502)),
            (Kind::UpstreamBroken, Some(502)),
            (Kind::UpstreamSlow, Some(504)),
            (Kind::Full, Some(503)),
            (Kind::NotWarm { retry_after_s: 1 }, Some(503)),
            (Kind::Shed(302), Some(302)),
            (over_limit, Some(429)),
            (Kind::Limited, Some(503)),
            (Kind::Internal, Some(500)),
        ] {
            assert_eq!(status_of(kind), status);
        }
    }

    #[test]
    fn a_page_comes_as_the_client_reads_it() {
        for (accept, kind, begins) in [
            ("", "text/html; charset=utf-8", "<!doctype html>"),
            (
                "Accept: text/html, application/json;q=0.5\r\n",
                "text/html; charset=utf-8",
                "<!doctype html>",
            ),
            (
                "Accept: application/json\r\n",
                "application/json",
                "{\"status\":421,\"error\":\"Misdirected Request\",\"request_id\":\"",
            ),
        ] {
            let ended = fixture().ask(&format!("GET / HTTP/1.1\r\nHost: nobody\r\n{accept}\r\n"));
            let (status, fields, body) = reply(&ended);
            assert_eq!(status, 421);
            assert!(
                fields.contains(&format!("Content-Type: {kind}")),
                "{fields:?}"
            );
            assert!(body.starts_with(begins), "{body}");
            assert!(body.contains(&ended.request.id.to_string()) && !body.contains("unknown_host"));
        }
    }

    #[test]
    fn a_sites_own_page_replaces_ours() {
        let ended =
            fixture().ask("GET /denied HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n");
        let (status, fields, body) = reply(&ended);
        assert_eq!((status, body.as_str()), (403, "<p>ours"));
        assert!(fields.contains(&"X-Site: a".to_owned()));
    }

    #[test]
    fn a_limits_own_page_stands_for_its_refusals_alone() {
        let limits = "limits = [{ key = \"header:x-call\", rate = \"1/d\", page = \"{dir}/slow.txt\" },\n\
                      { name = \"all\", rate = \"2/d\", status = 403 }]\n";
        let text = limits.to_owned() + &SITES.replace("deny = [\"0.0.0.0/0\"]", "");
        let files = [("403.html", "<p>ours"), ("slow.txt", "slowly!")];
        let fixture = Fixture::of(generation_with_files(&text, &files));
        let ask = |call: &str| {
            let request = format!("GET /denied HTTP/1.1\r\nHost: a\r\nX-Call: {call}\r\n\r\n");
            let (status, fields, body) = reply(&fixture.ask(&request));
            let has = |field: &str| fields.iter().any(|it| it.starts_with(field));
            assert_eq!(
                has("Retry-After: "),
                status == 429 || body == "<p>ours",
                "{fields:?}"
            );
            assert!(has("X-Request-Id: "), "{fields:?}");
            (status, body)
        };
        assert_eq!(ask("1").1, "");
        assert_eq!(ask("1"), (429, "slowly!".to_owned()));
        assert_eq!(ask("2").1, "");
        assert_eq!(ask("3"), (403, "<p>ours".to_owned()));
    }

    #[test]
    fn a_browser_opens_a_page_that_loads_itself_again_while_its_pool_starts() {
        let waits = "hosts = [\"a\"]\npool = { waiting_page = true }";
        let text = SITES.replace("hosts = [\"a\"]", waits);
        let own = text.replace("403 = \"{dir}/403.html\"", "503 = \"{dir}/403.html\"");
        let html = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
        let navigates = format!("{html}Sec-Fetch-Mode: navigate\r\n");
        let fetches = format!("{html}Sec-Fetch-Mode: cors\r\n");
        let starting = "pool_starting";
        for (text, method, fields, reason, loads_again) in [
            (&text, "GET", html, starting, true),
            (&text, "HEAD", html, starting, true),
            (&text, "GET", &*navigates, starting, true),
            (&own, "GET", html, starting, true),
            (&text, "GET", &*fetches, starting, false),
            (&text, "GET", "Accept: */*\r\n", starting, false),
            (&text, "GET", "", starting, false),
            (&text, "POST", html, starting, false),
            (&text, "GET", html, "pool_failed", false),
            (&SITES.to_owned(), "GET", html, starting, false),
        ] {
            let fixture = Fixture::of(generation_with_files(text, &[("403.html", "<p>ours")]));
            let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut exchange = crate::fixture::exchange(crate::exchange::Peer::LOCAL, &request);
            exchange.route.site_index = Some(0);
            let serving = fixture.worker.serving();
            let error = Error::new(Kind::NotWarm { retry_after_s: 7 }, reason, "");
            let answered = answer(fixture.arrived(&serving), &mut exchange, &error);
            crate::fixture::block_on(answered);
            let (status, fields, body) = reply(&exchange);
            let has = |field: &str| fields.iter().any(|it| it == field);
            assert!(status == 503 && has("Retry-After: 7"), "{fields:?}");
            assert_eq!(has("Refresh: 7"), loads_again, "{request}{reason}");
            if method == "GET" {
                let says = body.contains("loads again");
                assert_eq!(says, loads_again && *text != own, "{body}");
                assert_eq!(body.contains("<p>ours"), *text == own, "{body}");
            }
        }
    }

    #[test]
    fn what_was_prepared_for_another_reply_is_not_sent() {
        let mut exchange = crate::fixture::exchange(
            crate::exchange::Peer::LOCAL,
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        for (name, value) in [
            ("ETag", "\"x\""),
            ("Allow", "GET"),
            ("Content-Encoding", "gzip"),
        ] {
            exchange
                .outgoing
                .fields
                .push(name.as_bytes(), value.as_bytes());
        }
        let error = Error::refused(405, "method_not_allowed");
        let fixture = fixture();
        let serving = fixture.worker.serving();
        let answered = answer(fixture.arrived(&serving), &mut exchange, &error);
        crate::fixture::block_on(answered);
        let (_, fields, _) = reply(&exchange);
        let names: Vec<_> = fields
            .iter()
            .filter_map(|field| field.split(':').next())
            .collect();
        assert_eq!(names, ["Allow", "Content-Type", "X-Request-Id"]);
    }
}
