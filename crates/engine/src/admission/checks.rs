//! What a worker knows of passwords: which were right a moment ago.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use config::model::Auth;

use super::credentials::Credentials;

/// How long a good answer holds.
const REMEMBERED_MS: u64 = 60_000;
/// Good answers a worker remembers.
const REMEMBERED_MAX: usize = 4_096;

/// What a worker knows of passwords.
#[derive(Debug, Default)]
pub struct Checks {
    /// When good answers end. Keys are hashes under keys of this process: no password is kept.
    good: RefCell<HashMap<[u64; 2], u64>>,
    pub(super) keys: [RandomState; 2],
}

impl Checks {
    /// A changed password changes the key: a good answer never outlives it.
    pub(super) fn key(&self, auth: &Auth, credentials: &Credentials) -> [u64; 2] {
        let stored = auth.users.get(&credentials.user);
        let text = (&auth.file, stored, &credentials.user, &credentials.password);
        [self.keys[0].hash_one(text), self.keys[1].hash_one(text)]
    }

    pub(super) fn remembers(&self, key: [u64; 2], now_ms: u64) -> bool {
        self.good
            .borrow()
            .get(&key)
            .is_some_and(|until_ms| now_ms < *until_ms)
    }

    pub(super) fn remember(&self, key: [u64; 2], now_ms: u64) {
        let mut good = self.good.borrow_mut();
        if good.len() >= REMEMBERED_MAX {
            good.retain(|_, until_ms| now_ms < *until_ms);
        }
        if good.len() >= REMEMBERED_MAX {
            good.clear();
        }
        good.insert(key, now_ms + REMEMBERED_MS);
    }
}
