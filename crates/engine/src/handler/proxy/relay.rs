//! One attempt at one server: the upload going out, the reply coming back, both at once.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use wire::{FieldId, Framing, Method, ReplyFraming, strip_hop_by_hop};

use super::super::upload::{Coding, Upload};
use super::download::Download;
use super::early_hints::EarlyHints;
use super::heading::{Found, Heading};
use super::redirects;
use super::rest::Rest;
use super::{FailedAttempt, Forward, Retry};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::reply::BodySize;
use crate::spool::Spool;
use crate::upstream::CLOSING;
use crate::upstream::link::Link;
use crate::{bounds, reply_head, scripts};

/// One attempt.
pub(super) struct Attempt {
    upload: Upload,
    download: Download,
    heading: Heading,
    hints: EarlyHints,
    read_ms: u64,
    may_repeat: bool,
    /// When it began.
    asked: Instant,
}

/// How far a reply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// Its head is still to come.
    Awaited,
    /// Its head was read.
    Read,
}

impl Attempt {
    /// Gets ready; the request's head waits in the link already.
    pub(super) fn new(forward: &Forward<'_>, exchange: &Exchange, spooled: Option<Spool>) -> Self {
        let process = &forward.chosen.serving.generation.process;
        let read_ms = bounds::upstream_read_ms(*forward.chosen, &exchange.route);
        let head = &exchange.request.head;
        let has_body = spooled.is_some() || !exchange.body.is_ended();
        Self {
            download: Download::new(forward, exchange, read_ms),
            heading: Heading::new(forward, &exchange.route),
            hints: EarlyHints::default(),
            read_ms,
            asked: Instant::now(),
            may_repeat: head.method.is_idempotent() && !has_body,
            upload: Upload::new(
                match spooled.is_none() && head.framing == Framing::Chunked {
                    true => Coding::Chunks,
                    false => Coding::Plain,
                },
                spooled,
                process.timeouts.upstream_write_ms,
            ),
        }
    }

