//! Bodies set aside: a slow client holds neither a server of the upstream nor memory.

use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::gateway::Builder;
use testkit::processes::open_files;
use testkit::{Gateway, RawClient, ScriptedUpstream, Seen, Step, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
level = "warn"
[caps]
spool_disk_bytes = "{disk}"
[upstreams.app]
servers = ["{upstream}"]
keepalive = {keepalive}
fails = 1000
[[sites]]
hosts = ["app.test"]
rules = [{ handler = { proxy = { upstream = "app", {keys} } } }]
"#;

/// Less than the gateway gives a client that takes nothing.
const PATIENCE: Duration = Duration::from_secs(25);
const LARGE_BYTES: usize = 4 << 20;

fn gateway(upstream: &ScriptedUpstream, keys: &str, disk: &str) -> Builder {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .with("keys", keys)
        .with("disk", disk)
        .with("keepalive", 32)
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect()
}

fn put(length: usize) -> Vec<u8> {
    format!("PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

const CHUNKED: &[u8] = b"PUT / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n";

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n\r\n").into_bytes()
}

/// `/large` is [`LARGE_BYTES`] of the pattern; everything else tells which connection it is on.
fn serve(seen: &Seen) -> Vec<Step> {
    let body = match seen.head.line.contains("/large") {
        true => pattern(LARGE_BYTES),
        false => seen.connection.to_string().into_bytes(),
    };
    vec![Step::ReadBody, Step::reply(200, body)]
}

/// Descriptors of temporary files the server holds.
fn temporary_files(gateway: &Gateway) -> usize {
    let open = open_files(gateway.server_pid()).into_iter();
    open.filter(|file| file.to_string_lossy().ends_with("(deleted)"))
        .count()
}

fn await_no_temporary_files(gateway: &Gateway) {
    eventually(PATIENCE, "temporary files to be given back", || {
        (temporary_files(gateway) == 0).then_some(())
    });
}

#[test]
fn the_upstream_hears_of_a_request_when_its_body_is_here() {
    let upstream = ScriptedUpstream::start(serve);
    let gateway = gateway(&upstream, "buffer_request = true", "1GiB").start();
    for length in [1, 60_000, 70_000, LARGE_BYTES] {
        let body = pattern(length);
        let (early, late) = body.split_at(length / 2);
        let mut client = gateway.client();
        client.send(&put(length));
        client.send(early);
        // Another request goes all the way while this one waits for its body.
        assert_eq!(reply(gateway.ask(&get("/"))).status, 200);
        assert_eq!(upstream.take_seen().len(), 1, "{length} bytes");
        client.send(late);
        assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
        let seen = upstream.next_seen();
        assert!(seen.complete && seen.body == body, "{length} bytes");
    }
    await_no_temporary_files(&gateway);
}

#[test]
fn a_body_taken_beforehand_has_a_length() {
    let upstream = ScriptedUpstream::start(serve);
    let gateway = gateway(&upstream, "buffer_request = true", "1GiB").start();
    let mut client = gateway.client();
    client.send(&[CHUNKED, b"3\r\nabc\r\n"].concat());
    client.send(b"3\r\ndef\r\n0\r\n\r\n");
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    let seen = upstream.next_seen();
    assert_eq!(seen.head.field("content-length"), Some("6"));
    assert_eq!(seen.head.count("transfer-encoding"), 0);
    assert_eq!(seen.body, b"abcdef");
    // One without a byte has one too; a request without a body has none.
    client.send(&[CHUNKED, b"0\r\n\r\n"].concat());
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    assert_eq!(upstream.next_seen().head.field("content-length"), Some("0"));
    assert_eq!(reply(client.ask(&get("/"))).status, 200);
    assert_eq!(upstream.next_seen().head.count("content-length"), 0);
}

#[test]
fn a_body_taken_beforehand_is_invited_and_sent_once() {
    let upstream = ScriptedUpstream::start(|seen| match seen.nth {
        0 => vec![Step::ReadBody, Step::reply(200, "first")],
        _ => vec![Step::ReadBody, Step::Close],
    });
    let gateway = gateway(&upstream, "buffer_request = true", "1GiB").start();
    let mut client = gateway.client();
    client.send(
        b"PUT / HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(client.read_exactly(interim.len()), interim);
    client.send(b"abc");
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    // The kept connection closes: what was sent on it may have been heard.
    client.send(&[&put(3)[..], b"abc"].concat());
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 502);
    let bodies: Vec<_> = upstream
        .take_seen()
        .into_iter()
        .map(|seen| seen.body)
        .collect();
    assert_eq!(bodies, [b"abc", b"abc"]);
}

/// Sends a chunked body of so many bytes, in pieces, but not its end.
fn send_chunks(client: &mut RawClient, length: usize) {
    for piece in pattern(length).chunks(1 << 16) {
        let head = format!("{:x}\r\n", piece.len());
        client.send(&[head.as_bytes(), piece, b"\r\n"].concat());
    }
}

#[test]
fn what_cannot_be_kept_is_refused_before_the_upstream_hears_of_it() {
    let upstream = ScriptedUpstream::start(serve);
    let gateway = gateway(&upstream, "buffer_request = true", "1MiB").start();
    let mut client = gateway.client();
    client.send(&put(LARGE_BYTES));
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 413);
    let mut client = gateway.client();
    client.send(CHUNKED);
    send_chunks(&mut client, LARGE_BYTES);
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 413);
    // Two that would fit, but not together; what was refused has given its room back.
    await_no_temporary_files(&gateway);
    let mut first = gateway.client();
    first.send(CHUNKED);
    send_chunks(&mut first, 600 << 10);
    eventually(PATIENCE, "the first body to be set aside", || {
        (temporary_files(&gateway) == 1).then_some(())
    });
    let second = eventually(PATIENCE, "a full disk", || {
        let mut second = gateway.client();
        second.send(CHUNKED);
        send_chunks(&mut second, 500 << 10);
        second.send(b"0\r\n\r\n");
        let reply = reply(second.read_reply(Body::Framed));
        (reply.status != 200).then_some(reply)
    });
    assert_eq!(second.status, 503);
    gateway.wait_for_message("spool_full");
    let _ = upstream.take_seen();
    first.send(b"0\r\n\r\n");
    assert_eq!(reply(first.read_reply(Body::Framed)).status, 200);
    assert_eq!(upstream.next_seen().body.len(), 600 << 10);
    await_no_temporary_files(&gateway);
}

