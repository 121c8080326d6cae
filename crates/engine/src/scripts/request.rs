//! An exchange as scripts see it.
//!
//! The idea: scripts speak to the model of the request, never to bytes. What they write is under
//! the rules of what clients send and handlers answer: no field that frames a message, no byte that
//! no field may hold. Fields of the reply that are set before there is one wait in [`Scripted`]
//! and replace the handler's of the same name.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use config::model::TlsClientFact;
use ipc::order::wish;
use os::cgroup::{Layout, Limits};
use script::{Ask, Phase, Property, Refused, Request, Scope, Side, TlsProperty, Woken};
use wire::{FieldId, Fields, Version, field_name_ok, field_value_ok};

use super::asks;
use super::scripted::Scripted;
use crate::exchange::Exchange;
use crate::site::Site;
use crate::stage::{Arrived, Routed};
use crate::tls::facts::TlsFacts;
use crate::tree::Tree;
use crate::upstream::named::named;
use crate::worker::serving::Serving;

/// Fields that frame a message or belong to one connection, and the request's name: ours.
const OWN: [FieldId; 11] = [
    FieldId::Connection,
    FieldId::ContentLength,
    FieldId::Expect,
    FieldId::Host,
    FieldId::KeepAlive,
    FieldId::ProxyConnection,
    FieldId::Te,
    FieldId::Trailer,
    FieldId::TransferEncoding,
    FieldId::Upgrade,
    FieldId::XRequestId,
];

/// Fields of one message that scripts may add up to.
const FIELDS_MAX: usize = 256;

/// Longest name and value of a field that a script sets.
const FIELD_BYTES_MAX: usize = 16 * 1024;

impl Request for Exchange {
    fn scope(&mut self) -> &mut Scope {
        &mut self.scripted().scope
    }

    fn read(&self, property: Property, out: &mut Vec<u8>) -> bool {
        match property {
            Property::Filename
            | Property::PathInfo
            | Property::DocumentRoot
            | Property::SiteName
            | Property::Tenant
            | Property::UpstreamName
            | Property::Handler => read_route(self, property, out),
            Property::Status
            | Property::ContentType
            | Property::Body
            | Property::BodyBytesSent
            | Property::BytesSent
            | Property::RequestTime
            | Property::UpstreamAddress
            | Property::UpstreamStatus
            | Property::UpstreamTime => read_reply(self, property, out),
            _ => read_request(self, property, out),
        }
    }

    fn server_of(&self, upstream: &[u8], out: &mut Vec<u8>) -> bool {
        let arrived = arrived(self.scripted.as_deref());
        arrived.is_some_and(|it| server_of(it.serving, upstream, out))
    }

    fn group(&self, name: &str) -> Option<(&Layout, Vec<String>)> {
        let routed = routed(self)?;
        let generation = &routed.serving.generation;
        let site = usize::try_from(routed.site_index).ok()?;
        let path = generation.group_of(site, *self.route.matched().last()?)?;
        let wished = wish(name, Limits::default()).path;
        Some((&generation.layout, [path.as_slice(), &wished].concat()))
    }

    fn row(&self, each: &mut dyn FnMut(&str, &str)) -> bool {
        let columns = self.request.row.as_ref().map(|row| row.columns());
        let columns = columns.into_iter().flatten();
        columns.for_each(|(name, text)| each(name, text));
        self.request.row.is_some()
    }

    fn write(&mut self, property: Property, value: &[u8]) -> Result<(), Refused> {
        match property {
            Property::Method | Property::Args | Property::Uri | Property::Filename => {
                rewrite(self, property, value)
            }
            Property::Status => {
                answers_still(self)?;
                let status = std::str::from_utf8(value).ok();
                let status = status.and_then(|text| text.trim().parse().ok());
                let status = status.filter(|status| (200..600).contains(status));
                let refused = || Refused("a status is a number from 200 to 599".to_owned());
                self.outgoing.status = status.ok_or_else(refused)?;
                Ok(())
            }
            Property::ContentType => self.set_field(Side::Out, b"Content-Type", &[value]),
            Property::Body => self.set_body(value),
            _ => Err(Refused(format!("{property:?} can only be read"))),
        }
    }

    fn field(&self, side: Side, name: &[u8], each: &mut dyn FnMut(&[u8])) {
        if let Some(fields) = fields(self, side) {
            fields.all_named(name).for_each(each);
        }
    }

    fn fields(&self, side: Side, each: &mut dyn FnMut(&[u8], &[u8])) {
        if let Some(fields) = fields(self, side) {
            fields
                .iter()
                .for_each(|field| each(field.name, field.value));
        }
    }

