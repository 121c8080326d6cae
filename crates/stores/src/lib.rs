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
//! Left out: TLS to memcached and Redis, and whoever asks: values are plain Rust.
#![forbid(unsafe_code)]

mod accounts;
mod address;
mod attempt;
mod channel;
mod error;
pub mod http;
mod limits;
mod line;
pub mod memcached;
pub mod mysql;
#[cfg(test)]
mod peer;
mod pins;
mod pool;
pub mod redis;
mod resolver;
mod secure;
mod socket;
mod table;

use std::path::PathBuf;
use std::rc::Rc;

pub use address::Address;
pub use channel::Progress;
pub use error::{Error, Kind, spell};
pub use limits::{Limits, VALUE_BYTES_MAX};
pub use pins::Session;
pub use secure::ServerTls;

use accounts::Accounts;
use pins::Pins;
use pool::{Lease, Owners, Pool};
use resolver::Resolver;
use table::Table;

/// The stores as one worker sees them.
///
/// Belongs to the worker's thread. When it and its clients are dropped, all connections close.
pub struct Stores {
    limits: Limits,
    names: Rc<Resolver>,
    owners: Owners,
    memcached: Table<Address, memcached::MemcachedServer>,
    mysql: Table<Address, Pool<mysql::MysqlConnection>>,
    mysql_pipelines: Table<mysql::Login, mysql::Pipeline>,
    mysql_pins: Pins<Lease<mysql::MysqlConnection>>,
    redis: Table<Address, Pool<redis::RedisConnection>>,
    redis_accounts: Accounts<redis::RedisLogin>,
    redis_pins: Pins<Lease<redis::RedisConnection>>,
    http: Table<Address, Pool<http::HttpConnection>>,
    https: Table<Address, Pool<http::HttpConnection>>,
    http_warm: http::Warm,
    tls: http::Tls,
}

impl Stores {
    /// Makes the stores of a worker; nothing is connected yet.
    pub fn new(limits: Limits) -> Rc<Self> {
        Self::with_tls(limits, http::Tls::default())
    }

    /// As [`Self::new`]; over https those are believed whose certificates come from the authorities
    /// in this file of PEM.
    pub fn with_authorities(limits: Limits, file: PathBuf) -> Rc<Self> {
        Self::with_tls(limits, http::Tls::with_bundles(vec![file]))
    }

    fn with_tls(limits: Limits, tls: http::Tls) -> Rc<Self> {
        Rc::new(Self {
            limits,
            names: Rc::default(),
            owners: Owners::default(),
            memcached: Table::default(),
            mysql: Table::default(),
            mysql_pipelines: Table::default(),
            mysql_pins: Pins::default(),
            redis: Table::default(),
            redis_accounts: Accounts::default(),
            redis_pins: Pins::default(),
            http: Table::default(),
            https: Table::default(),
            http_warm: http::Warm::default(),
            tls,
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
        self.mysql_pipelines.sweep(self.limits.idle_timeout);
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

    /// The connections to a server, none made yet.
    fn pool<C>(&self, address: &Address) -> Pool<C> {
        Pool::new(address.clone(), self.limits.connections_max)
    }
}
