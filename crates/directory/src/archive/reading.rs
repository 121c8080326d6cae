//! What is asked of the archive: a question of the console is one transaction that only reads.
//!
//! The idea: the database adds up, so that what comes back is as long as a page, not as the time it is about. A
//! statement ends by itself before nobody waits for it any more. Where there is more than may be answered the busiest
//! are told, and that there are others.
//!
//! Left out: which page needs what, and what durations say (the recorder).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ipc::archive::question::{
    ArchiveAnswer, ArchiveFound, ArchiveQuestion, ArchiveRead, ArchivedMachine,
    INCIDENTS_BYTES_MAX, INCIDENTS_MAX, IncidentsWanted, MACHINE_BYTES_MAX, MACHINES_MAX,
    NAMES_MAX, SAMPLES_MAX, SITES_MAX, SamplesWanted, SitesWanted,
};
use ipc::archive::{ArchivedIncident, ArchivedSample, ArchivedSite, SITE_NUMBERS};
use tokio::io::unix::AsyncFd;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::{Archive, ArchiveFailure, KnownArchive, SITE_COLUMNS, answer_all, note_end};

/// How long a question may take, beside the connection: together less than the console waits.
const READ_MAX: Duration = Duration::from_millis(2_700);
const READ_CONNECT_MAX: Duration = Duration::from_secs(2);
/// Groups are few, which no planner sees of parts of time: to sort all rows for them takes five times as long. So
/// no minutes are asked for in an order, either. What a planner takes for that costly is compiled, which takes longer
/// still.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SET LOCAL statement_timeout = '2500ms'; SET LOCAL lock_timeout = '1s'; SET LOCAL work_mem = '32MB'; \
    SELECT set_config(name, 'off', true) FROM pg_settings \
    WHERE name IN ('enable_sort', 'enable_incremental_sort', 'jit')";
/// Bytes of a name, and of what is told of an incident: what is longer is none of ours.
const NAME_BYTES_MAX: i32 = 400;
const CONTENT_BYTES_MAX: i32 = 64 * 1024;
/// What a machine may say of a figure's minute: all that are kept still come to a number. No number is smaller.
const SOUND_SAMPLE: &str =
    "count > 0 AND count < 1e16 AND abs(sum) < 1e16 AND abs(low) < 1e16 AND abs(high) < 1e16";
/// And of a count of a site's minute.
const SITE_COUNT_MAX: i64 = 1 << 48;
/// Durations of minutes that had any, each behind its length; none has more than these bytes.
const DURATIONS: &str = "FILTER (WHERE octet_length(durations) BETWEEN 2 AND 12288)";
/// Names in order, each found by the one before: there are many rows of each.
const NAMES: &str = "WITH RECURSIVE found AS ((SELECT name FROM nagaya_samples ORDER BY name LIMIT 1) UNION ALL \
    SELECT (SELECT name FROM nagaya_samples WHERE name > found.name ORDER BY name LIMIT 1) \
    FROM found WHERE found.name IS NOT NULL) \
    SELECT name FROM found WHERE name IS NOT NULL AND octet_length(name) <= $1 \
    AND (cardinality($3::text[]) = 0 OR EXISTS (SELECT FROM unnest($3::text[]) AS it WHERE starts_with(name, it))) \
    AND NOT EXISTS (SELECT FROM unnest($4::text[]) AS it WHERE starts_with(name, it)) \
    AND ($5 = '' OR strpos(lower(name), $5) > 0) \
    AND ($6::text[] IS NULL OR CASE WHEN starts_with(name, 'limit.') \
    THEN split_part(split_part(name, E'\t', 1), '/', 1) \
    ELSE left(name, -strpos(reverse(name), '.')) END = ANY($6)) LIMIT $2";
/// Minutes of figures in a question's time that may be true.
const OF_SAMPLES: &str = "FROM nagaya_samples WHERE name = ANY($1) AND ($2::text IS NULL OR machine = $2) \
    AND at >= $3 AND at < $4";
/// Minutes of sites in a question's parts of time.
const OF_SITES: &str = "FROM nagaya_sites WHERE ($1::text IS NULL OR machine = $1) AND at >= $2 AND at < $3 \
    AND ($5::text[] IS NULL OR site = ANY($5)) AND octet_length(site) <= $6 \
    AND ($7 = '' OR strpos(lower(site), $7) > 0)";

