//! A file of rows: CSV (RFC 4180) or an object of JSON a line.
//!
//! The idea: the file is read whole, a record at a time, into a table of SQLite that is nowhere but in a
//! temporary file; it takes the place of the one before when all is read. What is no record is told by line.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, params};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use super::{Answered, Question, WRONG_TYPE};
use crate::judge::RawRow;
use crate::users::own_name;

/// Bytes of a file, and of one record.
const FILE_BYTES_MAX: u64 = 4 << 30;
const RECORD_BYTES_MAX: usize = 4 << 20;
/// Lines that are remembered as no records.
const BROKEN_MAX: usize = 1_000;
/// Rows of one page.
const PAGE_ROWS: usize = 1_000;
/// How long a file has not been written that is read again.
const STILL: Duration = Duration::from_secs(1);
const UNREADABLE: &str = "it cannot be read";
const UNFINISHED: &str = "it was written while it was read";
const SCHEMA: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
    CREATE TABLE rows (host TEXT NOT NULL, columns BLOB NOT NULL);";

/// How the file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    JsonLines,
}

/// A file and the table it was read into.
pub(crate) struct FileTable {
    path: PathBuf,
    format: Format,
    /// Held to ask it, and to read the file the first time.
    read: Arc<Mutex<Option<ReadFile>>>,
    is_read: Cell<bool>,
}

/// What was read.
struct ReadFile {
    stamp: Stamp,
    table: Connection,
    /// What its first line names; an object a line has its own.
    columns: Option<Vec<String>>,
    broken: Vec<String>,
}

/// What says that a file is another: its number, size and time.
type Stamp = (u64, u64, i64, i64);

