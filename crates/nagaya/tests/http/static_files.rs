//! Files as clients get them: types, conditions, ranges, codings and directories.
//!
//! Every test speaks to the real gateway over a socket and knows the bytes on disk.

use std::time::Duration;

use crate::fixtures::files::{ask, field, gateway, get};
use testkit::{Outcome, PATIENCE, eventually};

#[test]
fn a_file_comes_with_its_type_time_and_tag() {
    let gateway = gateway(&[("a.css", b"p{}"), ("b.unknown", b"?"), ("empty", b"")]);
    let reply = get(&gateway, "plain.test", "/hello.txt");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (200, "hello, world!\n")
    );
    assert_eq!(field(&reply, "content-type"), "text/plain; charset=utf-8");
    assert_eq!(field(&reply, "content-length"), "14");
    assert_eq!(field(&reply, "accept-ranges"), "bytes");
    assert!(field(&reply, "last-modified").ends_with(" GMT"));
    let tag = field(&reply, "etag");
    assert!(
        tag.starts_with('"') && tag.ends_with('"') && tag.len() > 4,
        "{tag}"
    );
    let css = get(&gateway, "plain.test", "/a.css");
    assert_eq!(field(&css, "content-type"), "text/css; charset=utf-8");
    let unknown = get(&gateway, "plain.test", "/b.unknown");
    assert_eq!(field(&unknown, "content-type"), "application/octet-stream");
    let empty = get(&gateway, "plain.test", "/empty");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}

#[test]
fn head_says_what_get_would() {
    let gateway = gateway(&[("big.bin", &[7; 200_000])]);
    for path in ["/hello.txt", "/big.bin"] {
        let head = ask(&gateway, "plain.test", &format!("HEAD {path}"), "");
        let get = get(&gateway, "plain.test", path);
        for name in ["content-length", "etag", "last-modified", "content-type"] {
            assert_eq!(field(&head, name), field(&get, name), "{name} of {path}");
        }
        assert_eq!(field(&get, "content-length"), get.body.len().to_string());
    }
}

#[test]
fn other_methods_are_told_what_is_allowed() {
    let gateway = gateway(&[]);
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND"] {
        let fields = "Content-Length: 0\r\n";
        let reply = ask(
            &gateway,
            "plain.test",
            &format!("{method} /hello.txt"),
            fields,
        );
        assert_eq!(reply.status, 405, "{method}");
        assert_eq!(field(&reply, "allow"), "GET, HEAD, OPTIONS");
    }
    let reply = ask(&gateway, "plain.test", "OPTIONS /hello.txt", "");
    assert_eq!(reply.status, 204);
    assert_eq!(field(&reply, "allow"), "GET, HEAD, OPTIONS");
}

#[test]
fn conditions_are_judged_in_order() {
    let gateway = gateway(&[]);
    let first = get(&gateway, "plain.test", "/hello.txt");
    let (tag, time) = (field(&first, "etag"), field(&first, "last-modified"));
    let old = "Thu, 01 Jan 1970 00:00:10 GMT";
    let table = [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: \"x\", W/{tag}\r\n"), 304),
        ("If-None-Match: *\r\n".to_owned(), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {time}\r\n"), 304),
        (format!("If-Modified-Since: {old}\r\n"), 200),
        (
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {time}\r\n"),
            200,
        ),
        (format!("If-Match: {tag}\r\n"), 200),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        (format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), 304),
        (format!("If-Unmodified-Since: {old}\r\n"), 412),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {tag}\r\n"), 412),
    ];
    for (fields, expected) in table {
        for method in ["GET", "HEAD"] {
            let start = format!("{method} /hello.txt");
            let reply = ask(&gateway, "plain.test", &start, &fields);
            assert_eq!(reply.status, expected, "{method} with {fields}");
            if expected == 304 {
                assert_eq!((field(&reply, "etag"), reply.body.len()), (tag.clone(), 0));
            }
        }
    }
}

