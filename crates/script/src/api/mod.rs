//! The classes scripts use, as tables.
//!
//! Each chapter is a file: classes, constants, methods in Rust (a function each) and methods in Ruby
//! (a piece of source). [`register`] puts them into a VM, [`reference()`] makes of the same tables the
//! page an operator reads. What a method does to the request is `crate::request`'s business.

mod apache_request;
mod arguments;
mod asynchronous;
mod cache;
mod calendar;
mod cgroup;
mod chapter;
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
mod ip_address;
mod json;
mod jwt;
mod kernel;
mod log;
mod memcached;
mod mutex;
mod mysql;
mod nagaya;
mod native;
mod notes;
mod outside;
mod rack;
mod redis;
mod reference;
mod regexp;
mod request;
mod require;
mod server;
mod ssl;
mod stores;
mod upstream;
mod uri;
mod userdata;
mod variables;

#[cfg(test)]
mod tests;

use mruby::{Datum, Error, Vm};

use crate::state::State;
use chapter::{Chapter, Value};

pub(crate) use kernel::EXIT;

/// What the names of our own Ruby begin with.
const OWN_SOURCES: &str = "<nagaya>/";

/// Leaves of a backtrace what tells of the operator's files.
pub(crate) fn leave_operators(backtrace: &mut Vec<String>) {
    backtrace.retain(|line| !line.starts_with(OWN_SOURCES));
}

/// The page an operator reads, `docs/reference/ruby.md`.
pub fn reference() -> String {
    reference::page(CHAPTERS)
}

/// The chapters of the API, in the order of the reference.
const CHAPTERS: &[&Chapter] = &[
    &kernel::CHAPTER,
    &require::CHAPTER,
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
    &ssl::CHAPTER,
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
    &jwt::CHAPTER,
    &uri::CHAPTER,
    &ip_address::CHAPTER,
    &clock::CHAPTER,
    &files::CHAPTER,
    &outside::CHAPTER,
];

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
