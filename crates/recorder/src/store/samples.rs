//! Figures over time in the database: by the minute for two weeks, by the hour for two years, by the
//! day for ever.

use rusqlite::{OptionalExtension, Row, Statement, Transaction, params};

use ipc::console::LimitOwner;
use ipc::limit_figures::{LIMIT_FIGURES, LimitCount};

use super::unsent::Marks;
use super::{FigureStore, HOURS_DAYS, MINUTES_DAYS, StoreError};
use crate::history::{Sample, Sums};

/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Names of figures in the database; those of others are not kept.
const NAMES_MAX: i64 = 200_000;
/// Days for which counts of limits' keys are kept by the hour; by the day they are not: of some limits
/// clients choose the key.
const KEYS_DAYS: i32 = 62;
/// Adds to a minute, an hour or a day.
pub(super) const ADD: &str = "INSERT INTO samples (series, tier, at, count, sum, low, high) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET count = count + excluded.count, \
    sum = sum + excluded.sum, low = min(low, excluded.low), high = max(high, excluded.high)";

/// How finely figures are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// For two weeks.
    Minute = 0,
    /// For two years.
    Hour = 1,
    /// For ever; days of UTC.
    Day = 2,
}

impl Tier {
    const ALL: [Tier; 3] = [Tier::Minute, Tier::Hour, Tier::Day];

    /// Its length in seconds.
    pub fn seconds(self) -> i64 {
        match self {
            Tier::Minute => 60,
            Tier::Hour => 3_600,
            Tier::Day => DAY_S,
        }
    }

    /// When the one began that a second is in.
    pub fn begin(self, at_s: i64) -> i64 {
        at_s - at_s.rem_euclid(self.seconds())
    }

    fn days_kept(self) -> Option<i32> {
        match self {
            Tier::Minute => Some(MINUTES_DAYS),
            Tier::Hour => Some(HOURS_DAYS),
            Tier::Day => None,
        }
    }
}

impl FigureStore {
    /// Writes minutes, and adds them to their hours and days, all or nothing.
    ///
    /// # Errors
    /// Where they could not be written: none was, then.
    pub fn write_samples(&mut self, samples: &[Sample]) -> Result<(), StoreError> {
        self.change(|transaction| {
            let marks = Marks::of(transaction)?;
            marks.samples(transaction, samples.iter().map(|it| it.at_s))?;
            let mut find = transaction.prepare("SELECT id FROM series WHERE name = ?1")?;
            let mut add = transaction.prepare(ADD)?;
            for sample in samples {
                let Some(series) = series_id(transaction, &mut find, &sample.name)? else {
                    continue;
                };
                let of_limit = LimitCount::of_name(&sample.name);
                let is_key = matches!(of_limit, Some((_, LimitCount::Key(_))));
                let tiers = Tier::ALL.into_iter();
                for tier in tiers.filter(|tier| !is_key || *tier != Tier::Day) {
                    let Sums {
                        count,
                        sum,
                        low,
                        high,
                    } = sample.sums;
                    let at = tier.begin(sample.at_s);
                    add.execute(params![series, tier as i64, at, count, sum, low, high])?;
                }
            }
            Ok(())
        })
    }

