//! Figures that add up, in words their readers understand.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use control::{Replies, Worker, json};
use os::cgroup::Usage;

use super::table::quantile_us;
use super::*;
use crate::fixture::{Fixture, generation_after, peer, reply};
use crate::stats::BOUNDS_US;
use ipc::groups::Owner;

const SITES: &str = r#"
[upstreams.app]
servers = ["127.0.0.1:1", "unix:/run/a.sock"]
[[sites]]
hosts = ["www.example.jp"]
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
  [[sites.rules]]
  match = { path = "/metrics.json" }
  handler = { metrics = "json" }
  [[sites.rules]]
  match = { path = "/gone" }
  handler = { respond = { status = 410, body = "gone" } }
  [[sites.rules]]
  handler = { respond = { status = 200, body = "thirteen byte" } }
[[sites]]
hosts = ["idle.example.jp"]
rules = [{ handler = { proxy = "app" } }]
"#;

fn fixture() -> Fixture {
    let fixture = Fixture::new(SITES);
    fixture
        .shared
        .set_generation(&fixture.worker.serving().generation);
    fixture
}

fn ask(fixture: &Fixture, host: &str, path: &str) -> (u16, Vec<String>, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    reply(&fixture.ask_from(peer("192.0.2.1:1"), &request))
}

fn used() -> Fixture {
    let fixture = fixture();
    for path in ["/", "/", "/gone"] {
        ask(&fixture, "www.example.jp", path);
    }
    ask(&fixture, "elsewhere", "/");
    fixture
}

#[test]
fn what_happened_is_counted_by_site_and_status() {
    let fixture = used();
    let figures = collect(&fixture.shared);
    let [Site { site, replies }] = &figures.sites[..] else {
        panic!("{:?}", figures.sites);
    };
    assert_eq!(
        (site.as_str(), replies.by_class),
        ("www.example.jp", [0, 2, 0, 1, 0])
    );
    assert_eq!((replies.bytes_in, replies.bytes_out), (0, 30));
    assert_eq!(figures.without_site.by_class, [0, 0, 0, 1, 0]);
    let sum = |of: fn(&Worker) -> u64| figures.workers.iter().map(of).sum::<u64>();
    assert_eq!(
        (sum(|worker| worker.ended), figures.time.total.count()),
        (4, 4)
    );
    assert_eq!(
        (sum(|worker| worker.in_flight), figures.sites_configured),
        (0, 2)
    );
    assert_eq!(figures.upstreams.len(), 2);
}

#[test]
fn a_reload_keeps_what_was_counted() {
    let fixture = used();
    let before = fixture.worker.serving().generation.clone();
    let after = generation_after(&before, SITES);
    fixture.worker.swap(after.clone());
    fixture.shared.set_generation(&after);
    ask(&fixture, "www.example.jp", "/");
    let figures = collect(&fixture.shared);
    assert_eq!(
        (figures.generation, figures.sites[0].replies.by_class[1]),
        (2, 3)
    );
}

