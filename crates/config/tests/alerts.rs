//! What a configuration says of alerts.

use config::Sources;
use config::model::Alert;
use config::model::sensor::Worse;

use crate::written;

const SITE: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"a.example\"]\nroot = \"/srv\"\n\
    tenant = \"acme\"\n[recorder]\ndirectory = \"/srv\"\n[tenants.acme]\nweight = 2\n[upstreams.app]\nservers = [\"127.0.0.1:9000\"]\n";

fn sources(alerts: &str) -> Sources {
    written::sources(&format!("{SITE}{alerts}"))
}

fn alerts(alerts: &str) -> Vec<Alert> {
    written::model_of(&sources(alerts)).alerts
}

fn problem(lines: &str) -> String {
    let text = format!("[[alerts]]\n{lines}\n");
    let problems = written::problems(&sources(&text));
    let count = problems.matches("error: ").count();
    assert_eq!(count, 1, "{lines}\n{problems}");
    problems
}

#[test]
fn figures_of_machine_tenants_sites_upstreams_and_certificates_are_watched() {
    for (figure, bound, value) in [
        ("memory_available", "below = 0.1", 0.1),
        ("tenant.acme.cpu", "above = 0.5", 0.5),
        ("tenant.acme.memory", "above = \"2GiB\"", 2_147_483_648.0),
        ("site.a.example.p99", "above = 2", 2.0),
        ("upstream.app.up", "below = 1", 1.0),
        ("certificates.days_left", "below = 14", 14.0),
        ("handshakes.failed", "above = 50", 50.0),
    ] {
        let text = format!("[[alerts]]\nfigure = \"{figure}\"\n{bound}\n");
        let found = &alerts(&text)[0];
        assert_eq!(found.name, figure);
        assert_eq!(found.figure.to_string(), figure);
        assert_eq!((found.bound, found.leave, found.for_s), (value, value, 60));
    }
}

#[test]
fn the_store_that_machines_share_is_watched() {
    let fleet = "[fleet]\nstore = \"redis://127.0.0.1\"\n";
    let text = format!(
        "{fleet}[[alerts]]\nfigure = \"fleet.up\"\nbelow = 1\n[[alerts]]\nfigure = \"fleet.machines\"\nbelow = 3\n"
    );
    let figures = alerts(&text).into_iter().map(|it| it.figure.to_string());
    assert_eq!(figures.collect::<Vec<_>>(), ["fleet.up", "fleet.machines"]);
}

#[test]
fn it_is_told_after_a_time_over_at_its_own_bound_and_by_a_program() {
    let text = "[[alerts]]\nname = \"busy\"\nfigure = \"load1\"\nabove = 8\nleave = 6\nfor = \"5m\"\nrun = [\"./page.sh\", \"me\"]\n\
        user = \"operator\"\n[[alerts]]\nfigure = \"load1\"\nabove = 20\n[[alerts]]\nfigure = \"load1\"\nbelow = 0.1\n";
    let alerts = alerts(text);
    let names: Vec<_> = alerts.iter().map(|alert| &*alert.name).collect();
    assert_eq!(names, ["busy", "load1", "load1 2"]);
    let busy = &alerts[0];
    assert_eq!(
        (busy.worse, busy.leave, busy.for_s),
        (Worse::Above, 6.0, 300)
    );
    let run = busy.run.as_ref().expect("a program");
    assert_eq!((&*run.command[1], &*run.user), ("me", "operator"));
    assert_eq!(alerts[2].worse, Worse::Below);
}

