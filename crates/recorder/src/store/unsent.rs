//! Which minutes and incidents others are still to be told of, where they are sent elsewhere.
//!
//! The idea: whatever changes a minute marks it, in the same transaction; who sends reads what it comes to then, and
//! takes the mark away unless the minute has changed meanwhile. So the figures are their own queue, a minute that
//! comes late is sent again as a whole, and no crash loses or doubles one. Without `send` there is no such table.

use std::collections::{BTreeMap, BTreeSet};

use ipc::archive::{ArchiveRows, ArchivedIncident, ArchivedSample, ArchivedSite};
use ipc::limit_figures::LimitCount;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::parts::read_day;
use super::samples::sums_of;
use super::{FigureStore, MINUTES_DAYS, StoreError, Tier};
use crate::day::{DayFigures, Figures, MINUTES_OF_DAY, PartsWanted};
use crate::history::Sums;
use crate::salts::civil;

/// Marks that are kept; of more the oldest go.
pub(crate) const MARKS_MAX: i64 = 1_000_000;
/// Marks that are taken together, and rows with which no more are.
const TAKEN_MAX: usize = 500;
const ROWS_ENOUGH: usize = 8_192;
const DAY_S: i64 = 86_400;
/// For how long minutes are sent: a day less than they are kept, so that they are there as a whole, by whatever clock.
const SENT_S: i64 = (MINUTES_DAYS as i64 - 1) * DAY_S;
/// What marks are about: all figures of a minute, a site's minute of its own day, and an incident.
const SAMPLES: i64 = 0;
const SITE: i64 = 1;
const INCIDENT: i64 = 2;
const TABLE: &str = "CREATE TABLE IF NOT EXISTS unsent (at INTEGER NOT NULL, kind INTEGER NOT NULL, \
    owner INTEGER NOT NULL, turn INTEGER NOT NULL, PRIMARY KEY (at, kind, owner)) WITHOUT ROWID";

/// Whether marks are kept in this database; another process may have that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    Kept,
    Without,
}

/// A mark, as it was when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsentMark {
    at: i64,
    kind: i64,
    owner: i64,
    turn: i64,
}

/// The time up to which minutes are over: in all the world, and by the clocks of a site's days.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverUntil {
    pub(crate) utc_s: i64,
    pub(crate) local_s: i64,
}

/// How much waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) waiting: u64,
    /// Of the oldest minute of figures.
    pub(crate) oldest_s: Option<i64>,
}

impl Marks {
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Marks> {
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'unsent')";
        let is_there = connection.query_row(sql, [], |row| row.get(0))?;
        Ok(if is_there {
            Marks::Kept
        } else {
            Marks::Without
        })
    }

    /// Marks minutes of figures.
    pub(super) fn samples(
        self,
        transaction: &Transaction<'_>,
        at: impl Iterator<Item = i64>,
    ) -> rusqlite::Result<()> {
        let minutes: BTreeSet<_> = at.map(|at| Tier::Minute.begin(at)).collect();
        let mut minutes = minutes.into_iter();
        minutes.try_for_each(|at| self.mark(transaction, (at, SAMPLES, 0)))
    }

    /// Marks minutes of a site's day.
    pub(super) fn site(
        self,
        transaction: &Transaction<'_>,
        (site, day): (i64, i32),
        mut minutes: impl Iterator<Item = u16>,
    ) -> rusqlite::Result<()> {
        minutes.try_for_each(|minute| {
            let at = i64::from(day) * DAY_S + i64::from(minute) * 60;
            self.mark(transaction, (at, SITE, site))
        })
    }

    /// Marks an incident.
    pub(super) fn incident(self, transaction: &Transaction<'_>, id: i64) -> rusqlite::Result<()> {
        if self == Marks::Without {
            return Ok(());
        }
        let sql = "SELECT at FROM incidents WHERE id = ?1";
        let at = transaction.query_row(sql, [id], |row| row.get(0))?;
        self.mark(transaction, (at, INCIDENT, id))
    }

    fn mark(
        self,
        transaction: &Transaction<'_>,
        (at, kind, owner): (i64, i64, i64),
    ) -> rusqlite::Result<()> {
        if self == Marks::Without {
            return Ok(());
        }
        let sql = "INSERT INTO unsent (at, kind, owner, turn) SELECT ?1, ?2, ?3, 0 \
            WHERE ?2 = ?4 OR ?1 >= unixepoch() - ?5 ON CONFLICT DO UPDATE SET turn = turn + 1";
        let mut mark = transaction.prepare(sql)?;
        let of = params![at, kind, owner, INCIDENT, SENT_S];
        mark.execute(of).map(drop)
    }

    /// Forgets the oldest marks where there are more than so many; how many that were.
    fn bound(self, transaction: &Transaction<'_>, most: i64) -> rusqlite::Result<usize> {
        if self == Marks::Without {
            return Ok(0);
        }
        let sql = "DELETE FROM unsent WHERE (at, kind, owner) IN (SELECT at, kind, owner FROM unsent \
            ORDER BY at LIMIT max(0, (SELECT count(*) FROM unsent) - ?1))";
        transaction.execute(sql, [most])
    }
}

