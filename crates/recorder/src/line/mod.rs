//! Access logs read back: who came when, for what, how long it took, and what was answered.
//!
//! Ours (`json`, `ltsv`) say it all. Apache's and nginx's formats tell no files, and the rest when a
//! duration is logged behind the usual fields: `%D` (microseconds) alone, or `$request_time` (seconds
//! with a point). What else is a whole number there may be bytes (`combinedio`), and is refused. A
//! line that cannot be read is counted and left out. Not here: what is done with the lines.

mod record;
mod reply;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use jiff::tz::Offset;

use record::{NO_REQUEST, Record};
pub use reply::{LoggedReply, read_reply};

/// Bytes of a line that are looked at; a longer one counts as unreadable.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// A request as a log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When it came in, microseconds after 1970.
    pub arrived_us: i64,
    /// How long it was being worked on, without any wait for a permit before.
    pub held_us: u64,
    /// Who asked.
    pub client: IpAddr,
    /// The site, or the host where only that is known; empty where neither is.
    pub site: String,
    /// Without the query.
    pub path: String,
    /// The file it came to.
    pub file: LoggedFile,
    /// The upstream it went to.
    pub upstream: Option<String>,
    /// Whether a limit refused it.
    pub refused: Refused,
}

/// What a log tells of the file that a request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedFile {
    /// Its name.
    Named(String),
    /// There was none: a limit by file counts by the path then.
    Without,
    /// The log does not tell files.
    Untold,
}

/// Whether a limit refused a request, and so kept it from taking the time it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// None did.
    No,
    /// One did.
    ByLimit,
    /// By its status, in a log that has no reasons.
    Perhaps,
}

/// How exact the times of a log are. What falls into one second is spread over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// To the microsecond, of the arrival.
    Exact,
    /// To the second, of the arrival, with whole numbers as durations: Apache.
    ArrivalSecond,
    /// To the second, of the end: nginx.
    EndSecond,
}

/// What is made of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The request.
    pub entry: LogEntry,
    /// How exact its times are.
    pub clock: Clock,
    /// Of its times from UTC.
    pub offset: Offset,
}

/// The program that unpacks a log, by how its first bytes are; `None` where they are text.
pub fn unpacker(begin: &[u8]) -> Option<&'static str> {
    match begin {
        [0x1f, 0x8b, ..] => Some("zcat"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstdcat"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xzcat"),
        [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', ..] => Some("bzcat"),
        _ => None,
    }
}

/// Reads a line of any known format that tells how long it took.
///
/// # Errors
/// Why it could not be read, in words.
pub fn read(line: &str) -> Result<LogLine, &'static str> {
    let Record {
        time,
        duration,
        told: record,
    } = Record::read(line)?;
    let (time, offset) = time?;
    let (total_us, clock) = duration?;
    let target = record.target.ok_or(NO_REQUEST)?;
    // A permit is given back when the back end has said its last, not when the client has it all.
    // Waits for permits lie before the handler, so in `queue_us`.
    let handled_us = total_us.saturating_sub(record.queue_us.unwrap_or(0));
    let held_us = record.upstream_us.unwrap_or(handled_us);
    let logged = time.as_microsecond();
    let refused = match record.reason {
        Some(reason) if reason.starts_with("limit_") => Refused::ByLimit,
        _ if clock == Clock::Exact => Refused::No,
        _ => match record.status.ok_or("it has no status")? {
            429 | 503 => Refused::Perhaps,
            _ => Refused::No,
        },
    };
    let client = record.client.and_then(|client| client.parse().ok());
    Ok(LogLine {
        entry: LogEntry {
            arrived_us: match clock {
                Clock::EndSecond => logged.saturating_sub_unsigned(held_us),
                _ => logged,
            },
            held_us,
            // One that is a name, or not told, counts as one.
            client: client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            site: record.site.or(record.host).unwrap_or_default().into_owned(),
            path: path(&target).to_owned(),
            file: match record.file {
                Some(Some(name)) => LoggedFile::Named(name.into_owned()),
                // Who was refused may have been so before the file was looked for.
                Some(None) if refused == Refused::No => LoggedFile::Without,
                _ => LoggedFile::Untold,
            },
            upstream: record.upstream.map(Cow::into_owned),
            refused,
        },
        clock,
        offset,
    })
}

/// What was asked, as a line of any known format tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Its method.
    pub method: String,
    /// Without a port; `None` where the format does not tell it.
    pub host: Option<String>,
    /// As it was sent.
    pub target: String,
    /// What was answered, where the format tells it.
    pub status: Option<u16>,
}

