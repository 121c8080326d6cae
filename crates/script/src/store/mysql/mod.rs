//! MySQL and MariaDB: statements prepared, results read whole.
//!
//! On `mysql_async`, of which this takes single connections and neither its pool nor TLS: places,
//! times and what becomes of a connection given up in the middle are the same here as for other
//! stores. The server is trusted with one thing: how many columns it announces.
//!
//! Each statement takes a connection of its own, so that many requests may use one object. While a
//! transaction is open (the server says so with each answer, also after a plain `BEGIN`) the
//! connection stays with its request, and after `SET autocommit = 0` until that ends. Variables,
//! temporary tables and locks outlive a statement only then.
//!
//! Idle connections belong to all objects with the same login, so that one made for each request
//! connects no more often than one that is kept. A statement that may leave a trace in the session
//! (see [`trace`]) stains the connection: before another object uses it, the session begins anew.

mod answer;
mod connection;
mod fault;
mod trace;

use std::cell::Cell as Flag;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder};

use super::address::Address;
use super::attempt::{Attempt, Target};
use super::error::{Error, Kind};
use super::place::{Lease, Owner, Server};
use super::session::{Pin, Session};
use super::{Limits, Stores, VALUE_BYTES_MAX};
use fault::Fault;

pub use answer::{Answer, Cell, Moment, ROWS_MAX, Span, Table};
pub(crate) use connection::Connection;

/// Where MySQL listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 3_306;
/// Statements a connection keeps prepared.
const STATEMENTS_MAX: usize = 64;
/// The longest packet sent or taken: one row may be as long as all rows together.
const PACKET_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What the library takes as the server's `wait_timeout`; it would ask for it otherwise.
const WAIT_TIMEOUT_S: usize = 28_800;

/// A connection idle for longer is asked for a sign of life before an object is made on it.
const TRUSTED_IDLE: Duration = Duration::from_millis(100);

const SERVICE: &str = "MySQL";

/// Who asks for which database, and where.
#[derive(Clone)]
pub struct Login {
    /// The server, over TCP or a Unix socket.
    pub address: Address,
    /// The account's name.
    pub user: String,
    /// Empty for none.
    pub password: String,
    /// Empty for none.
    pub database: String,
}

/// Whose session a connection has: user, password and database.
pub(crate) type Account = (String, String, String);

/// A script's `MySQL::Database`, made by [`Stores::mysql`].
pub struct Database {
    stores: Rc<Stores>,
    /// The object itself: its transactions, and what it left in sessions.
    owner: Owner,
    /// All objects with this login: the idle connections.
    account: Owner,
    closed: Flag<bool>,
    server: Rc<Server<Connection>>,
    opts: OptsBuilder,
}

type Place = Lease<Connection>;

impl Stores {
    /// Makes a client of a database; it connects when it is used.
    pub fn mysql(self: &Rc<Self>, login: &Login) -> Rc<Database> {
        let server = self
            .mysql
            .server(&login.address, self.limits.connections_max);
        let Login { user, password, .. } = login;
        let account = (user.clone(), password.clone(), login.database.clone());
        Rc::new(Database {
            stores: Rc::clone(self),
            owner: self.next_owner(),
            account: self.mysql_accounts.number(account, self),
            closed: Flag::new(false),
            server,
            opts: options(login),
        })
    }
}

fn options(login: &Login) -> OptsBuilder {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let opts = OptsBuilder::default()
        .user(some(&login.user))
        .pass(some(&login.password))
        .db_name(some(&login.database))
        .prefer_socket(false)
        .stmt_cache_size(STATEMENTS_MAX)
        .max_allowed_packet(Some(PACKET_BYTES_MAX))
        .wait_timeout(Some(WAIT_TIMEOUT_S));
    match &login.address {
        Address::Tcp { host, port } => opts.ip_or_hostname(host.as_str()).tcp_port(*port),
        Address::Unix(path) => opts.socket(Some(path.to_string_lossy())),
    }
}

