//! What scripts ask the engine for, on exchanges in memory.

use std::task::Poll;

use script::{Ask, Request as _};

use super::*;
use crate::exchange::body::Body;
use crate::exchange::memory::MemoryBody;
use crate::fixture::{Fixture, block_on, exchange, peer, reply};
use crate::pipeline;

/// A site whose `/script` is this, beside a page, a private page and a loop.
fn config(code: &str) -> String {
    format!(
        r#"
[log]
access = "-"
format = "json"
[scripts]
output = "1KiB"
[[sites]]
hosts = ["a"]
rules = [
  {{ match = {{ path = "/script" }}, handler = {{ script = {{ code = {code:?} }} }} }},
  {{ match = {{ path = "/page" }}, handler = {{ respond = {{ body = "page $query $client" }} }} }},
  {{ match = {{ path = "/long" }}, handler = {{ respond = {{ body = "{}" }} }} }},
  {{ match = {{ path = "/limited" }}, limits = [{{ key = "path", concurrent = 1 }}], handler = {{ respond = {{ body = "one" }} }} }},
]
"#,
        "x".repeat(2_000)
    )
}

/// The reply to a script, and how many records there are then.
fn said(code: &str) -> (u16, String, usize) {
    let fixture = Fixture::new(&config(code));
    let ended = fixture.ask("GET /script?q=1 HTTP/1.1\r\nHost: a\r\nX-Say: hello\r\n\r\n");
    let (status, _, body) = reply(&ended);
    (status, body, fixture.records().lines().count())
}

#[test]
fn a_request_inside_goes_through_the_rules_and_leaves_no_record() {
    let inside = |target: &str| {
        format!(
            "r = Nginx::Async::HTTP.sub_request({target:?}); Nginx.rputs [r.status, r.body].join(' ')"
        )
    };
    for (target, expected) in [
        ("/page?x=1", "200 page x=1 192.0.2.7"),
        ("/limited", "200 one"),
    ] {
        assert_eq!(said(&inside(target)), (200, expected.to_owned(), 1));
    }
    let (status, body, _) = said(&inside("/absent"));
    assert_eq!(status, 200);
    assert!(body.starts_with("404 <!doctype html>"), "{body}");
    for wrong in ["/a b", "/a\r\nX: y", "/long"] {
        assert_eq!(said(&inside(wrong)).0, 500, "{wrong}");
    }
}

#[test]
fn requests_inside_of_each_other_come_to_an_end() {
    let (status, body, records) =
        said("r = Nginx::Async::HTTP.sub_request('/script'); Nginx.rputs r.status");
    // The innermost may not go deeper and fails; the one outside of it tells so.
    assert_eq!((status, body.as_str(), records), (200, "200", 1));
}

#[test]
fn fields_of_a_reply_inside_are_told() {
    let (_, body, _) = said(
        "r = Nginx::Async::HTTP.sub_request('/page'); Nginx.rputs r.headers['Content-Type'].inspect",
    );
    assert!(body.contains("text/plain"), "{body}");
}

#[test]
fn a_body_is_read_as_often_as_asked_and_too_long_ones_raise() {
    let fixture = Fixture::new(&config("1"));
    block_on(async {
        let mut exchange = exchange(
            peer("192.0.2.7:1"),
            "POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n",
        );
        exchange.body = Body::Memory(MemoryBody::new(*b"body"));
        pipeline::tests::begin(fixture.arrived(&fixture.worker.serving()), &mut exchange);
        for _ in 0..2 {
            let read = exchange.perform(Ask::Body { bytes_max: 4 }).await;
            assert!(matches!(read, Woken::Value(Datum::Bytes(bytes)) if bytes == b"body"));
        }
        let read = exchange.perform(Ask::Body { bytes_max: 3 }).await;
        assert!(
            matches!(read, Woken::Raise("RuntimeError", said) if said.contains("longer than 3"))
        );
        let spool = exchange.spooled.as_ref().expect("kept for the handler");
        assert_eq!(spool.len(), 4);
    });
}

#[test]
fn a_permit_is_held_until_the_request_ends() {
    let fixture = Fixture::new(&config("1"));
    let acquire = |wait_ms| Ask::Acquire {
        key: b"k".to_vec(),
        concurrent: 1,
        queue: 1,
        wait_ms,
    };
    let is = |woken: &Woken, truth| matches!(woken, Woken::Value(Datum::Bool(it)) if *it == truth);
    block_on(async {
        let request = "GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
        let [mut one, mut other] = [1, 2].map(|port| {
            let mut exchange = exchange(peer(&format!("192.0.2.7:{port}")), request);
            pipeline::tests::begin(fixture.arrived(&fixture.worker.serving()), &mut exchange);
            exchange
        });
        assert!(is(&one.perform(acquire(0)).await, true));
        assert!(
            is(&other.perform(acquire(1)).await, false),
            "it waited in vain"
        );
        assert_eq!(other.record.limit.as_deref(), Some("script:k"));
        let mut waits = other.perform(acquire(60_000));
        poll_fn(|cx| {
            assert!(waits.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        one.scripted().scope.release_all();
        assert!(is(&waits.await, true));
    });
}
