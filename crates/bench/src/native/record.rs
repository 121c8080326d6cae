//! The report as a value: everything the text, the page and the JSON say, and nothing else.
//!
//! The idea: an outcome becomes this once, and all three are made of it. So a report that is read
//! back from JSON prints as it did on the day.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use load::client::{
    Arrivals, Errors, FirstReply, Handshakes, Interval, Judge, LeftOut, Opening, Outcome, Pace,
    Plan, Protocol, Reuse, Schedule, WarmUp,
};
use load::in_words;
use report::units;

use super::series::SeriesRecord;
use super::watch::ServerRecord;

/// What `format` says. The number goes up when a field changes its meaning or goes away.
pub(crate) const FORMAT: &str = "nagaya-bench/1";

/// What a load came to, and what was asked for.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) format: String,
    /// Program and version that measured.
    pub(crate) generator: String,
    /// When recording began, in UTC.
    pub(crate) started: String,
    /// Whether somebody ended the load early.
    pub(crate) cut_short: bool,
    pub(crate) asked: Asked,
    pub(crate) recorded_s: f64,
    pub(crate) warm_up: LeftOut,
    /// Exchanges that ended with a whole reply.
    pub(crate) completed: u64,
    /// Whole replies that count as failures, and exchanges without a whole reply.
    pub(crate) failed: u64,
    /// Whole replies a second.
    pub(crate) per_second: f64,
    /// Of these, the ones that are no failures.
    pub(crate) good_per_second: f64,
    /// Whole replies that count as failures for their status.
    pub(crate) failed_by_status: u64,
    /// Exchanges without a whole reply, by what went wrong.
    pub(crate) errors: Errors,
    /// Of each of these kinds the first, in words.
    pub(crate) first_failures: Vec<FailureRecord>,
    /// Exchanges under way when the load ended; counted nowhere else.
    pub(crate) cut: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Exchanges over a connection that had served another.
    pub(crate) on_kept_connections: u64,
    /// Handshakes of TLS; none without TLS.
    pub(crate) handshakes: Option<HandshakesRecord>,
    /// Bytes received, heads included, after TLS.
    pub(crate) received_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) times: TimesRecord,
    pub(crate) by_url: Vec<UrlRecord>,
    /// Tenths of a second since recording began.
    pub(crate) timeline: Vec<Interval>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) own: OwnRecord,
    pub(crate) first: Option<FirstRecord>,
    /// What the server spent; none where none was watched.
    pub(crate) server: Option<ServerRecord>,
}

/// Handshakes of TLS that were completed while recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HandshakesRecord {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    /// Both, a second.
    pub(crate) per_second: f64,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Asked {
    pub(crate) urls: Vec<AskedUrl>,
    pub(crate) method: String,
    /// Version of HTTP, `1.1`.
    pub(crate) http: String,
    /// Names of added fields. Not their values: those may be secrets.
    pub(crate) header_names: Vec<String>,
    pub(crate) body_bytes: u64,
    pub(crate) pace: PaceWord,
    pub(crate) rate_per_second: Option<f64>,
    /// `poisson` or `constant`; none in a closed loop.
    pub(crate) arrivals: Option<String>,
    /// Seconds over which the rate grew.
    pub(crate) ramp_s: f64,
    pub(crate) connections: u64,
    /// Requests at a time on each of them, in HTTP/2.
    pub(crate) streams: Option<u64>,
    /// Seconds over which they were opened.
    pub(crate) open_over_s: f64,
    /// Requests after which a connection was closed; none where it was kept.
    pub(crate) requests_per_connection: Option<u64>,
    pub(crate) threads: u64,
    pub(crate) cores: Vec<u64>,
    /// Seconds of sending, warm-up included.
    pub(crate) duration_s: Option<f64>,
    /// Requests, warm-up included.
    pub(crate) requests: Option<u64>,
    /// `auto`, `none` or `fixed`.
    pub(crate) warm_up: String,
    pub(crate) timeout_s: f64,
    /// Whether statuses outside 200 to 399 are failures.
    pub(crate) any_status: bool,
    pub(crate) seed: u64,
}

/// A URL and its share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AskedUrl {
    pub(crate) url: String,
    pub(crate) weight: u32,
}

/// Whether requests wait for replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PaceWord {
    /// Each connection asks again when it has its reply.
    Closed,
    /// Requests are sent when due.
    Open,
}

/// Times of whole exchanges.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TimesRecord {
    /// From the due instant to the last byte: what somebody would have waited.
    pub(crate) response: SeriesRecord,
    /// From the actual start to the last byte: what the server took.
    pub(crate) service: SeriesRecord,
    /// Connecting, TLS included; only where a connection was opened.
    pub(crate) connect: SeriesRecord,
    /// From the request's last byte to the reply's first.
    pub(crate) waiting: SeriesRecord,
}

/// The first failure of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FailureRecord {
    /// The kind: a field of `errors`.
    pub(crate) kind: String,
    /// What was being done, and why it failed.
    pub(crate) text: String,
}

