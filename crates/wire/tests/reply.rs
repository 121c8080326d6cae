//! Reply heads, row by row: what an upstream may say, and what makes it a 502.

use wire::{HeadCaps, Method, ReplyFraming, ReplyHead, Version, strip_hop_by_hop};

const CAPS: HeadCaps = HeadCaps {
    head_bytes: 1024,
    target_bytes: 0,
    fields: 10,
};

fn parse(bytes: &str, request: Method) -> ReplyHead {
    let mut head = ReplyHead::default();
    assert_eq!(
        head.parse(bytes.as_bytes(), request, &CAPS),
        Ok(Some(bytes.len())),
        "{bytes:?}"
    );
    head
}

fn refused(bytes: &str, reason: &str) {
    let mut head = ReplyHead::default();
    let bytes = bytes.as_bytes();
    let refusal = head
        .parse(bytes, Method::Get, &CAPS)
        .expect_err(&bytes.escape_ascii().to_string());
    assert_eq!(
        (refusal.status, refusal.reason),
        (502, reason),
        "{}",
        bytes.escape_ascii()
    );
    for end in 0..bytes.len() {
        match head.parse(&bytes[..end], Method::Get, &CAPS) {
            Ok(None) => {}
            other => assert_eq!(other, Err(refusal), "{}", bytes[..end].escape_ascii()),
        }
    }
}

#[test]
fn a_plain_reply_is_understood() {
    let head = parse(
        "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nX: y\r\n\r\n",
        Method::Get,
    );
    assert_eq!(
        (head.status, head.version, head.reason()),
        (404, Version::Http11, &b"Not Found"[..])
    );
    assert_eq!(
        (head.framing, head.keep_alive),
        (ReplyFraming::Length(5), true)
    );
    assert_eq!(head.fields.get_named(b"x"), Some(&b"y"[..]));
    for line in ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1 200 \u{e9}\tx"] {
        assert_eq!(
            parse(&format!("{line}\r\nContent-Length: 0\r\n\r\n"), Method::Get).status,
            200
        );
    }
}

#[test]
fn a_body_depends_on_status_request_and_fields() {
    use ReplyFraming::{Chunked, Length, None, UntilClose};
    for (line, fields, request, framing, keep_alive) in [
        ("1.1 200", "Content-Length: 5", Method::Get, Length(5), true),
        (
            "1.1 200",
            "Transfer-Encoding: chunked",
            Method::Get,
            Chunked,
            true,
        ),
        ("1.1 200", "X: y", Method::Get, UntilClose, false),
        (
            "1.0 200",
            "Content-Length: 5",
            Method::Get,
            Length(5),
            false,
        ),
        (
            "1.0 200",
            "Content-Length: 5\r\nConnection: keep-alive",
            Method::Get,
            Length(5),
            true,
        ),
        (
            "1.1 200",
            "Content-Length: 5\r\nConnection: close",
            Method::Get,
            Length(5),
            false,
        ),
        ("1.1 200", "Content-Length: 5", Method::Head, None, true),
        (
            "1.1 200",
            "Transfer-Encoding: chunked",
            Method::Head,
            None,
            true,
        ),
        ("1.1 200", "X: y", Method::Head, None, true),
        ("1.1 304", "Content-Length: 5", Method::Get, None, true),
        ("1.1 304", "X: y", Method::Get, None, true),
        ("1.1 204", "X: y", Method::Get, None, true),
        ("1.1 204", "Content-Length: 0", Method::Get, None, true),
        ("1.1 204", "Content-Length: 5", Method::Get, None, false),
        (
            "1.1 204",
            "Transfer-Encoding: chunked",
            Method::Get,
            None,
            false,
        ),
        ("1.1 103", "Link: x", Method::Get, None, true),
        ("1.1 100", "Content-Length: 5", Method::Get, None, false),
    ] {
        let head = parse(&format!("HTTP/{line} x\r\n{fields}\r\n\r\n"), request);
        assert_eq!(
            (head.framing, head.keep_alive),
            (framing, keep_alive),
            "{line} {fields} to {request:?}"
        );
    }
}

#[test]
fn a_switch_names_its_protocol() {
    let switch = "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    let head = parse(switch, Method::Get);
    assert_eq!(head.upgrade(), Some(&b"websocket"[..]));
    assert_eq!(
        parse("HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n", Method::Get).upgrade(),
        None
    );
    let plain = parse(
        "HTTP/1.1 200 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        Method::Get,
    );
    assert_eq!(plain.upgrade(), None);
}

