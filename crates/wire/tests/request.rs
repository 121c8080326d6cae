//! Request heads, row by row: what is refused and why, and what is understood of the rest.

use wire::{Framing, HeadCaps, Method, OddNames, PathRules, RequestHead, Version};

const CAPS: HeadCaps = HeadCaps {
    head_bytes: 1024,
    target_bytes: 200,
    fields: 10,
};

fn parse(bytes: &str) -> RequestHead {
    let mut head = RequestHead::default();
    assert_eq!(
        head.parse(bytes.as_bytes(), &CAPS),
        Ok(Some(bytes.len())),
        "{bytes:?}"
    );
    head
}

/// Checks a refusal, and that every shorter input is either refused alike or not yet.
fn refused(bytes: &[u8], status: u16, reason: &str) {
    let mut head = RequestHead::default();
    let refusal = head
        .parse(bytes, &CAPS)
        .expect_err(&bytes.escape_ascii().to_string());
    assert_eq!(
        (refusal.status, refusal.reason),
        (status, reason),
        "{}",
        bytes.escape_ascii()
    );
    for end in 0..bytes.len() {
        match head.parse(&bytes[..end], &CAPS) {
            Ok(None) => {}
            other => assert_eq!(other, Err(refusal), "{}", bytes[..end].escape_ascii()),
        }
    }
}

#[test]
fn a_plain_request_is_understood() {
    let mut head = parse("GET /a/b?c=d HTTP/1.1\r\nHost: Example.JP:8080\r\nX-A: 1\r\n\r\n");
    assert_eq!(
        (head.method, head.version, head.framing),
        (Method::Get, Version::Http11, Framing::None)
    );
    assert_eq!(
        (head.host(), head.authority()),
        ("example.jp", &b"example.jp:8080"[..])
    );
    assert_eq!(
        (head.method_bytes(), head.target()),
        (&b"GET"[..], &b"/a/b?c=d"[..])
    );
    assert_eq!(head.path(), b"", "no path before the site is known");
    assert_eq!(head.canonicalize(PathRules::default()), Ok(()));
    assert_eq!(
        (head.path(), head.path_wire()),
        (&b"/a/b"[..], &b"/a/b"[..])
    );
    assert_eq!(head.query(), Some(&b"c=d"[..]));
    assert!(
        head.keep_alive && !head.expect_continue && !head.is_asterisk() && head.upgrade().is_none()
    );
    assert_eq!(head.fields.get_named(b"x-a"), Some(&b"1"[..]));
}

#[test]
fn syntax_is_held_to_the_letter() {
    for (bytes, reason) in [
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", "bare_lf"),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", "bare_lf"),
        ("GET / HTTP/1.1\r\nHost: a\r\nB: \n\r\n", "bare_lf"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", "bare_lf"),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "bare_lf"),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", "bare_cr"),
        ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", "bare_cr"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\rX", "bare_cr"),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "bad_method"),
        ("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", "nul"),
        ("GET / HTTP/1.1\r\nHost: a\x1bb\r\n\r\n", "control_byte"),
        ("GET / HTTP/1.1\r\nHost: a\x7f\r\n\r\n", "control_byte"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            "folded_line",
        ),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", "folded_line"),
        ("GET / HTTP/1.1\r\n\tHost: a\r\n\r\n", "folded_line"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "blank_in_field_name"),
        ("GET / HTTP/1.1\r\n: a\r\n\r\n", "empty_field_name"),
        ("GET / HTTP/1.1\r\nHost\r\n\r\n", "no_colon"),
        ("GET / HTTP/1.1\r\nHo(st: a\r\n\r\n", "bad_field_name"),
        ("GET / HTTP/1.1\r\nHo\u{e9}: a\r\n\r\n", "bad_field_name"),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", "bad_method"),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "bad_method"),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "bad_method"),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "bad_target"),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", "bad_target"),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", "bad_target"),
        ("GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", "bad_target"),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "bad_version"),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "bad_version"),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "bad_version"),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", "bad_version"),
        ("GET / HTTP/1.1.1\r\nHost: a\r\n\r\n", "bad_version"),
        ("GET / HTTP/11\r\nHost: a\r\n\r\n", "bad_version"),
        ("GET /\r\n", "no_version"),
        ("GET\r\n", "bad_method"),
        ("\x16\x03\x01\x02\0\x01", "bad_method"),
    ] {
        refused(bytes.as_bytes(), 400, reason);
    }
}

#[test]
fn one_empty_line_before_a_request_is_skipped() {
    assert_eq!(parse("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").host(), "a");
}

#[test]
fn other_versions_are_505() {
    for version in ["HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTP/1.9", "HTTP/3.0"] {
        refused(
            format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes(),
            505,
            "unknown_version",
        );
    }
    refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "unknown_version");
}

