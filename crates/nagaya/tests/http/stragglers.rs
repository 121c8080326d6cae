//! Clients that leave while a back end works for them: it never has more at once than the limit
//! says, as it counts itself, and nothing stays held.

use crate::fixtures::php;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixtures::limited::{Gate, ask, await_counts};
use crate::fixtures::php::{Wish, get};
use testkit::client::{Body, Outcome};
use testkit::php::Listen;
use testkit::{Gateway, PATIENCE, eventually};

const CONFIG: &str = r#"
workers = 2
[control]
socket = "{dir}/control"
[log]
level = "warn"
[timeouts]
upstream_read = "5m"
[upstreams.app]
servers = ["{upstream}"]
fails = 1000
keepalive = 4
[[sites]]
hosts = ["app.test"]
  [[sites.rules]]
  handler = { proxy = { upstream = "app" {proxy} } }
  limits = [{limits}]
"#;

/// Whether a back end looks at its connection while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// It ends with its client.
    Yes,
    /// It works on to the end.
    No,
}

/// What a back end has had at once.
#[derive(Debug, Default)]
struct Counts {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Counts {
    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How long a back end works at a request.
const WORK: Duration = Duration::from_millis(20);

/// A back end that counts what it has at once; a thread for each connection.
fn counting(looks: Looks) -> (SocketAddr, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let known = Arc::clone(&counts);
    let address = serve(move |mut stream| {
        while read_head(&mut stream) {
            known.begin();
            let stays = match looks {
                Looks::Yes => stays(&mut stream),
                Looks::No => {
                    std::thread::sleep(WORK);
                    true
                }
            };
            known.end();
            let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nloaded";
            if !stays || stream.write_all(reply).is_err() {
                return;
            }
        }
    });
    (address, counts)
}

/// Serves each connection on a thread of its own, for as long as the test lasts.
fn serve(connection: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, connection) = (listener.local_addr().unwrap(), Arc::new(connection));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, connection) = (stream.unwrap(), Arc::clone(&connection));
            std::thread::spawn(move || connection(stream));
        }
    });
    address
}

/// Reads the head of a request; `false` at the end.
fn read_head(stream: &mut TcpStream) -> bool {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Works for as long as its client stays; `false` where it has gone.
fn stays(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(WORK)).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(None).unwrap();
    matches!(read, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Waits until an answer says this.
#[track_caller]
fn await_words(gateway: &Gateway, question: &str, words: &str) {
    let mut last = String::new();
    eventually(PATIENCE, &format!("{question} to say {words}"), || {
        last = ask(gateway, question);
        last.contains(words).then_some(())
    });
}

fn gateway(upstream: SocketAddr, limits: &str) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("proxy", "")
        .with("upstream", upstream)
        .with("limits", limits)
        .start()
}

/// What became of a crowd's requests.
#[derive(Debug, Default)]
struct Told {
    served: AtomicUsize,
    left: AtomicUsize,
}

/// Sends requests from many clients at once, of which 30 % leave within 40 ms.
fn crowd(address: SocketAddr, clients: usize, requests: usize, path: &str) -> Told {
    let told = Told::default();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let told = &told;
            scope.spawn(move || {
                for request in 0..requests {
                    let draw = (client * 7_919 + request * 104_729 + 13) % 1_009;
                    visit(address, path, draw, told);
                }
            });
        }
    });
    told
}

