//! `Regexp`: patterns of Ruby's syntax, compiled once a VM and matched in bounded time.
//!
//! A literal in a script asks for its Regexp each time it is come by, so what was compiled is kept
//! by its source. A match is told to Ruby as places in bytes; texts stay Ruby's own.

use std::any::Any;
use std::rc::Rc;

use memchr::memmem::Finder;
use mruby::{Answer, Datum, Kind, MethodOf, Takes};
use pattern::{Budget, Exhausted, Pattern, Spans, decode};

use super::chapter::{Chapter, Method, takes};
use super::entries::{error, holder, in_ruby, int as option};
use super::native::answered;
use crate::patterns::{EXTENDED, Held, IGNORE_CASE, MULTILINE};
use crate::replace::{self, Sought};
use crate::state::NativeCall;

const fn method(
    classes: &'static [&'static str],
    names: &'static [&'static str],
    of: MethodOf,
    takes: Takes,
    doc: &'static str,
    native: fn(&mut NativeCall<'_>) -> Answer,
) -> Method {
    Method {
        classes,
        names,
        of,
        takes,
        arguments: "",
        waits: "",
        doc,
        native,
    }
}

const REGEXP: &[&str] = &["Regexp"];
const NAGAYA: &[&str] = &["Nagaya"];
const OBJECT: MethodOf = MethodOf::Object;
const CLASS: MethodOf = MethodOf::Class;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Regexp",
    text: "Ruby's syntax: groups by number and name, references, looking ahead and behind, atomic \
           groups, possessive and lazy repetition, conditions, `\\A \\z \\Z \\G \\K \\b \\h \\R \
           \\p{…}`, POSIX brackets, sets with `&&`, options `i m x`. Not `\\g<…>`, `\\X` and \
           `(?~ )`. A match that takes more than a million steps raises \
           `Regexp::TimeoutError`. `$~`, `` $` ``, `$&`, `$'`, `$+` and `$1` to `$9` belong to the \
           script that matched, across its waits; `gsub` and `scan` with neither block nor Hash do \
           not set them. Named groups make no local variables: use `$~[:name]`. Places are counted \
           in characters. Bytes that are no UTF-8 are matched as characters of their own.",
    classes: &[
        holder("Regexp"),
        error("RegexpError", "StandardError"),
        error("Regexp::TimeoutError", "RegexpError"),
    ],
    constants: &[
        option(REGEXP, "IGNORECASE", IGNORE_CASE),
        option(REGEXP, "EXTENDED", EXTENDED),
        option(REGEXP, "MULTILINE", MULTILINE),
    ],
    methods: &[
        Method {
            arguments: "source, options = nil",
            ..method(
                REGEXP,
                &["compile", "new"],
                CLASS,
                takes(1, 3),
                "A Regexp of its source; `/…/imx` does the same. A `RegexpError` says what is wrong.",
                compile,
            )
        },
        Method {
            arguments: "string",
            ..method(
                REGEXP,
                &["escape", "quote"],
                CLASS,
                takes(1, 1),
                "The source that matches just this text.",
                escape,
            )
        },
        Method {
            arguments: "string, pos = 0",
            ..method(
                REGEXP,
                &["match?"],
                OBJECT,
                takes(1, 2),
                "Whether it matches; sets no `$~`.",
                is_match,
            )
        },
        method(
            REGEXP,
            &["source"],
            OBJECT,
            takes(0, 0),
            "Its source.",
            |call| held(call, |held| Answer::Bytes(held.source.clone())),
        ),
        method(
            REGEXP,
            &["options"],
            OBJECT,
            takes(0, 0),
            "The sum of its options.",
            |call| held(call, |held| Answer::Int(held.options)),
        ),
        method(REGEXP, &["__names"], OBJECT, takes(0, 0), "", |call| {
            held(call, names)
        }),
        method(REGEXP, &["__match"], OBJECT, takes(2, 2), "", find),
        method(
            REGEXP,
            &["__last_match"],
            OBJECT,
            takes(2, 2),
            "",
            find_last,
        ),
        method(NAGAYA, &["__after"], CLASS, takes(2, 2), "", after),
        method(
            NAGAYA,
            &["__substitute"],
            CLASS,
            takes(4, 4),
            "",
            substitute,
        ),
        method(NAGAYA, &["__scan"], CLASS, takes(2, 2), "", scan),
        method(NAGAYA, &["__split"], CLASS, takes(3, 3), "", split),
    ],
    in_ruby: &[
        in_ruby(
            "Regexp#=~",
            "string",
            "The place of the first match, or `nil`; sets `$~`.",
        ),
        in_ruby(
            "Regexp#match",
            "string, pos = 0",
            "The first match as MatchData, or `nil`; sets `$~`.",
        ),
        in_ruby(
            "Regexp#===",
            "object",
            "Whether it matches, as `case` asks; sets `$~`.",
        ),
        in_ruby(
            "Regexp.union",
            "*patterns",
            "A Regexp for any of the patterns.",
        ),
        in_ruby(
            "Regexp.last_match",
            "group = nil",
            "`$~`, or a group of it.",
        ),
        in_ruby(
            "MatchData#[]",
            "group",
            "What a group matched, by number or name. Also `captures`, `named_captures`, `names`, \
             `pre_match`, `post_match`, `begin`, `end`, `offset`, `values_at`, `to_a`, `to_s`.",
        ),
        in_ruby(
            "String#gsub",
            "pattern, replacement",
            "Also `sub`, `sub!`, `gsub!`; `replacement` is a String (`\\1`, `\\k<name>`, `\\0`, `` \
             \\` ``, `\\'`), a Hash, or a block.",
        ),
        in_ruby(
            "String#scan",
            "pattern",
            "Every match, or the groups of each; or yields them.",
        ),
        in_ruby(
            "String#match",
            "pattern, pos = 0",
            "Also `match?` and `=~`. `index`, `rindex`, `split`, `[]`, `[]=`, `slice`, `partition` and \
             `start_with?` take a Regexp, too.",
        ),
    ],
    prelude: include_str!("ruby/regexp.rb"),
};

