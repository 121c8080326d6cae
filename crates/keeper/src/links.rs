//! Links to a server: a thread for each, which answers one question after the other.
//!
//! The idea: whoever asks waits, and another's question waits for nobody but the processor. What
//! is no question ends the link, and what is asked after that comes to nobody: the server is not
//! what it was.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use config::reason;
use ipc::signing::{Answer, Asked, QUESTION_BYTES_MAX, Question, Refusal};
use os::cpu::CpuLaps;

use crate::keys::Keys;
use crate::tickets::Tickets;

/// Links at once: those of a server, and of one that is about to go.
const LINKS_MAX: usize = 2 * ipc::keeper::TO_KEEPER_FDS_MAX;
/// What signing takes, and more.
const STACK_BYTES: usize = 256 * 1024;

/// What answers are made of.
#[derive(Debug)]
pub(crate) struct Secrets {
    pub(crate) keys: Keys,
    pub(crate) tickets: Tickets,
    links: AtomicUsize,
}

impl Secrets {
    pub(crate) fn new(keys: Keys) -> Secrets {
        Secrets {
            keys,
            tickets: Tickets::default(),
            links: AtomicUsize::new(0),
        }
    }

    /// Answers at these links from now on.
    pub(crate) fn answer_at(self: &Arc<Self>, links: Vec<OwnedFd>) {
        for link in links {
            if self.links.fetch_add(1, Ordering::Relaxed) >= LINKS_MAX {
                self.links.fetch_sub(1, Ordering::Relaxed);
                tracing::error!("more links than {LINKS_MAX}: this one is closed");
                continue;
            }
            let secrets = self.clone();
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let started = thread.name("link".into()).spawn(move || {
                secrets.serve(&link);
                secrets.links.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(error) = started {
                self.links.fetch_sub(1, Ordering::Relaxed);
                tracing::error!(error = reason(&error), "no thread for a link");
            }
        }
    }

    fn serve(&self, link: &OwnedFd) {
        let mut buffer = vec![0; QUESTION_BYTES_MAX];
        let mut laps = CpuLaps::begin();
        loop {
            match self.answer_one(link, &mut buffer, &mut laps) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let error = reason(&error);
                    return tracing::error!(error, "a link is closed: no question came over it");
                }
                // The server has gone.
                Err(_) => return,
            }
        }
    }

    fn answer_one(&self, link: &OwnedFd, buffer: &mut [u8], laps: &mut CpuLaps) -> io::Result<()> {
        let question = Question::recv(link.as_fd(), buffer)?;
        let answer = self.answer(&question.what, laps);
        match answer.try_send(question.number, link.as_fd()) {
            // Of so many answers whose questions were given up long ago, one more is missed by nobody.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    /// What is answered to a question. A signature takes what has gone by since the one before, its question's and
    /// its answer's way through the kernel included.
    pub(crate) fn answer(&self, asked: &Asked, laps: &mut CpuLaps) -> Answer {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_or(0, |now| now.as_secs());
        match asked {
            Asked::Sign(sign) => match self.keys.sign(sign, now_s) {
                Ok(bytes) => {
                    let cpu_us = u32::try_from(laps.lap_ns() / 1_000).unwrap_or(u32::MAX);
                    Answer::Signature { bytes, cpu_us }
                }
                Err(refusal) => Answer::Refused(refusal),
            },
            Asked::TicketKeys { policy } => match self.tickets.keys(policy, now_s) {
                Ok(keys) => Answer::TicketKeys(keys),
                Err(_) => Answer::Refused(Refusal::Failed),
            },
        }
    }
}
