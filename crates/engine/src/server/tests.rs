//! What workers owe each other: even shares, and help for one that is held up.

mod start;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use os::net::{Bind, bind, local_address};

use super::*;
use ipc::server::{Challenge, ChallengeProof, ListenerSocket, Tally};

/// The model's listeners are not looked at: sockets come with their address.
const CONFIG: &str = r#"
workers = 2
[[listen]]
address = "127.0.0.1:1"
[log]
access = ""
[[sites]]
hosts = ["*"]
rules = [{ handler = { respond = { body = "ok" } } }]
"#;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// One server at a time: each takes all the processor it gets.
static TURN: Mutex<()> = Mutex::new(());

/// A server of two workers in this process.
struct Running {
    _turn: MutexGuard<'static, ()>,
    server: Option<ServerThreads>,
    address: SocketAddr,
    receiver: LinkReceiver,
    _supervisor: OwnedFd,
}

/// A loopback address nobody listens at, and a socket there for each worker.
fn listeners(at: SocketAddr) -> (SocketAddr, Vec<ListenerSocket>) {
    let first = bind(&Bind::Tcp(at), 1_024).expect("bind");
    let address = local_address(first.as_fd()).expect("bound");
    let second = bind(&Bind::Tcp(address), 1_024).expect("share");
    let sockets = [first, second].into_iter().enumerate();
    let listener = |(worker, socket)| ListenerSocket {
        address: ListenAddress::Tcp(address),
        worker: Some(worker),
        socket,
    };
    (address, sockets.map(listener).collect())
}

/// A generation that answers with `body`.
fn configure(generation: u64, body: &str, listeners: Vec<ListenerSocket>) -> Configure {
    let text = CONFIG.replace("\"ok\"", &format!("\"{body}\""));
    configure_by(generation, &text, listeners)
}

fn configure_by(generation: u64, text: &str, listeners: Vec<ListenerSocket>) -> Configure {
    let sources = config::Sources::from_text("nagaya.toml", text).to_bytes();
    Configure {
        generation,
        sources: os::file::memfd("sources", &sources).expect("memory file"),
        listeners,
        logs: Vec::new(),
        control: None,
        programs: Vec::new(),
        keeper: Vec::new(),
        certificates: None,
        earlier: None,
        challenges: Vec::new(),
        layout: Default::default(),
        tally: Tally::default(),
    }
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Asks on a fresh connection; the reply is for later.
fn send(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connect");
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).expect("an option");
    stream.write_all(REQUEST).expect("send");
    stream
}

fn read(stream: &mut TcpStream) -> String {
    let mut reply = [0; 1024];
    let count = stream.read(&mut reply).expect("a reply");
    let reply = String::from_utf8_lossy(&reply[..count]).into_owned();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    reply
}

impl Running {
    fn start() -> Self {
        Self::start_with(Vec::new())
    }

    fn start_with(challenges: Vec<Challenge>) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (address, listeners) = listeners(anywhere());
        let (supervisor, link) = os::fdpass::pair().expect("link");
        let sender = LinkSender::new(&link).expect("a sender");
        let mut receiver = LinkReceiver::new(link);
        let mut first = configure(1, "ok", listeners);
        first.challenges = challenges;
        let server = ServerThreads::start(first, &sender, &mut receiver);
        Self {
            _turn: turn,
            server: Some(server.expect("start")),
            address,
            receiver,
            _supervisor: supervisor,
        }
    }

    fn configure(&mut self, configure: Configure) {
        let server = self.server.as_mut().expect("running");
        server
            .configure(configure, &mut self.receiver)
            .expect("in force");
    }

    /// Holds worker 0 up, once.
    fn hold_up(&self, busy: Duration) {
        let rest = Duration::from_secs(3_600);
        let shared = self.shared();
        assert!(shared.peers.tell(0, Command::Spin { busy, rest }));
        while !shared.loads.is_stuck(0) {
            std::thread::yield_now();
        }
    }

    fn shared(&self) -> &Shared {
        &self.server.as_ref().expect("running").shared
    }

    /// Connects and asks once.
    fn ask(&self) -> TcpStream {
        let mut stream = send(self.address);
        read(&mut stream);
        stream
    }

    /// The 99th percentile of connecting and asking once, over so many connections.
    fn p99(&self, connections: usize) -> Duration {
        let mut times: Vec<_> = (0..connections)
            .map(|_| {
                let start = Instant::now();
                drop(self.ask());
                start.elapsed()
            })
            .collect();
        times.sort();
        times[connections * 99 / 100]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.drain(&mut self.receiver);
        }
    }
}

