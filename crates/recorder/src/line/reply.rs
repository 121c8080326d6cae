//! What a line tells of a request and what was answered, for counting.

use std::borrow::Cow;

use serde::Deserialize;

use super::{
    Format, LINE_BYTES_MAX, Quoting, behind, classic_time, duration, fields, format, ltsv_value,
    site, time_at,
};

/// A request and its reply as a line of any known format tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedReply<'a> {
    /// When it was logged or came in, microseconds after 1970.
    pub at_us: i64,
    /// The client's address, or its name.
    pub client: Cow<'a, str>,
    /// The site, or the host where only that is known; empty where neither is.
    pub site: Cow<'a, str>,
    /// Its method.
    pub method: Cow<'a, str>,
    /// As it was sent, with its query.
    pub target: Cow<'a, str>,
    /// The reply's status.
    pub status: u16,
    /// Bytes of the reply's body.
    pub bytes: u64,
    /// Where it says it comes from; empty where it does not.
    pub referrer: Cow<'a, str>,
    /// The user agent; empty where there is none.
    pub agent: Cow<'a, str>,
    /// How long it took, where that is logged.
    pub total_us: Option<u64>,
    /// How long it waited before its handler.
    pub queue_us: Option<u64>,
    /// How long a back end took.
    pub upstream_us: Option<u64>,
    /// How many requests the line stands for.
    pub stands_for: u32,
}

/// Reads a line of any known format.
///
/// # Errors
/// Why it could not be read, in words.
pub fn read_reply(line: &str) -> Result<LoggedReply<'_>, &'static str> {
    let line = line.trim_end_matches(['\n', '\r']);
    if line.len() > LINE_BYTES_MAX {
        return Err("it is longer than 64 KiB");
    }
    match format(line) {
        Format::Json => json(line),
        Format::Ltsv => ltsv(line),
        Format::Classic => classic(line),
    }
}

/// A record of ours.
#[derive(Deserialize)]
struct JsonRecord<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    site: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
    client: Option<Cow<'a, str>>,
    method: Option<Cow<'a, str>>,
    target: Option<Cow<'a, str>>,
    status: u16,
    #[serde(default)]
    bytes: u64,
    referer: Option<Cow<'a, str>>,
    user_agent: Option<Cow<'a, str>>,
    total_us: Option<u64>,
    queue_us: Option<u64>,
    upstream_us: Option<u64>,
    sampled: Option<u32>,
}

fn json(line: &str) -> Result<LoggedReply<'_>, &'static str> {
    let record: JsonRecord<'_> =
        serde_json::from_str(line).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => "it has no `time` or `status`",
            _ => "it is no JSON object",
        })?;
    Ok(LoggedReply {
        at_us: rfc3339(&record.time)?,
        client: record.client.unwrap_or_default(),
        site: record.site.or(record.host).unwrap_or_default(),
        method: record.method.ok_or("it was no request")?,
        target: record.target.ok_or("it was no request")?,
        status: record.status,
        bytes: record.bytes,
        referrer: record.referer.unwrap_or_default(),
        agent: record.user_agent.unwrap_or_default(),
        total_us: record.total_us,
        queue_us: record.queue_us,
        upstream_us: record.upstream_us,
        stands_for: record.sampled.unwrap_or(1),
    })
}

fn ltsv(line: &str) -> Result<LoggedReply<'_>, &'static str> {
    let text = |name| ltsv_value(line, name).map(Cow::Borrowed);
    let number = |name| ltsv_value(line, name).and_then(|value| value.parse::<u64>().ok());
    let status = ltsv_value(line, "status").and_then(|value| value.parse().ok());
    let sampled = number("sampled").and_then(|it| u32::try_from(it).ok());
    Ok(LoggedReply {
        at_us: rfc3339(ltsv_value(line, "time").ok_or("it has no `time`")?)?,
        client: text("client").unwrap_or_default(),
        site: text("site").or_else(|| text("host")).unwrap_or_default(),
        method: text("method").ok_or("it was no request")?,
        target: text("target").ok_or("it was no request")?,
        status: status.ok_or("it has no status")?,
        bytes: number("bytes").unwrap_or(0),
        referrer: text("referer").unwrap_or_default(),
        agent: text("user_agent").unwrap_or_default(),
        total_us: number("total_us"),
        queue_us: number("queue_us"),
        upstream_us: number("upstream_us"),
        stands_for: sampled.unwrap_or(1),
    })
}

fn rfc3339(time: &str) -> Result<i64, &'static str> {
    let time: jiff::Timestamp = time.parse().map_err(|_| "its `time` is no time")?;
    Ok(time.as_microsecond())
}

