//! The client against servers that reply as a script says.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::limits::Limits;
use crate::peer::{BlackHole, Peer, Step, nobody};
use Step::{Drip, Expect, ExpectClose, Send};

/// Far longer than a test may take, so that only the time under test can run out.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn limits() -> Limits {
    Limits {
        connect_timeout: LONG,
        command_timeout: LONG,
        ..Limits::default()
    }
}

fn get(address: SocketAddr) -> Request {
    Request {
        method: "GET".to_owned(),
        url: format!("http://{address}/a?b"),
        // The port of the test is another one each time.
        fields: vec![(b"host".to_vec(), b"h".to_vec())],
        body: Vec::new(),
    }
}

const ASKED: &[u8] = b"GET /a?b HTTP/1.1\r\nhost: h\r\n\r\n";

async fn fails(stores: &Rc<Stores>, address: SocketAddr) -> Error {
    stores.http(get(address)).await.expect_err("no reply")
}

#[tokio::test]
async fn a_request_goes_out_framed_and_its_reply_comes_back_whole() {
    let peer = Peer::start(vec![vec![
        Expect(b"POST /x HTTP/1.1\r\nhost: h\r\nx-a: 1\r\ncontent-length: 4\r\n\r\nbody"),
        Drip(b"HTTP/1.1 418 No\r\nSet-Cookie: a\r\nset-cookie: b\r\ntransfer-encoding: chunked\r\n\r\n"),
        Drip(b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"),
        Expect(b"HEAD /x HTTP/1.1\r\nhost: h\r\n\r\n"),
        Send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"),
        ExpectClose,
    ]])
    .await;
    let stores = Stores::new(limits());
    let mut request = get(peer.address());
    request.url = format!("http://{}/x", peer.address());
    let head = Request {
        method: "HEAD".to_owned(),
        ..request.clone()
    };
    request.method = "POST".to_owned();
    request.fields.push((b"X-A".to_vec(), b"1".to_vec()));
    request
        .fields
        .push((b"Content-Length".to_vec(), b"7".to_vec()));
    request.body = b"body".to_vec();
    let response = stores.http(request).await.expect("a reply");
    assert_eq!(
        (response.status, response.body.as_slice()),
        (418, &b"abcd"[..])
    );
    let cookies = response
        .fields
        .iter()
        .filter(|(name, _)| name == "set-cookie");
    assert_eq!(
        cookies
            .map(|(_, value)| value.as_slice())
            .collect::<Vec<_>>(),
        [b"a", b"b"]
    );
    let response = stores.http(head).await.expect("a reply");
    assert_eq!((response.status, response.body.len()), (200, 0));
    assert_eq!(peer.accepted(), 1, "the connection is kept");
    drop(stores);
    peer.wait_until_finished(1).await;
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_not_used_again() {
    let peer = Peer::start(vec![vec![Expect(ASKED), Send(OK)]]).await;
    let stores = Stores::new(limits());
    for number in 1..=3 {
        let response = stores.http(get(peer.address())).await;
        // A close that has not arrived yet is met in the middle, once.
        match response {
            Ok(response) => assert_eq!(response.body, b"ok"),
            Err(error) => assert_eq!(error.kind(), Kind::Lost, "{error}"),
        }
        peer.wait_until_finished(number.min(peer.accepted())).await;
    }
}

#[tokio::test]
async fn a_server_that_closes_after_each_reply_is_asked_anew() {
    let closing: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end";
    let peer = Peer::start(vec![vec![Expect(ASKED), Send(closing)]]).await;
    let stores = Stores::new(limits());
    for _ in 0..3 {
        let response = stores.http(get(peer.address())).await.expect("a reply");
        assert_eq!(response.body, b"to the end");
    }
    assert_eq!(peer.accepted(), 3);
}

#[tokio::test]
async fn a_reply_that_is_none_or_too_much_is_an_error() {
    let cases: [(&'static [u8], Kind, &str); 6] = [
        (
            b"VALUE k 0 1\r\n",
            Kind::Protocol,
            "the reply cannot be read",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 10485761\r\n\r\n",
            Kind::TooLarge,
            "more than 10485760 bytes",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
            Kind::Lost,
            "closed the connection",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            Kind::Lost,
            "",
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            Kind::Protocol,
            "switch",
        ),
        (b"", Kind::Lost, "closed the connection"),
    ];
    for (answer, kind, words) in cases {
        let peer = Peer::start(vec![vec![Expect(ASKED), Send(answer)]]).await;
        let error = fails(&Stores::new(limits()), peer.address()).await;
        assert_eq!(error.kind(), kind, "{error}");
        let begin = format!("GET at HTTP server {}: ", peer.address());
        assert!(error.to_string().starts_with(&begin), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let endless = [
        b"HTTP/1.1 200 OK\r\n".as_slice(),
        &b"x-a: aaaaaaaa\r\n".repeat(6_000),
    ]
    .concat();
    let peer = Peer::start(vec![vec![Expect(ASKED), Send(endless.leak()), ExpectClose]]).await;
    let error = fails(&Stores::new(limits()), peer.address()).await;
    assert_eq!(error.kind(), Kind::Protocol, "{error}");
    assert!(error.to_string().contains("too large"), "{error}");
}

#[tokio::test]
async fn nobody_a_black_hole_and_silence_are_told_apart() {
    let address = nobody().await;
    let error = fails(&Stores::new(limits()), address).await;
    assert_eq!(
        error.to_string(),
        format!("connect to HTTP server {address}: refused")
    );
    let hole = BlackHole::start().await;
    let hurried = Limits {
        connect_timeout: SHORT,
        ..limits()
    };
    let error = fails(&Stores::new(hurried), hole.address()).await;
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    let peer = Peer::start(vec![vec![Expect(ASKED), ExpectClose]]).await;
    let hurried = Limits {
        command_timeout: SHORT,
        ..limits()
    };
    let error = fails(&Stores::new(hurried), peer.address()).await;
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    peer.wait_until_finished(1).await;
}

#[tokio::test]
async fn many_requests_share_the_connections_to_one_host() {
    let scripts = vec![[Expect(ASKED), Send(OK)].repeat(50)];
    let peer = Peer::start(scripts).await;
    let limits = Limits {
        connections_max: 4,
        ..limits()
    };
    let stores = Stores::new(limits);
    let tasks = tokio::task::LocalSet::new();
    for _ in 0..50 {
        let asked = stores.http(get(peer.address()));
        tasks.spawn_local(async move { assert_eq!(asked.await.expect("a reply").body, b"ok") });
    }
    tasks.await;
    assert!((1..=4).contains(&peer.accepted()), "{}", peer.accepted());
}

#[tokio::test]
async fn what_cannot_be_a_request_is_refused_unsent() {
    let stores = Stores::new(limits());
    let address = nobody().await;
    let bad = [
        Request {
            method: "CONNECT".to_owned(),
            ..get(address)
        },
        Request {
            method: "A B".to_owned(),
            ..get(address)
        },
        Request {
            body: vec![0; VALUE_BYTES_MAX + 1],
            ..get(address)
        },
        Request {
            url: "ftp://a/".to_owned(),
            ..get(address)
        },
    ];
    for request in bad {
        let error = stores.http(request).await.expect_err("no request");
        assert_eq!(error.kind(), Kind::Argument, "{error}");
    }
}

#[tokio::test]
async fn servers_without_connections_are_forgotten() {
    let stores = Stores::new(limits());
    fails(&stores, nobody().await).await;
    assert_eq!(stores.http_warm.servers.borrow().len(), 1);
    stores.sweep();
    assert!(stores.http_warm.servers.borrow().is_empty());
}
