//! What holds for any bytes whatever: the bodies shared by property tests, fuzz targets and corpora.
//!
//! Each function takes the bytes of one case and panics where a promise is broken.
#![allow(dead_code, reason = "each user takes the properties it is about")]

use wire::{
    Authority, BodyCaps, BodyDecoder, EncodedSlash, FieldId, Fields, Framing, HeadCaps, Method,
    OddNames, PathRules, Refusal, ReplyHead, RequestHead, Slashes,
    client_hello::{self, HELLO_RECEIVED_MAX, Reading},
    encode_chunk_head, field_name_ok, field_value_ok,
    location::{Location, put_prefix, refresh_url},
    multipart::Multipart,
    proxy_protocol::{self, HEADER_BYTES_MAX, ProxyHeader},
    range::{self, RANGES_MAX, RangeAnswer},
    set_cookie::{Change, rewritten},
    strip_hop_by_hop,
};

const HEAD_CAPS: HeadCaps = HeadCaps {
    head_bytes: 512,
    target_bytes: 128,
    fields: 12,
};
const BODY_CAPS: BodyCaps = BodyCaps {
    body_bytes: 4096,
    chunk_extension_bytes: 64,
    trailer_bytes: 64,
};

const RULES: [PathRules; 4] = [
    PathRules {
        slashes: Slashes::Merge,
        encoded_slash: EncodedSlash::Refuse,
    },
    PathRules {
        slashes: Slashes::Merge,
        encoded_slash: EncodedSlash::Keep,
    },
    PathRules {
        slashes: Slashes::Keep,
        encoded_slash: EncodedSlash::Refuse,
    },
    PathRules {
        slashes: Slashes::Keep,
        encoded_slash: EncodedSlash::Keep,
    },
];

/// A request head is refused alike in any pieces, and what is accepted survives being written anew.
pub(crate) fn request_head(bytes: &[u8]) {
    let mut head = RequestHead::default();
    let whole = head.parse(bytes, &HEAD_CAPS);
    let mut other = RequestHead::default();
    splits_agree(bytes, whole, |prefix| other.parse(prefix, &HEAD_CAPS));
    let Ok(Some(length)) = whole else { return };
    assert!(length <= HEAD_CAPS.head_bytes && head.target().len() <= HEAD_CAPS.target_bytes);
    check_fields(&head.fields);
    check_host(head.host());
    for rules in RULES {
        check_path(&mut head, rules);
    }
    if head.canonicalize(RULES[3]).is_ok() && !head.is_asterisk() && !head.host().is_empty() {
        check_rewritten(&head);
    }
    let kept = head
        .fields
        .iter()
        .filter(|field| field.name.iter().all(is_cgi_byte))
        .count();
    assert_eq!(
        (head.odd_field_names(OddNames::Drop), head.fields.len()),
        (Ok(()), kept)
    );
    strip_hop_by_hop(&mut head.fields);
    assert!(!head.fields.contains(FieldId::Connection));
}

/// A reply head is refused alike in any pieces, always as the upstream's fault.
pub(crate) fn reply_head(bytes: &[u8]) {
    for request in [Method::Get, Method::Head] {
        let mut head = ReplyHead::default();
        let whole = head.parse(bytes, request, &HEAD_CAPS);
        let mut other = ReplyHead::default();
        splits_agree(bytes, whole, |prefix| {
            other.parse(prefix, request, &HEAD_CAPS)
        });
        match whole {
            Ok(None) => {}
            Err(refusal) => assert_eq!(refusal.status, 502),
            Ok(Some(_)) => {
                assert!((100..600).contains(&head.status) && head.fields.len() <= HEAD_CAPS.fields);
                assert!(field_value_ok(head.reason().trim_ascii()));
                check_fields(&head.fields);
            }
        }
    }
}

/// A chunked body decodes to the same content however it is cut, and content survives encoding.
pub(crate) fn chunked_body(bytes: &[u8]) {
    let whole = decode(bytes, bytes.len().max(1));
    for step in [1, 2, 3, 7, 64] {
        assert_eq!(decode(bytes, step), whole, "in pieces of {step}");
    }
    for step in [1, 5, 16, 300] {
        let mut encoded = Vec::new();
        for chunk in bytes.chunks(step) {
            encode_chunk_head(chunk.len(), &mut encoded);
            encoded.extend_from_slice(chunk);
            encoded.extend_from_slice(wire::CHUNK_END);
        }
        encoded.extend_from_slice(wire::LAST_CHUNK);
        let sent = bytes.len();
        if sent as u64 <= BODY_CAPS.body_bytes {
            assert_eq!(
                decode(&encoded, 11),
                (bytes.to_vec(), Ok(0)),
                "in chunks of {step}"
            );
        }
    }
}

