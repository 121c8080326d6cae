//! The machine's own gauges, read off `/proc`.
//!
//! The idea: a table says which file serves which gauges, how often it is read, and what to do
//! where it is not there. What moves fast is read at each sample, what does not once a second. What
//! costs more the more there is to look at (local ports, and descriptors on older kernels) is
//! looked at so seldom that it takes no more than a thousandth of a core. A file that is not
//! there, or could not be read, is looked for again every second: tables of connections come with
//! the first rule of a firewall, and what could not be read for want of memory is needed the next
//! moment.

use std::path::{Path, PathBuf};

use config::model::sensor::Gauge;
use os::sensors::{
    KeptFile, OpenDescriptors, PortRange, PortWalk, conntrack_number, conntrack_refused,
    listen_overflows, load_averages, memory, pages_swapped_in, port_range, pressure,
};

use super::gauges::{GAUGES, Missing, Numbers};
use super::history::{GaugeKind as Value, kind};

/// How often what does not move fast is read.
const SECOND_US: u64 = 1_000_000;
/// How often files that are not there are looked for.
const LOOK_AGAIN_US: u64 = 1_000_000;
/// What costs more than a moment may take one in so many of the processor's time.
const REST_TIMES: u64 = 1_000;
/// Bounds of the rest between two such looks.
const REST_US: (u64, u64) = (1_000_000, 60_000_000);

/// What files say, before it is made gauges of.
#[derive(Debug)]
struct Facts {
    numbers: Numbers,
    conntrack_count: f64,
    conntrack_max: f64,
    ports: Option<PortRange>,
}

/// How often a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    EachSample,
    EachSecond,
}

/// A file, and what it serves.
struct FileSpec {
    /// Below `/proc`.
    path: &'static str,
    gauges: &'static [Gauge],
    pace: Pace,
    /// Puts what the text says into the facts; `None`: it says something else.
    take: fn(&str, &mut Facts) -> Option<()>,
    remedy: &'static str,
}

const NO_PRESSURE: &str = "a kernel with CONFIG_PSI, started with psi=1 on its command line";
const NO_PROC: &str = "mount /proc where the gateway runs";
const NO_CONNTRACK: &str = "nothing, where no firewall follows connections: then no table can fill up (modprobe nf_conntrack loads it)";
const NO_SWAP: &str =
    "mount /proc where the gateway runs; a kernel without CONFIG_SWAP reads nothing back";
const NO_TABLE: &str =
    "/proc/net/tcp readable for the gateway's user (a mount of /proc with subset=pid has none)";

const FILES: [FileSpec; 11] = [
    FileSpec {
        path: "pressure/cpu",
        gauges: &[Gauge::CpuPressure],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.record(
                Gauge::CpuPressure,
                pressure(text).map(|it| it.some.as_secs_f64()),
            )
        },
        remedy: NO_PRESSURE,
    },
    FileSpec {
        path: "pressure/memory",
        gauges: &[Gauge::MemoryPressure, Gauge::MemoryPressureFull],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.set_pressure(text, Gauge::MemoryPressure, Gauge::MemoryPressureFull)
        },
        remedy: NO_PRESSURE,
    },
    FileSpec {
        path: "pressure/io",
        gauges: &[Gauge::IoPressure, Gauge::IoPressureFull],
        pace: Pace::EachSample,
        take: |text, facts| facts.set_pressure(text, Gauge::IoPressure, Gauge::IoPressureFull),
        remedy: NO_PRESSURE,
    },
    FileSpec {
        path: "meminfo",
        gauges: &[Gauge::MemoryAvailable],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.record(
                Gauge::MemoryAvailable,
                memory(text).map(|it| it.available_share()),
            )
        },
        remedy: NO_PROC,
    },
    FileSpec {
        path: "sys/net/netfilter/nf_conntrack_count",
        gauges: &[Gauge::Conntrack],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.conntrack_count = conntrack_number(text)? as f64;
            Some(())
        },
        remedy: NO_CONNTRACK,
    },
    FileSpec {
        path: "loadavg",
        gauges: &[Gauge::Load1, Gauge::Load5, Gauge::Load15],
        pace: Pace::EachSecond,
        take: |text, facts| {
            let means = load_averages(text)?;
            for (gauge, mean) in [Gauge::Load1, Gauge::Load5, Gauge::Load15]
                .into_iter()
                .zip(means)
            {
                facts.set(gauge, mean);
            }
            Some(())
        },
        remedy: NO_PROC,
    },
    FileSpec {
        path: "vmstat",
        gauges: &[Gauge::SwapIn],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.record(
                Gauge::SwapIn,
                pages_swapped_in(text).map(|pages| pages as f64),
            )
        },
        remedy: NO_SWAP,
    },
    FileSpec {
        path: "sys/net/netfilter/nf_conntrack_max",
        gauges: &[Gauge::Conntrack],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.conntrack_max = conntrack_number(text)? as f64;
            Some(())
        },
        remedy: NO_CONNTRACK,
    },
    FileSpec {
        path: "net/stat/nf_conntrack",
        gauges: &[Gauge::ConntrackDrops],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.record(
                Gauge::ConntrackDrops,
                conntrack_refused(text).map(|drops| drops as f64),
            )
        },
        remedy: NO_CONNTRACK,
    },
    FileSpec {
        path: "net/netstat",
        gauges: &[Gauge::ListenOverflows],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.record(
                Gauge::ListenOverflows,
                listen_overflows(text).map(|found| found as f64),
            )
        },
        remedy: NO_PROC,
    },
    FileSpec {
        path: "sys/net/ipv4/ip_local_port_range",
        gauges: &[Gauge::Ports],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.ports = Some(port_range(text)?);
            Some(())
        },
        remedy: NO_PROC,
    },
];

