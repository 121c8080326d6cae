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
    /// Days until the first certificate in use runs out.
    CertificateDays,
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
    /// Servers that are up.
    Up,
}

/// The one figure that is nobody's.
const CERTIFICATE_DAYS: &str = "certificates.days_left";

impl Whose {
    /// All, by the word their figures begin with.
    pub const ALL: [(Whose, &'static str); 3] = [
        (Whose::Tenant, "tenant"),
        (Whose::Site, "site"),
        (Whose::Upstream, "upstream"),
    ];

    /// What is measured of them.
    pub fn measures(self) -> &'static [Measure] {
        use Measure::{Cpu, Errors, Memory, P99, Requests, Up};
        match self {
            Whose::Tenant => &[Requests, Cpu, Memory],
            Whose::Site => &[Requests, Errors, P99],
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
            Measure::Up => "up",
        }
    }

    /// What its numbers are.
    pub fn unit(self) -> Unit {
        match self {
            Measure::Requests => Unit::PerSecond,
            Measure::Errors => Unit::Share,
            Measure::P99 => Unit::Seconds,
            Measure::Cpu | Measure::Up => Unit::Count,
            Measure::Memory => Unit::Bytes,
        }
    }
}

impl WatchedFigure {
    /// The figure of this name.
    pub fn from_name(name: &str) -> Option<WatchedFigure> {
        if name == CERTIFICATE_DAYS {
            return Some(WatchedFigure::CertificateDays);
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
            WatchedFigure::CertificateDays => Unit::Count,
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
            WatchedFigure::CertificateDays => f.write_str(CERTIFICATE_DAYS),
        }
    }
}
