//! The module `Nagaya`: what is this gateway's own.

use mruby::{Answer, Datum, MethodOf};
use tracing::Level;

use super::chapter::{Chapter, InRuby, Method, takes, takes_texts};
use super::entries::{function, module};
use super::log::say;
use super::native::{answered, ask, request};
use crate::request::{Property, Request};
use crate::shared::Sensed;
use crate::state::NativeCall;
use crate::wait::Ask;

/// Longest key of a limit.
const KEY_BYTES_MAX: usize = 1_024;

/// Longest wait for a permit, an hour, in milliseconds.
const WAIT_MS_MAX: f64 = 3_600_000.0;

const NAGAYA: &[&str] = &["Nagaya"];

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Nagaya",
    text: "What mod_mruby and ngx_mruby have no word for. A permit of `Nagaya::Limit.acquire` is \
           freed when the request ends. A request that waits for one keeps the permits it already \
           holds, those of the configuration's limits too: two keys taken in different orders by \
           two scripts hold each other up until `wait` is over.",
    classes: &[module("Nagaya::Limit")],
    constants: &[],
    methods: &[
        function(
            NAGAYA,
            &["request"],
            (takes(0, 0), ""),
            "What there is to know of the request, as a Hash: `:id`, `:method`, `:path`, `:query`, \
             `:file`, `:host`, `:site`, `:tenant`, `:client`, `:status` (an Integer, once there is \
             one) and `:time` (seconds since it came, a Float).",
            request_hash,
        ),
        function(
            NAGAYA,
            &["site"],
            (takes(0, 0), ""),
            "The site's first host.",
            |call| property(call, Property::SiteName),
        ),
        function(
            NAGAYA,
            &["tenant"],
            (takes(0, 0), ""),
            "The site's tenant.",
            |call| property(call, Property::Tenant),
        ),
        function(
            NAGAYA,
            &["row"],
            (takes(0, 0), ""),
            "The row that has made the site, as a Hash of texts by column: `Nagaya.row[\"plan\"]`. A column \
             that is empty is left out. `nil` where the configuration has the site. Who fills the table has \
             written it: it is no more to be trusted than what a client says.",
            row,
        ),
        function(
            NAGAYA,
            &["worker"],
            (takes(0, 0), ""),
            "The worker's number, from 0.",
            |call| Answer::Int(i64::try_from(call.host.settings.worker).unwrap_or(i64::MAX)),
        ),
        function(
            NAGAYA,
            &["phase"],
            (takes(0, 0), ""),
            "The name of the phase that runs: `\"access\"`.",
            |call| Answer::Bytes(call.host.phase.name().as_bytes().to_vec()),
        ),
        function(
            NAGAYA,
            &["log"],
            (takes_texts(2, 2), "level, message"),
            "Writes a line to the error log. Levels are `:error`, `:warn`, `:info` and `:debug`.",
            log,
        ),
        function(
            NAGAYA,
            &["sensor"],
            (takes_texts(1, 1), "name"),
            "What a sensor says, a Float: `Nagaya.sensor(\"load1\")`. Shares go from 0 to 1, times are \
             seconds. `nil` where this machine does not have it. \
             [All sensors](sensors.md); another name raises an ArgumentError that lists them.",
            sensor,
        ),
        Method {
            classes: &["Nagaya::Limit"],
            names: &["__acquire"],
            of: MethodOf::Class,
            takes: takes(4, 4),
            arguments: "",
            waits: "",
            doc: "",
            native: acquire,
        },
    ],
    in_ruby: &[InRuby {
        name: "Nagaya::Limit.acquire",
        arguments: "key, concurrent:, queue: 0, wait: 1.0",
        waits: "a permit, at most `wait` seconds, if one of the `queue` places is free",
        doc: "Takes one of `concurrent` permits of a key the script makes up, in the whole server. \
              `true`, or `false` where none was to be had; the script then says what the client is \
              told.",
    }],
    prelude: include_str!("ruby/nagaya.rb"),
};

fn property(call: &mut NativeCall<'_>, property: Property) -> Answer {
    answered(request(call).map(|request| read(request, property).into()))
}

