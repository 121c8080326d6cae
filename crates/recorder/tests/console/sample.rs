//! A machine with sites of two tenants, as it might be, and as whoever means harm would have it.

use control::{
    Certificate, Concurrent, Directory, Group, Key, Limit, Named, Pool, PoolStanding,
    RefusedReload, Replies, RequestClass, Sensor, Sensors, ShedRule, Site, SlowQuestion, Snapshot,
    Status, TenantNow, Upstream, Worker,
};
use ipc::console::{HeldPlace, Incident, IncidentKind, RequestInFlight, RequestState, TenantSites};
use ipc::limit_figures::LimitCount;
use ipc::recorder::{AlertRule, Side};
use recorder::{
    AlertStanding, AlertState, FigureStore, KeptIncident, ListOf, Piece, Sample, Sums, Tally,
};
use testkit::TempDir;

/// 2026-11-27.
pub(crate) const TODAY: i32 = 20_784;
pub(crate) const VISITOR: u64 = 0xabcd_0000_0007;

/// What somebody may call anything.
pub(crate) type Naming = fn(&str) -> String;

/// As people do.
pub(crate) fn plainly(name: &str) -> String {
    name.to_owned()
}

/// With everything in it that has a meaning somewhere.
pub(crate) fn hostilely(name: &str) -> String {
    format!(
        "{name}<script>alert(1)</script>\"><img src=x onerror=alert(1)>'`a`{{{{7*7}}}}\u{1b}[31m\0\u{202e}\u{2066}&amp;=1{}",
        "w".repeat(60)
    )
}

/// Figures of four weeks.
pub(crate) fn store(sites: &[&str], name: Naming) -> (TempDir, FigureStore) {
    let directory = TempDir::new();
    let (mut store, _) = FigureStore::open(directory.path(), 0).unwrap();
    for day in TODAY - 34..=TODAY {
        let pieces: Vec<_> = (0..sites.len())
            .map(|site| piece(site, day, name))
            .collect();
        let pieces = sites
            .iter()
            .zip(&pieces)
            .map(|(site, piece)| (*site, day, piece));
        store.write(pieces, None, day).unwrap();
        store.settle(TODAY).unwrap();
    }
    store.write_samples(&samples(name)).unwrap();
    let owners = sites.iter().map(|site| {
        let tenant = site.split('.').next().unwrap_or_default();
        (tenant.to_owned(), (*site).to_owned())
    });
    let owners: Vec<_> = owners.collect();
    let incidents = owners
        .iter()
        .map(|(tenant, _)| incident(tenant, &owners, name));
    store
        .write_incidents(&incidents.collect::<Vec<_>>())
        .unwrap();
    (directory, store)
}

/// Minutes of two days.
fn samples(name: Naming) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (minute, value) in (0..96).zip([0.25, 0.75].into_iter().cycle()) {
        let at_s = i64::from(TODAY - 1) * 86_400 + minute * 1_800;
        let of_limits = ["tea", "other"].into_iter().flat_map(|tenant| {
            let key = name("/srv/index.php");
            let reason = name("limit_queue_full");
            let counts = [
                LimitCount::Waited,
                LimitCount::Refused(&reason),
                LimitCount::Key(&key),
            ];
            counts.map(|count| count.name(&format!("tenant {tenant}/tenant")))
        });
        let of_tenants = ["tenant.tea.cpu", "tenant.other.cpu", "tenant.tea.memory"];
        let figures = of_tenants.into_iter().map(String::from).chain(of_limits);
        for of in figures.chain([name("cpu_pressure")]) {
            samples.push(Sample {
                name: of.into(),
                at_s,
                sums: Sums::of(value),
            });
        }
    }
    samples
}

