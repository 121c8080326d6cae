//! Queries and forms as Hashes.
//!
//! Nothing is decoded or encoded, as it always was: `%20` stays `%20`.

use mruby::{Answer, Datum};

use super::chapter::{Chapter, InRuby, takes, takes_texts};
use super::entries::{Classes, method, reader};
use super::native::answered;
use super::request::{own, write};
use crate::request::Property;
use crate::state::NativeCall;

const BOTH: Classes = &["Nginx::Request", "Apache::Request"];

/// Pairs of one query that are looked at.
const PAIRS_MAX: usize = 1_000;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Arguments",
    text: "Nothing is decoded: `%20` stays `%20`. A key without `=` has the value `\"\"`, and of a key \
           that is there several times the last value counts. At most 1,000 pairs are looked at.",
    classes: &[],
    constants: &[],
    methods: &[
        reader(BOTH, &["uri_args"], "The query as a Hash.", uri_args),
        method(
            BOTH,
            &["uri_args="],
            (takes(1, 1), "hash"),
            "Makes a query of a Hash, before the handler; nothing is encoded.",
            set_uri_args,
        ),
        method(BOTH, &["__pairs"], (takes_texts(1, 1), ""), "", |call| {
            Answer::Datum(pairs(call.bytes(0).unwrap_or_default()))
        }),
    ],
    in_ruby: &[InRuby {
        name: "Nginx::Request#post_args, Apache::Request#post_args",
        arguments: "",
        waits: "the body",
        doc: "The body, a form, as a Hash.",
    }],
    prelude: "
class Nginx::Request
  def post_args() __pairs(body) end
end
class Apache::Request
  def post_args() __pairs(body) end
end
",
};

fn uri_args(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|own| {
        let mut query = Vec::new();
        own.read(Property::Args, &mut query);
        Answer::Datum(pairs(&query))
    }))
}

fn pairs(text: &[u8]) -> Datum {
    let parts = text.split(|byte| *byte == b'&');
    let pairs = parts
        .filter(|part| !part.is_empty())
        .take(PAIRS_MAX)
        .map(|part| {
            let (key, value) = split_once(part, b'=').unwrap_or((part, b""));
            (key.into(), value.into())
        });
    Datum::Hash(pairs.collect())
}

/// What stands before and behind the first `at`.
pub(super) fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|byte| *byte == at)?;
    Some((text.get(..index)?, text.get(index + 1..)?))
}

fn set_uri_args(call: &mut NativeCall<'_>) -> Answer {
    let Datum::Hash(pairs) = call.datum(0) else {
        return Answer::type_error("uri_args= takes a Hash");
    };
    let mut query = Vec::new();
    for (key, value) in pairs {
        if !query.is_empty() {
            query.push(b'&');
        }
        if !(put(&key, &mut query) && {
            query.push(b'=');
            put(&value, &mut query)
        }) {
            return Answer::type_error("uri_args= takes a Hash of Strings, Symbols and numbers");
        }
    }
    answered(own(call).and_then(|own| {
        write(own, Property::Args, &query)?;
        Ok(Answer::Argument(0))
    }))
}

fn put(value: &Datum, out: &mut Vec<u8>) -> bool {
    match value {
        Datum::Nil => {}
        Datum::Bytes(text) | Datum::Symbol(text) => out.extend_from_slice(text),
        Datum::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Datum::Float(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Datum::Bool(truth) => out.extend_from_slice(truth.to_string().as_bytes()),
        _ => return false,
    }
    true
}
