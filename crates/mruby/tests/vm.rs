//! Interpreters with a small world of their own: what goes in, what comes out, what ends a runaway.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::any::Any;
use std::rc::Rc;
use std::time::Duration;

use mruby::{
    Answer, Budget, Call, ClassKind, Datum, Error, Halt, Host, MethodOf, Resume, Slot, Takes, Vm,
};

#[derive(Default)]
struct World {
    finished: Option<Datum>,
    waits: usize,
    cancelled: usize,
    seen: Vec<Datum>,
}

impl Host for World {
    type Lent = String;

    fn cancel_wait(&mut self) {
        self.cancelled += 1;
        self.waits -= 1;
    }
}

const PRELUDE: &str = "
class Box
  def initialize(what); __hold(what); end
end
";

fn opened() -> Vm<World> {
    opened_with(64 << 20)
}

fn opened_with(memory_bytes: usize) -> Vm<World> {
    let budget = Budget {
        memory_bytes,
        cpu: Duration::from_millis(5) * patience(),
    };
    let mut vm = Vm::open(World::default(), budget).expect("an interpreter opens");
    let any = Takes {
        least: 0,
        most: 64,
        texts: 0,
    };
    let words = Takes {
        texts: 0xffff,
        ..any
    };
    vm.define("", "Box", "Object", ClassKind::Holding).unwrap();
    let natives: [(&str, &str, MethodOf, Takes, mruby::Native<World>); 7] = [
        ("Nagaya", "wait", MethodOf::Class, any, wait),
        ("Nagaya", "see", MethodOf::Class, any, see),
        ("Nagaya", "words", MethodOf::Class, words, see),
        ("Nagaya", "lent", MethodOf::Class, any, lent),
        ("Nagaya", "boom", MethodOf::Class, any, |_| {
            panic!("a native's bug")
        }),
        ("Box", "__hold", MethodOf::Object, any, hold),
        ("Box", "held", MethodOf::Object, any, held),
    ];
    for (class, name, of, takes, native) in natives {
        vm.method(class, name, of, takes, native).unwrap();
    }
    let prelude = vm.compile(PRELUDE.as_bytes(), "prelude.rb", 1).unwrap();
    vm.run(prelude).unwrap();
    vm.unseal();
    vm
}

