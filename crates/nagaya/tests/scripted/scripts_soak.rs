//! Scripts that raise, run away, wait too long, lose their clients and their interpreters, while
//! the configuration is reloaded: nothing of them is left, and each request is logged once.
//!
//! `NAGAYA_SOAK_S` says for how many seconds; the long run sets it to 600.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::processes::{memory_kib, open_files};
use testkit::{Gateway, Outcome, PATIENCE, RawClient, eventually};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");
/// Seconds, unless the long run says otherwise.
const USUAL_S: u64 = 4;
const CLIENTS: usize = 4;
/// What the resident memory of the server may add once it has found its level.
const GROWTH_KIB_MAX: u64 = 8 * 1024;
/// The same of its interpreters together, which collect what nobody holds now and then.
const VM_GROWTH_MAX: u64 = 8 << 20;

const CONFIG: &str = r#"
workers = 2
[log]
level = "error"
[control]
socket = "{dir}/control"
[scripts]
cpu = "50ms"
wall = "500ms"
log_wall = "30s"
init = { code = "$generation = {generation}" }
worker_init = { code = "sleep 0.01; Userdata.new('soak').started = true" }
worker_exit = { code = "sleep 0.01" }
access = { code = "Cache.new(:namespace => 'soak').incr 'begun'" }
log = [
  { code = "Cache.new(:namespace => 'soak').incr 'ended'" },
  { code = "sleep 0.02 if Nginx::Request.new.uri == '/logs'; raise 'no' if Nginx::Var.new.arg_log" },
]
[[sites]]
hosts = ["soak.test"]
root = "{dir}/www"
rules = [
  { match = { path = "/generation" }, handler = { script = { code = "Nginx.rputs $generation" } } },
  { match = { path = "/ended" }, handler = { script = { code = "Nginx.rputs Cache.new(:namespace => 'soak').get('ended')" } } },
  { match = { path = "/metrics" }, handler = { metrics = "json" } },
  { match = { path = "/raises" }, handler = { script = { code = "x = 'x' * 10_000; raise ArgumentError, x[0, 20]" } } },
  { match = { path = "/runs-away" }, handler = { script = { code = "begin; while true; end; ensure; while true; end; end" } } },
  { match = { path = "/deep" }, handler = { script = { code = "def deep(n) deep(n + 1) end; deep 0" } } },
  { match = { path = "/sleeps" }, handler = { script = { code = "sleep 60" } } },
  { match = { path = "/locks" }, handler = { script = { code = "Mutex.new(:global => true, :name => 'soak').lock; sleep 0.005; raise 'holding it'" } } },
  { match = { path = "/acquires" }, handler = { script = { code = "Nginx.return(503) unless Nagaya::Limit.acquire('soak', concurrent: 2, queue: 2, wait: 0.02); sleep 0.01" } } },
  { match = { path = "/holds" }, handler = { script = { code = "Nagaya::Limit.acquire('held', concurrent: 1, queue: 1, wait: 60); sleep 60" } } },
  { match = { path = "/inside" }, handler = { script = { code = "Nginx.rputs Nginx::Async::HTTP.sub_request('/raises').status" } } },
  { match = { path = "/compiled" }, handler = { script = { file = "hooks/compiled.rb", cache = "never" } } },
  { match = { path = "/filtered" }, handler = { respond = { body = "a body" } }, scripts = { body_filter = { code = "raise 'no' if Nginx::Var.new.arg_raise; f = Nginx::Filter.new; f.body = f.body * 100" } } },
  { match = { path = "/lost" }, handler = { script = { code = "x = 'a' * 300_000 + 'b'; ('a' * 1_000_000).index(x)" } } },
]
"#;

/// Paths asked for in turn, and whether the client waits for the reply.
const ASKED: [(&str, bool); 18] = [
    ("/raises", true),
    ("/acquires", true),
    ("/filtered", true),
    ("/holds", false),
    ("/compiled", true),
    ("/locks", true),
    ("/inside", true),
    ("/sleeps", false),
    ("/filtered?raise=1", true),
    ("/logs", true),
    ("/acquires", false),
    ("/raises?log=1", true),
    ("/deep", true),
    ("/locks", false),
    ("/runs-away", true),
    ("/generation", true),
    ("/sleeps", true),
    ("/nothing-there", true),
];
/// In how many turns an interpreter is lost once.
const LOST_EVERY: usize = 40;

fn seconds() -> u64 {
    std::env::var("NAGAYA_SOAK_S").map_or(USUAL_S, |text| text.parse().expect("seconds"))
}

fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: soak.test\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Asks for everything in turn until `done`; counts the requests.
fn ask_on(address: SocketAddr, client: usize, done: &AtomicBool, asked: &AtomicU64) {
    let mut turn = client;
    while !done.load(Relaxed) {
        let (path, waits) = match turn % (ASKED.len() * LOST_EVERY) {
            0 => ("/lost", true),
            turn => ASKED[turn % ASKED.len()],
        };
        let mut client = RawClient::connect(address).with_deadline(PATIENCE);
        client.send(&request(path));
        asked.fetch_add(1, Relaxed);
        if waits {
            let outcome = client.read_reply(Body::Framed);
            assert!(matches!(outcome, Outcome::Reply(_)), "{path}: {outcome:?}");
        }
        turn += 1;
    }
}

fn get(gateway: &Gateway, path: &str) -> String {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request(path));
    let reply = reply(client.read_reply(Body::Framed));
    reply.text()
}

/// A number out of the gateway's figures of scripts.
fn figure(gateway: &Gateway, name: &str) -> u64 {
    let figures = get(gateway, "/metrics");
    let (_, scripts) = figures.split_once("\"scripts\":").unwrap();
    let (_, rest) = scripts.split_once(&format!("\"{name}\":")).unwrap();
    let end = rest.find(|byte: char| !byte.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}

fn limits(gateway: &Gateway) -> String {
    gateway.command(&["limits", "list"]).1
}

fn descriptors(pid: u32) -> usize {
    open_files(pid).len()
}

fn resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS")
}

/// What is to be the same whenever nobody asks.
#[derive(Debug)]
struct AtRest {
    descriptors: usize,
    resident_kib: u64,
    vm_bytes: u64,
}

/// Asks and reloads for so long; what is left when all has ended.
fn stretch(
    gateway: &mut Gateway,
    generation: &mut u64,
    time: Duration,
    asked: &AtomicU64,
) -> AtRest {
    let (address, done, until) = (
        gateway.address(),
        AtomicBool::new(false),
        Instant::now() + time,
    );
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let done = &done;
            scope.spawn(move || ask_on(address, client * 5, done, asked));
        }
        let _ends_the_load = Defer(&done);
        while Instant::now() < until {
            *generation += 1;
            let now = generation.to_string();
            gateway.reload(&CONFIG.replace("{generation}", &now));
            eventually(PATIENCE, "the next generation", || {
                asked.fetch_add(1, Relaxed);
                (get(gateway, "/generation") == now).then_some(())
            });
        }
    });
    rest(gateway, asked)
}

/// Sets its flag when dropped, so that a panic ends the load too.
struct Defer<'flag>(&'flag AtomicBool);

impl Drop for Defer<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Waits until nothing is left of what was asked.
fn rest(gateway: &Gateway, asked: &AtomicU64) -> AtRest {
    eventually(PATIENCE, "a record of each request", || {
        // A question that is no request: the one before has its reply, but perhaps no record yet.
        limits(gateway);
        let asked = asked.fetch_add(1, Relaxed);
        let ended = get(gateway, "/ended");
        (ended == asked.to_string()).then_some(())
    });
    for (name, left) in [("parked", 0), ("vms", 2)] {
        eventually(PATIENCE, name, || {
            asked.fetch_add(1, Relaxed);
            (figure(gateway, name) == left).then_some(())
        });
    }
    eventually(PATIENCE, "every permit to come back", || {
        (!limits(gateway).contains("limits of scripts")).then_some(())
    });
    asked.fetch_add(1, Relaxed);
    AtRest {
        vm_bytes: figure(gateway, "memory_bytes"),
        descriptors: descriptors(gateway.server_pid()),
        resident_kib: resident_kib(gateway.server_pid()),
    }
}

#[test]
fn scripts_that_fail_in_every_way_leave_nothing_behind() {
    let builder = Gateway::with_config(NAGAYA, CONFIG).with("generation", 1);
    builder
        .directory()
        .write("hooks/compiled.rb", "Nginx.rputs 'compiled'\n");
    builder.directory().write("www/page.html", "a page");
    let mut gateway = builder.start();
    // Whether it answers was asked with requests, too.
    limits(&gateway);
    let before: u64 = get(&gateway, "/ended").parse().unwrap_or(0);
    let (server, mut generation) = (gateway.server_pid(), 1);
    let asked = AtomicU64::new(before + 1);
    let whole = Duration::from_secs(seconds());
    let settled = stretch(&mut gateway, &mut generation, whole / 3, &asked);
    let ended = stretch(&mut gateway, &mut generation, whole - whole / 3, &asked);
    println!(
        "{} requests, {generation} generations; first {settled:?}, then {ended:?}",
        asked.load(Relaxed)
    );
    assert_eq!(gateway.server_pid(), server, "one server all the while");
    eventually(PATIENCE, "as few descriptors as before", || {
        (descriptors(server) <= settled.descriptors + 2).then_some(())
    });
    let grown = ended.resident_kib.saturating_sub(settled.resident_kib);
    assert!(grown < GROWTH_KIB_MAX, "{settled:?} {ended:?}");
    let grown = ended.vm_bytes.saturating_sub(settled.vm_bytes);
    assert!(grown < VM_GROWTH_MAX, "{settled:?} {ended:?}");
}
