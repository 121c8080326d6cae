//! The memory that interpreters of one thread have together.
//!
//! While one is open it may have all. Where there are several, each has its equal share; one that
//! holds more may go on as long as all together hold no more than three quarters, so that what is
//! left is for those which have less than theirs.

use std::cell::UnsafeCell;
use std::rc::Rc;

use crate::raw::{OPENING_BYTES, RawMemory};

/// What the interpreters opened with it may hold together.
#[derive(Debug)]
pub struct Memory {
    raw: UnsafeCell<RawMemory>,
}

impl Memory {
    /// So many bytes, for whoever is opened with it.
    pub fn of(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            raw: UnsafeCell::new(RawMemory {
                bytes: 0,
                bytes_max,
                vms: 0,
                share: bytes_max,
                common: bytes_max,
            }),
        })
    }

    pub(crate) fn raw(&self) -> *mut RawMemory {
        self.raw.get()
    }

    fn read(&self) -> RawMemory {
        // SAFETY: only interpreters of this thread write to it, and none runs while Rust reads.
        unsafe { *self.raw.get() }
    }

    /// What the interpreters hold.
    pub fn bytes(&self) -> usize {
        self.read().bytes
    }

    /// How many have it together.
    pub fn vms(&self) -> usize {
        self.read().vms
    }

    /// Whether another may be opened and hold so many bytes without more than what is common.
    pub fn has_room_for_another(&self, bytes: usize) -> bool {
        let all = self.read();
        all.common.saturating_sub(all.bytes) >= bytes.max(OPENING_BYTES)
    }

    /// What one that holds `own` bytes of it may have in all, while the others keep theirs.
    pub(crate) fn most(&self, own: usize) -> usize {
        let all = self.read();
        let others = all.bytes.saturating_sub(own);
        let above = all.common.saturating_sub(others);
        let any = all.bytes_max.saturating_sub(others);
        all.share.max(above).min(any)
    }
}