/// Any target a request can carry has one canonical path under each rule, or none.
pub(crate) fn target(bytes: &[u8]) {
    for method in [&b"GET"[..], b"OPTIONS"] {
        let input = [method, b" ", bytes, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let mut head = RequestHead::default();
        if head.parse(&input, &HEAD_CAPS) != Ok(Some(input.len())) {
            continue;
        }
        for rules in RULES {
            check_path(&mut head, rules);
        }
    }
}

/// A host is refused or has one canonical spelling.
pub(crate) fn host(bytes: &[u8]) {
    let mut authority = Authority::default();
    if let Err(refusal) = authority.parse(bytes) {
        assert_eq!(
            (refusal.status, authority.as_str(), authority.host()),
            (400, "", "")
        );
        return;
    }
    assert!(!authority.host().is_empty() && authority.as_str().starts_with(authority.host()));
    check_host(authority.host());
    let mut again = Authority::default();
    assert_eq!(again.parse(authority.as_str().as_bytes()), Ok(()));
    assert_eq!(
        (again.as_str(), again.host()),
        (authority.as_str(), authority.host())
    );
    let shouted = bytes.to_ascii_uppercase();
    assert_eq!(again.parse(&shouted), Ok(()));
    assert_eq!(
        again.as_str(),
        authority.as_str(),
        "case makes another host"
    );
}

/// A URL that is read is printable, and with another beginning it is one still, of the origin that
/// was meant; a cookie keeps all but what was to be changed.
pub(crate) fn redirects(bytes: &[u8]) {
    for value in [bytes, &[b"http://a.example", bytes].concat()] {
        let Some(read) = Location::parse(value) else {
            continue;
        };
        assert!(field_value_ok(value) && value.ends_with(read.rest));
        assert_eq!(read.origin.is_none(), value.starts_with(b"/"));
        for to in ["/", "/one/", "https://b.example/"] {
            let changed = put_prefix(to.as_bytes(), read.rest);
            let again = Location::parse(&changed).expect("a URL or a path");
            let is_there = again
                .origin
                .is_some_and(|origin| origin.is_at(b"b.example"));
            assert_eq!(
                is_there,
                to.starts_with("https"),
                "{}",
                changed.escape_ascii()
            );
            assert!(is_there || again.origin.is_none());
        }
    }
    if let Some(range) = refresh_url(bytes) {
        assert!(range.start < range.end && range.end <= bytes.len());
    }
    if !field_value_ok(bytes) {
        return;
    }
    let change = |_: &[u8]| Change::Value(b"changed".to_vec());
    if let Some(cookie) = rewritten(bytes, change, change) {
        assert!(field_value_ok(&cookie));
        let parts = |cookie: &[u8]| cookie.iter().filter(|byte| **byte == b';').count();
        assert_eq!(parts(&cookie), parts(bytes));
        assert_eq!(rewritten(&cookie, change, change), None);
        let without = rewritten(bytes, |_| Change::Remove, |_| Change::Remove);
        assert!(without.is_some_and(|without| without.len() < bytes.len()));
    }
}

/// Whatever ranges are asked for, no byte is sent twice, and every one that each alone would bring.
pub(crate) fn ranges(bytes: &[u8]) {
    const SIZE: u64 = 64;
    let field = [b"bytes=", bytes].concat();
    let evaluate = |field: &[u8], size| range::evaluate(Some(field), None, size, b"\"a\"", 0);
    for size in [0, 1, SIZE, wire::REPLY_BYTES_MAX] {
        let RangeAnswer::Parts(parts) = evaluate(&field, size) else {
            continue;
        };
        assert!((2..=RANGES_MAX).contains(&parts.len()), "{parts:?}");
        let mut ordered = parts.clone();
        ordered.sort_unstable_by_key(|part| part.first);
        let meets = |pair: &[range::Span]| pair[0].last + 1 >= pair[1].first;
        assert!(!ordered.windows(2).any(meets), "{parts:?}");
        assert!(
            parts
                .iter()
                .all(|part| part.first <= part.last && part.last < size)
        );
        let multipart = Multipart {
            boundary: &[b'a'; 16],
            content_type: Some(b"text/plain"),
            size,
        };
        assert!(multipart.bytes(&parts) < size + (parts.len() as u64 + 1) * 200);
    }
    let bits = |answer: RangeAnswer| match answer {
        RangeAnswer::Part(part) => vec![part],
        RangeAnswer::Parts(parts) => parts,
        RangeAnswer::Whole | RangeAnswer::Unsatisfiable => Vec::new(),
    };
    let bits = |answer: RangeAnswer| {
        let bytes = bits(answer)
            .into_iter()
            .flat_map(|part| part.first..=part.last);
        bytes.fold(0_u64, |bits, byte| bits | 1 << byte)
    };
    let answer = evaluate(&field, SIZE);
    if answer != RangeAnswer::Whole {
        let specs = bytes.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let alone = specs.map(|spec| bits(evaluate(&[b"bytes=", spec].concat(), SIZE)));
        assert_eq!(bits(answer), alone.fold(0, |all, bits| all | bits));
    }
}

/// The hello of TLS is the same in one record and in many, a begin of it is never another, and what is known of it is
/// bounded.
pub(crate) fn client_hello(bytes: &[u8]) {
    let whole = client_hello::read(bytes);
    if whole == Reading::More {
        assert!(bytes.len() < HELLO_RECEIVED_MAX);
    }
    let Reading::Hello(hello) = &whole else {
        return;
    };
    assert!(hello.offered.len() <= 32 && hello.schemes.len() <= 32);
    let is_canonical =
        |name: &str| name.len() <= 253 && !name.bytes().any(|it| it.is_ascii_uppercase());
    assert!(hello.name.as_deref().is_none_or(is_canonical));
    let mut end = bytes.len();
    while end > 0 && client_hello::read(&bytes[..end]) == whole {
        end -= 1;
    }
    assert_eq!(client_hello::read(&bytes[..end]), Reading::More);
}

/// A header of the PROXY protocol is read alike in any pieces, and nothing behind it is looked at;
/// what it says survives being written anew.
pub(crate) fn proxy_protocol(bytes: &[u8]) {
    let parse = |bytes: &[u8]| {
        let parsed = proxy_protocol::parse(bytes);
        let length = parsed.map(|parsed| parsed.map(|(_, length)| length));
        length.map_err(|reason| Refusal::new(0, reason))
    };
    splits_agree(bytes, parse(bytes), parse);
    let Ok(Some((header, length))) = proxy_protocol::parse(bytes) else {
        return;
    };
    assert!(length <= HEADER_BYTES_MAX && header.unique_id.len() <= 128);
    let alone = proxy_protocol::parse(&bytes[..length]);
    assert_eq!(alone, Ok(Some((header, length))));
    let ends = |header: ProxyHeader<'_>| {
        let ends = header.endpoints.map(|it| [it.source, it.destination]);
        ends.map(|ends| ends.map(|end| (end.ip().to_canonical(), end.port())))
    };
    let mut written = Vec::new();
    proxy_protocol::write_v1(header.endpoints, &mut written);
    let (again, length) = written_header(&written);
    assert_eq!((ends(again), length), (ends(header), written.len()));
    let mut written = Vec::new();
    proxy_protocol::write_v2(header.endpoints, header.unique_id, &mut written);
    let (again, length) = written_header(&written);
    assert_eq!((ends(again), length), (ends(header), written.len()));
    assert_eq!(again.unique_id, header.unique_id);
}

