//! Upstreams, their servers, and addresses.
//!
//! The idea: handlers hold an index into one list. Named upstreams come first, in the order they
//! are written; a URL used in a handler becomes an upstream of one server, once however often
//! it is used.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::context::{Spot, problem};
use super::limits::{Level, limits};
use super::pool::PoolList;
use super::table::Table;
use super::tls;
use super::value::Value;
use super::values;
use crate::keys;
use crate::model::{ListenAddress, Protocol, ProxyVersion, Server, ServerAddress, Upstream};

/// Begins the names of upstreams made of an inline address of FastCGI.
pub(crate) const FASTCGI_PREFIX: &str = "fastcgi:";
/// Idle connections kept to a FastCGI server: each keeps one of its processes.
const FASTCGI_KEEPALIVE: usize = 16;

/// Begins the names of upstreams that lead to a pool.
pub const POOL_PREFIX: &str = "pool:";

/// The upstreams found so far, and the pools that some of them lead to.
pub(crate) struct Upstreams {
    pub(crate) pools: PoolList,
    list: Vec<Upstream>,
    by_name: BTreeMap<String, (usize, Option<Spot>)>,
}

/// What `proxy` was told: an upstream, and the path of its URL.
pub(crate) struct Target {
    pub(crate) upstream: usize,
    pub(crate) prefix: Option<String>,
}

/// What a handler of a pool is told.
pub(crate) struct Led {
    pub(crate) pool: usize,
    pub(crate) upstream: usize,
}

impl Upstreams {
    /// None yet.
    pub(crate) fn with(pools: PoolList) -> Upstreams {
        Upstreams {
            pools,
            list: Vec::new(),
            by_name: BTreeMap::new(),
        }
    }

    /// The upstream that leads to a pool.
    pub(crate) fn lead(
        &mut self,
        value: &Value<'_>,
        pool: usize,
        protocol: Protocol,
    ) -> Option<Led> {
        let (id, socket) = self.pools.place(pool)?;
        let name = format!("{POOL_PREFIX}{id}");
        let upstream = self.inline(value, name, protocol, ServerAddress::Unix(socket));
        self.pools.lead(pool, upstream);
        Some(Led { pool, upstream })
    }

    /// Takes in `[upstreams.NAME]`.
    pub(crate) fn define(&mut self, value: &Value<'_>) {
        let name = value.name;
        if name.is_empty()
            || !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        {
            value.report(format!(
                "`{name}` cannot be an upstream's name: letters, digits, `-`, `_` and `.` can"
            ));
        }
        // A name is known even if its table is wrong, so that its users are not reported as well.
        let spot = Some(value.spot());
        let upstream = upstream(value);
        if let Some((_, Some(first))) = self.by_name.get(name) {
            let message = format!("upstream `{name}` is defined twice");
            value.report_again(message, first.clone());
            return;
        }
        self.by_name
            .insert(name.to_owned(), (self.list.len(), spot));
        self.list.push(upstream);
    }

    /// The upstream that `proxy` names, by name or URL.
    pub(crate) fn target(&mut self, value: &Value<'_>) -> Option<Target> {
        let text = value.text()?;
        if text.contains("://") || text.starts_with("unix:") {
            return self.inline_http(value, text);
        }
        let upstream = self.named(value, text, Protocol::Http)?;
        Some(Target {
            upstream,
            prefix: None,
        })
    }

    /// The upstream that `fastcgi` names, by name or address.
    pub(crate) fn fastcgi(&mut self, value: &Value<'_>) -> Option<usize> {
        let text = value.text()?;
        if !text.contains(':') {
            if let Some(help) = meant_address(text) {
                value.report_help(format!("`{text}` is no address"), help);
                return None;
            }
            return self.named(value, text, Protocol::FastCgi);
        }
        let address = address(value)?;
        let name = match &address {
            ServerAddress::Unix(_) => format!("{FASTCGI_PREFIX}{text}"),
            _ => format!("{FASTCGI_PREFIX}{}", text.to_ascii_lowercase()),
        };
        Some(self.inline(value, name, Protocol::FastCgi, address))
    }