    /// Sends the request and waits for the head of the final reply; passes on what is said ahead of
    /// it.
    pub(super) async fn read_head(
        &mut self,
        forward: &Forward<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
    ) -> std::result::Result<(), FailedAttempt> {
        let method = exchange.request.head.method;
        poll_fn(|cx| {
            loop {
                self.poll_upload(cx, &mut exchange.body, link)?;
                if !link.buffer.is_empty() {
                    match self.parse(link, method)? {
                        Found::Final => return Poll::Ready(Ok(())),
                        Found::Hints => {
                            let (chosen, whom) = (forward.chosen, forward.proxy.early_hints);
                            let passed = self.hints.pass(cx, chosen, whom, exchange, link);
                            passed.map_err(FailedAttempt::last)?;
                            continue;
                        }
                        Found::Nothing => {}
                    }
                }
                match link.poll_read(cx) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(self.closed(link))),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(self.failed(link, error))),
                    Poll::Pending => return self.poll_waiting(cx, exchange, link),
                }
            }
        })
        .await
    }

    /// Moves the upload on. A broken upload stops; an upstream that refused it may have said why.
    fn poll_upload(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Body,
        link: &mut Link,
    ) -> std::result::Result<(), FailedAttempt> {
        if self.upload.is_over() {
            return Ok(());
        }
        match self.upload.poll(cx, body, link) {
            Poll::Ready(Err(error)) if error.kind == Kind::UpstreamBroken => self.upload.stop(),
            Poll::Ready(Err(error)) => return Err(FailedAttempt::last(error)),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        Ok(())
    }

    fn poll_waiting(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
    ) -> Poll<std::result::Result<(), FailedAttempt>> {
        if self.upload.is_over() {
            if exchange.poll_client_gone(cx).is_ready() {
                return Poll::Ready(Err(FailedAttempt::last(client_gone())));
            }
            let error = ready!(link.poll_silence(cx, self.read_ms));
            return Poll::Ready(Err(FailedAttempt::last(error)));
        }
        Poll::Pending
    }

    /// Reads a head from the buffer.
    fn parse(
        &mut self,
        link: &mut Link,
        method: Method,
    ) -> std::result::Result<Found, FailedAttempt> {
        let found = self
            .heading
            .parse(link, method)
            .map_err(FailedAttempt::last)?;
        if found == Found::Final {
            self.download.begin(link.reply.framing);
        }
        Ok(found)
    }

    fn closed(&self, link: &Link) -> FailedAttempt {
        let error = Error::new(Kind::UpstreamBroken, "upstream_closed", String::new());
        self.failed(link, error)
    }

    /// A reused connection that closed before a byte of its reply, and soon, may just have been too old.
    fn failed(&self, link: &Link, error: Error) -> FailedAttempt {
        let is_unheard = link.buffer.is_empty() && self.heading.is_before_first();
        let retry = match is_unheard && self.may_repeat {
            true if link.reused && self.asked.elapsed() < CLOSING => Retry::Reconnect,
            true => Retry::IfEnded,
            false => Retry::No,
        };
        FailedAttempt { error, retry }
    }

    /// Sends the reply's head to the client and passes its body on, until the upstream has said
    /// its last.
    pub(super) async fn pass_on(
        &mut self,
        forward: &Forward<'_>,
        exchange: &mut Exchange,
        link: &mut Link,
        server: &str,
    ) -> Result<()> {
        let size = copy_head(forward, exchange, link);
        redirects::rewrite(forward.proxy, exchange, (&link.io, server));
        reply_head::send(**forward.chosen, exchange, size).await?;
        poll_fn(|cx| {
            self.poll_upload(cx, &mut exchange.body, link)
                .map_err(|failure| failure.error)?;
            let passed = self.download.poll(cx, forward, &mut exchange.reply, link);
            if passed.is_pending()
                && self.upload.is_over()
                && exchange.poll_client_gone(cx).is_ready()
            {
                return Poll::Ready(Err(client_gone()));
            }
            passed
        })
        .await
    }

    /// Sends the client what of the reply it has not taken yet.
    pub(super) async fn send_rest(&mut self, exchange: &mut Exchange) -> Result<()> {
        poll_fn(|cx| self.download.poll_rest(cx, &mut exchange.reply)).await
    }

    /// What is still to come where the client has gone; `None` where not a byte of the request was
    /// sent. `head` says how far the reply has come.
    pub(super) fn into_rest(self, method: Method, head: Head, link: &Link) -> Option<Rest> {
        self.upload.has_sent(link).then(|| Rest {
            method,
            heading: match head {
                Head::Awaited => Some(self.heading),
                Head::Read => None,
            },
            incoming: self.download.into_incoming(),
        })
    }

    /// Whether the connection can carry another exchange.
    pub(super) fn leaves_reusable(&self, link: &Link) -> bool {
        link.reply.keep_alive
            && !self.heading.distrusted
            && self.download.is_read()
            && self.upload.is_done()
            && link.buffer.is_empty()
    }
}

/// Takes over status and fields; says how long the body is.
fn copy_head(forward: &Forward<'_>, exchange: &mut Exchange, link: &mut Link) -> BodySize {
    let reply = &mut link.reply;
    scripts::keep_upstream(**forward.chosen, exchange, &reply.fields);
    let length = reply.fields.get(FieldId::ContentLength);
    let announced = length.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    strip_hop_by_hop(&mut reply.fields);
    reply.fields.remove(FieldId::ContentLength);
    reply.fields.remove(FieldId::XRequestId);
    exchange.outgoing.status = reply.status;
    // Nothing is copied: the link gets an empty set for its next reply.
    debug_assert!(exchange.outgoing.fields.is_empty());
    std::mem::swap(&mut exchange.outgoing.fields, &mut reply.fields);
    let is_owed_a_body = !exchange.reply.is_head_only() && !matches!(reply.status, 204 | 304);
    match (reply.framing, announced) {
        (ReplyFraming::Length(length), _) => BodySize::Length(length),
        (ReplyFraming::Chunked | ReplyFraming::UntilClose, _) => BodySize::Unknown,
        // A script has made HEAD of what the client asked for: it is told that there is no body.
        (ReplyFraming::None, _) if is_owed_a_body => BodySize::Length(0),
        // An answer to HEAD says how long the body would be.
        (ReplyFraming::None, Some(length)) => BodySize::Length(length),
        (ReplyFraming::None, None) => BodySize::None,
    }
}

fn client_gone() -> Error {
    Error::new(Kind::ClientGone, "client_gone", String::new())
}
