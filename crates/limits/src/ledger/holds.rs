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
    pub(crate) fn new(limit: u32, place: Place, fixed: bool) -> Self {
        let Place { shard, slot } = place;
        Self {
            limit,
            slot,
            shard,
            fixed,
        }
    }

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
    more: Vec<Hold>,
}

impl Holds {
    pub(crate) fn with_capacity(holds: usize) -> Self {
        Self {
            few: [Hold::default(); FEW],
            few_len: 0,
            more: Vec::with_capacity(holds.saturating_sub(FEW)),
        }
    }

    pub(crate) fn push(&mut self, hold: Hold) {
        match self.few.get_mut(usize::from(self.few_len)) {
            Some(place) => {
                *place = hold;
                self.few_len += 1;
            }
            None => self.more.push(hold),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.few_len = 0;
        self.more.clear();
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.few_len) + self.more.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.few
            .iter()
            .take(usize::from(self.few_len))
            .chain(&self.more)
    }
}
