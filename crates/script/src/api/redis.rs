//! `Redis`: the class of mruby-redis, on our own client.
//!
//! Each method is a line of Ruby that says the command, what its arguments are, and what becomes of
//! the reply; one native does them all. What is queued for a pipeline is kept for each request apart.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use mruby::{Answer, Datum, Kind as Value, MethodOf, Takes};

use super::chapter::{Chapter, InRuby, takes};
use super::entries::{Classes, error, hidden, holder};
use super::native::{answered, holding, wait_for};
use super::stores::{fits, session, stores};
use crate::state::NativeCall;
use crate::wait::Woken;
use stores::redis::{COMMANDS_MAX, DEFAULT_PORT, Redis, RedisReply};
use stores::{Address, Error, Kind, Session, VALUE_BYTES_MAX};

const REDIS: (Classes, MethodOf) = (&["Redis"], MethodOf::Object);

/// Time for one command where the script names none.
const TIMEOUT_S: i64 = 1;

/// What an object holds.
struct RedisHandle {
    client: Rc<Redis>,
    /// What messages call it.
    name: Rc<str>,
    /// By request.
    pipelines: RefCell<BTreeMap<u64, Pipeline>>,
}

/// What one request has queued, and what came of what it queued before.
#[derive(Default)]
struct Pipeline {
    commands: Vec<Vec<Vec<u8>>>,
    /// Of all words of the commands.
    bytes: usize,
    replies: VecDeque<RedisReply>,
}

const fn row(name: &'static str, arguments: &'static str, doc: &'static str) -> InRuby {
    InRuby {
        name,
        arguments,
        waits: "the reply",
        doc,
    }
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Redis",
    text: "Redis and Valkey. One object may be kept in `Userdata` and used by many requests at once: \
           each command takes a connection of its own; from `watch` or `multi` until `exec`, \
           `discard` or `unwatch` it stays with its request. Keys and values are Strings, or it \
           raises TypeError; numbers are Integers. `Redis::ConnectionError` when the server cannot \
           be reached or does not answer (the next call connects anew), `Redis::ReplyError` when it \
           refuses, `Redis::ClosedError` after `close`.",
    classes: &[
        holder("Redis"),
        error("Redis::ConnectionError", "RuntimeError"),
        error("Redis::ReplyError", "RuntimeError"),
        error("Redis::ProtocolError", "RuntimeError"),
        error("Redis::OOMError", "RuntimeError"),
        error("Redis::AuthError", "RuntimeError"),
        error("Redis::ClosedError", "RuntimeError"),
    ],
    constants: &[],
    methods: &[
        hidden(REDIS, &["__open"], takes(3, 3), open),
        hidden(REDIS, &["__run"], takes(3, 64), run),
        hidden(REDIS, &["__login"], takes(2, 3), log_in),
        hidden(
            REDIS,
            &["__queue"],
            Takes {
                least: 1,
                most: 64,
                texts: 0xffff,
            },
            queue,
        ),
        hidden(REDIS, &["__reply"], takes(1, 1), reply),
        hidden(REDIS, &["__close"], takes(0, 0), close),
    ],
    in_ruby: &[
        row(
            "Redis.new",
            "host, port = 6379, timeout_s = 1",
            "Connects. Times are those of `[scripts]`, or `timeout_s` if that is shorter.",
        ),
        row("Redis#get, Redis#[]", "key", "Its value, or `nil`."),
        row(
            "Redis#set, Redis#[]=",
            "key, value, options = {}",
            "`\"OK\"`. Options are `\"EX\"` or `\"PX\"` with a time, and `\"NX\"` or `\"XX\"` with `true`: `nil` where that kept it from being stored.",
        ),
        row(
            "Redis#setnx, Redis#hsetnx, Redis#expire, Redis#exists?, Redis#hexists?, Redis#hset",
            "key, …",
            "As the command; `true` or `false`.",
        ),
        row(
            "Redis#ping, Redis#del, Redis#ttl, Redis#keys, Redis#randomkey, Redis#incr, Redis#decr, Redis#incrby, Redis#decrby, Redis#mget, Redis#mset, Redis#flushdb, Redis#flushall, Redis#publish",
            "…",
            "As the command.",
        ),
        row(
            "Redis#llen, Redis#lpush, Redis#rpush, Redis#lpop, Redis#rpop, Redis#lrange, Redis#ltrim, Redis#lindex",
            "key, …",
            "Lists, as the command.",
        ),
        row(
            "Redis#sadd, Redis#srem, Redis#sismember, Redis#smembers, Redis#scard, Redis#spop",
            "key, …",
            "Sets, as the command.",
        ),
        row(
            "Redis#hget, Redis#hgetall, Redis#hkeys, Redis#hvals, Redis#hdel, Redis#hmget, Redis#hmset, Redis#hincrby",
            "key, …",
            "Hashes, as the command; `hgetall` answers a Hash, and like `hkeys` and `hvals` `nil` for what is not there.",
        ),
        row(
            "Redis#zadd, Redis#zcard, Redis#zrange, Redis#zrevrange, Redis#zrank, Redis#zrevrank, Redis#zscore",
            "key, …",
            "Sorted sets, as the command.",
        ),
        row(
            "Redis#pfadd, Redis#pfcount, Redis#pfmerge",
            "key, …",
            "HyperLogLogs, as the command.",
        ),
        row(
            "Redis#auth",
            "password",
            "Logs in, now and on each later connection. `Redis::AuthError` when it is wrong.",
        ),
        row(
            "Redis#select",
            "database",
            "Chooses a database, now and on each later connection.",
        ),
        row(
            "Redis#multi, Redis#exec, Redis#discard, Redis#watch, Redis#unwatch",
            "…",
            "As the command; `exec` answers an Array, or `nil` when a watched key was changed.",
        ),
        InRuby {
            name: "Redis#queue",
            arguments: "command, *words",
            waits: "",
            doc: "Notes a command for a pipeline.",
        },
        row(
            "Redis#reply",
            "",
            "Sends what is queued, and answers the next reply. The usual statuses, as `OK` and `QUEUED`, are Symbols here.",
        ),
        row(
            "Redis#bulk_reply",
            "",
            "Sends what is queued, and answers all replies.",
        ),
        row("Redis#cluster, Redis#asking", "…", "As the command."),
        InRuby {
            name: "Redis#host, Redis#port, Redis#keepalive, Redis#enable_keepalive",
            arguments: "",
            waits: "",
            doc: "As given to `new`; keep-alive is noted and changes nothing.",
        },
        InRuby {
            name: "Redis#close",
            arguments: "",
            waits: "",
            doc: "Puts an end to the object. Connections belong to all objects with the same login.",
        },
    ],
    prelude: include_str!("ruby/redis.rb"),
};

