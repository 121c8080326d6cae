//! The shared table by itself, time and answers being passed in.

use std::net::IpAddr;

use config::model::Model;
use ipc::directory::{Row, RowFrom};

use super::*;

const TEXT: &str = r#"
[[listen]]
address = "127.0.0.1:1"
[directories.d]
source = "sqlite:/tmp/rows.db"
query = "SELECT tenant FROM t WHERE host = $host"
questions = "10/s"
[[sites]]
hosts = { directory = "d" }
tenant = "$row.tenant"
rules = [{ handler = { respond = { body = "x" } } }]
"#;

fn table() -> Directories {
    let model: Model = match config::load(&config::Sources::from_text("t.toml", TEXT)) {
        Ok(model) => model,
        Err(problems) => panic!("{problems}"),
    };
    let table = Directories::default();
    let directories: Vec<_> = model.directories.into_iter().map(Arc::new).collect();
    table.put_in_force(&directories);
    table.note_linked(true);
    table
}

fn network(last: u8) -> IpAddr {
    IpAddr::from([192, 0, last, 0])
}

fn row(tenant: &str) -> RowAnswer {
    RowAnswer::Row(Row {
        seal: 1,
        columns: vec![("tenant".into(), tenant.into())],
        uid: None,
        from: RowFrom::Source,
    })
}

/// What is known of a host at a time.
fn known(table: &Directories, host: &str, now_ms: u64) -> Option<String> {
    match table.look("d", host, network(1), now_ms) {
        Look::Known(entry) => Some(match &entry.state {
            EntryState::Row(row) => row.column("tenant").unwrap_or_default().to_owned(),
            EntryState::Missing => "missing".to_owned(),
            EntryState::Wrong(why) => why.clone(),
        }),
        _ => None,
    }
}

#[test]
fn a_name_is_asked_for_once_however_many_wait_and_all_hear_of_the_answer() {
    let table = table();
    let waiting: Vec<_> = (0..3)
        .map(|_| match table.look("d", "a", network(1), 1_000) {
            Look::Asked(waiting) => waiting,
            other => panic!("{other:?}"),
        })
        .collect();
    let (questions, _) = table.questions(9, 1_000);
    let [question] = &questions[..] else {
        panic!("{questions:?}");
    };
    table.hear(question, row("t"), 0, 1_001);
    assert!(waiting.iter().all(|it| it.has_changed().is_err()));
    assert_eq!(known(&table, "a", 1_002).as_deref(), Some("t"));
    assert_eq!(table.questions(9, 9_000), (Vec::new(), None));
}

#[test]
fn a_row_is_as_old_as_its_source_said_whatever_becomes_of_it() {
    let table = table();
    let _waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.hear(&questions[0], row("t"), 300, 1_000);
    let Look::Known(entry) = table.look("d", "a", network(1), 1_100) else {
        panic!("it is known");
    };
    assert_eq!(entry.age_ms(1_100), 400);
    table.forget(Some("a"));
    assert_eq!((entry.age_ms(1_200), entry.serves(1_200)), (500, false));
}

#[test]
fn names_that_are_known_beside_the_source_do_not_wait_for_its_pace() {
    let table = table();
    let hosts: Vec<String> = (0..100).map(|at| format!("h{at}")).collect();
    for host in &hosts {
        assert!(matches!(
            table.look("d", host, network(1), 1_000),
            Look::Asked(_)
        ));
    }
    let waiting: Vec<_> = hosts
        .iter()
        .map(|host| table.look("d", host, network(1), 1_000))
        .collect();
    let mut from = [RowFrom::Memcached, RowFrom::Snapshot].into_iter().cycle();
    for _ in &hosts {
        let (questions, _) = table.questions(9, 1_000);
        let [question] = &questions[..] else {
            panic!("{questions:?}");
        };
        let RowAnswer::Row(row) = row("t") else {
            continue;
        };
        let from = from.next().unwrap_or(RowFrom::Snapshot);
        table.hear(question, RowAnswer::Row(Row { from, ..row }), 0, 1_000);
    }
    assert!(
        hosts
            .iter()
            .all(|host| known(&table, host, 1_001).is_some())
    );
    drop(waiting);
}

