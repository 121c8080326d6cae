//! What went wrong, in the database: for a month, so many of a cause and day, and so many in all.
//!
//! The idea: a cause that goes on all day leaves so many rows, the last of which counts what comes then; where
//! there are too many in all, those go of which there are most of the same cause, the oldest first. So one
//! that never ends hides no other. Whose eyes an incident concerns is kept beside it, to be found by that.

use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};

use ipc::console::{ConsoleScope, Incident, IncidentKind, LimitOwner};

use super::unsent::Marks;
use super::{FigureStore, StoreError};
use crate::history::Sums;

/// Days for which incidents are kept.
const INCIDENTS_DAYS: i32 = 30;
/// Incidents that are kept, and how many fewer when there were more.
const INCIDENTS_MAX: i64 = 20_000;
const INCIDENTS_SPARE: i64 = 1_000;
/// Incidents of a cause and day.
const DAILY_MAX: i64 = 100;
const DAY_S: i64 = 86_400;
/// Causes that are told of.
const CAUSES_MAX: usize = 2_000;
/// By what those are found that are asked for.
const WANTED: &str = "at >= ?1 AND at < ?2 AND (?3 IS NULL OR id IN (SELECT incident FROM concerned \
    WHERE owner IN (SELECT value FROM json_each(?3)))) AND (?4 IS NULL OR (kind = ?4 AND what = ?5)) \
    AND (?6 = '' OR instr(lower(what), ?6) > 0)";
/// Kinds, each at its number: what addresses call them.
pub(crate) const KINDS: [(&str, IncidentKind); 4] = [
    ("limit", IncidentKind::Limit),
    ("shedding", IncidentKind::Shedding),
    ("program", IncidentKind::Program),
    ("upstream", IncidentKind::Upstream),
];
/// Sensors that are kept of one incident.
const SENSORS: [&str; 4] = ["load1", "cpu_pressure", "memory_available", "io_pressure"];
/// Their tables, and what concerns whom.
pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS incidents (id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL,
    kind INTEGER NOT NULL, what TEXT NOT NULL, times INTEGER NOT NULL, content TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS incidents_by_age ON incidents (at);
CREATE INDEX IF NOT EXISTS incidents_of_causes ON incidents (kind, what, at, times);
CREATE TABLE IF NOT EXISTS concerned (owner TEXT NOT NULL, incident INTEGER NOT NULL,
    PRIMARY KEY (owner, incident)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS concerned_by ON concerned (incident);
CREATE TRIGGER IF NOT EXISTS incidents_go AFTER DELETE ON incidents BEGIN
    DELETE FROM concerned WHERE incident = old.id; END;
";

/// What went wrong, with the machine's sensors of the minute before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptIncident {
    /// What went wrong.
    pub incident: Incident,
    /// Sensors: name, and the least, the mean and the most of the last minute.
    pub sensors: Vec<(String, [f64; 3])>,
    /// The machine, where it is told which: not on a machine's own disk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
}

impl KeptIncident {
    /// One, with what sensors said.
    pub(crate) fn new(incident: Incident, sensors: Vec<(String, Sums)>) -> KeptIncident {
        let sensors = sensors.into_iter();
        let sensors = sensors.filter(|(name, _)| SENSORS.contains(&name.as_str()));
        KeptIncident {
            incident,
            sensors: sensors
                .map(|(name, sums)| (name, [sums.low, sums.mean(), sums.high]))
                .collect(),
            machine: String::new(),
        }
    }
}

/// Which incidents are asked for.
#[derive(Debug, Clone, Copy)]
pub struct IncidentsOf<'a> {
    /// From this second.
    pub from_s: i64,
    /// To before this one.
    pub to_s: i64,
    /// Those that concern somebody in it.
    pub scope: &'a ConsoleScope,
    /// Those of one cause.
    pub cause: Option<(IncidentKind, &'a str)>,
    /// Those in whose cause's name this is, in small letters.
    pub filter: &'a str,
}

/// A cause of incidents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentCause {
    /// What kind of thing it is.
    pub kind: IncidentKind,
    /// Which.
    pub what: String,
    /// Incidents that are kept of it.
    pub incidents: u64,
    /// How often it happened.
    pub times: u64,
    /// When it last did.
    pub last_s: i64,
}