/// Reads what was asked, whether or not the line tells how long it took.
///
/// # Errors
/// Why it could not be read, in words.
pub fn read_asked(line: &str) -> Result<LoggedRequest, &'static str> {
    let record = Record::read(line)?.told;
    Ok(LoggedRequest {
        method: record.method.ok_or(NO_REQUEST)?.into_owned(),
        host: record.host.map(Cow::into_owned),
        target: record.target.ok_or(NO_REQUEST)?.into_owned(),
        status: record.status,
    })
}

/// What is before the query; of an absolute target what follows its host.
pub(crate) fn path(target: &str) -> &str {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    match path.split_once("://") {
        Some((_, rest)) if !path.starts_with('/') => {
            rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/")
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> LogEntry {
        read(line).expect(line).entry
    }

    #[test]
    fn what_was_asked_is_read_from_lines_without_a_duration_too() {
        let asked = |method: &str, host: Option<&str>, target: &str| {
            Ok(LoggedRequest {
                method: method.into(),
                host: host.map(Into::into),
                target: target.into(),
                status: Some(200),
            })
        };
        let common = "203.0.113.7 - - [21/Nov/2026:22:18:19 +0000] \"GET /a?b=c HTTP/1.1\" 200 5";
        assert_eq!(read_asked(common), asked("GET", None, "/a?b=c"));
        let of_host = format!("www.example.jp:443 {common} \"-\" \"curl\"");
        let told = asked("GET", Some("www.example.jp"), "/a?b=c");
        assert_eq!(read_asked(&of_host), told);
        let json = r#"{"host":"www.example.jp","method":"GET","target":"/a?b=c","status":200}"#;
        assert_eq!(read_asked(json), told);
        let ltsv = "time:x\thost:www.example.jp\tmethod:GET\ttarget:/a?b=c\tstatus:200";
        assert_eq!(read_asked(ltsv), told);
        assert!(read_asked("203.0.113.7 - - [21/Nov/2026:22:18:19 +0000] \"-\" 400 0").is_err());
        assert!(read_asked("nothing").is_err());
    }

    #[test]
    fn our_records_are_read_in_both_formats() {
        let json = r#"{"time":"2026-11-21T20:45:00.250000Z","site":"a.jp","host":"www.a.jp","client":"192.0.2.7","target":"/x.php?q=1","status":200,"upstream":"unix:/run/php.sock","queue_us":1000,"upstream_us":30000,"total_us":32000,"waited_us":500}"#;
        let ltsv = "time:2026-11-21T20:45:00.250000Z\tsite:a.jp\thost:www.a.jp\tclient:192.0.2.7\ttarget:/x.php?q=1\tstatus:200\tupstream:unix:/run/php.sock\tqueue_us:1000\tupstream_us:30000\ttotal_us:32000\twaited_us:500";
        assert_eq!(entry(json), entry(ltsv));
        let entry = entry(json);
        assert_eq!(entry.held_us, 30_000);
        assert_eq!(
            (entry.site.as_str(), entry.path.as_str()),
            ("a.jp", "/x.php")
        );
        assert_eq!(entry.arrived_us % 1_000_000, 250_000);
    }

    #[test]
    fn without_a_back_end_the_time_of_the_handler_counts() {
        let line = r#"{"time":"2026-11-21T20:45:00Z","client":null,"target":"/a","status":200,"queue_us":1000,"upstream_us":null,"total_us":3000}"#;
        assert_eq!(entry(line).held_us, 2_000);
    }

    #[test]
    fn apaches_and_nginxs_lines_are_read_with_their_durations() {
        let begin = r#"192.0.2.7 - frank [21/Nov/2026:21:45:00 +0100] "GET /a%20b.php?x=\"y HTTP/1.1" 200 5391 "http://a/ b" "Agent (\"7\"; 8)""#;
        for (end, held_us, before_us) in [
            (" 1500000", 1_500_000, 0),
            (" 1.500", 1_500_000, 1_500_000),
            (" rt=0.25", 250_000, 250_000),
            (" \"0.250\" \"-\"", 250_000, 250_000),
            (" 300 5000 0.250", 250_000, 250_000),
        ] {
            let read = read(&format!("{begin}{end}")).expect(end);
            assert_ne!(read.clock, Clock::Exact);
            assert_eq!(read.entry.held_us, held_us, "{end}");
            assert_eq!(read.entry.path, "/a%20b.php");
            assert_eq!(read.offset.seconds(), 3_600, "{end}");
            let second_us = 1_795_293_900_000_000;
            assert_eq!(second_us - read.entry.arrived_us, before_us, "{end}");
        }
    }

    #[test]
    fn the_host_before_a_line_is_its_site() {
        let line = r#"a.jp:443 192.0.2.7 - - [21/Nov/2026:20:45:00 +0000] "GET http://a.jp/x HTTP/1.1" 503 - "-" "-" 9"#;
        let entry = entry(line);
        assert_eq!((entry.site.as_str(), entry.path.as_str()), ("a.jp", "/x"));
        assert_eq!(entry.held_us, 9);
    }

    #[test]
    fn a_whole_number_that_may_be_bytes_or_a_user_agent_is_no_duration() {
        let begin = r#"h - - [21/Nov/2026:20:45:00 +0000] "GET / HTTP/1.1" 200 512"#;
        for (end, told) in [
            (r#" "-" "Agent" 300 5000"#, "combinedio"),
            (r#" "-" "Agent" 42 upstream"#, "combinedio"),
            (r#" "-" "7""#, "no duration"),
            (r#" "-" "1.5""#, "no duration"),
            (r#" "-" "Agent" "7""#, "no duration"),
            (r#" "-" "Agent" bytes=7"#, "no duration"),
            ("", "no duration"),
        ] {
            let said = read(&format!("{begin}{end}")).expect_err(end);
            assert!(said.contains(told), "{end}: {said}");
        }
        assert_eq!(entry(&format!("{begin} 7000")).held_us, 7_000);
    }

    #[test]
    fn who_was_refused_by_a_limit_is_known_by_reason_or_else_by_status() {
        let json = |rest: &str| {
            format!(r#"{{"time":"2026-11-21T20:45:00Z","target":"/a","total_us":9{rest}}}"#)
        };
        let classic = |status: u16| {
            format!(r#"h - - [21/Nov/2026:20:45:00 +0000] "GET / HTTP/1.1" {status} 1 0.001"#)
        };
        for (line, refused) in [
            (
                json(r#","status":429,"reason":"limit_rate""#),
                Refused::ByLimit,
            ),
            (
                json(r#","reason":null,"shadow_reason":"limit_full""#),
                Refused::No,
            ),
            (
                json(r#","status":503,"reason":"upstream_unreachable""#),
                Refused::No,
            ),
            (classic(503), Refused::Perhaps),
            (classic(429), Refused::Perhaps),
            (classic(502), Refused::No),
        ] {
            assert_eq!(entry(&line).refused, refused, "{line}");
        }
    }

    #[test]
    fn the_file_is_told_by_our_newer_records_alone() {
        let named = LoggedFile::Named("/srv/a/index.php".to_owned());
        let ltsv = "time:2026-11-21T20:45:00Z\ttarget:/a\ttotal_us:9";
        let json = r#"{"time":"2026-11-21T20:45:00Z","target":"/a","total_us":9"#;
        for (line, file) in [
            (format!("{ltsv}\tfile:/srv/a/index.php"), named.clone()),
            (format!("{ltsv}\tfile:-"), LoggedFile::Without),
            (ltsv.to_owned(), LoggedFile::Untold),
            (format!("{json},\"file\":\"/srv/a/index.php\"}}"), named),
            (format!("{json},\"file\":null}}"), LoggedFile::Without),
            (
                format!("{json},\"file\":null,\"reason\":\"limit_full\"}}"),
                LoggedFile::Untold,
            ),
            (format!("{json}}}"), LoggedFile::Untold),
        ] {
            assert_eq!(entry(&line).file, file, "{line}");
        }
    }

    #[test]
    fn a_packed_log_is_known_by_its_first_bytes() {
        for (begin, told) in [
            (&b"\x1f\x8b\x08"[..], Some("zcat")),
            (b"\x28\xb5\x2f\xfd\x24", Some("zstdcat")),
            (b"\xfd7zXZ\0", Some("xzcat")),
            (b"BZh91AY&SY", Some("bzcat")),
            (b"BZh9.example.jp 192.0.2.7", None),
            (b"192.0.2.7 - -", None),
            (b"{", None),
            (b"", None),
        ] {
            assert_eq!(unpacker(begin), told, "{begin:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (line, why) in [
            ("", "[time]"),
            ("{\"time\":", "JSON"),
            ("{}", "time"),
            ("a b c [21/Nov/2026] \"GET /\" 200 1", "[time] is none"),
            (
                "h - - [21/Nov/2026:20:45:00 +0000] \"-\" 400 0 \"-\" \"-\" 5",
                "no request",
            ),
            (
                "h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"",
                "%D",
            ),
            (
                "h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" 403 1 \"-\" \"-\" \"source\"",
                "or, for Nagaya's own log, format = \"json\" or \"ltsv\"",
            ),
            (
                "h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" 200 1",
                "or, for Nagaya's own log, format = \"json\" or \"ltsv\"",
            ),
        ] {
            let said = read(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
        assert!(read(&"x".repeat(LINE_BYTES_MAX + 1)).is_err());
    }
}
