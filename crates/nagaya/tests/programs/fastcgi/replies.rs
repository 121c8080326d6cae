//! What becomes of what a responder says, however hostile.

use std::time::Duration;

use testkit::client::{Body, reply};
use testkit::fastcgi::{end, kind, printed, record, record_of};
use testkit::{FastCgiResponder, Outcome, RawClient, Reply, Step, eventually};

use super::{
    CONFIG, LONG, PAGE, PATIENCE, assert_page, builder, builder_of, gateway, get, let_settle, post,
    says, stdout,
};

/// What a program prints, and the status, some fields and the body that come of it.
type Printed = (
    &'static str,
    u16,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const PRINTED: &[Printed] = &[
    (
        "Content-Type: a/b\n\nx",
        200,
        &[("Content-Type", "a/b")],
        "x",
    ),
    (
        "Status: 404 Nothing\r\nX-A: 1\r\n\r\nno",
        404,
        &[("X-A", "1")],
        "no",
    ),
    (
        "Location: /there\r\n\r\n",
        302,
        &[("Location", "/there")],
        "",
    ),
    (
        "Status: 301\r\nLocation: http://a/\r\n\r\n",
        301,
        &[("Location", "http://a/")],
        "",
    ),
    (
        "Content-Length: 3\r\n\r\nabc",
        200,
        &[("Content-Length", "3")],
        "abc",
    ),
    (
        "X-Accel-Redirect: /s\r\nX-Sendfile: /s\r\nX-B: 2\r\n\r\n",
        200,
        &[("X-B", "2")],
        "",
    ),
    (
        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        200,
        &[],
        "abc",
    ),
    ("\r\n", 200, &[], ""),
];

#[test]
fn a_reply_is_its_status_its_fields_and_its_body() {
    for (output, status, fields, body) in PRINTED {
        for cut in [1, 7, output.len()] {
            let records: Vec<u8> = output.as_bytes().chunks(cut).flat_map(stdout).collect();
            let responder = says([records, end(0)].concat());
            let gateway = gateway(&responder);
            let mut client = gateway.client();
            for _ in 0..2 {
                client.send(&get("/x.php"));
                let answer = reply(client.read_reply(Body::Framed));
                assert_eq!(
                    (answer.status, answer.body.as_slice()),
                    (*status, body.as_bytes())
                );
                for (name, value) in *fields {
                    assert_eq!(answer.head.field(name), Some(*value), "{output:?}");
                }
                for name in ["X-Accel-Redirect", "X-Sendfile", "Connection", "Status"] {
                    assert_eq!(answer.head.field(name), None, "{output:?}");
                }
                assert!(answer.complete);
            }
            assert_eq!(
                responder.connections(),
                1,
                "{output:?} leaves the connection usable"
            );
        }
    }
}

#[test]
fn a_short_page_is_sent_with_its_length() {
    let responder = says(printed(PAGE));
    let answer = reply(gateway(&responder).ask(&get("/x.php")));
    assert_eq!(answer.head.field("Content-Length"), Some("5"));
}

#[test]
fn to_head_and_http_1_0_no_more_is_said_than_they_understand() {
    let responder = says(printed(b"Content-Length: 5\r\n\r\n"));
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    client.send(b"HEAD /x.php HTTP/1.1\r\nHost: app.test\r\n\r\n");
    let answer = reply(client.read_reply(Body::Never));
    assert_eq!(
        (answer.status, answer.head.field("Content-Length")),
        (200, Some("5"))
    );
    client.send(b"HEAD /x.php HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(reply(client.read_reply(Body::Never)).status, 200);
    let streamed = FastCgiResponder::start(|_| {
        let late = Duration::from_millis(1);
        vec![Step::Drip(printed(PAGE), 30, late)]
    });
    let gateway = self::gateway(&streamed);
    let answer = reply(gateway.ask(b"GET /x.php HTTP/1.0\r\nHost: app.test\r\n\r\n"));
    assert_eq!(answer.body, b"hello");
    assert_eq!(answer.head.field("Transfer-Encoding"), None);
}

#[test]
fn what_a_script_has_made_head_of_comes_without_a_body() {
    let asks = "  scripts = { access = { code = \"Nginx::Request.new.method = 'HEAD'\" } }";
    let config = CONFIG.replacen(
        "  [[sites.rules]]",
        &format!("{asks}\n  [[sites.rules]]"),
        1,
    );
    let config = format!("{config}\n[scripts]\ncpu = \"1s\"\n");
    for said in [
        "Content-Length: 5\r\n\r\n",
        "Content-Length: 5\r\n\r\nhello",
    ] {
        let responder = says(printed(said.as_bytes()));
        let gateway = builder_of(&config, &responder, "", 8).start();
        let answer = reply(gateway.ask(&get("/x.php")));
        assert!(answer.complete && answer.body.is_empty(), "{said}");
        assert_eq!(
            (answer.status, answer.head.field("Content-Length")),
            (200, Some("0"))
        );
    }
}

/// What comes of a reply that is not as it should be: the client's view, and that the connection
/// is not used again.
fn check_hostile(name: &str, said: &[u8], closes: bool, expected: impl Fn(&Outcome) -> bool) {
    let (said, page) = (said.to_vec(), printed(PAGE));
    let responder = FastCgiResponder::start(move |call| match (call.connection, closes) {
        (0, true) => vec![Step::Send(said.clone()), Step::Close],
        (0, false) => vec![Step::Send(said.clone()), Step::Idle(PATIENCE)],
        _ => vec![Step::Send(page.clone())],
    });
    let gateway = gateway(&responder);
    let outcome = gateway.ask(&post("a body, so that it is not tried again"));
    assert!(expected(&outcome), "{name}: {outcome:?}");
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(
        responder.connections(),
        2,
        "{name}: the connection was used again"
    );
    assert_eq!(responder.take_calls().len(), 2, "{name}");
}

fn is_502(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Reply(answer) if answer.status == 502 && answer.complete)
}

/// A reply that began and did not end, as the client must be able to see.
fn is_cut(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Reply(Reply {
            status, complete, ..
        }) => *status == 200 && !complete,
        Outcome::Eof | Outcome::Reset => true,
        _ => false,
    }
}