const LISTED: [(ListOf, &[&str]); 20] = [
    (
        ListOf::Pages,
        &[
            "/",
            "/menu",
            "/menu/tea",
            "/menu/coffee",
            "/access",
            "/blog/2026/11/autumn-leaves",
            "/予約",
            "/contact",
            "/news",
        ],
    ),
    (
        ListOf::Entries,
        &["/", "/menu", "/blog/2026/11/autumn-leaves", "/access"],
    ),
    (ListOf::Exits, &["/access", "/", "/contact", "/menu/tea"]),
    (
        ListOf::NextPages,
        &[
            "/ → /menu",
            "/menu → /menu/tea",
            "/menu → /menu/coffee",
            "/menu/tea → /access",
        ],
    ),
    (
        ListOf::Referrers,
        &["(none)", "Google", "Instagram", "Yahoo! JAPAN", "Bing"],
    ),
    (
        ListOf::ReferringPages,
        &[
            "https://www.instagram.com/",
            "https://tabelog.example/kyoto/12345",
        ],
    ),
    (
        ListOf::Campaigns,
        &["newsletter / email / autumn", "line / social / opening"],
    ),
    (ListOf::Searches, &["matcha", "opening hours", "駐車場"]),
    (
        ListOf::Browsers,
        &["Chrome 142", "Safari 26", "Edge 142", "Firefox 145"],
    ),
    (ListOf::Systems, &["iOS", "Windows 10", "Android", "macOS"]),
    (
        ListOf::Devices,
        &["smartphone", "pc", "mobilephone, docomo"],
    ),
    (ListOf::Countries, &["JP", "US", "TW", "FR"]),
    (
        ListOf::Bots,
        &["GPTBot", "Googlebot", "ClaudeBot", "bingbot", "AhrefsBot"],
    ),
    (
        ListOf::Files,
        &["/style.css", "/images/shop.webp", "/app.js", "/favicon.ico"],
    ),
    (
        ListOf::Missing,
        &["/wp-login.php", "/.env", "/old/menu.html"],
    ),
    (
        ListOf::Errors,
        &["502 /reserve", "500 /blog/search", "504 /reserve"],
    ),
    (
        ListOf::Statuses,
        &["200", "304", "404", "301", "502", "429"],
    ),
    (ListOf::Rules, &["/reserve/*", "*.cgi"]),
    (ListOf::BackEnds, &["127.0.0.1:9000"]),
    (ListOf::Programs, &["*.cgi"]),
];

/// A day of a site: busy by day, quiet at night, and more at weekends.
fn piece(site: usize, day: i32, name: Naming) -> Piece {
    let mut piece = Piece::default();
    let weight = [9, 4, 2, 1].get(site).copied().unwrap_or(1);
    let weekend = if (day + 3) % 7 >= 5 { 3 } else { 2 };
    let odd = u64::from((day.unsigned_abs() * 7919 + site as u32 * 31) % 13);
    for minute in (0..1_440_u16).step_by(20) {
        let hour = f64::from(minute) / 60.0;
        let share = (1.0 - ((hour - 14.0) / 10.0).powi(2)).max(0.05);
        let views = (share * f64::from(weight * weekend * 2)) as u64 + odd % 3;
        let figures = piece.minute(minute);
        figures.views = views;
        figures.visits = views.div_ceil(3);
        figures.bounces = i64::try_from(figures.visits / 2).unwrap();
        figures.visit_s = figures.visits * (60 + odd * 9);
        figures.requests = views * 7 + 3;
        figures.bots = views + 2;
        figures.bytes = views * 61_000;
        figures.statuses = [
            0,
            views * 6,
            views / 2,
            views / 3 + 1,
            u64::from(odd == 4) * views / 4,
        ];
        figures.queue_us = views * 300;
        figures.upstream_us = views * 18_000;
        figures.handshakes = views;
        for request in 0..=views {
            figures
                .durations
                .add(900 + request * request * 310 + odd * 400, 3);
        }
    }
    for (of, names) in LISTED {
        for (rank, each) in names.iter().enumerate() {
            let count = i64::from(weight) * 60 / (rank as i64 + 1) + odd as i64;
            let tally = Tally {
                count,
                bytes: count.unsigned_abs() * 20_000,
                us: count.unsigned_abs() * (3_000 + rank as u64 * 14_000),
                timed: count.unsigned_abs(),
            };
            let each = name(each);
            piece.add(of, rank as u64, &tally, || each.into());
        }
    }
    let pages = LISTED[0].1;
    for visitor in 0..40 + odd {
        for step in 0..1 + visitor % 6 {
            let page = name(pages[(visitor + step) as usize % pages.len()]);
            let second = (32_000 + visitor * 900 + step * 47) as u32;
            piece.step(VISITOR + visitor, second, &page.into());
        }
    }
    piece
}

