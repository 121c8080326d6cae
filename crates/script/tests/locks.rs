//! `Mutex`: who has it, who waits, and what becomes of it when its holder ends.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::bed::{code, failure, interpreter, on_a_worker, run, settings, value};
use script::{Datum, Interpreter, Phase, Request, Shared, Trial};

const OPEN: &str = "m = Mutex.new(:global => true, :name => 'm');";

#[test]
fn a_lock_is_taken_and_freed() {
    let cases = [
        ("[m.lock, m.unlock]", "[0, 0]"),
        (
            "[m.try_lock, m.try_lock, m.unlock, m.try_lock]",
            "[true, false, 0, true]",
        ),
        (
            "[m.try_lock_loop(50000) { m.unlock }, m.try_lock]",
            "[false, true]",
        ),
        ("m.try_lock_loop { 7 }", "false"),
        ("[m.synchronize { 7 }, m.try_lock]", "[7, true]"),
        (
            "begin; m.synchronize { raise 'x' }; rescue; m.try_lock; end",
            "true",
        ),
        (
            "n = Mutex.new(:global => true, :name => 'm'); m.lock; n.try_lock",
            "false",
        ),
        (
            "n = Mutex.new(:global => true, :name => 'm'); m.lock; n.unlock",
            "0",
        ),
        (
            "n = Mutex.new(:global => true, :name => 'n'); m.lock; n.try_lock",
            "true",
        ),
        ("n = Mutex.new; m.lock; n.try_lock", "true"),
        (
            "n, o = Mutex.new, Mutex.new(:global => false); [n.try_lock, o.try_lock]",
            "[true, true]",
        ),
        (
            "all = [1, 2].map { Mutex.new(:global => true) }; all.map { |x| x.try_lock }",
            "[true, false]",
        ),
        (
            "all = [Mutex.new(:global => true),\nMutex.new(:global => true)]; all.map { |x| x.try_lock }",
            "[true, true]",
        ),
        ("2000.times { m.lock; m.unlock }; m.try_lock", "true"),
    ];
    for (case, shown) in cases {
        let inspected = value(&format!("{OPEN} ({case}).inspect"));
        assert_eq!(inspected, Datum::from(shown), "{case}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let cases = [
        ("m.lock; m.lock", "deadlock"),
        ("m.lock; m.try_lock_loop { }", "deadlock"),
        ("m.unlock", "does not have the lock"),
        ("m.lock; m.unlock; m.unlock", "does not have the lock"),
        ("m.try_lock_loop(1, 'x') { }", "microseconds"),
        (
            "Mutex.new(:global => true, :name => 'x' * 2000)",
            "at most 1024 bytes",
        ),
        ("Mutex.allocate.lock", "without Mutex.new"),
        ("2000.times { |i| Mutex.new.lock }", "holds too much"),
    ];
    for (case, part) in cases {
        let said = failure(&format!("{OPEN} {case}"));
        assert!(said.contains(part), "{case}: {said}");
    }
}

#[test]
fn who_waits_goes_on_when_the_holder_unlocks_or_ends() {
    on_a_worker(async {
        let interpreter = interpreter();
        for end in ["m.unlock", "1", "raise 'x'"] {
            let mut first = Trial::get("/1");
            let mut second = Trial::get("/2");
            let holds = format!("{OPEN} m.lock; sleep 0.01; {end}");
            let waits = format!("{OPEN} m.lock; m.unlock; 'second'");
            let hold = async {
                let ended = run(&interpreter, &holds, &mut first).await;
                first.scope().release_all();
                ended
            };
            let (held, waited) = tokio::join!(hold, run(&interpreter, &waits, &mut second));
            assert_eq!(held.is_err(), end.starts_with("raise"), "{end}");
            assert_eq!(
                waited.expect("it runs").value,
                Datum::from("second"),
                "{end}"
            );
        }
    });
}

#[test]
fn a_holder_that_goes_away_in_the_middle_frees_its_lock() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut first = Trial::get("/1");
        let holds = format!("{OPEN} m.lock; sleep 3600");
        let hold = tokio::time::timeout(
            Duration::from_millis(10),
            run(&interpreter, &holds, &mut first),
        );
        assert!(hold.await.is_err());
        assert_eq!(tries(&interpreter).await, Datum::Bool(false));
        drop(first);
        assert_eq!(tries(&interpreter).await, Datum::Bool(true));
    });
}

#[test]
fn a_waiter_that_goes_away_leaves_the_queue() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut holder = Trial::get("/1");
        let take = format!("{OPEN} m.lock");
        run(&interpreter, &take, &mut holder).await.expect("taken");
        for _ in 0..3 {
            let mut waiter = Trial::get("/2");
            let wait = run(&interpreter, &take, &mut waiter);
            assert!(
                tokio::time::timeout(Duration::from_millis(5), wait)
                    .await
                    .is_err()
            );
        }
        drop(holder);
        assert_eq!(tries(&interpreter).await, Datum::Bool(true));
    });
}

