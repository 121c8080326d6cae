//! One request, and the whole answer: what the check that variants answer alike looks at.
//!
//! A plain client that closes after each reply; the load has its own. What the server sends is
//! taken as it comes, up to a bound.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::generator;
use super::model::{Alike, Ask, ServiceAddress};
use load::client::{Scheme, Secured};

/// Longest wait for one reply.
const REPLY_WAIT: Duration = Duration::from_secs(30);
/// Longest reply.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What is shown of a body.
const SHOWN_CHARACTERS: usize = 60;

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Asks a server of this machine.
pub(crate) fn ask(address: ServiceAddress, ask: &Ask) -> Result<Answer, String> {
    let request = request(address.port, ask, "Connection: close\r\n");
    let (_, bytes) = exchange(address, &request, &ask.method).map_err(|e| e.to_string())?;
    parse(&bytes, &ask.method).ok_or_else(|| format!("no whole HTTP reply: {}", shown(&bytes)))
}

/// A GET of a path.
pub(crate) fn get(address: ServiceAddress, path: &str) -> Result<Answer, String> {
    let plain = Ask {
        method: "GET".into(),
        path: path.to_owned(),
        ..Ask::default()
    };
    ask(address, &plain)
}

/// What is sent; `more` are fields on top.
pub(crate) fn request(port: u16, ask: &Ask, more: &str) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n", ask.method, ask.path);
    let names = || ask.headers.iter().map(|(name, _)| name);
    let has = |wanted: &str| names().any(|name| name.eq_ignore_ascii_case(wanted));
    if !has("host") {
        head += &format!("Host: 127.0.0.1:{port}\r\n");
    }
    for (name, value) in &ask.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !ask.body.is_empty() && !has("content-length") {
        head += &format!("Content-Length: {}\r\n", ask.body.len());
    }
    if ask.numbers.is_some() {
        head = head.replace("@number@", "00000000");
    }
    [head.as_bytes(), more.as_bytes(), b"\r\n", &ask.body].concat()
}

/// How two answers differ in what has to be the same; empty where they do not.
pub(crate) fn differences(ours: &Answer, theirs: &Answer, alike: &Alike) -> Vec<String> {
    let mut found = Vec::new();
    if alike.status && ours.status != theirs.status {
        found.push(format!("status {} and {}", ours.status, theirs.status));
    }
    if alike.body && ours.body != theirs.body {
        found.push(format!(
            "body of {} bytes ({}) and of {} ({})",
            ours.body.len(),
            shown(&ours.body),
            theirs.body.len(),
            shown(&theirs.body)
        ));
    }
    for name in &alike.headers {
        let value = |answer: &Answer| {
            let field = answer.headers.iter().find(|(other, _)| other == name);
            field.map_or_else(|| "none".to_owned(), |(_, value)| format!("`{value}`"))
        };
        if value(ours) != value(theirs) {
            found.push(format!("{name} {} and {}", value(ours), value(theirs)));
        }
    }
    found
}

/// Connects, asks, and reads until the reply is whole by its own framing, or the end. The socket
/// is still open.
pub(crate) fn exchange(
    address: ServiceAddress,
    request: &[u8],
    method: &str,
) -> std::io::Result<(OwnedFd, Vec<u8>)> {
    let socket: SocketAddr = (Ipv4Addr::LOCALHOST, address.port).into();
    let mut stream = TcpStream::connect_timeout(&socket, REPLY_WAIT)?;
    stream.set_read_timeout(Some(REPLY_WAIT))?;
    stream.set_write_timeout(Some(REPLY_WAIT))?;
    match address.scheme {
        Scheme::Http => {
            let reply = converse(&mut stream, request, method)?;
            Ok((stream.into(), reply))
        }
        Scheme::Https => {
            let tls = generator::tls(1);
            let mut stream = Secured::over(stream.into(), &tls)?;
            let reply = converse(&mut stream, request, method)?;
            Ok((stream.into_socket(), reply))
        }
    }
}

