//! `[[alerts]]`: what somebody wants to be told of.

use std::fmt;
use std::sync::Arc;

use super::acme::Chore;
use super::sensor::{Sensor, Unit, Worse};

/// Alerts, at most: each is looked at once a second.
pub const ALERTS_MAX: usize = 256;

/// `[[alerts]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Unique among these: the operator's word, or made of the figure.
    pub name: String,
    /// What is watched.
    pub figure: WatchedFigure,
    /// On which side of `bound` it is bad.
    pub worse: Worse,
    /// Beyond it somebody wants to know.
    pub bound: f64,
    /// Back at it all is well; never worse than `bound`.
    pub leave: f64,
    /// How long it has to be beyond before it is told, in whole seconds.
    pub for_s: u32,
    /// What is run when it is told; its facts are on standard input.
    pub run: Option<Chore>,
}

/// What can be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedFigure {
    /// A sensor.
    Sensor(Sensor),
    /// What somebody takes or comes to, by name.
    Of(Whose, Arc<str>, Measure),
    /// What the whole server comes to.
    Server(ServerFigure),
}

/// What is measured of the server and is no sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFigure {
    /// Days until the first certificate in use runs out.
    CertificateDays,
    /// Costly steps of TLS handshakes a second, as the next are.
    FullHandshakes,
    /// Steps of resumptions, and second steps.
    ShortHandshakes,
    /// Handshakes that came to nothing.
    FailedHandshakes,
    /// Whether the store that machines share answers and gives out permits: 1, or 0.
    FleetUp,
    /// Machines that it has told of.
    FleetMachines,
}

/// Of whom something is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A tenant.
    Tenant,
    /// A site, by its name.
    Site,
    /// An upstream.
    Upstream,
}

/// What is measured of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Requests a second.
    Requests,
    /// The share of replies that are 5xx.
    Errors,
    /// What 99 % of requests do not exceed, in seconds.
    P99,
    /// Processors that programs and pools keep at work.
    Cpu,
    /// Bytes that they hold.
    Memory,
    /// Processors that they were kept from, since a quota of theirs had run out.
    Throttled,
    /// TLS handshakes after which a request came, a second.
    Handshakes,
    /// Processes killed for want of memory, a second.
    Killed,
    /// Servers that are up.
    Up,
}

impl ServerFigure {
    /// All, by name.
    pub const ALL: [(ServerFigure, &'static str); 6] = [
        (ServerFigure::CertificateDays, "certificates.days_left"),
        (ServerFigure::FullHandshakes, "handshakes.full"),
        (ServerFigure::ShortHandshakes, "handshakes.short"),
        (ServerFigure::FailedHandshakes, "handshakes.failed"),
        (ServerFigure::FleetUp, "fleet.up"),
        (ServerFigure::FleetMachines, "fleet.machines"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        // They stand in their order.
        ServerFigure::ALL[self as usize].1
    }
}

impl Whose {
    /// All, by the word their figures begin with.
    pub const ALL: [(Whose, &'static str); 3] = [
        (Whose::Tenant, "tenant"),
        (Whose::Site, "site"),
        (Whose::Upstream, "upstream"),
    ];

    /// What is measured of them.
    pub fn measures(self) -> &'static [Measure] {
        use Measure::{Cpu, Errors, Handshakes, Killed, Memory, P99, Requests, Throttled, Up};
        match self {
            Whose::Tenant => &[Requests, Cpu, Memory, Throttled, Handshakes, Killed],
            Whose::Site => &[Requests, Errors, P99, Throttled],
            Whose::Upstream => &[Up],
        }
    }

    /// The word their figures begin with.
    pub fn word(self) -> &'static str {
        let word = Whose::ALL.iter().find(|(whose, _)| *whose == self);
        word.map_or("", |(_, word)| word)
    }
}

impl Measure {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Measure::Requests => "requests",
            Measure::Errors => "errors",
            Measure::P99 => "p99",
            Measure::Cpu => "cpu",
            Measure::Memory => "memory",
            Measure::Throttled => "throttled",
            Measure::Handshakes => "handshakes",
            Measure::Killed => "killed",
            Measure::Up => "up",
        }
    }

    /// What its numbers are.
    pub fn unit(self) -> Unit {
        match self {
            Measure::Requests | Measure::Handshakes | Measure::Killed => Unit::PerSecond,
            Measure::Errors => Unit::Share,
            Measure::P99 => Unit::Seconds,
            Measure::Cpu | Measure::Throttled | Measure::Up => Unit::Count,
            Measure::Memory => Unit::Bytes,
        }
    }
}

impl WatchedFigure {
    /// The figure of this name.
    pub fn from_name(name: &str) -> Option<WatchedFigure> {
        let mut of_server = ServerFigure::ALL.into_iter();
        if let Some((figure, _)) = of_server.find(|(_, it)| *it == name) {
            return Some(WatchedFigure::Server(figure));
        }
        if let Some(sensor) = Sensor::from_name(name) {
            return Some(WatchedFigure::Sensor(sensor));
        }
        let (whose, rest) = name.split_once('.')?;
        let (whose, _) = Whose::ALL.into_iter().find(|(_, word)| *word == whose)?;
        // A name may have dots in it; a measure has none.
        let (of, measure) = rest.rsplit_once('.')?;
        let mut measures = whose.measures().iter();
        let measure = *measures.find(|it| it.word() == measure)?;
        (!of.is_empty()).then(|| WatchedFigure::Of(whose, of.into(), measure))
    }

    /// What its numbers are.
    pub fn unit(&self) -> Unit {
        match self {
            WatchedFigure::Sensor(sensor) => sensor.unit(),
            WatchedFigure::Of(_, _, measure) => measure.unit(),
            WatchedFigure::Server(figure) => match figure {
                ServerFigure::CertificateDays
                | ServerFigure::FleetUp
                | ServerFigure::FleetMachines => Unit::Count,
                ServerFigure::FullHandshakes
                | ServerFigure::ShortHandshakes
                | ServerFigure::FailedHandshakes => Unit::PerSecond,
            },
        }
    }
}

impl fmt::Display for WatchedFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchedFigure::Sensor(sensor) => sensor.fmt(f),
            WatchedFigure::Of(whose, of, measure) => {
                write!(f, "{}.{of}.{}", whose.word(), measure.word())
            }
            WatchedFigure::Server(figure) => f.write_str(figure.name()),
        }
    }
}
