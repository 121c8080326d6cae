//! What concerns the whole process: its listeners, its log, how long it waits and how much it takes.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::number::Field;
use super::number::Number::{Full, Maybe, Size};
use super::template::Template;
use super::tls::ListenTls;

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
    /// How TLS is spoken there; `None` is plain HTTP.
    pub tls: Option<ListenTls>,
    /// What is spoken there: by ALPN where there is TLS, else by what the client begins with.
    pub protocols: Protocols,
    /// Permissions of a Unix socket's file. Default 0666.
    pub mode: u32,
    /// Who says for whom it speaks, by the PROXY protocol. Default nobody.
    pub senders: Senders,
}

/// The versions of HTTP that are spoken; one at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.1, and whoever asks in the way of HTTP/1.0.
    pub http11: bool,
    /// HTTP/2.
    pub http2: bool,
}

impl Protocols {
    /// HTTP/1.1 alone, as listeners without TLS speak by default.
    pub const HTTP11: Self = Self {
        http11: true,
        http2: false,
    };
    /// Both, as listeners with TLS speak by default.
    pub const BOTH: Self = Self {
        http11: true,
        http2: true,
    };

    /// What they are called where HTTP/2 is called so.
    pub(crate) fn names(self, http2: &'static str) -> Vec<&'static str> {
        let known = [(self.http11, "http/1.1"), (self.http2, http2)];
        let spoken = known.into_iter().filter(|(is_spoken, _)| *is_spoken);
        spoken.map(|(_, name)| name).collect()
    }
}

/// Peers of a listener that must begin with a header of the PROXY protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Senders {
    /// Nobody: such a header is not understood.
    #[default]
    Nobody,
    /// Whoever connects to a Unix socket.
    Unix,
    /// Those of these networks.
    Networks(Vec<IpNet>),
}

impl Senders {
    /// Whether `peer` must; the unspecified address is that of a Unix socket.
    pub fn holds(&self, peer: IpAddr) -> bool {
        match self {
            Senders::Nobody => false,
            Senders::Unix => peer.is_unspecified(),
            Senders::Networks(networks) => {
                let peer = peer.to_canonical();
                networks.iter().any(|network| network.contains(&peer))
            }
        }
    }
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
    /// Whether records in Apache's formats end in the reason of a refusal or failure.
    pub reason: bool,
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the usual five")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// `[timeouts]`, all in milliseconds and all greater than zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// A TLS handshake, from its first byte to its last, the wait for its turn included. Default 10 s.
    pub handshake_ms: u64,
    /// A request head, from its first byte to its last. Default 10 s.
    pub header_ms: u64,
    /// Longest silence while a request body is awaited. Default 30 s.
    pub body_ms: u64,
    /// Longest time a client may take no byte of a reply. Default 30 s.
    pub write_ms: u64,
    /// Keep-alive between requests. Default 60 s.
    pub idle_ms: u64,
    /// The same for a connection of HTTP/2; `None` for as long, but for 30 s at most while memory is short.
    pub idle_h2_ms: Option<u64>,
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

impl Timeouts {
    pub(crate) const FIELDS: [Field<Self>; 13] = [
        ("handshake", |it| Full(&mut it.handshake_ms)),
        ("header", |it| Full(&mut it.header_ms)),
        ("body", |it| Full(&mut it.body_ms)),
        ("write", |it| Full(&mut it.write_ms)),
        ("idle", |it| Full(&mut it.idle_ms)),
        ("idle_h2", |it| Maybe(&mut it.idle_h2_ms)),
        ("upstream_connect", |it| Full(&mut it.upstream_connect_ms)),
        ("upstream_read", |it| Full(&mut it.upstream_read_ms)),
        ("upstream_write", |it| Full(&mut it.upstream_write_ms)),
        ("upstream_idle", |it| Full(&mut it.upstream_idle_ms)),
        ("tunnel", |it| Full(&mut it.tunnel_ms)),
        ("drain", |it| Full(&mut it.drain_ms)),
        ("resolve", |it| Full(&mut it.resolve_ms)),
    ];
}

/// `[caps]`: sizes in bytes, counts as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// Largest file kept in a worker's cache of small files. Default 16 KiB.
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

impl Caps {
    /// `connections` where the configuration does not say.
    pub const CONNECTIONS: usize = 65_536;

    pub(crate) const FIELDS: [Field<Self>; 22] = [
        ("head_bytes", |it| Size(&mut it.head_bytes)),
        ("target_bytes", |it| Size(&mut it.target_bytes)),
        ("fields", |it| Size(&mut it.fields)),
        ("body_bytes", |it| Full(&mut it.body_bytes)),
        ("chunk_extension_bytes", |it| {
            Size(&mut it.chunk_extension_bytes)
        }),
        ("trailer_bytes", |it| Size(&mut it.trailer_bytes)),
        ("drain_bytes", |it| Full(&mut it.drain_bytes)),
        ("upstream_head_bytes", |it| {
            Size(&mut it.upstream_head_bytes)
        }),
        ("connections", |it| Size(&mut it.connections)),
        ("connections_per_client", |it| {
            Size(&mut it.connections_per_client)
        }),
        ("refusals_per_client", |it| {
            Full(&mut it.refusals_per_client)
        }),
        ("requests_per_connection", |it| {
            Full(&mut it.requests_per_connection)
        }),
        ("body_rate_min", |it| Full(&mut it.body_rate_min)),
        ("write_rate_min", |it| Full(&mut it.write_rate_min)),
        ("spool_memory_bytes", |it| Size(&mut it.spool_memory_bytes)),
        ("spool_disk_bytes", |it| Full(&mut it.spool_disk_bytes)),
        ("cached_file_bytes", |it| Size(&mut it.cached_file_bytes)),
        ("file_cache_bytes", |it| Size(&mut it.file_cache_bytes)),
        ("auth_waiting", |it| Size(&mut it.auth_waiting)),
        ("programs", |it| Size(&mut it.programs)),
        ("env_bytes", |it| Size(&mut it.env_bytes)),
        ("limit_keys", |it| Size(&mut it.limit_keys)),
    ];
}

/// Changes to the fields of a request or reply, applied in the order remove, set, add; those of all
/// levels before the first `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Replaced or created.
    pub set: Vec<(String, Template)>,
    /// Appended beside existing ones.
    pub add: Vec<(String, Template)>,
    /// Removed, names in lower case.
    pub remove: Vec<String>,
    /// Set where there is none yet; an inner level's come first.
    pub default: Vec<(String, Template)>,
}

impl FieldEdits {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        let Self {
            set,
            add,
            remove,
            default,
        } = self;
        set.is_empty() && add.is_empty() && remove.is_empty() && default.is_empty()
    }
}
