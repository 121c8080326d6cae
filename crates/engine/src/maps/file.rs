//! A file of keys and values, as Apache's `txt:` maps.
//!
//! The idea: it is watched (`watched_file`), and lines that say nothing are left out and told.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use config::{model, reason};

use super::answers::Answer;
use crate::watched_file::{Look, WatchedFile};
use crate::worker::resources::Resources;

/// Lines that are told one by one.
const TOLD_MAX: usize = 10;

/// A file of keys and values.
#[derive(Debug)]
pub(super) struct FileMap {
    name: Box<str>,
    key_bytes: usize,
    answer_bytes: usize,
    file: WatchedFile<Entries>,
}

/// Values by their keys.
type Entries = HashMap<Box<[u8]>, Arc<[u8]>>;

/// A line that says nothing: its number, and why.
type BadLine = (usize, &'static str);

impl FileMap {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// Why it cannot be read, for the operator.
    pub(super) fn open(map: &model::Map, path: &Path, number: usize) -> Result<Self, String> {
        let caps = (map.key_bytes, map.answer_bytes);
        let mut bad = Vec::new();
        let file = WatchedFile::open(path, number, |text| {
            let (entries, found) = parse(text, caps);
            bad = found;
            entries
        });
        let file = file.map_err(|why| format!("map {}: {why}", map.name))?;
        tell_bad_lines(&map.name, path, &bad);
        Ok(Self {
            name: map.name.as_str().into(),
            key_bytes: map.key_bytes,
            answer_bytes: map.answer_bytes,
            file,
        })
    }

    /// The answer to a key.
    pub(super) fn answer(&self, key: &[u8]) -> Answer {
        self.file.said().get(key).cloned()
    }

    /// Has the file looked at by this worker's helpers, if it hosts it and does not yet.
    pub(super) fn start(this: &Arc<Self>, resources: &Resources) {
        this.file.start(this, Self::refresh, resources);
    }

    /// Reads the file again if it has changed. Waits for its disk.
    fn refresh(&self) {
        let (mut bad, map) = (Vec::new(), &*self.name);
        let look = self.file.refresh(|text| {
            let (entries, found) = parse(text, (self.key_bytes, self.answer_bytes));
            bad = found;
            Some(entries)
        });
        let file = self.file.path();
        match look {
            Look::Same | Look::Refused => {}
            Look::Read => {
                tell_bad_lines(map, file, &bad);
                let (file, entries) = (file.display(), self.file.said().len());
                tracing::info!(map, %file, entries, "a map's file was read again");
            }
            Look::Lost(error) => {
                let (file, error) = (file.display(), reason(&error));
                tracing::error!(map, %file, error, "a map's file cannot be read again: what it said last holds");
            }
        }
    }
}

/// The keys and values of a text. As in Apache, the first line of a key counts, lines that begin
/// with `#` or white space are left out, and so is what follows a value.
fn parse(text: &[u8], (key_bytes, answer_bytes): (usize, usize)) -> (Entries, Vec<BadLine>) {
    let mut entries = Entries::new();
    let mut bad = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        match line.first() {
            None | Some(b'#') => continue,
            Some(first) if first.is_ascii_whitespace() => continue,
            Some(_) => {}
        }
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let (Some(key), Some(value)) = (words.next(), words.next()) else {
            bad.push((number, "a key without a value"));
            continue;
        };
        if key.len() > key_bytes {
            bad.push((number, "its key is longer than key_bytes"));
        } else if value.len() > answer_bytes {
            bad.push((number, "its value is longer than answer_bytes"));
        } else if entries.contains_key(key) {
            bad.push((number, "its key stands above already"));
        } else {
            entries.insert(key.into(), value.into());
        }
    }
    (entries, bad)
}

fn tell_bad_lines(map: &str, path: &Path, bad: &[BadLine]) {
    let file = path.display();
    for (line, why) in bad.iter().take(TOLD_MAX) {
        tracing::warn!(map, %file, line, "a line of a map's file is left out: {why}");
    }
    if let more @ 1.. = bad.len().saturating_sub(TOLD_MAX) {
        tracing::warn!(map, %file, more, "more lines of a map's file are left out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<(String, String)>, Vec<BadLine>) {
        let (entries, bad) = parse(text.as_bytes(), (8, 8));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut entries: Vec<_> = entries
            .iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect();
        entries.sort();
        (entries, bad)
    }

    #[test]
    fn keys_and_values_are_words_and_comments_are_none() {
        let (entries, bad) = parsed("# all\n\na 1\nb\t \t2  # two\r\nc  3\r\n  d 4\n#e 5\n/x/y z");
        let expected = [("/x/y", "z"), ("a", "1"), ("b", "2"), ("c", "3")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!((entries, bad), (expected.to_vec(), Vec::new()));
    }

    #[test]
    fn lines_that_say_nothing_are_told_by_their_numbers() {
        let (entries, bad) = parsed("a 1\nlonely\na 2\nlong-long-key 1\nb long-long-value\n");
        assert_eq!(entries, [("a".to_owned(), "1".to_owned())]);
        let numbers: Vec<_> = bad.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 3, 4, 5]);
        assert!(bad[0].1.contains("without a value") && bad[1].1.contains("above already"));
        assert!(bad[2].1.contains("key_bytes") && bad[3].1.contains("answer_bytes"));
    }
}
