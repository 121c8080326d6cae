//! Where a store listens, as scripts write it.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use super::error::{Error, Kind};

/// The longest name of a host (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// A host and port, or a socket in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A name or an IP address, and a port.
    Tcp {
        /// Without the brackets of an IPv6 address.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads `host`, `host:port`, `[v6]:port`, `/path` or `unix:/path`.
    ///
    /// # Errors
    /// [`Kind::Argument`] when it is none of them.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, Error> {
        let text = text.trim();
        let path = text.strip_prefix("unix:").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let (host, port) = split(text, default_port).ok_or_else(|| refuse(text))?;
        Self::tcp(host, port)
    }

    /// Takes a host and a port that came apart.
    ///
    /// # Errors
    /// [`Kind::Argument`] when either cannot be one.
    pub fn tcp(host: &str, port: u16) -> Result<Self, Error> {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
        let named = !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(sound);
        if !named || port == 0 {
            return Err(refuse(&format!("{host}:{port}")));
        }
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }

    /// Takes the path of a Unix socket.
    pub fn unix(path: impl AsRef<Path>) -> Self {
        Self::Unix(path.as_ref().to_owned())
    }
}

fn split(text: &str, default_port: u16) -> Option<(&str, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if rest.is_empty() => default_port,
            None => return None,
        };
        return Some((host, port));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((text, default_port));
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host, port.parse().ok()?)),
        None => Some((text, default_port)),
    }
}

fn refuse(text: &str) -> Error {
    let text: String = text.chars().take(80).collect();
    Error::new(
        Kind::Argument,
        format!("`{text}` is no address: write host:port, [IPv6]:port or unix:/path"),
    )
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_scripts_write_them() {
        let cases = [
            ("127.0.0.1:11211", "127.0.0.1:11211"),
            ("cache.example", "cache.example:7"),
            (" cache-1.example:80 ", "cache-1.example:80"),
            ("[::1]:11211", "[::1]:11211"),
            ("[::1]", "[::1]:7"),
            ("::1", "[::1]:7"),
            ("/run/m.sock", "unix:/run/m.sock"),
            ("unix:/run/m.sock", "unix:/run/m.sock"),
        ];
        for (text, shown) in cases {
            let address = Address::parse(text, 7).expect("an address");
            assert_eq!(address.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for text in [
            "", ":80", "a:0", "a:65536", "a:b", "a b:1", "[::1", "[::1]x", "a:1:2", "a\n:1",
        ] {
            let error = Address::parse(text, 7).expect_err(text);
            assert_eq!(error.kind(), Kind::Argument, "{text}");
            assert!(
                error
                    .to_string()
                    .ends_with("write host:port, [IPv6]:port or unix:/path")
            );
        }
    }
}
