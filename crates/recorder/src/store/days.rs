//! Days as they are read: of one site all that is wanted of them, or of many their totals.

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::{OptionalExtension, ToSql, params};

use super::parts::{read_day, read_total};
use super::{FigureStore, StoreError};
use crate::day::{DayFigures, Figures, Lists, PartsWanted};

/// Sites that are asked for one by one.
const SITES_ASKED_MAX: usize = 256;
/// Statements that find totals of all sites, which lie together by day, and days of which pieces wait.
const ALL_TOTALS: [&str; 2] = [
    "SELECT site, day, content FROM parts INDEXED BY totals \
        WHERE part = 0 AND day BETWEEN ?1 AND ?2 AND ?3 IS ?3",
    "SELECT DISTINCT site, day FROM pieces WHERE day BETWEEN ?1 AND ?2 AND ?3 IS ?3",
];
/// The same of one site, whose days are found by the site.
const TOTALS_OF_SITE: [&str; 2] = [
    "SELECT site, day, content FROM parts \
        WHERE +part = 0 AND day BETWEEN ?1 AND ?2 AND site = ?3",
    "SELECT DISTINCT site, day FROM pieces WHERE day BETWEEN ?1 AND ?2 AND site = ?3",
];

impl FigureStore {
    /// Whether there is anything of a site.
    pub(crate) fn has_site(&self, site: &str) -> Result<bool, StoreError> {
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
                self.go_on()?;
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
    pub(crate) fn each_total(
        &self,
        (from, to): (i32, i32),
        sites: &BTreeSet<String>,
        mut tell: impl FnMut(&str, i32, &Figures, u64),
    ) -> Result<(), StoreError> {
        let told = (|| {
            if sites.len() > SITES_ASKED_MAX {
                let mut statement = self.connection.prepare("SELECT id, name FROM sites")?;
                let named = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                let named = named.filter(|it| match it {
                    Ok((_, name)) => sites.contains(name),
                    Err(_) => true,
                });
                let named: HashMap<i64, String> = named.collect::<rusqlite::Result<_>>()?;
                return self.totals((from, to), ALL_TOTALS, &named, &mut tell);
            }
            for name in sites {
                let sql = "SELECT id FROM sites WHERE name = ?1";
                let found = self.connection.query_row(sql, [name], |row| row.get(0));
                if let Some(site) = found.optional()? {
                    let named = HashMap::from([(site, name.clone())]);
                    self.totals((from, to), TOTALS_OF_SITE, &named, &mut tell)?;
                }
            }
            Ok(())
        })();
        told.map_err(self.failed("read"))
    }

    /// The totals of these sites, found by these statements: one of their days, one of days of which pieces
    /// wait.
    fn totals(
        &self,
        (from, to): (i32, i32),
        [of_days, of_pieces]: [&str; 2],
        named: &HashMap<i64, String>,
        tell: &mut impl FnMut(&str, i32, &Figures, u64),
    ) -> rusqlite::Result<()> {
        let only = named.keys().next().filter(|_| named.len() == 1);
        let given: &[&dyn ToSql] = &[&from, &to, &only];
        let mut statement = self.connection.prepare(of_pieces)?;
        let days = statement.query_map(given, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let waiting: HashSet<(i64, i32)> = days.collect::<rusqlite::Result<_>>()?;
        let mut statement = self.connection.prepare(of_days)?;
        let mut rows = statement.query(given)?;
        while let Some(row) = rows.next()? {
            self.go_on()?;
            let (site, day) = (row.get(0)?, row.get(1)?);
            if let Some(name) = named.get(&site).filter(|_| !waiting.contains(&(site, day))) {
                let (total, visitors) = read_total(row.get_ref(2)?.as_blob()?)?;
                tell(name, day, &total, visitors);
            }
        }
        for of in waiting {
            self.go_on()?;
            if let Some(name) = named.get(&of.0) {
                let mut figures = DayFigures::default();
                read_day(&self.connection, of, PartsWanted::VISITORS, &mut figures)?;
                tell(name, of.1, &figures.total, figures.visitor_count());
            }
        }
        Ok(())
    }
}
