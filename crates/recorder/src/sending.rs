//! Minutes and incidents sent to the archive: a thread of its own, for which nothing waits.
//!
//! The idea: the database on disk is the queue. What is marked there and over is read and sent in batches to the
//! process that has the connection; when all of it is written there the marks go. Whatever ends whom, it is sent again,
//! as a whole. A batch that is refused is halved until the rows are alone that are wrong: these are lost, and counted.
//! One that takes too long is halved, too, and those after it are no larger until all of a turn has gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::reason;
use ipc::archive::{
    ArchiveEnd, ArchiveRows, ArchiveSaid, BATCH_ROWS_MAX, FromArchive, SentState, ToArchive,
};
use ipc::recorder::RecorderSettings;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::hearing::Heard;
use crate::salts::day_number;
use crate::store::{FigureStore, MARKS_MAX, OverUntil, StoreError};
use crate::zone::zone_of;

/// How often it looks whether there is something to send.
const LOOK: Duration = Duration::from_secs(1);
/// How long it rests when nothing could be sent, at first and at most.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(30);
/// How long a batch may take: longer than the process that writes it gives it.
const ANSWER_MAX: Duration = Duration::from_secs(75);
/// How often it looks whether an answer, or room for what is sent, has come.
const POLL: Duration = Duration::from_millis(20);
/// How long nobody may be there to send by before that is told.
const ALONE_MAX: Duration = Duration::from_secs(60);
/// How often it is counted what waits, and the oldest of too much goes.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// How long the database is held open: another may have taken its place.
const STORE_AGE_MAX: Duration = Duration::from_secs(60);
/// A minute is over so many seconds after it began: what is written of it comes some seconds later.
const OVER_S: i64 = 75;

/// The thread, from outside; it ends with this.
#[derive(Debug)]
pub(crate) struct Sending {
    mailbox: Arc<SendingMailbox>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads say to each other.
#[derive(Debug, Default)]
struct SendingMailbox {
    news: Mutex<SendingNews>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SendingNews {
    link: Option<OwnedFd>,
    is_over: bool,
    state: SentState,
}

impl Sending {
    /// One that sends what is in the directory of these settings, where they say so.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn wanted(
        settings: &RecorderSettings,
        heard: &Arc<Heard>,
    ) -> io::Result<Option<Sending>> {
        let wanted = settings.is_sent.then(|| settings.directory.clone());
        let start = |directory| Sending::start(directory, Arc::clone(heard));
        wanted.map(start).transpose()
    }

    /// Sends what is marked in this directory, once there is a link, and shows there why it cannot.
    ///
    /// # Errors
    /// When no thread can be had.
    fn start(directory: PathBuf, heard: Arc<Heard>) -> io::Result<Sending> {
        let mailbox = Arc::<SendingMailbox>::default();
        mailbox.news().state.standing = UNTRIED;
        let sender = Sender {
            directory,
            heard,
            mailbox: Arc::clone(&mailbox),
            link: None,
            end: ArchiveEnd::default(),
            id: 0,
            store: None,
            counted: None,
            said: None,
            alone: None,
            rows_max: BATCH_ROWS_MAX,
            lost: 0,
        };
        let thread = std::thread::Builder::new().name("sending".to_owned());
        let thread = Some(thread.spawn(move || sender.run())?);
        Ok(Sending { mailbox, thread })
    }

    /// Sends over this link from now on.
    pub(crate) fn use_link(&self, link: OwnedFd) {
        self.mailbox.news().link = Some(link);
        self.mailbox.changed.notify_one();
    }

