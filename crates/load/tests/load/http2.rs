//! Loads by HTTP/2, against a server that this test is itself.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{constant, load};
use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use http::{Request, Response};
use load::client::{Errors, Plan, Protocol, RequestBuilder, Reuse, Url};
use tokio::net::{TcpListener, TcpStream};

/// What a server does with connections and requests.
#[derive(Debug, Clone, Copy)]
struct Manners {
    /// Requests after which a connection is ended, in good order.
    goes_after: u64,
    /// Streams it takes.
    streams: u32,
    /// Each so-manieth request is reset.
    resets: u64,
    /// Silent for so long from the fiftieth request on, all connections.
    stalls: Duration,
    body: &'static [u8],
}

const FINE: Manners = Manners {
    goes_after: u64::MAX,
    streams: 100,
    resets: u64::MAX,
    stalls: Duration::ZERO,
    body: b"hello",
};

/// A server that leaves with the process.
#[derive(Debug, Clone)]
struct Server {
    address: SocketAddr,
    seen: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    manners: Manners,
}

impl Server {
    fn start(manners: Manners) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let server = Server {
            address: listener.local_addr().expect("it is bound"),
            seen: Arc::default(),
            connections: Arc::default(),
            manners,
        };
        let own = server.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                while let Ok((client, _)) = listener.accept().await {
                    own.connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(own.clone().serve(client));
                }
            });
        });
        server
    }

    async fn serve(self, client: TcpStream) {
        let mut builder = Builder::new();
        builder.max_concurrent_streams(self.manners.streams);
        let greeted = builder.handshake::<_, Bytes>(client).await;
        let Ok(mut connection): Result<Connection<_, _>, _> = greeted else {
            return;
        };
        let mut served = 0;
        while let Some(Ok((request, reply))) = connection.accept().await {
            served += 1;
            if served == self.manners.goes_after {
                connection.graceful_shutdown();
            }
            tokio::spawn(self.clone().answer(request, reply));
        }
        let _ = poll_fn(|context| connection.poll_closed(context)).await;
    }

    async fn answer(self, request: Request<h2::RecvStream>, mut reply: SendResponse<Bytes>) {
        let mut body = request.into_body();
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
        }
        let nth = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if nth == 50 {
            // All it serves stands still, as a program does that is out of breath.
            std::thread::sleep(self.manners.stalls);
        }
        if nth.is_multiple_of(self.manners.resets) {
            return reply.send_reset(h2::Reason::INTERNAL_ERROR);
        }
        if let Ok(mut stream) = reply.send_response(Response::new(()), false) {
            let _ = stream.send_data(Bytes::from_static(self.manners.body), true);
        }
    }

    fn plan(&self, requests: u64) -> Plan {
        plan(self.address, requests)
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

fn plan(address: SocketAddr, requests: u64) -> Plan {
    let url: Url = format!("http://{address}/").parse().expect("a URL");
    let request = RequestBuilder::default().build(&url).expect("a request");
    let mut plan = Plan::new(vec![request]);
    plan.protocol = Protocol::Http2 { streams: 8 };
    plan.end.requests = Some(requests);
    plan.end.after = Some(Duration::from_secs(60));
    plan
}

#[test]
fn every_stream_of_every_connection_asks_again() {
    let server = Server::start(FINE);
    let mut plan = server.plan(2_000);
    plan.connections = 3;
    plan.threads = 2;
    let outcome = load(&plan);
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (2_000, 0),
        "{outcome:?}"
    );
    assert_eq!((server.seen(), server.connections()), (2_000, 3));
    assert_eq!(outcome.body_bytes, 10_000);
    assert_eq!(outcome.times.response.count(), 2_000);
    // Frames: nine bytes of each head's and each body's, and the fields packed.
    assert!(
        outcome.received_bytes > 2_000 * (9 + 1 + 9 + 5),
        "{outcome:?}"
    );
    assert!(outcome.sent_bytes > 2_000 * (9 + 4), "{outcome:?}");
    assert!(outcome.on_kept_connections > 1_900, "{outcome:?}");
    assert_eq!(outcome.first.and_then(|first| first.streams_max), Some(100));
}

