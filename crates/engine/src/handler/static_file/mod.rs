//! Files below a site's root: GET and HEAD, conditions, ranges, codings, directories.
//!
//! What the path came to is decided in [`crate::resolve`], what is sent of a file in
//! `representation`, how it is sent in `send`, several ranges of it in `parts`. Programs' sources are never shown, whatever
//! handlers there are for them.

mod listing;
mod parts;
mod representation;
mod send;

use std::os::fd::AsFd;
use std::sync::Arc;

use wire::conditional::{self, Verdict};
use wire::multipart::content_range;
use wire::range::{self, RangeAnswer, Span};
use wire::{FieldId, Method, field_value_ok};

use crate::compression::{self, Coding};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::htaccess::applied::Applied;
use crate::resolve::file::{File, Handle};
use crate::resolve::kept::{Representation, Siblings};
use crate::resolve::resolved::{Found, Resolved};
use crate::stage::{Arrived, Chosen, Routed};
use crate::{permits, reply_head, resolve};
use representation::Maker;

/// How long siblings are taken for what they were.
const SIBLINGS_FRESH_MS: u64 = 900;
const ALLOWED: &[u8] = b"GET, HEAD, OPTIONS";

/// Answers with what the request's path came to.
///
/// # Errors
/// Whatever kept it from doing so.
pub(super) async fn serve(chosen: Chosen<'_>, exchange: &mut Exchange) -> Result<()> {
    let routed = *chosen;
    match exchange.request.head.method {
        Method::Get | Method::Head => {}
        Method::Options => return options(*routed, exchange).await,
        _ => {
            exchange.outgoing.fields.push(b"Allow", ALLOWED);
            return Err(Error::refused(405, "method_not_allowed"));
        }
    }
    let Some(resolved) = resolve::file(routed, exchange).await? else {
        return Err(Error::refused(404, "no_root"));
    };
    let files = exchange.route.htaccess.as_deref();
    let takes_rest = files.is_some_and(Applied::takes_path_info);
    let is_source = resolved.is_source() || chosen.withholds;
    match resolved.found() {
        Found::File(_) if is_source => Err(Error::refused(404, "source")),
        Found::File(_) if !takes_rest && !resolved.path_info().is_empty() => {
            Err(Error::refused(404, "path_info"))
        }
        Found::File(file) => {
            let maker = Maker {
                routed,
                name: resolved.name(),
            };
            send_file(maker, exchange, &resolved, file).await
        }
        Found::Directory(handle) => list(routed, exchange, handle).await,
        Found::Unslashed => redirect(*routed, exchange).await,
        Found::Missing(why) => Err(super::missing(exchange, why)),
        Found::Unreadable if is_source => Err(Error::refused(404, "source")),
        Found::Unreadable | Found::Denied(None) => Err(Error::refused(403, "permission_denied")),
        Found::Denied(Some(advice)) => {
            Err(Error::new(Kind::Refused(403), "root_denied", &**advice))
        }
        Found::Status(status) => Err(Error::refused(*status, "try_status")),
    }
}