/// One URL of several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct UrlRecord {
    pub(crate) url: String,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// From the due instant to the last byte.
    pub(crate) response: SeriesRecord,
}

/// What the generator itself used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OwnRecord {
    /// CPU seconds of its threads while recording.
    pub(crate) cpu_s: f64,
    /// The busiest thread's share of its time.
    pub(crate) busy: f64,
    /// Whether it was the bottleneck: then the rate is no capacity of the server.
    pub(crate) bound: bool,
}

/// What the first whole reply said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FirstRecord {
    pub(crate) status: u16,
    pub(crate) server: String,
    pub(crate) body_bytes: u64,
    /// Version and cipher suite, where there was TLS.
    /// Streams that the server takes on a connection, where it says so.
    pub(crate) streams_max: Option<u64>,
    pub(crate) tls: Option<String>,
}

impl Asked {
    /// What a plan asks for. `header_names` are those of fields that were added.
    pub(crate) fn of(
        plan: &Plan,
        method: &str,
        http: &str,
        header_names: Vec<String>,
        seed: u64,
    ) -> Asked {
        let (pace, rate_per_second, arrivals, ramp) = match plan.pace {
            Pace::Closed => (PaceWord::Closed, None, None, Duration::ZERO),
            Pace::Open {
                per_second,
                arrivals,
                ramp,
            } => {
                let word = match arrivals {
                    Arrivals::Poisson(_) => "poisson",
                    Arrivals::Constant => "constant",
                    Arrivals::Bursts(_) => "bursts",
                };
                (
                    PaceWord::Open,
                    Some(per_second),
                    Some(word.to_owned()),
                    ramp,
                )
            }
        };
        let urls = plan.requests.iter().map(|request| AskedUrl {
            url: request.label.clone(),
            weight: request.weight,
        });
        let body_bytes = plan
            .requests
            .first()
            .map_or(0, |request| request.body_bytes);
        Asked {
            urls: urls.collect(),
            method: method.to_owned(),
            http: http.to_owned(),
            header_names,
            body_bytes: body_bytes as u64,
            pace,
            rate_per_second,
            arrivals,
            ramp_s: ramp.as_secs_f64(),
            connections: plan.connections as u64,
            streams: match plan.protocol {
                Protocol::Http1 => None,
                Protocol::Http2 { streams } => Some(streams as u64),
            },
            open_over_s: match plan.opening {
                Opening::Ramp(time) => time.as_secs_f64(),
                Opening::AllAtOnce | Opening::FirstAlone => 0.0,
            },
            requests_per_connection: match plan.reuse {
                Reuse::Keep => None,
                Reuse::Close => Some(1),
                Reuse::Requests(requests) => Some(requests.into()),
            },
            threads: plan.threads as u64,
            cores: plan.cores.iter().map(|core| *core as u64).collect(),
            duration_s: plan.end.after.map(|after| after.as_secs_f64()),
            requests: plan.end.requests,
            warm_up: match plan.warm_up {
                WarmUp::None => "none".into(),
                WarmUp::For(_) => "fixed".into(),
                WarmUp::UntilSteady(_) => "auto".into(),
            },
            timeout_s: plan.timeout.as_secs_f64(),
            any_status: plan.judge != Judge::Status,
            seed,
        }
    }
}

impl Report {
    /// What a report tells of an outcome.
    pub(crate) fn of(asked: &Asked, outcome: &Outcome, server: Option<ServerRecord>) -> Report {
        let recorded_s = outcome.recorded.as_secs_f64();
        let good = outcome.completed.saturating_sub(outcome.judged_failed);
        Report {
            format: FORMAT.to_owned(),
            generator: concat!("nagaya ", env!("CARGO_PKG_VERSION")).to_owned(),
            started: units::instant(outcome.started),
            cut_short: outcome.interrupted,
            asked: asked.clone(),
            recorded_s,
            warm_up: outcome.warm_up,
            completed: outcome.completed,
            failed: outcome.failed(),
            per_second: per_second(outcome.completed, recorded_s),
            good_per_second: per_second(good, recorded_s),
            failed_by_status: outcome.judged_failed,
            errors: outcome.errors,
            first_failures: outcome
                .first_failures
                .iter()
                .map(|failure| FailureRecord {
                    kind: failure.class.to_owned(),
                    text: in_words(&failure.text),
                })
                .collect(),
            cut: outcome.cut,
            statuses: outcome.statuses.clone(),
            on_kept_connections: outcome.on_kept_connections,
            handshakes: handshakes(outcome),
            received_bytes: outcome.received_bytes,
            body_bytes: outcome.body_bytes,
            sent_bytes: outcome.sent_bytes,
            times: TimesRecord {
                response: SeriesRecord::of(&outcome.times.response),
                service: SeriesRecord::of(&outcome.times.service),
                connect: SeriesRecord::of_connects(&outcome.times.connect),
                waiting: SeriesRecord::of(&outcome.times.waiting),
            },
            by_url: by_url(asked, outcome),
            timeline: outcome.timeline.clone(),
            schedule: (asked.pace == PaceWord::Open).then(|| outcome.schedule.clone()),
            own: OwnRecord {
                cpu_s: outcome.generator_cpu.as_secs_f64(),
                busy: outcome.generator_busy,
                bound: outcome.is_generator_bound(),
            },
            first: outcome.first.as_ref().map(first),
            server,
        }
    }

