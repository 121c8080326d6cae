//! Figures on disk: one SQLite database in a directory of its own.
//!
//! The idea: what was folded in some seconds is appended as pieces, in one transaction with how far
//! the log was read that they come from, so that whatever ends the process, nothing is counted twice
//! and at most those seconds are lost. A site's pieces are taken up into its day now and then; a
//! reader takes up those that were not. What is old is thinned out: minutes, visitors and trails
//! first, hours later, days never.

mod archived;
mod columns;
mod days;
mod incidents;
mod parts;
mod samples;
mod unsent;
mod upkeep;

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Params, Row, Statement, Transaction,
    TransactionBehavior, params,
};

use crate::piece::Piece;
use crate::visits::OpenVisit;
pub(crate) use archived::PartsOfTime;
use incidents::thin_incidents;
pub use incidents::{IncidentCause, IncidentsOf, KeptIncident};
pub(crate) use incidents::{KINDS as INCIDENT_KINDS, owners_in};
use parts::{Packing, packed, take_up};
pub use samples::Tier;
use samples::{forget_series, thin_samples};
use unsent::Marks;
pub(crate) use unsent::{MARKS_MAX, OverUntil};
use upkeep::{keep_open_visits, open_visits, set_aside, thin, waiting, write_mark};

/// Days for which minutes and trails are kept.
pub const MINUTES_DAYS: i32 = 14;
/// Days for which is kept who came, as salted hashes: two months, for salts of a month.
pub const VISITORS_DAYS: i32 = 62;
/// Days for which hours are kept: two years.
pub const HOURS_DAYS: i32 = 731;
/// Days for which is known how far a log was read.
const SOURCES_DAYS: i32 = 800;
/// Logs that begin alike and are told apart.
const ALIKE_MAX: i64 = 64;
/// Pieces of a day with which they are taken up.
const PIECES_MAX: u64 = 360;
/// Their bytes, of a small day and of a large one.
const PIECES_BYTES: u64 = 256 << 10;
const PIECES_BYTES_MAX: u64 = 4 << 20;
/// Days that are over which one write takes up.
const OVER_AT_ONCE: usize = 20;
/// How long is waited for another process that writes.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Bytes that the database's log keeps when it begins anew.
const LOG_BYTES_MAX: i64 = 4 << 20;
/// The database in its directory.
const FILE: &str = "figures.db";
/// Of the tables below.
const FORMAT: i64 = 10;
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sites (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS parts (site INTEGER NOT NULL, day INTEGER NOT NULL, part INTEGER NOT NULL,
    content BLOB NOT NULL, PRIMARY KEY (site, day, part));
CREATE INDEX IF NOT EXISTS parts_by_age ON parts (part, day);
CREATE INDEX IF NOT EXISTS totals ON parts (day, site, content) WHERE part = 0;
CREATE TABLE IF NOT EXISTS pieces (id INTEGER PRIMARY KEY, site INTEGER NOT NULL, day INTEGER NOT NULL,
    content BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS pieces_of_days ON pieces (site, day);
CREATE TABLE IF NOT EXISTS sources (source INTEGER NOT NULL, position INTEGER NOT NULL,
    tail INTEGER NOT NULL, day INTEGER NOT NULL, PRIMARY KEY (source, position, tail)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS samples (series INTEGER NOT NULL, tier INTEGER NOT NULL, at INTEGER NOT NULL,
    count INTEGER NOT NULL, sum REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
    PRIMARY KEY (series, tier, at)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS samples_by_age ON samples (tier, at);
";

/// Why the database could not be used.
#[derive(Debug)]
pub struct StoreError {
    doing: &'static str,
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Database(rusqlite::Error),
    Files(std::io::Error),
    /// A row that says nothing.
    Content,
    /// It has another format.
    Format(i64),
    /// A source that somebody else has read on.
    Raced,
}

impl StoreError {
    /// What is wrong with files.
    fn of_files(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
        move |why| StoreError {
            doing,
            path: path.into(),
            why: Why::Files(why),
        }
    }

    /// Whether there is no room: what was not written can be written later.
    pub fn is_full(&self) -> bool {
        let code = self.code();
        code == Some(ErrorCode::DiskFull) || code == Some(ErrorCode::SystemIoFailure)
    }

    /// Whether the file is broken, and wants to be set aside.
    pub fn is_broken(&self) -> bool {
        let code = self.code();
        let is_corrupt =
            code == Some(ErrorCode::DatabaseCorrupt) || code == Some(ErrorCode::NotADatabase);
        is_corrupt || matches!(self.why, Why::Content)
    }

    /// Whether reading took too long ([`FigureStore::give_up_at`]).
    pub fn is_late(&self) -> bool {
        self.code() == Some(ErrorCode::OperationInterrupted)
    }

    /// Whether another process has read the same log meanwhile.
    pub fn is_raced(&self) -> bool {
        matches!(self.why, Why::Raced)
    }

    fn code(&self) -> Option<ErrorCode> {
        match &self.why {
            Why::Database(error) => error.sqlite_error_code(),
            _ => None,
        }
    }
}

impl Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.doing, self.path.display())?;
        match &self.why {
            Why::Database(_) if self.is_full() => write!(
                f,
                "the disk is full or broken; nothing of what was written before is lost, make room and try again"
            ),
            Why::Database(_) if self.is_late() => {
                write!(f, "it takes too long; ask for fewer days")
            }
            Why::Database(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                write!(
                    f,
                    "another process has been writing for {} s",
                    BUSY_MAX.as_secs()
                )
            }
            Why::Database(error) => write!(f, "{error}"),
            Why::Files(error) if error.kind() == ErrorKind::PermissionDenied => write!(
                f,
                "{error}: it is its owner's alone; ask as that user, or `chown -R` the directory to who is to have it (`[recorder] user`)"
            ),
            Why::Files(error) => write!(f, "{error}"),
            Why::Content => write!(f, "a row cannot be understood"),
            Why::Format(format) => write!(
                f,
                "it has format {format}, written by {} version; this one knows {FORMAT}: move `figures.db` away to begin anew",
                match *format > FORMAT {
                    true => "a newer",
                    false => "an older",
                }
            ),
            Why::Raced => write!(f, "another process is reading the same log into it"),
        }
    }
}

impl std::error::Error for StoreError {}

/// How far a log was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceMark {
    /// How the log begins: a hash.
    pub source: u64,
    /// How many logs are known that begin so.
    pub alike: usize,
    /// Position and tail of the last mark; none of a log that is new.
    pub before: Option<(u64, u64)>,
    /// Bytes that were read, unpacked.
    pub position: u64,
    /// A hash of the last bytes before that.
    pub tail: u64,
}

