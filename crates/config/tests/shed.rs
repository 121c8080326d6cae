//! What a configuration says of shedding.

use config::model::sensor::Sensor;
use config::model::{Degrade, Mode, Model, Shed, ShedReply, ShedScope};
use config::{Sources, dump, load};

use crate::written;

const SITE: &str =
    "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\n";

fn sources(rules: &str) -> Sources {
    Sources::from_text("nagaya.toml", &format!("{SITE}{rules}"))
        .with_file("/etc/busy.svg", b"<svg/>")
}

fn rules(rules: &str) -> Vec<Shed> {
    let loaded = |sources: &Sources| -> Model {
        load(sources).unwrap_or_else(|problems| panic!("{rules}\n{problems}"))
    };
    let model = loaded(&sources(rules));
    let printed = Sources::from_text("nagaya.toml", &dump(&model));
    let printed = printed.with_file("/etc/busy.svg", b"<svg/>");
    assert_eq!(loaded(&printed), model, "{}", dump(&model));
    model.shed
}

/// The one problem of a `[[shed]]` with these lines.
fn problem(lines: &str) -> String {
    let text = format!("[[shed]]\n{lines}\n");
    let problems = load(&sources(&text)).expect_err(lines).to_string();
    assert_eq!(
        problems.matches("error: ").count(),
        1,
        "{lines}\n{problems}"
    );
    problems
}

#[test]
fn the_rule_people_know_is_a_rule() {
    let rules = rules(
        "[[shed]]\nsensor = \"load1\"\nenter = 3.0\nleave = 3.0\nscope = \"all\"\n\
         respond = { redirect = \"http://sorry.example.jp/redirect.html\" }\n",
    );
    let [rule] = &rules[..] else {
        panic!("{rules:?}");
    };
    assert_eq!(
        (rule.name.as_str(), rule.enter, rule.leave),
        ("load1", 3.0, 3.0)
    );
    assert_eq!((rule.scope, rule.dwell_ms), (ShedScope::All, 0));
    assert!(matches!(rule.respond, ShedReply::Redirect(_)));
    assert_eq!(rule.mode, Mode::Enforce);
}

#[test]
fn a_rule_may_be_tried_in_shadow() {
    let rules = rules("[[shed]]\nsensor = \"cpu_pressure\"\nmode = \"shadow\"\n");
    assert_eq!(rules[0].mode, Mode::Shadow);
}

#[test]
fn a_sensor_alone_is_a_rule_with_what_makes_sense_for_it() {
    for (sensor, enter, leave) in [
        ("cpu_pressure", 0.4, 0.24),
        ("memory_available", 0.1, 0.15),
        ("conntrack", 0.8, 0.7),
        ("loop_lag", 0.1, 0.06),
    ] {
        let rules = rules(&format!("[[shed]]\nsensor = {sensor:?}\n"));
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        let rule = &rules[0];
        assert!(
            near(rule.enter, enter) && near(rule.leave, leave),
            "{rule:?}"
        );
        assert_eq!(rule.sensor, Sensor::from_name(sensor).expect("a sensor"));
        assert_eq!((rule.scope, rule.dwell_ms), (ShedScope::OverShare, 2_000));
        assert_eq!(rule.respond, ShedReply::Whale);
    }
}

#[test]
fn rules_have_names_of_their_own() {
    let rules = rules(
        "[[shed]]\nsensor = \"cpu_pressure\"\n[[shed]]\nsensor = \"cpu_pressure\"\nenter = 0.9\n\
         [[shed]]\nsensor = \"queue_age\"\nname = \"late\"\ndegrade = [\"optional_scripts\"]\n\
         respond = { page = \"/etc/busy.svg\" }\nmatch = { path = \"/shop/*\", method = \"GET\" }\n",
    );
    let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["cpu_pressure", "cpu_pressure 2", "late"]);
    assert_eq!(rules[2].degrade, [Degrade::OptionalScripts]);
    assert_eq!(rules[2].conditions.len(), 2);
    let ShedReply::Page(page) = &rules[2].respond else {
        panic!("{:?}", rules[2].respond);
    };
    assert_eq!(page.content_type, "image/svg+xml");
}

#[test]
fn a_file_may_say_who_is_shed_and_a_host_of_its_own_where_they_go() {
    let rules = rules(
        "[maps.friends]\nfile = \"friends.txt\"\n[[shed]]\nsensor = \"loop_lag\"\n\
         match = { map = \"friends\", key = \"$client\", answered = false }\n\
         respond = { redirect = \"https://mirror.example.jp$uri\" }\n",
    );
    assert_eq!(rules[0].conditions.len(), 1);
    assert!(matches!(rules[0].respond, ShedReply::Redirect(_)));
}

#[test]
fn what_would_wait_or_lead_back_is_refused() {
    let program = "match = { not = { map = \"load\" } }\n[maps.load]\nprogram = [\"true\"]";
    let problem_of = |rest: &str| problem(&format!("sensor = \"loop_lag\"\n{rest}"));
    assert!(problem_of(program).contains("no program is asked"));
    for target in [
        "$uri",
        "$path?busy",
        "https://$host$path",
        "$scheme://$host$uri",
    ] {
        let problem = problem_of(&format!("respond = {{ redirect = {target:?} }}"));
        let said = "to where the request came from";
        assert!(problem.contains(said), "{target}\n{problem}");
    }
}

