//! How what a program says becomes the reply: its head first, then its body, held to its length.
//!
//! Bytes are handed in as they come ([`ProgramReply::poll_take`]), from a pipe or out of records,
//! and their end is announced ([`ProgramReply::end`]). Whatever the client does not take at once
//! is set aside ([`Delivery`]), so that a slow client does not hold the program.

use std::task::{Context, Poll};

use fastcgi::reply::{HeadCaps, ReplyHead};
use wire::Method;

use super::super::delivery::{BodyPart, Delivery};
use crate::error::{Error, Kind, Result};
use crate::exchange::Exchange;
use crate::exchange::reply::{BodySize, Reply};
use crate::stage::{Arrived, Routed};
use crate::{bounds, reply_head, scripts};

/// A program's answer on its way to the client.
#[derive(Debug)]
pub(in super::super) struct ProgramReply {
    head: ReplyHead,
    /// Bytes the program still owes of a body whose length it has said.
    owed: Option<u64>,
    /// Bytes it is still to say, where that is known before it has said so.
    expected: Option<u64>,
    /// No body is passed on, whatever the program says (HEAD, 204, 304).
    is_bodiless: bool,
    delivery: Delivery,
    /// The head is complete, and nobody has sent it yet: how long its body is.
    unsent: Option<BodySize>,
    local: LocalLocation,
    /// Where the reply is to come from instead.
    location: Option<Vec<u8>>,
}

/// What becomes of a reply that is nothing but a local `Location`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum LocalLocation {
    /// The reply is that of the path, served inside (RFC 3875 §6.2.2).
    Inside,
    /// The client is told, with 302.
    ToClient,
}

impl ProgramReply {
    /// Gets ready for an answer of which so many bytes may be set aside.
    pub(in super::super) fn new(
        routed: Routed<'_>,
        exchange: &Exchange,
        aside_bytes_max: u64,
        local: LocalLocation,
    ) -> Self {
        let caps = &routed.serving.generation.process.caps;
        Self {
            head: ReplyHead::new(HeadCaps {
                head_bytes: bounds::upstream_head_bytes(routed, &exchange.route),
                fields: caps.fields,
            }),
            owed: None,
            expected: None,
            is_bodiless: false,
            delivery: Delivery::new(aside_bytes_max, exchange),
            unsent: None,
            local,
            location: None,
        }
    }

    /// Where the reply is to come from instead, if the program has said so: nothing is sent then,
    /// and what else it says is thrown away.
    pub(in super::super) fn location(&self) -> Option<&[u8]> {
        self.location.as_deref()
    }

    /// Whether the head is complete: it is on its way to the client, or about to be.
    pub(in super::super) fn has_head(&self) -> bool {
        self.head.is_complete()
    }

    /// Whether the program has said all that the client can take.
    pub(in super::super) fn is_whole(&self) -> bool {
        self.has_head() && (self.is_bodiless || self.owed == Some(0))
    }

    /// Whether a head is complete that has not been sent.
    pub(in super::super) fn has_unsent_head(&self) -> bool {
        self.unsent.is_some()
    }

    /// Sends a head that is complete and has not been sent.
    ///
    /// # Errors
    /// A script refused it.
    pub(in super::super) async fn send_head(
        &mut self,
        arrived: Arrived<'_>,
        exchange: &mut Exchange,
    ) -> Result<()> {
        match self.unsent.take() {
            Some(size) => reply_head::send(arrived, exchange, size).await,
            None => Ok(()),
        }
    }

    /// Says how much will come, head included, where all of it is there already: a short answer
    /// need not be sent in chunks then.
    pub(in super::super) fn expect(&mut self, bytes: Option<u64>) {
        self.expected = bytes;
    }