fn read(request: &(dyn Request + 'static), property: Property) -> Datum {
    let mut value = Vec::new();
    match request.read(property, &mut value) {
        true => Datum::Bytes(value),
        false => Datum::Nil,
    }
}

fn request_hash(call: &mut NativeCall<'_>) -> Answer {
    const TEXTS: [(&str, Property); 9] = [
        ("id", Property::Id),
        ("method", Property::Method),
        ("path", Property::Uri),
        ("query", Property::Args),
        ("file", Property::Filename),
        ("host", Property::Host),
        ("site", Property::SiteName),
        ("tenant", Property::Tenant),
        ("client", Property::RemoteAddress),
    ];
    answered(request(call).map(|request| {
        let name = |name: &str| Datum::Symbol(name.as_bytes().to_vec());
        let mut pairs: Vec<_> = TEXTS
            .iter()
            .map(|(key, property)| (name(key), read(request, *property)))
            .collect();
        let status = parsed(request, Property::Status).map(Datum::Int);
        pairs.push((name("status"), status.unwrap_or(Datum::Nil)));
        let time = parsed(request, Property::RequestTime).map(Datum::Float);
        pairs.push((name("time"), time.unwrap_or(Datum::Nil)));
        Answer::Datum(Datum::Hash(pairs))
    }))
}

fn row(call: &mut NativeCall<'_>) -> Answer {
    answered(request(call).map(|request| {
        let mut pairs = Vec::new();
        let text = |text: &str| Datum::Bytes(text.as_bytes().to_vec());
        match request.row(&mut |name, value| pairs.push((text(name), text(value)))) {
            true => Answer::Datum(Datum::Hash(pairs)),
            false => Answer::Nil,
        }
    }))
}

fn parsed<T: std::str::FromStr>(
    request: &(dyn Request + 'static),
    property: Property,
) -> Option<T> {
    let mut value = Vec::new();
    request.read(property, &mut value);
    std::str::from_utf8(&value).ok()?.parse().ok()
}

fn log(call: &mut NativeCall<'_>) -> Answer {
    let level = match call.bytes(0).unwrap_or_default() {
        b"error" => Level::ERROR,
        b"warn" => Level::WARN,
        b"info" => Level::INFO,
        b"debug" => Level::DEBUG,
        other => {
            let other = String::from_utf8_lossy(other);
            return Answer::argument_error(format!(
                "Nagaya.log knows no level {other}: error, warn, info or debug"
            ));
        }
    };
    say(call, level, 1);
    Answer::Nil
}

/// Longest name of a sensor, which may have an upstream's in it.
const SENSOR_BYTES_MAX: usize = 256;

fn sensor(call: &mut NativeCall<'_>) -> Answer {
    let name = call.bytes(0).unwrap_or_default();
    let name = String::from_utf8_lossy(name.get(..SENSOR_BYTES_MAX).unwrap_or(name)).into_owned();
    match call.host.shared.senses.ask(&name) {
        Sensed::Value(value) => Answer::Datum(Datum::Float(value)),
        Sensed::Missing => Answer::Nil,
        Sensed::Unknown(known) => Answer::argument_error(format!(
            "Nagaya.sensor knows no sensor {name}; there are {known}, and upstream.NAME.load1 and such"
        )),
    }
}

fn acquire(call: &mut NativeCall<'_>) -> Answer {
    if let Err(none) = request(call) {
        return none;
    }
    let key = call.name(0).filter(|key| !key.is_empty());
    let Some(key) = key.filter(|key| key.len() <= KEY_BYTES_MAX) else {
        return Answer::argument_error(format!(
            "Nagaya::Limit.acquire takes a key of 1 to {KEY_BYTES_MAX} bytes"
        ));
    };
    let count = |index: usize| call.int(index).and_then(|count| u32::try_from(count).ok());
    let Some(concurrent) = count(1).filter(|count| *count > 0) else {
        return Answer::argument_error(
            "Nagaya::Limit.acquire: concurrent is an Integer from 1: how many at once",
        );
    };
    let Some(queue) = count(2) else {
        return Answer::argument_error(
            "Nagaya::Limit.acquire: queue is an Integer from 0: how many may wait",
        );
    };
    let wait_ms = call.float(3).map(|seconds| seconds * 1_000.0);
    let Some(wait_ms) = wait_ms.filter(|ms| (0.0..=WAIT_MS_MAX).contains(ms)) else {
        return Answer::argument_error(
            "Nagaya::Limit.acquire: wait is a number of seconds from 0 to 3600",
        );
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was just found to be small and not negative"
    )]
    let wait_ms = wait_ms as u64;
    ask(
        call,
        Ask::Acquire {
            key,
            concurrent,
            queue,
            wait_ms,
        },
    )
}
