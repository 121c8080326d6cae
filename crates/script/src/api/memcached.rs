//! `Memcached`: the class of mruby-memcached, on our own client.
//!
//! As with libmemcached, what cannot be had is `nil` and no exception: a page is served without its
//! cache. The error log tells why, at most once a second for each server.

use std::any::Any;
use std::rc::Rc;

use mruby::{Answer, Datum, Kind, MethodOf, Takes};

use super::chapter::{Chapter, Constant, InRuby, Method, takes};
use super::entries::{holder, int};
use super::native::wait_for;
use super::stores::{clients, stores};
use crate::clients::Clients;
use crate::state::NativeCall;
use crate::wait::Woken;
use stores::memcached::{Memcached, Stored};
use stores::{Address, Error, Kind as Failed};

const CLASS: &[&str] = &["Memcached"];

/// libmemcached's `MEMCACHED_NOTSTORED`.
const NOT_STORED: i64 = 14;
/// libmemcached's `MEMCACHED_NOTFOUND`.
const NOT_FOUND: i64 = 16;

/// What an object holds.
struct MemcachedHandle {
    client: Rc<Memcached>,
    /// As the script named them, for the log.
    servers: String,
    /// What messages call them.
    name: Rc<str>,
}

const fn method(
    names: &'static [&'static str],
    arguments: &'static str,
    takes: Takes,
    waits: &'static str,
    doc: &'static str,
    native: fn(&mut NativeCall<'_>) -> Answer,
) -> Method {
    Method {
        classes: CLASS,
        names,
        of: MethodOf::Object,
        takes,
        arguments,
        waits,
        doc,
        native,
    }
}

/// A key, a value that is made a String, and perhaps a time.
const STORES: Takes = Takes {
    least: 2,
    most: 3,
    texts: 0b10,
};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Memcached",
    text: "One object may be kept in `Userdata` and used by many requests at once. It connects when \
           it is first used and after a connection was lost; all objects of a worker that name a \
           server use the same connections. Where the server cannot be reached, \
           and for a key memcached does not take, every method answers `nil`, and the error log \
           says why, at most once a second. Keys are Strings or Symbols, or it raises RuntimeError.",
    classes: &[holder("Memcached")],
    constants: CONSTANTS,
    methods: METHODS,
    in_ruby: &[InRuby {
        name: "Memcached.new",
        arguments: "servers",
        waits: "",
        doc: "`\"host:port\"`, several separated by commas, or `\"unix:/path\"`.",
    }],
    prelude: "",
};

const METHODS: &[Method] = &[
    method(&["initialize"], "", takes(1, 1), "", "", initialize),
    method(
        &["server_add"],
        "host, port",
        takes(2, 2),
        "",
        "Adds a server; keys are spread anew. Answers 0.",
        server_add,
    ),
    method(
        &["get", "[]"],
        "key",
        takes(1, 1),
        "the reply",
        "The key's value, or `nil`.",
        get,
    ),
    method(
        &["set", "[]="],
        "key, value, expiry = 0",
        STORES,
        "the reply",
        "Stores `value.to_s`, for so many seconds or until a Unix time, or without end. Answers 0.",
        |call| store(call, Condition::None),
    ),
    method(
        &["add"],
        "key, value, expiry = 0",
        STORES,
        "the reply",
        "As `set`, where there is no value yet; else it answers `MEMCACHED_NOTSTORED`.",
        |call| store(call, Condition::Absent),
    ),
    method(
        &["delete"],
        "key, expiry = 0",
        takes(1, 2),
        "the reply",
        "Takes a key away: 0, or `MEMCACHED_NOTFOUND`.",
        delete,
    ),
    method(
        &["flush"],
        "expiry = 0",
        takes(0, 1),
        "the reply",
        "Makes the servers forget everything, now or in so many seconds. Answers 0.",
        flush,
    ),
    method(
        &["behavior_set", "flush_buffers"],
        "",
        takes(0, 2),
        "",
        "Changes nothing and answers 0: times and connections are those of `[scripts]`.",
        |_| Answer::Int(0),
    ),
    method(
        &["close"],
        "",
        takes(0, 0),
        "",
        "Puts an end to the object: what is called later raises RuntimeError. Connections belong to all \
         objects that name the server.",
        close,
    ),
];

