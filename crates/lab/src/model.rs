//! An experiment that was checked: what is started, what is asked of it, and what is wanted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use load::client::{Numbers, Scheme, TlsResume, TlsVersion};

/// An experiment. Names in it are known to exist.
#[derive(Debug, Clone)]
pub(crate) struct Experiment {
    /// The name of its file or directory.
    pub(crate) name: String,
    /// Where what it needs lies.
    pub(crate) directory: PathBuf,
    pub(crate) title: String,
    pub(crate) question: String,
    pub(crate) report: Option<FieldReport>,
    /// Placeholders of every config and command.
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) files: Vec<SiteFile>,
    pub(crate) backends: Vec<Service>,
    pub(crate) variants: Vec<Service>,
    pub(crate) rows: Vec<Row>,
    /// Of a row that has no count of its own.
    pub(crate) blocks: usize,
    /// Commands before everything.
    pub(crate) before: Vec<Command>,
    /// Commands after everything.
    pub(crate) after: Vec<Command>,
}

/// Somebody's report whose figures stand beside ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldReport {
    pub(crate) source: String,
    pub(crate) words: String,
}

/// A file below the directory that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteFile {
    /// With `@n@` where it is repeated.
    pub(crate) name: String,
    pub(crate) content: Content,
    /// How many there are of it.
    pub(crate) repeat: u64,
    pub(crate) mode: u32,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// This text; placeholders are filled in.
    Text(String),
    /// A line over and over, so many bytes of it.
    Bytes(u64),
    /// A file beside the experiment; placeholders are filled in where it is text.
    From(PathBuf),
}

/// Something that is started: a back end or a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// Programs, or files by their absolute paths; the first is `@program@`.
    pub(crate) needs: Vec<String>,
    /// The command, word by word.
    pub(crate) command: Vec<String>,
    /// Name in the service's directory, and the file beside the experiment; the first is `@config@`.
    pub(crate) configs: Vec<(String, PathBuf)>,
    pub(crate) values: BTreeMap<String, String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// Commands before it is started.
    pub(crate) prepare: Vec<Command>,
    pub(crate) ready: Ready,
    pub(crate) ready_within: Duration,
    pub(crate) cores: Vec<usize>,
    pub(crate) workers: u64,
    /// Back ends it cannot be without.
    pub(crate) backends: Vec<String>,
    pub(crate) before_slice: Vec<Command>,
    pub(crate) after_slice: Vec<Command>,
    /// What its port speaks.
    pub(crate) scheme: Scheme,
}

/// Where a service is reached, on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceAddress {
    pub(crate) port: u16,
    pub(crate) scheme: Scheme,
}

/// When a service is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Its port takes connections.
    Port,
    /// A socket of the machine takes connections.
    Unix(String),
    /// This path is answered with a status below 400.
    Path(String),
    /// A command ends with 0.
    Command(Command),
    /// As soon as it runs.
    AtOnce,
}

/// A command: words as they are, or a line for the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Words(Vec<String>),
    Shell(String),
}

/// A row of the table: variants that do the same work.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Said below the table.
    pub(crate) note: Option<String>,
    /// Indices into the variants; the first is what others are compared with.
    pub(crate) variants: Vec<usize>,
    pub(crate) measure: Measure,
    /// What is compared, the main one first.
    pub(crate) figures: Vec<String>,
    pub(crate) better: Better,
    pub(crate) targets: Vec<Target>,
    pub(crate) reported: Vec<Reported>,
    pub(crate) alike: Alike,
    pub(crate) load: Load,
    pub(crate) background: Vec<Background>,
    pub(crate) read: Vec<Read>,
    pub(crate) before_slice: Vec<Command>,
    pub(crate) after_slice: Vec<Command>,
    pub(crate) control: Control,
    /// Variants are started afresh for every slice.
    pub(crate) fresh: bool,
    /// Checked against wrk.
    pub(crate) cross_check: bool,
    /// What rows of one scale have more or less of.
    pub(crate) scale: Option<Step>,
}

/// A place on a scale: so many of something.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Step {
    /// One of what is counted: `condition`.
    pub(crate) of: String,
    pub(crate) count: f64,
}

/// What is done in a slice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Measure {
    /// Requests are sent and timed.
    Load(Vec<Ask>),
    /// Connections that have each made a request are held open.
    Hold {
        ask: Ask,
        connections: usize,
        settle: Duration,
    },
    /// A program says its figures.
    Command { command: Command, within: Duration },
}

