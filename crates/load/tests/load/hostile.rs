//! Loads against servers that are broken or mean: every end is a count, and none is a hang.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{constant, load};
use load::client::{End, Live, Outcome, Plan, RequestBuilder, Tls, Url, run};
use testkit::{ScriptedUpstream, Step};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn plan(address: SocketAddr, requests: u64) -> Plan {
    let url: Url = format!("http://{address}/").parse().expect("a URL");
    let request = RequestBuilder::default().build(&url).expect("a request");
    let mut plan = Plan::new(vec![request]);
    plan.end = End {
        after: Some(LONG),
        requests: Some(requests),
    };
    plan
}

/// The errors of an outcome, those there are.
fn errors(outcome: &Outcome) -> Vec<(&'static str, u64)> {
    let named = outcome.errors.named().into_iter();
    named.filter(|(_, count)| *count > 0).collect()
}

/// Three requests to a server that answers each with `steps` all end as this class of error.
fn check(steps: Vec<Step>, class: &'static str) {
    let upstream = ScriptedUpstream::start(move |_| steps.clone());
    let mut plan = plan(upstream.address(), 3);
    // A busy machine may take long to answer, and that is another class.
    plan.timeout = match class {
        "timeout" => Duration::from_millis(300),
        _ => LONG,
    };
    let outcome = load(&plan);
    assert_eq!(
        errors(&outcome),
        [(class, 3)],
        "{:?}",
        outcome.first_failures
    );
    assert_eq!((outcome.completed, outcome.failed()), (0, 3));
    assert_eq!(outcome.by_request[0].failed, 3);
    assert_eq!(outcome.first_failures.len(), 1);
    assert_eq!(outcome.first_failures[0].class, class);
}

fn send(text: impl Into<String>) -> Step {
    Step::Send(text.into().into_bytes())
}

#[test]
fn replies_that_cannot_be_trusted_are_framing_errors() {
    let head = "HTTP/1.1 200 OK\r\n";
    for reply in [
        "garbage before HTTP/1.1 200 OK\r\n\r\n".to_owned(),
        format!("{head}Content-Length: 5x\r\n\r\nhello"),
        format!("{head}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
        format!("{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\nx\r\n"),
        format!("{WHOLE}{WHOLE}"),
        format!("{WHOLE}x"),
        "HTTP/1.1 100 Continue\r\n\r\n".repeat(20),
        "HTTP/1.1 101 Switching\r\n\r\n".to_owned(),
    ] {
        check(vec![send(reply), Step::Idle(LONG)], "framing");
    }
}

#[test]
fn a_head_without_end_is_a_framing_error() {
    let endless = format!(
        "HTTP/1.1 200 OK\r\n{}",
        "X-Filling: something\r\n".repeat(5_000)
    );
    check(vec![send(endless), Step::Idle(LONG)], "framing");
}

#[test]
fn an_early_end_is_told_from_a_whole_reply() {
    check(vec![Step::Close], "closed");
    check(
        vec![send("HTTP/1.1 200 OK\r\nContent-"), Step::Close],
        "closed",
    );
    check(
        vec![
            send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"),
            Step::Close,
        ],
        "closed",
    );
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    check(vec![send(chunked), Step::Close], "closed");
}

#[test]
fn silence_is_a_timeout() {
    check(vec![Step::Idle(LONG)], "timeout");
    check(
        vec![send("HTTP/1.1 200 OK\r\n"), Step::Idle(LONG)],
        "timeout",
    );
}

#[test]
fn a_body_without_end_is_given_up_though_it_keeps_coming() {
    let body = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100_000));
    let steps = vec![Step::Drip(body.into_bytes(), 1, Duration::from_millis(2))];
    let upstream = ScriptedUpstream::start(move |_| steps.clone());
    let mut plan = plan(upstream.address(), 1);
    plan.timeout = Duration::from_secs(1);
    let outcome = load(&plan);
    assert_eq!(errors(&outcome), [("timeout", 1)]);
    assert!(outcome.received_bytes > 0);
}

#[test]
fn a_flood_ends_with_the_load() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let flood = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("the load connects");
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while client.write_all(&[b'x'; 65536]).is_ok() {}
    });
    let mut plan = plan(address, u64::MAX);
    plan.end.after = Some(Duration::from_secs(1));
    let outcome = load(&plan);
    assert_eq!(
        (outcome.completed, outcome.failed(), outcome.cut),
        (0, 0, 1)
    );
    assert!(outcome.received_bytes > 65536);
    flood.join().expect("the load has closed the connection");
}

#[test]
fn a_reset_is_told_from_a_close() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = std::thread::spawn(move || {
        for _ in 0..3 {
            let (mut client, _) = listener.accept().expect("the load connects");
            // The request is there, and closing with something unread resets the connection.
            let _ = client.peek(&mut [0; 16]);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell");
        }
    });
    let outcome = load(&plan(address, 3));
    assert_eq!(
        errors(&outcome),
        [("reset", 3)],
        "{:?}",
        outcome.first_failures
    );
    server.join().expect("it served three");
}

#[test]
fn a_drip_is_slow_but_whole() {
    let drip = Step::Drip(WHOLE.into(), 1, Duration::from_millis(1));
    let upstream = ScriptedUpstream::start(move |_| vec![drip.clone()]);
    let outcome = load(&plan(upstream.address(), 3));
    assert_eq!((outcome.completed, outcome.failed()), (3, 0));
    assert_eq!((outcome.body_bytes, outcome.on_kept_connections), (15, 2));
}

