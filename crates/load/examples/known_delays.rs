//! Says how well the open loop measures: against a server whose delays are known.
//!
//! The server is a thread of this program. It takes each request's delay from a fixed table, in a
//! fixed order, and sleeps until that instant. What the generator should have measured is therefore
//! known, and so is what the server did in fact: the error against both is printed.
//!
//! Both sides sleep, so real-time priority keeps other programs out of the figures and starves
//! nobody: `cargo build --profile quick -p bench --example known_delays`, then
//! `chrt -f 50 target/quick/examples/known_delays [seconds]`. A server that polls instead is stopped
//! by the kernel for 50 ms of each second, and what comes meanwhile waits unseen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use load::client::{Arrivals, Live, Pace, Plan, RequestBuilder, Url, WarmUp, run};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

const PER_SECOND: f64 = 1_000.0;
const CONNECTIONS: usize = 200;
/// How often the server looks whether it is over.
const LOOK: Duration = Duration::from_millis(100);
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

fn main() {
    let seconds = std::env::args().nth(1).and_then(|a| a.parse().ok());
    let seconds = Duration::from_secs(seconds.unwrap_or(10));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let url: Url = format!("http://{address}/").parse().expect("a URL");
    let delayed = RequestBuilder::default().build(&url).expect("a request");
    let mut plan = Plan::new(vec![delayed]);
    plan.connections = CONNECTIONS;
    plan.cores = vec![1];
    plan.pace = Pace::Open {
        per_second: PER_SECOND,
        arrivals: Arrivals::Poisson(1),
        ramp: Duration::ZERO,
    };
    plan.end.after = Some(seconds);
    plan.warm_up = WarmUp::For(Duration::from_millis(500));
    let stop = AtomicBool::new(false);
    let (outcome, mut actual) = std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &stop));
        let outcome = run(&plan, &Live::new()).expect("a plan that can be run");
        stop.store(true, Ordering::Relaxed);
        (outcome, server.join().expect("the server ends"))
    });
    let schedule = &outcome.schedule;
    println!(
        "{} replies, {} failed; {} due, {} late, {} of them by the generator, p99 {} us, busy {:.2}",
        outcome.completed,
        outcome.failed(),
        schedule.due,
        schedule.late,
        schedule.late_by_generator,
        schedule.generator_p99_us,
        outcome.generator_busy,
    );
    actual.sort_unstable();
    let mut table: Vec<u64> = (0..1_000_000).map(delay_us).collect();
    table.sort_unstable();
    let of = |sorted: &[u64], q: f64| sorted[(sorted.len() as f64 * q) as usize];
    println!("quantile   intended     server   measured   error");
    for q in QUANTILES {
        let measured = outcome.times.response.quantile_us(q);
        let (intended, server) = (of(&table, q), of(&actual, q));
        let error = |known: u64| (measured as f64 / known as f64 - 1.0) * 100.0;
        println!(
            "p{:<6} {intended:>9} us {server:>7} us {measured:>7} us   {:+.2} % of intended, {:+.2} % of the server's",
            q * 100.0,
            error(intended),
            error(server),
        );
    }
}

/// Log-uniform from 5 to 100 ms, in an order without pattern: the golden ratio's multiples.
fn delay_us(nth: u64) -> u64 {
    let share = (nth as f64 * 0.618_033_988_749_894_9).fract();
    (5_000.0 * 20.0_f64.powf(share)) as u64
}

/// Answers until it is told to stop; gives the delays it really made.
fn serve(listener: &TcpListener, stop: &AtomicBool) -> Vec<u64> {
    let mut core = CpuSet::new();
    core.set(0);
    sched_setaffinity(None, &core).expect("this machine has a core 0");
    set_current_timer_slack(NonZeroU64::new(1)).expect("a thread may be punctual");
    listener.set_nonblocking(true).expect("a socket");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let add = |fd: &dyn AsFd, token: usize| {
        let token = epoll::EventData::new_u64(token as u64);
        epoll::add(&epoll, fd.as_fd(), token, epoll::EventFlags::IN).expect("room in epoll");
    };
    add(&listener, usize::MAX);
    let mut clients: Vec<(TcpStream, Instant)> = Vec::new();
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let mut made = Vec::new();
    let mut nth = 0;
    let mut events = Vec::with_capacity(64);
    while !stop.load(Ordering::Relaxed) {
        let next = due.peek().map_or(LOOK, |due| {
            due.0.0.saturating_duration_since(Instant::now()).min(LOOK)
        });
        let timeout = Timespec::try_from(next).expect("a tenth of a second");
        epoll::wait(&epoll, spare_capacity(&mut events), Some(&timeout)).expect("events");
        for event in events.drain(..) {
            let token = event.data.u64() as usize;
            let Some((client, asked)) = clients.get_mut(token) else {
                if let Ok((client, _)) = listener.accept() {
                    client.set_nonblocking(true).expect("a socket");
                    client.set_nodelay(true).expect("a socket");
                    add(&client, clients.len());
                    clients.push((client, Instant::now()));
                }
                continue;
            };
            if let Ok(1..) = client.read(&mut [0; 1024]) {
                *asked = Instant::now();
                due.push(Reverse((
                    *asked + Duration::from_micros(delay_us(nth)),
                    token,
                )));
                nth += 1;
            }
        }
        while due.peek().is_some_and(|due| due.0.0 <= Instant::now()) {
            if let Some(Reverse((_, index))) = due.pop() {
                let (client, asked) = &mut clients[index];
                made.push(asked.elapsed().as_micros() as u64);
                let _ = client.write_all(REPLY);
            }
        }
    }
    made
}
