//! One class of a tenant's part of a queue: its client flows, and who waits in each.
//!
//! Flows are exact while they fit. Beyond that a client is dealt a hand of buckets by a seeded hash and joins
//! the shortest (shuffle sharding): one crawler spoils at most its own hand for others.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, DefaultHasher, Hasher};

use crate::time::Time;

use super::codel::Codel;
use super::pace::Average;
use super::prefix::Prefix;
use super::ring::{Account, Newcomers, Ring, Turn};

/// More client flows than this at once, and further ones share buckets.
const FLOWS_MAX: usize = 1_024;
const BUCKETS: u64 = 64;
/// How many buckets a client may choose from.
const HAND: u64 = 8;
/// Above every prefix's bits: no prefix looks like a bucket.
const BUCKET: u64 = 1 << 56;

/// SipHash behind a seed: what a map holds cannot be aimed at by who does not know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seed(pub(super) u64);

impl BuildHasher for Seed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// Which flow inside a class: a prefix, or a bucket of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane(pub(super) u64);

impl Lane {
    /// The bucket's number from 1; 0 for an exact flow.
    pub(super) fn bucket(self) -> u8 {
        match self.0 >> 56 {
            1 => (self.0 & (BUCKETS - 1)) as u8 + 1,
            _ => 0,
        }
    }

    /// The reverse of [`Lane::bucket`].
    pub(super) fn of(client: Prefix, bucket: u8) -> Self {
        match bucket {
            0 => Self(client.bits()),
            number => Self(BUCKET | (u64::from(number - 1) % BUCKETS)),
        }
    }
}

/// Whom a group would serve next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pick {
    pub(super) id: u64,
    pub(super) late: bool,
}

/// One class's client flows.
#[derive(Debug)]
pub(super) struct Group {
    /// The class's own account, among the tenant's.
    pub(super) account: Account,
    pub(super) ring: Ring,
    pub(super) flows: HashMap<u64, Account, Seed>,
    codel: Codel,
    /// Who waits: lane, arrival, id.
    order: BTreeSet<(u64, Time, u64)>,
}

impl Group {
    pub(super) fn new(now: Time, weight: u32, seed: Seed) -> Self {
        Self {
            account: Account::new(now, weight),
            ring: Ring::new(Newcomers::Strangers),
            flows: HashMap::with_hasher(seed),
            codel: Codel::default(),
            order: BTreeSet::new(),
        }
    }

    /// The flow a client's next waiter joins.
    pub(super) fn lane(&self, client: Prefix) -> Lane {
        let exact = client.bits();
        if self.ring.len() < FLOWS_MAX || self.waiting(exact) > 0 {
            return Lane(exact);
        }
        let hand = self.hand(exact);
        let shortest = hand
            .into_iter()
            .min_by_key(|&bucket| self.waiting(BUCKET | bucket));
        Lane(BUCKET | shortest.unwrap_or(0))
    }

    /// Deals distinct buckets, the same to the same client.
    fn hand(&self, client: u64) -> [u64; HAND as usize] {
        let mut rest = self.flows.hasher().hash_one(client);
        let mut hand = [u64::MAX; HAND as usize];
        for dealt in 0..HAND {
            let mut card = rest % (BUCKETS - dealt);
            rest /= BUCKETS - dealt;
            // The hand is kept sorted, so each card dealt below or at this one moves it up by one.
            for taken in &hand[..dealt as usize] {
                card += u64::from(*taken <= card);
            }
            hand[dealt as usize] = card;
            hand[..=dealt as usize].sort_unstable();
        }
        hand
    }

    fn waiting(&self, lane: u64) -> u32 {
        self.flows.get(&lane).map_or(0, Account::waiting)
    }

    /// Serves in order until the queue runs late anew.
    pub(super) fn restore_order(&mut self) {
        self.codel = Codel::default();
    }

    /// Adds a waiter to a flow.
    pub(super) fn push(
        &mut self,
        now: Time,
        lane: Lane,
        waiter: (Time, u64),
        late_ns: Option<u64>,
        unit_ns: u64,
    ) {
        if self.order.is_empty() {
            self.codel.filled(now, late_ns);
        }
        let account = self
            .flows
            .entry(lane.0)
            .or_insert_with(|| Account::new(now, 1));
        self.ring.push(now, lane.0, account, 1, unit_ns, late_ns);
        self.order.insert((lane.0, waiter.0, waiter.1));
    }

