//! The request head an upstream sees, written from the parsed model and from nothing else.
//!
//! Framing, `Host`, `Via` and every forwarding field are ours; the client's own copies are passed
//! on only where its peer is a trusted proxy.

use std::net::IpAddr;

use wire::{FieldId, Framing, encode_field};

use super::mapping::{cut, host};
use super::{Forward, HOP, HOPS_MAX, hops};
use crate::address;
use crate::exchange::Exchange;
use crate::exchange::request::Request;

/// Writes the head for one attempt.
pub(super) fn write(out: &mut Vec<u8>, exchange: &Exchange, forward: &Forward<'_>, server: &str) {
    let request = &exchange.request;
    request_line(out, request, forward);
    encode_field(b"Host", host(request, forward.proxy, server), out);
    let fields = &request.head.fields;
    fields.encode(out, |id| passes(id, request.peer_trusted));
    forwarding(out, request);
    framing(out, request, forward.spooled_bytes);
    match &forward.upgrade {
        Some(protocols) => {
            encode_field(b"Upgrade", protocols, out);
            out.extend_from_slice(b"Connection: upgrade\r\n\r\n");
        }
        None => out.extend_from_slice(b"\r\n"),
    }
}

fn request_line(out: &mut Vec<u8>, request: &Request, forward: &Forward<'_>) {
    let head = &request.head;
    out.extend_from_slice(head.method_bytes());
    out.push(b' ');
    if head.is_asterisk() {
        out.push(b'*');
    } else {
        let target = forward.target.as_deref();
        match target {
            Some(target) => out.extend_from_slice(target),
            None => path(out, head.path_wire(), forward),
        }
        let has_own = target.is_some_and(|target| target.contains(&b'?'));
        if let Some(query) = head.query().filter(|_| !has_own) {
            out.push(b'?');
            out.extend_from_slice(query);
        }
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// The path with its prefix cut and another put before it. A prefix is cut at a segment's end only.
fn path(out: &mut Vec<u8>, path: &[u8], forward: &Forward<'_>) {
    let rest = cut(path, forward.proxy).unwrap_or(path);
    let prefix = forward.proxy.add_prefix.as_deref().unwrap_or_default();
    let prefix = prefix.trim_end_matches('/');
    out.extend_from_slice(prefix.as_bytes());
    if prefix.is_empty() && rest.is_empty() {
        out.push(b'/');
    }
    out.extend_from_slice(rest);
}

/// Whether a field goes on as it came.
fn passes(id: FieldId, peer_trusted: bool) -> bool {
    match id {
        FieldId::Host
        | FieldId::ContentLength
        | FieldId::TransferEncoding
        | FieldId::Connection
        | FieldId::Upgrade
        | FieldId::Expect
        | FieldId::XForwardedFor
        | FieldId::XRealIp
        | FieldId::XRequestId => false,
        FieldId::XForwardedProto | FieldId::XForwardedHost | FieldId::Forwarded | FieldId::Via => {
            peer_trusted
        }
        _ => true,
    }
}

fn forwarding(out: &mut Vec<u8>, request: &Request) {
    let fields = &request.head.fields;
    out.extend_from_slice(b"X-Forwarded-For: ");
    if request.peer_trusted {
        for value in fields.get_all(FieldId::XForwardedFor) {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    let peer = out.len();
    known(request.peer.address.ip(), out);
    let peer = peer..out.len();
    out.extend_from_slice(b"X-Real-IP: ");
    match request.peer_trusted {
        true => known(request.client, out),
        // The client is the peer, which has just been spelt out.
        false => out.extend_from_within(peer),
    }
    if !(request.peer_trusted && fields.contains(FieldId::XForwardedProto)) {
        let proto: &[u8] = if request.tls.is_some() {
            b"https"
        } else {
            b"http"
        };
        encode_field(b"X-Forwarded-Proto", proto, out);
    }
    if !(request.peer_trusted && fields.contains(FieldId::XForwardedHost)) {
        encode_field(b"X-Forwarded-Host", request.head.authority(), out);
    }
    encode_field(b"X-Request-Id", request.id.as_bytes(), out);
    // Of what others say of its way only our own mark counts: a circle is found by it.
    let before = match request.peer_trusted {
        true => 0,
        false => hops(fields).min(HOPS_MAX),
    };
    out.extend_from_slice(b"Via: ");
    for _ in 0..before {
        out.extend_from_slice(HOP);
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(HOP);
    out.extend_from_slice(b"\r\n");
}

/// An address and the line's end; a Unix socket has none to tell (RFC 7239 §6).
fn known(address: IpAddr, out: &mut Vec<u8>) {
    match address.is_unspecified() {
        true => out.extend_from_slice(b"unknown"),
        false => address::push(address, out),
    }
    out.extend_from_slice(b"\r\n");
}

/// The length of a body taken beforehand is known, however it came.
fn framing(out: &mut Vec<u8>, request: &Request, spooled_bytes: Option<u64>) {
    match (request.head.framing, spooled_bytes) {
        (Framing::None, _) => {}
        (Framing::Length(length), _) | (Framing::Chunked, Some(length)) => encode_field(
            b"Content-Length",
            itoa::Buffer::new().format(length).as_bytes(),
            out,
        ),
        (Framing::Chunked, None) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}