    /// How sending stands.
    pub(crate) fn state(&self) -> SentState {
        self.mailbox.news().state
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.mailbox.news().is_over = true;
        self.mailbox.changed.notify_one();
        // One that panicked has ended, too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl SendingMailbox {
    /// Held for a moment.
    fn news(&self) -> MutexGuard<'_, SendingNews> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long, or until there is another link; whether to go on, and the link.
    fn wait(&self, rest: Duration) -> (bool, Option<OwnedFd>) {
        let is_quiet = |news: &mut SendingNews| news.link.is_none() && !news.is_over;
        let waited = self.changed.wait_timeout_while(self.news(), rest, is_quiet);
        let (mut news, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!news.is_over, news.link.take())
    }
}

/// The database takes what is sent, or does not, or nothing was tried yet.
const GOES: u64 = 1;
const STANDS_STILL: u64 = 2;
const UNTRIED: u64 = 3;

/// What the thread has.
struct Sender {
    directory: PathBuf,
    heard: Arc<Heard>,
    mailbox: Arc<SendingMailbox>,
    link: Option<OwnedFd>,
    end: ArchiveEnd<FromArchive>,
    /// The number of what was said last.
    id: u64,
    store: Option<(Instant, FigureStore, TimeZone)>,
    counted: Option<Instant>,
    /// What was wrong when that was last said.
    said: Option<String>,
    /// Since when there is nobody to send by.
    alone: Option<Instant>,
    /// Rows of a batch: fewer after one that took too long.
    rows_max: usize,
    lost: u64,
}

/// Rows of a turn that the database does not take, and why it did not take the last.
#[derive(Debug, Default)]
struct RefusedRows {
    count: u64,
    why: String,
}

/// Why a turn came to nothing.
enum NotSent {
    /// There is nobody to send by, or this is to end.
    Alone,
    /// In words.
    Because(String),
}

impl From<StoreError> for NotSent {
    fn from(error: StoreError) -> NotSent {
        NotSent::Because(error.to_string())
    }
}

impl Sender {
    fn run(mut self) {
        let mut rest = REST_MIN;
        let mut wait = LOOK;
        loop {
            let (goes_on, link) = self.mailbox.wait(wait);
            if !goes_on {
                self.heard.show_unsent("");
                return;
            }
            if let Some(link) = link {
                self.end = ArchiveEnd::default();
                self.link = Some(link);
            }
            let turn = self.turn();
            wait = match &turn {
                Ok(0) => LOOK,
                Ok(_) => Duration::ZERO,
                Err(_) => rest,
            };
            rest = match turn {
                Ok(_) => REST_MIN,
                Err(_) => (rest * 2).min(REST_MAX),
            };
            self.note(turn);
        }
    }

    /// Tells how it stands; in words where that is news.
    fn note(&mut self, turn: Result<usize, NotSent>) {
        let is_alone = matches!(turn, Err(NotSent::Alone));
        self.alone = self.alone.or(Some(Instant::now())).filter(|_| is_alone);
        let is_long = self.alone.is_some_and(|since| since.elapsed() > ALONE_MAX);
        let turn = match turn {
            Err(NotSent::Alone) if is_long => {
                let why = "there is no link to the process that has the connection";
                Err(NotSent::Because(why.to_owned()))
            }
            turn => turn,
        };
        match turn {
            // Nothing waits: whether it would go is not known.
            Ok(0) => {}
            Ok(_) => {
                self.heard.show_unsent("");
                if self.said.take().is_some() {
                    tracing::info!("figures are sent again");
                }
            }
            Err(NotSent::Because(why)) => {
                self.heard.show_unsent(&why);
                if self.said.is_none() {
                    tracing::warn!("figures are not sent, and wait on disk: {why}");
                    self.said = Some(why);
                }
            }
            Err(NotSent::Alone) => {}
        }
    }

    /// Sends some of what waits; how many rows there were.
    fn turn(&mut self) -> Result<usize, NotSent> {
        let sent = self.send_some();
        let mut news = self.mailbox.news();
        news.state.lost = self.lost;
        news.state.standing = match (&sent, news.state.standing) {
            (Ok(0), before) | (Err(NotSent::Alone), before @ UNTRIED) => before,
            (Ok(_), _) => GOES,
            (Err(_), _) => STANDS_STILL,
        };
        drop(news);
        sent
    }

