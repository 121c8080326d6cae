//! Exchanges at rest: the memory one leaves to the next, whatever its connection.
//!
//! The idea: what was used last is still in the processor's cache. However many connections a
//! worker has, its exchanges live in the same few places, and a connection that waits for its
//! next request holds none.

use std::cell::RefCell;

use super::memory::{MemoryBody, MemoryReply};
use super::{Body, Exchange, Peer, Reply};

/// Exchanges a worker keeps.
const KEPT_MAX: usize = 64;

/// The exchanges of one worker that no connection holds.
#[derive(Debug, Default)]
pub struct Spares {
    /// The one used last on top.
    #[allow(clippy::vec_box, reason = "exchanges are large, and handed around")]
    kept: RefCell<Vec<Box<Exchange>>>,
}

impl Spares {
    /// Takes one, or makes one. It has neither a body to read nor a reply to write.
    pub fn acquire(&self) -> Box<Exchange> {
        let kept = self.kept.borrow_mut().pop();
        kept.unwrap_or_else(|| {
            let (body, reply) = (MemoryBody::default(), MemoryReply::default());
            let (body, reply) = (Body::Memory(body), Reply::from(reply));
            Box::new(Exchange::new(Peer::LOCAL, body, reply))
        })
    }

    /// Takes one back and keeps it for the next connection.
    pub fn give(&self, mut exchange: Box<Exchange>) {
        exchange.reset();
        exchange.body = Body::Memory(MemoryBody::default());
        let reply = std::mem::replace(&mut exchange.reply, MemoryReply::default().into());
        exchange.spare_out = reply.into_write_buffer();
        let mut kept = self.kept.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(exchange);
        }
    }
}
