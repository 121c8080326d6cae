//! What is asked of the archive: a question of the console is one transaction that only reads.
//!
//! The idea: the database adds up, so that what comes back is as long as a page, not as the time it is about. A
//! statement ends by itself before nobody waits for it any more, and what is more than may be answered is not begun.
//!
//! Left out: which page needs what, and what durations say (the recorder).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ipc::archive::question::{
    ArchiveAnswer, ArchiveFound, ArchiveQuestion, ArchiveRead, ArchivedMachine,
    DURATIONS_BYTES_MAX, INCIDENTS_BYTES_MAX, INCIDENTS_MAX, IncidentsWanted, MACHINE_BYTES_MAX,
    MACHINES_MAX, NAMES_MAX, SAMPLES_MAX, SITES_MAX, SamplesWanted, SitesWanted,
};
use ipc::archive::{ArchivedIncident, ArchivedSample, ArchivedSite, SITE_NUMBERS};
use tokio::io::unix::AsyncFd;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::{Archive, ArchiveFailure, KnownArchive, SITE_COLUMNS, answer_all, note_end};

/// How long a question may take, the connection with it: less than the console waits.
const READ_MAX: Duration = Duration::from_millis(2_700);
/// Groups are few, which no planner sees of parts of time: to sort all rows for them takes five times as long. So
/// nothing is asked for in an order, either.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SET LOCAL statement_timeout = '2500ms'; SET LOCAL lock_timeout = '1s'; SET LOCAL work_mem = '32MB'; \
    SELECT set_config(name, 'off', true) FROM pg_settings \
    WHERE name IN ('enable_sort', 'enable_incremental_sort')";
/// Bytes of a name, and of what is told of an incident: what is longer is none of ours.
const NAME_BYTES_MAX: i32 = 400;
const CONTENT_BYTES_MAX: i32 = 64 * 1024;
/// Names in order, each found by the one before: there are many rows of each.
const NAMES: &str = "WITH RECURSIVE found AS ((SELECT name FROM nagaya_samples ORDER BY name LIMIT 1) UNION ALL \
    SELECT (SELECT name FROM nagaya_samples WHERE name > found.name ORDER BY name LIMIT 1) \
    FROM found WHERE found.name IS NOT NULL) \
    SELECT name FROM found WHERE name IS NOT NULL AND octet_length(name) <= $1 LIMIT $2";
/// Minutes of sites in a question's parts of time.
const OF_SITES: &str = "FROM nagaya_sites WHERE machine = ANY($1) AND at >= $2 AND at < $3 \
    AND ($5::text[] IS NULL OR site = ANY($5)) AND octet_length(site) <= $6 \
    AND ($7 = '' OR strpos(lower(site), $7) > 0)";

/// Why there is no answer.
enum NotRead {
    TooMuch,
    Failed(ArchiveFailure),
}

impl From<Error> for NotRead {
    fn from(error: Error) -> NotRead {
        NotRead::Failed(error.into())
    }
}

impl Archive {
    /// Reads what is asked for, which is bounded.
    pub async fn read(&self, question: &ArchiveQuestion) -> ArchiveRead {
        let read = self.within(&self.reading, READ_MAX, async |client| {
            match self.find(client, question).await {
                Ok(found) => Ok(ArchiveRead::Found(found.into())),
                Err(NotRead::TooMuch) => {
                    client.batch_execute("ROLLBACK").await?;
                    Ok(ArchiveRead::TooMuch)
                }
                Err(NotRead::Failed(failure)) => Err(failure),
            }
        });
        // To connect takes of the same time.
        let read = match tokio::time::timeout(READ_MAX, read).await {
            Ok(Ok(read)) => read,
            Ok(Err(ArchiveFailure::Late(_))) => ArchiveRead::Late,
            Ok(Err(ArchiveFailure::Down(why) | ArchiveFailure::Refused(why))) => {
                ArchiveRead::Down(why)
            }
            Err(_) => ArchiveRead::Down("it does not answer in time".to_owned()),
        };
        read.bounded()
    }

