//! What scripts keep between requests: `Userdata`, for one interpreter, and `Cache`, for all; and
//! the waits that go by other names than `sleep`.

use crate::bed;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::bed::{failure, interpreter, on_a_worker, run, settings, value};
use script::{Datum, Interpreter, Phase, Settings, Shared, Trial};

#[test]
fn userdata_keeps_objects_under_a_key_and_a_name() {
    let cases = [
        ("Userdata.new('a').x", "nil"),
        ("Userdata.new('a').x = 7; Userdata.new('a').x", "7"),
        ("Userdata.new('a').x = 7; Userdata.new('b').x", "nil"),
        ("Userdata.new.x = 7; Userdata.new.x", "7"),
        ("Userdata.new.x = 7; Userdata.new('a').x", "nil"),
        ("(Userdata.new.x = 7)", "7"),
        ("u = Userdata.new; u.x = 1; u.x = nil; u.x", "nil"),
        (
            "u = Userdata.new; u.x = [1, 'a']; u.x << :b; Userdata.new.x",
            "[1, \"a\", :b]",
        ),
        (
            "Userdata.new.f = ->(n) { n + 1 }; Userdata.new.f.call(2)",
            "3",
        ),
        (
            "u = Userdata.new; u.m = Mutex.new; u.c = 1; u",
            "#<Userdata [:c, :m]>",
        ),
        (
            "Userdata.new(\"memcached_#{7}\").c = 1; Userdata.new('memcached_7').c",
            "1",
        ),
    ];
    check(&cases);
    let many = "u = Userdata.new; 600.times { |i| u.send(\"n#{i}=\", i) }; u.n599 + u.n0 + u.n599";
    check(&[(many, "1198"), (many, "1198")]);
    assert!(failure("Userdata.new.x(1)").contains("NoMethodError"));
}

#[test]
fn userdata_lasts_from_one_run_to_the_next() {
    on_a_worker(async {
        let interpreter = interpreter();
        let mut request = Trial::get("/");
        for (code, expected) in [
            ("Userdata.new('k').n = 1", 1),
            ("Userdata.new('k').n += 1; GC.start; 2", 2),
            ("Userdata.new('k').n", 2),
        ] {
            let ran = run(&interpreter, code, &mut request)
                .await
                .expect("it runs");
            assert_eq!(ran.value, Datum::Int(expected), "{code}");
        }
    });
}

#[test]
fn what_waits_by_other_names_waits() {
    let cases = [
        ("Nginx::Async.sleep(1)", "1"),
        ("usleep(10)", "10"),
        ("Nginx::Async::HTTP.last_response", "nil"),
        (
            "Nginx::Async::HTTP.__keep([200, { 'a' => 'b' }, 'x']); r = Nginx::Async::HTTP.last_response; [r.status, r.code, r.headers['a'], r.body]",
            "[200, 200, \"b\", \"x\"]",
        ),
    ];
    check(&cases);
    let cases = [
        ("Nginx::Async.sleep(-1)", "not negative"),
        ("usleep('x')", "Integer"),
        ("Nginx::Async::HTTP.sub_request('x')", "begins with /"),
        (
            "Nginx::Async::HTTP.sub_request('/x', 'y' * 9000)",
            "at most 8 KiB",
        ),
    ];
    for (code, part) in cases {
        let said = failure(code);
        assert!(said.contains(part), "{code}: {said}");
    }
}

#[test]
fn cache_keeps_strings_under_strings() {
    let cases = [
        ("c['a']", "nil"),
        ("c['a'] = '1'", "\"1\""),
        ("c.set('a', '1'); c.get('a')", "\"1\""),
        ("c['a'] = '1'; c.get_by_no_lock('a')", "\"1\""),
        ("c['a'] = '1'; c['a'] = '22'; c['a']", "\"22\""),
        ("c['a\\0b'] = \"x\\0y\"; c[\"a\\0b\"]", "nil"),
        ("c[\"a\\0b\"] = \"x\\0y\"; c[\"a\\0b\"]", "\"x\\x00y\""),
        ("c[''] = ''; c['']", "\"\""),
        ("c['a'] = '1'; c.delete('a')", "true"),
        ("c.delete('a')", "false"),
        ("c['a'] = '1'; c.delete('a'); c['a']", "nil"),
        ("c['a'] = '1'; c.clear; [c.size, c['a']]", "[0, nil]"),
        ("c['a'] = '1'; c['b'] = '2'; c.size", "2"),
        ("c['a'] = '1'; c['b'] = '2'; c.keys.sort", "[\"a\", \"b\"]"),
        (
            "c['a'] = '1'; all = []; c.each { |k, v| all << k + v }; all",
            "[\"a1\"]",
        ),
        ("c.incr('n')", "1"),
        ("c.incr('n'); c.incr('n', 4); c['n']", "\"5\""),
        ("c['n'] = '9'; c.incr('n'); c['n']", "\"10\""),
        ("c.decr('n')", "-1"),
        ("c['n'] = '100'; c.decr('n', 99)", "1"),
        ("c['a'] = '1'; Cache.drop(:namespace => 'n'); c['a']", "nil"),
        ("c['a'] = '1'; Cache.new('namespace' => 'n')['a']", "\"1\""),
        ("c['a'] = '1'; Cache.new(:namespace => 'm')['a']", "nil"),
        ("c['a'] = '1'; Cache.new(:filename => 'n')['a']", "nil"),
        (
            "Cache.new(:filename => '/x/y.lmc', :size_mb => 1).set('a', 'b')",
            "\"b\"",
        ),
        ("c['ab'] = 'cde'; c.shm_status[:used_bytes]", "5"),
        (
            "s = c.shm_status; s[:free_bytes] == s[:total_bytes]",
            "true",
        ),
        ("[c.check_consistency, c.close, c['a']]", "[true, nil, nil]"),
    ];
    let cases =
        cases.map(|(code, shown)| (format!("c = Cache.new(:namespace => 'n'); {code}"), shown));
    let cases: Vec<_> = cases
        .iter()
        .map(|(code, shown)| (code.as_str(), *shown))
        .collect();
    check(&cases);
}

