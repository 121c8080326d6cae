//! Lines of scripts in the error log.
//!
//! A line below the log's level costs one comparison: nothing is put into words before. A script
//! that tries again and again and says so each time writes no more than a number of lines a second.

use std::time::Instant;

use mruby::Answer;
use tracing::{Level, enabled};

use super::chapter::Chapter;
use super::entries::{Classes, function, method};
use crate::request::{Property, Request};
use crate::state::NativeCall;

/// Longest line; what is beyond is left out.
const LINE_BYTES_MAX: usize = 16 * 1_024;

const LEVEL: &str = "level, message";

/// The level as it is, the message made a String.
const TAKES: mruby::Takes = mruby::Takes {
    least: 2,
    most: 2,
    texts: 1 << 1,
};

const NGINX_AND_SSL: Classes = &["Nginx", "Nginx::SSL"];
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
        function(
            NGINX_AND_SSL,
            &["errlogger", "log"],
            (TAKES, LEVEL),
            DOC,
            |call| write(call, nginx),
        ),
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
    say(call, level_of(number), 1);
    Answer::Nil
}

/// Writes the argument of this index as a line, if the log's level lets it through.
pub(super) fn say(call: &mut NativeCall<'_>, level: Level, index: usize) {
    let is_enabled = match level {
        Level::ERROR => enabled!(Level::ERROR),
        Level::WARN => enabled!(Level::WARN),
        Level::INFO => enabled!(Level::INFO),
        Level::DEBUG => enabled!(Level::DEBUG),
        Level::TRACE => enabled!(Level::TRACE),
    };
    let state = &mut *call.host;
    if !is_enabled
        || !state
            .together
            .lines
            .borrow_mut()
            .admit(&state.script, Instant::now())
    {
        return;
    }
    let line = Line::of(call, index);
    let (script, request_id, said) = (line.script, line.request_id(), &line.message);
    match level {
        Level::ERROR => tracing::error!(script, request_id, "{said}"),
        Level::WARN => tracing::warn!(script, request_id, "{said}"),
        Level::INFO => tracing::info!(script, request_id, "{said}"),
        Level::DEBUG => tracing::debug!(script, request_id, "{said}"),
        Level::TRACE => tracing::trace!(script, request_id, "{said}"),
    }
}

/// A line to be written.
struct Line<'a> {
    message: String,
    script: &'a str,
    id: String,
}

impl<'a> Line<'a> {
    fn of(call: &'a mut NativeCall<'_>, index: usize) -> Self {
        let message = shown(call.bytes(index).unwrap_or_default());
        let (host, scratch, request) = call.parts();
        let request: Option<&mut dyn Request> = request;
        scratch.clear();
        if let Some(request) = request {
            request.read(Property::Id, scratch);
        }
        Self {
            message,
            script: &host.script,
            id: String::from_utf8_lossy(scratch).into_owned(),
        }
    }

    fn request_id(&self) -> Option<&str> {
        (!self.id.is_empty()).then_some(&*self.id)
    }
}

/// The beginning of what is said, if it is too long.
fn shown(message: &[u8]) -> String {
    let end = message.len().min(LINE_BYTES_MAX);
    String::from_utf8_lossy(message.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut() {
        assert_eq!(shown(&[b'x'; LINE_BYTES_MAX + 1]).len(), LINE_BYTES_MAX);
    }
}
