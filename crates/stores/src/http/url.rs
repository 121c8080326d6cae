//! Where a request goes: the URL a script writes, and the fields it may set.

use hyper::Uri;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::address::Address;
use crate::error::{Error, Kind};

/// The longest URL.
const URL_BYTES_MAX: usize = 8 * 1024;
/// Fields of a request.
const FIELDS_MAX: usize = 100;
/// Bytes of all their names and values.
const FIELDS_BYTES_MAX: usize = 64 * 1024;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Fields that say where a message ends or what becomes of its connection: the client's own.
const OURS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// What a URL says.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) scheme: Scheme,
    pub(super) address: Address,
    /// Path and query, as they go into the request line.
    pub(super) path: Uri,
    /// Host and port, as they go into `Host`.
    pub(super) host: HeaderValue,
}

impl Endpoint {
    /// Reads `http://host[:port][/path][?query]`, or the same with `https`.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let refuse = |why: &str| {
            let shown: String = url.chars().take(80).collect();
            Error::new(Kind::Argument, format!("the URL `{shown}` {why}"))
        };
        if url.len() > URL_BYTES_MAX {
            return Err(refuse(&format!("has more than {URL_BYTES_MAX} bytes")));
        }
        let uri: Uri = url
            .parse()
            .map_err(|_| refuse("is none: write http://host/path"))?;
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http") => (Scheme::Http, HTTP_PORT),
            Some("https") => (Scheme::Https, HTTPS_PORT),
            _ => return Err(refuse("does not begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("has a user in it: set the field Authorization"));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let port = match authority.as_str().strip_prefix(authority.host()) {
            None | Some("" | ":") => default_port,
            Some(rest) => {
                let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
                port.ok_or_else(|| refuse("has a port that is none"))?
            }
        };
        let address = Address::tcp(host, port).map_err(|_| refuse("names no host"))?;
        let path = match uri.query() {
            Some(query) => format!("{}?{query}", uri.path()).parse(),
            None => uri.path().parse(),
        };
        let path = path.map_err(|_| refuse("has no path of the form /path"))?;
        let named = HeaderValue::from_str(authority.as_str());
        let host = named.map_err(|_| refuse("names no host"))?;
        Ok(Self {
            scheme,
            address,
            path,
            host,
        })
    }
}

/// Takes over a script's fields but for those that are the client's own.
pub(super) fn fields(given: &[(Vec<u8>, Vec<u8>)], host: HeaderValue) -> Result<HeaderMap, Error> {
    let refuse = |why: String| Err(Error::new(Kind::Argument, why));
    let bytes: usize = given
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if given.len() > FIELDS_MAX || bytes > FIELDS_BYTES_MAX {
        let why = format!("a request has at most {FIELDS_MAX} fields of {FIELDS_BYTES_MAX} bytes");
        return refuse(why);
    }
    let mut fields = HeaderMap::with_capacity(given.len() + 1);
    fields.insert(header::HOST, host);
    for (name, value) in given {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        else {
            return refuse(format!(
                "the field `{}` cannot be sent",
                name.escape_ascii()
            ));
        };
        if OURS.contains(&name) {
            continue;
        }
        match name == header::HOST {
            true => drop(fields.insert(name, value)),
            false => drop(fields.append(name, value)),
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let cases = [
            ("http://a.example", "a.example:80", "/", "a.example"),
            ("http://a:8080/b?c=d#e", "a:8080", "/b?c=d", "a:8080"),
            ("HTTP://[::1]:81/%20", "[::1]:81", "/%20", "[::1]:81"),
            ("http://a?x", "a:80", "/?x", "a"),
            ("https://a/b", "a:443", "/b", "a"),
        ];
        for (url, address, path, host) in cases {
            let target = Endpoint::parse(url).expect(url);
            assert_eq!(target.address.to_string(), address, "{url}");
            assert_eq!(target.path.to_string(), path, "{url}");
            assert_eq!(target.host, host, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_a_reason() {
        let cases = [
            ("ftp://a/", "does not begin with http:// or https://"),
            ("/path", "does not begin with http:// or https://"),
            ("http://", "is none"),
            ("http://a b/", "is none"),
            ("http://a/\r\nX: y", "is none"),
            ("http://u:p@a/", "has a user in it"),
            ("http://a:0/", "names no host"),
            ("http://a:99999/", "has a port that is none"),
        ];
        for (url, why) in cases {
            let error = Endpoint::parse(url).expect_err(url);
            assert_eq!(error.kind(), Kind::Argument);
            assert!(error.to_string().contains(why), "{error}");
        }
        let long = format!("http://a/{}", "x".repeat(URL_BYTES_MAX));
        assert!(Endpoint::parse(&long).is_err());
    }

    #[test]
    fn fields_that_frame_a_message_are_not_the_scripts() {
        let given = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let host = || HeaderValue::from_static("a");
        let pairs = [
            given("X-A", "1"),
            given("x-a", "2"),
            given("Content-Length", "999"),
            given("Transfer-Encoding", "chunked"),
            given("Connection", "close"),
            given("Host", "b"),
        ];
        let fields = fields(&pairs, host()).expect("fields");
        assert_eq!(fields.get_all("x-a").iter().count(), 2);
        assert_eq!(fields.get("host"), Some(&HeaderValue::from_static("b")));
        assert_eq!(fields.len(), 3);
        for bad in [given("a b", "c"), given("a", "b\r\nc: d"), given("", "a")] {
            assert!(super::fields(&[bad], host()).is_err());
        }
        assert!(super::fields(&vec![given("a", "b"); FIELDS_MAX + 1], host()).is_err());
    }
}
