//! The snapshot: what sources said last, in a file that outlives process and database.
//!
//! The idea: a table of SQLite by host, looked up one by one and never loaded. Rows are written by a thread,
//! many in one transaction, so that the file is whole whatever ends the process; what finds no room in
//! its queue is written another time. Times are of the wall clock, for they outlive the machine's.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, params};

/// Changes that wait to be written, and those of one transaction.
const WAITING_MAX: usize = 20_000;
const AT_ONCE: usize = 1_000;
/// How long another process may keep the file from being used.
const BUSY: Duration = Duration::from_millis(500);
/// How often the writer looks whether rows are to be counted, and how many times as long as counting takes it
/// leaves that be.
const LOOK: Duration = Duration::from_millis(200);
const COUNTING_SHARE: u32 = 50;
const SCHEMA: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -256;
    CREATE TABLE IF NOT EXISTS rows (host TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, columns BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

/// Columns of a row and when they were read, in milliseconds after 1970.
pub(crate) type KeptRow = (Vec<(String, String)>, i64);

/// What is to be written.
pub(crate) enum Change {
    /// A host has this row.
    Row(String, i64, Vec<(String, String)>),
    /// A host has none.
    Gone(String),
    /// Rows of all hosts are forgotten.
    Clear,
    /// Rows that are older are forgotten.
    Older(i64),
    /// A fact has another value.
    Fact(&'static str, Vec<u8>),
}

/// A snapshot in use.
#[derive(Clone)]
pub(crate) struct Snapshot {
    reader: Arc<Mutex<Connection>>,
    writer: SyncSender<Change>,
    written: Arc<Written>,
}

/// How writing goes.
#[derive(Debug, Default)]
struct Written {
    /// How many rows there were.
    rows: AtomicU64,
    /// The last changes could not be written.
    has_failed: AtomicBool,
}

impl Snapshot {
    /// Opens the file, which is made for this user alone where it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<Snapshot> {
        // Before SQLite makes it with the rights that everybody gets; its other files take them from this one.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(BUSY)?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        };
        let (reader, writing) = (
            open().map_err(io::Error::other)?,
            open().map_err(io::Error::other)?,
        );
        let (writer, changes) = sync_channel(WAITING_MAX);
        let written = Arc::<Written>::default();
        let state = Arc::clone(&written);
        let name = "directory-snapshot".to_owned();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || write(writing, &changes, &state))?;
        Ok(Snapshot {
            reader: Arc::new(Mutex::new(reader)),
            writer,
            written,
        })
    }

    /// What is kept of a host.
    pub(crate) fn row(&self, host: &str) -> Option<KeptRow> {
        let sql = "SELECT columns, at_ms FROM rows WHERE host = ?1";
        let found = self.read(|reader| {
            let mut statement = reader.prepare_cached(sql)?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?));
            statement.query_row([host], row).optional()
        });
        let (columns, at_ms) = found??;
        Some((postcard::from_bytes(&columns).ok()?, at_ms))
    }

    /// A fact's value.
    pub(crate) fn fact(&self, name: &str) -> Option<Vec<u8>> {
        let sql = "SELECT value FROM facts WHERE name = ?1";
        self.read(|reader| reader.query_row(sql, [name], |row| row.get(0)).optional())?
    }

    /// How many rows there were a while ago.
    pub(crate) fn rows(&self) -> u64 {
        self.written.rows.load(Relaxed)
    }

    /// Whether what it was told last was written.
    pub(crate) fn is_written(&self) -> bool {
        !self.written.has_failed.load(Relaxed)
    }

    /// Has something written; gives it back where there is no room for now.
    pub(crate) fn put(&self, change: Change) -> Result<(), Change> {
        match self.writer.try_send(change) {
            Err(TrySendError::Full(change)) => Err(change),
            // Without its thread nothing is ever written, which that has told.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    fn read<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let looked = look(&reader);
        looked
            .inspect_err(|error| tracing::warn!(%error, "the snapshot cannot be read"))
            .ok()
    }
}

