//! What a refusal says would have let the request pass is tried: the same requests come again, at the
//! same times, to the limit as changed, and the one that was refused passes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use limits::{
    Admission, Concurrent, Definition, Mode, Outcome, Permit, RateDefinition, Refusal, Ticket,
    Used, Why,
};

use crate::setting::{Setting, dynamic, fixed, ms};

/// Requests to one limit, as they come.
struct Course {
    limit: Definition,
    /// When, in milliseconds.
    arrivals: Vec<u64>,
    service_ms: u64,
}

impl Course {
    /// What each of them is told in the end: nothing where it passes.
    fn run(&self) -> Vec<Option<Refusal>> {
        let mut told: Vec<Option<Refusal>> = vec![None; self.arrivals.len()];
        let mut setting = Setting::new(1, vec![self.limit.clone()]);
        let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut permits: Vec<Option<Permit>> = self.arrivals.iter().map(|_| None).collect();
        let mut waiting: Vec<(usize, Ticket)> = Vec::new();
        let mut arrivals = self.arrivals.iter().copied().enumerate().peekable();
        for now_ms in 0.. {
            setting.now = ms(now_ms);
            while running
                .peek()
                .is_some_and(|Reverse((ends, _))| *ends <= now_ms)
            {
                let Some(Reverse((_, number))) = running.pop() else {
                    break;
                };
                if let Some(permit) = permits[number].take() {
                    let used = Used::Measured(self.service_ms * 1_000_000);
                    permit.end(setting.now, used, Outcome::Fine);
                }
            }
            let mut begin = |number: usize, mut permit: Permit| {
                let shadow = permit.take_shadows().into_iter().next();
                permits[number] = Some(permit);
                running.push(Reverse((now_ms + self.service_ms, number)));
                shadow
            };
            waiting.retain_mut(|(number, ticket)| match setting.poll(ticket) {
                None => true,
                Some(Ok(permit)) => {
                    told[*number] = begin(*number, permit);
                    false
                }
                Some(Err(refusal)) => {
                    told[*number] = Some(*refusal);
                    false
                }
            });
            while let Some((number, _)) = arrivals.next_if(|(_, at)| *at <= now_ms) {
                match setting.check_rates(&["a"]) {
                    Err(refusal) => {
                        told[number] = Some(*refusal);
                        continue;
                    }
                    Ok(shadows) => told[number] = shadows.into_iter().next(),
                }
                match setting.say(0, &["a"]) {
                    Admission::Admitted(permit) => {
                        let shadow = begin(number, permit);
                        told[number] = told[number].take().or(shadow);
                    }
                    Admission::Refused(refusal) => told[number] = Some(*refusal),
                    Admission::Waiting(ticket) => waiting.push((number, ticket)),
                }
            }
            setting.ledger.tick(setting.now);
            if arrivals.peek().is_none() && waiting.is_empty() && running.is_empty() {
                return told;
            }
        }
        unreachable!("there are more milliseconds than requests")
    }

    /// With what a refusal says: `queue >= 3 with wait >= 4s`.
    fn with(&self, remedy: &str, number: usize) -> Course {
        let mut limit = self.limit.clone();
        let mut arrivals = self.arrivals.clone();
        let parts = remedy
            .split(" with ")
            .flat_map(|part| part.split(" without "));
        for part in parts {
            let (name, value) = part.split_once(" >= ").unwrap_or((part, ""));
            let count = || value.parse().expect(remedy);
            match name {
                "concurrent" => limit.concurrent = Some(Concurrent::Fixed(count())),
                "queue" => limit.queue = count(),
                "wait" => {
                    let seconds = value.strip_suffix('s').expect(remedy);
                    limit.wait = Duration::from_secs(seconds.parse().expect(remedy));
                }
                "a wait as long as they take" => limit.wait = Duration::from_secs(600),
                "late" => limit.late = None,
                "burst" => {
                    let rate = limit.rate.expect("a rate");
                    limit.rate = Some(RateDefinition {
                        burst: count(),
                        ..rate
                    });
                }
                later => {
                    let later = later.strip_prefix("it had come ").expect(remedy);
                    let later = later.strip_suffix("ms later").expect(remedy);
                    arrivals[number] += later.parse::<u64>().expect(remedy);
                    // Those after it came after it.
                    arrivals.truncate(number + 1);
                }
            }
        }
        let service_ms = self.service_ms;
        Course {
            limit,
            arrivals,
            service_ms,
        }
    }
}

