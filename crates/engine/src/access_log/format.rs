//! What a record says, in each of the four formats.
//!
//! `combined` and `vhost_combined` are Apache's, byte for byte:
//! `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`, with `%v:%p ` before it, and the reason
//! in quotes behind it where `log.reason` asks for that. `json` and
//! `ltsv` carry everything that is known, under the same names. Times are UTC, durations
//! microseconds.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use config::model::{LogFormat, Template};
use wire::{FieldId, Version};

use super::escape;
use super::times::Times;
use crate::address;
use crate::exchange::request::{Announced, Request};
use crate::exchange::{Exchange, Record};
use crate::refused::SAMPLE;
use crate::resolve::resolved::Resolved;
use crate::stage::Arrived;
use crate::template::{Values, expand};

/// What a record is made of.
pub(super) struct Facts<'a> {
    pub(super) arrived: Arrived<'a>,
    pub(super) exchange: &'a Exchange,
    /// At the second the request came in.
    pub(super) times: &'a Times,
    /// Microseconds of that second.
    pub(super) micros: u32,
    pub(super) ended: Instant,
}

/// Appends a record without its line feed.
pub(super) fn write(
    format: LogFormat,
    facts: &Facts<'_>,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    match format {
        LogFormat::Combined => combined(facts, out),
        LogFormat::VhostCombined => {
            escape::apache(site(facts).unwrap_or("-").as_bytes(), out);
            out.push(b':');
            number(facts.exchange.request.peer.local_port, out);
            out.push(b' ');
            combined(facts, out);
        }
        LogFormat::Json => json(facts, scratch, out),
        LogFormat::Ltsv => ltsv(facts, scratch, out),
    }
}

fn combined(facts: &Facts<'_>, out: &mut Vec<u8>) {
    let exchange = facts.exchange;
    let (request, record) = (&exchange.request, &exchange.record);
    client(request, out);
    out.extend_from_slice(b" - ");
    match record.user.as_bytes() {
        b"" => out.push(b'-'),
        user => escape::apache(user, out),
    }
    out.push(b' ');
    out.extend_from_slice(facts.times.common());
    out.extend_from_slice(b" \"");
    request_line(request, out);
    out.extend_from_slice(b"\" ");
    number(exchange.status(), out);
    out.push(b' ');
    match exchange.reply.body_bytes() {
        0 => out.push(b'-'),
        bytes => number(bytes, out),
    }
    for field in [FieldId::Referer, FieldId::UserAgent] {
        out.extend_from_slice(b" \"");
        let mut values = request.head.fields.get_all(field);
        match values.next() {
            None => out.push(b'-'),
            Some(first) => escape::apache(first, out),
        }
        for further in values {
            out.extend_from_slice(b", ");
            escape::apache(further, out);
        }
        out.push(b'"');
    }
    if facts.arrived.serving.generation.process.log.reason {
        // A word of ours: there is nothing to escape.
        let reason = Some(record.reason).filter(|reason| !reason.is_empty());
        out.extend_from_slice(b" \"");
        out.extend_from_slice(reason.unwrap_or("-").as_bytes());
        out.push(b'"');
    }
}

/// The client, as its address; `-` for a Unix socket, which has none.
fn client(request: &Request, out: &mut Vec<u8>) {
    match address_of(request.client) {
        Some(client) => address::push(client, out),
        None => out.push(b'-'),
    }
}

fn request_line(request: &Request, out: &mut Vec<u8>) {
    let head = &request.head;
    // Bytes that never became a request have no line to show.
    if head.method_bytes().is_empty() {
        return out.push(b'-');
    }
    escape::apache(head.sent_method(), out);
    out.push(b' ');
    escape::apache(head.target(), out);
    out.push(b' ');
    out.extend_from_slice(version(head.version));
}

/// Something a record can say.
enum Value<'a> {
    Absent,
    Text(&'a [u8]),
    Number(u64),
    Address(IpAddr),
    Time,
}

impl<'a> Value<'a> {
    fn text(text: Option<&'a [u8]>) -> Self {
        text.map_or(Self::Absent, Self::Text)
    }

    /// A number that is there or not.
    fn known(number: Option<u64>) -> Self {
        number.map_or(Self::Absent, Self::Number)
    }

    /// A word that is empty where there is none.
    fn word(word: &'a str) -> Self {
        Self::text((!word.is_empty()).then_some(word.as_bytes()))
    }
}

/// Hands out names and values of the formats that carry everything, but for `env`.
fn values<'a>(facts: &Facts<'a>, mut put: impl FnMut(&'static str, Value<'a>)) {
    put("time", Value::Time);
    asked(facts, &mut put);
    answered(facts, &mut put);
    let head = &facts.exchange.request.head;
    put("referer", Value::text(head.fields.get(FieldId::Referer)));
    let user_agent = head.fields.get(FieldId::UserAgent);
    put("user_agent", Value::text(user_agent));
}