#[test]
fn an_old_row_serves_on_while_it_is_asked_again_and_a_dead_source_costs_it_nothing() {
    let table = table();
    let _waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.hear(&questions[0], row("old"), 0, 1_000);
    let later_ms = 1_000 + 61_000;
    assert_eq!(known(&table, "a", later_ms).as_deref(), Some("old"));
    let (questions, _) = table.questions(9, later_ms);
    table.hear(&questions[0], RowAnswer::Down("it is".into()), 0, later_ms);
    assert_eq!(known(&table, "a", later_ms + 1).as_deref(), Some("old"));
    assert!(table.questions(9, later_ms + 1).0.is_empty(), "not at once");
    let later_ms = later_ms + RETRY_MS;
    assert_eq!(known(&table, "a", later_ms).as_deref(), Some("old"));
    let (questions, _) = table.questions(9, later_ms);
    table.hear(&questions[0], row("new"), 0, later_ms);
    assert_eq!(known(&table, "a", later_ms + 1).as_deref(), Some("new"));
    let week_ms = 8 * 24 * 3_600_000;
    assert_eq!(known(&table, "a", later_ms + week_ms), None, "not for ever");
}

#[test]
fn what_has_changed_is_asked_for_again_and_an_answer_to_no_question_is_none() {
    let table = table();
    let _waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    let forged = Question {
        directory: "d".into(),
        host: "a".into(),
        id: 77,
    };
    table.hear(&forged, row("forged"), 0, 1_000);
    table.hear(&questions[0], row("old"), 0, 1_000);
    table.hear(&questions[0], row("twice"), 0, 1_000);
    assert_eq!(known(&table, "a", 1_001).as_deref(), Some("old"));
    table.outdate(Some("d"), Some("a"));
    assert_eq!(known(&table, "a", 1_002).as_deref(), Some("old"));
    let (questions, _) = table.questions(9, 2_000);
    table.hear(&questions[0], RowAnswer::Missing, 0, 2_000);
    assert_eq!(known(&table, "a", 2_001).as_deref(), Some("missing"));
}

#[test]
fn an_answer_to_a_question_from_before_a_change_is_asked_for_again() {
    let table = table();
    let _waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.outdate(Some("d"), Some("a"));
    table.hear(&questions[0], row("old"), 0, 1_001);
    assert_eq!(known(&table, "a", 1_002).as_deref(), Some("old"));
    let (questions, _) = table.questions(9, 2_000);
    table.hear(&questions[0], row("new"), 0, 2_000);
    assert_eq!(known(&table, "a", 2_001).as_deref(), Some("new"));
    assert!(table.questions(9, 9_000).0.is_empty());
}

#[test]
fn a_host_that_has_changed_is_asked_for_before_all_whose_rows_are_old() {
    let table = table();
    let hosts: Vec<String> = (0..50).map(|at| format!("h{at}")).collect();
    let mut now_ms = 1_000;
    for host in &hosts {
        let _waiting = table.look("d", host, network(1), now_ms);
        let (questions, _) = table.questions(1, now_ms);
        table.hear(&questions[0], row("t"), 0, now_ms);
        now_ms += 100;
    }
    table.outdate(None, None);
    table.outdate(Some("d"), Some("h49"));
    for host in &hosts {
        assert!(known(&table, host, now_ms).is_some());
    }
    let (questions, _) = table.questions(1, now_ms);
    assert_eq!(questions[0].host, "h49");
}

#[test]
fn where_nobody_could_say_nothing_is_asked_again_for_a_moment() {
    let table = table();
    let _waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.hear(&questions[0], RowAnswer::Down("it rests".into()), 0, 1_000);
    let rests = table.look("d", "a", network(1), 1_000);
    assert!(matches!(rests, Look::Down(DOWN_MS)), "{rests:?}");
    assert!(table.questions(9, 1_000 + DOWN_MS - 1).0.is_empty());
    let again = table.look("d", "a", network(1), 1_000 + DOWN_MS);
    assert!(matches!(again, Look::Asked(_)), "{again:?}");
}