fn converse(
    stream: &mut (impl Read + Write),
    request: &[u8],
    method: &str,
) -> std::io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let deadline = Instant::now() + REPLY_WAIT;
    let mut input = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(input),
            Ok(count) => input.extend(chunk.iter().take(count)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Some servers reset what they close; what came may be whole.
            Err(error) if !input.is_empty() && error.kind() == ErrorKind::ConnectionReset => {
                return Ok(input);
            }
            Err(error) => return Err(error),
        }
        let is_whole = input.len() < 1024 * 1024 && is_framed(&input, method);
        if is_whole || input.len() > REPLY_BYTES_MAX || Instant::now() > deadline {
            return Ok(input);
        }
    }
}

/// Whether a reply is whole by its own words, for servers that keep the connection all the same.
pub(crate) fn is_framed(input: &[u8], method: &str) -> bool {
    let Some(answer) = parse(input, method) else {
        return false;
    };
    method == "HEAD"
        || answer
            .headers
            .iter()
            .any(|(name, _)| name == "content-length" || name == "transfer-encoding")
}

/// Reads a reply; `None` while it is not whole.
fn parse(input: &[u8], method: &str) -> Option<Answer> {
    let end = input.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(input.get(..end)?).into_owned();
    let mut rest = input.get(end + 4..)?;
    let status: u16 = head.get(9..12)?.parse().ok()?;
    if status == 100 {
        return parse(rest, method);
    }
    let headers: Vec<(String, String)> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let value = |name: &str| {
        headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, v)| v.as_str())
    };
    let body = if method == "HEAD" || status == 204 || status == 304 {
        Vec::new()
    } else if value("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        joined_chunks(&mut rest)?
    } else if let Some(length) = value("content-length") {
        rest.get(..length.parse().ok()?)?.to_vec()
    } else {
        rest.to_vec()
    };
    Some(Answer {
        status,
        headers,
        body,
    })
}

fn joined_chunks(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let line = String::from_utf8_lossy(rest.get(..end)?).into_owned();
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        *rest = rest.get(end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        *rest = rest.get(size.checked_add(2)?..)?;
    }
}

/// The beginning of some bytes, in one line.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let start = bytes
        .get(..bytes.len().min(4 * SHOWN_CHARACTERS))
        .unwrap_or_default();
    let text = String::from_utf8_lossy(start);
    let short: String = text.chars().take(SHOWN_CHARACTERS).collect();
    let more = if bytes.len() > short.len() { "…" } else { "" };
    format!("\"{}{more}\"", short.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIKE: Alike = Alike {
        status: true,
        body: true,
        headers: Vec::new(),
        expected: None,
    };

    #[test]
    fn replies_are_read_however_they_are_framed() {
        for (reply, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Some("hi")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", None),
            ("HTTP/1.1 200 OK\r\n\r\nhi", Some("hi")),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1;x\r\ni\r\n0\r\n\r\n",
                Some("hi"),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nh",
                None,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\n\r\nhi",
                Some("hi"),
            ),
            ("nonsense", None),
            ("HTTP/1.1 2\r\n\r\n", None),
        ] {
            let seen = parse(reply.as_bytes(), "GET");
            let seen = seen.map(|answer| String::from_utf8_lossy(&answer.body).into_owned());
            assert_eq!(seen.as_deref(), body, "{reply}");
        }
    }

    #[test]
    fn differences_are_told_in_words() {
        let answer = |status, body: &str| Answer {
            status,
            headers: vec![("content-type".into(), body.into())],
            body: body.into(),
        };
        assert!(differences(&answer(200, "a"), &answer(200, "a"), &ALIKE).is_empty());
        let told = differences(&answer(200, "a"), &answer(404, "bc"), &ALIKE);
        assert_eq!(
            told,
            [
                "status 200 and 404",
                "body of 1 bytes (\"a\") and of 2 (\"bc\")"
            ]
        );
        let typed = Alike {
            headers: vec!["content-type".into()],
            body: false,
            ..ALIKE
        };
        let told = differences(&answer(200, "a"), &answer(200, "b"), &typed);
        assert_eq!(told, ["content-type `a` and `b`"]);
    }
}
