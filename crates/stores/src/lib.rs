//! Clients of memcached, MySQL and MariaDB, Redis, and HTTP servers, for one thread.
//!
//! A worker has one [`Stores`]; whoever asks (a script's `Memcached.new`, `MySQL::Database.new`, …) does
//! so through a client made from it, which connects when it is first used. Many requests may use one
//! client at once. However many clients there are, a worker has no more connections to one server than
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
//! Left out: TLS to stores other than HTTP servers, and whoever asks: values are plain Rust.
#![forbid(unsafe_code)]

mod account;
mod address;
mod attempt;
mod channel;
mod error;
pub mod http;
mod limits;
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

use std::rc::Rc;

pub use address::Address;
pub use channel::Progress;
pub use error::{Error, Kind, spell};
pub use limits::{Limits, VALUE_BYTES_MAX};
pub use session::Session;

use account::Accounts;
use names::Names;
use place::{Directory, Lease, Owners};
use session::Pins;

/// The stores as one worker sees them.
///
/// Belongs to the worker's thread. When it and its clients are dropped, all connections close.
pub struct Stores {
    limits: Limits,
    names: Rc<Names>,
    owners: Owners,
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
            owners: Owners::default(),
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
}
