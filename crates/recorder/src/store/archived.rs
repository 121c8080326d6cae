//! Figures of the archive as a database in memory, for what draws a machine's own.
//!
//! The idea: what was added up elsewhere comes into the same tables, so that a page is drawn by one way. Whatever a
//! row says may be wrong: what makes no sense is left out.

use std::collections::{BTreeMap, HashMap};

use ipc::archive::question::ArchiveFound;
use ipc::archive::{ArchivedIncident, ArchivedSample, ArchivedSite};
use rusqlite::{Connection, params};

use super::incidents::insert_incident;
use super::samples::{ADD, series_id};
use super::unsent::Marks;
use super::{FigureStore, KeptIncident, StoreError, Tier, Why, go_on, make_tables};
use crate::day::Figures;
use crate::durations::Durations;
use crate::history::Sums;
use crate::piece::Piece;

/// Counts are no larger, and figures no further from zero: sums of them are numbers.
const COUNT_MAX: i64 = 1 << 48;
const FIGURE_MAX: f64 = 1e24;
/// Days of sites that are written together.
const PIECES_TOGETHER: usize = 256;

/// What an answer's times mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartsOfTime {
    /// How finely figures over time are shown.
    pub(crate) tier: Tier,
    /// From this second to before that.
    pub(crate) seconds: (i64, i64),
    /// The day of each part that sites are told by, and its minute of it.
    pub(crate) parts: Vec<(i32, u16)>,
}

impl FigureStore {
    /// What was found, in memory, made and read as long as this one is read.
    ///
    /// # Errors
    /// Where there is no memory, or it takes too long.
    pub(crate) fn of_archive(
        &self,
        found: &ArchiveFound,
        time: &PartsOfTime,
    ) -> Result<FigureStore, StoreError> {
        let path = std::path::PathBuf::from("the archive's figures");
        let made = Connection::open_in_memory().and_then(|connection| {
            make_tables(&connection)?;
            Ok(connection)
        });
        let connection = made.map_err(|error| StoreError {
            doing: "open",
            path: path.clone(),
            why: Why::Database(error),
        })?;
        let mut store = FigureStore {
            path,
            waiting: HashMap::new(),
            marks: Marks::Without,
            connection,
            settings: HashMap::new(),
            thinned_day: None,
            until: self.until,
        };
        store.take_sites(&found.sites, &time.parts)?;
        store.take_samples(found, time)?;
        store.take_incidents(&found.incidents, time.seconds)?;
        Ok(store)
    }

    fn take_sites(
        &mut self,
        rows: &[ArchivedSite],
        parts: &[(i32, u16)],
    ) -> Result<(), StoreError> {
        let mut pieces: BTreeMap<(&str, i32), Piece> = BTreeMap::new();
        for row in rows {
            self.go_on().map_err(self.failed("read"))?;
            let part = usize::try_from(row.at_s).ok();
            if let Some((day, minute)) = part.and_then(|part| parts.get(part)) {
                let piece = pieces.entry((&row.site, *day)).or_default();
                piece.minute(*minute).merge(&figures(row));
            }
        }
        let today = parts.last().map_or(0, |(day, _)| *day);
        let pieces = pieces.iter();
        let pieces: Vec<_> = pieces
            .map(|((site, day), piece)| (*site, *day, piece))
            .collect();
        for some in pieces.chunks(PIECES_TOGETHER) {
            self.go_on().map_err(self.failed("read"))?;
            self.write(some.iter().copied(), None, today)?;
        }
        Ok(())
    }