#[test]
fn questions_keep_to_their_pace_and_who_waits_for_nothing_is_not_asked_for() {
    let table = table();
    let waiting: Vec<_> = (0..100)
        .map(|at| table.look("d", &format!("x{at}"), network(1), 1_000))
        .collect();
    let mut asked = 0;
    for ms in (1_000..2_000).step_by(10) {
        asked += table.questions(99, ms).0.len();
    }
    assert!((9..=12).contains(&asked), "{asked}");
    let other = table.look("d", "new", network(2), 2_000);
    let mut next = Vec::new();
    for ms in (2_000..2_300).step_by(50) {
        next.extend(table.questions(99, ms).0);
    }
    assert!(next.iter().any(|it| it.host == "new"), "{next:?}");
    drop((waiting, other));
    assert!(table.questions(99, 9_000).0.is_empty());
    assert_eq!(table.looks()[0].waiting, 0);
}

#[test]
fn whoever_is_asked_when_the_link_ends_is_asked_again() {
    let table = table();
    let waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.note_linked(false);
    let Look::Asked(waiting) = waiting else {
        panic!("{waiting:?}");
    };
    assert!(waiting.has_changed().is_err());
    table.hear(&questions[0], row("late"), 0, 1_001);
    let again = table.look("d", "a", network(1), 1_002);
    assert!(matches!(again, Look::Asked(_)));
    assert!(
        table.questions(9, 5_000).0.is_empty(),
        "there is nobody to ask"
    );
    table.note_linked(true);
    assert_eq!(table.questions(9, 6_000).0.len(), 1);
}

#[test]
fn that_there_is_no_row_is_remembered_for_as_long_as_the_directory_says() {
    let table = table();
    let _waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.hear(&questions[0], RowAnswer::Missing, 0, 1_000);
    assert_eq!(known(&table, "a", 10_999).as_deref(), Some("missing"));
    assert_eq!(table.questions(9, 10_999), (Vec::new(), None));
    let again = table.look("d", "a", network(1), 11_000);
    assert!(matches!(again, Look::Asked(_)), "it is asked for again");
    assert_eq!(table.questions(9, 11_000).0.len(), 1);
}

#[test]
fn names_are_forgotten_when_there_is_no_room_and_those_used_last() {
    let table = table();
    let text = "x".repeat(1_000);
    let (mut now_ms, mut bytes) = (1_000, 0);
    for at in 0..500 {
        let host = format!("x{at}");
        let _waiting = table.look("d", &host, network(1), now_ms);
        let (questions, _) = table.questions(1, now_ms);
        table.hear(&questions[0], row(&text), 0, now_ms);
        now_ms += 100;
        bytes = bytes.max(table.looks()[0].bytes);
        if at > 0 {
            assert!(
                known(&table, "x0", now_ms).is_some(),
                "it is used all the time"
            );
        }
    }
    assert!(bytes < BYTES_MAX + 2_000, "{bytes}");
    let look = &table.looks()[0];
    assert!((20..60).contains(&look.hosts), "{look:?}");
}

