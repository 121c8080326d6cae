//! Records: what we write is what a responder reads, and what a responder may say to us.

use crate::properties::{Read, cgi_head, fastcgi_records, read};
use fastcgi::environment::Environment;
use fastcgi::record::{self, CONTENT_BYTES_MAX, Connection};
use proptest::collection::vec;
use proptest::prelude::{Just, any};
use proptest::sample::select;
use proptest::{prop_oneof, proptest, strategy::Strategy};

/// A record with any header.
fn raw(version: u8, kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let [id_high, id_low] = id.to_be_bytes();
    let length = u16::try_from(content.len()).expect("fits");
    let [high, low] = length.to_be_bytes();
    let mut record = vec![version, kind, id_high, id_low, high, low, padding, 0];
    record.extend_from_slice(content);
    record.resize(record.len() + usize::from(padding), 0xaa);
    record
}

fn reply_record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    raw(1, kind, 1, content, padding)
}

fn end(application: u32, protocol: u8, padding: u8) -> Vec<u8> {
    let [a, b, c, d] = application.to_be_bytes();
    reply_record(3, &[a, b, c, d, protocol, 0, 0, 0], padding)
}

/// Records apart: type and content. Reads what we wrote, knowing nothing of how.
fn records(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at(8);
        assert_eq!((header[0], header[2], header[3]), (1, 0, 1));
        let length = usize::from(header[4]) * 256 + usize::from(header[5]);
        let (content, rest) = rest.split_at(length);
        records.push((header[1], content.to_vec()));
        bytes = &rest[usize::from(header[6])..];
    }
    records
}

/// The pairs of a stream of variables.
fn pairs(mut stream: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fn length(stream: &mut &[u8]) -> usize {
        let long = stream[0] >= 128;
        let (length, rest) = stream.split_at(if long { 4 } else { 1 });
        *stream = rest;
        let first = usize::from(length[0] & 127);
        length[1..]
            .iter()
            .fold(first, |sum, byte| sum * 256 + usize::from(*byte))
    }
    let mut pairs = Vec::new();
    while !stream.is_empty() {
        let (name, value) = (length(&mut stream), length(&mut stream));
        let (pair, rest) = stream.split_at(name + value);
        pairs.push((pair[..name].to_vec(), pair[name..].to_vec()));
        stream = rest;
    }
    pairs
}

/// Writes variables, reads them back; the lengths of the records they took.
fn round_trip(environment: &Environment) -> Vec<usize> {
    let mut out = Vec::new();
    record::params(environment.iter(), &mut out).expect("not too long");
    let records = records(&out);
    assert!(records.iter().all(|(kind, _)| *kind == 4));
    let (last, before) = records.split_last().expect("an end");
    assert!(last.1.is_empty(), "an empty record ends the stream");
    let lengths: Vec<usize> = before.iter().map(|(_, content)| content.len()).collect();
    assert!(
        lengths.iter().all(|length| *length > 0),
        "and only the last is empty"
    );
    let stream: Vec<u8> = before
        .iter()
        .flat_map(|(_, content)| content.clone())
        .collect();
    let expected = environment
        .iter()
        .map(|(name, value)| (name.to_vec(), value.to_vec()));
    assert!(
        pairs(&stream) == expected.collect::<Vec<_>>(),
        "the same pairs"
    );
    lengths
}

fn variables(of: &[(usize, usize)]) -> Environment {
    let mut environment = Environment::new(usize::MAX);
    for (number, (name, value)) in of.iter().enumerate() {
        let name = format!("{:X<1$}", format!("A{number}"), name);
        environment
            .set(name.as_bytes(), &vec![b'v'; *value])
            .expect("a variable");
    }
    environment
}

#[test]
fn a_request_begins_as_the_specification_says() {
    for (connection, flags) in [(Connection::Keep, 1), (Connection::Close, 0)] {
        let mut out = Vec::new();
        record::begin(connection, &mut out);
        assert_eq!(out, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, flags, 0, 0, 0, 0, 0]);
    }
    let mut out = Vec::new();
    record::stdin_end(&mut out);
    assert_eq!(records(&out), [(5, vec![])]);
}

#[test]
fn lengths_take_one_byte_or_four() {
    for (bytes, expected) in [
        (0, &[0][..]),
        (1, &[1]),
        (127, &[127]),
        (128, &[0x80, 0, 0, 128]),
        (255, &[0x80, 0, 0, 255]),
        (65_536, &[0x80, 1, 0, 0]),
        ((1 << 31) - 1, &[0xff, 0xff, 0xff, 0xff]),
    ] {
        let mut out = Vec::new();
        record::length(bytes, &mut out).expect("a length");
        assert_eq!(out, expected, "{bytes}");
    }
    for bytes in [1 << 31, (1 << 31) + 1, 1 << 32, usize::MAX] {
        let mut out = Vec::new();
        let refusal = record::length(bytes, &mut out).expect_err("too long");
        assert_eq!((refusal.status, out.len()), (431, 0), "{bytes}");
    }
}