impl IncidentsOf<'_> {
    /// Whom they concern, as JSON; everybody where there is none.
    fn owners(&self) -> Option<String> {
        serde_json::to_string(&owners_in(self.scope)?).ok()
    }

    fn cause(&self) -> (Option<i64>, &str) {
        match self.cause {
            Some((kind, what)) => (Some(number(kind)), what),
            None => (None, ""),
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
        self.change(|transaction| {
            let marks = Marks::of(transaction)?;
            for it in incidents {
                let written = write_incident(transaction, it)?;
                marks.incident(transaction, written)?;
            }
            thin_surplus(transaction)
        })
    }

    /// The causes of incidents, the latest first.
    pub(crate) fn causes(&self, of: &IncidentsOf<'_>) -> Result<Vec<IncidentCause>, StoreError> {
        let sql = format!(
            "SELECT kind, what, count(*), sum(times), max(at) FROM incidents \
            WHERE {WANTED} GROUP BY kind, what ORDER BY max(at) DESC LIMIT {CAUSES_MAX}"
        );
        let (kind, what) = of.cause();
        let asked = params![of.from_s, of.to_s, of.owners(), kind, what, of.filter];
        self.rows(&sql, asked, |row| {
            let [kind, count, times]: [i64; 3] = [row.get(0)?, row.get(2)?, row.get(3)?];
            let kind = usize::try_from(kind).ok().and_then(|it| KINDS.get(it));
            Ok(IncidentCause {
                kind: kind.map(|(_, kind)| *kind).unwrap_or_default(),
                what: row.get(1)?,
                incidents: count.unsigned_abs(),
                times: times.unsigned_abs(),
                last_s: row.get(4)?,
            })
        })
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
        let of = IncidentsOf {
            from_s,
            to_s,
            scope: &ConsoleScope::All,
            cause: None,
            filter: "",
        };
        self.incidents_of(&of, most)
    }

    /// The last of these incidents, the latest first.
    pub(crate) fn incidents_of(
        &self,
        of: &IncidentsOf<'_>,
        most: usize,
    ) -> Result<Vec<KeptIncident>, StoreError> {
        let sql = format!(
            "SELECT content, times FROM incidents WHERE {WANTED} \
            ORDER BY at DESC, id DESC LIMIT ?7"
        );
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let (kind, what) = of.cause();
        let asked = params![of.from_s, of.to_s, of.owners(), kind, what, of.filter, most];
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let read: Vec<(String, i64)> = self.rows(&sql, asked, row)?;
        // What another version wrote and this one does not know is left out.
        let read = read.iter().filter_map(|(content, times)| {
            let mut kept: KeptIncident = serde_json::from_str(content).ok()?;
            kept.incident.times = times.unsigned_abs();
            Some(kept)
        });
        Ok(read.collect())
    }
}

