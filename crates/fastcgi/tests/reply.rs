//! Heads of programs: what is taken, what is refused, and that splits make no difference.

use fastcgi::reply::{HeadCaps, ReplyHead};
use wire::FieldId;

const CAPS: HeadCaps = HeadCaps {
    head_bytes: 256,
    fields: 8,
};

type Taken = (u16, Option<u64>, Vec<String>, usize);

/// Reads `input` in pieces of `piece` bytes; the refusal's reason or what was read.
fn read(input: &[u8], piece: usize) -> Result<Taken, &'static str> {
    let mut head = ReplyHead::new(CAPS);
    let mut used = 0;
    for part in input.chunks(piece) {
        used += head.read(part).map_err(|refusal| {
            assert_eq!(refusal.status, 502);
            refusal.reason
        })?;
        if head.is_complete() {
            break;
        }
    }
    head.eof().map_err(|refusal| refusal.reason)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = head.fields.iter();
    let fields = fields.map(|field| format!("{}: {}", text(field.name), text(field.value)));
    Ok((head.status, head.length, fields.collect(), used))
}

/// What comes of a head, however it is split; its body is `body`.
fn check(head: &[u8], expected: Result<(u16, Option<u64>, &[&str]), &'static str>) {
    let whole = [head, b"body\n\n"].concat();
    for piece in 1..=whole.len() {
        let expected = expected.map(|(status, length, fields)| {
            let fields = fields.iter().map(|field| (*field).to_owned()).collect();
            (status, length, fields, head.len())
        });
        assert_eq!(
            read(&whole, piece),
            expected,
            "{:?} by {piece}",
            head.escape_ascii().to_string()
        );
    }
}

#[test]
fn a_head_is_status_and_fields() {
    type Row<'a> = (&'a [u8], u16, Option<u64>, &'a [&'a str]);
    let table: &[Row<'_>] = &[
        (b"Content-Type: text/html\n\n", 200, None, &["Content-Type: text/html"]),
        (b"Status: 404 Not Found\r\nContent-type:text/html\r\n\r\n", 404, None, &["Content-type: text/html"]),
        (b"Status: 503\r\n\r\n", 503, None, &[]),
        (b"status:\t201 \r\nX: \t y \t\r\n\r\n", 201, None, &["X: y"]),
        (b"\n", 200, None, &[]),
        (b"\r\n", 200, None, &[]),
        (b"Content-Length: 12\n\n", 200, Some(12), &[]),
        (b"Content-Length: 9223372036854775807\n\n", 200, Some(i64::MAX as u64), &[]),
        (b"Location: http://a/b\n\n", 302, None, &["Location: http://a/b"]),
        (b"Location: /local?x\n\n", 302, None, &["Location: /local?x"]),
        (b"Status: 301 Moved\nLocation: /x\n\n", 301, None, &["Location: /x"]),
        (b"Location: /x\nStatus: 201 Created\n\n", 201, None, &["Location: /x"]),
        (b"Set-Cookie: a=1\nSet-Cookie: b=2\n\n", 200, None, &["Set-Cookie: a=1", "Set-Cookie: b=2"]),
        (b"Empty:\n\n", 200, None, &["Empty: "]),
        // Fields of a connection, and those that would steer a gateway.
        (
            b"Connection: close, X-Own\nX-Own: 1\nTransfer-Encoding: chunked\nKeep-Alive: 1\n\n",
            200,
            None,
            &[],
        ),
        (
            b"X-Accel-Redirect: /secret\nx-accel-buffering: no\nX-SENDFILE: /etc/passwd\nX-Request-Id: forged\nX-Accelerate: yes\n\n",
            200,
            None,
            &["X-Accelerate: yes"],
        ),
    ];
    for (head, status, length, fields) in table {
        check(head, Ok((*status, *length, fields)));
    }
}

