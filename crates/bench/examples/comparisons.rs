//! How often comparisons of real servers err: many of a server with itself, and some with one that
//! spends 3 % more CPU time on each request.
//!
//! `comparisons [--equals 200] [--slowdowns 20] [--slice-ms 100] [--blocks-equal 20]
//! [--blocks-slow 60] [--slowdown 0.03]` prints what was called what, and fails where more than
//! 5 % of the equals were called different or less than 9 of 10 slowdowns were found. Each
//! comparison has two fresh processes, for two processes of one program are not quite alike.

#![forbid(unsafe_code)]

use std::error::Error;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench::compare::{self, Comparison, Options};
use load::client::{Live, Plan, RequestBuilder, Url};
use load::server::Which;
use load::stats::Verdict;
use rustix::thread::{CpuSet, sched_setaffinity};

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nhello, world!";
/// Rounds of work of the plain server on each request; some 100 microseconds.
const ROUNDS: u64 = 60_000;
const CONNECTIONS: usize = 4;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, rounds] = arguments.as_slice()
        && word == "serve"
    {
        return Ok(serve(rounds.parse()?)?);
    }
    let asked = |name: &str, otherwise: f64| -> Result<f64, Failure> {
        let place = arguments.iter().position(|argument| argument == name);
        match place.and_then(|place| arguments.get(place + 1)) {
            Some(value) => Ok(value.parse()?),
            None => Ok(otherwise),
        }
    };
    let slice = Duration::from_millis(asked("--slice-ms", 100.0)? as u64);
    let slowdown = asked("--slowdown", 0.03)?;
    let equals = Series {
        count: asked("--equals", 200.0)? as u64,
        blocks_max: asked("--blocks-equal", 20.0)? as usize,
        rounds: ROUNDS,
        slice,
    };
    let slower = Series {
        count: asked("--slowdowns", 20.0)? as u64,
        blocks_max: asked("--blocks-slow", 60.0)? as usize,
        rounds: slower_rounds(slowdown)?,
        slice,
    };
    let of_equals = equals.run("equals")?;
    let of_slower = slower.run("slower")?;
    let different = of_equals.faster + of_equals.slower;
    if different * 20 > equals.count {
        return Err(format!(
            "{different} of {} equals were called different",
            equals.count
        )
        .into());
    }
    if of_slower.slower * 10 < slower.count * 9 {
        return Err(format!("{} of {} slowdowns found", of_slower.slower, slower.count).into());
    }
    Ok(())
}

/// Comparisons of one kind.
struct Series {
    count: u64,
    blocks_max: usize,
    rounds: u64,
    slice: Duration,
}

#[derive(Default)]
struct Verdicts {
    faster: u64,
    slower: u64,
    same: u64,
    open: u64,
    blocks: usize,
    voided: usize,
    deviations: Vec<f64>,
}

impl Series {
    fn run(&self, name: &str) -> Result<Verdicts, Failure> {
        let began = Instant::now();
        let mut verdicts = Verdicts::default();
        for seed in 0..self.count {
            let a = Server::start(ROUNDS)?;
            let b = Server::start(self.rounds)?;
            let seen = self.compare(&a, &b, seed)?;
            verdicts.take(&seen);
            eprintln!("{name} {}/{}: {}", seed + 1, self.count, seen.sentence());
        }
        println!(
            "{name}: {} comparisons in {:.0} s: {} faster, {} slower, {} same, {} cannot tell; \
             {:.1} blocks each, {} run again, deviation of the ratio {:.2} % (median)",
            self.count,
            began.elapsed().as_secs_f64(),
            verdicts.faster,
            verdicts.slower,
            verdicts.same,
            verdicts.open,
            verdicts.blocks as f64 / self.count.max(1) as f64,
            verdicts.voided,
            load::stats::median(&verdicts.deviations).unwrap_or(f64::NAN) * 100.0,
        );
        Ok(verdicts)
    }

    fn compare(&self, a: &Server, b: &Server, seed: u64) -> Result<Comparison, Failure> {
        let options = Options {
            names: ["a".to_owned(), "b".to_owned()],
            servers: [Which::Pid(a.process.id()), Which::Pid(b.process.id())],
            blocks_max: self.blocks_max,
            slice: self.slice,
            margin: 0.01,
            seed,
        };
        let (a, b) = (a.plan()?, b.plan()?);
        Ok(compare::run(&a, &b, &options, &Live::new(), &mut |_| {})?)
    }
}

impl Verdicts {
    fn take(&mut self, seen: &Comparison) {
        match seen.judgement.verdict {
            Verdict::Faster => self.faster += 1,
            Verdict::Slower => self.slower += 1,
            Verdict::Same { .. } => self.same += 1,
            Verdict::CannotTell { .. } => self.open += 1,
        }
        self.blocks += seen.blocks.len();
        self.voided += seen.voided();
        self.deviations.extend(seen.judgement.deviation);
    }
}

/// Finds how many rounds make a request that much dearer, all its CPU time taken together.
fn slower_rounds(slowdown: f64) -> Result<u64, Failure> {
    let cost = |rounds: u64| -> Result<f64, Failure> {
        let server = Server::start(rounds)?;
        let series = Series {
            count: 1,
            blocks_max: 10,
            rounds,
            slice: Duration::from_millis(200),
        };
        let seen = series.compare(&server, &server, 1)?;
        let costs: Vec<f64> = seen
            .blocks
            .iter()
            .filter_map(|block| block.a.cpu_us)
            .collect();
        load::stats::median(&costs).ok_or_else(|| "no CPU time of the server was seen".into())
    };
    let plain = cost(ROUNDS)?;
    let double = cost(2 * ROUNDS)?;
    let of_round = (double - plain) / ROUNDS as f64;
    let more = (plain * slowdown / of_round) as u64;
    println!("a request costs {plain:.1} us; {more} more rounds than {ROUNDS} make the slowdown");
    Ok(ROUNDS + more)
}

/// A server in a process of its own, on the first core.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(rounds: u64) -> Result<Server, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", &rounds.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().ok_or("the server has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse()?;
        Ok(Server { process, port })
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let url: Url = format!("http://127.0.0.1:{}/", self.port).parse()?;
        let mut plan = Plan::new(vec![RequestBuilder::default().build(&url)?]);
        plan.connections = CONNECTIONS;
        plan.cores = vec![1];
        Ok(plan)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(rounds: u64) -> io::Result<()> {
    let mut core = CpuSet::new();
    core.set(0);
    // With one core there is nothing to choose.
    let _ = sched_setaffinity(None, &core);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let stream = stream?;
        // A client that leaves ends its own thread.
        std::thread::spawn(move || answer(stream, rounds));
    }
    Ok(())
}

fn answer(mut stream: TcpStream, rounds: u64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // The generator sends one small request at a time, each in one segment.
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        let mut state = 1_u64;
        for round in 0..rounds {
            state = black_box(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(round),
            );
        }
        stream.write_all(REPLY)?;
    }
    Ok(())
}