/// What was asked, by whom.
fn asked<'a>(facts: &Facts<'a>, put: &mut impl FnMut(&'static str, Value<'a>)) {
    let (request, head) = (&facts.exchange.request, &facts.exchange.request.head);
    let known = !head.method_bytes().is_empty();
    let address = |address| address_of(address).map_or(Value::Absent, Value::Address);
    put("site", Value::text(site(facts).map(str::as_bytes)));
    put("host", Value::word(head.host()));
    put("client", address(request.client));
    put("peer", address(request.peer.address.ip()));
    put("port", Value::Number(request.peer.local_port.into()));
    put("method", Value::text(known.then(|| head.sent_method())));
    put("target", Value::text(known.then(|| head.target())));
    put("version", Value::text(known.then(|| version(head.version))));
    if let Some(said) = request.announced.as_deref() {
        announced(said, put);
    }
}

/// What the balancer in front said of the connection, where there is one that does.
fn announced<'a>(announced: &'a Announced, put: &mut impl FnMut(&'static str, Value<'a>)) {
    let sender = address_of(announced.sender).map_or(Value::Absent, Value::Address);
    let unique_id = Some(&*announced.unique_id).filter(|id| !id.is_empty());
    put("proxy_sender", sender);
    put("proxy_unique_id", Value::text(unique_id));
    put("proxy_authority", Value::word(&announced.authority));
    put("proxy_tls_version", Value::word(&announced.tls_version));
    put("proxy_tls_cipher", Value::word(&announced.tls_cipher));
    put("proxy_tls_client", Value::word(&announced.tls_client_name));
}

/// What became of it.
fn answered<'a>(facts: &Facts<'a>, put: &mut impl FnMut(&'static str, Value<'a>)) {
    let exchange = facts.exchange;
    let (request, record) = (&exchange.request, &exchange.record);
    let routed = facts.arrived.routed(&exchange.route);
    let rule = routed.and_then(|routed| {
        let route = &exchange.route;
        match route.refused_by {
            Some(_) => routed.refusing(route),
            None => routed.chosen(route).rule,
        }
    });
    let file = exchange.route.file.as_deref();
    let upstream = record.upstream.as_ref();
    let upstream_status = match record.upstream_status {
        0 => None,
        status => Some(status.into()),
    };
    let begun_us = |started: Instant| micros(started.duration_since(request.received));
    let total_us = micros(facts.ended.duration_since(request.received));
    let (used, limit) = (record.program, record.limit.as_deref());
    put("status", Value::Number(exchange.status().into()));
    put("bytes", Value::Number(exchange.reply.body_bytes()));
    put("bytes_in", Value::Number(exchange.body.bytes_read()));
    put("request_id", Value::Text(request.id.as_bytes()));
    put("handler", Value::word(record.handler));
    put("rule", Value::text(rule.map(|rule| rule.name.as_bytes())));
    put("file", Value::text(file.map(Resolved::name)));
    put("upstream", Value::text(upstream.map(|it| it.as_bytes())));
    put("upstream_status", Value::known(upstream_status));
    put(
        "queue_us",
        Value::known(record.handler_started.map(begun_us)),
    );
    put("waited_us", Value::known(record.waited_us));
    put(
        "upstream_us",
        Value::known(upstream.map(|_| record.upstream_us)),
    );
    put("total_us", Value::Number(total_us));
    put("program_cpu_us", Value::known(used.map(|it| it.cpu_us)));
    put(
        "program_peak_bytes",
        Value::known(used.map(|it| it.peak_bytes)),
    );
    put("reason", Value::word(record.reason));
    let key = limit.map(|_| record.limit_key.as_bytes());
    put("limit", Value::text(limit.map(str::as_bytes)));
    put("limit_key", Value::text(key));
    seldom(record, put);
    put("user", Value::word(&record.user));
    secured(facts, put);
}

/// What is named only where there is something to say: few wait for a pool, are rewritten, are of a
/// class, are shed or have limits in shadow, and everybody writes records.
fn seldom<'a>(record: &'a Record, put: &mut impl FnMut(&'static str, Value<'a>)) {
    if let Some(wait_us) = record.pool_wait_us {
        put("pool_wait_us", Value::Number(wait_us));
    }
    if !record.rewritten.is_empty() {
        put("rewritten", Value::Text(&record.rewritten));
    }
    if let Some(class) = record.class.as_deref() {
        put("class", Value::word(&class.name));
    }
    if record.is_sampled {
        put("sampled", Value::Number(SAMPLE));
    }
    if let Some(shed) = record.shed.as_deref() {
        put("shed", Value::word(&shed.rule.name));
    }
    if let Some(shadow) = record.shadow.as_deref() {
        put("shadow_reason", Value::word(shadow.reason));
        if let Some(refusal) = shadow.limit.as_deref() {
            put("shadow_limit", Value::word(&refusal.identity));
            put("shadow_key", Value::word(&refusal.key));
        }
        if let Some(rule) = &shadow.shed {
            put("shadow_shed", Value::word(&rule.name));
        }
        if let Some(said) = &shadow.script {
            put("shadow_script", Value::word(&said.script));
            put("shadow_said", Value::word(&said.word));
        }
    }
}

