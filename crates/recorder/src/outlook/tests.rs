//! Days, shares and forecasts of made figures.

use testkit::TempDir;

use super::*;
use crate::history::Sample;

fn resource(figure: &'static str, full: f64, is_least: bool) -> Resource {
    Resource {
        figure,
        full,
        is_least,
        unit: Unit::Share,
        made_of: "cpu",
        raised_by: Vec::new(),
    }
}

fn at(now_s: i64, zone: &str) -> Zoned {
    let zone = TimeZone::get(zone).expect("a zone");
    Timestamp::from_second(now_s)
        .expect("a time")
        .to_zoned(zone)
}

fn told(store: &FigureStore, now_s: i64) -> Document {
    let resources = vec![resource("conntrack", 0.8, false)];
    let outlook = outlook(store, resources, &at(now_s, "UTC")).expect("read");
    outlook.document(Language::English)
}

/// A store with the busy hour of each day at eight, and the day after the last at noon.
fn store(directory: &TempDir, days: i64, value: impl Fn(i64) -> f64) -> (FigureStore, i64) {
    let (mut store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
    let sample = |name: &str, at_s: i64, value: f64| Sample {
        name: name.into(),
        at_s,
        sums: Sums::of(value),
    };
    let mut samples = Vec::new();
    for day in 0..days {
        let busy = day * DAY_S + 8 * 3_600;
        samples.push(sample("conntrack", busy, value(day)));
        samples.push(sample("conntrack", busy + 7_200, 0.01));
        samples.push(sample("tenant.big.cpu", busy, 3.0));
        samples.push(sample("tenant.small.cpu", busy, 1.0));
        samples.push(sample("tenant.night.cpu", busy + 7_200, 9.0));
    }
    samples.push(sample("conntrack", days * DAY_S, 0.5));
    store.write_samples(&samples).expect("written");
    (store, days * DAY_S + 43_200)
}

#[test]
fn of_two_weeks_the_day_is_told_when_it_is_full_and_whose_it_is() {
    let directory = TempDir::new();
    let (store, now_s) = store(&directory, 20, |day| 0.2 + 0.02 * day as f64);
    let told = told(&store, now_s);
    assert_eq!(told.answer, None);
    let text = format!("{:?}", told.sections);
    // 0.58 on the 20th of January 1970; 11 days more.
    assert!(text.contains("1970-01-31"), "{text}");
    for (part, is_there) in [
        ("big", true),
        ("75 %", true),
        ("small", true),
        ("night", false),
    ] {
        assert_eq!(text.contains(part), is_there, "{part}: {text}");
    }
    // A quarter of 0.02 a day is left: not full for a long time.
    assert!(text.contains("1970-0"), "{text}");
}

#[test]
fn of_however_many_tenants_those_are_named_that_take_most_of_what_all_took() {
    let directory = TempDir::new();
    let (mut store, now_s) = store(&directory, 20, |_| 0.2);
    let busy = 19 * DAY_S + 8 * 3_600;
    let sample = |name: String, value: f64| Sample {
        name: name.into(),
        at_s: busy,
        sums: Sums::of(value),
    };
    let many = (0..4_000).flat_map(|tenant| {
        ["cpu", "memory", "requests"]
            .map(|what| sample(format!("tenant.of-{tenant:04}.{what}"), 0.001))
    });
    let mut samples: Vec<_> = many.collect();
    samples.push(sample("tenant.zen.cpu".into(), 24.0));
    // What the server told of all, with those that were not followed.
    samples.push(sample("tenants.cpu".into(), 80.0));
    store.write_samples(&samples).expect("written");
    let found = shares(&store, "cpu", &[busy]).expect("read");
    let found: Vec<_> = found.iter().map(|(name, it)| (&**name, *it)).collect();
    assert_eq!(found[..2], [("zen", 0.3), ("big", 0.0375)]);
    let text = format!("{:?}", told(&store, now_s).sections);
    assert!(text.contains("zen"), "{text}");
}

#[test]
fn of_less_nothing_is_foretold_and_that_is_said() {
    let directory = TempDir::new();
    let (store, now_s) = store(&directory, 5, |_| 0.2);
    let told = told(&store, now_s);
    let (_, answer) = told.answer.expect("an answer");
    assert!(answer.contains("there are 5"), "{answer}");
}

#[test]
fn days_are_those_of_the_zone() {
    let directory = TempDir::new();
    let (store, _) = store(&directory, 20, |day| 0.2 + 0.02 * day as f64);
    let resource = resource("conntrack", 0.8, false);
    let read = |now_s: i64, zone: &str| {
        let state = ResourceState::read(&store, &resource, &at(now_s, zone));
        state.expect("it is read").expect("there is one").busy_hours
    };
    // Eight in the evening; nine hours further east another day has begun.
    let now_s = 20 * DAY_S - 4 * 3_600;
    let last = |hours: Vec<BusyHour>| hours.last().map(|(day, _)| *day);
    assert_eq!(last(read(now_s, "UTC")), Some(18));
    assert_eq!(last(read(now_s, "Asia/Tokyo")), Some(19));
}

#[test]
fn a_look_is_for_all_within_a_minute() {
    let directory = TempDir::new();
    let (store, now_s) = store(&directory, 20, |_| 0.2);
    let (kept, looks) = (KeptOutlook::default(), std::cell::Cell::new(0));
    for after_s in [0, 1, 59, 60, 61, -1] {
        let now = at(now_s + after_s, "UTC");
        let look = || {
            looks.set(looks.get() + 1);
            outlook(&store, Vec::new(), &now)
        };
        kept.document(&now, Language::English, look).expect("read");
    }
    assert_eq!(looks.get(), 3);
}

#[test]
fn of_an_empty_database_that_is_said() {
    let directory = TempDir::new();
    let (store, _) = FigureStore::open(directory.path(), 0).expect("it opens");
    let told = told(&store, 9);
    assert!(told.sections.is_empty() && told.answer.is_some());
}

#[test]
fn what_moving_and_limits_and_raising_give_is_told_to_programs() {
    let directory = TempDir::new();
    let (store, now_s) = store(&directory, 20, |day| 0.2 + 0.02 * day as f64);
    let mut conntrack = resource("conntrack", 0.8, false);
    conntrack.raised_by = vec!["sysctl -w net.netfilter.nf_conntrack_max=1".into()];
    let outlook = outlook(&store, vec![conntrack], &at(now_s, "UTC")).expect("read");
    let told: Value = serde_json::from_str(&outlook.json()).expect("JSON");
    let told = &told["resources"][0];
    assert_eq!(
        (&told["resource"], &told["days"]),
        (&json!("conntrack"), &json!(20))
    );
    assert_eq!(told["full"]["on"], "1970-01-31");
    let big = &told["tenants"][0];
    assert_eq!(
        (&big["tenant"], &big["share"]),
        (&json!("big"), &json!(0.75))
    );
    // 0.8 is 1.28 of what there is where 5/8 are left: 36 days of 0.02 more; 0.8 is 1.6 of a half.
    assert_eq!(big["full_if_halved"]["on"], "1970-02-24");
    assert_eq!(told["full_if_doubled"]["on"], "1970-03-12");
    let text = outlook
        .document(Language::English)
        .to_text(100, report::Paint::Never);
    assert!(text.contains("nf_conntrack_max=1"), "{text}");
}

#[test]
fn what_has_to_be_left_is_less_used_where_a_tenant_has_gone() {
    let least = resource("memory_available", 0.1, true);
    assert!((least.with_used(0.4, 0.5) - 0.7).abs() < 1e-9);
    let most = resource("conntrack", 0.8, false);
    assert!((most.with_used(0.4, 0.5) - 0.2).abs() < 1e-9);
}

#[test]
fn what_can_run_out_has_an_end_on_every_machine() {
    let resources = resources(2, |figure| vec![format!("raise {figure}")]);
    assert_eq!(resources.len(), MADE_OF.len());
    assert_eq!((resources[0].full, resources[0].is_least), (2.0, false));
    let memory = resources.iter().find(|it| it.figure == "memory_available");
    assert!(memory.is_some_and(|it| it.is_least && it.unit == Unit::Share));
}