impl Archive {
    /// Reads what is asked for, which is bounded.
    pub async fn read(&self, question: &ArchiveQuestion) -> ArchiveRead {
        let waits = (READ_CONNECT_MAX, READ_MAX);
        let read = self.within(&self.reading, waits, async |client| {
            let found = self.find(client, question).await;
            found.map_err(|error| match error.into() {
                // Where it still takes a ROLLBACK, it is not away.
                ArchiveFailure::Down(why) => ArchiveFailure::Refused(why),
                failure => failure,
            })
        });
        let read = match read.await {
            Ok(found) => ArchiveRead::Found(found.into()),
            Err(ArchiveFailure::Late(_)) => ArchiveRead::Late,
            Err(ArchiveFailure::Refused(why)) => ArchiveRead::Failed(why),
            Err(ArchiveFailure::Down(why)) => ArchiveRead::Down(self.there(&why)),
        };
        read.bounded()
    }

    async fn find(
        &self,
        client: &Client,
        question: &ArchiveQuestion,
    ) -> Result<ArchiveFound, Error> {
        client.batch_execute(BEGIN).await?;
        let mut found = ArchiveFound {
            own: self.machine.clone(),
            machines: machines(client).await?,
            ..ArchiveFound::default()
        };
        let machine = question.machine.as_deref();
        let time = (question.from_s, question.to_s);
        if let Some(wanted) = &question.samples {
            (found.names, found.cut.names) = names(client, wanted).await?;
            let summed = usize::try_from(wanted.summed_max).unwrap_or(usize::MAX);
            let summed = found.names.iter().take(summed).cloned().collect();
            let samples = samples(client, summed, machine, time, wanted.step_s).await?;
            (found.samples, found.cut.samples) = samples;
        }
        if let Some(wanted) = &question.incidents {
            let incidents = incidents(client, wanted, machine, time).await?;
            (found.incidents, found.cut.incidents) = incidents;
        }
        // Last: their durations have what room is left.
        if let Some(wanted) = &question.sites {
            sites(client, wanted, machine, &mut found).await?;
        }
        client.batch_execute("COMMIT").await?;
        Ok(found)
    }
}

/// As an int8 of the database.
fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The machines that ever sent, in order; of too many those that were heard last.
async fn machines(client: &Client) -> Result<Vec<ArchivedMachine>, Error> {
    let sql = "SELECT machine, extract(epoch FROM heard)::int8 FROM nagaya_machines \
        WHERE octet_length(machine) <= $1::int8 ORDER BY heard DESC, machine LIMIT $2";
    let given: [&(dyn ToSql + Sync); 2] = [&number(MACHINE_BYTES_MAX), &number(MACHINES_MAX)];
    let rows = client.query(sql, &given).await?;
    let machine = |row: &Row| {
        Ok(ArchivedMachine {
            name: row.try_get(0)?,
            heard_s: row.try_get(1)?,
        })
    };
    let mut machines = rows
        .iter()
        .map(machine)
        .collect::<Result<Vec<_>, Error>>()?;
    machines.sort_unstable_by(|one, two| one.name.cmp(&two.name));
    Ok(machines)
}

/// Leaves out what there is no room for, whole names; whether there was any.
fn cut<T>(rows: &mut Vec<T>, most: usize, name: impl Fn(&T) -> &str) -> bool {
    let beyond = rows.split_off(most.min(rows.len()));
    if let Some(first) = beyond.first() {
        rows.retain(|it| name(it) != name(first));
    }
    !beyond.is_empty()
}

/// The names that are wanted, in order, and whether there are more.
async fn names(client: &Client, wanted: &SamplesWanted) -> Result<(Vec<String>, bool), Error> {
    let given: [&(dyn ToSql + Sync); 6] = [
        &NAME_BYTES_MAX,
        &number(NAMES_MAX + 1),
        &wanted.begin,
        &wanted.unlike,
        &wanted.filter,
        &wanted.of,
    ];
    let rows = client.query(NAMES, &given).await?;
    let names = rows.iter().map(|row| row.try_get(0));
    let mut names = names.collect::<Result<Vec<String>, Error>>()?;
    let is_cut = cut(&mut names, NAMES_MAX, |it| it);
    // The database has an order of its own.
    names.sort_unstable();
    Ok((names, is_cut))
}