#[test]
fn one_range_is_cut_out_and_what_is_none_is_the_whole() {
    let gateway = gateway(&[("digits", b"0123456789")]);
    let tag = field(&get(&gateway, "plain.test", "/digits"), "etag");
    let whole = (200, "0123456789", "");
    for (range, more, expected) in [
        ("bytes=2-4", "", (206, "234", "bytes 2-4/10")),
        ("bytes=7-", "", (206, "789", "bytes 7-9/10")),
        ("bytes=-1", "", (206, "9", "bytes 9-9/10")),
        ("bytes=0-99", "", (206, "0123456789", "bytes 0-9/10")),
        ("bytes=5-2", "", whole),
        ("lines=1-2", "", whole),
        ("bytes=0-0", "If-Range: TAG\r\n", (206, "0", "bytes 0-0/10")),
        ("bytes=0-0", "If-Range: \"x\"\r\n", whole),
        ("bytes=0-0", "If-None-Match: TAG\r\n", (304, "", "")),
    ] {
        let fields = format!("Range: {range}\r\n{}", more.replace("TAG", &tag));
        let reply = ask(&gateway, "plain.test", "GET /digits", &fields);
        let (body, content_range) = (reply.text(), field(&reply, "content-range"));
        assert_eq!(
            (reply.status, &*body, &*content_range),
            expected,
            "{fields}"
        );
    }
    let reply = ask(
        &gateway,
        "plain.test",
        "GET /digits",
        "Range: bytes=10-\r\n",
    );
    assert_eq!(reply.status, 416);
    assert_eq!(field(&reply, "content-range"), "bytes */10");
}

#[test]
fn a_range_of_a_large_file_is_cut_out_too() {
    let long: Vec<u8> = (0..200_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let gateway = gateway(&[("long", &long)]);
    let fields = "Range: bytes=99999-150000\r\n";
    let reply = ask(&gateway, "plain.test", "GET /long", fields);
    assert_eq!((reply.status, &*reply.body), (206, &long[99_999..=150_000]));
}

#[test]
fn large_files_arrive_whole_and_the_connection_goes_on() {
    let large: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 249) as u8)
        .collect();
    let gateway = gateway(&[
        ("large", &large),
        ("edge", &large[..65_536]),
        ("more", &large[..65_537]),
    ]);
    let mut client = gateway.client();
    for (path, size) in [
        ("large", 3_000_000),
        ("edge", 65_536),
        ("more", 65_537),
        ("large", 3_000_000),
    ] {
        let asked = format!("GET /{path} HTTP/1.1\r\nHost: plain.test\r\n\r\n");
        let Outcome::Reply(reply) = client.ask(asked.as_bytes()) else {
            panic!("no reply for {path}");
        };
        assert!(reply.complete && reply.body == large[..size], "{path}");
    }
}

#[test]
fn a_path_goes_on_behind_a_program_only() {
    let gateway = gateway(&[("app.php", b"x"), ("sub/tool.php", b"x")]);
    for (path, body) in [
        ("/app.php", "run /app.php"),
        ("/app.php/more/info", "run /app.php/more/info"),
        ("/sub/tool.php/x", "run /sub/tool.php/x"),
        ("/no/such/thing", "run /no/such/thing"),
        ("/.hidden", "run /.hidden"),
    ] {
        let reply = get(&gateway, "front.test", path);
        assert_eq!((reply.status, reply.text().as_str()), (200, body), "{path}");
    }
    for path in ["/hello.txt/", "/hello.txt/more"] {
        assert_eq!(get(&gateway, "plain.test", path).status, 404, "{path}");
    }
}

