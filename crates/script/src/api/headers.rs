//! Fields of the request and of the reply.
//!
//! The two families differ in what they make of a field that is there several times: nginx's gives
//! an Array, Apache's one String, as its tables do.

use mruby::{Answer, Datum, Takes};

use super::chapter::Chapter;
use super::entries::{Classes, holder, method, reader};
use super::native::answered;
use super::request::{breaks, initialize, own, text};
use crate::request::{Refused, Request, Side};
use crate::state::NativeCall;

const NGINX_IN: Classes = &["Nginx::Headers_in"];
const NGINX_OUT: Classes = &["Nginx::Headers_out"];
const APACHE_IN: Classes = &["Apache::Headers_in"];
const APACHE_OUT: Classes = &["Apache::Headers_out"];
const IN: Classes = &["Nginx::Headers_in", "Apache::Headers_in"];
const OUT: Classes = &["Nginx::Headers_out", "Apache::Headers_out"];
const ALL_FIELDS: Classes = &[
    "Nginx::Headers_in",
    "Nginx::Headers_out",
    "Apache::Headers_in",
    "Apache::Headers_out",
];

/// Longest name of a field.
const NAME_BYTES_MAX: usize = 256;

/// Values one field may be given at once.
const VALUES_MAX: usize = 64;

/// A name made a String, a value left as it is.
const SET: Takes = Takes {
    least: 2,
    most: 2,
    texts: 1,
};
const NAME: Takes = Takes {
    least: 1,
    most: 1,
    texts: 1,
};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Headers",
    text: "The fields of the request whose script it is: `Nginx::Request#headers_in` and the like give \
           these objects. Names are compared without case.",
    classes: &[
        holder("Nginx::Headers_in"),
        holder("Nginx::Headers_out"),
        holder("Apache::Headers_in"),
        holder("Apache::Headers_out"),
    ],
    constants: &[],
    methods: &[
        reader(ALL_FIELDS, &["initialize"], "", initialize),
        method(NGINX_IN, &["[]"], (NAME, "name"), GET_NGINX, |call| {
            get(call, Side::In, Several::Array)
        }),
        method(NGINX_OUT, &["[]"], (NAME, "name"), "As above.", |call| {
            get(call, Side::Out, Several::Array)
        }),
        method(APACHE_IN, &["[]"], (NAME, "name"), GET_APACHE, |call| {
            get(call, Side::In, Several::Joined)
        }),
        method(
            APACHE_OUT,
            &["[]"],
            (NAME, "name"),
            "A String, or `nil`; of a field that is there several times the first.",
            |call| get(call, Side::Out, Several::First),
        ),
        method(IN, &["[]="], (SET, "name, value"), SET_DOC, |call| {
            set(call, Side::In, Replace::All)
        }),
        method(
            NGINX_OUT,
            &["[]="],
            (SET, "name, value"),
            "As above.",
            |call| set(call, Side::Out, Replace::All),
        ),
        method(
            APACHE_OUT,
            &["[]="],
            (SET, "name, value"),
            "As above, but another `Set-Cookie` is added to those there are.",
            |call| set(call, Side::Out, Replace::AllButCookies),
        ),
        method(IN, &["delete"], (NAME, "name"), DELETE, |call| {
            delete(call, Side::In)
        }),
        method(OUT, &["delete"], (NAME, "name"), DELETE, |call| {
            delete(call, Side::Out)
        }),
        reader(NGINX_IN, &["all"], ALL, |call| {
            all(call, Side::In, Several::Array)
        }),
        reader(NGINX_OUT, &["all"], ALL, |call| {
            all(call, Side::Out, Several::Array)
        }),
        reader(APACHE_IN, &["all"], ALL, |call| {
            all(call, Side::In, Several::Joined)
        }),
        reader(APACHE_OUT, &["all"], ALL, |call| {
            all(call, Side::Out, Several::First)
        }),
        reader(IN, &["user_agent"], "The field of that name.", |call| {
            named(call, b"user-agent")
        }),
        reader(IN, &["referer"], "The field of that name.", |call| {
            named(call, b"referer")
        }),
    ],
    in_ruby: &[],
    prelude: "",
};

const GET_NGINX: &str = "A String, or `nil`; an Array of Strings of a field that is there several times, but for `Cookie`, \
     whose values are one String with `; ` between.";
const GET_APACHE: &str =
    "A String, or `nil`; of a field that is there several times the values, with commas between.";
const SET_DOC: &str = "Gives a field a value instead of those it has, or several (an Array), or removes \
                       it (`nil`). Line breaks and odd names raise `ArgumentError`; fields \
                       that frame a message (`Host`, `Content-Length`) stay as they are.";
const DELETE: &str = "Removes a field; answers its first value, or `nil`.";
const ALL: &str = "A Hash of every field, with values as `[]` gives them.";

/// What becomes of a field that is there several times.
#[derive(Clone, Copy)]
enum Several {
    Array,
    Joined,
    First,
}

/// What becomes of the values a field had.
#[derive(Clone, Copy)]
enum Replace {
    All,
    AllButCookies,
}

fn get(call: &mut NativeCall<'_>, side: Side, several: Several) -> Answer {
    let Some(name) = call.bytes(0).map(<[u8]>::to_vec) else {
        return Answer::Nil;
    };
    look_up(call, side, &name, several)
}

