//! The archive: the PostgreSQL that the recorders of several machines send their minutes and incidents to.
//!
//! The idea: a batch is one transaction of rows that say what each minute came to as a whole, so it may come twice.
//! It begins with the machine's own row, which keeps batches of one machine apart whatever is killed when. Tables are
//! made by whoever comes first, and say which format they have. What is too old goes, a machine's own rows alone.
//!
//! Left out: what is sent when, and what becomes of what is refused (the recorder); what is read there ([`reading`]).

pub(crate) mod reading;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::reason;
use ipc::archive::{
    ArchiveEnd, ArchiveRows, ArchiveSaid, ArchiveSettings, ArchivedIncident, ArchivedSample,
    ArchivedSite, FromArchive, SITE_NUMBERS, ToArchive,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

use crate::source::{PostgresLogin, told};

/// Of the tables below.
const FORMAT: i32 = 2;
/// Who makes tables holds this lock.
const LOCK: i64 = 0x6e61_6761_7961;
const TABLES: &str = include_str!("archive.sql");
/// Counts of a site's minute, in the order in which they are sent.
const SITE_COLUMNS: [&str; SITE_NUMBERS] = [
    "requests",
    "bots",
    "views",
    "visits",
    "bounces",
    "visit_s",
    "bytes",
    "status_1xx",
    "status_2xx",
    "status_3xx",
    "status_4xx",
    "status_5xx",
    "queue_us",
    "upstream_us",
    "handshakes",
];
/// How long it may take to connect, a batch, and to delete what is old: together less than the recorder waits.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(30);
const THIN_MAX: Duration = Duration::from_secs(10);
/// The server ends by itself what nobody waits for any more: it does not notice that we are gone.
const LIMITS: &str = "SET statement_timeout = '20s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '30s'";
/// Days for which minutes and incidents are kept.
const KEPT_DAYS: i64 = 31;
/// How often what is older is looked for, and how much of each table goes then.
const THIN_EVERY: Duration = Duration::from_secs(600);
const THINNED_MAX: u64 = 50_000;

/// The way to it.
pub struct Archive {
    login: PostgresLogin,
    /// Where that is, in words.
    place: String,
    machine: String,
    session: ArchivePlace,
    /// What is asked waits for nothing that is written.
    reading: ArchivePlace,
    thinned: Cell<Option<Instant>>,
}

/// Where a connection is while nobody uses it.
type ArchivePlace = RefCell<Option<ArchiveSession>>;

/// A connection, which ends with this at once, whatever it still waits for.
struct ArchiveSession {
    client: Client,
    driving: AbortHandle,
}

impl Drop for ArchiveSession {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

/// Why something came to nothing.
enum ArchiveFailure {
    /// What was sent is wrong, and will be.
    Refused(String),
    /// It took too long: less of it may do.
    Late(String),
    /// Another time it may do.
    Down(String),
}

impl From<Error> for ArchiveFailure {
    fn from(error: Error) -> ArchiveFailure {
        // Data that is none, too much of it, the same row twice, or what a constraint forbids.
        let wrong = ["21", "22", "23", "54"];
        let code = error.code().map_or("", |code| code.code());
        match wrong.iter().any(|class| code.starts_with(class)) {
            true => ArchiveFailure::Refused(told(&error)),
            false if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                ArchiveFailure::Late(told(&error))
            }
            false => ArchiveFailure::Down(told(&error)),
        }
    }
}

impl Archive {
    /// Makes one; it connects when there is something to write.
    ///
    /// # Errors
    /// No authority vouches for the server.
    pub fn new(settings: ArchiveSettings) -> Result<Archive, String> {
        let server = &settings.server;
        let place = match server.port {
            Some(port) => format!("PostgreSQL at {} port {port}", server.host),
            None => format!("PostgreSQL at {}", server.host),
        };
        Ok(Archive {
            place,
            login: PostgresLogin::new(settings.server)?,
            machine: settings.machine,
            session: RefCell::default(),
            reading: RefCell::default(),
            thinned: Cell::default(),
        })
    }

    /// Writes rows, all or none.
    pub async fn write(&self, rows: &ArchiveRows) -> ArchiveSaid {
        let said = match self
            .within(&self.session, (CONNECT_MAX, WAIT), async |client| {
                self.put(client, rows).await
            })
            .await
        {
            Ok(()) => {
                self.thin_where_due().await;
                ArchiveSaid::Written
            }
            Err(ArchiveFailure::Refused(why)) => ArchiveSaid::Refused(why),
            Err(ArchiveFailure::Late(why)) => ArchiveSaid::Late(self.there(&why)),
            Err(ArchiveFailure::Down(why)) => ArchiveSaid::Down(self.there(&why)),
        };
        said.bounded()
    }

    /// What went wrong, and where.
    fn there(&self, why: &str) -> String {
        format!("{}: {why}", self.place)
    }

    /// Does something over the connection of a place, which is closed where that fails or is given up; what the
    /// server refuses or ends is taken back.
    async fn within<T>(
        &self,
        place: &ArchivePlace,
        (connect_max, wait): (Duration, Duration),
        work: impl AsyncFnOnce(&Client) -> Result<T, ArchiveFailure>,
    ) -> Result<T, ArchiveFailure> {
        let open = place.take().filter(|it| !it.client.is_closed());
        let session = match open {
            Some(session) => session,
            None => {
                let connected = tokio::time::timeout(connect_max, self.connect()).await;
                let late = |_| ArchiveFailure::Down("it does not connect in time".to_owned());
                connected.map_err(late)??
            }
        };
        let done = tokio::time::timeout(wait, async {
            let done = work(&session.client).await;
            if let Err(ArchiveFailure::Refused(_) | ArchiveFailure::Late(_)) = &done {
                session.client.batch_execute("ROLLBACK").await?;
            }
            done
        });
        let late = |_| ArchiveFailure::Late("it does not answer in time".to_owned());
        let done = done.await.map_err(late)?;
        if !matches!(done, Err(ArchiveFailure::Down(_))) {
            place.replace(Some(session));
        }
        done
    }

    /// Connects, and makes tables where there are none.
    async fn connect(&self) -> Result<ArchiveSession, ArchiveFailure> {
        let (client, driving) = self
            .login
            .connect(None)
            .await
            .map_err(ArchiveFailure::Down)?;
        let session = ArchiveSession { client, driving };
        let client = &session.client;
        client.batch_execute(LIMITS).await?;
        let made = client
            .query_one("SELECT to_regclass('nagaya_archive') IS NOT NULL", &[])
            .await?;
        if !made.try_get::<_, bool>(0)? {
            // Several machines may be here at once.
            let begin = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
            client.batch_execute(&begin).await?;
            client.batch_execute(TABLES).await?;
            let format = "INSERT INTO nagaya_archive (format) SELECT $1::int4 \
                WHERE NOT EXISTS (SELECT 1 FROM nagaya_archive)";
            client.execute(format, &[&FORMAT]).await?;
            client.batch_execute("COMMIT").await?;
        }
        let format = client
            .query_one("SELECT max(format) FROM nagaya_archive", &[])
            .await?;
        match format.try_get::<_, Option<i32>>(0)? {
            Some(FORMAT) => Ok(session),
            other => Err(ArchiveFailure::Down(format!(
                "its tables have format {}, and this version knows {FORMAT}: send to another database, or have all machines run one version",
                other.map_or("none".to_owned(), |it| it.to_string())
            ))),
        }
    }

    async fn put(&self, client: &Client, rows: &ArchiveRows) -> Result<(), ArchiveFailure> {
        client.batch_execute("BEGIN").await?;
        let until = rows.samples.iter().map(|it| it.at_s);
        let until = until.chain(rows.sites.iter().map(|it| it.at_s)).max();
        let sql = "INSERT INTO nagaya_machines AS known (machine, until, heard) VALUES ($1, $2, now()) \
            ON CONFLICT (machine) DO UPDATE SET heard = now(), \
            until = greatest(known.until, excluded.until)";
        client.execute(sql, &[&self.machine, &until]).await?;
        self.put_samples(client, &rows.samples).await?;
        self.put_sites(client, &rows.sites).await?;
        self.put_incidents(client, &rows.incidents).await?;
        client.batch_execute("COMMIT").await?;
        Ok(())
    }

    async fn put_samples(&self, client: &Client, rows: &[ArchivedSample]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = rows.iter().map(|it| it.name.as_str()).collect();
        let at: Vec<_> = rows.iter().map(|it| it.at_s).collect();
        let sums = |place: usize| -> Vec<f64> {
            let sums = rows.iter().map(|it| it.sums.get(place).copied());
            sums.map(Option::unwrap_or_default).collect()
        };
        let [count, sum, low, high] = [0, 1, 2, 3].map(sums);
        let sql = "INSERT INTO nagaya_samples (machine, name, at, count, sum, low, high) SELECT $1, given.* \
            FROM unnest($2::text[], $3::int8[], $4::float8[], $5::float8[], $6::float8[], $7::float8[]) AS given \
            ON CONFLICT (name, at, machine) DO UPDATE SET \
            count = excluded.count, sum = excluded.sum, low = excluded.low, high = excluded.high";
        let given: [&(dyn ToSql + Sync); 7] =
            [&self.machine, &names, &at, &count, &sum, &low, &high];
        client.execute(sql, &given).await.map(drop)
    }

    async fn put_sites(&self, client: &Client, rows: &[ArchivedSite]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = rows.iter().map(|it| it.site.as_str()).collect();
        let at: Vec<_> = rows.iter().map(|it| it.at_s).collect();
        let durations: Vec<_> = rows.iter().map(|it| it.durations.as_slice()).collect();
        let numbers: [Vec<i64>; SITE_NUMBERS] = std::array::from_fn(|place| {
            let numbers = rows.iter().map(|it| it.numbers.get(place).copied());
            numbers.map(Option::unwrap_or_default).collect()
        });
        let arrays = (5..5 + SITE_NUMBERS).map(|at| format!(", ${at}::int8[]"));
        let arrays = arrays.collect::<String>();
        let columns = SITE_COLUMNS.join(", ");
        let set = SITE_COLUMNS.map(|name| format!(", {name} = excluded.{name}"));
        let set = set.concat();
        let sql = format!(
            "INSERT INTO nagaya_sites (machine, site, at, durations, {columns}) SELECT $1, given.* \
            FROM unnest($2::text[], $3::int8[], $4::bytea[]{arrays}) AS given \
            ON CONFLICT (site, at, machine) DO UPDATE SET durations = excluded.durations{set}"
        );
        let mut given: Vec<&(dyn ToSql + Sync)> = vec![&self.machine, &names, &at, &durations];
        given.extend(numbers.iter().map(|it| it as &(dyn ToSql + Sync)));
        client.execute(&sql, &given).await.map(drop)
    }

    async fn put_incidents(&self, client: &Client, rows: &[ArchivedIncident]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let at: Vec<_> = rows.iter().map(|it| it.at_s).collect();
        let kinds: Vec<_> = rows.iter().map(|it| it.kind).collect();
        let what: Vec<_> = rows.iter().map(|it| it.what.as_str()).collect();
        let times: Vec<_> = rows.iter().map(|it| it.times).collect();
        let contents: Vec<_> = rows.iter().map(|it| it.content.as_str()).collect();
        // Of arrays in an array the database makes one; no name has a new line in it.
        let owners: Vec<_> = rows.iter().map(|it| it.owners.join("\n")).collect();
        let sql = "INSERT INTO nagaya_incidents (machine, at, kind, what, times, content, owners) \
            SELECT $1, at, kind, what, times, content, string_to_array(owners, E'\n') \
            FROM unnest($2::int8[], $3::int2[], $4::text[], $5::int8[], $6::text[], $7::text[]) \
            AS given (at, kind, what, times, content, owners) ON CONFLICT (at, machine, kind, what) \
            DO UPDATE SET times = excluded.times, content = excluded.content, owners = excluded.owners";
        let given: [&(dyn ToSql + Sync); 7] = [
            &self.machine,
            &at,
            &kinds,
            &what,
            &times,
            &contents,
            &owners,
        ];
        client.execute(sql, &given).await.map(drop)
    }

    /// Deletes what is too old where it is time for it; where more is left than goes at once, after the next batch again.
    async fn thin_where_due(&self) {
        let is_due = |at: Instant| at.elapsed() >= THIN_EVERY;
        if !self.thinned.get().is_none_or(is_due) {
            return;
        }
        let thinned = self
            .within(&self.session, (CONNECT_MAX, THIN_MAX), async |client| {
                self.thin(client).await
            })
            .await;
        let is_all = match thinned {
            Ok(is_all) => is_all,
            Err(
                ArchiveFailure::Refused(why)
                | ArchiveFailure::Late(why)
                | ArchiveFailure::Down(why),
            ) => {
                tracing::warn!("old figures of this machine stay in the database: {why}");
                true
            }
        };
        self.thinned.set(is_all.then(Instant::now));
    }

    /// Deletes what of this machine is too old, some at a time; whether that was all.
    async fn thin(&self, client: &Client) -> Result<bool, ArchiveFailure> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = since.map_or(0, |it| i64::try_from(it.as_secs()).unwrap_or(i64::MAX));
        let oldest_s = now_s - KEPT_DAYS * 86_400;
        let mut is_all = true;
        for table in ["nagaya_samples", "nagaya_sites", "nagaya_incidents"] {
            let sql = format!(
                "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} \
                WHERE machine = $1 AND at < $2 LIMIT {THINNED_MAX}))"
            );
            let gone = client.execute(&sql, &[&self.machine, &oldest_s]).await?;
            is_all &= gone < THINNED_MAX;
        }
        Ok(is_all)
    }
}