    /// A figure from `from_s` to before `to_s`, in order; empty where it was never seen.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn samples(
        &self,
        name: &str,
        tier: Tier,
        from_s: i64,
        to_s: i64,
    ) -> Result<Vec<(i64, Sums)>, StoreError> {
        let sql = "SELECT at, count, sum, low, high FROM samples \
            WHERE series = (SELECT id FROM series WHERE name = ?1) AND tier = ?2 \
            AND at >= ?3 AND at < ?4 ORDER BY at";
        let of = params![name, tier as i64, from_s, to_s];
        self.rows(sql, of, |row| Ok((row.get(0)?, sums_of(row)?)))
    }

    /// What figures that begin so came to from `from_s` to before `to_s`, at most so many, in the order of
    /// their names.
    pub(crate) fn sums(
        &self,
        begin: &str,
        tier: Tier,
        (from_s, to_s): (i64, i64),
        most: usize,
    ) -> Result<Vec<(String, Sums)>, StoreError> {
        let sql = "SELECT name, sum(count), sum(sum), min(low), max(high) \
            FROM series JOIN samples ON series = id \
            WHERE substr(name, 1, length(?1)) = ?1 AND tier = ?2 AND at >= ?3 AND at < ?4 \
            GROUP BY name ORDER BY name LIMIT ?5";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let of = params![begin, tier as i64, from_s, to_s, most];
        self.rows(sql, of, |row| Ok((row.get(0)?, sums_of(row)?)))
    }

    /// Names of figures that are wanted, in order, at most so many.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn series(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let read: rusqlite::Result<_> = (|| {
            let mut statement = self
                .connection
                .prepare("SELECT name FROM series ORDER BY name")?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            let wanted = rows.filter(|it| it.as_ref().map_or(true, |name| is_wanted(name)));
            wanted.take(most).collect()
        })();
        read.map_err(self.failed("read"))
    }

    /// What figures that begin and end so were on average in these hours, added up, the most first.
    pub(crate) fn of_hours(
        &self,
        (begin, end): (&str, &str),
        hours: &[i64],
    ) -> Result<Vec<(String, f64)>, StoreError> {
        let sql = "SELECT name, sum(sum / count) FROM series JOIN samples ON series = id \
            WHERE substr(name, 1, length(?1)) = ?1 AND substr(name, -length(?2)) = ?2 \
            AND tier = ?3 AND at IN (SELECT value FROM json_each(?4)) \
            GROUP BY name ORDER BY 2 DESC, name";
        // Numbers in brackets are JSON.
        let of = params![begin, end, Tier::Hour as i64, format!("{hours:?}")];
        self.rows(sql, of, |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

pub(super) fn series_id(
    transaction: &Transaction<'_>,
    find: &mut Statement<'_>,
    name: &str,
) -> rusqlite::Result<Option<i64>> {
    let known = find.query_row([name], |row| row.get(0)).optional()?;
    if known.is_some() {
        return Ok(known);
    }
    let sql = "INSERT INTO series (name) SELECT ?1 WHERE (SELECT count(*) FROM series) < ?2";
    let made = transaction.execute(sql, params![name, NAMES_MAX])?;
    Ok((made == 1).then(|| transaction.last_insert_rowid()))
}

/// Deletes what was followed of a site: its figures, and those of limits that are its.
pub(super) fn forget_series(transaction: &Transaction<'_>, site: &str) -> rusqlite::Result<()> {
    let mut all = transaction.prepare("SELECT id, name FROM series")?;
    let all = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let all = all.collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    for (id, _) in all.iter().filter(|(_, name)| is_of_site(name, site)) {
        transaction.execute("DELETE FROM samples WHERE series = ?1", [id])?;
        transaction.execute("DELETE FROM series WHERE id = ?1", [id])?;
    }
    Ok(())
}

fn is_of_site(figure: &str, site: &str) -> bool {
    if let Some((limit, count)) = LimitCount::of_name(figure) {
        let part = count.part_of(limit);
        return match (LimitOwner::of(&part), count) {
            // A name that was shortened may be this one's: it goes with all that begin alike.
            (Some(LimitOwner::Site("")), LimitCount::Key(key)) => {
                let cut = key.split_once('…');
                cut.is_some_and(|(begin, _)| site.starts_with(begin))
            }
            (owner, _) => owner == Some(LimitOwner::Site(site)),
        };
    }
    // Not of a longer name that begins so.
    let what = figure.strip_prefix("site.");
    let what = what.and_then(|of| of.strip_prefix(site)?.strip_prefix('.'));
    what.is_some_and(|what| !what.contains('.'))
}

/// The sums of a row, behind what they are of.
pub(super) fn sums_of(row: &Row<'_>) -> rusqlite::Result<Sums> {
    Ok(Sums {
        count: row.get(1)?,
        sum: row.get(2)?,
        low: row.get(3)?,
        high: row.get(4)?,
    })
}

/// Deletes what is too old to be kept so finely, and names of which nothing is left.
pub(super) fn thin_samples(transaction: &Transaction<'_>, today: i32) -> rusqlite::Result<()> {
    for tier in Tier::ALL {
        let Some(days) = tier.days_kept() else {
            continue;
        };
        let oldest_s = i64::from(today.saturating_sub(days)) * DAY_S;
        let sql = "DELETE FROM samples WHERE tier = ?1 AND at < ?2";
        transaction.execute(sql, params![tier as i64, oldest_s])?;
    }
    let oldest_s = i64::from(today.saturating_sub(KEYS_DAYS)) * DAY_S;
    let sql = "DELETE FROM samples WHERE tier = ?1 AND at < ?2 AND series IN \
        (SELECT id FROM series WHERE name LIKE ?3)";
    let keys = format!("{LIMIT_FIGURES}%\tkey\t%");
    transaction.execute(sql, params![Tier::Hour as i64, oldest_s, keys])?;
    let sql = "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM samples WHERE series = id)";
    transaction.execute(sql, [])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    fn sample(name: &str, at_s: i64, value: f64) -> Sample {
        Sample {
            name: name.into(),
            at_s,
            sums: Sums::of(value),
        }
    }

    #[test]
    fn minutes_become_hours_and_days_that_stay_when_minutes_go() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let minutes = [(0, 1.0), (60, 5.0), (3_600, 2.0), (DAY_S, 7.0)];
        let samples = minutes.map(|(at_s, value)| sample("load1", at_s, value));
        store.write_samples(&samples).expect("written");
        let read = |store: &FigureStore, tier| {
            let samples = store.samples("load1", tier, 0, i64::MAX).expect("read");
            let told = samples
                .iter()
                .map(|(at_s, sums)| (*at_s, sums.count, sums.high));
            told.collect::<Vec<_>>()
        };
        let days = [(0, 3.0, 5.0), (DAY_S, 1.0, 7.0)];
        assert_eq!(read(&store, Tier::Minute).len(), 4);
        assert_eq!(read(&store, Tier::Hour)[0], (0, 2.0, 5.0));
        assert_eq!(read(&store, Tier::Day), days);
        // The day of a write thins out what is old by then.
        let none = std::iter::empty();
        store.write(none, None, MINUTES_DAYS + 1).expect("written");
        assert_eq!(read(&store, Tier::Minute), [(DAY_S, 1.0, 7.0)]);
        assert_eq!(read(&store, Tier::Hour).len(), 3);
        assert_eq!(read(&store, Tier::Day), days);
    }

    #[test]
    fn what_stands_for_a_part_or_for_more_is_kept_as_exactly() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        for (at_s, looks) in [(0, 1.0), (60, 2.25), (120, 0.75)] {
            let sums = Sums::over(8.0, looks);
            let sample = Sample {
                sums,
                ..sample("tenant.a.killed", at_s, 0.0)
            };
            store.write_samples(&[sample]).expect("written");
        }
        let hours = store.samples("tenant.a.killed", Tier::Hour, 0, 3_600);
        let [(_, sums)] = &hours.expect("read")[..] else {
            panic!("there is one hour");
        };
        assert_eq!((sums.count, sums.sum, sums.mean()), (4.0, 32.0, 8.0));
    }

    #[test]
    fn counts_of_keys_go_after_two_months_and_those_of_limits_stay() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let names = [LimitCount::Key("/a"), LimitCount::Refused("rate")];
        let names = names.map(|it| it.name("site a/paths"));
        let samples = names
            .iter()
            .flat_map(|name| [sample(name, 60, 2.0), sample(name, 3_700, 3.0)]);
        store
            .write_samples(&samples.collect::<Vec<_>>())
            .expect("written");
        let read = |store: &FigureStore, tier| {
            let read = store.sums(LIMIT_FIGURES, tier, (0, i64::MAX), 10);
            let read = read.expect("read").into_iter();
            read.map(|(name, sums)| (name, sums.sum))
                .collect::<Vec<_>>()
        };
        let [key, reason] = names.map(|name| (name, 5.0));
        assert_eq!(read(&store, Tier::Hour), [key.clone(), reason.clone()]);
        assert_eq!(read(&store, Tier::Day), std::slice::from_ref(&reason));
        for (day, hours) in [(KEYS_DAYS, 2), (KEYS_DAYS + 1, 1)] {
            store.write(std::iter::empty(), None, day).expect("written");
            assert_eq!(read(&store, Tier::Hour).len(), hours);
        }
        assert_eq!(store.series(|_| true, 10).expect("read"), [reason.0]);
    }

    #[test]
    fn figures_are_found_by_how_their_names_begin() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let names = ["tenant.a.cpu", "tenant.b.cpu", "tenant%", "load1"];
        store
            .write_samples(&names.map(|name| sample(name, 0, 1.0)))
            .expect("written");
        let found = store
            .series(|name| name.starts_with("tenant."), 10)
            .expect("read");
        assert_eq!(found, ["tenant.a.cpu", "tenant.b.cpu"]);
        assert_eq!(store.series(|_| true, 2).expect("read").len(), 2);
    }
}