/// How much longer everything may take than usual: sanitizers are slow.
fn patience() -> u32 {
    let asked = std::env::var("NAGAYA_PATIENCE").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn wait(call: &mut Call<'_, World>) -> Answer {
    call.host.waits += 1;
    Answer::Wait
}

fn see(call: &mut Call<'_, World>) -> Answer {
    for index in 0..call.count() {
        let seen = call.datum(index);
        call.host.seen.push(seen);
    }
    Answer::Argument(0)
}

fn lent(call: &mut Call<'_, World>) -> Answer {
    match call.lent() {
        Some(text) => Answer::Bytes(text.clone().into_bytes()),
        None => Answer::Nil,
    }
}

fn hold(call: &mut Call<'_, World>) -> Answer {
    Answer::Attach(Rc::new(call.datum(0)) as Rc<dyn Any>)
}

fn held(call: &mut Call<'_, World>) -> Answer {
    match call.attached::<Datum>() {
        Some(held) => Answer::Datum((*held).clone()),
        None => Answer::runtime_error("holds nothing"),
    }
}

/// Runs `source` in a fiber up to its end or first wait.
fn start(vm: &mut Vm<World>, source: &str) -> Result<Slot, Error> {
    let script = vm.compile(source.as_bytes(), "script.rb", 1)?;
    let fiber = vm.fiber()?;
    go(vm, fiber, Resume::Script(script))?;
    vm.let_go(script);
    Ok(fiber)
}

/// Goes on with a fiber, and notes what its script ended with.
fn go(vm: &mut Vm<World>, fiber: Slot, with: Resume) -> Result<(), Error> {
    if let Halt::Ended(value) = vm.resume(fiber, with, None)? {
        vm.host().finished = Some(value);
    }
    Ok(())
}

fn value(source: &str) -> Datum {
    let mut vm = opened();
    start(&mut vm, source).unwrap_or_else(|error| panic!("{source}: {error:?}"));
    vm.host()
        .finished
        .take()
        .expect("the script came to its end")
}

fn raised(source: &str) -> (String, String) {
    let mut vm = opened();
    match start(&mut vm, source) {
        Err(Error::Raised(raised)) => {
            alive(&mut vm);
            (raised.class, raised.message)
        }
        other => panic!("{source}: {other:?}"),
    }
}

/// The interpreter goes on as if nothing had been.
fn alive(vm: &mut Vm<World>) {
    start(vm, "1 + 1").expect("the next script runs");
    assert_eq!(vm.host().finished.take(), Some(Datum::Int(2)));
}

#[test]
fn a_script_ends_with_the_value_of_its_last_line() {
    assert_eq!(value("1 + 1"), Datum::Int(2));
    assert_eq!(value("return 7; 8"), Datum::Int(7));
    assert_eq!(value("[1, 2].each { |x| return x }; 9"), Datum::Int(1));
    assert_eq!(
        value("x = 5\n-> do\n return x + 1\nend.call"),
        Datum::Int(6)
    );
    assert_eq!(
        value("def twice(x) x * 2 end\nclass A; def go; twice(4); end; end\nA.new.go"),
        Datum::Int(8)
    );
    assert_eq!(value("self.to_s"), Datum::from("main"));
    assert_eq!(
        value("{ 'a' => [1, 2.5, nil, :b, true] }"),
        Datum::Hash(vec![(
            Datum::from("a"),
            Datum::Array(vec![
                Datum::Int(1),
                Datum::Float(2.5),
                Datum::Nil,
                Datum::Symbol(b"b".to_vec()),
                Datum::Bool(true),
            ])
        )])
    );
}

#[test]
fn instance_variables_of_main_outlive_a_script() {
    let mut vm = opened();
    start(&mut vm, "@kept = 'here'").unwrap();
    start(&mut vm, "@kept").unwrap();
    assert_eq!(vm.host().finished.take(), Some(Datum::from("here")));
}

#[test]
fn arguments_reach_natives_as_they_are_or_as_text() {
    let mut vm = opened();
    start(
        &mut vm,
        "Nagaya.see(1, 'two', nil); Nagaya.words(3, :four, nil, [5]); Nagaya.see(a: 1)",
    )
    .unwrap();
    let expected = vec![
        Datum::Int(1),
        Datum::from("two"),
        Datum::Nil,
        Datum::from("3"),
        Datum::from("four"),
        Datum::Nil,
        Datum::from("[5]"),
        Datum::Hash(vec![(Datum::Symbol(b"a".to_vec()), Datum::Int(1))]),
    ];
    assert_eq!(vm.host().seen, expected);
}

#[test]
fn a_wait_parks_its_fiber_and_goes_on_with_the_value() {
    let mut vm = opened();
    let fiber = start(&mut vm, "x = Nagaya.wait; y = Nagaya.wait; [x, y]").unwrap();
    assert_eq!((vm.host().waits, vm.host().finished.clone()), (1, None));
    let other = start(&mut vm, "Nagaya.wait + 1").unwrap();
    go(&mut vm, fiber, Resume::Value(Datum::from("a"))).unwrap();
    go(&mut vm, other, Resume::Value(Datum::Int(41))).unwrap();
    assert_eq!(vm.host().finished.take(), Some(Datum::Int(42)));
    let more = Datum::Array(vec![Datum::Int(2)]);
    go(&mut vm, fiber, Resume::Value(more)).unwrap();
    assert_eq!(
        vm.host().finished.take(),
        Some(Datum::Array(vec![
            Datum::from("a"),
            Datum::Array(vec![Datum::Int(2)])
        ]))
    );
}

#[test]
fn a_failed_wait_raises_where_it_waited() {
    let mut vm = opened();
    let source = "begin; Nagaya.wait; rescue ArgumentError => e; 'rescued ' + e.message; end";
    let fiber = start(&mut vm, source).unwrap();
    let raised = Resume::Raise("ArgumentError", "no luck".to_owned());
    go(&mut vm, fiber, raised).unwrap();
    assert_eq!(
        vm.host().finished.take(),
        Some(Datum::from("rescued no luck"))
    );

    let fiber = start(&mut vm, "1\nNagaya.wait").unwrap();
    let ended = vm.resume(
        fiber,
        Resume::Raise("RuntimeError", "gone".to_owned()),
        None,
    );
    let Err(Error::Raised(raised)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (raised.class.as_str(), raised.message.as_str()),
        ("RuntimeError", "gone")
    );
    assert!(raised.backtrace[0].starts_with("script.rb:2"), "{raised:?}");
    alive(&mut vm);
}

#[test]
fn a_reused_fiber_runs_one_script_after_another() {
    let mut vm = opened();
    let script = vm.compile(b"@n = (@n || 0) + 1", "script.rb", 1).unwrap();
    let fiber = vm.fiber().unwrap();
    for n in 1..=1_000 {
        go(&mut vm, fiber, Resume::Script(script)).unwrap();
        assert_eq!(vm.host().finished.take(), Some(Datum::Int(n)));
    }
    vm.collect().unwrap();
    let before = vm.objects();
    for _ in 0..10_000 {
        go(&mut vm, fiber, Resume::Script(script)).unwrap();
    }
    vm.collect().unwrap();
    assert!(
        vm.objects() <= before + 10,
        "{} objects, {before} before",
        vm.objects()
    );
}

#[test]
fn a_wait_with_c_in_the_way_names_what_is_in_the_way() {
    for (source, named) in [
        ("Class.new { Nagaya.wait }", "called by new"),
        ("Struct.new(:a) { Nagaya.wait }", "by new"),
        ("Hash.new { Nagaya.wait }[1]", "by an operator"),
        (
            "class S; def to_s; Nagaya.wait; end; end; Nagaya.words(S.new)",
            "by words",
        ),
        ("Fiber.new { Nagaya.wait }.resume", "Fiber or Enumerator"),
        (
            "e = Enumerator.new { |y| Nagaya.wait; y << 1 }; e.next",
            "Fiber or Enumerator",
        ),
    ] {
        let (class, message) = raised(source);
        assert_eq!(class, "FiberError", "{source}: {message}");
        assert!(message.contains(named), "{source}: {message}");
    }
}

#[test]
fn waits_work_in_blocks_and_methods_of_ruby() {
    for source in [
        "[1].each { Nagaya.wait }",
        "[2, 1].sort { |a, b| Nagaya.wait; a <=> b }",
        "[2].map { Nagaya.wait }",
        "1.times { Nagaya.wait }",
        "{ a: 1 }.each { Nagaya.wait }",
        "loop { Nagaya.wait; break }",
        "send(:instance_eval) { Nagaya.wait }",
        "class W; def initialize; Nagaya.wait; end; end; W.new",
        "define_method(:w) { Nagaya.wait } rescue Object.define_method(:w) { Nagaya.wait }; w",
        "eval 'Nagaya.wait'",
        "begin; Nagaya.wait; ensure; 1; end",
        "catch(:x) { Nagaya.wait }",
        "->() { Nagaya.wait }.call",
        "Nagaya.method(:wait).call",
        "Nagaya.send(:wait)",
        "[1].inject(0) { |a, b| Nagaya.wait; a }",
        "'aXb'.gsub('X') { Nagaya.wait; 'y' }",
        "[3].each_with_index { Nagaya.wait }",
        "Array.new(1) { Nagaya.wait }",
        "[1].index { Nagaya.wait; true }",
    ] {
        let mut vm = opened();
        let fiber = start(&mut vm, source).unwrap_or_else(|error| panic!("{source}: {error}"));
        while vm.host().finished.is_none() {
            assert!(vm.host().waits > 0, "{source}");
            go(&mut vm, fiber, Resume::Value(Datum::Int(1)))
                .unwrap_or_else(|error| panic!("{source}: {error}"));
        }
        alive(&mut vm);
    }
}

#[test]
fn runaways_end_and_the_interpreter_goes_on() {
    for source in [
        "while true; end",
        "loop {}",
        "begin; while true; end; rescue Exception; end; while true; end",
        "begin; while true; end; ensure; while true; end; end",
        "def again; begin; while true; end; ensure; again; end; end; again",
        "loop { begin; while true; end; rescue Exception; retry; end }",
        "x = 'a'; loop { x = x.upcase }",
        "[1].each { |x| [2].cycle { } }",
    ] {
        let (class, message) = raised(source);
        assert_eq!(class, "ScriptBudgetError", "{source}: {message}");
    }
}

#[test]
fn deep_recursion_raises_and_the_interpreter_goes_on() {
    for source in [
        "def deeper; deeper; end; deeper",
        "def f(x); [x].each { |y| f(y) }; end; f(1)",
        "class S; def to_s; \"#{self}\"; end; end; S.new.to_s",
        "a = []; a << a; a.flatten",
        "x = nil; 5000.times { x = [x] }; x.inspect",
        "eval('[' * 20000 + ']' * 20000)",
        "eval('-' * 100000 + '1')",
        "def method_missing(n, *a); send(n.to_s + 'x'); end; foo",
    ] {
        let mut vm = opened();
        if let Err(error) = start(&mut vm, source) {
            assert!(matches!(error, Error::Raised(_)), "{source}: {error}");
        }
        vm.host().finished = None;
        alive(&mut vm);
    }
}

#[test]
fn memory_beyond_the_budget_raises_and_the_interpreter_goes_on() {
    for source in [
        "x = []; while true; x << 'a' * 1_000_000; end",
        "h = {}; i = 0; while true; h[i] = 'a' * 1_000_000; i += 1; end",
        "x = 'a' * 10_000_000; y = []; while true; y << x + 'b'; end",
    ] {
        let mut vm = opened_with(16 << 20);
        match start(&mut vm, source) {
            Err(Error::Raised(raised)) => assert!(
                ["NoMemoryError", "ScriptBudgetError"].contains(&raised.class.as_str()),
                "{source}: {raised:?}"
            ),
            other => panic!("{source}: {other:?}"),
        }
        assert!(vm.bytes() <= 16 << 20);
        vm.collect().unwrap();
        alive(&mut vm);
    }
}

/// Texts of this many bytes, which lie in blocks of a size of their own, kept in a global.
fn fill(vm: &mut Vm<World>, bytes: usize) {
    let source = format!("$kept = Array.new(4_000) {{ |at| at.to_s.ljust({bytes}, 'x') }}; nil");
    let script = vm.compile(source.as_bytes(), "fill.rb", 1).unwrap();
    vm.run(script).unwrap();
    vm.let_go(script);
}

#[test]
fn what_one_size_gave_back_is_there_for_another() {
    let mut vm = opened_with(16 << 20);
    vm.set_cpu(Duration::from_secs(1) * patience());
    // All of them together are more than the interpreter may have.
    for bytes in (24..601).step_by(17).chain((24..601).step_by(31).rev()) {
        fill(&mut vm, bytes);
        let script = b"wrong = $kept.each_with_index.find { |text, at| text.to_i != at }
            raise \"#{wrong} was overwritten\" if wrong";
        let script = vm.compile(script, "look.rb", 1).unwrap();
        vm.run(script).unwrap();
        vm.let_go(script);
    }
    let empty = vm.compile(b"$kept = nil", "empty.rb", 1).unwrap();
    vm.run(empty).unwrap();
    vm.collect().unwrap();
    let kept = vm.bytes();
    assert!(
        kept < 3 << 20,
        "{kept} bytes are kept of what was given back"
    );
}

#[test]
fn a_long_call_in_c_gives_the_interpreter_up() {
    for source in [
        "x = 'a' * 300_000 + 'b'; y = 'a' * 1_000_000; y.index(x)",
        "x = 'a' * 200_000 + 'b'; y = 'a' * 1_000_000; y.include?(x)",
    ] {
        let mut vm = opened();
        let script = vm.compile(source.as_bytes(), "script.rb", 1).unwrap();
        let fiber = vm.fiber().unwrap();
        // Patience is for what such a run makes slow; this call takes as long as ever.
        vm.set_cpu(Duration::from_millis(5) * patience().min(40));
        let ended = go(&mut vm, fiber, Resume::Script(script));
        assert_eq!(ended, Err(Error::Lost), "{source}");
        assert!(vm.is_lost());
        assert_eq!(start(&mut vm, "1"), Err(Error::Lost));
        drop(vm);
        alive(&mut opened());
    }
}

#[test]
fn a_fiber_that_waits_tells_where() {
    let mut vm = opened();
    let fiber = start(&mut vm, "def ask\n  [1].each { Nagaya.wait }\nend\n\nask").unwrap();
    let places = vm.whereabouts(fiber);
    assert_eq!(
        places.first().map(String::as_str),
        Some("script.rb:2:in wait")
    );
    let said = places.join(" ");
    assert!(
        said.contains("script.rb:2:in ask") && said.contains("script.rb:5"),
        "{said}"
    );
    go(&mut vm, fiber, Resume::Value(Datum::Nil)).unwrap();
    assert_eq!(vm.whereabouts(fiber), Vec::<String>::new());
    alive(&mut vm);
}

#[test]
fn a_missing_method_is_told_with_what_lacks_it() {
    for (source, said) in [
        ("nil.uri", "undefined method 'uri' for nil"),
        ("true.uri", "undefined method 'uri' for true"),
        ("5.uri", "undefined method 'uri' for an instance of Integer"),
        (
            "'x'.uri(1, 2)",
            "undefined method 'uri' for an instance of String",
        ),
        (
            "Nagaya.nothing",
            "undefined method 'nothing' for module Nagaya",
        ),
        ("Box.nothing", "undefined method 'nothing' for class Box"),
        (
            "nothing_of_that_name",
            "undefined method 'nothing_of_that_name' for main",
        ),
        (
            "class Below; def go; super; end; end; Below.new.go",
            "no superclass method 'go' for an instance of Below",
        ),
        (
            "class Own; def method_missing(name, *rest); super; end; end; Own.new.go",
            "undefined method 'go' for an instance of Own",
        ),
        (
            "BasicObject.new.go",
            "undefined method 'go' for an instance of BasicObject",
        ),
        ("nil.send(:uri)", "undefined method 'uri' for nil"),
    ] {
        let told = raised(source);
        assert_eq!(
            told,
            ("NoMethodError".to_owned(), said.to_owned()),
            "{source}"
        );
    }
    let named = value("begin; nil.uri(7); rescue NoMethodError => e; [e.name, e.args]; end");
    let name = Datum::Symbol(b"uri".to_vec());
    assert_eq!(
        named,
        Datum::Array(vec![name, Datum::Array(vec![Datum::Int(7)])])
    );
    assert_eq!(
        value("class Own; def method_missing(name, *rest); [name, rest]; end; end; Own.new.go(1)"),
        Datum::Array(vec![
            Datum::Symbol(b"go".to_vec()),
            Datum::Array(vec![Datum::Int(1)])
        ])
    );
}

#[test]
fn the_fiber_of_a_hook_is_nobody_elses_to_resume() {
    let mut vm = opened();
    let waits = start(&mut vm, "$kept = Fiber.current; Nagaya.wait").unwrap();
    start(&mut vm, "$other = Fiber.current").unwrap();
    for kept in ["$kept", "$other", "Fiber.current"] {
        for how in ["resume(1)", "resume", "send(:resume, 1)"] {
            let Err(Error::Raised(raised)) = start(&mut vm, &format!("{kept}.{how}")) else {
                panic!("{kept}.{how}");
            };
            assert_eq!(raised.class, "FiberError", "{kept}.{how}");
            assert!(
                raised.message.contains("make one with Fiber.new"),
                "{raised:?}"
            );
        }
    }
    go(&mut vm, waits, Resume::Value(Datum::Int(7))).unwrap();
    assert_eq!(vm.host().finished.take(), Some(Datum::Int(7)));
    assert_eq!(raised("Fiber.new { 1 }.transfer").0, "NotImplementedError");
    assert_eq!(
        value("f = Fiber.new { |x| Fiber.yield(x + 1) + 1 }; [f.resume(1), f.alive?, f.resume(5)]"),
        Datum::Array(vec![Datum::Int(2), Datum::Bool(true), Datum::Int(6)])
    );
}

/// They are called in another way than mruby's others.
#[test]
fn times_take_what_they_take_and_raise_what_they_raise() {
    assert_eq!(
        value(
            "t = Time.utc(2026, 11, 22, 1, 2, 3); [t.to_s, (t + 60).min, (t - 60.0).class == Time, t - t, t.dup == t]"
        ),
        Datum::Array(vec![
            Datum::from("2026-11-22 01:02:03 UTC"),
            Datum::Int(3),
            Datum::Bool(true),
            Datum::Float(0.0),
            Datum::Bool(true),
        ])
    );
    assert_eq!(value("Time.new(2026, 11, 22).year"), Datum::Int(2026));
    for source in [
        "Time.now(1)",
        "Time.now.to_s(1)",
        "Time.at",
        "Time.utc('x')",
    ] {
        let (class, message) = raised(source);
        assert!(
            ["ArgumentError", "TypeError"].contains(&class.as_str()),
            "{source}: {message}"
        );
    }
}

#[test]
fn two_interpreters_on_one_thread_do_not_know_of_each_other() {
    let (mut one, mut other) = (opened(), opened());
    start(&mut one, "$x = 1; class Only; end").unwrap();
    start(&mut other, "[$x, Object.const_defined?(:Only)]").unwrap();
    assert_eq!(
        other.host().finished.take(),
        Some(Datum::Array(vec![Datum::Nil, Datum::Bool(false)]))
    );
    drop(one);
    alive(&mut other);
}

/// A hook raised, its fiber was let go, and everything was collected: what is left still runs.
#[test]
fn a_full_collection_frees_nothing_that_is_in_use() {
    for count in (200..4_000).step_by(200) {
        let mut vm = opened();
        let raising =
            format!("$all = []; {count}.times {{ |n| $all << ['b' + n.to_s] }}; raise 'x'");
        let raising = vm.compile(raising.as_bytes(), "raising.rb", 1).unwrap();
        let fiber = vm.fiber().unwrap();
        assert!(go(&mut vm, fiber, Resume::Script(raising)).is_err());
        vm.let_go(fiber);
        let forgetting = vm.compile(b"$all = nil", "forgetting.rb", 1).unwrap();
        let fiber = vm.fiber().unwrap();
        go(&mut vm, fiber, Resume::Script(forgetting)).unwrap();
        vm.collect().unwrap();
        let after = vm
            .compile(b"300.times { |n| 'a' + n.to_s }; 7", "after.rb", 1)
            .unwrap();
        go(&mut vm, fiber, Resume::Script(after)).unwrap();
        assert_eq!(vm.host().finished.take(), Some(Datum::Int(7)), "{count}");
    }
}

#[test]
fn what_an_object_holds_dies_with_it() {
    let mut vm = opened();
    start(&mut vm, "@kept = Box.new([1, 'a']); @kept.held").unwrap();
    assert_eq!(
        vm.host().finished.take(),
        Some(Datum::Array(vec![Datum::Int(1), Datum::from("a")]))
    );
    start(
        &mut vm,
        "100.times { Box.new(1) }; @kept.send(:initialize, 2); @kept.held",
    )
    .unwrap();
    assert_eq!(vm.host().finished.take(), Some(Datum::Int(2)));
    vm.collect().unwrap();
    assert_eq!(vm.held(), 1);
    assert_eq!(raised("Box.allocate.held").1, "holds nothing");
}

#[test]
fn what_is_lent_is_seen_for_one_run_only() {
    let mut vm = opened();
    let mut text = "a request".to_owned();
    let script = vm.compile(b"Nagaya.lent", "script.rb", 1).unwrap();
    let fiber = vm.fiber().unwrap();
    let seen = vm.resume(fiber, Resume::Script(script), Some(&mut text));
    assert_eq!(seen, Ok(Halt::Ended(Datum::from("a request"))));
    let seen = vm.resume(fiber, Resume::Script(script), None);
    assert_eq!(seen, Ok(Halt::Ended(Datum::Nil)));
}

#[test]
fn errors_say_what_and_where() {
    let mut vm = opened();
    let Err(Error::Raised(raised)) = vm.compile(b"x = 1\nif x\n  foo(\n", "hooks/a.rb", 1) else {
        panic!("compiled");
    };
    assert_eq!(raised.class, "SyntaxError");
    assert!(raised.message.starts_with("line "), "{raised:?}");
    let (class, message) = self::raised("nothing_of_that_name");
    assert_eq!(class, "NoMethodError", "{message}");
    assert_eq!(self::raised("Nagaya.boom").0, "ScriptError");
    assert_eq!(self::raised("Nagaya.__run").0, "ArgumentError");
    assert_eq!(
        self::raised("class E < StandardError; def message; raise 'again'; end; end; raise E").0,
        "Exception"
    );
    assert_eq!(self::raised("2 ** 64").0, "RangeError");
    assert_eq!(
        self::raised("raise Exception, 'x' * 100_000").1.len(),
        4_096
    );
}

#[test]
fn texts_of_arguments_outlive_the_array_they_came_in() {
    let mut vm = opened();
    let source =
        "class E; def initialize(l) @l = l; end; def to_s; @l.clear; GC.start; 'e'; end; end
        list = ['a' * 100, 'b' * 100]; list << E.new(list); Nagaya.words(*list)";
    start(&mut vm, source).unwrap();
    let text = |letter: &str| Datum::from(&*letter.repeat(100));
    assert_eq!(vm.host().seen, [text("a"), text("b"), Datum::from("e")]);
}

#[test]
fn what_is_ours_is_not_handed_out() {
    assert_eq!(
        raised("ObjectSpace.each_object(Array) { }").0,
        "NoMethodError"
    );
    assert_eq!(
        value("ObjectSpace.count_objects.size > 3"),
        Datum::Bool(true)
    );
}

#[test]
fn a_method_that_holds_is_for_objects_that_can() {
    let mut vm = opened();
    start(&mut vm, "Box.new(1)").unwrap();
    for receiver in ["Object.new", "5", "'text'", "Time.now", "[]"] {
        let source = format!("Box.instance_method(:__hold).bind({receiver}).call(1)");
        assert!(start(&mut vm, &source).is_err(), "{receiver}");
    }
    vm.collect().unwrap();
    assert_eq!(vm.held(), 0);
    alive(&mut vm);
}

#[test]
fn what_a_resumed_fiber_holds_is_let_go_where_its_class_is_gone() {
    let mut vm = opened();
    for taken in [
        "Object.__send__(:remove_const, :Box)",
        "Box = Class.new",
        "Box = 5",
    ] {
        let fiber = start(&mut vm, &format!("{taken}; Nagaya.wait")).unwrap();
        let held = Resume::Object("Box", Rc::new(1));
        assert!(go(&mut vm, fiber, held).is_err(), "{taken}");
        vm.let_go(fiber);
    }
    vm.collect().unwrap();
    assert_eq!(vm.held(), 0);
    alive(&mut vm);
}

#[test]
fn a_fiber_whose_script_has_ended_forgets_all_of_it() {
    let mut vm = opened();
    let fiber = vm.fiber().unwrap();
    let sources = [
        "a = 'x' * 100; b = [a]; @kept = -> { [a, b].size }; b",
        "GC.start; @kept.call",
        "def deep(n) n == 0 ? [] : [deep(n - 1)] end; deep(200).size",
        "begin; raise 'x'; rescue => e; e.message; end",
        "[1, 2].each { |x| return binding.local_variables.size }",
    ];
    for round in 0..100 {
        for source in sources {
            let script = vm.compile(source.as_bytes(), "script.rb", 1).unwrap();
            let ended = go(&mut vm, fiber, Resume::Script(script));
            assert_eq!(ended, Ok(()), "{round}: {source}");
            vm.let_go(script);
        }
    }
    alive(&mut vm);
}

#[test]
fn objects_of_natives_are_made_as_any_others() {
    let mut vm = opened();
    let any = Takes {
        least: 0,
        most: 2,
        texts: 0,
    };
    vm.define("", "Held", "Object", ClassKind::Holding).unwrap();
    let natives: [(&str, mruby::Native<World>); 2] = [("initialize", hold), ("held", held)];
    for (name, native) in natives {
        vm.method("Held", name, MethodOf::Object, any, native)
            .unwrap();
    }
    let source = "class Below < Held; def initialize(a, b: 2) super(a + b); end; end
        class Same < Held; end
        [Held.new(1).held, Same.new(2).held, Same.new(3).class == Same, Below.new(4, b: 3).held,
         Held.method(:new).call(5).held, [6].map { |n| Held.new(n).held }[0], Held.new.held,
         Held.new(a: 1).held, Held.send(:new, 7).held, Held.new(*[8]).held, (Held.new(1, 2, 3) rescue 'no')]";
    start(&mut vm, source).unwrap();
    let a = Datum::Symbol(b"a".to_vec());
    let expected = vec![
        Datum::Int(1),
        Datum::Int(2),
        Datum::Bool(true),
        Datum::Int(7),
        Datum::Int(5),
        Datum::Int(6),
        Datum::Nil,
        Datum::Hash(vec![(a, Datum::Int(1))]),
        Datum::Int(7),
        Datum::Int(8),
        Datum::from("no"),
    ];
    assert_eq!(vm.host().finished.take(), Some(Datum::Array(expected)));
}