/// libmemcached's numbers that scripts name.
const CONSTANTS: &[Constant] = &[
    int(CLASS, "MEMCACHED_SUCCESS", 0),
    int(CLASS, "MEMCACHED_FAILURE", 1),
    int(CLASS, "MEMCACHED_HOST_LOOKUP_FAILURE", 2),
    int(CLASS, "MEMCACHED_CONNECTION_FAILURE", 3),
    int(CLASS, "MEMCACHED_WRITE_FAILURE", 5),
    int(CLASS, "MEMCACHED_READ_FAILURE", 6),
    int(CLASS, "MEMCACHED_PROTOCOL_ERROR", 8),
    int(CLASS, "MEMCACHED_CLIENT_ERROR", 9),
    int(CLASS, "MEMCACHED_SERVER_ERROR", 10),
    int(CLASS, "MEMCACHED_ERROR", 11),
    int(CLASS, "MEMCACHED_DATA_EXISTS", 12),
    int(CLASS, "MEMCACHED_NOTSTORED", NOT_STORED),
    int(CLASS, "MEMCACHED_STORED", 15),
    int(CLASS, "MEMCACHED_NOTFOUND", NOT_FOUND),
    int(CLASS, "MEMCACHED_NO_SERVERS", 20),
    int(CLASS, "MEMCACHED_END", 21),
    int(CLASS, "MEMCACHED_DELETED", 22),
    int(CLASS, "MEMCACHED_TIMEOUT", 31),
    int(CLASS, "MEMCACHED_BUFFERED", 32),
    int(CLASS, "MEMCACHED_BAD_KEY_PROVIDED", 33),
    int(CLASS, "MEMCACHED_BEHAVIOR_NO_BLOCK", 0),
    int(CLASS, "MEMCACHED_BEHAVIOR_TCP_NODELAY", 1),
    int(CLASS, "MEMCACHED_BEHAVIOR_HASH", 2),
    int(CLASS, "MEMCACHED_BEHAVIOR_KETAMA", 3),
    int(CLASS, "MEMCACHED_BEHAVIOR_SOCKET_SEND_SIZE", 4),
    int(CLASS, "MEMCACHED_BEHAVIOR_SOCKET_RECV_SIZE", 5),
    int(CLASS, "MEMCACHED_BEHAVIOR_SUPPORT_CAS", 7),
    int(CLASS, "MEMCACHED_BEHAVIOR_POLL_TIMEOUT", 8),
    int(CLASS, "MEMCACHED_BEHAVIOR_DISTRIBUTION", 9),
    int(CLASS, "MEMCACHED_BEHAVIOR_BUFFER_REQUESTS", 10),
    int(CLASS, "MEMCACHED_BEHAVIOR_SORT_HOSTS", 12),
    int(CLASS, "MEMCACHED_BEHAVIOR_VERIFY_KEY", 13),
    int(CLASS, "MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT", 14),
    int(CLASS, "MEMCACHED_BEHAVIOR_RETRY_TIMEOUT", 15),
    int(CLASS, "MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED", 16),
    int(CLASS, "MEMCACHED_BEHAVIOR_KETAMA_HASH", 17),
    int(CLASS, "MEMCACHED_BEHAVIOR_BINARY_PROTOCOL", 18),
    int(CLASS, "MEMCACHED_BEHAVIOR_SND_TIMEOUT", 19),
    int(CLASS, "MEMCACHED_BEHAVIOR_RCV_TIMEOUT", 20),
    int(CLASS, "MEMCACHED_BEHAVIOR_SERVER_FAILURE_LIMIT", 21),
    int(CLASS, "MEMCACHED_BEHAVIOR_NOREPLY", 26),
    int(CLASS, "MEMCACHED_BEHAVIOR_USE_UDP", 27),
    int(CLASS, "MEMCACHED_BEHAVIOR_AUTO_EJECT_HOSTS", 28),
    int(CLASS, "MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS", 29),
    int(CLASS, "MEMCACHED_BEHAVIOR_RANDOMIZE_REPLICA_READ", 30),
    int(CLASS, "MEMCACHED_BEHAVIOR_CORK", 31),
    int(CLASS, "MEMCACHED_BEHAVIOR_TCP_KEEPALIVE", 32),
    int(CLASS, "MEMCACHED_BEHAVIOR_TCP_KEEPIDLE", 33),
    int(CLASS, "MEMCACHED_BEHAVIOR_REMOVE_FAILED_SERVERS", 35),
    int(CLASS, "MEMCACHED_BEHAVIOR_DEAD_TIMEOUT", 36),
];

/// When a value is stored.
#[derive(Clone, Copy)]
enum Condition {
    None,
    Absent,
}

