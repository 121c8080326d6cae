//! What is done to the database beside reading and writing days: marks of logs, thinning out, setting
//! aside.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Transaction, params};

use super::parts::DayPart;
use super::{SOURCES_DAYS, SourceMark, StoreError, Why};

/// Writes how far a source was read; false where somebody else did meanwhile.
pub(super) fn write_mark(
    transaction: &Transaction<'_>,
    mark: &SourceMark,
    today: i32,
) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO sources (source, position, tail, day) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT (source) DO UPDATE SET position = ?2, tail = ?3, day = ?4 WHERE position = ?5";
    let [source, position, tail, before] =
        [mark.source, mark.position, mark.tail, mark.before].map(u64::cast_signed);
    let changed = transaction.execute(sql, params![source, position, tail, today, before])?;
    Ok(changed == 1)
}

/// Deletes what is too old to be kept so finely.
pub(super) fn thin(transaction: &Transaction<'_>, today: i32) -> rusqlite::Result<()> {
    for part in DayPart::ALL {
        let oldest = today.saturating_sub(part.days());
        let sql = "DELETE FROM parts WHERE part = ?1 AND day < ?2";
        transaction.execute(sql, params![part as i64, oldest])?;
    }
    let oldest = today.saturating_sub(SOURCES_DAYS);
    transaction.execute("DELETE FROM sources WHERE day < ?1", [oldest])?;
    Ok(())
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
    renamed.map(|()| aside).map_err(|why| StoreError {
        doing: "set aside",
        path: path.into(),
        why: Why::Files(why),
    })
}
