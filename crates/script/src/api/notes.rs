//! `Apache::Notes` and `Apache::Env`: names and values that go along with a request.

use mruby::{Answer, Datum, Kind, Takes};

use super::chapter::Chapter;
use super::entries::{Classes, holder, method, reader};
use super::native::answered;
use super::request::{initialize, own, text};
use crate::request::{Property, Request, Side};
use crate::state::NativeCall;

const NOTES: Classes = &["Apache::Notes"];
const ENV: Classes = &["Apache::Env"];

/// Before the names of notes that stand for variables of `Apache::Env`. No variable of
/// `Nginx::Var` has a name like that.
const ENV_NOTE: &[u8] = b"env:";

const GET: Takes = Takes {
    least: 1,
    most: 1,
    texts: 1,
};
const SET: Takes = Takes {
    least: 2,
    most: 2,
    texts: 0b11,
};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Apache::Notes, Apache::Env",
    text: "Notes go along with a request from script to script; `Nginx::Var` has the same ones. `Env` \
           has the variables a CGI program gets; what a script puts there later scripts see, but no \
           program does: give the request a field (`headers_in`) for that.",
    classes: &[holder("Apache::Notes"), holder("Apache::Env")],
    constants: &[],
    methods: &[
        reader(
            &["Apache::Notes", "Apache::Env"],
            &["initialize"],
            "",
            initialize,
        ),
        method(NOTES, &["[]"], (GET, "name"), "A note, or `nil`.", |call| {
            note(call, b"")
        }),
        method(
            NOTES,
            &["[]="],
            (SET, "name, value"),
            "Leaves a note; `nil` takes it away.",
            |call| set_note(call, b""),
        ),
        reader(NOTES, &["all"], "A Hash of every note.", all_notes),
        method(ENV, &["[]"], (GET, "name"), "A variable, or `nil`.", env),
        method(
            ENV,
            &["[]="],
            (SET, "name, value"),
            "Sets a variable for this request's scripts.",
            |call| set_note(call, ENV_NOTE),
        ),
        reader(ENV, &["all"], "A Hash of every variable.", all_env),
    ],
    in_ruby: &[],
    prelude: "",
};

fn note(call: &mut NativeCall<'_>, before: &[u8]) -> Answer {
    let name = [before, call.bytes(0).unwrap_or_default()].concat();
    text(call, |request, out| {
        let note = request.scope().note(&name);
        note.map(|note| out.extend_from_slice(note)).is_some()
    })
}

fn set_note(call: &mut NativeCall<'_>, before: &[u8]) -> Answer {
    let name = [before, call.bytes(0).unwrap_or_default()].concat();
    let is_nil = call.kind(1) == Kind::Nil;
    let value = call.bytes(1).unwrap_or_default().to_vec();
    answered(own(call).map(|request| {
        match request
            .scope()
            .set_note(&name, (!is_nil).then_some(&*value))
        {
            true => Answer::Argument(1),
            false => Answer::runtime_error("the notes of this request would take more than 1 MiB"),
        }
    }))
}

fn all_notes(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|request| {
        let notes = request
            .scope()
            .notes()
            .filter(|(name, _)| !name.starts_with(ENV_NOTE));
        let pairs = notes.map(|(name, value)| (name.into(), value.into()));
        Answer::Datum(Datum::Hash(pairs.collect()))
    }))
}

/// Variables that are properties.
const VARIABLES: &[(&str, Property)] = &[
    ("REQUEST_METHOD", Property::Method),
    ("REQUEST_URI", Property::UnparsedUri),
    ("QUERY_STRING", Property::Args),
    ("SCRIPT_NAME", Property::Uri),
    ("SCRIPT_FILENAME", Property::Filename),
    ("PATH_INFO", Property::PathInfo),
    ("DOCUMENT_ROOT", Property::DocumentRoot),
    ("SERVER_PROTOCOL", Property::Protocol),
    ("REQUEST_SCHEME", Property::Scheme),
    ("SERVER_NAME", Property::Host),
    ("SERVER_ADDR", Property::LocalAddress),
    ("SERVER_PORT", Property::LocalPort),
    ("REMOTE_ADDR", Property::RemoteAddress),
    ("REMOTE_PORT", Property::RemotePort),
    ("REMOTE_USER", Property::User),
    ("UNIQUE_ID", Property::Id),
];

/// Fields that are variables without `HTTP_` before their names, and one that is none at all:
/// a program would take `HTTP_PROXY` for the address of a proxy.
const PLAIN: &[(&str, &str)] = &[
    ("CONTENT_TYPE", "content-type"),
    ("CONTENT_LENGTH", "content-length"),
];
const NEVER: &str = "proxy";

fn env(call: &mut NativeCall<'_>) -> Answer {
    match note(call, ENV_NOTE) {
        Answer::Nil => {}
        there => return there,
    }
    let name = call.bytes(0).unwrap_or_default().to_vec();
    answered(own(call).map(|request| {
        let all = variables(request);
        let known = all.into_iter().find(|(known, _)| *known == name);
        known.map_or(Answer::Nil, |(_, value)| Answer::Bytes(value))
    }))
}

fn all_env(call: &mut NativeCall<'_>) -> Answer {
    answered(own(call).map(|request| {
        let mut all = variables(request);
        for (name, value) in request.scope().notes() {
            if let Some(name) = name.strip_prefix(ENV_NOTE) {
                all.retain(|(known, _)| known != name);
                all.push((name.to_vec(), value.to_vec()));
            }
        }
        let pairs = all
            .into_iter()
            .map(|(name, value)| (Datum::Bytes(name), Datum::Bytes(value)));
        Answer::Datum(Datum::Hash(pairs.collect()))
    }))
}

/// The variables of CGI (RFC 3875) as this request has them.
fn variables(request: &dyn Request) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = vec![
        (b"GATEWAY_INTERFACE".to_vec(), b"CGI/1.1".to_vec()),
        (b"SERVER_SOFTWARE".to_vec(), b"Nagaya".to_vec()),
    ];
    for (name, property) in VARIABLES {
        let mut value = Vec::new();
        if request.read(*property, &mut value) {
            all.push((name.as_bytes().to_vec(), value));
        }
    }
    all.extend(field_variables(request));
    all
}

/// The request's fields as variables, for a program or a rack application.
pub(super) fn fields_as_variables(request: &dyn Request) -> Vec<(Datum, Datum)> {
    let all = field_variables(request).into_iter();
    all.map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn field_variables(request: &dyn Request) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    request.fields(Side::In, &mut |field, value| {
        let Some(name) = variable_of(field) else {
            return;
        };
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => {
                before.extend_from_slice(b", ");
                before.extend_from_slice(value);
            }
            None => all.push((name, value.to_vec())),
        }
    });
    all
}

fn variable_of(field: &[u8]) -> Option<Vec<u8>> {
    let is = |name: &str| field.eq_ignore_ascii_case(name.as_bytes());
    if is(NEVER) {
        return None;
    }
    if let Some((name, _)) = PLAIN.iter().find(|(_, plain)| is(plain)) {
        return Some(name.as_bytes().to_vec());
    }
    let letters = field.iter().map(|byte| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_uppercase(),
    });
    Some(b"HTTP_".iter().copied().chain(letters).collect())
}