    async fn find(
        &self,
        client: &Client,
        question: &ArchiveQuestion,
    ) -> Result<ArchiveFound, NotRead> {
        client.batch_execute(BEGIN).await?;
        let mut found = ArchiveFound {
            own: self.machine.clone(),
            machines: machines(client).await?,
            ..ArchiveFound::default()
        };
        let known = found.machines.iter().map(|it| it.name.as_str());
        let machines: Vec<&str> = match &question.machine {
            Some(machine) => vec![machine],
            None => known.collect(),
        };
        let time = (question.from_s, question.to_s);
        if let Some(wanted) = &question.samples {
            found.names = names(client, wanted).await?;
            let summed = usize::try_from(wanted.summed_max).unwrap_or(usize::MAX);
            let summed: Vec<&str> = found.names.iter().take(summed).map(|it| &**it).collect();
            found.samples = samples(client, &summed, &machines, time, wanted.step_s).await?;
        }
        if let Some(wanted) = &question.sites {
            (found.sites, found.cut.durations) = sites(client, wanted, &machines).await?;
        }
        if question.incidents == IncidentsWanted::Last {
            let incidents = incidents(client, &machines, time).await?;
            (found.incidents, found.cut.incidents) = incidents;
        }
        client.batch_execute("COMMIT").await?;
        Ok(found)
    }
}

/// As an int8 of the database.
fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Every machine that ever sent.
async fn machines(client: &Client) -> Result<Vec<ArchivedMachine>, Error> {
    let sql = "SELECT machine, extract(epoch FROM heard)::int8 FROM nagaya_machines \
        WHERE octet_length(machine) <= $1::int8 ORDER BY machine LIMIT $2";
    let given: [&(dyn ToSql + Sync); 2] = [&number(MACHINE_BYTES_MAX), &number(MACHINES_MAX)];
    let rows = client.query(sql, &given).await?;
    let machine = |row: &Row| {
        Ok(ArchivedMachine {
            name: row.try_get(0)?,
            heard_s: row.try_get(1)?,
        })
    };
    rows.iter().map(machine).collect()
}

/// The names that are wanted, in order.
async fn names(client: &Client, wanted: &SamplesWanted) -> Result<Vec<String>, NotRead> {
    let given: [&(dyn ToSql + Sync); 2] = [&NAME_BYTES_MAX, &number(NAMES_MAX + 1)];
    let rows = client.query(NAMES, &given).await?;
    if rows.len() > NAMES_MAX {
        return Err(NotRead::TooMuch);
    }
    let begins = |name: &str, with: &[String]| with.iter().any(|it| name.starts_with(&**it));
    let mut names = Vec::new();
    for row in rows {
        let name: String = row.try_get(0)?;
        let is_like = wanted.begin.is_empty() || begins(&name, &wanted.begin);
        let has = wanted.filter.is_empty() || name.to_lowercase().contains(&wanted.filter);
        if is_like && has && !begins(&name, &wanted.unlike) {
            names.push(name);
        }
    }
    // The database has an order of its own.
    names.sort_unstable();
    Ok(names)
}

/// What these figures came to in each part of time.
async fn samples(
    client: &Client,
    names: &[&str],
    machines: &[&str],
    (from_s, to_s): (i64, i64),
    step_s: u32,
) -> Result<Vec<ArchivedSample>, NotRead> {
    let sql = "SELECT name, (at - $3) / $5 * $5 + $3, sum(count), sum(sum), min(low), max(high) \
        FROM nagaya_samples WHERE name = ANY($1) AND machine = ANY($2) AND at >= $3 AND at < $4 \
        GROUP BY 1, 2 LIMIT $6";
    let step_s = i64::from(step_s);
    let given: [&(dyn ToSql + Sync); 6] = [
        &names,
        &machines,
        &from_s,
        &to_s,
        &step_s,
        &number(SAMPLES_MAX + 1),
    ];
    let rows = client.query(sql, &given).await?;
    if rows.len() > SAMPLES_MAX {
        return Err(NotRead::TooMuch);
    }
    let mut samples = Vec::with_capacity(rows.len());
    for row in rows {
        let mut sums = [0.0; 4];
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum = row.try_get(2 + place)?;
        }
        samples.push(ArchivedSample {
            name: row.try_get(0)?,
            at_s: row.try_get(1)?,
            sums,
        });
    }
    Ok(samples)
}