    /// The index of the upstream called `text`, which must speak `protocol`.
    fn named(&self, value: &Value<'_>, text: &str, protocol: Protocol) -> Option<usize> {
        if let Some((upstream, _)) = self.by_name.get(text) {
            let found = self.list.get(*upstream)?.protocol;
            if found != protocol {
                report_other_protocol(value, text, found);
            }
            return Some(*upstream);
        }
        let finding = problem(value.spot(), format!("there is no upstream `{text}`"));
        let meant = keys::nearest(
            text,
            self.by_name
                .keys()
                .map(String::as_str)
                .filter(|name| !name.contains(':')),
        );
        let finding = match meant {
            Some(_) => finding.meant(meant),
            None if text.contains(':') => {
                finding.help(format!("for a server's address write `http://{text}`"))
            }
            None if protocol == Protocol::FastCgi => finding.help(format!(
                "define it: `[upstreams.{text}]` with `protocol = \"fastcgi\"`; an address is \
                 `\"unix:/PATH\"` or `\"HOST:PORT\"`"
            )),
            None => finding.help(format!("define it: `[upstreams.{text}]`")),
        };
        value.context.report(finding.absence());
        None
    }

    /// Whether there is an upstream of this name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether agents are asked how its servers' machines are.
    pub(crate) fn has_agents(&self, name: &str) -> bool {
        let index = self.by_name.get(name).map(|(index, _)| *index);
        let upstream = index.and_then(|index| self.list.get(index));
        upstream.is_some_and(|upstream| upstream.agent_port.is_some())
    }

    /// How many limits the upstream of this index has.
    pub(crate) fn limits_of(&self, index: usize) -> usize {
        self.list
            .get(index)
            .map_or(0, |upstream| upstream.limits.len())
    }

    /// The most limits of an upstream that a script may name.
    pub(crate) fn most_limits(&self) -> usize {
        let named = self.list.iter();
        let named = named.filter(|upstream| upstream.protocol == Protocol::Http);
        named
            .map(|upstream| upstream.limits.len())
            .max()
            .unwrap_or_default()
    }

    /// The servers of the upstream of this index.
    pub(crate) fn servers_of(&self, index: usize) -> &[Server] {
        let upstream = self.list.get(index);
        upstream.map_or(&[], |upstream| &upstream.servers)
    }

    /// The list that the handlers' indices point into, and the pools.
    pub(crate) fn finish(self) -> (Vec<Upstream>, PoolList) {
        (self.list, self.pools)
    }

    fn inline_http(&mut self, value: &Value<'_>, text: &str) -> Option<Target> {
        let (address, name, prefix) = if text.starts_with("unix:") {
            (unix(value, text)?, text.to_owned(), None)
        } else {
            let (scheme, authority, prefix) = url(value, text)?;
            let with_port = match scheme {
                _ if has_port(authority) => authority.to_owned(),
                "https" => format!("{authority}:443"),
                _ => format!("{authority}:80"),
            };
            let address = server_address(value, &with_port)?;
            (
                address,
                format!("{scheme}://{}", with_port.to_ascii_lowercase()),
                prefix,
            )
        };
        let is_tls = name.starts_with("https:");
        let upstream = self.inline(value, name, Protocol::Http, address);
        let inline = self.list.get_mut(upstream);
        if let Some(inline) = inline.filter(|it| is_tls && it.tls.is_none()) {
            let nothing = Table::empty(value.context, &keys::UPSTREAM_TLS);
            inline.tls = tls::to_servers(value, &nothing).map(Arc::new);
        }
        Some(Target { upstream, prefix })
    }

    /// The upstream of one server that stands for an address in a handler.
    fn inline(
        &mut self,
        value: &Value<'_>,
        name: String,
        protocol: Protocol,
        address: ServerAddress,
    ) -> usize {
        let (next, list) = (self.list.len(), &mut self.list);
        let (upstream, _) = self.by_name.entry(name.clone()).or_insert_with(|| {
            let plain = Table::empty(value.context, &keys::UPSTREAM);
            let servers = vec![Server { address, weight: 1 }];
            list.push(filled(name, &plain, protocol, servers));
            (next, None)
        });
        *upstream
    }
}

fn report_other_protocol(value: &Value<'_>, name: &str, found: Protocol) {
    let (speaks, handler) = match found {
        Protocol::Http => ("HTTP", "proxy"),
        Protocol::FastCgi => ("FastCGI", "fastcgi"),
    };
    let help = format!("forward to it with `handler = {{ {handler} = \"{name}\" }}`");
    value.report_help(format!("upstream `{name}` speaks {speaks}"), help);
}

