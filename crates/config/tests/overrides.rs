//! Kept changes of limits: what they do to a configuration, and how their file is changed.

use config::model::{Concurrent, Kept, Limit, Mode, Model};
use config::overrides::{Edited, Overrides, check_changes, told};
use config::{Sources, dump, load, load_and_warn};

const FILE: &str = "/etc/nagaya.toml.overrides";
const CONFIG: &str = r#"
limits = [{ concurrent = "auto" }, { key = "client", rate = "10/s", burst = 5 }]
[[listen]]
address = "127.0.0.1:8080"
[upstreams.app]
servers = ["127.0.0.1:9000"]
limits = [{ concurrent = 5, queue = 9 }]
[tenants.t]
limits = [{ concurrent = 6 }]
[[sites]]
hosts = ["a.jp"]
tenant = "t"
limits = [{ key = "file", concurrent = 2 }]
rules = [
  { name = "x", handler = { proxy = "app" }, match = { path = "/x" }, limits = [{ concurrent = 7 }] },
  { name = "x", handler = { proxy = "app" }, limits = [{ concurrent = 8 }] },
]
[[sites]]
hosts = ["b.jp"]
root = "/srv"
limits = [{ key = "file", concurrent = 2 }]
[[sites]]
hosts = ["c.jp"]
root = "/srv"
limits = [{ key = "file", concurrent = 2 }]
"#;

fn sources(overrides: &str) -> Sources {
    Sources::from_text("etc/nagaya.toml", CONFIG).with_overrides(FILE, overrides)
}

fn model(overrides: &str) -> (Model, String) {
    let (model, warnings) = load_and_warn(&sources(overrides))
        .unwrap_or_else(|problems| panic!("{overrides}\n{problems}"));
    (model, warnings.to_string())
}

fn kept(limit: &Limit) -> &Kept {
    limit.kept.as_ref().expect("something was kept")
}

#[test]
fn every_level_takes_what_was_kept_of_it_and_the_dump_says_so() {
    let (model, warnings) = model(
        r#"
[limits]
"process/process" = { concurrent = 90, queue = 3 }
"process/client" = { rate = "20/m" }
"upstream app/upstream" = { concurrent = "auto", mode = "shadow" }
"tenant t/tenant" = { queue = 4, wait = "9s", late = "3s", changed = 2026-11-22T02:40:00Z }
"site b.jp/file" = { concurrent = 3 }
"rule a.jp/x/rule" = { concurrent = 70 }
"rule a.jp/x/rule#2" = { concurrent = 80 }
"#,
    );
    assert_eq!(warnings, "");
    let fixed = |limit: &Limit| limit.in_force().concurrent;
    assert_eq!(fixed(&model.limits[0]), Some(Concurrent::Fixed(90)));
    let rate = model.limits[1].in_force().rate.expect("a rate");
    assert_eq!((rate.count, rate.per_ms, rate.burst), (20, 60_000, 5));
    let upstream = model.upstreams[0].limits[0].in_force();
    let upstream = (upstream.concurrent, upstream.mode, upstream.queue);
    assert_eq!(upstream, (Some(Concurrent::Auto), Mode::Shadow, 9));
    let tenant = model.tenants[0].limits[0].in_force();
    assert_eq!((tenant.queue, tenant.wait_ms), (4, 9_000));
    assert_eq!(tenant.late_ms, 3_000);
    let rules = &model.sites[0].rules;
    assert_eq!(fixed(&rules[0].limits[0]), Some(Concurrent::Fixed(70)));
    assert_eq!(fixed(&rules[1].limits[0]), Some(Concurrent::Fixed(80)));
    // Sites that were alike no longer are.
    let of_sites = model.sites.iter().map(|site| fixed(&site.limits[0]));
    let expected = [2, 3, 2].map(|count| Some(Concurrent::Fixed(count)));
    assert_eq!(of_sites.collect::<Vec<_>>(), expected);
    let place = kept(&model.sites[1].limits[0]);
    assert_eq!((&*place.file, place.line), (FILE, 7));
    let printed = dump(&model);
    assert!(printed.contains("# /etc/nagaya.toml.overrides:7 changes the limit site b.jp/file\n"));
    let again = load(&Sources::from_text("etc/nagaya.toml", &printed));
    let again = again.unwrap_or_else(|problems| panic!("{printed}\n{problems}"));
    assert_eq!(fixed(&again.sites[1].limits[0]), Some(Concurrent::Fixed(3)));
}