    /// Exchanges that ended, well or not.
    pub(crate) fn attempts(&self) -> u64 {
        let errors = self.errors.named();
        errors
            .iter()
            .fold(self.completed, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Whether replies came, and not one had a status that counts as good.
    pub(crate) fn is_all_refused(&self) -> bool {
        self.completed > 0 && self.failed_by_status == self.completed
    }

    /// As JSON, on one line. The format is described in docs/reference/bench-json.md.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and maps with text as keys")
    }
}

/// A rate; 0 where no time passed.
pub(super) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

fn handshakes(outcome: &Outcome) -> Option<HandshakesRecord> {
    let Handshakes { full, resumed } = outcome.handshakes;
    let has_tls = full + resumed > 0 || outcome.first.as_ref().is_some_and(|f| f.tls.is_some());
    has_tls.then(|| HandshakesRecord {
        full,
        resumed,
        per_second: per_second(full + resumed, outcome.recorded.as_secs_f64()),
    })
}

fn by_url(asked: &Asked, outcome: &Outcome) -> Vec<UrlRecord> {
    asked
        .urls
        .iter()
        .zip(&outcome.by_request)
        .map(|(url, request)| UrlRecord {
            url: url.url.clone(),
            completed: request.completed,
            failed: request.failed,
            response: SeriesRecord::of(&request.response),
        })
        .collect()
}

fn first(first: &FirstReply) -> FirstRecord {
    FirstRecord {
        status: first.status,
        server: first.server.clone(),
        body_bytes: first.body_bytes,
        streams_max: first.streams_max.map(|most| most as u64),
        tls: first
            .tls
            .as_ref()
            .map(|tls| format!("{}, {}", tls.version, tls.suite)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::{fixture, page, text};
    use report::Paint;

    #[test]
    fn a_report_with_nonsense_in_it_is_still_printed() {
        let mut report = fixture::report();
        report.completed = u64::MAX;
        report.errors.reset = u64::MAX;
        report.statuses = [(0, u64::MAX), (65_535, u64::MAX), (1, 3)].into();
        report.recorded_s = 0.0;
        report.times.response.histogram = vec![(u64::MAX, u64::MAX), (0, u64::MAX)];
        report.times.response.count = u64::MAX;
        report.asked.urls.clear();
        assert!(!text::text(&report, usize::MAX, Paint::Never).is_empty());
        assert!(!page::document(&report).to_html().is_empty());
    }

    /// Names of all fields as `a.b`; elements of lists and of maps with free keys have their
    /// holder's name.
    fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        const FREE_KEYS: [&str; 3] = ["statuses", "quantiles_us", "sockets"];
        match value {
            Value::Object(map) => {
                for (name, inner) in map {
                    let is_free = FREE_KEYS.iter().any(|key| path.ends_with(key));
                    let path = match (is_free, path) {
                        (true, _) => path.to_owned(),
                        (false, "") => name.clone(),
                        (false, _) => format!("{path}.{name}"),
                    };
                    found.insert(path.clone());
                    fields(inner, &path, found);
                }
            }
            Value::Array(list) => list.iter().for_each(|inner| fields(inner, path, found)),
            _ => {}
        }
    }

    /// Fields that hold something described once for all of them.
    const SHAPES: [(&str, &str); 7] = [
        ("times.response", "(series)"),
        ("times.service", "(series)"),
        ("times.connect", "(series)"),
        ("times.waiting", "(series)"),
        ("by_url.response", "(series)"),
        ("server.samples", "(sample)"),
        ("server.cooldown", "(sample)"),
    ];

    #[test]
    fn every_field_of_the_json_is_described() {
        let json = serde_json::from_str(&fixture::report().to_json()).expect("JSON");
        let mut found = BTreeSet::new();
        fields(&json, "", &mut found);
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/bench-json.md"
        );
        let page = std::fs::read_to_string(page).expect("the reference is there");
        let described: BTreeSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let is_described = |field: &str| {
            described.contains(field)
                || SHAPES.iter().any(|(holder, shape)| {
                    let rest = field.strip_prefix(holder);
                    rest.is_some_and(|rest| described.contains(format!("{shape}{rest}").as_str()))
                })
        };
        let missing: Vec<&String> = found.iter().filter(|field| !is_described(field)).collect();
        assert!(
            missing.is_empty(),
            "not in docs/reference/bench-json.md: {missing:#?}"
        );
        let stale: Vec<&&str> = described
            .iter()
            .filter(|field| !field.starts_with('(') && !found.contains(**field))
            .collect();
        assert!(stale.is_empty(), "described, but not there: {stale:#?}");
    }
}
