//! Latency at half load: every server gets the same rate, half of what the slowest one managed.
//!
//! Requests are due at instants fixed in advance, and latency runs from the due instant to the
//! last byte of the reply. A server that stalls therefore pays for every request it kept waiting,
//! also for those that could not be sent while it stalled. Quantiles are taken window by window,
//! and the median window counts: what the machine does to everybody now and then is not the
//! server's doing.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::thread::{CpuSet, sched_setaffinity, sched_yield, set_current_timer_slack};

use super::bed::{Bed, Log};
use super::http;
use super::options::Options;
use super::peer::{self, Peer, Running, Server};
use super::progress;
use super::stats;
use super::throughput::Row;
use super::work::{Kind, Work};
use crate::error::Error;

/// Slices per server and row: tails settle sooner than ratios.
const ROUNDS_MAX: usize = 5;
/// How long replies may still come after the last request is due.
const DRAIN: Duration = Duration::from_secs(2);
/// Quantiles are taken of the requests due within this time.
const WINDOW: Duration = Duration::from_millis(500);
/// Gaps shorter than this are waited out by yielding: a timer would be late.
const SPIN_BELOW: Duration = Duration::from_micros(150);

/// One row: what each server's requests took.
#[derive(Debug)]
pub(crate) struct LatencyRow {
    pub(crate) work: Work,
    pub(crate) per_second: f64,
    pub(crate) servers: Vec<(Server, Latency)>,
}

impl LatencyRow {
    /// The gateway's p50 and p99 over the best peer's of each.
    pub(crate) fn beside_best_peer(&self) -> Option<(f64, f64)> {
        let is_ours = |server: &Server| *server == Server::Nagaya;
        let (_, ours) = self.servers.iter().find(|(server, _)| is_ours(server))?;
        let best = |figure: fn(&Latency) -> f64| {
            let peers = self.servers.iter().filter(|(server, _)| !is_ours(server));
            peers.map(|(_, latency)| figure(latency)).reduce(f64::min)
        };
        Some((
            ours.p50_us / best(|l| l.p50_us)?,
            ours.p99_us / best(|l| l.p99_us)?,
        ))
    }
}

/// Medians over the windows of all rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Requests without a good reply, all rounds together.
    pub(crate) failed: u64,
}

/// Measures the rows of `table` again at half the rate of the slowest server.
pub(crate) fn run(
    bed: &Bed,
    peers: &[Peer],
    options: &Options,
    table: &[Row],
) -> Result<Vec<LatencyRow>, Error> {
    let running = peer::start_all(peers, bed, Log::Off)?;
    let rows = table
        .iter()
        // php fills the client's core, and its replies have no length.
        .filter(|row| row.work.kind != Kind::Php)
        .map(|row| measure(&running, options, row))
        .collect();
    progress::clear();
    rows
}

fn measure(
    running: &[(Server, Running)],
    options: &Options,
    row: &Row,
) -> Result<LatencyRow, Error> {
    let able: Vec<&(Server, Running)> = running
        .iter()
        .filter(|(server, _)| server.can(row.work.kind))
        .collect();
    let rates = able
        .iter()
        .filter_map(|(server, _)| stats::summary(&row.figures(server.name(), |s| s.per_second)));
    let per_second = rates.map(|rate| rate.median).fold(f64::INFINITY, f64::min) / 2.0;
    let rounds = options.rounds.min(ROUNDS_MAX);
    let mut seen: Vec<Vec<Slice>> = able.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..able.len() {
            let index = (round + turn) % able.len();
            let server = &able[index].1;
            progress::show(&format!(
                "{} at {per_second:.0}/s · round {}/{rounds} · {}",
                row.work.name,
                round + 1,
                server.name
            ));
            seen[index].push(slice(server.port, row.work.path, per_second, options)?);
        }
    }
    let servers = able
        .iter()
        .zip(&mut seen)
        .map(|((server, _), slices)| (*server, combine(slices)))
        .collect();
    Ok(LatencyRow {
        work: row.work,
        per_second,
        servers,
    })
}

#[derive(Debug, Default)]
struct Slice {
    /// In microseconds, by the window in which the request was due.
    windows: Vec<Vec<f64>>,
    failed: usize,
}

impl Slice {
    fn add(&mut self, due_after: Duration, latency: Duration) {
        let window = (due_after.as_secs_f64() / WINDOW.as_secs_f64()) as usize;
        if self.windows.len() <= window {
            self.windows.resize(window + 1, Vec::new());
        }
        self.windows[window].push(latency.as_secs_f64() * 1e6);
    }
}

fn combine(slices: &mut [Slice]) -> Latency {
    let mut median_of = |q: f64| {
        let values: Vec<f64> = slices
            .iter_mut()
            .flat_map(|slice| &mut slice.windows)
            .filter_map(|window| stats::quantile(window, q))
            .collect();
        stats::summary(&values).map_or(f64::NAN, |summary| summary.median)
    };
    let (p50_us, p99_us) = (median_of(0.5), median_of(0.99));
    Latency {
        p50_us,
        p99_us,
        failed: slices.iter().map(|slice| slice.failed as u64).sum(),
    }
}

