//! How many lines the scripts of one worker write to the error log in a second.

use std::time::{Duration, Instant};

/// Lines that the scripts of one worker write in a second.
const LINES_MAX: u32 = 1_000;
const SECOND: Duration = Duration::from_secs(1);

/// What the scripts of one worker have written lately.
#[derive(Debug, Default)]
pub(crate) struct LogLines {
    since: Option<Instant>,
    count: u32,
}

impl LogLines {
    /// Counts one more; says whether it may be written.
    pub(crate) fn admit(&mut self, script: &str, now: Instant) -> bool {
        let is_same = |since| now.saturating_duration_since(since) < SECOND;
        if !self.since.is_some_and(is_same) {
            self.since = Some(now);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        if self.count == LINES_MAX + 1 {
            tracing::warn!(
                script,
                "scripts of this worker wrote {LINES_MAX} lines within a second: what they write in \
                 the rest of it is left out"
            );
        }
        self.count <= LINES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_second_are_bounded() {
        let (mut lines, now) = (LogLines::default(), Instant::now());
        assert!((0..LINES_MAX).all(|_| lines.admit("a.rb", now)));
        assert!((0..LINES_MAX).all(|_| !lines.admit("a.rb", now)));
        assert!(lines.admit("a.rb", now + SECOND));
    }
}
