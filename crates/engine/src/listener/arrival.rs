//! A fresh connection on its way to the worker that serves it, and where it came from.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use config::model::ListenAddress;

use crate::exchange::request::Peer;

/// A fresh connection, unread.
#[derive(Debug)]
pub struct Arrival {
    /// The socket.
    pub stream: OwnedFd,
    /// Who connected.
    pub peer: Peer,
    /// Where. The connection ends with its reply once that is removed, whoever serves it.
    pub listener: Arc<Listener>,
}

/// A worker's listener, as everybody sees it who has a connection from there: the worker itself,
/// those it hands connections to, and the warden, which accepts for it.
#[derive(Debug)]
pub struct Listener {
    /// Where, as configured.
    pub address: ListenAddress,
    removed: AtomicBool,
    /// When the log last heard of a sender without a header, by the workers' clock; 0 for never.
    pub(super) told_ms: AtomicU64,
    pub(super) wake: tokio::sync::Notify,
}

impl Listener {
    /// One that is there to stay.
    pub fn new(address: ListenAddress) -> Self {
        Self {
            address,
            removed: AtomicBool::new(false),
            told_ms: AtomicU64::new(0),
            wake: tokio::sync::Notify::new(),
        }
    }

    /// Whether the listener is gone from the configuration: its connections end with their reply.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Takes the listener out: it is accepted empty, then closed.
    pub fn remove(&self) {
        self.removed.store(true, Relaxed);
        self.wake.notify_one();
    }
}
