//! The sensors: what is measured of the machine, the gateway and its back ends, by name.
//!
//! The idea: one table says of each gauge its name, its unit, where it comes from and what it
//! means; configuration, command line, metrics, scripts and the reference all read that table. No
//! value stands here: those are the business of whoever measures.

use std::fmt;
use std::sync::Arc;

use crate::units;

use Gauge::{
    Conntrack, ConntrackDrops, CpuPressure, Descriptors, InFlight, IoPressure, IoPressureFull,
    ListenOverflows, Load1, Load5, Load15, LoopLag, MemoryAvailable, MemoryPressure,
    MemoryPressureFull, Ports, QueueAge, SwapIn,
};

/// How a back end's sensor begins: `upstream.NAME.GAUGE`.
const UPSTREAM: &str = "upstream.";

/// Something that is measured: here, or where the servers of an upstream run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sensor {
    /// Of this machine and this gateway.
    Here(Gauge),
    /// Of the machines an upstream's servers run on, as agents there tell; the worst of them.
    Upstream(Arc<str>, Gauge),
}

/// What is measured, wherever that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gauge {
    /// `load1`
    Load1,
    /// `load5`
    Load5,
    /// `load15`
    Load15,
    /// `cpu_pressure`
    CpuPressure,
    /// `memory_pressure`
    MemoryPressure,
    /// `memory_pressure_full`
    MemoryPressureFull,
    /// `io_pressure`
    IoPressure,
    /// `io_pressure_full`
    IoPressureFull,
    /// `memory_available`
    MemoryAvailable,
    /// `swap_in`
    SwapIn,
    /// `conntrack`
    Conntrack,
    /// `conntrack_drops`
    ConntrackDrops,
    /// `listen_overflows`
    ListenOverflows,
    /// `descriptors`
    Descriptors,
    /// `ports`
    Ports,
    /// `loop_lag`
    LoopLag,
    /// `in_flight`
    InFlight,
    /// `queue_age`
    QueueAge,
}

/// What a gauge's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of tasks, on average.
    Load,
    /// A share, from 0 to 1.
    Share,
    /// Events a second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// How many there are.
    Count,
    /// How many bytes.
    Bytes,
}

/// On which side a gauge's values are bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worse {
    /// The higher, the worse.
    Above,
    /// The lower, the worse.
    Below,
}

/// A gauge's line of the table.
struct Line {
    gauge: Gauge,
    name: &'static str,
    unit: Unit,
    source: &'static str,
    meaning: &'static str,
}

const fn line(
    gauge: Gauge,
    name: &'static str,
    unit: Unit,
    source: &'static str,
    meaning: &'static str,
) -> Line {
    Line {
        gauge,
        name,
        unit,
        source,
        meaning,
    }
}

