//! Numbers for logins: connections of one number may be used by all who log in alike.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use super::pool::{Owner, Owners};

/// Logins remembered; one more, and all are forgotten, and what is idle of theirs closes in time.
const ACCOUNTS_MAX: usize = 1_024;

/// The logins of one kind of store, each with its number.
pub(crate) struct Accounts<K> {
    numbers: RefCell<HashMap<K, Owner>>,
}

impl<K> Default for Accounts<K> {
    fn default() -> Self {
        Self {
            numbers: RefCell::default(),
        }
    }
}

impl<K: Eq + Hash> Accounts<K> {
    /// The number of a login, which nothing else has.
    pub(crate) fn number(&self, account: K, owners: &Owners) -> Owner {
        let mut numbers = self.numbers.borrow_mut();
        if let Some(number) = numbers.get(&account) {
            return *number;
        }
        if numbers.len() >= ACCOUNTS_MAX {
            numbers.clear();
        }
        let number = owners.next();
        numbers.insert(account, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_one_number_and_no_other_login_has_it() {
        let (owners, accounts) = (Owners::default(), Accounts::default());
        let first = accounts.number("a", &owners);
        assert_eq!(accounts.number("a", &owners), first);
        assert_ne!(accounts.number("b", &owners), first);
        assert_ne!(owners.next(), first);
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_no_number_comes_twice() {
        let (owners, accounts) = (Owners::default(), Accounts::default());
        let first = accounts.number(0, &owners);
        for account in 1..=ACCOUNTS_MAX {
            assert_ne!(accounts.number(account, &owners), first);
        }
        assert!(accounts.numbers.borrow().len() <= ACCOUNTS_MAX);
        assert_ne!(accounts.number(0, &owners), first);
    }
}
