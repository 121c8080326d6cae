//! A reply's body that is kept back, because somebody wants to see the whole of it first.
//!
//! The handler writes as always, and what it writes lies here until its end. A body that turns out
//! to be longer than was hoped leaves as it came: the head that was ready goes out, what was kept
//! behind it, and the rest passes.

use super::outgoing::{BodySize, Outgoing};

/// What is kept back of a reply.
#[derive(Debug)]
pub(super) struct Collecting {
    /// The head as it leaves where the body is too long.
    pub(super) head: Outgoing,
    /// How long the handler said the body would be.
    pub(super) size: BodySize,
    /// The connection ends with this reply.
    pub(super) close: bool,
    /// What was written so far.
    pub(super) bytes: Vec<u8>,
    /// The most that is kept.
    pub(super) bytes_max: usize,
}

/// A whole body that was kept back.
#[derive(Debug)]
pub struct Collected {
    /// It.
    pub bytes: Vec<u8>,
    /// Whether it is as long as its handler said.
    pub is_whole: bool,
    /// Whether the connection ends with the reply.
    pub close: bool,
}

impl Collecting {
    /// Keeps more; `false` when that would be too much.
    pub(super) fn keep(&mut self, data: &[u8]) -> bool {
        let has_room = self.bytes.len() + data.len() <= self.bytes_max;
        if has_room {
            self.bytes.extend_from_slice(data);
        }
        has_room
    }

    pub(super) fn collected(self) -> Collected {
        Collected {
            is_whole: match self.size {
                BodySize::Length(length) => self.bytes.len() as u64 == length,
                BodySize::None | BodySize::Unknown => true,
            },
            bytes: self.bytes,
            close: self.close,
        }
    }
}
