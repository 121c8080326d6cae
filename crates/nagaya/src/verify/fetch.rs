//! One request over a connection of its own, and the whole reply.
//!
//! The idea: no connection is kept and nothing is pipelined, so that a reply says nothing of the one
//! before it. Everything is bounded: waits, the head, and how much of a body is kept. Not here: TLS;
//! the servers that are compared are asked on plain ports.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use wire::{BodyCaps, BodyDecoder, Fields, HeadCaps, Method, ReplyHead};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a whole exchange may take.
const EXCHANGE: Duration = Duration::from_secs(60);
/// Bytes of a body that are read and compared.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Heads before the reply's own (100, 103).
const INTERIM_MAX: usize = 8;
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// What is asked of both servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) host: String,
    pub(super) target: String,
    pub(super) is_head: bool,
}

/// What a server answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) body: Vec<u8>,
    /// Until all of it was there.
    pub(super) took: Duration,
}

/// Asks a server, with these field lines more.
///
/// # Errors
/// Why there is no whole reply.
pub(super) fn fetch(server: SocketAddr, question: &Question, more: &str) -> io::Result<Reply> {
    let begun = Instant::now();
    let until = begun + EXCHANGE;
    let mut stream = TcpStream::connect_timeout(&server, CONNECT)?;
    let method = if question.is_head { "HEAD" } else { "GET" };
    let Question { host, target, .. } = question;
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n{more}Connection: close\r\n\r\n"
    );
    stream.set_write_timeout(Some(EXCHANGE))?;
    stream.write_all(request.as_bytes())?;
    let mut input = Input {
        stream,
        until,
        bytes: Vec::new(),
        has_ended: false,
    };
    let asked = if question.is_head {
        Method::Head
    } else {
        Method::Get
    };
    let head = input.head(asked)?;
    let body = input.body(&head)?;
    Ok(Reply {
        status: head.status,
        fields: head.fields,
        body,
        took: begun.elapsed(),
    })
}

/// What has come of a reply and was not looked at yet.
struct Input {
    stream: TcpStream,
    until: Instant,
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Input {
    fn read(&mut self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut bytes = [0; READ_BYTES];
        let count = self.stream.read(&mut bytes)?;
        self.has_ended = count == 0;
        self.bytes
            .extend_from_slice(bytes.get(..count).unwrap_or_default());
        Ok(())
    }

    fn head(&mut self, asked: Method) -> io::Result<ReplyHead> {
        let mut head = ReplyHead::default();
        for _ in 0..INTERIM_MAX {
            let bytes = loop {
                let parsed = head.parse(&self.bytes, asked, &HeadCaps::default());
                match parsed.map_err(|refusal| io::Error::other(refusal.reason))? {
                    Some(bytes) => break bytes,
                    None if self.has_ended => return Err(ErrorKind::UnexpectedEof.into()),
                    None => self.read()?,
                }
            };
            self.bytes.drain(..bytes);
            if head.status >= 200 {
                return Ok(head);
            }
        }
        Err(io::Error::other("more than 8 interim replies"))
    }

    /// The body, of a long one the beginning.
    fn body(&mut self, head: &ReplyHead) -> io::Result<Vec<u8>> {
        let mut decoder = BodyDecoder::for_reply(head.framing, &BodyCaps::default());
        let mut body = Vec::new();
        while !decoder.is_done() && body.len() < BODY_BYTES_MAX {
            let decoded = decoder.decode(&self.bytes);
            let decoded = decoded.map_err(|refusal| io::Error::other(refusal.reason))?;
            body.extend_from_slice(decoded.data);
            let consumed = decoded.consumed;
            self.bytes.drain(..consumed);
            if consumed == 0 && self.has_ended {
                let end = decoder.eof();
                end.map_err(|refusal| io::Error::other(refusal.reason))?;
            } else if consumed == 0 {
                self.read()?;
            }
        }
        Ok(body)
    }
}
