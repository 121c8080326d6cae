//! Requests as bytes, made once before the load begins.

use std::time::Duration;

use super::plan::{NUMBER_DIGITS, Numbered, Numbers, ReplyTo, Request};
use super::url::Url;
use crate::Error;

/// Says what is asked for; [`RequestBuilder::build`] makes the bytes.
///
/// No field is sent that was not asked for but `Host`, the body's length, and what the version
/// needs to keep or close the connection: every byte costs both sides alike, and other
/// generators send no more.
#[derive(Debug, Clone)]
pub struct RequestBuilder {
    /// `GET`.
    pub method: String,
    /// The version in the request line.
    pub version: HttpVersion,
    /// Fields as sent, in this order; a `Host` among them takes the place of the URL's.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// What is asked of the server about the connection.
    pub persistence: Persistence,
    /// Share among the requests; at least 1.
    pub weight: u32,
    /// After so long its client hangs up.
    pub patience: Option<Duration>,
    /// Which numbers stand for `@number@` in path or fields, which then has it once.
    pub numbers: Option<Numbers>,
    /// What reports call it; without one method and URL.
    pub label: Option<String>,
}

/// What a number takes the place of.
const NUMBER: &str = "@number@";
const _: () = assert!(NUMBER.len() == NUMBER_DIGITS);

/// Versions of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0.
    V10,
    /// HTTP/1.1.
    V11,
}

/// What is asked of the server about the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// To keep it.
    Keep,
    /// To close it after the reply.
    Close,
}

impl Default for RequestBuilder {
    fn default() -> Self {
        RequestBuilder {
            method: "GET".to_owned(),
            version: HttpVersion::V11,
            headers: Vec::new(),
            body: Vec::new(),
            persistence: Persistence::Keep,
            weight: 1,
            patience: None,
            numbers: None,
            label: None,
        }
    }
}

impl RequestBuilder {
    /// Makes the bytes and looks the server up.
    pub fn build(&self, url: &Url) -> Result<Request, Error> {
        let head = self
            .head(url)
            .map_err(|cause| Error::new(format!("make the request for {url}"), cause))?;
        let numbered = self.numbers.map(|numbers| {
            let at = head.find(NUMBER).ok_or_else(|| {
                let cause = format!("no `{NUMBER}` stands in it");
                Error::new(format!("number the request for {url}"), cause)
            })?;
            Ok(Numbered { at, numbers })
        });
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        Ok(Request {
            endpoint: url.endpoint()?,
            bytes,
            numbered: numbered.transpose()?,
            body_bytes: self.body.len(),
            weight: self.weight,
            reply: ReplyTo::method(&self.method),
            patience: self.patience,
            label: match &self.label {
                Some(label) => label.clone(),
                None => format!("{} {url}", self.method),
            },
        })
    }

    fn head(&self, url: &Url) -> Result<String, String> {
        if self.method.is_empty() || !self.method.bytes().all(is_token) {
            return Err(format!("`{}` is no method", self.method.escape_default()));
        }
        let version = match self.version {
            HttpVersion::V10 => "1.0",
            HttpVersion::V11 => "1.1",
        };
        let mut head = format!("{} {} HTTP/{version}\r\n", self.method, url.path());
        let has = |name: &str| {
            self.headers
                .iter()
                .any(|(n, _)| n.eq_ignore_ascii_case(name))
        };
        if !has("host") {
            head.push_str(&format!("Host: {}\r\n", url.authority()));
        }
        for (name, value) in &self.headers {
            check_field(name, value)?;
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match (self.version, self.persistence) {
            _ if has("connection") => {}
            (HttpVersion::V10, Persistence::Keep) => head.push_str("Connection: keep-alive\r\n"),
            (HttpVersion::V11, Persistence::Close) => head.push_str("Connection: close\r\n"),
            _ => {}
        }
        let expects_body = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        if (!self.body.is_empty() || expects_body) && !has("content-length") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        Ok(head)
    }
}

impl ReplyTo {
    /// What the reply to a method may carry.
    #[must_use]
    pub fn method(method: &str) -> ReplyTo {
        match method {
            "HEAD" => ReplyTo::Head,
            _ => ReplyTo::Other,
        }
    }
}

fn check_field(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`{}` is no field name", name.escape_default()));
    }
    if value.bytes().any(|b| b != b'\t' && (b < b' ' || b == 0x7f)) {
        return Err(format!("the value of {name} has a control character"));
    }
    Ok(())
}

/// What names of fields and methods consist of (RFC 9110, 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(builder: &RequestBuilder, url: &str) -> String {
        let url: Url = url.parse().expect("a URL");
        let request = builder.build(&url).expect("a request");
        String::from_utf8(request.bytes).expect("ASCII")
    }

    #[test]
    fn only_what_is_needed_is_sent() {
        let get = RequestBuilder::default();
        let expected = "GET /x?y HTTP/1.1\r\nHost: 127.0.0.1:81\r\n\r\n";
        assert_eq!(bytes(&get, "http://127.0.0.1:81/x?y"), expected);
        let closing = RequestBuilder {
            persistence: Persistence::Close,
            ..get.clone()
        };
        let expected = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        assert_eq!(bytes(&closing, "unix:/s"), expected);
        let old = RequestBuilder {
            version: HttpVersion::V10,
            ..get
        };
        let expected = "GET / HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n";
        assert_eq!(bytes(&old, "unix:/s"), expected);
    }

    #[test]
    fn a_body_brings_its_length_and_headers_take_the_place_of_ours() {
        let post = RequestBuilder {
            method: "POST".to_owned(),
            headers: vec![("host".into(), "x".into()), ("A".into(), "b c".into())],
            body: b"hello".to_vec(),
            ..RequestBuilder::default()
        };
        let expected = "POST / HTTP/1.1\r\nhost: x\r\nA: b c\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(bytes(&post, "unix:/s"), expected);
    }

    #[test]
    fn nothing_can_be_smuggled_into_the_head() {
        let url: Url = "unix:/s".parse().expect("a URL");
        for (name, value) in [("A", "b\r\nC: d"), ("A:", "b"), ("", "b"), ("A", "\0")] {
            let builder = RequestBuilder {
                headers: vec![(name.into(), value.into())],
                ..RequestBuilder::default()
            };
            assert!(builder.build(&url).is_err(), "{name:?}: {value:?}");
        }
        let builder = RequestBuilder {
            method: "GE T".to_owned(),
            ..RequestBuilder::default()
        };
        assert!(builder.build(&url).is_err());
    }
}
