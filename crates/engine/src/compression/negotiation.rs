//! What a reply's head says of coding and conditions, where its handler has not settled that: those
//! of programs, back ends and scripts, our own pages, and files that a body filter has looked at.
//!
//! One rule for all ([`is_compressible`]). What might be compressed varies with what the client
//! accepts, and says so to everybody. And a client that has what the reply's own validators name is
//! told so: its program need not have looked at the conditions, and may know its tag only as it was
//! before it was made weak here.

use config::model::Compress;
use wire::conditional::{self, Verdict};
use wire::{FieldId, Fields, Version};

use super::encoder::{Encoder, Place};
use super::{Coding, choose, forget_bytes};
use crate::exchange::Exchange;
use crate::exchange::encoding::Encoding;
use crate::exchange::reply::BodySize;
use crate::media_types;
use crate::stage::Arrived;

/// Fields that tell of a body, which a 304 does not have (RFC 9110 §15.4.5).
const OF_BODY: [&[u8]; 5] = [
    b"Content-Type",
    b"Content-Encoding",
    b"Content-Language",
    b"Content-Length",
    b"Accept-Ranges",
];

/// What keeps a reply as it is, be it said of it or by whoever asks (RFC 9111 §5.2).
const NO_TRANSFORM: &[u8] = b"no-transform";

/// Settles coding and conditions of a reply that is about to start; says how long its body is now.
pub(crate) fn settle(arrived: Arrived<'_>, exchange: &mut Exchange, size: BodySize) -> BodySize {
    if exchange.outgoing.is_settled {
        return size;
    }
    let compress = is_compressible(arrived, exchange, size);
    if compress.is_some() {
        vary(&mut exchange.outgoing.fields);
    }
    let coded = compress.and_then(|compress| coded(arrived, exchange, compress));
    if is_not_modified(exchange) {
        make_not_modified(exchange, coded.is_some());
        return BodySize::None;
    }
    match coded {
        Some(coded) => begin(arrived, exchange, coded).unwrap_or(size),
        None => size,
    }
}

/// The rule by which this reply is compressed for whoever accepts it; `None` where it is for nobody.
fn is_compressible<'a>(
    arrived: Arrived<'a>,
    exchange: &Exchange,
    size: BodySize,
) -> Option<&'a Compress> {
    let site = arrived.site(&exchange.route)?;
    let bytes = match size {
        BodySize::Length(bytes) => Some(bytes),
        BodySize::Unknown => None,
        // The answer to HEAD may leave out how long the body would be.
        BodySize::None if exchange.reply.is_head_only() => None,
        BodySize::None => return None,
    };
    if bytes.is_some_and(|bytes| bytes < site.compress_min_bytes as u64) {
        return None;
    }
    let compress = arrived.compress(&exchange.route)?;
    let files = &site.files;
    let (is_wanted, sizes) = match exchange.record.handler {
        "static" => (
            files.compress,
            files.compress_min_bytes..=files.compress_max_bytes,
        ),
        _ => (compress.programs, compress.min_bytes..=usize::MAX),
    };
    let is_sized = bytes.is_none_or(|bytes| {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        sizes.contains(&bytes)
    });
    let is_compressed =
        is_wanted && is_sized && !exchange.is_inside() && may_be_coded(exchange, compress);
    is_compressed.then_some(compress)
}

/// Whether a reply with this head may be sent in another coding.
fn may_be_coded(exchange: &Exchange, compress: &Compress) -> bool {
    let outgoing = &exchange.outgoing;
    let fields = &outgoing.fields;
    let content_type = fields.get(FieldId::ContentType);
    !matches!(outgoing.status, ..200 | 204 | 206 | 304)
        && !fields.contains(FieldId::ContentEncoding)
        && !fields.contains(FieldId::ContentRange)
        && content_type.is_some_and(|it| media_types::is_compressed(compress, it))
        && !lists(fields, FieldId::CacheControl, &[NO_TRANSFORM])
}

/// Whether one of `words` stands in the lists of a field.
fn lists(fields: &Fields, id: FieldId, words: &[&[u8]]) -> bool {
    let elements = fields
        .get_all(id)
        .flat_map(|line| line.split(|it| *it == b','));
    elements.map(<[u8]>::trim_ascii).any(|element| {
        let mut words = words.iter();
        words.any(|word| element.eq_ignore_ascii_case(word))
    })
}

/// Says that the reply depends on what the client accepts.
fn vary(fields: &mut Fields) {
    const NAME: &[u8] = b"Accept-Encoding";
    if lists(fields, FieldId::Vary, &[NAME, b"*"]) {
        return;
    }
    let lines: Vec<_> = fields.get_all(FieldId::Vary).chain([NAME]).collect();
    let lines = lines.join(&b", "[..]);
    fields.set(b"Vary", &lines);
}

