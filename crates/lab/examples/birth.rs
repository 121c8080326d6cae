//! What each way into a control group costs, and what walls do, with the calls the gateway itself
//! uses.
//!
//! `birth WAY COUNT [GROUP ...]` starts `/bin/true` again and again and prints the median and the
//! 99th percentile in microseconds, from start to exit:
//!
//! - `own`: in the group of this process;
//! - `into DIRECTORY`: born in a group of version 2;
//! - `join FILE ...`: it writes itself into these `cgroup.procs` before it becomes the program;
//! - `move FILE ...`: its parent writes it in once it runs;
//! - `live FILE FILE ...`: one living process is moved to and fro between pairs of groups, the
//!   move alone is timed;
//! - `walls PATH ...`: behind walls that these are seen through.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use os::spawn::{Birth, Birthplace, Limits, Process, Seen, Walls, next_ended, spawn};

const USAGE: &str = "usage: birth own|into|join|move|live|walls COUNT [GROUP|PATH ...]";
/// How long one program may take; then something is broken.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [way, count, groups @ ..] = arguments.as_slice() else {
        return Err(io::Error::other(USAGE));
    };
    let count: usize = count.parse().map_err(|_| io::Error::other(USAGE))?;
    let files: Vec<File> = match way.as_str() {
        "join" | "move" | "live" => groups.iter().map(writable).collect::<io::Result<_>>()?,
        _ => Vec::new(),
    };
    let mut times_us = match (way.as_str(), groups) {
        ("own", _) => births(count, Birthplace::Own, &[], None)?,
        ("into", [group]) => {
            let group = File::open(group)?;
            births(count, Birthplace::Into(group.as_fd()), &[], None)?
        }
        ("join", _) => {
            let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
            births(count, Birthplace::Join(&fds), &[], None)?
        }
        ("move", _) => births(count, Birthplace::Own, &files, None)?,
        ("walls", _) => births(count, Birthplace::Own, &[], Some(&walls(groups)?))?,
        ("live", _) => moves(count, &files)?,
        _ => return Err(io::Error::other(USAGE)),
    };
    times_us.sort_by(f64::total_cmp);
    let at = |share: f64| times_us.get((times_us.len() as f64 * share) as usize);
    let text = |time: Option<&f64>| time.map_or_else(|| "-".into(), |us| format!("{us:.0}"));
    println!("{} {}", text(at(0.5)), text(at(0.99)));
    Ok(())
}

fn walls(paths: &[String]) -> io::Result<Walls> {
    let sees = paths.iter().map(|path| Seen {
        path: path.as_ref(),
        is_writable: false,
        is_optional: true,
    });
    Walls::new(sees, 512 << 20, "/".as_ref()).map_err(|failed| failed.error)
}

fn writable(path: &String) -> io::Result<File> {
    File::options().write(true).open(path)
}

/// Starts and reaps `count` programs, moving each into `moved_into` once it runs.
fn births(
    count: usize,
    place: Birthplace<'_>,
    moved_into: &[File],
    walls: Option<&Walls>,
) -> io::Result<Vec<f64>> {
    let directory = File::open("/bin")?;
    let null = |write: bool| File::options().read(!write).write(write).open("/dev/null");
    let stdio: [OwnedFd; 3] = [null(false)?.into(), null(true)?.into(), null(true)?.into()];
    let limits = Limits::default();
    (0..count)
        .map(|_| {
            let start = Instant::now();
            let birth = Birth {
                arguments: &[],
                directory: directory.as_fd(),
                name: c"/bin/true",
                environment: &[],
                stdio: [stdio[0].as_fd(), stdio[1].as_fd(), stdio[2].as_fd()],
                user: None,
                limits: &limits,
                birthplace: place,
                listeners: &[],
                walls,
                filter: None,
                outlives: false,
            };
            let (process, verdict) =
                spawn(&birth).map_err(|failed| io::Error::other(format!("{failed:?}")))?;
            for mut group in moved_into {
                // It may have ended already: then the move was as good as any.
                let _ = group.write_all(process.pid().to_string().as_bytes());
            }
            await_end(process)?;
            drop(verdict);
            Ok(microseconds(start))
        })
        .collect()
}

fn await_end(process: Process) -> io::Result<()> {
    let start = Instant::now();
    while next_ended()? != Some(process.pid()) {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other("the program does not end"));
        }
        std::thread::yield_now();
    }
    process.reap().map(drop)
}

/// Moves a sleeping process to and fro between the two groups of each pair.
fn moves(count: usize, pairs: &[File]) -> io::Result<Vec<f64>> {
    let mut sleeper = Command::new("/bin/sleep")
        .arg("600")
        .stdin(Stdio::null())
        .spawn()?;
    let pid = sleeper.id().to_string();
    let times = (0..count)
        .map(|turn| {
            let start = Instant::now();
            for pair in pairs.chunks_exact(2) {
                if let Some(mut group) = pair.get(turn % 2) {
                    group.write_all(pid.as_bytes())?;
                }
            }
            Ok(microseconds(start))
        })
        .collect();
    sleeper.kill()?;
    sleeper.wait()?;
    times
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}
