//! What an operator has decided about scripts, and how their files are read.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::library::Library;
use crate::shared::Bounds;

/// Whose modules scripts are told they run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerClass {
    /// `get_server_class` answers `Nginx`.
    Nginx,
    /// `get_server_class` answers `Apache`.
    Apache,
}

impl ServerClass {
    /// The name of the class.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "Nginx",
            Self::Apache => "Apache",
        }
    }
}

/// What scripts may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budgets {
    /// CPU time between two waits.
    pub cpu: Duration,
    /// One call of a script from start to end, waits included.
    pub wall: Duration,
    /// The same, of a `log` script.
    pub log_wall: Duration,
    /// Memory of one VM.
    pub memory_bytes: usize,
    /// Fibers that wait at once.
    pub parked: usize,
    /// What the scripts of one request may write, in all.
    pub output_bytes: usize,
    /// Connecting to a store.
    pub connect_timeout: Duration,
    /// One command to a store.
    pub store_timeout: Duration,
    /// Connections to one server of a store.
    pub store_connections: usize,
    /// Keys and values of `Cache`, in the whole process.
    pub cache_bytes: usize,
    /// Entries of `Cache`, in the whole process.
    pub cache_entries: usize,
    /// Largest file that `File.read` gives.
    pub read_bytes: usize,
}

impl Budgets {
    /// What `Cache` may hold.
    pub(crate) fn of_cache(&self) -> Bounds {
        Bounds {
            bytes: self.cache_bytes,
            entries: self.cache_entries,
        }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            cpu: Duration::from_millis(5),
            wall: Duration::from_secs(30),
            log_wall: Duration::from_secs(5),
            memory_bytes: 64 << 20,
            parked: 4_096,
            output_bytes: 10 << 20,
            connect_timeout: Duration::from_secs(1),
            store_timeout: Duration::from_secs(5),
            store_connections: 32,
            cache_bytes: 64 << 20,
            cache_entries: 100_000,
            read_bytes: 1 << 20,
        }
    }
}

/// A file that was read, or looked at.
#[derive(Debug, Clone)]
pub struct Read {
    /// When it was changed last.
    pub changed: SystemTime,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// A wait that ends with `T`.
pub type Waiting<T> = Pin<Box<dyn Future<Output = T>>>;

/// How files are read without the worker waiting for a disk.
pub trait Reader {
    /// What a file holds, at most `bytes_max`; an error of kind `FileTooLarge` beyond.
    fn read(&self, path: &Path, bytes_max: usize) -> Waiting<io::Result<Read>>;

    /// When it was changed last; an error if it is not there.
    fn changed(&self, path: &Path) -> Waiting<io::Result<SystemTime>>;
}

/// What an interpreter is opened with.
#[derive(Clone)]
pub struct Settings {
    /// What `get_server_class` answers.
    pub server: ServerClass,
    /// What scripts may use.
    pub budgets: Budgets,
    /// Environment variables scripts may read, with their values.
    pub env: Vec<(String, String)>,
    /// Directories whose files `Cache` may keep namespaces in.
    pub cache_files: Arc<[PathBuf]>,
    /// What scripts may require.
    pub library: Arc<Library>,
    /// The worker's number.
    pub worker: usize,
    /// How files are read.
    pub reader: Rc<dyn Reader>,
}
