//! Ten thousand clients that keep their connection and say nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::processes::memory_kib;
use testkit::{Gateway, PATIENCE};

const CONFIG: &str = r#"
workers = 2
[timeouts] # to have them all takes a while on a busy machine
idle = "10m"
[caps]
connections_per_client = 0
[[sites]]
hosts = ["*"]
rules = [{ handler = { respond = { body = "ok" } } }]
"#;

const CONNECTIONS: u64 = 10_000;
/// Descriptors that are enough for them: the gateway counts on two for each, and keeps some aside.
const DESCRIPTORS: u64 = 3 * CONNECTIONS;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: idle\r\nAccept: */*\r\n\r\n";
/// Resident memory of one idle connection.
const EACH_BYTES_MAX: u64 = 3 * 1024;

fn resident_bytes(pid: u32) -> u64 {
    1024 * memory_kib(pid, "VmRSS")
}

/// How many descriptors this process and the gateway may have; as many as are wanted where that is allowed.
fn descriptors() -> u64 {
    let wanted = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS);
    match allowed < DESCRIPTORS && setrlimit(Resource::Nofile, wanted).is_ok() {
        true => DESCRIPTORS,
        false => allowed,
    }
}

/// Connects and asks once.
fn ask(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address()).expect("connect");
    ask_again(&mut stream);
    stream
}

fn ask_again(stream: &mut TcpStream) {
    stream.write_all(REQUEST).expect("send");
    let mut reply = [0; 512];
    let count = stream.read(&mut reply).expect("a reply");
    assert!(reply[..count].ends_with(b"ok"));
}

#[test]
fn ten_thousand_idle_connections_fit_in_thirty_megabytes() {
    let _alone = super::alone();
    let count = CONNECTIONS.min(descriptors() / 3);
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG).start();
    let server = gateway.server_pid();
    // What is made once is made before.
    drop((0..100).map(|_| ask(&gateway)).collect::<Vec<_>>());
    let before = resident_bytes(server);
    let mut held: Vec<_> = (0..count).map(|_| ask(&gateway)).collect();
    // The last few exchanges are given back a while after their reply.
    let each = || resident_bytes(server).saturating_sub(before) / count;
    let start = Instant::now();
    while each() > EACH_BYTES_MAX && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{count} idle connections: {} bytes each", each());
    assert!(each() <= EACH_BYTES_MAX, "{} bytes each", each());
    // They all still serve.
    held.iter_mut().step_by(100).for_each(ask_again);
}
