//! The classes scripts use, as tables.
//!
//! Each chapter is a file: classes, constants, methods in Rust (a function each) and methods in Ruby
//! (a piece of source). [`register`] puts them into a VM; [`reference()`] makes of the same tables the
//! page an operator reads. What a method does to the request is `crate::request`'s business.

mod apache_request;
mod arguments;
mod asynchronous;
mod cache;
mod calendar;
mod cgroup;
mod clock;
mod coding;
mod connection;
mod constants;
mod entries;
mod files;
mod filter;
mod finfo;
mod headers;
mod http_request;
mod json;
mod kernel;
mod log;
mod memcached;
mod mutex;
mod mysql;
mod nagaya;
mod notes;
mod outside;
mod rack;
mod redis;
mod reference;
mod regexp;
mod request;
mod server;
mod stores;
mod upstream;
mod userdata;
mod variables;

#[cfg(test)]
mod tests;

use std::rc::Rc;

use mruby::{Answer, ClassKind, Datum, Error, MethodOf, Takes, Vm};

use crate::phase::Phase;
use crate::request::Request;
use crate::scope::Scope;
use crate::state::{NativeCall, State};
use crate::wait::{Ask, Pending, Woken};

pub(crate) use log::Lines;
pub use reference::reference;
pub(crate) use regexp::Patterns;
pub(crate) use stores::Connected;

/// Raised by `exit`: the hook ends, as if it had come to its last line.
pub(crate) const EXIT: &str = "ScriptExit";

/// What the names of our own Ruby begin with.
const OWN_SOURCES: &str = "<nagaya>/";

/// Leaves of a backtrace what tells of the operator's files.
pub(crate) fn leave_operators(backtrace: &mut Vec<String>) {
    backtrace.retain(|line| !line.starts_with(OWN_SOURCES));
}

/// The chapters of the API, in the order of the reference.
const CHAPTERS: &[&Chapter] = &[
    &kernel::CHAPTER,
    &server::CHAPTER,
    &constants::CHAPTER,
    &log::CHAPTER,
    &request::CHAPTER,
    &apache_request::CHAPTER,
    &arguments::CHAPTER,
    &headers::CHAPTER,
    &variables::CHAPTER,
    &notes::CHAPTER,
    &connection::CHAPTER,
    &finfo::CHAPTER,
    &filter::CHAPTER,
    &upstream::CHAPTER,
    &rack::CHAPTER,
    &userdata::CHAPTER,
    &cache::CHAPTER,
    &mutex::CHAPTER,
    &asynchronous::CHAPTER,
    &memcached::CHAPTER,
    &mysql::CHAPTER,
    &redis::CHAPTER,
    &http_request::CHAPTER,
    &nagaya::CHAPTER,
    &cgroup::CHAPTER,
    &regexp::CHAPTER,
    &json::CHAPTER,
    &coding::CHAPTER,
    &clock::CHAPTER,
    &files::CHAPTER,
    &outside::CHAPTER,
];

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

/// Puts the whole API into a VM.
pub(crate) fn register(vm: &mut Vm<State>) -> Result<(), Error> {
    let all = |chapter: &&'static Chapter| *chapter;
    for class in CHAPTERS.iter().map(all).flat_map(|chapter| chapter.classes) {
        let (outer, name) = class.name.rsplit_once("::").unwrap_or(("", class.name));
        vm.define(outer, name, class.superclass, class.kind)?;
    }
    for constant in CHAPTERS
        .iter()
        .map(all)
        .flat_map(|chapter| chapter.constants)
    {
        let value = match constant.value {
            Value::Int(number) => Datum::Int(number),
            Value::Text(text) => Datum::from(text),
        };
        for class in constant.classes {
            vm.constant(class, constant.name, &value)?;
        }
    }
    for method in CHAPTERS.iter().map(all).flat_map(|chapter| chapter.methods) {
        for class in method.classes {
            for name in method.names {
                vm.method(class, name, method.of, method.takes, method.native)?;
            }
        }
    }
    for chapter in CHAPTERS
        .iter()
        .filter(|chapter| !chapter.prelude.is_empty())
    {
        let name = format!("{OWN_SOURCES}{}", chapter.title);
        let script = vm.compile(chapter.prelude.as_bytes(), &name, 1)?;
        vm.run(script)?;
        vm.let_go(script);
    }
    kernel::fix(vm)
}

/// Parks the fiber until `future` has ended.
pub(crate) fn wait(
    call: &mut NativeCall<'_>,
    future: impl Future<Output = Woken> + 'static,
) -> Answer {
    call.host.pending = Some(Pending::Future(Box::pin(future), None));
    Answer::Wait
}

/// As [`wait`], where a message about a wait that took too long is to name whom it was for.
pub(crate) fn wait_for(
    call: &mut NativeCall<'_>,
    whom: Rc<str>,
    future: impl Future<Output = Woken> + 'static,
) -> Answer {
    call.host.pending = Some(Pending::Future(Box::pin(future), Some(whom)));
    Answer::Wait
}

/// Parks the fiber until the engine has done what is asked.
pub(crate) fn ask(call: &mut NativeCall<'_>, ask: Ask) -> Answer {
    call.host.pending = Some(Pending::Ask(ask));
    Answer::Wait
}

/// The request the script runs for, or the exception that says there is none.
pub(crate) fn request<'a>(
    call: &'a mut NativeCall<'_>,
) -> Result<&'a mut (dyn Request + 'static), Answer> {
    let phase = call.host.phase;
    call.lent().ok_or_else(|| no_request(phase))
}

/// The exception that says there is no request.
fn no_request(phase: Phase) -> Answer {
    Answer::runtime_error(format!("there is no request in the phase {phase}"))
}

/// What the request's scripts have left behind, or the exception that says there is none.
pub(crate) fn scope<'a>(call: &'a mut NativeCall<'_>) -> Result<&'a mut Scope, Answer> {
    request(call).map(Request::scope)
}

/// Where the run under way holds things: its request's scope, or its own where there is none.
pub(crate) fn holding<'a>(call: &'a mut NativeCall<'_>) -> &'a mut Scope {
    match call.parts() {
        (_, _, Some(request)) => request.scope(),
        (state, _, None) => state.own.get_or_insert_default(),
    }
}

/// One answer for a native that fails with `?`.
pub(crate) fn answered(result: Result<Answer, Answer>) -> Answer {
    result.unwrap_or_else(|raise| raise)
}