impl Database {
    /// Connects, if there is no idle connection yet, so that a wrong login is known early.
    pub fn connect(self: &Rc<Self>) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            this.check_open("connect")?;
            let attempt = this.attempt();
            let work = async {
                let mut place = this.lease(&attempt).await?;
                this.revive(&attempt, &mut place).await?;
                place.keep();
                Ok(())
            };
            attempt.run("connect", work).await
        }
    }

    /// Runs one statement with its values for `?` and reads all it gives.
    ///
    /// # Errors
    /// Each [`Kind`] but `Lookup` where the address is an IP address or a socket.
    pub fn execute(
        self: &Rc<Self>,
        session: Session,
        sql: Vec<u8>,
        binds: Vec<Cell>,
    ) -> impl Future<Output = Result<Answer, Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            this.check_open("execute")?;
            check_length(&sql, &binds)?;
            let attempt = this.attempt();
            attempt
                .run("execute", this.run(&attempt, session, &sql, binds))
                .await
        }
    }

    /// Begins a transaction for a request; one that is open already goes on.
    pub fn transaction(
        self: &Rc<Self>,
        session: Session,
    ) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            this.check_open("transaction")?;
            let attempt = this.attempt();
            attempt
                .run("transaction", this.begin(&attempt, session))
                .await
        }
    }

    /// Makes a request's transaction last; without one it does nothing, as in MySQL.
    pub fn commit(
        self: &Rc<Self>,
        session: Session,
    ) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            this.check_open("commit")?;
            let attempt = this.attempt();
            attempt
                .run("commit", this.finish(&attempt, session, "commit", "COMMIT"))
                .await
        }
    }

    /// Undoes a request's transaction; without one, or with a lost one, it does nothing.
    pub fn rollback(
        self: &Rc<Self>,
        session: Session,
    ) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            this.check_open("rollback")?;
            let attempt = this.attempt();
            attempt
                .run(
                    "rollback",
                    this.finish(&attempt, session, "rollback", "ROLLBACK"),
                )
                .await
        }
    }

    /// Undoes open transactions and refuses whatever is asked later; idle connections are those of
    /// all who log in alike.
    pub fn close(&self) {
        self.closed.set(true);
        self.stores.mysql_pins.close(self.owner);
    }

    async fn run(
        &self,
        attempt: &Attempt<'_>,
        session: Session,
        sql: &[u8],
        binds: Vec<Cell>,
    ) -> Result<Answer, Error> {
        let mut place = match self.stores.mysql_pins.take(session, self.owner) {
            Some(Pin::Held(place)) => place,
            Some(Pin::Broken) => {
                self.stores.mysql_pins.put(session, self.owner, Pin::Broken);
                return Err(self.broken("execute", attempt));
            }
            None => self.lease(attempt).await?,
        };
        attempt.talk();
        let pinned = place.connection().is_in_transaction();
        if !trace::leaves_none(sql) {
            place.connection().stain(self.owner);
        }
        match place.connection().execute(sql, binds).await {
            Ok(answer) => {
                self.put_back(session, place);
                Ok(answer)
            }
            Err(fault) => Err(self.fail(attempt, session, place, pinned, fault)),
        }
    }

    async fn begin(&self, attempt: &Attempt<'_>, session: Session) -> Result<(), Error> {
        let mut place = match self.stores.mysql_pins.take(session, self.owner) {
            Some(Pin::Held(place)) => {
                self.put_back(session, place);
                return Ok(());
            }
            Some(Pin::Broken) | None => self.lease(attempt).await?,
        };
        attempt.talk();
        let begun = place.connection().command("START TRANSACTION").await;
        begun.map_err(|fault| self.unpinned(attempt, "transaction", fault))?;
        self.put_back(session, place);
        Ok(())
    }

    async fn finish(
        &self,
        attempt: &Attempt<'_>,
        session: Session,
        what: &'static str,
        sql: &'static str,
    ) -> Result<(), Error> {
        let mut place = match self.stores.mysql_pins.take(session, self.owner) {
            Some(Pin::Held(place)) => place,
            Some(Pin::Broken) if what == "commit" => return Err(self.broken(what, attempt)),
            Some(Pin::Broken) | None => return Ok(()),
        };
        attempt.talk();
        let finished = place.connection().command(sql).await;
        finished.map_err(|fault| self.unpinned(attempt, what, fault))?;
        self.put_back(session, place);
        Ok(())
    }

    /// A place with a connection that nobody else uses and whose session knows of no other object.
    async fn lease(&self, attempt: &Attempt<'_>) -> Result<Place, Error> {
        let (account, owner) = (self.account, self.owner);
        let fit = |connection: &Connection| connection.is_clean_for(owner);
        let mut place = self.server.lease_preferring(account, fit).await;
        if !place.is_empty() && !fit(place.connection()) {
            let cleaned = attempt.connect(self.clean(attempt, &mut place)).await;
            if cleaned.is_err() {
                place.close();
            }
        }
        if place.is_empty() {
            place.put(attempt.connect(self.open(attempt)).await?);
        }
        Ok(place)
    }

    async fn clean(&self, attempt: &Attempt<'_>, place: &mut Place) -> Result<(), Error> {
        let cleaned = place.connection().clean().await;
        cleaned.map_err(|fault| fault.of_connecting(attempt))
    }

    /// Sees to it that a connection that was idle for a while still is one.
    async fn revive(&self, attempt: &Attempt<'_>, place: &mut Place) -> Result<(), Error> {
        if place.idle_time() < TRUSTED_IDLE {
            return Ok(());
        }
        let alive = attempt.connect(async {
            let alive = place.connection().ping().await;
            alive.map_err(|fault| fault.of_connecting(attempt))
        });
        if alive.await.is_err() {
            self.server.forget(self.account);
            place.put(attempt.connect(self.open(attempt)).await?);
        }
        Ok(())
    }

    async fn open(&self, attempt: &Attempt<'_>) -> Result<Connection, Error> {
        let mut opts = self.opts.clone();
        if let Address::Tcp { host, .. } = self.server.address() {
            let addresses: Vec<IpAddr> = self.stores.names.addresses(host).await?.to_vec();
            opts = opts.resolved_ips(Some(addresses));
        }
        let opened = Connection::open(Opts::from(opts)).await;
        opened.map_err(|fault| fault.of_connecting(attempt))
    }

    /// Leaves a connection to its request while a transaction is open, or else to anybody.
    fn put_back(&self, session: Session, mut place: Place) {
        match place.connection().is_in_transaction() {
            // Closed meanwhile: the transaction is undone.
            true if self.closed.get() => (),
            true => self
                .stores
                .mysql_pins
                .put(session, self.owner, Pin::Held(place)),
            false => place.keep(),
        }
    }

    fn fail(
        &self,
        attempt: &Attempt<'_>,
        session: Session,
        place: Place,
        pinned: bool,
        fault: Fault,
    ) -> Error {
        if fault.leaves_connection() {
            self.put_back(session, place);
            return fault.of_statement(attempt, "execute");
        }
        drop(place);
        if pinned {
            self.stores.mysql_pins.put(session, self.owner, Pin::Broken);
        }
        self.unpinned(attempt, "execute", fault)
    }

    /// The error of a connection that is gone; idle ones of a server that went are as well.
    fn unpinned(&self, attempt: &Attempt<'_>, what: &str, fault: Fault) -> Error {
        let error = fault.of_statement(attempt, what);
        // A server that goes may say something first that is no answer to anything.
        if matches!(error.kind(), Kind::Lost | Kind::Protocol) {
            self.server.forget(self.account);
        }
        error
    }

    fn broken(&self, what: &str, attempt: &Attempt<'_>) -> Error {
        let why = "the connection was lost in a transaction, which is undone: call rollback";
        attempt.failed(Kind::Lost, what, why)
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
        Attempt::new(target, self.limits())
    }

    fn limits(&self) -> Limits {
        self.stores.limits
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.stores.mysql_pins.close(self.owner);
    }
}

fn check_length(sql: &[u8], binds: &[Cell]) -> Result<(), Error> {
    let bytes = binds
        .iter()
        .map(answer::weight)
        .fold(sql.len(), usize::saturating_add);
    match bytes > VALUE_BYTES_MAX {
        false => Ok(()),
        true => {
            let text = format!("a statement with its values has at most {VALUE_BYTES_MAX} bytes");
            Err(Error::new(Kind::Argument, text))
        }
    }
}

#[cfg(test)]
mod tests;