    fn set_field(&mut self, side: Side, name: &[u8], values: &[&[u8]]) -> Result<(), Refused> {
        let shown = || String::from_utf8_lossy(name).into_owned();
        if !field_name_ok(name) || name.len() > FIELD_BYTES_MAX {
            return Err(Refused(format!("no field is called {:?}", shown())));
        }
        if OWN.contains(&FieldId::of(name)) {
            tracing::debug!(request_id = %self.request.id, field = shown(), "a script set a field that is the gateway's own: left as it is");
            return Ok(());
        }
        let values = values.iter().map(|value| value.trim_ascii());
        let fits = |value: &[u8]| field_value_ok(value) && value.len() <= FIELD_BYTES_MAX;
        if !values.clone().all(fits) {
            return Err(Refused(format!(
                "the value of {} holds a byte no field may hold, or is longer than 16 KiB",
                shown()
            )));
        }
        let fields = fields_mut(self, side)?;
        fields.remove_named(name);
        if fields.len() + values.len() > FIELDS_MAX {
            return Err(Refused(format!("more than {FIELDS_MAX} fields")));
        }
        values.for_each(|value| fields.push(name, value));
        Ok(())
    }

    fn perform<'a>(&'a mut self, ask: Ask) -> Pin<Box<dyn Future<Output = Woken> + 'a>> {
        Box::pin(asks::perform(self, ask))
    }
}

/// The first server of an upstream.
pub(super) fn server_of(serving: &Serving, upstream: &[u8], out: &mut Vec<u8>) -> bool {
    let name = std::str::from_utf8(upstream).ok();
    let named = name.and_then(|name| named(serving, name));
    let Some(server) = named.and_then(|(_, upstream)| upstream.servers.first()) else {
        return false;
    };
    out.extend_from_slice(server.address.to_string().as_bytes());
    true
}

/// What the client sent, and who it is.
fn read_request(exchange: &Exchange, property: Property, out: &mut Vec<u8>) -> bool {
    let (request, head) = (&exchange.request, &exchange.request.head);
    match property {
        Property::Id => out.extend_from_slice(request.id.as_bytes()),
        Property::Method => out.extend_from_slice(head.method_bytes()),
        Property::Uri => out.extend_from_slice(head.path()),
        Property::UnparsedUri => out.extend_from_slice(head.target()),
        Property::RequestLine => {
            for part in [head.sent_method(), b" ", head.target(), b" "] {
                out.extend_from_slice(part);
            }
            out.extend_from_slice(version(head.version));
        }
        Property::Args => return text(head.query(), out),
        Property::Protocol => out.extend_from_slice(version(head.version)),
        Property::Scheme => out.extend_from_slice(request.scheme_word()),
        Property::Host => return word(head.host(), out),
        Property::HttpHost => return text(head.fields.get(FieldId::Host), out),
        Property::User => return word(&exchange.record.user, out),
        Property::RemoteAddress => return address(request.client, out),
        Property::RemotePort => return port(request.peer.address.port(), out),
        Property::LocalAddress => return address(request.peer.local_ip, out),
        Property::LocalPort => return port(request.peer.local_port, out),
        Property::ContentLength => {
            return match head.fields.contains(FieldId::ContentLength) {
                true => text(head.fields.get(FieldId::ContentLength), out),
                false => false,
            };
        }
        Property::RequestLength => number(head.bytes as u64 + exchange.body.bytes_read(), out),
        Property::Connection => number(request.connection, out),
        Property::ConnectionRequests => number(request.number, out),
        Property::Tls(property) => {
            let tls = request.tls.as_deref();
            return tls.is_some_and(|tls| read_tls(tls, property, out));
        }
        _ => return false,
    }
    true
}

/// What its handshake came to.
fn read_tls(tls: &TlsFacts, property: TlsProperty, out: &mut Vec<u8>) -> bool {
    let fact = match property {
        TlsProperty::Protocol => return word(tls.agreed.version, out),
        TlsProperty::Cipher => return word(tls.agreed.cipher, out),
        TlsProperty::ServerName => return word(tls.name.as_deref().unwrap_or_default(), out),
        TlsProperty::ClientSubject => TlsClientFact::Subject,
        TlsProperty::ClientIssuer => TlsClientFact::Issuer,
        TlsProperty::ClientSerial => TlsClientFact::Serial,
        TlsProperty::ClientFingerprint => TlsClientFact::Fingerprint,
        TlsProperty::ClientVerify => TlsClientFact::Verify,
        TlsProperty::ClientNotBefore => TlsClientFact::NotBefore,
        TlsProperty::ClientNotAfter => TlsClientFact::NotAfter,
        TlsProperty::ClientEscapedPem => TlsClientFact::EscapedPem,
    };
    tls.push_client(fact, out)
}