async fn options(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<()> {
    exchange.outgoing.status = 204;
    exchange.outgoing.fields.push(b"Allow", ALLOWED);
    reply_head::send(arrived, exchange, BodySize::None).await
}

/// Sends a file in the coding the client wants most.
async fn send_file(
    maker: Maker<'_>,
    exchange: &mut Exchange,
    resolved: &Resolved,
    file: &File,
) -> Result<()> {
    let whole = maker.whole(file, None).await?;
    let Some(coding) = choose(maker, exchange, resolved, file).await? else {
        return reply(*maker.routed, exchange, whole).await;
    };
    let siblings = file.kept.siblings.borrow().files.clone();
    if let Some(sibling) = siblings.get(coding as usize).and_then(Option::as_deref) {
        let whole = maker.whole(sibling, Some(coding)).await?;
        return reply(*maker.routed, exchange, whole).await;
    }
    match maker.coded(file, coding).await? {
        Some(coded) => reply(*maker.routed, exchange, &coded).await,
        None => reply(*maker.routed, exchange, whole).await,
    }
}

/// Finds the coding to send, if any: one that is stored beside the file or can be made.
async fn choose(
    maker: Maker<'_>,
    exchange: &Exchange,
    resolved: &Resolved,
    file: &File,
) -> Result<Option<Coding>> {
    let fields = &exchange.request.head.fields;
    let files = &maker.routed.site.files;
    let Some(accepted) = fields.get(FieldId::AcceptEncoding) else {
        return Ok(None);
    };
    if files.precompressed {
        look_for_siblings(maker.routed, resolved, file).await?;
    }
    let size = usize::try_from(file.facts.size).unwrap_or(usize::MAX);
    let is_made = !fields.contains(FieldId::Range) && maker.is_compressed(size);
    let siblings = file.kept.siblings.borrow();
    Ok(compression::choose(accepted, |coding| {
        let sibling = siblings.files.get(coding as usize);
        sibling.is_some_and(Option::is_some) || is_made && coding.is_made_here()
    }))
}

/// Brings what is known of a file's siblings up to date.
async fn look_for_siblings(routed: Routed<'_>, resolved: &Resolved, file: &File) -> Result<()> {
    let now_ms = routed.worker.deadlines.now_ms();
    let last = match &*file.kept.siblings.borrow() {
        Siblings {
            seen_ms: Some(seen_ms),
            ..
        } if now_ms.saturating_sub(*seen_ms) < SIBLINGS_FRESH_MS => return Ok(()),
        stale => stale.files.clone(),
    };
    let mut files = resolve::siblings(routed, resolved, last).await?;
    for sibling in &mut files {
        let time = |file: &File| (file.facts.modified_s, file.facts.modified_ns);
        // One that is older holds something else.
        sibling.take_if(|sibling| time(sibling) < time(file));
    }
    *file.kept.siblings.borrow_mut() = Siblings {
        files,
        seen_ms: Some(now_ms),
    };
    Ok(())
}

/// Answers with a representation, as far as conditions and range let it.
async fn reply(arrived: Arrived<'_>, exchange: &mut Exchange, sent: &Representation) -> Result<()> {
    let head = &exchange.request.head;
    let (etag, modified_s) = (sent.etag.as_slice(), sent.modified_s);
    match conditional::evaluate(&head.fields, head.method, Some(etag), Some(modified_s)) {
        Verdict::Proceed => {}
        Verdict::NotModified => return not_modified(arrived, exchange, sent).await,
        Verdict::PreconditionFailed => return Err(Error::refused(412, "precondition_failed")),
    }
    let range = match head.method {
        Method::Get => head.fields.get(FieldId::Range),
        _ => None,
    };
    let answer = match range {
        None => RangeAnswer::Whole,
        range => {
            let if_range = head.fields.get(FieldId::IfRange);
            range::evaluate(range, if_range, sent.size, etag, modified_s)
        }
    };
    let fields = &mut exchange.outgoing.fields;
    let (status, first, length) = match answer {
        RangeAnswer::Part(span) => (206, span.first, span.bytes()),
        // A coding of the reply would be one of the parts with what stands between them.
        RangeAnswer::Parts(spans) if !sent.fields.contains(FieldId::ContentEncoding) => {
            // Boxed: hardly anybody asks for several, and others need not have room for it.
            return Box::pin(parts::send(arrived, exchange, sent, &spans)).await;
        }
        RangeAnswer::Whole | RangeAnswer::Parts(_) => (200, 0, sent.size),
        RangeAnswer::Unsatisfiable => {
            let size = format!("bytes */{}", sent.size);
            fields.push(b"Content-Range", size.as_bytes());
            return Err(Error::refused(416, "range"));
        }
    };
    fields.append(&sent.fields);
    if status == 206 {
        let last = first + length - 1;
        let range = content_range(Span { first, last }, sent.size);
        fields.push(b"Content-Range", &range);
    }
    exchange.outgoing.status = status;
    exchange.outgoing.is_settled = true;
    reply_head::send(arrived, exchange, BodySize::Length(length)).await?;
    // The file is open: what the client takes its time for is no business of a limit.
    permits::end(arrived.worker, exchange, limits::Outcome::Ignored);
    send::body(arrived.worker, exchange, &sent.content, first, length).await
}

/// 304 with the fields a cache would update (RFC 9110 §15.4.5).
async fn not_modified(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    sent: &Representation,
) -> Result<()> {
    exchange.outgoing.status = 304;
    for field in sent.fields.iter() {
        if matches!(
            field.id,
            FieldId::ETag | FieldId::LastModified | FieldId::Vary
        ) {
            exchange.outgoing.fields.push(field.name, field.value);
        }
    }
    reply_head::send(arrived, exchange, BodySize::None).await
}

/// Sends the client to the same path with a slash, where relative links are right.
async fn redirect(arrived: Arrived<'_>, exchange: &mut Exchange) -> Result<()> {
    let head = &exchange.request.head;
    let path = head.path_wire();
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    // With two slashes in front it would name another host.
    let mut target = b"/".to_vec();
    target.extend_from_slice(path.get(slashes..).unwrap_or_default());
    target.push(b'/');
    if let Some(query) = head.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    if !field_value_ok(&target) {
        return Err(Error::refused(400, "redirect_target"));
    }
    exchange.outgoing.status = 301;
    exchange.outgoing.fields.push(b"Location", &target);
    reply_head::answer(arrived, exchange, b"").await
}

/// Answers with a directory's listing, read by a helper thread.
async fn list(routed: Routed<'_>, exchange: &mut Exchange, handle: &Arc<Handle>) -> Result<()> {
    let files = exchange.route.htaccess.as_deref();
    if files.is_some_and(|files| !files.lists()) {
        return Err(Error::refused(403, "no_index"));
    }
    let held = Arc::clone(handle);
    let work = move || os::file::list(held.as_fd(), listing::ENTRIES_MAX);
    let entries = handle.run(work).await?;
    let entries = entries.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::refused(404, "directory_gone"),
        _ => Error::io(Kind::Internal, "directory", &error),
    })?;
    let path = exchange.request.head.path();
    let files = exchange.route.htaccess.as_deref();
    let is_unlisted = |name: &[u8]| files.is_some_and(|files| files.unlists(name));
    let hides = |name: &[u8]| routed.site.is_source(name) || is_unlisted(name);
    let page = listing::page(path, entries, hides);
    exchange.outgoing.status = 200;
    exchange
        .outgoing
        .fields
        .push(b"Content-Type", b"text/html; charset=utf-8");
    let size = BodySize::Length(page.len() as u64);
    reply_head::send(*routed, exchange, size).await?;
    permits::end(routed.worker, exchange, limits::Outcome::Ignored);
    exchange.reply.write(page.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, reply};

    const CONFIG: &str = r#"
