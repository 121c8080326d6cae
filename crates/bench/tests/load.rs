//! Loads against servers that do as they are told: what is counted, and what is called a failure.

use std::time::Duration;

use bench::client::{
    Address, Arrivals, Endpoint, Judge, Live, Outcome, Pace, Plan, ReplyTo, Request, Reuse, run,
};
use testkit::{ScriptedUpstream, Step};

/// A server that says something with every reply.
fn request(upstream: &ScriptedUpstream) -> Request {
    Request {
        endpoint: Endpoint {
            address: Address::Tcp(upstream.address()),
            tls: None,
        },
        bytes: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        body_bytes: 0,
        weight: 1,
        reply: ReplyTo::Other,
        label: "page".to_owned(),
    }
}

fn plan(upstream: &ScriptedUpstream, requests: u64) -> Plan {
    let mut plan = Plan::new(vec![request(upstream)]);
    plan.end.requests = Some(requests);
    plan.end.after = Some(Duration::from_secs(60));
    plan
}

fn load(plan: &Plan) -> Outcome {
    run(plan, &Live::new()).expect("the plan can be run")
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