#[test]
fn caps_hold_for_partial_heads_too() {
    let long = "a".repeat(2000);
    refused(format!("GET /{long}").as_bytes(), 414, "target_too_long");
    refused(
        format!("GET /{}", &long[..200]).as_bytes(),
        414,
        "target_too_long",
    );
    refused(
        format!("GET / HTTP/1.1\r\nHost: {long}").as_bytes(),
        431,
        "head_too_long",
    );
    refused(
        format!("GET / HTTP/1.1\r\nHost: a\r\nB: {long}\r\n\r\n").as_bytes(),
        431,
        "head_too_long",
    );
    refused(long.as_bytes(), 431, "head_too_long");
    let many = "A: b\r\n".repeat(10);
    refused(
        format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n").as_bytes(),
        431,
        "too_many_fields",
    );
    let fitting = format!(
        "GET /{} HTTP/1.1\r\nHost: a\r\n{}\r\n",
        &long[..199],
        "A: b\r\n".repeat(9)
    );
    assert_eq!(parse(&fitting).fields.len(), 10);
    let exact = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nB: {}\r\n\r\n",
        "b".repeat(1024 - 32)
    );
    assert_eq!((exact.len(), parse(&exact).host()), (1024, "a"));
}

#[test]
fn methods_are_known_or_other_or_refused() {
    for (method, known) in [
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Patch),
        ("get", Method::Other),
        ("PROPFIND", Method::Other),
    ] {
        assert_eq!(
            parse(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).method,
            known
        );
    }
    refused(
        b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
        405,
        "method_refused",
    );
    refused(
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        405,
        "method_refused",
    );
}

