//! memcached over its text protocol, on one server or several.
//!
//! The client is ours. Those on crates.io were looked at: async-memcached 0.9 takes a value of any
//! length a server announces, connects over IPv4 alone and brings a parser library for six commands;
//! the others are older and share the first of these. The protocol (doc/protocol.txt of memcached)
//! is a line and at most one block of bytes, so little is saved by a library.
//!
//! A connection belongs to the server's address and not to the object, and the commands of many
//! requests are under way on it at once: see [`server`].
//!
//! Keys go to servers by Jenkins' one-at-a-time hash, modulo the number of servers, which is what
//! libmemcached does unless told otherwise.

mod connection;
mod question;
mod queue;
pub mod reply;
mod server;

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::rc::Rc;

use super::Stores;
use super::address::Address;
use super::error::{Error, Kind};
use super::limits::VALUE_BYTES_MAX;
use question::{MemcachedQuestion, Verb};
use reply::MemcachedReply;

pub(crate) use server::MemcachedServer;

/// Where memcached listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 11_211;
/// The longest key (doc/protocol.txt, "Keys").
pub const KEY_BYTES_MAX: usize = 250;
/// Servers in one object.
pub const SERVERS_MAX: usize = 64;

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
    closed: Cell<bool>,
    servers: RefCell<Vec<Rc<MemcachedServer>>>,
}

impl Stores {
    /// Makes a client for `host:port[,host:port…]`; it connects when it is used.
    ///
    /// # Errors
    /// [`Kind::Argument`] for what is no address, or for more servers than [`SERVERS_MAX`].
    pub fn memcached(self: &Rc<Self>, servers: &str) -> Result<Rc<Memcached>, Error> {
        let client = Memcached {
            stores: Rc::clone(self),
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
        let Stores { limits, names, .. } = &*self.stores;
        servers.push(self.stores.memcached.get(address, || {
            MemcachedServer::new(address.clone(), *limits, Rc::clone(names))
        }));
        Ok(())
    }

    /// Refuses whatever is asked from now on; connections are those of all who name the server.
    pub fn close(&self) {
        self.closed.set(true);
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
            let reply = this.ask(Verb::Get, "get", key, bytes).await?;
            Ok(match reply {
                MemcachedReply::Value(value) => Some(value),
                _ => None,
            })
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
            let reply = this.ask(Verb::Delete, "delete", key, bytes).await?;
            Ok(reply == MemcachedReply::Deleted)
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
                let question = MemcachedQuestion {
                    verb: Verb::Flush,
                    what: "flush_all",
                    key: Vec::new(),
                };
                let bytes = format!("flush_all {delay_s}\r\n").into_bytes();
                this.ask_server(&server, question, bytes).await?;
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
        check_expiry(expiry)?;
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
        match self.ask(Verb::Store, what, key, bytes).await? {
            MemcachedReply::Stored => Ok(Stored::Yes),
            _ => Ok(Stored::No),
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
        let bytes = parts.concat();
        Ok(match self.ask(Verb::Count, what, key, bytes).await? {
            MemcachedReply::Number(number) => Some(number),
            _ => None,
        })
    }

    /// Asks the key's server; the answer fits the verb.
    async fn ask(
        &self,
        verb: Verb,
        what: &'static str,
        key: Vec<u8>,
        bytes: Vec<u8>,
    ) -> Result<MemcachedReply, Error> {
        let server = self.server_of(&key)?;
        self.ask_server(&server, MemcachedQuestion { verb, what, key }, bytes)
            .await
    }

    async fn ask_server(
        &self,
        server: &Rc<MemcachedServer>,
        question: MemcachedQuestion,
        bytes: Vec<u8>,
    ) -> Result<MemcachedReply, Error> {
        let what = question.what;
        if self.closed.get() {
            let text = format!("{what} at memcached: this object was closed before");
            return Err(Error::new(Kind::Closed, text));
        }
        let answer = server.submit(question, bytes)?.await;
        answer.unwrap_or_else(|_| {
            let text = format!("{what} at memcached: the scripts' connections were closed");
            Err(Error::new(Kind::Closed, text))
        })
    }

    fn server_of(&self, key: &[u8]) -> Result<Rc<MemcachedServer>, Error> {
        let servers = self.servers.borrow();
        let place = usize::try_from(one_at_a_time(key)).unwrap_or(0) % servers.len().max(1);
        servers.get(place).cloned().ok_or_else(|| {
            let text = "no memcached server is named: write Memcached.new(\"host:port\")";
            Error::new(Kind::Argument, text)
        })
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

/// memcached refuses a time it cannot count in 32 bits, and takes the value for commands then.
fn check_expiry(expiry: i64) -> Result<(), Error> {
    match i32::try_from(expiry) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(
            Kind::Argument,
            "memcached takes no time above 2147483647: write 0 for a value that stays",
        )),
    }
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
