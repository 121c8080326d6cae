//! A line of a log taken apart, whoever asks: what of it is told, and what is not.
//!
//! One reader a format. What a caller cannot do without, it asks for itself.

use std::borrow::Cow;
use std::net::IpAddr;

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::Offset;
use serde::{Deserialize, Deserializer};

use super::{Clock, LINE_BYTES_MAX};

/// Fields of a line of Apache's or nginx's.
const FIELDS_MAX: usize = 64;
/// Why a line without a method or a target is none.
pub(super) const NO_REQUEST: &str = "it was no request";

/// A line, taken apart.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// When it came in, or ended.
    pub(super) time: Result<(Timestamp, Offset), &'static str>,
    /// How long it took, and how exact that and the time are.
    pub(super) duration: Result<(u64, Clock), &'static str>,
    pub(super) told: ToldFields<'a>,
}

impl<'a> Record<'a> {
    /// Reads a line of any known format.
    ///
    /// # Errors
    /// It is of none.
    pub(super) fn read(line: &'a str) -> Result<Self, &'static str> {
        let line = line.trim_end_matches(['\n', '\r']);
        if line.len() > LINE_BYTES_MAX {
            return Err("it is longer than 64 KiB");
        }
        match line.as_bytes() {
            [b'{', ..] => json(line),
            _ if line.contains("\ttarget:") || line.starts_with("time:") => Ok(ltsv(line)),
            _ => classic(line),
        }
    }
}

/// What a line tells, as records of ours have it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToldFields<'a> {
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    pub(super) site: Option<Cow<'a, str>>,
    /// Without a port in Apache's and nginx's.
    pub(super) host: Option<Cow<'a, str>>,
    pub(super) client: Option<Cow<'a, str>>,
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) target: Option<Cow<'a, str>>,
    pub(super) status: Option<u16>,
    pub(super) bytes: Option<u64>,
    pub(super) referer: Option<Cow<'a, str>>,
    pub(super) user_agent: Option<Cow<'a, str>>,
    /// `None` where the log tells no files, which older ones of ours do not.
    #[serde(deserialize_with = "told")]
    pub(super) file: Option<Option<Cow<'a, str>>>,
    pub(super) upstream: Option<Cow<'a, str>>,
    pub(super) reason: Option<Cow<'a, str>>,
    total_us: Option<u64>,
    pub(super) queue_us: Option<u64>,
    pub(super) upstream_us: Option<u64>,
    /// How many requests the line stands for.
    pub(super) sampled: Option<u32>,
}

/// What is there, and be it `null`.
fn told<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<Cow<'de, str>>>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

fn json(line: &str) -> Result<Record<'_>, &'static str> {
    let record: ToldFields<'_> = serde_json::from_str(line).map_err(|_| "it is no JSON object")?;
    Ok(record.into())
}

fn ltsv(line: &str) -> Record<'_> {
    let mut record = ToldFields::default();
    for (label, value) in line.split('\t').filter_map(|field| field.split_once(':')) {
        let told = (value != "-").then_some(value);
        let text = told.map(Cow::Borrowed);
        let number = || told.and_then(|text| text.parse().ok());
        match label {
            "time" => record.time = text,
            "site" => record.site = text,
            "host" => record.host = text,
            "client" => record.client = text,
            "method" => record.method = text,
            "target" => record.target = text,
            "status" => record.status = told.and_then(|text| text.parse().ok()),
            "bytes" => record.bytes = number(),
            "referer" => record.referer = text,
            "user_agent" => record.user_agent = text,
            "file" => record.file = Some(text),
            "upstream" => record.upstream = text,
            "reason" => record.reason = text,
            "total_us" => record.total_us = number(),
            "queue_us" => record.queue_us = number(),
            "upstream_us" => record.upstream_us = number(),
            "sampled" => record.sampled = told.and_then(|text| text.parse().ok()),
            _ => {}
        }
    }
    record.into()
}