#[test]
fn what_finds_nothing_to_change_is_a_warning() {
    for (entry, told) in [
        (
            r#""site z.jp/file" = { queue = 1 }"#,
            "there is no limit `site z.jp/file`",
        ),
        (
            r#""site b.jp/file" = { rate = "1/s" }"#,
            "`rate` does nothing",
        ),
        (
            r#""process/client" = { queue = 1 }"#,
            "`queue` does nothing",
        ),
        (
            r#""site b.jp/file" = { concurrent = "auto" }"#,
            "cannot be `\"auto\"`",
        ),
    ] {
        let (model, warnings) = model(&format!("[limits]\n{entry}\n"));
        assert!(warnings.contains(told), "{entry}: {warnings}");
        assert!(
            warnings.contains("/etc/nagaya.toml.overrides:2:"),
            "{warnings}"
        );
        let limit = &model.sites[1].limits[0];
        assert_eq!(limit.in_force().concurrent, limit.concurrent);
    }
}

#[test]
fn a_change_of_a_limit_on_a_rule_without_a_name_is_a_warning() {
    for (name, expected) in [("", 1), ("name = \"rule 1\", ", 0)] {
        let text = CONFIG.replacen("name = \"x\", ", name, 1);
        let overrides = "[limits]\n\"rule a.jp/rule 1/rule\" = { concurrent = 70 }\n";
        let sources = Sources::from_text("etc/nagaya.toml", &text);
        let loaded = load_and_warn(&sources.with_overrides(FILE, overrides));
        let (model, warnings) = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(warnings.count(), expected, "{warnings}");
        let warnings = warnings.to_string();
        for part in ["overrides:2:", "rule 1 of a.jp has no name", "give it"] {
            assert_eq!(warnings.contains(part), expected == 1, "{warnings}");
        }
        let rule = &model.sites[0].rules[0];
        assert_eq!(
            kept(&rule.limits[0]).concurrent,
            Some(Concurrent::Fixed(70))
        );
        // What is printed gives no rule a name.
        let again = load(&Sources::from_text("etc/nagaya.toml", &dump(&model)));
        let again = again.unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(again.sites[0].rules[0].is_named, rule.is_named);
    }
}

#[test]
fn how_many_limits_are_changed_is_told_with_their_lines() {
    let identities = [
        "upstream app/upstream",
        "process/client",
        "tenant t/tenant",
        "site a.jp/file",
        "site b.jp/file",
        "site c.jp/file",
    ];
    let of = |count: usize| {
        let entries = identities.iter().take(count);
        let entries: String = entries
            .map(|identity| format!("{identity:?} = {{ mode = \"shadow\" }}\n"))
            .collect();
        told(&model(&format!("[limits]\n{entries}")).0)
    };
    assert_eq!(of(0), None);
    for (count, expected) in [
        (
            1,
            "1 limit is changed by /etc/nagaya.toml.overrides (line 2)",
        ),
        (
            2,
            "2 limits are changed by /etc/nagaya.toml.overrides (lines 2, 3)",
        ),
        (
            6,
            "6 limits are changed by /etc/nagaya.toml.overrides (lines 2, 3, 4, 5, 6 and 1 more)",
        ),
    ] {
        assert_eq!(of(count).as_deref(), Some(expected));
    }
}

