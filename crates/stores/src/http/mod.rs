//! HTTP/1.1 for scripts, plain or over TLS: one request, one reply, read whole.
//!
//! On hyper's client, which is not on the path of any request served: what a script asks for is as
//! trusted as the script. Redirects are not followed and nothing is unpacked. Connections are kept
//! for the next request to the same host and port, whichever script it comes from.

mod connection;
mod stream;
mod tls;
mod url;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::rc::Rc;

use hyper::Method;
use hyper::body::Bytes;

use super::Stores;
use super::address::Address;
use super::attempt::{Attempt, Target};
use super::error::{Error, Kind, reason};
use super::limits::VALUE_BYTES_MAX;
use super::pool::{Owner, Pool};
use connection::{HttpFault, HttpReply};
use stream::{HttpStream, Whole};
use url::Scheme;

pub(crate) use connection::HttpConnection;
pub(crate) use tls::Tls;

/// Servers whose connections are kept.
const HOSTS_MAX: usize = 64;
/// Connections to HTTP servers belong to all scripts of a worker.
const EVERYBODY: Owner = Owner(0);

/// What a script asks for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `POST` or any other method's name.
    pub method: String,
    /// `http://host[:port]/path?query`, or the same with `https`.
    pub url: String,
    /// Fields; those that frame the message are left out, `Host` is added where it is missing.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Empty for none.
    pub body: Vec<u8>,
}

/// What a server replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// 100 to 999.
    pub status: u16,
    /// Fields in order, their names in lower case.
    pub fields: Vec<(String, Vec<u8>)>,
    /// At most [`VALUE_BYTES_MAX`] bytes.
    pub body: Vec<u8>,
}

/// Servers used last, so that their idle connections are not lost between two requests.
#[derive(Default)]
pub(super) struct Warm {
    servers: RefCell<VecDeque<Rc<Pool<HttpConnection>>>>,
}

impl Warm {
    fn keep(&self, server: &Rc<Pool<HttpConnection>>) {
        let mut servers = self.servers.borrow_mut();
        if servers.iter().any(|known| Rc::ptr_eq(known, server)) {
            return;
        }
        if servers.len() >= HOSTS_MAX {
            servers.pop_front();
        }
        servers.push_back(Rc::clone(server));
    }

    /// Lets go of servers without connections.
    pub(super) fn sweep(&self) {
        self.servers.borrow_mut().retain(|server| server.open() > 0);
    }
}

impl Stores {
    /// Sends a request and reads the whole reply.
    ///
    /// # Errors
    /// Any [`Kind`] but `Closed` and `Server`: a reply is a reply, whatever its status.
    pub fn http(
        self: &Rc<Self>,
        request: Request,
    ) -> impl Future<Output = Result<Response, Error>> + 'static + use<> {
        let this = Rc::clone(self);
        async move { this.ask_http(request).await }
    }

    async fn ask_http(&self, request: Request) -> Result<Response, Error> {
        let (message, target) = prepare(request)?;
        let (service, servers) = match target.scheme {
            Scheme::Http => ("HTTP server", &self.http),
            Scheme::Https => ("HTTPS server", &self.https),
        };
        let server = servers.get(&target.address, || self.pool(&target.address));
        self.http_warm.keep(&server);
        let method = message.method().clone();
        let attempt = Attempt::new(
            Target {
                service,
                address: server.address(),
            },
            self.limits,
        );
        let work = self.exchange_http(&attempt, &server, target.scheme, message);
        attempt.run(method.as_str(), work).await
    }

    async fn exchange_http(
        &self,
        attempt: &Attempt<'_>,
        server: &Rc<Pool<HttpConnection>>,
        scheme: Scheme,
        message: hyper::Request<Whole>,
    ) -> Result<Response, Error> {
        let method = message.method().clone();
        let mut place = server.lease(EVERYBODY).await;
        if !place.is_empty() && !place.connection().is_ready().await {
            place.close();
        }
        if place.is_empty() {
            let opened = self.open_http(attempt, server.address(), scheme);
            place.put(attempt.connect(opened).await?);
        }
        attempt.talk();
        let reply = place.connection().ask(message).await;
        let reply = reply.map_err(|fault| failed(attempt, method.as_str(), fault))?;
        if place.connection().is_ready().await {
            place.keep();
        }
        Ok(reply.into())
    }

    async fn open_http(
        &self,
        attempt: &Attempt<'_>,
        address: &Address,
        scheme: Scheme,
    ) -> Result<HttpConnection, Error> {
        let Address::Tcp { host, port } = address else {
            return Err(attempt.unconnected("a URL names a host"));
        };
        let stream = attempt.dial_tcp(&self.names, host, *port).await?;
        let stream = match scheme {
            Scheme::Http => HttpStream::Plain(stream),
            Scheme::Https => {
                let begun = self.tls.begin(stream, host).await;
                HttpStream::Tls(begun.map_err(|why| attempt.unconnected(&why))?)
            }
        };
        let opened = HttpConnection::open(stream).await;
        opened.map_err(|_| attempt.unconnected("the connection ended at once"))
    }
}

fn prepare(request: Request) -> Result<(hyper::Request<Whole>, url::Endpoint), Error> {
    let target = url::Endpoint::parse(&request.url)?;
    if request.body.len() > VALUE_BYTES_MAX {
        let text = format!("the body of a request has at most {VALUE_BYTES_MAX} bytes");
        return Err(Error::new(Kind::Argument, text));
    }
    let method = Method::from_bytes(request.method.as_bytes());
    let method = method
        .ok()
        .filter(|method| *method != Method::CONNECT)
        .ok_or_else(|| {
            let text = format!("`{}` is no method", request.method.escape_default());
            Error::new(Kind::Argument, text)
        })?;
    let fields = url::fields(&request.fields, target.host.clone())?;
    let body = Whole((!request.body.is_empty()).then(|| Bytes::from(request.body)));
    let mut message = hyper::Request::new(body);
    *message.method_mut() = method;
    *message.uri_mut() = target.path.clone();
    *message.headers_mut() = fields;
    Ok((message, target))
}

impl From<HttpReply> for Response {
    fn from(reply: HttpReply) -> Self {
        let field = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
            (name.as_str().to_owned(), value.as_bytes().to_vec())
        };
        Self {
            status: reply.status.as_u16(),
            fields: reply.fields.iter().map(field).collect(),
            body: reply.body,
        }
    }
}

fn failed(attempt: &Attempt<'_>, what: &str, fault: HttpFault) -> Error {
    let error = match fault {
        HttpFault::Body => {
            let why = format!("the body has more than {VALUE_BYTES_MAX} bytes");
            return attempt.failed(Kind::TooLarge, what, &why);
        }
        HttpFault::Switched => {
            let why = "the server wants to switch protocols";
            return attempt.failed(Kind::Protocol, what, why);
        }
        HttpFault::Client(error) => error,
    };
    if error.is_parse() {
        let why = format!("the reply cannot be read: {error}");
        return attempt.failed(Kind::Protocol, what, &why);
    }
    let why = match error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>())
    {
        Some(error) => reason(error),
        None => "the server closed the connection".to_owned(),
    };
    attempt.failed(Kind::Lost, what, &why)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
