//! How many connections each client has, so that none can take them all.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Separately locked parts of the table.
const SHARDS: usize = 16;

/// Connections by client: an IPv4 address, or the /64 an IPv6 address lies in.
#[derive(Debug)]
pub struct Clients {
    /// Held for one look-up at accept and at close.
    shards: Vec<Mutex<HashMap<u64, u32>>>,
    hasher: RandomState,
}

/// A client's place for one connection; given back on drop.
#[derive(Debug)]
pub struct ClientSlot {
    clients: Arc<Clients>,
    key: u64,
}

impl Clients {
    /// Makes an empty table.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        })
    }

    /// Takes a slot, unless the client has `seats_max` already (0 is no cap).
    pub fn slot(self: &Arc<Self>, address: IpAddr, seats_max: usize) -> Option<ClientSlot> {
        let key = key(address);
        let mut shard = self
            .shard(key)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let slots = shard.entry(key).or_insert(0);
        if seats_max != 0 && usize::try_from(*slots).unwrap_or(usize::MAX) >= seats_max {
            return None;
        }
        *slots += 1;
        Some(ClientSlot {
            clients: Arc::clone(self),
            key,
        })
    }

    fn shard(&self, key: u64) -> &Mutex<HashMap<u64, u32>> {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        // `SHARDS` shards were made.
        &self.shards[index]
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut shard = self
            .clients
            .shard(self.key)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = shard.get_mut(&self.key) {
            *slots -= 1;
            if *slots == 0 {
                shard.remove(&self.key);
            }
        }
    }
}

/// The upper half of an IPv6 address, or an IPv4 address where no global IPv6 prefix can be.
pub(crate) fn key(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => u64::try_from(v6.to_bits() >> 64).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_seats_and_no_more() {
        let clients = Clients::new();
        let here: IpAddr = "192.0.2.1".parse().expect("address");
        let slots: Vec<_> = (0..3).filter_map(|_| clients.slot(here, 2)).collect();
        assert_eq!(slots.len(), 2);
        assert!(
            clients
                .slot("192.0.2.2".parse().expect("address"), 2)
                .is_some()
        );
        drop(slots);
        assert!(clients.slot(here, 2).is_some());
        assert!(
            clients
                .shards
                .iter()
                .all(|shard| shard.lock().expect("lock").is_empty())
        );
    }

    #[test]
    fn a_64_is_one_client() {
        let clients = Clients::new();
        let _first = clients.slot("2001:db8::1".parse().expect("address"), 1);
        assert!(
            clients
                .slot("2001:db8::2".parse().expect("address"), 1)
                .is_none()
        );
        assert!(
            clients
                .slot("2001:db8:0:1::2".parse().expect("address"), 1)
                .is_some()
        );
    }
}
