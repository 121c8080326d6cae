//! One directory: what becomes of a question.
//!
//! The idea: memcached first, then what the snapshot has from just before the process began, then the source, and
//! where that is silent or slow the snapshot, however old. A
//! question ends within `wait`, whatever its source does; one that the snapshot has answered meanwhile goes on, and
//! where it comes to another row the server hears of a change. A source that fails rests, longer each time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ipc::codec::cut;
use ipc::directory::{
    DirectorySettings, DirectoryState, FromDirectory, HOST_BYTES_MAX, REASON_BYTES_MAX, Row,
    RowAnswer, RowFrom,
};
use stores::{Limits, Stores};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use crate::counts::{Counts, count, ms};
use crate::judge::{self, Names, RawRow};
use crate::memcached::RowCache;
use crate::snapshot::{Change, Snapshot, now_ms};
use crate::source::{Question, RowSource, lacking};
use crate::users::{Users, own_name};

/// Questions to a source at once; others wait.
const AT_ONCE: usize = 64;
/// Questions under way and waiting.
const WAITING_MAX: usize = 4_096;
/// How long a source rests after a failure, and at most after several.
const REST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(5);
/// How long memcached may take.
const MEMCACHED_WAIT: Duration = Duration::from_millis(100);
/// Hosts that are known to have changed; where there are more, all have.
const CHANGED_MAX: usize = 10_000;
/// Connections to a database.
const CONNECTIONS: usize = 8;
/// The facts of the snapshot: the key of signatures, and the last number of changes.
const KEY: &str = "key";

/// Why a row was not judged to be good.
#[derive(Debug)]
pub(crate) enum Unjudged {
    /// This is wrong with it.
    Wrong(String),
    /// Nobody can say now.
    Unknown(String),
}

impl Unjudged {
    /// Either.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Wrong(why) | Self::Unknown(why) => why,
        }
    }
}

/// What is told to the server.
pub type Word = FromDirectory;

/// A directory that can be asked.
pub struct Asker {
    pub(crate) settings: DirectorySettings,
    pub(crate) place: u16,
    pub(crate) source: RowSource,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) counts: Counts,
    pub(crate) memcached: Option<RowCache>,
    stores: Rc<Stores>,
    names: RefCell<Names>,
    users: Rc<Users>,
    began: Instant,
    places: Semaphore,
    waiting: Cell<usize>,
    rest: Cell<Option<(Instant, Duration)>>,
    /// Until when memcached is not asked, since it did not answer.
    memcached_rest: Cell<Option<Instant>>,
    /// What memcached and the snapshot were told before is not believed to be young.
    distrusted: Cell<Option<Instant>>,
    /// The same of single hosts.
    changed: RefCell<HashMap<String, Instant>>,
    warned: Cell<Option<Instant>>,
    words: mpsc::Sender<Word>,
}

impl Asker {
    /// Makes ready to ask; nothing is connected yet.
    ///
    /// # Errors
    /// What can never be asked.
    pub fn new(
        settings: DirectorySettings,
        place: u16,
        words: mpsc::Sender<Word>,
    ) -> Result<Rc<Asker>, String> {
        let wait = Duration::from_millis(settings.wait_ms);
        let stores = Stores::new(Limits {
            connect_timeout: wait,
            command_timeout: wait,
            connections_max: CONNECTIONS,
            ..Limits::default()
        });
        let snapshot = settings.snapshot.as_deref().and_then(open);
        let key = key(snapshot.as_ref())?;
        let names = Names {
            uid_min: settings.uid_min,
            own_uids: settings.own_uids.clone(),
            ..Names::default()
        };
        Ok(Rc::new(Asker {
            source: RowSource::new(&settings, &stores)?,
            memcached: RowCache::new(&settings, &stores, key)?,
            settings,
            place,
            snapshot,
            counts: Counts::default(),
            stores,
            names: RefCell::new(names),
            users: Rc::default(),
            began: Instant::now(),
            places: Semaphore::new(AT_ONCE),
            waiting: Cell::new(0),
            rest: Cell::new(None),
            memcached_rest: Cell::new(None),
            distrusted: Cell::new(None),
            changed: RefCell::default(),
            warned: Cell::new(None),
            words,
        }))
    }

    /// Begins what it does of itself: filling the snapshot, hearing of changes.
    pub fn begin(self: &Rc<Asker>) {
        crate::changes::begin(self);
    }

    /// These tenants are the configuration's own from now on.
    pub fn keep_from(&self, tenants: &[String]) {
        self.names.borrow_mut().tenants = tenants.iter().cloned().collect();
    }

    /// Closes connections that nobody uses; to be called about once a second.
    pub fn sweep(&self) {
        self.stores.sweep();
    }

