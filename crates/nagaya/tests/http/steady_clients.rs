//! A client that is slow and steady is no stalled one, however much the kernel holds for it.

use std::fs;
use std::time::{Duration, Instant};

use testkit::client::RawClient;
use testkit::{Gateway, eventually};

const CONFIG: &str = r#"
[log]
access = "{dir}/access.log"
format = "json"
[timeouts]
write = "{write}"
[[sites]]
hosts = ["*"]
root = "{dir}/www"
"#;

const FILE_BYTES: usize = 4 << 20;
/// Slow enough that the kernel, which holds a good part of the file, asks for no more of it
/// while the client reads twice as long as it may take nothing.
const STEP_BYTES: usize = 10 << 10;
const STEP: Duration = Duration::from_millis(200);
const SLOW: Duration = Duration::from_secs(6);
/// How long a client may take nothing.
const WRITE: Duration = Duration::from_secs(3);

fn asking_slowly(gateway: &Gateway) -> RawClient {
    let mut client = RawClient::connect_narrow(gateway.address());
    client.send(b"GET /large HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    client
}

fn gateway() -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("write", format!("{}s", WRITE.as_secs()));
    builder
        .directory()
        .write("www/large", vec![b'x'; FILE_BYTES]);
    builder.start()
}

/// Reads slowly for a while and then the rest: how much came, and for how long it took nothing.
fn read_slowly(gateway: &Gateway) -> (usize, Duration) {
    let mut client = asking_slowly(gateway);
    let start = Instant::now();
    let (mut read, mut last, mut pause) = (0, start, Duration::ZERO);
    while start.elapsed() < SLOW {
        read += client.read_exactly(STEP_BYTES).len();
        pause = pause.max(last.elapsed());
        last = Instant::now();
        // Its own pace, not a wait for something.
        std::thread::sleep(STEP);
    }
    let (rest, _) = client.read_to_end();
    (read + rest.len(), pause.max(last.elapsed()))
}

#[test]
fn a_reader_that_is_slow_and_steady_gets_everything() {
    const TRIES: usize = 5;
    let gateway = gateway();
    let is_served = || {
        let (read, pause) = read_slowly(&gateway);
        // One that stood still with its machine was not steady: it may be cut, and tries again.
        let was_steady = pause < WRITE / 2;
        assert!(read > FILE_BYTES || !was_steady, "cut after {read}");
        read > FILE_BYTES
    };
    assert!((0..TRIES).any(|_| is_served()), "never steady");
}

#[test]
fn a_reader_that_takes_nothing_is_cut() {
    let gateway = gateway();
    let mut client = asking_slowly(&gateway);
    assert_eq!(client.read_exactly(STEP_BYTES).len(), STEP_BYTES);
    let log = gateway.directory().path().join("access.log");
    eventually(
        Duration::from_secs(60),
        "the record of a stalled client",
        || {
            let records = fs::read_to_string(&log).unwrap_or_default();
            records.contains("client_stalled").then_some(())
        },
    );
    let (rest, outcome) = client.read_to_end();
    assert!(rest.len() < FILE_BYTES, "{outcome:?}");
}