/// What a reply is compressed with.
struct Coded {
    coding: Coding,
    level: u32,
    place: Place,
}

/// How the reply is compressed for this client, if it is. One of HTTP/1.0 would see its end only by
/// the connection's.
fn coded(arrived: Arrived<'_>, exchange: &Exchange, compress: &Compress) -> Option<Coded> {
    let head = &exchange.request.head;
    let accepted = head.fields.get(FieldId::AcceptEncoding)?;
    let is_as_it_is = lists(&head.fields, FieldId::CacheControl, &[NO_TRANSFORM]);
    if head.version == Version::Http10 || is_as_it_is {
        return None;
    }
    Some(Coded {
        coding: choose(accepted, Coding::is_made_here)?,
        level: compress.level,
        place: arrived.worker.encoders.take()?,
    })
}

/// Has the body compressed from here on; what the head says is of the compressed one. `None` where
/// there is no memory for that: it goes out as it is.
fn begin(arrived: Arrived<'_>, exchange: &mut Exchange, coded: Coded) -> Option<BodySize> {
    let encoder = Encoder::new(coded.coding, coded.level).ok()?;
    let fields = &mut exchange.outgoing.fields;
    fields.set(b"Content-Encoding", coded.coding.name().as_bytes());
    forget_bytes(fields);
    if exchange.reply.is_head_only() {
        return Some(BodySize::None);
    }
    let silence = arrived.worker.deadlines.register();
    let encoding = Encoding::new(encoder, coded.place, silence);
    exchange.reply.encode(encoding);
    Some(BodySize::Unknown)
}

/// Whether the client has what this reply would bring, by the reply's own validators.
fn is_not_modified(exchange: &Exchange) -> bool {
    let (asked, outgoing) = (&exchange.request.head, &exchange.outgoing);
    let is_asked = asked.fields.contains(FieldId::IfNoneMatch)
        || asked.fields.contains(FieldId::IfModifiedSince);
    if !is_asked || outgoing.status != 200 || exchange.is_inside() {
        return false;
    }
    let etag = outgoing.fields.get(FieldId::ETag);
    let modified = outgoing.fields.get(FieldId::LastModified);
    let modified_s = modified.and_then(wire::date::parse);
    let verdict = conditional::evaluate(&asked.fields, asked.method, etag, modified_s);
    verdict == Verdict::NotModified
}

