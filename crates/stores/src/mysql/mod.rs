//! MySQL and MariaDB: statements prepared, results read whole.
//!
//! The client is ours. `mysql_async` was used before: it takes as many columns as a server announces
//! and has one statement under way on a connection. The protocol is packets of numbers and strings,
//! so little is saved by a library; places, times and what becomes of a connection given up in the
//! middle are the same here as for other stores. There is no TLS.
//!
//! Each statement takes a connection of its own, so that many requests may use one object; small
//! `SELECT`s go over few connections together (see [`pipeline`]). While a
//! transaction is open (the server says so with each answer, also after a plain `BEGIN`) the
//! connection stays with its request, and after `SET autocommit = 0` until that ends. Variables,
//! temporary tables and locks outlive a statement only then.
//!
//! Idle connections belong to all objects with the same login, so that one made for each request
//! connects no more often than one that is kept. A statement that may leave something in the session
//! (see [`side_effects`]) stains the connection: before another object uses it, the session begins anew.

mod answer;
mod batch;
mod connection;
mod connector;
mod fault;
mod handshake;
mod key;
mod packet;
mod pipeline;
mod prepared;
pub mod reply;
mod side_effects;
mod statements;
mod value;

use std::cell::Cell as Flag;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Stores;
use super::attempt::Attempt;
use super::error::{Error, Kind};
use super::limits::VALUE_BYTES_MAX;
use super::pins::{Pin, Session};
use super::pool::Owner;
use connector::{Connector, MysqlLease};
use fault::StatementFault;
use handshake::Credentials;
use side_effects::SideEffects;

pub use answer::{Answer, Cell, Moment, ROWS_MAX, Span, Table};
pub(crate) use connection::MysqlConnection;
pub use connector::Login;
pub(crate) use pipeline::Pipeline;

/// Where MySQL listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 3_306;

/// A script's `MySQL::Database`, made by [`Stores::mysql`].
pub struct Database {
    stores: Rc<Stores>,
    /// The object itself: its transactions, and what it left in sessions.
    owner: Owner,
    closed: Flag<bool>,
    /// Whether it has executed what may matter to a `SELECT` in the same session.
    tuned: Flag<bool>,
    /// All objects with this login.
    pipeline: Rc<Pipeline>,
}

impl Stores {
    fn connector(&self, login: &Login) -> Connector {
        Connector {
            server: self.mysql.get(&login.address, || self.pool(&login.address)),
            names: Rc::clone(&self.names),
            limits: self.limits,
            account: self.owners.next(),
            tls: login.tls.clone(),
            who: Rc::new(Credentials {
                user: login.user.clone(),
                password: login.password.clone(),
                database: login.database.clone(),
            }),
        }
    }

    /// Makes a client of a database; it connects when it is used.
    pub fn mysql(self: &Rc<Self>, login: &Login) -> Rc<Database> {
        Rc::new(Database {
            stores: Rc::clone(self),
            owner: self.owners.next(),
            closed: Flag::new(false),
            tuned: Flag::new(false),
            pipeline: self
                .mysql_pipelines
                .get(login, || Pipeline::new(self.connector(login))),
        })
    }
}

impl Database {
    /// Whether the server answered a moment ago, so that [`Database::connect`] has nothing to do.
    pub fn is_connected(&self) -> bool {
        !self.closed.get() && self.pipeline.is_alive()
    }

