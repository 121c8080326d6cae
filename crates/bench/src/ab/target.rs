//! Where ApacheBench's URL leads: `[http[s]://]host[:port]/path`, nothing optional filled in.
//!
//! Unlike [`load::client::Url`] the path is needed and goes out as it is typed, byte for byte,
//! and the host is shown as typed: scripts compare both.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::refusal::{Refusal, refuse, refuse_plainly};
use load::client::split_authority;

/// Longest URL.
const URL_BYTES_MAX: usize = 16 * 1024;

/// How long one of several addresses of a name is tried.
const TRIED_FOR: Duration = Duration::from_secs(3);

/// The port of a proxy that is named without one.
const PROXY_PORT: u16 = 80;

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// As typed: what a proxy is asked for.
    pub(crate) url: String,
    pub(crate) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// With whatever follows it.
    pub(crate) path: String,
}

impl Target {
    /// Reads a URL.
    pub(crate) fn parse(url: &str) -> Result<Target, Refusal> {
        if url.len() > URL_BYTES_MAX || url.chars().any(char::is_control) {
            return refuse(format!(
                "the URL is longer than {URL_BYTES_MAX} bytes or has control characters in it"
            ));
        }
        let (tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => (false, url),
        };
        let Some(slash) = rest.find('/') else {
            return refuse(format!(
                "`{url}` has no path: write it with one, if only a slash: {url}/"
            ));
        };
        let (authority, path) = rest.split_at(slash);
        if authority.contains('@') {
            return refuse(format!(
                "`{url}` has a user or password in it: give it as -A user:password"
            ));
        }
        let (host, port) = split(authority)
            .ok_or_else(|| Refusal::usage(format!("`{authority}` in `{url}` is no host[:port]")))?;
        Ok(Target {
            url: url.to_owned(),
            tls,
            host: host.to_owned(),
            port: port.unwrap_or(own_port(tls)),
            path: path.to_owned(),
        })
    }

    /// What `Host` says: without the port where it is the scheme's own.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == own_port(self.tls) {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

fn own_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// Host and port; a colon without a port is not taken.
fn split(authority: &str) -> Option<(&str, Option<u16>)> {
    let parts = split_authority(authority).ok();
    parts.filter(|_| !authority.ends_with(':'))
}

/// A proxy, `host[:port]`.
pub(crate) fn parse_proxy(text: &str) -> Result<(String, u16), Refusal> {
    match split(text) {
        Some((host, port)) => Ok((host.to_owned(), port.unwrap_or(PROXY_PORT))),
        None => refuse(format!("-X {text}: a proxy is written host:port")),
    }
}

/// The address connections come from.
pub(crate) fn look_up_local(name: &str) -> Result<IpAddr, Refusal> {
    let found = look_up(name, 0)?;
    let first = found.first().map(SocketAddr::ip);
    first.ok_or_else(|| Refusal::plain(1, format!("-B {name}: the name has no address")))
}

/// The address to connect to: of several, the first that accepts a connection, as ApacheBench
/// finds it. Where there is but one nothing is connected.
pub(crate) fn look_up_server(
    host: &str,
    port: u16,
    local: Option<IpAddr>,
) -> Result<SocketAddr, Refusal> {
    let mut found = look_up(host, port)?;
    if let Some(local) = local {
        found.retain(|address| address.is_ipv4() == local.is_ipv4());
    }
    let accepting = match found.as_slice() {
        [_] => None,
        several => several
            .iter()
            .find(|address| TcpStream::connect_timeout(address, TRIED_FOR).is_ok()),
    };
    match accepting.or(found.first()) {
        Some(address) => Ok(*address),
        None => refuse_plainly(
            1,
            format!("look up {host}: the name has no address of that kind"),
        ),
    }
}

fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
    match (name, port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(error) => refuse_plainly(
            1,
            format!("look up {name}: {error}; is the name spelled right?"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, tls: bool, host: &str, port: u16, path: &str, authority: &str) {
        let target = Target::parse(url).unwrap_or_else(|refusal| panic!("{url}: {refusal:?}"));
        assert_eq!(
            (target.tls, &*target.host, target.port, &*target.path),
            (tls, host, port, path),
            "{url}"
        );
        assert_eq!(target.authority(), authority, "{url}");
    }

    #[test]
    fn urls_are_taken_as_they_are_typed() {
        check("http://a/", false, "a", 80, "/", "a");
        check("a/b?c#d", false, "a", 80, "/b?c#d", "a");
        check(
            "127.0.0.1:8080/a b",
            false,
            "127.0.0.1",
            8080,
            "/a b",
            "127.0.0.1:8080",
        );
        check("https://a/x", true, "a", 443, "/x", "a");
        check("https://a:80/x", true, "a", 80, "/x", "a:80");
        check("http://a:443/x", false, "a", 443, "/x", "a:443");
        check("http://[::1]:81//", false, "::1", 81, "//", "[::1]:81");
        check("http://A:80/", false, "A", 80, "/", "A");
    }

    #[test]
    fn what_is_no_url_of_apache_bench_is_said() {
        for (url, words) in [
            ("http://a", "has no path"),
            ("a", "a/"),
            ("http://", "has no path"),
            ("http:///x", "no host"),
            ("http://a:x/", "no host"),
            ("http://a:/", "no host"),
            ("http://a:0/", "no host"),
            ("http://a:65536/", "no host"),
            ("http://u:p@a/", "-A user:password"),
            ("http://[x]/", "no host"),
            ("ftp://a/", "no host"),
            ("http://a/\n", "control characters"),
        ] {
            let refusal = Target::parse(url)
                .err()
                .unwrap_or_else(|| panic!("{url} is taken"));
            assert!(refusal.words.contains(words), "{url}: {}", refusal.words);
            assert_eq!(refusal.status, 22, "{url}");
        }
    }

    #[test]
    fn a_proxy_has_a_port_of_its_own() {
        assert_eq!(parse_proxy("p:3128").ok(), Some(("p".into(), 3128)));
        assert_eq!(parse_proxy("p").ok(), Some(("p".into(), 80)));
        assert!(parse_proxy("p:x").is_err() && parse_proxy("").is_err());
    }
}
