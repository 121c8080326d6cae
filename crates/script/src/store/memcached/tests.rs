//! The client against servers that answer as a script says.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::store::peer::{BlackHole, Peer, Step, nobody};
use Step::{Drip, Expect, ExpectClose, Send};

/// Far longer than a test may take, so that only the time under test can run out.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn limits() -> Limits {
    Limits {
        connect_timeout: LONG,
        command_timeout: LONG,
        ..Limits::default()
    }
}

fn client(address: SocketAddr, limits: Limits) -> Rc<Memcached> {
    Stores::new(limits)
        .memcached(&address.to_string())
        .expect("an address")
}

async fn fails(client: &Rc<Memcached>) -> Error {
    client.get(b"k".to_vec()).await.expect_err("no answer")
}

#[tokio::test]
async fn every_command_is_sent_and_understood_as_the_protocol_says() {
    let peer = Peer::start(vec![vec![
        Expect(b"set k 0 60 2\r\nab\r\n"),
        Send(b"STORED\r\n"),
        Expect(b"get k\r\n"),
        Send(b"VALUE k 0 2\r\nab\r\nEND\r\n"),
        Expect(b"add k 0 0 0\r\n\r\n"),
        Send(b"NOT_STORED\r\n"),
        Expect(b"replace k 0 -1 1\r\nx\r\n"),
        Send(b"STORED\r\n"),
        Expect(b"append k 0 0 1\r\ny\r\n"),
        Send(b"STORED\r\n"),
        Expect(b"incr k 5\r\n"),
        Send(b"12\r\n"),
        Expect(b"decr k 5\r\n"),
        Send(b"NOT_FOUND\r\n"),
        Expect(b"delete k\r\n"),
        Send(b"DELETED\r\n"),
        Expect(b"flush_all 3\r\n"),
        Send(b"OK\r\n"),
        Expect(b"get k\r\n"),
        Send(b"END\r\n"),
        ExpectClose,
    ]])
    .await;
    let client = client(peer.address(), limits());
    let key = || b"k".to_vec();
    assert_eq!(client.set(key(), b"ab".to_vec(), 60).await, Ok(Stored::Yes));
    assert_eq!(client.get(key()).await, Ok(Some(b"ab".to_vec())));
    assert_eq!(client.add(key(), Vec::new(), 0).await, Ok(Stored::No));
    assert_eq!(
        client.replace(key(), b"x".to_vec(), -1).await,
        Ok(Stored::Yes)
    );
    assert_eq!(client.append(key(), b"y".to_vec()).await, Ok(Stored::Yes));
    assert_eq!(client.incr(key(), 5).await, Ok(Some(12)));
    assert_eq!(client.decr(key(), 5).await, Ok(None));
    assert_eq!(client.delete(key()).await, Ok(true));
    assert_eq!(client.flush_all(3).await, Ok(()));
    assert_eq!(client.get(key()).await, Ok(None));
    client.close();
    peer.wait_until_finished(1).await;
    assert_eq!(peer.accepted(), 1);
    assert_eq!(fails(&client).await.kind(), Kind::Closed);
}

#[tokio::test]
async fn an_answer_may_come_byte_by_byte() {
    let peer = Peer::start(vec![vec![
        Expect(b"get k\r\n"),
        Drip(b"VALUE k 0 5\r\na\r\nbc\r\nEND\r\n"),
        ExpectClose,
    ]])
    .await;
    let client = client(peer.address(), limits());
    assert_eq!(
        client.get(b"k".to_vec()).await,
        Ok(Some(b"a\r\nbc".to_vec()))
    );
}