/// What a server says, with names for owners of everything.
pub(crate) struct Said {
    pub(crate) now: Snapshot,
    pub(crate) before: Status,
    pub(crate) alerts: Vec<AlertStanding>,
    pub(crate) owners: Vec<TenantSites>,
}

impl Said {
    pub(crate) fn live(&self) -> recorder::Live<'_> {
        recorder::Live {
            now: &self.now,
            before: Some((&self.before, 1.0)),
            alerts: &self.alerts,
            owners: &self.owners,
        }
    }
}

/// Of each tenant with its site a bit of everything.
pub(crate) fn said(owners: &[(&str, &str)], name: Naming) -> Said {
    let status = status(owners, name);
    let mut before = status.clone();
    for site in &mut before.sites {
        site.replies.by_class[1] -= 40;
    }
    before.workers[0].ended -= 120;
    before.time.total.counts = vec![0; 4];
    let each = |(tenant, site): &(&str, &str)| (tenant.to_string(), site.to_string());
    let owners: Vec<(String, String)> = owners.iter().map(each).collect();
    Said {
        now: Snapshot {
            status,
            sensors: sensors(name),
            keys: owners.iter().map(|(tenant, _)| key(tenant, name)).collect(),
            tenants: owners
                .iter()
                .map(|(tenant, _)| tenant_now(tenant))
                .collect(),
            pools: owners
                .iter()
                .map(|(tenant, _)| pool(tenant, name))
                .collect(),
            certificates: owners
                .iter()
                .map(|(tenant, site)| certificate(tenant, site, name))
                .collect(),
            looked_at: Vec::new(),
        },
        before,
        owners: owners
            .iter()
            .map(|(tenant, site)| TenantSites {
                tenant: tenant.clone(),
                sites: vec![site.clone()],
            })
            .collect(),
        alerts: vec![AlertStanding {
            rule: rule(name),
            state: AlertState::Raised {
                since_s: 1_795_771_000,
                worst: 0.93,
            },
            value: Some(0.91),
        }],
    }
}

fn status(owners: &[(&str, &str)], name: Naming) -> Status {
    let mut status = Status {
        version: "0.1.0".into(),
        uptime_s: 86_400 * 3,
        reload_refused: Some(RefusedReload {
            at: "2026-11-27T09:12:00Z".into(),
            outcome: "wrong".into(),
            problem: name("sites.d/a.toml:12: unknown key `hots`"),
        }),
        workers: vec![
            Worker {
                connections: 310,
                in_flight: 12,
                ended: 1_204_334,
                ..Worker::default()
            },
            Worker {
                connections: 288,
                in_flight: 9,
                ended: 1_199_001,
                ..Worker::default()
            },
        ],
        loop_lag_s: vec![Some(0.0004), Some(0.0011)],
        ..Status::default()
    };
    status.time.bounds_us = vec![1_000, 10_000, 100_000];
    status.time.total.counts = vec![800, 300, 40, 3];
    behind(&mut status, name);
    owned(&mut status, owners, name);
    status
}

