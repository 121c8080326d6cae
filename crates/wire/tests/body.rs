//! Bodies, row by row: each is decoded whole and at every split, and must come to the same end.

use wire::{BodyCaps, BodyDecoder, Framing, Refusal, ReplyFraming, encode_chunk_head};

const CAPS: BodyCaps = BodyCaps {
    body_bytes: 1000,
    chunk_extension_bytes: 40,
    trailer_bytes: 60,
};

/// Feeds `pieces` one after the other, as a connection would: what was not consumed comes again.
/// Returns the content and how much input was left when the body was done.
fn run(decoder: &mut BodyDecoder, pieces: &[&[u8]]) -> (Vec<u8>, Result<usize, Refusal>) {
    let (mut content, mut pending, mut start) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        pending.extend_from_slice(piece);
        while start < pending.len() && !decoder.is_done() {
            match decoder.decode(&pending[start..]) {
                Ok(decoded) => {
                    content.extend_from_slice(decoded.data);
                    assert_eq!(decoded.done, decoder.is_done());
                    assert!(decoded.consumed > 0, "no progress");
                    start += decoded.consumed;
                }
                Err(refusal) => {
                    stays_refused(decoder, &pending[start..], refusal);
                    return (content, Err(refusal));
                }
            }
        }
    }
    (content, Ok(pending.len() - start))
}

/// Checks that a refusal is final, whatever comes after it and however much may.
fn stays_refused(decoder: &mut BodyDecoder, rest: &[u8], refusal: Refusal) {
    decoder.set_body_bytes(u64::MAX);
    for more in [rest, b"\n", b"\r\n", b"x", b"0\r\n\r\n", rest] {
        assert_eq!(
            decoder.decode(more),
            Err(refusal),
            "{}",
            more.escape_ascii()
        );
    }
}