impl Facts {
    /// Takes totals out: one counts when it was read, and is not told again until it is.
    fn forget_totals(&mut self) {
        for gauge in Gauge::ALL {
            if kind(gauge) == Value::Total {
                self.set(gauge, f64::NAN);
            }
        }
    }

    fn set(&mut self, gauge: Gauge, number: f64) {
        if let Some(place) = self.numbers.get_mut(gauge.index()) {
            *place = number;
        }
    }

    /// Takes over what a text says of a gauge.
    fn record(&mut self, gauge: Gauge, number: Option<f64>) -> Option<()> {
        self.set(gauge, number?);
        Some(())
    }

    fn set_pressure(&mut self, text: &str, some: Gauge, full: Gauge) -> Option<()> {
        let pressure = pressure(text)?;
        self.set(some, pressure.some.as_secs_f64());
        let full_s = pressure.full.map_or(f64::NAN, |full| full.as_secs_f64());
        self.set(full, full_s);
        Some(())
    }
}

/// A file of the table, as it was found.
struct MachineFile {
    spec: &'static FileSpec,
    file: Option<KeptFile>,
    /// Why it says nothing.
    why: Option<String>,
    /// When it is to be read.
    due_us: u64,
}

impl MachineFile {
    fn look(&mut self, root: &Path) {
        let path = root.join(self.spec.path);
        match KeptFile::open(&path) {
            Ok(file) => (self.file, self.why) = (Some(file), None),
            Err(error) => {
                let why = config::reason(&error);
                self.why = Some(format!("{}: {why}", path.display()));
            }
        }
    }

    /// Sees that it is read this time, if it is due.
    fn is_due(&mut self, at_us: u64) -> bool {
        let is_due = at_us >= self.due_us;
        if is_due && self.spec.pace == Pace::EachSecond {
            // In step with itself; who was held up for longer begins anew.
            let next_us = self.due_us + SECOND_US;
            self.due_us = match next_us > at_us {
                true => next_us,
                false => at_us + SECOND_US,
            };
        }
        is_due
    }

    /// Reads it, if it is there.
    fn read(&mut self, room: &mut Vec<u8>, facts: &mut Facts) {
        let Some(file) = &self.file else {
            return;
        };
        let path = self.spec.path;
        // What is read at each sample is of one piece, and short.
        let text = match self.spec.pace {
            Pace::EachSample => file.read_short(room),
            Pace::EachSecond => file.read(room),
        };
        let why = match text {
            Ok(text) => match (self.spec.take)(text, facts) {
                Some(()) => return,
                None => format!("/proc/{path}: it says something that is not known here"),
            },
            Err(error) => format!("/proc/{path}: {}", config::reason(&error)),
        };
        for gauge in self.spec.gauges {
            facts.set(*gauge, f64::NAN);
        }
        (self.file, self.why) = (None, Some(why));
    }
}

/// Reads the machine's gauges.
pub(super) struct Machine {
    root: PathBuf,
    sources: Vec<MachineFile>,
    facts: Facts,
    room: Vec<u8>,
    look_again_us: u64,
    has_looked_again: bool,
    descriptors: Descriptors,
    ports: Ports,
}

impl Machine {
    /// Opens what there is below `/proc`, or what stands for it.
    pub(super) fn below(root: &Path) -> Self {
        let source = |kind| {
            let mut source = MachineFile {
                spec: kind,
                file: None,
                why: None,
                due_us: 0,
            };
            source.look(root);
            source
        };
        Self {
            root: root.to_owned(),
            sources: FILES.iter().map(source).collect(),
            facts: Facts {
                numbers: [f64::NAN; GAUGES],
                conntrack_count: f64::NAN,
                conntrack_max: f64::NAN,
                ports: None,
            },
            room: Vec::new(),
            look_again_us: LOOK_AGAIN_US,
            has_looked_again: false,
            descriptors: Descriptors::look(),
            ports: Ports::default(),
        }
    }

