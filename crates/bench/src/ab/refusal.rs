//! Why there is no load, or no report, and the exit status that says so to scripts.

use std::process::ExitCode;

use super::flags;

/// EINVAL, ApacheBench's status for wrong use.
pub(crate) const INVALID: u8 = 22;

/// What ends us before the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u8,
    pub(crate) words: String,
    usage: Usage,
}

/// Whether the usage goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    Printed,
    Left,
}

impl Refusal {
    /// Of a wrong command line.
    pub(crate) fn usage(words: impl Into<String>) -> Self {
        Refusal {
            status: INVALID,
            words: words.into(),
            usage: Usage::Printed,
        }
    }

    /// Of anything else.
    pub(crate) fn plain(status: u8, words: impl Into<String>) -> Self {
        Refusal {
            status,
            words: words.into(),
            usage: Usage::Left,
        }
    }

    /// Prints it. It comes last, so that a screen full of usage does not hide it.
    pub(crate) fn say(&self, program: &str) -> ExitCode {
        if self.usage == Usage::Printed {
            eprintln!("{}", flags::usage(program));
        }
        eprintln!("{program}: {}", self.words);
        ExitCode::from(self.status)
    }
}

/// Refuses a command line.
pub(crate) fn refuse<T>(words: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::usage(words))
}

/// Refuses without the usage.
pub(crate) fn refuse_plainly<T>(status: u8, words: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::plain(status, words))
}