impl<'a> From<ToldFields<'a>> for Record<'a> {
    fn from(told: ToldFields<'a>) -> Self {
        let time = told.time.as_ref().ok_or("it has no `time`");
        let time = time.and_then(|time| time.parse().map_err(|_| "its `time` is no time"));
        let total_us = told.total_us.ok_or("it has no `total_us`");
        Self {
            time: time.map(|time| (time, Offset::UTC)),
            duration: total_us.map(|us| (us, Clock::Exact)),
            told,
        }
    }
}

/// A line of Apache's or nginx's: `[vhost:port] client - user [time] "request" status bytes … duration`.
fn classic(line: &str) -> Result<Record<'_>, &'static str> {
    let [before, time, rest] = around_time(line).ok_or("it has no [time]")?;
    let mut fields = fields(rest);
    let duration = duration(behind(fields.get(3..).unwrap_or_default()));
    let (host, client) = host_and_client(before).ok_or("it has no [time]")?;
    let is_quoted = |index: usize| {
        let field = fields.get(index);
        field.is_some_and(|it| it.kind == Quoting::Quoted)
    };
    let has_agent = is_quoted(3) && is_quoted(4);
    let mut take = |index: usize| {
        let field = fields.get_mut(index);
        field.map(|field| std::mem::take(&mut field.text))
    };
    let [status, bytes] = [take(1), take(2)];
    let asked = take(0).and_then(asked);
    let (method, target) = asked.unzip();
    let mut told = |index: usize| match has_agent {
        true => take(index).filter(|text| *text != "-"),
        false => None,
    };
    let [referer, user_agent] = [told(3), told(4)];
    Ok(Record {
        time: classic_time(time).ok_or("its [time] is none"),
        duration,
        told: ToldFields {
            client: Some(client.into()),
            host: host.map(Into::into),
            method,
            target,
            status: status.and_then(|status| status.parse().ok()),
            bytes: bytes.and_then(|bytes| bytes.parse().ok()),
            referer,
            user_agent,
            ..ToldFields::default()
        },
    })
}

/// What stands before the time, the time, and what stands behind it. A user's name may have spaces and
/// brackets in it, but no quote: the time is what the request, which is quoted, follows.
fn around_time(line: &str) -> Option<[&str; 3]> {
    let (head, _) = line.split_once("] \"")?;
    let (before, time) = head.rsplit_once('[')?;
    Some([before, time, line.get(head.len() + 2..)?])
}

/// The host, where there is one, without its port, and the client: the second of what stands before the
/// time where that is an address and the first is none, or where there are four.
fn host_and_client(before: &str) -> Option<(Option<&str>, &str)> {
    let mut words = before.split_ascii_whitespace();
    let [first, second, _] = [words.next()?, words.next()?, words.next()?];
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let has_host = is_address(second) || words.count() == 1;
    if is_address(first) || !has_host {
        return Some((None, first));
    }
    let host = first.rsplit_once(':').map_or(first, |(host, _)| host);
    Some((Some(host), second))
}

/// Method and target of a request line.
fn asked(line: Cow<'_, str>) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    match line {
        Cow::Borrowed(line) => {
            let (method, rest) = line.split_once(' ')?;
            let target = rest.split(' ').next().unwrap_or_default();
            Some((method.into(), target.into()))
        }
        Cow::Owned(line) => {
            let (method, rest) = line.split_once(' ')?;
            let target = rest.split(' ').next().unwrap_or_default();
            Some((method.to_owned().into(), target.to_owned().into()))
        }
    }
}

/// `21/Nov/2026:22:18:19 +0900`; a leap second is the last of its minute.
fn classic_time(text: &str) -> Option<(Timestamp, Offset)> {
    let time = BrokenDownTime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    Some((time.to_timestamp().ok()?, time.offset()?))
}

/// What stands behind the bytes, or behind referer and user agent where those are logged.
fn behind<'f, 'l>(fields: &'f [Field<'l>]) -> &'f [Field<'l>] {
    match fields {
        [referer, user_agent, rest @ ..]
            if referer.kind == Quoting::Quoted && user_agent.kind == Quoting::Quoted =>
        {
            rest
        }
        rest => rest,
    }
}

