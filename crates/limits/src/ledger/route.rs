//! From what a request wants to the gates it has to pass, and the shards they are in.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::Books;
use super::cells::Cell;
use super::digest::{Digest, Kind};
use super::entry::{Entry, Table};
use super::gate::{Gate, Standing};
use super::holds::Place;
use super::shard::{Forget, Shard};
use crate::Time;
use crate::ask::{Ask, WANTS_MAX, Want};

/// Keys of each ring of a tenant looked at in all shards, to find an idle one for a new one.
const LOOKS_FOR_IDLE: usize = 128;

/// Limits that hardly a request has more of; those who have pay for room for all.
pub(super) const FEW: usize = 4;

/// The text of a gate that stands for all keys a tenant had no room for.
const OVERFLOW_TEXT: &[u8] = b"(other)";

/// The digests of a request's keys, made before anything is locked.
#[derive(Debug)]
pub(super) struct Keys<const N: usize> {
    digests: [Digest; N],
    /// Those that stand for what the tenant had no room for.
    overflow: Bits,
    /// Those for which an idle key was forgotten. Once each: it could be another of this request's.
    forgot: Bits,
}

/// The gates of a request; by place in its list of wants.
#[derive(Debug)]
pub(super) struct Route<'t, const N: usize> {
    /// The limits of the wants that matter here.
    pub(super) entries: [Option<&'t Arc<Entry>>; N],
    pub(super) places: [Place; N],
    /// Wants that matter here.
    pub(super) stops: Bits,
    /// Those whose gate is to be found by its digest.
    dynamic: Bits,
    /// Those that have a permit in the worker's cell.
    pub(super) local: Bits,
    /// Those whose cell is to draw permits.
    pub(super) draws: Bits,
    /// Shards to be locked.
    pub(super) shards: u64,
}

/// A set of small numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bits(u32);

/// What is missing before a gate can be added.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    /// Room in a shard.
    Room(u16),
    /// The tenant has as many keys as it may; the want whose key would be one more.
    Keys(usize),
}

/// Locked shards, in order of index.
#[derive(Debug)]
pub(super) struct Guards<'l, const N: usize> {
    list: [Option<(u16, MutexGuard<'l, Shard>)>; N],
}

impl Bits {
    pub(super) fn has(self, at: usize) -> bool {
        self.0 & (1 << at) != 0
    }

    pub(super) fn add(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    fn remove(&mut self, at: usize) {
        self.0 &= !(1 << at);
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let at = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                at
            })
        })
    }
}

impl<const N: usize> Guards<'_, N> {
    pub(super) fn shard(&mut self, shard: u16) -> &mut Shard {
        let mut locked = self.list.iter_mut().flatten();
        let found = locked.find(|(index, _)| *index == shard);
        let (_, guard) = found.expect("the shards of a request's gates are locked");
        guard
    }

    pub(super) fn gate(&mut self, place: Place) -> &mut Gate {
        self.shard(place.shard).gate(place.slot)
    }
}

impl Books {
    /// Digests the keys of a request.
    pub(super) fn keys<const N: usize>(&self, worker: usize, wants: &[Want<'_>]) -> Keys<N> {
        let mut keys = Keys {
            digests: [[0; 2]; N],
            overflow: Bits::default(),
            forgot: Bits::default(),
        };
        let is_leased = |want: &Want<'_>| want.key.is_some() && want.limit.is_leased();
        // Held meanwhile: nobody else wants it, but for a reload.
        let own = wants
            .iter()
            .any(is_leased)
            .then(|| self.cells[worker].lock());
        for (digest, want) in keys.digests.iter_mut().zip(wants) {
            *digest = match (want.key, &own) {
                (Some(key), Some(own)) if want.limit.is_leased() => {
                    self.leased_digest(&own.table, want, key)
                }
                (Some(key), _) => self.secret.digest(number(want), Kind::Key, key),
                // Of a fixed limit, whose gate is known; else the limit's number tells it apart.
                (None, _) => [number(want), 0],
            };
        }
        keys
    }

    /// Looks up which limits matter and which shards their gates are in.
    pub(super) fn route<'t, const N: usize>(
        &self,
        table: &'t Table,
        wants: &[Want<'_>],
        keys: &Keys<N>,
        cells: &[Cell],
        matters: impl Fn(&Entry) -> bool,
    ) -> Route<'t, N> {
        let mut route = Route::new();
        for (at, want) in wants.iter().take(N).enumerate() {
            let Some(entry) = table.limit(want.limit).filter(|entry| matters(entry)) else {
                continue;
            };
            route.entries[at] = Some(entry);
            if !entry.is_fixed() {
                route.dynamic.add(at);
                route.stops.add(at);
                let shard = self.shard_of(keys.digests[at]);
                route.places[at].shard = shard;
                route.shards |= 1 << shard;
                continue;
            }
            if route.passes(entry.place) {
                continue;
            }
            route.stops.add(at);
            route.places[at] = entry.place;
            match cells.get(want.limit.index as usize) {
                Some(cell) if cell.is_open() && cell.free > 0 => {
                    route.local.add(at);
                    continue;
                }
                Some(cell) if cell.is_open() => route.draws.add(at),
                _ => {}
            }
            route.shards |= 1 << entry.place.shard;
        }
        route
    }

