//! Runs of scripts: waits, ends, budgets, and what becomes of the interpreter.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bed::{code, failure, interpreter, on_a_worker, run, settings, value};
use script::{Cache, Datum, Interpreter, Phase, Script, Source, Trial};

#[test]
fn a_script_sees_its_request() {
    assert_eq!(
        value("Nginx::Request.new.filename"),
        Datum::from("/srv/www/a.php")
    );
    assert_eq!(
        value("get_server_class::Request.new.hostname"),
        Datum::from("example.test")
    );
}

#[test]
fn a_request_kept_beyond_its_end_raises() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut first = Trial::get("/a");
        let mut second = Trial::get("/b");
        run(&interpreter, "@kept = Nginx::Request.new", &mut first)
            .await
            .expect("kept");
        let ran = run(&interpreter, "@kept.filename", &mut second).await;
        let said = ran.expect_err("it is another's").to_string();
        assert!(said.contains("a request that has ended"), "{said}");
    });
}

#[test]
fn many_scripts_sleep_at_once() {
    on_a_worker(async {
        let interpreter = interpreter();
        let began = Instant::now();
        let script = code("sleep 0.2; Nginx.rputs('done'); 7");
        let runs: Vec<_> = (0..100)
            .map(|_| {
                let (interpreter, script) = (interpreter.clone(), script.clone());
                tokio::task::spawn_local(async move {
                    let mut request = Trial::get("/");
                    let ran = interpreter
                        .run(Phase::Access, &script, Some(&mut request))
                        .await;
                    (ran, request.scope.output.clone())
                })
            })
            .collect();
        for run in runs {
            let (ran, output) = run.await.expect("it did not panic");
            assert_eq!(
                (ran.expect("it ran").value, output),
                (Datum::Int(7), b"done".to_vec())
            );
        }
        // One after the other they would sleep for as long.
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(interpreter.parked(), 0);
    });
}

#[test]
fn a_run_that_is_dropped_leaves_nothing_behind() {
    on_a_worker(async {
        let interpreter = interpreter();
        let script = code("x = 'a' * 1000; sleep 60; x");
        interpreter
            .run(Phase::Access, &code("1"), None)
            .await
            .expect("it runs");
        let before = interpreter.objects();
        for _ in 0..50 {
            let run = interpreter.run(Phase::Access, &script, None);
            assert!(
                tokio::time::timeout(Duration::from_millis(1), run)
                    .await
                    .is_err()
            );
        }
        assert_eq!(interpreter.parked(), 0);
        let after = interpreter.objects();
        assert!(after < before + 60, "{after} objects, {before} before");
    });
}

#[test]
fn a_runaway_fails_alone() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut request = Trial::get("/");
        let ran = run(&interpreter, "1\nwhile true; end", &mut request).await;
        let failure = ran.expect_err("it fails");
        assert_eq!(failure.reason(), "script_budget");
        assert_eq!(
            failure.to_string(),
            "script.rb: used up its CPU time (5 ms) without waiting: see scripts.cpu; at script.rb:2"
        );
        let ran = run(&interpreter, "1 + 1", &mut request).await;
        assert_eq!(ran.expect("the next one runs").value, Datum::Int(2));
    });
}

#[test]
fn a_lost_interpreter_is_replaced_and_started_again() {
    on_a_worker(async {
        let interpreter = interpreter();
        let started = vec![(Phase::Init, code("$started = 41"))];
        interpreter.start(started).await.expect("it starts");
        let mut request = Trial::get("/");
        let slow = "x = 'a' * 300_000 + 'b'; y = 'a' * 1_000_000; y.index(x)";
        let ran = run(&interpreter, slow, &mut request).await;
        assert_eq!(ran.expect_err("it fails").reason(), "script_lost");
        let kept = code("$started + 1");
        for _ in 0..2 {
            let ran = interpreter
                .run(Phase::Access, &kept, Some(&mut request))
                .await;
            assert_eq!(ran.expect("a new one").value, Datum::Int(42));
        }
    });
}

#[test]
fn a_script_runs_in_one_interpreter_after_another() {
    on_a_worker(async {
        let script = code("$runs = $runs.to_i + 1");
        let (first, second) = (interpreter(), interpreter());
        for (interpreter, runs) in [(&first, 1), (&second, 1), (&first, 2), (&second, 2)] {
            let ran = interpreter.run(Phase::Access, &script, None).await;
            assert_eq!(ran.expect("it runs").value, Datum::Int(runs));
        }
    });
}