fn open(call: &mut NativeCall<'_>) -> Answer {
    let Some(host) = call.bytes(0) else {
        return Answer::type_error("the host of Redis is a String");
    };
    let host = String::from_utf8_lossy(host).into_owned();
    let port = match call.kind(1) {
        Value::Nil => Some(DEFAULT_PORT),
        _ => call.int(1).and_then(|port| u16::try_from(port).ok()),
    };
    let (Some(port), Some(timeout)) = (port, call.int(2)) else {
        return Answer::type_error("port and timeout of Redis are Integers");
    };
    let timeout = u64::try_from(timeout.max(TIMEOUT_S)).unwrap_or(1);
    let address = match host.starts_with('/') {
        true => Ok(Address::unix(&host)),
        false => Address::tcp(&host, port),
    };
    match address {
        Ok(address) => {
            let handle = RedisHandle {
                client: stores(call).redis(&address, Duration::from_secs(timeout)),
                name: format!("Redis {address}").into(),
                pipelines: RefCell::default(),
            };
            Answer::Attach(Rc::new(handle) as Rc<dyn Any>)
        }
        Err(error) => Answer::Raise("Redis::ConnectionError", error.to_string()),
    }
}

fn run(call: &mut NativeCall<'_>) -> Answer {
    answered(command(call))
}

fn command(call: &mut NativeCall<'_>) -> Result<Answer, Answer> {
    let handle = call.attached::<RedisHandle>().ok_or_else(unopened)?;
    fits(call, "a command to Redis")?;
    let mut words = vec![call.name(0).unwrap_or_default()];
    let shape = call.bytes(1).unwrap_or_default().to_vec();
    let becomes = match call.name(2).as_deref() {
        Some(b"truth") => Becomes::Truth,
        Some(b"hash") => Becomes::Hash,
        Some(b"list") => Becomes::List,
        _ => Becomes::Itself,
    };
    for index in 3..call.count() {
        let letter = shape.get(index - 3).or(shape.last()).copied();
        words.push(word(call, index, letter.unwrap_or(b's'))?);
    }
    let session = session(call)?;
    let reply = handle.client.command(session, words);
    Ok(wait_for(call, Rc::clone(&handle.name), async move {
        match reply.await {
            Ok(reply) => Woken::Value(becomes.of(reply)),
            Err(error) => raised(&error),
        }
    }))
}

