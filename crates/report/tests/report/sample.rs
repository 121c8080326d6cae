//! A report with everything in it, and with what may come from outside at its worst.

use report::units::Unit;
use report::{
    Along, Bar, BarGroup, Bars, Cell, Column, Document, Event, Line, Lines, Marker, Panel,
    QuantileSeries, Quantiles, Section, Table, Tone,
};

/// Text that would run, were it not escaped.
pub(crate) const HOSTILE: &str =
    "</text></svg></style><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&";

/// What an ordinary run looks like.
pub(crate) fn ordinary() -> Document {
    let mut document = Document::new(
        "A static page, a PHP page, and one that writes",
        "How many requests does a second of the server's CPU time serve, and what do the programs behind it hold in memory?",
    );
    document.answer = Some((
        Tone::Good,
        "nagaya serves the static page with 1.53 × nginx's requests per CPU second (1.34 – 1.99); behind PHP the two are the same within ±1 %.".to_owned(),
    ));
    document.fact(
        "Servers",
        "nagaya 0.1.0, nginx 1.22.1, HAProxy 2.6.12, Apache 2.4.62",
    );
    document.fact("Machine", "AMD EPYC, 2 cores, Linux 6.18");
    document.fact("Load", "64 connections, kept alive, 20 blocks of 2 s");
    document.fact(
        "Noise",
        "A/A control 1.00 × (0.99 – 1.01); 1 of 80 slices voided",
    );
    document.fact("Command", "`nagaya-lab run static-and-php`");
    throughput(document.section("Requests per CPU second"));
    over_time(document.section("Over time"));
    curves(document.section("Response times"));
    let section = document.section("Against the report");
    section.text("The field report gives 5391 requests per second for the static page, 2020 for the PHP page and 91.38 for the one that writes, each from one run.");
    section.note(
        Tone::Warn,
        "nginx was measured without `sendfile`: the report does not say whether theirs had it.",
    );
    section.note(
        Tone::Bad,
        "2 of 80 slices had refused connections and were voided.",
    );
    section.chart(reported());
    section.listing("nagaya.toml", "[[sites]]\nhosts = [\"demo.example\"]\n\n[[sites.rules]]\npath = \"/\"\nfiles = \"/srv/site\"\n");
    document
}

fn throughput(section: &mut Section) {
    section.text("The figure is the median of the blocks, a ratio is ours over theirs, block by block, with its 95 % interval.");
    let mut table = Table::new([
        Column::left("work"),
        Column::left("server"),
        Column::right("req/CPU-s"),
        Column::right("ours ÷ theirs"),
        Column::left("wanted"),
        Column::right("req/s"),
        Column::right("p50"),
        Column::right("p99"),
    ]);
    for (work, server, figure, ratio, wanted, tone) in [
        ("static page", "nagaya", "115,000", "", "", Tone::Plain),
        (
            "static page",
            "nginx",
            "70,200",
            "1.53 (1.34 – 1.99)",
            "✓ ≥ 1.30",
            Tone::Good,
        ),
        (
            "static page",
            "Apache",
            "31,800",
            "3.62 (3.40 – 3.81)",
            "",
            Tone::Plain,
        ),
        ("PHP page", "nagaya", "2,710", "", "", Tone::Plain),
        (
            "PHP page",
            "nginx",
            "2,700",
            "1.00 (0.99 – 1.01)",
            "✗ ≥ 1.05",
            Tone::Bad,
        ),
    ] {
        let cells = [work, server, figure, ratio].map(Cell::from);
        let rest = ["106,000", "330 µs", "719 µs"].map(Cell::from);
        let wanted = [Cell::toned(tone, wanted)];
        table.row(cells.into_iter().chain(wanted).chain(rest));
    }
    section.table(table);
    figures(section);
}

fn figures(section: &mut Section) {
    section.chart(Bars {
        title: "Requests per second of server CPU time".to_owned(),
        caption: "More is better. Median of 20 blocks with its 95 % interval.".to_owned(),
        unit: Unit::Count,
        groups: vec![
            group(
                "static page, 14 bytes",
                &[
                    ("nagaya", 115_000.0),
                    ("nginx", 70_200.0),
                    ("h2o", 107_000.0),
                    ("Apache", 31_800.0),
                ],
            ),
            group(
                "static page, 10 KiB",
                &[
                    ("nagaya", 90_300.0),
                    ("nginx", 71_700.0),
                    ("h2o", 79_700.0),
                    ("Apache", 29_100.0),
                ],
            ),
            group(
                "reverse proxy, 13 bytes",
                &[
                    ("nagaya", 51_300.0),
                    ("nginx", 45_400.0),
                    ("HAProxy", 41_800.0),
                    ("h2o", 40_900.0),
                ],
            ),
        ],
        reference: None,
    });
    section.chart(Bars {
        title: "nagaya's figure over the others'".to_owned(),
        caption: "Above 1 nagaya is ahead.".to_owned(),
        unit: Unit::Ratio,
        groups: vec![BarGroup {
            label: String::new(),
            bars: [
                ("nagaya (control)", 1.0, 0.99, 1.01),
                ("nginx", 1.53, 1.34, 1.99),
                ("HAProxy", 1.16, 1.04, 1.27),
            ]
            .map(|(name, value, low, high)| Bar {
                name: name.to_owned(),
                value,
                interval: Some((low, high)),
                reported: None,
            })
            .to_vec(),
            marker: None,
        }],
        reference: Some(Marker {
            value: 1.0,
            label: "the same".to_owned(),
        }),
    });
}

