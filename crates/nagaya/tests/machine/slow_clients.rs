//! Slow clients, as slowhttptest makes them by the hundred, beside one that is in a hurry: what it
//! waits for must be neither the workers' time nor the kernel's memory for connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::peer::find_program;
use testkit::processes::open_files;
use testkit::{Gateway, ScriptedUpstream, eventually};

const CONFIG: &str = r#"
workers = 2
[log]
level = "error"
[[sites]]
hosts = ["*"]
root = "{dir}/www"
  [[sites.rules]]
  match = { path = "/upload" }
  handler = { proxy = "http://{upstream}" }
"#;

const SLOW_CLIENTS: usize = 500;
const LARGE_BYTES: usize = 8 << 20;
/// What the one in a hurry asks for: no more than a packet or two, but not nothing.
const PAGE_BYTES: usize = 4_000;
/// Requests of one round.
const ROUND: usize = 300;
/// How many times the quiet 99th percentile it may be.
const SLOWER_MAX: u32 = 2;
/// Quiet values below this count as this: slowhttptest runs on the same cores, and what is left
/// is their scheduler's.
const QUIET_MIN: Duration = Duration::from_millis(1);

/// What the kernel may hold meanwhile, bookkeeping included: beyond its own limit everybody's
/// connections suffer. Unbounded it would be half as much again.
const HELD_BYTES_MAX: usize = SLOW_CLIENTS * (3 << 20);

/// A way of being slow.
struct Mode {
    name: &'static str,
    /// Options of slowhttptest.
    options: &'static [&'static str],
    path: &'static str,
    /// Whether it is about holding connections.
    holds: bool,
}

const MODES: [Mode; 4] = [
    Mode {
        name: "heads",
        options: &["-H", "-i", "1", "-t", "GET"],
        path: "/large",
        holds: true,
    },
    Mode {
        name: "bodies",
        options: &["-B", "-i", "1", "-s", "8192", "-t", "POST"],
        path: "/upload",
        holds: true,
    },
    Mode {
        name: "ranges",
        // Fewer at a time: making these heads takes slowhttptest the processor the others need.
        options: &["-R", "-a", "10", "-b", "3000", "-t", "HEAD", "-r", "100"],
        path: "/large",
        holds: false,
    },
    Mode {
        name: "reading",
        // Three times on each connection, so that all of them have more to come.
        options: &[
            "-X", "-w", "512", "-y", "1024", "-n", "1", "-z", "32", "-k", "3",
        ],
        path: "/large",
        holds: true,
    },
];

/// A running slowhttptest.
struct Attack {
    child: Child,
}

impl Attack {
    fn start(program: &Path, gateway: &Gateway, mode: &Mode, seconds: u64) -> Self {
        let child = Command::new(program)
            .args(["-c", &SLOW_CLIENTS.to_string(), "-r", "500", "-p", "5"])
            .args(mode.options)
            .args(["-l", &seconds.to_string()])
            .args(["-u", &format!("http://{}{}", gateway.address(), mode.path)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            child: child.expect("start slowhttptest"),
        }
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the kernel holds for all TCP connections of the machine.
fn kernel_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let tcp = text.lines().find(|line| line.starts_with("TCP:"));
    let pages = tcp.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
    pages.unwrap_or_default() * 4096
}

/// The 99th percentile over one round of fresh connections with one request each.
fn p99(gateway: &Gateway) -> Duration {
    let mut times: Vec<_> = (0..ROUND)
        .map(|_| {
            let start = Instant::now();
            let mut stream = TcpStream::connect(gateway.address()).expect("connect");
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .expect("an option");
            let request = b"GET /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("send");
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).expect("a reply");
            assert!(reply.ends_with(&[b'p'; PAGE_BYTES]));
            start.elapsed()
        })
        .collect();
    times.sort();
    times[ROUND * 99 / 100]
}

/// Attacks of one mode, of which one must leave other clients their speed.
const TRIES: usize = 3;

/// Compares the best rounds with and without the attack: noise of the machine only ever adds.
/// Tells whether others kept their speed.
fn attack(mode: &Mode, seconds: u64) -> bool {
    let Some(program) = find_program("slowhttptest") else {
        return true;
    };
    let upstream = ScriptedUpstream::fixed("taken");
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address());
    let files = builder.directory();
    files.write("www/large", vec![b'x'; LARGE_BYTES]);
    files.write("www/page", vec![b'p'; PAGE_BYTES]);
    let gateway = builder.start();
    let quiet = (0..5).map(|_| p99(&gateway)).min().expect("rounds");
    let peak = gateway.server_peak_bytes();
    let mut attack = Attack::start(&program, &gateway, mode, seconds);
    if mode.holds {
        let came = eventually(Duration::from_secs(60), "slow clients", || {
            // A connection is a descriptor.
            let came = open_files(gateway.server_pid()).len() > SLOW_CLIENTS * 8 / 10;
            (came || attack.is_over()).then_some(came)
        });
        // On a machine that was elsewhere, it may be over before it has begun.
        if !came {
            return false;
        }
    }
    let mut rounds = Vec::new();
    let mut held = 0;
    while rounds.len() < 3 || !attack.is_over() {
        rounds.push(p99(&gateway));
        held = held.max(kernel_bytes());
    }
    let beside = *rounds.iter().min().expect("rounds");
    let grown = gateway.server_peak_bytes().saturating_sub(peak);
    println!(
        "slow {}: p99 {quiet:?} quiet, {beside:?} best of {} rounds beside {SLOW_CLIENTS}; {} KiB more, the kernel {} KiB",
        mode.name,
        rounds.len(),
        grown / 1024,
        held / 1024
    );
    assert!(held < HELD_BYTES_MAX, "{}: {held} bytes held", mode.name);
    beside <= quiet.max(QUIET_MIN) * SLOWER_MAX
}

/// One mode after another: the attacks would disturb each other.
fn attack_in_every_mode(seconds: u64) {
    for mode in &MODES {
        // Whatever else the machine does in these seconds counts against us: one calm try will do.
        let held = (0..TRIES).any(|_| attack(mode, seconds));
        assert!(
            held,
            "{}: others were slowed down, or nobody came, in every try",
            mode.name
        );
    }
}

#[test]
fn slow_clients_do_not_slow_others() {
    let _alone = super::alone();
    attack_in_every_mode(3);
}

#[test]
#[ignore = "soak: a minute"]
fn slow_clients_do_not_slow_others_for_a_minute() {
    let _alone = super::alone();
    attack_in_every_mode(15);
}