pub(super) fn arrived(scripted: Option<&Scripted>) -> Option<Arrived<'_>> {
    let (worker, serving) = scripted?.served()?;
    Some(Arrived {
        worker,
        serving,
        row: None,
    })
}

fn routed(exchange: &Exchange) -> Option<Routed<'_>> {
    let arrived = Arrived {
        row: Some(&exchange.route.row),
        ..arrived(exchange.scripted.as_deref())?
    };
    arrived.routed(&exchange.route)
}

/// What the configuration makes of it.
fn read_route(exchange: &Exchange, property: Property, out: &mut Vec<u8>) -> bool {
    let Some(routed) = routed(exchange) else {
        return false;
    };
    let (site, route) = (routed.site, &exchange.route);
    let path = route.lookup_path(&exchange.request);
    let tree = site.tree_of(path);
    let root = tree.map(|tree| tree.root.path.as_os_str());
    let file = exchange.route.file.as_deref();
    match property {
        Property::Filename => match (file, tree) {
            (Some(file), _) => out.extend_from_slice(file.name()),
            // Not looked for yet, or not to be found without waiting: where it would be.
            (None, Some(tree)) => {
                let root = tree.root.path.as_os_str().as_bytes();
                out.extend_from_slice(root.strip_suffix(b"/").unwrap_or(root));
                out.extend_from_slice(tree.below(path).unwrap_or_default());
            }
            (None, None) => return false,
        },
        Property::PathInfo => {
            let rest = file.map(|file| file.path_info());
            return text(rest.filter(|rest| !rest.is_empty()), out);
        }
        Property::DocumentRoot => return text(root.map(OsStrExt::as_bytes), out),
        Property::SiteName => out.extend_from_slice(site.name.as_bytes()),
        Property::Tenant => out.extend_from_slice(site.tenant_name.as_bytes()),
        Property::UpstreamName => {
            let chosen = routed.chosen(route);
            return word(chosen.upstream_name(route).unwrap_or_default(), out);
        }
        Property::Handler => {
            let handler = routed.chosen(route).handler.word();
            out.extend_from_slice(handler.as_bytes());
        }
        _ => return false,
    }
    true
}

/// What becomes of it.
fn read_reply(exchange: &Exchange, property: Property, out: &mut Vec<u8>) -> bool {
    let record = &exchange.record;
    match property {
        Property::Status => match status(exchange) {
            0 => return false,
            status => number(status.into(), out),
        },
        Property::ContentType => {
            let fields = fields(exchange, Side::Out);
            return text(fields.and_then(|it| it.get(FieldId::ContentType)), out);
        }
        Property::BodyBytesSent => number(exchange.reply.body_bytes(), out),
        Property::BytesSent => number(exchange.reply.sent_bytes(), out),
        Property::RequestTime => {
            let ended = exchange.scripted.as_ref().and_then(|it| it.ended);
            let ended = ended.unwrap_or_else(Instant::now);
            let since = ended.saturating_duration_since(exchange.request.received);
            seconds(since, out);
        }
        Property::UpstreamAddress => return word(record.upstream.as_deref().unwrap_or(""), out),
        Property::UpstreamStatus if record.upstream_status != 0 => {
            number(record.upstream_status.into(), out);
        }
        Property::UpstreamTime if record.upstream.is_some() => {
            seconds(Duration::from_micros(record.upstream_us), out);
        }
        Property::Body => {
            let body = exchange.scripted.as_ref().and_then(|it| it.body.as_ref());
            return text(body.map(|body| &*body.bytes), out);
        }
        _ => return false,
    }
    true
}

/// The reply's status so far; 0 if there is none.
fn status(exchange: &Exchange) -> u16 {
    match (phase(exchange), exchange.reply.has_started()) {
        (Some(Phase::Log), _) => exchange.status(),
        (_, true) => exchange.reply.status(),
        (_, false) => exchange.outgoing.status,
    }
}

fn phase(exchange: &Exchange) -> Option<Phase> {
    exchange.scripted.as_ref().map(|scripted| scripted.phase)
}

/// Whether the reply has no fields of its own yet.
fn is_before_reply(phase: Option<Phase>) -> bool {
    matches!(phase, Some(Phase::Rewrite | Phase::Access | Phase::Set))
}

fn fields(exchange: &Exchange, side: Side) -> Option<&Fields> {
    match side {
        Side::In => Some(&exchange.request.head.fields),
        Side::Out if is_before_reply(phase(exchange)) => {
            exchange.scripted.as_ref().map(|it| &it.fields_out)
        }
        Side::Out => Some(&exchange.outgoing.fields),
        Side::Upstream => exchange.scripted.as_ref().map(|it| &it.fields_upstream),
    }
}

