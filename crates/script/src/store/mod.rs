//! The clients of stores that scripts wait for: memcached, MySQL and MariaDB, Redis, HTTP.
//!
//! A worker has one [`Stores`]; each object of a script (`Memcached.new`, `MySQL::Database.new`, …)
//! is a client made from it, which connects when it is first used. Many fibers may use one client at
//! once. However many clients there are, a worker has no more connections to one server than
//! [`Limits::connections_max`]; who finds none free waits.
//!
//! A connection to memcached has no state, so it belongs to the address, and the commands of many
//! requests are under way on it at once; plain and quick `SELECT`s share connections to MySQL
//! likewise. Elsewhere each command takes a connection of its own. Idle ones belong to all clients
//! that log in alike; to MySQL they are made clean before another client uses them, and to Redis none
//! is kept on which a command has changed something.
//!
//! Every operation is a future that owns what it needs. Dropped in the middle, its late answer is
//! nobody's. Nothing is sent twice that may change something.
//!
//! Left out: TLS to stores, and anything of Ruby; values are plain Rust.

mod account;
mod address;
mod attempt;
mod error;
pub mod http;
mod line;
pub mod memcached;
pub mod mysql;
mod names;
#[cfg(test)]
mod peer;
mod place;
pub mod redis;
mod session;
mod socket;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

pub use address::Address;
pub(crate) use error::spell;
pub use error::{Error, Kind};
pub use session::Session;

use account::Accounts;
use names::Names;
use place::{Directory, Lease, Owner};
use session::Pins;

/// The longest value, row set or body taken from or given to a store: 10 MiB.
pub const VALUE_BYTES_MAX: usize = 10 * 1024 * 1024;

/// What a worker allows its scripts to ask of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time to make one connection, looking up its name and logging in included.
    pub connect_timeout: Duration,
    /// Time for one operation as a whole, waiting for a free connection and connecting included.
    pub command_timeout: Duration,
    /// Connections of this worker to one server, idle ones included; at least 1.
    pub connections_max: usize,
    /// How long a connection may lie idle before it is closed.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_secs(5),
            connections_max: 32,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// The stores as one worker sees them.
///
/// Belongs to the worker's thread. When it and its clients are dropped, all connections close.
pub struct Stores {
    limits: Limits,
    names: Rc<Names>,
    owners: Cell<u64>,
    memcached: memcached::Servers,
    mysql: Directory<mysql::Connection>,
    mysql_desks: mysql::Desks,
    mysql_pins: Pins<Lease<mysql::Connection>>,
    redis: Directory<redis::Link>,
    redis_accounts: Accounts<redis::Login>,
    redis_pins: Pins<Lease<redis::Link>>,
    http: Directory<http::Connection>,
    https: Directory<http::Connection>,
    http_warm: http::Warm,
    tls: http::Tls,
}

impl Stores {
    /// Makes the stores of a worker; nothing is connected yet.
    pub fn new(limits: Limits) -> Rc<Self> {
        Rc::new(Self {
            limits,
            names: Rc::default(),
            owners: Cell::new(0),
            memcached: memcached::Servers::default(),
            mysql: Directory::default(),
            mysql_desks: mysql::Desks::default(),
            mysql_pins: Pins::default(),
            redis: Directory::default(),
            redis_accounts: Accounts::default(),
            redis_pins: Pins::default(),
            http: Directory::default(),
            https: Directory::default(),
            http_warm: http::Warm::default(),
            tls: http::Tls::default(),
        })
    }

    /// The limits its clients keep to.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Closes connections that were idle for too long; to be called about once a second.
    pub fn sweep(&self) {
        self.memcached.sweep(self.limits.idle_timeout);
        self.mysql.sweep(self.limits.idle_timeout);
        self.mysql_desks.sweep();
        self.redis.sweep(self.limits.idle_timeout);
        self.http.sweep(self.limits.idle_timeout);
        self.https.sweep(self.limits.idle_timeout);
        self.http_warm.sweep();
    }

    /// Ends what a request has left open: its transactions are undone, its connections closed.
    pub fn end(&self, session: Session) {
        self.mysql_pins.end(session);
        self.redis_pins.end(session);
    }

    fn next_owner(&self) -> Owner {
        let number = self.owners.get() + 1;
        self.owners.set(number);
        Owner(number)
    }
}
