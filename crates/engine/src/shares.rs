//! Room that many share, such as the disk bodies are set aside on: who takes much leaves the
//! others some.
//!
//! What somebody may hold follows what is left (dynamic thresholds, Choudhury and Hahne 1998): a
//! client's network [`NETWORK_TIMES`] as much, a tenant [`TENANT_TIMES`]. So who is alone gets most
//! of it, and whoever comes next finds some. As all that may be used up by enough of them, the last
//! of the room is for networks that hold little, and half of that for those whose tenant holds
//! little, too. Nothing is ever taken away from who has it.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address;

/// What a tenant may hold, as a multiple of what it leaves.
const TENANT_TIMES: u64 = 7;
/// What a network may hold, as a multiple of what it leaves.
const NETWORK_TIMES: u64 = 3;
/// The part of the room that is for networks that hold little.
const LAST_PART: u64 = 8;
/// The part of the room that is at most little for a network, and for a tenant.
const LITTLE_PART: u64 = 512;
const LITTLE_PART_OF_TENANT: u64 = 32;

/// On whose behalf something is held.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    tenant: Arc<str>,
    network: IpAddr,
}

impl Owner {
    /// A client of a tenant's.
    pub fn new(tenant: Option<&Arc<str>>, client: IpAddr) -> Self {
        Self {
            tenant: tenant.cloned().unwrap_or_default(),
            network: address::network(client),
        }
    }
}

/// Who holds how much.
#[derive(Debug, Default)]
pub struct Shares {
    /// Held to count.
    held: Mutex<Held>,
}

/// Only who holds something stands here.
#[derive(Debug, Default)]
struct Held {
    all: u64,
    tenants: HashMap<Arc<str>, u64>,
    /// Whichever tenants' they are: further tenants are no further shares of a client.
    networks: HashMap<IpAddr, u64>,
}

/// What a single client may hold of `room` while nobody else holds any.
pub(crate) fn most_of(room: u64) -> u64 {
    // In this order nothing overflows.
    (room - room / LAST_PART) / (NETWORK_TIMES + 1) * NETWORK_TIMES
}

impl Held {
    /// Whether of `room` somebody may hold as much as `network`, with his tenant holding as much as
    /// `tenant` then, and everybody together `all`.
    fn allows(room: u64, all: u64, tenant: u64, network: u64) -> bool {
        let last = room / LAST_PART;
        if network <= room / LITTLE_PART {
            let is_little = tenant <= room / LITTLE_PART_OF_TENANT;
            return all <= room - if is_little { 0 } else { last / 2 };
        }
        let left = (room - last).saturating_sub(all);
        network <= left.saturating_mul(NETWORK_TIMES) && tenant <= left.saturating_mul(TENANT_TIMES)
    }
}

impl Shares {
    /// Takes `count` of `room` for somebody, if all of it is within his share.
    pub fn acquire(&self, owner: &Owner, count: u64, room: u64) -> Result<(), TooMuch> {
        let mut held = self.lock();
        let after = |before: Option<&u64>| before.map_or(count, |it| it.saturating_add(count));
        let tenant = after(held.tenants.get(&owner.tenant));
        let network = after(held.networks.get(&owner.network));
        if !Held::allows(room, after(Some(&held.all)), tenant, network) {
            return Err(TooMuch);
        }
        held.all += count;
        *held.tenants.entry(owner.tenant.clone()).or_default() += count;
        *held.networks.entry(owner.network).or_default() += count;
        Ok(())
    }

    /// Gives back what was taken.
    pub fn give_back(&self, owner: &Owner, count: u64) {
        let mut held = self.lock();
        held.all -= count;
        less(&mut held.tenants, &owner.tenant, count);
        less(&mut held.networks, &owner.network, count);
    }

    /// What all hold together.
    pub fn held(&self) -> u64 {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More than the share of who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch;

fn less<K: Eq + Hash>(counts: &mut HashMap<K, u64>, key: &K, count: u64) {
    if let Some(held) = counts.get_mut(key) {
        *held = held.saturating_sub(count);
        if *held == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
impl Owner {
    pub(crate) fn test(tenant: &str, client: &str) -> Self {
        Self {
            tenant: tenant.into(),
            network: address::network(client.parse().expect("an address")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 512_000;

    /// Takes in pieces as much as somebody gets.
    fn fill(shares: &Shares, owner: &Owner) -> u64 {
        let takes = (0..).take_while(|_| shares.acquire(owner, 100, ROOM).is_ok());
        takes.count() as u64 * 100
    }

    #[test]
    fn who_is_alone_gets_two_thirds_and_leaves_others_room() {
        let shares = Shares::default();
        let greedy = Owner::test("a", "192.0.2.1");
        assert_eq!(fill(&shares, &greedy), most_of(ROOM));
        assert_eq!(most_of(ROOM), ROOM / 32 * 21);
        let neighbour = Owner::test("a", "192.0.2.200");
        assert_eq!(fill(&shares, &neighbour), 0, "the same network");
        let other = Owner::test("a", "198.51.100.1");
        for name in ["b", "c", "d"] {
            let elsewhere = Owner::test(name, "192.0.2.1");
            assert_eq!(fill(&shares, &elsewhere), 0, "the same network at {name}");
        }
        let tenant = Owner::test("b", "203.0.113.1");
        for owner in [&other, &tenant] {
            assert!(shares.acquire(owner, ROOM / 40, ROOM).is_ok());
        }
        for (owner, count) in [(&other, ROOM / 40), (&tenant, ROOM / 40)] {
            shares.give_back(owner, count);
        }
        shares.give_back(&greedy, most_of(ROOM));
        assert_eq!(shares.held(), 0);
        assert_eq!(fill(&shares, &other), most_of(ROOM));
    }

    #[test]
    fn however_many_take_all_they_may_who_wants_little_finds_it() {
        let shares = Shares::default();
        for at in 0..40 {
            let tenant = format!("greedy {}", at % 2);
            fill(&shares, &Owner::test(&tenant, &format!("192.0.{at}.1")));
        }
        assert!(shares.held() < ROOM);
        for tenant in ["greedy 0", "greedy 1", "modest"] {
            for at in 0..10 {
                let modest = Owner::test(tenant, &format!("198.51.{at}.1"));
                assert!(shares.acquire(&modest, 300, ROOM).is_ok(), "{tenant} {at}");
            }
        }
        // Greedy by the number of networks, a tenant still leaves some to others.
        for at in 0..200 {
            fill(&shares, &Owner::test("greedy 0", &format!("10.0.{at}.1")));
        }
        let modest = Owner::test("modest", "203.0.113.1");
        assert_eq!(fill(&shares, &modest), ROOM / 512);
    }

    #[test]
    fn a_room_made_smaller_takes_nothing_from_anybody() {
        let shares = Shares::default();
        let (one, other) = (Owner::test("a", "192.0.2.1"), Owner::test("b", "192.0.2.1"));
        assert!(shares.acquire(&one, 20_000, ROOM).is_ok());
        for owner in [&one, &other] {
            assert_eq!(shares.acquire(owner, 1, 10_000), Err(TooMuch));
        }
        shares.give_back(&one, 20_000);
        assert!(shares.acquire(&other, 1, 10_000).is_ok());
    }
}
