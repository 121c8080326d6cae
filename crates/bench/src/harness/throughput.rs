//! The main table: every row on every server that can do it, slices in turn.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use super::bed::{Bed, Log};
use super::options::Options;
use super::peer::{self, Peer, Running, Server};
use super::progress;
use super::stats::{self, Summary};
use super::usage::CpuTime;
use super::work::{Kind, ROWS, Work};
use super::wrk;
use crate::error::Error;

/// How long records may take to be written once the load has ended.
const RECORDS_WAIT: Duration = Duration::from_secs(3);

/// What one slice gave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) per_cpu_second: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) failed: u64,
    /// Requests without an access record, where there should be one.
    pub(crate) unlogged: u64,
}

/// All slices of one row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) work: Work,
    /// Servers in a fixed order, the gateway first, each with its slices in the order of rounds.
    pub(crate) slices: Vec<(Server, Vec<Slice>)>,
}

impl Row {
    /// Ours over theirs, round by round; `None` for the gateway itself or where one is missing.
    pub(crate) fn ratio(&self, peer: &str) -> Option<Summary> {
        let ours = Server::Nagaya.name();
        if peer == ours {
            return None;
        }
        stats::ratios(
            &self.figures(ours, |s| s.per_cpu_second),
            &self.figures(peer, |s| s.per_cpu_second),
        )
    }

    /// The figure of `server`, round by round.
    pub(crate) fn figures(&self, server: &str, figure: impl Fn(&Slice) -> f64) -> Vec<f64> {
        let found = self.slices.iter().find(|(s, _)| s.name() == server);
        found
            .map(|(_, slices)| slices.iter().map(figure).collect())
            .unwrap_or_default()
    }
}

/// Measures every row `options` wants.
pub(crate) fn run(
    bed: &Bed,
    peers: &[Peer],
    options: &Options,
    log: Log,
) -> Result<Vec<Row>, Error> {
    let rows = rows(bed, options);
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let running = peer::start_all(peers, bed, log)?;
    let mut table = Vec::new();
    for work in rows {
        table.push(row(&running, options, log, work)?);
    }
    progress::clear();
    Ok(table)
}

/// The rows that are wanted; all of them where latency alone is, which needs their rates.
fn rows(bed: &Bed, options: &Options) -> Vec<Work> {
    let named = ROWS.iter().any(|work| options.wants(work.name));
    let wanted = |work: &Work| options.wants(work.name) || (!named && options.wants("half load"));
    let able = |work: &Work| match work.kind {
        Kind::Proxy => bed.has_backend(),
        Kind::Php => bed.php().is_some(),
        Kind::Respond | Kind::Static => true,
    };
    ROWS.into_iter()
        .filter(|work| wanted(work) && able(work))
        .collect()
}

fn row(
    running: &[(Server, Running)],
    options: &Options,
    log: Log,
    work: Work,
) -> Result<Row, Error> {
    let able: Vec<&(Server, Running)> = running
        .iter()
        .filter(|(server, _)| server.can(work.kind))
        .collect();
    let mut slices: Vec<(Server, Vec<Slice>)> = able
        .iter()
        .map(|(server, _)| (*server, Vec::new()))
        .collect();
    for (_, server) in &able {
        progress::show(&format!("{} · {} · warm-up", work.name, server.name));
        wrk::load(server.port, work.path, options.connections, 1)?;
    }
    for round in 0..options.rounds {
        // Each round begins with another server, so that none always follows the same one.
        for turn in 0..able.len() {
            let index = (round + turn) % able.len();
            let logging = if log == Log::On { " · log on" } else { "" };
            progress::show(&format!(
                "{}{logging} · round {}/{} · {}",
                work.name,
                round + 1,
                options.rounds,
                able[index].1.name
            ));
            slices[index]
                .1
                .push(slice(&able[index].1, options, log, work)?);
        }
    }
    Ok(Row { work, slices })
}

fn slice(server: &Running, options: &Options, log: Log, work: Work) -> Result<Slice, Error> {
    let before = CpuTime::read(server.process.pid());
    let load = wrk::load(server.port, work.path, options.connections, options.seconds)?;
    let cpu_seconds = CpuTime::read(server.process.pid()).seconds_since(&before);
    let recorded = match log {
        Log::Off => load.requests,
        Log::On => take_records(server, load.requests)?,
    };
    if cpu_seconds <= 0.0 {
        return Err(Error::new(
            format!("measure {}", server.name),
            "it used no CPU time; has it ended?",
        ));
    }
    Ok(Slice {
        per_cpu_second: load.requests / cpu_seconds,
        per_second: load.per_second,
        p50_us: load.p50_us,
        p99_us: load.p99_us,
        failed: load.failed,
        unlogged: (load.requests - recorded).max(0.0) as u64,
    })
}

/// Counts the records of a slice and leaves empty files for the next one. Records may be written
/// a little after their replies; those that never come are counted against the server.
fn take_records(server: &Running, wanted: f64) -> Result<f64, Error> {
    let deadline = Instant::now() + RECORDS_WAIT;
    let files = ["access.log", "output"].map(|name| server.home.join(name));
    loop {
        let lines: usize = files.iter().map(|file| lines_of(file)).sum();
        if lines as f64 >= wanted || Instant::now() > deadline {
            for file in &files {
                if let Ok(file) = File::options().write(true).open(file) {
                    let _ = file.set_len(0);
                }
            }
            return Ok(lines as f64);
        }
        progress::check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lines_of(path: &Path) -> usize {
    let mut lines = 0;
    let mut buffer = vec![0; 1 << 20];
    if let Ok(mut file) = File::open(path) {
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            lines += buffer
                .iter()
                .take(count)
                .filter(|byte| **byte == b'\n')
                .count();
        }
    }
    lines
}