/// A line of Apache's or nginx's; a duration where one can be told.
fn classic(line: &str) -> Result<LoggedReply<'_>, &'static str> {
    let mut fields = fields(line);
    let at = time_at(&fields)?;
    let (time, _) = fields
        .get(at)
        .and_then(|field| classic_time(&field.text))
        .ok_or("its [time] is none")?;
    let total_us = duration(behind(fields.get(at + 4..).unwrap_or_default()));
    let site = site(&fields, at).unwrap_or_default().to_owned().into();
    let is_quoted = |index: usize| {
        fields
            .get(index)
            .is_some_and(|it| it.kind == Quoting::Quoted)
    };
    let has_agent = is_quoted(at + 4) && is_quoted(at + 5);
    let mut take = |index: usize| {
        let field = fields.get_mut(index);
        field
            .map(|field| std::mem::take(&mut field.text))
            .unwrap_or_default()
    };
    let [status, bytes] = [take(at + 2), take(at + 3)];
    let (method, target) = asked(take(at + 1)).ok_or("it was no request")?;
    let mut told = |index: usize| match has_agent {
        true => Some(take(index))
            .filter(|text| *text != "-")
            .unwrap_or_default(),
        false => Cow::Borrowed(""),
    };
    let [referrer, agent] = [told(at + 4), told(at + 5)];
    Ok(LoggedReply {
        at_us: time.as_microsecond(),
        client: take(at - 3),
        site,
        method,
        target,
        status: status.parse().map_err(|_| "it has no status")?,
        bytes: bytes.parse().unwrap_or(0),
        referrer,
        agent,
        total_us: total_us.ok().map(|(us, _)| us),
        queue_us: None,
        upstream_us: None,
        stands_for: 1,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    const COMBINED: &str = r#"192.0.2.7 - frank [21/Nov/2026:21:45:00 +0100] "GET /a.php?x=1 HTTP/1.1" 200 5391 "http://b.example/" "Agent (7)""#;

    #[test]
    fn combined_lines_are_read() {
        let told = read_reply(COMBINED).expect("a line");
        assert_eq!(told.at_us, 1_795_293_900_000_000);
        assert_eq!(told.client, "192.0.2.7");
        assert_eq!((&*told.method, &*told.target), ("GET", "/a.php?x=1"));
        assert_eq!((told.status, told.bytes), (200, 5_391));
        assert_eq!(
            (&*told.referrer, &*told.agent),
            ("http://b.example/", "Agent (7)")
        );
        assert_eq!((told.total_us, &*told.site), (None, ""));
        let of_host = format!("www.a.example:443 {COMBINED} 0.250");
        let told = read_reply(&of_host).expect("a line");
        assert_eq!(
            (&*told.site, told.total_us),
            ("www.a.example", Some(250_000))
        );
    }

    #[test]
    fn common_lines_have_neither_referrer_nor_agent() {
        let line = r#"h - - [21/Nov/2026:20:45:00 +0000] "HEAD /x HTTP/1.0" 304 -"#;
        let told = read_reply(line).expect("a line");
        assert_eq!((told.status, told.bytes), (304, 0));
        assert_eq!((&*told.referrer, &*told.agent), ("", ""));
    }

    #[test]
    fn our_records_are_read_in_both_formats() {
        let json = r#"{"time":"2026-11-21T20:45:00.250000Z","site":"a.jp","host":"www.a.jp","client":"192.0.2.7","method":"GET","target":"/x?q=\u3042","status":200,"bytes":7,"queue_us":10,"upstream_us":null,"total_us":32000,"referer":null,"user_agent":"A","sampled":100,"env":{}}"#;
        let told = read_reply(json).expect("a record");
        let ltsv = "time:2026-11-21T20:45:00.250000Z\tsite:a.jp\thost:www.a.jp\tclient:192.0.2.7\tmethod:GET\ttarget:/x?q=あ\tstatus:200\tbytes:7\tqueue_us:10\tupstream_us:-\ttotal_us:32000\treferer:-\tuser_agent:A\tsampled:100";
        assert_eq!(read_reply(ltsv).expect("a record"), told);
        assert_eq!((&*told.site, &*told.target), ("a.jp", "/x?q=あ"));
        assert_eq!((told.total_us, told.stands_for), (Some(32_000), 100));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (line, why) in [
            ("", "[time]"),
            ("{\"time\":", "JSON"),
            ("{}", "time"),
            (
                "a b c [21/Foo/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1",
                "[time] is none",
            ),
            (
                "h - - [21/Nov/2026:20:45:00 +0000] \"-\" 400 0 \"-\" \"-\"",
                "no request",
            ),
            (
                "h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" x 0",
                "no status",
            ),
        ] {
            let said = read_reply(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
