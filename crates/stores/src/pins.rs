//! Connections that belong to one request for a while: transactions, and what Redis watches.
//!
//! Between the beginning and the end of a transaction every command of the request must find the
//! same connection, and nobody else may. Such a connection is pinned here under the request and the
//! object it belongs to, holds its place at the server, and is closed when the request ends.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::pool::Owner;

/// A request, by its serial number in the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// What is pinned for a request at one object.
pub(crate) enum Pin<L> {
    /// The connection, between two commands.
    Held(L),
    /// It was lost in the middle: what was done on it is undone, and the script must be told.
    Broken,
}

/// The pinned connections of one kind of store.
pub(crate) struct Pins<L> {
    pins: RefCell<BTreeMap<(Session, Owner), Pin<L>>>,
}

impl<L> Default for Pins<L> {
    fn default() -> Self {
        Self {
            pins: RefCell::default(),
        }
    }
}

impl<L> Pins<L> {
    /// Takes a request's pin out, for a command or for good.
    pub(crate) fn unpin(&self, session: Session, owner: Owner) -> Option<Pin<L>> {
        self.pins.borrow_mut().remove(&(session, owner))
    }

    /// Whether a request has a pin at an object.
    pub(crate) fn holds(&self, session: Session, owner: Owner) -> bool {
        self.pins.borrow().contains_key(&(session, owner))
    }

    /// Pins something for a request until it ends.
    pub(crate) fn pin(&self, session: Session, owner: Owner, pin: Pin<L>) {
        let replaced = self.pins.borrow_mut().insert((session, owner), pin);
        drop(replaced);
    }

    /// Closes what a request has pinned.
    pub(crate) fn end(&self, session: Session) {
        let mut pins = self.pins.borrow_mut();
        if pins.is_empty() {
            return;
        }
        let all = (session, Owner(0))..=(session, Owner(u64::MAX));
        let keys: Vec<_> = pins.range(all).map(|(key, _)| *key).collect();
        let ended: Vec<_> = keys.iter().filter_map(|key| pins.remove(key)).collect();
        drop(pins);
        drop(ended);
    }

    /// Closes what is pinned at an object that goes.
    pub(crate) fn close(&self, owner: Owner) {
        let mut pins = self.pins.borrow_mut();
        let keys: Vec<_> = pins.keys().filter(|key| key.1 == owner).copied().collect();
        let closed: Vec<_> = keys.iter().filter_map(|key| pins.remove(key)).collect();
        drop(pins);
        drop(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_found_by_its_request_and_object_and_ends_with_either() {
        let pins = Pins::default();
        for (session, owner) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            pins.pin(
                Session(session),
                Owner(owner),
                Pin::Held(session * 10 + owner),
            );
        }
        pins.end(Session(1));
        assert!(pins.unpin(Session(1), Owner(1)).is_none());
        pins.close(Owner(2));
        assert!(pins.unpin(Session(2), Owner(2)).is_none());
        assert!(matches!(
            pins.unpin(Session(2), Owner(1)),
            Some(Pin::Held(21))
        ));
        assert!(pins.unpin(Session(2), Owner(1)).is_none());
    }
}