/// Pieces of a day that were not taken up.
#[derive(Debug, Clone, Copy, Default)]
struct WaitingPieces {
    pieces: u64,
    bytes: u64,
    /// Bytes of what was taken up last, which taking up reads and writes again.
    settled_bytes: u64,
}

impl WaitingPieces {
    /// Whether it is time to take them up: that costs what the whole day takes, so the larger it is,
    /// the more are to wait.
    fn is_due(self) -> bool {
        let bytes = self.settled_bytes.clamp(PIECES_BYTES, PIECES_BYTES_MAX);
        self.pieces >= PIECES_MAX || self.bytes >= bytes
    }
}

/// The database.
#[derive(Debug)]
pub struct FigureStore {
    path: PathBuf,
    connection: Connection,
    /// Settings that were read or set: they hold for a new file as well.
    settings: HashMap<String, String>,
    /// By site and day.
    waiting: HashMap<(i64, i32), WaitingPieces>,
    thinned_day: Option<i32>,
    /// When reading is given up.
    until: Option<Instant>,
    /// Whether this process has marks kept: in a new file as well.
    marks: Marks,
}

/// An error where it is later than that.
fn go_on(until: Option<Instant>) -> rusqlite::Result<()> {
    match until.is_some_and(|until| Instant::now() >= until) {
        true => {
            let late = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
            Err(rusqlite::Error::SqliteFailure(late, None))
        }
        false => Ok(()),
    }
}

