//! The configuration as the rest of the program sees it: checked, complete, immutable.
//!
//! The idea: a value of these types cannot be wrong. Defaults are filled in, names resolve, ranges
//! hold. [`crate::load`] is the only producer. No file, clock or socket is touched here.

mod cgroup;
mod handler;
mod host;
mod limit;
mod map;
mod script;
pub mod sensor;
mod shed;
mod template;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;

pub use cgroup::{CPU_PERIOD_US, Cgroup, IoLimit};
pub use handler::{
    Cgi, FastCgi, Handler, MetricsFormat, Proxy, ProxyHost, ProxyTarget, Redirect, Respond, Rlimits,
};
pub use host::HostPattern;
pub use limit::{
    Concurrent, Kept, LIMITS_PER_REQUEST_MAX, Limit, LimitIdentities, LimitKey, LimitMode,
    LimitPlace, Rate, When, Window,
};
pub use map::{Map, MapCache, MapLookup, MapMatch, MapProgram, MapSource};
pub use script::{
    AllowedAddress, Budgets, Cache, OnError, PhaseScripts, Script, ScriptFile, Scripts,
    ServerClass, Source,
};
pub use shed::{Degrade, SHED_RULES_MAX, Shed, ShedReply, ShedScope};
pub use template::{Template, TemplatePart};

/// A whole configuration: what one generation of the gateway runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Worker threads, at least 1. Fixed for the supervisor's life.
    pub workers: usize,
    /// User the server becomes when started as root.
    pub user: String,
    /// Control socket; `None` means there is none and `nagaya status` has nobody to ask.
    pub control: Option<Control>,
    /// Listeners in file order, addresses unique.
    pub listeners: Vec<Listener>,
    /// Logging of the process; sites may override `access`.
    pub log: Log,
    /// Every wait of the process.
    pub timeouts: Timeouts,
    /// Every size and count of the process.
    pub caps: Caps,
    /// Peers whose forwarding fields and request ids are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether limits of a cgroup that this host cannot enforce are an error, where no level says
    /// otherwise. Already in every [`Cgroup::required`].
    pub cgroup_required: bool,
    /// Fields changed on every request before it reaches a handler.
    pub request_headers: FieldEdits,
    /// Fields changed on every reply.
    pub reply_headers: FieldEdits,
    /// Time zone of every `when` that names none, as the tz database spells it; `None`: the
    /// machine's own.
    pub time_zone: Option<String>,
    /// Limits that every request meets.
    pub limits: Arc<[Limit]>,
    /// Where changes of limits are kept. What was read there is in every [`Limit::kept`].
    pub limits_overrides: PathBuf,
    /// What the process says of scripts.
    pub scripts: Scripts,
    /// `[tenants.NAME]` in file order, names unique. Sites refer to them by index into this list.
    pub tenants: Vec<Tenant>,
    /// `[maps.NAME]` in file order, names unique. Rules and texts refer to them by index.
    pub maps: Vec<Map>,
    /// Rules that send requests away when there is too much to do, in file order, names unique.
    pub shed: Vec<Shed>,
    /// Upstreams by name. Handlers refer to them by index into this list.
    pub upstreams: Vec<Upstream>,
    /// Sites in file order; at least one.
    pub sites: Vec<Site>,
    /// Files of scripts and passwords, of all levels and handlers: as they are named (absolute) and,
    /// where links lead elsewhere, under their canonical names as well. Sorted, each once. They are
    /// never served.
    pub guarded: Arc<[Guarded]>,
}

/// A file that is never served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// Its full name.
    pub path: PathBuf,
    /// What it was when the configuration was read; `None` where it was not there.
    pub identity: Option<FileIdentity>,
}

/// What a file is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device that holds it.
    pub device: u64,
    /// Its number there, which is given to another file when it is gone.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970, which tells the two apart; 0 where the file
    /// system does not say.
    pub born_ns: u64,
}

/// `[control]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Path of the Unix socket (mode 0600, peer checked).
    pub socket: PathBuf,
}

/// `[[listen]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Where to listen.
    pub address: ListenAddress,
    /// Connections the kernel may hold unaccepted, per socket (`listen(2)`).
    pub backlog: u32,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ListenAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Access log of sites that name none.
    pub access: LogTarget,
    /// Record format.
    pub format: LogFormat,
    /// Least severe level written to the error log (stderr).
    pub level: LogLevel,
    /// Access-log descriptors open at once when the target is a template.
    pub files_max: usize,
}

