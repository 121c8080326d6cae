//! An exchange held in memory: the pipeline's tests run on it without a socket.

use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use super::outgoing::{BodySize, Outgoing};
use crate::error::{Error, Kind, Result};

/// Bytes of a file that are read at once.
const BLOCK_BYTES: u64 = 64 * 1024;

/// A body that is all there.
#[derive(Debug, Default)]
pub struct MemoryBody {
    bytes: Vec<u8>,
    used: usize,
    /// Bytes that somebody else has taken.
    taken: u64,
}

impl MemoryBody {
    /// Makes a body of `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            bytes: bytes.into(),
            ..Self::default()
        }
    }

    /// What is left of a body of which so many bytes were read.
    pub(super) fn taken(bytes: u64) -> Self {
        Self {
            taken: bytes,
            ..Self::default()
        }
    }

    pub(super) fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    pub(super) fn data(&self) -> &[u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.used = (self.used + count).min(self.bytes.len());
    }

    pub(super) fn is_ended(&self) -> bool {
        self.used == self.bytes.len()
    }

    pub(super) fn length(&self) -> u64 {
        self.taken + self.bytes.len() as u64
    }
}

/// Reads some of a file; empty at its end.
pub(super) fn block_of(file: BorrowedFd<'_>, offset: u64, count: u64) -> Result<Vec<u8>> {
    let mut block = vec![0; usize::try_from(count.min(BLOCK_BYTES)).unwrap_or_default()];
    let read = os::file::read_at(file, &mut block, offset)
        .map_err(|error| Error::io(Kind::Internal, "file_read", &error))?;
    block.truncate(read);
    Ok(block)
}

/// A reply that is kept.
#[derive(Debug, Default)]
pub struct MemoryReply {
    /// Status; 0 until the head was sent.
    status: u16,
    /// Fields as lines `Name: value`.
    fields: Vec<String>,
    body: Vec<u8>,
    /// Bytes of body that went elsewhere.
    sent: u64,
    /// The same, head and framing counted.
    sent_bytes: u64,
    /// The most that is kept of it.
    room: Option<usize>,
    state: ReplyState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ReplyState {
    #[default]
    Waiting,
    Started,
    Finished,
    Aborted,
}

impl MemoryReply {
    /// What is left of a reply that was sent.
    pub(super) fn sent(status: u16, body_bytes: u64, sent_bytes: u64) -> Self {
        Self {
            status,
            sent: body_bytes,
            sent_bytes,
            state: ReplyState::Finished,
            ..Self::default()
        }
    }

    /// A reply of which so many bytes of body are kept; one that is longer never finishes.
    pub fn with_room(bytes: usize) -> Self {
        Self {
            room: Some(bytes),
            ..Self::default()
        }
    }

    /// The field lines sent.
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// The body sent.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether the reply came to its proper end.
    pub fn is_finished(&self) -> bool {
        self.state == ReplyState::Finished
    }

    pub(super) fn start(&mut self, outgoing: &Outgoing, _: BodySize) {
        self.status = outgoing.status;
        self.state = ReplyState::Started;
        self.fields = outgoing
            .fields
            .iter()
            .map(|field| {
                let (name, value) = (
                    String::from_utf8_lossy(field.name),
                    String::from_utf8_lossy(field.value),
                );
                format!("{name}: {value}")
            })
            .collect();
    }

    pub(super) fn has_started(&self) -> bool {
        self.state != ReplyState::Waiting
    }

    pub(super) fn is_head_only(&self) -> bool {
        false
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        // What is too long is taken and forgotten, as by a client that reads no more.
        match self.room {
            Some(room) if self.body.len() + data.len() > room => self.abort(),
            _ if matches!(self.status, 204 | 304) => {}
            _ => self.body.extend_from_slice(data),
        }
    }

    /// Whether more came than there was room for, or the reply broke off.
    pub(super) fn is_aborted(&self) -> bool {
        self.state == ReplyState::Aborted
    }

    pub(super) fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: u64,
    ) -> Result<usize> {
        let block = block_of(file, offset, count)?;
        self.push(&block);
        Ok(block.len())
    }

    pub(super) fn finish(&mut self) {
        if self.state != ReplyState::Aborted {
            self.state = ReplyState::Finished;
        }
    }

    pub(super) fn abort(&mut self) {
        self.state = ReplyState::Aborted;
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.sent + self.body.len() as u64
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes + self.body.len() as u64
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }
}
