//! One connection to an HTTP server, driven by whoever waits for its answer.
//!
//! hyper wants its connection polled beside the request. Others give it to a task; here the future
//! of the request does it, so that nothing is left running when that is dropped.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};

use super::stream::{HttpStream, Whole};
use crate::limits::VALUE_BYTES_MAX;

/// A head, and what is read ahead of a body.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of a reply.
const FIELDS_MAX: usize = 100;

/// A connection that may be idle.
pub(crate) struct HttpConnection {
    sender: SendRequest<Whole>,
    driver: Option<Pin<Box<http1::Connection<HttpStream, Whole>>>>,
}

/// Why there is no reply.
pub(super) enum HttpFault {
    /// The library's own.
    Client(hyper::Error),
    /// A body above [`VALUE_BYTES_MAX`].
    Body,
    /// The server wants to speak something else.
    Switched,
}

impl From<hyper::Error> for HttpFault {
    fn from(error: hyper::Error) -> Self {
        Self::Client(error)
    }
}

/// A reply, read whole.
pub(super) struct HttpReply {
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl HttpConnection {
    pub(super) async fn open(stream: HttpStream) -> Result<Self, HttpFault> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(FIELDS_MAX);
        let (sender, driver) = builder.handshake(stream).await?;
        let driver = Some(Box::pin(driver));
        Ok(Self { sender, driver })
    }

    /// Sends a request and reads its reply to the end.
    pub(super) async fn ask(&mut self, request: Request<Whole>) -> Result<HttpReply, HttpFault> {
        let sent = self.sender.send_request(request);
        let response = drive(&mut self.driver, sent).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(HttpFault::Switched);
        }
        let (head, body) = response.into_parts();
        let body = drive(&mut self.driver, collect(body)).await?;
        Ok(HttpReply {
            status: head.status,
            fields: head.headers,
            body,
        })
    }

    /// Whether it may be asked (again), as far as is known here.
    pub(super) async fn is_ready(&mut self) -> bool {
        let sender = &mut self.sender;
        let driver = &mut self.driver;
        poll_fn(|context| {
            advance(driver, context);
            let ready = matches!(sender.poll_ready(context), Poll::Ready(Ok(())));
            Poll::Ready(ready && driver.is_some())
        })
        .await
    }
}

type Driver = Option<Pin<Box<http1::Connection<HttpStream, Whole>>>>;

fn advance(driver: &mut Driver, context: &mut std::task::Context<'_>) {
    if let Some(running) = driver
        && running.as_mut().poll(context).is_ready()
    {
        // How it ended is told to whoever waits for a reply.
        *driver = None;
    }
}

/// Awaits something of a connection and moves the connection along.
async fn drive<T>(driver: &mut Driver, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    poll_fn(|context| {
        advance(driver, context);
        work.as_mut().poll(context)
    })
    .await
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, HttpFault> {
    let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if told > VALUE_BYTES_MAX {
        return Err(HttpFault::Body);
    }
    let mut bytes = Vec::with_capacity(told);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame?.into_data() else {
            // Trailers are nobody's.
            continue;
        };
        if bytes.len() + data.len() > VALUE_BYTES_MAX {
            return Err(HttpFault::Body);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}
