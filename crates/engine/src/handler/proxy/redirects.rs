//! What of a reply would lead its client past the gateway, rewritten so that it leads here.
//!
//! A server that names itself in `Location` means a path of the rule that forwards to it: that is
//! known without a word. Everything else is said in the configuration: beginnings of URLs, domains
//! and paths of cookies. What is not well-formed, or would not be afterwards, passes as it came.

use config::model::{Proxy, ProxyHost, ProxyRedirects, Template};
use wire::location::{Location, cut_prefix, put_prefix, refresh_url};
use wire::set_cookie::{self, Change};
use wire::{Authority, FieldId, field_value_ok};

use super::mapping;
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::io::Io;
use crate::template::{Values, expand_url};

/// Rewrites the fields of a reply that `server` has sent over `io`.
pub(super) fn rewrite(proxy: &Proxy, exchange: &mut Exchange, (io, server): (&Io, &str)) {
    let Some(redirects) = proxy.redirects.as_deref() else {
        return;
    };
    let fields = &mut exchange.outgoing.fields;
    let rewriting = Rewriting {
        request: &exchange.request,
        values: exchange.route.values(&exchange.request),
        proxy,
        redirects,
        server,
        is_https: matches!(io, Io::Tls(_)),
    };
    for id in [FieldId::Location, FieldId::ContentLocation] {
        if fields.contains(id) {
            fields.replace(id, |value| rewriting.location(value));
        }
    }
    if fields.contains(FieldId::Refresh) {
        fields.replace(FieldId::Refresh, |value| rewriting.refresh(value));
    }
    if fields.contains(FieldId::SetCookie) && redirects.has_cookies() {
        fields.replace(FieldId::SetCookie, |value| rewriting.cookie(value));
    }
}

/// What is known when a reply is rewritten.
struct Rewriting<'a> {
    request: &'a Request,
    /// What texts are filled in from.
    values: Values<'a>,
    proxy: &'a Proxy,
    redirects: &'a ProxyRedirects,
    /// What the server is called.
    server: &'a str,
    /// Whether TLS is spoken with it.
    is_https: bool,
}

impl Rewriting<'_> {
    fn refresh(&self, value: &[u8]) -> Option<Vec<u8>> {
        let place = refresh_url(value)?;
        let url = self.location(value.get(place.clone())?)?;
        let mut rewritten = value.to_vec();
        rewritten.splice(place, url);
        Some(rewritten)
    }

    fn location(&self, value: &[u8]) -> Option<Vec<u8>> {
        let location = Location::parse(value)?;
        let said = self.said(value, &location);
        let rewritten = said.or_else(|| self.of_server(&location))?;
        Location::parse(&rewritten)?;
        field_value_ok(&rewritten).then_some(rewritten)
    }

    /// A URL by the configuration's word.
    fn said(&self, value: &[u8], location: &Location<'_>) -> Option<Vec<u8>> {
        let found = longest(&self.redirects.location, |from| {
            let from = Location::parse(from.as_bytes())?;
            let is_there = match (from.origin, location.origin) {
                (None, None) => true,
                (None, Some(origin)) => origin.is_at(self.request.head.authority()),
                (Some(_), None) => false,
                (Some(from), Some(origin)) => from.is_same(&origin),
            };
            cut_prefix(location.rest, from.rest).filter(|_| is_there)
        });
        let (rest, (from, to)) = found?;
        let rewritten = put_prefix(&self.text(to), rest);
        // Where a path stands for a path, a URL stays one: its scheme may be the point of it.
        let origin = value.len() - location.rest.len();
        Some(match from.starts_with('/') && rewritten.starts_with(b"/") {
            true => [value.get(..origin)?, &rewritten].concat(),
            false => rewritten,
        })
    }

    /// A URL of the server itself, as a path of the rule.
    fn of_server(&self, location: &Location<'_>) -> Option<Vec<u8>> {
        let origin = location
            .origin
            .filter(|origin| origin.is_https == self.is_https)?;
        let is_told = self.proxy.host != ProxyHost::Client;
        let told = mapping::host(self.request, self.proxy, self.server);
        let is_own = origin.is_at(self.server.as_bytes()) || is_told && origin.is_at(told);
        if !is_own {
            return None;
        }
        let added = self.proxy.add_prefix.as_deref().unwrap_or_default();
        let rest = cut_prefix(location.rest, added.as_bytes())?;
        let was_cut = mapping::cut(self.request.head.path_wire(), self.proxy).is_some();
        let cut = self.proxy.strip_prefix.as_deref().filter(|_| was_cut);
        Some(put_prefix(cut.unwrap_or_default().as_bytes(), rest))
    }

    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        set_cookie::rewritten(
            value,
            |it| self.cookie_domain(it),
            |it| self.cookie_path(it),
        )
    }

    fn cookie_domain(&self, domain: &[u8]) -> Change {
        let domain = domain.strip_prefix(b".").unwrap_or(domain);
        let found = self.redirects.cookie_domain.iter();
        let mut found = found.filter(|(from, _)| from.as_bytes().eq_ignore_ascii_case(domain));
        let Some((_, to)) = found.next() else {
            return Change::Keep;
        };
        let to = self.text(to);
        if to.is_empty() {
            return Change::Remove;
        }
        let mut authority = Authority::default();
        let name = to.strip_prefix(b".").unwrap_or(&to);
        match authority.parse(name) {
            Ok(()) if authority.host() == authority.as_str() => Change::Value(to),
            _ => Change::Keep,
        }
    }

    fn cookie_path(&self, path: &[u8]) -> Change {
        let found = longest(&self.redirects.cookie_path, |from| {
            // A cookie's path has no query.
            cut_prefix(path, from.as_bytes()).filter(|rest| matches!(rest, [] | [b'/', ..]))
        });
        let Some((rest, (_, to))) = found else {
            return Change::Keep;
        };
        match put_prefix(&self.text(to), rest) {
            path if path.starts_with(b"/") => Change::Value(path),
            _ => Change::Keep,
        }
    }

    fn text(&self, template: &Template) -> Vec<u8> {
        let mut text = Vec::new();
        expand_url(template, self.values, &mut text);
        text
    }
}

/// What the longest beginning that fits leaves, and its entry.
fn longest<'t, 'v>(
    rewrites: &'t [(String, Template)],
    fits: impl Fn(&str) -> Option<&'v [u8]>,
) -> Option<(&'v [u8], &'t (String, Template))> {
    let fitting = rewrites.iter();
    let fitting = fitting.filter_map(|entry| Some((fits(&entry.0)?, entry)));
    fitting.max_by_key(|(_, (from, _))| from.len())
}