impl FigureStore {
    /// Opens the database of a directory, or makes one. A broken one is set aside, and where it went
    /// is told.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn open(
        directory: &Path,
        now_s: u64,
    ) -> Result<(FigureStore, Option<PathBuf>), StoreError> {
        let path = directory.join(FILE);
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.map_err(StoreError::of_files("make", directory))?;
        match FigureStore::open_file(&path) {
            Err(error) if error.is_broken() => {
                let aside = set_aside(&path, now_s)?;
                Ok((FigureStore::open_file(&path)?, Some(aside)))
            }
            opened => Ok((opened?, None)),
        }
    }

    /// Opens the database of a directory, which has to be there.
    ///
    /// # Errors
    /// Where there is none, or it cannot be opened.
    pub fn open_existing(directory: &Path) -> Result<FigureStore, StoreError> {
        let path = directory.join(FILE);
        fs::metadata(&path).map_err(StoreError::of_files("open", &path))?;
        FigureStore::open_file(&path)
    }

    fn open_file(path: &Path) -> Result<FigureStore, StoreError> {
        // SQLite gives its other files the same mode.
        let mut options = fs::OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let opened = options.open(path);
        opened.map_err(StoreError::of_files("open", path))?;
        let opened = Connection::open(path).and_then(|connection| {
            connection.busy_timeout(BUSY_MAX)?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            // One that a large write has made long is cut again.
            connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
            // After a crash of the machine the last seconds may be missing; nothing is broken.
            connection.pragma_update(None, "synchronous", "normal")?;
            // What is forgotten is overwritten.
            connection.pragma_update(None, "secure_delete", "on")?;
            let format = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            Ok((connection, format))
        });
        let failed = |why| StoreError {
            doing: "open",
            path: path.into(),
            why,
        };
        let (connection, format) = opened.map_err(|error| failed(Why::Database(error)))?;
        let made = match format {
            FORMAT => Ok(()),
            1.. => return Err(failed(Why::Format(format))),
            _ => make_tables(&connection)
                .and_then(|()| connection.pragma_update(None, "user_version", FORMAT)),
        };
        let waiting = made.and_then(|()| waiting(&connection));
        Ok(FigureStore {
            path: path.into(),
            waiting: waiting.map_err(|error| failed(Why::Database(error)))?,
            marks: Marks::Without,
            connection,
            settings: HashMap::new(),
            thinned_day: None,
            until: None,
        })
    }

    /// Renames the file, which is broken, and begins a new one; tells where it went.
    pub(crate) fn set_aside(&mut self, now_s: u64) -> Result<PathBuf, StoreError> {
        // One that is open takes files of its name away when it is closed.
        let none = Connection::open_in_memory().map_err(self.failed("open"))?;
        drop(std::mem::replace(&mut self.connection, none));
        let aside = set_aside(&self.path, now_s)?;
        let (settings, marks) = (std::mem::take(&mut self.settings), self.marks);
        *self = FigureStore::open_file(&self.path)?;
        for (name, value) in settings {
            self.set_setting(&name, &value)?;
        }
        self.mark_again(marks)?;
        Ok(aside)
    }

    /// Has days be read until then, and not longer.
    pub(crate) fn give_up_at(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// An error where reading is to be given up.
    fn go_on(&self) -> rusqlite::Result<()> {
        go_on(self.until)
    }

    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.clone();
        move |error| StoreError {
            doing,
            path: path.clone(),
            why: match error {
                // What we read back as something it is not.
                rusqlite::Error::FromSqlConversionFailure(..) => Why::Content,
                error => Why::Database(error),
            },
        }
    }

    /// What this asks for, a row each.
    fn rows<T>(
        &self,
        sql: &str,
        of: impl Params,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let statement = self.connection.prepare(sql);
        let rows = statement.and_then(|mut statement| statement.query_map(of, row)?.collect());
        rows.map_err(self.failed("read"))
    }

    /// Writes, all or nothing.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let failed = self.failed("write");
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior);
        let changed = transaction.and_then(|transaction| {
            let changed = change(&transaction)?;
            transaction.commit()?;
            Ok(changed)
        });
        changed.map_err(failed)
    }

    /// Writes pieces and how far their log was read, all or nothing.
    ///
    /// # Errors
    /// Where they could not be written: nothing was, then.
    pub fn write<'a>(
        &mut self,
        pieces: impl Iterator<Item = (&'a str, i32, &'a Piece)>,
        mark: Option<&SourceMark>,
        today: i32,
    ) -> Result<(), StoreError> {
        let failed = self.failed("write");
        let mut thinned_day = self.thinned_day;
        let thins = thinned_day != Some(today);
        let mut waiting = HashMap::new();
        let behavior = TransactionBehavior::Immediate;
        let written = (|| {
            let transaction = self.connection.transaction_with_behavior(behavior)?;
            let marks = Marks::of(&transaction)?;
            let sql = "INSERT INTO pieces (site, day, content) VALUES (?1, ?2, ?3)";
            let mut insert = transaction.prepare(sql)?;
            let mut find = transaction.prepare("SELECT id FROM sites WHERE name = ?1")?;
            for (site, day, piece) in pieces {
                let site = site_id(&transaction, &mut find, site)?;
                let content = packed(&piece.stored(), Packing::Quick);
                let mut known = self.waiting.get(&(site, day)).copied().unwrap_or_default();
                if known.is_due() {
                    // Before this one comes: a day that is taken up for now has a piece that waits, and so is
                    // taken up for good once it is over.
                    known = take_up(&transaction, (site, day), Packing::Quick)?;
                }
                insert.execute(params![site, day, content])?;
                marks.site(&transaction, (site, day), piece.minutes_of_day())?;
                let piece = WaitingPieces {
                    pieces: known.pieces + 1,
                    bytes: known.bytes + content.len() as u64,
                    ..known
                };
                waiting.insert((site, day), piece);
            }
            drop((insert, find));
            let is_ours = mark.map_or(Ok(true), |mark| write_mark(&transaction, mark, today))?;
            if !is_ours {
                return Ok(false);
            }
            if thins {
                // Days that are over grow no more; of many some wait for the next write.
                let over = self.waiting.iter();
                let over = over.filter(|((_, day), it)| *day < today && it.pieces > 0);
                let mut left = OVER_AT_ONCE;
                for (of, _) in over.take(OVER_AT_ONCE) {
                    waiting.insert(*of, take_up(&transaction, *of, Packing::Small)?);
                    left -= 1;
                }
                if left > 0 {
                    thin(&transaction, today)?;
                    thin_samples(&transaction, today)?;
                    thin_incidents(&transaction, today)?;
                    thinned_day = Some(today);
                }
            }
            transaction.commit()?;
            Ok(true)
        })();
        match written {
            Ok(true) => {
                self.thinned_day = thinned_day;
                self.waiting.extend(waiting);
                self.waiting
                    .retain(|(_, day), it| it.pieces > 0 || *day + 1 >= today);
                Ok(())
            }
            Ok(false) => Err(StoreError {
                doing: "write",
                path: self.path.clone(),
                why: Why::Raced,
            }),
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes up all pieces that wait of days that are over, a day a transaction.
    ///
    /// # Errors
    /// Where that could not be written; pieces that wait are none the worse.
    pub fn settle(&mut self, today: i32) -> Result<(), StoreError> {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|((_, day), it)| *day < today && it.pieces > 0);
        let waiting: Vec<_> = waiting.map(|(of, _)| *of).collect();
        for of in waiting {
            self.change(|transaction| take_up(transaction, of, Packing::Small))?;
            self.waiting.remove(&of);
        }
        Ok(())
    }

    /// How far logs that begin so were read: position and tail, the longest first, at most
    /// [`ALIKE_MAX`].
    pub(crate) fn source(&self, source: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        let sql = "SELECT position, tail FROM sources WHERE source = ?1 \
            ORDER BY position DESC LIMIT ?2";
        self.rows(sql, params![source.cast_signed(), ALIKE_MAX], |row| {
            let [position, tail]: [i64; 2] = [row.get(0)?, row.get(1)?];
            Ok((position.cast_unsigned(), tail.cast_unsigned()))
        })
    }

    /// Whether what is too old was deleted on this day.
    pub fn is_thinned(&self, today: i32) -> bool {
        self.thinned_day == Some(today)
    }

    /// A setting that holds for all that is in the database.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn setting(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT value FROM settings WHERE name = ?1";
        let row = self.connection.query_row(sql, [name], |row| row.get(0));
        let value: Option<String> = row.optional().map_err(self.failed("read"))?;
        if let Some(value) = &value {
            self.settings.insert(name.into(), value.clone());
        }
        Ok(value)
    }

    /// Sets one.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn set_setting(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO settings (name, value) VALUES (?1, ?2)";
        let done = self.connection.execute(sql, params![name, value]);
        done.map_err(self.failed("write"))?;
        self.settings.insert(name.into(), value.into());
        Ok(())
    }

    /// The visits that were under way when the last run ended.
    pub(crate) fn open_visits(&self) -> Result<Vec<OpenVisit>, StoreError> {
        open_visits(&self.connection).map_err(self.failed("read"))
    }

    /// Keeps visits that are under way for the next run.
    pub(crate) fn keep_open_visits(&self, visits: &[OpenVisit]) -> Result<(), StoreError> {
        keep_open_visits(&self.connection, visits).map_err(self.failed("write"))
    }

    /// Names of all sites, in order.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn sites(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT name FROM sites ORDER BY name";
        self.rows(sql, [], |row| row.get(0))
    }

    /// Forgets all of a site; says whether there was anything.
    ///
    /// # Errors
    /// Where it could not be deleted: nothing was, then.
    pub fn forget(&mut self, site: &str) -> Result<bool, StoreError> {
        let forgotten = self.change(|transaction| {
            let sql = "DELETE FROM sites WHERE name = ?1 RETURNING id";
            let found = transaction.query_row(sql, [site], |row| row.get(0));
            let Some(id): Option<i64> = found.optional()? else {
                return Ok(None);
            };
            transaction.execute("DELETE FROM parts WHERE site = ?1", [id])?;
            transaction.execute("DELETE FROM pieces WHERE site = ?1", [id])?;
            let sql = "DELETE FROM incidents \
                WHERE id IN (SELECT incident FROM concerned WHERE owner = ?1)";
            transaction.execute(sql, [format!("site {site}")])?;
            forget_series(transaction, site)?;
            let mut visits = open_visits(transaction)?;
            visits.retain(|visit| *visit.site != *site);
            keep_open_visits(transaction, &visits)?;
            Ok(Some(id))
        })?;
        // The log of the database holds what was deleted until it is written back.
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let checkpoint = self.connection.query_row(sql, [], |_| Ok(()));
        checkpoint.map_err(self.failed("write"))?;
        self.waiting.retain(|(site, _), _| Some(*site) != forgotten);
        Ok(forgotten.is_some())
    }
}

fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    connection.execute_batch(incidents::TABLES)
}

fn site_id(
    transaction: &Transaction<'_>,
    find: &mut Statement<'_>,
    name: &str,
) -> rusqlite::Result<i64> {
    let known = find.query_row([name], |row| row.get(0));
    if let Some(known) = known.optional()? {
        return Ok(known);
    }
    transaction.execute("INSERT INTO sites (name) VALUES (?1)", [name])?;
    Ok(transaction.last_insert_rowid())
}

#[cfg(test)]
mod tests;
