//! A request rewritten by its gateway: another method, path or query than the client sent.
//!
//! What was sent stays as it was, for logs. What is put in its place is under the rules every
//! request is under: a script can ask for nothing that a client could not.

use crate::{
    method::Method,
    octets::field_name_ok,
    refusal::Refusal,
    request::RequestHead,
    target::{CanonicalPath, EncodedSlash, PathRules},
};

/// What of a request line has been replaced.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rewritten {
    /// Empty: nothing.
    pub(crate) method: Vec<u8>,
    /// The canonical path, escaped, of what the client asked for; empty: it still is the request's.
    pub(crate) sent_path: Vec<u8>,
    /// `Some(None)`: there is no query any more.
    pub(crate) query: Option<Option<Vec<u8>>>,
}

impl Rewritten {
    pub(crate) fn clear(&mut self) {
        self.method.clear();
        self.sent_path.clear();
        self.query = None;
    }
}

impl RequestHead {
    /// Replaces the method; how its body is framed stays as it is.
    ///
    /// # Errors
    /// When it is no method, or one that no request may have.
    pub fn rewrite_method(&mut self, name: &[u8]) -> Result<(), Refusal> {
        let method = Method::from_bytes(name);
        if !field_name_ok(name) || matches!(method, Method::Connect | Method::Trace) {
            return Err(Refusal::new(405, "method_refused"));
        }
        self.method = method;
        self.rewritten.method.clear();
        self.rewritten.method.extend_from_slice(name);
        Ok(())
    }

    /// Replaces the path by one that is not escaped: `/a b.html`.
    ///
    /// # Errors
    /// When no client may ask for it. The path stays as it was.
    pub fn rewrite_path(&mut self, decoded: &[u8], how: PathRules) -> Result<(), Refusal> {
        if !decoded.starts_with(b"/") {
            return Err(Refusal::bad("bad_target"));
        }
        self.replace_path(&escaped_path(decoded, how), how)
    }