    /// Takes some of what the program says; tells how much. Once the head is complete it is to be
    /// sent before more is handed in. Pending while the client takes none
    /// and none may be set aside. Without `data`, goes on with what was set aside.
    ///
    /// # Errors
    /// When it is no head, or more than the program has said it would be, and whatever ends a
    /// reply.
    pub(in super::super) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        routed: Routed<'_>,
        exchange: &mut Exchange,
        data: &[u8],
    ) -> Poll<Result<usize>> {
        if !self.has_head() {
            return Poll::Ready(self.read_head(routed, exchange, data));
        }
        if self.is_bodiless {
            return Poll::Ready(Ok(data.len()));
        }
        let (run, place) = match self.owed {
            None => (data, BodyPart::Within),
            Some(0) if !data.is_empty() => return Poll::Ready(Err(broken("body_too_long"))),
            Some(owed) => {
                let length = usize::try_from(owed).map_or(data.len(), |owed| data.len().min(owed));
                let run = data.get(..length).unwrap_or_default();
                let is_last = run.len() as u64 == owed;
                (
                    run,
                    if is_last {
                        BodyPart::Last
                    } else {
                        BodyPart::Within
                    },
                )
            }
        };
        let reply = &mut exchange.reply;
        let taken = self.delivery.poll_take(cx, routed, reply, run, place);
        if let (Poll::Ready(Ok(count)), Some(owed)) = (&taken, &mut self.owed) {
            *owed -= *count as u64;
        }
        taken
    }

    /// Says that the program has said its last.
    ///
    /// # Errors
    /// When that was too early.
    pub(in super::super) fn end(&self) -> Result<()> {
        if let Err(refusal) = self.head.eof() {
            let reason = "program_no_head";
            return Err(Error::new(Kind::UpstreamBroken, reason, refusal.reason));
        }
        match self.owed {
            Some(1..) if !self.is_bodiless => Err(broken("body_too_short")),
            _ => Ok(()),
        }
    }

    /// Sends the client what was set aside; ready when it has it all.
    ///
    /// # Errors
    /// Whatever ends a reply.
    pub(in super::super) fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Reply,
    ) -> Poll<Result<()>> {
        self.delivery.poll_rest(cx, reply)
    }

    fn read_head(
        &mut self,
        routed: Routed<'_>,
        exchange: &mut Exchange,
        data: &[u8],
    ) -> Result<usize> {
        let used = self.head.read(data).map_err(|refusal| {
            let detail = no_head(self.head.refused_line());
            Error::new(Kind::UpstreamBroken, refusal.reason, detail)
        })?;
        if self.head.is_complete() {
            let rest = self.expected.map(|bytes| bytes.saturating_sub(used as u64));
            self.prepare_head(routed, exchange, rest);
        }
        Ok(used)
    }

    fn prepare_head(&mut self, routed: Routed<'_>, exchange: &mut Exchange, rest: Option<u64>) {
        if self.local == LocalLocation::Inside
            && let Some(location) = self.head.local_location()
        {
            self.location = Some(location.to_vec());
            self.is_bodiless = true;
            return;
        }
        let status = self.head.status;
        exchange.record.upstream_status = status;
        exchange.outgoing.status = status;
        scripts::keep_upstream(*routed, exchange, &self.head.fields);
        exchange.outgoing.fields = std::mem::take(&mut self.head.fields);
        let takes_no_body = exchange.reply.is_head_only() || matches!(status, 204 | 304);
        if !takes_no_body && exchange.request.head.method == Method::Head {
            // A script has made HEAD of what the client asked for: it is told that there is no body.
            self.is_bodiless = true;
            self.unsent = Some(BodySize::Length(0));
            return;
        }
        self.is_bodiless = takes_no_body;
        // To HEAD and the like no body comes: what was printed says nothing of its length.
        let length = self.head.length.or(rest.filter(|_| !self.is_bodiless));
        self.owed = length;
        self.unsent = Some(match length {
            Some(length) => BodySize::Length(length),
            None if self.is_bodiless => BodySize::None,
            None => BodySize::Unknown,
        });
    }
}

/// What the log says of a line that cannot stand in a head.
fn no_head(line: &[u8]) -> String {
    /// Bytes of it that are shown.
    const SHOWN_MAX: usize = 80;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let shown = line.get(..SHOWN_MAX).unwrap_or(line).escape_ascii();
    let more = if line.len() > SHOWN_MAX { "…" } else { "" };
    format!("what the program says is no head of a reply: \"{shown}{more}\"")
}

fn broken(reason: &'static str) -> Error {
    Error::new(Kind::UpstreamBroken, reason, String::new())
}
