//! What a script says the upstream is, judged.
//!
//! A script can be made to say what a client wants it to say, by way of a database or of a field.
//! So what it says is one of the upstreams in the configuration, or an address, which counts only
//! where `allow` holds it. A name is looked up first and its addresses are judged; a connection is
//! made to an address that was judged and to no other, and never to where this gateway listens.

use std::net::{IpAddr, SocketAddr};

use config::model::{AllowedAddress, Protocol, Upstream};

use super::{Destination, dial};
use crate::worker::resources::Resources;
use crate::worker::serving::Serving;

/// Longest name of an upstream or a server.
const NAME_BYTES_MAX: usize = 300;
/// The port of an address that names none.
const PORT: u16 = 80;

/// Why a request is not sent where a script wants it: what to tell the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It may not go there, or nobody is there.
    No(String),
    /// There are too many upstreams that scripts have named.
    Full(String),
}

/// Who has said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Script,
    Row,
}

/// Judges what a script has said.
///
/// # Errors
/// Why the request cannot go there.
pub(crate) async fn choose(
    resources: &Resources,
    serving: &Serving,
    allow: &[AllowedAddress],
    said: &[u8],
) -> Result<Destination, Refused> {
    let text = place(said).map_err(|why| no(said, why))?;
    if let Some(index) = configured(serving, text).map_err(|why| no(said, why))? {
        return Ok(Destination::Configured(index));
    }
    if allow.is_empty() {
        let why = "no upstream has this name, and no address may be chosen: see `allow` of the handler `proxy`";
        return Err(no(said, why));
    }
    address(resources, serving, (allow, Whose::Script), said, text).await
}

/// Judges what a row has said: an address, or a host's name and a port, never an upstream's name.
///
/// # Errors
/// As [`choose`].
pub(crate) async fn by_row(
    resources: &Resources,
    serving: &Serving,
    allow: &[AllowedAddress],
    said: &[u8],
) -> Result<Destination, Refused> {
    let text = place(said).map_err(|why| no(said, why))?;
    address(resources, serving, (allow, Whose::Row), said, text).await
}

/// As [`by_row`], where nothing has to be looked up: `None` where it is a host's name.
pub(crate) fn literal(
    resources: &Resources,
    serving: &Serving,
    allow: &[AllowedAddress],
    said: &[u8],
) -> Option<Result<Destination, Refused>> {
    let address: SocketAddr = str::from_utf8(said).ok()?.parse().ok()?;
    let address = canonical(address);
    let listeners = &serving.generation.listeners;
    let is_here = || serving.dynamic.is_of_this_machine(resources, address);
    if let Err(why) = judge(listeners, (allow, Whose::Row), address, is_here) {
        return Some(Err(no(said, &why)));
    }
    let text = str::from_utf8(said).ok()?;
    let pool = serving.dynamic.pool(resources, text, &[address]);
    let pool = pool.ok_or_else(|| full("upstreams that rows have named"));
    Some(pool.map(Destination::Dynamic))
}

/// Judges an address that a row has said, as whoever asks this; a host's name is judged where it is looked up.
///
/// # Errors
/// Why nothing is forwarded there.
pub(crate) fn by_literal_row(
    listeners: &[SocketAddr],
    allow: &[AllowedAddress],
    said: &str,
) -> Result<(), String> {
    let judged = place(said.as_bytes()).and_then(host_and_port);
    let judged = judged
        .map_err(str::to_owned)
        .and_then(|(host, port)| match host {
            Host::Address(ip) => {
                let address = SocketAddr::new(ip, port);
                let is_here = || is_of_this_machine(address);
                judge(listeners, (allow, Whose::Row), address, is_here)
            }
            Host::Name(_) => Ok(()),
        });
    judged.map_err(|why| format!("its upstream {said:.80?}: {why}"))
}

