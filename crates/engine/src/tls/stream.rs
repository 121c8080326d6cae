//! A socket with TLS around every byte: what [`crate::io::Io`] does on a plain one, sealed and opened.
//!
//! The idea: what is sealed is taken. The part of it that the socket does not take at once is kept, and sent before
//! anything else is; whoever has said his last flushes. So a write that has to wait has taken nothing, and may be made
//! again with other bytes. What more follows at once behind, as a body does behind its head, or a reply behind the last
//! flight of a handshake, is held for it: both leave in one call. Blocks of the worker are borrowed for the length of a
//! call; a connection at rest holds none.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;

use super::session::{SEAL_MAX, Session, sealed_bytes};
use crate::buffer::{BLOCK_BYTES, BufferPool};
use crate::io::receive;

/// Most plaintext that is gathered, or read from a file, at once: the rest of a block is room to seal it into.
const GATHER_MAX: usize = 48 * 1024;
/// Most ciphertext that is received at once.
const RECEIVE_MAX: usize = 64 * 1024;
/// Most sealed bytes that are held for what follows.
const HELD_MAX: usize = 8 * 1024;
/// Most bytes that the other end may have us send by itself, unread.
const UNASKED_MAX: usize = 64 * 1024;
/// How often is received in a row, where nothing comes of it that anybody could read.
const VAIN_MAX: usize = 4;

const _: () = assert!(sealed_bytes(SEAL_MAX) <= BLOCK_BYTES);
const _: () = assert!(GATHER_MAX + sealed_bytes(GATHER_MAX) <= BLOCK_BYTES);

/// A socket with TLS.
#[derive(Debug)]
pub struct TlsStream {
    socket: AsyncFd<OwnedFd>,
    inner: RefCell<Inner>,
    pool: BufferPool,
}

#[derive(Debug)]
struct Inner {
    session: Session,
    /// Sealed and not yet taken by the socket.
    unsent: Vec<u8>,
    /// Whether that was not offered to the socket yet: what is sealed next may leave with it.
    is_held: bool,
    is_closed: bool,
}

/// Whether more follows at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    /// It does: what is sent may wait for it.
    More,
    /// It does not.
    Nothing,
}

