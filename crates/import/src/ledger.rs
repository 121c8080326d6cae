//! What became of each line that was read.
//!
//! The idea: a line enters once and has one class at the end, the one that asks for most attention
//! of all that was said of it; one of which nothing was said is not carried.

use std::cell::RefCell;
use std::sync::Arc;

/// What is said of logs.
pub(crate) const ONE_FILE: &str =
    "as long as both servers run, they write into one file: --without-logs leaves it out";

/// Bytes of a line, and of what is said of it, that are kept.
const SHOWN_BYTES_MAX: usize = 400;

/// The class of a line; the later ones ask for more attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Needed by the other server alone.
    NotNeeded,
    /// Written as it was meant.
    Carried,
    /// Written, with a difference that is told.
    Different,
    /// Left out: what it did, and what to write by hand, is told.
    NotCarried,
    /// Left out, for it would weaken what stands here.
    Refused,
}

impl Fate {
    /// All classes, as a report has them: what is fine first.
    pub const ALL: [Fate; 5] = [
        Fate::Carried,
        Fate::Different,
        Fate::NotNeeded,
        Fate::NotCarried,
        Fate::Refused,
    ];

    /// The class in words.
    pub fn words(self) -> &'static str {
        match self {
            Fate::Carried => "carried",
            Fate::Different => "carried with a difference",
            Fate::NotNeeded => "not needed",
            Fate::NotCarried => "not carried",
            Fate::Refused => "refused",
        }
    }
}

/// A line of a configuration: a directive, be it continued, with the beginning of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The file it stands in.
    pub file: Arc<str>,
    /// Where it begins, from 1.
    pub line: u32,
    /// The line itself, shortened.
    pub text: String,
    /// What became of it.
    pub fate: Fate,
    /// Why, and what is to be done.
    pub note: String,
    is_said: bool,
}

impl SourceLine {
    /// Its site is left out.
    pub(crate) fn leave_out(&mut self, why: &str) {
        self.fate = self.fate.max(Fate::NotCarried);
        self.note = shown(why);
    }
}

/// All lines, by their number in order of reading.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    lines: RefCell<Vec<SourceLine>>,
}

impl Ledger {
    /// Takes a line in.
    pub(crate) fn enter(&self, file: &Arc<str>, line: u32, text: &str) -> usize {
        let mut lines = self.lines.borrow_mut();
        lines.push(SourceLine {
            file: Arc::clone(file),
            line,
            text: shown(text),
            fate: Fate::NotCarried,
            note: String::new(),
            is_said: false,
        });
        lines.len() - 1
    }

    /// Says what becomes of a line; of several sayings that with the later class holds.
    pub(crate) fn say(&self, id: usize, fate: Fate, note: &str) {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(id) else {
            return;
        };
        if !line.is_said || fate > line.fate {
            line.fate = fate;
            line.note = shown(note);
        } else if fate == line.fate && !line.note.contains(note) {
            let both = match line.note.is_empty() {
                true => note.to_owned(),
                false => format!("{}; {note}", line.note),
            };
            line.note = shown(&both);
        }
        line.is_said = true;
    }

    /// As [`Ledger::say`], where nothing was said yet.
    pub(crate) fn say_last(&self, id: usize, fate: Fate, note: &str) {
        if !self.is_said(id) {
            self.say(id, fate, note);
        }
    }

    /// Whether something was said of a line.
    pub(crate) fn is_said(&self, id: usize) -> bool {
        self.lines.borrow().get(id).is_some_and(|line| line.is_said)
    }

    /// Written as it was meant.
    pub(crate) fn carried(&self, id: usize) {
        self.say(id, Fate::Carried, "");
    }

    /// Written, with this difference.
    pub(crate) fn differs(&self, id: usize, note: &str) {
        self.say(id, Fate::Different, note);
    }

    /// Nothing comes of it, and nothing lacks.
    pub(crate) fn idle(&self, id: usize, note: &str) {
        self.say(id, Fate::NotNeeded, note);
    }

    /// Left out.
    pub(crate) fn lost(&self, id: usize, note: &str) {
        self.say(id, Fate::NotCarried, note);
    }

    /// A comment that names a line.
    pub(crate) fn comment(&self, id: usize) -> String {
        let lines = self.lines.borrow();
        let comment = |line: &SourceLine| format!("# {}:{}: {}", line.file, line.line, line.text);
        lines.get(id).map(comment).unwrap_or_default()
    }

    /// The lines with what became of them.
    pub(crate) fn finish(self) -> Vec<SourceLine> {
        let mut lines = self.lines.into_inner();
        for line in lines.iter_mut().filter(|line| !line.is_said) {
            line.note = "nothing is made of it here: if it matters, write it by hand".to_owned();
        }
        lines
    }
}

/// A text on one line, shortened.
pub(crate) fn shown(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if out.len() > SHOWN_BYTES_MAX {
        let mut end = SHOWN_BYTES_MAX;
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push('…');
    }
    out
}
