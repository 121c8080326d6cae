//! The request's body on its way into a program's standard input.
//!
//! A program that reads only some of it, or nothing, is in its right.

use std::task::{Context, Poll};

use super::super::source::Source;
use crate::error::{Error, Kind, Result};
use crate::exchange::body::Body;
use crate::pipe::PipeWriter;
use crate::spool::Spool;

/// Where the body stands.
#[derive(Debug)]
pub(super) struct Input {
    /// `None` once the program has all it will get.
    pipe: Option<PipeWriter>,
    source: Source,
}

/// Who has to move next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// More of the body has to arrive.
    Client,
    /// The program has to read, or has read all it wanted.
    Program,
}

/// What one look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    /// Whether the program has taken something.
    pub(super) any: bool,
    /// Who has to move next.
    pub(super) awaited: Awaited,
}

impl Input {
    /// Begins with a body that may have been taken beforehand.
    pub(super) fn new(pipe: PipeWriter, spooled: Option<Spool>) -> Self {
        Self {
            pipe: Some(pipe),
            source: Source::new(spooled),
        }
    }

    /// Whether the program gets no more.
    pub(super) fn is_over(&self) -> bool {
        self.pipe.is_none()
    }

    /// Passes on as much as goes.
    ///
    /// # Errors
    /// The client's: too slow, gone, or wrong framing. The spool's: bytes are lost.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, body: &mut Body) -> Result<Moved> {
        let mut any = false;
        while let Some(pipe) = &self.pipe {
            if self.source.is_read(body) {
                break;
            }
            let data = self.source.data(body);
            if data.is_empty() {
                match self.source.poll_fill(cx, body) {
                    Poll::Ready(filled) => filled?,
                    Poll::Pending => {
                        let awaited = Awaited::Client;
                        return Ok(Moved { any, awaited });
                    }
                }
                continue;
            }
            match pipe.poll_write(cx, data) {
                Poll::Ready(Ok(count)) => {
                    any = true;
                    self.source.consume(count, body);
                }
                Poll::Ready(Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
                Poll::Ready(Err(error)) => {
                    return Err(Error::io(Kind::Internal, "program_write", &error));
                }
                Poll::Pending => {
                    let awaited = Awaited::Program;
                    return Ok(Moved { any, awaited });
                }
            }
        }
        // Dropped, it tells the program that this was all.
        self.pipe = None;
        self.source = Source::new(None);
        let awaited = Awaited::Program;
        Ok(Moved { any, awaited })
    }
}
