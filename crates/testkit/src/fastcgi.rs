//! A FastCGI responder that does what a script says and remembers what it was asked.
//!
//! The idea: what it sends is bytes, records included, so that it can say anything a responder may
//! not. It reads records the naive way, with no code of the product's. One thread a connection,
//! one request at a time, as php-fpm's processes have it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::listening::{Listening, State, lock};
use crate::upstream::Step;
use crate::wait::eventually;

/// How long a connection reads before it looks whether the responder has been stopped.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// Types of records.
#[allow(missing_docs, reason = "names of the specification")]
pub mod kind {
    pub const BEGIN: u8 = 1;
    pub const ABORT: u8 = 2;
    pub const END: u8 = 3;
    pub const PARAMS: u8 = 4;
    pub const STDIN: u8 = 5;
    pub const STDOUT: u8 = 6;
    pub const STDERR: u8 = 7;
}

/// A request as a responder saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// Which connection it came on, counted from 0.
    pub connection: usize,
    /// Its place on that connection, counted from 0.
    pub nth: usize,
    /// Whether the connection is to be kept.
    pub keep: bool,
    /// Names and values in order.
    pub params: Vec<(String, String)>,
    /// The body.
    pub stdin: Vec<u8>,
    /// Every record: its type and the length of its content.
    pub records: Vec<(u8, usize)>,
}

impl Call {
    /// The value of a variable.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A record of a reply under the usual id.
///
/// # Panics
/// When the content is too long for one.
#[must_use]
pub fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    record_of(1, kind, 1, content, padding)
}

/// A record of any version and id.
///
/// # Panics
/// When the content is too long for one.
#[must_use]
pub fn record_of(version: u8, kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let length = u16::try_from(content.len())
        .expect("content that fits")
        .to_be_bytes();
    let id = id.to_be_bytes();
    let mut record = vec![
        version, kind, id[0], id[1], length[0], length[1], padding, 0,
    ];
    record.extend_from_slice(content);
    record.resize(record.len() + usize::from(padding), b'P');
    record
}

/// The record that ends a reply.
#[must_use]
pub fn end(protocol_status: u8) -> Vec<u8> {
    record(kind::END, &[0, 0, 0, 0, protocol_status, 0, 0, 0], 0)
}

/// A whole reply: what the program prints, then its end.
#[must_use]
pub fn printed(output: impl AsRef<[u8]>) -> Vec<u8> {
    let pieces = output.as_ref().chunks(65_535);
    let mut bytes: Vec<u8> = pieces
        .flat_map(|piece| record(kind::STDOUT, piece, 0))
        .collect();
    bytes.extend(end(0));
    bytes
}

/// A listening responder; stops when dropped.
pub struct FastCgiResponder {
    listening: Listening,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl FastCgiResponder {
    /// Listens on a free port; `script` is asked once per request, when it has come whole. Of the
    /// steps `Send`, `Drip`, `Idle` and `Close` make sense.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start(script: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let seen = Arc::clone(&calls);
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listening = Listening::start(address, move |stream, number, state| {
            let mut connection = Connection {
                stream,
                pending: Vec::new(),
                state,
            };
            connection.serve(number, &seen, &script);
        });
        Self { listening, calls }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.listening.connections()
    }

    /// Connections that have not ended yet.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.listening.open_connections()
    }

    /// The requests seen since the last call.
    #[must_use]
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut lock(&self.calls))
    }

    /// Waits until a request has been seen, and takes it.
    ///
    /// # Panics
    /// After half a minute without one.
    #[must_use]
    pub fn next_call(&self) -> Call {
        eventually(
            Duration::from_secs(30),
            "a request at the responder",
            || {
                let mut calls = lock(&self.calls);
                (!calls.is_empty()).then(|| calls.remove(0))
            },
        )
    }
}

struct Connection<'a> {
    stream: TcpStream,
    pending: Vec<u8>,
    state: &'a State,
}

impl Connection<'_> {
    fn serve(
        &mut self,
        connection: usize,
        calls: &Mutex<Vec<Call>>,
        script: &impl Fn(&Call) -> Vec<Step>,
    ) {
        let _ = self.stream.set_nodelay(true);
        let _ = self.stream.set_read_timeout(Some(READ_TIMEOUT));
        for nth in 0.. {
            let Some(mut call) = self.read_call() else {
                return;
            };
            (call.connection, call.nth) = (connection, nth);
            lock(calls).push(call.clone());
            for step in script(&call) {
                if !self.take_step(step) {
                    let _ = self.stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
    }

    /// Does one step; false when the connection is to end.
    fn take_step(&mut self, step: Step) -> bool {
        match step {
            Step::Send(bytes) => self.stream.write_all(&bytes).is_ok(),
            Step::Drip(bytes, piece, pause) => bytes.chunks(piece).all(|piece| {
                std::thread::sleep(pause);
                self.stream.write_all(piece).is_ok()
            }),
            Step::Idle(limit) => {
                let until = Instant::now() + limit;
                while Instant::now() < until {
                    if !self.fill() {
                        return false;
                    }
                }
                true
            }
            _ => false,
        }
    }

    fn read_call(&mut self) -> Option<Call> {
        let (mut call, mut params) = (Call::default(), Vec::new());
        loop {
            let (kind, content) = self.read_record()?;
            call.records.push((kind, content.len()));
            match kind {
                kind::BEGIN => call.keep = content.get(2).is_some_and(|flags| flags & 1 == 1),
                kind::PARAMS if content.is_empty() => call.params = pairs(&params),
                kind::PARAMS => params.extend(content),
                kind::STDIN if content.is_empty() => return Some(call),
                kind::STDIN => call.stdin.extend(content),
                _ => return None,
            }
        }
    }

    fn read_record(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(header) = self.pending.get(..8) {
                let length = usize::from(header[4]) * 256 + usize::from(header[5]);
                let (kind, whole) = (header[1], 8 + length + usize::from(header[6]));
                if self.pending.len() >= whole {
                    let content = self.pending[8..8 + length].to_vec();
                    self.pending.drain(..whole);
                    return Some((kind, content));
                }
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Reads at most once; false when the peer is gone or the responder stops.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            _ if self.state.is_stopping() => false,
            Ok(0) => false,
            Ok(count) => {
                self.pending.extend(&buffer[..count]);
                true
            }
            Err(error) => matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ),
        }
    }
}

fn pairs(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (length(&mut bytes), length(&mut bytes)) {
        if bytes.len() < name + value {
            break;
        }
        let (pair, rest) = bytes.split_at(name + value);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        pairs.push((text(&pair[..name]), text(&pair[name..])));
        bytes = rest;
    }
    pairs
}

fn length(bytes: &mut &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let count = if first < 128 { 1 } else { 4 };
    let (length, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    let first = usize::from(first & 127);
    Some(
        length[1..]
            .iter()
            .fold(first, |sum, byte| sum * 256 + usize::from(*byte)),
    )
}
