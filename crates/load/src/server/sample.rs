//! A server looked at again and again while a load runs, into a series of bounded length.
//!
//! The idea: looking takes CPU time from what is measured, so dear looks are taken less often, by
//! what they were found to cost. A full series drops every second sample and goes on at half the
//! pace: it always covers all of the time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Server;
use super::reading::{Reading, TreeFigures};
use super::spent::{Spent, ratio};
use crate::seconds::seconds;

/// Samples kept; an even number.
const SAMPLES_MAX: usize = 600;
/// Least time between two samples.
const PERIOD_MIN: Duration = Duration::from_millis(10);
/// A look may take this part of a core, one in so many: pauses grow with what a look was found to
/// cost.
const LOOK_PART: u32 = 100;
/// Looking at memory or sockets may take this part of the time.
const DEAR_PART: u32 = 100;
/// Least time between two looks at memory or sockets; a little less than a second, so that samples
/// a second apart all have them.
const DEAR_PERIOD: Duration = Duration::from_millis(900);
/// Longest: a server with more memory than that is seen a little less exactly in time.
const DEAR_PERIOD_MAX: Duration = Duration::from_secs(30);

/// A server at an instant.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sample {
    /// When, since the first look.
    #[serde(serialize_with = "seconds")]
    pub at: Duration,
    /// Cores it kept busy since the last sample, 1.5 for one and a half.
    pub cores_used: f64,
    /// Its threads that waited for a core, on average since the last sample.
    pub waiting_for_core: f64,
    /// Proportional share of memory, where this sample has it.
    pub pss_bytes: Option<u64>,
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// TCP sockets on its listening ports but the listening ones, where this sample has them.
    pub sockets: Option<u64>,
    /// Threads that stood still for a CPU quota, on average since the last sample.
    pub throttled: Option<f64>,
    /// Share of the time since the last sample in which some task of the machine waited for a
    /// core, 0 to 1.
    pub cpu_pressure: Option<f64>,
    /// The hypervisor's share of the machine's time since the last sample, 0 to 1.
    pub steal_share: f64,
    /// One-minute load average of the machine.
    pub load1: f64,
}

/// A thread that takes samples until it is told to stop.
#[derive(Debug)]
pub struct Sampler {
    stop: SyncSender<()>,
    thread: JoinHandle<(Server, Vec<Sample>)>,
}

impl Sampler {
    /// Starts to take a sample each `period`.
    pub fn start(server: Server, period: Duration) -> Sampler {
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::spawn(move || run(server, period.max(PERIOD_MIN), &stopped));
        Sampler { stop, thread }
    }