impl FigureStore {
    /// Marks from now on what is to be sent.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub(crate) fn mark_unsent(&mut self) -> Result<(), StoreError> {
        self.change(|transaction| transaction.execute(TABLE, []))?;
        self.marks = Marks::Kept;
        Ok(())
    }

    /// Marks in a new file what was marked in the one before.
    pub(super) fn mark_again(&mut self, marks: Marks) -> Result<(), StoreError> {
        match marks {
            Marks::Kept => self.mark_unsent(),
            Marks::Without => Ok(()),
        }
    }

    /// Whether minutes are sent elsewhere: what was sent is not in here.
    pub fn is_sent_elsewhere(&self) -> bool {
        matches!(Marks::of(&self.connection), Ok(Marks::Kept))
    }

    /// Marks nothing any more, and forgets what was marked.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub(crate) fn forget_unsent(&mut self) -> Result<(), StoreError> {
        self.marks = Marks::Without;
        if self.is_sent_elsewhere() {
            self.change(|transaction| transaction.execute("DROP TABLE IF EXISTS unsent", []))?;
        }
        Ok(())
    }

    /// How much waits.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub(crate) fn unsent(&self) -> Result<Unsent, StoreError> {
        let sql = "SELECT count(*), min(at) FILTER (WHERE kind = ?1) FROM unsent";
        let read = self.connection.query_row(sql, [SAMPLES], |row| {
            let waiting: i64 = row.get(0)?;
            Ok(Unsent {
                waiting: waiting.unsigned_abs(),
                oldest_s: row.get(1)?,
            })
        });
        read.map_err(self.failed("read"))
    }

    /// Forgets marks of minutes that are sent no longer, and the oldest where there are more than so many; how many
    /// that were.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub(crate) fn thin_unsent(&mut self, now_s: i64, most: i64) -> Result<u64, StoreError> {
        let oldest_s = now_s - SENT_S;
        self.change(|transaction| {
            let sql = "DELETE FROM unsent WHERE at < ?1 AND kind != ?2";
            let old = transaction.execute(sql, params![oldest_s, INCIDENT])?;
            let surplus = Marks::of(transaction)?.bound(transaction, most)?;
            Ok((old + surplus) as u64)
        })
    }

    /// Forgets the oldest marks where there is no room for them.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub(crate) fn bound_unsent(&mut self) -> Result<(), StoreError> {
        self.change(bound)
    }

    /// The oldest marks of what is over, and the rows that they mean.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub(crate) fn take_unsent(
        &self,
        over: OverUntil,
        zone: &TimeZone,
    ) -> Result<(Vec<UnsentMark>, ArchiveRows), StoreError> {
        let sql = "SELECT at, kind, owner, turn FROM unsent \
            WHERE at <= CASE kind WHEN ?1 THEN ?2 ELSE ?3 END AND (kind = ?4 OR at >= ?5) ORDER BY at LIMIT ?6";
        let oldest_s = over.utc_s - SENT_S;
        let most = TAKEN_MAX as i64;
        let of = params![SITE, over.local_s, over.utc_s, INCIDENT, oldest_s, most];
        let mut marks = self.rows(sql, of, |row| {
            Ok(UnsentMark {
                at: row.get(0)?,
                kind: row.get(1)?,
                owner: row.get(2)?,
                turn: row.get(3)?,
            })
        })?;
        let mut rows = ArchiveRows::default();
        let read = (|| {
            let mut taken = 0;
            for mark in &marks {
                if rows.len() >= ROWS_ENOUGH {
                    break;
                }
                taken += 1;
                match mark.kind {
                    SAMPLES => samples(&self.connection, mark.at, &mut rows)?,
                    INCIDENT => incident(&self.connection, mark.owner, &mut rows)?,
                    _ => {}
                }
            }
            marks.truncate(taken);
            // A day is read once, whatever of it is marked, and one at a time is held.
            let mut days: BTreeMap<(i64, i64), Vec<i64>> = BTreeMap::new();
            for mark in marks.iter().filter(|it| it.kind == SITE) {
                let day = mark.at.div_euclid(DAY_S);
                days.entry((mark.owner, day)).or_default().push(mark.at);
            }
            for ((site, day), minutes) in days {
                let day = i32::try_from(day).unwrap_or(i32::MAX);
                site_minutes(&self.connection, (site, day), &minutes, zone, &mut rows)?;
            }
            Ok(())
        })();
        read.map_err(self.failed("read"))?;
        Ok((marks, rows))
    }

    /// Takes marks away that mean what was sent: not those of what has changed since they were taken.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub(crate) fn was_sent(&mut self, marks: &[UnsentMark]) -> Result<(), StoreError> {
        self.change(|transaction| {
            let sql = "DELETE FROM unsent WHERE at = ?1 AND kind = ?2 AND owner = ?3 AND turn = ?4";
            let mut delete = transaction.prepare(sql)?;
            for it in marks {
                delete.execute(params![it.at, it.kind, it.owner, it.turn])?;
            }
            Ok(())
        })
    }
}

