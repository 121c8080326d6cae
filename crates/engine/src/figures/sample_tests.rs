//! Every form of the figures, byte for byte as it was stored in `tests/samples`.
//!
//! The idea: figures made by hand in which every field says something, with names that have to be
//! escaped. What changes a stored text changes what other people's programs read.

use std::path::Path;
use std::time::Duration;

use limits::shed::State;
use limits::{Concurrent, LimitLook, Mode, RateDefinition, Totals};
use os::cgroup::Usage;

use super::*;
use crate::fixture::Fixture;
use crate::permits::limiter::Origin;
use crate::shedding::rows::RuleFigures;
use ipc::groups::Owner;

const LIMITED: &str = r#"
[[listen]]
address = "127.0.0.1:8080"
[[limits]]
name = "all"
concurrent = 4
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

/// A name with what has to be escaped somewhere.
const ODD: &str = "a \"b\" \\ c\n\u{7f}é";

/// Holds `text` against the stored one, in which the version stands as `VERSION`.
pub(crate) fn assert_stored(name: &str, text: &str) {
    let text = text.replacen(env!("CARGO_PKG_VERSION"), "VERSION", 1);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let stored = std::fs::read_to_string(path.join(name)).expect(name);
    assert_eq!(text, stored, "{name}");
}

/// Limits of each kind.
pub(crate) fn limits() -> Vec<Row> {
    let fixture = Fixture::new(LIMITED);
    fixture
        .shared
        .set_generation(&fixture.worker.serving().generation);
    let made = |identity: &str, origin, change: fn(&mut Row)| {
        let mut row = rows::collect(&fixture.shared).remove(0);
        row.limit.identity = identity.to_owned();
        row.origin = origin;
        row.look = LimitLook {
            keys: 3,
            in_flight: 1_234,
            in_flight_most: 4,
            queued: 7,
            cap: Some(4),
            totals: Totals {
                admitted: 1_000_000,
                waited: 12,
                shadow_refused: 5,
                refused: [1, 2, 0, 4, 5, 6],
            },
            ..row.look
        };
        change(&mut row);
        row
    };
    vec![
        made("all", Origin::Configured, |_| {}),
        made(ODD, Origin::Set, |row| {
            row.limit.concurrent = Some(Concurrent::Auto {
                floor: 1,
                ceiling: 9,
            });
            row.limit.queue = 10;
            row.limit.wait = Duration::from_millis(2_500);
            row.limit.late = Some(Duration::from_millis(30));
            row.limit.mode = Mode::Shadow;
            row.has_match = true;
        }),
        made("rate", Origin::Kept("/o.toml".into(), 3), |row| {
            row.limit.concurrent = None;
            row.limit.rate = Some(RateDefinition {
                count: 5,
                per: Duration::from_secs(60),
                burst: 8,
            });
            row.look.cap = None;
            row.holds = false;
        }),
    ]
}

/// Figures in which every field says something.
fn figures() -> Figures {
    let replies = |factor: u64| ReplyFigures {
        by_class: [0, 20, 3, 4, 5].map(|count| count * factor),
        bytes_in: 12_345 * factor,
        bytes_out: 9_876_543 * factor,
    };
    let mut times = Times::default();
    for (at, count) in times.counts.iter_mut().enumerate() {
        *count = at as u64 * 3;
    }
    times.sum_us = 123_456_789;
    Figures {
        generation: 7,
        pid: 4_242,
        uptime: Duration::from_millis(93_784_900),
        reloads: 6,
        reloads_refused: 1,
        restarts: 2,
        records_lost: 3,
        lines_lost: 4,
        sites_configured: 10_000,
        workers: workers(),
        sites: vec![
            ("a.example.jp".to_owned(), replies(1)),
            (ODD.to_owned(), replies(2)),
        ],
        without_site: replies(3),
        upstreams: upstreams(),
        programs: ProgramFigures {
            running: 2,
            started: 1_500,
            failed: 1,
            killed: std::array::from_fn(|at| at as u64),
        },
        stragglers: StragglerFigures {
            now: 1,
            ended: std::array::from_fn(|at| at as u64 + 1),
        },
        scripts: ScriptFigures {
            vms: 2,
            memory_bytes: 3 << 20,
            parked: 5,
            by_phase: std::array::from_fn(|at| (at as u64 * 10, at as u64)),
        },
        groups: groups(),
        maps: maps(),
        limits: limits(),
        sensors: sensors(),
        lags_s: vec![Some(0.001), None, Some(2.0)],
        shed: shed(),
        total_time: times.clone(),
        upstream_time: times,
    }
}