/// A gateway that keeps no connection to the upstream: a free one is a closed one.
fn releasing(upstream: &ScriptedUpstream) -> Gateway {
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("keepalive", 0)
        .with("upstream", upstream.address())
        .with("keys", "buffer_reply = \"8MiB\"")
        .with("disk", "1GiB");
    gateway.start()
}

/// Asks for `/large` without reading the reply; says how long the upstream's connection was held.
fn held_by_a_slow_reader(gateway: &Gateway, upstream: &ScriptedUpstream) -> (RawClient, Duration) {
    let mut slow = RawClient::connect_narrow(gateway.address());
    let start = Instant::now();
    slow.send(&get("/large"));
    let _ = upstream.next_seen();
    eventually(PATIENCE, "the upstream's connection to be free", || {
        (upstream.open_connections() == 0).then_some(())
    });
    let held = start.elapsed();
    assert!(temporary_files(gateway) > 0, "the reader was not slow");
    (slow, held)
}

fn assert_large(client: &mut RawClient) {
    let reply = reply(client.read_reply(Body::Framed));
    assert!(
        reply.complete && reply.body == pattern(LARGE_BYTES),
        "{} bytes",
        reply.body.len()
    );
}

#[test]
fn a_slow_reader_does_not_hold_the_upstream() {
    // Without the gateway's help it would be held until somebody reads, which nobody does.
    const IN_TIME: Duration = Duration::from_secs(1);
    let upstream = ScriptedUpstream::start(serve);
    let gateway = releasing(&upstream);
    // Noise of the machine only ever adds: one round in time shows what the gateway takes.
    let rounds: Vec<_> = (0..10)
        .map(|_| {
            let (mut slow, held) = held_by_a_slow_reader(&gateway, &upstream);
            assert_large(&mut slow);
            held
        })
        .collect();
    println!("held for {:?} of 10 rounds", rounds.iter().min());
    assert!(rounds.iter().any(|held| *held < IN_TIME), "{rounds:?}");
    await_no_temporary_files(&gateway);
}

