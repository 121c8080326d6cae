//! The request's body on its way to the upstream, driven beside the reply.
//!
//! Where it comes from is its [`Source`]'s business, how it is framed the upstream's protocol's
//! ([`Coding`]).

use std::task::{Context, Poll, ready};

use fastcgi::record;
use wire::{CHUNK_END, LAST_CHUNK, encode_chunk_head};

use super::source::Source;
use crate::error::Result;
use crate::exchange::body::Body;
use crate::spool::Spool;
use crate::upstream::link::Link;

/// Where an upload stands.
#[derive(Debug)]
pub(super) struct Upload {
    state: UploadState,
    source: Source,
    coding: Coding,
    /// Bytes still owed of the open piece.
    piece_left: usize,
    /// Something of the body, or all there was before it, has gone.
    has_sent: bool,
    write_ms: u64,
}

/// How the upstream learns where the body's pieces end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// Its length was said before.
    Plain,
    /// Chunks of HTTP/1.1.
    Chunks,
    /// Records of FastCGI.
    Records,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadState {
    /// Bytes come from the client.
    Passing,
    /// All was read; the last bytes are being sent.
    Flushing,
    /// Everything was sent.
    Done,
    /// Given up: the upstream takes no more. Its reply may still come.
    Stopped,
}

impl Upload {
    /// Begins with whatever head waits in the link.
    pub(super) fn new(coding: Coding, spooled: Option<Spool>, write_ms: u64) -> Self {
        Self {
            state: UploadState::Passing,
            coding,
            source: Source::new(spooled),
            piece_left: 0,
            has_sent: false,
            write_ms,
        }
    }

    /// Gives the body back, where it was taken beforehand. Useful while nothing of it was sent.
    pub(super) fn into_spooled(self) -> Option<Spool> {
        self.source.into_spooled()
    }

    /// Whether a byte of the request was sent, its head included.
    pub(super) fn has_sent(&self, link: &Link) -> bool {
        self.has_sent || !link.out.is_untouched()
    }

    /// Whether everything was sent.
    pub(super) fn is_done(&self) -> bool {
        self.state == UploadState::Done
    }

    /// Whether there is nothing left to do.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, UploadState::Done | UploadState::Stopped)
    }

    /// Gives up.
    pub(super) fn stop(&mut self) {
        if !self.is_over() {
            self.state = UploadState::Stopped;
        }
    }

    /// Moves on as far as it goes; ready when over.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Body,
        link: &mut Link,
    ) -> Poll<Result<()>> {
        while self.state == UploadState::Passing {
            if self.source.is_read(body) {
                self.end(link);
            } else if self.source.data(body).is_empty() {
                if let Poll::Ready(filled) = self.source.poll_fill(cx, body) {
                    filled?;
                    continue;
                }
                // While the client makes us wait, what there is goes out and the upstream is not to blame.
                ready!(link.poll_send(cx, &[], self.write_ms))?;
                self.has_sent = true;
                return Poll::Pending;
            } else {
                ready!(self.poll_pass(cx, body, link))?;
            }
        }
        if self.state == UploadState::Flushing {
            ready!(link.poll_send(cx, &[], self.write_ms))?;
            self.has_sent = true;
            self.state = UploadState::Done;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Body,
        link: &mut Link,
    ) -> Poll<Result<()>> {
        if self.piece_left == 0 {
            let bytes = self.source.data(body).len();
            self.piece_left = self.coding.open(bytes, link.out.bytes());
        }
        let data = self.source.data(body);
        let data = data.get(..self.piece_left).unwrap_or(data);
        let sent = ready!(link.poll_send(cx, data, self.write_ms))?;
        self.has_sent = true;
        self.source.consume(sent, body);
        self.piece_left -= sent;
        if sent > 0 && self.piece_left == 0 {
            self.coding.close(link.out.bytes());
        }
        Poll::Ready(Ok(()))
    }

    fn end(&mut self, link: &mut Link) {
        self.coding.end(link.out.bytes());
        self.state = UploadState::Flushing;
    }
}

impl Coding {
    /// Begins a piece; says how many of `bytes` belong to it.
    fn open(self, bytes: usize, out: &mut Vec<u8>) -> usize {
        match self {
            Self::Plain => bytes,
            Self::Chunks => {
                encode_chunk_head(bytes, out);
                bytes
            }
            Self::Records => record::stdin_header(bytes, out),
        }
    }

    /// Ends a piece.
    fn close(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain | Self::Records => {}
            Self::Chunks => out.extend_from_slice(CHUNK_END),
        }
    }

    /// Ends the body.
    fn end(self, out: &mut Vec<u8>) {
        match self {
            Self::Plain => {}
            Self::Chunks => out.extend_from_slice(LAST_CHUNK),
            Self::Records => record::stdin_end(out),
        }
    }
}