/// Seconds with a point as nginx writes them, also behind `rt=` and among other fields; or else
/// microseconds as Apache does, if nothing else is there.
fn duration(behind: &[Field<'_>]) -> Result<(u64, Clock), &'static str> {
    let mut seconds = behind.iter().rev().filter_map(|field| seconds(&field.text));
    if let Some(held_us) = seconds.next() {
        return Ok((held_us, Clock::EndSecond));
    }
    let whole = |field: &Field<'_>| match field.kind {
        Quoting::Bare => field.text.parse().ok(),
        _ => None,
    };
    match behind {
        [only] if let Some(held_us) = whole(only) => Ok((held_us, Clock::ArrivalSecond)),
        several if several.iter().any(|field| whole(field).is_some()) => Err(
            "which number is a duration cannot be told (combinedio logs bytes there): log %D as \
             the only field behind the user agent",
        ),
        _ => Err(
            "no duration is logged: add %D (Apache) or $request_time (nginx) to the format, or, for \
             Nagaya's own log, format = \"json\" or \"ltsv\"",
        ),
    }
}

/// `1.500` in microseconds.
fn seconds(field: &str) -> Option<u64> {
    let text = field.rsplit_once('=').map_or(field, |(_, value)| value);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = text.split_once('.')?;
    if !digits(whole) || !digits(part) || part.len() > 6 {
        return None;
    }
    let seconds: u64 = whole.parse().ok()?;
    let micros: u64 = format!("{part:0<6}").parse().ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// Where a field of a line stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Bare,
    Quoted,
}

#[derive(Debug)]
struct Field<'l> {
    kind: Quoting,
    text: Cow<'l, str>,
}

/// The fields from the request on, of which some stand in quotes.
fn fields(line: &str) -> Vec<Field<'_>> {
    let mut found = Vec::with_capacity(12);
    let mut rest = line.trim_start();
    while !rest.is_empty() && found.len() < FIELDS_MAX {
        let (kind, text, after) = match rest.as_bytes() {
            [b'"', ..] => quoted(rest.get(1..).unwrap_or_default()),
            _ => {
                let (text, after) = rest.split_once(' ').unwrap_or((rest, ""));
                (Quoting::Bare, Cow::Borrowed(text), after)
            }
        };
        found.push(Field { kind, text });
        rest = after.trim_start();
    }
    found
}

/// Up to the closing quote, with what servers escape read back: `\xHH`, `\t`, `\n`, `\r`; before
/// anything else a backslash keeps it.
fn quoted(text: &str) -> (Quoting, Cow<'_, str>, &str) {
    let end = text.find(['"', '\\']);
    if let Some((inside, after)) = end.and_then(|end| text.split_at_checked(end))
        && let Some(after) = after.strip_prefix('"')
    {
        return (Quoting::Quoted, Cow::Borrowed(inside), after);
    }
    let mut inside = Vec::new();
    let mut rest = text.as_bytes();
    let mut after = "";
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'"' {
            after = text.get(text.len() - rest.len()..).unwrap_or_default();
            break;
        }
        let (byte, length) = match (*first, behind) {
            (b'\\', escape) => escaped(escape),
            (byte, _) => (byte, 0),
        };
        inside.push(byte);
        rest = rest.get(length..).unwrap_or_default();
    }
    let inside = String::from_utf8_lossy(&inside).into_owned();
    (Quoting::Quoted, Cow::Owned(inside), after)
}

/// What stands for a byte behind a backslash, and how many bytes do.
fn escaped(escape: &[u8]) -> (u8, usize) {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match escape {
        [b'x', high, low, ..] if let (Some(high), Some(low)) = (digit(*high), digit(*low)) => {
            (u8::try_from(high * 16 + low).unwrap_or(b'?'), 3)
        }
        [b't', ..] => (b'\t', 1),
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [kept, ..] => (*kept, 1),
        [] => (b'\\', 0),
    }
}
