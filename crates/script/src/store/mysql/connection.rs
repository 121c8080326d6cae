//! One connection to MySQL, which knows whether it may be used again.
//!
//! The library says goodbye to the server when a connection is dropped, and reads what is left of
//! an answer before that, in a task of its own; of an answer given up in the middle that may be
//! much. So such a connection is dropped on a thread where the library finds no runtime: there it
//! only closes the socket. An idle connection leaves politely: five bytes, and no waiting.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{ChangeUserOpts, Conn, Opts, Params};

use super::answer::{self, Answer, Cell};
use super::fault::Fault;
use crate::store::place::Owner;

/// Connections waiting to be closed; beyond it they are dropped where they are.
const CLOSING_MAX: usize = 1_024;

/// A connection that is logged in.
pub(crate) struct Connection {
    conn: Option<Conn>,
    state: State,
    /// The object that may have left something in the session.
    stained: Option<Owner>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its last answer was read whole.
    Ready,
    /// The same, and the server holds a transaction open on it.
    InTransaction,
    /// Something was sent, and its answer not read whole.
    Busy,
}

impl Connection {
    pub(super) async fn open(opts: Opts) -> Result<Self, Fault> {
        let conn = Conn::new(opts).await?;
        Ok(Self {
            conn: Some(conn),
            state: State::Ready,
            stained: None,
        })
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.state == State::InTransaction
    }

    /// Whether no other object can have left anything in the session.
    pub(super) fn is_clean_for(&self, owner: Owner) -> bool {
        self.stained.is_none_or(|stained| stained == owner)
    }

    /// Notes that an object may leave something in the session.
    pub(super) fn stain(&mut self, owner: Owner) {
        self.stained = Some(owner);
    }

    /// Begins the session anew, as after logging in.
    ///
    /// It logs in again: `COM_RESET_CONNECTION` leaves the database that `USE` chose, and some
    /// servers forget the character set with it.
    pub(super) async fn clean(&mut self) -> Result<(), Fault> {
        self.state = State::Busy;
        let conn = self.conn.as_mut().expect("taken on drop alone");
        conn.change_user(ChangeUserOpts::default()).await?;
        (self.state, self.stained) = (State::Ready, None);
        Ok(())
    }

    /// Asks for a sign of life.
    pub(super) async fn ping(&mut self) -> Result<(), Fault> {
        let before = std::mem::replace(&mut self.state, State::Busy);
        let conn = self.conn.as_mut().expect("taken on drop alone");
        conn.ping().await?;
        self.state = before;
        Ok(())
    }

    /// Runs a statement and reads all it gives.
    pub(super) async fn execute(&mut self, sql: &[u8], binds: Vec<Cell>) -> Result<Answer, Fault> {
        let before = std::mem::replace(&mut self.state, State::Busy);
        let conn = self.conn.as_mut().expect("taken on drop alone");
        let bound = !binds.is_empty();
        let mut result = prepared(conn, sql, binds).await;
        if !bound && matches!(&result, Err(fault) if fault.wants_text()) {
            result = text(conn, sql).await;
        }
        self.settle(before, result)
    }

    /// Runs a statement of ours that gives nothing.
    pub(super) async fn command(&mut self, sql: &'static str) -> Result<(), Fault> {
        let before = std::mem::replace(&mut self.state, State::Busy);
        let conn = self.conn.as_mut().expect("taken on drop alone");
        let result = text(conn, sql.as_bytes()).await;
        self.settle(before, result).map(drop)
    }

    fn settle<T>(&mut self, before: State, result: Result<T, Fault>) -> Result<T, Fault> {
        match &result {
            Ok(_) => self.state = self.told().unwrap_or(before),
            Err(fault) if fault.leaves_connection() => self.state = before,
            Err(_) => (),
        }
        result
    }

    /// What the server said last about transactions.
    fn told(&self) -> Option<State> {
        let flags = self.conn.as_ref()?.last_ok_packet()?.status_flags();
        let automatic = flags.contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT);
        match automatic && !flags.contains(StatusFlags::SERVER_STATUS_IN_TRANS) {
            true => Some(State::Ready),
            false => Some(State::InTransaction),
        }
    }
}

async fn prepared(conn: &mut Conn, sql: &[u8], binds: Vec<Cell>) -> Result<Answer, Fault> {
    let statement = conn.prep(sql).await?;
    let (required, supplied) = (usize::from(statement.num_params()), binds.len());
    if required != supplied {
        // The library would close the connection.
        return Err(Fault::Binds { required, supplied });
    }
    let params = match binds.is_empty() {
        true => Params::Empty,
        false => Params::Positional(binds.into_iter().map(Into::into).collect()),
    };
    answer::read(conn.exec_iter(&statement, params).await?).await
}

async fn text(conn: &mut Conn, sql: &[u8]) -> Result<Answer, Fault> {
    answer::read(conn.query_iter(sql).await?).await
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let (State::Busy, Some(conn)) = (self.state, self.conn.take()) {
            close_elsewhere(conn);
        }
    }
}

/// Hands a connection to the thread that closes it without a word.
fn close_elsewhere(conn: Conn) {
    static CLOSER: OnceLock<Option<SyncSender<Conn>>> = OnceLock::new();
    if let Some(closer) = CLOSER.get_or_init(start_closer) {
        // When the queue is full, the error holds the connection and drops it here.
        let _ = closer.try_send(conn);
    }
}

fn start_closer() -> Option<SyncSender<Conn>> {
    let (sender, receiver) = sync_channel(CLOSING_MAX);
    let closer = move |receiver: Receiver<Conn>| receiver.into_iter().for_each(drop);
    let thread = thread::Builder::new().name("mysql-closer".to_owned());
    thread.spawn(move || closer(receiver)).ok()?;
    Some(sender)
}
