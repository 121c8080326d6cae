//! Days as they are read: of one site all that is wanted of them, or of many their totals.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, ToSql, params};

use super::parts::{read_day, read_total};
use super::{FigureStore, StoreError};
use crate::day::{DayFigures, Figures, Lists, PartsWanted};

/// Sites that are asked for one by one.
const SITES_ASKED_MAX: usize = 256;

impl FigureStore {
    /// Whether there is anything of a site.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn has_site(&self, site: &str) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM sites WHERE name = ?1)";
        let found = self.connection.query_row(sql, [site], |row| row.get(0));
        found.map_err(self.failed("read"))
    }

    /// Tells of each day of a site that has figures, from `from` to `to`, in order: what is wanted of it.
    /// Lists that are left in it are added up with those of the day that follows, and given back.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn each_day(
        &self,
        site: &str,
        (from, to): (i32, i32),
        wanted: PartsWanted,
        mut tell: impl FnMut(i32, &mut DayFigures),
    ) -> Result<Lists, StoreError> {
        let told = (|| {
            let sql = "SELECT id FROM sites WHERE name = ?1";
            let found = self.connection.query_row(sql, [site], |row| row.get(0));
            let Some(site): Option<i64> = found.optional()? else {
                return Ok(Lists::default());
            };
            let sql = "SELECT DISTINCT day FROM parts WHERE site = ?1 AND day BETWEEN ?2 AND ?3 \
                UNION SELECT DISTINCT day FROM pieces WHERE site = ?1 AND day BETWEEN ?2 AND ?3 ORDER BY 1";
            let mut statement = self.connection.prepare(sql)?;
            let days = statement.query_map(params![site, from, to], |row| row.get(0))?;
            let mut figures = DayFigures::default();
            for day in days {
                let day = day?;
                let lists = std::mem::take(&mut figures.lists);
                figures = DayFigures {
                    lists,
                    ..DayFigures::default()
                };
                read_day(&self.connection, (site, day), wanted, &mut figures)?;
                figures.bound();
                tell(day, &mut figures);
            }
            Ok(figures.lists)
        })();
        told.map_err(self.failed("read"))
    }

    /// Tells the totals of each day, from `from` to `to`, of these sites, and how many visitors each had, in
    /// no order. Few sites cost what there is of them, many what there is of all.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn each_total(
        &self,
        (from, to): (i32, i32),
        sites: &BTreeSet<String>,
        mut tell: impl FnMut(&str, i32, &Figures, u64),
    ) -> Result<(), StoreError> {
        let told = (|| {
            if sites.len() > SITES_ASKED_MAX {
                return self.totals((from, to), None, |site| sites.contains(site), &mut tell);
            }
            for site in sites {
                self.totals((from, to), Some(site), |_| true, &mut tell)?;
            }
            Ok(())
        })();
        told.map_err(self.failed("read"))
    }

    /// The totals of one site, or of those of all that are wanted.
    fn totals(
        &self,
        (from, to): (i32, i32),
        of: Option<&str>,
        is_wanted: impl Fn(&str) -> bool,
        tell: &mut impl FnMut(&str, i32, &Figures, u64),
    ) -> rusqlite::Result<()> {
        // A site's days are found by the site, not by their part.
        let (of_part, of_site) = match of {
            None => ("part = 0", ""),
            Some(_) => (
                "+part = 0",
                "AND site = (SELECT id FROM sites WHERE name = ?3)",
            ),
        };
        let given: &[&dyn ToSql] = match &of {
            None => &[&from, &to],
            Some(site) => &[&from, &to, site],
        };
        let sql = format!(
            "SELECT name, day, content FROM parts JOIN sites ON id = site \
                WHERE {of_part} AND day BETWEEN ?1 AND ?2 {of_site} AND NOT EXISTS \
                (SELECT 1 FROM pieces WHERE pieces.site = parts.site AND pieces.day = parts.day)"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query(given)?;
        while let Some(row) = rows.next()? {
            let name = row.get_ref(0)?.as_str()?;
            if is_wanted(name) {
                let (total, visitors) = read_total(row.get_ref(2)?.as_blob()?)?;
                tell(name, row.get(1)?, &total, visitors);
            }
        }
        // Days with pieces that were not taken up.
        let sql = format!(
            "SELECT DISTINCT name, site, day FROM pieces JOIN sites ON sites.id = site \
                WHERE day BETWEEN ?1 AND ?2 {of_site}"
        );
        let mut statement = self.connection.prepare(&sql)?;
        let mut rows = statement.query(given)?;
        while let Some(row) = rows.next()? {
            let (name, day) = (row.get_ref(0)?.as_str()?, row.get(2)?);
            if is_wanted(name) {
                let (mut figures, of) = (DayFigures::default(), (row.get(1)?, day));
                read_day(&self.connection, of, PartsWanted::VISITORS, &mut figures)?;
                tell(name, day, &figures.total, figures.visitor_count());
            }
        }
        Ok(())
    }
}