    /// Replaces the query; `None` takes it away.
    ///
    /// # Errors
    /// When it holds what no query may. It stays as it was.
    pub fn rewrite_query(&mut self, query: Option<&[u8]>) -> Result<(), Refusal> {
        let is_odd = |byte: &u8| !(0x21..0x7f).contains(byte) || *byte == b'#';
        if query.is_some_and(|query| query.iter().any(is_odd)) {
            return Err(Refusal::bad("bad_target"));
        }
        self.rewritten.query = Some(query.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Replaces path and query by those of a target as clients write it, escaped: `/a%20b?c=d`.
    /// Bytes that no target may hold raw are escaped.
    ///
    /// # Errors
    /// When no client may ask for it. The request stays as it was.
    pub fn rewrite_target(&mut self, target: &[u8], how: PathRules) -> Result<(), Refusal> {
        let mut raw = Vec::with_capacity(target.len());
        escape(target, |_| false, &mut raw);
        let mut parts = raw.splitn(2, |&byte| byte == b'?');
        let path = parts.next().unwrap_or_default();
        let query = parts.next();
        if !path.starts_with(b"/") || raw.contains(&b'#') {
            return Err(Refusal::bad("bad_target"));
        }
        self.replace_path(path, how)?;
        self.rewrite_query(query)
    }
}

/// Whether a target, escaped as clients write it, could be one's, and has no segments that would lead
/// elsewhere.
///
/// # Errors
/// When no client may ask for it, or not so.
pub fn judge_target(target: &[u8], how: PathRules) -> Result<(), Refusal> {
    let path = target.split(|byte| *byte == b'?').next();
    let path = path.unwrap_or_default();
    let mut segments = path.split(|byte| *byte == b'/');
    let is_odd = |byte: &u8| !(0x21..0x7f).contains(byte) || *byte == b'#';
    if !path.starts_with(b"/")
        || segments.any(|segment| matches!(segment, b"." | b".."))
        || target.iter().any(is_odd)
    {
        return Err(Refusal::bad("bad_target"));
    }
    CanonicalPath::default().build(path, how)
}

/// The canonical form of a path that is not escaped.
///
/// # Errors
/// When no client may ask for it.
pub fn canonical_path(decoded: &[u8], how: PathRules) -> Result<Vec<u8>, Refusal> {
    let mut path = CanonicalPath::default();
    path.build(&escaped_path(decoded, how), how)?;
    Ok(path.decoded)
}

/// A decoded path as a client would write it. Where encoded slashes are kept, the decoded face
/// spells one `%2F`: that is no percent sign to be escaped once more.
fn escaped_path(decoded: &[u8], how: PathRules) -> Vec<u8> {
    let is_slash =
        |rest: &[u8]| how.encoded_slash == EncodedSlash::Keep && rest.starts_with(b"%2F");
    let mut raw = Vec::with_capacity(decoded.len());
    let is_more = |rest: &[u8]| matches!(rest, [b'%' | b'?' | b'#', ..]) && !is_slash(rest);
    escape(decoded, is_more, &mut raw);
    raw
}

/// A query with what cannot stand in a target escaped: bytes beyond ASCII that were taken out of a path.
pub fn escaped_query(query: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(query.len());
    escape(query, |rest| rest.starts_with(b"#"), &mut raw);
    raw
}

/// Escapes what cannot stand in a target, and what else is to be, as seen from each byte on.
fn escape(bytes: &[u8], is_more: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for (at, &byte) in bytes.iter().enumerate() {
        let rest = bytes.get(at..).unwrap_or_default();
        if (0x21..0x7f).contains(&byte) && !is_more(rest) {
            out.push(byte);
        } else {
            let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::HeadCaps;

    fn head(target: &str) -> RequestHead {
        let caps = HeadCaps {
            head_bytes: 16_384,
            target_bytes: 8_192,
            fields: 100,
        };
        let mut head = RequestHead::default();
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        head.parse(text.as_bytes(), &caps).expect("a request");
        head.canonicalize(PathRules::default()).expect("a path");
        head
    }

    #[test]
    fn a_rewritten_path_has_both_faces() {
        for (decoded, path, wire) in [
            ("/b", "/b", "/b"),
            ("/a b%", "/a b%", "/a%20b%25"),
            ("/é?x#y", "/é?x#y", "/%C3%A9%3Fx%23y"),
            ("/a/../b//c/./d", "/b/c/d", "/b/c/d"),
        ] {
            let mut head = head("/first?q=1");
            let rewritten = head.rewrite_path(decoded.as_bytes(), PathRules::default());
            assert_eq!(rewritten, Ok(()), "{decoded}");
            assert_eq!(head.path(), path.as_bytes());
            assert_eq!(head.path_wire(), wire.as_bytes());
            assert_eq!(head.query(), Some(&b"q=1"[..]));
            assert_eq!(head.target(), b"/first?q=1");
        }
    }

    #[test]
    fn a_kept_encoded_slash_is_not_escaped_once_more() {
        let keep = PathRules {
            encoded_slash: EncodedSlash::Keep,
            ..PathRules::default()
        };
        for (decoded, rules, wire) in [
            ("/v1/a%2Fb", keep, "/v1/a%2Fb"),
            ("/v1/a%2fb%", keep, "/v1/a%252fb%25"),
            ("/v1/a%2", keep, "/v1/a%252"),
            ("/v1/a%2Gb%41", keep, "/v1/a%252Gb%2541"),
            ("/v1/a%2Fb", PathRules::default(), "/v1/a%252Fb"),
        ] {
            let mut head = head("/first");
            let rewritten = head.rewrite_path(decoded.as_bytes(), rules);
            assert_eq!(rewritten, Ok(()), "{decoded}");
            assert_eq!(head.path_wire(), wire.as_bytes());
        }
        assert!(head("/first").rewrite_path(b"/a%2F../b", keep).is_err());
        let file = canonical_path(b"/a%2Fb", keep);
        assert_eq!(file.as_deref(), Ok(&b"/a%2Fb"[..]));
    }

    #[test]
    fn what_the_client_asked_for_is_known_however_often_it_was_rewritten() {
        let mut head = head("/a%20b/../first%21?q=1");
        let sent = |head: &RequestHead| {
            let query = head.sent_query().unwrap_or_default();
            [head.sent_path_wire(), b"?", query].concat()
        };
        assert_eq!(sent(&head), b"/first%21?q=1");
        for path in ["/second", "/third"] {
            let rewritten = head.rewrite_path(path.as_bytes(), PathRules::default());
            assert_eq!((rewritten, head.path()), (Ok(()), path.as_bytes()));
        }
        head.rewrite_query(None).expect("none");
        assert_eq!(sent(&head), b"/first%21?q=1");
    }

    #[test]
    fn nothing_is_rewritten_to_what_no_client_may_ask_for() {
        let mut head = head("/first?q=1");
        let rules = PathRules::default();
        for path in ["", "b", "/../b", "/a\0b", "/a\r\nb", "/a\\b", "/..;/b"] {
            assert!(head.rewrite_path(path.as_bytes(), rules).is_err(), "{path}");
        }
        for target in [
            "b",
            "http://x/",
            "/a%00",
            "/a%2fb",
            "/a#b",
            "/%0d%0a",
            "/\r\n",
        ] {
            assert!(
                head.rewrite_target(target.as_bytes(), rules).is_err(),
                "{target}"
            );
        }
        for query in ["a b", "a\r\nb", "a#b", "é"] {
            assert!(
                head.rewrite_query(Some(query.as_bytes())).is_err(),
                "{query}"
            );
        }
        for method in ["", "A B", "CONNECT", "TRACE", "GET\r\n"] {
            assert!(head.rewrite_method(method.as_bytes()).is_err(), "{method}");
        }
        assert_eq!(
            (head.path(), head.query()),
            (&b"/first"[..], Some(&b"q=1"[..]))
        );
    }

    #[test]
    fn a_target_replaces_path_and_query() {
        for (target, path, wire, query) in [
            ("/b?c=d", "/b", "/b", Some("c=d")),
            ("/b", "/b", "/b", None),
            ("/a%20b?", "/a b", "/a%20b", Some("")),
            ("/é?ü", "/é", "/%C3%A9", Some("%C3%BC")),
        ] {
            let mut head = head("/first?q=1");
            let rewritten = head.rewrite_target(target.as_bytes(), PathRules::default());
            assert_eq!(rewritten, Ok(()), "{target}");
            assert_eq!(head.path(), path.as_bytes());
            assert_eq!(head.path_wire(), wire.as_bytes());
            assert_eq!(head.query(), query.map(str::as_bytes));
        }
    }

    #[test]
    fn a_target_is_judged_without_being_asked_for() {
        let judge = |target: &str| judge_target(target.as_bytes(), PathRules::default());
        for good in ["/", "/a%20b?c=..&d=/../", "/a..b/...", "/a//b"] {
            assert_eq!(judge(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "a",
            "?/a",
            "/a/../b",
            "/..",
            "/./a",
            "/a b",
            "/a#b",
            "/é",
            "/%2e%2e/..",
            "/%00",
            "/a%2fb",
            "/..;/b",
            "/a\r\n",
        ] {
            assert!(judge(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_next_request_knows_nothing_of_it() {
        let mut rewritten = head("/first?q=1");
        rewritten.rewrite_method(b"PUT").expect("a method");
        rewritten.rewrite_query(None).expect("none");
        let path = rewritten.rewrite_path(b"/second", PathRules::default());
        assert_eq!(path, Ok(()));
        assert_eq!(rewritten.method, Method::Put);
        let sent = (rewritten.sent_method(), rewritten.method_bytes());
        assert_eq!(sent, (&b"GET"[..], &b"PUT"[..]));
        let caps = HeadCaps {
            head_bytes: 16_384,
            target_bytes: 8_192,
            fields: 100,
        };
        let next = b"GET /next?x HTTP/1.1\r\nHost: a\r\n\r\n";
        rewritten.parse(next, &caps).expect("a request");
        assert_eq!(rewritten.method_bytes(), b"GET");
        assert_eq!(rewritten.query(), Some(&b"x"[..]));
        rewritten
            .canonicalize(PathRules::default())
            .expect("a path");
        assert_eq!(rewritten.sent_path_wire(), b"/next");
    }
}
