//! Scripts that mruby 3.2 as it was published does not survive: each raises or answers, and the next
//! one runs. What is mended for them is in `patches/` and `shim/`; `script`'s `method_fuzz` looks for more.

use std::time::Duration;

use crate::{Budget, Datum, Error, Halt, Host, Memory, Resume, Vm};

#[derive(Default)]
struct World;

impl Host for World {
    type Lent = String;

    fn cancel_wait(&mut self) {}
}

fn opened() -> Vm<World> {
    opened_with(64 << 20).expect("an interpreter opens")
}

fn opened_with(memory_bytes: usize) -> Result<Vm<World>, Error> {
    let patience = std::env::var("NAGAYA_PATIENCE").ok();
    let patience: u32 = patience.and_then(|text| text.parse().ok()).unwrap_or(1);
    let budget = Budget {
        memory: Memory::of(memory_bytes),
        cpu: Duration::from_millis(50) * patience,
    };
    let mut vm = Vm::open(World, budget)?;
    vm.unseal();
    Ok(vm)
}

fn run(vm: &mut Vm<World>, source: &str) -> Result<Datum, Error> {
    let script = vm.compile(source.as_bytes(), "script.rb", 1)?;
    let fiber = vm.fiber()?;
    match vm.resume(fiber, Resume::Script(script), None)? {
        Halt::Ended(value) => Ok(value),
        Halt::Parked => Ok(Datum::Nil),
    }
}

/// What a script that has to end comes to, in an interpreter that goes on.
fn ended(source: &str) -> Result<Datum, Error> {
    let mut vm = opened();
    let ended = run(&mut vm, source);
    vm.collect().unwrap();
    assert_eq!(run(&mut vm, "1 + 1"), Ok(Datum::Int(2)), "{source}");
    ended
}

fn value(source: &str) -> Datum {
    ended(source).unwrap_or_else(|error| panic!("{source}: {error:?}"))
}

fn raised(source: &str) -> String {
    match ended(source) {
        Err(Error::Raised(raised)) => raised.class,
        other => panic!("{source}: {other:?}"),
    }
}

fn text(text: &str) -> Datum {
    Datum::from(text)
}

fn ints(numbers: &[i64]) -> Datum {
    Datum::Array(numbers.iter().copied().map(Datum::Int).collect())
}

#[test]
fn an_object_that_only_c_code_can_make_is_not_allocated() {
    let whole = [
        "Proc.allocate.call",
        "Proc.allocate.yield",
        "Proc.allocate === 1",
        "[1].each(&Proc.allocate)",
        "Fiber.new(&Proc.allocate)",
        "Method.allocate.super_method",
        "UnboundMethod.allocate.bind(1)",
        "Class.allocate.new",
    ];
    for source in whole {
        assert_eq!(raised(source), "TypeError", "{source}");
    }
    for class in [
        "Proc",
        "Method",
        "UnboundMethod",
        "Binding",
        "Rational",
        "Complex",
        "Class",
    ] {
        for how in [
            "Class.instance_method(:allocate).bind(CLASS).call",
            "CLASS.send(:allocate)",
            "CLASS.dup.allocate",
            "CLASS.clone.instance_eval { allocate }",
            "Class.new(CLASS).allocate",
            "Class.new(Class.new(CLASS)).allocate",
        ] {
            let source = how.replace("CLASS", class);
            let raised = raised(&source);
            assert!(
                ["TypeError", "NoMethodError"].contains(&&*raised),
                "{source}: {raised}"
            );
        }
    }
}

#[test]
fn a_string_that_was_not_initialized_is_empty() {
    for made in [
        "String.allocate",
        "Class.new(String) { def initialize(*) end }.new('x')",
        "Class.new(String) { def initialize_copy(*) end }.new('x').dup",
        "Class.new(String) { def initialize_copy(*) end }.new('x').clone",
    ] {
        let source =
            format!("s = {made}; [s.size, s.prepend('ab').to_s, s.inspect, s.to_sym, s * 2]");
        let expected = [
            Datum::Int(0),
            text("ab"),
            text("\"ab\""),
            Datum::Symbol(b"ab".to_vec()),
            text("abab"),
        ];
        assert_eq!(value(&source), Datum::Array(expected.into()), "{source}");
    }
}

