//! What scripts keep between requests: `Userdata`, for one interpreter, and `Cache`, for all; and
//! the waits that go by other names than `sleep`.

use crate::bed;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{code, failure, interpreter, on_a_worker, run, settings, value};
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

/// A directory of its own for files of `Cache`.
struct Kept(std::path::PathBuf);

impl Kept {
    fn new(name: &str) -> Self {
        let at = std::env::temp_dir().join(format!("nagaya-kept-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&at).expect("a directory");
        Self(at)
    }

    fn settings(&self) -> Settings {
        let mut settings = settings();
        settings.cache_files = Arc::new([self.0.clone()]);
        settings.budgets.cpu = Duration::from_secs(5);
        settings
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// As an outside tool does.
    fn replace(&self, name: &str, text: &str) {
        let beside = self.0.join(".tool");
        std::fs::write(&beside, text).expect("a file");
        std::fs::rename(beside, self.0.join(name)).expect("a name");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the directory");
    }
}

async fn comes_to(interpreter: &Rc<Interpreter>, script: &str, expected: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let ran = run(interpreter, script, &mut Trial::get("/")).await;
        let value = ran.expect("it runs").value;
        if value == Datum::from(expected) {
            return;
        }
        assert!(Instant::now() < deadline, "{script} is {value:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const TOLD: &str =
    "c = Cache.new(filename: 'max.lmc'); c.keys.sort.map { |k| \"#{k}=#{c[k]}\" }.join(' ')";

#[test]
fn a_file_keeps_a_namespace_and_counts_what_others_change() {
    let kept = Kept::new("both");
    kept.replace("max.lmc", "/a.php\t{\"max\": 2}\nodd\\tkey\ttwo\\nlines");
    on_a_worker(async {
        let shared = Arc::new(Shared::default());
        let interpreter =
            Interpreter::open(kept.settings(), Arc::clone(&shared)).expect("it opens");
        // Read before the first script runs.
        let init = code("$first = Cache.new(filename: 'max.lmc')['/a.php']");
        interpreter
            .start(vec![(Phase::Init, init)])
            .await
            .expect("it starts");
        let ran = run(&interpreter, "$first", &mut Trial::get("/"))
            .await
            .expect("it runs");
        assert_eq!(ran.value, Datum::from("{\"max\": 2}"));
        // What scripts write comes into the file, beside what is there.
        let set = format!(
            "c = Cache.new(filename: {:?}); c['b'] = '1'; c.incr('b', 4)",
            kept.0.join("max.lmc")
        );
        run(&interpreter, &set, &mut Trial::get("/"))
            .await
            .expect("it runs");
        shared.keep_files(Duration::from_secs(30));
        assert_eq!(
            kept.text("max.lmc"),
            "/a.php\t{\"max\": 2}\nb\t5\nodd\\tkey\ttwo\\nlines\n"
        );
        // Others take a key away, change one and add one; of `b`, which both change, theirs counts.
        run(
            &interpreter,
            "Cache.new(filename: 'max.lmc')['b'] = '6'",
            &mut Trial::get("/"),
        )
        .await
        .expect("it runs");
        kept.replace("max.lmc", "/a.php\t3\nb\t7\nnew\t1\n");
        comes_to(&interpreter, TOLD, "/a.php=3 b=7 new=1").await;
        std::fs::write(kept.0.join("max.lmc"), "/a.php\t4\n").expect("written in place");
        comes_to(&interpreter, TOLD, "/a.php=4").await;
        // A file that is no such text is left as it is, and memory, too.
        kept.replace("max.lmc", "no tab\n");
        run(
            &interpreter,
            "Cache.new(filename: 'max.lmc')['x'] = '1'",
            &mut Trial::get("/"),
        )
        .await
        .expect("it runs");
        shared.keep_files(Duration::from_secs(30));
        assert_eq!(kept.text("max.lmc"), "no tab\n");
        comes_to(&interpreter, TOLD, "/a.php=4 x=1").await;
        kept.replace("max.lmc", "/a.php\t5\n");
        comes_to(&interpreter, TOLD, "/a.php=5 x=1").await;
    });
    // Another process finds it.
    on_a_worker(async {
        let interpreter = Interpreter::open(kept.settings(), Arc::default()).expect("it opens");
        interpreter.start(Vec::new()).await.expect("it starts");
        let ran = run(
            &interpreter,
            "Cache.new(filename: 'max.lmc')['/a.php']",
            &mut Trial::get("/"),
        )
        .await;
        assert_eq!(ran.expect("it runs").value, Datum::from("5"));
    });
}

#[test]
fn files_of_cache_lie_where_the_operator_says() {
    let kept = Kept::new("places");
    std::os::unix::fs::symlink("/etc/hostname", kept.0.join("link.lmc")).expect("a link");
    on_a_worker(async {
        let shared = Arc::new(Shared::default());
        let interpreter =
            Interpreter::open(kept.settings(), Arc::clone(&shared)).expect("it opens");
        interpreter.start(Vec::new()).await.expect("it starts");
        for name in [
            "/etc/passwd",
            "../x.lmc",
            "a/b.lmc",
            ".hidden",
            "",
            "..",
            &format!("{}/../x", kept.0.display()),
        ] {
            let script = format!("Cache.new(filename: {name:?})");
            let said = run(&interpreter, &script, &mut Trial::get("/"))
                .await
                .expect_err(name);
            assert!(
                said.to_string().contains("Cache::InitError"),
                "{name}: {said}"
            );
        }
        let script =
            "Cache.new(filename: 'link.lmc')['a'] = '1'; Cache.new(namespace: 'n')['a'] = '1'";
        run(&interpreter, script, &mut Trial::get("/"))
            .await
            .expect("it runs");
        shared.keep_files(Duration::from_secs(30));
        let names = std::fs::read_dir(&kept.0).expect("the directory");
        let names: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["link.lmc"]);
        assert!(std::fs::read_link(kept.0.join("link.lmc")).is_ok());
    });
}

#[test]
fn a_generation_that_is_refused_takes_no_files_of_cache_with_it() {
    let (kept, other) = (Kept::new("in-force"), Kept::new("refused"));
    on_a_worker(async {
        let shared = Arc::new(Shared::default());
        let opened = |settings| Interpreter::open(settings, Arc::clone(&shared));
        let in_force = opened(kept.settings()).expect("it opens");
        in_force.start(Vec::new()).await.expect("it starts");
        let refused = opened(other.settings()).expect("it opens");
        let init = vec![(Phase::Init, code("raise 'no'"))];
        refused.start(init).await.expect_err("it is refused");
        drop(refused);
        let script = "Cache.new(filename: 'max.lmc')['a'] = '1'";
        let ran = run(&in_force, script, &mut Trial::get("/")).await;
        ran.expect("it runs");
        shared.keep_files(Duration::from_secs(30));
        assert_eq!(kept.text("max.lmc"), "a\t1\n");
        // A server that ends has no generation left, and writes once more.
        let script = "Cache.new(filename: 'max.lmc')['b'] = '2'";
        let ran = run(&in_force, script, &mut Trial::get("/")).await;
        ran.expect("it runs");
        drop(in_force);
        shared.keep_files(Duration::from_secs(30));
        assert_eq!(kept.text("max.lmc"), "a\t1\nb\t2\n");
    });
}

#[test]
fn a_file_of_cache_has_one_name_however_it_is_written() {
    let kept = Kept::new("names");
    on_a_worker(async {
        let shared = Arc::new(Shared::default());
        let opened = Interpreter::open(kept.settings(), Arc::clone(&shared));
        let interpreter = opened.expect("it opens");
        interpreter.start(Vec::new()).await.expect("it starts");
        let directory = kept.0.display();
        for (key, name) in [
            ("a", "max.lmc".to_owned()),
            ("b", format!("{directory}/max.lmc")),
            ("c", format!("{directory}//max.lmc")),
            ("d", format!("{directory}/./max.lmc")),
        ] {
            let script = format!("Cache.new(filename: {name:?})[{key:?}] = '1'");
            let ran = run(&interpreter, &script, &mut Trial::get("/")).await;
            ran.expect("it runs");
        }
        shared.keep_files(Duration::from_secs(30));
        assert_eq!(kept.text("max.lmc"), "a\t1\nb\t1\nc\t1\nd\t1\n");
    });
}