fn behind(status: &mut Status, name: Naming) {
    status.upstreams = vec![
        Upstream {
            upstream: name("app"),
            server: name("127.0.0.1:9000"),
            requests: 88_000,
            in_flight: 4,
            workers: 2,
            ..Upstream::default()
        },
        Upstream {
            upstream: name("app"),
            server: name("127.0.0.1:9001"),
            requests: 41_000,
            failures: 32,
            timeouts: 3,
            workers: 2,
            workers_out: 2,
            ..Upstream::default()
        },
    ];
    status.directories = vec![
        Directory {
            directory: name("customers"),
            linked: true,
            answers: Some(true),
            answered_s: Some(2.0),
            hosts: 12_000,
            bytes: 9_000_000,
            fresh: 990,
            waited: 10,
            snapshot_rows: 15_000,
            slowest: vec![SlowQuestion {
                host: name("slow.example"),
                us: 81_000,
            }],
            ..Directory::default()
        },
        Directory {
            directory: name("partners"),
            linked: true,
            answers: Some(false),
            error: Some(name("connection refused")),
            error_s: Some(7.0),
            gave_up: 3,
            ..Directory::default()
        },
    ];
    status.shedding = vec![ShedRule {
        rule: name("cpu"),
        sensor: name("cpu_pressure"),
        enter: 0.6,
        leave: 0.4,
        state: "yellow".into(),
        admitted_share: 0.8,
        mode: "enforce".into(),
        shed: 812,
        value: Some(0.66),
        ..ShedRule::default()
    }];
}

fn owned(status: &mut Status, owners: &[(&str, &str)], name: Naming) {
    for (tenant, site) in owners {
        status.sites.push(Site {
            site: (*site).into(),
            replies: Replies {
                by_class: [0, 90_000, 2_000, 700, 12],
                bytes_out: 9_000_000_000,
                ..Replies::default()
            },
        });
        status
            .limits
            .push(limit(&format!("tenant {tenant}/tenant")));
        status
            .limits
            .push(limit(&format!("site {site}/{}", name("client"))));
        status.classes.push(RequestClass {
            tenant: (*tenant).into(),
            class: name("crawlers"),
            waited: 320,
            waited_us: 9_000_000,
            refused: 7,
        });
        status.groups.push(Group {
            tenant: (*tenant).into(),
            site: Some((*site).into()),
            script: Some(name("x")),
            used: [
                ("cpu_us", 93_000_000_u64),
                ("memory_bytes", 210 << 20),
                ("pids", 5),
            ]
            .into_iter()
            .collect(),
            ..Group::default()
        });
        status.pools.push(Pool {
            name: name(site),
            tenant: (*tenant).into(),
            state: "warm".into(),
            ..Pool::default()
        });
    }
}

fn limit(id: &str) -> Limit {
    Limit {
        limit: id.into(),
        name: "tenant".into(),
        from: "/etc/nagaya/nagaya.toml:20".into(),
        mode: "enforce".into(),
        holds: true,
        has_match: false,
        on: None,
        concurrent: Some(Concurrent::Fixed(50)),
        concurrent_now: None,
        permits: Some(50),
        queue: Some(100),
        wait_ms: Some(5_000),
        late_ms: None,
        rate: Some("20/s".into()),
        burst: Some(40),
        keys: 1,
        in_flight: 9,
        in_flight_most: 9,
        queued: 2,
        admitted: 120_443,
        waited: 913,
        shadow_refused: 0,
        refused: [("limit_queue_full", 12_u64), ("limit_waited", 3)]
            .into_iter()
            .collect(),
    }
}

fn key(tenant: &str, name: Naming) -> Key {
    Key {
        limit: format!("tenant {tenant}/tenant"),
        key: name("/srv/index.php"),
        overflow: false,
        in_flight: 50,
        queued: 2,
        queue: 100,
        admitted: 99,
        waited: 12,
        refused: 3,
        shadow_refused: 0,
        concurrent: Some(50),
        oldest_ms: Some(812),
        cost_us: None,
    }
}

