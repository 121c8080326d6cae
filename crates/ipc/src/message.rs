//! A message that is heard whole: how it is sent, received and bounded.
//!
//! The idea: what differs from one message to the next is how large it may be, which descriptors it has,
//! and what its receiver does not take. Where a link's messages wait for nobody, or one that finds no room for
//! its descriptors is told of, they go by ways of their own.

use std::io;
use std::os::fd::BorrowedFd;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::{self, BadMessage};

/// A message that is heard whole.
pub trait Message: Serialize + DeserializeOwned {
    /// What one takes at the most.
    const BYTES_MAX: usize;
    /// Descriptors beside it at the most.
    const FDS_MAX: usize = 0;

    /// Its descriptors, in the order of its fields.
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Cuts texts that are longer than they may be.
    ///
    /// # Errors
    /// When something else is larger than it may be, or is what it may not be.
    fn bound(&mut self) -> Result<(), BadMessage> {
        Ok(())
    }

    /// Sends the message.
    ///
    /// # Errors
    /// When the other end has gone or does not listen.
    fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        os::fdpass::send(link, &codec::encode(self)?, &self.fds())
    }

    /// Receives the next message; the other end's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the other end has gone, or says what cannot be understood.
    fn recv(link: BorrowedFd<'_>) -> io::Result<Self> {
        let (bytes, fds) = os::fdpass::recv(link, Self::BYTES_MAX, Self::FDS_MAX)?;
        let mut message: Self = codec::decode_passed(&bytes, fds)?;
        message.bound()?;
        Ok(message)
    }

    /// The message that these bytes are, without descriptors.
    ///
    /// # Errors
    /// Bytes that are none, or one that is larger than it may be.
    fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut message: Self = codec::decode(bytes, Vec::new())?;
        message.bound()?;
        Ok(message)
    }
}
