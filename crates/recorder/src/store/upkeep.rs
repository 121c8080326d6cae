//! What is done to the database beside reading and writing days: marks of logs, visits under way,
//! thinning out, setting aside.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::parts::DayPart;
use super::unsent::bound;
use super::{ALIKE_MAX, SOURCES_DAYS, SourceMark, StoreError, WaitingPieces};
use crate::visits::OpenVisit;

/// Writes how far a source was read; false where somebody else did meanwhile.
pub(super) fn write_mark(
    transaction: &Transaction<'_>,
    mark: &SourceMark,
    today: i32,
) -> rusqlite::Result<bool> {
    let [source, position, tail] = [mark.source, mark.position, mark.tail].map(u64::cast_signed);
    let new = params![source, position, tail, today];
    let changed = match mark.before {
        Some((position, tail)) => {
            let sql = "DELETE FROM sources WHERE source = ?1 AND position = ?2 AND tail = ?3";
            let [position, tail] = [position, tail].map(u64::cast_signed);
            transaction.execute(sql, params![source, position, tail])?
        }
        None => {
            let sql = "SELECT min(count(*), ?2) FROM sources WHERE source = ?1";
            let alike = params![source, ALIKE_MAX];
            let known: i64 = transaction.query_row(sql, alike, |row| row.get(0))?;
            // Those that nobody has gone on with for longest make room.
            let sql = "DELETE FROM sources WHERE source = ?1 AND (position, tail) IN (\
                SELECT position, tail FROM sources WHERE source = ?1 \
                ORDER BY day DESC, position DESC LIMIT -1 OFFSET ?2)";
            transaction.execute(sql, params![source, ALIKE_MAX - 1])?;
            usize::from(usize::try_from(known) == Ok(mark.alike))
        }
    };
    let sql =
        "INSERT OR REPLACE INTO sources (source, position, tail, day) VALUES (?1, ?2, ?3, ?4)";
    transaction.execute(sql, new)?;
    Ok(changed == 1)
}

/// The visits that were under way when the last run ended.
pub(super) fn open_visits(connection: &Connection) -> rusqlite::Result<Vec<OpenVisit>> {
    let sql = "SELECT value FROM settings WHERE name = 'open visits'";
    let row = connection.query_row(sql, [], |row| row.get(0));
    let row: Option<Vec<u8>> = row.optional()?;
    // Of no use is better than in the way.
    let visits = row.and_then(|row| postcard::from_bytes(&row).ok());
    Ok(visits.unwrap_or_default())
}

/// Keeps them for the next.
pub(super) fn keep_open_visits(
    connection: &Connection,
    visits: &[OpenVisit],
) -> rusqlite::Result<()> {
    let content = postcard::to_stdvec(visits).unwrap_or_default();
    let sql = "INSERT OR REPLACE INTO settings (name, value) VALUES ('open visits', ?1)";
    connection.execute(sql, [content]).map(drop)
}

/// Deletes what is too old to be kept so finely.
pub(super) fn thin(transaction: &Transaction<'_>, today: i32) -> rusqlite::Result<()> {
    for part in DayPart::all() {
        let oldest = today.saturating_sub(part.days());
        let sql = "DELETE FROM parts WHERE part = ?1 AND day < ?2";
        transaction.execute(sql, params![part.number(), oldest])?;
    }
    let oldest = today.saturating_sub(SOURCES_DAYS);
    transaction.execute("DELETE FROM sources WHERE day < ?1", [oldest])?;
    bound(transaction)
}

/// The pieces of each day that were not taken up.
pub(super) fn waiting(
    connection: &Connection,
) -> rusqlite::Result<HashMap<(i64, i32), WaitingPieces>> {
    let sql = "SELECT site, day, count(*), sum(length(content)) FROM pieces GROUP BY site, day";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let [count, bytes]: [i64; 2] = [row.get(2)?, row.get(3)?];
        let of = (row.get(0)?, row.get(1)?);
        let waiting = WaitingPieces {
            pieces: count.unsigned_abs(),
            bytes: bytes.unsigned_abs(),
            settled_bytes: 0,
        };
        Ok((of, waiting))
    })?;
    rows.collect()
}

/// Renames a database and what belongs to it.
pub(super) fn set_aside(path: &Path, now_s: u64) -> Result<PathBuf, StoreError> {
    let named = |ending: &str| PathBuf::from(format!("{}{ending}", path.display()));
    let aside = named(&format!(".broken-{now_s}"));
    for ending in ["-wal", "-shm"] {
        let to = PathBuf::from(format!("{}{ending}", aside.display()));
        // Where there is none, there is nothing to be set aside.
        let _ = fs::rename(named(ending), to);
    }
    let renamed = fs::rename(path, &aside);
    let renamed = renamed.map_err(StoreError::of_files("set aside", path));
    renamed.map(|()| aside)
}