/// In the order they are shown in.
const TABLE: [Line; 18] = [
    line(
        Load1,
        "load1",
        Unit::Load,
        "/proc/loadavg",
        "tasks that run, wait for a processor or for a disk: mean that forgets with 1 minute, so late by that",
    ),
    line(
        Load5,
        "load5",
        Unit::Load,
        "/proc/loadavg",
        "the same, forgetting with 5 minutes",
    ),
    line(
        Load15,
        "load15",
        Unit::Load,
        "/proc/loadavg",
        "the same, forgetting with 15 minutes",
    ),
    line(
        CpuPressure,
        "cpu_pressure",
        Unit::Share,
        "/proc/pressure/cpu, some",
        "share of the last second in which some task waited for a processor",
    ),
    line(
        MemoryPressure,
        "memory_pressure",
        Unit::Share,
        "/proc/pressure/memory, some",
        "share of the last second in which some task waited for memory",
    ),
    line(
        MemoryPressureFull,
        "memory_pressure_full",
        Unit::Share,
        "/proc/pressure/memory, full",
        "share of the last second in which nobody got on because all waited for memory",
    ),
    line(
        IoPressure,
        "io_pressure",
        Unit::Share,
        "/proc/pressure/io, some",
        "share of the last second in which some task waited for a disk",
    ),
    line(
        IoPressureFull,
        "io_pressure_full",
        Unit::Share,
        "/proc/pressure/io, full",
        "share of the last second in which nobody got on because all waited for disks",
    ),
    line(
        MemoryAvailable,
        "memory_available",
        Unit::Share,
        "/proc/meminfo, MemAvailable of MemTotal",
        "share of the memory that programs can still have without swapping",
    ),
    line(
        SwapIn,
        "swap_in",
        Unit::PerSecond,
        "/proc/vmstat, pswpin",
        "pages read back from swap a second: memory that was needed after all",
    ),
    line(
        Conntrack,
        "conntrack",
        Unit::Share,
        "nf_conntrack_count of nf_conntrack_max",
        "fill of the kernel's table of connections; when full, new connections are dropped in silence",
    ),
    line(
        ConntrackDrops,
        "conntrack_drops",
        Unit::PerSecond,
        "/proc/net/stat/nf_conntrack, drop and early_drop",
        "packets dropped and connections forgotten a second because that table was full",
    ),
    line(
        ListenOverflows,
        "listen_overflows",
        Unit::PerSecond,
        "/proc/net/netstat, ListenOverflows",
        "connections a second that found the queue of a listening socket full, whichever program's",
    ),
    line(
        Descriptors,
        "descriptors",
        Unit::Share,
        "/proc/self/fd of RLIMIT_NOFILE",
        "share of the descriptors the server process may have that are open",
    ),
    line(
        Ports,
        "ports",
        Unit::Share,
        "/proc/net/tcp, ip_local_port_range",
        "share of the local ports in use towards the one back end that takes most of them",
    ),
    line(
        LoopLag,
        "loop_lag",
        Unit::Seconds,
        "the workers' clocks",
        "how late a worker came to what was ready, at worst in the last second",
    ),
    line(
        InFlight,
        "in_flight",
        Unit::Count,
        "the workers' counters",
        "requests under way",
    ),
    line(
        QueueAge,
        "queue_age",
        Unit::Seconds,
        "the queues of limits",
        "how long the request has waited that waits longest for a limit",
    ),
];

impl Gauge {
    /// Every gauge, in the order they are shown in; its place here is [`Self::index`].
    pub const ALL: [Gauge; TABLE.len()] = {
        let mut all = [Load1; TABLE.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = TABLE[place].gauge;
            place += 1;
        }
        all
    };

    /// The gauge of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = TABLE.iter().find(|line| line.name == name)?;
        Some(found.gauge)
    }

    /// Its place among all.
    pub fn index(self) -> usize {
        self as usize
    }

    /// What it is called in configuration, metrics and scripts.
    pub fn name(self) -> &'static str {
        self.line().name
    }

    /// What its numbers are.
    pub fn unit(self) -> Unit {
        self.line().unit
    }

    /// Where it comes from.
    pub fn source(self) -> &'static str {
        self.line().source
    }

    /// What it says, in a line.
    pub fn meaning(self) -> &'static str {
        self.line().meaning
    }

    /// On which side its values are bad.
    pub fn worse(self) -> Worse {
        match self {
            MemoryAvailable => Worse::Below,
            _ => Worse::Above,
        }
    }

    /// What is too much of it on any machine, where that can be said: from there on rules shed that
    /// name no `enter`. A load, a number of requests, and reading pages back from swap are too much
    /// on one machine and nothing on another.
    pub fn too_much(self) -> Option<f64> {
        match self {
            CpuPressure => Some(0.4),
            MemoryPressure => Some(0.1),
            MemoryPressureFull => Some(0.05),
            IoPressure => Some(0.2),
            IoPressureFull => Some(0.1),
            MemoryAvailable => Some(0.1),
            Conntrack | Descriptors | Ports => Some(0.8),
            ConntrackDrops | ListenOverflows => Some(0.5),
            LoopLag => Some(0.1),
            QueueAge => Some(1.0),
            Load1 | Load5 | Load15 | SwapIn | InFlight => None,
        }
    }

    /// Whether it says something of the machine as a whole, which any program on it can read; an
    /// agent beside an upstream's server tells these.
    pub fn is_of_machine(self) -> bool {
        !matches!(self, Descriptors | Ports | LoopLag | InFlight | QueueAge)
    }

    fn line(self) -> &'static Line {
        &TABLE[self.index()]
    }
}

impl Unit {
    /// Puts a value into words, for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Load => format!("{value:.2}"),
            Unit::Share => format!("{:.1}%", value * 100.0),
            Unit::PerSecond => format!("{value:.1}/s"),
            Unit::Seconds if value < 1.0 => format!("{:.1} ms", value * 1_000.0),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Count => format!("{value:.0}"),
            // Within the range of the type, and cut off where it is not.
            Unit::Bytes => units::size(value.max(0.0) as u64),
        }
    }

    /// What a number of it is, for the reference.
    pub fn about(self) -> &'static str {
        match self {
            Unit::Load => "tasks",
            Unit::Share => "share, 0 to 1",
            Unit::PerSecond => "a second",
            Unit::Seconds => "seconds",
            Unit::Count => "number",
            Unit::Bytes => "bytes",
        }
    }
}

