//! Where gates are, and the list of those at which a request holds a permit.

/// Gates of a permit that need no allocation.
const FEW: usize = 4;

/// Where a gate is kept, as long as something refers to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) shard: u16,
    pub(crate) slot: u32,
}

/// One gate of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) limit: u32,
    slot: u32,
    shard: u16,
    /// The gate of a fixed limit, which may also be counted in cells.
    pub(crate) fixed: bool,
}

impl Hold {
    #[inline]
    pub(crate) fn new(limit: u32, place: Place, fixed: bool) -> Self {
        let Place { shard, slot } = place;
        Self {
            limit,
            slot,
            shard,
            fixed,
        }
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        Place {
            shard: self.shard,
            slot: self.slot,
        }
    }
}

/// The gates of a request; what is asked for beforehand is pushed without allocating.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    few: [Hold; FEW],
    few_len: u8,
    #[allow(
        clippy::box_collection,
        reason = "permits are moved about, and nearly none has more: 8 bytes instead of 24"
    )]
    more: Option<Box<Vec<Hold>>>,
}

impl Holds {
    #[inline]
    pub(crate) fn with_capacity(holds: usize) -> Self {
        let mut empty = Self::default();
        if holds > FEW {
            empty.reserve(holds - FEW);
        }
        empty
    }

    /// The gate of a request that has but one.
    #[inline]
    pub(crate) fn of_one(hold: Hold) -> Self {
        let mut one = Self::default();
        one.few[0] = hold;
        one.few_len = 1;
        one
    }

    #[cold]
    fn reserve(&mut self, holds: usize) {
        self.more = Some(Box::new(Vec::with_capacity(holds)));
    }

    #[inline]
    pub(crate) fn push(&mut self, hold: Hold) {
        match self.few.get_mut(usize::from(self.few_len)) {
            Some(place) => {
                *place = hold;
                self.few_len += 1;
            }
            None => self.more.get_or_insert_default().push(hold),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.few_len) + self.more.as_ref().map_or(0, |more| more.len())
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Hold> {
        let [few, more] = self.parts();
        few.iter().chain(more)
    }

    /// The holds as two slices, the second of which is nearly always empty: loops over them are
    /// shorter than one over a chain, and the usual way through the ledger consists of little else.
    #[inline]
    pub(crate) fn parts(&self) -> [&[Hold]; 2] {
        let few = self.few.get(..usize::from(self.few_len));
        let more = self.more.as_ref().map(|more| more.as_slice());
        [few.unwrap_or(&[]), more.unwrap_or(&[])]
    }
}
