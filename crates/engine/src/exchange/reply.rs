//! The way back to the client: a head, then bytes, then an end.

use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use wire::Fields;

use super::collecting::{Collected, Collecting};
use super::encoding::Encoding;
use super::h1::H1Reply;
use super::h2::H2Reply;
use super::memory::{self, MemoryReply};
pub(crate) use super::outgoing::{BodySize, Outgoing};
use super::pace::Terms;
use crate::error::{Error, Kind, Result};

/// How much an encoder makes before it is framed, in one chunk.
const MADE_BYTES: usize = 8 * 1024;

/// Where a reply goes.
#[derive(Debug)]
pub struct Reply {
    carrier: Carrier,
    /// What is kept back of it; boxed, since hardly any is.
    collecting: Option<Box<Collecting>>,
    /// What compresses its body.
    encoding: Option<Box<Encoding>>,
    /// Whether a body was too long to be kept back, and left as it came.
    has_overflowed: bool,
}

#[derive(Debug)]
enum Carrier {
    /// To an HTTP/1.1 connection.
    H1(H1Reply),
    /// To a stream of an HTTP/2 connection.
    H2(H2Reply),
    /// To memory.
    Memory(MemoryReply),
}

impl From<H1Reply> for Reply {
    fn from(reply: H1Reply) -> Self {
        Carrier::H1(reply).into()
    }
}

impl From<H2Reply> for Reply {
    fn from(reply: H2Reply) -> Self {
        Carrier::H2(reply).into()
    }
}

impl From<MemoryReply> for Reply {
    fn from(reply: MemoryReply) -> Self {
        Carrier::Memory(reply).into()
    }
}

impl From<Carrier> for Reply {
    fn from(carrier: Carrier) -> Self {
        Self {
            carrier,
            collecting: None,
            encoding: None,
            has_overflowed: false,
        }
    }
}

impl Reply {
    /// The connection's half it goes to; `None` for one in memory.
    pub fn h1(&mut self) -> Option<&mut H1Reply> {
        match &mut self.carrier {
            Carrier::H1(reply) => Some(reply),
            Carrier::H2(_) | Carrier::Memory(_) => None,
        }
    }

    /// The stream's half it goes to; `None` for any other.
    pub(crate) fn h2(&mut self) -> Option<&mut H2Reply> {
        match &mut self.carrier {
            Carrier::H2(reply) => Some(reply),
            Carrier::H1(_) | Carrier::Memory(_) => None,
        }
    }

    /// The memory it goes to; `None` for one on a connection.
    pub fn memory(&self) -> Option<&MemoryReply> {
        match &self.carrier {
            Carrier::Memory(reply) => Some(reply),
            Carrier::H1(_) | Carrier::H2(_) => None,
        }
    }

    /// Lets go of the connection, or of what was in memory.
    pub(super) fn detach(&mut self) {
        (self.collecting, self.encoding) = (None, None);
        self.has_overflowed = false;
        match &mut self.carrier {
            Carrier::H1(reply) => reply.detach(),
            Carrier::H2(reply) => reply.detach(),
            Carrier::Memory(reply) => *reply = MemoryReply::default(),
        }
    }

    pub(super) fn start(&mut self, outgoing: &Outgoing, size: BodySize, close: bool) {
        match &mut self.carrier {
            Carrier::H1(reply) => reply.start(outgoing, size, close),
            Carrier::H2(reply) => reply.start(outgoing, size),
            Carrier::Memory(reply) => reply.start(outgoing, size),
        }
    }

    /// Has the body compressed, from its first byte on.
    pub(crate) fn encode(&mut self, encoding: Encoding) {
        self.encoding = Some(Box::new(encoding));
    }

    /// Whether the body is compressed on its way.
    pub(crate) fn is_encoded(&self) -> bool {
        self.encoding.is_some()
    }

    /// Keeps the reply back until all of its body is there, but no more than `bytes_max` of it.
    pub(super) fn collect(
        &mut self,
        head: Outgoing,
        size: BodySize,
        close: bool,
        bytes_max: usize,
    ) {
        self.has_overflowed = false;
        self.collecting = Some(Box::new(Collecting {
            head,
            size,
            close,
            bytes: Vec::new(),
            bytes_max,
        }));
    }

    /// The body that was kept back: nothing is, from now on, and no head was sent.
    pub fn take_collected(&mut self) -> Option<Collected> {
        Some(self.collecting.take()?.collected())
    }

