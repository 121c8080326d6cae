//! A redirect to a configured target.

use config::model::{Redirect, Template, TemplatePart};
use wire::field_value_ok;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::stage::Arrived;
use crate::{reply_head, template};

/// Answers with `Location`.
///
/// # Errors
/// When the request brings bytes into the target that no field may hold, or a map an answer that
/// leads nowhere.
pub(super) async fn answer(
    arrived: Arrived<'_>,
    exchange: &mut Exchange,
    redirect: &Redirect,
) -> Result<()> {
    let mut target = Vec::new();
    let values = exchange.route.values(&exchange.request);
    template::expand_url(&redirect.target, values, &mut target);
    if !may_begin_with_host(&redirect.target) {
        // An empty group between two slashes leaves both, and what follows would be a host.
        let slashes = target.iter().take_while(|byte| **byte == b'/').count();
        target.drain(..slashes.saturating_sub(1));
    }
    if may_begin_anyhow(&redirect.target) {
        target = escaped(&target);
        let starts: [&[u8]; 3] = [b"/", b"http://", b"https://"];
        if !starts.iter().any(|start| target.starts_with(start)) {
            return Err(Error::refused(404, "redirect_nowhere"));
        }
    }
    if !field_value_ok(&target) {
        return Err(Error::refused(400, "redirect_target"));
    }
    exchange.outgoing.status = redirect.status;
    exchange.outgoing.fields.push(b"Location", &target);
    reply_head::answer(arrived, exchange, b"").await
}

/// Whether two slashes at its beginning are the configuration's, or a map's, not a request's.
fn may_begin_with_host(target: &Template) -> bool {
    match target.parts.first() {
        Some(TemplatePart::Text(text)) => text.starts_with("//"),
        first => matches!(first, Some(TemplatePart::Map(_))),
    }
}

/// Whether a map or a group may say where to.
fn may_begin_anyhow(target: &Template) -> bool {
    let begins = target.parts.first();
    matches!(
        begins,
        Some(TemplatePart::Capture(_) | TemplatePart::Row(_))
    ) || target.lookups().next().is_some()
}

/// What a map says may hold anything; in a target stands only what may stand in a URL.
fn escaped(target: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(target.len());
    for byte in target {
        let is_unsafe = b"\"<>\\^`{|}".contains(byte);
        if byte.is_ascii_graphic() && !is_unsafe {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_stand_in_a_url_is_escaped() {
        assert_eq!(escaped(b"/a b\r\n%41\xe3"), b"/a%20b%0D%0A%41%E3");
        assert_eq!(escaped(b"/a b?c=\"<x>"), b"/a%20b?c=%22%3Cx%3E");
        assert_eq!(escaped(b"\\^`{|}"), b"%5C%5E%60%7B%7C%7D");
        let stays = b"/!$&'()*+,-.:;=?@[]_~#%";
        assert_eq!(escaped(stays), stays);
    }
}
