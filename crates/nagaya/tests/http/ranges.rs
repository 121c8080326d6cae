//! Several ranges of a file in one reply, as nginx sends them and as RFC 9110 wants them.

use crate::fixtures::files::{ask, field, gateway};
use testkit::client::reply;
use testkit::{Gateway, Peer, RawClient, Reply};

const NGINX: &str = r#"
server {
  listen 127.0.0.1:{port};
  root {dir};
  default_type application/octet-stream;
}
"#;

/// One that is kept in memory, one that is copied from the page cache or sent from it, one that is
/// sent in turns.
const SIZES: [usize; 3] = [100, 100_000, 3_000_000];

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at % 251) as u8).collect()
}

/// The gateway with a file of each size, named after it.
fn gateway_with_files() -> Gateway {
    let files = SIZES.map(|size| (size.to_string(), content(size)));
    let files = files.iter().map(|(name, content)| (&**name, &**content));
    gateway(&files.collect::<Vec<_>>())
}

fn ranges(gateway: &Gateway, size: usize, range: &str) -> Reply {
    let fields = format!("Range: {range}\r\n");
    ask(gateway, "plain.test", &format!("GET /{size}"), &fields)
}

/// The boundary that a reply of several parts announces.
fn boundary(reply: &Reply) -> Option<String> {
    let boundary = field(reply, "content-type");
    let boundary = boundary.strip_prefix("multipart/byteranges; boundary=")?;
    Some(boundary.to_owned())
}

