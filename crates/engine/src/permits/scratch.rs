//! A worker's scratch for what one request asks of the ledger.

use limits::{LimitId, Want};

/// A worker's scratch: the limits found for one request, and the bytes of their keys.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) found: Vec<Found>,
    pub(super) keys: Vec<u8>,
}

/// A limit the request meets, and where its key lies among the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) id: LimitId,
    pub(super) from: u32,
    pub(super) until: u32,
}

impl Found {
    /// Where the key of a fixed limit lies: nowhere.
    pub(super) const NO_KEY: (u32, u32) = (1, 0);

    pub(super) fn want(self, keys: &[u8]) -> Want<'_> {
        let (from, until) = (self.from as usize, self.until as usize);
        Want {
            limit: self.id,
            key: keys.get(from..until),
        }
    }
}
