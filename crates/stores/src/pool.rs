//! Places for connections to one server, and the idle connections that hold some of them.
//!
//! Whoever wants to talk takes a place first, in the order of asking, so that no more connections
//! exist than allowed, whichever objects of scripts made them. An idle connection belongs to whoever
//! it was made for, an object or all who log in alike, and is closed when another needs its place.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::address::Address;
use super::table::Entry;

/// Servers known at once; beyond it, those nobody uses go with their idle connections.
const SERVERS_MAX: usize = 256;

/// Whom a connection was made for: an object of a script, or all that log in alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner(pub(crate) u64);

/// Gives out owners, none of them twice.
#[derive(Default)]
pub(crate) struct Owners(Cell<u64>);

impl Owners {
    pub(crate) fn next(&self) -> Owner {
        self.0.set(self.0.get() + 1);
        Owner(self.0.get())
    }
}

/// The connections of one worker to one server.
pub(crate) struct Pool<C> {
    address: Address,
    connections_max: usize,
    places: Arc<Semaphore>,
    /// Connections that exist, idle or lent.
    open: Cell<usize>,
    /// The one idle for longest is in front.
    idle: RefCell<VecDeque<Idle<C>>>,
}

struct Idle<C> {
    owner: Owner,
    since: Instant,
    connection: C,
}

impl<C> Pool<C> {
    pub(crate) fn new(address: Address, connections_max: usize) -> Self {
        let connections_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            address,
            connections_max,
            places: Arc::new(Semaphore::new(connections_max)),
            open: Cell::new(0),
            idle: RefCell::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Connections that exist now, idle or lent.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Whether every place is taken, so that others may wait for one.
    pub(crate) fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

    /// Waits for a place; it comes with the owner's idle connection, if there is one.
    pub(crate) async fn lease(self: &Rc<Self>, owner: Owner) -> Lease<C> {
        self.lease_preferring(owner, |_| true).await
    }

    /// As [`Pool::lease`], with a connection of those preferred if there is one.
    pub(crate) async fn lease_preferring(
        self: &Rc<Self>,
        owner: Owner,
        preferred: impl Fn(&C) -> bool,
    ) -> Lease<C> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.expect("places are never closed");
        let (connection, kept) = self.reuse(owner, preferred).unzip();
        if connection.is_none() {
            self.make_room();
        }
        Lease {
            server: Rc::clone(self),
            owner,
            connection,
            kept,
            _place: place,
        }
    }

    /// The idle connection of an owner that was used last, and since when it lay idle.
    fn reuse(&self, owner: Owner, preferred: impl Fn(&C) -> bool) -> Option<(C, Instant)> {
        let mut idle = self.idle.borrow_mut();
        let mine = |idle: &Idle<C>| idle.owner == owner;
        let place = idle
            .iter()
            .rposition(|idle| mine(idle) && preferred(&idle.connection));
        let place = place.or_else(|| idle.iter().rposition(mine))?;
        let idle = idle.remove(place)?;
        Some((idle.connection, idle.since))
    }

    /// Closes the longest idle connections that stand in the way of those who have places.
    fn make_room(&self) {
        // Some of them have no connection yet, but will.
        let lent = self
            .connections_max
            .saturating_sub(self.places.available_permits());
        let mut idle = self.idle.borrow_mut();
        let surplus = (idle.len() + lent).saturating_sub(self.connections_max);
        let surplus = surplus.min(idle.len());
        let gone: Vec<_> = idle.drain(..surplus).collect();
        drop(idle);
        self.closed(gone.len());
    }

    fn closed(&self, connections: usize) {
        self.open.set(self.open.get().saturating_sub(connections));
    }

    /// Closes what an owner has idle.
    pub(crate) fn forget(&self, owner: Owner) {
        self.close_where(|idle| idle.owner == owner);
    }

    fn close_where(&self, goes: impl Fn(&Idle<C>) -> bool) {
        let mut gone = Vec::new();
        let mut idle = self.idle.borrow_mut();
        let kept = std::mem::take(&mut *idle).into_iter().filter_map(|one| {
            if goes(&one) {
                gone.push(one);
                return None;
            }
            Some(one)
        });
        *idle = kept.collect();
        drop(idle);
        self.closed(gone.len());
    }
}

/// A place at a server, with or without a connection.
///
/// Dropped, it closes the connection; only [`Lease::keep`] makes that idle again. So a command that
/// is given up in the middle never leaves its answer to the next one.
pub(crate) struct Lease<C> {
    server: Rc<Pool<C>>,
    owner: Owner,
    connection: Option<C>,
    /// Since when the connection lay idle, for one that did.
    kept: Option<Instant>,
    _place: OwnedSemaphorePermit,
}