#[test]
fn targets_have_one_of_three_forms() {
    let mut head = parse("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(head.is_asterisk());
    assert_eq!(head.canonicalize(PathRules::default()), Ok(()));
    assert_eq!(
        (head.path(), head.path_wire(), head.query()),
        (&b"*"[..], &b"*"[..], None)
    );
    assert!(parse("OPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\n").is_asterisk());
    for (target, path, query) in [
        ("http://b.example/x?y", "/x", Some("y")),
        ("HTTP://B.example:80/x", "/x", None),
        ("https://b.example", "/", None),
        ("http://b.example?q", "/", Some("q")),
        ("http://b.example/?", "/", Some("")),
    ] {
        let mut head = parse(&format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        assert_eq!(head.canonicalize(PathRules::default()), Ok(()));
        assert_eq!(
            head.host(),
            "b.example",
            "an absolute target overrules Host"
        );
        assert_eq!(
            (head.path(), head.query()),
            (path.as_bytes(), query.map(str::as_bytes)),
            "{target}"
        );
        assert_eq!(head.path_wire(), path.as_bytes(), "{target}");
    }
    for (target, reason) in [
        ("*", "bad_target"),
        ("a", "bad_target"),
        ("?a", "bad_target"),
        ("a.example:80", "bad_target"),
        ("ftp://a/", "bad_target"),
        ("http:/a", "bad_target"),
        ("http://", "bad_host"),
        ("http:///a", "bad_host"),
        ("http://u@a/", "bad_host"),
        ("http://a:b/", "bad_port"),
        ("/a#b", "fragment"),
        ("/?a#b", "fragment"),
        ("http://a#b", "fragment"),
    ] {
        refused(
            format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(),
            400,
            reason,
        );
    }
}

#[test]
fn there_is_exactly_one_host() {
    refused(b"GET / HTTP/1.1\r\n\r\n", 400, "no_host");
    refused(
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        400,
        "repeated_host",
    );
    refused(
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        400,
        "repeated_host",
    );
    refused(b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, "bad_host");
    refused(b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "bad_host");
    refused(
        b"GET http://a/ HTTP/1.1\r\nHost: a/b\r\n\r\n",
        400,
        "bad_host",
    );
    refused(b"GET http://a/ HTTP/1.1\r\n\r\n", 400, "no_host");
    assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").host(), "");
}

#[test]
fn framing_faults_are_refused() {
    for (lines, status, reason) in [
        (
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            400,
            "te_and_cl",
        ),
        ("Content-Length: 1\r\nContent-Length: 1", 400, "repeated_cl"),
        ("Content-Length: 1, 1", 400, "bad_cl"),
        ("Transfer-Encoding: gzip, chunked", 501, "unknown_te"),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            400,
            "repeated_te",
        ),
        ("Transfer-Encoding:\x0bchunked", 400, "control_byte"),
        ("Transfer-Encoding: chunked\r\n ,x", 400, "folded_line"),
    ] {
        refused(
            format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n").as_bytes(),
            status,
            reason,
        );
    }
    refused(
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "te_in_http10",
    );
    let chunked = parse("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked \r\n\r\n");
    assert_eq!(chunked.framing, Framing::Chunked);
    assert_eq!(
        parse("GET / HTTP/1.0\r\nContent-Length: 0\r\n\r\n").framing,
        Framing::Length(0)
    );
}

#[test]
fn persistence_follows_version_and_connection() {
    for (version, connection, keep_alive) in [
        ("1.1", "x", true),
        ("1.1", "close", false),
        ("1.1", "x, CLOSE", false),
        ("1.1", "keep-alive", true),
        ("1.1", "keep-alive, close", false),
        ("1.0", "x", false),
        ("1.0", "Keep-Alive", true),
        ("1.0", "keep-alive, close", false),
    ] {
        let head = parse(&format!(
            "GET / HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\n\r\n"
        ));
        assert_eq!(head.keep_alive, keep_alive, "{version} {connection}");
    }
    assert!(!parse("GET / HTTP/1.0\r\n\r\n").keep_alive);
}

#[test]
fn only_one_expectation_is_known() {
    let expecting = |expect: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n{expect}\r\n\r\n")
    };
    assert!(parse(&expecting("Expect: 100-continue")).expect_continue);
    assert!(parse(&expecting("Expect: 100-Continue")).expect_continue);
    for expect in [
        "Expect: 100",
        "Expect: 100-continue, x",
        "Expect:",
        "Expect: 100-continue\r\nExpect: 100-continue",
    ] {
        refused(expecting(expect).as_bytes(), 417, "unknown_expectation");
    }
    assert!(
        !parse("GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n").expect_continue,
        "no body to wait with"
    );
    assert!(
        !parse("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
            .expect_continue
    );
}

#[test]
fn tunnels_are_asked_for_in_one_way_only() {
    let asking =
        |version: &str, lines: &str| format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n");
    let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket";
    assert_eq!(
        parse(&asking("1.1", upgrade)).upgrade(),
        Some(&b"websocket"[..])
    );
    for (version, lines) in [
        ("1.0", upgrade),
        ("1.1", "Upgrade: websocket"),
        ("1.1", "Connection: upgrade"),
        (
            "1.1",
            "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x",
        ),
        ("1.1", "Connection: upgrade\r\nUpgrade: websocket, H2C"),
        ("1.1", "Connection: upgrade\r\nUpgrade: web socket"),
        (
            "1.1",
            "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5",
        ),
        (
            "1.1",
            "Connection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked",
        ),
    ] {
        assert_eq!(parse(&asking(version, lines)).upgrade(), None, "{lines}");
    }
}

#[test]
fn odd_field_names_are_dropped_refused_or_kept() {
    let bytes = "GET / HTTP/1.1\r\nHost: a\r\nX_Real_IP: 1\r\nx-b: 2\r\nx.c: 3\r\n\r\n";
    let mut head = parse(bytes);
    assert_eq!(
        head.odd_field_names(OddNames::Refuse)
            .map_err(|refusal| refusal.status),
        Err(400)
    );
    assert_eq!(
        (head.odd_field_names(OddNames::Keep), head.fields.len()),
        (Ok(()), 4)
    );
    assert_eq!(
        (head.odd_field_names(OddNames::Drop), head.fields.len()),
        (Ok(()), 2)
    );
    assert_eq!(
        head.odd_field_names(OddNames::Refuse),
        Ok(()),
        "none is left"
    );
    let mut clean = parse("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(clean.odd_field_names(OddNames::Refuse), Ok(()));
}

#[test]
fn nothing_of_one_request_is_left_in_the_next() {
    let mut head = RequestHead::default();
    let first = b"POST http://b.example/%41?q HTTP/1.1\r\nHost: a\r\nX_Y: 1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    assert!(head.parse(first, &CAPS).is_ok_and(|bytes| bytes.is_some()));
    assert_eq!(head.canonicalize(PathRules::default()), Ok(()));
    let second = b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(head.parse(second, &CAPS), Ok(Some(second.len())));
    assert_eq!(
        (head.host(), head.authority(), head.path(), head.query()),
        ("", &b""[..], &b""[..], None)
    );
    assert_eq!(
        (head.framing, head.expect_continue, head.fields.len()),
        (Framing::None, false, 0)
    );
    assert_eq!(
        (head.method_bytes(), head.target()),
        (&b"GET"[..], &b"/"[..])
    );
}

#[test]
fn a_refused_request_borrows_nothing_from_the_one_before() {
    let mut head = RequestHead::default();
    let fine = b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\n";
    for next in [
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHo",
    ] {
        assert_eq!(head.parse(fine, &CAPS), Ok(Some(fine.len())));
        assert_eq!(head.host(), "a.example");
        assert_ne!(head.parse(next.as_bytes(), &CAPS), Ok(Some(next.len())));
        assert_eq!(
            (head.host(), head.authority(), head.framing),
            ("", &b""[..], Framing::None)
        );
        assert!(!head.keep_alive && head.method == Method::Get);
    }
    assert_eq!(head.parse(fine, &CAPS), Ok(Some(fine.len())));
    assert_eq!(
        (head.host(), head.authority()),
        ("a.example", &b"a.example"[..])
    );
}

#[test]
fn bytes_after_a_head_are_left_alone() {
    let mut head = RequestHead::default();
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET\n\0garbage";
    assert_eq!(head.parse(bytes, &CAPS), Ok(Some(27)));
}