impl TlsStream {
    /// Puts a session around a socket; `unsent` is what it still has to say of its handshake.
    pub(crate) fn new(
        socket: AsyncFd<OwnedFd>,
        session: Session,
        unsent: Vec<u8>,
        pool: &BufferPool,
    ) -> Self {
        let inner = Inner {
            session,
            is_held: !unsent.is_empty(),
            unsent,
            is_closed: false,
        };
        Self {
            socket,
            inner: RefCell::new(inner),
            pool: pool.clone(),
        }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &AsyncFd<OwnedFd> {
        &self.socket
    }

    /// How many bytes can be taken; 0 is the end.
    pub(crate) fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let inner = &mut *self.inner.borrow_mut();
        for _ in 0..VAIN_MAX {
            let opened = inner.session.opened().len();
            if opened > 0 || inner.session.is_told_of_end() {
                return Poll::Ready(Ok(opened));
            }
            if inner.session.is_broken() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            // What is kept may be what the other end waits for.
            if let Poll::Ready(Err(error)) = self.poll_sent(inner, cx) {
                return Poll::Ready(Err(error));
            }
            let ready = ready!(self.socket.poll_read_ready(cx))?;
            let mut block = self.pool.acquire();
            let room = block.get_mut(..RECEIVE_MAX).unwrap_or_default();
            let received = receive(&self.socket, ready, room);
            let opened = match received {
                Ok(0) => Some(inner.session.end_without_word().map(|()| 0)),
                Ok(count) => {
                    let arrived = block.get(..count).unwrap_or_default();
                    let opened = inner.session.receive(arrived, &mut inner.unsent);
                    self.send_unasked(inner);
                    opened.err().map(|failure| Err(failure.into()))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) => Some(Err(error)),
            };
            self.pool.give(block);
            if let Some(end) = opened {
                return Poll::Ready(end);
            }
        }
        // Empty records and new keys may come without end: others have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes bytes that were opened.
    pub(crate) fn take(&self, room: &mut [u8]) -> usize {
        let session = &mut self.inner.borrow_mut().session;
        let opened = session.opened();
        let count = opened.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..count), opened.get(..count)) {
            to.copy_from_slice(from);
        }
        session.take(count);
        count
    }

    /// Tries to send what the session says by itself. Who lets too much of it lie has had enough.
    fn send_unasked(&self, inner: &mut Inner) {
        // What is wrong with the socket is found by whoever uses it next.
        let _ = self.try_flush(inner);
        if inner.unsent.len() > UNASKED_MAX + BLOCK_BYTES {
            inner.unsent.clear();
            inner.session.break_off();
        }
    }

    /// Sends what is sealed, until all is taken (`true`) or the socket takes no more.
    fn try_flush(&self, inner: &mut Inner) -> io::Result<bool> {
        inner.is_held = false;
        while !inner.unsent.is_empty() {
            match os::stream::send(self.socket.as_fd(), &inner.unsent) {
                Ok(count) if count == inner.unsent.len() => inner.unsent = Vec::new(),
                Ok(count) => drop(inner.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends what is kept; ready when the socket has taken all of it.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(&mut self.inner.borrow_mut(), cx)
    }

    fn poll_sent(&self, inner: &mut Inner, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush(inner)? {
            ready!(self.socket.poll_write_ready(cx))?.clear_ready();
            // Registers for the next change; one that came meanwhile is ready at once.
            drop(ready!(self.socket.poll_write_ready(cx))?);
        }
        Poll::Ready(Ok(()))
    }

    /// Seals as much as fits into a block, and sends of it what the socket takes.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
        follows: Follows,
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, follows, |session, first, block| match data {
            [one] => {
                let plain = one.get(..SEAL_MAX).unwrap_or(one);
                let sealed = session.seal(plain, first, block)?;
                Ok((plain.len(), 0, sealed))
            }
            many => {
                let (plain, room) = block.split_at_mut(GATHER_MAX);
                let count = gather(many, plain);
                let plain = plain.get(..count).unwrap_or_default();
                Ok((count, GATHER_MAX, session.seal(plain, first, room)?))
            }
        })
    }

    /// As [`Self::poll_write`], for the last bytes of all: TLS's word for the end leaves with them.
    pub(crate) fn poll_write_last(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(self.poll_write(cx, &[IoSlice::new(data)], Follows::More))?;
        if taken == data.len() {
            self.close();
        }
        Poll::Ready(Ok(taken))
    }

    /// Seals and sends a part of a file whose pages are in memory; 0 where it has ended.
    pub(crate) fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, Follows::Nothing, |session, first, block| {
            let (plain, room) = block.split_at_mut(GATHER_MAX);
            let plain = plain.get_mut(..count.min(GATHER_MAX)).unwrap_or_default();
            let read = os::file::read_at(file, plain, offset)?;
            if read == 0 {
                return Ok((0, GATHER_MAX, 0));
            }
            let plain = plain.get(..read).unwrap_or_default();
            Ok((read, GATHER_MAX, session.seal(plain, first, room)?))
        })
    }

    /// `seal` says how much plaintext it took, and where in the block what it was sealed into begins, and its length.
    fn poll_out(
        &self,
        cx: &mut Context<'_>,
        follows: Follows,
        seal: impl FnOnce(&mut Session, &mut Vec<u8>, &mut [u8]) -> io::Result<(usize, usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.is_held || inner.unsent.len() > HELD_MAX {
            ready!(self.poll_sent(inner, cx))?;
        }
        let mut block = self.pool.acquire();
        let sealed = seal(&mut inner.session, &mut inner.unsent, &mut block);
        let taken = sealed.and_then(|(plain, at, count)| {
            let sealed = block.get(at..at + count).unwrap_or_default();
            self.send_or_hold(inner, sealed, follows)?;
            Ok(plain)
        });
        self.pool.give(block);
        Poll::Ready(taken)
    }

    /// Sends what is kept and what was sealed behind it, as much as the socket takes, or holds both for what follows.
    fn send_or_hold(&self, inner: &mut Inner, sealed: &[u8], follows: Follows) -> io::Result<()> {
        if follows == Follows::More && inner.unsent.len() + sealed.len() <= HELD_MAX {
            inner.unsent.extend_from_slice(sealed);
            inner.is_held = true;
            return Ok(());
        }
        if sealed.is_empty() {
            return self.try_flush(inner).map(drop);
        }
        inner.is_held = false;
        let sent = self.try_send(&inner.unsent, sealed, follows)?;
        let of_kept = sent.min(inner.unsent.len());
        inner.unsent.drain(..of_kept);
        let rest = sealed.get(sent - of_kept..).unwrap_or_default();
        inner.unsent.extend_from_slice(rest);
        if inner.unsent.is_empty() {
            inner.unsent = Vec::new();
        }
        Ok(())
    }

    /// Offers the socket what is kept and what was sealed behind it; says how many bytes it takes.
    fn try_send(&self, kept: &[u8], sealed: &[u8], follows: Follows) -> io::Result<usize> {
        let socket = self.socket.as_fd();
        let sent = match (kept, follows) {
            ([], Follows::More) => os::stream::send_more(socket, sealed),
            ([], Follows::Nothing) => os::stream::send(socket, sealed),
            _ => os::stream::send_vectored(socket, &[IoSlice::new(kept), IoSlice::new(sealed)]),
        };
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// Sealed bytes that the socket has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.inner.borrow().unsent.len()
    }

    /// Has the connection end without a word, so that its end is not taken for that of what was sent.
    pub(crate) fn end_unsaid(&self) {
        self.inner.borrow_mut().is_closed = true;
    }

    /// Says that nothing more will be sent, if the socket takes it at once.
    pub(crate) fn close(&self) {
        let inner = &mut *self.inner.borrow_mut();
        if !std::mem::replace(&mut inner.is_closed, true) {
            inner.session.close(&mut inner.unsent);
            // The peer may be gone already; there is nothing left to tell it then.
            let _ = self.try_flush(inner);
        }
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.close();
    }
}