fn written_header(written: &[u8]) -> (ProxyHeader<'_>, usize) {
    let parsed = proxy_protocol::parse(written).expect("a header of ours is fine");
    parsed.expect("a header of ours is whole")
}

fn splits_agree(
    bytes: &[u8],
    whole: Result<Option<usize>, Refusal>,
    mut parse: impl FnMut(&[u8]) -> Result<Option<usize>, Refusal>,
) {
    for end in 0..bytes.len() {
        let prefix = parse(&bytes[..end]);
        match whole {
            Ok(Some(length)) if end >= length => assert_eq!(prefix, whole),
            Err(_) if prefix.is_err() => assert_eq!(prefix, whole, "refused otherwise at {end}"),
            _ => assert_eq!(prefix, Ok(None), "decided too early at {end}"),
        }
    }
}

fn check_fields(fields: &Fields) {
    for field in fields.iter() {
        assert!(
            field_name_ok(field.name) && field_value_ok(field.value),
            "{fields:?}"
        );
        assert!(
            fields
                .all_named(field.name)
                .any(|value| value == field.value)
        );
    }
}

fn check_host(host: &str) {
    let fine =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:[]".contains(byte);
    assert!(
        host.as_bytes().iter().all(fine) && !host.ends_with('.'),
        "{host}"
    );
}

