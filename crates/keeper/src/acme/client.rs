//! The way to an authority: what `instant-acme` sends goes over the client that scripts have.
//!
//! The idea: that client belongs to one thread, and `instant-acme` wants one for all, so requests go
//! through a queue to a task that owns it. It also notices what `instant-acme` doesn't tell: for how
//! long an authority that refuses wants to be left alone. An authority reached over https is never
//! asked anything over plain HTTP, whatever its directory names.

use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::RETRY_AFTER;
use hyper::{Request, Response, StatusCode};
use instant_acme::{BodyWrapper, BytesBody, BytesResponse, Error, HttpClient};
use ipc::acme::Account;
use stores::{Limits, Stores, http};
use tokio::sync::{mpsc, oneshot};

/// What an authority may take. Its answers come after checks that others make for it.
const LIMITS: Limits = Limits {
    connect_timeout: Duration::from_secs(15),
    command_timeout: Duration::from_secs(60),
    connections_max: 8,
    idle_timeout: Duration::from_secs(20),
    time_key: None,
};
/// Requests that wait to be sent.
const WAITING_MAX: usize = 64;
/// Bytes of a reply: a chain, or a directory.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// How often idle connections are looked at.
const SWEEP: Duration = Duration::from_secs(10);

struct Ask {
    request: http::Request,
    answer: oneshot::Sender<Result<http::Response, stores::Error>>,
}

/// One authority's client.
#[derive(Clone)]
pub(super) struct Client {
    asks: mpsc::Sender<Ask>,
    /// `https://` or `http://`, as the directory has it.
    scheme: &'static str,
    rest: Arc<AtomicI64>,
}

impl Client {
    /// Makes the client of an account, and its task on this thread.
    pub(super) fn start(account: &Account) -> Client {
        let stores = match account.authorities.as_str() {
            "" => Stores::new(LIMITS),
            file => Stores::with_authorities(LIMITS, PathBuf::from(file)),
        };
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        tokio::task::spawn_local(answer_all(stores, asked));
        let is_plain = account.directory.starts_with("http://");
        Client {
            asks,
            scheme: if is_plain { "http://" } else { "https://" },
            rest: Arc::default(),
        }
    }

    /// For how many seconds the authority wanted to be left alone when it last refused; forgets it.
    pub(super) fn take_rest_s(&self) -> i64 {
        self.rest.swap(0, Ordering::Relaxed)
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (head, mut body) = request.into_parts();
        let url = head.uri.to_string();
        if !url.starts_with(self.scheme) {
            let why = format!("the authority's directory leads to {url}, which is not https");
            return Err(Error::Other(why.into()));
        }
        let fields = head.headers.iter();
        let fields = fields.map(|(name, value)| (name.as_str().into(), value.as_bytes().into()));
        let body = collect(&mut body).await;
        let request = http::Request {
            method: head.method.as_str().to_owned(),
            url,
            fields: fields.collect(),
            body,
        };
        let (answer, answered) = oneshot::channel();
        let ask = Ask { request, answer };
        let ended = |_| Error::Str("the client has ended");
        self.asks.send(ask).await.map_err(|_| ended(()))?;
        let reply = answered.await.map_err(|_| ended(()))?;
        let reply = reply.map_err(|error| Error::Other(error.to_string().into()))?;
        self.take(reply)
    }

    fn take(&self, reply: http::Response) -> Result<BytesResponse, Error> {
        if reply.body.len() > REPLY_BYTES_MAX {
            return Err(Error::Str("a reply of less than 1 MiB"));
        }
        let mut response = Response::builder().status(reply.status);
        for (name, value) in reply.fields {
            response = response.header(name, value);
        }
        let (parts, ()) = response.body(())?.into_parts();
        let is_refusal = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        if is_refusal.contains(&parts.status) {
            let asked = parts.headers.get(RETRY_AFTER);
            let asked = asked.and_then(|value| value.to_str().ok());
            self.rest.store(asked.map_or(0, seconds), Ordering::Relaxed);
        }
        let body: Box<dyn BytesBody> = Box::new(Bytes::from(reply.body));
        Ok(BytesResponse { parts, body })
    }
}

/// The seconds that a `Retry-After` asks for (RFC 9110, 10.2.3).
fn seconds(text: &str) -> i64 {
    if let Ok(seconds) = text.trim().parse::<u32>() {
        return i64::from(seconds);
    }
    let until = httpdate::parse_http_date(text.trim()).ok();
    let rest = until.and_then(|until| until.duration_since(std::time::SystemTime::now()).ok());
    rest.map_or(0, |rest| i64::try_from(rest.as_secs()).unwrap_or(i64::MAX))
}

/// The body of a request: it is there as a whole.
async fn collect(body: &mut BodyWrapper<Bytes>) -> Vec<u8> {
    use hyper::body::Body;
    let mut whole = Vec::new();
    let mut body = Pin::new(body);
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    whole
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send(request))
    }
}

/// Answers until the last client has gone.
async fn answer_all(stores: Rc<Stores>, mut asked: mpsc::Receiver<Ask>) {
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let ask = tokio::select! {
            ask = asked.recv() => ask,
            _ = sweep.tick() => {
                stores.sweep();
                continue;
            }
        };
        let Some(Ask { request, answer }) = ask else {
            return;
        };
        let reply = stores.http(request);
        tokio::task::spawn_local(async move {
            let _ = answer.send(reply.await);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_seconds_or_a_date() {
        for (text, expected) in [("120", 120), (" 7 ", 7), ("-1", 0), ("soon", 0), ("", 0)] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        let in_an_hour = std::time::SystemTime::now() + Duration::from_secs(3_600);
        let asked = seconds(&httpdate::fmt_http_date(in_an_hour));
        assert!((3_590..=3_600).contains(&asked), "{asked}");
    }
}