#[tokio::test]
async fn an_answer_that_is_none_ends_the_connection_and_says_why() {
    let cases: [(&'static [u8], Kind, &str); 7] = [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            Kind::Protocol,
            "none of memcached's",
        ),
        (
            b"VALUE other 0 1\r\na\r\nEND\r\n",
            Kind::Protocol,
            "for another key",
        ),
        (
            b"VALUE k 0 10485761\r\n",
            Kind::TooLarge,
            "10485761 bytes, above 10485760",
        ),
        (b"END\r\nEND\r\n", Kind::Protocol, "more than it was asked"),
        (b"STORED\r\n", Kind::Protocol, "STORED is no answer to it"),
        (b"SERVER_ERROR busy\r\n", Kind::Server, "SERVER_ERROR busy"),
        (&[b'a'; 4096], Kind::Protocol, "a line above 2048 bytes"),
    ];
    for (answer, kind, words) in cases {
        let bad = vec![Expect(b"get k\r\n"), Send(answer), ExpectClose];
        let good = vec![Expect(b"get k\r\n"), Send(b"END\r\n"), ExpectClose];
        let peer = Peer::start(vec![bad, good]).await;
        let client = client(peer.address(), limits());
        let error = fails(&client).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        let place = format!("get at memcached {}: ", peer.address());
        assert!(error.to_string().starts_with(&place), "{error}");
        assert_eq!(client.get(b"k".to_vec()).await, Ok(None));
        assert_eq!(peer.accepted(), 2);
    }
}