/// `address` of `[[listen]]`.
pub(crate) fn listen_address(value: &Value<'_>) -> Option<ListenAddress> {
    let text = value.text()?;
    if text.starts_with("unix:") {
        let ServerAddress::Unix(path) = unix(value, text)? else {
            return None;
        };
        values::require_directory(value, &path);
        return Some(ListenAddress::Unix(path));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(ListenAddress::Tcp(address));
    }
    let message = format!("`{text}` is no address to listen on");
    let help = match text.rsplit_once(':') {
        Some(("" | "*", port)) => {
            format!("write `0.0.0.0:{port}` for IPv4, `[::]:{port}` for IPv6")
        }
        Some(("localhost", port)) => format!("write `127.0.0.1:{port}` or `[::1]:{port}`"),
        _ => "one looks like `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/nagaya-http.sock`"
            .to_owned(),
    };
    value.report_help(message, help);
    None
}

fn upstream(value: &Value<'_>) -> Upstream {
    let table = value.table(&keys::UPSTREAM);
    let table = table.unwrap_or_else(|| Table::empty(value.context, &keys::UPSTREAM));
    let mut servers = Vec::new();
    if let Some(list) = value
        .is_table()
        .then(|| table.required("servers"))
        .flatten()
    {
        let elements = list.list().unwrap_or_default();
        if elements.is_empty() && list.is_list() {
            list.report(format!("upstream `{}` has no servers", value.name));
        }
        servers.extend(elements.iter().filter_map(server));
    }
    let protocol = table.choice("protocol");
    filled(value.name.to_owned(), &table, protocol, servers)
}

/// An upstream with what `table` says of it.
fn filled(name: String, table: &Table<'_>, protocol: Protocol, servers: Vec<Server>) -> Upstream {
    let keepalive = match protocol {
        Protocol::FastCgi if table.get("keepalive").is_none() => FASTCGI_KEEPALIVE,
        Protocol::Http | Protocol::FastCgi => table.count("keepalive") as usize,
    };
    let proxy_protocol = table.choice("proxy_protocol");
    let upstream = Upstream {
        name,
        protocol,
        servers,
        keepalive: match proxy_protocol {
            ProxyVersion::Off => keepalive,
            // The next request may be another client's.
            ProxyVersion::V1 | ProxyVersion::V2 => 0,
        },
        balance: table.choice("balance"),
        fails: table.count("fails") as u32,
        back_off_ms: table.duration("back_off"),
        back_off_max_ms: table.duration("back_off_max"),
        tries: table.count("tries") as u32,
        agent_port: table
            .some_number("agent")
            .and_then(|port| u16::try_from(port).ok()),
        proxy_protocol,
        tls: table
            .get("tls")
            .and_then(|value| tls::of_upstream(&value))
            .map(Arc::new),
        limits: limits(table.get("limits"), Level::Upstream),
    };
    if upstream.tls.is_some() {
        judge_tls(&upstream, table);
    }
    if upstream.proxy_protocol != ProxyVersion::Off {
        let problem = match protocol {
            Protocol::FastCgi => {
                Some("`proxy_protocol` is for HTTP: FastCGI tells the client by itself")
            }
            Protocol::Http if keepalive > 0 && table.get("keepalive").is_some() => Some(
                "connections made for one client, by `proxy_protocol`, are not kept: leave `keepalive` out",
            ),
            Protocol::Http => None,
        };
        if let Some(problem) = problem {
            table.report_at(&["proxy_protocol"], problem);
        }
    }
    if upstream.back_off_max_ms < upstream.back_off_ms {
        table.report_at(
            &["back_off_max", "back_off"],
            "`back_off_max` is less than `back_off`",
        );
    }
    upstream
}

fn judge_tls(upstream: &Upstream, table: &Table<'_>) {
    let is_unix = |server: &Server| matches!(server.address, ServerAddress::Unix(_));
    let is_named = upstream.tls.as_ref().is_some_and(|tls| tls.name.is_some());
    if upstream.protocol == Protocol::FastCgi {
        table.report_at(&["tls"], "`tls` is for HTTP: FastCGI is spoken plain");
    } else if !is_named && upstream.servers.iter().any(is_unix) {
        let message =
            "a server at a Unix socket has no name that its certificate could have: say `name`";
        table.report_at(&["tls"], message);
    }
}

fn server(value: &Value<'_>) -> Option<Server> {
    if !value.is_table() {
        return Some(Server {
            address: address(value)?,
            weight: 1,
        });
    }
    let table = value.table(&keys::SERVER)?;
    let weight = table.count("weight") as u32;
    Some(Server {
        address: address(&table.required("address")?)?,
        weight,
    })
}

