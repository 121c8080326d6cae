//! The `Connection` field: persistence, upgrades, and what must not travel on.
//!
//! Hop-by-hop fields end here. A peer may name further fields of its own as hop-by-hop, but it may
//! not use that to take away fields others rely on: those this crate knows, and whatever says who
//! the client is.

use crate::{
    field_id::FieldId,
    fields::Fields,
    framing::Version,
    octets::{is_token_byte, list},
    refusal::Refusal,
};

/// Most options `Connection` may list, so that no head makes us compare thousands of names.
const OPTIONS_MAX: usize = 64;

/// Fields that concern one connection only. `Content-Length` is not one: the sender writes it anew.
const HOP_BY_HOP: u64 = FieldId::Connection.bit()
    | FieldId::KeepAlive.bit()
    | FieldId::ProxyConnection.bit()
    | FieldId::ProxyAuthenticate.bit()
    | FieldId::ProxyAuthorization.bit()
    | FieldId::Te.bit()
    | FieldId::Trailer.bit()
    | FieldId::TransferEncoding.bit()
    | FieldId::Upgrade.bit()
    | FieldId::Http2Settings.bit();

/// Removes hop-by-hop fields: the standard ones, and those `Connection` lists unless they are protected.
pub fn strip_hop_by_hop(fields: &mut Fields) {
    if !fields.contains_any(HOP_BY_HOP) {
        return;
    }
    if says_keep_alive_only(fields) {
        return fields.remove_all(HOP_BY_HOP);
    }
    let own: Vec<Vec<u8>> = listed(fields)
        .filter(|name| may_be_listed(name))
        .map(<[u8]>::to_vec)
        .collect();
    fields.remove_all(HOP_BY_HOP);
    if !own.is_empty() {
        fields.retain(|field| !own.iter().any(|name| field.name.eq_ignore_ascii_case(name)));
    }
}

/// Whether `Connection` lists a name, in any case.
pub(crate) fn lists(fields: &Fields, name: &[u8]) -> bool {
    listed(fields).any(|token| token.eq_ignore_ascii_case(name))
}

/// Whether the sender means to keep the connection.
pub(crate) fn keeps_alive(fields: &Fields, version: Version) -> Result<bool, Refusal> {
    let is_http11 = version == Version::Http11;
    if !fields.contains(FieldId::Connection) {
        return Ok(is_http11);
    }
    if says_keep_alive_only(fields) {
        return Ok(true);
    }
    let (mut options, mut close, mut keep_alive) = (0, false, false);
    for option in listed(fields) {
        options += 1;
        close |= option.eq_ignore_ascii_case(b"close");
        keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    if options > OPTIONS_MAX {
        return Err(Refusal::bad("connection_list_too_long"));
    }
    Ok((is_http11 || keep_alive) && !close)
}

/// Writes the protocols of `Upgrade` in lower case, if `Connection` says so too and a tunnel can carry them.
pub(crate) fn upgrade(fields: &Fields, protocols: &mut Vec<u8>) {
    protocols.clear();
    if !fields.contains(FieldId::Upgrade) || !lists(fields, b"upgrade") {
        return;
    }
    for protocol in fields.get_all(FieldId::Upgrade).flat_map(list) {
        let well_formed = protocol
            .iter()
            .all(|&byte| is_token_byte(byte) || byte == b'/');
        // HTTP/2 in clear text would carry requests past every rule of this gateway.
        if !well_formed || protocol.eq_ignore_ascii_case(b"h2c") {
            protocols.clear();
            return;
        }
        if !protocols.is_empty() {
            protocols.extend_from_slice(b", ");
        }
        protocols.extend(protocol.iter().map(u8::to_ascii_lowercase));
    }
}

/// What nearly everybody says, seen without taking the list apart.
fn says_keep_alive_only(fields: &Fields) -> bool {
    let mut lines = fields.get_all(FieldId::Connection);
    let first = lines.next().unwrap_or_default();
    first.eq_ignore_ascii_case(b"keep-alive") && lines.next().is_none()
}

fn listed(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    fields.get_all(FieldId::Connection).flat_map(list)
}

/// Whether a peer may declare a field its own: none that is known, and none that names the client.
fn may_be_listed(name: &[u8]) -> bool {
    let forwarding = name
        .get(..12)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"x-forwarded-"));
    FieldId::of(name) == FieldId::Other && !forwarding
}