/// What a handshake has come to, of a request over TLS.
fn secured<'a>(facts: &Facts<'a>, put: &mut impl FnMut(&'static str, Value<'a>)) {
    let Some(tls) = facts.exchange.request.tls.as_deref() else {
        return;
    };
    put("tls_version", Value::word(tls.agreed.version));
    put("tls_cipher", Value::word(tls.agreed.cipher));
    put("tls_group", Value::word(tls.agreed.group));
    put("tls_resumed", Value::Number(tls.agreed.is_resumed.into()));
    put(
        "tls_name",
        Value::word(tls.name.as_deref().unwrap_or_default()),
    );
    put("handshake_us", Value::Number(tls.cpu_us));
    if let Some(client) = tls.client() {
        put("tls_client_subject", Value::word(&client.subject));
        put("tls_client_serial", Value::word(&client.serial));
    }
}

fn json(facts: &Facts<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    let mut before = &b"{\""[..];
    values(facts, |name, value| {
        out.extend_from_slice(std::mem::replace(&mut before, b",\""));
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        match value {
            Value::Absent => out.extend_from_slice(b"null"),
            Value::Number(value) => number(value, out),
            Value::Text(text) => quoted(text, out),
            Value::Address(value) => {
                out.push(b'"');
                address::push(value, out);
                out.push(b'"');
            }
            Value::Time => {
                out.push(b'"');
                time(facts, out);
                out.push(b'"');
            }
        }
    });
    out.extend_from_slice(b",\"env\":{");
    for (at, (name, value)) in variables(facts).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        quoted(name.as_bytes(), out);
        out.push(b':');
        quoted(value.expanded(scratch), out);
    }
    out.extend_from_slice(b"}}");
}

fn quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    escape::json(text, out);
    out.push(b'"');
}

fn ltsv(facts: &Facts<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    let mut is_first = true;
    values(facts, |name, value| {
        if !std::mem::take(&mut is_first) {
            out.push(b'\t');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        match value {
            Value::Absent => out.push(b'-'),
            Value::Number(value) => number(value, out),
            Value::Text(text) => escape::ltsv(text, out),
            Value::Address(value) => address::push(value, out),
            Value::Time => time(facts, out),
        }
    });
    for (name, value) in variables(facts) {
        out.extend_from_slice(b"\tenv.");
        escape::ltsv(name.as_bytes(), out);
        out.push(b':');
        escape::ltsv(value.expanded(scratch), out);
    }
}

/// What a variable holds.
struct Held<'a> {
    template: &'a Template,
    values: Values<'a>,
}

/// Variables of site and rules; of those of one name that hold the last one counts.
fn variables<'a>(facts: &Facts<'a>) -> impl Iterator<Item = (&'a str, Held<'a>)> {
    let exchange = facts.exchange;
    let layers = facts.arrived.layers(&exchange.route);
    let mut variables: Vec<(&str, Option<Held<'_>>)> = Vec::new();
    for (variable, values) in layers.flat_map(|layer| layer.variables(exchange)) {
        let template = variable.value.as_ref();
        let held = template.map(|template| Held { template, values });
        variables.retain(|(name, _)| *name != variable.name);
        variables.push((variable.name.as_str(), held));
    }
    let variables = variables.into_iter();
    variables.filter_map(|(name, held)| Some((name, held?)))
}

impl Held<'_> {
    fn expanded<'s>(&self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        scratch.clear();
        expand(self.template, self.values, scratch);
        scratch
    }
}

fn site<'a>(facts: &Facts<'a>) -> Option<&'a str> {
    facts.arrived.site_name(&facts.exchange.route)
}

fn version(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http2 => b"HTTP/2.0",
    }
}

/// `2026-11-21T20:45:00.123456Z`
fn time(facts: &Facts<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(facts.times.iso());
    let mut digits = itoa::Buffer::new();
    // A leading 1 keeps the zeros.
    let micros = digits.format(1_000_000 + facts.micros % 1_000_000);
    out.push(b'.');
    out.extend_from_slice(micros.as_bytes().get(1..).unwrap_or_default());
    out.push(b'Z');
}

fn number(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// `None` for a Unix socket.
fn address_of(address: IpAddr) -> Option<IpAddr> {
    (!address.is_unspecified()).then_some(address)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
