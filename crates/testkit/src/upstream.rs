//! A back end that does what a script says and remembers every byte it was sent.
//!
//! The idea: the script is a function from the request seen to steps; steps are data, so a test
//! reads like the exchange it describes. One thread a connection, one a listener.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use crate::listening::{Listening, State, lock};
use crate::message::{Ends, Head, take_body};
use crate::wait::eventually;

/// How long a connection reads before it looks whether the upstream has been stopped.
const READ_TIMEOUT: Duration = Duration::from_millis(250);

/// A request as an upstream saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Which connection it came on, counted from 0.
    pub connection: usize,
    /// Its place on that connection, counted from 0.
    pub nth: usize,
    /// Its head.
    pub head: Head,
    /// As much of the body as was read.
    pub body: Vec<u8>,
    /// Whether the body came to its end.
    pub complete: bool,
}

/// What an upstream does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Reads the request body to its end.
    ReadBody,
    /// Reads at least this many bytes of the body as they are on the wire.
    ReadSome(usize),
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes a piece at a time with a pause before each.
    Drip(Vec<u8>, usize, Duration),
    /// Does nothing until the peer closes or this much time has passed.
    Idle(Duration),
    /// Gives back whatever comes until the peer finishes, as a tunnel's far end.
    Echo,
    /// Closes.
    Close,
}

impl Step {
    /// A complete reply with a length.
    #[must_use]
    pub fn reply(status: u16, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = format!(
            "HTTP/1.1 {status} Scripted\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend(body);
        Self::Send(bytes)
    }
}

type Script = dyn Fn(&Seen) -> Vec<Step> + Send + Sync;

/// A listening upstream; stops when dropped.
pub struct ScriptedUpstream {
    listening: Listening,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    requests: Mutex<Vec<Seen>>,
    /// Every byte of every connection, by connection.
    received: Mutex<Vec<Vec<u8>>>,
}

impl ScriptedUpstream {
    /// Listens on a free port; `script` is asked once per request, when its head has been read.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start(script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), script)
    }

    /// Answers a request with `steps`, but not before the test has met it twice at the barrier:
    /// when the request is there, and when it may be answered.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn held(steps: Vec<Step>) -> (Self, Arc<Barrier>) {
        let turn = Arc::new(Barrier::new(2));
        let ours = Arc::clone(&turn);
        let upstream = Self::start(move |_| {
            ours.wait();
            ours.wait();
            steps.clone()
        });
        (upstream, turn)
    }

    /// As [`Self::start`], at this address.
    ///
    /// # Panics
    /// When it cannot listen there.
    #[must_use]
    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            script: Box::new(script),
            requests: Mutex::default(),
            received: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let listening = Listening::start(address, move |stream, number, state| {
            let mut connection = Connection {
                stream,
                number,
                pending: Vec::new(),
                shared: Arc::clone(&serving),
                state: Arc::clone(state),
            };
            connection.serve();
        });
        Self { listening, shared }
    }

    /// Answers every request, its body read, with 200 and `body`.
    #[must_use]
    pub fn fixed(body: &'static str) -> Self {
        Self::start(move |_| vec![Step::ReadBody, Step::reply(200, body)])
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

    /// Waits until no further request has come for a while, and forgets what was seen.
    pub fn settle(&self) {
        const QUIET: Duration = Duration::from_millis(100);
        let mut last = Instant::now();
        eventually(Duration::from_secs(30), "a quiet upstream", || {
            if !self.take_seen().is_empty() {
                last = Instant::now();
            }
            (last.elapsed() > QUIET).then_some(())
        });
    }

    /// Every byte received so far, by connection.
    #[must_use]
    pub fn received(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.received).clone()
    }

    /// The requests seen since the last call.
    #[must_use]
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut lock(&self.shared.requests))
    }

    /// Waits until a request has been seen, and takes it.
    ///
    /// # Panics
    /// After half a minute without one.
    #[must_use]
    pub fn next_seen(&self) -> Seen {
        eventually(Duration::from_secs(30), "a request at the upstream", || {
            let mut requests = lock(&self.shared.requests);
            (!requests.is_empty()).then(|| requests.remove(0))
        })
    }
}

struct Connection {
    stream: TcpStream,
    number: usize,
    pending: Vec<u8>,
    shared: Arc<Shared>,
    state: Arc<State>,
}

impl Connection {
    fn serve(&mut self) {
        let _ = self.stream.set_nodelay(true);
        let _ = self.stream.set_read_timeout(Some(READ_TIMEOUT));
        for nth in 0.. {
            let Some(head) = self.read_head() else { break };
            let mut seen = Seen {
                connection: self.number,
                nth,
                head,
                body: Vec::new(),
                complete: false,
            };
            let steps = (self.shared.script)(&seen);
            let place = self.record(&seen);
            let reads_body = steps.contains(&Step::ReadBody);
            for step in steps {
                if !self.take_step(step, &mut seen, place) {
                    let _ = self.stream.shutdown(Shutdown::Both);
                    return;
                }
            }
            if !reads_body {
                self.read_body(&mut seen);
            }
        }
    }

