//! An evaluation that stops for answers and goes on with them; nothing is done twice.
//!
//! What is evaluated is written straight down as `async` functions that nobody's runtime drives:
//! each poll runs to the next question. Answers about files are kept for the request.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::decide::Traced;
use crate::request::Stop;
use crate::work::Work;

/// Questions about files in one evaluation.
pub const QUESTIONS_MAX: usize = 512;
/// Steps of a question about a file.
const QUESTION_STEPS: usize = 64;
/// Steps of a question about who asks: a password may be compared for it.
const USER_STEPS: usize = 10_000;
/// Lines of an explanation.
const TRACE_MAX: usize = 10_000;

/// What an evaluation has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// What is at this path? What lies outside of what the site may read is not there.
    File(Vec<u8>),
    /// Who is it that asks? The `Authorization` of the request, against these files.
    User {
        /// What the client is told it is asked for.
        realm: Vec<u8>,
        /// The file of users.
        user_file: Vec<u8>,
        /// The file of groups, where one is needed.
        group_file: Option<Vec<u8>>,
    },
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// What is at a path.
    File(FileFacts),
    /// Who asks.
    User(UserTold),
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// What it is, links followed.
    pub kind: FileKind,
    /// Whether the path itself is a symbolic link.
    pub is_link: bool,
    /// Its size.
    pub bytes: u64,
    /// Whether anybody may execute it.
    pub is_executable: bool,
}

impl FileFacts {
    /// Nothing is there.
    pub const MISSING: Self = Self {
        kind: FileKind::Missing,
        is_link: false,
        bytes: 0,
        is_executable: false,
    };
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// It is not there.
    Missing,
    /// A file.
    Regular,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserTold {
    /// Nobody that the file knows with this password.
    Nobody,
    /// Somebody it knows.
    Known {
        /// The name.
        name: Vec<u8>,
        /// The groups that the other file says.
        groups: Vec<Vec<u8>>,
    },
    /// A file is missing or cannot be read: which one, and why.
    Unreadable(String),
}

/// How far an evaluation has come.
#[derive(Debug)]
pub enum Progress<'a, T> {
    /// It waits for an answer.
    Asks(Question, Paused<'a, T>),
    /// It is over.
    Done(T),
}

impl<T> Progress<'_, T> {
    /// Goes on to the end with answers that are at hand.
    pub fn finish(mut self, mut answer: impl FnMut(&Question) -> Told) -> T {
        loop {
            match self {
                Progress::Done(result) => return result,
                Progress::Asks(question, waiting) => self = waiting.answer(answer(&question)),
            }
        }
    }
}

/// An evaluation that waits for the answer to its question.
pub struct Paused<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    asker: Asker,
}

impl<T> std::fmt::Debug for Paused<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Paused")
    }
}

impl<'a, T> Paused<'a, T> {
    /// Goes on with the answer.
    pub fn answer(self, told: Told) -> Progress<'a, T> {
        self.asker.0.told.replace(Some(told));
        self.go_on()
    }

    fn go_on(mut self) -> Progress<'a, T> {
        let mut context = Context::from_waker(Waker::noop());
        match self.future.as_mut().poll(&mut context) {
            Poll::Ready(result) => Progress::Done(result),
            Poll::Pending => {
                let question = self.asker.0.question.take();
                Progress::Asks(question.expect("whoever waits has asked"), self)
            }
        }
    }
}

/// Begins an evaluation for a request for which so many steps were taken before, and goes on to its
/// first question.
pub(crate) fn begin<'a, T, F>(spent: u64, begun: impl FnOnce(Asker) -> F) -> Progress<'a, T>
where
    F: Future<Output = T> + 'a,
{
    let asker = Asker(Rc::new(Slot {
        work: Work::after(spent),
        ..Slot::default()
    }));
    let future = Box::pin(begun(asker.clone()));
    Paused { future, asker }.go_on()
}

/// The way to ask, and what is kept of the answers.
#[derive(Clone)]
pub(crate) struct Asker(Rc<Slot>);

#[derive(Default)]
struct Slot {
    question: RefCell<Option<Question>>,
    told: RefCell<Option<Told>>,
    files: RefCell<Vec<(Vec<u8>, FileFacts)>>,
    work: Work,
    /// The directory whose file is being gone through.
    directory: RefCell<Option<Arc<[u8]>>>,
    trace: RefCell<Option<Vec<Traced>>>,
}

impl Asker {
    async fn ask(&self, question: Question) -> Told {
        self.0.question.replace(Some(question));
        poll_fn(|_| match self.0.told.take() {
            Some(told) => Poll::Ready(told),
            None => Poll::Pending,
        })
        .await
    }

    /// What is at a path.
    pub(crate) async fn file(&self, path: &[u8]) -> Result<FileFacts, Stop> {
        if let Some(facts) = self.kept(path)? {
            return Ok(facts);
        }
        // A path is absolute, and ends where C would end it.
        if !path.starts_with(b"/") || path.contains(&0) {
            return Ok(FileFacts::MISSING);
        }
        self.spend(QUESTION_STEPS)?;
        let facts = match self.ask(Question::File(path.to_vec())).await {
            Told::File(facts) => facts,
            Told::User(_) => FileFacts::MISSING,
        };
        self.0.files.borrow_mut().push((path.to_vec(), facts));
        Ok(facts)
    }

    /// What was answered about a path before.
    fn kept(&self, path: &[u8]) -> Result<Option<FileFacts>, Stop> {
        let known = self.0.files.borrow();
        self.spend(1 + known.len() / 8)?;
        let found = known.iter().find(|(have, _)| have == path);
        match found {
            None if known.len() >= QUESTIONS_MAX => Err(Stop::new(500, "htaccess_loop")),
            found => Ok(found.map(|(_, facts)| *facts)),
        }
    }

    /// Who asks.
    pub(crate) async fn user(&self, question: Question) -> Result<UserTold, Stop> {
        self.spend(USER_STEPS)?;
        Ok(match self.ask(question).await {
            Told::User(told) => told,
            Told::File(_) => UserTold::Unreadable(String::new()),
        })
    }

    /// Takes steps.
    pub(crate) fn spend(&self, steps: usize) -> Result<(), Stop> {
        self.0.work.spend(steps)
    }

    /// The steps that were taken.
    pub(crate) fn work(&self) -> &Work {
        &self.0.work
    }

    /// Notes that the lines to come stand in the file of this directory.
    pub(crate) fn enter(&self, directory: Option<&Arc<[u8]>>) {
        let mut here = self.0.directory.borrow_mut();
        let is_there = here.as_ref().map(Arc::as_ptr) == directory.map(Arc::as_ptr);
        if !is_there {
            *here = directory.cloned();
        }
    }

    /// The directory whose file is being gone through.
    pub(crate) fn directory(&self) -> Option<Arc<[u8]>> {
        self.0.directory.borrow().clone()
    }

    /// Keeps an explanation from here on.
    pub(crate) fn explain(&self) {
        self.0.trace.borrow_mut().get_or_insert_default();
    }

    /// Explains, where somebody wants to know.
    pub(crate) fn trace(&self, line: u32, text: impl FnOnce() -> String) {
        if let Some(trace) = self.0.trace.borrow_mut().as_mut()
            && trace.len() < TRACE_MAX
        {
            let text = text();
            let directory = self.directory();
            trace.push(Traced {
                directory,
                line,
                text,
            });
        }
    }

    /// The explanation.
    pub(crate) fn traced(&self) -> Vec<Traced> {
        self.0.trace.borrow_mut().take().unwrap_or_default()
    }
}
