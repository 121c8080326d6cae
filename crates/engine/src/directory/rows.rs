//! What workers share of rows, and its time.

use std::time::Instant;

use super::table::Directories;

/// What workers share of rows.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) directories: Directories,
    started: Instant,
}

impl Rows {
    /// Knows nothing.
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            directories: Directories::default(),
            started,
        }
    }

    /// The time of the tables at a moment.
    pub(crate) fn now_ms(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.started);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
