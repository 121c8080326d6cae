//! From the first byte of a connection to the first byte of its first request: the handshake.
//!
//! A worker reads the hello and finds out whose it is; what costs is made by a handshake thread, behind a fair queue.
//! Until the name has led to a certificate, and limits and queue have let it in, a client has cost some parsing and
//! nothing else. What comes to nothing is recorded, once.

mod named;
mod proof;
mod scripts;

use std::cell::OnceCell;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use config::model::{ListenTls, Protocols};
use ipc::certificates::{Certificate, KeyId, KeyKind, Source};
use limits::handshake::StepKind;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use tokio::io::unix::AsyncFd;
use wire::client_hello::{self, ClientHello, HELLO_RECEIVED_MAX, Reading};

use self::named::NamedRow;
use super::facts::TlsFacts;
use super::failures::FailedHandshake;
use super::handshake::{Made, Who};
use super::keeper::KeeperKey;
use super::policy::Policy;
use super::session::{self, AwaitedFlight, Rest, Session};
use super::stream::TlsStream;
use super::table::CertificateTable;
use crate::deadline::{Awaited, Deadline};
use crate::error::{Error, Kind};
use crate::exchange::request::Peer;
use crate::io::{Io, poll_out, receive};
use crate::permits::handshake::{HandshakePermit, admit};
use crate::worker::Worker;
use crate::worker::serving::Serving;

/// Most that is read at once, and so most that lies unread beyond a flight of the client's.
const READ_BYTES: usize = 4 * 1024;
/// How often what comes behind the hello is read, at most: in so many pieces a chain of certificates may arrive.
const READS_MAX: usize = 32;
/// What a client that speaks HTTP on a port for TLS is told.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 57\r\nConnection: close\r\n\r\nThis port speaks TLS. Come with https:// instead of http.";
/// A warning of TLS that no name of ours was asked for (RFC 6066, 3): fatal `unrecognized_name`.
const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];
/// Fatal `internal_error`: TLS has no word for busy.
const INTERNAL_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

/// A handshake under way.
struct Handshake<'a> {
    worker: &'a Rc<Worker>,
    serving: &'a Rc<Serving>,
    socket: AsyncFd<OwnedFd>,
    peer: Peer,
    deadline: Deadline,
    name: Option<Box<str>>,
    /// What is known of the row of that name.
    row: NamedRow,
    offered: Vec<u16>,
    cpu_us: u64,
    /// Processor time that scripts took and nobody was charged for yet.
    unpaid_ns: u64,
    /// What is spoken behind it.
    protocols: Protocols,
}

/// A handshake that has come to its end.
struct Completed {
    session: Session,
    /// What it still has to say.
    unsent: Vec<u8>,
    policy: Arc<Policy>,
    /// Where the certificate is from, unless a script chose it.
    source: Option<Source>,
}

/// Why a handshake ends, and what is sent for it.
struct Over {
    reason: &'static str,
    alert: Option<u8>,
    detail: String,
    last_word: &'static [u8],
}

/// What the client is shown.
struct Shown {
    chain: Vec<CertificateDer<'static>>,
    key: KeyId,
    kind: KeyKind,
}

/// What a step of a handshake has come to.
struct Stepped {
    session: Session,
    /// What it signs with, where it still has to.
    key: Arc<KeeperKey>,
    out: Vec<u8>,
    rest: Result<Rest, session::SessionFailure>,
}

impl Stepped {
    /// Has the session hear what was received, on the thread that `key` was told of.
    fn hear(mut session: Session, key: Arc<KeeperKey>, received: &[u8], mut out: Vec<u8>) -> Self {
        let rest = session.receive(received, &mut out);
        let rest = rest.map_err(|failure| session::SessionFailure {
            reason: key.failed().unwrap_or(failure.reason),
            ..failure
        });
        Self {
            session,
            key,
            out,
            rest,
        }
    }

    /// What the step turned out to be.
    fn was(&self) -> StepKind {
        match self.session.is_resumed() {
            true => StepKind::Short,
            false => StepKind::Full,
        }
    }
}