fn initialize(call: &mut NativeCall<'_>) -> Answer {
    let Some(servers) = call.bytes(0) else {
        return Answer::type_error("write Memcached.new(\"host:port\")");
    };
    let servers = String::from_utf8_lossy(servers).into_owned();
    match stores(call).memcached(&servers) {
        Ok(client) => {
            let handle = MemcachedHandle {
                client,
                name: format!("memcached {servers}").into(),
                servers,
            };
            Answer::Attach(Rc::new(handle) as Rc<dyn Any>)
        }
        Err(error) => Answer::runtime_error(error.to_string()),
    }
}

fn server_add(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.attached::<MemcachedHandle>() else {
        return unopened();
    };
    let port = call.int(1).and_then(|port| u16::try_from(port).ok());
    let (Some(host), Some(port)) = (call.bytes(0), port) else {
        return Answer::type_error("server_add takes a host and a port");
    };
    let added = Address::tcp(&String::from_utf8_lossy(host), port)
        .and_then(|address| handle.client.add_server(&address));
    match added {
        Ok(()) => Answer::Int(0),
        Err(error) => Answer::runtime_error(error.to_string()),
    }
}

fn get(call: &mut NativeCall<'_>) -> Answer {
    ask(call, |call, client| {
        let future = client.get(key(call)?);
        Ok(async move {
            let value = future.await?;
            Ok(value.map_or(Datum::Nil, Datum::Bytes))
        })
    })
}

fn store(call: &mut NativeCall<'_>, condition: Condition) -> Answer {
    ask(call, |call, client| {
        let (key, expiry) = (key(call)?, expiry(call, 2)?);
        let value = call.bytes(1).unwrap_or_default().to_vec();
        let (client, condition) = (Rc::clone(client), condition);
        Ok(async move {
            let stored = match condition {
                Condition::None => client.set(key, value, expiry).await?,
                Condition::Absent => client.add(key, value, expiry).await?,
            };
            Ok(Datum::Int(match stored {
                Stored::Yes => 0,
                Stored::No => NOT_STORED,
            }))
        })
    })
}

fn delete(call: &mut NativeCall<'_>) -> Answer {
    ask(call, |call, client| {
        let future = client.delete(key(call)?);
        Ok(async move {
            let found = future.await?;
            Ok(Datum::Int(if found { 0 } else { NOT_FOUND }))
        })
    })
}

fn flush(call: &mut NativeCall<'_>) -> Answer {
    ask(call, |call, client| {
        let delay = u32::try_from(expiry(call, 0)?).unwrap_or(0);
        let future = client.flush_all(delay);
        Ok(async move {
            future.await?;
            Ok(Datum::Int(0))
        })
    })
}

fn close(call: &mut NativeCall<'_>) -> Answer {
    match call.attached::<MemcachedHandle>() {
        Some(handle) => {
            handle.client.close();
            Answer::Nil
        }
        None => unopened(),
    }
}

/// Parks the fiber for what `prepare` asks; `nil` is the value where the server cannot say.
fn ask<F>(
    call: &mut NativeCall<'_>,
    prepare: impl FnOnce(&mut NativeCall<'_>, &Rc<Memcached>) -> Result<F, Answer>,
) -> Answer
where
    F: Future<Output = Result<Datum, Error>> + 'static,
{
    let Some(handle) = call.attached::<MemcachedHandle>() else {
        return unopened();
    };
    let future = match prepare(call, &handle.client) {
        Ok(future) => future,
        Err(raise) => return raise,
    };
    let log = clients(call);
    wait_for(call, Rc::clone(&handle.name), async move {
        match future.await {
            Ok(datum) => Woken::Value(datum),
            Err(error) => given_up(&log, &handle, &error),
        }
    })
}

fn given_up(log: &Clients, handle: &MemcachedHandle, error: &Error) -> Woken {
    if error.kind() == Failed::Closed {
        return Woken::error(error.to_string());
    }
    log.warn(&handle.servers, error);
    Woken::Value(Datum::Nil)
}

fn key(call: &NativeCall<'_>) -> Result<Vec<u8>, Answer> {
    call.name(0)
        .ok_or_else(|| Answer::runtime_error("a key of Memcached is a String or a Symbol"))
}

fn expiry(call: &NativeCall<'_>, index: usize) -> Result<i64, Answer> {
    match call.kind(index) {
        Kind::Nil => Ok(0),
        _ => call
            .int(index)
            .ok_or_else(|| Answer::type_error("the time until a value expires is an Integer")),
    }
}

fn unopened() -> Answer {
    Answer::runtime_error("this Memcached was made without Memcached.new")
}
