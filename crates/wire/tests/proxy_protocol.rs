//! Headers of the PROXY protocol: what is read, what is refused and with which word, at every cut.

use crate::properties;
use wire::proxy_protocol::{Endpoints, HEADER_BYTES_MAX, ProxyHeader, parse, write_v1, write_v2};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// 192.0.2.1:56324 to 198.51.100.1:443.
const V4: &[u8] = b"\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb";

fn ends(source: &str, destination: &str) -> Option<Endpoints> {
    Some(Endpoints {
        source: source.parse().expect(source),
        destination: destination.parse().expect(destination),
    })
}

fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).expect("short");
    let fixed = [&[command, family], &length.to_be_bytes()[..]].concat();
    [SIGNATURE, &fixed, block].concat()
}

fn part(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("short");
    [&[kind], &length.to_be_bytes()[..], value].concat()
}

/// Nothing behind a header matters, at no cut.
fn check(bytes: &[u8], expected: Result<ProxyHeader<'_>, &str>) {
    for behind in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"] {
        let sent = [bytes, behind].concat();
        properties::proxy_protocol(&sent);
        let found = parse(&sent).map(|found| found.expect("a decision"));
        let shown = bytes.escape_ascii();
        match expected {
            Ok(header) => assert_eq!(found, Ok((header, bytes.len())), "{shown}"),
            Err(reason) => assert_eq!(found, Err(reason), "{shown}"),
        }
    }
}

fn speaks_for(endpoints: Option<Endpoints>) -> Result<ProxyHeader<'static>, &'static str> {
    Ok(ProxyHeader {
        endpoints,
        ..ProxyHeader::default()
    })
}

#[test]
fn lines_of_version_1_say_who_connected_to_what() {
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    for (line, endpoints) in [
        (
            "TCP4 192.0.2.1 198.51.100.1 56324 443".to_owned(),
            ends("192.0.2.1:56324", "198.51.100.1:443"),
        ),
        (
            "TCP4 255.255.255.255 255.255.255.255 65535 0".to_owned(),
            ends("255.255.255.255:65535", "255.255.255.255:0"),
        ),
        (
            "TCP6 2001:DB8::1 ::1 1 2".to_owned(),
            ends("[2001:db8::1]:1", "[::1]:2"),
        ),
        (
            format!("TCP6 {longest} {longest} 65535 65535"),
            ends(&format!("[{longest}]:65535"), &format!("[{longest}]:65535")),
        ),
        ("UNKNOWN".to_owned(), None),
        ("UNKNOWN ff  TCP4 1".to_owned(), None),
        (format!("UNKNOWN {}", "x".repeat(91)), None),
    ] {
        check(
            format!("PROXY {line}\r\n").as_bytes(),
            speaks_for(endpoints),
        );
    }
}

#[test]
fn a_line_that_two_programs_could_read_differently_is_refused() {
    let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    for (line, reason) in [
        ("GET / HTTP/1.1\r\n\r\n", "proxy_missing"),
        ("proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_missing"),
        (" PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_missing"),
        ("PROXY\tTCP4 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_missing"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n", "proxy_line"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n", "proxy_line"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n", "proxy_line"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n", "proxy_line"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "proxy_line"),
        ("PROXY TCP4 192.0.2.1\r\n", "proxy_line"),
        ("PROXY UNKNOWN a\0b\r\n", "proxy_line"),
        ("PROXY UNKNOWN\u{e9}\r\n", "proxy_line"),
        ("PROXY UNKNOWNS\r\n", "proxy_line"),
        ("PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n", "proxy_port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n", "proxy_port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 00\r\n", "proxy_port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n", "proxy_port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n", "proxy_port"),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n", "proxy_port"),
        ("PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_address"),
        ("PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_address"),
        ("PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n", "proxy_address"),
        ("PROXY TCP4 192.0.2.1 192.0.2 1 2\r\n", "proxy_address"),
        ("PROXY TCP4 ::1 ::1 1 2\r\n", "proxy_address"),
        ("PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n", "proxy_address"),
        ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "proxy_address"),
        ("PROXY TCP6 [::1] ::1 1 2\r\n", "proxy_address"),
        ("PROXY TCP4 0.0.0.0 192.0.2.2 1 2\r\n", "proxy_address"),
        ("PROXY TCP6 ::ffff:0.0.0.0 ::1 1 2\r\n", "proxy_address"),
        (&too_long, "proxy_line_too_long"),
    ] {
        check(line.as_bytes(), Err(reason));
    }
}

#[test]
fn blocks_of_version_2_say_who_connected_to_what() {
    let v6 = [
        &[0x20, 1, 0xd, 0xb8][..],
        &[0; 11],
        &[1],
        &[0; 15],
        &[2],
        &[0, 1, 0, 2],
    ]
    .concat();
    let unix = [b"/run/a", &[0; 210][..]].concat();
    let v4 = ends("192.0.2.1:56324", "198.51.100.1:443");
    for (bytes, endpoints) in [
        (v2(0x21, 0x11, V4), v4),
        (v2(0x21, 0x11, &[V4, &part(0x04, &[0; 2_033])].concat()), v4),
        (
            v2(
                0x21,
                0x11,
                &[V4, &part(0xee, b"?"), &part(1, b"h2")].concat(),
            ),
            v4,
        ),
        (v2(0x21, 0x21, &v6), ends("[2001:db8::1]:1", "[::2]:2")),
        (v2(0x21, 0x31, &unix), None),
        (v2(0x21, 0x00, b""), None),
        // One for the sender itself: whatever else it says is not looked at.
        (v2(0x20, 0x00, b""), None),
        (v2(0x20, 0x11, V4), None),
        (v2(0x20, 0xff, b"\x03\0\x09"), None),
    ] {
        check(&bytes, speaks_for(endpoints));
    }
}

