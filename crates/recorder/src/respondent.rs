//! What people at the console are answered: a thread of its own that draws one page after the other.
//!
//! The idea: who hears the server puts questions into a mailbox and goes on, so a page that takes long costs
//! other pages time, and nothing else; what nobody waits for any more is not drawn. What goes on now is
//! asked of the server when somebody looks, at most once a second for all who do; what changes of a
//! page is drawn once for all who see the same of it.
//!
//! Not here: what else is heard ([`crate::hearing`]), and what is on a page ([`crate::console`]).

mod kept;

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use control::Snapshot;
use ipc::console::{
    ConsoleAnswer, ConsoleQuestion, ConsoleScope, FromConsole, LOOKED_AT_MAX, Outgoing,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::archive_link::{ArchiveLink, SaidForPage};
use crate::console::{self, ArchiveMoment, ConsoleMoment, Live};
use crate::hearing::Heard;
use crate::outlook::KeptOutlook;
use crate::salts::SaltPeriod;
use crate::store::{FigureStore, StoreError};
use crate::zone::zone_of;
use kept::KeptAnswers;

/// How long it sleeps where there is nothing to do.
const IDLE: Duration = Duration::from_millis(200);
/// How soon it looks again whether a question has waited for long enough.
const WAITING: Duration = Duration::from_millis(50);
/// How soon what found no room is sent again.
const AGAIN: Duration = Duration::from_millis(5);
/// What goes on now is shown as it was so long ago at most, where the server says it in time.
const FRESH: Duration = Duration::from_millis(900);
/// How long a page waits for that: the server looks once in 900 ms.
const LIVE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the server waits for an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// How long a page waits for the archive in all, with those before it.
const ARCHIVE_PATIENCE: Duration = Duration::from_secs(8);
/// Rates are those since a look so long ago at most.
const BEFORE_MAX: Duration = Duration::from_secs(60);
/// How long a connection to the database is used: another file may have taken its place.
const STORE_AGE_MAX: Duration = Duration::from_secs(10);
/// Questions that wait, as many as the server asks at a time, and their bytes.
const WAITING_MAX: usize = 256;
const WAITING_BYTES_MAX: usize = 16 << 20;
/// How long a page may take to be read.
const READ_MAX: Duration = Duration::from_secs(5);

/// What was heard and is for who answers.
#[derive(Debug, Default)]
pub(crate) struct ConsoleMailbox {
    /// Held to put something there, or to take all.
    news: Mutex<MailboxNews>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MailboxNews {
    /// Where answers go.
    link: Weak<OwnedFd>,
    /// The last that the server said of now, and when.
    live: Option<(Instant, String)>,
    questions: Vec<WaitingQuestion>,
    /// Another link over which the archive is asked.
    archive: Option<OwnedFd>,
    is_new: bool,
    is_over: bool,
}

/// A question, and since when it waits.
#[derive(Debug)]
struct WaitingQuestion {
    came: Instant,
    is_of_now: bool,
    /// Who asks, by the names of tenants; none is the operator.
    who: Option<Box<str>>,
    archive: ArchiveStage,
    question: ConsoleQuestion,
}

/// How far it is with what a page needs of the archive.
#[derive(Debug)]
enum ArchiveStage {
    /// It needs nothing.
    Unneeded,
    /// It is to be asked.
    Wanted,
    /// It was asked.
    Asked,
    /// This came of it.
    Said(Box<SaidForPage>),
}

impl ConsoleMailbox {
    /// Has what is asked from now on answered over this link; nobody waits for what was asked before.
    pub(crate) fn use_link(&self, link: Weak<OwnedFd>) {
        self.put(|news| {
            *news = MailboxNews {
                link,
                archive: news.archive.take(),
                is_over: news.is_over,
                ..MailboxNews::default()
            };
        });
    }

    /// Has the archive asked over this link from now on.
    pub(crate) fn use_archive(&self, link: OwnedFd) {
        self.put(|news| news.archive = Some(link));
    }

    /// Takes a question, where there is room for it.
    pub(crate) fn ask(&self, question: ConsoleQuestion) {
        if !question.is_bounded() {
            return;
        }
        self.put(|news| take_on(&mut news.questions, [WaitingQuestion::new(question)]));
    }

    /// Takes what goes on now.
    pub(crate) fn show(&self, live: String) {
        self.put(|news| news.live = Some((Instant::now(), live)));
    }

    /// Nobody asks any more.
    pub(crate) fn end(&self) {
        self.put(|news| news.is_over = true);
    }

    fn put(&self, put: impl FnOnce(&mut MailboxNews)) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        put(&mut news);
        news.is_new = true;
        self.changed.notify_one();
    }

    /// What there is once something is new, or so long from now.
    fn wait(&self, wait: Duration) -> MutexGuard<'_, MailboxNews> {
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(news, wait, |news| !news.is_new);
        let (mut news, _) = waited.unwrap_or_else(PoisonError::into_inner);
        news.is_new = false;
        news
    }
}

