//! Replies, read as they come: where one ends, what it said, and whether that can be trusted.
//!
//! The idea: a machine that is fed whatever a read brought and keeps only counts. Heads that come
//! whole are read where they lie; bodies are counted and forgotten. A load goes to servers that
//! may be broken, so whatever leaves doubt about where a reply ends is a fault, and the number of
//! bytes held is bounded.

mod chunked;
mod head;
mod property;

pub use property::replies_are_the_same_however_cut;

use chunked::Chunks;
use head::{Body, Head};

use super::plan::ReplyTo;

/// Longest head.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most interim replies (1xx) before one that counts.
const INTERIM_MAX: u8 = 16;
/// How every head begins.
const BEGINNING: &[u8] = b"HTTP/1.";

/// What is wrong with a reply.
pub(crate) type Fault = &'static str;

/// What came of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scan {
    /// The reply goes on.
    More,
    /// The reply is whole; so many of the bytes were its own.
    Whole(usize),
    /// No reply that can be trusted. Nothing more of the connection may be read.
    Broken(Fault),
}

/// What the end of the stream means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Not a byte of the reply had come.
    Before,
    /// In the middle.
    Within,
    /// It is the reply's end.
    Whole,
}

/// Whether the name of the server's software is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notes {
    Keep,
    Drop,
}

/// Reads replies, one after the other.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: ReplyState,
    reply: ReplyTo,
    notes: Notes,
    /// The beginning of a head that came in pieces.
    part: Vec<u8>,
    /// Whether anything of the reply has come.
    begun: bool,
    interim: u8,
    status: u16,
    keep: bool,
    body_bytes: u64,
    server: String,
}

#[derive(Debug, Clone, Copy)]
enum ReplyState {
    Head,
    /// So much of the body is still to come.
    Length(u64),
    Chunked(Chunks),
    UntilEnd,
    Broken(Fault),
}

impl Scanner {
    pub(crate) fn new() -> Scanner {
        Scanner {
            state: ReplyState::Head,
            reply: ReplyTo::Other,
            notes: Notes::Drop,
            part: Vec::new(),
            begun: false,
            interim: 0,
            status: 0,
            keep: false,
            body_bytes: 0,
            server: String::new(),
        }
    }

    /// Forgets the last reply and expects the next.
    pub(crate) fn expect(&mut self, reply: ReplyTo, notes: Notes) {
        self.state = ReplyState::Head;
        self.reply = reply;
        self.notes = notes;
        self.part.clear();
        self.begun = false;
        self.interim = 0;
        self.status = 0;
        self.body_bytes = 0;
    }

    /// The status, once the head is there; 0 before.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Whether HTTP lets the connection be used again after this reply.
    pub(crate) fn keep(&self) -> bool {
        self.keep
    }

    /// Bytes of the body so far, without what chunks add.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The `Server` field, where it was asked for.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Whether anything of the reply has come.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Reads what came. However the bytes are cut into pieces, the result is the same.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Scan {
        self.begun |= !bytes.is_empty();
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            match self.state {
                ReplyState::Head => match self.feed_head(rest) {
                    Ok(None) => return Scan::More,
                    Ok(Some(used)) => at += used,
                    Err(fault) => return self.broken(fault),
                },
                ReplyState::Length(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.body_bytes += taken;
                    self.state = ReplyState::Length(left - taken);
                    return match left - taken {
                        0 => Scan::Whole(at + taken as usize),
                        _ => Scan::More,
                    };
                }
                ReplyState::Chunked(mut chunks) => {
                    let fed = chunks.feed(rest, &mut self.body_bytes);
                    self.state = ReplyState::Chunked(chunks);
                    return match fed {
                        Ok(None) => Scan::More,
                        Ok(Some(used)) => Scan::Whole(at + used),
                        Err(fault) => self.broken(fault),
                    };
                }
                ReplyState::UntilEnd => {
                    self.body_bytes = self.body_bytes.saturating_add(rest.len() as u64);
                    return Scan::More;
                }
                ReplyState::Broken(fault) => return Scan::Broken(fault),
            }
        }
    }

    /// The stream has ended.
    pub(crate) fn end(&self) -> Ended {
        match self.state {
            _ if !self.begun => Ended::Before,
            ReplyState::UntilEnd => Ended::Whole,
            _ => Ended::Within,
        }
    }

    fn broken(&mut self, fault: Fault) -> Scan {
        self.state = ReplyState::Broken(fault);
        Scan::Broken(fault)
    }

    /// How many bytes a whole head took of `bytes`; `None` where it goes on.
    fn feed_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        if self.part.is_empty() {
            check_beginning(bytes)?;
            if let Some((used, head)) = Head::read(bytes, self.notes) {
                self.take_head(used, head)?;
                return Ok(Some(used));
            }
        }
        let before = self.part.len();
        let room = (HEAD_BYTES_MAX + 1).saturating_sub(before);
        self.part
            .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        check_beginning(&self.part)?;
        let from = before.saturating_sub(2);
        let Some(end) = head::end(self.part.get(from..).unwrap_or_default()) else {
            if self.part.len() > HEAD_BYTES_MAX {
                return Err("the head is longer than 64 KiB");
            }
            return Ok(None);
        };
        let part = std::mem::take(&mut self.part);
        let whole = part.get(..from + end).unwrap_or_default();
        if let Some((used, head)) = Head::read(whole, self.notes) {
            self.take_head(used, head)?;
        }
        self.part = part;
        self.part.clear();
        Ok(Some(from + end - before))
    }

    fn take_head(&mut self, used: usize, head: Result<Head, Fault>) -> Result<(), Fault> {
        if used > HEAD_BYTES_MAX {
            return Err("the head is longer than 64 KiB");
        }
        let head = head?;
        if head.status == 101 {
            return Err("it switches to another protocol, which was not asked for");
        }
        if head.status < 200 {
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err("more than 16 interim replies");
            }
            return Ok(());
        }
        self.status = head.status;
        self.keep = head.keep;
        if let Some(server) = head.server {
            self.server = server;
        }
        let without_body = self.reply == ReplyTo::Head || matches!(head.status, 204 | 304);
        self.state = match head.body {
            _ if without_body => ReplyState::Length(0),
            Body::Length(length) => ReplyState::Length(length),
            Body::Chunked => ReplyState::Chunked(Chunks::default()),
            Body::UntilEnd => {
                self.keep = false;
                ReplyState::UntilEnd
            }
        };
        Ok(())
    }
}

/// Garbage is told at once, not when a head's worth of it has come.
fn check_beginning(bytes: &[u8]) -> Result<(), Fault> {
    if bytes.iter().zip(BEGINNING).all(|(a, b)| a == b) {
        Ok(())
    } else {
        Err("it does not begin as HTTP/1 does")
    }
}

#[cfg(test)]
mod tests;
