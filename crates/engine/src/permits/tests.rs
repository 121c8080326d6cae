//! Limits on the way of a request, with exchanges in memory and a handler that is held.

mod told;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use config::Sources;
use ipc::console::RequestState;
use tokio::task::{JoinHandle, spawn_local, yield_now};

use crate::exchange::{Exchange, ProgramUse};
use crate::fixture::{self, Fixture, block_on, generation_after, peer, reply};
use crate::generation::Generation;
use crate::permits::{holders, questions};
use crate::pipeline::tests::{LARGE, read_beginning, release_one};
use crate::pipeline::{self};

/// Turns of the runtime within which what is ready has happened.
const TURNS: usize = 100;

const SITES: &str = r#"
[[listen]]
address = "127.0.0.1:8080"
[log]
access = "-"
format = "json"
{process}
[[sites]]
hosts = ["a"]
tenant = "one"
{site}
rules = [{ {rule} handler = { respond = { status = 200, body = "fine" } } }]
[[sites]]
hosts = ["b"]
tenant = "two"
rules = [{ handler = { respond = { status = 200, body = "fine" } } }]
"#;

/// A configuration with limits of the process, the site and the rule.
fn config(process: &str, site: &str, rule: &str) -> String {
    let of = |limits: &str| match limits {
        "" => String::new(),
        some => format!("limits = [{some}]"),
    };
    let rule = match rule {
        "" => String::new(),
        some => format!("limits = [{some}], "),
    };
    let (first, rest) = SITES.split_once("[[listen]]").expect("a listener");
    let text = format!("{first}{}\n[[listen]]{rest}", of(process));
    text.replace("{process}", "")
        .replace("{site}", &of(site))
        .replace("{rule}", &rule)
}

fn fixture(process: &str, site: &str, rule: &str) -> Fixture {
    Fixture::new(&config(process, site, rule))
}

/// Exchanges under way on one fixture.
struct Crowd<'a> {
    fixture: &'a Fixture,
    under_way: Vec<JoinHandle<Exchange>>,
    /// In the order in which they ended.
    ended: Rc<RefCell<Vec<String>>>,
}

impl<'a> Crowd<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        Self {
            fixture,
            under_way: Vec::new(),
            ended: Rc::default(),
        }
    }

    /// Begins a request and lets it come as far as it can.
    async fn ask(&mut self, client: &str, host: &str, path: &str) {
        let (worker, ended) = (Rc::clone(&self.fixture.worker), Rc::clone(&self.ended));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: id={path}\r\n\r\n");
        let mut exchange = fixture::exchange(peer(&format!("{client}:40000")), &request);
        let path = path.to_owned();
        self.under_way.push(spawn_local(async move {
            pipeline::serve(&worker, &mut exchange)
                .await
                .expect("memory takes all");
            ended.borrow_mut().push(path);
            exchange
        }));
        settle().await;
    }

    /// Lets those that are held go on, one after the other, and waits for all.
    async fn finish(self) -> Vec<(u16, Vec<String>, String)> {
        while !self.under_way.iter().all(JoinHandle::is_finished) {
            release_one();
            settle().await;
        }
        let mut replies = Vec::new();
        for exchange in self.under_way {
            replies.push(reply(&exchange.await.expect("it ends")));
        }
        replies
    }
}

/// Lets everything happen that can without time passing.
async fn settle() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}

fn statuses(replies: &[(u16, Vec<String>, String)]) -> Vec<u16> {
    replies.iter().map(|(status, _, _)| *status).collect()
}

/// Nothing is held and nobody waits.
fn check_quiet(fixture: &Fixture) {
    let limiter = &fixture.shared.limits;
    let now = limiter.time(std::time::Instant::now());
    for gate in limiter.ledger.look(now, None, 100) {
        assert_eq!((gate.in_flight, gate.queued), (0, 0), "{gate:?}");
    }
    assert_eq!(limiter.ledger.drift(), 0);
}