impl WaitingQuestion {
    fn new(question: ConsoleQuestion) -> WaitingQuestion {
        WaitingQuestion {
            came: Instant::now(),
            is_of_now: console::is_of_now(&question.path),
            who: match &question.scope {
                ConsoleScope::All => None,
                scope => Some(tenants_of(scope).collect::<Vec<_>>().join("\n").into()),
            },
            archive: match console::is_of_archive(&question) {
                true => ArchiveStage::Wanted,
                false => ArchiveStage::Unneeded,
            },
            question,
        }
    }
}

/// Has questions wait with others, as far as there is room; not those for which the server waits no more.
fn take_on(
    waiting: &mut Vec<WaitingQuestion>,
    questions: impl IntoIterator<Item = WaitingQuestion>,
) {
    waiting.retain(|it| it.came.elapsed() < ANSWER_PATIENCE);
    let mut bytes: usize = waiting.iter().map(|it| it.question.bytes()).sum();
    for it in questions {
        bytes = bytes.saturating_add(it.question.bytes());
        if waiting.len() >= WAITING_MAX || bytes > WAITING_BYTES_MAX {
            return;
        }
        waiting.push(it);
    }
}

/// What the server said of itself, and when.
#[derive(Debug)]
struct Looked {
    at: Instant,
    snapshot: Snapshot,
}

impl Looked {
    /// Whether all rows of a tenant are here.
    fn has(&self, tenant: &str) -> bool {
        self.snapshot.looked_at.iter().any(|it| it == tenant)
    }
}

/// The tenants that a scope has, of which as many as the server tells of together.
fn tenants_of(scope: &ConsoleScope) -> impl Iterator<Item = &str> {
    let tenants = match scope {
        ConsoleScope::All => &[][..],
        ConsoleScope::Tenants(tenants) => tenants,
    };
    let tenants = tenants.iter().map(|it| it.tenant.as_str());
    tenants.take(LOOKED_AT_MAX)
}

/// Where questions are answered.
#[derive(Debug, Default)]
pub(crate) struct Respondent {
    directory: PathBuf,
    heard: Arc<Heard>,
    mailbox: Arc<ConsoleMailbox>,
    /// Where answers go, and what has found no room there.
    link: Weak<OwnedFd>,
    outgoing: Outgoing,
    store: Option<(Instant, OpenFigures)>,
    /// Whether it was said what is wrong with the database, since it was opened.
    is_said: bool,
    /// The last two looks, the older one first.
    before: Option<Looked>,
    now: Option<Looked>,
    /// Why nothing can be sent elsewhere, as the server was told.
    unsent: String,
    /// Since when the server is asked for the next.
    asked: Option<Instant>,
    /// When it said something that makes no sense.
    garbled: Option<Instant>,
    /// Tenants whose people were answered since it was asked.
    lookers: HashSet<String>,
    /// Questions in the order they came.
    waiting: Vec<WaitingQuestion>,
    /// Whose questions were answered, of those who wait for more, the last one at the end.
    answered: Vec<Box<str>>,
    /// How full the machine is.
    outlook: KeptOutlook,
    /// What others were answered of the same look.
    kept: KeptAnswers,
    archive: ArchiveLink,
}

