//! A client that is slow and steady is no stalled one, however much the kernel holds for it.

use std::fs;
use std::time::{Duration, Instant};

use testkit::client::RawClient;
use testkit::{Gateway, eventually};

const CONFIG: &str = r#"
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = "{dir}/access.log"
format = "json"
[timeouts]
write = "3s"
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

fn asking_slowly(gateway: &Gateway) -> RawClient {
    let mut client = RawClient::connect_narrow(gateway.address());
    client.send(b"GET /large HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    client
}

fn gateway() -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    builder
        .directory()
        .write("www/large", vec![b'x'; FILE_BYTES]);
    builder.start()
}

#[test]
fn a_reader_that_is_slow_and_steady_gets_everything() {
    let gateway = gateway();
    let mut client = asking_slowly(&gateway);
    let start = Instant::now();
    let mut read = 0;
    while start.elapsed() < SLOW {
        read += client.read_exactly(STEP_BYTES).len();
        // Its own pace, not a wait for something.
        std::thread::sleep(STEP);
    }
    let (rest, _) = client.read_to_end();
    assert!(read + rest.len() > FILE_BYTES, "cut after {read}");
}

#[test]
fn a_reader_that_takes_nothing_is_cut() {
    let gateway = gateway();
    let mut client = asking_slowly(&gateway);
    assert_eq!(client.read_exactly(STEP_BYTES).len(), STEP_BYTES);
    let log = gateway.directory().path().join("access.log");
    eventually(
        Duration::from_secs(30),
        "the record of a stalled client",
        || {
            let records = fs::read_to_string(&log).unwrap_or_default();
            records.contains("client_stalled").then_some(())
        },
    );
    let (rest, outcome) = client.read_to_end();
    assert!(rest.len() < FILE_BYTES, "{outcome:?}");
}