#[test]
fn what_is_wrong_with_a_change_is_said_in_a_line() {
    for (name, value, parts) in [
        ("concurrent", "0", &["`concurrent`", "1000000"][..]),
        ("wait", "2d", &["`wait` must be from 1ms to 1h"]),
        (
            "wait",
            "7200",
            &["`wait` must be a duration", "from 1ms to 1h"],
        ),
        ("mode", "shado", &["`mode`", "did you mean `shadow`?"]),
    ] {
        let error = check_changes(&[(name, value)])
            .expect_err(value)
            .to_string();
        let is_told = parts.iter().all(|part| error.contains(part));
        assert!(is_told && !error.contains('\n'), "{error}");
    }
    for changes in [
        [("concurrent", "4"), ("wait", "1h")],
        [("wait", "10s"), ("late", "0s")],
        [("concurrent", "04"), ("queue", "+10")],
    ] {
        assert_eq!(check_changes(&changes), Ok(()), "{changes:?}");
    }
    let twice = check_changes(&[("queue", "1"), ("queue", "5")]).unwrap_err();
    assert!(twice.to_string().contains("`queue` stands there twice"));
}

#[test]
fn a_broken_file_says_where_and_can_be_set_aside() {
    for (text, told) in [
        ("[limits]\n\"a\" = { concurrent = \n", "overrides:2:"),
        (
            "[limits]\n\"a\" = { concurrent = \"many\" }\n",
            "overrides:2:",
        ),
        ("[limits]\n\"a\" = { colour = 1 }\n", "unknown key `colour`"),
        ("[limits]\n\"a\" = 3\n", "must be a table"),
        ("[site]\n", "unknown key `site`"),
    ] {
        let mut sources = sources(text);
        let problems = load(&sources).expect_err(text).to_string();
        assert!(problems.contains(told), "{text}: {problems}");
        assert!(Overrides::read(FILE, text).is_err(), "{text}");
        assert!(sources.set_overrides_aside());
        assert!(load(&sources).is_ok(), "{text}");
    }
    let many: String = (0..1_001).map(|nth| format!("a{nth} = {{}}\n")).collect();
    let problems = load(&sources(&format!("[limits]\n{many}"))).expect_err("too many");
    assert!(
        problems.to_string().contains("1000 are the most"),
        "{problems}"
    );
}

const NOW: &str = "2026-11-22T02:40:00Z";

