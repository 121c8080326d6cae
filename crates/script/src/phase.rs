//! When a script runs.

use std::fmt;

/// A moment in the life of a worker, a connection or a request at which scripts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A worker's VM has opened.
    Init,
    /// After `init`.
    WorkerInit,
    /// Before a worker's VM closes.
    WorkerExit,
    /// Chooses the certificate of a handshake.
    SslHandshake,
    /// Before a request is resolved.
    Rewrite,
    /// After permits, before the handler.
    Access,
    /// Names the upstream.
    Set,
    /// Answers the request.
    Content,
    /// Before the reply's head is sent.
    HeaderFilter,
    /// Over a whole reply body.
    BodyFilter,
    /// After the reply, once, whatever became of the request.
    Log,
}

impl Phase {
    /// Its name, as in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::WorkerInit => "worker_init",
            Self::WorkerExit => "worker_exit",
            Self::SslHandshake => "ssl_handshake",
            Self::Rewrite => "rewrite",
            Self::Access => "access",
            Self::Set => "set",
            Self::Content => "content",
            Self::HeaderFilter => "header_filter",
            Self::BodyFilter => "body_filter",
            Self::Log => "log",
        }
    }

    /// Whether it belongs to a VM and to no request.
    pub fn is_of_vm(self) -> bool {
        matches!(self, Self::Init | Self::WorkerInit | Self::WorkerExit)
    }

    /// All of them, in the order they come.
    pub const ALL: [Self; 11] = [
        Self::Init,
        Self::WorkerInit,
        Self::WorkerExit,
        Self::SslHandshake,
        Self::Rewrite,
        Self::Access,
        Self::Set,
        Self::Content,
        Self::HeaderFilter,
        Self::BodyFilter,
        Self::Log,
    ];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
