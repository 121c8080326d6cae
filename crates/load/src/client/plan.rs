//! What a load consists of: decided before the first byte is sent, and never changed after it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Most requests of a plan: each has a histogram in every thread.
pub const REQUESTS_MAX: usize = 1_000;
/// Digits of a number in a request; leading ones are noughts.
pub const NUMBER_DIGITS: usize = 8;
/// Most connections, or streams of all of them in HTTP/2.
pub const CONNECTIONS_MAX: usize = 100_000;
/// Most threads.
pub const THREADS_MAX: usize = 256;
/// Most tenths of a second in a timeline.
pub const TIMELINE_MAX: usize = 36_000;

/// A load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is asked for; at least one.
    pub requests: Vec<Request>,
    /// How servers are spoken to.
    pub protocol: Protocol,
    /// Connections, all endpoints together.
    pub connections: usize,
    /// Threads, each with its own event loop and its share of the connections.
    pub threads: usize,
    /// Cores the threads are pinned to, in turn; empty leaves it to the kernel.
    pub cores: Vec<usize>,
    /// When requests are sent.
    pub pace: Pace,
    /// When the load ends.
    pub end: End,
    /// How connections begin.
    pub opening: Opening,
    /// What becomes of a connection after a reply.
    pub reuse: Reuse,
    /// What is not recorded at the start.
    pub warm_up: WarmUp,
    /// Longest wait for a connection or for the next byte of a reply. A whole exchange may take
    /// ten times as long.
    pub timeout: Duration,
    /// Which replies are failures.
    pub judge: Judge,
    /// From the due instant: a reply later than this is no good one, whatever its status.
    pub deadline: Option<Duration>,
    /// Whether each exchange is kept, beside the histograms. Memory grows with it.
    pub keep: Keep,
    /// Settings of the sockets.
    pub socket: SocketOptions,
}

impl Plan {
    /// A closed loop over one connection in one thread, for ten seconds, everything recorded.
    #[must_use]
    pub fn new(requests: Vec<Request>) -> Plan {
        Plan {
            requests,
            protocol: Protocol::Http1,
            connections: 1,
            threads: 1,
            cores: Vec::new(),
            pace: Pace::Closed,
            end: End {
                after: Some(Duration::from_secs(10)),
                requests: None,
            },
            opening: Opening::AllAtOnce,
            reuse: Reuse::Keep,
            warm_up: WarmUp::None,
            timeout: Duration::from_secs(30),
            judge: Judge::Status,
            deadline: None,
            keep: Keep::Histograms,
            socket: SocketOptions::default(),
        }
    }
}

/// How servers are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1, as the bytes of the requests say.
    Http1,
    /// HTTP/2: over TLS by ALPN, else by prior knowledge. What the bytes say is sent in its frames.
    Http2 {
        /// Requests at a time on a connection: a closed loop asks again on each.
        streams: usize,
    },
}

/// A request, its bytes made once.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where it goes.
    pub endpoint: Endpoint,
    /// Head and body, as sent.
    pub bytes: Vec<u8>,
    /// A number among the bytes that is another each time.
    pub numbered: Option<Numbered>,
    /// How many of them are the body's.
    pub body_bytes: usize,
    /// Share among the requests.
    pub weight: u32,
    /// Whether the reply has a body at all.
    pub reply: ReplyTo,
    /// After so long its client hangs up, whatever has come; `None` leaves it to the timeout.
    pub patience: Option<Duration>,
    /// What reports call it.
    pub label: String,
}

/// Where a number stands in a request's bytes, and which ones come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// The first of its [`NUMBER_DIGITS`] bytes.
    pub at: usize,
    /// Which.
    pub numbers: Numbers,
}

/// Which numbers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// One after the other, begun anywhere: none twice.
    Rising,
    /// So many, from 0; each as often as the inverse of its place says, about (Zipf's law).
    Zipf(u32),
}

/// What the method says of the reply's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyTo {
    /// HEAD: never a body, whatever the head says.
    Head,
    /// Any other.
    Other,
}