#[test]
fn a_body_is_sent_and_a_long_reply_is_read_through_its_window() {
    static LONG: [u8; 3_000_000] = [b'x'; 3_000_000];
    let server = Server::start(Manners {
        body: &LONG,
        ..FINE
    });
    let mut plan = server.plan(40);
    let url: Url = format!("http://{}/", server.address)
        .parse()
        .expect("a URL");
    let builder = RequestBuilder {
        method: "POST".to_owned(),
        body: vec![b'y'; 200_000],
        ..RequestBuilder::default()
    };
    plan.requests = vec![builder.build(&url).expect("a request")];
    let outcome = load(&plan);
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (40, 0),
        "{outcome:?}"
    );
    assert_eq!(outcome.body_bytes, 40 * 3_000_000);
    assert!(outcome.sent_bytes > 40 * 200_000);
}

#[test]
fn a_server_that_goes_in_good_order_costs_no_request() {
    let server = Server::start(Manners {
        goes_after: 20,
        ..FINE
    });
    let outcome = load(&server.plan(1_000));
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (1_000, 0),
        "{outcome:?}"
    );
    assert_eq!(server.seen(), 1_000);
    assert!(server.connections() >= 25, "{}", server.connections());
}

#[test]
fn connections_are_made_anew_after_their_requests() {
    let server = Server::start(FINE);
    let mut plan = server.plan(100);
    plan.reuse = Reuse::Requests(10);
    let outcome = load(&plan);
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (100, 0),
        "{outcome:?}"
    );
    assert_eq!((server.seen(), server.connections()), (100, 10));
}

#[test]
fn a_stream_that_is_reset_is_a_failure_with_its_reason() {
    let server = Server::start(Manners { resets: 10, ..FINE });
    let outcome = load(&server.plan(500));
    assert_eq!(
        (outcome.completed, outcome.errors.reset),
        (450, 50),
        "{outcome:?}"
    );
    assert_eq!((server.seen(), server.connections()), (500, 1));
    let words = &outcome.first_failures[0].text;
    assert!(words.contains("reset the stream: "), "{words}");
    assert!(words.contains("internal error"), "{words}");
}

#[test]
fn more_streams_than_the_server_takes_wait_and_are_not_refused() {
    let server = Server::start(Manners { streams: 2, ..FINE });
    let outcome = load(&server.plan(300));
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (300, 0),
        "{outcome:?}"
    );
    assert_eq!(outcome.first.and_then(|first| first.streams_max), Some(2));
}

#[test]
fn who_waits_while_the_server_stalls_is_in_the_latencies() {
    let server = Server::start(Manners {
        stalls: Duration::from_millis(500),
        ..FINE
    });
    let mut plan = server.plan(300);
    plan.protocol = Protocol::Http2 { streams: 4 };
    plan.pace = constant(300.0);
    let outcome = load(&plan);
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (300, 0),
        "{outcome:?}"
    );
    assert_eq!(outcome.schedule.due, 300);
    // Some 150 were due in the half second; all but a few were sent after it.
    let waited_us = outcome.times.response.quantile_us(0.75);
    assert!(waited_us > 100_000, "{waited_us}");
    let service_us = outcome.times.service.quantile_us(0.75);
    assert!(service_us < 100_000, "{service_us}");
    assert!(outcome.schedule.late >= 100, "{:?}", outcome.schedule);
}

#[test]
fn a_server_without_http2_is_said_to_be_one() {
    let upstream = testkit::ScriptedUpstream::fixed("hello");
    let begun = Instant::now();
    let outcome = load(&plan(upstream.address(), 16));
    assert_eq!(
        (outcome.completed, outcome.failed()),
        (0, 16),
        "{outcome:?}"
    );
    assert_ne!(outcome.errors, Errors::default());
    assert!(begun.elapsed() < Duration::from_secs(20), "it gives up");
}