    /// Reads what is due.
    pub(super) fn read(&mut self, at_us: u64) -> Numbers {
        self.facts.forget_totals();
        self.has_looked_again = at_us >= self.look_again_us;
        if self.has_looked_again {
            self.look_again_us = at_us.saturating_add(LOOK_AGAIN_US);
        }
        for source in &mut self.sources {
            if self.has_looked_again && source.file.is_none() {
                source.look(&self.root);
                // What is found is read at once: whether it says something belongs to it.
                source.due_us = source.due_us.min(at_us);
            }
            if source.is_due(at_us) {
                source.read(&mut self.room, &mut self.facts);
            }
        }
        self.of_several(at_us)
    }

    /// What comes of more than one file, with all that comes of one.
    fn of_several(&mut self, at_us: u64) -> Numbers {
        let facts = &self.facts;
        let mut numbers = facts.numbers;
        // Whichever of the two files is lacking: together they say nothing.
        let fill = match all_there(&self.sources, Gauge::Conntrack) {
            true => fill(facts.conntrack_count, facts.conntrack_max),
            false => f64::NAN,
        };
        let of_process = [
            (Gauge::Conntrack, fill),
            (Gauge::Descriptors, self.descriptors.share(at_us)),
            (
                Gauge::Ports,
                self.ports.share(at_us, facts.ports, &self.root),
            ),
        ];
        for (gauge, number) in of_process {
            if let Some(place) = numbers.get_mut(gauge.index()) {
                *place = number;
            }
        }
        numbers
    }

    /// What there is not.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let lack = |gauges, why: &Option<String>, remedy| {
            let why = why.clone()?;
            Some(Missing {
                gauges,
                why,
                remedy,
            })
        };
        let of_files = self
            .sources
            .iter()
            .filter_map(|source| lack(source.spec.gauges, &source.why, source.spec.remedy));
        let of_process = [
            lack(&[Gauge::Descriptors], &self.descriptors.why, NO_PROC),
            lack(&[Gauge::Ports], &self.ports.why, NO_TABLE),
        ];
        let mut missing: Vec<Missing> = Vec::new();
        for lack in of_files.chain(of_process.into_iter().flatten()) {
            // Two files of one gauge are one lack.
            if missing.iter().all(|told| told.gauges != lack.gauges) {
                missing.push(lack);
            }
        }
        missing
    }

    /// Whether a look for what there was not was taken with the last sample.
    pub(super) fn has_looked_again(&self) -> bool {
        self.has_looked_again
    }
}

/// The fill of the table of connections; where any number will do, none is a share of it.
fn fill(count: f64, most: f64) -> f64 {
    if most > 0.0 { count / most } else { most }
}

/// Whether every file that serves it is there.
fn all_there(sources: &[MachineFile], gauge: Gauge) -> bool {
    let mut of_gauge = sources
        .iter()
        .filter(|source| source.spec.gauges.contains(&gauge));
    of_gauge.all(|source| source.file.is_some())
}

/// Rests after what takes its time.
#[derive(Debug, Default)]
struct Rest {
    until_us: u64,
}

impl Rest {
    fn is_over(&self, at_us: u64) -> bool {
        at_us >= self.until_us
    }

    fn begin(&mut self, at_us: u64, spent_ns: u64) {
        let rest_us = (spent_ns / 1_000).saturating_mul(REST_TIMES);
        self.until_us = at_us.saturating_add(rest_us.clamp(REST_US.0, REST_US.1));
    }
}

/// How full this process's table of descriptors is.
struct Descriptors {
    open: Option<OpenDescriptors>,
    /// Why it is not known.
    why: Option<String>,
    counted: u64,
    rest: Rest,
}

impl Descriptors {
    fn look() -> Self {
        let (open, why) = match OpenDescriptors::look() {
            Ok(open) => (Some(open), None),
            Err(error) => (
                None,
                Some(format!("/proc/self/fd: {}", config::reason(&error))),
            ),
        };
        Self {
            open,
            why,
            counted: 0,
            rest: Rest::default(),
        }
    }

    fn share(&mut self, at_us: u64) -> f64 {
        let Some(open) = &self.open else {
            return f64::NAN;
        };
        let count = open.told().unwrap_or_else(|| {
            if self.rest.is_over(at_us) {
                let begun_ns = os::cpu::thread_cpu_ns();
                self.counted = open.counted().unwrap_or(self.counted);
                self.rest.begin(at_us, os::cpu::thread_cpu_ns() - begun_ns);
            }
            self.counted
        });
        match OpenDescriptors::most() {
            Some(most) => count as f64 / most.max(1) as f64,
            // Where any number will do, none is a share of it.
            None => 0.0,
        }
    }
}