#[test]
fn variables_of_every_length_come_back_as_they_were() {
    let lengths = [2, 127, 128, 129, 300];
    for name in lengths {
        for value in [0, 1, 127, 128, 129, 65_000] {
            round_trip(&variables(&[(name, value), (2, 0), (name, value)]));
        }
    }
    assert_eq!(round_trip(&Environment::new(0)), [0_usize; 0]);
}

#[test]
fn records_are_filled_to_65535_and_not_beyond() {
    // A name of 2 and a value of this length take 65,535 with their lengths.
    let full = CONTENT_BYTES_MAX - 2 - 1 - 4;
    assert_eq!(round_trip(&variables(&[(2, full)])), [65_535]);
    assert_eq!(round_trip(&variables(&[(2, full + 1)])), [65_535, 1]);
    assert_eq!(round_trip(&variables(&[(2, 10), (2, full)])), [14, 65_535]);
    assert_eq!(round_trip(&variables(&[(2, full - 14), (2, 10)])), [65_535]);
    assert_eq!(
        round_trip(&variables(&[(2, full - 13), (2, 10), (2, 1)])),
        [65_522, 19]
    );
    assert_eq!(
        round_trip(&variables(&[(2, 200_000), (2, 1)])),
        [65_535, 65_535, 65_535, 3_402 + 5]
    );
}

#[test]
fn a_piece_of_a_body_is_at_most_a_record() {
    for (bytes, expected) in [
        (1, 1),
        (65_535, 65_535),
        (65_536, 65_535),
        (1 << 40, 65_535),
    ] {
        let mut out = Vec::new();
        assert_eq!(record::stdin_header(bytes, &mut out), expected);
        let length = usize::from(out[4]) * 256 + usize::from(out[5]);
        assert_eq!((out.len(), out[1], length), (8, 5, expected));
    }
}

/// What a reply comes to, however it is split; a refused one is refused alike.
fn check(bytes: &[u8], stdout: &[u8], stderr: &[u8], ended: Option<(u32, &str)>, used: usize) {
    let expected = Read {
        stdout: stdout.to_vec(),
        stderr: stderr.to_vec(),
        end: ended.map(|(application, protocol)| (application, protocol.to_owned())),
        used,
        refused: None,
    };
    for piece in 1..=bytes.len() {
        assert_eq!(read(bytes.chunks(piece)), expected, "by {piece}");
    }
}

#[test]
fn a_reply_is_output_errors_and_an_end() {
    let whole = [
        reply_record(6, b"ab", 0),
        reply_record(7, b"oh", 6),
        reply_record(6, b"cd", 255),
        reply_record(7, b"", 3),
        reply_record(6, b"", 1),
        reply_record(7, b"!", 0),
        end(7, 0, 0),
    ]
    .concat();
    check(&whole, b"abcd", b"oh!", Some((7, "Complete")), whole.len());
}

#[test]
fn an_end_takes_its_padding_and_nothing_more() {
    for padding in [0, 1, 255] {
        let whole = end(0x0102_0304, 0, padding);
        let late = [&whole[..], b"late"].concat();
        let ended = Some((0x0102_0304, "Complete"));
        for piece in 1..=late.len() {
            let read = read(late.chunks(piece));
            assert_eq!((read.used, read.refused), (whole.len(), None));
            assert_eq!(
                read.end,
                ended.map(|(status, word)| (status, word.to_owned()))
            );
        }
    }
    for (protocol, word) in [
        (1, "CannotMultiplex"),
        (2, "Overloaded"),
        (3, "UnknownRole"),
    ] {
        check(&end(0, protocol, 0), b"", b"", Some((0, word)), 16);
    }
}

#[test]
fn the_longest_record_with_the_longest_padding_is_read_to_its_end() {
    let content = vec![b'x'; CONTENT_BYTES_MAX];
    let whole = [
        reply_record(6, &content, 255),
        reply_record(6, b"y", 0),
        end(0, 0, 0),
    ]
    .concat();
    for piece in [1, 8, 65_535, 65_536, 65_543, 65_544, 65_798, whole.len()] {
        let read = read(whole.chunks(piece));
        assert_eq!(read.stdout.len(), CONTENT_BYTES_MAX + 1, "by {piece}");
        assert_eq!((read.used, read.refused), (whole.len(), None));
        assert!(read.end.is_some());
    }
}

