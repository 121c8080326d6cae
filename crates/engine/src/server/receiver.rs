//! What the supervisor says to its server, heard in order.
//!
//! The main thread listens while it has nothing else to do. Where it waits for its workers for long, it
//! looks here now and then whether all is to end; whatever else was said meanwhile is kept for later.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ipc::server::{ToServer, Word};

/// Words kept for later. The supervisor says few before it hears an answer; beyond, they wait in the link.
const KEPT_MAX: usize = 64;

/// The server's end of the link.
#[derive(Debug)]
pub(super) struct LinkReceiver {
    link: OwnedFd,
    kept: VecDeque<io::Result<Word>>,
}

impl LinkReceiver {
    pub(super) fn new(link: OwnedFd) -> Self {
        Self {
            link,
            kept: VecDeque::new(),
        }
    }

    /// Waits for the next word; the supervisor's end is `UnexpectedEof`.
    pub(super) fn receive(&mut self) -> io::Result<Word> {
        match self.kept.pop_front() {
            Some(word) => word,
            None => ToServer::recv(self.link.as_fd()),
        }
    }

    /// The next word, if one comes within `patience`.
    pub(super) fn receive_within(&mut self, patience: Duration) -> io::Result<Option<Word>> {
        if let Some(word) = self.kept.pop_front() {
            return word.map(Some);
        }
        match self.is_spoken_to(patience)? {
            true => ToServer::recv(self.link.as_fd()).map(Some),
            false => Ok(None),
        }
    }

    /// Whether it was said meanwhile that all is to end, or there is nobody left to say so.
    pub(super) fn is_told_to_end(&mut self) -> bool {
        while !self.has_heard_the_end()
            && self.kept.len() < KEPT_MAX
            && self.is_spoken_to(Duration::ZERO).unwrap_or(false)
        {
            self.kept.push_back(ToServer::recv(self.link.as_fd()));
        }
        self.has_heard_the_end()
    }

    fn has_heard_the_end(&self) -> bool {
        let mut kept = self.kept.iter();
        kept.any(|word| matches!(word, Ok(Ok(ToServer::Drain | ToServer::Retire)) | Err(_)))
    }

    fn is_spoken_to(&self, patience: Duration) -> io::Result<bool> {
        let ready = os::net::wait_readable(&[self.link.as_fd()], Some(patience))?;
        Ok(ready == [true])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc::server::Tally;

    #[test]
    fn an_end_is_noticed_and_nothing_said_before_it_is_lost() {
        let (supervisor, link) = os::fdpass::pair().expect("a link");
        let mut receiver = LinkReceiver::new(link);
        let say = |word: ToServer| word.send(supervisor.as_fd()).expect("said");
        assert!(!receiver.is_told_to_end());
        say(ToServer::Tally(Tally::default()));
        assert!(!receiver.is_told_to_end());
        say(ToServer::Drain);
        assert!(receiver.is_told_to_end() && receiver.is_told_to_end());
        assert!(matches!(receiver.receive(), Ok(Ok(ToServer::Tally(_)))));
        assert!(matches!(
            receiver.receive_within(Duration::ZERO),
            Ok(Some(Ok(ToServer::Drain)))
        ));
        assert!(!receiver.is_told_to_end());
        drop(supervisor);
        assert!(receiver.is_told_to_end());
        let ended = receiver.receive().expect_err("nobody is there");
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
