//! The server's end of its link to the supervisor, for whichever of its threads has something to say.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::server::ToSupervisor;

/// The server's end of the link to speak by: any thread may, one message at a time.
#[derive(Debug, Clone)]
pub struct LinkSender {
    /// Held while one message is sent: 5 s at most (`os::fdpass`).
    link: Arc<Mutex<OwnedFd>>,
}

impl LinkSender {
    /// Speaks on `link`.
    ///
    /// # Errors
    /// When the descriptor can't be duplicated.
    pub fn new(link: &OwnedFd) -> io::Result<Self> {
        Ok(Self {
            link: Arc::new(Mutex::new(link.try_clone()?)),
        })
    }

    /// Says one thing.
    ///
    /// # Errors
    /// When the supervisor has gone or does not listen.
    pub fn send(&self, message: &ToSupervisor) -> io::Result<()> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        message.send(link.as_fd())
    }
}
