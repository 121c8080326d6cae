//! The thread that speaks with the directory process: it carries questions there, and answers back.
//!
//! The idea: it alone has the link, and no worker waits but for an answer it wants. The process is taken as
//! hostile: what it says has a bound, an answer to no question is dropped, and a message that is none ends the
//! link. What goes unanswered for long is given up, and asked again by whoever wants it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ipc::console::Outgoing;
use ipc::directory::{DirectoryMessage, FromDirectory, RowAnswer, ToDirectory};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::rows::Rows;
use super::table::Question;
use crate::io::register;
use crate::linked_thread::{LinkedThread, tell_lost};

/// Questions whose answers are awaited.
const AWAITED_MAX: usize = 1_024;
/// How long one is awaited at most: the process answers within the directory's `wait`.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often the process is asked how it is, and what it does not answer is given up.
const LOOK: Duration = Duration::from_secs(1);

/// A link, and the directories' names in the order they have there.
pub(crate) struct DirectoryLink {
    pub(crate) link: OwnedFd,
    pub(crate) names: Vec<String>,
}

/// Whom it speaks with.
const WITH: &str = "the directory process";

/// Starts the thread, without a link.
///
/// # Errors
/// When no thread or no runtime can be had.
pub(crate) fn start(rows: Arc<Rows>) -> io::Result<LinkedThread<DirectoryLink>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let body = move |links| runtime.block_on(run(&rows, links));
    LinkedThread::start("directory", WITH, body)
}

async fn run(rows: &Rows, mut links: mpsc::Receiver<DirectoryLink>) {
    let mut next = links.recv().await;
    while let Some(DirectoryLink { link, names }) = next {
        let spoken = match register(link, Interest::READABLE | Interest::WRITABLE) {
            Ok(link) => {
                rows.directories.note_linked(true);
                let mut conversation = Conversation {
                    rows,
                    names: &names,
                    outgoing: Outgoing::default(),
                    awaited: HashMap::new(),
                    next_id: 0,
                };
                let spoken = conversation.go_on(&link, &mut links).await;
                rows.directories.note_linked(false);
                spoken
            }
            Err(error) => Err(error),
        };
        next = match spoken {
            Ok(link) => link,
            Err(error) => {
                tell_lost(WITH, &error);
                links.recv().await
            }
        };
    }
}

/// What is said over one link.
struct Conversation<'a> {
    rows: &'a Rows,
    names: &'a [String],
    outgoing: Outgoing,
    awaited: HashMap<u64, (Question, Instant)>,
    next_id: u64,
}

impl Conversation<'_> {
    /// Speaks until there is another link, which it gives, or the server ends.
    ///
    /// # Errors
    /// When the process has gone, or says what cannot be understood.
    async fn go_on(
        &mut self,
        link: &AsyncFd<OwnedFd>,
        links: &mut mpsc::Receiver<DirectoryLink>,
    ) -> io::Result<Option<DirectoryLink>> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let wait = self.ask()?;
            tokio::select! {
                next = links.recv() => return Ok(next),
                ready = link.readable() => match FromDirectory::try_recv(link.get_ref().as_fd())? {
                    Some(message) => self.hear(message),
                    None => ready?.clear_ready(),
                },
                ready = link.writable(), if !self.outgoing.is_empty() => {
                    self.outgoing.send(link.get_ref().as_fd())?;
                    if !self.outgoing.is_empty() {
                        ready?.clear_ready();
                    }
                }
                () = self.rows.directories.asks.notified() => {}
                () = sleep(wait.unwrap_or(LOOK)), if wait.is_some() => {}
                _ = looks.tick() => self.look()?,
            }
        }
    }

    /// Asks what may be asked now; when there may be more.
    fn ask(&mut self) -> io::Result<Option<Duration>> {
        let most = AWAITED_MAX.saturating_sub(self.awaited.len());
        // What waits in the way is sent first.
        if most == 0 || !self.outgoing.is_empty() {
            return Ok(None);
        }
        self.tell_forgotten()?;
        let now_ms = self.rows.now_ms(Instant::now());
        let (questions, wait_ms) = self.rows.directories.questions(most, now_ms);
        for question in questions {
            self.put(question)?;
        }
        Ok(wait_ms.map(Duration::from_millis))
    }

    /// Has the process forget what an operator wants forgotten.
    fn tell_forgotten(&mut self) -> io::Result<()> {
        let forgotten = self.rows.directories.forgotten.lock();
        let forgotten = std::mem::take(&mut *forgotten.unwrap_or_else(PoisonError::into_inner));
        for host in forgotten {
            let told = ToDirectory::Forget {
                directory: None,
                host,
            };
            told.put(&mut self.outgoing)?;
        }
        Ok(())
    }

    fn put(&mut self, question: Question) -> io::Result<()> {
        let at = self
            .names
            .iter()
            .position(|name| *name == question.directory);
        let Some(directory) = at.and_then(|at| u16::try_from(at).ok()) else {
            self.give_up(&question, "the directory process does not have it yet");
            return Ok(());
        };
        self.next_id += 1;
        let asked = ToDirectory::Ask {
            directory,
            host: question.host.clone(),
            id: self.next_id,
        };
        match asked.put(&mut self.outgoing)? {
            true => {
                self.awaited
                    .insert(self.next_id, (question, Instant::now()));
            }
            false => self.give_up(&question, "too much is to be said to the directory process"),
        }
        Ok(())
    }

    fn give_up(&self, question: &Question, why: &str) {
        let now_ms = self.rows.now_ms(Instant::now());
        let answer = RowAnswer::Down(why.to_owned());
        self.rows.directories.hear(question, answer, 0, now_ms);
    }

    fn hear(&mut self, message: FromDirectory) {
        let now_ms = self.rows.now_ms(Instant::now());
        match message {
            FromDirectory::Answer {
                id,
                host,
                answer,
                age_ms,
                ..
            } => {
                let Some((question, _)) = self.awaited.remove(&id) else {
                    return;
                };
                let answer = match host == question.host {
                    true => answer,
                    false => RowAnswer::Down("another host was answered for".to_owned()),
                };
                self.rows
                    .directories
                    .hear(&question, answer, age_ms, now_ms);
            }
            FromDirectory::Changed { directory, host } => {
                if let Some(name) = self.names.get(usize::from(directory)) {
                    self.rows.directories.outdate(Some(name), host.as_deref());
                }
            }
            FromDirectory::State { first, states, .. } => {
                let names = self.names.iter().skip(usize::from(first));
                let known = self.rows.directories.states.lock();
                let mut known = known.unwrap_or_else(PoisonError::into_inner);
                for (name, state) in names.zip(states) {
                    known.retain(|(other, _)| other != name);
                    known.push((name.clone(), state));
                }
            }
        }
    }

    /// Asks how the directories are, and gives up what was not answered.
    fn look(&mut self) -> io::Result<()> {
        let late: Vec<u64> = self
            .awaited
            .iter()
            .filter(|(_, (_, since))| since.elapsed() > ANSWER_MAX)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            if let Some((question, _)) = self.awaited.remove(&id) {
                self.give_up(&question, "the directory process does not answer");
            }
        }
        self.next_id += 1;
        ToDirectory::State { id: self.next_id }
            .put(&mut self.outgoing)
            .map(drop)
    }
}
