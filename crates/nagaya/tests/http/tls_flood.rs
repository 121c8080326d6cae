//! A flood of handshakes, and hellos that mean harm: nobody else is to notice.
//!
//! Whoever floods sends a hello that was made beforehand, and goes: it costs him nothing, and the server a key
//! exchange and a signature. Each of his clients has an address of its own, as each of the others has.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use testkit::{Gateway, eventually, free_port};

use crate::fixtures::limited::ask;
use crate::fixtures::tls::{self, PATIENCE, TlsClient, connect_from};

/// Clients of the flood.
const CLIENTS: u32 = 200;
/// Connections that one thread of the flood keeps open.
const OPEN_MAX: usize = 128;
/// Names that are asked for.
const NAMES: usize = 100;

/// A gateway that speaks TLS for [`NAMES`] names, each of a tenant of its own; where it does.
fn gateway(workers: usize, more: &str) -> (Gateway, SocketAddr) {
    let mut config = format!(
        "workers = {workers}\n{more}\n[control]\nsocket = \"{{dir}}/control\"\n\
         [[listen]]\naddress = \"127.0.0.1:{{port}}\"\n\
         [[listen]]\naddress = \"127.0.0.1:{{tls}}\"\ntls = true\n\
         [tls]\ncertificates = [\"{{dir}}/*.pem\"]\n"
    );
    for number in 0..NAMES {
        config += &format!(
            "[[sites]]\nhosts = [\"s{number}.example\"]\ntenant = \"t{number}\"\n\
             rules = [{{ handler = {{ respond = {{ body = \"fine\" }} }} }}]\n\
             [tenants.t{number}]\n"
        );
    }
    let port = free_port();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config).with("tls", port);
    tls::certificate(&builder.directory().path().join("all.pem"), &["*.example"]);
    (builder.start(), SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Threads that open connections, say a hello and let it lie, until this is dropped.
struct Flood {
    is_over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    /// So many hellos a second in all, each for one of these names.
    fn begin(to: SocketAddr, hellos: Vec<Vec<u8>>, per_second: u32) -> Self {
        const THREADS: u32 = 4;
        let (is_over, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let hellos = Arc::new(hellos);
        let pause = Duration::from_secs(1) * THREADS / per_second;
        let thread = |number: u32| {
            let (is_over, sent, hellos) =
                (Arc::clone(&is_over), Arc::clone(&sent), Arc::clone(&hellos));
            thread::spawn(move || {
                let mut open: VecDeque<TcpStream> = VecDeque::new();
                let mut due = Instant::now();
                let mut count = number;
                while !is_over.load(Relaxed) {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    due += pause;
                    count += THREADS;
                    let client = Ipv4Addr::from(0x7f01_0000 + count % CLIENTS + 1).octets();
                    let hello = &hellos[count as usize * 7_919 % hellos.len()];
                    if let Ok(mut stream) = connect_from(client, to)
                        && stream.write_all(hello).is_ok()
                    {
                        sent.fetch_add(1, Relaxed);
                        open.push_back(stream);
                    }
                    while open.len() > OPEN_MAX {
                        open.pop_front();
                    }
                }
            })
        };
        let threads = (0..THREADS).map(thread).collect();
        Self {
            is_over,
            sent,
            threads,
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has failed by that.
            let _ = thread.join();
        }
    }
}

/// How long others took, in order.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn part(&self, share: f64) -> Duration {
        let at = (self.0.len() as f64 * share) as usize;
        self.0
            .get(at.min(self.0.len() - 1))
            .copied()
            .unwrap_or_default()
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [half, most] = [0.5, 0.99].map(|share| self.part(share).as_micros());
        write!(f, "{} times, p50 {half} µs, p99 {most} µs", self.0.len())
    }
}