fn visit(address: SocketAddr, path: &str, draw: usize, told: &Told) {
    let leaves = draw % 10 < 3;
    let patience = match leaves {
        true => Duration::from_millis((draw / 10 % 40 + 1) as u64),
        false => PATIENCE,
    };
    let mut client = testkit::RawClient::connect(address).with_deadline(patience);
    client.send(&get(path));
    match client.read_reply(Body::Framed) {
        Outcome::Reply(reply) => {
            // A queue that runs late sends some away.
            assert!(matches!(reply.status, 200 | 503), "{reply:?}");
            let served = usize::from(reply.status == 200);
            told.served.fetch_add(served, Ordering::SeqCst);
        }
        Outcome::TimedOut(_) if leaves => {
            told.left.fetch_add(1, Ordering::SeqCst);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_back_end_never_has_more_than_the_limit_whether_it_looks_or_not() {
    for looks in [Looks::Yes, Looks::No] {
        let (upstream, counts) = counting(looks);
        let limits = r#"{ concurrent = 3, queue = 100, wait = "60s" }"#;
        let gateway = gateway(upstream, limits);
        let told = crowd(gateway.address(), 12, 25, "/");
        await_counts(&gateway, 0, 0);
        let most = counts.most.load(Ordering::SeqCst);
        assert!(most <= 3, "{looks:?}: {most} at once, {told:?}");
        assert_eq!(counts.now.load(Ordering::SeqCst), 0);
        assert!(told.served.into_inner() > 0 && told.left.into_inner() > 0);
        await_words(&gateway, "status json", "\"stragglers\":{\"now\":0,");
    }
}

/// A page that says how many of it run at once, in a file under a lock.
const COUNTED: &str = r#"<?php
function change($by) {
  $file = fopen(__DIR__ . '/out/now', 'c+');
  flock($file, LOCK_EX);
  $now = (int) stream_get_contents($file) + $by;
  ftruncate($file, 0);
  rewind($file);
  fwrite($file, (string) $now);
  fflush($file);
  if ($by > 0) file_put_contents(__DIR__ . '/out/seen', "$now\n", FILE_APPEND);
  fclose($file);
}
change(1);
usleep(20000);
change(-1);
echo 'loaded';
"#;

#[test]
fn php_never_runs_more_of_a_page_than_its_limit_says() {
    for listen in [Listen::Unix, Listen::Tcp] {
        let rules = r#"
  [[sites.rules]]
  limits = [{ key = "file", concurrent = 2, queue = 100, wait = "60s" }]
"#;
        let wish = Wish {
            listen,
            processes: 6,
            workers: 2,
            rules,
            files: &[("counted.php", COUNTED)],
            ..Wish::default()
        };
        let Some(bed) = php::bed(&wish) else { return };
        let out = bed.site.path().join("out");
        std::fs::create_dir(&out).unwrap();
        // Pages run as nobody where the test runs as root.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&out, mode).unwrap();
        let told = crowd(bed.gateway.address(), 10, 12, "/counted.php");
        await_counts(&bed.gateway, 0, 0);
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        let seen = read("seen");
        let most = seen.lines().map(|line| line.parse::<usize>().unwrap());
        let most = most.max().unwrap();
        assert!(most <= 2, "{listen:?}: {most} at once, {told:?}");
        assert_eq!(read("now"), "0");
        assert!(told.left.into_inner() > 0);
    }
}

/// A page that goes on when its client has all that was promised.
const LONGER: &str = r"<?php
header('Content-Length: 4');
echo 'this and that';
@ob_flush(); flush();
while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(10000); }
";

#[test]
fn a_page_that_goes_on_after_its_reply_keeps_its_place() {
    let wish = Wish {
        rules: "[[sites.rules]]\nlimits = [{ concurrent = 2 }]\n",
        upstream: "keepalive = 0",
        files: &[("longer.php", LONGER), ("short.php", "short")],
        ..Wish::default()
    };
    let Some(bed) = php::bed(&wish) else { return };
    assert_eq!(bed.get("/short.php").status, 200);
    await_counts(&bed.gateway, 0, 0);
    await_words(&bed.gateway, "status json", "\"now\":0,\"finished\":0,");
    assert_eq!(bed.get("/longer.php").text(), "this");
    await_words(&bed.gateway, "status json", "\"now\":1,\"finished\":0,");
    await_counts(&bed.gateway, 1, 0);
    bed.site.write("go", "");
    await_counts(&bed.gateway, 0, 0);
    await_words(&bed.gateway, "status json", "\"now\":0,\"finished\":1,");
}

/// A back end that looks at nothing: once the gate is open it says this, and keeps its connection.
fn deaf(gate: &Gate, reply: &'static str) -> SocketAddr {
    let gate = gate.clone();
    serve(move |mut stream| {
        read_head(&mut stream);
        gate.wait();
        stream.write_all(reply.as_bytes()).unwrap();
        std::thread::park();
    })
}

#[test]
fn a_reply_that_is_whole_ends_the_work_though_the_connection_stays() {
    for reply in [
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nloaded",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nloaded\r\n0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let gate = Gate::default();
        let gateway = gateway(deaf(&gate, reply), "{ concurrent = 1 }");
        let mut client = gateway.client();
        client.send(&get("/"));
        await_counts(&gateway, 1, 0);
        drop(client);
        await_words(&gateway, "status json", "\"stragglers\":{\"now\":1,");
        await_counts(&gateway, 1, 0);
        gate.open();
        await_counts(&gateway, 0, 0);
        await_words(&gateway, "status json", "\"finished\":1,\"cut\":0,");
    }
}

#[test]
fn who_leaves_in_the_middle_of_a_body_leaves_a_back_end_that_has_begun() {
    let gate = Gate::default();
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nloaded";
    let gateway = gateway(deaf(&gate, reply), "{ concurrent = 1 }");
    let mut client = gateway.client();
    client.send(b"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\nhalf");
    await_counts(&gateway, 1, 0);
    drop(client);
    await_words(&gateway, "status json", "\"stragglers\":{\"now\":1,");
    gate.open();
    await_counts(&gateway, 0, 0);
    await_words(&gateway, "status json", "\"finished\":1,");
}

#[test]
fn a_back_end_that_drips_for_ever_is_cut_and_told() {
    let told = Arc::new(AtomicBool::new(false));
    let knows = Arc::clone(&told);
    let upstream = serve(move |mut stream| {
        read_head(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut sent = stream.write_all(head);
        while sent.is_ok() {
            std::thread::park_timeout(Duration::from_millis(20));
            sent = stream.write_all(b"1\r\n.\r\n");
        }
        knows.store(true, Ordering::Release);
    });
    let gateway = gateway(upstream, "{ concurrent = 1 }");
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&get("/"));
    assert!(client.read_exactly(20).starts_with(b"HTTP/1.1 200 OK"));
    drop(client);
    await_counts(&gateway, 0, 0);
    await_words(&gateway, "status json", "\"finished\":0,\"cut\":1,");
    eventually(PATIENCE, "the back end to be told", || {
        told.load(Ordering::Acquire).then_some(())
    });
}

#[test]
fn a_broken_tunnel_that_no_limit_counts_is_closed_at_once() {
    let closed = Arc::new(AtomicBool::new(false));
    let knows = Arc::clone(&closed);
    let upstream = serve(move |mut stream| {
        read_head(&mut stream);
        let head =
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(head).unwrap();
        while stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        knows.store(true, Ordering::Release);
        // Half of it stays open, if the gateway leaves it half open.
        std::thread::park();
    });
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("proxy", ", tunnels = true")
        .with("upstream", upstream)
        .with("limits", "{ concurrent = 1, tunnels = false }")
        .start();
    let mut client = TcpStream::connect(gateway.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let upgrade =
        b"GET / HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    client.write_all(upgrade).unwrap();
    // What was not read when it is closed makes the close a reset.
    assert_eq!(client.peek(&mut [0]).unwrap(), 1);
    await_counts(&gateway, 0, 0);
    drop(client);
    eventually(PATIENCE, "the back end to be left", || {
        closed.load(Ordering::Acquire).then_some(())
    });
    let status = ask(&gateway, "status json");
    assert!(
        status.contains("\"stragglers\":{\"now\":0,\"finished\":0,"),
        "{status}"
    );
}

/// Says this once its gate is open, and before it what is said at once.
fn slow(gate: &Gate, first: &'static str, then: &'static str) -> SocketAddr {
    let gate = gate.clone();
    serve(move |mut stream| {
        while read_head(&mut stream) {
            stream.write_all(first.as_bytes()).unwrap();
            gate.wait();
            stream.write_all(then.as_bytes()).unwrap();
        }
    })
}

const LOADED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nloaded";

#[test]
fn a_client_that_only_stops_sending_is_answered_and_one_that_has_closed_leaves_the_queue() {
    let gate = Gate::default();
    let limits = r#"{ concurrent = 1, queue = 8, wait = "600s" }"#;
    let gateway = gateway(slow(&gate, "", LOADED), limits);
    let mut clients: Vec<_> = (0..3).map(|_| gateway.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        // What it sends before it stops is answered, too.
        client.send(&get("/").repeat(1 + at % 2));
        await_counts(&gateway, 1, at);
        client.finish_sending();
    }
    let mut leaves = gateway.client();
    leaves.send(&get("/"));
    await_counts(&gateway, 1, 3);
    drop(leaves);
    await_counts(&gateway, 1, 2);
    // The byte sent ahead is the beginning of the reply.
    assert_eq!(clients[2].read_exactly(1), b"H");
    gate.open();
    for (at, client) in clients[..2].iter_mut().enumerate() {
        for _ in 0..1 + at % 2 {
            let whole = testkit::client::reply(client.read_reply(Body::Framed));
            assert_eq!((whole.status, &*whole.body), (200, &b"loaded"[..]));
        }
        assert_eq!(client.read_reply(Body::Framed), Outcome::Eof);
    }
    let (rest, _) = clients[2].read_to_end();
    assert!(rest.starts_with(b"TTP/1.1 200 OK\r\n"), "{rest:?}");
    assert!(rest.ends_with(b"\r\n\r\nloaded"), "{rest:?}");
    await_counts(&gateway, 0, 0);
}

#[test]
fn a_stream_reaches_its_client_as_it_comes_and_whole_though_that_has_stopped_sending() {
    const FIRST: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
    for (then, rest) in [
        ("1\r\nb\r\n0\r\n\r\n", "1\r\nb\r\n0\r\n\r\n"),
        ("0\r\n\r\n", "0\r\n\r\n"),
    ] {
        let gate = Gate::default();
        let gateway = gateway(slow(&gate, FIRST, then), "{ concurrent = 1 }");
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&get("/"));
        client.await_bytes(b"1\r\na\r\n");
        client.finish_sending();
        // A size may begin with a nought: whoever reads on sees no more of the byte sent ahead.
        client.await_bytes(b"1\r\na\r\n0");
        gate.open();
        let (bytes, end) = client.read_to_end();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.split_once("a\r\n0").unwrap().1, rest);
        assert_eq!(end, Outcome::Eof);
        await_counts(&gateway, 0, 0);
    }
}
