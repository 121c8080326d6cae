//! What replies are taken for, in a table; and that cuts make no difference.

use super::*;

/// Whole with (status, body bytes, keep, bytes left over), or what is wrong.
type Expected = Result<(u16, u64, bool, usize), &'static str>;

fn scan(reply: ReplyTo, pieces: &[&[u8]]) -> Result<(u16, u64, bool, usize), String> {
    let mut scanner = Scanner::new();
    scanner.expect(reply, Notes::Keep);
    let mut left = pieces.iter().map(|piece| piece.len()).sum::<usize>();
    for piece in pieces {
        match scanner.feed(piece) {
            Scan::More => left -= piece.len(),
            Scan::Whole(used) => {
                let rest = left - used;
                return Ok((scanner.status(), scanner.body_bytes(), scanner.keep(), rest));
            }
            Scan::Broken(fault) => return Err(fault.to_owned()),
        }
    }
    match scanner.end() {
        Ended::Before => Err("nothing".to_owned()),
        Ended::Within => Err("cut".to_owned()),
        Ended::Whole => Ok((scanner.status(), scanner.body_bytes(), scanner.keep(), 0)),
    }
}

fn check(text: &str, expected: Expected) {
    check_reply(ReplyTo::Other, text, expected);
}

fn check_reply(reply: ReplyTo, text: &str, expected: Expected) {
    let bytes = text.as_bytes();
    let whole = scan(reply, &[bytes]);
    match (&whole, &expected) {
        (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{text:?}"),
        (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{text:?}: {found}"),
        _ => panic!("{text:?}: {whole:?}, expected {expected:?}"),
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(scan(reply, &single), whole, "byte by byte: {text:?}");
    for cut in 0..=bytes.len() {
        let (left, right) = bytes.split_at(cut);
        assert_eq!(scan(reply, &[left, right]), whole, "cut at {cut}: {text:?}");
    }
}

#[test]
fn a_length_ends_the_body() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        Ok((200, 5, true, 0)),
    );
    check(
        "HTTP/1.1 200\r\ncontent-length:0\r\n\r\n",
        Ok((200, 0, true, 0)),
    );
    check(
        "HTTP/1.1 404 Not here\nContent-Length: \t2 \n\nab",
        Ok((404, 2, true, 0)),
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcd",
        Ok((200, 2, true, 2)),
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        Ok((200, 2, true, 0)),
    );
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", Err("cut"));
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n z\r\n\r\nab",
        Ok((200, 2, true, 0)),
    );
}

#[test]
fn lengths_that_cannot_be_trusted_are_faults() {
    for value in [
        "",
        "-1",
        "+1",
        "1 1",
        "1, 1",
        "0x1",
        "1234567890123456789",
        "1\x0b",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\n");
        check(&text, Err("no number"));
    }
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        Err("differ"),
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        Err("both"),
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\n",
        Err("folded"),
    );
    check("HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", Err("folded"));
}

#[test]
fn chunks_are_counted_without_their_frames() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
    let check = |body: &str, expected| check(&format!("{head}{body}"), expected);
    check("5\r\nhello\r\n0\r\n\r\n", Ok((200, 5, true, 0)));
    check(
        "00a;x=\"y\"\r\n0123456789\r\n1 \r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n",
        Ok((200, 11, true, 0)),
    );
    check("0\r\n\r\nHTTP", Ok((200, 0, true, 4)));
    check("0\r\n", Err("cut"));
    check("g\r\n", Err("no number"));
    check("\r\n", Err("no number"));
    check("5\nhello", Err("no number"));
    check("5;x\nhello", Err("carriage return"));
    check("5\r\rhello", Err("carriage return inside"));
    check("1\r\nab\r\n", Err("longer than its size"));
    check("1\r\na\rb", Err("longer than its size"));
    check("1000000000000000\r\n", Err("too many digits"));
    check("0\r\nX: y\n\r\n", Err("without a carriage return"));
    check("0\r\n\n", Err("without a carriage return"));
}

#[test]
fn transfer_encodings_must_end_in_chunked_once() {
    let check = |field: &str, expected| {
        check(
            &format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {field}\r\n\r\n0\r\n\r\n"),
            expected,
        );
    };
    check("gzip, chunked", Ok((200, 0, true, 0)));
    check("gzip\r\nTransfer-Encoding: chunked", Ok((200, 0, true, 0)));
    check("gzip", Ok((200, 5, false, 0)));
    check("chunked, gzip", Err("after chunked"));
    check("chunked, chunked", Err("after chunked"));
    check("", Err("empty"));
    super::tests::check(
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        Err("in HTTP/1.0"),
    );
}

