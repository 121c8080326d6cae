//! memcached over its text protocol, on one server or several.
//!
//! The client is ours. Those on crates.io were looked at: async-memcached 0.9 takes a value of any
//! length a server announces, connects over IPv4 alone and brings a parser library for six commands;
//! the others are older and share the first of these. The protocol (doc/protocol.txt of memcached)
//! is a line and at most one block of bytes, so little is saved by a library.
//!
//! Keys go to servers by Jenkins' one-at-a-time hash, modulo the number of servers, which is what
//! libmemcached does unless told otherwise.

pub mod reply;

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::rc::Rc;

use super::address::Address;
use super::attempt::{Attempt, Target};
use super::error::{Error, Kind};
use super::place::{Owner, Server};
use super::socket::Socket;
use super::{Limits, Stores, VALUE_BYTES_MAX};
use reply::{Fault, Progress, Reply};

/// Where memcached listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 11_211;
/// The longest key (doc/protocol.txt, "Keys").
pub const KEY_BYTES_MAX: usize = 250;
/// Servers in one object.
pub const SERVERS_MAX: usize = 64;

const SERVICE: &str = "memcached";

/// What became of a value that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is stored.
    Yes,
    /// The condition did not hold: `add` found a value, `replace` and `append` found none.
    No,
}

/// A script's connection to memcached, made by [`Stores::memcached`].
pub struct Memcached {
    stores: Rc<Stores>,
    owner: Owner,
    closed: Cell<bool>,
    servers: RefCell<Vec<Rc<Server<Socket>>>>,
}

impl Stores {
    /// Makes a client for `host:port[,host:port…]`; it connects when it is used.
    ///
    /// # Errors
    /// [`Kind::Argument`] for what is no address, or for more servers than [`SERVERS_MAX`].
    pub fn memcached(self: &Rc<Self>, servers: &str) -> Result<Rc<Memcached>, Error> {
        let client = Memcached {
            stores: Rc::clone(self),
            owner: self.next_owner(),
            closed: Cell::new(false),
            servers: RefCell::default(),
        };
        for server in servers
            .split(',')
            .filter(|server| !server.trim().is_empty())
        {
            client.add_server(&Address::parse(server, DEFAULT_PORT)?)?;
        }
        Ok(Rc::new(client))
    }
}

impl Memcached {
    /// Adds a server; keys are spread anew over all of them.
    ///
    /// # Errors
    /// [`Kind::Argument`] for more servers than [`SERVERS_MAX`].
    pub fn add_server(&self, address: &Address) -> Result<(), Error> {
        let mut servers = self.servers.borrow_mut();
        if servers.len() >= SERVERS_MAX {
            let text = format!("one object may name {SERVERS_MAX} memcached servers");
            return Err(Error::new(Kind::Argument, text));
        }
        let limit = self.limits().connections_max;
        servers.push(self.stores.memcached.server(address, limit));
        Ok(())
    }

    /// Closes the idle connections and refuses whatever is asked from now on.
    pub fn close(&self) {
        self.closed.set(true);
        self.forget();
    }

