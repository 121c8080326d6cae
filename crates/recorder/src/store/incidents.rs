//! What went wrong, in the database: for a month, and so many at most.

use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};

use ipc::console::Incident;

use super::{FigureStore, StoreError};
use crate::history::Sums;

/// Days for which incidents are kept.
const INCIDENTS_DAYS: i32 = 30;
/// Incidents that are kept: one in two minutes of these days.
const INCIDENTS_MAX: i64 = 20_000;

/// What went wrong, with the machine's sensors of the minute before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptIncident {
    /// What went wrong.
    pub incident: Incident,
    /// Sensors: name, and the least, the mean and the most of the last minute.
    pub sensors: Vec<(String, [f64; 3])>,
}

impl KeptIncident {
    /// One, with what sensors said.
    pub(crate) fn new(incident: Incident, sensors: Vec<(String, Sums)>) -> KeptIncident {
        let sensors = sensors.into_iter();
        KeptIncident {
            incident,
            sensors: sensors
                .map(|(name, sums)| (name, [sums.low, sums.mean(), sums.high]))
                .collect(),
        }
    }
}

impl FigureStore {
    /// Writes incidents, all or nothing.
    ///
    /// # Errors
    /// Where they could not be written.
    pub fn write_incidents(&mut self, incidents: &[KeptIncident]) -> Result<(), StoreError> {
        if incidents.is_empty() {
            return Ok(());
        }
        let failed = self.failed("write");
        let written = (|| {
            let transaction = self.connection.transaction()?;
            let sql = "INSERT INTO incidents (at, content) VALUES (?1, ?2)";
            let mut insert = transaction.prepare(sql)?;
            for it in incidents {
                // It is text and numbers.
                let content = serde_json::to_string(it).unwrap_or_default();
                insert.execute(params![it.incident.at_s, content])?;
            }
            drop(insert);
            transaction.commit()
        })();
        written.map_err(failed)
    }

    /// The last incidents from `from_s` to before `to_s`, the latest first.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn incidents(
        &self,
        from_s: i64,
        to_s: i64,
        most: usize,
    ) -> Result<Vec<KeptIncident>, StoreError> {
        let read: rusqlite::Result<Vec<String>> = (|| {
            let sql = "SELECT content FROM incidents WHERE at >= ?1 AND at < ?2 \
                ORDER BY at DESC, id DESC LIMIT ?3";
            let mut statement = self.connection.prepare(sql)?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![from_s, to_s, most], |row| row.get(0))?;
            rows.collect()
        })();
        let read = read.map_err(self.failed("read"))?;
        // What another version wrote and this one does not know is left out.
        let read = read.iter().filter_map(|it| serde_json::from_str(it).ok());
        Ok(read.collect())
    }
}

/// Deletes what is too old, and what is too much.
pub(super) fn thin_incidents(transaction: &Transaction<'_>, today: i32) -> rusqlite::Result<()> {
    let oldest_s = i64::from(today.saturating_sub(INCIDENTS_DAYS)) * 86_400;
    transaction.execute("DELETE FROM incidents WHERE at < ?1", [oldest_s])?;
    let sql = "DELETE FROM incidents WHERE id <= (SELECT max(id) FROM incidents) - ?1";
    transaction.execute(sql, [INCIDENTS_MAX])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use ipc::console::IncidentKind;
    use testkit::TempDir;

    use super::*;

    #[test]
    fn incidents_are_kept_for_a_month_the_latest_first() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let incident = |at_s: i64| {
            let incident = Incident {
                at_s,
                kind: IncidentKind::Limit,
                what: "tenant a".into(),
                ..Incident::default()
            };
            KeptIncident::new(incident, vec![("load1".into(), Sums::of(2.0))])
        };
        let day = |day: i64| day * 86_400;
        let all = [day(1), day(5), day(31)].map(incident);
        store.write_incidents(&all).expect("written");
        let read = store.incidents(0, i64::MAX, 10).expect("read");
        assert_eq!(read.len(), 3);
        assert_eq!(read[0], all[2]);
        assert_eq!(store.incidents(day(2), day(6), 10).expect("read").len(), 1);
        assert_eq!(store.incidents(0, i64::MAX, 1).expect("read").len(), 1);
        store.write(std::iter::empty(), None, 33).expect("written");
        assert_eq!(store.incidents(0, i64::MAX, 10).expect("read").len(), 2);
    }
}
