//! The directory process: it hears questions over a link and answers each.
//!
//! The idea: one thread with a runtime of its own. Each question is a task that ends in bounded time; what
//! is to be said waits in one queue. It has passwords and connections, no privilege, and no listener; it ends with
//! the supervisor's link.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use config::reason;
use ipc::console::Outgoing;
use ipc::directory::{
    DirectoryMessage, DirectoryOrder, DirectorySettings, DirectoryState, FromDirectory, RowAnswer,
    STATES_MAX, ToDirectory,
};
use ipc::fleet::{FleetAnswer, FleetSaid, FleetSettings, ToFleet};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::archive::{self, Archive, KnownArchive, reading};
use crate::asker::{Asker, Word};
use crate::fleet::FleetAsker;

/// Words that wait to be said.
const WORDS_MAX: usize = 4_096;
/// Questions that are heard at once.
const HEARD_MAX: usize = 256;
/// Descriptors: connections, the snapshot's files and a few.
const DESCRIPTORS_MAX: u64 = 4_096;
/// Threads for what may block: files, users.
const THREADS_MAX: usize = 8;
/// How long the fleet's store is left alone that was not to be heard.
const LISTEN_REST: Duration = Duration::from_secs(1);
/// What is said of a server whose settings have not come.
const UNREAD: &str = "its files could not be read yet: the error log says which";
/// How long the last lines of the error log may take.
const FLUSH: Duration = Duration::from_secs(1);

/// Answers until the supervisor has gone: the life of the process.
#[must_use]
pub fn run(user: &str) -> ExitCode {
    let dropped = os::confine::bar_capabilities()
        .and_then(|()| os::process::drop_privileges(user))
        .and_then(|()| os::confine::forget_capabilities());
    error_log::start("directory");
    let ran = dropped.and_then(|()| begin());
    if let Err(error) = &ran {
        tracing::error!(
            error = reason(error),
            user,
            "the directory process cannot go on"
        );
    }
    error_log::flush(FLUSH);
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Shuts this process in, hears by what it works, and works.
fn begin() -> io::Result<()> {
    os::process::set_name("nagaya-director");
    let link = os::process::take_stdin()?;
    os::confine::close_all_but(&link)?;
    os::process::die_with_parent(&link)?;
    os::confine::bound_descriptors(DESCRIPTORS_MAX)?;
    // Passwords are in its memory.
    os::confine::hide_memory()?;
    let settings = match DirectoryOrder::recv(link.as_fd()) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        Ok(DirectoryOrder::Settings(settings)) => settings,
        Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
        Err(error) => return Err(error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS_MAX)
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(link, settings))
}

/// What the loop has.
struct Serving {
    /// The store that machines share, or why it can never be asked.
    fleet: Option<Result<Rc<FleetAsker>, String>>,
    fleet_words: mpsc::Sender<FleetAnswer>,
    fleet_server: Option<AsyncFd<OwnedFd>>,
    fleet_outgoing: Outgoing,
    /// `None` stands for one that can never be asked, and why.
    askers: Vec<Result<Rc<Asker>, String>>,
    words: mpsc::Sender<Word>,
    server: Option<AsyncFd<OwnedFd>>,
    outgoing: Outgoing,
    /// The database that the recorder sends to, and what answers what it sends and what it asks.
    archive: KnownArchive,
    archivists: [Option<AbortHandle>; 2],
}

async fn serve(link: OwnedFd, settings: Vec<DirectorySettings>) -> io::Result<()> {
    let (words, mut said) = mpsc::channel(WORDS_MAX);
    let (fleet_words, mut fleet_said) = mpsc::channel(WORDS_MAX);
    let mut serving = Serving {
        fleet: None,
        fleet_words,
        fleet_server: None,
        fleet_outgoing: Outgoing::default(),
        askers: Vec::new(),
        words,
        server: None,
        outgoing: Outgoing::default(),
        archive: Rc::new(RefCell::new(Err(UNREAD.to_owned()))),
        archivists: [None, None],
    };
    serving.open(settings);
    let supervisor = register(link, Interest::READABLE)?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            ready = supervisor.readable() => {
                if !serving.obey_all(supervisor.get_ref().as_fd())? {
                    return Ok(());
                }
                ready?.clear_ready();
            }
            heard = heard(serving.server.as_ref()) => serving.hear(heard),
            Some(word) = said.recv() => serving.say(&word),
            () = room(serving.server.as_ref()), if !serving.outgoing.is_empty() => serving.send(),
            heard = heard(serving.fleet_server.as_ref()) => serving.hear_of_fleet(heard),
            Some(word) = fleet_said.recv() => serving.say_of_fleet(&word),
            () = room(serving.fleet_server.as_ref()), if !serving.fleet_outgoing.is_empty() => {
                serving.send_of_fleet();
            }
            _ = second.tick() => serving.askers.iter().flatten().for_each(|asker| asker.sweep()),
        }
    }
}

#[allow(
    deprecated,
    reason = "unsound only for types whose descriptor may change; an OwnedFd's can't"
)]
fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