/// A request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ask {
    pub(crate) label: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) weight: u32,
    /// Which numbers stand for `@number@` in path or headers.
    pub(crate) numbers: Option<Numbers>,
    /// After so long from the due instant its client hangs up.
    pub(crate) patience: Option<Duration>,
    pub(crate) tenant: Option<String>,
    /// The tenant's fair share, relative to others'.
    pub(crate) share: u32,
}

/// Whether more of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// As the figure's name says: rates more, all else less.
    ByName,
    More,
    Less,
}

/// What is wanted of a figure.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Target {
    pub(crate) of: String,
    /// Whose.
    pub(crate) variant: String,
    /// Over whose; `None` for the figure itself.
    pub(crate) than: Option<Than>,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
    /// By how much it may exceed the other's, in the figure's own unit.
    #[serde(default)]
    pub(crate) more_at_most: Option<f64>,
}

/// Beside whom.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Than {
    /// The best of the row's other variants.
    Best,
    /// This one.
    Variant(String),
    /// The same variant in this row.
    Row(String),
}

/// A figure somebody reported.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reported {
    /// Whose; `None` for the row's first.
    pub(crate) variant: Option<String>,
    pub(crate) figure: f64,
    /// Of what; it is compared with ours of the same.
    pub(crate) of: String,
}

/// What the answers of variants have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alike {
    pub(crate) status: bool,
    pub(crate) body: bool,
    pub(crate) headers: Vec<String>,
    /// The status itself, where one is wanted.
    pub(crate) expected: Option<u16>,
}

/// How requests are sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) keep_alive: bool,
    /// Requests of a connection, where that is limited.
    pub(crate) requests_per_connection: Option<u32>,
    pub(crate) seconds: f64,
    /// In place of a time.
    pub(crate) requests: Option<u64>,
    pub(crate) blocks: usize,
    pub(crate) warm_up: Duration,
    pub(crate) rate: Rate,
    pub(crate) arrivals: Arrivals,
    pub(crate) ramp: Duration,
    pub(crate) timeout: Duration,
    /// From the due instant: what comes later is no good reply.
    pub(crate) deadline: Option<Duration>,
    pub(crate) failures: Failures,
    /// Blocks after which variants are started afresh; 0 is never.
    pub(crate) restart_blocks: usize,
    /// Pause between slices.
    pub(crate) rest: Duration,
    pub(crate) windows: Vec<Window>,
    /// Requests at a time on a connection of HTTP/2; none speaks HTTP/1.1.
    pub(crate) streams: Option<usize>,
    /// Addresses of this machine that connections come from, in turn; 1 leaves it to the kernel.
    pub(crate) clients: u32,
    /// Names that TLS asks for, in turn; 1 is `localhost` alone.
    pub(crate) tls_names: u32,
    pub(crate) tls_resume: TlsResume,
    pub(crate) tls_version: Option<TlsVersion>,
    pub(crate) tls_groups: Vec<String>,
}

/// A part of a slice that has a goodput of its own; seconds since recording began.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Window {
    pub(crate) name: String,
    pub(crate) from: f64,
    pub(crate) until: f64,
}

/// How fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rate {
    /// As fast as replies come: closed loop.
    Full,
    /// So many a second: open loop.
    PerSecond(f64),
    /// This share of what the slowest variant does flat out: open loop.
    Share(f64),
}

/// Gaps between requests of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrivals {
    Poisson,
    Constant,
    Bursts,
}

/// Which replies count as failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failures {
    /// Statuses outside 200 to 399.
    Status,
    /// Only broken replies.
    Broken,
}

/// A load beside the one that is measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Background {
    pub(crate) ask: Ask,
    /// A back end it goes to in place of the variant.
    pub(crate) backend: Option<String>,
    pub(crate) connections: usize,
    pub(crate) keep_alive: bool,
    pub(crate) rate: Rate,
    /// As the load's.
    pub(crate) clients: u32,
    /// As the load's.
    pub(crate) tls_names: u32,
}

/// What is read of the server beside its CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Read {
    Memory,
    Processes,
    Switches,
    RunQueue,
    Throttling,
    Sockets,
    Load,
}

/// Whether the first variant is measured twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// A second copy of the first variant takes part.
    Again,
    None,
}