    pub(super) fn lock_shards<const N: usize>(&self, mask: u64) -> Guards<'_, N> {
        let mut list = [const { None }; N];
        let mut rest = mask;
        for place in &mut list {
            if rest == 0 {
                break;
            }
            // There are at most 64.
            let shard = rest.trailing_zeros() as u16;
            *place = Some((shard, self.shards[usize::from(shard)].lock()));
            rest &= rest - 1;
        }
        Guards { list }
    }

    /// Finds the gates of dynamic keys, and adds those that are new.
    pub(super) fn find_gates<const N: usize>(
        &self,
        now: Time,
        table: &Table,
        ask: &Ask<'_>,
        keys: &Keys<N>,
        route: &mut Route<'_, N>,
        shards: &mut Guards<'_, N>,
    ) -> Result<(), Need> {
        for at in route.dynamic.iter() {
            let index = route.places[at].shard;
            let shard = shards.shard(index);
            let digest = keys.digests[at];
            let slot = match shard.find(digest) {
                Some(slot) => slot,
                None => add_gate(table, ask, keys, at, index, shard)?,
            };
            let place = Place { shard: index, slot };
            shard.gate(slot).see(now);
            route.places[at] = Place::default();
            if route
                .stops
                .iter()
                .take_while(|other| *other < at)
                .any(|other| route.places[other] == place)
            {
                // The same key of the same limit twice counts once.
                route.stops.remove(at);
            }
            route.places[at] = place;
        }
        Ok(())
    }

    /// The gate of a want as it stands, if it is not forgotten.
    pub(super) fn gate_of<const N: usize>(
        &self,
        entry: &Entry,
        keys: &Keys<N>,
        at: usize,
    ) -> Option<Gate> {
        if entry.is_fixed() {
            let Place { shard, slot } = entry.place;
            return Some(self.shards[usize::from(shard)].lock().gate(slot).clone());
        }
        let digest = *keys.digests.get(at)?;
        let mut shard = self.shards[usize::from(self.shard_of(digest))].lock();
        let slot = shard.find(digest)?;
        Some(shard.gate(slot).clone())
    }

    /// Brings what is missing; nothing but the wait_queue may be locked.
    pub(super) fn provide<const N: usize>(
        &self,
        now: Time,
        ask: &Ask<'_>,
        table: &Table,
        keys: &mut Keys<N>,
        need: Need,
    ) {
        match need {
            Need::Room(shard) => self.make_room(shard),
            Need::Keys(at) => {
                if !keys.forgot.has(at) {
                    keys.forgot.add(at);
                    if self.forget_one(now, table, ask, self.shard_of(keys.digests[at])) {
                        return;
                    }
                }
                if let Some(want) = ask.wants.get(at) {
                    let tenant = ask.tenant.0.to_le_bytes();
                    keys.digests[at] = self.secret.digest(number(want), Kind::Overflow, &tenant);
                    keys.overflow.add(at);
                }
            }
        }
    }

    /// Gives a shard room for more gates.
    pub(super) fn make_room(&self, shard: u16) {
        let shard = &self.shards[usize::from(shard)];
        let want = shard.lock().want_room();
        let room = want.make();
        let replaced = shard.lock().add_room(room);
        drop(replaced);
    }

    /// Forgets one idle key of the asking tenant, looking at a bounded number of them, from the
    /// shard on where the new key is to stand. Where none was found none is looked for a while:
    /// who makes up keys is not worth the locks of all shards each time.
    fn forget_one(&self, now: Time, table: &Table, ask: &Ask<'_>, first: u16) -> bool {
        let Some(tenant) = table.tenant(ask.tenant).filter(|it| it.may_be_idle(now)) else {
            return false;
        };
        let bounds = Forget {
            // There are at most 64 shards.
            looks_max: (LOOKS_FOR_IDLE / self.shards.len()).max(1) as u32,
            forget_max: 1,
            age_s: 0,
        };
        let mut moved = 0;
        let is_forgotten = (0..self.shards.len()).any(|step| {
            let index = (usize::from(first) + step) % self.shards.len();
            let mut shard = self.shards[index].lock();
            let looked =
                shard.forget_idle(now, ask.tenant.0, bounds, |gate| forgotten(table, gate));
            moved += looked.moved;
            looked.forgotten > 0
        });
        // One that put busy keys apart was worth it: each of them is once.
        if !is_forgotten && moved == 0 {
            tenant.note_none_idle(now);
        }
        is_forgotten
    }

    fn shard_of(&self, digest: Digest) -> u16 {
        // The upper half places it, the lower half finds it there. There are at most 64 shards.
        (digest[1] as usize & (self.shards.len() - 1)) as u16
    }
}

