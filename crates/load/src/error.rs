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
    pub fn new(doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Error {
            doing: doing.into(),
            cause: in_words(&cause.to_string()),
        }
    }
}

/// What the system says, in the words of the rest: `connect to a: connection refused` for
/// `connect to a: Connection refused (os error 111)`.
pub fn in_words(text: &str) -> String {
    let Some((words, _)) = text.split_once(" (os error ") else {
        return text.to_owned();
    };
    let (before, reason) = match words.rfind(": ") {
        Some(place) => words.split_at(place + ": ".len()),
        None => ("", words),
    };
    let mut letters = reason.chars();
    match letters.next() {
        // `RFS specific error` begins with a name.
        Some(first) if letters.as_str().starts_with(char::is_lowercase) => {
            format!("{before}{}{}", first.to_lowercase(), letters.as_str())
        }
        _ => words.to_owned(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.cause)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_said_without_numbers_and_capitals() {
        for (text, words) in [
            (
                "No such file or directory (os error 2)",
                "no such file or directory",
            ),
            (
                "connect to a: Connection refused (os error 111)",
                "connect to a: connection refused",
            ),
            ("RFS specific error (os error 75)", "RFS specific error"),
            ("a closed the connection", "a closed the connection"),
        ] {
            assert_eq!(in_words(text), words);
        }
        let error = Error::new("write a", std::io::Error::from_raw_os_error(13));
        assert_eq!(error.to_string(), "write a: permission denied");
    }
}
