//! Loads against servers that do as they are told: what is counted, and what is called a failure.

use std::io::{Read, Write};
use std::time::Duration;

use super::{constant, load};
use load::client::{
    Arrivals, Judge, Live, Opening, Pace, Plan, Request, RequestBuilder, Reuse, Url, WarmUp, run,
};
use testkit::{ScriptedUpstream, Step};

/// A server that says something with every reply.
fn request(upstream: &ScriptedUpstream) -> Request {
    let url = format!("http://{}/", upstream.address());
    let url: Url = url.parse().expect("a URL");
    RequestBuilder::default().build(&url).expect("a request")
}

fn plan(upstream: &ScriptedUpstream, requests: u64) -> Plan {
    let mut plan = Plan::new(vec![request(upstream)]);
    plan.end.requests = Some(requests);
    plan.end.after = Some(Duration::from_secs(60));
    plan
}

#[test]
fn a_closed_loop_sends_as_many_requests_as_it_was_told() {
    let upstream = ScriptedUpstream::fixed("hello");
    let mut plan = plan(&upstream, 1000);
    plan.connections = 8;
    plan.threads = 3;
    let outcome = load(&plan);
    assert_eq!((outcome.completed, outcome.failed()), (1000, 0));
    assert_eq!(outcome.body_bytes, 5000);
    assert_eq!(
        outcome.statuses.into_iter().collect::<Vec<_>>(),
        [(200, 1000)]
    );
    assert_eq!(
        outcome.sent_bytes,
        1000 * plan.requests[0].bytes.len() as u64
    );
    assert_eq!(outcome.times.response.count(), 1000);
    assert_eq!(outcome.on_kept_connections, 992);
    assert_eq!(upstream.take_seen().len(), 1000);
    assert_eq!(upstream.connections(), 8);
    let in_timeline: u64 = outcome.timeline.iter().map(|tenth| tenth.completed).sum();
    assert_eq!(in_timeline, 1000);
    assert_eq!(outcome.by_request[0].completed, 1000);
}

#[test]
fn connections_are_closed_after_each_reply_where_that_is_asked() {
    let upstream = ScriptedUpstream::fixed("hello");
    let mut plan = plan(&upstream, 50);
    plan.reuse = Reuse::Close;
    let outcome = load(&plan);
    assert_eq!((outcome.completed, outcome.failed()), (50, 0));
    assert_eq!(
        (outcome.on_kept_connections, upstream.connections()),
        (0, 50)
    );
}

#[test]
fn statuses_are_judged_as_the_plan_says() {
    let upstream = ScriptedUpstream::start(|seen| {
        vec![if seen.nth % 2 == 0 {
            Step::reply(200, "even")
        } else {
            Step::reply(500, "odd one")
        }]
    });
    for (judge, failed) in [
        (Judge::Status, 5),
        (Judge::SameLength, 5),
        (Judge::Nothing, 0),
    ] {
        let mut plan = plan(&upstream, 10);
        plan.judge = judge;
        let outcome = load(&plan);
        assert_eq!(
            (outcome.completed, outcome.failed()),
            (10, failed),
            "{judge:?}"
        );
    }
}

#[test]
fn an_open_loop_sends_every_request_that_is_due() {
    let upstream = ScriptedUpstream::fixed("hello");
    let mut plan = plan(&upstream, 100);
    plan.connections = 4;
    plan.threads = 2;
    plan.pace = Pace::Open {
        per_second: 1000.0,
        arrivals: Arrivals::Poisson(1),
        ramp: Duration::ZERO,
    };
    let outcome = load(&plan);
    assert_eq!((outcome.completed, outcome.failed()), (100, 0));
    assert_eq!((outcome.schedule.due, outcome.schedule.unsent), (100, 0));
    assert_eq!(upstream.take_seen().len(), 100);
}

#[test]
fn what_is_due_was_sent_or_is_counted_as_unsent() {
    let upstream = ScriptedUpstream::fixed("hello");
    let mut plan = plan(&upstream, u64::MAX);
    plan.connections = 4;
    plan.threads = 2;
    plan.warm_up = WarmUp::For(Duration::from_millis(150));
    plan.end.after = Some(Duration::from_millis(600));
    plan.pace = constant(2000.0);
    let outcome = load(&plan);
    let ended = outcome.completed + outcome.errors.total() + outcome.cut;
    assert_eq!(outcome.schedule.due, 900);
    assert_eq!(ended + outcome.schedule.unsent, 900);
}

#[test]
fn an_open_loop_lasts_as_long_as_it_was_told_however_rare_its_requests() {
    let upstream = ScriptedUpstream::fixed("hello");
    let mut plan = plan(&upstream, u64::MAX);
    plan.end.after = Some(Duration::from_millis(600));
    plan.pace = constant(4.0);
    let outcome = load(&plan);
    assert_eq!(outcome.recorded, Duration::from_millis(600));
    assert_eq!(outcome.schedule.due, 3);
}

