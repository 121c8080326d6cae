//! Stragglers on real sockets: servers that notice, that do not, and that never stop.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::*;
use crate::fixture::{self, Fixture, block_on, peer};
use crate::permits;
use crate::upstream::{Fresh, Reached, Tried};

const CONFIG: &str = r#"
limits = [{ concurrent = 8 }]
timeouts = { upstream_read = "{read}" }
[upstreams.app]
servers = ["{server}"]
[[sites]]
hosts = ["a"]
rules = [{ handler = { proxy = "app" } }]
"#;

/// More looks than any of this takes, 5 ms apart.
const LOOKS_MAX: usize = 6_000;
/// A time that does not pass here.
const LONG: &str = "10m";

/// What a server has in hand.
trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Where a server listens.
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A worker, and the server it asks.
struct Scene {
    fixture: Fixture,
    socket: Socket,
}

impl Scene {
    fn tcp(read: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        Self::new(Socket::Tcp(listener), &address, read)
    }

    fn unix(read: &str) -> Self {
        let (process, thread) = (std::process::id(), std::thread::current().id());
        let name = format!("nagaya-straggler-{process}-{thread:?}");
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        let address = format!("unix:{}", path.display());
        Self::new(Socket::Unix(listener), &address, read)
    }

    fn new(socket: Socket, address: &str, read: &str) -> Self {
        let config = CONFIG.replace("{server}", address).replace("{read}", read);
        let fixture = Fixture::new(&config);
        Self { fixture, socket }
    }

    fn accept(&self) -> Box<dyn Stream> {
        match &self.socket {
            Socket::Tcp(listener) => Box::new(listener.accept().expect("a connection").0),
            Socket::Unix(listener) => Box::new(listener.accept().expect("a connection").0),
        }
    }

    /// An exchange admitted to the limit.
    async fn admitted(&self) -> Exchange {
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut exchange = fixture::exchange(peer("192.0.2.7:40000"), request);
        exchange.route.site_index = Some(0);
        let serving = self.fixture.worker.serving();
        let routed = self.fixture.arrived(&serving).routed(&exchange.route);
        let chosen = routed.expect("a site").chosen(&exchange.route);
        let admitted = permits::admit(chosen, &mut exchange).await;
        admitted.expect("there is room");
        assert!(exchange.held.is_some());
        exchange
    }

    /// Connects to the server and leaves it at work for an exchange.
    async fn leave(&self, exchange: &mut Exchange) -> Box<dyn Stream> {
        self.leave_by(exchange, follow_server).await
    }

