//! Pages of PHP and of CGI programs, compressed on their way, and their validators.

use crate::fixtures::coded::{page, read_until, text};
use crate::fixtures::php::bed_of;
use crate::fixtures::programs::{self, gateway};
use testkit::PATIENCE;
use testkit::client::{Body, reply};

/// As WordPress does it: pieces that are flushed as they are made.
const FLUSHED: &str = "<?php
header('ETag: \"p\"');
foreach (str_split(file_get_contents(__DIR__ . '/page.txt'), 9000) as $piece) {
  echo $piece; @ob_flush(); flush();
}";
const WAITING: &str = "<?php
echo str_repeat('<p>before</p>', 400), 'first'; @ob_flush(); flush();
while (!file_exists(__DIR__ . '/go')) { usleep(20000); clearstatcache(); }
echo 'last';";
const DATED: &str = "<?php
header('Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT');
header('Set-Cookie: seen=1');
echo 'dated';";

fn request(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n").into_bytes()
}

#[test]
fn a_page_of_php_is_compressed_as_it_is_made() {
    let page = page();
    let files = [
        ("flushed.php", FLUSHED),
        ("waiting.php", WAITING),
        ("dated.php", DATED),
        ("page.txt", &page),
    ];
    let Some(bed) = bed_of(&files) else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    let mut ask = |line: &str, fields: &str, body| {
        client.send(&request(line, fields));
        reply(client.read_reply(body))
    };
    let gzip = "Accept-Encoding: gzip\r\n";
    for coding in ["gzip", "zstd"] {
        let accept = format!("Accept-Encoding: {coding}\r\n");
        let answer = ask("GET /flushed.php", &accept, Body::Framed);
        assert_eq!(answer.head.field("Content-Encoding"), Some(coding));
        assert_eq!(answer.head.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(answer.head.field("ETag"), Some("W/\"p\""));
        assert!(text(&answer) == page && answer.body.len() < page.len() / 2);
    }
    let head = ask("HEAD /flushed.php", gzip, Body::Never);
    assert_eq!(head.head.field("Content-Encoding"), Some("gzip"));
    assert_eq!(head.head.field("ETag"), Some("W/\"p\""));
    let known = format!("{gzip}If-None-Match: W/\"p\"\r\n");
    assert_eq!(ask("GET /flushed.php", &known, Body::Framed).status, 304);
    let since = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let dated = ask("GET /dated.php", since, Body::Framed);
    assert_eq!((dated.status, dated.body.len()), (304, 0));
    assert_eq!(dated.head.field("Set-Cookie"), Some("seen=1"));
    // Short, and all there: it is not worth it, and nobody is told of a choice.
    let dated = ask("GET /dated.php", gzip, Body::Framed);
    assert_eq!((dated.status, dated.text().as_str()), (200, "dated"));
    assert_eq!(dated.head.field("Vary"), None);
    client.send(&request("GET /waiting.php", gzip));
    read_until(&mut client, "first");
    bed.site.write("go", "");
    client.await_bytes(b"\r\n0\r\n\r\n");
}

#[test]
fn a_page_of_a_cgi_program_is_compressed_and_known_by_its_tag() {
    let program = "#!/bin/sh\nprintf 'Content-Type: text/html\\nETag: \"c\"\\n\\n'\n\
                   for i in 1 2 3 4 5 6 7 8 9 10; do printf '%0200d<br>' $i; done\n";
    let gateway = gateway("", "", &[("page.cgi", program)]);
    let mut client = gateway.client().with_deadline(PATIENCE);
    let gzip = "Accept-Encoding: gzip\r\n";
    client.send(&programs::request("GET /page.cgi", gzip));
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!(answer.head.field("Content-Encoding"), Some("gzip"));
    assert_eq!(answer.head.field("ETag"), Some("W/\"c\""));
    let text = text(&answer);
    assert!(
        text.starts_with("000") && text.ends_with("10<br>"),
        "{text}"
    );
    let known = format!("{gzip}If-None-Match: W/\"c\"\r\n");
    client.send(&programs::request("GET /page.cgi", &known));
    let known = reply(client.read_reply(Body::Framed));
    assert_eq!((known.status, known.body.len()), (304, 0));
    client.send(&programs::request("GET /page.cgi", ""));
    let plain = reply(client.read_reply(Body::Framed));
    assert_eq!(plain.head.field("Content-Encoding"), None);
    assert_eq!(plain.text(), text);
}