/// What the server says next, or that it has gone; never without one.
async fn heard<M: DirectoryMessage>(server: Option<&AsyncFd<OwnedFd>>) -> io::Result<Vec<M>> {
    let Some(server) = server else {
        return std::future::pending().await;
    };
    loop {
        let mut ready = server.readable().await?;
        let mut heard = Vec::new();
        while heard.len() < HEARD_MAX {
            match M::try_recv(server.get_ref().as_fd())? {
                Some(word) => heard.push(word),
                None => {
                    ready.clear_ready();
                    break;
                }
            }
        }
        if !heard.is_empty() {
            return Ok(heard);
        }
    }
}

/// Waits until something can be said.
async fn room(server: Option<&AsyncFd<OwnedFd>>) {
    match server {
        // What goes wrong is seen when something is sent.
        Some(server) => match server.writable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Passes the calls of the store on, for as long as the process lives: whoever asks hears why the store does not answer.
async fn listen(asker: Rc<FleetAsker>, words: mpsc::Sender<FleetAnswer>) {
    loop {
        match asker.listen().await {
            Ok(Some(call)) => {
                // Nobody listens where the process is about to end.
                let _ = words.send(call).await;
            }
            Ok(None) => {}
            Err(_) => tokio::time::sleep(LISTEN_REST).await,
        }
    }
}

/// Answers what was asked of the fleet's store.
async fn answer_of_fleet(
    asker: Rc<FleetAsker>,
    question: ToFleet,
    words: mpsc::Sender<FleetAnswer>,
) {
    let answers = match question {
        ToFleet::Ask(question) => vec![asker.ask(question).await],
        ToFleet::Tell { report, obeyed } => Vec::from_iter(asker.tell(&report, obeyed).await),
        ToFleet::List { id, order } => asker.list(id, order.as_ref()).await,
    };
    for answer in answers {
        // Nobody listens where the process is about to end.
        let _ = words.send(answer).await;
    }
}

impl Serving {
    fn open(&mut self, settings: Vec<DirectorySettings>) {
        for (place, settings) in settings.into_iter().enumerate() {
            let name = settings.name.clone();
            let place = u16::try_from(place).unwrap_or(u16::MAX);
            let asker = Asker::new(settings, place, self.words.clone());
            match &asker {
                Ok(asker) => asker.begin(),
                Err(why) => {
                    tracing::error!(directory = name, "the directory cannot be asked: {why}")
                }
            }
            self.askers.push(asker);
        }
    }

    /// Does what the supervisor has said so far; `false` where it has gone.
    fn obey_all(&mut self, link: BorrowedFd<'_>) -> io::Result<bool> {
        while os::net::wait_readable(&[link], Some(Duration::ZERO))?.contains(&true) {
            // A whole order follows its first byte.
            match DirectoryOrder::recv(link) {
                Ok(order) => self.obey(order)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn obey(&mut self, order: DirectoryOrder) -> io::Result<()> {
        match order {
            DirectoryOrder::Settings(_) => return Err(io::ErrorKind::InvalidData.into()),
            DirectoryOrder::Fleet(settings) => self.open_fleet(settings),
            DirectoryOrder::Tenants(tenants) => {
                self.askers
                    .iter()
                    .flatten()
                    .for_each(|asker| asker.keep_from(&tenants));
            }
            DirectoryOrder::Link(link) => {
                self.outgoing = Outgoing::default();
                self.server = Some(register(link, Interest::READABLE | Interest::WRITABLE)?);
            }
            DirectoryOrder::Archive(settings) => {
                let archive = Archive::new(settings);
                if let Err(why) = &archive {
                    tracing::error!("the database that figures are sent to cannot be used: {why}");
                }
                *self.archive.borrow_mut() = archive.map(Rc::new);
            }
            DirectoryOrder::ArchiveLinks { sending, asking } => {
                // What one that has gone has sent and is not written is sent again.
                self.archivists
                    .iter()
                    .flatten()
                    .for_each(AbortHandle::abort);
                let both = Interest::READABLE | Interest::WRITABLE;
                let sending = archive::serve(register(sending, both)?, Rc::clone(&self.archive));
                let asking = reading::serve(register(asking, both)?, Rc::clone(&self.archive));
                self.archivists = [
                    Some(tokio::task::spawn_local(sending).abort_handle()),
                    Some(tokio::task::spawn_local(asking).abort_handle()),
                ];
            }
            DirectoryOrder::FleetLink(link) => {
                self.fleet_outgoing = Outgoing::default();
                self.fleet_server = Some(register(link, Interest::READABLE | Interest::WRITABLE)?);
            }
        }
        Ok(())
    }

    fn open_fleet(&mut self, settings: FleetSettings) {
        let asker = FleetAsker::new(settings);
        if let Err(why) = &asker {
            tracing::error!("the fleet's store cannot be asked: {why}");
        }
        let asker = asker.map(Rc::new);
        if let Ok(asker) = &asker {
            let (asker, words) = (Rc::clone(asker), self.fleet_words.clone());
            let followed = Rc::clone(&asker);
            tokio::task::spawn_local(async move { followed.follow_sentinels().await });
            tokio::task::spawn_local(listen(asker, words));
        }
        self.fleet = Some(asker);
    }

    /// Has the store asked, as [`Self::hear`] deals with what is said of rows.
    fn hear_of_fleet(&mut self, heard: io::Result<Vec<ToFleet>>) {
        let questions = match heard {
            Ok(questions) => questions,
            Err(error) => {
                if error.kind() != io::ErrorKind::UnexpectedEof {
                    tracing::error!(error = reason(&error), "the server is not understood");
                }
                self.fleet_server = None;
                return;
            }
        };
        for question in questions {
            let why = match &self.fleet {
                Some(Ok(asker)) => {
                    let (asker, words) = (Rc::clone(asker), self.fleet_words.clone());
                    tokio::task::spawn_local(answer_of_fleet(asker, question, words));
                    continue;
                }
                Some(Err(why)) => why.clone(),
                None => UNREAD.to_owned(),
            };
            let (seq, said) = match question {
                ToFleet::Ask(question) => (question.seq, FleetSaid::Down(why)),
                ToFleet::List { id, .. } => (id, FleetSaid::Listed(Err(why))),
                ToFleet::Tell { .. } => continue,
            };
            self.say_of_fleet(&FleetAnswer { seq, said });
        }
    }

    fn say_of_fleet(&mut self, word: &FleetAnswer) {
        if self.fleet_server.is_none() {
            return;
        }
        if let Err(error) = word.put(&mut self.fleet_outgoing) {
            tracing::error!(error = reason(&error), "an answer cannot be sent");
        }
        self.send_of_fleet();
    }

    fn send_of_fleet(&mut self) {
        let Some(server) = &self.fleet_server else {
            return;
        };
        if self.fleet_outgoing.send(server.get_ref().as_fd()).is_err() {
            self.fleet_server = None;
        }
    }

    /// Deals with what the server says; one that says nonsense, or has gone, is heard no more.
    fn hear(&mut self, heard: io::Result<Vec<ToDirectory>>) {
        match heard {
            Ok(words) => words.into_iter().for_each(|word| self.answer(word)),
            Err(error) => {
                if error.kind() != io::ErrorKind::UnexpectedEof {
                    tracing::error!(error = reason(&error), "the server is not understood");
                }
                self.server = None;
            }
        }
    }

    fn answer(&mut self, word: ToDirectory) {
        match word {
            ToDirectory::Ask {
                directory,
                host,
                id,
            } => self.ask(directory, host, id),
            ToDirectory::Forget { directory, host } => {
                for asker in self.askers.iter().flatten() {
                    if directory.is_none_or(|place| place == asker.place) {
                        let (asker, host) = (Rc::clone(asker), host.clone());
                        tokio::task::spawn_local(async move { asker.forget(host).await });
                    }
                }
            }
            ToDirectory::State { id } => self.tell_state(id),
        }
    }

    fn ask(&mut self, directory: u16, host: String, id: u64) {
        let answer =
            move |host: String, (answer, age_ms): (RowAnswer, u64)| FromDirectory::Answer {
                id,
                directory,
                host,
                answer,
                age_ms,
            };
        match self.askers.get(usize::from(directory)) {
            Some(Ok(asker)) => {
                let (asker, words) = (Rc::clone(asker), self.words.clone());
                tokio::task::spawn_local(async move {
                    let found = asker.ask(&host).await;
                    // Nobody listens where the process is about to end.
                    let _ = words.send(answer(host, found)).await;
                });
            }
            Some(Err(why)) => {
                let mut why = why.clone();
                ipc::codec::cut(&mut why, ipc::directory::REASON_BYTES_MAX);
                self.say(&answer(host, (RowAnswer::Down(why), 0)));
            }
            None => {
                let why = "there is no such directory".to_owned();
                self.say(&answer(host, (RowAnswer::Down(why), 0)));
            }
        }
    }

    fn tell_state(&mut self, id: u64) {
        let state = |asker: &Result<Rc<Asker>, String>| match asker {
            Ok(asker) => asker.state(),
            Err(_) => DirectoryState::default(),
        };
        let states: Vec<_> = self.askers.iter().map(state).collect();
        for (number, states) in states.chunks(STATES_MAX).enumerate() {
            let word = FromDirectory::State {
                id,
                first: u16::try_from(number * STATES_MAX).unwrap_or(u16::MAX),
                states: states.to_vec(),
            };
            self.say(&word);
        }
    }

    /// Has something sent; what finds no room is dropped, and asked for again.
    fn say(&mut self, word: &FromDirectory) {
        if self.server.is_none() {
            return;
        }
        if let Err(error) = word.put(&mut self.outgoing) {
            tracing::error!(error = reason(&error), "an answer cannot be sent");
        }
        self.send();
    }

    fn send(&mut self) {
        let Some(server) = &self.server else {
            return;
        };
        if self.outgoing.send(server.get_ref().as_fd()).is_err() {
            self.server = None;
        }
    }
}