    async fn leave_by(
        &self,
        exchange: &mut Exchange,
        leaving: impl FnOnce(Routed<'_>, &mut Exchange, Abandoned),
    ) -> Box<dyn Stream> {
        let serving = self.fixture.worker.serving();
        let pool = serving.pools().next().expect("an upstream");
        let mut tried = Tried::default();
        let reached = pool
            .reach(&self.fixture.worker, &mut tried, Fresh::Yes, &[])
            .await;
        let Reached { link, in_flight } = reached.expect("it listens");
        let server = self.accept();
        let rest = Rest::Bytes;
        let abandoned = Abandoned {
            link,
            in_flight,
            rest,
        };
        let routed = self.fixture.arrived(&serving).routed(&exchange.route);
        leaving(routed.expect("a site"), exchange, abandoned);
        server
    }

    /// As [`Self::leave`], for an exchange that ends at once.
    async fn abandon(&self) -> Box<dyn Stream> {
        let mut exchange = self.admitted().await;
        let server = self.leave(&mut exchange).await;
        assert_eq!(self.in_flight(), 1, "the permit stays with the server");
        server
    }

    fn in_flight(&self) -> u32 {
        let limiter = &self.fixture.shared.limits;
        let gates = limiter.ledger.look(limiter.time(Instant::now()), None, 100);
        gates.iter().map(|gate| gate.in_flight).sum()
    }

    fn ended(&self, end: StragglerEnd) -> u64 {
        let counter = self.fixture.worker.stats.stragglers.ended(end);
        counter.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Lets time pass until nothing is held.
    async fn await_quiet(&self) {
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        for _ in 0..LOOKS_MAX {
            if self.in_flight() == 0 {
                assert_eq!(self.fixture.worker.stats.stragglers.now(), 0);
                return;
            }
            looks.tick().await;
            self.fixture.worker.tick();
        }
        panic!("a permit is held for ever");
    }
}

/// Lets everything happen that can without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Writes until that fails, on a thread of its own: a server that does not look.
fn talk(mut server: Box<dyn Stream>, piece: usize, pause: Duration) {
    std::thread::spawn(move || {
        let piece = vec![b'.'; piece];
        while server.write_all(&piece).is_ok() {
            std::thread::park_timeout(pause);
        }
    });
}

#[test]
fn the_permit_stays_with_the_server_until_it_closes() {
    for scene in [Scene::tcp(LONG), Scene::unix(LONG)] {
        block_on(async {
            let mut server = scene.abandon().await;
            let mut byte = [0];
            let end = server.read(&mut byte).expect("no reset");
            assert_eq!(end, 0, "the server is told that nobody waits");
            server.write_all(b"last words").expect("they are read");
            settle().await;
            assert_eq!(scene.in_flight(), 1);
            drop(server);
            settle().await;
            scene.await_quiet().await;
            assert_eq!(scene.ended(StragglerEnd::Finished), 1);
        });
    }
}

#[test]
fn a_server_that_says_nothing_is_left_after_its_time() {
    for scene in [Scene::tcp("100ms"), Scene::unix("100ms")] {
        block_on(async {
            let server = scene.abandon().await;
            scene.await_quiet().await;
            assert_eq!(scene.ended(StragglerEnd::Cut), 1);
            drop(server);
        });
    }
}

#[test]
fn a_server_that_never_stops_talking_is_cut_whether_it_drips_or_pours() {
    let drip = Duration::from_millis(10);
    for (piece, pause) in [(1, drip), (64 * 1024, Duration::ZERO)] {
        for scene in [Scene::tcp(LONG), Scene::unix(LONG)] {
            block_on(async {
                talk(scene.abandon().await, piece, pause);
                scene.await_quiet().await;
                assert_eq!(scene.ended(StragglerEnd::Cut), 1);
            });
        }
    }
}

#[test]
fn of_too_many_the_last_is_closed_and_its_permit_goes_with_its_exchange() {
    let scene = Scene::tcp(LONG);
    block_on(async {
        let mut servers = Vec::new();
        for _ in 0..STRAGGLERS_MAX {
            servers.push(scene.leave(&mut scene.admitted().await).await);
        }
        let mut exchange = scene.admitted().await;
        let mut server = scene.leave(&mut exchange).await;
        assert_eq!(server.read(&mut [0]).expect("no reset"), 0);
        assert_eq!(scene.in_flight(), 3);
        drop(exchange);
        assert_eq!(scene.in_flight(), 2);
        assert_eq!(scene.ended(StragglerEnd::Crowded), 1);
        drop(servers);
        scene.await_quiet().await;
    });
}

#[test]
fn where_there_are_too_many_an_exchange_waits_for_what_forgets_behind_its_reply() {
    let scene = Scene::tcp(LONG);
    block_on(async {
        let mut servers = Vec::new();
        for _ in 0..STRAGGLERS_MAX {
            servers.push(scene.leave(&mut scene.admitted().await).await);
        }
        let mut exchange = scene.admitted().await;
        let forget_all = |routed: Routed<'_>, exchange: &mut Exchange, abandoned| {
            forget(routed, exchange, abandoned, false);
        };
        let server = scene.leave_by(&mut exchange, forget_all).await;
        // The reply goes on, and the permit stays with the work.
        assert!(exchange.held.is_none());
        assert_eq!(scene.in_flight(), 3);
        let request = "GET / HTTP/1.1\r\nHost: none\r\n\r\n";
        let mut answered = fixture::exchange(peer("192.0.2.7:40000"), request);
        answered.behind = exchange.behind.take();
        let worker = Rc::clone(&scene.fixture.worker);
        let serving = tokio::task::spawn_local(async move {
            crate::pipeline::serve(&worker, &mut answered).await
        });
        settle().await;
        let ended = &scene.fixture.worker.stats.ended;
        assert_eq!(ended.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(!serving.is_finished());
        drop(server);
        serving.await.expect("no panic").expect("it is sent");
        assert_eq!(scene.in_flight(), 2);
        drop(servers);
        scene.await_quiet().await;
    });
}

#[test]
fn an_exchange_that_holds_nothing_leaves_nobody_behind() {
    let scene = Scene::tcp(LONG);
    block_on(async {
        let mut exchange = scene.admitted().await;
        exchange.held = None;
        let mut server = scene.leave(&mut exchange).await;
        assert_eq!(server.read(&mut [0]).expect("no reset"), 0);
        assert_eq!(scene.fixture.worker.stats.stragglers.now(), 0);
    });
}

#[test]
fn a_worker_that_ends_waits_for_none() {
    let scene = Scene::tcp(LONG);
    let server = block_on(scene.abandon());
    assert_eq!(scene.in_flight(), 0);
    assert_eq!(scene.fixture.worker.stats.stragglers.now(), 0);
    drop(server);
}
