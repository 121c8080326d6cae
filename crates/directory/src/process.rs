//! The directory process: it hears questions over a link and answers each.
//!
//! The idea: one thread with a runtime of its own. Each question is a task that ends in bounded time; what
//! is to be said waits in one queue. It has passwords and connections, no privilege, and no listener; it ends with
//! the supervisor's link.

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
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::asker::{Asker, Word};

/// Words that wait to be said.
const WORDS_MAX: usize = 4_096;
/// Questions that are heard at once.
const HEARD_MAX: usize = 256;
/// Descriptors: connections, the snapshot's files and a few.
const DESCRIPTORS_MAX: u64 = 4_096;
/// Threads for what may block: files, users.
const THREADS_MAX: usize = 8;
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
    /// `None` stands for one that can never be asked, and why.
    askers: Vec<Result<Rc<Asker>, String>>,
    words: mpsc::Sender<Word>,
    server: Option<AsyncFd<OwnedFd>>,
    outgoing: Outgoing,
}

async fn serve(link: OwnedFd, settings: Vec<DirectorySettings>) -> io::Result<()> {
    let (words, mut said) = mpsc::channel(WORDS_MAX);
    let mut serving = Serving {
        askers: Vec::new(),
        words,
        server: None,
        outgoing: Outgoing::default(),
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
async fn heard(server: Option<&AsyncFd<OwnedFd>>) -> io::Result<Vec<ToDirectory>> {
    let Some(server) = server else {
        return std::future::pending().await;
    };
    loop {
        let mut ready = server.readable().await?;
        let mut heard = Vec::new();
        while heard.len() < HEARD_MAX {
            match ToDirectory::try_recv(server.get_ref().as_fd())? {
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
        }
        Ok(())
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
