//! The client against servers that answer as a script says.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::Instant;

use super::connection::DEPTH_MAX;
use super::queue::LONG_BYTES;
use super::*;
use crate::limits::Limits;
use crate::peer::{BlackHole, Peer, Step, nobody, until};
use Step::{Drip, Expect, ExpectClose, Hear, Send};

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
    let client = Stores::new(limits).memcached(&address.to_string());
    client.expect("an address")
}

async fn fails(client: &Rc<Memcached>) -> Error {
    client.get(b"k".to_vec()).await.expect_err("no answer")
}

#[tokio::test(flavor = "local")]
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
    assert_eq!(fails(&client).await.kind(), Kind::Closed);
    drop(client);
    peer.wait_until_finished(1).await;
    assert_eq!(peer.accepted(), 1);
}

#[tokio::test(flavor = "local")]
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

#[tokio::test(flavor = "local")]
async fn an_answer_that_is_none_ends_the_connection_and_says_why() {
    let cases: [(&'static [u8], Kind, &str); 6] = [
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

#[tokio::test(flavor = "local")]
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

#[tokio::test(flavor = "local")]
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

#[tokio::test(flavor = "local")]
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

#[tokio::test(flavor = "local")]
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

#[tokio::test(flavor = "local")]
async fn a_server_that_does_not_answer_costs_the_command_timeout_and_its_connection() {
    let peer = Peer::start(vec![vec![Expect(b"get k\r\n"), ExpectClose]]).await;
    let mut limits = limits();
    limits.command_timeout = SHORT;
    let error = fails(&client(peer.address(), limits)).await;
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    let text = format!(
        "get at memcached {}: no answer within 50 ms (scripts.store_timeout)",
        peer.address()
    );
    assert_eq!(error.to_string(), text);
    peer.wait_until_finished(1).await;
}

#[tokio::test(flavor = "local")]
async fn whoever_gets_no_connection_in_time_is_told_which_limit_to_raise() {
    let peer = Peer::answer(|_| Vec::new()).await;
    let mut limits = limits();
    limits.connections_max = 1;
    let client = client(peer.address(), limits);
    let server = client.server_of(b"k").expect("a server");
    let asked: Vec<_> = (0..=DEPTH_MAX).map(|_| ask(&client, "k")).collect();
    until("a full connection", || server.queue().short() == 1).await;
    server.expire(Instant::now() + 2 * LONG);
    let last = asked.into_iter().next_back().expect("the last one");
    let error = last.await.expect("no panic").expect_err("no place");
    assert_eq!(error.kind(), Kind::Waited);
    let text = format!(
        "waited 60 s for one of 1 connections to memcached {}: raise scripts.store_connections",
        peer.address()
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(server.connections(), 1);
}

type Asked = JoinHandle<Result<Option<Vec<u8>>, Error>>;

/// Asks for a key beside others.
fn ask(client: &Rc<Memcached>, key: &str) -> Asked {
    spawn_local(client.get(key.into()))
}

async fn answer(asked: Asked) -> Result<Option<Vec<u8>>, Error> {
    asked.await.expect("no panic")
}

async fn kind(asked: Asked) -> Option<Kind> {
    answer(asked).await.err().map(|error| error.kind())
}

#[tokio::test(flavor = "local")]
async fn commands_of_many_are_under_way_at_once_and_the_answer_nobody_wants_is_skipped() {
    let peer = Peer::start(vec![vec![
        Expect(b"get a\r\nget b\r\n"),
        Send(b"VALUE a 0 1\r\na\r\nEND\r\n"),
        Expect(b"get c\r\n"),
        Send(b"VALUE b 0 1\r\nb\r\nEND\r\nVALUE c 0 1\r\nc\r\nEND\r\n"),
        ExpectClose,
    ]])
    .await;
    let client = client(peer.address(), limits());
    let (first, given_up) = (ask(&client, "a"), ask(&client, "b"));
    assert_eq!(answer(first).await, Ok(Some(b"a".to_vec())));
    given_up.abort();
    assert!(given_up.await.is_err());
    assert_eq!(client.get(b"c".to_vec()).await, Ok(Some(b"c".to_vec())));
    assert_eq!(peer.accepted(), 1);
}

#[tokio::test(flavor = "local")]
async fn a_connection_lost_with_many_commands_on_it_raises_once_for_each() {
    let peer = Peer::start(vec![
        vec![
            Expect(b"get a\r\nget b\r\nget c\r\n"),
            Send(b"END\r\nVALUE b 0 5\r\nab"),
        ],
        vec![Expect(b"get d\r\n"), Send(b"END\r\n"), ExpectClose],
    ])
    .await;
    let client = client(peer.address(), limits());
    let [a, b, c] = ["a", "b", "c"].map(|key| ask(&client, key));
    assert_eq!(answer(a).await, Ok(None));
    assert_eq!(
        (kind(b).await, kind(c).await),
        (Some(Kind::Lost), Some(Kind::Lost))
    );
    assert_eq!(client.get(b"d".to_vec()).await, Ok(None));
}

#[tokio::test(flavor = "local")]
async fn an_answer_out_of_order_ends_the_connection_for_all_behind_it() {
    let peer = Peer::start(vec![
        vec![
            Expect(b"get a\r\nget b\r\n"),
            Send(b"VALUE b 0 1\r\nb\r\nEND\r\nVALUE a 0 1\r\na\r\nEND\r\n"),
            ExpectClose,
        ],
        vec![Expect(b"get c\r\n"), Send(b"END\r\n"), ExpectClose],
    ])
    .await;
    let client = client(peer.address(), limits());
    let (a, b) = (ask(&client, "a"), ask(&client, "b"));
    assert_eq!(kind(a).await, Some(Kind::Protocol));
    let error = answer(b).await.expect_err("nothing to trust");
    assert_eq!(error.kind(), Kind::Lost);
    assert!(
        error.to_string().contains("a command before this one"),
        "{error}"
    );
    assert_eq!(client.get(b"c".to_vec()).await, Ok(None));
}

#[tokio::test(flavor = "local")]
async fn an_overdue_answer_ends_the_connection_and_the_next_command_connects_anew() {
    let silent = vec![Expect(b"get a\r\nget b\r\n"), ExpectClose];
    let whole = vec![Expect(b"get c\r\n"), Send(b"END\r\n"), ExpectClose];
    let peer = Peer::start(vec![silent, whole]).await;
    let limits = Limits {
        command_timeout: Duration::from_millis(500),
        ..limits()
    };
    let client = client(peer.address(), limits);
    let (a, b) = (ask(&client, "a"), ask(&client, "b"));
    assert_eq!(kind(a).await, Some(Kind::Timeout));
    let behind = kind(b).await;
    assert!(
        matches!(behind, Some(Kind::Timeout | Kind::Lost)),
        "{behind:?}"
    );
    peer.wait_until_finished(1).await;
    assert!(matches!(
        kind(ask(&client, "c")).await,
        None | Some(Kind::Timeout)
    ));
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test(flavor = "local")]
async fn short_commands_pass_a_long_one_on_another_connection() {
    let head = format!("set long 0 0 {LONG_BYTES}\r\n");
    let long = vec![
        Hear(head.len() + LONG_BYTES + 2),
        Expect(b"no more"),
        ExpectClose,
    ];
    let short = vec![Expect(b"get k\r\n"), Send(b"END\r\n"), ExpectClose];
    let peer = Peer::start(vec![long, short]).await;
    let client = client(peer.address(), limits());
    let set = spawn_local(client.set(b"long".to_vec(), vec![0; LONG_BYTES], 0));
    until("a connection", || peer.accepted() == 1).await;
    let server = client.server_of(b"k").expect("a server");
    until("the long one on its way", || server.queue().long() == 0).await;
    assert_eq!(client.get(b"k".to_vec()).await, Ok(None));
    assert_eq!(peer.accepted(), 2);
    set.abort();
}

#[tokio::test(flavor = "local")]
async fn short_commands_pass_a_long_answer_on_another_connection() {
    let long = vec![
        Expect(b"get long\r\n"),
        Send(b"VALUE long 0 100000\r\nabc"),
        Expect(b"no more"),
    ];
    let short = vec![Expect(b"get k\r\n"), Send(b"END\r\n"), ExpectClose];
    let peer = Peer::start(vec![long, short]).await;
    let client = client(peer.address(), limits());
    let waiting = ask(&client, "long");
    let server = client.server_of(b"k").expect("a server");
    until("the answer's beginning", || server.is_full()).await;
    assert_eq!(client.get(b"k".to_vec()).await, Ok(None));
    assert_eq!(peer.accepted(), 2);
    waiting.abort();
}

#[tokio::test(flavor = "local")]
async fn a_refusal_keeps_the_connection_where_the_next_answer_is_sure() {
    let peer = Peer::start(vec![
        vec![
            Expect(b"set k 0 0 1\r\na\r\n"),
            Send(b"SERVER_ERROR object too large for cache\r\n"),
            Expect(b"incr k 1\r\n"),
            Send(b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
            Expect(b"set k 0 0 1\r\nb\r\n"),
            Send(b"CLIENT_ERROR bad data chunk\r\n"),
            ExpectClose,
        ],
        vec![Expect(b"get k\r\n"), Send(b"END\r\n"), ExpectClose],
    ])
    .await;
    let client = client(peer.address(), limits());
    let key = || b"k".to_vec();
    let large = client.set(key(), b"a".to_vec(), 0).await;
    let word = client.incr(key(), 1).await;
    let bad = client.set(key(), b"b".to_vec(), 0).await;
    let kinds = [large.err(), word.err(), bad.err()];
    assert!(
        kinds
            .iter()
            .flatten()
            .all(|error| error.kind() == Kind::Server)
    );
    assert_eq!(kinds.iter().flatten().count(), 3);
    assert_eq!(client.get(key()).await, Ok(None));
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test(flavor = "local")]
async fn idle_connections_close_after_their_time_and_servers_nobody_names_are_forgotten() {
    let peer = Peer::answer(echo).await;
    let stores = Stores::new(limits());
    let named = peer.address().to_string();
    let client = stores.memcached(&named).expect("an address");
    client.get(b"k".to_vec()).await.expect("an answer");
    let server = client.server_of(b"k").expect("a server");
    stores.memcached.sweep(LONG);
    assert_eq!(server.connections(), 1);
    until("an idle connection closed", || {
        stores.memcached.sweep(Duration::ZERO);
        server.connections() == 0
    })
    .await;
    assert_eq!(stores.memcached.len(), 1);
    drop((client, server));
    until("a server forgotten", || {
        stores.memcached.sweep(LONG);
        stores.memcached.len() == 0
    })
    .await;
    peer.wait_until_finished(1).await;
}

/// What [`speak`] says of a key such as `7-300`: so many bytes of that number.
fn value_of(key: &str) -> Option<Vec<u8>> {
    let (number, length) = key.split_once('-')?;
    Some(vec![number.parse().ok()?; length.parse().ok()?])
}

fn speak(line: &[u8]) -> Vec<u8> {
    let line = std::str::from_utf8(line).expect("a line");
    let key = line.strip_prefix("get ").expect("a get");
    let Some(value) = value_of(key) else {
        return b"END\r\n".to_vec();
    };
    let head = format!("VALUE {key} 0 {}\r\n", value.len());
    [head.as_bytes(), &value, b"\r\nEND\r\n"].concat()
}

/// One who asks: the length of the answer, `None` for no value, and whether it goes away soon.
type Asker = (Option<usize>, bool);

fn askers() -> impl Strategy<Value = Vec<Asker>> {
    let length = prop_oneof![
        8 => (0..3_000_usize).prop_map(Some),
        1 => (60_000..100_000_usize).prop_map(Some),
        1 => Just(None),
    ];
    prop::collection::vec((length, prop::bool::weighted(0.2)), 1..60)
}

async fn all_get_their_own(askers: Vec<Asker>, sizes: Vec<usize>, connections_max: usize) {
    // One large piece among small ones, or long values would take long.
    let sizes = sizes.into_iter().chain([8_000]).collect();
    let peer = Peer::answer_in_pieces(speak, sizes).await;
    let limits = Limits {
        connections_max,
        ..limits()
    };
    let client = client(peer.address(), limits);
    let mut under_way = Vec::new();
    for (place, (length, goes)) in askers.into_iter().enumerate() {
        let length = length.map_or("none".to_owned(), |length| length.to_string());
        let key = format!("{}-{length}", place % 250);
        let asked = ask(&client, &key);
        if place % 7 == 0 {
            tokio::task::yield_now().await;
        }
        match goes {
            true => asked.abort(),
            false => under_way.push((key, asked)),
        }
    }
    for (key, asked) in under_way {
        assert_eq!(answer(asked).await, Ok(value_of(&key)), "{key}");
    }
    assert!(peer.accepted() <= connections_max);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn everybody_gets_their_own_answer_however_it_comes(
        askers in askers(),
        sizes in prop::collection::vec(prop_oneof![1..20_usize, 1..20_000_usize], 1..8),
        connections_max in 1..4_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime");
        runtime.block_on(all_get_their_own(askers, sizes, connections_max));
    }
}

fn echo(line: &[u8]) -> Vec<u8> {
    let key = line.strip_prefix(b"get ").expect("a get");
    let head = format!("VALUE {} 0 {}\r\n", key.escape_ascii(), key.len());
    [head.as_bytes(), key, b"\r\nEND\r\n"].concat()
}

#[tokio::test(flavor = "local")]
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

#[tokio::test(flavor = "local")]
async fn objects_made_for_each_request_use_one_connection() {
    let peer = Peer::answer(echo).await;
    let stores = Stores::new(limits());
    for _ in 0..3 {
        let client = stores
            .memcached(&peer.address().to_string())
            .expect("an address");
        client.get(b"k".to_vec()).await.expect("an answer");
        client.close();
    }
    assert_eq!(peer.accepted(), 1);
    drop(stores);
    peer.wait_until_finished(1).await;
}

#[tokio::test(flavor = "local")]
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

#[tokio::test(flavor = "local")]
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
    let late = client.set(b"k".to_vec(), Vec::new(), 1 << 31).await;
    assert_eq!(late.expect_err("too late").kind(), Kind::Argument);
    let none = Stores::new(limits()).memcached("").expect("no address yet");
    assert_eq!(fails(&none).await.kind(), Kind::Argument);
}

#[test]
fn keys_hash_as_jenkins_says() {
    assert_eq!(one_at_a_time(b"a"), 0xca2e_9442);
    let text = b"The quick brown fox jumps over the lazy dog";
    assert_eq!(one_at_a_time(text), 0x519e_91f5);
}