fn word(call: &NativeCall<'_>, index: usize, letter: u8) -> Result<Vec<u8>, Answer> {
    let word = match letter {
        b'i' => match call.kind(index) {
            Value::Integer => call
                .int(index)
                .map(|number| number.to_string().into_bytes()),
            _ => None,
        },
        b'f' => call
            .float(index)
            .map(|number| number.to_string().into_bytes()),
        _ => call.bytes(index).map(<[u8]>::to_vec),
    };
    word.ok_or_else(|| {
        let (which, what) = (
            index - 2,
            if letter == b's' || letter == b'*' {
                "String"
            } else {
                "number"
            },
        );
        Answer::type_error(format!("argument {which} is a {what}"))
    })
}

/// What becomes of a reply.
#[derive(Clone, Copy)]
enum Becomes {
    Itself,
    /// 1 and 0 become `true` and `false`.
    Truth,
    /// Names and values become a Hash, none `nil`.
    Hash,
    /// An empty list becomes `nil`.
    List,
}

impl Becomes {
    fn of(self, reply: RedisReply) -> Datum {
        match (self, reply) {
            (Self::Truth, RedisReply::Int(number)) => Datum::Bool(number != 0),
            (Self::Hash | Self::List, RedisReply::Array(items)) if items.is_empty() => Datum::Nil,
            (Self::Hash, RedisReply::Array(items)) => {
                let mut items = items.into_iter().map(|item| shown(item, Statuses::Strings));
                let mut pairs = Vec::new();
                while let (Some(name), Some(value)) = (items.next(), items.next()) {
                    pairs.push((name, value));
                }
                Datum::Hash(pairs)
            }
            (_, reply) => shown(reply, Statuses::Strings),
        }
    }
}

/// Statuses that become Symbols, which a VM never forgets: a server could make up any number.
const WORDS: &[&[u8]] = &[
    b"OK", b"PONG", b"QUEUED", b"none", b"string", b"list", b"set", b"zset", b"hash", b"stream",
];

/// What a status becomes.
#[derive(Clone, Copy)]
enum Statuses {
    Strings,
    Symbols,
}

fn shown(reply: RedisReply, statuses: Statuses) -> Datum {
    match (reply, statuses) {
        (RedisReply::Nil, _) => Datum::Nil,
        (RedisReply::Int(number), _) => Datum::Int(number),
        (RedisReply::Bytes(bytes), _) | (RedisReply::Status(bytes), Statuses::Strings) => {
            Datum::Bytes(bytes)
        }
        (RedisReply::Status(bytes), Statuses::Symbols) => match WORDS.contains(&&*bytes) {
            true => Datum::Symbol(bytes),
            false => Datum::Bytes(bytes),
        },
        // Ruby makes an exception of it; nothing else becomes a Hash within a list.
        (RedisReply::Error(words), _) => Datum::Hash(vec![(
            Datum::Symbol(b"error".to_vec()),
            Datum::Bytes(words.into_bytes()),
        )]),
        (RedisReply::Array(items), statuses) => {
            let items = items.into_iter().map(|item| shown(item, statuses));
            Datum::Array(items.collect())
        }
    }
}

fn log_in(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.attached::<RedisHandle>() else {
        return unopened();
    };
    if call.name(0).as_deref() == Some(b"select") {
        let Some(number) = call.int(1) else {
            return Answer::type_error("a database of Redis is a number");
        };
        let Ok(number) = u32::try_from(number) else {
            return Answer::Raise(
                "Redis::ReplyError",
                "no database has this number".to_owned(),
            );
        };
        let chosen = handle.client.select(number);
        return wait_for(call, Rc::clone(&handle.name), async move {
            logged_in(chosen.await, "Redis::ReplyError")
        });
    }
    let words = (1..call.count()).map(|index| word(call, index, b's'));
    match words.collect::<Result<Vec<_>, _>>() {
        Ok(words) => {
            let known = handle.client.auth(words);
            wait_for(call, Rc::clone(&handle.name), async move {
                logged_in(known.await, "Redis::AuthError")
            })
        }
        Err(raise) => raise,
    }
}

fn logged_in(result: Result<(), Error>, refused: &'static str) -> Woken {
    match result {
        Ok(()) => Woken::Value(Datum::from("OK")),
        // The server's own words begin with one in capitals.
        Err(error) => match is_refusal(&error.to_string()) {
            true => Woken::Raise(refused, error.to_string()),
            false => raised(&error),
        },
    }
}

fn is_refusal(said: &str) -> bool {
    let words = [": ERR ", ": WRONGPASS ", ": NOAUTH ", ": NOPERM "];
    words.iter().any(|word| said.contains(word))
}

