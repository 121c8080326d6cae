//! An ordinary client of HTTP/2, on the crate `h2`: asks for much at once, and tells what came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::wait::PATIENCE;
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Error, RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Windows of the connection and of each stream.
const WINDOW: u32 = 1 << 20;

/// A reply as it came.
#[derive(Debug, Clone)]
pub struct Came {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub fields: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
    /// Whether fields came behind it.
    pub has_trailers: bool,
}

impl Came {
    /// A field's value; empty where there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        let value = self.fields.get(name);
        value.map_or("", |value| value.to_str().unwrap_or("?"))
    }

    /// Its body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A request under way; forgotten, it goes on.
#[derive(Debug)]
pub struct AskedStream {
    came: Receiver<Result<Came, Error>>,
    task: JoinHandle<()>,
}

impl AskedStream {
    /// Waits for the reply.
    ///
    /// # Errors
    /// When the stream or the connection has broken.
    ///
    /// # Panics
    /// When nothing comes in time.
    #[track_caller]
    pub fn came(self) -> Result<Came, Error> {
        let came = self.came.recv_timeout(PATIENCE);
        came.expect("a reply or an error in time")
    }

    /// The reply, which has to come whole.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    #[track_caller]
    pub fn reply(self) -> Came {
        self.came().expect("a whole reply")
    }

    /// Resets the stream.
    pub fn cancel(self) {
        self.task.abort();
    }
}

/// A connection, which lives on a thread of its own until this is dropped.
#[derive(Debug)]
pub struct H2Client {
    handle: Handle,
    sender: SendRequest<Bytes>,
    ended: Receiver<Result<(), Error>>,
    _stays: tokio::sync::oneshot::Sender<()>,
}

impl H2Client {
    /// Connects without TLS.
    ///
    /// # Panics
    /// When nothing comes of it.
    #[must_use]
    pub fn connect(to: SocketAddr) -> Self {
        Self::connect_from([127, 0, 0, 1], to)
    }

    /// Connects without TLS from an address of the loopback.
    ///
    /// # Panics
    /// When nothing comes of it.
    #[must_use]
    pub fn connect_from(from: [u8; 4], to: SocketAddr) -> Self {
        Self::begin(async move {
            let socket = TcpSocket::new_v4().expect("a socket");
            let from = SocketAddr::from((from, 0));
            socket.bind(from).expect("an address of the loopback");
            socket.connect(to).await.expect("a connection")
        })
    }

    /// Connects with TLS.
    ///
    /// # Panics
    /// When nothing comes of it.
    #[must_use]
    pub fn connect_tls(to: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> Self {
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        Self::begin(async move {
            let io = TcpStream::connect(to).await.expect("a connection");
            let connector = TlsConnector::from(Arc::new(config));
            let io = connector.connect(name, io).await.expect("a handshake");
            assert_eq!(io.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            io
        })
    }

    fn begin<S>(connect: impl Future<Output = S> + Send + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (begun, has_begun) = channel();
        let (end, ended) = channel();
        let (stays, stay) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let io = connect.await;
                let mut builder = Builder::new();
                builder.initial_window_size(WINDOW);
                builder.initial_connection_window_size(WINDOW);
                // Until the server says how many (RFC 9113, 6.5.2, asks it for no fewer).
                builder.initial_max_send_streams(100);
                let begin = builder.handshake(io);
                let (sender, connection) = begin.await.expect("a connection of HTTP/2");
                tokio::spawn(async move {
                    let _ = end.send(connection.await);
                });
                let _ = begun.send((Handle::current(), sender));
                let _ = stay.await;
            });
        });
        let begun = has_begun.recv_timeout(PATIENCE);
        let (handle, sender) = begun.expect("a connection in time");
        Self {
            handle,
            sender,
            ended,
            _stays: stays,
        }
    }

    /// Asks; what is asked for at once goes out at once, as far as the server lets it.
    #[must_use]
    pub fn ask(&self, request: Request<Vec<u8>>) -> AskedStream {
        let (send, came) = channel();
        let sender = self.sender.clone();
        let task = self.handle.spawn(async move {
            let _ = send.send(exchange(sender, request).await);
        });
        AskedStream { came, task }
    }

    /// Asks for a page.
    ///
    /// # Panics
    /// When it is none that can be asked for.
    #[must_use]
    pub fn get(&self, url: &str) -> AskedStream {
        self.ask(Request::get(url).body(Vec::new()).expect("a request"))
    }

    /// Waits until the connection is over.
    ///
    /// # Errors
    /// With what ended it, if that was no orderly end.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn ended(&self) -> Result<(), Error> {
        self.ended.recv_timeout(PATIENCE).expect("an end in time")
    }
}

async fn exchange(sender: SendRequest<Bytes>, request: Request<Vec<u8>>) -> Result<Came, Error> {
    let (head, body) = request.into_parts();
    let mut sender = sender.ready().await?;
    let request = Request::from_parts(head, ());
    let (response, stream) = sender.send_request(request, body.is_empty())?;
    drop(sender);
    // A server may answer before it has all, and need not take the rest.
    let (received, _) = tokio::join!(receive(response), send(stream, Bytes::from(body)));
    received
}

async fn send(mut stream: SendStream<Bytes>, mut body: Bytes) -> Result<(), Error> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(room) = room.transpose()? else {
            return Ok(());
        };
        let part = body.split_to(room.min(body.len()));
        stream.send_data(part, body.is_empty())?;
    }
    Ok(())
}

async fn receive(response: ResponseFuture) -> Result<Came, Error> {
    let response = response.await?;
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        body.extend_from_slice(&data);
        let _ = RecvStream::flow_control(&mut stream).release_capacity(data.len());
    }
    let trailers = stream.trailers().await?;
    Ok(Came {
        status: head.status.as_u16(),
        fields: head.headers,
        body,
        has_trailers: trailers.is_some(),
    })
}
