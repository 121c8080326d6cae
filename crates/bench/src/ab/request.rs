//! The request as ApacheBench sends it, byte for byte.
//!
//! HTTP/1.0, and fields in its order: connection, cookie, passwords, the body's, those given by
//! `-H`, then the usual three unless one of those took their place.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::flags::{Credentials, Flags};
use super::refusal::{Refusal, refuse_plainly};
use super::target::Target;

/// Longest head.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Longest body.
const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// What a body is where nobody says.
const BODY_TYPE: &str = "text/plain";

/// A request's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) method: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    /// Makes them.
    pub(crate) fn new(flags: &Flags, target: &Target) -> Result<Sent, Refusal> {
        let body = match &flags.body {
            Some(file) => Some(read_body(file)?),
            None => None,
        };
        let method = flags.method.clone().unwrap_or_else(|| "GET".into());
        let head = head(flags, target, &method, body.as_deref());
        if head.len() > HEAD_BYTES_MAX {
            return refuse_plainly(
                1,
                format!("the request's head is longer than {HEAD_BYTES_MAX} bytes: fewer -H"),
            );
        }
        Ok(Sent {
            method,
            head,
            body: body.unwrap_or_default(),
        })
    }
}

fn head(flags: &Flags, target: &Target, method: &str, body: Option<&[u8]>) -> String {
    let asked = match flags.proxy {
        Some(_) => &target.url,
        None => &target.path,
    };
    let mut head = format!("{method} {asked} HTTP/1.0\r\n");
    if flags.keep_alive {
        head.push_str("Connection: Keep-Alive\r\n");
    }
    // Writing to memory does not fail, here and below.
    if let Some(cookie) = &flags.cookie {
        let _ = write!(head, "Cookie: {cookie}\r\n");
    }
    for (whose, secret) in &flags.credentials {
        let name = match whose {
            Credentials::Server => "Authorization",
            Credentials::Proxy => "Proxy-Authorization",
        };
        let _ = write!(head, "{name}: Basic {}\r\n", STANDARD.encode(secret));
    }
    if let Some(body) = body {
        let kind = flags.body_type.as_deref().unwrap_or(BODY_TYPE);
        let _ = write!(
            head,
            "Content-length: {}\r\nContent-type: {kind}\r\n",
            body.len()
        );
    }
    for field in &flags.fields {
        let _ = write!(head, "{field}\r\n");
    }
    if host_field(flags).is_none() {
        let _ = write!(head, "Host: {}\r\n", target.authority());
    }
    if given(flags, "User-Agent:").is_none() {
        head.push_str("User-Agent: ApacheBench/2.3\r\n");
    }
    if given(flags, "Accept:").is_none() {
        head.push_str("Accept: */*\r\n");
    }
    head.push_str("\r\n");
    head
}

/// The host that `-H` names, which TLS asks for as well.
pub(crate) fn host_field(flags: &Flags) -> Option<&str> {
    given(flags, "Host:").map(str::trim_ascii)
}

/// What the last field of this name says; the name has its colon.
fn given<'a>(flags: &'a Flags, name: &str) -> Option<&'a str> {
    flags.fields.iter().rev().find_map(|field| {
        let (start, rest) = field.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then_some(rest)
    })
}

fn read_body(file: &Path) -> Result<Vec<u8>, Refusal> {
    let mut body = Vec::new();
    let read =
        File::open(file).and_then(|open| open.take(BODY_BYTES_MAX + 1).read_to_end(&mut body));
    match read {
        Err(error) => refuse_plainly(1, format!("read the body from {}: {error}", file.display())),
        Ok(_) if body.len() as u64 > BODY_BYTES_MAX => refuse_plainly(
            1,
            format!(
                "the body in {} is longer than {BODY_BYTES_MAX} bytes",
                file.display()
            ),
        ),
        Ok(_) => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::flags::{Wish, parse};
    use super::*;

    /// What `line` sends; words are parted by two spaces.
    fn sent(line: &str) -> Sent {
        let words: Vec<OsString> = line.split("  ").map(OsString::from).collect();
        let Ok(Wish::Load(flags)) = parse(&words) else {
            panic!("{line} is refused");
        };
        let target = Target::parse(&flags.url).expect("a URL");
        Sent::new(&flags, &target).expect("a request")
    }

    fn check(line: &str, expected: &[&str]) {
        let head = sent(line).head;
        let lines: Vec<_> = head.split("\r\n").collect();
        let expected: Vec<_> = expected.iter().copied().chain(["", ""]).collect();
        assert_eq!(lines, expected, "{line}");
    }

    const AGENT: &str = "User-Agent: ApacheBench/2.3";
    const ACCEPT: &str = "Accept: */*";

    #[test]
    fn the_request_is_apache_benchs() {
        check("http://a/x", &["GET /x HTTP/1.0", "Host: a", AGENT, ACCEPT]);
        check(
            "-k  -C  a=1  -C  b=2  -P  p:q  -A   u:v  -H  X: 1  -H  Y:2  http://a:81/",
            &[
                "GET / HTTP/1.0",
                "Connection: Keep-Alive",
                "Cookie: b=2",
                "Proxy-Authorization: Basic cDpx",
                "Authorization: Basic dTp2",
                "X: 1",
                "Y:2",
                "Host: a:81",
                AGENT,
                ACCEPT,
            ],
        );
        check(
            "-p  /dev/null  -H  X: 1  http://a/",
            &[
                "POST / HTTP/1.0",
                "Content-length: 0",
                "Content-type: text/plain",
                "X: 1",
                "Host: a",
                AGENT,
                ACCEPT,
            ],
        );
        check(
            "-X  p:3128  http://a/x",
            &["GET http://a/x HTTP/1.0", "Host: a", AGENT, ACCEPT],
        );
        check("-i  a/", &["HEAD / HTTP/1.0", "Host: a", AGENT, ACCEPT]);
    }

    #[test]
    fn a_field_given_takes_the_place_of_the_usual_one() {
        let given = ["host: b", "USER-AGENT: me", "accept: x/y"];
        let line = format!("-H  {}  http://a/", given.join("  -H  "));
        check(
            &line,
            &["GET / HTTP/1.0", "host: b", "USER-AGENT: me", "accept: x/y"],
        );
    }

    #[test]
    fn a_body_that_is_not_there_ends_it() {
        let words = ["-p", "/nonexistent", "http://a/"].map(OsString::from);
        let Ok(Wish::Load(flags)) = parse(&words) else {
            panic!("refused");
        };
        let target = Target::parse(&flags.url).expect("a URL");
        let refusal = Sent::new(&flags, &target).expect_err("no body");
        assert_eq!(refusal.status, 1);
        assert!(refusal.words.contains("/nonexistent"), "{}", refusal.words);
    }
}