    /// The value of a key.
    pub fn get(
        self: &Rc<Self>,
        key: Vec<u8>,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            check_key(&key)?;
            let bytes = [b"get ", key.as_slice(), b"\r\n"].concat();
            match this.ask("get", &key, bytes).await? {
                (Reply::Value(value), _) => Ok(Some(value)),
                (Reply::End, _) => Ok(None),
                (reply, server) => Err(this.unexpected("get", &reply, &server)),
            }
        }
    }

    /// Stores a value whatever was there; `expiry` as in [`Memcached::add`].
    pub fn set(
        self: &Rc<Self>,
        key: Vec<u8>,
        value: Vec<u8>,
        expiry: i64,
    ) -> impl Future<Output = Result<Stored, Error>> + 'static + use<> {
        Rc::clone(self).store("set", key, value, expiry)
    }

    /// Stores a value where none is.
    ///
    /// `expiry` is 0 for never, seconds from now up to 30 days, or else a Unix time.
    pub fn add(
        self: &Rc<Self>,
        key: Vec<u8>,
        value: Vec<u8>,
        expiry: i64,
    ) -> impl Future<Output = Result<Stored, Error>> + 'static + use<> {
        Rc::clone(self).store("add", key, value, expiry)
    }

    /// Stores a value where one is; `expiry` as in [`Memcached::add`].
    pub fn replace(
        self: &Rc<Self>,
        key: Vec<u8>,
        value: Vec<u8>,
        expiry: i64,
    ) -> impl Future<Output = Result<Stored, Error>> + 'static + use<> {
        Rc::clone(self).store("replace", key, value, expiry)
    }

    /// Puts bytes behind the value that is there.
    pub fn append(
        self: &Rc<Self>,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> impl Future<Output = Result<Stored, Error>> + 'static + use<> {
        Rc::clone(self).store("append", key, value, 0)
    }

    /// Puts bytes before the value that is there.
    pub fn prepend(
        self: &Rc<Self>,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> impl Future<Output = Result<Stored, Error>> + 'static + use<> {
        Rc::clone(self).store("prepend", key, value, 0)
    }

    /// Takes a key away; says whether it was there.
    pub fn delete(
        self: &Rc<Self>,
        key: Vec<u8>,
    ) -> impl Future<Output = Result<bool, Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            check_key(&key)?;
            let bytes = [b"delete ", key.as_slice(), b"\r\n"].concat();
            match this.ask("delete", &key, bytes).await? {
                (Reply::Deleted, _) => Ok(true),
                (Reply::NotFound, _) => Ok(false),
                (reply, server) => Err(this.unexpected("delete", &reply, &server)),
            }
        }
    }

    /// Adds to a number (wrapping at 64 bits) and gives the sum; `None` where there is no value.
    pub fn incr(
        self: &Rc<Self>,
        key: Vec<u8>,
        by: u64,
    ) -> impl Future<Output = Result<Option<u64>, Error>> + 'static + use<> {
        Rc::clone(self).count("incr", key, by)
    }

    /// Takes from a number, not below 0, and gives the rest; `None` where there is no value.
    pub fn decr(
        self: &Rc<Self>,
        key: Vec<u8>,
        by: u64,
    ) -> impl Future<Output = Result<Option<u64>, Error>> + 'static + use<> {
        Rc::clone(self).count("decr", key, by)
    }

    /// Makes every server forget everything, `delay_s` seconds from now.
    pub fn flush_all(
        self: &Rc<Self>,
        delay_s: u32,
    ) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            let servers = this.servers.borrow().clone();
            for server in servers {
                let bytes = format!("flush_all {delay_s}\r\n").into_bytes();
                let reply = this.ask_server(&server, "flush_all", b"", bytes).await?;
                if !matches!(reply, Reply::Ok) {
                    return Err(this.unexpected("flush_all", &reply, &server));
                }
            }
            Ok(())
        }
    }

    async fn store(
        self: Rc<Self>,
        what: &'static str,
        key: Vec<u8>,
        value: Vec<u8>,
        expiry: i64,
    ) -> Result<Stored, Error> {
        check_key(&key)?;
        if value.len() > VALUE_BYTES_MAX {
            let text = format!("a value for memcached has at most {VALUE_BYTES_MAX} bytes");
            return Err(Error::new(Kind::Argument, text));
        }
        let mut bytes = Vec::with_capacity(key.len() + value.len() + 64);
        bytes.extend_from_slice(what.as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(&key);
        // Writing into a vector cannot fail.
        let _ = write!(bytes, " 0 {expiry} {}\r\n", value.len());
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(b"\r\n");
        match self.ask(what, &key, bytes).await? {
            (Reply::Stored, _) => Ok(Stored::Yes),
            (Reply::NotStored, _) => Ok(Stored::No),
            (reply, server) => Err(self.unexpected(what, &reply, &server)),
        }
    }

    async fn count(
        self: Rc<Self>,
        what: &'static str,
        key: Vec<u8>,
        by: u64,
    ) -> Result<Option<u64>, Error> {
        check_key(&key)?;
        let by = by.to_string();
        let parts = [what.as_bytes(), b" ", &key, b" ", by.as_bytes(), b"\r\n"];
        match self.ask(what, &key, parts.concat()).await? {
            (Reply::Number(number), _) => Ok(Some(number)),
            (Reply::NotFound, _) => Ok(None),
            (reply, server) => Err(self.unexpected(what, &reply, &server)),
        }
    }

    async fn ask(
        &self,
        what: &'static str,
        key: &[u8],
        bytes: Vec<u8>,
    ) -> Result<(Reply, Rc<Server<Socket>>), Error> {
        let server = self.server_of(key)?;
        let reply = self.ask_server(&server, what, key, bytes).await?;
        Ok((reply, server))
    }

    async fn ask_server(
        &self,
        server: &Rc<Server<Socket>>,
        what: &'static str,
        key: &[u8],
        bytes: Vec<u8>,
    ) -> Result<Reply, Error> {
        if self.closed.get() {
            let text = format!("{what} at memcached: this object was closed before");
            return Err(Error::new(Kind::Closed, text));
        }
        let attempt = Attempt::new(target(server), self.limits());
        let work = self.exchange(&attempt, server, what, key, bytes);
        attempt.run(what, work).await
    }

    async fn exchange(
        &self,
        attempt: &Attempt<'_>,
        server: &Rc<Server<Socket>>,
        what: &'static str,
        key: &[u8],
        bytes: Vec<u8>,
    ) -> Result<Reply, Error> {
        let mut lease = server.lease(self.owner).await;
        lease.close_unless(Socket::is_quiet);
        if lease.is_empty() {
            lease.put(attempt.connect(attempt.dial(&self.stores.names)).await?);
        }
        attempt.talk();
        let socket = lease.connection();
        let reply = converse(socket, attempt, what, key, &bytes).await;
        if matches!(&reply, Err(error) if error.kind() == Kind::Lost) {
            // The server was restarted: the other connections are as dead as this one.
            server.forget(self.owner);
        }
        let reply = reply?;
        if let Reply::Refused(message) = &reply {
            return Err(attempt.failed(Kind::Server, what, message));
        }
        if !self.closed.get() {
            lease.keep();
        }
        Ok(reply)
    }

    fn server_of(&self, key: &[u8]) -> Result<Rc<Server<Socket>>, Error> {
        let servers = self.servers.borrow();
        let place = usize::try_from(one_at_a_time(key)).unwrap_or(0) % servers.len().max(1);
        servers.get(place).cloned().ok_or_else(|| {
            let text = "no memcached server is named: write Memcached.new(\"host:port\")";
            Error::new(Kind::Argument, text)
        })
    }

    fn unexpected(&self, what: &str, reply: &Reply, server: &Rc<Server<Socket>>) -> Error {
        let attempt = Attempt::new(target(server), self.limits());
        // It was understood, but answers another question: nothing after it can be trusted.
        server.forget(self.owner);
        attempt.failed(
            Kind::Protocol,
            what,
            &format!("{} is no answer to it", reply.name()),
        )
    }

    fn limits(&self) -> Limits {
        self.stores.limits
    }

    fn forget(&self) {
        for server in self.servers.borrow().iter() {
            server.forget(self.owner);
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.forget();
    }
}

fn target(server: &Server<Socket>) -> Target<'_> {
    Target {
        service: SERVICE,
        address: server.address(),
    }
}

