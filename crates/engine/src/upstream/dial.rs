//! Making a connection: name to addresses, then each address in turn, then TLS.
//!
//! Names are looked up on the helper pool and again after `timeouts.resolve`: each name once at a
//! time, however many ask and whether or not they stay. Who needs an answer waits for it no longer
//! than for a connection. While there is none the last good one stays in use: a resolver's bad
//! minute is no reason to stop serving.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use config::model::ServerAddress;
use os::stream::{Target, connect};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::handshake::shake_hands;
use super::link::Link;
use super::server::Server;
use crate::error::{Error, Kind, Result};
use crate::helper::Lane;
use crate::io::Io;
use crate::worker::resources::Resources;

/// Addresses of one name that are kept.
const ADDRESSES_MAX: usize = 16;
/// The reason where nobody listens.
pub(crate) const UNREACHABLE: &str = "upstream_unreachable";
/// How long a failed look-up is not repeated.
const RETRY_MS: u64 = 1_000;

/// What a server's name stood for when it was last looked up.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: RefCell<Rc<[SocketAddr]>>,
    fresh_until_ms: Cell<u64>,
    /// Why the last look-up failed.
    failure: RefCell<String>,
    under_way: Cell<bool>,
    /// Wakes those who wait for the look-up under way.
    ended: Notify,
}