/// Where access records go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogTarget {
    /// Nowhere (`""`).
    Off,
    /// Standard output (`"-"`).
    Stdout,
    /// A file. May hold `$host` or `$site` (the site's first host), filled in per site.
    File(String),
}

/// Access record formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Apache's and LTSV's own")]
pub enum LogFormat {
    Combined,
    VhostCombined,
    Json,
    Ltsv,
}

/// Severity of the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the usual five")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// `[timeouts]`, all in milliseconds and all greater than zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// A request head, from its first byte to its last. Default 10 s.
    pub header_ms: u64,
    /// Longest silence while a request body is awaited. Default 30 s.
    pub body_ms: u64,
    /// Longest time a client may take no byte of a reply. Default 30 s.
    pub write_ms: u64,
    /// Keep-alive between requests. Default 60 s.
    pub idle_ms: u64,
    /// Connecting to an upstream. Default 5 s.
    pub upstream_connect_ms: u64,
    /// Longest silence of an upstream. Default 60 s.
    pub upstream_read_ms: u64,
    /// Longest time an upstream may take no byte. Default 60 s.
    pub upstream_write_ms: u64,
    /// Idle life of a pooled upstream connection. Default 60 s.
    pub upstream_idle_ms: u64,
    /// Silence of both ends of a tunnel. Default 1 h.
    pub tunnel_ms: u64,
    /// How long exchanges may go on after TERM. Default 30 s.
    pub drain_ms: u64,
    /// How long a resolved upstream name is used before it is looked up again. Default 30 s.
    pub resolve_ms: u64,
}

/// `[caps]`: sizes in bytes, counts as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// Request head. Default 16 KiB; more is 431.
    pub head_bytes: usize,
    /// Request target. Default 8 KiB; more is 414.
    pub target_bytes: usize,
    /// Fields in a head. Default 100; more is 431.
    pub fields: usize,
    /// Request body. Default 1 GiB; more is 413.
    pub body_bytes: u64,
    /// Chunk extensions of one body, in total. Default 4 KiB.
    pub chunk_extension_bytes: usize,
    /// Trailers of one body. Default 8 KiB.
    pub trailer_bytes: usize,
    /// Unread request body drained so that the connection can be kept. Default 64 KiB.
    pub drain_bytes: u64,
    /// Head of an upstream's reply. Default 32 KiB.
    pub upstream_head_bytes: usize,
    /// Connections of the process. Default 65,536.
    pub connections: usize,
    /// Connections of one client (address, /64 for IPv6). Default 1,024; 0 = no cap.
    pub connections_per_client: usize,
    /// Refusals of one client in a second that are dealt with like other requests. Default 50; 0 = no cap.
    pub refusals_per_client: u64,
    /// Requests on one connection. Default 1,000; 0 = no cap.
    pub requests_per_connection: u64,
    /// Slowest accepted request body, bytes per second; its client may fall behind by `timeouts.body`. Default 128.
    pub body_rate_min: u64,
    /// Slowest accepted reader of a reply, bytes per second; it may fall behind by `timeouts.write`. Default 128.
    pub write_rate_min: u64,
    /// Memory of one spooled body before it goes to a temporary file. Default 64 KiB.
    pub spool_memory_bytes: usize,
    /// All temporary files together. Default 2 GiB.
    pub spool_disk_bytes: u64,
    /// Largest file kept in a worker's cache of small files. Default 64 KiB.
    pub cached_file_bytes: usize,
    /// A worker's cache of small files in total. Default 16 MiB.
    pub file_cache_bytes: usize,
    /// Basic-auth checks waiting for a hash at once; more is 503. Default 64.
    pub auth_waiting: usize,
    /// CGI programs running at once, in the whole process; more is 503. Default 256.
    pub programs: usize,
    /// Environment of one program's run, FastCGI or CGI; more is 431. Default 64 KiB.
    pub env_bytes: usize,
    /// Keys of limits (clients, files, …) that one tenant's requests may keep in use; further ones
    /// share one count. Default 4,096.
    pub limit_keys: usize,
}

