//! One operation on one server, and how far it has come.
//!
//! Every operation has one time for everything, waiting for a place included, and within it one for
//! connecting. When time is up the phase tells which of them an operator should look at.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::address::Address;
use super::error::{Error, Kind, reason, spell};
use super::limits::Limits;
use super::resolver::Resolver;
use super::socket::Socket;

/// The store an operation goes to, as messages call it.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// `memcached`, `MySQL`, …
    pub(crate) service: &'static str,
    pub(crate) address: &'a Address,
}

#[derive(Clone, Copy)]
enum Phase {
    Waiting,
    Connecting,
    Securing,
    Talking,
}

/// An operation under way.
pub(crate) struct Attempt<'a> {
    target: Target<'a>,
    limits: Limits,
    /// What an operator would change about the time for everything.
    key: &'static str,
    phase: Cell<Phase>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(target: Target<'a>, limits: Limits) -> Self {
        Self {
            target,
            limits,
            key: limits.time_key.unwrap_or("scripts.store_timeout"),
            phase: Cell::new(Phase::Waiting),
        }
    }

    /// Keeps to a shorter time that the script asked for.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        if timeout < self.limits.command_timeout {
            self.limits.command_timeout = timeout;
            self.key = "as the script wants";
        }
        self
    }

    /// Runs an operation within its time.
    pub(crate) async fn run<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(self.limits.command_timeout, work).await {
            Ok(result) => result,
            Err(_) => Err(self.late(what)),
        }
    }

    /// Makes a connection within its time, and goes on to talking.
    pub(crate) async fn connect<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.phase.set(Phase::Connecting);
        let made = match timeout(self.limits.connect_timeout, work).await {
            Ok(made) => made?,
            Err(_) => return Err(self.unheard()),
        };
        self.talk();
        Ok(made)
    }

    /// Agrees upon TLS, over a connection that there is.
    pub(crate) async fn secure(
        &self,
        work: impl Future<Output = io::Result<()>>,
    ) -> Result<(), Error> {
        self.phase.set(Phase::Securing);
        work.await.map_err(|error| self.refused(&error))?;
        self.phase.set(Phase::Connecting);
        Ok(())
    }

    /// Notes that there is a connection and the command goes out.
    pub(crate) fn talk(&self) {
        self.phase.set(Phase::Talking);
    }

    /// A plain connection to the server.
    pub(crate) async fn dial(&self, names: &Resolver) -> Result<Socket, Error> {
        match self.target.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                Ok(Socket::unix(stream.map_err(|error| self.refused(&error))?))
            }
            Address::Tcp { host, port } => {
                let stream = self.dial_tcp(names, host, *port).await?;
                Ok(Socket::tcp(stream))
            }
        }
    }

    /// A TCP connection to a host and port, which sends without delay.
    pub(crate) async fn dial_tcp(
        &self,
        names: &Resolver,
        host: &str,
        port: u16,
    ) -> Result<TcpStream, Error> {
        let addresses = names.addresses(host).await?;
        let connect = |address| async move {
            let stream = TcpStream::connect(SocketAddr::new(address, port)).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        self.first(&addresses, connect).await
    }

    /// Tries a name's addresses one after another, each with its share of the time.
    async fn first<T, F>(
        &self,
        addresses: &[IpAddr],
        mut connect: impl FnMut(IpAddr) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = io::Result<T>>,
    {
        let share = self.share(addresses.len());
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for address in addresses {
            match timeout(share, connect(*address)).await {
                Ok(Ok(made)) => return Ok(made),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        match last.kind() {
            io::ErrorKind::TimedOut => Err(self.unheard()),
            _ => Err(self.refused(&last)),
        }
    }

    fn share(&self, addresses: usize) -> Duration {
        self.limits.connect_timeout / u32::try_from(addresses.max(1)).unwrap_or(u32::MAX)
    }

    pub(crate) fn refused(&self, error: &io::Error) -> Error {
        self.unconnected(&reason(error))
    }

    fn unheard(&self) -> Error {
        let key = self.limits.time_key.unwrap_or("scripts.connect_timeout");
        self.unconnected(&self.silent(self.limits.connect_timeout, key))
    }

    /// An error of connecting.
    pub(crate) fn unconnected(&self, why: &str) -> Error {
        let Target { service, address } = self.target;
        Error::new(
            Kind::Connect,
            format!("connect to {service} {address}: {why}"),
        )
    }

    /// An error of the command itself.
    pub(crate) fn failed(&self, kind: Kind, what: &str, why: &str) -> Error {
        let Target { service, address } = self.target;
        Error::new(kind, format!("{what} at {service} {address}: {why}"))
    }

    /// A connection that ended in the middle.
    pub(crate) fn lost(&self, what: &str, error: &io::Error) -> Error {
        self.failed(Kind::Lost, what, &reason(error))
    }

    /// No place in all the time there was.
    pub(crate) fn unplaced(&self) -> Error {
        let Target { service, address } = self.target;
        let (limit, places) = (
            spell(self.limits.command_timeout),
            self.limits.connections_max,
        );
        let advice = match self.limits.time_key {
            None => ": raise scripts.store_connections".to_owned(),
            Some(key) => format!(" ({key})"),
        };
        let waited =
            format!("waited {limit} for one of {places} connections to {service} {address}");
        Error::new(Kind::Waited, waited + &advice)
    }

    /// No connection in all the time there was.
    pub(crate) fn unmade(&self) -> Error {
        self.unconnected(&self.silent(self.limits.command_timeout, self.key))
    }

    /// No answer in all the time there was.
    pub(crate) fn unanswered(&self, what: &str) -> Error {
        let why = self.silent(self.limits.command_timeout, self.key);
        self.failed(Kind::Timeout, what, &why)
    }

    fn silent(&self, limit: Duration, key: &str) -> String {
        let limit = spell(limit);
        match self.phase.get() {
            // Who waits for a command says nothing to that.
            Phase::Securing => {
                format!("no answer to TLS within {limit} ({key}): does it speak TLS there?")
            }
            _ => format!("no answer within {limit} ({key})"),
        }
    }

    /// What ran out with the time for everything.
    pub(crate) fn late(&self, what: &str) -> Error {
        match self.phase.get() {
            Phase::Waiting => self.unplaced(),
            Phase::Connecting | Phase::Securing => self.unmade(),
            Phase::Talking => self.unanswered(what),
        }
    }
}
