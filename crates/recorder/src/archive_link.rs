//! The link over which the archive is asked for the console: one question at a time, for which nothing waits here.
//!
//! The idea: a question is put, and looked for again; pages of this machine are drawn meanwhile. One that is away is
//! remembered for some seconds, so that not everybody waits for it. Which machines there are is kept, for pages that
//! are not of the archive, and asked again now and then.
//!
//! Left out: whose turn it is ([`crate::respondent`]), and what is asked (`crate::console`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use config::reason;
use ipc::archive::ArchiveEnd;
use ipc::archive::question::{ArchiveAnswer, ArchiveQuestion, ArchiveRead, ArchivedMachine};

/// How long nothing may come of an answer: longer than the process that asks the database gives it.
const ANSWER_MAX: Duration = Duration::from_secs(6);
/// How long one that is away is taken to be.
const AWAY_MAX: Duration = Duration::from_secs(5);
/// How often it is asked which machines there are, while somebody looks at pages.
const MACHINES_EVERY: Duration = Duration::from_secs(30);

/// The link, and what is known by it.
#[derive(Debug, Default)]
pub(crate) struct ArchiveLink {
    link: Option<OwnedFd>,
    end: ArchiveEnd<ArchiveAnswer>,
    /// The number of what was asked last.
    id: u64,
    asked: Option<UnderWay>,
    away: Option<(Instant, ArchiveRead)>,
    own: String,
    machines: Vec<ArchivedMachine>,
    /// When it was asked which machines there are, and whether somebody wants to know.
    machines_asked: Option<Instant>,
    is_looked_at: bool,
}

#[derive(Debug)]
struct UnderWay {
    /// When it was put, or something came of its answer, which has so many bytes by now.
    since: Instant,
    bytes: usize,
    /// For whom: the number of the console's question, if it is for one.
    page: Option<u64>,
    question: ArchiveQuestion,
}

/// What was asked for a page, and what came of it.
pub(crate) type SaidForPage = (ArchiveQuestion, ArchiveRead);

impl ArchiveLink {
    /// Asks over this link from now on.
    pub(crate) fn use_link(&mut self, link: OwnedFd) {
        self.link = Some(link);
        self.end = ArchiveEnd::default();
        (self.away, self.machines_asked, self.is_looked_at) = (None, None, true);
        if let Some(UnderWay { page, question, .. }) = self.asked.take() {
            self.put(page, question);
        }
    }

    /// What this machine is called, and which there are.
    pub(crate) fn machines(&self) -> (&str, &[ArchivedMachine]) {
        (&self.own, &self.machines)
    }

    /// Somebody looks at pages on which machines may be chosen.
    pub(crate) fn note_look(&mut self) {
        self.is_looked_at = true;
    }

    /// Nobody waits any more for what was asked for a page.
    pub(crate) fn forget_pages(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.page = None;
        }
    }

    /// Whether something can be asked, or it is known what would be said.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.away.take_if(|(at, _)| at.elapsed() > AWAY_MAX);
        self.asked.is_none() || self.away.is_some()
    }

    /// Asks for a page, where it is ready; what is to be said at once, where that is known.
    pub(crate) fn ask(&mut self, page: u64, question: ArchiveQuestion) -> Option<SaidForPage> {
        if let Some((_, away)) = &self.away {
            return Some((question, away.clone()));
        }
        if !question.is_bounded() {
            return Some((question, ArchiveRead::TooMuch));
        }
        self.put(Some(page), question);
        None
    }

    /// Asks which machines there are, where somebody wants to know and it is time to.
    pub(crate) fn ask_machines(&mut self) {
        let is_due = |at: Instant| at.elapsed() >= MACHINES_EVERY;
        let is_busy = self.asked.is_some() || self.away.is_some() || self.link.is_none();
        if self.is_looked_at && !is_busy && self.machines_asked.is_none_or(is_due) {
            self.machines_asked = Some(Instant::now());
            self.is_looked_at = false;
            self.put(None, ArchiveQuestion::default());
        }
    }

    fn put(&mut self, page: Option<u64>, mut question: ArchiveQuestion) {
        self.id += 1;
        question.id = self.id;
        // What finds no room is late: before it something is that nobody reads.
        let sent = self.end.put(&question).and_then(|_| match &self.link {
            Some(link) => self.end.send(link.as_fd()),
            None => Ok(false),
        });
        if let Err(error) = sent {
            self.lose(&error);
        }
        let since = Instant::now();
        self.asked = Some(UnderWay {
            since,
            bytes: 0,
            page,
            question,
        });
    }

    /// What has come of what was asked for a page: its number, and that.
    pub(crate) fn heard(&mut self) -> Option<(u64, SaidForPage)> {
        let id = self.asked.as_ref()?.question.id;
        let received = self.receive(id);
        let asked = self.asked.as_mut()?;
        let bytes = self.end.bytes_come();
        if std::mem::replace(&mut asked.bytes, bytes) < bytes {
            asked.since = Instant::now();
        }
        let said = match received {
            Ok(Some(said)) => said,
            Ok(None) if asked.since.elapsed() < ANSWER_MAX => return None,
            Ok(None) => ArchiveRead::Late,
            Err(error) => {
                self.lose(&error);
                let why = "there is no link to the process that has the connection";
                ArchiveRead::Down(why.to_owned())
            }
        };
        match &said {
            ArchiveRead::Found(found) => {
                self.own.clone_from(&found.own);
                self.machines.clone_from(&found.machines);
                self.machines_asked = Some(Instant::now());
            }
            ArchiveRead::Down(_) => self.away = Some((Instant::now(), said.clone())),
            ArchiveRead::TooMuch | ArchiveRead::Late | ArchiveRead::Failed(_) => {}
        }
        let asked = self.asked.take()?;
        Some((asked.page?, (asked.question, said)))
    }

    fn receive(&mut self, wanted: u64) -> io::Result<Option<ArchiveRead>> {
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        self.end.send(link.as_fd())?;
        while let Some(ArchiveAnswer { id, said }) = self.end.receive(link.as_fd())? {
            if id == wanted {
                return Ok(Some(said.bounded()));
            }
        }
        Ok(None)
    }

    /// Uses a link no more that has gone, or over which nonsense comes.
    fn lose(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            let error = reason(error);
            tracing::error!(error, "the directory process is not understood");
        }
        self.link = None;
    }
}
