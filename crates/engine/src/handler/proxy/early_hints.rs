//! `103 Early Hints` (RFC 8297): what a back end says ahead of its reply, for a browser to fetch
//! meanwhile.
//!
//! A client that does not know interim replies may take one for its reply, and what follows for
//! that to its next request. So a hint goes by itself only to whom it is meant for: a browser that
//! opens a page, where nothing says that a proxy stands between. And it says only what browsers
//! look for in it, written anew: no field that the configuration or a script would change or take
//! away in the reply's head gets out ahead of it.

use std::task::{Context, Poll};

use config::model::{self, FieldEdits};
use wire::{FieldId, Fields, Version, strip_hop_by_hop};

use crate::error::Result;
use crate::exchange::Exchange;
use crate::stage::Chosen;
use crate::upstream::link::Link;

/// Most bytes of hints that are passed on ahead of one reply, names and values.
const BYTES_MAX: usize = 16 * 1024;
/// What a browser makes use of in a hint: links, and what says how those may be fetched.
const PASSED: [&str; 4] = [
    "Link",
    "Content-Security-Policy",
    "Referrer-Policy",
    "Cross-Origin-Embedder-Policy",
];

/// The hints that were passed on ahead of one reply.
#[derive(Debug, Default)]
pub(super) struct EarlyHints {
    bytes: usize,
}

impl EarlyHints {
    /// Passes on the hint that the link has read, if it is for this client. What the client does
    /// not take at once leaves with the reply.
    ///
    /// # Errors
    /// When the client has gone.
    pub(super) fn pass(
        &mut self,
        cx: &mut Context<'_>,
        chosen: Chosen<'_>,
        whom: model::EarlyHints,
        exchange: &mut Exchange,
        link: &mut Link,
    ) -> Result<()> {
        if !is_wanted(whom, exchange) || exchange.has_filters() {
            return Ok(());
        }
        strip_hop_by_hop(&mut link.reply.fields);
        let Some(hint) = hint(&link.reply.fields, |name| is_edited(chosen, exchange, name)) else {
            return Ok(());
        };
        let bytes = hint
            .iter()
            .map(|field| field.name.len() + field.value.len());
        let bytes: usize = bytes.sum();
        if self.bytes + bytes > BYTES_MAX {
            return Ok(());
        }
        self.bytes += bytes;
        exchange.reply.push_interim(103, &hint);
        match exchange.reply.poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }
}

fn is_wanted(whom: model::EarlyHints, exchange: &Exchange) -> bool {
    let request = &exchange.request;
    let fields = &request.head.fields;
    let through_proxy = [FieldId::Via, FieldId::XForwardedFor, FieldId::Forwarded];
    request.head.version != Version::Http10
        && match whom {
            model::EarlyHints::All => true,
            model::EarlyHints::None => false,
            model::EarlyHints::Browsers => {
                fields.get_named(b"Sec-Fetch-Mode") == Some(b"navigate")
                    && !request.peer_trusted
                    && !through_proxy.into_iter().any(|id| fields.contains(id))
            }
        }
}

/// The fields of a hint; `None` where it has no link, and thus no use.
fn hint(fields: &Fields, is_edited: impl Fn(&str) -> bool) -> Option<Fields> {
    let mut hint = Fields::default();
    for name in PASSED.into_iter().filter(|name| !is_edited(name)) {
        for value in fields.all_named(name.as_bytes()) {
            hint.push(name.as_bytes(), value);
        }
    }
    hint.get_named(b"Link")?;
    Some(hint)
}

/// Whether the field would be another one, or none, in the head of the reply.
fn is_edited(chosen: Chosen<'_>, exchange: &Exchange, name: &str) -> bool {
    let process = &chosen.serving.generation.process.reply_headers;
    let settings = chosen.settings(&exchange.route);
    let mut edits = settings
        .map(|settings| &settings.reply_headers)
        .chain([process]);
    let scripted = exchange.scripted.as_ref();
    edits.any(|edits| touches(edits, name))
        || scripted.is_some_and(|scripted| scripted.sets_field(name))
}

fn touches(edits: &FieldEdits, name: &str) -> bool {
    let given = edits.set.iter().chain(&edits.add).map(|(given, _)| given);
    given
        .chain(&edits.remove)
        .any(|given| given.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_has_what_browsers_look_for_and_nothing_else() {
        let mut fields = Fields::default();
        for (name, value) in [
            ("Set-Cookie", "a=b"),
            ("link", "</a.css>; rel=preload; as=style"),
            ("Content-Length", "5"),
            ("LINK", "<https://b.test>; rel=preconnect"),
            ("Referrer-Policy", "origin"),
            ("X-Powered-By", "x"),
        ] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let told = |edited: &'static [&str]| {
            let hint = hint(&fields, |name| edited.contains(&name))?;
            let mut head = Vec::new();
            hint.encode(&mut head, |_| true);
            Some(String::from_utf8(head).expect("text"))
        };
        let links = "Link: </a.css>; rel=preload; as=style\r\n\
                     Link: <https://b.test>; rel=preconnect\r\n";
        let whole = format!("{links}Referrer-Policy: origin\r\n");
        assert_eq!(told(&[]), Some(whole));
        assert_eq!(told(&["Referrer-Policy"]), Some(links.to_owned()));
        assert_eq!(told(&["Link"]), None);
    }
}
