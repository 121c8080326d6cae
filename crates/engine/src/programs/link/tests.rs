//! The link to a spawner that answers, lags, fails and goes.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use tokio::task::{LocalSet, yield_now};

use super::*;
use crate::fixture::block_on;
use ipc::order::{End, Ended};

fn order(id: u64) -> Run {
    let null = || os::file::memfd("test", b"").expect("memory");
    Run {
        id,
        generation: 1,
        site: 0,
        rule: 0,
        row: None,
        group: None,
        script: b"a.cgi".to_vec(),
        says_start: true,
        environment: Vec::new(),
        stdin: null(),
        stdout: null(),
        stderr: null(),
    }
}

fn programs() -> (Programs, OwnedFd) {
    let programs = Programs::new(Arc::default(), Arc::default());
    let (ours, theirs) = os::fdpass::packet_pair().expect("a pair");
    programs.use_link(ours).expect("registered");
    (programs, theirs)
}

/// What the spawner has been told, as far as it has.
fn told(spawner: &OwnedFd) -> Vec<(char, u64)> {
    let mut buffer = Vec::new();
    std::iter::from_fn(|| Order::try_recv(spawner.as_fd(), &mut buffer).ok()?.ok())
        .map(|order| match order {
            Order::Run(run) => ('r', run.id),
            Order::Kill { id } => ('k', id),
            Order::RunMap(run) => ('m', run.id),
            Order::RunChore(run) => ('c', run.id),
            Order::Warm { id, .. } | Order::WarmRow { id, .. } => ('w', id),
            Order::Used { .. } => ('u', 0),
        })
        .collect()
}

fn say(spawner: &OwnedFd, report: &Report) {
    os::fdpass::try_send(spawner.as_fd(), &report.to_bytes().expect("plain"), &[]).expect("room");
}

fn ended(id: u64) -> Report {
    Report::Ended(Ended {
        id,
        end: End::Exit(3),
        cpu_us: 7,
        peak_rss_bytes: 8,
        limit: None,
    })
}

async fn outcome(program: &Program) -> ProgramOutcome {
    poll_fn(|cx| program.poll_outcome(cx)).await
}

fn test(body: impl AsyncFnOnce()) {
    block_on(LocalSet::new().run_until(body()));
}

#[test]
fn what_is_said_of_a_program_reaches_who_holds_it() {
    test(async || {
        let (programs, spawner) = programs();
        let first = programs.run(9, order).await.expect("a program");
        let second = programs.run(9, order).await.expect("a program");
        assert_eq!(told(&spawner), [('r', 0), ('r', 1)]);
        say(&spawner, &Report::Started { id: 1, pid: 77 });
        poll_fn(|cx| second.poll_started(cx)).await;
        assert!(!second.is_over() && !first.is_over());
        let detail = "no such file".to_owned();
        let failure = Failure::NotFound;
        say(
            &spawner,
            &Report::Failed {
                id: 0,
                failure,
                detail,
            },
        );
        assert!(matches!(
            outcome(&first).await,
            ProgramOutcome::Failed(Failure::NotFound, _)
        ));
        // Nobody may be harmed by what is said of strangers.
        say(&spawner, &ended(99));
        say(&spawner, &ended(1));
        let ProgramOutcome::Ended(ended) = outcome(&second).await else {
            panic!("it ended");
        };
        assert_eq!((ended.cpu_us, ended.end), (7, End::Exit(3)));
        drop((first, second));
        assert_eq!(told(&spawner), [], "nothing is left to be killed");
    });
}

#[test]
fn a_program_nobody_holds_is_killed_and_keeps_its_place_until_it_ends() {
    test(async || {
        let (programs, spawner) = programs();
        let program = programs.run(1, order).await.expect("a program");
        let full = programs.run(1, order).await.expect_err("one at once");
        assert_eq!(full.reason, "programs_full");
        program.kill();
        drop(program);
        let told = told(&spawner);
        assert!(told.starts_with(&[('r', 0), ('k', 0)]), "{told:?}");
        let full = programs.run(1, order).await.expect_err("it may live yet");
        assert_eq!(full.reason, "programs_full");
        say(&spawner, &ended(0));
        while programs.running.load(Relaxed) > 0 {
            yield_now().await;
        }
        programs.run(1, order).await.expect("a place");
    });
}

