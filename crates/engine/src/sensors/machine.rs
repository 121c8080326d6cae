//! The machine's own gauges, read off `/proc`.
//!
//! The idea: a table says which file serves which gauges, how often it is read, and what to do
//! where it is not there. What moves fast is read at each sample, what does not once a second, and
//! not all of that at once. What costs more the more there is to look at (local ports, and
//! descriptors on older kernels) is looked at so seldom that it takes no more than a thousandth of
//! a core. A file that is not there is looked for again: tables of connections come with the first
//! rule of a firewall.

use std::path::{Path, PathBuf};

use config::model::sensor::Gauge;
use os::sensors::{
    KeptFile, OpenDescriptors, PortRange, PortWalk, conntrack_number, conntrack_refused,
    listen_overflows, load_averages, memory, pages_swapped_in, port_range, pressure,
};

use super::{GAUGES, Numbers};

/// Samples in a second: what is read once a second is spread over them.
const SAMPLES_A_SECOND: u64 = 10;
/// After how many samples files that are not there are looked for again.
const LOOK_AGAIN: u64 = 30 * SAMPLES_A_SECOND;
/// What costs more than a moment may take one in so many of the processor's time.
const REST_TIMES: u64 = 2_000;
/// Bounds of the rest between two such looks.
const REST_US: (u64, u64) = (1_000_000, 60_000_000);