#[test]
fn a_lock_taken_without_a_request_is_freed_when_the_run_ends() {
    on_a_worker(async {
        let interpreter = interpreter();
        let take = code(&format!("{OPEN} m.lock; m.try_lock"));
        let ran = interpreter.run(Phase::Init, &take, None).await;
        assert_eq!(ran.expect("it runs").value, Datum::Bool(false));
        assert_eq!(tries(&interpreter).await, Datum::Bool(true));
    });
}

#[test]
fn a_lock_that_is_waited_for_too_long_is_broken() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut holder = Trial::get("/1");
        let mut breaker = Trial::get("/2");
        let take = format!("{OPEN} m.lock");
        run(&interpreter, &take, &mut holder).await.expect("taken");
        let breaks = format!("{OPEN} m.try_lock_loop(1, 1000) {{ $ran = true }}");
        let ran = run(&interpreter, &breaks, &mut breaker).await;
        assert_eq!(ran.expect("it runs").value, Datum::Bool(true));
        // Its former holder may unlock what it took; the lock stays with the one who broke it.
        let ran = run(
            &interpreter,
            &format!("{OPEN} [$ran, m.unlock]"),
            &mut holder,
        )
        .await;
        let both = Datum::Array(vec![Datum::Bool(true), Datum::Int(0)]);
        assert_eq!(ran.expect("it runs").value, both);
        assert_eq!(tries(&interpreter).await, Datum::Bool(false));
        let ran = run(&interpreter, &format!("{OPEN} m.unlock"), &mut breaker).await;
        assert_eq!(ran.expect("it runs").value, Datum::Int(0));
        assert_eq!(tries(&interpreter).await, Datum::Bool(true));
    });
}

#[test]
fn a_global_lock_excludes_requests_of_two_workers() {
    let shared = Arc::<Shared>::default();
    let together = Barrier::new(2);
    // Not one step: read, wait, write. Only the lock keeps counts from being lost.
    let count = format!(
        "{OPEN} c = Cache.new(:namespace => 'n')
         m.try_lock_loop(50000, 60_000_000) do
           n = c['n'].to_i
           sleep 0
           c['n'] = (n + 1).to_s
           m.unlock
         end"
    );
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                on_a_worker(async {
                    let interpreter = worker(&shared);
                    together.wait();
                    many(&interpreter, &count, 200).await;
                });
            });
        }
    });
    on_a_worker(async {
        let read = code("Cache.new(:namespace => 'n')['n']");
        let ran = worker(&shared).run(Phase::Init, &read, None).await;
        assert_eq!(ran.expect("it runs").value, Datum::from("400"));
    });
}

#[test]
fn a_waiter_is_served_though_another_worker_takes_the_lock_again_and_again() {
    let shared = Arc::<Shared>::default();
    let together = Barrier::new(2);
    let served = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            on_a_worker(async {
                let interpreter = worker(&shared);
                let mut request = Trial::get("/greedy");
                let take = format!("{OPEN} m.lock; sleep 0; m.unlock");
                together.wait();
                while !served.load(SeqCst) {
                    run(&interpreter, &take, &mut request)
                        .await
                        .expect("it runs");
                }
            });
        });
        scope.spawn(|| {
            on_a_worker(async {
                let interpreter = worker(&shared);
                together.wait();
                many(&interpreter, &format!("{OPEN} m.lock; m.unlock"), 50).await;
                served.store(true, SeqCst);
            });
        });
    });
}

/// An interpreter like another worker's.
fn worker(shared: &Arc<Shared>) -> Rc<Interpreter> {
    let mut settings = settings();
    settings.budgets.wall = Duration::from_secs(120);
    settings.budgets.cpu = Duration::from_secs(5);
    Interpreter::open(settings, Arc::clone(shared)).expect("an interpreter opens")
}

/// Runs a script for many requests at once.
async fn many(interpreter: &Rc<Interpreter>, text: &str, requests: usize) {
    let script = code(text);
    let runs: Vec<_> = (0..requests)
        .map(|_| {
            let (interpreter, script) = (Rc::clone(interpreter), script.clone());
            tokio::task::spawn_local(async move {
                let mut request = Trial::get("/");
                let ran = interpreter
                    .run(Phase::Access, &script, Some(&mut request))
                    .await;
                ran.map(drop)
            })
        })
        .collect();
    for run in runs {
        run.await.expect("it did not panic").expect("it ran");
    }
}

/// Whether a request of its own could take the lock now.
async fn tries(interpreter: &Rc<Interpreter>) -> Datum {
    let mut request = Trial::get("/try");
    let ran = run(interpreter, &format!("{OPEN} m.try_lock"), &mut request).await;
    ran.expect("it runs").value
}