#[test]
fn a_block_that_is_cut_or_wrong_is_refused() {
    let with = |parts: &[u8]| v2(0x21, 0x11, &[V4, parts].concat());
    for (bytes, reason) in [
        (
            b"\r\n\r\n\0\r\nQUIT\r\n\r\n\r\n\r\n".to_vec(),
            "proxy_missing",
        ),
        (b"\r\n\r\nGET / HTTP/1.1\r\n\r\n".to_vec(), "proxy_missing"),
        (v2(0x11, 0x11, V4), "proxy_version"),
        (v2(0x22, 0x11, V4), "proxy_version"),
        (v2(0x21, 0x12, V4), "proxy_family"),
        (v2(0x21, 0x41, V4), "proxy_family"),
        (v2(0x21, 0x11, &V4[..11]), "proxy_too_short"),
        (v2(0x21, 0x21, &[1; 35]), "proxy_too_short"),
        (v2(0x21, 0x31, &[1; 215]), "proxy_too_short"),
        (v2(0x21, 0x11, &[0; 12]), "proxy_address"),
        (v2(0x21, 0x00, &[0; 2_049]), "proxy_too_long"),
        (v2(0x20, 0x00, &[0; 2_049]), "proxy_too_long"),
        (with(b"\x05\0"), "proxy_part"),
        (with(b"\x05\0\x03id"), "proxy_part"),
        (with(&part(0x05, &[b'a'; 129])), "proxy_unique_id"),
        (with(&part(0x02, &[b'a'; 257])), "proxy_text"),
        (with(&part(0x02, b"\xff")), "proxy_text"),
        (with(&part(0x20, b"\x01\0\0\0")), "proxy_part"),
        (with(&part(0x20, b"\x01\0\0\0\0\x21\0\x02a")), "proxy_part"),
        (with(&part(0x03, b"abc")), "proxy_part"),
        (with(&part(0x03, b"abcd")), "proxy_checksum"),
    ] {
        check(&bytes, Err(reason));
    }
}

#[test]
fn parts_tell_of_the_connection_that_stands_behind_it() {
    let tls = [
        &[1, 0, 0, 0, 0][..],
        &part(0x21, b"TLSv1.3"),
        &part(0x23, b"TLS_AES_128_GCM_SHA256"),
        &part(0x22, "客".as_bytes()),
        &part(0x25, b"RSA2048"),
    ];
    let parts = [
        V4,
        &part(0x02, b"a.example"),
        &part(0x05, b"id-1"),
        &part(0x20, &tls.concat()),
    ];
    let expected = ProxyHeader {
        endpoints: ends("192.0.2.1:56324", "198.51.100.1:443"),
        unique_id: b"id-1",
        authority: "a.example",
        tls_version: "TLSv1.3",
        tls_cipher: "TLS_AES_128_GCM_SHA256",
        tls_client_name: "客",
    };
    check(&v2(0x21, 0x11, &parts.concat()), Ok(expected));
}

#[test]
fn a_sum_holds_wherever_it_stands() {
    // Made by another program.
    let seed = include_bytes!("../../../fuzz/corpus/proxy_protocol/seed-all-parts");
    let (header, length) = parse(seed).expect("fine").expect("whole");
    assert_eq!((header.unique_id, length), (&b"id-1"[..], seed.len()));
    for at in 16..seed.len() {
        let mut changed = seed.to_vec();
        changed[at] ^= 1;
        assert!(parse(&changed).is_err(), "a change at {at} goes unseen");
    }
}

#[test]
fn a_header_never_asks_for_more_than_the_longest_one() {
    let longest = v2(0x21, 0x00, &part(0x04, &[0; 2_045]));
    assert_eq!(longest.len(), HEADER_BYTES_MAX);
    check(&longest, speaks_for(None));
}

#[test]
fn headers_are_written_in_both_versions() {
    let mut line = Vec::new();
    write_v1(ends("192.0.2.1:1", "198.51.100.1:2"), &mut line);
    write_v1(ends("[2001:db8::1]:1", "198.51.100.1:2"), &mut line);
    write_v1(ends("[::ffff:192.0.2.1]:1", "198.51.100.1:2"), &mut line);
    write_v1(None, &mut line);
    let expected = "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\n\
        PROXY TCP6 2001:db8::1 ::ffff:198.51.100.1 1 2\r\n\
        PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\nPROXY UNKNOWN\r\n";
    assert_eq!(String::from_utf8_lossy(&line), expected);
    let source = ends("192.0.2.1:56324", "198.51.100.1:443");
    for (endpoints, id, expected) in [
        (source, &b""[..], v2(0x21, 0x11, V4)),
        (
            source,
            b"id",
            v2(0x21, 0x11, &[V4, &part(5, b"id")].concat()),
        ),
        (source, &[b'a'; 129], v2(0x21, 0x11, V4)),
        (None, b"id", v2(0x21, 0x00, &part(5, b"id"))),
    ] {
        let mut block = b"before".to_vec();
        write_v2(endpoints, id, &mut block);
        assert_eq!(block, [b"before", &expected[..]].concat());
    }
}