/// `[upstreams.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// Its name; for a handler's inline URL, that URL; for an inline address of FastCGI, that
    /// address behind `fastcgi:`.
    pub name: String,
    /// What its servers speak. Handlers of the other protocol never name it. Default HTTP.
    pub protocol: Protocol,
    /// Servers, at least one.
    pub servers: Vec<Server>,
    /// Idle connections kept per worker and server. Default 256; for FastCGI 16, because each
    /// keeps a process of the server's.
    pub keepalive: usize,
    /// How a server is chosen. Default round robin.
    pub balance: Balance,
    /// Failures in a row that take a server out. Default 3.
    pub fails: u32,
    /// First rest of a failed server; doubles up to `back_off_max_ms`. Default 1 s.
    pub back_off_ms: u64,
    /// Longest rest. Default 30 s.
    pub back_off_max_ms: u64,
    /// Servers tried for one request where retrying is safe. Default 2.
    pub tries: u32,
    /// Port on which an agent answers where each server runs; `None`: there is none.
    pub agent_port: Option<u16>,
    /// Limits that every request forwarded to it meets. None for an inline URL or address.
    pub limits: Arc<[Limit]>,
}

/// What an upstream's servers speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum Protocol {
    Http,
    FastCgi,
}

/// One server of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its address.
    pub address: ServerAddress,
    /// Share relative to its fellows, 1 to 1,000. Default 1.
    pub weight: u32,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// An address as it is.
    Tcp(SocketAddr),
    /// A name, looked up again every `timeouts.resolve`.
    Name {
        /// Host name, ASCII, lower case.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp(address) => address.fmt(out),
            ServerAddress::Name { host, port } => write!(out, "{host}:{port}"),
            ServerAddress::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// Choice among servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// Smooth weighted round robin.
    RoundRobin,
    /// Fewest requests in flight per weight.
    LeastRequests,
}

/// Changes to the fields of a request or reply, applied in the order remove, set, add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Replaced or created.
    pub set: Vec<(String, Template)>,
    /// Appended beside existing ones.
    pub add: Vec<(String, Template)>,
    /// Removed, names in lower case.
    pub remove: Vec<String>,
}

/// `[tenants.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its share of what several tenants wait for, relative to theirs: 1 to 1,000. Default 1.
    pub weight: u32,
    /// Limits that every request to its sites meets.
    pub limits: Arc<[Limit]>,
    /// What the programs of all its sites share.
    pub cgroup: Option<Box<Cgroup>>,
    /// Scripts that every request to its sites meets.
    pub scripts: Arc<PhaseScripts>,
}

/// `[[sites]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Exact and wildcard hosts; no host occurs in two sites.
    pub hosts: Vec<HostPattern>,
    /// Whose it is. Default: the first host as it is written.
    pub tenant: String,
    /// Index into [`Model::tenants`]; `None` for a tenant of whom nothing more is said.
    pub tenant_index: Option<usize>,
    /// The user its programs run as, never root. Default: [`Model::user`].
    pub user: String,
    /// Whether the site names that user itself.
    pub has_own_user: bool,
    /// What the programs of all its rules share.
    pub cgroup: Option<Box<Cgroup>>,
    /// Document root; `None` for a site that only proxies or answers.
    pub root: Option<Root>,
    /// Names tried in a directory, in order. Default `["index.html"]`.
    pub index: Arc<Vec<String>>,
    /// What a path is resolved to. Default `["$path", "$path/"]`.
    pub resolve: Arc<Vec<TryEntry>>,
    /// Repeated slashes. Default merge.
    pub slashes: Slashes,
    /// `%2F` in a path. Default refuse.
    pub encoded_slash: EncodedSlash,
    /// Field names with `_` (or other odd bytes). Default drop.
    pub underscore_fields: UnderscoreFields,
    /// Static file settings of the site.
    pub files: Arc<Files>,
    /// Replaced error pages, by status.
    pub error_pages: BTreeMap<u16, ErrorPage>,
    /// Settings every rule adds to.
    pub settings: Arc<Settings>,
    /// Access log of this site.
    pub log: LogTarget,
    /// Limits that every request to it meets. Sites share equal ones.
    pub limits: Arc<[Limit]>,
    /// Scripts that every request to it meets. Sites share equal ones.
    pub scripts: Arc<PhaseScripts>,
    /// Rules in order.
    pub rules: Vec<Rule>,
}

/// A site's root and its boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The document root, absolute, beneath or equal to `within`.
    pub path: PathBuf,
    /// No file outside this directory is ever served. Default: `path`.
    pub within: PathBuf,
    /// What to do with symbolic links. Default owner.
    pub symlinks: Symlinks,
}

/// Symbolic links below a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// Refused.
    Deny,
    /// Followed where the link's owner owns its target.
    Owner,
    /// Followed where they end beneath `within`.
    Allow,
}

