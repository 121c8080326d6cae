//! A day in parts, as they lie in the database: each is kept for its own time.
//!
//! The idea: lists and minutes are mostly text and zeros, so they are packed; visitors lie as
//! differences of sorted hashes, which leaves of each what the number of them does not say.

use std::cell::RefCell;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::{Connection, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::columns::{StoredNames, StoredPeriods};
use super::{HOURS_DAYS, MINUTES_DAYS, VISITORS_DAYS, WaitingPieces};
use crate::day::{DayFigures, Figures, ListOf, NAMES_MAX, NAMES_TODAY_MAX, PartsWanted};

/// Bytes a part may have when it is unpacked.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// A part of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayPart {
    Total,
    Hours,
    Minutes,
    Visitors,
    Trails,
    List(ListOf),
}

impl DayPart {
    /// All, lists last.
    pub(super) fn all() -> impl Iterator<Item = DayPart> {
        let others = [
            DayPart::Total,
            DayPart::Hours,
            DayPart::Minutes,
            DayPart::Visitors,
            DayPart::Trails,
        ];
        others.into_iter().chain(ListOf::ALL.map(DayPart::List))
    }

    /// What the database calls it.
    pub(super) fn number(self) -> i64 {
        match self {
            DayPart::Total => 0,
            DayPart::Hours => 1,
            DayPart::Minutes => 2,
            DayPart::Visitors => 4,
            DayPart::Trails => 5,
            DayPart::List(of) => 16 + of as i64,
        }
    }

    /// What wants it.
    fn wanted_as(self) -> PartsWanted {
        match self {
            DayPart::Total => PartsWanted::TOTALS,
            DayPart::Hours => PartsWanted::HOURS,
            DayPart::Minutes => PartsWanted::MINUTES,
            DayPart::Visitors => PartsWanted::VISITORS,
            DayPart::Trails => PartsWanted::TRAILS,
            DayPart::List(of) => PartsWanted::list(of),
        }
    }

    /// For how many days it is kept.
    pub(super) fn days(self) -> i32 {
        match self {
            DayPart::Total | DayPart::List(_) => i32::MAX,
            DayPart::Hours => HOURS_DAYS,
            DayPart::Minutes | DayPart::Trails => MINUTES_DAYS,
            DayPart::Visitors => VISITORS_DAYS,
        }
    }

    /// What is stored of a day.
    pub(super) fn content(self, figures: &DayFigures, packing: Packing) -> Vec<u8> {
        match self {
            DayPart::Total => plain(&(&figures.total, figures.visitor_count())),
            DayPart::Hours => packed(&StoredPeriods::of(&figures.hours), packing),
            DayPart::Minutes => packed(&StoredPeriods::of(&figures.minutes), packing),
            DayPart::List(of) => StoredNames::packed(figures.list(of), |it| packed(it, packing)),
            DayPart::Visitors => {
                let mut before = 0;
                let differences = figures.visitors.iter().map(|visitor| {
                    let difference = visitor - before;
                    before = *visitor;
                    difference
                });
                plain(&differences.collect::<Vec<u64>>())
            }
            DayPart::Trails => packed(&figures.trails, packing),
        }
    }

    /// Puts what was stored into a day, and adds lists to those that it has; none where it cannot be
    /// understood.
    pub(super) fn take(self, content: &[u8], figures: &mut DayFigures) -> Option<()> {
        match self {
            DayPart::Total => {
                (figures.total, figures.visitors_forgotten) = postcard::from_bytes(content).ok()?;
            }
            DayPart::Hours => figures.hours = unpacked::<StoredPeriods>(content)?.periods()?,
            DayPart::Minutes => figures.minutes = unpacked::<StoredPeriods>(content)?.periods()?,
            DayPart::Visitors => {
                let differences: Vec<u64> = postcard::from_bytes(content).ok()?;
                let mut visitor = 0_u64;
                figures.visitors.extend(differences.into_iter().map(|it| {
                    visitor = visitor.wrapping_add(it);
                    visitor
                }));
            }
            DayPart::Trails => figures.trails = unpacked(content)?,
            DayPart::List(of) => {
                let list = figures.lists.get_mut(of as usize)?;
                let content = inflated(content)?;
                let stored: StoredNames<'_> = postcard::from_bytes(&content).ok()?;
                stored.add_to(list)?;
            }
        }
        Some(())
    }
}

/// What of ours is written always can be: there is no length and no map that is not known.
fn plain(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

/// How much is done for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// Little: it is packed again soon.
    Quick,
    /// Four times as much, for a fifth less: it stays.
    Small,
}

thread_local! {
    /// Kept, since their tables are large: a new one costs more than most values take to be packed.
    static ENCODERS: [RefCell<ZlibEncoder<Vec<u8>>>; 2] =
        [Compression::fast(), Compression::default()]
            .map(|level| RefCell::new(ZlibEncoder::new(Vec::new(), level)));
}

