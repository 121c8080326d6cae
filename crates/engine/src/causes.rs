//! Why files are refused, for the error log: once a minute for each cause, however many ask.
//!
//! A cause is a site, a reason and a file. Told are those that somebody can mend: what is forbidden, a
//! `.htaccess` file that is wrong, a link that leads nowhere it may, and bodies that are too long. So many are remembered as of what
//! programs say ([`crate::stderr_log`]); what finds no room is counted and not told by name.

use std::time::Instant;

use crate::error::Error;
use crate::exchange::Exchange;
use crate::resolve::resolved::Resolved;
use crate::site_log::{self, Audience};
use crate::stage::Arrived;
use crate::stderr_log::Due;

/// Bytes of a file or path that are told: what a client asks for may be long.
const PLACE_BYTES_MAX: usize = 1_024;
/// Reasons of a 404 that a link is to blame for.
const OF_LINKS: [&str; 3] = ["symlink_dangling", "symlink_outside", "symlink_refused"];

/// Tells why a request was refused with this status, where that is to be told and was not lately.
pub(crate) fn tell(arrived: Arrived<'_>, exchange: &Exchange, error: &Error, status: u16) {
    let is_told = match status {
        // Of a root that cannot be opened the log hears otherwise.
        403 => error.reason != "root_denied",
        413 => true,
        404 => OF_LINKS.contains(&error.reason),
        500 => error.reason.starts_with("htaccess_"),
        _ => false,
    };
    // Of who is refused all the time one in a hundred is on record, and none need be here.
    if !is_told || exchange.record.is_sampled || !tracing::enabled!(tracing::Level::WARN) {
        return;
    }
    let Some(site) = arrived.site(&exchange.route) else {
        return;
    };
    let (request, site) = (&exchange.request, &*site.name);
    let text = |bytes: &[u8]| {
        let beginning = bytes.get(..PLACE_BYTES_MAX).unwrap_or(bytes);
        String::from_utf8_lossy(beginning).into_owned()
    };
    let file = exchange.route.file.as_deref().map(Resolved::name).map(text);
    let path = file.is_none().then(|| text(request.head.path()));
    let place = file.as_deref().or(path.as_deref()).unwrap_or_default();
    let rule = arrived.routed(&exchange.route);
    let rule = rule.and_then(|routed| routed.refusing(&exchange.route));
    let rule = rule.map(|rule| &*rule.name);
    let reason = error.reason;
    let cause = format!("{status} {reason} {place}");
    let complaints = &arrived.serving.stderr.complaints;
    match complaints.refused.note(site, &cause, Instant::now()) {
        Due::Now => {}
        Due::Counted => return,
        Due::NoRoom => return complaints.note_unnamed(),
    }
    let (client, request_id) = (request.client, request.id);
    let detail = Some(&*error.detail).filter(|detail| !detail.is_empty());
    let logs = &arrived.serving.generation.logs;
    let page = &arrived.worker.access_log;
    site_log::tell(logs, page, Some(site), Audience::Tenant, &|| {
        tracing::warn!(%client, %request_id, site, status, reason, rule, file, path, detail, "request refused");
    });
}
