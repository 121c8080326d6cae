//! What paths came to lately, so that a request in steady state makes no system call.
//!
//! A result is used for [`FRESH_MS`] and then looked up again; what was read of the file is kept
//! if it turns out to be the same. Paths that came to nothing have a shelf of their own, so that
//! nobody can drive out what exists by asking for what does not. The keys are hashes under a
//! secret of the process; the path itself is compared, so that two of one hash can't be confused.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::rc::Rc;

use slab::Slab;

use super::resolved::Resolved;

/// How long a result is used unseen. A little less than the second that is promised, since the
/// worker's clock stands still between ticks.
const FRESH_MS: u64 = 900;
/// A result nobody asked for is forgotten after this; its descriptor may hold a deleted file.
const IDLE_MS: u64 = 10_000;
/// Paths that came to something.
const FOUND_MAX: usize = 4_096;
/// Paths that came to nothing.
const MISSING_MAX: usize = 512;
/// Longest path kept.
const PATH_BYTES_MAX: usize = 1_024;
/// Slots looked at to make room.
const EVICT_SLOTS: usize = 256;
/// Slots looked at per sweep.
const SWEEP_SLOTS: usize = 128;

/// What one path is kept under.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) hash: u64,
    tree: u32,
    path: &'a [u8],
}

/// What the cache knows of a path.
pub(super) enum Lookup {
    /// To be used as it is.
    Fresh(Rc<Resolved>),
    /// To be compared with a new look.
    Stale(Rc<Resolved>),
    Nothing,
}

/// The cache of one worker and generation.
#[derive(Debug)]
pub(super) struct Cache {
    secret: RandomState,
    found: RefCell<Shelf>,
    missing: RefCell<Shelf>,
}

impl Key<'_> {
    pub(super) fn path(&self) -> &[u8] {
        self.path
    }
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            secret: RandomState::new(),
            found: RefCell::new(Shelf::new(FOUND_MAX)),
            missing: RefCell::new(Shelf::new(MISSING_MAX)),
        }
    }

    pub(super) fn key<'a>(&self, tree: u32, path: &'a [u8]) -> Key<'a> {
        let mut hasher = self.secret.build_hasher();
        hasher.write_u32(tree);
        hasher.write(path);
        Key {
            hash: hasher.finish(),
            tree,
            path,
        }
    }

    pub(super) fn get(&self, key: &Key<'_>, now_ms: u64) -> Lookup {
        let known = match self.found.borrow_mut().get(key, now_ms) {
            Lookup::Nothing => self.missing.borrow_mut().get(key, now_ms),
            known => return known,
        };
        // What was missing is looked for from scratch.
        match known {
            Lookup::Stale(_) => Lookup::Nothing,
            known => known,
        }
    }

    pub(super) fn put(&self, key: &Key<'_>, resolved: &Rc<Resolved>, now_ms: u64) {
        if key.path.len() > PATH_BYTES_MAX {
            return;
        }
        let (shelf, other) = if resolved.exists() {
            (&self.found, &self.missing)
        } else {
            (&self.missing, &self.found)
        };
        other.borrow_mut().remove(key.hash);
        shelf.borrow_mut().put(Slot {
            hash: key.hash,
            tree: key.tree,
            path: key.path.into(),
            resolved: Rc::clone(resolved),
            seen_ms: now_ms,
            used: false,
        });
    }

    /// Forgets little used results that hold what is short, until `has_room`. Gives up after
    /// [`EVICT_SLOTS`]: what is short may be held by replies under way.
    pub(super) fn make_room(
        &self,
        has_room: impl Fn() -> bool,
        holds: impl Fn(&Resolved) -> bool,
    ) -> bool {
        let mut found = self.found.borrow_mut();
        let mut visits = EVICT_SLOTS;
        while !has_room() {
            if !found.evict(&mut visits, &holds) {
                return false;
            }
        }
        true
    }

    /// Forgets some of what nobody has asked for in a while.
    pub(super) fn sweep(&self, now_ms: u64) {
        for shelf in [&self.found, &self.missing] {
            shelf.borrow_mut().sweep(now_ms);
        }
    }
}

/// Results in a ring that a hand goes round: what was not used since its last visit goes first.
#[derive(Debug)]
struct Shelf {
    slots: Slab<Slot>,
    places: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    slots_max: usize,
    evict_hand: usize,
    sweep_hand: usize,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    tree: u32,
    path: Box<[u8]>,
    resolved: Rc<Resolved>,
    seen_ms: u64,
    used: bool,
}

impl Shelf {
    fn new(slots_max: usize) -> Self {
        Self {
            slots: Slab::new(),
            places: HashMap::default(),
            slots_max,
            evict_hand: 0,
            sweep_hand: 0,
        }
    }

    fn get(&mut self, key: &Key<'_>, now_ms: u64) -> Lookup {
        let place = self.places.get(&key.hash);
        let Some(slot) = place.and_then(|place| self.slots.get_mut(*place)) else {
            return Lookup::Nothing;
        };
        if slot.tree != key.tree || *slot.path != *key.path {
            return Lookup::Nothing;
        }
        slot.used = true;
        let resolved = Rc::clone(&slot.resolved);
        if now_ms.saturating_sub(slot.seen_ms) < FRESH_MS {
            Lookup::Fresh(resolved)
        } else {
            Lookup::Stale(resolved)
        }
    }