fn field(reply: &(u16, Vec<String>, String), name: &str) -> Option<String> {
    let lines = reply.1.iter().filter_map(|line| line.split_once(": "));
    let mut found = lines.filter(|(field, _)| *field == name);
    found.next().map(|(_, value)| value.to_owned())
}

/// Sends so many requests for a page that takes its time, at once.
fn together(fixture: &Fixture, count: usize) -> Vec<(u16, Vec<String>, String)> {
    block_on(async {
        let mut crowd = Crowd::new(fixture);
        for _ in 0..count {
            crowd.ask("192.0.2.7", "a", "/hold").await;
        }
        crowd.finish().await
    })
}

#[test]
fn of_three_at_once_two_pass_and_the_third_is_told_when_to_come_back() {
    let fixture = fixture("", r#"{ key = "file", concurrent = 2 }"#, "");
    let replies = together(&fixture, 3);
    assert_eq!(statuses(&replies), [200, 200, 503]);
    let seconds: u64 = field(&replies[2], "Retry-After").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    let id = field(&replies[2], "X-Request-Id").unwrap();
    assert!(replies[2].2.contains("limit_full") && replies[2].2.contains(&id));
    check_quiet(&fixture);
    assert_eq!(statuses(&together(&fixture, 2)), [200, 200]);
}

#[test]
fn those_that_may_wait_are_served_in_the_order_they_came() {
    let limit = r#"{ key = "site", concurrent = 2, queue = 8, wait = "600s" }"#;
    let fixture = fixture("", limit, "");
    block_on(async {
        let mut crowd = Crowd::new(&fixture);
        let paths: Vec<String> = (0..10).map(|nth| format!("/hold/{nth}")).collect();
        for path in &paths {
            crowd.ask("192.0.2.7", "a", path).await;
        }
        crowd.ask("192.0.2.7", "a", "/hold/refused").await;
        let ended = Rc::clone(&crowd.ended);
        let replies = crowd.finish().await;
        assert_eq!(statuses(&replies)[..10], [200; 10]);
        assert!(replies[10].2.contains("limit_queue_full"), "{replies:?}");
        assert_eq!(ended.borrow()[1..], paths);
    });
    check_quiet(&fixture);
}

#[test]
fn requests_at_a_limit_are_listed_for_a_recorder_until_they_have_ended() {
    let limit = r#"{ key = "site", concurrent = 1, queue = 8, wait = "600s" }"#;
    let text = config("", limit, "");
    for has_recorder in [false, true] {
        let recorder = match has_recorder {
            true => "[recorder]\ndirectory = \"/var/lib/figures\"\n",
            false => "",
        };
        let fixture = Fixture::new(&format!("{text}{recorder}"));
        let listed = |limit| {
            let told = holders::oldest(&fixture.shared, limit, Instant::now());
            let told = told.into_iter().map(|it| (it.site, it.path, it.state));
            told.collect::<Vec<_>>()
        };
        block_on(async {
            let mut crowd = Crowd::new(&fixture);
            crowd.ask("192.0.2.7", "a", "/hold/1?secret").await;
            crowd.ask("192.0.2.7", "a", "/hold/2").await;
            let of = |path: &str, state| ("a".to_owned(), path.to_owned(), state);
            let expected = [
                of("/hold/1", RequestState::Answering),
                of("/hold/2", RequestState::Waiting),
            ];
            let expected = if has_recorder { &expected[..] } else { &[] };
            let generation = fixture.shared.generation().expect("one is in force");
            assert_eq!(listed(None), expected);
            assert_eq!(listed(generation.limits.id(0)), expected);
            assert_eq!(statuses(&crowd.finish().await), [200, 200]);
        });
        assert_eq!(listed(None), []);
    }
}

#[test]
fn a_request_passes_all_its_limits_or_takes_nothing_of_any() {
    let fixture = fixture(
        r#"{ concurrent = 3 }"#,
        r#"{ concurrent = 2 }"#,
        r#"{ key = "path", concurrent = 1 }"#,
    );
    block_on(async {
        let mut crowd = Crowd::new(&fixture);
        for (host, path) in [
            ("a", "/hold/1"),
            ("a", "/hold/1"),
            ("a", "/hold/2"),
            ("a", "/hold/3"),
            ("b", "/hold/4"),
            ("b", "/hold/5"),
        ] {
            crowd.ask("192.0.2.7", host, path).await;
        }
        let replies = crowd.finish().await;
        assert_eq!(statuses(&replies), [200, 503, 200, 503, 200, 503]);
    });
    let records = fixture.records();
    for limit in ["rule a/rule 1/path", "site a/site", "process/process"] {
        let found = format!("\"limit\":\"{limit}\"");
        assert_eq!(records.matches(&found).count(), 1, "{limit}: {records}");
    }
    check_quiet(&fixture);
}

#[test]
fn requests_that_come_too_fast_are_refused_before_anything_is_asked() {
    let fixture = fixture("", r#"{ rate = "1/d", burst = 2 }"#, "");
    let replies = together(&fixture, 3);
    assert_eq!(statuses(&replies), [200, 200, 503]);
    assert!(replies[2].2.contains("limit_rate"));
    assert_eq!(field(&replies[2], "Retry-After").unwrap(), "3600");
}

#[test]
fn a_limit_by_client_blames_the_client_and_spares_the_others() {
    let fixture = fixture("", r#"{ key = "client", concurrent = 1 }"#, "");
    block_on(async {
        let mut crowd = Crowd::new(&fixture);
        for client in [
            "192.0.2.7",
            "192.0.2.7",
            "192.0.2.8",
            "[2001:db8::1]",
            "[2001:db8::2]",
        ] {
            crowd.ask(client, "a", "/hold").await;
        }
        let replies = crowd.finish().await;
        assert_eq!(statuses(&replies), [200, 429, 200, 200, 429]);
    });
}

#[test]
fn who_leaves_out_what_a_key_is_made_of_escapes_nothing() {
    let fixture = fixture(
        "",
        r#"{ key = ["cookie:id", "header:x-api-key"], concurrent = 1 }"#,
        "",
    );
    block_on(async {
        let mut crowd = Crowd::new(&fixture);
        for path in ["/hold/1", "/hold/1", "/hold/2"] {
            crowd.ask("192.0.2.7", "a", path).await;
        }
        assert_eq!(statuses(&crowd.finish().await), [200, 429, 200]);
    });
}

#[test]
fn a_limit_counts_what_matches_it_while_it_holds() {
    for (limit, expected) in [
        (r#"{ concurrent = 1, match = { path = "/hold*" } }"#, 503),
        (r#"{ concurrent = 1, match = { path = "/other" } }"#, 200),
        (r#"{ concurrent = 1, when = "daily" }"#, 503),
    ] {
        let fixture = fixture("", limit, "");
        assert_eq!(statuses(&together(&fixture, 2)), [200, expected], "{limit}");
        check_quiet(&fixture);
    }
}

#[test]
fn a_panic_and_a_client_that_leaves_hold_nothing() {
    let fixture = fixture("", r#"{ concurrent = 2, queue = 8, wait = "600s" }"#, "");
    block_on(async {
        let mut crowd = Crowd::new(&fixture);
        for path in ["/hold/panic", "/hold/a", "/hold/b", "/hold/c"] {
            crowd.ask("192.0.2.7", "a", path).await;
        }
        // One that holds a permit and one that waits for one.
        for left in [1, 2] {
            crowd.under_way[left].abort();
        }
        settle().await;
        let left = crowd.under_way.split_off(2).pop().expect("the last");
        release_one();
        release_one();
        assert_eq!(reply(&left.await.expect("it ends")).0, 200);
        assert_eq!(
            reply(&crowd.under_way.remove(0).await.expect("it ends")).0,
            500
        );
    });
    check_quiet(&fixture);
}

#[test]
fn a_client_that_does_not_read_on_holds_no_permit() {
    let text = config("", "{ concurrent = 1 }", "");
    let fixture = Fixture::new(&text.replace("fine", &"x".repeat(LARGE)));
    let client = block_on(async {
        let client = read_beginning(&fixture).await;
        check_quiet(&fixture);
        client
    });
    drop(client);
}

#[test]
fn a_reload_keeps_counts_and_a_lowered_limit_evicts_nobody() {
    let limit = |count| config("", &format!("{{ concurrent = {count} }}"), "");
    let fixture = Fixture::new(&limit(3));
    block_on(async {
        let mut crowd = Crowd::new(&fixture);
        for _ in 0..3 {
            crowd.ask("192.0.2.7", "a", "/hold").await;
        }
        let before = fixture.worker.serving();
        fixture.reload(generation_after(&before.generation, &limit(2)));
        crowd.ask("192.0.2.7", "a", "/hold").await;
        release_one();
        settle().await;
        crowd.ask("192.0.2.7", "a", "/hold").await;
        release_one();
        settle().await;
        crowd.ask("192.0.2.7", "a", "/hold").await;
        assert_eq!(
            statuses(&crowd.finish().await),
            [200, 200, 200, 503, 503, 200]
        );
    });
    check_quiet(&fixture);
}

/// The first limit, as `limits list json` has it.
fn listed(fixture: &Fixture) -> String {
    let list = questions::answer(&fixture.shared, "limits list json").expect("an answer");
    let end = list.find(",\"keys\"").expect("a limit");
    list[..end].to_owned()
}

/// Asks what has to be answered without an error.
fn ask(fixture: &Fixture, question: &str) -> String {
    let answer = questions::answer(&fixture.shared, question).expect("an answer");
    assert!(!answer.starts_with("error: "), "{question}: {answer}");
    answer
}

#[test]
fn what_is_kept_is_told_with_its_line_and_forgotten_again() {
    let fixture = fixture("", r#"{ key = "path", concurrent = 1 }"#, "");
    ask(&fixture, "limits set site a/path queue=3 concurrent=2");
    let answer = ask(&fixture, "limits kept /etc/o:7\tsite a/path\tconcurrent=2");
    assert!(
        answer.contains("concurrent 2, queue 3") && answer.contains("configured: concurrent 1")
    );
    // The queue was set, and is not kept.
    assert!(listed(&fixture).contains("\"from\":\"set, /etc/o:7\""));
    let list = ask(&fixture, "limits list");
    let told = list
        .lines()
        .nth(1)
        .is_some_and(|line| line.ends_with("  set; kept, line 7"));
    assert!(told && list.ends_with("\nkept in /etc/o\n"), "{list}");
    ask(
        &fixture,
        "limits kept /etc/o:7\tsite a/path\tconcurrent=2 queue=3",
    );
    assert!(listed(&fixture).contains("\"from\":\"/etc/o:7\""));
    assert_eq!(statuses(&together(&fixture, 2)), [200, 200]);
    // Another limit's line before this one is gone.
    ask(&fixture, "limits forget 6\tsite z/path");
    assert!(listed(&fixture).contains("\"from\":\"/etc/o:6\""));
    ask(&fixture, "limits set site a/path concurrent=5");
    let answer = ask(&fixture, "limits forget 6\tsite a/path");
    assert!(
        answer.contains("concurrent 1, as configured (was concurrent 5, queue 3"),
        "{answer}"
    );
    assert!(listed(&fixture).contains("\"from\":\"config\""));
    assert_eq!(statuses(&together(&fixture, 2)), [200, 503]);
    for order in [
        "limits kept x",
        "limits kept o:1 site a/path queue=1",
        "limits forget x\ty",
    ] {
        let answer = questions::answer(&fixture.shared, order).expect("an answer");
        assert!(answer.starts_with("error: "), "{order}: {answer}");
    }
}

#[test]
fn a_reload_leaves_what_was_set_unless_configuration_or_overrides_change_the_limit() {
    let text = |concurrent: u32| {
        let limit = format!(r#"{{ concurrent = {concurrent}, queue = 1 }}"#);
        config("", &limit, "")
    };
    let reload = |fixture: &Fixture, concurrent: u32, overrides: &str| {
        let before = fixture.worker.serving();
        let sources = Sources::from_text("test.toml", &text(concurrent));
        let sources = sources.with_overrides("/o", &format!("[limits]\n{overrides}\n"));
        let model = config::load(&sources).expect("sound");
        let generation = Generation::compile(2, &model, Some(&before.generation));
        fixture.reload(Arc::new(generation.expect("it compiles")));
    };
    let check = |fixture: &Fixture, expected: (&str, u32)| {
        let (from, concurrent) = expected;
        let listed = listed(fixture);
        let parts = [
            format!("\"from\":\"{from}\""),
            format!("\"concurrent\":{concurrent},"),
        ];
        assert!(
            parts.iter().all(|part| listed.contains(part)),
            "{expected:?}: {listed}"
        );
        assert_eq!(fixture.shared.limits.ledger.drift(), 0);
    };
    let fixture = Fixture::new(&text(2));
    ask(&fixture, "limits set site a/site concurrent=3");
    reload(&fixture, 2, "");
    check(&fixture, ("set", 3));
    ask(&fixture, "limits set site a/site concurrent=4");
    reload(&fixture, 3, "");
    check(&fixture, ("config", 3));
    ask(&fixture, "limits set site a/site concurrent=4");
    let kept = r#""site a/site" = { concurrent = 6 }"#;
    reload(&fixture, 3, kept);
    check(&fixture, ("/o:2", 6));
    ask(&fixture, "limits set site a/site queue=5");
    reload(&fixture, 3, kept);
    check(&fixture, ("set, /o:2", 6));
    reload(&fixture, 9, kept);
    check(&fixture, ("/o:2", 6));
    reload(&fixture, 9, "");
    check(&fixture, ("config", 9));
}

#[test]
fn a_change_of_something_else_leaves_auto_as_it_is() {
    let auto = r#"{ concurrent = "auto", queue = 9 }"#;
    let text = config(auto, "", "").replacen("limits", "workers = 6\nlimits", 1);
    let fixture = Fixture::new(&text);
    let generation = fixture.shared.generation().expect("one is in force");
    let configured = generation.limits.definitions()[0].clone();
    let now = || fixture.shared.limits.in_force(&configured).0;
    let ask = |question: &str| questions::answer(&fixture.shared, question).expect("an answer");
    ask("limits set process/process queue=5");
    assert_eq!((now().concurrent, now().queue), (configured.concurrent, 5));
    ask("limits set process/process concurrent=4");
    ask("limits set process/process concurrent=auto");
    assert_eq!(now().concurrent, configured.concurrent);
}

#[test]
fn what_programs_took_before_a_place_was_held_is_not_charged_again() {
    const PROGRAM: &str = "
[[listen]]
address = '127.0.0.1:1'
[[sites]]
hosts = ['a']
root = '/nowhere'
rules = [{ handler = { cgi = true } }]
";
    let fixture = Fixture::new(PROGRAM);
    let serving = fixture.worker.serving();
    let request = "GET /b.cgi HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut exchange = fixture::exchange(peer("192.0.2.7:1"), request);
    exchange.route.site_index = Some(0);
    exchange.route.add_rule(0);
    let took = |cpu_us| ProgramUse {
        cpu_us,
        peak_bytes: 0,
    };
    exchange.record.program = Some(took(5_000));
    let routed = fixture.arrived(&serving).routed(&exchange.route);
    let chosen = routed.expect("a site").chosen(&exchange.route);
    let admitted = block_on(super::admit(chosen, &mut exchange));
    admitted.expect("there is room");
    let held = exchange.held.as_ref().expect("a place");
    assert_eq!(super::charged_ns(held, took(7_000)), 2_000_000);
}