/// Writes until nobody has anything to write, and counts rows now and then.
fn write(mut writing: Connection, changes: &Receiver<Change>, state: &Written) {
    let (mut is_counted, mut next_count) = (false, Instant::now());
    loop {
        let first = match changes.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => None,
            Ok(first) => Some(first),
        };
        let rest = std::iter::from_fn(|| changes.try_recv().ok());
        let batch: Vec<_> = first.into_iter().chain(rest).take(AT_ONCE).collect();
        if !batch.is_empty() {
            is_counted = false;
            let written = write_all(&mut writing, &batch);
            state.has_failed.store(written.is_err(), Relaxed);
            if let Err(error) = written {
                let changes = batch.len();
                tracing::warn!(%error, changes, "the snapshot cannot be written");
            }
        }
        if !is_counted && next_count <= Instant::now() {
            let begun = Instant::now();
            let count =
                writing.query_row("SELECT count(*) FROM rows", [], |row| row.get::<_, i64>(0));
            state.rows.store(
                count.map_or(0, |count| u64::try_from(count).unwrap_or(0)),
                Relaxed,
            );
            is_counted = true;
            next_count = Instant::now() + begun.elapsed() * COUNTING_SHARE;
        }
    }
}

fn write_all(writing: &mut Connection, batch: &[Change]) -> rusqlite::Result<()> {
    let transaction = writing.transaction()?;
    for change in batch {
        apply(&transaction, change)?;
    }
    transaction.commit()
}

fn apply(to: &Connection, change: &Change) -> rusqlite::Result<()> {
    let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        to.prepare_cached(sql)?.execute(values).map(drop)
    };
    match change {
        Change::Row(host, at_ms, columns) => {
            let columns = postcard::to_stdvec(columns).unwrap_or_default();
            run(
                "INSERT OR REPLACE INTO rows VALUES (?1, ?2, ?3)",
                params![host, at_ms, columns],
            )
        }
        Change::Gone(host) => run("DELETE FROM rows WHERE host = ?1", params![host]),
        Change::Clear => run("DELETE FROM rows", params![]),
        Change::Older(at_ms) => run("DELETE FROM rows WHERE at_ms < ?1", params![at_ms]),
        Change::Fact(name, value) => run(
            "INSERT OR REPLACE INTO facts VALUES (?1, ?2)",
            params![name, value],
        ),
    }
}

/// Milliseconds after 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn a_snapshot_that_cannot_be_written_says_so_until_it_can() {
        let directory = testkit::TempDir::new();
        let path = directory.path().join("customers");
        let snapshot = Snapshot::open(&path).unwrap();
        let other = Connection::open(&path).unwrap();
        other.busy_timeout(SOON).unwrap();
        let until = |is_written: bool, sql: &str| {
            other.execute_batch(sql).unwrap();
            testkit::eventually(SOON, "a row that is put", || {
                let put = snapshot.put(Change::Row("a.example".into(), 7, Vec::new()));
                assert!(put.is_ok());
                (snapshot.is_written() == is_written).then_some(())
            });
        };
        until(false, "ALTER TABLE rows RENAME TO elsewhere");
        until(true, "ALTER TABLE elsewhere RENAME TO rows");
    }

    #[test]
    fn rows_outlive_who_wrote_them() {
        let directory = testkit::TempDir::new();
        let path = directory.path().join("customers");
        let columns = vec![("tenant".to_owned(), "anna' \"".to_owned())];
        let first = Snapshot::open(&path).unwrap();
        let put = |to: &Snapshot, change| assert!(to.put(change).is_ok());
        put(&first, Change::Row("a.example".into(), 7, columns.clone()));
        put(&first, Change::Row("b.example".into(), 3, columns.clone()));
        put(&first, Change::Fact("key", vec![1]));
        let is_written = || (first.rows() == 2 && first.fact("key").is_some()).then_some(());
        testkit::eventually(SOON, "rows to be written", is_written);
        drop(first);
        let next = Snapshot::open(&path).unwrap();
        assert_eq!(next.row("a.example"), Some((columns, 7)));
        assert_eq!(next.fact("key"), Some(vec![1]));
        put(&next, Change::Older(5));
        put(&next, Change::Gone("a.example".into()));
        let are_gone = || {
            ["a.example", "b.example"]
                .iter()
                .all(|host| next.row(host).is_none())
        };
        testkit::eventually(SOON, "rows to be gone", || are_gone().then_some(()));
    }
}
