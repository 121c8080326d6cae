//! What a worker knows of servers, by address or login: the same one for all who name it, and no more
//! than a number of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use std::time::Duration;

/// What is kept by a key.
pub(crate) trait Entry {
    /// Entries at once; beyond it, those nobody uses go.
    const MAX: usize;

    /// Whether somebody has it beside the table and itself.
    fn is_used(self: &Rc<Self>) -> bool;

    /// Whether it has connections.
    fn is_open(&self) -> bool;

    /// Closes connections that were idle for longer than allowed.
    fn sweep(&self, idle_max: Duration);

    /// Closes everything: it goes.
    fn close(&self);
}

/// Entries by their keys.
pub(crate) struct Table<K, E: Entry> {
    entries: RefCell<HashMap<K, Rc<E>>>,
}

impl<K, E: Entry> Default for Table<K, E> {
    fn default() -> Self {
        Self {
            entries: RefCell::default(),
        }
    }
}

impl<K: Clone + Eq + Hash, E: Entry> Table<K, E> {
    /// The entry of a key, made now if there is none.
    pub(crate) fn get(&self, key: &K, make: impl FnOnce() -> E) -> Rc<E> {
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get(key) {
            return Rc::clone(entry);
        }
        if entries.len() >= E::MAX {
            entries.retain(|_, entry| {
                let used = entry.is_used();
                if !used {
                    entry.close();
                }
                used
            });
        }
        let entry = Rc::new(make());
        entries.insert(key.clone(), Rc::clone(&entry));
        entry
    }

    /// Closes connections that were idle for longer than allowed, and forgets what nobody uses and
    /// has none.
    pub(crate) fn sweep(&self, idle_max: Duration) {
        self.entries.borrow_mut().retain(|_, entry| {
            entry.sweep(idle_max);
            entry.is_used() || entry.is_open()
        });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }
}

impl<K, E: Entry> Drop for Table<K, E> {
    fn drop(&mut self) {
        self.entries
            .borrow()
            .values()
            .for_each(|entry| entry.close());
    }
}