fn group(label: &str, bars: &[(&str, f64)]) -> BarGroup {
    BarGroup {
        label: label.to_owned(),
        bars: bars
            .iter()
            .map(|(name, value)| Bar {
                name: (*name).to_owned(),
                value: *value,
                interval: Some((value * 0.96, value * 1.05)),
                reported: None,
            })
            .collect(),
        marker: None,
    }
}

fn reported() -> Bars {
    let row = |label: &str, reported: f64, bars: &[(&str, f64)]| BarGroup {
        marker: Some(Marker {
            value: reported,
            label: "reported".to_owned(),
        }),
        ..group(label, bars)
    };
    let mut groups = vec![
        row(
            "static page",
            5391.22,
            &[("nagaya", 106_000.0), ("Apache", 21_500.0)],
        ),
        row(
            "PHP page",
            2020.37,
            &[("nagaya", 2_710.0), ("Apache", 2_640.0)],
        ),
        row(
            "PHP page that writes",
            91.38,
            &[("nagaya", 143.0), ("Apache", 131.0)],
        ),
    ];
    groups[2].bars[1].reported = Some(91.38);
    Bars {
        title: "Requests per second, beside the report's".to_owned(),
        caption: String::new(),
        unit: Unit::PerSecond,
        groups,
        reference: None,
    }
}

/// A wave with a little noise that is the same every time.
fn wave(count: usize, seconds: f64, middle: f64, swing: f64) -> Vec<(f64, f64)> {
    let mut state = 12_345u64;
    (0..count)
        .map(|index| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let noise = (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
            let at = seconds * index as f64 / count as f64;
            (at, middle + swing * ((at / 3.0).sin() * 0.4 + noise))
        })
        .collect()
}

fn over_time(section: &mut Section) {
    let line = |name: &str, points: Vec<(f64, f64)>| Line {
        name: name.to_owned(),
        points,
    };
    section.chart(Lines {
        title: "The load, second by second".to_owned(),
        caption: "Every tenth of a second; the warm-up is left out of all figures.".to_owned(),
        along: Along::Time,
        panels: vec![
            Panel {
                title: "Replies per second".to_owned(),
                unit: Unit::PerSecond,
                lines: vec![line("", wave(300, 30.0, 104_000.0, 9_000.0))],
            },
            Panel {
                title: "Response time".to_owned(),
                unit: Unit::Micros,
                lines: vec![
                    line("p50", wave(300, 30.0, 330.0, 30.0)),
                    line("p99", wave(300, 30.0, 719.0, 300.0)),
                ],
            },
        ],
        events: vec![Event {
            at: 3.2,
            label: "warm-up ends".to_owned(),
        }],
    });
    let memory = wave(1800, 90.0, 410.0 * 1048576.0, 6.0 * 1048576.0);
    section.chart(Lines {
        title: "What the server's processes used".to_owned(),
        caption: "From the process tree of the server; memory is the proportional share."
            .to_owned(),
        along: Along::Time,
        panels: vec![
            Panel {
                title: "Cores used".to_owned(),
                unit: Unit::Cores,
                lines: vec![
                    line("nagaya", wave(180, 90.0, 0.9, 0.1)),
                    line("php-fpm", wave(180, 90.0, 0.5, 0.2)),
                    line("sqlite", wave(180, 90.0, 0.2, 0.1)),
                    line("kernel", wave(180, 90.0, 0.07, 0.05)),
                ],
            },
            Panel {
                title: "Memory".to_owned(),
                unit: Unit::Bytes,
                lines: vec![
                    line("with its programs", memory),
                    line("the server alone", wave(180, 90.0, 38.0 * 1048576.0, 1e6)),
                ],
            },
        ],
        events: vec![Event {
            at: 60.0,
            label: "the load ends".to_owned(),
        }],
    });
}

fn curves(section: &mut Section) {
    let curve = |name: &str, base: f64, tail: f64| QuantileSeries {
        name: name.to_owned(),
        points: (0..=96)
            .map(|step| {
                let depth = f64::from(step) / 24.0;
                (
                    1.0 - 10f64.powf(-depth),
                    base * (1.0 + depth * 0.35) + tail * depth.powi(3),
                )
            })
            .collect(),
    };
    section.chart(Quantiles {
        title: "Response time by percentile".to_owned(),
        caption: "At half of the slowest server's rate; from the instant a request was due."
            .to_owned(),
        series: vec![
            curve("nagaya", 112.0, 60.0),
            curve("nginx", 89.0, 95.0),
            curve("HAProxy", 153.0, 160.0),
            curve("h2o", 131.0, 70.0),
        ],
    });
}

