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
    /// It took too much of something: what, and the key that says how much.
    Budget(&'static str, &'static str),
    /// The interpreter was given up in the middle of it, by this script or by another's.
    Lost,
    /// Its file could not be read.
    Unreadable(String),
}

impl Failure {
    /// A word for records and metrics.
    pub fn reason(&self) -> &'static str {
        match &self.cause {
            Cause::Raised(raised) if raised.class == "ScriptBudgetError" => "script_budget",
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
                for line in &raised.backtrace {
                    write!(f, "; at {line}")?;
                }
                Ok(())
            }
            Cause::Budget(what, key) => write!(f, "{what}: see scripts.{key}"),
            Cause::Lost => f.write_str(
                "the worker's interpreter was given up, since one call in a script took too long",
            ),
            Cause::Unreadable(why) => write!(f, "cannot be read: {why}"),
        }
    }
}

impl std::error::Error for Failure {}
