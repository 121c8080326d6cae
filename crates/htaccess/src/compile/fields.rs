//! `Header` and `RequestHeader`.

use super::{Compiler, Wrong};
use crate::expression;
use crate::pattern::{Case, Pattern};
use crate::reply::{Edit, FieldEdit, FieldTable, When, may_be_edited};
use crate::settings::{Computed, Settings};
use crate::tree::Directive;

impl Compiler<'_> {
    pub(super) fn field(
        &mut self,
        name: &str,
        directive: &Directive,
        words: &[Vec<u8>],
        settings: &mut Settings,
    ) -> Result<(), Wrong> {
        let mut words = words;
        let mut place = if name == "Header" {
            FieldTable::OnSuccess
        } else {
            FieldTable::Request
        };
        if let (FieldTable::OnSuccess, Some((first, rest))) = (place, words.split_first()) {
            let said = match first.to_ascii_lowercase().as_slice() {
                b"always" => Some(FieldTable::Always),
                b"onsuccess" => Some(FieldTable::OnSuccess),
                _ => None,
            };
            if let Some(said) = said {
                (place, words) = (said, rest);
            }
        }
        let [verb, name, rest @ ..] = words else {
            return Err("it says what to do with which field".into());
        };
        let verb = String::from_utf8_lossy(verb).to_ascii_lowercase();
        let name = name.strip_suffix(b":").unwrap_or(name).to_vec();
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        if verb != "echo" && (name.is_empty() || !name.iter().all(is_token)) {
            return Err("that is no name of a field".into());
        }
        if !may_be_edited(&name) {
            let text = format!("{} is the server's own", String::from_utf8_lossy(&name));
            self.problem(directive.line, "htaccess_refused", text, false);
            return Ok(());
        }
        if verb == "note" {
            return Ok(());
        }
        let (edit, when) = edit(&verb, &name, rest)?;
        settings.fields.push(
            FieldEdit {
                line: directive.line,
                place,
                name,
                edit,
                when,
            }
            .into(),
        );
        Ok(())
    }
}

fn edit(verb: &str, name: &[u8], words: &[Vec<u8>]) -> Result<(Edit, When), Wrong> {
    let value = || {
        let word = words.first().ok_or("it lacks the value")?;
        computed(word)
    };
    let (edit, rest) = match verb {
        "set" => (Edit::Set(value()?), words.get(1..)),
        "setifempty" => (Edit::SetIfEmpty(value()?), words.get(1..)),
        "add" => (Edit::Add(value()?), words.get(1..)),
        "append" => (Edit::Append(value()?), words.get(1..)),
        "merge" => (Edit::Merge(value()?), words.get(1..)),
        "unset" => (Edit::Unset, Some(words)),
        "echo" => (Edit::Echo(Pattern::new(name, Case::Folded)?), Some(words)),
        "edit" | "edit*" => {
            let [pattern, replacement, rest @ ..] = words else {
                return Err("it lacks a pattern and what replaces it".into());
            };
            let pattern = Pattern::new(pattern, Case::Exact)?;
            let edit = Edit::Replace(pattern, computed(replacement)?, verb == "edit*");
            (edit, Some(rest))
        }
        _ => {
            return Err(
                "it begins with set, setifempty, append, merge, add, unset, echo, edit or edit*"
                    .into(),
            );
        }
    };
    match rest.unwrap_or_default() {
        [] => Ok((edit, When::Always)),
        [when] => Ok((edit, self::when(when)?)),
        _ => Err("it has too many words: put the value into quotes".into()),
    }
}

fn computed(word: &[u8]) -> Result<Computed, Wrong> {
    match word.strip_prefix(b"expr=") {
        Some(text) => Ok(Computed::Expression(expression::words(text)?)),
        None => Ok(Computed::Plain(word.to_vec())),
    }
}

fn when(word: &[u8]) -> Result<When, Wrong> {
    if let Some(text) = word.strip_prefix(b"expr=") {
        return Ok(When::Holds(expression::condition(text)?));
    }
    match word.strip_prefix(b"env=") {
        Some([b'!', name @ ..]) if !name.is_empty() => Ok(When::NoEnv(name.to_vec())),
        Some(name) if !name.is_empty() => Ok(When::Env(name.to_vec())),
        _ => Err("its condition is env=NAME, env=!NAME or expr=…".into()),
    }
}