#[test]
fn cache_says_what_it_does_not_take() {
    let cases = [
        ("c['a'] = 1", "TypeError"),
        ("c[1] = 'a'", "TypeError"),
        ("c[:a]", "TypeError"),
        ("c.get(nil)", "TypeError"),
        ("c.delete(1)", "TypeError"),
        ("c['n'] = 'x'; c.incr('n')", "count numbers"),
        ("c['n'] = '9223372036854775807'; c.incr('n')", "RangeError"),
        ("c.incr('n', 'x')", "TypeError"),
        ("Cache.new({})", "write Cache.new(:namespace"),
        ("Cache.new('n')", "write Cache.new(:namespace"),
        ("Cache.new(:namespace => 1)", "TypeError"),
        ("Cache.new(:namespace => 'x' * 2000)", "at most 1024 bytes"),
        ("Cache.allocate['a']", "Cache::MemoryPoolClosed"),
        ("c['a'] = 'x' * 2000", "Cache::MemoryPoolFull"),
    ];
    for (code, part) in cases {
        let code = format!("c = Cache.new(:namespace => 'n'); {code}");
        let said = on_a_worker(async {
            let mut request = Trial::get("/");
            let ran = run(&small(1_000, 10, Arc::default()), &code, &mut request).await;
            ran.expect_err("it fails").to_string()
        });
        assert!(said.contains(part), "{code}: {said}");
    }
}

#[test]
fn a_full_namespace_forgets_its_own_and_nobody_elses() {
    let cases = [
        // Ten entries: those that were not asked for go.
        (
            "a['kept'] = '1'; 30.times { |i| a[i.to_s] = '1'; a['kept'] }; [a.size, a['kept']]",
            "[10, \"1\"]",
        ),
        (
            "b['x'] = '1'; 30.times { |i| a[i.to_s] = '1' }; [a.size, b['x']]",
            "[9, \"1\"]",
        ),
        (
            "10.times { |i| b[i.to_s] = '1' }; begin; a['x'] = '1'; rescue Cache::MemoryPoolFull; b.size; end",
            "10",
        ),
        (
            "30.times { |i| a[i.to_s] = 'x' * 200 }; [a.size, a.shm_status[:used_bytes] <= 1000]",
            "[4, true]",
        ),
        (
            "4.times { |i| a[i.to_s] = 'x' * 200 }; a['3'] = 'y' * 900; [a.size, a['3'].size]",
            "[1, 900]",
        ),
    ];
    for (code, shown) in cases {
        let code =
            format!("a, b = %w[a b].map {{ |n| Cache.new(:namespace => n) }}; ({code}).inspect");
        on_a_worker(async {
            let mut request = Trial::get("/");
            let ran = run(&small(1_000, 10, Arc::default()), &code, &mut request).await;
            assert_eq!(ran.expect("it runs").value, Datum::from(shown), "{code}");
        });
    }
}

#[test]
fn cache_is_one_for_all_workers_and_generations() {
    let shared = Arc::<Shared>::default();
    let together = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                on_a_worker(async {
                    let interpreter = small(1 << 20, 1_000, Arc::clone(&shared));
                    together.wait();
                    let mut request = Trial::get("/");
                    let code =
                        "c = Cache.new(:namespace => 'n'); 100.times { |i| c.incr(\"k#{i % 7}\") }";
                    for _ in 0..20 {
                        run(&interpreter, code, &mut request)
                            .await
                            .expect("it counts");
                    }
                });
            });
        }
    });
    on_a_worker(async {
        let next = small(1 << 20, 1_000, Arc::clone(&shared));
        let code = "c = Cache.new(:namespace => 'n'); c.keys.map { |k| c[k].to_i }.inject(:+)";
        let ran = next.run(Phase::Init, &bed::code(code), None).await;
        assert_eq!(ran.expect("it runs").value, Datum::Int(4_000));
    });
}

/// An interpreter whose `Cache` has room for this much.
fn small(bytes: usize, entries: usize, shared: Arc<Shared>) -> Rc<Interpreter> {
    let mut settings: Settings = settings();
    settings.budgets.cache_bytes = bytes;
    settings.budgets.cache_entries = entries;
    settings.budgets.cpu = std::time::Duration::from_secs(5);
    Interpreter::open(settings, shared).expect("an interpreter opens")
}

/// Checks what `inspect` says of the value of each script.
fn check(cases: &[(&str, &str)]) {
    for (code, shown) in cases {
        let inspected = value(&format!("({code}).inspect"));
        assert_eq!(inspected, Datum::from(*shown), "{code}");
    }
}