#[test]
fn some_replies_have_no_body_whatever_they_say() {
    check(
        "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n",
        Ok((204, 0, true, 0)),
    );
    check(
        "HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n",
        Ok((304, 0, true, 0)),
    );
    check("HTTP/1.1 304 No\r\n\r\n", Ok((304, 0, true, 0)));
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    check_reply(ReplyTo::Head, text, Ok((200, 0, true, 0)));
    check_reply(
        ReplyTo::Head,
        "HTTP/1.1 200 OK\r\n\r\nab",
        Ok((200, 0, true, 2)),
    );
}

#[test]
fn interim_replies_are_skipped_up_to_a_number() {
    let interim = "HTTP/1.1 103 Early\r\nLink: x\r\n\r\n";
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    check(&format!("{interim}{interim}{reply}"), Ok((200, 1, true, 0)));
    check(
        &format!("{}{reply}", interim.repeat(16)),
        Ok((200, 1, true, 0)),
    );
    check(&format!("{}{reply}", interim.repeat(17)), Err("interim"));
    check("HTTP/1.1 101 Switching\r\n\r\n", Err("another protocol"));
    check(interim, Err("cut"));
}

#[test]
fn connections_are_kept_as_the_version_says() {
    let check = |version: &str, field: &str, keep| {
        let text = format!("HTTP/{version} 200 OK\r\n{field}Content-Length: 0\r\n\r\n");
        super::tests::check(&text, Ok((200, 0, keep, 0)));
    };
    check("1.1", "", true);
    check("1.1", "Connection: Close\r\n", false);
    check("1.1", "Connection: x, close\r\n", false);
    check("1.0", "", false);
    check("1.0", "Connection: Keep-Alive\r\n", true);
    check("1.0", "Connection: keep-alive, close\r\n", false);
}

#[test]
fn without_a_length_the_body_goes_on_until_the_end() {
    check("HTTP/1.1 200 OK\r\n\r\nabc", Ok((200, 3, false, 0)));
    check(
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n",
        Ok((200, 0, false, 0)),
    );
}

#[test]
fn what_is_no_reply_is_said_at_once() {
    for text in [
        "S",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/2 200\r\n",
        "http/1.1 200",
        "\r\n",
        "<html>",
    ] {
        check(text, Err("does not begin"));
    }
    check("", Err("nothing"));
    check("HTTP/1", Err("cut"));
    for line in [
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000",
        "HTTP/1.1  200 OK",
        "HTTP/1.x 200",
        "HTTP/1.1 099 x",
        "HTTP/1.1 2\t0 OK",
        "HTTP/1.1 200 a\0b",
        "HTTP/1.1",
    ] {
        check(&format!("{line}\r\n\r\n"), Err("no status line"));
    }
    check("HTTP/1.1 200 OK\r\nnocolon\r\n\r\n", Err("colon"));
    check("HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", Err("impossible name"));
    check(
        "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\n",
        Err("impossible name"),
    );
    check("HTTP/1.1 200 OK\r\n: c\r\n\r\n", Err("impossible name"));
    check("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", Err("carriage return"));
}

#[test]
fn a_head_without_end_is_given_up() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEAD_BYTES_MAX));
    for text in [long.clone(), format!("{long}\r\n\r\n")] {
        for piece in [1, 1000, text.len()] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
            let found = scan(ReplyTo::Other, &pieces).expect_err("too long");
            assert!(found.contains("64 KiB"), "{found}");
        }
    }
    let most = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: {}\r\n\r\n",
        "y".repeat(HEAD_BYTES_MAX - 17 - 19 - 3 - 4)
    );
    assert_eq!(most.len(), HEAD_BYTES_MAX);
    let pieces: Vec<&[u8]> = most.as_bytes().chunks(999).collect();
    assert_eq!(scan(ReplyTo::Other, &pieces), Ok((200, 0, true, 0)));
}

#[test]
fn endless_extensions_and_trailers_are_given_up() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (begin, filling) in [("1;", "x"), ("0\r\n", "a: b\r\n")] {
        let text = format!("{head}{begin}{}", filling.repeat(70_000));
        let found = scan(ReplyTo::Other, &[text.as_bytes()]).expect_err("endless");
        assert!(found.contains("without end"), "{found}");
    }
}

#[test]
fn the_server_field_is_kept_where_asked() {
    let text = b"HTTP/1.1 200 OK\r\nServer: x/1 \r\nContent-Length: 0\r\n\r\n";
    for (notes, expected) in [(Notes::Keep, "x/1"), (Notes::Drop, "")] {
        let mut scanner = Scanner::new();
        scanner.expect(ReplyTo::Other, notes);
        assert_eq!(scanner.feed(text), Scan::Whole(text.len()));
        assert_eq!(scanner.server(), expected);
    }
}