#[test]
fn try_entries_are_tried_in_order() {
    let gateway = gateway(&[
        ("page.html", b"page"),
        ("dir/index.html", b"index"),
        ("bare/x", b"x"),
        ("app.php", b"x"),
    ]);
    for (host, path, status, body) in [
        ("front.test", "/page", 200, "page"),
        ("front.test", "/dir/", 200, "index"),
        ("front.test", "/bare/", 200, "run /bare/"),
        ("front.test", "/hello.txt", 200, "hello, world!\n"),
        ("plain.test", "/page", 404, ""),
        ("plain.test", "/bare/", 404, ""),
        ("status.test", "/nothing", 410, ""),
        ("status.test", "/hello.txt", 200, "hello, world!\n"),
    ] {
        let reply = get(&gateway, host, path);
        assert_eq!(reply.status, status, "{host} {path}");
        if status == 200 {
            assert_eq!(reply.text(), body, "{host} {path}");
        }
    }
}

#[test]
fn a_directory_is_entered_by_its_slash() {
    let gateway = gateway(&[
        ("dir/start.html", b"second choice"),
        ("evil.test/index.html", b"x"),
        ("a b/index.html", b"x"),
    ]);
    for (path, location) in [
        ("/dir", "/dir/"),
        ("/dir?a=b&c", "/dir/?a=b&c"),
        ("//evil.test", "/evil.test/"),
        ("///evil.test?q", "/evil.test/?q"),
        ("/a%20b", "/a%20b/"),
    ] {
        let reply = get(&gateway, "plain.test", path);
        assert_eq!(reply.status, 301, "{path}");
        assert_eq!(field(&reply, "location"), location, "{path}");
    }
    assert_eq!(get(&gateway, "plain.test", "/dir/").text(), "second choice");
}

#[test]
fn a_listing_shows_names_as_text() {
    let gateway = gateway(&[
        ("list/<img src=x onerror=alert(1)>", b"x"),
        ("list/plain.txt", b"x"),
        ("list/.hidden", b"x"),
        ("list/deep/file", b"x"),
    ]);
    let reply = get(&gateway, "list.test", "/list/");
    assert_eq!(reply.status, 200);
    assert_eq!(field(&reply, "content-type"), "text/html; charset=utf-8");
    let page = reply.text();
    assert!(
        !page.contains("<img") && page.contains("&lt;img src=x"),
        "{page}"
    );
    assert!(
        page.contains("href=\"./plain.txt\"") && page.contains("href=\"./deep/\""),
        "{page}"
    );
    assert!(!page.contains("hidden"), "{page}");
    assert_eq!(get(&gateway, "list.test", "/list").status, 301);
    assert_eq!(get(&gateway, "plain.test", "/list/").status, 404);
}

#[test]
fn a_sibling_in_the_coding_a_client_wants_is_sent() {
    let gateway = gateway(&[
        ("s.js", b"plain"),
        ("s.js.gz", b"gzipped"),
        ("s.js.br", b"brotli"),
        ("s.js.zst", b"zst"),
    ]);
    let ask = |accept: &str| {
        let fields = format!("Accept-Encoding: {accept}\r\n");
        ask(&gateway, "plain.test", "GET /s.js", &fields)
    };
    let mut tags = Vec::new();
    for (accept, coding, body) in [
        ("br, gzip, zstd", "br", "brotli"),
        ("gzip, zstd", "zstd", "zst"),
        ("gzip", "gzip", "gzipped"),
        ("identity", "", "plain"),
    ] {
        let reply = ask(accept);
        assert_eq!(reply.text(), body, "{accept}");
        assert_eq!(field(&reply, "content-encoding"), coding);
        assert_eq!(
            field(&reply, "content-type"),
            "text/javascript; charset=utf-8"
        );
        assert_eq!(field(&reply, "vary"), "Accept-Encoding");
        tags.push(field(&reply, "etag"));
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "each coding has a tag of its own");
    // A sibling older than its file holds something else.
    let file = std::fs::File::options()
        .write(true)
        .open(gateway.directory().path().join("www/s.js.gz"))
        .expect("open the sibling");
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    file.set_modified(hour_ago).expect("make it older");
    eventually(PATIENCE, "the old sibling to be left out", || {
        (ask("gzip").text() != "gzipped").then_some(())
    });
}