    /// Whether a body was to be kept back and was too long; said once.
    pub fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.has_overflowed)
    }

    /// Keeps `data` back, if that is what is done; where it is too much, everything kept leaves.
    fn keep(&mut self, data: &[u8]) -> bool {
        let Some(collecting) = &mut self.collecting else {
            return false;
        };
        let is_kept = collecting.keep(data);
        if !is_kept {
            self.let_pass();
        }
        is_kept
    }

    fn let_pass(&mut self) {
        let Some(kept) = self.collecting.take() else {
            return;
        };
        self.has_overflowed = true;
        self.start(&kept.head, kept.size, kept.close);
        self.push(&kept.bytes);
    }

    /// Adds an interim head, which leaves with the next flush. Too late once the reply has started;
    /// nobody wants one in memory.
    pub(crate) fn push_interim(&mut self, status: u16, fields: &Fields) {
        match &mut self.carrier {
            Carrier::H1(reply) => reply.push_interim(status, fields),
            Carrier::H2(reply) => reply.push_interim(status, fields),
            Carrier::Memory(_) => {}
        }
    }

    /// Whether a head was sent (or buffered): it is too late for another one.
    pub fn has_started(&self) -> bool {
        self.collecting.is_some()
            || match &self.carrier {
                Carrier::H1(reply) => reply.has_started(),
                Carrier::H2(reply) => reply.has_started(),
                Carrier::Memory(reply) => reply.has_started(),
            }
    }

    /// Whether the body is not to be sent: the request was HEAD.
    pub fn is_head_only(&self) -> bool {
        match &self.carrier {
            Carrier::H1(reply) => reply.is_head_only(),
            Carrier::H2(reply) => reply.is_head_only(),
            Carrier::Memory(reply) => reply.is_head_only(),
        }
    }

    /// Adds bytes that leave with the next flush. Meant for short bodies: they are copied.
    pub fn push(&mut self, data: &[u8]) {
        if self.keep(data) {
            return;
        }
        match &mut self.encoding {
            None => self.carrier.push(data),
            Some(encoding) => match encoding.take(data) {
                Ok(()) => self.pass_made(MADE_BYTES),
                Err(_) => self.abort(),
            },
        }
    }

    /// Has the carrier take what the encoder has made, if it is so much.
    fn pass_made(&mut self, least: usize) {
        if let Some(encoding) = &mut self.encoding
            && encoding.made().len() >= least
        {
            self.carrier.push(encoding.made());
            encoding.made().clear();
        }
    }

    /// Compresses some of `data`, while the client takes what comes of it.
    fn poll_encode(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        if self.carrier.is_backed_up() {
            ready!(self.carrier.poll_flush(cx))?;
        }
        let Some(encoding) = &mut self.encoding else {
            return Poll::Ready(Ok(0));
        };
        let count = ready!(encoding.poll_take(cx, data))?;
        self.pass_made(MADE_BYTES);
        Poll::Ready(Ok(count))
    }

    /// Sends some of `data`, after whatever is buffered. Says how much of it was taken.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        if self.keep(data) {
            return Poll::Ready(Ok(data.len()));
        }
        if self.is_encoded() {
            return self.poll_encode(cx, data);
        }
        match &mut self.carrier {
            Carrier::H1(reply) => reply.poll_write(cx, data),
            Carrier::H2(reply) => reply.poll_write(cx, data),
            Carrier::Memory(reply) => {
                reply.push(data);
                match reply.is_aborted() {
                    true => Poll::Ready(Err(Error::new(
                        Kind::ClientGone,
                        "reply_too_long",
                        "there is no room for more of it in memory",
                    ))),
                    false => Poll::Ready(Ok(data.len())),
                }
            }
        }
    }

    /// Sends all of `data`.
    ///
    /// # Errors
    /// When the client has gone or takes nothing for too long.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let count = poll_fn(|cx| self.poll_write(cx, data)).await?;
            data = data.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Sends what is buffered.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.collecting.is_some() {
            return Poll::Ready(Ok(()));
        }
        if let Some(encoding) = &mut self.encoding {
            ready!(encoding.poll_flush(cx))?;
            self.pass_made(1);
        }
        self.carrier.poll_flush(cx)
    }

    /// Ready when the client wants no more of this reply, and says so by what carries it.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.carrier {
            Carrier::H2(reply) => reply.poll_reset(cx),
            Carrier::H1(_) | Carrier::Memory(_) => Poll::Pending,
        }
    }

    /// Finds out whether a client that sends no more still reads: it is sent the first byte of what
    /// comes next in any case, once. Ready where it is known not to.
    pub(super) fn poll_probe(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.carrier {
            Carrier::H1(reply) => reply.poll_probe(cx),
            Carrier::H2(_) | Carrier::Memory(_) => Poll::Pending,
        }
    }

    /// Sends some of a file's bytes straight from the page cache; `Ok(0)` means the file ended early.
    ///
    /// Reads may block on a cold page: look whether it is cached first.
    ///
    /// # Errors
    /// When the client has gone or takes nothing for too long, or the file can't be read.
    pub async fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        count: u64,
    ) -> Result<usize> {
        if self.collecting.is_some() || self.is_encoded() {
            let block = memory::block_of(file, offset, count)?;
            self.write(&block).await?;
            return Ok(block.len());
        }
        match &mut self.carrier {
            Carrier::H1(reply) => poll_fn(|cx| reply.poll_sendfile(cx, file, offset, count)).await,
            Carrier::H2(reply) => poll_fn(|cx| reply.poll_send_file(cx, file, offset, count)).await,
            Carrier::Memory(reply) => reply.send_file(file, offset, count),
        }
    }

    /// Ends the body. What is buffered leaves with the next flush; what is kept back stays.
    pub fn finish(&mut self) {
        if self.collecting.is_some() {
            return;
        }
        if let Some(mut encoding) = self.encoding.take() {
            if encoding.end().is_err() {
                return self.abort();
            }
            self.carrier.push(encoding.made());
        }
        match &mut self.carrier {
            Carrier::H1(reply) => reply.finish(),
            Carrier::H2(reply) => reply.finish(),
            Carrier::Memory(reply) => reply.finish(),
        }
    }

    /// Sets the terms on which it is sent, once it is known who answers.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        match &mut self.carrier {
            Carrier::H1(reply) => reply.set_terms(terms),
            Carrier::H2(reply) => reply.set_terms(terms),
            Carrier::Memory(_) => {}
        }
    }

    /// Says that nothing may follow this reply on its connection.
    pub fn close_after(&mut self) {
        match &mut self.carrier {
            Carrier::H1(reply) => reply.close_after(),
            Carrier::H2(reply) => reply.close_after(),
            Carrier::Memory(_) => {}
        }
    }

    /// Gives up: the client must be able to see that the reply is cut short.
    pub fn abort(&mut self) {
        self.collecting = None;
        self.encoding = None;
        match &mut self.carrier {
            Carrier::H1(reply) => reply.abort(),
            Carrier::H2(reply) => reply.abort(),
            Carrier::Memory(reply) => reply.abort(),
        }
    }

    /// Body bytes the kernel has taken so far, without head and framing.
    pub fn body_bytes(&self) -> u64 {
        match &self.carrier {
            Carrier::H1(reply) => reply.body_bytes(),
            Carrier::H2(reply) => reply.body_bytes(),
            Carrier::Memory(reply) => reply.body_bytes(),
        }
    }

    /// Bytes of the whole reply that the kernel has taken so far.
    pub fn sent_bytes(&self) -> u64 {
        match &self.carrier {
            Carrier::H1(reply) => reply.sent_bytes(),
            Carrier::H2(reply) => reply.sent_bytes(),
            Carrier::Memory(reply) => reply.sent_bytes(),
        }
    }

    /// Status sent; 0 before a head was.
    pub fn status(&self) -> u16 {
        match &self.carrier {
            Carrier::H1(reply) => reply.status(),
            Carrier::H2(reply) => reply.status(),
            Carrier::Memory(reply) => reply.status(),
        }
    }
}

impl Carrier {
    fn push(&mut self, data: &[u8]) {
        match self {
            Self::H1(reply) => reply.push(data),
            Self::H2(reply) => reply.push(data),
            Self::Memory(reply) => reply.push(data),
        }
    }

    /// Whether so much is buffered that it is to be sent before more is.
    fn is_backed_up(&self) -> bool {
        match self {
            Self::H1(reply) => reply.is_backed_up(),
            Self::H2(reply) => reply.is_backed_up(),
            Self::Memory(_) => false,
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Self::H1(reply) => reply.poll_flush(cx),
            Self::H2(reply) => reply.poll_flush(cx),
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}
