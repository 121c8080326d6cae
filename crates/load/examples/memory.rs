//! Watches the generator's memory over many requests: flat, and not much of it.
//!
//! The server is a few threads of this program that do nothing but answer, so all memory is
//! counted as the generator's. Ends with 1 where memory grew after the first hundred thousand
//! requests or went over the limit. `cargo run --profile quick -p load --example memory [requests]`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use load::client::{Live, Plan, RequestBuilder, Url, run};

const CONNECTIONS: usize = 8;
const SETTLED_AFTER: u64 = 100_000;
const MOST_KIB: u64 = 32 * 1024;
/// Pages the allocator gives back or takes at its own pace.
const SLACK_KIB: u64 = 512;

fn main() -> ExitCode {
    let requests = std::env::args().nth(1).and_then(|a| a.parse().ok());
    let requests: u64 = requests.unwrap_or(10_000_000);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            std::thread::spawn(move || answer(client));
        }
    });
    let url: Url = format!("http://{address}/").parse().expect("a URL");
    let page = RequestBuilder::default().build(&url).expect("a request");
    let mut plan = Plan::new(vec![page]);
    plan.connections = CONNECTIONS;
    plan.end.after = None;
    plan.end.requests = Some(requests);
    let live = Live::new();
    let (mut settled, mut most) = (None, 0);
    let outcome = std::thread::scope(|scope| {
        let load = scope.spawn(|| run(&plan, &live).expect("a plan that can be run"));
        while !load.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if live.look().completed >= SETTLED_AFTER {
                let now = resident_kib();
                settled.get_or_insert(now);
                most = most.max(now);
            }
        }
        load.join().expect("the load ends")
    });
    let settled = settled.unwrap_or_default();
    println!(
        "{} requests, {} failed: {settled} KiB after {SETTLED_AFTER}, {most} KiB at most",
        outcome.completed,
        outcome.failed()
    );
    match most <= MOST_KIB && most <= settled + SLACK_KIB && outcome.failed() == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn answer(mut client: TcpStream) {
    let mut request = [0; 1024];
    while matches!(client.read(&mut request), Ok(1..)) {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nhello, world\n";
        if client.write_all(reply).is_err() {
            return;
        }
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("every process has a size")
}