#[test]
fn a_reply_that_is_none_is_502_and_its_connection_is_not_used_again() {
    let table: &[(&str, Vec<u8>)] = &[
        ("another version", record_of(2, kind::STDOUT, 1, PAGE, 0)),
        ("another request's", record_of(1, kind::STDOUT, 2, PAGE, 0)),
        ("nobody's", record_of(1, kind::STDOUT, 0, PAGE, 0)),
        ("an unknown type", record(11, &[0; 8], 0)),
        ("a request's record", record(kind::PARAMS, b"", 0)),
        (
            "HTTP",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        ("an end that is none", record(kind::END, &[0; 7], 0)),
        ("an unknown status", end(9)),
        ("no head", printed(b"")),
        ("no blank line", printed(b"Content-Type: a/b\r\n")),
        (
            "no blank line, no end of line",
            printed(b"Content-Type: a/b"),
        ),
        ("a status line", printed(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n")),
        ("a bad status", printed(b"Status: twohundred\r\n\r\n")),
        (
            "an interim status",
            printed(b"Status: 100 Continue\r\n\r\n"),
        ),
        ("a split name", printed(b"A b: c\r\n\r\n")),
        ("a folded line", printed(b"A: b\r\n c\r\n\r\n")),
        ("a carriage return", printed(b"A: b\rSet-Cookie: x\r\n\r\n")),
        ("a NUL", printed(b"A: b\0\r\n\r\n")),
        (
            "two lengths",
            printed(b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na"),
        ),
        (
            "a length that is none",
            printed(b"Content-Length: x\r\n\r\na"),
        ),
        ("an endless head", printed(vec![b'a'; 200_000])),
        ("a refusal to multiplex", end(1)),
        ("a refusal of the role", end(3)),
    ];
    for (name, said) in table {
        check_hostile(name, said, false, is_502);
    }
}

#[test]
fn a_reply_that_breaks_off_is_502_or_cut() {
    let head = stdout(b"Content-Type: a/b\r\n\r\n");
    check_hostile("nothing", b"", true, is_502);
    check_hostile("half a header", &head[..5], true, is_502);
    check_hostile("half a head", &stdout(b"Content-Type: a"), true, is_502);
    check_hostile("a head, no end", &head, true, is_cut);
    check_hostile("half a record", &stdout(PAGE)[..24], true, is_502);
    let body = [&head[..], &stdout(b"some"), &stdout(&[b'x'; 100])[..50]].concat();
    check_hostile("half a body", &body, true, is_cut);
    let short = [stdout(b"Content-Length: 9\r\n\r\nshort"), end(0)].concat();
    check_hostile("a body shorter than said", &short, false, is_cut);
    let late = [&head[..], &end(2)].concat();
    check_hostile("a refusal after the head", &late, false, is_cut);
    let wrong = [
        &head[..],
        &stdout(b"some"),
        &record_of(1, kind::STDOUT, 3, b"x", 0),
    ]
    .concat();
    check_hostile("another's record after the head", &wrong, false, is_cut);
}

#[test]
fn what_follows_the_end_is_nobodys_and_ends_the_connection() {
    let whole = |outcome: &Outcome| matches!(outcome, Outcome::Reply(answer) if answer.body == b"hello" && answer.complete);
    let forged = printed(b"Content-Type: text/plain\r\n\r\nforged");
    check_hostile("late data", &[printed(PAGE), forged].concat(), false, whole);
    check_hostile(
        "a late byte",
        &[printed(PAGE), vec![0]].concat(),
        false,
        whole,
    );
    let long = printed(b"Content-Length: 5\r\n\r\nhello, and more than was said");
    check_hostile("more than was said", &long, false, whole);
}

#[test]
fn what_comes_while_nothing_was_asked_answers_nobody() {
    let responder = FastCgiResponder::start(|call| {
        let forged = printed(b"Content-Type: text/plain\r\n\r\nforged");
        let length = forged.len();
        match call.connection {
            0 => vec![
                Step::Send(printed(PAGE)),
                Step::Drip(forged, length, Duration::from_millis(1)),
            ],
            _ => vec![Step::Send(printed(PAGE))],
        }
    });
    let gateway = gateway(&responder);
    assert_page(gateway.ask(&get("/x.php")));
    let_settle();
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.connections(), 2);
}

#[test]
fn an_overloaded_responder_is_503() {
    let responder = says(end(2));
    let answer = reply(gateway(&responder).ask(&get("/x.php")));
    assert_eq!(
        (answer.status, answer.head.field("Retry-After")),
        (503, Some("1"))
    );
}

#[test]
fn a_silent_responder_is_504() {
    let responder = FastCgiResponder::start(|_| vec![Step::Idle(Duration::from_secs(60))]);
    let config = CONFIG.replace("{silence}", "2s");
    let gateway = builder_of(&config, &responder, "", 8).start();
    assert_eq!(reply(gateway.ask(&get("/x.php"))).status, 504);
    eventually(PATIENCE, "the connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
}

#[test]
fn padding_of_any_length_is_no_content() {
    let padded = [
        record(kind::STDOUT, b"Content-Type: a/b\r\n", 255),
        record(kind::STDERR, b"", 255),
        record(kind::STDOUT, b"\r\nhel", 1),
        record(kind::STDOUT, b"lo", 7),
        record(kind::STDOUT, b"", 255),
        record(kind::END, &[0; 8], 255),
    ]
    .concat();
    let responder = says(padded);
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    for _ in 0..3 {
        client.send(&get("/x.php"));
        assert_page(client.read_reply(Body::Framed));
    }
    assert_eq!(responder.connections(), 1);
}

#[test]
fn errors_go_to_the_log_escaped_and_capped_and_not_to_the_client() {
    let flood: Vec<u8> = (0..500)
        .flat_map(|line| record(kind::STDERR, format!("flood {line}\n").as_bytes(), 0))
        .collect();
    let said = [
        record(kind::STDERR, b"PHP Warning: \x1b[31mred\nsecond ", 3),
        stdout(PAGE),
        record(kind::STDERR, b"line\n", 0),
        flood,
        end(0),
    ]
    .concat();
    let responder = says(said);
    let gateway = gateway(&responder);
    assert_page(gateway.ask(&get("/x.php")));
    gateway.wait_for_message("second line");
    gateway.wait_for_message("flood 0");
    gateway.wait_for_message("was cut");
    let log = gateway.stderr();
    assert!(!log.contains('\x1b'), "{log}");
    assert!(!log.contains("flood 499"));
}

#[test]
fn a_long_reply_streams_behind_the_cap() {
    const BYTES: usize = 8 << 20;
    let large = printed([PAGE, &vec![b'x'; BYTES]].concat());
    let responder = says(large);
    let gateway = builder(&responder, r#"buffer_reply = "64KiB""#).start();
    let mut slow = RawClient::connect_narrow(gateway.address()).with_deadline(LONG);
    slow.send(&get("/x.php"));
    let answer = reply(slow.read_reply(Body::Framed));
    assert!(answer.complete && answer.body.len() == BYTES + 5);
}
