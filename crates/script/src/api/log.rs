//! Lines of scripts in the error log.
//!
//! A line below the log's level costs one comparison: nothing is put into words before.

use mruby::Answer;
use tracing::{Level, enabled};

use super::Chapter;
use super::entries::{Classes, function, method};
use crate::request::{Property, Request};
use crate::state::NativeCall;

const LEVEL: &str = "level, message";

/// The level as it is, the message made a String.
const TAKES: mruby::Takes = mruby::Takes {
    least: 2,
    most: 2,
    texts: 1 << 1,
};

const NGINX: Classes = &["Nginx"];
const APACHE: Classes = &["Apache"];
const BOTH: Classes = &["Nginx", "Apache"];

const DOC: &str = "Writes a line to the error log, with the request's id and the script's name, if the \
                   log's level lets it through: up to `LOG_ERR` as error, `LOG_WARN` as warn, \
                   `LOG_NOTICE` and `LOG_INFO` as info, `LOG_DEBUG` as debug. Works without a request, \
                   too.";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Error log",
    text: "",
    classes: &[],
    constants: &[],
    methods: &[
        function(NGINX, &["errlogger", "log"], (TAKES, LEVEL), DOC, |call| {
            write(call, nginx)
        }),
        function(APACHE, &["errlogger", "log"], (TAKES, LEVEL), DOC, |call| {
            write(call, apache)
        }),
        function(
            BOTH,
            &["syslogger", "syslog"],
            (TAKES, "priority, message"),
            "As `Apache.errlogger`: there is one log, and it is the error log.",
            |call| write(call, apache),
        ),
        method(
            &["Apache::Request"],
            &["error_log", "log"],
            (TAKES, LEVEL),
            "As `Apache.errlogger`.",
            |call| write(call, apache),
        ),
    ],
    in_ruby: &[],
    prelude: "",
};

/// The level of a number as nginx counts them: from 0, `LOG_STDERR`.
fn nginx(number: i64) -> Level {
    apache(number.saturating_sub(1))
}

/// The level of a number as syslog counts them: from 0, `LOG_EMERG`. Flags above them do not count.
fn apache(number: i64) -> Level {
    match if number < 0 { 0 } else { number & 0xf } {
        0..=3 => Level::ERROR,
        4 => Level::WARN,
        5 | 6 => Level::INFO,
        7 => Level::DEBUG,
        _ => Level::TRACE,
    }
}

fn write(call: &mut NativeCall<'_>, level_of: fn(i64) -> Level) -> Answer {
    let Some(number) = call.int(0) else {
        return Answer::type_error(
            "a line of the log takes a level first, such as Nginx::LOG_INFO",
        );
    };
    match level_of(number) {
        Level::ERROR if enabled!(Level::ERROR) => {
            let line = Line::of(call);
            let (script, request) = (line.script, line.request());
            tracing::error!(script, request, "{}", line.message);
        }
        Level::WARN if enabled!(Level::WARN) => {
            let line = Line::of(call);
            let (script, request) = (line.script, line.request());
            tracing::warn!(script, request, "{}", line.message);
        }
        Level::INFO if enabled!(Level::INFO) => {
            let line = Line::of(call);
            let (script, request) = (line.script, line.request());
            tracing::info!(script, request, "{}", line.message);
        }
        Level::DEBUG if enabled!(Level::DEBUG) => {
            let line = Line::of(call);
            let (script, request) = (line.script, line.request());
            tracing::debug!(script, request, "{}", line.message);
        }
        Level::TRACE if enabled!(Level::TRACE) => {
            let line = Line::of(call);
            let (script, request) = (line.script, line.request());
            tracing::trace!(script, request, "{}", line.message);
        }
        _ => {}
    }
    Answer::Nil
}

/// A line to be written.
struct Line<'a> {
    message: String,
    script: &'a str,
    id: String,
}

impl<'a> Line<'a> {
    fn of(call: &'a mut NativeCall<'_>) -> Self {
        let message = call.bytes(1).unwrap_or_default();
        let message = String::from_utf8_lossy(message).into_owned();
        let (host, scratch, request) = call.parts();
        let request: Option<&mut dyn Request> = request;
        if let Some(request) = request {
            request.read(Property::Id, scratch);
        }
        Self {
            message,
            script: &host.script,
            id: String::from_utf8_lossy(scratch).into_owned(),
        }
    }

    fn request(&self) -> Option<&str> {
        (!self.id.is_empty()).then_some(&*self.id)
    }
}
