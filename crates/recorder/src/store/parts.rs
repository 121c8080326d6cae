//! A day in parts, as they lie in the database: each is kept for its own time.
//!
//! The idea: lists and minutes are mostly text and zeros, so they are packed; visitors lie as
//! differences of sorted hashes, which leaves of each what the number of them does not say.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::{Connection, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{HOURS_DAYS, MINUTES_DAYS, VISITORS_DAYS, WaitingPieces};
use crate::day::DayFigures;

/// Bytes a part may have when it is unpacked.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// A part of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayPart {
    Total = 0,
    Hours = 1,
    Minutes = 2,
    Lists = 3,
    Visitors = 4,
    Trails = 5,
}

impl DayPart {
    pub(super) const ALL: [DayPart; 6] = [
        DayPart::Total,
        DayPart::Hours,
        DayPart::Minutes,
        DayPart::Lists,
        DayPart::Visitors,
        DayPart::Trails,
    ];

    /// For how many days it is kept.
    pub(super) fn days(self) -> i32 {
        match self {
            DayPart::Total | DayPart::Lists => i32::MAX,
            DayPart::Hours => HOURS_DAYS,
            DayPart::Minutes | DayPart::Trails => MINUTES_DAYS,
            DayPart::Visitors => VISITORS_DAYS,
        }
    }

    /// What is stored of a day.
    pub(super) fn content(self, figures: &DayFigures) -> Vec<u8> {
        match self {
            DayPart::Total => plain(&(&figures.total, figures.visitor_count())),
            DayPart::Hours => packed(&figures.hours),
            DayPart::Minutes => packed(&figures.minutes),
            DayPart::Lists => packed(&figures.lists),
            DayPart::Visitors => {
                let mut before = 0;
                let differences = figures.visitors.iter().map(|visitor| {
                    let difference = visitor - before;
                    before = *visitor;
                    difference
                });
                plain(&differences.collect::<Vec<u64>>())
            }
            DayPart::Trails => packed(&figures.trails),
        }
    }

    /// Puts what was stored into a day; none where it cannot be understood.
    pub(super) fn take(self, content: &[u8], figures: &mut DayFigures) -> Option<()> {
        match self {
            DayPart::Total => {
                (figures.total, figures.visitors_forgotten) = postcard::from_bytes(content).ok()?;
            }
            DayPart::Hours => figures.hours = unpacked(content)?,
            DayPart::Minutes => figures.minutes = unpacked(content)?,
            DayPart::Lists => figures.lists = unpacked(content)?,
            DayPart::Visitors => {
                let differences: Vec<u64> = postcard::from_bytes(content).ok()?;
                let mut visitor = 0_u64;
                figures.visitors.extend(differences.into_iter().map(|it| {
                    visitor = visitor.wrapping_add(it);
                    visitor
                }));
            }
            DayPart::Trails => figures.trails = unpacked(content)?,
        }
        Some(())
    }
}

/// What of ours is written always can be: there is no length and no map that is not known.
fn plain(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

/// A value as bytes that take little room.
pub(super) fn packed(value: &impl Serialize) -> Vec<u8> {
    // Better packing takes four times as long for a tenth less.
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(&plain(value));
    // Memory takes whatever is written to it.
    written.and_then(|()| encoder.finish()).unwrap_or_default()
}

fn unpacked<T: DeserializeOwned>(content: &[u8]) -> Option<T> {
    postcard::from_bytes(&inflated(content)?).ok()
}

/// What was packed, as bytes; none where that cannot be understood.
fn inflated(content: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut decoder = ZlibDecoder::new(content).take(UNPACKED_BYTES_MAX);
    decoder.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Makes one day of its parts and all pieces of it.
pub(super) fn take_up(
    transaction: &Transaction<'_>,
    site: i64,
    day: i32,
) -> rusqlite::Result<WaitingPieces> {
    let figures = read_day(transaction, site, day)?;
    let mut settled_bytes = 0;
    for part in DayPart::ALL {
        let content = part.content(&figures);
        settled_bytes += content.len() as u64;
        let sql = "INSERT OR REPLACE INTO parts (site, day, part, content) VALUES (?1, ?2, ?3, ?4)";
        transaction.execute(sql, params![site, day, part as i64, content])?;
    }
    let sql = "DELETE FROM pieces WHERE site = ?1 AND day = ?2";
    transaction.execute(sql, params![site, day])?;
    Ok(WaitingPieces {
        settled_bytes,
        ..WaitingPieces::default()
    })
}

/// A day, with the pieces of it that were not taken up.
pub(super) fn read_day(
    connection: &Connection,
    site: i64,
    day: i32,
) -> rusqlite::Result<DayFigures> {
    let mut figures = DayFigures::default();
    let sql = "SELECT part, content FROM parts WHERE site = ?1 AND day = ?2";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params![site, day])?;
    while let Some(row) = rows.next()? {
        let (part, content): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        if let Some(part) = DayPart::ALL.into_iter().find(|it| *it as i64 == part) {
            part.take(&content, &mut figures)
                .ok_or_else(not_understood)?;
        }
    }
    let sql = "SELECT content FROM pieces WHERE site = ?1 AND day = ?2 ORDER BY id";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params![site, day])?;
    while let Some(row) = rows.next()? {
        let content: Vec<u8> = row.get(0)?;
        let content = inflated(&content).ok_or_else(not_understood)?;
        let piece = postcard::from_bytes(&content).map_err(|_| not_understood())?;
        figures.absorb(piece);
    }
    figures.trim();
    Ok(figures)
}

fn not_understood() -> rusqlite::Error {
    let why = "a row that cannot be understood";
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::day::{ListOf, Tally};
    use crate::piece::Piece;

    #[test]
    fn a_day_is_read_as_it_was_stored() {
        let mut piece = Piece::default();
        piece.minute(61).requests = 7;
        piece.minute(61).durations.add(1_500, 7);
        piece.add(ListOf::Pages, 1, &Tally::times(3), || "/".into());
        for visitor in [5, 900, (1 << 48) - 1] {
            piece.step(visitor, 3_660, &"/".into());
        }
        let mut day = DayFigures::default();
        day.absorb(piece.stored());
        let mut read = DayFigures::default();
        for part in DayPart::ALL {
            part.take(&part.content(&day), &mut read)
                .expect("it was stored");
        }
        day.visitors_forgotten = 3;
        assert_eq!(read, day);
    }

    #[test]
    fn what_is_broken_is_told() {
        for part in DayPart::ALL {
            let taken = part.take(&[0xff; 7], &mut DayFigures::default());
            assert_eq!(taken, None, "{part:?}");
        }
    }
}
