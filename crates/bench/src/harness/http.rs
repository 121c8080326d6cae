//! The little HTTP a measuring client needs: GET, and replies with a Content-Length.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::process::Process;
use super::progress;
use crate::error::Error;

/// Longest wait for one reply outside the measured slices.
const REPLY_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for a server to come up.
const START_WAIT: Duration = Duration::from_secs(20);

/// The bytes of a keep-alive GET.
pub(crate) fn request(port: u16, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").into_bytes()
}

/// A reply as far as a client must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: usize,
}

/// Reads the head of a reply; `None` while it is incomplete or without a length.
pub(crate) fn scan(input: &[u8]) -> Option<Reply> {
    let head_bytes = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(input.get(..head_bytes)?).ok()?;
    let status = head.get(9..12)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    Some(Reply {
        status,
        head_bytes,
        body_bytes: length?,
    })
}

/// A kept connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    port: u16,
}

impl Connection {
    /// Connects to a server on this machine.
    pub(crate) fn open(port: u16) -> std::io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address(port), REPLY_WAIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_WAIT))?;
        stream.set_write_timeout(Some(REPLY_WAIT))?;
        Ok(Connection { stream, port })
    }

    /// Asks for `path` and reads the whole reply.
    pub(crate) fn get(&mut self, path: &str) -> std::io::Result<(u16, Vec<u8>)> {
        self.stream.write_all(&request(self.port, path))?;
        let mut input = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some(reply) = scan(&input) {
                let end = reply.head_bytes + reply.body_bytes;
                if let Some(body) = input.get(reply.head_bytes..end) {
                    return Ok((reply.status, body.to_vec()));
                }
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => input.extend(chunk.iter().take(n)),
            }
        }
    }
}

/// One GET on a connection of its own.
pub(crate) fn get(port: u16, path: &str) -> std::io::Result<(u16, Vec<u8>)> {
    Connection::open(port)?.get(path)
}

/// Waits until `path` is answered with 200; a server that ends instead is an error with its output.
pub(crate) fn wait_until_up(
    port: u16,
    path: &str,
    process: &mut Process,
    output: &Path,
) -> Result<(), Error> {
    let what = format!("{path} on port {port}");
    wait(&what, process, output, || match get(port, path) {
        Ok((200, _)) => Ok(()),
        Ok((status, _)) => Err(format!("status {status}")),
        Err(error) => Err(error.to_string()),
    })
}

/// Waits until somebody listens on a Unix socket.
pub(crate) fn wait_until_listening(
    socket: &Path,
    process: &mut Process,
    output: &Path,
) -> Result<(), Error> {
    wait(&socket.display().to_string(), process, output, || {
        let connected = UnixStream::connect(socket);
        connected.map(drop).map_err(|error| error.to_string())
    })
}

fn wait(
    what: &str,
    process: &mut Process,
    output: &Path,
    probe: impl Fn() -> Result<(), String>,
) -> Result<(), Error> {
    let deadline = Instant::now() + START_WAIT;
    let mut last = String::from("no connection");
    while Instant::now() < deadline && !process.has_ended() {
        progress::check()?;
        match probe() {
            Ok(()) => return Ok(()),
            Err(said) => last = said,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = std::fs::read_to_string(output).unwrap_or_default();
    let tail: Vec<&str> = said.lines().rev().take(5).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    Err(Error::new(
        format!("wait for {what}"),
        format!("{last}; the server said: {}", tail.join(" | ")),
    ))
}

/// A port of this machine.
pub(crate) fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_scanned_once_its_head_is_whole() {
        let text = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 13\r\n\r\nhello";
        assert_eq!(
            scan(text),
            Some(Reply {
                status: 200,
                head_bytes: 50,
                body_bytes: 13
            })
        );
        assert_eq!(scan(&text[..49]), None);
        assert_eq!(scan(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
