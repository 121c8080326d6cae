//! What becomes of an exchange when something breaks.

use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::Underway;
use crate::exchange::{Exchange, Peer};
use crate::listener::{self, Arrival};
use crate::testbed::{Bed, block_on};
use crate::worker::Worker;

const SITES: &str = r#"
[[listen]]
address = "127.0.0.1:8080"
[log]
access = "-"
format = "json"
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

/// Fails like a handler with a mistake in it.
pub(super) fn break_down(exchange: &mut Exchange) {
    let path = exchange.request.head.path();
    if path.starts_with(b"/panic") {
        if path.ends_with(b"/late") {
            exchange.outgoing.status = 200;
            exchange.send_head(crate::exchange::BodySize::Length(100));
            exchange.reply.push(b"begun");
        }
        panic!("a mistake");
    }
}

/// An exchange that never ends.
pub(crate) async fn stuck(worker: &Rc<Worker>, exchange: &mut Exchange) {
    let underway = Underway::begin(worker, exchange);
    let outcome = std::future::pending().await;
    underway.finish(outcome);
}

fn connect(bed: &Bed) -> UnixStream {
    let (client, server) = UnixStream::pair().unwrap();
    let server = server.into_std().unwrap();
    let arrival = Arrival {
        stream: server.into(),
        peer: Peer::LOCAL,
    };
    listener::start(&bed.worker, None, arrival);
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

#[test]
fn a_panic_is_one_clients_500_and_nobody_elses() {
    let bed = Bed::new(SITES);
    block_on(async {
        let (mut one, mut other) = (connect(&bed), connect(&bed));
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
    let records = bed.records();
    assert_eq!(records.lines().count(), 3);
    let panicked: Vec<_> = records
        .lines()
        .filter(|line| line.contains("\"/panic\""))
        .collect();
    assert!(panicked[0].contains("\"status\":500") && panicked[0].contains("\"reason\":\"panic\""));
    assert_eq!(
        bed.worker
            .stats
            .panics
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[test]
fn a_panic_after_the_head_cuts_the_reply_short() {
    let bed = Bed::new(SITES);
    block_on(async {
        let mut client = connect(&bed);
        say(&mut client, "/panic/late").await;
        let reply = read_all(&mut client).await;
        assert!(
            reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("begun"),
            "{reply}"
        );
    });
    assert_eq!(bed.records().lines().count(), 1);
}