fn keep(text: &str, identity: &str, changes: &[(&str, &str)]) -> Edited {
    let overrides = Overrides::read(FILE, text).unwrap_or_else(|problems| panic!("{problems}"));
    let kept = overrides.keep(identity, changes, NOW);
    kept.unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_file_is_begun_and_grows_by_a_line_a_limit() {
    let first = keep(
        "",
        "site a.jp/file",
        &[("queue", "10"), ("concurrent", "4")],
    );
    let line =
        "\"site a.jp/file\" = { concurrent = 4, queue = 10, changed = 2026-11-22T02:40:00Z }";
    assert_eq!(first.text.lines().last(), Some(line));
    assert!(first.text.starts_with("# "), "{}", first.text);
    assert_eq!(first.text.lines().nth(first.line - 1), Some(line));
    let second = keep(
        &first.text,
        "rule a.jp/\"x\"/rule",
        &[("wait", "5s"), ("rate", "1/m")],
    );
    assert_eq!(second.line, first.line + 1);
    let third = keep(&second.text, "site a.jp/file", &[("concurrent", "5")]);
    assert_eq!(third.line, first.line);
    let expected = [("concurrent", "5".to_owned()), ("queue", "10".to_owned())];
    assert_eq!(third.changes, expected);
    assert_eq!(third.text.lines().count(), second.text.lines().count());
    let overrides = Overrides::read(FILE, &third.text).expect("sound");
    let without = overrides
        .forget("site a.jp/file")
        .expect("one line")
        .expect("there");
    assert_eq!(without.line, first.line);
    assert!(!without.text.contains("site a.jp"), "{}", without.text);
    assert_eq!(overrides.forget("site b.jp/file"), Ok(None));
}

#[test]
fn what_a_person_wrote_beside_it_stays() {
    let text = "# ours\n[limits] # all\n  \"a\" = { queue = 1 }  # since the fair\n# b's\n\"b\" = { queue = 2 }";
    let edited = keep(text, "a", &[("queue", "7")]);
    let expected = text.replace(
        "{ queue = 1 }",
        "{ queue = 7, changed = 2026-11-22T02:40:00Z }",
    );
    assert_eq!((edited.text, edited.line), (expected, 3));
    let edited = keep(text, "c", &[("queue", "3")]);
    let expected = format!("{text}\n\"c\" = {{ queue = 3, changed = {NOW} }}\n");
    assert_eq!((edited.text, edited.line), (expected, 6));
    let head = keep("[limits]\n\n# none\n", "c", &[("queue", "3")]);
    assert_eq!(head.line, 2);
}

#[test]
fn what_is_not_one_line_is_left_to_a_person() {
    for text in [
        "[limits.a]\nqueue = 1\n",
        "[limits]\na.queue = 1\na.wait = \"1s\"\n",
        "limits = { a = { queue = 1 }, b = { queue = 2 } }\n",
    ] {
        let overrides = Overrides::read(FILE, text).expect(text);
        let error = overrides.forget("a").expect_err(text).to_string();
        assert!(error.contains("by hand"), "{text}: {error}");
        let error = overrides.keep("a", &[("queue", "2")], NOW).expect_err(text);
        assert!(error.to_string().contains("by hand"), "{text}: {error}");
    }
    let overrides = Overrides::read(FILE, "").expect("empty");
    for changes in [[("queue", "many")], [("wait", "\u{7}")]] {
        let error = overrides.keep("a", &changes, NOW).expect_err("no value");
        assert!(error.to_string().contains("must be a"), "{error}");
    }
}

#[test]
fn tenants_are_suspended_and_resumed_a_line_each_and_limits_stay() {
    let kept = keep("", "site a.jp/file", &[("queue", "10")]);
    let overrides = Overrides::read(FILE, &kept.text).expect("sound");
    let suspended = |overrides: &Overrides, tenant: &str| {
        let edited = overrides.suspend(tenant, NOW).expect("a name");
        edited.map(|edited| edited.text)
    };
    let first = suspended(&overrides, "a").expect("news");
    assert!(
        first.ends_with("\n[suspended]\n\"a\" = 2026-11-22T02:40:00Z\n"),
        "{first}"
    );
    let overrides = Overrides::read(FILE, &first).expect("sound");
    assert_eq!(suspended(&overrides, "a"), None);
    let second = suspended(&overrides, "b.jp").expect("news");
    let more = keep(&second, "site b.jp/file", &[("queue", "1")]);
    let overrides = Overrides::read(FILE, &more.text).expect("sound");
    assert_eq!(overrides.resume("c"), Ok(None));
    let resumed = overrides.resume("a").expect("one line").expect("there");
    let limits = [
        "\"site a.jp/file\" = { queue = 10",
        "\"site b.jp/file\" = { queue = 1",
    ];
    let rest = ["[suspended]\n\"b.jp\" = 2026-11-22T02:40:00Z\n"];
    for line in limits.into_iter().chain(rest) {
        assert!(resumed.text.contains(line), "{}", resumed.text);
    }
}

#[test]
fn who_is_suspended_is_in_the_model_and_who_is_no_tenant_is_a_warning() {
    let text = format!("[suspended]\n\"b.jp\" = {NOW}\n\"gone\" = {NOW}\n");
    let (model, warnings) = model(&text);
    assert_eq!(model.suspended.iter().collect::<Vec<_>>(), ["b.jp"]);
    assert!(
        warnings.contains("no site has the tenant `gone`"),
        "{warnings}"
    );
    assert_eq!(told(&model).as_deref(), Some("1 tenant is suspended"));
    assert!(dump(&model).contains("# tenant b.jp is suspended\n"));
    let problems = load(&sources("[suspended]\n\"b.jp\" = true\n")).expect_err("no date");
    assert!(
        problems.to_string().contains("a date and time"),
        "{problems}"
    );
}
