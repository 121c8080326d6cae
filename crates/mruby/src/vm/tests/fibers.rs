//! Fibers that wait, go on, and are used again.

use super::*;

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
fn a_script_begins_as_an_interpreters_first_does() {
    let many = (0..100).map(|n| format!("a{n} = {n}")).collect::<Vec<_>>();
    let many = format!("{}; a0 + a99", many.join("; "));
    for source in [
        "[self.to_s, __method__, self.class.to_s]",
        "return 5; 6",
        "[1, 2].each { |n| return n }; 3",
        "proc { return 7 }.call; 8",
        "lambda { return 9 }.call",
        "[1, 2].each { |n| break n }",
        "def made_at_the_top; 10; end; made_at_the_top + Object.new.send(:made_at_the_top)",
        "n = 1; $kept = -> { n += 1 }; $kept.call; $kept.call",
        "x = y = nil; [x, y, local_variables.size]",
        "raise 'it fails'",
        "begin; raise 'it fails'; ensure; $ensured = 1; end",
        "1\n2\nnothing_of_that_name",
        "def deep(n) n == 0 ? 0 : 1 + deep(n - 1) end; deep(200)",
        "Fiber.new { |a| Fiber.yield a + 1; 3 }.resume(1)",
        "eval('1 + 2')",
        "Nagaya.__run(-1)",
        &many,
    ] {
        let mut first = unused_in(&Memory::of(64 << 20));
        let expected = ended(&mut first, source);
        for vm in [&mut first, &mut opened()] {
            for _ in 0..3 {
                assert_eq!(ended(vm, source), expected, "{source}");
                alive(vm);
            }
        }
    }
}

/// What a script ends with in a fiber of its own, and once more in the same.
fn ended(vm: &mut Vm<World>, source: &str) -> [Result<Halt, Error>; 2] {
    let script = vm.compile(source.as_bytes(), "script.rb", 1).unwrap();
    let fiber = vm.fiber().unwrap();
    let first = vm.resume(fiber, Resume::Script(script), None);
    let fiber = match first {
        Ok(_) => fiber,
        // It is dead.
        Err(_) => vm.fiber().unwrap(),
    };
    [first, vm.resume(fiber, Resume::Script(script), None)]
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