fn rule(name: Naming) -> AlertRule {
    AlertRule {
        name: name("busy"),
        figure: name("cpu_pressure"),
        side: Side::Above,
        bound: 0.6,
        leave: 0.4,
        for_s: 60,
    }
}

/// A limit of this tenant has refused, while all held places.
pub(crate) fn incident(tenant: &str, owners: &[(String, String)], name: Naming) -> KeptIncident {
    let held = owners.iter().map(|(tenant, _)| HeldPlace {
        limit: format!("tenant {tenant}"),
        key: name("/held"),
        in_flight: 2,
        queued: 1,
    });
    let requests = owners.iter().map(|(_, site)| RequestInFlight {
        site: site.clone(),
        path: name("/slow.php"),
        age_ms: 4_200,
        state: RequestState::Answering,
    });
    KeptIncident {
        incident: Incident {
            at_s: i64::from(TODAY - 1) * 86_400 + 3_600,
            kind: IncidentKind::Limit,
            what: format!("tenant {tenant}"),
            why: "full".into(),
            times: 40,
            in_flight: 9,
            held: held.collect(),
            requests: requests.collect(),
        },
        sensors: vec![("load1".into(), [1.0, 2.5, 4.0])],
        machine: String::new(),
    }
}

fn sensors(name: Naming) -> Sensors {
    let sensor = |value, meaning: &'static str| Sensor {
        value: Some(value),
        mean_10s: Some(value * 0.9),
        too_much: Some(0.6),
        unit: "share".into(),
        meaning: meaning.into(),
        rules: vec![name("cpu")],
    };
    let sensors = [
        (
            "cpu_pressure",
            sensor(
                0.66,
                "share of 10 s in which something waited for a processor",
            ),
        ),
        (
            "memory_pressure",
            sensor(0.01, "share of 10 s in which something waited for memory"),
        ),
    ];
    let sensors: Named<Sensor> = sensors.into_iter().map(|(of, it)| (name(of), it)).collect();
    Sensors {
        sensors,
        loop_lag_s: Vec::new(),
        missing: vec![control::Missing {
            sensors: vec!["conntrack".into()],
            why: name("/proc/sys/net/netfilter is not there"),
            remedy: "load the module nf_conntrack".into(),
        }],
        advice: vec![control::Advice {
            sensor: "listen_overflows".into(),
            state: name("somaxconn is 128"),
            commands: vec![name("sysctl -w net.core.somaxconn=4096")],
            cost: "a little memory".into(),
        }],
    }
}

fn tenant_now(tenant: &str) -> TenantNow {
    TenantNow {
        tenant: tenant.into(),
        cpu_cores: Some(0.42),
        throttled_share: Some(0.11),
        memory_bytes: Some(310 << 20),
        io_bytes_per_s: Some(120_000.0),
        requests_per_s: Some(41.0),
        waiting: 3,
        refused_per_s: Some(0.4),
        handshakes_per_s: Some(2.5),
        killed_per_s: None,
    }
}

fn pool(tenant: &str, name: Naming) -> PoolStanding {
    PoolStanding {
        name: name("php"),
        tenant: tenant.into(),
        state: "failed".into(),
        processes: 4,
        memory_bytes: Some(180 << 20),
        longest_ms: Some(1_820),
        longest_script: name("/srv/index.php"),
        failure: name("php-fpm ended with 78"),
        ..PoolStanding::default()
    }
}

fn certificate(tenant: &str, site: &str, name: Naming) -> Certificate {
    Certificate {
        name: site.into(),
        // One of its other hosts, too.
        names: vec![site.into(), format!("shop.{site}")],
        tenants: vec![tenant.into()],
        source: "acme".into(),
        of: name("letsencrypt"),
        valid_until: Some("2026-12-06T00:00:00Z".into()),
        valid_s: Some(86_400 * 8),
        problem: Some(name("the last order failed: rate limited")),
        handshakes: 3_120,
        ..Certificate::default()
    }
}