/// Runs on a thread of its own, which is pinned to the client's core.
fn slice(port: u16, path: &str, per_second: f64, options: &Options) -> Result<Slice, Error> {
    let run = || {
        let mut core = CpuSet::new();
        core.set(1);
        // Without a second core, or without timer slack, the figures are worse for all alike.
        let _ = sched_setaffinity(None, &core);
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        Generator::new(port, path, options.connections)?
            .run(per_second, Duration::from_secs(options.seconds))
    };
    let joined = std::thread::scope(|scope| scope.spawn(run).join());
    let result = joined.unwrap_or_else(|_| Err(std::io::Error::other("the generator panicked")));
    let slice =
        result.map_err(|e| Error::new(format!("load port {port} at {per_second:.0}/s"), e))?;
    progress::check()?;
    Ok(slice)
}

struct Generator {
    epoll: rustix::fd::OwnedFd,
    request: Vec<u8>,
    clients: Vec<Client>,
    free: Vec<usize>,
    /// Due instants of requests that found no free connection.
    waiting: VecDeque<Instant>,
    /// When the first request is due.
    started: Instant,
    slice: Slice,
}

struct Client {
    stream: TcpStream,
    due: Instant,
    head: Vec<u8>,
    /// Bytes of the reply still to come, once its head is known.
    remaining: Option<usize>,
}

impl Generator {
    fn new(port: u16, path: &str, connections: usize) -> std::io::Result<Generator> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut clients = Vec::new();
        for index in 0..connections {
            let stream = TcpStream::connect(http::address(port))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(
                &epoll,
                &stream,
                epoll::EventData::new_u64(index as u64),
                epoll::EventFlags::IN,
            )?;
            clients.push(Client {
                stream,
                due: Instant::now(),
                head: Vec::with_capacity(1024),
                remaining: None,
            });
        }
        Ok(Generator {
            epoll,
            started: Instant::now(),
            request: http::request(port, path),
            free: (0..connections).collect(),
            clients,
            waiting: VecDeque::new(),
            slice: Slice::default(),
        })
    }

    fn run(mut self, per_second: f64, length: Duration) -> std::io::Result<Slice> {
        let start = Instant::now();
        self.started = start;
        let total = (per_second * length.as_secs_f64()) as u64;
        let due_at = |n: u64| start + Duration::from_secs_f64(n as f64 / per_second);
        let mut next = 0;
        let mut buffer = vec![0; 256 * 1024];
        let mut events = Vec::with_capacity(self.clients.len());
        loop {
            let now = Instant::now();
            while next < total && due_at(next) <= now {
                self.waiting.push_back(due_at(next));
                next += 1;
            }
            self.send_waiting()?;
            let busy = self.clients.len() - self.free.len();
            if next == total
                && ((busy == 0 && self.waiting.is_empty()) || now > start + length + DRAIN)
            {
                self.slice.failed += busy + self.waiting.len();
                return Ok(self.slice);
            }
            let gap = if next < total {
                due_at(next).saturating_duration_since(Instant::now())
            } else {
                Duration::from_millis(10)
            };
            self.wait(gap, &mut events)?;
            for event in events.drain(..) {
                self.receive(event.data.u64() as usize, &mut buffer)?;
            }
        }
    }

    fn send_waiting(&mut self) -> std::io::Result<()> {
        while let (Some(due), Some(index)) =
            (self.waiting.front().copied(), self.free.last().copied())
        {
            self.waiting.pop_front();
            self.free.pop();
            let client = &mut self.clients[index];
            client.due = due;
            client.head.clear();
            client.remaining = None;
            client.stream.write_all(&self.request)?;
        }
        Ok(())
    }

    fn wait(&self, gap: Duration, events: &mut Vec<epoll::Event>) -> std::io::Result<()> {
        let timeout = gap.checked_sub(SPIN_BELOW).unwrap_or_default();
        if timeout.is_zero() {
            // The back end of forwarding rows shares this core.
            sched_yield();
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, index: usize, buffer: &mut [u8]) -> std::io::Result<()> {
        let client = &mut self.clients[index];
        let count = match client.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let remaining = match client.remaining {
            Some(remaining) => remaining.saturating_sub(count),
            None => {
                client.head.extend_from_slice(&buffer[..count]);
                let Some(reply) = http::scan(&client.head) else {
                    return Ok(());
                };
                self.slice.failed += usize::from(reply.status != 200);
                (reply.head_bytes + reply.body_bytes).saturating_sub(client.head.len())
            }
        };
        client.remaining = Some(remaining);
        if remaining == 0 {
            let due_after = client.due.saturating_duration_since(self.started);
            self.slice.add(due_after, client.due.elapsed());
            self.free.push(index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every request at once, but stalls once for `stall` after the tenth.
    fn stalling_server(stall: Duration) -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the generator connects");
            let mut buffer = [0; 4096];
            let mut answered = 0;
            while matches!(stream.read(&mut buffer), Ok(n) if n > 0) {
                answered += 1;
                if answered == 10 {
                    std::thread::sleep(stall);
                }
                if stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .is_err()
                {
                    break;
                }
            }
        });
        port
    }

    #[test]
    fn a_stall_is_paid_for_by_every_request_it_delayed() {
        let port = stalling_server(Duration::from_millis(200));
        let generator = Generator::new(port, "/", 1).expect("connected");
        let slice = generator
            .run(500.0, Duration::from_millis(600))
            .expect("a run");
        let latencies_us: Vec<f64> = slice.windows.concat();
        assert_eq!((latencies_us.len(), slice.failed), (300, 0));
        assert_eq!(slice.windows[0].len(), 250, "half a second's worth");
        // 200 ms at 500/s: about a hundred requests were due while the server stood still.
        let late = latencies_us.iter().filter(|us| **us > 20_000.0).count();
        assert!(late >= 60, "only {late} requests saw the stall");
    }
}