    /// Ends it, and gives the server back with the samples.
    ///
    /// # Panics
    /// When the thread did.
    pub fn stop(self) -> (Server, Vec<Sample>) {
        let _ = self.stop.try_send(());
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn run(mut server: Server, mut period: Duration, stopped: &Receiver<()>) -> (Server, Vec<Sample>) {
    let mut watch = Watch::start(&mut server);
    let mut samples = Vec::new();
    let mut due = Instant::now() + period;
    loop {
        let wait = due.saturating_duration_since(Instant::now());
        match stopped.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        samples.push(watch.look(&mut server));
        if samples.len() >= SAMPLES_MAX {
            halve(&mut samples);
            period *= 2;
        }
        due = (due + period).max(Instant::now() + watch.least_pause());
    }
    samples.push(watch.look(&mut server));
    (server, samples)
}

/// Makes one sample of each two: the later one, with what both say of the time between.
fn halve(samples: &mut Vec<Sample>) {
    let mut from = Duration::ZERO;
    let pairs = std::mem::take(samples);
    for pair in pairs.chunks(2) {
        if let [first, second] = pair {
            samples.push(merged(from, first, second));
        } else {
            samples.extend_from_slice(pair);
        }
        from = pair.last().map_or(from, |last| last.at);
    }
}

/// The time from `from` to the second, which the first divides.
fn merged(from: Duration, first: &Sample, second: &Sample) -> Sample {
    let whole = second.at.saturating_sub(from);
    let early = ratio(first.at.saturating_sub(from), whole);
    let mean = |a: f64, b: f64| a * early + b * (1.0 - early);
    let mean_of = |a: Option<f64>, b: Option<f64>| Some(mean(a?, b?));
    Sample {
        cores_used: mean(first.cores_used, second.cores_used),
        waiting_for_core: mean(first.waiting_for_core, second.waiting_for_core),
        pss_bytes: second.pss_bytes.or(first.pss_bytes),
        sockets: second.sockets.or(first.sockets),
        throttled: mean_of(first.throttled, second.throttled),
        cpu_pressure: mean_of(first.cpu_pressure, second.cpu_pressure),
        steal_share: mean(first.steal_share, second.steal_share),
        ..second.clone()
    }
}

/// Takes samples of a server.
#[derive(Debug)]
pub(super) struct Watch {
    started: Instant,
    last: Reading,
    cost: Duration,
    memory: Dear,
    sockets: Dear,
}

/// A look that is dear, and what it cost.
#[derive(Debug, Default)]
struct Dear {
    last: Option<Instant>,
    cost: Duration,
}

impl Dear {
    fn is_due(&self) -> bool {
        let pause = (self.cost * DEAR_PART).clamp(DEAR_PERIOD, DEAR_PERIOD_MAX);
        self.last.is_none_or(|last| last.elapsed() >= pause)
    }

    fn cost_since(&mut self, cpu_ns: u64) {
        self.last = Some(Instant::now());
        self.cost = cost_since(cpu_ns);
    }
}

impl Watch {
    pub(super) fn start(server: &mut Server) -> Watch {
        let last = server.read_lightly();
        Watch {
            started: last.at,
            last,
            cost: Duration::ZERO,
            memory: Dear::default(),
            sockets: Dear::default(),
        }
    }

    /// Takes a sample; of memory and sockets where it is time.
    pub(super) fn look(&mut self, server: &mut Server) -> Sample {
        let began = os::cpu::thread_cpu_ns();
        let mut reading = server.read_lightly();
        self.cost = cost_since(began);
        if self.memory.is_due() {
            let began = os::cpu::thread_cpu_ns();
            server.add_memory(&mut reading);
            self.memory.cost_since(began);
        }
        let mut sockets = None;
        if self.sockets.is_due() {
            let began = os::cpu::thread_cpu_ns();
            server.add_sockets(&mut reading);
            self.sockets.cost_since(began);
            sockets = reading.tree.as_ref().map(connections);
        }
        let mut sample = sample(self.started, &self.last, &reading);
        sample.sockets = sockets;
        self.last = reading;
        sample
    }

    /// Takes a sample, of memory and sockets too: nothing is left out of the last one.
    pub(super) fn look_at_all(&mut self, server: &mut Server) -> Sample {
        self.memory.last = None;
        self.sockets.last = None;
        self.look(server)
    }

    /// Time to let pass before the next look, that looking stays a small part of the load.
    fn least_pause(&self) -> Duration {
        self.cost * LOOK_PART
    }
}

fn cost_since(cpu_ns: u64) -> Duration {
    Duration::from_nanos(os::cpu::thread_cpu_ns().saturating_sub(cpu_ns))
}

/// Sockets that are no listeners.
pub(super) fn connections(tree: &TreeFigures) -> u64 {
    let states = tree.sockets.iter().filter(|(state, _)| *state != "LISTEN");
    states.map(|(_, count)| count).sum()
}

fn sample(started: Instant, last: &Reading, now: &Reading) -> Sample {
    let spent = Spent::between(last, now);
    let tree = spent.tree.clone().unwrap_or_default();
    Sample {
        at: now.at.saturating_duration_since(started),
        cores_used: spent.cores_used(),
        waiting_for_core: ratio(tree.run_queue, spent.time),
        pss_bytes: tree.pss_bytes,
        processes: tree.processes,
        threads: tree.threads,
        sockets: None,
        throttled: tree.throttling.map(|it| ratio(it.time, spent.time)),
        cpu_pressure: spent.cpu_pressure,
        steal_share: spent.steal_share,
        load1: spent.load1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64, cores_used: f64) -> Sample {
        Sample {
            at: Duration::from_secs(second),
            cores_used,
            processes: second,
            pss_bytes: (second % 2 == 1).then_some(second),
            ..Sample::default()
        }
    }

    #[test]
    fn half_a_series_says_the_same_in_fewer_words() {
        let mut samples = vec![at(1, 1.0), at(2, 0.0), at(3, 2.0), at(6, 1.0), at(7, 5.0)];
        halve(&mut samples);
        assert_eq!(samples.len(), 3);
        let seconds: Vec<u64> = samples.iter().map(|it| it.at.as_secs()).collect();
        assert_eq!(seconds, [2, 6, 7]);
        let used: Vec<f64> = samples.iter().map(|it| it.cores_used).collect();
        // The second pair: one second of 2 cores and three of one.
        assert_eq!(used, [0.5, 1.25, 5.0]);
        assert_eq!(samples[0].pss_bytes, Some(1));
        assert_eq!(samples[1].processes, 6);
    }

    #[test]
    fn dear_looks_are_taken_seldom() {
        let mut dear = Dear::default();
        assert!(dear.is_due());
        dear.last = Some(Instant::now());
        assert!(!dear.is_due());
        dear.last = Instant::now().checked_sub(DEAR_PERIOD_MAX);
        dear.cost = Duration::from_secs(100);
        assert!(dear.last.is_none() || dear.is_due());
    }
}
