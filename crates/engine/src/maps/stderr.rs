//! What a map's program says on its standard error, as lines of the error log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::stderr_log::{CUT, Complaints, Lines};

/// How often the program may say as much again.
const SHARE_TIME: Duration = Duration::from_secs(1);

/// Where one process says what is wrong.
#[derive(Debug)]
pub(super) struct Stderr {
    lines: Lines,
    since: Instant,
    last: String,
    complaints: Arc<Complaints>,
}

impl Stderr {
    pub(super) fn new(complaints: &Arc<Complaints>, now: Instant) -> Self {
        Self {
            complaints: Arc::clone(complaints),
            lines: Lines::default(),
            since: now,
            last: String::new(),
        }
    }

    /// Logs what was said, as soon as a line is whole, but no more than a second's share, and the same
    /// once a minute.
    pub(super) fn push(&mut self, map: &str, bytes: &[u8], now: Instant) {
        if now.saturating_duration_since(self.since) >= SHARE_TIME {
            self.since = now;
            self.say_cut(map);
        }
        let (last, complaints) = (&mut self.last, &self.complaints);
        self.lines.push(bytes, |line| {
            *last = String::from_utf8_lossy(line).into_owned();
            if complaints.maps.is_due(map, last, now) {
                tracing::warn!(map, text = &**last, "a map program's standard error");
            }
        });
    }

    /// The last line that was said; empty where there was none.
    pub(super) fn last_words(&mut self, map: &str) -> &str {
        if let Some(line) = self.lines.last() {
            self.last = String::from_utf8_lossy(&line).into_owned();
            if self.complaints.maps.is_due(map, &self.last, Instant::now()) {
                tracing::warn!(map, text = &*self.last, "a map program's standard error");
            }
        }
        self.say_cut(map);
        &self.last
    }

    fn say_cut(&mut self, map: &str) {
        let bytes = self.lines.renew();
        if bytes > 0 && self.complaints.maps.is_due(map, CUT, Instant::now()) {
            tracing::warn!(map, bytes, "a map program's standard error was cut");
        }
    }
}