async fn address(
    resources: &Resources,
    serving: &Serving,
    allow: (&[AllowedAddress], Whose),
    said: &[u8],
    text: &str,
) -> Result<Destination, Refused> {
    let (host, port) = host_and_port(text).map_err(|why| no(said, why))?;
    let addresses: Vec<SocketAddr> = match &host {
        Host::Address(ip) => vec![SocketAddr::new(*ip, port)],
        Host::Name(name) => {
            let place = format!("{name}:{port}");
            let names = serving.dynamic.names(resources, &place);
            let names = names.ok_or_else(|| full("names that scripts have said"))?;
            let found = dial::addresses_of(resources, &names, name, port).await;
            let found = found.map_err(|error| no(said, &error.detail))?;
            found.iter().map(|address| canonical(*address)).collect()
        }
    };
    let listeners = &serving.generation.listeners;
    let mut judged = Vec::with_capacity(addresses.len());
    let mut refused = String::new();
    for address in addresses {
        let is_here = || serving.dynamic.is_of_this_machine(resources, address);
        match judge(listeners, allow, address, is_here) {
            Ok(()) => judged.push(address),
            Err(why) => refused = why,
        }
    }
    if judged.is_empty() {
        return Err(no(said, &refused));
    }
    let pool = serving.dynamic.pool(resources, text, &judged);
    let pool = pool.ok_or_else(|| full("upstreams that scripts have named"))?;
    Ok(Destination::Dynamic(pool))
}

fn no(said: &[u8], why: &str) -> Refused {
    let shown = said.get(..NAME_BYTES_MAX).unwrap_or(said);
    Refused::No(format!("\"{}\": {why}", shown.escape_ascii()))
}

fn full(of_what: &str) -> Refused {
    Refused::Full(format!("too many {of_what}, and all in use"))
}

/// What a script has said, without the `http://` and the `/` that may stand around it.
fn place(said: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(said).map_err(|_| "no text")?.trim();
    if text.len() > NAME_BYTES_MAX {
        return Err("too long");
    }
    if text.starts_with("unix:") {
        return Err(
            "Unix sockets are for the configuration: write an upstream with it and say its name",
        );
    }
    let text = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some(_) => {
            return Err(
                "only http can be spoken to what a script names: for https write an upstream with `tls` and say its name",
            );
        }
        None => text,
    };
    let text = text.strip_suffix('/').unwrap_or(text);
    match text {
        "" => Err("nothing was said"),
        _ if text.contains(['/', '?', '#']) => {
            Err("a path is not for the upstream to say: change the request's uri, or `add_prefix`")
        }
        _ => Ok(text),
    }
}

/// The upstream of this name, and its index. Those that handlers write as addresses have no name.
pub(crate) fn named<'a>(serving: &'a Serving, name: &str) -> Option<(usize, &'a Upstream)> {
    let mut upstreams = serving.generation.upstreams.iter().enumerate();
    let (index, upstream) =
        upstreams.find(|(_, upstream)| upstream.name == name && !name.contains(':'))?;
    Some((index, upstream))
}

/// The index of the upstream of this name, to which the handler `proxy` can forward.
fn configured(serving: &Serving, text: &str) -> Result<Option<usize>, &'static str> {
    match named(serving, text) {
        None => Ok(None),
        Some((index, upstream)) if upstream.protocol == Protocol::Http => Ok(Some(index)),
        Some(_) => Err("this upstream speaks FastCGI, and the handler is `proxy`"),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

fn host_and_port(text: &str) -> Result<(Host, u16), &'static str> {
    let wrong = "neither an upstream's name nor HOST:PORT or [V6]:PORT";
    let (host, given) = config::split_port(text);
    let port = match given {
        Some(text) => port(text).ok_or(wrong)?,
        None => PORT,
    };
    if host.len() < text.len() && text.starts_with('[') {
        let ip: std::net::Ipv6Addr = host.parse().map_err(|_| wrong)?;
        return Ok((Host::Address(IpAddr::from(ip).to_canonical()), port));
    }
    if let Ok(ip) = host.parse::<std::net::Ipv4Addr>() {
        return Ok((Host::Address(ip.into()), port));
    }
    let is_name = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match is_name {
        true => Ok((Host::Name(host.to_ascii_lowercase()), port)),
        false => Err(wrong),
    }
}

fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

/// An IPv4 address within IPv6 is IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn judge(
    listeners: &[SocketAddr],
    (allow, whose): (&[AllowedAddress], Whose),
    address: SocketAddr,
    is_here: impl Fn() -> bool,
) -> Result<(), String> {
    // All of a network does not hold this machine, where a row says it.
    let names_it = |allowed: &AllowedAddress| {
        let network = &allowed.network;
        network.prefix_len() == network.max_prefix_len() || network.addr().is_loopback()
    };
    let mut holding = allow.iter().filter(|allowed| allowed.holds(address));
    let is_meant =
        |allowed: &AllowedAddress| whose == Whose::Script || names_it(allowed) || !is_here();
    if !holding.any(is_meant) {
        return Err(format!(
            "{address} is not in `allow` of the handler `proxy`"
        ));
    }
    // The kernel takes it for this machine.
    if address.ip().is_unspecified() {
        return Err(format!("{address} is no address of a server"));
    }
    match is_own(listeners, address) {
        true => Err(format!("this gateway listens on {address} itself")),
        false => Ok(()),
    }
}

/// Whether a connection to this address would come to one of the gateway's own listeners.
fn is_own(listeners: &[SocketAddr], address: SocketAddr) -> bool {
    let of_port = listeners.iter().map(|listener| canonical(*listener));
    let mut of_port = of_port.filter(|listener| listener.port() == address.port());
    of_port.any(|listener| match listener.ip().is_unspecified() {
        true => is_of_this_machine(address),
        false => listener.ip() == address.ip(),
    })
}

