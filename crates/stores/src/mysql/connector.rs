//! How connections of one login to one server are come by: idle ones first, and a place for each.

use std::rc::Rc;
use std::time::Duration;

use super::connection::{MysqlConnection, Way};
use super::handshake::Credentials;
use crate::address::Address;
use crate::attempt::{Attempt, Target};
use crate::error::Error;
use crate::limits::Limits;
use crate::pool::{Lease, Owner, Pool};
use crate::resolver::Resolver;
use crate::secure::ServerTls;

const SERVICE: &str = "MySQL";
/// A connection idle for longer is asked for a sign of life before an object is made on it.
pub(super) const TRUSTED_IDLE: Duration = Duration::from_millis(100);

/// Who asks for which database, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Login {
    /// The server, over TCP or a Unix socket.
    pub address: Address,
    /// The account's name.
    pub user: String,
    /// Empty for none.
    pub password: String,
    /// Empty for none.
    pub database: String,
    /// Over TCP, where nothing is said to a server without it.
    pub tls: Option<ServerTls>,
}

pub(crate) type MysqlLease = Lease<MysqlConnection>;

/// One login at one server.
pub(super) struct Connector {
    pub(super) server: Rc<Pool<MysqlConnection>>,
    pub(super) names: Rc<Resolver>,
    pub(super) limits: Limits,
    /// All who log in alike: the idle connections.
    pub(super) account: Owner,
    pub(super) who: Rc<Credentials>,
    pub(super) tls: Option<ServerTls>,
}

impl Connector {
    pub(super) fn attempt(&self) -> Attempt<'_> {
        let target = Target {
            service: SERVICE,
            address: self.server.address(),
        };
        Attempt::new(target, self.limits)
    }

    /// A place with a connection that nobody else uses and that is fit for what is asked on it.
    pub(super) async fn lease(
        &self,
        attempt: &Attempt<'_>,
        fit: impl Fn(&MysqlConnection) -> bool,
    ) -> Result<MysqlLease, Error> {
        let mut lease = self.server.lease_preferring(self.account, &fit).await;
        if !lease.is_empty() && !fit(lease.connection()) {
            let cleaned = attempt.connect(self.clean(attempt, &mut lease)).await;
            if cleaned.is_err() {
                lease.close();
            }
        }
        if lease.is_empty() {
            // Most have a connection, and need no room for all this.
            lease.put(Box::pin(attempt.connect(self.open(attempt))).await?);
        }
        Ok(lease)
    }

    async fn clean(&self, attempt: &Attempt<'_>, lease: &mut MysqlLease) -> Result<(), Error> {
        let cleaned = lease.connection().clean().await;
        cleaned.map_err(|fault| fault.of_connecting(attempt))
    }

    /// Sees to it that a connection that was idle for a while still is one.
    pub(super) async fn revive(
        &self,
        attempt: &Attempt<'_>,
        lease: &mut MysqlLease,
    ) -> Result<(), Error> {
        if lease.idle_time() < TRUSTED_IDLE {
            return Ok(());
        }
        let alive = attempt.connect(async {
            let alive = lease.connection().ping().await;
            alive.map_err(|fault| fault.of_connecting(attempt))
        });
        if alive.await.is_err() {
            self.forget();
            lease.put(attempt.connect(self.open(attempt)).await?);
        }
        Ok(())
    }

    async fn open(&self, attempt: &Attempt<'_>) -> Result<MysqlConnection, Error> {
        let socket = attempt.dial(&self.names).await?;
        let way = match (self.server.address(), &self.tls) {
            (Address::Unix(_), _) => Way::Private,
            (Address::Tcp { host, .. }, Some(tls)) => Way::Secured(tls, host),
            (Address::Tcp { .. }, None) => Way::Open,
        };
        let opened = MysqlConnection::open(socket, way, Rc::clone(&self.who)).await;
        opened.map_err(|fault| fault.of_connecting(attempt))
    }

    /// Closes what is idle.
    pub(super) fn forget(&self) {
        self.server.forget(self.account);
    }
}