/// Handshakes of clients that were not here before, and requests over one connection, for a while.
fn others(config: &Arc<ClientConfig>, to: SocketAddr, lasts: Duration) -> (Times, Times) {
    let until = Instant::now() + lasts;
    let kept = {
        let config = Arc::clone(config);
        thread::spawn(move || {
            let mut kept = TlsClient::connect(&config, [127, 3, 0, 1], to, "s1.example")
                .expect("a connection");
            let mut times = Vec::new();
            while Instant::now() < until {
                let begun = Instant::now();
                assert_eq!(kept.get("/").expect("a reply"), (200, b"fine".to_vec()));
                times.push(begun.elapsed());
                thread::sleep(Duration::from_millis(5));
            }
            times
        })
    };
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut handshakes = Vec::new();
    while Instant::now() < until {
        let number = NEXT.fetch_add(1, Relaxed) as u32;
        let client = Ipv4Addr::from(0x7f02_0001 + number).octets();
        let begun = Instant::now();
        let name = ["s0.example", "s1.example"][number as usize % 2];
        let mut client = TlsClient::connect(config, client, to, name).expect("a handshake");
        handshakes.push(begun.elapsed());
        assert_eq!(client.get("/").expect("a reply").0, 200);
        thread::sleep(Duration::from_millis(20));
    }
    let sorted = |mut times: Vec<Duration>| {
        times.sort_unstable();
        Times(times)
    };
    (
        sorted(handshakes),
        sorted(kept.join().expect("the kept connection")),
    )
}

/// The hellos of a flood: on one name, or on a name of all.
fn hellos(config: &Arc<ClientConfig>, names: usize) -> Vec<Vec<u8>> {
    let hello = |number| tls::hello(config, &format!("s{number}.example"));
    (0..names).map(hello).collect()
}

fn shed(gateway: &Gateway) -> bool {
    let status = ask(gateway, "status json");
    !status.contains("\"shed_by_tenant\":[]")
}

#[test]
fn beside_a_flood_of_handshakes_nobody_else_loses_one() {
    // A machine may stand still for longer than a handshake usually may.
    let (gateway, to) = gateway(1, "[timeouts]\nheader = \"60s\"\nhandshake = \"60s\"\n");
    let config = tls::credulous();
    for names in [1, NAMES] {
        let flood = Flood::begin(to, hellos(&config, names), 1_000);
        eventually(PATIENCE, "the flood has begun", || {
            (flood.sent.load(Relaxed) > 100).then_some(())
        });
        // Each of them was answered, or this has panicked.
        let (handshakes, kept) = others(&config, to, Duration::from_secs(2));
        assert!(!handshakes.0.is_empty() && !kept.0.is_empty());
    }
    assert!(
        !shed(&gateway),
        "no tenant is shed for handshakes that nobody finished"
    );
}

