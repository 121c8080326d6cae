//! A hundred reloads while clients never stop asking: nobody notices, nothing grows.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use testkit::client::{Outcome, RawClient};
use testkit::gateway::Gateway;
use testkit::processes::{memory_kib, open_files};
use testkit::wait::{eventually, free_port};

const RELOADS: u64 = 100;
/// Reloads after which memory and descriptors have found their level.
const SETTLED: u64 = 30;
/// What 70 reloads may add to the resident memory of the server: the allocator's noise.
const GROWTH_KIB_MAX: u64 = 2 * 1024;
/// Less than a drain lasts by default.
const PATIENCE: Duration = Duration::from_secs(25);

const PLAIN: &str = r#"
    workers = 2
    [[listen]]
    address = "127.0.0.1:{port}"
    [[sites]]
    hosts = ["*"]
    rules = [{ handler = { respond = { body = "served" } } }]
"#;

/// What every other configuration adds: a listener, an upstream, a site and a rule.
const ADDED: &str = r#"
    [[listen]]
    address = "127.0.0.1:{other}"
    [upstreams.back]
    servers = ["127.0.0.1:{other}"]
    [[sites]]
    hosts = ["other.example.jp"]
      [[sites.rules]]
      match = { path = "/x" }
      handler = { respond = { body = "x" } }
      [[sites.rules]]
      handler = { proxy = "back" }
"#;

/// A number the long run sets.
pub(super) fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect(name))
}

/// What the clients have seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) asked: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Asks until `done`, on connections that are kept for a while.
pub(super) fn ask_on(address: SocketAddr, done: &AtomicBool, seen: &Seen) {
    while !done.load(Ordering::Acquire) {
        if let Err(problem) = ask_on_one_connection(address, seen) {
            eprintln!("{problem}");
            seen.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn ask_on_one_connection(address: SocketAddr, seen: &Seen) -> Result<(), String> {
    const KEPT: usize = 20;
    let mut client =
        RawClient::try_connect(address).map_err(|error| format!("connect: {error}"))?;
    for turn in 1..=KEPT {
        let last = if turn == KEPT {
            "Connection: close\r\n"
        } else {
            ""
        };
        let request = format!("GET / HTTP/1.1\r\nHost: example.jp\r\n{last}\r\n");
        seen.asked.fetch_add(1, Ordering::Relaxed);
        match client.ask(request.as_bytes()) {
            Outcome::Reply(reply) if reply.complete && reply.body == b"served" => {
                // The gateway may end a connection after any reply, if it says so.
                if reply
                    .head
                    .field("connection")
                    .is_some_and(|value| value.eq_ignore_ascii_case("close"))
                {
                    return Ok(());
                }
            }
            other => return Err(format!("request {turn} of a connection: {other:?}")),
        }
    }
    Ok(())
}

fn descriptors(pid: u32) -> usize {
    open_files(pid).len()
}

fn resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS")
}

/// Reloads from generation `from` to `to` while two clients ask.
fn reload_under_load(gateway: &mut Gateway, from: u64, to: u64, seen: &Seen) {
    let with = format!("{PLAIN}{ADDED}");
    let (address, done) = (gateway.address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| ask_on(address, &done, seen));
        }
        let _ends_the_load = Defer(&done);
        for generation in from + 1..=to {
            gateway.reload(if generation % 2 == 0 { &with } else { PLAIN });
            gateway.wait_for_message(&format!("ready: generation {generation} "));
            // As fast as they go, unless the long run wants them apart.
            std::thread::sleep(Duration::from_millis(setting("NAGAYA_RELOAD_PAUSE_MS", 0)));
        }
    });
}

/// Sets its flag when dropped, so that a panic ends the load too.
pub(super) struct Defer<'flag>(pub(super) &'flag AtomicBool);

impl Drop for Defer<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_hundred_reloads_under_load_fail_no_request_and_leak_nothing() {
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), PLAIN);
    let mut gateway = gateway.with("other", free_port()).start();
    gateway.wait_for_message("ready: generation 1 ");
    let (supervisor, server) = (gateway.pid(), gateway.server_pid());
    let seen = Seen::default();
    // Both ends of each stretch are the plain configuration's.
    reload_under_load(&mut gateway, 1, 1 + SETTLED, &seen);
    let settled = (
        descriptors(server),
        descriptors(supervisor),
        resident_kib(server),
    );
    reload_under_load(&mut gateway, 1 + SETTLED, 1 + RELOADS, &seen);
    let (asked, failed) = (seen.asked.into_inner(), seen.failed.into_inner());
    println!("{asked} requests during {RELOADS} reloads, {failed} failed");
    assert_eq!(failed, 0, "of {asked} requests");
    assert!(asked > RELOADS, "the load was no load: {asked}");
    eventually(PATIENCE, "the server's descriptors as before", || {
        (descriptors(server) <= settled.0).then_some(())
    });
    eventually(PATIENCE, "the supervisor's descriptors as before", || {
        (descriptors(supervisor) <= settled.1).then_some(())
    });
    let grown = resident_kib(server).saturating_sub(settled.2);
    println!(
        "resident memory of the server: {} KiB, then {grown} KiB more",
        settled.2
    );
    assert!(
        grown < GROWTH_KIB_MAX,
        "{grown} KiB more after {} reloads",
        RELOADS - SETTLED
    );
    assert_eq!(gateway.server_pid(), server, "one server all the while");
}
