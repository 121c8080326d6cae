//! What every back end of the test tools is: a listener, a thread a connection, and counts.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A listener and its connections; stops when dropped.
pub(crate) struct Listening {
    address: SocketAddr,
    state: Arc<State>,
}

/// How it stands.
#[derive(Debug, Default)]
pub(crate) struct State {
    stopping: AtomicBool,
    accepted: AtomicUsize,
    ended: AtomicUsize,
}

impl Listening {
    /// Listens there; `serve` gets each connection, with its number, on a thread of its own.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub(crate) fn start(
        address: SocketAddr,
        serve: impl Fn(TcpStream, usize, &Arc<State>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("listen on loopback");
        let address = listener.local_addr().expect("a bound socket");
        let state = Arc::<State>::default();
        let (accepting, serve) = (Arc::clone(&state), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.is_stopping() {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let number = accepting.accepted.fetch_add(1, Ordering::AcqRel);
                let (state, serve) = (Arc::clone(&accepting), Arc::clone(&serve));
                std::thread::spawn(move || {
                    serve(stream, number, &state);
                    state.ended.fetch_add(1, Ordering::AcqRel);
                });
            }
        });
        Self { address, state }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.accepted.load(Ordering::Acquire)
    }

    /// Connections that have not ended yet.
    pub(crate) fn open_connections(&self) -> usize {
        // Read first: one that begins and ends between the two must not make this less than none.
        let ended = self.state.ended.load(Ordering::Acquire);
        self.connections() - ended
    }
}

impl State {
    /// Whether connections are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::Release);
        // Wakes the accepting thread, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}

/// A test that panicked while holding the lock must not hide its own message behind a second one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