/// The database, and by what its figures were made.
#[derive(Debug)]
struct OpenFigures {
    store: FigureStore,
    zone: TimeZone,
    salt: SaltPeriod,
    /// Whether figures are sent to an archive.
    is_sent: bool,
}

impl OpenFigures {
    fn open(directory: &std::path::Path) -> Result<OpenFigures, StoreError> {
        let mut store = FigureStore::open_existing(directory)?;
        let zone = zone_of(&mut store)?;
        let salt = store.setting("salt")?.unwrap_or_default();
        Ok(OpenFigures {
            is_sent: store.is_sent_elsewhere(),
            store,
            zone,
            salt: SaltPeriod::of_word(&salt).unwrap_or_default(),
        })
    }

    /// When somebody asks, and which machines are known then.
    fn moment<'a>(&self, archive: &'a ArchiveLink) -> ConsoleMoment<'a> {
        let (own, machines) = archive.machines();
        let archive = ArchiveMoment {
            own,
            machines,
            said: None,
        };
        ConsoleMoment {
            now: Timestamp::now().to_zoned(self.zone.clone()),
            salt: self.salt,
            live: None,
            heard: None,
            outlook: None,
            archive: Some(archive).filter(|_| self.is_sent),
        }
    }
}

impl Respondent {
    /// Answers of the figures in this directory what comes into this mailbox.
    pub(crate) fn new(
        directory: PathBuf,
        heard: Arc<Heard>,
        mailbox: Arc<ConsoleMailbox>,
    ) -> Respondent {
        Respondent {
            directory,
            heard,
            mailbox,
            ..Respondent::default()
        }
    }

    /// Answers until nobody asks any more.
    pub(crate) fn run(mut self) {
        while self.take_news() {
            if self.turn().is_err() {
                // Who hears the server says so.
                self.forget();
            }
        }
    }

    /// Forgets what concerned a server that is heard no more.
    fn forget(&mut self) {
        self.outgoing = Outgoing::default();
        (self.before, self.now, self.asked, self.garbled) = (None, None, None, None);
        self.waiting.clear();
        self.unsent.clear();
        self.archive.forget_pages();
        self.kept = KeptAnswers::default();
    }

    /// Waits until there is something to do, and takes what is new; says whether there may be more.
    fn take_news(&mut self) -> bool {
        let wait = match (self.next(), self.outgoing.is_empty()) {
            (Some(_), _) => Duration::ZERO,
            (None, false) => AGAIN,
            (None, true) if !self.waiting.is_empty() => WAITING,
            (None, true) => IDLE,
        };
        let mailbox = Arc::clone(&self.mailbox);
        let mut news = mailbox.wait(wait);
        let is_over = news.is_over;
        let (live, questions) = (news.live.take(), std::mem::take(&mut news.questions));
        let link = news.link.clone();
        let archive = news.archive.take();
        drop(news);
        if let Some(archive) = archive {
            self.archive.use_link(archive);
        }
        if !Weak::ptr_eq(&link, &self.link) {
            self.forget();
            self.link = link;
        }
        take_on(&mut self.waiting, questions);
        if let Some((at, live)) = live {
            self.see(at, &live);
        }
        !is_over
    }

    /// Asks for what goes on now where somebody waits for it, and answers one question.
    fn turn(&mut self) -> io::Result<()> {
        self.send()?;
        let unsent = self.heard.unsent();
        if self.unsent != unsent && self.say(&FromConsole::Unsent(unsent.clone()))? {
            self.unsent = unsent;
        }
        self.mind_archive();
        let is_awaited = self.waiting.iter().any(|it| !self.is_heard(it));
        let is_asked = self.asked.is_some_and(|it| it.elapsed() <= LIVE_PATIENCE);
        if is_awaited && !is_asked {
            self.asked = Some(Instant::now());
            let look = FromConsole::Look(self.looked_at());
            self.say(&look)?;
        }
        match self.next() {
            Some(next) => {
                let WaitingQuestion {
                    who,
                    question,
                    archive,
                    ..
                } = self.waiting.remove(next);
                self.note_turn(who);
                self.answer(question, &archive)
            }
            None => Ok(()),
        }
    }