#[test]
fn prometheus_understands_every_line() {
    let fixture = used();
    let (status, fields, body) = ask(&fixture, "www.example.jp", "/metrics");
    assert_eq!(status, 200);
    assert!(fields.contains(&"Content-Type: text/plain; version=0.0.4; charset=utf-8".to_owned()));
    let samples = parse(&body);
    let of = |series: &str| samples.get(series).copied();
    assert_eq!(
        of(r#"nagaya_requests_total{site="www.example.jp",status="2xx"}"#),
        Some(2.0)
    );
    assert_eq!(
        of(r#"nagaya_requests_total{site="",status="4xx"}"#),
        Some(1.0)
    );
    assert_eq!(of(r#"nagaya_exchanges_in_flight{worker="0"}"#), Some(1.0));
    assert_eq!(
        of(r#"nagaya_upstream_up{upstream="app",server="unix:/run/a.sock"}"#),
        Some(1.0)
    );
    assert_eq!(of(r#"nagaya_request_seconds_bucket{le="+Inf"}"#), Some(4.0));
    assert_eq!(of("nagaya_request_seconds_count"), Some(4.0));
}

#[test]
fn odd_names_are_escaped() {
    let mut figures = none();
    let odd = "a\"b\\c\nd";
    let replies = Replies {
        by_class: [0, 7, 0, 0, 0],
        ..Replies::default()
    };
    let site = odd.to_owned();
    figures.sites.push(Site { site, replies });
    let samples = parse(&prometheus(&figures));
    assert!(samples.contains_key(r#"nagaya_requests_total{site="a\"b\\c\nd",status="2xx"}"#));
    assert!(json(&figures).contains(r#"{"site":"a\"b\\c\u000ad","1xx":0,"2xx":7"#));
}

#[test]
fn json_is_json() {
    let fixture = used();
    let (_, fields, body) = ask(&fixture, "www.example.jp", "/metrics.json");
    assert!(fields.contains(&"Content-Type: application/json".to_owned()));
    assert!(body.contains(r#""sites":[{"site":"www.example.jp","1xx":0,"2xx":2,"3xx":0,"4xx":1"#));
    assert_eq!(after_value(body.trim_end()), "");
}

#[test]
fn the_table_is_aligned() {
    let fixture = used();
    let page = table(&collect(&fixture.shared));
    assert!(
        page.contains("requests     0 in flight · 4 answered · 2xx 2 · 4xx 2\n"),
        "{page}"
    );
    let rows: Vec<_> = page
        .lines()
        .skip_while(|line| !line.starts_with("site "))
        .collect();
    assert_eq!(rows.len(), 3, "{page}");
    assert!(
        rows.iter()
            .all(|row| row.chars().count() == rows[0].chars().count()),
        "{page}"
    );
    assert!(
        rows[1].starts_with("www.example.jp") && rows[2].starts_with("(no site)"),
        "{page}"
    );
}

/// What there is where nothing was counted.
pub(super) fn none() -> Status {
    workers::counted(&[], Duration::ZERO)
}

/// Figures of one server of an upstream.
fn of_server(server: Upstream) -> Status {
    let server = Upstream {
        upstream: "app".to_owned(),
        server: "127.0.0.1:1".to_owned(),
        ..server
    };
    Status {
        upstreams: vec![server],
        ..none()
    }
}

#[test]
fn a_server_that_fails_is_told_from_one_that_is_out() {
    for (workers, workers_out, workers_failing, state, up) in [
        (0, 0, 0, " up ", 1.0),
        (2, 0, 0, " up ", 1.0),
        (1, 0, 1, " failing, 7 in a row ", 0.0),
        (2, 0, 1, " failing for 1 of 2 workers, 7 in a row ", 1.0),
        (2, 1, 0, " out for 1 of 2 workers, 7 in a row ", 1.0),
        (2, 2, 0, " out, 7 in a row ", 0.0),
    ] {
        let figures = of_server(Upstream {
            fails_in_row: 7,
            workers,
            workers_out,
            workers_failing,
            ..Upstream::default()
        });
        let page = table(&figures);
        assert!(page.contains(state), "{state}: {page}");
        let samples = parse(&prometheus(&figures));
        let series = r#"nagaya_upstream_up{upstream="app",server="127.0.0.1:1"}"#;
        assert_eq!(samples.get(series), Some(&up), "{state}");
    }
}

#[test]
fn how_long_the_oldest_request_is_under_way_and_how_many_got_no_answer_is_shown() {
    let at_work = Upstream {
        in_flight: 3,
        oldest_s: Some(75.25),
        timeouts: 9,
        ..Upstream::default()
    };
    for (figures, shown, seconds, json_says) in [
        (
            at_work,
            "3  1 min 15 s",
            75.25,
            "\"oldest_s\":75.25,\"timeouts\":9",
        ),
        (
            Upstream::default(),
            "-",
            0.0,
            "\"oldest_s\":null,\"timeouts\":0",
        ),
    ] {
        let timeouts = figures.timeouts;
        let figures = of_server(figures);
        let page = table(&figures);
        let squeezed = page.split("  ").filter(|it| !it.is_empty()).map(str::trim);
        let squeezed = squeezed.collect::<Vec<_>>().join("  ");
        assert!(squeezed.contains(shown), "{squeezed}");
        let samples = parse(&prometheus(&figures));
        let of = |name: &str| {
            let series =
                format!(r#"nagaya_upstream_{name}{{upstream="app",server="127.0.0.1:1"}}"#);
            samples.get(&series).copied()
        };
        assert_eq!(of("oldest_seconds"), Some(seconds));
        assert_eq!(of("timeouts_total"), Some(timeouts as f64));
        assert!(json(&figures).contains(json_says), "{}", json(&figures));
    }
}

#[test]
fn what_an_agent_says_of_its_server_is_shown() {
    for (agent_percent, workers_out, state, weight, json_says) in [
        (None, 0, " up ", None, "null,\"drain\":false"),
        (Some(100), 0, " up ", Some(1.0), "1,\"drain\":false"),
        (
            Some(29),
            0,
            " up · weight 29% ",
            Some(0.29),
            "0.29,\"drain\":false",
        ),
        (
            Some(29),
            1,
            " out, 7 in a row · weight 29% ",
            Some(0.29),
            "0.29,",
        ),
        (Some(0), 0, " drain ", Some(0.0), "0,\"drain\":true"),
        (
            Some(0),
            1,
            " drain · out, 7 in a row ",
            Some(0.0),
            "0,\"drain\":true",
        ),
    ] {
        let mut server = Upstream {
            fails_in_row: 7,
            workers: 1,
            workers_out,
            ..Upstream::default()
        };
        if let Some(percent) = agent_percent {
            tell_weight(&mut server, percent);
        }
        let figures = of_server(server);
        let page = table(&figures);
        assert!(page.contains(state), "{state}: {page}");
        let samples = parse(&prometheus(&figures));
        let series = r#"nagaya_upstream_agent_weight{upstream="app",server="127.0.0.1:1"}"#;
        assert_eq!(samples.get(series).copied(), weight, "{state}");
        let json = json(&figures);
        assert!(
            json.contains(&format!("\"agent_weight\":{json_says}")),
            "{json}"
        );
    }
}

#[test]
fn groups_are_shown_with_what_the_machine_counts() {
    let owner = |site: Option<&str>, rule: Option<&str>| Owner {
        tenant: "a \"shop\"".to_owned(),
        site: site.map(str::to_owned),
        rule: rule.map(str::to_owned),
        ..Owner::default()
    };
    let of_script = Owner {
        script: Some("apache/g".to_owned()),
        ..owner(Some("a.jp"), None)
    };
    let counted = Usage {
        cpu_us: Some(1_500_000),
        throttled_us: Some(250_000),
        memory_peak_bytes: Some(3 << 20),
        oom_kills: Some(2),
        ..Usage::default()
    };
    let group = |owner: Owner, usage| groups::group(&owner, owner.script.clone(), &usage);
    let figures = Status {
        groups: vec![
            group(owner(None, None), Usage::default()),
            group(owner(Some("a.jp"), Some("rule 1")), counted),
            group(of_script, Usage::default()),
        ],
        groups_left_out: 7,
        ..none()
    };
    let page = table(&figures);
    let line = page
        .lines()
        .find(|line| line.starts_with("rule 1 of site a.jp"));
    let cells = line.unwrap().split("  ").map(str::trim);
    let cells: Vec<_> = cells.filter(|cell| !cell.is_empty()).collect();
    let expected = "rule 1 of site a.jp|1.5 s|250 ms|-|3.0 MiB|2|-|-";
    assert_eq!(cells.join("|"), expected);
    assert!(page.contains("apache/g of site a.jp"), "{page}");
    assert!(page.ends_with("and at least 7 more\n"), "{page}");
    let samples = parse(&prometheus(&figures));
    let labels = r#"{tenant="a \"shop\"",site="a.jp",rule="rule 1"}"#;
    for (name, value) in [
        ("cpu_seconds_total", 1.5),
        ("throttled_seconds_total", 0.25),
        ("memory_peak_bytes", 3_145_728.0),
        ("oom_kills_total", 2.0),
    ] {
        let found = samples.get(&format!("nagaya_group_{name}{labels}"));
        assert_eq!(found, Some(&value), "{name}");
    }
    let grouped = samples
        .keys()
        .filter(|key| key.starts_with("nagaya_group_"));
    assert_eq!(grouped.count(), 4);
    assert_eq!(samples.get("nagaya_groups_left_out"), Some(&7.0));
    let json = json(&figures);
    assert_eq!(after_value(&json), "\n");
    assert!(
        json.contains(r#""rule":"rule 1","cpu_us":1500000,"throttled_us":250000"#),
        "{json}"
    );
    assert!(json.contains("\"groups_left_out\":7"), "{json}");
}

#[test]
fn quantiles_are_bounds_of_buckets() {
    let mut times = none().time.total;
    assert_eq!(quantile_us(&times, 500), None);
    times.counts[2] = 90;
    times.counts[5] = 9;
    times.counts[18] = 1;
    assert_eq!(quantile_us(&times, 500), Some(500));
    assert_eq!(quantile_us(&times, 990), Some(5_000));
    assert_eq!(quantile_us(&times, 999), None);
}

/// Reads the text format as its specification has it and panics at anything else.
fn parse(text: &str) -> HashMap<String, f64> {
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
    let (mut samples, mut families, mut current) = (HashMap::new(), HashSet::new(), ("", ""));
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("a help text").0;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split_once(' ').expect("a type");
            assert_eq!(current.0, help, "help and type go together");
            assert!(
                ["counter", "gauge", "histogram"].contains(&current.1),
                "{line}"
            );
            assert!(families.insert(current.0), "{} twice", current.0);
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let value: f64 = value.parse().expect("a number");
            check_series(series, current);
            assert!(
                value >= 0.0 && samples.insert(series.to_owned(), value).is_none(),
                "{line}"
            );
        }
    }
    check_histograms(text);
    samples
}

fn check_series(series: &str, (family, kind): (&str, &str)) {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let known = match kind {
        "histogram" => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name == format!("{family}{end}")),
        "counter" => name == family && name.ends_with("_total"),
        _ => name == family && !name.ends_with("_total"),
    };
    assert!(known && name.starts_with("nagaya_"), "{series} in {family}");
    assert!(
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
        "{name}"
    );
    let mut rest = labels;
    while rest != "}" {
        let (label, after) = rest.split_once("=\"").expect("a label");
        assert!(
            label.bytes().all(|byte| byte.is_ascii_lowercase()),
            "{series}"
        );
        let mut escaped = false;
        let end = after.find(|character| {
            let ends = character == '"' && !escaped;
            assert!(!escaped || "\\\"n".contains(character), "{series}");
            escaped = character == '\\' && !escaped;
            ends
        });
        rest = &after[end.expect("a quote") + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Buckets rise, and the last one is the count.
fn check_histograms(text: &str) {
    for name in ["nagaya_request_seconds", "nagaya_upstream_seconds"] {
        let values = |part: &str| -> Vec<f64> {
            let lines = text
                .lines()
                .filter(|line| line.starts_with(&format!("{name}{part}")));
            lines
                .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
                .collect()
        };
        let buckets = values("_bucket");
        assert!(buckets.is_sorted() && buckets.len() == BOUNDS_US.len() + 1);
        assert_eq!(buckets.last(), values("_count").first());
    }
}

/// What follows one JSON value (RFC 8259, without white space).
fn after_value(text: &str) -> &str {
    match text.as_bytes() {
        [b'{', ..] => after_items(&text[1..], '}', |item| {
            after_value(after_string(item).strip_prefix(':').expect("a colon"))
        }),
        [b'[', ..] => after_items(&text[1..], ']', |item| after_value(item.trim_start())),
        [b'"', ..] => after_string(text),
        [b'n', ..] => text.strip_prefix("null").expect("null"),
        [b't', ..] => text.strip_prefix("true").expect("true"),
        [b'f', ..] => text.strip_prefix("false").expect("false"),
        _ => {
            let is_of_number = |character: char| character.is_ascii_digit() || character == '.';
            let rest = text.trim_start_matches(is_of_number);
            assert!(rest.len() < text.len(), "{text}");
            rest
        }
    }
}

fn after_items(mut text: &str, end: char, item: impl Fn(&str) -> &str) -> &str {
    if let Some(rest) = text.strip_prefix(end) {
        return rest;
    }
    loop {
        text = item(text);
        match text.strip_prefix(end) {
            Some(rest) => return rest,
            None => text = text.strip_prefix(',').unwrap_or_else(|| panic!("{text}")),
        }
    }
}

fn after_string(text: &str) -> &str {
    let inner = text.strip_prefix('"').expect("a string");
    let mut escaped = false;
    let end = inner.find(|character| {
        let ends = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    });
    &inner[end.expect("a quote") + 1..]
}