#[test]
fn doubts_are_refused() {
    for (bytes, reason) in [
        ("HTTP/1.1 200 x\nX: y\r\n\r\n", "bare_lf"),
        ("HTTP/1.1 200\nX: y\r\n\r\n", "bare_lf"),
        ("HTTP/1.1 200 x\r\nX: y\n\r\n", "bare_lf"),
        ("HTTP/1.1 200 x\r\nX: y\r\n\n", "bare_lf"),
        ("HTTP/1.1 200 x\rX: y\r\n\r\n", "bare_cr"),
        ("HTTP/1.1 200 x\r\nX: a\0b\r\n\r\n", "nul"),
        ("HTTP/1.1 200 x\r\nX: a\x1bb\r\n\r\n", "control_byte"),
        ("HTTP/1.1 200 x\r\nX: y\r\n z\r\n\r\n", "folded_line"),
        ("HTTP/1.1 200 x\r\nX : y\r\n\r\n", "blank_in_field_name"),
        ("HTTP/1.1 200 x\r\n: y\r\n\r\n", "empty_field_name"),
        ("HTTP/1.1 200 x\r\nX\r\n\r\n", "no_colon"),
        ("HTTP/1.1 200 x\r\nX(Y: y\r\n\r\n", "bad_field_name"),
        (
            "HTTP/1.1 200 x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "te_and_cl",
        ),
        (
            "HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "repeated_cl",
        ),
        ("HTTP/1.1 200 x\r\nContent-Length: 1, 1\r\n\r\n", "bad_cl"),
        ("HTTP/1.1 200 x\r\nContent-Length: -1\r\n\r\n", "bad_cl"),
        (
            "HTTP/1.1 200 x\r\nContent-Length: 9223372036854775808\r\n\r\n",
            "bad_cl",
        ),
        (
            "HTTP/1.1 304 x\r\nContent-Length: 18446744073709551615\r\n\r\n",
            "bad_cl",
        ),
        ("HTTP/1.1 204 x\r\nContent-Length: -1\r\n\r\n", "bad_cl"),
        (
            "HTTP/1.1 200 x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "unknown_te",
        ),
        (
            "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            "bad_te",
        ),
        (
            "HTTP/1.0 200 x\r\nTransfer-Encoding: chunked\r\n\r\n",
            "te_in_http10",
        ),
        ("hello, world", "bad_status_line"),
        ("\r\nHTTP/1.1 200 x\r\n\r\n", "bad_status_line"),
        ("HTTP/2 200\r\n\r\n", "bad_status_line"),
        ("HTTP/1.2 200 x\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1 99 x\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1 099 x\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1 600 x\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1 2000 x\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1  200 x\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1 200x\r\n\r\n", "bad_status_line"),
        ("HTTP/1.1 200 a\x07b\r\n\r\n", "bad_status_line"),
        ("ICY 200 OK\r\n\r\n", "bad_status_line"),
    ] {
        refused(bytes, reason);
    }
}

#[test]
fn heads_beyond_a_cap_are_refused() {
    refused(
        &format!("HTTP/1.1 200 x\r\nX: {}\r\n\r\n", "y".repeat(2000)),
        "head_too_long",
    );
    refused(
        &format!("HTTP/1.1 200 {}", "y".repeat(2000)),
        "head_too_long",
    );
    refused(
        &format!("HTTP/1.1 200 x\r\n{}\r\n", "X: y\r\n".repeat(11)),
        "too_many_fields",
    );
    refused(
        &format!("HTTP/1.1 200 x\r\nConnection: {}\r\n\r\n", "x,".repeat(65)),
        "connection_list_too_long",
    );
}

#[test]
fn hop_by_hop_fields_end_here() {
    let mut head = parse(
        "HTTP/1.1 200 x\r\nConnection: X-Own, x-gone , Set-Cookie, X-Forwarded-Port, close\r\nX-OWN: 1\r\nX-Kept: 2\r\n\
         Set-Cookie: a\r\nX-Forwarded-Port: 3\r\nKeep-Alive: 4\r\nTransfer-Encoding: chunked\r\nx-gone: 5\r\nTrailer: t\r\n\
         Upgrade: h2\r\n\r\n",
        Method::Get,
    );
    strip_hop_by_hop(&mut head.fields);
    let names: Vec<_> = head
        .fields
        .iter()
        .map(|field| field.name.escape_ascii().to_string())
        .collect();
    assert_eq!(names, ["X-Kept", "Set-Cookie", "X-Forwarded-Port"]);
}

#[test]
fn nothing_of_one_reply_is_left_in_the_next() {
    let mut head = ReplyHead::default();
    let first = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(head.parse(first, Method::Get, &CAPS), Ok(Some(first.len())));
    let second = b"HTTP/1.0 200\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        head.parse(second, Method::Get, &CAPS),
        Ok(Some(second.len()))
    );
    assert_eq!(
        (head.reason(), head.upgrade(), head.fields.len()),
        (&b""[..], None, 1)
    );
}

#[test]
fn the_longest_reply_is_one_that_a_signed_number_counts() {
    let head = format!("HTTP/1.1 200 x\r\nContent-Length: {}\r\n\r\n", i64::MAX);
    let mut reply = ReplyHead::default();
    let parsed = reply.parse(head.as_bytes(), Method::Get, &CAPS);
    assert_eq!(parsed, Ok(Some(head.len())));
    let longest = ReplyFraming::Length(9_223_372_036_854_775_807);
    assert_eq!(reply.framing, longest);
}
