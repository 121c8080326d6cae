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
    /// Takes one, or makes one. It has neither a body to read nor a reply to write: halves that it
    /// has from the last connection are to be attached to the next.
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
        exchange.body.detach();
        exchange.reply.detach();
        (exchange.request.tls, exchange.request.announced) = (None, None);
        let mut kept = self.kept.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(exchange);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::super::h1::{H1Body, H1Reply};
    use super::*;
    use crate::buffer::BufferPool;
    use crate::clock::Clock;
    use crate::deadline::Deadlines;
    use crate::fixture::block_on;
    use crate::io::Io;

    fn io() -> Rc<Io> {
        let (ours, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        Rc::new(Io::new(ours.into()).expect("registered"))
    }

    #[test]
    fn an_exchange_at_rest_keeps_its_halves_and_holds_no_connection() {
        block_on(async {
            let (first, next) = (io(), io());
            let (deadlines, clock) = (Deadlines::new(), Rc::new(Clock::new()));
            let spares = Spares::default();
            let mut exchange = spares.acquire();
            let body = H1Body::new(Rc::clone(&first), &deadlines, &BufferPool::default());
            exchange.body = Body::H1(body);
            exchange.reply = H1Reply::new(Rc::clone(&first), &deadlines, &clock).into();
            spares.give(exchange);
            assert_eq!(Rc::strong_count(&first), 1);
            let mut exchange = spares.acquire();
            let Body::H1(body) = &mut exchange.body else {
                panic!("it has no half to read with");
            };
            body.attach(&next);
            let reply = exchange.reply.h1();
            reply.expect("a half to write with").attach(&next);
            assert_eq!(Rc::strong_count(&next), 3);
        });
    }
}
