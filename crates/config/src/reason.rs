//! What the system's errors say to people: every message of the program that names one asks here.
//!
//! The idea: `connection refused` says all that `Connection refused (os error 111)` does, and
//! reads as the end of a sentence. Advice, where there is some, is for whoever knows what was
//! being done.

use std::io;

/// An error in words: without the number the system gives it, and without a capital.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let Some(number) = error.raw_os_error() else {
        return text;
    };
    let number = format!(" (os error {number})");
    let words = text.strip_suffix(&number).unwrap_or(&text);
    let mut letters = words.chars();
    match letters.next() {
        // `RFS specific error` begins with a name.
        Some(first) if letters.as_str().starts_with(char::is_lowercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_said_without_numbers_and_capitals() {
        let table = [
            (io::Error::from_raw_os_error(2), "no such file or directory"),
            (io::Error::from_raw_os_error(111), "connection refused"),
            (
                io::Error::other("Name or service not known"),
                "Name or service not known",
            ),
            (io::ErrorKind::TimedOut.into(), "timed out"),
        ];
        for (error, words) in table {
            assert_eq!(reason(&error), words, "{error:?}");
        }
        for number in 1..200 {
            let words = reason(&io::Error::from_raw_os_error(number));
            assert!(!words.is_empty() && !words.contains("os error"), "{words}");
        }
    }
}