#[test]
fn an_authority_is_answered_from_the_first_connection_on_and_by_a_generation_after() {
    let proof = ChallengeProof::Http {
        token: "one".into(),
        authorization: "one.thumb".into(),
    };
    let name = "x".to_owned();
    let mut running = Running::start_with(vec![Challenge { name, proof }]);
    let asked = |running: &Running| {
        let mut stream = TcpStream::connect(running.address).expect("connect");
        let request = b"GET /.well-known/acme-challenge/one HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request).expect("send");
        read(&mut stream)
    };
    assert!(asked(&running).ends_with("one.thumb"));
    let (_, listeners) = listeners(running.address);
    running.configure(configure(2, "next", listeners));
    assert!(asked(&running).ends_with("one.thumb"));
}

#[test]
fn a_worker_that_is_held_up_does_not_hold_up_new_clients() {
    const CONNECTIONS: usize = 500;
    const P99_MAX: Duration = Duration::from_millis(20);
    /// Noise of the machine only ever adds: one round in time shows what the server takes.
    const ROUNDS_MAX: usize = 8;
    let running = Running::start();
    let quiet = running.p99(CONNECTIONS);
    let spin = Command::Spin {
        busy: Duration::from_millis(50),
        rest: Duration::from_millis(10),
    };
    assert!(running.shared().peers.tell(0, spin));
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS_MAX && rounds.last().is_none_or(|p99| *p99 >= P99_MAX) {
        rounds.push(running.p99(CONNECTIONS));
    }
    println!("p99 quiet {quiet:?}, one worker held up {rounds:?}");
    assert!(rounds.iter().any(|p99| *p99 < P99_MAX), "{rounds:?}");
}

#[test]
fn kept_connections_are_shared_evenly() {
    const CONNECTIONS: usize = 200;
    let running = Running::start();
    let _kept: Vec<_> = (0..CONNECTIONS).map(|_| running.ask()).collect();
    let loads = &running.shared().loads;
    let shares = [loads.connections(0), loads.connections(1)];
    println!("{CONNECTIONS} connections: {shares:?}");
    assert_eq!(shares.iter().sum::<usize>(), CONNECTIONS);
    assert!(
        shares.iter().all(|share| *share <= CONNECTIONS * 6 / 10),
        "{shares:?}"
    );
}

