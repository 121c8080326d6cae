//! What goes into an interpreter, and what comes out.

use super::*;

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
fn objects_of_natives_are_made_as_any_others() {
    let mut vm = opened();
    let any = Takes {
        least: 0,
        most: 2,
        texts: 0,
    };
    vm.define("", "Held", "Object", ClassKind::Holding).unwrap();
    let natives: [(&str, crate::Native<World>); 2] = [("initialize", hold), ("held", held)];
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
