//! Making a connection: name to addresses, then each address in turn.
//!
//! Names are looked up on the helper pool and again after `timeouts.resolve`. When a look-up
//! fails the last good answer stays in use: a resolver's bad minute is no reason to stop serving.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use config::model::ServerAddress;
use os::stream::{Target, connect};

use super::link::Link;
use super::server::Server;
use crate::error::{Error, Kind, Result};
use crate::io::Io;
use crate::worker::Worker;

/// Addresses of one name that are kept.
const ADDRESSES_MAX: usize = 16;
/// How long a failed look-up is not repeated.
const RETRY_MS: u64 = 1_000;

/// What a server's name stood for when it was last looked up.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: RefCell<Rc<[SocketAddr]>>,
    fresh_until_ms: std::cell::Cell<u64>,
}

/// Connects to a server.
///
/// # Errors
/// When its name has no address, or none of them accepts in time.
pub(super) async fn dial(worker: &Worker, server: &Server) -> Result<Link> {
    match &server.address {
        ServerAddress::Tcp(address) => to(worker, server, Target::Tcp(*address)).await,
        ServerAddress::Unix(path) => to(worker, server, Target::Unix(path)).await,
        ServerAddress::Name { host, port } => {
            let addresses = addresses(worker, server, host, *port).await?;
            let mut failure = unreachable(server, &io::ErrorKind::NotFound.into());
            for address in addresses.iter() {
                match to(worker, server, Target::Tcp(*address)).await {
                    Ok(link) => return Ok(link),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        }
    }
}

async fn to(worker: &Worker, server: &Server, target: Target<'_>) -> Result<Link> {
    let connect_ms = worker
        .serving()
        .generation
        .process
        .timeouts
        .upstream_connect_ms;
    let deadline = worker.deadlines.register();
    let io = connect(target)
        .and_then(Io::new)
        .map_err(|error| unreachable(server, &error))?;
    deadline.set(connect_ms);
    io.connected(&deadline)
        .await
        .map_err(|error| unreachable(server, &error))?;
    deadline.clear();
    Ok(Link::new(io, &worker.buffers, deadline))
}

fn unreachable(server: &Server, error: &io::Error) -> Error {
    let (kind, reason) = match error.kind() {
        io::ErrorKind::TimedOut => (Kind::UpstreamSlow, "upstream_connect_timeout"),
        _ => (Kind::UpstreamDown, "upstream_unreachable"),
    };
    Error::new(
        kind,
        reason,
        format!("connect to {}: {error}", server.label),
    )
}

async fn addresses(
    worker: &Worker,
    server: &Server,
    host: &str,
    port: u16,
) -> Result<Rc<[SocketAddr]>> {
    let names = &server.names;
    let now_ms = worker.deadlines.now_ms();
    let known = Rc::clone(&names.known.borrow());
    if now_ms < names.fresh_until_ms.get() && !known.is_empty() {
        return Ok(known);
    }
    // Others use the old answer while this look-up is under way.
    names.fresh_until_ms.set(now_ms + RETRY_MS);
    match look_up(host.to_owned(), port).await {
        Ok(found) => {
            let resolve_ms = worker.serving().generation.process.timeouts.resolve_ms;
            names.fresh_until_ms.set(now_ms + resolve_ms);
            *names.known.borrow_mut() = Rc::clone(&found);
            Ok(found)
        }
        Err(error) if known.is_empty() => {
            let detail = format!("look up {host}: {error}");
            Err(Error::new(Kind::UpstreamDown, "upstream_name", detail))
        }
        Err(error) => {
            tracing::warn!(name = host, %error, "look-up failed, the last answer stays in use");
            Ok(known)
        }
    }
}

async fn look_up(host: String, port: u16) -> io::Result<Rc<[SocketAddr]>> {
    let found = tokio::task::spawn_blocking(move || {
        (host.as_str(), port)
            .to_socket_addrs()
            .map(|found| found.take(ADDRESSES_MAX).collect::<Vec<_>>())
    });
    let found = found.await.map_err(io::Error::other)??;
    if found.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(found.into())
}