#[tokio::test]
async fn a_connection_that_ends_in_an_answer_raises_once_and_the_next_call_reconnects() {
    let half = vec![Expect(b"get k\r\n"), Send(b"VALUE k 0 5\r\nab")];
    let whole = vec![Expect(b"get k\r\n"), Send(b"END\r\n"), ExpectClose];
    let peer = Peer::start(vec![half, whole]).await;
    let client = client(peer.address(), limits());
    let error = fails(&client).await;
    assert_eq!(error.kind(), Kind::Lost);
    let text = format!(
        "get at memcached {}: the server closed the connection",
        peer.address()
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(client.get(b"k".to_vec()).await, Ok(None));
}

#[tokio::test]
async fn a_server_restarted_between_two_commands_raises_at_most_once() {
    let script = vec![Expect(b"get k\r\n"), Send(b"END\r\n")];
    let peer = Peer::start(vec![script]).await;
    let client = client(peer.address(), limits());
    assert_eq!(client.get(b"k".to_vec()).await, Ok(None));
    peer.wait_until_finished(1).await;
    if let Err(error) = client.get(b"k".to_vec()).await {
        assert_eq!(error.kind(), Kind::Lost);
        assert_eq!(client.get(b"k".to_vec()).await, Ok(None));
    }
}

#[tokio::test]
async fn a_refused_connection_names_the_server() {
    let address = nobody().await;
    let error = fails(&client(address, limits())).await;
    assert_eq!(error.kind(), Kind::Connect);
    assert_eq!(
        error.to_string(),
        format!("connect to memcached {address}: refused")
    );
    let stores = Stores::new(limits());
    let client = stores
        .memcached("unix:/nowhere/memcached.sock")
        .expect("an address");
    let text = "connect to memcached unix:/nowhere/memcached.sock: there is no such socket";
    assert_eq!(fails(&client).await.to_string(), text);
}

#[tokio::test]
async fn a_server_that_drops_packets_costs_the_connect_timeout() {
    let hole = BlackHole::start().await;
    let connect = Limits {
        connect_timeout: SHORT,
        ..limits()
    };
    let total = Limits {
        command_timeout: SHORT,
        ..limits()
    };
    for (limits, key) in [(connect, "connect_timeout"), (total, "store_timeout")] {
        let error = fails(&client(hole.address(), limits)).await;
        assert_eq!(error.kind(), Kind::Connect);
        let address = hole.address();
        let text =
            format!("connect to memcached {address}: no answer within 50 ms (scripts.{key})");
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_the_command_timeout_and_its_connection() {
    let peer = Peer::start(vec![vec![Expect(b"get k\r\n"), ExpectClose]]).await;
    let limits = Limits {
        command_timeout: SHORT,
        ..limits()
    };
    let error = fails(&client(peer.address(), limits)).await;
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    let text = format!(
        "get at memcached {}: no answer within 50 ms (scripts.store_timeout)",
        peer.address()
    );
    assert_eq!(error.to_string(), text);
    peer.wait_until_finished(1).await;
}

#[tokio::test]
async fn whoever_gets_no_connection_in_time_is_told_which_limit_to_raise() {
    let peer = Peer::start(vec![Vec::new()]).await;
    let limits = Limits {
        command_timeout: SHORT,
        connections_max: 1,
        ..limits()
    };
    let client = client(peer.address(), limits);
    let server = Rc::clone(&client.servers.borrow()[0]);
    let taken = server.lease(client.owner).await;
    let error = fails(&client).await;
    assert_eq!(error.kind(), Kind::Waited);
    let text = format!(
        "waited 50 ms for one of 1 connections to memcached {}: raise scripts.store_connections",
        peer.address()
    );
    assert_eq!(error.to_string(), text);
    drop(taken);
}

#[tokio::test]
async fn a_command_given_up_closes_its_connection() {
    let peer = Peer::start(vec![vec![Expect(b"get k\r\n"), ExpectClose]]).await;
    let client = client(peer.address(), limits());
    let given_up = tokio::time::timeout(SHORT, client.get(b"k".to_vec())).await;
    assert!(given_up.is_err());
    peer.wait_until_finished(1).await;
}

fn echo(line: &[u8]) -> Vec<u8> {
    let key = line.strip_prefix(b"get ").expect("a get");
    let head = format!("VALUE {} 0 {}\r\n", key.escape_ascii(), key.len());
    [head.as_bytes(), key, b"\r\nEND\r\n"].concat()
}

#[tokio::test]
async fn a_hundred_at_once_share_four_connections_and_get_their_own_answers() {
    let peer = Peer::answer(echo).await;
    let limits = Limits {
        connections_max: 4,
        ..limits()
    };
    let client = client(peer.address(), limits);
    let tasks = tokio::task::LocalSet::new();
    for number in 0..100 {
        let key = format!("key-{number}").into_bytes();
        let asked = client.get(key.clone());
        tasks.spawn_local(async move { assert_eq!(asked.await, Ok(Some(key))) });
    }
    tasks.await;
    assert!((1..=4).contains(&peer.accepted()), "{}", peer.accepted());
}

#[tokio::test]
async fn an_object_made_for_each_request_closes_its_connection_when_it_goes() {
    let peer = Peer::answer(echo).await;
    let stores = Stores::new(limits());
    for _ in 0..3 {
        let client = stores
            .memcached(&peer.address().to_string())
            .expect("an address");
        client.get(b"k".to_vec()).await.expect("an answer");
    }
    peer.wait_until_finished(3).await;
    assert_eq!(peer.accepted(), 3);
}

#[tokio::test]
async fn keys_are_spread_over_servers_and_stay_where_they_are() {
    let (one, two) = (Peer::answer(echo).await, Peer::answer(echo).await);
    let stores = Stores::new(limits());
    let named = format!("{}, {}", one.address(), two.address());
    let client = stores.memcached(&named).expect("addresses");
    for number in 0..20 {
        let key = format!("key-{number}").into_bytes();
        let server = client.server_of(&key).expect("a server");
        client.get(key.clone()).await.expect("an answer");
        let again = client.server_of(&key).expect("a server");
        assert!(Rc::ptr_eq(&server, &again));
    }
    assert_eq!((one.accepted(), two.accepted()), (1, 1));
}

#[tokio::test]
async fn keys_that_would_break_the_protocol_are_refused() {
    let client = client(nobody().await, limits());
    for key in [
        &b""[..],
        b"a b",
        b"a\r\nflush_all",
        b"\0",
        b"\x7f",
        &[b'k'; 251],
    ] {
        let error = client.get(key.to_vec()).await.expect_err("no key");
        assert_eq!(error.kind(), Kind::Argument);
        let set = client.set(key.to_vec(), Vec::new(), 0).await;
        assert_eq!(set.expect_err("no key").kind(), Kind::Argument);
    }
    let long = client
        .set(b"k".to_vec(), vec![0; VALUE_BYTES_MAX + 1], 0)
        .await;
    assert_eq!(long.expect_err("too long").kind(), Kind::Argument);
    let none = Stores::new(limits()).memcached("").expect("no address yet");
    assert_eq!(fails(&none).await.kind(), Kind::Argument);
}

#[test]
fn keys_hash_as_jenkins_says() {
    assert_eq!(one_at_a_time(b"a"), 0xca2e_9442);
    let text = b"The quick brown fox jumps over the lazy dog";
    assert_eq!(one_at_a_time(text), 0x519e_91f5);
}