fn named(call: &mut NativeCall<'_>, name: &[u8]) -> Answer {
    look_up(call, Side::In, name, Several::Joined)
}

fn look_up(call: &mut NativeCall<'_>, side: Side, name: &[u8], several: Several) -> Answer {
    let mut more = Vec::new();
    let answer = text(call, |request, out| {
        let mut count = 0;
        request.field(side, name, &mut |value| {
            count += 1;
            match count {
                1 => out.extend_from_slice(value),
                _ => more.push(Datum::from(value)),
            }
        });
        count > 0
    });
    if more.is_empty() || matches!(several, Several::First) {
        return answer;
    }
    more.insert(0, Datum::from(&**call.scratch));
    Answer::Datum(shaped(name, more, several))
}

/// The values of one field in the shape a family gives them.
fn shaped(name: &[u8], mut values: Vec<Datum>, several: Several) -> Datum {
    if values.len() == 1 || matches!(several, Several::First) {
        values.truncate(1);
        return values.pop().unwrap_or(Datum::Nil);
    }
    // Cookies are one list, on however many lines they come (RFC 9113, 8.2.3).
    let is_cookie = name.eq_ignore_ascii_case(b"cookie");
    match several {
        Several::Array | Several::First if !is_cookie => Datum::Array(values),
        _ => {
            let between: &[u8] = match is_cookie {
                true => b"; ",
                false => b", ",
            };
            let values = values.iter().map(|value| match value {
                Datum::Bytes(bytes) => &**bytes,
                _ => b"",
            });
            Datum::Bytes(values.collect::<Vec<_>>().join(between))
        }
    }
}

fn all(call: &mut NativeCall<'_>, side: Side, several: Several) -> Answer {
    answered(own(call).map(|request| {
        let mut fields: Vec<(Vec<u8>, Vec<Datum>)> = Vec::new();
        request.fields(side, &mut |name, value| {
            let known = fields
                .iter_mut()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            match known {
                Some((_, values)) => values.push(value.into()),
                None => fields.push((name.to_vec(), vec![value.into()])),
            }
        });
        let pairs = fields.into_iter().map(|(name, values)| {
            let value = shaped(&name, values, several);
            (Datum::Bytes(name), value)
        });
        Answer::Datum(Datum::Hash(pairs.collect()))
    }))
}

fn set(call: &mut NativeCall<'_>, side: Side, replace: Replace) -> Answer {
    let name = call.bytes(0).unwrap_or_default().to_vec();
    let values = call.datum(1);
    answered(own(call).and_then(|request| {
        let mut values = values_of(&name, values)?;
        if matches!(replace, Replace::AllButCookies) && name.eq_ignore_ascii_case(b"set-cookie") {
            let added = std::mem::take(&mut values);
            if !added.is_empty() {
                request.field(side, &name, &mut |value| values.push(value.to_vec()));
            }
            values.extend(added);
        }
        give(request, side, &name, &values)?;
        Ok(Answer::Argument(1))
    }))
}

/// What a field is to be given, as Strings without line breaks.
fn values_of(name: &[u8], given: Datum) -> Result<Vec<Vec<u8>>, Answer> {
    let values = match given {
        Datum::Nil => Vec::new(),
        Datum::Array(items) => items.into_iter().map(text_of).collect::<Result<_, _>>()?,
        other => vec![text_of(other)?],
    };
    if values.len() > VALUES_MAX {
        let message = format!("a field gets {VALUES_MAX} values at most");
        return Err(Answer::argument_error(message));
    }
    if values.iter().any(|value| breaks(value)) {
        return Err(Answer::argument_error(format!(
            "no line breaks and no NUL in the field {}",
            String::from_utf8_lossy(name)
        )));
    }
    Ok(values)
}

fn text_of(value: Datum) -> Result<Vec<u8>, Answer> {
    match value {
        Datum::Bytes(text) | Datum::Symbol(text) => Ok(text),
        Datum::Int(number) => Ok(number.to_string().into_bytes()),
        Datum::Float(number) => Ok(number.to_string().into_bytes()),
        _ => Err(Answer::type_error(
            "a field's value is a String, a number, an Array of them, or nil",
        )),
    }
}

fn give(
    request: &mut dyn Request,
    side: Side,
    name: &[u8],
    values: &[Vec<u8>],
) -> Result<(), Answer> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(|byte| is_token(*byte)) {
        return Err(Answer::argument_error(format!(
            "`{}` cannot be a field's name: letters, digits and - only",
            String::from_utf8_lossy(name).escape_debug()
        )));
    }
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let given = request.set_field(side, name, &values);
    given.map_err(|Refused(why)| Answer::runtime_error(why))
}

/// Whether a field's name may have it (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn delete(call: &mut NativeCall<'_>, side: Side) -> Answer {
    let name = call.bytes(0).unwrap_or_default().to_vec();
    let mut removed = Ok(());
    let answer = text(call, |request, out| {
        let there = first(request, side, &name, out);
        if there {
            removed = give(request, side, &name, &[]);
        }
        there
    });
    removed.map_or_else(|raise| raise, |()| answer)
}

/// Appends the first value of a field; `false` when there is none.
pub(super) fn first(request: &dyn Request, side: Side, name: &[u8], out: &mut Vec<u8>) -> bool {
    let mut there = false;
    request.field(side, name, &mut |value| {
        if !there {
            out.extend_from_slice(value);
        }
        there = true;
    });
    there
}