/// What these figures came to in each part of time, and whether some of them are left out.
async fn samples(
    client: &Client,
    names: Vec<String>,
    machine: Option<&str>,
    time: (i64, i64),
    step_s: u32,
) -> Result<(Vec<ArchivedSample>, bool), Error> {
    let (names, is_cut) = busiest(client, names, machine, time, step_s).await?;
    let sql = format!(
        "SELECT name, greatest(at / $5 * $5, $3), sum(count), sum(sum), min(low), max(high) \
        {OF_SAMPLES} AND {SOUND_SAMPLE} GROUP BY 1, 2"
    );
    let ((from_s, to_s), step_s) = (time, i64::from(step_s));
    let given: [&(dyn ToSql + Sync); 5] = [&names, &machine, &from_s, &to_s, &step_s];
    let rows = client.query(&sql, &given).await?;
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
    Ok((samples, is_cut))
}

/// Those of these names that come to most, as many as there is room for, and whether others are left out. Names are
/// counted with the most parts they can have: to tell all parts apart first takes far longer.
async fn busiest(
    client: &Client,
    names: Vec<String>,
    machine: Option<&str>,
    (from_s, to_s): (i64, i64),
    step_s: u32,
) -> Result<(Vec<String>, bool), Error> {
    let step_s = i64::from(step_s).max(1);
    // The first and the last may be there in part.
    let parts = to_s.saturating_sub(1) / step_s - from_s / step_s + 1;
    let most = number(SAMPLES_MAX);
    if number(names.len()).saturating_mul(parts) <= most {
        return Ok((names, false));
    }
    let sql = format!(
        "SELECT name, least(count(*), max(at) / $5 - min(at) / $5 + 1) {OF_SAMPLES} AND {SOUND_SAMPLE} \
        GROUP BY name ORDER BY sum(sum) DESC, name"
    );
    let given: [&(dyn ToSql + Sync); 5] = [&names, &machine, &from_s, &to_s, &step_s];
    let (mut busiest, mut rows) = (Vec::new(), 0_i64);
    for row in client.query(&sql, &given).await? {
        rows = rows.saturating_add(row.try_get(1)?);
        if rows > most {
            return Ok((busiest, true));
        }
        busiest.push(row.try_get(0)?);
    }
    Ok((busiest, false))
}

/// What is asked for of sites, and of those alone, if that; nothing without parts of time.
fn given_of_sites<'a>(
    wanted: &'a SitesWanted,
    machine: &'a Option<&str>,
    names: &'a Option<Vec<String>>,
) -> Option<[&'a (dyn ToSql + Sync); 7]> {
    let (from_s, to_s) = (wanted.edges.first()?, wanted.edges.last()?);
    let edges = &wanted.edges;
    Some([
        machine,
        from_s,
        to_s,
        edges,
        names,
        &NAME_BYTES_MAX,
        &wanted.filter,
    ])
}

/// Minutes of sites that may be true, by site and part of time.
fn of_sites() -> String {
    // Where visits go on, fewer may have bounced than were said to have.
    let sound = SITE_COLUMNS.map(|it| {
        let least = if it == "bounces" { -SITE_COUNT_MAX } else { 0 };
        format!(" AND {it} BETWEEN {least} AND {SITE_COUNT_MAX}")
    });
    format!("{OF_SITES}{} GROUP BY 1, 2", sound.concat())
}

