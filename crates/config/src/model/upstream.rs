//! `[upstreams.NAME]`: groups of servers that requests are forwarded to.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::limit::Limit;
use super::tls::CertificateFiles;

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
    /// How a connection begins by saying for whom it is made. Default not at all.
    pub proxy_protocol: ProxyVersion,
    /// How TLS is spoken to its servers; `None` is plain.
    pub tls: Option<Arc<UpstreamTls>>,
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

/// TLS to an upstream's servers.
#[derive(Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Certificates of the authorities that are believed, in PEM, read when the configuration was
    /// loaded.
    pub authorities: Arc<[u8]>,
    /// Their file; `None` for those that the machine trusts.
    pub file: Option<PathBuf>,
    /// The name the servers must have; `None` is the host of each one's address.
    pub name: Option<String>,
    /// Whether they have to prove it.
    pub verify: bool,
    /// The files of the certificate that they are shown, where they ask for one.
    pub certificate: Option<CertificateFiles>,
}

/// How a connection says for which client it is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Not at all.
    #[default]
    Off,
    /// By a header of version 1 of the PROXY protocol.
    V1,
    /// By one of version 2, with the request's id.
    V2,
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