/// A server, its name looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address.
    pub address: Address,
    /// The name TLS asks for; `None` for plain HTTP.
    pub tls: Option<Tls>,
}

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A socket of this machine.
    Unix(PathBuf),
}

/// TLS settings of an endpoint. Certificates are not checked: a load goes to one's own servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The name asked for, also what is sent as SNI.
    pub name: String,
    /// Further names; every connection asks for another of all of them.
    pub more_names: Vec<String>,
    /// Whether the name is sent.
    pub sni: bool,
    /// Versions offered; empty means all that are known.
    pub versions: Vec<TlsVersion>,
    /// Cipher suites offered, by their standard names; empty means all that are known.
    pub suites: Vec<String>,
    /// Groups of the key exchange offered, by their standard names; empty means all that are
    /// known.
    pub groups: Vec<String>,
    /// PEM file with a client's certificate and key.
    pub identity: Option<PathBuf>,
    /// Whether a connection takes up the session of one before it.
    pub resume: TlsResume,
}

impl Tls {
    /// TLS to a server of this name, everything else as this program prefers it.
    #[must_use]
    pub fn to(name: &str) -> Tls {
        Tls {
            name: name.to_owned(),
            more_names: Vec::new(),
            sni: true,
            versions: Vec::new(),
            suites: Vec::new(),
            groups: Vec::new(),
            identity: None,
            resume: TlsResume::Never,
        }
    }
}

/// Whether handshakes are full or short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsResume {
    /// Always full: many people's browsers have no session in common.
    Never,
    /// Short wherever the server has given a ticket or a session's number that is still unused.
    Always,
}

/// Versions of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    V12,
    /// RFC 8446.
    V13,
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Closed loop: each connection sends its next request when the last one has ended.
    Closed,
    /// Open loop: requests are due at instants fixed beforehand, whatever the server does.
    /// Latency runs from the due instant.
    Open {
        /// Requests per second in the end.
        per_second: f64,
        /// Gaps between them.
        arrivals: Arrivals,
        /// Time over which the rate grows from nothing, in a straight line.
        ramp: Duration,
    },
}

/// Gaps between requests of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential gaps, as from many independent people; from this seed.
    Poisson(u64),
    /// Equal gaps.
    Constant,
    /// As from many independent people, six times as many of them in the first tenth of each
    /// second as in the rest of it; from this seed. The rate is the mean of both.
    Bursts(u64),
}

/// When the load ends; whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Time of sending, warm-up included.
    pub after: Option<Duration>,
    /// Requests, warm-up included.
    pub requests: Option<u64>,
}

/// How connections begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// All at once.
    AllAtOnce,
    /// The first runs alone until the head of its first reply is there, as ApacheBench does.
    FirstAlone,
    /// Spread evenly over a time.
    Ramp(Duration),
}

/// What becomes of a connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Kept wherever HTTP allows it.
    Keep,
    /// Closed after each exchange, when the server has closed it or the reply is whole.
    Close,
    /// Kept for so many requests.
    Requests(u32),
}

/// What is not recorded at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    /// Everything is recorded.
    None,
    /// So long. Connections go on with what they were doing: nothing is drained.
    For(Duration),
    /// Until the rate of replies stands still, at most so long.
    UntilSteady(Duration),
}

/// Which replies are failures, beside broken ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Statuses outside 200 to 399.
    Status,
    /// Bodies of another length than the first, as ApacheBench does. Any status is fine.
    SameLength,
    /// None.
    Nothing,
}

/// Whether each exchange is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Histograms and counts alone: memory is bounded.
    Histograms,
    /// Each exchange as well, so many at most.
    Each(usize),
}

/// Settings of the sockets; the kernel's own where there is none.
#[derive(Debug, Clone, Default)]
pub struct SocketOptions {
    /// Addresses to connect from, in turn by connection.
    pub local: Vec<std::net::IpAddr>,
    /// Send and receive buffer.
    pub buffer_bytes: Option<usize>,
}
