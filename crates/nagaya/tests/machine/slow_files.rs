//! A file system that hangs on every question makes only those wait who asked for its files, and a
//! client that takes nothing is not waited for.

use std::time::{Duration, Instant};

use testkit::client::Body;
use testkit::slow_mount::{self, SlowMount};
use testkit::{Gateway, Outcome, RawClient, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
level = "error"

[[sites]]
hosts = ["fast.test"]
root = "{dir}/www"
[[sites.rules]]
match = { path = "/respond" }
handler = { respond = { status = 200, body = "at once" } }

[[sites]]
hosts = ["slow.test"]
root = "{dir}/www/slow"
"#;

/// Every question to the slow file system takes this long.
const DELAY: Duration = Duration::from_millis(150);
const SIZE: u64 = 1 << 30;
/// What other clients' 99th percentile may be.
const OTHERS_P99: Duration = Duration::from_millis(10);
/// Replies it is taken of, at least: a machine that stands still now and then delays a few.
const REPLIES_MIN: usize = 1_000;

fn request(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// Asks for fast things for a while; the slowest of 99 % of the replies.
fn p99(gateway: &Gateway, lasting: Duration) -> Duration {
    let until = Instant::now() + lasting;
    let mut took = Vec::new();
    let mut client = gateway.client();
    while Instant::now() < until || took.len() < REPLIES_MIN {
        for path in ["/respond", "/small.txt", "/page.html", "/missing"] {
            let begun = Instant::now();
            let Outcome::Reply(_) = client.ask(&request("fast.test", path)) else {
                client = gateway.client();
                continue;
            };
            took.push(begun.elapsed());
        }
    }
    took.sort();
    took[took.len() * 99 / 100]
}

#[test]
fn a_cold_file_on_a_slow_mount_holds_up_nobody_else() {
    let _alone = super::alone();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    directory.write("www/small.txt", "small");
    directory.write("www/page.html", "<p>page".repeat(2_000));
    let slow = directory.path().join("www/slow");
    std::fs::create_dir(&slow).expect("make a directory");
    let mounted = match SlowMount::at(&slow, SIZE, DELAY) {
        Ok(mounted) => mounted,
        Err(error) => {
            return testkit::lacks("FUSE", error);
        }
    };
    let gateway = builder.start();
    let quiet = p99(&gateway, Duration::from_secs(1));
    // Both ways to the mount: as a site's root, and crossed into from a fast one.
    let asked = [("slow.test", "/big"), ("fast.test", "/slow/big")];
    let mut downloads: Vec<RawClient> = Vec::new();
    for (host, path) in asked.into_iter().cycle().take(12) {
        let mut client = gateway.client().with_deadline(Duration::from_secs(120));
        client.send(&request(host, path));
        downloads.push(client);
    }
    let busy = p99(&gateway, Duration::from_secs(4));
    assert!(
        busy < OTHERS_P99 + quiet,
        "p99 was {quiet:?} before and {busy:?} beside the slow downloads"
    );
    eprintln!("p99 of others: {quiet:?} before, {busy:?} beside 12 slow downloads");
    let name = slow_mount::FILE;
    for client in &mut downloads {
        let begun = client.read_exactly(1_000);
        assert!(begun.starts_with(b"HTTP/1.1 200 "), "{name} must come");
        assert_eq!(begun.len(), 1_000, "{name} must come, if slowly");
    }
    // Answers that wait for nobody's disk: what is not there, and a head.
    let mut client = gateway.client();
    client.send(b"HEAD /big HTTP/1.1\r\nHost: slow.test\r\n\r\n");
    let Outcome::Reply(head) = client.read_reply(Body::Never) else {
        panic!("no reply to HEAD");
    };
    assert_eq!(head.head.field("content-length"), Some("1073741824"));
    drop(downloads);
    drop(gateway);
    drop(mounted);
}

const IMPATIENT: &str = r#"
workers = 1
[log]
access = "-"
[timeouts]
write = "500ms"
[[sites]]
hosts = ["fast.test"]
root = "{dir}/www"
"#;

#[test]
fn a_client_that_takes_nothing_of_a_large_file_is_given_up() {
    let _alone = super::alone();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), IMPATIENT);
    let directory = builder.directory();
    directory.write("www/large", vec![0; 64 << 20]);
    let gateway = builder.start();
    let mut client = gateway.client();
    client.send(&request("fast.test", "/large"));
    // Sooner than the gateway gives one up by itself.
    eventually(Duration::from_secs(25), "the exchange to end", || {
        gateway.stdout().contains("GET /large").then_some(())
    });
    let (came, _) = client.read_to_end();
    assert!(came.len() < 64 << 20, "all {} bytes came", came.len());
}
