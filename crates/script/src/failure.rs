//! Why a script did not come to its end.

use std::fmt;
use std::sync::Arc;

use mruby::Raised;

/// A script that failed, as the error log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The script: its file, or the place of inline code.
    pub script: Arc<str>,
    /// What happened.
    pub cause: Cause,
}

/// What happened to a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// It raised, or its text is no Ruby.
    Raised(Raised),
    /// It took too much of something.
    Budget(Box<Exceeded>),
    /// The interpreter was given up in the middle of it, by this script or by another's.
    Lost,
    /// Its file could not be read.
    Unreadable(String),
}

/// What a script took too much of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// What it did, and how much is allowed.
    pub what: String,
    /// The key of `[scripts]` that says how much; `None` where nobody can change it.
    pub key: Option<&'static str>,
    /// What it was waiting for, and where.
    pub awaited: Option<String>,
    /// Where it stood, innermost first: `FILE:LINE:in METHOD`.
    pub backtrace: Vec<String>,
}

impl Exceeded {
    /// Too much of what a key of `[scripts]` allows.
    pub(crate) fn of(key: &'static str, what: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            what: what.into(),
            key: Some(key),
            awaited: None,
            backtrace: Vec::new(),
        })
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(awaited) = &self.awaited {
            write!(f, "; it waited for {awaited}")?;
        }
        match self.key {
            Some(key) => write!(f, ": see scripts.{key}"),
            None => Ok(()),
        }
    }
}

impl Failure {
    /// A word for records and metrics.
    pub fn reason(&self) -> &'static str {
        match &self.cause {
            Cause::Raised(_) => "script_raised",
            Cause::Budget(..) => "script_budget",
            Cause::Lost => "script_lost",
            Cause::Unreadable(_) => "script_unreadable",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.script)?;
        match &self.cause {
            Cause::Raised(raised) => {
                write!(f, "{raised}")?;
                write_way(f, &raised.backtrace)
            }
            Cause::Budget(exceeded) => {
                write!(f, "{exceeded}")?;
                write_way(f, &exceeded.backtrace)
            }
            Cause::Lost => f.write_str(
                "the worker's interpreter was given up, since one call in a script took too long, \
                 or since scripts filled its memory",
            ),
            Cause::Unreadable(why) => write!(f, "cannot be read: {why}"),
        }
    }
}

fn write_way(f: &mut fmt::Formatter<'_>, backtrace: &[String]) -> fmt::Result {
    backtrace
        .iter()
        .try_for_each(|line| write!(f, "; at {line}"))
}

impl std::error::Error for Failure {}