/// Makes it a 304, with the tag that the 200 would have.
fn make_not_modified(exchange: &mut Exchange, is_coded: bool) {
    exchange.outgoing.status = 304;
    let fields = &mut exchange.outgoing.fields;
    if is_coded {
        forget_bytes(fields);
    }
    for name in OF_BODY {
        fields.remove_named(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Peer;
    use crate::fixture::{Fixture, exchange};

    const SITES: &str = r#"
[[sites]]
hosts = ["a"]
compress = { min_bytes = 100 }
  [[sites.rules]]
  match = { path = "/small" }
  compress = { min_bytes = 10 }
  [[sites.rules]]
  match = { path = "/never" }
  compress = { programs = false }
  [[sites.rules]]
  handler = { respond = { body = "" } }
"#;

    /// What becomes of a 200 with these fields, asked for like this: its status and fields, and
    /// whether it is compressed.
    fn settled(request: &str, fields: &str, size: BodySize) -> (u16, String, bool) {
        let fixture = Fixture::new(SITES);
        let serving = fixture.worker.serving();
        let arrived = fixture.arrived(&serving);
        let (path, asked) = request.split_once('|').unwrap_or((request, ""));
        let asked = asked.replace('|', "\r\n");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{asked}\r\n\r\n");
        let mut exchange = exchange(Peer::LOCAL, &request);
        exchange.route.site_index = Some(0);
        crate::fixture::block_on(async {
            let routed = arrived.routed(&exchange.route).expect("a site");
            let head = &mut exchange.request.head;
            head.canonicalize(routed.site.path_rules).expect("a path");
            let chosen = crate::rules::choose(routed, &mut exchange).await;
            chosen.expect("rules that match");
        });
        exchange.outgoing.status = 200;
        for line in fields.split('|') {
            let (name, value) = line.split_once(": ").expect("a field");
            let fields = &mut exchange.outgoing.fields;
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let is_coded = settle(arrived, &mut exchange, size) == BodySize::Unknown;
        assert_eq!(exchange.reply.is_encoded(), is_coded, "{request}");
        let fields = exchange.outgoing.fields.iter().map(|field| {
            let [name, value] = [field.name, field.value].map(String::from_utf8_lossy);
            format!("{name}: {value}")
        });
        let fields = fields.collect::<Vec<_>>().join("|");
        (exchange.outgoing.status, fields, is_coded)
    }

    const LONG: BodySize = BodySize::Length(1_000);

    #[test]
    fn text_is_compressed_for_whoever_takes_it_and_varies_for_all() {
        const GZIP: &str = "/|Accept-Encoding: gzip";
        for (request, fields, size, expected, is_coded) in [
            (
                GZIP,
                "Content-Type: text/html",
                LONG,
                "Content-Type: text/html|Vary: Accept-Encoding|Content-Encoding: gzip",
                true,
            ),
            (
                "/|Accept-Encoding: gzip|Cache-Control: max-age=0, no-transform",
                "Content-Type: text/html",
                LONG,
                "Content-Type: text/html|Vary: Accept-Encoding",
                false,
            ),
            (
                "/",
                "Content-Type: text/html|ETag: \"a\"",
                LONG,
                "Content-Type: text/html|ETag: \"a\"|Vary: Accept-Encoding",
                false,
            ),
            (
                "/|Accept-Encoding: br, zstd;q=0.5, gzip;q=0.1",
                "Content-Type: text/html|ETag: \"a\"|Accept-Ranges: bytes|Content-MD5: x",
                LONG,
                "Content-Type: text/html|Vary: Accept-Encoding|Content-Encoding: zstd|ETag: W/\"a\"",
                true,
            ),
            (
                GZIP,
                "Content-Type: text/html|ETag: W/\"a\"|Vary: Cookie|Vary: Origin",
                LONG,
                "Content-Type: text/html|ETag: W/\"a\"|Vary: Cookie, Origin, Accept-Encoding|Content-Encoding: gzip",
                true,
            ),
            (
                GZIP,
                "Content-Type: text/html|ETag: a|Vary: a, accept-encoding",
                LONG,
                "Content-Type: text/html|Vary: a, accept-encoding|Content-Encoding: gzip",
                true,
            ),
            (
                "/small|Accept-Encoding: gzip",
                "Content-Type: text/html|Vary: *",
                BodySize::Length(10),
                "Content-Type: text/html|Vary: *|Content-Encoding: gzip",
                true,
            ),
        ] {
            let found = settled(request, fields, size);
            assert_eq!(found, (200, expected.to_owned(), is_coded), "{fields}");
        }
    }

    #[test]
    fn what_must_not_be_compressed_is_left_as_it_is() {
        for (path, fields, size) in [
            ("/", "Content-Type: text/html", BodySize::Length(99)),
            ("/small", "Content-Type: text/html", BodySize::Length(9)),
            ("/", "Content-Type: text/html", BodySize::None),
            ("/never", "Content-Type: text/html", LONG),
            ("/", "Content-Type: image/png", LONG),
            ("/", "Content-Type: text/event-stream", LONG),
            ("/", "X-Type: text/html", LONG),
            ("/", "Content-Type: text/html|Content-Encoding: br", LONG),
            (
                "/",
                "Content-Type: text/html|Content-Range: bytes 0-1/2",
                LONG,
            ),
            (
                "/",
                "Content-Type: text/html|Cache-Control: private|Cache-Control: a, No-Transform",
                LONG,
            ),
        ] {
            let request = format!("{path}|Accept-Encoding: gzip");
            let found = settled(&request, fields, size);
            assert_eq!(found, (200, fields.to_owned(), false), "{path} {fields}");
        }
    }

    #[test]
    fn a_client_that_has_it_is_told_so_by_the_tag_it_knows() {
        let fields = "Content-Type: text/html|ETag: \"a\"|Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT|Cache-Control: private|Set-Cookie: a=b|Content-Language: en";
        let others = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT|Cache-Control: private|Set-Cookie: a=b|Vary: Accept-Encoding";
        let strong = Some(format!("ETag: \"a\"|{others}"));
        let weak = Some(format!("{others}|ETag: W/\"a\""));
        for (asked, expected) in [
            ("If-None-Match: \"a\"", &strong),
            ("If-None-Match: \"b\", W/\"a\"", &strong),
            ("If-None-Match: *", &strong),
            ("If-None-Match: W/\"a\"|Accept-Encoding: gzip", &weak),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", &strong),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT", &None),
            ("If-None-Match: \"b\"", &None),
            (
                "If-None-Match: \"b\"|If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
                &None,
            ),
            // What the program has judged itself, it has judged.
            ("If-Match: \"b\"", &None),
        ] {
            let (status, found, is_coded) = settled(&format!("/|{asked}"), fields, LONG);
            match expected {
                Some(expected) => assert_eq!((status, &found), (304, expected), "{asked}"),
                None => assert_eq!(status, 200, "{asked}"),
            }
            assert!(!is_coded, "{asked}");
        }
        let (status, ..) = settled("/|If-None-Match: *", "Content-Type: text/html", LONG);
        assert_eq!(status, 200, "nothing says which one it is");
    }
}
