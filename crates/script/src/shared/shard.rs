//! One sixteenth of a namespace of `Cache`: a table of entries that knows whom to forget.
//!
//! A chained hash table whose entries stand in one array, each key once. A hand goes round the array
//! and takes the first entry nobody has asked for since it last came by (the second-chance form of
//! "least recently used": F. J. Corbató, *A Paging Experiment with the Multics System*, 1968), so
//! that reading costs one flag and no list is rearranged. The shards of a namespace are one round.

/// No entry.
const NONE: u32 = u32::MAX;

/// Slots a table begins with.
const HEADS_MIN: usize = 8;

/// Room a value's memory may have beyond its bytes before it is given back.
const SLACK_BYTES_MAX: usize = 64;

/// A table of keys and values.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// First entry of each chain; a power of two, or none at all.
    heads: Vec<u32>,
    entries: Vec<ShardEntry>,
    /// First of the entries that are free, chained like the others.
    free: Option<u32>,
    live: usize,
    hand: usize,
}

#[derive(Debug)]
struct ShardEntry {
    hash: u64,
    next: u32,
    state: Seen,
    key: Box<[u8]>,
    value: Vec<u8>,
}

/// What the hand does with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// There is none here.
    Free,
    /// It was not asked for since the hand came by.
    NotSince,
    /// It was.
    Since,
}

impl Shard {
    /// Entries in it.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// A key's value, which counts as asked for.
    pub(super) fn get(&mut self, hash: u64, key: &[u8]) -> Option<&[u8]> {
        let index = self.find(hash, key)?;
        let entry = self.entries.get_mut(index as usize)?;
        entry.state = Seen::Since;
        Some(&entry.value)
    }

    /// Bytes of a key's value.
    pub(super) fn value_bytes(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let index = self.find(hash, key)?;
        self.entries
            .get(index as usize)
            .map(|entry| entry.value.len())
    }

    /// Puts a value under a key.
    pub(super) fn put(&mut self, hash: u64, key: &[u8], value: &[u8]) {
        let (index, state) = match self.find(hash, key) {
            Some(index) => (index, Seen::Since),
            None => (self.insert(hash, key), Seen::NotSince),
        };
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.state = state;
            entry.value.clear();
            if entry.value.capacity() > value.len() + SLACK_BYTES_MAX {
                entry.value = Vec::new();
            }
            entry.value.reserve_exact(value.len());
            entry.value.extend_from_slice(value);
        }
    }

    /// Takes a key away; the bytes it held with its value.
    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<usize> {
        let index = self.find(hash, key)?;
        self.take(index)
    }

    /// Goes on with the hand until it finds an entry to take away; the bytes that held. `None` when
    /// it has come to the end, from where it begins anew.
    pub(super) fn evict(&mut self) -> Option<usize> {
        while let Some(entry) = self.entries.get_mut(self.hand) {
            let index = self.hand;
            self.hand += 1;
            match entry.state {
                Seen::Free => {}
                Seen::Since => entry.state = Seen::NotSince,
                Seen::NotSince => return self.take(u32::try_from(index).unwrap_or(NONE)),
            }
        }
        self.hand = 0;
        None
    }

    /// Calls `each` with every key and its value.
    pub(super) fn each(&self, mut each: impl FnMut(&[u8], &[u8])) {
        let live = |entry: &&ShardEntry| entry.state != Seen::Free;
        self.entries
            .iter()
            .filter(live)
            .for_each(|entry| each(&entry.key, &entry.value));
    }

    /// Keys and values, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |entry: &ShardEntry| entry.key.len() + entry.value.len();
        self.entries.iter().map(bytes).sum()
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let mut index = *self.heads.get(self.chain(hash))?;
        while let Some(entry) = self.entries.get(index as usize) {
            if entry.hash == hash && *entry.key == *key {
                return Some(index);
            }
            index = entry.next;
        }
        None
    }

    /// A new entry with an empty value.
    fn insert(&mut self, hash: u64, key: &[u8]) -> u32 {
        if self.live >= self.heads.len() {
            self.grow();
        }
        let chain = self.chain(hash);
        let fresh = ShardEntry {
            hash,
            next: self.heads.get(chain).copied().unwrap_or(NONE),
            state: Seen::NotSince,
            key: key.into(),
            value: Vec::new(),
        };
        let free = self.free.filter(|free| *free != NONE);
        let index = match free.and_then(|free| Some((free, self.entries.get_mut(free as usize)?))) {
            Some((free, place)) => {
                self.free = Some(place.next);
                *place = fresh;
                free
            }
            None => {
                self.entries.push(fresh);
                u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
            }
        };
        self.live += 1;
        if let Some(head) = self.heads.get_mut(chain) {
            *head = index;
        }
        index
    }

    fn take(&mut self, index: u32) -> Option<usize> {
        let entry = self.entries.get_mut(index as usize)?;
        let (hash, next) = (entry.hash, entry.next);
        let bytes = entry.key.len() + entry.value.len();
        (entry.key, entry.value, entry.state) = (Box::default(), Vec::new(), Seen::Free);
        entry.next = self.free.unwrap_or(NONE);
        self.free = Some(index);
        self.live -= 1;
        self.unchain(hash, index, next);
        Some(bytes)
    }

    /// Lets whatever points to the entry `gone` of a chain point to `next`.
    fn unchain(&mut self, hash: u64, gone: u32, next: u32) {
        let chain = self.chain(hash);
        let Some(head) = self.heads.get_mut(chain) else {
            return;
        };
        if *head == gone {
            *head = next;
            return;
        }
        let mut index = *head;
        while let Some(entry) = self.entries.get_mut(index as usize) {
            if entry.next == gone {
                entry.next = next;
                return;
            }
            index = entry.next;
        }
    }

    fn grow(&mut self) {
        let size = (self.heads.len() * 2).max(HEADS_MIN);
        self.heads.clear();
        self.heads.resize(size, NONE);
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else {
                continue;
            };
            let chain = slot(entry.hash, size);
            if let (false, Some(head)) = (entry.state == Seen::Free, self.heads.get_mut(chain)) {
                entry.next = *head;
                *head = u32::try_from(index).unwrap_or(NONE);
            }
        }
    }

    fn chain(&self, hash: u64) -> usize {
        slot(hash, self.heads.len())
    }
}

/// The place of a hash among `size` chains; the lowest bits have chosen the shard already.
fn slot(hash: u64, size: usize) -> usize {
    let high = usize::try_from(hash >> 8).unwrap_or(usize::MAX);
    high & size.wrapping_sub(1)
}