/// Makes the handshake of a fresh connection; `None` where it comes to nothing.
pub(crate) async fn accept(
    worker: &Rc<Worker>,
    tls: &ListenTls,
    socket: AsyncFd<OwnedFd>,
    peer: Peer,
    protocols: Protocols,
) -> Option<(Io, Rc<TlsFacts>)> {
    let serving = worker.serving();
    let mut handshake = Handshake {
        worker,
        serving: &serving,
        socket,
        peer,
        deadline: worker.deadlines.register(),
        name: None,
        row: NamedRow::Unknown,
        offered: Vec::new(),
        cpu_us: 0,
        unpaid_ns: 0,
        protocols,
    };
    match handshake.run(tls).await {
        Ok(None) => None,
        Ok(Some(completed)) => {
            let Completed {
                session, unsent, ..
            } = completed;
            let facts = TlsFacts {
                agreed: session.agreed(),
                name: handshake.name,
                policy: completed.policy.id,
                source: completed.source,
                cpu_us: handshake.cpu_us,
                client: OnceCell::new(),
            };
            let stream = TlsStream::new(handshake.socket, session, unsent, &worker.buffers);
            Some((Io::Tls(Box::new(stream)), Rc::new(facts)))
        }
        Err(over) => {
            let is_for_people = over.last_word == PLAIN;
            let (socket, deadline) = handshake.record(over);
            if is_for_people {
                // The rest of its request may be unread.
                Io::Socket(socket).farewell(&deadline).await;
            }
            None
        }
    }
}