impl Sensor {
    /// The sensor of this name: a gauge's, or `upstream.NAME.GAUGE`.
    pub fn from_name(name: &str) -> Option<Self> {
        let Some(rest) = name.strip_prefix(UPSTREAM) else {
            return Gauge::from_name(name).map(Sensor::Here);
        };
        // An upstream's name may have dots in it; a gauge's has none.
        let (upstream, gauge) = rest.rsplit_once('.')?;
        let gauge = Gauge::from_name(gauge).filter(|gauge| gauge.is_of_machine())?;
        (!upstream.is_empty()).then(|| Sensor::Upstream(upstream.into(), gauge))
    }

    /// What is measured.
    pub fn gauge(&self) -> Gauge {
        match self {
            Sensor::Here(gauge) | Sensor::Upstream(_, gauge) => *gauge,
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// What its numbers are.
    pub fn unit(&self) -> Unit {
        self.gauge().unit()
    }

    /// What it says, in a line.
    pub fn meaning(&self) -> &'static str {
        self.gauge().meaning()
    }

    /// On which side its values are bad.
    pub fn worse(&self) -> Worse {
        self.gauge().worse()
    }

    /// Puts a threshold into words: `above 40.0%`.
    pub fn beyond(&self, threshold: f64) -> String {
        let side = match self.worse() {
            Worse::Above => "above",
            Worse::Below => "below",
        };
        format!("{side} {}", self.unit().show(threshold))
    }
}

impl fmt::Display for Sensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sensor::Here(gauge) => f.write_str(gauge.name()),
            Sensor::Upstream(upstream, gauge) => write!(f, "{UPSTREAM}{upstream}.{}", gauge.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_every_gauge_in_its_place() {
        for (at, (gauge, line)) in Gauge::ALL.iter().zip(&TABLE).enumerate() {
            assert_eq!((gauge.index(), line.gauge), (at, *gauge), "{gauge:?}");
            assert_eq!(Gauge::from_name(gauge.name()), Some(*gauge));
            assert!(!gauge.name().contains('.') && !gauge.meaning().is_empty());
            let is_share = gauge.unit() == Unit::Share;
            let fits = |too_much: f64| too_much > 0.0 && (too_much < 1.0 || !is_share);
            assert!(gauge.too_much().is_none_or(fits), "{gauge:?}");
        }
    }

    #[test]
    fn a_sensor_is_known_by_its_name() {
        for (name, expected) in [
            ("load1", Some(Sensor::Here(Load1))),
            ("queue_age", Some(Sensor::Here(QueueAge))),
            (
                "upstream.app.load1",
                Some(Sensor::Upstream("app".into(), Load1)),
            ),
            (
                "upstream.app.v2.cpu_pressure",
                Some(Sensor::Upstream("app.v2".into(), CpuPressure)),
            ),
            ("upstream..load1", None),
            ("upstream.load1", None),
            ("upstream.app.loop_lag", None),
            ("upstream.app.", None),
            ("upstream.", None),
            ("Load1", None),
            ("load", None),
            ("", None),
        ] {
            let found = Sensor::from_name(name);
            assert_eq!(found, expected, "{name}");
            if let Some(found) = found {
                assert_eq!(found.name(), name);
            }
        }
    }

    #[test]
    fn values_are_shown_with_their_unit() {
        for (unit, value, expected) in [
            (Unit::Load, 3.0, "3.00"),
            (Unit::Share, 0.4567, "45.7%"),
            (Unit::PerSecond, 12.0, "12.0/s"),
            (Unit::Seconds, 0.0123, "12.3 ms"),
            (Unit::Seconds, 2.5, "2.50 s"),
            (Unit::Count, 41.0, "41"),
        ] {
            assert_eq!(unit.show(value), expected);
        }
        let beyond = |gauge| Sensor::Here(gauge).beyond(0.5);
        assert_eq!(beyond(CpuPressure), "above 50.0%");
        assert_eq!(beyond(MemoryAvailable), "below 50.0%");
    }
}
