//! What the MySQL client library reports, sorted by what it means for the connection.

use mysql_async::{DriverError, IoError, ServerError};

use super::answer::ROWS_MAX;
use crate::store::VALUE_BYTES_MAX;
use crate::store::attempt::Attempt;
use crate::store::error::{Error, Kind, reason};

/// Errors of the server after which it closes the connection: it shuts down, or killed it.
const LAST_WORDS: [u16; 4] = [1053, 1184, 1927, 4031];

/// Why a statement has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The library's own.
    Client(mysql_async::Error),
    /// Another number of values than the statement has placeholders; it was not executed.
    Binds { required: usize, supplied: usize },
    /// More rows than [`ROWS_MAX`].
    Rows,
    /// More bytes than [`VALUE_BYTES_MAX`].
    Bytes,
}

impl From<mysql_async::Error> for Fault {
    fn from(error: mysql_async::Error) -> Self {
        Self::Client(error)
    }
}

impl Fault {
    /// Whether the connection has answered whole and can be asked again.
    pub(super) fn leaves_connection(&self) -> bool {
        match self {
            Self::Client(mysql_async::Error::Server(error)) => !LAST_WORDS.contains(&error.code),
            Self::Binds { .. } => true,
            _ => false,
        }
    }

    /// Whether the server cannot prepare this statement but may take it as text.
    pub(super) fn wants_text(&self) -> bool {
        const ER_UNSUPPORTED_PS: u16 = 1295;
        matches!(self, Self::Client(mysql_async::Error::Server(error)) if error.code == ER_UNSUPPORTED_PS)
    }

    /// The error of a statement.
    pub(super) fn of_statement(self, attempt: &Attempt<'_>, what: &str) -> Error {
        let (kind, why) = match self {
            Self::Binds { required, supplied } => {
                let why = format!("the statement takes {required} values and got {supplied}");
                (Kind::Argument, why)
            }
            Self::Rows => (
                Kind::TooLarge,
                format!("more than {ROWS_MAX} rows: add a LIMIT"),
            ),
            Self::Bytes => {
                let why = format!("more than {VALUE_BYTES_MAX} bytes: ask for less at a time");
                (Kind::TooLarge, why)
            }
            Self::Client(mysql_async::Error::Server(error)) => {
                let kind = match LAST_WORDS.contains(&error.code) {
                    true => Kind::Lost,
                    false => Kind::Server,
                };
                return attempt
                    .failed(kind, what, &said(&error))
                    .with_code(error.code);
            }
            Self::Client(error) => sort(&error),
        };
        attempt.failed(kind, what, &why)
    }

    /// The error of connecting and logging in.
    pub(super) fn of_connecting(self, attempt: &Attempt<'_>) -> Error {
        match self {
            Self::Client(mysql_async::Error::Server(error)) => {
                attempt.unconnected(&said(&error)).with_code(error.code)
            }
            Self::Client(error) => attempt.unconnected(&sort(&error).1),
            _ => attempt.unconnected("the server's greeting was not understood"),
        }
    }
}

fn said(error: &ServerError) -> String {
    format!("ERROR {} ({}): {}", error.code, error.state, error.message)
}

fn sort(error: &mysql_async::Error) -> (Kind, String) {
    match error {
        mysql_async::Error::Io(IoError::Io(error)) => (Kind::Lost, reason(error)),
        mysql_async::Error::Driver(DriverError::ConnectionClosed) => {
            (Kind::Lost, "the server closed the connection".to_owned())
        }
        mysql_async::Error::Driver(DriverError::PacketTooLarge) => (
            Kind::TooLarge,
            "a packet longer than the client accepts".to_owned(),
        ),
        mysql_async::Error::Driver(DriverError::UnexpectedPacket { .. }) => (
            Kind::Protocol,
            "the answer is none of MySQL's: what listens there?".to_owned(),
        ),
        error => (Kind::Protocol, error.to_string()),
    }
}
