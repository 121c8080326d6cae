//! `Time#strftime` and what is made with it, which mruby 3.2 lacks.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use mruby::{Answer, MethodOf};

use super::chapter::{Chapter, InRuby, Method, takes};
use crate::calendar::format;
use crate::state::NativeCall;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Time",
    text: "Beside what mruby has.",
    classes: &[],
    constants: &[],
    methods: &[Method {
        classes: &["Time"],
        names: &["__format"],
        of: MethodOf::Class,
        takes: takes(4, 4),
        arguments: "",
        waits: "",
        doc: "",
        native: write,
    }],
    in_ruby: &[
        InRuby {
            name: "Time#strftime",
            arguments: "format",
            waits: "",
            doc: "As in Ruby: `%Y %m %d %H %M %S %L %N %z %:z %Z %A %a %B %b %j %e %I %l %p %s %F %T \
                  %D %R %c %x %X %u %w %G %V %U %W %y %C %h %k %P %n %t %%`, with the flags `- 0 _ ^ \
                  #` and a width.",
        },
        InRuby {
            name: "Time#iso8601",
            arguments: "digits = 0",
            waits: "",
            doc: "`2026-11-22T17:10:34+09:00`, with that many digits of the second's fraction; also \
                  `xmlschema`.",
        },
        InRuby {
            name: "Time#httpdate",
            arguments: "",
            waits: "",
            doc: "`Sun, 22 Nov 2026 08:10:34 GMT`.",
        },
    ],
    prelude: include_str!("ruby/clock.rb"),
};

fn write(call: &mut NativeCall<'_>) -> Answer {
    let (seconds, micros, is_utc) = (call.int(1), call.int(2), call.truth(3));
    let Some(pattern) = call.bytes(0) else {
        return Answer::type_error("strftime takes a String");
    };
    let micros = micros.unwrap_or(0).clamp(0, 999_999);
    let nanos = i32::try_from(micros * 1_000).unwrap_or(0);
    let Ok(instant) = Timestamp::new(seconds.unwrap_or(0), nanos) else {
        return Answer::argument_error("strftime: the year is not between -9999 and 9999");
    };
    let zone = match is_utc {
        true => TimeZone::UTC,
        false => TimeZone::system(),
    };
    match format(pattern, &instant.to_zoned(zone)) {
        Some(text) => Answer::Bytes(text),
        None => Answer::argument_error("strftime: the text would be longer than 64 KiB"),
    }
}