/// Finds what sites came to in each part of time.
async fn sites(
    client: &Client,
    wanted: &SitesWanted,
    machine: Option<&str>,
    found: &mut ArchiveFound,
) -> Result<(), Error> {
    let Some(given) = given_of_sites(wanted, &machine, &wanted.names) else {
        return Ok(());
    };
    let most = i64::MAX;
    let sums = SITE_COLUMNS
        .map(|it| format!(", least(greatest(sum({it}), -{most}), {most})::int8 AS {it}"));
    let parts = format!(
        "SELECT site AS name, width_bucket(at, $4::int8[]) - 1, \
        coalesce(sum(octet_length(durations) + 4) {DURATIONS}, 0)::int8{} {}",
        sums.concat(),
        of_sites()
    );
    // All rows of those that are asked most: the parts are told apart first, so that no row of a minute is sorted.
    let sql = format!(
        "WITH parts AS MATERIALIZED ({parts}) SELECT * FROM \
        (SELECT *, sum(requests) OVER (PARTITION BY name) AS whole FROM parts) AS ranked \
        ORDER BY whole DESC, name LIMIT {}",
        SITES_MAX + 1
    );
    let (mut sites, mut bytes) = (Vec::new(), 0_i64);
    for row in client.query(&sql, &given).await? {
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
    found.cut.sites = cut(&mut sites, SITES_MAX, |it| &it.site);
    sites.sort_unstable_by(|one, two| (&one.site, one.at_s).cmp(&(&two.site, two.at_s)));
    found.sites = sites;
    found.cut.durations = bytes > number(found.durations_bytes_max());
    match found.cut.durations {
        true => Ok(()),
        false => durations(client, wanted, machine, found).await,
    }
}

/// Finds the durations of these sites.
async fn durations(
    client: &Client,
    wanted: &SitesWanted,
    machine: Option<&str>,
    found: &mut ArchiveFound,
) -> Result<(), Error> {
    let names = match found.cut.sites {
        true => {
            // They are in order.
            let mut sites: Vec<_> = found.sites.iter().map(|it| it.site.clone()).collect();
            sites.dedup();
            Some(sites)
        }
        false => wanted.names.clone(),
    };
    let Some(given) = given_of_sites(wanted, &machine, &names) else {
        return Ok(());
    };
    let sql = format!(
        "SELECT site, width_bucket(at, $4::int8[]) - 1, \
        string_agg(int4send(octet_length(durations)) || durations, ''::bytea) {DURATIONS} {}",
        of_sites()
    );
    for row in client.query(&sql, &given).await? {
        let of: (&str, i64) = (row.try_get(0)?, row.try_get::<_, i32>(1)?.into());
        let sites = &mut found.sites;
        let known = sites.binary_search_by(|it| (&*it.site, it.at_s).cmp(&of));
        if let Some(site) = known.ok().and_then(|place| sites.get_mut(place)) {
            site.durations = row.try_get::<_, Option<_>>(2)?.unwrap_or_default();
        }
    }
    Ok(())
}

/// What went wrong last, and whether there was more.
async fn incidents(
    client: &Client,
    wanted: &IncidentsWanted,
    machine: Option<&str>,
    (from_s, to_s): (i64, i64),
) -> Result<(Vec<(String, ArchivedIncident)>, bool), Error> {
    // What there is no room for any more is known by a row without content.
    let order = "ORDER BY at DESC, machine, kind, what";
    let sql = format!(
        "WITH last AS (SELECT * FROM nagaya_incidents \
        WHERE ($1::text IS NULL OR machine = $1) AND at >= $2 AND at < $3 \
        AND octet_length(machine) <= $4 AND octet_length(what) <= $4 AND octet_length(content) <= $5 \
        AND ($8::text[] IS NULL OR EXISTS (SELECT FROM unnest(owners) AS it WHERE it = ANY($8))) \
        AND ($9::text IS NULL OR what = $9) AND ($10 = '' OR strpos(lower(what), $10) > 0) \
        {order} LIMIT $6), \
        summed AS (SELECT *, sum(octet_length(machine) + octet_length(what) + octet_length(content)) \
        OVER ({order}) AS bytes FROM last) \
        SELECT machine, at, kind, what, times, CASE WHEN bytes <= $7 THEN content END \
        FROM summed {order}"
    );
    let given: [&(dyn ToSql + Sync); 10] = [
        &machine,
        &from_s,
        &to_s,
        &NAME_BYTES_MAX,
        &CONTENT_BYTES_MAX,
        &number(INCIDENTS_MAX + 1),
        &number(INCIDENTS_BYTES_MAX),
        &wanted.owners,
        &wanted.what,
        &wanted.filter,
    ];
    let rows = client.query(&sql, &given).await?;
    let mut incidents = Vec::new();
    for row in rows {
        let content: Option<String> = row.try_get(5)?;
        let Some(content) = content.filter(|_| incidents.len() < INCIDENTS_MAX) else {
            return Ok((incidents, true));
        };
        let incident = ArchivedIncident {
            at_s: row.try_get(1)?,
            kind: row.try_get(2)?,
            what: row.try_get(3)?,
            times: row.try_get(4)?,
            content,
            owners: Vec::new(),
        };
        incidents.push((row.try_get(0)?, incident));
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
