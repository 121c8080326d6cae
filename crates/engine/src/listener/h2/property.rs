//! What holds for any frames whatever: the look at them never fails, and agrees with the crate that reads them.
//!
//! Shared by a fuzz target, its corpus and what chance makes of that. The crate's server is fed as a connection feeds it,
//! in pieces whose size the first byte says; what it accepts and answers must be what was seen to pass.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Fault, Frames, PREFACE};

/// Turns of a connection that nothing is left for.
const TURNS_MAX: usize = 10_000;

/// Both ends of the wire.
struct Wire {
    received: Vec<u8>,
    at: usize,
    piece: usize,
    frames: Frames,
}

struct WireEnd(Rc<RefCell<Wire>>);

impl AsyncRead for WireEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = self.0.borrow_mut();
        if wire.frames.fault().is_some() {
            return Poll::Pending;
        }
        let count = wire.piece.min(buffer.remaining());
        let rest = wire.received.get(wire.at..).unwrap_or_default();
        let part = rest.get(..count).unwrap_or(rest).to_vec();
        wire.at += part.len();
        wire.frames.note_received(&part, 0);
        buffer.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WireEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().frames.note_sent(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.0.borrow_mut();
        for part in data {
            wire.frames.note_sent(part);
        }
        Poll::Ready(Ok(data.iter().map(|part| part.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Frames of a client, behind its preface.
pub(super) fn http2_frames(bytes: &[u8]) {
    let (piece, frames) = bytes.split_first().unwrap_or((&0, &[]));
    let wire = Rc::new(RefCell::new(Wire {
        received: [PREFACE, frames].concat(),
        at: 0,
        piece: usize::from(*piece) + 1,
        frames: Frames::new(0),
    }));
    serve(&wire);
    let wire = wire.borrow();
    assert_ne!(wire.frames.fault(), Some(Fault::Disagreement));
    // However the same bytes are cut up, the same is seen in them.
    let seen = |size: usize| {
        let mut frames = Frames::new(0);
        for part in wire.received.chunks(size) {
            frames.note_received(part, 0);
        }
        format!("{frames:?}")
    };
    assert_eq!(seen(wire.piece), seen(wire.received.len()));
}

/// Lets the crate serve what comes, as a connection does.
fn serve(wire: &Rc<RefCell<Wire>>) {
    let mut cx = Context::from_waker(Waker::noop());
    let handshake = h2::server::Builder::new()
        .max_concurrent_streams(100)
        .max_header_list_size(16 * 1024)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(WireEnd(Rc::clone(wire)));
    let mut handshake = pin!(handshake);
    let mut begun = None;
    for _ in 0..TURNS_MAX {
        if let Poll::Ready(made) = handshake.as_mut().poll(&mut cx) {
            begun = made.ok();
            break;
        }
    }
    let Some(mut h2) = begun else {
        return;
    };
    for turn in 0..TURNS_MAX {
        match h2.poll_accept(&mut cx) {
            Poll::Ready(Some(Ok((_, mut respond)))) => {
                let stream = respond.stream_id().as_u32();
                wire.borrow_mut().frames.note_accepted(stream);
                // Every other one is answered, the others are reset with it.
                if turn % 2 == 0 {
                    let _ = respond.send_response(http::Response::new(()), true);
                }
            }
            Poll::Ready(_) => return,
            Poll::Pending if wire.borrow().frames.fault().is_some() => return,
            Poll::Pending => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::http2_frames;

    #[test]
    fn corpus() {
        testkit::replay("http2_frames", http2_frames);
    }

    #[test]
    fn corpus_changed_by_chance() {
        testkit::mutate("http2_frames", http2_frames);
    }
}
