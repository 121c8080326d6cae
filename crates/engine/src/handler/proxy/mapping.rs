//! What a server sees in the place of what a client asked for: another host, another path.

use config::model::{Proxy, ProxyHost};

use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::request::Request;
use crate::stage::Chosen;
use crate::template::expand_url;

/// What of a path is behind the prefix that is cut; `None` where it has none.
pub(super) fn cut<'p>(path: &'p [u8], proxy: &Proxy) -> Option<&'p [u8]> {
    let prefix = proxy.strip_prefix.as_deref()?.trim_end_matches('/');
    path.strip_prefix(prefix.as_bytes())
        .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// What a server is asked for in the place of the client's path; `None` where that is the path.
///
/// # Errors
/// A group, a map or a variable has made of it what nobody may ask for.
pub(super) fn target(
    chosen: Chosen<'_>,
    exchange: &Exchange,
    proxy: &Proxy,
) -> Result<Option<Vec<u8>>> {
    let Some(path) = &proxy.path else {
        return Ok(None);
    };
    let mut target = Vec::new();
    expand_url(path, exchange.route.values(&exchange.request), &mut target);
    let judged = wire::judge_target(&target, chosen.site.path_rules);
    judged.map_err(|refusal| {
        let target = target.escape_ascii();
        let detail = format!("{target}: {}", refusal.reason);
        Error::new(Kind::Refused(404), "rewritten_nowhere", detail)
    })?;
    Ok(Some(target))
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
