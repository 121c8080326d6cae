//! For whom a peer speaks that has to say so: the header of the PROXY protocol before all else.
//!
//! It is looked at until it is whole, and then taken, so that not a byte behind it is lost to
//! whoever reads on. One deadline holds for all of it. A peer that sends none is closed without a
//! word, as it would be by a balancer's own reckoning, and the log is told now and then.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use wire::proxy_protocol::{HEADER_BYTES_MAX, NoHeader, ProxyHeader, parse};

use super::arrival::Listener;
use crate::deadline::Awaited;
use crate::exchange::request::{Announced, Peer};
use crate::io::Io;
use crate::worker::Worker;

/// How often the log hears of senders without a header from one listener and worker.
const TELL_EVERY_MS: u64 = 60_000;

/// Who is at the other end of a connection, as its sender says, and what else it says.
type Said = (Peer, Option<Rc<Announced>>);

/// Reads the header that `sender` has to begin with, within `timeouts.header`.
///
/// # Errors
/// Why there is none; `None` for a peer that has gone without a byte, as one that only looks
/// whether somebody listens.
pub(super) async fn read(worker: &Worker, io: &Io, sender: Peer) -> Result<Said, Option<NoHeader>> {
    let deadline = worker.deadlines.register();
    let header_ms = worker.serving().generation.process.timeouts.header_ms;
    deadline.set_for(Awaited::FirstRequest, header_ms);
    let mut seen = 0;
    let said = poll_fn(|cx| match poll_header(io, cx, sender, &mut seen) {
        Poll::Pending => deadline.poll_expired(cx).map(|()| Err(Some("proxy_late"))),
        ready => ready,
    });
    said.await
}

fn poll_header(
    io: &Io,
    cx: &mut Context<'_>,
    sender: Peer,
    seen: &mut usize,
) -> Poll<Result<Said, Option<NoHeader>>> {
    let mut room = [0; HEADER_BYTES_MAX];
    loop {
        let count = match ready!(io.poll_peek(cx, &mut room, *seen)) {
            Ok(count) if count > *seen => count,
            Ok(_) if *seen > 0 => return Poll::Ready(Err(Some("proxy_cut"))),
            Ok(_) | Err(_) => return Poll::Ready(Err(None)),
        };
        *seen = count;
        let there = room.get(..count).unwrap_or_default();
        let Some((header, length)) = parse(there).map_err(Some)? else {
            continue;
        };
        let said = said(&header, sender);
        let taken = room.get_mut(..length).unwrap_or_default();
        // All of it is there, and nobody else reads here.
        return match io.poll_read(cx, taken) {
            Poll::Ready(Ok(count)) if count == length => Poll::Ready(Ok(said)),
            _ => Poll::Ready(Err(None)),
        };
    }
}

fn said(header: &ProxyHeader<'_>, sender: Peer) -> Said {
    let peer = header.endpoints.map_or(sender, |ends| Peer {
        address: ends.source,
        local_ip: ends.destination.ip(),
        local_port: ends.destination.port(),
    });
    let announced = Announced {
        sender: sender.address.ip(),
        unique_id: header.unique_id.into(),
        authority: header.authority.into(),
        tls_version: header.tls_version.into(),
        tls_cipher: header.tls_cipher.into(),
        tls_client_name: header.tls_client_name.into(),
    };
    (peer, Some(Rc::new(announced)))
}

/// Tells the log why a peer was closed, now and then.
pub(super) fn tell(worker: &Worker, listener: &Listener, sender: Peer, reason: Option<NoHeader>) {
    let (Some(reason), now_ms) = (reason, worker.deadlines.now_ms().max(1)) else {
        return;
    };
    crate::stats::bump(&worker.stats.refused, 1);
    let told_ms = listener.told_ms.load(Relaxed);
    if told_ms != 0 && now_ms < told_ms + TELL_EVERY_MS {
        return;
    }
    listener.told_ms.store(now_ms, Relaxed);
    let peer = match sender.address.ip() {
        address if address.is_unspecified() => "a Unix socket".to_owned(),
        address => IpAddr::to_string(&address),
    };
    tracing::warn!(
        peer,
        reason,
        "closed: no header of the PROXY protocol came from a peer that has to send one (proxy_protocol.from)"
    );
}
