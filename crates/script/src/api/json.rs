//! `JSON`: texts read by serde_json straight into plain data, and written from it.
//!
//! What is plain is written in Rust; a value with an object in it is walked in Ruby, which asks
//! each object for its `to_json`.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use mruby::{Answer, Datum};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::chapter::{Chapter, InRuby, takes};
use super::entries::{error, function, module};
use crate::state::NativeCall;

/// Levels of arrays and objects in one text.
const DEPTH_MAX: usize = 60;

/// Values in one text.
const VALUES_MAX: usize = 100_000;

/// Names made Symbols in one VM, which never forgets a Symbol.
const SYMBOLS_MAX: usize = 10_000;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "JSON",
    text: "At most 60 levels and 100,000 values a text. A whole number beyond 64 bits becomes a \
           Float. With `symbolize_names` at most 10,000 different names a VM: Symbols are never \
           forgotten, so texts of clients are better read without it.",
    classes: &[
        module("JSON"),
        error("JSON::JSONError", "StandardError"),
        error("JSON::ParserError", "JSON::JSONError"),
        error("JSON::NestingError", "JSON::ParserError"),
        error("JSON::GeneratorError", "JSON::JSONError"),
    ],
    constants: &[],
    methods: &[
        function(
            &["JSON"],
            &["parse", "load"],
            (takes(1, 2), "string, symbolize_names: false"),
            "The value a text stands for. A `JSON::ParserError` says where it is none.",
            parse,
        ),
        function(&["JSON"], &["__plain"], (takes(2, 2), ""), "", plain),
    ],
    in_ruby: &[
        InRuby {
            name: "JSON.generate",
            arguments: "value",
            waits: "",
            doc: "The text of a value; also `JSON.stringify`, `JSON.dump` and `Object#to_json`. \
                  Objects are asked for their `to_json`, and are Strings (`to_s`) without one.",
        },
        InRuby {
            name: "JSON.pretty_generate",
            arguments: "value",
            waits: "",
            doc: "The same over several lines.",
        },
    ],
    prelude: include_str!("ruby/json.rb"),
};

fn parse(call: &mut NativeCall<'_>) -> Answer {
    let symbolize = symbolizes(&call.datum(1));
    let Some(text) = call.bytes(0) else {
        return Answer::type_error("JSON.parse takes a String");
    };
    match read(text) {
        Ok(mut value) if symbolize => match symbols(&mut value, &mut call.host.json_names) {
            Ok(()) => Answer::Datum(value),
            Err(refused) => refused,
        },
        Ok(value) => Answer::Datum(value),
        Err(error) => {
            let said = error.to_string();
            let class = match said.starts_with(TOO_DEEP) {
                true => "JSON::NestingError",
                false => "JSON::ParserError",
            };
            Answer::Raise(class, format!("no JSON: {said}"))
        }
    }
}

/// The value a text stands for.
///
/// # Errors
/// Where it is no JSON, or too much of it.
pub(super) fn read(text: &[u8]) -> serde_json::Result<Datum> {
    let reading = Reading {
        left: Cell::new(VALUES_MAX),
    };
    let mut text = serde_json::Deserializer::from_slice(text);
    let read = JsonValue {
        reading: &reading,
        depth: 0,
    };
    let value = read.deserialize(&mut text)?;
    text.end()?;
    Ok(value)
}

const TOO_DEEP: &str = "more than 60 levels";

fn symbolizes(options: &Datum) -> bool {
    let Datum::Hash(pairs) = options else {
        return false;
    };
    pairs.iter().any(|(name, value)| {
        *name == Datum::Symbol(b"symbolize_names".to_vec())
            && !matches!(value, Datum::Nil | Datum::Bool(false))
    })
}

/// Makes every name a Symbol.
fn symbols(value: &mut Datum, known: &mut HashSet<Vec<u8>>) -> Result<(), Answer> {
    match value {
        Datum::Array(items) => items.iter_mut().try_for_each(|item| symbols(item, known)),
        Datum::Hash(pairs) => pairs.iter_mut().try_for_each(|(name, item)| {
            if let Datum::Bytes(text) = name {
                if !known.contains(text) {
                    if known.len() >= SYMBOLS_MAX {
                        return Err(Answer::Raise(
                            "JSON::ParserError",
                            format!(
                                "symbolize_names has made {SYMBOLS_MAX} Symbols already, which are \
                                 never forgotten: read these texts without it"
                            ),
                        ));
                    }
                    known.insert(text.clone());
                }
                *name = Datum::Symbol(std::mem::take(text));
            }
            symbols(item, known)
        }),
        _ => Ok(()),
    }
}

/// How much more of a text is read.
struct Reading {
    left: Cell<usize>,
}

/// A value to be read, this deep in the text.
#[derive(Clone, Copy)]
struct JsonValue<'a> {
    reading: &'a Reading,
    depth: usize,
}

