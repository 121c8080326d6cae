//! A client that sends exactly the bytes it is given and says exactly what came back.
//!
//! The idea: nothing is added, repaired or retried. A reply, an end, a reset and silence are
//! four different outcomes, because a gateway that does the wrong one of them is wrong.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::message::{Ends, Head, take_body};

/// How long a wait lasts unless a test says otherwise: longer than a machine stands still, and less
/// than the gateway by itself gives a client for a body.
const PATIENCE: Duration = Duration::from_secs(25);

/// Receive buffer of a narrow connection.
const NARROW_BYTES: usize = 64 * 1024;

/// What a read from the gateway ended in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A reply, maybe cut short: see [`Reply::complete`].
    Reply(Reply),
    /// The connection was closed without another byte.
    Eof,
    /// The connection was reset.
    Reset,
    /// Nothing (more) came before the deadline; what had come by then.
    TimedOut(Vec<u8>),
    /// Bytes that are no reply, then the end.
    Garbage(Vec<u8>),
}

/// A reply as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Status of the final reply.
    pub status: u16,
    /// Its head.
    pub head: Head,
    /// Its body, chunks put together.
    pub body: Vec<u8>,
    /// Whether the body came to the end its framing promised. One that ends with the connection
    /// is complete when the connection was closed and not reset.
    pub complete: bool,
    /// Statuses of the interim replies before it.
    pub interim: Vec<u16>,
}

impl Reply {
    /// Its body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The reply a request must have got.
///
/// # Panics
/// When there was none.
#[must_use]
#[track_caller]
pub fn reply(outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Reply(reply) => reply,
        other => panic!("a reply expected, got {other:?}"),
    }
}

/// Whether the reply to the request in question can have a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// As its fields say.
    Framed,
    /// Never: the request was HEAD, or the reply begins a tunnel.
    Never,
}

/// A connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    pending: Vec<u8>,
    /// How the stream ended, once it has.
    ended: Option<ErrorKind>,
    deadline: Duration,
}