/// Connects to a server, with TLS where that is spoken. What is said on the connection begins with `opening`.
///
/// # Errors
/// When its name has no address, none of them accepts in time, or TLS with it comes to nothing.
pub(super) async fn dial(
    resources: &Resources,
    server: &Server,
    opening: &[u8],
) -> Result<Box<Link>> {
    match &server.address {
        ServerAddress::Tcp(address) => to(resources, server, Target::Tcp(*address), opening).await,
        ServerAddress::Unix(path) => to(resources, server, Target::Unix(path), opening).await,
        ServerAddress::Name { host, port } => {
            let (name, port) = (host.clone(), *port);
            let work = move || look_up(&name, port);
            let addresses = server.names.addresses(resources, host, work).await?;
            let mut failure = unreachable(server, &io::ErrorKind::NotFound.into());
            for address in addresses.iter() {
                match to(resources, server, Target::Tcp(*address), opening).await {
                    Ok(link) => return Ok(link),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        }
    }
}

/// What a name that a script has said stands for.
///
/// # Errors
/// When it has no address, or none is known in time.
pub(super) async fn addresses_of(
    resources: &Resources,
    names: &Rc<Names>,
    host: &str,
    port: u16,
) -> Result<Rc<[SocketAddr]>> {
    let name = host.to_owned();
    let work = move || look_up(&name, port);
    names.addresses(resources, host, work).await
}

async fn to(
    resources: &Resources,
    server: &Server,
    target: Target<'_>,
    opening: &[u8],
) -> Result<Box<Link>> {
    let hand_overs = server.hand_overs.get();
    let deadline = resources.deadlines.register();
    let io = connect(target)
        .and_then(Io::new)
        .map_err(|error| unreachable(server, &error))?;
    deadline.set(resources.connect_ms.get());
    io.connected(&deadline)
        .await
        .map_err(|error| unreachable(server, &error))?;
    let who = server.who();
    let (io, unsent) = match &server.tls {
        None => (io, opening),
        Some(tls) => {
            let made = shake_hands(resources, (server, tls), io, opening, &deadline);
            // In a box: hardly any request waits for it.
            (Box::pin(made).await?, &[][..])
        }
    };
    let mut link = Link::new(io, &resources.buffers, &resources.deadlines);
    link.out.bytes().extend_from_slice(unsent);
    link.who = who;
    link.hand_overs = hand_overs;
    Ok(Box::new(link))
}

fn unreachable(server: &Server, error: &io::Error) -> Error {
    let (kind, reason) = match error.kind() {
        io::ErrorKind::TimedOut => (Kind::UpstreamSlow, "upstream_connect_timeout"),
        // A Unix socket's way to say that more wait there than it lets wait.
        io::ErrorKind::WouldBlock => (Kind::Full, "upstream_queue_full"),
        _ => (Kind::UpstreamDown, UNREACHABLE),
    };
    let why = match (kind, &server.address) {
        (Kind::Full, _) => "too many connections wait there already".to_owned(),
        (_, ServerAddress::Unix(path)) if error.kind() == io::ErrorKind::PermissionDenied => {
            denied(path, error)
        }
        _ => config::reason(error),
    };
    Error::new(kind, reason, format!("connect to {}: {why}", server.label))
}

/// Whom a socket lets in, for somebody it did not.
fn denied(path: &Path, error: &io::Error) -> String {
    let (why, own) = (config::reason(error), os::process::user_id());
    let Ok(socket) = std::fs::metadata(path) else {
        return format!("{why}: user {own} may not enter a directory on the way");
    };
    let (owner, group, mode) = (socket.uid(), socket.gid(), socket.mode() & 0o7777);
    format!(
        "{why}: the socket belongs to user {owner} and group {group} (mode {mode:04o}), and this \
         is user {own}: set its owner (listen.owner in a pool of php-fpm)"
    )
}

fn unknown(host: &str, why: &str) -> Error {
    let detail = format!("look up {host}: {why}");
    Error::new(Kind::UpstreamDown, "upstream_name", detail)
}

impl Names {
    /// Whether the answer is out of date, and nobody waits for another.
    pub(super) fn is_forgettable(self: &Rc<Self>, now_ms: u64) -> bool {
        Rc::strong_count(self) == 1 && now_ms >= self.fresh_until_ms.get()
    }

    /// What the name stands for; `look_up` finds out where that has to be done now.
    async fn addresses(
        self: &Rc<Self>,
        resources: &Resources,
        host: &str,
        look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Rc<[SocketAddr]>> {
        let known = Rc::clone(&self.known.borrow());
        let is_fresh = resources.deadlines.now_ms() < self.fresh_until_ms.get();
        // Others use the old answer while a look-up is under way.
        if !known.is_empty() && (is_fresh || self.under_way.get()) {
            return Ok(known);
        }
        if !is_fresh {
            let ended = self.ended.notified();
            if !self.under_way.replace(true) {
                self.renew(resources, host, look_up);
            }
            let patience = Duration::from_millis(resources.connect_ms.get());
            if timeout(patience, ended).await.is_err() && known.is_empty() {
                return Err(unknown(host, "no answer yet"));
            }
        }
        let known = Rc::clone(&self.known.borrow());
        match known.is_empty() {
            true => Err(unknown(host, &self.failure.borrow())),
            false => Ok(known),
        }
    }

    /// Has the name looked up, for all who wait now and those who come later.
    fn renew(
        self: &Rc<Self>,
        resources: &Resources,
        host: &str,
        look_up: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) {
        let (names, name) = (Rc::clone(self), host.to_owned());
        let (helpers, deadlines) = (resources.helpers.clone(), Rc::clone(&resources.deadlines));
        let resolve_ms = resources.resolve_ms.get();
        // Part of no exchange: whoever asked first may leave, and the others still want to know.
        tokio::task::spawn_local(async move {
            let found = match helpers.run(Lane::Names, look_up).await {
                Ok(found) => found.map_err(|error| config::reason(&error)),
                Err(error) => Err(error.to_string()),
            };
            let fresh_ms = match found {
                Ok(found) => {
                    *names.known.borrow_mut() = found.into();
                    resolve_ms
                }
                Err(error) => {
                    if !names.known.borrow().is_empty() {
                        tracing::warn!(name, error, "look-up failed, the last answer stays in use");
                    }
                    *names.failure.borrow_mut() = error;
                    RETRY_MS
                }
            };
            names.fresh_until_ms.set(deadlines.now_ms() + fresh_ms);
            names.under_way.set(false);
            names.ended.notify_waiters();
        });
    }
}

fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = (host, port)
        .to_socket_addrs()?
        .take(ADDRESSES_MAX)
        .collect();
    match found.is_empty() {
        true => Err(io::ErrorKind::NotFound.into()),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::fixture::{Fixture, block_on};

    const CONFIG: &str = r#"
timeouts = { upstream_connect = "20ms" }
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "" } } }]
"#;

    const HERE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 80);

    #[test]
    fn a_name_server_that_hangs_has_one_question_and_nobody_waits_longer_than_to_connect() {
        let fixture = Fixture::new(CONFIG);
        let names = Rc::new(Names::default());
        block_on(async {
            let (answer, server) = channel();
            let first = move || server.recv().map_err(io::Error::other);
            let late = names.addresses(&fixture.worker, "a.test", first).await;
            assert!(late.expect_err("none").detail.ends_with("no answer yet"));
            let never = || -> io::Result<Vec<_>> { panic!("it is under way or known") };
            for _ in 0..10 {
                let late = names.addresses(&fixture.worker, "a.test", never).await;
                assert!(late.expect_err("none").detail.ends_with("no answer yet"));
            }
            // Those who asked have gone; the answer still counts.
            answer.send(vec![HERE]).expect("a helper waits");
            for _ in 0..500 {
                match names.addresses(&fixture.worker, "a.test", never).await {
                    Ok(known) => return assert_eq!(*known, [HERE]),
                    Err(error) => assert!(error.detail.ends_with("no answer yet")),
                }
            }
            panic!("the answer was lost");
        });
    }

    #[test]
    fn a_name_nobody_knows_is_not_looked_up_for_each_request() {
        let fixture = Fixture::new(CONFIG);
        let names = Rc::new(Names::default());
        block_on(async {
            let mut first = unknown("a.test", "no answer yet");
            for _ in 0..500 {
                if first.detail.ends_with("no answer yet") {
                    let missing = || Err(io::ErrorKind::NotFound.into());
                    let answer = names.addresses(&fixture.worker, "a.test", missing).await;
                    first = answer.expect_err("none");
                }
            }
            assert_eq!(first.reason, "upstream_name");
            let again = || -> io::Result<Vec<_>> { panic!("it was looked up just now") };
            let second = names.addresses(&fixture.worker, "a.test", again).await;
            assert_eq!(second.expect_err("none").detail, first.detail);
        });
    }
}