/// A value as bytes that take little room.
pub(super) fn packed(value: &impl Serialize, packing: Packing) -> Vec<u8> {
    ENCODERS.with(|encoders| {
        // There is one for each.
        let mut encoder = encoders[packing as usize].borrow_mut();
        let written = encoder.write_all(&plain(value));
        // Memory takes whatever is written to it.
        written
            .and_then(|()| encoder.reset(Vec::new()))
            .unwrap_or_default()
    })
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
    (site, day): (i64, i32),
    packing: Packing,
) -> rusqlite::Result<WaitingPieces> {
    let mut figures = DayFigures::default();
    read_day(transaction, (site, day), PartsWanted::ALL, &mut figures)?;
    figures.trim(match packing {
        Packing::Quick => NAMES_TODAY_MAX,
        Packing::Small => NAMES_MAX,
    });
    let mut settled_bytes = 0;
    for part in DayPart::all() {
        if matches!(part, DayPart::List(of) if figures.list(of).is_empty()) {
            continue;
        }
        let content = part.content(&figures, packing);
        settled_bytes += content.len() as u64;
        let sql = "INSERT OR REPLACE INTO parts (site, day, part, content) VALUES (?1, ?2, ?3, ?4)";
        transaction.execute(sql, params![site, day, part.number(), content])?;
    }
    let sql = "DELETE FROM pieces WHERE site = ?1 AND day = ?2";
    transaction.execute(sql, params![site, day])?;
    Ok(WaitingPieces {
        settled_bytes,
        ..WaitingPieces::default()
    })
}

/// A day, with the pieces of it that were not taken up: what is wanted of it, its lists added to those
/// that are there.
pub(super) fn read_day(
    connection: &Connection,
    (site, day): (i64, i32),
    wanted: PartsWanted,
    figures: &mut DayFigures,
) -> rusqlite::Result<()> {
    let parts = DayPart::all().filter(|part| wanted.has(part.wanted_as()));
    let numbers = parts.fold(0_i64, |bits, part| bits | 1 << part.number());
    let sql = "SELECT part, content FROM parts \
        WHERE site = ?1 AND day = ?2 AND (?3 >> part) & 1 = 1";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params![site, day, numbers])?;
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        let content = row.get_ref(1)?.as_blob()?;
        let part = DayPart::all().find(|it| it.number() == number);
        let taken = part.and_then(|part| part.take(content, figures));
        taken.ok_or_else(not_understood)?;
    }
    let sql = "SELECT content FROM pieces WHERE site = ?1 AND day = ?2 ORDER BY id";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params![site, day])?;
    while let Some(row) = rows.next()? {
        let content = inflated(row.get_ref(0)?.as_blob()?).ok_or_else(not_understood)?;
        let piece = postcard::from_bytes(&content).map_err(|_| not_understood())?;
        figures.absorb(piece, wanted);
    }
    Ok(())
}

/// The total of a day and how many visitors it had, as they were stored.
pub(super) fn read_total(content: &[u8]) -> rusqlite::Result<(Figures, u64)> {
    postcard::from_bytes(content).map_err(|_| not_understood())
}

fn not_understood() -> rusqlite::Error {
    let why = "a row that cannot be understood";
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, why.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::day::Tally;
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
        day.absorb(piece.stored(), PartsWanted::ALL);
        let mut read = DayFigures::default();
        for part in DayPart::all() {
            part.take(&part.content(&day, Packing::Small), &mut read)
                .expect("it was stored");
        }
        day.visitors_forgotten = 3;
        assert_eq!(read, day);
    }

    proptest! {
        #[test]
        fn lists_and_periods_are_read_as_they_were_stored(
            names in proptest::collection::hash_map("[a-cé日]{0,6}", any::<(u32, u32, u32, u8)>(), 0..40),
            periods in proptest::collection::btree_map(0_u16..1_440,
                (any::<[u32; 5]>(), any::<i8>(), any::<u64>(), any::<[u32; 4]>()), 0..40),
        ) {
            let mut day = DayFigures::default();
            for (name, (count, bytes, us, timed)) in names {
                let tally = Tally {
                    count: count.into(),
                    bytes: bytes.into(),
                    us: us.into(),
                    timed: timed.into(),
                };
                day.lists[0].add(&name, &tally);
            }
            for (minute, (statuses, bounces, bytes, durations)) in periods {
                let mut figures = Figures {
                    requests: bytes >> 3,
                    statuses: statuses.map(u64::from),
                    bounces: bounces.into(),
                    bytes,
                    ..Figures::default()
                };
                durations.iter().for_each(|us| figures.durations.add((*us).into(), bytes));
                day.minutes.insert(minute, figures);
            }
            let mut read = DayFigures::default();
            for part in [DayPart::Minutes, DayPart::List(ListOf::Pages)] {
                let stored = part.content(&day, Packing::Quick);
                prop_assert_eq!(part.take(&stored, &mut read), Some(()));
            }
            prop_assert_eq!(read, day);
        }

        #[test]
        fn what_is_broken_is_told_or_something_else(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), part in 0_usize..26,
        ) {
            let part = DayPart::all().nth(part).expect("a part");
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            let content = encoder.write_all(&bytes).and_then(|()| encoder.finish());
            let _ = part.take(&content.expect("memory"), &mut DayFigures::default());
        }
    }

    #[test]
    fn what_is_broken_is_told() {
        for part in DayPart::all() {
            let taken = part.take(&[0xff; 7], &mut DayFigures::default());
            assert_eq!(taken, None, "{part:?}");
        }
    }
}