#[test]
fn time_and_places_to_wait_are_bounded() {
    on_a_worker(async {
        let mut settings = settings();
        settings.budgets.wall = Duration::from_millis(20);
        settings.budgets.parked = 1;
        let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
        let script = code("sleep 3600");
        let first = interpreter.run(Phase::Access, &script, None);
        let second = interpreter.run(Phase::Access, &script, None);
        let (first, second) = tokio::join!(first, second);
        let first = first.expect_err("too long").to_string();
        assert!(
            first.starts_with("script.rb: took too long (over 20 ms), waits included: see scripts.wall; at script.rb:1:in sleep"),
            "{first}"
        );
        let second = second.expect_err("no place").to_string();
        assert!(second.contains("scripts.parked"), "{second}");
    });
}

#[test]
fn a_wait_that_takes_too_long_names_the_store_and_the_line() {
    // Connections are made by the kernel, and nobody says anything on them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it has one");
    let (host, port) = (address.ip(), address.port());
    for (ask, store) in [
        (
            format!("Memcached.new('{address}').get('a')"),
            format!("memcached {address}"),
        ),
        (
            format!("Redis.new('{host}', {port}).get('a')"),
            format!("Redis {address}"),
        ),
        (
            format!("MySQL::Database.new('{host}', 'u', '', 'd', {port})"),
            format!("MySQL {address}"),
        ),
        (
            format!("HttpRequest.new.get('http://{address}/a?b')"),
            format!("the HTTP server {address}"),
        ),
    ] {
        on_a_worker(async {
            let mut settings = settings();
            settings.budgets.wall = Duration::from_millis(20);
            settings.budgets.cpu = Duration::from_secs(5);
            settings.budgets.store_timeout = Duration::from_secs(600);
            let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
            let script = code(&format!("\n{ask}"));
            let ran = interpreter.run(Phase::Access, &script, None).await;
            let said = ran.expect_err("nobody answers").to_string();
            assert!(
                said.contains(&format!(
                    "; it waited for {store}: see scripts.wall; at script.rb:2"
                )),
                "{said}"
            );
        });
    }
}

#[test]
fn an_interpreter_full_of_what_scripts_keep_is_replaced() {
    on_a_worker(async {
        let mut settings = settings();
        settings.budgets.memory_bytes = 16 << 20;
        settings.budgets.cpu = Duration::from_secs(60);
        let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
        let started = vec![(Phase::Init, code("$started = 41"))];
        interpreter.start(started).await.expect("it starts");
        let mut request = Trial::get("/");
        let greedy = "kept = []; kept << 'x' * 100_000 while true";
        let ran = run(&interpreter, greedy, &mut request).await;
        assert_eq!(ran.expect_err("no room").reason(), "script_raised");
        run(&interpreter, "$same = true", &mut request)
            .await
            .expect("what nobody keeps makes room");
        let keeping = "$kept ||= []; $kept << 'x' * 100_000 while true";
        let ran = run(&interpreter, keeping, &mut request).await;
        assert_eq!(ran.expect_err("no room").reason(), "script_raised");
        let ran = run(&interpreter, "[$started, $same, $kept]", &mut request).await;
        let fresh = Datum::Array(vec![Datum::Int(41), Datum::Nil, Datum::Nil]);
        assert_eq!(ran.expect("another interpreter").value, fresh);
    });
}

#[test]
fn vms_beside_each_other_know_nothing_of_each_other_and_wait_in_the_same_places() {
    on_a_worker(async {
        let mut settings = settings();
        settings.budgets.parked = 4;
        let one = Interpreter::open(settings, Arc::default()).expect("it opens");
        let other = one.another().expect("another opens");
        let breaks = code("$kept = 1; class String; undef_method :upcase; end");
        one.run(Phase::Init, &breaks, None).await.expect("it runs");
        let looks = code("[$kept, 'a'.upcase]");
        let seen = other.run(Phase::Init, &looks, None).await;
        let whole = Datum::Array(vec![Datum::Nil, Datum::from("A")]);
        assert_eq!(seen.expect("it runs").value, whole);
        let waits = code("sleep 1_000");
        let park = async |vm: &Rc<Interpreter>| {
            let mut run = vm.begin(Phase::Access, &waits).await.expect("it begins");
            let step = run.step(None).map_err(|failure| failure.to_string());
            step.map(|step| (run, step))
        };
        let mut parked = Vec::new();
        for _ in 0..3 {
            parked.push(park(&one).await.expect("there is a place"));
        }
        let refused = park(&one).await.err().expect("above its share");
        assert!(
            refused.contains("too many scripts wait already (3)"),
            "{refused}"
        );
        parked.push(park(&other).await.expect("the last place"));
        assert!(park(&other).await.is_err(), "four are four");
        drop(parked);
        park(&one).await.expect("all places are free");
    });
}