fn fields_mut(exchange: &mut Exchange, side: Side) -> Result<&mut Fields, Refused> {
    let phase = phase(exchange);
    match side {
        Side::In if is_before_reply(phase) || phase == Some(Phase::Content) => {
            Ok(&mut exchange.request.head.fields)
        }
        Side::In => Err(Refused(
            "nobody will look at the request's fields any more".to_owned(),
        )),
        Side::Upstream => Err(Refused("the upstream's fields can only be read".to_owned())),
        Side::Out if is_before_reply(phase) => Ok(&mut exchange.scripted().fields_out),
        Side::Out => {
            answers_still(exchange)?;
            Ok(&mut exchange.outgoing.fields)
        }
    }
}

fn answers_still(exchange: &Exchange) -> Result<(), Refused> {
    match exchange.reply.has_started() || phase(exchange) == Some(Phase::Log) {
        true => Err(Refused("the head of the reply has been sent".to_owned())),
        false => Ok(()),
    }
}

/// Changes what is asked for.
fn rewrite(exchange: &mut Exchange, property: Property, value: &[u8]) -> Result<(), Refused> {
    let phase = phase(exchange);
    let early = match property {
        Property::Method | Property::Args => is_before_reply(phase),
        _ => phase == Some(Phase::Rewrite),
    };
    if !early {
        return Err(Refused(match property {
            Property::Method | Property::Args => {
                "it is too late to change what is asked for".to_owned()
            }
            _ => "path and file can only be changed in the phase rewrite".to_owned(),
        }));
    }
    let Exchange {
        request,
        route,
        scripted,
        ..
    } = exchange;
    let arrived = arrived(scripted.as_deref());
    let row = route.row.clone();
    let arrived = arrived.map(|arrived| Arrived {
        row: Some(&row),
        ..arrived
    });
    let Some(site) = arrived.and_then(|arrived| arrived.site(route)) else {
        return Err(Refused("the request is for no site".to_owned()));
    };
    let rules = site.path_rules;
    let head = &mut request.head;
    let rewritten = match property {
        Property::Method => head.rewrite_method(value),
        Property::Args => head.rewrite_query((!value.is_empty()).then_some(value)),
        Property::Uri if value == head.path() => Ok(()),
        Property::Uri => head.rewrite_path(value, rules),
        _ => {
            let path = path_of_file(site, value)?;
            let path = wire::canonical_path(&path, rules);
            path.map(|path| route.look_up(path))
        }
    };
    rewritten.map_err(|refusal| {
        let value = value.escape_ascii();
        Refused(format!(
            "{value} is nothing a request may ask for: {}",
            refusal.reason
        ))
    })
}

/// The path at which a file is looked for that a script names.
fn path_of_file(site: &Site, file: &[u8]) -> Result<Vec<u8>, Refused> {
    let root = |tree: &Tree| {
        let root = tree.root.path.as_os_str().as_bytes();
        root.strip_suffix(b"/").unwrap_or(root).to_vec()
    };
    let path = |tree: &Tree| {
        let root = Some(root(tree)).filter(|root| !root.is_empty())?;
        let below = file.strip_prefix(&*root).filter(|it| it.starts_with(b"/"));
        Some([tree.path.as_bytes(), below?].concat())
    };
    site.trees().find_map(path).ok_or_else(|| {
        let roots: Vec<_> = site.trees().map(root).collect();
        let roots = String::from_utf8_lossy(&roots.join(&b", "[..])).into_owned();
        Refused(format!("a file is below the site's root, {roots}"))
    })
}

fn text(text: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    if let Some(text) = text {
        out.extend_from_slice(text);
    }
    text.is_some()
}

/// A word that is empty where there is none.
pub(super) fn word(word: &str, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(word.as_bytes());
    !word.is_empty()
}

/// An address; a Unix socket has none.
pub(super) fn address(address: std::net::IpAddr, out: &mut Vec<u8>) -> bool {
    let is_known = !address.is_unspecified();
    if is_known {
        crate::address::push(address, out);
    }
    is_known
}

/// A port; a Unix socket has none.
pub(super) fn port(port: u16, out: &mut Vec<u8>) -> bool {
    if port != 0 {
        number(port.into(), out);
    }
    port != 0
}

fn number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Seconds with milliseconds: `0.123`.
fn seconds(duration: Duration, out: &mut Vec<u8>) {
    // Memory takes all.
    let _ = write!(
        out,
        "{}.{:03}",
        duration.as_secs(),
        duration.subsec_millis()
    );
}

fn version(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http2 => b"HTTP/2.0",
    }
}
