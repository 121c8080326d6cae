//! Why an exchange could not be answered as asked.
//!
//! One type for the whole request path: what went wrong (`reason`, a stable word for logs and
//! metrics), whose doing it was, and detail for the log. Which status a client sees is decided in
//! [`crate::error_reply`] and nowhere else; the detail never leaves the machine.

use std::ops::{Deref, DerefMut};
use std::{fmt, io};

/// A failed exchange. It is hardly ever made and passes many hands: in a box, what goes well need
/// not have room for it.
#[derive(Debug, Clone)]
pub struct Error(Box<Failure>);

/// What is known of a failed exchange.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What happened.
    pub kind: Kind,
    /// Stable snake_case word for logs and metrics.
    pub reason: &'static str,
    /// What was being done and with what; for the log only, empty when `reason` says it all.
    pub detail: String,
}

/// What happened, as far as the reply depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The client's bytes or request are at fault; the status says how.
    Refused(u16),
    /// The client went away or stopped taking bytes: nobody is left to answer.
    ClientGone,
    /// The client was too slow with its request.
    ClientSlow,
    /// No server of the upstream could be reached or none is in service.
    UpstreamDown,
    /// The upstream's reply made no sense or broke off.
    UpstreamBroken,
    /// The upstream was silent for too long.
    UpstreamSlow,
    /// A cap of ours was reached.
    Full,
    /// A limit lets no more requests in: the status its configuration gives it, and when to come
    /// back.
    OverLimit {
        /// Status of the reply.
        status: u16,
        /// Seconds.
        retry_after_s: u16,
    },
    /// The pool that should answer does not run: when to come back.
    NotWarm {
        /// Seconds.
        retry_after_s: u16,
    },
    /// There is too much to do altogether: the status says how it is told so.
    Shed(u16),
    /// A program ran into a limit set for it.
    Limited,
    /// Our own failing.
    Internal,
}

/// What engine functions return.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the upstream may go on with the request it was given, its connection being sound:
    /// somebody else is at fault. One that is silent, broken or gone is not waited for.
    pub fn leaves_upstream_at_work(&self) -> bool {
        match self.kind {
            Kind::ClientGone
            | Kind::ClientSlow
            | Kind::Refused(_)
            | Kind::OverLimit { .. }
            | Kind::Shed(_)
            | Kind::Internal => true,
            Kind::UpstreamDown
            | Kind::UpstreamBroken
            | Kind::UpstreamSlow
            | Kind::Full
            | Kind::NotWarm { .. }
            | Kind::Limited => false,
        }
    }

    /// Makes an error.
    pub fn new(kind: Kind, reason: &'static str, detail: impl Into<String>) -> Self {
        Self::of(Failure {
            kind,
            reason,
            detail: detail.into(),
        })
    }

    #[cold]
    fn of(failure: Failure) -> Self {
        Self(Box::new(failure))
    }

    /// The system said no.
    pub fn io(kind: Kind, reason: &'static str, error: &io::Error) -> Self {
        Self::new(kind, reason, config::reason(error))
    }

    /// The client's fault, answered with `status`.
    pub fn refused(status: u16, reason: &'static str) -> Self {
        Self::new(Kind::Refused(status), reason, String::new())
    }

    /// A read from the client failed.
    pub fn client_read(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::new(Kind::ClientSlow, "client_slow", String::new()),
            _ => Self::io(Kind::ClientGone, "client_gone", error),
        }
    }

    /// A write to the client failed.
    pub fn client_write(error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::TimedOut => "client_stalled",
            _ => "client_gone",
        };
        Self::io(Kind::ClientGone, reason, error)
    }
}

impl Deref for Error {
    type Target = Failure;

    fn deref(&self) -> &Failure {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut Failure {
        &mut self.0
    }
}

impl From<wire::Refusal> for Error {
    fn from(refusal: wire::Refusal) -> Self {
        Self::refused(refusal.status, refusal.reason)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