fn is_cgi_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'-'
}

fn check_path(head: &mut RequestHead, rules: PathRules) {
    if let Err(refusal) = head.canonicalize(rules) {
        assert_eq!(
            (refusal.status, head.path(), head.path_wire()),
            (400, &b""[..], &b""[..])
        );
        return;
    }
    if head.is_asterisk() {
        return;
    }
    let path = str::from_utf8(head.path()).expect("a decoded face is UTF-8");
    assert!(
        path.starts_with('/')
            && !path
                .bytes()
                .any(|byte| byte < b' ' || byte == 0x7f || byte == b'\\'),
        "{path:?}"
    );
    assert!(
        !path
            .split('/')
            .any(|segment| segment == "." || segment == ".."),
        "{path:?}"
    );
    assert!(
        rules.slashes == Slashes::Keep || !path.contains("//"),
        "{path:?}"
    );
    let wire = head.path_wire();
    assert!(
        wire.iter()
            .all(|byte| byte.is_ascii_graphic() && !b"?#\\\"<>^`{|}".contains(byte)),
        "{}",
        wire.escape_ascii()
    );
    if wire.len() > HEAD_CAPS.target_bytes {
        return;
    }
    let input = [b"GET ", wire, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let mut again = RequestHead::default();
    assert_eq!(again.parse(&input, &HEAD_CAPS), Ok(Some(input.len())));
    assert_eq!(again.canonicalize(rules), Ok(()));
    assert_eq!(
        (again.path(), again.path_wire()),
        (head.path(), wire),
        "a wire face is not canonical"
    );
}

/// What goes upstream, written from the model, means what came in.
fn check_rewritten(head: &RequestHead) {
    let mut out = [head.method_bytes(), b" ", head.path_wire()].concat();
    if let Some(query) = head.query() {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(head.authority());
    let framing = match head.framing {
        Framing::None => String::new(),
        Framing::Length(bytes) => format!("\r\nContent-Length: {bytes}"),
        Framing::Chunked => "\r\nTransfer-Encoding: chunked".into(),
    };
    out.extend_from_slice(framing.as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    let mut again = RequestHead::default();
    assert_eq!(
        again.parse(&out, &HeadCaps::default()),
        Ok(Some(out.len())),
        "{}",
        out.escape_ascii()
    );
    assert_eq!(again.canonicalize(RULES[3]), Ok(()));
    assert_eq!(
        (again.method, again.framing, again.query()),
        (head.method, head.framing, head.query())
    );
    assert_eq!(
        (again.host(), again.path(), again.path_wire()),
        (head.host(), head.path(), head.path_wire())
    );
}

/// Decodes `bytes` arriving `step` at a time; content, and what was left or why it was refused.
fn decode(bytes: &[u8], step: usize) -> (Vec<u8>, Result<usize, Refusal>) {
    let mut decoder = BodyDecoder::new(Framing::Chunked, &BODY_CAPS);
    let (mut content, mut start, mut end) = (Vec::new(), 0, 0);
    while end < bytes.len() && !decoder.is_done() {
        end = (end + step).min(bytes.len());
        while start < end && !decoder.is_done() {
            match decoder.decode(&bytes[start..end]) {
                Ok(decoded) => {
                    assert!(decoded.consumed > 0 && decoded.data.len() <= decoded.consumed);
                    assert_eq!(decoded.done, decoder.is_done());
                    content.extend_from_slice(decoded.data);
                    start += decoded.consumed;
                }
                Err(refusal) => return (content, Err(refusal)),
            }
        }
    }
    assert!(content.len() as u64 <= BODY_CAPS.body_bytes);
    (content, Ok(bytes.len() - start))
}
