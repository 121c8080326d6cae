//! Numbers for logins: connections of one number may be used by all who log in alike.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use super::Stores;
use super::place::Owner;

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
    pub(crate) fn number(&self, account: K, stores: &Stores) -> Owner {
        let mut numbers = self.numbers.borrow_mut();
        if let Some(number) = numbers.get(&account) {
            return *number;
        }
        if numbers.len() >= ACCOUNTS_MAX {
            numbers.clear();
        }
        let number = stores.next_owner();
        numbers.insert(account, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Limits;

    #[test]
    fn a_login_has_one_number_and_no_other_login_has_it() {
        let (stores, accounts) = (Stores::new(Limits::default()), Accounts::default());
        let first = accounts.number("a", &stores);
        assert_eq!(accounts.number("a", &stores), first);
        assert_ne!(accounts.number("b", &stores), first);
        assert_ne!(stores.next_owner(), first);
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_no_number_comes_twice() {
        let (stores, accounts) = (Stores::new(Limits::default()), Accounts::default());
        let first = accounts.number(0, &stores);
        for account in 1..=ACCOUNTS_MAX {
            assert_ne!(accounts.number(account, &stores), first);
        }
        assert!(accounts.numbers.borrow().len() <= ACCOUNTS_MAX);
        assert_ne!(accounts.number(0, &stores), first);
    }
}