#[test]
fn a_refusing_server_is_asked_again_and_again_but_not_in_a_busy_loop() {
    let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let mut plan = plan(address, u64::MAX);
    plan.connections = 4;
    plan.end.after = Some(Duration::from_millis(500));
    let outcome = load(&plan);
    let [("connect", count)] = errors(&outcome)[..] else {
        panic!("{:?}", outcome.errors);
    };
    // Rests of 1, 2, 4 … 64 ms leave room for 14 attempts of each connection.
    assert!((4..=4 * 15).contains(&count), "{count}");
    let failure = &outcome.first_failures[0];
    assert!(
        failure.errno.is_some() && failure.text.contains("refused"),
        "{failure:?}"
    );
}

#[test]
fn an_open_loop_counts_what_a_refusing_server_left_unsent() {
    let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let mut plan = plan(address, u64::MAX);
    plan.end.after = Some(Duration::from_millis(500));
    plan.pace = constant(10_000.0);
    let outcome = load(&plan);
    assert_eq!(outcome.schedule.due, 5_000);
    assert_eq!(outcome.schedule.unsent + outcome.errors.connect, 5_000);
    assert!(outcome.errors.connect >= 1 && outcome.schedule.unsent > 4_000);
}

#[test]
fn a_client_without_patience_hangs_up_before_the_timeout() {
    let upstream = ScriptedUpstream::start(|_| vec![Step::Idle(LONG)]);
    let mut plan = plan(upstream.address(), 1);
    plan.timeout = LONG;
    plan.requests[0].patience = Some(Duration::from_millis(50));
    let outcome = load(&plan);
    assert_eq!(errors(&outcome), [("timeout", 1)]);
    assert!(outcome.recorded < LONG);
}

#[test]
fn a_kept_connection_that_the_server_closed_is_no_failure() {
    // Says nothing of closing, and closes.
    let upstream = ScriptedUpstream::start(|_| vec![send(WHOLE), Step::Close]);
    for open in [false, true] {
        let mut plan = plan(upstream.address(), 20);
        if open {
            plan.pace = constant(200.0);
        }
        let outcome = load(&plan);
        assert_eq!(
            (outcome.completed, outcome.failed()),
            (20, 0),
            "{:?}",
            outcome.errors
        );
        assert_eq!(upstream.take_seen().len(), 20);
    }
}

#[test]
fn a_server_that_answers_before_it_has_read_the_body_is_heard() {
    let reply = "HTTP/1.1 413 Too much\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno\n";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("the load connects");
        let mut some = [0; 1000];
        let _ = client.read(&mut some);
        let _ = client.write_all(reply.as_bytes());
        // Until the load has had enough of it.
        let mut rest = Vec::new();
        let _ = client.take(1000).read_to_end(&mut rest);
    });
    let mut plan = plan(address, 1);
    let body = vec![b'x'; 20_000_000];
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    plan.requests[0].bytes = [head.into_bytes(), body].concat();
    let outcome = load(&plan);
    assert_eq!(
        outcome.statuses.get(&413),
        Some(&1),
        "{:?}",
        outcome.first_failures
    );
    server.join().expect("it served one");
}

#[test]
fn a_server_that_speaks_no_tls_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut client, _) = listener.accept().expect("the load connects");
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let mut plan = plan(address, 2);
    plan.requests[0].endpoint.tls = Some(Tls::to("localhost"));
    let outcome = load(&plan);
    assert_eq!(
        errors(&outcome),
        [("tls", 2)],
        "{:?}",
        outcome.first_failures
    );
    server.join().expect("it was asked twice");
}

#[test]
fn a_load_that_is_stopped_ends_at_once_with_what_it_has() {
    let (upstream, turn) = ScriptedUpstream::held(vec![Step::reply(200, "late")]);
    let plan = plan(upstream.address(), u64::MAX);
    let live = Live::new();
    let outcome = std::thread::scope(|scope| {
        let load = scope.spawn(|| run(&plan, &live).expect("the plan can be run"));
        turn.wait();
        live.stop();
        load.join().expect("the load ends")
    });
    turn.wait();
    assert!(outcome.interrupted);
    assert_eq!(
        (outcome.completed, outcome.failed(), outcome.cut),
        (0, 0, 1)
    );
    assert!(outcome.recorded < LONG);
}

#[test]
fn a_server_that_resets_every_connection_is_left_alone_between() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let accepts = std::thread::spawn(move || {
        let mut count = 0;
        let close = |client: TcpStream| client.peek(&mut [0; 1]).unwrap_or_default();
        let began = Instant::now();
        while let Ok((client, _)) = listener.accept() {
            count += 1;
            // The test's own connection says that it is over.
            if close(client) == 0 || began.elapsed() > LONG {
                break;
            }
        }
        count
    });
    let mut plan = plan(address, u64::MAX);
    plan.end.after = Some(Duration::from_millis(500));
    let outcome = load(&plan);
    drop(TcpStream::connect(address));
    let count = accepts.join().expect("it accepts");
    assert!((2..=20).contains(&count), "{count}: {:?}", outcome.errors);
    assert_eq!(outcome.completed, 0);
}
