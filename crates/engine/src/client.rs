//! Who asks: the peer, or the client a trusted proxy names; and the request's id.
//!
//! Forwarding fields are believed only from `trusted_proxies`. The address taken is the rightmost
//! one in `X-Forwarded-For` that is not itself a trusted proxy: everything left of it is hearsay.

use std::net::{IpAddr, SocketAddr};

use wire::FieldId;

use crate::exchange::Exchange;
use crate::exchange::request::RequestId;
use crate::generation::Generation;

/// Hops of `X-Forwarded-For` looked at.
const HOPS_MAX: usize = 32;

/// Fills in the client and the id.
pub(crate) fn identify(exchange: &mut Exchange, generation: &Generation, id: RequestId) {
    let request = &mut exchange.request;
    let peer = request.peer.address.ip().to_canonical();
    request.id = id;
    request.client = peer;
    request.peer_trusted = generation.trusts(peer);
    if !request.peer_trusted {
        return;
    }
    let fields = &request.head.fields;
    if let Some(incoming) = fields
        .get(FieldId::XRequestId)
        .and_then(RequestId::from_field)
    {
        request.id = incoming;
    }
    request.client = forwarded_for(fields, generation).unwrap_or(peer);
}

fn forwarded_for(fields: &wire::Fields, generation: &Generation) -> Option<IpAddr> {
    let lines: Vec<&[u8]> = fields.get_all(FieldId::XForwardedFor).collect();
    let hops = lines
        .iter()
        .rev()
        .flat_map(|line| line.rsplit(|byte| *byte == b','));
    let mut last = None;
    for hop in hops.take(HOPS_MAX) {
        let address = parse(hop.trim_ascii())?;
        last = Some(address);
        if !generation.trusts(address) {
            break;
        }
    }
    last
}

/// An address as proxies write it: bare, with a port, or in brackets.
fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let address = bare
        .parse()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()))?;
    Some(IpAddr::to_canonical(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_usual_form() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:80", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
        ] {
            assert_eq!(
                parse(text.as_bytes()),
                expected.map(|text| text.parse().expect(text)),
                "{text}"
            );
        }
    }
}
