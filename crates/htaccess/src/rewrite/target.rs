//! Where the result of a set of rules leads.

use super::Options;
use super::escape::{escape_path, escape_url};
use crate::request::RequestFacts;
use crate::variable::Scope;

/// A path of this site as a URL.
pub(super) fn qualified(path: &[u8], request: &RequestFacts<'_>) -> Vec<u8> {
    let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    [&request.origin()[..], slash, path].concat()
}

/// Makes a URL of this very site into a path.
pub(super) fn reduce(url: &mut Vec<u8>, request: &RequestFacts<'_>) {
    let begin = format!("{}://", request.scheme());
    let is_ours = |scheme: &[u8]| scheme.eq_ignore_ascii_case(begin.as_bytes());
    if !url.get(..begin.len()).is_some_and(is_ours) {
        return;
    }
    let rest = url.get(begin.len()..).unwrap_or_default();
    let slash = rest.iter().position(|byte| *byte == b'/');
    let (authority, path) = rest.split_at(slash.unwrap_or(rest.len()));
    let mut parts = authority.splitn(2, |byte| *byte == b':');
    let host = parts.next().unwrap_or_default();
    let port = match parts.next() {
        Some(digits) => crate::expression::number(digits),
        None => i64::from(request.usual_port()),
    };
    let is_own = |own: &&[u8]| own.eq_ignore_ascii_case(host);
    let is_host = is_own(&request.host) || request.own_hosts.iter().any(is_own);
    if is_host && port == i64::from(request.listener_port) {
        *url = if path.is_empty() {
            b"/".to_vec()
        } else {
            path.to_vec()
        };
    }
}

/// A path with the beginning that leads to a directory replaced.
fn replaced(path: &[u8], directory: &[u8], by: &[u8]) -> Option<Vec<u8>> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let rest = path.strip_prefix(directory)?.strip_prefix(b"/")?;
    let slash: &[u8] = if by.is_empty() || by.ends_with(b"/") {
        b""
    } else {
        b"/"
    };
    Some([by, slash, rest].concat())
}

/// A URL in which the directory, where it leads there, is what `RewriteBase` says.
pub(super) fn with_base(
    url: Vec<u8>,
    scheme: usize,
    directory: &[u8],
    base: Option<&[u8]>,
) -> Vec<u8> {
    let rest = url.get(scheme..).unwrap_or_default();
    let slash = rest.iter().position(|byte| *byte == b'/');
    let (Some(base), Some(slash)) = (base, slash) else {
        return url;
    };
    let (begin, path) = url.split_at(scheme + slash + 1);
    let directory = directory.strip_prefix(b"/").unwrap_or(directory);
    let base = base.strip_prefix(b"/").unwrap_or(base);
    match replaced(path, directory, base) {
        Some(path) => [begin, &path].concat(),
        None => url,
    }
}

/// The value of `Location`.
pub(super) fn location(
    url: Vec<u8>,
    scheme: usize,
    query: Option<Vec<u8>>,
    no_escape: bool,
    scope: &Scope<'_>,
) -> Vec<u8> {
    let mut location = if no_escape {
        url
    } else {
        escape_url(&url, scheme)
    };
    if let Some(query) = query {
        location.push(b'?');
        match no_escape || scope.request.query == Some(&query[..]) {
            true => location.extend_from_slice(&query),
            false => location.extend_from_slice(&escape_path(&query)),
        }
    }
    location
}

/// The path of the site that a file's path stands for.
pub(super) fn local(
    path: Vec<u8>,
    directory: &[u8],
    base: Option<&[u8]>,
    options: Options,
    request: &RequestFacts<'_>,
) -> Vec<u8> {
    let found = match base {
        Some(base) => replaced(&path, directory, base),
        None => {
            let root = request.root.strip_suffix(b"/").unwrap_or(request.root);
            let rest = path
                .strip_prefix(root)
                .filter(|rest| rest.starts_with(b"/"));
            rest.map(<[u8]>::to_vec)
        }
    };
    let of_context = || {
        let context = request.context.filter(|_| !options.ignore_context)?;
        replaced(&path, context.root, context.prefix)
    };
    found.or_else(of_context).unwrap_or(path)
}

/// Takes away what follows a `#`, as the path and the query together are a URL.
pub(super) fn without_fragment(path: &mut Vec<u8>, query: &mut Option<Vec<u8>>) {
    let fragment = |text: &[u8]| text.iter().position(|byte| *byte == b'#');
    if let Some(end) = fragment(path) {
        path.truncate(end);
        *query = None;
    } else if let Some(query) = query
        && let Some(end) = fragment(query)
    {
        query.truncate(end);
    }
}

/// The value of `Set-Cookie` that `CO` says: name, value, domain, and what may follow.
pub(super) fn cookie(text: &[u8], now_s: i64) -> Option<Vec<u8>> {
    let (separator, text) = match text.strip_prefix(b";") {
        Some(rest) => (b';', rest),
        None => (b':', text),
    };
    if text.iter().any(|byte| *byte < b' ' || *byte == 127) {
        return None;
    }
    let mut parts = text
        .split(|byte| *byte == separator)
        .filter(|part| !part.is_empty());
    let (name, value, domain) = (parts.next()?, parts.next()?, parts.next()?);
    let (minutes, path) = (parts.next(), parts.next());
    let (secure, http_only, same_site) = (parts.next(), parts.next(), parts.next());
    let is_true = |part: Option<&[u8]>, word: &str| {
        part.is_some_and(|part| {
            let words = ["true", "1", word];
            words
                .iter()
                .any(|word| part.eq_ignore_ascii_case(word.as_bytes()))
        })
    };
    let mut cookie = [
        name,
        b"=",
        value,
        b"; path=",
        path.unwrap_or(b"/"),
        b"; domain=",
        domain,
    ]
    .concat();
    let minutes = minutes.map_or(0, crate::expression::number);
    if minutes != 0 {
        let until = now_s.saturating_add(minutes.saturating_mul(60));
        cookie.extend_from_slice(format!("; expires={}", crate::reply::date(until)).as_bytes());
    }
    if is_true(secure, "secure") {
        cookie.extend_from_slice(b"; secure");
    }
    if is_true(http_only, "httponly") {
        cookie.extend_from_slice(b"; HttpOnly");
    }
    let same_site = same_site.filter(|it| *it != b"0" && !it.eq_ignore_ascii_case(b"false"));
    if let Some(same_site) = same_site {
        cookie.extend_from_slice(b"; SameSite=");
        cookie.extend_from_slice(same_site);
    }
    Some(cookie)
}
