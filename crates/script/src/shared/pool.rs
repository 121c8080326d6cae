//! `Cache`: strings by name, for every worker and generation.
//!
//! Names are spread over namespaces, and each namespace over shards with a lock of their own, held
//! for the copying of one value. One count of bytes and entries stands over all: it is touched only
//! when an entry comes, goes or changes its length, not by counters that are counted up. Who finds
//! it full gives up the entries of its own namespace that were longest not asked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use siphasher::sip::SipHasher13;

use super::enter;
use super::shard::Shard;

/// Shards of a namespace, a power of two: two workers seldom meet.
const SHARDS: usize = 16;

/// Namespaces of the process.
const NAMESPACES_MAX: usize = 1_024;

/// Entries that are given up for a new one before it is refused.
const EVICTED_MAX: usize = 10_000;

/// Longest name whose hash is remembered.
const REMEMBERED_BYTES_MAX: usize = 256;

/// Characters of the longest number.
const DIGITS_MAX: usize = 20;

/// What all namespaces together may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Keys and values.
    pub(crate) bytes: usize,
    /// Keys.
    pub(crate) entries: usize,
}

/// Why a value was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no room, and nothing in the namespace to give up for it.
    Full,
    /// What is stored is no number to count with.
    NotANumber,
    /// The number would leave 64 bits.
    OutOfRange,
}

/// Every namespace there is.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Held for a look-up, when a script makes a `Cache` object.
    namespaces: Mutex<HashMap<Vec<u8>, Arc<Namespace>>>,
    used: Arc<Used>,
}

/// What all namespaces hold.
#[derive(Debug, Default)]
pub(crate) struct Used {
    bytes: AtomicUsize,
    entries: AtomicUsize,
}

/// Strings by name.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// No other has it.
    number: u64,
    used: Arc<Used>,
    hasher: SipHasher13,
    shards: [Padded; SHARDS],
    /// The shard the hand is in.
    hand: AtomicUsize,
    /// Whether something was changed since whoever keeps it in a file asked last.
    is_changed: AtomicBool,
}

/// A name and its hash in a namespace.
struct Hashed {
    namespace: u64,
    name: Vec<u8>,
    hash: u64,
}

thread_local! {
    /// What was hashed last: a script that counts asks for a name and stores under it.
    static HASHED: RefCell<Hashed> = const {
        RefCell::new(Hashed {
            namespace: 0,
            name: Vec::new(),
            hash: 0,
        })
    };
}

/// A shard in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl Pool {
    /// The namespace of this name, made if there is none; `None` when there are too many.
    pub(crate) fn open(&self, name: &[u8]) -> Option<Arc<Namespace>> {
        let mut namespaces = enter(&self.namespaces);
        if let Some(known) = namespaces.get(name) {
            return Some(Arc::clone(known));
        }
        if namespaces.len() >= NAMESPACES_MAX {
            return None;
        }
        let fresh = Arc::new(Namespace::new(Arc::clone(&self.used)));
        namespaces.insert(name.to_vec(), Arc::clone(&fresh));
        Some(fresh)
    }

    /// Every name.
    pub(super) fn names(&self) -> Vec<Vec<u8>> {
        enter(&self.namespaces).keys().cloned().collect()
    }

    /// Empties a namespace, and forgets its name when no object is left that uses it.
    pub(crate) fn drop_namespace(&self, name: &[u8]) {
        let mut namespaces = enter(&self.namespaces);
        let Some(known) = namespaces.get(name) else {
            return;
        };
        known.clear();
        if Arc::strong_count(known) == 1 {
            namespaces.remove(name);
        }
    }
}

impl Used {
    /// Keys and values in bytes, and keys.
    pub(crate) fn now(&self) -> (usize, usize) {
        (self.bytes.load(Relaxed), self.entries.load(Relaxed))
    }

    /// Counts more in, if there is room for it.
    fn grow(&self, bytes: usize, entries: usize, bounds: Bounds) -> bool {
        let fits = |count: &AtomicUsize, more: usize, most: usize| {
            let room = |now: usize| now.checked_add(more).filter(|sum| *sum <= most);
            more == 0 || count.fetch_update(Relaxed, Relaxed, room).is_ok()
        };
        if !fits(&self.entries, entries, bounds.entries) {
            return false;
        }
        if fits(&self.bytes, bytes, bounds.bytes) {
            return true;
        }
        self.shrink(0, entries);
        false
    }

    fn shrink(&self, bytes: usize, entries: usize) {
        let less = |count: &AtomicUsize, by: usize| {
            if by > 0 {
                count.fetch_sub(by, Relaxed);
            }
        };
        less(&self.bytes, bytes);
        less(&self.entries, entries);
    }
}