/// Forgets the oldest marks where there is no room for them, and says so.
pub(super) fn bound(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let lost = Marks::of(transaction)?.bound(transaction, MARKS_MAX)?;
    if lost > 0 {
        tracing::warn!(lost, "too much waits to be sent: the oldest is lost");
    }
    Ok(())
}

/// All figures of a minute but those of limits' keys, which clients may choose.
fn samples(connection: &Connection, at_s: i64, rows: &mut ArchiveRows) -> rusqlite::Result<()> {
    let sql = "SELECT name, count, sum, low, high FROM samples JOIN series ON id = series \
        WHERE tier = ?1 AND at = ?2";
    let mut statement = connection.prepare(sql)?;
    let read = statement.query_map(params![Tier::Minute as i64, at_s], |row| {
        Ok((row.get::<_, String>(0)?, sums_of(row)?))
    })?;
    for row in read {
        let (name, sums) = row?;
        let of_limit = LimitCount::of_name(&name);
        if matches!(of_limit, Some((_, LimitCount::Key(_)))) {
            continue;
        }
        let Sums {
            count,
            sum,
            low,
            high,
        } = sums;
        rows.samples.push(ArchivedSample {
            name,
            at_s,
            sums: [count, sum, low, high],
        });
    }
    Ok(())
}

/// Minutes of a site's day; none of one that was forgotten.
fn site_minutes(
    connection: &Connection,
    (site, day): (i64, i32),
    minutes: &[i64],
    zone: &TimeZone,
    rows: &mut ArchiveRows,
) -> rusqlite::Result<()> {
    let sql = "SELECT name FROM sites WHERE id = ?1";
    let name = connection.query_row(sql, [site], |row| row.get(0));
    let Some(name): Option<String> = name.optional()? else {
        return Ok(());
    };
    let mut figures = DayFigures::default();
    read_day(connection, (site, day), PartsWanted::MINUTES, &mut figures)?;
    for local_s in minutes {
        let minute = local_s.rem_euclid(DAY_S) / 60;
        let minute = u16::try_from(minute).unwrap_or(MINUTES_OF_DAY);
        let found = figures.minutes.get(&minute);
        let at_s = begin_s(day, minute, zone);
        if let Some((found, at_s)) = found.zip(at_s) {
            rows.sites.push(archived(&name, at_s, found));
        }
    }
    Ok(())
}

/// When a minute of a day begins; of one that comes twice, the first.
fn begin_s(day: i32, minute: u16, zone: &TimeZone) -> Option<i64> {
    let (hour, minute) = (i8::try_from(minute / 60).ok()?, (minute % 60) as i8);
    let at = civil(day).to_datetime(Time::new(hour, minute, 0, 0).ok()?);
    Some(at.to_zoned(zone.clone()).ok()?.timestamp().as_second())
}

/// A site's minute as it is sent.
fn archived(site: &str, at_s: i64, it: &Figures) -> ArchivedSite {
    let [one, two, three, four, five] = it.statuses;
    let counts = [
        it.requests,
        it.bots,
        it.views,
        it.visits,
        0,
        it.visit_s,
        it.bytes,
        one,
        two,
        three,
        four,
        five,
        it.queue_us,
        it.upstream_us,
        it.handshakes,
    ];
    let mut numbers = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    numbers[4] = it.bounces;
    ArchivedSite {
        site: site.to_owned(),
        at_s,
        numbers,
        // There is no length and no map that is not known.
        durations: postcard::to_stdvec(&it.durations).unwrap_or_default(),
    }
}

/// An incident, with all of the same second and cause.
fn incident(connection: &Connection, id: i64, rows: &mut ArchiveRows) -> rusqlite::Result<()> {
    let sql = "SELECT at, kind, what, sum(times), content, max(id) FROM incidents WHERE (at, kind, what) = \
        (SELECT at, kind, what FROM incidents WHERE id = ?1) GROUP BY at, kind, what";
    let read = connection.query_row(sql, [id], |row| {
        let read = ArchivedIncident {
            at_s: row.get(0)?,
            kind: row.get(1)?,
            what: row.get(2)?,
            times: row.get(3)?,
            content: row.get(4)?,
            owners: Vec::new(),
        };
        Ok((read, row.get::<_, i64>(5)?))
    });
    let Some((mut read, last)) = read.optional()? else {
        return Ok(());
    };
    let mut owners = connection.prepare("SELECT owner FROM concerned WHERE incident = ?1")?;
    let owners = owners.query_map([last], |row| row.get(0))?;
    read.owners = owners.collect::<rusqlite::Result<_>>()?;
    let is_same =
        |it: &ArchivedIncident| (it.at_s, it.kind, &it.what) == (read.at_s, read.kind, &read.what);
    if !rows.incidents.iter().any(is_same) {
        rows.incidents.push(read);
    }
    Ok(())
}