    fn take_samples(&mut self, found: &ArchiveFound, time: &PartsOfTime) -> Result<(), StoreError> {
        let ((from_s, to_s), until) = (time.seconds, self.until);
        self.change(|transaction| {
            let mut find = transaction.prepare("SELECT id FROM series WHERE name = ?1")?;
            for name in &found.names {
                go_on(until)?;
                series_id(transaction, &mut find, name)?;
            }
            let mut add = transaction.prepare(ADD)?;
            for ArchivedSample { name, at_s, sums } in &found.samples {
                go_on(until)?;
                let [count, sum, low, high] = *sums;
                let sums = Sums {
                    count,
                    sum,
                    low,
                    high,
                };
                let is_small = [count, sum, low, high]
                    .iter()
                    .all(|it| it.abs() <= FIGURE_MAX);
                if !sums.are_sound() || !is_small || !(from_s..to_s).contains(at_s) {
                    continue;
                }
                if let Some(series) = series_id(transaction, &mut find, name)? {
                    let tier = time.tier as i64;
                    add.execute(params![series, tier, at_s, count, sum, low, high])?;
                }
            }
            Ok(())
        })
    }

    fn take_incidents(
        &mut self,
        rows: &[(String, ArchivedIncident)],
        (from_s, to_s): (i64, i64),
    ) -> Result<(), StoreError> {
        let until = self.until;
        self.change(|transaction| {
            // The latest comes last, as on a machine's own disk.
            for (machine, row) in rows.iter().rev() {
                go_on(until)?;
                let kept = serde_json::from_str::<KeptIncident>(&row.content);
                let Ok(mut kept) = kept else {
                    continue;
                };
                if !(from_s..to_s).contains(&row.at_s) {
                    continue;
                }
                kept.machine.clone_from(machine);
                kept.incident.at_s = row.at_s;
                kept.incident.times = row.times.clamp(0, COUNT_MAX).unsigned_abs();
                insert_incident(transaction, &kept)?;
            }
            Ok(())
        })
    }
}

/// What a site's row says, as figures.
fn figures(row: &ArchivedSite) -> Figures {
    let numbers = row.numbers.map(|it| it.clamp(-COUNT_MAX, COUNT_MAX));
    let [_, _, _, _, bounces, ..] = numbers;
    let [
        requests,
        bots,
        views,
        visits,
        _,
        visit_s,
        bytes,
        one,
        two,
        three,
        four,
        five,
        queue_us,
        upstream_us,
        handshakes,
    ] = numbers.map(|it| it.max(0).unsigned_abs());
    Figures {
        requests,
        bots,
        views,
        visits,
        bounces,
        visit_s,
        bytes,
        statuses: [one, two, three, four, five],
        queue_us,
        upstream_us,
        handshakes,
        durations: Durations::of_archive(&row.durations),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ipc::archive::SITE_NUMBERS;

    use super::*;

    #[test]
    fn what_takes_longer_than_a_page_may_is_given_up() {
        let directory = testkit::TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let sample = ArchivedSample {
            name: "load1".into(),
            at_s: 60,
            sums: [1.0; 4],
        };
        let site = ArchivedSite {
            site: "a.example".into(),
            at_s: 0,
            numbers: [1; SITE_NUMBERS],
            durations: Vec::new(),
        };
        let incident = ArchivedIncident {
            at_s: 60,
            kind: 0,
            what: "x".into(),
            times: 1,
            content: "{}".into(),
            owners: Vec::new(),
        };
        let found = [
            ArchiveFound {
                sites: vec![site],
                ..ArchiveFound::default()
            },
            ArchiveFound {
                samples: vec![sample],
                ..ArchiveFound::default()
            },
            ArchiveFound {
                incidents: vec![("web1".into(), incident)],
                ..ArchiveFound::default()
            },
        ];
        let time = PartsOfTime {
            tier: Tier::Minute,
            seconds: (0, 3_600),
            parts: vec![(0, 0)],
        };
        for found in &found {
            store.of_archive(found, &time).expect("there is time");
        }
        store.give_up_at(Instant::now());
        for found in &found {
            let late = store.of_archive(found, &time).expect_err("it is late");
            assert!(late.is_late(), "{late}");
        }
    }
}