/// Runs `bytes` whole, byte by byte and in two pieces at every place.
fn everyhow(bytes: &[u8], fresh: impl Fn() -> BodyDecoder) -> (Vec<u8>, Result<usize, Refusal>) {
    let whole = run(&mut fresh(), &[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(
        run(&mut fresh(), &single),
        whole,
        "{}",
        bytes.escape_ascii()
    );
    for split in 0..bytes.len() {
        let (left, right) = bytes.split_at(split);
        assert_eq!(
            run(&mut fresh(), &[left, right]),
            whole,
            "{} at {split}",
            bytes.escape_ascii()
        );
    }
    whole
}

fn chunked(bytes: &[u8]) -> (Vec<u8>, Result<usize, Refusal>) {
    everyhow(bytes, || BodyDecoder::new(Framing::Chunked, &CAPS))
}

#[test]
fn chunks_are_decoded_to_the_byte() {
    for (bytes, content, left) in [
        ("0\r\n\r\n", "", 0),
        ("000\r\n\r\n", "", 0),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", 0),
        ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world", 0),
        (
            "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "01234567890123456789",
            0,
        ),
        ("0000000000000001\r\nx\r\n0\r\n\r\n", "x", 0),
        ("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", 0),
        ("1;a\r\nx\r\n0;b=\"c d\"\r\n\r\n", "x", 0),
        ("1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n", "x", 0),
        ("1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n", "x", 16),
    ] {
        assert_eq!(
            chunked(bytes.as_bytes()),
            (content.into(), Ok(left)),
            "{bytes:?}"
        );
    }
}

#[test]
fn chunked_faults_are_refused() {
    for (bytes, content, reason) in [
        ("\r\n", "", "bad_chunk_size"),
        ("0x1\r\n", "", "bad_chunk_size"),
        ("+1\r\n", "", "bad_chunk_size"),
        ("-1\r\n", "", "bad_chunk_size"),
        (" 1\r\n", "", "bad_chunk_size"),
        ("1 \r\n", "", "bad_chunk_size"),
        ("1 ;a\r\n", "", "bad_chunk_size"),
        ("1_0\r\n", "", "bad_chunk_size"),
        ("g\r\n", "", "bad_chunk_size"),
        (";a\r\n", "", "bad_chunk_size"),
        ("1\n", "", "bad_chunk_size"),
        ("00000000000000001\r\n", "", "bad_chunk_size"),
        ("1\rx", "", "bad_chunk_end"),
        ("1\r\r\n", "", "bad_chunk_end"),
        ("1\r\nxy", "x", "bad_chunk_end"),
        ("1\r\nx\n", "x", "bad_chunk_end"),
        ("1\r\nx\rx", "x", "bad_chunk_end"),
        ("1\r\nx\r\n\r\n", "x", "bad_chunk_size"),
        ("1;\r\n", "", "bad_chunk_extension"),
        ("1;a\n", "", "bad_chunk_extension"),
        ("1;a\tb\r\n", "", "bad_chunk_extension"),
        ("1;a\0\r\n", "", "bad_chunk_extension"),
        ("1;a\x7f\r\n", "", "bad_chunk_extension"),
        ("1;a\rx", "", "bad_chunk_end"),
        (
            "1;01234567890123456789012345678901234567890\r\n",
            "",
            "chunk_extension_too_long",
        ),
        (
            "1;012345678901234567890\r\nx\r\n1;012345678901234567890\r\n",
            "x",
            "chunk_extension_too_long",
        ),
        ("0\r\nA\r\n\r\n", "", "no_colon"),
        ("0\r\n A: b\r\n\r\n", "", "folded_line"),
        ("0\r\nA : b\r\n\r\n", "", "blank_in_field_name"),
        ("0\r\n: b\r\n\r\n", "", "empty_field_name"),
        ("0\r\nA: b\0\r\n\r\n", "", "nul"),
        ("0\r\nA: b\n\r\n", "", "bare_lf"),
        ("0\r\nA: b\r\n\n", "", "bare_lf"),
        ("0\r\n\rx", "", "bare_cr"),
        ("0\n\r\n", "", "bad_chunk_size"),
        (
            "0\r\nA: 0123456789012345678901234567890123456789012345678901234567890\r\n\r\n",
            "",
            "trailers_too_long",
        ),
    ] {
        assert_eq!(
            chunked(bytes.as_bytes()),
            (content.into(), Err(Refusal::new(400, reason))),
            "{bytes:?}"
        );
    }
}

#[test]
fn content_beyond_the_cap_is_413() {
    let too_long = Refusal::new(413, "body_too_long");
    assert_eq!(chunked(b"3e9\r\nx").1, Err(too_long));
    assert_eq!(chunked(b"ffffffffffffffff\r\nx").1, Err(too_long));
    assert_eq!(
        chunked(b"1\r\nx\r\nffffffffffffffff\r\n"),
        (b"x".into(), Err(too_long))
    );
    let mut half = format!("3e7\r\n{}\r\n1\r\nx\r\n", "y".repeat(999)).into_bytes();
    assert_eq!(chunked(&half).0.len(), 1000);
    half.extend_from_slice(b"1\r\nx");
    assert_eq!(chunked(&half).1, Err(too_long));
    assert_eq!(
        everyhow(b"x", || BodyDecoder::new(Framing::Length(1001), &CAPS)).1,
        Err(too_long)
    );
    assert_eq!(
        everyhow(b"x", || BodyDecoder::for_reply(
            ReplyFraming::Length(1001),
            &CAPS
        ))
        .1,
        Err(Refusal::new(502, "body_too_long"))
    );
}

#[test]
fn a_flood_of_tiny_chunks_is_refused() {
    let roomy = BodyCaps::default();
    let flood = "1\r\nx\r\n".repeat(200_000);
    let (content, end) = run(
        &mut BodyDecoder::new(Framing::Chunked, &roomy),
        &[flood.as_bytes()],
    );
    assert_eq!(end, Err(Refusal::new(400, "chunk_overhead")));
    assert!(
        (60_000..70_000).contains(&content.len()),
        "{}",
        content.len()
    );
    let modest = format!("{}0\r\n\r\n", "4\r\nabcd\r\n".repeat(200_000));
    let (content, end) = run(
        &mut BodyDecoder::new(Framing::Chunked, &roomy),
        &[modest.as_bytes()],
    );
    assert_eq!((content.len(), end), (800_000, Ok(0)));
}

#[test]
fn lengths_end_where_they_say() {
    let length = |bytes| move || BodyDecoder::new(Framing::Length(bytes), &CAPS);
    assert_eq!(
        everyhow(b"hello, world", length(5)),
        (b"hello".into(), Ok(7))
    );
    assert_eq!(everyhow(b"", length(0)), (vec![], Ok(0)));
    assert!(BodyDecoder::new(Framing::Length(0), &CAPS).is_done());
    assert!(BodyDecoder::new(Framing::None, &CAPS).is_done());
    assert!(BodyDecoder::for_reply(ReplyFraming::None, &CAPS).is_done());
}

#[test]
fn an_end_of_input_must_be_an_end_of_body() {
    let cut = |status| Err(Refusal::new(status, "body_cut_short"));
    for bytes in [
        "",
        "5",
        "5\r\n",
        "5\r\nhel",
        "5\r\nhello",
        "5\r\nhello\r\n",
        "0\r\n",
        "0\r\n\r",
        "0\r\nA: b\r\n",
    ] {
        let mut decoder = BodyDecoder::new(Framing::Chunked, &CAPS);
        assert_eq!(run(&mut decoder, &[bytes.as_bytes()]).1, Ok(0));
        assert_eq!(decoder.eof(), cut(400), "{bytes:?}");
    }
    let mut reply = BodyDecoder::for_reply(ReplyFraming::Length(5), &CAPS);
    assert_eq!(run(&mut reply, &[b"abcd"]).1, Ok(0));
    assert_eq!(reply.eof(), cut(502));
    assert_eq!(run(&mut reply, &[b"e"]).1, Ok(0));
    assert_eq!(reply.eof(), Ok(()));
    let mut until_close = BodyDecoder::for_reply(ReplyFraming::UntilClose, &CAPS);
    assert_eq!(
        run(&mut until_close, &[b"a", b"bc"]),
        (b"abc".into(), Ok(0))
    );
    assert!(!until_close.is_done());
    assert_eq!((until_close.eof(), until_close.is_done()), (Ok(()), true));
}

#[test]
fn an_upstreams_faults_are_502() {
    let decoder = || BodyDecoder::for_reply(ReplyFraming::Chunked, &CAPS);
    assert_eq!(
        everyhow(b"x", decoder).1,
        Err(Refusal::new(502, "bad_chunk_size"))
    );
    assert_eq!(
        everyhow(b"0\r\nA\r\n", decoder).1,
        Err(Refusal::new(502, "no_colon"))
    );
}

#[test]
fn a_chunk_head_is_its_length_in_hexadecimal() {
    for (len, head) in [
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (65_536, "10000\r\n"),
        (usize::MAX, "ffffffffffffffff\r\n"),
    ] {
        let mut out = Vec::new();
        encode_chunk_head(len, &mut out);
        assert_eq!(out, head.as_bytes());
    }
}

#[test]
fn one_call_takes_a_run_and_the_framing_around_it() {
    let mut decoder = BodyDecoder::new(Framing::Chunked, &CAPS);
    let bytes = b"5\r\nhello\r\n0\r\n\r\nnext";
    let decoded = decoder.decode(bytes).expect("a fine body");
    assert_eq!(
        (decoded.data, decoded.consumed, decoded.done),
        (&b"hello"[..], bytes.len() - 4, true)
    );
}

#[test]
fn another_cap_counts_from_the_next_byte_on() {
    let caps = BodyCaps {
        body_bytes: 4,
        ..CAPS
    };
    let decode = |decoder: &mut BodyDecoder, input: &'static [u8]| {
        decoder.decode(input).map(|decoded| decoded.data)
    };
    let too_long = Err(Refusal::new(413, "body_too_long"));
    for (framing, first, second) in [
        (Framing::Length(8), &b"abcd"[..], &b"efgh"[..]),
        (Framing::Chunked, b"4\r\nabcd\r\n", b"4\r\nefgh\r\n"),
    ] {
        // What a body of a known length is to become is refused at its first byte.
        let mut raised = BodyDecoder::new(framing, &caps);
        raised.set_body_bytes(8);
        assert_eq!(decode(&mut raised, first), Ok(&b"abcd"[..]), "{framing:?}");
        assert_eq!(decode(&mut raised, second), Ok(&b"efgh"[..]), "{framing:?}");
        let mut lowered = BodyDecoder::new(framing, &caps);
        lowered.set_body_bytes(8);
        assert_eq!(decode(&mut lowered, first), Ok(&b"abcd"[..]), "{framing:?}");
        lowered.set_body_bytes(7);
        assert_eq!(decode(&mut lowered, second), too_long, "{framing:?}");
    }
}