#[test]
fn text_is_compressed_and_parts_of_it_are_not() {
    let story = "thick walls, thin walls. ".repeat(400);
    let long = story.repeat(50);
    let gateway = gateway(&[
        ("story.txt", story.as_bytes()),
        ("long.txt", long.as_bytes()),
        ("story.png", story.as_bytes()),
    ]);
    let wants = "Accept-Encoding: gzip\r\n";
    for (path, length) in [("/story.txt", story.len()), ("/long.txt", long.len())] {
        let reply = ask(&gateway, "plain.test", &format!("GET {path}"), wants);
        assert_eq!(field(&reply, "content-encoding"), "gzip", "{path}");
        assert_eq!(field(&reply, "vary"), "Accept-Encoding");
        assert!(reply.body.len() < length / 10 && reply.body.starts_with(b"\x1f\x8b"));
        let plain = get(&gateway, "plain.test", path);
        assert_ne!(field(&plain, "etag"), field(&reply, "etag"));
        assert_eq!(plain.body.len(), length);
        let tag = field(&reply, "etag");
        let fields = format!("{wants}If-None-Match: {tag}\r\n");
        let again = ask(&gateway, "plain.test", &format!("GET {path}"), &fields);
        assert_eq!(again.status, 304, "{path}");
    }
    let zstd = ask(
        &gateway,
        "plain.test",
        "GET /story.txt",
        "Accept-Encoding: gzip, zstd\r\n",
    );
    assert_eq!(field(&zstd, "content-encoding"), "zstd");
    assert!(zstd.body.starts_with(b"\x28\xb5\x2f\xfd"));
    let part = format!("{wants}Range: bytes=0-4\r\n");
    let part = ask(&gateway, "plain.test", "GET /story.txt", &part);
    assert_eq!((part.status, part.text().as_str()), (206, "thick"));
    for path in ["/story.png", "/hello.txt"] {
        let reply = ask(&gateway, "plain.test", &format!("GET {path}"), wants);
        assert_eq!(field(&reply, "content-encoding"), "", "{path}");
    }
}

/// Text of so many bytes, each one of `letters`: no coding but that of letters
/// makes it smaller.
fn noise(bytes: usize, letters: u8) -> Vec<u8> {
    let mut state = 1_u64;
    let mut letter = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        b'0'.wrapping_add((state >> 40) as u8 % letters)
    };
    (0..bytes).map(|_| letter()).collect()
}

#[test]
fn text_is_compressed_where_that_saves_a_tenth_and_no_less() {
    // Five bits of each eight are left of the first, and all but a part of the others.
    let (saves, hardly) = (noise(59_000, 32), noise(59_000, 240));
    let large = noise(200_000, 32);
    let gateway = gateway(&[
        ("saves.css", &saves),
        ("small.css", &saves[..3_000]),
        ("large.css", &large),
        ("hardly.css", &hardly),
    ]);
    for coding in ["gzip", "zstd"] {
        for (path, length, expected) in [
            ("/saves.css", 59_000, coding),
            ("/small.css", 3_000, coding),
            ("/large.css", 200_000, coding),
            ("/hardly.css", 59_000, ""),
        ] {
            let wants = format!("Accept-Encoding: {coding}\r\n");
            let whole = format!("{path} by {coding}");
            let reply = eventually(PATIENCE, &whole, || {
                let reply = ask(&gateway, "plain.test", &format!("GET {path}"), &wants);
                // A thread that was busy makes one go out as it is.
                (field(&reply, "content-encoding") == expected).then_some(reply)
            });
            let is_smaller = reply.body.len() < length * 7 / 10;
            assert_eq!(is_smaller, !expected.is_empty(), "{whole}");
            assert_eq!(field(&reply, "vary"), "Accept-Encoding", "{whole}");
        }
    }
}
