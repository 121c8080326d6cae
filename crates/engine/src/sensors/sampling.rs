//! The thread that measures: ten times a second, as long as its server lives.
//!
//! The idea: it waits with a timeout for its own end, so that it costs nothing in between and
//! ends at once. Between two samples nothing is held. What is published is taken back when it
//! ends, however that comes: nobody is to decide anything by numbers that stand still.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::model::sensor::Gauge;

use super::gauges::{Missing, Numbers, Sensors, Snapshot};
use super::handshakes::TakenOut;
use super::history::History;
use super::machine::Machine;
use crate::shedding;
use crate::worker::Shared;

/// How often everything is measured.
const EVERY: Duration = Duration::from_millis(100);
/// After a longer time without a sample the process had been stopped or frozen: how late its
/// workers are then says nothing.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// Measures this machine, sample after sample.
pub struct Here {
    machine: Machine,
    history: History,
    begun: Instant,
}

impl Here {
    /// Looks what there is to be measured.
    pub fn look() -> Self {
        Self::below(Path::new("/proc"))
    }

    fn below(root: &Path) -> Self {
        Self {
            machine: Machine::below(root),
            history: History::default(),
            begun: Instant::now(),
        }
    }

    /// Measures the machine alone, for a process that is no gateway.
    pub fn sample(&mut self) -> Snapshot {
        let at = Instant::now();
        let mut numbers = self.machine.read(self.at_us(at));
        // These would be of this very process.
        set(&mut numbers, Gauge::Descriptors, f64::NAN);
        self.note(at, numbers, Vec::new())
    }

    /// What this machine does not tell.
    pub fn missing(&self) -> Vec<Missing> {
        self.machine.missing()
    }

    fn at_us(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begun);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn note(&mut self, at: Instant, numbers: Numbers, lags_s: Vec<f64>) -> Snapshot {
        let at_us = self.at_us(at);
        self.history.note(at_us, numbers, lags_s)
    }
}

/// The thread, from outside; it ends with this.
#[derive(Debug)]
pub struct Sampling {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampling {
    /// Measures from now on.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(shared: Shared) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("sensors".to_owned())
            .spawn(move || run(&shared, &stopped))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Takes back what was published, and what came of it.
struct Published<'a>(&'a Shared);

impl Drop for Published<'_> {
    fn drop(&mut self) {
        let sensors = &self.0.sensors;
        sensors.publish(&Snapshot::unknown(sensors.lags.len()));
        shedding::let_go(self.0);
        if let Some(generation) = self.0.generation() {
            self.0.limits.let_groups_go(&generation.limits);
        }
    }
}

