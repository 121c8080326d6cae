//! A request of HTTP/2 (RFC 9113, 8.3), read as if it had come by HTTP/1.1.
//!
//! The one idea: there is one reader of requests. Pseudo-fields and fields become the head of HTTP/1.1 that says the
//! same, and [`RequestHead::parse`] judges that: what is refused in HTTP/1.1 is refused here, for the same reason, under
//! the same caps. What only HTTP/2 can get wrong is judged on the way. Frames, streams and HPACK are not seen here.

use crate::{
    caps::HeadCaps,
    field_id::FieldId,
    framing::Version,
    method::Method,
    octets::{field_name_ok, is_token_byte},
    refusal::Refusal,
    request::RequestHead,
};

/// What an extended CONNECT (RFC 8441) may ask for, and how it is asked for in HTTP/1.1.
const WEBSOCKET: &[u8] = b"websocket";

/// What the frames of a request say beside its fields.
#[derive(Debug, Clone, Copy)]
pub struct PseudoFields<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:scheme`; empty where there is none.
    pub scheme: &'a [u8],
    /// `:authority`; empty where there is none.
    pub authority: &'a [u8],
    /// `:path`; empty where there is none.
    pub path: &'a [u8],
    /// `:protocol` (RFC 8441).
    pub protocol: Option<&'a [u8]>,
    /// Whether nothing follows the fields: no body.
    pub is_whole: bool,
}

impl RequestHead {
    /// Reads a request of HTTP/2. A WebSocket's CONNECT becomes the GET that asks for the same in HTTP/1.1, with `key`
    /// as its `Sec-WebSocket-Key`. `text` is scratch.
    ///
    /// # Errors
    /// What [`RequestHead::parse`] refuses, and what is wrong in HTTP/2 alone.
    pub fn read_http2<'f>(
        &mut self,
        pseudo: &PseudoFields<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        key: &[u8],
        caps: &HeadCaps,
        text: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        text.clear();
        let written = write(pseudo, fields, key, caps, text);
        let read = self.parse(text, caps);
        self.version = Version::Http2;
        self.keep_alive = true;
        self.fields.remove(FieldId::TransferEncoding);
        if let Err(refusal) = written {
            // Nobody has read what lacks its end; a HEAD is refused without a body.
            self.method = Method::from_bytes(pseudo.method);
            return Err(refusal);
        }
        match read? {
            Some(bytes) if bytes == text.len() => Ok(()),
            // Its own end is all that it lacks: something in it was one.
            _ => Err(Refusal::bad("bad_request")),
        }
    }
}

/// Writes the head of HTTP/1.1 that says the same.
fn write<'f>(
    pseudo: &PseudoFields<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    key: &[u8],
    caps: &HeadCaps,
    text: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let is_tunnel = pseudo.protocol.is_some();
    write_line(pseudo, text)?;
    let mut said = SeenFields::default();
    let mut cookies = Vec::new();
    for (name, value) in fields {
        said.judge(name, value, pseudo, caps)?;
        match name {
            // Crumbs of one field (RFC 9113, 8.2.3).
            b"cookie" if !cookies.is_empty() => {
                cookies.extend_from_slice(b"; ");
                cookies.extend_from_slice(value);
            }
            b"cookie" => cookies.extend_from_slice(value),
            _ => push(name, value, text),
        }
        if text.len() + cookies.len() > caps.head_bytes {
            return Err(Refusal::new(431, "head_too_long"));
        }
    }
    if said.cookies > 0 {
        push(b"cookie", &cookies, text);
    }
    if !said.host && !pseudo.authority.is_empty() {
        push(b"host", pseudo.authority, text);
    }
    if is_tunnel {
        push(b"connection", b"upgrade", text);
        push(b"upgrade", WEBSOCKET, text);
        push(b"sec-websocket-key", key, text);
    } else if !pseudo.is_whole && !said.length {
        // Says that there is a body, and that nobody knows how long.
        push(b"transfer-encoding", b"chunked", text);
    }
    text.extend_from_slice(b"\r\n");
    Ok(())
}

/// Writes the first line.
fn write_line(pseudo: &PseudoFields<'_>, text: &mut Vec<u8>) -> Result<(), Refusal> {
    let method = match pseudo.protocol {
        Some(protocol) if pseudo.method != b"CONNECT" || protocol != WEBSOCKET => {
            return Err(Refusal::new(501, "unknown_protocol"));
        }
        Some(_) => b"GET",
        None => pseudo.method,
    };
    if method.is_empty() || !method.iter().all(|byte| is_token_byte(*byte)) {
        return Err(Refusal::bad("bad_method"));
    }
    text.extend_from_slice(method);
    text.push(b' ');
    let target = match (method, pseudo.path) {
        (b"CONNECT", b"") => pseudo.authority,
        (_, path) => path,
    };
    let is_path = target.starts_with(b"/") || target == b"*" || method == b"CONNECT";
    if !is_path || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::bad("bad_target"));
    }
    if !pseudo.authority.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::bad("bad_host"));
    }
    text.extend_from_slice(target);
    text.extend_from_slice(b" HTTP/1.1\r\n");
    // Without an authority nobody may know the scheme.
    let is_known = match pseudo.scheme {
        b"" => pseudo.authority.is_empty(),
        scheme => matches!(scheme, b"http" | b"https"),
    };
    match is_known || method == b"CONNECT" {
        true => Ok(()),
        false => Err(Refusal::bad("bad_scheme")),
    }
}

fn push(name: &[u8], value: &[u8], text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// What the fields have said so far.
#[derive(Debug, Default)]
struct SeenFields {
    fields: usize,
    cookies: usize,
    host: bool,
    length: bool,
}

impl SeenFields {
    /// Judges one field as it came: each crumb of a cookie counts.
    fn judge(
        &mut self,
        name: &[u8],
        value: &[u8],
        pseudo: &PseudoFields<'_>,
        caps: &HeadCaps,
    ) -> Result<(), Refusal> {
        self.fields += 1;
        if self.fields > caps.fields {
            return Err(Refusal::new(431, "too_many_fields"));
        }
        let is_lower = !name.iter().any(u8::is_ascii_uppercase);
        if !is_lower || !field_name_ok(name) {
            return Err(Refusal::bad("bad_field_name"));
        }
        if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(Refusal::bad("bad_field_value"));
        }
        match name {
            // Of one connection, and no business of HTTP/2's (RFC 9113, 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Err(Refusal::bad("connection_field")),
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
                Err(Refusal::bad("connection_field"))
            }
            b"host" => {
                let is_other =
                    !pseudo.authority.is_empty() && !pseudo.authority.eq_ignore_ascii_case(value);
                self.host = true;
                match is_other {
                    true => Err(Refusal::bad("host_and_authority")),
                    false => Ok(()),
                }
            }
            b"sec-websocket-key" if pseudo.protocol.is_some() => {
                Err(Refusal::bad("connection_field"))
            }
            b"content-length" => {
                self.length = true;
                match pseudo.is_whole && value != b"0" {
                    true => Err(Refusal::bad("length_without_body")),
                    false => Ok(()),
                }
            }
            b"cookie" => {
                self.cookies += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: PseudoFields<'_> = PseudoFields {
        method: b"GET",
        scheme: b"https",
        authority: b"a.example",
        path: b"/x?y",
        protocol: None,
        is_whole: true,
    };

    fn read(pseudo: &PseudoFields<'_>, fields: &[(&str, &str)]) -> Result<RequestHead, Refusal> {
        let caps = HeadCaps {
            fields: 8,
            ..HeadCaps::default()
        };
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut head = RequestHead::default();
        head.read_http2(pseudo, fields, b"KEY", &caps, &mut Vec::new())?;
        Ok(head)
    }

    fn refusal(pseudo: &PseudoFields<'_>, fields: &[(&str, &str)]) -> (u16, &'static str) {
        let refusal = read(pseudo, fields).expect_err("refused");
        (refusal.status, refusal.reason)
    }

    #[test]
    fn a_refused_head_is_one() {
        let (pseudo, mut head) = (
            PseudoFields {
                method: b"HEAD",
                ..GET
            },
            RequestHead::default(),
        );
        let fields = [(&b"connection"[..], &b"close"[..])].into_iter();
        let (caps, mut text) = (HeadCaps::default(), Vec::new());
        let read = head.read_http2(&pseudo, fields, b"KEY", &caps, &mut text);
        assert_eq!((read.is_err(), head.method), (true, Method::Head));
    }

    #[test]
    fn a_request_is_what_it_would_be_in_http_1() {
        let mut head = read(
            &GET,
            &[("accept", "*/*"), ("cookie", "a=b"), ("cookie", "c=d")],
        )
        .expect("a request");
        head.canonicalize(crate::PathRules::default())
            .expect("a path");
        assert_eq!(head.host(), "a.example");
        assert_eq!((head.path(), head.query()), (&b"/x"[..], Some(&b"y"[..])));
        assert_eq!(head.version, Version::Http2);
        assert_eq!(head.fields.get_named(b"cookie"), Some(&b"a=b; c=d"[..]));
        assert_eq!(head.framing, crate::Framing::None);
    }

    #[test]
    fn a_body_has_the_length_it_says_or_none_that_is_known() {
        let post = PseudoFields {
            method: b"POST",
            is_whole: false,
            ..GET
        };
        let framing = |fields: &[_]| read(&post, fields).expect("a request").framing;
        assert_eq!(
            framing(&[("content-length", "5")]),
            crate::Framing::Length(5)
        );
        assert_eq!(framing(&[]), crate::Framing::Chunked);
        let head = read(&post, &[("expect", "100-continue")]).expect("a request");
        assert!(head.expect_continue && !head.fields.contains(FieldId::TransferEncoding));
        assert_eq!(
            refusal(&GET, &[("content-length", "5")]),
            (400, "length_without_body")
        );
        assert_eq!(
            refusal(&post, &[("content-length", "5"), ("content-length", "5")]),
            (400, "repeated_cl")
        );
    }

    #[test]
    fn fields_of_a_connection_have_no_place_in_a_stream() {
        for (name, value) in [
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
        ] {
            assert_eq!(
                refusal(&GET, &[(name, value)]),
                (400, "connection_field"),
                "{name}"
            );
        }
        assert!(read(&GET, &[("te", "trailers")]).is_ok());
    }

    #[test]
    fn nothing_of_a_request_makes_another_line_of_it() {
        for value in ["a\r\nhost: b.example", "a\nb", "a\0"] {
            assert_eq!(refusal(&GET, &[("x", value)]).1, "bad_field_value");
        }
        for name in ["x:", "x y", "X", ":path", "", "x\r\ny"] {
            assert_eq!(
                refusal(&GET, &[(name, "1")]).1,
                "bad_field_name",
                "{name:?}"
            );
        }
        for path in ["/ HTTP/1.1\r\nx: y", "x", "", "http://b.example/"] {
            let pseudo = PseudoFields {
                path: path.as_bytes(),
                ..GET
            };
            assert_eq!(refusal(&pseudo, &[]).1, "bad_target", "{path:?}");
        }
        let pseudo = PseudoFields {
            method: b"GET /",
            ..GET
        };
        assert_eq!(refusal(&pseudo, &[]).1, "bad_method");
    }

    #[test]
    fn host_and_authority_are_one_or_the_same() {
        assert!(read(&GET, &[("host", "A.example")]).is_ok());
        assert_eq!(
            refusal(&GET, &[("host", "b.example")]).1,
            "host_and_authority"
        );
        let bare = PseudoFields {
            authority: b"",
            scheme: b"",
            ..GET
        };
        assert_eq!(
            read(&bare, &[("host", "b.example")])
                .expect("a request")
                .host(),
            "b.example"
        );
        assert_eq!(refusal(&bare, &[]), (400, "no_host"));
        assert_eq!(
            refusal(&bare, &[("host", "a.example"), ("host", "a.example")]),
            (400, "repeated_host")
        );
    }

    #[test]
    fn each_crumb_of_a_cookie_counts() {
        let crumbs = [("cookie", "a"); 9];
        assert_eq!(refusal(&GET, &crumbs), (431, "too_many_fields"));
        assert!(read(&GET, &crumbs[..8]).is_ok());
        let long = "x".repeat(9 * 1024);
        assert_eq!(
            refusal(&GET, &[("cookie", &long), ("cookie", &long)]).1,
            "head_too_long"
        );
    }

    #[test]
    fn a_websocket_asks_for_its_upgrade_and_other_tunnels_do_not() {
        let connect = PseudoFields {
            method: b"CONNECT",
            protocol: Some(b"websocket"),
            is_whole: false,
            ..GET
        };
        let head = read(&connect, &[("sec-websocket-version", "13")]).expect("a request");
        assert_eq!(head.method_bytes(), b"GET");
        assert_eq!(head.upgrade(), Some(&b"websocket"[..]));
        assert_eq!(
            head.fields.get_named(b"sec-websocket-key"),
            Some(&b"KEY"[..])
        );
        let other = PseudoFields {
            protocol: Some(b"connect-udp"),
            ..connect
        };
        assert_eq!(refusal(&other, &[]), (501, "unknown_protocol"));
        let bare = PseudoFields {
            path: b"",
            protocol: None,
            ..connect
        };
        assert_eq!(refusal(&bare, &[]), (405, "method_refused"));
        let scheme = PseudoFields {
            scheme: b"ftp",
            ..GET
        };
        assert_eq!(refusal(&scheme, &[]), (400, "bad_scheme"));
    }
}