impl<const N: usize> Keys<N> {
    /// The same, with room for as many as there may be.
    pub(super) fn widened(&self) -> Keys<WANTS_MAX> {
        let mut digests = [[0; 2]; WANTS_MAX];
        for (to, from) in digests.iter_mut().zip(self.digests) {
            *to = from;
        }
        Keys {
            digests,
            overflow: self.overflow,
            forgot: self.forgot,
        }
    }
}

impl<const N: usize> Route<'_, N> {
    fn new() -> Self {
        Self {
            entries: [None; N],
            places: [Place::default(); N],
            stops: Bits::default(),
            dynamic: Bits::default(),
            local: Bits::default(),
            draws: Bits::default(),
            shards: 0,
        }
    }

    fn passes(&self, place: Place) -> bool {
        self.stops
            .iter()
            .any(|stop| !self.dynamic.has(stop) && self.places[stop] == place)
    }
}

/// Keeps count of a gate that is no more.
pub(super) fn forgotten(table: &Table, gate: &Gate) {
    if let Some(entry) = table.at(gate.limit) {
        entry.life.gates.fetch_sub(1, Ordering::Relaxed);
    }
    if gate.standing == Standing::Key
        && let Some(tenant) = table.tenants.get(gate.tenant as usize)
    {
        tenant.give_key_back();
    }
}

fn add_gate<const N: usize>(
    table: &Table,
    ask: &Ask<'_>,
    keys: &Keys<N>,
    at: usize,
    index: u16,
    shard: &mut Shard,
) -> Result<u32, Need> {
    if !shard.has_room() {
        return Err(Need::Room(index));
    }
    let want = &ask.wants[at];
    let (standing, text) = if keys.overflow.has(at) {
        (Standing::Overflow, OVERFLOW_TEXT)
    } else {
        let tenant = table.tenant(ask.tenant);
        if !tenant.is_none_or(|tenant| tenant.take_key()) {
            return Err(Need::Keys(at));
        }
        (Standing::Key, want.key.unwrap_or_default())
    };
    if let Some(entry) = table.at(want.limit.index) {
        entry.life.gates.fetch_add(1, Ordering::Relaxed);
    }
    let limit = want.limit.index;
    Ok(shard.insert(keys.digests[at], limit, ask.tenant.0, standing, text))
}

fn number(want: &Want<'_>) -> u64 {
    u64::from(want.limit.version) << 32 | u64::from(want.limit.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_room_for_every_limit_of_a_request() {
        let mut all = Bits::default();
        (0..WANTS_MAX).for_each(|at| all.add(at));
        assert_eq!(
            all.iter().collect::<Vec<_>>(),
            (0..WANTS_MAX).collect::<Vec<_>>()
        );
        all.remove(WANTS_MAX - 1);
        assert!(all.has(1) && !all.has(WANTS_MAX - 1));
    }
}
