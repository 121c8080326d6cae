//! Properties under inputs nobody thought of: arbitrary bytes, and likely pieces in unlikely order.

use crate::properties;
use proptest::{
    collection::vec,
    prelude::{ProptestConfig, any},
    prop_assert_eq, prop_oneof, proptest,
    sample::select,
    strategy::Strategy,
};

const HEAD_PIECES: &[&str] = &[
    "GET",
    "POST",
    "OPTIONS",
    "get",
    "TRACE",
    " ",
    "  ",
    "/",
    "/a",
    "*",
    "http://b",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/2.0",
    "\r\n",
    "\n",
    "\r",
    ":",
    ": ",
    "Host: a",
    "Host: B.example.:80",
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Connection: close",
    "Connection: upgrade, x-y",
    "Upgrade: websocket",
    "Expect: 100-continue",
    "X_Y: z",
    "x-y:",
    "\t",
    "\0",
    "\x7f",
    "é",
    "#",
    "?q",
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "POST /%41/../b HTTP/1.1\r\nHost: a\r\n",
    "\r\n\r\n",
    "200",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 304\r\n",
];
const CHUNK_PIECES: &[&str] = &[
    "0",
    "1",
    "5",
    "f",
    "a",
    "10",
    "ffffffffffffffff",
    "\r\n",
    "\n",
    "\r",
    ";",
    ";a=b",
    " ",
    "x",
    "hello",
    "A: b",
    "0\r\n\r\n",
    "1\r\nx\r\n",
    "5\r\nhello\r\n",
    "0\r\nA: b\r\n\r\n",
];
const PATH_PIECES: &[&str] = &[
    "/", "//", ".", "..", "%2e", "%2E%2e", "%2f", "%2F", "%5c", "\\", "%00", "%25", "%41", "%7e",
    "%C3%A9", "%C0%AF", "a", "~", ";", "..;", "%", "%4", "?", "#", "{", "|", "é", "+", "%2B",
    "http://h", "*", " ",
];
const HOST_PIECES: &[&str] = &[
    "a",
    "A",
    "example",
    ".",
    "..",
    "-",
    "_",
    ":",
    "80",
    "0",
    "65535",
    "65536",
    "[",
    "]",
    "::1",
    "[::1]",
    "2001:DB8::",
    "@",
    "/",
    "%",
    " ",
    "127.0.0.1",
    "é",
];
const REDIRECT_PIECES: &[&str] = &[
    "/",
    "//",
    "http://",
    "HTTPS://",
    "a.example",
    "b",
    ":80",
    "?",
    "#",
    "\\",
    "@",
    " ",
    ";",
    "=",
    "5; url=",
    "'",
    "s=1",
    "; Path=/two",
    "; Domain=a.example",
    ";path",
    "__Host-",
    "é",
];
const RANGE_PIECES: &[&str] = &[
    ",",
    ",",
    ",",
    "-",
    "0-0",
    "1-3",
    "5-9",
    "8-",
    "-1",
    "-0",
    "-70",
    "40-50",
    "63-64",
    "64-",
    "99999999999999999999-",
    "0",
    "7",
    " ",
    "x",
];

const PROXY_PIECES: &[&str] = &[
    "PROXY TCP4 ",
    "PROXY TCP6 ",
    "PROXY UNKNOWN",
    "192.0.2.1",
    "2001:db8::1",
    "::ffff:192.0.2.1",
    "0.0.0.0",
    " ",
    " 1 65535",
    " 65536",
    " 01",
    "\r\n",
    "\n",
    "\r\n\r\n\0\r\nQUIT\n",
    "\x20",
    "\x21",
    "\x11",
    "\x00",
    "\0\x0c",
    "\0\x14",
    "aaaabbbbccdd",
    "\x05\0\x02id",
    "\x04\0\x01",
];

/// Arbitrary bytes, or any of `pieces` in any order.
fn likely(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(select(pieces), 0..24).prop_map(|chosen| chosen.concat().into_bytes()),
    ]
}

/// A fine head with one byte changed.
fn nearly_fine(fine: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    (0..fine.len(), any::<u8>()).prop_map(|(at, byte)| {
        let mut bytes = fine.to_vec();
        bytes[at] = byte;
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn request_heads(bytes in likely(HEAD_PIECES)) {
        properties::request_head(&bytes);
    }

    #[test]
    fn nearly_fine_request_heads(bytes in nearly_fine(b"POST /a%2Bb/../c?d=e HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 10\r\nConnection: x-y \r\nX_Y: z\r\n\r\n")) {
        properties::request_head(&bytes);
    }

    #[test]
    fn reply_heads(bytes in likely(HEAD_PIECES)) {
        properties::reply_head(&bytes);
    }

    #[test]
    fn nearly_fine_reply_heads(bytes in nearly_fine(b"HTTP/1.1 200 OK\r\nServer: x\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n")) {
        properties::reply_head(&bytes);
    }

    #[test]
    fn chunked_bodies(bytes in likely(CHUNK_PIECES)) {
        properties::chunked_body(&bytes);
    }

    #[test]
    fn targets(bytes in likely(PATH_PIECES)) {
        properties::target(&bytes);
        properties::target(&[b"/", &bytes[..]].concat());
    }

    #[test]
    fn hosts(bytes in likely(HOST_PIECES)) {
        properties::host(&bytes);
    }

    #[test]
    fn redirects(bytes in likely(REDIRECT_PIECES)) {
        properties::redirects(&bytes);
    }

    #[test]
    fn proxy_headers(bytes in likely(PROXY_PIECES)) {
        properties::proxy_protocol(&bytes);
    }

    #[test]
    fn nearly_fine_proxy_lines(bytes in nearly_fine(b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET")) {
        properties::proxy_protocol(&bytes);
    }

    #[test]
    fn nearly_fine_proxy_blocks(bytes in nearly_fine(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x18\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb\x05\0\x02id\x20\0\x04\x01\0\0\0")) {
        properties::proxy_protocol(&bytes);
    }

    #[test]
    fn ranges(bytes in likely(RANGE_PIECES)) {
        properties::ranges(&bytes);
    }
}

proptest! {
    /// A request of HTTP/2 is refused, or it is the request that was sent and nothing else, however its parts are made.
    #[test]
    fn a_request_of_http2_is_what_its_parts_say(
        method in "[A-Z ]{0,6}",
        authority in "[a-z.:\r\n@ ]{0,12}",
        path in "[/a?%\r\n #]{0,12}",
        fields in vec(("[a-c:\r\n -]{0,5}", any::<Vec<u8>>()), 0..6),
        is_whole in any::<bool>(),
    ) {
        let pseudo = wire::PseudoFields {
            method: method.as_bytes(),
            scheme: b"https",
            authority: authority.as_bytes(),
            path: path.as_bytes(),
            protocol: None,
            is_whole,
        };
        let parts = fields.iter().map(|(name, value)| (name.as_bytes(), &value[..]));
        let mut head = wire::RequestHead::default();
        if head.read_http2(&pseudo, parts.clone(), b"", &wire::HeadCaps::default(), &mut Vec::new()).is_ok() {
            prop_assert_eq!(head.method_bytes(), method.as_bytes());
            prop_assert_eq!(head.target(), path.as_bytes());
            let read: Vec<_> = head.fields.iter().map(|it| (it.name.to_vec(), it.value.to_vec())).collect();
            let mut sent: Vec<_> = parts.map(|(name, value)| (name.to_vec(), value.trim_ascii().to_vec())).collect();
            sent.push((b"host".to_vec(), authority.as_bytes().to_vec()));
            prop_assert_eq!(read, sent);
        }
    }
}