    /// Takes a waiter out; gives its flow if that has none left.
    pub(super) fn pop(&mut self, lane: Lane, waiter: (Time, u64)) -> Option<&mut Account> {
        self.order.remove(&(lane.0, waiter.0, waiter.1));
        let account = self.flows.get_mut(&lane.0)?;
        self.ring.pop(lane.0, account);
        (account.waiting() == 0).then_some(account)
    }

    /// Chooses who is next, and judges whether it comes too late.
    ///
    /// Never too late are the only one of a flow, and any of a flow that used less than its share: they are not
    /// to blame for the queue. `light` says so of the whole class.
    pub(super) fn pick(
        &mut self,
        now: Time,
        late_ns: Option<u64>,
        light: bool,
        unit_ns: u64,
    ) -> Option<Pick> {
        if let Some(late_ns) = late_ns {
            self.codel.roll(now, late_ns);
        }
        let newest = self.codel.newest_first();
        let (first, _) = self.oldest(self.ring.first(Turn::Oldest)?)?;
        let lane = self
            .ring
            .first(if newest { Turn::Newest } else { Turn::Oldest })?;
        let (arrived, id) = if newest {
            self.newest(lane)?
        } else {
            self.oldest(lane)?
        };
        let (waited_ns, first_ns) = (now.since_ns(arrived), now.since_ns(first));
        let late = late_ns.is_some_and(|late_ns| self.codel.is_late(waited_ns, first_ns, late_ns));
        let flow = self.flows.get(&lane)?;
        let innocent = light || flow.waiting() < 2 || self.ring.is_light(flow, unit_ns);
        Some(Pick {
            id,
            late: late && !innocent,
        })
    }

    /// Who of a newcomer's class should give way to it: from the longest flow, if that is longer than the
    /// newcomer's would be; else, when the newest is served first, a late one of its own flow.
    pub(super) fn rival(&self, newcomer: (Time, Prefix), late_ns: Option<u64>) -> Option<u64> {
        let (arrived, client) = newcomer;
        let own = self.lane(client).0;
        let own_length = self
            .flows
            .get(&own)
            .map_or(1 << 20, |account| account.length(1));
        if let Some(id) = self.victim(own_length) {
            return Some(id);
        }
        let (oldest, id) = self.oldest(own)?;
        (self.codel.newest_first() && arrived.since_ns(oldest) > late_ns?).then_some(id)
    }

    /// The one in the longest flow that would be served last, if that flow is longer than this.
    pub(super) fn victim(&self, length: u64) -> Option<u64> {
        let (longest, lane) = self.ring.longest()?;
        if longest <= length {
            return None;
        }
        let last = if self.codel.newest_first() {
            self.oldest(lane)
        } else {
            self.newest(lane)
        };
        last.map(|(_, id)| id)
    }

    /// How many of this class's go before a newcomer, and when the first of its own flow came.
    pub(super) fn ahead(&self, client: Prefix, unit_ns: u64) -> (u64, Option<Time>) {
        if self.codel.newest_first() {
            return (0, None);
        }
        let lane = self.lane(client).0;
        let fresh = Account::new(Time::ZERO, 1);
        let account = self.flows.get(&lane).unwrap_or(&fresh);
        let ahead = self
            .ring
            .ahead(account, u64::from(account.waiting()), unit_ns);
        (
            ahead.min(self.order.len() as u64),
            self.oldest(lane).map(|(arrived, _)| arrived),
        )
    }

    fn oldest(&self, lane: u64) -> Option<(Time, u64)> {
        let from = (lane, Time::ZERO, 0);
        self.order
            .range(from..)
            .next()
            .filter(|entry| entry.0 == lane)
            .map(|entry| (entry.1, entry.2))
    }

    fn newest(&self, lane: u64) -> Option<(Time, u64)> {
        let to = (lane, Time(u64::MAX), u64::MAX);
        self.order
            .range(..=to)
            .next_back()
            .filter(|entry| entry.0 == lane)
            .map(|entry| (entry.1, entry.2))
    }

    /// What a service of this flow is likely to cost.
    pub(super) fn estimate_ns(&self, lane: Lane) -> Option<u64> {
        let own: Option<Average> = self.flows.get(&lane.0).map(|account| account.cost);
        own.and_then(Average::value_ns)
            .or(self.account.cost.value_ns())
    }
}