/// Tries each remedy of the last request that was refused for this reason.
fn check(why: Why, course: &Course, remedies: usize) {
    let told = course.run();
    let last = told
        .iter()
        .rposition(|it| it.as_ref().is_some_and(|it| it.why == why));
    let number = last.unwrap_or_else(|| panic!("{why:?}: nobody was"));
    let refusal = told[number].as_ref().expect("refused");
    let admits = refusal.admits_if();
    eprintln!("{}: {refusal}: {admits}", why.word());
    let tried = admits.split(", or ").map(|remedy| {
        let told = &course.with(remedy, number).run()[number];
        assert!(told.is_none(), "{}: {remedy}: {told:?}", why.word());
    });
    assert_eq!(tried.count(), remedies, "{admits}");
}

fn limit(concurrent: u32, queue: u32, wait_s: u64) -> Definition {
    Definition {
        queue,
        wait: Duration::from_secs(wait_s),
        ..dynamic("file", concurrent)
    }
}

/// So many at once, some seconds after a first one alone.
fn burst(count: usize) -> Vec<u64> {
    std::iter::once(0)
        .chain(std::iter::repeat_n(10_000, count))
        .collect()
}

fn course(limit: Definition, arrivals: Vec<u64>, service_ms: u64) -> Course {
    Course {
        limit,
        arrivals,
        service_ms,
    }
}

#[test]
fn what_is_said_of_a_limit_without_a_queue_lets_the_request_pass() {
    check(Why::Full, &course(limit(2, 0, 2), burst(10), 3_000), 2);
    // Where nothing was measured yet.
    check(Why::Full, &course(limit(2, 0, 2), vec![0; 10], 3_000), 2);
    // Steadily twice as much as it can do.
    let steadily = (0..200).map(|number| number * 50).collect();
    check(Why::Full, &course(limit(1, 0, 2), steadily, 100), 2);
    let fixed = Definition {
        concurrent: Some(Concurrent::Fixed(1)),
        ..fixed("site", 1)
    };
    check(Why::Full, &course(fixed, burst(5), 700), 2);
}

#[test]
fn what_is_said_of_a_full_queue_lets_the_request_pass() {
    check(Why::QueueFull, &course(limit(1, 2, 60), burst(8), 500), 2);
    check(Why::QueueFull, &course(limit(3, 4, 1), burst(30), 400), 2);
}

#[test]
fn what_is_said_of_a_wait_in_vain_lets_the_request_pass() {
    let all = course(limit(1, 100, 2), burst(50), 100);
    check(Why::WaitedTooLong, &all, 2);
    let few = course(limit(2, 8, 1), burst(9), 3_000);
    check(Why::WaitedTooLong, &few, 2);
    let steadily = (0..200).map(|number| number * 50).collect();
    check(
        Why::WaitedTooLong,
        &course(limit(1, 100, 2), steadily, 100),
        2,
    );
}

#[test]
fn what_is_said_where_nobody_shall_be_late_lets_the_request_pass() {
    let late = |queue, wait_s| Definition {
        late: Some(Duration::from_millis(300)),
        ..limit(1, queue, wait_s)
    };
    check(Why::WaitTooLong, &course(late(100, 2), burst(50), 100), 2);
    let pauses = (0..200).map(|number| number * 50 + number / 40 * 1_500);
    check(Why::Late, &course(late(100, 60), pauses.collect(), 100), 1);
    check(Why::Late, &course(late(100, 60), burst(60), 100), 1);
}

#[test]
fn what_is_said_of_a_rate_lets_the_request_pass() {
    let rated = Definition {
        concurrent: None,
        rate: Some(RateDefinition {
            count: 10,
            per: Duration::from_secs(1),
            burst: 20,
        }),
        ..dynamic("client", 1)
    };
    check(Why::Rate, &course(rated.clone(), vec![0; 25], 1), 2);
    let steadily = (0..400).map(|number| number * 50).collect();
    check(Why::Rate, &course(rated.clone(), steadily, 1), 2);
    let mode = Mode::Shadow;
    check(
        Why::Rate,
        &course(Definition { mode, ..rated }, vec![0; 25], 1),
        2,
    );
}

#[test]
fn what_is_said_of_a_limit_in_shadow_would_have_let_the_request_pass() {
    let mode = Mode::Shadow;
    for (why, limit) in [
        (Why::Full, limit(2, 0, 2)),
        (Why::QueueFull, limit(2, 3, 2)),
    ] {
        let shadow = Definition { mode, ..limit };
        check(why, &course(shadow, burst(10), 300), 2);
    }
}