#[test]
fn another_vm_begins_with_what_was_seen_of_a_file() {
    on_a_worker(async {
        let directory = std::env::temp_dir().join(format!("nagaya-seen-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory is made");
        let path = directory.join("seen.rb");
        std::fs::write(&path, "22").expect("a script is written");
        let source = Source::File {
            path,
            text: Some(Arc::from(&b"1"[..])),
            cache: Cache::Mtime,
        };
        let script = Script::new(Arc::from("seen.rb"), source);
        let one = interpreter();
        let value = async |vm: &Rc<Interpreter>| {
            let ran = vm.run(Phase::Access, &script, None).await;
            ran.expect("it runs").value
        };
        assert_eq!(
            value(&one).await,
            Datum::Int(1),
            "as the configuration has it"
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        while value(&one).await != Datum::Int(22) {
            assert!(Instant::now() < deadline, "the change was never seen");
            tokio::task::yield_now().await;
        }
        let other = one.another().expect("another opens");
        drop(one);
        assert_eq!(value(&other).await, Datum::Int(22));
        std::fs::remove_dir_all(&directory).expect("the directory goes");
    });
}

#[test]
fn a_changed_file_is_compiled_again() {
    on_a_worker(async {
        let directory = std::env::temp_dir().join(format!("nagaya-script-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory is made");
        let path = directory.join("changing.rb");
        std::fs::write(&path, "1").expect("a script is written");
        let source = |cache| Source::File {
            path: path.clone(),
            text: None,
            cache,
        };
        let mtime = Script::new(Arc::from("changing.rb"), source(Cache::Mtime));
        let always = Script::new(Arc::from("changing.rb"), source(Cache::Always));
        let never = Script::new(Arc::from("changing.rb"), source(Cache::Never));
        let interpreter = interpreter();
        let value = async |script: &Script| {
            let ran = interpreter.run(Phase::Access, script, None).await;
            ran.expect("it runs").value
        };
        for script in [&mtime, &always, &never] {
            assert_eq!(value(script).await, Datum::Int(1));
        }
        std::fs::write(&path, "22").expect("the script is changed");
        assert_eq!(value(&never).await, Datum::Int(22));
        let deadline = Instant::now() + Duration::from_secs(20);
        while value(&mtime).await != Datum::Int(22) {
            assert!(Instant::now() < deadline, "the change was never seen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(value(&always).await, Datum::Int(1));
        std::fs::remove_dir_all(&directory).expect("the directory goes");
    });
}

#[test]
fn failures_say_what_where_and_which_key() {
    let said = failure("1\nraise ArgumentError, 'no'");
    assert!(
        said.starts_with("script.rb: no (ArgumentError); at script.rb:2"),
        "{said}"
    );
    let said = failure("x = (");
    assert!(said.contains("SyntaxError"), "{said}");
    let said = failure("Fiber.yield 1");
    assert!(said.contains("Fiber.yield outside"), "{said}");
}

#[test]
fn blanks_pasted_from_a_web_page_are_named() {
    let said = failure("if true\n  1\n\u{a0}\u{a0}end\n");
    assert!(said.contains("SyntaxError"), "{said}");
    let place = "line 3 column 1 holds a no-break space (U+00A0), which Ruby takes for a letter: replace it by a blank";
    assert!(said.contains(place), "{said}");
    let said = failure("puts '\u{a0}'\n\u{3000}puts 1");
    let name = "the name holds an ideographic space (U+3000), which Ruby takes for a letter";
    assert!(said.contains(name), "{said}");
    assert!(said.contains("NoMethodError"), "{said}");
    let said = failure("raise 'a\u{a0}b'");
    assert!(!said.contains("Ruby takes"), "{said}");
}

#[test]
fn what_scripts_write_is_bounded() {
    on_a_worker(async {
        let mut settings = settings();
        settings.budgets.output_bytes = 10;
        let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
        let mut request = Trial::get("/");
        let ran = run(
            &interpreter,
            "3.times { Nginx.rputs('12345') }",
            &mut request,
        )
        .await;
        let said = ran.expect_err("it is too much").to_string();
        assert!(said.contains("scripts.output"), "{said}");
        assert_eq!(request.scope.output, b"1234512345");
    });
}

#[test]
fn exit_ends_the_hook_and_nothing_else() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut request = Trial::get("/");
        let ran = run(
            &interpreter,
            "Nginx.return 404; exit; Nginx.return 500",
            &mut request,
        )
        .await;
        assert_eq!(ran.expect("it ends").value, Datum::Nil);
        assert_eq!(request.scope.returned, Some(404));
        assert!(run(&interpreter, "1", &mut request).await.is_ok());
    });
}

/// A script that loses its interpreter: one call in C that takes too long.
const LOSING: &str = "x = 'a' * 300_000 + 'b'; y = 'a' * 1_000_000; y.index(x)";

#[test]
fn nothing_runs_in_a_new_interpreter_before_it_has_started() {
    on_a_worker(async {
        let interpreter = interpreter();
        let init = "if Cache.new(namespace: 'again').size > 0 && !$tried
              $tried = true
              raise 'not yet'
            end
            $started = 41";
        let starters = vec![(Phase::Init, code(init))];
        interpreter.start(starters).await.expect("it starts");
        let mut request = Trial::get("/");
        let noted = "Cache.new(namespace: 'again')['yes'] = '1'";
        run(&interpreter, noted, &mut request)
            .await
            .expect("it runs");
        let lost = run(&interpreter, LOSING, &mut request).await;
        assert_eq!(lost.expect_err("it fails").reason(), "script_lost");
        let kept = code("$started + 1");
        let ran = interpreter.run(Phase::Access, &kept, None).await;
        let said = ran.expect_err("init raises once").to_string();
        assert!(said.contains("not yet"), "{said}");
        assert!(
            interpreter
                .run_at_once(Phase::Access, &kept, Instant::now(), None)
                .is_none()
        );
        let ran = interpreter.run(Phase::Access, &kept, None).await;
        assert_eq!(ran.expect("it has started by now").value, Datum::Int(42));
        assert!(
            interpreter
                .run_at_once(Phase::Access, &kept, Instant::now(), None)
                .is_some()
        );
    });
}

#[test]
fn runs_wait_for_a_new_interpreter_to_start() {
    on_a_worker(async {
        let interpreter = interpreter();
        let starters = vec![(Phase::Init, code("sleep 0.05; $started = 41"))];
        interpreter.start(starters).await.expect("it starts");
        let mut request = Trial::get("/");
        let lost = run(&interpreter, LOSING, &mut request).await;
        assert_eq!(lost.expect_err("it fails").reason(), "script_lost");
        let (one, other) = (code("$started + 1"), code("$started + 1"));
        let first = interpreter.run(Phase::Access, &one, None);
        let second = interpreter.run(Phase::Access, &other, None);
        let (first, second) = tokio::join!(first, second);
        for ran in [first, second] {
            assert_eq!(ran.expect("it has started").value, Datum::Int(42));
        }
    });
}

#[test]
fn waits_that_are_over_at_once_end_with_the_time_and_let_others_run() {
    for text in [
        "while true; sleep 0; end",
        "m = Memcached.new('127.0.0.1:1'); while true; m.get('a b'); end",
        "d = MySQL::Database.allocate; d.__send__(:__open, '127.0.0.1', 'u', '', 'd', 1, nil); d.close
         begin; d.execute('SELECT 1'); rescue RuntimeError; retry; end",
    ] {
        on_a_worker(async {
            let mut settings = settings();
            settings.budgets.wall = Duration::from_millis(100);
            settings.budgets.cpu = Duration::from_secs(5);
            let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
            let script = code(text);
            let run = interpreter.run(Phase::Access, &script, None);
            let other = async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            };
            let (ran, ()) = tokio::join!(run, other);
            let said = ran.expect_err("it takes too long").to_string();
            assert!(said.contains("scripts.wall"), "{text}: {said}");
        });
    }
}

#[test]
fn what_a_script_ends_with_is_copied_within_bounds() {
    assert_eq!(
        value("['x' * 10_000_000] * 100_000"),
        Datum::Array(vec![Datum::Other; 999])
    );
    assert_eq!(value("'x' * 100_000"), Datum::Other);
}

#[test]
fn backtraces_tell_of_the_operators_lines_alone() {
    let said = failure("1\nUserdata.new.name(1)");
    assert!(said.ends_with("; at script.rb:2"), "{said}");
    let said = failure("def deep\n  [1].each { |x| sleep 'a' }\nend\ndeep");
    assert!(said.contains("; at script.rb:2:in sleep"), "{said}");
    assert!(!said.contains("<nagaya>") && !said.contains("__"), "{said}");
}

#[test]
fn objects_of_a_request_kept_beyond_its_end_raise() {
    on_a_worker(async {
        let interpreter = interpreter();
        for (make, ask) in [
            ("Nginx::Var.new", "uri"),
            ("Nginx::Headers_in.new", "all"),
            ("Apache::Headers_out.new", "all"),
            ("Nginx::Connection.new", "remote_ip"),
            ("Nginx::Server.new", "document_root"),
            ("Apache::Notes.new", "all"),
            ("Apache::Env.new", "all"),
            ("Nginx::Upstream.new('a')", "server"),
        ] {
            let (mut first, mut second) = (Trial::get("/a"), Trial::get("/b"));
            let kept = format!("@kept = {make}; @kept.{ask}");
            run(&interpreter, &kept, &mut first).await.expect("kept");
            let ran = run(&interpreter, &format!("@kept.{ask}"), &mut second).await;
            let said = ran.expect_err("it is another's").to_string();
            assert!(said.contains("a request that has ended"), "{make}: {said}");
        }
    });
}
