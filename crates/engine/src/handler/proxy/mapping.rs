//! What a server sees in the place of what a client asked for: another host, another path.

use config::model::{Proxy, ProxyHost};

use crate::exchange::request::Request;

/// What of a path is behind the prefix that is cut; `None` where it has none.
pub(super) fn cut<'p>(path: &'p [u8], proxy: &Proxy) -> Option<&'p [u8]> {
    let prefix = proxy.strip_prefix.as_deref()?.trim_end_matches('/');
    path.strip_prefix(prefix.as_bytes())
        .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The `Host` that a server is sent.
pub(super) fn host<'h>(request: &'h Request, proxy: &'h Proxy, server: &'h str) -> &'h [u8] {
    match &proxy.host {
        ProxyHost::Client if !request.head.authority().is_empty() => request.head.authority(),
        ProxyHost::Fixed(host) => host.as_bytes(),
        // A Unix socket has no name an upstream would know.
        _ if server.starts_with("unix:") => b"localhost",
        _ => server.as_bytes(),
    }
}