#[test]
fn names_that_are_made_up_push_no_known_row_out() {
    let table = table();
    let (text, mut now_ms) = ("x".repeat(500), 1_000);
    for at in 0..40 {
        let host = format!("known{at}");
        let _waiting = table.look("d", &host, network(1), now_ms);
        let (questions, _) = table.questions(1, now_ms);
        table.hear(&questions[0], row(&text), 0, now_ms);
        now_ms += 100;
    }
    let hosts = table.looks()[0].hosts;
    for at in 0..20_000 {
        // Whoever came for it has gone before it was asked for, or is told that there is no row, or nothing.
        let waiting = table.look("d", &format!("junk{at}"), network(2), now_ms);
        if at % 10 > 0 {
            drop(waiting);
        }
        for question in table.questions(1, now_ms).0 {
            let answer = match at % 20 {
                0 => RowAnswer::Missing,
                _ => RowAnswer::Down("it rests".into()),
            };
            table.hear(&question, answer, 0, now_ms);
        }
        now_ms += 10;
        assert!(table.looks()[0].bytes < BYTES_MAX + 2_000);
    }
    let look = &table.looks()[0];
    assert!(look.hosts > hosts, "some of them are remembered");
    for at in 0..40 {
        let known = known(&table, &format!("known{at}"), now_ms);
        assert_eq!(known.as_deref(), Some(&*text), "{at}");
    }
}

#[test]
fn whoever_is_not_asked_for_in_time_is_told_apart_from_who_got_no_answer() {
    let table = table();
    let waiting: Vec<_> = ["a", "b"]
        .map(|host| table.look("d", host, network(1), 1_000))
        .into();
    assert_eq!(table.questions(1, 1_000).0.len(), 1);
    assert!(matches!(table.give_up("d", "a", 2_000), GaveUp::Down));
    assert!(matches!(table.give_up("d", "b", 2_000), GaveUp::Busy));
    let counters = table.looks()[0].counters;
    assert_eq!((counters.gave_up, counters.busy), (1, 1));
    drop(waiting);
    table.note_linked(false);
    let _waiting = table.look("d", "c", network(1), 2_000);
    let gave_up = table.give_up("d", "c", 3_000);
    assert!(matches!(gave_up, GaveUp::Down), "there is nobody to ask");
}

#[test]
fn a_row_that_has_gone_stays_gone_while_nobody_can_be_asked() {
    let table = table();
    let waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.hear(&questions[0], row("t"), 0, 1_000);
    table.outdate(Some("d"), Some("a"));
    assert_eq!(known(&table, "a", 2_000).as_deref(), Some("t"));
    let (questions, _) = table.questions(9, 2_000);
    table.hear(&questions[0], RowAnswer::Missing, 0, 2_000);
    drop(waiting);
    // The source is down, or slow, or the process that asks it is.
    let later_ms = 20_000;
    let again = table.look("d", "a", network(1), later_ms);
    assert!(matches!(again, Look::Asked(_)), "it may have come back");
    let (questions, _) = table.questions(9, later_ms);
    table.hear(&questions[0], RowAnswer::Down("it is".into()), 0, later_ms);
    assert_eq!(known(&table, "a", later_ms + 1).as_deref(), Some("missing"));
    let later_ms = later_ms + RETRY_MS;
    let _waiting = table.look("d", "a", network(1), later_ms);
    let gave_up = table.give_up("d", "a", later_ms + 1_000);
    assert!(matches!(gave_up, GaveUp::Known(_)), "{gave_up:?}");
    assert_eq!(
        known(&table, "a", later_ms + 1_001).as_deref(),
        Some("missing")
    );
    // It does so as long as `stale` says.
    let later_ms = later_ms + 8 * 24 * 3_600_000;
    let _waiting = table.look("d", "a", network(1), later_ms);
    let gave_up = table.give_up("d", "a", later_ms);
    assert!(
        matches!(gave_up, GaveUp::Down | GaveUp::Busy),
        "{gave_up:?}"
    );
}

#[test]
fn a_row_that_is_too_old_is_not_served_because_its_source_is_down() {
    let table = table();
    let _waiting = table.look("d", "a", network(1), 1_000);
    let (questions, _) = table.questions(9, 1_000);
    table.hear(&questions[0], row("t"), 0, 1_000);
    let later_ms = 8 * 24 * 3_600_000;
    let _waiting = table.look("d", "a", network(1), later_ms);
    let (questions, _) = table.questions(9, later_ms);
    table.hear(&questions[0], RowAnswer::Down("it is".into()), 0, later_ms);
    assert_eq!(known(&table, "a", later_ms + 1), None);
}
