//! Regular expressions, and their groups in texts.
//!
//! The idea: what is wrong with an expression, and which groups it has, is asked of what the gateway
//! itself will match with.

use std::ops::Range;

use super::context::{Finding, problem};
use super::value::Value;

/// The source of a regular expression.
pub(crate) fn expression(value: &Value<'_>) -> Option<String> {
    let source = value.text()?;
    match value.context.expressions.of(source) {
        Ok(_) => Some(source.to_owned()),
        Err(why) => {
            value.report(format!("bad regular expression: {why}"));
            None
        }
    }
}

/// The number of a group that a text calls by its number or name.
pub(crate) fn group(value: &Value<'_>, name: &str) -> Option<usize> {
    let expression = value.context.groups_of()?;
    match name.parse() {
        Ok(number) => (number <= expression.groups()).then_some(number),
        Err(_) => expression.group_named(name),
    }
}

/// What is wrong with the number of a group that is none.
pub(crate) fn no_group(value: &Value<'_>, name: &str, at: Range<usize>) -> Finding {
    let place = value.part(at);
    match value.context.groups_of() {
        Some(expression) => {
            let groups = expression.groups();
            let message =
                format!("`${name}` is no group of the regular expression: it has {groups}");
            problem(place, message)
        }
        None => {
            let message = format!("`${name}` is a group of no regular expression");
            let help = "groups are those of the rule's own `path_regex`, outside of `not`; write `$$` for a dollar";
            problem(place, message).help(help)
        }
    }
}
