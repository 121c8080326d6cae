//! What a load came to: counts and histograms, mergeable across threads and slices.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

/// What a load came to. Requests of the warm-up are in `warm_up` alone.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// When recording began.
    pub started: SystemTime,
    /// How long was recorded.
    pub recorded: Duration,
    /// What was left out at the start.
    pub warm_up: LeftOut,
    /// Exchanges that ended with a whole reply.
    pub completed: u64,
    /// Whole replies with a status from 200 to 399, within the plan's deadline.
    pub good: u64,
    /// Exchanges counted as failed by `Judge`, among the completed.
    pub judged_failed: u64,
    /// Exchanges over a connection that had served another.
    pub on_kept_connections: u64,
    /// Exchanges after which the server let the connection be kept.
    pub kept: u64,
    /// Handshakes of TLS that were completed while recording.
    pub handshakes: Handshakes,
    /// Statuses of whole replies, each with its count.
    pub statuses: BTreeMap<u16, u64>,
    /// Exchanges without a whole reply.
    pub errors: Errors,
    /// Bytes received, heads included, after TLS.
    pub received_bytes: u64,
    /// Bytes of bodies received.
    pub body_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Times of exchanges.
    pub times: Times,
    /// Whole replies by request, in the order of the plan.
    pub by_request: Vec<ByRequest>,
    /// Tenths of a second since recording began; at most 36,000, later ones in the last.
    pub timeline: Vec<Interval>,
    /// How the open loop kept to its schedule.
    pub schedule: Schedule,
    /// CPU time of the generator's threads while recording.
    pub generator_cpu: Duration,
    /// The busiest thread's share of its time, 0 to 1.
    pub generator_busy: f64,
    /// What the first whole reply said.
    pub first: Option<FirstReply>,
    /// The first failure of each class, in words.
    pub first_failures: Vec<Failure>,
    /// Exchanges under way when a closed loop ended or somebody ended the load; counted nowhere
    /// else.
    pub cut: u64,
    /// Each exchange, where asked for.
    pub each: Vec<Exchange>,
    /// Whether somebody ended the load early.
    pub interrupted: bool,
}

/// Requests of the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct LeftOut {
    /// How long it took.
    #[serde(rename = "seconds", serialize_with = "crate::seconds::seconds")]
    pub time: Duration,
    /// Whole replies in it.
    pub completed: u64,
    /// Whether the rate stood still in the end; `None` where that was not asked for.
    pub steady: Option<bool>,
}

/// Handshakes of TLS that were completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// Those that agreed on all anew, the server's signature included.
    pub full: u64,
    /// Those that took up a session.
    pub resumed: u64,
}

impl Handshakes {
    /// Adds others.
    pub fn add(&mut self, other: Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
    }
}

/// Exchanges without a whole reply, by what went wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Errors {
    /// No connection: refused, unreachable, no local port.
    pub connect: u64,
    /// TLS did not come about.
    pub tls: u64,
    /// Reset while sending or receiving.
    pub reset: u64,
    /// Ended before the reply was whole.
    pub closed: u64,
    /// Nothing came for the plan's timeout.
    pub timeout: u64,
    /// A reply that is no HTTP, or whose framing cannot be trusted.
    pub framing: u64,
    /// Any other failure of sending.
    pub write: u64,
}

/// A failure, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its name in [`Errors::named`].
    pub class: &'static str,
    /// The system's number for it, where it was the system's.
    pub errno: Option<i32>,
    /// What was being done, to what, and why it failed.
    pub text: String,
}

/// A series of times.
#[derive(Debug, Clone)]
pub struct Series {
    /// In microseconds, three significant digits, at most an hour.
    pub histogram: Histogram<u64>,
    /// Sum, for the exact mean.
    pub sum_us: u128,
    /// Sum of squares, for the exact deviation.
    pub squares_us: u128,
    /// Exact extremes; 0 where there is none.
    pub min_us: u64,
    /// See `min_us`.
    pub max_us: u64,
}

/// Times of whole exchanges.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Connecting, TLS included; 0 on a kept connection.
    pub connect: Series,
    /// From the last byte of the request to the first of the reply.
    pub waiting: Series,
    /// From the connection being there to the last byte of the reply.
    pub processing: Series,
    /// From the actual start (connect or send) to the last byte: what the server took.
    pub service: Series,
    /// From the due instant to the last byte: what a user would have waited. In a closed loop the
    /// same as `service`.
    pub response: Series,
    /// `response` of replies with a status from 200 to 399: whom the server let in.
    pub admitted: Series,
    /// `response` of 429 and 503: whom it sent away.
    pub refused: Series,
}

/// Whole replies of one request of the plan.
#[derive(Debug, Clone)]
pub struct ByRequest {
    /// Its label.
    pub label: String,
    /// Whole replies.
    pub completed: u64,
    /// Statuses outside 200 to 399, and exchanges without a whole reply.
    pub failed: u64,
    /// Of these, exchanges without a whole reply.
    pub lost: u64,
    /// Whole replies with a status from 200 to 399, within the plan's deadline.
    pub good: u64,
    /// From the due instant to the last byte.
    pub response: Series,
    /// The same of replies with a status from 200 to 399.
    pub admitted: Series,
}

/// A tenth of a second.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Interval {
    /// Whole replies.
    pub completed: u64,
    /// Failures of any kind.
    pub failed: u64,
    /// Whole replies with a status from 200 to 399, within the plan's deadline. Not in the JSON.
    #[serde(skip)]
    pub good: u64,
    /// Median of the response times of those, by their end.
    pub p50_us: u64,
    /// 99th of a hundred.
    pub p99_us: u64,
    /// Longest.
    pub max_us: u64,
}

/// How the open loop kept to its schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Schedule {
    /// Requests that were due while recording; 0 in a closed loop.
    pub due: u64,
    /// Sent more than a millisecond late, for want of a free connection or of the generator's CPU.
    pub late: u64,
    /// Of these, late although a connection was free: the generator's own doing.
    pub late_by_generator: u64,
    /// Never sent, for the load was over.
    pub unsent: u64,
    /// 99th of a hundred of the generator's own lateness.
    pub generator_p99_us: u64,
}

/// What the first whole reply said.
#[derive(Debug, Clone, Default)]
pub struct FirstReply {
    /// `Server`.
    pub server: String,
    /// Length of the body.
    pub body_bytes: u64,
    /// Version, cipher suite and the like, where the connection has TLS.
    pub tls: Option<TlsFacts>,
    /// Status.
    pub status: u16,
    /// Streams that the server takes on a connection, where it says so in HTTP/2.
    pub streams_max: Option<usize>,
}

/// What TLS agreed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// `TLSv1.3`.
    pub version: String,
    /// `TLS_AES_256_GCM_SHA384`.
    pub suite: String,
    /// Bits of the server's public key.
    pub server_key_bits: u32,
    /// Bits of the cipher.
    pub cipher_bits: u32,
    /// The temporary key, `X25519 253 bits`.
    pub temporary_key: Option<String>,
}

/// One exchange.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exchange {
    /// Microseconds of the start since the load began.
    pub start_us: u64,
    /// Connecting.
    pub connect_us: u64,
    /// All of it.
    pub total_us: u64,
    /// From the request's last byte to the reply's first.
    pub waiting_us: u64,
    /// Index of the request in the plan.
    pub request: u32,
    /// Status.
    pub status: u16,
}