/// Sends a command and reads its answer, whole.
async fn converse(
    socket: &mut Socket,
    attempt: &Attempt<'_>,
    what: &str,
    key: &[u8],
    bytes: &[u8],
) -> Result<Reply, Error> {
    let lost = |error| attempt.lost(what, &error);
    let faulty = |fault: Fault| attempt.failed(fault.kind(), what, &fault.to_string());
    socket.write(bytes).await.map_err(lost)?;
    loop {
        match reply::parse(socket.unread(), key).map_err(faulty)? {
            Progress::More(awaited) => socket.read_more(awaited).await.map_err(lost)?,
            Progress::Done(reply, used) => {
                socket.consume(used);
                if !socket.unread().is_empty() {
                    return Err(faulty(Fault::Unasked));
                }
                socket.shrink();
                return Ok(reply);
            }
        }
    }
}

fn check_key(key: &[u8]) -> Result<(), Error> {
    let why = match key {
        [] => "is empty".to_owned(),
        key if key.len() > KEY_BYTES_MAX => {
            format!(
                "has {} bytes, and at most {KEY_BYTES_MAX} are allowed",
                key.len()
            )
        }
        key if key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) => {
            "has a blank or a control character".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::new(
        Kind::Argument,
        format!("the key for memcached {why}"),
    ))
}

/// Jenkins' one-at-a-time hash (Dr. Dobb's Journal, September 1997).
fn one_at_a_time(key: &[u8]) -> u32 {
    let mut hash = 0_u32;
    for byte in key {
        hash = hash.wrapping_add(u32::from(*byte));
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

#[cfg(test)]
mod tests;
