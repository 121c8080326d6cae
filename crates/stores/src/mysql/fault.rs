//! Why a statement has no answer, sorted by what it means for the connection.

use std::io;

use super::handshake::Failure;
use super::reply::{MysqlFault, Refusal};
use crate::attempt::Attempt;
use crate::error::{Error, Kind, reason};

/// Errors of the server after which it closes the connection: it shuts down, or killed it.
const LAST_WORDS: [u16; 4] = [1053, 1184, 1927, 4031];

/// Why a statement has no answer.
#[derive(Debug)]
pub(super) enum StatementFault {
    /// The connection is gone.
    Lost(io::Error),
    /// The server said no.
    Refused(Refusal),
    /// What came is no answer, or too much of one.
    Reply(MysqlFault),
    /// Nobody was logged in.
    Handshake(Failure),
    /// Another number of values than the statement has placeholders; it was not executed.
    Binds { required: usize, supplied: usize },
}

impl From<io::Error> for StatementFault {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<MysqlFault> for StatementFault {
    fn from(fault: MysqlFault) -> Self {
        Self::Reply(fault)
    }
}

impl From<Failure> for StatementFault {
    fn from(failure: Failure) -> Self {
        Self::Handshake(failure)
    }
}

impl StatementFault {
    /// Whether the connection has answered whole and can be asked again.
    pub(super) fn leaves_connection(&self) -> bool {
        match self {
            Self::Refused(refusal) => !LAST_WORDS.contains(&refusal.code),
            Self::Binds { .. } => true,
            _ => false,
        }
    }

    /// Whether the server cannot prepare this statement but may take it as text.
    pub(super) fn wants_text(&self) -> bool {
        const ER_UNSUPPORTED_PS: u16 = 1295;
        matches!(self, Self::Refused(refusal) if refusal.code == ER_UNSUPPORTED_PS)
    }

    /// The error of a statement.
    pub(super) fn of_statement(&self, attempt: &Attempt<'_>, what: &str) -> Error {
        let (kind, why) = match self {
            Self::Lost(error) => return attempt.lost(what, error),
            Self::Binds { required, supplied } => {
                let why = format!("the statement takes {required} values and got {supplied}");
                (Kind::Argument, why)
            }
            Self::Reply(fault) => (fault.kind(), fault.to_string()),
            Self::Handshake(Failure::Refused(refusal)) | Self::Refused(refusal) => {
                let kind = match LAST_WORDS.contains(&refusal.code) {
                    true => Kind::Lost,
                    false if refusal.is_of_text => Kind::Statement,
                    false => Kind::Server,
                };
                let error = attempt.failed(kind, what, &refusal.to_string());
                return error.with_code(refusal.code);
            }
            Self::Handshake(failure) => (Kind::Protocol, failure.to_string()),
        };
        attempt.failed(kind, what, &why)
    }

    /// The error of connecting and logging in.
    pub(super) fn of_connecting(&self, attempt: &Attempt<'_>) -> Error {
        match self {
            Self::Handshake(Failure::Refused(refusal)) | Self::Refused(refusal) => attempt
                .unconnected(&refusal.to_string())
                .with_code(refusal.code),
            Self::Handshake(failure) => attempt.unconnected(&failure.to_string()),
            Self::Lost(error) => attempt.unconnected(&reason(error)),
            Self::Reply(_) | Self::Binds { .. } => {
                attempt.unconnected(&Failure::Unknown.to_string())
            }
        }
    }
}