#[test]
fn a_copied_proc_runs_whatever_its_class_says_of_copies() {
    let class = "Class.new(Proc) { def initialize_copy(*) end }.new { |x| x + 1 }";
    for copy in ["dup", "clone"] {
        assert_eq!(
            value(&format!("{class}.{copy}.call(1)")),
            Datum::Int(2),
            "{copy}"
        );
    }
}

#[test]
fn a_module_that_was_not_initialized_is_an_empty_one() {
    assert_eq!(
        value("m = Module.allocate; m.define_method(:a) { 1 }; Class.new { include m }.new.a"),
        Datum::Int(1)
    );
    assert_eq!(
        value("Class.new(Module) { def initialize; end }.new.instance_methods"),
        ints(&[])
    );
}

#[test]
fn keyword_arguments_reach_method_missing() {
    let class =
        "class A; def method_missing(name, *rest, **kept) [rest.size, kept[:k].to_i] end; end";
    for (call, expected) in [
        ("A.new.a(k: 2)", [0, 2]),
        ("A.new.a(1, k: 2)", [1, 2]),
        ("A.new.a(*[1] * 20, k: 2)", [20, 2]),
        (
            "Class.new(A) { def a(*r, k: 1, **o) super end }.new.a(1, j: 2)",
            [1, 0],
        ),
        ("A.new.a(1)", [1, 0]),
    ] {
        assert_eq!(
            value(&format!("{class}; {call}")),
            ints(&expected),
            "{call}"
        );
    }
}

#[test]
fn a_block_without_a_self_is_yielded_to() {
    assert_eq!(
        value("{ 1 => 2 }.each(&:to_s); [3, 1].sort(&:<=>)"),
        ints(&[1, 3])
    );
    assert_eq!(
        value("[Class, Module].each { |c| c.new(&:name) rescue 0 }; 1"),
        Datum::Int(1)
    );
    assert_eq!(value("catch(:a, &:to_s)"), text("a"));
}

#[test]
fn an_array_that_its_elements_change_stays_one() {
    for source in [
        "a = [1, nil, 2] * 9; b = a[1, 20]; b.compact!; b.rotate!(3); b.slice!(2, 3); b.size",
        "$a = [[1], [2]]; k = Object.new; def k.==(o) $a.clear; GC.start; true; end; $a.assoc(k); $a.rassoc(k); 1",
        "$a = (0..40).to_a; i = Object.new; def i.to_i; $a.clear; 1; end; def i.to_int; to_i; end; ($a.slice!(i, 3) rescue 0); 1",
        "$a = Array.new(30) { |i| i.to_s * 9 }; $a.sort! { |x, y| $a.clear; GC.start; 1 } rescue 0; 1",
    ] {
        ended(source).unwrap_or_else(|error| panic!("{source}: {error:?}"));
    }
}

#[test]
fn a_hash_that_its_keys_change_stays_one() {
    assert_eq!(raised("{ 1 => 2 }.freeze.rehash"), "FrozenError");
    let class = "class K; def hash; 1; end; def eql?(o) $h.clear if $h; GC.start; true; end; end";
    for call in [
        "$h[K.new]",
        "$h.delete(K.new)",
        "$h.rehash",
        "$h.key?(K.new)",
        "$h.dup == $h",
    ] {
        let source =
            format!("{class}; $h = (0..30).map {{ [K.new, 'x' * 40] }}.to_h; {call} rescue 0; 1");
        assert_eq!(value(&source), Datum::Int(1), "{source}");
    }
}

