//! How long a connection to a responder is kept, and what becomes of it when either side leaves.

use std::time::{Duration, Instant};

use testkit::client::{Body, reply};
use testkit::fastcgi::{end, printed};
use testkit::{FastCgiResponder, Gateway, Outcome, RawClient, Step, eventually};

use super::{
    CONFIG, LONG, PAGE, PATIENCE, SETTLED, assert_page, builder, builder_of, gateway, get,
    let_settle, post, says, stdout,
};

#[test]
fn who_leaves_with_the_whole_reply_has_given_up_nothing() {
    let responder = FastCgiResponder::start(|call| match call.nth {
        0 => vec![
            Step::Send(stdout(b"Content-Length: 5\r\n\r\nhello")),
            Step::Drip(end(0), 16, Duration::from_millis(500)),
        ],
        _ => vec![Step::Send(printed(PAGE))],
    });
    let logged = "[log]\naccess = \"{dir}/access.log\"\nformat = \"json\"";
    let config = CONFIG.replace("[log]", logged);
    let gateway = builder_of(&config, &responder, "", 8).start();
    assert_page(gateway.ask(&get("/x.php")));
    let log = gateway.directory().path().join("access.log");
    let record = eventually(PATIENCE, "the access record", || {
        let text = std::fs::read_to_string(&log).ok()?;
        let mut ended = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        ended
            .find(|line| line.contains("app.test"))
            .map(str::to_owned)
    });
    assert!(record.contains("\"reason\":null"), "{record}");
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.connections(), 1);
}

/// How long a connection is kept that nothing is asked on. Where a machine stood still for as long,
/// another may have taken its place.
const KEPT: Duration = Duration::from_secs(5);

#[test]
fn a_kept_connection_that_has_closed_is_replaced_where_that_is_safe() {
    // Answers once a connection and then hangs up without a word.
    let responder = FastCgiResponder::start(|call| match call.nth {
        0 => vec![Step::Send(printed(PAGE))],
        _ => vec![Step::Close],
    });
    let gateway = gateway(&responder);
    for _ in 0..3 {
        assert_page(gateway.ask(&get("/x.php")));
    }
    let begun = Instant::now();
    let_settle();
    let answer = reply(gateway.ask(&post("must not happen twice")));
    assert!(answer.status == 502 || begun.elapsed() >= KEPT);
    let calls = responder.take_calls();
    let posts = calls.iter().filter(|call| !call.stdin.is_empty());
    assert_eq!(posts.count(), 1);
}

#[test]
fn a_request_that_a_server_was_at_is_not_sent_twice() {
    // Answers once a connection, and is at the next for a while before it hangs up.
    let responder = FastCgiResponder::start(|call| match call.nth {
        0 => vec![Step::Send(printed(PAGE))],
        _ => vec![Step::Idle(Duration::from_millis(1_200)), Step::Close],
    });
    let gateway = gateway(&responder);
    assert_page(gateway.ask(&get("/x.php")));
    drop(responder.take_calls());
    let begun = Instant::now();
    let answer = reply(gateway.ask(&get("/x.php")));
    let calls = responder.take_calls().len();
    assert!((answer.status, calls) == (502, 1) || begun.elapsed() >= KEPT);
}

#[test]
fn what_must_not_happen_twice_is_not_sent_where_the_server_might_be_closing() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let begun = Instant::now();
    assert_page(gateway.ask(&get("/x.php")));
    assert_page(gateway.ask(&post("once")));
    let nth = responder.take_calls().last().map(|call| call.nth);
    // On a machine that stood still meanwhile, the connection has been idle for long enough.
    assert!(nth == Some(0) || begun.elapsed() >= SETTLED / 2);
}

#[test]
fn a_connection_that_is_kept_by_both_carries_everything() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let begun = Instant::now();
    assert_page(gateway.ask(&get("/x.php")));
    assert_page(gateway.ask(&get("/x.php")));
    let_settle();
    assert_page(gateway.ask(&post("a body")));
    assert!(responder.connections() == 1 || begun.elapsed() >= KEPT);
}

#[test]
fn without_keepalive_the_responder_is_asked_to_close() {
    let responder = FastCgiResponder::start(|_| vec![Step::Send(printed(PAGE)), Step::Close]);
    let gateway = builder_of(CONFIG, &responder, "", 0).start();
    for _ in 0..3 {
        assert_page(gateway.ask(&get("/x.php")));
        assert!(!responder.next_call().keep);
    }
    assert_eq!(responder.connections(), 3);
}

#[test]
fn who_leaves_has_the_connection_closed() {
    let responder = FastCgiResponder::start(|_| vec![Step::Idle(Duration::from_secs(60))]);
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    client.send(&get("/x.php"));
    drop(responder.next_call());
    assert_eq!(responder.open_connections(), 1);
    drop(client);
    eventually(PATIENCE, "the connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
}

#[test]
fn who_only_stops_sending_is_answered_unless_that_is_leaving() {
    for (keys, is_answered) in [("", true), ("abort_on_close = true", false)] {
        let responder = FastCgiResponder::start(|_| {
            vec![
                Step::Idle(Duration::from_secs(2)),
                Step::Send(printed(PAGE)),
            ]
        });
        let gateway = builder(&responder, keys).start();
        let mut client = gateway.client();
        client.send(&get("/x.php"));
        client.finish_sending();
        match is_answered {
            true => assert_page(client.read_reply(Body::Framed)),
            false => assert_eq!(client.read_reply(Body::Framed), Outcome::Eof),
        }
    }
}

#[test]
fn a_slow_reader_does_not_hold_the_responder() {
    /// More than sockets hold.
    const BYTES: usize = 24 << 20;
    let large = printed([PAGE, &vec![b'x'; BYTES]].concat());
    let responder = FastCgiResponder::start(move |_| vec![Step::Send(large.clone()), Step::Close]);
    let gateway = builder_of(CONFIG, &responder, "", 0).start();
    let mut slow = RawClient::connect_narrow(gateway.address()).with_deadline(LONG);
    slow.send(&get("/x.php"));
    drop(responder.next_call());
    // The responder gets rid of its reply although nobody has read it.
    eventually(LONG, "the responder to be free", || {
        (responder.open_connections() == 0).then_some(())
    });
    let answer = reply(slow.read_reply(Body::Framed));
    assert!(answer.complete && answer.body.len() == BYTES + 5);
}

#[test]
fn a_queue_that_is_full_is_503() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let directory = testkit::TempDir::new();
    let path = directory.path().join("full.sock");
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&path, mode).unwrap();
    // One may wait where none should.
    let waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", format!("unix:{}", path.display()))
        .with("keys", "")
        .with("silence", "30s")
        .with("keepalive", 8);
    builder.directory().write("site/x.php", "");
    let gateway = builder.start();
    let answer = reply(gateway.ask(&get("/x.php")));
    assert_eq!(
        (answer.status, answer.head.field("Retry-After")),
        (503, Some("1"))
    );
    gateway.wait_for_message("upstream_queue_full");
    drop(waiting);
}

#[test]
fn a_reload_without_a_server_gives_its_connections_up() {
    let responder = says(printed(PAGE));
    let mut gateway = gateway(&responder);
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.open_connections(), 1);
    // An exchange of the first generation goes on.
    let mut slow = gateway.client();
    let request = post("abc");
    slow.send(&request[..request.len() - 1]);
    gateway.reload(&CONFIG.replace("fails = 1000", "fails = 999"));
    eventually(PATIENCE, "the idle connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
    slow.send(b"c");
    assert_page(slow.read_reply(Body::Framed));
    assert_page(gateway.ask(&get("/x.php")));
}
