//! Redis and Valkey over RESP2, any command but those that turn the connection around.
//!
//! The client is ours. The crate `redis` (1.8 and 2.0) takes strings and lists of any length a server
//! announces, wants statuses to be UTF-8, and answers through a task of its own beside each
//! connection; the protocol itself is five kinds of lines. So the connection is the same as
//! memcached's, with caps, and dropped where the request drops it.
//!
//! Each command takes a connection of its own, so that many requests may use one object; idle ones
//! are those of all objects with the same password and database. From
//! `WATCH` or `MULTI` on, until `EXEC`, `DISCARD` or `UNWATCH`, the connection stays with its
//! request. `SUBSCRIBE`, `MONITOR` and their like are refused.

mod connection;
pub mod reply;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::Stores;
use super::address::Address;
use super::attempt::{Attempt, Target};
use super::error::{Error, Kind};
use super::limits::VALUE_BYTES_MAX;
use super::pins::{Pin, Session};
use super::pool::{Lease, Owner, Pool};
use super::secure::ServerTls;
use connection::{ConnectionState, Effect};

pub(crate) use connection::RedisConnection;
pub use reply::RedisReply;

/// Where Redis listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 6_379;
/// Commands in one pipeline.
pub const COMMANDS_MAX: usize = 10_000;

const SERVICE: &str = "Redis";

/// A command: its name and its arguments.
pub type Command = Vec<Vec<u8>>;

/// A client of Redis, a script's or another's, made by [`Stores::redis`].
pub struct Redis {
    stores: Rc<Stores>,
    /// The object and its login, for what it watches and queues: another one after each login.
    owner: Cell<Owner>,
    /// All objects with this login: the idle connections.
    account: Cell<Owner>,
    closed: Cell<bool>,
    server: Rc<Pool<RedisConnection>>,
    timeout: Duration,
    login: RefCell<RedisLogin>,
}

/// What is said on each connection before anything else.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct RedisLogin {
    /// The arguments of `AUTH`: a password, or a name and a password.
    pub auth: Vec<Vec<u8>>,
    /// The number of the database.
    pub database: u32,
    /// What is agreed upon before that.
    pub tls: Option<ServerTls>,
}

impl RedisLogin {
    fn commands(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        if !self.auth.is_empty() {
            let words = std::iter::once(b"AUTH".to_vec()).chain(self.auth.iter().cloned());
            commands.push(words.collect());
        }
        if self.database != 0 {
            let number = self.database.to_string().into_bytes();
            commands.push(vec![b"SELECT".to_vec(), number]);
        }
        commands
    }
}

type RedisLease = Lease<RedisConnection>;

impl Stores {
    /// Makes a client; it connects when it is used. A command may take `timeout` if that is shorter
    /// than [`super::limits::Limits::command_timeout`].
    pub fn redis(self: &Rc<Self>, address: &Address, timeout: Duration) -> Rc<Redis> {
        self.redis_as(address, RedisLogin::default(), timeout)
    }

    /// As [`Stores::redis`], with this said and agreed upon on each connection.
    pub fn redis_as(
        self: &Rc<Self>,
        address: &Address,
        login: RedisLogin,
        timeout: Duration,
    ) -> Rc<Redis> {
        let account = self.redis_accounts.number(login.clone(), &self.owners);
        Rc::new(Redis {
            stores: Rc::clone(self),
            owner: Cell::new(self.owners.next()),
            account: Cell::new(account),
            closed: Cell::new(false),
            server: self.redis.get(address, || self.pool(address)),
            timeout,
            login: RefCell::new(login),
        })
    }
}

