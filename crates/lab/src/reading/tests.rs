//! Experiments as text: what is read, and what is told of mistakes.

use std::path::Path;

use super::super::model::*;
use super::*;

const SMALL: &str = r#"
title = "Small"
question = "How fast?"
[[variants]]
name = "one"
needs = "nginx"
command = ["@program@", "-p", "@home@"]
[[variants]]
name = "two"
command = ["/bin/true"]
[[rows]]
name = "root"
path = "/"
"#;

fn good(text: &str) -> Experiment {
    check(Path::new("lab/x.toml"), text.to_owned()).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(text: &str) -> Vec<String> {
    let problems = check(Path::new("lab/x.toml"), text.to_owned()).expect_err("mistakes");
    let text = problems.to_string();
    let line = |line: &str| line.trim_start_matches("lab/x.toml:").to_owned();
    text.lines().map(line).collect()
}

#[test]
fn what_is_left_out_has_defaults() {
    let experiment = good(SMALL);
    assert_eq!(experiment.name, "x");
    assert_eq!(experiment.variants[0].cores, [0]);
    assert_eq!(experiment.variants[0].ready, Ready::Port);
    let row = &experiment.rows[0];
    assert_eq!(row.variants, [0, 1]);
    assert_eq!(row.figures, ["per_cpu_second"]);
    assert_eq!(row.control, Control::Again);
    assert_eq!(row.load, Load::default());
    assert!(row.alike.status && row.alike.body && row.targets.is_empty());
}

#[test]
fn a_row_changes_what_it_names_of_the_load() {
    let text = format!(
        "{SMALL}load = {{ rate = {{ share = 0.5 }}, connections = 8 }}\n[load]\nconnections = 4\nblocks = 3\n"
    );
    let load = &good(&text).rows[0].load;
    assert_eq!((load.connections, load.blocks), (8, 3));
    assert_eq!(load.rate, Rate::Share(0.5));
}

#[test]
fn targets_and_reported_figures_name_their_variants() {
    let text = format!(
        "{SMALL}reported = {{ two = 91.38 }}\ntargets = [{{ than = \"two\", at_least = 1.1 }}, {{ of = \"p99_us\", than = \"best\", at_most = 1.1 }}]\n"
    );
    let row = &good(&text).rows[0];
    assert_eq!(row.reported[0].variant.as_deref(), Some("two"));
    assert_eq!(row.targets[0].of, "per_cpu_second");
    assert_eq!(row.targets[0].variant, "one");
    assert_eq!(row.targets[1].than, Some(Than::Best));
}

#[test]
fn targets_may_lean_on_another_row() {
    let target = |text: &str| format!("{SMALL}targets = [{{ {text} }}]\n");
    let row = &good(&target("row = \"root\", more_at_most = 50000")).rows[0];
    assert_eq!(row.targets[0].than, Some(Than::Row("root".into())));
    assert_eq!(row.targets[0].more_at_most, Some(50_000.0));
    for (text, told) in [
        (
            "row = \"rot\", at_most = 1",
            "no row is called `rot`; did you mean `root`?",
        ),
        (
            "row = \"root\", than = \"two\", at_most = 1",
            "one of them is enough",
        ),
        ("more_at_most = 1", "`more_at_most` needs `row`"),
        (
            "than = \"two\", at_most = 1, more_at_most = 1",
            "no other bound beside it",
        ),
    ] {
        let problems = problems(&target(text));
        assert!(problems[0].contains(told), "{text}: {problems:?}");
    }
}

#[test]
fn measures_are_told_apart() {
    let row = |more: &str| good(&SMALL.replace("path = \"/\"\n", more)).rows[0].clone();
    let Measure::Load(asks) = row(
        "requests = [{ path = \"/a\", weight = 9, tenant = \"big\" }, { path = \"/b\", method = \"POST\", body = { bytes = 3 } }]\n",
    )
    .measure
    else {
        panic!("a load");
    };
    assert_eq!(
        (asks[0].weight, asks[0].tenant.as_deref()),
        (9, Some("big"))
    );
    assert_eq!(
        (asks[1].label.as_str(), asks[1].body.as_slice()),
        ("/b", &b"xxx"[..])
    );
    let held = row("path = \"/\"\nhold = 100\n");
    assert!(matches!(
        held.measure,
        Measure::Hold {
            connections: 100,
            ..
        }
    ));
    assert_eq!((held.figures[0].as_str(), held.fresh), ("bytes_each", true));
    let said = row("command = \"measure.sh\"\nfigures = [\"check_ms\"]\n");
    assert!(matches!(said.measure, Measure::Command { .. }));
    assert_eq!(said.control, Control::None);
}

#[test]
fn one_entry_stands_for_several_requests() {
    let requests = "requests = [{ path = \"/@n@\", headers = { Host = \"t@n@.lab\" }, tenant = \"t@n@\", share = 2, repeat = 3 }, { path = \"/\" }]\n";
    let row = good(&SMALL.replace("path = \"/\"\n", requests)).rows[0].clone();
    let Measure::Load(asks) = row.measure else {
        panic!("a load");
    };
    let paths: Vec<&str> = asks.iter().map(|ask| ask.path.as_str()).collect();
    assert_eq!(paths, ["/0", "/1", "/2", "/"]);
    assert_eq!(asks[2].headers, [("Host".to_owned(), "t2.lab".to_owned())]);
    assert_eq!((asks[1].tenant.as_deref(), asks[1].share), (Some("t1"), 2));
    assert_eq!((asks[3].tenant.as_deref(), asks[3].share), (None, 1));
    let many = requests.replace("repeat = 3", "repeat = 1000");
    let told = problems(&SMALL.replace("path = \"/\"\n", &many));
    assert!(told[0].contains("more than 1000 requests"), "{told:?}");
}

#[test]
fn a_deadline_and_bursts_are_part_of_the_load() {
    let more = "load = { rate = 300, arrivals = \"bursts\", deadline_ms = 500 }\n";
    let load = good(&format!("{SMALL}{more}")).rows[0].load.clone();
    assert_eq!(load.arrivals, Arrivals::Bursts);
    assert_eq!(load.deadline, Some(std::time::Duration::from_millis(500)));
    let words = super::super::generator::words(&load);
    assert!(
        words.ends_with(", 300 requests a second in bursts, good within 500 ms"),
        "{words}"
    );
}

#[test]
fn windows_lie_within_the_slice_and_clients_have_patience() {
    let with = |windows: &str| {
        let load = format!("load = {{ seconds = 90, windows = {{ {windows} }} }}");
        let asks = "requests = [{ path = \"/\", patience_ms = 300 }]";
        let row = format!("[[rows]]\nname = \"parts\"\n{asks}\n{load}\n");
        format!("{SMALL}\n{row}")
    };
    let experiment = good(&with("halved = [40, 60], restored = [70, 90]"));
    let row = experiment.rows.last().expect("a row");
    let windows = &row.load.windows;
    assert_eq!(windows.len(), 2);
    assert_eq!((windows[1].from, windows[1].until), (70.0, 90.0));
    let super::super::model::Measure::Load(asks) = &row.measure else {
        panic!("{:?}", row.measure);
    };
    assert_eq!(
        asks[0].patience,
        Some(std::time::Duration::from_millis(300))
    );
    for wrong in ["a = [60, 40]", "a = [80, 91]", "a = [1]", "a = [1, 2, 3]"] {
        let told = problems(&with(wrong));
        assert!(told[0].contains("`a` is [from, until]"), "{told:?}");
    }
}

#[test]
fn all_problems_are_told_at_once_with_their_lines() {
    let text = r#"title = 3
questoin = "?"
[load]
conections = 5
blocks = 0
[backends.php]
needs = "php-fpm"
[[variants]]
name = "a"
command = ["@program@"]
[[variants]]
name = "a"
nagaya = "no-such-file.toml"
backends = ["phq"]
[[rows]]
name = "r"
path = "nothing"
variants = ["b"]
read = ["memery"]
targets = [{ than = "c" }]
"#;
    let told = problems(text);
    let expected = [
        "1: `question` is missing in the file",
        "1: `title` has to be a text in quotes",
        "2: unknown key `questoin` in the file; did you mean `question`?",
        "4: unknown key `conections` in [load]; did you mean `connections`?",
        "5: `blocks` has to be a whole number from 1 to 1000",
        "6: `command` is missing in [backends.php]",
        "10: `@program@` is the first of `needs`, which is missing",
        "11: two variants are called `a`",
        "13: `nagaya`: there is no file lab/no-such-file.toml",
        "14: no back end is called `phq`; did you mean `php`?",
        "17: `path` begins with a slash",
        "18: no variant is called `b`",
        "19: `read` is `memery`; it may be `memory`",
        "20: a target has `at_least` or `at_most`",
        "20: no variant of the row is called `c`",
    ];
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\nis not\n{expected}");
    }
    assert_eq!(told.len(), expected.len(), "{told:#?}");
}

#[test]
fn files_stay_below_the_site() {
    let text = |line: &str| SMALL.replace("[[rows]]", &format!("[files]\n{line}\n[[rows]]"));
    let told = problems(&text("\"../../etc/passwd\" = \"x\""));
    assert!(told[0].contains("without `..`"), "{told:?}");
    let experiment = good(&text(
        "\"inc/@n@.php\" = { text = \"<?php\", repeat = 100 }",
    ));
    assert_eq!(experiment.files[0].repeat, 100);
    let told = problems(&text("\"a\" = { text = \"x\", bytes = 3 }"));
    assert!(told[0].contains("takes one of"), "{told:?}");
}

#[test]
fn an_experiment_is_called_as_its_file_or_directory() {
    assert_eq!(name_of(Path::new("lab/respond.toml")), "respond");
    assert_eq!(
        name_of(Path::new("lab/rule-cost/experiment.toml")),
        "rule-cost"
    );
}

#[test]
fn the_experiments_of_this_repository_are_well() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
    let files = super::super::find::files_in(&lab);
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        read(&file).unwrap_or_else(|problems| panic!("{problems}"));
    }
}