/// Where the kernel has no way there, nobody is reached.
pub(super) fn is_of_this_machine(address: SocketAddr) -> bool {
    address.ip().is_loopback()
        || os::stream::speaks_from(address).is_ok_and(|own| own == address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, block_on};

    const CONFIG: &str = r#"
[[listen]]
address = "127.0.0.1:8080"
[[listen]]
address = "0.0.0.0:8081"
[[listen]]
address = "[::1]:8082"
[upstreams.app]
servers = ["127.0.0.1:9000"]
[upstreams.php]
protocol = "fastcgi"
servers = ["127.0.0.1:9001"]
[[sites]]
hosts = ["a"]
  [[sites.rules]]
  match = { path = "/inline" }
  handler = { proxy = "http://192.0.2.1:9002" }
  [[sites.rules]]
  handler = { proxy = { script = { code = "1" }, allow = ["127.0.0.0/8", "10.0.0.0/8", "192.0.2.5:81", "::/0", "0.0.0.0"] } }
"#;

    /// Where what a script has said leads: an upstream's name and its servers, or why nowhere.
    fn led(said: &str) -> String {
        let fixture = Fixture::new(CONFIG);
        let serving = fixture.worker.serving();
        let handlers = serving.generation.sites[0].rules.iter();
        let handler = handlers.last().expect("rules").handler.as_ref();
        let Some(config::model::Handler::Proxy(proxy)) = handler else {
            panic!("a proxy");
        };
        let allow = &proxy.allow;
        match block_on(choose(&fixture.worker, &serving, allow, said.as_bytes())) {
            Ok(Destination::Configured(index)) => serving.generation.upstreams[index].name.clone(),
            Ok(Destination::Dynamic(pool)) => {
                let servers: Vec<_> = pool.servers().iter().map(|it| &*it.label).collect();
                format!("{} at {}", pool.name(), servers.join(", "))
            }
            Err(Refused::No(why) | Refused::Full(why)) => why,
        }
    }

    #[test]
    fn an_upstream_is_named_or_an_address_within_those_allowed() {
        for (said, expected) in [
            ("app", "app"),
            ("http://app/", "app"),
            ("127.0.0.1:9000", "127.0.0.1:9000 at 127.0.0.1:9000"),
            (" 10.1.2.3\n", "10.1.2.3 at 10.1.2.3:80"),
            ("http://10.1.2.3:90/", "10.1.2.3:90 at 10.1.2.3:90"),
            ("[2001:db8::1]:90", "[2001:db8::1]:90 at [2001:db8::1]:90"),
            (
                "[::ffff:10.0.0.1]:90",
                "[::ffff:10.0.0.1]:90 at 10.0.0.1:90",
            ),
            ("192.0.2.5:81", "192.0.2.5:81 at 192.0.2.5:81"),
            ("localhost:9000", "localhost:9000 at 127.0.0.1:9000"),
        ] {
            let led = led(said);
            // A machine may have an IPv6 address under its own name, too.
            assert!(
                led == expected || led.contains(expected.split(" at ").last().unwrap_or_default()),
                "{said}: {led}"
            );
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused_with_its_reason() {
        for (said, why) in [
            ("", "nothing was said"),
            ("http:///", "nothing was said"),
            ("php", "speaks FastCGI"),
            ("https://10.0.0.1", "only http"),
            (
                "unix:/run/app.sock",
                "Unix sockets are for the configuration",
            ),
            ("10.0.0.1/path", "a path is not for the upstream"),
            ("10.0.0.1?x", "a path is not for the upstream"),
            ("::1", "neither an upstream's name nor HOST:PORT"),
            ("10.0.0.1:0", "neither"),
            ("10.0.0.1:99999", "neither"),
            ("10.0.0.1:+80", "neither"),
            ("user@10.0.0.1:80", "neither"),
            ("a b", "neither"),
            ("192.0.2.1:9002", "192.0.2.1:9002 is not in `allow`"),
            ("192.0.2.5:82", "192.0.2.5:82 is not in `allow`"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80 is not in `allow`"),
            ("169.254.169.254", "169.254.169.254:80 is not in `allow`"),
        ] {
            let led = led(said);
            assert!(led.contains(why), "{said}: {led}");
        }
        assert!(led(&"a".repeat(400)).contains("too long"));
    }

    #[test]
    fn a_row_leads_to_this_machine_where_its_very_address_is_allowed_alone() {
        let here: SocketAddr = "10.0.0.5:11211".parse().expect("an address");
        let judged = |network: &str, whose, is_here: bool| {
            let network = network.parse().expect("a network");
            let allow = [AllowedAddress {
                network,
                port: None,
            }];
            judge(&[], (&allow, whose), here, || is_here).is_ok()
        };
        assert!(judged("10.0.0.0/8", Whose::Row, false));
        assert!(!judged("10.0.0.0/8", Whose::Row, true));
        assert!(judged("10.0.0.5/32", Whose::Row, true));
        assert!(!judged("10.0.0.6/32", Whose::Row, false));
        assert!(judged("10.0.0.0/8", Whose::Script, true));
        let fixture = Fixture::new(CONFIG);
        let serving = fixture.worker.serving();
        let is_here = |address: &str| {
            let address = address.parse().expect("an address");
            serving.dynamic.is_of_this_machine(&fixture.worker, address)
        };
        assert!(is_here("127.0.0.1:80") && is_here("127.0.0.1:81") && is_here("[::1]:80"));
        assert!(!is_here("192.0.2.1:80"));
    }

    #[test]
    fn nobody_is_sent_to_where_the_gateway_itself_listens() {
        for said in [
            "127.0.0.1:8080",
            "[::ffff:127.0.0.1]:8080",
            "localhost:8080",
            "127.0.0.1:8081",
            "127.9.9.9:8081",
            "[::1]:8081",
            "[::1]:8082",
        ] {
            let led = led(said);
            // A name may have further addresses, where nobody listens.
            let has_other = said.starts_with("localhost") && led.contains("at [::1]:8080");
            assert!(
                has_other || led.contains("this gateway listens on"),
                "{said}: {led}"
            );
        }
        for said in ["0.0.0.0:8080", "0.0.0.0:9000", "[::]:8081"] {
            assert!(led(said).contains("is no address of a server"), "{said}");
        }
        assert_eq!(led("127.9.9.9:8080"), "127.9.9.9:8080 at 127.9.9.9:8080");
    }
}