    /// Tenants whose rows are wanted, a name a line: of those who wait, and of those who will ask again.
    fn looked_at(&mut self) -> String {
        let mut named = HashSet::new();
        let waiting = self.waiting.iter().filter(|it| it.is_of_now);
        let waiting = waiting.flat_map(|it| tenants_of(&it.question.scope));
        let names = waiting.chain(self.lookers.iter().map(String::as_str));
        let names = names.filter(|name| named.insert(*name)).take(LOOKED_AT_MAX);
        let names = names.collect::<Vec<_>>().join("\n");
        self.lookers.clear();
        names
    }

    /// The question whose turn it is of those that can be answered: the operator's, then that of whose last
    /// answer is longest ago, so that who asks much waits behind who asks little.
    fn next(&self) -> Option<usize> {
        self.next_of(|it| self.is_ready(it))
    }

    fn next_of(&self, is_one: impl Fn(&WaitingQuestion) -> bool) -> Option<usize> {
        let turn = |it: &WaitingQuestion| {
            let who = it.who.as_ref()?;
            Some(self.answered.iter().position(|it| it == who))
        };
        let ready = self.waiting.iter().enumerate();
        let ready = ready.filter(|(_, it)| is_one(it));
        ready.min_by_key(|(_, it)| turn(it)).map(|(at, _)| at)
    }

    /// Notes whose turn it was.
    fn note_turn(&mut self, who: Option<Box<str>>) {
        let waits = |who: &str| { self.waiting.iter() }.any(|it| it.who.as_deref() == Some(who));
        self.answered
            .retain(|known| who.as_ref() != Some(known) && waits(known));
        self.answered.extend(who.filter(|who| waits(who)));
    }

    /// Whether a question can be answered.
    fn is_ready(&self, it: &WaitingQuestion) -> bool {
        let is_asked = matches!(it.archive, ArchiveStage::Wanted | ArchiveStage::Asked);
        self.is_heard(it) && !(is_asked && it.came.elapsed() < ARCHIVE_PATIENCE)
    }

    /// Whether a question need not wait for what goes on now, or has for long enough.
    fn is_heard(&self, it: &WaitingQuestion) -> bool {
        let is_new = |at: Instant| at >= it.came || at.elapsed() < FRESH;
        let is_of = |now: &&Looked| tenants_of(&it.question.scope).all(|tenant| now.has(tenant));
        let shown = self.now.as_ref().filter(is_of).map(|now| now.at);
        !it.is_of_now
            || shown.is_some_and(is_new)
            || self.garbled.is_some_and(|at| at >= it.came)
            || it.came.elapsed() >= LIVE_PATIENCE
    }

    /// Takes what came of the archive to whom it is for, and asks for whose turn it is.
    fn mind_archive(&mut self) {
        if let Some((page, said)) = self.archive.heard() {
            let mut waiting = self.waiting.iter_mut();
            if let Some(it) = waiting.find(|it| it.question.id == page) {
                it.archive = ArchiveStage::Said(said.into());
            }
        }
        let is_ready = self.archive.is_ready();
        let wanted = self.next_of(|it| matches!(it.archive, ArchiveStage::Wanted));
        let Some(at) = wanted.filter(|_| is_ready) else {
            return self.archive.ask_machines();
        };
        self.open();
        let Some(it) = self.waiting.get_mut(at) else {
            return;
        };
        let open = self.store.as_ref().filter(|(_, open)| open.is_sent);
        let question = open.and_then(|(_, open)| {
            console::archive_question(&it.question, &open.moment(&self.archive))
        });
        it.archive = match question {
            None => ArchiveStage::Unneeded,
            Some(question) => match self.archive.ask(it.question.id, question) {
                Some(said) => ArchiveStage::Said(said.into()),
                None => ArchiveStage::Asked,
            },
        };
    }

    /// Takes what goes on now.
    fn see(&mut self, at: Instant, live: &str) {
        (self.asked, self.garbled) = (None, None);
        match Snapshot::of_json(live) {
            Ok(snapshot) => {
                self.before = self.now.replace(Looked { at, snapshot });
                self.kept = KeptAnswers::default();
            }
            Err(error) => {
                self.garbled = Some(at);
                tracing::error!(error, "what the server says of now makes no sense");
            }
        }
    }