    /// Connects, if there is no idle connection yet, so that a wrong login is known early.
    pub fn connect(self: &Rc<Self>) -> impl Future<Output = Result<(), Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move {
            this.check_open("connect")?;
            if this.is_connected() {
                return Ok(());
            }
            let attempt = this.attempt();
            let work = async {
                let mut lease = this.lease(&attempt).await?;
                this.connector().revive(&attempt, &mut lease).await?;
                lease.keep();
                this.pipeline.mark_alive(Instant::now());
                Ok(())
            };
            Box::pin(attempt.run("connect", work)).await
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
            match this.share(session, &sql, binds) {
                Ok(answer) => {
                    let answer = answer.await;
                    answer.unwrap_or_else(|_| Err(this.given_up("execute")))
                }
                // Boxed, for it needs much more room and is less often needed.
                Err(binds) => Box::pin(this.execute_alone(session, &sql, &binds)).await,
            }
        }
    }

    /// Lets a statement go behind others if it may; gives its values back if not.
    fn share(
        &self,
        session: Session,
        sql: &[u8],
        binds: Vec<Cell>,
    ) -> Result<oneshot::Receiver<Result<Answer, Error>>, Vec<Cell>> {
        if self.tuned.get() || self.stores.mysql_pins.holds(session, self.owner) {
            return Err(binds);
        }
        self.pipeline.submit(sql, binds)
    }

    async fn execute_alone(
        &self,
        session: Session,
        sql: &[u8],
        binds: &[Cell],
    ) -> Result<Answer, Error> {
        check_length(sql, binds)?;
        let attempt = self.attempt();
        let side_effects = SideEffects::of(sql);
        if side_effects == SideEffects::Session {
            self.tuned.set(true);
        }
        let work = self.run(&attempt, session, sql, binds, side_effects);
        let (answer, time) = attempt.run("execute", work).await?;
        if side_effects == SideEffects::None {
            self.pipeline.record(sql, time);
        }
        Ok(answer)
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
        binds: &[Cell],
        side_effects: SideEffects,
    ) -> Result<(Answer, Duration), Error> {
        let mut lease = match self.stores.mysql_pins.unpin(session, self.owner) {
            Some(Pin::Held(lease)) => lease,
            Some(Pin::Broken) => {
                self.stores.mysql_pins.pin(session, self.owner, Pin::Broken);
                return Err(self.broken("execute", attempt));
            }
            None => self.lease(attempt).await?,
        };
        attempt.talk();
        let pinned = lease.connection().is_in_transaction();
        if side_effects != SideEffects::None {
            lease.connection().stain(self.owner);
        }
        let began = Instant::now();
        match lease.connection().execute(sql, binds).await {
            Ok(answer) => {
                self.put_back(session, lease);
                let now = Instant::now();
                self.pipeline.mark_alive(now);
                Ok((answer, now.duration_since(began)))
            }
            Err(fault) => Err(self.fail(attempt, session, lease, pinned, &fault)),
        }
    }

    async fn begin(&self, attempt: &Attempt<'_>, session: Session) -> Result<(), Error> {
        let mut lease = match self.stores.mysql_pins.unpin(session, self.owner) {
            Some(Pin::Held(lease)) => {
                self.put_back(session, lease);
                return Ok(());
            }
            Some(Pin::Broken) | None => self.lease(attempt).await?,
        };
        attempt.talk();
        let begun = lease.connection().command("START TRANSACTION").await;
        begun.map_err(|fault| self.unpinned(attempt, "transaction", &fault))?;
        self.put_back(session, lease);
        Ok(())
    }

    async fn finish(
        &self,
        attempt: &Attempt<'_>,
        session: Session,
        what: &'static str,
        sql: &'static str,
    ) -> Result<(), Error> {
        let mut lease = match self.stores.mysql_pins.unpin(session, self.owner) {
            Some(Pin::Held(lease)) => lease,
            Some(Pin::Broken) if what == "commit" => return Err(self.broken(what, attempt)),
            Some(Pin::Broken) | None => return Ok(()),
        };
        attempt.talk();
        let finished = lease.connection().command(sql).await;
        finished.map_err(|fault| self.unpinned(attempt, what, &fault))?;
        self.put_back(session, lease);
        Ok(())
    }

    /// A place with a connection that nobody else uses and whose session knows of no other object.
    async fn lease(&self, attempt: &Attempt<'_>) -> Result<MysqlLease, Error> {
        let fit = |connection: &MysqlConnection| connection.is_clean_for(self.owner);
        self.connector().lease(attempt, fit).await
    }

    /// Leaves a connection to its request while a transaction is open, or else to anybody.
    fn put_back(&self, session: Session, mut lease: MysqlLease) {
        match lease.connection().is_in_transaction() {
            // Closed meanwhile: the transaction is undone.
            true if self.closed.get() => (),
            true => self
                .stores
                .mysql_pins
                .pin(session, self.owner, Pin::Held(lease)),
            false => lease.keep(),
        }
    }

    fn fail(
        &self,
        attempt: &Attempt<'_>,
        session: Session,
        lease: MysqlLease,
        pinned: bool,
        fault: &StatementFault,
    ) -> Error {
        if fault.leaves_connection() {
            self.put_back(session, lease);
            return fault.of_statement(attempt, "execute");
        }
        drop(lease);
        if pinned {
            self.stores.mysql_pins.pin(session, self.owner, Pin::Broken);
        }
        self.unpinned(attempt, "execute", fault)
    }

    /// The error of a connection that is gone; idle ones of a server that went are as well.
    fn unpinned(&self, attempt: &Attempt<'_>, what: &str, fault: &StatementFault) -> Error {
        let error = fault.of_statement(attempt, what);
        // A server that goes may say something first that is no answer to anything.
        if matches!(error.kind(), Kind::Lost | Kind::Protocol) {
            self.pipeline.forget();
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

    fn given_up(&self, what: &str) -> Error {
        let why = "the worker ends: nobody reads the answer";
        self.attempt().failed(Kind::Lost, what, why)
    }

    fn connector(&self) -> &Connector {
        self.pipeline.connector()
    }

    fn attempt(&self) -> Attempt<'_> {
        self.connector().attempt()
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
