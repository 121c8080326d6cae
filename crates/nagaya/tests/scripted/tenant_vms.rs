//! Tenants' VMs in the running gateway: what one tenant's script breaks, how many are open, and what
//! they cost.
//!
//! `cargo test --release -p nagaya --test scripted -- --nocapture two_hundred` prints the figures.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::fixtures::files::get;
use testkit::client::Body;
use testkit::processes::memory_kib;
use testkit::upstream::Step;
use testkit::{Gateway, Outcome, PATIENCE, RawClient, ScriptedUpstream, eventually};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");
const TENANTS: usize = 200;

const HEAD: &str = r#"
workers = 1
[scripts]
cpu = "1s"
{scripts}
init = { code = "class Counter; def initialize; @count = 0; end; def next; @count += 1; end; end; Cache.new(:namespace => 'n').incr 'inits'" }
worker_init = { code = "$counter = Counter.new" }
worker_exit = { code = "Cache.new(:namespace => 'n').incr 'exits'" }
[[sites]]
hosts = ["figures.test"]
rules = [
  { match = { path = "/metrics" }, handler = { metrics = "json" } },
  { match = { path = "/inits" }, handler = { script = { code = "Nginx.rputs Cache.new(:namespace => 'n').get('inits')" } } },
  { match = { path = "/exits" }, handler = { script = { code = "Nginx.rputs Cache.new(:namespace => 'n').get('exits').to_i" } } },
]
tenant = "figures"
[tenants.figures]
scripts_vm = "shared"
"#;

/// What each tenant's site has: a script that answers, one that looks at each request, and one that
/// breaks Ruby.
fn site(tenant: usize) -> String {
    format!(
        "[[sites]]\nhosts = [\"t{tenant}.test\"]\ntenant = \"t{tenant}\"\n\
         scripts = {{ access = {{ code = \"Nginx::Headers_in.new['X-Tenant'] = 'of {tenant}'.upcase\" }} }}\n\
         rules = [\n\
         {{ match = {{ path = \"/count\" }}, handler = {{ script = {{ code = \"Nginx.rputs $counter.next\" }} }} }},\n\
         {{ match = {{ path = \"/break\" }}, handler = {{ script = {{ code = \"class String; undef_method :upcase; end; module Kernel; undef_method :raise; end\" }} }} }},\n\
         {{ match = {{ path = \"/long\" }}, handler = {{ script = {{ code = \"Nginx.rputs 'x' * 9_000_000\" }} }} }},\n\
         {{ match = {{ path = \"/waits\" }}, handler = {{ proxy = \"http://{{upstream}}\" }} }},\n\
         ]\n[tenants.t{tenant}]\n"
    )
}

fn config(scripts: &str, tenants: usize) -> String {
    let mut text = HEAD.replace("{scripts}", scripts);
    for tenant in 0..tenants {
        let _ = write!(text, "{}", site(tenant));
    }
    text
}

fn gateway(scripts: &str, tenants: usize) -> Gateway {
    let builder = Gateway::with_config(NAGAYA, &config(scripts, tenants));
    builder.with("upstream", "127.0.0.1:1").start()
}

fn said(gateway: &Gateway, tenant: usize, path: &str) -> String {
    let reply = get(gateway, &format!("t{tenant}.test"), path);
    assert_eq!(reply.status, 200, "{tenant}{path}: {}", gateway.stderr());
    reply.text()
}

fn status(gateway: &Gateway, tenant: usize, path: &str) -> u16 {
    get(gateway, &format!("t{tenant}.test"), path).status
}

