//! The supervisor, as orders see it: what they ask of it, and what it answers.
//!
//! The idea: a question is a message with a name or number, and whoever asked waits for the message
//! that answers it. What is said waits in a queue of its own for the supervisor to hear it, so that whoever speaks goes
//! on hearing: two that wait for each other's ear hear nothing. No answer is waited for longer than [`ANSWER_MAX`], or
//! [`SHOWN_MAX`] for what is shown; who stops waiting is forgotten.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ipc::acme::{FromAcme, Held, Proof, ToAcme};
use ipc::certificates::Blob;
use ipc::message::Message;
use tokio::sync::oneshot;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(180);
/// How long it may take that something is shown: programs that put records into the domain name
/// system take their turns, and the supervisor knows for how long.
const SHOWN_MAX: Duration = Duration::from_secs(3 * 3_600);
/// What waits to be heard: more than the certificates of a plan, of which each may be told of at once.
const UNHEARD_MAX: usize = 100_000;
/// What is said where nothing comes back.
const SILENT: &str = "the supervisor does not answer";

type Askers<K, T> = RefCell<HashMap<K, oneshot::Sender<Result<T, String>>>>;

/// The link to the supervisor.
pub(super) struct Link {
    said: SyncSender<FromAcme>,
    numbers: Cell<u32>,
    requested: Askers<String, Blob>,
    published: Askers<u32, ()>,
    stored: Askers<String, Held>,
}

/// What an authority may look at; nobody answers with it any more when this is dropped.
pub(super) struct Published {
    link: Rc<Link>,
    number: u32,
}

impl Drop for Published {
    fn drop(&mut self) {
        let numbers = vec![self.number];
        self.link.tell(FromAcme::Withdraw { numbers });
    }
}

impl Link {
    /// The link over this socket; its messages are read elsewhere.
    ///
    /// # Errors
    /// When there is no thread for what is said.
    pub(super) fn new(link: OwnedFd) -> io::Result<Rc<Link>> {
        let (said, unheard) = sync_channel(UNHEARD_MAX);
        let speaker = std::thread::Builder::new().name("speaker".into());
        speaker.spawn(move || speak(&link, &unheard))?;
        Ok(Rc::new(Link {
            said,
            numbers: Cell::new(0),
            requested: RefCell::default(),
            published: RefCell::default(),
            stored: RefCell::default(),
        }))
    }

    /// Says something that is not answered. That the supervisor has gone is heard by whoever reads.
    pub(super) fn tell(&self, message: FromAcme) {
        // The other end lasts as long as this one.
        let _ = self.said.send(message);
    }

    /// Gives an answer to whoever waits for it; gives back what is none.
    pub(super) fn answer(&self, message: ToAcme) -> Option<ToAcme> {
        match message {
            ToAcme::Requested {
                certificate,
                result,
            } => give(&self.requested, &certificate, result),
            ToAcme::Published { number, result } => give(&self.published, &number, result),
            ToAcme::Stored {
                certificate,
                result,
            } => give(&self.stored, &certificate, result),
            message @ (ToAcme::Plan(_)
            | ToAcme::Demand(_)
            | ToAcme::Renew { .. }
            | ToAcme::Rehearse { .. }) => {
                return Some(message);
            }
        }
        None
    }

    /// Has a key made, and gets the request for a certificate.
    pub(super) async fn request(
        &self,
        certificate: &str,
        names: &[String],
    ) -> Result<Blob, String> {
        let (certificate, names) = (certificate.to_owned(), names.to_vec());
        let key = certificate.clone();
        let message = FromAcme::Request { certificate, names };
        self.ask(&self.requested, key, &message, ANSWER_MAX).await
    }

    /// Has a proof shown, for as long as what is returned is kept.
    pub(super) async fn publish(
        self: &Rc<Self>,
        certificate: &str,
        name: &str,
        proof: Proof,
    ) -> Result<Published, String> {
        let number = self.numbers.get();
        self.numbers.set(number.wrapping_add(1));
        let message = FromAcme::Publish {
            number,
            certificate: certificate.to_owned(),
            name: name.to_owned(),
            proof,
        };
        // From here on it may be there, whatever is answered.
        let published = Published {
            link: Rc::clone(self),
            number,
        };
        self.ask(&self.published, number, &message, SHOWN_MAX)
            .await?;
        Ok(published)
    }

    /// Has a chain stored and served with.
    pub(super) async fn store(&self, certificate: &str, chain: String) -> Result<Held, String> {
        let message = FromAcme::Issued {
            certificate: certificate.to_owned(),
            chain: Blob::from(chain.into_bytes()),
        };
        let key = certificate.to_owned();
        self.ask(&self.stored, key, &message, ANSWER_MAX).await
    }

    async fn ask<K: std::hash::Hash + Eq + Clone, T>(
        &self,
        waiting: &Askers<K, T>,
        key: K,
        message: &FromAcme,
        patience: Duration,
    ) -> Result<T, String> {
        let (give, given) = oneshot::channel();
        waiting.borrow_mut().insert(key.clone(), give);
        self.tell(message.clone());
        let answer = tokio::time::timeout(patience, given).await;
        waiting.borrow_mut().remove(&key);
        match answer {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(SILENT.to_owned()),
        }
    }
}

/// Says one thing after the other.
fn speak(link: &OwnedFd, unheard: &Receiver<FromAcme>) {
    for message in unheard {
        if let Err(error) = message.send(link.as_fd()) {
            let error = config::reason(&error);
            tracing::error!(error, "the supervisor does not hear");
        }
    }
}

fn give<K: std::hash::Hash + Eq, T>(waiting: &Askers<K, T>, key: &K, result: Result<T, String>) {
    if let Some(asker) = waiting.borrow_mut().remove(key) {
        // Who has stopped waiting needs no answer.
        let _ = asker.send(result);
    }
}
