//! Scripts: where they stand, what they may use, and what becomes of a request when one fails.
//!
//! The idea: every level holds the scripts that were written on it, and the request path runs them
//! level by level, outer first. A script is named, not compiled: what Ruby says to it is found out
//! by whoever opens a generation.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;

use super::mode::Mode;
use super::number::{
    Field,
    Number::{Full, Size},
};

/// `[scripts]`: what the process says of scripts.
#[derive(Debug, Clone, PartialEq)]
pub struct Scripts {
    /// Whose modules scripts are told they run in.
    pub server: ServerClass,
    /// Run in every worker's VM when a generation opens, before `worker_init`.
    pub init: Vec<Script>,
    /// Run in every worker's VM after `init`.
    pub worker_init: Vec<Script>,
    /// Run in every worker's VM before it closes.
    pub worker_exit: Vec<Script>,
    /// Directories whose Ruby scripts may require, in the order they are looked into.
    pub lib: Arc<[Library]>,
    /// Scripts that every request meets, before those of its tenant.
    pub phases: Arc<PhaseScripts>,
    /// What scripts may use.
    pub budgets: Budgets,
    /// Directories in which files keep namespaces of `Cache`.
    pub cache_files: Arc<[PathBuf]>,
    /// Environment variables of the server that scripts may read, each once.
    pub env: Arc<[String]>,
}

/// A directory whose Ruby scripts may require.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Its name, absolute.
    pub directory: PathBuf,
    /// Every `*.rb` below it, each with its text.
    pub files: Vec<ScriptFile>,
}

/// What `get_server_class` answers, as scripts for several servers ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum ServerClass {
    Nginx,
    Apache,
}

/// Where the scripts run that a tenant's requests meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptsVm {
    /// In VMs of the tenant's own, one a worker.
    Own,
    /// In the VM that a worker has for all.
    Shared,
}

/// The scripts of one level, by phase, each phase's in the order they run in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PhaseScripts {
    /// In a handshake, before a certificate is shown. Never on a rule.
    pub ssl_handshake: Vec<Script>,
    /// Before a request is resolved. Never on a rule: rules are chosen after it.
    pub rewrite: Vec<Script>,
    /// After rules, rates, passwords and permits, before the handler.
    pub access: Vec<Script>,
    /// Before a reply's head is sent.
    pub header_filter: Vec<Script>,
    /// Over a whole reply body of at most [`Budgets::body_filter_bytes`].
    pub body_filter: Vec<Script>,
    /// After the reply, once, whatever became of the request.
    pub log: Vec<Script>,
}

/// A script.
#[derive(Clone)]
pub struct Script {
    /// Where its text is.
    pub source: Source,
    /// What it is called in log lines and backtraces: the file's absolute name, or `FILE:LINE` of
    /// the configuration where inline code begins. Two scripts are equal whatever they are called.
    pub name: Arc<str>,
    /// When it is compiled.
    pub cache: Cache,
    /// What a raise before the reply means for the request.
    pub on_error: OnError,
    /// Whether requests can do without it when there is more to do than there is time for.
    pub optional: bool,
    /// Whether what it says of a request comes to pass.
    pub mode: Mode,
}

/// Where a script's text is.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// In this file.
    File(ScriptFile),
    /// Here.
    Code(Arc<str>),
}

/// A script's file.
#[derive(Clone, PartialEq, Eq)]
pub struct ScriptFile {
    /// Its name, absolute.
    pub path: PathBuf,
    /// What it held when the configuration was read, by whoever read it, who may be allowed more
    /// than the server is. `None` where nobody looked: with [`Cache::Never`], and in tests.
    /// Scripts share equal files.
    pub text: Option<Arc<[u8]>>,
}

/// When a script is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Again once its file has changed, which is looked at no more than once a second.
    Mtime,
    /// Once a generation.
    Always,
    /// For every request.
    Never,
}

/// What a raise before the reply means for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// It is answered 500.
    Deny,
    /// It goes on as if the script had said nothing.
    Allow,
}

