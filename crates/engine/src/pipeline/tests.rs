//! What becomes of an exchange when something breaks.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::exchange::Exchange;
use crate::exchange::reply::BodySize;
use crate::exchange::request::Peer;
use crate::fixture::{Fixture, block_on};
use crate::listener::arrival::Arrival;
use crate::stage::{Arrived, Chosen};
use crate::{listener, reply_head};

const SITES: &str = r#"
[log]
access = "-"
format = "json"
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

thread_local! {
    /// Lets those go on that wait in [`break_down`], one for each permit.
    static HELD: Rc<Semaphore> = Rc::new(Semaphore::const_new(0));
}

/// Begins an exchange whose scripts are about to run.
pub(crate) fn begin(arrived: Arrived<'_>, exchange: &mut Exchange) {
    super::begin(arrived, exchange);
    let generation = &arrived.serving.generation;
    let destination = generation.destination_of(exchange.request.head.host());
    super::find_site(arrived, exchange, destination).expect("a site");
    exchange
        .scripted()
        .enter(arrived.worker, arrived.serving, script::Phase::Access);
}

/// Lets one exchange go on that is held, now or when it comes.
pub(crate) fn release_one() {
    HELD.with(|held| held.add_permits(1));
}

/// Takes its time, or fails, like a handler that is slow or has a mistake in it.
pub(super) async fn break_down(chosen: Chosen<'_>, exchange: &mut Exchange) {
    if exchange.request.head.path().starts_with(b"/hold") {
        let held = HELD.with(Rc::clone);
        held.acquire().await.expect("never closed").forget();
    }
    let path = exchange.request.head.path();
    if path.starts_with(b"/panic") || path.ends_with(b"/panic") {
        if path.ends_with(b"/late") {
            exchange.outgoing.status = 200;
            let sent = reply_head::send(**chosen, exchange, BodySize::Length(100));
            sent.await.expect("no filters");
            exchange.reply.push(b"begun");
        }
        panic!("a mistake");
    }
}

fn connect(fixture: &Fixture) -> UnixStream {
    let (client, server) = UnixStream::pair().unwrap();
    let server = server.into_std().unwrap();
    let arrival = Arrival {
        stream: server.into(),
        peer: Peer::LOCAL,
        listener: crate::fixture::listener(),
    };
    listener::connection::start(&fixture.worker, arrival);
    client
}

async fn say(client: &mut UnixStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
}

async fn read_all(client: &mut UnixStream) -> String {
    let mut reply = String::new();
    let _ = client.read_to_string(&mut reply).await;
    reply
}

/// More than a socket takes whose peer does not read.
pub(crate) const LARGE: usize = 4 << 20;

/// Asks for a large reply and reads its beginning; the rest waits for the client.
pub(crate) async fn read_beginning(fixture: &Fixture) -> UnixStream {
    let mut client = connect(fixture);
    say(&mut client, "/").await;
    client.read_exact(&mut [0; 1000]).await.unwrap();
    assert_eq!(fixture.records(), "", "nothing has ended yet");
    client
}

/// Checks the one record of a reply that was not sent to its end.
fn check_cut(fixture: &Fixture, reason: &str) {
    let record = fixture.records();
    assert_eq!(record.lines().count(), 1, "{record}");
    assert!(
        record.contains(&format!("\"reason\":\"{reason}\"")),
        "{record}"
    );
    let (_, bytes) = record.split_once("\"bytes\":").unwrap();
    let bytes: usize = bytes.split(',').next().unwrap().parse().unwrap();
    assert!((1..LARGE).contains(&bytes), "{record}");
}

#[test]
fn a_record_tells_what_was_sent_not_what_was_meant() {
    let fixture = Fixture::new(&SITES.replace("fine", &"x".repeat(LARGE)));
    block_on(async {
        drop(read_beginning(&fixture).await);
        while fixture.worker.loads.connections(0) > 0 {
            tokio::task::yield_now().await;
        }
    });
    check_cut(&fixture, "client_gone");
}

