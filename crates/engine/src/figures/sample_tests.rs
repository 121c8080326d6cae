//! Every form of the figures, byte for byte as it was stored in `tests/samples`.
//!
//! The idea: figures made by hand in which every field says something, with names that have to be
//! escaped. What changes a stored text changes what other people's programs read.

use std::path::Path;
use std::time::Duration;

use control::{
    Group, Map, Named, Phase, Pool, Programs, Recorder, RecorderSends, Replies, ScriptInShadow,
    Scripts, SetAside, ShedRule, ShedTenant, Stragglers, UntoldAlert, Worker,
};
use limits::{Concurrent, LimitLook, Mode, RateDefinition, Totals};
use os::cgroup::Usage;

use super::tests::none;
use super::*;
use crate::fixture::Fixture;
use crate::permits::limiter::Origin;
use ipc::groups::Owner;

const LIMITED: &str = r#"
[[limits]]
name = "all"
concurrent = 4
[[sites]]
hosts = ["a"]
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

/// Phases before those of requests, which are not shown.
const PHASES_BEFORE: u64 = 3;
/// A name with what has to be escaped somewhere.
const ODD: &str = "a \"b\" \\ c\n\u{7f}é";

fn reload_refused() -> RefusedReload {
    RefusedReload {
        at: "2026-11-25T02:18:00Z".to_owned(),
        outcome: "wrong".into(),
        problem: "nagaya.toml:3:1: unknown key `wrokers`".to_owned(),
    }
}

fn set_aside(file: &str) -> SetAside {
    SetAside {
        file: file.to_owned(),
        since: "2026-11-25T02:17:00Z".to_owned(),
        verdict: "set aside: it is left out".to_owned(),
        problem: "line 3: unknown key `hots`".to_owned(),
    }
}

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

/// Values under the names that `none` has.
fn named<T, U>(names: &Named<T>, value: fn(u64) -> U) -> Named<U> {
    let names = names.iter().zip(0..);
    names.map(|((name, _), at)| (name, value(at))).collect()
}

/// Figures in which every field says something.
fn figures() -> Status {
    let replies = |factor: u64| Replies {
        by_class: [0, 20, 3, 4, 5].map(|count| count * factor),
        bytes_in: 12_345 * factor,
        bytes_out: 9_876_543 * factor,
        ..Replies::default()
    };
    let site = |name: &str, factor| Site {
        site: name.to_owned(),
        replies: replies(factor),
    };
    let mut figures = none();
    let time = &mut figures.time;
    for times in [&mut time.total, &mut time.upstream] {
        for (at, count) in (0..).zip(&mut times.counts) {
            *count = at * 3;
        }
        times.sum_us = 123_456_789;
    }
    Status {
        generation: 7,
        pid: 4_242,
        uptime_s: 93_784,
        reloads: 6,
        reloads_refused: 1,
        reload_refused: Some(reload_refused()),
        restarts: 2,
        config_files_set_aside: 12,
        set_aside: vec![set_aside("sites.d/a.toml"), set_aside("sites.d/b.toml")],
        held: vec!["group tenant-shop: its limit of memory stays 256MiB".to_owned()],
        access_records_lost: 3,
        error_lines_lost: 4,
        sites_configured: 10_000,
        workers: workers(),
        sites: vec![site("a.example.jp", 1), site(ODD, 2)],
        without_site: replies(3),
        upstreams: upstreams(),
        programs: Programs {
            running: 2,
            started: 1_500,
            failed: 1,
            killed: named(&figures.programs.killed, |at| at),
        },
        stragglers: Stragglers {
            now: 1,
            ended: named(&figures.stragglers.ended, |at| at + 1),
        },
        scripts: scripts(&figures.scripts),
        htaccess_cached_bytes: Some(12_345_678),
        suspended: suspended(),
        recorder: Some(recorder()),
        groups: groups(),
        groups_left_out: 7,
        maps: maps(),
        pools: pools(),
        classes: vec![control::RequestClass {
            tenant: "shop".to_owned(),
            class: ODD.to_owned(),
            waited: 12,
            waited_us: 3_456_789,
            refused: 7,
        }],
        scripts_in_shadow: [("/etc/a.rb", 41), (ODD, 0)].map(script_in_shadow).into(),
        limits: limits().iter().map(listed).collect(),
        sensors: sensors(),
        loop_lag_s: vec![Some(0.001), None, Some(2.0)],
        shedding: shedding(),
        shed_by_tenant: [("shop", 1_000), (ODD, 1)].map(shed_tenant).into(),
        ..figures
    }
}

fn suspended() -> Suspended {
    Suspended {
        count: 3,
        tenants: vec!["shop".to_owned(), "zoo".to_owned()],
        refused: 1_234,
    }
}

fn scripts(none: &Scripts) -> Scripts {
    let phase = |at| Phase {
        ended: (at + PHASES_BEFORE) * 10,
        failed: at + PHASES_BEFORE,
    };
    Scripts {
        vms: 9,
        tenant_vms: 7,
        tenant_vms_opened: 1_200,
        tenant_vms_closed: 1_193,
        tenant_vms_failed: 3,
        memory_bytes: 3 << 20,
        parked: 5,
        phases: named(&none.phases, phase),
    }
}

fn script_in_shadow((script, runs): (&str, u64)) -> ScriptInShadow {
    ScriptInShadow {
        script: script.to_owned(),
        phase: "access".into(),
        runs,
        answered: runs / 2,
        changed: runs / 4,
    }
}

fn shed_tenant((tenant, shed): (&str, u64)) -> ShedTenant {
    let tenant = tenant.to_owned();
    ShedTenant {
        tenant,
        shed,
        shadow_shed: 2 * shed,
    }
}

