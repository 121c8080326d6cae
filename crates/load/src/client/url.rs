//! Addresses of pages, as people type them, and the servers they lead to.

use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::str::FromStr;

use super::plan::{Address, Endpoint, Tls};
use crate::Error;

/// Longest URL taken.
const URL_BYTES_MAX: usize = 16 * 1024;

/// An address of a page: `http://host[:port]/path`, `https://…`, or `unix:/socket:/path`.
///
/// A name without a scheme means http. What follows `#` is dropped, as browsers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    host: String,
    port: u16,
    socket: Option<PathBuf>,
    path: String,
}

/// How the server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP in TLS.
    Https,
}

impl Url {
    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host as typed, without the brackets of an IPv6 address; `localhost` for a Unix socket.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, also where it was not typed.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What a `Host` field says: without the port where it is the scheme's own.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = bracketed(&self.host);
        if self.socket.is_some() || self.port == self.scheme.port() {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Looks the host up and gives its server; for https with TLS as this program prefers it.
    pub fn endpoint(&self) -> Result<Endpoint, Error> {
        if let Some(socket) = &self.socket {
            return Ok(Endpoint {
                address: Address::Unix(socket.clone()),
                tls: None,
            });
        }
        let doing = || format!("look up {}", self.host);
        let found = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|e| Error::new(doing(), format!("{e}; is the name spelled right?")))?
            .next();
        let address = found.ok_or_else(|| Error::new(doing(), "the name has no address"))?;
        Ok(Endpoint {
            address: Address::Tcp(address),
            tls: (self.scheme == Scheme::Https).then(|| Tls::to(&self.host)),
        })
    }

    fn parse(text: &str) -> Result<Url, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("longer than {URL_BYTES_MAX} bytes"));
        }
        if let Some(bad) = text.chars().find(|c| !('!'..='~').contains(c)) {
            let bad = bad.escape_default();
            return Err(format!("`{bad}` must be percent-encoded in a URL"));
        }
        let text = text.split('#').next().unwrap_or_default();
        if let Some(rest) = text.strip_prefix("unix:") {
            return Url::parse_unix(rest);
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Scheme::parse(scheme)?, rest),
            None => (Scheme::Http, text),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_authority(authority)?;
        Ok(Url {
            scheme,
            host: host.to_owned(),
            port: port.unwrap_or(scheme.port()),
            socket: None,
            path: match path {
                "" => "/".to_owned(),
                query if query.starts_with('?') => format!("/{query}"),
                path => path.to_owned(),
            },
        })
    }

    fn parse_unix(rest: &str) -> Result<Url, String> {
        let (socket, path) = rest.split_once(':').unwrap_or((rest, "/"));
        if !socket.starts_with('/') || !path.starts_with('/') {
            return Err("write a Unix socket as unix:/path/of/socket:/path/of/page".to_owned());
        }
        Ok(Url {
            scheme: Scheme::Http,
            host: "localhost".to_owned(),
            port: Scheme::Http.port(),
            socket: Some(PathBuf::from(socket)),
            path: path.to_owned(),
        })
    }
}

impl Scheme {
    fn parse(text: &str) -> Result<Scheme, String> {
        match text.to_ascii_lowercase().as_str() {
            "http" => Ok(Scheme::Http),
            "https" => Ok(Scheme::Https),
            other => Err(format!("`{other}` is neither http nor https")),
        }
    }

    fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl FromStr for Url {
    type Err = Error;

    fn from_str(text: &str) -> Result<Url, Error> {
        Url::parse(text).map_err(|cause| Error::new(format!("read the URL `{text}`"), cause))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Url { path, port, .. } = self;
        match (&self.socket, self.scheme) {
            (Some(socket), _) => write!(f, "unix:{}:{path}", socket.display()),
            (None, scheme) => {
                let name = match scheme {
                    Scheme::Http => "http",
                    Scheme::Https => "https",
                };
                let host = bracketed(&self.host);
                if *port == scheme.port() {
                    write!(f, "{name}://{host}{path}")
                } else {
                    write!(f, "{name}://{host}:{port}{path}")
                }
            }
        }
    }
}

/// Host and port of `host`, `host:80`, `[::1]` or `[::1]:80`; the brackets are not the host's.
///
/// # Errors
/// Says what it is instead.
pub fn split_authority(authority: &str) -> Result<(&str, Option<u16>), String> {
    if authority.contains('@') {
        return Err("a user and password do not belong here; send an Authorization header".into());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("`[` has no `]`")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(format!("`{host}` is no IPv6 address"));
            }
            match after {
                "" => (host, None),
                _ => (
                    host,
                    Some(after.strip_prefix(':').ok_or("`]` ends a host")?),
                ),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("there is no host".to_owned());
    }
    let port = match port {
        None | Some("") => None,
        Some(port) => match port.parse() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Some(number),
            _ => return Err(format!("`{port}` is no port: 1 to 65535")),
        },
    };
    Ok((host, port))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(&str, u16, &str, &str), &str>) {
        match (Url::parse(text), expected) {
            (Ok(url), Ok((host, port, path, authority))) => {
                let found = (url.host(), url.port(), url.path(), url.authority());
                assert_eq!(found, (host, port, path, authority.to_owned()), "{text}");
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn urls_are_read_as_people_type_them() {
        check("http://a/", Ok(("a", 80, "/", "a")));
        check("HTTP://a:80/x?y", Ok(("a", 80, "/x?y", "a")));
        check("https://a", Ok(("a", 443, "/", "a")));
        check("https://a:80/", Ok(("a", 80, "/", "a:80")));
        check(
            "127.0.0.1:8080",
            Ok(("127.0.0.1", 8080, "/", "127.0.0.1:8080")),
        );
        check("http://a?q#part", Ok(("a", 80, "/?q", "a")));
        check("http://[::1]:81/p", Ok(("::1", 81, "/p", "[::1]:81")));
        check(
            "unix:/run/x.sock:/p",
            Ok(("localhost", 80, "/p", "localhost")),
        );
        check("unix:/run/x.sock", Ok(("localhost", 80, "/", "localhost")));
        check("http://a:/", Ok(("a", 80, "/", "a")));
    }

    #[test]
    fn what_is_no_url_is_said() {
        check("ftp://a/", Err("neither http nor https"));
        check("http:///x", Err("no host"));
        check("http://a:0/", Err("no port"));
        check("http://a:+8/", Err("no port"));
        check("http://a:65536/", Err("no port"));
        check("http://a/b c", Err("percent-encoded"));
        check("http://a/\r\nX: y", Err("percent-encoded"));
        check("http://ü/", Err("percent-encoded"));
        check("http://u:p@a/", Err("Authorization"));
        check("http://[::1/", Err("no `]`"));
        check("http://[x]/", Err("no IPv6"));
        check("unix:run", Err("unix:/path"));
    }

    #[test]
    fn a_url_is_shown_as_it_is_read() {
        for text in [
            "http://a/",
            "https://a:8443/x?y",
            "unix:/s:/p",
            "http://[::1]:81/",
        ] {
            let url: Url = text.parse().expect("a URL");
            assert_eq!(url.to_string(), text);
        }
    }
}