/// What is known of the archive: none yet, or why it can never be asked.
pub(crate) type KnownArchive = Rc<RefCell<Result<Rc<Archive>, String>>>;

/// Writes what comes over a link, one after the other, until its other end goes.
pub(crate) async fn serve(link: AsyncFd<OwnedFd>, archive: KnownArchive) {
    let answered = answer_all(&link, async |ToArchive { id, rows }| {
        let known = archive.borrow().clone();
        let said = match known {
            Ok(archive) => archive.write(&rows).await,
            Err(why) => ArchiveSaid::Down(why).bounded(),
        };
        Ok(FromArchive { id, said })
    });
    note_end(answered.await);
}

/// Says why a link has ended, unless its other end has just gone.
fn note_end(answered: io::Result<()>) {
    if let Err(error) = answered
        && error.kind() != io::ErrorKind::UnexpectedEof
    {
        tracing::error!(error = reason(&error), "the recorder is not understood");
    }
}

/// Answers what comes over a link, one after the other.
async fn answer_all<Q: DeserializeOwned, A: Serialize>(
    link: &AsyncFd<OwnedFd>,
    answer: impl AsyncFn(Q) -> io::Result<A>,
) -> io::Result<()> {
    let mut end = ArchiveEnd::<Q>::default();
    loop {
        let mut ready = link.readable().await?;
        let Some(question) = end.receive(link.get_ref().as_fd())? else {
            ready.clear_ready();
            continue;
        };
        end.put(&answer(question).await?)?;
        while !end.send(link.get_ref().as_fd())? {
            link.writable().await?.clear_ready();
        }
    }
}