fn compile(call: &mut NativeCall<'_>) -> Answer {
    if let Some(held) = call.argument_attached::<Held>(0) {
        return Answer::Object("Regexp", held as Rc<dyn Any>);
    }
    let options = match call.kind(1) {
        Kind::Nil | Kind::False => 0,
        Kind::Integer => call.int(1).unwrap_or(0) & (IGNORE_CASE | EXTENDED | MULTILINE),
        Kind::String => letters(call.bytes(1).unwrap_or_default()),
        _ => IGNORE_CASE,
    };
    let Some(source) = call.bytes(0) else {
        return Answer::type_error("Regexp.new takes a String or a Regexp");
    };
    let source = source.to_vec();
    let held = call.host.patterns.get(&source, options);
    answered(held.map(|held| Answer::Object("Regexp", held as Rc<dyn Any>)))
}

fn letters(letters: &[u8]) -> i64 {
    letters.iter().fold(0, |options, letter| match letter {
        b'i' => options | IGNORE_CASE,
        b'x' => options | EXTENDED,
        b'm' => options | MULTILINE,
        _ => options,
    })
}

fn escape(call: &mut NativeCall<'_>) -> Answer {
    match call.name(0) {
        Some(text) => Answer::Bytes(replace::escape(&text)),
        None => Answer::type_error("Regexp.escape takes a String"),
    }
}

fn held(call: &NativeCall<'_>, answer: impl FnOnce(&Held) -> Answer) -> Answer {
    match call.attached::<Held>() {
        Some(held) => answer(&held),
        None => Answer::type_error("an uninitialized Regexp"),
    }
}

fn names(held: &Held) -> Answer {
    let each = held.pattern.names().iter().map(|(name, groups)| {
        let groups = groups.iter().map(|group| int(*group));
        Datum::Array(vec![
            Datum::from(name.as_str()),
            Datum::Array(groups.collect()),
        ])
    });
    Answer::Datum(Datum::Array(each.collect()))
}

