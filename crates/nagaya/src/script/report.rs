//! What a script did and what it cost, in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use script::{Cause, Datum, Failure, Property, Raised, Redirect, Scope, Trial};

/// Bytes of a value that are shown.
const SHOWN_MAX: usize = 2_048;

/// What a script cost.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) name: String,
    pub(super) instructions: u64,
    pub(super) compiled: Duration,
    /// Of each timed run.
    pub(super) runs: Vec<Duration>,
    /// Of the whole interpreter.
    pub(super) memory_bytes: usize,
}

/// Why it failed: `FILE:LINE: MESSAGE`, and the way there.
pub(super) fn failure(failure: &Failure) -> String {
    let script = &failure.script;
    let (said, backtrace) = match &failure.cause {
        Cause::Raised(raised) => {
            if let Some((line, message)) = of_parser(raised) {
                return format!("{script}:{line}: {message}\n");
            }
            (raised.to_string(), &raised.backtrace)
        }
        Cause::Budget(exceeded) => (exceeded.to_string(), &exceeded.backtrace),
        Cause::Lost | Cause::Unreadable(_) => return format!("{failure}\n"),
    };
    let place = backtrace.first().and_then(|place| place_of(place));
    let place = place.unwrap_or(script);
    let mut out = format!("{place}: {said}\n");
    for line in backtrace {
        let _ = writeln!(out, "    at {line}");
    }
    out
}

/// What the parser says begins with the line.
fn of_parser(raised: &Raised) -> Option<(&str, &str)> {
    let text = raised.message.strip_prefix("line ")?;
    text.split_once(": ")
        .filter(|_| raised.class == "SyntaxError")
}

/// `FILE:LINE` out of `FILE:LINE:in METHOD`.
fn place_of(line: &str) -> Option<&str> {
    let end = line.find(":in ").unwrap_or(line.len());
    line.get(..end)
}

/// What it did: its value, what it left behind, and what is other than before.
pub(super) fn done(
    value: Option<&Datum>,
    before: Option<&Trial>,
    after: Option<&mut Trial>,
) -> String {
    let mut out = String::new();
    if let Some(value) = value {
        say(&mut out, "value", &inspect(value));
    }
    if let (Some(before), Some(after)) = (before, after) {
        left_behind(&after.scope, &mut out);
        properties(before, after, &mut out);
        fields("request", &before.fields_in, &after.fields_in, &mut out);
        fields("reply", &before.fields_out, &after.fields_out, &mut out);
    }
    out
}

fn left_behind(scope: &Scope, out: &mut String) {
    if let Some(status) = scope.returned {
        say(out, "returned", &status.to_string());
    }
    match &scope.redirect {
        Some(Redirect::Outside { status, location }) => {
            say(out, "redirect", &format!("{status} to {}", shown(location)));
        }
        Some(Redirect::Inside { target }) => {
            say(out, "redirect", &format!("inside, to {}", shown(target)));
        }
        None => {}
    }
    if let Some(chosen) = &scope.upstream {
        say(out, "upstream", &shown(chosen));
    }
    if let Some(wish) = &scope.cgroup {
        say(out, "cgroup", &shown(wish.name.as_bytes()));
    }
    if !scope.output.is_empty() {
        say(out, "output", &shown(&scope.output));
    }
    for (name, value) in scope.notes() {
        say(out, "note", &format!("{} = {}", shown(name), shown(value)));
    }
}

fn properties(before: &Trial, after: &Trial, out: &mut String) {
    let changed = after.properties.iter();
    let changed =
        changed.filter(|(property, value)| before.properties.get(property) != Some(value));
    let changed: BTreeMap<String, (&Property, &Vec<u8>)> = changed
        .map(|(property, value)| (format!("{property:?}"), (property, value)))
        .collect();
    for (name, (property, value)) in changed {
        let was = before.properties.get(property);
        let was = was.map_or_else(|| "none".to_owned(), |was| shown(was));
        say(
            out,
            "changed",
            &format!("{name}: {was} -> {}", shown(value)),
        );
    }
}

type Fields = [(Vec<u8>, Vec<u8>)];

fn fields(side: &str, before: &Fields, after: &Fields, out: &mut String) {
    for (name, value) in before.iter().filter(|field| !after.contains(field)) {
        say(out, side, &format!("- {}: {}", plain(name), plain(value)));
    }
    for (name, value) in after.iter().filter(|field| !before.contains(field)) {
        say(out, side, &format!("+ {}: {}", plain(name), plain(value)));
    }
}

/// What it cost.
pub(super) fn cost(cost: &Cost) -> String {
    let mut out = String::new();
    let compiled = format!("{} µs ({})", micros(cost.compiled), cost.name);
    say(&mut out, "compiled", &compiled);
    say(
        &mut out,
        "ran",
        &format!("{} instructions", cost.instructions),
    );
    let mut runs = cost.runs.clone();
    runs.sort_unstable();
    match (runs.first(), runs.get(runs.len() / 2), runs.last()) {
        (Some(least), Some(median), Some(most)) if runs.len() > 1 => {
            let (least, median, most) = (micros(*least), micros(*median), micros(*most));
            let text = format!(
                "{median} µs (median of {} runs, {least} to {most})",
                runs.len()
            );
            say(&mut out, "took", &text);
        }
        (Some(only), ..) => {
            let text = format!(
                "{} µs, waits included (once says little: try -n 1000)",
                micros(*only)
            );
            say(&mut out, "took", &text);
        }
        _ => {}
    }
    let memory = format!(
        "{} KiB, the API and everything compiled included",
        cost.memory_bytes / 1_024
    );
    say(&mut out, "memory", &memory);
    out
}

fn micros(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

fn say(out: &mut String, what: &str, text: &str) {
    let _ = writeln!(out, "{what:<9} {text}");
}

/// A value as Ruby's `inspect` would show it, or nearly so.
fn inspect(value: &Datum) -> String {
    match value {
        Datum::Nil => "nil".to_owned(),
        Datum::Bool(truth) => truth.to_string(),
        Datum::Int(number) => number.to_string(),
        Datum::Float(number) => number.to_string(),
        Datum::Bytes(bytes) => shown(bytes),
        Datum::Symbol(name) => format!(":{}", plain(name)),
        Datum::Array(items) => {
            let items: Vec<_> = items.iter().map(inspect).collect();
            format!("[{}]", items.join(", "))
        }
        Datum::Hash(pairs) => {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(key, value)| format!("{} => {}", inspect(key), inspect(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        Datum::Class(name) => (*name).to_owned(),
        Datum::Time(seconds, micros) => format!("a Time: {seconds}.{micros:06} s since 1970"),
        Datum::Other => "an object".to_owned(),
    }
}

/// Bytes in quotes, cut where there are many.
fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_MAX) {
        Some(start) if bytes.len() > SHOWN_MAX => {
            format!("\"{}\"… ({} bytes)", start.escape_ascii(), bytes.len())
        }
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => format!("\"{}\"", bytes.escape_ascii()),
        },
    }
}

/// Bytes without quotes; what could move a terminal's cursor is escaped.
fn plain(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
