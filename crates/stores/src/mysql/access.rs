//! How connections of one login to one server are come by: idle ones first, and a place for each.

use std::rc::Rc;
use std::time::Duration;

use super::connection::Connection;
use super::handshake::{Credentials, Secrecy};
use crate::address::Address;
use crate::attempt::{Attempt, Target};
use crate::error::Error;
use crate::limits::Limits;
use crate::names::Names;
use crate::place::{Lease, Owner, Server};

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
}

pub(crate) type Place = Lease<Connection>;

/// One login at one server.
pub(super) struct Access {
    pub(super) server: Rc<Server<Connection>>,
    pub(super) names: Rc<Names>,
    pub(super) limits: Limits,
    /// All who log in alike: the idle connections.
    pub(super) account: Owner,
    pub(super) who: Rc<Credentials>,
}

impl Access {
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
        fit: impl Fn(&Connection) -> bool,
    ) -> Result<Place, Error> {
        let mut place = self.server.lease_preferring(self.account, &fit).await;
        if !place.is_empty() && !fit(place.connection()) {
            let cleaned = attempt.connect(self.clean(attempt, &mut place)).await;
            if cleaned.is_err() {
                place.close();
            }
        }
        if place.is_empty() {
            // Most have a connection, and need no room for all this.
            place.put(Box::pin(attempt.connect(self.open(attempt))).await?);
        }
        Ok(place)
    }

    async fn clean(&self, attempt: &Attempt<'_>, place: &mut Place) -> Result<(), Error> {
        let cleaned = place.connection().clean().await;
        cleaned.map_err(|fault| fault.of_connecting(attempt))
    }

    /// Sees to it that a connection that was idle for a while still is one.
    pub(super) async fn revive(
        &self,
        attempt: &Attempt<'_>,
        place: &mut Place,
    ) -> Result<(), Error> {
        if place.idle_time() < TRUSTED_IDLE {
            return Ok(());
        }
        let alive = attempt.connect(async {
            let alive = place.connection().ping().await;
            alive.map_err(|fault| fault.of_connecting(attempt))
        });
        if alive.await.is_err() {
            self.forget();
            place.put(attempt.connect(self.open(attempt)).await?);
        }
        Ok(())
    }

    async fn open(&self, attempt: &Attempt<'_>) -> Result<Connection, Error> {
        let socket = attempt.dial(&self.names).await?;
        let secrecy = match self.server.address() {
            Address::Unix(_) => Secrecy::Private,
            Address::Tcp { .. } => Secrecy::Open,
        };
        let opened = Connection::open(socket, secrecy, Rc::clone(&self.who)).await;
        opened.map_err(|fault| fault.of_connecting(attempt))
    }

    /// Closes what is idle.
    pub(super) fn forget(&self) {
        self.server.forget(self.account);
    }
}