/// Copies as much as there is room for; says how much.
fn gather(data: &[IoSlice<'_>], room: &mut [u8]) -> usize {
    let mut end = 0;
    for part in data {
        let left = room.get_mut(end..).unwrap_or_default();
        let count = part.len().min(left.len());
        if let (Some(to), Some(from)) = (left.get_mut(..count), part.get(..count)) {
            to.copy_from_slice(from);
        }
        end += count;
    }
    end
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::io::Interest;

    use super::*;
    use crate::fixture::block_on;
    use crate::io::register;
    use crate::tls::session::Rest;

    /// Two sessions that may speak, and what the server's still has to say.
    fn sessions() -> (Session, Session, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(vec!["a.test".into()]).expect("made");
        let certificate = made.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("a root");
        let provider = Arc::new(default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a pair");
        let mut server = Session::server(Arc::new(server)).expect("a session");
        let (name, mut said) = (ServerName::try_from("a.test").expect("a name"), Vec::new());
        let mut client = Session::client(Arc::new(client), name, &mut said).expect("a session");
        let (mut reply, mut last) = (Vec::new(), Vec::new());
        server.receive(&said, &mut reply).expect("a hello");
        let rest = client.receive(&reply, &mut last).expect("its reply");
        assert_eq!(rest, Rest::Open);
        reply.clear();
        let rest = server.receive(&last, &mut reply).expect("the last flight");
        assert_eq!(rest, Rest::Open);
        (server, client, reply)
    }

    /// A stream over a socket that keeps apart what is sent by each call, its other end, and who listens there.
    fn stream() -> (TlsStream, OwnedFd, Session) {
        let (here, there) = os::fdpass::packet_pair().expect("a pair");
        let (server, client, unsent) = sessions();
        assert!(!unsent.is_empty(), "tickets are still to be sent");
        let interest = Interest::READABLE | Interest::WRITABLE;
        let socket = register(here, interest).expect("registered");
        let stream = TlsStream::new(socket, server, unsent, &BufferPool::default());
        (stream, there, client)
    }

    /// Has the client hear what one call has sent; whether there was one.
    fn hear(there: &OwnedFd, client: &mut Session) -> bool {
        let mut packet = [0; 64 * 1024];
        let Ok((count, _)) = os::fdpass::try_recv(there.as_fd(), &mut packet) else {
            return false;
        };
        let mut out = Vec::new();
        client
            .receive(&packet[..count], &mut out)
            .expect("records in order");
        true
    }

    #[test]
    fn a_handshakes_last_flight_a_reply_and_the_end_leave_in_one_call() {
        block_on(async {
            let (stream, there, mut client) = stream();
            assert!(!hear(&there, &mut client));
            let taken = poll_fn(|cx| stream.poll_write_last(cx, b"a reply")).await;
            assert_eq!(taken.expect("sent"), 7);
            assert!(hear(&there, &mut client));
            assert_eq!(client.opened(), b"a reply");
            assert!(client.is_told_of_end());
            drop(stream);
            assert!(!hear(&there, &mut client), "the end is said once");
        });
    }

    #[test]
    fn a_head_leaves_with_what_follows_unless_it_is_long() {
        block_on(async {
            let (stream, there, mut client) = stream();
            let write = async |data: &[u8], follows| {
                let data = [IoSlice::new(data)];
                let taken = poll_fn(|cx| stream.poll_write(cx, &data, follows)).await;
                taken.expect("sent")
            };
            write(b"head ", Follows::More).await;
            assert!(!hear(&there, &mut client));
            write(b"body", Follows::Nothing).await;
            assert!(hear(&there, &mut client));
            assert_eq!(client.opened(), b"head body");
            client.take(9);
            write(&[b'h'; HELD_MAX], Follows::More).await;
            assert!(hear(&there, &mut client), "it does not wait");
            assert_eq!(client.opened().len(), HELD_MAX);
            client.take(HELD_MAX);
            write(b"held", Follows::More).await;
            poll_fn(|cx| stream.poll_flush(cx)).await.expect("flushed");
            assert!(hear(&there, &mut client));
            assert_eq!(client.opened(), b"held");
        });
    }

    #[test]
    fn whoever_waits_for_a_request_has_sent_what_was_held() {
        block_on(async {
            let (stream, there, mut client) = stream();
            poll_fn(|cx| {
                assert!(stream.poll_opened(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert!(hear(&there, &mut client), "the tickets");
        });
    }
}
