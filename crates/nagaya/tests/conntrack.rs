//! A table of connections that overflows: the sensors see it, and a rule sheds by it.
//!
//! The test starts itself once more in a network namespace of its own (`unshare -n`): entries are
//! counted by namespace, so no other table fills up. How many there may be is the machine's
//! business and is left as it is; where that is more than can be filled in a moment, or nothing
//! follows connections there, the test says so and does nothing. With `NAGAYA_TEST_NEEDED="connection
//! tracking"` it fails then: so it runs under the kernel that `make test-cgroup2` starts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use testkit::client::{Body, RawClient, reply};
use testkit::{Gateway, Reply, eventually};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest table that is filled: some 100 MB of the kernel's memory.
const ENTRIES_MAX: u64 = 300_000;
/// Datagrams sent between two looks whether that is enough.
const BURST: u32 = 500;
const INSIDE: &str = "NAGAYA_TEST_INSIDE";

const CONFIG: &str = r#"
workers = 1
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
[[shed]]
sensor = "conntrack"
scope = "all"
[[sites]]
hosts = ["a.test"]
rules = [{ handler = { respond = { body = "well" } } }]
"#;

#[test]
fn a_table_of_connections_that_overflows_is_seen_and_sheds() {
    let unshared = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["-n", program]).stdin(Stdio::null());
        command
    };
    let may = unshared("true").stderr(Stdio::null()).status();
    if !rustix::process::geteuid().is_root() || !may.is_ok_and(|status| status.success()) {
        return skip("only root may make a network namespace");
    }
    let this = std::env::current_exe().unwrap();
    let output = unshared(this.to_str().unwrap())
        .args([
            "--exact",
            "inside_the_namespace",
            "--ignored",
            "--nocapture",
        ])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "{out}\n{err}");
    eprintln!("{err}");
}

#[test]
#[ignore = "the test above runs it, in a namespace it may fill the table of"]
fn inside_the_namespace() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let mut ip = Command::new("ip");
    let up = ip.args(["link", "set", "lo", "up"]).status();
    if !up.is_ok_and(|status| status.success()) {
        return skip("no ip brings up the loopback of a namespace");
    }
    let most = table("max").unwrap_or(0);
    if most == 0 || most > ENTRIES_MAX {
        return skip(&format!("a table of {most} entries is not to be filled"));
    }
    if !is_followed() && !follow() {
        return skip("nothing follows connections here: no nft, and no module that does");
    }
    // The namespace's own: on a busy machine filling takes longer than an entry lasts.
    std::fs::write("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "600").unwrap();
    let gateway = Gateway::with_config(NAGAYA, CONFIG).start();
    assert_eq!(get(&gateway).status, 200);
    comes(&gateway, "conntrack", |fill| fill < 0.5);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(most, &end));
        let _end = Ends(&end);
        comes(&gateway, "conntrack", |fill| fill > 0.9);
        comes(&gateway, "conntrack_drops", |a_second| a_second > 0.0);
        gateway.wait_for_message("shedding goes from green to red: conntrack is ");
        let busy = get(&gateway);
        assert_eq!(busy.status, 503);
        assert!(busy.head.field("Retry-After").is_some());
    });
    let table = told(&gateway, &["sensors"]);
    let raised = format!("net.netfilter.nf_conntrack_max={}", 2 * most);
    assert!(table.contains(&raised), "{raised} is not in\n{table}");
}

/// Ends what looks at it, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn skip(why: &str) {
    testkit::lacks("connection tracking", why);
}

/// A number of this namespace's table.
fn table(what: &str) -> Option<u64> {
    let path = format!("/proc/sys/net/netfilter/nf_conntrack_{what}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether a datagram gets an entry of the table.
fn is_followed() -> bool {
    send(&socket(), 0);
    table("count").is_some_and(|count| count > 0)
}

/// Has connections followed by a firewall that lets everything pass.
fn follow() -> bool {
    let rules = "add table inet nagaya\n\
                 add chain inet nagaya out { type filter hook output priority 0; }\n\
                 add rule inet nagaya out ct state new accept\n";
    let mut command = Command::new("nft");
    let nft = command.args(["-f", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut nft) = nft else {
        return false;
    };
    let mut rules_in = nft.stdin.take().unwrap();
    let is_told = rules_in.write_all(rules.as_bytes()).is_ok();
    drop(rules_in);
    nft.wait().is_ok_and(|status| status.success()) && is_told && is_followed()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let pause = Some(Duration::from_millis(5));
    socket.set_read_timeout(pause).unwrap();
    socket
}

/// Sends a datagram to a place of its own, at which nobody listens.
fn send(socket: &UdpSocket, number: u32) {
    let [_, high, middle, low] = number.to_be_bytes();
    // Beyond 127.0.0.1, at the port for what is thrown away.
    let place = Ipv4Addr::new(127, 1 + (high & 63), middle, low);
    // Where there is no entry to be had it is refused.
    let _ = socket.send_to(b"x", SocketAddrV4::new(place, 9));
}

/// Fills the table, and then asks for more than it has until that is enough.
fn flood(most: u64, end: &AtomicBool) {
    let socket = socket();
    let mut number = 0_u32;
    while !end.load(Relaxed) {
        for _ in 0..BURST {
            number = number.wrapping_add(1);
            send(&socket, number);
        }
        if u64::from(number) > most {
            // Nobody answers: this is a pause.
            let _ = socket.recv(&mut [0; 8]);
        }
    }
}

/// Connects anew until a connection has an entry: a full table makes room only beside where the
/// connection's own entry would be, so one that finds nothing to drop there is never let in.
fn get(gateway: &Gateway) -> Reply {
    let connected = || RawClient::try_connect(gateway.address()).ok();
    let mut client = eventually(PATIENCE, "an entry", connected).with_deadline(PATIENCE);
    client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    reply(client.read_reply(Body::Framed))
}

fn told(gateway: &Gateway, words: &[&str]) -> String {
    let socket = gateway.directory().path().join("control");
    let mut command = Command::new(NAGAYA);
    command.args(words).arg("--socket").arg(socket);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// What a sensor says in the JSON of `nagaya sensors`.
fn value(gateway: &Gateway, sensor: &str) -> Option<f64> {
    let json = told(gateway, &["sensors", "--json"]);
    let (_, rest) = json.split_once(&format!("\"{sensor}\":{{\"value\":"))?;
    rest.split_once(',')?.0.parse().ok()
}

/// Waits until a sensor says something of the kind.
fn comes(gateway: &Gateway, sensor: &str, holds: impl Fn(f64) -> bool) {
    eventually(PATIENCE, sensor, || {
        value(gateway, sensor).is_some_and(&holds).then_some(())
    });
}