#[test]
fn a_format_that_changes_while_it_is_read_is_read_as_it_was() {
    let source = "$f = 'a%sb%s' + 'c' * 300; o = Object.new; def o.to_s; $f.replace(''); GC.start; 'x'; end; ($f % [o, 1])[0, 5]";
    assert_eq!(value(source), text("axb1c"));
}

#[test]
fn an_invalid_byte_is_stepped_over_in_a_search() {
    assert_eq!(
        value("(\"\\xff\\xfe\" * 40 + 'äa').index('äab')"),
        Datum::Nil
    );
    assert_eq!(
        value("('ä' * 9 + \"\\xf0\").index(\"\\xf0\\x80\")"),
        Datum::Nil
    );
}

#[test]
fn an_integer_is_divided_by_numbers_alone() {
    for source in ["1.divmod(nil)", "1.divmod('a')", "1.divmod([])"] {
        assert_eq!(raised(source), "TypeError", "{source}");
    }
    assert_eq!(
        value("7.divmod(2.0)"),
        Datum::Array(vec![Datum::Int(3), Datum::Float(1.0)])
    );
}

#[test]
fn a_text_has_no_negative_length() {
    for source in [
        "Random.bytes(-1)",
        "Random.new.bytes(-9223372036854775807 - 1)",
    ] {
        assert_eq!(raised(source), "ArgumentError", "{source}");
    }
    assert_eq!(value("Random.bytes(3).bytesize"), Datum::Int(3));
}

#[test]
fn a_script_for_which_there_is_no_room_is_refused() {
    let least = opened().bytes();
    for more in (0..64 << 10).step_by(512) {
        let Ok(mut vm) = opened_with(least + more) else {
            continue;
        };
        // Refused or compiled, as there is room.
        let _ = vm.compile(b"[1].map { |a| { a => \"x\" } }", "script.rb", 1);
    }
    assert_eq!(value("1 + 1"), Datum::Int(2));
}

#[test]
fn members_that_a_struct_lacks_are_nil() {
    for source in [
        "Struct.new(:a, :b).allocate.to_h",
        "s = Struct.new(:a, :b); t = Class.new(s) { def initialize; end }.new; t.to_h",
        "Data.define(:a).allocate.a",
        "Class.new(Data.define(:a, :b)) { def initialize(**) end }.new(a: 1, b: 2).b",
    ] {
        // Whether it raises is mruby's own affair.
        let _ = ended(source);
    }
}

#[test]
fn whoever_replaces_fiber_new_gets_no_fiber_of_ours() {
    for source in [
        "def Fiber.new(*) 1 end",
        "class Class; def new(*) nil end end",
    ] {
        let mut vm = opened();
        let script = vm.compile(source.as_bytes(), "script.rb", 1).unwrap();
        let fiber = vm.fiber().unwrap();
        vm.resume(fiber, Resume::Script(script), None).unwrap();
        assert!(
            matches!(vm.fiber(), Err(Error::Raised(raised)) if raised.class == "TypeError"),
            "{source}"
        );
    }
}

#[test]
fn a_script_waits_after_a_break_out_of_a_native() {
    for native in [
        "Struct.new(:a) { break }",
        "Class.new { break }",
        "catch(:a) { break }",
        "begin; Struct.new(:a) { begin; break; ensure; nil.gone; end }; rescue NoMethodError; end",
    ] {
        let source =
            format!("def waits; {native}; begin; 1; ensure; Fiber.yield; end; 5; end; waits");
        let mut vm = opened();
        let script = vm.compile(source.as_bytes(), "script.rb", 1).unwrap();
        let fiber = vm.fiber().unwrap();
        let first = vm.resume(fiber, Resume::Script(script), None).unwrap();
        assert!(matches!(first, Halt::Parked), "{source}");
        let last = vm.resume(fiber, Resume::Value(Datum::Nil), None).unwrap();
        assert!(matches!(last, Halt::Ended(Datum::Int(5))), "{source}");
    }
}
