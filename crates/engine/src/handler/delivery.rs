//! A reply's body on its way to the client: straight through, or set aside where the client is slower.
//!
//! Without a buffer a slow client slows whoever answers. With one (`buffer_reply`) what the client
//! does not take at once goes into a [`Spool`], so that the source is free as soon as the reply
//! has been read; what is left then is sent by [`Delivery::poll_rest`].

use std::net::IpAddr;
use std::task::{Context, Poll, ready};

use crate::error::Result;
use crate::exchange::Exchange;
use crate::exchange::reply::Reply;
use crate::shares::Owner;
use crate::spool::{Room, Spool};
use crate::stage::Routed;

/// Largest end of a body that is copied behind the head instead of being sent by itself.
const PUSHED_BYTES_MAX: usize = 16 * 1024;

/// What the client has not taken yet.
#[derive(Debug)]
pub(super) struct Delivery {
    /// Never made where nothing may be set aside.
    aside: Option<Spool>,
    aside_bytes_max: u64,
    /// Whose it is: the owner is made where something is set aside, which hardly any needs.
    client: IpAddr,
}

/// Where bytes stand in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyPart {
    /// More may follow.
    Within,
    /// They are its last.
    Last,
}

impl Delivery {
    /// Gets ready for a body of which so many bytes may be set aside.
    pub(super) fn new(aside_bytes_max: u64, exchange: &Exchange) -> Self {
        Self {
            aside: None,
            aside_bytes_max,
            client: exchange.request.client,
        }
    }

    /// Hands the client what was set aside, then a run of `data`, or sets that aside where the
    /// client takes no more just now; says how much of `data` was taken. Pending while there is no
    /// room: then the client's pace is the source's. With no `data`, pending while something is
    /// left aside.
    pub(super) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        routed: Routed<'_>,
        reply: &mut Reply,
        data: &[u8],
        place: BodyPart,
    ) -> Poll<Result<usize>> {
        match self.poll_client(cx, reply, data, place) {
            Poll::Ready(count) => Poll::Ready(count),
            Poll::Pending if data.is_empty() => Poll::Pending,
            Poll::Pending => self.poll_set_aside(cx, routed, data),
        }
    }

    /// Sends the client what was set aside; ready when it has it all.
    pub(super) fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Reply,
    ) -> Poll<Result<()>> {
        let Some(aside) = &mut self.aside else {
            return Poll::Ready(Ok(()));
        };
        while !aside.is_empty() {
            ready!(aside.poll_fill(cx))?;
            let count = ready!(reply.poll_write(cx, aside.data()))?;
            aside.consume(count);
        }
        Poll::Ready(Ok(()))
    }

    /// A short last run just joins what is buffered.
    fn poll_client(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Reply,
        data: &[u8],
        place: BodyPart,
    ) -> Poll<Result<usize>> {
        ready!(self.poll_rest(cx, reply))?;
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if place == BodyPart::Last && data.len() <= PUSHED_BYTES_MAX {
            reply.push(data);
            return Poll::Ready(Ok(data.len()));
        }
        reply.poll_write(cx, data)
    }

    fn poll_set_aside(
        &mut self,
        cx: &mut Context<'_>,
        routed: Routed<'_>,
        data: &[u8],
    ) -> Poll<Result<usize>> {
        if self.aside_bytes_max == 0 {
            return Poll::Pending;
        }
        let owner = || Owner::new(Some(&routed.site.tenant_name), self.client);
        let spool = || routed.worker.spool(routed.serving, owner());
        let aside = self.aside.get_or_insert_with(spool);
        let allowed = self.aside_bytes_max.saturating_sub(aside.len());
        let room = match ready!(aside.poll_room(cx))? {
            Room::Bytes(room) => room.min(usize::try_from(allowed).unwrap_or(room)),
            Room::None => 0,
        };
        let count = room.min(data.len());
        if count == 0 {
            return Poll::Pending;
        }
        aside.push(data.get(..count).unwrap_or_default());
        Poll::Ready(Ok(count))
    }
}