#[test]
fn a_lost_spawner_is_heard_of_by_all_and_the_next_one_serves() {
    test(async || {
        let (programs, spawner) = programs();
        let first = programs.run(2, order).await.expect("a program");
        let second = programs.run(2, order).await.expect("a program");
        drop(spawner);
        assert!(matches!(outcome(&first).await, ProgramOutcome::Lost));
        assert!(matches!(outcome(&second).await, ProgramOutcome::Lost));
        drop((first, second));
        assert_eq!(programs.running.load(Relaxed), 0);
        let (ours, spawner) = os::fdpass::packet_pair().expect("a pair");
        let (later, ()) = tokio::join!(programs.run(2, order), async {
            yield_now().await;
            programs.use_link(ours).expect("registered");
        });
        later.expect("a program of the next spawner");
        assert_eq!(told(&spawner).first(), Some(&('r', 2)));
    });
}

#[test]
fn a_spawner_that_has_a_successor_is_lost_though_its_link_is_open() {
    test(async || {
        let (programs, before) = programs();
        let first = programs.run(2, order).await.expect("a program");
        let second = programs.run(2, order).await.expect("a program");
        say(&before, &ended(0));
        let (ours, _spawner) = os::fdpass::packet_pair().expect("a pair");
        programs.use_link(ours).expect("registered");
        assert!(matches!(outcome(&first).await, ProgramOutcome::Ended(_)));
        assert!(matches!(outcome(&second).await, ProgramOutcome::Lost));
    });
}

#[test]
fn an_order_that_a_lost_spawner_never_heard_goes_to_the_next() {
    test(async || {
        let (programs, spawner) = programs();
        // Nobody has looked at the link since.
        drop(spawner);
        let (ours, next) = os::fdpass::packet_pair().expect("a pair");
        let (program, ()) = tokio::join!(programs.run(1, order), async {
            programs.use_link(ours).expect("registered");
        });
        let program = program.expect("a program");
        assert_eq!(told(&next), [('r', 0)]);
        say(&next, &ended(0));
        assert!(matches!(outcome(&program).await, ProgramOutcome::Ended(_)));
    });
}

#[test]
fn orders_wait_while_the_spawner_does_not_listen() {
    test(async || {
        let (programs, spawner) = programs();
        let large = |id| Run {
            environment: vec![(b"A".to_vec(), vec![b'a'; 100_000])],
            ..order(id)
        };
        let mut held = Vec::new();
        let refused = loop {
            match programs.run(usize::MAX, large).await {
                Ok(program) => held.push(program),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.reason, "spawner_busy");
        // One that was never told of is taken back without a word.
        let last = held.pop().expect("many");
        drop(last);
        let ids: Vec<_> = (0..held.len() as u64).map(|id| ('r', id)).collect();
        let mut heard = Vec::new();
        while heard.len() < ids.len() {
            heard.extend(told(&spawner));
            yield_now().await;
        }
        assert_eq!(heard, ids);
    });
}

#[test]
fn an_order_too_large_is_refused_alone() {
    test(async || {
        let (programs, spawner) = programs();
        let huge = |id| Run {
            environment: vec![(b"A".to_vec(), vec![b'a'; 1 << 20])],
            ..order(id)
        };
        let program = programs.run(9, huge).await.expect("ordered");
        let refused = outcome(&program).await;
        assert!(matches!(
            refused,
            ProgramOutcome::Failed(Failure::EnvironmentRefused, _)
        ));
        let program = programs.run(9, order).await.expect("ordered");
        assert_eq!(told(&spawner), [('r', 1)]);
        drop(program);
    });
}

#[test]
fn no_connection_is_kept_to_processes_that_serve_no_more() {
    let php = |id: &str| {
        let mut pool = ProgramPool::new(id, "a pool", "a tenant");
        pool.php_socket = Some(Path::new("/run/php").join(id).into());
        Arc::new(pool)
    };
    test(async || {
        let (programs, spawner) = programs();
        let pools = [php("a"), php("b")];
        programs.pools.put_in_force(&Arc::from(pools.as_slice()));
        say(&spawner, &Report::Cold { pool: "b".into() });
        assert_eq!(programs.left().await, "unix:/run/php/b");
        let pool = || "a".to_owned();
        say(&spawner, &Report::HandedOver { pool: pool() });
        assert_eq!(programs.left().await, "unix:/run/php/a");
        assert_eq!((pools[0].hand_overs(), pools[1].ends()), (1, 1));
    });
}