/// How many of the local ports the busiest peer takes.
struct Ports {
    walk: Option<PortWalk>,
    /// Why it is not known.
    why: Option<String>,
    spent_ns: u64,
    used: f64,
    rest: Rest,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            walk: None,
            why: None,
            spent_ns: 0,
            used: f64::NAN,
            rest: Rest::default(),
        }
    }
}

impl Ports {
    /// The share as the last whole look found it; looks on, if that is due.
    fn share(&mut self, at_us: u64, range: Option<PortRange>, root: &Path) -> f64 {
        let Some(range) = range else {
            return f64::NAN;
        };
        let begun_ns = os::cpu::thread_cpu_ns();
        if self.walk.is_none() && self.rest.is_over(at_us) {
            self.begin(at_us, range, root);
        }
        if let Some(walk) = &mut self.walk {
            let step = walk.step();
            self.spent_ns += os::cpu::thread_cpu_ns() - begun_ns;
            if !matches!(step, Ok(None)) {
                self.used = step.ok().flatten().map_or(f64::NAN, |used| used as f64);
                self.walk = None;
                self.rest.begin(at_us, self.spent_ns);
            }
        }
        self.used / range.count() as f64
    }

    fn begin(&mut self, at_us: u64, range: PortRange, root: &Path) {
        let tables = ["net/tcp", "net/tcp6"].map(|path| root.join(path));
        let tables: Vec<_> = tables.iter().map(PathBuf::as_path).collect();
        self.spent_ns = 0;
        (self.walk, self.why) = match PortWalk::begin(range, &tables) {
            Ok(walk) => (Some(walk), None),
            Err(error) => {
                self.used = f64::NAN;
                self.rest.begin(at_us, 0);
                let path = root.join("net/tcp");
                (
                    None,
                    Some(format!("{}: {}", path.display(), config::reason(&error))),
                )
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn a_table_without_a_bound_is_never_full() {
        for (count, most, expected) in [(30.0, 40.0, 0.75), (30.0, 0.0, 0.0), (0.0, 4.0, 0.0)] {
            assert!(near(fill(count, most), expected), "{count} of {most}");
        }
        assert!(fill(1.0, f64::NAN).is_nan() && fill(f64::NAN, 4.0).is_nan());
    }

    #[test]
    fn what_could_not_be_read_is_looked_for_again_and_read_at_once() {
        let root = std::env::temp_dir().join(format!("nagaya-again-{}", std::process::id()));
        let path = root.join("net/netstat");
        std::fs::create_dir_all(root.join("net")).expect("a directory");
        let total = |machine: &mut Machine, at_us| {
            let numbers = machine.read(at_us);
            numbers[Gauge::ListenOverflows.index()]
        };
        let lacks = |machine: &Machine| {
            let missing = machine.missing();
            missing
                .iter()
                .any(|lack| lack.gauges.contains(&Gauge::ListenOverflows))
        };
        std::fs::write(&path, "of something else\n").expect("a file");
        let mut machine = Machine::below(&root);
        assert!(total(&mut machine, 0).is_nan() && lacks(&machine));
        // It is there, and says as little: nobody takes that for a sensor.
        assert!(total(&mut machine, LOOK_AGAIN_US).is_nan());
        assert!(machine.has_looked_again() && lacks(&machine));
        std::fs::write(&path, "TcpExt: ListenOverflows\nTcpExt: 7\n").expect("a file");
        let again_us = 2 * LOOK_AGAIN_US;
        assert!(near(total(&mut machine, again_us), 7.0) && !lacks(&machine));
        // A total is told when it was read, and then a second later.
        assert!(total(&mut machine, again_us + 100_000).is_nan());
        assert!(near(total(&mut machine, again_us + SECOND_US), 7.0));
        std::fs::remove_dir_all(&root).expect("the directory");
    }

    #[test]
    fn a_table_that_is_not_there_is_said() {
        let root = std::env::temp_dir().join(format!("nagaya-ports-{}", std::process::id()));
        let range = root.join("sys/net/ipv4");
        std::fs::create_dir_all(&range).expect("a directory");
        std::fs::write(range.join("ip_local_port_range"), "1 2\n").expect("a file");
        let mut machine = Machine::below(&root);
        machine.read(0);
        let missing = machine.missing();
        let of = |gauge| {
            missing
                .iter()
                .filter(move |lack| lack.gauges.contains(&gauge))
        };
        assert_eq!(of(Gauge::Conntrack).count(), 1, "two files are one lack");
        let ports = of(Gauge::Ports).next();
        assert!(ports.is_some_and(|lack| lack.why.contains("net/tcp")));
        std::fs::remove_dir_all(&root).expect("the directory");
    }
}