[[sites]]
hosts = ["a.test"]
root = "{dir}"
[[sites.rules]]
match = { file = "*.php" }
handler = { respond = { status = 200, body = "a program" } }
"#;

    /// A directory of its own for each test.
    fn directory(test: &str) -> std::path::PathBuf {
        let id = std::process::id();
        let directory = std::env::temp_dir().join(format!("nagaya-static-{test}-{id}"));
        std::fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    #[test]
    fn what_is_fresh_is_sent_without_a_look_at_the_disk() {
        let root = directory("fresh");
        std::fs::write(root.join("a.txt"), "from disk").expect("a file");
        let fixture = Fixture::new(&CONFIG.replace("{dir}", &root.display().to_string()));
        let ask = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let (status, _, body) = reply(&fixture.ask(&request));
            (status, body)
        };
        assert_eq!(ask("/a.txt"), (200, "from disk".into()));
        assert_eq!(ask("/b.txt").0, 404);
        std::fs::rename(root.join("a.txt"), root.join("b.txt")).expect("a rename");
        // The worker's clock stands still: nobody ticks it here.
        assert_eq!(ask("/a.txt"), (200, "from disk".into()));
        assert_eq!(ask("/b.txt").0, 404);
        std::fs::remove_dir_all(&root).expect("the directory");
    }

    #[test]
    fn rules_see_the_file_and_the_handler_sends_the_same() {
        let root = directory("rules");
        std::fs::write(root.join("run.php"), "<?php secret").expect("a file");
        std::fs::write(root.join("page.html"), "<p>").expect("a file");
        let fixture = Fixture::new(&CONFIG.replace("{dir}", &root.display().to_string()));
        for (path, status, body) in [
            ("/run.php/info", 200, "a program"),
            ("/page.html", 200, "<p>"),
            ("/none.php", 404, ""),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let exchange = fixture.ask(&request);
            let (found, _, text) = reply(&exchange);
            assert_eq!(found, status, "{path}");
            if status == 200 {
                assert_eq!(text, body, "{path}");
                let file = exchange.route.file.as_ref().expect("it was resolved");
                assert!(file.name().starts_with(root.as_os_str().as_encoded_bytes()));
            }
        }
        std::fs::remove_dir_all(&root).expect("the directory");
    }
}