    /// How it is.
    pub fn state(&self) -> DirectoryState {
        self.counts
            .state(self.snapshot.as_ref().map_or(0, Snapshot::rows))
    }

    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis(self.settings.wait_ms)
    }

    /// What a host has, and how long ago the source said so.
    pub async fn ask(self: &Rc<Asker>, host: &str) -> (RowAnswer, u64) {
        count(&self.counts.asked);
        if self.waiting.get() >= WAITING_MAX || host.len() > HOST_BYTES_MAX {
            count(&self.counts.down);
            return (RowAnswer::Down("too many questions wait".to_owned()), 0);
        }
        self.waiting.set(self.waiting.get() + 1);
        let answer = self.answer(host).await;
        self.waiting.set(self.waiting.get() - 1);
        match &answer.0 {
            RowAnswer::Missing => count(&self.counts.missing),
            RowAnswer::Down(_) => count(&self.counts.down),
            RowAnswer::Wrong(_) | RowAnswer::Row(_) => {}
        }
        answer
    }

    async fn answer(self: &Rc<Asker>, host: &str) -> (RowAnswer, u64) {
        let begun = Instant::now();
        if let Some((row, age)) = self.cached(host).await {
            return (RowAnswer::Row(row), ms(age));
        }
        if let Some((row, age)) = self.young(host).await {
            return (RowAnswer::Row(row), age);
        }
        // It goes on where the snapshot has answered meanwhile.
        let (asker, name) = (Rc::clone(self), host.to_owned());
        let mut asking = tokio::task::spawn_local(async move { asker.ask_source(&name).await });
        let wait = self.wait();
        let asked = match timeout(wait / 10, &mut asking).await {
            Err(_) => {
                // What cannot be written is not preferred to what the source says, however late.
                let is_kept = self.snapshot.as_ref().is_some_and(Snapshot::is_written);
                if is_kept && let Some((row, age)) = self.kept(host).await {
                    self.tell_if_another(asking, host, (row.seal, row.uid));
                    return (RowAnswer::Row(row), age);
                }
                timeout(wait.saturating_sub(begun.elapsed()), asking).await
            }
            asked => asked,
        };
        let why = match asked {
            Ok(Ok(Ok(answer))) => return (answer, 0),
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => "the question has failed".to_owned(),
            Err(_) => self.late(),
        };
        match self.kept(host).await {
            Some((row, age)) => (RowAnswer::Row(row), age),
            None => (RowAnswer::Down(short(why)), 0),
        }
    }

    fn late(&self) -> String {
        format!("it has not answered within {} ms", self.settings.wait_ms)
    }

    /// Asks the source, unless it rests.
    async fn ask_source(&self, host: &str) -> Result<RowAnswer, String> {
        if let Some((until, _)) = self.rest.get()
            && until > Instant::now()
        {
            return Err("it rests after a failure".to_owned());
        }
        let asked = timeout(self.wait(), async {
            let _place = self.places.acquire().await;
            let begun = Instant::now();
            let answered = self.source.ask(Question::Host(host)).await?;
            // What no row has is the source's fault: what is known of rows goes on.
            match lacking(answered.columns.as_deref(), &self.settings.columns) {
                Some(names) => Err(self.source.lacks("`query`", &names)),
                None => Ok((answered, begun.elapsed())),
            }
        });
        let asked = asked.await.unwrap_or_else(|_| {
            self.source.give_up();
            Err(self.late())
        });
        match asked {
            Ok((answered, time)) => {
                self.rest.set(None);
                self.counts.answered(host, time);
                self.found(host, answered.rows).await
            }
            Err(why) => {
                self.failed(&why);
                Err(why)
            }
        }
    }

    /// The source has failed: it rests, longer than the last time.
    pub(crate) fn failed(&self, why: &str) {
        let now = Instant::now();
        let rested = match self.rest.get() {
            // Several fail at once: that is one failure.
            Some((until, _)) if until > now => return,
            Some((_, rested)) => (rested * 2).min(REST_MAX),
            None => REST,
        };
        self.rest.set(Some((now + rested, rested)));
        if self.counts.failed(why) {
            tracing::warn!(
                directory = self.settings.name,
                "the source does not answer: {why}"
            );
        }
    }

    /// Something went wrong that costs no question.
    pub(crate) fn complain(&self, why: &str) {
        if self.counts.complain(why) {
            tracing::warn!(
                directory = self.settings.name,
                "the directory's own work fails: {why}"
            );
        }
    }

    /// Judges what the source has, and keeps it.
    ///
    /// # Errors
    /// It cannot be judged now.
    async fn found(&self, host: &str, rows: Vec<RawRow>) -> Result<RowAnswer, String> {
        match self.judged(host, rows, RowFrom::Source).await {
            Ok(Some(row)) => {
                if let Some(cache) = self.memcached.as_ref().filter(|_| !self.memcached_rests()) {
                    let put = timeout(MEMCACHED_WAIT, cache.put(host, &row.columns)).await;
                    if put.is_err() {
                        // Only one answer waits for it.
                        self.memcached_rest.set(Some(Instant::now() + REST_MAX));
                    }
                }
                self.keep(Change::Row(host.to_owned(), now_ms(), row.columns.clone()));
                Ok(RowAnswer::Row(row))
            }
            Ok(None) => {
                let known = self.snapshot.as_ref().and_then(|it| it.row(host));
                if known.is_some() {
                    // A list that was read before does not bring it back.
                    self.distrust(Some(host));
                }
                self.keep(Change::Gone(host.to_owned()));
                Ok(RowAnswer::Missing)
            }
            Err(Unjudged::Wrong(why)) => {
                self.keep(Change::Gone(host.to_owned()));
                self.warn(host, &why);
                Ok(RowAnswer::Wrong(short(why)))
            }
            Err(Unjudged::Unknown(why)) => {
                self.complain(&why);
                Err(why)
            }
        }
    }

    /// Judges rows of a host.
    ///
    /// # Errors
    /// What is wrong with them, or why nobody can say.
    pub(crate) async fn judged(
        &self,
        host: &str,
        rows: Vec<RawRow>,
        from: RowFrom,
    ) -> Result<Option<Row>, Unjudged> {
        let Some(columns) = judge::one(host, rows).map_err(Unjudged::Wrong)? else {
            return Ok(None);
        };
        let late = |_| Err("users cannot be looked up in time".to_owned());
        let uid = timeout(self.wait(), self.users.of(&columns)).await;
        let uid = uid.unwrap_or_else(late).map_err(Unjudged::Unknown)?;
        let judged = judge::judge(&columns, uid, &self.names.borrow());
        let uid = judged.map_err(Unjudged::Wrong)?;
        let settings = &self.settings;
        Ok(Some(Row {
            seal: settings.row_key.seal(&settings.name, host, &columns),
            columns,
            uid,
            from,
        }))
    }

    /// The columns of a row, judged as far as nobody is looked up for it.
    pub(crate) fn judged_text(
        &self,
        host: &str,
        row: RawRow,
    ) -> Result<Vec<(String, String)>, String> {
        let columns = judge::one(host, vec![row])?.unwrap_or_default();
        judge::judge(&columns, None, &self.names.borrow())?;
        Ok(columns)
    }

    /// Tells of a wrong row: of one a second, and counts all.
    pub(crate) fn warn(&self, host: &str, why: &str) {
        count(&self.counts.wrong);
        let is_due = |at: Instant| at.elapsed() >= Duration::from_secs(1);
        if self.warned.get().is_none_or(is_due) {
            self.warned.set(Some(Instant::now()));
            let wrong = self.counts.wrong.get();
            tracing::warn!(
                directory = self.settings.name,
                host,
                wrong,
                "a row is out: {why}"
            );
        }
    }

    /// What is kept elsewhere of a host, or of all, is not believed to be young from now on.
    fn distrust(&self, host: Option<&str>) {
        let mut changed = self.changed.borrow_mut();
        match host.filter(|_| changed.len() < CHANGED_MAX) {
            Some(host) => drop(changed.insert(host.to_owned(), Instant::now())),
            None => {
                changed.clear();
                self.distrusted.set(Some(Instant::now()));
            }
        }
    }

    /// Whether what was kept of a host so long ago is from before a change.
    pub(crate) fn distrusts(&self, host: &str, age: Duration) -> bool {
        let changed = self.changed.borrow();
        let since = [self.distrusted.get(), changed.get(host).copied()];
        since.iter().flatten().any(|at| age >= at.elapsed())
    }

    /// What the snapshot has of a host, where the source said so before this process began and not long ago: a
    /// gateway that starts again need not ask for everybody.
    async fn young(&self, host: &str) -> Option<(Row, u64)> {
        if self.began.elapsed() >= Duration::from_millis(self.settings.keep_ms) {
            return None;
        }
        let (row, age_ms) = self.kept(host).await?;
        let age = Duration::from_millis(age_ms);
        let is_before = age > self.began.elapsed();
        let is_young = age_ms < self.settings.keep_ms && !self.distrusts(host, age);
        (is_before && is_young).then_some((row, age_ms))
    }

    fn memcached_rests(&self) -> bool {
        let until = self.memcached_rest.get();
        until.is_some_and(|until| until > Instant::now())
    }

    async fn cached(&self, host: &str) -> Option<(Row, Duration)> {
        let cache = self
            .memcached
            .as_ref()
            .filter(|_| !self.memcached_rests())?;
        let looked = timeout(MEMCACHED_WAIT, cache.row(host)).await;
        let looked = looked.unwrap_or_else(|_| Err("it is silent".to_owned()));
        let rest = looked.is_err().then(|| Instant::now() + REST_MAX);
        self.memcached_rest.set(rest);
        let (row, age) = match looked {
            Ok(found) => found?,
            Err(why) => {
                self.complain(&format!("memcached does not answer: {why}"));
                return None;
            }
        };
        if self.distrusts(host, age) {
            return None;
        }
        // What is wrong there may be right in the source.
        let row = self.judged(host, vec![row], RowFrom::Memcached);
        let row = row.await.ok()??;
        count(&self.counts.memcached);
        Some((row, age))
    }

    /// What the snapshot has of a host, and how old it is, where that is not too old.
    async fn kept(&self, host: &str) -> Option<(Row, u64)> {
        let (columns, at_ms) = self.snapshot.as_ref()?.row(host)?;
        let age_ms = u64::try_from(now_ms().saturating_sub(at_ms)).unwrap_or(0);
        if age_ms > self.settings.keep_ms.saturating_add(self.settings.stale_ms) {
            return None;
        }
        let row = columns
            .into_iter()
            .map(|(name, text)| (name, Ok(Some(text))));
        let judged = self.judged(host, vec![row.collect()], RowFrom::Snapshot);
        let row = judged.await.ok()??;
        count(&self.counts.snapshot);
        Some((row, age_ms))
    }

    pub(crate) fn keep(&self, change: Change) {
        if let Some(snapshot) = &self.snapshot {
            // What finds no room is written when it is asked for again.
            let _ = snapshot.put(change);
        }
    }

    fn tell_if_another(
        self: &Rc<Asker>,
        asking: tokio::task::JoinHandle<Result<RowAnswer, String>>,
        host: &str,
        known: (u128, Option<u32>),
    ) {
        let (asker, host) = (Rc::clone(self), host.to_owned());
        tokio::task::spawn_local(async move {
            if let Ok(Ok(answer)) = asking.await
                && !matches!(&answer, RowAnswer::Row(row) if (row.seal, row.uid) == known)
            {
                asker.tell_changed(Some(host)).await;
            }
        });
    }

    /// A row has changed, or any may have: nothing that is kept elsewhere is believed.
    pub(crate) async fn changed(self: &Rc<Asker>, host: Option<String>) {
        count(&self.counts.changes);
        self.distrust(host.as_deref());
        if let (Some(cache), Some(host)) = (&self.memcached, &host) {
            let _ = timeout(MEMCACHED_WAIT, cache.forget(host)).await;
        }
        // What the snapshot has shall not outlive the change, even if nobody comes for the host.
        let kept = self.snapshot.as_ref().zip(host.clone());
        if let Some((_, host)) = kept.filter(|(snapshot, host)| snapshot.row(host).is_some()) {
            let asker = Rc::clone(self);
            tokio::task::spawn_local(async move {
                // A source that fails is told of, and the row stays what it was.
                let _ = asker.ask_source(&host).await;
            });
        }
        self.tell_changed(host).await;
    }

    async fn tell_changed(&self, host: Option<String>) {
        let host = host.filter(|host| host.len() <= HOST_BYTES_MAX);
        let directory = self.place;
        // Where nobody listens any more the process is about to end.
        let _ = self
            .words
            .send(FromDirectory::Changed { directory, host })
            .await;
    }

    /// An operator wants a host, or all, forgotten.
    pub async fn forget(&self, host: Option<String>) {
        self.distrust(host.as_deref());
        self.keep(host.clone().map_or(Change::Clear, Change::Gone));
        if let (Some(cache), Some(host)) = (&self.memcached, &host) {
            let _ = timeout(MEMCACHED_WAIT, cache.forget(host)).await;
        }
    }
}

fn open(path: &Path) -> Option<Snapshot> {
    let opened = Snapshot::open(path);
    let tell = |error: &std::io::Error| {
        let (error, user) = (config::reason(error), own_name());
        tracing::error!(path = %path.display(), error, user, "the snapshot cannot be used: rows will not outlive the process");
    };
    opened.inspect_err(tell).ok()
}

/// The key of signatures: the snapshot's, or one for this process's life.
fn key(snapshot: Option<&Snapshot>) -> Result<[u8; 32], String> {
    let known = snapshot.and_then(|snapshot| snapshot.fact(KEY));
    if let Some(known) = known.and_then(|known| known.try_into().ok()) {
        return Ok(known);
    }
    let mut key = [0; 32];
    os::random::fill(&mut key).map_err(|error| config::reason(&error))?;
    if let Some(snapshot) = snapshot {
        // Nothing else waits yet.
        let _ = snapshot.put(Change::Fact(KEY, key.to_vec()));
    }
    Ok(key)
}

fn short(mut why: String) -> String {
    cut(&mut why, REASON_BYTES_MAX);
    why
}
