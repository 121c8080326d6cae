//! A part of all gates: a table of slots, an index from digest to slot, and rings by tenant.
//!
//! Nothing here allocates once it is locked: room for more gates is made outside and brought in
//! ([`Room`]). The index grows by one bucket a key (linear hashing, Litwin 1980), so no insertion
//! ever moves more than one bucket.

use std::time::Duration;

use super::digest::Digest;
use super::gate::{Gate, NONE, Standing, seconds};
use crate::Time;

/// Gates that are made at once.
const CHUNK: usize = 64;
/// A rate that keeps a key busy for longer makes it stand apart.
const LATE: Duration = Duration::from_secs(4);
/// Buckets an index begins with.
const BUCKETS_MIN: usize = 64;

/// A part of all gates.
#[derive(Debug)]
pub(crate) struct Shard {
    chunks: Vec<Box<[Gate]>>,
    /// Slots that were ever used; those above are vacant without being listed.
    used: u32,
    /// The first of the vacant slots below.
    vacant: u32,
    buckets: Vec<u32>,
    /// Gates in the index.
    keys: u32,
    /// For each tenant and ring, the gate before the next one to be looked at for eviction.
    hands: Vec<[u32; 2]>,
}

/// The rings that a tenant's keys are in, so that whoever looks for an idle one meets hardly any of
/// those that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ring {
    /// New ones, and those that may be idle.
    Soon,
    /// Those whose rate kept them busy for a while yet when they were looked at.
    Late,
}

/// Room for more gates, made while nothing is locked.
#[derive(Debug)]
pub(crate) struct Room {
    chunk: Option<Box<[Gate]>>,
    chunks: Vec<Box<[Gate]>>,
    buckets: Vec<u32>,
}

impl Shard {
    pub(crate) fn new() -> Self {
        let mut buckets = Vec::with_capacity(BUCKETS_MIN * 2);
        buckets.resize(BUCKETS_MIN, NONE);
        Self {
            chunks: Vec::new(),
            used: 0,
            vacant: NONE,
            buckets,
            keys: 0,
            hands: Vec::new(),
        }
    }

    /// The gate of a slot that something refers to.
    pub(crate) fn gate(&mut self, slot: u32) -> &mut Gate {
        let slot = slot as usize;
        &mut self.chunks[slot / CHUNK][slot % CHUNK]
    }