fn int(number: usize) -> Datum {
    Datum::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn is_match(call: &mut NativeCall<'_>) -> Answer {
    let text = match call.kind(0) {
        Kind::Nil => return Answer::Bool(false),
        Kind::Symbol => call.name(0),
        _ => None,
    };
    let Some(text) = text.as_deref().or_else(|| call.bytes(0)) else {
        return Answer::type_error("a Regexp is matched with a String");
    };
    let from = match call.int(1) {
        None | Some(0) => Some(0),
        Some(pos) => replace::byte_of(text, pos),
    };
    let Some(from) = from else {
        return Answer::Bool(false);
    };
    held(call, |held| {
        let mut budget = Budget::of_text(text.len());
        match held.pattern.find(text, from, &mut budget) {
            Ok(found) => Answer::Bool(found.is_some()),
            Err(exhausted) => timeout(&exhausted.to_string(), held),
        }
    })
}

fn timeout(why: &str, held: &Held) -> Answer {
    let source = String::from_utf8_lossy(&held.source);
    let start: String = source.chars().take(200).collect();
    Answer::Raise("Regexp::TimeoutError", format!("{why}: /{start}/"))
}

/// The text that is asked, and from where; an exception, or no match at all.
fn asked<'a>(call: &'a NativeCall<'_>) -> Result<(&'a [u8], usize), Answer> {
    let Some(text) = call.bytes(0) else {
        return Err(Answer::type_error("a Regexp is matched with a String"));
    };
    let from = call.int(1).and_then(|from| usize::try_from(from).ok());
    match from.filter(|from| *from <= text.len()) {
        Some(from) => Ok((text, from)),
        None => Err(Answer::Nil),
    }
}

fn find(call: &mut NativeCall<'_>) -> Answer {
    look(call, Pattern::find)
}

fn find_last(call: &mut NativeCall<'_>) -> Answer {
    look(call, Pattern::find_last)
}

type Look = fn(&Pattern, &[u8], usize, &mut Budget) -> Result<Option<Spans>, Exhausted>;

fn look(call: &NativeCall<'_>, look: Look) -> Answer {
    let (text, from) = match asked(call) {
        Ok(asked) => asked,
        Err(answer) => return answer,
    };
    held(call, |held| {
        let mut budget = Budget::of_text(text.len());
        match look(&held.pattern, text, from, &mut budget) {
            Ok(None) => Answer::Nil,
            Ok(Some(spans)) => {
                let each = spans.iter().flat_map(|span| match span {
                    Some((from, to)) => [int(from), int(to)],
                    None => [Datum::Nil, Datum::Nil],
                });
                Answer::Datum(Datum::Array(each.collect()))
            }
            Err(exhausted) => timeout(&exhausted.to_string(), held),
        }
    })
}

/// Where the next character begins; `nil` at the end.
fn after(call: &mut NativeCall<'_>) -> Answer {
    let at = call.int(1).and_then(|at| usize::try_from(at).ok());
    let text = call.bytes(0).unwrap_or_default();
    let length = at.and_then(|at| decode(text, at));
    match (at, length) {
        (Some(at), Some((_, length))) => Answer::Datum(int(at + length)),
        _ => Answer::Nil,
    }
}

/// Does something with a text and what is sought in it: a Regexp, or a String as it is.
fn with_sought(
    call: &NativeCall<'_>,
    work: impl FnOnce(&[u8], &Sought<'_>) -> Result<Answer, String>,
) -> Answer {
    let Some(text) = call.bytes(0) else {
        return Answer::type_error("a pattern is looked for in a String");
    };
    let held = call.argument_attached::<Held>(1);
    let done = match (&held, call.bytes(1)) {
        (Some(held), _) => work(text, &Sought::Pattern(&held.pattern)),
        (None, Some(plain)) => work(text, &Sought::Text(&Finder::new(plain))),
        (None, None) => return Answer::type_error("a pattern is a Regexp or a String"),
    };
    match (done, &held) {
        (Ok(answer), _) => answer,
        (Err(why), Some(held)) => timeout(&why, held),
        (Err(why), None) => Answer::runtime_error(why),
    }
}

fn substitute(call: &mut NativeCall<'_>) -> Answer {
    let Some(template) = call.bytes(2) else {
        return Answer::type_error("a replacement is a String, a Hash or a block");
    };
    let times = match call.truth(3) {
        true => replace::Times::All,
        false => replace::Times::Once,
    };
    with_sought(call, |text, sought| {
        let replaced = replace::substitute(text, sought, template, times)?;
        Ok(replaced.map_or(Answer::Nil, Answer::Bytes))
    })
}

fn scan(call: &mut NativeCall<'_>) -> Answer {
    with_sought(call, |text, sought| {
        Ok(Answer::Datum(Datum::Array(replace::scan(text, sought)?)))
    })
}

fn split(call: &mut NativeCall<'_>) -> Answer {
    let limit = call.int(2).unwrap_or(0);
    with_sought(call, |text, sought| {
        let parts = replace::split(text, sought, limit)?;
        Ok(Answer::Datum(Datum::Array(parts)))
    })
}