impl Handshake<'_> {
    /// Has it made; none where it was made for its own sake alone.
    async fn run(&mut self, tls: &ListenTls) -> Result<Option<Completed>, Over> {
        let timeouts = &self.serving.generation.process.timeouts;
        self.deadline
            .set_for(Awaited::FirstRequest, timeouts.header_ms);
        let (received, hello) = self.hello().await?;
        self.deadline.set(timeouts.handshake_ms);
        self.name.clone_from(&hello.name);
        self.offered.clone_from(&hello.offered);
        let mut table = self.worker.shared.certificates.table();
        let mut asked = hello.name.as_deref().and_then(|name| self.site_of(name));
        if hello.is_acme {
            return self.prove(asked, received).await.map(|()| None);
        }
        if let Some(name) = hello.name.as_deref() {
            self.row = self.row_of(name).await;
            self.deadline.set(timeouts.handshake_ms);
            asked = self.row.index().or(asked);
        }
        let mut permit = None;
        if let Some(site) = self.scripted_site(&hello, asked, tls) {
            permit = Some(self.admit(Some(site))?);
            if let Some(shown) = self.shown_by_scripts(site, &hello).await? {
                let (who, policy) = (self.who_says(Some(site), &hello), self.policy(Some(site))?);
                let (session, unsent) = self.make(shown, &policy, who, received).await?;
                self.deadline.clear();
                return Ok(Some(Completed {
                    session,
                    unsent,
                    policy,
                    source: None,
                }));
            }
        }
        let acceptor = self.acceptor_of(&table, &hello, asked);
        if acceptor.is_some() && permit.is_none() {
            permit = Some(self.admit(asked)?);
        }
        if let (Some(acceptor), Some(name)) = (acceptor, hello.name.as_deref()) {
            self.obtain(&acceptor, name).await?;
            self.deadline.set(timeouts.handshake_ms);
            table = self.worker.shared.certificates.table();
        }
        let (site, certificate) = self.choose(&table, &hello, asked, tls)?;
        let policy = self.policy(site)?;
        let who = self.who_says(site, &hello);
        let _permit = match permit {
            Some(permit) => permit,
            None => self.admit(site)?,
        };
        let shown = Shown {
            chain: table.chain(certificate),
            key: certificate.key,
            kind: certificate.kind,
        };
        let made = self.make(shown, &policy, who, received).await;
        self.count(certificate, &made);
        let (session, unsent) = made?;
        self.deadline.clear();
        Ok(Some(Completed {
            session,
            unsent,
            policy,
            source: Some(certificate.source.clone()),
        }))
    }

    /// The terms of a site.
    fn policy(&self, site: Option<u32>) -> Result<Arc<Policy>, Over> {
        let policy = self.serving.generation.policies.of(site).cloned();
        policy.ok_or_else(|| Over::of("no_certificate", "no policy"))
    }

    /// Asks the limits of a site.
    fn admit(&self, site: Option<u32>) -> Result<Option<HandshakePermit>, Over> {
        let site = site.and_then(|site| self.serving.generation.sites.get(site as usize));
        let permit = site.map(|site| admit(self.worker, self.serving, site, self.client()));
        Ok(permit.transpose().map_err(Over::of_error)?.flatten())
    }

    /// Makes the steps.
    async fn make(
        &mut self,
        shown: Shown,
        policy: &Arc<Policy>,
        who: Who,
        received: Vec<u8>,
    ) -> Result<(Session, Vec<u8>), Over> {
        let stepped = self.begin(shown, policy, who, received).await?;
        self.finish(stepped, policy, who).await
    }

    /// Counts what a certificate was good for.
    fn count<T>(&self, certificate: &Certificate, made: &Result<T, Over>) {
        let is_completed = match made {
            Ok(_) => true,
            Err(over) if over.alert.is_some() => false,
            Err(_) => return,
        };
        let certificates = &self.worker.shared.certificates;
        certificates.count(&certificate.source, is_completed);
    }

    /// Reads until the hello is whole.
    async fn hello(&mut self) -> Result<(Vec<u8>, Box<ClientHello>), Over> {
        let mut received = Vec::new();
        loop {
            if received.len() > HELLO_RECEIVED_MAX {
                return Err(Over::of("hello_too_large", ""));
            }
            self.read(&mut received).await?;
            match client_hello::read(&received) {
                Reading::More => {}
                Reading::Hello(hello) => return Ok((received, hello)),
                Reading::Refused("plain_http") => {
                    return Err(Over {
                        last_word: PLAIN,
                        ..Over::of("plain_http", "")
                    });
                }
                Reading::Refused(reason) => return Err(Over::of(reason, "")),
            }
        }
    }

    /// Reads what has come behind what is there.
    async fn read(&self, received: &mut Vec<u8>) -> Result<(), Over> {
        let begin = received.len();
        received.resize(begin + READ_BYTES, 0);
        let room = received.get_mut(begin..).unwrap_or_default();
        let read = self.within(|cx| {
            loop {
                let ready = ready!(self.socket.poll_read_ready(cx))?;
                match receive(&self.socket, ready, room) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => break Poll::Ready(read),
                }
            }
        });
        let count = match read.await? {
            0 => return Err(Over::of("client_gone", "it has closed the connection")),
            count => count,
        };
        received.truncate(begin + count);
        Ok(())
    }

    async fn send(&self, out: &mut Vec<u8>) -> Result<(), Over> {
        let mut sent = 0;
        while let Some(rest) = out.get(sent..).filter(|rest| !rest.is_empty()) {
            let send = |cx: &mut Context<'_>| {
                poll_out(&self.socket, cx, |socket| os::stream::send(socket, rest))
            };
            sent += self.within(send).await?;
        }
        out.clear();
        Ok(())
    }

    /// Waits for something that is done with the socket, until the deadline.
    async fn within<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Result<T, Over> {
        poll_fn(|cx| match poll(cx) {
            Poll::Ready(done) => {
                let gone = |error| Over::of("client_gone", config::reason(&error));
                Poll::Ready(done.map_err(gone))
            }
            Poll::Pending => {
                let late = |()| Err(Over::of("client_slow", ""));
                self.deadline.poll_expired(cx).map(late)
            }
        })
        .await
    }

    /// The site of a host, by the lookup that requests are sent to their site by.
    fn site_of(&self, host: &str) -> Option<u32> {
        let destination = self.serving.generation.destination_of(host);
        destination.map(|destination| destination.site)
    }

    /// The certificate to answer with, and the site that it is for.
    fn choose<'t>(
        &self,
        table: &'t CertificateTable,
        hello: &ClientHello,
        asked: Option<u32>,
        tls: &ListenTls,
    ) -> Result<(Option<u32>, &'t Certificate), Over> {
        let by_name = hello
            .name
            .as_deref()
            .and_then(|name| self.certificate(table, hello, asked, name));
        if let Some(certificate) = by_name {
            return Ok((asked, certificate));
        }
        if hello.name.is_none() {
            let local = self.peer.local_ip;
            let site = self.site_of(&local.to_canonical().to_string());
            let tenant = self.tenant_of(site);
            if let Some(certificate) = table.of_address(local, tenant, &hello.schemes) {
                return Ok((site, certificate));
            }
        }
        let fallback = tls.default.as_deref().and_then(|host| {
            let site = self.site_of(host);
            let certificate = self.certificate(table, hello, site, host)?;
            Some((site, certificate))
        });
        fallback.ok_or_else(|| Over {
            last_word: UNRECOGNIZED_NAME,
            ..Over::of("no_certificate", "")
        })
    }

    fn tenant_of(&self, site: Option<u32>) -> Option<&str> {
        Some(&self.site_at(site)?.tenant_name)
    }

    /// On whose account the first step goes.
    fn who_says(&self, site: Option<u32>, hello: &ClientHello) -> Who {
        self.who(
            site,
            match hello.offers_resumption {
                true => StepKind::Short,
                false => StepKind::Full,
            },
        )
    }

    /// On whose account the steps go.
    fn who(&self, site: Option<u32>, kind: StepKind) -> Who {
        let site = self.site_at(site);
        let mut tenant = DefaultHasher::new();
        site.map(|site| &*site.tenant_name).hash(&mut tenant);
        Who {
            client: self.client(),
            tenant: tenant.finish(),
            weight: site.map_or(1, |site| site.weight),
            kind,
        }
    }

    /// The first step: key exchange and signature, unless an earlier session is resumed.
    async fn begin(
        &mut self,
        Shown { chain, key, kind }: Shown,
        policy: &Arc<Policy>,
        who: Who,
        received: Vec<u8>,
    ) -> Result<Stepped, Over> {
        let keeper = Arc::clone(&self.worker.shared.keeper);
        let policy = Arc::clone(policy);
        let (unpaid_ns, protocols) = (std::mem::take(&mut self.unpaid_ns), self.protocols);
        let step = move |thread: usize| {
            policy.tickets.refresh(&keeper, thread);
            let key = Arc::new(KeeperKey::new(keeper, key, kind));
            key.step_on(thread);
            let certified = CertifiedKey::new(chain, Arc::clone(&key) as _);
            let session = Session::server(policy.config(certified, protocols));
            let stepped =
                session.map(|it| Stepped::hear(it, Arc::clone(&key), &received, Vec::new()));
            Made {
                was: stepped.as_ref().map_or(StepKind::Full, Stepped::was),
                value: stepped,
                elsewhere_ns: unpaid_ns.saturating_add(key.take_spent_ns()),
            }
        };
        let made = self.worker.shared.handshakes.run(who, &self.deadline, step);
        let made = made.await.map_err(Over::of_error)?;
        self.cpu_us += made.cpu_us;
        made.value.map_err(Over::of_failure)
    }

    /// Sends, reads and steps on until both may speak.
    async fn finish(
        &mut self,
        mut stepped: Stepped,
        policy: &Policy,
        who: Who,
    ) -> Result<(Session, Vec<u8>), Over> {
        for _ in 0..READS_MAX {
            let Stepped {
                session,
                key,
                mut out,
                rest,
            } = stepped;
            match rest {
                Ok(Rest::Open) => return Ok((session, out)),
                Ok(Rest::Handshake) => {}
                Err(failure) => {
                    // Its alert says what the record says, to the client.
                    let _ = self.send(&mut out).await;
                    return Err(Over::of_failure(failure));
                }
            }
            self.send(&mut out).await?;
            let mut received = Vec::new();
            self.read(&mut received).await?;
            let kind = match session.awaited() {
                AwaitedFlight::Hello => who.kind,
                AwaitedFlight::Finished if !policy.asks_clients => {
                    stepped = Stepped::hear(session, key, &received, out);
                    continue;
                }
                AwaitedFlight::Keys | AwaitedFlight::Finished => StepKind::Short,
            };
            let who = Who { kind, ..who };
            stepped = self.step_on(session, key, received, out, who).await?;
        }
        Err(Over::of("bad_hello", "it does not come to an end"))
    }

    /// A later step that costs: a second hello, the key exchange of TLS 1.2, or a client's certificate.
    async fn step_on(
        &mut self,
        session: Session,
        key: Arc<KeeperKey>,
        received: Vec<u8>,
        out: Vec<u8>,
        who: Who,
    ) -> Result<Stepped, Over> {
        let is_hello = session.awaited() == AwaitedFlight::Hello;
        let step = move |thread| {
            key.step_on(thread);
            let stepped = Stepped::hear(session, Arc::clone(&key), &received, out);
            Made {
                was: match is_hello {
                    true => stepped.was(),
                    false => StepKind::Short,
                },
                value: stepped,
                elsewhere_ns: key.take_spent_ns(),
            }
        };
        let made = self.worker.shared.handshakes.run(who, &self.deadline, step);
        let made = made.await.map_err(Over::of_error)?;
        self.cpu_us += made.cpu_us;
        Ok(made.value)
    }

    /// Takes note of a handshake that came to nothing, and says its last word.
    fn record(self, over: Over) -> (AsyncFd<OwnedFd>, Deadline) {
        if !over.last_word.is_empty() {
            // The client may be gone already; there is nothing left to tell it then.
            let _ = os::stream::send(self.socket.as_fd(), over.last_word);
            let _ = os::stream::shutdown_write(self.socket.as_fd());
        }
        self.worker.shared.failures.record(FailedHandshake {
            at: self.worker.clock.unix_at(Instant::now()),
            client: self.client(),
            name: self.name,
            reason: over.reason,
            client_alert: over.alert,
            offered: self.offered,
            detail: over.detail,
        });
        (self.socket, self.deadline)
    }

    fn client(&self) -> IpAddr {
        self.peer.address.ip()
    }
}

impl Over {
    fn of(reason: &'static str, detail: impl Into<String>) -> Self {
        Self {
            reason,
            alert: None,
            detail: detail.into(),
            last_word: b"",
        }
    }

    fn of_error(error: Error) -> Self {
        let last_word = match error.kind {
            Kind::ClientGone => b"",
            _ => INTERNAL_ERROR,
        };
        Self {
            last_word,
            ..Self::of(error.reason, error.detail.as_str())
        }
    }

    fn of_failure(failure: session::SessionFailure) -> Self {
        Self {
            alert: failure.alert,
            ..Self::of(failure.reason, failure.detail)
        }
    }
}
