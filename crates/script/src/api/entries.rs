//! How a chapter writes down its methods briefly.

use mruby::{Answer, ClassKind, MethodOf, Takes};

use super::chapter::{Class, Constant, InRuby, Method, Value, takes};
use crate::state::NativeCall;

/// A method's body.
pub(super) type Native = fn(&mut NativeCall<'_>) -> Answer;

/// Classes by their full names.
pub(super) type Classes = &'static [&'static str];

/// A class of plain objects.
pub(super) const fn class(name: &'static str) -> Class {
    of_kind(name, "Object", ClassKind::Class)
}

/// A class whose objects hold something of Rust's, or a number.
pub(super) const fn holder(name: &'static str) -> Class {
    of_kind(name, "Object", ClassKind::Holding)
}

/// A module.
pub(super) const fn module(name: &'static str) -> Class {
    of_kind(name, "Object", ClassKind::Module)
}

/// A class of exceptions.
pub(super) const fn error(name: &'static str, superclass: &'static str) -> Class {
    of_kind(name, superclass, ClassKind::Class)
}

const fn of_kind(name: &'static str, superclass: &'static str, kind: ClassKind) -> Class {
    Class {
        name,
        superclass,
        kind,
    }
}

/// A method in Ruby that does not wait.
pub(super) const fn in_ruby(
    name: &'static str,
    arguments: &'static str,
    doc: &'static str,
) -> InRuby {
    InRuby {
        name,
        arguments,
        waits: "",
        doc,
    }
}

/// A method that is not for scripts.
pub(super) const fn hidden(
    (classes, of): (Classes, MethodOf),
    name: &'static [&'static str],
    takes: Takes,
    native: Native,
) -> Method {
    Method {
        classes,
        names: name,
        of,
        takes,
        arguments: "",
        waits: "",
        doc: "",
        native,
    }
}

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
