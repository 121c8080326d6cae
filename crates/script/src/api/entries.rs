//! How a chapter writes down its methods briefly.

use mruby::{Answer, MethodOf, Takes};

use super::{Constant, Method, Value, takes};
use crate::state::NativeCall;

/// A method's body.
pub(super) type Native = fn(&mut NativeCall<'_>) -> Answer;

/// Classes by their full names.
pub(super) type Classes = &'static [&'static str];

/// An Integer that stands in each of `classes`.
pub(super) const fn int(classes: Classes, name: &'static str, value: i64) -> Constant {
    Constant {
        classes,
        name,
        value: Value::Int(value),
    }
}

/// A String that stands in each of `classes`.
pub(super) const fn text(classes: Classes, name: &'static str, value: &'static str) -> Constant {
    Constant {
        classes,
        name,
        value: Value::Text(value),
    }
}

/// A method of objects without arguments.
pub(super) const fn reader(
    classes: Classes,
    names: &'static [&'static str],
    doc: &'static str,
    native: Native,
) -> Method {
    Method {
        classes,
        names,
        of: MethodOf::Object,
        takes: takes(0, 0),
        arguments: "",
        waits: "",
        doc,
        native,
    }
}

/// A method of objects: what it takes, and how the reference shows that.
pub(super) const fn method(
    classes: Classes,
    names: &'static [&'static str],
    (takes, arguments): (Takes, &'static str),
    doc: &'static str,
    native: Native,
) -> Method {
    Method {
        classes,
        names,
        of: MethodOf::Object,
        takes,
        arguments,
        waits: "",
        doc,
        native,
    }
}

/// A method of the class itself.
pub(super) const fn function(
    classes: Classes,
    names: &'static [&'static str],
    (takes, arguments): (Takes, &'static str),
    doc: &'static str,
    native: Native,
) -> Method {
    Method {
        classes,
        names,
        of: MethodOf::Class,
        takes,
        arguments,
        waits: "",
        doc,
        native,
    }
}

/// A method that is there to say what to use instead.
pub(super) const fn missing(
    classes: Classes,
    names: &'static [&'static str],
    native: Native,
) -> Method {
    Method {
        classes,
        names,
        of: MethodOf::Object,
        takes: takes(0, 16),
        arguments: "…",
        waits: "",
        doc: "Raises `NotImplementedError`, which says what to use instead.",
        native,
    }
}

/// The exception of something that is not there: what, and what to use instead.
pub(super) fn not_there(what: &str, instead: &str) -> Answer {
    Answer::Raise(
        "NotImplementedError",
        format!("{what} is not there: {instead}"),
    )
}