#[test]
fn many_slow_readers_cost_little_memory() {
    const READERS: usize = 20;
    /// Had the replies stayed in memory it would be [`READERS`] times [`LARGE_BYTES`].
    const GROWTH_BYTES_MAX: u64 = 16 << 20;
    let upstream = ScriptedUpstream::start(serve);
    let gateway = releasing(&upstream);
    let before = gateway.server_peak_bytes();
    let mut readers: Vec<_> = (0..READERS)
        .map(|_| held_by_a_slow_reader(&gateway, &upstream).0)
        .collect();
    let grown = gateway.server_peak_bytes().saturating_sub(before);
    println!("{READERS} slow readers: {} KiB", grown / 1024);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
    readers.iter_mut().for_each(assert_large);
    await_no_temporary_files(&gateway);
}

#[test]
fn a_reader_that_leaves_gives_the_disk_back() {
    let upstream = ScriptedUpstream::start(serve);
    let gateway = releasing(&upstream);
    let readers: Vec<_> = (0..5)
        .map(|_| held_by_a_slow_reader(&gateway, &upstream).0)
        .collect();
    drop(readers);
    await_no_temporary_files(&gateway);
}

/// Reads `/large` with pauses; it must come whole however little may be set aside.
fn assert_whole_at_the_clients_pace(gateway: &Gateway) {
    let mut client = RawClient::connect_narrow(gateway.address());
    client.send(&get("/large"));
    let head = reply(client.read_reply(Body::Never));
    assert_eq!(head.status, 200);
    for piece in pattern(LARGE_BYTES).chunks(LARGE_BYTES / 8) {
        std::thread::sleep(Duration::from_millis(20));
        assert!(client.read_exactly(piece.len()) == piece);
    }
    assert_eq!(reply(client.ask(&get("/"))).status, 200);
}

#[test]
fn without_room_a_reply_streams_at_the_clients_pace() {
    let upstream = ScriptedUpstream::start(serve);
    for (keys, disk) in [
        ("buffer_reply = \"1KiB\"", "1GiB"),
        ("buffer_reply = \"100KiB\"", "1GiB"),
        ("buffer_reply = \"8MiB\"", "128KiB"),
    ] {
        let gateway = gateway(&upstream, keys, disk).start();
        assert_whole_at_the_clients_pace(&gateway);
    }
}

#[test]
fn without_a_place_for_files_replies_stream_and_long_bodies_are_refused() {
    let upstream = ScriptedUpstream::start(serve);
    let keys = "buffer_request = true, buffer_reply = \"8MiB\"";
    let gateway = gateway(&upstream, keys, "1GiB")
        .env("TMPDIR", "/nonexistent")
        .start();
    assert_whole_at_the_clients_pace(&gateway);
    let mut client = gateway.client();
    client.send(&put(10_000));
    client.send(&pattern(10_000));
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
    client.send(&put(LARGE_BYTES));
    client.send(&pattern(LARGE_BYTES));
    assert_eq!(reply(client.read_reply(Body::Framed)).status, 503);
    gateway.wait_for_message("spool_full");
}

#[test]
fn heads_and_chunks_pass_as_without_a_buffer() {
    let upstream = ScriptedUpstream::start(|seen| {
        let head = "HTTP/1.1 200 OK\r\n";
        let reply = match seen.head.line.starts_with("HEAD") {
            true => format!("{head}Content-Length: 7\r\n\r\n"),
            false => {
                format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
            }
        };
        vec![Step::ReadBody, Step::Send(reply.into_bytes())]
    });
    let keys = "buffer_request = true, buffer_reply = \"8MiB\"";
    let gateway = gateway(&upstream, keys, "1GiB").start();
    let mut client = gateway.client();
    client.send(b"HEAD / HTTP/1.1\r\nHost: app.test\r\n\r\n");
    let head = reply(client.read_reply(Body::Never));
    assert_eq!(head.head.field("content-length"), Some("7"));
    let chunked = reply(client.ask(&get("/")));
    assert_eq!(
        (chunked.complete, &chunked.body[..]),
        (true, &b"abcdef"[..])
    );
}
