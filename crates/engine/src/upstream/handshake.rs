//! TLS on a connection that was just made to a server.
//!
//! The idea: it is a part of connecting. It has what is left of the time for that, a failure is a server that was not
//! reached, and nothing of a request has been sent. Key exchange and the looking at certificates cost too much for a
//! worker and are made by its helpers, at most so many at once: those who need them have been let in already, so they
//! stand in no queue with clients that have yet to say what they want.

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::server::Server;
use crate::deadline::Deadline;
use crate::error::{Error, Kind, Result};
use crate::helper::Lane;
use crate::io::Io;
use crate::tls::servers::ServerTls;
use crate::tls::session::{Rest, Session, SessionFailure};
use crate::tls::stream::TlsStream;
use crate::worker::resources::Resources;

/// Most that is read at once.
const READ_BYTES: usize = 8 * 1024;
/// How often is read, at most: in so many pieces a chain of certificates may arrive.
const READS_MAX: usize = 64;

/// What a step has come to.
type Stepped = (Session, Vec<u8>, std::result::Result<Rest, SessionFailure>);

/// Makes the handshake, `opening` sent before it, until the deadline.
///
/// # Errors
/// Why the server is not spoken with, or that it took too long.
pub(super) async fn shake_hands(
    resources: &Resources,
    (server, tls): (&Server, &Arc<ServerTls>),
    io: Io,
    opening: &[u8],
    deadline: &Deadline,
) -> Result<Io> {
    let mut made = pin!(run(resources, (server, tls), io, opening));
    poll_fn(|cx| match made.as_mut().poll(cx) {
        Poll::Ready(made) => Poll::Ready(made),
        Poll::Pending => deadline.poll_expired(cx).map(|()| {
            let detail = format!("connect to {}: no end of its handshake", server.label);
            Err(Error::new(
                Kind::UpstreamSlow,
                "upstream_connect_timeout",
                detail,
            ))
        }),
    })
    .await
}

async fn run(
    resources: &Resources,
    (server, tls): (&Server, &Arc<ServerTls>),
    io: Io,
    opening: &[u8],
) -> Result<Io> {
    let broken =
        |error: std::io::Error| failed(server, "upstream_handshake", &config::reason(&error));
    send(&io, opening).await.map_err(broken)?;
    let begin = Arc::clone(tls);
    let begun = move || {
        let mut out = Vec::new();
        begin
            .begin(&mut out)
            .map(|session| (session, out, Ok(Rest::Handshake)))
    };
    let begun = resources.helpers.run(Lane::Handshakes, begun).await?;
    let mut stepped: Stepped = begun.map_err(|failure| of_session(server, &failure))?;
    for _ in 0..READS_MAX {
        let (mut session, mut out, rest) = stepped;
        let rest = rest.map_err(|failure| of_session(server, &failure));
        if let Ok(Rest::Open) = rest {
            // It has been asked for nothing yet.
            if !session.opened().is_empty() {
                return Err(failed(
                    server,
                    "upstream_handshake",
                    "it spoke before it was asked",
                ));
            }
            let Io::Socket(socket) = io else {
                return Ok(io);
            };
            let stream = TlsStream::new(socket, session, out, &resources.buffers);
            return Ok(Io::Tls(Box::new(stream)));
        }
        let sent = send(&io, &out).await;
        // What it was told by an alert is what is wrong, whether or not it has heard that.
        rest?;
        sent.map_err(broken)?;
        out.clear();
        let mut received = vec![0; READ_BYTES];
        let count = poll_fn(|cx| io.poll_read(cx, &mut received)).await;
        let count = count.map_err(broken)?;
        if count == 0 {
            return Err(failed(
                server,
                "upstream_handshake",
                "it has closed the connection",
            ));
        }
        received.truncate(count);
        let step = move || {
            let rest = session.receive(&received, &mut out);
            (session, out, rest)
        };
        stepped = resources.helpers.run(Lane::Handshakes, step).await?;
    }
    Err(failed(
        server,
        "upstream_handshake",
        "it does not come to an end",
    ))
}

async fn send(io: &Io, bytes: &[u8]) -> std::io::Result<()> {
    let mut sent = 0;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        sent += poll_fn(|cx| io.poll_write(cx, &[IoSlice::new(rest)])).await?;
    }
    Ok(())
}

fn of_session(server: &Server, failure: &SessionFailure) -> Error {
    failed(server, failure.reason, &failure.detail)
}

fn failed(server: &Server, reason: &'static str, why: &str) -> Error {
    let detail = format!("TLS with {}: {why}", server.label);
    Error::new(Kind::UpstreamDown, reason, detail)
}