    /// The gate of a digest.
    pub(crate) fn find(&self, digest: Digest) -> Option<u32> {
        let mut slot = self.buckets[bucket(digest, self.buckets.len())];
        while slot != NONE {
            let gate = &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK];
            if gate.digest == digest {
                return Some(slot);
            }
            slot = gate.next;
        }
        None
    }

    /// Whether a gate more needs no allocation.
    pub(crate) fn has_room(&self) -> bool {
        let slots = self.vacant != NONE || (self.used as usize) < self.chunks.len() * CHUNK;
        slots && self.buckets.len() < self.buckets.capacity()
    }

    /// Takes a slot, of which there must be one, for a gate outside the index.
    pub(crate) fn occupy(&mut self, limit: u32, tenant: u32, standing: Standing) -> u32 {
        let slot = if self.vacant == NONE {
            self.used += 1;
            self.used - 1
        } else {
            self.vacant
        };
        let vacant = self.vacant;
        let gate = self.gate(slot);
        let next = gate.next;
        *gate = Gate::of(limit, tenant, standing);
        if vacant == slot {
            self.vacant = next;
        }
        slot
    }

    /// Adds the gate of a digest; there must be room, and no such gate.
    pub(crate) fn insert(
        &mut self,
        digest: Digest,
        limit: u32,
        tenant: u32,
        standing: Standing,
        text: &[u8],
    ) -> u32 {
        let slot = self.occupy(limit, tenant, standing);
        let at = bucket(digest, self.buckets.len());
        let next = self.buckets[at];
        self.buckets[at] = slot;
        let gate = self.gate(slot);
        gate.digest = digest;
        gate.next = next;
        gate.set_text(text);
        self.keys += 1;
        self.join_ring(Ring::Soon, slot, tenant);
        if self.keys as usize > self.buckets.len() {
            self.split();
        }
        slot
    }

    /// Empties a slot outside the index.
    pub(crate) fn vacate(&mut self, slot: u32) {
        let next = self.vacant;
        *self.gate(slot) = Gate::vacant(next);
        self.vacant = slot;
    }

    /// Looks at up to `looks_max` keys in each ring of a tenant, and forgets the idle ones that were
    /// not used for `age_s`, at most `forget_max`. Tells the limit of each.
    pub(crate) fn forget_idle(
        &mut self,
        now: Time,
        tenant: u32,
        bounds: Forget,
        mut forgotten: impl FnMut(&Gate),
    ) -> Looked {
        let soon = self.forget_in(Ring::Soon, now, tenant, bounds, &mut forgotten);
        let forget_max = bounds.forget_max - soon.forgotten;
        let bounds = Forget {
            forget_max,
            ..bounds
        };
        let late = self.forget_in(Ring::Late, now, tenant, bounds, &mut forgotten);
        Looked {
            forgotten: soon.forgotten + late.forgotten,
            moved: soon.moved + late.moved,
        }
    }

    fn forget_in(
        &mut self,
        ring: Ring,
        now: Time,
        tenant: u32,
        bounds: Forget,
        forgotten: &mut impl FnMut(&Gate),
    ) -> Looked {
        let (mut looked, mut first_kept) = (Looked::default(), NONE);
        for _ in 0..bounds.looks_max {
            let hand = self.hand(ring, tenant);
            if hand == NONE || looked.forgotten == bounds.forget_max {
                break;
            }
            let slot = self.gate(hand).sibling;
            if slot == first_kept {
                break;
            }
            let gate = self.gate(slot);
            let age_s = seconds(now).saturating_sub(gate.seen_s);
            let belongs = Ring::of(gate, now);
            if gate.is_idle(now) && age_s >= bounds.age_s {
                forgotten(gate);
                self.leave_ring(ring, slot, hand, tenant);
                self.remove(slot);
                looked.forgotten += 1;
            } else if belongs == ring {
                self.hands[tenant as usize][ring as usize] = slot;
                if first_kept == NONE {
                    first_kept = slot;
                }
            } else {
                self.leave_ring(ring, slot, hand, tenant);
                self.join_ring(belongs, slot, tenant);
                looked.moved += 1;
            }
        }
        looked
    }

    /// Makes room for the rings of so many tenants.
    pub(crate) fn set_tenants(&mut self, tenants: usize) {
        if self.hands.len() < tenants {
            self.hands.resize(tenants, [NONE; 2]);
        }
    }

    /// Gates of a stretch of slots that has been used, or none beyond the last.
    pub(crate) fn chunk(&self, at: usize) -> Option<&[Gate]> {
        self.chunks.get(at).map(AsRef::as_ref)
    }

    /// The slot of a gate of a chunk.
    pub(crate) fn slot_of(chunk: usize, at: usize) -> u32 {
        u32::try_from(chunk * CHUNK + at).unwrap_or(NONE)
    }

    /// Tells what room there is, so that more can be made.
    pub(crate) fn want_room(&self) -> WantRoom {
        WantRoom {
            chunk: self.vacant == NONE && self.used as usize == self.chunks.len() * CHUNK,
            chunks: grown(self.chunks.len(), self.chunks.capacity()),
            buckets: grown(self.buckets.len(), self.buckets.capacity()),
        }
    }

    /// Takes room in. What it replaces comes back, to be dropped outside.
    pub(crate) fn add_room(&mut self, mut room: Room) -> Room {
        if room.buckets.capacity() > self.buckets.capacity() {
            room.buckets.clear();
            room.buckets.extend_from_slice(&self.buckets);
            std::mem::swap(&mut room.buckets, &mut self.buckets);
        }
        if room.chunks.capacity() > self.chunks.capacity() {
            room.chunks.append(&mut self.chunks);
            std::mem::swap(&mut room.chunks, &mut self.chunks);
        }
        if self.chunks.len() < self.chunks.capacity()
            && let Some(chunk) = room.chunk.take()
        {
            self.chunks.push(chunk);
        }
        room
    }

    fn hand(&self, ring: Ring, tenant: u32) -> u32 {
        let hands = self.hands.get(tenant as usize);
        hands.map_or(NONE, |hands| hands[ring as usize])
    }

    fn join_ring(&mut self, ring: Ring, slot: u32, tenant: u32) {
        let hand = self.hand(ring, tenant);
        if hand == NONE {
            self.gate(slot).sibling = slot;
            if let Some(hands) = self.hands.get_mut(tenant as usize) {
                hands[ring as usize] = slot;
            }
        } else {
            let after = self.gate(hand).sibling;
            self.gate(slot).sibling = after;
            self.gate(hand).sibling = slot;
            // Behind the hand: looked at last.
            self.hands[tenant as usize][ring as usize] = slot;
        }
    }

    /// Takes the gate after `before` out of a ring.
    fn leave_ring(&mut self, ring: Ring, slot: u32, before: u32, tenant: u32) {
        let after = self.gate(slot).sibling;
        if before == slot {
            self.hands[tenant as usize][ring as usize] = NONE;
        } else {
            self.gate(before).sibling = after;
        }
    }

    /// Takes a gate that is in no ring any more out of the index, and empties its slot.
    fn remove(&mut self, slot: u32) {
        let (digest, next) = (self.gate(slot).digest, self.gate(slot).next);
        let at = bucket(digest, self.buckets.len());
        if self.buckets[at] == slot {
            self.buckets[at] = next;
        } else {
            let mut other = self.buckets[at];
            while self.gate(other).next != slot {
                other = self.gate(other).next;
            }
            self.gate(other).next = next;
        }
        self.keys -= 1;
        self.vacate(slot);
    }

    /// Adds a bucket, and moves into it what belongs there of the one it is split from.
    fn split(&mut self) {
        if self.buckets.len() == self.buckets.capacity() {
            return;
        }
        let len = self.buckets.len();
        let from = len - len.next_power_of_two() / if len.is_power_of_two() { 1 } else { 2 };
        self.buckets.push(NONE);
        let mut slot = std::mem::replace(&mut self.buckets[from], NONE);
        while slot != NONE {
            let next = self.gate(slot).next;
            let to = bucket(self.gate(slot).digest, len + 1);
            self.gate(slot).next = self.buckets[to];
            self.buckets[to] = slot;
            slot = next;
        }
    }
}

