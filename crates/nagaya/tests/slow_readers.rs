//! Hundreds of clients that hardly read must not use up what the kernel has for everybody's
//! connections: a client beside them is answered as if they were not there.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::peer::find_program;
use testkit::{Gateway, Outcome, RawClient};

const CONFIG: &str = r#"
workers = 2
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
level = "error"
[[sites]]
hosts = ["*"]
root = "{dir}/files"
"#;

/// Slow reading with small windows, each connection asking three times for 4 MiB.
const ATTACK: [&str; 19] = [
    "-X", "-c", "500", "-r", "400", "-l", "60", "-p", "5", "-v", "0", "-w", "512", "-y", "1024",
    "-z", "32", "-k", "3",
];
const LARGE_BYTES: usize = 4 << 20;
const WATCHED: Duration = Duration::from_secs(4);
/// A p99 below this is fine whatever the quiet one was: a loaded test machine is no instrument.
const UNNOTICED: Duration = Duration::from_millis(50);

/// Kills what it watches over.
struct Attack(Child);

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks on connections of their own for as long as it may; the 99th percentile of waits.
fn p99(address: SocketAddr, span: Duration) -> Duration {
    let begin = Instant::now();
    let mut waits = Vec::new();
    while begin.elapsed() < span {
        let asked = Instant::now();
        let outcome = RawClient::connect(address).ask(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
        match outcome {
            Outcome::Reply(reply) => assert_eq!(reply.status, 200),
            other => panic!("{other:?}"),
        }
        waits.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(3));
    }
    waits.sort();
    waits[waits.len() * 99 / 100]
}

#[test]
fn slow_readers_are_not_felt_by_others() {
    let Some(program) = find_program("slowhttptest") else {
        return;
    };
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let files = builder.directory();
    files.write("files/page", "<p>quick</p>\n".repeat(300));
    files.write("files/large", vec![7; LARGE_BYTES]);
    let gateway = builder.start();
    let quiet = p99(gateway.address(), Duration::from_secs(2));
    let mut command = Command::new(program);
    command
        .args(ATTACK)
        .args(["-u", &format!("http://{}/large", gateway.address())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let attack = Attack(command.spawn().expect("start slowhttptest"));
    // They come at 400 a second; what counts is when they are there.
    std::thread::sleep(Duration::from_millis(1_500));
    let felt = p99(gateway.address(), WATCHED);
    drop(attack);
    assert!(
        felt <= UNNOTICED.max(quiet * 2),
        "p99 {felt:?}, quiet {quiet:?}"
    );
}