#[test]
fn what_is_no_head_is_refused() {
    for (head, reason) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Type: a\r\n\r\n"[..], "nph"),
        (b"A: b\nHTTP/1.0 200 a:b\n\n", "nph"),
        (b"<html>\n\n", "no_colon"),
        (b"A b: c\n\n", "bad_field_name"),
        (b"A : c\n\n", "bad_field_name"),
        (b": c\n\n", "bad_field_name"),
        (b" A: c\n\n", "bad_field_name"),
        (b"A: b\n folded: c\n\n", "bad_field_name"),
        (b"A\xc3\xa9: c\n\n", "bad_field_name"),
        (b"A: b\rc: d\n\n", "bad_field_value"),
        (b"A: b\r\r\n\n", "bad_field_value"),
        (b"A: b\0\n\n", "bad_field_value"),
        (b"A: \x1b[1m\n\n", "bad_field_value"),
        (b"Status: OK\n\n", "bad_status"),
        (b"Status:\n\n", "bad_status"),
        (b"Status: 20\n\n", "bad_status"),
        (b"Status: 2000\n\n", "bad_status"),
        (b"Status: 200OK\n\n", "bad_status"),
        (b"Status: +20\n\n", "bad_status"),
        (b"Status: 100 Continue\n\n", "bad_status"),
        (b"Status: 101 Switching\n\n", "bad_status"),
        (b"Status: 600\n\n", "bad_status"),
        (b"Status: 200\nStatus: 200\n\n", "second_status"),
        (b"Location: /a\nlocation: /b\n\n", "second_location"),
        (
            b"Content-Type: a\nContent-Type: a\n\n",
            "second_content_type",
        ),
        (
            b"Content-Length: 1\nContent-Length: 1\n\n",
            "second_content_length",
        ),
        (b"Content-Length: 1, 1\n\n", "bad_content_length"),
        (b"Content-Length: -1\n\n", "bad_content_length"),
        (b"Content-Length: +1\n\n", "bad_content_length"),
        (
            b"Content-Length: 9223372036854775808\n\n",
            "bad_content_length",
        ),
        (
            b"Content-Length: 18446744073709551616\n\n",
            "bad_content_length",
        ),
        (b"A:\nA:\nA:\nA:\nA:\nA:\nA:\nA:\nA:\n\n", "too_many_fields"),
    ] {
        check(head, Err(reason));
    }
    let long = [b"A: ", &[b'a'; 300][..], b"\n\n"].concat();
    check(&long, Err("head_too_long"));
}

#[test]
fn a_head_without_its_end_is_none() {
    for (head, reason) in [
        (&b""[..], "no_reply"),
        (b"Content-Type: text/html", "head_unfinished"),
        (b"Content-Type: text/html\n", "head_unfinished"),
        (b"A: b\r\n\r", "head_unfinished"),
    ] {
        for piece in 1..=head.len().max(1) {
            assert_eq!(read(head, piece), Err(reason), "{head:?}");
        }
    }
}

#[test]
fn a_hundred_megabytes_without_a_line_end_are_not_kept() {
    let mut head = ReplyHead::new(CAPS);
    let refusal = (0..1_000).find_map(|_| head.read(&[b'a'; 100]).err());
    assert_eq!(refusal.map(|refusal| refusal.reason), Some("head_too_long"));
}

#[test]
fn a_status_is_never_missing() {
    let mut head = ReplyHead::new(CAPS);
    head.read(b"A: b\n\n").expect("a head");
    assert_eq!(head.status, 200);
    assert!(!head.fields.contains(FieldId::Location));
}

#[test]
fn a_path_without_a_status_and_with_nothing_beside_it_may_be_served_inside() {
    for (said, local) in [
        ("Location: /a/b?c=d\n\n", Some("/a/b?c=d")),
        (
            "Content-Type: x\nContent-Length: 3\nlocation: /a\n\n",
            Some("/a"),
        ),
        ("Location: //a\n\n", Some("//a")),
        ("Location: http://a/b\n\n", None),
        ("Location: a\n\n", None),
        ("Location: /a#b\n\n", None),
        ("Status: 302\nLocation: /a\n\n", None),
        ("Location: /a\nStatus: 200\n\n", None),
        ("Set-Cookie: a=1\nLocation: /a\n\n", None),
        ("Content-Type: x\n\n", None),
        ("Location: /a\n", None),
    ] {
        let mut head = ReplyHead::new(CAPS);
        head.read(said.as_bytes()).expect("a head");
        assert_eq!(head.local_location(), local.map(str::as_bytes), "{said:?}");
    }
}