    /// Sends what there is room for.
    fn send(&mut self) -> io::Result<()> {
        let link = self.link.upgrade().ok_or(io::ErrorKind::BrokenPipe)?;
        self.outgoing.send(link.as_fd())
    }

    fn say(&mut self, message: &FromConsole) -> io::Result<bool> {
        let is_put = self.outgoing.put(message)?;
        self.send()?;
        Ok(is_put)
    }

    fn answer(&mut self, mut question: ConsoleQuestion, archive: &ArchiveStage) -> io::Result<()> {
        let id = std::mem::take(&mut question.id);
        let is_event = question.path == console::EVENTS;
        if is_event {
            // Its address says in which language: what else a client says makes no difference.
            question.accept_language.clear();
        }
        if console::is_of_now(&question.path) && self.lookers.len() < LOOKED_AT_MAX {
            let tenants = tenants_of(&question.scope).map(str::to_owned);
            self.lookers.extend(tenants);
        }
        let kept = self.kept.get(&question).filter(|_| is_event);
        let mut answer = match kept {
            Some(kept) => kept,
            None => {
                let answer = self.drawn(&question, archive);
                if is_event {
                    self.kept.keep(question, &answer);
                }
                answer
            }
        };
        answer.id = id;
        if !self.say(&FromConsole::Answer(answer))? {
            let long = ConsoleAnswer {
                id,
                ..failure(500, "This page is too long; ask for fewer days or names.\n")
            };
            self.say(&FromConsole::Answer(long))?;
        }
        Ok(())
    }

    /// Opens the database, where that was not done lately.
    fn open(&mut self) {
        self.store.take_if(|(at, _)| at.elapsed() > STORE_AGE_MAX);
        if self.store.is_none() {
            match OpenFigures::open(&self.directory) {
                Ok(open) => {
                    self.store = Some((Instant::now(), open));
                    self.is_said = false;
                }
                Err(error) => self.note(&error),
            }
        }
    }

    /// Says what is wrong with the database, once: people may ask as often as they like.
    fn note(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_said, true) {
            tracing::warn!("the console cannot show all figures: {error}");
        }
    }

    /// Draws the page that is asked for.
    fn drawn(&mut self, question: &ConsoleQuestion, archive: &ArchiveStage) -> ConsoleAnswer {
        self.open();
        self.archive.note_look();
        // Where the server says nothing, what was known is shown for a while.
        self.now.take_if(|it| it.at.elapsed() > BEFORE_MAX);
        let Some((_, open)) = &mut self.store else {
            return failure(503, "The figures cannot be read; the error log says why.\n");
        };
        open.store.give_up_at(Instant::now() + READ_MAX);
        let (alerts, owners) = (self.heard.alerts(), self.heard.owners());
        let before = self.before.as_ref().zip(self.now.as_ref());
        let before = before.map(|(before, now)| (before, now.at.duration_since(before.at)));
        let before = before.filter(|(_, since)| *since <= BEFORE_MAX);
        let live = self.now.as_ref().map(|now| Live {
            now: &now.snapshot,
            before: before.map(|(before, since)| (&before.snapshot.status, since.as_secs_f64())),
            alerts: &alerts,
            owners: &owners,
        });
        let mut moment = ConsoleMoment {
            live: live.as_ref(),
            heard: Some(&self.heard),
            outlook: Some(&self.outlook),
            ..open.moment(&self.archive)
        };
        if let (Some(known), ArchiveStage::Said(said)) = (&mut moment.archive, archive) {
            known.said = Some((&said.0, &said.1));
        }
        let (answer, why) = console::answer_and_why(&open.store, question, &moment);
        if let Some(error) = why.filter(|error| !error.is_late()) {
            self.note(&error);
        }
        answer
    }
}

/// An answer that there is none.
fn failure(status: u16, body: &str) -> ConsoleAnswer {
    ConsoleAnswer {
        status,
        content_type: "text/plain; charset=utf-8".to_owned(),
        body: body.to_owned(),
        ..ConsoleAnswer::default()
    }
}

#[cfg(test)]
mod tests;