#[test]
fn what_could_never_be_told_or_never_be_over_is_refused_with_words() {
    for (lines, told) in [
        ("above = 3", "`figure` is missing"),
        ("figure = \"load1\"", "`above` or `below` is missing"),
        ("figure = \"load1\"\nabove = 3\nbelow = 1", "one bound"),
        ("figure = \"load1\"\nabove = 3\nleave = 4", "never be over"),
        ("figure = \"load1\"\nbelow = 3\nleave = 2", "never be over"),
        ("figure = \"load2\"\nabove = 3", "load1"),
        ("figure = \"fleet.up\"\nbelow = 1", "there is no fleet"),
        ("figure = \"tenant.acme.speed\"\nabove = 3", "requests, cpu"),
        (
            "figure = \"tenant.acne.cpu\"\nabove = 3",
            "did you mean `acme`?",
        ),
        (
            "figure = \"site.b.example.p99\"\nabove = 3",
            "there is no site `b.example`",
        ),
        (
            "figure = \"upstream.none.up\"\nbelow = 1",
            "there is no upstream `none`",
        ),
        (
            "figure = \"upstream.app.load1\"\nabove = 1",
            "nobody tells the sensors",
        ),
        ("figure = \"cpu_pressure\"\nabove = 60", "60 % is 0.6"),
        ("figure = \"cpu_pressure\"\nabove = \"60%\"", "write 0.6"),
        (
            "figure = \"load1\"\nabove = 3\nfor = \"1500ms\"",
            "whole seconds",
        ),
        (
            "figure = \"load1\"\nabove = 3\nuser = \"operator\"",
            "`user` says nothing",
        ),
        (
            "figure = \"load1\"\nabove = 3\nrun = [\"x\"]\nuser = \"root\"",
            "root",
        ),
    ] {
        let problem = problem(lines);
        assert!(problem.contains(told), "{lines}\n{problem}");
    }
}

#[test]
fn alerts_on_what_is_not_recorded_are_refused() {
    let silent = "[[sites]]\nhosts = [\"silent.example\"]\ntenant = \"quiet\"\nrecord = false\nroot = \"/srv\"\n\
        [tenants.quiet]\nweight = 1\n";
    for figure in ["site.silent.example.requests", "tenant.quiet.cpu"] {
        let told = problem(&format!("figure = \"{figure}\"\nbelow = 1\n{silent}"));
        assert!(told.contains("nothing is recorded of the"), "{told}");
    }
    let recorded = silent.replace("record = false\n", "");
    alerts(&format!(
        "[[alerts]]\nfigure = \"tenant.quiet.cpu\"\nabove = 1\n{recorded}"
    ));
}

#[test]
fn alerts_that_nobody_would_look_at_are_refused() {
    let text = "[[alerts]]\nfigure = \"load1\"\nabove = 3\n";
    let without = SITE.replace("[recorder]\ndirectory = \"/srv\"\n", "");
    let problems = written::problems(&written::sources(&format!("{without}{text}")));
    assert!(
        problems.contains("`[[alerts]]` without `[recorder]`"),
        "{problems}"
    );
}

#[test]
fn what_is_misspelt_or_wrong_is_not_said_to_be_missing_as_well() {
    for (lines, message) in [
        ("figure = \"load1\"\nabvoe = 3", "unknown key `abvoe`"),
        ("figure = \"load1\"\nbelw = 3", "unknown key `belw`"),
        (
            "figure = \"load1\"\nabove = 3\nrnu = [\"a\"]\nuser = \"operator\"",
            "unknown key `rnu`",
        ),
    ] {
        let found = problem(lines);
        assert!(found.contains(message), "{found}");
    }
    let alert = "[[alerts]]\nfigure = \"load1\"\nabove = 3\n";
    let console = "[[sites]]\nhosts = [\"c.example\"]\n[[sites.rules]]\nallow = [\"127.0.0.1\"]\n\
        handler = { console = true }\n";
    let whole = "[recorder]\ndirectory = \"/srv\"\n";
    for (recorder, message) in [
        ("[recorder]\ndirectory = 3\n", "`directory` must be a text"),
        ("[recorder]\n", "`directory` is missing"),
        (
            "[recorder]\ndirektory = \"/srv\"\n",
            "unknown key `direktory`",
        ),
        ("[recordr]\ndirectory = \"/srv\"\n", "unknown key `recordr`"),
    ] {
        let text = format!("{}{alert}{console}", SITE.replace(whole, recorder));
        let found = written::problems(&written::sources(&text));
        assert_eq!(found.matches("error: ").count(), 1, "{found}");
        assert!(found.contains(message), "{found}");
    }
}