#[test]
#[ignore = "prints figures that depend on the machine"]
fn what_a_flood_of_handshakes_costs_the_others() {
    let (gateway, to) = gateway(1, "[caps]\nrequests_per_connection = 1000000\n");
    let config = tls::credulous();
    let lasts = Duration::from_secs(10);
    let (handshakes, kept) = others(&config, to, lasts);
    println!("without a flood: handshakes {handshakes}; kept requests {kept}");
    for (names, what) in [(1, "one name"), (NAMES, "a random one of 100 names")] {
        let flood = Flood::begin(to, hellos(&config, names), 2_000);
        thread::sleep(Duration::from_secs(1));
        let (begun, before) = (Instant::now(), flood.sent.load(Relaxed));
        let (handshakes, kept) = others(&config, to, lasts);
        let rate = (flood.sent.load(Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
        drop(flood);
        println!("{rate:.0} hellos/s on {what}: handshakes {handshakes}; kept requests {kept}");
    }
    println!("{}", ask(&gateway, "status"));
}

/// Sends bytes, perhaps slowly, and reads what comes until the connection ends.
fn sent(to: SocketAddr, pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut stream = connect_from([127, 4, 0, 1], to).expect("a connection");
    for piece in pieces {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let mut received = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut received);
    received
}

/// Why the last handshake of [`sent`] came to nothing.
fn reason(gateway: &Gateway) -> String {
    let told = ask(gateway, "why-tls 127.4.0.1 json");
    let reason = told.split("\"reason\":\"").nth(1).unwrap_or_default();
    reason.split('"').next().unwrap_or_default().to_owned()
}

fn record(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
    [&[22, 3, 1][..], &length, payload].concat()
}

#[test]
fn hellos_that_mean_harm_are_refused_and_why_tells_the_reason() {
    let (gateway, to) = gateway(1, "[timeouts]\nhandshake = \"1s\"\nheader = \"1s\"\n");
    let good = tls::hello(&tls::credulous(), "s1.example");
    let unknown = tls::hello(&tls::credulous(), "nobody.test");
    let long = [&[1, 0, 0x3f, 0xff][..], &[0; 15_000]].concat();
    let cases: [(&str, Vec<Vec<u8>>, &str); 7] = [
        (
            "http",
            vec![b"GET / HTTP/1.1\r\nHost: s1.example\r\n\r\n".to_vec()],
            "plain_http",
        ),
        (
            "another protocol",
            vec![b"\x00\x01\x02\x03".to_vec()],
            "bad_hello",
        ),
        ("nobody's name", vec![unknown], "no_certificate"),
        (
            "one byte a record",
            good[5..].chunks(1).map(record).collect(),
            "hello_too_large",
        ),
        (
            "a length beyond all",
            vec![record(&[1, 0xff, 0xff, 0xff])],
            "hello_too_large",
        ),
        (
            "half a hello",
            vec![good[..good.len() / 2].to_vec()],
            "client_slow",
        ),
        (
            "zeros in place of a hello",
            long.chunks(8_000).map(record).collect(),
            "client_slow",
        ),
    ];
    for (what, pieces, expected) in cases {
        let received = sent(to, pieces.into_iter());
        eventually(PATIENCE, what, || {
            (reason(&gateway) == expected).then_some(())
        });
        let is_page = received.starts_with(b"HTTP/1.1 400");
        assert_eq!(is_page, expected == "plain_http", "{what}: {received:?}");
    }
    let mut client = TlsClient::connect(&tls::credulous(), [127, 4, 0, 2], to, "s1.example")
        .expect("a handshake");
    assert_eq!(client.get("/").expect("a reply").0, 200);
}

#[test]
fn a_hello_in_many_records_is_as_good_as_one_in_one() {
    let (_gateway, to) = gateway(1, "");
    let good = tls::hello(&tls::credulous(), "s1.example");
    let parts = good[5..].chunks(good.len() / 20).map(record);
    let mut stream = connect_from([127, 4, 0, 1], to).expect("a connection");
    for part in parts {
        stream.write_all(&part).expect("taken");
    }
    let mut first = [0; 5];
    stream.read_exact(&mut first).expect("a record");
    assert_eq!(first[0], 22, "the server's hello, not an alert: {first:?}");
}

#[test]
fn who_begins_handshakes_too_fast_is_told_no_by_his_limit() {
    let limit = "limits = [{ on = \"handshake\", key = \"client\", rate = \"1/h\", burst = 2 }]";
    let (gateway, to) = gateway(1, limit);
    let config = tls::credulous();
    let connect = |client| TlsClient::connect(&config, [127, 4, 0, client], to, "s1.example");
    assert!(connect(1).is_ok() && connect(1).is_ok());
    assert!(connect(1).is_err(), "the third");
    assert!(connect(2).is_ok(), "another client's first");
    assert_eq!(reason(&gateway), "handshake_limited");
    let list = ask(&gateway, "limits list");
    assert!(list.contains("process/handshake client"), "{list}");
    let status = ask(&gateway, "status");
    assert!(status.contains("handshakes   "), "{status}");
}