/// What a client makes of a reply, its boundary aside.
fn told(reply: &Reply) -> (u16, String, String, Vec<u8>) {
    let length = field(reply, "content-length");
    assert_eq!(length, reply.body.len().to_string());
    let content_range = field(reply, "content-range");
    let Some(boundary) = boundary(reply) else {
        let content_type = field(reply, "content-type");
        return (
            reply.status,
            content_type,
            content_range,
            reply.body.clone(),
        );
    };
    let mut body = Vec::new();
    let mut rest = &*reply.body;
    while let Some(at) = find(rest, boundary.as_bytes()) {
        body.extend_from_slice(&rest[..at]);
        body.extend_from_slice(b"BOUNDARY");
        rest = &rest[at + boundary.len()..];
    }
    body.extend_from_slice(rest);
    (reply.status, "several".to_owned(), content_range, body)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// First and last byte of each part, each of which holds what the file does there.
fn parts(reply: &Reply, size: usize) -> Vec<(usize, usize)> {
    let content = content(size);
    let delimiter = format!("\r\n--{}", boundary(reply).expect("several parts"));
    let end = find(&reply.body, format!("{delimiter}--\r\n").as_bytes()).expect("an end");
    assert_eq!(end + delimiter.len() + 4, reply.body.len());
    let (mut rest, mut parts) = (&reply.body[..end], Vec::new());
    while !rest.is_empty() {
        let head = format!(
            "{delimiter}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes "
        );
        rest = rest.strip_prefix(head.as_bytes()).expect("a part's head");
        let line_bytes = find(rest, b"\r\n\r\n").expect("the head's end");
        let line = std::str::from_utf8(&rest[..line_bytes]).unwrap();
        let span = line.strip_suffix(&format!("/{size}")).expect("the size");
        let (first, last) = span.split_once('-').unwrap();
        let (first, last) = (
            first.parse::<usize>().unwrap(),
            last.parse::<usize>().unwrap(),
        );
        rest = rest[line_bytes + 4..]
            .strip_prefix(&content[first..=last])
            .expect("the part's bytes");
        parts.push((first, last));
    }
    parts
}

#[test]
fn several_ranges_are_what_nginx_sends() {
    let Some(nginx) = Peer::nginx(NGINX) else {
        return;
    };
    let gateway = gateway_with_files();
    for size in SIZES {
        std::fs::write(nginx.directory().join(size.to_string()), content(size)).unwrap();
        let last = size - 1;
        let half = size / 2;
        for range in [
            "bytes=0-1,4-5".to_owned(),
            "bytes=0-0, 2-2 , -1".to_owned(),
            format!("bytes={half}-,0-9"),
            format!("bytes=-5,{half}-{half},0-0"),
            format!("bytes=1-{},{half}-{}", half - 2, last - 1),
            format!("bytes=3-4,{size}-"),
            format!("bytes=3-4,{size}-,7-{size}"),
            format!("bytes={size}-,{size}-{size}"),
            "bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14,16-16,18-18,20-20,22-22".to_owned(),
        ] {
            let request = format!("GET /{size} HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n");
            let theirs = reply(RawClient::connect(nginx.address()).ask(request.as_bytes()));
            let ours = ranges(&gateway, size, &range);
            if theirs.status == 416 {
                // The page is each server's own.
                let both = [ours, theirs].map(|reply| field(&reply, "content-range"));
                assert_eq!(both[0], both[1], "{range} of {size}");
                continue;
            }
            assert!(
                told(&ours) == told(&theirs),
                "{range} of {size}: {ours:?} {theirs:?}"
            );
        }
    }
}

#[test]
fn ranges_that_meet_are_sent_once_and_none_is_longer_than_its_file() {
    let gateway = gateway_with_files();
    for size in SIZES {
        let last = size - 1;
        for (range, expected) in [
            ("bytes=0-4,3-9,50-60".to_owned(), vec![(0, 9), (50, 60)]),
            ("bytes=50-60,3-9,0-4".to_owned(), vec![(50, 60), (0, 9)]),
            ("bytes=0-1,2-3,5-".to_owned(), vec![(0, 3), (5, last)]),
            ("bytes=9-9,0-0,4-4,1-3".to_owned(), vec![(9, 9), (0, 4)]),
        ] {
            let reply = ranges(&gateway, size, &range);
            assert_eq!(reply.status, 206, "{range}");
            assert_eq!(field(&reply, "content-range"), "");
            assert_eq!(parts(&reply, size), expected, "{range} of {size}");
        }
        let all = ranges(&gateway, size, "bytes=0-,0-,0-,0-,0-,0-,0-,0-");
        let content_range = field(&all, "content-range");
        assert_eq!(content_range, format!("bytes 0-{last}/{size}"));
        assert!(all.body == content(size));
        for many in [
            ["0-0"; 65].join(","),
            (0..17)
                .rev()
                .map(|at| format!("{at}-{at}"))
                .collect::<Vec<_>>()
                .join(","),
        ] {
            let whole = ranges(&gateway, size, &format!("bytes={many}"));
            assert_eq!((whole.status, whole.body.len()), (200, size), "{many}");
        }
    }
}

#[test]
fn several_ranges_are_sent_under_the_same_conditions_as_one() {
    let gateway = gateway_with_files();
    let whole = ask(&gateway, "plain.test", "GET /100", "");
    let tag = field(&whole, "etag");
    for (more, status) in [
        (format!("If-Range: {tag}\r\n"), 206),
        ("If-Range: \"x\"\r\n".to_owned(), 200),
        (format!("If-None-Match: {tag}\r\n"), 304),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
    ] {
        let fields = format!("Range: bytes=0-0,2-2\r\n{more}");
        let reply = ask(&gateway, "plain.test", "GET /100", &fields);
        assert_eq!(reply.status, status, "{more}");
        if status == 206 {
            assert_eq!(parts(&reply, 100), [(0, 0), (2, 2)]);
            for name in ["etag", "last-modified", "accept-ranges"] {
                assert_eq!(field(&reply, name), field(&whole, name), "{name}");
            }
        }
    }
    let fields = "Range: bytes=0-0,2-2\r\n";
    let head = ask(&gateway, "plain.test", "HEAD /100", fields);
    assert_eq!(
        (head.status, &*field(&head, "content-length")),
        (200, "100")
    );
}

#[test]
fn nobody_who_saw_one_boundary_knows_the_next() {
    let gateway = gateway_with_files();
    let boundaries = [(); 20].map(|()| boundary(&ranges(&gateway, 100, "bytes=0-0,2-2")).unwrap());
    let mut different = boundaries.to_vec();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), boundaries.len());
    assert!(boundaries.iter().all(|boundary| boundary.len() == 16));
}

#[test]
fn a_coding_is_never_cut_into_several_parts() {
    let gateway = gateway(&[("a.txt", &[b'a'; 5000]), ("a.txt.gz", &[b'z'; 3000])]);
    let fields = "Accept-Encoding: gzip\r\nRange: bytes=0-0,2-2\r\n";
    let reply = ask(&gateway, "plain.test", "GET /a.txt", fields);
    assert_eq!((reply.status, reply.body.len()), (200, 3000));
    assert_eq!(field(&reply, "content-encoding"), "gzip");
}