/// Where a server is: an address, a name, each with a port, or `unix:/path`.
pub(super) fn address(value: &Value<'_>) -> Option<ServerAddress> {
    let text = value.text()?;
    if text.starts_with("unix:") {
        return unix(value, text);
    }
    if let Some((_, rest)) = text.split_once("://") {
        let rest = rest.split('/').next().unwrap_or_default();
        value.report_help(
            format!("`{text}` is not an address alone"),
            format!("write `{rest}`"),
        );
        return None;
    }
    server_address(value, text)
}

/// What to write for an address that lacks its beginning or its end.
fn meant_address(text: &str) -> Option<String> {
    let path = text.trim_end_matches(';');
    if text.starts_with('/') {
        return Some(format!(
            "it is the path of a Unix socket: write `unix:{path}`"
        ));
    }
    let is_address = text == "localhost" || text.parse::<std::net::IpAddr>().is_ok();
    is_address.then(|| format!("add the port, as in `{text}:9000`"))
}

/// `unix:/path`.
pub(super) fn unix(value: &Value<'_>, text: &str) -> Option<ServerAddress> {
    /// What `sockaddr_un` holds, without the closing NUL.
    const PATH_BYTES_MAX: usize = 107;
    let path: PathBuf = text.strip_prefix("unix:").unwrap_or_default().into();
    let length = path.as_os_str().len();
    if !path.is_absolute() || text.contains('\0') {
        value.report_help(
            format!("`{text}` must hold an absolute path"),
            "as in `unix:/run/app.sock`",
        );
        return None;
    }
    if let Some(meant) = text.strip_suffix(';') {
        let message = format!("`{text}` ends in a semicolon");
        value.report_help(message, format!("write `{meant}`"));
        return None;
    }
    if length > PATH_BYTES_MAX {
        value.report(format!(
            "the path of a Unix socket has at most {PATH_BYTES_MAX} bytes, not {length}"
        ));
        return None;
    }
    Some(ServerAddress::Unix(path))
}

/// `HOST:PORT`.
/// As [`address`], of a text that is no socket's.
pub(super) fn server_address(value: &Value<'_>, text: &str) -> Option<ServerAddress> {
    let parsed = text.parse::<SocketAddr>();
    let port = match (&parsed, text.rsplit_once(':')) {
        (Ok(address), _) => Some(address.port()),
        (Err(_), Some((_, port))) => port.parse::<u16>().ok(),
        (Err(_), None) => None,
    };
    let Some(port) = port.filter(|port| *port != 0) else {
        let help = "one looks like `127.0.0.1:9000`, `app.internal:9000` or `unix:/run/app.sock`";
        value.report_help(format!("`{text}` has no port from 1 to 65535"), help);
        return None;
    };
    if let Ok(address) = parsed {
        return Some(ServerAddress::Tcp(address));
    }
    let (name, _) = text.rsplit_once(':')?;
    let host = values::host(value, name)?;
    let address_like = host
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if address_like || host.starts_with('[') {
        value.report(format!("`{name}` is no address"));
        return None;
    }
    Some(ServerAddress::Name { host, port })
}

fn has_port(authority: &str) -> bool {
    authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'))
}

/// Scheme, authority and path of `http://HOST:PORT/PREFIX`.
fn url<'v>(value: &Value<'_>, text: &'v str) -> Option<(&'v str, &'v str, Option<String>)> {
    let (scheme, rest) = text.split_once("://")?;
    match scheme {
        "http" | "https" => {}
        "fastcgi" => {
            let help = "forward to it with `handler = { fastcgi = \"HOST:PORT\" }`";
            value.report_help("`proxy` forwards HTTP", help);
            return None;
        }
        _ => {
            value.report_help(
                format!("`{scheme}://` is unknown"),
                "a URL to forward to begins with `http://` or `https://`",
            );
            return None;
        }
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') || rest.contains(['?', '#']) {
        value.report("a URL to forward to has no user, query or fragment");
        return None;
    }
    if path.trim_end_matches('/').is_empty() {
        return Some((scheme, authority, None));
    }
    Some((scheme, authority, Some(prefix(value, path)?)))
}

/// A path's beginning: `/` and what follows, without a slash at its end.
pub(crate) fn prefix(value: &Value<'_>, text: &str) -> Option<String> {
    let prefix = text.trim_end_matches('/');
    let segments = prefix.strip_prefix('/').map(|rest| rest.split('/'));
    let segment_fits = |segment: &str| {
        !["", ".", ".."].contains(&segment)
            && segment
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&byte))
    };
    if !segments.is_some_and(|mut segments| segments.all(segment_fits)) {
        value.report_help(
            format!("`{text}` is no prefix of a path"),
            "one looks like `/app`",
        );
        return None;
    }
    Some(prefix.to_owned())
}