/// What sites came to in each part of time, and whether their durations are left out.
async fn sites(
    client: &Client,
    wanted: &SitesWanted,
    machines: &[&str],
) -> Result<(Vec<ArchivedSite>, bool), NotRead> {
    let (Some(from_s), Some(to_s)) = (wanted.edges.first(), wanted.edges.last()) else {
        return Ok((Vec::new(), false));
    };
    let given: [&(dyn ToSql + Sync); 7] = [
        &machines,
        from_s,
        to_s,
        &wanted.edges,
        &wanted.names,
        &NAME_BYTES_MAX,
        &wanted.filter,
    ];
    let most = i64::MAX;
    let sums =
        SITE_COLUMNS.map(|it| format!(", least(greatest(sum({it}), -{most}), {most})::int8"));
    let sql = format!(
        "SELECT site, width_bucket(at, $4::int8[]) - 1, sum(octet_length(durations))::int8{} \
        {OF_SITES} GROUP BY 1, 2 LIMIT {}",
        sums.concat(),
        SITES_MAX + 1
    );
    let rows = client.query(&sql, &given).await?;
    if rows.len() > SITES_MAX {
        return Err(NotRead::TooMuch);
    }
    let (mut sites, mut bytes) = (Vec::with_capacity(rows.len()), 0_i64);
    for row in rows {
        let mut numbers = [0; SITE_NUMBERS];
        for (place, number) in numbers.iter_mut().enumerate() {
            *number = row.try_get(3 + place)?;
        }
        bytes = bytes.saturating_add(row.try_get(2)?);
        sites.push(ArchivedSite {
            site: row.try_get(0)?,
            at_s: row.try_get::<_, i32>(1)?.into(),
            numbers,
            durations: Vec::new(),
        });
    }
    sites.sort_unstable_by(|one, two| (&one.site, one.at_s).cmp(&(&two.site, two.at_s)));
    if bytes > number(DURATIONS_BYTES_MAX) {
        return Ok((sites, true));
    }
    let sql = format!(
        "SELECT site, width_bucket(at, $4::int8[]) - 1, string_agg(durations, ''::bytea) \
        {OF_SITES} GROUP BY 1, 2"
    );
    for row in client.query(&sql, &given).await? {
        let of: (&str, i64) = (row.try_get(0)?, row.try_get::<_, i32>(1)?.into());
        let known = sites.binary_search_by(|it| (&*it.site, it.at_s).cmp(&of));
        if let Some(site) = known.ok().and_then(|place| sites.get_mut(place)) {
            site.durations = row.try_get(2)?;
        }
    }
    Ok((sites, false))
}

/// What went wrong last, and whether there was more.
async fn incidents(
    client: &Client,
    machines: &[&str],
    (from_s, to_s): (i64, i64),
) -> Result<(Vec<(String, ArchivedIncident)>, bool), Error> {
    let sql = "SELECT machine, at, kind, what, times, content FROM nagaya_incidents \
        WHERE machine = ANY($1) AND at >= $2 AND at < $3 \
        AND octet_length(what) <= $4 AND octet_length(content) <= $5 \
        ORDER BY at DESC, machine, kind, what LIMIT $6";
    let given: [&(dyn ToSql + Sync); 6] = [
        &machines,
        &from_s,
        &to_s,
        &NAME_BYTES_MAX,
        &CONTENT_BYTES_MAX,
        &number(INCIDENTS_MAX + 1),
    ];
    let rows = client.query(sql, &given).await?;
    let (mut incidents, mut bytes) = (Vec::new(), 0);
    for row in rows {
        let (machine, what, content): (String, String, String) =
            (row.try_get(0)?, row.try_get(3)?, row.try_get(5)?);
        bytes += machine.len() + what.len() + content.len();
        if incidents.len() >= INCIDENTS_MAX || bytes > INCIDENTS_BYTES_MAX {
            return Ok((incidents, true));
        }
        let incident = ArchivedIncident {
            at_s: row.try_get(1)?,
            kind: row.try_get(2)?,
            what,
            times: row.try_get(4)?,
            content,
        };
        incidents.push((machine, incident));
    }
    Ok((incidents, false))
}

/// Answers what is asked over a link, one after the other, until its other end goes.
pub(crate) async fn serve(link: AsyncFd<OwnedFd>, archive: KnownArchive) {
    let answered = answer_all(&link, async |question: ArchiveQuestion| {
        if !question.is_bounded() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let known = archive.borrow().clone();
        let said = match known {
            Ok(archive) => archive.read(&question).await,
            Err(why) => ArchiveRead::Down(why).bounded(),
        };
        Ok(ArchiveAnswer {
            id: question.id,
            said,
        })
    });
    note_end(answered.await);
}
