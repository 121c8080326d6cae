//! What scripts may `require`: files of Ruby below directories that the operator names.
//!
//! The idea: all of them are in memory when a VM opens, and compiled before its first script. A name
//! that a script asks for is looked up in a table, never on a disk. [`Features`] is one VM's table.
//!
//! Left out: which files there are, which whoever reads the configuration finds out.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use mruby::Slot;

/// Files that scripts may require.
#[derive(Debug, Clone, Default)]
pub struct Library {
    /// The directories they were looked for in, for messages.
    pub directories: Vec<String>,
    /// The files, those of the first directory first.
    pub files: Vec<LibraryFile>,
}

/// A file that scripts may require.
#[derive(Debug, Clone)]
pub struct LibraryFile {
    /// Its name below its directory, without `.rb`.
    pub name: Arc<str>,
    /// Its full name.
    pub path: Arc<str>,
    /// What it held when the configuration was read.
    pub text: Arc<[u8]>,
}

/// The files of a library as one VM has compiled them.
#[derive(Debug, Default)]
pub(crate) struct Features {
    all: Vec<Feature>,
    by_name: HashMap<Arc<str>, usize>,
    by_path: HashMap<Arc<str>, usize>,
    /// How many run now, one inside of the other.
    loading: usize,
}

#[derive(Debug)]
struct Feature {
    slot: Slot,
    progress: Progress,
}

/// How far a file has come in a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nobody has required it, or it raised.
    Compiled,
    /// It runs.
    Runs,
    /// It has come to its end.
    Done,
}

/// What a file that is required needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Required {
    /// To be run.
    Run(Slot),
    /// Nothing: it has run, or runs still and requires itself by way of others.
    Nothing,
    /// It is not there.
    Unknown,
}

impl Features {
    /// How many files there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Adds a file that was compiled; of several with one name the first is found by it.
    pub(crate) fn add(&mut self, file: &LibraryFile, slot: Slot) {
        let index = self.all.len();
        self.all.push(Feature {
            slot,
            progress: Progress::Compiled,
        });
        self.by_name.entry(Arc::clone(&file.name)).or_insert(index);
        self.by_path.insert(Arc::clone(&file.path), index);
    }

    /// Whether a file runs that was required.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading > 0
    }

    /// By its name below a directory.
    pub(crate) fn require(&mut self, name: &str) -> Required {
        let index = self.by_name.get(bare(name)).copied();
        self.begin(index)
    }

    /// By its place beside the file that asks for it.
    pub(crate) fn require_beside(&mut self, asking: &str, name: &str) -> Required {
        let directory = Path::new(asking).parent().unwrap_or(Path::new("/"));
        let path = plain(&directory.join(format!("{}.rb", bare(name))));
        let index = path.to_str().and_then(|path| self.by_path.get(path));
        let index = index.copied();
        self.begin(index)
    }

    fn begin(&mut self, index: Option<usize>) -> Required {
        let feature = index.and_then(|index| self.all.get_mut(index));
        match feature {
            None => Required::Unknown,
            Some(feature) if feature.progress == Progress::Compiled => {
                feature.progress = Progress::Runs;
                self.loading += 1;
                Required::Run(feature.slot)
            }
            Some(_) => Required::Nothing,
        }
    }

    /// The file compiled in this slot has come to its end, or raised: then it can be required again.
    pub(crate) fn ended(&mut self, slot: i64, has_run: bool) {
        let mut running = self.all.iter_mut();
        let feature = running
            .find(|feature| feature.slot.number() == slot && feature.progress == Progress::Runs);
        if let Some(feature) = feature {
            self.loading = self.loading.saturating_sub(1);
            feature.progress = match has_run {
                true => Progress::Done,
                false => Progress::Compiled,
            };
        }
    }

    /// What still runs was given up with the script that required it.
    pub(crate) fn give_up(&mut self) {
        if self.loading == 0 {
            return;
        }
        self.loading = 0;
        for feature in &mut self.all {
            if feature.progress == Progress::Runs {
                feature.progress = Progress::Compiled;
            }
        }
    }
}

/// A name without its suffix.
fn bare(name: &str) -> &str {
    name.strip_suffix(".rb").unwrap_or(name)
}

/// A path without `.` and `..`, by its text alone.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