impl FileTable {
    pub(super) fn new(path: PathBuf, format: Format) -> FileTable {
        FileTable {
            path,
            format,
            read: Arc::default(),
            is_read: Cell::new(false),
        }
    }

    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answered, String> {
        let (host, sql) = match question {
            Question::Host(host) => (
                host,
                "SELECT host, columns FROM rows WHERE host = ?1 LIMIT ?2",
            ),
            Question::After(host) => (
                host,
                "SELECT host, columns FROM rows WHERE host > ?1 ORDER BY host LIMIT ?2",
            ),
            Question::Since(_) => return Err("a file has no changes".to_owned()),
        };
        let rows_max = question.rows_max().min(PAGE_ROWS) as i64;
        let host = host.to_owned();
        self.with(move |read| {
            let mut statement = read.table.prepare_cached(sql)?;
            let row = |row: &rusqlite::Row<'_>| {
                let columns: Vec<u8> = row.get(1)?;
                Ok(postcard::from_bytes(&columns).unwrap_or_default())
            };
            let rows = statement.query_map(params![host, rows_max], row)?;
            Ok(Answered {
                columns: read.columns.clone(),
                rows: rows.collect::<rusqlite::Result<_>>()?,
            })
        })
        .await
    }

    /// Reads the file again if it is another, while the table before answers; says whether it was.
    pub(crate) async fn look(&self) -> Result<bool, String> {
        let before = self.with(|read| Ok(read.stamp)).await?;
        let (path, format, read) = (self.path.clone(), self.format, Arc::clone(&self.read));
        let looked = tokio::task::spawn_blocking(move || {
            // A file that is gone for a moment stays what it was.
            let Ok((now, file)) = open(&path) else {
                return Ok(false);
            };
            // What is being written may be half of it.
            if now == before || !is_still(&file) {
                return Ok(false);
            }
            let loaded = match load(&path, &file, now, format) {
                Err(why) if why == UNFINISHED => return Ok(false),
                loaded => loaded?,
            };
            *read.lock().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
            Ok(true)
        });
        looked.await.map_err(|_| UNREADABLE.to_owned())?
    }

    /// The lines that are no records.
    pub(crate) async fn broken(&self) -> Result<Vec<String>, String> {
        self.with(|read| Ok(read.broken.clone())).await
    }

    async fn with<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&ReadFile) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        self.await_still().await?;
        let (path, format, read) = (self.path.clone(), self.format, Arc::clone(&self.read));
        let asked = tokio::task::spawn_blocking(move || {
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            if read.is_none() {
                let (now, file) = open(&path).map_err(|error| config::reason(&error))?;
                *read = Some(load(&path, &file, now, format)?);
            }
            let read = read.as_ref().ok_or(UNREADABLE)?;
            ask(read).map_err(|error| error.to_string())
        });
        let asked = asked.await.map_err(|_| UNREADABLE.to_owned())?;
        self.is_read.set(self.is_read.get() || asked.is_ok());
        asked
    }

    /// Waits until the file, where it was not read yet, has not been written for a moment: what is being written may be half of
    /// it. All who ask wait side by side, and the snapshot, if there is one, answers meanwhile.
    async fn await_still(&self) -> Result<(), String> {
        let until = Instant::now() + 2 * STILL;
        while !self.is_read.get() {
            // Before the look: a machine that stands still after it has not looked too late.
            let is_last = Instant::now() >= until;
            let path = self.path.clone();
            let opened = tokio::task::spawn_blocking(move || Ok(is_still(&open(&path)?.1)));
            let opened: io::Result<bool> = opened.await.map_err(|_| UNREADABLE.to_owned())?;
            let whose = |error| format!("{}, for user {}", config::reason(&error), own_name());
            match opened.map_err(whose)? {
                true => return Ok(()),
                false if is_last => return Err(UNFINISHED.to_owned()),
                false => sleep(STILL / 10).await,
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(Stamp, File)> {
    let file = File::open(path)?;
    Ok((stamp(&file)?, file))
}

fn stamp(file: &File) -> io::Result<Stamp> {
    let metadata = file.metadata()?;
    Ok((
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    ))
}

/// Whether a file was not written for a moment.
fn is_still(file: &File) -> bool {
    let written = file.metadata().and_then(|facts| facts.modified());
    let since = written.map(|at| SystemTime::now().duration_since(at));
    // A clock that was set back is no reason to wait for it.
    since.is_ok_and(|since| since.map_or(true, |since| since >= STILL))
}

fn load(path: &Path, file: &File, stamp: Stamp, format: Format) -> Result<ReadFile, String> {
    let failed = |error: rusqlite::Error| error.to_string();
    // An empty name is a file that nobody else sees and that goes with the connection.
    let mut table = Connection::open("").map_err(failed)?;
    table.execute_batch(SCHEMA).map_err(failed)?;
    let (mut broken, mut columns) = (Vec::new(), None);
    let into = table.transaction().map_err(failed)?;
    {
        let mut insert = into
            .prepare("INSERT INTO rows VALUES (?1, ?2)")
            .map_err(failed)?;
        let mut take = |line: usize, record: Result<RawRow, String>| -> rusqlite::Result<()> {
            let row = record.and_then(|row| Ok((host(&row)?, row)));
            match row {
                Ok((host, row)) => {
                    let columns = postcard::to_stdvec(&row).unwrap_or_default();
                    insert.execute(params![host, columns])?;
                }
                Err(why) if broken.len() < BROKEN_MAX => broken.push(format!("line {line}: {why}")),
                Err(_) => {}
            }
            Ok(())
        };
        let reader = BufReader::new(file.take(FILE_BYTES_MAX));
        let read = match format {
            Format::Csv => read_csv(reader, &mut take).map(|names| columns = names),
            Format::JsonLines => read_json(reader, &mut take),
        };
        read.map_err(|error| config::reason(&error))?;
    }
    if self::stamp(file).ok() != Some(stamp) {
        return Err(UNFINISHED.to_owned());
    }
    into.execute_batch("CREATE INDEX by_host ON rows (host)")
        .map_err(failed)?;
    into.commit().map_err(failed)?;
    if let Some(first) = broken.first() {
        tracing::warn!(file = %path.display(), lines = broken.len(), "some of the file is no row: {first}");
    }
    Ok(ReadFile {
        stamp,
        table,
        columns,
        broken,
    })
}

/// The host of a row, without a trailing dot and in lower case, as requests are compared with it.
pub(crate) fn host(row: &RawRow) -> Result<String, String> {
    let host = row
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("host"));
    match host {
        Some((_, Ok(Some(host)))) => {
            let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
            match crate::judge::is_host(&host) {
                true => Ok(host),
                false => Err("its host is none".to_owned()),
            }
        }
        _ => Err("column `host` is missing".to_owned()),
    }
}

type Take<'a> = &'a mut dyn FnMut(usize, Result<RawRow, String>) -> rusqlite::Result<()>;

/// A line with its end, up to a bound; what is longer is left out, and told.
fn line(from: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<bool> {
    let most = RECORD_BYTES_MAX as u64;
    let read = from.by_ref().take(most).read_until(b'\n', into)?;
    Ok(read > 0)
}

fn read_json(mut from: impl BufRead, take: Take<'_>) -> io::Result<()> {
    let (mut bytes, mut number) = (Vec::new(), 0);
    while line(&mut from, &mut bytes)? {
        number += 1;
        if !bytes.trim_ascii().is_empty() {
            let row = serde_json::from_slice::<Map<String, Value>>(&bytes);
            let row = row
                .map(row_of_json)
                .map_err(|_| "it is no object".to_owned());
            take(number, row).map_err(io::Error::other)?;
        }
        bytes.clear();
    }
    Ok(())
}

/// The columns of an object.
pub(crate) fn row_of_json(object: Map<String, Value>) -> RawRow {
    let text = |value| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Bool(flag) => Ok(Some(flag.to_string())),
        Value::Number(number) if number.is_i64() || number.is_u64() => Ok(Some(number.to_string())),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => Err(WRONG_TYPE.to_owned()),
    };
    object
        .into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

/// Reads records; the columns that the first of them names.
fn read_csv(mut from: impl BufRead, take: Take<'_>) -> io::Result<Option<Vec<String>>> {
    let (mut bytes, mut number, mut names) = (Vec::new(), 0, None::<Vec<String>>);
    loop {
        let begins = number + 1;
        let is_short = record(&mut from, &mut bytes, &mut number)?;
        if number < begins {
            return Ok(names);
        }
        let fields = std::str::from_utf8(&bytes)
            .map_err(|_| "it is not UTF-8".to_owned())
            .and_then(fields);
        let fields = match is_short {
            true => fields,
            false => Err(format!("it has more than {RECORD_BYTES_MAX} bytes")),
        };
        match (&names, fields) {
            (None, Ok(fields)) => names = Some(fields),
            (None, Err(why)) => {
                return Err(io::Error::other(format!(
                    "its first line names no columns: {why}"
                )));
            }
            (Some(_), Ok(fields))
                if fields.len() == 1 && fields.first().is_some_and(String::is_empty) => {}
            (Some(names), Ok(fields)) if fields.len() == names.len() => {
                let row = names
                    .iter()
                    .cloned()
                    .zip(fields.into_iter().map(|text| Ok(Some(text))));
                take(begins, Ok(row.collect())).map_err(io::Error::other)?;
            }
            (Some(names), Ok(fields)) => {
                let why = format!("it has {} fields, not {}", fields.len(), names.len());
                take(begins, Err(why)).map_err(io::Error::other)?;
            }
            (Some(_), Err(why)) => take(begins, Err(why)).map_err(io::Error::other)?,
        }
        bytes.clear();
    }
}

/// A record: it goes on while a quote is open. Says whether it is short enough; of one that is not the rest is passed
/// over, so that nothing within its quotes is taken for a record.
fn record(from: &mut impl BufRead, into: &mut Vec<u8>, number: &mut usize) -> io::Result<bool> {
    let (mut piece, mut is_open, mut is_short) = (Vec::new(), false, true);
    let mut is_begun = false;
    while line(from, &mut piece)? {
        *number += usize::from(!is_begun);
        is_begun = !piece.ends_with(b"\n");
        is_open ^= piece.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
        is_short &= into.len() + piece.len() <= RECORD_BYTES_MAX;
        if is_short {
            into.extend_from_slice(&piece);
        }
        piece.clear();
        if !is_open && !is_begun {
            break;
        }
    }
    Ok(is_short)
}

/// The fields of a record.
fn fields(record: &str) -> Result<Vec<String>, String> {
    let record = record.strip_suffix('\n').unwrap_or(record);
    let mut rest = record.strip_suffix('\r').unwrap_or(record);
    let mut fields = Vec::new();
    loop {
        let mut field = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted;
            loop {
                let (text, after) = rest.split_once('"').ok_or("a quote is not closed")?;
                field.push_str(text);
                match after.strip_prefix('"') {
                    Some(after) => {
                        field.push('"');
                        rest = after;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (text, after) = rest.split_at(end);
            if text.contains('"') {
                return Err("a quote stands within a field".to_owned());
            }
            field.push_str(text);
            rest = after;
        }
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.is_empty() => return Ok(fields),
            None => return Err("something stands behind a closing quote".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_rfc_4180_says() {
        let read = |text: &str| fields(text).map_err(|why| why.to_owned());
        assert_eq!(read("a,b\r\n").unwrap(), ["a", "b"]);
        assert_eq!(read("\"a,\"\"b\"\"\n\",\n").unwrap(), ["a,\"b\"\n", ""]);
        for wrong in ["\"a", "a\"b", "\"a\"b,c"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_is_being_written_is_not_taken_for_whole() {
        let directory = testkit::TempDir::new();
        let path = directory.write("rows.csv", "host,tenant\na.example,anna\n");
        let (stamp, file) = open(&path).unwrap();
        let write = File::options().append(true).open(&path).unwrap();
        let written = |at: SystemTime| {
            write.set_modified(at).unwrap();
            is_still(&file)
        };
        let now = SystemTime::now();
        assert!(!written(now) && written(now - 2 * STILL));
        assert!(written(now + 100 * STILL), "the clock was set back");
        let wrong = load(&path, &file, stamp, Format::Csv).err();
        assert_eq!(wrong.as_deref(), Some(UNFINISHED));
        let (stamp, file) = open(&path).unwrap();
        assert!(load(&path, &file, stamp, Format::Csv).is_ok());
    }

    #[test]
    fn who_waits_for_a_file_to_be_whole_holds_nobody_up() {
        let directory = testkit::TempDir::new();
        let path = directory.write("rows.csv", "host,tenant\na.example,anna\n");
        let (_, file) = open(&path).unwrap();
        let table = FileTable::new(path, Format::Csv);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let asked = runtime.block_on(async {
            let asking = table.ask(Question::Host("a.example"));
            tokio::pin!(asking);
            loop {
                let is_free = table.read.try_lock().is_ok();
                assert!(is_free || is_still(&file), "it waits with the table locked");
                tokio::select! {
                    asked = &mut asking => break asked,
                    () = sleep(STILL / 100) => {}
                }
            }
        });
        assert_eq!(asked.unwrap().rows.len(), 1);
    }

    #[test]
    fn nothing_within_a_field_is_a_row_however_long_it_is() {
        let mut rows = Vec::new();
        let mut take = |line: usize, row: Result<RawRow, String>| {
            rows.push((line, row.is_ok()));
            Ok(())
        };
        let long = "victim.example,me\n".repeat(2 * RECORD_BYTES_MAX / 18);
        let lines = long.lines().count();
        let text = format!("host,note\na.example,\"{long}\"\nb.example,x\n");
        read_csv(text.as_bytes(), &mut take).unwrap();
        assert_eq!(rows, [(2, false), (lines + 3, true)]);
    }

    #[test]
    fn what_is_no_record_is_told_by_line_and_the_others_are_read() {
        let mut rows = Vec::new();
        let mut take = |line: usize, row: Result<RawRow, String>| {
            rows.push((line, row.map(|row| row.len())));
            Ok(())
        };
        let text =
            "host,tenant\r\na.example,\"two\nlines\"\n\nb.example\nc.example,\"x\" y\nd.example,d";
        read_csv(text.as_bytes(), &mut take).unwrap();
        read_json(
            "{\"host\":\"a\",\"n\":1.5}\n\nnothing\n".as_bytes(),
            &mut take,
        )
        .unwrap();
        let lines: Vec<_> = rows
            .iter()
            .map(|(line, row)| (*line, row.is_ok()))
            .collect();
        let told = [
            (2, true),
            (5, false),
            (6, false),
            (7, true),
            (1, true),
            (3, false),
        ];
        assert_eq!(lines, told);
    }
}