fn workers() -> Vec<WorkerFigures> {
    let worker = |factor: u64| WorkerFigures {
        connections: 11,
        accepted: 1_200 * factor,
        refused: 13,
        handed_over: 14,
        in_flight: 15,
        ended: 1_600 * factor,
        panics: 17,
    };
    vec![worker(1), worker(2)]
}

fn upstreams() -> BTreeMap<(String, String), UpstreamFigures> {
    let server = UpstreamFigures {
        requests: 5_000,
        failures: 6,
        timeouts: 7,
        in_flight: 8,
        oldest: Some(Duration::from_millis(61_250)),
        fails_in_row: 3,
        workers: 2,
        workers_out: 1,
        workers_failing: 1,
        agent_percent: Some(75),
    };
    let drained = UpstreamFigures {
        oldest: Some(Duration::from_nanos(1)),
        agent_percent: Some(0),
        ..UpstreamFigures::default()
    };
    let key = |upstream: &str, server: &str| (upstream.to_owned(), server.to_owned());
    BTreeMap::from([
        (key("app", "127.0.0.1:1"), server),
        (key("app", "unix:/run/a.sock"), UpstreamFigures::default()),
        (key(ODD, "127.0.0.1:2"), drained),
    ])
}

fn groups() -> GroupFigures {
    let counted = Usage {
        cpu_us: Some(1_500_000),
        throttled_periods: Some(3),
        throttled_us: Some(250_000),
        memory_bytes: Some(2 << 20),
        memory_peak_bytes: Some(3 << 20),
        oom_kills: Some(2),
        pids: Some(9),
        pids_hits: Some(1),
    };
    let owner = Owner {
        tenant: ODD.to_owned(),
        site: Some("a.jp".to_owned()),
        rule: Some("rule 1".to_owned()),
        script: Some("apache/g".to_owned()),
    };
    let tenant = Owner {
        tenant: "shop".to_owned(),
        ..Owner::default()
    };
    GroupFigures {
        groups: vec![(owner, counted), (tenant, Usage::default())],
        left_out: 7,
    }
}

fn maps() -> Vec<MapFigures> {
    let map = MapFigures {
        name: "of files".to_owned(),
        questions: 1_000,
        cached: 900,
        errors: 1,
        restarts: 2,
        processes: None,
    };
    let of_program = MapFigures {
        name: ODD.to_owned(),
        processes: Some((1, 2)),
        ..map.clone()
    };
    vec![map, of_program]
}

/// Numbers that have no fraction, many digits, or are very small.
fn sensors() -> Vec<(Gauge, Option<f64>)> {
    let values = [Some(3.0), None, Some(0.1 + 0.2), Some(1e-7), Some(1e21)];
    Gauge::ALL
        .into_iter()
        .zip(values.into_iter().cycle())
        .collect()
}

fn shed() -> ShedFigures {
    let rule = |name: &str, value, state| RuleFigures {
        name: name.into(),
        sensor: Sensor::Here(Gauge::Load1),
        value,
        enter: 40.0,
        leave: 0.25,
        state,
        since: Duration::from_millis(61_500),
        share: 0.5,
        shed: 1_234,
    };
    ShedFigures {
        rules: vec![
            rule("load1", Some(41.5), State::Red),
            rule(ODD, None, State::Green),
        ],
        tenants: vec![("shop".into(), 1_000), (ODD.into(), 1)],
    }
}

#[test]
fn the_figures_are_what_they_were_in_every_form() {
    for (name, figures) in [("figures", figures()), ("no-figures", Figures::default())] {
        assert_stored(&format!("{name}.json"), &json(&figures));
        assert_stored(&format!("{name}.prom"), &prometheus(&figures));
        assert_stored(&format!("{name}.txt"), &table(&figures));
    }
}
