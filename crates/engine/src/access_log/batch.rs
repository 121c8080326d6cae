//! Records on their way from a worker to the writer: one text, and where its parts go.

use std::sync::Arc;

use config::model::LogTarget;

/// Capacity that is kept from one use to the next.
const KEPT_BYTES: usize = 256 * 1024;

/// Records in the order they were made.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: Vec<u8>,
    runs: Vec<TargetRun>,
}

/// Neighbouring records with one target.
#[derive(Debug)]
struct TargetRun {
    target: Arc<LogTarget>,
    /// Where it ends in the text.
    end: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The text, for one more line that goes to `target`.
    pub(super) fn line_for(&mut self, target: &Arc<LogTarget>) -> &mut Vec<u8> {
        let goes_on = |run: &TargetRun| Arc::ptr_eq(&run.target, target) || run.target == *target;
        if !self.runs.last().is_some_and(goes_on) {
            self.runs.push(TargetRun {
                target: Arc::clone(target),
                end: self.text.len(),
            });
        }
        &mut self.text
    }

    /// Ends the line begun with [`Self::line_for`].
    pub(super) fn end_line(&mut self) {
        self.text.push(b'\n');
        if let Some(run) = self.runs.last_mut() {
            run.end = self.text.len();
        }
    }

    /// Targets and what goes to each, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&LogTarget, &[u8])> {
        let mut begin = 0;
        self.runs.iter().map(move |run| {
            let text = self.text.get(begin..run.end).unwrap_or_default();
            begin = run.end;
            (&*run.target, text)
        })
    }

    /// How many records it holds.
    pub(super) fn records(&self) -> u64 {
        lines(&self.text)
    }

    /// Empties it for its next use.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.runs.clear();
        self.text.shrink_to(KEPT_BYTES);
    }
}

/// Records are lines: none holds a line feed of its own.
pub(super) fn lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}
