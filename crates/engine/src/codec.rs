//! How messages between the gateway's processes are written down.
//!
//! The idea: numbers of eight bytes and length-prefixed bytes, one after the other, descriptors
//! beside them in the order the bytes name them. Nothing is taken on trust: every length is
//! checked against what is there, and what a message promises reserves no memory.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use os::fdpass::Passed;

/// A message that is not one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadMessage(pub &'static str);

impl fmt::Display for BadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad message between the gateway's processes: {}", self.0)
    }
}

impl std::error::Error for BadMessage {}

impl From<BadMessage> for io::Error {
    fn from(bad: BadMessage) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, bad)
    }
}

/// A message being made: its bytes, and the descriptors that travel beside them.
#[derive(Default)]
pub(crate) struct Writer<'fds> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<BorrowedFd<'fds>>,
}

impl<'fds> Writer<'fds> {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    /// A text, cut where it is longer than `bytes_max`.
    pub(crate) fn text_cut(&mut self, text: &str, bytes_max: usize) {
        let mut end = text.len().min(bytes_max);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.text(text.get(..end).unwrap_or_default().as_bytes());
    }

    /// A limit that need not be.
    pub(crate) fn limit(&mut self, limit: Option<u64>) {
        // Numbers from 1, so that 0 is none; the largest number limits nothing.
        self.number(limit.map_or(0, |limit| limit.saturating_add(1)));
    }

    /// A list of descriptors.
    pub(crate) fn fds(&mut self, fds: &'fds [OwnedFd]) {
        self.number(fds.len() as u64);
        self.fds.extend(fds.iter().map(AsFd::as_fd));
    }

    pub(crate) fn fd(&mut self, fd: &'fds OwnedFd) {
        self.fds.push(fd.as_fd());
    }
}

/// What is left to be read of a message.
pub(crate) struct Reader<'bytes> {
    bytes: &'bytes [u8],
    fds: std::vec::IntoIter<OwnedFd>,
}

impl<'bytes> Reader<'bytes> {
    pub(crate) fn new(bytes: &'bytes [u8], fds: Vec<OwnedFd>) -> Self {
        Reader {
            bytes,
            fds: fds.into_iter(),
        }
    }

    /// As [`Self::new`], of a message whose descriptors may have found no room here.
    pub(crate) fn of(bytes: &'bytes [u8], fds: Passed) -> io::Result<Self> {
        let no_room = "this process may open no more descriptors";
        let fds = fds.ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, no_room))?;
        Ok(Reader::new(bytes, fds))
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'bytes [u8], BadMessage> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or(BadMessage("too short"))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, BadMessage> {
        self.take(1)?
            .first()
            .copied()
            .ok_or(BadMessage("too short"))
    }

    pub(crate) fn number(&mut self) -> Result<u64, BadMessage> {
        let bytes = self
            .take(8)?
            .try_into()
            .map_err(|_| BadMessage("too short"))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A number that fits 32 bits.
    pub(crate) fn small_number(&mut self) -> Result<u32, BadMessage> {
        u32::try_from(self.number()?).map_err(|_| BadMessage("huge number"))
    }

    /// A limit that need not be.
    pub(crate) fn limit(&mut self) -> Result<Option<u64>, BadMessage> {
        Ok(self.number()?.checked_sub(1))
    }

    /// A limit that need not be and fits 32 bits.
    pub(crate) fn small_limit(&mut self) -> Result<Option<u32>, BadMessage> {
        let narrow = |limit| u32::try_from(limit).map_err(|_| BadMessage("huge number"));
        self.limit()?.map(narrow).transpose()
    }

    /// A list of descriptors.
    pub(crate) fn fds(&mut self) -> Result<Vec<OwnedFd>, BadMessage> {
        self.list(Reader::fd)
    }

    pub(crate) fn text(&mut self) -> Result<&'bytes [u8], BadMessage> {
        let length = usize::try_from(self.number()?).map_err(|_| BadMessage("too short"))?;
        self.take(length)
    }

    pub(crate) fn string(&mut self) -> Result<String, BadMessage> {
        String::from_utf8(self.text()?.to_vec()).map_err(|_| BadMessage("text that is not UTF-8"))
    }

    /// A list grows as its items are found: its count alone reserves nothing.
    pub(crate) fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, BadMessage>,
    ) -> Result<Vec<T>, BadMessage> {
        let count = self.number()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(crate) fn fd(&mut self) -> Result<OwnedFd, BadMessage> {
        self.fds.next().ok_or(BadMessage("a descriptor is missing"))
    }

    pub(crate) fn end(&self) -> Result<(), BadMessage> {
        if self.bytes.is_empty() && self.fds.as_slice().is_empty() {
            Ok(())
        } else {
            Err(BadMessage("too long"))
        }
    }
}
