//! What a chapter of the API is: rows of classes, constants and methods.
//!
//! How a chapter writes its rows briefly is in `entries.rs`.

use mruby::{Answer, ClassKind, MethodOf, Takes};

use crate::state::NativeCall;

/// A part of the API.
pub(crate) struct Chapter {
    /// Its heading.
    pub(crate) title: &'static str,
    /// What there is to know before the methods, in Markdown.
    pub(crate) text: &'static str,
    pub(crate) classes: &'static [Class],
    pub(crate) constants: &'static [Constant],
    pub(crate) methods: &'static [Method],
    /// Methods that `prelude` defines.
    pub(crate) in_ruby: &'static [InRuby],
    /// Ruby run in every VM after the classes and methods of all chapters are there.
    pub(crate) prelude: &'static str,
}

/// A class or module. `superclass` is a full name.
pub(crate) struct Class {
    /// Its full name: `Nginx::Request`.
    pub(crate) name: &'static str,
    pub(crate) superclass: &'static str,
    pub(crate) kind: ClassKind,
}

/// A constant that stands in each of `classes`.
pub(crate) struct Constant {
    pub(crate) classes: &'static [&'static str],
    pub(crate) name: &'static str,
    pub(crate) value: Value,
}

/// What a constant may be.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    Int(i64),
    Text(&'static str),
}

/// A method in Rust, under each of its names in each of its classes.
pub(crate) struct Method {
    pub(crate) classes: &'static [&'static str],
    pub(crate) names: &'static [&'static str],
    pub(crate) of: MethodOf,
    pub(crate) takes: Takes,
    /// The arguments as the reference shows them: `name, value`.
    pub(crate) arguments: &'static str,
    /// What it waits for; empty if it never does.
    pub(crate) waits: &'static str,
    /// What it does, in a sentence or two. Empty: not for scripts, and not in the reference.
    pub(crate) doc: &'static str,
    pub(crate) native: fn(&mut NativeCall<'_>) -> Answer,
}

/// A method that is written in Ruby, as the reference shows it.
pub(crate) struct InRuby {
    /// `Mutex#try_lock_loop`.
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) waits: &'static str,
    pub(crate) doc: &'static str,
}

/// From `least` to `most` arguments, as they are.
pub(crate) const fn takes(least: u8, most: u8) -> Takes {
    Takes {
        least,
        most,
        texts: 0,
    }
}

/// From `least` to `most` arguments, each made a String by `to_s` unless it is `nil`.
pub(crate) const fn takes_texts(least: u8, most: u8) -> Takes {
    Takes {
        least,
        most,
        texts: 0xffff,
    }
}
