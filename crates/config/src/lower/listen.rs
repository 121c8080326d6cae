//! `[[listen]]`: what is served where, and who is believed there.
//!
//! Whoever may open a listener's socket and is believed can pose as any client. Programs of sites
//! run on this machine, so nobody is believed for coming from it, but who may write to a socket.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::context::Spot;
use super::table::Table;
use super::tls;
use super::tops::Tops;
use super::upstream;
use super::value::Value;
use super::values::{self, parse_network};
use crate::keys;
use crate::model::{Handler, ListenAddress, Listener, Model, Protocols, Senders};

/// The permission by which everybody may connect to a Unix socket.
const ANYBODY_WRITES: u32 = 0o002;
/// Addresses of this machine itself.
const LOOPBACK_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
const LOOPBACK_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);

/// The listeners of all files, and what of those believed there any program of this machine could
/// pose as.
pub(super) fn listeners<'a>(tops: &Tops<'a>) -> (Vec<Listener>, Vec<Value<'a>>) {
    let (mut listeners, mut open) = (Vec::new(), Vec::new());
    let mut seen: BTreeMap<ListenAddress, Spot> = BTreeMap::new();
    let tables = tops.elements("listen", "`address = \"127.0.0.1:8080\"`");
    for table in tables.iter().filter_map(|value| value.table(&keys::LISTEN)) {
        let backlog = table.count("backlog") as u32;
        let mode = values::mode(&table.text("mode"));
        let Some(value) = table.required("address") else {
            continue;
        };
        let Some(address) = upstream::listen_address(&value) else {
            continue;
        };
        if let Some(first) = seen.get(&address) {
            value.report_again("two listeners have the same address", first.clone());
            continue;
        }
        seen.insert(address.clone(), value.spot());
        if mode.is_none() {
            let message = "`mode` is three or four octal digits, as in `\"0660\"`";
            table.report_at(&["mode"], message);
        } else if matches!(address, ListenAddress::Tcp(_)) && table.get("mode").is_some() {
            table.report_at(&["mode"], "`mode` is for Unix sockets");
        }
        let senders = table.get("proxy_protocol");
        let senders = senders.and_then(|value| senders_of(&value, &address));
        let tls = tls::of_listener(&table);
        let listener = Listener {
            address,
            backlog,
            mode: mode.unwrap_or_default(),
            senders: senders.unwrap_or_default(),
            protocols: protocols_of(&table, tls.is_some()),
            tls,
        };
        let from = table.get("proxy_protocol");
        let from = from.and_then(|value| value.member("from"));
        open.extend(
            from.iter()
                .flat_map(|from| open_to_programs(from, &listener)),
        );
        listeners.push(listener);
    }
    (listeners, open)
}

/// What is spoken at a listener.
fn protocols_of(table: &Table<'_>, is_tls: bool) -> Protocols {
    let Some(value) = table.get("protocols") else {
        return match is_tls {
            true => Protocols::BOTH,
            false => Protocols::HTTP11,
        };
    };
    let mut protocols = Protocols {
        http11: false,
        http2: false,
    };
    for name in value.one_or_list() {
        match (name.text(), is_tls) {
            (Some("http/1.1"), _) => protocols.http11 = true,
            (Some("h2"), true) | (Some("h2c"), false) => protocols.http2 = true,
            (Some("h2"), false) => {
                name.report(
                    "`\"h2\"` is HTTP/2 with TLS: this listener has none; `\"h2c\"` goes without",
                );
            }
            (Some("h2c"), true) => {
                name.report("`\"h2c\"` is HTTP/2 without TLS: with it, as here, it is `\"h2\"`");
            }
            (Some("h3"), _) => name.report("HTTP/3 is not spoken"),
            (Some(_), _) => {
                name.report("`protocols` knows `\"http/1.1\"`, `\"h2\"` and `\"h2c\"`");
            }
            (None, _) => {}
        }
    }
    if value.is_list() && value.one_or_list().is_empty() {
        value.report("`protocols` is empty: nobody could ask for anything");
    }
    protocols
}

fn senders_of(value: &Value<'_>, address: &ListenAddress) -> Option<Senders> {
    let from = value.table(&keys::SENDERS)?.required("from")?;
    let is_unix = from.is_text() && from.text() == Some("unix");
    match address {
        ListenAddress::Unix(_) if is_unix => Some(Senders::Unix),
        ListenAddress::Unix(_) => {
            let message = "who connects to a Unix socket has no address";
            from.report_help(message, "write `from = \"unix\"`");
            None
        }
        ListenAddress::Tcp(_) if is_unix => {
            from.report("`\"unix\"` is who connects to a Unix socket, and this is none");
            None
        }
        ListenAddress::Tcp(_) => {
            if from.is_list() && from.one_or_list().is_empty() {
                from.report("`from` is empty: nobody would have to send a header");
            }
            Some(Senders::Networks(values::networks(&from)))
        }
    }
}

/// What of a `from` holds programs of this machine, whoever runs them.
fn open_to_programs<'a>(from: &Value<'a>, listener: &Listener) -> Vec<Value<'a>> {
    match listener.senders {
        Senders::Unix if listener.mode & ANYBODY_WRITES != 0 => vec![*from],
        Senders::Networks(_) => loopback(from),
        _ => Vec::new(),
    }
}

/// Networks in a list that hold addresses of this machine itself.
fn loopback<'a>(networks: &Value<'a>) -> Vec<Value<'a>> {
    let holds_any = |network: IpNet| {
        let own = [IpNet::V4(LOOPBACK_V4), IpNet::V6(LOOPBACK_V6)];
        own.iter()
            .any(|own| network.contains(own) || own.contains(&network))
    };
    let is_own = |value: &Value<'_>| {
        let network = value.typed().and_then(|text| parse_network(&text).ok());
        network.is_some_and(holds_any)
    };
    let mut values = networks.one_or_list();
    values.retain(is_own);
    values
}

/// Refuses senders that any program of a site could pose as, and warns of such proxies.
pub(super) fn check_believed(tops: &Tops<'_>, open: &[Value<'_>], model: &Model) {
    let rules = model.sites.iter().flat_map(|site| &site.rules);
    let is_program =
        |handler: &Handler| handler.starts_programs() || matches!(handler, Handler::FastCgi(_));
    if !rules
        .filter_map(|rule| rule.handler.as_ref())
        .any(is_program)
    {
        return;
    }
    for value in open {
        value.report_help(
            "programs of sites run on this machine: each could connect here and pose as any client",
            "have the balancer come by a Unix socket that it alone may open: `address = \"unix:/PATH\"`, \
             `mode = \"0660\"`, `proxy_protocol = { from = \"unix\" }`",
        );
    }
    let proxies = tops.single("trusted_proxies");
    for value in proxies.iter().flat_map(loopback) {
        let message = "programs of sites run on this machine: each could pose as any client by `X-Forwarded-For`";
        let help =
            "have the proxy come by the PROXY protocol over a Unix socket that it alone may open";
        value.warn_help(message, help);
    }
}