#[test]
fn nothing_is_sent_once_the_load_is_over() {
    // Each reply takes 40 ms, so most requests still wait for the only connection in the end.
    let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    let drip = Step::Drip(reply, 1, Duration::from_millis(1));
    let upstream = ScriptedUpstream::start(move |_| vec![drip.clone()]);
    let mut plan = plan(&upstream, u64::MAX);
    plan.end.after = Some(Duration::from_millis(400));
    plan.pace = constant(1000.0);
    let outcome = load(&plan);
    assert_eq!(outcome.schedule.due, 400);
    assert!(outcome.completed <= 11, "{}", outcome.completed);
    assert_eq!(outcome.completed + outcome.schedule.unsent, 400);
}

#[test]
fn a_warm_up_is_found_and_left_out_without_a_pause() {
    let upstream = ScriptedUpstream::fixed("hello");
    for warm_up in [
        WarmUp::For(Duration::from_millis(250)),
        WarmUp::UntilSteady(Duration::from_secs(2)),
    ] {
        let mut plan = plan(&upstream, u64::MAX);
        plan.connections = 2;
        plan.warm_up = warm_up;
        plan.end.after = Some(Duration::from_secs(3));
        let outcome = load(&plan);
        let left_out = outcome.warm_up;
        assert_eq!(outcome.failed(), 0);
        assert!(left_out.completed > 0 && outcome.completed > 0);
        let sum = (left_out.time + outcome.recorded).as_secs_f64();
        assert!((sum - 3.0).abs() < 0.001, "{sum}");
        let seen = upstream.take_seen().len() as u64;
        let counted = left_out.completed + outcome.completed + outcome.cut;
        assert!(counted.abs_diff(seen) <= 2, "{counted} of {seen}");
        let in_timeline: u64 = outcome.timeline.iter().map(|tenth| tenth.completed).sum();
        assert!(in_timeline.abs_diff(outcome.completed) <= outcome.completed / 10 + 100);
        match warm_up {
            WarmUp::UntilSteady(_) => assert!(left_out.steady.is_some()),
            _ => assert_eq!(left_out.time, Duration::from_millis(250)),
        }
    }
}

#[test]
fn the_first_connection_runs_alone_where_that_is_asked() {
    let (upstream, turn) = ScriptedUpstream::held(vec![Step::reply(200, "x")]);
    let mut plan = plan(&upstream, 1);
    plan.connections = 4;
    plan.threads = 2;
    plan.opening = Opening::FirstAlone;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load(&plan));
        turn.wait();
        assert_eq!(upstream.connections(), 1);
        turn.wait();
        let outcome = load.join().expect("the load ends");
        assert_eq!((outcome.completed, outcome.failed()), (1, 0));
    });
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn several_servers_get_their_share_of_an_open_loop() {
    let heavy = ScriptedUpstream::fixed("heavy");
    let light = ScriptedUpstream::fixed("light");
    let mut plan = plan(&heavy, 200);
    plan.requests[0].weight = 3;
    plan.requests.push(request(&light));
    plan.connections = 5;
    plan.threads = 3;
    plan.pace = Pace::Open {
        per_second: 1000.0,
        arrivals: Arrivals::Constant,
        ramp: Duration::from_millis(100),
    };
    let outcome = load(&plan);
    assert_eq!((outcome.completed, outcome.failed()), (200, 0));
    let by_request: Vec<u64> = outcome.by_request.iter().map(|r| r.completed).collect();
    assert_eq!(by_request, [150, 50]);
    assert_eq!(
        (heavy.take_seen().len(), light.take_seen().len()),
        (150, 50)
    );
}

#[test]
fn connections_serve_so_many_requests_and_a_ramp_opens_them_in_turn() {
    let upstream = ScriptedUpstream::fixed("hello");
    let mut plan = plan(&upstream, 60);
    plan.connections = 3;
    plan.reuse = Reuse::Requests(5);
    plan.opening = Opening::Ramp(Duration::from_millis(30));
    let outcome = load(&plan);
    assert_eq!((outcome.completed, outcome.failed()), (60, 0));
    assert!((12..=15).contains(&upstream.connections()));
}

#[test]
fn unix_sockets_are_spoken_to() {
    let directory = testkit::TempDir::new();
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("the load connects");
        let mut request = [0; 1024];
        for _ in 0..10 {
            let _ = client.read(&mut request);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let url: Url = format!("unix:{}:/", path.display()).parse().expect("a URL");
    let request = RequestBuilder::default().build(&url).expect("a request");
    let mut plan = Plan::new(vec![request]);
    plan.end.requests = Some(10);
    let outcome = load(&plan);
    assert_eq!((outcome.completed, outcome.failed()), (10, 0));
    server.join().expect("it answered");
}

#[test]
fn a_plan_that_cannot_be_run_says_why() {
    let upstream = ScriptedUpstream::fixed("hello");
    let check = |change: fn(&mut Plan), part: &str| {
        let mut plan = plan(&upstream, 1);
        change(&mut plan);
        let error = run(&plan, &Live::new())
            .expect_err("it cannot be run")
            .to_string();
        assert!(error.contains(part), "{error}");
    };
    check(|plan| plan.requests.clear(), "no requests");
    check(|plan| plan.connections = 0, "no connections");
    check(|plan| plan.threads = 100_000, "at most 256");
    check(|plan| plan.timeout = Duration::ZERO, "of 0");
    check(
        |plan| (plan.end.after, plan.end.requests) = (None, None),
        "no end",
    );
    check(|plan| plan.pace = constant(f64::NAN), "a rate of NaN");
}