impl Ring {
    fn of(gate: &Gate, now: Time) -> Self {
        if gate.tat > now + LATE {
            Self::Late
        } else {
            Self::Soon
        }
    }
}

/// How far a search for idle keys goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forget {
    pub(crate) looks_max: u32,
    pub(crate) forget_max: u32,
    pub(crate) age_s: u32,
}

/// What a search for idle keys came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Looked {
    pub(crate) forgotten: u32,
    /// Keys that stand in another ring now, so that the next search need not look at them.
    pub(crate) moved: u32,
}

/// What room a shard asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantRoom {
    chunk: bool,
    chunks: usize,
    buckets: usize,
}

impl WantRoom {
    /// Makes the room; nothing should be locked.
    pub(crate) fn make(self) -> Room {
        let chunk = self
            .chunk
            .then(|| vec![Gate::VACANT; CHUNK].into_boxed_slice());
        Room {
            chunk,
            chunks: Vec::with_capacity(self.chunks),
            buckets: Vec::with_capacity(self.buckets),
        }
    }
}

/// The capacity a full list is to have, by a quarter more; 0 for one that is not full.
fn grown(len: usize, capacity: usize) -> usize {
    if len < capacity {
        return 0;
    }
    len + len / 4 + 8
}

/// The bucket of a digest among so many, as linear hashing has it.
fn bucket(digest: Digest, buckets: usize) -> usize {
    let mask = buckets.next_power_of_two() - 1;
    // Every bit of a digest is as good as another; a cast takes the lower ones.
    let at = digest[0] as usize & mask;
    if at < buckets { at } else { at & (mask >> 1) }
}
