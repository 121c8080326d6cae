//! What may go wrong between a script and a store, in words for an operator.
//!
//! Each kind stands for one phase, so that a log line says what to look at: the name, the server,
//! the limit of connections, the answer.

use std::fmt;
use std::io;
use std::time::Duration;

/// What was being done when it went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// What the script asked for cannot be asked; nothing was sent.
    Argument,
    /// The script closed the object before; nothing was sent.
    Closed,
    /// The server's name has no address.
    Lookup,
    /// No connection could be made, or the server refused the login.
    Connect,
    /// All places for connections to this server were taken for the whole time allowed.
    Waited,
    /// The server took the command and did not answer in time.
    Timeout,
    /// The connection ended in the middle; whether the server did what it was asked is unknown.
    Lost,
    /// The answer was none this protocol knows.
    Protocol,
    /// The answer was longer than this client accepts.
    TooLarge,
    /// The server said no to the statement's text: no grammar, no such table, no right to it.
    Statement,
    /// The server understood and said no.
    Server,
}

/// An operation on a store that did not work out.
///
/// Its text names the store, the server and the reason in one line; it holds no value of the
/// script's and no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    code: Option<u16>,
    text: String,
}

impl Error {
    /// Makes an error of a kind out of its line.
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            code: None,
            text: text.into(),
        }
    }

    /// Adds the number the server gave, as MySQL does.
    pub(crate) fn with_code(mut self, code: u16) -> Self {
        self.code = Some(code);
        self
    }

    /// The phase it went wrong in.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The server's own number of the error, where it gives one.
    pub fn code(&self) -> Option<u16> {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Says in a word why the system refused.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused".to_owned(),
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to the host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "no route to the network".to_owned(),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

/// Writes a time allowed as an operator would: `5 s`, `250 ms`.
pub fn spell(time: Duration) -> String {
    match time.as_millis() {
        millis if millis >= 1_000 && millis.is_multiple_of(1_000) => {
            format!("{} s", millis / 1_000)
        }
        millis => format!("{millis} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_in_the_unit_an_operator_would_use() {
        for (millis, spelled) in [
            (5_000, "5 s"),
            (250, "250 ms"),
            (1_500, "1500 ms"),
            (0, "0 ms"),
        ] {
            assert_eq!(spell(Duration::from_millis(millis)), spelled);
        }
    }

    #[test]
    fn a_refusal_of_the_system_is_one_word() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(reason(&refused), "refused");
        let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(reason(&closed), "the server closed the connection");
    }
}