impl Redis {
    /// Runs one command.
    ///
    /// # Errors
    /// [`Kind::Server`] with the server's words when it refuses; a [`RedisReply::Error`] comes only
    /// within a list.
    pub fn command(
        self: &Rc<Self>,
        session: Session,
        command: Command,
    ) -> impl Future<Output = Result<RedisReply, Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            let what = name(&command);
            let mut replies = this.ask(session, &what, vec![command]).await?;
            match replies.pop() {
                Some(RedisReply::Error(words)) => {
                    Err(this.attempt().failed(Kind::Server, &what, &words))
                }
                reply => Ok(reply.unwrap_or(RedisReply::Nil)),
            }
        }
    }

    /// Sends commands together and gives an answer for each; refusals are [`RedisReply::Error`].
    pub fn pipeline(
        self: &Rc<Self>,
        session: Session,
        commands: Vec<Command>,
    ) -> impl Future<Output = Result<Vec<RedisReply>, Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            match commands.is_empty() {
                true => Ok(Vec::new()),
                false => this.ask(session, "pipeline", commands).await,
            }
        }
    }

    /// Logs in with a password, or a name and a password, on this and all later connections.
    pub fn auth(
        self: &Rc<Self>,
        words: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let login = RedisLogin {
            auth: words,
            ..self.login.borrow().clone()
        };
        Rc::clone(self).log_in("AUTH", login)
    }

    /// Chooses a database by its number, on this and all later connections.
    pub fn select(
        self: &Rc<Self>,
        database: u32,
    ) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let login = RedisLogin {
            database,
            ..self.login.borrow().clone()
        };
        Rc::clone(self).log_in("SELECT", login)
    }

    /// Gives up what it watches and refuses whatever is asked from now on; idle connections are those
    /// of all who log in alike.
    pub fn close(&self) {
        self.closed.set(true);
        self.forget();
    }

    /// Tries a login on a connection, which is kept with it if it was right. One that is idle shows
    /// that it was right before.
    async fn log_in(self: Rc<Self>, what: &'static str, login: RedisLogin) -> Result<(), Error> {
        self.check_open(what)?;
        let attempt = self.attempt();
        let account = self
            .stores
            .redis_accounts
            .number(login.clone(), &self.stores.owners);
        let lease = attempt
            .run(what, self.lease(&attempt, account, &login))
            .await?;
        self.forget();
        self.owner.set(self.stores.owners.next());
        self.account.set(account);
        *self.login.borrow_mut() = login;
        lease.keep();
        Ok(())
    }

    async fn ask(
        &self,
        session: Session,
        what: &str,
        commands: Vec<Command>,
    ) -> Result<Vec<RedisReply>, Error> {
        self.check_open(what)?;
        let effects: Vec<_> = commands.iter().map(|command| Effect::of(command)).collect();
        if let Some(place) = effects.iter().position(|effect| *effect == Effect::Refused) {
            let refused = commands
                .get(place)
                .map(|command| name(command))
                .unwrap_or_default();
            let why = "scripts cannot use it: connections are shared among requests";
            return Err(self.attempt().failed(Kind::Argument, &refused, why));
        }
        let bytes = encode(&commands)?;
        let attempt = self.attempt();
        attempt
            .run(
                what,
                self.exchange(&attempt, session, what, bytes, &effects),
            )
            .await
    }

    async fn exchange(
        &self,
        attempt: &Attempt<'_>,
        session: Session,
        what: &str,
        bytes: Vec<u8>,
        effects: &[Effect],
    ) -> Result<Vec<RedisReply>, Error> {
        let owner = self.owner.get();
        let mut lease = match self.stores.redis_pins.unpin(session, owner) {
            Some(Pin::Held(lease)) => lease,
            Some(Pin::Broken) => return self.mourn(attempt, session, what, effects),
            None => {
                let login = self.login.borrow().clone();
                self.lease(attempt, self.account.get(), &login).await?
            }
        };
        attempt.talk();
        let promised = lease.connection().is_promised();
        let answered = lease.connection().ask(attempt, what, bytes, effects).await;
        match &answered {
            Ok(_) => self.put_back(session, owner, lease),
            Err(error) => {
                drop(lease);
                if promised {
                    self.stores.redis_pins.pin(session, owner, Pin::Broken);
                }
                if error.kind() == Kind::Lost {
                    self.server.forget(self.account.get());
                }
            }
        }
        answered
    }

    async fn lease(
        &self,
        attempt: &Attempt<'_>,
        account: Owner,
        login: &RedisLogin,
    ) -> Result<RedisLease, Error> {
        let mut lease = self.server.lease(account).await;
        lease.close_unless(RedisConnection::is_quiet);
        if lease.is_empty() {
            lease.put(attempt.connect(self.open(attempt, login)).await?);
        }
        Ok(lease)
    }

    async fn open(
        &self,
        attempt: &Attempt<'_>,
        login: &RedisLogin,
    ) -> Result<RedisConnection, Error> {
        let mut socket = attempt.dial(&self.stores.names).await?;
        if let (Some(tls), Address::Tcp { host, .. }) = (&login.tls, self.server.address()) {
            attempt.secure(socket.secure(tls, host)).await?;
        }
        let mut connection = RedisConnection::new(socket);
        let commands = login.commands();
        if commands.is_empty() {
            return Ok(connection);
        }
        let effects = vec![Effect::Plain; commands.len()];
        let replies = connection
            .ask(attempt, "log in", encode(&commands)?, &effects)
            .await?;
        for reply in replies {
            if let RedisReply::Error(words) = reply {
                return Err(attempt.unconnected(&words));
            }
        }
        Ok(connection)
    }

    fn put_back(&self, session: Session, owner: Owner, mut lease: RedisLease) {
        match lease.connection().state() {
            // Closed meanwhile, or logged in otherwise: nobody would find it.
            ConnectionState::Promised if self.closed.get() || owner != self.owner.get() => (),
            ConnectionState::Promised => {
                self.stores.redis_pins.pin(session, owner, Pin::Held(lease))
            }
            ConnectionState::Clean => lease.keep(),
            ConnectionState::Changed => (),
        }
    }

    /// Answers for a connection that was lost between `MULTI` or `WATCH` and their end.
    fn mourn(
        &self,
        attempt: &Attempt<'_>,
        session: Session,
        what: &str,
        effects: &[Effect],
    ) -> Result<Vec<RedisReply>, Error> {
        match effects {
            [Effect::Discard | Effect::Unwatch] => {
                return Ok(vec![RedisReply::Status(b"OK".to_vec())]);
            }
            [Effect::Exec] => (),
            _ => self
                .stores
                .redis_pins
                .pin(session, self.owner.get(), Pin::Broken),
        }
        let why = "the connection was lost between MULTI or WATCH and EXEC: \
                   nothing of it was done; call discard";
        Err(attempt.failed(Kind::Lost, what, why))
    }

    fn check_open(&self, what: &str) -> Result<(), Error> {
        match self.closed.get() {
            false => Ok(()),
            true => {
                let why = "this object was closed before";
                Err(self.attempt().failed(Kind::Closed, what, why))
            }
        }
    }

    fn attempt(&self) -> Attempt<'_> {
        let target = Target {
            service: SERVICE,
            address: self.server.address(),
        };
        Attempt::new(target, self.stores.limits).within(self.timeout)
    }

    fn forget(&self) {
        self.stores.redis_pins.close(self.owner.get());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A command's name, as messages show it.
fn name(command: &[Vec<u8>]) -> String {
    let name = command.first().map(Vec::as_slice).unwrap_or_default();
    let shown = name.iter().take(32).filter(|byte| byte.is_ascii_graphic());
    shown.map(|byte| char::from(*byte)).collect()
}

fn encode(commands: &[Command]) -> Result<Vec<u8>, Error> {
    let refuse = |text: String| Err(Error::new(Kind::Argument, text));
    if commands.len() > COMMANDS_MAX {
        return refuse(format!(
            "a pipeline to Redis has at most {COMMANDS_MAX} commands"
        ));
    }
    let mut bytes = Vec::new();
    for command in commands {
        if command.is_empty() {
            return refuse("a command to Redis has at least a name".to_owned());
        }
        bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for word in command {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
            if bytes.len() > VALUE_BYTES_MAX {
                return refuse(format!(
                    "commands to Redis have at most {VALUE_BYTES_MAX} bytes"
                ));
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
