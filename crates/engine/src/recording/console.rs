//! Questions of people at the console, on their way from a worker to the recorder and back.
//!
//! The idea: a worker gives its question to the thread that speaks with the recorder ([`super::teller`])
//! and waits for that one answer, with a limit of time. There are so many questions under way at most;
//! where nobody hears them the answer is no, and at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipc::console::{ConsoleAnswer, ConsoleQuestion};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::places::{ConsolePlaces, PLACES_MAX};
use crate::error::{Error, Kind, Result};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question, and who waits for its answer.
#[derive(Debug)]
pub(super) struct AskedConsole {
    pub(super) question: ConsoleQuestion,
    pub(super) answer: oneshot::Sender<ConsoleAnswer>,
}

/// Where workers ask.
#[derive(Debug)]
pub(crate) struct ConsoleLink {
    asked: mpsc::Sender<AskedConsole>,
    /// Until the thread takes it.
    receiver: Mutex<Option<mpsc::Receiver<AskedConsole>>>,
    places: Arc<ConsolePlaces>,
    is_heard: AtomicBool,
    /// Why figures cannot be sent elsewhere, as the recorder says. Held to copy or replace it.
    unsent: Mutex<String>,
}

impl Default for ConsoleLink {
    fn default() -> ConsoleLink {
        let (asked, receiver) = mpsc::channel(PLACES_MAX);
        ConsoleLink {
            asked,
            receiver: Mutex::new(Some(receiver)),
            places: Arc::default(),
            is_heard: AtomicBool::new(false),
            unsent: Mutex::default(),
        }
    }
}

impl ConsoleLink {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// 503 where too many ask, where no recorder hears, or where it takes too long; 414 for a question that
    /// is too long.
    pub(crate) async fn ask(&self, question: ConsoleQuestion) -> Result<ConsoleAnswer> {
        let _place = self.places.take(&question.scope).ok_or_else(busy)?;
        if !self.is_heard.load(Relaxed) {
            return Err(unheard());
        }
        if !question.is_bounded() {
            return Err(Error::refused(414, "console_question"));
        }
        let (answer, answered) = oneshot::channel();
        let asked = AskedConsole { question, answer };
        self.asked.try_send(asked).map_err(|_| busy())?;
        match timeout(PATIENCE, answered).await {
            Ok(answer) => answer.map_err(|_| unheard()),
            Err(_) => {
                let detail = "the recorder has not answered in 10 s";
                Err(Error::new(Kind::Full, "console_late", detail))
            }
        }
    }

    /// Where the questions come out, for the one thread that carries them.
    pub(super) fn take_receiver(&self) -> Option<mpsc::Receiver<AskedConsole>> {
        let receiver = self.receiver.lock();
        receiver.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether a recorder hears questions from now on.
    pub(super) fn note_heard(&self, is_heard: bool) {
        self.is_heard.store(is_heard, Relaxed);
        self.unsent().clear();
    }

    /// Why figures cannot be sent elsewhere; empty where they can, or nobody says.
    pub(crate) fn unsent(&self) -> MutexGuard<'_, String> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn busy() -> Error {
    let detail = "too many pages of the console are being made";
    Error::new(Kind::Full, "console_busy", detail)
}

fn unheard() -> Error {
    let detail = "the recorder does not answer; it is started again, see the error log";
    Error::new(Kind::Full, "console_unheard", detail)
}