    fn send_some(&mut self) -> Result<usize, NotSent> {
        let now = Timestamp::now();
        self.store.take_if(|(at, ..)| at.elapsed() > STORE_AGE_MAX);
        if self.store.is_none() {
            let mut store = FigureStore::open_existing(&self.directory)?;
            let zone = zone_of(&mut store)?;
            self.store = Some((Instant::now(), store, zone));
        }
        let Some((_, store, zone)) = &mut self.store else {
            return Ok(0);
        };
        let over = over_until(now, zone);
        if self.counted.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
            let thinned = store.thin_unsent(now.as_second(), MARKS_MAX)?;
            if thinned > 0 {
                tracing::warn!(
                    lost = thinned,
                    "too much waits to be sent: the oldest is lost"
                );
            }
            self.lost += thinned;
            let unsent = store.unsent()?;
            self.counted = Some(Instant::now());
            let mut news = self.mailbox.news();
            news.state.waiting = unsent.waiting;
            let lag_s = unsent.oldest_s.map_or(0, |at_s| over.utc_s - at_s);
            news.state.lag_s = u64::try_from(lag_s).unwrap_or(0);
        }
        let (marks, mut rows) = store.take_unsent(over, zone)?;
        if marks.is_empty() {
            return match self.link {
                Some(_) => Ok(0),
                None => Err(NotSent::Alone),
            };
        }
        let mut refused = RefusedRows::default();
        while !rows.is_empty() {
            self.send(rows.split_batch(self.rows_max), &mut refused)?;
        }
        let store = self.store.as_mut().map(|(_, store, _)| store);
        store.map_or(Ok(()), |store| store.was_sent(&marks))?;
        self.rows_max = (self.rows_max * 2).min(BATCH_ROWS_MAX);
        let RefusedRows { count, why } = refused;
        if count > 0 {
            self.lost += count;
            tracing::warn!(
                lost = count,
                "figures are lost that the database refuses: {why}"
            );
        }
        Ok(marks.len())
    }

    /// Sends a batch, by halves where it is refused or takes too long.
    fn send(&mut self, batch: ArchiveRows, refused: &mut RefusedRows) -> Result<(), NotSent> {
        let mut batches = vec![batch];
        while let Some(mut batch) = batches.pop() {
            match self.ask(&batch)? {
                ArchiveSaid::Written => {}
                ArchiveSaid::Down(why) => return Err(NotSent::Because(why)),
                ArchiveSaid::Late(why) if batch.len() <= 1 => return Err(NotSent::Because(why)),
                ArchiveSaid::Refused(why) if batch.len() <= 1 => {
                    refused.count += 1;
                    refused.why = why;
                }
                said => {
                    if matches!(said, ArchiveSaid::Late(_)) {
                        self.rows_max = batch.len() / 2;
                    }
                    batches.push(batch.split_half());
                    batches.push(batch);
                }
            }
        }
        Ok(())
    }

    /// What becomes of a batch.
    fn ask(&mut self, rows: &ArchiveRows) -> Result<ArchiveSaid, NotSent> {
        let Some(link) = &self.link else {
            return Err(NotSent::Alone);
        };
        self.id += 1;
        let message = ToArchive {
            id: self.id,
            rows: rows.clone(),
        };
        let asked = answer(link, &mut self.end, &message, &self.mailbox);
        match asked {
            Ok(Some(said)) => Ok(said),
            Ok(None) => Err(NotSent::Alone),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(NotSent::Because(
                "nothing has become of it in time".to_owned(),
            )),
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    let error = reason(&error);
                    tracing::error!(error, "the directory process is not understood");
                }
                self.link = None;
                Err(NotSent::Alone)
            }
        }
    }
}

/// Says something and waits for its answer; none where there is another link, or this is to end.
fn answer(
    link: &OwnedFd,
    end: &mut ArchiveEnd<FromArchive>,
    message: &ToArchive,
    mailbox: &SendingMailbox,
) -> io::Result<Option<ArchiveSaid>> {
    if !end.put(message)? {
        // What was said before has found no room in all this time.
        return Err(io::ErrorKind::TimedOut.into());
    }
    let until = Instant::now() + ANSWER_MAX;
    while Instant::now() < until {
        end.send(link.as_fd())?;
        os::net::wait_readable(&[link.as_fd()], Some(POLL))?;
        while let Some(FromArchive { id, said }) = end.receive(link.as_fd())? {
            if id == message.id {
                return Ok(Some(said.bounded()));
            }
        }
        let news = mailbox.news();
        if news.is_over || news.link.is_some() {
            return Ok(None);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Up to when minutes are over, by the world's clock and by that of days.
fn over_until(now: Timestamp, zone: &TimeZone) -> OverUntil {
    let local = now.to_zoned(zone.clone()).datetime();
    let of_day = local.time().duration_since(jiff::civil::Time::midnight());
    let local_s = i64::from(day_number(local.date())) * 86_400 + of_day.as_secs();
    OverUntil {
        utc_s: now.as_second() - OVER_S,
        local_s: local_s - OVER_S,
    }
}

#[cfg(test)]
mod tests;
