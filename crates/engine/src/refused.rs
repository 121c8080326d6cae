//! Clients that are refused more often than they may be: their connections end, and of their
//! records one in a hundred is written.
//!
//! The idea: who comes back at once after each refusal costs more by its records than by its
//! requests. One small table for all workers counts the refusals of this second by client; where
//! more clients are refused than it has places, those refused most stay in it. A refusal takes no
//! lock and no memory.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::listener::clients::key as client_key;

/// Of so many records one is written; the field `sampled` says so.
pub(crate) const SAMPLE: u64 = 100;
/// Places a client may have in the table; they share a line of the processor's cache.
const WAYS: usize = 8;
/// Groups of places.
const GROUPS: usize = 512;
/// Bits of a place that count, and of those beside them that tell the second.
const COUNT_BITS: u32 = 20;
const SECOND_BITS: u32 = 12;

/// Refusals of this second by client.
#[derive(Debug)]
pub struct RefusedClients {
    groups: Box<[Group]>,
    hasher: RandomState,
}

/// Places: a client's hash, the second, and how often it was refused in that.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Group([AtomicU64; WAYS]);

impl Default for RefusedClients {
    fn default() -> Self {
        Self {
            groups: (0..GROUPS).map(|_| Group::default()).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl RefusedClients {
    /// Counts a refusal of this client; how many there were of it in this second.
    pub(crate) fn count(&self, client: IpAddr, second: u64) -> u64 {
        let hash = self.hasher.hash_one(client_key(client));
        let group = &self.groups[hash as usize % GROUPS].0;
        let second = second & ((1 << SECOND_BITS) - 1);
        let tag = (hash >> (COUNT_BITS + SECOND_BITS) << SECOND_BITS | second) << COUNT_BITS;
        let is_now = |place: u64| (place >> COUNT_BITS) & ((1 << SECOND_BITS) - 1) == second;
        let count = |place: u64| place & ((1 << COUNT_BITS) - 1);
        let mut least = (&group[0], u64::MAX, 0);
        for place in group {
            let seen = place.load(Relaxed);
            if seen >> COUNT_BITS == tag >> COUNT_BITS {
                if count(seen) >= (1 << COUNT_BITS) - 1 {
                    return count(seen);
                }
                return count(place.fetch_add(1, Relaxed)) + 1;
            }
            let weight = if is_now(seen) { count(seen) } else { 0 };
            if weight < least.1 {
                least = (place, weight, seen);
            }
        }
        // Where another was quicker, this one is counted next time.
        let _ = least.0.compare_exchange(least.2, tag | 1, Relaxed, Relaxed);
        1
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn each_client_is_counted_by_itself_and_anew_each_second() {
        let table = RefusedClients::default();
        for second in [7, 8, (1 << SECOND_BITS) + 9] {
            for count in 1..=200 {
                assert_eq!(table.count(client(1), second), count);
            }
            assert_eq!(table.count(client(2), second), 1);
        }
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        table.count(v6("2001:db8::1"), 10);
        assert_eq!(table.count(v6("2001:db8::2"), 10), 2);
        assert_eq!(table.count(v6("2001:db8:0:1::2"), 10), 1);
    }

    #[test]
    fn who_is_refused_most_is_not_forgotten_for_many_who_are_refused_once() {
        let table = RefusedClients::default();
        for count in 1..=100 {
            assert_eq!(table.count(client(1), 3), count);
        }
        for other in 2..100_000 {
            assert_eq!(table.count(client(other), 3), 1);
        }
        assert_eq!(table.count(client(1), 3), 101);
    }
}