/// What may come from outside: no numbers, huge ones, names of any length and content.
pub(crate) fn worst() -> Document {
    let mut document = Document::new(HOSTILE, HOSTILE);
    document.answer = Some((Tone::Bad, HOSTILE.to_owned()));
    document.fact(HOSTILE, HOSTILE);
    for index in 0..3 {
        document.section(format!("{index} {HOSTILE}")).text(HOSTILE);
    }
    let section = document.section("Tables and listings");
    section.note(Tone::Warn, HOSTILE);
    section.listing(HOSTILE, HOSTILE);
    let mut table = Table::new([Column::left(HOSTILE), Column::right("figure")]);
    table.row([HOSTILE, HOSTILE]);
    table.row(["short row"]);
    section.table(table);
    hostile_bars(document.section("Bars"));
    hostile_lines(document.section("Lines"));
    document
}

fn hostile_bars(section: &mut Section) {
    let bars = |title: &str, groups| Bars {
        title: title.to_owned(),
        unit: Unit::Count,
        groups,
        ..Bars::default()
    };
    section.chart(bars("No bars", Vec::new()));
    section.chart(bars(
        "No numbers",
        vec![group("x", &[("a", f64::NAN), ("b", f64::INFINITY)])],
    ));
    section.chart(bars("One", vec![group("", &[("alone", 3.0)])]));
    section.chart(bars(
        "All zero",
        vec![group("", &[("nil", 0.0), ("nought", 0.0)])],
    ));
    section.chart(bars(
        "Huge and tiny",
        vec![group(
            "g",
            &[
                ("huge", 1e300),
                ("tiny", 1e-300),
                ("none", f64::NAN),
                ("negative", -1e9),
            ],
        )],
    ));
    let many: Vec<(String, f64)> = (0..40)
        .map(|index| {
            (
                format!("server {index} with a rather long name {HOSTILE}"),
                f64::from(index + 1) * 1000.0,
            )
        })
        .collect();
    let many: Vec<(&str, f64)> = many
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    section.chart(bars(HOSTILE, vec![group(HOSTILE, &many)]));
    let mut wide = group("wide interval", &[("a", 10.0), ("b", 12.0)]);
    wide.bars[0].interval = Some((f64::NEG_INFINITY, 1e12));
    wide.bars[1].interval = Some((1.0, 1e12));
    wide.marker = Some(Marker {
        value: f64::NAN,
        label: HOSTILE.to_owned(),
    });
    section.chart(bars("Intervals", vec![wide]));
}

fn hostile_lines(section: &mut Section) {
    let line = |points: Vec<(f64, f64)>| Line {
        name: HOSTILE.to_owned(),
        points,
    };
    let panel = |lines| Panel {
        title: HOSTILE.to_owned(),
        unit: Unit::Bytes,
        lines,
    };
    let lines = |title: &str, panels| Lines {
        title: title.to_owned(),
        panels,
        ..Lines::default()
    };
    section.chart(lines("No panels", Vec::new()));
    section.chart(lines("No points", vec![panel(vec![line(Vec::new())])]));
    section.chart(lines(
        "One point beside none",
        vec![
            panel(vec![line(vec![(1.0, 5.0)])]),
            panel(vec![line(vec![(f64::NAN, 1.0), (2.0, f64::NAN)])]),
        ],
    ));
    let gaps = vec![
        (0.0, 1.0),
        (1.0, f64::NAN),
        (2.0, 3e9),
        (3.0, 2e9),
        (f64::INFINITY, 1.0),
        (1.5, -4e9),
    ];
    let long: Vec<(f64, f64)> = (0..50_000)
        .map(|index| (f64::from(index), f64::from(index % 977) * 1e6))
        .collect();
    let mut chart = lines(
        HOSTILE,
        vec![panel(vec![
            line(gaps),
            line(long.clone()),
            line(long.clone()),
            line(long.clone()),
            line(long),
        ])],
    );
    chart.events = (0..30)
        .map(|index| Event {
            at: f64::from(index) * 3.0e3,
            label: HOSTILE.to_owned(),
        })
        .collect();
    section.chart(chart);
    let curve = |points| QuantileSeries {
        name: HOSTILE.to_owned(),
        points,
    };
    section.chart(Quantiles {
        title: "No curve".to_owned(),
        caption: HOSTILE.to_owned(),
        series: vec![curve(vec![(1.0, 5.0), (2.0, 5.0), (0.5, f64::NAN)])],
    });
    section.chart(Quantiles {
        title: "Odd curves".to_owned(),
        caption: String::new(),
        series: vec![
            curve(vec![(0.5, 0.0), (0.9, 1e300), (0.99, 3.0)]),
            curve(vec![(0.0, 7.0)]),
        ],
    });
}