/// Writes one; where its cause has its number of this day, the last of that counts for it. The row's number.
fn write_incident(transaction: &Transaction<'_>, it: &KeptIncident) -> rusqlite::Result<i64> {
    let Incident {
        at_s, kind, what, ..
    } = &it.incident;
    let (kind, times) = (number(*kind), it.incident.times.cast_signed());
    let day_s = at_s - at_s.rem_euclid(DAY_S);
    let sql = "SELECT count(*), max(id) FROM incidents \
        WHERE kind = ?1 AND what = ?2 AND at >= ?3 AND at < ?4";
    let of_day = params![kind, what, day_s, day_s + DAY_S];
    let mut find = transaction.prepare(sql)?;
    let (known, last): (i64, Option<i64>) =
        find.query_row(of_day, |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let Some(last) = last.filter(|_| known >= DAILY_MAX) {
        let sql = "UPDATE incidents SET times = times + ?1 WHERE id = ?2";
        transaction.prepare(sql)?.execute(params![times, last])?;
        return Ok(last);
    }
    insert_incident(transaction, it)
}

/// Writes one as a row of its own; its number.
pub(super) fn insert_incident(
    transaction: &Transaction<'_>,
    it: &KeptIncident,
) -> rusqlite::Result<i64> {
    let Incident { at_s, what, .. } = &it.incident;
    let (kind, times) = (number(it.incident.kind), it.incident.times.cast_signed());
    // It is text and numbers.
    let content = serde_json::to_string(it).unwrap_or_default();
    let sql = "INSERT INTO incidents (at, kind, what, times, content) VALUES (?1, ?2, ?3, ?4, ?5)";
    let row = params![at_s, kind, what, times, content];
    transaction.prepare(sql)?.execute(row)?;
    let incident = transaction.last_insert_rowid();
    let sql = "INSERT OR IGNORE INTO concerned (owner, incident) VALUES (?1, ?2)";
    let mut insert = transaction.prepare(sql)?;
    for owner in owners(&it.incident) {
        insert.execute(params![owner, incident])?;
    }
    Ok(incident)
}

/// Whom what may be seen has to concern; everybody where there is none.
pub(crate) fn owners_in(scope: &ConsoleScope) -> Option<Vec<String>> {
    let ConsoleScope::Tenants(tenants) = scope else {
        return None;
    };
    let names = tenants.iter().flat_map(|it| {
        let sites = it.sites.iter().map(|site| format!("site {site}"));
        sites.chain([format!("tenant {}", it.tenant)])
    });
    Some(names.collect())
}

/// Whom an incident concerns: whose limit refused, who held places, and who asked.
fn owners(incident: &Incident) -> impl Iterator<Item = String> {
    let held = incident.held.iter();
    let held = held.map(|it| LimitOwner::of_key(&it.limit, &it.key));
    let limits = held.chain([incident.what.as_str().into()]);
    let owners = limits.filter_map(|limit| match LimitOwner::of(&limit)? {
        LimitOwner::Tenant(name) => Some(format!("tenant {name}")),
        LimitOwner::Site(name) => Some(format!("site {name}")),
    });
    let requests = incident.requests.iter();
    owners.chain(requests.map(|it| format!("site {}", it.site)))
}

/// What the database calls a kind: its place among all.
fn number(kind: IncidentKind) -> i64 {
    let place = KINDS.iter().position(|(_, it)| *it == kind);
    place.and_then(|it| i64::try_from(it).ok()).unwrap_or(0)
}

/// Deletes what is too old.
pub(super) fn thin_incidents(transaction: &Transaction<'_>, today: i32) -> rusqlite::Result<()> {
    let oldest_s = i64::from(today.saturating_sub(INCIDENTS_DAYS)) * DAY_S;
    transaction.execute("DELETE FROM incidents WHERE at < ?1", [oldest_s])?;
    Ok(())
}

/// Deletes what is too much: of the causes with most of it, the oldest first.
fn thin_surplus(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM incidents";
    let count: i64 = transaction.prepare(sql)?.query_row([], |row| row.get(0))?;
    if count <= INCIDENTS_MAX {
        return Ok(());
    }
    let sql = "DELETE FROM incidents WHERE id IN (SELECT id FROM (\
        SELECT id, row_number() OVER (PARTITION BY kind, what ORDER BY at DESC, id DESC) AS place \
        FROM incidents) ORDER BY place DESC, id LIMIT ?1)";
    let surplus = count - INCIDENTS_MAX + INCIDENTS_SPARE;
    transaction.execute(sql, [surplus])?;
    Ok(())
}

#[cfg(test)]
impl FigureStore {
    /// Has the table of incidents lie where there is an index.
    pub(crate) fn break_incidents(&mut self) {
        let sql = "PRAGMA writable_schema = ON; \
            UPDATE sqlite_master SET rootpage = \
            (SELECT rootpage FROM sqlite_master WHERE name = 'incidents_by_age') \
            WHERE name = 'incidents'; PRAGMA writable_schema = RESET;";
        self.connection.execute_batch(sql).expect("it is broken");
    }
}

#[cfg(test)]
mod tests {
    use ipc::console::{HeldPlace, TenantSites};
    use testkit::TempDir;

    use super::*;

    fn incident(at_s: i64, what: &str) -> KeptIncident {
        let incident = Incident {
            at_s,
            what: what.into(),
            times: 2,
            ..Incident::default()
        };
        KeptIncident::new(incident, Vec::new())
    }

    #[test]
    fn a_cause_that_never_ends_leaves_so_many_rows_a_day_and_counts_the_others() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let all = (0..2 * DAY_S)
            .step_by(60)
            .map(|at_s| incident(at_s, "tenant a/few"));
        store
            .write_incidents(&all.collect::<Vec<_>>())
            .expect("written");
        let read = store.incidents(0, i64::MAX, usize::MAX).expect("read");
        assert_eq!(read.len(), 2 * usize::try_from(DAILY_MAX).expect("small"));
        let times = read.iter().map(|it| it.incident.times).sum::<u64>();
        assert_eq!(times, 2 * 2 * 24 * 60);
    }

    #[test]
    fn where_there_are_too_many_those_go_whose_cause_has_most() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let first = incident(0, "tenant quiet/few");
        store
            .write_incidents(std::slice::from_ref(&first))
            .expect("written");
        // Within a month, so that nothing goes by its age.
        let noise = (0..21_000).map(|it| {
            let (cause, day) = (it % 11, it / 11 % 28);
            incident(day * DAY_S + it, &format!("tenant noisy/{cause}"))
        });
        let noise: Vec<_> = noise.collect();
        for some in noise.chunks(1_000) {
            store.write_incidents(some).expect("written");
            let count = store
                .incidents(0, i64::MAX, usize::MAX)
                .expect("read")
                .len();
            assert!(
                count <= usize::try_from(INCIDENTS_MAX).expect("small"),
                "{count}"
            );
        }
        let read = store.incidents(0, i64::MAX, usize::MAX).expect("read");
        assert!(read.len() >= 19_000 && read.contains(&first));
        let sql = "SELECT count(*) FROM concerned WHERE incident NOT IN (SELECT id FROM incidents)";
        let left: i64 = store
            .connection
            .query_row(sql, [], |row| row.get(0))
            .expect("read");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_tenants_incidents_are_found_however_many_others_have() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let mut all: Vec<_> = (0..3_000)
            .map(|it| incident(it, &format!("tenant noisy/{it}")))
            .collect();
        let mut held = incident(5, "process/all");
        held.incident.held = vec![HeldPlace {
            limit: "site quiet.example/few".into(),
            ..HeldPlace::default()
        }];
        all.insert(0, held);
        all.insert(0, incident(1, "tenant quiet/few"));
        store.write_incidents(&all).expect("written");
        let scope = ConsoleScope::Tenants(vec![TenantSites {
            tenant: "quiet".into(),
            sites: vec!["quiet.example".into()],
        }]);
        let of = IncidentsOf {
            from_s: 0,
            to_s: DAY_S,
            scope: &scope,
            cause: None,
            filter: "",
        };
        let named = |causes: Vec<IncidentCause>| {
            let named = causes
                .into_iter()
                .map(|it| (it.what, it.incidents, it.times));
            named.collect::<Vec<_>>()
        };
        let both = [
            ("process/all".to_owned(), 1, 2),
            ("tenant quiet/few".to_owned(), 1, 2),
        ];
        assert_eq!(named(store.causes(&of).expect("read")), both);
        assert_eq!(store.incidents_of(&of, 10).expect("read").len(), 2);
        let few = IncidentsOf {
            filter: "few",
            ..of
        };
        assert_eq!(named(store.causes(&few).expect("read")), both[1..]);
        let one = IncidentsOf {
            cause: Some((IncidentKind::Limit, "process/all")),
            scope: &ConsoleScope::All,
            ..of
        };
        assert_eq!(store.incidents_of(&one, 10).expect("read").len(), 1);
        let none = IncidentsOf { from_s: 6, ..of };
        assert_eq!(store.causes(&none).expect("read"), []);
    }

    #[test]
    fn incidents_are_kept_for_a_month_the_latest_first() {
        let directory = TempDir::new();
        let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
        let day = |day: i64| day * DAY_S;
        let sensors = ["load1", "loop_lag"].map(|name| (name.to_owned(), Sums::of(2.0)));
        let all = [day(1), day(5), day(31)].map(|at_s| {
            let incident = incident(at_s, "tenant a").incident;
            KeptIncident::new(incident, sensors.clone().into())
        });
        assert_eq!(all[0].sensors, [("load1".to_owned(), [2.0; 3])]);
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