#[test]
fn what_no_responder_may_say_is_refused() {
    let fine = reply_record(6, b"ab", 0);
    for (record, reason) in [
        (raw(0, 6, 1, b"x", 0), "record_version"),
        (raw(2, 6, 1, b"x", 0), "record_version"),
        (raw(1, 6, 0, b"x", 0), "record_id"),
        (raw(1, 6, 2, b"x", 0), "record_id"),
        (raw(1, 6, 257, b"x", 0), "record_id"),
        (raw(1, 3, 2, &[0; 8], 0), "record_id"),
        (raw(1, 10, 0, b"", 0), "record_id"),
        (raw(1, 11, 0, &[0; 8], 0), "record_id"),
        (raw(1, 0, 1, b"", 0), "record_type"),
        (raw(1, 1, 1, &[0; 8], 0), "record_type"),
        (raw(1, 2, 1, b"", 0), "record_type"),
        (raw(1, 4, 1, b"", 0), "record_type"),
        (raw(1, 5, 1, b"", 0), "record_type"),
        (raw(1, 8, 1, b"", 0), "record_type"),
        (raw(1, 11, 1, &[0; 8], 0), "record_type"),
        (raw(1, 255, 1, b"", 0), "record_type"),
        (raw(1, 3, 1, b"", 0), "record_end"),
        (raw(1, 3, 1, &[0; 7], 0), "record_end"),
        (raw(1, 3, 1, &[0; 9], 0), "record_end"),
        (end(0, 4, 0), "record_end"),
        (end(0, 255, 0), "record_end"),
        (
            [reply_record(6, b"", 0), reply_record(6, b"x", 0)].concat(),
            "record_after_stdout",
        ),
        (
            [reply_record(6, b"", 0), reply_record(6, b"", 0)].concat(),
            "record_after_stdout",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "record_version"),
    ] {
        let whole = [&fine[..], &record].concat();
        for piece in 1..=whole.len() {
            let read = read(whole.chunks(piece));
            assert_eq!(read.refused, Some(reason), "{record:?} by {piece}");
            assert_eq!(read.stdout, b"ab");
        }
    }
}

#[test]
fn an_unfinished_reply_has_no_end() {
    let whole = [reply_record(6, b"abc", 2), end(0, 0, 4)].concat();
    for cut in 0..whole.len() {
        let read = read(std::iter::once(&whole[..cut]));
        assert_eq!((read.end, read.refused, read.used), (None, None, cut));
    }
}

fn any_record() -> impl Strategy<Value = Vec<u8>> {
    let kind = select(vec![3_u8, 6, 6, 6, 7, 7, 1, 11]);
    let likely = (kind, vec(any::<u8>(), 0..40), any::<u8>())
        .prop_map(|(kind, content, padding)| reply_record(kind, &content, padding));
    let ends = (any::<u32>(), 0_u8..5, any::<u8>())
        .prop_map(|(application, protocol, padding)| end(application, protocol, padding));
    let odd = (
        any::<u8>(),
        any::<u8>(),
        any::<u16>(),
        vec(any::<u8>(), 0..9),
        any::<u8>(),
    )
        .prop_map(|(version, kind, id, content, padding)| {
            raw(version, kind, id, &content, padding)
        });
    prop_oneof![6 => likely, 2 => ends, 1 => odd, 1 => vec(any::<u8>(), 0..20)]
}

const HEAD_PIECES: &[&str] = &[
    "Status",
    "status: 200",
    "404 x",
    ":",
    ": ",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\0",
    "Location: /a",
    "Location: http://b/",
    "Content-Length: 5",
    "Content-Type: a/b",
    "HTTP/1.1 200 OK",
    "X-Accel-Redirect: /x",
    "Connection: x-y",
    "x-y: 1",
    "Transfer-Encoding: chunked",
    "é",
    "A",
    "\n\n",
    "\r\n\r\n",
    "body",
];

proptest! {
    #[test]
    fn any_records_read_alike_in_any_pieces(records in vec(any_record(), 0..12), size in 1_usize..300) {
        let whole = records.concat();
        fastcgi_records(&whole);
        let expected = read(std::iter::once(&whole[..]));
        assert_eq!(read(whole.chunks(size)), expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        fastcgi_records(&bytes);
        cgi_head(&bytes);
    }

    #[test]
    fn any_head_is_safe_to_pass_on(pieces in vec(select(HEAD_PIECES), 0..24)) {
        cgi_head(pieces.concat().as_bytes());
    }

    #[test]
    fn variables_come_back(of in vec((2_usize..400, prop_oneof![0_usize..300, Just(70_000)]), 0..20)) {
        round_trip(&variables(&of));
    }
}
