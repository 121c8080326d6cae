//! `make demo`: twenty sites on four PHP workers, and a crawler that opens 200 connections to one.
//!
//! The idea: nothing is slower here than a page that sleeps 50 ms, so what a visitor waits beyond
//! that is the crawler's doing. The same is shown first before nginx, where there is one, then
//! before Nagaya, which counts the workers and has those who wait take turns. Then, on Nagaya alone, a
//! page of one tenant runs for ever beside others (`runaway`).

mod crowd;
mod runaway;
mod screen;
mod stage;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crowd::{Crowd, Seen};
use lab::{Sweep, adopt, catch_signals, interrupted, on_path};
use load::Error;
use screen::{Frame, Screen};
use stage::{Server, Stage};

/// Sites.
const SITES: usize = 20;
/// The one that is crawled, counted from 0.
const CRAWLED: usize = 6;
/// PHP's processes.
const WORKERS: usize = 4;
/// What a page sleeps.
const PAGE: Duration = Duration::from_millis(50);
/// How long each server is loaded. Waits that are left over are seen to their end.
const SECONDS: u64 = 20;
/// Of that, how long neighbours of a page without end are looked at, with it and without.
const RUNAWAY_PART: u32 = 3;
/// Between two frames.
const FRAME: Duration = Duration::from_millis(250);

/// What a shell calls a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// The limit that has sites take turns.
const LIMIT: &str = "{ concurrent = 4, queue = 1000, wait = \"20s\" }";

const USAGE: &str = "usage: demo NAGAYA [SECONDS]    NAGAYA is the program to show";

/// Runs the demo; the arguments are the gateway's program and, if wanted, the seconds of each part.
///
/// Exit status: 0 fine, 1 failed while running, 2 wrong use, 130 interrupted.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (nagaya, seconds) = match arguments.as_slice() {
        [nagaya] => (PathBuf::from(nagaya), Some(SECONDS)),
        [nagaya, seconds] => (PathBuf::from(nagaya), seconds.parse().ok()),
        _ => (PathBuf::new(), None),
    };
    let Some(seconds) = seconds.filter(|seconds| (1..=3_600).contains(seconds)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match show(&nagaya, Duration::from_secs(seconds)) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(_) if interrupted().is_err() => {
            eprintln!("demo: interrupted; what it started has ended");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Loads one server after the other; returns the table of what their visitors waited.
fn show(nagaya: &Path, time: Duration) -> Result<String, Error> {
    catch_signals()?;
    adopt();
    let _sweep = Sweep;
    let stage = Stage::new()?;
    let mut parts = Vec::new();
    match on_path("nginx") {
        Some(nginx) => parts.push(Server::nginx(&nginx)),
        None => eprintln!("demo: nginx is not installed; Nagaya alone is shown"),
    }
    parts.push(Server::nagaya(nagaya));
    let mut seen = Vec::new();
    for server in parts {
        let name = server.name;
        seen.push((name, part(&stage, &server, time)?));
    }
    let runaway = runaway::show(&stage, nagaya, time / RUNAWAY_PART)?;
    Ok(screen::table(&seen) + &runaway)
}

/// One server, from its start to its end.
fn part(stage: &Stage, server: &Server, time: Duration) -> Result<Vec<Seen>, Error> {
    let running = stage.start(server)?;
    let mut crowd = Crowd::start(running.port, time)?;
    let is_terminal = std::io::stdout().is_terminal();
    if !is_terminal {
        eprintln!("demo: {} for {} s", server.name, time.as_secs());
    }
    let mut screen = Screen::open(is_terminal);
    let began = Instant::now();
    while !crowd.is_over() {
        interrupted()?;
        let frame = Frame {
            server: server.name,
            left: time.saturating_sub(began.elapsed()),
            looks: crowd.look(),
        };
        screen.show(&frame);
        std::thread::sleep(FRAME);
    }
    drop(screen);
    let _ = std::io::stdout().flush();
    crowd.seen()
}
