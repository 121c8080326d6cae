//! What a script waits for.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use mruby::{Datum, Resume};

use crate::settings::Waiting;

/// What a wait came to: the value of the call that waited, or an exception raised by it.
#[derive(Debug)]
pub enum Woken {
    /// A value.
    Value(Datum),
    /// A new object of the class with this full name, which holds this.
    Object(&'static str, Rc<dyn Any>),
    /// An exception: the full name of its class, and what it says.
    Raise(&'static str, String),
}

impl Woken {
    /// A RuntimeError.
    pub fn error(message: impl Into<String>) -> Self {
        Self::Raise("RuntimeError", message.into())
    }
}

impl From<Woken> for Resume {
    fn from(woken: Woken) -> Self {
        match woken {
            Woken::Value(datum) => Self::Value(datum),
            Woken::Object(class, held) => Self::Object(class, held),
            Woken::Raise(class, message) => Self::Raise(class, message),
        }
    }
}

/// A wait for which the request itself is needed: the engine performs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// The whole body of the request, as a String.
    Body {
        /// Longer ones raise.
        bytes_max: usize,
    },
    /// A permit of a limit made up by the script, held until the request ends. The value is
    /// `true`, or `false` when it was refused.
    Acquire {
        /// Whose.
        key: Vec<u8>,
        /// How many at once.
        concurrent: u32,
        /// How many may wait.
        queue: u32,
        /// How long, in milliseconds.
        wait_ms: u64,
    },
    /// A request of its own to this very server, inside. The value is
    /// `[status, { name => value or values }, body]`.
    SubRequest {
        /// Its path and query.
        target: Vec<u8>,
    },
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body { .. } => f.write_str("the request's body"),
            Self::Acquire { key, .. } => write!(f, "a permit of {}", key.escape_ascii()),
            Self::SubRequest { target } => {
                write!(f, "the request inside for {}", target.escape_ascii())
            }
        }
    }
}

/// A wait announced by a native, until the fiber has come to a halt.
pub(crate) enum Pending {
    /// For this, which is of somebody or something of that name, if it has one.
    Future(Waiting<Woken>, Option<Rc<str>>),
    /// For the engine.
    Ask(Ask),
}