    fn put(&mut self, slot: Slot) {
        let known = self.places.get(&slot.hash);
        if let Some(old) = known.and_then(|place| self.slots.get_mut(*place)) {
            let used = old.used;
            *old = Slot { used, ..slot };
            return;
        }
        if self.slots.len() >= self.slots_max {
            // Twice round: the first visit takes the mark away, the second the slot.
            self.evict(&mut (2 * self.slots_max), |_| true);
        }
        let hash = slot.hash;
        let place = self.slots.insert(slot);
        self.places.insert(hash, place);
    }

    fn remove(&mut self, hash: u64) {
        if let Some(place) = self.places.remove(&hash) {
            self.slots.try_remove(place);
        }
    }

    /// Forgets one result, unless so many visits are not enough to find it.
    fn evict(&mut self, visits: &mut usize, may_go: impl Fn(&Resolved) -> bool) -> bool {
        while *visits > 0 {
            *visits -= 1;
            self.evict_hand = (self.evict_hand + 1) % self.slots_max;
            if let Some(slot) = self.slots.get_mut(self.evict_hand)
                && !std::mem::take(&mut slot.used)
                && may_go(&slot.resolved)
            {
                let hash = slot.hash;
                self.remove(hash);
                return true;
            }
        }
        false
    }

    fn sweep(&mut self, now_ms: u64) {
        if self.slots.is_empty() {
            return;
        }
        for _ in 0..SWEEP_SLOTS {
            self.sweep_hand = (self.sweep_hand + 1) % self.slots_max;
            if let Some(slot) = self.slots.get(self.sweep_hand)
                && now_ms.saturating_sub(slot.seen_ms) > IDLE_MS
            {
                let hash = slot.hash;
                self.remove(hash);
            }
        }
    }
}

/// Passes on a key that is a hash already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Found;
    use super::*;

    fn resolved(found: Found) -> Rc<Resolved> {
        Rc::new(Resolved {
            tree: 0,
            name: Box::default(),
            root_bytes: 0,
            path_info: Box::default(),
            is_source: false,
            is_linked: false,
            is_directory: false,
            found,
            looked_ns: 0,
        })
    }

    fn is_fresh(cache: &Cache, path: &[u8], now_ms: u64) -> bool {
        let key = cache.key(0, path);
        matches!(cache.get(&key, now_ms), Lookup::Fresh(_))
    }

    #[test]
    fn a_result_is_fresh_for_less_than_a_second() {
        let cache = Cache::new();
        cache.put(&cache.key(0, b"/a"), &resolved(Found::Unslashed), 5_000);
        assert!(is_fresh(&cache, b"/a", 5_850));
        assert!(!is_fresh(&cache, b"/a", 5_950));
        let other_tree = cache.key(1, b"/a");
        assert!(matches!(cache.get(&other_tree, 5_000), Lookup::Nothing));
    }

    #[test]
    fn what_is_missing_drives_out_nothing_that_exists() {
        let cache = Cache::new();
        cache.put(&cache.key(0, b"/here"), &resolved(Found::Unslashed), 0);
        for number in 0..10_000 {
            let path = format!("/gone/{number}");
            let key = cache.key(0, path.as_bytes());
            cache.put(&key, &resolved(Found::Missing("no_file")), 0);
        }
        assert!(is_fresh(&cache, b"/here", 0));
        assert!(is_fresh(&cache, b"/gone/9999", 0));
        assert_eq!(cache.missing.borrow().slots.len(), MISSING_MAX);
        assert_eq!(cache.missing.borrow().places.len(), MISSING_MAX);
    }

    #[test]
    fn what_is_in_use_stays_longest() {
        let cache = Cache::new();
        for number in 0..2 * FOUND_MAX {
            let path = format!("/{number}");
            let key = cache.key(0, path.as_bytes());
            cache.put(&key, &resolved(Found::Unslashed), 0);
            assert!(is_fresh(&cache, b"/0", 0), "after {number}");
        }
        assert_eq!(cache.found.borrow().slots.len(), FOUND_MAX);
    }

    #[test]
    fn a_path_is_on_one_shelf_only() {
        let cache = Cache::new();
        let key = cache.key(0, b"/a");
        cache.put(&key, &resolved(Found::Unslashed), 0);
        cache.put(&key, &resolved(Found::Missing("no_file")), 0);
        let Lookup::Fresh(now) = cache.get(&key, 0) else {
            panic!("it was put in just now");
        };
        assert!(!now.exists());
    }

    #[test]
    fn what_nobody_asks_for_is_swept_away() {
        let cache = Cache::new();
        cache.put(&cache.key(0, b"/a"), &resolved(Found::Unslashed), 0);
        for _ in 0..FOUND_MAX / SWEEP_SLOTS {
            cache.sweep(IDLE_MS + 1);
        }
        assert!(cache.found.borrow().slots.is_empty());
    }
}