/// Forgets with its request what that had queued.
struct Queued {
    handle: Rc<RedisHandle>,
    serial: u64,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.handle.pipelines.borrow_mut().remove(&self.serial);
    }
}

fn queue(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.attached::<RedisHandle>() else {
        return unopened();
    };
    if let Err(raise) = fits(call, "a command to Redis") {
        return raise;
    }
    let words = (0..call.count()).map(|index| call.bytes(index).unwrap_or_default().to_vec());
    let words: Vec<_> = words.collect();
    let bytes = call.given_bytes();
    let scope = holding(call);
    let serial = scope.serial();
    let known = handle.pipelines.borrow().contains_key(&serial);
    if !known {
        let queued = Queued {
            handle: Rc::clone(&handle),
            serial,
        };
        if scope.hold(Box::new(queued)).is_none() {
            return Answer::runtime_error("this request holds too much already");
        }
    }
    let mut pipelines = handle.pipelines.borrow_mut();
    let pipeline = pipelines.entry(serial).or_default();
    pipeline.bytes += bytes;
    if pipeline.commands.len() >= COMMANDS_MAX || pipeline.bytes > VALUE_BYTES_MAX {
        pipeline.bytes -= bytes;
        return Answer::runtime_error("too much is queued: call bulk_reply now and then");
    }
    pipeline.commands.push(words);
    Answer::Nil
}

impl RedisHandle {
    /// Takes what a request has queued.
    fn commands(&self, serial: u64) -> Vec<Vec<Vec<u8>>> {
        let mut pipelines = self.pipelines.borrow_mut();
        let pipeline = pipelines.get_mut(&serial);
        pipeline.map_or_else(Vec::new, |pipeline| {
            pipeline.bytes = 0;
            std::mem::take(&mut pipeline.commands)
        })
    }

    /// Whether a request has replies it has not looked at.
    fn has_replies(&self, serial: u64) -> bool {
        let pipelines = self.pipelines.borrow();
        let pipeline = pipelines.get(&serial);
        pipeline.is_some_and(|pipeline| !pipeline.replies.is_empty())
    }

    /// Puts replies behind those a request has, and takes one, or all.
    fn replies(&self, serial: u64, more: Vec<RedisReply>, all: bool) -> Datum {
        let mut pipelines = self.pipelines.borrow_mut();
        let Some(pipeline) = pipelines.get_mut(&serial) else {
            return Datum::Nil;
        };
        pipeline.replies.extend(more);
        let mut taken = match all {
            true => std::mem::take(&mut pipeline.replies),
            false => pipeline.replies.pop_front().into_iter().collect(),
        };
        match all {
            true => shown(RedisReply::Array(taken.into()), Statuses::Symbols),
            false => shown(
                taken.pop_front().unwrap_or(RedisReply::Nil),
                Statuses::Symbols,
            ),
        }
    }
}

fn reply(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.attached::<RedisHandle>() else {
        return unopened();
    };
    let all = call.truth(0);
    let Session(serial) = match session(call) {
        Ok(session) => session,
        Err(raise) => return raise,
    };
    if handle.has_replies(serial) && !all {
        return Answer::Datum(handle.replies(serial, Vec::new(), all));
    }
    let commands = handle.commands(serial);
    if commands.is_empty() && !handle.has_replies(serial) {
        return Answer::runtime_error("nothing is queued");
    }
    let replies = handle.client.pipeline(Session(serial), commands);
    wait_for(call, Rc::clone(&handle.name), async move {
        match replies.await {
            Ok(replies) => Woken::Value(handle.replies(serial, replies, all)),
            Err(error) => raised(&error),
        }
    })
}

fn close(call: &mut NativeCall<'_>) -> Answer {
    match call.attached::<RedisHandle>() {
        Some(handle) => {
            handle.client.close();
            Answer::Nil
        }
        None => unopened(),
    }
}

fn raised(error: &Error) -> Woken {
    let class = match error.kind() {
        Kind::Argument => "ArgumentError",
        Kind::Closed => "Redis::ClosedError",
        Kind::Protocol => "Redis::ProtocolError",
        Kind::TooLarge => "Redis::OOMError",
        Kind::Server | Kind::Statement => "Redis::ReplyError",
        Kind::Connect if is_refusal(&error.to_string()) => "Redis::ReplyError",
        Kind::Lookup | Kind::Connect | Kind::Waited | Kind::Timeout | Kind::Lost => {
            "Redis::ConnectionError"
        }
    };
    Woken::Raise(class, error.to_string())
}

fn unopened() -> Answer {
    Answer::Raise(
        "Redis::ClosedError",
        "this Redis was made without Redis.new".to_owned(),
    )
}