/// What scripts may use. Durations in milliseconds, none zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budgets {
    /// CPU time between two waits. Default 5 ms.
    pub cpu_ms: u64,
    /// One call of a hook from start to end, waits included. Default 30 s.
    pub wall_ms: u64,
    /// As `wall_ms`, of a `log` script. Default 5 s.
    pub log_wall_ms: u64,
    /// Memory of the VMs of a worker together. Default 64 MiB.
    pub memory_bytes: u64,
    /// VMs of tenants that a worker has open at once. Default 64.
    pub vms: usize,
    /// Fibers of a worker that wait at once. Default 4,096.
    pub parked: usize,
    /// What the scripts of one request may write, in all. Default 10 MiB.
    pub output_bytes: u64,
    /// Largest body that a `body_filter` is given; larger ones pass as they are. Default 1 MiB.
    pub body_filter_bytes: usize,
    /// Connecting to a store: memcached, MySQL, Redis, HTTP. Default 1 s.
    pub connect_timeout_ms: u64,
    /// One command to a store. Default 5 s.
    pub store_timeout_ms: u64,
    /// Connections of a worker to one server of a store. Default 32.
    pub store_connections: usize,
    /// Keys and values of `Cache`, of all its namespaces, in the whole process. Default 64 MiB.
    pub cache_bytes: u64,
    /// Entries of `Cache`, likewise. Default 100,000.
    pub cache_entries: usize,
    /// Largest file that `File.read` gives. Default 1 MiB.
    pub read_bytes: u64,
}

impl Budgets {
    pub(crate) const FIELDS: [Field<Self>; 14] = [
        ("cpu", |it| Full(&mut it.cpu_ms)),
        ("wall", |it| Full(&mut it.wall_ms)),
        ("log_wall", |it| Full(&mut it.log_wall_ms)),
        ("memory", |it| Full(&mut it.memory_bytes)),
        ("vms", |it| Size(&mut it.vms)),
        ("parked", |it| Size(&mut it.parked)),
        ("output", |it| Full(&mut it.output_bytes)),
        ("body_filter_bytes", |it| Size(&mut it.body_filter_bytes)),
        ("connect_timeout", |it| Full(&mut it.connect_timeout_ms)),
        ("store_timeout", |it| Full(&mut it.store_timeout_ms)),
        ("store_connections", |it| Size(&mut it.store_connections)),
        ("cache_bytes", |it| Full(&mut it.cache_bytes)),
        ("cache_entries", |it| Size(&mut it.cache_entries)),
        ("read_bytes", |it| Full(&mut it.read_bytes)),
    ];
}

/// A network, and a port of it or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedAddress {
    /// The network, without bits beyond its prefix.
    pub network: IpNet,
    /// The port; `None`: any.
    pub port: Option<u16>,
}

impl PhaseScripts {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Script> {
        let phases = [
            &self.ssl_handshake,
            &self.rewrite,
            &self.access,
            &self.header_filter,
            &self.body_filter,
            &self.log,
        ];
        phases.into_iter().flatten()
    }

    /// Whether one of them runs early enough to say where a request is forwarded to.
    #[must_use]
    pub fn may_name_upstreams(&self) -> bool {
        !(self.rewrite.is_empty() && self.access.is_empty())
    }
}

impl Script {
    /// File and line on which inline code begins, out of its name.
    #[must_use]
    pub fn place(&self) -> (&str, u16) {
        let known = self.name.rsplit_once(':');
        let known = known.and_then(|(file, line)| Some((file, line.parse().ok()?)));
        known.unwrap_or((&self.name, 1))
    }

    /// The file it stands in; `None` for inline code.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File(file) => Some(&file.path),
            Source::Code(_) => None,
        }
    }
}

impl PartialEq for Script {
    fn eq(&self, other: &Script) -> bool {
        (&self.source, self.cache) == (&other.source, other.cache)
            && (self.on_error, self.optional) == (other.on_error, other.optional)
            && self.mode == other.mode
    }
}

impl AllowedAddress {
    /// Whether the address is one of these. An IPv4 address within IPv6 counts as IPv4.
    #[must_use]
    pub fn holds(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.network.contains(&ip) && self.port.is_none_or(|port| port == address.port())
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {:?}", self.source, self.cache)?;
        let (on_error, optional) = (self.on_error, self.optional);
        write!(
            out,
            " on_error {on_error:?} optional {optional} {:?}",
            self.mode
        )
    }
}

/// Texts of scripts may hold passwords and are long: they are not shown.
impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(file) => file.fmt(out),
            Source::Code(code) => write!(out, "code of {} bytes", code.len()),
        }
    }
}

impl fmt::Debug for ScriptFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(out)
    }
}