/// A number out of the gateway's figures of scripts, which are looked at once a second.
fn figure(gateway: &Gateway, name: &str) -> u64 {
    let figures = get(gateway, "figures.test", "/metrics").text();
    let (_, scripts) = figures.split_once("\"scripts\":").unwrap();
    let (_, rest) = scripts.split_once(&format!("\"{name}\":")).unwrap();
    let end = rest.find(|byte: char| !byte.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}

fn wait_for(gateway: &Gateway, name: &str, value: u64) {
    eventually(PATIENCE, &format!("{name} to be {value}"), || {
        (figure(gateway, name) == value).then_some(())
    });
}

fn counted(gateway: &Gateway, path: &str) -> u64 {
    get(gateway, "figures.test", path).text().parse().unwrap()
}

#[test]
fn what_a_tenants_script_undefines_is_undefined_for_that_tenant_alone() {
    let mut gateway = gateway("", 3);
    for tenant in 0..3 {
        assert_eq!(said(&gateway, tenant, "/count"), "1");
    }
    said(&gateway, 0, "/break");
    assert_eq!(status(&gateway, 0, "/count"), 500);
    gateway.wait_for_message("undefined method 'upcase'");
    for tenant in 1..3 {
        assert_eq!(said(&gateway, tenant, "/count"), "2");
    }
    gateway.reload(&config("", 3));
    eventually(PATIENCE, "a whole Ruby again", || {
        (status(&gateway, 0, "/count") == 200).then_some(())
    });
    wait_for(&gateway, "tenant_vms", 1);
    assert_eq!(
        counted(&gateway, "/exits"),
        4,
        "three tenants' and the shared one"
    );
}

#[test]
fn two_hundred_tenants_are_served_by_eight_vms() {
    let gateway = gateway("vms = 8\nmemory = \"16MiB\"", TENANTS);
    for round in 0..2 {
        for tenant in 0..TENANTS {
            assert_eq!(said(&gateway, tenant, "/count"), "1", "round {round}");
        }
    }
    // The last eight are open still.
    for tenant in TENANTS - 8..TENANTS {
        assert_eq!(said(&gateway, tenant, "/count"), "2");
    }
    wait_for(&gateway, "tenant_vms", 8);
    let opened = figure(&gateway, "tenant_vms_opened");
    assert_eq!(opened, 2 * TENANTS as u64);
    assert_eq!(figure(&gateway, "tenant_vms_closed"), opened - 8);
    assert_eq!(figure(&gateway, "tenant_vms_failed"), 0);
    assert_eq!(counted(&gateway, "/inits"), opened + 1);
    assert_eq!(counted(&gateway, "/exits"), opened - 8);
    assert!(figure(&gateway, "memory_bytes") < 16 << 20);
}

/// How long the answer to one request took.
fn took(client: &mut RawClient, tenant: usize) -> Duration {
    let begun = Instant::now();
    client.send(format!("GET /count HTTP/1.1\r\nHost: t{tenant}.test\r\n\r\n").as_bytes());
    let outcome = client.read_reply(Body::Framed);
    let took = begun.elapsed();
    assert!(
        matches!(&outcome, Outcome::Reply(reply) if reply.status == 200),
        "{outcome:?}"
    );
    took
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100].as_micros();
    format!("median {} µs, 95 in 100 below {} µs", at(50), at(95))
}

#[test]
fn two_hundred_vms_and_their_first_requests_cost_little() {
    let gateway = gateway("vms = 200\nmemory = \"256MiB\"", TENANTS);
    let resident = || memory_kib(gateway.server_pid(), "VmRSS");
    let mut client = gateway.client().with_deadline(PATIENCE);
    let before = resident();
    let first = (0..TENANTS).map(|tenant| took(&mut client, tenant));
    let first: Vec<_> = first.collect();
    let after = resident();
    let later = (0..4 * TENANTS).map(|turn| took(&mut client, turn % TENANTS));
    let later: Vec<_> = later.collect();
    wait_for(&gateway, "tenant_vms", TENANTS as u64);
    let held = figure(&gateway, "memory_bytes") / (TENANTS as u64 + 1) / 1_024;
    let each = after.saturating_sub(before) / TENANTS as u64;
    println!(
        "{TENANTS} VMs: {before} KiB resident before, {after} KiB with them: {each} KiB each, of which Ruby holds {held}"
    );
    println!("a tenant's first request: {}", shown(first));
    println!("those that follow: {}", shown(later));
    assert!(held < 1_024 && each < 2_048, "{held} {each}");
}

#[test]
fn a_reply_that_takes_its_time_keeps_no_vm_where_no_script_follows() {
    let (upstream, barrier) = ScriptedUpstream::held(vec![Step::reply(200, "late")]);
    let builder = Gateway::with_config(NAGAYA, &config("vms = 1", 2));
    let gateway = builder.with("upstream", upstream.address()).start();
    let mut waits = gateway.client().with_deadline(PATIENCE);
    waits.send(b"GET /waits HTTP/1.1\r\nHost: t0.test\r\n\r\n");
    barrier.wait();
    assert_eq!(said(&gateway, 1, "/count"), "1");
    barrier.wait();
    let outcome = waits.read_reply(Body::Framed);
    assert!(
        matches!(&outcome, Outcome::Reply(reply) if reply.text() == "late"),
        "{outcome:?}"
    );
}

#[test]
fn a_client_that_reads_nothing_of_what_a_script_wrote_keeps_no_vm() {
    let gateway = gateway("vms = 1\nwall = \"5s\"", 2);
    let mut stalled = TcpStream::connect(gateway.address()).unwrap();
    stalled.set_read_timeout(Some(PATIENCE)).unwrap();
    stalled
        .write_all(b"GET /long HTTP/1.1\r\nHost: t0.test\r\n\r\n")
        .unwrap();
    let mut begun = [0; 12];
    stalled.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    assert_eq!(said(&gateway, 1, "/count"), "1");
}
