//! Outcomes with known figures, for the tests of reports.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use load::client::{
    ByRequest, Errors, Failure, FirstReply, Handshakes, Interval, LeftOut, Outcome, Schedule,
    Series, Times, TlsFacts,
};
use load::server::{Sample, Spent, Throttling, TreeFigures};

use super::record::{Asked, AskedUrl, PaceWord, Report};
use super::watch::ServerRecord;

/// What was asked for in a closed loop.
pub(crate) fn asked() -> Asked {
    Asked {
        urls: vec![AskedUrl {
            url: "http://127.0.0.1:8080/".into(),
            weight: 1,
        }],
        method: "GET".into(),
        http: "1.1".into(),
        header_names: vec!["Accept".into()],
        body_bytes: 0,
        pace: PaceWord::Closed,
        rate_per_second: None,
        arrivals: None,
        ramp_s: 0.0,
        streams: None,
        connections: 50,
        open_over_s: 0.0,
        requests_per_connection: None,
        threads: 1,
        cores: vec![1],
        duration_s: Some(10.0),
        requests: None,
        warm_up: "auto".into(),
        timeout_s: 10.0,
        any_status: false,
        seed: 1,
    }
}

/// The same in an open loop over two URLs.
pub(crate) fn asked_openly() -> Asked {
    Asked {
        urls: ["/", "/b"]
            .map(|path| AskedUrl {
                url: format!("http://127.0.0.1:8080{path}"),
                weight: 1,
            })
            .to_vec(),
        pace: PaceWord::Open,
        rate_per_second: Some(1300.0),
        arrivals: Some("poisson".into()),
        ..asked()
    }
}

fn by_request() -> Vec<ByRequest> {
    (0..2u64)
        .map(|n| ByRequest {
            label: n.to_string(),
            completed: 5000,
            failed: 50 * n,
            lost: 0,
            good: 5000 - 50 * n,
            response: series((0..5000).map(|n| 250 + n % 1000)),
            admitted: series((0..5000).map(|n| 250 + n % 1000)),
        })
        .collect()
}

/// Ten thousand replies in eight seconds, a hundredth of them failed.
pub(crate) fn outcome() -> Outcome {
    let service = series((0..10_000).map(|n| 200 + n % 1000));
    Outcome {
        started: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        recorded: Duration::from_secs(8),
        warm_up: LeftOut {
            time: Duration::from_millis(1200),
            completed: 1500,
            steady: Some(true),
        },
        completed: 10_000,
        good: 9950,
        judged_failed: 70,
        on_kept_connections: 9_950,
        statuses: BTreeMap::from([(200, 9_900), (304, 30), (503, 70)]),
        errors: Errors {
            reset: 20,
            timeout: 10,
            ..Errors::default()
        },
        first_failures: vec![Failure {
            class: "reset",
            errno: Some(104),
            text: "read from 127.0.0.1:8080: connection reset by peer".into(),
        }],
        cut: 50,
        received_bytes: 1_500_000,
        body_bytes: 130_000,
        sent_bytes: 700_000,
        times: Times {
            connect: series((0..10_000).map(|n| if n < 50 { 40 + n } else { 0 })),
            waiting: series((0..10_000).map(|n| 150 + n % 1000)),
            processing: service.clone(),
            response: series((0..10_000).map(|n| 250 + n % 1000)),
            admitted: series((0..10_000).map(|n| 250 + n % 1000)),
            refused: Series::default(),
            service,
        },
        by_request: by_request(),
        timeline: (0..81u64)
            .map(|n| Interval {
                completed: 100 + n,
                failed: n % 2,
                p50_us: 700,
                p99_us: 1100 + n,
                max_us: 1200 + n,
                ..Interval::default()
            })
            .collect(),
        schedule: Schedule::default(),
        generator_cpu: Duration::from_millis(400),
        generator_busy: 0.05,
        first: Some(FirstReply {
            server: "example/1.0".into(),
            body_bytes: 13,
            tls: Some(TlsFacts {
                version: "TLSv1.3".into(),
                suite: "TLS_AES_256_GCM_SHA384".into(),
                ..TlsFacts::default()
            }),
            status: 200,
            streams_max: None,
        }),
        kept: 0,
        handshakes: Handshakes {
            full: 40,
            resumed: 10,
        },
        each: Vec::new(),
        interrupted: false,
    }
}

/// The same in an open loop, late at times.
pub(crate) fn outcome_openly() -> Outcome {
    Outcome {
        schedule: Schedule {
            due: 10_100,
            late: 300,
            late_by_generator: 20,
            unsent: 30,
            generator_p99_us: 90,
        },
        ..outcome()
    }
}

/// A server beside it.
pub(crate) fn server() -> ServerRecord {
    let sample = |second: u64| Sample {
        at: Duration::from_secs(second),
        cores_used: 0.9,
        waiting_for_core: 0.1,
        pss_bytes: Some(4 << 20),
        processes: 3,
        threads: 7,
        sockets: Some(50),
        throttled: Some(0.0),
        cpu_pressure: Some(0.2),
        steal_share: 0.0,
        load1: 1.5,
    };
    ServerRecord {
        which: "port 8080".into(),
        replies: 11_500,
        cpu_us_per_reply: Some(100.0),
        replies_per_cpu_second: Some(10_000.0),
        before_pss_bytes: Some(2 << 20),
        most_pss_bytes: Some(5 << 20),
        after_pss_bytes: Some(3 << 20),
        most_processes: 3,
        spent: Spent {
            time: Duration::from_secs(10),
            cores: 2,
            tree: Some(TreeFigures {
                cpu: Duration::from_millis(1150),
                run_queue: Duration::from_millis(115),
                processes: 3,
                threads: 7,
                pss_bytes: Some(4 << 20),
                peak_bytes: 9 << 20,
                voluntary_switches: 2300,
                involuntary_switches: 12,
                throttling: Some(Throttling {
                    periods: 100,
                    throttled: 3,
                    time: Duration::from_millis(40),
                }),
                sockets: BTreeMap::from([("ESTABLISHED".into(), 50), ("LISTEN".into(), 1)]),
                sockets_are_cut: false,
            }),
            charged: Duration::from_secs(2),
            interrupts: Duration::from_millis(100),
            steal_share: 0.01,
            cpu_pressure: Some(0.25),
            memory_pressure: Some(0.0),
            io_pressure: Some(0.0),
            load1: 1.5,
            conntrack: Some((120, 65_536)),
            time_wait: 40,
            retransmits: 0,
            started: 12,
        },
        foreign_share: 0.03,
        facts: vec![("Server CPU".into(), "1.15 s (0.12 cores)".into())],
        samples: (1..=10).map(sample).collect(),
        cooldown: (0..=30).map(sample).collect(),
    }
}

/// A report in which every field is filled.
pub(crate) fn report() -> Report {
    Report::of(&asked_openly(), &outcome_openly(), Some(server()))
}

fn series(times: impl IntoIterator<Item = u64>) -> Series {
    let mut series = Series::default();
    times.into_iter().for_each(|us| series.record(us));
    series
}
