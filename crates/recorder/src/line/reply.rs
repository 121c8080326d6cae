//! What a line tells of a request and what was answered, for counting.

use std::borrow::Cow;

use super::Clock;
use super::record::Record;

/// A request and its reply as a line of any known format tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedReply<'a> {
    /// When it was logged or came in, microseconds after 1970.
    pub at_us: i64,
    /// The client's address, or its name.
    pub client: Cow<'a, str>,
    /// The site, or the host where the format knows no sites; empty where neither is told.
    pub site: Cow<'a, str>,
    /// Whether the server that logged it says that it was for none of its sites.
    pub is_of_no_site: bool,
    /// Its method; empty where what came was no request that could be read.
    pub method: Cow<'a, str>,
    /// As it was sent, with its query; empty likewise.
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
    let Record {
        time,
        duration,
        told: record,
    } = Record::read(line)?;
    // A host that no site has is whatever a client sends.
    let is_ours = matches!(duration, Ok((_, Clock::Exact)));
    let host = record.host.filter(|_| !is_ours);
    // Which is how our own `vhost_combined` tells it.
    let is_none = host.as_deref() == Some("-");
    Ok(LoggedReply {
        is_of_no_site: is_none || is_ours && record.site.is_none(),
        at_us: time?.0.as_microsecond(),
        client: record.client.unwrap_or_default(),
        site: record.site.or(host).unwrap_or_default(),
        method: record.method.unwrap_or_default(),
        target: record.target.unwrap_or_default(),
        status: record
            .status
            .filter(|status| (100..=999).contains(status))
            .ok_or("it has no status")?,
        bytes: record.bytes.unwrap_or(0),
        referrer: record.referer.unwrap_or_default(),
        agent: record.user_agent.unwrap_or_default(),
        total_us: duration.ok().map(|(us, _)| us),
        queue_us: record.queue_us,
        upstream_us: record.upstream_us,
        stands_for: record.sampled.unwrap_or(1),
    })
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
    fn what_was_no_request_is_read_by_its_status() {
        for request in ["", "-", r"\x16\x03\x01"] {
            let line = format!("h - - [21/Nov/2026:20:45:00 +0000] \"{request}\" 400 7");
            let told = read_reply(&line).expect("a line");
            assert_eq!((&*told.method, &*told.target), ("", ""));
            assert_eq!((told.status, told.bytes), (400, 7));
        }
    }

    #[test]
    fn a_users_name_moves_no_field_and_makes_no_site() {
        let long = "a ".repeat(100);
        for user in ["a b", "[x]", "[x] y", "-", "[x", "[x [y", &long] {
            let line = COMBINED.replace("frank", user);
            for (begin, site) in [("", ""), ("www.a.example:443 ", "www.a.example")] {
                let line = format!("{begin}{line}");
                let told = read_reply(&line).expect("a line");
                assert_eq!((&*told.site, &*told.client), (site, "192.0.2.7"), "{line}");
            }
        }
    }

    #[test]
    fn what_servers_escape_is_read_back() {
        let agent = r#"\xE3\x81\x82 \x22a\x22 \"b\" \t\\ \x4"#;
        let line = COMBINED.replace("Agent (7)", agent);
        let told = read_reply(&line).expect("a line");
        assert_eq!(told.agent, "あ \"a\" \"b\" \t\\ x4");
    }

    #[test]
    fn the_host_that_a_client_sends_is_no_site_of_a_server_that_knows_its_sites() {
        let json = r#"{"time":"2026-11-21T20:45:00Z","site":null,"host":"made.up","status":404,"total_us":1}"#;
        let told = read_reply(json).expect("a record");
        assert_eq!((&*told.site, told.is_of_no_site), ("", true));
        let of_none = format!("-:443 {COMBINED}");
        assert!(read_reply(&of_none).expect("a line").is_of_no_site);
        let of_host = format!("www.a.example {COMBINED}");
        assert!(!read_reply(&of_host).expect("a line").is_of_no_site);
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
                "h - - [21/Nov/2026:20:45:00 +0000] \"GET / HTTP/1.1\" 65535 0",
                "no status",
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