#[test]
fn what_could_not_work_is_refused() {
    for (lines, said) in [
        ("sensor = \"cpu_presure\"", "did you mean `cpu_pressure`"),
        ("sensor = \"load1\"", "`enter` is missing"),
        (
            "sensor = \"cpu_pressure\"\nmode = \"shade\"",
            "`mode` must be `enforce` or `shadow`",
        ),
        ("sensor = \"load1\"\nenter = \"3.00\"", "write 3.00"),
        ("sensor = \"load1\"\nenter = 0", "must be above 0"),
        (
            "sensor = \"load1\"\nenter = nan",
            "a number that can be compared",
        ),
        (
            "sensor = \"load1\"\nenter = 3\nleave = 4",
            "`leave` (4) is above `enter` (3)",
        ),
        (
            "sensor = \"memory_available\"\nleave = 0.05",
            "is below `enter`",
        ),
        ("sensor = \"cpu_pressure\"\nenter = 40", "40 % is 0.4"),
        (
            "sensor = \"upstream.app.load1\"\nenter = 3",
            "there is no upstream `app`",
        ),
        (
            "sensor = \"upstream.web.load1\"\nenter = 3\n[upstreams.web]\nservers = [\"127.0.0.1:1\"]",
            "nobody tells the sensors of upstream `web`",
        ),
        (
            "sensor = \"loop_lag\"\nscope = \"everybody\"",
            "`scope` must be `over_share` or `all`",
        ),
        (
            "sensor = \"loop_lag\"\ndegrade = [\"optional\"]",
            "`optional`",
        ),
        (
            "sensor = \"loop_lag\"\nmatch = { file = \"*.php\" }",
            "`file` cannot stand",
        ),
        (
            "sensor = \"loop_lag\"\nmatch = { not = { exists = true } }",
            "`exists` cannot stand",
        ),
        (
            "sensor = \"loop_lag\"\nmatch = { cost_above = \"1s\" }",
            "`cost_above` cannot stand",
        ),
        ("sensor = \"loop_lag\"\nrespond = {}", "`respond` is empty"),
        (
            "sensor = \"loop_lag\"\nrespond = { redirect = \"sorry\" }",
            "must be a path or a URL",
        ),
        (
            "sensor = \"loop_lag\"\nrespond = { redirect = \"/\", page = \"/etc/busy.svg\" }",
            "either a `redirect` or a `page`",
        ),
        (
            "sensor = \"loop_lag\"\nname = \"\"",
            "the `name` of a `[[shed]]`",
        ),
    ] {
        let problem = problem(lines);
        assert!(problem.contains(said), "{lines}\n{problem}");
        assert!(problem.contains("nagaya.toml:"), "{lines}\n{problem}");
    }
}

#[test]
fn what_is_wrong_is_answered_with_what_to_write() {
    for (lines, said) in [
        (
            "sensor = \"queue_age\"\nenter = \"1s\"",
            "`queue_age` is in seconds, such as 1 or 0.1: write 1",
        ),
        ("sensor = \"queue_age\"\nleave = \"250ms\"", "write 0.25"),
        (
            "sensor = \"cpu_pressure\"\nenter = \"60%\"",
            "`cpu_pressure` is a share, such as 0.6: write 0.6",
        ),
        (
            "sensor = \"load1\"\nenter = \"high\"",
            "`load1` is a number of tasks, such as 3 or 3.5",
        ),
        ("sensor = \"in_flight\"\nleave = 3", "`enter` is missing"),
        (
            "sensor = \"loop_lag\"\nrespond = { status = 503 }",
            "it may hold `page`, `redirect`",
        ),
    ] {
        let problem = problem(lines);
        assert!(problem.contains(said), "{lines}\n{problem}");
    }
}

#[test]
fn milliseconds_where_seconds_are_meant_are_told() {
    let warned = |lines: &str| {
        let text = format!("[[shed]]\nsensor = {lines}\n");
        written::warnings(&sources(&text))
    };
    let told = warned("\"loop_lag\"\nenter = 100");
    for part in ["`enter` is 100 seconds", "100 milliseconds are 0.1"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(warned("\"queue_age\"\nenter = 61").contains("61 milliseconds are 0.061"));
    assert!(warned("\"loop_lag\"\nenter = 20000").contains("rarely above 10"));
    for fine in ["\"loop_lag\"\nenter = 10", "\"load1\"\nenter = 100"] {
        assert_eq!(warned(fine), "", "{fine}");
    }
}

#[test]
fn a_sensor_that_is_none_hides_no_other_problem() {
    let lines = "sensor = \"lod1\"\nenter = \"x\"\nleave = -1\ndwell = 3";
    let problems = load(&sources(&format!("[[shed]]\n{lines}\n"))).expect_err("four");
    for part in [
        "there is no sensor `lod1`",
        "`enter` must be a number",
        "`leave` must be above 0",
        "`dwell` must be a duration",
    ] {
        assert!(problems.to_string().contains(part), "{problems}");
    }
    assert_eq!(problems.count(), 4, "{problems}");
}

#[test]
fn there_are_no_two_of_a_name_and_no_more_than_can_be_looked_at() {
    let rule = "[[shed]]\nsensor = \"loop_lag\"\n";
    let twice = format!("{rule}name = \"a\"\n{rule}name = \"a\"\n");
    let problems = load(&sources(&twice))
        .expect_err("two of a name")
        .to_string();
    assert!(
        problems.contains("two `[[shed]]` are called `a`"),
        "{problems}"
    );
    let problems = load(&sources(&rule.repeat(17)))
        .expect_err("too many")
        .to_string();
    assert!(problems.contains("more than 16"), "{problems}");
    let table = load(&sources("[shed]\nsensor = \"loop_lag\"\n")).expect_err("a table");
    assert!(table.to_string().contains("[[shed]]"), "{table}");
}
