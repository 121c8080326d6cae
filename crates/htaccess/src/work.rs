//! What files may have computed for one request: so many steps, whatever paths it takes.
//!
//! The idea: patterns, words, look-ups, copies and merging spend of one purse, which is handed from
//! one evaluation to the next, so that nothing is cheaper for being done elsewhere or once more.

use std::cell::Cell;

use crate::request::Stop;

/// Steps that the files of one request may take: some 2 ms of a core.
pub const STEPS_MAX: u64 = 200_000;
/// Steps of looking at a line.
pub(crate) const LINE_STEPS: usize = 4;

/// The steps that were taken for a request.
#[derive(Debug, Default)]
pub(crate) struct Work(Cell<u64>);

impl Work {
    /// For a request for which so many were taken before.
    pub(crate) fn after(spent: u64) -> Self {
        Self(Cell::new(spent))
    }

    pub(crate) fn spent(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn left(&self) -> u64 {
        STEPS_MAX.saturating_sub(self.spent())
    }

    /// Takes steps, left or not.
    pub(crate) fn take(&self, steps: u64) {
        self.0.set(self.spent().saturating_add(steps));
    }

    /// Takes steps.
    ///
    /// # Errors
    /// 500 where so many are not left.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), Stop> {
        self.take(u64::try_from(steps).unwrap_or(u64::MAX));
        match self.spent() <= STEPS_MAX {
            true => Ok(()),
            false => Err(Stop::new(500, "htaccess_work")),
        }
    }
}

/// Steps of copying or comparing so many bytes.
pub(crate) fn steps_of(bytes: usize) -> usize {
    1 + bytes / 64
}