impl RawClient {
    /// Connects; every later wait lasts at most 25 seconds.
    ///
    /// # Panics
    /// When the connection is refused.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// Connects, or says why not.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// A client on a connection that was made elsewhere.
    #[must_use]
    pub fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            pending: Vec::new(),
            ended: None,
            deadline: PATIENCE,
        }
    }

    /// Connects with a kernel that takes little while nobody reads: a slow reader as seen from
    /// the other end.
    ///
    /// # Panics
    /// When the connection is refused.
    #[must_use]
    pub fn connect_narrow(address: SocketAddr) -> Self {
        use rustix::net::{self, AddressFamily, SocketType};
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        net::sockopt::set_socket_recv_buffer_size(&socket, NARROW_BYTES).expect("an option");
        net::connect(&socket, &address)
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::over(TcpStream::from(socket))
    }

    /// Sets how long a later read may take in all.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends `bytes` in one go. An error is not reported here: a gateway may have answered and
    /// closed already, and the next read tells.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends `bytes` one at a time, each in a segment of its own.
    pub fn send_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send(std::slice::from_ref(byte));
            std::thread::yield_now();
        }
    }

    /// Sends `bytes` in pieces that end at the given points.
    pub fn send_split(&mut self, bytes: &[u8], points: &[usize]) {
        let mut from = 0;
        for &point in points.iter().chain([&bytes.len()]) {
            self.send(&bytes[from..point]);
            std::thread::yield_now();
            from = point;
        }
    }

    /// Says that nothing more will be sent, while still reading.
    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends `bytes` and reads the reply.
    pub fn ask(&mut self, bytes: &[u8]) -> Outcome {
        self.send(bytes);
        self.read_reply(Body::Framed)
    }

    /// Reads one reply, its interim replies included.
    pub fn read_reply(&mut self, body: Body) -> Outcome {
        let until = Instant::now() + self.deadline;
        let mut interim = Vec::new();
        loop {
            let Some(head) = self.read_head(until) else {
                return self.no_head();
            };
            let Some(status) = status_of(&head.line) else {
                return Outcome::Garbage(head.bytes);
            };
            if (100..200).contains(&status) && status != 101 {
                interim.push(status);
                continue;
            }
            let ends = match body {
                Body::Never => Ends::AtOnce,
                Body::Framed if matches!(status, 101 | 204 | 304) => Ends::AtOnce,
                Body::Framed => head.ends(Ends::WithConnection),
            };
            let (body, complete) = self.read_body(ends, until);
            return Outcome::Reply(Reply {
                status,
                head,
                body,
                complete,
                interim,
            });
        }
    }

    /// Reads whatever comes until the connection ends; the bytes and how it ended.
    pub fn read_to_end(&mut self) -> (Vec<u8>, Outcome) {
        let until = Instant::now() + self.deadline;
        while self.fill(until) {}
        let bytes = std::mem::take(&mut self.pending);
        let end = self.end(Vec::new());
        (bytes, end)
    }

    /// Reads exactly this many bytes, or fewer when the connection ends or the deadline passes.
    pub fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        let until = Instant::now() + self.deadline;
        while self.pending.len() < count && self.fill(until) {}
        let count = count.min(self.pending.len());
        self.pending.drain(..count).collect()
    }

    /// Reads until these bytes have come, and leaves them to a later read.
    ///
    /// # Panics
    /// When the connection ends or the deadline passes first.
    pub fn await_bytes(&mut self, part: &[u8]) {
        let until = Instant::now() + self.deadline;
        while !self.pending.windows(part.len()).any(|bytes| bytes == part) {
            assert!(
                self.fill(until),
                "no `{}` in `{}`",
                part.escape_ascii(),
                self.pending.escape_ascii()
            );
        }
    }

    /// The local end's address, by which a log names this connection.
    ///
    /// # Panics
    /// When the socket has none.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket")
    }

    fn read_head(&mut self, until: Instant) -> Option<Head> {
        loop {
            if let Some(head) = Head::take(&self.pending) {
                self.pending.drain(..head.bytes.len());
                return Some(head);
            }
            if !self.fill(until) {
                return None;
            }
        }
    }

    fn read_body(&mut self, ends: Ends, until: Instant) -> (Vec<u8>, bool) {
        loop {
            let taken = take_body(&self.pending, ends);
            if let Some(taken) = &taken
                && taken.complete
            {
                self.pending.drain(..taken.consumed);
                return (taken.body.clone(), true);
            }
            if taken.is_none() || !self.fill(until) {
                let body = taken.map(|taken| taken.body).unwrap_or_default();
                let closed = self.ended == Some(ErrorKind::UnexpectedEof);
                self.pending.clear();
                return (body, closed && ends == Ends::WithConnection);
            }
        }
    }

    fn no_head(&mut self) -> Outcome {
        let pending = std::mem::take(&mut self.pending);
        self.end(pending)
    }

    fn end(&self, pending: Vec<u8>) -> Outcome {
        match self.ended {
            None => Outcome::TimedOut(pending),
            Some(ErrorKind::UnexpectedEof) if pending.is_empty() => Outcome::Eof,
            Some(ErrorKind::UnexpectedEof) => Outcome::Garbage(pending),
            Some(_) => Outcome::Reset,
        }
    }

    /// Reads once; false when the stream has ended or the time is up.
    fn fill(&mut self, until: Instant) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let _ = self.stream.set_read_timeout(Some(left));
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ended = Some(ErrorKind::UnexpectedEof),
            Ok(count) => {
                self.pending.extend(&buffer[..count]);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => self.ended = Some(error.kind()),
        }
        false
    }
}

fn status_of(line: &str) -> Option<u16> {
    let mut words = line.split(' ');
    words
        .next()
        .filter(|version| version.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}
