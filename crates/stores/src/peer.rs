//! A server for tests that does what it is told, byte for byte, also what no real one would.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// One thing a server does on a connection.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// Reads exactly these bytes.
    Expect(&'static [u8]),
    /// Writes these at once.
    Send(&'static [u8]),
    /// Writes these one by one, letting the client run in between.
    Drip(&'static [u8]),
    /// Reads so many bytes, whatever they are.
    Hear(usize),
    /// Waits until the client closes.
    ExpectClose,
}

/// A listening server; it ends when dropped.
pub(crate) struct Peer {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    finished: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Peer {
    /// Runs one script for each connection in turn, and the last one for all further ones.
    pub(crate) async fn start(scripts: Vec<Vec<Step>>) -> Self {
        Self::run(move |number, stream| {
            let script = scripts.get(number).or(scripts.last()).cloned();
            perform(stream, script.unwrap_or_default())
        })
        .await
    }

    /// Answers each line with what a function makes of it, one after another.
    pub(crate) async fn answer(answer: fn(&[u8]) -> Vec<u8>) -> Self {
        Self::run(move |_, stream| converse(stream, answer, vec![usize::MAX])).await
    }

    /// As [`Peer::answer`], in pieces of these sizes in turn, letting the client run in between.
    pub(crate) async fn answer_in_pieces(answer: fn(&[u8]) -> Vec<u8>, sizes: Vec<usize>) -> Self {
        Self::run(move |_, stream| converse(stream, answer, sizes.clone())).await
    }

    async fn run<F>(serve: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (accepted, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begun, ended) = (Arc::clone(&accepted), Arc::clone(&finished));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serve(begun.fetch_add(1, Ordering::Relaxed), stream);
                let ended = Arc::clone(&ended);
                tokio::spawn(async move {
                    serving.await;
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self {
            address,
            accepted,
            finished,
            task,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Waits until so many connections have done all of their script.
    pub(crate) async fn wait_until_finished(&self, connections: usize) {
        let finished = Arc::clone(&self.finished);
        until("the scripts' end", || {
            finished.load(Ordering::Relaxed) >= connections
        })
        .await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until something holds, letting other tasks run.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "{what} did not come");
}

async fn perform(mut stream: TcpStream, script: Vec<Step>) {
    stream.set_nodelay(true).expect("a socket");
    for step in script {
        match step {
            Step::Expect(bytes) => {
                let mut heard = vec![0; bytes.len()];
                if stream.read_exact(&mut heard).await.is_err() {
                    return;
                }
                assert_eq!(
                    heard.escape_ascii().to_string(),
                    bytes.escape_ascii().to_string()
                );
            }
            Step::Hear(bytes) => {
                if stream.read_exact(&mut vec![0; bytes]).await.is_err() {
                    return;
                }
            }
            Step::Send(bytes) => drop(stream.write_all(bytes).await),
            Step::Drip(bytes) => drip(&mut stream, bytes).await,
            Step::ExpectClose => {
                let mut rest = Vec::new();
                // A reset is a close as well.
                let _ = stream.read_to_end(&mut rest).await;
                assert!(rest.is_empty(), "{}", rest.escape_ascii());
            }
        }
    }
}

async fn drip(stream: &mut TcpStream, bytes: &[u8]) {
    for byte in bytes {
        if stream.write_all(&[*byte]).await.is_err() {
            return;
        }
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
}

async fn converse(mut stream: TcpStream, answer: fn(&[u8]) -> Vec<u8>, sizes: Vec<usize>) {
    let (mut heard, mut sizes) = (Vec::new(), sizes.into_iter().cycle());
    while let Ok(1..) = stream.read_buf(&mut heard).await {
        let mut said = Vec::new();
        while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = heard.drain(..=end).collect();
            said.extend(answer(line.trim_ascii()));
        }
        while !said.is_empty() {
            let size = sizes.next().unwrap_or(1).clamp(1, said.len());
            let piece: Vec<u8> = said.drain(..size).collect();
            if stream.write_all(&piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A port where connections are begun and never made, as behind a firewall that drops.
pub(crate) struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<JoinHandle<()>>,
}

impl BlackHole {
    /// Fills the queue of a listener that accepts nobody.
    pub(crate) async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .expect("a free port");
        let listener = socket.listen(1).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let fill = || {
            tokio::spawn(async move {
                let stream = TcpStream::connect(address).await;
                std::future::pending::<()>().await;
                drop(stream);
            })
        };
        let waiting = (0..16).map(|_| fill()).collect();
        tokio::task::yield_now().await;
        Self {
            address,
            _listener: listener,
            _waiting: waiting,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// An address where nothing listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("a free port");
    listener.local_addr().expect("its address")
}
