//! What a recorder takes that lives beside a worker: processor time for each request, at 20,000 a second
//! for 1,000 sites, with all that it does meanwhile: 20 looks a second, cold caches, the disk.
//!
//! `cargo run --release -p recorder --example live_cost -- [SITES] [PAGES] [SECONDS] [PER_SECOND]`.
//! Sites take turns, and so do the pages of each; each site has a browser of its own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "no part of the product"
)]

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipc::recorder::{RecorderSettings, ToRecorder};
use ipc::ring::{CURSOR_WORDS, RING_WORDS, RingRecord, RingWriter, TextOf};
use testkit::TempDir;

const NOBODY: u32 = 65_534;
/// How often requests come in, as many as are due.
const TURN: Duration = Duration::from_millis(2);
/// How often what it took is told.
const TOLD: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("record") => recorder::run("nobody"),
        _ => load(words.iter().map(|word| word.parse().unwrap()).collect()),
    }
}

fn load(numbers: Vec<u64>) -> ExitCode {
    let number = |at: usize, usual| numbers.get(at).copied().unwrap_or(usual);
    let (sites, pages) = (number(0, 1_000), number(1, 1));
    let (seconds, per_second) = (number(2, 60), number(3, 20_000));
    let directory = TempDir::new();
    // Started by root it becomes a user who is to write there.
    let _ = chown(directory.path(), Some(NOBODY), Some(NOBODY));
    let mut recorder = LiveRecorder::start(directory.path());
    let begun = Instant::now();
    let (mut sent, mut dropped) = (0_u64, 0_u64);
    let mut before = (begun, 0, recorder.ring.reader().cpu_us);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let due = (begun.elapsed().as_secs_f64() * per_second as f64) as u64;
        while sent < due {
            dropped += u64::from(!recorder.request(sent % sites, sent / sites % pages));
            sent += 1;
        }
        if before.0.elapsed() >= TOLD {
            let cpu_us = recorder.ring.reader().cpu_us;
            let each_us = (cpu_us - before.2) as f64 / (sent - before.1) as f64;
            println!(
                "{:4} s: {each_us:.2} us a request, {dropped} dropped, {} texts untold",
                begun.elapsed().as_secs(),
                recorder.ring.untold(),
            );
            before = (Instant::now(), sent, cpu_us);
        }
        std::thread::sleep(TURN);
    }
    drop(recorder.link);
    recorder.process.wait().unwrap();
    ExitCode::SUCCESS
}

/// A recorder in a process of its own, as the supervisor and a worker see it.
struct LiveRecorder {
    process: std::process::Child,
    link: OwnedFd,
    ring: RingWriter,
    _console: OwnedFd,
}

impl LiveRecorder {
    fn start(directory: &Path) -> LiveRecorder {
        let (link, theirs) = os::fdpass::pair().unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .arg("record")
            .stdin(Stdio::from(theirs))
            .spawn()
            .unwrap();
        println!("the recorder is {}", process.id());
        let settings = RecorderSettings {
            directory: directory.to_owned(),
            salt: "day".into(),
            zone: Some("UTC".into()),
            groups: Vec::new(),
            nice: 0,
            alerts: Vec::new(),
            is_sent: false,
        };
        ToRecorder::Settings(settings).send(link.as_fd()).unwrap();
        let ring = os::shared::memory("ring", RING_WORDS).unwrap();
        let cursor = os::shared::memory("cursor", CURSOR_WORDS).unwrap();
        let writer = RingWriter::new(ring.0.as_fd(), cursor.1.as_fd()).unwrap();
        let (here, console) = os::fdpass::packet_pair().unwrap();
        let rings = vec![ring.1, cursor.0];
        let rings = ToRecorder::Rings { rings, console };
        rings.send(link.as_fd()).unwrap();
        LiveRecorder {
            process,
            link,
            ring: writer,
            _console: here,
        }
    }

    /// A request for a page of a site; whether there is room for it.
    fn request(&mut self, site: u64, page: u64) -> bool {
        let ring = &mut self.ring;
        if ring.begin().is_err() {
            return false;
        }
        let text = |number: u64| format!("site-{number}.example");
        let agent = format!(
            "Mozilla/5.0 (X11; Linux x86_64; rv:1{site}.0) Gecko/20100101 Firefox/1{site}.0"
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let agent = ring.text(TextOf::Agent, agent.as_bytes());
        let name = ring.text(TextOf::Site, text(site).as_bytes());
        let record = RingRecord {
            at_us: i64::try_from(now.as_micros()).unwrap(),
            site: name,
            path: ring.text(TextOf::Path, format!("/hello/{page}").as_bytes()),
            agent,
            visitor: ring.visitor(name, IpAddr::from([127, 0, 0, 1]), agent),
            rule: ring.text(TextOf::Name, format!("rule of {}", text(site)).as_bytes()),
            bytes_out: 5,
            total_us: 40 + (page as u32 * 37) % 60,
            stands_for: 1,
            status: 200,
            is_look: true,
            ..RingRecord::default()
        };
        ring.push(&record);
        true
    }
}