#[test]
fn a_connection_handed_to_a_worker_about_to_drain_is_served() {
    let running = Running::start();
    let peers = &running.shared().peers;
    running.hold_up(Duration::from_millis(200));
    assert!(peers.tell(0, Command::Drain));
    let (mut client, ours) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("an option");
    let arrival = crate::listener::arrival::Arrival {
        stream: ours.into(),
        peer: crate::exchange::Peer::LOCAL,
        listener: crate::fixture::listener(),
    };
    if peers.hand(0, arrival).is_err() {
        return;
    }
    client.write_all(REQUEST).expect("sent");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[test]
fn a_worker_that_has_drained_is_not_taken_for_one_that_stands_still() {
    let running = Running::start();
    let (_kept, shared) = (running.ask(), running.shared());
    assert!(shared.peers.tell(0, Command::Drain));
    let threads = &running.server.as_ref().expect("running").threads;
    while !threads[0].is_finished() {
        std::thread::yield_now();
    }
    // The warden ends a server with a worker that is silent, and others may drain for long.
    assert_eq!(shared.loads.silence_us(0), None);
    assert!(!shared.loads.is_stuck(0));
}

#[test]
fn a_generation_that_one_worker_takes_late_is_in_force_and_can_be_followed() {
    const BUSY: Duration = Duration::from_secs(6);
    let mut running = Running::start();
    let start = Instant::now();
    running.hold_up(BUSY);
    let (second, sockets) = listeners(anywhere());
    running.configure(configure(2, "two", sockets));
    assert!(start.elapsed() < BUSY, "nobody waits for ever");
    let number = |running: &Running| running.shared().generation().map(|serves| serves.number);
    assert_eq!(number(&running), Some(2));
    // The first address is removed, but the late worker still accepts from it.
    let removed: Vec<_> = (0..16).map(|_| send(running.address)).collect();
    let (again, sockets) = listeners(running.address);
    running.configure(configure(3, "three", sockets));
    assert_eq!(number(&running), Some(3));
    for mut stream in removed {
        read(&mut stream);
    }
    let until = Instant::now() + Duration::from_secs(10);
    let says_three = || (0..16).all(|_| read(&mut send(again)).ends_with("three"));
    while !says_three() {
        assert!(Instant::now() < until, "a worker serves an old generation");
    }
    while TcpStream::connect(second).is_ok() {
        assert!(Instant::now() < until, "a removed listener stays open");
    }
}

#[test]
fn a_worker_that_was_silent_before_a_reload_is_not_waited_for() {
    let mut running = Running::start();
    let until = Instant::now() + Duration::from_secs(10);
    let await_silence = |running: &Running, wanted: Duration| {
        let loads = &running.shared().loads;
        let wanted = |silence_us| Duration::from_micros(silence_us) >= wanted;
        while !loads.silence_us(0).is_some_and(wanted) {
            assert!(Instant::now() < until, "{:?}", loads.silence_us(0));
            std::thread::yield_now();
        }
    };
    // Its first heartbeat first: before it, nothing is known of a worker.
    await_silence(&running, Duration::ZERO);
    running.hold_up(Duration::from_secs(3));
    await_silence(&running, Swap::PATIENCE);
    // The machine may hold one of them up as well.
    let at_once = (2..=4).any(|number| {
        let (_, sockets) = listeners(anywhere());
        let told = Instant::now();
        running.configure(configure(number, "later", sockets));
        told.elapsed() < Swap::PATIENCE
    });
    assert!(at_once);
}

#[test]
fn a_connection_accepted_for_another_worker_ends_with_the_listener_it_came_by() {
    const BUSY: Duration = Duration::from_millis(2_000);
    let mut running = Running::start();
    let start = Instant::now();
    running.hold_up(BUSY);
    // No more than the other worker takes before its share is full.
    let mut kept: Vec<_> = (0..8).map(|_| running.ask()).collect();
    assert!(start.elapsed() < BUSY, "the other worker serves them all");
    let (_, sockets) = listeners(anywhere());
    running.configure(configure(2, "two", sockets));
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(running.address).is_ok() {
        assert!(Instant::now() < until, "a removed listener stays open");
    }
    for stream in &mut kept {
        stream.write_all(REQUEST).expect("send");
        let reply = read(stream);
        assert!(reply.contains("\r\nConnection: close\r\n"), "{reply}");
    }
}

#[test]
fn a_generation_whose_listener_cannot_be_watched_is_refused_and_changes_nothing() {
    let mut running = Running::start();
    let (address, mut sockets) = listeners(anywhere());
    // No file of a disk can be waited for.
    sockets[1].socket = os::file::memfd("file", b"").expect("memory file");
    let server = running.server.as_mut().expect("running");
    let refused = server.configure(configure(2, "two", sockets), &mut running.receiver);
    let error = refused.expect_err("no socket").to_string();
    assert!(error.contains("worker 1 cannot accept at"), "{error}");
    running.ask();
    assert!(TcpStream::connect(address).is_err(), "it is let go");
    let (address, sockets) = listeners(anywhere());
    running.configure(configure(2, "two", sockets));
    assert!(read(&mut send(address)).ends_with("two"));
}