#[test]
fn the_report_on_a_worker_that_stands_still_names_the_request_it_began_last() {
    let fixture = Fixture::new(SITES);
    let reply = block_on(async {
        let mut client = connect(&fixture);
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        read_all(&mut client).await
    });
    let id = format!("{:016x}", fixture.worker.loads.last_request(0));
    assert!(reply.to_lowercase().contains(&id), "{id} is not in {reply}");
}

#[test]
fn a_client_that_keeps_reading_is_not_cut_however_long_it_takes() {
    const PATIENCE_MS: u64 = 300;
    let config = SITES.replace("fine", &"x".repeat(LARGE));
    let fixture = Fixture::new(&format!(
        "timeouts = {{ write = \"{PATIENCE_MS}ms\" }}\n{config}"
    ));
    let begun = Instant::now();
    let read = block_on(async {
        let worker = Rc::clone(&fixture.worker);
        let ticks = tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                worker.tick();
            }
        });
        let mut client = read_beginning(&fixture).await;
        let (mut read, mut block) = (1000, vec![0; 64 * 1024]);
        while let Ok(count @ 1..) = client.read(&mut block).await {
            read += count;
            // Its own pace: slower than the timeout for the whole, faster for each part.
            tokio::time::sleep(Duration::from_millis(10)).await;
            if read > LARGE {
                break;
            }
        }
        ticks.abort();
        read
    });
    assert!(read > LARGE, "cut after {read} bytes");
    assert!(begun.elapsed() > Duration::from_millis(PATIENCE_MS));
}

#[test]
fn many_requests_at_once_leave_others_their_turn() {
    const REQUESTS: u64 = 1_000;
    let fixture = Fixture::new(SITES);
    let most = block_on(async {
        let mut client = connect(&fixture);
        let all = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS as usize);
        client.write_all(all.as_bytes()).await.unwrap();
        let (mut reader, _writer) = client.into_split();
        tokio::task::spawn_local(async move {
            let mut block = vec![0; 64 * 1024];
            while let Ok(1..) = reader.read(&mut block).await {}
        });
        let (mut most, mut last) = (0, 0);
        while last < REQUESTS {
            tokio::task::yield_now().await;
            let begun = fixture.worker.stats.begun.load(Ordering::Relaxed);
            most = most.max(begun - last);
            last = begun;
        }
        most
    });
    assert!(most < 200, "{most} requests in one turn");
}

#[test]
fn an_exchange_dropped_on_its_way_is_recorded_once() {
    let fixture = Fixture::new(&SITES.replace("fine", &"x".repeat(LARGE)));
    let client = block_on(read_beginning(&fixture));
    check_cut(&fixture, "cut_off");
    drop(client);
}

#[test]
fn a_panic_is_one_clients_500_and_nobody_elses() {
    let fixture = Fixture::new(SITES);
    block_on(async {
        let (mut one, mut other) = (connect(&fixture), connect(&fixture));
        say(&mut other, "/before").await;
        let mut seen = [0; 12];
        other.read_exact(&mut seen).await.unwrap();
        say(&mut one, "/panic").await;
        let reply = read_all(&mut one).await;
        assert!(reply.starts_with("HTTP/1.1 500 "), "{reply}");
        assert!(
            reply.contains("Connection: close") && !reply.contains("mistake"),
            "{reply}"
        );
        say(&mut other, "/after").await;
        other.shutdown().await.unwrap();
        let reply = read_all(&mut other).await;
        assert!(reply.matches("fine").count() == 2, "{reply}");
    });
    let records = fixture.records();
    assert_eq!(records.lines().count(), 3);
    let panicked: Vec<_> = records
        .lines()
        .filter(|line| line.contains("\"/panic\""))
        .collect();
    assert!(panicked[0].contains("\"status\":500") && panicked[0].contains("\"reason\":\"panic\""));
    assert_eq!(
        fixture
            .worker
            .stats
            .panics
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[test]
fn a_panic_after_the_head_cuts_the_reply_short() {
    let fixture = Fixture::new(SITES);
    block_on(async {
        let mut client = connect(&fixture);
        say(&mut client, "/panic/late").await;
        let reply = read_all(&mut client).await;
        assert!(
            reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("begun"),
            "{reply}"
        );
    });
    assert_eq!(fixture.records().lines().count(), 1);
}