impl<C> Lease<C> {
    /// Whether there is only the place yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.connection.is_none()
    }

    /// How long the connection lay idle; nothing for one made now.
    pub(crate) fn idle_time(&self) -> Duration {
        self.kept.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The connection; one was kept or put in before.
    pub(crate) fn connection(&mut self) -> &mut C {
        self.connection.as_mut().expect("a lease that is not empty")
    }

    /// Closes a kept connection that is not as it should be.
    pub(crate) fn close_unless(&mut self, sound: impl FnOnce(&mut C) -> bool) {
        if self
            .connection
            .as_mut()
            .is_some_and(|connection| !sound(connection))
        {
            self.close();
        }
    }

    /// Takes in a connection just made.
    pub(crate) fn put(&mut self, connection: C) {
        self.close();
        self.server.open.set(self.server.open.get() + 1);
        (self.connection, self.kept) = (Some(connection), None);
    }

    /// Closes the connection and keeps the place.
    pub(crate) fn close(&mut self) {
        if self.connection.take().is_some() {
            self.server.closed(1);
        }
    }

    /// Gives the place back and the connection to its owner's next use.
    pub(crate) fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            self.server.idle.borrow_mut().push_back(Idle {
                owner: self.owner,
                since: Instant::now(),
                connection,
            });
        }
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<C> Entry for Pool<C> {
    const MAX: usize = SERVERS_MAX;

    fn is_used(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }

    fn is_open(&self) -> bool {
        self.open.get() > 0
    }

    fn sweep(&self, idle_max: Duration) {
        if let Some(before) = Instant::now().checked_sub(idle_max) {
            self.close_where(|idle| idle.since < before);
        }
    }

    fn close(&self) {
        self.close_where(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    const ONE: Owner = Owner(1);
    const OTHER: Owner = Owner(2);

    fn server(connections_max: usize) -> Rc<Pool<&'static str>> {
        let address = Address::parse("127.0.0.1", 1).expect("an address");
        Rc::new(Pool::new(address, connections_max))
    }

    #[tokio::test]
    async fn a_kept_connection_comes_back_to_its_owner_alone() {
        let server = server(4);
        let mut lease = server.lease(ONE).await;
        assert!(lease.is_empty());
        lease.put("first");
        lease.keep();
        assert!(server.lease(OTHER).await.is_empty());
        assert_eq!(server.lease(ONE).await.connection(), &mut "first");
        assert_eq!(
            server.open(),
            0,
            "a lease that is dropped closes its connection"
        );
    }

    #[tokio::test]
    async fn an_idle_connection_gives_way_to_another_owner() {
        let server = server(1);
        let mut lease = server.lease(ONE).await;
        lease.put("first");
        lease.keep();
        let mut lease = server.lease(OTHER).await;
        assert_eq!(server.open(), 0);
        lease.put("second");
        assert_eq!(server.open(), 1);
        lease.keep();
        assert!(server.lease(ONE).await.is_empty());
    }

    #[tokio::test]
    async fn those_who_connect_at_once_and_what_is_idle_are_never_too_many() {
        let server = server(3);
        for _ in 0..2 {
            let mut lease = server.lease(Owner(9)).await;
            lease.put("idle");
            lease.owner = ONE;
            lease.keep();
        }
        let mut leases = [server.lease(OTHER).await, server.lease(OTHER).await];
        assert_eq!(
            server.open(),
            1,
            "one idle connection has made room for the second"
        );
        leases.iter_mut().for_each(|lease| lease.put("new"));
        assert_eq!(server.open(), 3);
        let mine = server.lease(ONE).await;
        assert!(!mine.is_empty());
        assert_eq!(server.open(), 3);
    }

    #[tokio::test]
    async fn whoever_finds_no_place_waits_until_one_is_free() {
        let server = server(1);
        let lease = server.lease(ONE).await;
        let mut waiting = ask_once(server.lease(OTHER));
        assert!(waiting.is_none());
        drop(lease);
        waiting = ask_once(server.lease(OTHER));
        assert!(waiting.is_some());
    }

    /// What a future gives when it is asked once.
    fn ask_once<F: Future>(future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn forgetting_and_sweeping_close_what_is_idle() {
        let server = server(4);
        for owner in [ONE, OTHER, ONE] {
            let mut lease = server.lease(Owner(owner.0 + 10)).await;
            lease.put("idle");
            lease.owner = owner;
            lease.keep();
        }
        assert_eq!(server.open(), 3);
        server.forget(ONE);
        assert_eq!(server.open(), 1);
        server.sweep(Duration::ZERO);
        assert_eq!(server.open(), 0);
    }

    #[test]
    fn a_server_is_one_while_somebody_uses_it() {
        let table = Table::<_, Pool<()>>::default();
        let address = Address::parse("127.0.0.1", 1).expect("an address");
        let named = || table.get(&address, || Pool::new(address.clone(), 4));
        let server = named();
        assert!(Rc::ptr_eq(&server, &named()));
        drop(server);
        table.sweep(Duration::from_secs(60));
        assert_eq!(table.len(), 0);
    }

    #[tokio::test]
    async fn a_server_nobody_names_stays_while_it_has_idle_connections_and_there_is_room() {
        let table = Table::default();
        let server = |port| {
            let address = Address::tcp("127.0.0.1", port).expect("an address");
            table.get(&address, || Pool::new(address.clone(), 4))
        };
        let mut lease = server(1).lease(ONE).await;
        lease.put("idle");
        lease.keep();
        table.sweep(Duration::from_secs(60));
        assert!(!server(1).lease(ONE).await.is_empty());
        for port in 1..2_000 {
            server(port);
        }
        assert!(table.len() <= SERVERS_MAX);
    }

    #[tokio::test]
    async fn a_connection_that_is_preferred_comes_before_the_one_used_last() {
        let server = server(4);
        for name in ["first", "second"] {
            let mut lease = server.lease(OTHER).await;
            lease.close();
            lease.put(name);
            lease.owner = ONE;
            lease.keep();
        }
        let mut lease = server.lease_preferring(ONE, |name| *name == "first").await;
        assert_eq!(lease.connection(), &mut "first");
        let mut lease = server.lease_preferring(ONE, |name| *name == "first").await;
        assert_eq!(lease.connection(), &mut "second");
    }
}
