//! A file of keys and values, as Apache's `txt:` maps.
//!
//! The idea: the whole file is read and parsed away from the workers, first when its generation
//! is made, then whenever it has changed; who asks sees the table of before until the next one is
//! whole. Where it cannot be read any more, the last one holds.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use config::{model, reason};
use os::file::Wait;
use tokio::time::sleep;

use super::answers::Answer;
use crate::helper::Lane;
use crate::worker::resources::Resources;

/// Largest file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How often it is looked whether it has changed.
const LOOK: Duration = Duration::from_secs(1);
/// A file that changed less than this before it was read may change again and look the same: the
/// clock of file systems is coarse.
const SETTLED: Duration = Duration::from_secs(1);
/// Lines that are told one by one.
const TOLD_MAX: usize = 10;

/// A file of keys and values.
#[derive(Debug)]
pub(super) struct FileMap {
    name: Box<str>,
    path: PathBuf,
    key_bytes: usize,
    answer_bytes: usize,
    /// Its worker, were there any number of them.
    number: usize,
    is_started: AtomicBool,
    /// Held to copy or replace it.
    table: Mutex<Arc<FileTable>>,
    /// Whether the last look failed.
    is_lost: AtomicBool,
}

/// Values by their keys.
type Entries = HashMap<Box<[u8]>, Arc<[u8]>>;

/// What a file said when it was read.
#[derive(Debug)]
struct FileTable {
    entries: Entries,
    facts: Facts,
}

/// By what a change is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    device: u64,
    inode: u64,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
    /// Whether it had been left alone for a while when it was looked at.
    is_settled: bool,
}

/// A line that says nothing: its number, and why.
type BadLine = (usize, &'static str);

impl FileMap {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// Why it cannot be read, for the operator.
    pub(super) fn open(map: &model::Map, path: &Path, number: usize) -> Result<Self, String> {
        let caps = (map.key_bytes, map.answer_bytes);
        let (table, bad) = read(path, caps).map_err(|error| {
            let (name, path, reason) = (&map.name, path.display(), reason(&error));
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => "; the server's user must be able to read it",
                _ => "",
            };
            format!("map {name}: read {path}: {reason}{advice}")
        })?;
        tell_bad_lines(&map.name, path, &bad);
        Ok(Self {
            name: map.name.as_str().into(),
            path: path.to_owned(),
            key_bytes: map.key_bytes,
            answer_bytes: map.answer_bytes,
            number,
            is_started: AtomicBool::new(false),
            table: Mutex::new(Arc::new(table)),
            is_lost: AtomicBool::new(false),
        })
    }

    /// The answer to a key.
    pub(super) fn answer(&self, key: &[u8]) -> Answer {
        self.table().entries.get(key).cloned()
    }

    /// Has the file looked at by this worker's helpers, if it hosts it and does not yet.
    pub(super) fn start(this: &Arc<Self>, resources: &Resources) {
        let is_ours = this.number % resources.workers == resources.index;
        if !is_ours || this.is_started.swap(true, Relaxed) {
            return;
        }
        let (helpers, map) = (resources.helpers.clone(), Arc::downgrade(this));
        tokio::task::spawn_local(async move {
            loop {
                sleep(LOOK).await;
                let Some(map) = map.upgrade() else {
                    return;
                };
                // A file system that hangs is asked again when a helper is free.
                let _ = helpers.run(Lane::Remote, move || map.refresh()).await;
            }
        });
    }

    /// Reads the file again if it has changed. Waits for its disk.
    fn refresh(&self) {
        let before = self.table().facts;
        let found = std::fs::metadata(&self.path).map(|metadata| Facts::of(&metadata));
        if found.as_ref().is_ok_and(|facts| *facts == before) {
            return self.is_lost.store(false, Relaxed);
        }
        let path = self.path.display();
        let read = found.and_then(|_| read(&self.path, (self.key_bytes, self.answer_bytes)));
        match read {
            Ok((table, bad)) => {
                let is_new = !table.facts.is_same_content(&before);
                let entries = table.entries.len();
                *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
                self.is_lost.store(false, Relaxed);
                if is_new {
                    tell_bad_lines(&self.name, &self.path, &bad);
                    tracing::info!(map = &*self.name, file = %path, entries, "a map's file was read again");
                }
            }
            Err(error) => {
                if !self.is_lost.swap(true, Relaxed) {
                    let error = reason(&error);
                    tracing::error!(map = &*self.name, file = %path, error, "a map's file cannot be read again: what it said last holds");
                }
            }
        }
    }

    fn table(&self) -> Arc<FileTable> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&table)
    }
}

impl Facts {
    fn of(metadata: &std::fs::Metadata) -> Self {
        let changed = metadata.modified().ok();
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed_s: metadata.mtime(),
            changed_ns: metadata.mtime_nsec(),
            is_settled: age.is_some_and(|age| age >= SETTLED),
        }
    }

    /// Whether the difference, if any, is only that time has passed.
    fn is_same_content(&self, other: &Self) -> bool {
        let is_settled = self.is_settled;
        *self
            == Self {
                is_settled,
                ..*other
            }
    }
}

/// Reads a file and what it says, with the lines that say nothing.
fn read(path: &Path, caps: (usize, usize)) -> io::Result<(FileTable, Vec<BadLine>)> {
    // Opened without waiting: it may be a pipe, or have become one since it was looked at.
    let file = File::from(os::file::open(path, Wait::Allowed)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        let found = match metadata.is_dir() {
            true => "it is a directory, not a file",
            false => "it is no regular file",
        };
        return Err(io::Error::other(found));
    }
    let facts = Facts::of(&metadata);
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let error = format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(io::Error::other(error));
    }
    let (entries, bad) = parse(&text, caps);
    Ok((FileTable { entries, facts }, bad))
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
    fn what_is_no_file_is_told_at_once() {
        let problem = |path: &str| {
            let read = read(Path::new(path), (8, 8));
            read.err().map(|error| error.to_string())
        };
        for (path, expected) in [
            ("/dev/zero", "it is no regular file"),
            ("/tmp", "it is a directory, not a file"),
        ] {
            assert_eq!(problem(path).as_deref(), Some(expected), "{path}");
        }
        assert!(problem("/nowhere/map.txt").is_some());
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
