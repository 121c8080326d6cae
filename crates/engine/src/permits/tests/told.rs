//! What an operator is told: of refusals and shadows, over the control socket and in the log.

use std::time::Duration;

use limits::Why;

use super::{Crowd, check_quiet, config, field, fixture, statuses, together};
use crate::fixture::{Fixture, block_on, peer};
use crate::permits::refusals::REMEMBERED_MAX;
use crate::permits::refuse::retry_after_s;
use crate::permits::{questions, rows};

#[test]
fn a_limit_in_shadow_refuses_nobody_and_says_whom_it_would_have() {
    let fixture = fixture(
        r#"{ concurrent = 2, mode = "shadow" }"#,
        r#"{ key = "path", concurrent = 1, mode = "shadow" }"#,
        "",
    );
    let replies = together(&fixture, 3);
    assert_eq!(statuses(&replies), [200, 200, 200]);
    let rows = rows::collect(&fixture.shared);
    let of = |row: &rows::Row| (row.look.totals.shadow_refused, row.refused_total());
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
    let id = field(&replies[2], "X-Request-Id").unwrap();
    let why = questions::answer(&fixture.shared, &format!("why {id}")).expect("an answer");
    for part in [
        "limit       site a/path",
        "key         /hold",
        "outcome     passed: would have been refused",
        "reason      limit_full",
        "found       limit path=/hold concurrent 2/1 queue 0/0",
        "passes if   concurrent >= 3, or queue >= 2 with a wait as long as they take",
        "besides     1 further limit",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let records = fixture.records();
    let shadow = "\"reason\":null,\"limit\":null,\"limit_key\":null,\
        \"shadow_reason\":\"limit_full\",\"shadow_limit\":\"site a/path\",\"shadow_key\":\"/hold\"";
    assert_eq!(records.matches(shadow).count(), 2, "{records}");
    let lines = fixture.shared.limits.refusals.take_lines();
    assert_eq!(
        lines,
        [
            "limit path=/hold concurrent 2/1 queue 0/0: 2 would be refused (shadow)",
            "limit process concurrent 2/2 queue 0/0: 1 would be refused (shadow)",
        ]
    );
    check_quiet(&fixture);
}

#[test]
fn a_request_that_a_shadow_and_a_limit_refuse_is_told_of_both() {
    let fixture = fixture(
        r#"{ concurrent = 1 }"#,
        r#"{ rate = "1/d", burst = 1, mode = "shadow" }"#,
        "",
    );
    let replies = together(&fixture, 2);
    assert_eq!(statuses(&replies), [200, 503]);
    let id = field(&replies[1], "X-Request-Id").unwrap();
    let why = questions::answer(&fixture.shared, &format!("why {id}")).expect("an answer");
    let (refused, shadow) = why.split_once("\n\n").expect("two parts");
    assert!(refused.contains("process/process") && !refused.contains("passed"));
    assert!(shadow.contains("limit_rate") && shadow.contains("passed"));
}

#[test]
fn an_operator_asks_and_changes_what_a_limit_is() {
    let fixture = fixture("", r#"{ key = "path", concurrent = 1 }"#, "");
    let ask = |question: &str| questions::answer(&fixture.shared, question).expect("an answer");
    let replies = together(&fixture, 2);
    let id = field(&replies[1], "X-Request-Id").unwrap();
    let why = ask(&format!("why {id}"));
    for part in ["site a/path", "/hold", "limit_full", "concurrent 1/1"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(ask("why 0").starts_with("error: "));
    assert!(ask("limits list").contains("concurrent 1"));
    assert!(ask("limits list json").contains("\"limit_full\":1"));
    assert!(ask("limits top 5").contains("/hold"));
    let answer = ask("limits set site a/path concurrent=2 queue=3 wait=5s");
    assert!(
        answer.starts_with("site a/path: concurrent 2, queue 3, wait 5s"),
        "{answer}"
    );
    assert_eq!(statuses(&together(&fixture, 2)), [200, 200]);
    assert!(ask("limits list").contains("set"));
    for (order, part) in [
        ("limits set site a/path", "what to set"),
        ("limits set site b/path queue=1", "`site a/path`"),
        ("limits set site a/path queue=x", "queue"),
        ("limits set site a/path rate=1/s", "cannot be set"),
        ("limits", "known are"),
    ] {
        let answer = ask(order);
        assert!(
            answer.starts_with("error: ") && answer.contains(part),
            "{order}: {answer}"
        );
    }
    assert_eq!(questions::answer(&fixture.shared, "what"), None);
}

#[test]
fn the_last_refusal_of_each_flow_is_remembered_however_often_another_is_refused() {
    let fixture = fixture("", r#"{ key = "path", rate = "1/d", burst = 1 }"#, "");
    let ask = |client: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let exchange = fixture.ask_from(peer(&format!("{client}:40000")), &request);
        exchange.request.id.to_string()
    };
    let is_known = |id: &str| {
        let why = questions::answer(&fixture.shared, &format!("why {id}")).expect("an answer");
        !why.starts_with("error: ")
    };
    for path in ["/one", "/two"] {
        ask("192.0.2.1", path);
    }
    let before = ask("192.0.2.1", "/one");
    let of_key = ask("192.0.2.1", "/one");
    let of_network = ask("198.51.100.1", "/two");
    let first = ask("192.0.2.1", "/two");
    for _ in 0..REMEMBERED_MAX {
        ask("192.0.2.1", "/two");
    }
    let last = ask("192.0.2.1", "/two");
    for (id, expected) in [
        (&of_key, true),
        (&of_network, true),
        (&last, true),
        (&before, false),
        (&first, false),
    ] {
        assert_eq!(is_known(id), expected, "{id}");
    }
}

#[test]
fn the_log_is_told_of_refusals_by_the_second() {
    let fixture = fixture("", r#"{ concurrent = 1 }"#, "");
    together(&fixture, 5);
    let told = fixture.shared.limits.refusals.take_lines();
    assert_eq!(told, ["limit site concurrent 1/1 queue 0/0: 4 refused"]);
}

#[test]
fn what_is_told_to_wait_is_whole_seconds_within_bounds() {
    for (why, predicted_ms, random, expected) in [
        (Why::Full, 0, 0, 1),
        (Why::Full, 1, u64::MAX, 1),
        (Why::QueueFull, 2_000, 0, 2),
        (Why::QueueFull, 2_000, 1_023, 3),
        (Why::Late, 10_000, 512, 13),
        (Why::WaitedTooLong, 3_600_000, u64::MAX, 60),
        (Why::Rate, 120_000, 0, 120),
        (Why::Rate, 86_400_000, u64::MAX, 3_600),
    ] {
        let predicted = Duration::from_millis(predicted_ms);
        let seconds = retry_after_s(why, predicted, random);
        assert_eq!(seconds, expected, "{why:?} {predicted_ms} {random}");
    }
}

#[test]
fn the_busiest_keys_are_shown_and_how_many_are_not() {
    let fixture = fixture("", r#"{ key = "path", concurrent = 9 }"#, "");
    let ask = |question: &str| questions::answer(&fixture.shared, question).expect("an answer");
    assert_eq!(ask("limits top"), "no key of a limit is in use\n");
    block_on(async {
        let mut crowd = Crowd::new(&fixture);
        crowd.ask("192.0.2.7", "a", "/hold/busy").await;
        assert_eq!(
            ask("limits top").lines().count(),
            2,
            "{}",
            ask("limits top")
        );
        for nth in 0..30 {
            crowd.ask("192.0.2.7", "a", &format!("/{nth}")).await;
        }
        let top = ask("limits top");
        let lines: Vec<&str> = top.lines().collect();
        assert!(lines[1].contains("/hold/busy"), "{top}");
        assert_eq!(lines.len(), 1 + 20 + 1, "{top}");
        assert_eq!(
            lines[21],
            "and 11 keys with less going on: nagaya limits top 31"
        );
        assert_eq!(ask("limits top 31").lines().count(), 32);
        crowd.finish().await;
    });
}

/// Keys of one limit, each of them busy.
const KEYS: usize = 10_000;

#[test]
fn of_ten_thousand_keys_the_busiest_are_shown_in_order() {
    let text = config("", r#"{ key = "path", concurrent = 9 }"#, "");
    let fixture = Fixture::new(&text.replace("[log]", "[caps]\nlimit_keys = 20000\n[log]"));
    let serving = fixture.worker.serving();
    let defined = serving.generation.limits.defined().expect("in force");
    let ledger = &fixture.shared.limits.ledger;
    let admit = |key: &str| {
        let want = limits::Want {
            limit: defined.limits[0],
            key: Some(key.as_bytes()),
        };
        let wants = [want];
        let ask = limits::Ask::of(
            0,
            defined.tenants[0],
            std::net::Ipv4Addr::LOCALHOST.into(),
            &wants,
        );
        match ledger.admit(limits::Time::ZERO, &ask) {
            limits::Admission::Admitted(permit) => permit,
            other => panic!("{other:?}"),
        }
    };
    let mut held: Vec<_> = (0..KEYS).map(|nth| admit(&format!("/{nth}"))).collect();
    held.extend([admit("/777"), admit("/777"), admit("/42")]);
    let ask = |question: &str| questions::answer(&fixture.shared, question).expect("an answer");
    let top = ask("limits top 3");
    let lines: Vec<&str> = top.lines().collect();
    assert!(
        lines[1].contains("/777 ") && lines[1].contains("3/9"),
        "{top}"
    );
    assert!(
        lines[2].contains("/42 ") && lines[2].contains("2/9"),
        "{top}"
    );
    let rest = "and 9,997 keys with less going on: nagaya limits top 10000";
    assert_eq!(lines[4..], [rest], "{top}");
    assert_eq!(ask("limits top 10000").lines().count(), 1 + KEYS);
    assert_eq!(ask("limits top 99999999").lines().count(), 1 + KEYS);
    assert!(ask("limits list json").contains("\"keys\":10000,\"in_flight\":10003,"));
    assert_eq!(ask("limits list").lines().count(), 2);
}

#[test]
fn a_list_tells_what_counts_some_requests_and_what_does_not_hold_now() {
    // Far enough from today that the test does not run into it.
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let another = now.weekday().wrapping_add(3).to_monday_zero_offset();
    let another = usize::try_from(another).expect("0 to 6");
    let day = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][another];
    let limits = format!(
        r#"{{ name = "later", concurrent = 1, when = "{day} UTC" }},
        {{ name = "posts", concurrent = 1, match = {{ method = "POST" }}, when = "daily" }},
        {{ name = "other", concurrent = 1 }}"#
    );
    let fixture = fixture("", &limits, "");
    let ask = |question: &str| questions::answer(&fixture.shared, question).expect("an answer");
    let (list, json) = (ask("limits list"), ask("limits list json"));
    for (name, is, members) in [
        (
            "later",
            "concurrent 1, not now",
            "\"holds\":false,\"match\":false",
        ),
        (
            "posts",
            "concurrent 1, some requests",
            "\"holds\":true,\"match\":true",
        ),
        ("other", "concurrent 1", "\"holds\":true,\"match\":false"),
    ] {
        let mut lines = list.lines();
        let line = lines.find(|line| line.starts_with(&format!("site a/{name} ")));
        let is = format!("  {is}  ");
        assert!(
            line.is_some_and(|line| line.contains(&is)),
            "{name}: {list}"
        );
        let (_, rest) = json.split_once(&format!("\"site a/{name}\"")).expect(name);
        let first = rest.split('}').next().expect("the rest");
        assert!(first.contains(members), "{name}: {json}");
    }
}

#[test]
fn a_change_is_kept_of_a_rule_that_has_a_name() {
    let text = config("", "", r#"{ key = "path", concurrent = 1 }"#);
    let named = text.replace("rules = [{ limits", "rules = [{ name = \"x\", limits");
    let limit = "concurrent=2";
    for (text, rule, is_refused) in [(&text, "rule 1", true), (&named, "x", false)] {
        let fixture = Fixture::new(text);
        let ask = |question: &str| questions::answer(&fixture.shared, question).expect("an answer");
        let answer = ask(&format!("limits keep rule a/{rule}/path\t{limit}"));
        let told = answer.starts_with("error: rule 1 of a has no name");
        assert_eq!(told, is_refused, "{answer}");
        assert_eq!(ask("limits list").contains("concurrent 1"), is_refused);
        ask(&format!("limits set rule a/{rule}/path {limit}"));
        assert!(ask("limits list").contains("concurrent 2"));
    }
}

#[test]
fn what_is_wrong_with_an_order_is_told_in_a_line_without_places() {
    let fixture = fixture("", r#"{ key = "path", concurrent = 1 }"#, "");
    for (change, part) in [
        ("concurrent=0", "`concurrent`"),
        ("wait=2d", "from 1ms to 1h"),
        ("mode=loud", "`mode`"),
    ] {
        let order = format!("limits set site a/path {change}");
        let answer = questions::answer(&fixture.shared, &order).expect("an answer");
        let why = answer.strip_prefix("error: ").unwrap_or_default();
        let is_a_line = why.lines().count() == 1 && !why.contains("error");
        assert!(is_a_line && why.contains(part), "{answer}");
    }
}
