//! One request over a connection of its own, and the whole reply.
//!
//! The idea: no connection is kept and nothing is pipelined, so that a reply says nothing of the one
//! before it. Everything is bounded: waits, the head, and how much of a body is kept. Over TLS the
//! host of the question is asked for, and whoever answers is believed, for both servers are the
//! operator's own; whether the certificate is for that host is part of the reply.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::reason;
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
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

/// A server that is asked.
#[derive(Debug, Clone)]
pub(super) struct ComparedServer {
    address: SocketAddr,
    /// What is offered over TLS; `None` for plain HTTP.
    tls: Option<Arc<ClientConfig>>,
}

impl ComparedServer {
    /// The one at `HOST:PORT`, over TLS where `https://` stands before it.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn named(text: &str) -> Result<ComparedServer, String> {
        let (scheme, place) = text.split_once("://").unwrap_or(("http", text));
        let tls = match scheme {
            "http" => None,
            "https" => {
                let offered = engine::credulous_client();
                Some(Arc::new(offered.map_err(|error| error.to_string())?))
            }
            _ => return Err(format!("{text:?} is neither http:// nor https://")),
        };
        let found = place.trim_end_matches('/').to_socket_addrs();
        let found = found.map_err(|error| format!("{text:?}: {}", reason(&error)))?;
        let address = { found }.next();
        let address = address.ok_or_else(|| format!("{text:?} has no address"))?;
        Ok(ComparedServer { address, tls })
    }

    /// Whether it can be spoken with at all, asked for this host.
    ///
    /// # Errors
    /// Nobody is there, or does not speak TLS where that is asked for.
    pub(super) fn reach(&self, host: &str) -> io::Result<()> {
        TcpStream::connect_timeout(&self.address, CONNECT)?;
        let Ok(Stream::Tls(mut stream)) = Stream::open(self, host) else {
            return Ok(());
        };
        stream.sock.set_read_timeout(Some(CONNECT))?;
        let stream = &mut *stream;
        match stream.conn.complete_io(&mut stream.sock) {
            Err(error) if is_plain(&error) => Err(without_tls(error)),
            // What else goes wrong with this host's pages is a difference.
            _ => Ok(()),
        }
    }

    /// What URLs of its pages begin with.
    pub(super) fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }
}

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
    /// The URL that was asked for.
    pub(super) url: String,
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) body: Vec<u8>,
    /// Whether its certificate is for the host, in words; `None` without TLS.
    pub(super) certificate: Option<&'static str>,
    /// Until all of it was there.
    pub(super) took: Duration,
}

/// Asks a server, with these field lines more.
///
/// # Errors
/// Why there is no whole reply.
pub(super) fn fetch(server: &ComparedServer, question: &Question, more: &str) -> io::Result<Reply> {
    let begun = Instant::now();
    let Question { host, target, .. } = question;
    let mut input = Input {
        stream: Stream::open(server, host)?,
        until: begun + EXCHANGE,
        bytes: Vec::new(),
        has_ended: false,
    };
    let (method, asked) = match question.is_head {
        true => ("HEAD", Method::Head),
        false => ("GET", Method::Get),
    };
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n{more}Connection: close\r\n\r\n"
    );
    input.write(request.as_bytes()).map_err(without_tls)?;
    let head = input.head(asked).map_err(without_tls)?;
    let body = input.body(&head)?;
    Ok(Reply {
        url: format!("{}://{host}{target}", server.scheme()),
        status: head.status,
        fields: head.fields,
        body,
        certificate: input.stream.certificate(host),
        took: begun.elapsed(),
    })
}

/// Whether what came in place of a handshake is none of TLS.
fn is_plain(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

/// The same, in words.
fn without_tls(error: io::Error) -> io::Error {
    match is_plain(&error) {
        true => io::Error::other("it does not speak TLS there: give its address without https://"),
        false => error,
    }
}

/// The name of a host, without its port.
fn name_of(host: &str) -> io::Result<ServerName<'static>> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(name.to_owned()).map_err(io::Error::other)
}

/// A connection to a server.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn open(server: &ComparedServer, host: &str) -> io::Result<Stream> {
        let socket = TcpStream::connect_timeout(&server.address, CONNECT)?;
        let Some(offered) = &server.tls else {
            return Ok(Stream::Plain(socket));
        };
        let client = ClientConnection::new(Arc::clone(offered), name_of(host)?);
        let client = client.map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(client, socket))))
    }

    /// Lets nothing wait for longer than until then.
    fn wait_until(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        };
        socket.set_write_timeout(Some(left))?;
        socket.set_read_timeout(Some(left))
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(bytes),
            Stream::Tls(stream) => stream.read(bytes),
        }
    }

    /// Whether the certificate that was shown is for a host.
    fn certificate(&self, host: &str) -> Option<&'static str> {
        let Stream::Tls(stream) = self else {
            return None;
        };
        let shown = stream.conn.peer_certificates()?.first()?;
        let parsed = ParsedCertificate::try_from(shown).ok();
        let is_fine = |it| verify_server_name(&it, &name_of(host).ok()?).ok();
        Some(match parsed.and_then(is_fine) {
            Some(()) => "is for this host",
            None => "is for another host",
        })
    }
}

/// What has come of a reply and was not looked at yet.
struct Input {
    stream: Stream,
    until: Instant,
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.wait_until(self.until)?;
        match &mut self.stream {
            Stream::Plain(socket) => socket.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self) -> io::Result<()> {
        self.stream.wait_until(self.until)?;
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
