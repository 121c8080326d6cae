//! How far the supervisor is with its server: one phase, and where each may go.

use std::process::ExitCode;
use std::time::Instant;

use crate::child::Server;
use crate::reload::Generation;

/// How far the server is, and what is waited for.
#[derive(Debug)]
pub(super) enum Phase {
    /// The server was started and is not ready yet. → Serving, Resting, Draining
    Starting { server: Server, until: Instant },
    /// → Reloading, Resting, Draining
    Serving { server: Server },
    /// The server serves, and was given the next generation. → Serving, Resting, Draining
    Reloading {
        server: Server,
        next: Box<Generation>,
        until: Instant,
    },
    /// There is no server until the rest is over. → Starting, Ended
    Resting { until: Instant },
    /// The server finishes what is under way. → Ended
    Draining { server: Server, until: Instant },
    /// Nothing more is to be done.
    Ended(ExitCode),
}

impl Phase {
    /// The server, where there is one.
    pub(super) fn server(&self) -> Option<&Server> {
        use Phase::{Draining, Ended, Reloading, Resting, Serving, Starting};
        match self {
            Starting { server, .. } | Serving { server } => Some(server),
            Reloading { server, .. } | Draining { server, .. } => Some(server),
            Resting { .. } | Ended(_) => None,
        }
    }

    /// As [`Phase::server`], for good.
    pub(super) fn into_server(self) -> Option<Server> {
        match self {
            Phase::Starting { server, .. }
            | Phase::Serving { server }
            | Phase::Reloading { server, .. }
            | Phase::Draining { server, .. } => Some(server),
            Phase::Resting { .. } | Phase::Ended(_) => None,
        }
    }

    /// Takes it to make the next one of it.
    pub(super) fn take(&mut self) -> Phase {
        std::mem::replace(self, Phase::Ended(ExitCode::FAILURE))
    }
}
