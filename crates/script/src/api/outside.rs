//! What lies outside of a script: environment, process, machine; and what a script cannot have.
//!
//! A call that would block the worker, or let a script out of it, is there by its name and says
//! what to use instead: better than a NoMethodError in the middle of the night.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mruby::{Answer, Datum};

use super::chapter::{Chapter, Constant, InRuby, Value, takes};
use super::entries::{function, module};
use crate::state::NativeCall;

const fn clock(name: &'static str, value: i64) -> Constant {
    Constant {
        classes: &["Process"],
        name,
        value: Value::Int(value),
    }
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Environment, process and machine",
    text: "`ENV` holds the variables that `scripts.env` names, and cannot be changed. `$$` is \
           `Process.pid`. `$stdout` and `$stderr` write to the error log. What would block a \
           worker or leave it raises a NotImplementedError that says what to use instead: \
           `system`, backticks, `fork`, `exec`, `spawn`, `open`, `load`, `IO`, `Dir`, \
           sockets, threads.",
    classes: &[module("Process"), module("Uname")],
    constants: &[clock("CLOCK_REALTIME", 0), clock("CLOCK_MONOTONIC", 1)],
    methods: &[
        function(&["Nagaya"], &["__environment"], (takes(0, 0), ""), "", env),
        function(
            &["Process"],
            &["pid"],
            (takes(0, 0), ""),
            "The number of the server process. All workers are threads of it.",
            |_| Answer::Int(i64::from(std::process::id())),
        ),
        function(
            &["Process"],
            &["ppid"],
            (takes(0, 0), ""),
            "The number of its parent, the supervisor.",
            |_| Answer::Int(i64::from(std::os::unix::process::parent_id())),
        ),
        function(
            &["Process"],
            &["clock_gettime"],
            (takes(1, 2), "clock, unit = :float_second"),
            "Seconds of `Process::CLOCK_MONOTONIC` or `CLOCK_REALTIME` as a Float; units are \
             `:float_second`, `:float_millisecond`, `:float_microsecond`, `:second`, \
             `:millisecond`, `:microsecond` and `:nanosecond`.",
            clock_gettime,
        ),
        function(
            &["Uname"],
            &["sysname"],
            (takes(0, 0), ""),
            "`\"Linux\"`.",
            |_| bytes(os::kernel::name().system),
        ),
        function(
            &["Uname"],
            &["nodename"],
            (takes(0, 0), ""),
            "The machine's name.",
            |_| bytes(os::kernel::name().node),
        ),
        function(
            &["Uname"],
            &["release"],
            (takes(0, 0), ""),
            "The kernel's version.",
            |_| bytes(os::kernel::name().release),
        ),
        function(
            &["Uname"],
            &["version"],
            (takes(0, 0), ""),
            "How the kernel was built.",
            |_| bytes(os::kernel::name().version),
        ),
        function(
            &["Uname"],
            &["machine"],
            (takes(0, 0), ""),
            "`\"x86_64\"` and the like.",
            |_| bytes(os::kernel::name().machine),
        ),
    ],
    in_ruby: &[
        InRuby {
            name: "ENV[]",
            arguments: "name",
            waits: "",
            doc: "The variable's value, or `nil` where it is not there or not allowed. `fetch`, \
                  `key?`, `keys`, `values`, `each` and `to_h` are as of a Hash.",
        },
        InRuby {
            name: "ENV[]=",
            arguments: "name, value",
            waits: "",
            doc: "Raises: the environment belongs to the process, not to a request.",
        },
    ],
    prelude: include_str!("ruby/outside.rb"),
};

fn bytes(text: String) -> Answer {
    Answer::Bytes(text.into_bytes())
}

fn env(call: &mut NativeCall<'_>) -> Answer {
    let known = call.host.settings.env.iter();
    let pairs = known.map(|(name, value)| (Datum::from(&**name), Datum::from(&**value)));
    Answer::Datum(Datum::Hash(pairs.collect()))
}

fn clock_gettime(call: &mut NativeCall<'_>) -> Answer {
    const REALTIME: i64 = 0;
    const MONOTONIC: i64 = 1;
    thread_local! {
        static BEGINNING: Instant = Instant::now();
    }
    let now = match call.int(0) {
        Some(REALTIME) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
        Some(MONOTONIC) => BEGINNING.with(Instant::elapsed),
        _ => {
            return Answer::argument_error(
                "Process.clock_gettime knows Process::CLOCK_MONOTONIC and CLOCK_REALTIME",
            );
        }
    };
    let whole = |number: u128| Answer::Int(i64::try_from(number).unwrap_or(i64::MAX));
    match call.name(1).as_deref() {
        None | Some(b"float_second") => Answer::Float(now.as_secs_f64()),
        Some(b"float_millisecond") => Answer::Float(now.as_secs_f64() * 1e3),
        Some(b"float_microsecond") => Answer::Float(now.as_secs_f64() * 1e6),
        Some(b"second") => whole(now.as_secs().into()),
        Some(b"millisecond") => whole(now.as_millis()),
        Some(b"microsecond") => whole(now.as_micros()),
        Some(b"nanosecond") => whole(now.as_nanos()),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            Answer::argument_error(format!("Process.clock_gettime knows no unit {other}"))
        }
    }
}