fn run(shared: &Shared, stopped: &Receiver<()>) {
    let published = Published(shared);
    let sensors = &published.0.sensors;
    let mut here = Here::look();
    let mut handshakes = TakenOut::default();
    let (mut sampled, mut due) = (Instant::now(), Instant::now());
    let mut is_first = true;
    loop {
        let at = Instant::now();
        let mut numbers = here.machine.read(here.at_us(at));
        let threads = shared.handshakes.thread_ids();
        let threads: Vec<_> = threads.filter_map(os::cpu::thread_schedule).collect();
        handshakes.of(&threads, here.at_us(at), &mut numbers);
        let was_frozen = at.duration_since(sampled) > PAUSE_MAX;
        let lags_s = of_gateway(shared, at, was_frozen, &mut numbers);
        sampled = at;
        let snapshot = here.note(at, numbers, lags_s);
        sensors.publish(&snapshot);
        let now_ms = here.at_us(at) / 1_000;
        // Of all that was published, what agents tell among it.
        shedding::step(shared, now_ms, |sensor| sensors.value(sensor));
        if let Some(generation) = shared.generation() {
            let (limits, layout) = (&generation.limits, &generation.layout);
            shared.limits.follow_groups(limits, layout, at);
        }
        if is_first || here.machine.has_looked_again() {
            let missing = here.missing();
            if is_first {
                tell(&missing);
            }
            sensors.set_missing(missing);
            is_first = false;
        }
        due = (due + EVERY).max(at);
        let rest = due.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Measures the gateway itself; tells how late each worker is.
fn of_gateway(shared: &Shared, at: Instant, was_frozen: bool, numbers: &mut Numbers) -> Vec<f64> {
    let lag_s = |worker: usize| {
        let lag_us = shared.loads.take_lag_us(worker);
        let lag_us = lag_us.filter(|_| !was_frozen);
        lag_us.map_or(f64::NAN, |lag_us| lag_us as f64 / 1e6)
    };
    let lags_s: Vec<f64> = (0..shared.stats.len()).map(lag_s).collect();
    let worst = lags_s.iter().copied().fold(f64::NAN, f64::max);
    set(numbers, Gauge::LoopLag, worst);
    let in_flight = shared.stats.iter().map(|stats| {
        // In this order: an exchange that ends in between is not under way.
        let (ended, begun) = (stats.ended.load(Relaxed), stats.begun.load(Relaxed));
        begun.saturating_sub(ended)
    });
    set(numbers, Gauge::InFlight, in_flight.sum::<u64>() as f64);
    let age = shared.limits.oldest_wait(at).unwrap_or_default();
    set(numbers, Gauge::QueueAge, age.as_secs_f64());
    lags_s
}

fn set(numbers: &mut Numbers, gauge: Gauge, number: f64) {
    if let Some(place) = numbers.get_mut(gauge.index()) {
        *place = number;
    }
}

/// Says once what this machine does not tell.
fn tell(missing: &[Missing]) {
    if missing.is_empty() {
        return;
    }
    let gauges = missing.iter().flat_map(|lack| lack.gauges);
    let names: Vec<_> = gauges.map(|gauge| gauge.name()).collect();
    let reasons: Vec<_> = missing.iter().map(|lack| lack.why.as_str()).collect();
    let (sensors, why) = (names.join(", "), reasons.join("; "));
    tracing::info!(
        sensors,
        why,
        "this machine does not have all sensors; nagaya sensors says what would make it tell"
    );
}

/// What this machine says at this moment, for a process that is no gateway. What is told by the
/// second is not known.
pub fn of_machine() -> Sensors {
    let sensors = Sensors::new(0);
    sensors.publish(&Here::look().sample());
    sensors
}

#[cfg(test)]
mod tests {
    use config::model::sensor::Sensor;

    use super::*;

    fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < until, "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_thread_publishes_until_it_is_stopped() {
        let (shared, _doors) = Shared::new(2);
        let sampling = Sampling::start(shared.clone()).expect("a thread");
        let value = |gauge| shared.sensors.value(&Sensor::Here(gauge));
        eventually("in flight is known", || value(Gauge::InFlight) == Some(0.0));
        shared.stats[0].begun.fetch_add(3, Relaxed);
        eventually("it counts", || value(Gauge::InFlight) == Some(3.0));
        shared.loads.beat(1);
        shared.loads.note_lag(1, Duration::from_millis(700));
        eventually("a worker is late", || {
            value(Gauge::LoopLag).is_some_and(|lag_s| lag_s >= 0.7)
        });
        drop(sampling);
        assert_eq!(value(Gauge::InFlight), None);
    }

    #[test]
    fn a_machine_is_measured_as_its_files_say() {
        let root = std::env::temp_dir().join(format!("nagaya-proc-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write("loadavg", "3.25 2.00 1.00 1/1 1\n");
        write("meminfo", "MemTotal: 100 kB\nMemAvailable: 25 kB\n");
        write("pressure/cpu", "some avg10=0.00 total=0\n");
        write("sys/net/netfilter/nf_conntrack_count", "30\n");
        write("sys/net/netfilter/nf_conntrack_max", "40\n");
        write("sys/net/ipv4/ip_local_port_range", "32768 32777\n");
        write("net/tcp", "0: 0:8001 A:1 01\n0: 0:8002 A:1 06\n");
        write("vmstat", "of something else\n");
        let mut here = Here::below(&root);
        // The ports are known after a step for each table.
        let snapshots: Vec<_> = (0..4).map(|_| here.sample()).collect();
        let last = snapshots.last().expect("some");
        for (gauge, expected) in [
            (Gauge::Load1, Some(3.25)),
            (Gauge::Load15, Some(1.0)),
            (Gauge::MemoryAvailable, Some(0.25)),
            (Gauge::Conntrack, Some(0.75)),
            (Gauge::Ports, Some(0.2)),
            (Gauge::CpuPressure, Some(0.0)),
            (Gauge::IoPressure, None),
            (Gauge::SwapIn, None),
            (Gauge::Descriptors, None),
        ] {
            assert_eq!(last.value(&Sensor::Here(gauge)), expected, "{gauge:?}");
        }
        let missing = here.missing();
        let of = |gauge| missing.iter().find(|lack| lack.gauges.contains(&gauge));
        assert!(of(Gauge::IoPressureFull).is_some_and(|lack| lack.remedy.contains("psi=1")));
        assert!(of(Gauge::SwapIn).is_some_and(|lack| lack.why.contains("vmstat")));
        assert!(of(Gauge::Load1).is_none() && of(Gauge::Conntrack).is_none());
        std::fs::remove_dir_all(&root).expect("the directory");
    }
}
