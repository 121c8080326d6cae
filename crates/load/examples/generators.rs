//! Says what a request costs the generator: ours, wrk and ApacheBench against one nginx.
//!
//! Each runs as a process of its own, in turn, on core 1; nginx has core 0. What the system says
//! a process used is divided into the requests it made, so that neither who else runs nor which
//! of them is faster matters. Connections are kept by all three, then closed after each reply by
//! those that can. `cargo run --profile quick -p bench --example generators [rounds]`

use std::process::{Command, Stdio};
use std::time::Duration;

use load::client::{Live, Persistence, Plan, RequestBuilder, Url, run};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use testkit::Peer;

/// Connections of each generator.
const CONNECTIONS: usize = 64;
/// Seconds each runs at a time.
const SECONDS: u64 = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--generate", url] => return generate(url, Persistence::Keep),
        ["--generate-closing", url] => return generate(url, Persistence::Close),
        _ => {}
    }
    let rounds = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(5);
    let Some(nginx) = start_nginx() else {
        return;
    };
    let url = format!("http://{}/", nginx.address());
    println!("requests per generator CPU second, {CONNECTIONS} connections, {rounds} rounds");
    compare(
        rounds,
        &[
            ("ours", ours("--generate", &url)),
            ("wrk", wrk(&url)),
            ("ab -k", ab("-k", &url)),
        ],
    );
    println!("a new connection for each request");
    compare(
        rounds,
        &[
            ("ours", ours("--generate-closing", &url)),
            ("ab", ab("-q", &url)),
        ],
    );
}

/// Runs tools in turn and prints what each makes of a CPU second, the first beside the others.
fn compare(rounds: usize, tools: &[(&str, Vec<String>)]) {
    let mut figures = vec![Vec::new(); tools.len()];
    for _ in 0..rounds {
        for ((name, command), figures) in tools.iter().zip(&mut figures) {
            match measure(command) {
                Some(figure) => figures.push(figure),
                None => println!("{name}: skipped"),
            }
        }
    }
    let median_of = |figures: &[f64]| figures.get(figures.len() / 2).copied();
    for figures in &mut figures {
        figures.sort_by(f64::total_cmp);
    }
    let ours = median_of(&figures[0]);
    for ((name, _), figures) in tools.iter().zip(&figures) {
        if let (Some(median), Some(ours)) = (median_of(figures), ours) {
            println!(
                "{name:>5} {median:>9.0}   ({:.0} to {:.0})   ours is {:.2} times that",
                figures[0],
                figures[figures.len() - 1],
                ours / median
            );
        }
    }
}

/// What the process of its own does.
fn generate(url: &str, persistence: Persistence) {
    let url: Url = url.parse().expect("a URL of this program");
    let builder = RequestBuilder {
        persistence,
        ..RequestBuilder::default()
    };
    let request = builder.build(&url);
    let mut plan = Plan::new(vec![request.expect("a plain request")]);
    plan.connections = CONNECTIONS;
    plan.end.after = Some(Duration::from_secs(SECONDS));
    let outcome = run(&plan, &Live::new()).expect("a plan that can be run");
    assert_eq!(outcome.failed(), 0, "{:?}", outcome.first_failures);
    println!("{} requests in", outcome.completed);
}

fn ours(mode: &str, url: &str) -> Vec<String> {
    let itself = std::env::current_exe().expect("a program that runs has a path");
    words(&format!("{} {mode} {url}", itself.display()))
}

fn wrk(url: &str) -> Vec<String> {
    words(&format!("wrk -t1 -c{CONNECTIONS} -d{SECONDS}s {url}"))
}

fn ab(flag: &str, url: &str) -> Vec<String> {
    words(&format!(
        "ab -q {flag} -t {SECONDS} -n 100000000 -c {CONNECTIONS} {url}"
    ))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Requests per CPU second of one run.
fn measure(command: &[String]) -> Option<f64> {
    let before = children_cpu();
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", "1"]).args(command);
    let output = pinned.stderr(Stdio::null()).output().ok()?;
    let used = children_cpu() - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let requests = text.lines().find_map(|line| {
        let line = line.trim();
        let number = match line.strip_prefix("Complete requests:") {
            Some(rest) => rest,
            None => line.split_once(" requests in")?.0,
        };
        number.trim().parse::<f64>().ok()
    })?;
    Some(requests / used)
}

/// CPU seconds of all children that have ended, in hundredths.
fn children_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = fields
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|f| f.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// nginx that does as little as it can.
fn start_nginx() -> Option<Peer> {
    let nginx = Peer::nginx(
        "keepalive_requests 1000000000; server { listen 127.0.0.1:{port};\n\
         location / { return 200 'hello, world\\n'; } }",
    )?;
    let mut core = CpuSet::new();
    core.set(0);
    let pid = i32::try_from(nginx.pid()).ok().and_then(Pid::from_raw);
    sched_setaffinity(pid, &core).expect("this machine has a core 0");
    Some(nginx)
}
