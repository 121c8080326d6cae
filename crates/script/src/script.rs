//! A script: its text, and when it is compiled.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mruby::Slot;

/// When a script is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Again once its file has changed, which is looked at no more than once a second.
    Mtime,
    /// Once.
    Always,
    /// For every run.
    Never,
}

/// Where a script's text is.
#[derive(Debug, Clone)]
pub enum Source {
    /// Inline, beginning on this line of the file that the script's name tells.
    Code {
        /// The text.
        text: Arc<[u8]>,
        /// Its first line's number.
        line: u16,
    },
    /// In a file.
    File {
        /// Its name.
        path: PathBuf,
        /// What it held when the configuration was read, if it was looked at then.
        text: Option<Arc<[u8]>>,
        /// When it is compiled.
        cache: Cache,
    },
}

/// A script of an interpreter. Clones are the same script.
#[derive(Debug, Clone)]
pub struct Script {
    pub(crate) inner: Rc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// What log lines and failures call it: its file, and the line on which it begins in there.
    pub(crate) name: Arc<str>,
    /// The file alone, for backtraces, which tell lines themselves.
    pub(crate) file: Arc<str>,
    pub(crate) source: Source,
    pub(crate) compiled: RefCell<Option<Compiled>>,
    /// When the file was looked at last; `None` while somebody looks.
    pub(crate) looked: Cell<Option<Instant>>,
    /// Why it cannot be read, as the log was told; `None` while it can.
    pub(crate) unreadable: RefCell<Option<String>>,
}

/// A compiled script, valid in the VM of one number.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) slot: Slot,
    pub(crate) vm: u64,
    pub(crate) changed: Option<SystemTime>,
    pub(crate) text: Arc<[u8]>,
}

impl Script {
    /// A script by its name in logs and backtraces. It is compiled when it is first run.
    pub fn new(name: Arc<str>, source: Source) -> Self {
        let file = name;
        let name = match source {
            Source::Code { line, .. } if line > 1 => format!("{file}:{line}").into(),
            _ => Arc::clone(&file),
        };
        Self {
            inner: Rc::new(Inner {
                name,
                file,
                source,
                compiled: RefCell::default(),
                looked: Cell::new(None),
                unreadable: RefCell::default(),
            }),
        }
    }

    /// What log lines call it.
    pub fn name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// Its file; nothing for inline code.
    pub(crate) fn path(&self) -> &Path {
        match &self.inner.source {
            Source::File { path, .. } => path,
            Source::Code { .. } => Path::new(""),
        }
    }

    /// Whether it is compiled for every run.
    pub fn is_compiled_each_time(&self) -> bool {
        matches!(
            self.inner.source,
            Source::File {
                cache: Cache::Never,
                ..
            }
        )
    }
}