/// An entry of `try`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryEntry {
    /// `"$path"`: the file itself.
    Path,
    /// `"$path/"`: a directory with an index.
    Directory,
    /// `"$path.html"`: the path with this suffix.
    Suffix(String),
    /// `"/index.php"`: a fixed file, the front controller.
    Fixed(String),
    /// `"=404"`: this status.
    Status(u16),
}

/// Repeated slashes in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum Slashes {
    Merge,
    Keep,
}

/// `%2F` in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum EncodedSlash {
    Refuse,
    Keep,
}

/// Field names other than `[A-Za-z0-9-]`, which CGI would fold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "says it")]
pub enum UnderscoreFields {
    Drop,
    Refuse,
    Keep,
}

/// How a site serves its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Globs over the file name that are programs' sources, never served.
    pub sources: Vec<String>,
    /// List directories without an index. Default no.
    pub listing: bool,
    /// Media types by extension (lower case, no dot), over the built-in table.
    pub types: BTreeMap<String, String>,
    /// Type of unknown extensions. Default `application/octet-stream`.
    pub default_type: String,
    /// Serve `.br`, `.zst`, `.gz` siblings. Default yes.
    pub precompressed: bool,
    /// Compress text on the fly. Default yes.
    pub compress: bool,
    /// Smallest reply compressed on the fly. Default 1 KiB.
    pub compress_min_bytes: usize,
    /// Largest reply compressed on the fly. Default 8 MiB.
    pub compress_max_bytes: usize,
}

/// A replaced error page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    /// The body, read when the configuration was loaded (at most 256 KiB). Sites share equal files.
    pub body: Arc<[u8]>,
    /// The file, for messages.
    pub file: PathBuf,
    /// Its media type.
    pub content_type: String,
}

/// What a site and each of its rules may set; all levels apply, outer first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Fields changed on requests.
    pub request_headers: FieldEdits,
    /// Fields changed on replies.
    pub reply_headers: FieldEdits,
    /// Clients let in; empty means everybody not denied.
    pub allow: Vec<IpNet>,
    /// Clients refused with 403; `deny` wins over `allow`.
    pub deny: Vec<IpNet>,
    /// Basic authentication.
    pub auth: Option<Auth>,
    /// Variables for logs and programs.
    pub env: Vec<(String, Template)>,
}

/// Basic authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// Realm shown to the user.
    pub realm: String,
    /// Users and their hashes, read from the htpasswd file at load. Levels share equal files.
    pub users: Arc<BTreeMap<String, String>>,
    /// The htpasswd file, for messages.
    pub file: PathBuf,
}

/// `[[sites.rules]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Name for logs; default `rule 3`.
    pub name: String,
    /// Whether that is its own, or tells its place: then it is another rule's once one is put above.
    pub is_named: bool,
    /// Conditions, all of which must hold.
    pub conditions: Vec<Condition>,
    /// What answers; a rule without one adds its settings and goes on.
    pub handler: Option<Handler>,
    /// What the rule adds.
    pub settings: Arc<Settings>,
    /// Limits that the requests it matches meet. Rules share equal ones.
    pub limits: Arc<[Limit]>,
    /// What the programs of this rule share. Never on a rule that forwards, or has no handler.
    pub cgroup: Option<Box<Cgroup>>,
    /// Scripts that the requests it matches meet; `rewrite` is empty. Rules share equal ones.
    pub scripts: Arc<PhaseScripts>,
}

/// One condition of a rule's `match`.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// Glob over the resolved file.
    File(Glob),
    /// Glob over the canonical path.
    Path(Glob),
    /// Regular expression over the canonical path (syntax checked).
    PathRegex(String),
    /// One of these methods.
    Method(Vec<String>),
    /// A field (name in lower case) whose value matches; `None`: present at all.
    Header(String, Option<Glob>),
    /// A query parameter whose value matches; `None`: present at all.
    Query(String, Option<Glob>),
    /// The client is in one of these networks.
    Client(Vec<IpNet>),
    /// The resolved file exists (or not).
    Exists(bool),
    /// What a map answers.
    Map(Box<MapMatch>),
    /// None of these holds together.
    Not(Vec<Condition>),
}

/// A glob: `*` is any bytes including `/`, `?` one byte, `[a-z]` a
/// class, `[!a-z]` its opposite. Over a file or path it matches at the end if it has no leading `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(pub String);
