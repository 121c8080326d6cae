//! What went wrong, said as what was being done and why it failed.

use std::fmt;

/// A failure that ends the run. Whatever was started is stopped on the way out.
#[derive(Debug)]
pub struct Error {
    doing: String,
    cause: String,
}

impl Error {
    /// `doing` is an infinitive with its object: `start nginx`.
    pub(crate) fn new(doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Error {
            doing: doing.into(),
            cause: cause.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.cause)
    }
}

impl std::error::Error for Error {}
