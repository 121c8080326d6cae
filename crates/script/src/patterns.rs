//! The patterns of one VM, kept by their source.
//!
//! A literal in a script asks for its Regexp each time it is come by. Patterns that scripts hold count
//! as well as those kept here.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use mruby::Answer;
use pattern::{Flags, Pattern};

/// Patterns kept by their source in one VM; at one more all are forgotten.
const KEPT_MAX: usize = 256;
/// Bytes of all patterns of one VM.
const BYTES_MAX: usize = 32 << 20;

pub(crate) const IGNORE_CASE: i64 = 1;
pub(crate) const EXTENDED: i64 = 2;
pub(crate) const MULTILINE: i64 = 4;

/// The patterns of one VM.
#[derive(Default)]
pub(crate) struct Patterns {
    /// By option bits, then by source.
    kept: HashMap<i64, HashMap<Vec<u8>, Rc<Held>>>,
    count: usize,
    bytes: Rc<Cell<usize>>,
}

/// What a Regexp holds.
pub(crate) struct Held {
    pub(crate) pattern: Pattern,
    pub(crate) source: Vec<u8>,
    pub(crate) options: i64,
    bytes: usize,
    total: Rc<Cell<usize>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.set(self.total.get().saturating_sub(self.bytes));
    }
}

impl Patterns {
    /// The pattern of a source, compiled now if it is not kept.
    ///
    /// # Errors
    /// The exception that says what is wrong with it.
    pub(crate) fn get(&mut self, source: &[u8], options: i64) -> Result<Rc<Held>, Answer> {
        let kept = self.kept.entry(options).or_default();
        if let Some(held) = kept.get(source) {
            return Ok(Rc::clone(held));
        }
        let wrong = |what: &str| {
            let source = String::from_utf8_lossy(source);
            let start: String = source.chars().take(200).collect();
            Answer::Raise("RegexpError", format!("{what}: /{start}/"))
        };
        let text = std::str::from_utf8(source).map_err(|_| wrong("the source is not UTF-8"))?;
        let flags = Flags {
            ignore_case: options & IGNORE_CASE != 0,
            extended: options & EXTENDED != 0,
            multiline: options & MULTILINE != 0,
            whole_text: false,
        };
        let pattern = Pattern::new(text, flags).map_err(|error| wrong(&error.to_string()))?;
        let bytes = pattern.bytes() + 2 * source.len();
        if self.bytes.get() + bytes > BYTES_MAX {
            *self = Self {
                bytes: Rc::clone(&self.bytes),
                ..Self::default()
            };
            return Err(wrong(
                "patterns take more than 32 MiB in this VM; make fewer at run time",
            ));
        }
        self.bytes.set(self.bytes.get() + bytes);
        let held = Rc::new(Held {
            pattern,
            source: source.to_vec(),
            options,
            bytes,
            total: Rc::clone(&self.bytes),
        });
        self.keep(&held);
        Ok(held)
    }

    fn keep(&mut self, held: &Rc<Held>) {
        if self.count >= KEPT_MAX {
            self.kept.clear();
            self.count = 0;
        }
        self.count += 1;
        let kept = self.kept.entry(held.options).or_default();
        kept.insert(held.source.clone(), Rc::clone(held));
    }
}
