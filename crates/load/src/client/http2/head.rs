//! Requests in HTTP/2, made of the bytes they have in HTTP/1.1.

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

use crate::client::plan;

/// Fields of HTTP/1.1 about the connection (RFC 9113, 8.2.2), and `host`, which `:authority` is.
const LEFT_OUT: [&str; 6] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// A request, made once.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) request: Request<()>,
    pub(crate) body: Bytes,
}

impl Head {
    /// Of a request of the plan, with these bytes in the place of its own.
    pub(crate) fn of(request: &plan::Request, bytes: &[u8]) -> Result<Head, String> {
        let wrong = |what: &dyn std::fmt::Display| format!("{} by HTTP/2: {what}", request.label);
        let split = bytes.len().saturating_sub(request.body_bytes);
        let (head, body) = bytes.split_at_checked(split).unwrap_or_default();
        let head = std::str::from_utf8(head).map_err(|e| wrong(&e))?;
        let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
        let mut words = lines.next().unwrap_or_default().split(' ');
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default();
        let mut made = Request::new(());
        *made.version_mut() = Version::HTTP_2;
        *made.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|e| wrong(&e))?;
        let mut host = "";
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| wrong(&e))?;
            if name == "host" {
                host = value;
            }
            if !LEFT_OUT.contains(&name.as_str()) {
                let value = HeaderValue::from_str(value).map_err(|e| wrong(&e))?;
                made.headers_mut().append(name, value);
            }
        }
        let scheme = match request.endpoint.tls {
            Some(_) => Scheme::HTTPS,
            None => Scheme::HTTP,
        };
        let uri = Uri::builder().scheme(scheme).authority(host);
        *made.uri_mut() = uri.path_and_query(path).build().map_err(|e| wrong(&e))?;
        Ok(Head {
            request: made,
            body: Bytes::copy_from_slice(body),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{RequestBuilder, Url};

    #[test]
    fn a_request_keeps_all_but_what_concerns_the_connection() {
        let url: Url = "unix:/s:/x?y".parse().unwrap();
        let builder = RequestBuilder {
            method: "POST".to_owned(),
            headers: vec![
                ("Host".to_owned(), "a.example".to_owned()),
                ("Connection".to_owned(), "close".to_owned()),
                ("A".to_owned(), "b: c".to_owned()),
            ],
            body: b"he\r\nllo".to_vec(),
            ..RequestBuilder::default()
        };
        let request = builder.build(&url).unwrap();
        let Head { request, body } = Head::of(&request, &request.bytes).unwrap();
        assert_eq!(request.uri(), "http://a.example/x?y");
        assert_eq!(
            (request.method(), &*body),
            (&Method::POST, &b"he\r\nllo"[..])
        );
        let names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["a", "content-length"]);
        assert_eq!(request.headers()["a"], "b: c");
    }
}