/// What this machine does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Whose sensors.
    pub gauges: &'static [Gauge],
    /// What was looked for, and what came of it.
    pub why: String,
    /// What would make it tell.
    pub remedy: &'static str,
}

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
struct Kind {
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

const KINDS: [Kind; 11] = [
    Kind {
        path: "pressure/cpu",
        gauges: &[Gauge::CpuPressure],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.set(Gauge::CpuPressure, pressure(text)?.some.as_secs_f64());
            Some(())
        },
        remedy: NO_PRESSURE,
    },
    Kind {
        path: "pressure/memory",
        gauges: &[Gauge::MemoryPressure, Gauge::MemoryPressureFull],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.set_pressure(text, Gauge::MemoryPressure, Gauge::MemoryPressureFull)
        },
        remedy: NO_PRESSURE,
    },
    Kind {
        path: "pressure/io",
        gauges: &[Gauge::IoPressure, Gauge::IoPressureFull],
        pace: Pace::EachSample,
        take: |text, facts| facts.set_pressure(text, Gauge::IoPressure, Gauge::IoPressureFull),
        remedy: NO_PRESSURE,
    },
    Kind {
        path: "meminfo",
        gauges: &[Gauge::MemoryAvailable],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.set(Gauge::MemoryAvailable, memory(text)?.available_share());
            Some(())
        },
        remedy: NO_PROC,
    },
    Kind {
        path: "sys/net/netfilter/nf_conntrack_count",
        gauges: &[Gauge::Conntrack],
        pace: Pace::EachSample,
        take: |text, facts| {
            facts.conntrack_count = conntrack_number(text)? as f64;
            Some(())
        },
        remedy: NO_CONNTRACK,
    },
    Kind {
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
    Kind {
        path: "vmstat",
        gauges: &[Gauge::SwapIn],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.set(Gauge::SwapIn, pages_swapped_in(text)? as f64);
            Some(())
        },
        remedy: NO_PROC,
    },
    Kind {
        path: "sys/net/netfilter/nf_conntrack_max",
        gauges: &[Gauge::Conntrack],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.conntrack_max = conntrack_number(text)? as f64;
            Some(())
        },
        remedy: NO_CONNTRACK,
    },
    Kind {
        path: "net/stat/nf_conntrack",
        gauges: &[Gauge::ConntrackDrops],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.set(Gauge::ConntrackDrops, conntrack_refused(text)? as f64);
            Some(())
        },
        remedy: NO_CONNTRACK,
    },
    Kind {
        path: "net/netstat",
        gauges: &[Gauge::ListenOverflows],
        pace: Pace::EachSecond,
        take: |text, facts| {
            facts.set(Gauge::ListenOverflows, listen_overflows(text)? as f64);
            Some(())
        },
        remedy: NO_PROC,
    },
    Kind {
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
    fn set(&mut self, gauge: Gauge, number: f64) {
        if let Some(place) = self.numbers.get_mut(gauge.index()) {
            *place = number;
        }
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
struct Source {
    kind: &'static Kind,
    file: Option<KeptFile>,
    /// Why it says nothing.
    why: Option<String>,
}

impl Source {
    fn look(&mut self, root: &Path) {
        let path = root.join(self.kind.path);
        match KeptFile::open(&path) {
            Ok(file) => (self.file, self.why) = (Some(file), None),
            Err(error) => {
                let why = config::reason(&error);
                self.why = Some(format!("{}: {why}", path.display()));
            }
        }
    }

    /// Reads it, if it is there.
    fn read(&mut self, room: &mut Vec<u8>, facts: &mut Facts) {
        let Some(file) = &self.file else {
            return;
        };
        let path = self.kind.path;
        // What is read at each sample is of one piece, and short.
        let text = match self.kind.pace {
            Pace::EachSample => file.read_short(room),
            Pace::EachSecond => file.read(room),
        };
        let why = match text {
            Ok(text) => match (self.kind.take)(text, facts) {
                Some(()) => return,
                None => format!("/proc/{path}: it says something that is not known here"),
            },
            Err(error) => format!("/proc/{path}: {}", config::reason(&error)),
        };
        for gauge in self.kind.gauges {
            facts.set(*gauge, f64::NAN);
        }
        (self.file, self.why) = (None, Some(why));
    }
}

/// Reads the machine's gauges.
pub(super) struct Machine {
    root: PathBuf,
    sources: Vec<Source>,
    facts: Facts,
    room: Vec<u8>,
    samples: u64,
    descriptors: Descriptors,
    ports: Ports,
}

impl Machine {
    /// Opens what there is below `/proc`, or what stands for it.
    pub(super) fn below(root: &Path) -> Self {
        let source = |kind| {
            let mut source = Source {
                kind,
                file: None,
                why: None,
            };
            source.look(root);
            source
        };
        Self {
            root: root.to_owned(),
            sources: KINDS.iter().map(source).collect(),
            facts: Facts {
                numbers: [f64::NAN; GAUGES],
                conntrack_count: f64::NAN,
                conntrack_max: f64::NAN,
                ports: None,
            },
            room: Vec::new(),
            samples: 0,
            descriptors: Descriptors::look(),
            ports: Ports::default(),
        }
    }

    /// Reads what is due.
    pub(super) fn read(&mut self, at_us: u64) -> Numbers {
        let turn = self.samples % SAMPLES_A_SECOND;
        let looks_again = self.samples % LOOK_AGAIN == LOOK_AGAIN - 1;
        for (place, source) in (0..).zip(&mut self.sources) {
            if looks_again && source.file.is_none() {
                source.look(&self.root);
            }
            let is_due = match source.kind.pace {
                Pace::EachSample => true,
                Pace::EachSecond => self.samples == 0 || turn == place % SAMPLES_A_SECOND,
            };
            if is_due {
                source.read(&mut self.room, &mut self.facts);
            }
        }
        self.samples += 1;
        let facts = &mut self.facts;
        let mut numbers = facts.numbers;
        // Whichever of the two files is lacking: together they say nothing.
        let is_there = numbers_of(&self.sources, Gauge::Conntrack);
        let fill = facts.conntrack_count / facts.conntrack_max;
        let of_process = [
            (Gauge::Conntrack, if is_there { fill } else { f64::NAN }),
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
        let lacking = self.sources.iter().filter_map(|source| {
            Some(Missing {
                gauges: source.kind.gauges,
                why: source.why.clone()?,
                remedy: source.kind.remedy,
            })
        });
        let mut missing: Vec<Missing> = Vec::new();
        for lack in lacking {
            // Two files of one gauge are one lack.
            if missing.last().is_none_or(|last| last.gauges != lack.gauges) {
                missing.push(lack);
            }
        }
        missing
    }

    /// Whether a look for what there was not was taken with the last sample.
    pub(super) fn has_looked_again(&self) -> bool {
        self.samples.is_multiple_of(LOOK_AGAIN)
    }
}

fn numbers_of(sources: &[Source], gauge: Gauge) -> bool {
    let mut of_gauge = sources
        .iter()
        .filter(|source| source.kind.gauges.contains(&gauge));
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
    counted: u64,
    rest: Rest,
}

impl Descriptors {
    fn look() -> Self {
        Self {
            open: OpenDescriptors::look().ok(),
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
    spent_ns: u64,
    used: f64,
    rest: Rest,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            walk: None,
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
            let tables = ["net/tcp", "net/tcp6"].map(|path| root.join(path));
            let tables: Vec<_> = tables.iter().map(PathBuf::as_path).collect();
            self.walk = PortWalk::begin(range, &tables).ok();
            self.spent_ns = 0;
            if self.walk.is_none() {
                self.used = f64::NAN;
                self.rest.begin(at_us, u64::MAX);
            }
        }
        let Some(walk) = &mut self.walk else {
            return self.used / range.count() as f64;
        };
        let step = walk.step();
        self.spent_ns += os::cpu::thread_cpu_ns() - begun_ns;
        if let Ok(None) = step {
            return self.used / range.count() as f64;
        }
        self.used = step.ok().flatten().map_or(f64::NAN, |used| used as f64);
        self.walk = None;
        self.rest.begin(at_us, self.spent_ns);
        self.used / range.count() as f64
    }
}