impl Namespace {
    fn new(used: Arc<Used>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NUMBERS.fetch_add(1, Relaxed),
            used,
            hasher: SipHasher13::new_with_keys(secret(), secret()),
            shards: Default::default(),
            hand: AtomicUsize::new(0),
            is_changed: AtomicBool::new(false),
        }
    }

    /// Appends a key's value; `false` when there is none.
    pub(crate) fn get(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let hash = self.hash(key);
        match enter(self.shard(hash)).get(hash, key) {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        }
    }

    /// Stores a value.
    ///
    /// # Errors
    /// [`Refusal::Full`]; what was there before is there still, or was given up for it.
    pub(crate) fn set(&self, key: &[u8], value: &[u8], bounds: Bounds) -> Result<(), Refusal> {
        if key.len().saturating_add(value.len()) > bounds.bytes {
            return Err(Refusal::Full);
        }
        self.change(key, |shard, hash| {
            Ok(self.put(shard, hash, key, value, bounds).then_some(()))
        })
    }

    /// Adds to the number that is stored, nothing counting as 0, and answers the sum.
    ///
    /// # Errors
    /// Each [`Refusal`].
    pub(crate) fn add(&self, key: &[u8], by: i64, bounds: Bounds) -> Result<i64, Refusal> {
        if key.len().saturating_add(DIGITS_MAX) > bounds.bytes {
            return Err(Refusal::Full);
        }
        self.change(key, |shard, hash| {
            let before = shard.get(hash, key).map_or(Ok(0), number)?;
            let sum = before.checked_add(by).ok_or(Refusal::OutOfRange)?;
            let mut digits = [0; DIGITS_MAX];
            let mut left = digits.as_mut_slice();
            // Twenty characters are enough for any number.
            let _ = write!(left, "{sum}");
            let unused = left.len();
            let text = digits.get(..DIGITS_MAX - unused).unwrap_or_default();
            Ok(self.put(shard, hash, key, text, bounds).then_some(sum))
        })
    }

    /// Takes a key away; says whether it was there.
    pub(crate) fn delete(&self, key: &[u8]) -> bool {
        let hash = self.hash(key);
        let removed = enter(self.shard(hash)).remove(hash, key);
        if let Some(bytes) = removed {
            self.used.shrink(bytes, 1);
            self.mark();
        }
        removed.is_some()
    }

    /// Takes every key away.
    pub(crate) fn clear(&self) {
        for Padded(shard) in &self.shards {
            let gone = std::mem::take(&mut *enter(shard));
            self.used.shrink(gone.bytes(), gone.len());
        }
        self.mark();
    }

    /// Something was changed. Mostly it is told already, and nothing is written.
    pub(super) fn mark(&self) {
        if !self.is_changed.load(Relaxed) {
            self.is_changed.store(true, Relaxed);
        }
    }

    /// Whether something was changed since this was asked last.
    pub(super) fn take_changes(&self) -> bool {
        self.is_changed.swap(false, Relaxed)
    }

    /// Keys in it.
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|Padded(shard)| enter(shard).len())
            .sum()
    }

    /// Bytes of keys and values in it.
    pub(super) fn bytes(&self) -> usize {
        self.shards
            .iter()
            .map(|Padded(shard)| enter(shard).bytes())
            .sum()
    }

    /// Every key, in no order.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for Padded(shard) in &self.shards {
            enter(shard).each(|key, _| keys.push(key.to_vec()));
        }
        keys
    }

    /// Every key with its value, in no order.
    pub(super) fn pairs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut pairs = Vec::new();
        for Padded(shard) in &self.shards {
            enter(shard).each(|key, value| pairs.push((key.to_vec(), value.to_vec())));
        }
        pairs
    }

    /// What all namespaces hold.
    pub(crate) fn used(&self) -> &Used {
        &self.used
    }

    /// Tries a change, giving up other entries until there is room for it.
    fn change<T>(
        &self,
        key: &[u8],
        mut attempt: impl FnMut(&mut Shard, u64) -> Result<Option<T>, Refusal>,
    ) -> Result<T, Refusal> {
        let hash = self.hash(key);
        for _ in 0..=EVICTED_MAX {
            if let Some(done) = attempt(&mut enter(self.shard(hash)), hash)? {
                return Ok(done);
            }
            if !self.evict() {
                break;
            }
        }
        Err(Refusal::Full)
    }

    /// Stores a value if there is room for it.
    fn put(&self, shard: &mut Shard, hash: u64, key: &[u8], value: &[u8], bounds: Bounds) -> bool {
        match shard.value_bytes(hash, key) {
            Some(before) if before >= value.len() => self.used.shrink(before - value.len(), 0),
            Some(before) => {
                if !self.used.grow(value.len() - before, 0, bounds) {
                    return false;
                }
            }
            None => {
                if !self.used.grow(key.len() + value.len(), 1, bounds) {
                    return false;
                }
            }
        }
        shard.put(hash, key, value);
        self.mark();
        true
    }

    /// Gives up the entry the hand comes to next; `false` when it found none in two rounds: the
    /// first takes away every mark.
    fn evict(&self) -> bool {
        for _ in 0..=2 * SHARDS {
            let index = self.hand.load(Relaxed);
            let shard = &self.shards[index % SHARDS].0;
            let evicted = enter(shard).evict();
            if let Some(bytes) = evicted {
                self.used.shrink(bytes, 1);
                return true;
            }
            // Two who evict at once may skip a shard; it is found in the next round.
            self.hand.store(index.wrapping_add(1), Relaxed);
        }
        false
    }

    fn hash(&self, name: &[u8]) -> u64 {
        if name.len() > REMEMBERED_BYTES_MAX {
            return self.hasher.hash(name);
        }
        HASHED.with_borrow_mut(|last| {
            if last.namespace != self.number || last.name != name {
                last.namespace = self.number;
                last.name.clear();
                last.name.extend_from_slice(name);
                last.hash = self.hasher.hash(name);
            }
            last.hash
        })
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        let index = usize::try_from(hash & 0xff).unwrap_or(0) % SHARDS;
        &self.shards[index].0
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A key of a hash that nobody can foresee.
fn secret() -> u64 {
    RandomState::new().hash_one(())
}

/// A number as `to_s` writes it.
fn number(text: &[u8]) -> Result<i64, Refusal> {
    let text = std::str::from_utf8(text).map_err(|_| Refusal::NotANumber)?;
    text.parse().map_err(|_| Refusal::NotANumber)
}