    /// Recorded before it is answered, so that whoever has the reply also finds the record.
    fn record(&self, seen: &Seen) -> (usize, usize) {
        lock(&self.shared.requests).push(seen.clone());
        (seen.connection, seen.nth)
    }

    fn amend(&self, seen: &Seen, place: (usize, usize)) {
        let mut requests = lock(&self.shared.requests);
        if let Some(entry) = requests
            .iter_mut()
            .find(|entry| (entry.connection, entry.nth) == place)
        {
            entry.body.clone_from(&seen.body);
            entry.complete = seen.complete;
        }
    }

    /// Does one step; false when the connection is to end.
    fn take_step(&mut self, step: Step, seen: &mut Seen, place: (usize, usize)) -> bool {
        match step {
            Step::ReadBody => {
                let complete = self.read_body(seen);
                self.amend(seen, place);
                complete
            }
            Step::ReadSome(count) => {
                while self.pending.len() < count && self.fill() {}
                seen.body.clone_from(&self.pending);
                self.amend(seen, place);
                true
            }
            Step::Send(bytes) => self.stream.write_all(&bytes).is_ok(),
            Step::Drip(bytes, piece, pause) => bytes.chunks(piece).all(|piece| {
                std::thread::sleep(pause);
                self.stream.write_all(piece).is_ok()
            }),
            Step::Idle(limit) => {
                self.idle(limit);
                true
            }
            Step::Echo => self.echo(),
            Step::Close => false,
        }
    }

    fn idle(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.state.is_stopping() {
                break;
            }
            let _ = self.stream.set_read_timeout(Some(left.min(READ_TIMEOUT)));
            if !self.fill_once() {
                break;
            }
        }
        let _ = self.stream.set_read_timeout(Some(READ_TIMEOUT));
    }

    fn echo(&mut self) -> bool {
        loop {
            let bytes = std::mem::take(&mut self.pending);
            if self.stream.write_all(&bytes).is_err() || !self.fill() {
                return false;
            }
        }
    }

    fn read_head(&mut self) -> Option<Head> {
        loop {
            if let Some(head) = Head::take(&self.pending) {
                self.pending.drain(..head.bytes.len());
                return Some(head);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn read_body(&mut self, seen: &mut Seen) -> bool {
        if seen.complete {
            return true;
        }
        let ends = seen.head.ends(Ends::AtOnce);
        loop {
            let Some(taken) = take_body(&self.pending, ends) else {
                return false;
            };
            seen.body = taken.body;
            if taken.complete {
                self.pending.drain(..taken.consumed);
                seen.complete = true;
                return true;
            }
            if !self.fill() {
                return false;
            }
        }
    }

    /// Reads until something came; false when the peer is gone or the upstream stops.
    fn fill(&mut self) -> bool {
        let before = self.pending.len();
        while self.pending.len() == before {
            if self.state.is_stopping() || !self.fill_once() {
                return false;
            }
        }
        true
    }

    /// Reads at most once, for a quarter of a second; false when the peer is gone.
    fn fill_once(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.pending.extend(&buffer[..count]);
                let mut received = lock(&self.shared.received);
                let connections = received.len().max(self.number + 1);
                received.resize(connections, Vec::new());
                received[self.number].extend(&buffer[..count]);
                true
            }
            Err(error) => matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Body, Outcome, RawClient, reply};

    #[test]
    fn records_what_it_saw_and_answers_by_script() {
        let upstream = ScriptedUpstream::fixed("hello");
        let mut client = RawClient::connect(upstream.address());
        let request = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        client.send_bytewise(request);
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, &b"hello"[..])
        );
        client.send_split(request, &[1, 20]);
        assert!(reply(client.read_reply(Body::Framed)).complete);
        let seen = upstream.take_seen();
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[1].connection, seen[1].nth), (0, 1));
        assert_eq!(seen[1].body, b"abc");
        assert_eq!(upstream.received()[0], [&request[..], request].concat());
    }

    #[test]
    fn a_reply_cut_short_is_not_complete() {
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec();
        let upstream = ScriptedUpstream::start(move |_| vec![Step::Send(cut.clone()), Step::Close]);
        let mut client = RawClient::connect(upstream.address());
        let answer = reply(client.ask(b"GET / HTTP/1.1\r\n\r\n"));
        assert!(!answer.complete);
        assert_eq!(answer.body, b"half");
        assert_eq!(client.read_reply(Body::Framed), Outcome::Eof);
    }
}
