//! Whether a request asks for the place that a redirect leads to.

use crate::exchange::request::Request;

/// Whether a request for `target`, a path or a URL, would be this one: the same host and path,
/// whatever the port and the query. A directory is the same place with its slash and without: who
/// asks without is sent on by the site itself.
pub(super) fn is_asked_for(target: &[u8], request: &Request) -> bool {
    let target = std::str::from_utf8(target).unwrap_or_default();
    let (host, path) = parts(target);
    let head = &request.head;
    host.is_none_or(|host| is_same_host(host, head.host()))
        && without_slash(&unescaped(path)) == without_slash(head.path())
}

/// Host and path of a target; a path alone has no host of its own.
fn parts(target: &str) -> (Option<&str>, &str) {
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let target = target.get(..end).unwrap_or_default();
    let behind = target.split_once("://").map(|(_, rest)| rest);
    let Some(rest) = behind.or_else(|| target.strip_prefix("//")) else {
        return (None, target);
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    (Some(without_port(authority)), path)
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn is_same_host(host: &str, asked: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case(asked)
}

/// A path without its escapes; a broken one stays as it is.
#[must_use]
pub fn unescaped(path: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = match (first, tail) {
            (b'%', [high, low, after @ ..]) => digit(high).zip(digit(low)).map(|it| (it, after)),
            _ => None,
        };
        let byte = escaped.and_then(|((high, low), _)| u8::try_from(high << 4 | low).ok());
        match (byte, escaped) {
            (Some(byte), Some((_, after))) => {
                out.push(byte);
                rest = after;
            }
            _ => out.push(*first),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::request::Peer;
    use crate::fixture::exchange;

    #[test]
    fn the_place_a_redirect_leads_to_is_known_however_it_is_spelt() {
        let head =
            "GET /so%72ry%20page.html?from=a HTTP/1.1\r\nHost: Sorry.example.jp:8080\r\n\r\n";
        let mut asked = exchange(Peer::LOCAL, head);
        let rules = wire::PathRules::default();
        asked.request.head.canonicalize(rules).expect("a path");
        for (target, expected) in [
            ("http://sorry.example.jp/sorry%20page.html", true),
            ("https://SORRY.example.jp.:443/sorry%20page.html?x#y", true),
            ("//sorry.example.jp/sorry%20page.html", true),
            ("/sorry%20page.html", true),
            ("/sorry%20page.html/", true),
            ("/sorry%20page.html//", false),
            ("/sorry%2", false),
            ("/other.html", false),
            ("http://other.example.jp/sorry%20page.html", false),
            ("http://sorry.example.jp", false),
            ("", false),
        ] {
            assert_eq!(
                is_asked_for(target.as_bytes(), &asked.request),
                expected,
                "{target}"
            );
        }
        assert_eq!(parts("http://a"), (Some("a"), "/"));
        assert_eq!(parts("http://[::1]:80/x"), (Some("[::1]"), "/x"));
        assert_eq!(parts("http://[::1]/x"), (Some("[::1]"), "/x"));
    }
}