fn workers() -> Vec<Worker> {
    let worker = |factor: u64| Worker {
        connections: 11,
        accepted: 1_200 * factor,
        refused: 13,
        handed_over: 14,
        http2_connections: 5,
        http2_streams: 6,
        http2_broken_off: 7,
        in_flight: 15,
        ended: 1_600 * factor,
        panics: 17,
    };
    vec![worker(1), worker(2)]
}

fn upstreams() -> Vec<Upstream> {
    let server = |upstream: &str, server: &str, oldest_s, agent_weight| Upstream {
        upstream: upstream.to_owned(),
        server: server.to_owned(),
        oldest_s,
        agent_weight,
        drain: agent_weight == Some(0.0),
        ..Upstream::default()
    };
    let asked = Upstream {
        requests: 5_000,
        failures: 6,
        timeouts: 7,
        in_flight: 8,
        fails_in_row: 3,
        workers: 2,
        workers_out: 1,
        workers_failing: 1,
        ..server("app", "127.0.0.1:1", Some(61.25), Some(0.75))
    };
    vec![
        server(ODD, "127.0.0.1:2", Some(1e-9), Some(0.0)),
        asked,
        server("app", "unix:/run/a.sock", None, None),
    ]
}

fn groups() -> Vec<Group> {
    let counted = Usage {
        cpu_us: Some(1_500_000),
        periods: Some(8),
        throttled_periods: Some(3),
        throttled_us: Some(250_000),
        memory_bytes: Some(2 << 20),
        memory_peak_bytes: Some(3 << 20),
        oom_kills: Some(2),
        io_bytes: Some(4_096),
        pids: Some(9),
        pids_hits: Some(1),
        ..Usage::default()
    };
    let owner = Owner {
        tenant: ODD.to_owned(),
        site: Some("a.jp".to_owned()),
        rule: Some("rule 1".to_owned()),
        ..Owner::default()
    };
    let tenant = Owner {
        tenant: "shop".to_owned(),
        ..Owner::default()
    };
    vec![
        groups::group(&owner, Some("apache/g".to_owned()), &counted),
        groups::group(&tenant, None, &Usage::default()),
    ]
}

fn maps() -> Vec<Map> {
    let map = Map {
        map: "of files".to_owned(),
        questions: 1_000,
        cached: 900,
        errors: 1,
        restarts: 2,
        running: None,
        processes: None,
    };
    let of_program = Map {
        map: ODD.to_owned(),
        running: Some(1),
        processes: Some(2),
        ..map.clone()
    };
    vec![map, of_program]
}

fn pools() -> Vec<Pool> {
    let pool = Pool {
        pool: "php-a".to_owned(),
        name: "php 8.2 of a.example.jp".to_owned(),
        tenant: ODD.to_owned(),
        state: "warm".into(),
        waiting: 0,
        starts: 2,
        failures: 1,
        waited: 4,
        waited_us: 1_000_000,
        masters: 3,
        masters_us: 250_000,
        mails: 8,
        mails_unsent: 9,
        refused: [("pool_starting", 5), ("pool_failed", 6)]
            .into_iter()
            .collect(),
    };
    let asked = Pool {
        pool: "app-b".to_owned(),
        name: ODD.to_owned(),
        state: "starting".into(),
        waiting: 7,
        ..Pool::default()
    };
    vec![pool, asked]
}

/// One that stands still, and has written nothing for a while.
fn recorder() -> Recorder {
    Recorder {
        pid: Some(4_244),
        restarts: 1,
        told: 99_000,
        excluded: 12,
        dropped: [("no_reader", 3), ("full", 4), ("name", 5)]
            .into_iter()
            .collect(),
        seen_ago_s: Some(1.5),
        written_ago_s: Some(31.0),
        cpu_s: 12.25,
        alerts_failed: 2,
        untold_alerts: vec![UntoldAlert {
            alert: "load".into(),
            at: "2026-11-25T02:17:00Z".into(),
            why: "it ended with status 3".into(),
        }],
        sends: Some(RecorderSends {
            up: false,
            tried: true,
            why: "PostgreSQL at db port 5432: it does not connect: Connection refused".into(),
            lag_s: 185,
            waiting: 7,
            lost: 2,
        }),
    }
}

/// Numbers that have no fraction, many digits, or are very small.
fn sensors() -> Named<Option<f64>> {
    let values = [Some(3.0), None, Some(0.1 + 0.2), Some(1e-7), Some(1e21)];
    let names = Gauge::ALL.into_iter().map(Gauge::name);
    names.zip(values.into_iter().cycle()).collect()
}

fn shedding() -> Vec<ShedRule> {
    let rule = |name: &str, value, state: &'static str| ShedRule {
        rule: name.to_owned(),
        sensor: "load1".to_owned(),
        enter: 40.0,
        leave: 0.25,
        state: state.into(),
        since_ms: 61_500,
        admitted_share: 0.5,
        mode: "enforce".into(),
        shed: 1_234,
        shadow_shed: 0,
        value,
    };
    let tried = ShedRule {
        mode: "shadow".into(),
        shed: 0,
        shadow_shed: 56,
        ..rule("tried", Some(50.0), "yellow")
    };
    vec![
        rule("load1", Some(41.5), "red"),
        rule(ODD, None, "green"),
        tried,
    ]
}

#[test]
fn the_figures_are_what_they_were_in_every_form() {
    for (name, figures) in [("figures", figures()), ("no-figures", none())] {
        assert_stored(&format!("{name}.json"), &control::json(&figures));
        assert_stored(&format!("{name}.prom"), &prometheus(&figures));
        assert_stored(&format!("{name}.txt"), &table(&figures));
    }
}