impl JsonValue<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        let left = self.reading.left.get();
        if left == 0 {
            return Err(E::custom(format!("more than {VALUES_MAX} values")));
        }
        self.reading.left.set(left - 1);
        Ok(())
    }

    fn below<E: Error>(self) -> Result<Self, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom(TOO_DEEP));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for JsonValue<'_> {
    type Value = Datum;

    fn deserialize<D: serde::Deserializer<'de>>(self, text: D) -> Result<Datum, D::Error> {
        self.count()?;
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonValue<'_> {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Datum, E> {
        Ok(Datum::Nil)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Datum, E> {
        Ok(Datum::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Datum, E> {
        Ok(Datum::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Datum, E> {
        #[allow(
            clippy::cast_precision_loss,
            reason = "what is beyond 64 bits is a Float"
        )]
        let float = number as f64;
        Ok(i64::try_from(number).map_or(Datum::Float(float), Datum::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Datum, E> {
        Ok(Datum::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Datum, E> {
        Ok(Datum::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Datum, A::Error> {
        let below = self.below()?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(below)? {
            all.push(item);
        }
        Ok(Datum::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Datum, A::Error> {
        let below = self.below()?;
        let mut all = Vec::new();
        while let Some(name) = pairs.next_key::<std::borrow::Cow<'_, str>>()? {
            let value = pairs.next_value_seed(below)?;
            all.push((Datum::from(&*name), value));
        }
        Ok(Datum::Hash(all))
    }
}

/// Why a value is not written.
enum Unwritten {
    /// There is an object in it: Ruby has to ask it.
    Object,
    /// It cannot be.
    Refused(&'static str),
}

/// The text of plain data, `nil` where there is an object in it.
fn plain(call: &mut NativeCall<'_>) -> Answer {
    let value = call.datum(0);
    let mut writer = Writer {
        out: Vec::new(),
        indent: call.int(1).and_then(|indent| usize::try_from(indent).ok()),
        left: VALUES_MAX,
        bytes_max: call.host.settings.budgets.output_bytes,
    };
    match writer.value(&value, 0) {
        Ok(()) => Answer::Bytes(writer.out),
        Err(Unwritten::Object) => Answer::Nil,
        Err(Unwritten::Refused(why)) => Answer::Raise("JSON::GeneratorError", why.to_owned()),
    }
}

struct Writer {
    out: Vec<u8>,
    /// Spaces a level; all in one line without.
    indent: Option<usize>,
    left: usize,
    bytes_max: usize,
}

impl Writer {
    fn value(&mut self, value: &Datum, depth: usize) -> Result<(), Unwritten> {
        if self.left == 0 {
            return Err(Unwritten::Refused("more than 100,000 values"));
        }
        self.left -= 1;
        if self.out.len() > self.bytes_max {
            return Err(Unwritten::Refused(
                "the text would be longer than scripts.output",
            ));
        }
        match value {
            Datum::Nil => self.out.extend_from_slice(b"null"),
            Datum::Bool(true) => self.out.extend_from_slice(b"true"),
            Datum::Bool(false) => self.out.extend_from_slice(b"false"),
            Datum::Int(number) => self.out.extend_from_slice(number.to_string().as_bytes()),
            Datum::Float(number) => return self.float(*number),
            Datum::Bytes(text) | Datum::Symbol(text) => return self.text(text),
            Datum::Array(items) => return self.array(items, depth),
            Datum::Hash(pairs) => return self.hash(pairs, depth),
            Datum::Class(_) | Datum::Time(..) | Datum::Other => return Err(Unwritten::Object),
        }
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), Unwritten> {
        if !number.is_finite() {
            return Err(Unwritten::Refused("NaN and Infinity have no text in JSON"));
        }
        serde_json::to_writer(&mut self.out, &number)
            .map_err(|_| Unwritten::Refused("a Float cannot be written"))
    }

    fn text(&mut self, text: &[u8]) -> Result<(), Unwritten> {
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(Unwritten::Refused("a String is not UTF-8"));
        };
        serde_json::to_writer(&mut self.out, text)
            .map_err(|_| Unwritten::Refused("a String cannot be written"))
    }

    fn array(&mut self, items: &[Datum], depth: usize) -> Result<(), Unwritten> {
        self.out.push(b'[');
        for (at, item) in items.iter().enumerate() {
            self.next(at, depth + 1);
            self.value(item, depth + 1)?;
        }
        self.close(b']', items.is_empty(), depth);
        Ok(())
    }

    fn hash(&mut self, pairs: &[(Datum, Datum)], depth: usize) -> Result<(), Unwritten> {
        self.out.push(b'{');
        for (at, (name, value)) in pairs.iter().enumerate() {
            self.next(at, depth + 1);
            self.name(name)?;
            let between: &[u8] = match self.indent {
                Some(_) => b": ",
                None => b":",
            };
            self.out.extend_from_slice(between);
            self.value(value, depth + 1)?;
        }
        self.close(b'}', pairs.is_empty(), depth);
        Ok(())
    }

    /// A name as `to_s` says it.
    fn name(&mut self, name: &Datum) -> Result<(), Unwritten> {
        match name {
            Datum::Bytes(text) | Datum::Symbol(text) => self.text(text),
            Datum::Int(number) => self.text(number.to_string().as_bytes()),
            Datum::Nil => self.text(b""),
            Datum::Bool(truth) => self.text(truth.to_string().as_bytes()),
            _ => Err(Unwritten::Object),
        }
    }

    fn next(&mut self, at: usize, depth: usize) {
        if at > 0 {
            self.out.push(b',');
        }
        self.line(depth);
    }

    fn close(&mut self, bracket: u8, is_empty: bool, depth: usize) {
        if !is_empty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push(b'\n');
            self.out.extend(std::iter::repeat_n(b' ', indent * depth));
        }
    }
}
